/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the meaning of RMM's CSV log: one header line, then a line per event, all of which is
 * printed by one logger, so in one order.
 *
 *     Thread,Time,Action,Pointer,Size,Stream
 *     2342727,15:47:02.841961,allocate,0x10012400000,1048576,0x0
 *
 * Pointers and streams are hexadecimal, with 0x or, in some versions, without; null may be "(nil)".
 * A time is one of the day, which begins again at midnight; until rapidsai/rmm#755 there was a
 * colon before its microseconds. Seconds since some moment are read too. Nothing is assumed about
 * the bytes: a line is looked at where it lies, in a window of fixed size. */
#include "input/rmm_csv.h"

#include "table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512
#define DAY_US INT64_C(86400000000)
#define TIME_MAX_US (INT64_C(1) << 60)

enum field {
    FIELD_THREAD,
    FIELD_TIME,
    FIELD_ACTION,
    FIELD_POINTER,
    FIELD_SIZE,
    FIELD_STREAM,
    FIELDS
};

static const char *const names[FIELDS] = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};

static const struct {
    const char *name;
    enum snapshot_action action;
} actions[] = {
    {"allocate", SNAPSHOT_ALLOC},
    {"free", SNAPSHOT_FREE_REQUESTED},
    {"deallocate", SNAPSHOT_FREE_REQUESTED}, /* what the user guide calls it */
    {"allocate failure", SNAPSHOT_OOM},
};

/* A piece of the line at hand. */
struct text {
    const char *at;
    size_t length;
};

struct reader {
    struct pickle_input *input;
    struct snapshot *snapshot;
    struct snapshot_error *error;
    size_t capacity;      /* of the events */
    struct table threads; /* their names in the log, to numbers from 1 */
    struct table streams; /* the same, to places in the snapshot's table */
    size_t stream_capacity;
    uint64_t line;     /* at hand, from 1 */
    int64_t day, last; /* us: of the midnights so far; the last time of day */
    bool cut;          /* the line at hand is the last one, and does not end */
};

static bool fail(struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(struct reader *reader, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(reader->error->text, sizeof reader->error->text, "line %" PRIu64 ": %s", reader->line,
             what);
    return false;
}

/* A field that is not what it must be, with as much of it as is fit to be printed. */
static bool fail_field(struct reader *reader, enum field field, struct text text,
                       const char *wanted)
{
    char shown[41];
    size_t length = text.length < sizeof shown - 1 ? text.length : sizeof shown - 1;
    for (size_t i = 0; i < length; i++)
        shown[i] = text.at[i] >= ' ' && text.at[i] < 0x7f ? text.at[i] : '?';
    shown[length] = '\0';
    return fail(reader, "field %s is \"%s\"%s, not %s", names[field], shown,
                length < text.length ? "..." : "", wanted);
}

/* The next line without its end. False at the end of the file, and where `error` says why. */
static bool next_line(struct reader *reader, struct text *line)
{
    struct pickle_input *input = reader->input;
    reader->line++;
    bool whole = pickle_input_need(input, LINE_MAX_BYTES);
    if (!whole && input->error[0]) {
        snprintf(reader->error->text, sizeof reader->error->text, "%s", input->error);
        return false;
    }
    size_t room = (size_t)(input->end - input->next);
    room = room < LINE_MAX_BYTES ? room : LINE_MAX_BYTES;
    if (!room)
        return false;
    const uint8_t *end = memchr(input->next, '\n', room);
    if (!end && whole)
        return fail(reader, "is longer than %d bytes; no line of an RMM log is", LINE_MAX_BYTES);
    *line = (struct text){(const char *)input->next, end ? (size_t)(end - input->next) : room};
    reader->cut = !end;
    input->next += line->length + (end != NULL);
    if (line->length && line->at[line->length - 1] == '\r')
        line->length--;
    return true;
}

static bool is_text(struct text text, const char *wanted)
{
    return text.length == strlen(wanted) && memcmp(text.at, wanted, text.length) == 0;
}

/* Returns how many fields a line has. A line of FIELDS is cut at its commas. */
static size_t cut_fields(struct text line, struct text fields[FIELDS])
{
    const char *at = line.at, *end = line.at + line.length;
    size_t count = 1;
    for (const char *comma = at; (comma = memchr(comma, ',', (size_t)(end - comma))); comma++)
        count++;
    for (size_t i = 0; i < FIELDS && count == FIELDS; i++) {
        const char *comma = i + 1 < FIELDS ? memchr(at, ',', (size_t)(end - at)) : NULL;
        fields[i] = (struct text){at, (size_t)((comma ? comma : end) - at)};
        at = comma ? comma + 1 : end;
    }
    return count;
}

static int digit_of(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    if (letter >= 'a' && letter <= 'f')
        return letter - 'a' + 10;
    return letter >= 'A' && letter <= 'F' ? letter - 'A' + 10 : 16;
}

/* Digits alone, that fit into 64 bits. */
static bool read_digits(struct text text, unsigned base, uint64_t *number)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned)digit_of(text.at[i]);
        if (digit >= base || __builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value))
            return false;
    }
    *number = value;
    return text.length > 0;
}

