/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compaction. Owns no data.
 *
 * The order of the steps, so that nothing is lost if one fails:
 *
 *    1. no capture is known or shows (captures_bar_all()), and no known one begins
 *    2. all work of the device, and of peers that reach its memory, has ended
 *    3. `moving` is taken alone: no other thread maps, unmaps or takes pieces; blocks can still be
 *       allocated from free spans, and freed
 *    4. piece by piece, the emptiest first:
 *         free granules are cut out of their spans and taken                      heap's lock
 *         smaller pieces are created for the rest: of device memory, or, if       no lock
 *           there is no room, of host memory
 *         they are filled at scratch addresses (exchange.h)                       no lock
 *         the piece is unmapped, and they are mapped in its place                 heap's lock, and
 *                                                                                 `mapping` shared
 *         the piece is released, last                                             no lock
 *         pieces of host memory are exchanged for device memory in the same
 *         way, since now there is room
 *
 * Only the step that replaces the memory under live blocks makes driver calls with the heap's lock
 * held. So code that reads the pieces of a block sees either the old or the new ones, and an anchor
 * is on one of these. The device is idle then, so these calls do not wait.
 *
 * These stay where they are: memory that a graph or an open capture holds, anchored and exported
 * pieces, imports, plain segments, registrable pools, suspended pools, free memory that is not
 * known to be idle, and all memory of a heap that still has ghosts. */
#include "memory/pressure/compact.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "device/capture.h"
#include "driver/loader.h"
#include "memory/arena/exchange.h"
#include "memory/arena/generation.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/ghost.h"
#include "memory/heap/cache.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"

#define WAIT_NS UINT64_C(10000000000) /* for the work of all streams that tarn knows */
#define NAP_NS 50000                  /* between two polls */

/* Waiting -------------------------------------------------------------------------------------- */

/* Polls until the work of a mark has ended, because a driver's wait has no time limit. On the host
 * device it waits in a way that lets timed work end. */
static tarn_status wait_until(struct mark *mark, uint64_t until)
{
    if (driver == &driver_host)
        return mark_wait(mark);
    for (;;) {
        tarn_status status = mark_query(mark);
        if (status != TARN_ERROR_NOT_READY)
            return status;
        if (clock_ns() >= until)
            return failed(TARN_ERROR_NOT_READY,
                          "a compaction: the work of a stream has not ended within %u s",
                          (unsigned)(WAIT_NS / UINT64_C(1000000000)));
        clock_pause(NAP_NS);
    }
}

/* Waits for the work of a heap's stream. Memory that was freed before is idle afterwards. Does
 * nothing for a found stream, which must not be passed to the driver. */
static tarn_status wait_for_heap(struct heap *heap, uint64_t until)
{
    struct mark *mark = NULL;
    mutex_lock(&heap->lock);
    (void)wait_collect_locked(heap);
    caches_reclaim_locked(heap);
    heap_learn_foreign_locked(heap);
    struct stream *stream = heap->stream;
    unsigned incarnation = heap->incarnation;
    bool retired = heap->retired;
    mutex_unlock(&heap->lock);
    if (!stream || stream_is_found(stream))
        return TARN_OK;
    tarn_status status =
        retired ? TARN_OK : stream_refuse_shown(stream, incarnation, "a compaction");
    if (!status)
        status = mark_of_stream(stream, incarnation, &mark);
    if (!status && mark)
        status = wait_until(mark, until);
    mark_release(mark);
    return status;
}

/* Step 2. The time limit holds for streams that tarn knows; the driver waits for all other work
 * without one. */
static tarn_status wait_for_all(struct arena *arena, uint64_t until)
{
    int devices[TARN_MAX_DEVICES], count = peers_of(arena->device, devices);
    tarn_status status = device_check(arena->device);
    for (struct heap *heap = heap_next(arena, NULL); heap && !status; heap = heap_next(arena, heap))
        status = wait_for_heap(heap, until);
    for (int i = 0; i < count && !status; i++)
        status = device_wait(device_at(devices[i]), "a compaction");
    return status;
}

