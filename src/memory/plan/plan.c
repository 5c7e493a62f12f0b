/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the followers of plans. A follower belongs to its heap and is under the heap's lock. "The
 * plan" below is the arena that it follows.
 *
 * Matching. `expected` is the number of the planned request that should come next; after the last
 * it is the first again. A request of its size is taken for it. Any other request means that the
 * program has left the plan: it skipped, added or changed requests. Then the planned requests of
 * that size within NEAR of `expected` are compared. The best is one whose predecessors match the
 * last requests, then one whose place is free, then the nearest. `expected` moves there only if at
 * least SURE predecessors match, so that one added request does not lead the matching astray. After
 * every LOST requests without such a match, the whole plan is searched, so that a program that
 * starts again, or repeats a part, is found. A request without a match nearby, but of about the
 * expected size, is taken for the expected one.
 *
 * Beside the plan. A request that is not in the plan, or whose place is taken, goes where nothing
 * is now and nothing is planned until it is freed. It is expected to live as long as the planned
 * request that it was taken for, or else one of about its size nearby. If there is no such place,
 * it is served as without a plan.
 *
 * Memory. While the program does what the plan says, a place gets new memory together with the next
 * places. After that, each gets its own, in smaller pieces. Then a request goes where it needs less
 * new memory: into a gap that it nearly fills; into the place of a skipped request that would live
 * as long; or, if its own place is mostly hole, into free memory of the heap outside the
 * reservation. All places together get new memory until the heap has as much as the arena, inside
 * its reservation and outside. After that, a place without memory counts as taken. */
#include "memory/plan/plan.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/growth.h"
#include "memory/heap/following.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/pressure/taking.h"
#include "memory/settings/config.h"

#define NEAR 8    /* requests before and after the expected one that are compared */
#define HISTORY 8 /* last requests that are remembered */
#define SURE 2    /* predecessors that must match before `expected` moves */
/* After so many requests in a row without a sure match, the whole plan is searched. */
#define LOST 16
/* An arena can be chosen by one of this many first requests. */
#define BEGINNING 16
/* 1/64 of the arena gets memory at once, while the program does what the plan says. */
#define AHEAD_PART 64
/* A request with a place of its own may leave at most 1/4 of a granule of a gap. */
#define TIGHT_PART 4
/* The most free spans outside the reservation that are looked at. */
#define OUTSIDE_TRIES 32

/* The largest piece is about this fraction of the arena, and at least CUT_LEAST. A piece costs the
 * same driver calls whatever its size, but only whole pieces can be mapped elsewhere. So pieces are
 * smaller once the program has left the plan. */
static const size_t cuts[2] = {256, 1024}; /* while it does what the plan says; after that */
#define CUT_LEAST ((size_t)4 << 20)        /* bytes */

/* What a heap has while it follows an arena of a plan. Created by plan_begin(). Destroyed by
 * plan_end_locked() under the heap's lock, or by begin() if the heap never began to follow. */
struct plan_follower {
    struct following following; /* first member: the part that the heap room knows */
    const struct plan *plan;
    size_t granules;  /* granules of the reservation */
    uint64_t *wanted; /* one bit per granule: a hole that is about to get memory */
    /* One bit per request, by offset; used within gap_find_locked(), otherwise 0. */
    uint64_t *marked;
    size_t most; /* bytes of the heap's large zone up to which places get new memory */
    uint32_t expected, misses;
    uint32_t history[HISTORY]; /* sizes of the last requests, in units, newest first */
    /* The program has left the plan: a request was not the expected one, or its place was taken. */
    bool strayed;
};

/* Where a request goes once there is memory. */
struct plan_place {
    const struct plan *plan;
    uint32_t number; /* the planned request that it was taken for */
    bool own;        /* it is that request's place; otherwise beside the plan */
    uintptr_t start;
    size_t size; /* bytes; 0: no place needs memory */
};

static atomic_uint_fast64_t planned, beside, ordinary;
static struct object_pool followers = OBJECT_POOL(struct plan_follower);

/* The planned request that a request is taken for; `number` is the plan's count if there is
 * none. */
struct match {
    uint32_t number;
    bool is_free; /* its place is free */
    unsigned agree;
};

