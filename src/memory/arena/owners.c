/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the order of private pools by what they reserve, and the sum of unmapped pieces, under the
 * arena's lock. Code that changes either of a store calls store_changed_locked() before it releases
 * the lock. */
#include "memory/arena/owners.h"

#define BY_RESERVED(node) TREE_ENTRY(node, struct store, owned.by_reserved)
#define LEFTOVER(node) TREE_ENTRY(node, struct store, owned.leftover)

/* The largest first; of equal ones, the newest. */
static bool is_larger(const struct tree_node *a, const struct tree_node *b)
{
    const struct store *x = BY_RESERVED(a), *y = BY_RESERVED(b);
    if (x->owned.reserved != y->owned.reserved)
        return x->owned.reserved > y->owned.reserved;
    return x->id[0] != y->id[0] ? x->id[0] > y->id[0] : x->id[1] > y->id[1];
}

static bool is_before(const struct tree_node *a, const struct tree_node *b)
{
    return (uintptr_t)LEFTOVER(a) < (uintptr_t)LEFTOVER(b);
}

static bool is_behind(const struct tree_node *node, uint64_t address)
{
    return (uintptr_t)LEFTOVER(node) > address;
}

static bool is_private(const struct store *store)
{
    return store_has(store, STORE_OF_POOL);
}

void store_changed_locked(struct store *store)
{
    struct arena *arena = store->arena;
    struct owned *owned = &store->owned;
    if (!store->counters)
        return; /* imported memory is another process's */
    owned->changes += store->unmapped.bytes != owned->unmapped;
    arena->unmapped += store->unmapped.bytes - owned->unmapped;
    owned->unmapped = store->unmapped.bytes;
    if (!is_private(store))
        return;
    if (owned->reserved != store->reserved) {
        if (owned->reserved)
            tree_remove(&arena->pools.by_reserved, &owned->by_reserved);
        owned->reserved = store->reserved;
        if (owned->reserved)
            tree_insert_by(&arena->pools.by_reserved, &owned->by_reserved, is_larger);
    }
    bool left = store->unmapped.bytes && atomic_load(&store->left_behind);
    if (owned->left == left)
        return;
    owned->left = left;
    if (left)
        tree_insert_by(&arena->pools.unmapped, &owned->leftover, is_before);
    else
        tree_remove(&arena->pools.unmapped, &owned->leftover);
}

void unmapped_push_locked(struct piece *piece)
{
    pieces_push(&piece->store->unmapped, piece);
    store_changed_locked(piece->store);
}

struct piece *unmapped_pop_locked(struct store *store)
{
    struct piece *piece = pieces_pop(&store->unmapped);
    store_changed_locked(store);
    return piece;
}

struct store *owner_largest_locked(const struct arena *arena)
{
    struct tree_node *node = tree_first(&arena->pools.by_reserved);
    return node ? BY_RESERVED(node) : NULL;
}

struct store *owner_next_locked(const struct store *store)
{
    struct tree_node *node = tree_next(&store->owned.by_reserved);
    return node ? BY_RESERVED(node) : NULL;
}

size_t owners_reserved_locked(const struct arena *arena)
{
    return arena->reserved - arena->store.reserved - arena->uncached.reserved;
}

struct store *leftover_next_locked(const struct arena *arena, const struct store *store)
{
    struct tree_node *node = tree_find_first(&arena->pools.unmapped, is_behind, (uintptr_t)store);
    return node ? LEFTOVER(node) : NULL;
}
