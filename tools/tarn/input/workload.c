/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes a workload of a snapshot's trace.
 *
 * A trace has addresses, and begins when recording began. What was alive then is known only from a
 * later free or from the final state. One walk over the trace gives each address a state (unknown,
 * live, free requested, free). Events that contradict the state count as lost. They are repaired as
 * far as one event can tell. So in any workload every block is allocated once, freed at most once
 * after that, and completed at most once after that.
 *
 * Blocks get provisional numbers in the order in which they are met, and their final ones at the
 * end, when what was alive before is known. Sizes are bounded so that no sum of live blocks
 * overflows. */
#include "input/workload.h"

#include "input/workload_segments.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

#define SIZE_LIMIT ((uint64_t)1 << 60) /* bytes: no block is larger */
#define LIVE_LIMIT ((uint64_t)1 << 61) /* bytes: nor are all live ones together */
#define TIME_LIMIT ((uint64_t)1 << 61) /* ns */
#define BLOCK_UNIT ((uint64_t)512)

enum life { LIFE_LIVE, LIFE_REQUESTED, LIFE_FREE };

/* What is known of a block while the trace is walked. */
struct draft_block {
    struct workload_block block;
    uint64_t address;
    uint32_t freed_event; /* the event that requested its free, in LIFE_REQUESTED */
    enum life life;
    bool initial;
    bool freed_before; /* its free was requested before the trace, too */
};

struct draft {
    const struct snapshot *snapshot;
    const struct snapshot_trace *trace;
    struct trace_segments segments;
    struct workload *workload;
    size_t op_capacity, stream_capacity;
    struct draft_block *blocks;
    size_t block_count, block_capacity;
    struct table addresses; /* address to the last block there */
    struct table streams, pools, threads;
    struct table unplanned; /* pools that follow no plan, by id */
    struct table orders; /* address to the stream in whose order the next free there is (free_on) */
    uint32_t *captures;  /* by stream: the operation that began its open capture + 1, or 0 */
    size_t capture_capacity;
    const struct snapshot_mark *marks, *marks_end; /* those that were not met yet */
    bool completions; /* the trace has "free_completed"; else a free completes itself */
    uint64_t time;    /* of the event at hand */
    uint32_t event;
    uint16_t thread; /* that did it */
};

