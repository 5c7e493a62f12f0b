/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Growth of a heap, and its reverse, shedding. Both use one operation, the donation:
 *
 *   1. locked: it chooses whole pieces inside free spans, takes these spans, and creates every
 *      object that step 3 may need, so that step 3 cannot fail
 *   2. unlocked: the driver creates what is missing, maps pieces that are free in order but not
 *      idle a second time, unmaps idle pieces, and maps all of them at the new addresses
 *   3. locked: it cuts the spans and runs that gave pieces to what is still mapped, and joins the
 *      new memory to the heap
 *
 * A growth extends the free end of a run if that saves memory, otherwise it begins a new run.
 * Between steps 1 and 3, the claimed addresses and the taken spans belong to the growing thread. */
#include "memory/growth/growth.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/growth/ghost.h"
#include "memory/growth/registrable.h"
#include "memory/growth/segment.h"
#include "memory/heap/parked.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"

#define LEAST_PIECE ((size_t)2 << 20) /* bytes: enough for small blocks */
/* The small zone takes free memory of the large zone in whole pieces, which are larger than the
 * pieces that it creates. One small block then holds such a piece in place. To keep that small
 * compared with what small blocks take, a piece adds at most this part of the small zone to what is
 * missing, or LEAST_PIECE. */
#define SMALL_ZONE_PART 4

/* A heap moves memory within itself only while more than a part of the device's reserved memory is
 * free in the heap: less is not worth the driver calls. The part is 1/SLACK_PART until the heap has
 * moved MOVED_MOST times the memory that it gained in other ways. It is DEARER times as large until
 * the heap has moved DEARER times as much, and so on, up to 1/SLACK_MOST: 1/64 until 3 times, 1/16
 * until 12 times, 1/4 until 48 times. After that the heap moves nothing. So moving ends, however
 * long the program runs. Loans of other streams' heaps end with the first of these bounds, at 3
 * times. The bounds do not hold in the second attempt of a growth, nor while a plan is in force. */
#define MOVED_MOST 3
#define SLACK_PART 64
#define SLACK_MOST 4
#define DEARER 4

/* A heap lends memory to another stream's heap only for at least this part of the device's reserved
 * memory. A loan of less is not worth the driver calls. A heap *regrets* a loan if it grows after
 * it. With many streams of changing needs, small loans go round in circles. So regrets make the
 * least loan larger: it has doubled after REGRETS_FELT of them, and so on, up to a 48th after
 * REGRETS_MOST. */
#define LOAN_PART 768
#define REGRETS_FELT 16
#define REGRETS_MOST 64
/* A piece of 2 MiB costs as many driver calls as one of 32 MiB. So after this many regrets a heap
 * lends no less than a small piece, however little is reserved. */
#define REGRETS_OF_LITTLE 8

/* One live block holds a whole piece in place. To keep that small compared with the program's
 * memory, however large the device is, a piece is at most this part of what is reserved, or this
 * many bytes. It is half of that where much is free in parts of pieces, which cannot move: more
 * than PARTS_MOST bytes and 1/SLACK_PART of the device's reserved memory. */
#define RESERVED_PART 512
#define SMALL_PIECE ((size_t)32 << 20)
#define PARTS_MOST ((size_t)128 << 20)
/* Each piece costs driver calls, so memory for one block of at least WHOLE_PIECE bytes is one piece
 * while the heap's blocks stay: while at most this part of the bytes that it gained was freed. One
 * block that later lies there holds all of the piece in place. So such a piece is at most
 * WHOLE_TIMES what piece_largest_locked() returns, which is a 64th of an empty device. */
#define WHOLE_PIECE ((size_t)256 << 20)
#define WHOLE_TIMES 20
#define RETURNED_PART 32

/* How much a growth creates, and when it moves pieces within the heap. */
struct profile {
    size_t least_piece[ZONES]; /* the least bytes that are created */
    /* Of what a growth creates a piece is this part; 0: largest_locked(). */
    size_t part;
    bool moves_freely; /* always, before anything is created */
    /* Blocks go where they hold little in place, also while there is room. */
    bool saves;
};

