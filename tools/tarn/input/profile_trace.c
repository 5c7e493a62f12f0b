/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the meaning of a trace's events. Of an event the file gives the thread and the time, so its
 * stack is what was open there then: operators, named ranges and functions of Python. Events need
 * no order. A trace says how much was allocated in all, too; what of that the events do not explain
 * was there before, and becomes one block. */
#include "input/profile_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_US 1000

/* A range of time on a thread. */
struct span {
    int64_t begin, end; /* ns */
    uint64_t order;     /* in the file */
    uint32_t thread, frame;
};

/* An event "[memory]" or "[OutOfMemory]". */
struct point {
    int64_t time; /* ns */
    int64_t bytes, total, reserved;
    uint64_t address, order;
    uint32_t thread, stack;
    int device; /* of its kind; -1 for memory of the host */
    bool oom;
};

struct profile_trace {
    struct span *spans;
    struct point *points;
    size_t span_count, span_capacity, point_count, point_capacity;
    size_t without_address;
};

struct profile_trace *profile_trace_begin(void)
{
    return calloc(1, sizeof(struct profile_trace));
}

void profile_trace_free(struct profile_trace *trace)
{
    if (!trace)
        return;
    free(trace->spans);
    free(trace->points);
    free(trace);
}

/* --- an event --- */

enum { ARG_ADDR, ARG_BYTES, ARG_TYPE, ARG_DEVICE, ARG_TOTAL, ARG_RESERVED, ARGS };
static const char *const arg_names[ARGS] = {"Addr",      "Bytes",           "Device Type",
                                            "Device Id", "Total Allocated", "Total Reserved"};

/* What of an event is looked at. */
struct event {
    char name[JSON_TEXT_MAX + 1];
    size_t length;
    char phase; /* "X": a range, "i": a moment */
    bool framed, has_time, has_length;
    int64_t time, duration; /* ns */
    uint64_t process, thread;
    int64_t args[ARGS];
    bool has[ARGS];
};

static bool read_args(struct profile *profile, struct event *event)
{
    struct json_stream *stream = &profile->stream;
    for (enum json_token token; (token = json_stream_next(stream)) != TOKEN_OBJECT_END;) {
        int arg = 0;
        if (token != TOKEN_KEY)
            return false;
        while (arg < ARGS && strcmp(stream->text, arg_names[arg]) != 0)
            arg++;
        token = json_stream_next(stream);
        if (arg < ARGS)
            event->has[arg] = json_stream_integer(stream, token, 1, &event->args[arg]);
        if (!json_stream_skip(stream, token))
            return false;
    }
    return true;
}

/* A number, or a text that stands for one. */
static uint64_t identity(const struct json_stream *stream, enum json_token token)
{
    int64_t number;
    if (json_stream_integer(stream, token, 1, &number))
        return (uint64_t)number;
    uint64_t hash = 5381;
    for (size_t i = 0; i < stream->length; i++)
        hash = hash * 33 ^ (unsigned char)stream->text[i];
    return hash | UINT64_C(1) << 63;
}

static bool is_frame(const char *category)
{
    return strcmp(category, "cpu_op") == 0 || strcmp(category, "python_function") == 0 ||
           strcmp(category, "user_annotation") == 0;
}

static bool read_value(struct profile *profile, const char *key, enum json_token token,
                       struct event *event)
{
    struct json_stream *stream = &profile->stream;
    if (strcmp(key, "args") == 0 && token == TOKEN_OBJECT)
        return read_args(profile, event);
    if (token == TOKEN_STRING && strcmp(key, "name") == 0) {
        memcpy(event->name, stream->text, stream->length + 1);
        event->length = stream->length;
    } else if (token == TOKEN_STRING && strcmp(key, "ph") == 0) {
        event->phase = stream->text[0];
    } else if (token == TOKEN_STRING && strcmp(key, "cat") == 0) {
        event->framed = is_frame(stream->text);
    } else if (strcmp(key, "ts") == 0) {
        event->has_time = json_stream_integer(stream, token, NS_PER_US, &event->time);
    } else if (strcmp(key, "dur") == 0) {
        event->has_length = json_stream_integer(stream, token, NS_PER_US, &event->duration);
    } else if (strcmp(key, "pid") == 0) {
        event->process = identity(stream, token);
    } else if (strcmp(key, "tid") == 0) {
        event->thread = identity(stream, token);
    }
    return json_stream_skip(stream, token);
}

