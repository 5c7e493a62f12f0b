/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Puts the whole process to sleep: one call gives tarn's device memory back to the drivers, another
 * call takes memory again. Live blocks keep their addresses, and graphs stay valid. Communicators
 * and other libraries that hold device memory, or have registered tarn's, take part as *sleepers*
 * (tarn_sleeper_add()).
 *
 * A sleep has two steps, for programs with several ranks. tarn_sleep_prepare() waits for work, and
 * copies the contents that are to be saved into host memory. It gives back no device memory, so
 * tarn_sleep_cancel() can undo it without a driver call. When all ranks have prepared,
 * tarn_sleep_commit() gives the memory back. tarn_sleep() does both steps. Memory that cannot be
 * given back is reported as *residue*, with the reason.
 *
 * From the prepare until the wake, nothing may use memory of pools that sleep, and no work that
 * does may be queued. An allocation from such a pool returns TARN_ERROR_SUSPENDED. Blocks of such a
 * pool may be freed. Memory that communication libraries have registered must be deregistered, by a
 * sleeper or before the prepare (tarn_unanchor()).
 *
 * A pool that was suspended before stays suspended, and the wake does not resume it. A pool created
 * after the prepare is awake. While the process sleeps, tarn_pool_resume() can wake a single pool.
 * tarn_shutdown() ends a sleep.
 *
 * All functions are thread-safe. There is one sleep at a time: a call returns TARN_ERROR_BUSY while
 * another thread is in one of these calls. A prepare, a commit and a wake keep captures from
 * beginning: tarn_capture_begin() then returns TARN_ERROR_BUSY. Between these calls captures may
 * begin. A prepare waits for all work of a device if a graph holds a pool or a found stream used
 * one, and a commit destroys handles, which waits too. This ends a capture that does not show
 * (stream.h).
 *
 * All functions except tarn_sleep_state_get() may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_CONFIGURATION, TARN_ERROR_DRIVER,
 * TARN_ERROR_DEVICE_LOST, TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_BUSY from within an
 * observer. */
#ifndef TARN_SLEEP_H
#define TARN_SLEEP_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>
#include <tarn/observe.h>
#include <tarn/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to the contents of a pool's live blocks. */
typedef enum tarn_sleep_contents {
    TARN_SLEEP_SAVE,    /* they are saved in host memory */
    TARN_SLEEP_DISCARD, /* they are undefined afterwards */
    TARN_SLEEP_LEAVE    /* the pool does not sleep */
} tarn_sleep_contents;

/* What a sleep gives back. Bits. POOLS is the memory of private pools, including those of graphs,
 * and the idle memory of other pools. */
#define TARN_SLEEP_POOLS 1u
#define TARN_SLEEP_HANDLES 2u  /* library handles that no thread or lease has, and workspaces */
#define TARN_SLEEP_PINNED 4u   /* free pinned host memory */
#define TARN_SLEEP_SLEEPERS 8u /* what the sleepers of tarn_sleeper_add() have */

/* A rule for all pools with a tag. Of several rules for one tag the first counts. The structure
 * does not grow. */
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
#define TARN_RESIDUE_REASON_LIST(X)                                                               \
    X(CONTEXT, 1,                                                                                 \
      "contexts, modules, and what libraries allocate by themselves; where the driver's monitor " \
      "says it")                                                                                  \
    X(HANDLES, 2, "handles that threads, leases or captures have")                                \
    X(WORKSPACES, 3, "workspaces of handles that are in use")                                     \
    X(DEFAULT_POOL, 4, "blocks of a default pool, which always runs")                             \
    X(PLAIN, 5, "blocks in plain segments, whose addresses go with their memory")                 \
    X(REGISTERED, 6, "a pool with memory that is anchored: others have registered it")            \
    X(EXPORTED, 7, "a pool with memory that is exported to other processes")                      \
    X(LEFT, 8, "a pool that the options leave awake")                                             \
    X(PINNED, 9, "pinned host memory that is in use")                                             \
    X(SLEEPER, 10,                                                                                \
      "what a sleeper has: it refused to sleep, failed, or keeps memory while it sleeps")         \
    X(IMPORTED, 11, "memory of other processes that is imported, and so stays on the device")     \
    X(RANGE, 12, "a pool with committed pages of ranges")                                         \
    X(KEPT, 13, "a kept pool, whose memory its owner keeps with the contents")                    \
    X(ENDED, 14, "a pool whose last reference was dropped, with live blocks or anchored memory")

