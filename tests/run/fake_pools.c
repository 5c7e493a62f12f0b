/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pools of the driver for the tests of `tarn run`, and memory in the order of streams. A pool counts what is used and what it keeps; what is
 * freed behind work is not kept for good, and not given back, before a wait has seen the end of that work. */
#include "fake_driver.h"

#include <stdlib.h>
#include <string.h>

enum { POOLS = sizeof fake.pools / sizeof *fake.pools };

static bool keeps, are_apart;

__attribute__((constructor)) static void start(void)
{
    keeps = getenv("FAKE_DRIVER_KEEPS");
    are_apart = getenv("FAKE_DRIVER_APART");
    for (int i = 0; i < DEVICES; i++) {
        fake.pools[i] = (struct fake_pool){.there = true, .device = i, .opportunistic = true};
        fake.current[i] = (unsigned)i + 1;
    }
}

static struct fake_pool *pool_of(cu_pool pool)
{
    uintptr_t number = (uintptr_t)pool;
    return number && number <= POOLS && fake.pools[number - 1].there ? &fake.pools[number - 1] : NULL;
}

static uint64_t reserved(const struct fake_pool *pool)
{
    return pool->used + pool->kept + pool->unseen;
}

/* Down to so much, as far as it is free. */
static void give_back_locked(struct fake_pool *pool, uint64_t keep)
{
    uint64_t now = reserved(pool), above = now > keep ? now - keep : 0;
    uint64_t bytes = above < pool->kept ? above : pool->kept;
    pool->kept -= bytes;
    fake.bytes[pool->device] -= bytes;
}

void fake_ended(cu_stream stream)
{
    pthread_mutex_lock(&fake.lock);
    for (uint32_t i = 1; i <= fake.used; i++)
        if (fake.slots[i].size && (!stream || fake.slots[i].stream == stream))
            fake.slots[i].is_safe = true;
    pthread_mutex_unlock(&fake.lock);
}

void fake_wait(void)
{
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < POOLS; i++) {
        fake.pools[i].kept += fake.pools[i].unseen;
        fake.pools[i].unseen = 0;
        give_back_locked(&fake.pools[i], fake.pools[i].threshold);
    }
    pthread_mutex_unlock(&fake.lock);
}

void fake_pool_drop(struct slot *slot, bool seen)
{
    struct fake_pool *pool = &fake.pools[slot->pool - 1];
    pool->used -= slot->size;
    *(seen || !fake_is_busy() ? &pool->kept : &pool->unseen) += slot->size;
    if (!keeps)
        give_back_locked(pool, 0);
}

void fake_pools_end(void)
{
    for (uint32_t i = 1; i <= fake.used; i++)
        if (fake.slots[i].size && fake.slots[i].pool)
            (void)fake_give(UINT64_C(0x700000000000) + ((uint64_t)i << 28));
    fake_wait();
}

static cu_result take_of(cu_address *address, size_t size, cu_pool handle, cu_stream stream)
{
    struct fake_pool *pool = pool_of(handle);
    uint64_t key;
    cu_address base;
    if (!address || !size || !pool)
        return CU_INVALID_VALUE;
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    if (fake_fails() || (pool->most && pool->used + size > pool->most))
        return CU_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake.lock);
    uint64_t again = size < pool->kept ? size : pool->kept;
    pool->kept -= again;
    fake.bytes[pool->device] -= again;
    pthread_mutex_unlock(&fake.lock);
    cu_result code = fake_take(pool->device, size, false, &key);
    if (code && pool->kept) {
        pthread_mutex_lock(&fake.lock);
        give_back_locked(pool, 0);
        pthread_mutex_unlock(&fake.lock);
        code = fake_take(pool->device, size, false, &key);
    }
    if (code)
        return code;
    pthread_mutex_lock(&fake.lock);
    struct slot *slot = fake_slot_at(key, &base);
    slot->pool = (unsigned)(uintptr_t)handle;
    slot->stream = stream;
    pool->used += size;
    pool->high = pool->used > pool->high ? pool->used : pool->high;
    pool->reserved_high = reserved(pool) > pool->reserved_high ? reserved(pool) : pool->reserved_high;
    pthread_mutex_unlock(&fake.lock);
    *address = key;
    return CU_OK;
}

static cu_stream named(cu_stream stream, uintptr_t name)
{
    return stream ? stream : (cu_stream)name;
}

static cu_result take_current(cu_address *address, size_t size, cu_stream stream)
{
    cu_device device;
    if (are_apart)
        return fake_alloc(address, size);
    if (cuCtxGetDevice(&device))
        return CU_INVALID_CONTEXT;
    return take_of(address, size, (cu_pool)(uintptr_t)fake.current[device], stream);
}

cu_result cuMemAllocAsync(cu_address *address, size_t size, cu_stream stream)
{
    return take_current(address, size, named(stream, 1));
}

cu_result cuMemAllocAsync_ptsz(cu_address *address, size_t size, cu_stream stream)
{
    return take_current(address, size, named(stream, 2));
}

cu_result cuMemAllocFromPoolAsync(cu_address *address, size_t size, cu_pool pool, cu_stream stream)
{
    return are_apart ? fake_alloc(address, size) : take_of(address, size, pool, named(stream, 1));
}

cu_result cuMemAllocFromPoolAsync_ptsz(cu_address *address, size_t size, cu_pool pool, cu_stream stream)
{
    return take_of(address, size, pool, named(stream, 2));
}

