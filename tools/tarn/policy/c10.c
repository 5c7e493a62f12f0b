/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The model of PyTorch's caching allocator: what happens to blocks, and the order in which memory
 * is looked for.
 *
 * Free blocks are in one ordered set per pool and class (small, large). Memory of one stream is
 * never given to another. The policy decides what a segment is: an allocation of the driver, which
 * is in this file, or a range that expands (c10_expandable.c). */
#include "policy/c10_model.h"

#include <stdlib.h>

#define MINIMUM_BLOCK UINT64_C(512)
#define SMALL_LIMIT C10_MIB              /* requests up to this use small segments */
#define OWN_SEGMENT_LIMIT (10 * C10_MIB) /* requests from here on get a segment of their own */
#define OWN_SEGMENT_ROUND (2 * C10_MIB)  /* rounded up to this */
/* A large block is split when more than this would be left. */
#define LARGE_REMAINDER C10_MIB
#define LARGEST_MEMORY (UINT64_C(1) << 48) /* bytes */
#define ALL_SETS UINT32_MAX
#define FIRST_DIVIDED 20 /* log2 of the smallest size that has divisions of its own */

const char *c10_call_name(enum c10_call call)
{
    static const char *const names[] = {
#define X(name) #name,
        C10_CALL_LIST(X)
#undef X
    };
    return names[call];
}

uint64_t c10_calls(const struct c10_result *result)
{
    uint64_t calls = 0;
    for (int i = 0; i < C10_CALLS; i++)
        calls += result->cost[i].calls;
    return calls;
}

struct c10_policy c10_policy_default(bool expandable)
{
    return (struct c10_policy){.expandable = expandable,
                               .max_split = UINT64_MAX,
                               .max_non_split_rounding = 20 * C10_MIB,
                               .large_segment = 20 * C10_MIB};
}

/* ---- blocks ---- */

uint32_t c10_block_create(struct model *model)
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

void c10_block_destroy(struct model *model, uint32_t number)
{
    model->blocks[number].next = model->unused;
    model->unused = number;
}

uint32_t c10_block_cut(struct model *model, uint32_t number, uint64_t size)
{
    uint32_t rest_number = c10_block_create(model);
    if (!rest_number)
        return 0;
    struct block *block = &model->blocks[number], *rest = &model->blocks[rest_number];
    *rest = *block;
    rest->address += size;
    rest->size -= size;
    rest->previous = number;
    if (rest->next)
        model->blocks[rest->next].previous = rest_number;
    block->size = size;
    block->next = rest_number;
    return rest_number;
}

/* Merges two neighbours into the first; the second is gone afterwards. Neither is in a set. */
static void join(struct model *model, uint32_t first, uint32_t second)
{
    struct block *block = &model->blocks[first];
    block->size += model->blocks[second].size;
    block->next = model->blocks[second].next;
    if (block->next)
        model->blocks[block->next].previous = first;
    c10_block_destroy(model, second);
}

uint32_t c10_block_join(struct model *model, uint32_t number)
{
    uint32_t previous = model->blocks[number].previous, next = model->blocks[number].next;
    bool mapped = model->blocks[number].mapped;
    if (next && model->blocks[next].free && model->blocks[next].mapped == mapped) {
        c10_set_remove(model, next);
        join(model, number, next);
    }
    if (previous && model->blocks[previous].free && model->blocks[previous].mapped == mapped) {
        c10_set_remove(model, previous);
        join(model, previous, number);
        number = previous;
    }
    return number;
}

static void block_free(struct model *model, uint32_t number)
{
    number = c10_block_join(model, number);
    model->blocks[number].free = true;
    c10_set_insert(model, number);
}

static bool should_split(const struct model *model, uint32_t set, uint64_t size, uint64_t rest)
{
    if (c10_is_small(set) || model->policy.expandable)
        return rest >= MINIMUM_BLOCK;
    return size < model->policy.max_split && rest > LARGE_REMAINDER;
}

/* Hands out the low part of a block that is in no set, and frees the rest if it is large enough. */
static bool block_take(struct model *model, uint32_t number, uint64_t size)
{
    struct block *block = &model->blocks[number];
    if (should_split(model, block->set, size, block->size - size)) {
        uint32_t rest = c10_block_cut(model, number, size);
        if (!rest)
            return false;
        model->blocks[rest].free = true;
        c10_set_insert(model, rest);
    }
    model->blocks[number].free = false;
    return true;
}

/* ---- sizes ---- */

