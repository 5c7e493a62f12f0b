/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Registers the segments of a registrable or kept pool with NCCL, each once per communicator, as a
 * local buffer or as a window. Header-only: it is compiled with NCCL's <nccl.h>, and links to
 * nothing that the program does not link to already.
 *
 *     tarn_pool_options options = {.size = sizeof options, .device = device, .registrable = true};
 *     tarn_pool_create(&options, &pool);
 *     tarn_pool_alloc(pool, stream, bytes, &buffer);
 *
 *     tarn_nccl registered;
 *     tarn_nccl_begin(&registered, comm, pool, TARN_NCCL_WINDOW, NCCL_WIN_COLL_SYMMETRIC);
 *     tarn_nccl_register(&registered);                  between two steps, on every rank
 *     ncclAllReduce(buffer, buffer, ...);
 *     tarn_nccl_deregister(&registered);                on every rank, when no collective runs
 *
 * With tarn_nccl_sleeper_add() all this sleeps with the process: tarn_sleep() deregisters, and
 * tarn_wake() registers again (tarn/sleep.h).
 *
 * NCCL keeps its own handles to registered memory. If that memory were unmapped, it would stay
 * allocated, and collectives would go on using it. So a registered segment is anchored: no trim,
 * shortage, compaction or suspend touches it until tarn_nccl_deregister().
 *
 * Memory is registered only in these calls, in the calling thread. Windows are collective: every
 * rank must make the same calls in the same order, while no collective runs. If all ranks allocate
 * alike, the pool has the same segments on all of them (tarn/pool.h).
 *
 * A tarn_nccl belongs to one communicator and is used by one thread at a time. Each function
 * returns a tarn_status. With TARN_ERROR_LIBRARY, `result` is what NCCL returned. For a status that
 * one of tarn's own functions returned, tarn_last_error() has the detail. */
#ifndef TARN_NCCL_H
#define TARN_NCCL_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/observe.h>
#include <tarn/pool.h>
#include <tarn/share.h>
#include <tarn/sleep.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How segments are registered. */
typedef enum tarn_nccl_kind {
    TARN_NCCL_LOCAL, /* ncclCommRegister(), from 2.19 on: a rank's own matter */
    TARN_NCCL_WINDOW /* ncclCommWindowRegister(), from 2.27 on: collective */
} tarn_nccl_kind;

/* One segment that is registered. */
typedef struct tarn_nccl_segment {
    tarn_mapping range;  /* where, and which mapping */
    const void *anchor;  /* the byte by which it is anchored */
    void *handle;        /* of a local registration */
    ncclWindow_t window; /* of a window */
} tarn_nccl_segment;

/* The part of a pool that is registered with a communicator. Callers may read it. Only the
 * functions change it, except the fields that say so. */
typedef struct tarn_nccl {
    ncclComm_t comm;
    tarn_pool *pool; /* NULL: only the communicator's own memory sleeps */
    tarn_nccl_kind kind;
    int flags;                   /* of windows */
    tarn_nccl_segment *segments; /* from malloc(), in the order in which they were registered */
    size_t count, room;
    ncclResult_t result; /* of the last call of NCCL's */
    bool unsupported;    /* NCCL has no windows here: collectives copy */
    bool suspended;      /* by tarn_nccl_suspend() */
    bool asleep;         /* the process sleeps, and its sleeper called that */
    /* Set by the caller, after tarn_nccl_begin(): another tarn_nccl suspends and resumes the
     * communicator. */
    bool leaves_comm;
    /* Set by the caller: captured graphs contain collectives of the communicator. */
    bool has_graphs;
    bool graphs_ended;    /* graphs that contain windows must be captured again */
    tarn_sleeper sleeper; /* of tarn_nccl_sleeper_add(); 0: none */
} tarn_nccl;

/* Begins with nothing registered. `flags` are those of ncclCommWindowRegister(). */
static inline void tarn_nccl_begin(tarn_nccl *registered, ncclComm_t comm, tarn_pool *pool,
                                   tarn_nccl_kind kind, int flags)
{
    memset(registered, 0, sizeof *registered);
    registered->comm = comm;
    registered->pool = pool;
    registered->kind = kind;
    registered->flags = flags;
}