/* Choosing pieces ------------------------------------------------------------------------------ */

/* Free granules of a piece, cut out of their span. */
struct hole {
    struct hole *next;
    struct span *span; /* SPAN_TAKEN */
    struct run *run;   /* a new run object, for the part of the run behind the hole */
};

static struct object_pool holes = OBJECT_POOL(struct hole);
static struct object_pool parts = OBJECT_POOL(struct exchange_part);

/* One piece, its holes, and the parts that stay. */
struct exchange {
    struct arena *arena;
    struct heap *heap;
    struct piece *piece;
    uintptr_t start;
    size_t size; /* bytes */
    struct exchange_part *parts;
    struct hole *holes;
};

/* A piece that may be worth exchanging. */
struct candidate {
    struct heap *heap;
    uintptr_t start;
    size_t size, gain; /* bytes */
};

static bool is_of_host(const struct piece *piece)
{
    return piece->flags & DRIVER_PIECE_HOST;
}

/* Whether pieces of a store may be exchanged so that `wanting` gets some of their memory. */
static bool store_is_open(struct store *store, const struct store *wanting)
{
    return store->kind.compacts && !store_is_held(store) &&
           (!wanting || store_serves(store, wanting));
}

/* Whether pieces of a heap may be exchanged now. */
static bool is_open_locked(const struct heap *heap, const struct store *wanting)
{
    return store_is_open(heap->store, wanting) && !heap->ghosts;
}

/* Bytes of the whole granules in [start, end) that a free span covers, and their start. */
static size_t hole_in(const struct heap *heap, const struct span *span, uintptr_t start,
                      uintptr_t end, uintptr_t *from)
{
    size_t granule = heap->arena->granule;
    if (span->state != SPAN_FREE || !span_idle_locked(heap, span))
        return 0;
    uintptr_t to = span->start + span->size < end ? span->start + span->size : end;
    *from = span->start > start ? span->start : start;
    *from = (*from + granule - 1) / granule * granule;
    to = to / granule * granule;
    return to > *from ? to - *from : 0;
}

/* The span of a run that contains an address, searched from an earlier span. */
static struct span *span_at(struct span *span, uintptr_t address)
{
    while (span && span->start + span->size <= address)
        span = span->next;
    return span;
}

static size_t gain_of(const struct heap *heap, struct span *span, const struct piece *piece)
{
    uintptr_t end = piece->address + piece->size, from = 0;
    size_t gain = 0;
    for (; span && span->start < end; span = span->next)
        gain += hole_in(heap, span, piece->address, end, &from);
    return gain;
}

/* Lists the pieces of a heap that are worth exchanging, up to the size of the list; returns their
 * number. */
static size_t heap_candidates_locked(struct heap *heap, struct candidate *list, size_t room)
{
    size_t count = 0;
    for (int zone = 0; zone < ZONES; zone++) {
        for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next) {
            const struct piece *piece = NULL;
            struct span *span = run->first;
            for (uintptr_t at = run->start; at < run->end; at += piece->size) {
                piece = arena_piece(heap->arena, at);
                span = span_at(span, at);
                size_t gain = piece_is_anchored(piece) ? 0 : gain_of(heap, span, piece);
                if (!gain && !is_of_host(piece))
                    continue;
                if (count < room)
                    list[count] = (struct candidate){heap, at, piece->size, gain};
                count++;
            }
        }
    }
    return count;
}

static size_t candidates(struct arena *arena, const struct store *wanting, struct candidate *list,
                         size_t room)
{
    size_t count = 0;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        size_t listed = count < room ? count : room;
        mutex_lock(&heap->lock);
        if (is_open_locked(heap, wanting))
            count += heap_candidates_locked(heap, list ? list + listed : NULL, room - listed);
        mutex_unlock(&heap->lock);
    }
    return count;
}

