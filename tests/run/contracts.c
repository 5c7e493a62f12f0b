/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a program can tell of `tarn run --pool`: one row per contract, with what the program
 * observes. docs/run.md names the rows.
 *
 *     contracts >alone                     on the driver alone
 *     tarn run --pool -- contracts alone   says of each row whether it is the same
 *     contracts --list                     which rows are kept
 *
 * Each row runs in a process of its own. Some rows need the driver of the tests, whose kernels fail
 * when they are told to; on a real driver they are left out, and the exit status says nothing of
 * the others. On the driver of the tests it is 1 where a row that is said to be kept differs, or
 * one that is said to differ is the same. */
#define PROBE "contracts"
#define PROBE_ANY_DRIVER
#include "pool_probe.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH };
enum { TEXT = 200, ROWS = 64 };
#define S ((cu_stream)0x51) /* on the driver of the tests; else made */
#define T ((cu_stream)0x52)

static cu_pool first;
static cu_stream streams[3];
static char told[TEXT]; /* what the row observed */

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(told);
    va_start(arguments, format);
    vsnprintf(told + used, sizeof told - used, format, arguments);
    va_end(arguments);
}

static cu_address take(size_t size, cu_stream stream)
{
    cu_address address = 0;
    CHECK(cu.cuMemAllocAsync(&address, size, stream) == CU_OK && address);
    return address;
}

static void give(cu_address address, cu_stream stream)
{
    CHECK(cu.cuMemFreeAsync(address, stream) == CU_OK);
}

static uint64_t get(unsigned attribute)
{
    uint64_t value = 0;
    CHECK(cu.cuMemPoolGetAttribute(first, attribute, &value) == CU_OK);
    return value;
}

static void set_threshold(uint64_t value)
{
    CHECK(cu.cuMemPoolSetAttribute(first, THRESHOLD, &value) == CU_OK);
}

/* Errors of earlier work ----------------------------------------------------------------------- */

static void codes_of_calls(cu_address ordered, cu_address plain)
{
    cu_address other = 0;
    tell("cuMemAlloc %u", cu.cuMemAlloc_v2(&other, 4096));
    tell(", cuMemAllocAsync %u", cu.cuMemAllocAsync(&other, 4096, streams[0]));
    tell(", cuMemFreeAsync %u", cu.cuMemFreeAsync(ordered, streams[0]));
    tell(", cuMemFree %u", cu.cuMemFree_v2(plain));
}

/* A kernel has failed, and a wait has said so. */
static void failure_that_was_reported(void)
{
    cu_address ordered = take(4096, streams[0]), plain = make(4096);
    cu.cuFakeFault(719);
    CHECK(cu.cuStreamSynchronize(streams[0]) == 719);
    codes_of_calls(ordered, plain);
}

/* A kernel has failed, and these are the first calls that could say so. */
static void failure_before_any_report(void)
{
    cu_address ordered = take(4096, streams[0]), plain = make(4096);
    cu.cuFakeFault(719);
    codes_of_calls(ordered, plain);
}

/* It is over, and blocks from before are freed first. */
static void after_the_failure(void)
{
    cu_address ordered = take(4096, streams[0]), plain = make(4096), other = 0;
    cu.cuFakeFault(719);
    (void)cu.cuStreamSynchronize(streams[0]);
    (void)cu.cuMemAlloc_v2(&other, 4096);
    cu.cuFakeFault(CU_OK);
    tell("cuMemFreeAsync %u, cuMemFree %u, then ", cu.cuMemFreeAsync(ordered, streams[0]),
         cu.cuMemFree_v2(plain));
    plain = make(4096);
    ordered = take(4096, streams[0]);
    codes_of_calls(ordered, plain);
}

/* Memory --------------------------------------------------------------------------------------- */

static void memory_of_a_device(void)
{
    size_t before = free_now();
    cu_address block = make(4096);
    tell("%zu bytes less are free beside a block of 4096", before - free_now());
    end(block);
}

static void reserved_of_a_pool(void)
{
    uint64_t before = get(RESERVED), used = get(USED);
    cu_address blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = take(4096, streams[i]);
    tell(
        "%llu bytes more are reserved, and %llu used, for a block of 4096 on each of three streams",
        (unsigned long long)(get(RESERVED) - before), (unsigned long long)(get(USED) - used));
    for (int i = 0; i < 3; i++)
        give(blocks[i], streams[i]);
}

static void used_after_a_free_of_the_other_kind(void)
{
    uint64_t used = get(USED);
    cu_address block = take(4096, streams[0]);
    CHECK(cu.cuStreamSynchronize(streams[0]) == CU_OK && cu.cuMemFree_v2(block) == CU_OK);
    tell("%llu bytes are used after cuMemFree of a block of 4096 in stream order",
         (unsigned long long)(get(USED) - used));
}

static void threshold_of_a_pool(void)
{
    set_threshold(0);
    cu_address blocks[2] = {take(4096, streams[0]), take(4096, streams[1])};
    give(blocks[0], streams[0]);
    give(blocks[1], streams[1]);
    CHECK(cu.cuStreamSynchronize(streams[0]) == CU_OK &&
          cu.cuStreamSynchronize(streams[1]) == CU_OK);
    tell("%llu bytes are reserved after the frees and a wait", (unsigned long long)get(RESERVED));
}

