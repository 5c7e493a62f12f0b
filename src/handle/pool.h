/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles, and who has them. */
#ifndef TARN_HANDLE_POOL_H
#define TARN_HANDLE_POOL_H

#include "base/lock.h"
#include "device/device.h"
#include "device/stream.h"
#include "handle/registry.h"

#include <tarn/memory.h>

/* One vendor handle. Its owner is the thread or the lease that has it; nobody's while it is available. No two share a line of the
 * processor's cache: each bind writes to it. */
struct handle {
    _Alignas(64) void *vendor;
    struct entry *library;
    struct handle_pool *pool;
    struct handle *all;    /* pool lock: the next of all that exist */
    struct handle *next;   /* pool lock while available, else the owner's: the next in that list */
    struct holder *holder; /* pool lock: the thread that has it; NULL: leased or available */
    bool available;        /* pool lock */
    uint64_t lease;        /* pool lock: the number of its lease; 0: none */

    /* What the vendor was told last. Written by the owner under `lock`, which others take to read. */
    mutex lock;
    struct stream *stream; /* NULL: nothing that can be relied upon */
    unsigned generation;
    struct stream *used_on; /* the last that it was bound to, whatever came of later attempts; NULL: never bound */
    unsigned used_generation;
    uint64_t captures, settings, mode_changes; /* the epochs of captures, workspaces and modes when it was told */
    int modes[LIBRARY_MODES];                  /* as it was told */
    bool reset;                                /* another thread may have changed its modes since */
    bool points;                  /* it may point to a workspace, freed or not, unless setting the stream ends that */
    struct workspace *workspaces; /* by stream and capture */
    struct workspace *bound;      /* whose memory the vendor's handle points to, unless that was freed */
};

/* The handles of a library on a device. */
struct handle_pool {
    mutex lock; /* of all below */
    pthread_cond_t first_over;
    struct device *device;
    enum { FIRST_TO_COME, FIRST_UNDER_WAY, FIRST_DONE } first; /* create runs alone until one has succeeded */
    unsigned creating;                                         /* now, side by side */
    uint64_t started;                                          /* creates, ever: tells one that it had company */
    struct handle *available;                                  /* last in, first out */
    struct handle *all;
    struct workspace *kept; /* of captures, whose handle was destroyed: a graph may still use them */
    tarn_handle_stats stats;
    atomic_uint_fast64_t contract_breaks; /* no lock */
};

/* What a thread's get looks at: one a library and device. Zeroed: nothing. */
struct slot {
    uint64_t changes;    /* process_changes when the rest was right; 0: it is not */
    tarn_stream stream;  /* the thread's current one, as it is written there */
    void *vendor;        /* what to give */
    struct handle *held; /* all that the thread has here; the first one is `vendor` */
};

/* What a thread has. Never unmapped: another thread takes it over. */
struct holder {
    atomic_uint busy;          /* the thread is in a call that may reach a vendor: tarn_shutdown() waits */
    struct holder *all, *free; /* holders lock */
    uint64_t wait_ns;          /* tarn_handle_wait_limit() */
    int devices;
    struct slot slots[]; /* [device][TARN_MAX_LIBRARIES + 1] */
};

/* Begins a call that may reach a vendor: the device layer is ready, the calling thread has a holder, and
 * tarn_shutdown() waits for call_end(). Nests. */
tarn_status call_begin(struct holder **holder);
void call_end(struct holder *holder);

/* The calling thread's handle of a library for a stream, bound to it. Between call_begin() and call_end(). */
tarn_status handle_of_thread(struct holder *holder, struct entry *entry, struct stream *stream, struct handle **handle);
/* What the slot remembers of it is void. */
void slot_forget(struct holder *holder, const struct handle *handle);

/* The pool of a library on a device. */
tarn_status pool_of(struct entry *entry, struct device *device, struct handle_pool **pool);
/* The same if it exists, else NULL. */
struct handle_pool *pool_known(const struct entry *entry, int device);

/* vendor.c: the calls into a vendor library. None is made with a pool's lock held.
 * ---------------------------------- */

/* The vendor's create on the pool's device: in its context, in relaxed capture mode, and once more after idle memory
 * was given back when the device is full. Measures the time and, if `alone`, the device memory (else -1). */
tarn_status vendor_create(struct handle *handle, bool alone, uint64_t *ns, int64_t *bytes);
/* Around destroys, many in a row: the device's context is current, the capture mode relaxed. */
struct visit {
    int device, previous;
    bool knows_previous, relaxed;
    enum driver_capture_mode mode;
};
tarn_status visit_begin(struct device *device, struct visit *visit);
void visit_end(struct visit *visit);
tarn_status vendor_destroy(const struct handle *handle);
/* Stream, then workspace, then modes: what differs from what the vendor was told. Also the check of
 * TARN_DEBUG=handles. */
tarn_status vendor_bind(struct handle *handle, struct stream *stream, unsigned generation);
/* TARN_DEBUG=handles. */
bool vendor_is_watched(void);

/* workspace.c ------------------------------------------------------------------------------------------------------ */

struct workspace {
    struct workspace *next;
    struct stream *stream;
    unsigned generation;
    int device;
    uint64_t capture;  /* the capture that it belongs to; 0: none */
    tarn_pool_id pool; /* of a capture: the pool that it is a block of; (0, 0): the default one */
    void *pointer;
    size_t size;  /* bytes; 0: the library is told to have none */
    bool cleared; /* goes when the handle's owner lets go of it */
};

/* Grows when anything changes that the choice of a workspace depends on: policy, sizes, a clear. */
uint64_t workspaces_epoch(void);

/* With handle->lock held, and by its owner: the workspace that it should have on the stream; NULL where the policy
 * wants none to be set. Where one must be made the lock is given up meanwhile. `gone` receives what the caller frees
 * later. */
tarn_status workspace_wanted_locked(struct handle *handle, struct stream *stream, unsigned generation,
                                    struct workspace **workspace);
/* Sorts a list of workspaces: gives those of captures, which their graphs may still use, and leaves the others. */
struct workspace *workspaces_of_captures(struct workspace **list);
/* Takes out what is cleared and not bound; with `all`, everything. */
struct workspace *workspaces_sweep_locked(struct handle *handle, bool all);
/* A pool has ended, and the graphs that used it: frees what they had. */
void workspaces_of_pool_end(tarn_pool_id pool);
/* Gives a list of them back to the memory layer. With no lock held. NULL is fine. */
void workspaces_free(struct workspace *list);

#endif