static unsigned log2_of(uint64_t size)
{
    return 63 - (unsigned)__builtin_clzll(size);
}

/* Rounds up to the next of `parts` equal parts between two powers of two. */
static uint64_t divided_size(uint64_t size, uint64_t parts)
{
    uint64_t power = UINT64_C(1) << log2_of(size), step = power / parts;
    if (size == power)
        return size;
    return step ? (size + step - 1) & ~(step - 1) : power * 2;
}

static uint64_t rounded_size(const struct c10_policy *policy, uint64_t size)
{
    if (size < MINIMUM_BLOCK)
        return MINIMUM_BLOCK;
    unsigned power = log2_of(size), place = power < FIRST_DIVIDED ? 0 : power - FIRST_DIVIDED;
    uint64_t parts = policy->divisions[place < C10_DIVISIONS ? place : C10_DIVISIONS - 1];
    if (parts > 1 && size > MINIMUM_BLOCK * parts)
        return divided_size(size, parts);
    return (size + MINIMUM_BLOCK - 1) & ~(MINIMUM_BLOCK - 1);
}

static uint64_t segment_size(const struct c10_policy *policy, uint64_t rounded)
{
    if (rounded <= SMALL_LIMIT)
        return C10_SMALL_SEGMENT;
    if (rounded < OWN_SEGMENT_LIMIT)
        return policy->large_segment;
    return (rounded + OWN_SEGMENT_ROUND - 1) & ~(OWN_SEGMENT_ROUND - 1);
}

/* ---- segments of the driver ---- */

void c10_charge(struct model *model, enum c10_call call, uint64_t calls, uint64_t bytes,
                uint64_t pieces)
{
    struct c10_cost *cost = &model->result.cost[call];
    cost->calls += calls;
    cost->bytes += bytes;
    cost->pieces += pieces;
}

void c10_grown(struct model *model, uint64_t bytes)
{
    model->reserved += bytes;
    if (model->reserved > model->result.peak_reserved) {
        model->result.peak_reserved = model->reserved;
        model->peaked = true;
    }
}

/* Allocates a segment, as one block that is in no set. Results as of c10_expandable_alloc(). */
static uint32_t segment_alloc(struct model *model, uint32_t set, uint32_t stream, uint64_t size,
                              bool *full)
{
    size = segment_size(&model->policy, size);
    *full = size > model->memory - model->reserved;
    uint32_t number = *full ? 0 : c10_block_create(model);
    if (!number)
        return 0;
    model->blocks[number] = (struct block){
        .address = model->next_address, .size = size, .stream = stream, .set = set, .mapped = true};
    model->next_address += size;
    c10_charge(model, C10_CALL_alloc, 1, size, 1);
    c10_grown(model, size);
    return number;
}

/* Gives a segment back that is entirely free. */
static void segment_free(struct model *model, uint32_t number)
{
    uint64_t size = model->blocks[number].size;
    c10_set_remove(model, number);
    model->reserved -= size;
    c10_charge(model, C10_CALL_free, 1, size, 1);
    c10_block_destroy(model, number);
}

/* Gets memory from the driver for a block of `size` bytes. */
static uint32_t grow(struct model *model, uint32_t set, uint32_t stream, uint64_t size, bool *full)
{
    return model->policy.expandable ? c10_expandable_alloc(model, set, stream, size, full)
                                    : segment_alloc(model, set, stream, size, full);
}

/* ---- giving back ---- */

/* True if memory of a set may go back to the driver. */
static bool is_releasable(const struct model *model, uint32_t set)
{
    return set < 2 || model->ended[set / 2];
}

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

/* Gives back the cached memory of the default pool, and of pools from which nobody allocates any
 * more, for sets from `first` and below `end`. False if host memory is short. */
static bool release_cached(struct model *model, uint32_t first, uint32_t end)
{
    bool done = true;
    complete_all(model);
    for (uint32_t number = model->whole, next; number; number = next) {
        uint32_t set = model->blocks[number].set;
        next = model->blocks[number].whole_next;
        if (set < first || set >= end || !is_releasable(model, set))
            continue;
        if (model->policy.expandable)
            done = c10_expandable_release(model, number) && done;
        else
            segment_free(model, number);
    }
    return done;
}

/* A block's age, counted in searches of its set. */
static uint64_t age_of(const struct model *model, uint32_t number)
{
    return model->searches[model->blocks[number].set] - model->blocks[number].freed_at;
}

static bool is_collectable(const struct model *model, uint32_t number)
{
    return model->blocks[number].set == 1; /* large, of the default pool */
}

