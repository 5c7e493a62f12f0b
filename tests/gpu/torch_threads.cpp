// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors

// PyTorch's caching allocator without Python, for threads_check.c, which opens this as a library.
// scripts/gpu-check compiles it against the
// installed PyTorch, where there is one.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

extern "C" {

// Whether it can be used; then it is, on device 0.
bool torch_start()
{
    try {
        c10::cuda::CUDACachingAllocator::init(1);
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

// NULL where that fails.
void *torch_alloc(size_t size, void *stream)
{
    try {
        return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
            size, static_cast<cudaStream_t>(stream));
    } catch (const std::exception &) {
        return nullptr;
    }
}

void torch_free(void *block)
{
    c10::cuda::CUDACachingAllocator::raw_delete(block);
}

void torch_thread()
{
    c10::cuda::set_device(0);
}

void torch_trim()
{
    c10::cuda::CUDACachingAllocator::emptyCache();
}
}