/* The heap's follower; NULL: it follows no plan. */
static struct plan_follower *follower_of(const struct heap *heap)
{
    return (struct plan_follower *)heap->following;
}

static size_t bytes_of(uint32_t units)
{
    return units * TARN_BLOCK_UNIT;
}

/* Beginning and end ---------------------------------------------------------------------------- */

static bool may_begin_with(const struct plan *plan, size_t size)
{
    for (uint32_t i = 0; i < BEGINNING && i < plan->header.count; i++)
        if (bytes_of(plan->requests[i].size) == size)
            return true;
    return false;
}

/* Whether the heaps of a store may follow a plan: its pieces may have any size, and its pool is in
 * use. */
static bool may_follow(const struct store *store)
{
    return store->kind.plans && (store_has(store, STORE_OF_POOL) ? !atomic_load(&store->left_behind)
                                                                 : store == &store->arena->store);
}

/* Whether the heap's pool can be pool `pool` of the plan. 0 is the default pool; each other number
 * is one private pool. */
static bool may_be_pool(const struct heap *heap, uint32_t pool)
{
    const struct plan *plan = atomic_load_explicit(&plan_now, memory_order_acquire);
    if (!pool || !store_has(heap->store, STORE_OF_POOL))
        return !pool && !store_has(heap->store, STORE_OF_POOL);
    for (unsigned i = 0; plan; plan = plan->next, i++) {
        struct heap *owner = atomic_load(&heap->arena->planned[i]);
        if (owner && owner != heap &&
            (heap_store(owner) == heap->store) != (plan->header.pool == pool))
            return false;
    }
    return true;
}

/* Chooses the arena that a heap follows by the size of its request: the first arena that begins
 * with this size, otherwise the first one with this size near its beginning. NULL if no such arena
 * is free, or the heap has one, even if it does not follow it (`planned`). */
static const struct plan *arena_for(const struct heap *heap, size_t size, unsigned *number)
{
    const struct plan *best = NULL, *plan = atomic_load_explicit(&plan_now, memory_order_acquire);
    bool exact = false;
    if (!plan || !may_follow(heap->store))
        return NULL;
    for (unsigned i = 0; plan; plan = plan->next, i++) {
        const struct heap *owner = atomic_load(&heap->arena->planned[i]);
        if (owner == heap)
            return NULL;
        bool first = bytes_of(plan->requests[0].size) == size;
        if (owner || exact || (best && !first) || !may_begin_with(plan, size))
            continue;
        if (!may_be_pool(heap, plan->header.pool))
            continue;
        best = plan;
        exact = first;
        *number = i;
    }
    return best;
}

bool plan_has_beginning(const struct heap *heap, size_t size)
{
    const struct plan *plan = atomic_load_explicit(&plan_now, memory_order_acquire);
    bool has = false;
    for (unsigned i = 0; plan; plan = plan->next, i++) {
        const struct heap *owner = atomic_load(&heap->arena->planned[i]);
        if (owner == heap)
            return false;
        has = has || (!owner && may_begin_with(plan, size));
    }
    return has;
}

/* Makes a heap the one that follows an arena. Two threads may choose at the same time, for one heap
 * or for two heaps of one planned pool: at most one succeeds. */
static bool arena_become(struct heap *heap, const struct plan *plan, unsigned number)
{
    struct heap *nobody = NULL, *self = heap;
    if (!atomic_compare_exchange_strong(&heap->arena->planned[number], &nobody, heap))
        return false;
    bool alone = may_be_pool(heap, plan->header.pool);
    for (unsigned i = 0; i < PLAN_ARENAS_MOST; i++)
        alone = alone && (i == number || atomic_load(&heap->arena->planned[i]) != heap);
    if (!alone)
        atomic_compare_exchange_strong(&heap->arena->planned[number], &self, NULL);
    return alone;
}

static void follower_destroy(struct plan_follower *follower)
{
    pages_free(follower->wanted, bits_bytes(follower->granules));
    pages_free(follower->marked, bits_bytes(follower->plan->header.count));
    object_free(&followers, follower);
}

