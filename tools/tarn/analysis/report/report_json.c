/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The JSON of `tarn report` and `tarn diff`. docs/report.md documents the keys. Keys may be added,
 * and never change. If one value cannot be made, the whole output fails, because jansson refuses a
 * NULL value. */
#include "analysis/advice.h"
#include "analysis/analysis_diff.h"
#include "analysis/report/report.h"
#include "json_print.h"
#include "name.h"

#include <jansson.h>
#include <stdlib.h>

#define SERIES 200

static json_t *json_number(uint64_t number)
{
    return json_integer((json_int_t)number);
}

static json_t *json_time(const struct analysis *analysis, uint32_t moment)
{
    return analysis->has_times ? json_real((double)analysis->times[moment] / 1000) : json_null();
}

static json_t *json_state(const struct analysis *analysis, uint32_t moment,
                          const struct analysis_state *state)
{
    return json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "event",
                     (json_int_t)moment, "time_us", json_time(analysis, moment), "allocated",
                     (json_int_t)state->allocated, "waiting", (json_int_t)state->waiting,
                     "reserved", (json_int_t)state->reserved, "free", (json_int_t)state->unused,
                     "idle", (json_int_t)state->idle, "largest_free",
                     (json_int_t)state->largest_free, "holes", (json_int_t)state->holes, "blocks",
                     (json_int_t)state->blocks, "waiting_blocks", (json_int_t)state->waiting_blocks,
                     "fragmentation", report_fragmentation(state));
}

static json_t *json_groups(const struct analysis *analysis, enum analysis_by by, uint32_t moment,
                           size_t rows)
{
    size_t count;
    struct analysis_group *groups = analysis_groups(analysis, by, moment, &count);
    json_t *array = groups ? json_array() : NULL;
    for (size_t i = 0; array && i < count && i < rows; i++) {
        char label[400];
        array = append(array,
                       json_pack("{s:s, s:I, s:I}", "name",
                                 analysis_label(analysis, by, groups[i].key, label, sizeof label),
                                 "bytes", (json_int_t)groups[i].bytes, "blocks",
                                 (json_int_t)groups[i].blocks));
    }
    free(groups);
    return array;
}

static json_t *json_by(const struct analysis *analysis, uint32_t moment,
                       const struct report_options *options)
{
    json_t *object = json_object();
    for (enum analysis_by by = 0; object && by < ANALYSIS_BY_COUNT; by++)
        if ((!options->by || options->by >> by & 1) &&
            json_object_set_new(object, report_by_name(by),
                                json_groups(analysis, by, moment, options->rows))) {
            json_decref(object);
            object = NULL;
        }
    return object;
}

static json_t *json_blocks(const struct analysis *analysis, uint32_t moment, size_t rows)
{
    size_t count;
    uint32_t *alive = analysis_alive(analysis, moment, &count);
    json_t *array = alive ? json_array() : NULL;
    for (size_t i = 0; array && i < count && i < rows; i++) {
        const struct analysis_block *block = &analysis->blocks[alive[i]];
        char tag[400], site[400], stream[64], pool[64];
        json_t *freed = block->freed == ANALYSIS_NEVER ? json_null() : json_number(block->freed);
        array = append(
            array,
            json_pack(
                "{s:I, s:I, s:I, s:o, s:s, s:s, s:s, s:s, s:I}", "address",
                (json_int_t)block->address, "bytes", (json_int_t)block->size, "begin",
                (json_int_t)block->begin, "freed", freed, "tag",
                block->tag ? analysis_label(analysis, ANALYSIS_BY_TAG, block->tag, tag, sizeof tag)
                           : "",
                "call_site",
                analysis_label(analysis, ANALYSIS_BY_SITE,
                               analysis_key(analysis, ANALYSIS_BY_SITE, block), site, sizeof site),
                "stream",
                analysis_label(analysis, ANALYSIS_BY_STREAM, block->stream, stream, sizeof stream),
                "pool", analysis_label(analysis, ANALYSIS_BY_POOL, block->pool, pool, sizeof pool),
                "thread", (json_int_t)block->thread));
    }
    free(alive);
    return array;
}

/* Memory over time: one point per span, at the moment at which most was allocated. */
static json_t *json_series(const struct analysis *analysis)
{
    static const size_t count = SERIES;
    struct analysis_span *spans = calloc(count, sizeof *spans);
    struct analysis_state *states = calloc(count, sizeof *states);
    uint32_t *moments = calloc(count, sizeof *moments);
    bool made = spans && states && moments && analysis_spans(analysis, spans, count);
    for (size_t i = 0; made && i < count; i++)
        moments[i] = i && spans[i].highest < moments[i - 1] ? moments[i - 1] : spans[i].highest;
    made = made && analysis_states(analysis, moments, count, states);
    json_t *array = made ? json_array() : NULL;
    for (size_t i = 0; array && i < count; i++)
        if (i == 0 || moments[i] != moments[i - 1])
            array = append(array, json_state(analysis, moments[i], &states[i]));
    free(spans);
    free(states);
    free(moments);
    return array;
}

static json_t *json_oom(const struct analysis *analysis, const struct analysis_oom *oom,
                        uint32_t moment, const struct analysis_state *state)
{
    char site[400];
    return json_pack(
        "{s:I, s:o, s:I, s:s, s:s, s:o}", "asked", (json_int_t)oom->asked, "time_us",
        json_time(analysis, analysis_oom_after(analysis, oom)), "device_free",
        (json_int_t)oom->device_free, "tag", snapshot_text(analysis->snapshot, oom->tag),
        "call_site",
        analysis_label(analysis, ANALYSIS_BY_SITE, analysis->sites[oom->stack], site, sizeof site),
        "state", json_state(analysis, moment, state));
}

