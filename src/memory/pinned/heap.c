/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns segments of pinned memory, their blocks, and the way from an address to a block, under
 * `pinned.lock`.
 *
 * Blocks cover a segment without a gap. Of two neighbours, one is not free or is `loose`. A loose
 * block was freed lately and is not joined to its neighbours yet: the next request of its size gets
 * it, until another size is requested. Free blocks are in bins of their pool, eight per power of
 * two. A rounded request is the smallest size of a bin, so any block of that bin or a higher one
 * fits.
 *
 * A block is found by its start in a table of blocks handed out lately. An entry counts only if the
 * block confirms it. Otherwise the tree of segments leads to the tree of the segment's blocks. */
#include "memory/pinned/heap.h"
#include "base/pages.h"
#include "base/status.h"

#define BINS_LOG 3     /* log2 of the bins per power of two */
#define BEST_OF 16     /* blocks of a request's own bin that are compared */
#define RECENT_BITS 12 /* log2 of the entries of the table of blocks */

static struct object_pool block_objects = OBJECT_POOL(struct pinned_block);
static struct object_pool segment_objects = OBJECT_POOL(struct pinned_segment);
static struct pinned_block *recent[1u << RECENT_BITS];

static int segment_order(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct pinned_segment, by_address)->address;
    uintptr_t y = TREE_ENTRY(b, struct pinned_segment, by_address)->address;
    return (x > y) - (x < y);
}

static int block_order(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct pinned_block, by_address)->address;
    uintptr_t y = TREE_ENTRY(b, struct pinned_block, by_address)->address;
    return (x > y) - (x < y);
}

struct pinned pinned = {
    .lock = MUTEX_INITIALIZER(LOCK_PINNED),
    .segments = {.order = segment_order},
    .standard = {.keeper = {.holders = 1}},
    .limit = SIZE_MAX,
    .settings = {.register_threads = 1,
                 .max_round_threshold = SIZE_MAX,
                 .max_cached_size = SIZE_MAX},
    .moved = PTHREAD_COND_INITIALIZER,
};

/* ---- Sizes ---- */

static unsigned log2_floor(size_t value)
{
    return 63u - (unsigned)__builtin_clzll(value);
}

size_t pinned_round(size_t size, size_t max_round_threshold)
{
    size_t step = PINNED_UNIT;
    if (size <= max_round_threshold && size > PINNED_UNIT << BINS_LOG)
        step = (size_t)1 << (log2_floor(size - 1) - BINS_LOG);
    return (size + step - 1) & ~(step - 1);
}

/* Sizes of 1 to 7 units have a bin each. Then there are eight bins per power of two. */
static unsigned bin_of(size_t size)
{
    size_t units = size / PINNED_UNIT;
    if (units < 1u << BINS_LOG)
        return (unsigned)units;
    unsigned log = log2_floor(units);
    return ((log - BINS_LOG + 1) << BINS_LOG) +
           ((unsigned)(units >> (log - BINS_LOG)) & ((1u << BINS_LOG) - 1));
}

/* ---- Bins ---- */

static void bin_insert(struct pinned_block *block)
{
    unsigned bin = bin_of(block->size), zone = block->segment->zone;
    struct pinned_pool *pool = block->segment->pool;
    struct pinned_block **first = &pool->bins[zone][bin];
    block->link_previous = NULL;
    block->link = *first;
    if (*first)
        (*first)->link_previous = block;
    *first = block;
    pool->filled[zone][bin / 64] |= (uint64_t)1 << bin % 64;
}

static void bin_remove(struct pinned_block *block)
{
    unsigned bin = bin_of(block->size), zone = block->segment->zone;
    struct pinned_pool *pool = block->segment->pool;
    if (block->link)
        block->link->link_previous = block->link_previous;
    if (block->link_previous)
        block->link_previous->link = block->link;
    else {
        pool->bins[zone][bin] = block->link;
        if (!pool->bins[zone][bin])
            pool->filled[zone][bin / 64] &= ~((uint64_t)1 << bin % 64);
    }
}

/* A free block of at least `size`: the smallest of those compared in its own bin, otherwise any of
 * the next bin that is not empty. */
