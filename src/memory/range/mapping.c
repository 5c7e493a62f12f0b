/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the driver calls that map and unmap pages of ranges, and so which piece is mapped at which
 * page. Keeps: a page that is EMPTY has no piece; every other has one, except a TAKEN one that was
 * EMPTY. The piece is mapped there, with access for the device and its peers unless the page is
 * LEFT. `mapping` is shared over these calls, as in the arena (arena/mapping.c). */
#include "base/status.h"
#include "device/capture.h"
#include "memory/arena/generation.h"
#include "memory/arena/observe.h"
#include "memory/heap/traced.h"
#include "memory/range/range.h"

static struct arena *arena_of_range(const struct tarn_range *range)
{
    return range->store->arena;
}

static bool has_piece(const struct tarn_range *range, size_t page)
{
    const struct page *at = range_page(range, page);
    return at && at->piece;
}

static void trace(const struct tarn_range *range, enum trace_kind kind, uintptr_t address,
                  size_t size)
{
    if (trace_is_on())
        trace_event(kind, range->place, address, size, 0);
}

/* Observers ------------------------------------------------------------------------------------ */

/* Tells of pages [first, end), each stretch of one generation by itself. */
static void tell(const struct tarn_range *range, size_t first, size_t end, bool mapped)
{
    while (first < end) {
        struct page *page = range_known(range, first);
        tarn_mapping told = {.device = arena_of_range(range)->device->number,
                             .address = (void *)page_address(range, page),
                             .generation = page->generation};
        for (; first < end && range_known(range, first)->generation == told.generation; first++)
            told.bytes += range->page_size;
        if (mapped)
            observe_mapped(&told);
        else
            observe_unmapping(&told);
    }
}

static void begin_generation(const struct tarn_range *range, size_t first, size_t end)
{
    uint64_t generation = generation_next();
    for (size_t i = first; i < end; i++)
        range_known(range, i)->generation = generation;
    tell(range, first, end, true);
}

/* Mapping -------------------------------------------------------------------------------------- */

static tarn_status map(const struct tarn_range *range, struct page *page, struct piece *piece)
{
    struct device *device = arena_of_range(range)->device;
    tarn_status status = device_note(device, driver->map(device->number, page_address(range, page),
                                                         range->page_size, piece->handle));
    if (!status)
        page->piece = piece;
    return status;
}

static tarn_status unmap(const struct tarn_range *range, size_t first, size_t end)
{
    struct device *device = arena_of_range(range)->device;
    tarn_status status = device_check(device);
    return status ? status
                  : device_note(device, driver->unmap(device->number,
                                                      range->start + first * range->page_size,
                                                      (end - first) * range->page_size));
}

static tarn_status set_access(const struct tarn_range *range, size_t first, size_t end,
                              const int *devices, int count)
{
    struct device *device = arena_of_range(range)->device;
    return device_note(device,
                       driver->set_access(device->number, range->start + first * range->page_size,
                                          (end - first) * range->page_size, devices, count));
}

/* A page's piece is not mapped there any more: a piece that has another address stays with that. */
static void piece_leave(struct tarn_range *range, struct page *page, struct piece_list *pieces)
{
    struct piece *piece = page->piece;
    page->piece = NULL;
    if (piece->address != page_address(range, page)) {
        atomic_fetch_sub(&piece->seconds, 1);
        return;
    }
    piece->address = 0;
    pieces_push(pieces, piece);
}

/* A page is nobody's, and idle. */
static void leave(struct tarn_range *range, struct page *page, uint64_t word)
{
    page->link = range->left;
    range->left = page;
    atomic_store(&page->word, word_with(word, PAGE_LEFT));
}

/* Whether a page of a commit is to get memory. */
static bool is_wanting(const struct page *page)
{
    return word_state(page->before) == PAGE_EMPTY;
}

/* Undoes what map_shared() did, stretch by stretch. Pages that the driver refuses to unmap are
 * LEFT. The others are empty, and still taken. */
static void undo(struct tarn_range *range, size_t first, size_t end, struct piece_list *pieces)
{
    for (size_t from = first, to; from < end; from = to + 1) {
        for (to = from; to < end; to++)
            if (!is_wanting(range_known(range, to)) || !has_piece(range, to))
                break;
        bool stuck = to > from && unmap(range, from, to);
        for (size_t i = from; i < to; i++) {
            struct page *page = range_known(range, i), *alias = page->link;
            page->link = NULL;
            if (!stuck) {
                piece_leave(range, page, pieces);
            } else {
                atomic_store(&page->stream, NULL);
                leave(range, page, page->before);
            }
            if (alias)
                page_put_back(alias);
        }
    }
}

static tarn_status map_one(struct tarn_range *range, struct page *page, struct piece_list *pieces,
                           struct page **aliases)
{
    page->link = NULL;
    if (pieces->first) {
        tarn_status status = map(range, page, pieces->first);
        if (!status)
            pieces_pop(pieces)->address = page_address(range, page);
        return status;
    }
    struct page *from = *aliases;
    tarn_status status = map(range, page, from->piece);
    if (status)
        return status;
    *aliases = from->link;
    from->link = NULL;
    atomic_fetch_add(&from->piece->seconds, 1);
    page->link = from;
    return TARN_OK;
}

