/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes a plan (memory/settings/plan_file.h) from a workload: which requests are planned, and the
 * best place for each. */
#ifndef TOOLS_PLAN_MAKE_H
#define TOOLS_PLAN_MAKE_H

#include "input/workload.h"
#include "plan/packing.h"

#include "memory/settings/plan_file.h"
#include "report/sink.h"

#include <stdbool.h>

/* The arena of one stream of a pool. */
struct plan_draft_arena {
    struct plan_header header; /* in this machine's byte order */
    struct plan_request *requests;
    uint64_t stream; /* as recorded */
    uint32_t pool;   /* number of the workload */
    uint64_t asked;  /* bytes: of all requests */
    uint64_t rest;   /* peak bytes of its requests that are too small to be planned */
    /* allocations of the recording before its first request; arenas are in this order */
    uint32_t first;
    struct packing_result found; /* of the placement */
};

struct plan_draft {
    struct plan_draft_arena *arenas; /* in the order of their first requests */
    uint32_t count, made;            /* arenas from `count` to `made` are left out */
    uint32_t largest;                /* the arena that requests most */
    uint32_t pools;                  /* private ones that are planned */
    uint64_t planned;                /* requests */
    struct packing_result found;     /* of all: heights and bounds add up */
};

/* Plans the requests above PLAN_LEAST_REQUEST of each stream of each pool, for the `most` streams
 * that request most, at most PLAN_ARENAS_MOST. The search ends when an arena cannot become smaller
 * by a granule, or by `limits`, which apply to all arenas together. The caller passes the draft to
 * plan_draft_finish(). False with one line in `error` if there are no requests, too many or too
 * large ones, or memory is short. */
bool plan_draft_make(const struct workload *workload, uint32_t most, uint64_t effort,
                     const struct packing_limits *limits, struct plan_draft *draft, char *error,
                     size_t error_size);
void plan_draft_finish(struct plan_draft *draft);

/* plan_draft_drop() leaves an arena out. plan_draft_undrop() takes the one that was left out last
 * in again. The sums of the draft follow. */
void plan_draft_drop(struct plan_draft *draft, uint32_t arena);
void plan_draft_undrop(struct plan_draft *draft);

/* An arena's rank: a larger arena has a higher one, and no two have the same.
 * plan_draft_largest_below() returns the arena with the highest rank below `rank`, or the draft's
 * count if there is none. */
uint64_t plan_draft_rank(const struct plan_draft *draft, uint32_t arena);
uint32_t plan_draft_largest_below(const struct plan_draft *draft, uint64_t rank);

/* Bytes of all arenas, each in whole granules; and of the file. */
uint64_t plan_draft_arenas(const struct plan_draft *draft);
uint64_t plan_draft_size(const struct plan_draft *draft);

/* Writes the file. False if memory is short. */
bool plan_draft_write(const struct plan_draft *draft, struct sink *sink);

#endif
