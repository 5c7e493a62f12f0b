/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the meaning of a snapshot's pickle: which keys there are, in the layouts of the years, and what values are possible.
 *
 * A trace event becomes a struct snapshot_event as soon as the pickle machine has its dict, so that the dicts of millions of events
 * are never held together; an event that is not right stays a dict until the walk at the end, which knows its place and names it.
 * The walk counts its steps, since parts may be shared: a file cannot make it take more of them than it has bytes.
 * Keys and values: pytorch/pytorch, torch/csrc/cuda/memory_snapshot.cpp and torch/utils/viz/MemoryViz.js. */
#include "snapshot.h"

#include "pickle.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above any machine; keeps an index that a file names from becoming an array's size. */
#define DEVICE_MAX 4096

/* The texts that matter: keys, then values. */
enum word {
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
    KEY_COUNT,

    WORD_LARGE = KEY_COUNT,
    WORD_SMALL,
    WORD_INACTIVE,
    WORD_ACTIVE_ALLOCATED,
    WORD_ACTIVE_PENDING_FREE,
    WORD_ACTIVE_AWAITING_FREE,
    WORD_CUDA,
    WORD_ALLOC, /* from here on in the order of enum snapshot_action */
    WORD_FREE_REQUESTED,
    WORD_FREE_COMPLETED,
    WORD_SEGMENT_ALLOC,
    WORD_SEGMENT_FREE,
    WORD_SEGMENT_MAP,
    WORD_SEGMENT_UNMAP,
    WORD_SNAPSHOT,
    WORD_OOM,
    WORD_COUNT,
};

static const char *const words[WORD_COUNT] = {
    [KEY_SEGMENTS] = "segments",
    [KEY_DEVICE_TRACES] = "device_traces",
    [KEY_DEVICE] = "device",
    [KEY_ADDRESS] = "address",
    [KEY_TOTAL_SIZE] = "total_size",
    [KEY_ALLOCATED_SIZE] = "allocated_size",
    [KEY_ACTIVE_SIZE] = "active_size",
    [KEY_REQUESTED_SIZE] = "requested_size",
    [KEY_STREAM] = "stream",
    [KEY_SEGMENT_TYPE] = "segment_type",
    [KEY_SEGMENT_POOL_ID] = "segment_pool_id",
    [KEY_IS_EXPANDABLE] = "is_expandable",
    [KEY_BLOCKS] = "blocks",
    [KEY_SIZE] = "size",
    [KEY_STATE] = "state",
    [KEY_ACTION] = "action",
    [KEY_ADDR] = "addr",
    [KEY_DEVICE_FREE] = "device_free",
    [KEY_TIME_US] = "time_us",
    [KEY_POOL_ID] = "pool_id",
    [KEY_TARN_RECORDED] = "tarn_recorded",
    [KEY_SOURCE] = "source",
    [WORD_LARGE] = "large",
    [WORD_SMALL] = "small",
    [WORD_INACTIVE] = "inactive",
    [WORD_ACTIVE_ALLOCATED] = "active_allocated",
    [WORD_ACTIVE_PENDING_FREE] = "active_pending_free",
    [WORD_ACTIVE_AWAITING_FREE] = "active_awaiting_free", /* what the Python documentation calls it */
    [WORD_CUDA] = "cuda",
    [WORD_ALLOC] = "alloc",
    [WORD_FREE_REQUESTED] = "free_requested",
    [WORD_FREE_COMPLETED] = "free_completed",
    [WORD_SEGMENT_ALLOC] = "segment_alloc",
    [WORD_SEGMENT_FREE] = "segment_free",
    [WORD_SEGMENT_MAP] = "segment_map",
    [WORD_SEGMENT_UNMAP] = "segment_unmap",
    [WORD_SNAPSHOT] = "snapshot",
    [WORD_OOM] = "oom",
};

