/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory, streams, limits and statistics. */
#include "allocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/CallOnce.h>

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>

namespace tarn_torch
{

Allocator &the_allocator()
{
    static Allocator *one = new Allocator; /* never destroyed */
    return *one;
}

void raise(tarn_status status, const char *what)
{
    /* PyTorch reports a lasting error in its own words and by its own type */
    if (status == TARN_ERROR_DEVICE_LOST) {
        std::string why = tarn_last_error();
        cudaError_t error = cudaStreamQuery(c10::cuda::getCurrentCUDAStream());
        if (error != cudaSuccess && error != cudaErrorNotReady)
            C10_CUDA_CHECK(error);
        TORCH_CHECK(false, "tarn: ", what, ": ", why, " (", tarn_status_name(status), ")");
    }
    TORCH_CHECK(false, "tarn: ", what, ": ", tarn_last_error(), " (", tarn_status_name(status),
                ")");
}

/* ---- Streams ----
 *
 * PyTorch never destroys its own streams, so each is adopted once, and tarn may record on it
 * whenever memory is to become free. A stream of the user (torch.cuda.ExternalStream) may be
 * destroyed at any time, so tarn asks the driver which stream it is each time that it is passed. */

namespace
{
struct Adopted {
    cudaStream_t native;
    DeviceIndex device;
    tarn_stream stream;
};

struct AdoptedStreams {
    std::mutex lock;
    std::unordered_map<cudaStream_t, Adopted> all;
};
} // namespace

static AdoptedStreams &adopted_streams()
{
    static auto *one = new AdoptedStreams;
    return *one;
}

/* The calling thread's streams, indexed by a part of the pointer. */
static thread_local Adopted recent[64];

static Adopted &recent_of(cudaStream_t native)
{
    return recent[(reinterpret_cast<uintptr_t>(native) >> 4) % (sizeof recent / sizeof *recent)];
}

/* Finds the value of a stream. False if it was not adopted and `adopts` is not set. */
static bool adopted(DeviceIndex device, cudaStream_t native, bool adopts, tarn_stream *stream)
{
    Adopted &mine = recent_of(native);
    if (C10_UNLIKELY(mine.native != native || mine.device != device)) {
        AdoptedStreams &streams = adopted_streams();
        std::lock_guard<std::mutex> guard(streams.lock);
        auto found = streams.all.find(native);
        if (found == streams.all.end()) {
            Adopted entered = {native, device, 0};
            if (!adopts)
                return false;
            check(tarn_stream_adopt(device, native, &entered.stream), "a PyTorch stream");
            found = streams.all.emplace(native, entered).first;
        }
        if (found->second.device != device)
            return false;
        mine = found->second;
    }
    *stream = mine.stream;
    return true;
}

tarn_stream stream_of(DeviceIndex device, cudaStream_t native)
{
    tarn_stream stream = 0;
    if (!native || !adopted(device, native, false, &stream))
        check(tarn_stream_find(device, native, &stream), "the stream of an allocation");
    return stream;
}

tarn_stream stream_of(const CUDAStream &given)
{
    cudaStream_t native = given.stream();
    DeviceIndex device = given.device_index();
    tarn_stream stream = 0;
    bool is_pytorchs =
        native && given.id() != static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(native));
    if (is_pytorchs && adopted(device, native, true, &stream))
        return stream;
    return stream_of(device, native);
}

Device &Allocator::device_at(DeviceIndex index)
{
    TORCH_CHECK(index >= 0 && static_cast<size_t>(index) < devices.size(),
                "Invalid device argument ", static_cast<int>(index), ": did you call init?");
    return *devices[static_cast<size_t>(index)];
}

/* The same, called before the device's memory is first used: from then on tensors can be sent to
 * other processes, unless TARN_TORCH_SEND=0. Sending memory that tarn allocated before that fails
 * with an error that says so. */