/* The next piece: the one with the fewest bytes to copy per byte gained. */
static struct candidate *candidate_best(struct candidate *list, size_t count)
{
    struct candidate *best = NULL;
    for (size_t i = 0; i < count; i++) {
        struct candidate *each = &list[i];
        if (each->heap && each->gain &&
            (!best || (double)(each->size - each->gain) * (double)best->gain <
                          (double)(best->size - best->gain) * (double)each->gain))
            best = each;
    }
    return best;
}

/* One piece ------------------------------------------------------------------------------------ */

static tarn_status part_add(struct exchange_part ***end, uintptr_t start, size_t size)
{
    struct exchange_part *part = object_alloc(&parts);
    if (!part)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a compaction");
    *part = (struct exchange_part){.start = start, .size = size};
    **end = part;
    *end = &part->next;
    return TARN_OK;
}

/* Takes the granules [start, start + size) out of a free span. `next` becomes the span behind
 * them. */
static tarn_status hole_take_locked(struct exchange *exchange, struct span *span, uintptr_t start,
                                    size_t size)
{
    struct hole *hole = object_alloc(&holes);
    struct run *run = run_create();
    tarn_status status = hole && run ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status)
        status = span_take_place_locked(exchange->heap, span, start, size, &span);
    if (status) {
        run_destroy(run);
        object_free(&holes, hole);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a compaction");
    }
    *hole = (struct hole){exchange->holes, span, run};
    exchange->holes = hole;
    return TARN_OK;
}

static struct run *run_at(const struct heap *heap, uintptr_t address)
{
    for (int zone = 0; zone < ZONES; zone++)
        for (struct run *run = heap->zones.of[zone].runs; run; run = run->next)
            if (address - run->start < run->end - run->start)
                return run;
    return NULL;
}

/* Divides the piece at an address into holes, which are taken, and parts that stay. Does nothing if
 * the piece has changed. */
static tarn_status divide_locked(struct exchange *exchange, uintptr_t start)
{
    struct heap *heap = exchange->heap;
    struct run *run = run_at(heap, start);
    struct piece *piece = run ? arena_piece(heap->arena, start) : NULL;
    struct exchange_part **last = &exchange->parts;
    if (!piece || piece->address != start || piece_is_anchored(piece))
        return TARN_OK;
    parked_flush_locked(heap);
    exchange->piece = piece;
    exchange->start = start;
    exchange->size = piece->size;
    uintptr_t end = start + piece->size, done = start, from = 0;
    tarn_status status = TARN_OK;
    for (struct span *span = span_at(run->first, start); span && span->start < end && !status;
         span = span->next) {
        size_t size = hole_in(heap, span, start, end, &from);
        if (!size)
            continue;
        status = hole_take_locked(exchange, span, from, size);
        if (!status && from > done)
            status = part_add(&last, done, from - done);
        done = from + size;
        span = status ? span : exchange->holes->span;
    }
    if (!status && end > done)
        status = part_add(&last, done, end - done);
    return status;
}

/* Ends a successful exchange: the holes leave the heap. */
static void holes_leave_locked(struct exchange *exchange)
{
    for (struct hole *hole = exchange->holes, *next; hole; hole = next) {
        uintptr_t start = hole->span->start;
        size_t size = hole->span->size;
        next = hole->next;
        span_leave_locked(exchange->heap, hole->span, &hole->run);
        heap_unclaim_locked(exchange->heap, start, size);
        run_destroy(hole->run);
        object_free(&holes, hole);
    }
    exchange->holes = NULL;
}

/* Ends a failed exchange: the holes become free again. */
static void holes_return_locked(struct exchange *exchange)
{
    for (struct hole *hole = exchange->holes, *next; hole; hole = next) {
        next = hole->next;
        span_return_locked(exchange->heap, hole->span);
        run_destroy(hole->run);
        object_free(&holes, hole);
    }
    exchange->holes = NULL;
}

