/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks the invariants that the tops of heap.h and arena.h state. Changes nothing. */
#include "memory/watch/verify.h"
#include "base/log.h"
#include "base/status.h"
#include "memory/growth/ghost.h"
#include "memory/heap/cache.h"
#include "memory/heap/following.h"
#include "memory/heap/hands.h"
#include "memory/range/range.h"

#include <string.h>

#define BROKEN(address, text)                                                              \
    failed(TARN_ERROR_INTERNAL, "heap of stream slot %u, at %#zx: %s", heap->stream->slot, \
           (size_t)(address), text)

struct sums {
    size_t free_bytes, waiting_bytes;
    bool alone; /* no other thread runs, so everything can be read */
};

/* How many entries of a magazine are a slot; 0 or 1 is right. */
static unsigned in_magazine(const struct slab *slab, unsigned slot)
{
    const struct magazine *magazine = slab_owner(slab)->magazines[slab->class];
    unsigned times = 0;
    for (unsigned i = 0; i < magazine->top; i++)
        times += magazine->entries[i].address == slab_address(slab, slot) &&
                 magazine->entries[i].note == &slab->notes[slot];
    return times;
}

static tarn_status slab_verify(struct heap *heap, const struct span *span, struct sums *sums)
{
    const struct slab *slab = span->slab;
    if (!slab || slab->span != span || slab->start != span->start || slab_owner(slab)->heap != heap)
        return BROKEN(span->start, "a slab's span, slab and cache do not name each other");
    unsigned homes = 0;
    for (unsigned slot = 0; slot < slab->slots; slot++) {
        uint32_t note = slab_note_of(slab, slot);
        unsigned home = slab->home[slot / 64] >> (slot % 64) & 1;
        homes += home;
        if (home + in_magazine(slab, slot) + slab_is_taken(slab, slot) != 1)
            return BROKEN(slab_address(slab, slot), "a slot is not in just one place");
        if (!slab_is_taken(slab, slot) && (note & NOTE_PENDING || slab_is_freed(slab, slot)))
            return BROKEN(slab_address(slab, slot), "a slot was freed or waits that is not taken");
        if ((note & NOTE_STATE) == NOTE_PENDING)
            sums->waiting_bytes += slab->slot_size;
    }
    if (homes != slab->homes)
        return BROKEN(span->start, "a slab's count of slots at home is wrong");
    for (size_t offset = 0; offset < span->size; offset += MAP_PAGE)
        if (map_get(span->start + offset) != map_entry_of_slab(slab))
            return BROKEN(span->start + offset, "a slab's page is not in the page map");
    const struct slab *listed = slab_owner(slab)->listed[slab->class];
    while (listed && listed != slab)
        listed = listed->next;
    if ((listed != NULL) != (slab->homes != 0))
        return BROKEN(span->start, "a slab is in its class's list exactly while a slot is at home");
    return TARN_OK;
}

static bool in_tree(const struct zone *zone, const struct span *wanted)
{
    for (struct tree_node *node = tree_first(&zone->free); node; node = tree_next(node))
        if (TREE_ENTRY(node, struct span, by_size) == wanted)
            return true;
    return false;
}

/* Whether the entry of a block's page is the block, an earlier block of the page, or MAP_SHARED. */
static bool is_entered(const struct span *span)
{
    const struct span *entry = map_span(map_get(span->start));
    if (map_get(span->start) == MAP_SHARED)
        return true;
    return entry && entry->run == span->run && entry->start <= span->start &&
           entry->start / MAP_PAGE == span->start / MAP_PAGE;
}

