/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How far tarn goes, and that it says so where it ends (docs/limits.md): many blocks, pools,
 * threads, devices and streams; sizes and alignments around every power of two; arguments that no
 * memory could serve; small devices, few mappings, memory that somebody else takes. Each is a
 * process of its own. TARN_LIMITS=full makes the numbers those of the document, else they are a
 * tenth or less. */
#include "base/pages.h"
#include "support/host.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define GIB ((size_t)1 << 30)

static bool is_full(void)
{
    const char *text = getenv("TARN_LIMITS");
    return text && strcmp(text, "full") == 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW_BUILD 1
#else
#define SLOW_BUILD 0
#endif

static size_t many(size_t in_short, size_t in_full)
{
    return is_full() ? in_full : SLOW_BUILD ? in_short / 10 : in_short;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Many of a kind ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

/* Has so many blocks at once. Gives the metadata that they take, in bytes. */
static uint64_t hold_blocks(uintptr_t *blocks, size_t count, size_t size)
{
    uint64_t before = pages_bytes();
    for (size_t i = 0; i < count; i++)
        blocks[i] = (uintptr_t)alloc_on(TARN_STREAM_LEGACY, size);
    uint64_t taken = pages_bytes() - before;
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[TARN_STAT_ALL].current == (int64_t)count);
    qsort(blocks, count, sizeof *blocks, by_value);
    for (size_t i = 1; i < count; i++)
        CHECK(blocks[i] - blocks[i - 1] >= size);
    /* Every second first: what is free between live ones is of no use to larger ones. */
    for (size_t first = 0; first < 2; first++)
        for (size_t i = first; i < count; i += 2)
            OK(tarn_free((void *)blocks[i]));
    return taken;
}

static void many_live_blocks(void)
{
    static const struct kind {
        size_t size, metadata; /* bytes; at most so many a block */
    } kinds[] = {{600, 10}, {4 * KIB, 25}, {70 * KIB, 195}};
    size_t count = many(100000, 1000000);
    uintptr_t *blocks = malloc(count * sizeof *blocks);
    CHECK(blocks);
    host_start_with(1, 128 * GIB);
    OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 3 * MIB))); /* what a device takes is not counted */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t size = kinds[i].size;
        double began = seconds_now();
        uint64_t taken = hold_blocks(blocks, count, size);
        double took = seconds_now() - began;
        nothing_is_left(0);
        (void)hold_blocks(blocks, count, size); /* what is reused in another order may need a chunk
                                                   more, once */
        nothing_is_left(0);
        uint64_t rest = metadata_bytes();
        (void)hold_blocks(blocks, count, size);
        nothing_is_left(0);
        CHECK(metadata_bytes() <= rest + 64 * KIB);
        printf("%zu live blocks of %zu bytes: %.1f bytes of metadata each, %.2f s\n", count, size,
               (double)taken / (double)count, took);
        CHECK(taken <= count * kinds[i].metadata + MIB);
    }
    free(blocks);
}

static void pools_come_and_go(tarn_pool **pools, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        OK(tarn_pool_create(NULL, &pools[i]));
        OK(tarn_pool_alloc(pools[i], TARN_STREAM_LEGACY, 1000, &blocks[i]));
    }
    for (size_t i = 0; i < count; i++) {
        OK(tarn_pool_release(pools[i]));
        OK(tarn_free(blocks[i]));
    }
}

static void many_pools(void)
{
    size_t count = many(1000, 10000);
    tarn_pool **pools = calloc(count, sizeof *pools);
    void **blocks = calloc(count, sizeof *blocks);
    CHECK(pools && blocks);
    host_start_with(1, 64 * GIB);
    OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 3 * MIB)));
    /* At once. */
    uint64_t before = pages_bytes();
    double began = seconds_now();
    pools_come_and_go(pools, blocks, count);
    double took = seconds_now() - began;
    uint64_t taken = pages_bytes() - before;
    nothing_is_left(0);
    uint64_t rest = metadata_bytes();
    pools_come_and_go(pools, blocks, count);
    nothing_is_left(0);
    printf("%zu pools at once: %" PRIu64 " bytes of metadata each, %.2f s\n", count, taken / count,
           took);
    CHECK(metadata_bytes() == rest);
    /* One after the other, in a trace that never ends. */
    tarn_trace_options trace = {.size = sizeof trace, .records = 1024};
    OK(tarn_trace_start(&trace));
    for (size_t i = 0, rounds = many(6000, 20000); i < rounds; i++) {
        pools_come_and_go(pools, blocks, 1);
        if (i == rounds * 2 / 3)
            rest = metadata_bytes();
    }
    CHECK(SLOW_BUILD || metadata_bytes() == rest); /* of so few, each is named by a record still */
    nothing_is_left(0);
    free(pools);
    free(blocks);
}