static sem_t has_freed, may_end;
static void *keeps_its_stream(void *context)
{
    cu_address block = 0;
    CHECK(cu.cuCtxSetCurrent(context) == CU_OK &&
          cu.cuMemAllocAsync_ptsz(&block, MIB, NULL) == CU_OK);
    CHECK(cu.cuMemFreeAsync_ptsz(block, NULL) == CU_OK && sem_post(&has_freed) == 0 &&
          sem_wait(&may_end) == 0);
    return NULL;
}

/* Free memory of another thread's default stream goes at a wait for the context, and does not make
 * a request fail. */
static void memory_of_another_thread(void)
{
    pthread_t thread;
    cu_address all = 0;
    set_threshold(0);
    CHECK(sem_init(&has_freed, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, keeps_its_stream, primary) == 0 &&
          sem_wait(&has_freed) == 0);
    CHECK(cu.cuCtxSynchronize() == CU_OK);
    tell("%llu bytes are reserved after a wait", (unsigned long long)get(RESERVED));
    tell(", CUDA error %u for all that the device has", cu.cuMemAlloc_v2(&all, 1024 * MIB));
    CHECK(sem_post(&may_end) == 0 && pthread_join(thread, NULL) == 0);
}

/* The memory of pools goes with the primary context on a driver with FAKE_DRIVER_FORGETS, and
 * somebody else had as much of it. */
static void pool_after_a_reset(void)
{
    setenv("FAKE_DRIVER_FORGETS", "1", 1);
    cu_address block = take(4096, streams[0]);
    CHECK(cu.cuFakeUse(8 * MIB) == CU_OK && cu.cuDevicePrimaryCtxReset_v2(0) == CU_OK);
    tell("CUDA error %u for the range of a block from before, %llu bytes are used",
         cu.cuMemGetAddressRange_v2(NULL, NULL, block), (unsigned long long)get(USED));
}

/* Accesses ------------------------------------------------------------------------------------- */

static void access_beyond_a_block(void)
{
    cu_address block = make(4096), other = make(4096), freed = make(4096);
    end(freed);
    tell("CUDA error %u for 4096 bytes, %u for 4608, %u after the free",
         cu.cuMemsetD8_v2(block, 0, 4096), cu.cuMemsetD8_v2(block, 0, 4608),
         cu.cuMemsetD8_v2(freed, 0, 4096));
    end(block);
    end(other);
}

static void alignment(void)
{
    cu_address blocks[8], all = 0;
    for (int i = 0; i < 8; i++)
        all |= blocks[i] = make(70000);
    tell("eight blocks of 70000 bytes begin at multiples of %llu",
         (unsigned long long)(all & -all));
    for (int i = 0; i < 8; i++)
        end(blocks[i]);
}

static cu_address take_of(cu_pool pool)
{
    cu_address address = 0;
    CHECK(cu.cuMemAllocFromPoolAsync(&address, 4096, pool, streams[0]) == CU_OK && address);
    return address;
}

static void access_of_a_peer(void)
{
    const struct cu_pool_properties properties = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    struct cu_access peer = {{CU_LOCATION_DEVICE, 1}, CU_ACCESS_READ_WRITE};
    unsigned before = 9, after = 9;
    cu_pool pool = NULL;
    CHECK(cu.cuMemPoolCreate(&pool, &properties) == CU_OK);
    cu_address old = take_of(pool), other = take(4096, streams[0]), plain = make(4096);
    CHECK(cu.cuMemPoolGetAccess(&before, pool, &peer.location) == CU_OK);
    CHECK(cu.cuMemPoolSetAccess(pool, &peer, 1) == CU_OK);
    CHECK(cu.cuMemPoolGetAccess(&after, pool, &peer.location) == CU_OK);
    cu_address new = take_of(pool);
    tell("access %u, then %u; device 1 reaches an old block %u, a new one %u, one of another pool "
         "%u, a plain one %u",
         before, after, cu.cuFakeReaches(old, 1), cu.cuFakeReaches(new, 1),
         cu.cuFakeReaches(other, 1), cu.cuFakeReaches(plain, 1));
}

static void sync_memops(void)
{
    cu_address block = make(4096), other = make(4096);
    unsigned on = 1, off = 0;
    CHECK(cu.cuPointerSetAttribute(&on, SYNC, block) == CU_OK);
    tell("on %u, beside it %u", (unsigned)ask(SYNC, block), (unsigned)ask(SYNC, other));
    CHECK(cu.cuPointerSetAttribute(&off, SYNC, block) == CU_OK);
    tell(", off %u", (unsigned)ask(SYNC, block));
    CHECK(cu.cuPointerSetAttribute(&on, SYNC, block) == CU_OK);
    tell(", on %u", (unsigned)ask(SYNC, block));
}

/* Sharing -------------------------------------------------------------------------------------- */

