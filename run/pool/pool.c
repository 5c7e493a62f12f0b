/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What becomes of requests and frees under --pool. Each device has one pool of tarn, for its
 * primary context. Invariants: tarn has a block exactly while the shim's table has it as pooled, or
 * while a thread is between the two steps. Only segments.c asks the driver to free an address of a
 * segment. */
#include "../lock.h"
#include "lane.h"
#include "segments.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tarn/host.h>
#include <tarn/pool.h>

enum { LATE_FIRST = 1024 };
/* the memory that tarn's host device reports; nothing is ever taken from it */
#define HOST_MEMORY ((size_t)64 << 20)

/* The pool of each device. It is used while the device's primary context is current. */
static struct {
    _Atomic(tarn_pool *) pool; /* NULL: not created yet, or nothing is pooled now */
    _Atomic(cu_context) context;
    tarn_pool *left; /* the pool between pool_leave() and pool_stay() or pool_gone() */
    /* work on the device has failed, and the driver has served no request since */
    _Atomic bool fails;
    pthread_mutex_t making;
} devices[BOOK_DEVICES];

/* A late block: the program has freed it, and work may still use it. */
struct late_block {
    /* behind the work that may use it. NULL: reusable after the next wait for the context, or when
     * the context ends */
    cu_event event;
    cu_address address;
    uint64_t turn; /* if there is no event: only a wait that began at or after this turn counts */
    unsigned device;
    unsigned event_device; /* the device whose context's end also ends the event */
};
static struct {
    struct word_lock lock;
    _Atomic unsigned count;
    unsigned first, room;    /* a ring buffer; room: a power of two, or 0 */
    struct late_block *list; /* from mmap */
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
    const tarn_host_configuration host = {
        .size = sizeof host, .devices = BOOK_DEVICES, .memory = HOST_MEMORY};
    for (unsigned i = 0; i < BOOK_DEVICES; i++)
        pthread_mutex_init(&devices[i].making, NULL);
    book->pool = most;
    captures_begin();
    if (!most)
        return;
    if (tarn_host_configuration_set(&host))
        pool_end("tarn could not be started");
    else if (!real.cuCtxSynchronize || !real.cuCtxPushCurrent_v2 || !real.cuCtxPopCurrent_v2 ||
             !real.cuDevicePrimaryCtxRetain || !real.cuDevicePrimaryCtxGetState ||
             !real.cuCtxGetCurrent)
        pool_end("the driver lacks calls that it takes");
}

void pool_end(const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!book->pool || atomic_load_explicit(&book->pool_ended, memory_order_relaxed) ||
        atomic_flag_test_and_set(&said))
        return;
    strncpy(book->pool_why, why, sizeof book->pool_why - 1);
    atomic_store(&book->pool_ended, 1);
}

void pool_sees_handles(unsigned kinds)
{
    if (kinds)
        pool_end("memory that other processes can open was asked for");
}

/* Late blocks --------------------------------------------------------------------------------- */

static struct late_block *late_at_locked(unsigned index)
{
    return &late.list[(late.first + index) & (late.room - 1)];
}

static bool late_grow_locked(void)
{
    unsigned room = late.room ? 2 * late.room : LATE_FIRST;
    struct late_block *list =
        mmap(NULL, room * sizeof *list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED)
        return false;
    for (unsigned i = 0; i < late.room; i++)
        list[i] = *late_at_locked(i);
    if (late.room)
        munmap(late.list, late.room * sizeof *list);
    late.list = list;
    late.room = room;
    late.first = 0;
    return true;
}

static bool late_add(const struct late_block *block)
{
    word_lock_take(&late.lock);
    unsigned count = atomic_load(&late.count);
    bool there = count < late.room || late_grow_locked();
    if (there) {
        *late_at_locked(count) = *block;
        atomic_store(&late.count, count + 1);
    }
    word_lock_give(&late.lock);
    return there;
}

/* Removes the first one. */
static bool late_take(struct late_block *block)
{
    word_lock_take(&late.lock);
    unsigned count = atomic_load(&late.count);
    if (count) {
        *block = *late_at_locked(0);
        late.first = (late.first + 1) & (late.room - 1);
        atomic_store(&late.count, count - 1);
    }
    word_lock_give(&late.lock);
    return count > 0;
}

bool late_is_any(void)
{
    return atomic_load_explicit(&late.count, memory_order_relaxed) > 0;
}

