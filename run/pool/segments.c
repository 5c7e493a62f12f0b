/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the list of segments, sorted by address. Its lock is a leaf. */
#include "segments.h"
#include "../lock.h"
#include "lane.h"

#include <string.h>
#include <sys/mman.h>

enum { ROOM_FIRST = 512, GRANULE_BITS = 21, GRANULES = 1 << 16 };

struct segment {
    cu_address start, end;
    uint16_t device, lane; /* lane: 0 for a plain allocation */
    /* the turn in which the driver, or the lane, refused to take it back; nothing is cut from it
     * since. 0: not refused */
    uint64_t refused;
};

static struct {
    struct word_lock lock;
    struct segment *list;
    size_t count, room;
    /* bounds of all segments that ever were; read without the lock */
    _Atomic uint64_t lowest, highest;
    _Atomic uint64_t held[BOOK_DEVICES];
    _Atomic uint64_t given; /* segments that were returned to the driver */
} segments = {.lowest = UINT64_MAX};

/* The number of blocks that begin in each 2 MiB of addresses, modulo 128 GiB. If two ranges share a
 * counter, memory may seem to be in use that is not. */
static _Atomic uint32_t blocks[GRANULES];

void segment_count(cu_address address, int change)
{
    atomic_fetch_add_explicit(&blocks[address >> GRANULE_BITS & (GRANULES - 1)], (uint32_t)change,
                              memory_order_relaxed);
}

static bool is_idle(const struct segment *segment)
{
    for (cu_address at = segment->start >> GRANULE_BITS; at <= (segment->end - 1) >> GRANULE_BITS;
         at++)
        if (atomic_load_explicit(&blocks[at & (GRANULES - 1)], memory_order_relaxed))
            return false;
    return true;
}

uint64_t segments_idle(unsigned device, bool of_lanes)
{
    uint64_t bytes = 0;
    word_lock_take(&segments.lock);
    for (size_t i = 0; i < segments.count; i++)
        if (segments.list[i].device == device && (segments.list[i].lane > 0) == of_lanes &&
            is_idle(&segments.list[i]))
            bytes += segments.list[i].end - segments.list[i].start;
    word_lock_give(&segments.lock);
    return bytes;
}

bool segments_may_be_idle(unsigned source)
{
    bool may = false;
    word_lock_take(&segments.lock);
    for (size_t i = 0; !may && i < segments.count; i++) {
        const struct segment *segment = &segments.list[i];
        bool is_whole = (segment->start | segment->end) % ((cu_address)1 << GRANULE_BITS) == 0;
        may = segment->lane && lane_source(segment->lane) == source &&
              (!is_whole || is_idle(segment));
    }
    word_lock_give(&segments.lock);
    return may;
}

uint64_t segments_given(void)
{
    return atomic_load(&segments.given);
}

