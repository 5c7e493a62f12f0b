/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads blocks with known lifetimes. Trusts no byte. */
#include "input/intervals.h"
#include "input/once.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 256
#define INTERVALS_MOST ((size_t)1 << 24)
#define SUM_MOST (UINT64_C(1) << 62)

enum column { COLUMN_ID, COLUMN_LOWER, COLUMN_UPPER, COLUMN_SIZE, COLUMNS };

static const char *const names[COLUMNS] = {"id", "lower", "upper", "size"};

struct reader {
    FILE *file;
    struct intervals *intervals;
    char line[LINE_BYTES];
    size_t length; /* of the line, without its end */
    uint64_t number, sum;
    enum column columns[COLUMNS]; /* by place in a line */
    char *error;
    size_t error_size;
};

static bool fail(const struct reader *reader, const char *what)
{
    snprintf(reader->error, reader->error_size, "line %" PRIu64 ": %s", reader->number, what);
    return false;
}

/* The same, with a field as far as it can be printed. */
static bool fail_field(const struct reader *reader, const char *what, const char *field,
                       const char *wanted)
{
    char shown[41], text[200];
    size_t length = 0;
    for (; length < sizeof shown - 1 && field[length]; length++)
        shown[length] = field[length] >= ' ' && field[length] < 0x7f ? field[length] : '?';
    shown[length] = '\0';
    snprintf(text, sizeof text, "%s is \"%s\", but must be %s", what, shown, wanted);
    return fail(reader, text);
}

enum line { LINE_THERE, LINE_NONE, LINE_WRONG };

static enum line next_line(struct reader *reader)
{
    reader->number++;
    reader->length = 0;
    int byte = getc(reader->file);
    if (byte == EOF)
        return ferror(reader->file) ? (fail(reader, "cannot be read"), LINE_WRONG) : LINE_NONE;
    for (; byte != EOF && byte != '\n'; byte = getc(reader->file)) {
        if (byte == '\0' || reader->length == sizeof reader->line - 1) {
            fail(reader,
                 byte ? "is longer than 255 bytes; each line is one block: id,lower,upper,size"
                      : "has a byte that is 0; the file must be text");
            return LINE_WRONG;
        }
        reader->line[reader->length++] = (char)byte;
    }
    if (reader->length && reader->line[reader->length - 1] == '\r')
        reader->length--;
    reader->line[reader->length] = '\0';
    return LINE_THERE;
}

/* Cuts the line into fields. Returns how many there are, COLUMNS + 1 for more than there may be. */
static int cut(struct reader *reader, char *fields[COLUMNS])
{
    int count = 0;
    for (char *at = reader->line; at; count++) {
        char *comma = strchr(at, ',');
        if (count == COLUMNS)
            return COLUMNS + 1;
        fields[count] = at;
        if (comma)
            *comma++ = '\0';
        at = comma;
    }
    return count;
}

static bool read_header(struct reader *reader)
{
    char *fields[COLUMNS];
    bool seen[COLUMNS] = {false};
    enum line line = next_line(reader);
    if (line != LINE_THERE)
        return line == LINE_NONE
                   ? fail(reader, "the file is empty; it must begin with id,lower,upper,size")
                   : false;
    if (cut(reader, fields) != COLUMNS)
        return fail(reader, "the columns must be these four: id,lower,upper,size");
    for (int place = 0; place < COLUMNS; place++) {
        int column = 0;
        while (column < COLUMNS && strcmp(fields[place], names[column]) != 0)
            column++;
        if (column == COLUMNS || seen[column])
            return fail_field(reader, "a column", fields[place],
                              "one of id, lower, upper and size, each once");
        seen[column] = true;
        reader->columns[place] = (enum column)column;
    }
    return true;
}

static bool parse(const char *field, uint64_t *value)
{
    *value = 0;
    if (!*field)
        return false;
    for (; *field; field++)
        if (*field < '0' || *field > '9' || __builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*field - '0'), value))
            return false;
    return true;
}

static bool read_field(struct reader *reader, enum column column, const char *field,
                       struct interval *interval)
{
    uint64_t *const values[COLUMNS] = {NULL, &interval->lower, &interval->upper, &interval->size};
    if (column != COLUMN_ID)
        return parse(field, values[column]) ||
               fail_field(reader, names[column], field, "a whole number below 2^64");
    if (!*field || strlen(field) >= sizeof interval->id)
        return fail_field(reader, "id", field, "1 to 31 bytes long");
    memcpy(interval->id, field, strlen(field) + 1);
    return true;
}

static bool add(struct reader *reader, const struct interval *interval)
{
    struct intervals *intervals = reader->intervals;
    if (interval->lower >= interval->upper)
        return fail(reader,
                    "upper must be greater than lower: a block lives from lower to before upper");
    if (!interval->size)
        return fail(reader, "size is 0; leave out a block that takes no memory");
    if (interval->size >= SUM_MOST - reader->sum)
        return fail(reader, "the sizes so far come to 2^62 or more; choose a larger unit");
    reader->sum += interval->size;
    if (intervals->count == INTERVALS_MOST)
        return fail(reader, "a file has at most 16,777,216 blocks; plan a part of it");
    if (intervals->count == intervals->capacity) {
        size_t capacity = intervals->capacity ? intervals->capacity * 2 : 256;
        struct interval *grown = reallocarray(intervals->items, capacity, sizeof *grown);
        if (!grown)
            return fail(reader, "there is not enough host memory");
        intervals->items = grown;
        intervals->capacity = capacity;
    }
    intervals->items[intervals->count++] = *interval;
    return true;
}

static bool read_block(struct reader *reader)
{
    char *fields[COLUMNS];
    struct interval interval = {.id = ""};
    if (cut(reader, fields) != COLUMNS)
        return fail(reader, "a block has four fields: those that the first line names");
    for (int place = 0; place < COLUMNS; place++)
        if (!read_field(reader, reader->columns[place], fields[place], &interval))
            return false;
    return add(reader, &interval);
}

FILE *intervals_open(const char *path)
{
    int number = once_open(path);
    FILE *file = number < 0 ? NULL : fdopen(number, "r");
    if (number >= 0 && !file)
        close(number);
    return file;
}

bool intervals_are_in(const char *path)
{
    char line[LINE_BYTES] = "";
    FILE *file = intervals_open(path);
    bool there = file && fgets(line, sizeof line, file);
    if (file)
        fclose(file);
    return there && strstr(line, "lower") && strstr(line, "upper");
}

bool intervals_read(FILE *file, struct intervals *intervals, char *error, size_t error_size)
{
    struct reader reader = {.file = file, .intervals = intervals, .error_size = error_size};
    reader.error = error;
    *intervals = (struct intervals){0};
    if (!read_header(&reader))
        return false;
    for (;;) {
        switch (next_line(&reader)) {
        case LINE_WRONG:
            return false;
        case LINE_NONE:
            return intervals->count ||
                   fail(&reader, "there is no block; each line after the first is one");
        case LINE_THERE:
            if (reader.length && !read_block(&reader))
                return false;
        }
    }
}

void intervals_finish(struct intervals *intervals)
{
    free(intervals->items);
    *intervals = (struct intervals){0};
}
