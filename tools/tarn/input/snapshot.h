/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A PyTorch memory snapshot in memory: what `torch.cuda.memory._dump_snapshot` writes
 * (pytorch/pytorch, torch/csrc/cuda/memory_snapshot.cpp), read by a reader that executes nothing. A
 * log of RMM's becomes one too (rmm_csv.h), and JSON of its profiler (profile_json.h).
 *
 * Old and new layouts both land here: a field that a layout lacks has the value that its comment
 * names. Everything belongs to the snapshot and dies with it. Not thread-safe; two snapshots are
 * independent. */
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

/* 48 bytes: a trace may have hundreds of millions. The 32-bit numbers are places in tables of the
 * snapshot; 0 is where the layout has none: stream 0, pool (0,0), no stack, the empty text. */
struct snapshot_event {
    uint64_t address; /* bytes; for SNAPSHOT_OOM the free bytes of the device ("device_free") */
    uint64_t size;    /* bytes, as requested; segment size for SNAPSHOT_SEGMENT_* */
    int64_t time_us;  /* microseconds, or SNAPSHOT_NO_TIME where the layout has none */
    uint32_t stream;  /* of snapshot.streams; of a free, the stream in whose order it is */
    uint32_t pool;    /* of snapshot.pools */
    uint32_t stack;   /* of snapshot.stacks ("frames") */
    uint32_t tag;     /* text ("user_metadata") */
    uint32_t thread;  /* from 1, 0 where it is not known; only tarn and RMM write it */
    uint8_t action;   /* enum snapshot_action */
    bool in_range;    /* the address is in a range (tarn_range_create()) */
};

enum snapshot_state { SNAPSHOT_INACTIVE, SNAPSHOT_ACTIVE_ALLOCATED, SNAPSHOT_ACTIVE_PENDING_FREE };

struct snapshot_block {
    uint64_t address;        /* bytes; computed from the segment where the layout has none */
    uint64_t size;           /* bytes, rounded */
    uint64_t requested_size; /* bytes; 0 for a free block, `size` where the layout has none */
    enum snapshot_state state;
    uint32_t stack; /* of snapshot.stacks */
    uint32_t tag;   /* text */
};

struct snapshot_segment {
    int device;
    bool large; /* segment_type "large" */
    /* False where the layout has none */
    bool expandable;
    bool in_range; /* committed pages of a range (tarn_range_create()) */
    uint64_t address, total_size, allocated_size, active_size, requested_size; /* bytes */
    uint64_t stream;                 /* the raw pointer value that PyTorch wrote */
    uint64_t pool[2];                /* (0,0) where the layout has none */
    uint32_t stream_place;           /* of the same in snapshot.streams */
    uint32_t pool_place;             /* of the same in snapshot.pools */
    uint32_t stack;                  /* of snapshot.stacks */
    size_t first_block, block_count; /* a range of snapshot.blocks */
};

struct snapshot_trace {
    struct snapshot_event *events; /* in the order of the file, which is the order of time */
    size_t event_count;
    size_t thinned;         /* events that were left out (thin.h) */
    uint64_t thinned_bytes; /* the most of them at one time */
    /* Bytes: the most that was reserved, if the trace has no segments but says how much is
     * reserved (profile_trace.c); otherwise 0. */
    uint64_t reserved_most;
    /* From this event on nothing is missing; 0 except for a ring that wrapped, which only tarn
     * tells. */
    size_t exact_from;
};

/* A place in a program. */
struct snapshot_frame {
    uint32_t name, filename; /* texts */
    uint32_t line;           /* 0: not known */
};

/* A stack of calls: the innermost frame, and the stack of its caller. Distinct ones are stored
 * once, with their common part. */
struct snapshot_stack {
    uint32_t caller; /* always less than the stack's own number; 0: none */
    uint32_t frame;  /* of snapshot.frames */
};

/* What tarn's own snapshots have besides: the value of the top-level key "tarn". */

/* What PyTorch's traces have no action for. X(name): the kind's text is the name in lower case. */
#define SNAPSHOT_MARK_LIST(X) \
    X(RECORD_STREAM)          \
    X(FREE_ON)                \
    X(WAIT)                   \
    X(CAPTURE_BEGIN)          \
    X(CAPTURE_END)            \
    X(POOL_CREATE)            \
    X(POOL_RELEASE)           \
    X(SCOPE_BEGIN)            \
    X(SCOPE_END)              \
    X(TRIM)                   \
    X(SUSPEND)                \
    X(RESUME)                 \
    X(HANDLE_CREATE)          \
    X(REGION_BEGIN)           \
    X(REGION_END)

enum snapshot_mark_kind {
#define X(name) SNAPSHOT_##name,
    SNAPSHOT_MARK_LIST(X)
#undef X
        SNAPSHOT_MARK_OTHER, /* a kind that this reader does not know */
};

struct snapshot_mark {
    /* It happened before this event of the device's trace, or after the last one. */
    uint64_t at;
    int64_t time_us; /* SNAPSHOT_NO_TIME where there is none */
    /* Address of RECORD_STREAM and FREE_ON, number of CAPTURE_*, bytes that TRIM keeps; else 0. */
    uint64_t value;
    uint32_t stream; /* of snapshot.streams */
    uint32_t other;  /* WAIT: the stream whose work is waited for */
    uint32_t pool;   /* of snapshot.pools */
    uint32_t text;   /* the name of HANDLE_CREATE and REGION_*, "how" of SCOPE_* */
    uint32_t thread; /* from 1; 0: not known */
    uint16_t device;
    uint8_t kind;   /* enum snapshot_mark_kind */
    bool unplanned; /* of POOL_CREATE: the pool follows no plan */
};

