/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A picture: what is where in all heaps of all devices, each device at one moment, with the trace
 * up to that moment. */
#ifndef TARN_MEMORY_PICTURE_H
#define TARN_MEMORY_PICTURE_H

#include "record/trace.h"

#include <tarn/device.h>
#include <tarn/pool.h>

enum picture_state {
    PICTURE_FREE,
    PICTURE_LIVE,
    PICTURE_WAITING /* freed, but still used by other streams */
};

struct picture_block {
    uintptr_t address;
    size_t size, requested; /* bytes; `requested` is 0 in a free block */
    uint32_t record;        /* 1 + index of its allocation in the trace; 0: unknown */
    uint16_t tag;
    uint8_t state;
    bool own; /* allocated by the library for itself */
};

/* A run of a heap, cut into blocks without a gap. */
struct picture_run {
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
    bool suspended, held, of_graphs;             /* as in struct pool_occupancy */
};

struct picture_device {
    const char *name;
    /* Bytes; free 0: unknown to the driver; limit SIZE_MAX: none. */
    size_t total, free, reserved, limit;
    uint64_t moment; /* ticks: when all its heaps were stopped */
};

/* An array in whole pages. */
struct picture_list {
    void *items;
    size_t count, room;
};

struct picture {
    struct picture_list blocks, runs, pools; /* runs are ordered by address */
    struct picture_device devices[TARN_MAX_DEVICES];
    int device_count;
    bool keeps_places; /* until picture_finish(), numbers of places in it are not reused */
    struct trace_copy trace;
    struct ticks_scale scale;
};

static inline struct picture_block *picture_blocks(const struct picture *picture)
{
    return picture->blocks.items;
}

static inline struct picture_run *picture_runs(const struct picture *picture)
{
    return picture->runs.items;
}

/* Takes a picture, with the trace up to it. Stops a device's heaps while their blocks are copied.
 * TARN_ERROR_OUT_OF_HOST_MEMORY. Call picture_finish() also after a failure. */
tarn_status picture_take(struct picture *picture);
void picture_finish(struct picture *picture);

#endif
