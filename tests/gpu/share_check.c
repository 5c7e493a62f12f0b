/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory between two processes on a real GPU: this program runs itself again as the other side.
 * Kernels of one write what kernels of the other check, whoever ends first. And observers: what
 * they were told is what the driver has mapped. */
#include "gpu.h"
#include "side.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (100 * MIB)
#define SLACK (4 * MIB) /* what the driver itself may take meanwhile */

/* ---- The other side ---- */

/* Checks what was exported, writes another pattern, and sees a third one come. */
static bool import_and_answer(int socket, tarn_stream stream)
{
    const char *name = "share: the importer";
    tarn_share *share = NULL;
    void *block = NULL;
    bool well = OK(name, tarn_share_receive(socket, &share)) &&
                OK(name, tarn_import(share, 0, &block)) && OK(name, tarn_share_close(share)) &&
                gpu_holds(name, stream, &block, 1, BLOCK, 1) &&
                gpu_write(name, stream, block, BLOCK, 2);
    well = say(socket, well ? 'w' : 'x') && well;
    return well && hear(socket, 'e') && gpu_holds(name, stream, &block, 1, BLOCK, 3) &&
           OK(name, tarn_import_close(block));
}

/* Exports and ends at once, without a word to the driver. */
static bool export_and_end(int socket, tarn_stream stream)
{
    const char *name = "share: an exporter that ends";
    tarn_share *share = NULL;
    void *block = NULL;
    bool well = OK(name, tarn_export_enable(0)) && OK(name, tarn_alloc_on(stream, BLOCK, &block)) &&
                gpu_write(name, stream, block, BLOCK, 4) && OK(name, tarn_export(block, &share)) &&
                OK(name, tarn_share_send(socket, share));
    if (well)
        _exit(0);
    return false;
}

static int play(const char *role, int socket)
{
    tarn_stream stream = 0;
    int status = gpu_start();
    if (status)
        return status;
    bool well = OK("share", tarn_stream_lease(0, 0, &stream)) &&
                (strcmp(role, "import") == 0 ? import_and_answer(socket, stream)
                                             : export_and_end(socket, stream));
    return well ? 0 : GPU_FAILED;
}

/* ---- This side ---- */

static void exports(tarn_stream stream)
{
    const char *name = "share: between processes";
    int socket = -1;
    void *block = NULL;
    tarn_share *share = NULL;
    tarn_share_info info = {.size = sizeof info};
    char text[160];
    pid_t side = side_start("gpu_share", "import", SOCK_SEQPACKET, &socket);
    bool well = side > 0 && OK(name, tarn_alloc_on(stream, BLOCK, &block)) &&
                gpu_write(name, stream, block, BLOCK, 1) && OK(name, tarn_export(block, &share)) &&
                OK(name, tarn_share_info_get(share, &info)) &&
                OK(name, tarn_share_send(socket, share));
    well = well && hear(socket, 'w') && gpu_holds(name, stream, &block, 1, BLOCK, 2) &&
           gpu_write(name, stream, block, BLOCK, 3) && say(socket, 'e');
    close(socket);
    well = side > 0 && side_end(side, 0) && well;
    snprintf(text, sizeof text, "%zu MiB in %u pieces of %zu MiB in all", info.bytes / MIB,
             info.pieces, info.mapped / MIB);
    gpu_verdict(well, name, text);
    (void)OK(name, tarn_share_close(share));
    (void)OK(name, tarn_free(block));
}

static void imports(tarn_stream stream)
{
    const char *name = "share: an exporter that ends";
    int socket = -1;
    void *block = NULL, *again = NULL;
    tarn_share *share = NULL;
    pid_t side = side_start("gpu_share", "export", SOCK_SEQPACKET, &socket);
    bool well = side > 0 && OK(name, tarn_share_receive(socket, &share));
    well = side > 0 && side_end(side, 0) && well;
    close(socket);
    well = well && OK(name, tarn_import(share, 0, &block)) &&
           OK(name, tarn_import(share, 0, &again)) && block == again &&
           gpu_holds(name, stream, &block, 1, BLOCK, 4) &&
           gpu_write(name, stream, block, BLOCK, 5) && gpu_holds(name, stream, &block, 1, BLOCK, 5);
    well = well && tarn_free(block) == TARN_ERROR_INVALID_POINTER;
    well = well && OK(name, tarn_import_close(block)) && OK(name, tarn_import_close(again));
    (void)OK(name, tarn_share_close(share));
    gpu_verdict(well, name, "its memory outlives it");
}

/* All of the process: the simulated driver keeps one for each imported piece, high above the lowest
 * that is free. */
static int open_files(void)
{
    DIR *entries = opendir("/proc/self/fd");
    int count = 0;
    while (entries && readdir(entries))
        count++;
    if (entries)
        closedir(entries);
    return count;
}