static json_t *json_ooms(const struct analysis *analysis)
{
    struct analysis_state *states = analysis_oom_states(analysis);
    json_t *array = states ? json_array() : NULL;
    for (size_t i = 0; array && i < analysis->oom_count; i++)
        array = append(array, json_oom(analysis, &analysis->ooms[i],
                                       analysis_oom_moment(analysis, i), &states[i]));
    free(states);
    return array;
}

static json_t *json_advice(const struct report_file *file, const struct analysis *analysis)
{
    struct advice_list list;
    json_t *array = report_advice(file, analysis, &list) ? json_array() : NULL;
    for (size_t i = 0; array && i < list.count; i++)
        array = append(array, json_pack("{s:s, s:s, s:I, s:I}", "kind",
                                        advice_name(list.items[i].kind), "text", list.items[i].text,
                                        "bytes", (json_int_t)list.items[i].bytes, "event",
                                        (json_int_t)list.items[i].moment));
    return array;
}

/* `left_out` receives how many are beyond `rows`. */
static json_t *json_graphs(const struct analysis *analysis, size_t rows, size_t *left_out)
{
    size_t count;
    const struct snapshot_graph **graphs = report_graphs(analysis, &count);
    json_t *array = graphs ? json_array() : NULL;
    for (size_t i = 0; array && i < count && i < rows; i++) {
        const struct snapshot_graph *graph = graphs[i];
        char label[64];
        array = append(
            array,
            json_pack("{s:I, s:s, s:I, s:I, s:I, s:I}", "number", (json_int_t)graph->number, "pool",
                      analysis_label(analysis, ANALYSIS_BY_POOL, graph->pool, label, sizeof label),
                      "blocks", (json_int_t)graph->blocks, "bytes", (json_int_t)graph->bytes,
                      "gone", (json_int_t)graph->gone, "gone_bytes",
                      (json_int_t)graph->gone_bytes));
    }
    *left_out = count > rows ? count - rows : 0;
    free(graphs);
    return array;
}

static json_t *json_device(const struct report_file *file, const struct analysis *analysis,
                           const struct report_options *options)
{
    uint32_t moment = report_moment_of(analysis, &options->moment);
    struct analysis_state state;
    uint64_t pools;
    size_t left_out;
    char writer[120];
    if (!analysis_states(analysis, &moment, 1, &state))
        return NULL;
    json_t *graphs = json_graphs(analysis, options->rows, &left_out);
    return json_pack(
        "{s:s, s:s, s:i, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}",
        "file", name_valid(file->path).text, "by",
        report_writer(analysis->snapshot, writer, sizeof writer), "device", analysis->device,
        "trace", (int)analysis->has_trace, "events", (json_int_t)analysis->event_count,
        "allocations", (json_int_t)analysis->workload.alloc_count, "advice",
        json_advice(file, analysis), "at", json_state(analysis, moment, &state), "peak",
        json_state(analysis, analysis->peak, &analysis->at_peak), "peak_reserved",
        json_state(analysis, analysis->peak_reserved, &analysis->at_peak_reserved), "groups",
        json_by(analysis, moment, options), "blocks", json_blocks(analysis, moment, options->rows),
        "over_time", json_series(analysis), "out_of_memory", json_ooms(analysis), "graphs", graphs,
        "graphs_left_out", (json_int_t)left_out, "of_graphs",
        (json_int_t)report_of_graphs(analysis, &pools));
}

static bool print(FILE *out, json_t *value)
{
    bool done = json_print(value, out);
    json_decref(value);
    return done;
}

bool report_json_write(FILE *out, const struct report_file *file,
                       const struct report_options *options)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < file->count; i++)
        array = append(array, json_device(file, &file->analyses[i], options));
    return print(out, array);
}

static json_t *json_changes(const struct analysis *before, const struct analysis *after,
                            enum analysis_by by, const struct report_options *options)
{
    size_t count;
    struct analysis_change *changes =
        analysis_diff(before, report_moment_of(before, &options->moment), after,
                      report_moment_of(after, &options->moment), by, &count);
    json_t *array = changes ? json_array() : NULL;
    for (size_t i = 0;
         array && i < count && i < options->rows && changes[i].before != changes[i].after; i++)
        array = append(array, json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", changes[i].label,
                                        "before", (json_int_t)changes[i].before, "after",
                                        (json_int_t)changes[i].after, "blocks_before",
                                        (json_int_t)changes[i].blocks_before, "blocks_after",
                                        (json_int_t)changes[i].blocks_after));
    free(changes);
    return array;
}

static json_t *json_comparison(const struct report_file *one, const struct analysis *before,
                               const struct report_file *two, const struct analysis *after,
                               const struct report_options *options)
{
    char said[800];
    json_t *groups =
        report_diff_say(before, after, options, said, sizeof said) ? json_object() : NULL;
    for (enum analysis_by by = 0; groups && by < ANALYSIS_BY_COUNT; by++)
        if ((!options->by || options->by >> by & 1) &&
            json_object_set_new(groups, report_by_name(by),
                                json_changes(before, after, by, options))) {
            json_decref(groups);
            groups = NULL;
        }
    return json_pack("{s:i, s:s, s:o, s:o, s:o}", "device", before->device, "said",
                     groups ? said : "", "before", json_device(one, before, options), "after",
                     json_device(two, after, options), "changes", groups);
}

bool report_diff_json(FILE *out, const struct report_file *before, const struct report_file *after,
                      const struct report_options *options)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < before->count; i++)
        for (size_t j = 0; array && j < after->count; j++)
            if (before->analyses[i].device == after->analyses[j].device)
                array = append(array, json_comparison(before, &before->analyses[i], after,
                                                      &after->analyses[j], options));
    return print(out, array);
}
