/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What debug mode remembers of blocks, and how it reports. Shared by debug.c, work.c and
 * report.c. */
#ifndef TARN_MEMORY_DEBUG_BLOCK_H
#define TARN_MEMORY_DEBUG_BLOCK_H

#include "memory/debug/debug.h"
#include "record/site.h"

#include <stdatomic.h>
#include <tarn/debug.h>

enum debug_state {
    DEBUG_LIVE,
    DEBUG_WAITING, /* freed; waits for the work of its streams */
    DEBUG_READY,   /* waits to be checked */
    DEBUG_HELD,    /* in quarantine */
    DEBUG_OVER,    /* waits to be freed */
    DEBUG_GONE,    /* ended; remembered in case it is freed again */
};

struct debug_block {
    struct tree_node node;    /* debug lock: by start, until it is gone */
    struct debug_block *next; /* debug lock: in the list of its state */
    /* Heap lock, then from DEBUG_READY to DEBUG_OVER `working`, then heap lock. */
    atomic_int state;
    /* Constant, as all fields to `allocated`; not followed once the block is gone. */
    struct heap *heap;
    int device;
    uintptr_t start; /* of the block, with its zones */
    size_t front;    /* bytes */
    uint64_t pool[2], owner;
    tarn_stream stream;
    tarn_tag tag;
    struct site allocated;

    size_t size, requested;     /* bytes; heap lock */
    struct site freed;          /* debug lock */
    atomic_uint_fast64_t zoned; /* the number of the fill of its zones; 0: do not check them */
    bool conflicted;            /* debug lock: a conflict about it has been reported */
    bool counted;               /* debug lock: already counted in a leak report */
};

/* A copy of what a report says of a block. The text is made from it with no lock held: it needs the
 * loader for names of functions, and a thread inside the loader may wait for the debug lock. */
struct debug_facts {
    uintptr_t address;
    size_t requested;
    int device;
    uint64_t pool[2];
    tarn_stream stream;
    tarn_tag tag;
    bool was_freed;
    struct site allocated, freed;
};

static inline uintptr_t debug_address(const struct debug_block *block)
{
    return block->start + block->front;
}

/* Whether the contents of a heap's blocks may be touched: no capture or graph uses them, and they
 * have memory. */
static inline bool debug_may_touch(const struct heap *heap)
{
    return !atomic_load(&heap->store->holds) && !atomic_load(&heap->store->suspended) &&
           !atomic_load(&heap->arena->device->lost);
}

/* Bytes of the back zone that are filled: what follows the caller's bytes, at most
 * DEBUG_BACK_MOST. */
#define DEBUG_BACK_MOST ((size_t)1024)
static inline size_t debug_back(const struct debug_block *block)
{
    size_t rest = block->size - block->front - block->requested;
    return rest < DEBUG_BACK_MOST ? rest : DEBUG_BACK_MOST;
}
/* Bytes of the front zone that are filled, directly before the caller's bytes. */
#define DEBUG_FRONT_FILLED TARN_BLOCK_UNIT

#define DEBUG_ZONE_BYTE 0xFB
#define DEBUG_NEW_BYTE 0xCD
#define DEBUG_DEAD_BYTE 0xDD

/* How many ended blocks are remembered. Constant from the first use. Tests lower it. */
extern size_t debug_history;

/* Protects the records of blocks in debug.c. A leaf, under which only the log is called. */
extern mutex debug_lock;
/* The first block that has not ended and begins at or after `from`. */
struct debug_block *debug_next_locked(uintptr_t from);
/* The record of the block that contains an address and has this number of the checker, otherwise of
 * the last such block; NULL: none. */
struct debug_block *debug_find_owner_locked(uintptr_t address, uint64_t owner);
struct debug_block *debug_take_ready_locked(void);
void debug_put_ready_locked(struct debug_block *block);

/* work.c. Checks blocks that are ready. Ends quarantine for the oldest blocks above its size, and
 * for all blocks of `device`. */
void debug_work(int device);
/* Checks the zones of live blocks of a device up to fill number `last`. That work has ended. */
void debug_look_at_live(int device, uint64_t last);
/* Frees the device's streams. */
void debug_work_finish(int device);

/* report.c. Copies what is known of a block. */
struct debug_facts debug_facts_locked(const struct debug_block *block);
struct debug_facts debug_facts_of(const struct debug_block *block);

/* A text under construction. Without the debug lock. */
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
void debug_append_site(struct debug_text *text, const char *label, const struct site *site);

/* "attention (model.c:41) < step (train.c:112)"; "" where the site is not known. No lock held. */
#define SITE_TEXT 1024
void debug_site_text(const struct site *site, char *text, size_t size);

/* Logs, counts and keeps a report for the caller's function; may end the process. The caller may
 * hold any lock except the debug lock. */
void debug_report(const tarn_debug_report *report, const struct debug_text *text);
/* Calls the caller's function for the reports that wait. No lock held. */
void debug_deliver(void);
uint64_t debug_count(void);
/* Reports a conflict that the checker has found. */
void debug_conflict(const struct driver_conflict *conflict);
/* Reports the live blocks of a device as leaks. */
void debug_report_leaks(int device);

#endif
