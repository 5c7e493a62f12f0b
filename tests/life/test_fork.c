/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* fork(), in every state that tarn can be in. A child of a process that used tarn gets
 * TARN_ERROR_FORKED from every call, or the answer that the header gives; nothing hangs, whatever
 * lock another thread of the parent had, no call reaches the driver, and the parent never
 * notices. */
#include "driver/host/host.h"
#include "support/every_call.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tarn/debug.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* What a child does ---------------------------------------------------------------------------- */

static uint64_t driver_calls(void)
{
    uint64_t sum = 0;
    for (int device = 0; device < 2; device++)
        for (int call = 0; call < DRIVER_CALLS; call++)
            sum += atomic_load(&host.device[device].calls[call]);
    return sum;
}

/* Another thread of the parent may have had any lock, so none may be taken; the sanitizers' own
 * functions stand in the way of a look. */
static bool forbids_locks;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if !defined(SANITIZED) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
typedef int (*take_mutex)(pthread_mutex_t *taken);
typedef int (*take_shared)(pthread_rwlock_t *lock);

static void *real(const char *name)
{
    if (forbids_locks) {
        fprintf(stderr, "%s() in a child, by %s()\n", name, every_call_now);
        abort();
    }
    return dlsym(RTLD_NEXT, name);
}

int pthread_mutex_lock(pthread_mutex_t *taken)
{
    static take_mutex lock;
    if (!lock || forbids_locks)
        *(void **)&lock = real("pthread_mutex_lock");
    return lock(taken);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *shared)
{
    static take_shared lock;
    if (!lock || forbids_locks)
        *(void **)&lock = real("pthread_rwlock_rdlock");
    return lock(shared);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *shared)
{
    static take_shared lock;
    if (!lock || forbids_locks)
        *(void **)&lock = real("pthread_rwlock_wrlock");
    return lock(shared);
}
#endif

static void all_is_refused(void)
{
    uint64_t calls = driver_calls();
    forbids_locks = true;
    every_call_gives(TARN_ERROR_FORKED, TARN_ERROR_FORKED);
    forbids_locks = false;
    CHECK(driver_calls() == calls);
}

static void *refused_in_a_thread(void *argument)
{
    all_is_refused();
    return argument;
}