static struct plan_follower *follower_create(const struct plan *plan, size_t granules)
{
    struct plan_follower *follower = object_alloc(&followers);
    if (!follower)
        return NULL;
    *follower = (struct plan_follower){.plan = plan,
                                       .granules = granules,
                                       .wanted = pages_alloc(bits_bytes(granules)),
                                       .marked = pages_alloc(bits_bytes(plan->header.count))};
    if (follower->wanted && follower->marked)
        return follower;
    follower_destroy(follower);
    return NULL;
}

/* Gives the heap its follower and reservation. False if the heap is no longer the arena's, because
 * another thread has given up its memory, or left it behind. */
static bool follower_enter(struct heap *heap, unsigned number, struct plan_follower *follower,
                           const struct reservation *reservation)
{
    mutex_lock(&heap->lock);
    bool enters = !heap->following && atomic_load(&heap->arena->planned[number]) == heap;
    if (enters) {
        follower->most = heap->zones.of[ZONE_LARGE].bytes + reservation->size;
        follower->following.reservation = *reservation;
        parked_close_locked(heap); /* a parked block would be found before the plan is asked */
        following_begin_locked(heap, &follower->following);
    }
    mutex_unlock(&heap->lock);
    return enters;
}

/* Moves are shared. */
static void begin(struct heap *heap, size_t size)
{
    struct arena *arena = heap->arena;
    unsigned number = 0;
    const struct plan *plan = arena_for(heap, size, &number);
    struct reservation reservation = {0};
    if (!plan || store_check(heap->store) || !arena_become(heap, plan, number))
        return;
    size_t granules = (plan->header.arena + arena->granule - 1) / arena->granule;
    struct plan_follower *follower = follower_create(plan, granules);
    tarn_status status = TARN_OK;
    if (follower)
        status = reservation_begin(&reservation, arena, granules * arena->granule);
    else
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to follow it");
    if (!status && follower_enter(heap, number, follower, &reservation))
        return;
    /* The arena stays this heap's until its memory is given up, so that no heap tries again and
     * again. */
    if (status)
        log_write(LOG_ERRORS, "device %d: the plan is not followed: %s", arena->device->number,
                  tarn_last_error());
    else
        reservation_end(&reservation, arena);
    if (follower)
        follower_destroy(follower);
}

void plan_begin(struct heap *heap, const struct request *request)
{
    struct error_before before;
    unsigned number;
    if (!arena_for(heap, request->size, &number))
        return;
    error_attempt_begin(&before);
    if (observe_refuse_moving("the memory of a plan") == TARN_OK &&
        move_begin_by(heap->arena, request->until)) {
        begin(heap, request->size);
        move_end(heap->arena);
    }
    error_attempt_end(&before, TARN_OK);
}

void plan_end_locked(struct heap *heap)
{
    struct plan_follower *follower = follower_of(heap);
    for (unsigned i = 0; i < PLAN_ARENAS_MOST; i++) {
        struct heap *self = heap;
        atomic_compare_exchange_strong(&heap->arena->planned[i], &self, NULL);
    }
    if (!follower)
        return;
    heap->following = NULL;
    heap->growths.saves = false; /* the next growth decides */
    reservation_end(&follower->following.reservation, heap->arena);
    follower_destroy(follower);
    if (!heap_is_left_behind_locked(heap))
        parked_open_locked(heap);
}

struct plan_counts plan_counts(void)
{
    return (struct plan_counts){atomic_load(&planned), atomic_load(&beside),
                                atomic_load(&ordinary)};
}

/* Matching ------------------------------------------------------------------------------------- */

/* What is at a place: something else; free memory; free memory and holes. */
enum place { PLACE_TAKEN, PLACE_FREE, PLACE_LACKS };

/* Looks at the place of a planned request: its first `size` bytes. PLACE_TAKEN if `size` is more
 * than planned. `span` is the last free span in it. */
