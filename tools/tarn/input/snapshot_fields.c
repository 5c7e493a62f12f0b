/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the values of a snapshot's pickle: the words, the fields of a dict, and the tables into
 * which streams, pools and stacks go.
 *
 * Keeps: a field is read as one type or refused with its place and byte; texts, stacks and frames
 * say where something comes from, so one that is not as expected is none, and refuses nothing. A
 * stack is a node of a tree from the outermost call inwards, which stores each distinct stack once
 * and what two have in common too. */
#include "input/snapshot_reader.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const reader_words[WORD_COUNT] = {
    [KEY_NONE] = "",
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
    [KEY_POOLED] = "pooled",
    [KEY_FRAMES] = "frames",
    [KEY_HISTORY] = "history",
    [KEY_NAME] = "name",
    [KEY_FILENAME] = "filename",
    [KEY_LINE] = "line",
    [KEY_USER_METADATA] = "user_metadata",
    [KEY_THREAD] = "thread",
    [KEY_TARN] = "tarn",
    [KEY_VERSION] = "version",
    [KEY_LIBRARY] = "library",
    [KEY_DRIVER] = "driver",
    [KEY_TAKEN_NS] = "taken_ns",
    [KEY_EXACT_FROM] = "exact_from",
    [KEY_OVERWRITTEN] = "overwritten",
    [KEY_DEVICES] = "devices",
    [KEY_POOLS] = "pools",
    [KEY_HANDLES] = "handles",
    [KEY_WORKSPACES] = "workspaces",
    [KEY_THREADS] = "threads",
    [KEY_EVENTS] = "events",
    [KEY_TOTAL] = "total",
    [KEY_FREE] = "free",
    [KEY_RESERVED] = "reserved",
    [KEY_LIMIT] = "limit",
    [KEY_ID] = "id",
    [KEY_ALLOCATED] = "allocated",
    [KEY_ACTIVE] = "active",
    [KEY_WAITING] = "waiting",
    [KEY_SUSPENDED] = "suspended",
    [KEY_HELD] = "held",
    [KEY_OF_GRAPHS] = "of_graphs",
    [KEY_GRAPHS] = "graphs",
    [KEY_GONE] = "gone",
    [KEY_GONE_SIZE] = "gone_size",
    [KEY_COUNT_OF] = "count",
    [KEY_IN_USE] = "in_use",
    [KEY_NUMBER] = "number",
    [KEY_AT] = "at",
    [KEY_KIND] = "kind",
    [KEY_OTHER] = "other",
    [KEY_CAPTURE] = "capture",
    [KEY_KEEP] = "keep",
    [KEY_HOW] = "how",
    [KEY_ALLOCATOR_SETTINGS] = "allocator_settings",
    [KEY_CUDA_CONF] = "PYTORCH_CUDA_ALLOC_CONF",
    [KEY_CONF] = "PYTORCH_ALLOC_CONF",
    [KEY_EXPANDABLE_SEGMENTS] = "expandable_segments",
    [KEY_EXTERNAL_ANNOTATIONS] = "external_annotations",
    [KEY_STAGE] = "stage",
    [KEY_RANGE] = "range",
    [KEY_UNPLANNED] = "unplanned",
    [WORD_LARGE] = "large",
    [WORD_SMALL] = "small",
    [WORD_INACTIVE] = "inactive",
    [WORD_ACTIVE_ALLOCATED] = "active_allocated",
    [WORD_ACTIVE_PENDING_FREE] = "active_pending_free",
    /* What the Python documentation calls it */
    [WORD_ACTIVE_AWAITING_FREE] = "active_awaiting_free",
    [WORD_CUDA] = "cuda",
    [WORD_TARN_RUN] = "tarn run",
    [WORD_START] = "START",
    [WORD_END] = "END",
    [WORD_ALLOC] = "alloc",
    [WORD_FREE_REQUESTED] = "free_requested",
    [WORD_FREE_COMPLETED] = "free_completed",
    [WORD_SEGMENT_ALLOC] = "segment_alloc",
    [WORD_SEGMENT_FREE] = "segment_free",
    [WORD_SEGMENT_MAP] = "segment_map",
    [WORD_SEGMENT_UNMAP] = "segment_unmap",
    [WORD_SNAPSHOT] = "snapshot",
    [WORD_OOM] = "oom",
    [WORD_MARK_RECORD_STREAM] = "record_stream",
    [WORD_MARK_FREE_ON] = "free_on",
    [WORD_MARK_WAIT] = "wait",
    [WORD_MARK_CAPTURE_BEGIN] = "capture_begin",
    [WORD_MARK_CAPTURE_END] = "capture_end",
    [WORD_MARK_POOL_CREATE] = "pool_create",
    [WORD_MARK_POOL_RELEASE] = "pool_release",
    [WORD_MARK_SCOPE_BEGIN] = "scope_begin",
    [WORD_MARK_SCOPE_END] = "scope_end",
    [WORD_MARK_TRIM] = "trim",
    [WORD_MARK_SUSPEND] = "suspend",
    [WORD_MARK_RESUME] = "resume",
    [WORD_MARK_HANDLE_CREATE] = "handle_create",
    [WORD_MARK_REGION_BEGIN] = "region_begin",
    [WORD_MARK_REGION_END] = "region_end",
};

