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

struct device {
    int number;
    struct driver_properties properties;
    atomic_bool lost;
    atomic_uint captures;  /* known ones that are open on its streams */
    atomic_uint announced; /* of those, the announced ones: the caller begins them itself */
    struct stream *legacy;
    /* Streams by native name, except constants; `entering` (stream.c) to change. */
    struct native_table natives;

    mutex lock; /* of all below */
    /* tarn's shared streams by priority, created when they are first handed out */
    struct stream *pool[STREAM_PRIORITIES][TARN_STREAM_SHARED_COUNT];
    unsigned pool_next[STREAM_PRIORITIES];
    struct stream *returned[STREAM_PRIORITIES]; /* leased before and given back, last in first
                                                   out */
    struct stream *thread_ended;                /* per-thread streams of threads that are gone */
    struct mark *spare_marks;                   /* whose driver event can be recorded anew */

    mutex record_lock; /* held over asking whether a stream captures and recording on it, and over a
                          known begin */
    uint64_t records;  /* record lock: of marks, until now */
    /* The number of a record: all work that was queued before it is over. Record lock to change. */
    atomic_uint_fast64_t waited;
};

/* The start of every public call: the process may use tarn, a driver is chosen, its devices are
 * known. */
tarn_status device_layer_ready(void);

/* The device of a number, or TARN_ERROR_INVALID_DEVICE. After device_layer_ready(). */
tarn_status device_find(int number, struct device **device);
int device_count(void);
struct device *device_at(int number); /* of a number that is known to be right */

/* Returns `status`, and remembers TARN_ERROR_DEVICE_LOST, which is sticky. */
tarn_status device_note(struct device *device, tarn_status status);
tarn_status device_check(struct device *device);

/* What the memory layer does at the moment when a device is found lost: its fast paths, which ask
 * nobody, end. May be called with any lock held but the callback's own. */
void device_on_lost(void (*callback)(struct device *device));

/* What tarn keeps for a thread, from its first use of tarn until its end. Then it is given up
 * without a driver call. */
struct thread {
    _Alignas(64) int device;
    unsigned number;                             /* constant: in the order of first uses, of all
                                                    threads */
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

    /* captures_lock (capture.c): the known captures that it began, and how many on each device. */
    struct capture *captures;
    unsigned captures_on[TARN_MAX_DEVICES];

    struct trace_ring *trace; /* NULL before its first record */
    uint32_t region;          /* the innermost region that it is in; 0: none */
    uint32_t regions_unnamed; /* regions inside that one for which there was no number */
};

/* The calling thread's; NULL before its first use of tarn, after its end, and in a child of fork().
 * For paths that count single loads: at a fixed offset from the thread's base also where the
 * library was opened at run time. */
extern _Thread_local struct thread *thread_here __attribute__((tls_model("initial-exec")));

static inline void thread_forget_caches(struct thread *thread)
{
    thread->current_cache = thread->named_cache = NULL;
    thread->current_heap = thread->named_heap = NULL;
}

/* The calling thread's, or NULL with TARN_ERROR_OUT_OF_HOST_MEMORY as the last error. */
struct thread *thread_self(void);
/* The calling thread's current device, without making anything. */
int thread_device(void);
/* Makes a device current again for the end of a guard: as tarn_device_set(), but makes no
 * context. */
tarn_status device_return(int device);

/* What the upper layers do when a thread ends, in this order, before its streams are given up. Not
 * in a fork's child. */
enum thread_layer { THREAD_HANDLES, THREAD_MEMORY, THREAD_LAYERS };
void thread_on_end(enum thread_layer layer, void (*callback)(struct thread *thread));

/* What the layers above do at tarn_shutdown(), in the order of registration; at most four. The one
 * that is `first` runs before them all, whenever it was registered: handles go before the memory
 * that they use. */
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
/* For such a callback: something of the driver stays in use until the process ends. */
void device_keep_driver(void);

#endif