static bool read_pointer(struct text text, uint64_t *number)
{
    if (is_text(text, "(nil)")) {
        *number = 0;
        return true;
    }
    if (text.length > 2 && text.at[0] == '0' && text.at[1] == 'x')
        text = (struct text){text.at + 2, text.length - 2};
    return read_digits(text, 16, number);
}

/* Seconds with at most six digits behind `mark`, in microseconds. */
static bool read_seconds(struct text text, char mark, int64_t *us)
{
    const char *point = memchr(text.at, mark, text.length);
    struct text whole = {text.at, point ? (size_t)(point - text.at) : text.length};
    uint64_t seconds, fraction = 0;
    if (!read_digits(whole, 10, &seconds) || seconds > (uint64_t)TIME_MAX_US / 1000000)
        return false;
    if (point) {
        struct text digits = {point + 1, text.length - whole.length - 1};
        if (digits.length > 6 || !read_digits(digits, 10, &fraction))
            return false;
        for (size_t i = digits.length; i < 6; i++)
            fraction *= 10;
    }
    *us = (int64_t)(seconds * 1000000 + fraction);
    return true;
}

/* HH:MM:SS.ffffff, HH:MM:SS:ffffff, or seconds. A time of day that falls by more than half a day is
 * the next day's. */
static bool read_time(struct reader *reader, struct text text, int64_t *us)
{
    uint64_t hours, minutes;
    if (text.length < 6 || text.at[2] != ':' || text.at[5] != ':')
        return read_seconds(text, '.', us);
    struct text seconds = {text.at + 6, text.length - 6};
    char mark = memchr(seconds.at, ':', seconds.length) ? ':' : '.';
    if (!read_digits((struct text){text.at, 2}, 10, &hours) ||
        !read_digits((struct text){text.at + 3, 2}, 10, &minutes) ||
        !read_seconds(seconds, mark, us) || hours > 23 || minutes > 59 ||
        *us >= 61 * INT64_C(1000000))
        return false;
    int64_t time = *us + (int64_t)(hours * 60 + minutes) * 60 * 1000000;
    if (time < reader->last - DAY_US / 2)
        reader->day += DAY_US;
    reader->last = time;
    *us = reader->day + time;
    return true;
}

static bool read_action(struct text text, enum snapshot_action *action)
{
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (is_text(text, actions[i].name)) {
            *action = actions[i].action;
            return true;
        }
    return false;
}

static bool fail_memory(struct reader *reader)
{
    return fail(reader, "there is not enough host memory");
}

/* Makes room for one more element of an array. */
static bool reserve_one(struct reader *reader, void **array, size_t count, size_t *capacity,
                        size_t element)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = reallocarray(*array, wanted, element);
    if (!grown)
        return fail_memory(reader);
    *array = grown;
    *capacity = wanted;
    return true;
}

/* The place of a stream in the snapshot's table. */
static bool place_stream(struct reader *reader, uint64_t stream, uint32_t *place)
{
    struct snapshot *snapshot = reader->snapshot;
    const uint32_t *known =
        table_add(&reader->streams, stream, 0, (uint32_t)snapshot->stream_count);
    void *streams = snapshot->streams;
    if (!known)
        return fail_memory(reader);
    *place = *known;
    if (*known < snapshot->stream_count)
        return true;
    if (!reserve_one(reader, &streams, snapshot->stream_count, &reader->stream_capacity,
                     sizeof *snapshot->streams))
        return false;
    snapshot->streams = streams;
    snapshot->streams[snapshot->stream_count++] = stream;
    return true;
}

