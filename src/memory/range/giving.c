/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What others need of ranges: trims, the ladder, suspends, debug mode, peers and the shutdown. Owns
 * nothing. Takes one range's lock at a time. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/range/range.h"

/* Whether a walk for a store, or with NULL for the default pool, comes to a range. */
static bool is_of(const struct tarn_range *range, struct store *store)
{
    return store ? range->store == store : store_serves(range->store, &range->store->arena->store);
}

/* Unmaps up to `wanted` bytes of idle pages, which are then unmapped pieces of the store. */
static tarn_status give(struct tarn_range *range, size_t wanted, size_t *given)
{
    struct piece_list pieces = {0};
    mutex_lock(&range->lock);
    orders_begin_locked(range);
    tarn_status first = range_end_left_locked(range);
    tarn_status status = range_collect_locked(range, wanted, &pieces);
    mutex_unlock(&range->lock);
    *given = pieces.bytes;
    pieces_to_unmapped(range->store->arena, &pieces);
    return first ? first : status;
}

tarn_status ranges_trim(struct arena *arena, struct store *store, size_t wanted)
{
    tarn_status first = TARN_OK;
    size_t given = 0;
    for (struct tarn_range *range = range_next(arena, NULL); range && wanted;
         range = range_next(arena, range)) {
        if (!is_of(range, store))
            continue;
        tarn_status status = give(range, wanted, &given);
        first = first ? first : status;
        wanted -= given < wanted ? given : wanted;
    }
    return first;
}

/* Gives pieces back to the driver, because memory of one pool serves no other. */
static size_t release(struct piece_list *pieces)
{
    size_t released = 0;
    struct piece *piece;
    while ((piece = pieces_pop(pieces))) {
        size_t size = piece->size;
        released += piece_release(piece) ? 0 : size;
    }
    return released;
}

size_t ranges_relieve(struct arena *arena, size_t wanted, uint64_t until)
{
    struct error_before before;
    size_t released = 0;
    if (!ranges_any() || !move_begin_by(arena, until))
        return 0;
    error_attempt_begin(&before);
    for (struct tarn_range *range = range_next(arena, NULL); range && released < wanted;
         range = range_next(arena, range)) {
        struct piece_list pieces = {0};
        mutex_lock(&range->lock);
        orders_begin_locked(range);
        (void)range_end_left_locked(range);
        (void)range_collect_locked(range, wanted - released, &pieces);
        mutex_unlock(&range->lock);
        released += release(&pieces);
    }
    move_end(arena);
    error_attempt_end(&before, TARN_OK);
    return released;
}

/* Rest ----------------------------------------------------------------------------------------- */

/* The next page behind `page`, which is decommitted and has rested; NULL starts and ends. */
static struct page *next_rested_locked(struct tarn_range *range, uint64_t until,
                                       const struct page *page)
{
    for (size_t i = page ? page->index + 1 : 0; i < range->pages; i++) {
        struct chunk *chunk = range_chunk(range, i);
        if (!chunk || !atomic_load(&chunk->some)) {
            i = i / CHUNK_PAGES * CHUNK_PAGES + CHUNK_PAGES - 1;
            continue;
        }
        struct page *at = &chunk->pages[i % CHUNK_PAGES];
        if (word_state(atomic_load(&at->word)) == PAGE_DECOMMITTED &&
            atomic_load(&at->epoch) <= until)
            return at;
    }
    return NULL;
}

/* A look: ends the epoch without a mark, as a later mark covers it too. */
static void rest_locked(struct tarn_range *range, struct piece_list *pieces)
{
    range->rest.until = range->rest.epoch;
    range->rest.epoch = atomic_fetch_add(&range->epoch, 1);
    range->rest.wants_mark = false;
    if (!range->rest.until)
        return;
    orders_begin_locked(range);
    (void)range_end_left_locked(range);
    (void)range_collect_locked(range, SIZE_MAX, pieces);
    struct page *page = NULL;
    while ((page = next_rested_locked(range, range->rest.until, page)) && !range->rest.wants_mark)
        range->rest.wants_mark = page_wants_mark_locked(range, page);
    range->rest.until = 0;
}

