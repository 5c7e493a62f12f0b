/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "memory/model/model.h"

struct model m;

uint64_t next_random(void)
{
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return m.random;
}

uint64_t below(uint64_t n)
{
    return next_random() % n;
}

uint64_t now(void)
{
    uint64_t time = 0;
    MUST(tarn_host_time_get(&time) == TARN_OK, "no time");
    return time;
}

/* Queues work of `duration` on a stream and gives it. */
struct work queue_work(int stream, const void *address, size_t size, uint64_t duration)
{
    struct stream_model *s = &m.streams[stream];
    MUST(tarn_host_work(s->device, s->native, address, size, duration) == TARN_OK, "work refused");
    uint64_t end = now() + duration;
    s->end = end > s->end ? end : s->end;
    s->after[stream] = ++s->number;
    return (struct work){stream, s->number, s->end};
}

/* Orders what comes on `to` after what is queued on `from`: a program does so before a second
 * stream uses a block. */
void order_after(int to, int from)
{
    struct stream_model *t = &m.streams[to], *f = &m.streams[from];
    static tarn_event *event[DEVICES];
    if (!event[f->device])
        MUST(tarn_event_create(f->device, &event[f->device]) == TARN_OK, "event");
    MUST(tarn_event_record(event[f->device], f->handle) == TARN_OK, "record");
    MUST(tarn_stream_wait(t->handle, event[f->device]) == TARN_OK, "wait");
    for (int i = 0; i < ALL_STREAMS; i++)
        if (f->after[i] > t->after[i])
            t->after[i] = f->after[i];
    t->end = f->end > t->end ? f->end : t->end;
}

void block_used(struct block *block, struct work work)
{
    for (int i = 0; i < block->work_count; i++) {
        if (block->works[i].stream == work.stream) {
            block->works[i] = work;
            return;
        }
    }
    if (block->work_count < WORKS)
        block->works[block->work_count++] = work;
}

/* May a block on `stream` be given memory with this work on it? */
static bool is_ordered(int stream, const struct work *work)
{
    return work->end <= now() || work->number <= m.streams[stream].after[work->stream];
}

void check_new(const struct block *block)
{
    uintptr_t start = (uintptr_t)block->pointer, end = start + block->usable;
    for (int i = 0; i < m.block_count; i++) {
        uintptr_t other = (uintptr_t)m.blocks[i].pointer;
        MUST(end <= other || other + m.blocks[i].usable <= start,
             "a new block at %p overlaps a live one at %p", (void *)start, (void *)other);
    }
    for (int i = 0; i < m.ghost_count;) {
        struct ghost *ghost = &m.ghosts[i];
        if (ghost->work.end <= now()) {
            *ghost = m.ghosts[--m.ghost_count];
            continue;
        }
        bool apart = end <= ghost->start || ghost->end <= start;
        MUST(apart || is_ordered(block->stream, &ghost->work),
             "a block on stream %d was given memory at %p on which work %" PRIu64
             " of stream %d is unfinished",
             block->stream, (void *)start, ghost->work.number, ghost->work.stream);
        i++;
    }
}

/* Addresses alone do not show that memory moved: the work on old memory is also kept by its
 * physical place. */
uint64_t physical(const void *address)
{
    tarn_host_extent extent;
    MUST(tarn_host_extent_get(m.streams[0].device, address, 1, &extent) == TARN_OK ||
             tarn_host_extent_get(m.streams[STREAMS].device, address, 1, &extent) == TARN_OK,
         "%p is not mapped", address);
    MUST(extent.accessible, "%p has no access", address);
    return extent.piece << 34 | extent.offset;
}

void paint(struct block *block)
{
    block->pointer[0] = block->pattern;
    block->pointer[block->size / 2] = block->pattern;
    block->pointer[block->size - 1] = block->pattern;
}

void check_paint(const struct block *block)
{
    MUST(block->pointer[0] == block->pattern && block->pointer[block->size / 2] == block->pattern &&
             block->pointer[block->size - 1] == block->pattern,
         "the contents of the block at %p have changed", (void *)block->pointer);
}

bool may_fail(tarn_status status)
{
    if (status == TARN_ERROR_OUT_OF_MEMORY) {
        m.outs++;
        return true;
    }
    if (status && m.injecting) {
        m.injected++;
        return true;
    }
    return false;
}

bool captures(int stream)
{
    return m.streams[stream].capture != NO_CAPTURE;
}

struct block *block_at(const unsigned char *pointer)
{
    struct block *block = m.blocks;
    while (block->pointer != pointer)
        block++;
    return block;
}

bool is_orphan(const struct block *block)
{
    return block->handle != m.streams[block->stream].handle;
}

static void check_device_counters(void)
{
    for (int device = 0; device < DEVICES; device++) {
        int64_t blocks = 0, requested = 0, usable = 0;
        for (int i = 0; i < m.block_count; i++) {
            if (m.blocks[i].stream / STREAMS != device)
                continue;
            blocks++;
            requested += (int64_t)m.blocks[i].size;
            usable += (int64_t)m.blocks[i].usable;
        }
        tarn_stats stats = {.size = sizeof stats};
        tarn_host_ledger ledger = {.size = sizeof ledger};
        MUST(tarn_device_stats_get(device, &stats) == TARN_OK &&
                 tarn_host_ledger_get(device, &ledger) == TARN_OK,
             "stats");
        MUST(stats.allocation[0].current == blocks, "%" PRId64 " blocks counted, %" PRId64 " live",
             stats.allocation[0].current, blocks);
        MUST(stats.requested_bytes[0].current == requested,
             "requested bytes: counted %" PRId64 ", are %" PRId64, stats.requested_bytes[0].current,
             requested);
        MUST(stats.allocated_bytes[0].current == usable, "allocated bytes");
        MUST(stats.active_bytes[0].current >= usable, "active bytes");
        MUST(ledger.reports == 0, "the checker reported");
        struct arena *arena = NULL;
        MUST(arena_of(device_at(device), &arena) == TARN_OK && arena_verify(arena) == TARN_OK,
             "broken");
        MUST(!store_default(arena)->kind.reuses ||
                 stats.reserved_bytes[0].current == (int64_t)ledger.created,
             "reserved: %" PRId64 ", the driver says %" PRIu64, stats.reserved_bytes[0].current,
             ledger.created);
    }
}

void check_all(void)
{
    check_device_counters();
    check_pools();
}
