/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's caching allocator, as a model: its two policies, with segments of cudaMalloc ("native")
 * and with expandable segments, on a workload, from an empty device. It moves no memory; it says
 * how much PyTorch would reserve and how often it would call the driver. What it would wait for in
 * the driver is not in it.
 * Source: pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp. Not thread-safe; runs are
 * independent. */
#ifndef TOOLS_C10_H
#define TOOLS_C10_H

#include "input/workload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define C10_DIVISIONS 16 /* classes of sizes, from 1 MiB to 32 GiB and more */

/* PyTorch's settings that say where memory comes from; by their names in
 * PYTORCH_CUDA_ALLOC_CONF. */
struct c10_policy {
    bool expandable;                   /* expandable_segments */
    uint64_t max_split;                /* bytes: max_split_size_mb; UINT64_MAX for none */
    uint64_t max_non_split_rounding;   /* bytes */
    uint64_t large_segment;            /* bytes */
    double collect_above;              /* part of the device: garbage_collection_threshold; 0 for
                                          never */
    uint32_t divisions[C10_DIVISIONS]; /* roundup_power2_divisions; 0 for none */
};

/* PyTorch's defaults, with one kind of segments or the other. */
struct c10_policy c10_policy_default(bool expandable);

/* Changes a policy as a text says that PYTORCH_CUDA_ALLOC_CONF may have. What says nothing of where
 * memory comes from is passed over. False, with one line in `error`, for a text that makes no
 * sense. */
bool c10_policy_parse(const char *conf, struct c10_policy *policy, char *error, size_t error_size);

/* The driver calls that it makes, by the names that the host device has for them. */
#define C10_CALL_LIST(X) \
    X(alloc)             \
    X(free)              \
    X(create)            \
    X(map)               \
    X(set_access)        \
    X(unmap)             \
    X(release)           \
    X(reserve)           \
    X(unreserve)         \
    X(event_record)      \
    X(event_query)

enum c10_call {
#define X(name) C10_CALL_##name,
    C10_CALL_LIST(X)
#undef X
        C10_CALLS
};

const char *c10_call_name(enum c10_call call);

struct c10_cost {
    uint64_t calls, bytes, pieces;
};

struct c10_result {
    uint64_t peak_reserved;          /* bytes that came from the driver and were not given back */
    struct c10_cost cost[C10_CALLS]; /* what it asked of the driver */
    uint64_t retries;                /* times that everything cached was given back to make room */
    uint64_t ooms;                   /* allocations that found no room even so; their blocks are
                                        left out */
    uint64_t tried, denied;  /* requests that failed in the recording; those of them that found no
                                room here either */
    uint32_t first_oom;      /* the event of the first of both; UINT32_MAX before the trace */
    uint64_t first_oom_size; /* bytes, as asked for */
    uint64_t wasted;         /* bytes: reserved - requested when reserved reached its peak */
};

uint64_t c10_calls(const struct c10_result *result);

/* Runs a workload on a device of `memory` bytes (256 TiB at most): first what was alive before the
 * trace, then the trace. False when host memory is short; `result` is then untouched. */
bool c10_run(const struct workload *workload, const struct c10_policy *policy, uint64_t memory,
             struct c10_result *result);

/* The same up to the first allocation without room. */
bool c10_run_to_stop(const struct workload *workload, const struct c10_policy *policy,
                     uint64_t memory, struct c10_result *result);

/* Whether a workload runs to its end on such a device, with what failed in the recording. Stops at
 * the first allocation without room. False as above. */
bool c10_fits(const struct workload *workload, const struct c10_policy *policy, uint64_t memory,
              bool *fits);

#endif