/* Makes room for one more element of an array. */
static bool reserve_one(void **array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 256;
    void *grown = reallocarray(*array, wanted, size);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static bool is_block_action(enum snapshot_action action)
{
    return action == SNAPSHOT_ALLOC || action == SNAPSHOT_FREE_REQUESTED ||
           action == SNAPSHOT_FREE_COMPLETED;
}

bool workload_exists(const struct snapshot *snapshot, int device)
{
    if (device < 0 || (size_t)device >= snapshot->trace_count)
        return false;
    const struct snapshot_trace *trace = &snapshot->traces[device];
    for (size_t i = 0; i < trace->event_count; i++)
        if (is_block_action(trace->events[i].action))
            return true;
    return false;
}

static bool draft_op(struct draft *draft, enum workload_action action, uint32_t block)
{
    struct workload *workload = draft->workload;
    if (!reserve_one((void **)&workload->ops, workload->op_count, &draft->op_capacity,
                     sizeof *workload->ops))
        return false;
    workload->ops[workload->op_count++] = (struct workload_op){.time = draft->time,
                                                               .event = draft->event,
                                                               .block = block,
                                                               .other = WORKLOAD_NO_POOL,
                                                               .stream = WORKLOAD_NO_STREAM,
                                                               .thread = draft->thread,
                                                               .action = (uint8_t)action};
    return true;
}

/* The same of streams. */
static bool draft_stream_op(struct draft *draft, enum workload_action action, uint32_t stream,
                            uint32_t other)
{
    if (!draft_op(draft, action, WORKLOAD_NO_BLOCK))
        return false;
    struct workload_op *op = &draft->workload->ops[draft->workload->op_count - 1];
    op->stream = stream;
    op->other = other;
    return true;
}

static bool draft_stream(struct draft *draft, uint64_t recorded, uint32_t *index)
{
    struct workload *workload = draft->workload;
    uint32_t *known = table_add(&draft->streams, recorded, 0, (uint32_t)workload->stream_count);
    if (!known)
        return false;
    *index = *known;
    if (*known < workload->stream_count)
        return true;
    if (!reserve_one((void **)&workload->streams, workload->stream_count, &draft->stream_capacity,
                     sizeof *workload->streams))
        return false;
    workload->streams[workload->stream_count++] = recorded;
    return true;
}

/* A new block, live from now on, as the last one at its address. */
static struct draft_block *draft_block(struct draft *draft, uint64_t address, uint64_t size,
                                       uint64_t stream, const uint64_t pool[2], bool initial,
                                       uint32_t *number)
{
    if (!reserve_one((void **)&draft->blocks, draft->block_count, &draft->block_capacity,
                     sizeof *draft->blocks))
        return NULL;
    uint32_t stream_index;
    uint32_t *pool_index = table_add(&draft->pools, pool[0], pool[1], (uint32_t)draft->pools.count);
    uint32_t *here = table_add(&draft->addresses, address, 0, 0);
    if (!pool_index || !here || !draft_stream(draft, stream, &stream_index))
        return NULL;
    *here = *number = (uint32_t)draft->block_count++;
    struct draft_block *block = &draft->blocks[*number];
    *block = (struct draft_block){
        .block = {.size = size,
                  .address = address,
                  .stream = stream_index,
                  .second = WORKLOAD_NO_STREAM,
                  .pool = *pool_index,
                  .unplanned = table_find(&draft->unplanned, pool[0], pool[1]) != NULL},
        .address = address,
        .life = LIFE_LIVE,
        .initial = initial,
    };
    return block;
}

static bool draft_completed(struct draft *draft, uint32_t number)
{
    struct draft_block *block = &draft->blocks[number];
    if (block->freed_event != draft->event && block->freed_event + 1 != draft->event)
        block->block.late = true;
    block->block.completed = draft->time;
    block->life = LIFE_FREE;
    return draft_op(draft, WORKLOAD_COMPLETED, number);
}

static bool draft_freed(struct draft *draft, uint32_t number)
{
    struct draft_block *block = &draft->blocks[number];
    block->life = LIFE_REQUESTED;
    block->freed_event = draft->event;
    return draft_op(draft, WORKLOAD_FREE, number);
}

/* What is left of a block's end, where the recording lost it. */
static bool draft_ended(struct draft *draft, uint32_t number)
{
    if (draft->blocks[number].life == LIFE_LIVE && !draft_freed(draft, number))
        return false;
    return draft->blocks[number].life != LIFE_REQUESTED || draft_completed(draft, number);
}

/* An event that names a block which cannot be: it keeps its place in time. */
static bool draft_lost(struct draft *draft)
{
    draft->workload->lost_count++;
    return draft_op(draft, WORKLOAD_OTHER, WORKLOAD_NO_BLOCK);
}

/* The pool of the event at hand, by its id. */
static const uint64_t *draft_pool(const struct draft *draft)
{
    return draft->snapshot->pools[trace_segments_pool(&draft->segments, draft->event)];
}

/* The first allocation on a stream that captures says which pool the capture is of. */
static void draft_captured(struct draft *draft, const struct workload_block *block)
{
    if (block->stream >= draft->capture_capacity || !draft->captures[block->stream])
        return;
    struct workload_op *begin = &draft->workload->ops[draft->captures[block->stream] - 1];
    if (begin->other == WORKLOAD_NO_POOL)
        begin->other = block->pool;
}

static bool draft_alloc(struct draft *draft, const struct snapshot_event *event)
{
    if (event->size == 0 || event->size > SIZE_LIMIT)
        return draft_lost(draft);
    const uint32_t *here = table_find(&draft->addresses, event->address, 0);
    if (here && draft->blocks[*here].life != LIFE_FREE) {
        draft->workload->lost_count++;
        if (!draft_ended(draft, *here))
            return false;
    }
    uint32_t number;
    if (!draft_block(draft, event->address, event->size, draft->snapshot->streams[event->stream],
                     draft_pool(draft), false, &number))
        return false;
    draft->blocks[number].block.in_range = event->in_range;
    draft->workload->alloc_count++;
    draft_captured(draft, &draft->blocks[number].block);
    return draft_op(draft, WORKLOAD_ALLOC, number);
}

/* How much memory the device of a PyTorch recording had for the program, by an out-of-memory error:
 * what was reserved and what was free. Where more was free than was asked for, a limit refused the
 * request, and is not below what was reserved before. */
static void draft_device(struct draft *draft, const struct snapshot_event *event)
{
    const struct trace_segments *segments = &draft->segments;
    uint64_t memory, asked = event->size + WORKLOAD_ROUNDED;
    if (draft->workload->has_order || !segments->known ||
        __builtin_add_overflow(segments->reserved, event->address, &memory))
        return;
    if (event->address >= asked || memory < segments->peak)
        memory = segments->peak;
    draft->workload->device_memory = memory;
}

/* An out-of-memory error: a block that is in no place. */
static bool draft_try(struct draft *draft, const struct snapshot_event *event)
{
    const uint64_t *pool = draft->snapshot->pools[event->pool];
    uint32_t stream, *pool_index;
    draft->workload->oom_count++;
    if (!event->size || event->size > SIZE_LIMIT)
        return draft_op(draft, WORKLOAD_OOM, WORKLOAD_NO_BLOCK);
    draft_device(draft, event);
    pool_index = table_add(&draft->pools, pool[0], pool[1], (uint32_t)draft->pools.count);
    if (!pool_index || !draft_stream(draft, draft->snapshot->streams[event->stream], &stream) ||
        !reserve_one((void **)&draft->blocks, draft->block_count, &draft->block_capacity,
                     sizeof *draft->blocks))
        return false;
    draft->blocks[draft->block_count] = (struct draft_block){
        .block = {.size = event->size,
                  .stream = stream,
                  .second = WORKLOAD_NO_STREAM,
                  .pool = *pool_index,
                  .in_range = event->in_range},
        .life = LIFE_FREE,
    };
    return draft_op(draft, WORKLOAD_TRY, (uint32_t)draft->block_count++);
}

/* Notes the order of a free that was just made, operation `at`, where it is not the block's
 * stream's. */
static bool draft_order(struct draft *draft, size_t at, uint32_t number, uint64_t stream)
{
    uint32_t index, *order = table_find(&draft->orders, draft->blocks[number].address, 0);
    if (order && *order != WORKLOAD_NO_STREAM) {
        stream = draft->workload->streams[*order];
        *order = WORKLOAD_NO_STREAM;
    }
    if (draft->workload->streams[draft->blocks[number].block.stream] == stream)
        return true;
    if (!draft_stream(draft, stream, &index))
        return false;
    draft->workload->ops[at].stream = index;
    draft->workload->moved_count++;
    return true;
}

/* What is done from now on is done by a thread of the recording. */
static bool draft_thread(struct draft *draft, uint32_t thread)
{
    const uint32_t *number = table_add(&draft->threads, thread, 0, (uint32_t)draft->threads.count);
    if (number)
        draft->thread = (uint16_t)(*number % WORKLOAD_MAX_THREADS);
    return number != NULL;
}

/* A free, requested or completed, of an address. The first event at an address proves a block from
 * before the trace. */
static bool draft_free(struct draft *draft, const struct snapshot_event *event)
{
    uint32_t *here = table_find(&draft->addresses, event->address, 0);
    uint32_t number;
    if (here) {
        number = *here;
    } else {
        if (event->size == 0 || event->size > SIZE_LIMIT)
            return draft_lost(draft);
        if (!draft_block(draft, event->address, event->size,
                         draft->snapshot->streams[event->stream], draft_pool(draft), true, &number))
            return false;
        draft->blocks[number].block.in_range = event->in_range;
        draft->blocks[number].freed_before = event->action == SNAPSHOT_FREE_COMPLETED;
    }

    enum life life = draft->blocks[number].life;
    if (event->action == SNAPSHOT_FREE_REQUESTED) {
        if (life != LIFE_LIVE)
            return draft_lost(draft);
        size_t at = draft->workload->op_count;
        return (draft->completions ? draft_freed(draft, number) : draft_ended(draft, number)) &&
               draft_order(draft, at, number, draft->snapshot->streams[event->stream]);
    }
    if (life == LIFE_FREE)
        return draft_lost(draft);
    /* From its beginning on it waits: draft_freed_before() */
    if (draft->blocks[number].freed_before) {
        draft->blocks[number].life = LIFE_REQUESTED;
        draft->blocks[number].freed_event = WORKLOAD_BEFORE;
    } else if (life == LIFE_LIVE) { /* the request is missing */
        draft->workload->lost_count++;
    }
    return draft_ended(draft, number);
}

static bool draft_capture(struct draft *draft, uint32_t stream, bool begins)
{
    while (draft->capture_capacity <= stream) {
        size_t before = draft->capture_capacity;
        if (!reserve_one((void **)&draft->captures, before, &draft->capture_capacity,
                         sizeof *draft->captures))
            return false;
        memset(draft->captures + before, 0,
               (draft->capture_capacity - before) * sizeof *draft->captures);
    }
    if (begins == (draft->captures[stream] != 0))
        return draft_lost(draft);
    draft->captures[stream] = begins ? (uint32_t)draft->workload->op_count + 1 : 0;
    draft->workload->capture_count += begins;
    return draft_stream_op(draft, begins ? WORKLOAD_CAPTURE : WORKLOAD_CAPTURED, stream,
                           WORKLOAD_NO_POOL);
}

/* Another stream uses the live block at an address. */
static bool draft_used(struct draft *draft, uint64_t address, uint32_t stream)
{
    const uint32_t *here = table_find(&draft->addresses, address, 0);
    if (!here || draft->blocks[*here].life != LIFE_LIVE)
        return draft_lost(draft);
    if (draft->blocks[*here].block.stream == stream)
        return true;
    draft->blocks[*here].block.second = stream;
    if (!draft_op(draft, WORKLOAD_RECORD, *here))
        return false;
    draft->workload->ops[draft->workload->op_count - 1].stream = stream;
    return true;
}

/* The program gives back what a pool has cached. */
static bool draft_trim(struct draft *draft, uint32_t pool)
{
    draft->workload->trim_count++;
    return draft_stream_op(draft, WORKLOAD_TRIM, WORKLOAD_NO_STREAM, pool);
}

/* Takes a trim from a recording by tarn. Trims that keep some memory are left out, and trims of
 * pools that never had any. */
static bool draft_trim_mark(struct draft *draft, const struct snapshot_mark *mark)
{
    const uint64_t *id = draft->snapshot->pools[mark->pool];
    const uint32_t *pool = mark->value ? NULL : table_find(&draft->pools, id[0], id[1]);
    return !pool || draft_trim(draft, *pool);
}

static bool draft_mark(struct draft *draft, const struct snapshot_mark *mark)
{
    const uint64_t *streams = draft->snapshot->streams;
    uint32_t stream, other, *order;
    if (mark->kind == SNAPSHOT_TRIM)
        return draft_trim_mark(draft, mark);
    if (mark->kind == SNAPSHOT_POOL_CREATE && mark->unplanned) {
        const uint64_t *id = draft->snapshot->pools[mark->pool];
        return table_add(&draft->unplanned, id[0], id[1], 0) != NULL;
    }
    if (mark->kind > SNAPSHOT_CAPTURE_END)
        return true; /* says nothing of the order of memory */
    if (!draft_thread(draft, mark->thread) || !draft_stream(draft, streams[mark->stream], &stream))
        return false;
    switch ((enum snapshot_mark_kind)mark->kind) {
    case SNAPSHOT_RECORD_STREAM:
        return draft_used(draft, mark->value, stream);
    case SNAPSHOT_FREE_ON:
        order = table_add(&draft->orders, mark->value, 0, stream);
        if (order)
            *order = stream;
        return order != NULL;
    case SNAPSHOT_WAIT:
        draft->workload->wait_count++;
        return draft_stream(draft, streams[mark->other], &other) &&
               draft_stream_op(draft, WORKLOAD_WAIT, stream, other);
    default:
        return draft_capture(draft, stream, mark->kind == SNAPSHOT_CAPTURE_BEGIN);
    }
}

/* What happened before an event. While the trace is not whole, what streams did is not either: only
 * what was done to blocks counts. */
static bool draft_marks(struct draft *draft, size_t event)
{
    for (; draft->marks < draft->marks_end; draft->marks++) {
        const struct snapshot_mark *mark = draft->marks;
        if (mark->device != draft->workload->device)
            continue; /* the marks of one device are in order, those of several need not be */
        if (mark->at > event)
            break;
        if ((mark->at >= draft->trace->exact_from || mark->kind <= SNAPSHOT_FREE_ON) &&
            !draft_mark(draft, mark))
            return false;
    }
    return true;
}

/* Captures that are open at the end of the trace end there. */
static bool draft_captures_end(struct draft *draft)
{
    for (size_t i = 0; i < draft->capture_capacity; i++)
        if (draft->captures[i] &&
            !draft_stream_op(draft, WORKLOAD_CAPTURED, (uint32_t)i, WORKLOAD_NO_POOL))
            return false;
    return true;
}

/* The time of an event in ns since the first, which never falls. */
static void draft_clock(struct draft *draft, const struct snapshot_event *event, uint32_t index,
                        int64_t first)
{
    draft->event = index;
    if (!draft->workload->has_times) {
        draft->time = index * WORKLOAD_EVENT_TIME;
        return;
    }
    if (event->time_us == SNAPSHOT_NO_TIME || event->time_us <= first)
        return;
    uint64_t passed = (uint64_t)event->time_us - (uint64_t)first;
    passed = passed < TIME_LIMIT / 1000 ? passed * 1000 : TIME_LIMIT;
    if (passed > draft->time)
        draft->time = passed;
}

/* An event that says nothing of a block keeps its place in time. Where segments go, in a recording
 * by PyTorch, the program may have given back what was cached, or a private pool. */
static bool draft_other(struct draft *draft)
{
    struct trace_given given = trace_segments_next(&draft->segments, draft->event);
    const uint64_t *id = draft->snapshot->pools[given.pool_ends];
    const uint32_t *pool = given.pool_ends ? table_find(&draft->pools, id[0], id[1]) : NULL;
    if (draft->workload->has_order || (!given.trimmed && !pool))
        return draft_op(draft, WORKLOAD_OTHER, WORKLOAD_NO_BLOCK);
    if (pool && !draft_stream_op(draft, WORKLOAD_POOL_END, WORKLOAD_NO_STREAM, *pool))
        return false;
    return !given.trimmed || draft_trim(draft, 0);
}

static bool draft_trace(struct draft *draft)
{
    const struct snapshot_trace *trace = draft->trace;
    struct workload *workload = draft->workload;
    int64_t first = SNAPSHOT_NO_TIME;
    for (size_t i = 0; i < trace->event_count; i++) {
        draft->completions =
            draft->completions || trace->events[i].action == SNAPSHOT_FREE_COMPLETED;
        if (first == SNAPSHOT_NO_TIME)
            first = trace->events[i].time_us;
    }
    workload->has_times = first != SNAPSHOT_NO_TIME;

    for (size_t i = 0; i < trace->event_count; i++) {
        const struct snapshot_event *event = &trace->events[i];
        draft_clock(draft, event, (uint32_t)i, first);
        bool done;
        bool who = is_block_action(event->action) || event->action == SNAPSHOT_OOM;
        if (!draft_marks(draft, i) || (who && !draft_thread(draft, event->thread)))
            return false;
        switch (event->action) {
        case SNAPSHOT_ALLOC:
            done = draft_alloc(draft, event);
            break;
        case SNAPSHOT_FREE_REQUESTED:
        case SNAPSHOT_FREE_COMPLETED:
            done = draft_free(draft, event);
            break;
        case SNAPSHOT_OOM:
            done = draft_try(draft, event);
            break;
        default:
            done = draft_other(draft);
            break;
        }
        if (!done)
            return false;
    }
    return draft_marks(draft, trace->event_count) && draft_captures_end(draft);
}

/* Takes what the final state says: blocks that the trace never mentions were there before it. Where
 * a snapshot has no segments of the device at all, it has no state, and nothing is concluded. */
static bool draft_state(struct draft *draft)
{
    const struct snapshot *snapshot = draft->snapshot;
    struct table found = {0};
    size_t segments = 0, active = 0;
    bool done = false;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct snapshot_segment *segment = &snapshot->segments[i];
        if (segment->device != draft->workload->device)
            continue;
        segments++;
        for (size_t j = segment->first_block; j < segment->first_block + segment->block_count;
             j++) {
            const struct snapshot_block *block = &snapshot->blocks[j];
            if (block->state == SNAPSHOT_INACTIVE)
                continue;
            const uint32_t *here = table_find(&draft->addresses, block->address, 0);
            uint32_t number;
            if (here && draft->blocks[*here].life != LIFE_FREE) {
                if (!table_add(&found, block->address, 0, 0))
                    goto out;
                active++;
                continue;
            }
            uint64_t size = block->requested_size ? block->requested_size : block->size;
            if (here || size == 0 || size > SIZE_LIMIT) {
                draft->workload->lost_count++;
                continue;
            }
            if (!draft_block(draft, block->address, size, segment->stream, segment->pool, true,
                             &number) ||
                !table_add(&found, block->address, 0, 0))
                goto out;
            draft->blocks[number].block.in_range = segment->in_range;
            /* Since before the trace: no event asks for it */
            if (block->state == SNAPSHOT_ACTIVE_PENDING_FREE) {
                draft->blocks[number].life = LIFE_REQUESTED;
                draft->blocks[number].freed_before = true;
            }
            active++;
        }
    }

    for (size_t i = 0; i < draft->block_count; i++) {
        struct draft_block *block = &draft->blocks[i];
        bool pending = block->life == LIFE_REQUESTED;
        if (pending) { /* to the end of the trace */
            block->block.late = true;
            block->block.completed = draft->time;
        }
        if (segments && block->life != LIFE_FREE && !table_find(&found, block->address, 0))
            draft->workload->lost_count++;
    }
    done = true;
out:
    table_finish(&found);
    return done;
}

