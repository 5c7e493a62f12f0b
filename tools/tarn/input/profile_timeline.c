/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the meaning of a memory timeline. A timeline names no blocks. An increase of a category
 * becomes a block. A decrease ends blocks of that category: the newest one of the same size,
 * otherwise the newest ones, of which the last may be cut. So sums by category are exact at each
 * time, and only lifetimes of similar blocks are guesses. Addresses are made up, each once. */
#include "input/profile_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_US 1000
#define BYTES_MOST (INT64_C(1) << 50)
#define NO_BLOCK UINT32_MAX
#define NO_TIME (-1)

/* In the order of _CATEGORY_TO_INDEX. */
static const char *const category_names[] = {"parameters",      "optimizer state", "inputs",
                                             "temporaries",     "activations",     "gradients",
                                             "autograd detail", "unknown"};
enum { CATEGORIES = sizeof category_names / sizeof *category_names };
enum { PREEXISTING = 1, CREATE, INCREMENT_VERSION, DESTROY };

struct block {
    uint64_t address;
    int64_t size;
    uint32_t category;
    uint32_t below, alike; /* the block of its category, and of its size too, that is older */
    bool ended;
};

struct timeline {
    struct profile *profile;
    struct block *blocks;
    size_t count, capacity;
    struct table alike; /* by category and size, the newest block */
    uint32_t top[CATEGORIES], tags[CATEGORIES];
    uint64_t address;
    int64_t time_us, sums[CATEGORIES];
};

static bool add_event(struct timeline *timeline, const struct block *block,
                      enum snapshot_action action)
{
    struct snapshot_event event = {.action = (uint8_t)action,
                                   .address = block->address,
                                   .size = (uint64_t)block->size,
                                   .time_us = timeline->time_us,
                                   .tag = timeline->tags[block->category]};
    return profile_event(timeline->profile, &event);
}

static bool increase(struct timeline *timeline, uint32_t category, int64_t bytes)
{
    struct profile *profile = timeline->profile;
    uint32_t place = (uint32_t)timeline->count;
    if (timeline->count >= NO_BLOCK - 1)
        return profile_no_memory(profile);
    if (!profile_grow(profile, &timeline->blocks, timeline->count, &timeline->capacity,
                      sizeof *timeline->blocks))
        return false;
    uint32_t *alike = table_add(&timeline->alike, category, (uint64_t)bytes, NO_BLOCK);
    if (!alike)
        return profile_no_memory(profile);
    struct block block = {timeline->address,       bytes,  category,
                          timeline->top[category], *alike, false};
    *alike = timeline->top[category] = place;
    timeline->blocks[timeline->count++] = block;
    timeline->address += ((uint64_t)bytes | 511) + 1;
    return add_event(timeline, &block, SNAPSHOT_ALLOC);
}

static bool end_block(struct timeline *timeline, uint32_t place)
{
    timeline->blocks[place].ended = true;
    return add_event(timeline, &timeline->blocks[place], SNAPSHOT_FREE_REQUESTED);
}

/* The newest live block of a list, without those that have ended. */
static uint32_t newest(struct timeline *timeline, uint32_t place, bool alike)
{
    while (place != NO_BLOCK && timeline->blocks[place].ended)
        place = alike ? timeline->blocks[place].alike : timeline->blocks[place].below;
    return place;
}

static bool decrease(struct timeline *timeline, uint32_t category, int64_t bytes)
{
    uint32_t *alike = table_find(&timeline->alike, category, (uint64_t)bytes);
    uint32_t place = alike ? newest(timeline, *alike, true) : NO_BLOCK;
    if (alike)
        *alike = place;
    if (place != NO_BLOCK)
        return end_block(timeline, place);
    while (bytes > 0) {
        uint32_t top = timeline->top[category] = newest(timeline, timeline->top[category], false);
        if (top == NO_BLOCK)
            return json_stream_fail(&timeline->profile->stream,
                                    "the category \"%s\" has less than is freed of it",
                                    category_names[category]);
        int64_t size = timeline->blocks[top].size;
        if (!end_block(timeline, top) ||
            (size > bytes && !increase(timeline, category, size - bytes)))
            return false;
        bytes -= size < bytes ? size : bytes;
    }
    return true;
}