static void parts_destroy(struct exchange *exchange)
{
    for (struct exchange_part *part = exchange->parts, *next; part; part = next) {
        next = part->next;
        if (part->piece)
            (void)piece_release(part->piece);
        object_free(&parts, part);
    }
    exchange->parts = NULL;
}

/* Memory that replaces host memory was the device's when the call began, so it is no growth. All
 * other new pieces must respect the limits, because they exist together with the old piece for a
 * moment. */
static tarn_status create_all(struct exchange *exchange, bool of_host)
{
    struct store *store = exchange->piece->store;
    enum charge charge = is_of_host(exchange->piece) ? CHARGE_RETURN : CHARGE_GROWTH;
    tarn_status status = TARN_OK;
    for (struct exchange_part *part = exchange->parts; part && !status; part = part->next)
        status = of_host ? piece_create_temporary(store, part->size, &part->piece)
                         : piece_create(store, part->size, charge, &part->piece);
    if (!status)
        return TARN_OK;
    for (struct exchange_part *part = exchange->parts; part; part = part->next) {
        if (part->piece)
            (void)piece_release(part->piece);
        part->piece = NULL;
    }
    return status;
}

/* Puts the new pieces in the place of the old one. Observers are called with no lock except
 * `moving`. Debug mode may copy from blocks at any time, unless it is stopped. */
static tarn_status swap(struct exchange *exchange)
{
    struct arena *arena = exchange->arena;
    struct heap *heap = exchange->heap;
    bool debug = debug_has(DEBUG_CONTENTS);
    generation_ends(arena, exchange->start, exchange->size);
    if (debug)
        hooks.debug_pause();
    shared_lock_shared(&arena->mapping);
    mutex_lock(&heap->lock);
    tarn_status status = TARN_OK;
    if (piece_is_anchored(exchange->piece))
        status = failed(TARN_ERROR_BUSY, "the memory at %p was anchored meanwhile",
                        (void *)exchange->start);
    if (!status)
        status = exchange_swap_locked(arena, exchange->piece, exchange->parts);
    if (status) {
        generation_exchange(arena, exchange->start, exchange->size, true);
    } else {
        generation_exchange(arena, exchange->start, exchange->size, false);
        for (const struct exchange_part *part = exchange->parts; part; part = part->next)
            generation_exchange(arena, part->start, part->size, true);
        holes_leave_locked(exchange);
    }
    mutex_unlock(&heap->lock);
    shared_unlock(&arena->mapping);
    if (debug)
        hooks.debug_go_on();
    generation_tell(arena, exchange->start, exchange->size);
    return status;
}

/* Exchanges the piece that begins at an address, if it still may be exchanged. `by_host`: for
 * pieces of host memory. `done`: the exchange was made. */
static tarn_status exchange_at(struct heap *heap, const struct store *wanting, uintptr_t start,
                               bool by_host, bool *done)
{
    struct exchange exchange = {.arena = heap->arena, .heap = heap};
    mutex_lock(&heap->lock);
    tarn_status status = is_open_locked(heap, wanting) ? divide_locked(&exchange, start) : TARN_OK;
    mutex_unlock(&heap->lock);
    struct piece *old = exchange.piece;
    bool some = old && (exchange.holes || is_of_host(old));
    if (!status && some)
        status = create_all(&exchange, by_host);
    if (!status && some && exchange.parts)
        status = exchange_fill(exchange.arena, exchange.parts);
    if (!status && some)
        status = swap(&exchange);
    *done = !status && some;
    if (*done) {
        for (struct exchange_part *part = exchange.parts; part; part = part->next)
            part->piece = NULL; /* the heap has it now */
    } else {
        mutex_lock(&heap->lock);
        holes_return_locked(&exchange);
        mutex_unlock(&heap->lock);
    }
    parts_destroy(&exchange);
    if (!*done)
        return status;
    struct store *store = old->store;
    status = piece_release(
        old); /* last; on failure it is idle memory of its store, and the next line tries again */
    return status ? store_release_unmapped(store, 0) : TARN_OK;
}

