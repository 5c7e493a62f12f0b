/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Calls against the order of rooms and layers. `hooks` has functions of higher rooms of the memory
 * layer, for lower rooms; it is constant and defined in memory/hooks.c. `upper_hooks` has functions
 * that are registered at run time, by scopes and by the layers above. The caller of a function for
 * debug mode first checks by debug_has() that the mode is on. */
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

/* Which limits a text of settings has named, itself or by all:default. They count from then on,
 * whatever a function has set. */
struct config_named {
    bool limit, pinned_limit;
};

struct hooks {
    /* Called once, before the first call on memory continues. */
    void (*begin)(void);

    /* Called after the settings have changed, or a limit was named again, in the thread that did
     * it, with no lock held. Applies memory_config() to what depends on it. */
    void (*configured)(struct config_named named);
    /* Destroys pools that have ended, with their pinned memory. Called before pinned memory is
     * given back, counted or refused. No lock held. */
    void (*collect_pools)(void);

    /* Functions of debug mode (debug.h). With DEBUG_BLOCKS or DEBUG_CONTEXT. */
    void (*debug_turn)(void);
    /* With DEBUG_BLOCKS. */
    void (*debug_free_locked)(struct heap *heap, uintptr_t start, struct use **uses);
    /* These three for watched uses. */
    void (*debug_ended_locked)(struct debug_block *block);
    bool (*debug_is_over)(const struct debug_block *block);
    void (*debug_gone_locked)(struct debug_block *block);
    /* With DEBUG_CONTENTS, as all below. */
    bool (*debug_relieve)(struct arena *arena, uint64_t *seen);
    void (*debug_settle)(struct store *store);
    void (*debug_forget)(const struct store *store);
    void (*debug_pause)(void);
    void (*debug_go_on)(void);

    /* A block that graphs refer to was freed by another thread without the heap's lock
     * (pool/referred.h). `note` is out of its list. Heap lock. */
    void (*referred_end_remotely)(struct use *note);

    /* Ends following a plan (plan.h). Heap lock. */
    void (*plan_end_locked)(struct heap *heap);

    /* Makes a segment of a kept pool. No lock held. */
    tarn_status (*keep_segment)(const struct store *store, size_t size, uintptr_t *address);
    /* Gives it back; and what the driver has refused to give up before. No lock held. */
    tarn_status (*keep_give_back)(const struct store *store, uintptr_t address, size_t size);
    void (*keeps_free_stuck)(const struct device *device);
    /* Takes the seal off a block that is freed (heap lock), except while keep_spare() says so. */
    void (*keep_forget_locked)(const struct store *store, uintptr_t address);
    void (*keep_spare)(const struct store *store, bool spare);
    /* Takes all seals of a kept pool off; gives the memory of a segment up, and makes it again. The
     * pool is suspended. No lock held. */
    void (*keep_forget_all)(const struct store *store);
    tarn_status (*keep_vacate)(const struct store *store, uintptr_t address, size_t size);
    tarn_status (*keep_occupy)(const struct store *store, uintptr_t address, size_t size);
    /* Fails if a kept pool is being saved to a file, or loaded, or is only read. */
    tarn_status (*keep_refuse_suspend)(const struct store *store, const char *what);
    /* Unmaps what a reader of a kept pool still has of the memory that the pool has given up. No
     * lock held. */
    tarn_status (*keep_let_go)(const struct store *store);
    /* Fails, and says why, if a pointer is in a pool that is only read. No lock held. */
    tarn_status (*keep_refuse_pointer)(uintptr_t address);
    /* Whether the kept pool has as many segments as an owner keeps. */
    bool (*keep_is_full)(const struct store *store);
    /* Whether another process has made the kept pool's segment at this address. */
    bool (*keep_took_over)(const struct store *store, uintptr_t address);
    /* Gives a new peer access to the memory of kept pools. Only `enable_lock` is held. */
    tarn_status (*keeps_grant)(const struct device *device, int peer);

    /* Gives the idle memory of a pool that has ended back to the driver (trim.h). No lock held. */
    void (*give_back)(struct arena *arena, struct store *store);
    /* Gives idle memory back to the driver for a pool that resumes (trim.h). No lock held. */
    void (*make_room)(struct arena *arena, size_t keep);
    /* Writes the error of a pool that cannot resume for lack of memory (shortage.h). */
    void (*refuse_resume)(const struct store *store, size_t need);