/* "model.py(41): forward", "<built-in method linear of type object at 0x7f...>", "aten::mm". */
static bool make_frame(struct profile *profile, const char *name, size_t length, uint32_t *number)
{
    struct snapshot_frame frame = {0};
    const char *colon = NULL, *open = NULL, *place = strstr(name, " at 0x");
    for (const char *at = strstr(name, "): "); at && !colon; at = strstr(at + 1, "): "))
        colon = at;
    for (const char *at = colon; at && at > name && !open; at--)
        open = *at == '(' ? at : NULL;
    if (open && strspn(open + 1, "0123456789") == (size_t)(colon - open - 1)) {
        frame.line = (uint32_t)strtoul(open + 1, NULL, 10);
        return profile_text(profile, name, (size_t)(open - name), &frame.filename) &&
               profile_text(profile, colon + 3, length - (size_t)(colon + 3 - name), &frame.name) &&
               profile_frame(profile, frame, number);
    }
    if (name[0] == '<' && place) /* each object has another address */
        length = (size_t)(place - name);
    return profile_text(profile, name, length, &frame.name) &&
           profile_frame(profile, frame, number);
}

static bool add_span(struct profile *profile, struct profile_trace *trace,
                     const struct event *event, uint64_t order, uint32_t thread)
{
    struct span span = {.begin = event->time, .order = order, .thread = thread};
    if (__builtin_add_overflow(event->time, event->duration, &span.end) || event->duration < 0 ||
        !event->length)
        return true;
    if (!make_frame(profile, event->name, event->length, &span.frame) ||
        !profile_grow(profile, &trace->spans, trace->span_count, &trace->span_capacity,
                      sizeof span))
        return false;
    trace->spans[trace->span_count++] = span;
    return true;
}

static bool add_point(struct profile *profile, struct profile_trace *trace,
                      const struct event *event, uint64_t order, uint32_t thread, bool oom)
{
    struct json_stream *stream = &profile->stream;
    const int64_t *args = event->args;
    struct point point = {.time = event->time,
                          .bytes = args[ARG_BYTES],
                          .total = args[ARG_TOTAL],
                          .reserved = args[ARG_RESERVED],
                          .address = (uint64_t)args[ARG_ADDR],
                          .order = order,
                          .thread = thread,
                          .device = -1,
                          .oom = oom};
    if (!event->has_time || !event->has[ARG_BYTES])
        return json_stream_fail(stream, "an event %s has no %s", event->name,
                                event->has_time ? "Bytes" : "ts");
    uint64_t size = (uint64_t)(point.bytes < 0 ? -point.bytes : point.bytes);
    if (size > UINT64_MAX - point.address)
        return json_stream_fail(stream, "an event %s goes beyond the end of the address space",
                                event->name);
    bool host = !event->has[ARG_TYPE] || args[ARG_TYPE] == 0;
    if (!host && (args[ARG_DEVICE] < 0 || args[ARG_DEVICE] >= PROFILE_DEVICES - 1))
        return json_stream_fail(stream, "an event %s has a Device Id that is not from 0 to %d",
                                event->name, PROFILE_DEVICES - 2);
    point.device = host ? -1 : (int)args[ARG_DEVICE];
    trace->without_address += !oom && !event->has[ARG_ADDR];
    if (!profile_grow(profile, &trace->points, trace->point_count, &trace->point_capacity,
                      sizeof point))
        return false;
    trace->points[trace->point_count++] = point;
    return true;
}

