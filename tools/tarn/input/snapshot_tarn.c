/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the meaning of the key "tarn" of a snapshot, which only tarn itself writes: what PyTorch's
 * layout has no place for.
 *
 * Keys that are not known are passed over; a later version of the layout is refused. A mark becomes
 * a struct snapshot_mark as soon as the pickle machine has its dict, as events do, since there may
 * be as many. */
#include "input/snapshot_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1

/* --- marks --- */

static bool read_mark(struct reader *reader, const struct path *path, pickle_value dict,
                      struct snapshot_mark *mark)
{
    struct fields fields;
    enum word kind;
    int device;
    *mark = (struct snapshot_mark){.kind = SNAPSHOT_MARK_OTHER};
    reader_collect(reader, dict, &fields);
    if (!reader_need(reader, path, &fields, KEY_KIND) ||
        !reader_word(reader, path, &fields, KEY_KIND, &kind))
        return false;
    if (!reader_bool(reader, path, &fields, KEY_UNPLANNED, &mark->unplanned))
        return false;
    if (kind >= WORD_MARK_RECORD_STREAM && kind < WORD_COUNT)
        mark->kind = (uint8_t)(kind - WORD_MARK_RECORD_STREAM);

    enum word value = field(&fields, KEY_CAPTURE) ? KEY_CAPTURE
                      : field(&fields, KEY_KEEP)  ? KEY_KEEP
                                                  : KEY_ADDR;
    if (!reader_device(reader, path, &fields, &device) ||
        !reader_need_number(reader, path, &fields, KEY_AT, &mark->at) ||
        !reader_time(reader, path, &fields, KEY_TIME_US, SNAPSHOT_NO_TIME, &mark->time_us) ||
        !reader_number(reader, path, &fields, value, 0, &mark->value) ||
        !reader_stream(reader, path, &fields, KEY_STREAM, &mark->stream) ||
        !reader_stream(reader, path, &fields, KEY_OTHER, &mark->other) ||
        !reader_pool(reader, path, &fields, KEY_POOL_ID, &mark->pool) ||
        !reader_small(reader, path, &fields, KEY_THREAD, &mark->thread))
        return false;
    mark->device = (uint16_t)device;
    mark->text = reader_text(&fields, field(&fields, KEY_HOW) ? KEY_HOW : KEY_NAME);
    return true;
}

bool reader_take_mark(struct reader *reader, pickle_value dict, uint64_t *record)
{
    struct snapshot_tarn *tarn = &reader->snapshot->tarn;
    const struct path path = {.kind = PATH_PART};
    struct snapshot_mark mark;
    void *marks = tarn->marks;
    if (!read_mark(reader, &path, dict, &mark) ||
        !reader_grow(reader, &marks, &reader->mark_capacity, tarn->mark_count + 1, sizeof mark))
        return false;
    tarn->marks = marks;
    tarn->marks[tarn->mark_count] = mark;
    *record = (uint64_t)RECORD_MARK << RECORD_KIND_SHIFT | tarn->mark_count++;
    return true;
}

/* The marks of a device go forward, and no further than its trace. */
static bool check_mark(struct reader *reader, const struct path *path,
                       const struct snapshot_mark *mark, uint64_t *last)
{
    const struct snapshot *snapshot = reader->snapshot;
    uint64_t events =
        mark->device < snapshot->trace_count ? snapshot->traces[mark->device].event_count : 0;
    if (mark->at > events)
        return reader_fail(reader, path->offset, path, reader_words[KEY_AT],
                           "is %" PRIu64 ", where the trace of device %u has %" PRIu64 " events",
                           mark->at, (unsigned)mark->device, events);
    if (mark->at < last[mark->device])
        return reader_fail(reader, path->offset, path, reader_words[KEY_AT],
                           "is %" PRIu64 ", less than %" PRIu64
                           " of the one before it on device %u",
                           mark->at, last[mark->device], (unsigned)mark->device);
    last[mark->device] = mark->at;
    return true;
}

/* Reads the list of marks. reduce() has taken each mark of a list that tarn wrote, in order, so
 * item i is mark i. Any other list is refused. */
static bool read_marks(struct reader *reader, struct path path, const pickle_value *items,
                       size_t count)
{
    struct snapshot_tarn *tarn = &reader->snapshot->tarn;
    uint64_t *last = calloc(DEVICE_MAX, sizeof *last);
    bool done = last || reader_fail(reader, path.offset, &path, NULL, "does not fit in memory");
    for (size_t i = 0; done && i < count; i++) {
        struct snapshot_mark mark;
        path.inner = i;
        if (is_record(items[i], RECORD_MARK) && record_place(items[i]) == i)
            done = check_mark(reader, &path, &tarn->marks[i], last);
        else if (pickle_kind(items[i]) == PICKLE_DICT && !read_mark(reader, &path, items[i], &mark))
            done = false;
        else
            done = reader_fail(reader, path.offset, &path, NULL, "is not a separate event");
    }
    free(last);
    if (done)
        tarn->mark_count = count;
    return done;
}

