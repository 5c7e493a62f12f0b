/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What another thread does between two steps of a call, at a moment that the test chooses: in an
 * observer's callback, in a call of the driver, or in a function of the library that the linker
 * wraps (tests/CMakeLists.txt). */
#include "base/thread/clock.h"
#include "device/capture.h"
#include "device/stream.h"
#include "driver/driver.h"
#include "driver/host/host.h"
#include "memory/heap/cache.h"
#include "memory/pool/pool.h"

#include "memory/compact_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <tarn/observe.h>

static tarn_pool *pool;
static atomic_int stage;

static tarn_observer observe(void (*mapped)(const tarn_mapping *, void *),
                             void (*unmapping)(const tarn_mapping *, void *))
{
    tarn_observer id = 0;
    tarn_observer_options options = {
        .size = sizeof options, .mapped = mapped, .unmapping = unmapping, .any_thread = true};
    OK(tarn_observer_add(&options, &id));
    return id;
}

static void pause_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Gives another thread a fifth of a second to reach a stage. It does not if it waits for this one.
 */
static bool reached_soon(int wanted)
{
    for (int i = 0; i < 200 && atomic_load(&stage) < wanted; i++)
        pause_ms(1);
    return atomic_load(&stage) >= wanted;
}

static pthread_t run(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
    return thread;
}

static void join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- Holds ---- */

static void stop_while_unmapping(const tarn_mapping *range, void *user)
{
    (void)range, (void)user;
    int first = 1;
    if (atomic_compare_exchange_strong(&stage, &first, 2))
        (void)reached_soon(3);
}

/* tarn's own thread has chosen idle memory to give back when the pool is restored. */
static void a_restore_waits_for_memory_that_goes_back(void)
{
    host_start_with(1, 512 * MIB);
    stream = lease(0);
    pool = pool_with((tarn_pool_options){.idle_release = 20});
    tarn_observer id = observe(NULL, stop_while_unmapping);
    void *block = get(pool, stream, 40 * MIB);
    tarn_checkpoint *checkpoint = NULL;
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(block));
    OK(tarn_stream_synchronize(stream));
    atomic_store(&stage, 1);
    for (tarn_pool *any; atomic_load(&stage) == 1; pause_ms(1))
        OK(tarn_pool_default(0, &any)); /* records the marks that the thread wants */
    GIVES(tarn_pool_restore(pool, checkpoint, NULL, NULL), TARN_ERROR_NO_ROOM);
    atomic_store(&stage, 3);
    verify(0);
    CHECK(pool_stats_of(pool).allocated_bytes[0].current == 0);
    OK(tarn_observer_remove(id));
}

static uint64_t mapped_at_hold;

static void *hold(void *unused)
{
    OK(tarn_pool_hold(pool, NULL));
    mapped_at_hold = ledger_of(0).mapped;
    atomic_store(&stage, 3);
    return unused;
}

static pthread_t holder;

static void hold_while_unmapping(const tarn_mapping *range, void *user)
{
    (void)range, (void)user;
    int first = 1;
    if (!atomic_compare_exchange_strong(&stage, &first, 2))
        return;
    holder = run(hold);
    (void)reached_soon(3);
}

/* Nothing of the pool is unmapped once tarn_pool_hold() has returned, and a compaction leaves none
 * of it in host memory. */
static void a_hold_waits_for_a_compaction(void)
{
    host_start_with(1, MEMORY);
    (void)set_up(NULL);
    pool = pool_with((tarn_pool_options){.device = 0});
    fragment(pool, stream, 1);
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_device_limit_set(0, ledger_of(0).created));
    tarn_observer id = observe(NULL, hold_while_unmapping);
    size_t gained = 0;
    atomic_store(&stage, 1);
    OK(tarn_compact(0, SIZE_MAX, &gained));
    join(holder);
    CHECK(gained > 0 && mapped_at_hold == ledger_of(0).mapped);
    for (int i = 0; i < count; i++)
        if (blocks[i].start)
            CHECK(!(arena_piece(arena_if_used(0), (uintptr_t)blocks[i].start)->flags &
                    DRIVER_PIECE_HOST));
    OK(tarn_observer_remove(id));
    OK(tarn_pool_unhold(pool));
}

/* ---- Memory of another pool ---- */

struct help_search;
struct pool *__real_pool_spare_next(struct arena *arena, struct help_search *search,
                                    struct pool *last);
struct pool *__wrap_pool_spare_next(struct arena *arena, struct help_search *search,
                                    struct pool *last);

