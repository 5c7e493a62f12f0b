/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The driver below a simulated library: SIM_DRIVER, libcuda.so.1 or a libamdhip64, whichever copy
 * the process has. Codes are the driver's own; those of CUDA and HIP that matter here are the same
 * numbers. */
#ifndef SIM_VENDOR_DRIVER_H
#define SIM_VENDOR_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

enum { BELOW_OK = 0, BELOW_OUT_OF_MEMORY = 2, BELOW_DEINITIALIZED = 4, BELOW_NO_DEVICE = 100 };

/* The version of the driver, 13000; 0 where there is none. */
int below_version(void);
/* The current device; on CUDA, as its runtime does, the first one's primary context becomes current
 * where none is. */
int below_device(int *device);
int below_alloc(void **pointer, size_t size);
int below_free(void *pointer);
int below_synchronize(void);

#endif
