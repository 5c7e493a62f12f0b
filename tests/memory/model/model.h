/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The parts of tests/memory/test_model.c: what the model knows, and what each part asks of the
 * others.
 *
 *   core.c     streams, work, the order between them, memory that was freed while in use; what is
 *              checked of a block and of the counts
 *   pools.c    private pools, scopes, and which pool a request must be served from
 *   graphs.c   captures, and the graphs that come of them */
#ifndef TESTS_MEMORY_MODEL_H
#define TESTS_MEMORY_MODEL_H

#include "base/pages.h"
#include "device/capture.h"
#include "memory/pool/pool.h"
#include "memory/watch/verify.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

#include <cmocka.h>

#define DEVICES 2
#define STREAMS 4 /* a device; the last is adopted, and retired now and then */
#define ALL_STREAMS (DEVICES * STREAMS)
#define BLOCKS 400 /* the most that are live at once */
#define GHOSTS 4096
#define EVENTS 6
#define POOLS 8
#define SCOPES 6
#define GRAPHS 6
#define INSIDE 4                   /* the most blocks of a capture that it frees itself */
#define MEMORY ((size_t)192 << 20) /* bytes per device: small enough to run full */
#define GRANULES 512               /* at least those of a device's addresses */

struct work {
    int stream;
    uint64_t number, end; /* in its stream, from 1; ns */
};

#define HELD 6 /* the most blocks that a capture uses */
#define WORKS 6
struct block {
    unsigned char *pointer;
    size_t size, usable;
    int stream;
    tarn_stream handle; /* of the stream when it was allocated */
    tarn_pool_id pool;
    int own_pool; /* its index, -1 for the default pool, and of a pool that is gone */
    bool lost;    /* its pool is gone, and was suspended: it can only be freed */
    unsigned char pattern;
    struct work works[WORKS]; /* the last on each stream that used it */
    int work_count;
    int held; /* captures and graphs that use it */
};

enum capture_kind { NO_CAPTURE, BY_TARN, ANNOUNCED, UNKNOWN, CAPTURE_KINDS };

/* Memory that was freed while work was queued on it. */
struct ghost {
    uintptr_t start, end;
    struct work work;
};

/* What a capture, and then its graph, uses: blocks that are live, and memory that it allocated and
 * freed. */
struct captured {
    unsigned char *held[HELD];
    int held_count;
    struct {
        unsigned char *start;
        size_t size;
    } inside[INSIDE];
    int inside_count;
    int pool; /* its index, or -1 */
};

struct stream_model {
    tarn_stream handle;
    void *native;
    int device;
    bool adopted;
    uint64_t number, end;        /* of its last work */
    uint64_t after[ALL_STREAMS]; /* it is ordered after these works of the others */
    enum capture_kind capture;   /* that is open on it */
    struct captured captured;    /* by that */
};

struct event_model {
    tarn_event *event;
    int device;
    bool recorded;
    uint64_t end;
    uint64_t after[ALL_STREAMS];
};

/* A private pool, from its making until nothing counts it. */
struct pool_model {
    bool used; /* this entry */
    tarn_pool *pool;
    tarn_pool_id id; /* 0, 0: of a capture, and not known yet */
    int device;
    bool use_on_oom;
    int users, scopes, captures, graphs; /* that count it */
    tarn_pool_state state;
    size_t limit;
    const struct piece *pinned[GRANULES]; /* held: what was mapped at an address when it ran */
};

struct scope_model {
    tarn_scope value; /* 0: not open, or a capture's */
    bool open;
    int kind; /* tarn_scope_kind, or that of a capture */
    int pool, stream;
    tarn_stream handle; /* of the stream */
    uint64_t since;
};
#define SCOPE_OF_CAPTURE (-1)

struct graph_model {
    void *graph;
    int stream;
    struct captured captured;
};

struct model {
    uint64_t seed, random, step;
    struct stream_model streams[ALL_STREAMS];
    struct event_model events[EVENTS];
    struct block blocks[BLOCKS];
    int block_count;
    struct ghost ghosts[GHOSTS];
    int ghost_count;
    struct pool_model pools[POOLS];
    struct scope_model scopes[SCOPES + ALL_STREAMS];
    uint64_t scopes_begun;
    struct graph_model graphs[GRAPHS];
    int graph_count;
    bool injecting;
    uint64_t allocations, failures, outs, injected, launches, in_pools, spared, suspended, resumed,
        retired;
};
extern struct model m;

#define MUST(condition, ...)                                               \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("seed %" PRIu64 " step %" PRIu64 ": ", m.seed, m.step); \
            printf(__VA_ARGS__);                                           \
            printf(" (last error: %s)\n", tarn_last_error());              \
            fail();                                                        \
        }                                                                  \
    } while (0)

/* core.c */
uint64_t next_random(void);
uint64_t below(uint64_t n);
uint64_t now(void);
struct work queue_work(int stream, const void *address, size_t size, uint64_t duration);
void order_after(int to, int from);
void block_used(struct block *block, struct work work);
struct block *block_at(const unsigned char *pointer);
void check_new(const struct block *block);
uint64_t physical(const void *address);
void paint(struct block *block);
void check_paint(const struct block *block);
bool may_fail(tarn_status status);
bool captures(int stream);
/* Whether the stream that a block was allocated for is retired: then its own stream is to be
 * recorded too. */
bool is_orphan(const struct block *block);
void check_all(void);

/* test_model.c */
void free_some_of(int pool);

/* pools.c */
/* Whether the block's memory is there to be used. */
bool is_usable(const struct block *block);
/* The pool that a request on a stream must be served from: its index, or -1. */
int pool_routed(int stream);
/* That a fresh block is of that pool, or of one that serves where memory is short. */
void check_pool(struct block *block, int wanted);
/* Whether what a request gave is what a suspended pool gives. */
bool is_refused(int pool, tarn_status status);
bool pool_is_held(const struct pool_model *pool);
int pool_any(int device, bool running);
void scope_of_capture(int pool, int stream);
void scope_of_capture_end(int stream);
void pool_settle(int pool); /* the entry is free where nothing counts it */
void check_pools(void);
void do_pool(void);
void do_suspend(void);
void do_scope(void);
void pools_end(void);

/* graphs.c */
void do_capture(void);
void do_graph(void);
void use_in_capture(struct block *block);
/* A block is freed in the order of a stream that captures. */
void freed_in_capture(const struct block *block);
void captures_end(void);
void graphs_end(void);

#endif
