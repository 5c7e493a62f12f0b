/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices, and what a thread holds of them. */
#ifndef TARN_DEVICE_DEVICE_H
#define TARN_DEVICE_DEVICE_H

#include "base/thread/lock.h"
#include "device/native.h"
#include "driver/driver.h"

#include <stdatomic.h>
#include <tarn/device.h>
#include <tarn/stream.h>

struct stream;
struct cache;
struct heap;
struct mark;
struct holder;
struct trace_ring;
struct capture;
struct scope;

#define STREAM_PRIORITIES 4 /* that tarn tells apart: 0 to -3 (c10/cuda/CUDAStream.h) */

/* A device. It exists from the first use of tarn until the process ends. Fields without a lock are
 * constant after that first use. */
struct device {
    int number;
    struct driver_properties properties;
    atomic_bool lost;      /* sticky: see device_note() */
    atomic_uint captures;  /* known captures that are open on its streams */
    atomic_uint announced; /* of those, the announced ones: the caller begins them itself */
    struct stream *legacy; /* the slot of its legacy default stream */
    /* Its streams by native stream, except the vendors' constants. stream.c's `entering` to
     * change; lookups take no lock (native.h). */
    struct native_table natives;

    mutex lock; /* of the five fields below */
    /* tarn's shared streams by priority, created when they are first handed out */
    struct stream *shared[STREAM_PRIORITIES][TARN_STREAM_SHARED_COUNT];
    unsigned shared_next[STREAM_PRIORITIES];    /* the place in `shared` that is handed out next */
    struct stream *returned[STREAM_PRIORITIES]; /* streams between two leases, last in first out */
    struct stream *thread_ended;                /* per-thread streams of threads that have ended */
    struct mark *spare_marks;                   /* marks without holders, for reuse */

    /* Held over two steps that must be one: the question whether a stream captures, and the record
     * of an event on it. Also held over the begin of a known capture. */
    mutex record_lock;
    uint64_t records; /* record lock: the number of the newest mark; each new mark gets the next */
    /* A number of a mark. A wait for the whole device has ended since that mark was made, so every
     * mark with this number or a lower one has ended. Record lock to change. */
    atomic_uint_fast64_t waited;
};

/* Called first in every public call. After TARN_OK the process may use tarn, a driver is chosen,
 * and its devices are known. */
tarn_status device_layer_ready(void);

/* The device of a number, or TARN_ERROR_INVALID_DEVICE. After device_layer_ready(). */
tarn_status device_find(int number, struct device **device);
int device_count(void);
struct device *device_at(int number); /* of a number that is known to be right */

/* Call it with what a driver call has returned; returns the same. TARN_ERROR_DEVICE_LOST is
 * remembered: from then on device_check() returns it for this device. */
tarn_status device_note(struct device *device, tarn_status status);
tarn_status device_check(struct device *device);

/* Registers what the memory layer does at the moment when a device is found lost: it ends its fast
 * paths, which ask nobody. The callback may run with any lock held except its own. */
void device_on_lost(void (*callback)(struct device *device));

/* What tarn keeps for a thread. thread_self() creates it at the thread's first use of tarn. At the
 * thread's end the layers' callbacks (thread_on_end()) give up what they have in it, without a
 * driver call, and then device.c frees it. Only the thread itself uses fields that name no lock. */
struct thread {
    _Alignas(64) int device;
    /* Constant: in the order of first uses, of all threads. */
    unsigned number;
    tarn_stream current[TARN_MAX_DEVICES];       /* TARN_STREAM_LEGACY until set */
    struct stream *per_thread[TARN_MAX_DEVICES]; /* NULL until used */
    struct holder *handles;                      /* the handle layer's; NULL until used */

    /* The memory layer's. `caches` are the thread's caches by heap. The others are what the thread
     * used last: `current_` on its current device and stream, `named_` on the stream `named` that a
     * call named. They are forgotten when a device or a stream is set. */
    struct cache **caches;
    unsigned cache_slots;
    struct cache *current_cache, *named_cache;
    struct heap *current_heap, *named_heap;
    tarn_stream named;
    uint64_t changes;      /* process_changes when what was used last was right */
    struct joined *joined; /* the scopes that it is in, newest first */
    unsigned wish;         /* the last pass over idle memory for which it recorded marks */

    /* captures_lock (capture.c): the known captures that it began, and how many on each device. */
    struct capture *captures;
    unsigned captures_on[TARN_MAX_DEVICES];

    struct trace_ring *trace; /* NULL before its first record */
    uint32_t region;          /* the innermost region that it is in; 0: none */
    uint32_t regions_unnamed; /* regions inside that one for which there was no number */
};

/* The calling thread's; NULL before its first use of tarn, after its end, and in a child of fork().
 * The TLS model makes a read one load, even if the library was opened by dlopen(). */
extern _Thread_local struct thread *thread_here __attribute__((tls_model("initial-exec")));

static inline void thread_forget_caches(struct thread *thread)
{
    thread->current_cache = thread->named_cache = NULL;
    thread->current_heap = thread->named_heap = NULL;
}

/* The calling thread's, or NULL with TARN_ERROR_OUT_OF_HOST_MEMORY as the last error. */
struct thread *thread_self(void);
/* The calling thread's current device. Creates no `struct thread`: without one it is 0. */
int thread_device(void);

/* Registers what an upper layer does when a thread ends. The callbacks run in the order of the
 * enum, before the thread's streams are given up; none runs in a child of fork(). */
enum thread_layer { THREAD_HANDLES, THREAD_MEMORY, THREAD_LAYERS };
void thread_on_end(enum thread_layer layer, void (*callback)(struct thread *thread));

/* Register what a layer above does at tarn_shutdown(). At most four callbacks run, in the order of
 * registration. The callback of device_on_shutdown_first() runs before them all, whenever it was
 * registered: handles are destroyed before the memory that they use. */
void device_on_shutdown(void (*callback)(void));
void device_on_shutdown_first(void (*callback)(void));
/* What an upper layer does when tarn is first used, and when it is shut down. `prepare` and `end`
 * may be NULL. At most four are registered, before the first use. */
struct device_watcher {
    /* The driver was chosen. Runs with no lock held, in each thread whose call is the first, so
     * perhaps in several at once; and again if `begin` has failed. */
    void (*prepare)(void);
    /* The devices are known. Runs before the first call goes on. If it fails, that call fails with
     * its status, and the next call runs it again. */
    tarn_status (*begin)(void);
    /* tarn_shutdown() has begun, and nothing else of it was done. */
    void (*end)(void);
};
void device_on_use(const struct device_watcher *watcher);
/* For a shutdown callback: something of the driver stays in use until the process ends, so the
 * shutdown does not close the driver. */
void device_keep_driver(void);

#endif
