/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A whole pool between two processes on a real GPU: this program runs itself again as the importer. Kernels of one write what kernels of
 * the other check, while the pool grows; the importer sees a revocation, and each side sees when the other was killed. */
#include "gpu.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (100 * MIB) /* has a segment of its own */
#define GROWTH 3
#define SLACK (4 * MIB) /* what the driver itself may take meanwhile */

extern char **environ;

static void verdict(bool well, const char *name, const char *text)
{
    gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%s", text);
}

static bool write_pattern(const char *name, tarn_stream stream, void *block, uint32_t seed)
{
    return gpu_fill(stream, block, BLOCK, seed, 0) && OK(name, tarn_stream_synchronize(stream));
}

static bool has_pattern(const char *name, tarn_stream stream, void *block, uint32_t seed)
{
    struct gpu_slots slots;
    bool well = gpu_slots_create(&slots, stream, 1) && gpu_check(stream, block, BLOCK, seed, 0, &slots, 0) &&
                OK(name, tarn_stream_synchronize(stream)) && gpu_slots_read(&slots, stream);
    if (well && slots.host[0].wrong) {
        gpu_say(GPU_FAIL, name, "pattern %u: %llu wrong words, the first is %llu", seed,
                (unsigned long long)slots.host[0].wrong, (unsigned long long)slots.host[0].first);
        well = false;
    }
    gpu_slots_destroy(&slots);
    return well;
}

static bool say(int socket, char word)
{
    return send(socket, &word, 1, MSG_NOSIGNAL) == 1;
}

static bool hear(int socket, char word)
{
    char heard = 0;
    return recv(socket, &heard, 1, 0) == 1 && heard == word;
}

static bool tell(int socket, const void *address)
{
    return send(socket, &address, sizeof address, MSG_NOSIGNAL) == (ssize_t)sizeof address;
}

static void *told(int socket)
{
    void *address = NULL;
    return recv(socket, &address, sizeof address, MSG_WAITALL) == (ssize_t)sizeof address ? address : NULL;
}

/* ---- The importer ------------------------------------------------------------------------------------------------ */

static bool is_in(const char *name, tarn_imported_pool *imported, tarn_import_state wanted)
{
    tarn_import_state state = TARN_IMPORT_CURRENT;
    bool well = OK(name, tarn_imported_pool_state_get(imported, &state));
    if (well && state != wanted)
        gpu_say(GPU_FAIL, name, "the import is in state %d, not %d", (int)state, (int)wanted);
    return well && state == wanted;
}

/* Imports the pool, or brings the import up to what comes. */
static bool follow(const char *name, int socket, tarn_imported_pool **imported)
{
    tarn_share *share = NULL;
    bool well = OK(name, tarn_share_receive(socket, &share)) &&
                (*imported ? OK(name, tarn_imported_pool_update(*imported, share))
                           : OK(name, tarn_pool_import(share, 0, imported)));
    return OK(name, tarn_share_close(share)) && well && is_in(name, *imported, TARN_IMPORT_CURRENT);
}

static bool import_and_follow(int socket, tarn_stream stream)
{
    const char *name = "pool export: the importer";
    tarn_imported_pool *imported = NULL;
    void *first = NULL, *again = NULL, *block = NULL;
    bool well = true;
    for (uint32_t i = 0; well && i < 1 + GROWTH; i++) {
        well = follow(name, socket, &imported) &&
               OK(name, tarn_imported_pool_find(imported, told(socket), BLOCK, &block)) &&
               has_pattern(name, stream, block, 10 + i) && write_pattern(name, stream, block, 20 + i);
        first = i == 0 ? block : first;
        again = block;
        well = say(socket, well ? 'w' : 'x') && well;
    }
    well = well && hear(socket, 'r') && is_in(name, imported, TARN_IMPORT_REVOKED) && again != first &&
           has_pattern(name, stream, first, 20);
    well = well && say(socket, 'c') && hear(socket, 'g') && OK(name, tarn_imported_pool_close(imported));
    return say(socket, 'c') && well;
}

