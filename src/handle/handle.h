/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles, and the threads and leases that have them. */
#ifndef TARN_HANDLE_HANDLE_H
#define TARN_HANDLE_HANDLE_H

#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/lock.h"
#include "device/device.h"
#include "device/stream.h"
#include "handle/registry.h"

#include <tarn/memory.h>

/* One vendor handle. Its owner is the thread or the lease that has it; an available handle has no
 * owner. Each has its own cache line, because each bind writes to it. */
struct handle {
    _Alignas(64) void *vendor;
    struct entry *library;
    struct handle *all; /* shelf lock: the next of all that exist */
    /* Shelf lock while available, else the owner's: the next in that list. */
    struct handle *next;
    struct holder *holder; /* shelf lock: the thread that has it; NULL: leased or available */
    bool available;        /* shelf lock */
    /* Shelf lock: while available, only a get on this stream may take it; NULL: any get. */
    struct stream *meant_for;
    unsigned meant_incarnation;

    /* What was set last in the vendor's handle. The owner writes it under `lock`, which other
     * threads take to read. */
    mutex lock;
    struct stream *stream; /* NULL: unknown */
    unsigned incarnation;
    /* The last stream that it was bound to, even if later attempts to bind it failed. NULL: no
     * stream can still have work of the handle. */
    struct stream *used_on;
    unsigned used_incarnation;
    /* The capture that the stream took part in at the last bind: workspace_capture(). */
    uint64_t capture;
    /* The epochs of captures, workspaces and modes at the last bind. */
    uint64_t captures, settings, mode_changes;
    intptr_t modes[LIBRARY_MODES]; /* as they were set, or read from the handle */
    /* The modes at the handle's creation, if `knows_usual`. */
    intptr_t usual[LIBRARY_MODES];
    bool knows_usual[LIBRARY_MODES];
    /* Its modes may differ from `modes`: it is new, or its owner or another thread may have set
     * them. */
    bool reset;
    unsigned calls; /* calls of tarn_workspace_begin() that have no end yet */
    /* A workspace of tarn was set in the vendor's handle, and was not taken out by
     * set_workspace(NULL, 0): the handle may point to it, even if it was freed. */
    bool points;
    /* A graph may use its original memory: it gets no workspace any more. */
    bool own_captured;
    struct workspace *workspaces; /* by stream and capture */
    /* One of `workspaces`: the vendor's handle, or the caller, points to it. NULL: to none, to
     * one that was freed, or to one that another handle lends. */
    struct workspace *bound;
    /* One of `workspaces` that serves the owner's calls of another library (`workspace_lender`).
     * A clear by another thread only marks it. Then the owner's next loan or clear frees it, or
     * the return of the handle, but no bind does. If it is `bound` too, that loan leaves it to
     * the next bind. */
    struct workspace *lent;

    /* Written by the owner during a bind: the function of the library that failed; NULL: none. */
    struct refused {
        const char *call;
        int code;
    } refused;

    struct shelf *shelf;
    /* The number of its lease; 0: none. Kept when the handle is freed, for stale leases. */
    atomic_uint_fast64_t lease;
};

/* The handles of a library on a device. */
struct shelf {
    mutex lock; /* of all below */
    pthread_cond_t first_over;
    struct device *device;
    /* A create runs alone until one has succeeded, except a create inside another. */
    enum { FIRST_TO_COME, FIRST_UNDER_WAY, FIRST_DONE } first;
    unsigned creating; /* now, side by side */
    /* Creates that have begun, ever: if it grows during a create, others ran at the same time. */
    uint64_t started;
    atomic_uint_fast64_t returned; /* lock to change: how often a handle became available */
    struct handle *available;      /* last in, first out */
    struct handle *all;
    /* Of captures, whose handles were destroyed: graphs may still use them. */
    struct workspace *orphans;
    tarn_handle_stats stats;
    atomic_uint_fast64_t contract_breaks; /* no lock */
};

/* What a thread's get reads without a lock: one slot per library and device. Only the thread uses
 * it. All zero: the thread has no handle here. */
struct slot {
    uint64_t changes;    /* process_changes when the rest was valid; 0: not valid */
    tarn_stream stream;  /* the value of thread->current at the last get */
    void *vendor;        /* the handle to return */
    struct handle *held; /* all handles of the thread here; the first one is `vendor` */
};

