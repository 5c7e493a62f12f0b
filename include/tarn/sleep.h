/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Puts the whole process to sleep: one call gives tarn's device memory back to the drivers, another call takes memory
 * again. Live blocks keep their addresses, and graphs stay valid.
 *
 * A sleep has two steps, for programs with several ranks. tarn_sleep_prepare() waits for work, and copies the contents
 * that are to be kept into host memory. It gives back no device memory, so tarn_sleep_cancel() can undo it without a
 * driver call. When all ranks have prepared, tarn_sleep_commit() gives the memory back. tarn_sleep() does both steps.
 * Memory that cannot be given back is reported as *residue*, with the reason.
 *
 * From the prepare until the wake, nothing may use memory of pools that sleep, and no work that does may be queued. An
 * allocation from such a pool returns TARN_ERROR_SUSPENDED. Blocks of such a pool may be freed. Deregister memory from
 * communication libraries before (tarn_unanchor()).
 *
 * A pool that was suspended before stays suspended, and the wake does not resume it. A pool created after the prepare
 * is awake. While the process sleeps, tarn_pool_resume() can wake a single pool. tarn_shutdown() ends a sleep.
 *
 * All functions are thread-safe. There is one sleep at a time: a call returns TARN_ERROR_BUSY while another thread is
 * in one of these calls. A prepare, a commit and a wake keep captures from beginning: tarn_capture_begin() then returns
 * TARN_ERROR_BUSY. Between these calls captures may begin.
 *
 * All functions except tarn_sleep_state_get() and tarn_residue_reason_text() may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_CONFIGURATION, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST,
 * TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_BUSY from within an observer. */
#ifndef TARN_SLEEP_H
#define TARN_SLEEP_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>
#include <tarn/pool.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to the contents of a pool's live blocks. */
typedef enum tarn_sleep_contents {
    TARN_SLEEP_KEEP,    /* they are kept in host memory */
    TARN_SLEEP_DISCARD, /* they are undefined afterwards */
    TARN_SLEEP_LEAVE    /* the pool does not sleep */
} tarn_sleep_contents;

/* What a sleep gives back. Bits. */
#define TARN_SLEEP_POOLS 1u   /* memory of private pools, including those of graphs; idle memory of other pools */
#define TARN_SLEEP_HANDLES 2u /* library handles that no thread or lease has, and workspaces */
#define TARN_SLEEP_PINNED 4u  /* free pinned host memory */

/* A rule for all pools with a tag. Of several rules for one tag the first counts. The structure does not grow. */
typedef struct tarn_sleep_rule {
    tarn_tag tag;                 /* that tarn_pool_tag_set() has set; 0: pools without a tag */
    tarn_sleep_contents contents; /* of their live blocks */
} tarn_sleep_rule;

/* How the process sleeps. */
typedef struct tarn_sleep_options {
    size_t size;                  /* sizeof(tarn_sleep_options), set by the caller */
    unsigned what;                /* bits TARN_SLEEP_POOLS ...; 0: all of them */
    tarn_sleep_contents contents; /* of pools whose tag no rule names */
    const tarn_sleep_rule *rules; /* may be NULL; only read during the call */
    size_t rule_count;            /* how many */
} tarn_sleep_options;

/* X(name, value, what stays on the device, or in the host's memory) */
#define TARN_RESIDUE_REASON_LIST(X)                                                                                   \
    X(CONTEXT, 1, "contexts, modules, and what libraries allocate by themselves; where the driver's monitor says it") \
    X(HANDLES, 2, "handles that threads, leases or captures have")                                                    \
    X(WORKSPACES, 3, "workspaces of handles that are in use")                                                         \
    X(DEFAULT_POOL, 4, "blocks of a default pool, which always runs")                                                 \
    X(PLAIN, 5, "blocks in plain segments, whose addresses go with their memory")                                     \
    X(REGISTERED, 6, "a pool with memory that is anchored: others have registered it")                                \
    X(EXPORTED, 7, "a pool with memory that is exported to other processes")                                          \
    X(LEFT, 8, "a pool that the options leave awake")                                                                 \
    X(PINNED, 9, "pinned host memory that is in use")

/* Why something stays. */
typedef enum tarn_residue_reason {
#define X(name, value, text) TARN_RESIDUE_##name = value, /* what the list says */
    TARN_RESIDUE_REASON_LIST(X)
#undef X
} tarn_residue_reason;

/* One thing that stays. The structure does not grow. */
typedef struct tarn_residue_item {
    tarn_residue_reason reason; /* why */
    int device;                 /* the device; -1: host memory */
    tarn_pool_id pool;          /* the pool; (0, 0) if the item is not memory of a private pool */
    size_t bytes;               /* bytes of memory; 0 for handles, whose memory belongs to their libraries */
    size_t count;               /* number of handles; otherwise 0 */
} tarn_residue_item;