bool ranges_rest(struct arena *arena, uint64_t now)
{
    bool wanted = false;
    if (!ranges_any())
        return false;
    for (struct tarn_range *range = range_next(arena, NULL); range;
         range = range_next(arena, range)) {
        struct piece_list pieces = {0};
        uint64_t time = store_rests(range->store);
        if (!time)
            continue;
        mutex_lock(&range->lock);
        if (now - range->rest.looked >= time) {
            range->rest.looked = now;
            rest_locked(range, &pieces);
            wanted = wanted || range->rest.wants_mark;
        }
        mutex_unlock(&range->lock);
        (void)release(&pieces);
    }
    return wanted;
}

static void mark_rested_locked(struct tarn_range *range)
{
    range->rest.wants_mark = false;
    orders_begin_locked(range);
    for (struct page *page = next_rested_locked(range, range->rest.epoch, NULL); page;
         page = next_rested_locked(range, range->rest.epoch, page))
        (void)page_is_idle_locked(range, page);
}

bool ranges_rest_mark(struct arena *arena)
{
    if (!ranges_any())
        return true;
    if (!move_try(arena))
        return false;
    for (struct tarn_range *range = range_next(arena, NULL); range;
         range = range_next(arena, range)) {
        mutex_lock(&range->lock);
        if (range->rest.wants_mark)
            mark_rested_locked(range);
        mutex_unlock(&range->lock);
    }
    move_end(arena);
    return true;
}

/* Waits ---------------------------------------------------------------------------------------- */

/* The mark that a page waits for. NULL: it is `idle` now, or no wait helps, because its stream
 * captures or no mark can be recorded. */
static struct mark *mark_awaited_locked(struct tarn_range *range, struct page *page, bool *idle)
{
    struct mark *mark = NULL;
    if (page_mark_locked(range, page, &mark))
        return NULL;
    *idle = !mark;
    return mark;
}

/* The mark of the first page that has to be waited for; NULL if there is none, or if a page comes
 * first that is idle now. */
static struct mark *first_mark_locked(struct tarn_range *range, bool *idle)
{
    struct mark *mark = NULL;
    orders_begin_locked(range);
    for (struct page *page = range->left; page && !mark && !*idle; page = page->link)
        mark = mark_awaited_locked(range, page, idle);
    for (size_t at = 0; at < range->chunk_count && !mark && !*idle; at++) {
        struct chunk *chunk = atomic_load_explicit(&range->chunks[at], memory_order_acquire);
        for (size_t i = 0; chunk && i < CHUNK_PAGES && !mark && !*idle; i++) {
            struct page *page = &chunk->pages[i];
            if (word_state(atomic_load(&page->word)) == PAGE_DECOMMITTED)
                mark = mark_awaited_locked(range, page, idle);
        }
    }
    return mark;
}

static void wait_add(struct wait_any *any, struct tarn_range *range)
{
    struct error_before before;
    bool idle = false;
    if (any->ended)
        return;
    error_attempt_begin(&before);
    mutex_lock(&range->lock);
    struct mark *mark = first_mark_locked(range, &idle);
    mutex_unlock(&range->lock);
    error_attempt_end(&before, TARN_OK);
    any->ended = idle;
    if (mark)
        wait_any_add_mark(any, mark);
    mark_release(mark);
}

void ranges_wait_add(struct wait_any *any, struct arena *arena, struct store *store, bool all,
                     uint64_t until)
{
    if (!ranges_any() || !move_begin_by(arena, until))
        return;
    for (struct tarn_range *range = range_next(arena, NULL); range;
         range = range_next(arena, range))
        if (all || is_of(range, store))
            wait_add(any, range);
    move_end(arena);
}

size_t ranges_waits(struct arena *arena, uint64_t until)
{
    size_t waits = 0;
    if (!ranges_any() || !move_begin_by(arena, until))
        return 0;
    for (struct tarn_range *range = range_next(arena, NULL); range;
         range = range_next(arena, range)) {
        mutex_lock(&range->lock);
        waits += 4;
        for (const struct order *order = range->orders; order; order = order->next)
            waits += 4;
        mutex_unlock(&range->lock);
    }
    move_end(arena);
    return waits;
}

/* Suspends ------------------------------------------------------------------------------------- */

/* In bytes: pieces, each counted where it belongs; second mappings of them; committed pages. */
struct bytes {
    size_t pieces, seconds, committed;
};