/* A create in progress; it is on the stack of its thread. */
struct making {
    struct undo undo;
    struct shelf *shelf;
    struct making *outer; /* the create during which this one began; NULL: none */
    struct handle *handle;
    bool first; /* it runs alone */
};

#define LIBRARIES (TARN_MAX_LIBRARIES + 1)

/* The handles of a thread. When the thread ends, the holder is put on a list of free ones, and
 * another thread takes it over; its memory is never unmapped. Only its thread uses fields that name
 * no lock. */
struct holder {
    /* The thread is in a call that may reach a vendor: tarn_shutdown() waits. */
    atomic_uint busy;
    struct holder *all, *free;              /* holders lock */
    uint64_t wait_ns;                       /* tarn_handle_wait_limit_set() */
    struct making *making;                  /* NULL: none */
    int64_t modes[LIBRARIES][COMMON_MODES]; /* the thread's modes plus 1; 0: the process's mode */
    int devices;
    struct slot slots[]; /* [device][LIBRARIES] */
};

static inline struct slot *slot_of(struct holder *holder, int device, int library)
{
    return &holder->slots[(size_t)(unsigned)device * LIBRARIES + (unsigned)library];
}

/* Begins a call that may reach a vendor: the device layer is ready, the calling thread has a
 * holder, the workspaces of graphs that have ended are free, and tarn_shutdown() waits for
 * call_end(). Nests. Called with no lock held. */
tarn_status call_begin(struct holder **holder);
void call_end(struct holder *holder);

/* The calling thread's handle of a library for a stream, bound to it. Between call_begin() and
 * call_end(). */
tarn_status handle_of_thread(struct holder *holder, struct entry *entry, struct stream *stream,
                             struct handle **handle);
/* Takes an available handle, or creates one. From then on it counts as in use. It is still bound to
 * the stream that it was bound to before. */
tarn_status shelf_take(struct entry *entry, struct shelf *shelf, struct stream *stream,
                       uint64_t wait_ns, struct handle **handle);
/* Brackets what is done with a handle that was taken: if a call of the library does not return, the
 * handle is given back. */
struct taken {
    struct undo undo;
    struct handle *handle;
};
void taken_begin(struct taken *taken, struct handle *handle);
void taken_end(struct taken *taken);
/* How long a get waits at least, in ns, for the first create of its library and device in another
 * thread. Tests change it. */
extern uint64_t shelf_first_limit_ns;
/* Gives a handle that was in use back. Called by its owner, in a call that tarn_shutdown() waits
 * for, or after the shutdown. */
void handle_give_back(struct handle *handle);
/* Whether a pointer from a caller is a handle that was created and not destroyed. */
bool handle_is_live(const void *handle);
/* Moves a handle of a library with one handle per stream to another stream: work on the new stream
 * runs after work of the old one, whose workspace moves too. Called by its owner. */
tarn_status handle_follow(struct handle *handle, struct stream *stream);

/* held.c: for a library with one handle per stream. Picks the thread's handle that was unused for
 * the longest time and can move to another stream, moves it to the front of the slot's list, and
 * returns it. NULL if the thread has fewer than `least` handles, or none can move. */
struct handle *held_move(struct slot *slot, struct stream *stream, size_t least);
/* Makes the slot forget the handle. */
void slot_forget(struct holder *holder, const struct handle *handle);

/* The shelf of a library on a device. */
tarn_status shelf_of(struct entry *entry, struct device *device, struct shelf **shelf);
/* The same if it exists, otherwise NULL. */
struct shelf *shelf_known(const struct entry *entry, int device);

/* Destroys all available handles; returns the first failure. With `keep`, workspaces of captures
 * outlive their handles. If the device cannot be reached, because the driver is gone or the device
 * is lost, none is destroyed: at a shutdown that is better than a crash (rocBLAS aborts). */
tarn_status handles_destroy(struct shelf *shelf, bool keep, size_t *count);

/* vendor.c: the calls into a vendor library. None is made with a shelf's lock held. ----------- */

/* Calls the vendor's create on the shelf's device, in its context and in relaxed capture mode. If
 * the device is full, gives idle memory back and tries once more. Measures the time and, if
 * `alone`, the device memory (otherwise -1). */
tarn_status vendor_create(struct handle *handle, bool alone, uint64_t *ns, int64_t *bytes);
/* Prepares a new handle for a bind in a capture: does the part of a first bind that a capture does
 * not survive. Called by its owner, while `stream`, whose memory it takes, does not capture. */
