/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A memory resource for CCCL 3: for cuda::mr::any_resource and resource_ref, and by these for RMM,
 * cuDF, CUB's and Thrust's environments.
 *
 *     tarn::resource memory(tarn::default_pool(0));
 *     auto keys = cuda::make_buffer<int>(stream, memory, 1000, cuda::no_init);        // or any
 *                                                                                     other taker
 *                                                                                     of a resource
 *
 *     tarn::basic_resource<rmm::out_of_memory> for_rmm(tarn::default_pool(0));        // what RMM's
 *                                                                                     users catch
 *     rmm::mr::set_per_device_resource(rmm::cuda_device_id{0}, for_rmm);
 *
 * A resource is a pointer to its pool and can be copied. The pool must outlive the resource and
 * everything allocated from it. Two resources are equal if their pools are. An allocation throws
 * `OutOfMemory` if the device has no memory left, and tarn::error for any other failure.
 *
 * With `wait`, which is tarn_alloc_options.wait, an allocation waits no longer than that for work
 * and for other threads: nanoseconds, or TARN_NO_WAIT. If a longer wait might have served it, it
 * throws `OutOfMemory` too, which is what callers of RMM retry on. What the program can do without
 * gives way before that by a tarn::spiller, which takes the place of RMM's failure callback:
 *
 *     tarn::spiller spiller([&](const tarn_shortage &of) { return callback(of.requested, user); });
 *
 * A deallocation never throws, and is ordered after the work queued on its stream.
 * allocate_sync() and deallocate_sync() have no stream and wait: memory from allocate_sync() may be
 * used on any stream at once, for which it waits for the legacy stream, within `wait`; and
 * deallocate_sync() waits for the device's work, whatever `wait` says. No memory is given out while
 * work may use it: where deallocate_sync() cannot wait, because a known capture is open on the
 * device, or where tarn cannot find a deallocation's stream, the block stays allocated until a
 * later call can wait (tarn_late_free.h). An allocation makes such a wait only if memory is short,
 * and never with `wait`. allocate_sync() throws tarn::error if it cannot wait for the legacy
 * stream.
 *
 * Header-only, C++20; needs CCCL's headers (<cuda/stream_ref>) and the CUDA runtime's types. The
 * names are those of CCCL 3.1 and newer, and those of 3.0 beside them. Thread-safe. See
 * docs/adaptors/cccl.md. */
#ifndef TARN_RESOURCE_HPP
#define TARN_RESOURCE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <tarn/tarn.hpp>
#include <thread>
#include <type_traits>

#include "tarn_late_free.h"

namespace tarn
{

/* `OutOfMemory` must have a constructor from a tarn_status, from a text, or from both. */
template <class OutOfMemory = out_of_memory> class basic_resource
{
  public:
    static constexpr std::size_t default_alignment = 256;

    explicit basic_resource(tarn_pool *pool, std::uint64_t wait = 0) : pool_(pool), wait_(wait)
    {
        tarn_pool_info info{};
        info.size = sizeof info;
        check(tarn_pool_info_get(pool, &info));
        device_ = info.device;
    }

    void *allocate(cuda::stream_ref stream, std::size_t bytes,
                   std::size_t alignment = default_alignment)
    {
        return take(find(stream), bytes, alignment);
    }
    void deallocate(cuda::stream_ref stream, void *pointer, std::size_t,
                    std::size_t = default_alignment) noexcept
    {
        tarn_stream found = 0;
        if (!pointer)
            return;
        tarn_status status = tarn_stream_find(device_, stream.get(), &found);
        if (status == TARN_OK)
            status = tarn_free_on(pointer, found);
        if (status != TARN_OK)
            (void)tarn_late_free_after(status, device_, pointer);
    }

    void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment)
    {
        clock::time_point begun = clock::now();
        tarn_stream stream = find(cuda::stream_ref{legacy()});
        void *pointer = take(stream, bytes, alignment);
        tarn_status status = wait_for(stream, begun);
        if (status == TARN_OK)
            return pointer;
        if (status == TARN_ERROR_NOT_READY) {
            (void)tarn_free(pointer);
            throw_short(status, "work on the legacy stream would have to be waited for longer");
        }
        failure failed(status);
        (void)tarn_free(pointer);
        throw failed;
    }
    void deallocate_sync(void *pointer, std::size_t, std::size_t = default_alignment) noexcept
    {
        (void)tarn_late_free(device_, pointer);
    }

