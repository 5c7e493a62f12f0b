/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slow way of a commit. One attempt, under the range's lock:
 *
 *   1. takes the pages: those that have memory stay mapped, those without want it
 *   2. orders the stream after the work of other streams on pages that have memory
 *   3. gathers memory: unmapped pieces of the pool, idle pages of the range, pages of the same
 *      stream that are mapped a second time, and new pieces
 *   4. maps it, and hands the pages out
 *
 * An attempt that fails puts everything back. Between attempts, with no lock held, the call waits
 * for a mark, asks observers to give memory back, or makes room. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/range/range.h"
#include "memory/settings/hooks.h"

enum outcome {
    DONE,
    FAILED,
    WAITS, /* for `mark` */
    GROWS, /* if observers were asked, it may create memory */
};

struct commit {
    struct tarn_range *range;
    size_t first, end; /* pages */
    struct stream *stream;
    size_t wanting; /* pages without memory */
    bool may_create;
    tarn_status status;
    struct mark *mark;
    struct piece_list pieces;
    struct page *aliases; /* a list of pages that were taken, to be mapped a second time */
    size_t alias_count;
};

static enum outcome fail(struct commit *commit, tarn_status status)
{
    commit->status = status;
    return FAILED;
}

/* The pages ------------------------------------------------------------------------------------ */

/* The chunk of a page, made if need be. */
static struct chunk *chunk_make_locked(struct tarn_range *range, size_t page)
{
    size_t at = page / CHUNK_PAGES;
    struct chunk *chunk = range_chunk(range, page);
    if (chunk)
        return chunk;
    chunk = pages_map(sizeof *chunk);
    if (!chunk)
        return NULL;
    for (size_t i = 0; i < CHUNK_PAGES; i++)
        chunk->pages[i].index = at * CHUNK_PAGES + i;
    atomic_store_explicit(&range->chunks[at], chunk, memory_order_release);
    return chunk;
}

/* A page whose memory went elsewhere, or could not be unmapped, gets rid of that first. */
static enum outcome end_left_locked(struct commit *commit, struct page *page)
{
    struct tarn_range *range = commit->range;
    tarn_status status = range_end_left_locked(range);
    if (word_state(atomic_load(&page->word)) == PAGE_EMPTY)
        return DONE;
    if (status)
        return fail(commit, status);
    status = page_mark_locked(range, page, &commit->mark);
    if (status)
        return fail(commit, status);
    return commit->mark ? WAITS : end_left_locked(commit, page);
}

static enum outcome take_page_locked(struct commit *commit, size_t i)
{
    struct tarn_range *range = commit->range;
    struct chunk *chunk = chunk_make_locked(range, i);
    if (!chunk)
        return fail(commit, failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for pages"));
    struct page *page = &chunk->pages[i % CHUNK_PAGES];
    uint64_t word = atomic_load(&page->word);
    if (word_state(word) == PAGE_LEFT) {
        enum outcome outcome = end_left_locked(commit, page);
        if (outcome)
            return outcome;
        word = atomic_load(&page->word);
    }
    if ((word_state(word) == PAGE_EMPTY || word_state(word) == PAGE_DECOMMITTED) &&
        page_take(page, word)) {
        commit->wanting += word_state(word) == PAGE_EMPTY;
        return DONE;
    }
    return fail(commit,
                failed(TARN_ERROR_INVALID_ARGUMENT, "the page at offset %zu is committed already",
                       i * range->page_size));
}

/* Makes the committing stream wait for another stream's work on a page whose memory it gets. */
static enum outcome order_after_locked(struct commit *commit, struct page *page)
{
    struct tarn_range *range = commit->range;
    struct mark *mark = NULL;
    uint64_t epoch = atomic_load(&page->epoch);
    if (atomic_load(&page->owner) == owner_of(commit->stream) || page_is_idle_locked(range, page))
        return DONE;
    struct order *order = order_of_locked(range, page);
    if (!order)
        return fail(commit, failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                                   "no host memory to note what a page waits for"));
    if (order->waited >= epoch)
        return DONE;
    tarn_status status = page_mark_locked(range, page, &mark);
    if (status)
        return fail(commit, status);
    if (!mark)
        return DONE;
    if (stream_is_found(order->stream) || stream_is_foreign(commit->stream)) {
        commit->mark = mark; /* no event can be waited for there */
        return WAITS;
    }
    status = stream_wait_mark(commit->stream, mark);
    mark_release(mark);
    if (status)
        return fail(commit, status);
    order->waited = epoch;
    return DONE;
}