static tarn_status span_verify(struct heap *heap, enum zone_kind zone, const struct span *span,
                               struct sums *sums)
{
    if (span->zone != zone || atomic_load(&span->heap) != heap)
        return BROKEN(span->start,
                      "a span names another heap or zone than the one whose list it is in");
    if (span->size == 0 || span->size % TARN_BLOCK_UNIT)
        return BROKEN(span->start, "a span's size is not a multiple of the block unit");
    switch ((enum span_state)span->state) {
    case SPAN_FREE:
        if (span->next && span->next->state == SPAN_FREE)
            return BROKEN(span->start, "two free spans touch");
        if (!in_tree(&heap->zones.of[zone], span))
            return BROKEN(span->start, "a free span is not in its zone's tree");
        if (heap->following && zone == ZONE_LARGE &&
            span_ending_behind_locked(heap->following, span->start) != span)
            return BROKEN(span->start, "a free span is not found by its address");
        sums->free_bytes += span->size;
        return TARN_OK;
    case SPAN_TAKEN:
        return sums->alone ? BROKEN(span->start, "a span is taken although nothing runs") : TARN_OK;
    case SPAN_BLOCK:
    case SPAN_PENDING:
        if (!is_entered(span))
            return BROKEN(span->start, "a block is not in the page map");
        if (span->state == SPAN_PENDING)
            sums->waiting_bytes += span->size;
        return TARN_OK;
    case SPAN_SLAB:
        return sums->alone ? slab_verify(heap, span, sums) : TARN_OK;
    }
    return BROKEN(span->start, "a span has no state");
}

static tarn_status run_verify(struct heap *heap, enum zone_kind zone, const struct run *run,
                              struct sums *sums)
{
    uintptr_t address = run->start;
    const struct span *before = NULL;
    for (const struct span *span = run->first; span; before = span, span = span->next) {
        if (span->start != address || span->previous != before || span->run != run)
            return BROKEN(span->start, "a run's spans have a gap, or their links do not agree");
        address += span->size;
        tarn_status status = span_verify(heap, zone, span, sums);
        if (status)
            return status;
    }
    if (address != run->end || run->last != before)
        return BROKEN(run->end, "a run's end is not that of its last span");
    if (!heap->store->kind.pieces &&
        (run->heap != heap || run->store != heap->store || run->large != (zone == ZONE_LARGE)))
        return BROKEN(run->start, "a segment names another heap, store or zone than its own");
    bool pieces = heap->store->kind.pieces && !atomic_load(&heap->store->suspended);
    for (address = run->start; sums->alone && pieces && address < run->end;) {
        const struct piece *piece = arena_piece(heap->arena, address);
        if (!piece || piece->address != address || address + piece->size > run->end)
            return BROKEN(address, "a run is not made of whole pieces");
        if (piece->store != heap->store)
            return BROKEN(address, "a heap has a piece of another pool");
        address += piece->size;
    }
    return TARN_OK;
}

/* A parked block has the state of a block and the remembered size and start, and is not live. */
static tarn_status parked_verify(const struct heap *heap)
{
    for (unsigned i = 0; i < atomic_load(&heap->parked.count); i++) {
        const struct span *span = heap->parked.blocks[i].span;
        if (span->state != SPAN_BLOCK || span->start != heap->parked.blocks[i].start ||
            span->size != heap->parked.blocks[i].size || atomic_load(&span->heap) != heap ||
            atomic_load(&span->live) || span->uses)
            return BROKEN(heap->parked.blocks[i].start,
                          "what is parked is not a block that was freed");
    }
    return TARN_OK;
}

/* The same for a hand's blocks. A closed hand is empty. */
static const char *hand_contradiction_locked(const struct heap *heap, const struct hand *hand)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < atomic_load(&hand->count); i++) {
        const struct span *span = hand->spans[i].span;
        bytes += span->size;
        if (!hand->open || span->state != SPAN_BLOCK || span->size != hand->spans[i].size ||
            atomic_load(&span->heap) != heap || atomic_load(&span->live) || span->uses)
            return "what is in a hand is not a block that was freed";
    }
    return bytes == hand->bytes ? NULL : "a hand's bytes are not the sum over its blocks";
}

