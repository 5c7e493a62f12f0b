/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles, and the threads and leases that have them. */
#ifndef TARN_HANDLE_HANDLE_H
#define TARN_HANDLE_HANDLE_H

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
    struct handle *all;    /* shelf lock: the next of all that exist */
    struct handle *next;   /* shelf lock while available, else the owner's: the next in that list */
    struct holder *holder; /* shelf lock: the thread that has it; NULL: leased or available */
    bool available;        /* shelf lock */
    struct stream
        *kept_for; /* shelf lock: while it is available, a get on this stream alone may have it; NULL: any may */
    unsigned kept_incarnation;

    /* What the vendor was told last. Written by the owner under `lock`, which others take to read. */
    mutex lock;
    struct stream *stream; /* NULL: nothing that can be relied upon */
    unsigned incarnation;
    /* The last that it was bound to, whatever came of later attempts; NULL: none whose work it may still have. */
    struct stream *used_on;
    unsigned used_incarnation;
    uint64_t capture;                          /* that the stream took part in; see workspace_capture() */
    uint64_t captures, settings, mode_changes; /* the epochs of captures, workspaces and modes when it was told */
    intptr_t modes[LIBRARY_MODES];             /* as it was told, or said itself */
    intptr_t usual[LIBRARY_MODES];             /* as they were when it was made, where `knows_usual` */
    bool knows_usual[LIBRARY_MODES];
    bool reset;                   /* another thread may have changed its modes since */
    unsigned calls;               /* begun with a workspace for one call, by its owner */
    bool points;                  /* it may point to a workspace, freed or not, unless setting the stream ends that */
    bool own_captured;            /* a graph may use the memory that it came with: it is given no workspace any more */
    struct workspace *workspaces; /* by stream and capture */
    struct workspace *bound; /* whose memory the vendor's handle, or the caller, points to, unless that was freed */
    struct workspace *lent;  /* that the owner has for calls of another library; in the list, and not freed either */

    struct shelf *shelf;
    atomic_uint_fast64_t
        lease; /* the number of its lease; 0: none. Kept when the handle is freed: a stale lease looks at it */
};

/* The handles of a library on a device. */
struct shelf {
    mutex lock; /* of all below */
    pthread_cond_t first_over;
    struct device *device;
    enum { FIRST_TO_COME, FIRST_UNDER_WAY, FIRST_DONE } first; /* create runs alone until one has succeeded */
    unsigned creating;                                         /* now, side by side */
    uint64_t started;                                          /* creates, ever: tells one that it had company */
    atomic_uint_fast64_t returned;                             /* lock to change: how often a handle became available */
    struct handle *available;                                  /* last in, first out */
    struct handle *all;
    struct workspace *kept; /* of captures, whose handle was destroyed: a graph may still use them */
    tarn_handle_stats stats;
    atomic_uint_fast64_t contract_breaks; /* no lock */
};

/* What a thread's get looks at: one per library and device. Zeroed: nothing. */
struct slot {
    uint64_t changes;    /* process_changes when the rest was right; 0: it is not */
    tarn_stream stream;  /* the thread's current one, as it is written there */
    void *vendor;        /* what to give */
    struct handle *held; /* all that the thread has here; the first one is `vendor` */
};

/* A create that a thread is in; it lies on that thread's stack. */
struct making {
    const struct shelf *shelf;
    const struct making *outer; /* which asked for it */
};

#define LIBRARIES (TARN_MAX_LIBRARIES + 1)

/* What a thread has. Never unmapped: another thread takes it over. */
struct holder {
    atomic_uint busy;                       /* the thread is in a call that may reach a vendor: tarn_shutdown() waits */
    struct holder *all, *free;              /* holders lock */
    uint64_t wait_ns;                       /* tarn_handle_wait_limit_set() */
    const struct making *making;            /* NULL: none */
    int64_t modes[LIBRARIES][COMMON_MODES]; /* the thread's own, with 1 added; 0: as the process has it */
    int devices;
    struct slot slots[]; /* [device][LIBRARIES] */
};

static inline struct slot *slot_of(struct holder *holder, int device, int library)
{
    return &holder->slots[(size_t)(unsigned)device * LIBRARIES + (unsigned)library];
}

/* Begins a call that may reach a vendor: the device layer is ready, the calling thread has a holder, and
 * tarn_shutdown() waits for call_end(). Nests. */
