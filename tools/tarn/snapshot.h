/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A PyTorch memory snapshot in memory: what `torch.cuda.memory._dump_snapshot` writes (pytorch/pytorch,
 * torch/csrc/cuda/memory_snapshot.cpp), read by a reader that executes nothing.
 *
 * Old and new layouts both land here: a field that a layout lacks has the value that its comment names.
 * Everything belongs to the snapshot and dies with it. Not thread-safe; two snapshots are independent. */
#ifndef TOOLS_SNAPSHOT_H
#define TOOLS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum snapshot_action {
    SNAPSHOT_ALLOC,
    SNAPSHOT_FREE_REQUESTED,
    SNAPSHOT_FREE_COMPLETED,
    SNAPSHOT_SEGMENT_ALLOC,
    SNAPSHOT_SEGMENT_FREE,
    SNAPSHOT_SEGMENT_MAP,
    SNAPSHOT_SEGMENT_UNMAP,
    SNAPSHOT_TAKEN, /* "snapshot" */
    SNAPSHOT_OOM,
    SNAPSHOT_OTHER, /* an action that this reader does not know: counted, not replayed */
};

#define SNAPSHOT_NO_TIME INT64_MIN

struct snapshot_event {
    uint64_t address; /* bytes; for SNAPSHOT_OOM the free bytes of the device ("device_free") */
    uint64_t size;    /* bytes, as requested; segment size for SNAPSHOT_SEGMENT_* */
    uint64_t stream;  /* the raw pointer value that PyTorch wrote */
    int64_t time_us;  /* microseconds, or SNAPSHOT_NO_TIME where the layout has none */
    uint64_t pool[2]; /* pool id, (0,0) where the layout has none */
    enum snapshot_action action;
};

enum snapshot_state { SNAPSHOT_INACTIVE, SNAPSHOT_ACTIVE_ALLOCATED, SNAPSHOT_ACTIVE_PENDING_FREE };

struct snapshot_block {
    uint64_t address;        /* bytes; computed from the segment where the layout has none */
    uint64_t size;           /* bytes, rounded */
    uint64_t requested_size; /* bytes; 0 for a free block, `size` where the layout has none */
    enum snapshot_state state;
};

struct snapshot_segment {
    int device;
    bool large;                                                                /* segment_type "large" */
    bool expandable;                                                           /* false where the layout has none */
    uint64_t address, total_size, allocated_size, active_size, requested_size; /* bytes */
    uint64_t stream;
    uint64_t pool[2];                /* (0,0) where the layout has none */
    size_t first_block, block_count; /* a range of snapshot.blocks */
};

struct snapshot_trace {
    struct snapshot_event *events; /* in the order of the file, which is the order of time */
    size_t event_count;
};

struct snapshot {
    struct snapshot_segment *segments; /* in the order of the file */
    size_t segment_count;
    struct snapshot_block *blocks;
    size_t block_count;
    struct snapshot_trace *traces; /* index = device */
    size_t trace_count;
    struct snapshot_event *events; /* each trace is a run in here; it may hold others too */
    size_t event_count;
    bool modelled; /* its segments were never on a GPU: "tarn_recorded" names another source than "cuda" */
};

/* Why a file could not be read: one line that names the byte offset and what was met there. */
struct snapshot_error {
    char text[512];
};

/* Reads a whole snapshot file, plain or zstd-compressed (told by its first bytes). False on failure, with `error` filled and
 * `snapshot` zeroed; true fills `snapshot`, which the caller gives to snapshot_finish(). */
bool snapshot_read_file(const char *path, struct snapshot *snapshot, struct snapshot_error *error);

/* The same from a buffer of `size` bytes that need not outlive the call. */
bool snapshot_read_buffer(const void *data, size_t size, struct snapshot *snapshot, struct snapshot_error *error);

/* Frees what a snapshot owns and zeroes it; a zeroed snapshot is fine. */
void snapshot_finish(struct snapshot *snapshot);

#endif