static int compare_initial(const void *left, const void *right)
{
    const struct draft_block *const *a = left, *const *b = right;
    return ((*a)->address > (*b)->address) - ((*a)->address < (*b)->address);
}

/* Gives every block its final number: those from before the trace first, by address. Each of these
 * has another address, since a second block at an address is never one from before the trace. */
static bool draft_number(struct draft *draft)
{
    struct workload *workload = draft->workload;
    size_t count = draft->block_count;
    bool done = false;
    uint32_t *final = calloc(count + 1, sizeof *final);
    const struct draft_block **initial = calloc(count + 1, sizeof(struct draft_block *));
    workload->blocks = calloc(count + 1, sizeof *workload->blocks);
    if (!final || !initial || !workload->blocks)
        goto out;

    for (size_t i = 0; i < count; i++)
        if (draft->blocks[i].initial)
            initial[workload->initial_count++] = &draft->blocks[i];
    qsort(initial, workload->initial_count, sizeof(struct draft_block *), compare_initial);
    for (size_t i = 0; i < workload->initial_count; i++)
        final[initial[i] - draft->blocks] = (uint32_t)i;
    workload->block_count = workload->initial_count;
    for (size_t i = 0; i < count; i++)
        if (!draft->blocks[i].initial)
            final[i] = (uint32_t)workload->block_count++;

    for (size_t i = 0; i < count; i++)
        workload->blocks[final[i]] = draft->blocks[i].block;
    for (size_t i = 0; i < workload->op_count; i++)
        if (workload->ops[i].block != WORKLOAD_NO_BLOCK)
            workload->ops[i].block = final[workload->ops[i].block];
    done = true;
out:
    free(final);
    free(initial);
    return done;
}

