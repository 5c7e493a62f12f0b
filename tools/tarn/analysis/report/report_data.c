/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what a page contains of files (report_data.h). Columns are written so that they compress
 * well. Each number is stored as its difference from an expected value. Of each CHUNK numbers, all
 * lowest bytes come first, then all second ones, and so on. */
#include "analysis/report/report_data.h"

#include "analysis/advice.h"
#include "analysis/ranks.h"
#include "analysis/report/report_fits.h"
#include "json_print.h"
#include "name.h"
#include "replay/least.h"
#include "units.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 1000
#define RANK_ROWS 40
#define FITS_STEPS 40           /* sizes of devices on the page's slider */
#define CHUNK ((size_t)1 << 16) /* numbers; page/data.js has the same */
#define WIDEST 8                /* bytes of a number */

/* Data under construction. The first failure makes all that follows do nothing. */
struct page {
    FILE *out;
    uint64_t at;           /* bytes so far */
    unsigned char *planes; /* the bytes of a chunk by their significance */
    bool failed;
};

/* --- columns --- */

enum column { COLUMN_F64, COLUMN_U32, COLUMN_U8 };

/* Returns the `i`-th number of an array; it must be whole and not negative. */
typedef double (*column_value)(const void *context, size_t i);

/* The expected value of a number: 0, the number before it, or that of another column, rounded
 * up. */
struct column_from {
    const char *name; /* "": the number before; NULL: 0 */
    column_value value;
    unsigned round; /* multiple to round up to, in bytes; 0: none */
};

static uint64_t column_number(double number)
{
    return number < 18446744073709551616.0 ? (uint64_t)number : UINT64_MAX;
}

static uint64_t column_expected(const struct column_from *from, const void *context, size_t i,
                                uint64_t before)
{
    if (!from->name)
        return 0;
    if (!*from->name)
        return before;
    uint64_t other = column_number(from->value(context, i));
    return from->round ? (other + from->round - 1) / from->round * from->round : other;
}

/* Writes a column, and adds it to `list` under `name`. */
static void put_column(struct page *page, json_t *list, const char *name, enum column type,
                       const void *context, column_value value, size_t count,
                       const struct column_from *from)
{
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"f64", 8}, {"u32", 4}, {"u8", 1}};
    size_t size = types[type].size;
    if (page->failed ||
        json_object_set_new(list, name,
                            json_pack("{s:s, s:I, s:I, s:s, s:i}", "type", types[type].name, "at",
                                      (json_int_t)page->at, "length", (json_int_t)count, "from",
                                      from->name ? *from->name ? from->name : "before" : "",
                                      "round", (int)from->round))) {
        page->failed = true;
        return;
    }
    uint64_t before = 0;
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t part = count - done < CHUNK ? count - done : CHUNK;
        for (size_t i = 0; i < part; i++) {
            uint64_t number = column_number(value(context, done + i));
            uint64_t rest = number - column_expected(from, context, done + i, before);
            for (size_t byte = 0; byte < size; byte++)
                page->planes[byte * part + i] = (unsigned char)(rest >> 8 * byte);
            before = number;
        }
        page->failed = page->failed || fwrite(page->planes, size, part, page->out) != part;
    }
    page->at += count * size;
}

static const struct column_from from_nothing = {0}, from_before = {.name = ""};

static void put_array(struct page *page, json_t *list, const char *name, enum column type,
                      const void *context, column_value value, size_t count)
{
    put_column(page, list, name, type, context, value, count, &from_nothing);
}

/* The columns of a list and how to write each one. */
#define BLOCK_COLUMNS(X)                                                 \
    X(address, COLUMN_F64, NULL, NULL, 0)                                \
    X(size, COLUMN_F64, NULL, NULL, 0)                                   \
    X(room, COLUMN_F64, "size", block_size, 512) /* as PyTorch rounds */ \
    X(begin, COLUMN_U32, "", NULL, 0)                                    \
    X(freed, COLUMN_U32, "begin", block_begin, 0)                        \
    X(end, COLUMN_U32, "freed", block_freed, 0)                          \
    X(stream, COLUMN_U32, NULL, NULL, 0)                                 \
    X(pool, COLUMN_U32, NULL, NULL, 0)                                   \
    X(stack, COLUMN_U32, NULL, NULL, 0)                                  \
    X(tag, COLUMN_U32, NULL, NULL, 0)                                    \
    X(thread, COLUMN_U32, NULL, NULL, 0)
