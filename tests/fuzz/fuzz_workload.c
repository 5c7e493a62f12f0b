/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into what is made of a trace: clang -fsanitize=fuzzer,address,undefined. Seeds:
 * corpus/workload. Four bytes are an event, a mark of tarn, a segment or a block of it: kind,
 * address, size, and stream with pool and thread. However they contradict each other, each block is
 * allocated once, then freed and completed at most once, and what is made of the workload stays
 * whole.
 *
 * Reader: tools/tarn/input/workload.c
 */
#include "input/workload.h"
#include "plan/packing.h"
#include "plan/plan_make.h"
#include "policy/c10.h"

#include <stdlib.h>
#include <string.h>

#define EVENTS 512
#define MARKS 512
#define SEGMENTS 64 /* of four blocks at most */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void check_op(const struct workload *workload, const struct workload_op *op, uint8_t *life)
{
    /* As a block of 0 bytes is */
    bool dropped = op->action == WORKLOAD_OTHER && op->block == WORKLOAD_NO_BLOCK;
    bool before = op->event == WORKLOAD_BEFORE && (op->action == WORKLOAD_FREE || dropped);
    demand((before || op->event < workload->event_count) && op->thread < workload->thread_count);
    demand(op->stream == WORKLOAD_NO_STREAM || op->stream < workload->stream_count);
    demand(op->action != WORKLOAD_WAIT ||
           (op->stream < workload->stream_count && op->other < workload->stream_count));
    demand(op->action != WORKLOAD_CAPTURE || op->other == WORKLOAD_NO_POOL ||
           op->other < workload->pool_count);
    demand(op->action != WORKLOAD_TRIM || op->other < workload->pool_count);
    demand(op->action != WORKLOAD_POOL_END || (op->other > 0 && op->other < workload->pool_count));
    if (op->block == WORKLOAD_NO_BLOCK)
        return;
    demand(op->block < workload->block_count && workload->blocks[op->block].size > 0);
    if (op->action <= WORKLOAD_COMPLETED) {
        uint8_t initial = op->block < workload->initial_count ? 1 : 0;
        demand(!before || initial);
        demand(life[op->block] + initial == (int)op->action);
        life[op->block]++;
    }
}

static void check(const struct workload *workload)
{
    uint8_t *life = calloc(workload->block_count + 1, 1);
    if (!life)
        return;
    for (size_t i = 0; i < workload->op_count; i++) {
        demand(i == 0 || workload->ops[i].time >= workload->ops[i - 1].time);
        check_op(workload, &workload->ops[i], life);
    }
    free(life);
}