tarn_status vendor_prepare(struct handle *handle, struct stream *stream);
/* Whether that was done, or is not necessary. Called by the owner, or with the shelf's lock held
 * while the handle is available. */
bool vendor_is_prepared(struct handle *handle);
/* Brackets creates and destroys, also several in a row: the device's context is current, the
 * capture mode is relaxed, and the thread is not cancelled. */
struct visit {
    struct undo undo;
    struct cancel cancel;
    int device;
    driver_context before; /* the thread's, and its device */
    int device_before;
    bool knows_before, relaxed;
    enum driver_capture_mode mode;
};
tarn_status visit_begin(struct device *device, struct visit *visit);
void visit_end(struct visit *visit, bool stay);
tarn_status vendor_destroy(const struct handle *handle);
/* Sets the stream, then the workspace, then modes, but only those that differ from what was set
 * last. Also makes the check of TARN_DEBUG=handles. */
tarn_status vendor_bind(struct handle *handle, struct stream *stream, unsigned incarnation);
/* modes.c: the value that a handle should have for one of the first modes: its thread's, otherwise
 * the process's; -1: the value from its creation. Called by the owner. */
int mode_wanted(const struct handle *handle, int mode);
/* For TARN_STREAM_NONE: leaves the handle to its owner as it is, for work on `stream`. Afterwards
 * tarn knows nothing of the handle's state. If the handle may still point to freed memory, binds it
 * first. */
tarn_status vendor_leave(struct handle *handle, struct stream *stream, unsigned incarnation);
/* TARN_DEBUG=handles. */
bool vendor_is_watched(void);
/* Whether the calling thread is in a call to a vendor's library during which a lock is held. */
bool vendor_is_told(void);
/* Brackets such calls. The thread is not cancelled within. If one of them does not return, the lock
 * is released. */
struct tell {
    struct undo undo;
    struct handle *handle;
    struct cancel cancel;
};
void tell_begin_locked(struct tell *tell, struct handle *handle);
void tell_end_locked(struct tell *tell);

/* workspace*.c --------------------------------------------------------------------------------- */

#define ANY_CAPTURE UINT64_MAX /* it may be any */

struct workspace {
    struct workspace *next;
    struct stream *stream;
    unsigned incarnation;
    int device;
    uint64_t capture; /* the capture that it belongs to; 0: none */
    /* A capture that tarn did not know of and that was seen to use it; ANY_CAPTURE: several. */
    uint64_t shared;
    uint64_t used;     /* when it was last bound, counted over all workspaces */
    tarn_pool_id pool; /* of a capture: the pool of its block; (0, 0): the default pool */
    void *pointer;
    size_t size;  /* bytes; 0: the library is set to use none */
    bool cleared; /* freed when the handle's owner no longer uses it */
};

/* workspace_settings.c: the settings of workspaces. The number grows when anything changes that the
 * choice of a workspace depends on: policy, sizes, a clear. */
uint64_t workspaces_epoch(void);
void workspaces_changed(void);
tarn_workspace_policy workspace_policy(void);
/* Whether one library's workspaces serve another's calls: TARN_CUBLASLT_UNIFIED_WORKSPACE. */
bool workspaces_are_unified(void);
size_t workspace_bytes(struct entry *entry, const struct device *device);
/* TARN_ERROR_NOT_SUPPORTED unless the workspace is an argument of each call. */
tarn_status workspace_refuse_in_handle(const struct entry *entry);

/* The purpose of a workspace: a stream, and the capture that the stream takes part in; 0: none. */
struct purpose {
    struct stream *stream;
    unsigned incarnation;
    uint64_t capture;
};

/* The capture for which a handle needs its own workspace on a stream. While any known capture is
 * open, the driver is asked, because a stream can join a capture without calling tarn. Otherwise 0,
 * and also 0 for handles without a workspace. */
tarn_status workspace_capture(const struct handle *handle, const struct stream *stream,
                              uint64_t *capture);
/* Whether only events that change `process_changes` can change that result. */
bool workspace_is_settled(const struct handle *handle);

/* For libraries that take the workspace as an argument: whether the caller may still use the one
 * that it got, on this stream. Called by the owner, with handle->lock held. */
bool workspace_is_given(const struct handle *handle, const struct stream *stream);