static void *short_life(void *block)
{
    void *mine = tarn_malloc(3000);
    CHECK(mine);
    OK(tarn_free(block)); /* another's */
    return mine;
}

/* Each thread frees what the one before it left. */
static void *threads_one_by_one(size_t count, void *block)
{
    for (size_t i = 0; i < count; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, short_life, block) == 0);
        CHECK(pthread_join(thread, &block) == 0);
    }
    return block;
}

static void many_threads(void)
{
    size_t width = many(100, 500);
    pthread_t *threads = calloc(width, sizeof *threads);
    CHECK(threads);
    host_start_with(1, 4 * GIB);
    void *block = threads_one_by_one(100, NULL);
    uint64_t rest = metadata_bytes();
    block = threads_one_by_one(many(1000, 10000), block);
    CHECK(metadata_bytes() == rest);
    /* Many at once, several times. */
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < width; i++)
            CHECK(pthread_create(&threads[i], NULL, short_life, NULL) == 0);
        for (size_t i = 0; i < width; i++) {
            void *left = NULL;
            CHECK(pthread_join(threads[i], &left) == 0);
            OK(tarn_free(left));
        }
    }
    OK(tarn_free(block));
    nothing_is_left(0);
    free(threads);
}

static void many_devices(void)
{
    void *blocks[TARN_MAX_DEVICES], *more = NULL;
    tarn_stream streams[TARN_MAX_DEVICES];
    host_start_with(TARN_MAX_DEVICES, GIB);
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        streams[i] = lease(i);
        blocks[i] = alloc_on(streams[i], 600 * MIB);
        memset((char *)blocks[i] + 300 * MIB, i + 1, 100);
    }
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        tarn_block_info info = {.size = sizeof info};
        OK(tarn_pointer_info_get((char *)blocks[i] + 300 * MIB, &info));
        CHECK(info.device == i && info.base == blocks[i] && info.stream == streams[i]);
        for (int k = 0; k < 100; k++)
            CHECK(((char *)blocks[i])[300 * MIB + (size_t)k] == i + 1);
        GIVES(tarn_alloc_on(streams[i], 600 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
        for (int k = 0; k < i; k++)
            CHECK((uintptr_t)blocks[k] + 600 * MIB <= (uintptr_t)blocks[i] ||
                  (uintptr_t)blocks[i] + 600 * MIB <= (uintptr_t)blocks[k]);
    }
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        OK(tarn_free(blocks[i]));
        nothing_is_left(i);
    }
    GIVES(tarn_device_set(TARN_MAX_DEVICES), TARN_ERROR_INVALID_DEVICE);
}

#define MOST_STREAMS 65536 /* with the two constants, the legacy streams and the per-thread ones */

static void many_streams(void)
{
    static tarn_stream streams[MOST_STREAMS];
    size_t count = 0;
    tarn_status status;
    host_start_with(1, GIB);
    /* Most are tarn's own, some are adopted. */
    while (count < MOST_STREAMS &&
           !(status = count % 1000 == 999 ? tarn_stream_adopt(0, native_made(0), &streams[count])
                                          : tarn_stream_lease(0, 0, &streams[count])))
        count++;
    CHECK(count > MOST_STREAMS - 16 && count < MOST_STREAMS);
    CHECK(status == TARN_ERROR_OUT_OF_HOST_MEMORY &&
          strstr(tarn_last_error(), "all 65536 stream slots"));
    OK(tarn_free(alloc_on(streams[count - 1], MIB)));
    /* The slot of one that leaves is available again at once, wherever it is. */
    for (size_t i = 999; i < count; i += 9000) {
        void *native = native_of(streams[i]);
        OK(tarn_stream_retire(streams[i]));
        OK(tarn_stream_adopt(0, native, &streams[i]));
    }
    nothing_is_left(0);
}