/* Gives back cached segments that are older than the mean, until reserved memory is below the part
 * of the device that garbage_collection_threshold sets. */
static void collect(struct model *model)
{
    if (model->policy.expandable)
        return; /* PyTorch collects segments of the driver only */
    uint64_t most = (uint64_t)(model->policy.collect_above * (double)model->memory);
    double ages = 0, count = 0;
    for (uint32_t number = model->whole; number; number = model->blocks[number].whole_next)
        if (is_collectable(model, number)) {
            ages += (double)age_of(model, number);
            count++;
        }
    for (bool freed = true; freed && count > 0 && model->reserved > most;) {
        double mean = ages / count;
        freed = false;
        for (uint32_t number = model->whole, next; number; number = next) {
            double age = (double)age_of(model, number);
            next = model->blocks[number].whole_next;
            if (!is_collectable(model, number) || age < mean)
                continue;
            segment_free(model, number);
            ages -= age;
            count--;
            freed = true;
        }
    }
}

/* With max_split_size: gives back one cached segment that is large enough for a request, or else
 * several, the largest first. False if all together are too small. */
static bool release_oversize(struct model *model, uint32_t set, uint32_t stream, uint64_t size)
{
    uint64_t released = 0, most = model->policy.max_split, wanted = size < most ? most : size;
    if (most == UINT64_MAX || model->policy.expandable)
        return false;
    uint32_t number = c10_set_from(model, model->sets[set], stream, wanted, 0);
    if (number) {
        segment_free(model, number);
        return true;
    }
    while (released < wanted && (number = c10_set_last(model, model->sets[set], stream)) &&
           model->blocks[number].size >= most) {
        released += model->blocks[number].size;
        segment_free(model, number);
    }
    return released >= wanted;
}

/* ---- the workload ---- */

/* Takes the free block that serves a request best from its set; 0 if none does. If segments expand,
 * a block's size is what it could become. */
static uint32_t search(struct model *model, uint32_t set, uint32_t stream, uint64_t size)
{
    uint64_t most = model->policy.max_split;
    model->searches[set]++;
    uint32_t number = c10_set_from(model, model->sets[set], stream, size, 0);
    while (number && model->policy.expandable) {
        uint32_t next = c10_set_after(model, model->sets[set], &model->blocks[number]);
        if (!next || model->blocks[next].stream != stream ||
            c10_expandable_size(model, next) >= c10_expandable_size(model, number))
            break;
        number = next;
    }
    if (!number || (size < most && model->blocks[number].size >= most) ||
        (size >= most && model->blocks[number].size >= size + model->policy.max_non_split_rounding))
        return 0;
    c10_set_remove(model, number);
    return number;
}

/* Gets a block of at least `size` bytes, by the allocator's steps in their order. 0 as from
 * c10_expandable_alloc(). */
static uint32_t obtain(struct model *model, uint32_t set, uint32_t stream, uint64_t size,
                       bool *full)
{
    uint32_t number = search(model, set, stream, size);
    *full = false;
    if (number)
        return number;
    if (model->policy.collect_above > 0)
        collect(model);
    number = grow(model, set, stream, size, full);
    if (!number && *full && release_oversize(model, set, stream, size))
        number = grow(model, set, stream, size, full);
    if (number || !*full)
        return number;
    model->result.retries++;
    *full = release_cached(model, 0, ALL_SETS);
    return *full ? grow(model, set, stream, size, full) : 0;
}

/* `tries`: the request failed in the recording, and may fail here. */
static bool allocate(struct model *model, uint32_t block, bool tries)
{
    const struct workload_block *wanted = &model->workload->blocks[block];
    if (wanted->size == 0)
        return true;
    uint64_t size = rounded_size(&model->policy, wanted->size);
    if (model->pending_live)
        c10_charge(model, C10_CALL_event_query, 1, 0, 0);
    bool full;
    uint32_t number =
        obtain(model, wanted->pool * 2 + (size > SMALL_LIMIT), wanted->stream, size, &full);
    if (!number) {
        if (full && !model->result.ooms && !model->result.denied) {
            model->result.first_oom = model->event;
            model->result.first_oom_size = wanted->size;
        }
        (*(tries ? &model->result.denied : &model->result.ooms))++;
        return full;
    }
    model->requested += wanted->size;
    if (model->peaked)
        model->result.wasted = model->reserved - model->requested;
    model->peaked = false;
    model->owners[block] = (struct owner){.block = number, .state = OWNER_LIVE};
    return block_take(model, number, size);
}

