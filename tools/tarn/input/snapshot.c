/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the meaning of a snapshot's pickle: which keys there are, in the layouts of the years, and
 * what values are possible.
 *
 * A trace event becomes a struct snapshot_event as soon as the pickle machine has its dict, so that
 * the dicts of millions of events are never held together; an event that is not right stays a dict
 * until the walk at the end, which knows its place and names it. The walk counts its steps, since
 * parts may be shared: a file cannot make it take more of them than it has bytes. Keys and values:
 * pytorch/pytorch, torch/csrc/cuda/memory_snapshot.cpp and torch/utils/viz/MemoryViz.js. */
#include "input/snapshot_reader.h"

#include "input/profile_json.h"
#include "input/rmm_csv.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_NAMED (-1) /* the device of a segment that names none, until all is read */

static bool add_event(struct reader *reader, const struct snapshot_event *event)
{
    void *events = reader->snapshot->events;
    if (!reader_grow(reader, &events, &reader->event_capacity, reader->snapshot->event_count + 1,
                     sizeof *reader->snapshot->events))
        return false;
    reader->snapshot->events = events;
    reader->snapshot->events[reader->snapshot->event_count++] = *event;
    return true;
}

/* --- trace events --- */

static bool read_event(struct reader *reader, const struct path *path, pickle_value dict,
                       struct snapshot_event *event)
{
    struct fields fields;
    enum word action;
    reader_collect(reader, dict, &fields);
    if (!reader_need(reader, path, &fields, KEY_ACTION) ||
        !reader_word(reader, path, &fields, KEY_ACTION, &action))
        return false;
    *event = (struct snapshot_event){.action = SNAPSHOT_OTHER, .time_us = SNAPSHOT_NO_TIME};
    if (action >= WORD_ALLOC && action <= WORD_OOM)
        event->action = (uint8_t)(action - WORD_ALLOC);

    /* Only actions that are known are known to have these. */
    enum word address = event->action == SNAPSHOT_OOM && field(&fields, KEY_DEVICE_FREE)
                            ? KEY_DEVICE_FREE
                            : KEY_ADDR;
    bool known = event->action != SNAPSHOT_OTHER;
    if (known && (!reader_need(reader, path, &fields, address) ||
                  !reader_need(reader, path, &fields, KEY_SIZE) ||
                  !reader_need(reader, path, &fields, KEY_STREAM)))
        return false;
    if (!reader_number(reader, path, &fields, address, 0, &event->address) ||
        !reader_number(reader, path, &fields, KEY_SIZE, 0, &event->size) ||
        !reader_stream(reader, path, &fields, KEY_STREAM, &event->stream) ||
        !reader_pool(reader, path, &fields, KEY_POOL_ID, &event->pool) ||
        !reader_bool(reader, path, &fields, KEY_RANGE, &event->in_range) ||
        !reader_small(reader, path, &fields, KEY_THREAD, &event->thread))
        return false;
    event->stack = reader_stack(&fields);
    event->tag = reader_text(&fields, KEY_USER_METADATA);
    if (event->action != SNAPSHOT_OOM && event->size > UINT64_MAX - event->address)
        return reader_fail(reader, field(&fields, KEY_SIZE)->offset, path, reader_words[KEY_SIZE],
                           "goes beyond the end of the address space");

    return reader_time(reader, path, &fields, KEY_TIME_US, SNAPSHOT_NO_TIME, &event->time_us);
}

static bool take_event(struct reader *reader, pickle_value dict, uint64_t *record)
{
    const struct path path = {.kind = PATH_EVENT};
    struct snapshot_event event;
    if (!read_event(reader, &path, dict, &event) || !add_event(reader, &event))
        return false;
    *record = (uint64_t)RECORD_EVENT << RECORD_KIND_SHIFT | (reader->snapshot->event_count - 1);
    return true;
}

/* Called for each finished dict or list. A valid event, frame, stack or mark becomes a record
 * number at once, because there are many of them. */