/* For a handle that is bound to `stream`, called by its owner: returns the workspace that is an
 * argument of calls; and gives the handle a workspace until tarn_workspace_end(). `lender` is a
 * handle of the same owner whose workspace may serve; NULL: none. */
tarn_status workspace_give(struct handle *handle, struct handle *lender, struct stream *stream,
                           void **pointer, size_t *size);
tarn_status workspace_call_begin(struct handle *handle, struct stream *stream,
                                 tarn_workspace_call *call);
/* The same for the handle of a lease of `library`, and the stream that it is bound to. */
tarn_status lease_workspace(const tarn_lease *lease, tarn_library library, void **pointer,
                            size_t *size);
tarn_status lease_workspace_begin(const tarn_lease *lease, tarn_library library,
                                  tarn_workspace_call *call);

/* Called by the owner with handle->lock held: the workspace that the handle should have; NULL if
 * the policy sets none. To create one, the lock is released meanwhile. */
tarn_status workspace_wanted_relocking(struct handle *handle, const struct purpose *purpose,
                                       struct workspace **workspace);
/* Whether tarn sets workspaces on a handle now, in a capture or out of one. */
bool workspace_is_ours(const struct handle *handle);
/* Adds a workspace of the smallest size for a stream to the handle's list. Called by its owner,
 * with no lock held. */
tarn_status workspace_stand_in(struct stream *stream, struct workspace **workspace);
/* Splits a list of workspaces: returns those of captures, which their graphs may still use, and
 * leaves the others. */
struct workspace *workspaces_of_captures(struct workspace **list);
/* Removes workspaces that are cleared and not bound; with `all`, every workspace. */
struct workspace *workspaces_sweep_locked(struct handle *handle, bool all);
/* A handle moves to a stream whose work comes after that of `used_on`. Called by its owner. */
void workspaces_follow(struct handle *handle, struct stream *stream);
/* Frees unused workspaces of a device, the least recently used first, until they are no more than
 * the settings allow; the conditions are those of the next function. Called after a handle was
 * bound. */
void workspaces_limit(int device);
/* Called when memory of the device is short: frees unused workspaces, that is those of available
 * handles and those that a handle is not bound to, unless a graph or an open capture may use them.
 * Returns whether there were any. Never allocates or waits; called with no lock held. */
bool workspaces_relieve(int device);
/* A pool has ended, and so have the graphs that used it: frees their workspaces. */
void workspaces_of_pool_end(tarn_pool_id pool);
/* A capture has ended without a graph: frees its workspaces. */
void workspaces_of_capture_drop(uint64_t capture);
/* A capture has ended with a graph: its workspaces are freed by workspaces_collect() when the
 * graph, and all that was made of it, has ended. If the driver cannot report that, they stay.
 * Called with no lock held. */
void workspaces_of_graph(uint64_t capture, int device, driver_graph graph);
bool workspaces_collect(void); /* whether graphs had ended */
void workspaces_graph_over(uint64_t capture);
bool workspaces_any_captured(void);
/* Bytes of a device's workspaces, and how many of them belong to captures. */
void workspaces_sum(int device, size_t *bytes, size_t *captured);
/* Frees a list of workspaces. Called with no lock held. NULL is allowed. */
void workspaces_free(struct workspace *list);

/* Whether the workspace's stream was retired: then no handle will be bound to it again. */
bool workspace_is_stale(const struct workspace *workspace);
/* Whether the handle's owner, or the vendor's handle, may point to the workspace. */
bool workspace_is_in_use(const struct handle *handle, const struct workspace *workspace);
/* The capture that the stream takes part in, as the driver says; 0: none, or an invalidated one,
 * which gives no graph. The legacy stream takes part in none, although the driver refuses the
 * question while a blocking stream captures. */
tarn_status workspace_ask_capture(const struct stream *stream, uint64_t *capture);
/* workspace_stats.c: a workspace was made; was freed, or leaked to a handle that still points to
 * it; will be freed when its owner no longer uses it. */
void workspace_count_made(const struct workspace *workspace);
void workspace_count_gone(const struct workspace *workspace, bool leaked);
void workspace_count_deferred(const struct workspace *workspace);
/* More workspaces of the device may be unused than the settings allow: the next
 * workspaces_limit() looks. */
void workspaces_may_exceed(int device);

#endif
