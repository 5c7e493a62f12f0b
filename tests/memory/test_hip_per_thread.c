/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The vendor's per-thread default stream on the simulated libamdhip64. */
#include "../driver/hip_test.h"

#define DRIVER "hip"
#define LIBRARY TARN_LIBRARY_ROCBLAS
#include "per_thread_test.h"