/* Its end is that of a thread that had used tarn. */
static void all_is_refused_in_threads(void)
{
    const char *sanitizer = getenv("TARN_SANITIZE");
    if (sanitizer && *sanitizer)
        return; /* one takes a child's thread for the parent's at the same address, one needs a lock
                   of the parent's for it */
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, refused_in_a_thread, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

/* What the parent registered for its own exit runs here too. */
static void all_is_refused_and_it_exits(void)
{
    all_is_refused();
    exit(0);
}

static void a_child_of_a_child(void)
{
    in_child(all_is_refused);
    all_is_refused();
    in_child(all_is_refused_in_threads);
}

static void tarn_works(void)
{
    world_make();
    world_end();
    nothing_is_left(0);
}

static void children(void)
{
    in_child(all_is_refused);
    in_child(all_is_refused_in_threads);
    in_child(all_is_refused_and_it_exits);
    in_child(a_child_of_a_child);
}

/* States --------------------------------------------------------------------------------------- */

static void with_one_of_everything(void)
{
    world_make();
    memset(world.block, 77, 1000);
    children();
    for (int i = 0; i < 1000; i++)
        CHECK(((char *)world.block)[i] == 77);
    world_end();
    nothing_is_left(0);
}

static void with_a_warm_cache(void)
{
    tarn_stream stream = lease(0);
    void *blocks[300];
    OK(tarn_stream_set(stream));
    for (int i = 0; i < 300; i++)
        blocks[i] = tarn_malloc((size_t)(i % 20 + 1) * 512);
    for (int i = 0; i < 300; i++)
        OK(tarn_free(blocks[i]));
    uint64_t before = driver_calls();
    world.block = tarn_malloc(1000); /* the next one of this size is a load and two stores away */
    CHECK(world.block && driver_calls() == before);
    children();
    OK(tarn_free(world.block));
}

static void *children_of(void *argument)
{
    children();
    return argument;
}

/* By a thread that tarn has not seen. */
static void by_another_thread(void)
{
    pthread_t thread;
    world.block = alloc_on(lease(0), 1000);
    CHECK(pthread_create(&thread, NULL, children_of, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(tarn_free(world.block));
}

static void in_a_scope(void)
{
    OK(tarn_pool_create(NULL, &world.pool));
    OK(tarn_scope_begin(world.pool, TARN_SCOPE_THREAD, 0, &world.scope));
    world.block = tarn_malloc(10000);
    children();
    OK(tarn_free(world.block));
    OK(tarn_scope_end(world.scope));
    OK(tarn_pool_release(world.pool));
}

static void in_a_capture(void)
{
    world.capturing = lease(0);
    OK(tarn_pool_create(NULL, &world.pool));
    OK(tarn_pool_capture_begin(world.pool, world.capturing, TARN_CAPTURE_RELAXED));
    world.block = alloc_on(world.capturing, 5 * MIB);
    children();
    OK(tarn_free(world.block));
    OK(tarn_capture_end(world.capturing, &world.graph));
    OK(tarn_host_graph_destroy(world.graph));
    OK(tarn_pool_release(world.pool));
}

static void in_an_announced_capture(void)
{
    world.capturing = lease(0);
    OK(tarn_capture_announce(world.capturing));
    OK(driver->capture_begin(0, native_of(world.capturing), DRIVER_CAPTURE_RELAXED));
    children();
    OK(driver->capture_end(0, native_of(world.capturing), &world.graph));
    OK(tarn_capture_end_announced(world.capturing, world.graph));
    OK(tarn_host_graph_destroy(world.graph));
}

static void with_the_trace_on(void)
{
    const tarn_trace_options options = {
        .size = sizeof options, .records = 1000, .stacks = TARN_TRACE_STACKS_ALL, .regions = true};
    OK(tarn_trace_start(&options));
    OK(tarn_region_push("a region"));
    with_a_warm_cache();
    OK(tarn_region_pop());
    OK(tarn_trace_stop());
}

static void with_a_plan(void)
{
    char text[4200];
    snprintf(text, sizeof text, "plan:%s/model.plan", getenv("TARN_TEST_DATA"));
    OK(tarn_configuration_set(text));
    with_one_of_everything();
}

static void in_debug_mode(void)
{
    CHECK(setenv("TARN_DEBUG", "all", 1) == 0);
    with_one_of_everything();
}

static void while_the_checker_watches(void)
{
    OK(tarn_host_check_set(true, NULL, NULL));
    with_one_of_everything();
}

static void with_a_live_page_and_metrics(void)
{
    char path[] = "/tmp/tarn-fork-XXXXXX", page[64], metrics[64];
    CHECK(mkdtemp(path) != NULL);
    snprintf(page, sizeof page, "%s/tarn-%ld", path, (long)getpid());
    snprintf(metrics, sizeof metrics, "%s/metrics", path);
    CHECK(setenv("TARN_METRICS", metrics, 1) == 0 && setenv("TARN_METRICS_INTERVAL", "1", 1) == 0);
    const tarn_live_options options = {
        .size = sizeof options, .directory = path, .interval_ms = 10};
    world.block = alloc_on(lease(0), 1000);
    OK(tarn_live_start(&options));
    children();
    OK(tarn_live_stop());
    OK(tarn_free(world.block));
    (void)unlink(metrics);
    CHECK(rmdir(path) == 0); /* no child left a page, or took the parent's away too early */
}

static void after_a_shutdown(void)
{
    world_make();
    OK(tarn_shutdown());
    children();
}

static void before_the_first_use(void)
{
    in_child(tarn_works);
    in_child(tarn_works);
    OK(tarn_configuration_set("max_split_size_mb:200")); /* no use yet: no device was asked for */
    in_child(tarn_works);
    tarn_works();
}

/* A first use that failed left nothing that a child would have to fear. */
static void after_a_first_use_that_failed(void)
{
    tarn_host_configuration none = {.size = sizeof none};
    OK(tarn_host_configuration_set(&none)); /* no wish any more: the environment decides */
    CHECK(setenv("TARN_DRIVER", "nonsense", 1) == 0);
    int count = 0;
    tarn_status status = tarn_device_count_get(&count);
    if (status == TARN_OK)
        return; /* the wish stands, and nothing failed */
    in_child(every_call_returns);
    CHECK(unsetenv("TARN_DRIVER") == 0);
}

static void every_state(void **state)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } states[] = {
#define STATE(name) {#name, name}
        STATE(before_the_first_use),
        STATE(after_a_first_use_that_failed),
        STATE(with_one_of_everything),
        STATE(with_a_warm_cache),
        STATE(by_another_thread),
        STATE(in_a_scope),
        STATE(in_a_capture),
        STATE(in_an_announced_capture),
        STATE(with_the_trace_on),
        STATE(with_a_plan),
        STATE(in_debug_mode),
        STATE(while_the_checker_watches),
        STATE(with_a_live_page_and_metrics),
        STATE(after_a_shutdown),
#undef STATE
    };
    (void)state;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        fprintf(stderr, "fork %s\n", states[i].name);
        in_child(states[i].run);
    }
}