/* Blocks whose free was requested before the trace are freed where it begins. False when memory is
 * short. */
static bool draft_freed_before(struct draft *draft)
{
    struct workload *workload = draft->workload;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < draft->block_count; i++)
        count += draft->blocks[i].freed_before;
    if (!count)
        return true;
    struct workload_op *ops = reallocarray(workload->ops, workload->op_count + count, sizeof *ops);
    if (!ops)
        return false;
    memmove(ops + count, ops, workload->op_count * sizeof *ops);
    for (size_t i = 0; i < draft->block_count; i++)
        if (draft->blocks[i].freed_before)
            ops[at++] = (struct workload_op){.event = WORKLOAD_BEFORE,
                                             .block = (uint32_t)i,
                                             .other = WORKLOAD_NO_POOL,
                                             .stream = WORKLOAD_NO_STREAM,
                                             .action = WORKLOAD_FREE};
    workload->ops = ops;
    workload->op_count += count;
    return true;
}

/* The sums over live blocks. A block that would carry a sum over its limit is dropped, with its
 * operations. */
struct sums {
    uint64_t requested, active;
};

static uint64_t rounded(uint64_t size)
{
    return (size + BLOCK_UNIT - 1) & ~(BLOCK_UNIT - 1);
}

static void sums_add(struct sums *sums, struct workload *workload, struct workload_block *block)
{
    if (sums->active + rounded(block->size) > LIVE_LIMIT) {
        block->size = 0;
        workload->lost_count++;
        return;
    }
    sums->requested += block->size;
    sums->active += rounded(block->size);
    if (sums->requested > workload->peak_requested)
        workload->peak_requested = sums->requested;
    if (sums->active > workload->peak_active)
        workload->peak_active = sums->active;
}