/* Returns the registered segment that contains an address, or NULL. */
static inline const tarn_nccl_segment *tarn_nccl_find(const tarn_nccl *registered,
                                                      const void *pointer)
{
    for (size_t i = 0; i < registered->count; i++) {
        const tarn_nccl_segment *segment = &registered->segments[i];
        size_t offset = (size_t)((const char *)pointer - (const char *)segment->range.address);
        if ((const char *)pointer >= (const char *)segment->range.address &&
            offset < segment->range.bytes)
            return segment;
    }
    return NULL;
}

/* Stores the window that contains an address, and the offset of the address in it, for calls that
 * take a window. Returns false if no window contains it. */
static inline bool tarn_nccl_window_get(const tarn_nccl *registered, const void *pointer,
                                        ncclWindow_t *window, size_t *offset)
{
    const tarn_nccl_segment *segment = tarn_nccl_find(registered, pointer);
    if (!segment || registered->kind != TARN_NCCL_WINDOW)
        return false;
    *window = segment->window;
    *offset = (size_t)((const char *)pointer - (const char *)segment->range.address);
    return true;
}

/* Internal, for the functions below: returns a byte of a live block in a range, by which the range
 * can be anchored, or NULL. */
static inline const void *tarn_nccl_live_byte(const tarn_pool_block *blocks, size_t count,
                                              const tarn_mapping *range)
{
    for (size_t i = 0; i < count; i++) {
        const char *address = (const char *)blocks[i].address;
        if (address >= (const char *)range->address &&
            address < (const char *)range->address + range->bytes)
            return address;
    }
    return NULL;
}

static inline tarn_status tarn_nccl_register_one(tarn_nccl *registered, const tarn_mapping *range,
                                                 const void *byte)
{
    tarn_nccl_segment segment;
    tarn_mapping now;
    memset(&segment, 0, sizeof segment);
    if (registered->count == registered->room) {
        size_t room = 2 * registered->room + 8;
        tarn_nccl_segment *segments =
            (tarn_nccl_segment *)realloc(registered->segments, room * sizeof *registered->segments);
        if (!segments)
            return TARN_ERROR_OUT_OF_HOST_MEMORY;
        registered->segments = segments;
        registered->room = room;
    }
    tarn_status status = tarn_anchor(byte, 1);
    if (status)
        return status;
    status = tarn_mapping_get(byte, &now); /* anchored: from here on it does not change */
    if (!status && (now.address != range->address || now.generation != range->generation))
        status = TARN_ERROR_BUSY; /* another thread has trimmed or suspended the pool meanwhile */
    if (!status) {
        registered->result =
            registered->kind == TARN_NCCL_LOCAL
                ? ncclCommRegister(registered->comm, range->address, range->bytes, &segment.handle)
                : ncclCommWindowRegister(registered->comm, range->address, range->bytes,
                                         &segment.window, registered->flags);
        status = registered->result == ncclSuccess ? TARN_OK : TARN_ERROR_LIBRARY;
    }
    if (!status && registered->kind == TARN_NCCL_WINDOW && !segment.window) {
        registered->unsupported = true; /* success, and no window: there are none on this system */
        status = TARN_ERROR_NOT_SUPPORTED;
    }
    if (status) {
        (void)tarn_unanchor(byte, 1);
        return status;
    }
    segment.range = *range;
    segment.anchor = byte;
    registered->segments[registered->count++] = segment;
    return TARN_OK;
}

/* Registers the segments of the pool that have a live block and are not registered yet, the oldest
 * first. If there are none, or no pool, it does not call NCCL. If a registration fails, the
 * segments before it stay registered. Segments of a kept pool that were taken over are left out,
 * as tarn_pool_segments_get() does; collectives copy what is in them.
 *   TARN_ERROR_LIBRARY        NCCL refused: `result`
 *   TARN_ERROR_NOT_SUPPORTED  NCCL has no windows here; collectives work, and copy
 *   TARN_ERROR_SUSPENDED      the pool, or the communicator, is suspended
 *   TARN_ERROR_BUSY           another thread trims or suspends the pool
 *   TARN_ERROR_INVALID_ARGUMENT, TARN_ERROR_OUT_OF_HOST_MEMORY */