/* Frees late blocks whose work has ended, from the first on. The first whose work has not ended
 * goes to the end of the list, and ends the look. */
void late_look(void)
{
    struct late_block block;
    if (!atomic_load_explicit(&late.count, memory_order_relaxed))
        return;
    cu_capture_mode mode = mode_relax();
    bool ended = true, any = false;
    while (ended && late_take(&block)) {
        ended = block.event && real.cuEventQuery(block.event) != CU_NOT_READY;
        if (!ended) {
            (void)late_add(&block);
            break;
        }
        (void)real.cuEventDestroy_v2(block.event);
        give_back(block.address);
        any = true;
    }
    mode_restore(mode);
    if (any)
        lanes_freed();
    if (sources_are_closing())
        lanes_trim_closed();
}

/* Frees the late blocks whose context has gone, and those whose event went with the context. */
static void late_end(unsigned device)
{
    struct late_block block;
    for (unsigned left = atomic_load(&late.count); left && late_take(&block); left--) {
        bool has_event = block.event && block.event_device != device;
        if (block.device != device && (has_event || !block.event)) {
            (void)late_add(&block);
            continue;
        }
        if (has_event)
            (void)PASS(cuEventDestroy_v2, (block.event));
        give_back(block.address);
    }
    lanes_freed();
}

void late_waited(unsigned device, uint64_t turn)
{
    struct late_block block;
    bool any = false;
    for (unsigned left = atomic_load(&late.count); left && late_take(&block); left--)
        if (!block.event && block.device == device && block.turn <= turn) {
            give_back(block.address);
            any = true;
        } else {
            (void)late_add(&block);
        }
    if (any)
        lanes_freed();
}

/* Contexts ------------------------------------------------------------------------------------- */

bool context_enter(cu_context context, bool *pushed)
{
    cu_context current = NULL;
    *pushed = false;
    if (real.cuCtxGetCurrent(&current))
        return false;
    *pushed = current != context;
    return !*pushed || real.cuCtxPushCurrent_v2(context) == CU_OK;
}

void context_leave(bool pushed)
{
    cu_context popped;
    if (pushed)
        (void)real.cuCtxPopCurrent_v2(&popped);
}

cu_capture_mode mode_relax(void)
{
    cu_capture_mode mode = CU_MODE_RELAXED;
    if (real.cuThreadExchangeStreamCaptureMode && real.cuThreadExchangeStreamCaptureMode(&mode))
        mode = CU_MODE_RELAXED;
    return mode;
}

void mode_restore(cu_capture_mode mode)
{
    if (mode != CU_MODE_RELAXED)
        (void)real.cuThreadExchangeStreamCaptureMode(&mode);
}

tarn_pool *pool_create(unsigned device, unsigned lane)
{
    const tarn_pool_allocator allocator = {.size = sizeof allocator,
                                           .alloc = segment_alloc,
                                           .free = segment_free,
                                           .user = (void *)(uintptr_t)lane};
    const tarn_pool_options options = {
        .size = sizeof options, .device = (int)device, .allocator = &allocator};
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
    if (!pool && !devices[device].left) {
        pool = pool_create(device, 0);
        if (pool) {
            atomic_store(&devices[device].context, context);
            atomic_store_explicit(&devices[device].pool, pool, memory_order_release);
        }
    }
    pthread_mutex_unlock(&devices[device].making);
    return pool;
}

static bool fails(unsigned device)
{
    return atomic_load_explicit(&devices[device].fails, memory_order_relaxed);
}

static tarn_pool *pool_of(unsigned device, cu_context context)
{
    tarn_pool *pool = atomic_load_explicit(&devices[device].pool, memory_order_acquire);
    if (fails(device))
        return NULL;
    if (!pool)
        return make(device, context);
    return atomic_load_explicit(&devices[device].context, memory_order_relaxed) == context ? pool
                                                                                           : NULL;
}

bool pool_is_of(unsigned device, cu_context context)
{
    return pool_of(device, context) != NULL;
}

/* True for errors that say that work on the device failed: CUDA_ERROR_ECC_UNCORRECTABLE,
 * _NVLINK_UNCORRECTABLE, _CONTAINED, _UNKNOWN, and all from _ILLEGAL_ADDRESS to 899. An error that
 * is wrongly among them costs one more call of the driver. */
static bool is_of_work(cu_result code)
{
    return code == 214 || code == 220 || code == 226 || (code >= 700 && code < 900) || code == 999;
}

