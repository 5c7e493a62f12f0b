/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory that outlives its process, on hardware. This program runs itself again as a process that
 * adopts two pools, checks every word of what is sealed, and is killed while its kernels write what
 * is not; many times. How long the adoptions took is compared with the driver's own calls for such
 * memory, in processes of their own too. Readers check every word beside a process that writes, and
 * one of them tries to write what is sealed. TARN names the program `tarn`, whose `keep` is the
 * owner. GPU_KEEP_GIB is how much is kept (60, or what the device has room for), GPU_KEEP_KILLS how
 * many processes are killed (40, or as many as 45 s allow). */
#include "gpu.h"
#include "side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB ((size_t)1 << 30)
#define MOST 64  /* blocks */
#define RUNS 500 /* kept figures */
#define SEED 100
#define WORK 100000000 /* ns: how long about the kernels write that a kill meets */
#define TIME 45000000000u
#define LEFT (6 * GIB) /* for the contexts, the loose block and whoever else is there */
#define GOAL_BLOCKS 60
#define GOAL_MS 10.0
#define GOAL_RATIO 1.2

static size_t block_bytes = GIB;
static unsigned blocks;
static char path[100];

/* What a side reports: how long it took, and where the memory is. */
struct told {
    uint64_t ns;
    void *blocks[MOST], *other;
    bool well, moved, read_only;
};

/* The figures of several sides. */
struct figures {
    double ms[RUNS];
    unsigned count;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void figures_add(struct figures *figures, uint64_t ns)
{
    if (figures->count < RUNS)
        figures->ms[figures->count++] = (double)ns / 1e6;
}

static double figures_median(struct figures *figures)
{
    if (!figures->count)
        return 0;
    qsort(figures->ms, figures->count, sizeof figures->ms[0], by_size);
    return figures->ms[figures->count / 2];
}

static bool tell(int socket, const struct told *told)
{
    return send(socket, told, sizeof *told, MSG_NOSIGNAL) == (ssize_t)sizeof *told;
}

static bool get_told(int socket, struct told *told)
{
    return recv(socket, told, sizeof *told, MSG_WAITALL) == (ssize_t)sizeof *told && told->well;
}

/* ---- The driver's own calls ---- */

static const struct cu_allocation_properties properties = {
    .type = CU_ALLOCATION_PINNED,
    .handle_types = CU_HANDLE_POSIX_FD,
    .location = {.type = CU_LOCATION_DEVICE},
};

static bool send_files(int socket, const int *files, unsigned count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
    } control = {.bytes = {0}};
    char word = 'f';
    struct iovec word_of = {&word, 1};
    struct msghdr message = {.msg_iov = &word_of,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof(int)),
                                      .cmsg_level = SOL_SOCKET,
                                      .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), files, count * sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

static bool get_files(int socket, int *files, unsigned count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
    } control;
    char word = 0;
    struct iovec word_of = {&word, 1};
    struct msghdr message = {.msg_iov = &word_of,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message) ||
        control.header.cmsg_len != CMSG_LEN(count * sizeof(int)))
        return false;
    memcpy(files, CMSG_DATA(&control.header), count * sizeof(int));
    return true;
}

/* Imports, maps and opens memory of another process, as an adoption has to. */
static bool map_all(const char *name, const int *files)
{
    const struct cu_access access = {.location = {.type = CU_LOCATION_DEVICE},
                                     .flags = CU_ACCESS_READ_WRITE};
    cu_address base = 0;
    bool well = CU(name, gpu.cuMemAddressReserve(&base, blocks * block_bytes, 0, 0, 0));
    for (unsigned i = 0; well && i < blocks; i++) {
        cu_piece piece = 0;
        void *file = (void *)(intptr_t)files[i];
        well = CU(name, gpu.cuMemImportFromShareableHandle(&piece, file, CU_HANDLE_POSIX_FD)) &&
               CU(name, gpu.cuMemMap(base + i * block_bytes, block_bytes, 0, piece, 0));
    }
    return well && CU(name, gpu.cuMemSetAccess(base, blocks * block_bytes, &access, 1));
}