/* "record_stream", ...; "other" for what this reader does not know. */
const char *snapshot_mark_name(uint8_t kind);

#define SNAPSHOT_NO_LIMIT UINT64_MAX

struct snapshot_device {
    uint32_t name;                         /* text */
    uint64_t total, free, reserved, limit; /* bytes; limit SNAPSHOT_NO_LIMIT where there is none */
};

struct snapshot_pool {
    int device;
    uint32_t pool;                                 /* of snapshot.pools */
    uint64_t reserved, allocated, active, waiting; /* bytes */
    bool suspended, held;
    bool of_graphs; /* nothing but graphs and open captures holds it */
};

/* What a graph that was remembered (tarn/graph.h) refers to in one pool. */
struct snapshot_graph {
    uint64_t number;
    int device;
    uint32_t pool;             /* of snapshot.pools */
    uint64_t blocks, bytes;    /* that lived when it was remembered, as requested */
    uint64_t gone, gone_bytes; /* of these, what was freed since */
};

struct snapshot_handle {
    int device;
    uint32_t library; /* text */
    uint64_t count, in_use;
};

struct snapshot_workspace {
    int device;
    uint32_t stream;  /* of snapshot.streams */
    uint32_t library; /* text */
    uint64_t size, address;
};

struct snapshot_thread {
    uint32_t number, name; /* text */
};

struct snapshot_tarn {
    bool there;               /* the snapshot is tarn's own */
    uint32_t library, driver; /* texts */
    int64_t taken_ns;         /* since 1970; 0 where it is not known */
    uint64_t overwritten;     /* events that the rings no longer had */
    struct snapshot_device *devices;
    struct snapshot_pool *pools;
    struct snapshot_graph *graphs;
    struct snapshot_handle *handles;
    struct snapshot_workspace *workspaces;
    struct snapshot_thread *threads;
    size_t device_count, pool_count, graph_count, handle_count, workspace_count, thread_count;
    struct snapshot_mark *marks; /* those of one device are in order of `at` */
    size_t mark_count;
};

/* A span that a program named ("external_annotations"): its beginning or its end. */
struct snapshot_annotation {
    int64_t time_us;
    uint32_t name; /* text */
    int device;    /* 0 where it names none */
    bool ends;
};

/* What of "allocator_settings" is shown. */
struct snapshot_settings {
    bool there;
    bool expandable; /* expandable segments are on */
    uint32_t conf;   /* text: the environment variable's */
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
    uint64_t *streams;    /* the raw pointer values that PyTorch wrote; the first is 0 */
    uint64_t (*pools)[2]; /* pool ids; the first is (0,0) */
    size_t stream_count, pool_count;
    struct snapshot_frame *frames;
    struct snapshot_stack *stacks; /* the first is none */
    size_t frame_count, stack_count;
    char *text_bytes;
    size_t *text_starts;
    size_t text_count;
    struct snapshot_annotation *annotations; /* in the order of the file */
    size_t annotation_count;
    struct snapshot_settings settings;
    struct snapshot_tarn tarn;
    bool rmm;          /* it is an RMM log */
    bool profile;      /* it is of PyTorch's profiler, without segments (profile_json.h) */
    bool timeline;     /* it is a memory timeline of it, which shows no out-of-memory errors */
    int host_device;   /* the device whose memory is the host's, + 1; 0: there is none */
    size_t lost_lines; /* of such a log: 1 where its last line is cut off */
    /* It is of `tarn run`: each block is a segment, which the program's own call took from the
     * driver. */
    bool of_driver;
    /* Bytes: blocks of `tarn run` of up to that size came from pools; 0: all from the driver. */
    uint64_t pooled;
    /* Its layout is of a PyTorch that has no expandable segments: before 2.1. */
    bool before_expandable;
    bool no_device;   /* a segment names no device, and is taken for one of... */
    int device_taken; /* ...this one */
    bool modelled;    /* its segments were never on a GPU, by "tarn_recorded" */
};

/* A text by its number, printable UTF-8 without control characters, cut at 1024 bytes. */
static inline const char *snapshot_text(const struct snapshot *snapshot, uint32_t number)
{
    return number < snapshot->text_count ? snapshot->text_bytes + snapshot->text_starts[number]
                                         : "";
}

/* Why a file could not be read: one line that names the byte offset, or of a CSV the line, and what
 * was met there. */
struct snapshot_error {
    char text[512];
};

/* Reads a whole snapshot file or an RMM log, plain or zstd-compressed (told by its first bytes).
 * False on failure, with `error` filled and `snapshot` zeroed; true fills `snapshot`, which the
 * caller gives to snapshot_finish(). */
bool snapshot_read_file(const char *path, struct snapshot *snapshot, struct snapshot_error *error);

/* The same from a buffer of `size` bytes that need not outlive the call. */
bool snapshot_read_buffer(const void *data, size_t size, struct snapshot *snapshot,
                          struct snapshot_error *error);

/* Frees what a snapshot owns and zeroes it; a zeroed snapshot is fine. */
void snapshot_finish(struct snapshot *snapshot);

#endif