static enum place place_look_locked(const struct heap *heap, uint32_t number, size_t size,
                                    uintptr_t *start, struct span **span)
{
    const struct plan_request *request = &follower_of(heap)->plan->requests[number];
    size_t granule = heap->arena->granule, missing = 0, hole;
    if (size > bytes_of(request->size))
        return PLACE_TAKEN;
    *start = heap->following->reservation.start + bytes_of(request->offset);
    for (uintptr_t at = *start, end = *start + size, from = 0; at < end;) {
        hole = reservation_hole(&heap->following->reservation, granule, at, end, &from);
        if (hole && from <= at) {
            missing += hole;
            at = from + hole;
            continue;
        }
        *span = span_ending_behind_locked(heap->following, at);
        if (!*span || (*span)->start > at)
            return PLACE_TAKEN;
        at = (*span)->start + (*span)->size;
    }
    return missing ? PLACE_LACKS : PLACE_FREE;
}

/* How many of the last requests match the requests before a planned one, from the newest back
 * without a gap. */
static unsigned agreement(const struct plan_follower *follower, uint32_t number)
{
    unsigned agree = 0;
    while (agree < HISTORY && agree < number &&
           follower->history[agree] == follower->plan->requests[number - 1 - agree].size)
        agree++;
    return agree;
}

static uint32_t distance(uint32_t one, uint32_t other)
{
    return one > other ? one - other : other - one;
}

static bool is_better(const struct plan_follower *follower, const struct match *one,
                      const struct match *other)
{
    bool sure = one->agree >= SURE;
    if (sure != (other->agree >= SURE))
        return sure;
    if (one->is_free != other->is_free)
        return one->is_free;
    if (one->agree != other->agree)
        return one->agree > other->agree;
    return distance(one->number, follower->expected) < distance(other->number, follower->expected);
}

/* The best match of a size among the planned requests [from, to). */
static struct match match_in_locked(const struct heap *heap, uint32_t from, uint32_t to,
                                    uint32_t units)
{
    const struct plan_follower *follower = follower_of(heap);
    struct match best = {.number = follower->plan->header.count};
    for (uint32_t i = from; i < to; i++) {
        uintptr_t start;
        struct span *span;
        if (follower->plan->requests[i].size != units)
            continue;
        bool is_free = place_look_locked(heap, i, bytes_of(units), &start, &span) != PLACE_TAKEN;
        struct match match = {i, is_free, agreement(follower, i)};
        if (best.number == follower->plan->header.count || is_better(follower, &match, &best))
            best = match;
    }
    return best;
}

/* Whether a request of one size may be a planned request of the other size that has changed. */
static bool is_like(uint32_t one, uint32_t other)
{
    return one / 4 * 3 <= other && other / 4 * 3 <= one;
}

/* The planned request that a request is taken for, or the plan's count. Moves `expected` if the
 * match is sure. */
static uint32_t match_locked(struct heap *heap, uint32_t units)
{
    struct plan_follower *follower = follower_of(heap);
    const uint32_t count = follower->plan->header.count, expected = follower->expected;
    if (follower->plan->requests[expected].size == units) {
        follower->misses = 0;
        return expected;
    }
    follower->strayed = true;
    uint32_t from = expected < NEAR ? 0 : expected - NEAR,
             to = count - expected < NEAR ? count : expected + NEAR;
    struct match match = match_in_locked(heap, from, to, units);
    bool sure = match.agree >= SURE && (match.is_free || match.number >= expected);
    if (!sure && ++follower->misses % LOST == 0) {
        match = match_in_locked(heap, 0, count, units);
        sure = match.agree >= HISTORY / 2 && match.is_free;
    }
    if (sure) {
        follower->misses = 0;
        follower->expected = match.number;
    }
    if (match.number == count && is_like(follower->plan->requests[expected].size, units))
        return expected; /* the size of this request has changed */
    return match.number;
}

static void remember(struct plan_follower *follower, uint32_t units, uint32_t number)
{
    for (unsigned i = HISTORY - 1; i > 0; i--)
        follower->history[i] = follower->history[i - 1];
    follower->history[0] = units;
    if (number == follower->expected)
        follower->expected = number + 1 < follower->plan->header.count ? number + 1 : 0;
}

/* Beside the plan ------------------------------------------------------------------------------ */

/* The best place found so far beside the plan: it needs the least new memory, and of such places it
 * is in the smallest gap. */
