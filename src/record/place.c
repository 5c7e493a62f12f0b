/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the numbers of places. Pools and streams come and go without end, so a number is used again
 * when nothing refers to it: no record in a ring, no holder, and no thread that got it recently and
 * may be about to write it. This is checked when the number of places has grown by a quarter since
 * the last check. So a trace that stays on needs memory only for what it shows. Chunks of the table
 * are never freed: a number in use can be read without a lock. */
#include "base/pages.h"
#include "record/trace.h"

#include <string.h>

#define CHUNK 256   /* places per chunk */
#define CHUNKS 4096 /* a million places; a record has 24 bits for a number */
#define BUCKETS 65536
#define FEW 1024 /* places that are added before the first check */

struct entry {
    struct trace_place place;
    uint32_t next;    /* next in its chain, or in the list of free numbers; 0: last */
    uint32_t holders; /* how often it is held */
    uint32_t turn;    /* the turn in which it was last given or dropped */
    bool used;
};

/* Protects everything here. Exception: a number that is in use is read without it. A leaf. */
static mutex places_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static _Atomic(struct entry *) chunks[CHUNKS];
static uint32_t buckets[BUCKETS];
static uint32_t most; /* numbers ever given: 1 to `most` */
static uint32_t unused, turn = 1, added, keepers;

static struct entry *entry_of(uint32_t number)
{
    return &atomic_load_explicit(&chunks[(number - 1) / CHUNK],
                                 memory_order_acquire)[(number - 1) % CHUNK];
}

static uint32_t *bucket_of(const struct trace_place *place)
{
    uint64_t hash = place->pool[0] * 0x9e3779b97f4a7c15u ^ place->pool[1] * 0xc2b2ae3d27d4eb4fu ^
                    place->stream * 0x165667b19e3779f9u ^ place->native ^
                    (uint64_t)place->device << 20;
    return &buckets[(hash ^ hash >> 32 ^ hash >> 15) % BUCKETS];
}

static void mark_ring(const struct trace_ring *ring, uint8_t *marks)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire), size = ring->mask + 1;
    uint64_t begin = atomic_load(&ring->begin), first = head > size ? head - size : 0;
    for (uint64_t at = first > begin ? first : begin; at < head; at++) {
        union {
            struct trace_record record;
            uint64_t words[TRACE_WORDS];
        } entry;
        size_t word = offsetof(struct trace_record, place_and_kind) / sizeof(uint64_t);
        entry.words[word] = atomic_load_explicit(
            &ring->words[(at & ring->mask) * TRACE_WORDS + word], memory_order_relaxed);
        uint32_t number = trace_place_of(&entry.record);
        if (number <= most)
            marks[number / 8] |= (uint8_t)(1 << number % 8);
    }
}

static void forget_locked(uint32_t number)
{
    struct entry *entry = entry_of(number);
    uint32_t *link = bucket_of(&entry->place);
    while (*link != number)
        link = &entry_of(*link)->next;
    *link = entry->next;
    entry->used = false;
    entry->next = unused;
    unused = number;
}

/* Frees the numbers that nothing refers to. Frees none if the host has no memory for the check. */
static void sweep_locked(void)
{
    size_t bytes = most / 8 + 1;
    uint64_t lost, since;
    uint8_t *marks = pages_alloc(bytes);
    if (!marks)
        return;
    for (const struct trace_ring *ring = trace_rings(&lost, &since); ring; ring = ring->next)
        mark_ring(ring, marks);
    for (uint32_t number = 1; number <= most; number++) {
        const struct entry *entry = entry_of(number);
        if (entry->used && !entry->holders && entry->turn < turn &&
            !(marks[number / 8] & 1 << number % 8))
            forget_locked(number);
    }
    pages_free(marks, bytes);
    turn++;
    added = 0;
}

/* An unused number; 0: no room. */
static uint32_t number_new_locked(void)
{
    if (!unused && !keepers && added >= (most / 4 > FEW ? most / 4 : FEW))
        sweep_locked();
    uint32_t number = unused;
    if (number) {
        unused = entry_of(number)->next;
        return number;
    }
    if (most == (uint32_t)CHUNKS * CHUNK)
        return 0;
    if (most % CHUNK == 0) {
        struct entry *chunk = pages_map(CHUNK * sizeof *chunk);
        if (!chunk)
            return 0;
        atomic_store_explicit(&chunks[most / CHUNK], chunk, memory_order_release);
    }
    return ++most;
}

static uint32_t number_of_locked(const struct trace_place *place)
{
    uint32_t *bucket = bucket_of(place), number = *bucket;
    while (number && memcmp(&entry_of(number)->place, place, sizeof *place) != 0)
        number = entry_of(number)->next;
    if (number)
        return number;
    number = number_new_locked();
    if (!number)
        return number;
    *entry_of(number) = (struct entry){.place = *place, .next = *bucket, .used = true};
    *bucket = number;
    added++;
    return number;
}

static uint32_t number_give(const struct trace_place *place, uint32_t holders)
{
    mutex_lock(&places_lock);
    uint32_t number = number_of_locked(place);
    if (number) {
        entry_of(number)->turn = turn;
        entry_of(number)->holders += holders;
    }
    mutex_unlock(&places_lock);
    return number;
}

uint32_t trace_place(const struct trace_place *place)
{
    return number_give(place, 0);
}

uint32_t trace_place_keep(const struct trace_place *place)
{
    return number_give(place, 1);
}

void trace_place_drop(uint32_t number)
{
    if (!number)
        return;
    mutex_lock(&places_lock);
    entry_of(number)->holders--;
    entry_of(number)->turn = turn;
    mutex_unlock(&places_lock);
}

const struct trace_place *trace_place_value(uint32_t number)
{
    if (!number || (number - 1) / CHUNK >= CHUNKS)
        return NULL;
    struct entry *chunk = atomic_load_explicit(&chunks[(number - 1) / CHUNK], memory_order_acquire);
    return chunk && chunk[(number - 1) % CHUNK].used ? &chunk[(number - 1) % CHUNK].place : NULL;
}

void trace_places_keep(bool keep)
{
    mutex_lock(&places_lock);
    keepers += keep ? 1 : UINT32_MAX;
    mutex_unlock(&places_lock);
}

uint32_t trace_places_most(void)
{
    mutex_lock(&places_lock);
    uint32_t number = most;
    mutex_unlock(&places_lock);
    return number;
}