static bool read_event(struct profile *profile, struct profile_trace *trace, uint64_t order)
{
    struct json_stream *stream = &profile->stream;
    struct event event;
    char key[16];
    event.name[0] = '\0';
    memset((char *)&event + offsetof(struct event, length), 0,
           sizeof event - offsetof(struct event, length));
    for (enum json_token token; (token = json_stream_next(stream)) != TOKEN_OBJECT_END;) {
        if (token != TOKEN_KEY)
            return false;
        snprintf(key, sizeof key, "%.15s", stream->text);
        if (!read_value(profile, key, json_stream_next(stream), &event))
            return false;
    }
    bool memory = strcmp(event.name, "[memory]") == 0,
         oom = strcmp(event.name, "[OutOfMemory]") == 0, span = event.phase == 'X' && event.framed;
    if (!memory && !oom && !(span && event.has_time && event.has_length))
        return true;
    uint32_t *thread = table_add(&profile->threads, event.process, event.thread,
                                 (uint32_t)profile->threads.count + 1);
    if (!thread)
        return profile_no_memory(profile);
    return memory || oom ? add_point(profile, trace, &event, order, *thread, oom)
                         : add_span(profile, trace, &event, order, *thread);
}

bool profile_trace_read(struct profile *profile, struct profile_trace *trace, enum json_token token)
{
    for (uint64_t order = 0; token != TOKEN_ARRAY_END; order++) {
        if (token == TOKEN_OBJECT ? !read_event(profile, trace, order)
                                  : !json_stream_skip(&profile->stream, token))
            return false;
        token = json_stream_next(&profile->stream);
    }
    return true;
}

/* --- stacks --- */

static int by_order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* On each thread by time; of those that begin together the longest first. */
static int by_thread(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end != b->end ? a->end > b->end ? -1 : 1 : by_order(a->order, b->order);
}

static int points_by_thread(const void *left, const void *right)
{
    const struct point *a = left, *b = right;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    return a->time != b->time ? a->time < b->time ? -1 : 1 : by_order(a->order, b->order);
}

static int points_by_time(const void *left, const void *right)
{
    const struct point *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->time != b->time ? a->time < b->time ? -1 : 1 : by_order(a->order, b->order);
}

struct open_span {
    int64_t end;
    uint32_t stack;
};

/* Gives each point the stack of the ranges that are open on its thread. */
static bool find_stacks(struct profile *profile, struct profile_trace *trace)
{
    size_t next = 0, depth = 0;
    struct open_span *open = calloc(trace->span_count + 1, sizeof *open);
    if (!open)
        return profile_no_memory(profile);
    if (trace->span_count)
        qsort(trace->spans, trace->span_count, sizeof *trace->spans, by_thread);
    qsort(trace->points, trace->point_count, sizeof *trace->points, points_by_thread);
    bool done = true;
    for (size_t i = 0; i < trace->point_count && done; i++) {
        struct point *point = &trace->points[i];
        if (!i || point[-1].thread != point->thread)
            depth = 0;
        for (; next < trace->span_count && done; next++) {
            const struct span *span = &trace->spans[next];
            if (span->thread > point->thread ||
                (span->thread == point->thread && span->begin > point->time))
                break;
            if (span->thread < point->thread || span->end < point->time)
                continue;
            while (depth && open[depth - 1].end < span->begin)
                depth--;
            struct snapshot_stack stack = {depth ? open[depth - 1].stack : 0, span->frame};
            done = profile_stack(profile, stack, &open[depth].stack);
            open[depth++].end = span->end;
        }
        while (depth && open[depth - 1].end < point->time)
            depth--;
        point->stack = depth ? open[depth - 1].stack : 0;
    }
    free(open);
    return done;
}

/* --- traces --- */

/* The bytes that were allocated before the first event, and that no free among the events explains:
 * `points` are all of one device, by time. `beyond` gets an address behind all others. */
static bool find_before(struct profile *profile, const struct point *points, size_t count,
                        uint64_t *before, uint64_t *beyond)
{
    struct table live = {0};
    int64_t explained = 0;
    bool first = true, done = true;
    *before = *beyond = 0;
    for (size_t i = 0; i < count && done; i++) {
        const struct point *point = &points[i];
        uint64_t size = (uint64_t)(point->bytes < 0 ? -point->bytes : point->bytes);
        if (point->oom)
            continue;
        uint32_t *known = table_add(&live, point->address, 0, 0);
        done = known != NULL;
        if (first && point->total > point->bytes)
            *before = (uint64_t)(point->total - point->bytes);
        first = false;
        if (done && point->bytes < 0 && !*known &&
            __builtin_add_overflow(explained, -point->bytes, &explained))
            explained = INT64_MAX;
        if (done)
            *known = point->bytes > 0;
        *beyond = point->address + size > *beyond ? point->address + size : *beyond;
    }
    table_finish(&live);
    *before = *before > (uint64_t)explained ? *before - (uint64_t)explained : 0;
    if (*beyond > UINT64_MAX - 512)
        *before = 0; /* no room behind the others */
    else
        *beyond = (*beyond | 511) + 1;
    return done || profile_no_memory(profile);
}

