/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The driver's side of pinned memory: where segments come from, what is tried when the driver or
 * the limit refuses one, and how they go back. No lock is held over the driver's calls or over a
 * wait. A growth first reserves its bytes in the limit (`growing`), and a segment that goes back
 * has left its pool before. If a request fails while other threads move memory, or free a block
 * that waits, it waits for them and tries again, since they may have held the missing memory.
 *
 * Registered memory comes from mmap() and is hidden from children of fork(). A page that a child
 * shared would be copied at the next write, away from the device. */
#include "base/log.h"
#include "base/machine.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/clock.h"
#include "base/thread/thread.h"
#include "memory/pinned/heap.h"
#include "memory/settings/hooks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MOST_CLIMBS 16 /* per request, while other threads move memory */

/* ---- Memory from the driver ---- */

struct touch {
    volatile char *memory;
    size_t size; /* bytes */
    pthread_t thread;
};

static void *touch_pages(void *argument)
{
    const struct touch *touch = argument;
    for (size_t at = 0; at < touch->size; at += PINNED_PAGE)
        touch->memory[at] = 0;
    return NULL;
}

/* Touches all pages, because registering them would touch one at a time. The caller does the part
 * of each thread that cannot be created. */
static void touch_all(struct touch whole, unsigned threads)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct touch touches[PINNED_THREADS];
    size_t size = whole.size, part = (size / threads + PINNED_PAGE - 1) & ~(PINNED_PAGE - 1);
    unsigned made = 0;
    whole.size = size < part ? size : part; /* the caller's own part is the first one */
    for (size_t at = whole.size; at < size;) {
        struct touch *touch = &touches[made];
        *touch = (struct touch){.memory = whole.memory + at,
                                .size = size - at < part ? size - at : part};
        if (!thread_start(&touch->thread, touch_pages, touch)) {
            touch->size = size - at;
            touch_pages(touch);
            break;
        }
        made++;
        at += touch->size;
    }
    touch_pages(&whole);
    for (unsigned i = 0; i < made; i++)
        pthread_join(touches[i].thread, NULL);
}