#define RANGE_COLUMNS(X)                   \
    X(address, "rangeAddress", COLUMN_F64) \
    X(size, "rangeSize", COLUMN_F64)       \
    X(begin, "rangeBegin", COLUMN_U32)     \
    X(end, "rangeEnd", COLUMN_U32)         \
    X(stream, "rangeStream", COLUMN_U32)   \
    X(pool, "rangePool", COLUMN_U32)       \
    X(joins, "rangeJoins", COLUMN_U8)

#define X(field, type, name, value, round)                                \
    static double block_##field(const void *context, size_t i)            \
    {                                                                     \
        return (double)((const struct analysis_block *)context)[i].field; \
    }
BLOCK_COLUMNS(X)
#undef X
#define X(field, name, type)                                              \
    static double range_##field(const void *context, size_t i)            \
    {                                                                     \
        return (double)((const struct analysis_range *)context)[i].field; \
    }
RANGE_COLUMNS(X)
#undef X

static double wide_value(const void *context, size_t i)
{
    return (double)((const uint64_t *)context)[i];
}

static double narrow_value(const void *context, size_t i)
{
    return ((const uint32_t *)context)[i];
}

static double byte_value(const void *context, size_t i)
{
    return ((const uint8_t *)context)[i];
}

static double stack_caller(const void *context, size_t i)
{
    return ((const struct snapshot_stack *)context)[i].caller;
}

static double stack_frame(const void *context, size_t i)
{
    return ((const struct snapshot_stack *)context)[i].frame;
}

#define STATE_COLUMNS(X) X(allocated) X(unused) X(largest_free)
#define X(field)                                                          \
    static double state_##field(const void *context, size_t i)            \
    {                                                                     \
        return (double)((const struct analysis_state *)context)[i].field; \
    }
STATE_COLUMNS(X)
#undef X

/* --- other events --- */

#define MARK_COLUMNS(X)                 \
    X(kind, "markKind", COLUMN_U8)      \
    X(at, "markAt", COLUMN_U32)         \
    X(value, "markValue", COLUMN_F64)   \
    X(stream, "markStream", COLUMN_U32) \
    X(other, "markOther", COLUMN_U32)   \
    X(pool, "markPool", COLUMN_U32)     \
    X(text, "markText", COLUMN_U32)     \
    X(thread, "markThread", COLUMN_U32)
#define X(field, name, type)                                             \
    static double mark_##field(const void *context, size_t i)            \
    {                                                                    \
        return (double)((const struct snapshot_mark *)context)[i].field; \
    }
MARK_COLUMNS(X)
#undef X

/* The marks of one device. */
static void put_marks(struct page *page, const struct analysis *analysis, json_t *list)
{
    const struct snapshot_tarn *tarn = &analysis->snapshot->tarn;
    struct snapshot_mark *marks = calloc(tarn->mark_count + 1, sizeof *marks);
    size_t count = 0;
    page->failed = page->failed || !marks;
    for (size_t i = 0; marks && i < tarn->mark_count; i++)
        if (tarn->marks[i].device == analysis->device)
            marks[count++] = tarn->marks[i];
#define X(field, name, type) put_array(page, list, name, type, marks, mark_##field, count);
    MARK_COLUMNS(X)
#undef X
    free(marks);
}

/* --- the description --- */

static json_t *wide(uint64_t number)
{
    return json_real((double)number);
}

static json_t *describe_state(const struct analysis_state *state)
{
    return json_pack("{s:o, s:o}", "allocated", wide(state->allocated), "reserved",
                     wide(state->reserved));
}

static json_t *describe_ooms(const struct analysis *analysis)
{
    struct analysis_state *states = analysis_oom_states(analysis);
    json_t *array = states ? json_array() : NULL;
    for (size_t i = 0; array && i < analysis->oom_count; i++) {
        const struct analysis_oom *oom = &analysis->ooms[i];
        array =
            append(array, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I}", "event",
                                    (json_int_t)oom->event, "moment",
                                    (json_int_t)analysis_oom_moment(analysis, i), "asked",
                                    wide(oom->asked), "deviceFree", wide(oom->device_free), "free",
                                    wide(states[i].unused), "largest", wide(states[i].largest_free),
                                    "tag", (json_int_t)oom->tag, "stack", (json_int_t)oom->stack));
    }
    free(states);
    return array;
}