static bool map_by_driver(int socket)
{
    int files[MOST];
    struct told told = {.well = get_files(socket, files, blocks)};
    uint64_t began = gpu_ns();
    told.well = told.well && map_all("keep: the driver's own calls", files);
    told.ns = gpu_ns() - began;
    return tell(socket, &told) && hear(socket, 'e');
}

/* Makes memory that only descriptors hold. */
static bool make_files(const char *name, int *files)
{
    bool well = true;
    for (unsigned i = 0; well && i < blocks; i++) {
        cu_piece piece = 0;
        files[i] = -1;
        well = CU(name, gpu.cuMemCreate(&piece, block_bytes, &properties, 0)) &&
               CU(name, gpu.cuMemExportToShareableHandle(&files[i], piece, CU_HANDLE_POSIX_FD, 0));
        well = (!piece || CU(name, gpu.cuMemRelease(piece))) && well;
    }
    return well;
}

/* How long the driver's own calls take for the same memory, in ms. 0 on failure. */
static double time_driver(const char *program)
{
    const char *name = "keep: the driver's own calls";
    int files[MOST];
    struct figures figures = {.count = 0};
    for (unsigned i = 0; i < MOST; i++)
        files[i] = -1;
    bool well = make_files(name, files);
    for (int i = 0; well && i < 7; i++) {
        int socket = -1;
        struct told told = {.well = false};
        pid_t process = side_start(program, "driver", SOCK_STREAM, &socket);
        well = process > 0 && send_files(socket, files, blocks) && get_told(socket, &told);
        well = side_end(process, SIGKILL) && close(socket) == 0 && well;
        if (well)
            figures_add(&figures, told.ns);
    }
    for (unsigned i = 0; i < MOST; i++)
        if (files[i] >= 0)
            close(files[i]);
    if (!well)
        gpu_say(GPU_FAIL, name, "no figure");
    return well ? figures_median(&figures) : 0;
}

/* ---- The process that is killed ---- */

static tarn_keep_options options_of(tarn_stream stream)
{
    return (tarn_keep_options){.size = sizeof(tarn_keep_options),
                               .socket = path,
                               .segment = block_bytes,
                               .stream = stream,
                               .wait_ms = 20000};
}

static void name_of(unsigned i, char name[32])
{
    snprintf(name, 32, "layer.%u", i);
}

static bool seal_all(const char *name, tarn_pool *pool, tarn_stream stream, void **pointers)
{
    tarn_event *event = NULL;
    bool well = OK(name, tarn_event_create(0, &event));
    for (unsigned i = 0; well && i < blocks; i++) {
        char block[32];
        name_of(i, block);
        well = OK(name, tarn_pool_alloc(pool, stream, block_bytes, &pointers[i])) &&
               gpu_fill(stream, pointers[i], block_bytes, SEED + i, 0) &&
               OK(name, tarn_event_record(event, stream)) &&
               OK(name, tarn_pool_block_seal(pointers[i], block, NULL, event));
    }
    return well && OK(name, tarn_event_destroy(event));
}

/* Finds all sealed blocks, and checks every word. */
static bool check_all(const char *name, tarn_pool *pool, tarn_stream stream, void **pointers)
{
    bool well = true;
    for (unsigned i = 0; well && i < blocks; i++) {
        char block[32];
        tarn_sealed_block found = {.size = sizeof found};
        name_of(i, block);
        well = OK(name, tarn_pool_block_find(pool, block, &found)) && found.bytes == block_bytes;
        pointers[i] = found.pointer;
    }
    return well && gpu_holds(name, stream, pointers, blocks, block_bytes, SEED);
}

/* The other pool has one small block. */
static bool keep_other(const char *name, tarn_stream stream, struct told *told)
{
    tarn_keep_options options = options_of(stream);
    tarn_kept kept = {.size = sizeof kept};
    tarn_sealed_block found = {.size = sizeof found};
    tarn_pool *pool = NULL;
    if (!OK(name, tarn_pool_keep("others", &options, &pool, &kept)))
        return false;
    told->moved = told->moved || kept.moved;
    if (kept.adopted) {
        bool well = OK(name, tarn_pool_block_find(pool, "small", &found));
        told->other = found.pointer;
        return well && gpu_holds(name, stream, &told->other, 1, MIB, 7);
    }
    return OK(name, tarn_pool_alloc(pool, stream, MIB, &told->other)) &&
           gpu_write(name, stream, told->other, MIB, 7) &&
           OK(name, tarn_pool_block_seal(told->other, "small", NULL, NULL));
}

