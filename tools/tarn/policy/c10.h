/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's caching allocator as a model. It runs a workload from an empty device by one of
 * PyTorch's two policies: segments of cudaMalloc ("native"), or expandable segments. It moves no
 * memory. It computes how much PyTorch would reserve and how often it would call the driver,
 * without waits in the driver. Source: pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp. Not
 * thread-safe; runs are independent. */
#ifndef TOOLS_C10_H
#define TOOLS_C10_H

#include "input/workload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define C10_DIVISIONS 16 /* size classes, from 1 MiB to 32 GiB and above */

/* PyTorch's settings that say where memory comes from; by their names in
 * PYTORCH_CUDA_ALLOC_CONF. */
struct c10_policy {
    bool expandable;                 /* expandable_segments */
    uint64_t max_split;              /* bytes: max_split_size_mb; UINT64_MAX for none */
    uint64_t max_non_split_rounding; /* bytes */
    uint64_t large_segment;          /* bytes */
    /* Part of the device: garbage_collection_threshold; 0 for never. */
    double collect_above;
    uint32_t divisions[C10_DIVISIONS]; /* roundup_power2_divisions; 0 for none */
};

/* PyTorch's defaults, with or without expandable segments. */
struct c10_policy c10_policy_default(bool expandable);

/* Changes a policy by a text as in PYTORCH_CUDA_ALLOC_CONF. Settings that do not affect where
 * memory comes from are ignored. False, with one line in `error`, for an invalid text. */
bool c10_policy_parse(const char *conf, struct c10_policy *policy, char *error, size_t error_size);

/* The driver calls that the model makes, named as on the host device. */
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
    uint64_t retries;                /* how often all cached memory was given back to make room */
    /* allocations that found no room even after that; the run goes on without their blocks */
    uint64_t ooms;
    /* requests that failed in the recording: those that were tried here, and those of them that
     * failed here too */
    uint64_t tried, denied;
    /* the event of the first allocation of `ooms` or `denied`; UINT32_MAX: before the trace */
    uint32_t first_oom;
    uint64_t first_oom_size; /* bytes, as asked for */
    uint64_t wasted;         /* bytes: reserved - requested when reserved reached its peak */
};

uint64_t c10_calls(const struct c10_result *result);

/* Runs a workload on a device of `memory` bytes (256 TiB at most): first the blocks from before the
 * trace, then the trace. False if host memory is short; `result` is then unchanged. */
bool c10_run(const struct workload *workload, const struct c10_policy *policy, uint64_t memory,
             struct c10_result *result);

/* The same, and ends at the first allocation without room. */
bool c10_run_to_stop(const struct workload *workload, const struct c10_policy *policy,
                     uint64_t memory, struct c10_result *result);

/* Finds out whether a workload runs to its end on such a device, with the requests that failed in
 * the recording. Ends at the first allocation without room. False as above. */
bool c10_fits(const struct workload *workload, const struct c10_policy *policy, uint64_t memory,
              bool *fits);

#endif