/* --- the other lists --- */

static bool read_device(struct reader *reader, const struct path *path, const struct fields *fields,
                        size_t i)
{
    struct snapshot_device *device = &reader->snapshot->tarn.devices[i];
    device->name = reader_text(fields, KEY_NAME);
    return reader_number(reader, path, fields, KEY_TOTAL, 0, &device->total) &&
           reader_number(reader, path, fields, KEY_FREE, 0, &device->free) &&
           reader_number(reader, path, fields, KEY_RESERVED, 0, &device->reserved) &&
           reader_number(reader, path, fields, KEY_LIMIT, SNAPSHOT_NO_LIMIT, &device->limit);
}

static bool read_pool(struct reader *reader, const struct path *path, const struct fields *fields,
                      size_t i)
{
    struct snapshot_pool *pool = &reader->snapshot->tarn.pools[i];
    return reader_device(reader, path, fields, &pool->device) &&
           reader_pool(reader, path, fields, KEY_ID, &pool->pool) &&
           reader_number(reader, path, fields, KEY_RESERVED, 0, &pool->reserved) &&
           reader_number(reader, path, fields, KEY_ALLOCATED, 0, &pool->allocated) &&
           reader_number(reader, path, fields, KEY_ACTIVE, 0, &pool->active) &&
           reader_number(reader, path, fields, KEY_WAITING, 0, &pool->waiting) &&
           reader_bool(reader, path, fields, KEY_SUSPENDED, &pool->suspended) &&
           reader_bool(reader, path, fields, KEY_HELD, &pool->held) &&
           reader_bool(reader, path, fields, KEY_OF_GRAPHS, &pool->of_graphs);
}

static bool read_graph(struct reader *reader, const struct path *path, const struct fields *fields,
                       size_t i)
{
    struct snapshot_graph *graph = &reader->snapshot->tarn.graphs[i];
    return reader_number(reader, path, fields, KEY_NUMBER, 0, &graph->number) &&
           reader_device(reader, path, fields, &graph->device) &&
           reader_pool(reader, path, fields, KEY_POOL_ID, &graph->pool) &&
           reader_number(reader, path, fields, KEY_COUNT_OF, 0, &graph->blocks) &&
           reader_number(reader, path, fields, KEY_SIZE, 0, &graph->bytes) &&
           reader_number(reader, path, fields, KEY_GONE, 0, &graph->gone) &&
           reader_number(reader, path, fields, KEY_GONE_SIZE, 0, &graph->gone_bytes);
}

static bool read_handle(struct reader *reader, const struct path *path, const struct fields *fields,
                        size_t i)
{
    struct snapshot_handle *handle = &reader->snapshot->tarn.handles[i];
    handle->library = reader_text(fields, KEY_LIBRARY);
    return reader_device(reader, path, fields, &handle->device) &&
           reader_number(reader, path, fields, KEY_COUNT_OF, 0, &handle->count) &&
           reader_number(reader, path, fields, KEY_IN_USE, 0, &handle->in_use);
}

static bool read_workspace(struct reader *reader, const struct path *path,
                           const struct fields *fields, size_t i)
{
    struct snapshot_workspace *workspace = &reader->snapshot->tarn.workspaces[i];
    workspace->library = reader_text(fields, KEY_LIBRARY);
    return reader_device(reader, path, fields, &workspace->device) &&
           reader_stream(reader, path, fields, KEY_STREAM, &workspace->stream) &&
           reader_number(reader, path, fields, KEY_SIZE, 0, &workspace->size) &&
           reader_number(reader, path, fields, KEY_ADDRESS, 0, &workspace->address);
}

static bool read_thread(struct reader *reader, const struct path *path, const struct fields *fields,
                        size_t i)
{
    struct snapshot_thread *thread = &reader->snapshot->tarn.threads[i];
    thread->name = reader_text(fields, KEY_NAME);
    return reader_small(reader, path, fields, KEY_NUMBER, &thread->number);
}

/* The list at a key; an absent one is empty. */
static bool get_list(struct reader *reader, struct path *path, const struct fields *fields,
                     enum word key, const pickle_value **items, size_t *count)
{
    const struct pickle_place *entry = field(fields, key);
    uint64_t dropped;
    *count = 0;
    if (!entry)
        return true;
    if (pickle_kind(entry->value) == PICKLE_LIST_RECORD)
        return reader_fail(reader, entry->offset, path, reader_words[key], "is a list of frames");
    if (pickle_kind(entry->value) != PICKLE_LIST)
        return reader_fail(reader, entry->offset, path, reader_words[key], "is %s, not a list",
                           pickle_kind_name(entry->value));
    *items = pickle_list(&reader->pickle, entry->value, count, &dropped);
    path->offset = entry->offset;
    if (dropped)
        return reader_fail(reader, entry->offset, path, reader_words[key],
                           "holds %" PRIu64 " items that do not belong there", dropped);
    return reader_step(reader, path, *count);
}

