/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's pools and captures. A pool is a pool of tarn. PyTorch's filters, the newest first,
 * decide which pool an allocation is for.
 *
 * PyTorch 2.11 makes the same call for a capture and for a scope. Which one it is shows at the
 * first allocation that a filter accepts: if its stream captures, tarn is told, and the pool's
 * memory is held, so that no graph loses what its launches use. A pool that nobody has created is
 * for graphs, and is held from the beginning. The graph trees of torch.compile need this: they
 * allocate the inputs of a graph before its capture, free them when it ends, and write to them at
 * every launch, although the capture itself may allocate nothing.
 *
 * If a capture fails, PyTorch's CUDAGraph::capture_end() throws before it reports here that the
 * capture has ended, and never releases the pool (aten/src/ATen/cuda/CUDAGraph.cpp, 2.11). Its
 * filter then has a pointer to a graph that may be gone. settle() ends what is left.
 *
 * PyTorch releases a graph's pool when it destroys the graph, whose last launch may still run.
 * Nothing reports the end of the launch, so the memory is kept until it is wanted: by
 * empty_cache(), or when the device or its limit has no room. Then the device is waited for. */
#include "allocator.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <unordered_set>

namespace tarn_torch
{

static bool number_of(tarn_pool *pool, tarn_pool_id *number)
{
    tarn_pool_info info = {};
    info.size = sizeof info;
    if (tarn_pool_info_get(pool, &info) != TARN_OK)
        return false;
    *number = info.id;
    return true;
}

Pool &Allocator::pool_locked(Device &device, MempoolId_t id, const char *what)
{
    auto found = device.pools.find(id);
    TORCH_CHECK(found != device.pools.end(), "tarn: ", what, ": there is no pool (", id.first, ", ",
                id.second, ")");
    return found->second;
}

/* All pools that tarn has. */
std::vector<PoolNumber> Allocator::pool_numbers()
{
    std::vector<PoolNumber> numbers;
    for (size_t i = 0; i < devices.size(); i++) {
        std::lock_guard<std::mutex> guard(devices[i]->lock);
        for (const auto &[theirs, pool] : devices[i]->pools) {
            tarn_pool_id ours;
            if (pool.pool && number_of(pool.pool, &ours))
                numbers.push_back({static_cast<int>(i), theirs, ours});
        }
    }
    return numbers;
}

MempoolId_t id_in(const std::vector<PoolNumber> &numbers, int device, tarn_pool_id ours)
{
    for (const PoolNumber &number : numbers)
        if (number.device == device && number.ours.first == ours.first &&
            number.ours.second == ours.second)
            return number.theirs;
    return {ours.first, ours.second}; /* the default pool, or one that PyTorch does not know */
}

MempoolId_t Allocator::id_of(int device, tarn_pool_id ours)
{
    return id_in(pool_numbers(), device, ours);
}

/* Bytes of live blocks in pools. */
size_t Allocator::allocated_in_pools(DeviceIndex index)
{
    size_t sum = 0;
    std::lock_guard<std::mutex> guard(device_at(index).lock);
    auto add = [&](const Pool &pool) {
        tarn_stats stats = {};
        stats.size = sizeof stats;
        if (pool.pool && tarn_pool_stats_get(pool.pool, &stats) == TARN_OK)
            sum += static_cast<size_t>(stats.allocated_bytes[0].current);
    };
    for (const auto &pool : device_at(index).pools)
        add(pool.second);
    for (const Pool &pool : device_at(index).ended)
        add(pool);
    return sum;
}

/* ---- Segments from a user's allocator ---- */

static void *segment_alloc(size_t size, int device, void *, void *user)
{
    try {
        c10::DeviceGuard guard({c10::kCUDA, static_cast<DeviceIndex>(device)});
        return (*static_cast<SegmentAllocator *>(user))->raw_alloc(size);
    } catch (const std::exception &) {
        /* as in PyTorch's own allocator, it is called once more after other memory was given
         * back */
        return nullptr;
    }
}

static void segment_free(void *pointer, size_t, int device, void *, void *user)
{
    try {
        c10::DeviceGuard guard({c10::kCUDA, static_cast<DeviceIndex>(device)});
        (*static_cast<SegmentAllocator *>(user))->raw_delete(pointer);
    } catch (const std::exception &error) {
        TORCH_WARN_ONCE(error.what());
    }
}

static void segments_gone(void *user)
{
    delete static_cast<SegmentAllocator *>(user);
}

/* ---- Pools ---- */

/* tarn's pool for a PyTorch id; created now if needed. */
tarn_pool *Allocator::made(DeviceIndex index, MempoolId_t id, const char *what)
{
    Device &device = ready_at(index);
    std::lock_guard<std::mutex> guard(device.lock);
    Pool &pool = pool_locked(device, id, what);
    if (pool.pool)
        return pool.pool;
#if TARN_TORCH_VERSION < 2008
    /* A MemPool does not say at its creation where its segments come from. At its first use it is
     * the thread's active one. */
    c10::cuda::MemPool *active = c10::cuda::MemPoolContext::getActiveMemPool();
    if (active && active->id() == id)
        pool.segments = active->allocator();
#endif
    tarn_pool_options options = {};
    options.size = sizeof options;
    options.device = index;
    options.use_on_oom = pool.use_on_oom;
    options.no_split = pool.no_split;
    options.exportable = device.exportable && !pool.no_split && !pool.segments;
    options.registrable = pool.registrable;
    tarn_pool_allocator segments = {};
    if (pool.segments) {
        segments.size = sizeof segments;
        segments.alloc = segment_alloc;
        segments.free = segment_free;
        segments.gone = segments_gone;
        segments.user = new SegmentAllocator(pool.segments);
        options.allocator = &segments;
    }
    tarn_status status = tarn_pool_create(&options, &pool.pool);
    if (status != TARN_OK && segments.user)
        segments_gone(segments.user);
    check(status, what);
    if (pool.for_graphs) {
        check(tarn_pool_hold(pool.pool, nullptr), what);
        pool.held = true;
    }
    return pool.pool;
}

bool Allocator::find_pool(DeviceIndex index, MempoolId_t id, tarn_pool_id *found)
{
    if (index < 0 || static_cast<size_t>(index) >= devices.size())
        return false;
    std::lock_guard<std::mutex> guard(devices[static_cast<size_t>(index)]->lock);
    auto pool = devices[static_cast<size_t>(index)]->pools.find(id);
    return pool != devices[static_cast<size_t>(index)]->pools.end() && pool->second.pool &&
           number_of(pool->second.pool, found);
}

const char *Allocator::make_registrable(DeviceIndex index, MempoolId_t id)
{
    if (index < 0 || static_cast<size_t>(index) >= devices.size())
        return "there is no such device";
    std::lock_guard<std::mutex> guard(devices[static_cast<size_t>(index)]->lock);
    auto found = devices[static_cast<size_t>(index)]->pools.find(id);
    if (found == devices[static_cast<size_t>(index)]->pools.end())
        return "PyTorch has no such pool";
    Pool &pool = found->second;
    if (pool.use_on_oom || pool.no_split || pool.segments)
        return "a pool with use_on_oom, with no_split, or with an allocator of its own cannot be "
               "registered";
    if (pool.pool && !pool.registrable)
        return "the pool has memory already: say so before anything is allocated from it";
    pool.registrable = true;
    return nullptr;
}

void Allocator::createOrIncrefPool(DeviceIndex index, MempoolId_t id, SegmentAllocator segments)
{
    Device &device = device_at(index);
    std::lock_guard<std::mutex> guard(device.lock);
    Pool &pool = device.pools[id];
    if (pool.uses++ == 0)
        pool.segments = std::move(segments);
}

void Allocator::setUseOnOOM(DeviceIndex index, MempoolId_t id, bool use_on_oom)
{
    Device &device = device_at(index);
    std::lock_guard<std::mutex> guard(device.lock);
    Pool &pool = pool_locked(device, id, "use_on_oom");
    TORCH_CHECK(!pool.pool || pool.use_on_oom || !use_on_oom,
                "tarn: use_on_oom is set before the pool is first used");
    /* otherwise a MemPool is ending, which calls this before it releases the pool */
    if (!pool.pool)
        pool.use_on_oom = use_on_oom;
}

#if TARN_TORCH_VERSION >= 2010
void Allocator::setNoSplit(DeviceIndex index, MempoolId_t id)
{
    Device &device = device_at(index);
    std::lock_guard<std::mutex> guard(device.lock);
    Pool &pool = pool_locked(device, id, "no_split");
    TORCH_CHECK(!pool.pool || pool.no_split, "tarn: no_split is set before the pool is first used");
    pool.no_split = true;
}
#endif

int Allocator::getPoolUseCount(DeviceIndex index, MempoolId_t id)
{
    Device &device = device_at(index);
    (void)settle(device);
    std::lock_guard<std::mutex> guard(device.lock);
    auto found = device.pools.find(id);
    return found == device.pools.end() ? 0 : found->second.uses;
}

/* Drops one use of a pool. Returns the pool to release without the lock; an empty one if others use
 * it, or its graphs may still run. */
Pool Allocator::release_locked(Device &device, MempoolId_t id)
{
    Pool &pool = pool_locked(device, id, "the release of a pool");
    if (--pool.uses > 0)
        return {};
    Pool gone = std::move(pool);
    device.pools.erase(id);
    if (!gone.held || !gone.has_ended)
        return gone;
    device.ended.push_back(std::move(gone));
    device.ended_count.fetch_add(1, std::memory_order_release);
    return {};
}

static tarn_status release(const Pool &gone)
{
    if (gone.held)
        (void)tarn_pool_unhold(gone.pool);
    /* waits, because in PyTorch's own allocator the user's allocator has its segments back then */
    if (gone.pool && gone.segments)
        (void)tarn_pool_trim(gone.pool, 0);
    return tarn_pool_release(gone.pool);
}

void Allocator::releasePool(DeviceIndex index, MempoolId_t id)
{
    Device &device = device_at(index);
    Pool gone;
    {
        std::lock_guard<std::mutex> guard(device.lock);
        gone = release_locked(device, id);
    }
    check(release(gone), "the release of a pool");
}

/* Gives back the pools of destroyed graphs, if their last launches may be waited for. True if there
 * were any. */
bool Allocator::end_pools(DeviceIndex index)
{
    Device &device = device_at(index);
    bool none = !device.ended_count.load(std::memory_order_acquire);
    if (none || captures(device))
        return false;
    std::vector<Pool> gone;
    {
        std::lock_guard<std::mutex> guard(device.lock);
        gone.swap(device.ended);
        device.ended_count.store(0, std::memory_order_release);
    }
    if (tarn_device_synchronize(index) != TARN_OK) {
        std::lock_guard<std::mutex> guard(device.lock);
        for (Pool &pool : gone)
            device.ended.push_back(std::move(pool));
        device.ended_count.store(static_cast<int>(device.ended.size()), std::memory_order_release);
        return false;
    }
    for (const Pool &pool : gone)
        (void)release(pool);
    return !gone.empty();
}

/* tarn calls this before it asks the driver for memory. */
bool Allocator::reclaim(int index, size_t bytes, void *user)
{
    auto *allocator = static_cast<Allocator *>(user);
    if (static_cast<size_t>(index) >= allocator->devices.size())
        return false;
    Device &device = *allocator->devices[static_cast<size_t>(index)];
    bool settled = allocator->settle(device);
    if (!device.ended_count.load(std::memory_order_relaxed))
        return settled;
    size_t free_bytes = 0, total = 0, limit = SIZE_MAX;
    tarn_stats stats = {};
    stats.size = sizeof stats;
    if (tarn_device_memory_get(index, &free_bytes, &total) != TARN_OK ||
        tarn_device_limit_get(index, &limit) != TARN_OK ||
        tarn_device_stats_get(index, &stats) != TARN_OK)
        return settled;
    auto reserved = static_cast<size_t>(stats.reserved_bytes[0].current);
    bool has_room = bytes <= free_bytes && (limit > total || reserved + bytes <= limit);
    return (!has_room && allocator->end_pools(static_cast<DeviceIndex>(index))) || settled;
}

void Allocator::emptyCache(MempoolId_t id)
{
    settle();
    end_imports();
    for (size_t i = 0; i < devices.size(); i++) {
        auto index = static_cast<DeviceIndex>(i);
        tarn_pool *wanted = nullptr;
        if (id.first || id.second) {
            std::lock_guard<std::mutex> guard(devices[i]->lock);
            auto found = devices[i]->pools.find(id);
            wanted = found == devices[i]->pools.end() || found->second.held ? nullptr
                                                                            : found->second.pool;
            if (!wanted)
                continue;
            check(tarn_pool_retain(wanted), "empty_cache");
        } else {
            devices[i]->trims.fetch_add(1, std::memory_order_relaxed);
            (void)end_pools(index);
            check(tarn_pool_default(index, &wanted), "empty_cache");
        }
        tarn_status status = tarn_pool_trim(wanted, 0);
        (void)tarn_pool_release(wanted);
        /* in a capture nothing is given back, as in PyTorch's own allocator */
        if (status != TARN_ERROR_CAPTURE)
            check(status, "empty_cache");
    }
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex index, MempoolId_t id,
                                         const std::unordered_set<void *> &expected)
{
    std::vector<tarn_pool_block> blocks(expected.size() + 1);
    size_t count = 0;
    check(tarn_pool_blocks_get(made(index, id, "live allocations"), blocks.data(), blocks.size(),
                               &count),
          "live allocations");
    if (count != expected.size())
        return false;
    for (size_t i = 0; i < count; i++)
        if (!expected.count(blocks[i].address))
            return false;
    return true;
}

/* ---- Filters and captures ---- */

/* An object that exists as long as the calling thread. */
static const std::shared_ptr<char> &this_thread()
{
    static thread_local const auto one = std::make_shared<char>();
    return one;
}

/* True if a stream captures. The default stream cannot be asked while another stream captures, so
 * the answer is then true. */
static bool is_capturing(cudaStream_t native)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(native, &status) == cudaSuccess)
        return status != cudaStreamCaptureStatusNone;
    (void)cudaGetLastError();
    return true;
}

