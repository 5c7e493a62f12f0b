/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pools of the simulated libcuda, and stream-ordered memory. Unlike the real pools they keep
 * nothing that is free, so reserved and used bytes are equal, and a release threshold is stored and
 * has no effect. Exportable handles, limits and other locations are refused. */
#include "base/thread/lock.h"
#include "cuda/sim_cuda.h"

#include <string.h>

enum { POOLS = 2 * TARN_MAX_DEVICES, BLOCKS = 16384 };
enum attribute { /* CU_MEMPOOL_ATTR_ */
                 REUSE_FIRST = 1,
                 REUSE_LAST = 3,
                 THRESHOLD,
                 RESERVED,
                 RESERVED_HIGH,
                 USED,
                 USED_HIGH
};

/* A destroyed pool stays as long as it has blocks, but no handle leads to it. When it has none, its
 * place, and so its handle's value, may be a new pool's. */
struct CUmemPoolHandle_st {
    bool taken, live;
    int device;
    bool reuse[3];
    bool reached[TARN_MAX_DEVICES]; /* devices other than its own that may access it */
    uint64_t threshold, used, most;
    uint64_t high; /* the peak since it was last reset */
};

static mutex pools_lock = MUTEX_INITIALIZER(LOCK_SIM_POOLS);
static struct CUmemPoolHandle_st pools[POOLS]; /* the first ones are the devices' default pools */
static cu_pool current[TARN_MAX_DEVICES];      /* NULL: the default pool */
static struct block {
    cu_address address; /* 0: the slot is empty */
    size_t size;
    cu_pool pool;
} blocks[BLOCKS]; /* a hash table by address, probed linearly */

static size_t home(cu_address address)
{
    return (size_t)(address >> 21) * 40503 % BLOCKS;
}

static struct block *find_locked(cu_address address)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block *block = &blocks[(home(address) + i) % BLOCKS];
        if (block->address == address)
            return block;
    }
    return NULL;
}

static cu_pool default_locked(int device)
{
    cu_pool pool = &pools[device];
    if (!pool->taken)
        *pool = (struct CUmemPoolHandle_st){
            .taken = true, .live = true, .device = device, .reuse = {true, true, true}};
    return pool;
}

static bool is_live_locked(cu_pool pool)
{
    return pool >= pools && pool < pools + POOLS && pool->live;
}

/* False: the table is full. */
static bool enter_locked(struct block block)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block *slot = &blocks[(home(block.address) + i) % BLOCKS];
        if (!slot->address) {
            *slot = block;
            return true;
        }
    }
    return false;
}

static void note_locked(cu_pool pool, cu_address address, size_t size)
{
    if (!enter_locked((struct block){address, size, pool}))
        return;
    pool->used += size;
    pool->high = pool->used > pool->high ? pool->used : pool->high;
    pool->most = pool->used > pool->most ? pool->used : pool->most;
}

/* Takes a block out of the table. Its pool counts it until its free has succeeded. */
static struct block take(cu_address address)
{
    struct block taken = {0};
    mutex_lock(&pools_lock);
    struct block *block = address ? find_locked(address) : NULL;
    if (block) {
        taken = *block;
        block->address = 0;
    }
    mutex_unlock(&pools_lock);
    return taken;
}

cu_result sim_pool_free(cu_address address, tarn_status (*release)(int, uintptr_t, driver_stream),
                        int device, driver_stream queue)
{
    struct block block = take(address); /* before another thread can get the address */
    tarn_status status = release(device, (uintptr_t)address, queue);
    mutex_lock(&pools_lock);
    if (block.pool && !status) {
        block.pool->used -= block.size;
        block.pool->taken = block.pool->live || block.pool->used;
    } else if (block.pool) {
        (void)enter_locked(block);
    }
    mutex_unlock(&pools_lock);
    return sim_code(status);
}

cu_pool sim_pool_of(cu_address address)
{
    mutex_lock(&pools_lock);
    const struct block *block = address ? find_locked(address) : NULL;
    cu_pool pool = block ? block->pool : NULL;
    mutex_unlock(&pools_lock);
    return pool;
}

/* ---- Allocations ---- */

/* A request on a capturing stream is refused; the real driver would make a node of it. */
static cu_result alloc(const char *call, cu_address *address, size_t size, cu_pool pool,
                       cu_stream stream)
{
    int device;
    driver_stream queue;
    uintptr_t result = 0;
    cu_result code = sim_enter(call, &device);
    if (!code)
        code = sim_stream(stream, &device, &queue);
    if (code)
        return code;
    mutex_lock(&pools_lock);
    if (!pool)
        pool = current[device] ? current[device] : default_locked(device);
    /* unlike in the real driver, the pool must be of the stream's device */
    bool there = is_live_locked(pool) && pool->device == device;
    mutex_unlock(&pools_lock);
    if (!address || !size || !there)
        return CU_INVALID_VALUE;
    code = sim_code(driver->alloc_async(device, size, queue, &result));
    if (code)
        return code;
    mutex_lock(&pools_lock);
    note_locked(pool, result, size);
    mutex_unlock(&pools_lock);
    *address = result;
    return CU_OK;
}