static tarn_status hands_verify(const struct heap *heap)
{
    struct hand *hands = atomic_load(&heap->hands.of);
    const char *contradiction = NULL;
    for (unsigned i = 0; hands && i < HANDS && !contradiction; i++) {
        counters_part_lock(&hands[i].part);
        contradiction = hand_contradiction_locked(heap, &hands[i]);
        counters_part_unlock(&hands[i].part);
    }
    return contradiction ? BROKEN(0, contradiction) : TARN_OK;
}

static tarn_status verify_locked(struct heap *heap, bool alone)
{
    const char *contradiction = store_contradiction(heap->store);
    tarn_status parked = alone ? parked_verify(heap) : TARN_OK;
    if (alone && !parked)
        parked = hands_verify(heap);
    if (contradiction)
        return BROKEN(0, contradiction);
    if (parked)
        return parked;
    struct sums sums = {.alone = alone};
    for (int zone = 0; zone < ZONES; zone++) {
        for (struct run *run = heap->zones.of[zone].runs; run; run = run->next) {
            tarn_status status = run_verify(heap, (enum zone_kind)zone, run, &sums);
            if (status)
                return status;
        }
    }
    size_t unused = 0;
    for (const struct use_queue *queue = heap->waiting.queues; queue; queue = queue->next)
        unused += queue->users == 0;
    if (unused != heap->waiting.unused)
        return BROKEN(0, "its queues without uses are not as many as it counts");
    if (sums.free_bytes != heap->zones.free_bytes ||
        (alone && sums.waiting_bytes != heap->waiting.bytes))
        return BROKEN(0, "its counts are not the sums over its spans");
    return TARN_OK;
}

tarn_status heap_verify(struct heap *heap)
{
    mutex_lock(&heap->lock);
    tarn_status status = verify_locked(heap, true);
    mutex_unlock(&heap->lock);
    return status;
}

#if defined(TARN_DEBUG_CHECKS) && TARN_DEBUG_CHECKS
void heap_check(struct heap *heap)
{
    mutex_lock(&heap->lock);
    tarn_status status = verify_locked(heap, false);
    mutex_unlock(&heap->lock);
    if (status) {
        log_write(LOG_ERRORS, "%s", tarn_last_error());
        __builtin_trap();
    }
}
#endif

/* Bytes of a run that have memory: all, or none if the pool is suspended. */
static size_t run_mapped(const struct heap *heap, const struct run *run)
{
    size_t bytes = 0;
    if (!atomic_load(&heap->store->suspended) || !heap->store->kind.pieces)
        return run->absent ? 0 : run->end - run->start;
    for (uintptr_t address = run->start; address < run->end; address += heap->arena->granule)
        bytes += arena_piece(heap->arena, address) ? heap->arena->granule : 0;
    return bytes;
}

/* Bytes of a heap's runs that have memory; of plain segments in `plain` instead. `left`: claimed
 * bytes that are no such memory: ghosts (also in `ghosts`), whose pieces count elsewhere, holes of
 * a reservation, and suspended addresses. */
static size_t mapped_bytes(struct heap *heap, size_t *left, size_t *ghosts, size_t *plain)
{
    size_t bytes = 0;
    *left = *ghosts = 0;
    mutex_lock(&heap->lock);
    for (int zone = 0; zone < ZONES; zone++) {
        for (struct run *run = heap->zones.of[zone].runs; run; run = run->next) {
            size_t mapped = run_mapped(heap, run);
            bytes += mapped;
            *left += run->end - run->start - mapped;
        }
    }
    for (const struct ghost *ghost = heap->ghosts; ghost; ghost = ghost->next)
        *ghosts += ghost->size;
    *left += *ghosts + (heap->following ? reservation_hole_bytes(&heap->following->reservation,
                                                                 heap->arena->granule)
                                        : 0);
    bool segments = !heap->store->kind.pieces;
    mutex_unlock(&heap->lock);
    *plain += segments ? bytes : 0;
    return segments ? 0 : bytes;
}

