/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* From a workload to a plan (memory/settings/plan_file.h): which of its requests are planned, and where each is best put. */
#ifndef TOOLS_PLAN_MAKE_H
#define TOOLS_PLAN_MAKE_H

#include "input/workload.h"
#include "replay/packing.h"

#include "memory/settings/plan_file.h"

#include <stdbool.h>

struct plan_draft {
    struct plan_header header; /* in this machine's order */
    struct plan_request *requests;
    uint64_t stream; /* as recorded: that whose requests are planned */
    uint64_t
        rest; /* bytes: the most that lives at one time of the stream's requests that are too small to be planned */
    struct packing_result found; /* of the placement */
};

/* Plans the requests above PLAN_LEAST_REQUEST of the stream that asks for most, in the default pool. The search ends where the arena,
 * in granules, cannot get smaller; `limits` says when else. The caller gives the draft to plan_draft_finish(). False with one line in `error` when there are none, too many or too large ones, or memory is short. */
bool plan_draft_make(const struct workload *workload, uint64_t effort, const struct packing_limits *limits,
                     struct plan_draft *draft, char *error, size_t error_size);
void plan_draft_finish(struct plan_draft *draft);

/* Writes the plan to a new file beside `path`, whose name it gives in `made` (room for PLAN_PATH_MOST bytes). False with `error` filled;
 * then there is no file. */
#define PLAN_PATH_MOST 256
bool plan_draft_write(const struct plan_draft *draft, const char *path, char made[PLAN_PATH_MOST], char *error,
                      size_t error_size);

#endif