static bool reduce(void *context, struct pickle *pickle, pickle_value value, uint64_t *record)
{
    struct reader *reader = context;
    struct fields fields;
    bool done = false;
    reader->quiet = true;
    if (pickle_kind(value) == PICKLE_LIST) {
        done = reader_take_stack(reader, value, record);
    } else {
        reader_collect(reader, value, &fields);
        if (field(&fields, KEY_ACTION))
            done = take_event(reader, value, record);
        else if (field(&fields, KEY_FILENAME))
            done = reader_take_frame(reader, &fields, record);
        else if (field(&fields, KEY_KIND))
            done = reader_take_mark(reader, value, record);
    }
    reader->quiet = false;
    (void)pickle;
    return done;
}

/* The events of one trace, as a run in `events`: where they are already, or copied to the end. */
static bool read_trace(struct reader *reader, size_t device, pickle_value list, uint64_t offset,
                       struct snapshot_trace *trace)
{
    struct path path = {PATH_TRACE, device, 0, pickle_offset(&reader->pickle, list, offset)};
    size_t count;
    uint64_t dropped;
    pickle_value first;
    if (pickle_list_run(&reader->pickle, list, &first, &count) && is_record(first, RECORD_EVENT)) {
        trace->event_count = count; /* where they are already */
        reader->trace_first[device] = record_place(first);
        return reader_step(reader, &path, count);
    }
    const pickle_value *items = pickle_list(&reader->pickle, list, &count, &dropped);
    trace->event_count = count;
    if (dropped)
        return reader_fail(reader, path.offset, &path, NULL,
                           "holds %" PRIu64 " items that are no trace event", dropped);
    if (!reader_step(reader, &path, count))
        return false;

    path.kind = PATH_EVENT;
    reader->trace_first[device] = reader->snapshot->event_count;
    for (size_t i = 0; i < count; i++) {
        struct snapshot_event event;
        path.inner = i;
        path.offset = pickle_offset(&reader->pickle, items[i], path.offset);
        if (is_record(items[i], RECORD_EVENT))
            event = reader->snapshot->events[record_place(items[i])];
        else if (pickle_kind(items[i]) == PICKLE_RECORD)
            return reader_fail(reader, path.offset, &path, NULL, "has no key action");
        else if (pickle_kind(items[i]) != PICKLE_DICT)
            return reader_fail(reader, path.offset, &path, NULL, "is %s, not a dict",
                               pickle_kind_name(items[i]));
        else if (!read_event(reader, &path, items[i], &event))
            return false;
        if (!add_event(reader, &event))
            return false;
    }
    return true;
}

static bool read_traces(struct reader *reader, const struct path *top,
                        const struct pickle_place *entry)
{
    if (!entry)
        return true;
    if (pickle_kind(entry->value) != PICKLE_LIST)
        return reader_fail(reader, entry->offset, top, reader_words[KEY_DEVICE_TRACES],
                           "is %s, not a list", pickle_kind_name(entry->value));

    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, entry->value, &count, &dropped);
    if (dropped || count > DEVICE_MAX)
        return reader_fail(reader, entry->offset, top, reader_words[KEY_DEVICE_TRACES],
                           dropped ? "holds %" PRIu64 " items that are not lists of events"
                                   : "names %" PRIu64 " devices",
                           dropped ? dropped : (uint64_t)count);
    if (!count)
        return true;

    reader->snapshot->traces = calloc(count, sizeof *reader->snapshot->traces);
    reader->trace_first = calloc(count, sizeof *reader->trace_first);
    if (!reader->snapshot->traces || !reader->trace_first)
        return reader_fail(reader, entry->offset, top, reader_words[KEY_DEVICE_TRACES],
                           "does not fit in memory");
    reader->snapshot->trace_count = count;
    for (size_t i = 0; i < count; i++) {
        if (pickle_kind(items[i]) != PICKLE_LIST) {
            struct path path = {PATH_TRACE, i, 0,
                                pickle_offset(&reader->pickle, items[i], entry->offset)};
            return reader_fail(reader, path.offset, &path, NULL, "is %s, not a list",
                               pickle_kind_name(items[i]));
        }
        if (!read_trace(reader, i, items[i], entry->offset, &reader->snapshot->traces[i]))
            return false;
    }
    return true;
}

/* --- segments and blocks --- */

