/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the followers of plans. A follower belongs to its heap and is under the heap's lock; "the plan" below is the arena that it follows.
 *
 * Matching. `expected` is the number of the planned request that should come next; behind the last one it is the first again. A request
 * of its size is it. Else the program has left the plan: requests were skipped, came in addition, changed their sizes or places. Then the
 * planned requests of that size nearby are looked at: one before which the plan has what came before it here is better than another, then
 * one whose place is free, then the nearest. It moves `expected` only if the SURE requests before it agree, so that one request that came
 * in addition does not lead the matching astray. After LOST requests that did not fit in, all of the plan is looked at now and then: a
 * program that begins anew, or repeats a part, finds its place.
 *
 * What is beside the plan. The plan also says what will be where until a block is given back. So a request whose place is taken, or
 * that is not in the plan, is put where nothing is now and nothing is planned meanwhile; it is supposed to live as long as the one
 * that it was taken for, or one of about its size nearby. Where that cannot be, it goes the ordinary way. */
#include "memory/plan/plan.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/heap/kept.h"
#include "memory/heap/wait.h"
#include "memory/pressure/taking.h"
#include "memory/settings/config.h"

#define NEAR 8       /* requests before and after the expected one that are looked at */
#define HISTORY 8    /* requests that are remembered */
#define SURE 2       /* of them that must agree */
#define LOST 16      /* requests in a row that did not fit in */
#define BEGINNING 16 /* requests, one of which must be the first that comes */

/* In how many pieces the arena is, about, and how small they are at least. A piece is what can be mapped elsewhere when the program leaves
 * the plan: with small ones a program that differs a little takes no more than without a plan. */
static const struct {
    size_t pieces, least; /* bytes */
} cuts[] = {
    [CONFIG_PROFILE_DEFAULT] = {1024, (size_t)4 << 20},
    [CONFIG_PROFILE_FOOTPRINT] = {1024, (size_t)2 << 20},
};

struct plan_follower {
    const struct plan *plan;
    uintptr_t base; /* address of offset 0 */
    uint32_t expected, misses;
    uint32_t history[HISTORY]; /* units: sizes of the last requests, the newest first */
};

static atomic_uint_fast64_t planned, beside, ordinary;
static struct object_pool followers = OBJECT_POOL(struct plan_follower);

/* A planned request that the one at hand is taken for; `count` of the plan where there is none. */
struct match {
    uint32_t number;
    bool is_free; /* its place */
    unsigned agree;
};

static size_t bytes_of(uint32_t units)
{
    return units * TARN_BLOCK_UNIT;
}

/* Beginning and end ------------------------------------------------------------------------------------------------- */

static bool may_begin_with(const struct plan *plan, size_t size)
{
    for (uint32_t i = 0; i < BEGINNING && i < plan->header.count; i++)
        if (bytes_of(plan->requests[i].size) == size)
            return true;
    return false;
}

/* Whether memory of a store can be an arena's: of pieces that may be of any size, in a pool from which more will be allocated. */
static bool may_follow(const struct store *store)
{
    return store->of_pool ? !store->plain && !store->registrable && !atomic_load(&store->left_behind)
                          : store == &store->arena->store && !store->plain;
}

/* Whether the heap's pool can be the one that has number `pool` in the plan: 0 is the default pool, and of the others each is one. */
static bool may_be_pool(const struct heap *heap, uint32_t pool)
{
    const struct plan *plan = atomic_load_explicit(&plan_now, memory_order_acquire);
    if (!pool || !heap->store->of_pool)
        return !pool && !heap->store->of_pool;
    for (unsigned i = 0; plan; plan = plan->next, i++) {
        struct heap *owner = atomic_load(&heap->arena->planned[i]);
        if (owner && owner != heap && (heap_store(owner) == heap->store) != (plan->header.pool == pool))
            return false;
    }
    return true;
}

/* The arena whose beginning a request is, and its number: the first that begins with its size, else the first that has it near its
 * beginning. NULL where there is none that is free, or the heap has one. */
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

bool plan_may_begin(const struct heap *heap, size_t size)
{
    unsigned number;
    return arena_for(heap, size, &number) != NULL;
}

/* Makes a heap the one that follows an arena. Two threads may each choose one for the same heap, or for the same pool of the plan; then at
 * most one of them has it. */
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

/* What it takes to begin; all of it is made before anything is changed. */
struct beginning {
    struct plan_follower *follower;
    struct span *spans[ZONES];
    struct run *runs[ZONES];
    uintptr_t start;
    size_t bytes[ZONES];
};

