/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What `tarn top` shows, as lines of text: a bar and figures a device, then tables, the largest
 * first. libsmartcols lays the tables out. The same lines serve a screen, which has a width and few
 * rows, and a file. */
#include "top/top.h"
#include "top/top_graph.h"
#include "top/top_text.h"
#include "units.h"

#include <inttypes.h>
#include <libsmartcols.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#define BAR_LEAST 20
#define BAR_MOST 120
#define WIDTH_OF_FILES 100 /* columns, where there is no terminal: of bars */

/* An order of records by which the largest come first. */
struct row {
    uint64_t key;
    const void *record;
};

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const struct row *)a)->key, y = ((const struct row *)b)->key;
    return (x < y) - (x > y);
}

/* Figures -------------------------------------------------------------------------------------- */

static struct units_text bytes_of(int64_t bytes)
{
    return units_bytes(bytes > 0 ? (uint64_t)bytes : 0);
}

static struct units_text count_of(int64_t count)
{
    return units_count(count > 0 ? (uint64_t)count : 0);
}

static struct units_text limit_text(uint64_t limit)
{
    struct units_text none = {"none"};
    return limit == SURVEY_UNKNOWN ? none : units_bytes(limit);
}

static double rate(int64_t before, int64_t now, double seconds)
{
    return now > before ? ((double)now - (double)before) / seconds : 0;
}

struct top_rates top_rates_of(const struct top_reading *before, const struct top_reading *now,
                              const struct survey_device *device)
{
    struct top_rates rates = {0};
    const struct survey_device *old = NULL;
    for (uint32_t i = 0; before && i < before->survey.device_count.here; i++)
        if (before->survey.devices[i].number == device->number)
            old = &before->survey.devices[i];
    if (!old || now->survey.taken_ns <= before->survey.taken_ns)
        return rates;
    double seconds = (double)(now->survey.taken_ns - before->survey.taken_ns) / 1e9;
    const tarn_stats *a = &old->stats, *b = &device->stats;
    rates.known = true;
    rates.allocations = rate(a->allocation[TARN_STAT_ALL].allocated,
                             b->allocation[TARN_STAT_ALL].allocated, seconds);
    rates.frees =
        rate(a->allocation[TARN_STAT_ALL].freed, b->allocation[TARN_STAT_ALL].freed, seconds);
    rates.bytes = rate(a->allocated_bytes[TARN_STAT_ALL].allocated,
                       b->allocated_bytes[TARN_STAT_ALL].allocated, seconds);
    rates.driver_calls = rate(a->num_device_alloc, b->num_device_alloc, seconds) +
                         rate(a->num_device_free, b->num_device_free, seconds);
    rates.driver_bytes = rate(a->reserved_bytes[TARN_STAT_ALL].allocated,
                              b->reserved_bytes[TARN_STAT_ALL].allocated, seconds) +
                         rate(a->reserved_bytes[TARN_STAT_ALL].freed,
                              b->reserved_bytes[TARN_STAT_ALL].freed, seconds);
    return rates;
}

double top_fragmentation(const struct survey_device *device)
{
    if (!device->spans || device->largest_span >= device->spans)
        return 0;
    return 1 - (double)device->largest_span / (double)device->spans;
}

static uint64_t as_rate(double value)
{
    return value < 1e18 ? (uint64_t)(value + 0.5) : UINT64_C(1000000000000000000);
}

/* "1 h 02 min" */
struct units_text top_since(uint64_t started)
{
    struct units_text text = {"?"};
    time_t now = time(NULL);
    uint64_t seconds = (uint64_t)now > started ? (uint64_t)now - started : 0;
    if (seconds < 120)
        snprintf(text.text, sizeof text.text, "%" PRIu64 " s", seconds);
    else if (seconds < 7200)
        snprintf(text.text, sizeof text.text, "%" PRIu64 " min", seconds / 60);
    else if (seconds < 172800)
        snprintf(text.text, sizeof text.text, "%" PRIu64 " h %02" PRIu64 " min", seconds / 3600,
                 seconds / 60 % 60);
    else
        snprintf(text.text, sizeof text.text, "%" PRIu64 " days", seconds / 86400);
    return text;
}

/* A device ------------------------------------------------------------------------------------- */