struct gap {
    size_t wanted, size, missing; /* bytes */
    uintptr_t start;              /* 0: none yet */
};

/* Bytes of holes under a block. */
static size_t missing_at(const struct heap *heap, uintptr_t start, size_t size)
{
    size_t missing = 0, hole;
    uintptr_t found = 0;
    for (uintptr_t from = start;
         (hole = reservation_hole(&heap->following->reservation, heap->arena->granule, from,
                                  start + size, &found));
         from = found + hole)
        missing += hole;
    return missing;
}

static void gap_consider_at(const struct heap *heap, struct gap *gap, uintptr_t start, size_t size)
{
    size_t missing = missing_at(heap, start, gap->wanted);
    if (gap->start && (missing > gap->missing || (missing == gap->missing && size >= gap->size)))
        return;
    gap->start = start;
    gap->size = size;
    gap->missing = missing;
}

static void gap_consider(const struct heap *heap, struct gap *gap, uintptr_t start, uintptr_t end)
{
    if (end <= start || end - start < gap->wanted)
        return;
    gap_consider_at(heap, gap, start, end - start);
    if (gap->missing)
        gap_consider_at(heap, gap, end - gap->wanted, end - start);
}

/* Considers the gaps in [start, end), where nothing is planned: stretches of free spans and
 * holes. */
static void gaps_consider(const struct heap *heap, struct gap *gap, uintptr_t start, uintptr_t end)
{
    uintptr_t from = start, at = start, hole = 0;
    if (end <= start || end - start < gap->wanted)
        return;
    while (at < end) {
        size_t size =
            reservation_hole(&heap->following->reservation, heap->arena->granule, at, end, &hole);
        if (size && hole <= at) {
            at = hole + size;
            continue;
        }
        const struct span *span = span_ending_behind_locked(heap->following, at);
        if (span && span->start <= at) {
            at = span->start + span->size;
            continue;
        }
        gap_consider(heap, gap, from, at);
        uintptr_t next = span && span->start < end ? span->start : end;
        from = at = size && hole < next ? hole : next;
    }
    gap_consider(heap, gap, from, at < end ? at : end);
}

/* The best gap between the places of the planned requests from the expected one to `end`. */
static struct gap gap_find_locked(const struct heap *heap, size_t wanted, uint32_t end)
{
    const struct plan_follower *follower = follower_of(heap);
    const struct plan *plan = follower->plan;
    const size_t count = plan->header.count;
    struct gap gap = {.wanted = wanted};
    uintptr_t at = heap->following->reservation.start;
    for (uint32_t number = follower->expected; number < end; number++)
        bits_mark(follower->marked, plan->rank[number], plan->rank[number] + 1, true);
    for (size_t i = 0; (i = bits_next(follower->marked, count, i, true)) < count; i++) {
        bits_mark(follower->marked, i, i + 1, false);
        const struct plan_request *request = &plan->requests[plan->by_offset[i]];
        uintptr_t from = heap->following->reservation.start + bytes_of(request->offset);
        uintptr_t to = from + bytes_of(request->size);
        gaps_consider(heap, &gap, at, from);
        at = to > at ? to : at;
    }
    gaps_consider(heap, &gap, at, heap->following->reservation.start + plan->header.arena);
    return gap;
}

/* The best gap in places of requests that the run has left out. Only places that the plan would use
 * until `end` or longer, so that the block holds nothing in place longer than the plan does. */
static struct gap gap_left_out_locked(const struct heap *heap, size_t wanted, uint32_t end)
{
    const struct plan_follower *follower = follower_of(heap);
    struct gap gap = {.wanted = wanted};
    for (uint32_t i = 0; i < follower->expected; i++) {
        const struct plan_request *request = &follower->plan->requests[i];
        if (i % PLAN_GROUP == 0 && follower->plan->latest[i / PLAN_GROUP] < end) {
            i += PLAN_GROUP - 1;
            continue;
        }
        if (request->end < end || bytes_of(request->size) < wanted)
            continue;
        uintptr_t start = heap->following->reservation.start + bytes_of(request->offset);
        gaps_consider(heap, &gap, start, start + bytes_of(request->size));
    }
    return gap;
}

