/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the making of an analysis, from a workload, which knows the lifetimes of blocks, and from
 * the segment events.
 *
 * Memory that was mapped before the trace is inferred as the workload infers blocks: memory that is
 * given back and was never taken was there from the beginning, and so was memory that only the
 * final state has. Ranges that are mapped at one time never overlap. analysis_moment.c answers
 * questions about a moment, analysis_group.c makes groups. */
#include "analysis/analysis.h"

#include "table.h"

#include <stdlib.h>
#include <string.h>

#define UNIT UINT64_C(512) /* c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize */

/* An analysis under construction. */
struct draft {
    struct analysis *analysis;
    const struct snapshot *snapshot;
    const struct snapshot_trace *trace; /* NULL without a trace */
    /* address to index in snapshot.blocks, for the blocks in use at the end */
    struct table final;
    uint32_t *final_segment; /* for each of snapshot.blocks: its segment */
    size_t range_capacity, oom_capacity;
    uint32_t *mapped; /* the ranges that are mapped at this event, by address */
    size_t mapped_count, mapped_capacity;
};

static bool reserve(void **array, size_t *capacity, size_t count, size_t element)
{
    if (count <= *capacity)
        return true;
    size_t next = *capacity < 16 ? 16 : *capacity * 2;
    next = next < count ? count : next;
    void *grown = realloc(*array, next * element);
    if (!grown)
        return false;
    *array = grown;
    *capacity = next;
    return true;
}

/* --- blocks --- */

static bool draft_final_state(struct draft *draft)
{
    const struct snapshot *snapshot = draft->snapshot;
    draft->final_segment = calloc(snapshot->block_count + 1, sizeof *draft->final_segment);
    if (!draft->final_segment)
        return false;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct snapshot_segment *segment = &snapshot->segments[i];
        for (size_t j = segment->first_block; j < segment->first_block + segment->block_count;
             j++) {
            draft->final_segment[j] = (uint32_t)i;
            if (segment->device == draft->analysis->device &&
                snapshot->blocks[j].state != SNAPSHOT_INACTIVE &&
                !table_add(&draft->final, snapshot->blocks[j].address, 0, (uint32_t)j))
                return false;
        }
    }
    return true;
}

/* Fills in what the final state says of a block that was never freed. */
static void draft_from_final(const struct draft *draft, struct analysis_block *block, bool known)
{
    const uint32_t *at = table_find(&draft->final, block->address, 0);
    if (!at)
        return;
    const struct snapshot_block *last = &draft->snapshot->blocks[*at];
    const struct snapshot_segment *segment = &draft->snapshot->segments[draft->final_segment[*at]];
    block->room = last->size > block->size ? last->size : block->size;
    if (known)
        return;
    block->stream = segment->stream_place;
    block->pool = segment->pool_place;
    block->stack = last->stack;
    block->tag = last->tag;
}

/* Fills in what a block's first event says. A free has everything except the place and the thread
 * of the allocation. */
static void draft_from_event(const struct draft *draft, struct analysis_block *block,
                             uint32_t number, bool allocated)
{
    const struct snapshot_event *event = &draft->trace->events[number];
    block->stream = event->stream;
    block->pool = event->pool;
    block->tag = event->tag;
    block->stack = allocated ? event->stack : 0;
    block->thread = allocated ? event->thread : 0;
}

