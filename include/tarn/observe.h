/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Observers: callbacks about device memory. They are for code that caches registrations by address
 * (NCCL, UCX, RDMA), code that reports out-of-memory errors, and code that can free memory before
 * more is requested from the driver.
 *
 * A range of addresses may be mapped, unmapped, and mapped again with other physical memory. Each
 * mapping has a *generation*, a number that grows over the process and is never reused: two
 * mappings of one address have different generations. The memory under a live block is neither
 * unmapped nor moved, except by suspending its pool (tarn_pool_suspend(), sleep.h) and by
 * compaction (tarn_compact()). So a registration made for a live block, with the generation that
 * tarn_mapping_get() returns, stays valid until `unmapping` names a range that overlaps it.
 *
 * All functions are thread-safe and may be called during a capture. Every function may also return
 * TARN_ERROR_FORKED. */
#ifndef TARN_OBSERVE_H
#define TARN_OBSERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_ALL_DEVICES (-1) /* stands for all devices */

/* A mapping: a range of addresses that has physical memory. The structure never grows. */
typedef struct tarn_mapping {
    void *address;       /* the first */
    size_t bytes;        /* whole granules of the device, or a plain segment */
    uint64_t generation; /* of the mapping */
    int device;          /* the device */
} tarn_mapping;

/* A request that fails because memory is short. Only tarn creates this structure, so fields may be
 * added at its end. */
typedef struct tarn_shortage {
    size_t requested; /* bytes needed in one range, rounded */
    size_t reserved;  /* bytes that tarn has reserved on the device */
    /* Bytes that tarn may reserve now: by the limits that are set and by leave_free_mb; without a
     * limit, on an integrated device or one that the system pages, by what the device has left;
     * TARN_NO_LIMIT: no limit. */
    size_t limit;
    size_t free;  /* bytes that the driver reports free */
    size_t total; /* bytes of the device */
    int device;   /* the device */
    /* The request is larger than the device or the limit: nothing was tried, and freeing memory
     * does not help. */
    bool rejected;
} tarn_shortage;

/* The callbacks of an observer; NULL for events that it does not need. Observers are called in the
 * order in which they were added.
 *
 * `mapped` is called after a range was mapped and before any of it is handed out. `unmapping` is
 * called before a range, or a part of one, is unmapped: the memory still exists. It contains live
 * blocks only if their pool is being suspended or compaction moves it. If the driver then refuses
 * to unmap, the range stays, and `mapped` follows with a new generation. It is also called for
 * pages of a tarn_range that the driver refuses to unmap after a commit has failed: they may
 * have no access. Any thread may call both, several at once, from within any call that
 * allocates, releases or moves memory, also of another stream. They may free blocks, query
 * statistics, ranges and blocks, and ask for a handle that the thread has or that is available
 * (handle.h). They must not allocate, trim, suspend, resume, restore or hold pools, create or
 * destroy handles, or wait for a thread that does: a call that would need that returns
 * TARN_ERROR_BUSY. tarn_shutdown() calls `unmapping` too; what that calls then returns
 * TARN_ERROR_SHUTDOWN.
 *
 * `before_growth` is called before memory is requested from the driver. `out_of_memory` is called
 * before an allocation, or the commit of a range's pages, returns TARN_ERROR_OUT_OF_MEMORY, unless
 * more than TARN_MAX_SIZE bytes were requested. Both run in the thread that asked. They free what
 * they can, and return whether they freed anything: then tarn searches again. `out_of_memory` is
 * called again as long as an observer returns true and the memory does not suffice, so an observer
 * that has nothing left must return false. A request that is larger than the device or a limit is
 * reported once; it is tried again only if an observer has raised the limit. What an observer
 * frees serves the request when it is idle, for which the request waits. Both may call any tarn
 * function except tarn_shutdown(). While one of them runs, neither is called again in its
 * thread. */
typedef struct tarn_observer_options {
    size_t size; /* sizeof(tarn_observer_options) */
    int device;  /* the device, or TARN_ALL_DEVICES */
    void *user;  /* passed to each callback; valid until tarn_observer_remove() has returned */
    /* A range was mapped. */
    void (*mapped)(const tarn_mapping *range, void *user);
    /* A range is about to be unmapped. */
    void (*unmapping)(const tarn_mapping *range, void *user);
    /* A request is about to fail. Returns whether anything was freed. */
    bool (*out_of_memory)(const tarn_shortage *shortage, void *user);
    /* `bytes` are about to be requested from the driver. Returns whether anything was freed. */
    bool (*before_growth)(int device, size_t bytes, void *user);
    /* Whether a thread of tarn may call `mapped` and `unmapping`. The setting `idle_release`
     * (tarn/config.h) makes such a thread. If false, that thread releases no memory of the devices
     * that this observer watches, beside what it is about to unmap when the observer is added.
     * Without the two callbacks this has no meaning. */
    bool any_thread;
} tarn_observer_options;

/* Identifies an observer. 0 is no observer; no number is used twice. */
typedef uint64_t tarn_observer;

/* Adds an observer, also before the first use of tarn. Existing mappings are not reported.
 *   TARN_ERROR_INVALID_ARGUMENT   a NULL, an unknown size, a device that cannot exist, or no
 *                                 callback at all
 *   TARN_ERROR_OUT_OF_HOST_MEMORY
 *   TARN_ERROR_SHUTDOWN */
TARN_API tarn_status tarn_observer_add(const tarn_observer_options *options,
                                       tarn_observer *observer);

/* Removes an observer. After the call has returned, none of the observer's callbacks runs or will
 * run. The call waits for callbacks that run in other threads, so the caller must hold no lock that
 * they take. A callback may remove its own observer; it is then the last one to run. Callbacks of
 * two observers must not remove each other's observer: each could wait for the other for ever. The
 * call also works after tarn_shutdown().
 *   TARN_ERROR_INVALID_ARGUMENT   not an observer, or one that was removed */
TARN_API tarn_status tarn_observer_remove(tarn_observer observer);

/* Returns the mapping that a pointer into a live block lies in, with its generation. Takes a lock,
 * so it is not for a hot path.
 *   TARN_ERROR_INVALID_POINTER    `pointer` is not in a live block, or is imported memory (share.h)
 *   TARN_ERROR_INVALID_ARGUMENT   `mapping` is NULL
 *   TARN_ERROR_SUSPENDED          the block's pool is suspended
 *   TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_CONFIGURATION   tarn could not start
 *   TARN_ERROR_SHUTDOWN */
TARN_API tarn_status tarn_mapping_get(const void *pointer, tarn_mapping *mapping);

#ifdef __cplusplus
}
#endif
#endif