static void use(struct workload *workload, uint8_t choice)
{
    struct c10_result result;
    struct plan_draft draft;
    char error[256];
    check(workload);
    const struct c10_policy native = c10_policy_default(false),
                            expandable = c10_policy_default(true);
    (void)c10_run(workload, &native, UINT64_C(64) << 20, &result);
    (void)c10_run(workload, &expandable, UINT64_C(64) << 20, &result);
    const struct packing_limits limits = {.steps = 10000, .seconds = 1000};
    if (plan_draft_make(workload, choice % 4 + 1, 1000, &limits, &draft, error, sizeof error)) {
        uint64_t height = 0;
        const uint32_t made = draft.count;
        for (uint32_t i = 0; choice & 8 && i < made; i++)
            plan_draft_drop(&draft, choice % draft.count);
        for (uint32_t i = 0; choice & 8 && i < made; i++)
            plan_draft_undrop(&draft);
        for (uint32_t i = 0; i < draft.count; i++) {
            demand(draft.arenas[i].found.height >= draft.arenas[i].found.bound);
            demand(draft.arenas[i].header.behind == draft.count - 1 - i);
            demand(draft.arenas[i].header.pool <= draft.pools &&
                   !draft.arenas[i].header.pool == !draft.arenas[i].pool);
            demand(i == 0 || draft.arenas[i].first > draft.arenas[i - 1].first);
            height += draft.arenas[i].header.arena;
        }
        demand(draft.count == made && draft.count >= 1 && draft.count <= choice % 4 + 1u &&
               draft.found.height == height);
        plan_draft_finish(&draft);
    }
    workload_leave_ranges(workload);
    check(workload);
    workload_forget_tries(workload);
    check(workload);
    if (workload_vary(workload, choice))
        check(workload);
    if (workload_deal(workload, choice % 3 + 1u, choice))
        check(workload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct snapshot_event events[EVENTS];
    static struct snapshot_mark marks[MARKS];
    static struct snapshot_segment segments[SEGMENTS];
    static struct snapshot_block blocks[4 * SEGMENTS];
    uint64_t streams[] = {0, 5, 9}, pools[][2] = {{0, 0}, {0, 1}};
    struct snapshot_device device = {.total = UINT64_C(1) << 30, .limit = SNAPSHOT_NO_LIMIT};
    size_t event_count = 0, mark_count = 0, segment_count = 0, block_count = 0;
    for (size_t i = 0; i + 4 <= size && event_count < EVENTS && mark_count < MARKS; i += 4) {
        const uint8_t *at = data + i;
        uint32_t stream = at[3] % 3, thread = at[3] / 32;
        if (at[0] < 128) {
            events[event_count++] =
                (struct snapshot_event){.action = at[0] % (SNAPSHOT_OTHER + 1),
                                        .address = (uint64_t)at[1] << 12,
                                        .size = (uint64_t)at[2] << (at[0] / 16),
                                        .time_us = at[3] == 255 ? SNAPSHOT_NO_TIME : at[3],
                                        .stream = stream,
                                        .pool = at[3] / 4 % 2,
                                        .in_range = at[3] & 8,
                                        .thread = thread};
        } else if (at[0] >= 240 && segment_count < SEGMENTS && (at[0] >= 252 || !segment_count)) {
            segments[segment_count++] =
                (struct snapshot_segment){.address = (uint64_t)at[1] << 12,
                                          .total_size = (uint64_t)at[2] << (at[0] % 4 * 18),
                                          .device = at[3] == 255,
                                          .stream_place = stream,
                                          .pool_place = at[3] / 4 % 2,
                                          .first_block = block_count};
        } else if (at[0] >= 240) {
            struct snapshot_segment *last = &segments[segment_count - 1];
            if (last->block_count == 4)
                continue;
            last->block_count++;
            blocks[block_count++] = (struct snapshot_block){.address = (uint64_t)at[1] << 12,
                                                            .size = at[2],
                                                            .requested_size = at[2] / 2,
                                                            .state = at[3] % 3};
        } else {
            marks[mark_count++] = (struct snapshot_mark){.kind = at[0] % (SNAPSHOT_MARK_OTHER + 1),
                                                         .at = event_count,
                                                         .value = (uint64_t)at[1] << 12,
                                                         .stream = stream,
                                                         .other = at[2] % 3,
                                                         .pool = at[3] / 4 % 2,
                                                         .unplanned = at[2] == 254,
                                                         .device = at[2] == 255,
                                                         .thread = thread};
        }
    }
    struct snapshot_trace trace = {.events = events,
                                   .event_count = event_count,
                                   .exact_from = size && data[0] < event_count ? data[0] : 0};
    struct snapshot snapshot = {.traces = &trace,
                                .trace_count = 1,
                                .segments = segments,
                                .segment_count = segment_count,
                                .blocks = blocks,
                                .block_count = block_count,
                                .streams = streams,
                                .stream_count = 3,
                                .pools = pools,
                                .pool_count = 2,
                                .tarn = {.there = size % 2,
                                         .devices = &device,
                                         .device_count = 1,
                                         .marks = marks,
                                         .mark_count = mark_count}};
    struct workload workload;
    if (!workload_exists(&snapshot, 0) || !workload_build(&snapshot, 0, &workload))
        return 0;
    use(&workload, size ? data[size - 1] : 0);
    workload_finish(&workload);
    return 0;
}