static bool prepare(struct beginning *beginning, const struct arena *arena, const struct plan *plan)
{
    const size_t wanted[ZONES] = {[ZONE_SMALL] = plan->header.small, [ZONE_LARGE] = plan->header.arena};
    beginning->follower = object_alloc(&followers);
    bool done = beginning->follower != NULL;
    for (int zone = 0; zone < ZONES; zone++) {
        beginning->bytes[zone] = (wanted[zone] + arena->granule - 1) / arena->granule * arena->granule;
        beginning->spans[zone] = span_create();
        beginning->runs[zone] = run_create();
        done = done && beginning->spans[zone] && beginning->runs[zone];
    }
    return done;
}

static void discard(struct beginning *beginning)
{
    for (int zone = 0; zone < ZONES; zone++) {
        span_destroy(beginning->spans[zone]);
        run_destroy(beginning->runs[zone]);
    }
    if (beginning->follower)
        object_free(&followers, beginning->follower);
}

static tarn_status claim(struct beginning *beginning, struct arena *arena, size_t size)
{
    mutex_lock(&arena->lock);
    beginning->start = arena_find_locked(arena, size);
    if (beginning->start)
        arena_claim_locked(arena, beginning->start, size);
    mutex_unlock(&arena->lock);
    return beginning->start ? TARN_OK
                            : failed(TARN_ERROR_OUT_OF_MEMORY, "no %zu bytes of addresses in a row are left", size);
}

/* Pieces for an arena, or for what is small beside it: first what lies unmapped with the pool, then new ones. On failure none are in the
 * list. */
static tarn_status get_pieces(struct store *store, size_t size, size_t largest, struct piece_list *list)
{
    mutex_lock(&store->arena->lock);
    pieces_from_unmapped_locked(store, size, size, list);
    mutex_unlock(&store->arena->lock);
    return pieces_create(store, size, largest, list);
}

/* Gets and maps the memory. On failure nothing is claimed, and what was got is unmapped or gone. */
static tarn_status map_memory(struct beginning *beginning, struct store *store)
{
    struct arena *arena = store->arena;
    struct piece_list pieces = {0}, large = {0};
    size_t size = beginning->bytes[ZONE_SMALL] + beginning->bytes[ZONE_LARGE];
    size_t profile = memory_config()->profile, least = cuts[profile].least;
    size_t piece = beginning->bytes[ZONE_LARGE] / cuts[profile].pieces / arena->granule * arena->granule;
    tarn_status status = claim(beginning, arena, size);
    if (status)
        return status;
    status = map_prepare(beginning->start, size);
    if (!status)
        status = get_pieces(store, beginning->bytes[ZONE_SMALL], SIZE_MAX / 2, &pieces);
    if (!status)
        status = get_pieces(store, beginning->bytes[ZONE_LARGE], piece > least ? piece : least, &large);
    pieces_append(&pieces, &large);
    if (!status)
        return pieces_map(arena, &pieces, beginning->start, 0);
    for (struct piece *created = pieces_pop(&pieces); created; created = pieces_pop(&pieces))
        (void)piece_release(created);
    arena_unclaim(arena, beginning->start, size);
    return status;
}

static void join_locked(struct heap *heap, const struct plan *plan, struct beginning *beginning)
{
    struct plan_follower *follower = beginning->follower;
    uintptr_t start = beginning->start;
    for (int zone = 0; zone < ZONES; zone++) { /* SMALL is the first: behind LARGE it can grow */
        size_t bytes = beginning->bytes[zone];
        if (!bytes)
            continue;
        struct span *span = heap_add_locked(heap, (enum zone_kind)zone, NULL, beginning->runs[zone],
                                            beginning->spans[zone], start, start + bytes);
        beginning->spans[zone] = NULL;
        beginning->runs[zone] = NULL;
        span_return_locked(heap, span);
        heap->gained += bytes;
        start += bytes;
    }
    *follower = (struct plan_follower){.plan = plan, .base = beginning->start + beginning->bytes[ZONE_SMALL]};
    beginning->follower = NULL;
    kept_close_locked(heap); /* what is kept would be found before the plan is asked */
    heap_plan_locked(heap, follower);
}