static struct pinned_block *bin_search(const struct pinned_pool *pool, unsigned zone, size_t size)
{
    unsigned bin = bin_of(size), looked = 0;
    struct pinned_block *best = NULL;
    for (struct pinned_block *block = pool->bins[zone][bin]; block && looked++ < BEST_OF;
         block = block->link) {
        if (block->size == size)
            return block;
        if (block->size > size && (!best || block->size < best->size))
            best = block;
    }
    if (best)
        return best;
    uint64_t mask = ~(uint64_t)0 << (bin + 1) % 64;
    for (unsigned word = (bin + 1) / 64; word < PINNED_WORDS; word++, mask = ~(uint64_t)0) {
        uint64_t filled = pool->filled[zone][word] & mask;
        if (filled)
            return pool->bins[zone][word * 64 + (unsigned)__builtin_ctzll(filled)];
    }
    return NULL;
}

/* ---- Blocks ---- */

static struct pinned_block *block_create(void)
{
    struct pinned_block *block = object_alloc(&block_objects);
    if (!block)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a block of pinned memory");
    return block;
}

/* An object for a block that is cut off another. While tests count allocations, always a new
 * one. */
static struct pinned_block *block_take(void)
{
    struct pinned_block *block = pinned.spare;
    if (!block || pages_fail_armed())
        return block_create();
    pinned.spare = block->link;
    return block;
}

/* Takes a free block, which is joined to its neighbour, out of all lists and trees. */
static void block_forget(struct pinned_block *block)
{
    tree_remove(&block->segment->blocks, &block->by_address);
    block->state = PINNED_UNUSED;
    block->link = pinned.spare;
    pinned.spare = block;
}

static struct pinned_block **recent_of(uintptr_t address)
{
    return &recent[(address / PINNED_UNIT * 0x9e3779b97f4a7c15u) >> (64 - RECENT_BITS)];
}

/* Cuts the part behind `size` off a block that is in no bin. */
static tarn_status block_cut(struct pinned_block *block, size_t size)
{
    struct pinned_block *rest = block_take();
    if (!rest)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    *rest = (struct pinned_block){
        .address = block->address + size,
        .size = block->size - size,
        .segment = block->segment,
        .previous = block,
        .next = block->next,
        .state = PINNED_FREE,
    };
    if (rest->next)
        rest->next->previous = rest;
    block->next = rest;
    block->size = size;
    tree_insert(&rest->segment->blocks, &rest->by_address);
    bin_insert(rest);
    return TARN_OK;
}

/* Joins the next block to a block. Neither is in a bin. */
static void block_join(struct pinned_block *block)
{
    struct pinned_block *behind = block->next;
    block->size += behind->size;
    block->next = behind->next;
    if (block->next)
        block->next->previous = block;
    block_forget(behind);
}

/* Takes a block out of the list of loose blocks. */
static void loose_remove(struct pinned_pool *pool, struct pinned_block *block)
{
    unsigned place = block->loose - 1u;
    pool->loose[place] = pool->loose[--pool->loose_count];
    pool->loose[place]->loose = block->loose;
    block->loose = 0;
}

/* Joins all loose blocks of a pool to their neighbours. */
static void pinned_join_locked(struct pinned_pool *pool)
{
    while (pool->loose_count) {
        struct pinned_block *block = pool->loose[pool->loose_count - 1];
        loose_remove(pool, block);
        bin_remove(block);
        for (struct pinned_block *next; (next = block->next) && next->state == PINNED_FREE;
             block_join(block)) {
            if (next->loose)
                loose_remove(pool, next);
            bin_remove(next);
        }
        struct pinned_block *before = block->previous;
        if (before && before->state == PINNED_FREE) { /* a loose one is joined later */
            bin_remove(before);
            block_join(before);
            block = before;
        }
        bin_insert(block);
    }
}

static struct pinned_block *search(const struct pinned_pool *pool,
                                   const struct pinned_request *request)
{
    struct pinned_block *block = bin_search(pool, request->zone, request->size);
    return block ? block : bin_search(pool, PINNED_ZONE_RESERVED, request->size);
}