/* Exchanges pieces of host memory in [start, end) for device memory. Those that remain count as
 * device memory from now on. */
static tarn_status come_back(struct heap *heap, uintptr_t start, uintptr_t end)
{
    tarn_status first = TARN_OK;
    for (uintptr_t at = start; at < end;) {
        bool done = false;
        mutex_lock(&heap->lock);
        struct piece *piece = arena_piece(heap->arena, at);
        size_t size = piece ? piece->size : heap->arena->granule;
        mutex_unlock(&heap->lock);
        if (piece && is_of_host(piece)) {
            tarn_status status = exchange_at(heap, NULL, at, false, &done);
            if (status && !done) /* tried again: the memory would stay slow */
                status = exchange_at(heap, NULL, at, false, &done);
            first = first ? first : status;
            if (!done && piece->temporary) {
                mutex_lock(&heap->lock);
                piece_join(piece);
                mutex_unlock(&heap->lock);
            }
        }
        at += size;
    }
    return first;
}

/* Exchanges a piece by way of host memory, because the device or a limit has no room for the new
 * pieces beside the old one. */
static tarn_status exchange_by_host(const struct candidate *candidate, const struct store *wanting)
{
    bool done = false;
    tarn_status status = exchange_at(candidate->heap, wanting, candidate->start, true, &done);
    if (status == TARN_ERROR_NOT_SUPPORTED)
        return failed_within(TARN_ERROR_OUT_OF_MEMORY,
                             "nothing is free to move into, and the driver moves by no way "
                             "through the host's memory");
    if (!done)
        return status;
    tarn_status back =
        come_back(candidate->heap, candidate->start, candidate->start + candidate->size);
    return status ? status : back;
}

static tarn_status exchange_candidate(const struct candidate *candidate,
                                      const struct store *wanting)
{
    struct error_before before;
    bool done = false;
    error_attempt_begin(&before);
    tarn_status status = exchange_at(candidate->heap, wanting, candidate->start, false, &done);
    error_attempt_end(&before, status == TARN_ERROR_OUT_OF_MEMORY ? TARN_OK : status);
    return status == TARN_ERROR_OUT_OF_MEMORY && !done ? exchange_by_host(candidate, wanting)
                                                       : status;
}

/* A whole compaction --------------------------------------------------------------------------- */

static size_t reserved_of(struct arena *arena)
{
    mutex_lock(&arena->lock);
    size_t reserved = arena->reserved;
    mutex_unlock(&arena->lock);
    return reserved;
}

/* Bytes by which the device's reserved memory has shrunk. */
static size_t gained_since(struct arena *arena, size_t before)
{
    size_t now = reserved_of(arena);
    return before > now ? before - now : 0;
}

/* Gives unmapped pieces of the stores back first, which costs least. */
static tarn_status release_unmapped(struct arena *arena, const struct store *wanting, size_t wanted,
                                    size_t before)
{
    tarn_status status = TARN_OK;
    size_t gained;
    for (struct heap *heap = heap_next(arena, NULL);
         heap && !status && (gained = gained_since(arena, before)) < wanted;
         heap = heap_next(arena, heap)) {
        /* Stays: it has a heap, and no other thread moves memory. */
        struct store *store = heap_store(heap);
        if (!store_is_open(store, wanting))
            continue;
        mutex_lock(&arena->lock);
        size_t reserved = store->reserved, unmapped = store->unmapped.bytes,
               missing = wanted - gained;
        mutex_unlock(&arena->lock);
        size_t most = unmapped < missing ? unmapped : missing;
        status = most ? store_release_unmapped(store, reserved - most) : TARN_OK;
    }
    return status;
}