/* Where in the snapshot a dict is, for error texts. */
struct path {
    enum { PATH_TOP, PATH_SEGMENT, PATH_BLOCK, PATH_TRACE, PATH_EVENT } kind;
    size_t outer, inner; /* segment and block, or trace and event */
    uint64_t offset;     /* of the dict */
};

/* The entries of one dict by key; NULL where it has none, or None. */
struct fields {
    const struct pickle_place *at[KEY_COUNT];
};

struct reader {
    struct pickle pickle;
    struct pickle_input input;
    struct snapshot *snapshot;
    struct snapshot_error *error;
    bool quiet; /* do not fill `error`: the walk will come by again */
    uint64_t steps;

    struct snapshot_event *events;
    size_t event_count, event_capacity;
    struct snapshot_segment *segments;
    size_t segment_capacity;
    struct snapshot_block *blocks;
    size_t block_count, block_capacity;
    size_t *trace_first; /* index in `events` of a trace's first */
};

static bool fail(struct reader *reader, uint64_t offset, const struct path *path, const char *key, const char *format,
                 ...) __attribute__((format(printf, 5, 6)));

/* "byte N: segments[3].blocks[7].size is negative" */
static bool fail(struct reader *reader, uint64_t offset, const struct path *path, const char *key, const char *format,
                 ...)
{
    if (reader->quiet || reader->error->text[0])
        return false;

    char where[96] = "", what[256];
    if (path->kind == PATH_SEGMENT)
        snprintf(where, sizeof where, "segments[%zu]", path->outer);
    else if (path->kind == PATH_BLOCK)
        snprintf(where, sizeof where, "segments[%zu].blocks[%zu]", path->outer, path->inner);
    else if (path->kind == PATH_TRACE)
        snprintf(where, sizeof where, "device_traces[%zu]", path->outer);
    else if (path->kind == PATH_EVENT)
        snprintf(where, sizeof where, "device_traces[%zu][%zu]", path->outer, path->inner);

    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(reader->error->text, sizeof reader->error->text, "byte %" PRIu64 ": %s%s%s%s%s", offset, where,
             *where && key ? "." : "", key ? key : "", *where || key ? " " : "", what);
    return false;
}

/* --- fields of a dict --- */

static void collect(const struct reader *reader, pickle_value dict, struct fields *fields)
{
    size_t count;
    const struct pickle_place *entries = pickle_dict(&reader->pickle, dict, &count);
    *fields = (struct fields){{0}};
    for (size_t i = 0; i < count; i++)
        if (entries[i].word < KEY_COUNT && pickle_kind(entries[i].value) != PICKLE_NONE)
            fields->at[entries[i].word] = &entries[i];
}

static bool need(struct reader *reader, const struct path *path, const struct fields *fields, enum word key)
{
    return fields->at[key] || fail(reader, path->offset, path, NULL, "has no key %s", words[key]);
}

/* An integer from 0 on; `otherwise` where the key is absent. */
static bool get_number(struct reader *reader, const struct path *path, const struct fields *fields, enum word key,
                       uint64_t otherwise, uint64_t *number)
{
    const struct pickle_place *entry = fields->at[key];
    *number = otherwise;
    if (!entry)
        return true;
    const char *wrong = pickle_get_unsigned(&reader->pickle, entry->value, number);
    return !wrong || fail(reader, entry->offset, path, words[key], "%s", wrong);
}

static bool need_number(struct reader *reader, const struct path *path, const struct fields *fields, enum word key,
                        uint64_t *number)
{
    return need(reader, path, fields, key) && get_number(reader, path, fields, key, 0, number);
}

static bool get_pool(struct reader *reader, const struct path *path, const struct fields *fields, enum word key,
                     uint64_t pool[2])
{
    const struct pickle_place *entry = fields->at[key];
    pool[0] = pool[1] = 0;
    if (!entry)
        return true;
    const char *wrong = pickle_get_pair(&reader->pickle, entry->value, pool);
    return !wrong || fail(reader, entry->offset, path, words[key], "%s", wrong);
}

