/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Paths of an analysis while they are made, of call sites or of modules. Each has a number. Equal
 * paths are stored once. */
#ifndef TOOLS_ANALYSIS_PATHS_H
#define TOOLS_ANALYSIS_PATHS_H

#include "analysis/analysis.h"
#include "table.h"

struct paths {
    struct table numbers;       /* frame and caller to the path's number */
    struct analysis_path *list; /* index 0 stands for "no path" */
    size_t count, capacity;
};

/* False if memory is short. Either way paths_finish() must follow. */
bool paths_init(struct paths *paths);
/* Frees the table of numbers. The list belongs to the caller from then on. */
void paths_finish(struct paths *paths);

/* The number of the path of a frame whose caller has the path `caller`; 0 if memory is short. */
uint32_t path_of(struct paths *paths, uint32_t frame, uint32_t caller);

#endif