/* Memory --------------------------------------------------------------------------------------- */

/* Takes pages of the same stream that are not idle. */
static void collect_aliases_locked(struct commit *commit, size_t wanted)
{
    struct tarn_range *range = commit->range;
    uint64_t owner = owner_of(commit->stream);
    for (size_t at = 0; at < range->chunk_count && commit->alias_count < wanted; at++) {
        struct chunk *chunk = atomic_load_explicit(&range->chunks[at], memory_order_acquire);
        if (!chunk || !atomic_load(&chunk->some))
            continue;
        for (size_t i = 0; i < CHUNK_PAGES && commit->alias_count < wanted; i++) {
            struct page *page = &chunk->pages[i];
            uint64_t word = atomic_load(&page->word);
            if (word_state(word) != PAGE_DECOMMITTED || !page_take(page, word))
                continue;
            if (atomic_load(&page->owner) != owner) {
                page_put_back(page);
                continue;
            }
            page->link = commit->aliases;
            commit->aliases = page;
            commit->alias_count++;
        }
    }
}

/* Creates pieces until the commit has `wanted` bytes. On failure the new pieces are released, so
 * that they keep no memory from others. */
static enum outcome create(struct commit *commit, size_t wanted)
{
    struct tarn_range *range = commit->range;
    struct piece_list created = {0};
    struct piece *piece = NULL;
    tarn_status status = TARN_OK;
    while (!status && commit->pieces.bytes + created.bytes < wanted) {
        status = piece_create(range->store, range->page_size, CHARGE_GROWTH, &piece);
        if (!status)
            pieces_push(&created, piece);
    }
    while (status && (piece = pieces_pop(&created)))
        (void)piece_release(piece);
    pieces_append(&commit->pieces, &created);
    return status ? fail(commit, status) : DONE;
}

static enum outcome gather_locked(struct commit *commit)
{
    struct tarn_range *range = commit->range;
    struct store *store = range->store;
    size_t wanted = commit->wanting * range->page_size;
    struct error_before before;
    if (!wanted)
        return DONE;
    mutex_lock(&store->arena->lock);
    pieces_of_size_locked(store, range->page_size, wanted, &commit->pieces);
    mutex_unlock(&store->arena->lock);
    if (commit->pieces.bytes < wanted) {
        error_attempt_begin(&before);
        (void)range_end_left_locked(range); /* then their pieces can move again */
        error_attempt_end(&before, TARN_OK);
        tarn_status status = range_collect_locked(range, wanted, &commit->pieces);
        if (status)
            return fail(commit, status);
    }
    if (store_has(store, STORE_REMAPS))
        collect_aliases_locked(commit, (wanted - commit->pieces.bytes) / range->page_size);
    wanted -= commit->alias_count * range->page_size;
    if (commit->pieces.bytes < wanted && !commit->may_create)
        return GROWS;
    return create(commit, wanted);
}

/* An attempt ----------------------------------------------------------------------------------- */

static void put_back_locked(struct commit *commit, size_t end)
{
    struct tarn_range *range = commit->range;
    pieces_to_unmapped(range->store->arena, &commit->pieces);
    for (struct page *page = commit->aliases, *next; page; page = next) {
        next = page->link;
        page->link = NULL;
        page_put_back(page);
    }
    commit->aliases = NULL;
    for (size_t i = commit->first; i < end; i++) {
        struct page *page = range_known(range, i);
        if (word_state(atomic_load(&page->word)) == PAGE_TAKEN) /* or LEFT, by a failed undo */
            page_put_back(page);
    }
}

static void hand_out_locked(struct commit *commit)
{
    uint64_t owner = owner_of(commit->stream);
    for (size_t i = commit->first; i < commit->end; i++) {
        struct page *page = range_known(commit->range, i);
        atomic_store(&page->owner, owner);
        atomic_store(&page->stream, commit->stream);
        atomic_store(&page->word, word_with(page->before, PAGE_COMMITTED));
    }
}

