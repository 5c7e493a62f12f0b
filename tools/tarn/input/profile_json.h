/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* JSON of PyTorch's profiler as a snapshot without segments:
 *
 * - a trace (export_chrome_trace) of a profiler with profile_memory=True. Its instant events
 *   "[memory]" are allocations and frees with addresses (pytorch/pytorch,
 *   torch/csrc/autograd/profiler_kineto.cpp); operators and functions of Python that were open on
 *   their thread are their stack;
 * - a timeline (export_memory_timeline), which has sums by category over time ([times, sizes]), or
 *   each change of them ([[ns, action, bytes, category], ...]), and no addresses
 *   (torch/profiler/_memory_profiler.py). Each category is a tag.
 */
#ifndef TOOLS_PROFILE_JSON_H
#define TOOLS_PROFILE_JSON_H

#include "input/json_stream.h"
#include "input/snapshot.h"
#include "table.h"

#define PROFILE_DEVICES 64

/* Reads what `input`, at its first byte, gives. False on failure, with `error` filled; `snapshot`
 * is the caller's to finish either way. */
bool profile_json_read(struct pickle_input *input, struct snapshot *snapshot,
                       struct snapshot_error *error);

/* For the two readers: what is read, and tables of what is there once. */
struct profile {
    struct json_stream stream;
    struct snapshot *snapshot;
    struct table texts, frames, stacks, threads;
    size_t event_capacity, text_capacity, byte_capacity, frame_capacity, stack_capacity, bytes;
};

/* Makes room for one more element of an array. */
bool profile_grow(struct profile *profile, void *array, size_t count, size_t *capacity,
                  size_t element);
bool profile_no_memory(struct profile *profile);
/* The number of a text, of what is fit to be printed. */
bool profile_text(struct profile *profile, const char *text, size_t length, uint32_t *number);
bool profile_frame(struct profile *profile, struct snapshot_frame frame, uint32_t *number);
bool profile_stack(struct profile *profile, struct snapshot_stack stack, uint32_t *number);
bool profile_event(struct profile *profile, const struct snapshot_event *event);

/* profile_trace.c. Reads events, with `token` the first one of their array; profile_trace_finish()
 * makes the traces of devices. */
struct profile_trace;
struct profile_trace *profile_trace_begin(void);
bool profile_trace_read(struct profile *profile, struct profile_trace *trace,
                        enum json_token token);
bool profile_trace_finish(struct profile *profile, struct profile_trace *trace);
void profile_trace_free(struct profile_trace *trace);

/* profile_timeline.c. Reads the arrays of a timeline, with the first of them begun. */
bool profile_timeline_read(struct profile *profile);

#endif