static bool change(struct timeline *timeline, uint32_t category, int64_t by)
{
    if (by > BYTES_MOST || by < -BYTES_MOST || timeline->address > UINT64_MAX / 2)
        return json_stream_fail(&timeline->profile->stream, "a size is beyond what can be counted");
    return by > 0   ? increase(timeline, category, by)
           : by < 0 ? decrease(timeline, category, -by)
                    : true;
}

/* The numbers of an array that is begun, of which `most` are kept; `first` is its first token. */
static bool read_numbers(struct profile *profile, enum json_token first, int64_t *numbers,
                         size_t most, size_t *count)
{
    struct json_stream *stream = &profile->stream;
    *count = 0;
    for (enum json_token token = first; token != TOKEN_ARRAY_END;
         token = json_stream_next(stream)) {
        int64_t number;
        if (!json_stream_integer(stream, token, 1, &number))
            return json_stream_fail(stream, "a timeline has whole numbers here");
        if (*count < most)
            numbers[*count] = number;
        ++*count;
    }
    return true;
}

/* [ns, action, bytes, category]; -1 ns is before the first. */
static bool take_change(struct timeline *timeline, const int64_t fields[4], size_t count)
{
    struct json_stream *stream = &timeline->profile->stream;
    if (count != 4)
        return json_stream_fail(stream, "a change of a timeline has 4 numbers, and this one %zu",
                                count);
    if (fields[1] < PREEXISTING || fields[1] > DESTROY)
        return json_stream_fail(stream, "action %" PRId64 " is not known", fields[1]);
    if (fields[3] < 0 || fields[3] >= CATEGORIES)
        return json_stream_fail(stream, "category %" PRId64 " is not known", fields[3]);
    if (fields[0] >= 0)
        timeline->time_us = fields[0] / NS_PER_US;
    return change(timeline, (uint32_t)fields[3], fields[2]);
}

static bool read_changes(struct timeline *timeline, const int64_t first[4], size_t first_count,
                         enum json_token token)
{
    struct profile *profile = timeline->profile;
    bool done = take_change(timeline, first, first_count);
    for (; done && token != TOKEN_ARRAY_END; token = json_stream_next(&profile->stream)) {
        int64_t fields[4];
        size_t count;
        done = (token == TOKEN_ARRAY ||
                json_stream_fail(&profile->stream, "a timeline has arrays of 4 numbers here")) &&
               read_numbers(profile, json_stream_next(&profile->stream), fields, 4, &count) &&
               take_change(timeline, fields, count);
    }
    return done;
}

/* A row of sums: nothing, then one per category. Falls come before rises: what passes from one
 * category to another is never there twice. */
static bool take_row(struct timeline *timeline, const int64_t *row, size_t count)
{
    struct json_stream *stream = &timeline->profile->stream;
    if (count != CATEGORIES + 1)
        return json_stream_fail(stream, "a row of a timeline has %d sums, and this one %zu",
                                CATEGORIES + 1, count);
    for (int rises = 0; rises < 2; rises++)
        for (uint32_t i = 0; i < CATEGORIES; i++) {
            int64_t by = row[i + 1] - timeline->sums[i];
            if (row[i + 1] < 0)
                return json_stream_fail(stream, "a sum of a timeline is below 0");
            if ((by > 0) == rises && !change(timeline, i, by))
                return false;
            timeline->sums[i] = (by > 0) == rises ? row[i + 1] : timeline->sums[i];
        }
    return true;
}