/* The last moment of the trace that was not after a time. */
static uint32_t moment_of_time(const struct analysis *analysis, int64_t time_us, int64_t origin_us)
{
    uint64_t time = time_us > origin_us ? (uint64_t)(time_us - origin_us) * 1000 : 0;
    return report_moment_at(analysis, time);
}

/* Returns the index of the last open beginning with the name of this end, or the count if there is
 * none. */
static size_t find_open(const struct snapshot *snapshot, const bool *closed, size_t end)
{
    for (size_t i = end; i-- > 0;)
        if (!closed[i] && snapshot->annotations[i].name == snapshot->annotations[end].name &&
            snapshot->annotations[i].device == snapshot->annotations[end].device &&
            !snapshot->annotations[i].ends)
            return i;
    return snapshot->annotation_count;
}

#define ANNOTATIONS_SHOWN ((size_t)20000)

/* Spans with a name, in a trace with times. tarn's own files have them among their marks
 * instead. */
static json_t *describe_annotations(const struct analysis *analysis)
{
    const struct snapshot *snapshot = analysis->snapshot;
    json_t *array = json_array();
    size_t count = snapshot->annotation_count < ANNOTATIONS_SHOWN ? snapshot->annotation_count
                                                                  : ANNOTATIONS_SHOWN;
    if (!analysis->has_trace || !analysis->has_times || !analysis->event_count ||
        snapshot->tarn.there || !count)
        return array;
    int64_t origin = snapshot->traces[analysis->device].events[0].time_us;
    bool *closed = calloc(count, sizeof *closed);
    uint32_t *ends = calloc(count, sizeof *ends);
    for (size_t i = 0; closed && ends && i < count; i++) {
        size_t begin = snapshot->annotations[i].ends ? find_open(snapshot, closed, i)
                                                     : snapshot->annotation_count;
        ends[i] = analysis->event_count;
        if (begin < i) {
            closed[begin] = true;
            ends[begin] = moment_of_time(analysis, snapshot->annotations[i].time_us, origin);
        }
    }
    for (size_t i = 0; array && closed && ends && i < count; i++)
        if (!snapshot->annotations[i].ends && snapshot->annotations[i].device == analysis->device)
            array =
                append(array, json_pack("{s:I, s:I, s:s}", "from",
                                        (json_int_t)moment_of_time(
                                            analysis, snapshot->annotations[i].time_us, origin),
                                        "to", (json_int_t)ends[i], "text",
                                        snapshot_text(snapshot, snapshot->annotations[i].name)));
    if (!closed || !ends) {
        json_decref(array);
        array = NULL;
    }
    free(closed);
    free(ends);
    return array;
}

static json_t *describe_advice(const struct report_file *file, const struct analysis *analysis)
{
    struct advice_list list;
    json_t *array = report_advice(file, analysis, &list) ? json_array() : NULL;
    for (size_t i = 0; array && i < list.count; i++)
        array = append(array,
                       json_pack("{s:s, s:s, s:I}", "kind", advice_name(list.items[i].kind), "text",
                                 list.items[i].text, "moment", (json_int_t)list.items[i].moment));
    return array;
}

/* States at SAMPLES moments: in each span, the moment at which most was allocated. */
static void put_samples(struct page *page, const struct analysis *analysis, json_t *list)
{
    struct analysis_span *spans = calloc(SAMPLES, sizeof *spans);
    struct analysis_state *states = calloc(SAMPLES, sizeof *states);
    uint32_t *moments = calloc(SAMPLES, sizeof *moments);
    size_t count = 0;
    page->failed =
        page->failed || !spans || !states || !moments || !analysis_spans(analysis, spans, SAMPLES);
    for (size_t i = 0; !page->failed && i < SAMPLES; i++)
        if (count == 0 || spans[i].highest > moments[count - 1])
            moments[count++] = spans[i].highest;
    page->failed = page->failed || !analysis_states(analysis, moments, count, states);
    if (!page->failed) {
        put_array(page, list, "sampleMoment", COLUMN_U32, moments, narrow_value, count);
        put_array(page, list, "sampleAllocated", COLUMN_F64, states, state_allocated, count);
        put_array(page, list, "sampleFree", COLUMN_F64, states, state_unused, count);
        put_array(page, list, "sampleLargest", COLUMN_F64, states, state_largest_free, count);
    }
    free(spans);
    free(states);
    free(moments);
}

