/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The parts of the model of PyTorch's allocator (c10.h): its blocks, the ordered sets of those that
 * are free, and the two ways to segments. Included by c10*.c alone. */
#ifndef TOOLS_C10_MODEL_H
#define TOOLS_C10_MODEL_H

#include "policy/c10.h"

#define C10_KIB UINT64_C(1024)
#define C10_MIB (C10_KIB * C10_KIB)
#define C10_SMALL_SEGMENT \
    (2 * C10_MIB) /* of small blocks, and their granule where segments
                     expand */

/* Blocks are numbers in one growing array; 0 is none. A segment is a doubly linked list of them in
 * the order of addresses, in which no two neighbours are both free, unless one is mapped and the
 * other is not. */
struct block {
    uint64_t address, size;              /* bytes; addresses are made up, each segment has new
                                            ones */
    uint64_t freed_at;                   /* of searches in its set, when it became free */
    uint32_t previous, next;             /* in the segment */
    uint32_t left, right;                /* in the set of free blocks */
    uint32_t priority;                   /* of the treap: random */
    uint32_t stream, set;                /* the set that it goes to when free */
    uint32_t whole_previous, whole_next; /* in the list of what can be given back */
    bool free;
    bool mapped; /* has memory; only in expandable segments some have none, which are free */
};

enum owner_state { OWNER_NONE, OWNER_LIVE, OWNER_PENDING };

/* What a block of the workload has. */
struct owner {
    uint32_t block;
    enum owner_state state;
};

struct model {
    const struct workload *workload;
    struct c10_policy policy;
    struct block *blocks;
    size_t block_count, block_capacity;
    uint32_t unused; /* list of block numbers to use again, through `next` */
    uint32_t
        whole; /* list of what can be given back, of all pools: segments that are free as a whole;
                  of expandable ones, blocks with a whole granule */
    uint32_t *sets;     /* roots: two per pool, small and large; by size */
    uint32_t *unmapped; /* the same of what has no memory; by address */
    uint64_t *searches; /* in each set */
    bool *ended;        /* by pool: nobody allocates from it any more */
    struct owner *owners;
    uint32_t *pending; /* blocks of the workload, freed and not completed, in no order; may hold
                          completed ones */
    size_t pending_count, pending_live;
    uint64_t memory, reserved, requested, next_address; /* requested: by live blocks */
    bool peaked;                                        /* reserved has come to a new peak for the
                                                           block at hand */
    bool until_oom;                                     /* the first allocation without room ends
                                                           the run */
    uint32_t event;                                     /* at hand; UINT32_MAX before the trace */
    uint64_t random;
    struct c10_result result;
};

static inline bool c10_is_small(uint32_t set)
{
    return set % 2 == 0;
}

/* ---- c10_set.c: ordered sets of free blocks, one for each pool and class ---- */

/* Ordered by stream, size and address, so that best fit is a lower bound; blocks without memory,
 * which have sets of their own, by stream and address. A block's place must not change while it is
 * in a set. */
void c10_set_insert(struct model *model, uint32_t block);
void c10_set_remove(struct model *model, uint32_t block);

/* The first block of the tree at `root` that is of `stream` and not before `size` and `address`; 0
 * if there is none. */
uint32_t c10_set_from(const struct model *model, uint32_t root, uint32_t stream, uint64_t size,
                      uint64_t address);

/* The last one of `stream`. */
uint32_t c10_set_last(const struct model *model, uint32_t root, uint32_t stream);

/* The one that follows, of any stream. */
uint32_t c10_set_after(const struct model *model, uint32_t root, const struct block *block);

/* ---- c10.c: blocks ---- */

/* A new block, zeroed; 0 when host memory is short. Pointers to blocks do not survive it. */
uint32_t c10_block_create(struct model *model);
void c10_block_destroy(struct model *model, uint32_t block);

/* Divides a block that is in no set: it keeps the low `size` bytes. Gives the rest, which is in no
 * set either; 0 when host memory is short. */
uint32_t c10_block_cut(struct model *model, uint32_t block, uint64_t size);

/* Joins a block that is in no set with free neighbours of its kind. Gives the whole, which is in no
 * set. */
uint32_t c10_block_join(struct model *model, uint32_t block);

/* Counts `calls` calls of the driver, of `bytes` in `pieces` pieces together. */
void c10_charge(struct model *model, enum c10_call call, uint64_t calls, uint64_t bytes,
                uint64_t pieces);

void c10_grown(struct model *model, uint64_t bytes);

/* ---- c10_expandable.c ---- */

/* A block of at least `size` bytes that is in no set, for which memory is mapped as it is needed. 0
 * with `full` set where the device has no room, 0 without when host memory is short. */
uint32_t c10_expandable_alloc(struct model *model, uint32_t set, uint32_t stream, uint64_t size,
                              bool *full);

/* The bytes of a free block that are whole granules, of which *first is the address. */
uint64_t c10_expandable_granules(const struct model *model, const struct block *block,
                                 uint64_t *first);

/* Unmaps the whole granules of a free block. False when host memory is short. */
bool c10_expandable_release(struct model *model, uint32_t number);

/* How large a free block could become without another segment. */
uint64_t c10_expandable_size(const struct model *model, uint32_t block);

#endif
