/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The state of a replay while it runs. replay_setup.c creates and ends it, replay.c runs it. */
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
    uint32_t routed;   /* while it captures: the pool of its allocations, or WORKLOAD_NO_POOL */
    tarn_event *event; /* for waits; NULL before the first one */
};

/* The replay's block for a block of the workload. */
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
    uint8_t *helper_of; /* by block; NO_HELPER for one without a late free */
    struct holding *holdings;
    struct crew *crew; /* NULL if there is only one thread */
    tarn_pool **pools; /* by number, from 1; NULL: given back */
    void **holders;    /* by number: the graph that holds the pool; NULL: none */
    void **graphs;     /* graphs of the repetition's captures */
    size_t graph_count, open_captures;

    bool timed;          /* work is queued, so the clock must be moved */
    uint64_t now, shift; /* ns: the clock, and its distance from recorded time */
    uint32_t repetition; /* from 1 */
    /* the current one; UINT32_MAX before the first, event_count after the last */
    uint32_t event;

    uint64_t requested, active; /* bytes: sums over blocks */
    uint64_t live;
    struct replay_repetition measured;
    /* ns, in this repetition: waits in which the program gave memory back */
    uint64_t program_waited;
    uint64_t waste_peak; /* bytes: reserved when result->wasted was noted */
};

/* Creates what the workload needs: the oracle, the crew, a stream per recorded one and per helper,
 * the pools. False with the result's error filled. */
bool replay_setup(struct replay *replay);
/* Undoes it, also if it failed half-way. */
void replay_teardown(struct replay *replay);

/* Creates the private pools that do not exist. */
bool replay_pools_open(struct replay *replay);
/* replay_pool_close() gives a private pool back with its memory; replay_pools_close() all of
 * them. */
tarn_status replay_pool_close(struct replay *replay, size_t number);
void replay_pools_close(struct replay *replay);
/* Destroys the graphs of the repetition's captures. */
void replay_graphs_drop(struct replay *replay);

/* Sets the error: what was done, where, and what tarn says. Returns false. */
bool replay_fail(struct replay *replay, tarn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