/* Queues kernels that write a block for about WORK ns. */
static bool write_on(tarn_stream stream, void *block)
{
    uint64_t began = gpu_ns();
    bool well = gpu_write("keep: a process", stream, block, block_bytes, 1);
    uint64_t took = gpu_ns() - began, times = took ? WORK / took + 1 : 1;
    for (uint64_t i = 0; well && i < times && i < 1000; i++)
        well = gpu_fill(stream, block, block_bytes, (uint32_t)i, 0);
    return well;
}

static bool live(int socket, tarn_stream stream)
{
    const char *name = "keep: a process";
    tarn_keep_options options = options_of(stream);
    tarn_kept kept = {.size = sizeof kept};
    tarn_pool *pool = NULL;
    struct told told = {.well = false};
    void *loose = NULL;
    void *before = NULL; /* as a program has allocated before, tarn's tables are there */
    if (!OK(name, tarn_alloc_on(stream, MIB, &before)) || !OK(name, tarn_free(before)))
        return false;
    uint64_t began = gpu_ns();
    bool well = OK(name, tarn_pool_keep("weights", &options, &pool, &kept));
    told.ns = kept.adopted ? gpu_ns() - began : 0;
    told.moved = kept.moved;
    if (well)
        well = kept.adopted ? kept.blocks == blocks && check_all(name, pool, stream, told.blocks)
                            : seal_all(name, pool, stream, told.blocks);
    well = well && keep_other(name, stream, &told) &&
           OK(name, tarn_pool_alloc(pool, stream, block_bytes, &loose)) && write_on(stream, loose);
    told.well = well;
    return tell(socket, &told) && hear(socket, 'e');
}

/* ---- A reader ---- */

/* Whether the device refuses to write a block. If it does, the context has ended. */
static bool is_refused(tarn_stream stream, void *block)
{
    bool queued = gpu_has_kernels ? gpu_fill(stream, block, block_bytes, 1, 0)
                                  : gpu.cuMemsetD8Async((uintptr_t)block, 1, block_bytes,
                                                        gpu_native(stream)) == 0;
    return !queued || tarn_stream_synchronize(stream) != TARN_OK;
}

static bool read_beside(int socket, tarn_stream stream)
{
    const char *name = "keep: a reader";
    tarn_keep_options options = options_of(stream);
    tarn_kept kept = {.size = sizeof kept};
    tarn_pool *pool = NULL;
    struct told told = {.well = false};
    options.read = true;
    uint64_t began = gpu_ns();
    bool well = OK(name, tarn_pool_keep("weights", &options, &pool, &kept));
    told.ns = gpu_ns() - began;
    told.moved = kept.moved;
    told.read_only = kept.read_only;
    told.well = well && kept.blocks == blocks && check_all(name, pool, stream, told.blocks);
    if (!tell(socket, &told) || !hear(socket, 'w'))
        return false;
    told.well = is_refused(stream, told.blocks[0]);
    (void)tell(socket, &told);
    _exit(0); /* nothing can be ended after an error of the device */
}

/* ---- This side ---- */

