/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's class of CUDA allocators on tarn (c10/cuda/CUDACachingAllocator.h), for PyTorch 2.6 to
 * 2.15. TARN_TORCH_VERSION is the release: 2011 is 2.11.
 *
 * One object serves all devices. It is never destroyed, because tensors are freed after static
 * destructors have run. Memory, statistics, pools and captures are tarn's. This class has what only
 * PyTorch has: the filters that route to a pool, the ids of pools, the history with Python's
 * stacks, and tensors for other processes. Each part has a file: allocator.cc, pools.cc,
 * history.cc, ipc.cc, frees.cc, pinned.cc, install.cc.
 *
 * Locks: none is taken under another. Device::lock protects the filters and pools of a device,
 * History::lock records and contexts, Awaited::lock the blocks whose frees Python awaits,
 * AdoptedStreams::lock streams, Exports::lock and Imports::lock the blocks that go to and come from
 * other processes. tarn may be called with one of the last three held. With Device::lock held it is
 * called only to evaluate a filter, to create a pool, or to read a pool's statistics. */
#ifndef TARN_TORCH_ALLOCATOR_H
#define TARN_TORCH_ALLOCATOR_H

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tarn/tarn.h>

namespace tarn_torch
{

using namespace c10::cuda::CUDACachingAllocator;
using c10::DataPtr;
using c10::DeviceIndex;
using c10::cuda::CUDAStream;
#if TARN_TORCH_VERSION >= 2011
using c10::MempoolId_t;
using c10::CachingDeviceAllocator::AnnotationEntry;
using c10::CachingDeviceAllocator::BlockInfo;
using SegmentAllocator = std::shared_ptr<CUDAAllocator>; /* of a MemPool */
#else
using c10::cuda::MempoolId_t;
using SegmentAllocator = CUDAAllocator *;
#endif
using Action = TraceEntry::Action;

/* Throws the failure of a call as a PyTorch exception. */
[[noreturn]] void raise(tarn_status status, const char *what);
inline void check(tarn_status status, const char *what)
{
    if (status != TARN_OK)
        raise(status, what);
}

struct IdHash {
    size_t operator()(const MempoolId_t &id) const
    {
        return id.first * 0x9e3779b97f4a7c15ull ^ id.second;
    }
};

/* A pool that PyTorch names. `uses` counts PyTorch's references; while there are any, this class
 * has one reference to tarn's pool. */
struct Pool {
    tarn_pool *pool = nullptr; /* created at its first use; until then PyTorch may set options */
    int uses = 0;
    bool for_graphs = false; /* nobody created it: it is a capture's, or from graph_pool_handle() */
    bool held = false;       /* graphs may use it: its memory stays mapped */
    /* a filter of it has ended, so graphs may exist, unless all captures failed */
    bool has_ended = false;
    /* the capturing stream, if its last filter ended within the capture, which the next filter
     * continues */
    cudaStream_t capturing = nullptr;
    bool use_on_oom = false, no_split = false, registrable = false;
    SegmentAllocator segments{}; /* the source of its segments; null: tarn */
};

/* One beginAllocateToPool() that has not ended. */
struct Filter {
    MempoolId_t id;
    std::function<bool(cudaStream_t)> matches;
    /* the current stream at that time; of a graph, the stream of its capture */
    cudaStream_t begun_on = nullptr;
    std::weak_ptr<char> thread{}; /* the thread that began it; empty after the thread's end */
    /* PyTorch begins a capture next, and wants only what that allocates */
    bool of_graph = false;
    /* PyTorch said so: the capture has begun before the thread's next call */
    bool is_told = false;
    /* the stream of an accepted capture, which tarn knows; null: none */
    cudaStream_t seen = nullptr;
    /* the graph's capture has failed: do not call `matches` any more */
    bool over = false;
};

/* A capture that tarn knows. */
struct Capture {
    cudaStream_t native;
    tarn_stream stream;
};

struct Device {
    std::mutex lock;
    std::vector<Filter> filters; /* the newest last */
    std::vector<Capture> captures;
    std::unordered_map<MempoolId_t, Pool, IdHash> pools;
    std::atomic<size_t> open{0}; /* filters and captures; read without the lock */
    /* Released, but work of their graphs may still run: end_pools(). */
    std::vector<Pool> ended;
    std::atomic<int> ended_count{0}; /* read without the lock */
    std::atomic<int64_t> trims{0};   /* calls of emptyCache() for all */
    std::atomic<int64_t> rejects{0}; /* requests that are larger than the device or its limit */
    std::once_flag once;             /* for prepare() */
    std::atomic<bool> ready{false};
    bool exportable = false; /* memory that is created can be sent to other processes */
};

/* The two ids of one pool: `theirs` is PyTorch's, `ours` is tarn's. */
struct PoolNumber {
    int device;
    MempoolId_t theirs;
    tarn_pool_id ours;
};

/* What _record_memory_history() records. */
class History
{
  public:
    std::atomic<bool> on{false}; /* events are recorded, or a tracker is attached */
    std::atomic<RecordContext> when{RecordContext::NEVER};

