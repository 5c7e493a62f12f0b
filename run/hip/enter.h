/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a hook of HIP begins and ends. */
#ifndef TARN_RUN_HIP_ENTER_H
#define TARN_RUN_HIP_ENTER_H

#include "shim.h"

/* Begins a hook that allocates or asks about memory, and wakes the shim at the first one. False:
 * the hook has nothing to do. */
static inline bool hip_enter(void)
{
    if (atomic_load_explicit(&shim_state, memory_order_relaxed) == SHIM_ASLEEP && !shim_depth)
        shim_wake();
    return shim_enter();
}

/* Charges the current device before HIP's call. A refusal also becomes the thread's last HIP error,
 * as HIP's own refusal does. */
hip_result hip_begin(struct charge *charge, enum run_kind kind, size_t size, void *caller);
hip_result hip_begin_on(struct charge *charge, enum run_kind kind, unsigned device, size_t size,
                        void *caller);
void hip_end(struct charge *charge, hip_result code, enum block_space space, const void *key,
             size_t size);
/* Ends the free of a block, which blocks_take() took out before HIP's call. `known`: blocks_take()
 * found it. */
void hip_freed(bool known, hip_result code, const struct block *block, hip_stream stream);

#endif