static void add_bytes_locked(const struct tarn_range *range, struct bytes *bytes)
{
    for (size_t at = 0; at < range->chunk_count; at++) {
        struct chunk *chunk = atomic_load_explicit(&range->chunks[at], memory_order_acquire);
        for (size_t i = 0; chunk && i < CHUNK_PAGES; i++) {
            const struct page *page = &chunk->pages[i];
            if (page->piece && page->piece->address == page_address(range, page))
                bytes->pieces += range->page_size;
            else if (page->piece)
                bytes->seconds += range->page_size;
            if (word_state(atomic_load(&page->word)) == PAGE_COMMITTED)
                bytes->committed += range->page_size;
        }
    }
}

/* Of a store, or with NULL of a device. */
static struct bytes bytes_of(struct arena *arena, const struct store *store)
{
    struct bytes bytes = {0};
    if (!ranges_any())
        return bytes;
    move_begin(arena);
    for (struct tarn_range *range = range_next(arena, NULL); range;
         range = range_next(arena, range)) {
        if (store && range->store != store)
            continue;
        mutex_lock(&range->lock);
        add_bytes_locked(range, &bytes);
        mutex_unlock(&range->lock);
    }
    move_end(arena);
    return bytes;
}

size_t ranges_bytes(struct arena *arena, size_t *seconds)
{
    struct bytes bytes = bytes_of(arena, NULL);
    *seconds = bytes.seconds;
    return bytes.pieces;
}

/* The store is suspended already, so no page gets memory. */
tarn_status ranges_leave(struct store *store)
{
    struct arena *arena = store->arena;
    tarn_status status = TARN_OK;
    struct bytes bytes;
    if (!ranges_any())
        return TARN_OK;
    for (size_t waits = ranges_waits(arena, UNTIL_ENDED);; waits--) {
        move_begin(arena);
        status = ranges_trim(arena, store, SIZE_MAX);
        move_end(arena);
        struct wait_any any = {.count = 0};
        bytes = bytes_of(arena, store);
        if (status || !bytes.pieces || !waits)
            break;
        ranges_wait_add(&any, arena, store, false, UNTIL_ENDED);
        if (!wait_any(&any, arena, UNTIL_ENDED, &status) || status)
            break;
    }
    if (!status && bytes.pieces)
        status = device_check(arena->device);
    if (status || !bytes.pieces)
        return status;
    return failed(
        TARN_ERROR_BUSY,
        "%zu bytes of ranges of pool (%llu, %llu) are committed, or held back by a stream "
        "that captures: tarn_range_decommit() them before it is suspended",
        bytes.committed ? bytes.committed : bytes.pieces, (unsigned long long)store->id[0],
        (unsigned long long)store->id[1]);
}

bool ranges_have_memory(struct store *store)
{
    return bytes_of(store->arena, store).pieces != 0;
}

/* Others --------------------------------------------------------------------------------------- */

void range_settle(struct tarn_range *range)
{
    struct arena *arena = range->store->arena;
    struct error_before before;
    size_t given = 0;
    if (observe_runs_moving())
        return;
    error_attempt_begin(&before);
    move_begin(arena);
    (void)give(range, SIZE_MAX, &given);
    move_end(arena);
    error_attempt_end(&before, TARN_OK);
}

tarn_status ranges_grant(struct device *device, int peer)
{
    struct arena *arena = arena_if_used(device->number);
    tarn_status status = TARN_OK;
    if (!arena)
        return TARN_OK;
    shared_lock_alone(&arena->mapping);
    for (struct tarn_range *range = range_next(arena, NULL); range && !status;
         range = range_next(arena, range))
        status = range_grant(range, peer);
    shared_unlock(&arena->mapping);
    return status;
}

void ranges_finish(struct arena *arena)
{
    for (struct tarn_range *range = range_next(arena, NULL), *next; range; range = next) {
        struct bytes bytes = {0};
        next = range_next(arena, range);
        mutex_lock(&range->lock);
        add_bytes_locked(range, &bytes);
        mutex_unlock(&range->lock);
        if (!bytes.pieces && !bytes.seconds &&
            !driver->unreserve(arena->device->number, range->start,
                               range->pages * range->page_size))
            range_dispose(range);
    }
}