static void count_locked(Device &device)
{
    device.open.store(device.filters.size() + device.captures.size(), std::memory_order_release);
}

/* Takes out the captures that have ended. */
static std::vector<Capture> take_ended_locked(Device &device)
{
    auto ended =
        std::stable_partition(device.captures.begin(), device.captures.end(),
                              [](const Capture &capture) { return is_capturing(capture.native); });
    std::vector<Capture> taken(ended, device.captures.end());
    device.captures.erase(ended, device.captures.end());
    return taken;
}

/* Ends the captures from take_ended_locked(); called without the lock. This class holds the pool,
 * so the graph need not. */
static void end_captures(const std::vector<Capture> &captures)
{
    for (const Capture &capture : captures)
        if (tarn_capture_end_announced(capture.stream, nullptr) != TARN_OK)
            (void)tarn_capture_abort(capture.stream);
}

/* True if a filter's capture has ended although PyTorch did not say so. Of a capture that tarn has
 * not seen, only its own thread knows whether it has begun. */
static bool is_over(const Filter &filter, bool is_mine)
{
    return filter.of_graph && (filter.seen || (filter.is_told && is_mine)) &&
           !is_capturing(filter.begun_on) && !(filter.seen && is_capturing(filter.seen));
}

/* Ends what failed captures have left. True if there was anything. Any thread may find that a
 * capture has ended. The filter is removed, and its pool released, when the thread that began it
 * finds that, or after that thread's end. Other threads cannot tell a failure from an end that
 * PyTorch is about to report. */
