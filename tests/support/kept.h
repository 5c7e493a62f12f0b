/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The blocks that a scenario of failures has: each has contents of its own at its start, which must
 * be there until it is freed. */
#ifndef TESTS_SUPPORT_KEPT_H
#define TESTS_SUPPORT_KEPT_H

#include "support/failures.h"
#include "support/host.h"

#define KEPT_MOST 64

extern struct kept {
    struct {
        unsigned char *start;
        size_t size;
        bool checked; /* what is in it counts */
    } blocks[KEPT_MOST];
    int count;
} kept;

/* What each byte of a block is. */
unsigned char kept_paint(int index);
void kept_add(void *pointer, size_t size);
/* Of a pool, or with NULL of no pool that is named. Whether there is a block. */
bool kept_alloc(tarn_pool *pool, tarn_stream stream, size_t size);
/* A plain free never fails, whatever the driver does. */
void kept_free(int index);
void kept_free_every_second(void);
void kept_free_all(void);
/* Contents, and what the device counts: these blocks are all there are. */
void kept_check(void);

#endif
