/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the choice between the layouts of PyTorch's profiler, and the tables of texts, frames and
 * stacks that they fill. */
#include "input/profile_json.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

bool profile_no_memory(struct profile *profile)
{
    return json_stream_fail(&profile->stream, "there is not enough host memory");
}

bool profile_grow(struct profile *profile, void *array, size_t count, size_t *capacity,
                  size_t element)
{
    void *old, *grown;
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    memcpy(&old, array, sizeof old);
    grown = reallocarray(old, wanted, element);
    if (!grown)
        return profile_no_memory(profile);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    /* cppcheck-suppress memleak ; it is the array's now */
    return true;
}

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Texts of one hash have the places hash, hash + 1, ... in the table. */
bool profile_text(struct profile *profile, const char *text, size_t length, uint32_t *number)
{
    struct snapshot *snapshot = profile->snapshot;
    char plain[JSON_TEXT_MAX + 1];
    length = length < JSON_TEXT_MAX ? length : JSON_TEXT_MAX;
    memcpy(plain, text, length);
    plain[length] = '\0';
    length = strlen(plain);
    text_make_plain(plain);
    for (uint64_t hash = hash_of(plain, length);; hash++) {
        uint32_t *known = table_add(&profile->texts, hash, length, (uint32_t)snapshot->text_count);
        if (!known)
            return profile_no_memory(profile);
        *number = *known;
        if (*known == snapshot->text_count)
            break;
        if (strcmp(snapshot_text(snapshot, *known), plain) == 0)
            return true;
    }
    while (profile->bytes + length + 1 > profile->byte_capacity)
        if (!profile_grow(profile, &snapshot->text_bytes, profile->byte_capacity,
                          &profile->byte_capacity, 1))
            return false;
    if (!profile_grow(profile, &snapshot->text_starts, snapshot->text_count,
                      &profile->text_capacity, sizeof *snapshot->text_starts))
        return false;
    memcpy(snapshot->text_bytes + profile->bytes, plain, length + 1);
    snapshot->text_starts[snapshot->text_count++] = profile->bytes;
    profile->bytes += length + 1;
    return true;
}

bool profile_frame(struct profile *profile, struct snapshot_frame frame, uint32_t *number)
{
    struct snapshot *snapshot = profile->snapshot;
    uint32_t *known = table_add(&profile->frames, (uint64_t)frame.name << 32 | frame.filename,
                                frame.line, (uint32_t)snapshot->frame_count);
    if (!known)
        return profile_no_memory(profile);
    *number = *known;
    if (*known < snapshot->frame_count)
        return true;
    if (!profile_grow(profile, &snapshot->frames, snapshot->frame_count, &profile->frame_capacity,
                      sizeof frame))
        return false;
    snapshot->frames[snapshot->frame_count++] = frame;
    return true;
}

bool profile_stack(struct profile *profile, struct snapshot_stack stack, uint32_t *number)
{
    struct snapshot *snapshot = profile->snapshot;
    uint32_t *known =
        table_add(&profile->stacks, stack.caller, stack.frame, (uint32_t)snapshot->stack_count);
    if (!known)
        return profile_no_memory(profile);
    *number = *known;
    if (*known < snapshot->stack_count)
        return true;
    if (!profile_grow(profile, &snapshot->stacks, snapshot->stack_count, &profile->stack_capacity,
                      sizeof stack))
        return false;
    snapshot->stacks[snapshot->stack_count++] = stack;
    return true;
}

bool profile_event(struct profile *profile, const struct snapshot_event *event)
{
    struct snapshot *snapshot = profile->snapshot;
    if (!profile_grow(profile, &snapshot->events, snapshot->event_count, &profile->event_capacity,
                      sizeof *event))
        return false;
    snapshot->events[snapshot->event_count++] = *event;
    return true;
}

/* The first stream, pool, stack and text are none. */
static bool begin(struct profile *profile)
{
    struct snapshot *snapshot = profile->snapshot;
    uint32_t none;
    snapshot->streams = calloc(1, sizeof *snapshot->streams);
    snapshot->pools = calloc(1, sizeof *snapshot->pools);
    snapshot->stacks = calloc(64, sizeof *snapshot->stacks);
    profile->stack_capacity = 64;
    if (!snapshot->streams || !snapshot->pools || !snapshot->stacks)
        return profile_no_memory(profile);
    snapshot->stream_count = snapshot->pool_count = snapshot->stack_count = 1;
    return profile_text(profile, "", 0, &none);
}

/* The object of a trace: its events, and what nobody here needs. */
static bool read_object(struct profile *profile)
{
    struct json_stream *stream = &profile->stream;
    struct profile_trace *trace = NULL;
    bool done = true;
    for (enum json_token token; done && (token = json_stream_next(stream)) != TOKEN_OBJECT_END;) {
        bool events = token == TOKEN_KEY && strcmp(stream->text, "traceEvents") == 0;
        token = token == TOKEN_KEY ? json_stream_next(stream) : TOKEN_FAILED;
        if (!events || trace) {
            done = json_stream_skip(stream, token);
        } else if (token != TOKEN_ARRAY) {
            done = json_stream_fail(stream, "traceEvents is no array");
        } else {
            trace = profile_trace_begin();
            done = (trace || profile_no_memory(profile)) &&
                   profile_trace_read(profile, trace, json_stream_next(stream));
        }
    }
    if (done && !trace)
        done = json_stream_fail(stream,
                                "this is JSON without the key traceEvents; of JSON, traces and "
                                "memory timelines of PyTorch's profiler are read");
    done = done && profile_trace_finish(profile, trace);
    profile_trace_free(trace);
    return done;
}

/* An array of events, as other tools write traces; or a timeline. */
static bool read_array(struct profile *profile)
{
    enum json_token token = json_stream_next(&profile->stream);
    if (token == TOKEN_ARRAY)
        return profile_timeline_read(profile);
    if (token != TOKEN_OBJECT)
        return json_stream_fail(&profile->stream, "this is JSON, and neither a trace nor a memory "
                                                  "timeline of PyTorch's profiler");
    struct profile_trace *trace = profile_trace_begin();
    bool done = trace ? profile_trace_read(profile, trace, token) : profile_no_memory(profile);
    done = done && profile_trace_finish(profile, trace);
    profile_trace_free(trace);
    return done;
}

bool profile_json_read(struct pickle_input *input, struct snapshot *snapshot,
                       struct snapshot_error *error)
{
    struct profile profile = {.stream = {.input = input}, .snapshot = snapshot};
    bool done = begin(&profile);
    if (done) {
        enum json_token token = json_stream_next(&profile.stream);
        done = token == TOKEN_OBJECT ? read_object(&profile)
               : token == TOKEN_ARRAY
                   ? read_array(&profile)
                   : json_stream_fail(&profile.stream, "neither an object nor an array of JSON");
    }
    done = done && (json_stream_next(&profile.stream) == TOKEN_END ||
                    json_stream_fail(&profile.stream, "the file goes on behind its JSON"));
    if (!done)
        snprintf(error->text, sizeof error->text, "%s", profile.stream.error);
    snapshot->profile = done;
    table_finish(&profile.texts);
    table_finish(&profile.frames);
    table_finish(&profile.stacks);
    table_finish(&profile.threads);
    return done;
}
