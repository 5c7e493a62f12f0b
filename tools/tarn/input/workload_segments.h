/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the segments of a recording of PyTorch's say of its trace: how much was reserved, where the
 * program emptied the cache itself, and which addresses are of a private pool, which most versions
 * do not write beside the events. */
#ifndef TOOLS_WORKLOAD_SEGMENTS_H
#define TOOLS_WORKLOAD_SEGMENTS_H

#include "input/snapshot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A segment of a private pool that was there at the end. */
struct private_segment {
    uint64_t address, end;
    uint32_t pool; /* of snapshot.pools */
    size_t from;   /* the event from which on the addresses are its own */
};

struct trace_segments {
    const struct snapshot_trace *trace;
    bool of_driver;   /* each block is a segment */
    bool splits_some; /* PyTorch was set to split no segment above a size */
    /* What was reserved is: something speaks of segments, and nothing contradicts it. */
    bool known;
    uint64_t reserved, peak; /* bytes: before the event at hand; at most */
    size_t run_end;          /* the events before it that give segments back belong together */
    struct private_segment *segments; /* by address */
    size_t segment_count;
    size_t *last_alloc; /* by pool of the snapshot: the event after its last allocation */
};

/* False when memory is short; then there is nothing to finish. */
bool trace_segments_init(struct trace_segments *segments, const struct snapshot *snapshot,
                         int device);
void trace_segments_finish(struct trace_segments *segments);

/* The pool of an event's block, as a place in snapshot.pools. */
uint32_t trace_segments_pool(const struct trace_segments *segments, size_t event);

/* What an event that comes next in the trace says of the program. */
struct trace_given {
    bool trimmed; /* it empties the cache here, on its own account */
    /* A private pool of snapshot.pools gives memory back, from which nothing is allocated any
     * more; or 0. */
    uint32_t pool_ends;
};
struct trace_given trace_segments_next(struct trace_segments *segments, size_t event);

#endif