/* With 20 MiB the cost of a piece is small for its size; c10 allocates as much. */
static const struct profile unplanned = {
    .least_piece = {[ZONE_SMALL] = LEAST_PIECE, [ZONE_LARGE] = PIECE_LEAST_LARGE}};

/* With a plan only the missing bytes are created, after free memory of the plan's arena was taken.
 * Otherwise requests that differ from the plan, and those of heaps that follow none, would need
 * memory in addition to it. In many pieces: the smaller a piece, the less memory one live block
 * holds in place. */
static const struct profile planned = {.part = 32, .moves_freely = true, .saves = true};

static const struct profile *profile_now(void)
{
    return atomic_load_explicit(&plan_now, memory_order_relaxed) ? &planned : &unplanned;
}

/* A free span that gives up the pieces at [start, end), which lie inside it. */
struct donor {
    struct donor *next;
    struct span *span;
    uintptr_t start, end;
    struct span *spare_spans[2]; /* for the pieces, and for the rest behind them */
    struct run *spare_run;       /* for the part of the run behind them */
    bool unmapped;

    /* The span is free in order, not idle: its pieces are mapped a second time. */
    bool alias;
    struct ghost *ghost; /* for the addresses left behind then */
};

static struct object_pool donors = OBJECT_POOL(struct donor);

struct donation {
    struct donor *first, **end;
    size_t bytes;   /* of all donors */
    size_t aliases; /* of these, bytes to be mapped a second time */
    uint64_t batch; /* the latest of the memory mapped so */
};

struct growth {
    struct heap *heap;
    enum zone_kind zone;
    size_t wanted;          /* bytes that one free span must have in the end */
    struct span *base;      /* the free end of a run, taken; NULL for a new run */
    uintptr_t start;        /* of the claimed addresses */
    size_t size;            /* of them: aliases, unmapped pieces, donors, and what is to create */
    size_t create, padding; /* bytes to create, and of these, bytes that are not necessary */
    size_t largest;         /* bytes: about the largest piece that is created */
    size_t borrowed;        /* bytes of other streams */
    size_t reserved;        /* bytes of the device when the growth began */
    bool spare;             /* the second attempt, which creates only what is necessary */
    bool made_room;         /* unmapped pieces were given back for it */
    bool freely;            /* memory is moved whatever that costs */
    bool borrows;           /* memory may come from elsewhere in the pool */
    struct donation donation;
    struct piece_list pieces; /* that were unmapped; in the end all */
    struct span *span;        /* new span objects for step 3 */
    struct run *run;
    size_t aliased; /* bytes mapped a second time, from start on */
    /* For those that can be neither used nor unmapped; then `aliased` is their size. */
    struct ghost *ghost;
};

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Bytes: about the largest piece of `create` bytes that a growth without a plan creates. `parts`:
 * much is free in parts of pieces. */
static size_t largest_locked(const struct heap *heap, size_t create, bool parts)
{
    const struct arena *arena = heap->arena;
    size_t beside = round_up(arena->reserved / RESERVED_PART, arena->granule),
           largest = piece_largest_locked(arena), whole = lesser(create, largest * WHOLE_TIMES);
    if (whole >= WHOLE_PIECE && heap->growths.returned <= heap->growths.gained / RETURNED_PART)
        return whole;
    if (beside < SMALL_PIECE)
        beside = SMALL_PIECE;
    if (parts)
        beside = round_up(beside / 2, arena->granule);
    return lesser(largest, beside);
}

/* Bytes: how much more than what is missing a growth of the small zone takes in free pieces. A plan
 * keeps larger pieces for large blocks. */
static size_t small_excess_locked(const struct heap *heap)
{
    size_t part = heap->following ? 0 : heap->zones.of[ZONE_SMALL].bytes / SMALL_ZONE_PART;
    return part > LEAST_PIECE ? part : LEAST_PIECE;
}