/* Imports, and waits for its end. */
static bool import_and_wait(int socket)
{
    tarn_imported_pool *imported = NULL;
    bool well = follow("pool export: an importer that is killed", socket, &imported);
    return say(socket, well ? 'w' : 'x') && hear(socket, 'e');
}

/* Exports, and waits for its end. */
static bool export_and_wait(int socket, tarn_stream stream)
{
    const char *name = "pool export: an exporter that is killed";
    tarn_pool_options options = {.size = sizeof options, .device = 0, .registrable = true};
    tarn_pool *pool = NULL;
    tarn_share *share = NULL;
    void *block = NULL;
    return OK(name, tarn_pool_create(&options, &pool)) && OK(name, tarn_pool_alloc(pool, stream, BLOCK, &block)) &&
           write_pattern(name, stream, block, 40) && OK(name, tarn_pool_export(pool, NULL, &share)) &&
           OK(name, tarn_share_send(socket, share)) && tell(socket, block) && hear(socket, 'e');
}

static int play(const char *role, int socket)
{
    tarn_stream stream = 0;
    int status = gpu_start();
    if (status)
        return status;
    bool well = OK("pool export", tarn_stream_lease(0, 0, &stream));
    if (strcmp(role, "follow") == 0)
        well = well && import_and_follow(socket, stream);
    else if (strcmp(role, "import") == 0)
        well = well && import_and_wait(socket);
    else
        well = well && export_and_wait(socket, stream);
    return well ? 0 : GPU_FAILED;
}

static pid_t start_side(const char *role, int *socket)
{
    int ends[2];
    char number[16];
    pid_t process = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return -1;
    snprintf(number, sizeof number, "%d", ends[1]);
    char *arguments[] = {"gpu_pool_export", (char *)(uintptr_t)role, number, NULL};
    if (posix_spawn(&process, "/proc/self/exe", NULL, NULL, arguments, environ))
        process = -1;
    close(ends[1]);
    *socket = ends[0];
    return process;
}