/* While moves are shared. */
static void begin(struct heap *heap, size_t size)
{
    unsigned number = 0;
    const struct plan *plan = arena_for(heap, size, &number);
    struct beginning beginning = {0};
    if (!plan || store_check(heap->store) || !arena_become(heap, plan, number))
        return;
    bool done = prepare(&beginning, heap->arena, plan) && map_memory(&beginning, heap->store) == TARN_OK;
    if (done) {
        mutex_lock(&heap->lock);
        join_locked(heap, plan, &beginning);
        mutex_unlock(&heap->lock);
    } else {
        log_write(LOG_ERRORS, "device %d: the plan is not followed: %s", heap->arena->device->number,
                  tarn_last_error());
    }
    /* Without memory it stays the only heap that might, until its own memory is given up: nobody tries again and again. */
    discard(&beginning);
}

void plan_begin(struct heap *heap, size_t size)
{
    struct error_before before;
    unsigned number;
    const struct plan *plan = arena_for(heap, size, &number);
    error_attempt_begin(&before);
    if (plan && observe_refuse_moving("the memory of a plan") == TARN_OK) {
        (void)take_what_is_left_behind(heap, plan->header.small + plan->header.arena); /* before new memory is made */
        move_begin(heap->arena);
        begin(heap, size);
        move_end(heap->arena);
    }
    error_attempt_end(&before, TARN_OK);
}

void plan_end_locked(struct heap *heap)
{
    struct plan_follower *follower = heap->plan;
    for (unsigned i = 0; i < PLAN_ARENAS_MOST; i++) {
        struct heap *self = heap;
        atomic_compare_exchange_strong(&heap->arena->planned[i], &self, NULL);
    }
    if (!follower)
        return;
    heap_plan_locked(heap, NULL);
    object_free(&followers, follower);
    if (!heap_is_left_behind_locked(heap))
        kept_open_locked(heap);
}

struct plan_counts plan_counts(void)
{
    return (struct plan_counts){atomic_load(&planned), atomic_load(&beside), atomic_load(&ordinary)};
}

/* Matching ---------------------------------------------------------------------------------------------------------- */

/* Where the plan has a request, at most `size` bytes of it; a free span that covers it, or NULL. */
static struct span *place_find_locked(const struct heap *heap, uint32_t number, size_t size, uintptr_t *start)
{
    const struct plan_follower *follower = heap->plan;
    const struct plan_request *request = &follower->plan->requests[number];
    if (size > bytes_of(request->size))
        return NULL;
    *start = follower->base + bytes_of(request->offset);
    struct span *span = span_ending_behind_locked(heap, *start);
    return span && span->start <= *start && span->start + span->size - *start >= size ? span : NULL;
}

/* How many of the last requests are those before a planned one, without a gap. */
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

static bool is_better(const struct plan_follower *follower, const struct match *one, const struct match *other)
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

/* The best of the planned requests [from, to) of a size. */
static struct match match_in_locked(const struct heap *heap, uint32_t from, uint32_t to, uint32_t units)
{
    const struct plan_follower *follower = heap->plan;
    struct match best = {.number = follower->plan->header.count};
    for (uint32_t i = from; i < to; i++) {
        uintptr_t start;
        if (follower->plan->requests[i].size != units)
            continue;
        struct match match = {i, place_find_locked(heap, i, bytes_of(units), &start) != NULL, agreement(follower, i)};
        if (best.number == follower->plan->header.count || is_better(follower, &match, &best))
            best = match;
    }
    return best;
}