void workload_measure(struct workload *workload)
{
    struct sums sums = {0};
    workload->peak_requested = workload->peak_active = workload->peak_tried = workload->late_count =
        0;
    for (size_t i = 0; i < workload->initial_count; i++)
        sums_add(&sums, workload, &workload->blocks[i]);
    for (size_t i = 0; i < workload->op_count; i++) {
        struct workload_op *op = &workload->ops[i];
        if (op->block == WORKLOAD_NO_BLOCK)
            continue;
        struct workload_block *block = &workload->blocks[op->block];
        if (op->action == WORKLOAD_ALLOC)
            sums_add(&sums, workload, block);
        else if (op->action == WORKLOAD_FREE)
            sums.requested -= block->size;
        else if (op->action == WORKLOAD_COMPLETED)
            sums.active -= rounded(block->size);
        else if (op->action == WORKLOAD_TRY && sums.requested + block->size > workload->peak_tried)
            workload->peak_tried = sums.requested + block->size;
        /* Frees from before the trace come first. What they free does not count for the peak. */
        if (op->event == WORKLOAD_BEFORE)
            workload->peak_requested = sums.requested;
        if (block->size == 0) {
            op->action = WORKLOAD_OTHER;
            op->block = WORKLOAD_NO_BLOCK;
        } else if (op->action == WORKLOAD_FREE) {
            workload->late_count += block->late;
        }
    }
    if (workload->peak_tried < workload->peak_requested)
        workload->peak_tried = workload->peak_requested;
}