    /* CCCL 3.0's names. */
    void *allocate(std::size_t bytes, std::size_t alignment = default_alignment)
    {
        return allocate_sync(bytes, alignment);
    }
    void deallocate(void *pointer, std::size_t bytes,
                    std::size_t alignment = default_alignment) noexcept
    {
        deallocate_sync(pointer, bytes, alignment);
    }
    void *allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream)
    {
        return allocate(stream, bytes, alignment);
    }
    void deallocate_async(void *pointer, std::size_t bytes, std::size_t alignment,
                          cuda::stream_ref stream) noexcept
    {
        deallocate(stream, pointer, bytes, alignment);
    }

    bool operator==(const basic_resource &other) const noexcept
    {
        return pool_ == other.pool_;
    }
    friend void get_property(const basic_resource &, cuda::mr::device_accessible) noexcept {}

    tarn_pool *pool() const noexcept
    {
        return pool_;
    }

  private:
    using clock = std::chrono::steady_clock;

    static cudaStream_t legacy() noexcept
    {
        return nullptr;
    }
    tarn_stream find(cuda::stream_ref stream) const
    {
        tarn_stream found = 0;
        check(tarn_stream_find(device_, stream.get(), &found));
        return found;
    }
    void *take(tarn_stream stream, std::size_t bytes, std::size_t alignment)
    {
        tarn_alloc_options options{};
        options.size = sizeof options;
        options.device = device_;
        options.stream = stream;
        options.alignment = alignment;
        options.pool = pool_;
        options.wait = wait_;
        void *pointer = nullptr;
        tarn_status status = tarn_alloc(&options, bytes, &pointer);
        if (status == TARN_ERROR_OUT_OF_MEMORY && !wait_ && tarn_late_flush())
            status = tarn_alloc(&options, bytes, &pointer);
        if (status == TARN_ERROR_OUT_OF_MEMORY || status == TARN_ERROR_NOT_READY)
            throw_short(status, tarn_last_error());
        check(status);
        return pointer;
    }
    [[noreturn]] static void throw_short(tarn_status status, const char *text)
    {
        if constexpr (std::is_constructible_v<OutOfMemory, tarn_status, const char *>)
            throw OutOfMemory(status, text);
        else if constexpr (std::is_constructible_v<OutOfMemory, tarn_status> &&
                           !std::is_constructible_v<OutOfMemory, const char *>)
            throw OutOfMemory(status);
        else
            throw OutOfMemory(text);
    }
    /* Waits for a stream, until `wait_` has passed since the allocation began. */
    tarn_status wait_for(tarn_stream stream, clock::time_point begun) const
    {
        if (!wait_)
            return tarn_stream_synchronize(stream);
        for (std::chrono::microseconds pause{10};;
             pause = std::min(2 * pause, std::chrono::microseconds{1000})) {
            tarn_status status = tarn_stream_query(stream);
            auto passed = std::chrono::nanoseconds(clock::now() - begun).count();
            if (status != TARN_ERROR_NOT_READY || wait_ == TARN_NO_WAIT ||
                static_cast<std::uint64_t>(passed) >= wait_)
                return status;
            std::this_thread::sleep_for(pause);
        }
    }

    tarn_pool *pool_;
    std::uint64_t wait_;
    int device_ = 0;
};

using resource = basic_resource<>;

} // namespace tarn

#endif