static void many_tags(void)
{
    char text[80];
    tarn_tag tag = 0;
    host_start_with(1, GIB);
    for (unsigned i = 1; i < 65536; i++) {
        snprintf(text, sizeof text, "tag %u", i);
        OK(tarn_tag_intern(text, &tag));
        CHECK(tag == i);
    }
    tag = 0;
    GIVES(tarn_tag_intern("one more", &tag), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_tag_intern("tag 40000", &tag)); /* those that are there are available */
    CHECK(tag == 40000 && strcmp(tarn_tag_text(65535), "tag 65535") == 0 &&
          strcmp(tarn_tag_text(0), "") == 0);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    GIVES(tarn_tag_intern(text, &tag), TARN_ERROR_INVALID_ARGUMENT);
}

/* Sizes ---------------------------------------------------------------------------------------- */

static void try_size(size_t size, size_t alignment)
{
    tarn_alloc_options options = {
        .size = sizeof options, .device = TARN_CURRENT_DEVICE, .alignment = alignment};
    unsigned char *block = NULL, *other = NULL;
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_alloc(&options, size, (void **)&block));
    CHECK((uintptr_t)block % (alignment ? alignment : TARN_BLOCK_UNIT) == 0);
    OK(tarn_alloc(&options, size, (void **)&other));
    CHECK(usable_size(block) >= size && (block + size <= other || other + size <= block));
    OK(tarn_pointer_info_get(block + size - 1, &info));
    CHECK(info.base == block && info.requested == size);
    block[0] = block[size - 1] = 1;
    other[0] = other[size - 1] = 2;
    CHECK(block[0] == 1 && block[size - 1] == 1);
    OK(tarn_free(other));
    CHECK(block[0] == 1 && block[size - 1] == 1);
    OK(tarn_free(block));
    if (other > block && other - block < (ptrdiff_t)GIB)
        GIVES(tarn_usable_size_get(block + 1, &size), TARN_ERROR_INVALID_POINTER);
}

static void sizes_around_powers_of_two(void)
{
    host_start_with(1, 16 * GIB);
    for (int power = 1; power <= 32; power++)
        for (int more = -1; more <= 1; more++)
            for (size_t alignment = 0; alignment <= TARN_MAX_ALIGNMENT;
                 alignment = alignment ? alignment * 8 : 256) {
                try_size(((size_t)1 << power) + (size_t)more, alignment);
                if (power == 32)
                    OK(tarn_device_trim(0, 0)); /* two at once, and what the others left */
            }
    for (size_t granules = 1; granules < 12; granules++)
        for (int more = -1; more <= 1; more++)
            try_size(granules * 2 * MIB + (size_t)more, 0);
    verify(0);
    nothing_is_left(0);
}

/* A block that 32 bits cannot count, used at its seams. */
static void a_block_beyond_four_gigabytes(void)
{
    host_start_with(1, 16 * GIB);
    tarn_stream stream = lease(0);
    size_t size = 5 * GIB + 7;
    unsigned char *block = alloc_on(stream, size);
    static const size_t seams[] = {0, 2 * GIB - 4, 2 * GIB, 4 * GIB - 4, 4 * GIB, 5 * GIB - 1};
    for (size_t i = 0; i < sizeof seams / sizeof *seams; i++)
        OK(tarn_host_fill(0, native_of(stream), block + seams[i], (int)i + 1, 8));
    OK(tarn_stream_synchronize(stream));
    CHECK(block[0] == 1 && block[2 * GIB - 4] == 2 && block[2 * GIB] == 3 &&
          block[4 * GIB - 1] == 4 && block[4 * GIB] == 5 && block[size - 1] == 6);
    tarn_stats stats = stats_of(0);
    CHECK(stats.requested_bytes[TARN_STAT_ALL].current == (int64_t)size);
    CHECK(stats.reserved_bytes[TARN_STAT_ALL].current >= (int64_t)size);
    OK(tarn_record_stream(block + size - 1, lease(0)));
    void *second = alloc_on(stream, 6 * GIB), *third = NULL;
    GIVES(tarn_alloc_on(stream, 6 * GIB, &third), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(block));
    OK(tarn_free(second));
    nothing_is_left(0);
}

