/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the parts of tests/mixed/test_threads.c share: threads with streams and blocks of their own,
 * and what is checked of them.
 *
 *   test_threads.c   a run, blocks that go from thread to thread, pools, captures, handles
 *   threads/moves.c  what moves or takes away memory beside them: the process asleep, shares,
 *                    compaction, caching, observers
 *   threads/seals.c  a kept pool that all threads have, and a reader of it */
#ifndef TESTS_MIXED_THREADS_H
#define TESTS_MIXED_THREADS_H

#include "driver/driver.h"
#include "mixed/model/promise.h"
#include "support/host.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/sleep.h>

enum {
    THREADS = 4,
    STREAMS = 2, /* per thread */
    OWN = 16,    /* blocks per thread */
    POOLS = 2,   /* shared pools */
    PART = 64,
    SLOTS = 512,
    SEALED = 5, /* blocks per thread in the kept pool */
    LIVE = THREADS * (OWN + SEALED + 8) + 64,
    KEPT = 3,    /* blocks per thread in a pool that sleeps */
    IMPORTS = 4, /* per thread, whose work has not ended */
    STEPS_MOST = 4000
};

struct flow {
    tarn_stream value;
    void *native;
    uint32_t queued;
};

struct block {
    bool live, known;
    unsigned char value;
    unsigned char *start;
    size_t size;
    int flow; /* a stream of this thread; -1: of another thread */
};

struct check {
    int flow;
    uint32_t number;
    unsigned char value;
    bool waits;
};

/* A block of the kept pool. While it is sealed, nothing is written to it. */
struct sealed {
    struct block block;
    bool is;
};

/* An import, which is closed when the work on it has ended. */
struct import {
    void *pointer; /* NULL: none */
    int flow;
    uint32_t number;
};

struct worker {
    int number, pending;
    bool captures;
    uint64_t random;
    struct flow flows[STREAMS];
    struct block blocks[OWN];
    struct check checks[SLOTS];
    pthread_t thread;
    tarn_pool *pool; /* the thread's own pool, which only its sleeps concern */
    tarn_tag tag;    /* of that pool */
    struct block kept[KEPT];
    tarn_sleep_state night; /* the state that this thread's sleep has reached */
    bool discards;          /* that sleep discards the contents */
    tarn_sleeper guest;     /* the thread's own sleeper, which any thread's sleep calls; 0: none */
    int guest_state;        /* kept by the callbacks: 0 awake, 1 prepared, 2 asleep */
    struct import imports[IMPORTS];
    struct sealed sealed[SEALED];
    tarn_event *sealing; /* after the work that a seal waits for */
};
extern struct worker workers[THREADS];
extern _Thread_local struct worker *worker_here; /* NULL in other threads */
extern int thread_count;
extern tarn_library library;
extern unsigned char patterns[256][PART];

/* A thread that queues work holds it shared. A compaction holds it alone, because its caller
 * promises that nobody queues work. */
extern pthread_rwlock_t queueing;

/* Ends the process: `what` names the kind of fault. */
_Noreturn void fault(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define SO(condition, what, ...) ((condition) ? (void)0 : fault(what, __VA_ARGS__))
#define MINE(call) \
    ((call) == TARN_OK ? (void)0 : fault("the test's own call", "%s: %s", #call, tarn_last_error()))

/* True if a call succeeded. If it did not, it must have returned one of `reasons`, which its header
 * names. */
bool well(const char *name, tarn_status status, uint64_t reasons);
#define WELL(reasons, function, ...) well(#function, function(__VA_ARGS__), (reasons))

/* Statuses that another thread's capture, or its use of memory, may cause. */
#define SHORT BIT(TARN_ERROR_OUT_OF_MEMORY)
#define BARRED BIT(TARN_ERROR_CAPTURE)

/* What was done how often, for the line that a run prints. */
enum counted {
    ALLOCATIONS,
    CHECKS,
    CAPTURES,
    HANDED,
    REFUSED,
    SLEEPS,
    SHARES,
    COMPACTIONS,
    SEALS,
    FINDS,
    COUNTED
};
void count(enum counted what);

unsigned below(struct worker *worker, unsigned most);
size_t some_size(struct worker *worker);
struct block *some_block(struct worker *worker, bool live);
void taken(struct block *block, void *start, size_t size, int flow);
void give_back(struct worker *worker, struct block *block);
/* Demands what was written last, at both ends; writes a new value, is busy, and demands that
 * value. */
void use(struct worker *worker, int index, struct block *block);
/* check_later(): demands in the stream's order that the bytes have the value that they should have
 * now. queue_end(): ends the work that was queued on the stream. */
void check_later(struct worker *worker, int index, const unsigned char *at, size_t size, int value);
void queue_end(struct worker *worker, int index);
bool has_ended(const struct worker *worker, int index, uint32_t number);

/* In moves.c. moves_begin(): call it before tarn has reserved memory. moves_end(): call it when
 * only the main thread is left; what sleeps then wakes first. */
void moves_begin(uint64_t random);
void moves_begin_of(struct worker *worker);
void op_sleep(struct worker *worker);
void op_keep(struct worker *worker);
void op_guest(struct worker *worker);
void op_share(struct worker *worker);
void op_common(struct worker *worker);
void op_compact(struct worker *worker);
void op_caching(struct worker *worker);
void imports_close(struct worker *worker);
void moves_end(void);

/* In seals.c. seals_make(): call it before tarn is used; another process makes the kept pool.
 * seals_begin(): takes that over, when the workers are known. seals_leave(): frees what the thread
 * has for a stream. seals_end(): call it when only the main thread is left. */
void seals_make(bool has_owner, bool service, size_t memory);
void seals_begin(bool has_owner);
void op_sealed(struct worker *worker);
void seals_leave(struct worker *worker, int flow);
void seals_end(void);

#endif