static tarn_status map_shared(struct tarn_range *range, size_t first, size_t end,
                              struct piece_list *pieces, struct page **aliases)
{
    int devices[TARN_MAX_DEVICES], count = peers_of(arena_of_range(range)->device, devices);
    tarn_status status = TARN_OK;
    size_t from = first;
    for (size_t i = first; i <= end && !status; i++) {
        bool wanting = i < end && is_wanting(range_known(range, i));
        if (!wanting && i > from)
            status = set_access(range, from, i, devices, count);
        if (!wanting)
            from = i + 1;
        else
            status = map_one(range, range_known(range, i), pieces, aliases);
    }
    return status;
}

/* The pages whose pieces are also mapped at [first, end) have lost them. */
static void leave_aliased(struct tarn_range *range, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        struct page *page = range_known(range, i), *from = page->link;
        if (!is_wanting(page) || !from)
            continue;
        page->link = NULL;
        page->piece->address = page_address(range, page);
        trace(range, TRACE_segment_unmap, page_address(range, from), range->page_size);
        leave(range, from, from->before);
    }
}

static bool is_left(const struct page *page)
{
    return page && word_state(atomic_load(&page->word)) == PAGE_LEFT;
}

/* Pages that undo() left mapped are a new mapping, since their end will be told. */
static void begin_stuck(const struct tarn_range *range, size_t first, size_t end)
{
    for (size_t from = first, to; from < end; from = to + 1) {
        for (to = from; to < end && is_left(range_known(range, to)); to++)
            ;
        if (to > from)
            begin_generation(range, from, to);
    }
}

tarn_status range_map_locked(struct tarn_range *range, size_t first, size_t end,
                             struct piece_list *pieces, struct page **aliases)
{
    struct arena *arena = arena_of_range(range);
    shared_lock_shared(&arena->mapping);
    tarn_status status = map_shared(range, first, end, pieces, aliases);
    if (status)
        undo(range, first, end, pieces);
    shared_unlock(&arena->mapping);
    if (status) {
        begin_stuck(range, first, end);
        pieces_to_unmapped(arena, pieces);
        return status;
    }
    leave_aliased(range, first, end);
    for (size_t from = first; from < end; from++) {
        size_t to = from;
        while (to < end && is_wanting(range_known(range, to)))
            to++;
        if (to == from)
            continue;
        trace(range, TRACE_segment_map, range->start + from * range->page_size,
              (to - from) * range->page_size);
        begin_generation(range, from, to);
        from = to;
    }
    return TARN_OK;
}

/* Unmapping ------------------------------------------------------------------------------------ */

/* After a failure the pages stay mapped, as a new mapping. */
static tarn_status unmap_run_locked(struct tarn_range *range, size_t first, size_t end,
                                    struct piece_list *pieces)
{
    struct arena *arena = arena_of_range(range);
    tell(range, first, end, false);
    shared_lock_shared(&arena->mapping);
    tarn_status status = unmap(range, first, end);
    for (size_t i = first; i < end && !status; i++)
        piece_leave(range, range_known(range, i), pieces);
    shared_unlock(&arena->mapping);
    if (status)
        begin_generation(range, first, end);
    return status;
}

tarn_status range_unmap_locked(struct tarn_range *range, size_t first, size_t end,
                               struct piece_list *pieces)
{
    tarn_status status = unmap_run_locked(range, first, end, pieces);
    if (!status)
        trace(range, TRACE_segment_unmap, range->start + first * range->page_size,
              (end - first) * range->page_size);
    return status;
}

void range_empty_locked(struct tarn_range *range, struct page *page)
{
    uint64_t word = atomic_load(&page->word);
    if (word_state(word) == PAGE_LEFT) {
        struct page **place = &range->left;
        while (*place != page)
            place = &(*place)->link;
        *place = page->link;
        page->link = NULL;
    }
    atomic_store(&page->word, word_with(word, PAGE_EMPTY));
}

/* True if a page can be unmapped together with the page beside it: it is LEFT and idle. */
static bool leaves_too_locked(struct tarn_range *range, size_t index)
{
    struct page *page = range_page(range, index);
    return is_left(page) && page_is_idle_locked(range, page);
}

/* Unmaps the run of idle LEFT pages around one of them. Their words become EMPTY; they stay in the
 * list. */
static tarn_status end_run_locked(struct tarn_range *range, size_t index, struct piece_list *pieces)
{
    size_t first = index, end = index + 1;
    while (first > 0 && leaves_too_locked(range, first - 1))
        first--;
    while (end < range->pages && leaves_too_locked(range, end))
        end++;
    tarn_status status = unmap_run_locked(range, first, end, pieces);
    for (size_t i = first; i < end && !status; i++) {
        struct page *page = range_known(range, i);
        atomic_store(&page->word, word_with(atomic_load(&page->word), PAGE_EMPTY));
    }
    return status;
}

