/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The treap. A node's priority is computed from its address whenever it is needed, never stored; the root has the
 * highest. Invariants: in-order is the set's order, a parent's priority is above its children's. */
#include "base/tree.h"

static uint64_t priority(const struct tree_node *node)
{
    uint64_t x = (uint64_t)(uintptr_t)node;
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
    return x ^ (x >> 33);
}

/* Puts `child`, which may be NULL, where `node` hangs. */
static void replace(struct tree *tree, struct tree_node *node, struct tree_node *child)
{
    struct tree_node *parent = node->parent;
    if (!parent)
        tree->root = child;
    else if (parent->left == node)
        parent->left = child;
    else
        parent->right = child;
    if (child)
        child->parent = parent;
}

/* Makes `node` the parent of its own parent. */
static void rotate_up(struct tree *tree, struct tree_node *node)
{
    struct tree_node *parent = node->parent;
    replace(tree, parent, node);
    if (parent->left == node) {
        parent->left = node->right;
        if (parent->left)
            parent->left->parent = parent;
        node->right = parent;
    } else {
        parent->right = node->left;
        if (parent->right)
            parent->right->parent = parent;
        node->left = parent;
    }
    parent->parent = node;
}

void tree_hang(struct tree *tree, struct tree_node *node, struct tree_node *parent, struct tree_node **link)
{
    *node = (struct tree_node){.parent = parent};
    *link = node;

    uint64_t own = priority(node);
    while (node->parent && priority(node->parent) < own)
        rotate_up(tree, node);
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

void tree_remove(struct tree *tree, struct tree_node *node)
{
    while (node->left && node->right)
        rotate_up(tree, priority(node->left) > priority(node->right) ? node->left : node->right);
    replace(tree, node, node->left ? node->left : node->right);
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
