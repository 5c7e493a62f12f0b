/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a tool is told through NVTX: a library of the tests' own, TARN_TEST_INJECTION, that counts
 * what makes no sense. Each test runs in a process of its own, where the tool is found at the first
 * use. */
#include "base/nvtx.h"
#include "driver/loader.h"
#include "injection.h"
#include "memory/settings/hooks.h"
#include "support/failures.h"
#include "support/host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/config.h>

#include <cmocka.h>

static told_get *told_now;

/* Begins a process with the tool, and TARN_NVTX and the settings given. */
static void start(const char *wish, const char *settings)
{
    const char *path = getenv("TARN_TEST_INJECTION");
    CHECK(path && setenv("NVTX_INJECTION64_PATH", path, 1) == 0);
    CHECK((wish ? setenv("TARN_NVTX", wish, 1) : unsetenv("TARN_NVTX")) == 0);
    CHECK(setenv("TARN_ALLOC_CONF", settings, 1) == 0);
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library);
    loader_store(&told_now, dlsym(library, "told_now"));
    CHECK(told_now && told_now()->heaps == 0);
    int count;
    OK(tarn_device_count_get(&count)); /* the first use */
}

static const struct told_range *region_of(const void *pointer)
{
    const struct told *told = told_now();
    for (int i = 0; i < told->regions; i++)
        if (told->all_regions[i].start == (uintptr_t)pointer)
            return &told->all_regions[i];
    return NULL;
}

static void no_mistake(void)
{
    if (told_now()->mistakes)
        fprintf(stderr, "the tool says: %s\n", told_now()->first);
    CHECK(told_now()->mistakes == 0);
}

static void blocks(void)
{
    start("1", ""); /* memory comes in plain segments then */
    CHECK(announcer && told_now()->tables == 6 && strcmp(told_now()->domain, "tarn") == 0);
    tarn_stream stream = lease(0), other = lease(0);
    void *small = alloc_on(stream, 100), *large = alloc_on(stream, 3 * MIB + 5), *again;
    no_mistake();
    CHECK(told_now()->regions == 2 && told_now()->heaps == 2);
    /* As asked for */
    CHECK(region_of(small)->size == 100 && region_of(large)->size == 3 * MIB + 5);
    CHECK(strcmp(region_of(small)->name, "tarn") == 0);
    OK(tarn_free(small));
    CHECK(!region_of(small));
    again = alloc_on(stream, 101); /* in its place, by no fast path */
    CHECK(again == small && region_of(again)->size == 101 && told_now()->ever == 3);
    GIVES(tarn_free((char *)again + 1), TARN_ERROR_INVALID_POINTER);
    CHECK(region_of(again));
    OK(tarn_extend(again, 500));
    CHECK(region_of(again)->size == 500 && told_now()->resized == 1);
    OK(tarn_free_on(again, other));
    CHECK(!region_of(again));
    work_on(other, large, MIB, 1000000);
    OK(tarn_record_stream(large, other));
    OK(tarn_free(large)); /* it waits, and is its caller's no more */
    CHECK(!region_of(large) && told_now()->regions == 0);
    GIVES(tarn_free(large), TARN_ERROR_DOUBLE_FREE);
    OK(tarn_configuration_set("segments:plain"));
    GIVES(tarn_configuration_set("segments:virtual"), TARN_ERROR_CONFIGURATION);
    time_pass(2000000);
    OK(tarn_shutdown());
    no_mistake();
    CHECK(told_now()->heaps == 0 && told_now()->regions == 0);
}

static void each_block_is_reported_with_its_callers_address(void **state)
{
    (void)state;
    in_child(blocks);
}

/* Frees that fail: the block is live afterwards, also for the tool. */
static void refused_frees(void)
{
    tarn_event *event = NULL;
    tarn_tag tag;
    void *blocks[2];
    const size_t sizes[] = {100, 3 * MIB + 5};
    start("1", "");
    tarn_stream stream = lease(0), other = lease(0), capturing = lease(0);
    OK(tarn_tag_intern("attention", &tag));
    tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = stream, .tag = tag};
    OK(tarn_event_create(0, &event));
    OK(tarn_capture_begin(capturing, TARN_CAPTURE_RELAXED));
    OK(tarn_event_record(event, capturing));
    for (int i = 0; i < 2; i++)
        OK(tarn_alloc(&options, sizes[i], &blocks[i]));
    for (int i = 0; i < 2; i++) {
        GIVES(tarn_free_after(blocks[i], event), TARN_ERROR_CAPTURE);
        CHECK(region_of(blocks[i]) && region_of(blocks[i])->size == sizes[i]);
        CHECK(strcmp(region_of(blocks[i])->name, "attention") == 0);
        failure_arm(&(struct failure){.kind = FAIL_memory, .nth = 1, .forever = true});
        tarn_status status = tarn_free_on(blocks[i], other);
        failure_clear();
        CHECK(status == TARN_ERROR_OUT_OF_HOST_MEMORY);
        CHECK(region_of(blocks[i]) && region_of(blocks[i])->size == sizes[i]);
    }
    OK(tarn_capture_abort(capturing));
    for (int i = 0; i < 2; i++) {
        OK(tarn_free_on(blocks[i], other));
        CHECK(!region_of(blocks[i]));
    }
    OK(tarn_event_destroy(event));
    no_mistake();
}