static json_t *put_device_arrays(struct page *page, const struct analysis *analysis)
{
    json_t *list = json_object();
    page->failed = page->failed || !list;
    put_column(page, list, "times", COLUMN_F64, analysis->times, wide_value,
               (size_t)analysis->event_count + 1, &from_before);
#define X(field, type, name, value, round)                                                       \
    put_column(page, list, #field, type, analysis->blocks, block_##field, analysis->block_count, \
               &(struct column_from){name, value, round});
    BLOCK_COLUMNS(X)
#undef X
#define X(field, name, type) \
    put_array(page, list, name, type, analysis->ranges, range_##field, analysis->range_count);
    RANGE_COLUMNS(X)
#undef X
    put_array(page, list, "category", COLUMN_U8, analysis->categories, byte_value,
              analysis->block_count);
    put_column(page, list, "byAddress", COLUMN_U32, analysis->by_address, narrow_value,
               analysis->block_count, &from_before);
    put_column(page, list, "rangeByAddress", COLUMN_U32, analysis->range_by_address, narrow_value,
               analysis->range_count, &from_before);
    put_samples(page, analysis, list);
    put_marks(page, analysis, list);
    return list;
}

/* Says in words what a recording lacks; empty if it is complete. */
static void describe_gaps(const struct analysis *analysis, char *text, size_t size)
{
    const struct snapshot *snapshot = analysis->snapshot;
    size_t partial = analysis->has_trace ? snapshot->traces[analysis->device].exact_from : 0;
    char gap[96];
    *text = 0;
    if (partial || snapshot->tarn.overwritten)
        snprintf(text, size,
                 "The recording is incomplete: before event %zu threads are missing, and %llu "
                 "events were overwritten.",
                 partial, (unsigned long long)snapshot->tarn.overwritten);
    const struct snapshot_trace *trace =
        analysis->has_trace ? &snapshot->traces[analysis->device] : NULL;
    size_t used = strlen(text);
    if (*report_no_device(analysis, gap, sizeof gap))
        snprintf(text + used, size - used, "%s%s", used ? " " : "", gap);
    used = strlen(text);
    if (trace && trace->thinned)
        snprintf(text + used, size - used,
                 "%sThe page leaves %s of %s events out: of the blocks with the least bytes and "
                 "the shortest lives. The peak is exact; other sums are low by at most %s.",
                 used ? " " : "", units_count(trace->thinned).text,
                 units_count(trace->thinned + trace->event_count).text,
                 units_bytes(trace->thinned_bytes).text);
}

/* The events at which one of PyTorch's policies stops on each device of the page's slider that is
 * too small; -1: before the first event. */
static json_t *describe_stops(const struct analysis *analysis, bool expandable, uint64_t least,
                              uint64_t step)
{
    const struct c10_policy policy = c10_policy_default(expandable);
    json_t *stops = json_array();
    for (uint64_t memory = step; stops && step && memory < least; memory += step) {
        struct c10_result run;
        if (!c10_run_to_stop(&analysis->workload, &policy, memory, &run)) {
            json_decref(stops);
            return NULL;
        }
        bool before = run.first_oom == UINT32_MAX;
        stops = append(stops, json_integer(before ? -1 : (json_int_t)run.first_oom));
    }
    return stops;
}

/* What other allocators would take; null if nothing was replayed. */
static json_t *describe_what_if(const struct report_file *file, const struct analysis *analysis)
{
    static const char *const names[REPORT_POLICIES] = {"PyTorch native",
                                                       "PyTorch expandable segments", "tarn"};
    struct report_what_if rows[REPORT_POLICIES];
    uint64_t requested;
    if (analysis_is_of_host(analysis) || /* which no allocator of GPUs has */
        !report_what_if_get(file, analysis->device, &requested, rows))
        return json_null();
    uint64_t largest = 0, outside = 0;
    for (size_t i = 0; i < REPORT_POLICIES; i++)
        largest = rows[i].least > largest ? rows[i].least : largest;
    const uint64_t step = least_round_up(largest / 4 * 5 / FITS_STEPS);
    const bool measured = fits_outside(&file->snapshot, analysis->device, &outside);
    json_t *array = json_array();
    for (size_t i = 0; array && i < REPORT_POLICIES; i++)
        array = append(
            array,
            json_pack("{s:s, s:b, s:o, s:o, s:o, s:o}", "name", names[i], "fits", (int)rows[i].fits,
                      "reserved", wide(rows[i].reserved), "least", wide(rows[i].least), "driverNs",
                      wide(rows[i].driver_ns), "stops",
                      i < 2 ? describe_stops(analysis, i == 1, rows[i].least, step) : json_null()));
    const uint32_t ended_by = analysis_ended_by(analysis);
    return json_pack("{s:o, s:o, s:o, s:i, s:o, s:o, s:o}", "requested", wide(requested), "rows",
                     array, "step", wide(step), "steps", FITS_STEPS, "outside",
                     measured ? wide(outside) : json_null(), "unsure", wide(fits_unsure(analysis)),
                     "endedBy",
                     ended_by == ANALYSIS_NEVER ? json_null() : json_integer((json_int_t)ended_by));
}

/* "has several streams": why the page has no slider; empty where it has one, and where nothing
 * could be replayed. */
static const char *why_not_searched(const struct report_file *file, const struct analysis *analysis)
{
    bool expected = file->not_searched && analysis->has_trace && !analysis_is_of_host(analysis);
    return expected ? file->not_searched : "";
}

static json_t *put_device(struct page *page, const struct report_file *file,
                          const struct analysis *analysis)
{
    const struct snapshot *snapshot = analysis->snapshot;
    const struct snapshot_tarn *tarn = &snapshot->tarn;
    char gaps[480];
    bool stacked = false, told = false;
    double tagged = 0, all = 0; /* bytes */
    for (size_t i = 0; i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        told = told || analysis->categories[i] != CATEGORY_UNKNOWN;
        stacked = stacked || block->stack != 0;
        tagged += block->tag ? (double)block->size : 0;
        all += (double)block->size;
    }
    const char *name = (size_t)analysis->device < tarn->device_count
                           ? snapshot_text(snapshot, tarn->devices[analysis->device].name)
                       : analysis_is_of_host(analysis) ? "memory of the host"
                                                       : "";
    describe_gaps(analysis, gaps, sizeof gaps);
    json_t *arrays = put_device_arrays(page, analysis);
    return json_pack(
        "{s:i, s:s, s:I, s:I, s:b, s:b, s:b, s:b, s:b, s:b, s:s, s:I, s:I, s:I, s:{s:o, s:o}, s:o, "
        "s:o, "
        "s:o, "
        "s:o, "
        "s:s, "
        "s:o}",
        "device", analysis->device, "name", name, "events", (json_int_t)analysis->event_count,
        "leftOut", analysis->has_trace ? (json_int_t)snapshot->traces[analysis->device].thinned : 0,
        "hasTrace", (int)analysis->has_trace, "hasTimes", (int)analysis->has_times, "mostTagged",
        (int)(tagged > 0 && tagged >= all / 2), "hasStacks", (int)stacked, "hasCategories",
        (int)told, "showsOoms", (int)analysis_shows_ooms(analysis), "partial", gaps, "peak",
        (json_int_t)analysis->peak, "peakReserved", (json_int_t)analysis->peak_reserved,
        "countedReserved",
        analysis->has_trace ? (json_int_t)snapshot->traces[analysis->device].reserved_most : 0,
        "states", "peak", describe_state(&analysis->at_peak), "peakReserved",
        describe_state(&analysis->at_peak_reserved), "ooms", describe_ooms(analysis), "advice",
        describe_advice(file, analysis), "annotations", describe_annotations(analysis), "whatIf",
        describe_what_if(file, analysis), "notSearched", why_not_searched(file, analysis), "arrays",
        arrays);
}

/* Labels that the analysis makes, by key. */
static json_t *describe_labels(const struct analysis *analysis, enum analysis_by by, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        char label[400];
        array = append(array,
                       json_string(analysis_label(analysis, by, (uint32_t)i, label, sizeof label)));
    }
    return array;
}