Device &Allocator::ready_at(DeviceIndex index)
{
    Device &device = device_at(index);
    if (C10_UNLIKELY(!device.ready.load(std::memory_order_acquire)))
        std::call_once(device.once, [&] {
            const char *send = std::getenv("TARN_TORCH_SEND");
            tarn_device_properties properties = {};
            properties.size = sizeof properties;
            device.exportable = !(send && std::strcmp(send, "0") == 0) &&
                                tarn_device_properties_get(index, &properties) == TARN_OK &&
                                properties.exportable;
            if (device.exportable)
                (void)tarn_export_enable(index);
            device.ready.store(true, std::memory_order_release);
        });
    return device;
}

static bool forked;

bool is_child()
{
    return forked;
}

void Allocator::init(int device_count)
{
    static const int watches = pthread_atfork(nullptr, nullptr, [] { forked = true; });
    TORCH_CHECK(watches == 0, "tarn: forks cannot be noticed: ", std::strerror(watches));
    std::lock_guard<std::mutex> guard(lock);
    for (int i = static_cast<int>(devices.size()); i < device_count; i++)
        devices.push_back(std::make_unique<Device>());
    const char *uncached = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    if (uncached && std::strcmp(uncached, "1") == 0)
        enable(false);
    is_initialized = true;
}

void Allocator::enable(bool value)
{
    check(tarn_caching_set(value, nullptr), "caching_allocator_enable");
    caches = value;
}

bool Allocator::initialized()
{
    return is_initialized;
}

/* ---- Allocation and free ---- */

tarn_status Allocator::request(DeviceIndex device, cudaStream_t native, tarn_stream stream,
                               size_t size, void **pointer, MempoolId_t *id)
{
    *id = {0, 0};
    if (ready_at(device).open.load(std::memory_order_acquire))
        if (tarn_pool *pool = route(device, native, stream, id))
            return tarn_pool_alloc(pool, stream, size, pointer);
    return tarn_alloc_on(stream, size, pointer);
}

/* Makes other parts of PyTorch give back memory that they keep, such as blocks that were sent to
 * other processes. True if any did. */
static bool others_free()
{
    bool freed = false;
    for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
        freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    return freed;
}