/* The parts of a device's memory, in the order of the bar; what is left is free. */
enum part { PART_BLOCKS, PART_WAITING, PART_FREE, PART_OTHERS, PARTS };

static const struct {
    const char *fancy, *plain, *name;
} part_looks[PARTS] = {
    [PART_BLOCKS] = {"\u2588", "#", "blocks"},
    [PART_WAITING] = {"\u2593", "+", "waiting"},
    [PART_FREE] = {"\u2592", "-", "free in tarn"},
    [PART_OTHERS] = {"\u2591", ":", "others"},
};

static uint64_t less(uint64_t value, uint64_t part)
{
    return value > part ? value - part : 0;
}

static void parts_of(const struct survey_device *device, uint64_t parts[PARTS])
{
    uint64_t reserved = (uint64_t)device->stats.reserved_bytes[TARN_STAT_ALL].current;
    uint64_t active = (uint64_t)device->stats.active_bytes[TARN_STAT_ALL].current;
    uint64_t blocks = (uint64_t)device->stats.allocated_bytes[TARN_STAT_ALL].current;
    uint64_t taken = device->free == SURVEY_UNKNOWN ? reserved : less(device->total, device->free);
    parts[PART_BLOCKS] = blocks;
    parts[PART_WAITING] = less(active, blocks);
    parts[PART_FREE] = less(reserved, active);
    parts[PART_OTHERS] = less(taken, reserved);
}

/* A line of the parts, in proportion; a part that is there has a letter at least. */
static void say_bar(struct top_frame *frame, const struct top_look *look,
                    const struct survey_device *device)
{
    uint64_t parts[PARTS];
    char bar[4 * BAR_MOST + 16];
    int width = (look->width ? look->width : WIDTH_OF_FILES) - 4, filled = 0;
    size_t at = 0;
    if (width < BAR_LEAST || !device->total)
        return;
    width = width < BAR_MOST ? width : BAR_MOST;
    parts_of(device, parts);
    double sum = 0;
    for (int part = 0; part < PARTS; part++) {
        sum += (double)parts[part];
        int end = (int)lround(fmin(sum / (double)device->total, 1) * width);
        end = parts[part] && end <= filled ? filled + 1 : end;
        for (; filled < end && filled < width; filled++)
            at += (size_t)snprintf(bar + at, sizeof bar - at, "%s",
                                   look->utf8 ? part_looks[part].fancy : part_looks[part].plain);
    }
    for (; filled < width; filled++)
        bar[at++] = ' ';
    bar[at] = '\0';
    top_say(frame, look, false, " [%s]", bar);
    at = 0;
    for (int part = 0; part < PARTS; part++)
        at += (size_t)snprintf(bar + at, sizeof bar - at, "  %s %s %s",
                               look->utf8 ? part_looks[part].fancy : part_looks[part].plain,
                               part_looks[part].name, units_bytes(parts[part]).text);
    top_say(frame, look, false, "%s", bar);
}

static void say_figures(struct top_frame *frame, const struct top_look *look,
                        const struct survey_device *device)
{
    static const struct top_column columns[] = {{"", 0},
                                                {"REQUESTED", SCOLS_FL_RIGHT},
                                                {"ALLOCATED", SCOLS_FL_RIGHT},
                                                {"ACTIVE", SCOLS_FL_RIGHT},
                                                {"RESERVED", SCOLS_FL_RIGHT},
                                                {"BLOCKS", SCOLS_FL_RIGHT}};
    const tarn_stats *stats = &device->stats;
    const tarn_stat *values[] = {
        &stats->requested_bytes[TARN_STAT_ALL], &stats->allocated_bytes[TARN_STAT_ALL],
        &stats->active_bytes[TARN_STAT_ALL], &stats->reserved_bytes[TARN_STAT_ALL]};
    struct libscols_table *table = top_table_begin(columns, 6);
    for (int peak = 0; peak < 2; peak++) {
        struct units_text texts[5];
        const char *cells[6] = {peak ? "  peak" : "  now"};
        for (int i = 0; i < 4; i++)
            texts[i] = bytes_of(peak ? values[i]->peak : values[i]->current);
        texts[4] = count_of(peak ? stats->allocation[0].peak : stats->allocation[0].current);
        for (int i = 0; i < 5; i++)
            cells[i + 1] = texts[i].text;
        top_table_row(frame, table, cells, 6);
    }
    top_table_end(frame, look, table, 0);
    frame->length -= frame->failed ? 0 : 1; /* what follows belongs to it: no empty line */
}

