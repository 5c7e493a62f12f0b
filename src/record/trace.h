/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The trace: what happened to memory, as records of one size in a ring a thread. A thread writes
 * its own ring without a lock; a reader copies what was not overwritten meanwhile (trace_read.c).
 *
 * Order. A record is stamped while its writer has what it is about: an allocation once the block is
 * owned, a free before the block is available to anyone else. So between threads the stamps of one
 * block are in order, except for two that a processor took ahead of its loads: of those the reader
 * knows that a block is freed before it is handed out again.
 *
 * What repeats is a number: the place (device, pool, stream; place.c), the region, the tag and the
 * call stack (intern.h). */
#ifndef TARN_RECORD_TRACE_H
#define TARN_RECORD_TRACE_H

#include "record/intern.h"
#include "record/ticks.h"

#include <stdbool.h>

/* X(kind): free is a free that needs no wait: requested and completed at once. `remote` is the same
 * by a thread that does not own the block, and does not lock its heap. */
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

/* Where a block lies, and where its stream is. */
struct trace_place {
    uint64_t pool[2];
    uint64_t native; /* the vendor's name of the stream */
    uint64_t stream; /* its tarn_stream */
    int64_t device;
};

/* A user's region: the one around it, or 0, and its name. */
struct trace_region {
    uint32_t parent;
    char name[60];
};

/* A thread that has a ring, and its name when it began with it. */
struct trace_thread {
    uint32_t number;
    char name[20];
};

/* A text of any other kind: a library, a kind of scope. */
struct trace_text {
    char text[64];
};

#define TRACE_FRAMES 32
struct trace_stack {
    uint64_t frames[TRACE_FRAMES]; /* return addresses, the innermost first; 0 behind the last */
};

extern struct intern trace_regions, trace_threads, trace_texts, trace_stacks;

/* What a record says. `size` is as requested for blocks; of other kinds `address` and `size` are
 * what their writer says: a text's number, an event, a limit. */
struct trace_record {
    uint64_t time; /* ticks (ticks.h) */
    uint64_t address;
    uint64_t size;
    uint32_t place_and_kind; /* kind in the low 8 bits */
    uint32_t region;
    uint32_t stack;
    uint16_t tag;
    uint16_t thread; /* its number; 0 beyond 65535 */
};

#define TRACE_WORDS (sizeof(struct trace_record) / sizeof(uint64_t))

struct trace_ring {
    struct trace_ring *next; /* rings lock: of all; a ring is never destroyed */
    bool taken;              /* rings lock: a thread has it */
    uint16_t thread;         /* owner: its number */
    uint64_t mask;           /* records, a power of two, less 1; constant */
    size_t bytes;
    atomic_uint_fast64_t head;  /* owner: records written, ever */
    atomic_uint_fast64_t begin; /* records before this one were cleared */
    _Atomic uint64_t words[];
};

enum trace_stack_mode { TRACE_STACKS_NONE, TRACE_STACKS_ALLOC, TRACE_STACKS_ALL };

extern atomic_bool trace_on;
extern atomic_int trace_stack_mode;

/* One load: whether there is anything to do. */
static inline bool trace_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&trace_on, memory_order_relaxed), false);
}

/* The number of a place, for a record that is written at once; 0 where there is no room for it.
 * Held, for records to come, until it is dropped as often. */
uint32_t trace_place(const struct trace_place *place);
uint32_t trace_place_keep(const struct trace_place *place);
void trace_place_drop(uint32_t number); /* 0 is fine */
/* The place of a number, of a record that a ring has or that was copied; NULL for 0 and what was
 * not given. Between the two calls of trace_places_keep(), which may nest, no number gets another
 * place. */
const struct trace_place *trace_place_value(uint32_t number);
void trace_places_keep(bool keep);
/* The greatest number that was given. */
uint32_t trace_places_most(void);

/* Writes a record. By the ring's thread; no lock, no call. */
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

/* A ring for a thread, one that an ended thread left or a new one; NULL where the host has no
 * memory: then what the thread does is counted as lost. And the end of that. */
struct trace_ring *trace_ring_take(uint16_t thread); /* which has that number; 0: that is to have
                                                        one */
void trace_ring_leave(struct trace_ring *ring);
bool trace_ring_fits(const struct trace_ring *ring); /* it has the size that was asked for last */
void trace_lose(void);

/* Turns recording on and off. What was recorded stays until it is cleared. Where all who record
 * know that it is on, trace_is_whole() says so: nothing is missing from there on. */
void trace_start(size_t records, enum trace_stack_mode stacks);
void trace_is_whole(void);
void trace_stop(void);
void trace_clear(void);
void trace_count(uint64_t *kept, uint64_t *lost);

/* The call stack of the caller, without the innermost `skip` frames; 0 where there is none. Some 1
 * us. Before the first, outside all locks, trace_stacks_prepare(): that loads a library. */
uint32_t trace_stack_here(unsigned skip);
void trace_stacks_prepare(void);

/* Reading -------------------------------------------------------------------------------------- */

/* What was recorded up to now, in order. */
struct trace_copy {
    struct trace_record *records;
    size_t count, bytes; /* of the mapping */
    size_t exact_from;   /* index: from there on nothing is missing */
    uint64_t lost;       /* records that were overwritten, or had no ring */
};

/* False where the host has no memory. trace_copy_finish() frees it. */
bool trace_read(struct trace_copy *copy);
/* The first of all rings, the newest; what had no ring, and the time from which on no record is
 * missing but those that a ring overwrote. */
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
