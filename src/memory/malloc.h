/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the layers above need of tarn_malloc() and its kin past their public face. */
#ifndef TARN_MEMORY_MALLOC_H
#define TARN_MEMORY_MALLOC_H

#include <tarn/status.h>

/* tarn_free() for a layer that gives its own blocks back during tarn_shutdown(), before the memory layer is shut down. */
tarn_status memory_free(void *pointer);

#endif