static inline tarn_status tarn_nccl_register(tarn_nccl *registered)
{
    size_t segment_count = 0, block_count = 0, room = 0, block_room = 0;
    if (registered->suspended)
        return TARN_ERROR_SUSPENDED;
    if (!registered->pool)
        return TARN_OK;
    tarn_status status = tarn_pool_segments_get(registered->pool, NULL, 0, &room);
    if (!status)
        status = tarn_pool_blocks_get(registered->pool, NULL, 0, &block_room);
    if (status || !room || !block_room)
        return status;
    tarn_mapping *segments = (tarn_mapping *)calloc(room, sizeof *segments);
    tarn_pool_block *blocks = (tarn_pool_block *)calloc(block_room, sizeof *blocks);
    status = segments && blocks
                 ? tarn_pool_segments_get(registered->pool, segments, room, &segment_count)
                 : TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status)
        status = tarn_pool_blocks_get(registered->pool, blocks, block_room, &block_count);
    block_count = block_count < block_room ? block_count : block_room;
    for (size_t i = 0; !status && i < room && i < segment_count; i++) {
        const void *byte = tarn_nccl_live_byte(blocks, block_count, &segments[i]);
        if (byte && !tarn_nccl_find(registered, segments[i].address))
            status = tarn_nccl_register_one(registered, &segments[i], byte);
    }
    free(segments);
    free(blocks);
    return status;
}

/* Deregisters all segments, the newest first, then removes their anchors. No collective of the
 * communicator may run. If NCCL refuses, returns TARN_ERROR_LIBRARY, and the remaining segments
 * stay registered and anchored. */
static inline tarn_status tarn_nccl_deregister(tarn_nccl *registered)
{
    registered->graphs_ended |=
        registered->has_graphs && registered->kind == TARN_NCCL_WINDOW && registered->count;
    while (registered->count) {
        const tarn_nccl_segment *segment = &registered->segments[registered->count - 1];
        registered->result = registered->kind == TARN_NCCL_LOCAL
                                 ? ncclCommDeregister(registered->comm, segment->handle)
                                 : ncclCommWindowDeregister(registered->comm, segment->window);
        if (registered->result != ncclSuccess)
            return TARN_ERROR_LIBRARY;
        tarn_status status = tarn_unanchor(segment->anchor, 1);
        registered->count--; /* NCCL does not know it any more, also after tarn_shutdown() */
        if (status)
            return status;
    }
    free(registered->segments);
    registered->segments = NULL;
    registered->room = 0;
    return TARN_OK;
}

/* Call it before tarn_pool_suspend(), after waiting for the communicator's work; a sleep calls it
 * by itself (tarn_nccl_sleeper_add()). Deregisters all segments. From NCCL 2.29.7 on it also makes
 * the communicator release its own memory (ncclCommSuspend()). Collective, as ncclCommSuspend()
 * is. */
static inline tarn_status tarn_nccl_suspend(tarn_nccl *registered)
{
    tarn_status status = tarn_nccl_deregister(registered);
    if (status || registered->suspended)
        return status;
#if NCCL_VERSION_CODE >= 22907
    if (!registered->leaves_comm) {
        registered->result = ncclCommSuspend(registered->comm, NCCL_SUSPEND_MEM);
        if (registered->result != ncclSuccess)
            return TARN_ERROR_LIBRARY;
    }
#endif
    registered->suspended = true;
    return TARN_OK;
}

/* Call it after the pool was resumed. Resumes the communicator and registers the pool's current
 * segments. The windows are new: graphs that contain the old ones must be captured again. */
static inline tarn_status tarn_nccl_resume(tarn_nccl *registered)
{
#if NCCL_VERSION_CODE >= 22907
    if (registered->suspended && !registered->leaves_comm) {
        registered->result = ncclCommResume(registered->comm);
        if (registered->result != ncclSuccess)
            return TARN_ERROR_LIBRARY;
    }
#endif
    registered->suspended = registered->asleep = false;
    return tarn_nccl_register(registered);
}

/* Internal, for the callbacks below: stores why a call has failed. */
static inline tarn_status tarn_nccl_why(const tarn_nccl *registered, tarn_status status, char *why,
                                        size_t room)
{
    if (status)
        snprintf(why, room, "%s",
                 status == TARN_ERROR_LIBRARY ? ncclGetErrorString(registered->result)
                                              : tarn_last_error());
    return status;
}