static json_t *describe_texts(const struct snapshot *snapshot)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < snapshot->text_count; i++)
        array = append(array, json_string(snapshot_text(snapshot, (uint32_t)i)));
    return array;
}

static json_t *describe_frames(const struct snapshot *snapshot)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < snapshot->frame_count; i++)
        array =
            append(array, json_pack("[s, s, I]", snapshot_text(snapshot, snapshot->frames[i].name),
                                    snapshot_text(snapshot, snapshot->frames[i].filename),
                                    (json_int_t)snapshot->frames[i].line));
    return array;
}

static json_t *describe_tarn_devices(const struct snapshot *snapshot)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < snapshot->tarn.device_count; i++) {
        const struct snapshot_device *device = &snapshot->tarn.devices[i];
        json_t *limit = device->limit == SNAPSHOT_NO_LIMIT ? json_null() : wide(device->limit);
        array = append(array, json_pack("{s:I, s:s, s:o, s:o, s:o, s:o}", "number", (json_int_t)i,
                                        "name", snapshot_text(snapshot, device->name), "total",
                                        wide(device->total), "free", wide(device->free), "reserved",
                                        wide(device->reserved), "limit", limit));
    }
    return array;
}

static json_t *describe_pools(const struct snapshot *snapshot)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < snapshot->tarn.pool_count; i++) {
        const struct snapshot_pool *pool = &snapshot->tarn.pools[i];
        array = append(array, json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:b, s:b, s:b}", "device",
                                        pool->device, "pool", (json_int_t)pool->pool, "reserved",
                                        wide(pool->reserved), "allocated", wide(pool->allocated),
                                        "active", wide(pool->active), "waiting",
                                        wide(pool->waiting), "suspended", (int)pool->suspended,
                                        "held", (int)pool->held, "ofGraphs", (int)pool->of_graphs));
    }
    return array;
}