static enum outcome attempt_locked(struct commit *commit)
{
    struct tarn_range *range = commit->range;
    size_t taken = commit->first;
    enum outcome outcome = DONE;
    commit->wanting = commit->alias_count = 0;
    orders_begin_locked(range);
    for (; taken < commit->end && !outcome; taken += !outcome)
        outcome = take_page_locked(commit, taken);
    for (size_t i = commit->first; i < commit->end && !outcome; i++)
        if (word_state(range_known(range, i)->before) == PAGE_DECOMMITTED)
            outcome = order_after_locked(commit, range_known(range, i));
    if (!outcome)
        outcome = gather_locked(commit);
    if (!outcome && commit->wanting) {
        tarn_status status =
            range_map_locked(range, commit->first, commit->end, &commit->pieces, &commit->aliases);
        outcome = status ? fail(commit, status) : DONE;
    }
    if (outcome)
        put_back_locked(commit, taken);
    else
        hand_out_locked(commit);
    return outcome;
}

static enum outcome attempt(struct commit *commit)
{
    struct store *store = commit->range->store;
    move_begin(store->arena);
    commit->status = device_check(store->arena->device);
    if (!commit->status)
        commit->status = store_check(store);
    enum outcome outcome = FAILED;
    if (!commit->status) {
        mutex_lock(&commit->range->lock);
        outcome = attempt_locked(commit);
        mutex_unlock(&commit->range->lock);
    }
    move_end(store->arena);
    return outcome;
}

/* Between attempts ----------------------------------------------------------------------------- */

static tarn_status wait_for(struct commit *commit)
{
    struct mark *mark = commit->mark;
    commit->mark = NULL;
    tarn_status status = TARN_OK;
    if (!mark_can_wait(mark))
        status = failed(TARN_ERROR_CAPTURE, "a commit would wait for the whole device, on which a "
                                            "capture is known: end the capture first");
    if (!status)
        status = mark_wait(mark);
    mark_release(mark);
    return status;
}

/* How much a store, or with NULL a device, may keep so that `bytes` more fit. */
static size_t room_of(struct arena *arena, const struct store *store, size_t bytes)
{
    mutex_lock(&arena->lock);
    size_t reserved = store ? store->reserved : arena->reserved;
    mutex_unlock(&arena->lock);
    return reserved > bytes ? reserved - bytes : 0;
}

/* Whether a commit wants more than the device, or a limit, can ever hold. */
static bool is_hopeless(const struct store *store, size_t bytes)
{
    struct arena *arena = store->arena;
    mutex_lock(&arena->lock);
    size_t own = atomic_load(&store->limit), most = arena->limit < own ? arena->limit : own;
    mutex_unlock(&arena->lock);
    return bytes > most || bytes > arena->device->properties.memory;
}

/* What helps when memory is short, one thing after the other. False if all was tried. */
static bool make_room(const struct commit *commit, int step)
{
    struct store *store = commit->range->store;
    struct arena *arena = store->arena;
    size_t bytes = commit->wanting * commit->range->page_size;
    if (is_hopeless(store, bytes))
        return false;
    if (step == 0)
        (void)ranges_relieve(arena, bytes, UNTIL_ENDED);
    else if (step == 1 && !store_is_default(store))
        (void)hooks.trim(arena, store, room_of(arena, store, bytes));
    else if (step == 2)
        hooks.make_room(arena, room_of(arena, NULL, bytes));
    return step <= 2;
}

static tarn_status commit_all(struct commit *commit)
{
    struct store *store = commit->range->store;
    size_t page = commit->range->page_size;
    for (int step = 0;;) {
        tarn_status status = TARN_OK;
        switch (attempt(commit)) {
        case DONE:
            return TARN_OK;
        case WAITS:
            status = wait_for(commit);
            break;
        case GROWS:
            commit->may_create = true;
            (void)observe_before_growth(store->arena->device->number, commit->wanting * page);
            break;
        case FAILED:
            status = commit->status;
            if (status != TARN_ERROR_OUT_OF_MEMORY)
                return status;
            if (make_room(commit, step++)) {
                status = TARN_OK;
            } else if (hooks.shortage_helped(store, commit->range->place, commit->wanting * page)) {
                status = TARN_OK;
                step = 0;
            } else {
                hooks.refuse_range(store, commit->wanting * page);
            }
            break;
        }
        if (status)
            return status;
    }
}

tarn_status range_commit_slowly(struct tarn_range *range, size_t first, size_t end,
                                struct stream *stream)
{
    struct commit commit = {.range = range,
                            .first = first,
                            .end = end,
                            .stream = stream,
                            .may_create = !observe_wants_growth()};
    struct error_before before;
    tarn_status status = observe_refuse_moving("a commit");
    if (status)
        return status;
    error_attempt_begin(&before);
    stream_prove(stream, (unsigned)owner_of(stream)); /* the caller passes it, so it exists */
    status = commit_all(&commit);
    error_attempt_end(&before, status);
    return status;
}
