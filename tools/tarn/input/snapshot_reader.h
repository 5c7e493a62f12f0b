/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The inside of the reader of snapshots, shared by snapshot.c (events, segments), snapshot_fields.c
 * (values), snapshot_tarn.c (what tarn adds) and snapshot_extra.c (annotations, settings), and by
 * nothing else. */
#ifndef TOOLS_SNAPSHOT_READER_H
#define TOOLS_SNAPSHOT_READER_H

#include "input/pickle/pickle.h"
#include "input/snapshot.h"
#include "table.h"

/* Far above any machine; keeps an index that a file names from becoming an array's size. */
#define DEVICE_MAX 4096

/* The texts that matter: keys, then values. */
enum word {
    KEY_NONE, /* the empty text, so that its number is 0 */
    KEY_SEGMENTS,
    KEY_DEVICE_TRACES,
    KEY_DEVICE,
    KEY_ADDRESS,
    KEY_TOTAL_SIZE,
    KEY_ALLOCATED_SIZE,
    KEY_ACTIVE_SIZE,
    KEY_REQUESTED_SIZE,
    KEY_STREAM,
    KEY_SEGMENT_TYPE,
    KEY_SEGMENT_POOL_ID,
    KEY_IS_EXPANDABLE,
    KEY_BLOCKS,
    KEY_SIZE,
    KEY_STATE,
    KEY_ACTION,
    KEY_ADDR,
    KEY_DEVICE_FREE,
    KEY_TIME_US,
    KEY_POOL_ID,
    KEY_TARN_RECORDED,
    KEY_SOURCE,
    KEY_POOLED,
    KEY_FRAMES,
    KEY_HISTORY,
    KEY_NAME,
    KEY_FILENAME,
    KEY_LINE,
    KEY_USER_METADATA,
    KEY_THREAD,
    KEY_TARN,
    KEY_VERSION,
    KEY_LIBRARY,
    KEY_DRIVER,
    KEY_TAKEN_NS,
    KEY_EXACT_FROM,
    KEY_OVERWRITTEN,
    KEY_DEVICES,
    KEY_POOLS,
    KEY_HANDLES,
    KEY_WORKSPACES,
    KEY_THREADS,
    KEY_EVENTS,
    KEY_TOTAL,
    KEY_FREE,
    KEY_RESERVED,
    KEY_LIMIT,
    KEY_ID,
    KEY_ALLOCATED,
    KEY_ACTIVE,
    KEY_WAITING,
    KEY_SUSPENDED,
    KEY_HELD,
    KEY_OF_GRAPHS,
    KEY_GRAPHS,
    KEY_GONE,
    KEY_GONE_SIZE,
    KEY_COUNT_OF,
    KEY_IN_USE,
    KEY_NUMBER,
    KEY_AT,
    KEY_KIND,
    KEY_OTHER,
    KEY_CAPTURE,
    KEY_KEEP,
    KEY_HOW,
    KEY_ALLOCATOR_SETTINGS,
    KEY_CUDA_CONF,
    KEY_CONF,
    KEY_EXPANDABLE_SEGMENTS,
    KEY_EXTERNAL_ANNOTATIONS,
    KEY_STAGE,
    KEY_RANGE,
    KEY_UNPLANNED,
    KEY_COUNT,

    WORD_LARGE = KEY_COUNT,
    WORD_SMALL,
    WORD_INACTIVE,
    WORD_ACTIVE_ALLOCATED,
    WORD_ACTIVE_PENDING_FREE,
    WORD_ACTIVE_AWAITING_FREE,
    WORD_CUDA,
    WORD_TARN_RUN,
    WORD_START,
    WORD_END,
    WORD_ALLOC, /* from here on in the order of enum snapshot_action */
    WORD_FREE_REQUESTED,
    WORD_FREE_COMPLETED,
    WORD_SEGMENT_ALLOC,
    WORD_SEGMENT_FREE,
    WORD_SEGMENT_MAP,
    WORD_SEGMENT_UNMAP,
    WORD_SNAPSHOT,
    WORD_OOM,
#define X(name) WORD_MARK_##name, /* in the order of enum snapshot_mark_kind */
    SNAPSHOT_MARK_LIST(X)
#undef X
        WORD_COUNT,
};

extern const char *const reader_words[WORD_COUNT];

/* Where in the snapshot a dict is, for error texts. */
struct path {
    enum { PATH_TOP, PATH_SEGMENT, PATH_BLOCK, PATH_TRACE, PATH_EVENT, PATH_TARN, PATH_PART } kind;
    /* Segment and block, trace and event, or key (enum word) and item of a part of "tarn". */
    size_t outer, inner;
    uint64_t offset; /* of the dict */
};