static void say_rates(struct top_frame *frame, const struct top_look *look,
                      const struct top_reading *before, const struct top_reading *now,
                      const struct survey_device *device)
{
    struct top_rates rates = top_rates_of(before, now, device);
    if (!rates.known) {
        top_say(frame, look, false, "  rates          with the next reading");
        return;
    }
    top_say(frame, look, false, "  rates          %s allocations/s, %s/s; driver: %s calls/s, %s/s",
            units_count(as_rate(rates.allocations)).text, units_bytes(as_rate(rates.bytes)).text,
            units_count(as_rate(rates.driver_calls)).text,
            units_bytes(as_rate(rates.driver_bytes)).text);
}

/* The memory that nothing but graphs holds. */
static void say_of_graphs(struct top_frame *frame, const struct top_look *look,
                          const struct survey *survey, int device)
{
    uint64_t bytes = 0, pools = 0;
    for (uint32_t i = 0; i < survey->pool_count.here; i++) {
        const struct survey_pool *pool = &survey->pools[i];
        bool counts = pool->device == device && pool->flags & SURVEY_POOL_OF_GRAPHS;
        bytes += counts ? pool->reserved : 0;
        pools += counts;
    }
    if (pools)
        top_say(frame, look, false, "  only graphs    hold %s, in %s pool%s",
                units_bytes(bytes).text, units_count(pools).text, pools == 1 ? "" : "s");
}

static void say_device(struct top_frame *frame, const struct top_look *look,
                       const struct top_reading *before, const struct top_reading *now,
                       const struct survey_device *device)
{
    const tarn_stats *stats = &device->stats;
    char available[64] = "";
    if (device->free != SURVEY_UNKNOWN)
        snprintf(available, sizeof available, ", %s free", units_bytes(device->free).text);
    top_say(frame, look, true, "Device %d  %s  %s%s%s%s", device->number, device->name,
            units_bytes(device->total).text, available,
            device->lost ? "  LOST: an error has left it unusable" : "",
            device->used ? "" : "  not used");
    if (!device->used)
        return;
    say_bar(frame, look, device);
    top_graph_say(frame, look, device->number);
    say_figures(frame, look, device);
    say_rates(frame, look, before, now, device);
    top_say(frame, look, false,
            "  fragmentation  %.1f %%: longest piece %s of %s free; %s mapped nowhere",
            100 * top_fragmentation(device), units_bytes(device->largest_span).text,
            units_bytes(device->spans).text, units_bytes(device->cached).text);
    top_say(frame, look, false, "  out of memory  %s; retries %s; limit %s; workspaces %s in %s",
            count_of(stats->num_ooms).text, count_of(stats->num_alloc_retries).text,
            limit_text(device->limit).text, units_bytes(device->workspace_bytes).text,
            units_count(device->workspaces).text);
    say_of_graphs(frame, look, &now->survey, device->number);
    if (device->unseen != SURVEY_UNKNOWN)
        top_say(frame, look, false, "  not seen       %s: contexts, modules, the driver's pools",
                units_bytes(device->unseen).text);
    top_put(frame, "\n", 1);
}

/* Lists ---------------------------------------------------------------------------------------- */

static void pool_text(char *text, size_t size, const uint64_t id[2], bool uncached)
{
    if (!id[0] && !id[1])
        snprintf(text, size, "default%s", uncached ? " uncached" : "");
    else
        snprintf(text, size, "(%" PRIu64 ", %" PRIu64 ")", id[0], id[1]);
}

static const char *pool_state(uint32_t flags)
{
    return flags & SURVEY_POOL_SUSPENDED     ? "suspended"
           : flags & SURVEY_POOL_OF_GRAPHS   ? "only graphs hold it"
           : flags & SURVEY_POOL_HELD        ? "of a graph"
           : flags & SURVEY_POOL_LEFT_BEHIND ? "released"
           : flags & SURVEY_POOL_PLAIN       ? "plain"
                                             : "";
}

