/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ordered sets of the model of PyTorch's allocator: treaps whose nodes are the blocks
 * themselves. Owns the links of the trees, and those of the list of blocks that can be given back,
 * which changes with them. */
#include "policy/c10_model.h"

/* What a block is ordered by in its set. */
struct place {
    uint32_t stream;
    uint64_t size, address;
};

static struct place place_of(const struct block *block)
{
    return (struct place){block->stream, block->mapped ? block->size : 0, block->address};
}

static bool precedes(const struct block *block, const struct place *at)
{
    struct place own = place_of(block);
    if (own.stream != at->stream)
        return own.stream < at->stream;
    if (own.size != at->size)
        return own.size < at->size;
    return own.address < at->address;
}

static uint32_t *root_of(struct model *model, const struct block *block)
{
    return block->mapped ? &model->sets[block->set] : &model->unmapped[block->set];
}

/* Divides the tree at `root` into what precedes `at` and the rest. */
static void divide(struct model *model, uint32_t root, const struct place *at, uint32_t *before,
                   uint32_t *after)
{
    while (root) {
        struct block *node = &model->blocks[root];
        if (precedes(node, at)) {
            *before = root;
            before = &node->right;
            root = node->right;
        } else {
            *after = root;
            after = &node->left;
            root = node->left;
        }
    }
    *before = *after = 0;
}

/* True if a free block is an entire segment, or contains a granule, that the driver could get back.
 * Does not change while the block is in the set. */
static bool is_whole(const struct model *model, const struct block *block)
{
    uint64_t first;
    if (model->policy.expandable)
        return block->mapped && c10_expandable_granules(model, block, &first);
    return !block->previous && !block->next;
}

void c10_set_insert(struct model *model, uint32_t number)
{
    struct block *block = &model->blocks[number];
    block->freed_at = model->searches[block->set];
    if (is_whole(model, block)) {
        block->whole_previous = 0;
        block->whole_next = model->whole;
        if (model->whole)
            model->blocks[model->whole].whole_previous = number;
        model->whole = number;
    }
    struct place at = place_of(block);
    uint32_t *link = root_of(model, block);
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    block->priority = (uint32_t)(model->random >> 32);
    while (*link && model->blocks[*link].priority >= block->priority) {
        struct block *node = &model->blocks[*link];
        link = precedes(node, &at) ? &node->right : &node->left;
    }
    uint32_t before = 0, after = 0;
    divide(model, *link, &at, &before, &after);
    block->left = before;
    block->right = after;
    /* The analyser takes what `link` points to for the only way to the blocks.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    *link = number;
}

void c10_set_remove(struct model *model, uint32_t number)
{
    struct block *block = &model->blocks[number];
    if (is_whole(model, block)) {
        if (block->whole_next)
            model->blocks[block->whole_next].whole_previous = block->whole_previous;
        if (block->whole_previous)
            model->blocks[block->whole_previous].whole_next = block->whole_next;
        else
            model->whole = block->whole_next;
    }
    struct place at = place_of(block);
    uint32_t *link = root_of(model, block);
    while (*link != number) {
        struct block *node = &model->blocks[*link];
        link = precedes(node, &at) ? &node->right : &node->left;
    }
    uint32_t left = block->left, right = block->right;
    while (left && right) {
        if (model->blocks[left].priority > model->blocks[right].priority) {
            *link = left;
            link = &model->blocks[left].right;
            left = *link;
        } else {
            *link = right;
            link = &model->blocks[right].left;
            right = *link;
        }
    }
    *link = left ? left : right;
}

/* The first block that does not precede a place. */
static uint32_t lower_bound(const struct model *model, uint32_t root, const struct place *at)
{
    uint32_t best = 0;
    while (root) {
        const struct block *node = &model->blocks[root];
        if (precedes(node, at)) {
            root = node->right;
        } else {
            best = root;
            root = node->left;
        }
    }
    return best;
}

uint32_t c10_set_from(const struct model *model, uint32_t root, uint32_t stream, uint64_t size,
                      uint64_t address)
{
    const struct place at = {stream, size, address};
    uint32_t found = lower_bound(model, root, &at);
    return found && model->blocks[found].stream == stream ? found : 0;
}

uint32_t c10_set_last(const struct model *model, uint32_t root, uint32_t stream)
{
    uint32_t last = 0;
    while (root) {
        const struct block *node = &model->blocks[root];
        if (node->stream <= stream)
            last = root;
        root = node->stream <= stream ? node->right : node->left;
    }
    return last && model->blocks[last].stream == stream ? last : 0;
}

uint32_t c10_set_after(const struct model *model, uint32_t root, const struct block *block)
{
    struct place at = place_of(block);
    at.address++;
    return lower_bound(model, root, &at);
}