static void a_block_whose_free_fails_is_reported_again(void **state)
{
    (void)state;
    in_child(refused_frees);
}

static void names(void)
{
    tarn_pool *pool;
    tarn_tag tag;
    void *tagged, *in_pool;
    start("1", "segments:plain");
    tarn_stream stream = lease(0);
    OK(tarn_tag_intern("attention", &tag));
    tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = stream, .tag = tag};
    OK(tarn_alloc(&options, 5000, &tagged));
    CHECK(strcmp(region_of(tagged)->name, "attention") == 0);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, stream, 2 * MIB, &in_pool));
    CHECK(strcmp(region_of(in_pool)->name, "tarn pool (0, 1)") == 0);
    OK(tarn_free(tagged));
    OK(tarn_free(in_pool));
    OK(tarn_pool_release(pool));
    no_mistake();
}

static void blocks_have_the_name_of_their_tag_or_pool(void **state)
{
    (void)state;
    in_child(names);
}

static void restored(void)
{
    tarn_pool *pool;
    tarn_checkpoint *checkpoint;
    void *first, *second, *third;
    start("1", "");
    tarn_stream stream = lease(0);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, stream, 100000, &first));
    OK(tarn_pool_alloc(pool, stream, 200000, &second));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(first));
    OK(tarn_pool_alloc(pool, stream, 300000, &third));
    CHECK(told_now()->regions == 2 && !region_of(first));
    OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    CHECK(told_now()->regions == 2 && region_of(first)->size == 100000 &&
          region_of(second)->size == 200000);
    no_mistake();
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_pool_release(pool));
    no_mistake();
}

static void a_restored_block_is_reported_again(void **state)
{
    (void)state;
    in_child(restored);
}

/* What a tool would refuse is not told: mapped memory, and what came from a caller's allocator. */
static void *allocate(size_t size, int device, void *stream, void *user)
{
    (void)device, (void)stream, (void)user;
    return aligned_alloc(512, size);
}

static void release(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size, (void)device, (void)stream, (void)user;
    free(pointer);
}

static void others(void)
{
    tarn_pool *pool;
    void *block;
    start("1", "segments:virtual");
    tarn_stream stream = lease(0);
    tarn_pool_allocator allocator = {.size = sizeof allocator, .alloc = allocate, .free = release};
    tarn_pool_options options = {.size = sizeof options, .allocator = &allocator};
    OK(tarn_pool_create(&options, &pool));
    OK(tarn_pool_alloc(pool, stream, MIB, &block));
    OK(tarn_free(alloc_on(stream, MIB)));
    CHECK(told_now()->ever == 0 && told_now()->heaps == 0);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    no_mistake();
}

static void memory_that_a_tool_cannot_represent_is_not_reported(void **state)
{
    (void)state;
    in_child(others);
}

static void ranges(void)
{
    start("1", "");
    nvtx_region_begin("step 3");
    nvtx_region_begin("layer 7");
    CHECK(told_now()->depth == 2);
    nvtx_region_end();
    nvtx_region_end();
    CHECK(strcmp(told_now()->ranges, "+step 3 +layer 7 - - ") == 0);
    no_mistake();
}

static void regions_are_ranges_on_its_timeline(void **state)
{
    (void)state;
    in_child(ranges);
}

/* Nothing is told, and nothing is slower, where nobody listens. */
static void nobody(void)
{
    CHECK(!announcer && !nvtx_ranges && told_now()->tables == 0);
    nvtx_region_begin("nothing");
    nvtx_region_end();
}

static void not_asked(void)
{
    start(NULL, "segments:plain"); /* the host device is none of NVIDIA's */
    nobody();
}

static void refused(void)
{
    start("0", "segments:plain");
    nobody();
}

static void tool_is_deaf(void)
{
    CHECK(setenv("NVTX_TEST_TOOL", "deaf", 1) == 0);
    start("1", "segments:plain");
    CHECK(!announcer && !nvtx_ranges && told_now()->tables == 6);
    OK(tarn_free(alloc_on(lease(0), MIB)));
    no_mistake();
}

static void tool_fails(void)
{
    CHECK(setenv("NVTX_TEST_TOOL", "fails", 1) == 0);
    start("1", "segments:plain");
    nobody();
}

static void tool_is_missing(void)
{
    CHECK(setenv("TARN_NVTX", "1", 1) == 0 &&
          setenv("NVTX_INJECTION64_PATH", "/nonexistent.so", 1) == 0);
    CHECK(tarn_malloc(1000) && !announcer && !nvtx_ranges);
}

