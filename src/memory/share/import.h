/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Questions of other memory calls about imports; and the segments of imported pools, which are
 * imports too. */
#ifndef TARN_MEMORY_IMPORT_H
#define TARN_MEMORY_IMPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/memory.h>
#include <tarn/share.h>

/* Whether an address is in imported memory; one load if nothing is imported. */
bool import_has(uintptr_t address);
/* The status of a call that needs a block of tarn, for an imported pointer. */
tarn_status import_refuse(uintptr_t address) __attribute__((cold));
/* tarn_pointer_info_get() for an imported block; false if the pointer is in none. */
bool import_info(const void *pointer, tarn_block_info *info);

struct arena;
struct device;
struct import;
struct share_part;

/* Whether a share is of memory that can be mapped for a device. */
tarn_status import_check(const struct tarn_share *share, const struct device *device);
/* Whether a caller's share is one of this process, of a pool or of a block, and well formed. */
tarn_status import_share_check(const struct tarn_share *share, bool of_pool);
/* Both, and the arena of the device, with addresses: what an import needs before it maps. */
tarn_status import_begin(const struct tarn_share *share, bool of_pool, int device,
                         struct arena **arena);

/* Maps a segment of another process's pool. It is not counted: nobody else's import is the same
 * one. On failure nothing is left. */
tarn_status import_segment(struct arena *arena, const struct share_part *part,
                           struct import **import);
uintptr_t import_start(const struct import *import);
/* Unmaps it. Where the driver does not, it stays imported; or, if it must go, it is left to a trim,
 * and the call succeeds. */
tarn_status import_segment_end(struct import *import, bool surely);

#endif