/* A text; *word is WORD_COUNT for one that is not known. */
static bool get_word(struct reader *reader, const struct path *path, const struct fields *fields, enum word key,
                     enum word *word)
{
    const struct pickle_place *entry = fields->at[key];
    enum pickle_kind kind = pickle_kind(entry->value);
    *word = kind == PICKLE_WORD ? (enum word)pickle_number(entry->value) : WORD_COUNT;
    return kind == PICKLE_WORD || kind == PICKLE_TEXT ||
           fail(reader, entry->offset, path, words[key], "is %s, not a text", pickle_kind_name(entry->value));
}

/* --- memory --- */

/* Makes room for `count` elements; what failed is in the machine's error. */
static bool grow(struct reader *reader, void **array, size_t *capacity, size_t count, size_t element)
{
    if (pickle_grow(&reader->pickle, array, capacity, count, element))
        return true;
    if (!reader->quiet && !reader->error->text[0])
        snprintf(reader->error->text, sizeof reader->error->text, "%s", reader->pickle.error);
    return false;
}

/* Counts steps of the walk. A file whose parts are not shared has more bytes than the walk takes steps. */
static bool step(struct reader *reader, const struct path *path, size_t count)
{
    if (count <= reader->input.end_offset && reader->steps <= reader->input.end_offset - count) {
        reader->steps += count;
        return true;
    }
    return fail(reader, path->offset, path, NULL, "repeats parts of the file more often than its size allows");
}

static bool add_event(struct reader *reader, const struct snapshot_event *event)
{
    void *events = reader->events;
    if (!grow(reader, &events, &reader->event_capacity, reader->event_count + 1, sizeof *reader->events))
        return false;
    reader->events = events;
    reader->events[reader->event_count++] = *event;
    return true;
}

/* --- trace events --- */

static bool read_event(struct reader *reader, const struct path *path, pickle_value dict, struct snapshot_event *event)
{
    struct fields fields;
    enum word action;
    collect(reader, dict, &fields);
    if (!need(reader, path, &fields, KEY_ACTION) || !get_word(reader, path, &fields, KEY_ACTION, &action))
        return false;
    *event = (struct snapshot_event){.action = SNAPSHOT_OTHER, .time_us = SNAPSHOT_NO_TIME};
    if (action >= WORD_ALLOC && action < WORD_COUNT)
        event->action = (enum snapshot_action)((int)action - WORD_ALLOC);

    /* Only actions that are known are known to have these. */
    enum word address = event->action == SNAPSHOT_OOM && fields.at[KEY_DEVICE_FREE] ? KEY_DEVICE_FREE : KEY_ADDR;
    bool known = event->action != SNAPSHOT_OTHER;
    if (known && (!need(reader, path, &fields, address) || !need(reader, path, &fields, KEY_SIZE) ||
                  !need(reader, path, &fields, KEY_STREAM)))
        return false;
    if (!get_number(reader, path, &fields, address, 0, &event->address) ||
        !get_number(reader, path, &fields, KEY_SIZE, 0, &event->size) ||
        !get_number(reader, path, &fields, KEY_STREAM, 0, &event->stream) ||
        !get_pool(reader, path, &fields, KEY_POOL_ID, event->pool))
        return false;
    if (event->action != SNAPSHOT_OOM && event->size > UINT64_MAX - event->address)
        return fail(reader, fields.at[KEY_SIZE]->offset, path, words[KEY_SIZE],
                    "goes beyond the end of the address space");

    const struct pickle_place *time = fields.at[KEY_TIME_US];
    if (!time)
        return true;
    const char *wrong = pickle_get_signed(&reader->pickle, time->value, &event->time_us);
    return !wrong || fail(reader, time->offset, path, words[KEY_TIME_US], "%s", wrong);
}

