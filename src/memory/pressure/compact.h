/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compaction: live blocks keep their addresses and their contents, while the pieces under them are
 * exchanged for smaller ones, so that what is free between them goes back to the driver. */
#ifndef TARN_MEMORY_COMPACT_H
#define TARN_MEMORY_COMPACT_H

#include "memory/heap/heap.h"

/* Gives at least `wanted` bytes back to the driver where there are as many, and nothing where there
 * are not `least`, out of the stores that serve `wanting`, or with NULL out of all of the device's.
 * Waits for all work of the device and of the peers that reach its memory. The caller has the
 * promise that nobody queues any meanwhile. No lock held. The bytes by which the device's reserved
 * memory shrank are in `gained`, also on failure. TARN_ERROR_CAPTURE while a stream captures,
 * TARN_ERROR_NOT_READY when work did not end in time: then nothing was moved, and `gained` is as it
 * was. */
tarn_status compact(struct arena *arena, const struct store *wanting, size_t least, size_t wanted,
                    size_t *gained);

/* Whether the settings let the ladder do it: not where a library is loaded that reaches memory
 * behind the program's back, unless they say that it is quiet. */
bool compact_is_allowed(void);

#endif
