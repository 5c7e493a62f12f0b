/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges on a timeline of NVIDIA's tools, for every layer. They nest, per thread. Without a tool
 * each costs one load. */
#ifndef TARN_BASE_NVTX_H
#define TARN_BASE_NVTX_H

/* Set together, before the first use of tarn's devices. NULL: no tool. */
struct nvtx_ranges {
    void (*begin)(const char *name);
    void (*end)(void);
};
extern const struct nvtx_ranges *nvtx_ranges;

static inline void nvtx_region_begin(const char *name)
{
    if (nvtx_ranges)
        nvtx_ranges->begin(name);
}

static inline void nvtx_region_end(void)
{
    if (nvtx_ranges)
        nvtx_ranges->end();
}

#endif