/* What stays, and how much was given back. */
typedef struct tarn_residue {
    size_t size;              /* sizeof(tarn_residue), set by the caller */
    tarn_residue_item *items; /* set by the caller: array for the items; may be NULL if `room` is 0 */
    size_t room;              /* set by the caller: elements of `items` */
    size_t count;             /* number of items that stay; those beyond `room` are not stored */
    size_t before;            /* bytes that tarn reserved on all devices when the sleep began */
    size_t after;             /* bytes that it reserves now */
    size_t kept;              /* bytes of contents in host memory */
} tarn_residue;

/* Whether the process sleeps. */
typedef enum tarn_sleep_state {
    TARN_SLEEP_AWAKE,    /* it does not sleep */
    TARN_SLEEP_CHANGES,  /* another thread is in one of the calls below */
    TARN_SLEEP_PREPARED, /* tarn_sleep_commit() or tarn_sleep_cancel() is next */
    TARN_SLEEP_ASLEEP    /* tarn_wake() is next */
} tarn_sleep_state;

/* Set or return a pool's tag. The rules of a sleep choose pools by tag. 0, the initial value, means no tag.
 *   TARN_ERROR_INVALID_ARGUMENT   a default pool, not a pool, not a tag, or NULL */
TARN_API tarn_status tarn_pool_tag_set(tarn_pool *pool, tarn_tag tag);
TARN_API tarn_status tarn_pool_tag_get(tarn_pool *pool, tarn_tag *tag);

/* Prepares a sleep. With `options` NULL everything sleeps, and contents are kept. `residue`, which may be NULL, gets
 * what would stay. Waits for the work of the pools. If the call fails, the process is awake, with its contents.
 *   TARN_ERROR_CAPTURE              a known capture is open, or a stream of a pool captures
 *   TARN_ERROR_BUSY                 the process is prepared or asleep already, another thread suspends or resumes a
 *                                   pool, or the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the contents do not fit
 *   TARN_ERROR_INVALID_ARGUMENT     sizes, bits or contents that are unknown; or a NULL array whose count is not 0 */
TARN_API tarn_status tarn_sleep_prepare(const tarn_sleep_options *options, tarn_residue *residue);

/* Gives the memory back, and destroys the contents that are to be discarded. A failed call leaves one of two states,
 * which tarn_sleep_state_get() returns. If some memory cannot be unmapped, all of it is mapped again, with all
 * contents, and the process stays prepared. If the driver or a library does not take something back after that, the
 * call returns that failure, but the process sleeps. In both cases `residue` is filled in.
 *   TARN_ERROR_CAPTURE            a known capture is open
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_INVALID_ARGUMENT   the process is not prepared; or `residue` as in tarn_sleep_prepare()
 *   TARN_ERROR_LIBRARY            a handle could not be destroyed */
TARN_API tarn_status tarn_sleep_commit(tarn_residue *residue);

/* Undoes a prepare. Directly after a prepare it makes no driver call. After a failed commit it first resumes each pool
 * that the commit could neither unmap nor map again. If that fails for one, the process stays prepared: pools that were
 * resumed run, all others are as they were, and the call can be repeated.
 *   TARN_ERROR_INVALID_ARGUMENT   the process is not prepared
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_CAPTURE            after a failed commit: a known capture is open on the device of such a pool
 *   TARN_ERROR_OUT_OF_MEMORY      after a failed commit: a device, or a limit, has no room */
TARN_API tarn_status tarn_sleep_cancel(void);

/* Prepares and commits a sleep. If the commit fails and leaves the process prepared, the sleep is cancelled. So after
 * a failure the process is awake, or asleep as tarn_sleep_commit() says.
 *   TARN_ERROR_CAPTURE              a known capture is open, or a stream of a pool captures
 *   TARN_ERROR_BUSY                 as tarn_sleep_prepare(); or in such a callback
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the contents do not fit
 *   TARN_ERROR_INVALID_ARGUMENT     as tarn_sleep_prepare()
 *   TARN_ERROR_LIBRARY              a handle could not be destroyed */
TARN_API tarn_status tarn_sleep(const tarn_sleep_options *options, tarn_residue *residue);

/* Wakes the process: gives the pools of the sleep memory again, at the same addresses, with the contents that were
 * kept. Handles, workspaces and pinned memory are created again when they are asked for, even before the wake. A pool
 * whose last reference was dropped meanwhile is not resumed. If the call fails, pools that were resumed run, the others
 * still sleep and have lost nothing, and the call can be repeated.
 *   TARN_ERROR_OUT_OF_MEMORY      a device, or a limit, has no room
 *   TARN_ERROR_CAPTURE            a known capture is open
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_INVALID_ARGUMENT   the process does not sleep */
TARN_API tarn_status tarn_wake(void);

/* Returns whether the process sleeps. The call starts nothing. After tarn_shutdown() the process is awake. A child of
 * fork() gets the parent's state at the fork.
 *   TARN_ERROR_INVALID_ARGUMENT   `state` is NULL */
TARN_API tarn_status tarn_sleep_state_get(tarn_sleep_state *state);

/* Returns the reason in words, or "unknown" for any other value. */
TARN_API const char *tarn_residue_reason_text(tarn_residue_reason reason);

#ifdef __cplusplus
}
#endif
#endif
