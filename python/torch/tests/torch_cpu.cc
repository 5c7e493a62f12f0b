/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* In place of libtorch_cpu, which is half a gigabyte: the two functions of it that the shim looks
 * for, which keep the allocator of the highest priority, as PyTorch's do. */
#include <ATen/core/CachingHostAllocator.h>

namespace at
{

static HostAllocator *kept;
static uint8_t kept_priority;

void setHostAllocator(c10::DeviceType, HostAllocator *allocator, uint8_t priority)
{
    if (priority < kept_priority)
        return;
    kept = allocator;
    kept_priority = priority;
}

HostAllocator *getHostAllocator(c10::DeviceType)
{
    return kept;
}

} // namespace at
