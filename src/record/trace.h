/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The trace: what happened to memory, as records of one size in a ring per thread. A thread writes
 * its own ring without a lock. A reader copies the rings and discards what was overwritten
 * meanwhile (trace_read.c).
 *
 * Order. A record is stamped while its writer owns its subject: an allocation after the block is
 * owned, a free before any other thread can get the block. So the stamps of one block are in order,
 * also between threads. One exception: a processor may read its clock ahead of earlier loads. The
 * reader corrects that, because a block is freed before it is handed out again.
 *
 * Repeated values are numbers: the place (device, pool and stream; place.c), the region, the tag
 * and the call stack (intern.h). */
#ifndef TARN_RECORD_TRACE_H
#define TARN_RECORD_TRACE_H

#include "record/intern.h"
#include "record/ticks.h"

#include <stdbool.h>

/* X(kind). `free` is a free without a wait: requested and completed at once. `remote` is the same
 * by a thread that does not own the block's cache and does not hold its heap's lock. */
#define TRACE_KIND_LIST(X) \
    X(alloc)               \
    X(free)                \
    X(free_remote)         \
    X(free_requested)      \
    X(free_completed)      \
    X(segment_alloc)       \
    X(segment_free)        \
    X(segment_map)         \
    X(segment_unmap)       \
    X(oom)                 \
    X(record_stream)       \
    X(free_on)             \
    X(event_record)        \
    X(wait)                \
    X(capture_begin)       \
    X(capture_end)         \
    X(pool_create)         \
    X(pool_release)        \
    X(scope_begin)         \
    X(scope_end)           \
    X(trim)                \
    X(suspend)             \
    X(resume)              \
    X(handle_create)       \
    X(region_begin)        \
    X(region_end)

enum trace_kind {
#define X(kind) TRACE_##kind,
    TRACE_KIND_LIST(X)
#undef X
        TRACE_KINDS
};

/* Where a block is: its device, pool and stream. */
struct trace_place {
    uint64_t pool[2];
    uint64_t native; /* the vendor's stream */
    uint64_t stream; /* its tarn_stream */
    int64_t device;
};

/* A user's region: the number of the one around it, or 0, and its name. */
struct trace_region {
    uint32_t parent;
    char name[60];
};

/* A thread with a ring, and the thread's name when it got the ring. */
struct trace_thread {
    uint32_t number;
    char name[20];
};

/* Any other text: a library, a kind of scope. */
struct trace_text {
    char text[64];
};

#define TRACE_FRAMES 32
struct trace_stack {
    uint64_t frames[TRACE_FRAMES]; /* return addresses, innermost first; 0 behind the last */
};

extern struct intern trace_regions, trace_threads, trace_texts, trace_stacks;

/* One record. For blocks `size` is the requested size. For other kinds the writer says what
 * `address` and `size` are, for example a text's number, an event, a limit. */
struct trace_record {
    uint64_t time; /* ticks (ticks.h) */
    uint64_t address;
    uint64_t size;
    uint32_t place_and_kind; /* kind in the low 8 bits */
    uint32_t region;
    uint32_t stack;
    uint16_t tag;
    uint16_t thread; /* its number; 0: above 65535 */
};

#define TRACE_WORDS (sizeof(struct trace_record) / sizeof(uint64_t))

struct trace_ring {
    struct trace_ring *next; /* rings_lock: in the list of all rings, which are never destroyed */
    bool taken;              /* rings_lock: a thread has it */
    uint16_t thread;         /* owner: the thread's number */
    uint64_t mask;           /* number of records - 1; a power of two - 1; constant */
    size_t bytes;
    atomic_uint_fast64_t head;  /* owner: records ever written */
    atomic_uint_fast64_t begin; /* owner: records before this one were cleared */
    _Atomic uint64_t words[];
};

enum trace_stack_mode { TRACE_STACKS_NONE, TRACE_STACKS_ALLOC, TRACE_STACKS_ALL };

extern atomic_bool trace_on;
extern atomic_int trace_stack_mode;

/* Whether the trace is on. One load. */
static inline bool trace_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&trace_on, memory_order_relaxed), false);
}

/* The number of a place, for a record that is written at once. 0: no room. */
uint32_t trace_place(const struct trace_place *place);
/* The same for records to come: the number is held until trace_place_drop(). */
uint32_t trace_place_keep(const struct trace_place *place);
void trace_place_drop(uint32_t number); /* 0 is allowed */
/* The place with a number, from a record in a ring or a copy; NULL for 0 and unused numbers.
 * Between two calls of trace_places_keep(), which may nest, no number gets another place. */
const struct trace_place *trace_place_value(uint32_t number);
void trace_places_keep(bool keep);
/* The highest number ever given. */
uint32_t trace_places_most(void);

/* Writes a record. Only the ring's thread calls it. No lock, no call. */
static inline void trace_put(struct trace_ring *ring, enum trace_kind kind, uint64_t address,
                             uint64_t size, uint32_t place, uint32_t region, uint32_t stack,
                             uint16_t tag)
{
    union {
        struct trace_record record;
        uint64_t words[TRACE_WORDS];
    } entry = {{
        .time = ticks_now(),
        .address = address,
        .size = size,
        .place_and_kind = place << 8 | (uint32_t)kind,
        .region = region,
        .stack = stack,
        .tag = tag,
        .thread = ring->thread,
    }};
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    _Atomic uint64_t *words = &ring->words[(head & ring->mask) * TRACE_WORDS];
    for (size_t i = 0; i < TRACE_WORDS; i++)
        atomic_store_explicit(&words[i], entry.words[i], memory_order_relaxed);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* Gives a thread a ring: one of an ended thread, or a new one. NULL: no host memory; then the
 * thread's records are counted as lost. */
struct trace_ring *trace_ring_take(uint16_t thread); /* `thread` is its number; 0: it gets one */
/* Leaves the ring to another thread. */
void trace_ring_leave(struct trace_ring *ring);
bool trace_ring_fits(const struct trace_ring *ring); /* it has the size that was last asked for */
void trace_lose(void);

/* Turns recording on and off. Records stay until they are cleared. Once all threads that record
 * know that it is on, call trace_is_whole(): from then on no record is missing. */
void trace_start(size_t records, enum trace_stack_mode stacks);
void trace_is_whole(void);
void trace_stop(void);
void trace_clear(void);
void trace_count(uint64_t *kept, uint64_t *lost);

/* The number of the caller's call stack without the innermost `skip` frames; 0: none. Takes about 1
 * us. Before the first call, call trace_stacks_prepare() with no lock held: it loads a library. */
uint32_t trace_stack_here(unsigned skip);
void trace_stacks_prepare(void);

/* Reading -------------------------------------------------------------------------------------- */

/* The records so far, in order. */
struct trace_copy {
    struct trace_record *records;
    size_t count, bytes; /* count; bytes of the mapping */
    size_t exact_from;   /* from this index on no record is missing */
    uint64_t lost;       /* records that were overwritten, or had no ring */
};

/* Makes a copy, to be freed by trace_copy_finish(). False: no host memory. */
bool trace_read(struct trace_copy *copy);
/* The newest ring, the first in the list. `lost`: records without a ring. `whole_since`: the time
 * from which only overwritten records are missing. */
const struct trace_ring *trace_rings(uint64_t *lost, uint64_t *whole_since);
void trace_copy_finish(struct trace_copy *copy);

static inline enum trace_kind trace_kind_of(const struct trace_record *record)
{
    return (enum trace_kind)(record->place_and_kind & 0xff);
}

static inline uint32_t trace_place_of(const struct trace_record *record)
{
    return record->place_and_kind >> 8;
}

#endif
