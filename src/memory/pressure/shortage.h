/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The text of an out-of-memory error: what has the memory, and what helps. */
#ifndef TARN_MEMORY_SHORTAGE_H
#define TARN_MEMORY_SHORTAGE_H

#include "memory/heap/heap.h"

/* TARN_ERROR_OUT_OF_MEMORY with a text that says what was tried, what holds the memory, and the one
 * or two things that the facts say would help. Counts it, and tells observers. No lock held. */
tarn_status shortage_refuse(struct heap *heap, size_t size);

/* Puts in front of the last error, which says why memory for a suspended pool could not be created,
 * how much the pool needs, how much of that is missing, and what holds the memory. No lock held. */
void shortage_refuse_resume(const struct store *store, size_t need);

/* The same for a commit of a range that needs `need` bytes; counts it. */
void shortage_refuse_range(const struct store *store, size_t need);

#endif
