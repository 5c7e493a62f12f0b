/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Exact plain segments beside the model of PyTorch's allocator: the same segments, in number and in
 * bytes, on random sequences and on recorded traces. Both get addresses that rise, since among
 * blocks of one size the lowest is taken. */
#include "policy/c10.h"
#include "support/host.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define GIB ((size_t)1 << 30)
#define SPACE (512 * GIB) /* addresses, of which none is touched */
#define STREAMS 16
#define POOLS 16

/* What a pool's allocator has handed out. All pools of a run share one. */
struct source {
    char *space;
    size_t used;
    uint64_t reserved, peak, allocs, frees, trimmed; /* trimmed: of the frees, those that the
                                                        program asked for */
};

static void *source_alloc(size_t size, int device, void *stream, void *user)
{
    struct source *source = user;
    (void)device;
    (void)stream;
    CHECK(source->used + size <= SPACE);
    void *pointer = source->space + source->used;
    source->used += size;
    source->allocs++;
    source->reserved += size;
    if (source->reserved > source->peak)
        source->peak = source->reserved;
    return pointer;
}

static void source_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    struct source *source = user;
    (void)pointer;
    (void)device;
    (void)stream;
    source->reserved -= size;
    source->frees++;
}

static tarn_stream streams[STREAMS];

/* Runs a workload in pools of its own. A block ends when its memory may be used again. */
static void run(const struct workload *workload, struct source *source)
{
    tarn_pool *pools[POOLS];
    void **blocks = calloc(workload->block_count + 1, sizeof *blocks);
    CHECK(blocks && workload->pool_count <= POOLS && workload->stream_count <= STREAMS);
    source->space =
        mmap(NULL, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(source->space != MAP_FAILED);
    const tarn_pool_allocator allocator = {sizeof allocator, source_alloc, source_free, NULL,
                                           source};
    const tarn_pool_options options = {.size = sizeof options,
                                       .device = 0,
                                       .segments = TARN_SEGMENTS_EXACT,
                                       .allocator = &allocator};
    for (size_t i = 0; i < POOLS; i++)
        OK(tarn_pool_create(&options, &pools[i]));

    for (size_t i = 0; i < workload->initial_count + workload->op_count; i++) {
        const struct workload_op initial = {.action = WORKLOAD_ALLOC, .block = (uint32_t)i};
        const struct workload_op *op =
            i < workload->initial_count ? &initial : &workload->ops[i - workload->initial_count];
        if (op->action == WORKLOAD_ALLOC) {
            const struct workload_block *block = &workload->blocks[op->block];
            OK(tarn_pool_alloc(pools[block->pool], streams[block->stream], block->size,
                               &blocks[op->block]));
        } else if (op->action == WORKLOAD_COMPLETED) {
            OK(tarn_free(blocks[op->block]));
            blocks[op->block] = NULL;
        } else if (op->action == WORKLOAD_TRIM) {
            OK(tarn_pool_trim(pools[0], 0));
        }
    }
    verify(0);
    source->trimmed = source->frees;
    for (size_t i = 0; i < workload->block_count; i++)
        OK(tarn_free(blocks[i]));
    for (size_t i = 0; i < POOLS; i++)
        OK(tarn_pool_release(pools[i]));
    OK(tarn_device_trim(0, 0));
    CHECK(source->reserved == 0 && source->allocs == source->frees);
    CHECK(munmap(source->space, SPACE) == 0);
    free(blocks);
}

static void check(const struct workload *workload)
{
    struct source source = {0};
    struct c10_result model = {0};
    const struct c10_policy policy = c10_policy_default(false);
    CHECK(c10_run(workload, &policy, SPACE, &model));
    uint64_t allocs = model.cost[C10_CALL_alloc].calls, frees = model.cost[C10_CALL_free].calls;
    run(workload, &source);
    if (source.peak != model.peak_reserved || source.allocs != allocs || source.trimmed != frees)
        fprintf(stderr, "peak %zu of %zu bytes, %zu of %zu segments, %zu of %zu given back\n",
                (size_t)source.peak, (size_t)model.peak_reserved, (size_t)source.allocs,
                (size_t)allocs, (size_t)source.trimmed, (size_t)frees);
    CHECK(source.peak == model.peak_reserved && source.allocs == allocs && source.trimmed == frees);
}

static void random_sequences_take_the_segments_of_the_model(void **state)
{
    (void)state;
    enum { OPS = 20000, LIVE = 300 };
    static struct workload_op ops[2 * OPS];
    static struct workload_block blocks[OPS];
    uint64_t random = 99;
    for (int round = 0; round < 6; round++) {
        struct workload workload = {.ops = ops,
                                    .blocks = blocks,
                                    .stream_count = 1 + (size_t)round % STREAMS,
                                    .pool_count = 1 + (size_t)round % POOLS};
        uint32_t live[LIVE];
        size_t count = 0;
        for (int step = 0; step < OPS; step++) {
            if (count == LIVE || (count && random_next(&random) % 100 < 48)) {
                size_t chosen = random_next(&random) % count;
                ops[workload.op_count++] =
                    (struct workload_op){.action = WORKLOAD_FREE, .block = live[chosen]};
                ops[workload.op_count++] =
                    (struct workload_op){.action = WORKLOAD_COMPLETED, .block = live[chosen]};
                live[chosen] = live[--count];
                continue;
            }
            static const size_t most[] = {512,     4096,     100000,   MIB,
                                          2 * MIB, 10 * MIB, 11 * MIB, 200 * MIB};
            uint32_t number = (uint32_t)workload.block_count++;
            blocks[number] = (struct workload_block){
                .size = 1 + random_next(&random) % most[random_next(&random) % 8],
                .stream = (uint32_t)(random_next(&random) % workload.stream_count),
                .pool = (uint32_t)(random_next(&random) % workload.pool_count),
            };
            live[count++] = number;
            ops[workload.op_count++] =
                (struct workload_op){.action = WORKLOAD_ALLOC, .block = number};
        }
        check(&workload);
    }
}

static bool check_trace(const char *path)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    struct workload workload;
    bool exists = false;
    if (!snapshot_read_file(path, &snapshot, &error))
        return false;
    for (int device = 0; device < 8 && !exists; device++) {
        exists = workload_exists(&snapshot, device);
        if (exists) {
            CHECK(workload_build(&snapshot, device, &workload));
            check(&workload);
            workload_finish(&workload);
        }
    }
    snapshot_finish(&snapshot);
    return exists;
}

static void recorded_traces_take_the_segments_of_the_model(void **state)
{
    (void)state;
    const char *folders = getenv("TARN_TRACES");
    char *list = strdup(folders ? folders : "examples/traces"), *rest = NULL;
    CHECK(list);
    int checked = 0;
    for (char *folder = strtok_r(list, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest)) {
        char pattern[4096];
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/*.pickle*", folder);
        if (glob(pattern, 0, NULL, &found))
            continue;
        for (size_t i = 0; i < found.gl_pathc; i++)
            checked += check_trace(found.gl_pathv[i]);
        globfree(&found);
    }
    free(list);
    if (!checked)
        skip();
}

static int set_up(void **state)
{
    (void)state;
    host_start_with(1, 64 * GIB);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sequences_take_the_segments_of_the_model),
        cmocka_unit_test(recorded_traces_take_the_segments_of_the_model),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