typedef bool (*read_part)(struct reader *reader, const struct path *path,
                          const struct fields *fields, size_t i);

/* A list of dicts, as an array of its own. */
static bool read_list(struct reader *reader, const struct fields *fields, enum word key,
                      read_part read, size_t element, void **array, size_t *array_count)
{
    struct path path = {.kind = PATH_TARN};
    const pickle_value *items = NULL;
    size_t count, capacity = 0;
    if (!get_list(reader, &path, fields, key, &items, &count) || !count)
        return !reader->error->text[0];
    if (!reader_grow(reader, array, &capacity, count, element))
        return false;
    memset(*array, 0, count * element);
    *array_count = count;
    path.kind = PATH_PART;
    path.outer = key;
    for (size_t i = 0; i < count; i++) {
        struct fields part;
        path.inner = i;
        path.offset = pickle_offset(&reader->pickle, items[i], path.offset);
        if (pickle_kind(items[i]) != PICKLE_DICT)
            return reader_fail(reader, path.offset, &path, NULL, "is %s, not a dict of this list",
                               pickle_kind_name(items[i]));
        reader_collect(reader, items[i], &part);
        if (!read(reader, &path, &part, i))
            return false;
    }
    return true;
}

static bool read_exact_from(struct reader *reader, const struct fields *fields)
{
    struct path path = {.kind = PATH_TARN};
    const pickle_value *items = NULL;
    size_t count;
    if (!get_list(reader, &path, fields, KEY_EXACT_FROM, &items, &count))
        return false;
    path.kind = PATH_PART;
    path.outer = KEY_EXACT_FROM;
    for (size_t i = 0; i < count && i < reader->snapshot->trace_count; i++) {
        struct snapshot_trace *trace = &reader->snapshot->traces[i];
        uint64_t from;
        path.inner = i;
        const char *wrong = pickle_get_unsigned(&reader->pickle, items[i], &from);
        if (wrong)
            return reader_fail(reader, path.offset, &path, NULL, "%s", wrong);
        trace->exact_from = from < trace->event_count ? (size_t)from : trace->event_count;
    }
    return true;
}

bool reader_tarn(struct reader *reader, const struct pickle_place *entry)
{
    struct snapshot_tarn *tarn = &reader->snapshot->tarn;
    struct path path = {.kind = PATH_TARN};
    size_t marks = tarn->mark_count; /* dicts that look like marks may be anywhere in a file */
    tarn->mark_count = 0;
    if (!entry)
        return true;
    path.offset = entry->offset;
    if (pickle_kind(entry->value) != PICKLE_DICT)
        return reader_fail(reader, entry->offset, &path, NULL, "is %s, not a dict",
                           pickle_kind_name(entry->value));

    struct fields fields;
    uint64_t version;
    reader_collect(reader, entry->value, &fields);
    if (!reader_need_number(reader, &path, &fields, KEY_VERSION, &version))
        return false;
    if (version != VERSION)
        return reader_fail(
            reader, field(&fields, KEY_VERSION)->offset, &path, reader_words[KEY_VERSION],
            "is %" PRIu64 ", and this program reads %d: it takes the tarn that wrote the file",
            version, VERSION);
    tarn->there = true;
    tarn->library = reader_text(&fields, KEY_LIBRARY);
    tarn->driver = reader_text(&fields, KEY_DRIVER);
    const pickle_value *items = NULL;
    size_t count;
    tarn->mark_count = marks;
    if (!reader_time(reader, &path, &fields, KEY_TAKEN_NS, 0, &tarn->taken_ns) ||
        !reader_number(reader, &path, &fields, KEY_OVERWRITTEN, 0, &tarn->overwritten) ||
        !read_exact_from(reader, &fields) ||
        !get_list(reader, &path, &fields, KEY_EVENTS, &items, &count) ||
        !read_marks(reader,
                    (struct path){.kind = PATH_PART, .outer = KEY_EVENTS, .offset = path.offset},
                    items, count))
        return false;

#define LIST(key, read, array, count) \
    read_list(reader, &fields, key, read, sizeof *tarn->array, (void **)&tarn->array, &tarn->count)
    return LIST(KEY_DEVICES, read_device, devices, device_count) &&
           LIST(KEY_POOLS, read_pool, pools, pool_count) &&
           LIST(KEY_GRAPHS, read_graph, graphs, graph_count) &&
           LIST(KEY_HANDLES, read_handle, handles, handle_count) &&
           LIST(KEY_WORKSPACES, read_workspace, workspaces, workspace_count) &&
           LIST(KEY_THREADS, read_thread, threads, thread_count);
#undef LIST
}