bool Allocator::settle(Device &device)
{
    if (!device.open.load(std::memory_order_acquire))
        return false;
    std::vector<Capture> ended;
    std::vector<Pool> gone;
    {
        std::lock_guard<std::mutex> guard(device.lock);
        ended = take_ended_locked(device);
        for (auto filter = device.filters.begin(); filter != device.filters.end();) {
            auto thread = filter->thread.lock();
            bool is_mine = !thread || thread == this_thread();
            filter->over = filter->over || is_over(*filter, is_mine);
            if (!filter->of_graph && filter->seen && !is_capturing(filter->seen))
                filter->seen = nullptr; /* a scope goes on, and may meet another capture */
            if (!filter->over || !is_mine) {
                filter++;
                continue;
            }
            if (device.pools.count(filter->id)) /* otherwise its user has released it too often */
                gone.push_back(release_locked(device, filter->id));
            filter = device.filters.erase(filter);
        }
        count_locked(device);
    }
    end_captures(ended);
    for (const Pool &pool : gone)
        (void)release(pool);
    return !ended.empty() || !gone.empty();
}

void Allocator::settle()
{
    for (const auto &device : devices)
        (void)settle(*device);
}

/* True if a capture of PyTorch is open, which a wait would break. Not every filter is one. */
bool Allocator::captures(Device &device)
{
    (void)settle(device);
    std::lock_guard<std::mutex> guard(device.lock);
    return !device.captures.empty() ||
           std::any_of(device.filters.begin(), device.filters.end(), [](const Filter &filter) {
               return !filter.over && is_capturing(filter.begun_on);
           });
}