/* More than this part of the device's reserved memory must be free in the heap, so that a growth
 * moves memory within it. 0: none is moved. */
static size_t slack_part_locked(const struct heap *heap)
{
    size_t part = SLACK_PART, moved = heap->growths.moved / MOVED_MOST;
    for (; moved > heap->growths.gained; moved /= DEARER)
        part /= DEARER;
    return part < SLACK_MOST ? 0 : part;
}

/* Step 1 of the donation ----------------------------------------------------------------------- */

static void donor_destroy(struct donor *donor)
{
    span_destroy(donor->spare_spans[0]);
    span_destroy(donor->spare_spans[1]);
    run_destroy(donor->spare_run);
    ghost_destroy(donor->ghost);
    object_free(&donors, donor);
}

static struct donor *donor_create(bool alias)
{
    struct donor *donor = object_alloc(&donors);
    if (!donor)
        return NULL;
    donor->spare_spans[0] = span_create();
    donor->spare_spans[1] = span_create();
    donor->spare_run = run_create();
    donor->ghost = alias ? ghost_create() : NULL;
    if (donor->spare_spans[0] && donor->spare_spans[1] && donor->spare_run &&
        (donor->ghost || !alias))
        return donor;
    donor_destroy(donor);
    return NULL;
}

/* A donor's range ends at an anchored piece. Returns the rest behind that piece, a separate free
 * span that may donate too, or NULL. */
static struct span *part_at_anchor_locked(struct heap *heap, struct donor *donor)
{
    struct span *span = donor->span, *rest = donor->spare_spans[1];
    if (donor->end == span->start + span->size ||
        !piece_is_anchored(arena_piece(heap->arena, donor->end)))
        return NULL;
    donor->spare_spans[1] = NULL; /* nothing remains behind the range now */
    span_cut(span, donor->end - span->start, rest);
    span_return_locked(heap, rest);
    return rest;
}

/* Holds one free span as a donor of up to `wanted` bytes, or a little more, at most `most`: an idle
 * span, or with `alias` one that is not idle. The rest behind an anchored piece is returned in
 * `next`. */
static bool donate_locked(struct heap *heap, struct span *span, size_t wanted, size_t most,
                          bool alias, struct donation *donation, struct span **next)
{
    uintptr_t start, end;
    *next = NULL;
    if (span->size < heap->arena->granule || span_idle_locked(heap, span) == alias)
        return true;
    span_whole_pieces(heap->arena, span, wanted, most, &start, &end);
    if (start == end)
        return true;
    struct donor *donor = donor_create(alias);
    if (!donor)
        return false;
    donor->span = span;
    donor->start = start;
    donor->end = end;
    donor->alias = alias;
    if (alias) {
        donation->aliases += end - start;
        donation->batch = span->batch > donation->batch ? span->batch : donation->batch;
    }
    span_remove_locked(heap, span);
    *donation->end = donor;
    donation->end = &donor->next;
    donation->bytes += end - start;
    *next = part_at_anchor_locked(heap, donor);
    return true;
}

static void zone_collect_locked(struct heap *heap, enum zone_kind zone, size_t wanted, size_t most,
                                bool alias, struct donation *donation)
{
    for (struct tree_node *node = tree_last(&heap->zones.of[zone].free), *next; node; node = next) {
        next = tree_previous(node);
        if (donation->bytes >= wanted)
            return;
        struct span *span = TREE_ENTRY(node, struct span, by_size);
        while (span && donation->bytes < wanted)
            if (!donate_locked(heap, span, wanted - donation->bytes, most - donation->bytes, alias,
                               donation, &span))
                return; /* no host memory: use the donors found so far */
    }
}

/* Collects donors from both zones, beginning with `first`; in each zone the largest free spans
 * first. So few spans are cut. Each cut leaves a part of a piece behind that is of little use. */
static void donors_collect_locked(struct heap *heap, enum zone_kind first, size_t wanted,
                                  size_t most, bool alias, struct donation *donation)
{
    if (store_is_held(heap->store))
        return; /* graphs use the addresses, also free ones; or the addresses have no memory */
    zone_collect_locked(heap, first, wanted, most, alias, donation);
    zone_collect_locked(heap, zone_other(first), wanted, most, alias, donation);
}

