/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The placement of blocks with known lifetimes.
 *
 * One try takes the blocks in some order. Each gets the lowest offset at which it touches no placed
 * block that lives at the same time. Time is divided into buckets. A bucket lists the placed blocks
 * that live in it, by offset, so that a short-lived block has to look at few.
 *
 * The order decides the result. It is by size, by area (size x lifetime), by lifetime, or by time.
 * Each of them is then improved repeatedly: blocks that ended above the bound move to the front, so
 * that what was hard to place comes first ("Squeaky wheel" optimization, Joslin and Clements,
 * 1999). The best of all tries is kept. */
#include "plan/packing.h"

#include <stdlib.h>
#include <string.h>

#define BUCKET_BLOCKS 256 /* about how many blocks begin in a bucket */
#define MAX_BUCKETS 4096
#define MAX_STALE 64 /* tries in a row that improve nothing */

struct bucket {
    uint32_t *blocks; /* the placed blocks that live in this bucket, by offset */
    size_t count, capacity;
};

struct packing {
    struct packing_block *blocks;
    size_t count;
    struct bucket *buckets;
    size_t bucket_count;
    uint32_t bucket_time;   /* moments in a bucket */
    uint32_t *order, *near; /* near: the blocks that a block has to look at */
    double *weight;         /* by block: the heaviest is placed first */
    uint64_t *best;         /* offsets of the best try */
    uint64_t steps, effort;
};

/* For qsort(), which passes no context. Set while a sort runs. */
static _Thread_local const struct packing *sorted;

