/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The blocks that a scenario of failures has. Each has contents of its own at its start, which must
 * stay until it is freed. */
#ifndef TESTS_SUPPORT_PAINTED_H
#define TESTS_SUPPORT_PAINTED_H

#include "support/failures.h"
#include "support/host.h"

#define PAINTED_MOST 64

extern struct painted {
    struct {
        unsigned char *start;
        size_t size;
        bool checked; /* its contents must be right */
    } blocks[PAINTED_MOST];
    int count;
} painted;

/* The value of each painted byte of a block. */
unsigned char paint_of(int index);
void painted_add(void *pointer, size_t size);
/* Allocates a block from a pool, or with NULL without naming one. True if it succeeded. */
bool painted_alloc(tarn_pool *pool, tarn_stream stream, size_t size);
/* Frees a block. tarn_free() never fails, whatever the driver does. */
void painted_free(int index);
void painted_free_every_second(void);
void painted_free_all(void);
/* Checks the contents, and that the device counts exactly these blocks. */
void painted_check(void);

#endif
