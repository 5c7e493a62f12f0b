/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A crew: threads of which one at a time does a job, in the order in which the caller gives jobs
 * out. Each sees all that earlier jobs did. For use by one thread. */
#ifndef TOOLS_CREW_H
#define TOOLS_CREW_H

#include <stdbool.h>
#include <stdint.h>

#define CREW_MAX 1024 /* threads */

struct crew;

/* Returns NULL if the threads cannot be started. */
struct crew *crew_create(uint32_t threads);
/* Ends the threads; NULL is fine. */
void crew_destroy(struct crew *crew);

/* Lets a thread, numbered from 0, do `job`. Waits for its end and returns its result. */
bool crew_do(struct crew *crew, uint32_t thread, bool (*job)(void *context), void *context);

#endif