/* Whether a heap is in the sets that sets.c demands. */
static tarn_status sets_verify(struct heap *heap)
{
    struct store *store = heap->store;
    struct arena *arena = heap->arena;
    mutex_lock(&heap->lock);
    const char *text = awaited_contradiction_locked(heap);
    bool has_memory = zones_have_runs(&heap->zones);
    bool behind = atomic_load(&store->left_behind);
    const struct heap_set *nobodys = behind          ? &arena->sets.abandoned
                                     : heap->retired ? &store->sets.retired
                                                     : NULL;
    const struct heap_set *of = heap->sets.of[HEAPS_OF_STORE].set;
    mutex_lock(&arena->sets.lock);
    if (text)
        ;
    else if (of != &store->sets.all && (of || has_memory || !heap->retired))
        text = "the heap is not in the set of its store";
    else if (of && heap->sets.of[HEAPS_COMMON].set !=
                       (behind || store_is_default(store) ? &arena->sets.common : NULL))
        text = "the heap is in the common set, or is not, without reason";
    else if (heap->sets.of[HEAPS_OF_NOBODY].set != nobodys &&
             (has_memory || heap->sets.of[HEAPS_OF_NOBODY].set))
        text = "the heap is nobody's, or is not, in another way than its set says";
    else if (heap->sets.of[HEAPS_LENDING].set != (heap->sets.lends ? &store->sets.lenders : NULL))
        text = "the heap is in the set of lenders, or is not, without reason";
    else if (heap->batches.open_used && !heap->retired && !heap->sets.unmarked)
        text =
            "something was freed in the heap, and it is not in the list of those that need a mark";
    else if (!heap->sets.lends && zones_longest_free(&heap->zones) >= arena->granule)
        text = "the heap has free memory to lend, and is not in the set of lenders";
    else
        text = heap_known_contradiction_locked(heap);
    mutex_unlock(&arena->sets.lock);
    mutex_unlock(&heap->lock);
    return text ? BROKEN(0, text) : TARN_OK;
}

/* Whether the tree of unclaimed addresses agrees with the bitmap. */
static tarn_status parts_verify(const struct arena *arena)
{
    size_t longest = 0, length = 0;
    for (size_t i = 0; i < arena->size / arena->granule; i++) {
        length = arena->claimed[i / 64] >> (i % 64) & 1 ? 0 : length + 1;
        longest = length > longest ? length : longest;
    }
    if (longest * arena->granule != arena_longest_locked(arena))
        return failed(TARN_ERROR_INTERNAL,
                      "device %d: %zu bytes of addresses are unclaimed in a row, not %zu",
                      arena->device->number, longest * arena->granule, arena_longest_locked(arena));
    return TARN_OK;
}

static tarn_status store_verify(const struct store *store)
{
    const char *contradiction = store_contradiction(store);
    if (contradiction)
        return failed(TARN_ERROR_INTERNAL, "pool (%llu, %llu): %s",
                      (unsigned long long)store->id[0], (unsigned long long)store->id[1],
                      contradiction);
    for (const struct piece *piece = store->unmapped.first; piece; piece = piece->next)
        if (piece->store != store || piece_is_anchored(piece) ||
            (store->counters && piece->flags != store_flags(store) &&
             piece->flags != DRIVER_PIECE_HOST))
            return failed(
                TARN_ERROR_INTERNAL,
                "pool (%llu, %llu): an unmapped piece is anchored, another's, or of another kind",
                (unsigned long long)store->id[0], (unsigned long long)store->id[1]);
    return TARN_OK;
}

/* Bytes of pieces with a second address, each counted once. */
static size_t second_bytes(const struct arena *arena)
{
    size_t bytes = 0;
    for (size_t i = 0; i < arena->size / arena->granule; i++)
        bytes += arena->seconds[i] ? arena->seconds[i]->size : 0;
    return bytes;
}

