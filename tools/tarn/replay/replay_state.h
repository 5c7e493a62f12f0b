/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a replay has while it runs, for the files that make it (replay_setup.c) and run it
 * (replay.c). */
#ifndef TOOLS_REPLAY_STATE_H
#define TOOLS_REPLAY_STATE_H

#include "replay/crew.h"
#include "replay/oracle/oracle.h"
#include "replay/replay.h"

#include <tarn/tarn.h>

#define MAX_HELPERS 64
#define NO_HELPER UINT8_MAX

/* A stream of the replay. */
struct lane {
    tarn_stream stream;
    void *native;
    uint64_t end; /* ns: when the work queued so far ends */
    bool leased, captures;
    uint32_t routed;   /* while it captures: the pool that its memory is of, or WORKLOAD_NO_POOL */
    tarn_event *event; /* for waits; NULL before the first */
};

/* What a block of the workload has. */
struct holding {
    void *pointer;
    uint64_t usable; /* bytes */
    uint32_t ticket; /* the oracle's */
    bool live;
};

struct replay {
    const struct replay_options *options;
    const struct workload *workload;
    struct replay_result *result;
    _Atomic uint64_t *progress;

    struct oracle *oracle;
    struct lane *streams, helpers[MAX_HELPERS];
    size_t helper_count;
    uint8_t *helper_of; /* by block; NO_HELPER for one that is not late */
    struct holding *holdings;
    struct crew *crew; /* NULL with one thread */
    tarn_pool **pools; /* by number, from 1; NULL for one that is given back */
    void **holders;    /* by number: the graph that holds the pool; NULL for none */
    void **graphs;     /* of the captures of the repetition */
    size_t graph_count, open_captures;

    bool timed;          /* work is queued, so the clock matters */
    uint64_t now, shift; /* ns: the clock, and what is added to the recorded time */
    uint32_t repetition; /* from 1 */
    uint32_t event;      /* at hand; UINT32_MAX before the first, event_count after the last */

    uint64_t requested, active; /* bytes: sums over blocks */
    uint64_t live;
    struct replay_repetition measured;
    uint64_t program_waited; /* ns: in the repetition, where the program gave memory back */
    uint64_t waste_peak;     /* bytes: of reserved, when result->wasted was noted */
};

/* Makes what the workload needs: the oracle, the crew, a stream for each recorded one and each
 * helper, the pools. False with the result's error filled. */
bool replay_setup(struct replay *replay);
/* Undoes it, also where it failed half-way. */
void replay_teardown(struct replay *replay);

/* Makes the private pools that are not there. */
bool replay_pools_open(struct replay *replay);
/* Gives a private pool back, with what it has; and all of them. */
tarn_status replay_pool_close(struct replay *replay, size_t number);
void replay_pools_close(struct replay *replay);
/* Destroys the graphs of the repetition's captures. */
void replay_graphs_drop(struct replay *replay);

/* Says why the replay stops: what was done, where, and what tarn says. Returns false. */
bool replay_fail(struct replay *replay, tarn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
