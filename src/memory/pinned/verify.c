/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks the invariants of pinned memory, which heap.h and the top of heap.c state. For tests.
 * Changes nothing. */
#include "base/status.h"
#include "memory/pinned/heap.h"

#define BROKEN(address, text) \
    failed(TARN_ERROR_INTERNAL, "pinned memory, at %#zx: %s", (size_t)(address), text)

struct sums {
    size_t blocks, active, requested, pending, of_graphs, segments, allocated;
};

/* Whether a free block is in its pool's bins exactly once. */
static bool is_in_bins(const struct pinned_pool *pool, const struct pinned_block *block)
{
    unsigned found = 0;
    for (unsigned bin = 0; bin < PINNED_BINS; bin++)
        for (const struct pinned_block *other = pool->bins[block->segment->zone][bin]; other;
             other = other->link)
            found += other == block;
    return found == 1;
}

static tarn_status verify_free(const struct pinned_block *block)
{
    const struct pinned_pool *pool = block->segment->pool;
    if (!is_in_bins(pool, block))
        return BROKEN(block->address, "a free block is not in one bin of its pool");
    if (block->loose &&
        (block->loose > pool->loose_count || pool->loose[block->loose - 1] != block))
        return BROKEN(block->address, "a loose block is not in its pool's list");
    if (!block->loose && block->next && block->next->state == PINNED_FREE && !block->next->loose)
        return BROKEN(block->address, "two free neighbours are not joined");
    if (block->uses || block->waits)
        return BROKEN(block->address, "a free block is in use");
    return TARN_OK;
}

static tarn_status verify_block(const struct pinned_block *block, struct sums *sums)
{
    if (block->size == 0 || block->size % PINNED_UNIT || block->address % PINNED_UNIT)
        return BROKEN(block->address, "a block of a wrong size, or at a wrong address");
    if (block->state == PINNED_FREE)
        return verify_free(block);
    if (block->state != PINNED_LIVE && block->state != PINNED_PENDING &&
        block->state != PINNED_OF_GRAPH)
        return BROKEN(block->address, "a block without a state");
    if (block->loose || block->requested == 0 || block->requested > block->size)
        return BROKEN(block->address, "a block that is smaller than what was asked for, or loose");
    if ((block->state == PINNED_PENDING) != (block->waits > 0))
        return BROKEN(block->address,
                      "a block that is pending waits for nothing, or one that waits is not");
    sums->blocks++;
    sums->active += block->size;
    sums->requested += block->requested;
    sums->pending += block->state == PINNED_PENDING ? block->size : 0;
    sums->of_graphs += block->state == PINNED_OF_GRAPH ? block->size : 0;
    return TARN_OK;
}

static tarn_status verify_segment(const struct pinned_segment *segment, struct sums *sums)
{
    uintptr_t at = segment->address;
    size_t used = sums->active;
    const struct pinned_block *previous = NULL;
    for (struct tree_node *node = tree_first(&segment->blocks); node; node = tree_next(node)) {
        const struct pinned_block *block = TREE_ENTRY(node, struct pinned_block, by_address);
        if (block->address != at || block->segment != segment || block->previous != previous ||
            (previous && previous->next != block))
            return BROKEN(at, "the blocks of a segment do not cover it in a row");
        tarn_status status = verify_block(block, sums);
        if (status)
            return status;
        at += block->size;
        previous = block;
    }
    if (!previous || previous->next || at != segment->address + segment->size)
        return BROKEN(at, "the last block of a segment does not end with it");
    if (segment->used != sums->active - used)
        return BROKEN(segment->address, "a segment's used bytes are wrong");
    sums->segments++;
    sums->allocated += segment->size;
    return TARN_OK;
}

static tarn_status verify_locked(void)
{
    struct sums sums = {0};
    for (struct tree_node *node = tree_first(&pinned.segments); node; node = tree_next(node)) {
        tarn_status status =
            verify_segment(TREE_ENTRY(node, struct pinned_segment, by_address), &sums);
        if (status)
            return status;
    }
    const tarn_pinned_stats *stats = &pinned.stats;
    const struct {
        const char *name;
        int64_t counted;
        size_t sum;
    } counters[] = {
        {"active_requests", stats->active_requests.current, sums.blocks},
        {"active_bytes", stats->active_bytes.current, sums.active},
        {"requested_bytes", stats->requested_bytes.current, sums.requested},
        {"pending_bytes", stats->pending_bytes, sums.pending},
        {"graph_bytes", stats->graph_bytes, sums.of_graphs},
        {"allocations", stats->allocations.current, sums.segments},
        {"allocated_bytes", stats->allocated_bytes.current, sums.allocated},
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (counters[i].counted != (int64_t)counters[i].sum)
            return failed(TARN_ERROR_INTERNAL,
                          "pinned memory: %s is %lld, and the sum over blocks and segments %zu",
                          counters[i].name, (long long)counters[i].counted, counters[i].sum);
    if (pinned.leaving || pinned.leaving_bytes || pinned.growing || pinned.moving)
        return BROKEN(0, "something is on its way while nothing runs");
    return TARN_OK;
}

tarn_status pinned_verify(void)
{
    mutex_lock(&pinned.lock);
    tarn_status status = verify_locked();
    mutex_unlock(&pinned.lock);
    return status;
}