/* True for a scope, which accepts its own stream from the beginning. A graph does not, because its
 * capture begins later. */
static bool lets_through(const Filter &filter)
{
    try {
        return filter.matches(filter.begun_on);
    } catch (const std::exception &) {
        return true; /* the default stream cannot be asked now, and it never captures */
    }
}

void Allocator::beginAllocateToPool(DeviceIndex index, MempoolId_t id,
                                    std::function<bool(cudaStream_t)> matches)
{
    Device &device = device_at(index);
    CUDAStream current = c10::cuda::getCurrentCUDAStream(index);
    /* adopts the stream before it captures: then it no longer tells its number */
    (void)stream_of(current);
    std::call_once(reclaims, [&] {
        tarn_observer_options options = {};
        options.size = sizeof options;
        options.device = TARN_ALL_DEVICES;
        options.user = this;
        options.before_growth = reclaim;
        tarn_observer observer = 0;
        check(tarn_observer_add(&options, &observer), "the beginning of a pool");
    });
    (void)settle(device);
    std::lock_guard<std::mutex> guard(device.lock);
    for (const Filter &other : device.filters)
        TORCH_CHECK(other.id != id, "beginAllocateToPool: already recording to mempool_id");
    Pool &pool = device.pools[id];
    Filter filter = {id, std::move(matches), current.stream(), this_thread()};
    bool goes_on = pool.capturing && is_capturing(pool.capturing);
    filter.of_graph = goes_on || !lets_through(filter);
    filter.begun_on = goes_on ? pool.capturing : filter.begun_on;
    pool.capturing = nullptr;
    pool.for_graphs |= pool.uses++ == 0;
    device.filters.push_back(std::move(filter));
    count_locked(device);
}