tarn_status call_begin(struct holder **holder);
void call_end(struct holder *holder);

/* The calling thread's handle of a library for a stream, bound to it. Between call_begin() and call_end(). */
tarn_status handle_of_thread(struct holder *holder, struct entry *entry, struct stream *stream, struct handle **handle);
/* The same, but as its last user left it: the caller tells the vendor what it likes. */
tarn_status handle_of_thread_plain(struct holder *holder, struct entry *entry, struct stream *stream,
                                   struct handle **handle);
/* The stream that a caller named, or with NULL the thread's current one. */
tarn_status stream_wanted(const tarn_stream *value, struct stream **stream);
/* A handle for a lease: one that nobody has, or a new one. In use when it comes, and bound to what it was bound to. */
tarn_status shelf_take(struct entry *entry, struct shelf *shelf, struct stream *stream, uint64_t wait_ns,
                       struct handle **handle);
/* Gives a handle that was in use back. By its owner, in a call that tarn_shutdown() waits for or after it. */
void handle_give_back(struct handle *handle);
/* Whether it is a handle that was made and not destroyed, whatever the caller gave. */
bool handle_is_live(const void *handle);
/* A handle that keeps its stream is to serve another: what runs on the new one comes after what ran on the old one, whose workspace goes
 * with it. By its owner. */
tarn_status handle_follow(struct handle *handle, struct stream *stream);

/* held.c: of a library whose handles keep their streams, the thread's one that was asked for longest ago and can follow to another stream,
 * at the front of the slot's list then. NULL where the thread has fewer than `least`, or none can. */
struct handle *held_move(struct slot *slot, struct stream *stream, size_t least);
/* What the slot remembers of it is void. */
void slot_forget(struct holder *holder, const struct handle *handle);

/* The shelf of a library on a device. */
tarn_status shelf_of(struct entry *entry, struct device *device, struct shelf **shelf);
/* The same if it exists, else NULL. */
struct shelf *shelf_known(const struct entry *entry, int device);

/* Destroys all that are available; gives the first failure. With `keep`, what captures have bound outlives its handle. None is
 * destroyed, where the device cannot be reached: at a shutdown, because the driver is gone or the device lost, that is better than a
 * crash (rocBLAS aborts). */
tarn_status handles_destroy(struct shelf *shelf, bool keep, size_t *count);

/* vendor.c: the calls into a vendor library. None is made with a shelf's lock held.
 * ---------------------------------- */

/* The vendor's create on the shelf's device: in its context, in relaxed capture mode, and once more after idle memory
 * was given back when the device is full. Measures the time and, if `alone`, the device memory (else -1). */
tarn_status vendor_create(struct handle *handle, bool alone, uint64_t *ns, int64_t *bytes);
/* Makes a new handle one that a capture can bind: does what a first bind does and a capture does not survive. By its owner, and with
 * no capture on `stream`, whose memory it takes. */
tarn_status vendor_prepare(struct handle *handle, struct stream *stream);
/* Whether that was done, or need not be. By the owner, or with the shelf's lock held while it is available. */
bool vendor_is_prepared(struct handle *handle);
/* Around creates, and destroys, many in a row: the device's context is current, the capture mode relaxed. */
struct visit {
    int device;
    driver_context before; /* the thread's, and its device */
    int device_before;
    bool knows_before, relaxed;
    enum driver_capture_mode mode;
};
tarn_status visit_begin(struct device *device, struct visit *visit);
void visit_end(struct visit *visit, bool stay);
tarn_status vendor_destroy(const struct handle *handle);
/* Stream, then workspace, then modes: what differs from what the vendor was told. Also the check of
 * TARN_DEBUG=handles. */
tarn_status vendor_bind(struct handle *handle, struct stream *stream, unsigned incarnation);
/* modes.c: the value that a handle is to have of one of the first modes: its thread's, else the process's; -1: what it had when it was made. By
 * the owner. */
int mode_wanted(const struct handle *handle, int mode);
/* Leaves the handle to its owner as the vendor has it, for work on `stream`: nothing that is known of it can be relied upon afterwards. Memory
 * that it may still point to and that was freed is taken from it first, by a bind. */
