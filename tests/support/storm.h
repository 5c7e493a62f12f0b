/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the storms share: threads that do at random whatever the headers allow, each with blocks of
 * its own, painted and entered in the shadow, which go from thread to thread by mailboxes.
 * TARN_SEED and TARN_STORM_STEPS say which storm. A program runs one storm at a time. */
#ifndef TESTS_SUPPORT_STORM_H
#define TESTS_SUPPORT_STORM_H

#include "support/host.h"

enum { STORM_THREADS_MOST = 8, STORM_BLOCKS = 32, STORM_SHARED = 3 };

struct storm_block {
    unsigned char *start; /* NULL: none */
    size_t size;
    unsigned char paint;
};

/* A thread's own. */
struct storm_worker {
    unsigned number; /* from 0 */
    uint64_t random;
    tarn_stream adopted;
    void *native;
    struct storm_block blocks[STORM_BLOCKS];
};

extern tarn_stream storm_shared[STORM_SHARED];
extern uint64_t storm_seed;
/* Whether driver calls and host allocations may fail in this storm. */
extern bool storm_injects;

/* Steps that a thread does, unless the environment says it. */
int storm_steps(int otherwise);

/* Runs the storm: `body`, with its worker, by that many threads, beside snapshots where they are
 * asked for. Then nothing fails any more, and no limit is left. */
void storm_run(unsigned threads, void *(*body)(void *worker), bool injects);
/* Gives back what blocks and streams the threads left; then nothing must be left. */
void storm_finish(void);

/* Group set-up of a storm's program, after host_start_with(): the seed and the shared streams. */
int storm_set_up(void **state);

uint64_t storm_below(struct storm_worker *worker, uint64_t limit);
tarn_stream storm_stream(struct storm_worker *worker);
size_t storm_size(struct storm_worker *worker);

/* What may come of a request while memory is short and calls fail. */
bool storm_may_fail(tarn_status status);

/* A block that was just handed out. */
void storm_begin_block(struct storm_worker *worker, struct storm_block *block, void *start,
                       size_t size);
/* Checks what it holds, and frees it in one of the ways that there are. */
void storm_end_block(struct storm_worker *worker, struct storm_block *block);
/* Another stream uses it, it grows in place, or it is asked for. */
void storm_use(struct storm_worker *worker, struct storm_block *block);
/* Gives a block to whoever looks there next, and takes what lies there. */
void storm_exchange(struct storm_worker *worker, struct storm_block *block);

/* A call that must succeed in the end did not, with `status`: checks that it may fail, and ends the
 * failures. Without it every thread may be in such a call while all allocations fail, and no thread
 * is left that would end them. */
void storm_calm(tarn_status status);

/* The worker's own stream is retired, and adopted again. */
void storm_renew_stream(struct storm_worker *worker);
/* Driver calls or host allocations fail from now on, or no more; where they may at all. */
void storm_inject(struct storm_worker *worker);

#endif
