/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the set of anchors that callers hold, by range. If a range is in the set, its pieces are
 * anchored and stay, so an anchor can be removed without the lock of their heap. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "base/tree.h"
#include "memory/growth/segment.h"
#include "memory/share/pointer.h"

#include <tarn/share.h>

struct anchor {
    struct tree_node node;
    uintptr_t start;
    size_t size; /* bytes */
    uint64_t count;
    struct arena *arena;
    const struct store *store; /* compared only, never followed */
};

static int by_range(const struct tree_node *a, const struct tree_node *b)
{
    const struct anchor *left = TREE_ENTRY(a, struct anchor, node),
                        *right = TREE_ENTRY(b, struct anchor, node);
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    return left->size < right->size ? -1 : left->size > right->size;
}

/* Protects the set; taken inside a heap's lock. */
static mutex anchors_lock = MUTEX_INITIALIZER(LOCK_ANCHORS);
static struct tree anchors = {.order = by_range};
static struct object_pool anchor_objects = OBJECT_POOL(struct anchor);

static bool starts_from(const struct tree_node *node, uint64_t address)
{
    return TREE_ENTRY(node, struct anchor, node)->start >= address;
}

static struct anchor *find_locked(uintptr_t start, size_t size)
{
    for (struct tree_node *node = tree_find_first(&anchors, starts_from, start); node;
         node = tree_next(node)) {
        struct anchor *anchor = TREE_ENTRY(node, struct anchor, node);
        if (anchor->start != start)
            break;
        if (anchor->size == size)
            return anchor;
    }
    return NULL;
}

/* Enters the anchor that `argument`, a struct anchor **, points to, and clears that pointer. If the
 * set has an equal anchor, it counts that one once more, and leaves the pointer to the caller. */
static tarn_status enter(struct store *store, const tarn_block_info *block, void *argument)
{
    struct anchor **entering = argument, *anchor = *entering;
    size_t left = block->usable_size - (anchor->start - (uintptr_t)block->base);
    if (anchor->size > left)
        return failed(TARN_ERROR_INVALID_POINTER,
                      "%zu bytes at %p are not in one block: it ends after %zu", anchor->size,
                      (void *)anchor->start, left);
    tarn_status status = store_check(store);
    if (status)
        return status;
    mutex_lock(&anchors_lock);
    struct anchor *found = find_locked(anchor->start, anchor->size);
    if (found) {
        found->count++;
    } else {
        anchor->arena = store->arena;
        anchor->store = store;
        anchor->count = 1;
        pieces_anchor(anchor->arena, anchor->start, anchor->size);
        tree_insert(&anchors, &anchor->node);
        *entering = NULL;
    }
    mutex_unlock(&anchors_lock);
    return TARN_OK;
}

bool anchors_any(const struct store *store)
{
    bool found = false;
    mutex_lock(&anchors_lock);
    for (struct tree_node *node = tree_first(&anchors); node && !found; node = tree_next(node))
        found = TREE_ENTRY(node, struct anchor, node)->store == store;
    mutex_unlock(&anchors_lock);
    return found;
}

tarn_status tarn_anchor(const void *pointer, size_t size)
{
    if (size == 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "cannot anchor 0 bytes");
    tarn_status status = process_check();
    if (status)
        return status;
    struct anchor *anchor = object_alloc(&anchor_objects);
    if (!anchor)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an anchor");
    anchor->start = (uintptr_t)pointer;
    anchor->size = size;
    status = pointer_do_settled(pointer, enter, &anchor);
    object_free(&anchor_objects, anchor);
    return status;
}

tarn_status tarn_unanchor(const void *pointer, size_t size)
{
    tarn_status status = process_check();
    if (status)
        return status;
    mutex_lock(&anchors_lock);
    struct anchor *anchor = find_locked((uintptr_t)pointer, size), *over = NULL;
    if (anchor && --anchor->count == 0) {
        over = anchor;
        tree_remove(&anchors, &anchor->node);
        pieces_unanchor(anchor->arena, anchor->start, anchor->size);
    }
    mutex_unlock(&anchors_lock);
    object_free(&anchor_objects, over);
    if (anchor)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  "%zu bytes at %p are not anchored: pass what was passed to tarn_anchor()", size,
                  pointer);
}
