/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Gives idle memory back by itself. Owns the thread that does it. The thread goes the way of a trim
 * (trim.c), for memory that has rested (heap/idle/rest.h): it queries events, unmaps and releases.
 * It records no mark (marks_bar()) and waits for nothing. So where another thread moves memory, or
 * a capture is known, it comes back later. A mark that it would need is recorded by a thread of the
 * program: by its next public call on memory, or its next request, which leaves the fast path for
 * that. */
#include "memory/pressure/release.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "base/thread/process.h"
#include "base/thread/thread.h"
#include "device/capture.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/growth.h"
#include "memory/heap/idle/wait.h"
#include "memory/pool/pool.h"
#include "memory/range/range.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

static struct {
    mutex lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool begun; /* memory is used, so the devices are known */
    bool runs, ends;
    uint64_t of_pools; /* ns: the shortest time of a pool; 0: no pool has one */
} releaser = {.lock = MUTEX_INITIALIZER(LOCK_RELEASE)};

static atomic_uint wishes; /* passes that wanted marks */

/* One heap ------------------------------------------------------------------------------------- */

/* Bytes of a store that stay if `given` of its unmapped pieces go. */
static size_t rest_of(struct store *store, size_t given)
{
    mutex_lock(&store->arena->lock);
    size_t reserved = store->reserved;
    mutex_unlock(&store->arena->lock);
    return reserved > given ? reserved - given : 0;
}

/* If a look is due: takes it, and returns the last batch that has rested; otherwise 0. */
static uint64_t look(struct heap *heap, const struct store *store, uint64_t now, uint64_t time)
{
    uint64_t rested = 0;
    mutex_lock(&heap->lock);
    if (heap->store == store && now - heap->rest.looked >= time) {
        heap->rest.looked = now;
        rested = heap_rest_locked(heap);
    }
    mutex_unlock(&heap->lock);
    return rested;
}

/* Whether marks are wanted. The caller shares `moving`, so the store stays. */
static bool release_of(struct heap *heap, uint64_t now)
{
    struct store *store = heap_store(heap);
    uint64_t time = store_rests(store), rested = time ? look(heap, store, now, time) : 0;
    size_t given = 0;
    if (!rested)
        return false;
    (void)heap_shed_rested(heap, store, rested, &given);
    if (given)
        (void)store_release_unmapped(store, rest_of(store, given));
    mutex_lock(&heap->lock);
    bool wanted = heap->store == store && heap_rest_wants_mark_locked(heap, rested);
    mutex_unlock(&heap->lock);
    return wanted;
}

/* Stores --------------------------------------------------------------------------------------- */

/* The shorter of two times; 0 is none. */
static uint64_t shorter(uint64_t one, uint64_t other)
{
    return one && (!other || one < other) ? one : other;
}

/* The next store of the arena; NULL starts and ends. The caller shares `moving`, so none leaves the
 * list. */
static struct store *next_store(struct arena *arena, const struct store *store)
{
    if (!store)
        return &arena->store;
    if (store == &arena->store)
        return &arena->uncached;
    mutex_lock(&arena->lock);
    struct store *next = store == &arena->uncached ? arena->pools.list : store->lists.next;
    mutex_unlock(&arena->lock);
    return next;
}

/* For how long, in ns, a store has had the same unmapped pieces, as far as passes have seen. */
static uint64_t still_for(struct store *store, uint64_t now)
{
    mutex_lock(&store->arena->lock);
    uint64_t changes = store->owned.changes;
    mutex_unlock(&store->arena->lock);
    if (changes != store->still.changes) {
        store->still.changes = changes;
        store->still.from = now;
    }
    return now - store->still.from;
}

/* Pieces that nobody has mapped are idle. They go when none of their store's has come or gone for
 * the time. The caller shares `moving`. */
static void release_unmapped(struct arena *arena, uint64_t now)
{
    for (struct store *store = next_store(arena, NULL); store; store = next_store(arena, store)) {
        uint64_t time = store_rests(store), still = still_for(store, now);
        if (time && still >= time)
            (void)store_release_unmapped(store, 0);
    }
}

/* Whether a pool has ended and has no memory. It stays in the list until a call removes it, which
 * may be none. */
static bool is_over(struct store *store)
{
    const struct pool *pool = pool_of_store(store);
    return pool && !atomic_load(&pool->count) && !rest_of(store, 0);
}

/* The shortest time of a pool, in ns; 0: none. The caller shares `moving`. */
static uint64_t time_of_pools(struct arena *arena)
{
    uint64_t shortest = 0;
    for (struct store *store = next_store(arena, NULL); store; store = next_store(arena, store))
        if (store->idle_release && !is_over(store))
            shortest = shorter(shortest, store_idle_release(store));
    return shortest;
}

/* A pass --------------------------------------------------------------------------------------- */

struct pass {
    uint64_t now; /* ns */
    bool wants_marks;
    bool is_whole;     /* it has seen all pools */
    uint64_t of_pools; /* ns: the shortest time of a pool; 0: none */
};

/* One pass over the arena's heaps. Each heap is a separate move, so that a thread that wants
 * `moving` alone waits for one heap at most. False: such a thread waits now. */