void workload_forget_tries(struct workload *workload)
{
    for (size_t i = 0; i < workload->op_count; i++)
        if (workload->ops[i].action == WORKLOAD_TRY) {
            workload->ops[i].action = WORKLOAD_OOM;
            workload->ops[i].block = WORKLOAD_NO_BLOCK;
        }
}

/* The most memory that pages of ranges, and a commit that failed, have at one time. */
static uint64_t measure_ranges(const struct workload *workload)
{
    uint64_t live = 0, most = 0;
    for (size_t i = 0; i < workload->initial_count; i++)
        live += workload->blocks[i].in_range ? workload->blocks[i].size : 0;
    most = live;
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        if (op->block == WORKLOAD_NO_BLOCK || !workload->blocks[op->block].in_range)
            continue;
        uint64_t size = workload->blocks[op->block].size;
        if (op->action == WORKLOAD_COMPLETED)
            live -= size;
        else if (op->action == WORKLOAD_ALLOC || op->action == WORKLOAD_TRY)
            most = live + size > most ? live + size : most;
        live += op->action == WORKLOAD_ALLOC ? size : 0;
    }
    return most;
}

void workload_leave_ranges(struct workload *workload)
{
    workload->peak_ranges = measure_ranges(workload);
    for (size_t i = 0; i < workload->op_count; i++) {
        struct workload_op *op = &workload->ops[i];
        if (op->block == WORKLOAD_NO_BLOCK || !workload->blocks[op->block].in_range)
            continue;
        workload->alloc_count -= op->action == WORKLOAD_ALLOC;
        op->action = op->action == WORKLOAD_TRY ? WORKLOAD_OOM : WORKLOAD_OTHER;
        op->block = WORKLOAD_NO_BLOCK;
    }
    for (size_t i = 0; i < workload->block_count; i++)
        if (workload->blocks[i].in_range)
            workload->blocks[i].size = 0;
    workload_measure(workload);
}