tarn_status pinned_take_locked(const struct pinned_request *request, struct pinned_block **result)
{
    struct pinned_pool *pool = request->pool;
    struct pinned_block *block = search(pool, request);
    if (pool->loose_count && !(block && block->size == request->size)) {
        pinned_join_locked(pool);
        block = search(pool, request);
    }
    if (!block)
        return TARN_ERROR_NO_ROOM;
    if (block->loose)
        loose_remove(pool, block);
    bin_remove(block);
    if (block->size > request->size && block_cut(block, request->size)) {
        bin_insert(block);
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    block->state = PINNED_LIVE;
    block->requested = request->requested;
    block->captured = NULL;
    block->segment->used += block->size;
    *recent_of(block->address) = block;
    stat_add(&pinned.stats.active_requests, 1);
    stat_add(&pinned.stats.active_bytes, (int64_t)block->size);
    stat_add(&pinned.stats.requested_bytes, (int64_t)block->requested);
    *result = block;
    return TARN_OK;
}

void pinned_give_locked(struct pinned_block *block)
{
    struct pinned_segment *segment = block->segment;
    struct pinned_pool *pool = segment->pool;
    if (pool->loose_count == PINNED_LOOSE)
        pinned_join_locked(pool);
    stat_add(&pinned.stats.active_requests, -1);
    stat_add(&pinned.stats.active_bytes, -(int64_t)block->size);
    stat_add(&pinned.stats.requested_bytes, -(int64_t)block->requested);
    segment->used -= block->size;
    block->state = PINNED_FREE;
    pool->loose[pool->loose_count++] = block;
    block->loose = (uint8_t)pool->loose_count;
    bin_insert(block);
    /* Small blocks share segments that are larger than each of them. */
    size_t larger = segment->zone == PINNED_ZONE_SMALL ? block->size : segment->size;
    if (!segment->used && larger > pinned.settings.max_cached_size &&
        segment->zone != PINNED_ZONE_RESERVED)
        pinned_segment_leave_locked(segment);
}

/* ---- Looking up ---- */

static bool segment_ends_after(const struct tree_node *node, uint64_t key)
{
    const struct pinned_segment *segment = TREE_ENTRY(node, struct pinned_segment, by_address);
    return segment->address + segment->size > key;
}

static bool block_ends_after(const struct tree_node *node, uint64_t key)
{
    const struct pinned_block *block = TREE_ENTRY(node, struct pinned_block, by_address);
    return block->address + block->size > key;
}

struct pinned_block *pinned_find_locked(uintptr_t address, bool *ours)
{
    struct pinned_block *block = *recent_of(address);
    if (block && block->address == address && block->state == PINNED_LIVE) {
        *ours = true;
        return block;
    }
    struct tree_node *node = tree_find_first(&pinned.segments, segment_ends_after, address);
    struct pinned_segment *segment =
        node ? TREE_ENTRY(node, struct pinned_segment, by_address) : NULL;
    *ours = segment && segment->address <= address;
    if (!*ours)
        return NULL;
    node = tree_find_first(&segment->blocks, block_ends_after, address);
    block = TREE_ENTRY(node, struct pinned_block, by_address);
    return block->state == PINNED_LIVE ? block : NULL;
}

bool pinned_overlaps(uintptr_t start, size_t size)
{
    if (!atomic_load(&pinned.used))
        return false;
    mutex_lock(&pinned.lock);
    struct tree_node *node = tree_find_first(&pinned.segments, segment_ends_after, start);
    bool overlaps =
        node && TREE_ENTRY(node, struct pinned_segment, by_address)->address < start + size;
    mutex_unlock(&pinned.lock);
    return overlaps;
}

/* ---- Segments ---- */

static void segment_link(struct pinned_segment *segment, struct pinned_pool *pool)
{
    segment->pool = pool;
    segment->previous = NULL;
    segment->next = pool->segments;
    if (segment->next)
        segment->next->previous = segment;
    pool->segments = segment;
}

static void segment_unlink(struct pinned_segment *segment)
{
    if (segment->next)
        segment->next->previous = segment->previous;
    if (segment->previous)
        segment->previous->next = segment->next;
    else
        segment->pool->segments = segment->next;
}

struct pinned_segment *pinned_segment_create(void)
{
    struct pinned_segment *segment = object_alloc(&segment_objects);
    if (!segment) {
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                     "no host memory for a segment of pinned memory");
        return NULL;
    }
    segment->whole = block_create();
    if (!segment->whole) {
        object_free(&segment_objects, segment);
        return NULL;
    }
    return segment;
}