static int by_weight(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (sorted->weight[a] != sorted->weight[b])
        return sorted->weight[a] > sorted->weight[b] ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int by_offset(const void *left, const void *right)
{
    uint64_t a = sorted->blocks[*(const uint32_t *)left].offset,
             b = sorted->blocks[*(const uint32_t *)right].offset;
    return a < b ? -1 : a > b;
}

static void sort(const struct packing *packing, uint32_t *numbers, size_t count,
                 int (*order)(const void *left, const void *right))
{
    sorted = packing;
    qsort(numbers, count, sizeof *numbers, order);
    sorted = NULL;
}

static size_t first_bucket(const struct packing *packing, const struct packing_block *block)
{
    return block->start / packing->bucket_time;
}

static size_t last_bucket(const struct packing *packing, const struct packing_block *block)
{
    return (block->end - 1) / packing->bucket_time;
}

/* The most bytes that live at one moment. `changes` has room for one more than there are
 * moments. */
static uint64_t bound_of(const struct packing_block *blocks, size_t count, uint32_t moments,
                         int64_t *changes)
{
    int64_t live = 0, most = 0;
    memset(changes, 0, (moments + (size_t)1) * sizeof *changes);
    for (size_t i = 0; i < count; i++) {
        changes[blocks[i].start] += (int64_t)blocks[i].size;
        changes[blocks[i].end] -= (int64_t)blocks[i].size;
    }
    for (size_t i = 0; i <= moments; i++) {
        live += changes[i];
        most = live > most ? live : most;
    }
    return (uint64_t)most;
}

/* Inserts a placed block into a bucket, in the order of offsets. */
static bool bucket_insert(struct packing *packing, struct bucket *bucket, uint32_t number)
{
    if (bucket->count == bucket->capacity) {
        size_t capacity = bucket->capacity ? bucket->capacity * 2 : 64;
        uint32_t *grown = reallocarray(bucket->blocks, capacity, sizeof *grown);
        if (!grown)
            return false;
        bucket->blocks = grown;
        bucket->capacity = capacity;
    }
    size_t low = 0, high = bucket->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (packing->blocks[bucket->blocks[middle]].offset <= packing->blocks[number].offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(bucket->blocks + low + 1, bucket->blocks + low,
            (bucket->count - low) * sizeof *bucket->blocks);
    bucket->blocks[low] = number;
    bucket->count++;
    return true;
}

/* Gathers the placed blocks that live at the same time as `block`, by offset. A block in several
 * buckets is taken from the first bucket that both are in. */
static size_t gather(struct packing *packing, const struct packing_block *block)
{
    size_t first = first_bucket(packing, block), last = last_bucket(packing, block), found = 0;
    for (size_t at = first; at <= last; at++) {
        const struct bucket *bucket = &packing->buckets[at];
        packing->steps += bucket->count;
        for (size_t i = 0; i < bucket->count; i++) {
            const struct packing_block *other = &packing->blocks[bucket->blocks[i]];
            if (other->start < block->end && block->start < other->end &&
                (at == first || first_bucket(packing, other) == at))
                packing->near[found++] = bucket->blocks[i];
        }
    }
    if (first != last) {
        sort(packing, packing->near, found, by_offset);
    }
    return found;
}

/* Gives a block the lowest offset that is free for its whole life. */
static bool place(struct packing *packing, uint32_t number)
{
    struct packing_block *block = &packing->blocks[number];
    size_t count = gather(packing, block);
    block->offset = 0;
    for (size_t i = 0; i < count; i++) {
        const struct packing_block *other = &packing->blocks[packing->near[i]];
        if (other->offset >= block->offset + block->size)
            break;
        if (other->offset + other->size > block->offset)
            block->offset = other->offset + other->size;
    }
    for (size_t at = first_bucket(packing, block); at <= last_bucket(packing, block); at++)
        if (!bucket_insert(packing, &packing->buckets[at], number))
            return false;
    return true;
}

/* Places all blocks in the order of their weights. */
static bool try_order(struct packing *packing, struct packing_result *result, bool *better)
{
    uint64_t height = 0;
    *better = false;
    for (size_t i = 0; i < packing->bucket_count; i++)
        packing->buckets[i].count = 0;
    for (size_t i = 0; i < packing->count; i++)
        packing->order[i] = (uint32_t)i;
    sort(packing, packing->order, packing->count, by_weight);
    for (size_t i = 0; i < packing->count; i++) {
        const struct packing_block *block = &packing->blocks[packing->order[i]];
        if (!place(packing, packing->order[i]))
            return false;
        if (block->offset + block->size > height)
            height = block->offset + block->size;
    }
    result->tries++;
    if (height < result->height) {
        result->height = height;
        *better = true;
        for (size_t i = 0; i < packing->count; i++)
            packing->best[i] = packing->blocks[i].offset;
    }
    return true;
}

enum order { ORDER_SIZE, ORDER_AREA, ORDER_LIFETIME, ORDER_TIME, ORDERS };

static double weight_of(const struct packing_block *block, enum order order)
{
    double size = (double)block->size, life = (double)(block->end - block->start);
    switch (order) {
    case ORDER_SIZE:
        return size;
    case ORDER_AREA:
        return size * life;
    case ORDER_LIFETIME:
        return life;
    default:
        return -(double)block->start;
    }
}

/* Moves the blocks that the last try placed above the bound to the front of the order. */
static void mend(struct packing *packing, uint64_t bound)
{
    for (size_t i = 0; i < packing->count; i++) {
        const struct packing_block *block = &packing->blocks[packing->order[i]];
        bool above = block->offset + block->size > bound;
        packing->weight[packing->order[i]] = (above ? (double)packing->count : 0) - (double)i;
    }
}

static bool search(struct packing *packing, struct packing_result *result)
{
    bool better;
    for (enum order order = 0; order < ORDERS && result->height > result->bound; order++) {
        for (size_t i = 0; i < packing->count; i++)
            packing->weight[i] = weight_of(&packing->blocks[i], order);
        unsigned stale = 0;
        do {
            if (!try_order(packing, result, &better))
                return false;
            stale = better ? 0 : stale + 1;
            mend(packing, result->bound);
        } while (result->height > result->bound && stale < MAX_STALE &&
                 packing->steps < packing->effort / ORDERS * (order + 1));
        if (packing->steps >= packing->effort)
            break;
    }
    for (size_t i = 0; i < packing->count; i++)
        packing->blocks[i].offset = packing->best[i];
    return true;
}

bool packing_solve(struct packing_block *blocks, size_t count, uint64_t effort,
                   struct packing_result *result)
{
    uint32_t moments = 1;
    for (size_t i = 0; i < count; i++)
        moments = blocks[i].end > moments ? blocks[i].end : moments;
    struct packing packing = {.blocks = blocks, .count = count, .effort = effort};
    packing.bucket_count =
        count / BUCKET_BLOCKS + 1 < MAX_BUCKETS ? count / BUCKET_BLOCKS + 1 : MAX_BUCKETS;
    packing.bucket_time = (uint32_t)((moments + packing.bucket_count - 1) / packing.bucket_count);
    packing.buckets = calloc(packing.bucket_count, sizeof *packing.buckets);
    packing.order = calloc(count + 1, sizeof *packing.order);
    packing.near = calloc(count + 1, sizeof *packing.near);
    packing.weight = calloc(count + 1, sizeof *packing.weight);
    packing.best = calloc(count + 1, sizeof *packing.best);
    int64_t *changes = calloc(moments + (size_t)1, sizeof *changes);
    bool done = packing.buckets && packing.order && packing.near && packing.weight &&
                packing.best && changes;
    if (done) {
        *result = (struct packing_result){.bound = bound_of(blocks, count, moments, changes),
                                          .height = UINT64_MAX};
        result->proved = result->bound;
        done = search(&packing, result);
    }
    for (size_t i = 0; packing.buckets && i < packing.bucket_count; i++)
        free(packing.buckets[i].blocks);
    free(packing.buckets);
    free(packing.order);
    free(packing.near);
    free(packing.weight);
    free(packing.best);
    free(changes);
    return done;
}