/* What tarn's own recordings have besides. */
static void workload_of_tarn(struct draft *draft, const struct snapshot_tarn *tarn)
{
    struct workload *workload = draft->workload;
    workload->has_order = tarn->there;
    draft->marks = tarn->marks;
    draft->marks_end =
        tarn->there && tarn->mark_count ? tarn->marks + tarn->mark_count : tarn->marks;
    if (tarn->there && (size_t)workload->device < tarn->device_count) {
        const struct snapshot_device *device = &tarn->devices[workload->device];
        workload->device_memory = device->limit < device->total ? device->limit : device->total;
    }
}

bool workload_build(const struct snapshot *snapshot, int device, struct workload *workload)
{
    *workload = (struct workload){.device = device};
    if (device < 0 || (size_t)device >= snapshot->trace_count)
        return false;
    struct draft draft = {
        .snapshot = snapshot, .trace = &snapshot->traces[device], .workload = workload};
    workload->event_count = draft.trace->event_count;
    workload_of_tarn(&draft, &snapshot->tarn);

    bool done = workload->event_count < INT32_MAX &&
                trace_segments_init(&draft.segments, snapshot, device) &&
                table_add(&draft.pools, 0, 0, 0) && draft_trace(&draft) && draft_state(&draft) &&
                draft_freed_before(&draft) && draft_number(&draft);
    if (done) {
        workload->pool_count = draft.pools.count;
        workload->lost_count += snapshot->lost_lines;
        workload->thread_count =
            draft.threads.count < WORKLOAD_MAX_THREADS ? draft.threads.count : WORKLOAD_MAX_THREADS;
        workload->thread_count += !workload->thread_count;
        workload_measure(workload);
        bool known = draft.segments.known && draft.segments.peak >= workload->peak_requested;
        workload->recorded_peak_reserved = known ? draft.segments.peak : WORKLOAD_NOT_KNOWN;
    } else {
        workload_finish(workload);
    }
    free(draft.blocks);
    trace_segments_finish(&draft.segments);
    table_finish(&draft.addresses);
    table_finish(&draft.streams);
    table_finish(&draft.pools);
    table_finish(&draft.unplanned);
    table_finish(&draft.threads);
    table_finish(&draft.orders);
    free(draft.captures);
    return done;
}

void workload_finish(struct workload *workload)
{
    free(workload->ops);
    free(workload->blocks);
    free(workload->streams);
    *workload = (struct workload){0};
}
