/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A survey: what tarn has at one moment, in memory of a fixed layout. The live page (page.h) has
 * the same layout, and metrics are made from it. What does not fit is counted and left out. A
 * change of the layout is a new PAGE_VERSION. Sizes in bytes. */
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
    SURVEY_LIBRARIES = 256,
    SURVEY_GRAPHS = 256
};

#define SURVEY_UNKNOWN UINT64_MAX /* the driver was not asked, or there is no limit */

/* The length of a list, and how many of its items are in the survey. */
struct survey_count {
    uint32_t there, here;
};

struct survey_device {
    int32_t number;
    uint32_t used; /* tarn has had memory of it; if not, the fields after the name are 0 */
    uint32_t lost;
    uint32_t unused;
    char name[64];
    char uuid[48], pci[24]; /* "": unknown to the driver */
    /* Free: by the driver's count; SURVEY_UNKNOWN if the device is not used. */
    uint64_t total, free, limit;
    uint64_t spans, largest_span; /* mapped free memory: all of it, and the longest range */
    uint64_t waiting, cached;     /* freed but still used; reserved and mapped nowhere */
    uint64_t workspaces, workspace_bytes;
    /* Under `tarn run`: memory of the process that no call named; SURVEY_UNKNOWN: unknown. */
    uint64_t unseen;
    tarn_stats stats;
};

enum {
    SURVEY_POOL_PLAIN = 1,
    SURVEY_POOL_SUSPENDED = 2,
    SURVEY_POOL_HELD = 4,
    SURVEY_POOL_LEFT_BEHIND = 8,
    SURVEY_POOL_OF_GRAPHS = 16 /* held, and by nothing but graphs or open captures */
};

struct survey_pool {
    int32_t device;
    uint32_t flags;
    uint64_t id[2]; /* (0, 0): the default pool */
    uint64_t reserved, cached, limit;
    uint64_t requested, allocated, active, waiting;
};

/* Flags: the stream was retired or its pool left behind; the memory is not cached. */
enum { SURVEY_STREAM_RETIRED = 1, SURVEY_STREAM_UNCACHED = 2 };

/* What a stream has in a pool. */
struct survey_stream {
    int32_t device;
    uint32_t flags;
    uint32_t slot, generation;
    uint64_t pool[2];
    uint64_t native; /* the vendor's stream */
    uint64_t mapped, spans, largest_span, waiting;
};

/* A library's handles on a device, if any was ever created. */
struct survey_handles {
    int32_t device, library;
    char name[32];
    uint64_t in_use, available, created, destroyed, peak_in_use, failures;
};

/* Under `tarn run`: a library's memory of a device. */
struct survey_library {
    int32_t device;
    uint32_t unused;
    char name[48];
    uint64_t live, peak, made; /* bytes, bytes, allocations since the start */
};

/* What a remembered graph (tarn/graph.h) refers to in one pool: blocks that lived when it was
 * remembered. A launch fails while a private pool sleeps. */
struct survey_graph {
    int32_t device;
    uint32_t addresses; /* different ones in these blocks */
    uint64_t number, pool[2];
    uint64_t blocks, bytes;    /* as requested */
    uint64_t gone, gone_bytes; /* of these, what was freed since */
};

struct survey {
    uint64_t taken_ns; /* CLOCK_MONOTONIC */
    uint64_t number;   /* number of this survey, from 1 */
    int64_t metadata;  /* host memory of the library's own bookkeeping */
    uint32_t has_pinned, unused;
    tarn_pinned_stats pinned;
    struct survey_count device_count, pool_count, stream_count, handle_count, library_count,
        graph_count;
    struct survey_device devices[SURVEY_DEVICES];
    struct survey_pool pools[SURVEY_POOLS];
    struct survey_stream streams[SURVEY_STREAMS];
    struct survey_handles handles[SURVEY_HANDLES];
    struct survey_library libraries[SURVEY_LIBRARIES];
    struct survey_graph graphs[SURVEY_GRAPHS];
};

/* Takes surveys, one at a time: has the last one, and room to work. Allocated by pages_map(). */
struct surveyor {
    struct survey survey;
    struct driver_identity identities[SURVEY_DEVICES]; /* asked for once */
    bool knows[SURVEY_DEVICES];
    struct pool_occupancy pools[SURVEY_POOLS];
    struct heap_occupancy heaps[SURVEY_STREAMS];
};

/* Takes the next survey. Takes locks of the layers below one after the other, asks the driver for
 * the free memory of devices that tarn uses, and waits for no work. Not before
 * device_layer_ready(), and not during a shutdown. */
void survey_take(struct surveyor *surveyor);

#endif