cu_result cuMemAllocAsync(cu_address *address, size_t size, cu_stream stream)
{
    return alloc("cuMemAllocAsync", address, size, NULL, stream);
}

cu_result cuMemAllocFromPoolAsync(cu_address *address, size_t size, cu_pool pool, cu_stream stream)
{
    return pool ? alloc("cuMemAllocFromPoolAsync", address, size, pool, stream) : CU_INVALID_VALUE;
}

/* A free on a capturing stream is refused too, with the capture's code, and the block stays its
 * pool's. */
cu_result cuMemFreeAsync(cu_address address, cu_stream stream)
{
    int device;
    driver_stream queue;
    cu_result code = sim_enter("cuMemFreeAsync", &device);
    if (!code)
        code = sim_stream(stream, &device, &queue);
    return code ? code : sim_pool_free(address, driver->free_async, device, queue);
}

static cu_stream per_thread(cu_stream stream)
{
    return stream ? stream : CU_THREADS_STREAM;
}

cu_result cuMemAllocAsync_ptsz(cu_address *address, size_t size, cu_stream stream)
{
    return cuMemAllocAsync(address, size, per_thread(stream));
}

cu_result cuMemAllocFromPoolAsync_ptsz(cu_address *address, size_t size, cu_pool pool,
                                       cu_stream stream)
{
    return cuMemAllocFromPoolAsync(address, size, pool, per_thread(stream));
}

cu_result cuMemFreeAsync_ptsz(cu_address address, cu_stream stream)
{
    return cuMemFreeAsync(address, per_thread(stream));
}

cu_result cuEventRecord_ptsz(cu_event event, cu_stream stream)
{
    return cuEventRecord(event, per_thread(stream));
}

cu_result cuStreamIsCapturing_ptsz(cu_stream stream, cu_capture_status *state)
{
    return cuStreamIsCapturing(per_thread(stream), state);
}

cu_result cuStreamSynchronize_ptsz(cu_stream stream)
{
    return cuStreamSynchronize(per_thread(stream));
}

/* ---- Pools ---- */

static cu_result check_device(const char *call, int device)
{
    int count = 0;
    cu_result code = sim_enter_process(call);
    if (code)
        return code;
    return driver->device_count(&count) || device < 0 || device >= count ? CU_INVALID_DEVICE
                                                                         : CU_OK;
}

cu_result cuDeviceGetDefaultMemPool(cu_pool *pool, cu_device device)
{
    cu_result code = check_device("cuDeviceGetDefaultMemPool", device);
    if (code || !pool)
        return code ? code : CU_INVALID_VALUE;
    mutex_lock(&pools_lock);
    *pool = default_locked(device);
    mutex_unlock(&pools_lock);
    return CU_OK;
}

cu_result cuDeviceGetMemPool(cu_pool *pool, cu_device device)
{
    cu_result code = cuDeviceGetDefaultMemPool(pool, device);
    mutex_lock(&pools_lock);
    if (!code && current[device])
        *pool = current[device];
    mutex_unlock(&pools_lock);
    return code;
}

cu_result cuDeviceSetMemPool(cu_device device, cu_pool pool)
{
    cu_result code = check_device("cuDeviceSetMemPool", device);
    if (code)
        return code;
    mutex_lock(&pools_lock);
    if (is_live_locked(pool) && pool->device == device)
        current[device] = pool;
    else
        code = CU_INVALID_VALUE;
    mutex_unlock(&pools_lock);
    return code;
}

cu_result cuMemPoolCreate(cu_pool *pool, const struct cu_pool_properties *properties)
{
    if (!pool || !properties)
        return CU_INVALID_VALUE;
    cu_result code = check_device("cuMemPoolCreate", properties->location.id);
    if (code)
        return code;
    if (properties->type != CU_ALLOCATION_PINNED ||
        properties->location.type != CU_LOCATION_DEVICE || properties->handle_types ||
        properties->most)
        return CU_INVALID_VALUE;
    mutex_lock(&pools_lock);
    code = CU_OUT_OF_MEMORY;
    for (int i = TARN_MAX_DEVICES; i < POOLS && code; i++)
        if (!pools[i].taken) {
            pools[i] = (struct CUmemPoolHandle_st){.taken = true,
                                                   .live = true,
                                                   .device = properties->location.id,
                                                   .reuse = {true, true, true}};
            *pool = &pools[i];
            code = CU_OK;
        }
    mutex_unlock(&pools_lock);
    return code;
}

