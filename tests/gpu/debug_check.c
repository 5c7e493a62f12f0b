/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Debug mode on hardware: mistakes made by queued work are reported once each, work without a
 * mistake is not, and looking at blocks disturbs neither streams nor a capture of the strictest
 * kind. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/debug.h>

#define BLOCKS 32
#define ROUNDS 6

static struct {
    int count;
    tarn_debug_kind kind;
    char text[512];
} heard;

static void hear(const tarn_debug_report *report, void *user)
{
    (void)user;
    heard.count++;
    heard.kind = report->kind;
    snprintf(heard.text, sizeof heard.text, "%s", report->text);
}

/* Says whether there were just so many reports since the last time, the last of a kind. */
static void verdict(const char *name, bool well, int count, tarn_debug_kind kind)
{
    (void)tarn_debug_reports();
    bool right = heard.count == count && (count == 0 || heard.kind == kind);
    heard.text[strcspn(heard.text, "\n")] = 0;
    gpu_say(well && right ? GPU_PASS : GPU_FAIL, name, "%d reports%s%s", heard.count,
            heard.count ? ": " : "", heard.count ? heard.text : "");
    heard.count = 0;
}

static bool write_byte(const char *name, tarn_stream stream, void *address)
{
    return CU(name, gpu.cuMemsetD8Async((uintptr_t)address, 0x5A, 1, gpu_native(stream)));
}

static void good_use(tarn_stream stream, tarn_stream other)
{
    const char *name = "debug: work without a mistake";
    bool well = true;
    for (int round = 0; well && round < ROUNDS; round++) {
        void *blocks[BLOCKS] = {NULL};
        for (int i = 0; well && i < BLOCKS; i++) {
            size_t size = (size_t)4 << (10 + i % 13);
            well = OK(name, tarn_alloc_on(i % 2 ? stream : other, size, &blocks[i])) &&
                   gpu_fill(i % 2 ? stream : other, blocks[i], size, (uint32_t)i, 1000);
        }
        for (int i = 0; well && i < BLOCKS; i++) {
            well = i % 3 ? OK(name, tarn_free(blocks[i]))
                         : OK(name, tarn_record_stream(blocks[i], i % 2 ? other : stream)) &&
                               OK(name, tarn_free_on(blocks[i], i % 2 ? other : stream));
        }
        (void)tarn_debug_reports();
    }
    well = well && OK(name, tarn_debug_check(0));
    verdict(name, well, 0, 0);
}

static void beside(tarn_stream stream, int64_t offset, const char *name)
{
    char *block = NULL;
    bool well = OK(name, tarn_alloc_on(stream, 1000, (void **)&block)) &&
                gpu_fill(stream, block, 1000, 1, 100000) &&
                write_byte(name, stream, block + offset) && OK(name, tarn_free(block)) &&
                OK(name, tarn_device_synchronize(0));
    verdict(name, well, 1, TARN_DEBUG_RED_ZONE);
}

static void after_the_free(tarn_stream stream, tarn_stream other)
{
    const char *name = "debug: a write after the free";
    char *block = NULL;
    bool well = OK(name, tarn_alloc_on(stream, 3 * MIB, (void **)&block)) &&
                OK(name, tarn_free(block)) && OK(name, tarn_device_synchronize(0));
    (void)tarn_debug_reports();
    well = well && write_byte(name, other, block + 2 * MIB) &&
           OK(name, tarn_device_synchronize(0)) && OK(name, tarn_debug_check(0));
    verdict(name, well, 1, TARN_DEBUG_WRITE_AFTER_FREE);
}

static void twice(tarn_stream stream)
{
    const char *name = "debug: a second free";
    void *block = NULL;
    bool well = OK(name, tarn_alloc_on(stream, 1000, &block)) && OK(name, tarn_free(block)) &&
                tarn_free(block) == TARN_ERROR_DOUBLE_FREE;
    verdict(name, well, 1, TARN_DEBUG_BAD_FREE);
}

/* Blocks of another stream are looked at while this one captures. */
static void beside_a_capture(tarn_stream stream, tarn_stream other)
{
    const char *name = "debug: looking beside a global capture";
    void *graph = NULL, *inside = NULL, *blocks[BLOCKS] = {NULL};
    bool well = true;
    for (int i = 0; well && i < BLOCKS; i++)
        well = OK(name, tarn_alloc_on(other, 100000, &blocks[i])) &&
               gpu_fill(other, blocks[i], 100000, 1, 0);
    well = well && OK(name, tarn_stream_synchronize(other)) &&
           OK(name, tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_GLOBAL)) &&
           OK(name, tarn_alloc_on(stream, 4 * MIB, &inside)) &&
           gpu_fill(stream, inside, 4 * MIB, 7, 0);
    for (int i = 0; well && i < BLOCKS; i++)
        well = OK(name, tarn_free(blocks[i]));
    (void)tarn_debug_reports();
    void *more = NULL;
    well = well && OK(name, tarn_alloc_on(other, 1000, &more)) && OK(name, tarn_free(more)) &&
           OK(name, tarn_free(inside)) && OK(name, tarn_capture_end(stream, &graph)) &&
           gpu_run_graph(graph, stream, 3, name) && CU(name, gpu.cuGraphDestroy(graph)) &&
           OK(name, tarn_debug_check(0));
    verdict(name, well, 0, 0);
}

static void cost(tarn_stream stream)
{
    const char *name = "debug: cost";
    enum { PAIRS = 2000 };
    bool well = true;
    uint64_t start = gpu_ns();
    for (int i = 0; well && i < PAIRS; i++) {
        void *block = NULL;
        well = OK(name, tarn_alloc_on(stream, 4096, &block)) && OK(name, tarn_free(block));
    }
    uint64_t each = (gpu_ns() - start) / PAIRS;
    verdict(name, well && OK(name, tarn_debug_check(0)), 0, 0);
    gpu_say(GPU_NOTE, name, "%llu ns for an allocation of 4 KiB and its free, with everything on",
            (unsigned long long)each);
}

int main(void)
{
    (void)setenv("TARN_DEBUG", "all,quarantine=256M", 1);
    int status = gpu_start();
    if (status)
        return status;
    tarn_stream stream = 0, other = 0;
    tarn_debug_callback_set(hear, NULL);
    if (!OK("debug", tarn_stream_lease(0, 0, &stream)) ||
        !OK("debug", tarn_stream_lease(0, 0, &other)))
        return gpu_end();
    good_use(stream, other);
    beside(stream, 1000, "debug: a write behind a block");
    beside(stream, -1, "debug: a write before a block");
    after_the_free(stream, other);
    twice(stream);
    beside_a_capture(stream, other);
    cost(stream);
    (void)OK("debug", tarn_device_trim(0, 0));
    (void)OK("debug", tarn_stream_return(stream));
    (void)OK("debug", tarn_stream_return(other));
    (void)OK("debug", tarn_shutdown());
    verdict("debug: nothing at the end", true, 0, 0);
    return gpu_end();
}