/* `from` is where the block may begin: the end of the one before it. */
static bool read_block(struct reader *reader, const struct path *path, pickle_value dict,
                       const struct snapshot_segment *segment, uint64_t from,
                       struct snapshot_block *block)
{
    struct fields fields;
    enum word state;
    reader_collect(reader, dict, &fields);
    if (!reader_need_number(reader, path, &fields, KEY_SIZE, &block->size) ||
        !reader_need(reader, path, &fields, KEY_STATE) ||
        !reader_word(reader, path, &fields, KEY_STATE, &state) ||
        !reader_number(reader, path, &fields, KEY_ADDRESS, from, &block->address))
        return false;

    uint64_t end = segment->address + segment->total_size;
    if (block->address < from || block->address > end || block->size > end - block->address)
        return reader_fail(reader, path->offset, path, NULL,
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
        return reader_fail(reader, field(&fields, KEY_STATE)->offset, path, reader_words[KEY_STATE],
                           "is none of inactive, active_allocated, active_pending_free");
    }

    block->stack = reader_block_stack(reader, &fields);
    block->tag = reader_text(&fields, KEY_USER_METADATA);

    /* PyTorch leaves the last owner's number in a free block. */
    if (!reader_number(reader, path, &fields, KEY_REQUESTED_SIZE, block->size,
                       &block->requested_size))
        return false;
    if (block->state == SNAPSHOT_INACTIVE)
        block->requested_size = 0;
    return block->requested_size <= block->size ||
           reader_fail(reader, field(&fields, KEY_REQUESTED_SIZE)->offset, path,
                       reader_words[KEY_REQUESTED_SIZE],
                       "is %" PRIu64 ", more than the block's %" PRIu64 " bytes",
                       block->requested_size, block->size);
}

/* Also fills the segment's sums where the layout has none. */
static bool read_blocks(struct reader *reader, struct path path, const struct pickle_place *entry,
                        const struct fields *fields, struct snapshot_segment *segment)
{
    if (pickle_kind(entry->value) != PICKLE_LIST)
        return reader_fail(reader, entry->offset, &path, reader_words[KEY_BLOCKS],
                           "is %s, not a list", pickle_kind_name(entry->value));
    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, entry->value, &count, &dropped);
    if (dropped)
        return reader_fail(reader, entry->offset, &path, reader_words[KEY_BLOCKS],
                           "holds %" PRIu64 " items that are not blocks", dropped);
    if (!reader_step(reader, &path, count))
        return false;

    void *blocks = reader->snapshot->blocks;
    if (!reader_grow(reader, &blocks, &reader->block_capacity,
                     reader->snapshot->block_count + count, sizeof *reader->snapshot->blocks))
        return false;
    reader->snapshot->blocks = blocks;
    segment->first_block = reader->snapshot->block_count;
    segment->block_count = count;

    uint64_t from = segment->address, allocated = 0, active = 0, requested = 0;
    path.kind = PATH_BLOCK;
    for (size_t i = 0; i < count; i++) {
        struct snapshot_block *block = &reader->snapshot->blocks[reader->snapshot->block_count];
        path.inner = i;
        path.offset = pickle_offset(&reader->pickle, items[i], entry->offset);
        if (pickle_kind(items[i]) != PICKLE_DICT)
            return reader_fail(reader, path.offset, &path, NULL, "is %s, not a block",
                               pickle_kind_name(items[i]));
        if (!read_block(reader, &path, items[i], segment, from, block))
            return false;
        from = block->address + block->size;
        allocated += block->state == SNAPSHOT_ACTIVE_ALLOCATED ? block->size : 0;
        active += block->state != SNAPSHOT_INACTIVE ? block->size : 0;
        requested += block->requested_size;
        reader->snapshot->block_count++;
    }
    if (!field(fields, KEY_ALLOCATED_SIZE))
        segment->allocated_size = allocated;
    if (!field(fields, KEY_ACTIVE_SIZE))
        segment->active_size = active;
    if (!field(fields, KEY_REQUESTED_SIZE))
        segment->requested_size = requested;
    return true;
}

