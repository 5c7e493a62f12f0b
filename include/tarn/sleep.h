/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Puts the whole process to sleep: what tarn has of the devices goes back to their drivers, at one call, and comes
 * back at another. Live blocks keep their addresses, and graphs stay valid.
 *
 * A sleep has two steps, for programs of several ranks. tarn_sleep_prepare() waits for work, and copies contents
 * that are to be kept into host memory; no memory leaves the device, so tarn_sleep_cancel() undoes it without a call
 * that can fail. When all ranks have prepared, tarn_sleep_commit() gives the memory back. tarn_sleep() is both
 * steps. What cannot go is reported as *residue*, with the reason.
 *
 * From the prepare until the wake nothing may use memory of pools that sleep, or be queued that does; an allocation
 * from one gives TARN_ERROR_SUSPENDED. Registrations of communication libraries must be taken back before
 * (tarn_unanchor()).
 *
 * All functions are thread-safe. One sleep at a time: a call that meets another under way in another thread gives
 * TARN_ERROR_BUSY. All but tarn_sleep_state_get() and tarn_residue_reason_text() may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_CONFIGURATION, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST,
 * and TARN_ERROR_BUSY from within an observer. */
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

/* What becomes of the contents of a pool's live blocks. */
typedef enum tarn_sleep_contents {
    TARN_SLEEP_KEEP,    /* they are kept in host memory */
    TARN_SLEEP_DISCARD, /* they are undefined afterwards */
    TARN_SLEEP_LEAVE    /* the pool does not sleep */
} tarn_sleep_contents;

/* What goes. Bits. */
#define TARN_SLEEP_POOLS 1u   /* memory of private pools, those of graphs among them; idle memory of the others */
#define TARN_SLEEP_HANDLES 2u /* library handles that nobody has, and workspaces */
#define TARN_SLEEP_PINNED 4u  /* pinned host memory that nobody has */

/* What is done with the pools of a tag. The structure does not grow. */
typedef struct tarn_sleep_rule {
    tarn_tag tag;                 /* as tarn_pool_tag_set() gave it; 0: pools without one */
    tarn_sleep_contents contents; /* of their live blocks */
} tarn_sleep_rule;

/* How the process sleeps. */
typedef struct tarn_sleep_options {
    size_t size;                  /* sizeof(tarn_sleep_options), set by the caller */
    unsigned what;                /* bits TARN_SLEEP_POOLS ...; 0: all of them */
    tarn_sleep_contents contents; /* of pools whose tag no rule names */
    const tarn_sleep_rule *rules; /* may be NULL; read during the call alone */
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
    int device;                 /* whose; -1: of the host's memory */
    tarn_pool_id pool;          /* of a pool; else (0, 0) */
    size_t bytes;               /* of memory; 0 for handles, whose bytes are their libraries' */
    size_t count;               /* of handles; else 0 */
} tarn_residue_item;

/* What stays, and what went. */
typedef struct tarn_residue {
    size_t size;              /* sizeof(tarn_residue), set by the caller */
    tarn_residue_item *items; /* set by the caller: room for what stays; may be NULL with room for 0 */
    size_t room;              /* set by the caller: how many */
    size_t count;             /* how many there are; those beyond the room are left out */
    size_t before;            /* bytes that tarn reserved of all devices when the sleep began */
    size_t after;             /* ... and reserves now */
    size_t kept;              /* bytes of contents in host memory */
} tarn_residue;

/* Whether the process sleeps. */
typedef enum tarn_sleep_state {
    TARN_SLEEP_AWAKE,    /* it does not */
    TARN_SLEEP_CHANGES,  /* another thread is at it */
    TARN_SLEEP_PREPARED, /* tarn_sleep_commit() or tarn_sleep_cancel() is next */
    TARN_SLEEP_ASLEEP    /* tarn_wake() is next */
} tarn_sleep_state;

