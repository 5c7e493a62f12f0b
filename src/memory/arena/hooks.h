/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The functions of higher rooms of the memory layer that lower rooms call: the only structure of functions that goes against their order. It
 * is constant, and defined in memory/hooks.c. Before calling a function for debug mode, the caller checks by debug_has() that it is on. */
#ifndef TARN_MEMORY_HOOKS_H
#define TARN_MEMORY_HOOKS_H

#include "memory/arena/arena.h"

struct debug_block;
struct use;

struct hooks {
    /* The first use of memory in the process; before the call that it is goes on. */
    void (*begin)(void);

    /* Debug mode: debug.h says what each does. With DEBUG_BLOCKS or DEBUG_CONTEXT, the first of them; with DEBUG_BLOCKS, a free; for uses
     * that are watched, the three that follow; with DEBUG_CONTENTS, the rest. */
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

    /* A pool has ended, so its idle memory goes back to the driver; a pool resumes and needs memory, which others have. With no lock held:
     * trim.h. */
    void (*give_back)(struct arena *arena, struct store *store);
    void (*make_room)(struct arena *arena, size_t keep);
    /* It has not got the memory: shortage.h. */
    void (*refuse_resume)(const struct store *store, size_t need);
};

extern const struct hooks hooks;

/* The start of every public call on memory: the device layer is ready, and knows what the memory layer does at its ends. */
tarn_status memory_ready(void);

/* Lets every block go that waits for debug mode alone. True when blocks have become free since `seen`, which is updated. Calls the
 * driver, and waits for debug mode's copies. No lock held. */
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
