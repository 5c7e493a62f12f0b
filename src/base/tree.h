/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An ordered set of structs that contain a `struct tree_node`: a treap whose priorities are a hash
 * of the node's address. So no operation allocates, and the shape needs no bookkeeping. Insert,
 * remove and search take O(log n) expected time. The owner of the set locks it. */
#ifndef TARN_BASE_TREE_H
#define TARN_BASE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tree_node {
    union {
        struct {
            struct tree_node *left, *right;
        };
        struct tree_node *sides[2]; /* the same as an array, to choose a side without a branch */
    };
    struct tree_node *parent;
};

/* Negative if `a` comes before `b`; 0 only for a node and itself. */
typedef int (*tree_order)(const struct tree_node *a, const struct tree_node *b);

struct tree {
    struct tree_node *root;
    tree_order order;
};

/* Inserts a node at a free link below `parent`; NULL: the root. The part of an insertion that does
 * not depend on the order. */
void tree_hang(struct tree *tree, struct tree_node *node, struct tree_node *parent,
               struct tree_node **link);

/* Whether `a` comes before `b`. */
typedef bool (*tree_before)(const struct tree_node *a, const struct tree_node *b);

/* Inserts a node by the tree's own order, which the caller names as a constant, so that it is
 * inlined. */
static inline void tree_insert_by(struct tree *tree, struct tree_node *node, tree_before before)
{
    struct tree_node *parent = NULL, **link = &tree->root;
    while (*link) {
        parent = *link;
        link = &parent->sides[!before(node, parent)];
    }
    tree_hang(tree, node, parent, link);
}

void tree_insert(struct tree *tree, struct tree_node *node);
void tree_remove(struct tree *tree, struct tree_node *node);

struct tree_node *tree_first(const struct tree *tree);
struct tree_node *tree_last(const struct tree *tree);
struct tree_node *tree_next(const struct tree_node *node);
struct tree_node *tree_previous(const struct tree_node *node);

/* Returns the first node for which `is_enough(node, key)` is true; NULL: none. It must be false for
 * a first part of the order and true for the rest. Inlined with the test that the caller names. */
typedef bool (*tree_test)(const struct tree_node *node, uint64_t key);
static inline struct tree_node *tree_find_first(const struct tree *tree, tree_test is_enough,
                                                uint64_t key)
{
    struct tree_node *node = tree->root, *found = NULL;
    while (node) {
        bool enough = is_enough(node, key);
        found = enough ? node : found;
        node = node->sides[!enough];
    }
    return found;
}

/* The struct that contains a node. */
#define TREE_ENTRY(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

#endif