/* Gives a pool a tag, by which a sleep chooses pools; 0, the initial value, is none. Reads it.
 * TARN_ERROR_INVALID_ARGUMENT for a default pool, what is no pool or no tag, or a NULL. */
TARN_API tarn_status tarn_pool_tag_set(tarn_pool *pool, tarn_tag tag);
TARN_API tarn_status tarn_pool_tag_get(tarn_pool *pool, tarn_tag *tag);

/* Prepares a sleep. `options` may be NULL: everything, contents kept. `residue` may be NULL; it says what would
 * stay. Waits for the work of the pools. All or nothing: on failure the process is awake, with its contents.
 *   TARN_ERROR_CAPTURE              a known capture is open, or a stream of a pool captures
 *   TARN_ERROR_BUSY                 it is prepared or asleep already, another thread suspends or resumes a pool, or
 *                                   an observer's callback runs
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the contents do not fit
 *   TARN_ERROR_INVALID_ARGUMENT     a size, bits, contents or a tag that are unknown */
TARN_API tarn_status tarn_sleep_prepare(const tarn_sleep_options *options, tarn_residue *residue);

/* Gives the memory back; from then on discarded contents are gone. Where memory cannot be unmapped, all of it is put
 * back, with what was to be discarded too, and the process stays prepared. A failure after that, of what the driver
 * or a library does not take back, is returned and the process sleeps all the same: tarn_sleep_state_get() tells the
 * two apart.
 *   TARN_ERROR_CAPTURE            a known capture is open
 *   TARN_ERROR_BUSY               in an observer's callback
 *   TARN_ERROR_INVALID_ARGUMENT   it is not prepared
 *   TARN_ERROR_LIBRARY            a handle could not be destroyed */
TARN_API tarn_status tarn_sleep_commit(tarn_residue *residue);

/* Undoes a prepare. A pool that a commit could neither unmap nor put back is resumed; where that fails the process
 * stays prepared, and nothing more is lost.
 *   TARN_ERROR_INVALID_ARGUMENT   it is not prepared
 *   TARN_ERROR_BUSY               in an observer's callback
 *   TARN_ERROR_OUT_OF_MEMORY      a device, or a limit, has no room */
TARN_API tarn_status tarn_sleep_cancel(void);

/* Both steps. Where the commit leaves the process prepared it is cancelled, so that a failure leaves it awake or, as
 * said there, asleep.
 *   TARN_ERROR_CAPTURE              a known capture is open, or a stream of a pool captures
 *   TARN_ERROR_BUSY                 as tarn_sleep_prepare(); or in an observer's callback
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the contents do not fit
 *   TARN_ERROR_INVALID_ARGUMENT     a size, bits, contents or a tag that are unknown
 *   TARN_ERROR_LIBRARY              a handle could not be destroyed */
TARN_API tarn_status tarn_sleep(const tarn_sleep_options *options, tarn_residue *residue);

/* Gives the pools of the sleep memory again, at the same addresses, with the contents that were kept. Handles,
 * workspaces and pinned memory come again as they are asked for. On failure what was resumed runs, the rest still
 * sleeps with nothing lost, and the call can be repeated.
 *   TARN_ERROR_OUT_OF_MEMORY      a device, or a limit, has no room
 *   TARN_ERROR_CAPTURE            a known capture is open
 *   TARN_ERROR_BUSY               in an observer's callback
 *   TARN_ERROR_INVALID_ARGUMENT   the process does not sleep */
TARN_API tarn_status tarn_wake(void);

/* Whether the process sleeps. Starts nothing. TARN_ERROR_INVALID_ARGUMENT for a NULL; it never fails otherwise. */
TARN_API tarn_status tarn_sleep_state_get(tarn_sleep_state *state);

/* The reason in words; "unknown" for anything else. */
TARN_API const char *tarn_residue_reason_text(tarn_residue_reason reason);

#ifdef __cplusplus
}
#endif
#endif
