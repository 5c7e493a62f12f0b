/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the storms share. A storm has threads that do at random whatever the headers allow. Each has
 * blocks of its own, which are painted and entered in the shadow, and which go from thread to
 * thread by mailboxes. TARN_SEED and TARN_STORM_STEPS select the storm. A program runs one storm at
 * a time. */
#ifndef TESTS_SUPPORT_STORM_H
#define TESTS_SUPPORT_STORM_H

#include "support/host.h"

enum { STORM_THREADS_MOST = 8, STORM_BLOCKS = 32, STORM_SHARED = 3 };

struct storm_block {
    unsigned char *start; /* NULL: no block */
    size_t size;
    unsigned char paint;
};

/* The state of one thread. */
struct storm_worker {
    unsigned number; /* from 0 */
    uint64_t random;
    tarn_stream adopted;
    void *native;
    struct storm_block blocks[STORM_BLOCKS];
};

extern tarn_stream storm_shared[STORM_SHARED];
extern uint64_t storm_seed;
/* Driver calls and host allocations may fail in this storm. */
extern bool storm_injects;

/* Steps per thread: `otherwise`, unless the environment sets them. */
int storm_steps(int otherwise);

/* Runs the storm: `body`, with its worker, in that many threads, beside snapshots if they are asked
 * for. Afterwards nothing fails any more, and no limit is set. */
void storm_run(unsigned threads, void *(*body)(void *worker), bool injects);
/* Gives back the blocks and streams that the threads left. Then nothing may be left. */
void storm_finish(void);

/* cmocka's group set-up of a storm, after host_start_with(): the seed and the shared streams. */
int storm_set_up(void **state);

uint64_t storm_below(struct storm_worker *worker, uint64_t limit);
tarn_stream storm_stream(struct storm_worker *worker);
size_t storm_size(struct storm_worker *worker);

/* True if a request may return this status while memory is short and calls fail. */
bool storm_may_fail(tarn_status status);

/* Enters a block that was just handed out. */
void storm_begin_block(struct storm_worker *worker, struct storm_block *block, void *start,
                       size_t size);
/* Checks a block's contents, and frees it in one of the possible ways. */
void storm_end_block(struct storm_worker *worker, struct storm_block *block);
/* Lets another stream use a block, or grows it in place, or asks for its information. */
void storm_use(struct storm_worker *worker, struct storm_block *block);
/* Puts a block into a mailbox for the next thread that looks there, and takes the block that was in
 * it. */
void storm_exchange(struct storm_worker *worker, struct storm_block *block);

/* A call that must finally succeed has failed with `status`. Checks that it may fail, and ends the
 * failures. Otherwise every thread could be in such a call while all allocations fail, and none
 * would end the failures. */
void storm_calm(tarn_status status);

/* Retires the worker's own stream, and adopts it again. */
void storm_renew_stream(struct storm_worker *worker);
/* Starts or ends failures of driver calls or host allocations, if the storm allows them. */
void storm_inject(struct storm_worker *worker);

#endif
