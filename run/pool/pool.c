/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A pool of tarn's per device, for its primary context, and what becomes of requests and frees. Keeps: a block is tarn's as long as the
 * shim's table has it as pooled, or while one thread is between the two. An address of a segment is never given to the driver to free,
 * except by segments.c. */
#include "pool.h"
#include "../lock.h"
#include "segments.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/host.h>
#include <tarn/pool.h>

#define EVENT_NO_TIMING 2 /* CU_EVENT_DISABLE_TIMING */
enum { LATE_MOST = 1024 };
#define HOST_MEMORY ((size_t)64 << 20) /* that tarn's host device says to have; nothing is ever taken of it */

/* A pool is used where its device's context is current. */
static struct {
    _Atomic(tarn_pool *) pool; /* NULL: none yet, or nothing is pooled now */
    _Atomic(cu_context) context;
    tarn_pool *left; /* by pool_leave() */
    pthread_mutex_t making;
} devices[BOOK_DEVICES];

/* Blocks that are free and cannot be used again yet. */
struct late_block {
    cu_event event; /* behind the work that may use it; NULL: there is none, so it waits for the end of its context */
    cu_address address;
    unsigned device;
};
static struct {
    struct word_lock lock;
    _Atomic unsigned count;
    struct late_block list[LATE_MOST];
} late;

static void give_back(cu_address address)
{
    segment_count(address, -1);
    (void)tarn_free((void *)(uintptr_t)address);
}

void pool_begin(void)
{
    const char *text = getenv(RUN_POOL_VARIABLE);
    uint64_t most = text ? strtoull(text, NULL, 10) : 0;
    const tarn_host_configuration host = {.size = sizeof host, .devices = BOOK_DEVICES, .memory = HOST_MEMORY};
    for (unsigned i = 0; i < BOOK_DEVICES; i++)
        pthread_mutex_init(&devices[i].making, NULL);
    book->pool = most;
    if (!most)
        return;
    if (tarn_host_configuration_set(&host))
        pool_end("tarn could not be started");
    else if (!real.cuCtxSynchronize || !real.cuCtxPushCurrent_v2 || !real.cuCtxPopCurrent_v2 ||
             !real.cuDevicePrimaryCtxRetain || !real.cuDevicePrimaryCtxGetState || !real.cuCtxGetCurrent)
        pool_end("the driver lacks calls that it takes");
}

void pool_end(const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!book->pool || atomic_load_explicit(&book->pool_ended, memory_order_relaxed) || atomic_flag_test_and_set(&said))
        return;
    strncpy(book->pool_why, why, sizeof book->pool_why - 1);
    atomic_store(&book->pool_ended, 1);
}

void pool_sees_handles(unsigned kinds)
{
    if (kinds)
        pool_end("memory that other processes can open was asked for");
}

/* Blocks that were freed in the order of a stream ------------------------------------------------------------------ */

static bool late_add(cu_event event, cu_address address, unsigned device)
{
    word_lock_take(&late.lock);
    unsigned count = atomic_load(&late.count);
    bool there = count < LATE_MOST;
    if (there) {
        late.list[count] = (struct late_block){event, address, device};
        atomic_store(&late.count, count + 1);
    }
    word_lock_give(&late.lock);
    return there;
}

/* Takes out the first, or the first of a device. */
static bool late_take(bool any, unsigned device, struct late_block *block)
{
    word_lock_take(&late.lock);
    unsigned count = atomic_load(&late.count), at = 0;
    while (at < count && !any && late.list[at].device != device)
        at++;
    bool found = at < count;
    if (found) {
        *block = late.list[at];
        memmove(&late.list[at], &late.list[at + 1], (count - at - 1) * sizeof *late.list);
        atomic_store(&late.count, count - 1);
    }
    word_lock_give(&late.lock);
    return found;
}

/* Those whose work has ended, up to the first whose has not, which goes to the end of the list. */
static void late_look(void)
{
    struct late_block block;
    while (atomic_load_explicit(&late.count, memory_order_relaxed) && late_take(true, 0, &block)) {
        if (!block.event || real.cuEventQuery(block.event) == CU_NOT_READY) {
            (void)late_add(block.event, block.address, block.device);
            return;
        }
        (void)real.cuEventDestroy_v2(block.event);
        give_back(block.address);
    }
}

