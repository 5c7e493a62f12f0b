/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What an allocation with its free costs, layer by layer: PyTorch's allocator object, whichever is
 * installed, and tarn below it. Called by overhead.py through ctypes; nanoseconds for each pair. */
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>

#include <tarn/tarn.h>

namespace
{
template <typename Work> double nanoseconds(int rounds, Work work)
{
    for (int i = 0; i < rounds / 10 + 1; i++)
        work();
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; i++)
        work();
    auto spent = std::chrono::steady_clock::now() - start;
    return std::chrono::duration<double, std::nano>(spent).count() / rounds;
}
} // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED double pairs_tensor(size_t size, int rounds)
{
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    return nanoseconds(rounds, [&] { auto memory = allocator->allocate(size); });
}

EXPORTED double pairs_raw(size_t size, int rounds)
{
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    return nanoseconds(rounds, [&] { allocator->raw_delete(allocator->raw_alloc(size)); });
}

EXPORTED double pairs_tarn(size_t size, int rounds)
{
    tarn_stream stream = 0;
    if (tarn_stream_find(c10::cuda::current_device(), c10::cuda::getCurrentCUDAStream(), &stream) !=
        TARN_OK)
        return -1;
    return nanoseconds(rounds, [&] {
        void *pointer = nullptr;
        (void)tarn_alloc_on(stream, size, &pointer);
        (void)tarn_free(pointer);
    });
}

EXPORTED double pairs_stream_find(size_t, int rounds)
{
    void *native = c10::cuda::getCurrentCUDAStream();
    int device = c10::cuda::current_device();
    return nanoseconds(rounds, [&] {
        tarn_stream stream = 0;
        (void)tarn_stream_find(device, native, &stream);
    });
}

EXPORTED double pairs_current_stream(size_t, int rounds)
{
    return nanoseconds(rounds, [&] {
        volatile cudaStream_t native = c10::cuda::getCurrentCUDAStream();
        (void)native;
    });
}