/* For a growth: first idle memory, then memory that is free in the order of the stream. */
static void donations_collect_locked(struct growth *growth, size_t wanted, size_t most)
{
    struct heap *heap = growth->heap;
    donors_collect_locked(heap, growth->zone, wanted, most, false, &growth->donation);
    if (store_has(heap->store, STORE_REMAPS))
        donors_collect_locked(heap, growth->zone, wanted, most, true, &growth->donation);
}

/* Step 2 --------------------------------------------------------------------------------------- */

/* Unmaps the pieces of every idle donor into `pieces`; continues after a failure and returns the
 * first one. */
static tarn_status donors_unmap(struct arena *arena, struct donation *donation,
                                struct piece_list *pieces)
{
    tarn_status first = TARN_OK;
    for (struct donor *donor = donation->first; donor; donor = donor->next) {
        if (donor->alias)
            continue;
        tarn_status status = pieces_unmap(arena, donor->start, donor->end - donor->start, pieces);
        if (status) {
            first = first ? first : status;
            continue;
        }
        donor->unmapped = true;
    }
    return first;
}

/* Step 3 --------------------------------------------------------------------------------------- */

/* Cuts the removed pieces out of a donor's span; the rest on either side is free again. */
static void donor_cut_locked(struct heap *heap, struct donor *donor)
{
    struct span *left = NULL, *gone = donor->span, *right = NULL;
    if (donor->start > gone->start) {
        left = gone;
        gone = donor->spare_spans[0];
        donor->spare_spans[0] = NULL;
        span_cut(left, donor->start - left->start, gone);
    }
    if (donor->end < gone->start + gone->size) {
        right = donor->spare_spans[1];
        donor->spare_spans[1] = NULL;
        span_cut(gone, donor->end - gone->start, right);
    }
    span_leave_locked(heap, gone, &donor->spare_run);
    if (left)
        span_return_locked(heap, left);
    if (right)
        span_return_locked(heap, right);
}

/* The pieces of a donor that is not idle are also mapped at `address`, and belong there from now
 * on. */
static void donor_leave_locked(struct heap *heap, struct donor *donor, uintptr_t address)
{
    size_t size = donor->end - donor->start;
    pieces_move(heap->arena, donor->start, size, address);
    ghost_begin_locked(heap, donor->ghost, donor->start, size, donor->span->batch);
    donor->ghost = NULL;
    donor_cut_locked(heap, donor);
}

/* Ends a donation: cuts the spans whose pieces are gone, and frees the others again. Pieces that
 * were mapped a second time are at `aliases` and behind; 0 if that failed. The addresses are
 * unclaimed only now, because until here they belong to the heap's runs, and no other run may begin
 * there. */
static void donors_settle_locked(struct heap *heap, struct donation *donation, uintptr_t aliases)
{
    for (struct donor *donor = donation->first, *next; donor; donor = next) {
        next = donor->next;
        if (donor->alias && aliases) {
            size_t size = donor->end - donor->start;
            donor_leave_locked(heap, donor, aliases);
            aliases += size;
        } else if (donor->unmapped) {
            donor_cut_locked(heap, donor);
            heap_unclaim_locked(heap, donor->start, donor->end - donor->start);
        } else {
            span_return_locked(heap, donor->span);
        }
        donor_destroy(donor);
    }
    donation->first = NULL;
}

/* Growth --------------------------------------------------------------------------------------- */

/* Chooses where to grow: behind the run whose free end leaves the least to map, otherwise in a new
 * run. Returns the bytes to map at least, and the room for more. Arena lock too. */