/* The planned request that one is taken for, or the plan's count. Moves on in the plan where that is clear. */
static uint32_t match_locked(struct heap *heap, uint32_t units)
{
    struct plan_follower *follower = heap->plan;
    const uint32_t count = follower->plan->header.count, expected = follower->expected;
    if (follower->plan->requests[expected].size == units) {
        follower->misses = 0;
        return expected;
    }
    uint32_t from = expected < NEAR ? 0 : expected - NEAR, to = count - expected < NEAR ? count : expected + NEAR;
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

/* Beside the plan --------------------------------------------------------------------------------------------------- */

/* The best fitting stretch so far of what is free now, and not planned for a while. */
struct gap {
    size_t wanted, size; /* bytes */
    uintptr_t start;     /* 0: none yet */
    struct span *span;
};

static void gap_consider(struct gap *gap, struct span *span, uintptr_t start, uintptr_t end)
{
    if (end <= start || end - start < gap->wanted || (gap->start && gap->size <= end - start))
        return;
    *gap = (struct gap){gap->wanted, end - start, start, span};
}

/* Goes over the arena from low to high: its free spans, and in them what is planned for requests from the expected one to `end`. */
static struct gap gap_find_locked(const struct heap *heap, size_t wanted, uint32_t end)
{
    const struct plan_follower *follower = heap->plan;
    const struct plan *plan = follower->plan;
    const uintptr_t limit = follower->base + plan->header.arena;
    struct gap gap = {.wanted = wanted};
    struct span *span = span_ending_behind_locked(heap, follower->base);
    uintptr_t at = follower->base;
    for (uint32_t i = 0; i < plan->header.count && span; i++) {
        uint32_t number = plan->by_offset[i];
        if (number < follower->expected || number >= end)
            continue;
        uintptr_t from = follower->base + bytes_of(plan->requests[number].offset);
        uintptr_t to = from + bytes_of(plan->requests[number].size);
        while (span && span->start + span->size <= from) {
            gap_consider(&gap, span, at > span->start ? at : span->start, span->start + span->size);
            span = span_next_by_start_locked(span);
        }
        if (span)
            gap_consider(&gap, span, at > span->start ? at : span->start, from);
        at = to > at ? to : at;
        while (span && span->start + span->size <= at)
            span = span_next_by_start_locked(span);
    }
    for (; span && span->start < limit; span = span_next_by_start_locked(span)) {
        uintptr_t span_end = span->start + span->size;
        gap_consider(&gap, span, at > span->start ? at : span->start, span_end < limit ? span_end : limit);
    }
    return gap;
}

/* How many requests a block lives for that is like one near the expected; 0: not known. */
static uint32_t life_nearby(const struct plan_follower *follower, uint32_t units)
{
    const struct plan *plan = follower->plan;
    const uint32_t count = plan->header.count, expected = follower->expected;
    for (uint32_t away = 0; away < NEAR; away++) {
        const uint32_t both[] = {expected + away, expected - away};
        for (int i = 0; i < 2; i++) {
            uint32_t number = both[i]; /* below 0 is above all */
            if (number < count && plan->requests[number].size / 2 <= units && units / 2 <= plan->requests[number].size)
                return plan->requests[number].end - number;
        }
    }
    return 0;
}

static tarn_status take_beside_locked(struct heap *heap, const struct request *request, uint32_t number,
                                      struct span **span)
{
    const struct plan_follower *follower = heap->plan;
    const struct plan *plan = follower->plan;
    uint32_t life = number < plan->header.count ? plan->requests[number].end - number
                                                : life_nearby(follower, (uint32_t)(request->size / TARN_BLOCK_UNIT));
    if (!life || request->alignment > TARN_BLOCK_UNIT)
        return TARN_ERROR_OUT_OF_MEMORY;
    uint32_t left = plan->header.count - follower->expected;
    struct gap gap = gap_find_locked(heap, request->size, follower->expected + (life < left ? life : left));
    return gap.start ? span_take_place_locked(heap, gap.span, gap.start, request->size, span)
                     : TARN_ERROR_OUT_OF_MEMORY;
}

/* The same, once more where the place may be free as soon as it is known what other streams have finished. */
static struct span *place_get_locked(struct heap *heap, uint32_t number, size_t size, uintptr_t *start)
{
    struct span *span = place_find_locked(heap, number, size, start);
    return !span && heap->waiting && wait_collect_locked(heap) ? place_find_locked(heap, number, size, start) : span;
}

tarn_status plan_take_locked(struct heap *heap, const struct request *request, struct span **span)
{
    struct plan_follower *follower = heap->plan;
    tarn_status status = TARN_ERROR_OUT_OF_MEMORY;
    uintptr_t start = 0;
    if (request->size <= PLAN_LEAST_REQUEST || request->size / TARN_BLOCK_UNIT > UINT32_MAX)
        return status;
    uint32_t units = (uint32_t)(request->size / TARN_BLOCK_UNIT), number = match_locked(heap, units);
    struct span *place =
        number < follower->plan->header.count ? place_get_locked(heap, number, request->size, &start) : NULL;
    if (place && start % request->alignment == 0) {
        status = span_take_place_locked(heap, place, start, request->size, span);
        if (!status)
            atomic_fetch_add_explicit(&planned, 1, memory_order_relaxed);
    }
    remember(follower, units, number);
    if (status == TARN_ERROR_OUT_OF_MEMORY) {
        status = take_beside_locked(heap, request, number, span);
        atomic_fetch_add_explicit(status ? &ordinary : &beside, 1, memory_order_relaxed);
    }
    return status;
}