static json_t *describe_graphs(const struct snapshot *snapshot)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < snapshot->tarn.graph_count; i++) {
        const struct snapshot_graph *graph = &snapshot->tarn.graphs[i];
        array = append(array,
                       json_pack("{s:i, s:o, s:I, s:o, s:o, s:o, s:o}", "device", graph->device,
                                 "number", wide(graph->number), "pool", (json_int_t)graph->pool,
                                 "blocks", wide(graph->blocks), "size", wide(graph->bytes), "gone",
                                 wide(graph->gone), "goneSize", wide(graph->gone_bytes)));
    }
    return array;
}

static json_t *describe_handles(const struct snapshot *snapshot)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < snapshot->tarn.handle_count; i++) {
        const struct snapshot_handle *handle = &snapshot->tarn.handles[i];
        array = append(array, json_pack("{s:i, s:s, s:o, s:o}", "device", handle->device, "library",
                                        snapshot_text(snapshot, handle->library), "count",
                                        wide(handle->count), "inUse", wide(handle->in_use)));
    }
    return array;
}

static json_t *describe_workspaces(const struct snapshot *snapshot)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < snapshot->tarn.workspace_count; i++) {
        const struct snapshot_workspace *workspace = &snapshot->tarn.workspaces[i];
        array =
            append(array, json_pack("{s:i, s:I, s:s, s:o, s:o}", "device", workspace->device,
                                    "stream", (json_int_t)workspace->stream, "library",
                                    snapshot_text(snapshot, workspace->library), "size",
                                    wide(workspace->size), "address", wide(workspace->address)));
    }
    return array;
}

/* By number. */
static json_t *describe_threads(const struct snapshot *snapshot)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < snapshot->tarn.thread_count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", snapshot->tarn.threads[i].number);
        if (json_object_set_new(
                object, number,
                json_string(snapshot_text(snapshot, snapshot->tarn.threads[i].name)))) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static double path_frame(const void *context, size_t i)
{
    return ((const struct analysis_path *)context)[i].frame;
}

static double path_caller(const void *context, size_t i)
{
    return ((const struct analysis_path *)context)[i].caller;
}

/* Writes whole call paths as a tree. A path's caller has a lower number, so the page sums up from
 * the last path on. */
static void put_calls(struct page *page, const struct report_file *file, json_t *list)
{
    struct analysis whole = {.snapshot = &file->snapshot};
    struct analysis_folding folding = file->rules->folding;
    folding.depth = 0;
    page->failed = page->failed || !analysis_fold(&whole, &folding);
    if (!page->failed) {
        put_array(page, list, "callOf", COLUMN_U32, whole.sites, narrow_value,
                  file->snapshot.stack_count);
        put_array(page, list, "callFrame", COLUMN_U32, whole.paths, path_frame, whole.path_count);
        put_array(page, list, "callCaller", COLUMN_U32, whole.paths, path_caller, whole.path_count);
    }
    free(whole.sites);
    free(whole.paths);
}