/* While others hold every lock ----------------------------------------------------------------- */

static atomic_bool storm_ends;

static bool drop(const void *data, size_t size, void *user)
{
    (void)user;
    return data && size;
}

static void hear(const tarn_mapping *range, void *user)
{
    (void)user;
    (void)range;
}

static void hear_report(const tarn_debug_report *report, void *user)
{
    (void)user;
    (void)report;
}

static void blow_memory(tarn_stream own)
{
    void *blocks[40] = {0};
    for (int i = 0; i < 40; i++)
        (void)tarn_alloc_on(own, (size_t)(i + 1) * (i % 8 ? 1000 : 400000), &blocks[i]);
    OK(tarn_record_stream(blocks[8], world.stream));
    for (int i = 0; i < 40; i++)
        OK(tarn_free(blocks[i]));
    tarn_status status = tarn_device_trim(0, 0);
    CHECK(status == TARN_OK || status == TARN_ERROR_CAPTURE);
}

static void blow_pools(tarn_stream own)
{
    tarn_pool *pool = NULL;
    tarn_checkpoint *checkpoint = NULL;
    tarn_scope scope = 0;
    void *block = NULL;
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope));
    if (tarn_alloc_on(own, MIB, &block) == TARN_OK)
        OK(tarn_free(block));
    OK(tarn_scope_end(scope));
    if (tarn_pool_checkpoint(pool, &checkpoint) == TARN_OK)
        OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_pool_release(pool));
}

static void blow_captures(tarn_stream own)
{
    void *graph = NULL;
    if (tarn_capture_begin(own, TARN_CAPTURE_RELAXED) == TARN_OK &&
        tarn_capture_end(own, &graph) == TARN_OK)
        OK(tarn_host_graph_destroy(graph));
}

static void blow_streams(tarn_stream own)
{
    tarn_stream leased = 0, adopted = 0;
    tarn_event *event = NULL;
    OK(tarn_stream_lease(0, -1, &leased));
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    OK(tarn_event_create(0, &event));
    if (tarn_event_record(event, leased) == TARN_OK)
        OK(tarn_stream_wait(own, event));
    OK(tarn_event_destroy(event));
    tarn_status status = tarn_stream_retire(adopted);
    CHECK(status == TARN_OK || status == TARN_ERROR_CAPTURE);
    status = tarn_stream_return(leased);
    CHECK(status == TARN_OK || status == TARN_ERROR_CAPTURE);
}

static void blow_handles(tarn_stream own)
{
    void *handle = NULL;
    size_t destroyed = 0;
    tarn_lease given = {0};
    (void)tarn_handle_get(world.library, own, &handle);
    if (tarn_handle_lease(world.library, own, &given) == TARN_OK)
        OK(tarn_handle_return(&given));
    (void)tarn_handle_trim(world.library, 0, &destroyed);
}

static void blow_pinned(tarn_stream own)
{
    void *block = NULL;
    OK(tarn_pinned_alloc(own, 70000, &block));
    CHECK(tarn_pinned_contains(block));
    OK(tarn_free(block));
    (void)tarn_pinned_trim(0);
}

static void blow_reports(tarn_stream own)
{
    (void)own;
    const tarn_trace_options trace = {.size = sizeof trace, .records = 256};
    OK(tarn_trace_start(&trace));
    OK(tarn_snapshot_print(drop, NULL, NULL));
    OK(tarn_metrics_print(drop, NULL));
    OK(tarn_trace_stop());
    tarn_debug_callback_set(hear_report, NULL);
    (void)stats_of(0);
}