/* Why something stays. */
typedef enum tarn_residue_reason {
#define X(name, value, text) TARN_RESIDUE_##name = value, /* what the list says */
    TARN_RESIDUE_REASON_LIST(X)
#undef X
} tarn_residue_reason;

/* One thing that stays. The structure does not grow. */
typedef struct tarn_residue_item {
    tarn_residue_reason reason; /* why */
    int device;                 /* the device; -1: host memory, or a sleeper of no single device */
    tarn_pool_id pool;          /* the pool; (0, 0) if the item is not memory of a private pool */
    /* Bytes of memory; 0 for handles, whose memory belongs to their libraries. */
    size_t bytes;
    size_t count;     /* number of handles; the tarn_sleeper of SLEEPER; otherwise 0 */
    const char *text; /* the reason in words; the string is constant */
} tarn_residue_item;

/* What stays, and how much was given back. */
typedef struct tarn_residue {
    size_t size; /* sizeof(tarn_residue), set by the caller */
    /* Set by the caller: array for the items; may be NULL if `room` is 0. */
    tarn_residue_item *items;
    size_t room;   /* set by the caller: elements of `items` */
    size_t count;  /* number of items that stay; those beyond `room` are not stored */
    size_t before; /* bytes that tarn reserved on all devices when the sleep began */
    size_t after;  /* bytes that it reserves now */
    size_t saved;  /* bytes of contents in host memory */
} tarn_residue;

/* Whether the process sleeps. */
typedef enum tarn_sleep_state {
    TARN_SLEEP_AWAKE,    /* it does not sleep */
    TARN_SLEEP_CHANGES,  /* another thread is in one of the calls below */
    TARN_SLEEP_PREPARED, /* tarn_sleep_commit() or tarn_sleep_cancel() is next */
    TARN_SLEEP_ASLEEP    /* tarn_wake() is next */
} tarn_sleep_state;

/* Identifies a sleeper. 0 is no sleeper; no number is used twice. */
typedef uint64_t tarn_sleeper;

/* Something that is not tarn's and sleeps with the process, such as a communicator (adaptors/nccl).
 * The callbacks run in the thread that makes the call, and without a lock. During a prepare, a
 * commit and a wake no known capture is open. The callbacks may call any function of tarn except
 * tarn_shutdown() and tarn_host_configuration_set(). Calls that change a sleep return
 * TARN_ERROR_BUSY.
 *
 * The newest sleeper sleeps first, before all pools. The oldest wakes first, after all pools. Each
 * callback gets `user`. Those that can fail may store a reason in the `room` bytes of `why`, and
 * return a status other than TARN_OK.
 *
 * `prepare` waits for the sleeper's work, and changes nothing that is not local or that `cancel`
 * cannot undo. If it returns TARN_ERROR_BUSY, the sleeper refuses: it stays awake, it is residue,
 * and the sleep goes on. With any other status the sleep fails. `commit` gives memory back, and
 * removes the anchors of `pool`. It may communicate: all ranks have prepared. If it fails, the
 * sleeper sleeps in part, and the next call is `commit` or `wake`. `wake` undoes a commit, also of
 * a part. If it fails, the next call is `wake` or `commit`. */
typedef struct tarn_sleeper_options {
    size_t size;      /* sizeof(tarn_sleeper_options) */
    const char *name; /* for messages; it is copied */
    int device;       /* the device whose memory it has; TARN_ALL_DEVICES: no single one */
    /* The pool whose anchors `commit` removes, so that it can sleep; NULL: none. Not retained. */
    tarn_pool *pool;
    void *user; /* passed to each callback; valid until tarn_sleeper_remove() has returned */
    /* Gets ready. May be NULL. */
    tarn_status (*prepare)(void *user, char *why, size_t room);
    /* Undoes a prepare. May be NULL. */
    void (*cancel)(void *user);
    /* Falls asleep. */
    tarn_status (*commit)(void *user, char *why, size_t room);
    /* Wakes. */
    tarn_status (*wake)(void *user, char *why, size_t room);
    /* Returns the bytes of device memory that the sleeper has, for the residue. May be NULL. */
    size_t (*held)(void *user);
} tarn_sleeper_options;