/* How many requests long a block of this size lives, by a planned request of about its size near
 * the expected one; 0: unknown. */
static uint32_t life_nearby(const struct plan_follower *follower, uint32_t units)
{
    const struct plan *plan = follower->plan;
    const uint32_t count = plan->header.count, expected = follower->expected;
    for (uint32_t away = 0; away < NEAR; away++) {
        const uint32_t both[] = {expected + away, expected - away};
        for (int i = 0; i < 2; i++) {
            uint32_t number = both[i]; /* numbers below 0 wrap to large ones */
            if (number < count && plan->requests[number].size / 2 <= units &&
                units / 2 <= plan->requests[number].size)
                return plan->requests[number].end - number;
        }
    }
    return 0;
}

/* The planned request before which the block is expected to be freed; 0: unknown. */
static uint32_t end_of(const struct plan_follower *follower, const struct request *request,
                       uint32_t number)
{
    const struct plan *plan = follower->plan;
    if (number + 1 == follower->expected)
        return plan->requests[number].end;
    uint32_t life = number < plan->header.count
                        ? plan->requests[number].end - number
                        : life_nearby(follower, (uint32_t)(request->size / TARN_BLOCK_UNIT));
    uint32_t left = plan->header.count - follower->expected;
    return life ? follower->expected + (life < left ? life : left) : 0;
}

static bool is_at_least(const struct tree_node *node, uint64_t size)
{
    return TREE_ENTRY(node, struct span, by_size)->size >= size;
}

/* The start of the smallest free span outside the reservation that fits. Looks at OUTSIDE_TRIES
 * spans; 0: none. */
static uintptr_t outside_locked(const struct heap *heap, size_t wanted)
{
    const struct reservation *reservation = &heap->following->reservation;
    struct tree_node *node = tree_find_first(&heap->zones.of[ZONE_LARGE].free, is_at_least, wanted);
    for (int tries = 0; node && tries < OUTSIDE_TRIES; tries++, node = tree_next(node)) {
        const struct span *span = TREE_ENTRY(node, struct span, by_size);
        if (span->start >= reservation->start + reservation->size ||
            span->start + span->size <= reservation->start)
            return span->start;
    }
    return 0;
}

/* Where a request goes. */
struct choice {
    uintptr_t start;
    size_t missing; /* bytes of new memory needed there; SIZE_MAX: no place yet */
    bool own;       /* its own place; otherwise beside the plan */
};

static void choose_gap(struct choice *choice, const struct gap *gap)
{
    if (gap->start && gap->missing < choice->missing)
        *choice = (struct choice){gap->start, gap->missing, false};
}

/* Looks for a better place than the request's own; `is_taken`: it cannot have that. */
static void choose_beside_locked(const struct heap *heap, const struct request *request,
                                 uint32_t number, bool is_taken, struct choice *choice)
{
    const struct plan_follower *follower = follower_of(heap);
    uint32_t end = end_of(follower, request, number);
    if (request->alignment > TARN_BLOCK_UNIT)
        return;
    if (end) {
        struct gap gap = gap_find_locked(heap, request->size, end);
        if (is_taken || gap.size - gap.wanted <= heap->arena->granule / TIGHT_PART)
            choose_gap(choice, &gap);
    }
    if (end && follower->strayed && choice->missing) {
        struct gap gap = gap_left_out_locked(heap, request->size, end);
        choose_gap(choice, &gap);
    }
    bool outside = follower->strayed && !is_taken && zone_of(request->size) == ZONE_LARGE;
    if (outside && choice->missing && choice->missing >= request->size / 2) {
        uintptr_t start = outside_locked(heap, request->size);
        if (start)
            *choice = (struct choice){start, 0, false};
    }
}

static tarn_status take_at_locked(struct heap *heap, uintptr_t start, size_t size,
                                  struct span **span)
{
    struct span *found = span_ending_behind_locked(heap->following, start);
    if (!found || found->start > start || found->start + found->size - start < size)
        return TARN_ERROR_OUT_OF_MEMORY;
    return span_take_place_locked(heap, found, start, size, span);
}

/* Looks for the place of a request. If the place is taken, frees waiting blocks whose work has
 * ended and looks again. */
