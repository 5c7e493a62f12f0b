/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranks as text and as JSON. */
#include "analysis/ranks.h"

#include "json_print.h"
#include "name.h"
#include "units.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_LEAST = 14, NAME_MOST = 32 };

static const char *const by_names[ANALYSIS_BY_COUNT] = {
    [ANALYSIS_BY_TAG] = "tag",           [ANALYSIS_BY_TOP] = "first part of the tag",
    [ANALYSIS_BY_CATEGORY] = "category", [ANALYSIS_BY_SITE] = "call site",
    [ANALYSIS_BY_MODULE] = "module",     [ANALYSIS_BY_STREAM] = "stream",
    [ANALYSIS_BY_POOL] = "pool",         [ANALYSIS_BY_THREAD] = "thread",
};

/* --- text --- */

/* Columns for names in the tables. */
static int name_columns(const struct ranks *ranks)
{
    size_t most = NAME_LEAST;
    for (size_t i = 0; i < ranks->count; i++)
        most = strlen(ranks->items[i].name) > most ? strlen(ranks->items[i].name) : most;
    return most < NAME_MOST ? (int)most : NAME_MOST;
}

/* A name in its columns; of a longer one the end. */
static void write_name(FILE *out, const char *name, int columns)
{
    size_t length = strlen(name), wide = (size_t)columns;
    const char *shown = length > wide ? name + length - wide : name;
    while (((unsigned char)*shown & 0xc0) == 0x80)
        shown++;
    fprintf(out, "%-*s", columns, shown);
}

static void write_rank(FILE *out, const struct ranks *ranks, const struct rank *rank)
{
    const struct analysis *analysis = rank->analysis;
    uint64_t peak = analysis->at_peak.allocated;
    uint64_t far = peak > ranks->median ? peak - ranks->median : ranks->median - peak;
    char growth[48];
    snprintf(growth, sizeof growth, "%s%s",
             !far                   ? ""
             : peak > ranks->median ? "+"
                                    : "-",
             units_bytes(far).text);
    write_name(out, rank->name, name_columns(ranks));
    fprintf(out, " %11s %12s %11s %16s %14zu", units_bytes(peak).text, growth,
            units_bytes(analysis->at_peak_reserved.reserved).text,
            units_bytes(analysis->at_peak_reserved.unused).text, analysis->oom_count);
    if (rank->capacity)
        fprintf(out, " %11s", units_bytes(rank->capacity).text);
    putc('\n', out);
}

/* A rank's name in a table, whose other columns are counted. */
static void write_difference(FILE *out, const struct ranks *ranks,
                             const struct rank_difference *difference,
                             const struct report_options *options)
{
    int columns = name_columns(ranks);
    fprintf(out, "%11s %11s %11s  ", units_bytes(difference->least).text,
            units_bytes(difference->median).text, units_bytes(difference->most).text);
    write_name(out, ranks->items[difference->highest].name, columns);
    fputs("  ", out);
    report_print_label(out, difference->label, options->width - 39 - columns);
    putc('\n', out);
}

static bool write_differences(FILE *out, const struct ranks *ranks, enum analysis_by by,
                              const struct report_options *options)
{
    size_t count;
    struct rank_difference *differences = ranks_differences(ranks, by, &count);
    if (!differences)
        return false;
    if (count || options->by)
        fprintf(out, "\n%11s %11s %11s  %-*s  by %s\n", "least", "median", "most",
                name_columns(ranks), "most in", by_names[by]);
    for (size_t i = 0; i < count && i < options->rows; i++)
        write_difference(out, ranks, &differences[i], options);
    if (count > options->rows)
        fprintf(out, "%zu more differ\n", count - options->rows);
    free(differences);
    return true;
}

