/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's caching allocator, as a model: its policy with default settings on a workload, from an empty device. It
 * moves no memory; it says how much PyTorch would reserve and how often it would call the driver.
 * Source: pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp. Not thread-safe; runs are independent. */
#ifndef TOOLS_C10_H
#define TOOLS_C10_H

#include "input/workload.h"

#include <stdbool.h>
#include <stdint.h>

struct c10_result {
    uint64_t peak_reserved;                /* bytes of segments that came from the driver and were not given back */
    uint64_t allocs, frees;                /* driver calls: cudaMalloc, cudaFree */
    uint64_t event_records, event_queries; /* driver calls, for late frees */
    uint64_t alloc_bytes, free_bytes;      /* of the allocs and the frees */
    uint64_t time_a_ns, time_b_ns;         /* driver time by cost tables A and B of the host device */
    uint64_t retries;                      /* times that all cached segments were given back to make room */
    uint64_t ooms;                         /* allocations that found no room even so; their blocks are left out */
    uint32_t first_oom;                    /* the event of the first of these; UINT32_MAX before the trace */
    uint64_t first_oom_size;               /* bytes, as asked for */
    uint64_t wasted;                       /* bytes: reserved - requested when reserved came to its peak */
};

/* Runs a workload on a device of `memory` bytes: first what was alive before the trace, then the trace. False when host
 * memory is short; `result` is then untouched. */
bool c10_run(const struct workload *workload, uint64_t memory, struct c10_result *result);

#endif
