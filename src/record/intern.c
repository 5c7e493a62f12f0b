/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads and adds values. Owns no table. Chunks and buckets of a table are created under its lock
 * and never freed. An entry is complete before its number is in a chain, and constant from then
 * on. */
#include "record/intern.h"
#include "base/pages.h"

#include <string.h>

#define BUCKETS 16384

/* In a chunk, each value follows the next number of its chain. */
static size_t entry_size(const struct intern *table)
{
    return sizeof(uint64_t) + (table->size + 7) / 8 * 8;
}

static char *entry(const struct intern *table, uint32_t number)
{
    char *chunk =
        atomic_load_explicit(&table->chunks[(number - 1) / INTERN_CHUNK], memory_order_acquire);
    return chunk ? chunk + (number - 1) % INTERN_CHUNK * entry_size(table) : NULL;
}

static uint32_t bucket_of(const unsigned char *value, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ value[i]) * 0x100000001b3u;
    return (uint32_t)((hash ^ hash >> 29) % BUCKETS);
}

static uint32_t find(const struct intern *table, const atomic_uint *bucket, const void *value)
{
    uint32_t number = atomic_load_explicit(bucket, memory_order_acquire);
    while (number) {
        const char *at = entry(table, number);
        if (memcmp(at + sizeof(uint64_t), value, table->size) == 0)
            return number;
        memcpy(&number, at, sizeof number);
    }
    return 0;
}

/* The entry behind the last one; creates its chunk. NULL: no room. */
static char *entry_new_locked(struct intern *table, uint32_t number)
{
    if (number > table->most)
        return NULL;
    _Atomic(char *) *chunk = &table->chunks[(number - 1) / INTERN_CHUNK];
    if (!atomic_load_explicit(chunk, memory_order_relaxed)) {
        char *made = pages_map(INTERN_CHUNK * entry_size(table));
        if (!made)
            return NULL;
        atomic_store_explicit(chunk, made, memory_order_release);
    }
    return entry(table, number);
}

static uint32_t add_locked(struct intern *table, atomic_uint *bucket, const void *value)
{
    uint32_t number = find(table, bucket, value); /* another thread may have added it meanwhile */
    if (number)
        return number;
    number = atomic_load_explicit(&table->used, memory_order_relaxed) + 1;
    char *at = entry_new_locked(table, number);
    if (!at)
        return 0;
    uint32_t next = atomic_load_explicit(bucket, memory_order_relaxed);
    memcpy(at, &next, sizeof next);
    memcpy(at + sizeof(uint64_t), value, table->size);
    atomic_store_explicit(&table->used, number, memory_order_release);
    atomic_store_explicit(bucket, number, memory_order_release);
    return number;
}

static atomic_uint *buckets_make(struct intern *table)
{
    mutex_lock(&table->lock);
    atomic_uint *buckets = atomic_load_explicit(&table->buckets, memory_order_relaxed);
    if (!buckets) {
        buckets = pages_map(BUCKETS * sizeof *buckets);
        atomic_store_explicit(&table->buckets, buckets, memory_order_release);
    }
    mutex_unlock(&table->lock);
    return buckets;
}

uint32_t intern(struct intern *table, const void *value)
{
    atomic_uint *buckets = atomic_load_explicit(&table->buckets, memory_order_acquire);
    if (!buckets)
        buckets = buckets_make(table);
    if (!buckets)
        return 0;
    atomic_uint *bucket = &buckets[bucket_of(value, table->size)];
    uint32_t number = find(table, bucket, value);
    if (number)
        return number;
    mutex_lock(&table->lock);
    number = add_locked(table, bucket, value);
    mutex_unlock(&table->lock);
    return number;
}

const void *intern_value(const struct intern *table, uint32_t number)
{
    if (!number || number > atomic_load_explicit(&table->used, memory_order_acquire))
        return NULL;
    return entry(table, number) + sizeof(uint64_t);
}