static bool read_segment(struct reader *reader, const struct path *path, pickle_value dict,
                         struct snapshot_segment *segment)
{
    struct fields fields;
    reader_collect(reader, dict, &fields);
    const bool no_device = !field(&fields, KEY_DEVICE); /* PyTorch always writes it */
    reader->snapshot->no_device |= no_device;
    segment->device = no_device ? NOT_NAMED : 0;
    if ((!no_device && !reader_device(reader, path, &fields, &segment->device)) ||
        !reader_need_number(reader, path, &fields, KEY_ADDRESS, &segment->address) ||
        !reader_need_number(reader, path, &fields, KEY_TOTAL_SIZE, &segment->total_size) ||
        !reader_need_number(reader, path, &fields, KEY_STREAM, &segment->stream) ||
        !reader_number(reader, path, &fields, KEY_ALLOCATED_SIZE, 0, &segment->allocated_size) ||
        !reader_number(reader, path, &fields, KEY_ACTIVE_SIZE, 0, &segment->active_size) ||
        !reader_number(reader, path, &fields, KEY_REQUESTED_SIZE, 0, &segment->requested_size) ||
        !reader_pair(reader, path, &fields, KEY_SEGMENT_POOL_ID, segment->pool) ||
        !reader_stream(reader, path, &fields, KEY_STREAM, &segment->stream_place) ||
        !reader_pool(reader, path, &fields, KEY_SEGMENT_POOL_ID, &segment->pool_place))
        return false;
    if (segment->total_size > UINT64_MAX - segment->address)
        return reader_fail(reader, field(&fields, KEY_TOTAL_SIZE)->offset, path,
                           reader_words[KEY_TOTAL_SIZE],
                           "goes beyond the end of the address space");
    if (!reader_bool(reader, path, &fields, KEY_IS_EXPANDABLE, &segment->expandable) ||
        !reader_bool(reader, path, &fields, KEY_RANGE, &segment->in_range))
        return false;
    reader->snapshot->before_expandable |= !field(&fields, KEY_IS_EXPANDABLE);

    /* Small segments are 2 MiB: c10/cuda/CUDACachingAllocator.cpp, kSmallBuffer. */
    enum word type = segment->total_size > (UINT64_C(2) << 20) ? WORD_LARGE : WORD_SMALL;
    if (field(&fields, KEY_SEGMENT_TYPE) &&
        !reader_word(reader, path, &fields, KEY_SEGMENT_TYPE, &type))
        return false;
    if (type != WORD_LARGE && type != WORD_SMALL)
        return reader_fail(reader, field(&fields, KEY_SEGMENT_TYPE)->offset, path,
                           reader_words[KEY_SEGMENT_TYPE], "is neither large nor small");
    segment->large = type == WORD_LARGE;
    segment->stack = reader_stack(&fields);
    return reader_need(reader, path, &fields, KEY_BLOCKS) &&
           read_blocks(reader, *path, field(&fields, KEY_BLOCKS), &fields, segment);
}

static bool read_segments(struct reader *reader, const struct path *top,
                          const struct pickle_place *entry)
{
    if (pickle_kind(entry->value) != PICKLE_LIST)
        return reader_fail(reader, entry->offset, top, reader_words[KEY_SEGMENTS],
                           "is %s, not a list", pickle_kind_name(entry->value));
    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, entry->value, &count, &dropped);
    if (dropped)
        return reader_fail(reader, entry->offset, top, reader_words[KEY_SEGMENTS],
                           "holds %" PRIu64 " items that are no segment", dropped);
    void *segments = NULL;
    if (!reader_step(reader, top, count) ||
        !reader_grow(reader, &segments, &reader->segment_capacity, count,
                     sizeof *reader->snapshot->segments))
        return false;
    reader->snapshot->segments = segments;

    struct path path = {.kind = PATH_SEGMENT};
    for (size_t i = 0; i < count; i++) {
        path.outer = i;
        path.offset = pickle_offset(&reader->pickle, items[i], entry->offset);
        if (pickle_kind(items[i]) != PICKLE_DICT)
            return reader_fail(reader, path.offset, &path, NULL, "is %s, not a segment",
                               pickle_kind_name(items[i]));
        reader->snapshot->segments[i] = (struct snapshot_segment){0};
        if (!read_segment(reader, &path, items[i], &reader->snapshot->segments[i]))
            return false;
    }
    reader->snapshot->segment_count = count;
    return true;
}