static bool pass_over(struct arena *arena, struct pass *pass)
{
    if (device_check(arena->device))
        return true;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        if (!move_try(arena))
            return false;
        pass->wants_marks |= release_of(heap, pass->now);
        move_end(arena);
    }
    if (!move_try(arena))
        return false;
    pass->wants_marks |= ranges_rest(arena, pass->now);
    release_unmapped(arena, pass->now);
    pass->of_pools = shorter(pass->of_pools, time_of_pools(arena));
    move_end(arena);
    return true;
}

static void pass_over_all(struct pass *pass)
{
    struct error_before before;
    error_attempt_begin(&before);
    marks_bar(true);
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (arena)
            pass->is_whole &= pass_over(arena, pass);
    }
    marks_bar(false);
    error_attempt_end(&before, TARN_OK);
    if (pass->wants_marks) {
        atomic_fetch_add(&wishes, 1);
        atomic_store(&memory_wants_marks, true);
        process_changed();
    }
}

/* Also finds the shortest `idle_release` of all pools, for the time of the next pass. */
void release_pass(uint64_t now)
{
    struct pass pass = {.now = now, .is_whole = true};
    if (captures_open_anywhere() || atomic_load(&process_state) != PROCESS_RUNS)
        return;
    mutex_lock(&releaser.lock);
    uint64_t before = releaser.of_pools;
    releaser.of_pools = 0; /* unless a pool is made meanwhile */
    mutex_unlock(&releaser.lock);
    pass_over_all(&pass);
    mutex_lock(&releaser.lock);
    releaser.of_pools = shorter(releaser.of_pools, pass.is_whole ? pass.of_pools : before);
    mutex_unlock(&releaser.lock);
}

/* Records the marks that the calling thread can. False: some are wanted still. */
static bool record_marks(void)
{
    bool all = true;
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (!arena || device_check(arena->device))
            continue;
        for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap))
            all &= heap_rest_mark(heap);
        all &= ranges_rest_mark(arena);
    }
    return all;
}

/* Does nothing in a `mapped` or `unmapping` callback, while a known capture is open anywhere, while
 * another thread records, and if this thread has recorded since the last pass that wanted marks.
 * What this thread cannot record is left to the next one: the mark of a heap whose stream is
 * another thread's default stream, and those of ranges if `moving` cannot be shared at once. */
void release_mark(void)
{
    struct error_before before;
    unsigned wish = atomic_load(&wishes);
    if (observe_runs_moving() || captures_open_anywhere() ||
        (thread_here && thread_here->wish == wish) || !atomic_exchange(&memory_wants_marks, false))
        return;
    error_attempt_begin(&before);
    struct thread *thread = thread_self();
    if (thread)
        thread->wish = wish;
    if (!record_marks())
        atomic_store(&memory_wants_marks, true);
    error_attempt_end(&before, TARN_OK);
}

/* The thread ----------------------------------------------------------------------------------- */

/* ns between two passes: the shortest time of all; 0: none. */
static uint64_t period_locked(void)
{
    return shorter(memory_config()->idle_release * NS_PER_MS, releaser.of_pools);
}

static void sleep_relocking(void)
{
    uint64_t period = period_locked(), until = clock_after(period);
    struct timespec time = {.tv_sec = (time_t)(until / NS_PER_S),
                            .tv_nsec = (long)(until % NS_PER_S)};
    (void)condition_wait(&releaser.wake, &releaser.lock, period ? &time : NULL);
}

static void *run(void *argument)
{
    mutex_lock(&releaser.lock);
    while (!releaser.ends) {
        sleep_relocking();
        if (releaser.ends)
            break;
        mutex_unlock(&releaser.lock);
        release_pass(clock_ns());
        mutex_lock(&releaser.lock);
    }
    mutex_unlock(&releaser.lock);
    return argument;
}

static bool start_locked(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&releaser.wake, &attributes);
    pthread_condattr_destroy(&attributes);
    releaser.runs = thread_start(&releaser.thread, run, NULL);
    if (!releaser.runs)
        pthread_cond_destroy(&releaser.wake);
    return releaser.runs;
}

/* Starts the thread once a time is set, or tells it of another time. */
static void adapt_locked(void)
{
    if (releaser.runs)
        pthread_cond_signal(&releaser.wake);
    else if (releaser.begun && period_locked() && !releaser.ends && !start_locked())
        log_write(LOG_ERRORS, "idle_release: the system has no thread left, so idle memory stays");
}

void release_start(void)
{
    mutex_lock(&releaser.lock);
    releaser.begun = true;
    adapt_locked();
    mutex_unlock(&releaser.lock);
}

void release_configure(void)
{
    mutex_lock(&releaser.lock);
    adapt_locked();
    mutex_unlock(&releaser.lock);
}

void release_begin(const struct store *store)
{
    uint64_t time = store->idle_release ? store_idle_release(store) : 0;
    if (!time)
        return;
    mutex_lock(&releaser.lock);
    if (shorter(time, releaser.of_pools) != releaser.of_pools) {
        releaser.of_pools = time;
        adapt_locked();
    }
    mutex_unlock(&releaser.lock);
}

void release_end(void)
{
    mutex_lock(&releaser.lock);
    bool runs = releaser.runs;
    releaser.ends = true;
    if (runs)
        pthread_cond_signal(&releaser.wake);
    mutex_unlock(&releaser.lock);
    if (runs)
        pthread_join(releaser.thread, NULL);
}