void *Allocator::take(DeviceIndex device, cudaStream_t native, tarn_stream stream, size_t size)
{
    void *pointer = nullptr;
    MempoolId_t id;
    if (size >= TARN_MAX_SIZE)
        out_of_memory(device, size);
    tarn_status status = request(device, native, stream, size, &pointer, &id);
    if (status == TARN_ERROR_OUT_OF_MEMORY && others_free())
        status = request(device, native, stream, size, &pointer, &id);
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        out_of_memory(device, size);
    check(status, "an allocation");

    if (history.on.load(std::memory_order_relaxed))
        history.allocated(device, pointer, size, native, id);
    if (c10::memoryProfilingEnabled()) {
        tarn_stats stats = {};
        stats.size = sizeof stats;
        (void)tarn_device_stats_get(device, &stats);
        size_t usable = size;
        (void)tarn_usable_size_get(pointer, &usable);
        c10::reportMemoryUsageToProfiler(pointer, static_cast<int64_t>(usable),
                                         static_cast<size_t>(stats.allocated_bytes[0].current),
                                         static_cast<size_t>(stats.reserved_bytes[0].current),
                                         {c10::kCUDA, device});
    }
    if (const c10::impl::PyInterpreter *trace = c10::impl::GPUTrace::get_trace();
        C10_UNLIKELY(trace != nullptr))
        (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
    return pointer;
}

void Allocator::give(void *pointer)
{
    if (!pointer || is_child())
        return;
    bool profiles = c10::memoryProfilingEnabled();
    if (history.on.load(std::memory_order_relaxed) || profiles) {
        tarn_block_info info = {};
        info.size = sizeof info;
        if (tarn_pointer_info_get(pointer, &info) == TARN_OK) {
            void *native = nullptr;
            auto device = static_cast<DeviceIndex>(info.device);
            (void)tarn_stream_native_get(info.stream, &native);
            history.freed(device, pointer, info.requested, static_cast<cudaStream_t>(native),
                          id_of(info.device, info.pool));
            if (profiles) {
                tarn_stats stats = {};
                stats.size = sizeof stats;
                (void)tarn_device_stats_get(device, &stats);
                auto bytes = static_cast<int64_t>(info.usable_size);
                c10::reportMemoryUsageToProfiler(
                    pointer, -bytes, static_cast<size_t>(stats.allocated_bytes[0].current - bytes),
                    static_cast<size_t>(stats.reserved_bytes[0].current), {c10::kCUDA, device});
            }
        }
    }
    if (const c10::impl::PyInterpreter *trace = c10::impl::GPUTrace::get_trace();
        C10_UNLIKELY(trace != nullptr))
        (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
    if (C10_UNLIKELY(any_offered()))
        withdraw(pointer);
    if (C10_UNLIKELY(any_awaited()))
        tell_of_free(pointer);
    tarn_status status = tarn_free(pointer);
    if (status == TARN_ERROR_INVALID_POINTER && previous) {
        previous->raw_delete(pointer);
        return;
    }
    check(status, "a free");
}

/* The deleter of tensors. It must not throw, and at exit the driver may be gone. */
void delete_block(void *pointer)
{
    try {
        the_allocator().give(pointer);
    } catch (const c10::Error &error) {
        TORCH_WARN_ONCE(error.what_without_backtrace());
    } catch (const std::exception &error) {
        TORCH_WARN_ONCE(error.what());
    }
}

c10::DeleterFnPtr Allocator::raw_deleter() const
{
    return &delete_block;
}

DataPtr Allocator::allocate(size_t size)
{
    CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    DeviceIndex device = stream.device_index();
    void *pointer = size ? take(device, stream, stream_of(stream), size) : nullptr;
    return {pointer, pointer, &delete_block, c10::Device(c10::kCUDA, device)};
}

void *Allocator::raw_alloc(size_t size)
{
    CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    return size ? take(stream.device_index(), stream, stream_of(stream), size) : nullptr;
}

void *Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream)
{
    DeviceIndex device = c10::cuda::current_device();
    return size ? take(device, stream, stream_of(device, stream), size) : nullptr;
}

void Allocator::raw_delete(void *pointer)
{
    give(pointer);
}

void Allocator::recordStream(const DataPtr &pointer, CUDAStream stream)
{
    if (previous && pointer.get_deleter() == previous->raw_deleter())
        return previous->recordStream(pointer, stream);
    /* Memory of other processes has another deleter, and the sharing processes order its use
     * themselves. */
    if (pointer.get() && pointer.get_deleter() == &delete_block)
        check(tarn_record_stream(pointer.get(), stream_of(stream)), "record_stream");
}

void Allocator::copy_data(void *to, const void *from, size_t count) const
{
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice,
                                   c10::cuda::getCurrentCUDAStream()));
}

cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device,
                                   size_t count, cudaStream_t stream, bool p2p_enabled)
{
    /* Memory that is mapped in pieces is copied between devices by the call for peers, unless they
     * can access each other's memory. */
    if (p2p_enabled || to_device == from_device)
        return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream);
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
}

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex peer)
{
    tarn_status status = tarn_device_peer_enable(device, peer);
    if (status != TARN_ERROR_NOT_SUPPORTED)
        check(status, "peer access");
}

/* ---- Out of memory ---- */

static std::string bytes(size_t count)
{
    std::ostringstream text;
    text.precision(2);
    text.setf(std::ios::fixed);
    if (count <= 1024)
        text << count << " bytes";
    else if (count <= 1048576)
        text << static_cast<double>(count) / 1024.0 << " KiB";
    else if (count <= 1073741824ull)
        text << static_cast<double>(count) / 1048576.0 << " MiB";
    else
        text << static_cast<double>(count) / 1073741824.0 << " GiB";
    return text.str();
}

