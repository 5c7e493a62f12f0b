/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the layers above need of tarn_malloc() and its kin past their public face. */
#ifndef TARN_MEMORY_MALLOC_H
#define TARN_MEMORY_MALLOC_H

#include "memory/heap.h"

/* The start of every public call on memory: the device layer is ready, and knows what the memory layer does at its ends. */
tarn_status memory_ready(void);

/* A block of a store, whatever scopes are open. */
tarn_status memory_alloc(struct store *store, struct stream *stream, size_t size, void **pointer);

/* tarn_free() for a layer that gives its own blocks back during tarn_shutdown(), before the memory layer is shut down. */
tarn_status memory_free(void *pointer);

#endif
