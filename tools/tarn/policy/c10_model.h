/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The parts of the model of PyTorch's allocator (c10.h): its blocks, the ordered sets of free
 * blocks, and the two kinds of segments. Only c10*.c include it. */
#ifndef TOOLS_C10_MODEL_H
#define TOOLS_C10_MODEL_H

#include "policy/c10.h"

#define C10_KIB UINT64_C(1024)
#define C10_MIB (C10_KIB * C10_KIB)
#define C10_SMALL_SEGMENT \
    (2 * C10_MIB) /* the segment size of small blocks, and their granule if segments expand */

/* A block is an index of one growing array; 0 is none. A segment is a doubly linked list of blocks
 * in the order of addresses. Two free neighbours are merged, unless one of them is mapped and the
 * other is not. */
struct block {
    /* bytes; addresses are invented, and each segment has new ones */
    uint64_t address, size;
    /* when it became free: the number of searches in its set so far */
    uint64_t freed_at;
    uint32_t previous, next;             /* in the segment */
    uint32_t left, right;                /* in the set of free blocks */
    uint32_t priority;                   /* of the treap: random */
    uint32_t stream, set;                /* the set that it belongs to while it is free */
    uint32_t whole_previous, whole_next; /* links of the list of blocks that can be given back */
    bool free;
    bool mapped; /* false only for the free parts of expandable segments that have no memory */
};

enum owner_state { OWNER_NONE, OWNER_LIVE, OWNER_PENDING };

/* The model's block for a block of the workload. */
struct owner {
    uint32_t block;
    enum owner_state state;
};

struct model {
    const struct workload *workload;
    struct c10_policy policy;
    struct block *blocks;
    size_t block_count, block_capacity;
    uint32_t unused; /* list of free indices, linked by `next` */
    /* list of what can be given back, of all pools: segments that are entirely free, and, of
     * expandable segments, free blocks that contain a whole granule */
    uint32_t whole;
    /* roots of the sets of free blocks, ordered by size: two per pool, small and large */
    uint32_t *sets;
    uint32_t *unmapped; /* the same for blocks without memory, ordered by address */
    uint64_t *searches; /* in each set */
    bool *ended;        /* by pool: nobody allocates from it any more */
    struct owner *owners;
    /* blocks of the workload that were freed and not completed, in no order; it may also hold
     * completed ones */
    uint32_t *pending;
    size_t pending_count, pending_live;
    uint64_t memory, reserved, requested, next_address; /* bytes; requested: by live blocks */
    /* the current allocation has raised the peak of `reserved` */
    bool peaked;
    /* The first allocation without room ends the run. */
    bool until_oom;
    /* the current event; UINT32_MAX before the trace */
    uint32_t event;
    uint64_t random;
    struct c10_result result;
};

static inline bool c10_is_small(uint32_t set)
{
    return set % 2 == 0;
}

/* ---- c10_set.c: ordered sets of free blocks, one for each pool and class ---- */

/* A set is ordered by stream, size and address, so that the best fit is a lower bound. Sets of
 * blocks without memory are ordered by stream and address. What a block is ordered by must not
 * change while it is in a set. */
void c10_set_insert(struct model *model, uint32_t block);
void c10_set_remove(struct model *model, uint32_t block);

/* The first block of the tree at `root` with this stream that does not precede `size` and
 * `address`; 0 if there is none. */
uint32_t c10_set_from(const struct model *model, uint32_t root, uint32_t stream, uint64_t size,
                      uint64_t address);

/* The last block with this stream. */
uint32_t c10_set_last(const struct model *model, uint32_t root, uint32_t stream);

/* The block that follows, of any stream. */
uint32_t c10_set_after(const struct model *model, uint32_t root, const struct block *block);

/* ---- c10.c: blocks ---- */

/* Creates a block, zeroed; 0 if host memory is short. Invalidates pointers to blocks. */
uint32_t c10_block_create(struct model *model);
void c10_block_destroy(struct model *model, uint32_t block);

/* Divides a block that is in no set: it keeps the low `size` bytes. Returns the rest, which is in
 * no set either; 0 if host memory is short. */
uint32_t c10_block_cut(struct model *model, uint32_t block, uint64_t size);

/* Merges a block that is in no set with free neighbours of its kind. Returns the result, which is
 * in no set. */
uint32_t c10_block_join(struct model *model, uint32_t block);

/* Counts `calls` driver calls that concern `bytes` in `pieces` pieces in all. */
void c10_charge(struct model *model, enum c10_call call, uint64_t calls, uint64_t bytes,
                uint64_t pieces);

void c10_grown(struct model *model, uint64_t bytes);

/* ---- c10_expandable.c ---- */

/* Gets a block of at least `size` bytes that is in no set, and maps memory for it as needed.
 * Returns 0 with `full` set if the device has no room, and 0 without it if host memory is short. */
uint32_t c10_expandable_alloc(struct model *model, uint32_t set, uint32_t stream, uint64_t size,
                              bool *full);

/* The bytes of the whole granules in a free block, and the address of the first one. */
uint64_t c10_expandable_granules(const struct model *model, const struct block *block,
                                 uint64_t *first);

/* Unmaps the whole granules in a free block. False if host memory is short. */
bool c10_expandable_release(struct model *model, uint32_t number);

/* How large a free block could become without another segment. */
uint64_t c10_expandable_size(const struct model *model, uint32_t block);

#endif
