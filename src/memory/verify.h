/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The invariants of a heap, checked by walking all of it: for tests, and for builds with TARN_DEBUG_CHECKS. */
#ifndef TARN_MEMORY_VERIFY_H
#define TARN_MEMORY_VERIFY_H

#include "memory/heap.h"

/* TARN_OK, or TARN_ERROR_INTERNAL with a text that names the broken invariant and the address. */
tarn_status heap_verify(struct heap *heap);
/* The same for every heap of a device, and for its arena. Nothing else of tarn may run. */
tarn_status arena_verify(struct arena *arena);

#endif
