/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Numbers for values: each distinct value of a table has a number, from 1 on in the order in which
 * they came. Nothing is ever forgotten, so that a value is read, and a known one found, without a
 * lock. Thread-safe. */
#ifndef TARN_RECORD_INTERN_H
#define TARN_RECORD_INTERN_H

#include "base/thread/lock.h"

#include <stddef.h>
#include <stdint.h>

#define INTERN_CHUNKS 4096 /* the most of a table */
#define INTERN_CHUNK 256   /* values */

struct intern {
    mutex lock;    /* to add */
    size_t size;   /* bytes of a value; every one of them counts */
    unsigned most; /* numbers, up to INTERN_CHUNKS * INTERN_CHUNK */
    _Atomic(char *) chunks[INTERN_CHUNKS];
    _Atomic(atomic_uint *) buckets; /* the number of a chain's first, or 0 */
    atomic_uint used;               /* numbers given */
};

#define INTERN(type, limit)                                                           \
    {                                                                                 \
        .lock = MUTEX_INITIALIZER(LOCK_INTERN), .size = sizeof(type), .most = (limit) \
    }
#define INTERN_MOST (INTERN_CHUNKS * INTERN_CHUNK)

/* The number of a value, of which a copy is kept. 0 where the table is full or the host has no
 * memory. */
uint32_t intern(struct intern *table, const void *value);
/* The value of a number that was given; NULL for 0 and what was not. */
const void *intern_value(const struct intern *table, uint32_t number);

#endif
