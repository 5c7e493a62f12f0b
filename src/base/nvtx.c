/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the pointer to the functions of a tool that shows ranges. */
#include "base/nvtx.h"

#include <stddef.h>

const struct nvtx_ranges *nvtx_ranges;