static enum place place_get_locked(struct heap *heap, uint32_t number, size_t size,
                                   uintptr_t *start, struct span **span)
{
    enum place place = place_look_locked(heap, number, size, start, span);
    return place == PLACE_TAKEN && heap->waiting.blocks && wait_collect_locked(heap)
               ? place_look_locked(heap, number, size, start, span)
               : place;
}

static bool counts(atomic_uint_fast64_t *counter, tarn_status status)
{
    if (!status)
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return status != TARN_ERROR_OUT_OF_MEMORY;
}

/* Takes a span for a request at a place that has memory. TARN_ERROR_OUT_OF_MEMORY, without a text,
 * if there is none. Then `lacking` is a free place that needs memory, or its size is 0. */
static tarn_status take_locked(struct heap *heap, const struct request *request,
                               struct plan_place *lacking, struct span **span)
{
    struct plan_follower *follower = follower_of(heap);
    const uint32_t units = (uint32_t)(request->size / TARN_BLOCK_UNIT),
                   count = follower->plan->header.count;
    struct span *found = NULL;
    uintptr_t start = 0;
    if (request->size <= PLAN_LEAST_REQUEST || request->size / TARN_BLOCK_UNIT > UINT32_MAX)
        return TARN_ERROR_OUT_OF_MEMORY;
    uint32_t number = match_locked(heap, units);
    enum place place = number < count
                           ? place_get_locked(heap, number, request->size, &start, &found)
                           : PLACE_TAKEN;
    if (start % request->alignment)
        place = PLACE_TAKEN;
    follower->strayed |= place == PLACE_TAKEN;
    remember(follower, units, number);
    if (place == PLACE_FREE) {
        tarn_status status = span_take_place_locked(heap, found, start, request->size, span);
        if (counts(&planned, status))
            return status;
    }

    size_t held = heap->zones.of[ZONE_LARGE].bytes,
           room = follower->most > held ? follower->most - held : 0;
    struct choice choice = {
        start, place == PLACE_LACKS ? missing_at(heap, start, request->size) : SIZE_MAX,
        place == PLACE_LACKS};
    if (follower->strayed || choice.missing > room)
        choose_beside_locked(heap, request, number, place == PLACE_TAKEN, &choice);
    if (choice.missing == 0) {
        tarn_status status = take_at_locked(heap, choice.start, request->size, span);
        if (counts(&beside, status))
            return status;
    }
    if (choice.missing <= room)
        *lacking =
            (struct plan_place){follower->plan, number, choice.own, choice.start, request->size};
    else
        atomic_fetch_add_explicit(&ordinary, 1, memory_order_relaxed);
    return TARN_ERROR_OUT_OF_MEMORY;
}

/* Takes a span at a place that was given memory. TARN_ERROR_OUT_OF_MEMORY, without a text, if the
 * place has no memory, or is not free any more. */
static tarn_status take_filled_locked(struct heap *heap, const struct plan_place *place,
                                      struct span **span)
{
    tarn_status status = heap->following ? take_at_locked(heap, place->start, place->size, span)
                                         : TARN_ERROR_OUT_OF_MEMORY;
    if (!counts(place->own ? &planned : &beside, status))
        atomic_fetch_add_explicit(&ordinary, 1, memory_order_relaxed);
    return status;
}

/* Memory for places ---------------------------------------------------------------------------- */

/* Marks the holes of a place as wanted. Returns the bytes that were not wanted before. */
static size_t want_locked(struct heap *heap, uintptr_t from, uintptr_t end)
{
    struct plan_follower *follower = follower_of(heap);
    const size_t granule = heap->arena->granule;
    size_t size, bytes = 0;
    for (uintptr_t start;
         (size = reservation_hole(&heap->following->reservation, granule, from, end, &start));
         from = start + size) {
        size_t first = (start - heap->following->reservation.start) / granule,
               behind = first + size / granule, old = first;
        while ((old = bits_next(follower->wanted, behind, old, false)) < behind) {
            size_t next = bits_next(follower->wanted, behind, old, true);
            bits_mark(follower->wanted, old, next, true);
            bytes += (next - old) * granule;
            old = next;
        }
    }
    return bytes;
}