/* A dict is finished: if it is an event and right, it becomes one at once. */
static bool reduce(void *context, struct pickle *pickle, pickle_value dict, uint64_t *record)
{
    struct reader *reader = context;
    struct path path = {.kind = PATH_EVENT};
    struct snapshot_event event;
    (void)pickle;

    reader->quiet = true;
    bool done = read_event(reader, &path, dict, &event) && add_event(reader, &event);
    reader->quiet = false;
    *record = reader->event_count - 1;
    return done;
}

/* The events of one trace, as a run in `events`: where they are already, or copied to the end. */
static bool read_trace(struct reader *reader, size_t device, pickle_value list, uint64_t offset,
                       struct snapshot_trace *trace)
{
    struct path path = {PATH_TRACE, device, 0, pickle_offset(&reader->pickle, list, offset)};
    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, list, &count, &dropped);
    trace->event_count = count;
    if (dropped)
        return fail(reader, path.offset, &path, NULL, "holds %" PRIu64 " items that are no trace event", dropped);
    if (!step(reader, &path, count))
        return false;

    size_t run = 0;
    while (run < count && pickle_kind(items[run]) == PICKLE_RECORD &&
           pickle_number(items[run]) == pickle_number(items[0]) + run)
        run++;
    if (run == count) {
        reader->trace_first[device] = count ? (size_t)pickle_number(items[0]) : 0;
        return true;
    }

    path.kind = PATH_EVENT;
    reader->trace_first[device] = reader->event_count;
    for (size_t i = 0; i < count; i++) {
        struct snapshot_event event;
        enum pickle_kind kind = pickle_kind(items[i]);
        path.inner = i;
        path.offset = pickle_offset(&reader->pickle, items[i], path.offset);
        if (kind == PICKLE_RECORD)
            event = reader->events[pickle_number(items[i])];
        else if (kind != PICKLE_DICT)
            return fail(reader, path.offset, &path, NULL, "is %s, not a dict", pickle_kind_name(items[i]));
        else if (!read_event(reader, &path, items[i], &event))
            return false;
        if (!add_event(reader, &event))
            return false;
    }
    return true;
}

static bool read_traces(struct reader *reader, const struct path *top, const struct pickle_place *entry)
{
    if (!entry)
        return true;
    if (pickle_kind(entry->value) != PICKLE_LIST)
        return fail(reader, entry->offset, top, words[KEY_DEVICE_TRACES], "is %s, not a list",
                    pickle_kind_name(entry->value));

    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, entry->value, &count, &dropped);
    if (dropped || count > DEVICE_MAX)
        return fail(reader, entry->offset, top, words[KEY_DEVICE_TRACES],
                    dropped ? "holds %" PRIu64 " items that are no list of events" : "names %" PRIu64 " devices",
                    dropped ? dropped : (uint64_t)count);
    if (!count)
        return true;

    reader->snapshot->traces = calloc(count, sizeof *reader->snapshot->traces);
    reader->trace_first = calloc(count, sizeof *reader->trace_first);
    if (!reader->snapshot->traces || !reader->trace_first)
        return fail(reader, entry->offset, top, words[KEY_DEVICE_TRACES], "does not fit in memory");
    reader->snapshot->trace_count = count;
    for (size_t i = 0; i < count; i++) {
        if (pickle_kind(items[i]) != PICKLE_LIST) {
            struct path path = {PATH_TRACE, i, 0, pickle_offset(&reader->pickle, items[i], entry->offset)};
            return fail(reader, path.offset, &path, NULL, "is %s, not a list", pickle_kind_name(items[i]));
        }
        if (!read_trace(reader, i, items[i], entry->offset, &reader->snapshot->traces[i]))
            return false;
    }
    return true;
}

/* --- segments and blocks --- */