static size_t imported_bytes(const struct piece_list *list)
{
    size_t bytes = 0;
    for (const struct piece *piece = list->first; piece; piece = piece->next)
        bytes += piece->store == &piece->store->arena->imports ? piece->size : 0;
    return bytes;
}

tarn_status arena_verify(struct arena *arena)
{
    struct heap_sums all = {0}, common = {0};
    size_t mapped = 0, plain = 0, ghosts = 0,
           left = arena->imports.reserved - arena->imports.unmapped.bytes;
    size_t stuck = arena->stuck.bytes - imported_bytes(&arena->stuck);
    unsigned left_behind = 0;
    for (struct heap *heap = arena->heaps.all; heap; heap = heap->lists.next) {
        tarn_status status = heap_verify(heap);
        if (!status)
            status = sets_verify(heap);
        if (status)
            return status;
        size_t beside = 0, second = 0;
        mapped += mapped_bytes(heap, &beside, &second, &plain);
        left += beside;
        ghosts += second;
        left_behind += heap_is_left_behind_locked(heap);
        heap_sums_add(&all, &heap->summed);
        if (heap->sets.of[HEAPS_COMMON].set)
            heap_sums_add(&common, &heap->summed);
    }
    if (memcmp(&all, &arena->sets.sums, sizeof all) != 0 ||
        memcmp(&common, &arena->sets.common_sums, sizeof common) != 0)
        return failed(
            TARN_ERROR_INTERNAL,
            "device %d: by the heaps' sums %zu bytes are free, %zu of them for everybody, "
            "not %zu and %zu; or another sum differs",
            arena->device->number, all.free, common.free, arena->sets.sums.free,
            arena->sets.common_sums.free);
    if (left_behind != arena->heaps.retired)
        return failed(TARN_ERROR_INTERNAL, "device %d: %u heaps are left behind, and %u counted",
                      arena->device->number, left_behind, arena->heaps.retired);
    if (second_bytes(arena) != ghosts)
        return failed(TARN_ERROR_INTERNAL,
                      "device %d: %zu bytes are mapped at second addresses, of %zu of ghosts",
                      arena->device->number, second_bytes(arena), ghosts);
    size_t claimed = 0;
    for (size_t i = 0; i < arena->size / arena->granule; i++)
        claimed += arena->claimed[i / 64] >> (i % 64) & 1;
    if (mapped + left + stuck != claimed * arena->granule)
        return failed(TARN_ERROR_INTERNAL, "device %d: %zu bytes are mapped and %zu claimed",
                      arena->device->number, mapped, claimed * arena->granule);
    tarn_status status = arena->size ? parts_verify(arena) : TARN_OK;
    status = status ? status : store_verify(&arena->store);
    status = status ? status : store_verify(&arena->uncached);
    status = status ? status : store_verify(&arena->imports);
    size_t unmapped = arena->store.unmapped.bytes,
           reserved = arena->store.reserved + arena->uncached.reserved;
    for (const struct run *run = arena->stuck_segments; run; run = run->next)
        plain += run->end - run->start;
    for (const struct store *store = arena->pools.list; store; store = store->lists.next) {
        unmapped += store->unmapped.bytes;
        reserved += store->reserved;
        status = status ? status : store_verify(store);
    }
    if (status)
        return status;
    if (unmapped != arena->unmapped)
        return failed(TARN_ERROR_INTERNAL, "device %d: %zu bytes are unmapped, and %zu counted",
                      arena->device->number, unmapped, arena->unmapped);
    size_t seconds = 0;
    mapped += ranges_bytes(arena, &seconds);
    if (mapped + plain + stuck + unmapped != arena->reserved || reserved != arena->reserved)
        return failed(TARN_ERROR_INTERNAL,
                      "device %d: %zu bytes are mapped, %zu unmapped, %zu in segments, but %zu "
                      "reserved, %zu by pools",
                      arena->device->number, mapped, unmapped, plain, arena->reserved, reserved);
    return TARN_OK;
}
