/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The smallest device: what a user feels of an allocator. */
#ifndef TOOLS_LEAST_H
#define TOOLS_LEAST_H

#include "replay/replay.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEAST_GRANULE (UINT64_C(2) << 20) /* bytes: devices are multiples */

static inline uint64_t least_round_up(uint64_t size)
{
    return (size + LEAST_GRANULE - 1) / LEAST_GRANULE * LEAST_GRANULE;
}

/* Finds the smallest device on which `fits` says true, to a granule, from one that is too small and
 * one that may be large enough; both are multiples of the granule. `least` stays as it is where
 * none is found. False when `fits` gives false. */
bool least_search(uint64_t small, uint64_t large,
                  bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                  uint64_t *least);

/* The last step of it: from a device that is too small and one that does, down to a granule. */
bool least_halve(uint64_t small, uint64_t large,
                 bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                 uint64_t *least);
/* The same for one of PyTorch's policies, from what is too small. False when host memory is
 * short. */
bool least_find_model(const struct replay_options *options, const struct workload *workload,
                      enum replay_policy policy, uint64_t small, uint64_t *least);

/* The smallest devices on which a workload runs to its end, and what failed in the recording does
 * not fail, by policy; 0 where none is found. One policy alone where the options name a model, else
 * all of them. tarn is tried in processes of its own, so the caller must not have used it. False
 * with `error` filled. */
bool least_find(const struct replay_options *options, const struct workload *workload,
                uint64_t least[REPLAY_POLICIES], char *error, size_t error_size);

#endif