static bool draft_blocks(struct draft *draft)
{
    struct analysis *analysis = draft->analysis;
    const struct workload *workload = &analysis->workload;
    uint8_t *known = calloc(workload->block_count + 1, 1);
    analysis->blocks = calloc(workload->block_count + 1, sizeof *analysis->blocks);
    if (!known || !analysis->blocks) {
        free(known);
        return false;
    }
    for (size_t i = 0; i < workload->block_count; i++)
        analysis->blocks[i] =
            (struct analysis_block){.address = workload->blocks[i].address,
                                    .size = workload->blocks[i].size,
                                    .room = (workload->blocks[i].size + UNIT - 1) / UNIT * UNIT,
                                    .begin = i < workload->initial_count ? 0 : ANALYSIS_NEVER,
                                    .freed = ANALYSIS_NEVER,
                                    .end = ANALYSIS_NEVER};
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        bool before = op->event == WORKLOAD_BEFORE;
        if (op->block >= workload->block_count || (!before && op->event >= analysis->event_count) ||
            (op->action != WORKLOAD_ALLOC && op->action != WORKLOAD_FREE &&
             op->action != WORKLOAD_COMPLETED))
            continue;
        struct analysis_block *block = &analysis->blocks[op->block];
        if (!known[op->block] && !before)
            draft_from_event(draft, block, op->event, op->action == WORKLOAD_ALLOC);
        known[op->block] |= !before;
        *(op->action == WORKLOAD_ALLOC  ? &block->begin
          : op->action == WORKLOAD_FREE ? &block->freed
                                        : &block->end) = before ? 0 : op->event + 1;
    }
    size_t kept = 0;
    for (size_t i = 0; i < workload->block_count; i++) {
        struct analysis_block block = analysis->blocks[i];
        if (block.begin == ANALYSIS_NEVER || block.size == 0)
            continue;
        if (block.end == ANALYSIS_NEVER)
            draft_from_final(draft, &block, known[i]);
        analysis->blocks[kept++] = block;
    }
    analysis->block_count = kept;
    free(known);
    return true;
}

/* Without a trace: takes the blocks that are in use. */
static bool draft_state_blocks(struct draft *draft)
{
    struct analysis *analysis = draft->analysis;
    const struct snapshot *snapshot = draft->snapshot;
    analysis->blocks = calloc(draft->final.count + 1, sizeof *analysis->blocks);
    if (!analysis->blocks)
        return false;
    for (size_t i = 0; i < snapshot->block_count; i++) {
        const struct snapshot_block *block = &snapshot->blocks[i];
        const uint32_t *at =
            block->state == SNAPSHOT_INACTIVE ? NULL : table_find(&draft->final, block->address, 0);
        if (!at || *at != i)
            continue;
        struct analysis_block *kept = &analysis->blocks[analysis->block_count++];
        *kept = (struct analysis_block){
            .address = block->address,
            .size = block->requested_size ? block->requested_size : block->size,
            .room = block->size,
            .freed = block->state == SNAPSHOT_ACTIVE_ALLOCATED ? ANALYSIS_NEVER : 0,
            .end = ANALYSIS_NEVER};
        draft_from_final(draft, kept, false);
    }
    return true;
}

/* --- ranges --- */

static struct analysis_range *range_at(const struct draft *draft, size_t place)
{
    return &draft->analysis->ranges[draft->mapped[place]];
}