static void sizes_that_no_memory_has(void)
{
    static const size_t sizes[] = {SIZE_MAX,          SIZE_MAX - 1,       SIZE_MAX - 511,
                                   SIZE_MAX - 512,    SIZE_MAX - 2 * MIB, SIZE_MAX / 2 + 1,
                                   SIZE_MAX / 2,      TARN_MAX_SIZE + 1,  TARN_MAX_SIZE,
                                   TARN_MAX_SIZE - 1, (size_t)1 << 47,    3 * GIB};
    host_start_with(1, 2 * GIB);
    tarn_stream stream = lease(0);
    tarn_pool *pool = NULL, *plain = NULL;
    tarn_pool_options options = {
        .size = sizeof options, .device = 0, .segments = TARN_SEGMENTS_PLAIN};
    tarn_alloc_options aligned = {
        .size = sizeof aligned, .device = 0, .stream = stream, .alignment = TARN_MAX_ALIGNMENT};
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_create(&options, &plain));
    void *live = alloc_on(stream, 1000), *large = alloc_on(stream, 3 * MIB), *block = NULL;
    memset(live, 7, 1000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(!tarn_malloc(sizes[i]) && tarn_last_status() == TARN_ERROR_OUT_OF_MEMORY);
        GIVES(tarn_alloc_on(stream, sizes[i], &block), TARN_ERROR_OUT_OF_MEMORY);
        GIVES(tarn_alloc(&aligned, sizes[i], &block), TARN_ERROR_OUT_OF_MEMORY);
        GIVES(tarn_pool_alloc(pool, stream, sizes[i], &block), TARN_ERROR_OUT_OF_MEMORY);
        GIVES(tarn_pool_alloc(plain, stream, sizes[i], &block), TARN_ERROR_OUT_OF_MEMORY);
        CHECK(tarn_pinned_alloc(TARN_STREAM_CURRENT, sizes[i], &block) != TARN_OK ||
              sizes[i] == 3 * GIB);
        if (block) /* the host may have that */
            OK(tarn_free(block));
        block = NULL;
        GIVES(tarn_extend(live, sizes[i]), TARN_ERROR_NO_ROOM);
        GIVES(tarn_extend(large, sizes[i]), TARN_ERROR_NO_ROOM);
        CHECK(tarn_anchor(live, sizes[i]) != TARN_OK && tarn_unanchor(live, sizes[i]) != TARN_OK);
        OK(tarn_device_trim(0, sizes[i]));
        OK(tarn_pool_trim(pool, sizes[i]));
        OK(tarn_pinned_trim(sizes[i]));
    }
    for (int i = 0; i < 1000; i++)
        CHECK(((char *)live)[i] == 7);
    CHECK(!tarn_malloc(0) && tarn_last_status() == TARN_OK);
    OK(tarn_alloc_on(stream, 0, &block));
    OK(tarn_pool_alloc(pool, stream, 0, &block));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 0, &block));
    CHECK(!block);
    OK(tarn_extend(live, 0));
    OK(tarn_free(live));
    OK(tarn_free(large));
    OK(tarn_pool_release(pool));
    OK(tarn_pool_release(plain));
    nothing_is_left(0);
}