static int64_t to_us(int64_t ns)
{
    return ns / NS_PER_US - (ns % NS_PER_US < 0);
}

static bool add_trace(struct profile *profile, const struct point *points, size_t count, int device)
{
    struct snapshot *snapshot = profile->snapshot;
    struct snapshot_trace *trace = &snapshot->traces[device];
    uint64_t before, beyond;
    size_t from = snapshot->event_count;
    if (!find_before(profile, points, count, &before, &beyond))
        return false;
    if (before && before <= UINT64_MAX - beyond) {
        struct snapshot_event event = {.action = SNAPSHOT_ALLOC,
                                       .address = beyond,
                                       .size = before,
                                       .time_us = to_us(points[0].time)};
        static const char tag[] = "from before the profile";
        if (!profile_text(profile, tag, sizeof tag - 1, &event.tag) ||
            !profile_event(profile, &event))
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        const struct point *point = &points[i];
        bool allocates = point->bytes > 0;
        struct snapshot_event event = {
            .action = (uint8_t)(point->oom     ? SNAPSHOT_OOM
                                : allocates    ? SNAPSHOT_ALLOC
                                : point->bytes ? SNAPSHOT_FREE_REQUESTED
                                               : SNAPSHOT_OTHER),
            .address = point->oom ? 0 : point->address,
            .size = (uint64_t)(point->bytes < 0 ? -point->bytes : point->bytes),
            .time_us = to_us(point->time),
            .stack = point->stack,
            .thread = point->thread};
        if (!profile_event(profile, &event))
            return false;
        uint64_t reserved = point->reserved > 0 ? (uint64_t)point->reserved : 0;
        trace->reserved_most = reserved > trace->reserved_most ? reserved : trace->reserved_most;
    }
    trace->event_count = snapshot->event_count - from;
    return true;
}

/* Devices keep their numbers, and the host's memory comes behind them. */
bool profile_trace_finish(struct profile *profile, struct profile_trace *trace)
{
    struct snapshot *snapshot = profile->snapshot;
    size_t count = trace->point_count;
    if (trace->without_address)
        return json_stream_fail(&profile->stream,
                                "its events [memory] have no Addr: PyTorch 1.10 and "
                                "later record it");
    if (!count)
        return json_stream_fail(&profile->stream,
                                "the trace has no memory events; profile_memory=True "
                                "of torch.profiler.profile() records them");
    if (!find_stacks(profile, trace))
        return false;
    qsort(trace->points, count, sizeof *trace->points, points_by_time);
    int last = trace->points[count - 1].device, devices = last + 1;
    bool host = trace->points[0].device < 0;
    snapshot->traces = calloc((size_t)devices + host, sizeof *snapshot->traces);
    if (!snapshot->traces)
        return profile_no_memory(profile);
    snapshot->trace_count = (size_t)devices + host;
    snapshot->host_device = host ? devices + 1 : 0;
    for (size_t from = 0, to; from < count; from = to) {
        int device = trace->points[from].device;
        for (to = from; to < count && trace->points[to].device == device;)
            to++;
        if (!add_trace(profile, trace->points + from, to - from, device < 0 ? devices : device))
            return false;
    }
    /* The runs in `events` are in the order of the points: the host's first */
    size_t at = 0;
    for (size_t i = 0; i < snapshot->trace_count; i++) {
        struct snapshot_trace *one = &snapshot->traces[host ? (i ? i - 1 : (size_t)devices) : i];
        one->events = snapshot->events + at;
        at += one->event_count;
    }
    return true;
}
