/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn declares of cuDSS; tests/abi/check_cudss.c compares it with cudss.h. */
#ifndef TARN_HANDLE_CUDSS_ABI_H
#define TARN_HANDLE_CUDSS_ABI_H

#include <stddef.h>

enum { CUDSS_ALLOC_FAILED = 2, CUDSS_INVALID_VALUE = 3 };

struct cudss_memory_handler { /* cudssDeviceMemHandler_t */
    void *context;
    int (*device_alloc)(void *context, void **pointer, size_t size, void *stream);
    int (*device_free)(void *context, void *pointer, size_t size, void *stream);
    char name[64];
};

#endif