/* Whether the other side has ended as it should: well, or killed. */
static bool end_side(pid_t process, int killed)
{
    int status = 0;
    if (killed)
        (void)kill(process, killed);
    if (waitpid(process, &status, 0) != process)
        return false;
    return killed ? WIFSIGNALED(status) && WTERMSIG(status) == killed : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- This side --------------------------------------------------------------------------------------------------- */

static bool counts(const char *name, const tarn_share *share, size_t wanted)
{
    size_t count = 0;
    bool well = OK(name, tarn_share_importers_get(share, &count));
    if (well && count != wanted)
        gpu_say(GPU_FAIL, name, "%zu importers, not %zu", count, wanted);
    return well && count == wanted;
}

/* A block more, exported: what came before goes along only at first. */
static bool grow(const char *name, int socket, tarn_pool *pool, tarn_stream stream, uint32_t seed, void **block,
                 tarn_share **share)
{
    tarn_share *next = NULL;
    if (!OK(name, tarn_pool_alloc(pool, stream, BLOCK, block)) || !write_pattern(name, stream, *block, seed) ||
        !OK(name, tarn_pool_export(pool, *share, &next)))
        return false;
    (void)OK(name, tarn_share_close(*share));
    *share = next;
    return OK(name, tarn_share_send(socket, next)) && tell(socket, *block) && hear(socket, 'w') &&
           has_pattern(name, stream, *block, seed + 10);
}

static void exports(tarn_pool *pool, tarn_stream stream)
{
    const char *name = "pool export: while it grows";
    int socket = -1;
    void *blocks[1 + GROWTH] = {NULL};
    tarn_share *share = NULL;
    tarn_share_info info = {.size = sizeof info};
    char text[160];
    pid_t side = start_side("follow", &socket);
    bool well = side > 0;
    for (uint32_t i = 0; well && i < 1 + GROWTH; i++)
        well = grow(name, socket, pool, stream, 10 + i, &blocks[i], &share);
    well = well && OK(name, tarn_share_info_get(share, &info)) && counts(name, share, 1);
    snprintf(text, sizeof text, "%u segments of %zu MiB in all, generation %llu", info.pieces, info.mapped / MIB,
             (unsigned long long)info.generation);
    verdict(well, name, text);

    name = "pool export: revoked";
    well = well && tarn_pool_suspend(pool, true) == TARN_ERROR_BUSY && OK(name, tarn_share_revoke(share)) &&
           say(socket, 'r') && hear(socket, 'c') && counts(name, share, 1) && say(socket, 'g') && hear(socket, 'c') &&
           counts(name, share, 0);
    close(socket);
    well = side > 0 && end_side(side, 0) && well;
    well = OK(name, tarn_share_close(share)) && OK(name, tarn_pool_suspend(pool, true)) &&
           OK(name, tarn_pool_resume(pool)) && well && has_pattern(name, stream, blocks[0], 20);
    verdict(well, name, "the importer saw it, and left; the pool could be suspended then");
    for (size_t i = 0; i < COUNT(blocks); i++)
        (void)OK(name, tarn_free(blocks[i]));
}

static void killed_importer(tarn_pool *pool, tarn_stream stream)
{
    const char *name = "pool export: an importer that is killed";
    int socket = -1;
    void *block = NULL;
    tarn_share *share = NULL;
    pid_t side = start_side("import", &socket);
    bool well = side > 0 && OK(name, tarn_pool_alloc(pool, stream, BLOCK, &block)) &&
                OK(name, tarn_pool_export(pool, NULL, &share)) && OK(name, tarn_share_send(socket, share)) &&
                hear(socket, 'w') && counts(name, share, 1);
    well = side > 0 && end_side(side, SIGKILL) && well && counts(name, share, 0);
    close(socket);
    verdict(well, name, "it no longer counts");
    (void)OK(name, tarn_share_close(share));
    (void)OK(name, tarn_free(block));
}

static void killed_exporter(tarn_stream stream)
{
    const char *name = "pool export: an exporter that is killed";
    int socket = -1;
    void *block = NULL;
    tarn_imported_pool *imported = NULL;
    pid_t side = start_side("export", &socket);
    bool well = side > 0 && follow(name, socket, &imported) &&
                OK(name, tarn_imported_pool_find(imported, told(socket), BLOCK, &block)) &&
                has_pattern(name, stream, block, 40);
    well = side > 0 && end_side(side, SIGKILL) && well && is_in(name, imported, TARN_IMPORT_ORPHANED) &&
           has_pattern(name, stream, block, 40) && write_pattern(name, stream, block, 41) &&
           has_pattern(name, stream, block, 41);
    close(socket);
    verdict(OK(name, tarn_imported_pool_close(imported)) && well, name, "its memory outlives it");
}

static size_t free_bytes(void)
{
    size_t available = 0, total = 0;
    return OK("memory", tarn_device_memory_get(0, &available, &total)) ? available : 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return play(argv[1], atoi(argv[2]));
    int status = gpu_start();
    if (status)
        return status;
    tarn_stream stream = 0;
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .device = 0, .registrable = true};
    char text[160];
    if (!gpu_properties.exportable) {
        gpu_say(GPU_SKIP, "pool export", "device 0 cannot export memory to other processes");
        return gpu_end();
    }
    if (!OK("pool export", tarn_pool_create(&options, &pool)) || !OK("pool export", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    killed_importer(pool, stream); /* the driver's own first-time costs are not ours */
    (void)OK("pool export", tarn_device_trim(0, 0));
    (void)OK("pool export", tarn_pool_trim(pool, 0));
    size_t before = free_bytes();
    exports(pool, stream);
    killed_importer(pool, stream);
    killed_exporter(stream);
    (void)OK("pool export", tarn_pool_release(pool));
    (void)OK("pool export", tarn_device_synchronize(0));
    (void)OK("pool export", tarn_device_trim(0, 0));
    size_t after = free_bytes();
    snprintf(text, sizeof text, "free before %zu, after %zu bytes", before, after);
    verdict(after + SLACK >= before, "pool export: all goes back", text);
    (void)OK("pool export", tarn_stream_return(stream));
    (void)OK("pool export", tarn_shutdown());
    return gpu_end();
}