static inline tarn_status tarn_nccl_sleeper_prepare(void *user, char *why, size_t room)
{
    tarn_nccl *registered = (tarn_nccl *)user;
    const char *graphs = getenv("NCCL_GRAPH_REGISTER");
    ncclResult_t state = ncclSuccess;
    registered->result = ncclCommGetAsyncError(registered->comm, &state);
    if (registered->result == ncclSuccess)
        registered->result = state;
    if (registered->result == ncclInProgress) {
        snprintf(why, room, "a call of the communicator is in progress");
        return TARN_ERROR_BUSY;
    }
    if (registered->has_graphs && !(graphs && strcmp(graphs, "0") == 0)) {
        snprintf(why, room, "graphs hold registrations of their own: set NCCL_GRAPH_REGISTER=0");
        return TARN_ERROR_BUSY;
    }
    return tarn_nccl_why(
        registered, registered->result == ncclSuccess ? TARN_OK : TARN_ERROR_LIBRARY, why, room);
}

static inline tarn_status tarn_nccl_sleeper_commit(void *user, char *why, size_t room)
{
    tarn_nccl *registered = (tarn_nccl *)user;
    if (registered->suspended && !registered->asleep)
        return TARN_OK; /* the program did so before, and resumes it */
    registered->asleep = true;
    return tarn_nccl_why(registered, tarn_nccl_suspend(registered), why, room);
}

static inline tarn_status tarn_nccl_sleeper_wake(void *user, char *why, size_t room)
{
    tarn_nccl *registered = (tarn_nccl *)user;
    if (registered->suspended && !registered->asleep)
        return TARN_OK;
    tarn_status status = tarn_nccl_resume(registered);
    if (status == TARN_ERROR_NOT_SUPPORTED ||
        status == TARN_ERROR_SUSPENDED) /* the program suspended the pool before */
        status = TARN_OK;
    return tarn_nccl_why(registered, status, why, room);
}

static inline size_t tarn_nccl_sleeper_held(void *user)
{
    uint64_t bytes = 0;
#if NCCL_VERSION_CODE >= 22907
    const tarn_nccl *registered = (const tarn_nccl *)user;
    if (registered->leaves_comm ||
        ncclCommMemStats(registered->comm,
                         registered->suspended ? ncclStatGpuMemPersist : ncclStatGpuMemTotal,
                         &bytes) != ncclSuccess)
        bytes = 0;
#else
    (void)user;
#endif
    return (size_t)bytes;
}

/* Makes the communicator and its registrations sleep with the process. tarn_sleep_commit() then
 * does what tarn_nccl_suspend() does, and tarn_wake() does what tarn_nccl_resume() does, in the
 * thread that makes that call. Both are collective, so all ranks must add their sleepers in the
 * same order, and sleep together. The sleep is refused, with the communicator as residue, while a
 * call of the communicator is in progress, and while there are graphs of its collectives
 * (`has_graphs`) unless the environment has NCCL_GRAPH_REGISTER=0. Work on streams must have been
 * waited for. What tarn_nccl_suspend() has suspended before stays suspended. `registered` must stay
 * where it is until tarn_nccl_sleeper_remove().
 *
 * If several pools are registered with one communicator, the tarn_nccl whose sleeper is added first
 * suspends the communicator, and the others set `leaves_comm`: the newest sleeps first.
 *   TARN_ERROR_LIBRARY            NCCL does not know the communicator's device: `result`
 *   others                        as tarn_sleeper_add() */
static inline tarn_status tarn_nccl_sleeper_add(tarn_nccl *registered, const char *name)
{
    tarn_sleeper_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.name = name;
    options.pool = registered->pool;
    options.user = registered;
    options.prepare = tarn_nccl_sleeper_prepare;
    options.commit = tarn_nccl_sleeper_commit;
    options.wake = tarn_nccl_sleeper_wake;
    options.held = tarn_nccl_sleeper_held;
    registered->result = ncclCommCuDevice(registered->comm, &options.device);
    if (registered->result != ncclSuccess)
        return TARN_ERROR_LIBRARY;
    return tarn_sleeper_add(&options, &registered->sleeper);
}

/* Call it before the communicator is destroyed. Fails as tarn_sleeper_remove() does. */
static inline tarn_status tarn_nccl_sleeper_remove(tarn_nccl *registered)
{
    tarn_status status = tarn_sleeper_remove(registered->sleeper);
    if (!status)
        registered->sleeper = 0;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