void Allocator::out_of_memory(DeviceIndex device, size_t size)
{
    /* A size that became negative. The text is PyTorch's. */
    if (size >= size_t{1} << 60)
        TORCH_CHECK_WITH(OutOfMemoryError, false,
                         "CUDA out of memory. Tried to allocate more than 1EB memory.");
    std::string why =
        size >= TARN_MAX_SIZE ? "The request is larger than any device" : tarn_last_error();
    size_t free_bytes = 0, total = 0, limit = SIZE_MAX;
    tarn_stats stats = {};
    stats.size = sizeof stats;
    (void)tarn_device_memory_get(device, &free_bytes, &total);
    (void)tarn_device_limit_get(device, &limit);
    (void)tarn_device_stats_get(device, &stats);
    auto allocated = static_cast<size_t>(stats.allocated_bytes[0].current);
    auto reserved = static_cast<size_t>(stats.reserved_bytes[0].current);

    history.event(Action::OOM, device, free_bytes, size, nullptr, {0, 0}, RecordContext::NEVER);
    std::vector<OutOfMemoryObserver> observers;
    {
        std::lock_guard<std::mutex> guard(lock);
        observers = out_of_memory_observers;
    }
    for (const auto &observer : observers)
        observer(device, size, limit < total ? limit : total, free_bytes);
    if (size > std::min(limit, total))
        reject(device, size, allocated, total);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated, reserved,
                                     {c10::kCUDA, device});
    size_t in_pools = allocated_in_pools(device);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes(size),
                     ". GPU ", static_cast<int>(device), " has a total capacity of ", bytes(total),
                     " of which ", bytes(free_bytes), " is free. All processes together have ",
                     bytes(total - std::min(total, free_bytes)), " memory in use. ",
                     limit < total ? bytes(limit) + " allowed; " : "", "Of the allocated memory ",
                     bytes(allocated), " is allocated by PyTorch, ",
                     in_pools ? "with " + bytes(in_pools) +
                                    " allocated in private pools (e.g., CUDA Graphs), "
                              : "",
                     "and ", bytes(reserved > allocated ? reserved - allocated : 0),
                     " is reserved by PyTorch but unallocated. tarn: ", why);
}

/* Calls the observers of rejected requests. tarn tries nothing for a request that is larger than
 * the device or its limit. PyTorch's own allocator rejects every request that would fail, if
 * throw_on_cudamalloc_oom is set. */
void Allocator::reject(DeviceIndex device, size_t size, size_t allocated, size_t total)
{
    device_at(device).rejects.fetch_add(1, std::memory_order_relaxed);
#if TARN_TORCH_VERSION >= 2012
    std::vector<OomRejectionObserver> observers;
    {
        std::lock_guard<std::mutex> guard(lock);
        observers = rejection_observers;
    }
    for (const auto &observer : observers)
        observer(device, size, allocated, total);
#else
    (void)size, (void)allocated, (void)total;
#endif
}

void Allocator::attachOutOfMemoryObserver(OutOfMemoryObserver observer)
{
    std::lock_guard<std::mutex> guard(lock);
    out_of_memory_observers.push_back(std::move(observer));
}

#if TARN_TORCH_VERSION >= 2012
void Allocator::attachOomRejectionObserver(OomRejectionObserver observer)
{
    std::lock_guard<std::mutex> guard(lock);
    rejection_observers.push_back(std::move(observer));
}
#endif

/* ---- Limits and statistics ---- */

static size_t memory_of(DeviceIndex device)
{
    tarn_device_properties properties = {};
    properties.size = sizeof properties;
    check(tarn_device_properties_get(device, &properties), "the device's memory");
    return properties.memory;
}