void Allocator::expect_capture(MempoolId_t id)
{
    Device &device = device_at(c10::cuda::current_device());
    std::lock_guard<std::mutex> guard(device.lock);
    for (Filter &filter : device.filters)
        if (filter.id == id && filter.thread.lock() == this_thread())
            filter.of_graph = filter.is_told = true;
}

void Allocator::endAllocateToPool(DeviceIndex index, MempoolId_t id)
{
    Device &device = device_at(index);
    std::vector<Capture> ended;
    {
        std::lock_guard<std::mutex> guard(device.lock);
        auto found = std::find_if(device.filters.begin(), device.filters.end(),
                                  [&](const Filter &filter) { return filter.id == id; });
        TORCH_CHECK(found != device.filters.end(),
                    "endAllocatePool: not currently recording to mempool_id");
        /* For a conditional node, PyTorch ends the graph's filter, begins one for the node, and
         * later the graph's again. */
        Pool &pool = pool_locked(device, id, "the end of a scope");
        pool.has_ended = true;
        if (found->of_graph && is_capturing(found->begun_on))
            pool.capturing = found->begun_on;
        device.filters.erase(found);
        ended = take_ended_locked(device);
        count_locked(device);
    }
    end_captures(ended);
}

/* The pool that an allocation is for; null: none. */
tarn_pool *Allocator::route(DeviceIndex index, cudaStream_t native, tarn_stream stream,
                            MempoolId_t *id)
{
    Device &device = device_at(index);
    bool is_seen = false, is_held = false;
    (void)settle(device);
    {
        std::lock_guard<std::mutex> guard(device.lock);
        auto found =
            std::find_if(device.filters.rbegin(), device.filters.rend(), [&](const Filter &filter) {
                return !filter.over && filter.matches(native);
            });
        if (found == device.filters.rend())
            return nullptr;
        *id = found->id;
        is_seen = found->seen;
        is_held = pool_locked(device, *id, "an allocation").held;
    }
    tarn_pool *pool = made(index, *id, "an allocation");
    tarn_capture_state state = TARN_CAPTURE_NONE;
    if ((is_seen && is_held) ||
        tarn_capture_state_get(stream, &state, nullptr, nullptr) != TARN_OK ||
        state != TARN_CAPTURE_ACTIVE)
        return pool;

    /* A capture that is seen for the first time. */
    std::lock_guard<std::mutex> guard(device.lock);
    Pool &held = pool_locked(device, *id, "a capture");
    if (!held.held) {
        check(tarn_pool_hold(pool, nullptr), "a capture");
        held.held = true;
    }
    if (tarn_pool_capture_announce(pool, stream) == TARN_OK)
        device.captures.push_back({native, stream});
    bool is_known = std::any_of(device.captures.begin(), device.captures.end(),
                                [&](const Capture &capture) { return capture.native == native; });
    for (Filter &filter : device.filters)
        if (filter.id == *id && is_known)
            filter.seen = native;
    count_locked(device);
    return pool;
}