static tarn_status source_register(struct pinned_segment *segment, unsigned threads)
{
    void *memory =
        mmap(NULL, segment->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return failed(TARN_ERROR_OUT_OF_MEMORY, "mmap of %zu bytes to be pinned: %s", segment->size,
                      strerror(errno));
    (void)madvise(memory, segment->size, MADV_DONTFORK);
    touch_all((struct touch){.memory = memory, .size = segment->size}, threads);
    tarn_status status = driver->host_register(segment->device, (uintptr_t)memory, segment->size);
    if (status)
        munmap(memory, segment->size);
    else
        segment->address = (uintptr_t)memory;
    return status;
}

static tarn_status source_give_back(const struct pinned_segment *segment)
{
    if (!segment->registered)
        return driver->host_free(segment->device, segment->address);
    tarn_status status = driver->host_unregister(segment->device, segment->address);
    if (!status)
        munmap((void *)segment->address, segment->size);
    return status;
}

static bool is_lost(int device)
{
    return atomic_load_explicit(&device_at(device)->lost, memory_order_relaxed);
}

/* The thread's current device if it is in use, otherwise any that is, but no lost one. So pinned
 * memory, which belongs to no device, creates no context. */
static int choose_device(void)
{
    int wanted = thread_device();
    bool active = false;
    if (!is_lost(wanted) && (driver->is_active(wanted, &active) || active))
        return wanted;
    for (int i = 0; i < device_count(); i++)
        if (!is_lost(i) && !driver->is_active(i, &active) && active)
            return i;
    return wanted;
}

static void duration_add(tarn_pinned_duration *duration, int64_t ns)
{
    duration->total += ns;
    if (ns > duration->max)
        duration->max = ns;
    if (ns < duration->min || duration->count == 0)
        duration->min = ns;
    duration->count++;
    duration->avg = duration->total / duration->count;
}

/* ---- Moves ---- */

void pinned_move_begin_locked(void)
{
    pinned.moving++;
}

void pinned_move_end_locked(void)
{
    pinned.moving--;
    pinned.moves++;
    pthread_cond_broadcast(&pinned.moved);
}

/* Whether a move has ended since their number was `moves`, or segments are about to leave. If moves
 * are in progress, first waits for one. */
static bool moved_since(uint64_t moves)
{
    mutex_lock(&pinned.lock);
    while (pinned.moving > 0 && pinned.moves == moves)
        (void)condition_wait(&pinned.moved, &pinned.lock, NULL);
    bool moved = pinned.moves != moves || pinned.leaving;
    mutex_unlock(&pinned.lock);
    return moved;
}

/* ---- Growth ---- */

static size_t limit_now(void)
{
    mutex_lock(&pinned.lock);
    size_t limit = pinned.limit;
    mutex_unlock(&pinned.lock);
    return limit;
}

/* Reserves the bytes in the limit. */
static tarn_status growth_begin(size_t size, struct pinned_settings *settings)
{
    mutex_lock(&pinned.lock);
    size_t taken = (size_t)pinned.stats.allocated_bytes.current + pinned.growing,
           limit = pinned.limit;
    bool fits = taken <= limit && size <= limit - taken;
    if (fits) {
        pinned.growing += size;
        pinned_move_begin_locked();
    }
    *settings = pinned.settings;
    mutex_unlock(&pinned.lock);
    return fits ? TARN_OK
                : failed(TARN_ERROR_OUT_OF_MEMORY,
                         "%zu more bytes beside the %zu allocated exceed the limit of %zu", size,
                         taken, limit);
}

static void growth_end_locked(struct pinned_segment *segment, struct pinned_pool *pool, int64_t ns)
{
    unsigned bucket = segment->size > 1 ? 64u - (unsigned)__builtin_clzll(segment->size - 1) : 0;
    pinned_segment_enter_locked(segment, pool);
    stat_add(&pinned.stats.allocations, 1);
    stat_add(&pinned.stats.allocated_bytes, (int64_t)segment->size);
    pinned.stats.num_host_alloc++;
    pinned.stats.bucket_allocation[bucket]++;
    duration_add(&pinned.stats.host_alloc_time, ns);
}

/* A request that free memory does not serve. */
struct climb {
    const struct pinned_request *request;
    struct pinned_block *block; /* the result */
    uint64_t moves;             /* ended moves that the climb has seen, including its own */
};

/* Gets a segment's memory. On an integrated device pinned memory comes from the same memory as the
 * device's. Both then share one limit, unless a limit of pinned memory was set. */
static tarn_status source_take(struct pinned_segment *segment,
                               const struct pinned_settings *settings, bool is_limited)
{
    bool shares = device_at(segment->device)->properties.fills_machine;
    tarn_status status = shares ? machine_claim(segment->size, is_limited) : TARN_OK;
    if (!status && settings->use_register)
        status = source_register(segment, settings->register_threads);
    else if (!status)
        status = driver->host_alloc(segment->device, segment->size, &segment->address);
    if (shares)
        machine_claim_end(segment->size);
    return status;
}

/* Gets a segment from the driver, and serves the request from it. TARN_ERROR_NO_ROOM if the segment
 * is too small for it. */
static tarn_status grow(struct climb *climb, enum pinned_zone zone, size_t size)
{
    struct pinned_settings settings;
    struct pinned_segment *segment = pinned_segment_create();
    if (!segment)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = growth_begin(size, &settings);
    if (status) {
        pinned_segment_destroy(segment);
        return status;
    }
    segment->size = size;
    segment->zone = (uint8_t)zone;
    segment->device = choose_device();
    segment->registered = settings.use_register;
    int64_t start = (int64_t)clock_ns();
    status = source_take(segment, &settings, limit_now() != SIZE_MAX);
    (void)device_note(device_at(segment->device), status);
    int64_t ns = (int64_t)clock_ns() - start;

    mutex_lock(&pinned.lock);
    pinned.growing -= size;
    if (!status) {
        if (zone == PINNED_ZONE_RESERVED &&
            settings.reserve_segment != pinned.settings.reserve_segment)
            segment->zone = PINNED_ZONE_LARGE; /* pinned_unreserve_locked() came too early for it */
        growth_end_locked(segment, climb->request->pool, ns);
        status = pinned_take_locked(climb->request, &climb->block);
    } else {
        pinned_segment_destroy(segment);
    }
    pinned_move_end_locked();
    climb->moves++;
    mutex_unlock(&pinned.lock);
    return status;
}

/* Allocates the reserved segment at the first growth of the default pool. Requests of other threads
 * grow without it meanwhile. If it cannot be allocated, it is not tried again until its size is set
 * anew. */
static tarn_status grow_reserved(struct climb *climb)
{
    mutex_lock(&pinned.lock);
    size_t size = (pinned.settings.reserve_segment + PINNED_PAGE - 1) & ~(PINNED_PAGE - 1);
    bool mine = size > 0 && !pinned.reserve_taken && climb->request->pool == &pinned.standard;
    pinned.reserve_taken |= mine;
    mutex_unlock(&pinned.lock);
    if (!mine)
        return TARN_ERROR_NO_ROOM;
    tarn_status status = grow(climb, PINNED_ZONE_RESERVED, size);
    if (status && status != TARN_ERROR_NO_ROOM)
        log_write(LOG_ERRORS, "pinned memory: a segment of %zu bytes cannot be reserved: %s", size,
                  tarn_last_error());
    return status == TARN_OK ? TARN_OK : TARN_ERROR_NO_ROOM;
}

/* Allocates a segment of the usual size; if there is no room for that, of the request's size. */
static tarn_status grow_usual(struct climb *climb)
{
    const struct pinned_request *request = climb->request;
    size_t exact = (request->size + PINNED_PAGE - 1) & ~(PINNED_PAGE - 1);
    if (request->zone == PINNED_ZONE_SMALL) {
        tarn_status status = grow(climb, request->zone, PINNED_SMALL_SEGMENT);
        if (status != TARN_ERROR_OUT_OF_MEMORY)
            return status;
    }
    return grow(climb, request->zone, exact);
}

/* ---- Giving back ---- */

/* Takes wholly free segments out of their pools until at most `keep` bytes would be left. Returns
 * the bytes taken. */
static size_t detach_free_locked(size_t keep, bool all)
{
    size_t taken = 0, left = (size_t)pinned.stats.allocated_bytes.current - pinned.leaving_bytes;
    for (struct tree_node *node = tree_first(&pinned.segments), *next; node && left - taken > keep;
         node = next) {
        struct pinned_segment *segment = TREE_ENTRY(node, struct pinned_segment, by_address);
        next = tree_next(node);
        if (segment->used || (segment->zone == PINNED_ZONE_RESERVED && !all))
            continue;
        taken += segment->size;
        pinned_segment_leave_locked(segment);
    }
    return taken;
}

/* Gives one segment back to the driver. */
static tarn_status give_back(struct pinned_segment *segment)
{
    int64_t start = (int64_t)clock_ns();
    tarn_status status = device_note(device_at(segment->device), source_give_back(segment));
    int64_t ns = (int64_t)clock_ns() - start;
    mutex_lock(&pinned.lock);
    pinned.leaving_bytes -= segment->size;
    if (status) { /* its pool may have ended meanwhile */
        pinned_segment_enter_locked(segment, &pinned.standard);
    } else {
        stat_add(&pinned.stats.allocations, -1);
        stat_add(&pinned.stats.allocated_bytes, -(int64_t)segment->size);
        pinned.stats.num_host_free++;
        duration_add(&pinned.stats.host_free_time, ns);
        pinned_segment_destroy(segment);
    }
    pinned_move_end_locked();
    mutex_unlock(&pinned.lock);
    return status;
}

tarn_status pinned_settle(uint64_t *moves)
{
    tarn_status first = TARN_OK;
    for (;;) {
        mutex_lock(&pinned.lock);
        struct pinned_segment *segment = pinned.leaving;
        if (segment) {
            pinned.leaving = segment->next;
            pinned_move_begin_locked();
        }
        mutex_unlock(&pinned.lock);
        if (!segment)
            return first;
        tarn_status status = give_back(segment);
        first = first ? first : status;
        if (moves)
            ++*moves;
    }
}

/* Waits for segments that other threads are giving back. */
static void returns_wait(void)
{
    mutex_lock(&pinned.lock);
    while (pinned.leaving_bytes > 0 && !pinned.leaving)
        (void)condition_wait(&pinned.moved, &pinned.lock, NULL);
    mutex_unlock(&pinned.lock);
}

tarn_status pinned_trim(size_t keep, bool all)
{
    tarn_status first = TARN_OK;
    for (bool waits = true; waits;) {
        mutex_lock(&pinned.lock);
        pinned_collect_locked();
        (void)detach_free_locked(keep, all);
        size_t left = (size_t)pinned.stats.allocated_bytes.current - pinned.leaving_bytes;
        struct mark *marks[MARKS_MOST];
        size_t count = left > keep ? pinned_marks_locked(marks) : 0;
        mutex_unlock(&pinned.lock);
        tarn_status status = pinned_settle(NULL);
        first = first ? first : status;
        status = count ? marks_wait_any(marks, count, UNTIL_ENDED) : TARN_OK;
        waits = count && (status == TARN_OK || status == TARN_ERROR_DEVICE_LOST);
        first = first || waits ? first : status;
        while (count)
            mark_release(marks[--count]);
    }
    returns_wait();
    return first;
}

/* ---- The climb ---- */

/* Tries free memory, after freeing blocks whose work has ended. */
static tarn_status search(struct climb *climb)
{
    mutex_lock(&pinned.lock);
    pinned_collect_locked();
    tarn_status status = pinned_take_locked(climb->request, &climb->block);
    mutex_unlock(&pinned.lock);
    (void)pinned_settle(&climb->moves);
    return status;
}

/* Gives all wholly free segments back and grows again. TARN_ERROR_NO_ROOM if there were none. */
static tarn_status swap(struct climb *climb)
{
    mutex_lock(&pinned.lock);
    size_t taken = detach_free_locked(0, false);
    mutex_unlock(&pinned.lock);
    (void)pinned_settle(&climb->moves);
    return taken ? grow_usual(climb) : TARN_ERROR_NO_ROOM;
}

/* Waits until some work has ended that a block waits for. False if there is none, or the wait
 * fails. */
static bool wait_one(void)
{
    struct mark *marks[MARKS_MOST];
    mutex_lock(&pinned.lock);
    size_t count = pinned_marks_locked(marks);
    mutex_unlock(&pinned.lock);
    tarn_status status = count ? marks_wait_any(marks, count, UNTIL_ENDED) : TARN_ERROR_NO_ROOM;
    while (count)
        mark_release(marks[--count]);
    return status == TARN_OK || status == TARN_ERROR_DEVICE_LOST;
}

/* Whether a step has ended the climb: it served the request, or failed for another reason than lack
 * of memory. */
static bool decides(tarn_status status)
{
    return status != TARN_ERROR_NO_ROOM && status != TARN_ERROR_OUT_OF_MEMORY;
}

static tarn_status climb_once(struct climb *climb)
{
    tarn_status status = search(climb);
    if (status == TARN_ERROR_NO_ROOM && climb->request->size > limit_now())
        return failed(TARN_ERROR_OUT_OF_MEMORY,
                      "the limit alone is below that, so nothing was given back for it");
    if (!decides(status))
        status = grow_reserved(climb);
    if (!decides(status))
        status = grow_usual(climb);
    if (decides(status))
        return status;
    mutex_lock(&pinned.lock);
    pinned.stats.num_alloc_retries++;
    mutex_unlock(&pinned.lock);
    struct error_before refusal;
    tarn_status full = status;
    do {
        /* The refusal of the driver or the limit stays the last error. */
        error_attempt_begin(&refusal);
        hooks.collect_pools();
        status = search(climb);
        if (!decides(status))
            status = swap(climb);
        if (!decides(status) && !wait_one())
            status = TARN_ERROR_BUSY;
        error_attempt_end(&refusal,
                          decides(status) && status != TARN_ERROR_BUSY ? status : TARN_OK);
    } while (!decides(status));
    return status == TARN_ERROR_BUSY ? full : status;
}

static tarn_status refuse(const struct pinned_request *request)
{
    mutex_lock(&pinned.lock);
    pinned.stats.num_ooms++;
    const tarn_pinned_stats held = pinned.stats;
    size_t limit = pinned.limit;
    mutex_unlock(&pinned.lock);
    int64_t live = held.active_bytes.current - held.pending_bytes - held.graph_bytes;
    char text[32] = "none";
    if (limit != SIZE_MAX)
        snprintf(text, sizeof text, "%zu", limit);
    return failed_within(
        TARN_ERROR_OUT_OF_MEMORY,
        "pinned memory: no room for %zu bytes; limit %s; allocated %lld bytes in %lld segments, of "
        "which live %lld, pending %lld, freed but of graphs %lld, free between them %lld. Free "
        "blocks, "
        "raise the limit by "
        "tarn_pinned_limit_set(), or the machine's limit of locked memory (ulimit -l)",
        request->requested, text, (long long)held.allocated_bytes.current,
        (long long)held.allocations.current, (long long)live, (long long)held.pending_bytes,
        (long long)held.graph_bytes,
        (long long)(held.allocated_bytes.current - held.active_bytes.current));
}

tarn_status pinned_climb(const struct pinned_request *request, struct pinned_block **block)
{
    struct climb climb = {.request = request};
    struct error_before before;
    tarn_status status;
    int climbs = 0;
    error_attempt_begin(&before);
    do {
        mutex_lock(&pinned.lock);
        climb.moves = pinned.moves;
        mutex_unlock(&pinned.lock);
        status = climb_once(&climb);
    } while (status == TARN_ERROR_OUT_OF_MEMORY && ++climbs < MOST_CLIMBS &&
             moved_since(climb.moves));
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        status = refuse(request);
    error_attempt_end(&before, status);
    if (!status)
        *block = climb.block;
    return status;
}
