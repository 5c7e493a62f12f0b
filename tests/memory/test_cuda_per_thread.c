/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The vendor's per-thread default stream on the simulated libcuda. */
#include "../driver/cuda_test.h"

#define DRIVER "cuda"
#define LIBRARY TARN_LIBRARY_CUBLAS
#include "per_thread_test.h"