    void configure(bool enabled, CreateContextFn make, size_t entries, RecordContext when,
                   bool clear, const std::vector<std::string> &skip);
    bool enabled();
    void attach(AllocatorTraceTracker tracker);

    void allocated(DeviceIndex device, void *pointer, size_t size, cudaStream_t stream,
                   MempoolId_t pool);
    void freed(DeviceIndex device, void *pointer, size_t size, cudaStream_t stream,
               MempoolId_t pool);
    void event(Action action, DeviceIndex device, size_t address, size_t size, void *stream,
               MempoolId_t pool, RecordContext level);

    std::shared_ptr<c10::GatheredContext> context_of(void *pointer);
    std::vector<std::vector<TraceEntry>> traces(MempoolId_t pool, int devices);
    void annotate(const std::vector<std::pair<std::string, std::string>> &pairs);
    std::vector<AnnotationEntry> annotations();
    std::string metadata();
    void set_metadata(const std::string &text);
    void push_compile(const std::string &text);
    void pop_compile();

  private:
    std::mutex lock;
    bool recording = false;
    CreateContextFn make = nullptr;
    size_t room = 1;
    std::vector<std::string> skipped;
    std::vector<std::deque<TraceEntry>> rings; /* by device */
    std::deque<AnnotationEntry> notes;         /* at most as many as a ring has */
    std::vector<AllocatorTraceTracker> trackers;
    std::unordered_map<void *, std::shared_ptr<c10::GatheredContext>>
        contexts; /* contexts of live blocks, by address */
};

class Allocator final : public CUDAAllocator
{
  public:
    /* c10::Allocator, c10::DeviceAllocator */
    DataPtr allocate(size_t size) override;
    c10::DeleterFnPtr raw_deleter() const override;
    void copy_data(void *to, const void *from, size_t count) const override;
    bool initialized() override;
#if TARN_TORCH_VERSION >= 2008
    void emptyCache(MempoolId_t id) override;
#else
    void emptyCache() override
    {
        emptyCache({0, 0});
    }
    void emptyCache(MempoolId_t id);
#endif
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
    void resetAccumulatedStats(DeviceIndex device) override;
    void resetPeakStats(DeviceIndex device) override;
#if TARN_TORCH_VERSION >= 2010
    std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override;
    std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
    void setNoSplit(DeviceIndex device, MempoolId_t id) override;
    void setUserMetadata(const std::string &text) override;
    std::string getUserMetadata() override;
#endif

    /* CUDAAllocator */
    void *raw_alloc(size_t size) override;
    void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
    void raw_delete(void *pointer) override;
    void init(int device_count) override;
    double getMemoryFraction(DeviceIndex device) override;
    void setMemoryFraction(double fraction, DeviceIndex device) override;
    void enable(bool value) override;
    bool isEnabled() const override
    {
        return caches;
    }
    void cacheInfo(DeviceIndex device, size_t *largest) override;
    void *getBaseAllocation(void *pointer, size_t *size) override;
    using CUDAAllocator::recordStream;
    void recordStream(const DataPtr &pointer, CUDAStream stream) override;
#if TARN_TORCH_VERSION >= 2011
    SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override;
    void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override;
    void recordHistory(bool enabled, CreateContextFn make, size_t entries, RecordContext when,
                       bool clear, const std::vector<std::string> &skip) override;
#else
#if TARN_TORCH_VERSION >= 2008
    SnapshotInfo snapshot(MempoolId_t id) override
    {
        return snapshot(id, true);
    }
    void setUseOnOOM(DeviceIndex device, MempoolId_t id) override
    {
        setUseOnOOM(device, id, true);
    }
    void recordHistory(bool enabled, CreateContextFn make, size_t entries, RecordContext when,
                       bool clear) override
    {
        recordHistory(enabled, make, entries, when, clear, {});
    }
#else
    SnapshotInfo snapshot() override
    {
        return snapshot({0, 0}, true);
    }
    void recordHistory(bool enabled, CreateContextFn make, size_t entries,
                       RecordContext when) override
    {
        recordHistory(enabled, make, entries, when, false, {});
    }
#endif
    SnapshotInfo snapshot(MempoolId_t id, bool include_traces);
    void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom);
    void recordHistory(bool enabled, CreateContextFn make, size_t entries, RecordContext when,
                       bool clear, const std::vector<std::string> &skip);
#endif
#if TARN_TORCH_VERSION >= 2012
    std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *pointer) override;
    void attachOomRejectionObserver(OomRejectionObserver observer) override;
