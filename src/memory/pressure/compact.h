/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compaction: exchanges pieces under live blocks for smaller ones, so that free memory between the
 * blocks goes back to the driver. The blocks keep their addresses and contents. */
#ifndef TARN_MEMORY_COMPACT_H
#define TARN_MEMORY_COMPACT_H

#include "memory/heap/heap.h"

/* Gives at least `wanted` bytes back to the driver if there are so many; does nothing if fewer than
 * `least` can be freed. Takes them from the stores that serve `wanting`; if it is NULL, from all of
 * the device. Waits for all work of the device and of the peers that reach its memory. The caller
 * knows that nobody queues work meanwhile, and holds no lock. `gained` is the number of bytes by
 * which the device's reserved memory shrank, also on failure. TARN_ERROR_CAPTURE while a stream
 * captures, TARN_ERROR_NOT_READY if work did not end in time: then nothing has changed, nor has
 * `gained`. */
tarn_status compact(struct arena *arena, const struct store *wanting, size_t least, size_t wanted,
                    size_t *gained);

/* Whether a compaction for a store might free at least `least` bytes, and any. Looks only at heaps
 * that have changed. May be true in vain, for example if anchors hold the memory. The caller holds
 * no lock. */
bool compact_may_free(struct store *wanting, size_t least);

/* Whether the settings let the ladder compact. Not while a library is loaded that reaches memory
 * unseen by the program (NCCL, UCX, NVSHMEM), unless the settings say that it is quiet. */
bool compact_is_allowed(void);

#endif