/* `from` is where the block may begin: the end of the one before it. */
static bool read_block(struct reader *reader, const struct path *path, pickle_value dict,
                       const struct snapshot_segment *segment, uint64_t from, struct snapshot_block *block)
{
    struct fields fields;
    enum word state;
    collect(reader, dict, &fields);
    if (!need_number(reader, path, &fields, KEY_SIZE, &block->size) || !need(reader, path, &fields, KEY_STATE) ||
        !get_word(reader, path, &fields, KEY_STATE, &state) ||
        !get_number(reader, path, &fields, KEY_ADDRESS, from, &block->address))
        return false;

    uint64_t end = segment->address + segment->total_size;
    if (block->address < from || block->address > end || block->size > end - block->address)
        return fail(reader, path->offset, path, NULL,
                    "at 0x%" PRIx64 ", %" PRIu64 " bytes, does not lie between 0x%" PRIx64
                    " and the segment's end, 0x%" PRIx64,
                    block->address, block->size, from, end);

    switch ((int)state) {
    case WORD_INACTIVE:
        block->state = SNAPSHOT_INACTIVE;
        break;
    case WORD_ACTIVE_ALLOCATED:
        block->state = SNAPSHOT_ACTIVE_ALLOCATED;
        break;
    case WORD_ACTIVE_PENDING_FREE:
    case WORD_ACTIVE_AWAITING_FREE:
        block->state = SNAPSHOT_ACTIVE_PENDING_FREE;
        break;
    default:
        return fail(reader, fields.at[KEY_STATE]->offset, path, words[KEY_STATE],
                    "is none of inactive, active_allocated, active_pending_free");
    }

    /* PyTorch leaves the last owner's number in a free block. */
    if (!get_number(reader, path, &fields, KEY_REQUESTED_SIZE, block->size, &block->requested_size))
        return false;
    if (block->state == SNAPSHOT_INACTIVE)
        block->requested_size = 0;
    return block->requested_size <= block->size ||
           fail(reader, fields.at[KEY_REQUESTED_SIZE]->offset, path, words[KEY_REQUESTED_SIZE],
                "is %" PRIu64 ", more than the block's %" PRIu64 " bytes", block->requested_size, block->size);
}

/* Also fills the segment's sums where the layout has none. */
static bool read_blocks(struct reader *reader, struct path path, const struct pickle_place *entry,
                        const struct fields *fields, struct snapshot_segment *segment)
{
    if (pickle_kind(entry->value) != PICKLE_LIST)
        return fail(reader, entry->offset, &path, words[KEY_BLOCKS], "is %s, not a list",
                    pickle_kind_name(entry->value));
    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, entry->value, &count, &dropped);
    if (dropped)
        return fail(reader, entry->offset, &path, words[KEY_BLOCKS], "holds %" PRIu64 " items that are no block",
                    dropped);
    if (!step(reader, &path, count))
        return false;

    void *blocks = reader->blocks;
    if (!grow(reader, &blocks, &reader->block_capacity, reader->block_count + count, sizeof *reader->blocks))
        return false;
    reader->blocks = blocks;
    segment->first_block = reader->block_count;
    segment->block_count = count;

    uint64_t from = segment->address, allocated = 0, active = 0, requested = 0;
    path.kind = PATH_BLOCK;
    for (size_t i = 0; i < count; i++) {
        struct snapshot_block *block = &reader->blocks[reader->block_count];
        path.inner = i;
        path.offset = pickle_offset(&reader->pickle, items[i], entry->offset);
        if (pickle_kind(items[i]) != PICKLE_DICT)
            return fail(reader, path.offset, &path, NULL, "is %s, not a block", pickle_kind_name(items[i]));
        if (!read_block(reader, &path, items[i], segment, from, block))
            return false;
        from = block->address + block->size;
        allocated += block->state == SNAPSHOT_ACTIVE_ALLOCATED ? block->size : 0;
        active += block->state != SNAPSHOT_INACTIVE ? block->size : 0;
        requested += block->requested_size;
        reader->block_count++;
    }
    if (!fields->at[KEY_ALLOCATED_SIZE])
        segment->allocated_size = allocated;
    if (!fields->at[KEY_ACTIVE_SIZE])
        segment->active_size = active;
    if (!fields->at[KEY_REQUESTED_SIZE])
        segment->requested_size = requested;
    return true;
}