bool reader_fail(struct reader *reader, uint64_t offset, const struct path *path, const char *key,
                 const char *format, ...)
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
    else if (path->kind == PATH_TARN)
        snprintf(where, sizeof where, "tarn");
    else if (path->kind == PATH_PART)
        snprintf(where, sizeof where, "tarn.%s[%zu]", reader_words[path->outer], path->inner);

    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(reader->error->text, sizeof reader->error->text, "byte %" PRIu64 ": %s%s%s%s%s",
             offset, where, *where && key ? "." : "", key ? key : "", *where || key ? " " : "",
             what);
    return false;
}

/* --- fields of a dict --- */

_Static_assert(KEY_COUNT < UINT8_MAX, "a dict's entries are numbered in 8 bits");

void reader_collect(const struct reader *reader, pickle_value dict, struct fields *fields)
{
    size_t count;
    fields->entries = pickle_dict(&reader->pickle, dict, &count);
    memset(fields->number, 0, sizeof fields->number);
    for (size_t i = 0; i < count && i < UINT8_MAX; i++)
        if (fields->entries[i].word < KEY_COUNT &&
            pickle_kind(fields->entries[i].value) != PICKLE_NONE)
            fields->number[fields->entries[i].word] = (uint8_t)(i + 1);
}

bool reader_need(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key)
{
    return fields->number[key] ||
           reader_fail(reader, path->offset, path, NULL, "has no key %s", reader_words[key]);
}

bool reader_number(struct reader *reader, const struct path *path, const struct fields *fields,
                   enum word key, uint64_t otherwise, uint64_t *number)
{
    const struct pickle_place *entry = field(fields, key);
    *number = otherwise;
    if (!entry)
        return true;
    const char *wrong = pickle_get_unsigned(&reader->pickle, entry->value, number);
    return !wrong || reader_fail(reader, entry->offset, path, reader_words[key], "%s", wrong);
}

bool reader_need_number(struct reader *reader, const struct path *path, const struct fields *fields,
                        enum word key, uint64_t *number)
{
    return reader_need(reader, path, fields, key) &&
           reader_number(reader, path, fields, key, 0, number);
}

bool reader_small(struct reader *reader, const struct path *path, const struct fields *fields,
                  enum word key, uint32_t *number)
{
    uint64_t wide;
    if (!reader_number(reader, path, fields, key, 0, &wide))
        return false;
    *number = (uint32_t)wide;
    return wide <= UINT32_MAX || reader_fail(reader, field(fields, key)->offset, path,
                                             reader_words[key], "does not fit in 32 bits");
}

bool reader_time(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, int64_t otherwise, int64_t *time)
{
    const struct pickle_place *entry = field(fields, key);
    *time = otherwise;
    if (!entry)
        return true;
    const char *wrong = pickle_get_signed(&reader->pickle, entry->value, time);
    return !wrong || reader_fail(reader, entry->offset, path, reader_words[key], "%s", wrong);
}

bool reader_bool(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, bool *yes)
{
    const struct pickle_place *entry = field(fields, key);
    *yes = entry && pickle_kind(entry->value) == PICKLE_BOOL && pickle_number(entry->value);
    return !entry || pickle_kind(entry->value) == PICKLE_BOOL ||
           reader_fail(reader, entry->offset, path, reader_words[key], "is %s, not a bool",
                       pickle_kind_name(entry->value));
}

bool reader_pair(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, uint64_t pair[2])
{
    const struct pickle_place *entry = field(fields, key);
    pair[0] = pair[1] = 0;
    if (!entry)
        return true;
    const char *wrong = pickle_get_pair(&reader->pickle, entry->value, pair);
    return !wrong || reader_fail(reader, entry->offset, path, reader_words[key], "%s", wrong);
}

