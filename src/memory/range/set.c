/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the set of all ranges, by address. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/range/range.h"

static int by_address(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t left = TREE_ENTRY(a, struct tarn_range, node)->start,
              right = TREE_ENTRY(b, struct tarn_range, node)->start;
    return left < right ? -1 : left > right;
}

static mutex range_set_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct tree ranges = {.order = by_address};
static atomic_size_t range_count; /* in the set; read without the lock */
static uint64_t range_numbers;    /* range_set_lock: given so far */
static struct object_pool range_objects = OBJECT_POOL_NAMED(struct tarn_range);

tarn_status range_check(struct tarn_range *range)
{
    if (object_is_live(&range_objects, range))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  range ? "%p is not a range, or was destroyed" : "range is NULL",
                  (const void *)range);
}

struct tarn_range *range_new(void)
{
    return object_alloc(&range_objects);
}

void range_free(struct tarn_range *range)
{
    object_free(&range_objects, range);
}

void range_enter(struct tarn_range *range)
{
    mutex_lock(&range_set_lock);
    range->number = ++range_numbers;
    tree_insert(&ranges, &range->node);
    atomic_fetch_add(&range_count, 1);
    mutex_unlock(&range_set_lock);
}

void range_remove(struct tarn_range *range)
{
    mutex_lock(&range_set_lock);
    tree_remove(&ranges, &range->node);
    atomic_fetch_sub(&range_count, 1);
    mutex_unlock(&range_set_lock);
}

void ranges_stay(void)
{
    mutex_lock(&range_set_lock);
}

void ranges_may_go(void)
{
    mutex_unlock(&range_set_lock);
}

struct tarn_range *range_next_staying(const struct arena *arena, struct tarn_range *range)
{
    struct tree_node *node = range ? tree_next(&range->node) : tree_first(&ranges);
    while (node && TREE_ENTRY(node, struct tarn_range, node)->store->arena != arena)
        node = tree_next(node);
    return node ? TREE_ENTRY(node, struct tarn_range, node) : NULL;
}

struct tarn_range *range_next(const struct arena *arena, struct tarn_range *range)
{
    ranges_stay();
    range = range_next_staying(arena, range);
    ranges_may_go();
    return range;
}

static bool ends_after(const struct tree_node *node, uint64_t address)
{
    const struct tarn_range *range = TREE_ENTRY(node, struct tarn_range, node);
    return range->start + range->pages * range->page_size > address;
}

bool ranges_any(void)
{
    return atomic_load_explicit(&range_count, memory_order_acquire) != 0;
}

static const struct tarn_range *range_at_locked(uintptr_t address)
{
    struct tree_node *node = tree_find_first(&ranges, ends_after, address);
    return node && TREE_ENTRY(node, struct tarn_range, node)->start <= address
               ? TREE_ENTRY(node, struct tarn_range, node)
               : NULL;
}

bool range_has(uintptr_t address)
{
    if (!ranges_any())
        return false;
    mutex_lock(&range_set_lock);
    bool has = range_at_locked(address) != NULL;
    mutex_unlock(&range_set_lock);
    return has;
}

bool range_look(uintptr_t address, struct range_look *look)
{
    if (!ranges_any())
        return false;
    mutex_lock(&range_set_lock);
    const struct tarn_range *range = range_at_locked(address);
    size_t index = range ? (address - range->start) / range->page_size : 0;
    const struct page *page = range ? range_page(range, index) : NULL;
    uint64_t word = page ? atomic_load(&page->word) : PAGE_EMPTY;
    if (range)
        *look = (struct range_look){
            .number = range->number,
            .turn = word >> PAGE_STATE_BITS,
            .end = range->start + (index + 1) * range->page_size,
            .committed = word_state(word) == PAGE_COMMITTED,
            .mapped = word_state(word) != PAGE_EMPTY && word_state(word) != PAGE_LEFT,
            .device = range->store->arena->device->number,
            .pool = {range->store->id[0], range->store->id[1]},
        };
    mutex_unlock(&range_set_lock);
    return range;
}

tarn_status range_refuse(uintptr_t address)
{
    return failed(TARN_ERROR_INVALID_POINTER,
                  "%p lies in a range (tarn_range_create()), which has pages and no blocks: "
                  "tarn_range_decommit() takes its memory back",
                  (void *)address);
}