/* The rows, with the first one of them begun. */
static bool read_rows(struct timeline *timeline, const int64_t *times, size_t count,
                      enum json_token token)
{
    struct profile *profile = timeline->profile;
    size_t rows = 0;
    for (; token != TOKEN_ARRAY_END; token = json_stream_next(&profile->stream), rows++) {
        int64_t row[CATEGORIES + 1];
        size_t columns;
        if (token != TOKEN_ARRAY || rows == count)
            return json_stream_fail(&profile->stream, token == TOKEN_ARRAY
                                                          ? "a timeline has more rows than times"
                                                          : "a timeline has rows of sums here");
        timeline->time_us = times[rows];
        if (!read_numbers(profile, json_stream_next(&profile->stream), row, CATEGORIES + 1,
                          &columns) ||
            !take_row(timeline, row, columns))
            return false;
    }
    return rows == count ||
           json_stream_fail(&profile->stream, "a timeline has fewer rows than times");
}

/* The first array: the times, or the first change. */
static bool read_first(struct profile *profile, int64_t **numbers, size_t *count)
{
    struct json_stream *stream = &profile->stream;
    size_t capacity = 0;
    enum json_token token = json_stream_next(stream);
    for (*count = 0; token != TOKEN_ARRAY_END; token = json_stream_next(stream)) {
        int64_t number;
        if (!json_stream_integer(stream, token, 1, &number))
            return json_stream_fail(stream,
                                    "this is JSON, and neither a trace nor a memory timeline of "
                                    "PyTorch's profiler");
        if (!profile_grow(profile, numbers, *count, &capacity, sizeof number))
            return false;
        (*numbers)[(*count)++] = number;
    }
    return true;
}

static bool read_rest(struct timeline *timeline, const int64_t *first, size_t count)
{
    struct profile *profile = timeline->profile;
    struct json_stream *stream = &profile->stream;
    enum json_token token = json_stream_next(stream);
    if (token == TOKEN_ARRAY_END)
        return read_changes(timeline, first, count, token);
    if (token != TOKEN_ARRAY)
        return json_stream_fail(stream, "a timeline has an array here");
    token = json_stream_next(stream);
    if (token == TOKEN_ARRAY || token == TOKEN_ARRAY_END)
        return read_rows(timeline, first, count, token) &&
               (json_stream_next(stream) == TOKEN_ARRAY_END ||
                json_stream_fail(stream, "a timeline has two arrays, times and sums"));
    int64_t fields[4];
    size_t columns;
    return take_change(timeline, first, count) &&
           read_numbers(profile, token, fields, 4, &columns) &&
           read_changes(timeline, fields, columns, json_stream_next(stream));
}

bool profile_timeline_read(struct profile *profile)
{
    struct snapshot *snapshot = profile->snapshot;
    struct timeline timeline = {.profile = profile, .address = 1 << 20, .time_us = NO_TIME};
    int64_t *first = NULL;
    size_t count;
    bool done = true;
    for (size_t i = 0; i < CATEGORIES && done; i++) {
        timeline.top[i] = NO_BLOCK;
        done =
            profile_text(profile, category_names[i], strlen(category_names[i]), &timeline.tags[i]);
    }
    done = done && read_first(profile, &first, &count) && read_rest(&timeline, first, count);
    if (done && !snapshot->event_count)
        done = json_stream_fail(&profile->stream, "the timeline has no memory of this device");
    snapshot->traces = calloc(1, sizeof *snapshot->traces);
    done = done && (snapshot->traces || profile_no_memory(profile));
    if (done) {
        snapshot->trace_count = 1;
        snapshot->timeline = true;
        snapshot->traces[0] = (struct snapshot_trace){.events = snapshot->events,
                                                      .event_count = snapshot->event_count};
        /* What was there before has the time of the first change */
        size_t timed = 0;
        while (timed < snapshot->event_count && snapshot->events[timed].time_us == NO_TIME)
            timed++;
        for (size_t i = 0; i < timed; i++)
            snapshot->events[i].time_us =
                timed < snapshot->event_count ? snapshot->events[timed].time_us : 0;
    }
    free(first);
    free(timeline.blocks);
    table_finish(&timeline.alike);
    return done;
}
