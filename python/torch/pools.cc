/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's pools and captures. A pool is tarn's; which allocation is whose is decided by PyTorch's filters, the newest first.
 *
 * PyTorch 2.11 says the same whether a capture begins or a scope. It turns out at the first allocation that a filter lets through: if its
 * stream captures, tarn is told, and the pool's memory is held, so that no graph loses what its launches use. */
#include "allocator.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <unordered_set>

namespace tarn_torch
{

Pool &Allocator::pool_locked(Device &device, MempoolId_t id, const char *what)
{
    auto found = device.pools.find(id);
    TORCH_CHECK(found != device.pools.end(), "tarn: ", what, ": there is no pool (", id.first, ", ", id.second, ")");
    return found->second;
}

/* ---- Segments of an allocator of the user's ---- */

static void *segment_alloc(size_t size, int device, void *, void *user)
{
    try {
        c10::DeviceGuard guard({c10::kCUDA, static_cast<DeviceIndex>(device)});
        return (*static_cast<SegmentAllocator *>(user))->raw_alloc(size);
    } catch (const std::exception &) {
        return nullptr; /* as native does, it is asked once more after other memory was given back */
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

/* The pool of tarn for a PyTorch number, made now where it is not there yet. */
tarn_pool *Allocator::made(DeviceIndex index, MempoolId_t id, const char *what)
{
    Device &device = ready_at(index);
    std::lock_guard<std::mutex> guard(device.lock);
    Pool &pool = pool_locked(device, id, what);
    if (pool.pool)
        return pool.pool;
    tarn_pool_options options = {};
    options.size = sizeof options;
    options.device = index;
    options.use_on_oom = pool.use_on_oom;
    options.no_split = pool.no_split;
    options.exportable = device.exportable && !pool.no_split && !pool.segments;
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
    return pool.pool;
}

bool Allocator::find_pool(DeviceIndex index, MempoolId_t id, tarn_pool_id *found)
{
    if (index < 0 || static_cast<size_t>(index) >= devices.size())
        return false;
    std::lock_guard<std::mutex> guard(devices[static_cast<size_t>(index)]->lock);
    auto pool = devices[static_cast<size_t>(index)]->pools.find(id);
    return pool != devices[static_cast<size_t>(index)]->pools.end() && pool->second.pool &&
           tarn_pool_id_get(pool->second.pool, found) == TARN_OK;
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
    TORCH_CHECK(!pool.pool || pool.use_on_oom || !use_on_oom, "tarn: use_on_oom is set before the pool is first used");
    if (!pool.pool) /* else a MemPool goes, which takes it back before it releases the pool */
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
    std::lock_guard<std::mutex> guard(device.lock);
    auto found = device.pools.find(id);
    return found == device.pools.end() ? 0 : found->second.uses;
}

void Allocator::releasePool(DeviceIndex index, MempoolId_t id)
{
    Device &device = device_at(index);
    Pool gone;
    {
        std::lock_guard<std::mutex> guard(device.lock);
        Pool &pool = pool_locked(device, id, "the release of a pool");
        if (--pool.uses > 0)
            return;
        gone = std::move(pool);
        device.pools.erase(id);
    }
    if (gone.held)
        check(tarn_pool_unhold(gone.pool), "the release of a pool");
    check(tarn_pool_release(gone.pool), "the release of a pool");
}

void Allocator::emptyCache(MempoolId_t id)
{
    for (size_t i = 0; i < devices.size(); i++) {
        auto index = static_cast<DeviceIndex>(i);
        tarn_pool *wanted = nullptr;
        if (id.first || id.second) {
            std::lock_guard<std::mutex> guard(devices[i]->lock);
            auto found = devices[i]->pools.find(id);
            wanted = found == devices[i]->pools.end() || found->second.held ? nullptr : found->second.pool;
            if (!wanted)
                continue;
            check(tarn_pool_retain(wanted), "empty_cache");
        } else {
            check(tarn_pool_default(index, &wanted), "empty_cache");
        }
        tarn_status status = tarn_pool_trim(wanted, 0);
        (void)tarn_pool_release(wanted);
        if (status != TARN_ERROR_CAPTURE) /* then nothing is given back, as native has it */
            check(status, "empty_cache");
    }
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex index, MempoolId_t id, const std::unordered_set<void *> &expected)
{
    std::vector<void *> pointers(expected.begin(), expected.end());
    bool equal = false;
    check(tarn_pool_check_live(made(index, id, "live allocations"), pointers.data(), pointers.size(), &equal),
          "live allocations");
    return equal;
}

/* ---- Filters and captures ---- */

void Allocator::beginAllocateToPool(DeviceIndex index, MempoolId_t id, std::function<bool(cudaStream_t)> filter)
{
    Device &device = device_at(index);
    /* Before it captures: then it does not tell its number any more. */
    (void)stream_of(c10::cuda::getCurrentCUDAStream(index));
    std::lock_guard<std::mutex> guard(device.lock);
    for (const Filter &other : device.filters)
        TORCH_CHECK(other.id != id, "beginAllocateToPool: already recording to mempool_id");
    device.filters.push_back({id, std::move(filter)});
    device.pools[id].uses++;
    device.filter_count.fetch_add(1, std::memory_order_release);
}

void Allocator::endAllocateToPool(DeviceIndex index, MempoolId_t id)
{
    Device &device = device_at(index);
    Filter ended;
    {
        std::lock_guard<std::mutex> guard(device.lock);
        auto found = std::find_if(device.filters.begin(), device.filters.end(),
                                  [&](const Filter &filter) { return filter.id == id; });
        TORCH_CHECK(found != device.filters.end(), "endAllocatePool: not currently recording to mempool_id");
        ended = std::move(*found);
        device.filters.erase(found);
        device.filter_count.fetch_sub(1, std::memory_order_release);
    }
    /* The pool is held by us: no graph needs to. */
    if (ended.captures && tarn_capture_end_announced(ended.announced, nullptr) != TARN_OK)
        (void)tarn_capture_abort(ended.announced);
}

/* The pool that an allocation is for, or null: none. */
tarn_pool *Allocator::route(DeviceIndex index, cudaStream_t native, tarn_stream stream, MempoolId_t *id)
{
    Device &device = device_at(index);
    bool is_known = false, is_held = false;
    {
        std::lock_guard<std::mutex> guard(device.lock);
        auto found = std::find_if(device.filters.rbegin(), device.filters.rend(),
                                  [&](const Filter &filter) { return filter.matches(native); });
        if (found == device.filters.rend())
            return nullptr;
        *id = found->id;
        is_known = found->captures;
        is_held = pool_locked(device, *id, "an allocation").held;
    }
    tarn_pool *pool = made(index, *id, "an allocation");
    tarn_capture_state state = TARN_CAPTURE_NONE;
    if ((is_known && is_held) || tarn_capture_state_get(stream, &state, nullptr) != TARN_OK ||
        state != TARN_CAPTURE_ACTIVE)
        return pool;

    /* A capture, seen for the first time. */
    std::lock_guard<std::mutex> guard(device.lock);
    Pool &held = pool_locked(device, *id, "a capture");
    if (!held.held) {
        check(tarn_pool_hold(pool), "a capture");
        held.held = true;
    }
    for (Filter &filter : device.filters)
        if (filter.id == *id && !filter.captures && tarn_capture_announce(stream) == TARN_OK) {
            filter.captures = true;
            filter.announced = stream;
        }
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
    check(tarn_pool_checkpoint(made(device, id, "a checkpoint"), &state->checkpoint), "a checkpoint");
    return state;
}

/* Native frees all of the pool's live blocks and allocates those of the state, so that one which is in both is reported in both. */
CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state)
{
    auto checkpoint = std::dynamic_pointer_cast<Checkpoint>(state);
    TORCH_CHECK(checkpoint, "tarn: the state of a pool is not of this allocator");
    tarn_pool *pool = made(device, checkpoint->id, "a checkpoint");
    CheckpointDelta delta;
    delta.ptrs_freed = live_blocks(pool);
    check(tarn_pool_restore(pool, checkpoint->checkpoint, nullptr, nullptr), "a checkpoint");
    for (void *pointer : live_blocks(pool))
        delta.dataptrs_allocd.emplace_back(pointer, pointer, &delete_block, c10::Device(c10::kCUDA, device));
    return delta;
}

} // namespace tarn_torch