/* Their context has gone, and the events with it. */
static void late_end(unsigned device)
{
    struct late_block block;
    while (late_take(false, device, &block))
        give_back(block.address);
}

/* Contexts --------------------------------------------------------------------------------------------------------- */

/* Makes the device's primary context current, if it is not. */
static bool enter(cu_context context, bool *pushed)
{
    cu_context current = NULL;
    *pushed = false;
    if (real.cuCtxGetCurrent(&current))
        return false;
    *pushed = current != context;
    return !*pushed || real.cuCtxPushCurrent_v2(context) == CU_OK;
}

static void leave(bool pushed)
{
    cu_context popped;
    if (pushed)
        (void)real.cuCtxPopCurrent_v2(&popped);
}

static tarn_pool *create(unsigned device)
{
    const tarn_pool_allocator allocator = {.size = sizeof allocator, .alloc = segment_alloc, .free = segment_free};
    const tarn_pool_options options = {.size = sizeof options, .device = (int)device, .allocator = &allocator};
    tarn_pool *pool = NULL;
    if (tarn_pool_create(&options, &pool) == TARN_OK)
        return pool;
    pool_end("tarn made no pool");
    return NULL;
}

static tarn_pool *make(unsigned device, cu_context context)
{
    if (primary_context((int)device) != context)
        return NULL;
    pthread_mutex_lock(&devices[device].making);
    tarn_pool *pool = atomic_load(&devices[device].pool);
    if (!pool && !devices[device].left && (pool = create(device))) {
        atomic_store(&devices[device].context, context);
        atomic_store_explicit(&devices[device].pool, pool, memory_order_release);
    }
    pthread_mutex_unlock(&devices[device].making);
    return pool;
}

static tarn_pool *pool_of(unsigned device, cu_context context)
{
    tarn_pool *pool = atomic_load_explicit(&devices[device].pool, memory_order_acquire);
    if (!pool)
        return make(device, context);
    return atomic_load_explicit(&devices[device].context, memory_order_relaxed) == context ? pool : NULL;
}

void pool_leave(cu_device device)
{
    if (!book->pool || device < 0 || (unsigned)device >= book->devices)
        return;
    pthread_mutex_lock(&devices[device].making);
    tarn_pool *pool = atomic_exchange(&devices[device].pool, NULL);
    devices[device].left = pool ? pool : devices[device].left;
    pthread_mutex_unlock(&devices[device].making);
}

void pool_stay(cu_device device)
{
    if (!book->pool || device < 0 || (unsigned)device >= book->devices)
        return;
    pthread_mutex_lock(&devices[device].making);
    if (devices[device].left)
        atomic_store(&devices[device].pool, devices[device].left);
    devices[device].left = NULL;
    pthread_mutex_unlock(&devices[device].making);
}

/* The blocks are taken out and forgotten one by one after this; the pool goes with the last. */
void pool_gone(cu_device device)
{
    if (!book->pool || device < 0 || (unsigned)device >= book->devices)
        return;
    segments_end((unsigned)device);
    late_end((unsigned)device);
    pthread_mutex_lock(&devices[device].making);
    tarn_pool *pool = devices[device].left;
    devices[device].left = NULL;
    pthread_mutex_unlock(&devices[device].making);
    if (pool)
        (void)tarn_pool_release(pool);
}