/* In PyTorch a free in the order of another stream is written as record_stream() on that stream and
 * a free, which costs an event and a query. */
static void request_free(struct model *model, uint32_t block, bool moved)
{
    struct owner *owner = &model->owners[block];
    if (owner->state != OWNER_LIVE)
        return;
    owner->state = OWNER_PENDING;
    model->requested -= model->workload->blocks[block].size;
    if (moved) {
        c10_charge(model, C10_CALL_event_record, 1, 0, 0);
        c10_charge(model, C10_CALL_event_query, 1, 0, 0);
    }
    if (model->workload->blocks[block].late) {
        model->pending[model->pending_count++] = block;
        model->pending_live++;
        c10_charge(model, C10_CALL_event_record, 1, 0, 0);
    }
}

static bool step(struct model *model, const struct workload_op *op)
{
    switch ((enum workload_action)op->action) {
    case WORKLOAD_ALLOC:
        return allocate(model, op->block, false);
    case WORKLOAD_TRY:
        model->result.tried++;
        if (!allocate(model, op->block, true))
            return false;
        request_free(model, op->block, false);
        complete(model, op->block);
        return true;
    case WORKLOAD_FREE:
        request_free(model, op->block, op->stream != WORKLOAD_NO_STREAM);
        return true;
    case WORKLOAD_COMPLETED:
        if (model->owners[op->block].state == OWNER_PENDING &&
            model->workload->blocks[op->block].late)
            c10_charge(model, C10_CALL_event_query, 1, 0, 0);
        complete(model, op->block);
        return true;
    case WORKLOAD_POOL_END:
        model->ended[op->other] = true;
        return release_cached(model, op->other * 2, op->other * 2 + 2);
    case WORKLOAD_TRIM: /* of the default pool; PyTorch does not trim a pool that is in use */
        return op->other || release_cached(model, 0, ALL_SETS);
    default:
        return true;
    }
}

static bool run(struct model *model)
{
    const struct workload *workload = model->workload;
    for (size_t i = 0; i < workload->initial_count; i++)
        if (!allocate(model, (uint32_t)i, false))
            return false;
    for (size_t i = 0; i < workload->op_count &&
                       !(model->until_oom && (model->result.ooms || model->result.denied));
         i++) {
        model->event = workload->ops[i].event;
        if (!step(model, &workload->ops[i]))
            return false;
    }
    return true;
}

static bool run_model(const struct workload *workload, const struct c10_policy *policy,
                      uint64_t memory, bool until_oom, struct c10_result *result)
{
    struct model model = {.workload = workload,
                          .policy = *policy,
                          .memory = memory < LARGEST_MEMORY ? memory : LARGEST_MEMORY,
                          .next_address = MINIMUM_BLOCK,
                          .until_oom = until_oom,
                          .event = UINT32_MAX,
                          .random = 1};
    size_t sets = workload->pool_count * 2 + 2;
    model.block_capacity = 1024;
    model.block_count = 1; /* 0 is none */
    model.blocks = calloc(model.block_capacity, sizeof *model.blocks);
    model.sets = calloc(sets, sizeof *model.sets);
    model.unmapped = calloc(sets, sizeof *model.unmapped);
    model.searches = calloc(sets, sizeof *model.searches);
    model.ended = calloc(sets, sizeof *model.ended);
    model.owners = calloc(workload->block_count + 1, sizeof *model.owners);
    model.pending = calloc(workload->late_count + 1, sizeof *model.pending);
    bool done = model.blocks && model.sets && model.unmapped && model.searches && model.ended &&
                model.owners && model.pending && run(&model);
    if (done)
        *result = model.result;
    free(model.blocks);
    free(model.sets);
    free(model.unmapped);
    free(model.searches);
    free(model.ended);
    free(model.owners);
    free(model.pending);
    return done;
}

bool c10_run(const struct workload *workload, const struct c10_policy *policy, uint64_t memory,
             struct c10_result *result)
{
    return run_model(workload, policy, memory, false, result);
}

bool c10_run_to_stop(const struct workload *workload, const struct c10_policy *policy,
                     uint64_t memory, struct c10_result *result)
{
    return run_model(workload, policy, memory, true, result);
}

bool c10_fits(const struct workload *workload, const struct c10_policy *policy, uint64_t memory,
              bool *fits)
{
    struct c10_result result;
    bool done = c10_run_to_stop(workload, policy, memory, &result);
    *fits = done && !result.ooms && !result.denied;
    return done;
}