/* Notes the result of a call on a device. After a wait the device is NO_DEVICE: the wait does not
 * say whose work failed, so the result counts for all devices. */
void pool_heard(unsigned device, cu_result code)
{
    bool bad = is_of_work(code);
    if (!book->pool || (device >= book->devices && !bad))
        return;
    for (unsigned i = 0; i < book->devices; i++)
        if ((i == device || device >= book->devices) && fails(i) != bad && (bad || !code))
            atomic_store_explicit(&devices[i].fails, bad, memory_order_relaxed);
}

void pool_leave(cu_device device)
{
    if (!book->pool || device < 0 || (unsigned)device >= book->devices)
        return;
    if (!pool_captures())
        lanes_trim(0, (unsigned)device);
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

/* Call it when a primary context has gone. The caller then takes the blocks out of the table and
 * forgets them one by one. The pool ends with the last block. */
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
    lanes_end((unsigned)device);
    sources_end((unsigned)device);
}

void pool_forget(const struct block *block)
{
    if (block->owner)
        source_block(lane_source(block->owner), -(int64_t)block->size);
    give_back(block->key);
    if (block->owner)
        lane_freed(block->owner);
    if (sources_are_closing() && !pool_captures())
        lanes_trim_closed();
}

/* Blocks --------------------------------------------------------------------------------------- */

bool pool_alloc(cu_address *address, size_t size, unsigned device, cu_context context, void *caller)
{
    if (size > book->pool || atomic_load_explicit(&book->pool_ended, memory_order_relaxed) ||
        device >= book->devices || pool_captures() || !pool_may_go_on())
        return false;
    tarn_pool *pool = pool_of(device, context);
    if (!pool)
        return false;
    late_look();
    struct block block = {.size = size,
                          .context = context,
                          .references = 1,
                          .kind = RUN_PLAIN,
                          .device = (uint8_t)device};
    if (!pool_cut(pool, &block, NULL, caller))
        return false;
    *address = block.key;
    return true;
}

bool pool_cut(tarn_pool *pool, struct block *block, cu_stream stream, void *caller)
{
    void *pointer = NULL;
    if (tarn_pool_alloc(pool, TARN_STREAM_LEGACY, block->size, &pointer) || !pointer)
        return false;
    block->key = (uintptr_t)pointer;
    block->space = SPACE_ADDRESS;
    block->pooled = true;
    if (!charge_pooled(block, stream, caller)) {
        (void)tarn_free(pointer);
        return false;
    }
    segment_count(block->key, 1);
    return true;
}

/* For a free during a capture: the program gets the driver's answer to a real free, and waits as
 * for one. Allocates a small block from the driver for this and frees it. */
static cu_result free_another(void)
{
    cu_address other = 0;
    cu_result code = PASS(cuMemAlloc_v2, (&other, TARN_BLOCK_UNIT));
    return code ? code : PASS(cuMemFree_v2, (other));
}

/* Returns the error of work that has failed, without waiting; CU_OK if there is none. */
static cu_result ask_for_failure(cu_stream stream)
{
    cu_capture_mode mode = mode_relax();
    cu_result code = real.cuStreamQuery ? real.cuStreamQuery(stream) : CU_OK;
    mode_restore(mode);
    return is_of_work(code) ? code : CU_OK;
}

/* Waits as the driver's free does, and returns its error. The block says which context, since a
 * thread without a context can free too. The free of a stream-ordered block does not wait: the
 * program must know that the block's last use has ended. */
static cu_result wait_as_a_free_does(const struct block *block)
{
    bool pushed, captures = pool_captures();
    if (block->owner && !captures && !fails(block->device))
        return CU_OK;
    if (!context_enter(block->owner ? lane_context(block->owner) : block->context, &pushed))
        return CU_INVALID_CONTEXT;
    cu_result code = captures       ? free_another()
                     : block->owner ? ask_for_failure(NULL)
                                    : real.cuCtxSynchronize();
    context_leave(pushed);
    if (code)
        pool_heard(NO_DEVICE, code);
    return code;
}

cu_result pool_free(const struct block *block)
{
    cu_result code = wait_as_a_free_does(block);
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
    return per_thread ? PASS(cuEventRecord_ptsz, (event, stream))
                      : PASS(cuEventRecord, (event, stream));
}