#define POOL_COLUMNS 8
static void say_pool(struct top_frame *frame, struct libscols_table *table, const void *record)
{
    const struct survey_pool *pool = record;
    char device[16], id[64];
    struct units_text reserved = units_bytes(pool->reserved),
                      allocated = units_bytes(pool->allocated), active = units_bytes(pool->active),
                      waiting = units_bytes(pool->waiting), limit = limit_text(pool->limit);
    snprintf(device, sizeof device, "%d", pool->device);
    pool_text(id, sizeof id, pool->id, false);
    const char *cells[POOL_COLUMNS] = {
        id,          device,       reserved.text, allocated.text,
        active.text, waiting.text, limit.text,    pool_state(pool->flags)};
    top_table_row(frame, table, cells, POOL_COLUMNS);
}

#define STREAM_COLUMNS 8
static void say_stream(struct top_frame *frame, struct libscols_table *table, const void *record)
{
    const struct survey_stream *stream = record;
    char device[16], slot[32], pool[64], native[32];
    struct units_text mapped = units_bytes(stream->mapped), spans = units_bytes(stream->spans),
                      largest = units_bytes(stream->largest_span),
                      waiting = units_bytes(stream->waiting);
    snprintf(device, sizeof device, "%d", stream->device);
    snprintf(slot, sizeof slot, "%" PRIu32, stream->slot);
    pool_text(pool, sizeof pool, stream->pool, stream->flags & SURVEY_STREAM_UNCACHED);
    snprintf(native, sizeof native, "%#" PRIx64, stream->native);
    bool retired = stream->flags & SURVEY_STREAM_RETIRED;
    const char *cells[STREAM_COLUMNS] = {
        slot,        device,     pool,         retired ? "retired" : native,
        mapped.text, spans.text, largest.text, waiting.text};
    top_table_row(frame, table, cells, STREAM_COLUMNS);
}

#define HANDLE_COLUMNS 6
static void say_handles(struct top_frame *frame, struct libscols_table *table, const void *record)
{
    const struct survey_handles *handles = record;
    char device[16];
    struct units_text in_use = units_count(handles->in_use),
                      available = units_count(handles->available),
                      created = units_count(handles->created),
                      failures = units_count(handles->failures);
    snprintf(device, sizeof device, "%d", handles->device);
    const char *cells[HANDLE_COLUMNS] = {handles->name,  device,       in_use.text,
                                         available.text, created.text, failures.text};
    top_table_row(frame, table, cells, HANDLE_COLUMNS);
}

#define GRAPH_COLUMNS 7
static void say_graph(struct top_frame *frame, struct libscols_table *table, const void *record)
{
    const struct survey_graph *graph = record;
    char device[16], number[32], pool[64];
    struct units_text bytes = units_bytes(graph->bytes), blocks = units_count(graph->blocks),
                      gone = units_count(graph->gone), gone_bytes = units_bytes(graph->gone_bytes);
    snprintf(device, sizeof device, "%d", graph->device);
    snprintf(number, sizeof number, "%" PRIu64, graph->number);
    pool_text(pool, sizeof pool, graph->pool, false);
    const char *cells[GRAPH_COLUMNS] = {number,      device,    pool,           bytes.text,
                                        blocks.text, gone.text, gone_bytes.text};
    top_table_row(frame, table, cells, GRAPH_COLUMNS);
}

#define LIBRARY_COLUMNS 5
static void say_library(struct top_frame *frame, struct libscols_table *table, const void *record)
{
    const struct survey_library *library = record;
    char device[16];
    struct units_text live = units_bytes(library->live), peak = units_bytes(library->peak),
                      made = units_count(library->made);
    snprintf(device, sizeof device, "%d", library->device);
    const char *cells[LIBRARY_COLUMNS] = {library->name, device, live.text, peak.text, made.text};
    top_table_row(frame, table, cells, LIBRARY_COLUMNS);
}

/* A list of records, of which the largest are shown. Each begins with the number of its device. */
struct list {
    const struct top_column *columns;
    size_t column_count;
    void (*say)(struct top_frame *frame, struct libscols_table *table, const void *record);
    const void *records;
    struct survey_count count;
    size_t size, key; /* of a record; offset of the 64-bit number by which it is ordered */
};