#endif
#if TARN_TORCH_VERSION >= 2013
    DataPtr allocateWithAddress(size_t size, void *address) override;
#endif
#if TARN_TORCH_VERSION >= 2014
    bool supportsUserMetadata() override
    {
        return true;
    }
    void annotateMemory(const void *pointer, const std::string &metadata) override;
#endif
    void beginAllocateToPool(DeviceIndex device, MempoolId_t id,
                             std::function<bool(cudaStream_t)> filter) override;
    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
    void releasePool(DeviceIndex device, MempoolId_t id) override;
    int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
#if TARN_TORCH_VERSION >= 2008
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id, SegmentAllocator segments) override;
#else
    void ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t id) override
    {
        createOrIncrefPool(device, id, nullptr);
    }
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id, SegmentAllocator segments);
#endif
    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override;
    ShareableHandle shareIpcHandle(void *pointer) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
    bool isHistoryEnabled() override;
    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &pairs) override;
#if TARN_TORCH_VERSION >= 2008
    void pushCompileContext(std::string &text) override;
    void popCompileContext() override;
#endif
    void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override;
    void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;
    void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;
    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device,
                            size_t count, cudaStream_t stream, bool p2p_enabled) override;
    std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
    CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                           std::shared_ptr<AllocatorState> state) override;
    std::string name() override
    {
        return "tarn";
    }

    /* Finds the id that tarn gave to a pool of PyTorch. False if PyTorch has no such pool, or if
     * nothing was allocated from it yet. */
    bool find_pool(DeviceIndex device, MempoolId_t id, tarn_pool_id *found);

    /* Makes the memory of a pool registrable by communication libraries. Returns NULL, or why
     * not. */
    const char *make_registrable(DeviceIndex device, MempoolId_t id);

    /* Ends what failed captures have left. */
    void settle();

    /* Notes that this thread allocates to the pool for a capture. */
    void expect_capture(MempoolId_t id);

    /* The allocator that PyTorch had before. Memory that it allocated is freed by it. */
    CUDAAllocator *previous = nullptr;

  private:
    void *take(DeviceIndex device, cudaStream_t native, tarn_stream stream, size_t size);
    void give(void *pointer);
    [[noreturn]] void out_of_memory(DeviceIndex device, size_t size);
    void reject(DeviceIndex device, size_t size, size_t allocated, size_t total);
    size_t allocated_in_pools(DeviceIndex device);
    tarn_status request(DeviceIndex device, cudaStream_t native, tarn_stream stream, size_t size,
                        void **pointer, MempoolId_t *id);
    tarn_pool *route(DeviceIndex device, cudaStream_t native, tarn_stream stream, MempoolId_t *id);
    Pool &pool_locked(Device &device, MempoolId_t id, const char *what);
    MempoolId_t id_of(int device, tarn_pool_id ours);
    std::vector<PoolNumber> pool_numbers();
    tarn_pool *made(DeviceIndex device, MempoolId_t id, const char *what);
    Device &device_at(DeviceIndex index);
    Device &ready_at(DeviceIndex index);
    void observe();
    bool end_pools(DeviceIndex index);
    bool settle(Device &device);
    bool captures(Device &device);
    Pool release_locked(Device &device, MempoolId_t id);
    static bool reclaim(int device, size_t bytes, void *user);
    friend void delete_block(void *pointer);

    std::mutex lock; /* protects the fields below */
    std::vector<OutOfMemoryObserver> out_of_memory_observers;
#if TARN_TORCH_VERSION >= 2012
    std::vector<OomRejectionObserver> rejection_observers;
#endif
    bool observes = false;

    std::vector<std::unique_ptr<Device>> devices; /* created by init(), never changed */
    std::atomic<bool> is_initialized{false}, caches{true};
    std::once_flag reclaims; /* for the registration of reclaim(), which tarn calls before growth */
    History history;
};

/* PyTorch's id of one of tarn's pools. */
MempoolId_t id_in(const std::vector<PoolNumber> &numbers, int device, tarn_pool_id ours);

/* The one object. */
Allocator &the_allocator();
void delete_block(void *pointer);

/* True in a child of a fork after init(): it has no device, and its memory is not its own. */
bool is_child();

/* True if any block is offered to other processes. */
bool any_offered();
/* Ends the offer of a block that is being freed. */
void withdraw(void *pointer);

/* Closes what other processes have sent and PyTorch has let go of during a capture. */
void end_imports();

/* any_awaited(): true if Python awaits the free of a block. tell_of_free(): tells Python just
 * before the free of a block that it awaits. */
bool any_awaited();
void tell_of_free(void *block);

/* tarn's stream of a PyTorch stream. */
tarn_stream stream_of(const CUDAStream &stream);
tarn_stream stream_of(DeviceIndex device, cudaStream_t native);

} // namespace tarn_torch

#endif