/* Records an event behind a stream's work. block->event is NULL if this fails. */
static cu_result event_behind(struct late_block *block, cu_stream stream, bool per_thread)
{
    cu_context context;
    cu_result code = PASS(cuEventCreate, (&block->event, CU_EVENT_WITHOUT_TIMING));
    block->event_device = current_device(&context);
    if (!code) {
        code = record(block->event, stream, per_thread);
        if (code)
            (void)PASS(cuEventDestroy_v2, (block->event));
    }
    if (code)
        block->event = NULL;
    return code;
}

/* The same with the stream's own context current. An event can be recorded only in the context in
 * which it was created, which may not be the stream's: the caller may be in a peer's context, or in
 * none. */
static cu_result event_elsewhere(struct late_block *block, cu_stream stream, bool per_thread)
{
    bool pushed;
    cu_context context = NULL;
    if ((uintptr_t)stream <= 2 || !real.cuStreamGetCtx || real.cuStreamGetCtx(stream, &context) ||
        !context || !context_enter(context, &pushed))
        return CU_INVALID_HANDLE;
    cu_result code = pushed ? event_behind(block, stream, per_thread) : CU_INVALID_HANDLE;
    context_leave(pushed);
    return code;
}

/* If there can be no event, the block waits for a wait for its context. */
cu_result pool_free_async(const struct block *block, cu_stream stream, bool per_thread)
{
    struct late_block waits = {.address = block->key, .device = block->device};
    cu_result code = fails(block->device) ? ask_for_failure(stream) : CU_OK;
    if (!code && block->owner && lane_is_of(block->owner, stream, per_thread)) {
        charge_free(block, stream);
        pool_forget(block);
        return CU_OK;
    }
    if (!code) {
        code = event_behind(&waits, stream, per_thread);
        if (code == CU_INVALID_HANDLE || code == CU_INVALID_CONTEXT)
            code = event_elsewhere(&waits, stream, per_thread);
    }
    if (code == CU_INVALID_HANDLE || code == CU_INVALID_CONTEXT || is_of_work(code)) {
        pool_heard(NO_DEVICE, code);
        charge_restore(block);
        return code;
    }
    charge_free(block, stream);
    if (block->owner)
        source_block(lane_source(block->owner), -(int64_t)block->size);
    waits.turn = waits.event ? 0 : lanes_turn();
    if (!late_add(&waits) && waits.event)
        (void)PASS(cuEventDestroy_v2, (waits.event));
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

bool pool_note(const struct block *block, const bool *synced, struct block *now)
{
    static _Atomic uint64_t ids = UINT64_C(1) << 63; /* the driver's own ids count from 1 */
    return blocks_note(SPACE_ADDRESS, block->key, atomic_fetch_add(&ids, 1), synced, now);
}

/* Memory --------------------------------------------------------------------------------------- */

/* Returns segments without blocks to the driver. `turn`: of a wait that has ended; 0: there was
 * none. The device's context is current. */
static void give_idle(unsigned device, tarn_pool *pool, uint64_t turn)
{
    late_look();
    (void)tarn_pool_trim(pool, 0);
    lanes_trim(0, device);
    segments_retry(device, turn);
}

/* The last step before a request fails: waits for the context. Only that frees memory of other
 * threads' default streams, and late blocks. */
static void wait_for_memory(unsigned device, tarn_pool *pool)
{
    lanes_take_out(device);
    if (!segments_are_refused(device) && !late_is_any())
        return;
    uint64_t turn = lanes_turn();
    cu_capture_mode mode = mode_relax();
    cu_result code = real.cuCtxSynchronize();
    mode_restore(mode);
    if (code)
        return;
    lanes_after_wait(turn);
    give_idle(device, pool, turn);
}

bool pool_trim(unsigned device)
{
    bool pushed;
    if (!book->pool || device >= book->devices || pool_captures())
        return false;
    tarn_pool *pool = atomic_load(&devices[device].pool);
    uint64_t before = segments_held(device);
    if (!pool || !before || !context_enter(atomic_load(&devices[device].context), &pushed))
        return false;
    give_idle(device, pool, 0);
    wait_for_memory(device, pool);
    sources_settle();
    context_leave(pushed);
    return segments_held(device) < before;
}

static uint64_t idle(unsigned device, bool of_lanes)
{
    if (!book->pool || device >= book->devices)
        return 0;
    if (!pool_captures())
        late_look();
    return segments_idle(device, of_lanes);
}

uint64_t pool_idle(unsigned device)
{
    return idle(device, false);
}

uint64_t pool_idle_ordered(unsigned device)
{
    return idle(device, true);
}