static bool grow_locked(void)
{
    size_t room = segments.room ? 2 * segments.room : ROOM_FIRST;
    struct segment *list =
        mmap(NULL, room * sizeof *list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

/* The index of the first segment that ends above an address. */
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

static bool add(cu_address start, size_t size, unsigned device, unsigned lane, uint64_t refused)
{
    word_lock_take(&segments.lock);
    bool there = segments.count < segments.room || grow_locked();
    if (there) {
        size_t at = find_locked(start);
        memmove(&segments.list[at + 1], &segments.list[at],
                (segments.count - at) * sizeof *segments.list);
        segments.list[at] =
            (struct segment){start, start + size, (uint16_t)device, (uint16_t)lane, refused};
        segments.count++;
        if (start < atomic_load(&segments.lowest))
            atomic_store(&segments.lowest, start);
        if (start + size > atomic_load(&segments.highest))
            atomic_store(&segments.highest, start + size);
        atomic_fetch_add(&segments.held[device], size);
        if (lane)
            source_segment(lane_source(lane), (int64_t)size);
    }
    word_lock_give(&segments.lock);
    return there;
}

static void uncount(const struct segment *segment)
{
    atomic_fetch_sub(&segments.held[segment->device], segment->end - segment->start);
    if (segment->lane)
        source_segment(lane_source(segment->lane), -(int64_t)(segment->end - segment->start));
}

static void remove_locked(size_t at)
{
    uncount(&segments.list[at]);
    segments.count--;
    memmove(&segments.list[at], &segments.list[at + 1],
            (segments.count - at) * sizeof *segments.list);
}

/* Removes a segment from the list. False if it was not there, because its memory had gone. */
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

/* Removes the first refused segment of a device from an address on. */
static bool take_refused(unsigned device, cu_address from, struct segment *segment)
{
    word_lock_take(&segments.lock);
    size_t at = find_locked(from);
    while (at < segments.count &&
           !(segments.list[at].refused && segments.list[at].device == device))
        at++;
    bool found = at < segments.count;
    if (found) {
        *segment = segments.list[at];
        remove_locked(at);
    }
    word_lock_give(&segments.lock);
    return found;
}

bool segments_are_refused(unsigned device)
{
    bool are = false;
    word_lock_take(&segments.lock);
    for (size_t i = 0; !are && i < segments.count; i++)
        are = segments.list[i].refused && segments.list[i].device == device;
    word_lock_give(&segments.lock);
    return are;
}

/* Returns a segment to the driver. A refused one goes back into the list, for segments_retry(). */
static bool give_back(cu_address address, size_t size, unsigned device, unsigned lane, bool is_idle)
{
    bool given = lane ? lane_give(lane, address, is_idle) : PASS(cuMemFree_v2, (address)) == CU_OK;
    segments.given += given;
    if (given)
        charge_segment_free(device, size);
    else
        (void)add(address, size, device, lane, lanes_turn());
    return given;
}

static cu_address take(size_t size, unsigned lane)
{
    cu_address address = 0;
    if (lane)
        return lane_take(lane, size);
    return PASS(cuMemAlloc_v2, (&address, size)) ? 0 : address;
}

void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    unsigned lane = (unsigned)(uintptr_t)user;
    (void)stream;
    if (!charge_segment((unsigned)device, size))
        return NULL;
    cu_address address = take(size, lane);
    if (address && add(address, size, (unsigned)device, lane, 0))
        return (void *)(uintptr_t)address;
    if (address && lane)
        (void)lane_give(lane, address, false);
    else if (address)
        (void)PASS(cuMemFree_v2, (address));
    charge_segment_free((unsigned)device, size);
    return NULL;
}

void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    cu_address address = (uintptr_t)pointer;
    (void)stream;
    if (take_out(address))
        (void)give_back(address, size, (unsigned)device, (unsigned)(uintptr_t)user, false);
}

/* Tries each one once. */
void segments_retry(unsigned device, uint64_t turn)
{
    struct segment refused = {0};
    while (take_refused(device, refused.end, &refused))
        (void)give_back(refused.start, refused.end - refused.start, device, refused.lane,
                        refused.refused <= turn);
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

/* Forgets the segments of a source, or with 0 the plain ones of a device. */
static void forget(unsigned source, unsigned device)
{
    uint64_t bytes = 0;
    size_t kept = 0;
    word_lock_take(&segments.lock);
    for (size_t i = 0; i < segments.count; i++) {
        const struct segment *segment = &segments.list[i];
        if (source ? !segment->lane || lane_source(segment->lane) != source
                   : segment->lane || segment->device != device) {
            segments.list[kept++] = *segment;
            continue;
        }
        bytes += segment->end - segment->start;
        uncount(segment);
        if (segment->lane)
            lane_lose(segment->lane);
    }
    segments.count = kept;
    word_lock_give(&segments.lock);
    charge_segment_free(device, bytes);
}

void segments_end(unsigned device)
{
    forget(0, device);
}

void segments_end_of(unsigned source)
{
    forget(source, source_device(source));
}