/* A request that has chosen a helper gives a capture the time to begin. */
struct pool *__wrap_pool_spare_next(struct arena *arena, struct help_search *search,
                                    struct pool *last)
{
    struct pool *found = __real_pool_spare_next(arena, search, last);
    int first = 1;
    if (found && atomic_compare_exchange_strong(&stage, &first, 2))
        (void)reached_soon(3);
    return found;
}

static unsigned char *served;

static void *ask_default(void *unused)
{
    tarn_status status = tarn_alloc_on(stream, 8 * MIB, (void **)&served);
    CHECK(status == TARN_OK || (status == TARN_ERROR_OUT_OF_MEMORY && !served));
    return unused;
}

/* A request of the default pool that has chosen a pool with `use_on_oom` gets no memory that a
 * graph, captured into the pool meanwhile, writes to. */
static void no_helper_gives_what_a_graph_uses(void)
{
    host_start_with(1, MEMORY);
    stream = lease(0);
    pool = pool_with((tarn_pool_options){.use_on_oom = true});
    OK(tarn_free(get(pool, stream, 20 * MIB)));
    OK(tarn_stream_synchronize(stream));
    OK(tarn_device_limit_set(0, (size_t)stats_of(0).reserved_bytes[0].current));
    atomic_store(&stage, 1);
    pthread_t thread = run(ask_default);
    while (atomic_load(&stage) < 2)
        pause_ms(1);
    void *graph = NULL, *temporary = NULL;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    tarn_status status = tarn_alloc_on(stream, 12 * MIB, &temporary);
    CHECK(status == TARN_OK);
    OK(tarn_host_fill(0, native_of(stream), temporary, 0xEE, 12 * MIB));
    OK(tarn_free(temporary));
    OK(tarn_capture_end(stream, &graph));
    atomic_store(&stage, 3);
    join(thread);
    if (served)
        memset(served, 0x11, 8 * MIB);
    OK(tarn_host_graph_launch(0, graph, native_of(stream)));
    OK(tarn_stream_synchronize(stream));
    for (size_t i = 0; served && i < 8 * MIB; i++)
        CHECK(served[i] == 0x11);
    OK(tarn_host_graph_destroy(graph));
}

/* ---- Suspends ---- */

tarn_status __real_cache_take(struct cache *cache, const struct request *request, struct span *span,
                              uintptr_t *address);
tarn_status __wrap_cache_take(struct cache *cache, const struct request *request, struct span *span,
                              uintptr_t *address);

/* A small request has found no slot, and stops before it looks for a span. */
tarn_status __wrap_cache_take(struct cache *cache, const struct request *request, struct span *span,
                              uintptr_t *address)
{
    tarn_status status = __real_cache_take(cache, request, span, address);
    int first = 11;
    if (!span && status == TARN_ERROR_OUT_OF_MEMORY &&
        atomic_compare_exchange_strong(&stage, &first, 12))
        while (atomic_load(&stage) < 13)
            pause_ms(1);
    return status;
}

static void *ask_pool(void *unused)
{
    void *block = NULL;
    GIVES(tarn_pool_alloc(pool, stream, 1000, &block), TARN_ERROR_SUSPENDED);
    return unused;
}

static void a_small_request_sees_a_suspend(void)
{
    host_start_with(1, MEMORY);
    stream = lease(0);
    pool = pool_with((tarn_pool_options){.device = 0});
    void *eight[8];
    for (int i = 0; i < 8; i++)
        eight[i] = get(pool, stream, MIB);
    for (int i = 1; i < 7; i++)
        OK(tarn_free(eight[i]));
    OK(tarn_stream_synchronize(stream));
    atomic_store(&stage, 11);
    pthread_t thread = run(ask_pool);
    while (atomic_load(&stage) < 12)
        pause_ms(1);
    OK(tarn_pool_suspend(pool, true));
    atomic_store(&stage, 13);
    join(thread);
    OK(tarn_pool_resume(pool));
}

static void *block_of_many_pieces;

static void *anchor_again_and_again(void *unused)
{
    while (atomic_load(&stage) == 1) {
        tarn_status status = tarn_anchor(block_of_many_pieces, 1);
        CHECK(status == TARN_OK || status == TARN_ERROR_SUSPENDED);
        if (!status)
            OK(tarn_unanchor(block_of_many_pieces, 1));
    }
    return unused;
}

