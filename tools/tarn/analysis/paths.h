/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Paths of an analysis while they are made: of call sites, or of modules. Each has its number, and
 * distinct ones are stored once. */
#ifndef TOOLS_ANALYSIS_PATHS_H
#define TOOLS_ANALYSIS_PATHS_H

#include "analysis/analysis.h"
#include "table.h"

struct paths {
    struct table numbers;       /* by frame and caller */
    struct analysis_path *list; /* index 0 stands for "no path" */
    size_t count, capacity;
};

/* False when memory is short; paths_finish() takes what came of it. */
bool paths_init(struct paths *paths);
/* Frees the numbers. The list is the caller's to keep or to free. */
void paths_finish(struct paths *paths);

/* The number of the path of a frame whose caller has the path `caller`; 0 when memory is short. */
uint32_t path_of(struct paths *paths, uint32_t frame, uint32_t caller);

#endif
