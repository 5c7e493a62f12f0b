/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What keep.c asks of readers: see reader.c. */
#ifndef TARN_MEMORY_KEEP_READER_H
#define TARN_MEMORY_KEEP_READER_H

#include "memory/keep/keep.h"

/* Updates the reader's records. A block that was sealed when the call began is among them, unless
 * it was unsealed since. */
tarn_status reader_look(struct keep *keep);
/* tarn_pool_block_find() of a reader. */
tarn_status reader_find(struct keep *keep, const char *name, tarn_sealed_block *found);

#endif