static void say_list(struct top_frame *frame, const struct top_look *look, const struct list *list)
{
    struct row *rows = calloc((size_t)list->count.here + 1, sizeof *rows);
    size_t count = 0;
    frame->failed |= !rows;
    for (uint32_t i = 0; rows && i < list->count.here; i++) {
        const char *record = (const char *)list->records + i * list->size;
        int32_t device;
        memcpy(&device, record, sizeof device);
        if (look->device >= 0 && device != look->device)
            continue;
        memcpy(&rows[count].key, record + list->key, sizeof rows[count].key);
        rows[count++].record = record;
    }
    if (count && !frame->failed) {
        size_t shown = look->rows && count > look->rows ? look->rows : count;
        qsort(rows, count, sizeof *rows, by_key);
        struct libscols_table *table = top_table_begin(list->columns, list->column_count);
        for (size_t i = 0; i < shown; i++)
            list->say(frame, table, rows[i].record);
        top_table_end(frame, look, table, count - shown + (list->count.there - list->count.here));
    }
    free(rows);
}

static void say_lists(struct top_frame *frame, const struct top_look *look,
                      const struct survey *survey)
{
    static const struct top_column pools[POOL_COLUMNS] = {{"POOL", 0},
                                                          {"DEVICE", SCOLS_FL_RIGHT},
                                                          {"RESERVED", SCOLS_FL_RIGHT},
                                                          {"ALLOCATED", SCOLS_FL_RIGHT},
                                                          {"ACTIVE", SCOLS_FL_RIGHT},
                                                          {"WAITING", SCOLS_FL_RIGHT},
                                                          {"LIMIT", SCOLS_FL_RIGHT},
                                                          {"STATE", 0}};
    static const struct top_column streams[STREAM_COLUMNS] = {
        {"STREAM", SCOLS_FL_RIGHT},  {"DEVICE", SCOLS_FL_RIGHT}, {"POOL", 0},
        {"NATIVE", SCOLS_FL_RIGHT},  {"MAPPED", SCOLS_FL_RIGHT}, {"FREE", SCOLS_FL_RIGHT},
        {"LONGEST", SCOLS_FL_RIGHT}, {"WAITING", SCOLS_FL_RIGHT}};
    static const struct top_column handles[HANDLE_COLUMNS] = {{"LIBRARY", 0},
                                                              {"DEVICE", SCOLS_FL_RIGHT},
                                                              {"IN USE", SCOLS_FL_RIGHT},
                                                              {"AVAILABLE", SCOLS_FL_RIGHT},
                                                              {"MADE", SCOLS_FL_RIGHT},
                                                              {"FAILED", SCOLS_FL_RIGHT}};
    static const struct top_column libraries[LIBRARY_COLUMNS] = {{"LIBRARY OF THE PROGRAM", 0},
                                                                 {"DEVICE", SCOLS_FL_RIGHT},
                                                                 {"HOLDS", SCOLS_FL_RIGHT},
                                                                 {"PEAK", SCOLS_FL_RIGHT},
                                                                 {"ALLOCATIONS", SCOLS_FL_RIGHT}};
    static const struct top_column graphs[GRAPH_COLUMNS] = {
        {"GRAPH", SCOLS_FL_RIGHT},     {"DEVICE", SCOLS_FL_RIGHT}, {"REFERS TO", 0},
        {"BYTES", SCOLS_FL_RIGHT},     {"BLOCKS", SCOLS_FL_RIGHT}, {"GONE", SCOLS_FL_RIGHT},
        {"BYTES GONE", SCOLS_FL_RIGHT}};
    const struct list lists[] = {
        {libraries, LIBRARY_COLUMNS, say_library, survey->libraries, survey->library_count,
         sizeof *survey->libraries, offsetof(struct survey_library, live)},
        {pools, POOL_COLUMNS, say_pool, survey->pools, survey->pool_count, sizeof *survey->pools,
         offsetof(struct survey_pool, reserved)},
        {streams, STREAM_COLUMNS, say_stream, survey->streams, survey->stream_count,
         sizeof *survey->streams, offsetof(struct survey_stream, mapped)},
        {graphs, GRAPH_COLUMNS, say_graph, survey->graphs, survey->graph_count,
         sizeof *survey->graphs, offsetof(struct survey_graph, bytes)},
        {handles, HANDLE_COLUMNS, say_handles, survey->handles, survey->handle_count,
         sizeof *survey->handles, offsetof(struct survey_handles, in_use)},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        say_list(frame, look, &lists[i]);
}

static void say_pinned(struct top_frame *frame, const struct top_look *look,
                       const tarn_pinned_stats *pinned)
{
    top_say(frame, look, true, "Pinned host memory");
    top_say(frame, look, false,
            "  %s in use of %s (peak %s); waiting %s, of graphs %s; out of memory %s",
            bytes_of(pinned->active_bytes.current).text,
            bytes_of(pinned->allocated_bytes.current).text,
            bytes_of(pinned->allocated_bytes.peak).text, bytes_of(pinned->pending_bytes).text,
            bytes_of(pinned->graph_bytes).text, count_of(pinned->num_ooms).text);
    top_put(frame, "\n", 1);
}

/* The device with the largest part of its memory reserved; NULL where none is used. */
static const struct survey_device *fullest(const struct survey *survey, int wanted)
{
    const struct survey_device *found = NULL;
    double most = -1;
    for (uint32_t i = 0; i < survey->device_count.here; i++) {
        const struct survey_device *device = &survey->devices[i];
        int64_t reserved = device->stats.reserved_bytes[TARN_STAT_ALL].current;
        double part = device->total ? (double)reserved / (double)device->total : 0;
        if (!device->used || (wanted >= 0 && device->number != wanted) || part <= most)
            continue;
        found = device;
        most = part;
    }
    return found;
}

/* How the process stands, in a sentence: lost devices, shortages, and the fullest device. */
static void say_verdict(struct top_frame *frame, const struct top_look *look,
                        const struct top_reading *now)
{
    const struct survey *survey = &now->survey;
    const struct survey_device *device = fullest(survey, look->device);
    uint32_t lost = 0;
    int64_t shortages = 0;
    for (uint32_t i = 0; i < survey->device_count.here; i++) {
        bool shown = look->device < 0 || survey->devices[i].number == look->device;
        lost += shown && survey->devices[i].lost;
        shortages += shown ? survey->devices[i].stats.num_ooms : 0;
    }
    char end[96] = "never out of memory";
    if (shortages > 0)
        snprintf(end, sizeof end, "out of memory %s time%s", count_of(shortages).text,
                 shortages == 1 ? "" : "s");
    if (lost)
        snprintf(end, sizeof end, "%u device%s LOST", lost, lost == 1 ? "" : "s");
    if (!device) {
        top_say(frame, look, true, "%s uses no device; %s", now->head.name, end);
        return;
    }
    const tarn_stats *stats = &device->stats;
    top_say(frame, look, true, "%s has %s of the %s of device %d, %s in use; %s", now->head.name,
            bytes_of(stats->reserved_bytes[TARN_STAT_ALL].current).text,
            units_bytes(device->total).text, device->number,
            bytes_of(stats->allocated_bytes[TARN_STAT_ALL].current).text, end);
}

void top_frame_make(struct top_frame *frame, const struct top_reading *before,
                    const struct top_reading *now, const struct top_look *look)
{
    const struct survey *survey = &now->survey;
    char silent[64] = "";
    frame->length = 0;
    frame->failed = false;
    if (look->silent > 0)
        snprintf(silent, sizeof silent, "  NOT UPDATED for %.0f s", look->silent);
    say_verdict(frame, look, now);
    top_say(frame, look, false, "%s (process %" PRIu64 ")  tarn %s on %s, for %s, own %s%s",
            now->head.name, now->head.pid, now->head.library, now->head.driver,
            top_since(now->head.started).text, bytes_of(survey->metadata).text, silent);
    top_put(frame, "\n", 1);
    for (uint32_t i = 0; i < survey->device_count.here; i++)
        if (look->device < 0 || survey->devices[i].number == look->device)
            say_device(frame, look, before, now, &survey->devices[i]);
    if (survey->has_pinned && look->device < 0)
        say_pinned(frame, look, &survey->pinned);
    say_lists(frame, look, survey);
    while (frame->length > 1 && frame->text[frame->length - 2] == '\n')
        frame->text[--frame->length] = '\0'; /* no empty line at the end */
}

void top_frame_finish(struct top_frame *frame)
{
    free(frame->text);
    *frame = (struct top_frame){0};
}