tarn_status range_end_left_locked(struct tarn_range *range)
{
    struct piece_list pieces = {0};
    tarn_status first = TARN_OK;
    uint64_t refused = generation_next(); /* runs that the driver refuses now get later ones */
    for (struct page *page = range->left; page; page = page->link) {
        if (!is_left(page) || page->generation >= refused || !page_is_idle_locked(range, page))
            continue;
        tarn_status status = end_run_locked(range, page->index, &pieces);
        first = first ? first : status;
    }
    /* Last, since a run may have ended pages before its own in the list: they were busy then. */
    for (struct page **place = &range->left, *page; (page = *place);) {
        if (is_left(page)) {
            place = &page->link;
        } else {
            *place = page->link;
            page->link = NULL;
        }
    }
    pieces_to_unmapped(arena_of_range(range), &pieces);
    return first;
}

/* Takes a decommitted page that is idle and whose piece is mapped nowhere else. */
static bool take_idle_locked(struct tarn_range *range, struct page *page)
{
    uint64_t word = atomic_load(&page->word);
    if (range->rest.until && atomic_load(&page->epoch) > range->rest.until)
        return false;
    if (word_state(word) != PAGE_DECOMMITTED || atomic_load(&page->piece->seconds) ||
        !page_is_idle_locked(range, page) || !page_take(page, word))
        return false;
    if (page_is_idle_locked(range, page))
        return true; /* it was not committed and decommitted in between */
    page_put_back(page);
    return false;
}

/* Takes the page beside a run, if it is idle too. */
static bool take_beside_locked(struct tarn_range *range, size_t index)
{
    struct page *page = range_page(range, index);
    return page && take_idle_locked(range, page);
}

/* Unmaps up to `most` idle pages in a row around page `index`, which the caller has taken. Prefers
 * the pages after it to those before it. */
static tarn_status collect_run_locked(struct tarn_range *range, size_t index, size_t most,
                                      struct piece_list *pieces)
{
    size_t first = index, end = index + 1;
    while (end < range->pages && end - first < most && take_beside_locked(range, end))
        end++;
    while (first > 0 && end - first < most && take_beside_locked(range, first - 1))
        first--;
    tarn_status status = range_unmap_locked(range, first, end, pieces);
    for (size_t i = first; i < end; i++) {
        struct page *page = range_known(range, i);
        atomic_store(&page->word, status ? page->before : word_with(page->before, PAGE_EMPTY));
    }
    range->hand = end;
    return status;
}

/* Looks for idle pages in [from, to) of one chunk. */
static tarn_status collect_in_chunk_locked(struct tarn_range *range, struct chunk *chunk,
                                           size_t from, size_t to, size_t wanted,
                                           struct piece_list *pieces)
{
    if (!atomic_load(&chunk->some))
        return TARN_OK;
    atomic_store(&chunk->some, false); /* a decommit from here on sets it again */
    bool some = false;
    tarn_status status = TARN_OK;
    for (size_t i = 0; i < CHUNK_PAGES; i++) {
        struct page *page = &chunk->pages[i];
        bool inside = page->index >= from && page->index < to;
        if (inside && !status && pieces->bytes < wanted && take_idle_locked(range, page))
            status = collect_run_locked(
                range, page->index, (wanted - pieces->bytes - 1) / range->page_size + 1, pieces);
        enum page_state state = word_state(atomic_load(&page->word));
        /* A commit that has taken a decommitted page may put it back. */
        some = some || state == PAGE_DECOMMITTED || state == PAGE_TAKEN;
    }
    if (some)
        atomic_store(&chunk->some, true);
    return status;
}

tarn_status range_collect_locked(struct tarn_range *range, size_t wanted, struct piece_list *pieces)
{
    size_t hand = range->hand < range->pages ? range->hand : 0;
    tarn_status status = TARN_OK;
    for (size_t turn = 0; turn <= range->chunk_count && !status && pieces->bytes < wanted; turn++) {
        size_t at = (hand / CHUNK_PAGES + turn) % range->chunk_count;
        struct chunk *chunk = atomic_load_explicit(&range->chunks[at], memory_order_acquire);
        size_t from = at * CHUNK_PAGES, to = from + CHUNK_PAGES;
        if (turn == 0)
            from = hand;
        else if (turn == range->chunk_count)
            to = hand;
        to = to < range->pages ? to : range->pages;
        if (chunk)
            status = collect_in_chunk_locked(range, chunk, from, to, wanted, pieces);
    }
    return status;
}

/* Peers ---------------------------------------------------------------------------------------- */

/* With `mapping` alone. */
tarn_status range_grant(struct tarn_range *range, int peer)
{
    tarn_status status = TARN_OK;
    for (size_t page = 0, end; page < range->pages && !status; page = end) {
        if (!range_chunk(range, page)) {
            end = page / CHUNK_PAGES * CHUNK_PAGES + CHUNK_PAGES;
            continue;
        }
        for (end = page; end < range->pages && has_piece(range, end); end++)
            ;
        if (end > page)
            status = set_access(range, page, end, &peer, 1);
        else
            end = page + 1;
    }
    return status;
}