/* All that has a size, a count or an alignment besides. */
static void arguments_that_overflow(void)
{
    host_start_with(1, 256 * MIB);
    tarn_stream stream = lease(0);
    tarn_pool *pool = NULL, *other = NULL;
    void *block = NULL;
    size_t bytes = 0, count = 0;
    tarn_alloc_options options = {.size = sizeof options, .device = 0, .stream = stream};
    const size_t bad[] = {3, 2 * TARN_MAX_ALIGNMENT, SIZE_MAX, (size_t)1 << 63,
                          TARN_MAX_ALIGNMENT + 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.alignment = bad[i];
        GIVES(tarn_alloc(&options, 100, &block), TARN_ERROR_INVALID_ARGUMENT);
    }
    options.alignment = 0;
    options.size = SIZE_MAX;
    GIVES(tarn_alloc(&options, 100, &block), TARN_ERROR_INVALID_ARGUMENT);

    const size_t segments[] = {SIZE_MAX, SIZE_MAX - 511, ((size_t)1 << 60) + 512, 511};
    for (size_t i = 0; i < sizeof segments / sizeof *segments; i++) {
        tarn_pool_options made = {
            .size = sizeof made, .device = 0, .segments = TARN_SEGMENTS_PLAIN};
        made.sizes = SIZES(.small_segment = segments[i]);
        GIVES(tarn_pool_create(&made, &other), TARN_ERROR_INVALID_ARGUMENT);
        made.sizes = SIZES(.rounding = segments[i]);
        GIVES(tarn_pool_create(&made, &other), TARN_ERROR_INVALID_ARGUMENT);
    }
    tarn_pool_options most = {.size = sizeof most, .device = 0, .segments = TARN_SEGMENTS_PLAIN};
    most.sizes = SIZES(.large_segment = (size_t)1 << 60, .rounding = (size_t)1 << 60);
    OK(tarn_pool_create(&most, &pool));
    GIVES(tarn_pool_alloc(pool, stream, 3 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_pool_alloc(pool, stream, 30 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_pool_release(pool));

    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_limit_set(pool, TARN_NO_LIMIT));
    OK(tarn_pool_limit_set(pool, 1));
    GIVES(tarn_pool_alloc(pool, stream, 1, &block), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_limit_set(0, 0));
    GIVES(tarn_alloc_on(stream, 1, &block), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_device_limit_get(0, &bytes));
    CHECK(bytes == SIZE_MAX);
    GIVES(tarn_pool_blocks_get(pool, NULL, SIZE_MAX, &count), TARN_ERROR_INVALID_ARGUMENT);
    tarn_trace_options trace = {.size = sizeof trace, .records = ((size_t)1 << 28) + 1};
    GIVES(tarn_trace_start(&trace), TARN_ERROR_INVALID_ARGUMENT);
    trace.records = SIZE_MAX;
    GIVES(tarn_trace_start(&trace), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pinned_limit_set(0));
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, 1, &block), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_pinned_limit_set(TARN_NO_LIMIT));
    block = alloc_on(stream, 1000);
    CHECK(tarn_host_work(0, native_of(stream), block, SIZE_MAX, 1) != TARN_OK);
    CHECK(tarn_host_fill(0, native_of(stream), block, 0, SIZE_MAX) != TARN_OK);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Little --------------------------------------------------------------------------------------- */

static void a_device_of_sixteen_megabytes(void)
{
    host_start_with(1, 16 * MIB);
    tarn_stream stream = lease(0);
    void *block = NULL, *inside = NULL, *graph = NULL;
    tarn_pool *pool = NULL;
    /* All of it, as one and as many. */
    char *all = alloc_on(stream, 16 * MIB);
    memset(all, 5, 16 * MIB);
    GIVES(tarn_alloc_on(stream, 1, &block), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "16"));
    OK(tarn_free(all));
    GIVES(tarn_alloc_on(stream, 16 * MIB + 1, &block), TARN_ERROR_OUT_OF_MEMORY);
    void *blocks[16 * 1024] = {0};
    size_t count = 0;
    while (count < 16 * 1024 && tarn_alloc_on(stream, 1024, &blocks[count]) == TARN_OK)
        count++;
    CHECK(count > 15 * 1024); /* at most a sixteenth is lost */
    for (size_t i = 0; i < count; i++)
        OK(tarn_free(blocks[i]));
    /* A pool, a capture, a suspend, pinned memory, another stream, in what is there. */
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, stream, 6 * MIB, &block));
    memset(block, 9, 6 * MIB);
    OK(tarn_pool_suspend(pool, true));
    all = alloc_on(lease(0), 16 * MIB);
    GIVES(tarn_pool_resume(pool), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(all));
    OK(tarn_pool_resume(pool));
    CHECK(((char *)block)[0] == 9 && ((char *)block)[6 * MIB - 1] == 9);
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_THREAD_LOCAL));
    OK(tarn_alloc_on(stream, 4 * MIB, &inside));
    OK(tarn_free(inside));
    GIVES(tarn_alloc_on(stream, 14 * MIB, &inside), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_host_graph_launch(0, graph, native_of(stream)));
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 20 * MIB, &block)); /* of the host */
    OK(tarn_free(block));
    nothing_is_left(0);
}

/* Pieces that lie apart, until the process has no mapping left. What is there can be given back,
 * and is of use again. */
