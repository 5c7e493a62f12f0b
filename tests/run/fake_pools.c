/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pools of the driver for the tests of `tarn run`, and memory in the order of streams. A pool
 * counts what is used and what it keeps; what is freed behind work is not kept for good, and not
 * given back, before a wait has seen the end of that work. */
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
    return number && number <= POOLS && fake.pools[number - 1].there ? &fake.pools[number - 1]
                                                                     : NULL;
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

void fake_pool_drop(struct slot *slot)
{
    struct fake_pool *pool = &fake.pools[slot->pool - 1];
    pool->used -= slot->size;
    pool->kept += slot->size;
    if (!keeps)
        give_back_locked(pool, 0);
}

cu_result fake_pool_lose(cu_address address)
{
    cu_address base;
    struct slot slot;
    pthread_mutex_lock(&fake.lock);
    bool of_pool = fake_look(address, &base, &slot) && base == address && slot.pool;
    cu_result code = fake_give(address);
    if (!code && of_pool)
        fake.pools[slot.pool - 1].lost += slot.size;
    pthread_mutex_unlock(&fake.lock);
    return code;
}

void fake_pools_end(void)
{
    for (uint32_t i = 1; i < SLOTS; i++) {
        cu_address key = UINT64_C(0x700000000000) + ((uint64_t)i << 28), base;
        struct slot slot;
        if (fake_look(key, &base, &slot) && slot.pool)
            (void)fake_give(key);
    }
    fake_wait();
}

static void fill(struct fake_pool *pool, unsigned number, uint64_t key, uint64_t size,
                 cu_stream stream)
{
    cu_address base;
    struct slot *slot = fake_slot_at(key, &base);
    slot->pool = number;
    slot->stream = stream;
    pool->used += size;
    pool->high = pool->used + pool->lost > pool->high ? pool->used + pool->lost : pool->high;
    pool->reserved_high =
        reserved(pool) > pool->reserved_high ? reserved(pool) : pool->reserved_high;
}

