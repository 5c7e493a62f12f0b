/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Traces that are too long for a page: the blocks that matter least to its picture are left out. */
#ifndef TOOLS_THIN_H
#define TOOLS_THIN_H

#include "input/snapshot.h"

/* What a page shows of a device at most. */
#define THIN_EVENTS ((size_t)2000000)

/* Leaves blocks out of a device's trace until at most `most` events stay, as far as that goes:
 * those with the least bytes times events of life. Blocks that live at the peak of allocated memory
 * or at an out-of-memory error stay, and those of which the trace does not have the whole life. So
 * the peak stays as it was, and other sums are lower by at most `trace->thinned_bytes`. False when
 * memory is short; the trace is unchanged then. */
bool thin_trace(struct snapshot *snapshot, size_t device, size_t most);

#endif