static void blow_words(tarn_stream own)
{
    char text[64];
    tarn_tag tag = 0;
    size_t needed = 0;
    tarn_observer observer = 0;
    const tarn_observer_options options = {.size = sizeof options, .mapped = hear};
    snprintf(text, sizeof text, "tag %d", (int)(own % 100));
    OK(tarn_tag_intern(text, &tag));
    OK(tarn_configuration_get(NULL, 0, &needed));
    OK(tarn_observer_add(&options, &observer));
    OK(tarn_observer_remove(observer));
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_region_push("busy"));
    OK(tarn_region_pop());
}

static void blow_shares(tarn_stream own)
{
    void *block = NULL, *seen = NULL;
    tarn_share *share = NULL;
    if (tarn_alloc_on(own, 2 * MIB, &block))
        return;
    if (tarn_export(block, &share) == TARN_OK) {
        if (tarn_import(share, 0, &seen) == TARN_OK)
            OK(tarn_import_close(seen));
        OK(tarn_share_close(share));
    }
    OK(tarn_free(block));
}

static void (*const winds[])(tarn_stream own) = {
    blow_memory, blow_pools,   blow_captures, blow_streams, blow_handles,
    blow_pinned, blow_reports, blow_words,    blow_shares,
};
enum { WINDS = sizeof winds / sizeof *winds };

static void *storm(void *argument)
{
    size_t next = (size_t)(uintptr_t)argument;
    tarn_stream own = lease(0);
    while (!atomic_load(&storm_ends))
        winds[next++ % WINDS](own);
    return NULL;
}

static int rounds(void)
{
    const char *times = getenv("TARN_LIFE_TIMES");
    return 16 * (times ? atoi(times) : 1);
}

static void *forks(void *argument)
{
    for (int i = 0; i < rounds(); i++) {
        alarm(60); /* for each anew */
        in_child(i % 4 == 3 ? all_is_refused_and_it_exits : all_is_refused);
    }
    return argument;
}

static void fork_in_a_storm(void)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS], forker;
    world_make();
    memset(world.block, 77, 1000);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, storm, (void *)(i * 2)) == 0);
    CHECK(pthread_create(&forker, NULL, forks, NULL) == 0);
    (void)forks(NULL);
    CHECK(pthread_join(forker, NULL) == 0);
    atomic_store(&storm_ends, true);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(((char *)world.block)[i] == 77);
    world_end();
    nothing_is_left(0);
}

static void a_child_never_waits_for_a_thread_that_it_does_not_have(void **state)
{
    (void)state;
    in_child(fork_in_a_storm);
}

/* While another thread uses tarn for the first time -------------------------------------------- */

static atomic_bool began, ended;

static void *first_use(void *argument)
{
    int count = 0;
    atomic_store(&began, true);
    OK(tarn_device_count_get(&count));
    atomic_store(&ended, true);
    return argument;
}

/* Forked before it, the child may use tarn; else it is refused. */
static void works_or_is_refused(void)
{
    int count = 0;
    tarn_status status = tarn_device_count_get(&count);
    CHECK((status == TARN_OK && count == 2) || status == TARN_ERROR_FORKED);
    if (status)
        every_call_gives(TARN_ERROR_FORKED, TARN_ERROR_FORKED);
    else
        tarn_works();
}

static volatile int delay; /* turns of a loop: each fork comes at another moment */

static void fork_in_the_first_use(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, first_use, NULL) == 0);
    CHECK(pthread_detach(thread) == 0); /* a child could not join it, which the thread sanitizer
                                           would have it do */
    while (!atomic_load(&began))
        ;
    for (volatile int turn = 0; turn < delay; turn = turn + 1)
        ;
    in_child(works_or_is_refused);
    while (!atomic_load(&ended))
        ;
}

static void a_fork_during_the_first_use_leaves_a_child_that_knows(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * rounds(); i++) {
        delay = i % 50 * 400;
        in_child(fork_in_the_first_use);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state),
        cmocka_unit_test(a_child_never_waits_for_a_thread_that_it_does_not_have),
        cmocka_unit_test(a_fork_during_the_first_use_leaves_a_child_that_knows),
    };
    host_start_with(2, 256 * MIB);
    every_call_is_listed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
