/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A survey: what tarn has at one moment, in one piece of memory of a fixed layout, which is also
 * that of the live page (page.h) and what metrics are made of. What has no room in it is counted
 * and left out. A change of the layout is a new PAGE_VERSION. Sizes in bytes. */
#ifndef TARN_REPORT_SURVEY_H
#define TARN_REPORT_SURVEY_H

#include "driver/driver.h"
#include "memory/watch/occupancy.h"

#include <stdint.h>
#include <tarn/pinned.h>
#include <tarn/stats.h>
#include <tarn/status.h>

enum {
    SURVEY_DEVICES = 64,
    SURVEY_POOLS = 256,
    SURVEY_STREAMS = 1024,
    SURVEY_HANDLES = 256,
    SURVEY_LIBRARIES = 256
};

#define SURVEY_UNKNOWN UINT64_MAX /* free memory that was not asked for; a limit: none */

/* How many of a list there are, and how many of them are in the survey. */
struct survey_count {
    uint32_t there, here;
};

struct survey_device {
    int32_t number;
    uint32_t used; /* tarn has, or had, memory of it; else what follows the name is 0 */
    uint32_t lost;
    uint32_t unused;
    char name[64];
    char uuid[48], pci[24];       /* "" where the driver does not say */
    uint64_t total, free, limit;  /* free: by the driver; SURVEY_UNKNOWN where not used */
    uint64_t spans, largest_span; /* free memory that is mapped, all of it and the longest piece */
    uint64_t waiting, cached;     /* freed and in use still; reserved and mapped nowhere */
    uint64_t workspaces, workspace_bytes;
    uint64_t unseen; /* under `tarn run`: of the process, beside what calls named; SURVEY_UNKNOWN:
                        not known */
    tarn_stats stats;
};

enum {
    SURVEY_POOL_PLAIN = 1,
    SURVEY_POOL_SUSPENDED = 2,
    SURVEY_POOL_HELD = 4,
    SURVEY_POOL_LEFT_BEHIND = 8
};

struct survey_pool {
    int32_t device;
    uint32_t flags;
    uint64_t id[2]; /* (0, 0): the default pool */
    uint64_t reserved, cached, limit;
    uint64_t requested, allocated, active, waiting;
};

/* A stream is gone, or its pool left behind; memory of the default pool that is not cached. */
enum { SURVEY_STREAM_RETIRED = 1, SURVEY_STREAM_UNCACHED = 2 };

/* What a stream has in a pool. */
struct survey_stream {
    int32_t device;
    uint32_t flags;
    uint32_t slot, generation;
    uint64_t pool[2];
    uint64_t native; /* the vendor's pointer */
    uint64_t mapped, spans, largest_span, waiting;
};

/* A library's handles on a device, where any was ever made. */
struct survey_handles {
    int32_t device, library;
    char name[32];
    uint64_t in_use, available, created, destroyed, peak_in_use, failures;
};

/* Under `tarn run`: what a library of the program has of a device. */
struct survey_library {
    int32_t device;
    uint32_t unused;
    char name[48];
    uint64_t live, peak, made; /* bytes, bytes, allocations since the start */
};

struct survey {
    uint64_t taken_ns; /* CLOCK_MONOTONIC */
    uint64_t number;   /* of this survey, from 1 */
    int64_t metadata;  /* host memory of the library's own bookkeeping */
    uint32_t has_pinned, unused;
    tarn_pinned_stats pinned;
    struct survey_count device_count, pool_count, stream_count, handle_count, library_count;
    struct survey_device devices[SURVEY_DEVICES];
    struct survey_pool pools[SURVEY_POOLS];
    struct survey_stream streams[SURVEY_STREAMS];
    struct survey_handles handles[SURVEY_HANDLES];
    struct survey_library libraries[SURVEY_LIBRARIES];
};

/* Who takes surveys, one at a time: the last one, and room to work. From pages_map(). */
struct surveyor {
    struct survey survey;
    struct driver_identity identities[SURVEY_DEVICES]; /* asked once */
    bool knows[SURVEY_DEVICES];
    struct pool_occupancy pools[SURVEY_POOLS];
    struct heap_occupancy heaps[SURVEY_STREAMS];
};

/* Makes the next survey. Takes the locks of the layers below one after the other, asks the driver
 * how much is free on the devices that tarn uses, and waits for no work. After
 * device_layer_ready(); not during a shutdown. */
void survey_take(struct surveyor *surveyor);

#endif