static bool read_event(struct reader *reader, struct text line, struct snapshot_event *event)
{
    struct text fields[FIELDS];
    uint64_t thread, stream;
    enum snapshot_action action;
    *event = (struct snapshot_event){0};
    size_t count = cut_fields(line, fields);
    if (count != FIELDS)
        return fail(reader, "has %zu fields, where the header names %d", count, (int)FIELDS);
    if (!read_digits(fields[FIELD_THREAD], 10, &thread))
        return fail_field(reader, FIELD_THREAD, fields[FIELD_THREAD], "a thread's number");
    if (!read_time(reader, fields[FIELD_TIME], &event->time_us))
        return fail_field(reader, FIELD_TIME, fields[FIELD_TIME], "a time as 15:47:02.841961");
    if (!read_action(fields[FIELD_ACTION], &action))
        return fail_field(reader, FIELD_ACTION, fields[FIELD_ACTION],
                          "allocate, free or allocate failure");
    if (!read_pointer(fields[FIELD_POINTER], &event->address))
        return fail_field(reader, FIELD_POINTER, fields[FIELD_POINTER],
                          "an address as 0x7f8a40000000");
    if (!read_digits(fields[FIELD_SIZE], 10, &event->size))
        return fail_field(reader, FIELD_SIZE, fields[FIELD_SIZE], "a number of bytes");
    if (!read_pointer(fields[FIELD_STREAM], &stream))
        return fail_field(reader, FIELD_STREAM, fields[FIELD_STREAM], "a stream as 0x0");
    if (event->size > UINT64_MAX - event->address)
        return fail_field(reader, FIELD_SIZE, fields[FIELD_SIZE], "within the address space");

    uint32_t *number = table_add(&reader->threads, thread, 0, (uint32_t)reader->threads.count + 1);
    if (!number)
        return fail_memory(reader);
    event->thread = *number;
    bool nothing = action != SNAPSHOT_OOM && !event->address; /* asked for, or given back */
    event->action = (uint8_t)(nothing ? SNAPSHOT_OTHER : action);
    return place_stream(reader, stream, &event->stream);
}

static bool add_event(struct reader *reader, const struct snapshot_event *event)
{
    struct snapshot *snapshot = reader->snapshot;
    void *events = snapshot->events;
    if (!reserve_one(reader, &events, snapshot->event_count, &reader->capacity,
                     sizeof *snapshot->events))
        return false;
    snapshot->events = events;
    snapshot->events[snapshot->event_count++] = *event;
    return true;
}

/* Reads the events. The log of a program that crashed usually ends within a line. The cut last
 * field may read as a whole number: a stream that no other line has. */
static bool read_events(struct reader *reader)
{
    struct text line;
    struct snapshot_event event;
    while (next_line(reader, &line)) {
        if (!line.length)
            continue;
        size_t streams = reader->snapshot->stream_count;
        bool read = read_event(reader, line, &event),
             known = reader->snapshot->stream_count == streams;
        if (reader->cut && (!read || !known)) {
            *reader->error = (struct snapshot_error){{0}};
            reader->snapshot->stream_count = streams;
            reader->snapshot->lost_lines = 1;
        } else if (!read || !add_event(reader, &event)) {
            return false;
        }
    }
    return !reader->error->text[0];
}

bool rmm_csv_read(struct pickle_input *input, struct snapshot *snapshot,
                  struct snapshot_error *error)
{
    struct reader reader = {.input = input, .snapshot = snapshot, .error = error};
    struct text line;
    if (!next_line(&reader, &line))
        return error->text[0] ? false : fail(&reader, "the header is missing");
    if (line.length >= sizeof RMM_CSV_MARK - 1 &&
        memcmp(line.at, RMM_CSV_MARK, sizeof RMM_CSV_MARK - 1) == 0)
        line = (struct text){line.at + sizeof RMM_CSV_MARK - 1,
                             line.length - (sizeof RMM_CSV_MARK - 1)};
    if (!is_text(line, RMM_CSV_HEADER))
        return fail(&reader, "the header of an RMM log is %s, and nothing else", RMM_CSV_HEADER);

    uint32_t none; /* stream 0 has place 0 */
    bool done = place_stream(&reader, 0, &none) && read_events(&reader);
    snapshot->traces = calloc(1, sizeof *snapshot->traces);
    snapshot->pools = calloc(1, sizeof *snapshot->pools);
    snapshot->stacks = calloc(1, sizeof *snapshot->stacks);
    if (done && !(snapshot->traces && snapshot->pools && snapshot->stacks))
        done = fail_memory(&reader);
    if (done) {
        snapshot->rmm = true;
        snapshot->trace_count = snapshot->pool_count = snapshot->stack_count = 1;
        snapshot->traces[0] = (struct snapshot_trace){.events = snapshot->events,
                                                      .event_count = snapshot->event_count};
    }
    table_finish(&reader.threads);
    table_finish(&reader.streams);
    return done;
}
