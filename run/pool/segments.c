/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the list of segments, by address. Its lock is a leaf. */
#include "segments.h"
#include "../lock.h"

#include <string.h>
#include <sys/mman.h>

enum { ROOM_FIRST = 512, GRANULE_BITS = 21, GRANULES = 1 << 16 };

struct segment {
    cu_address start, end;
    unsigned device;
    bool refused; /* the driver did not take it back: nobody's until it does */
};

static struct {
    struct word_lock lock;
    struct segment *list;
    size_t count, room;
    _Atomic uint64_t lowest, highest; /* of all that ever were, read without the lock */
    _Atomic uint64_t held[BOOK_DEVICES];
} segments = {.lowest = UINT64_MAX};

/* Blocks that begin in 2 MiB of addresses, modulo 128 GiB: where two meet, memory may seem to be in use that is not. */
static _Atomic uint32_t blocks[GRANULES];

void segment_count(cu_address address, int change)
{
    atomic_fetch_add_explicit(&blocks[address >> GRANULE_BITS & (GRANULES - 1)], (uint32_t)change,
                              memory_order_relaxed);
}

static bool is_idle(const struct segment *segment)
{
    for (cu_address at = segment->start >> GRANULE_BITS; at <= (segment->end - 1) >> GRANULE_BITS; at++)
        if (atomic_load_explicit(&blocks[at & (GRANULES - 1)], memory_order_relaxed))
            return false;
    return true;
}

uint64_t segments_idle(unsigned device)
{
    uint64_t bytes = 0;
    word_lock_take(&segments.lock);
    for (size_t i = 0; i < segments.count; i++)
        if (segments.list[i].device == device && is_idle(&segments.list[i]))
            bytes += segments.list[i].end - segments.list[i].start;
    word_lock_give(&segments.lock);
    return bytes;
}

static bool grow_locked(void)
{
    size_t room = segments.room ? 2 * segments.room : ROOM_FIRST;
    struct segment *list = mmap(NULL, room * sizeof *list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED)
        return false;
    if (segments.room) {
        memcpy(list, segments.list, segments.count * sizeof *list);
        munmap(segments.list, segments.room * sizeof *list);
    }
    segments.list = list;
    segments.room = room;
    return true;
}

/* The first whose end is above an address. */
static size_t find_locked(cu_address address)
{
    size_t low = 0, high = segments.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (segments.list[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool add(cu_address start, size_t size, unsigned device, bool refused)
{
    word_lock_take(&segments.lock);
    bool there = segments.count < segments.room || grow_locked();
    if (there) {
        size_t at = find_locked(start);
        memmove(&segments.list[at + 1], &segments.list[at], (segments.count - at) * sizeof *segments.list);
        segments.list[at] = (struct segment){start, start + size, device, refused};
        segments.count++;
        if (start < atomic_load(&segments.lowest))
            atomic_store(&segments.lowest, start);
        if (start + size > atomic_load(&segments.highest))
            atomic_store(&segments.highest, start + size);
        atomic_fetch_add(&segments.held[device], size);
    }
    word_lock_give(&segments.lock);
    return there;
}

static void remove_locked(size_t at)
{
    const struct segment *segment = &segments.list[at];
    atomic_fetch_sub(&segments.held[segment->device], segment->end - segment->start);
    segments.count--;
    memmove(&segments.list[at], &segments.list[at + 1], (segments.count - at) * sizeof *segments.list);
}

/* False where it had gone before. */
static bool take_out(cu_address start)
{
    word_lock_take(&segments.lock);
    size_t at = find_locked(start);
    bool found = at < segments.count && segments.list[at].start == start;
    if (found)
        remove_locked(at);
    word_lock_give(&segments.lock);
    return found;
}

static bool take_refused(unsigned device, struct segment *segment)
{
    word_lock_take(&segments.lock);
    size_t at = 0;
    while (at < segments.count && !(segments.list[at].refused && segments.list[at].device == device))
        at++;
    bool found = at < segments.count;
    if (found) {
        *segment = segments.list[at];
        remove_locked(at);
    }
    word_lock_give(&segments.lock);
    return found;
}

/* Gives the driver what was taken out; what it refuses is kept for segments_retry(). */
static bool give_back(cu_address address, size_t size, unsigned device)
{
    bool given = PASS(cuMemFree_v2, (address)) == CU_OK;
    if (given)
        charge_segment_free(device, size);
    else
        (void)add(address, size, device, true);
    return given;
}

void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    cu_address address = 0;
    (void)stream, (void)user;
    if (!charge_segment((unsigned)device, size))
        return NULL;
    if (!PASS(cuMemAlloc_v2, (&address, size)) && address) {
        if (add(address, size, (unsigned)device, false))
            return (void *)(uintptr_t)address;
        (void)PASS(cuMemFree_v2, (address));
    }
    charge_segment_free((unsigned)device, size);
    return NULL;
}

void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    cu_address address = (uintptr_t)pointer;
    (void)stream, (void)user;
    if (take_out(address))
        (void)give_back(address, size, (unsigned)device);
}

void segments_retry(unsigned device)
{
    struct segment refused = {0};
    while (take_refused(device, &refused) && give_back(refused.start, refused.end - refused.start, device))
        ;
}

bool segment_has(cu_address address)
{
    if (address < atomic_load_explicit(&segments.lowest, memory_order_relaxed) ||
        address >= atomic_load_explicit(&segments.highest, memory_order_relaxed))
        return false;
    word_lock_take(&segments.lock);
    size_t at = find_locked(address);
    bool has = at < segments.count && segments.list[at].start <= address;
    word_lock_give(&segments.lock);
    return has;
}

uint64_t segments_held(unsigned device)
{
    return atomic_load(&segments.held[device]);
}

void segments_end(unsigned device)
{
    uint64_t bytes = 0;
    size_t kept = 0;
    word_lock_take(&segments.lock);
    for (size_t i = 0; i < segments.count; i++)
        if (segments.list[i].device == device)
            bytes += segments.list[i].end - segments.list[i].start;
        else
            segments.list[kept++] = segments.list[i];
    segments.count = kept;
    atomic_fetch_sub(&segments.held[device], bytes);
    word_lock_give(&segments.lock);
    charge_segment_free(device, bytes);
}