bool ranks_text_write(FILE *out, const struct ranks *ranks, const struct report_options *options)
{
    unsigned asked = options->by ? options->by : 1U << ranks->cause | 1U << ANALYSIS_BY_CATEGORY;
    bool done = true;
    int columns = name_columns(ranks);
    fprintf(out, "%zu %ss\n\n", ranks->count, ranks->noun);
    for (size_t i = 0; i < ranks->sentence_count; i++)
        report_print_wrapped(out, ranks->sentences[i], options);
    fprintf(out, "\n%-*s %11s %12s %11s %16s %14s\n", columns, ranks->noun, "peak", "from median",
            "reserved", "free in reserved", "out of memory");
    for (size_t i = 0; i < ranks->count; i++)
        write_rank(out, ranks, &ranks->items[i]);
    for (enum analysis_by by = 0; done && by < ANALYSIS_BY_COUNT; by++)
        if (asked >> by & 1)
            done = write_differences(out, ranks, by, options);
    return done && !ferror(out);
}

/* --- JSON --- */

static json_t *json_rank(const struct rank *rank)
{
    const struct analysis *analysis = rank->analysis;
    json_t *number = rank->numbered ? json_integer((json_int_t)rank->number) : json_null();
    json_t *capacity = rank->capacity ? json_integer((json_int_t)rank->capacity) : json_null();
    json_t *failed = rank->failed_us == SNAPSHOT_NO_TIME
                         ? json_null()
                         : json_integer((json_int_t)rank->failed_us);
    return json_pack(
        "{s:s, s:o, s:s, s:I, s:i, s:I, s:I, s:I, s:I, s:o, s:o}", "name", rank->name, "rank",
        number, "file", name_valid(rank->file->path).text, "place", (json_int_t)rank->place,
        "device", analysis->device, "allocated", (json_int_t)analysis->at_peak.allocated,
        "reserved", (json_int_t)analysis->at_peak_reserved.reserved, "free",
        (json_int_t)analysis->at_peak_reserved.unused, "out_of_memory",
        (json_int_t)analysis->oom_count, "out_of_memory_us", failed, "capacity", capacity);
}

static json_t *json_differences(const struct ranks *ranks, enum analysis_by by, size_t rows)
{
    size_t count;
    struct rank_difference *differences = ranks_differences(ranks, by, &count);
    json_t *array = differences ? json_array() : NULL;
    for (size_t i = 0; array && i < count && i < rows; i++)
        array =
            append(array, json_pack("{s:s, s:I, s:I, s:I, s:s, s:s}", "name", differences[i].label,
                                    "least", (json_int_t)differences[i].least, "median",
                                    (json_int_t)differences[i].median, "most",
                                    (json_int_t)differences[i].most, "least_in",
                                    ranks->items[differences[i].lowest].name, "most_in",
                                    ranks->items[differences[i].highest].name));
    free(differences);
    return array;
}

json_t *ranks_json(const struct ranks *ranks, unsigned by, size_t rows)
{
    json_t *items = json_array(), *sentences = json_array(), *differences = json_object();
    for (size_t i = 0; i < ranks->count; i++)
        items = append(items, json_rank(&ranks->items[i]));
    for (size_t i = 0; i < ranks->sentence_count; i++)
        sentences = append(sentences, json_string(ranks->sentences[i]));
    for (enum analysis_by each = 0; differences && each < ANALYSIS_BY_COUNT; each++)
        if ((!by || by >> each & 1) && json_object_set_new(differences, report_by_name(each),
                                                           json_differences(ranks, each, rows))) {
            json_decref(differences);
            differences = NULL;
        }
    return json_pack("{s:s, s:o, s:I, s:s, s:o, s:o}", "noun", ranks->noun, "ranks", items,
                     "median", (json_int_t)ranks->median, "by", report_by_name(ranks->cause),
                     "advice", sentences, "differences", differences);
}

bool ranks_json_write(FILE *out, const struct ranks *ranks, const struct report_options *options)
{
    json_t *value = ranks_json(ranks, options->by, options->rows);
    bool done = json_print(value, out);
    json_decref(value);
    return done;
}