/* ---- Checkpoints ---- */

namespace
{
struct Checkpoint final : AllocatorState {
    tarn_checkpoint *checkpoint = nullptr;
    MempoolId_t id;
    ~Checkpoint() override
    {
        (void)tarn_checkpoint_destroy(checkpoint);
    }
};
} // namespace

static std::vector<void *> live_blocks(tarn_pool *pool)
{
    std::vector<tarn_pool_block> blocks(64);
    size_t count = 0;
    while (check(tarn_pool_blocks_get(pool, blocks.data(), blocks.size(), &count), "a checkpoint"),
           count > blocks.size())
        blocks.resize(count + 64);
    std::vector<void *> pointers;
    for (size_t i = 0; i < count; i++)
        pointers.push_back(blocks[i].address);
    return pointers;
}

std::shared_ptr<AllocatorState> Allocator::getCheckpointState(DeviceIndex device, MempoolId_t id)
{
    auto state = std::make_shared<Checkpoint>();
    state->id = id;
    check(tarn_pool_checkpoint(made(device, id, "a checkpoint"), &state->checkpoint),
          "a checkpoint");
    return state;
}

/* PyTorch's own allocator frees all live blocks of the pool and allocates those of the state, so a
 * block that is in both is reported in both. */
CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device,
                                                  std::shared_ptr<AllocatorState> state)
{
    auto checkpoint = std::dynamic_pointer_cast<Checkpoint>(state);
    TORCH_CHECK(checkpoint, "tarn: the state of a pool is not of this allocator");
    tarn_pool *pool = made(device, checkpoint->id, "a checkpoint");
    CheckpointDelta delta;
    delta.ptrs_freed = live_blocks(pool);
    check(tarn_pool_restore(pool, checkpoint->checkpoint, nullptr, nullptr), "a checkpoint");
    for (void *pointer : live_blocks(pool))
        delta.dataptrs_allocd.emplace_back(pointer, pointer, &delete_block,
                                           c10::Device(c10::kCUDA, device));
    return delta;
}

} // namespace tarn_torch
