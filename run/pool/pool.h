/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* --pool: plain and stream-ordered allocations up to a size come from tarn's pools, whose segments
 * are the driver's. What the program can observe of a block is as if it were an allocation of its
 * own; what cannot be kept so is passed on. The shim without pools has none of this, and calls that
 * do nothing.
 *
 * tarn is in the shim as it is in a program, with all its names hidden, and with its host device
 * for a driver: it keeps the books of addresses, and never calls CUDA (a drawing: docs/run.md).
 * Segments are allocated and freed by the shim, on the thread whose call needs them. A plain block
 * is free only when the work that may use it has ended, so no block waits for a stream.
 * Stream-ordered blocks are in pools of their stream: lane.h. */
#ifndef TARN_RUN_POOL_H
#define TARN_RUN_POOL_H

#include "../shim.h"

#ifndef TARN_RUN_HIP
/* For memory in the order of a stream. */
struct ordered_request {
    size_t size;
    unsigned source; /* the number of the driver's pool that it is from; 0: one that is not known */
    unsigned device;
    cu_context context; /* the current one, of that device; NULL: not asked for yet */
    cu_stream stream;
    bool per_thread;
    void *caller;
};
#endif

#ifdef TARN_RUN_POOL

/* The largest block that is pooled, if any is. Once, before the shim is awake. */
void pool_begin(void);

/* A block for a request of the current context; false where it is to be passed on. */
bool pool_alloc(cu_address *address, size_t size, unsigned device, cu_context context,
                void *caller);
/* One for a request in the order of a stream. */
bool pool_alloc_ordered(cu_address *address, const struct ordered_request *request);
/* The number of a pool of the driver, from which blocks may be cut; of that which a device's own
 * requests come from. 0: none. */
unsigned pool_source(cu_pool pool, unsigned device);
unsigned pool_source_of_device(unsigned device);
/* Of a pool that no hook has told: the device's own, by another call. */
unsigned pool_source_known(cu_pool pool, unsigned device);
bool pool_can_be_source(const struct cu_pool_properties *properties);
/* A block of one that the driver served, or its free. */
void pool_passes(unsigned source, int64_t bytes);
/* One is about to be destroyed, and was. */
void pool_source_leaves(cu_pool pool);
void pool_source_gone(cu_pool pool);

/* The free of a pooled block, which was taken out: waits as the driver's would, and gives the code
 * that it would. */
cu_result pool_free(const struct block *block);
cu_result pool_free_async(const struct block *block, cu_stream stream, bool per_thread);
/* Whether an address that begins no live block lies in a segment: the driver must not be given it
 * to free. */
bool pool_owns(cu_address address);

/* Gives the driver what no block is in; false where there was nothing. Never during a capture. */
bool pool_trim(unsigned device);
/* Bytes that pool_trim() would give back. */
uint64_t pool_idle(unsigned device);
/* The same of what pools of the driver gave for it, which is theirs when it was given back. */
uint64_t pool_idle_ordered(unsigned device);

/* What the driver said of a request that it was passed, or with NO_DEVICE of a wait. After work has
 * failed all requests are passed, so that the driver says so, until it serves one. */
void pool_heard(unsigned device, cu_result code);

/* The primary context of a device may end now: nothing is pooled meanwhile. Then it has, or has
 * not. */
void pool_leave(cu_device device);
void pool_stay(cu_device device);
void pool_gone(cu_device device);
/* A block that went with its context and was taken out. */
void pool_forget(const struct block *block);

/* Nothing more is pooled; the first reason counts. Blocks that are handed out stay valid. */
void pool_end(const char *why);
/* A request for memory that other processes can open. */
void pool_sees_handles(unsigned kinds);
/* Whether there is still no reason to end: looks at what libraries the process has, when there are
 * new ones. */
bool pool_may_go_on(void);

/* Captures that the program has open. During one nothing is pooled. */
bool pool_captures(void);
/* Whether one may be open that was not seen to begin, or is. */
bool pool_may_capture(void);
void captures_begin(void); /* once, before the first of these */

/* What an address lies in. */
enum pool_place { POOL_NONE, POOL_BLOCK, POOL_BETWEEN }; /* a segment, but no live block of it */
enum pool_place pool_find(cu_address address, struct block *block);
/* Gives it an id, if it has none, and sets whether SYNC_MEMOPS is on, unless `synced` is NULL. */
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
