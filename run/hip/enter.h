/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a hook of HIP begins and ends. */
#ifndef TARN_RUN_HIP_ENTER_H
#define TARN_RUN_HIP_ENTER_H

#include "shim.h"

/* Whether a hook that allocates, or asks how much there is, has anything to do; wakes the shim at
 * the first. */
static inline bool hip_enter(void)
{
    if (atomic_load_explicit(&shim_state, memory_order_relaxed) == SHIM_ASLEEP && !shim_depth)
        shim_wake();
    return shim_enter();
}

/* Before the call of HIP, on the current device. A refusal is HIP's own: it is what the thread's
 * last error is then. */
hip_result hip_begin(struct charge *charge, enum run_kind kind, size_t size, void *caller);
hip_result hip_begin_on(struct charge *charge, enum run_kind kind, unsigned device, size_t size,
                        void *caller);
void hip_end(struct charge *charge, hip_result code, enum block_space space, const void *key,
             size_t size);
/* After a free of a block that was taken out. */
void hip_freed(bool known, hip_result code, const struct block *block, hip_stream stream);

#endif