static tarn_status growth_place_locked(struct growth *growth, size_t *need, size_t *room)
{
    struct arena *arena = growth->heap->arena;
    size_t all = round_up(growth->wanted, arena->granule);
    *need = SIZE_MAX;
    for (struct run *run = growth->heap->zones.of[growth->zone].runs; run; run = run->next) {
        size_t tail = run->last->state == SPAN_FREE ? run->last->size : 0;
        size_t missing = round_up(growth->wanted - tail, arena->granule);
        if (tail >= growth->wanted || missing >= *need || run->end == arena->base + arena->size)
            continue;
        size_t found = arena_room_above_locked(arena, run->end);
        if (found < missing)
            continue;
        *need = missing;
        *room = found;
        growth->start = run->end;
        growth->base = tail ? run->last : NULL;
    }
    if (*need != SIZE_MAX)
        return TARN_OK;
    growth->base = NULL;
    growth->start = arena_find_locked(arena, all);
    if (!growth->start)
        return failed(TARN_ERROR_OUT_OF_MEMORY,
                      "no address range of %zu bytes is free on device %d", all,
                      arena->device->number);
    *need = all;
    *room = arena_room_above_locked(arena, growth->start);
    return TARN_OK;
}

/* Chooses addresses and pieces. In the second attempt the small zone may take pieces of any size,
 * and created memory is not rounded up. */
static tarn_status growth_plan_locked(struct growth *growth)
{
    struct heap *heap = growth->heap;
    struct arena *arena = heap->arena;
    const struct profile *profile = profile_now();
    size_t need = 0, room = 0;
    heap_learn_locked(heap, true);

    mutex_lock(&arena->lock);
    tarn_status status = growth_place_locked(growth, &need, &room);
    if (!status) {
        bool small = growth->zone == ZONE_SMALL && !growth->spare;
        size_t most = small ? lesser(room, need + small_excess_locked(heap)) : room;
        heap->growths.saves = profile->saves || memory_is_short_locked(arena);
        pieces_from_unmapped_locked(heap->store, need, most, &growth->pieces);
        if (growth->base)
            span_remove_locked(heap, growth->base);
        size_t missing = growth->pieces.bytes < need ? need - growth->pieces.bytes : 0;
        size_t part = slack_part_locked(heap);
        bool slack = part && heap->zones.free_bytes > arena->reserved / part;
        growth->reserved = arena->reserved;
        growth->freely = growth->spare || profile->moves_freely;
        growth->borrows = growth->freely || part == SLACK_PART;
        bool apart = heap->following && small; /* the plan's memory is for large blocks */
        bool moves = !apart && (growth->freely || slack) && !store_is_held(heap->store);
        if (moves)
            donations_collect_locked(growth, missing, most - growth->pieces.bytes);
        size_t left = heap->zones.free_bytes; /* in parts of pieces, if whole ones move */
        bool parts = moves && left > PARTS_MOST && left > arena->reserved / SLACK_PART;

        size_t total = growth->pieces.bytes + growth->donation.bytes;
        growth->create = total < need ? need - total : 0;
        size_t least = round_up(profile->least_piece[growth->zone], arena->granule);
        if (growth->create && growth->create < least && !growth->spare) {
            size_t padded = least < room - total ? least : room - total;
            growth->padding = padded - growth->create;
            growth->create = padded;
        }
        growth->size = total + growth->create;
        growth->largest = profile->part ? round_up(growth->create / profile->part, arena->granule)
                                        : largest_locked(heap, growth->create, parts);
        arena_claim_locked(arena, growth->start, growth->size);
    }
    mutex_unlock(&arena->lock);
    return status;
}

/* Step 1: makes what step 3 may need, and the plan. */
static tarn_status growth_plan(struct growth *growth)
{
    struct heap *heap = growth->heap;
    growth->donation.end = &growth->donation.first;
    growth->span = span_create();
    growth->run = run_create();
    growth->ghost = ghost_create();
    if (!growth->span || !growth->run || !growth->ghost)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    mutex_lock(&heap->lock);
    tarn_status status = growth_plan_locked(growth);
    struct ghost *ghosts = ghosts_take_locked(heap);
    mutex_unlock(&heap->lock);
    /* Also if this growth failed: the next one may use their addresses. */
    (void)ghosts_end(heap, ghosts);
    return status;
}