/* Marks the holes of a place as wanted; with `more`, also those of the next requests, while the
 * program does what the plan says. Returns their bytes. */
static size_t want_all_locked(struct heap *heap, const struct plan_place *place, bool more)
{
    const struct plan_follower *follower = follower_of(heap);
    if (!follower || follower->plan != place->plan || store_check(heap->store))
        return 0;
    size_t ahead = more && !follower->strayed ? heap->following->reservation.size / AHEAD_PART : 0;
    size_t bytes = want_locked(heap, place->start, place->start + place->size);
    for (uint32_t i = place->number + 1; i < follower->plan->header.count && bytes < ahead; i++) {
        uintptr_t from =
            heap->following->reservation.start + bytes_of(follower->plan->requests[i].offset);
        bytes += want_locked(heap, from, from + bytes_of(follower->plan->requests[i].size));
    }
    return bytes;
}

/* Takes the first wanted stretch at or after `from`; if there is none, the first of all. It is then
 * no longer wanted. `largest` is the size of its largest pieces. */
static size_t take_wanted_locked(struct heap *heap, uintptr_t from, uintptr_t *start,
                                 size_t *largest)
{
    struct plan_follower *follower = follower_of(heap);
    if (!follower || store_check(heap->store)) /* another thread may have ended it meanwhile */
        return 0;
    const struct reservation *reservation = &heap->following->reservation;
    const size_t granule = heap->arena->granule, count = reservation->size / granule;
    size_t at = from > reservation->start && from < reservation->start + reservation->size
                    ? (from - reservation->start) / granule
                    : 0;
    size_t first = bits_next(follower->wanted, count, at, true);
    first = first < count ? first : bits_next(follower->wanted, count, 0, true);
    size_t behind = bits_next(follower->wanted, count, first, false);
    bits_mark(follower->wanted, first, behind, false);
    *start = reservation->start + first * granule;
    *largest = reservation->size / cuts[follower->strayed] / granule * granule;
    *largest = *largest > CUT_LEAST ? *largest : CUT_LEAST;
    return (behind - first) * granule;
}

/* Maps all wanted stretches, beginning at `from`, until memory runs out. Moves are shared. */
static tarn_status fill(struct heap *heap, uintptr_t from)
{
    tarn_status status = TARN_OK;
    for (;;) {
        uintptr_t start = 0;
        size_t largest = 0;
        mutex_lock(&heap->lock);
        size_t size = take_wanted_locked(heap, from, &start, &largest);
        mutex_unlock(&heap->lock);
        if (!size)
            return status;
        status = status ? status : heap_grow_hole(heap, start, size, largest);
    }
}

/* Maps memory for a place, and for the next places while the program does what the plan says. If
 * there is not enough for all, only for the place. The caller holds no lock. */
static void place_fill(struct heap *heap, const struct plan_place *place, uint64_t until)
{
    struct error_before before;
    error_attempt_begin(&before);
    if (observe_refuse_moving("the memory of a plan") == TARN_OK) {
        mutex_lock(&heap->lock);
        size_t bytes = want_all_locked(heap, place, true);
        mutex_unlock(&heap->lock);
        (void)take_what_is_left_behind(heap, bytes, until); /* before new memory is created */
        bool moves = move_begin_by(heap->arena, until);
        if (moves && fill(heap, place->start)) {
            mutex_lock(&heap->lock);
            (void)want_all_locked(heap, place, false);
            mutex_unlock(&heap->lock);
            (void)fill(heap, place->start);
        }
        if (moves)
            move_end(heap->arena);
    }
    error_attempt_end(&before, TARN_OK);
}

tarn_status plan_serve_relocking(struct heap *heap, const struct request *request,
                                 struct span **span)
{
    struct plan_place lacking = {0};
    tarn_status status = take_locked(heap, request, &lacking, span);
    if (!lacking.size)
        return status;
    mutex_unlock(&heap->lock);
    place_fill(heap, &lacking, request->until);
    mutex_lock(&heap->lock);
    status = store_check(heap->store);
    return status ? status : take_filled_locked(heap, &lacking, span);
}
