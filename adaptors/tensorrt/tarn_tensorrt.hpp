/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* TensorRT's stream-ordered allocator, of TensorRT 10 and 11.
 *
 *     tarn::tensorrt_allocator allocator(pool);
 *     runtime->setGpuAllocator(&allocator);       // IBuilder and IExecutionContext have such a
 *                                                 call too
 *
 * It must outlive every builder, runtime, engine and context that it was passed to. It always
 * allocates from its pool, whatever scopes are open. reallocate() grows a block in place
 * (tarn_extend()) or returns NULL; then TensorRT allocates a new block and copies. A free without a
 * stream waits for the device's work, as cudaFree() does. No memory is given out while work may use
 * it: where such a free cannot wait, because a known capture is open on the device, or where tarn
 * cannot find a free's stream, the block stays allocated until a later call can wait
 * (tarn_late_free.h). An allocation without a stream waits for the work of the legacy stream, so it
 * fails while that cannot be waited for.
 *
 * Header-only, C++17; needs only TensorRT's headers. Thread-safe. See docs/adaptors/tensorrt.md. */
#ifndef TARN_TENSORRT_HPP
#define TARN_TENSORRT_HPP

#include <NvInferRuntime.h>
#include <tarn/tarn.hpp>

#include "tarn_late_free.h"

#if !defined NV_TENSORRT_MAJOR || NV_TENSORRT_MAJOR < 10
#error "tarn_tensorrt.hpp needs TensorRT 10 or newer, whose allocators know streams"
#endif

namespace tarn
{

class tensorrt_allocator final : public nvinfer1::IGpuAsyncAllocator
{
  public:
    /* Of the pool's device. Throws tarn::error for no pool. */
    explicit tensorrt_allocator(tarn_pool *pool) : pool_(pool)
    {
        tarn_pool_info info{};
        info.size = sizeof info;
        check(tarn_pool_info_get(pool, &info));
        device_ = info.device;
    }

    void *allocateAsync(std::uint64_t const size, std::uint64_t const alignment,
                        nvinfer1::AllocatorFlags const flags, cudaStream_t native) noexcept override
    {
        (void)flags;
        tarn_alloc_options options{};
        options.size = sizeof options;
        options.device = device_;
        options.alignment = alignment;
        options.pool = pool_;
        void *pointer = nullptr;
        if (tarn_stream_find(device_, native, &options.stream) != TARN_OK)
            return nullptr;
        tarn_status status = tarn_alloc(&options, size, &pointer);
        if (status == TARN_ERROR_OUT_OF_MEMORY && tarn_late_flush())
            status = tarn_alloc(&options, size, &pointer);
        return status == TARN_OK ? pointer : nullptr;
    }

    bool deallocateAsync(void *const memory, cudaStream_t native) noexcept override
    {
        tarn_stream stream = 0;
        if (!memory)
            return true;
        tarn_status status = tarn_stream_find(device_, native, &stream);
        if (status == TARN_OK)
            status = tarn_free_on(memory, stream);
        return status == TARN_OK || tarn_late_free_after(status, device_, memory) == TARN_OK;
    }

    void *reallocate(void *const memory, std::uint64_t alignment,
                     std::uint64_t size) noexcept override
    {
        (void)alignment; /* as before: the address stays */
        return memory && tarn_extend(memory, size) == TARN_OK ? memory : nullptr;
    }

    /* The calls without a stream, which newer versions of TensorRT do not make. */
    void *allocate(std::uint64_t const size, std::uint64_t const alignment,
                   nvinfer1::AllocatorFlags const flags) noexcept override
    {
        void *pointer = allocateAsync(size, alignment, flags, nullptr);
        tarn_stream legacy = 0;
        if (!pointer || (tarn_stream_find(device_, nullptr, &legacy) == TARN_OK &&
                         tarn_stream_synchronize(legacy) == TARN_OK))
            return pointer; /* for work on any stream */
        (void)tarn_free(pointer);
        return nullptr;
    }
    bool deallocate(void *const memory) noexcept override
    {
        return tarn_late_free(device_, memory) == TARN_OK;
    }

    tarn_pool *pool() const noexcept
    {
        return pool_;
    }

  private:
    tarn_pool *pool_;
    int device_ = 0;
};

} // namespace tarn

#endif