/* After a failed creation: asks for less, or makes room on the device. False if neither helps. */
static bool growth_makes_do(struct growth *growth)
{
    if (growth->padding) {
        growth->create -= growth->padding;
        growth->size -= growth->padding;
        arena_unclaim(growth->heap->arena, growth->start + growth->size, growth->padding);
        growth->padding = 0;
        return true;
    }
    if (!growth->spare || growth->made_room)
        return false;
    growth->made_room = true; /* the unmapped pieces are too large for the available addresses */
    return store_make_room(growth->heap->store, growth->create);
}

/* Maps the pieces of donors that are not idle a second time, from the start of the claimed
 * addresses on. */
static tarn_status growth_alias(struct growth *growth)
{
    struct arena *arena = growth->heap->arena;
    for (struct donor *donor = growth->donation.first; donor; donor = donor->next) {
        size_t size = donor->end - donor->start, left = 0;
        if (!donor->alias)
            continue;
        tarn_status status =
            pieces_alias(arena, donor->start, size, growth->start + growth->aliased, &left);
        growth->aliased += status ? left : size;
        if (status)
            return status;
    }
    return TARN_OK;
}

/* Unmaps and unclaims memory that was mapped a second time. Memory that the driver does not unmap
 * becomes a ghost that is idle at once. */
static void growth_alias_undo(struct growth *growth)
{
    struct arena *arena = growth->heap->arena;
    size_t aliased = growth->aliased;
    if (aliased && arena_unmap(arena, growth->start, aliased) == TARN_OK) {
        heap_unclaim(growth->heap, growth->start, aliased);
        growth->aliased = 0;
    }
    if (growth->donation.aliases > aliased)
        heap_unclaim(growth->heap, growth->start + aliased, growth->donation.aliases - aliased);
}

/* The least bytes of a loan to a growth, of a heap with so many regrets. */
static size_t least_loan(const struct growth *growth, unsigned regrets)
{
    size_t least = growth->reserved / LOAN_PART << regrets / REGRETS_FELT;
    size_t small =
        regrets < REGRETS_OF_LITTLE ? SMALL_PIECE * regrets / REGRETS_OF_LITTLE : SMALL_PIECE;
    least += least * (regrets % REGRETS_FELT) / REGRETS_FELT;
    if (growth->freely)
        return 0;
    return least > small ? least : small;
}

static bool heap_lends_to_locked(struct heap *heap, const struct growth *growth, size_t wanted)
{
    size_t least = least_loan(growth, heap->growths.regrets);
    if (wanted < least)
        return false;
    parked_flush_locked(heap); /* parked blocks are not counted as free */
    return heap->zones.free_bytes >= least;
}

/* As heap_shed_rested(), for pieces of at most `most` bytes in total, of a store that is not plain.
 * With a growth of another heap: lends them to it. */
static tarn_status heap_give_up(struct heap *heap, const struct store *store, size_t wanted,
                                size_t most, const struct growth *growth, uint64_t rested,
                                size_t *given)
{
    struct donation donation = {.end = &donation.first};
    struct piece_list pieces = {0};

    *given = 0;
    mutex_lock(&heap->lock);
    if (heap->store != store || (growth && !heap_lends_to_locked(heap, growth, wanted))) {
        heap_lends_end_locked(heap);
        mutex_unlock(&heap->lock);
        return TARN_OK;
    }
    heap_learn_locked(heap, true);
    heap->batches.rested = rested;
    donors_collect_locked(heap, zone_of(wanted), wanted, most, false, &donation);
    heap->batches.rested = 0;
    if (rested)
        heap->rest.grown_start = heap->rest.grown_end = 0;
    struct ghost *ghosts = ghosts_take_locked(heap);
    mutex_unlock(&heap->lock);

    (void)ghosts_end(heap, ghosts); /* before their pieces are moved */
    tarn_status status = donors_unmap(heap->arena, &donation, &pieces);
    *given = pieces.bytes;
    pieces_to_unmapped(heap->arena, &pieces);

    mutex_lock(&heap->lock);
    donors_settle_locked(heap, &donation, 0);
    heap->growths.lent += growth ? *given : 0;
    if (!zones_have_runs(&heap->zones)) {
        /* Starts again, as the next repetition of the program does. */
        heap->growths = (struct growths){0};
        hooks.plan_end_locked(heap);
    }
    heap_lends_end_locked(heap);
    mutex_unlock(&heap->lock);
    return status;
}