/* The index of the first mapped range that ends behind `address`. */
static size_t range_find(const struct draft *draft, uint64_t address)
{
    size_t low = 0, high = draft->mapped_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct analysis_range *range = range_at(draft, middle);
        if (range->address + range->size > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool range_add(struct draft *draft, struct analysis_range range)
{
    struct analysis *analysis = draft->analysis;
    if (range.size == 0)
        return true;
    if (analysis->range_count == UINT32_MAX ||
        !reserve((void **)&analysis->ranges, &draft->range_capacity, analysis->range_count + 1,
                 sizeof *analysis->ranges))
        return false;
    analysis->ranges[analysis->range_count++] = range;
    if (range.end != ANALYSIS_NEVER)
        return true;
    if (!reserve((void **)&draft->mapped, &draft->mapped_capacity, draft->mapped_count + 1,
                 sizeof *draft->mapped))
        return false;
    size_t place = range_find(draft, range.address);
    memmove(draft->mapped + place + 1, draft->mapped + place,
            (draft->mapped_count - place) * sizeof *draft->mapped);
    draft->mapped[place] = (uint32_t)(analysis->range_count - 1);
    draft->mapped_count++;
    return true;
}

/* Unmaps [address, address + size) at a moment. If `before`, parts that were not known to be mapped
 * were so from the beginning. The parts of a range on either side are ranges of their own, which
 * begin when it did. */
static bool range_end(struct draft *draft, struct analysis_range gone, uint32_t moment, bool before)
{
    uint64_t at = gone.address, end = gone.address + gone.size;
    size_t place = range_find(draft, at);
    while (place < draft->mapped_count && range_at(draft, place)->address < end) {
        struct analysis_range old = *range_at(draft, place);
        uint64_t old_end = old.address + old.size;
        struct analysis_range earlier = gone, left = old, right = old, *ended;
        earlier.address = at;
        earlier.size = old.address > at ? old.address - at : 0;
        earlier.begin = 0;
        earlier.end = moment;
        left.size = old.address < gone.address ? gone.address - old.address : 0;
        right.size = old_end > end ? old_end - end : 0;
        right.address = end;
        ended = range_at(draft, place);
        ended->address += left.size;
        ended->size -= left.size + right.size;
        ended->end = moment;
        memmove(draft->mapped + place, draft->mapped + place + 1,
                (draft->mapped_count - place - 1) * sizeof *draft->mapped);
        draft->mapped_count--;

        if ((before && !range_add(draft, earlier)) || !range_add(draft, left) ||
            !range_add(draft, right))
            return false;
        at = old_end > at ? old_end : at;
        place = range_find(draft, at < end ? at : end);
    }
    struct analysis_range rest = gone;
    rest.address = at;
    rest.size = at < end ? end - at : 0;
    rest.begin = 0;
    rest.end = moment;
    return !before || range_add(draft, rest);
}

/* Adds the parts of a final segment that no event explains. */
static bool range_final(struct draft *draft, const struct snapshot_segment *segment)
{
    struct analysis_range range = {.address = segment->address,
                                   .size = segment->total_size,
                                   .end = ANALYSIS_NEVER,
                                   .stream = segment->stream_place,
                                   .pool = segment->pool_place,
                                   .joins = segment->expandable};
    uint64_t at = segment->address, end = segment->address + segment->total_size;
    while (at < end) {
        size_t place = range_find(draft, at);
        const struct analysis_range *next =
            place < draft->mapped_count ? range_at(draft, place) : NULL;
        uint64_t stop = next && next->address < end ? next->address : end;
        uint64_t resume = next && next->address < end ? next->address + next->size : end;
        range.address = at;
        range.size = stop > at ? stop - at : 0;
        if (!range_add(draft, range))
            return false;
        at = resume;
    }
    return true;
}

static bool draft_ranges(struct draft *draft)
{
    size_t count = draft->analysis->has_trace ? draft->trace->event_count : 0;
    for (size_t i = 0; i < count; i++) {
        const struct snapshot_event *event = &draft->trace->events[i];
        bool maps =
            event->action == SNAPSHOT_SEGMENT_MAP || event->action == SNAPSHOT_SEGMENT_ALLOC;
        bool unmaps =
            event->action == SNAPSHOT_SEGMENT_UNMAP || event->action == SNAPSHOT_SEGMENT_FREE;
        if (!maps && !unmaps)
            continue;
        struct analysis_range range = {.address = event->address,
                                       .size = event->size,
                                       .begin = (uint32_t)i + 1,
                                       .end = ANALYSIS_NEVER,
                                       .stream = event->stream,
                                       .pool = event->pool,
                                       .joins = event->action == SNAPSHOT_SEGMENT_MAP ||
                                                event->action == SNAPSHOT_SEGMENT_UNMAP};
        /* If memory is mapped a second time, the recording lost an unmapping */
        if (!range_end(draft, range, (uint32_t)i + 1, unmaps) || (maps && !range_add(draft, range)))
            return false;
    }
    for (size_t i = 0; i < draft->snapshot->segment_count; i++)
        if (draft->snapshot->segments[i].device == draft->analysis->device &&
            !range_final(draft, &draft->snapshot->segments[i]))
            return false;
    return true;
}

/* --- the rest --- */

static bool draft_ooms(struct draft *draft)
{
    struct analysis *analysis = draft->analysis;
    for (size_t i = 0; draft->trace && i < draft->trace->event_count; i++) {
        const struct snapshot_event *event = &draft->trace->events[i];
        if (event->action != SNAPSHOT_OOM)
            continue;
        if (!reserve((void **)&analysis->ooms, &draft->oom_capacity, analysis->oom_count + 1,
                     sizeof *analysis->ooms))
            return false;
        analysis->ooms[analysis->oom_count++] = (struct analysis_oom){.event = (uint32_t)i,
                                                                      .asked = event->size,
                                                                      .device_free = event->address,
                                                                      .stream = event->stream,
                                                                      .pool = event->pool,
                                                                      .stack = event->stack,
                                                                      .tag = event->tag,
                                                                      .thread = event->thread};
    }
    return true;
}

static bool draft_times(struct draft *draft)
{
    struct analysis *analysis = draft->analysis;
    const struct workload *workload = &analysis->workload;
    analysis->times = calloc((size_t)analysis->event_count + 1, sizeof *analysis->times);
    if (!analysis->times)
        return false;
    for (size_t i = 0; i < workload->op_count; i++)
        if (workload->ops[i].event < analysis->event_count)
            analysis->times[workload->ops[i].event + 1] = workload->ops[i].time;
    for (uint32_t i = 1; i <= analysis->event_count; i++)
        if (analysis->times[i] < analysis->times[i - 1])
            analysis->times[i] = analysis->times[i - 1];
    return true;
}

static const struct analysis *sorting; /* qsort() passes no context */

static int compare_blocks(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    uint64_t x = sorting->blocks[a].address, y = sorting->blocks[b].address;
    return x != y ? (x > y) - (x < y) : (a > b) - (a < b);
}

static int compare_ranges(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    uint64_t x = sorting->ranges[a].address, y = sorting->ranges[b].address;
    return x != y ? (x > y) - (x < y) : (a > b) - (a < b);
}

static uint32_t *sorted(const struct analysis *analysis, size_t count,
                        int (*compare)(const void *, const void *))
{
    uint32_t *order = malloc((count + 1) * sizeof *order);
    for (size_t i = 0; order && i < count; i++)
        order[i] = (uint32_t)i;
    sorting = analysis;
    if (order && count)
        qsort(order, count, sizeof *order, compare);
    return order;
}

/* Adds a size to `changes`, from one moment to another. */
static void add_life(uint64_t *changes, uint64_t size, uint32_t begin, uint32_t end)
{
    if (end <= begin)
        return;
    changes[begin] += size;
    if (end != ANALYSIS_NEVER)
        changes[end] -= size;
}

/* Finds where each sum was highest. Free memory is reserved memory less what blocks take, provided
 * that each block lies in reserved memory. */
static void note_peaks(struct analysis *analysis, uint64_t *allocated, uint64_t *reserved,
                       uint64_t *taken)
{
    int64_t most = 0;
    for (size_t i = 0; i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        add_life(allocated, block->size, block->begin, block->freed);
        add_life(taken, block->room, block->begin, block->end);
    }
    for (size_t i = 0; i < analysis->range_count; i++)
        add_life(reserved, analysis->ranges[i].size, analysis->ranges[i].begin,
                 analysis->ranges[i].end);
    for (uint32_t i = 0; i <= analysis->event_count; i++) {
        allocated[i] += i ? allocated[i - 1] : 0;
        reserved[i] += i ? reserved[i - 1] : 0;
        taken[i] += i ? taken[i - 1] : 0;
        int64_t unused = (int64_t)(reserved[i] - taken[i]);
        if (allocated[i] > allocated[analysis->peak])
            analysis->peak = i;
        if (reserved[i] > reserved[analysis->peak_reserved] ||
            (reserved[i] == reserved[analysis->peak_reserved] &&
             allocated[i] > allocated[analysis->peak_reserved]))
            analysis->peak_reserved = i;
        if (i == 0 || unused > most)
            analysis->emptiest = i;
        most = i == 0 || unused > most ? unused : most;
    }
    for (size_t i = 0; i < analysis->oom_count; i++) {
        struct analysis_oom *oom = &analysis->ooms[i];
        oom->there = allocated[analysis_oom_moment(analysis, i)] + oom->device_free;
    }
}

static bool find_peaks(struct analysis *analysis)
{
    size_t moments = (size_t)analysis->event_count + 2;
    uint64_t *allocated = calloc(moments, sizeof *allocated),
             *reserved = calloc(moments, sizeof *reserved);
    uint64_t *taken = calloc(moments, sizeof *taken);
    bool made = allocated && reserved && taken;
    if (made)
        note_peaks(analysis, allocated, reserved, taken);
    free(allocated);
    free(reserved);
    free(taken);
    return made && analysis_states(analysis, &analysis->peak, 1, &analysis->at_peak) &&
           analysis_states(analysis, &analysis->peak_reserved, 1, &analysis->at_peak_reserved) &&
           analysis_states(analysis, &analysis->emptiest, 1, &analysis->at_emptiest);
}

bool analysis_exists(const struct snapshot *snapshot, int device)
{
    for (size_t i = 0; i < snapshot->segment_count; i++)
        if (snapshot->segments[i].device == device)
            return true;
    return device >= 0 && (size_t)device < snapshot->trace_count &&
           snapshot->traces[device].event_count > 0;
}

bool analysis_begins_late(const struct analysis *analysis)
{
    uint64_t before = 0;
    for (size_t i = 0; i < analysis->range_count; i++) {
        const struct analysis_range *range = &analysis->ranges[i];
        before += range->begin == 0 && range->end > analysis->peak_reserved ? range->size : 0;
    }
    return analysis->has_trace && before > analysis->at_peak_reserved.reserved / 2;
}

int analysis_devices(const struct snapshot *snapshot)
{
    int devices = (int)snapshot->trace_count;
    for (size_t i = 0; i < snapshot->segment_count; i++)
        if (snapshot->segments[i].device >= devices)
            devices = snapshot->segments[i].device + 1;
    return devices;
}

bool analysis_build(const struct snapshot *snapshot, int device, struct analysis *analysis)
{
    struct draft draft = {.analysis = analysis, .snapshot = snapshot};
    *analysis = (struct analysis){.snapshot = snapshot, .device = device};
    if (device >= 0 && (size_t)device < snapshot->trace_count)
        draft.trace = &snapshot->traces[device];
    bool done = draft_final_state(&draft);
    if (done && workload_exists(snapshot, device)) {
        analysis->has_trace = true;
        done = workload_build(snapshot, device, &analysis->workload);
        analysis->has_times = analysis->workload.has_times;
        analysis->event_count = (uint32_t)analysis->workload.event_count;
    }
    done = done && draft_times(&draft) &&
           (analysis->has_trace ? draft_blocks(&draft) : draft_state_blocks(&draft)) &&
           draft_ranges(&draft) && draft_ooms(&draft);
    if (done) {
        analysis->by_address = sorted(analysis, analysis->block_count, compare_blocks);
        analysis->range_by_address = sorted(analysis, analysis->range_count, compare_ranges);
        done = analysis->by_address && analysis->range_by_address &&
               analysis_group_keys(analysis) && find_peaks(analysis);
    }
    table_finish(&draft.final);
    free(draft.final_segment);
    free(draft.mapped);
    if (!done)
        analysis_finish(analysis);
    return done;
}

void analysis_finish(struct analysis *analysis)
{
    workload_finish(&analysis->workload);
    free(analysis->times);
    free(analysis->blocks);
    free(analysis->ranges);
    free(analysis->ooms);
    free(analysis->by_address);
    free(analysis->range_by_address);
    free(analysis->sites);
    free(analysis->paths);
    free(analysis->modules);
    free(analysis->module_paths);
    free(analysis->categories);
    free(analysis->tops);
    *analysis = (struct analysis){0};
}