static bool read_segment(struct reader *reader, const struct path *path, pickle_value dict,
                         struct snapshot_segment *segment)
{
    struct fields fields;
    uint64_t device;
    collect(reader, dict, &fields);
    if (!need_number(reader, path, &fields, KEY_DEVICE, &device) ||
        !need_number(reader, path, &fields, KEY_ADDRESS, &segment->address) ||
        !need_number(reader, path, &fields, KEY_TOTAL_SIZE, &segment->total_size) ||
        !need_number(reader, path, &fields, KEY_STREAM, &segment->stream) ||
        !get_number(reader, path, &fields, KEY_ALLOCATED_SIZE, 0, &segment->allocated_size) ||
        !get_number(reader, path, &fields, KEY_ACTIVE_SIZE, 0, &segment->active_size) ||
        !get_number(reader, path, &fields, KEY_REQUESTED_SIZE, 0, &segment->requested_size) ||
        !get_pool(reader, path, &fields, KEY_SEGMENT_POOL_ID, segment->pool))
        return false;
    if (device >= DEVICE_MAX)
        return fail(reader, fields.at[KEY_DEVICE]->offset, path, words[KEY_DEVICE],
                    "is %" PRIu64 "; at most %d are read", device, DEVICE_MAX - 1);
    if (segment->total_size > UINT64_MAX - segment->address)
        return fail(reader, fields.at[KEY_TOTAL_SIZE]->offset, path, words[KEY_TOTAL_SIZE],
                    "goes beyond the end of the address space");
    segment->device = (int)device;

    const struct pickle_place *expandable = fields.at[KEY_IS_EXPANDABLE];
    if (expandable && pickle_kind(expandable->value) != PICKLE_BOOL)
        return fail(reader, expandable->offset, path, words[KEY_IS_EXPANDABLE], "is %s, not a bool",
                    pickle_kind_name(expandable->value));
    segment->expandable = expandable && pickle_number(expandable->value);

    /* Small segments are 2 MiB: c10/cuda/CUDACachingAllocator.cpp, kSmallBuffer. */
    enum word type = segment->total_size > (UINT64_C(2) << 20) ? WORD_LARGE : WORD_SMALL;
    if (fields.at[KEY_SEGMENT_TYPE] && !get_word(reader, path, &fields, KEY_SEGMENT_TYPE, &type))
        return false;
    if (type != WORD_LARGE && type != WORD_SMALL)
        return fail(reader, fields.at[KEY_SEGMENT_TYPE]->offset, path, words[KEY_SEGMENT_TYPE],
                    "is neither large nor small");
    segment->large = type == WORD_LARGE;
    return need(reader, path, &fields, KEY_BLOCKS) &&
           read_blocks(reader, *path, fields.at[KEY_BLOCKS], &fields, segment);
}

static bool read_segments(struct reader *reader, const struct path *top, const struct pickle_place *entry)
{
    if (pickle_kind(entry->value) != PICKLE_LIST)
        return fail(reader, entry->offset, top, words[KEY_SEGMENTS], "is %s, not a list",
                    pickle_kind_name(entry->value));
    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, entry->value, &count, &dropped);
    if (dropped)
        return fail(reader, entry->offset, top, words[KEY_SEGMENTS], "holds %" PRIu64 " items that are no segment",
                    dropped);
    void *segments = NULL;
    if (!step(reader, top, count) ||
        !grow(reader, &segments, &reader->segment_capacity, count, sizeof *reader->segments))
        return false;
    reader->segments = segments;

    struct path path = {.kind = PATH_SEGMENT};
    for (size_t i = 0; i < count; i++) {
        path.outer = i;
        path.offset = pickle_offset(&reader->pickle, items[i], entry->offset);
        if (pickle_kind(items[i]) != PICKLE_DICT)
            return fail(reader, path.offset, &path, NULL, "is %s, not a segment", pickle_kind_name(items[i]));
        reader->segments[i] = (struct snapshot_segment){0};
        if (!read_segment(reader, &path, items[i], &reader->segments[i]))
            return false;
    }
    reader->snapshot->segment_count = count;
    return true;
}