void pool_forget(const struct block *block)
{
    give_back(block->key);
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

bool pool_alloc(cu_address *address, size_t size, unsigned device, cu_context context, void *caller)
{
    if (size > book->pool || atomic_load_explicit(&book->pool_ended, memory_order_relaxed) || device >= book->devices ||
        pool_captures() || !pool_may_go_on())
        return false;
    tarn_pool *pool = pool_of(device, context);
    if (!pool)
        return false;
    late_look();
    void *pointer = NULL;
    const tarn_alloc_options options = {
        .size = sizeof options, .device = (int)device, .stream = TARN_STREAM_LEGACY, .pool = pool};
    if (tarn_alloc(&options, size, &pointer) || !pointer)
        return false;
    struct block block = {.key = (uintptr_t)pointer,
                          .size = size,
                          .context = context,
                          .references = 1,
                          .space = SPACE_ADDRESS,
                          .kind = RUN_PLAIN,
                          .device = (uint8_t)device,
                          .pooled = true};
    if (!charge_pooled(&block, caller)) {
        (void)tarn_free(pointer);
        return false;
    }
    segment_count(block.key, 1);
    *address = block.key;
    return true;
}

/* What the driver's free would say, and wait for, during a capture: it is asked to free a block that was made for that. */
static cu_result free_another(void)
{
    cu_address other = 0;
    cu_result code = PASS(cuMemAlloc_v2, (&other, TARN_BLOCK_UNIT));
    return code ? code : PASS(cuMemFree_v2, (other));
}

/* The driver finds the context by the address, so that a thread without one can free too. */
static cu_result wait_as_a_free_does(cu_context context)
{
    bool pushed;
    if (!enter(context, &pushed))
        return CU_INVALID_CONTEXT;
    cu_result code = pool_captures() ? free_another() : real.cuCtxSynchronize();
    leave(pushed);
    return code;
}

cu_result pool_free(const struct block *block)
{
    cu_result code = wait_as_a_free_does(block->context);
    if (code) {
        charge_restore(block);
        return code;
    }
    charge_free(block, NULL);
    pool_forget(block);
    return CU_OK;
}

static cu_result record(cu_event event, cu_stream stream, bool per_thread)
{
    return per_thread ? PASS(cuEventRecord_ptsz, (event, stream)) : PASS(cuEventRecord, (event, stream));
}

/* A stream that captures gets the driver's own refusal: of an address at which nothing of its own begins. Without a place for
 * an event the block is nobody's until its context ends. */
cu_result pool_free_async(const struct block *block, cu_stream stream, bool per_thread)
{
    cu_event event = NULL;
    if (pool_captures() && stream_captures(stream, per_thread)) {
        charge_restore(block);
        cu_address none = block->key + 1;
        return per_thread ? PASS(cuMemFreeAsync_ptsz, (none, stream)) : PASS(cuMemFreeAsync, (none, stream));
    }
    cu_result code = PASS(cuEventCreate, (&event, EVENT_NO_TIMING));
    if (!code && (code = record(event, stream, per_thread))) {
        (void)PASS(cuEventDestroy_v2, (event));
        event = NULL;
    }
    if (code == CU_INVALID_HANDLE || code == CU_INVALID_CONTEXT) {
        charge_restore(block);
        return code;
    }
    charge_free(block, stream);
    if (!late_add(event, block->key, block->device) && event)
        (void)PASS(cuEventDestroy_v2, (event));
    return CU_OK;
}

bool pool_owns(cu_address address)
{
    return book->pool && segment_has(address);
}

enum pool_place pool_find(cu_address address, struct block *block)
{
    tarn_block_info info = {.size = sizeof info};
    if (!book->pool || !segment_has(address))
        return POOL_NONE;
    if (tarn_pointer_info_get((const void *)(uintptr_t)address, &info) ||
        !blocks_find(SPACE_ADDRESS, (uintptr_t)info.base, block) || !block->pooled ||
        address - block->key >= block->size)
        return POOL_BETWEEN;
    return POOL_BLOCK;
}

bool pool_note(const struct block *block, const struct block *notes, struct block *now)
{
    static _Atomic uint64_t ids = UINT64_C(1) << 63; /* the driver counts from 1 */
    return blocks_note(SPACE_ADDRESS, block->key, atomic_fetch_add(&ids, 1), notes, now);
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

bool pool_trim(unsigned device)
{
    bool pushed;
    if (!book->pool || device >= book->devices || pool_captures())
        return false;
    tarn_pool *pool = atomic_load(&devices[device].pool);
    uint64_t before = segments_held(device);
    if (!pool || !before || !enter(atomic_load(&devices[device].context), &pushed))
        return false;
    late_look();
    (void)tarn_pool_trim(pool, 0);
    segments_retry(device);
    leave(pushed);
    return segments_held(device) < before;
}

uint64_t pool_idle(unsigned device)
{
    if (!book->pool || device >= book->devices)
        return 0;
    if (!pool_captures())
        late_look();
    return segments_idle(device);
}