static void few_mappings(void)
{
    enum { MOST = 4000 };
    static void *blocks[MOST];
    tarn_host_configuration config = {
        .size = sizeof config, .devices = 1, .memory = 64 * GIB, .maps = 400};
    OK(tarn_host_configuration_set(&config));
    size_t count = 0;
    tarn_status status = TARN_OK;
    tarn_pool *pools[MOST];
    for (; count < MOST && !status; count++) { /* a pool each has a piece of its own */
        OK(tarn_pool_create(NULL, &pools[count]));
        status = tarn_pool_alloc(pools[count], TARN_STREAM_LEGACY, 1000, &blocks[count]);
    }
    CHECK(status == TARN_ERROR_MAPPING_LIMIT && strstr(tarn_last_error(), "mappings"));
    CHECK(count > 20);
    verify(0);
    void *block = NULL;
    OK(tarn_free(blocks[0])); /* what is mapped serves on */
    OK(tarn_pool_alloc(pools[0], TARN_STREAM_LEGACY, 1000, &blocks[0]));
    for (size_t i = 0; i < count; i++) {
        OK(tarn_pool_release(pools[i]));
        OK(tarn_free(blocks[i]));
    }
    nothing_is_left(0);
    OK(tarn_alloc_on(TARN_STREAM_LEGACY, 100 * MIB, &block));
    OK(tarn_free(block));
    printf("400 mappings are enough for %zu pools with a block each\n", count - 1);
}

/* Another process takes what this one has not, and gives it back. */
static void memory_that_others_take(void)
{
    host_start_with(1, 256 * MIB);
    tarn_stream stream = lease(0);
    void *held = alloc_on(stream, 40 * MIB), *cached = alloc_on(stream, 40 * MIB), *block = NULL;
    memset(held, 3, 40 * MIB);
    OK(tarn_free(cached));
    OK(tarn_host_fail_set(kind_of("create"), 1, true, TARN_ERROR_OUT_OF_MEMORY));
    cached = alloc_on(stream, 40 * MIB); /* what is there serves on */
    GIVES(tarn_alloc_on(stream, 100 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_alloc_on(lease(0), 100 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    verify(0);
    OK(tarn_free(cached));
    cached = alloc_on(lease(0), 40 * MIB); /* moved to another stream, without the driver's
                                              memory */
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    block = alloc_on(stream, 100 * MIB);
    CHECK(((char *)held)[0] == 3 && ((char *)held)[40 * MIB - 1] == 3);
    OK(tarn_free(block));
    OK(tarn_free(cached));
    OK(tarn_free(held));
    nothing_is_left(0);
}

static void a_device_that_is_lost(void)
{
    host_start_with(2, 256 * MIB);
    tarn_stream stream = lease(0);
    void *small = alloc_on(stream, 1000), *large = alloc_on(stream, 40 * MIB), *block = NULL;
    void *other = alloc_on(lease(1), 10 * MIB);
    OK(tarn_host_fail_set(kind_of("create"), 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_alloc_on(stream, 150 * MIB, &block), TARN_ERROR_DEVICE_LOST);
    GIVES(tarn_alloc_on(stream, 150 * MIB, &block), TARN_ERROR_DEVICE_LOST); /* for good */
    OK(tarn_free(small));
    OK(tarn_free(large));
    GIVES(tarn_free(large), TARN_ERROR_DOUBLE_FREE);
    OK(tarn_free(other)); /* the other device is as it was */
    OK(tarn_free(alloc_on(lease(1), 200 * MIB)));
    nothing_is_left(1);
}

#define TESTS(X)                     \
    X(many_live_blocks)              \
    X(many_pools)                    \
    X(many_threads)                  \
    X(many_devices)                  \
    X(many_streams)                  \
    X(many_tags)                     \
    X(sizes_around_powers_of_two)    \
    X(a_block_beyond_four_gigabytes) \
    X(sizes_that_no_memory_has)      \
    X(arguments_that_overflow)       \
    X(a_device_of_sixteen_megabytes) \
    X(few_mappings)                  \
    X(memory_that_others_take)       \
    X(a_device_that_is_lost)

/* The whole takes longer than a child of a test may. */
static void patiently(void (*function)(void))
{
    if (is_full())
        alarm(1800);
    function();
}

#define TEST(function)                        \
    static void in_child_##function(void)     \
    {                                         \
        patiently(function);                  \
    }                                         \
    static void test_##function(void **state) \
    {                                         \
        (void)state;                          \
        in_child(in_child_##function);        \
    }
TESTS(TEST)

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* children end without a flush */
#define X(function) cmocka_unit_test(test_##function),
    const struct CMUnitTest tests[] = {TESTS(X)};
#undef X
    return cmocka_run_group_tests(tests, NULL, NULL);
}