/* An anchor looks at each piece of its block. Two seconds are enough to meet a suspend there. */
static void an_anchor_sees_a_suspend(void)
{
    host_start_with(1, 1024 * MIB);
    stream = lease(0);
    pool = pool_with((tarn_pool_options){.device = 0});
    void *parts[40];
    for (int i = 0; i < 40; i++)
        parts[i] = get(pool, stream, 20 * MIB);
    for (int i = 0; i < 40; i++)
        OK(tarn_free(parts[i]));
    OK(tarn_stream_synchronize(stream));
    block_of_many_pieces = get(pool, stream, 700 * MIB);
    atomic_store(&stage, 1);
    pthread_t thread = run(anchor_again_and_again);
    for (uint64_t end = clock_ns() + 2 * UINT64_C(1000000000); clock_ns() < end;) {
        tarn_status status = tarn_pool_suspend(pool, false);
        CHECK(status == TARN_OK || status == TARN_ERROR_BUSY);
        if (!status)
            OK(tarn_pool_resume(pool));
    }
    atomic_store(&stage, 2);
    join(thread);
}

/* ---- Peers and streams ---- */

static void *enable_peer(void *unused)
{
    OK(tarn_device_peer_enable(1, 0));
    return unused;
}

static void enable_peer_when_mapped(const tarn_mapping *range, void *user)
{
    (void)range, (void)user;
    int first = 1;
    if (atomic_compare_exchange_strong(&stage, &first, 2))
        join(run(enable_peer));
}

/* A growth maps pieces that earlier work still uses a second time, and then moves them there. */
static void a_peer_that_is_enabled_during_a_growth_reaches_all_of_it(void)
{
    host_start_with(2, MEMORY);
    stream = lease(0);
    tarn_stream far = lease(1);
    tarn_observer id = observe(enable_peer_when_mapped, NULL);
    void *three[3];
    for (int i = 0; i < 3; i++)
        three[i] = get(NULL, stream, 20 * MIB);
    for (int i = 0; i < 3; i += 2) {
        work_on(stream, three[i], 20 * MIB, 1000000);
        OK(tarn_free(three[i]));
    }
    OK(tarn_device_limit_set(0, (size_t)stats_of(0).reserved_bytes[0].current));
    atomic_store(&stage, 1);
    char *block = get(NULL, stream, 40 * MIB);
    CHECK(atomic_load(&stage) == 2);
    OK(tarn_host_advance(time_now() + 10000000));
    for (size_t at = 0; at < 40 * MIB; at += 2 * MIB)
        OK(tarn_host_fill(1, native_of(far), block + at, 1, 4096));
    OK(tarn_observer_remove(id));
}

static struct driver hooked;
static void *native;
static tarn_stream adopted;
static struct stream *slot;

static void *end_stream(void *unused)
{
    OK(tarn_stream_retire(adopted));
    OK(driver_host.stream_destroy(0, native));
    return unused;
}

/* Whether another thread could retire the stream now. */
static bool could_be_retired(void)
{
    mutex *const locks[] = {&slot->lock, &device_at(0)->record_lock};
    bool all = true;
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
        bool one = mutex_try(locks[i]);
        if (one)
            mutex_unlock(locks[i]);
        all = all && one;
    }
    return all;
}

static tarn_status capture_status(int device, driver_stream asked, struct driver_capture *capture)
{
    int first = 1;
    if (asked == (driver_stream)native && could_be_retired() &&
        atomic_compare_exchange_strong(&stage, &first, 2))
        join(run(end_stream));
    return driver_host.capture_status(device, asked, capture);
}

/* The driver is asked about a stream only while nobody can retire and destroy it. */
static void a_compaction_asks_about_no_stream_that_may_end(void)
{
    host_start_with(1, MEMORY);
    OK(tarn_free(get(NULL, TARN_STREAM_LEGACY, 1)));
    native = native_made(0);
    OK(tarn_stream_adopt(0, native, &adopted));
    OK(stream_find(adopted, 0, &slot));
    OK(tarn_free(get(NULL, adopted, 3 * MIB)));
    hooked = *driver;
    hooked.capture_status = capture_status;
    driver = &hooked;
    atomic_store(&stage, 1);
    size_t gained = 0;
    OK(tarn_compact(0, SIZE_MAX, &gained));
    driver = &driver_host;
    CHECK(atomic_load(&stage) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_restore_waits_for_memory_that_goes_back),
        CHILD_TEST(a_hold_waits_for_a_compaction),
        CHILD_TEST(no_helper_gives_what_a_graph_uses),
        CHILD_TEST(a_small_request_sees_a_suspend),
        CHILD_TEST(an_anchor_sees_a_suspend),
        CHILD_TEST(a_peer_that_is_enabled_during_a_growth_reaches_all_of_it),
        CHILD_TEST(a_compaction_asks_about_no_stream_that_may_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
