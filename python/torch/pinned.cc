/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's allocator of pinned host memory (ATen/core/CachingHostAllocator.h, 2.8 and later) on
 * tarn's (tarn/pinned.h): exact sizes, a limit, and memory that goes back to the system. The two
 * functions that replace it are in libtorch_cpu. They are looked up in the loaded library, since
 * the shim is linked to c10 only. */
#include "allocator.h"

#if TARN_TORCH_VERSION >= 2008

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace tarn_torch
{

#if TARN_TORCH_VERSION >= 2014
namespace
{
/* What snapshots say about pinned memory: the allocated blocks, also those that the program has
 * registered itself, and what happened since _record_memory_history(). */
struct PinnedHistory {
    History events;
    std::mutex lock; /* protects the fields below */
    std::unordered_map<void *, size_t> live;

    void allocated(void *pointer, size_t size)
    {
        {
            std::lock_guard<std::mutex> guard(lock);
            live[pointer] = size;
        }
        events.allocated(0, pointer, size, nullptr, {0, 0});
    }

    /* A block that is not known is ignored. */
    void freed(void *pointer)
    {
        size_t size = 0;
        {
            std::lock_guard<std::mutex> guard(lock);
            auto found = live.find(pointer);
            if (found == live.end())
                return;
            size = found->second;
            live.erase(found);
        }
        events.freed(0, pointer, size, nullptr, {0, 0});
    }
};
} // namespace

static PinnedHistory &pinned_history()
{
    static auto *one = new PinnedHistory; /* never destroyed, like the allocator */
    return *one;
}
#endif

static void delete_pinned(void *pointer)
{
    if (is_child())
        return;
#if TARN_TORCH_VERSION >= 2014
    pinned_history().freed(pointer);
#endif
    if (tarn_free(pointer) != TARN_OK) {
        TORCH_WARN_ONCE("tarn: pinned memory is not freed: ", tarn_last_error());
    }
}

using c10::CachingAllocator::DurationStat;
using c10::CachingAllocator::Stat;

static void copy(Stat &to, const tarn_stat &from)
{
    to.current = from.current;
    to.peak = from.peak;
    to.allocated = from.allocated;
    to.freed = from.freed;
}

/* PyTorch's durations are in microseconds. */
static void copy(DurationStat &to, const tarn_pinned_duration &from)
{
    to.total = from.total / 1000;
    to.max = from.max / 1000;
    to.min = from.min / 1000;
    to.count = from.count;
}

template <typename Stats>
static auto copy_bytes(Stats &to, const tarn_pinned_stats &from, int)
    -> decltype(void(to.active_requests))
{
    copy(to.active_requests, from.active_requests);
    copy(to.active_bytes, from.active_bytes);
    copy(to.allocations, from.allocations);
    copy(to.allocated_bytes, from.allocated_bytes);
    for (size_t i = 0; i < std::min<size_t>(to.bucket_allocation.size(), TARN_PINNED_BUCKETS); i++)
        to.bucket_allocation[i] = from.bucket_allocation[i];
}

/* For the names of the first release. */
template <typename Stats>
static auto copy_bytes(Stats &to, const tarn_pinned_stats &from, long) -> decltype(void(to.segment))
{
    copy(to.allocation, from.active_requests);
    copy(to.allocated_bytes, from.active_bytes);
    copy(to.segment, from.allocations);
    copy(to.reserved_bytes, from.allocated_bytes);
}

namespace
{
class PinnedAllocator final : public at::HostAllocator
{
  public:
    at::DataPtr allocate(size_t size) override
    {
        void *pointer = nullptr;
        /* All devices can use the memory. If some device has a context, no other gets one for
         * it. */
        DeviceIndex device =
            c10::cuda::getDeviceIndexWithPrimaryContext().value_or(c10::cuda::current_device());
        /* memory that a capture allocates belongs to its pool, as long as the graph exists */
        if (size)
            check(tarn_pinned_alloc(stream_of(c10::cuda::getCurrentCUDAStream(device)), size,
                                    &pointer),
                  "pinned memory");
#if TARN_TORCH_VERSION >= 2014
        if (pointer)
            pinned_history().allocated(pointer, size);
#endif
        return {pointer, pointer, &delete_pinned, c10::Device(c10::kCPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return &delete_pinned;
    }

    void copy_data(void *to, const void *from, size_t count) const override
    {
        std::memcpy(to, from, count);
    }

    bool record_event(void *pointer, void *context, c10::Stream stream) override
    {
        if (!tarn_pinned_contains(pointer))
            return previous && previous->record_event(pointer, context, stream);
        check(tarn_record_stream(pointer, stream_of(CUDAStream(stream))), "pinned memory");
        return true;
    }

    void empty_cache() override
    {
        if (previous)
            previous->empty_cache();
        the_allocator().settle();
        tarn_status status = tarn_pinned_trim(0);
        if (status != TARN_ERROR_CAPTURE)
            check(status, "pinned memory");
    }

    at::HostStats get_stats() override
    {
        at::HostStats result;
        tarn_pinned_stats stats = {};
        stats.size = sizeof stats;
        check(tarn_pinned_stats_get(&stats), "the statistics of pinned memory");
        copy_bytes(result, stats, 0);
        copy(result.host_alloc_time, stats.host_alloc_time);
        copy(result.host_free_time, stats.host_free_time);
        result.num_host_alloc = stats.num_host_alloc;
        result.num_host_free = stats.num_host_free;
        return result;
    }

    void reset_accumulated_stats() override
    {
        check(tarn_pinned_stats_reset(TARN_STATS_ACCUMULATED), "the statistics of pinned memory");
    }

    void reset_peak_stats() override
    {
        check(tarn_pinned_stats_reset(TARN_STATS_PEAK), "the statistics of pinned memory");
    }

#if TARN_TORCH_VERSION >= 2011
    /* Only captures call this, and pools.cc has told tarn of the capture and its pool. */
    void begin_allocate_to_pool(c10::MempoolId_t id, std::function<bool(c10::Stream)>) override
    {
        the_allocator().expect_capture(id);
    }
    void end_allocate_to_pool(c10::MempoolId_t) override {}
    void release_pool(c10::MempoolId_t) override {}
#endif

#if TARN_TORCH_VERSION >= 2014
    void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn make,
                        size_t entries, RecordContext when, bool clear) override
    {
        pinned_history().events.configure(enabled, make, entries, when, clear, {});
    }

    bool is_history_enabled() const override
    {
        return pinned_history().events.enabled();
    }

    std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> get_segments() override
    {
        std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> result;
        PinnedHistory &all = pinned_history();
        std::unordered_map<void *, size_t> live;
        {
            std::lock_guard<std::mutex> guard(all.lock);
            live = all.live;
        }
        for (const auto &[pointer, size] : live) {
            auto &segment = result.emplace_back();
            segment.address = reinterpret_cast<size_t>(pointer);
            segment.size = size;
            segment.allocated = segment.active = true;
            segment.context_when_allocated = all.events.context_of(pointer);
        }
        return result;
    }

    std::vector<TraceEntry> get_traces() override
    {
        return pinned_history().events.traces({0, 0}, 1)[0];
    }

    /* Memory that the program registered itself. It is counted while a history is recorded, as in
     * PyTorch's own allocator. */
    void record_external_register(void *pointer, size_t size) override
    {
        if (pinned_history().events.enabled())
            pinned_history().allocated(pointer, size);
    }

    void record_external_unregister(void *pointer) override
    {
        pinned_history().freed(pointer);
    }
#endif

    /* it frees what it allocated, and knows its own blocks */
    at::HostAllocator *previous = nullptr;
};
} // namespace

} // namespace tarn_torch

/* A function of libtorch_cpu. */
static void *find(const char *symbol)
{
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? dlsym(library, symbol) : nullptr;
    if (library)
        dlclose(library); /* only drops this reference: the library was loaded before */
    return found;
}

extern "C" __attribute__((visibility("default"))) int tarn_torch_install_pinned(char *text,
                                                                                size_t size)
{
    using namespace tarn_torch;
    auto get = reinterpret_cast<at::HostAllocator *(*)(c10::DeviceType)>(
        find("_ZN2at16getHostAllocatorEN3c1010DeviceTypeE"));
    auto set = reinterpret_cast<void (*)(c10::DeviceType, at::HostAllocator *, uint8_t)>(
        find("_ZN2at16setHostAllocatorEN3c1010DeviceTypeEPNS_13HostAllocatorEh"));
    static auto *ours = new PinnedAllocator; /* never destroyed, like the other one */
    try {
        at::HostAllocator *before = get && set ? get(c10::kCUDA) : nullptr;
        if (!get || !set) {
            std::snprintf(text, size, "libtorch_cpu has no at::setHostAllocator()");
            return 1;
        }
        if (before != ours) {
            ours->previous = before;
            set(c10::kCUDA, ours, 255);
        }
        return 0;
    } catch (const std::exception &error) {
        std::snprintf(text, size, "%s", error.what());
        return 1;
    }
}

#endif
