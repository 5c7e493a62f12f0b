/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The picture: what lies where in all heaps of all devices, each device at one moment, with what
 * the trace has said until then. */
#ifndef TARN_MEMORY_PICTURE_H
#define TARN_MEMORY_PICTURE_H

#include "record/trace.h"

#include <tarn/device.h>
#include <tarn/pool.h>

enum picture_state {
    PICTURE_FREE,
    PICTURE_LIVE,
    PICTURE_WAITING /* freed, and used by other streams still */
};

struct picture_block {
    uintptr_t address;
    size_t size, requested; /* bytes; 0 asked for where it is free */
    uint32_t record;        /* index of its allocation in the trace, and 1; 0 where that is not
                               known */
    uint16_t tag;
    uint8_t state;
    bool own; /* it is for the library's own use */
};

/* A run of a heap: contiguous, mapped, and cut into blocks without a gap. */
struct picture_segment {
    uintptr_t address;
    size_t size;
    uint32_t place;
    bool large, virtual;
    size_t first_block, block_count;
};

struct picture_pool {
    int device;
    uint64_t id[2];
    size_t reserved, allocated, active, waiting; /* bytes */
    bool suspended, held;
};

struct picture_device {
    const char *name;
    size_t total, free, reserved, limit; /* bytes; free: 0 where the driver does not say; SIZE_MAX
                                            is no limit */
    uint64_t moment;                     /* at which all its heaps stood still, in ticks */
};

/* A list in whole pages. */
struct picture_list {
    void *items;
    size_t count, room;
};

struct picture {
    struct picture_list blocks, segments, pools; /* segments in the order of addresses */
    struct picture_device devices[TARN_MAX_DEVICES];
    int device_count;
    bool keeps_places; /* the numbers in it stay what they are: until it is finished */
    struct trace_copy trace;
    struct ticks_scale scale;
};

static inline struct picture_block *picture_blocks(const struct picture *picture)
{
    return picture->blocks.items;
}

static inline struct picture_segment *picture_segments(const struct picture *picture)
{
    return picture->segments.items;
}

/* Takes a picture, with the trace up to it. Stops a device's heaps for as long as their blocks are
 * copied. TARN_ERROR_OUT_OF_HOST_MEMORY. picture_finish() frees it, also after a failure. */
tarn_status picture_take(struct picture *picture);
void picture_finish(struct picture *picture);

#endif
