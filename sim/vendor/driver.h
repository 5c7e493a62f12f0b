/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The driver below a simulated library: SIM_DRIVER, which is libcuda.so.1 or a libamdhip64,
 * whichever copy the process has loaded. Codes are the driver's own; those that matter here have
 * the same numbers in CUDA and HIP. */
#ifndef SIM_VENDOR_DRIVER_H
#define SIM_VENDOR_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

enum { BELOW_OK = 0, BELOW_OUT_OF_MEMORY = 2, BELOW_DEINITIALIZED = 4, BELOW_NO_DEVICE = 100 };

/* The version of the driver, such as 13000; 0 if there is none. */
int below_version(void);
/* The current device. On CUDA, if no context is current, the first device's primary context becomes
 * current, as by CUDA's runtime. */
int below_device(int *device);
int below_alloc(void **pointer, size_t size);
int below_free(void *pointer);
int below_synchronize(void);

#endif
