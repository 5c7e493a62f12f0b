/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The treap. A node's priority is a hash of its address, computed when needed and never stored; the
 * root has the highest. Invariants: in-order is the set's order; a parent's priority is above its
 * children's. */
#include "base/tree.h"

static inline uint64_t priority(const struct tree_node *node)
{
    uint64_t x = (uint64_t)(uintptr_t)node * 0x7fb5d329728ea185u;
    return (x ^ x >> 32) * 0x81dadef4bc2dd44du;
}

/* The link that leads to `node`. */
static inline struct tree_node **link_of(struct tree *tree, struct tree_node *parent,
                                         const struct tree_node *node)
{
    return parent ? &parent->sides[parent->left != node] : &tree->root;
}

/* Moves the node up until its parent has a higher priority. Each node that it passes becomes its
 * descendant, on the side where the order puts it. */
void tree_hang(struct tree *tree, struct tree_node *node, struct tree_node *parent,
               struct tree_node **link)
{
    uint64_t own = priority(node);
    node->left = node->right = NULL;
    while (parent && priority(parent) < own) {
        struct tree_node *passed = parent, **side = &node->sides[link == &passed->left];
        *link = *side;
        if (*link)
            (*side)->parent = passed;
        *side = passed;
        parent = passed->parent;
        link = link_of(tree, parent, passed);
    }
    *link = node;
    node->parent = parent;
    for (int side = 0; side < 2; side++)
        if (node->sides[side])
            node->sides[side]->parent = node;
}

void tree_insert(struct tree *tree, struct tree_node *node)
{
    struct tree_node *parent = NULL, **link = &tree->root;
    while (*link) {
        parent = *link;
        link = tree->order(node, parent) < 0 ? &parent->left : &parent->right;
    }
    tree_hang(tree, node, parent, link);
}

/* Joins the node's two subtrees in its place. */
void tree_remove(struct tree *tree, struct tree_node *node)
{
    struct tree_node *before = node->left, *after = node->right, *parent = node->parent;
    struct tree_node **link = link_of(tree, parent, node);
    while (before && after) {
        bool first = priority(before) > priority(after);
        struct tree_node *above = first ? before : after, *below = above->sides[first];
        before = first ? below : before;
        after = first ? after : below;
        *link = above;
        above->parent = parent;
        parent = above;
        link = &above->sides[first];
    }
    struct tree_node *rest = before ? before : after;
    *link = rest;
    if (*link)
        rest->parent = parent;
    *node = (struct tree_node){0};
}

struct tree_node *tree_first(const struct tree *tree)
{
    struct tree_node *node = tree->root;
    while (node && node->left)
        node = node->left;
    return node;
}

struct tree_node *tree_last(const struct tree *tree)
{
    struct tree_node *node = tree->root;
    while (node && node->right)
        node = node->right;
    return node;
}

struct tree_node *tree_next(const struct tree_node *node)
{
    if (node->right) {
        node = node->right;
        while (node->left)
            node = node->left;
        return (struct tree_node *)node;
    }
    while (node->parent && node->parent->right == node)
        node = node->parent;
    return node->parent;
}

struct tree_node *tree_previous(const struct tree_node *node)
{
    if (node->left) {
        node = node->left;
        while (node->right)
            node = node->right;
        return (struct tree_node *)node;
    }
    while (node->parent && node->parent->left == node)
        node = node->parent;
    return node->parent;
}
