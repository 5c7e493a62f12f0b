/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The model of PyTorch's caching allocator.
 *
 * Segments come from the driver; a segment is a doubly linked list of blocks in the order of addresses. Free blocks are
 * kept in one ordered set a pool and class (small, large), ordered by stream, size and address, so that best fit is a
 * lower bound. Adjacent blocks of a segment are never both free. Memory of one stream is never given to another.
 *
 * The sets are treaps whose nodes are the blocks themselves. Blocks are numbers in one growing array; 0 is none. */
#include "replay/c10.h"

#include <stdlib.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

#define MINIMUM_BLOCK UINT64_C(512)
#define SMALL_LIMIT MIB          /* requests up to this use small segments */
#define SMALL_SEGMENT (2 * MIB)  /* of this size */
#define LARGE_SEGMENT (20 * MIB) /* other requests below OWN_SEGMENT_LIMIT use segments of this size */
#define OWN_SEGMENT_LIMIT (10 * MIB)
#define OWN_SEGMENT_ROUND (2 * MIB) /* all others get one of their own, rounded up to this */
#define LARGE_REMAINDER MIB         /* a large block is split when more than this would be left */

#define TABLE_ALLOC_NS UINT64_C(160000)      /* cost tables: an allocation */
#define TABLE_A_ALLOC_MIB_NS UINT64_C(16000) /* and a MiB of it, in table A */
#define TABLE_B_ALLOC_MIB_NS UINT64_C(800)
#define TABLE_FREE_NS UINT64_C(50000)
#define TABLE_EVENT_RECORD_NS UINT64_C(500)
#define TABLE_EVENT_QUERY_NS UINT64_C(300)

struct block {
    uint64_t address, size;              /* bytes; addresses are made up, each segment has new ones */
    uint32_t previous, next;             /* in the segment */
    uint32_t left, right;                /* in the set of free blocks */
    uint32_t priority;                   /* of the treap: random */
    uint32_t stream, set;                /* the set that it goes to when free */
    uint32_t whole_previous, whole_next; /* in the list of segments that are free as a whole */
    bool free;
};

enum owner_state { OWNER_NONE, OWNER_LIVE, OWNER_PENDING };

/* What a block of the workload has. */
struct owner {
    uint32_t block;
    enum owner_state state;
};

struct model {
    const struct workload *workload;
    struct block *blocks;
    size_t block_count, block_capacity;
    uint32_t unused; /* list of block numbers to use again, through `next` */
    uint32_t whole;  /* list of the default pool's segments that are free as a whole */
    uint32_t *sets;  /* roots: two a pool, small and large */
    struct owner *owners;
    uint32_t *pending; /* blocks of the workload, freed and not completed, in no order; may hold completed ones */
    size_t pending_count, pending_live;
    uint64_t memory, reserved, requested, next_address; /* requested: by live blocks */
    bool peaked;                                        /* reserved has come to a new peak for the block at hand */
    uint32_t event;                                     /* at hand; UINT32_MAX before the trace */
    uint64_t random;
    struct c10_result result;
};

/* --- ordered sets ------------------------------------------------------------------------------------------------- */

static bool precedes(const struct block *a, uint32_t stream, uint64_t size, uint64_t address)
{
    if (a->stream != stream)
        return a->stream < stream;
    if (a->size != size)
        return a->size < size;
    return a->address < address;
}

