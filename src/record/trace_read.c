/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads the rings while their threads write: copies each, discards what may have been overwritten
 * meanwhile, and merges the copies by time. Owns nothing; the caller owns the copy. */
#include "base/pages.h"
#include "record/trace.h"

#include <string.h>

/* The stamps of one block may be out of order by at most so many records and ticks. */
#define AHEAD_RECORDS 256
#define AHEAD_TICKS 4096

/* The records of one ring in the copy, and what the ring no longer had. */
struct part {
    const struct trace_ring *ring;
    size_t first, count;
    uint64_t overwritten;
};

/* The first record that a ring still has and that was not cleared. There may have been a clear
 * after `head` was read. */
static uint64_t ring_first(const struct trace_ring *ring, uint64_t head)
{
    uint64_t size = ring->mask + 1, begin = atomic_load(&ring->begin);
    uint64_t first = head > size ? head - size : 0;
    first = first > begin ? first : begin;
    return first < head ? first : head;
}

static size_t ring_count(const struct trace_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    return (size_t)(head - ring_first(ring, head));
}

/* Copies the newest records of a ring, as many as there is room for. */
static void part_copy(struct part *part, struct trace_record *to)
{
    const struct trace_ring *ring = part->ring;
    uint64_t size = ring->mask + 1, head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t first = ring_first(ring, head), begin = atomic_load(&ring->begin);
    first = head - first > part->count ? head - part->count : first;
    uint64_t *words = (uint64_t *)to;
    for (uint64_t at = first; at < head; at++)
        for (size_t i = 0; i < TRACE_WORDS; i++)
            *words++ = atomic_load_explicit(&ring->words[(at & ring->mask) * TRACE_WORDS + i],
                                            memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    uint64_t now = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t whole = now + 1 > size ? now + 1 - size : 0; /* the next one may be half written */
    uint64_t kept = first > whole ? first : whole < head ? whole : head;
    memmove(to, to + (kept - first), (size_t)(head - kept) * sizeof *to);
    part->count = (size_t)(head - kept);
    part->overwritten = kept > begin ? kept - begin : 0;
}

/* Merges two neighbouring parts, each in order, into another buffer. */
static void merge_two(const struct trace_record *left, size_t lefts,
                      const struct trace_record *right, size_t rights, struct trace_record *to)
{
    while (lefts && rights) {
        bool take = left->time <= right->time;
        *to++ = take ? *left++ : *right++;
        lefts -= take;
        rights -= !take;
    }
    memcpy(to, lefts ? left : right, (lefts + rights) * sizeof *to);
}

/* Merges parts in pairs until one is left. Returns the buffer that has it. */
static struct trace_record *merge(struct part *parts, size_t count, struct trace_record *from,
                                  struct trace_record *to)
{
    while (count > 1) {
        size_t made = 0;
        for (size_t i = 0; i < count; i += 2) {
            struct part *left = &parts[i],
                        *right = i + 1 < count ? &parts[i + 1] : &(struct part){0};
            merge_two(from + left->first, left->count, from + right->first, right->count,
                      to + left->first);
            parts[made++] =
                (struct part){.first = left->first, .count = left->count + right->count};
        }
        count = made;
        struct trace_record *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static bool takes(const struct trace_record *record)
{
    return trace_kind_of(record) == TRACE_alloc;
}

static bool gives(const struct trace_record *record)
{
    enum trace_kind kind = trace_kind_of(record);
    return kind == TRACE_free || kind == TRACE_free_remote || kind == TRACE_free_completed;
}

/* The slot of an address in a table with a power of two of slots; if it has none, a free one. */
static uint64_t *slot_of(uint64_t *table, size_t slots, uint64_t address)
{
    size_t at = (size_t)(address * 0x9e3779b97f4a7c15u >> 20) & (slots - 1);
    while (table[at] && (table[at] & ~UINT64_C(1)) != address)
        at = (at + 1) & (slots - 1);
    return &table[at];
}

/* Puts the free of a block before the allocation by another thread that follows it: the stamps may
 * be out of order by some ns. Without host memory the order stays. */
static void put_frees_first(struct trace_record *records, size_t count)
{
    size_t slots = 1024;
    while (slots < 2 * count)
        slots *= 2;
    uint64_t *live = pages_map(slots * sizeof *live); /* addresses; bit 0: a block is there */
    for (size_t i = 0; live && i < count; i++) {
        if (!takes(&records[i]) && !gives(&records[i]))
            continue;
        uint64_t *slot = slot_of(live, slots, records[i].address);
        if (takes(&records[i]) && *slot & 1) {
            size_t at = i + 1, end = count - i > AHEAD_RECORDS ? i + AHEAD_RECORDS : count;
            while (at < end && !(gives(&records[at]) && records[at].address == records[i].address))
                at++;
            if (at < end) {
                struct trace_record early = records[at];
                memmove(&records[i + 1], &records[i], (at - i) * sizeof *records);
                early.time = records[i + 1].time;
                records[i++] = early; /* the block is still live */
            }
        }
        *slot = records[i].address | takes(&records[i]);
    }
    pages_unmap(live, slots * sizeof *live);
}

/* The time from which a ring misses nothing; 0: it misses nothing at all. */
static uint64_t exact_time(const struct part *part, const struct trace_record *records)
{
    if (!part->overwritten)
        return 0;
    return part->count ? records[part->first].time + AHEAD_TICKS : UINT64_MAX;
}

/* The first record at or after a time. */
static size_t index_of(const struct trace_copy *copy, uint64_t time)
{
    size_t low = 0, high = copy->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (copy->records[middle].time < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Copies the rings, one after the other. Returns the time from which the copies are complete. */
static uint64_t parts_copy(struct part *parts, size_t count, struct trace_copy *copy,
                           struct trace_record *to)
{
    uint64_t exact = 0;
    for (size_t i = 0; i < count; i++) {
        parts[i].first = copy->count;
        part_copy(&parts[i], to + copy->count);
        copy->count += parts[i].count;
        copy->lost += parts[i].overwritten;
        uint64_t time = exact_time(&parts[i], to);
        exact = exact > time ? exact : time;
    }
    return exact;
}

bool trace_read(struct trace_copy *copy)
{
    *copy = (struct trace_copy){0};
    uint64_t whole;
    const struct trace_ring *first = trace_rings(&copy->lost, &whole);
    size_t rings = 0, room = 0, count = 0;
    for (const struct trace_ring *ring = first; ring; ring = ring->next)
        rings++;
    size_t list = (rings + 1) * sizeof(struct part);
    struct part *parts = pages_alloc(list);
    for (const struct trace_ring *ring = first; parts && ring; ring = ring->next, count++) {
        parts[count] = (struct part){.ring = ring, .count = ring_count(ring)};
        room += parts[count].count;
    }
    size_t bytes = (room + 1) * sizeof(struct trace_record);
    struct trace_record *from = pages_map(bytes), *to = count > 1 ? pages_map(bytes) : NULL;
    bool done = from && parts && (to || count <= 1);
    if (done) {
        uint64_t exact = parts_copy(parts, count, copy, from);
        copy->records = merge(parts, count, from, to);
        copy->bytes = bytes;
        copy->exact_from = index_of(copy, exact > whole ? exact : whole);
        if (count > 1)
            put_frees_first(copy->records + copy->exact_from, copy->count - copy->exact_from);
    }
    if (from != copy->records)
        pages_unmap(from, bytes);
    if (to != copy->records)
        pages_unmap(to, bytes);
    pages_free(parts, list);
    return done;
}

void trace_count(uint64_t *kept, uint64_t *lost)
{
    *kept = 0;
    uint64_t whole;
    for (const struct trace_ring *ring = trace_rings(lost, &whole); ring; ring = ring->next) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire),
                 begin = atomic_load(&ring->begin);
        uint64_t first = ring_first(ring, head);
        *kept += head - first;
        *lost += first > begin ? first - begin : 0;
    }
}

void trace_copy_finish(struct trace_copy *copy)
{
    pages_unmap(copy->records, copy->bytes);
    *copy = (struct trace_copy){0};
}