/* What the pool has kept comes first; where that is in the way of a larger block, it goes. */
static cu_result take_of(cu_address *address, size_t size, cu_pool handle, cu_stream stream)
{
    uint64_t key;
    fake_called();
    if (!fake_is_stream(stream))
        return address && size ? CU_INVALID_HANDLE : CU_INVALID_VALUE;
    if (fake_fault())
        return fake_fault();
    bool fails = fake_fails();
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = pool_of(handle);
    cu_result code = !address || !size || !pool                                ? CU_INVALID_VALUE
                     : fails || (pool->most && pool->used + size > pool->most) ? CU_OUT_OF_MEMORY
                                                                               : CU_OK;
    if (!code) {
        uint64_t again = size < pool->kept ? size : pool->kept;
        pool->kept -= again;
        fake.bytes[pool->device] -= again;
        code = fake_take(pool->device, size, false, &key);
        if (code && pool->kept) {
            give_back_locked(pool, 0);
            code = fake_take(pool->device, size, false, &key);
        }
    }
    if (!code) {
        fill(pool, (unsigned)(uintptr_t)handle, key, size, stream);
        *address = key;
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
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

cu_result cuMemAllocFromPoolAsync_ptsz(cu_address *address, size_t size, cu_pool pool,
                                       cu_stream stream)
{
    return take_of(address, size, pool, named(stream, 2));
}

static cu_result give_async(cu_address address, cu_stream stream)
{
    cu_address base;
    struct slot slot;
    fake_called();
    if (are_apart)
        return cuMemFree_v2(address);
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    if (!fake_look(address, &base, &slot) || base != address)
        return CU_INVALID_VALUE;
    if (fake_fault())
        return fake_fault();
    if (fake_fails())
        return CU_LAUNCH_FAILED;
    if (!slot.pool)
        return fake_give(address);
    if (fake_is_busy() && slot.stream != stream && !slot.is_safe)
        atomic_fetch_add(&fake.disorder, 1);
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = &fake.pools[slot.pool - 1];
    cu_result code = fake_give(address);
    if (!code && keeps && fake_is_busy()) { /* not seen yet */
        uint64_t bytes = slot.size < pool->kept ? slot.size : pool->kept;
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

/* Pools ---------------------------------------------------------------------------------------- */

cu_result cuMemPoolCreate(cu_pool *handle, const struct cu_pool_properties *properties)
{
    cu_result code = CU_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake.lock);
    for (int i = DEVICES; code && i < POOLS; i++)
        if (!fake.pools[i].there) {
            fake.pools[i] = (struct fake_pool){
                .there = true,
                .device = properties->location.type == 1 ? properties->location.id : 0,
                .most = properties->most,
                .opportunistic = true};
            *handle = (cu_pool)(uintptr_t)(i + 1);
            code = CU_OK;
        }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

cu_result cuMemPoolDestroy(cu_pool handle)
{
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = pool_of(handle);
    bool may = pool >= &fake.pools[DEVICES];
    if (may && fake.current[pool->device] == (uintptr_t)handle)
        fake.current[pool->device] = (unsigned)pool->device + 1;
    if (may)
        pool->there = false;
    pthread_mutex_unlock(&fake.lock);
    return may ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuDeviceGetDefaultMemPool(cu_pool *pool, cu_device device)
{
    *pool = (cu_pool)(uintptr_t)(1 + device);
    return device < 0 || device >= DEVICES ? CU_INVALID_DEVICE : CU_OK;
}

cu_result cuDeviceGetMemPool(cu_pool *pool, cu_device device)
{
    fake_called();
    if (device < 0 || device >= DEVICES)
        return CU_INVALID_DEVICE;
    *pool = (cu_pool)(uintptr_t)fake.current[device];
    return CU_OK;
}

/* A device has one pool in use, whatever the type. */
cu_result cuMemGetMemPool(cu_pool *pool, struct cu_location *location, unsigned type)
{
    return location->type == 1 && (type == 1 || type == 2) ? cuDeviceGetMemPool(pool, location->id)
                                                           : CU_INVALID_VALUE;
}

cu_result cuMemGetDefaultMemPool(cu_pool *pool, struct cu_location *location, unsigned type)
{
    return location->type == 1 && (type == 1 || type == 2)
               ? cuDeviceGetDefaultMemPool(pool, location->id)
               : CU_INVALID_VALUE;
}

cu_result cuDeviceSetMemPool(cu_device device, cu_pool pool)
{
    pthread_mutex_lock(&fake.lock);
    bool may = device >= 0 && device < DEVICES && pool_of(pool);
    if (may)
        fake.current[device] = (unsigned)(uintptr_t)pool;
    pthread_mutex_unlock(&fake.lock);
    return may ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemSetMemPool(struct cu_location *location, unsigned type, cu_pool pool)
{
    (void)type;
    return cuDeviceSetMemPool(location->id, pool);
}

cu_result cuMemPoolTrimTo(cu_pool handle, size_t keep)
{
    fake_called();
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = pool_of(handle);
    if (pool)
        give_back_locked(pool, keep);
    pthread_mutex_unlock(&fake.lock);
    return pool ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemPoolGetAttribute(cu_pool handle, unsigned attribute, void *value)
{
    fake_called();
    pthread_mutex_lock(&fake.lock);
    const struct fake_pool *pool = pool_of(handle);
    bool may = pool && value && attribute && attribute <= 8;
    const uint64_t values[] = {0,
                               1,
                               pool && pool->opportunistic,
                               1,
                               pool ? pool->threshold : 0,
                               pool ? reserved(pool) : 0,
                               pool ? pool->reserved_high : 0,
                               pool ? pool->used + pool->lost : 0,
                               pool ? pool->high : 0};
    pthread_mutex_unlock(&fake.lock);
    if (may && attribute < 4)
        *(int *)value = (int)values[attribute];
    else if (may)
        memcpy(value, &values[attribute], sizeof *values);
    return may ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemPoolSetAttribute(cu_pool handle, unsigned attribute, void *value)
{
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = pool_of(handle);
    bool may = pool && value && attribute && attribute <= 8 && attribute != 5 && attribute != 7;
    if (may && attribute == 2)
        pool->opportunistic = *(const int *)value;
    if (may && attribute == 4)
        pool->threshold = *(const uint64_t *)value;
    if (may && attribute == 6)
        pool->reserved_high = reserved(pool);
    if (may && attribute == 8)
        pool->high = pool->used + pool->lost;
    pthread_mutex_unlock(&fake.lock);
    return may ? CU_OK : CU_INVALID_VALUE;
}

/* Who may reach what a pool has, and will have. Its own device always does. */
cu_result cuMemPoolSetAccess(cu_pool handle, const struct cu_access *access, size_t count)
{
    cu_result code = CU_OK;
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = pool_of(handle);
    if (!pool || !access)
        code = CU_INVALID_VALUE;
    for (size_t i = 0; !code && i < count; i++)
        if (access[i].location.type != CU_LOCATION_DEVICE || access[i].location.id < 0 ||
            access[i].location.id >= DEVICES)
            code = CU_INVALID_DEVICE;
        else if (access[i].location.id == pool->device && access[i].flags != CU_ACCESS_READ_WRITE)
            code = CU_INVALID_VALUE;
    for (size_t i = 0; !code && i < count; i++)
        pool->reached[access[i].location.id] = access[i].flags == CU_ACCESS_READ_WRITE;
    pthread_mutex_unlock(&fake.lock);
    return code;
}

static bool reaches(const struct fake_pool *pool, int device)
{
    return device == pool->device || pool->reached[device];
}

cu_result cuMemPoolGetAccess(unsigned *flags, cu_pool handle, struct cu_location *location)
{
    pthread_mutex_lock(&fake.lock);
    const struct fake_pool *pool = pool_of(handle);
    bool may = pool && flags && location && location->id >= 0 && location->id < DEVICES;
    if (may)
        *flags = reaches(pool, location->id) ? CU_ACCESS_READ_WRITE : 0;
    pthread_mutex_unlock(&fake.lock);
    return may ? CU_OK : CU_INVALID_VALUE;
}

unsigned cuFakeReaches(cu_address address, int device)
{
    cu_address base;
    pthread_mutex_lock(&fake.lock);
    const struct slot *slot = fake_slot_at(address, &base);
    bool may = slot &&
               (slot->pool ? reaches(&fake.pools[slot->pool - 1], device) : slot->device == device);
    pthread_mutex_unlock(&fake.lock);
    return may;
}

unsigned cuFakeUse(size_t bytes)
{
    pthread_mutex_lock(&fake.lock);
    struct fake_pool *pool = &fake.pools[0];
    pool->used += bytes;
    pool->high = pool->used > pool->high ? pool->used : pool->high;
    pthread_mutex_unlock(&fake.lock);
    return CU_OK;
}

unsigned cuFakeDisorder(void)
{
    return atomic_load(&fake.disorder);
}

uint64_t cuFakeReserved(cu_pool handle)
{
    pthread_mutex_lock(&fake.lock);
    const struct fake_pool *pool = pool_of(handle);
    uint64_t bytes = pool ? reserved(pool) : 0;
    pthread_mutex_unlock(&fake.lock);
    return bytes;
}
