/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Observers: callbacks on what happens to device memory, for who keeps something by address (registrations of NCCL, UCX
 * and RDMA), who reports an out-of-memory, and who has memory to give back before more is asked of the driver.
 *
 * A range of addresses may be mapped, unmapped and mapped again, with other physical memory. Each mapping has a
 * *generation*, a number that grows over the process and is never used twice: two mappings of one address differ in it.
 * While a block is live, the memory under it is neither unmapped nor moved; so what is registered for a live block, with
 * the generation that tarn_range_get() gives, stays right until `unmapping` names that range.
 *
 * All functions are thread-safe and may be called during a capture. Each may also return TARN_ERROR_FORKED. */
#ifndef TARN_OBSERVE_H
#define TARN_OBSERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_ALL_DEVICES (-1) /* in place of a number: of every device */

/* Mapped addresses. The structure does not grow. */
typedef struct tarn_range {
    void *address;       /* the first */
    size_t bytes;        /* whole granules of the device, or a plain segment */
    uint64_t generation; /* of the mapping */
    int device;          /* whose memory it is */
} tarn_range;

/* A request that fails for want of memory. tarn alone makes one: fields may be added at its end. */
typedef struct tarn_shortage {
    size_t requested; /* bytes that one stretch would have needed, rounded */
    size_t reserved;  /* bytes that tarn has of the device */
    size_t limit;     /* bytes that it may have; TARN_NO_LIMIT: no limit is set */
    size_t free;      /* bytes that the driver calls free */
    size_t total;     /* bytes of the device */
    int device;       /* whose memory was wanted */
    bool rejected;    /* more than the device or the limit could ever hold: nothing was tried */
} tarn_shortage;

/* What an observer wants to be told; NULL for what it does not.
 *
 * `mapped` comes after a range was mapped and before any of it is handed out, `unmapping` before a range, or a part of one, is
 * unmapped: the memory is still there, and no live block is in it. Where the driver then refuses, the range stays, and
 * `mapped` follows with a new generation. Both may be called by any thread, several at once, from within an allocation or
 * a trim, also of another stream. They may free blocks and ask for statistics, ranges and blocks. They must not allocate,
 * trim, suspend or resume, or wait for a thread that does: what would need the driver fails with TARN_ERROR_BUSY.
 *
 * `out_of_memory` comes before the error is returned, in the thread that asked, and `reclaim` before the driver is asked for
 * memory: it gives back what it can do without, and says whether it freed anything; then the search is repeated. Both may
 * do with tarn what they like; while one of them runs no other of these two is called in its thread. */
typedef struct tarn_observer_options {
    size_t size; /* sizeof(tarn_observer_options) */
    int device;  /* whose memory; TARN_ALL_DEVICES */
    void *user;  /* given to each callback; must be valid until tarn_observer_remove() has returned */
    /* A range was mapped. */
    void (*mapped)(const tarn_range *range, void *user);
    /* A range is about to be unmapped. */
    void (*unmapping)(const tarn_range *range, void *user);
    /* A request is about to fail. */
    void (*out_of_memory)(const tarn_shortage *shortage, void *user);
    /* So many bytes are about to be asked of the driver; gives whether anything was freed. */
    bool (*reclaim)(int device, size_t bytes, void *user);
} tarn_observer_options;

/* Names an observer; 0 is none, and no number comes twice. */
typedef uint64_t tarn_observer;

/* What is mapped already is not told. TARN_ERROR_INVALID_ARGUMENT for a NULL, a size that is unknown, a device that cannot
 * be, or no callback at all; TARN_ERROR_OUT_OF_HOST_MEMORY, TARN_ERROR_SHUTDOWN. */
TARN_API tarn_status tarn_observer_add(const tarn_observer_options *options, tarn_observer *observer);

/* After it has returned, none of the observer's callbacks runs or will run. Waits for those that run in other threads, so the
 * caller must hold no lock that they take. A callback may remove its own observer; that one is then the last to run. Also
 * after tarn_shutdown(). TARN_ERROR_INVALID_ARGUMENT for what is no observer, or was removed. */
TARN_API tarn_status tarn_observer_remove(tarn_observer observer);

/* The piece of physical memory that a pointer into a live block lies in: where it is mapped, and the generation. Takes a
 * lock: not for a hot path. TARN_ERROR_INVALID_POINTER, TARN_ERROR_INVALID_ARGUMENT, TARN_ERROR_SHUTDOWN. */
TARN_API tarn_status tarn_range_get(const void *pointer, tarn_range *range);

#ifdef __cplusplus
}
#endif
#endif
