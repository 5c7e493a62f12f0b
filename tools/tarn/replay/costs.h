/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Cost table C of a replay (tarn/host.h), if TARN_HOST_COSTS does not set one: it was measured on
 * an H200. */
#ifndef TOOLS_COSTS_H
#define TOOLS_COSTS_H

extern const char replay_costs[]; /* docs/costs-h200.txt; the build makes it */

/* Makes this table the host device's, which must not have been used yet. If TARN_HOST_COSTS is set
 * and empty, there is no table C. */
void replay_costs_default(void);

#endif
