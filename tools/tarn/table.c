/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The hash table of the tools: open addressing, linear probing. Keys come from files that nobody
 * vouches for, so the table is seeded with its own address: a file cannot be written to make every
 * probe long. */
#include "table.h"

#include <stdlib.h>

static size_t table_hash(const struct table *table, uint64_t first, uint64_t second)
{
    uint64_t hash = first ^ (uint64_t)(uintptr_t)table->slots;
    hash = (hash ^ (hash >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ (hash >> 29) ^ second) * UINT64_C(0xbf58476d1ce4e5b9);
    return (size_t)(hash ^ (hash >> 32));
}

/* The slot that has a key, or the unused slot where the key belongs. The table has at least one
 * unused slot. */
static struct table_slot *table_slot_of(const struct table *table, uint64_t first, uint64_t second)
{
    size_t mask = table->capacity - 1;
    size_t at = table_hash(table, first, second) & mask;
    while (table->slots[at].used &&
           (table->slots[at].key[0] != first || table->slots[at].key[1] != second))
        at = (at + 1) & mask;
    return &table->slots[at];
}

uint32_t *table_find(const struct table *table, uint64_t first, uint64_t second)
{
    if (table->count == 0)
        return NULL;
    struct table_slot *slot = table_slot_of(table, first, second);
    return slot->used ? &slot->value : NULL;
}

static bool table_grow(struct table *table)
{
    struct table grown = {.capacity = table->capacity ? table->capacity * 2 : 64,
                          .count = table->count};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].used)
            *table_slot_of(&grown, table->slots[i].key[0], table->slots[i].key[1]) =
                table->slots[i];
    free(table->slots);
    *table = grown;
    return true;
}

uint32_t *table_add(struct table *table, uint64_t first, uint64_t second, uint32_t value)
{
    if (table->count >= table->capacity / 4 * 3 && !table_grow(table))
        return NULL;
    struct table_slot *slot = table_slot_of(table, first, second);
    if (!slot->used) {
        *slot = (struct table_slot){.key = {first, second}, .value = value, .used = true};
        table->count++;
    }
    return &slot->value;
}

void table_finish(struct table *table)
{
    free(table->slots);
    *table = (struct table){0};
}