/* Takes idle memory of the pool's other streams instead of creating, in pieces that are not larger
 * than what is missing: from larger pieces the other stream would lose more, and have to create it
 * again. Not if the settings demand that a request above the limit fails before memory of other
 * streams is touched. */
static void growth_borrow(struct growth *growth)
{
    struct heap *heap = growth->heap;
    struct arena *arena = heap->arena;
    size_t before = growth->pieces.bytes, wanted = before + growth->create;
    struct heap_walk walk = {.arena = arena, .set = &heap->store->sets.lenders};
    while (growth->pieces.bytes < wanted &&
           wanted - growth->pieces.bytes >= least_loan(growth, 0) && heap_walk_next(&walk)) {
        size_t given = 0, missing = wanted - growth->pieces.bytes;
        if (walk.heap == heap ||
            heap_give_up(walk.heap, heap->store, missing, missing, growth, 0, &given) || !given) {
            walk.vain++;
            continue;
        }
        mutex_lock(&arena->lock);
        pieces_from_unmapped_locked(heap->store, wanted, wanted, &growth->pieces);
        mutex_unlock(&arena->lock);
    }
    growth->borrowed = growth->pieces.bytes - before;
    growth->create -= growth->borrowed;
    growth->padding = growth->padding < growth->create ? growth->padding : growth->create;
}

/* Step 2: the driver calls; memory is created before anything is unmapped. On failure the claimed
 * addresses are unclaimed, pieces that were unmapped or created are in the store's list of unmapped
 * pieces, and pieces of donors that are not idle are where they were. */
static tarn_status growth_map(struct growth *growth)
{
    struct arena *arena = growth->heap->arena;
    struct piece_list created = {0};
    size_t left = 0;
    uintptr_t rest = growth->start + growth->donation.aliases;

    tarn_status status = map_prepare(growth->start, growth->size);
    if (!status && growth->create && growth->borrows && !memory_config()->throw_on_cudamalloc_oom)
        growth_borrow(growth);
    if (!status)
        status = device_check(arena->device); /* the device may have been lost while borrowing */
    if (!status && growth->create) {
        do
            status = pieces_create(growth->heap->store, growth->create, growth->largest,
                                   CHARGE_GROWTH, &created);
        while (status == TARN_ERROR_OUT_OF_MEMORY && growth_makes_do(growth));
    }
    if (!status)
        status = growth_alias(growth);
    if (!status)
        status = donors_unmap(arena, &growth->donation, &growth->pieces);
    /* Highest: rounded-up memory stays free at the end of the run. */
    pieces_append(&growth->pieces, &created);
    if (!status) {
        status = pieces_map(arena, &growth->pieces, rest, growth->donation.aliases, &left);
    } else {
        pieces_to_unmapped(arena, &growth->pieces);
    }
    if (status) {
        heap_unclaim(growth->heap, rest + left, growth->start + growth->size - rest - left);
        growth_alias_undo(growth);
    }
    return status;
}

void growth_count_locked(struct heap *heap, size_t created, size_t borrowed, size_t moved)
{
    struct growths *growths = &heap->growths;
    growths->gained += created;
    growths->moved += moved + borrowed;
    if (growths->lent && created + borrowed) { /* the heap needs after all what it has lent */
        growths->regrets += growths->regrets < REGRETS_MOST;
        growths->lent = 0;
    }
}

