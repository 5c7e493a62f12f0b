/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What debug mode remembers of blocks, and how it reports: between debug.c, work.c and report.c. */
#ifndef TARN_MEMORY_DEBUG_BLOCK_H
#define TARN_MEMORY_DEBUG_BLOCK_H

#include "memory/debug/debug.h"

#include <stdatomic.h>
#include <tarn/debug.h>

#define DEBUG_FRAMES 8

/* A call site: return addresses, that of the public function first. */
struct debug_site {
    void *frames[DEBUG_FRAMES];
    unsigned count;
};

enum debug_state {
    DEBUG_LIVE,
    DEBUG_WAITING, /* freed; for the work of its streams */
    DEBUG_READY,   /* to be looked at */
    DEBUG_HELD,    /* in quarantine */
    DEBUG_OVER,    /* to be let go */
    DEBUG_GONE,    /* remembered for those who free it again */
};

struct debug_block {
    struct tree_node node;    /* debug lock: by start, until it is gone */
    struct debug_block *next; /* debug lock: in the list of its state */
    atomic_int state;         /* heap lock until ready, then `working`, then heap lock */
    struct heap *heap;        /* constant, like all to `allocated`; not to be followed once it is
                                 gone */
    int device;
    uintptr_t start; /* of the block in its heap */
    size_t front;    /* bytes */
    uint64_t pool[2], owner;
    tarn_stream stream;
    tarn_tag tag;
    struct debug_site allocated;

    size_t size, requested;     /* bytes; heap lock */
    struct debug_site freed;    /* debug lock */
    atomic_uint_fast64_t zoned; /* the number of the filling of its zones; 0: they are not worth
                                   looking at */
    bool conflicted;            /* debug lock: a conflict about it was reported */
    bool counted;               /* debug lock: among the leaks */
};

/* What a report says of a block: a copy, since its text is made with no lock. The names of
 * functions come from the loader, and whoever is inside the loader may be waiting for the debug
 * lock. */
struct debug_facts {
    uintptr_t address;
    size_t requested;
    int device;
    uint64_t pool[2];
    tarn_stream stream;
    tarn_tag tag;
    bool was_freed;
    struct debug_site allocated, freed;
};

static inline uintptr_t debug_address(const struct debug_block *block)
{
    return block->start + block->front;
}

/* Whether the contents of a heap's blocks may be touched: no capture or graph uses them, and there
 * is memory behind them. */
static inline bool debug_may_touch(const struct heap *heap)
{
    return !atomic_load(&heap->store->holds) && !atomic_load(&heap->store->suspended) &&
           !atomic_load(&heap->arena->device->lost);
}

/* The back zone: from its end on, at most this much of what the block has. */
#define DEBUG_BACK_MOST ((size_t)1024)
static inline size_t debug_back(const struct debug_block *block)
{
    size_t rest = block->size - block->front - block->requested;
    return rest < DEBUG_BACK_MOST ? rest : DEBUG_BACK_MOST;
}
/* The part of the front zone that is filled, next to what the caller has. */
#define DEBUG_FRONT_FILLED TARN_BLOCK_UNIT

#define DEBUG_ZONE_BYTE 0xFB
#define DEBUG_NEW_BYTE 0xCD
#define DEBUG_DEAD_BYTE 0xDD

/* How many blocks that are gone are remembered. Constant from the first use on; for tests, in which
 * what grows must stop soon. */
extern size_t debug_history;

/* debug.c: the blocks. A leaf, under which nothing is called but the log. */
extern mutex debug_lock;
/* The block that has memory at an address, or the last one that had; NULL where none is
 * remembered. */
struct debug_block *debug_find_locked(uintptr_t address);
/* The first that is not gone and begins at `from` or behind it. */
struct debug_block *debug_next_locked(uintptr_t from);
/* The same of the block with a number of the checker's. */
struct debug_block *debug_find_owner_locked(uintptr_t address, uint64_t owner);
struct debug_block *debug_take_ready_locked(void);
void debug_put_ready_locked(struct debug_block *block);
/* Gathers the blocks of a device's heaps, or with NULL of all devices', whose work has ended, and
 * lets go what is over. */
void debug_collect(struct arena *arena);
/* Blocks let go so far; blocks ready or about to be. */
extern atomic_uint_fast64_t debug_blocks_let_go;

/* work.c: looks at what is ready, and lets go what is too much for the quarantine of its device; of
 * `device`, everything. */
void debug_work(int device);
/* Looks at the zones of live blocks of a device that were filled up to a number, by work that has
 * ended. */
void debug_look_at_live(int device, uint64_t last);
/* Gives the streams back. */
void debug_work_finish(int device);

/* report.c. What is known of a block. */
struct debug_facts debug_facts_locked(const struct debug_block *block);
struct debug_facts debug_facts_of(const struct debug_block *block);

/* Text that is put together, without the debug lock. */
struct debug_text {
    char text[3072];
    size_t length;
};
void debug_append(struct debug_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "block of 100 bytes at 0x..., tag \"x\" (device 0, stream 0x1, pool (0, 1))". */
void debug_describe(struct debug_text *text, const struct debug_facts *facts);
/* A line per call site: where the block was allocated, and freed. */
void debug_append_sites(struct debug_text *text, const struct debug_facts *facts);
void debug_append_site(struct debug_text *text, const char *label, const struct debug_site *site);

extern _Thread_local struct debug_site debug_here;

/* Logs, counts and keeps a report for the caller's function; may abort. With any lock but the debug
 * lock. */
void debug_report(const tarn_debug_report *report, const struct debug_text *text);
/* Calls the caller's function. No lock held. */
void debug_deliver(void);
uint64_t debug_count(void);
/* What the checker has found. */
void debug_conflict(const struct driver_conflict *conflict);
/* The list of live blocks of a device. */
void debug_report_leaks(int device);

#endif