/* Segments that name no device are those of the one device that has a trace; if several have one,
 * or none, of device 0. */
static void place_segments(struct snapshot *snapshot)
{
    size_t traced = 0;
    for (size_t i = 0; i < snapshot->trace_count; i++)
        if (snapshot->traces[i].event_count && traced++ == 0)
            snapshot->device_taken = (int)i;
    if (traced != 1)
        snapshot->device_taken = 0;
    for (size_t i = 0; i < snapshot->segment_count; i++)
        if (snapshot->segments[i].device == NOT_NAMED)
            snapshot->segments[i].device = snapshot->device_taken;
}

/* --- the whole --- */

/* "tarn_recorded" says where the segments come from: a GPU ("cuda"), the driver's own calls ("tarn
 * run"), or else a model, as that of lab/record-torch.py. */
static void read_source(struct reader *reader, const struct pickle_place *recorded)
{
    struct fields fields;
    if (!recorded || pickle_kind(recorded->value) != PICKLE_DICT)
        return;
    reader_collect(reader, recorded->value, &fields);
    const struct pickle_place *source = field(&fields, KEY_SOURCE);
    bool known = source && pickle_kind(source->value) == PICKLE_WORD;
    reader->snapshot->of_driver = known && pickle_number(source->value) == WORD_TARN_RUN;
    reader->snapshot->modelled = source && !reader->snapshot->of_driver &&
                                 (!known || pickle_number(source->value) != WORD_CUDA);
    const struct pickle_place *pooled = field(&fields, KEY_POOLED);
    if (pooled && pickle_get_unsigned(&reader->pickle, pooled->value, &reader->snapshot->pooled))
        reader->snapshot->pooled = 0;
}

static bool read_top(struct reader *reader, const struct pickle_place *top)
{
    struct path path = {.kind = PATH_TOP, .offset = top->offset};
    if (pickle_kind(top->value) != PICKLE_DICT)
        return reader_fail(reader, top->offset, &path, NULL,
                           "the pickle holds %s; a memory snapshot is a dict",
                           pickle_kind_name(top->value));
    struct fields fields;
    reader_collect(reader, top->value, &fields);
    const struct pickle_place *segments = field(&fields, KEY_SEGMENTS),
                              *traces = field(&fields, KEY_DEVICE_TRACES);
    if (!segments && !traces) /* either may be left out, for a smaller file */
        return reader_fail(reader, top->offset, &path, NULL,
                           "the dict has no key segments and no device_traces: this pickle is not "
                           "a memory snapshot");
    read_source(reader, field(&fields, KEY_TARN_RECORDED));
    reader_settings(reader, field(&fields, KEY_ALLOCATOR_SETTINGS));
    if ((segments && !read_segments(reader, &path, segments)) ||
        !read_traces(reader, &path, traces))
        return false;
    place_segments(reader->snapshot);
    return reader_tarn(reader, field(&fields, KEY_TARN)) &&
           reader_annotations(reader, &path, field(&fields, KEY_EXTERNAL_ANNOTATIONS));
}

/* Whether a character turns the direction of what stands beside it, or begins a line: a name with
 * it shows as another one. Unicode Standard Annex 9, section 2. */