/* The entries of one dict by key. */
struct fields {
    const struct pickle_place *entries;
    uint8_t number[KEY_COUNT]; /* place in `entries` + 1; 0 where the dict has none, or None */
};

static inline const struct pickle_place *field(const struct fields *fields, enum word key)
{
    return fields->number[key] ? &fields->entries[fields->number[key] - 1] : NULL;
}

/* What a record of the pickle machine stands for; the kind is above its place in the array of that
 * kind. */
enum record { RECORD_EVENT, RECORD_FRAME, RECORD_MARK };
#define RECORD_KIND_SHIFT 48

static inline bool is_record(pickle_value value, enum record kind)
{
    return pickle_kind(value) == PICKLE_RECORD && pickle_number(value) >> RECORD_KIND_SHIFT == kind;
}

static inline size_t record_place(pickle_value value)
{
    return (size_t)(pickle_number(value) & ((UINT64_C(1) << RECORD_KIND_SHIFT) - 1));
}

struct reader {
    struct pickle pickle;
    struct pickle_input input;
    struct snapshot *snapshot;
    struct snapshot_error *error;
    bool quiet; /* do not fill `error`: the walk will come by again */
    uint64_t steps;

    /* The arrays of `snapshot`, with the room that they have. */
    size_t event_capacity, segment_capacity, block_capacity, stream_capacity, pool_capacity,
        frame_capacity, stack_capacity, mark_capacity;
    struct table streams, pools, frames,
        stacks;          /* values to places; frames: name and file, line; stacks: caller, frame */
    size_t *trace_first; /* index in `events` of a trace's first */
};

/* "byte N: segments[3].blocks[7].size is negative"; gives false. */
bool reader_fail(struct reader *reader, uint64_t offset, const struct path *path, const char *key,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

void reader_collect(const struct reader *reader, pickle_value dict, struct fields *fields);
bool reader_need(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key);

/* An integer from 0 on; `otherwise` where the key is absent. */
bool reader_number(struct reader *reader, const struct path *path, const struct fields *fields,
                   enum word key, uint64_t otherwise, uint64_t *number);
bool reader_need_number(struct reader *reader, const struct path *path, const struct fields *fields,
                        enum word key, uint64_t *number);
/* The same below 2^32; 0 where the key is absent. */
bool reader_small(struct reader *reader, const struct path *path, const struct fields *fields,
                  enum word key, uint32_t *number);
/* Microseconds or the like; `otherwise` where the key is absent. */
bool reader_time(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, int64_t otherwise, int64_t *time);
bool reader_bool(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, bool *yes);
bool reader_pair(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, uint64_t pair[2]);
/* Reads a text that must be there. `*word` receives its number; WORD_COUNT: the text is unknown. */
bool reader_word(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, enum word *word);
/* A text's number; 0 where there is none, whatever is there instead. */
uint32_t reader_text(const struct fields *fields, enum word key);
/* A stream, a pool, by its place in the snapshot's table. */
bool reader_stream(struct reader *reader, const struct path *path, const struct fields *fields,
                   enum word key, uint32_t *number);
bool reader_pool(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, uint32_t *number);
/* Which device; below DEVICE_MAX. */
bool reader_device(struct reader *reader, const struct path *path, const struct fields *fields,
                   int *device);

/* Puts in what has number 0: stream 0, pool (0,0), no stack. */
bool reader_init_tables(struct reader *reader);

/* A stack's number; 0 where there is none that can be read. */
uint32_t reader_stack(const struct fields *fields);
/* The stack of a block. Before PyTorch 2.1 a block has a "history" of its allocations, the last
 * first. */
uint32_t reader_block_stack(struct reader *reader, const struct fields *fields);
/* Called for a finished dict or list of dicts. If it is a frame or a stack, stores it as a
 * record. */
bool reader_take_frame(struct reader *reader, const struct fields *fields, uint64_t *record);
bool reader_take_stack(struct reader *reader, pickle_value list, uint64_t *record);

/* Makes room for `count` elements; what failed is in the machine's error. */
bool reader_grow(struct reader *reader, void **array, size_t *capacity, size_t count,
                 size_t element);
/* Counts steps of the walk. A file whose parts are not shared has more bytes than the walk takes
 * steps. */
bool reader_step(struct reader *reader, const struct path *path, size_t count);

/* snapshot_tarn.c: what is under the key "tarn". */
bool reader_take_mark(struct reader *reader, pickle_value dict, uint64_t *record);
bool reader_tarn(struct reader *reader, const struct pickle_place *entry);

/* snapshot_extra.c: what is shown of a program and its settings. False only when memory is
 * short. */
bool reader_annotations(struct reader *reader, const struct path *top,
                        const struct pickle_place *entry);
void reader_settings(struct reader *reader, const struct pickle_place *entry);

#endif