/* What a sleeper does. */
typedef enum tarn_sleeper_state {
    TARN_SLEEPER_AWAKE,    /* it takes part in no sleep */
    TARN_SLEEPER_PREPARED, /* its `prepare` has returned TARN_OK */
    TARN_SLEEPER_ASLEEP    /* also in part: `commit` or `wake` has failed */
} tarn_sleeper_state;

/* A sleeper, and what became of it last. */
typedef struct tarn_sleeper_info {
    size_t size;              /* sizeof(tarn_sleeper_info), set by the caller */
    int device;               /* of its options */
    tarn_sleeper_state state; /* now */
    tarn_status status;       /* what its last callback returned */
    char name[64];            /* of its options; a longer one is cut */
    char why[256];            /* the reason of its last callback; "" if that returned TARN_OK */
} tarn_sleeper_info;

/* Sets a pool's tag. The rules of a sleep choose pools by tag. 0, the initial value, means no tag.
 *   TARN_ERROR_INVALID_ARGUMENT   a default pool, not a pool, or not a tag */
TARN_API tarn_status tarn_pool_tag_set(tarn_pool *pool, tarn_tag tag);

/* Prepares a sleep. With `options` NULL everything sleeps, and contents are saved. `residue`, which
 * may be NULL, gets what would stay. Waits for the work of the sleepers and of the pools. If the
 * call fails, the process is awake, with its contents.
 *   TARN_ERROR_CAPTURE              a capture is known or shows, or a stream of a pool captures; it
 *                                   survives
 *   TARN_ERROR_BUSY                 the process is prepared or asleep already, another thread
 *                                   suspends or resumes a pool, or the thread is in a `mapped` or
 *                                   `unmapping` callback (observe.h)
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the contents do not fit
 *   TARN_ERROR_LIBRARY              a sleeper could not prepare: tarn_last_error() has its name and
 *                                   its reason
 *   TARN_ERROR_INVALID_ARGUMENT     sizes, bits or contents that are unknown; or a NULL array whose
 *                                   count is not 0 */
TARN_API tarn_status tarn_sleep_prepare(const tarn_sleep_options *options, tarn_residue *residue);

/* Gives the memory back, and destroys the contents that are to be discarded. A failed call leaves
 * one of two states, which tarn_sleep_state_get() returns. If a sleeper fails, nothing else is
 * done, and the process stays prepared. If some memory cannot be unmapped, all of it is mapped
 * again, with all contents, and the process stays prepared too. A pool whose memory cannot be
 * mapped again is suspended in part, without contents that were to be discarded: later commits
 * leave it so, and a cancel or tarn_pool_resume() resumes it. Sleepers whose commit has succeeded
 * then sleep on until the next call: a cancel wakes them, and a commit omits them. If all memory
 * was unmapped, but the driver or a library does not take something back, the call returns that
 * failure, and the process sleeps. Once sleepers are asked, `residue` is filled in, also on
 * failure. A pool that has anchors after the commits of the sleepers stays awake. So does one whose
 * last reference was dropped after the prepare began.
 *   TARN_ERROR_CAPTURE            a capture is known or shows; it survives
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_INVALID_ARGUMENT   the process is not prepared; or `residue` as in
 *                                 tarn_sleep_prepare()
 *   TARN_ERROR_LIBRARY            a sleeper failed, or a handle could not be destroyed */
TARN_API tarn_status tarn_sleep_commit(tarn_residue *residue);

