/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Numbers for values. Each distinct value of a table has a number: 1, 2, ... in the order in which
 * they came. Nothing is ever removed, so a value is read, and a known value found, without a lock.
 * Thread-safe. */
#ifndef TARN_RECORD_INTERN_H
#define TARN_RECORD_INTERN_H

#include "base/thread/lock.h"

#include <stddef.h>
#include <stdint.h>

#define INTERN_CHUNKS 4096 /* the most chunks of a table */
#define INTERN_CHUNK 256   /* values per chunk */

struct intern {
    mutex lock;    /* held while a value is added */
    size_t size;   /* bytes of a value; all of them are compared */
    unsigned most; /* the most values; at most INTERN_CHUNKS * INTERN_CHUNK */
    _Atomic(char *) chunks[INTERN_CHUNKS];
    _Atomic(atomic_uint *) buckets; /* the first number of each chain; 0: none */
    atomic_uint used;               /* values in the table */
};

#define INTERN(type, limit)                                                         \
    {                                                                               \
        .lock = MUTEX_INITIALIZER(LOCK_LEAF), .size = sizeof(type), .most = (limit) \
    }
#define INTERN_MOST (INTERN_CHUNKS * INTERN_CHUNK)

/* Returns the number of a value, and keeps a copy of it. 0: the table is full, or the host has no
 * memory. */
uint32_t intern(struct intern *table, const void *value);
/* The value with a number; NULL for 0 and for unused numbers. */
const void *intern_value(const struct intern *table, uint32_t number);

#endif