void pinned_segment_destroy(struct pinned_segment *segment)
{
    object_free(&block_objects, segment->whole);
    object_free(&segment_objects, segment);
}

void pinned_segment_enter_locked(struct pinned_segment *segment, struct pinned_pool *pool)
{
    struct pinned_block *first = segment->whole;
    segment->whole = NULL;
    segment->used = 0;
    segment->blocks = (struct tree){.order = block_order};
    segment_link(segment, pool);
    tree_insert(&pinned.segments, &segment->by_address);
    *first = (struct pinned_block){.address = segment->address,
                                   .size = segment->size,
                                   .segment = segment,
                                   .state = PINNED_FREE};
    tree_insert(&segment->blocks, &first->by_address);
    bin_insert(first);
}

void pinned_segment_leave_locked(struct pinned_segment *segment)
{
    pinned_join_locked(segment->pool);
    struct pinned_block *block =
        TREE_ENTRY(tree_first(&segment->blocks), struct pinned_block, by_address);
    bin_remove(block);
    block->state = PINNED_UNUSED;
    /* Its object is freed, and another thread may take it without the lock. */
    if (*recent_of(block->address) == block)
        *recent_of(block->address) = NULL;
    tree_remove(&pinned.segments, &segment->by_address);
    segment_unlink(segment);
    segment->whole = block;
    segment->next = pinned.leaving;
    pinned.leaving = segment;
    pinned.leaving_bytes += segment->size;
}

static void segment_forget(const struct pinned_segment *segment, struct pinned_keeper *keeper)
{
    for (struct tree_node *node = tree_first(&segment->blocks); node; node = tree_next(node)) {
        struct pinned_block *block = TREE_ENTRY(node, struct pinned_block, by_address);
        if (block->state == PINNED_LIVE && block->captured == keeper) {
            block->captured = NULL;
            keeper->captured--;
        }
    }
}

/* Puts a segment, with its free blocks, into a pool and a zone. */
static void segment_move(struct pinned_segment *segment, struct pinned_pool *pool, uint8_t zone)
{
    struct tree_node *node;
    for (node = tree_first(&segment->blocks); node; node = tree_next(node)) {
        struct pinned_block *block = TREE_ENTRY(node, struct pinned_block, by_address);
        if (block->state == PINNED_FREE)
            bin_remove(block);
    }
    segment_unlink(segment);
    segment->zone = zone;
    segment_link(segment, pool);
    for (node = tree_first(&segment->blocks); node; node = tree_next(node)) {
        struct pinned_block *block = TREE_ENTRY(node, struct pinned_block, by_address);
        if (block->state == PINNED_FREE)
            bin_insert(block);
    }
}

void pinned_absorb_locked(struct pinned_pool *pool)
{
    pinned_join_locked(pool);
    for (struct pinned_segment *segment; (segment = pool->segments);)
        segment_move(segment, &pinned.standard, segment->zone);
    pinned_forget_locked(&pool->keeper);
}

void pinned_unreserve_locked(void)
{
    struct pinned_pool *pool = &pinned.standard;
    for (struct pinned_segment *segment = pool->segments, *next; segment; segment = next) {
        next = segment->next;
        if (segment->zone == PINNED_ZONE_RESERVED)
            segment_move(segment, pool, PINNED_ZONE_LARGE);
    }
    pinned.reserve_taken = false;
}

void pinned_forget_locked(struct pinned_keeper *keeper)
{
    for (struct tree_node *node = tree_first(&pinned.segments); keeper->captured && node;
         node = tree_next(node))
        segment_forget(TREE_ENTRY(node, struct pinned_segment, by_address), keeper);
}