static cu_result give_async(cu_address address, cu_stream stream)
{
    cu_address base;
    struct slot *slot = fake_slot_at(address, &base);
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    if (!slot || base != address)
        return CU_INVALID_VALUE;
    if (fake_fails())
        return CU_LAUNCH_FAILED;
    if (!slot->pool)
        return fake_give(address);
    if (fake_is_busy() && slot->stream != stream && !slot->is_safe)
        fake.disorder++;
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = &fake.pools[slot->pool - 1];
    uint64_t size = slot->size;
    pthread_mutex_unlock(&fake.lock);
    cu_result code = fake_give(address);
    pthread_mutex_lock(&fake.lock);
    if (!code && keeps && fake_is_busy()) { /* not seen yet */
        uint64_t bytes = size < pool->kept ? size : pool->kept;
        pool->kept -= bytes;
        pool->unseen += bytes;
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

cu_result cuMemFreeAsync(cu_address address, cu_stream stream)
{
    return give_async(address, named(stream, 1));
}

cu_result cuMemFreeAsync_ptsz(cu_address address, cu_stream stream)
{
    return give_async(address, named(stream, 2));
}

/* Pools ------------------------------------------------------------------------------------------------------------ */

cu_result cuMemPoolCreate(cu_pool *handle, const struct cu_pool_properties *properties)
{
    for (int i = DEVICES; i < POOLS; i++)
        if (!fake.pools[i].there) {
            fake.pools[i] = (struct fake_pool){.there = true,
                                               .device = properties->location.type == 1 ? properties->location.id : 0,
                                               .most = properties->most,
                                               .opportunistic = true};
            *handle = (cu_pool)(uintptr_t)(i + 1);
            return CU_OK;
        }
    return CU_OUT_OF_MEMORY;
}

cu_result cuMemPoolDestroy(cu_pool handle)
{
    struct fake_pool *pool = pool_of(handle);
    if (!pool || pool < &fake.pools[DEVICES])
        return CU_INVALID_VALUE;
    if (fake.current[pool->device] == (uintptr_t)handle)
        fake.current[pool->device] = (unsigned)pool->device + 1;
    pool->there = false;
    return CU_OK;
}

cu_result cuDeviceGetDefaultMemPool(cu_pool *pool, cu_device device)
{
    *pool = (cu_pool)(uintptr_t)(1 + device);
    return device < 0 || device >= DEVICES ? CU_INVALID_DEVICE : CU_OK;
}

cu_result cuDeviceGetMemPool(cu_pool *pool, cu_device device)
{
    if (device < 0 || device >= DEVICES)
        return CU_INVALID_DEVICE;
    *pool = (cu_pool)(uintptr_t)fake.current[device];
    return CU_OK;
}

cu_result cuDeviceSetMemPool(cu_device device, cu_pool pool)
{
    if (device < 0 || device >= DEVICES || !pool_of(pool))
        return CU_INVALID_VALUE;
    fake.current[device] = (unsigned)(uintptr_t)pool;
    return CU_OK;
}

cu_result cuMemSetMemPool(struct cu_location *location, unsigned type, cu_pool pool)
{
    (void)type;
    return cuDeviceSetMemPool(location->id, pool);
}

cu_result cuMemPoolTrimTo(cu_pool handle, size_t keep)
{
    struct fake_pool *pool = pool_of(handle);
    if (!pool)
        return CU_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    give_back_locked(pool, keep);
    pthread_mutex_unlock(&fake.lock);
    return CU_OK;
}

cu_result cuMemPoolGetAttribute(cu_pool handle, unsigned attribute, void *value)
{
    const struct fake_pool *pool = pool_of(handle);
    if (!pool || !value || !attribute || attribute > 8)
        return CU_INVALID_VALUE;
    const uint64_t values[] = {
        0, 1, pool->opportunistic, 1, pool->threshold, reserved(pool), pool->reserved_high, pool->used, pool->high};
    if (attribute < 4)
        *(int *)value = (int)values[attribute];
    else
        memcpy(value, &values[attribute], sizeof *values);
    return CU_OK;
}

cu_result cuMemPoolSetAttribute(cu_pool handle, unsigned attribute, void *value)
{
    struct fake_pool *pool = pool_of(handle);
    if (!pool || !value || !attribute || attribute > 8 || attribute == 5 || attribute == 7)
        return CU_INVALID_VALUE;
    if (attribute == 2)
        pool->opportunistic = *(const int *)value;
    if (attribute == 4)
        pool->threshold = *(const uint64_t *)value;
    if (attribute == 6)
        pool->reserved_high = reserved(pool);
    if (attribute == 8)
        pool->high = pool->used;
    return CU_OK;
}

unsigned cuFakeUse(size_t bytes)
{
    cu_pool handle = NULL;
    cu_result code = cuDeviceGetDefaultMemPool(&handle, 0);
    struct fake_pool *pool = pool_of(handle);
    pthread_mutex_lock(&fake.lock);
    pool->used += bytes;
    pool->high = pool->used > pool->high ? pool->used : pool->high;
    pthread_mutex_unlock(&fake.lock);
    return code;
}

unsigned cuFakeCapture(cu_stream stream)
{
    cu_graph graph;
    cu_stream before = fake.captured;
    fake.captured = stream;
    return stream ? cuStreamBeginCapture_v2(stream, 0) : cuStreamEndCapture(before, &graph);
}

unsigned cuFakeDisorder(void)
{
    return fake.disorder;
}

uint64_t cuFakeReserved(cu_pool pool)
{
    return reserved(pool_of(pool));
}