/* What is in no heap learns of neither when it begins nor when it changes or ends. */
static void tool_refuses(void)
{
    CHECK(setenv("NVTX_TEST_TOOL", "refuses", 1) == 0);
    start("1", "segments:plain");
    void *block = alloc_on(lease(0), 100);
    OK(tarn_extend(block, 500));
    OK(tarn_free(block));
    no_mistake();
    CHECK(told_now()->ever == 0);
}

static void malformed(void)
{
    CHECK(setenv("TARN_NVTX", "on", 1) == 0);
    CHECK(!tarn_malloc(1000) && tarn_last_status() == TARN_ERROR_CONFIGURATION);
    CHECK(strstr(tarn_last_error(), "TARN_NVTX=on"));
}

static void without_a_tool_that_listens_nobody_is_told(void **state)
{
    (void)state;
    in_child(not_asked);
    in_child(refused);
    in_child(tool_is_deaf);
    in_child(tool_fails);
    in_child(tool_is_missing);
    in_child(tool_refuses);
    in_child(malformed);
}

/* Threads that free each other's blocks, whose memory others take at once. */
#define EXCHANGED 64
static _Atomic(void *) exchanged[EXCHANGED];

static void *exchange(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    for (int i = 0; i < 3000; i++) {
        void *block =
            alloc_on(TARN_STREAM_LEGACY,
                     random_next(&random) % (random_next(&random) % 4 ? 20000 : 3 * MIB) + 1);
        OK(tarn_free(atomic_exchange(&exchanged[random_next(&random) % EXCHANGED], block)));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[4];
    start("1", "segments:plain");
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, exchange, (void *)(i + 1)) == 0); // NOLINT
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    no_mistake();
    CHECK(told_now()->ever == 12000);
    for (int i = 0; i < EXCHANGED; i++)
        OK(tarn_free(exchanged[i]));
    CHECK(told_now()->regions == 0);
    OK(tarn_shutdown());
    no_mistake();
    CHECK(told_now()->heaps == 0);
}

static void what_is_told_is_in_order_whoever_frees(void **state)
{
    (void)state;
    in_child(threads);
}

/* The library, a symbol of it, memory for what is told: what there is none for is not told, and the
 * program goes on. */
static void listen_in(void)
{
    tarn_event *event = NULL;
    void *blocks[6] = {NULL};
    static const size_t sizes[] = {100, 3 * MIB + 5, 12 * MIB, 5000, MIB, 20 * MIB};
    for (int i = 0; i < 6; i++)
        (void)TRY(tarn_alloc_on(i % 2 ? TARN_STREAM_PER_THREAD : TARN_STREAM_LEGACY, sizes[i],
                                &blocks[i]));
    if (TRY(tarn_region_push("a region")))
        OK(tarn_region_pop());
    if (blocks[0])
        (void)TRY(tarn_extend(blocks[0], 300));
    if (blocks[1] && TRY(tarn_event_create(0, &event))) {
        if (TRY(tarn_free_after(blocks[1], event)))
            blocks[1] = NULL;
        OK(tarn_event_destroy(event));
    }
    for (int i = 0; i < 6; i++)
        if (blocks[i])
            OK(tarn_free(blocks[i]));
    (void)TRY(tarn_device_trim(0, 0));
}

static void listen_again(void)
{
    listen_in();
    nothing_is_left(0);
    OK(tarn_shutdown());
    void *library = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW);
    CHECK(library);
    loader_store(&told_now, dlsym(library, "told_now"));
    no_mistake();
    CHECK(told_now()->regions == 0 && told_now()->heaps == 0 && told_now()->depth == 0);
    CHECK(failure_is_tried() ||
          (told_now()->ever == 12 && told_now()->resized == 2 && told_now()->ranges[0]));
}

static void what_fails_is_not_told_and_nothing_else_fails(void **state)
{
    (void)state;
    CHECK(setenv("TARN_NVTX", "1", 1) == 0 && setenv("TARN_ALLOC_CONF", "segments:plain", 1) == 0);
    CHECK(setenv("NVTX_INJECTION64_PATH", getenv("TARN_TEST_INJECTION"), 1) == 0);
    each_failure_of_once(&(struct once){
        .name = "a tool listens", .run = listen_in, .after = listen_again, .most = 400});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_is_reported_with_its_callers_address),
        cmocka_unit_test(a_block_whose_free_fails_is_reported_again),
        cmocka_unit_test(blocks_have_the_name_of_their_tag_or_pool),
        cmocka_unit_test(a_restored_block_is_reported_again),
        cmocka_unit_test(memory_that_a_tool_cannot_represent_is_not_reported),
        cmocka_unit_test(regions_are_ranges_on_its_timeline),
        cmocka_unit_test(without_a_tool_that_listens_nobody_is_told),
        cmocka_unit_test(what_is_told_is_in_order_whoever_frees),
        cmocka_unit_test(what_fails_is_not_told_and_nothing_else_fails),
    };
    host_start_with(2, 1024 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
