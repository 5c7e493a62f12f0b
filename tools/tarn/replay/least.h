/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The smallest device on which a trace runs to its end. */
#ifndef TOOLS_LEAST_H
#define TOOLS_LEAST_H

#include "replay/replay.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEAST_GRANULE (UINT64_C(2) << 20) /* bytes: the size of a device is a multiple */

static inline uint64_t least_round_up(uint64_t size)
{
    return (size + LEAST_GRANULE - 1) / LEAST_GRANULE * LEAST_GRANULE;
}

/* Finds the smallest device on which `fits` says true, to a granule. `small` is too small, `large`
 * may be large enough; both are multiples of the granule. If none is found, `least` is unchanged.
 * False if `fits` returns false. */
bool least_search(uint64_t small, uint64_t large,
                  bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                  uint64_t *least);

/* The same in steps of a part of what is requested, up to twice that, of which the last is
 * bisected: for tarn, which may fail on a device larger than one on which it succeeds. */
bool least_climb(uint64_t small, uint64_t requested,
                 bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                 uint64_t *least);

/* The last step: bisects between a device that is too small and one that is not. */
bool least_halve(uint64_t small, uint64_t large,
                 bool (*fits)(void *context, uint64_t memory, bool *fits), void *context,
                 uint64_t *least);

/* Finds the smallest device for one of PyTorch's policies, from a size that is too small. False if
 * host memory is short. */
bool least_find_model(const struct replay_options *options, const struct workload *workload,
                      enum replay_policy policy, uint64_t small, uint64_t *least);

/* Finds, for each policy, the smallest device on which a workload runs to its end and no request
 * fails that failed in the recording; 0 if none is found. If the options name a model, only for
 * that, otherwise for all policies. tarn is tried in processes of its own, so the caller must not
 * have used it. False with `error` filled. */
bool least_find(const struct replay_options *options, const struct workload *workload,
                uint64_t least[REPLAY_POLICIES], char *error, size_t error_size);

#endif
