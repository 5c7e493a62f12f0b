/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Imports, for other calls on memory; and the segments of imported pools, which are imports too. */
#ifndef TARN_MEMORY_IMPORT_H
#define TARN_MEMORY_IMPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/memory.h>
#include <tarn/share.h>

/* Whether an address is in imported memory. One load if nothing is imported. */
bool import_has(uintptr_t address);
/* The number of the import that contains an address, and the import's end. No other import of the
 * process has the same number. 0: there is none. */
uint64_t import_look(uintptr_t address, uintptr_t *end);
/* Refuses a call that needs a block of tarn, because its pointer is imported. */
tarn_status import_refuse(uintptr_t address) __attribute__((cold));
/* tarn_pointer_info_get() for an imported block; false if the pointer is in none. */
bool import_info(const void *pointer, tarn_block_info *info);

struct arena;
struct device;
struct import;
struct share_part;

/* Whether the memory of a share can be mapped on a device. */
tarn_status import_check(const struct tarn_share *share, const struct device *device);
/* Whether a caller's share was made or received by this process, is of a pool or of a block, and is
 * well formed. */
tarn_status import_share_check(const struct tarn_share *share, bool of_pool);
/* Makes both checks and gets the device's arena, with addresses reserved. Called before an import
 * maps. */
tarn_status import_begin(const struct tarn_share *share, bool of_pool, int device,
                         struct arena **arena);

/* Maps a segment of another process's pool. Never shared with an equal import. On failure nothing
 * is left. */
tarn_status import_segment(struct arena *arena, const struct share_part *part,
                           struct import **import);
uintptr_t import_start(const struct import *import);
/* Unmaps it. If the driver refuses, the segment stays imported. With `surely` the call succeeds
 * anyway, and a trim tries again. */
tarn_status import_segment_end(struct import *import, bool surely);

#endif