tarn_status vendor_leave(struct handle *handle, struct stream *stream, unsigned incarnation);
/* TARN_DEBUG=handles. */
bool vendor_is_watched(void);
/* Whether the calling thread is in a call of a vendor's that a lock is held over. */
bool vendor_is_told(void);
/* Around such a call: gives what it was, to be put back after it. */
bool vendor_tell(bool now);

/* workspace.c ------------------------------------------------------------------------------------------------------ */

struct workspace {
    struct workspace *next;
    struct stream *stream;
    unsigned incarnation;
    int device;
    uint64_t capture;  /* the capture that it belongs to; 0: none */
    tarn_pool_id pool; /* of a capture: the pool that it is a block of; (0, 0): the default one */
    void *pointer;
    size_t size;  /* bytes; 0: the library is told to have none */
    bool cleared; /* goes when the handle's owner lets go of it */
};

/* workspace_settings.c: what workspaces are to be. Grows when anything changes that the choice of one depends on: policy, sizes, a clear. */
uint64_t workspaces_epoch(void);
void workspaces_changed(void);
tarn_workspace_policy workspace_policy(void);
/* Whether one library's workspaces serve another's calls: TARN_CUBLASLT_UNIFIED_WORKSPACE. */
bool workspaces_are_unified(void);
size_t workspace_bytes(struct entry *entry, const struct device *device);
/* TARN_ERROR_NOT_SUPPORTED unless the workspace is an argument of each call. */
tarn_status workspace_refuse_in_handle(const struct entry *entry);

/* What the workspace of a handle is for: a stream, and the capture that it takes part in; 0: none. */
struct purpose {
    struct stream *stream;
    unsigned incarnation;
    uint64_t capture;
};

/* The capture that a handle must have a workspace of, on a stream: what the driver says, which is asked while any known capture is open,
 * since a stream joins one unseen. Else 0, and for handles that have no workspace. */
tarn_status workspace_capture(const struct handle *handle, const struct stream *stream, uint64_t *capture);
/* Whether nothing but what moves `process_changes` on can change that. */
bool workspace_is_settled(const struct handle *handle);

/* Where a workspace is an argument of each call: whether the caller may still use the one that it was given, on this stream. With
 * handle->lock held, and by its owner. */
bool workspace_is_given(const struct handle *handle, const struct stream *stream);

/* For a caller of a handle that is bound to `stream`; by its owner: the workspace that is an argument of calls, and one that the handle has
 * until tarn_workspace_end(). `lender` is the owner's handle whose workspace may serve; NULL: none. */
tarn_status workspace_give(struct handle *handle, struct handle *lender, struct stream *stream, void **pointer,
                           size_t *size);
tarn_status workspace_call_begin(struct handle *handle, struct stream *stream, tarn_workspace_call *call);

/* With handle->lock held, and by its owner: the workspace that it should have; NULL where the policy wants none to be set. Where one must
 * be made the lock is given up meanwhile. */
tarn_status workspace_wanted_locked(struct handle *handle, const struct purpose *purpose, struct workspace **workspace);
/* Whether tarn sets workspaces on a handle now, in a capture or out of one. */
bool workspace_is_ours(const struct handle *handle);
/* A workspace of the least size for a stream, in the handle's list; by its owner, with no lock held. */
tarn_status workspace_stand_in(struct stream *stream, struct workspace **workspace);
/* Sorts a list of workspaces: gives those of captures, which their graphs may still use, and leaves the others. */
struct workspace *workspaces_of_captures(struct workspace **list);
/* Takes out what is cleared and not bound; with `all`, everything. */
struct workspace *workspaces_sweep_locked(struct handle *handle, bool all);
/* A handle follows to a stream whose work comes after that of `used_on`. By its owner. */
void workspaces_follow(struct handle *handle, struct stream *stream);
/* Memory of the device is short: frees the workspaces that nobody uses, those of handles that nobody has and those that a handle is not
 * bound to, except where a graph or an open capture may use them. Whether there were any. Never allocates nor waits; with no lock held. */
bool workspaces_relieve(int device);
/* A pool has ended, and the graphs that used it: frees what they had. */
void workspaces_of_pool_end(tarn_pool_id pool);
/* A capture is over and no graph came of it: frees what it had. */
void workspaces_of_capture_drop(uint64_t capture);
/* Gives a list of them back to the memory layer. With no lock held. NULL is fine. */
void workspaces_free(struct workspace *list);

#endif