static void end_ghosts(struct arena *arena)
{
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        heap_learn_locked(heap, false);
        struct ghost *ghosts = ghosts_take_locked(heap);
        mutex_unlock(&heap->lock);
        (void)ghosts_end(heap, ghosts); /* a heap with a remaining ghost is left out */
    }
}

/* Bytes that all exchanges together could free. */
static size_t gains(const struct candidate *list, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += list[i].gain;
    return sum;
}

/* `before`: bytes that the device had reserved when the compaction began. */
static tarn_status compact_alone(struct arena *arena, const struct store *wanting, size_t least,
                                 size_t wanted, size_t before)
{
    (void)arena_free_stuck(arena); /* from an earlier compaction that failed */
    end_ghosts(arena);
    tarn_status status = release_unmapped(arena, wanting, wanted, before);
    if (status || gained_since(arena, before) >= wanted)
        return status;
    /* a few more, since other threads free blocks meanwhile */
    size_t room = candidates(arena, wanting, NULL, 0) + 16;
    struct candidate *list = pages_map(room * sizeof *list);
    if (!list)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a compaction");
    size_t count = candidates(arena, wanting, list, room);
    count = count < room ? count : room;
    struct candidate *best;
    bool helps = gained_since(arena, before) + gains(list, count) >= least;
    while (helps && !status && gained_since(arena, before) < wanted &&
           (best = candidate_best(list, count))) {
        status = exchange_candidate(best, wanting);
        best->heap = NULL;
    }
    for (size_t i = 0; i < count && !status; i++) {
        struct error_before cause;
        if (!list[i].heap || list[i].gain)
            continue;
        /* Host memory from a compaction that failed: retried now, and later if it fails again. */
        error_attempt_begin(&cause);
        (void)come_back(list[i].heap, list[i].start, list[i].start + list[i].size);
        error_attempt_end(&cause, TARN_OK);
    }
    pages_unmap(list, room * sizeof *list);
    return status;
}

tarn_status compact(struct arena *arena, const struct store *wanting, size_t least, size_t wanted,
                    size_t *gained)
{
    uint64_t let_go = 0, until = clock_ns() + WAIT_NS;
    tarn_status status = observe_refuse_moving("a compaction");
    if (!status)
        status = captures_bar_all("a compaction");
    if (status)
        return status;
    (void)debug_relieves(arena, &let_go);
    status = wait_for_all(arena, until);
    /* Again: what the first wait freed has a mark of its own. */
    if (!status)
        status = wait_for_all(arena, until);
    if (!status) {
        move_begin_alone(arena);
        size_t before = reserved_of(arena);
        status = compact_alone(arena, wanting, least, wanted, before);
        *gained = gained_since(arena, before);
        move_end(arena);
    }
    captures_unbar_all();
    return status;
}

bool compact_may_free(struct store *wanting, size_t least)
{
    struct arena *arena = wanting->arena;
    heaps_sum(arena);
    struct heap_sums sums = heaps_sums_serving(wanting, store_is_open(wanting, wanting));
    /* A block that waits joins its free neighbours when it becomes free. */
    size_t most = sums.waiting ? sums.free + sums.waiting : sums.holes;
    mutex_lock(&arena->lock);
    most += arena->stuck.bytes + wanting->unmapped.bytes;
    if (arena->pools.unmapped.root)
        most += arena->unmapped;
    else if (wanting != &arena->store)
        most += arena->store.unmapped.bytes;
    mutex_unlock(&arena->lock);
    return most && most >= least;
}

bool compact_is_allowed(void)
{
    static const char *const reach[] = {"libnccl.so.2", "librccl.so.1", "libucp.so.0",
                                        "libnvshmem_host.so.3"};
    size_t setting = memory_config()->compaction;
    bool quiet = true;
    for (size_t i = 0; setting == CONFIG_COMPACTION_ON_OOM && i < sizeof reach / sizeof *reach; i++)
        quiet = quiet && !loader_is_loaded(reach[i]);
    return setting != CONFIG_COMPACTION_OFF && quiet;
}