double Allocator::getMemoryFraction(DeviceIndex device)
{
    size_t limit = 0;
    check(tarn_device_limit_get(device, &limit), "the limit");
    size_t total = memory_of(device);
    return limit >= total ? 1.0 : static_cast<double>(limit) / static_cast<double>(total);
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex device)
{
    TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction,
                ". Please set within [0, 1].");
    size_t limit = fraction < 1
                       ? static_cast<size_t>(fraction * static_cast<double>(memory_of(device)))
                       : SIZE_MAX;
    check(tarn_device_limit_set(device, limit), "the limit");
}

#if TARN_TORCH_VERSION >= 2010
std::pair<size_t, size_t> Allocator::getMemoryInfo(DeviceIndex device)
{
    size_t free_bytes = 0, total = 0;
    check(tarn_device_memory_get(device, &free_bytes, &total), "the device's memory");
    return {free_bytes, total};
}
#endif

template <typename Stat> static void copy(Stat &to, const tarn_stat &from)
{
    to.current = from.current;
    to.peak = from.peak;
    to.allocated = from.allocated;
    to.freed = from.freed;
}

template <typename Array> static void copy(Array &to, const tarn_stat *from)
{
    for (size_t i = 0; i < to.size(); i++)
        copy(to[i], from[i]);
}

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(DeviceIndex device)
{
    c10::CachingDeviceAllocator::DeviceStats result;
    tarn_stats stats = {};
    stats.size = sizeof stats;
    (void)device_at(device);
    check(tarn_device_stats_get(device, &stats), "the statistics");
#define TARN_TORCH_COPY(name) copy(result.name, stats.name);
    TARN_STATS_CLASS_LIST(TARN_TORCH_COPY)
    TARN_STATS_SINGLE_LIST(TARN_TORCH_COPY)
#undef TARN_TORCH_COPY
    /* Requests that failed were tried again too */
    result.num_alloc_retries = stats.num_alloc_retries + stats.num_ooms;
    result.num_ooms = stats.num_ooms;
    result.num_sync_all_streams = stats.num_sync_all_streams + device_at(device).trims;
    result.num_device_alloc = stats.num_device_alloc;
    result.num_device_free = stats.num_device_free;
    result.max_split_size = stats.max_split_size;
#if TARN_TORCH_VERSION >= 2012
    result.num_oom_rejections = device_at(device).rejects;
#endif
#if TARN_TORCH_VERSION >= 2013
    std::lock_guard<std::mutex> guard(device_at(device).lock);
    for (const auto &[id, pool] : device_at(device).pools)
        if (pool.pool && tarn_pool_stats_get(pool.pool, &stats) == TARN_OK)
            copy(result.reserved_bytes_by_private_pools[id], stats.reserved_bytes);
#endif
    return result;
}

void Allocator::resetAccumulatedStats(DeviceIndex device)
{
    device_at(device).rejects = 0;
    check(tarn_device_stats_reset(device, TARN_STATS_ACCUMULATED), "the statistics");
}

void Allocator::resetPeakStats(DeviceIndex device)
{
    (void)device_at(device);
    check(tarn_device_stats_reset(device, TARN_STATS_PEAK), "the statistics");
}

#if TARN_TORCH_VERSION >= 2010
std::vector<StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex device)
{
    (void)device_at(device);
    return {}; /* tarn's memory grows by pieces of physical memory, not by segments */
}
#endif

#if TARN_TORCH_VERSION >= 2013
DataPtr Allocator::allocateWithAddress(size_t, void *)
{
    TORCH_CHECK(false,
                "tarn: allocateWithAddress(): tarn chooses the addresses of its blocks itself");
}
#endif

void *Allocator::getBaseAllocation(void *pointer, size_t *size)
{
    tarn_mapping range = {};
    tarn_status status = tarn_mapping_get(pointer, &range);
    if (status == TARN_ERROR_INVALID_POINTER && previous)
        return previous->getBaseAllocation(pointer, size);
    check(status, "the base of an allocation");
    if (size)
        *size = range.bytes;
    return range.address;
}

} // namespace tarn_torch