static void sharing(void)
{
    struct cu_ipc handle;
    cu_address block = make(4096);
    tell("IS_LEGACY_CUDA_IPC_CAPABLE %u", (unsigned)ask(LEGACY_IPC, block) & 0xff);
    tell(", cuIpcGetMemHandle %u", cu.cuIpcGetMemHandle(&handle, block));
    cu_address later = make(4096);
    tell(", of a later block %u", cu.cuIpcGetMemHandle(&handle, later));
}

/* Captures ------------------------------------------------------------------------------------- */

static void capture(bool is_seen)
{
    cu_address other = 0;
    cu_graph graph = NULL;
    end(make(4096));
    CHECK((is_seen ? cu.cuStreamBeginCapture_v2(streams[0], GLOBAL)
                   : cu.cuFakeCapture(streams[0])) == CU_OK);
    tell("cuMemAlloc %u", cu.cuMemAlloc_v2(&other, 4096));
    tell(", the capture ends with %u",
         is_seen ? cu.cuStreamEndCapture(streams[0], &graph) : cu.cuFakeCapture(NULL));
}

static void seen_capture(void)
{
    capture(true);
}

/* As cuStreamBeginRecaptureToGraph() begins one, which has no hook. */
static void unseen_capture(void)
{
    capture(false);
}

/* Rows ----------------------------------------------------------------------------------------- */

static const struct row {
    const char *name;
    void (*observe)(void);
    bool is_kept, any_driver;
} rows[] = {
    {"failure-reported", failure_that_was_reported, true, false},
    {"failure-first", failure_before_any_report, false, false},
    {"failure-over", after_the_failure, true, false},
    {"device-memory", memory_of_a_device, false, true},
    {"pool-reserved", reserved_of_a_pool, false, true},
    {"pool-used", used_after_a_free_of_the_other_kind, false, true},
    {"pool-threshold", threshold_of_a_pool, true, true},
    {"pool-access", access_of_a_peer, true, false},
    {"pool-reset", pool_after_a_reset, false, false},
    {"thread-memory", memory_of_another_thread, true, false},
    {"bounds", access_beyond_a_block, false, true},
    {"alignment", alignment, false, true},
    {"sync-memops", sync_memops, true, true},
    {"sharing", sharing, false, true},
    {"capture", seen_capture, true, true},
    {"capture-unseen", unseen_capture, false, false},
};
enum { COUNT = sizeof rows / sizeof *rows };

static void prepare(void)
{
    const cu_stream fakes[] = {S, T, (cu_stream)0x53};
    start();
    CHECK(cu.cuDeviceGetDefaultMemPool(&first, 0) == CU_OK);
    for (int i = 0; i < 3; i++)
        if (cu.cuFakeFault)
            streams[i] = fakes[i];
        else
            CHECK(cu.cuStreamCreate(&streams[i], 1) == CU_OK);
}

/* In a process of its own; false where it could not be observed. */
static bool observe(const struct row *row)
{
    int way[2], status = 0;
    CHECK(pipe(way) == 0);
    pid_t child = fork();
    if (child == 0) {
        prepare();
        row->observe();
        _exit(write(way[1], told, strlen(told)) > 0 ? 0 : 1);
    }
    close(way[1]);
    ssize_t length = read(way[0], told, sizeof told - 1);
    told[length > 0 ? length : 0] = '\0';
    close(way[0]);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 && length > 0;
}

/* "NAME: TEXT" of a file that an earlier run printed. */
static bool text_of(FILE *file, const char *name, char *text, size_t size)
{
    char line[2 * TEXT];
    rewind(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') {
            line[strcspn(line, "\n")] = '\0';
            snprintf(text, size, "%s", line + strlen(name) + 2);
            return true;
        }
    return false;
}

/* Whether the row is as it is said to be. */
static bool compare(const struct row *row, FILE *alone)
{
    char text[2 * TEXT];
    if (!text_of(alone, row->name, text, sizeof text)) {
        printf("%s: not observed on the driver alone\n", row->name);
        return false;
    }
    bool same = strcmp(text, told) == 0;
    printf("%s: %s\n", row->name, same ? "the same" : "differs");
    printf("    %s%s\n", same ? "" : "driver: ", text);
    if (!same)
        printf("    --pool: %s\n", told);
    return same == row->is_kept;
}

int main(int argc, char **argv)
{
    FILE *alone = argc > 1 ? fopen(argv[1], "r") : NULL;
    bool well = true;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < COUNT; i++)
            printf("%s %s\n", rows[i].name, rows[i].is_kept ? "kept" : "differs");
        return 0;
    }
    CHECK(argc == 1 || alone);
    open_driver();
    for (int i = 0; i < COUNT; i++) {
        if (!rows[i].any_driver && !cu.cuFakeFault)
            continue;
        told[0] = '\0';
        fflush(stdout);
        bool observed = observe(&rows[i]);
        if (!observed)
            printf("%s: could not be observed\n", rows[i].name);
        else if (!alone)
            printf("%s: %s\n", rows[i].name, told);
        well = observed && (!alone || compare(&rows[i], alone)) && well;
    }
    return well || !cu.cuFakeFault ? 0 : 1;
}