static bool reorders(uint32_t code)
{
    return code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* How many bytes at `text` are one printable character of UTF-8; 0 for a control character, and for
 * anything else. A surrogate, which Python may write, is none. */
static size_t printable(const unsigned char *text, size_t length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (*text < 0x80)
        return *text >= 0x20 && *text != 0x7f;
    size_t size = *text >= 0xf0 ? 4 : *text >= 0xe0 ? 3 : 2;
    uint32_t code = *text & (0xffu >> (size + 1));
    if (*text < 0xc2 || *text > 0xf4 || size > length)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    bool control = code < 0xa0, surrogate = code >= 0xd800 && code < 0xe000;
    return code >= least[size] && code <= 0x10ffff && !control && !surrogate && !reorders(code)
               ? size
               : 0;
}

/* The machine's texts become the snapshot's: they go to terminals and into JSON and HTML. */
static void take_texts(struct reader *reader)
{
    struct snapshot *snapshot = reader->snapshot;
    struct pickle_texts *texts = &reader->pickle.texts;
    for (size_t i = 0; i < texts->count; i++)
        for (size_t at = texts->starts[i], end = texts->starts[i + 1] - 1, size; at < end;
             at += size ? size : 1) {
            size = printable((unsigned char *)texts->bytes + at, end - at);
            if (size == 0)
                texts->bytes[at] = '?';
        }
    snapshot->text_bytes = texts->bytes;
    snapshot->text_starts = texts->starts;
    snapshot->text_count = texts->count;
    texts->bytes = NULL;
    texts->starts = NULL;
}

/* Reads what `reader->input` gives; `opened` tells whether it gives anything. */
static bool read_snapshot(struct reader *reader, bool opened)
{
    struct snapshot *snapshot = reader->snapshot;
    struct pickle_place top;
    bool done = opened;
    if (!opened)
        snprintf(reader->error->text, sizeof reader->error->text, "%s", reader->input.error);
    if (done &&
        !(reader_init_tables(reader) && pickle_read(&reader->pickle, &reader->input, reader_words,
                                                    WORD_COUNT, reduce, reader, &top))) {
        done = false;
        snprintf(reader->error->text, sizeof reader->error->text, "%s", reader->pickle.error);
    }
    done = done && read_top(reader, &top);
    if (done && reader->pickle.error[0]) { /* a list that did not fit in memory */
        done = false;
        snprintf(reader->error->text, sizeof reader->error->text, "%s", reader->pickle.error);
    }
    if (opened)
        take_texts(reader);
    for (size_t i = 0; done && i < snapshot->trace_count; i++)
        if (snapshot->traces[i].event_count)
            snapshot->traces[i].events = snapshot->events + reader->trace_first[i];
    if (!done)
        snapshot_finish(snapshot);
    free(reader->trace_first);
    table_finish(&reader->streams);
    table_finish(&reader->pools);
    table_finish(&reader->frames);
    table_finish(&reader->stacks);
    if (opened)
        pickle_finish(&reader->pickle);
    pickle_input_finish(&reader->input);
    return done;
}

/* The same of what may be an RMM log, or JSON. */
static bool read_any(struct reader *reader, bool opened)
{
    if (!opened || (!reader->input.csv && !reader->input.json))
        return read_snapshot(reader, opened);
    bool done = reader->input.csv
                    ? rmm_csv_read(&reader->input, reader->snapshot, reader->error)
                    : profile_json_read(&reader->input, reader->snapshot, reader->error);
    if (!done)
        snapshot_finish(reader->snapshot);
    pickle_input_finish(&reader->input);
    return done;
}

bool snapshot_read_file(const char *path, struct snapshot *snapshot, struct snapshot_error *error)
{
    struct reader reader = {.snapshot = snapshot, .error = error};
    *snapshot = (struct snapshot){0};
    *error = (struct snapshot_error){{0}};
    return read_any(&reader, pickle_input_open(&reader.input, path));
}

bool snapshot_read_buffer(const void *data, size_t size, struct snapshot *snapshot,
                          struct snapshot_error *error)
{
    struct reader reader = {.snapshot = snapshot, .error = error};
    *snapshot = (struct snapshot){0};
    *error = (struct snapshot_error){{0}};
    return read_any(&reader, pickle_input_attach(&reader.input, data, size));
}

void snapshot_finish(struct snapshot *snapshot)
{
    free(snapshot->segments);
    free(snapshot->blocks);
    free(snapshot->traces);
    free(snapshot->events);
    free(snapshot->streams);
    free(snapshot->pools);
    free(snapshot->frames);
    free(snapshot->stacks);
    free(snapshot->text_bytes);
    free(snapshot->text_starts);
    free(snapshot->tarn.devices);
    free(snapshot->tarn.pools);
    free(snapshot->tarn.graphs);
    free(snapshot->tarn.handles);
    free(snapshot->tarn.workspaces);
    free(snapshot->tarn.threads);
    free(snapshot->tarn.marks);
    free(snapshot->annotations);
    *snapshot = (struct snapshot){0};
}
