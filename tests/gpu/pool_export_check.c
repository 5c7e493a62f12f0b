/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A whole pool between two processes on a real GPU: this program runs itself again as the importer.
 * Kernels of one write what kernels of the other check, while the pool grows; the importer sees a
 * revocation, and each side sees when the other was killed. */
#include "gpu.h"
#include "side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (100 * MIB) /* has a segment of its own */
#define GROWTH 3
#define SLACK (4 * MIB) /* what the driver itself may take meanwhile */

static bool tell(int socket, const void *address)
{
    return send(socket, &address, sizeof address, MSG_NOSIGNAL) == (ssize_t)sizeof address;
}

static void *told(int socket)
{
    void *address = NULL;
    return recv(socket, &address, sizeof address, MSG_WAITALL) == (ssize_t)sizeof address ? address
                                                                                          : NULL;
}

/* ---- The importer ---- */

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
               gpu_holds(name, stream, &block, 1, BLOCK, 10 + i) &&
               gpu_write(name, stream, block, BLOCK, 20 + i);
        first = i == 0 ? block : first;
        again = block;
        well = say(socket, well ? 'w' : 'x') && well;
    }
    well = well && hear(socket, 'r') && is_in(name, imported, TARN_IMPORT_REVOKED) &&
           again != first && gpu_holds(name, stream, &first, 1, BLOCK, 20);
    well = well && say(socket, 'c') && hear(socket, 'g') &&
           OK(name, tarn_imported_pool_close(imported));
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
    return OK(name, tarn_pool_create(&options, &pool)) &&
           OK(name, tarn_pool_alloc(pool, stream, BLOCK, &block)) &&
           gpu_write(name, stream, block, BLOCK, 40) &&
           OK(name, tarn_pool_export(pool, NULL, &share)) &&
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

/* ---- This side ---- */

static bool counts(const char *name, const tarn_share *share, size_t wanted)
{
    tarn_share_info info = {.size = sizeof info};
    bool well = OK(name, tarn_share_info_get(share, &info));
    if (well && info.importers != wanted)
        gpu_say(GPU_FAIL, name, "%zu importers, not %zu", info.importers, wanted);
    return well && info.importers == wanted;
}

/* A block more, exported: what came before goes along only at first. */
static bool grow(const char *name, int socket, tarn_pool *pool, tarn_stream stream, uint32_t seed,
                 void **block, tarn_share **share)
{
    tarn_share *next = NULL;
    if (!OK(name, tarn_pool_alloc(pool, stream, BLOCK, block)) ||
        !gpu_write(name, stream, *block, BLOCK, seed) ||
        !OK(name, tarn_pool_export(pool, *share, &next)))
        return false;
    (void)OK(name, tarn_share_close(*share));
    *share = next;
    return OK(name, tarn_share_send(socket, next)) && tell(socket, *block) && hear(socket, 'w') &&
           gpu_holds(name, stream, block, 1, BLOCK, seed + 10);
}

static void exports(tarn_pool *pool, tarn_stream stream)
{
    const char *name = "pool export: while it grows";
    int socket = -1;
    void *blocks[1 + GROWTH] = {NULL};
    tarn_share *share = NULL;
    tarn_share_info info = {.size = sizeof info};
    char text[160];
    pid_t side = side_start("gpu_pool_export", "follow", SOCK_STREAM, &socket);
    bool well = side > 0;
    for (uint32_t i = 0; well && i < 1 + GROWTH; i++)
        well = grow(name, socket, pool, stream, 10 + i, &blocks[i], &share);
    well = well && OK(name, tarn_share_info_get(share, &info)) && counts(name, share, 1);
    snprintf(text, sizeof text, "%u segments of %zu MiB in all, generation %llu", info.pieces,
             info.mapped / MIB, (unsigned long long)info.generation);
    gpu_verdict(well, name, text);

    name = "pool export: revoked";
    well = well && tarn_pool_suspend(pool, true) == TARN_ERROR_BUSY &&
           OK(name, tarn_share_revoke(share)) && say(socket, 'r') && hear(socket, 'c') &&
           counts(name, share, 1) && say(socket, 'g') && hear(socket, 'c') &&
           counts(name, share, 0);
    close(socket);
    well = side > 0 && side_end(side, 0) && well;
    well = OK(name, tarn_share_close(share)) && OK(name, tarn_pool_suspend(pool, true)) &&
           OK(name, tarn_pool_resume(pool)) && well &&
           gpu_holds(name, stream, &blocks[0], 1, BLOCK, 20);
    gpu_verdict(well, name, "the importer saw it, and left; the pool could be suspended then");
    for (size_t i = 0; i < COUNT(blocks); i++)
        (void)OK(name, tarn_free(blocks[i]));
}

static void killed_importer(tarn_pool *pool, tarn_stream stream)
{
    const char *name = "pool export: an importer that is killed";
    int socket = -1;
    void *block = NULL;
    tarn_share *share = NULL;
    pid_t side = side_start("gpu_pool_export", "import", SOCK_STREAM, &socket);
    bool well = side > 0 && OK(name, tarn_pool_alloc(pool, stream, BLOCK, &block)) &&
                OK(name, tarn_pool_export(pool, NULL, &share)) &&
                OK(name, tarn_share_send(socket, share)) && hear(socket, 'w') &&
                counts(name, share, 1);
    well = side > 0 && side_end(side, SIGKILL) && well && counts(name, share, 0);
    close(socket);
    gpu_verdict(well, name, "it no longer counts");
    (void)OK(name, tarn_share_close(share));
    (void)OK(name, tarn_free(block));
}

static void killed_exporter(tarn_stream stream)
{
    const char *name = "pool export: an exporter that is killed";
    int socket = -1;
    void *block = NULL;
    tarn_imported_pool *imported = NULL;
    pid_t side = side_start("gpu_pool_export", "export", SOCK_STREAM, &socket);
    bool well = side > 0 && follow(name, socket, &imported) &&
                OK(name, tarn_imported_pool_find(imported, told(socket), BLOCK, &block)) &&
                gpu_holds(name, stream, &block, 1, BLOCK, 40);
    well = side > 0 && side_end(side, SIGKILL) && well &&
           is_in(name, imported, TARN_IMPORT_ORPHANED) &&
           gpu_holds(name, stream, &block, 1, BLOCK, 40) &&
           gpu_write(name, stream, block, BLOCK, 41) &&
           gpu_holds(name, stream, &block, 1, BLOCK, 41);
    close(socket);
    gpu_verdict(OK(name, tarn_imported_pool_close(imported)) && well, name,
                "its memory outlives it");
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
    if (!OK("pool export", tarn_pool_create(&options, &pool)) ||
        !OK("pool export", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    killed_importer(pool, stream); /* the driver's own first-time costs are not ours */
    (void)OK("pool export", tarn_device_trim(0, 0));
    (void)OK("pool export", tarn_pool_trim(pool, 0));
    size_t before = gpu_free_bytes();
    exports(pool, stream);
    killed_importer(pool, stream);
    killed_exporter(stream);
    (void)OK("pool export", tarn_pool_release(pool));
    (void)OK("pool export", tarn_device_synchronize(0));
    (void)OK("pool export", tarn_device_trim(0, 0));
    size_t after = gpu_free_bytes();
    snprintf(text, sizeof text, "free before %zu, after %zu bytes", before, after);
    gpu_verdict(after + SLACK >= before, "pool export: all goes back", text);
    (void)OK("pool export", tarn_stream_return(stream));
    (void)OK("pool export", tarn_shutdown());
    return gpu_end();
}
