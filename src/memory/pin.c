/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the set of pins that callers hold, by range: what an unpin names is known to be pinned, so that the pieces there
 * can be looked at without the lock of their heap. */
#include "memory/pin.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"
#include "base/tree.h"
#include "memory/malloc.h"
#include "memory/segment.h"

#include <tarn/share.h>

struct pin {
    struct tree_node node;
    uintptr_t start;
    size_t size; /* bytes */
    uint64_t count;
    const struct arena *arena;
};

static int by_range(const struct tree_node *a, const struct tree_node *b)
{
    const struct pin *left = TREE_ENTRY(a, struct pin, node), *right = TREE_ENTRY(b, struct pin, node);
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    return left->size < right->size ? -1 : left->size > right->size;
}

static mutex pins_lock = MUTEX_INITIALIZER(LOCK_PINS); /* of the set; taken under a heap's */
static struct tree pins = {.order = by_range};
static struct object_pool pin_objects = OBJECT_POOL(struct pin);

static bool starts_from(const struct tree_node *node, uint64_t address)
{
    return TREE_ENTRY(node, struct pin, node)->start >= address;
}

static struct pin *find_locked(uintptr_t start, size_t size)
{
    for (struct tree_node *node = tree_find_first(&pins, starts_from, start); node; node = tree_next(node)) {
        struct pin *pin = TREE_ENTRY(node, struct pin, node);
        if (pin->start != start)
            break;
        if (pin->size == size)
            return pin;
    }
    return NULL;
}

/* The pieces of a range, which are mapped, from the first that touches it on. */
static void count(const struct arena *arena, uintptr_t start, size_t size, bool more)
{
    if (start - arena->base >= arena->size) {
        segment_pin(start, more);
        return;
    }
    for (uintptr_t address = start; address < start + size;) {
        struct piece *piece = arena_piece(arena, address);
        address = piece->address + piece->size;
        if (more)
            atomic_fetch_add(&piece->pins, 1);
        else
            atomic_fetch_sub(&piece->pins, 1);
    }
}

void pieces_pin(const struct arena *arena, uintptr_t start, size_t size)
{
    count(arena, start, size, true);
}

void pieces_unpin(const struct arena *arena, uintptr_t start, size_t size)
{
    count(arena, start, size, false);
}

/* What enter() is given: a pin of the caller's, which becomes one of the set, or counts in the one that is there. */
struct entering {
    struct pin *pin; /* NULL when it was entered */
};

static tarn_status enter(struct store *store, const tarn_block_info *block, void *argument)
{
    struct entering *entering = argument;
    struct pin *pin = entering->pin;
    size_t left = block->usable_size - (pin->start - (uintptr_t)block->base);
    if (pin->size > left)
        return failed(TARN_ERROR_INVALID_POINTER, "%zu bytes at %p are not in one block: it ends after %zu", pin->size,
                      (void *)pin->start, left);
    tarn_status status = store_check(store);
    if (status)
        return status;
    mutex_lock(&pins_lock);
    struct pin *found = find_locked(pin->start, pin->size);
    if (found) {
        found->count++;
    } else {
        pin->arena = store->arena;
        pin->count = 1;
        pieces_pin(pin->arena, pin->start, pin->size);
        tree_insert(&pins, &pin->node);
        entering->pin = NULL;
    }
    mutex_unlock(&pins_lock);
    return TARN_OK;
}

tarn_status tarn_pin(const void *pointer, size_t size)
{
    if (size == 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "a pin of 0 bytes");
    tarn_status status = process_check();
    if (status)
        return status;
    struct entering entering = {object_alloc(&pin_objects)};
    if (!entering.pin)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a pin");
    entering.pin->start = (uintptr_t)pointer;
    entering.pin->size = size;
    status = memory_block_do(pointer, enter, &entering);
    object_free(&pin_objects, entering.pin);
    return status;
}

tarn_status tarn_unpin(const void *pointer, size_t size)
{
    tarn_status status = process_check();
    if (status)
        return status;
    mutex_lock(&pins_lock);
    struct pin *pin = find_locked((uintptr_t)pointer, size), *over = NULL;
    if (pin && --pin->count == 0) {
        over = pin;
        tree_remove(&pins, &pin->node);
        pieces_unpin(pin->arena, pin->start, pin->size);
    }
    mutex_unlock(&pins_lock);
    object_free(&pin_objects, over);
    if (pin)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT, "%zu bytes at %p are not pinned: an unpin names what a pin named", size,
                  pointer);
}