    /* A commit of a range needs memory: trim.h. It has not got it: shortage.h, both. */
    tarn_status (*trim)(struct arena *arena, struct store *store, size_t keep);
    bool (*shortage_helped)(const struct store *store, uint32_t place, size_t need);
    void (*refuse_range)(const struct store *store, size_t need);
    /* Records the marks that memory needs to go back by itself: release.h. No lock held. */
    void (*marks_wanted)(void);
    /* Whether a caller has anchored memory of a store: anchor.c. */
    bool (*anchors_any)(const struct store *store);
    /* A suspend takes the memory of a store: range.h. */
    tarn_status (*ranges_leave)(struct store *store);
};

extern const struct hooks hooks;

/* The pool of pinned memory for a request of a stream, retained; NULL: the default pool. */
typedef struct pinned_pool *pinned_route_hook(struct stream *stream);
/* The keeper of the pinned blocks that a stream's capture uses, retained; NULL: the default pool
 * keeps them. */
typedef struct pinned_keeper *pinned_capture_hook(struct stream *stream);
/* Frees the blocks that handles have, for their graphs, in a pool that has lost its last
 * reference. */
typedef void pool_ended_hook(tarn_pool_id id);
/* Bytes of a device in workspaces, and how many of those in workspaces of captures. */
typedef void workspaces_hook(int device, size_t *bytes, size_t *captured);
/* Frees workspaces that are not needed, in the order of their streams. Called before the ladder
 * waits and before a request fails. Whether any were freed. Neither allocates nor waits. */
typedef bool relieve_hook(int device);
/* Writes a snapshot of a shortage, and its path to `where`. `text` is the error's text so far. */
typedef void shortage_hook(int device, const char *text, char *where, size_t size);
/* A known capture has ended with this graph, which holds its pool already. */
typedef void captured_hook(void *graph);

/* Each is NULL until its owner sets it. Called with no lock held. */
struct upper_hooks {
    /* Set by scopes while one of them concerns pinned memory; only then do requests look up their
     * stream. If `pinned_capture` is NULL, the pool that serves a stream's requests keeps its
     * capture's blocks. */
    pinned_route_hook *_Atomic pinned_route;
    pinned_capture_hook *_Atomic pinned_capture;

    /* Set once by the handle layer. */
    pool_ended_hook *_Atomic pool_ended;
    workspaces_hook *_Atomic sum_workspaces;
    relieve_hook *_Atomic relieve;

    /* Set once by the report layer. */
    shortage_hook *_Atomic leave_snapshot;
    captured_hook *_Atomic captured;
};

extern struct upper_hooks upper_hooks;

/* A tool that checks what kernels touch, and learns of each block. Only plain segments of the
 * driver and their blocks are announced, because a tool that watches allocations knows no other
 * memory. While there is an announcer, every block takes the slow path. Called with no lock held.
 * Sizes are as requested: a block of 100 bytes has size 100. */
struct announcer {
    /* A segment was allocated, and nothing in it is handed out yet. */
    void (*segment)(uintptr_t start, size_t size, const uint64_t pool[2], int device);
    /* A segment without blocks is about to go back to the driver. */
    void (*segment_gone)(uintptr_t start);
    /* A block was handed out. */
    void (*block)(uintptr_t start, size_t size, const uint64_t pool[2], tarn_tag tag);
    /* A block has grown in place. */
    void (*block_resized)(uintptr_t start, size_t size);
    /* A block is about to be freed. */
    void (*block_gone)(uintptr_t start);
};

/* NULL: none. Set before the first use of memory, and read without a lock. */
extern const struct announcer *announcer;

/* Memory that would go back by itself needs marks: the next public call on memory records them. A
 * pass that sets it calls process_changed(), so that each thread's next request leaves its fast
 * path and is such a call too. */
extern atomic_bool memory_wants_marks;

/* Begins every public call on memory. Afterwards the device layer is ready and calls the memory
 * layer when devices and threads end. */
tarn_status memory_ready(void);

/* Frees all blocks that wait only for debug mode. True if blocks have become free since `seen`,
 * which is updated. Calls the driver, and waits for debug mode's copies. No lock held. */
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
