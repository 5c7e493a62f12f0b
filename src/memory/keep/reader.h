/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What keep.c asks of readers: see reader.c. */
#ifndef TARN_MEMORY_KEEP_READER_H
#define TARN_MEMORY_KEEP_READER_H

#include "memory/keep/keep.h"

/* Brings the records up to date. What was sealed when it begins is there when it ends, unless it
 * has been unsealed. */
tarn_status reader_look(struct keep *keep);
/* A reader's find. */
tarn_status reader_find(struct keep *keep, const char *name, tarn_sealed_block *found);

#endif