/* The new memory joins the heap, in one free span with the free memory before it. */
static void growth_join_locked(struct growth *growth)
{
    struct heap *heap = growth->heap;
    struct span *span = heap_add_locked(heap, growth->zone, growth->base, growth->run, growth->span,
                                        growth->start, growth->start + growth->size);
    growth_count_locked(heap, growth->size - growth->donation.bytes - growth->borrowed,
                        growth->borrowed, growth->donation.bytes);
    heap_rest_grown_locked(heap, growth->start, growth->size);
    growth->span = NULL;
    if (!growth->base)
        growth->run = NULL;
    span->batch = growth->donation.batch;
    span_return_locked(heap, span);
}

/* Frees the free end that the growth held. It may merge with memory that was freed next to it
 * meanwhile. */
static void growth_let_go_of_base_locked(struct growth *growth)
{
    if (!growth->base)
        return;
    struct run *run = growth->base->run;
    span_return_locked(growth->heap, growth->base);
    growth->base = run->last;
}

/* Step 3, with the outcome of step 2. */
static void growth_settle_locked(struct growth *growth, tarn_status status)
{
    donors_settle_locked(growth->heap, &growth->donation, status ? 0 : growth->start);
    if (status && growth->aliased) {
        ghost_begin_locked(growth->heap, growth->ghost, growth->start, growth->aliased, 0);
        growth->ghost = NULL;
    }
    growth_let_go_of_base_locked(growth);
    if (!status)
        growth_join_locked(growth);
}

static void growth_finish(struct growth *growth)
{
    span_destroy(growth->span);
    run_destroy(growth->run);
    ghost_destroy(growth->ghost);
}

/* Two attempts. The second one is made only after TARN_ERROR_OUT_OF_MEMORY, when the device or a
 * limit has no room, or no addresses are free. It moves memory within the heap and takes loans of
 * any size, whatever the bounds above say; with throw_on_cudamalloc_oom it takes none. It creates
 * no more than is missing. If that fails, it releases unmapped pieces of the store once, to make
 * room. */
static tarn_status pieces_grow(struct heap *heap, enum zone_kind zone, size_t size,
                               size_t alignment, struct span **span)
{
    tarn_status status = TARN_ERROR_OUT_OF_MEMORY;
    for (int attempt = 0; attempt < 2 && status == TARN_ERROR_OUT_OF_MEMORY; attempt++) {
        struct growth growth = {.heap = heap,
                                .zone = zone,
                                .spare = attempt == 1,
                                .wanted = size + alignment - TARN_BLOCK_UNIT};
        status = growth_plan(&growth);
        if (!status) {
            status = growth_map(&growth);
            shared_lock_shared(&heap->arena->mapping);
            mutex_lock(&heap->lock);
            growth_settle_locked(&growth, status);
            shared_unlock(&heap->arena->mapping);
            if (!status)
                status = span_take_locked(heap, zone, size, alignment, span);
            mutex_unlock(&heap->lock);
        }
        growth_finish(&growth);
    }
    return status;
}

tarn_status heap_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                      struct span **span)
{
    const struct store_traits *kind = &heap->store->kind;
    if (!kind->pieces)
        return segment_grow(heap, zone, size, alignment, span);
    return kind->whole ? registrable_grow(heap, zone, size, alignment, span)
                       : pieces_grow(heap, zone, size, alignment, span);
}

tarn_status heap_shed(struct heap *heap, struct store *store, size_t wanted, size_t *given,
                      struct run **leaving)
{
    struct run *own = NULL;
    *given = 0;
    if (store->kind.pieces)
        return heap_give_up(heap, store, wanted, SIZE_MAX, NULL, 0, given);
    mutex_lock(&heap->lock);
    if (heap->store == store)
        segments_detach_locked(heap, wanted, given, store_calls_back(store) ? leaving : &own);
    mutex_unlock(&heap->lock);
    return segments_release(own);
}

tarn_status heap_shed_rested(struct heap *heap, struct store *store, uint64_t rested, size_t *given)
{
    return heap_give_up(heap, store, SIZE_MAX, SIZE_MAX, NULL, rested, given);
}