cu_result cuMemPoolDestroy(cu_pool pool)
{
    cu_result code = sim_enter_process("cuMemPoolDestroy");
    if (code)
        return code;
    mutex_lock(&pools_lock);
    if (!is_live_locked(pool) || pool < &pools[TARN_MAX_DEVICES]) {
        code = CU_INVALID_VALUE;
    } else {
        pool->live = false;
        pool->taken = pool->used > 0;
        if (current[pool->device] == pool)
            current[pool->device] = NULL;
    }
    mutex_unlock(&pools_lock);
    return code;
}

cu_result cuMemPoolTrimTo(cu_pool pool, size_t keep)
{
    cu_result code = sim_enter_process("cuMemPoolTrimTo");
    (void)keep;
    mutex_lock(&pools_lock);
    bool there = is_live_locked(pool);
    mutex_unlock(&pools_lock);
    return code || there ? code : CU_INVALID_VALUE;
}

cu_result cuMemPoolGetAttribute(cu_pool pool, unsigned attribute, void *value)
{
    cu_result code = sim_enter_process("cuMemPoolGetAttribute");
    if (code)
        return code;
    mutex_lock(&pools_lock);
    if (!is_live_locked(pool) || !value || attribute < REUSE_FIRST || attribute > USED_HIGH) {
        code = CU_INVALID_VALUE;
    } else if (attribute <= REUSE_LAST) {
        *(int *)value = pool->reuse[attribute - REUSE_FIRST];
    } else {
        *(uint64_t *)value = attribute == THRESHOLD       ? pool->threshold
                             : attribute == RESERVED_HIGH ? pool->most
                             : attribute == USED_HIGH     ? pool->high
                                                          : pool->used;
    }
    mutex_unlock(&pools_lock);
    return code;
}

cu_result cuMemPoolSetAttribute(cu_pool pool, unsigned attribute, void *value)
{
    cu_result code = sim_enter_process("cuMemPoolSetAttribute");
    if (code)
        return code;
    mutex_lock(&pools_lock);
    if (!is_live_locked(pool) || !value || attribute < REUSE_FIRST || attribute > USED_HIGH ||
        attribute == RESERVED || attribute == USED)
        code = CU_INVALID_VALUE;
    else if (attribute <= REUSE_LAST)
        pool->reuse[attribute - REUSE_FIRST] = *(const int *)value;
    else if (attribute == THRESHOLD)
        pool->threshold = *(const uint64_t *)value;
    else
        *(attribute == USED_HIGH ? &pool->high : &pool->most) = pool->used;
    mutex_unlock(&pools_lock);
    return code;
}

/* Stores the access and does not enforce it: the memory is the host's, which every device reaches.
 * The pool's own device cannot lose its access. */
cu_result cuMemPoolSetAccess(cu_pool pool, const struct cu_access *access, size_t count)
{
    cu_result code = sim_enter_process("cuMemPoolSetAccess");
    for (size_t i = 0; !code && access && i < count; i++)
        code = access[i].location.type == CU_LOCATION_DEVICE
                   ? check_device("cuMemPoolSetAccess", access[i].location.id)
                   : CU_INVALID_VALUE;
    if (code || (count && !access))
        return code ? code : CU_INVALID_VALUE;
    mutex_lock(&pools_lock);
    if (!is_live_locked(pool))
        code = CU_INVALID_VALUE;
    for (size_t i = 0; !code && i < count; i++)
        if (access[i].location.id == pool->device && access[i].flags != CU_ACCESS_READ_WRITE)
            code = CU_INVALID_VALUE;
    for (size_t i = 0; !code && i < count; i++)
        pool->reached[access[i].location.id] = access[i].flags == CU_ACCESS_READ_WRITE;
    mutex_unlock(&pools_lock);
    return code;
}

cu_result cuMemPoolGetAccess(unsigned *flags, cu_pool pool, struct cu_location *location)
{
    cu_result code = location ? check_device("cuMemPoolGetAccess", location->id) : CU_INVALID_VALUE;
    if (code || !flags || location->type != CU_LOCATION_DEVICE)
        return code ? code : CU_INVALID_VALUE;
    mutex_lock(&pools_lock);
    if (is_live_locked(pool))
        *flags =
            location->id == pool->device || pool->reached[location->id] ? CU_ACCESS_READ_WRITE : 0;
    else
        code = CU_INVALID_VALUE;
    mutex_unlock(&pools_lock);
    return code;
}
