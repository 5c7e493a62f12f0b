/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What runs against the order of rooms and layers. `hooks` has the functions of higher rooms of the
 * memory layer that lower rooms call: it is constant, and defined in memory/hooks.c. `upper_hooks`
 * has those that come and go: of the layers above memory, which register them, and of scopes.
 * Before calling a function for debug mode, the caller checks by debug_has() that it is on. */
#ifndef TARN_MEMORY_HOOKS_H
#define TARN_MEMORY_HOOKS_H

#include "base/debug_words.h"
#include "device/device.h"

#include <tarn/pool.h>

struct arena;
struct debug_block;
struct heap;
struct pinned_keeper;
struct pinned_pool;
struct store;
struct use;

struct hooks {
    /* The first use of memory in the process; before the call that it is goes on. */
    void (*begin)(void);

    /* The settings have changed: what follows them reads memory_config(). In the thread that
     * changed them, with no lock held. */
    void (*configured)(void);
    /* Lets pools go that have ended, with the pinned memory that they keep: before pinned memory is
     * given back, counted for a caller or refused. No lock held. */
    void (*collect_pools)(void);

    /* Debug mode: debug.h says what each does. With DEBUG_BLOCKS or DEBUG_CONTEXT, the first of
     * them; with DEBUG_BLOCKS, a free; for uses that are watched, the three that follow; with
     * DEBUG_CONTENTS, the rest. */
    void (*debug_turn)(void);
    void (*debug_free_locked)(struct heap *heap, uintptr_t start, struct use **uses);
    void (*debug_ended_locked)(struct debug_block *block);
    bool (*debug_is_over)(const struct debug_block *block);
    void (*debug_gone_locked)(struct debug_block *block);
    bool (*debug_relieve)(struct arena *arena, uint64_t *seen);
    void (*debug_settle)(struct store *store);
    void (*debug_forget)(const struct store *store);
    void (*debug_pause)(void);
    void (*debug_go_on)(void);

    /* A heap follows no plan any more: plan.h. Under its lock. */
    void (*plan_end_locked)(struct heap *heap);

    /* A pool has ended, so its idle memory goes back to the driver; a pool resumes and needs
     * memory, which others have. With no lock held: trim.h. */
    void (*give_back)(struct arena *arena, struct store *store);
    void (*make_room)(struct arena *arena, size_t keep);
    /* It has not got the memory: shortage.h. */
    void (*refuse_resume)(const struct store *store, size_t need);

    /* A commit of a range needs memory: trim.h. It has not got it: shortage.h. */
    tarn_status (*trim)(struct arena *arena, struct store *store, size_t keep);
    void (*refuse_range)(const struct store *store, size_t need);
    /* A suspend takes the memory of a store: range.h. */
    tarn_status (*ranges_leave)(struct store *store);
};

extern const struct hooks hooks;

/* The pool of pinned memory that serves a request made for a stream, retained for the request;
 * NULL: the default pool. */
typedef struct pinned_pool *pinned_route_hook(struct stream *stream);
/* What keeps the pinned blocks that a stream's capture uses, retained; NULL: the default pool
 * does. */
typedef struct pinned_keeper *pinned_capture_hook(struct stream *stream);
/* A pool has no references any more: frees the blocks that handles have in it for their graphs. */
typedef void pool_ended_hook(tarn_pool_id id);
/* Bytes of a device that are in workspaces, and of those, in workspaces of captures. */
typedef void workspaces_hook(int device, size_t *bytes, size_t *captured);
/* Frees workspaces that are not needed, before the ladder waits and before a request fails. Returns
 * whether it freed any, in the order of its streams. Neither allocates nor waits. */
typedef bool relieve_hook(int device);
/* Leaves a snapshot of a shortage, and says in `where` where it is. `text` is the rest of the
 * error's text. */
typedef void shortage_hook(int device, const char *text, char *where, size_t size);

/* Each is NULL until its owner sets it, and is called with no lock held. */
struct upper_hooks {
    /* Scopes, while any of them concerns pinned memory: requests look for their stream only then.
     * Without `pinned_capture`, the pool that serves a stream's requests keeps its capture's
     * blocks. */
    pinned_route_hook *_Atomic pinned_route;
    pinned_capture_hook *_Atomic pinned_capture;

    /* The handle layer, set once. */
    pool_ended_hook *_Atomic pool_ended;
    workspaces_hook *_Atomic sum_workspaces;
    relieve_hook *_Atomic relieve;

    /* The report layer, set once. */
    shortage_hook *_Atomic leave_snapshot;
};

extern struct upper_hooks upper_hooks;

/* A tool that checks what kernels touch, and learns of each block. Only the driver's plain segments
 * are announced, and the blocks in them: a tool that watches allocations knows no other memory.
 * While there is a receiver, every block takes the slow path. Called with no lock held. Addresses
 * and sizes are the caller's: a block of 100 bytes has size 100. */
struct announcer {
    /* A segment was allocated, before any of it is handed out; a segment without blocks is about to
     * go back to the driver. */
    void (*segment)(uintptr_t start, size_t size, const uint64_t pool[2], int device);
    void (*segment_gone)(uintptr_t start);
    /* A block was handed out; has grown in place; is about to be freed. */
    void (*block)(uintptr_t start, size_t size, const uint64_t pool[2], tarn_tag tag);
    void (*block_resized)(uintptr_t start, size_t size);
    void (*block_gone)(uintptr_t start);
};

/* NULL: there is no receiver. Set before the first use of memory, and read without a lock. */
extern const struct announcer *announcer;

/* The start of every public call on memory: the device layer is ready, and knows what the memory
 * layer does at its ends. */
tarn_status memory_ready(void);

/* Lets every block go that waits for debug mode alone. True when blocks have become free since
 * `seen`, which is updated. Calls the driver, and waits for debug mode's copies. No lock held. */
static inline bool debug_relieves(struct arena *arena, uint64_t *seen)
{
    return debug_has(DEBUG_CONTENTS) && hooks.debug_relieve(arena, seen);
}

/* Waits until no block of a store waits for debug mode. No lock held. */
static inline void debug_settles(struct store *store)
{
    if (debug_has(DEBUG_CONTENTS))
        hooks.debug_settle(store);
}

#endif
