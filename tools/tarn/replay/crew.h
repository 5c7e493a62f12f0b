/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A crew: threads that do one job at a time, in the order in which the caller gives them out. What
 * one has done, the next one sees. For one caller. */
#ifndef TOOLS_CREW_H
#define TOOLS_CREW_H

#include <stdbool.h>
#include <stdint.h>

#define CREW_MAX 1024 /* threads */

struct crew;

/* NULL when the threads cannot be started. */
struct crew *crew_create(uint32_t threads);
/* Ends the threads; NULL is fine. */
void crew_destroy(struct crew *crew);

/* Has `job` done by a thread, by its number from 0, waits for its end and gives what it gave. */
bool crew_do(struct crew *crew, uint32_t thread, bool (*job)(void *context), void *context);

#endif
