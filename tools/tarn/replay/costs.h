/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Cost table C of a replay (tarn/host.h) where TARN_HOST_COSTS does not say: what an H200
 * measured. */
#ifndef TOOLS_COSTS_H
#define TOOLS_COSTS_H

extern const char replay_costs[]; /* docs/costs-h200.txt; the build makes it */

/* Names that table to the host device, which must not have been used yet. An empty TARN_HOST_COSTS
 * stays: there is no table C then. */
void replay_costs_default(void);

#endif