static pid_t start_owner(void)
{
    const char *program = getenv("TARN");
    int ends[2];
    char line[200] = "";
    if (!program || access(program, X_OK) || pipe(ends))
        return -1;
    pid_t owner = fork();
    if (owner == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(program, "tarn", "keep", "--socket", path, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    bool well = owner > 0 && read(ends[0], line, sizeof line - 1) > 0 && strstr(line, "listening");
    close(ends[0]);
    return well ? owner : -1;
}

/* A process lives until some moment of the time in which its kernels write. */
static bool kill_one(const char *program, uint64_t *random, struct told *told)
{
    int socket = -1;
    pid_t process = side_start(program, "live", SOCK_STREAM, &socket);
    bool well = process > 0 && get_told(socket, told);
    if (well)
        usleep((useconds_t)(gpu_random(random) % (WORK / 1000)));
    return side_end(process, SIGKILL) && close(socket) == 0 && well;
}

static bool is_at_same_addresses(const struct told *first, const struct told *told)
{
    return !told->moved && first->other == told->other &&
           memcmp(first->blocks, told->blocks, sizeof first->blocks) == 0;
}

/* Kills `most` processes, or as many as there is time for. Returns how many were killed; the last
 * without success, where one was not. */
static int kill_many(const char *program, struct figures *figures, struct told *first, int *same)
{
    const char *wanted = getenv("GPU_KEEP_KILLS");
    int most = wanted ? atoi(wanted) : gpu_is_simulated ? 10 : 40, done = 0;
    uint64_t random = 1, began = gpu_ns();
    bool well = true;
    *same = 0;
    while (well && done < most && (wanted || gpu_ns() - began < TIME)) {
        struct told told = {.well = false};
        well = kill_one(program, &random, &told);
        if (well && done == 0)
            *first = told;
        if (well && told.ns)
            figures_add(figures, told.ns);
        *same += well && done > 0 && is_at_same_addresses(first, &told);
        done += well;
    }
    char text[200];
    snprintf(text, sizeof text,
             "%d processes killed while their kernels wrote the pool; each found every word of %zu "
             "MiB in %u sealed blocks right",
             done, blocks * block_bytes / MIB, blocks);
    gpu_verdict(well && done > 1, "keep: kills", text);
    snprintf(text, sizeof text, "%d of %d processes had both pools at the addresses of the first",
             *same, done - 1);
    gpu_verdict(well && *same == done - 1, "keep: addresses", text);
    return well ? done : 0;
}

/* Has a reader check all, and, if the driver says that it refuses writes, try one: `refused`. A
 * reader that died by it did not write. */
static bool try_reader(const char *program, bool writes, struct told *told, bool *refused)
{
    int socket = -1;
    pid_t process = side_start(program, "read", SOCK_STREAM, &socket);
    bool well = process > 0 && get_told(socket, told);
    if (well && writes && told->read_only && say(socket, 'w')) {
        struct told after;
        ssize_t came = recv(socket, &after, sizeof after, MSG_WAITALL);
        *refused = came != (ssize_t)sizeof after || after.well;
    }
    if (process > 0) {
        (void)kill(process, SIGKILL);
        (void)waitpid(process, NULL, 0);
    }
    return close(socket) == 0 && well;
}

/* Two readers beside a process that has the pool and writes what is not sealed in it. */
static void check_readers(const char *program)
{
    int socket = -1;
    bool refused = false;
    struct told writer = {.well = false}, first = {.well = false}, second = {.well = false};
    char text[200];
    pid_t process = side_start(program, "live", SOCK_STREAM, &socket);
    bool well = process > 0 && get_told(socket, &writer) &&
                try_reader(program, true, &first, &refused) &&
                try_reader(program, false, &second, &refused);
    well = side_end(process, SIGKILL) && close(socket) == 0 && well;
    snprintf(
        text, sizeof text,
        "two beside the pool's process found every word right, after %.2f ms, %s its addresses; "
        "writes through their mapping are %s",
        (double)first.ns / 1e6, first.moved ? "not at" : "at",
        !first.read_only ? "not refused by this driver, it says"
        : refused        ? "refused, and changed nothing"
                         : "not refused, although the driver says so");
    gpu_verdict(well && refused == first.read_only, "keep: readers", text);
}

/* The goal is for a device of that size: the owner's answer counts more in less memory. */
static void judge_time(struct figures *figures, double driver)
{
    const char *name = "keep: an adoption";
    double median = figures_median(figures);
    char text[200];
    snprintf(text, sizeof text,
             "%u segments, %zu MiB, in %.2f ms beside the context (%u times, %.2f to %.2f), %.2f "
             "times the driver's own reserve, import, map and access, which take %.2f ms",
             blocks, blocks * block_bytes / MIB, median, figures->count, figures->ms[0],
             figures->ms[figures->count ? figures->count - 1 : 0], driver > 0 ? median / driver : 0,
             driver);
    if (gpu_is_simulated || blocks < GOAL_BLOCKS)
        gpu_say(GPU_NOTE, name, "%s", text);
    else
        gpu_goal(median <= GOAL_MS && median <= GOAL_RATIO * driver, name, text);
}

/* Gives all back. */
static void end_pool(tarn_stream stream)
{
    const char *name = "keep: the end";
    tarn_keep_options options = options_of(stream);
    tarn_kept kept = {.size = sizeof kept};
    tarn_pool *pool = NULL;
    void *pointers[MOST];
    char text[100];
    bool well = OK(name, tarn_pool_keep("weights", &options, &pool, &kept)) && kept.adopted &&
                kept.blocks == blocks && check_all(name, pool, stream, pointers);
    for (unsigned i = 0; well && i < blocks; i++)
        well = OK(name, tarn_free(pointers[i]));
    size_t before = gpu_free_bytes();
    well = well && OK(name, tarn_pool_release(pool)) && OK(name, tarn_device_trim(0, 0));
    size_t after = gpu_free_bytes();
    snprintf(text, sizeof text, "%zu MiB came back with the release", (after - before) >> 20);
    /* The simulated driver counts what this process has created. */
    gpu_verdict(well && (gpu_is_simulated || after - before >= kept.bytes), name, text);
}

static void choose_size(void)
{
    const char *wanted = getenv("GPU_KEEP_GIB");
    size_t free = gpu_free_bytes(), room = free > LEFT ? (free - LEFT) / GIB : 1;
    if (gpu_is_simulated)
        block_bytes = 16 * MIB;
    blocks = wanted ? (unsigned)atoi(wanted) : gpu_is_simulated ? 8 : GOAL_BLOCKS;
    if (!gpu_is_simulated && blocks > room)
        blocks = (unsigned)room;
    blocks = blocks < 1 ? 1 : blocks < MOST ? blocks : MOST;
}

/* What a process does that this program started. */
static bool play(const char *role, int socket, tarn_stream stream)
{
    if (strcmp(role, "driver") == 0)
        return map_by_driver(socket);
    return strcmp(role, "read") == 0 ? read_beside(socket, stream) : live(socket, stream);
}

int main(int argc, char **argv)
{
    const char *socket_path = getenv("GPU_KEEP_SOCKET"), *size = getenv("GPU_KEEP_BLOCKS");
    tarn_stream stream = 0;
    snprintf(path, sizeof path, "/tmp/tarn-keep-check-%d", (int)getpid());
    if (socket_path)
        snprintf(path, sizeof path, "%.99s", socket_path);
    setenv("GPU_KEEP_SOCKET", path, 1);
    int status = gpu_start();
    if (status)
        return status;
    choose_size();
    if (size) /* as the first of these processes chose it */
        blocks = (unsigned)atoi(size);
    if (!OK("keep", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    if (argc == 3)
        return play(argv[1], atoi(argv[2]), stream) ? 0 : GPU_FAILED;
    char number[16];
    snprintf(number, sizeof number, "%u", blocks);
    setenv("GPU_KEEP_BLOCKS", number, 1);
    if (!getenv("TARN") || access(getenv("TARN"), X_OK)) {
        gpu_say(GPU_SKIP, "keep", "no program `tarn`: TARN names none");
        return gpu_end();
    }
    struct figures figures = {.count = 0};
    struct told first = {.well = false};
    int same = 0;
    double driver = time_driver(argv[0]);
    pid_t owner = start_owner();
    if (owner > 0 && driver > 0 && kill_many(argv[0], &figures, &first, &same)) {
        judge_time(&figures, driver);
        check_readers(argv[0]);
        end_pool(stream);
    }
    gpu_verdict(owner > 0 && kill(owner, SIGTERM) == 0 && side_end(owner, 0),
                "keep: the owner ends", "by SIGTERM");
    return gpu_end();
}