bool reader_word(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, enum word *word)
{
    const struct pickle_place *entry = field(fields, key);
    enum pickle_kind kind = pickle_kind(entry->value);
    *word = kind == PICKLE_WORD ? (enum word)pickle_number(entry->value) : WORD_COUNT;
    return kind == PICKLE_WORD || kind == PICKLE_TEXT ||
           reader_fail(reader, entry->offset, path, reader_words[key], "is %s, not a text",
                       pickle_kind_name(entry->value));
}

uint32_t reader_text(const struct fields *fields, enum word key)
{
    const struct pickle_place *entry = field(fields, key);
    enum pickle_kind kind = entry ? pickle_kind(entry->value) : PICKLE_NONE;
    return kind == PICKLE_WORD || kind == PICKLE_TEXT ? (uint32_t)pickle_number(entry->value) : 0;
}

bool reader_device(struct reader *reader, const struct path *path, const struct fields *fields,
                   int *device)
{
    uint64_t number;
    if (!reader_need_number(reader, path, fields, KEY_DEVICE, &number))
        return false;
    *device = (int)(number % DEVICE_MAX);
    return number < DEVICE_MAX ||
           reader_fail(reader, field(fields, KEY_DEVICE)->offset, path, reader_words[KEY_DEVICE],
                       "is %" PRIu64 "; at most %d are read", number, DEVICE_MAX - 1);
}

/* --- memory --- */

/* Hands on what the machine says of memory, or that there is none. */
static bool no_memory(struct reader *reader)
{
    pickle_no_memory(&reader->pickle); /* keeps what is said already */
    if (!reader->quiet && !reader->error->text[0])
        snprintf(reader->error->text, sizeof reader->error->text, "%s", reader->pickle.error);
    return false;
}

bool reader_grow(struct reader *reader, void **array, size_t *capacity, size_t count,
                 size_t element)
{
    return pickle_grow(&reader->pickle, array, capacity, count, element) || no_memory(reader);
}

bool reader_step(struct reader *reader, const struct path *path, size_t count)
{
    if (count <= reader->input.end_offset && reader->steps <= reader->input.end_offset - count) {
        reader->steps += count;
        return true;
    }
    return reader_fail(reader, path->offset, path, NULL,
                       "repeats parts of the file more often than its size allows");
}

/* --- tables --- */

/* The place of a pair of numbers in a table whose array has `*count` elements; *fresh where the
 * caller is to add it. */
static bool place(struct reader *reader, struct table *table, uint64_t first, uint64_t second,
                  size_t count, uint32_t *number, bool *fresh)
{
    uint32_t *known = count < UINT32_MAX ? table_add(table, first, second, (uint32_t)count) : NULL;
    if (!known)
        return no_memory(reader);
    *number = *known;
    *fresh = *known == count;
    return true;
}

bool reader_stream(struct reader *reader, const struct path *path, const struct fields *fields,
                   enum word key, uint32_t *number)
{
    struct snapshot *snapshot = reader->snapshot;
    uint64_t stream;
    bool fresh = false;
    void *streams = snapshot->streams;
    if (!reader_number(reader, path, fields, key, 0, &stream) ||
        !reader_grow(reader, &streams, &reader->stream_capacity, snapshot->stream_count + 1,
                     sizeof stream))
        return false;
    snapshot->streams = streams;
    if (!place(reader, &reader->streams, stream, 0, snapshot->stream_count, number, &fresh))
        return false;
    if (fresh)
        snapshot->streams[snapshot->stream_count++] = stream;
    return true;
}

bool reader_pool(struct reader *reader, const struct path *path, const struct fields *fields,
                 enum word key, uint32_t *number)
{
    struct snapshot *snapshot = reader->snapshot;
    uint64_t pool[2];
    bool fresh = false;
    void *pools = snapshot->pools;
    if (!reader_pair(reader, path, fields, key, pool) ||
        !reader_grow(reader, &pools, &reader->pool_capacity, snapshot->pool_count + 1, sizeof pool))
        return false;
    snapshot->pools = pools;
    if (!place(reader, &reader->pools, pool[0], pool[1], snapshot->pool_count, number, &fresh))
        return false;
    if (fresh)
        memcpy(snapshot->pools[snapshot->pool_count++], pool, sizeof pool);
    return true;
}