/* Divides the tree at `root` into what precedes `at` and the rest. */
static void set_split(struct model *model, uint32_t root, const struct block *at, uint32_t *before, uint32_t *after)
{
    while (root) {
        struct block *node = &model->blocks[root];
        if (precedes(node, at->stream, at->size, at->address)) {
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

/* Whether a block in a set is a segment that the driver could have back. Does not change while it is in the set. */
static bool is_whole(const struct block *block)
{
    return !block->previous && !block->next && block->set < 2;
}

static void set_insert(struct model *model, uint32_t number)
{
    struct block *block = &model->blocks[number];
    if (is_whole(block)) {
        block->whole_previous = 0;
        block->whole_next = model->whole;
        if (model->whole)
            model->blocks[model->whole].whole_previous = number;
        model->whole = number;
    }
    uint32_t *link = &model->sets[block->set];
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    block->priority = (uint32_t)(model->random >> 32);
    while (*link && model->blocks[*link].priority >= block->priority) {
        struct block *node = &model->blocks[*link];
        link = precedes(node, block->stream, block->size, block->address) ? &node->right : &node->left;
    }
    uint32_t before = 0, after = 0;
    set_split(model, *link, block, &before, &after);
    block->left = before;
    block->right = after;
    /* The analyser takes what `link` points to for the only way to the blocks. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    *link = number;
}

static void set_remove(struct model *model, uint32_t number)
{
    struct block *block = &model->blocks[number];
    if (is_whole(block)) {
        if (block->whole_next)
            model->blocks[block->whole_next].whole_previous = block->whole_previous;
        if (block->whole_previous)
            model->blocks[block->whole_previous].whole_next = block->whole_next;
        else
            model->whole = block->whole_next;
    }
    uint32_t *link = &model->sets[block->set];
    while (*link != number) {
        struct block *node = &model->blocks[*link];
        link = precedes(node, block->stream, block->size, block->address) ? &node->right : &node->left;
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

/* The smallest free block of a set that holds `size` bytes on `stream`, at the lowest address; 0 if there is none. */
static uint32_t set_best_fit(const struct model *model, uint32_t set, uint32_t stream, uint64_t size)
{
    uint32_t best = 0, at = model->sets[set];
    while (at) {
        const struct block *node = &model->blocks[at];
        if (precedes(node, stream, size, 0)) {
            at = node->right;
        } else {
            best = at;
            at = node->left;
        }
    }
    return best && model->blocks[best].stream == stream ? best : 0;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* A new block, zeroed; 0 when host memory is short. Pointers to blocks do not survive it. */
static uint32_t block_create(struct model *model)
{
    uint32_t number = model->unused;
    if (number) {
        model->unused = model->blocks[number].next;
    } else {
        if (model->block_count == model->block_capacity) {
            size_t capacity = model->block_capacity * 2;
            struct block *grown = reallocarray(model->blocks, capacity, sizeof *grown);
            if (!grown || capacity > UINT32_MAX)
                return 0;
            model->blocks = grown;
            model->block_capacity = capacity;
        }
        number = (uint32_t)model->block_count++;
    }
    model->blocks[number] = (struct block){0};
    return number;
}

static void block_destroy(struct model *model, uint32_t number)
{
    model->blocks[number].next = model->unused;
    model->unused = number;
}

static uint64_t rounded_size(uint64_t size)
{
    return size < MINIMUM_BLOCK ? MINIMUM_BLOCK : (size + MINIMUM_BLOCK - 1) & ~(MINIMUM_BLOCK - 1);
}

static uint64_t segment_size(uint64_t rounded)
{
    if (rounded <= SMALL_LIMIT)
        return SMALL_SEGMENT;
    if (rounded < OWN_SEGMENT_LIMIT)
        return LARGE_SEGMENT;
    return (rounded + OWN_SEGMENT_ROUND - 1) & ~(OWN_SEGMENT_ROUND - 1);
}

static bool should_split(uint64_t rounded, uint64_t remaining)
{
    return rounded <= SMALL_LIMIT ? remaining >= MINIMUM_BLOCK : remaining > LARGE_REMAINDER;
}

/* Makes one block of two neighbours; the second is gone afterwards. Neither is in a set. */
static void block_join(struct model *model, uint32_t first, uint32_t second)
{
    struct block *block = &model->blocks[first];
    block->size += model->blocks[second].size;
    block->next = model->blocks[second].next;
    if (block->next)
        model->blocks[block->next].previous = first;
    block_destroy(model, second);
}

static void block_free(struct model *model, uint32_t number)
{
    uint32_t previous = model->blocks[number].previous, next = model->blocks[number].next;
    if (next && model->blocks[next].free) {
        set_remove(model, next);
        block_join(model, number, next);
    }
    if (previous && model->blocks[previous].free) {
        set_remove(model, previous);
        block_join(model, previous, number);
        number = previous;
    }
    model->blocks[number].free = true;
    set_insert(model, number);
}

/* Hands out the low part of a block that is in no set, and keeps the rest free if it is worth it. */
static bool block_split(struct model *model, uint32_t number, uint64_t rounded)
{
    model->blocks[number].free = false;
    if (!should_split(rounded, model->blocks[number].size - rounded))
        return true;
    uint32_t rest_number = block_create(model);
    if (!rest_number)
        return false;
    struct block *block = &model->blocks[number], *rest = &model->blocks[rest_number];
    *rest = *block;
    rest->address += rounded;
    rest->size -= rounded;
    rest->previous = number;
    if (rest->next)
        model->blocks[rest->next].previous = rest_number;
    rest->free = true;
    block->size = rounded;
    block->next = rest_number;
    set_insert(model, rest_number);
    return true;
}

/* --- the driver --------------------------------------------------------------------------------------------------- */

/* A segment, as one block that is in no set. 0 with `full` set where the device has no room, 0 without when host memory
 * is short. */
static uint32_t segment_alloc(struct model *model, uint32_t set, uint32_t stream, uint64_t size, bool *full)
{
    *full = size > model->memory - model->reserved;
    uint32_t number = *full ? 0 : block_create(model);
    if (!number)
        return 0;
    model->blocks[number] = (struct block){.address = model->next_address, .size = size, .stream = stream, .set = set};
    model->next_address += size;
    model->reserved += size;
    if (model->reserved > model->result.peak_reserved) {
        model->result.peak_reserved = model->reserved;
        model->peaked = true;
    }
    model->result.allocs++;
    model->result.alloc_bytes += size;
    model->result.time_a_ns += TABLE_ALLOC_NS + size / MIB * TABLE_A_ALLOC_MIB_NS;
    model->result.time_b_ns += TABLE_ALLOC_NS + size / MIB * TABLE_B_ALLOC_MIB_NS;
    return number;
}

static void charge(struct model *model, uint64_t ns)
{
    model->result.time_a_ns += ns;
    model->result.time_b_ns += ns;
}

/* Gives back every segment of the default pool that is free as a whole. */
static void release_cached(struct model *model)
{
    model->result.retries++;
    while (model->whole) {
        uint32_t number = model->whole;
        set_remove(model, number);
        model->reserved -= model->blocks[number].size;
        model->result.frees++;
        model->result.free_bytes += model->blocks[number].size;
        charge(model, TABLE_FREE_NS);
        block_destroy(model, number);
    }
}

/* --- the workload ------------------------------------------------------------------------------------------------- */

static void complete(struct model *model, uint32_t block)
{
    struct owner *owner = &model->owners[block];
    if (owner->state == OWNER_NONE)
        return;
    model->pending_live -= owner->state == OWNER_PENDING && model->workload->blocks[block].late;
    owner->state = OWNER_NONE;
    block_free(model, owner->block);
}

/* Waits for every late free, as the allocator does before it gives segments back. */
static void complete_all(struct model *model)
{
    for (size_t i = 0; i < model->pending_count; i++)
        if (model->owners[model->pending[i]].state == OWNER_PENDING)
            complete(model, model->pending[i]);
    model->pending_count = 0;
}

static bool allocate(struct model *model, uint32_t block)
{
    const struct workload_block *wanted = &model->workload->blocks[block];
    if (wanted->size == 0)
        return true;
    uint64_t size = rounded_size(wanted->size);
    uint32_t set = wanted->pool * 2 + (size > SMALL_LIMIT);
    if (model->pending_live) {
        model->result.event_queries++;
        charge(model, TABLE_EVENT_QUERY_NS);
    }

    uint32_t number = set_best_fit(model, set, wanted->stream, size);
    if (number) {
        set_remove(model, number);
    } else {
        bool full;
        number = segment_alloc(model, set, wanted->stream, segment_size(size), &full);
        if (!number && full) {
            complete_all(model);
            release_cached(model);
            number = segment_alloc(model, set, wanted->stream, segment_size(size), &full);
        }
        if (!number) {
            if (full && !model->result.ooms++) {
                model->result.first_oom = model->event;
                model->result.first_oom_size = wanted->size;
            }
            return full;
        }
    }
    model->requested += wanted->size;
    if (model->peaked)
        model->result.wasted = model->reserved - model->requested;
    model->peaked = false;
    model->owners[block] = (struct owner){.block = number, .state = OWNER_LIVE};
    return block_split(model, number, size);
}

/* A free in the order of another stream is what PyTorch writes as a use of that stream (record_stream) and a free: an event and a
 * query of it. */
static void request_free(struct model *model, uint32_t block, bool moved)
{
    struct owner *owner = &model->owners[block];
    if (owner->state != OWNER_LIVE)
        return;
    owner->state = OWNER_PENDING;
    model->requested -= model->workload->blocks[block].size;
    if (moved) {
        model->result.event_records++;
        model->result.event_queries++;
        charge(model, TABLE_EVENT_RECORD_NS + TABLE_EVENT_QUERY_NS);
    }
    if (model->workload->blocks[block].late) {
        model->pending[model->pending_count++] = block;
        model->pending_live++;
        model->result.event_records++;
        charge(model, TABLE_EVENT_RECORD_NS);
    }
}

static bool run(struct model *model)
{
    const struct workload *workload = model->workload;
    for (size_t i = 0; i < workload->initial_count; i++)
        if (!allocate(model, (uint32_t)i))
            return false;
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        model->event = op->event;
        if (op->action == WORKLOAD_ALLOC && !allocate(model, op->block))
            return false;
        if (op->action == WORKLOAD_FREE)
            request_free(model, op->block, op->stream != WORKLOAD_NO_STREAM);
        if (op->action == WORKLOAD_COMPLETED) {
            if (model->owners[op->block].state == OWNER_PENDING && workload->blocks[op->block].late) {
                model->result.event_queries++;
                charge(model, TABLE_EVENT_QUERY_NS);
            }
            complete(model, op->block);
        }
    }
    return true;
}

bool c10_run(const struct workload *workload, uint64_t memory, struct c10_result *result)
{
    struct model model = {
        .workload = workload, .memory = memory, .next_address = MINIMUM_BLOCK, .event = UINT32_MAX, .random = 1};
    model.block_capacity = 1024;
    model.block_count = 1; /* 0 is none */
    model.blocks = calloc(model.block_capacity, sizeof *model.blocks);
    model.sets = calloc(workload->pool_count * 2 + 2, sizeof *model.sets);
    model.owners = calloc(workload->block_count + 1, sizeof *model.owners);
    model.pending = calloc(workload->late_count + 1, sizeof *model.pending);
    bool done = model.blocks && model.sets && model.owners && model.pending && run(&model);
    if (done)
        *result = model.result;
    free(model.blocks);
    free(model.sets);
    free(model.owners);
    free(model.pending);
    return done;
}