static void loop(tarn_stream stream)
{
    const char *name = "share: again and again";
    void *block = NULL, *seen = NULL;
    char text[160];
    bool well =
        OK(name, tarn_alloc_on(stream, BLOCK, &block)) && gpu_write(name, stream, block, BLOCK, 6);
    uint64_t started = gpu_ns();
    int first = -1, last = -1;
    for (int i = 0; well && i < 100; i++) {
        tarn_share *share = NULL;
        well = OK(name, tarn_export(block, &share)) && OK(name, tarn_import(share, 0, &seen)) &&
               OK(name, tarn_import_close(seen)) && OK(name, tarn_share_close(share));
        last = open_files();
        first = i == 0 ? last : first;
    }
    snprintf(text, sizeof text,
             "100 exports and imports here, %llu us each; open files %d, then %d",
             (unsigned long long)(gpu_ns() - started) / 100000, first, last);
    gpu_verdict(well && first == last && gpu_holds(name, stream, &block, 1, BLOCK, 6), name, text);
    (void)OK(name, tarn_free(block));
}

/* What observers were told. */
static struct {
    size_t mapped, unmapped; /* bytes */
    uint64_t newest;
    unsigned mistakes;
} told;

static void note_mapped(const tarn_mapping *range, void *user)
{
    (void)user;
    told.mistakes += range->generation <= told.newest || range->device != 0;
    told.newest = range->generation;
    told.mapped += range->bytes;
}

static void note_unmapping(const tarn_mapping *range, void *user)
{
    (void)user;
    told.mistakes += range->generation > told.newest || range->generation == 0;
    told.unmapped += range->bytes;
}

static void observers(tarn_stream stream)
{
    const char *name = "observers";
    tarn_observer_options options = {
        .size = sizeof options, .mapped = note_mapped, .unmapping = note_unmapping};
    tarn_observer observer = 0;
    void *blocks[6] = {NULL};
    tarn_mapping range = {0};
    char text[160];
    bool well =
        OK(name, tarn_device_trim(0, 0)) && OK(name, tarn_observer_add(&options, &observer));
    for (size_t i = 0; well && i < COUNT(blocks); i++)
        well = OK(name, tarn_alloc_on(stream, BLOCK, &blocks[i])) &&
               OK(name, tarn_mapping_get(blocks[i], &range)) && range.generation > 0 &&
               range.generation <= told.newest && range.bytes > 0;
    size_t grown = told.mapped;
    well = well && OK(name, tarn_anchor(blocks[2], BLOCK));
    uint64_t pinned = well && OK(name, tarn_mapping_get(blocks[2], &range)) ? range.generation : 0;
    for (size_t i = 0; i < COUNT(blocks); i++)
        (void)OK(name, tarn_free(blocks[i]));
    (void)OK(name, tarn_device_trim(0, 0));
    size_t left = told.mapped - told.unmapped;
    well = well && left >= BLOCK && left < BLOCK + 64 * MIB &&
           OK(name, tarn_unanchor(blocks[2], BLOCK)) && OK(name, tarn_device_trim(0, 0)) &&
           pinned > 0;
    snprintf(text, sizeof text,
             "%zu MiB reported as mapped and %zu as unmapped; pinned %zu MiB stayed; %u mistakes",
             grown / MIB, told.unmapped / MIB, left / MIB, told.mistakes);
    gpu_verdict(well && told.mapped == told.unmapped && grown >= COUNT(blocks) * BLOCK &&
                    told.mistakes == 0,
                name, text);
    (void)OK(name, tarn_observer_remove(observer));
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return play(argv[1], atoi(argv[2]));
    int status = gpu_start();
    if (status)
        return status;
    tarn_stream stream = 0;
    char text[160];
    tarn_device_properties properties = gpu_properties;
    if (!properties.exportable) {
        gpu_say(GPU_SKIP, "share", "device 0 cannot export memory to other processes");
        return gpu_end();
    }
    if (!OK("share", tarn_export_enable(0)) || !OK("share", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    exports(stream); /* the driver's own first-time costs are not ours */
    (void)OK("share", tarn_device_trim(0, 0));
    size_t before = gpu_free_bytes();
    imports(stream);
    loop(stream);
    observers(stream);
    (void)OK("share", tarn_device_synchronize(0));
    (void)OK("share", tarn_device_trim(0, 0));
    size_t after = gpu_free_bytes();
    snprintf(text, sizeof text, "free before %zu, after %zu bytes", before, after);
    gpu_verdict(after + SLACK >= before, "share: all goes back", text);
    (void)OK("share", tarn_stream_return(stream));
    (void)OK("share", tarn_shutdown());
    return gpu_end();
}