bool reader_init_tables(struct reader *reader)
{
    struct snapshot *snapshot = reader->snapshot;
    const struct path path = {.kind = PATH_TOP};
    const struct fields none = {0};
    uint32_t zero;
    void *stacks = NULL;
    reader->pickle.input = &reader->input; /* the machine, which has not begun, charges to it */
    if (!reader_stream(reader, &path, &none, KEY_STREAM, &zero) ||
        !reader_pool(reader, &path, &none, KEY_POOL_ID, &zero) ||
        !reader_grow(reader, &stacks, &reader->stack_capacity, 1, sizeof *snapshot->stacks))
        return false;
    snapshot->stacks = stacks;
    snapshot->stacks[snapshot->stack_count++] = (struct snapshot_stack){0};
    return true;
}

/* --- stacks --- */

uint32_t reader_stack(const struct fields *fields)
{
    const struct pickle_place *entry = field(fields, KEY_FRAMES);
    return entry && pickle_kind(entry->value) == PICKLE_LIST_RECORD
               ? (uint32_t)pickle_number(entry->value)
               : 0;
}

uint32_t reader_block_stack(struct reader *reader, const struct fields *fields)
{
    const struct pickle_place *history = field(fields, KEY_HISTORY);
    size_t count;
    uint64_t dropped;
    if (!history || pickle_kind(history->value) != PICKLE_LIST)
        return reader_stack(fields);
    const pickle_value *owners = pickle_list(&reader->pickle, history->value, &count, &dropped);
    if (!count || pickle_kind(owners[0]) != PICKLE_DICT)
        return reader_stack(fields);
    struct fields last;
    reader_collect(reader, owners[0], &last);
    return reader_stack(&last);
}

/* A path of Windows, "C:\\work\\model.py", with slashes: all that is told by paths is told by
 * these. */
static bool with_slashes(struct reader *reader, uint32_t *text)
{
    const struct pickle_texts *texts = &reader->pickle.texts;
    const char *path = texts->bytes + texts->starts[*text];
    size_t length = texts->starts[*text + 1] - texts->starts[*text] - 1;
    bool drive = length > 2 && path[1] == ':' && path[2] == '\\',
         share = length > 2 && path[0] == '\\' && path[1] == '\\';
    char *copy = drive || share ? strndup(path, length) : NULL;
    if (!drive && !share)
        return true;
    if (!copy)
        return no_memory(reader);
    for (char *at = copy; *at; at++)
        *at = *at == '\\' ? '/' : *at;
    bool added = pickle_text_add(&reader->pickle, copy, strlen(copy), text);
    free(copy);
    return added || no_memory(reader);
}

bool reader_take_frame(struct reader *reader, const struct fields *fields, uint64_t *record)
{
    struct snapshot *snapshot = reader->snapshot;
    const struct pickle_place *line = field(fields, KEY_LINE);
    struct snapshot_frame frame = {.name = reader_text(fields, KEY_NAME),
                                   .filename = reader_text(fields, KEY_FILENAME)};
    uint64_t number;
    if (!with_slashes(reader, &frame.filename))
        return false;
    if (line && !pickle_get_unsigned(&reader->pickle, line->value, &number) && number <= UINT32_MAX)
        frame.line = (uint32_t)number;

    uint32_t at = 0;
    bool fresh = false;
    void *frames = snapshot->frames;
    if (!reader_grow(reader, &frames, &reader->frame_capacity, snapshot->frame_count + 1,
                     sizeof frame))
        return false;
    snapshot->frames = frames;
    if (!place(reader, &reader->frames, (uint64_t)frame.name << 32 | frame.filename, frame.line,
               snapshot->frame_count, &at, &fresh))
        return false;
    if (fresh)
        snapshot->frames[snapshot->frame_count++] = frame;
    *record = (uint64_t)RECORD_FRAME << RECORD_KIND_SHIFT | at;
    return true;
}

/* The innermost frame comes first in the list. */
bool reader_take_stack(struct reader *reader, pickle_value list, uint64_t *record)
{
    struct snapshot *snapshot = reader->snapshot;
    size_t count;
    uint64_t dropped;
    const pickle_value *items = pickle_list(&reader->pickle, list, &count, &dropped);
    uint32_t stack = 0;
    for (size_t i = count; i-- > 0;) {
        if (!is_record(items[i], RECORD_FRAME))
            return false;
        bool fresh = false;
        void *stacks = snapshot->stacks;
        struct snapshot_stack next = {stack, (uint32_t)record_place(items[i])};
        if (!reader_grow(reader, &stacks, &reader->stack_capacity, snapshot->stack_count + 1,
                         sizeof next))
            return false;
        snapshot->stacks = stacks;
        if (!place(reader, &reader->stacks, next.caller, next.frame, snapshot->stack_count, &stack,
                   &fresh))
            return false;
        if (fresh)
            snapshot->stacks[snapshot->stack_count++] = next;
    }
    *record = stack;
    return true;
}
