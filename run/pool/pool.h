/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* --pool: plain and stream-ordered allocations up to a size come from tarn's pools. The pools get
 * their segments from the driver. To the program a block looks like an allocation of its own. A
 * request for which that cannot be kept up is passed on to the driver. A shim that is built without
 * pools has stubs for these calls.
 *
 * The shim contains a whole tarn, with all its names hidden, whose driver is the host device: it
 * does the bookkeeping of addresses, reads no environment variable, and never calls CUDA. The shim
 * allocates and frees the segments, on the thread whose call needs them (segments.c). A plain block
 * becomes free only when the work that may use it has ended, so tarn needs no stream for it.
 * Stream-ordered blocks are in pools of their stream: lane.h. */
#ifndef TARN_RUN_POOL_H
#define TARN_RUN_POOL_H

#include "../shim.h"

#ifndef TARN_RUN_HIP
/* A stream-ordered request. */
struct ordered_request {
    size_t size;
    /* number of the driver's pool that it is from; 0: a pool that the shim does not know */
    unsigned source;
    unsigned device;
    cu_context context; /* the current context, which is of `device`; NULL: not asked for yet */
    cu_stream stream;
    bool per_thread;
    void *caller;
};
#endif

#ifdef TARN_RUN_POOL

/* Reads from the environment up to what size blocks are pooled. Called once, before the shim is
 * awake. */
void pool_begin(void);

/* Serves a request from the pool of the current context. False: pass the request on. */
bool pool_alloc(cu_address *address, size_t size, unsigned device, cu_context context,
                void *caller);
/* The same for a stream-ordered request, from a lane. */
bool pool_alloc_ordered(cu_address *address, const struct ordered_request *request);
/* Number of a pool of the driver, as a source of blocks (lane.h); and of the one that serves a
 * device's requests which name no pool. 0: blocks cannot be cut from it. */
unsigned pool_source(cu_pool pool, unsigned device);
unsigned pool_source_of_device(unsigned device);
/* Number of a pool that was not seen to be created: found only if it is the pool of
 * pool_source_of_device(). */
unsigned pool_source_known(cu_pool pool, unsigned device);
bool pool_can_be_source(const struct cu_pool_properties *properties);
/* The driver itself served, or freed, a block of a source. */
void pool_passes(unsigned source, int64_t bytes);
/* Before and after the driver destroys a pool. */
void pool_source_leaves(cu_pool pool);
void pool_source_gone(cu_pool pool);

/* Frees a pooled block that was taken out of the table. Waits as the driver's free would, and
 * returns the code that it would. pool_free_async(): in the order of a stream, without a wait. */
cu_result pool_free(const struct block *block);
cu_result pool_free_async(const struct block *block, cu_stream stream, bool per_thread);
/* True if an address lies in a segment. Unless a live block begins there, the driver must not be
 * asked to free it. */
bool pool_owns(cu_address address);

/* Returns segments without blocks to the driver; may wait. False if there were none. Does nothing
 * during a capture. */
bool pool_trim(unsigned device);
/* Bytes of plain segments without blocks. */
uint64_t pool_idle(unsigned device);
/* Bytes of lanes' segments without blocks. Once returned, they belong to the driver's pools. */
uint64_t pool_idle_ordered(unsigned device);

/* Reports the driver's answer to a request that was passed on, or with NO_DEVICE to a wait. After
 * an answer that says that work has failed, every request is passed on, so that the program gets
 * the driver's error, until the driver serves one. */
void pool_heard(unsigned device, cu_result code);

/* pool_leave(): the primary context of a device may end now; nothing is pooled until the next call.
 * pool_stay(): it did not end. pool_gone(): it has ended. */
void pool_leave(cu_device device);
void pool_stay(cu_device device);
void pool_gone(cu_device device);
/* Frees a pooled block that charge_drop() or a free has taken out of the table. */
void pool_forget(const struct block *block);

/* Ends pooling for good; the first reason is kept. Live blocks stay valid. */
void pool_end(const char *why);
/* Ends pooling if `kinds` is not 0: the program asked for memory that other processes can open. */
void pool_sees_handles(unsigned kinds);
/* False once pooling has ended. Reads the list of loaded libraries if it has changed. */
bool pool_may_go_on(void);

/* True while the program has a capture open. Nothing is pooled meanwhile. */
bool pool_captures(void);
/* The same, and always true for a driver that can begin captures which no hook sees. */
bool pool_may_capture(void);
void captures_begin(void); /* called once, before the two above */

/* Where an address lies: in no segment, in a live block, or in a segment but in no live block. */
enum pool_place { POOL_NONE, POOL_BLOCK, POOL_BETWEEN }; /* a segment, but no live block of it */
enum pool_place pool_find(cu_address address, struct block *block);
/* Gives a block an id, if it has none. Unless `synced` is NULL, stores whether SYNC_MEMOPS is on
 * for it. *now: the block after that. */
bool pool_note(const struct block *block, const bool *synced, struct block *now);

#else

static inline bool pool_trim(unsigned device)
{
    (void)device;
    return false;
}

static inline void pool_forget(const struct block *block)
{
    (void)block;
}

#ifndef TARN_RUN_HIP
static inline void pool_begin(void) {}

static inline bool pool_may_capture(void)
{
    return true;
}

static inline bool pool_alloc(cu_address *address, size_t size, unsigned device, cu_context context,
                              void *caller)
{
    (void)address, (void)size, (void)device, (void)context, (void)caller;
    return false;
}

static inline bool pool_alloc_ordered(cu_address *address, const struct ordered_request *request)
{
    (void)address, (void)request;
    return false;
}

static inline unsigned pool_source(cu_pool pool, unsigned device)
{
    (void)pool, (void)device;
    return 0;
}

static inline unsigned pool_source_of_device(unsigned device)
{
    (void)device;
    return 0;
}

static inline unsigned pool_source_known(cu_pool pool, unsigned device)
{
    (void)pool, (void)device;
    return 0;
}

static inline bool pool_can_be_source(const struct cu_pool_properties *properties)
{
    (void)properties;
    return false;
}

static inline void pool_passes(unsigned source, int64_t bytes)
{
    (void)source, (void)bytes;
}

static inline void pool_source_leaves(cu_pool pool)
{
    (void)pool;
}

static inline void pool_source_gone(cu_pool pool)
{
    (void)pool;
}

static inline cu_result pool_free(const struct block *block)
{
    (void)block;
    return CU_INVALID_VALUE;
}

static inline cu_result pool_free_async(const struct block *block, cu_stream stream,
                                        bool per_thread)
{
    (void)block, (void)stream, (void)per_thread;
    return CU_INVALID_VALUE;
}

static inline bool pool_owns(cu_address address)
{
    (void)address;
    return false;
}

static inline uint64_t pool_idle(unsigned device)
{
    (void)device;
    return 0;
}

static inline uint64_t pool_idle_ordered(unsigned device)
{
    (void)device;
    return 0;
}

static inline void pool_heard(unsigned device, cu_result code)
{
    (void)device, (void)code;
}

static inline void pool_leave(cu_device device)
{
    (void)device;
}

static inline void pool_stay(cu_device device)
{
    (void)device;
}

static inline void pool_gone(cu_device device)
{
    (void)device;
}

static inline void pool_end(const char *why)
{
    (void)why;
}

static inline void pool_sees_handles(unsigned kinds)
{
    (void)kinds;
}
#endif
#endif

#endif