static json_t *describe_mark_kinds(void)
{
    json_t *array = json_array();
    for (int kind = 0; array && kind <= SNAPSHOT_MARK_OTHER; kind++)
        array = append(array, json_string(snapshot_mark_name((uint8_t)kind)));
    return array;
}

static json_t *describe_settings(const struct snapshot_settings *settings,
                                 const struct snapshot *snapshot)
{
    return json_pack("{s:b, s:b, s:s}", "there", (int)settings->there, "expandable",
                     (int)settings->expandable, "conf", snapshot_text(snapshot, settings->conf));
}

static json_t *put_file(struct page *page, const struct report_file *file)
{
    const struct snapshot *snapshot = &file->snapshot;
    /* labels and sites are the same in every analysis of a snapshot */
    const struct analysis *any = &file->analyses[0];
    char writer[120];
    json_t *traces = json_array(), *arrays = json_object();
    page->failed = page->failed || !traces || !arrays;
    if (!page->failed) {
        put_array(page, arrays, "stackCaller", COLUMN_U32, snapshot->stacks, stack_caller,
                  snapshot->stack_count);
        put_array(page, arrays, "stackFrame", COLUMN_U32, snapshot->stacks, stack_frame,
                  snapshot->stack_count);
        put_array(page, arrays, "sites", COLUMN_U32, any->sites, narrow_value,
                  snapshot->stack_count);
        put_array(page, arrays, "modules", COLUMN_U32, any->modules, narrow_value,
                  snapshot->stack_count);
        put_calls(page, file, arrays);
    }
    for (size_t i = 0; i < file->count && traces; i++)
        traces = append(traces, put_device(page, file, &file->analyses[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, s:o}",
                     "name", name_shown(file->name).text, "by",
                     report_writer(snapshot, writer, sizeof writer), "traces", traces, "arrays",
                     arrays, "texts", describe_texts(snapshot), "frames", describe_frames(snapshot),
                     "categories", describe_labels(any, ANALYSIS_BY_CATEGORY, CATEGORY_COUNT),
                     "siteLabels", describe_labels(any, ANALYSIS_BY_SITE, any->path_count),
                     "moduleLabels", describe_labels(any, ANALYSIS_BY_MODULE, any->module_count),
                     "streams", describe_labels(any, ANALYSIS_BY_STREAM, snapshot->stream_count),
                     "pools", describe_labels(any, ANALYSIS_BY_POOL, snapshot->pool_count),
                     "threadNames", describe_threads(snapshot), "devices",
                     describe_tarn_devices(snapshot), "poolStates", describe_pools(snapshot),
                     "graphs", describe_graphs(snapshot), "markKinds", describe_mark_kinds(),
                     "settings", describe_settings(&snapshot->settings, snapshot), "handles",
                     describe_handles(snapshot), "workspaces", describe_workspaces(snapshot));
}

/* --- the whole --- */

static int put_json(const char *buffer, size_t size, void *data)
{
    struct page *page = data;
    page->at += size;
    return fwrite(buffer, 1, size, page->out) == size ? 0 : -1;
}

static json_t *describe(struct page *page, const struct report_file *list, size_t count)
{
    json_t *files = json_array(), *ranks = json_null();
    struct ranks made;
    for (size_t i = 0; i < count; i++)
        files = append(files, put_file(page, &list[i]));
    if (ranks_are_compared(list, count)) {
        json_decref(ranks);
        bool done = ranks_make(list, count, &made);
        ranks = done ? ranks_json(&made, 0, RANK_ROWS) : NULL;
        if (done)
            ranks_finish(&made);
    }
    return json_pack("{s:o, s:o}", "files", files, "ranks", ranks);
}

bool report_data_write(FILE *out, const struct report_file *files, size_t count)
{
    struct page page = {.out = out, .planes = malloc(CHUNK * WIDEST)};
    page.failed = !page.planes;
    json_t *description = describe(&page, files, count);
    uint64_t begin = page.at;
    page.failed = page.failed || !description ||
                  json_dump_callback(description, put_json, &page, JSON_COMPACT) != 0;
    json_decref(description);
    for (int byte = 0; byte < 8; byte++)
        putc((int)((page.at - begin) >> 8 * byte & 0xff), out);
    free(page.planes);
    return !page.failed && !ferror(out);
}
