/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A hash table from a pair of 64-bit numbers to a 32-bit number. Any pair is a key. Nothing is ever
 * removed. A zeroed table is empty. Not thread-safe. */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_slot {
    uint64_t key[2];
    uint32_t value;
    bool used;
};

struct table {
    struct table_slot *slots; /* a power of two, at most three quarters used */
    size_t capacity, count;
};

/* Returns the value of a key, which may be changed in place; NULL if there is none. The pointer is
 * valid until the next table_add(). */
uint32_t *table_find(const struct table *table, uint64_t first, uint64_t second);

/* Finds a key, or adds it with `value`. NULL if memory is short. */
uint32_t *table_add(struct table *table, uint64_t first, uint64_t second, uint32_t value);

void table_finish(struct table *table);

#endif