/* Undoes a prepare. Directly after a prepare it makes no driver call. After a failed commit it
 * first resumes each pool that the commit could neither unmap nor map again; contents of it that
 * were to be discarded may be lost. If that fails for one, the process stays prepared: pools that
 * were resumed run, all others are as they were, and the call can be repeated. A pool of a lost
 * device is left suspended, and does not count as such a failure. Then it wakes the sleepers that
 * sleep. If one does not wake, the process stays prepared and the call can be repeated; all pools
 * run, and a commit omits them.
 *   TARN_ERROR_INVALID_ARGUMENT   the process is not prepared
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_CAPTURE            after a failed commit: a capture is known or shows on the device
 *                                 of such a pool, or on any device if a sleeper sleeps
 *   TARN_ERROR_LIBRARY            after a failed commit: a sleeper could not wake
 *   TARN_ERROR_OUT_OF_MEMORY      after a failed commit: a device, or a limit, has no room
 *   TARN_ERROR_SYSTEM             after a failed commit: as tarn_pool_resume()
 *   TARN_ERROR_DEVICE_LOST        after a failed commit: a pool of a lost device was not resumed.
 *                                 Everything else is awake, and so is the process */
TARN_API tarn_status tarn_sleep_cancel(void);

/* Prepares and commits a sleep. If the commit fails and leaves the process prepared, the sleep is
 * cancelled. So after a failure the process is awake, or asleep as tarn_sleep_commit() says; or
 * prepared, if the cancel failed too.
 *   TARN_ERROR_CAPTURE              a capture is known or shows, or a stream of a pool captures; it
 *                                   survives
 *   TARN_ERROR_BUSY                 as tarn_sleep_prepare(); or in such a callback
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the contents do not fit
 *   TARN_ERROR_INVALID_ARGUMENT     as tarn_sleep_prepare()
 *   TARN_ERROR_LIBRARY              a sleeper failed, or a handle could not be destroyed */
TARN_API tarn_status tarn_sleep(const tarn_sleep_options *options, tarn_residue *residue);

/* Wakes the process: gives its pools memory again, at the same addresses, with the contents that
 * were saved. Handles, workspaces and pinned memory are created again on demand, even before the
 * wake. A pool without references is not resumed. When all pools run, the sleepers wake. On failure
 * those that woke are awake, the others sleep on and have lost nothing; repeat the call. After
 * TARN_ERROR_DEVICE_LOST all is awake except the pools of a device that is lost.
 *   TARN_ERROR_OUT_OF_MEMORY      a device, or its limit, has no room; as tarn_pool_resume()
 *   TARN_ERROR_CAPTURE            a capture is known or shows; it survives
 *   TARN_ERROR_BUSY               the thread is in a `mapped` or `unmapping` callback (observe.h)
 *   TARN_ERROR_LIBRARY            a sleeper could not wake
 *   TARN_ERROR_INVALID_ARGUMENT   the process does not sleep */
TARN_API tarn_status tarn_wake(void);

/* Adds a sleeper. It is awake, and takes part in the sleeps that begin from now on. If its
 * callbacks communicate, all ranks must add their sleepers in the same order. The call may be made
 * during a capture and, with `pool` NULL, before the first use of tarn.
 *   TARN_ERROR_INVALID_ARGUMENT     a NULL, an unknown size, no name, no `commit` or `wake`, a
 *                                   device that cannot exist, a default pool, or not a pool
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_sleeper_add(const tarn_sleeper_options *options, tarn_sleeper *sleeper);

/* Removes a sleeper. No callback is called, neither by this call nor later. One that is prepared or
 * asleep no longer takes part: the caller cancels or wakes what it stands for. The call may be made
 * during a capture, and also works after tarn_shutdown(), which calls no sleeper.
 *   TARN_ERROR_BUSY               a callback of the sleeper runs, or is about to
 *   TARN_ERROR_INVALID_ARGUMENT   not a sleeper, or one that was removed */
TARN_API tarn_status tarn_sleeper_remove(tarn_sleeper sleeper);

/* Returns what became of a sleeper last. The call may be made during a capture.
 *   TARN_ERROR_INVALID_ARGUMENT   not a sleeper, one that was removed, NULL, or an unknown size */
TARN_API tarn_status tarn_sleeper_info_get(tarn_sleeper sleeper, tarn_sleeper_info *info);

/* Returns whether the process sleeps. The call starts nothing. After tarn_shutdown() the process is
 * awake. A child of fork() gets the parent's state at the fork.
 *   TARN_ERROR_INVALID_ARGUMENT   `state` is NULL */
TARN_API tarn_status tarn_sleep_state_get(tarn_sleep_state *state);

#ifdef __cplusplus
}
#endif
#endif