/* --- the whole --- */

/* scripts/record-torch.py says in "tarn_recorded" where the segments come from: a GPU ("cuda"), or else a model. */
static bool is_modelled(struct reader *reader, const struct pickle_place *recorded)
{
    struct fields fields;
    if (!recorded || pickle_kind(recorded->value) != PICKLE_DICT)
        return false;
    collect(reader, recorded->value, &fields);
    const struct pickle_place *source = fields.at[KEY_SOURCE];
    return source && (pickle_kind(source->value) != PICKLE_WORD || pickle_number(source->value) != WORD_CUDA);
}

static bool read_top(struct reader *reader, const struct pickle_place *top)
{
    struct path path = {.kind = PATH_TOP, .offset = top->offset};
    if (pickle_kind(top->value) != PICKLE_DICT)
        return fail(reader, top->offset, &path, NULL, "the pickle holds %s; a memory snapshot is a dict",
                    pickle_kind_name(top->value));
    struct fields fields;
    collect(reader, top->value, &fields);
    if (!fields.at[KEY_SEGMENTS])
        return fail(reader, top->offset, &path, NULL,
                    "the dict has no key segments: this pickle is no memory snapshot");
    reader->snapshot->modelled = is_modelled(reader, fields.at[KEY_TARN_RECORDED]);
    return read_segments(reader, &path, fields.at[KEY_SEGMENTS]) &&
           read_traces(reader, &path, fields.at[KEY_DEVICE_TRACES]);
}

/* Reads what `reader->input` gives; `opened` tells whether it gives anything. */
static bool read_snapshot(struct reader *reader, bool opened)
{
    struct snapshot *snapshot = reader->snapshot;
    struct pickle_place top;
    bool done = opened;
    if (!opened)
        snprintf(reader->error->text, sizeof reader->error->text, "%s", reader->input.error);
    if (done && !pickle_read(&reader->pickle, &reader->input, words, WORD_COUNT, reduce, reader, &top)) {
        done = false;
        snprintf(reader->error->text, sizeof reader->error->text, "%s", reader->pickle.error);
    }
    done = done && read_top(reader, &top);

    snapshot->events = reader->events;
    snapshot->event_count = reader->event_count;
    snapshot->segments = reader->segments;
    snapshot->blocks = reader->blocks;
    snapshot->block_count = reader->block_count;
    for (size_t i = 0; done && i < snapshot->trace_count; i++)
        if (snapshot->traces[i].event_count)
            snapshot->traces[i].events = reader->events + reader->trace_first[i];
    if (!done)
        snapshot_finish(snapshot);
    free(reader->trace_first);
    if (opened)
        pickle_finish(&reader->pickle);
    pickle_input_finish(&reader->input);
    return done;
}

bool snapshot_read_file(const char *path, struct snapshot *snapshot, struct snapshot_error *error)
{
    struct reader reader = {.snapshot = snapshot, .error = error};
    *snapshot = (struct snapshot){0};
    *error = (struct snapshot_error){{0}};
    return read_snapshot(&reader, pickle_input_open(&reader.input, path));
}

bool snapshot_read_buffer(const void *data, size_t size, struct snapshot *snapshot, struct snapshot_error *error)
{
    struct reader reader = {.snapshot = snapshot, .error = error};
    *snapshot = (struct snapshot){0};
    *error = (struct snapshot_error){{0}};
    return read_snapshot(&reader, pickle_input_attach(&reader.input, data, size));
}

void snapshot_finish(struct snapshot *snapshot)
{
    free(snapshot->segments);
    free(snapshot->blocks);
    free(snapshot->traces);
    free(snapshot->events);
    *snapshot = (struct snapshot){0};
}
