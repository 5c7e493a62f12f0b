/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The text of `tarn report`: one screen per device, for a person at a terminal. Widths are columns,
 * not bytes. A terminal without UTF-8 gets the same chart in ASCII. */
#include "analysis/advice.h"
#include "analysis/analysis_diff.h"
#include "analysis/report/report.h"
#include "name.h"
#include "units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHART_ROWS 8
#define OOMS_SHOWN 3
#define CHART_LEFT 11 /* columns before the chart: a size, a space, the axis */

void report_print_label(FILE *out, const char *label, int columns)
{
    size_t count = 0, wanted = columns > 8 ? (size_t)columns : 8;
    for (const char *at = label; *at; at++)
        count += ((unsigned char)*at & 0xc0) != 0x80;
    size_t head = count <= wanted ? count : (wanted - 3) / 2,
           tail = count <= wanted ? 0 : wanted - 3 - head, number = 0;
    for (const char *at = label; *at; at++) {
        bool starts = ((unsigned char)*at & 0xc0) != 0x80;
        if (starts && number == head && count > wanted)
            fputs("...", out);
        if (starts ? number < head || number >= count - tail
                   : number <= head || number > count - tail)
            putc(*at, out);
        number += starts;
    }
}

static int columns_of(const char *text)
{
    int columns = 0;
    for (const char *at = text; *at; at++)
        columns += ((unsigned char)*at & 0xc0) != 0x80;
    return columns;
}

/* Prints a label and the end of its line. If a label with callers does not fit, each caller gets a
 * line of its own below. */
static void print_path(FILE *out, const char *label, int left, int width)
{
    bool fits = columns_of(label) < width - left;
    for (const char *at = label, *next; at; at = next) {
        char part[400];
        next = fits ? NULL : strstr(at, " < ");
        snprintf(part, sizeof part, "%.*s", next ? (int)(next - at) : (int)strlen(at), at);
        if (at != label)
            fprintf(out, "%*s", left, "");
        report_print_label(out, part, width - left - 1);
        putc('\n', out);
        next = next ? next + 1 : NULL;
    }
}

static struct units_text moment_time(const struct analysis *analysis, uint32_t moment)
{
    struct units_text text = {""};
    if (analysis->has_times)
        snprintf(text.text, sizeof text.text, ", %.30s", units_time(analysis->times[moment]).text);
    return text;
}

/* --- the head --- */

static void print_plural(FILE *out, uint64_t count, const char *thing)
{
    fprintf(out, "%s %s%s", units_count(count).text, thing, count == 1 ? "" : "s");
}

static void write_head(FILE *out, const struct report_file *file, const struct analysis *analysis)
{
    char writer[120], gap[96];
    const struct snapshot *snapshot = analysis->snapshot;
    const struct snapshot_tarn *tarn = &snapshot->tarn;
    fprintf(out, "%s, device %d", name_shown(report_base_name(file->path)).text, analysis->device);
    if ((size_t)analysis->device < tarn->device_count &&
        *snapshot_text(snapshot, tarn->devices[analysis->device].name))
        fprintf(out, " (%s)", snapshot_text(snapshot, tarn->devices[analysis->device].name));
    if (analysis_is_of_host(analysis))
        fputs(" (memory of the host)", out);
    fprintf(out, ": recorded by %s", report_writer(snapshot, writer, sizeof writer));
    if (analysis->has_trace) {
        fputs("; ", out);
        print_plural(out, analysis->event_count, "event");
        fputs(", ", out);
        print_plural(out, analysis->workload.alloc_count, "allocation");
        if (analysis->has_times)
            fprintf(out, " in %s", units_time(analysis->times[analysis->event_count]).text);
    } else {
        fputs("; a state without a trace", out);
    }
    putc('\n', out);
    size_t partial = analysis->has_trace ? snapshot->traces[analysis->device].exact_from : 0;
    if (partial || tarn->overwritten)
        fprintf(out,
                "The recording is incomplete: before event %zu threads are missing, and %" PRIu64
                " events were overwritten.\n",
                partial, tarn->overwritten);
    if (*report_no_device(analysis, gap, sizeof gap))
        fprintf(out, "%s\n", gap);
}

static void write_sums(FILE *out, const struct analysis *analysis,
                       const struct report_options *options, uint32_t moment,
                       const struct analysis_state *state)
{
    const char *name = options->moment.kind == REPORT_AT_PEAK && analysis->has_trace
                           ? "peak allocated"
                           : "allocated";
    fprintf(out, "\n%-15s %9s", name, units_bytes(state->allocated).text);
    if (analysis->has_trace)
        fprintf(out, "  after event %s%s", units_count(moment).text,
                moment_time(analysis, moment).text);
    fputs(analysis->has_trace ? ", " : "  ", out);
    print_plural(out, state->blocks, "block");
    bool known = state->reserved || !state->allocated; /* a file may have a trace and no segments */
    fprintf(out, "\n%-15s %9s", "reserved then",
            known ? units_bytes(state->reserved).text : "not recorded");
    uint64_t most =
        analysis->has_trace ? analysis->snapshot->traces[analysis->device].reserved_most : 0;
    if (!known && most)
        fprintf(out, "; at most %s", units_bytes(most).text);
    if (state->idle && !analysis->has_trace) {
        uint64_t holes = state->unused - state->idle;
        fprintf(out, "  %s (%.1f %%) in ", units_bytes(state->idle).text,
                100 * (double)state->idle / (double)state->reserved);
        print_plural(out, state->idle_ranges, "segment");
        fprintf(out, " without a block, %s free (%.1f %%) in ", units_bytes(holes).text,
                100 * (double)holes / (double)state->reserved);
        print_plural(out, state->holes - state->idle_holes, "hole");
        if (holes)
            fprintf(out, ", the largest %s", units_bytes(state->largest_hole).text);
    } else if (state->unused) {
        fprintf(out, "  %s free (%.1f %%) in ", units_bytes(state->unused).text,
                100 * report_free_share(state));
        print_plural(out, state->holes, "hole");
        fprintf(out, ", the largest %s", units_bytes(state->largest_free).text);
    }
    putc('\n', out);
    if (state->waiting_blocks) {
        fprintf(out, "%-15s %9s  ", "waiting then", units_bytes(state->waiting).text);
        print_plural(out, state->waiting_blocks, "block");
        fputs(" freed, but not reusable yet\n", out);
    }
    if (analysis->has_trace && known)
        fprintf(out, "%-15s %9s  after event %s%s\n", "peak reserved",
                units_bytes(analysis->at_peak_reserved.reserved).text,
                units_count(analysis->peak_reserved).text,
                moment_time(analysis, analysis->peak_reserved).text);
}

void report_print_wrapped(FILE *out, const char *text, const struct report_options *options)
{
    const int left = 2;
    int column = left;
    fputs(options->unicode ? "• " : "* ", out);
    for (const char *at = text; *at;) {
        int length = (int)strcspn(at, " "), columns = 0;
        for (int i = 0; i < length; i++)
            columns += ((unsigned char)at[i] & 0xc0) != 0x80;
        if (column > left && column + 1 + columns > options->width) {
            fprintf(out, "\n%*s", left, "");
            column = left;
        } else if (column > left) {
            putc(' ', out);
            column++;
        }
        fwrite(at, 1, (size_t)length, out);
        column += columns;
        at += length;
        at += strspn(at, " ");
    }
    putc('\n', out);
}

static bool write_advice(FILE *out, const struct report_file *file, const struct analysis *analysis,
                         const struct report_options *options)
{
    struct advice_list list;
    if (!report_advice(file, analysis, &list))
        return false;
    if (list.count)
        putc('\n', out);
    else if (analysis->has_trace)
        fprintf(out, "%s: at most %s are allocated.\n",
                analysis->oom_count             ? "Nothing to advise"
                : analysis_shows_ooms(analysis) ? "It never runs out of memory"
                                                : "Out-of-memory errors are not recorded",
                units_bytes(analysis->at_peak.allocated).text);
    else if (analysis->at_peak.reserved)
        fprintf(out, "%.1f %% of what is reserved are allocated.\n",
                100.0 * (double)analysis->at_peak.allocated / (double)analysis->at_peak.reserved);
    const struct snapshot *snapshot = analysis->snapshot;
    if (!analysis->has_trace && !snapshot->tarn.there && !snapshot->of_driver)
        fputs("This line of Python, if it runs first, records a trace too:\n"
              "  torch.cuda.memory._record_memory_history(enabled=\"all\", context=\"all\")\n",
              out);
    for (size_t i = 0; i < list.count; i++)
        report_print_wrapped(out, list.items[i].text, options);
    return true;
}

/* --- the chart --- */

static void write_cell(FILE *out, const struct report_options *options, double filled, bool line)
{
    static const char *const eighths[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
    int eighth = filled <= 0 ? 0 : filled >= 1 ? 8 : (int)(filled * 8 + 0.5);
    if (eighth == 0 && line)
        fputs(options->unicode ? "·" : ".", out);
    else
        fputs(options->unicode ? eighths[eighth] : eighth >= 4 ? "#" : " ", out);
}

/* The column of the span that a moment belongs to. */
static size_t column_of(const struct analysis_span *spans, size_t count, uint32_t moment)
{
    size_t column = 0;
    while (column + 1 < count && spans[column + 1].highest <= moment)
        column++;
    return column;
}

static void write_axis(FILE *out, const struct analysis *analysis,
                       const struct report_options *options, const struct analysis_span *spans,
                       size_t columns)
{
    struct units_text end = analysis->has_times ? units_time(analysis->times[analysis->event_count])
                                                : units_count(analysis->event_count);
    char *marks = calloc(columns + 1, 1);
    if (!marks)
        return;
    memset(marks, '-', columns);
    marks[column_of(spans, columns, analysis->peak)] = '^';
    for (size_t i = 0; i < analysis->oom_count; i++)
        marks[column_of(spans, columns, analysis->ooms[i].event)] = '!';
    fprintf(out, "%*s %s", CHART_LEFT - 2, "0 B", options->unicode ? "└" : "+");
    for (size_t i = 0; i < columns; i++)
        if (marks[i] == '-' && options->unicode)
            fputs("─", out);
        else
            putc(marks[i], out);
    fprintf(out, "\n%*s%-*s%s%s\n", CHART_LEFT, "",
            (int)columns - (int)strlen(end.text) - (analysis->has_times ? 0 : 7),
            analysis->has_times ? "0 s" : "0", end.text, analysis->has_times ? "" : " events");
    free(marks);
}

static void write_free_share(FILE *out, const struct analysis *analysis,
                             const struct report_options *options,
                             const struct analysis_state *states, size_t columns)
{
    const struct analysis_state *most = &analysis->at_emptiest;
    fprintf(out, "%*s", CHART_LEFT, "free     ");
    for (size_t i = 0; i < columns; i++) {
        double share = report_free_share(&states[i]);
        if (options->unicode)
            write_cell(out, options, share, false);
        else
            putc(states[i].unused ? '0' + (int)(share * 9.99) : ' ', out);
    }
    fprintf(out, "\n%*smost free: %s after event %s%s, %.1f %% of what was reserved then\n",
            CHART_LEFT, "", units_bytes(most->unused).text, units_count(analysis->emptiest).text,
            moment_time(analysis, analysis->emptiest).text, 100 * report_free_share(most));
}

static bool write_chart(FILE *out, const struct analysis *analysis,
                        const struct report_options *options)
{
    size_t columns =
        (size_t)(options->width > CHART_LEFT + 20 ? options->width - CHART_LEFT - 1 : 20);
    struct analysis_span *spans = calloc(columns, sizeof *spans);
    struct analysis_state *states = calloc(columns, sizeof *states);
    uint32_t *moments = calloc(columns, sizeof *moments);
    bool made = spans && states && moments && analysis_spans(analysis, spans, columns);
    for (size_t i = 0; made && i < columns; i++)
        moments[i] = i && spans[i].highest < moments[i - 1] ? moments[i - 1] : spans[i].highest;
    made = made && analysis_states(analysis, moments, columns, states);
    if (made) {
        uint64_t top = analysis->at_peak_reserved.reserved;
        top = top > analysis->at_peak.allocated ? top : analysis->at_peak.allocated;
        fprintf(out, "\n%s over time; %s reserved, ^ peak%s\n",
                options->unicode ? "Allocated ▇" : "Allocated #", options->unicode ? "·" : ".",
                analysis->oom_count ? ", ! out of memory" : "");
        for (int row = CHART_ROWS - 1; row >= 0; row--) {
            double low = (double)top * row / CHART_ROWS, step = top ? (double)top / CHART_ROWS : 1;
            bool labelled = row == CHART_ROWS - 1 || row == CHART_ROWS / 2 - 1;
            uint64_t value = row == CHART_ROWS - 1 ? top : top / 2;
            fprintf(out, "%*s %s", CHART_LEFT - 2, labelled ? units_bytes(value).text : "",
                    options->unicode ? "│" : "|");
            for (size_t i = 0; i < columns; i++) {
                double reserved = ((double)spans[i].reserved - low) / step;
                write_cell(out, options, ((double)spans[i].allocated - low) / step,
                           reserved > 0 && reserved <= 1);
            }
            putc('\n', out);
        }
        write_axis(out, analysis, options, spans, columns);
        if (analysis->at_peak_reserved.reserved)
            write_free_share(out, analysis, options, states, columns);
    }
    free(spans);
    free(states);
    free(moments);
    return made;
}

/* --- who has it --- */

static const struct {
    enum analysis_by by;
    const char *name;
} tables[] = {
    {ANALYSIS_BY_TOP, "by first part of the tag"},
    {ANALYSIS_BY_TAG, "by tag"},
    {ANALYSIS_BY_CATEGORY, "by category"},
    {ANALYSIS_BY_SITE, "by call site"},
    {ANALYSIS_BY_MODULE, "by module"},
    {ANALYSIS_BY_STREAM, "by stream"},
    {ANALYSIS_BY_POOL, "by pool"},
    {ANALYSIS_BY_THREAD, "by thread"},
};

static bool write_groups(FILE *out, const struct analysis *analysis, enum analysis_by by,
                         const char *name, const struct report_options *options, uint32_t moment,
                         uint64_t all)
{
    size_t count;
    struct analysis_group *groups = analysis_groups(analysis, by, moment, &count);
    if (!groups)
        return false;
    /* A table with one group is printed only if the group has a name or the user asked for it. */
    bool said = options->by || count > 1 ||
                (count == 1 && groups[0].key &&
                 (by == ANALYSIS_BY_TOP || by == ANALYSIS_BY_CATEGORY || by == ANALYSIS_BY_SITE ||
                  by == ANALYSIS_BY_MODULE));
    if (said) {
        fprintf(out, "\n%10s %7s %8s  %s\n", "bytes", "share", "blocks", name);
        for (size_t i = 0; i < count && i < options->rows; i++) {
            char label[400];
            fprintf(out, "%10s %5.1f %% %8s  ", units_bytes(groups[i].bytes).text,
                    all ? 100 * (double)groups[i].bytes / (double)all : 0.0,
                    units_count(groups[i].blocks).text);
            print_path(out, analysis_label(analysis, by, groups[i].key, label, sizeof label), 29,
                       options->width);
        }
        if (count > options->rows) {
            uint64_t rest = 0, blocks = 0;
            for (size_t i = options->rows; i < count; i++) {
                rest += groups[i].bytes;
                blocks += groups[i].blocks;
            }
            fprintf(out, "%10s %5.1f %% %8s  %zu more\n", units_bytes(rest).text,
                    all ? 100 * (double)rest / (double)all : 0.0, units_count(blocks).text,
                    count - options->rows);
        }
    }
    free(groups);
    return true;
}

/* Prints one error: what was requested, by whom, and what memory there was. */
static bool write_oom(FILE *out, const struct analysis *analysis, const struct analysis_oom *oom,
                      const struct report_options *options)
{
    struct analysis_state state;
    char label[400];
    uint32_t moment = oom->event < analysis->event_count ? oom->event : analysis->event_count;
    if (!analysis_states(analysis, &moment, 1, &state))
        return false;
    fprintf(out, "  %-14s %9s  at event %s%s\n", "requested", units_bytes(oom->asked).text,
            units_count(oom->event).text,
            moment_time(analysis, analysis_oom_after(analysis, oom)).text);
    const struct {
        const char *name;
        enum analysis_by by;
        uint32_t key;
    } who[] = {{"for", ANALYSIS_BY_TAG, oom->tag},
               {"by", ANALYSIS_BY_SITE, analysis->sites[oom->stack]},
               {"on", ANALYSIS_BY_STREAM, oom->stream},
               {"in", ANALYSIS_BY_POOL, oom->pool},
               {"from", ANALYSIS_BY_THREAD, oom->thread}};
    for (size_t i = 0; i < sizeof who / sizeof *who; i++)
        if (who[i].key) {
            fprintf(out, "  %-14s ", who[i].name);
            print_path(out, analysis_label(analysis, who[i].by, who[i].key, label, sizeof label),
                       17, options->width);
        }
    fprintf(out, "  %-14s %9s  in ", "allocated", units_bytes(state.allocated).text);
    print_plural(out, state.blocks, "block");
    if (state.reserved)
        fprintf(out, "\n  %-14s %9s  %s free (%.1f %%), at most %s in one piece", "reserved",
                units_bytes(state.reserved).text, units_bytes(state.unused).text,
                100 * report_free_share(&state), units_bytes(state.largest_free).text);
    if (state.reserved || oom->device_free)
        fprintf(out, "\n  %-14s %9s", "device free", units_bytes(oom->device_free).text);
    putc('\n', out);
    return true;
}

/* Prints the last errors, since these ended the program. */
static bool write_ooms(FILE *out, const struct analysis *analysis,
                       const struct report_options *options)
{
    size_t most = options->rows < OOMS_SHOWN ? options->rows : OOMS_SHOWN;
    size_t first = analysis->oom_count > most ? analysis->oom_count - most : 0;
    for (size_t i = first; i < analysis->oom_count; i++) {
        if (i > first)
            putc('\n', out);
        else
            fprintf(out, "\nOut of memory %s time%s%s\n", units_count(analysis->oom_count).text,
                    analysis->oom_count == 1 ? "" : "s", first ? ", the last of them:" : "");
        if (!write_oom(out, analysis, &analysis->ooms[i], options))
            return false;
    }
    return true;
}

static void write_handles(FILE *out, const struct analysis *analysis)
{
    const struct snapshot *snapshot = analysis->snapshot;
    const struct snapshot_tarn *tarn = &snapshot->tarn;
    bool first = true;
    for (size_t i = 0; i < tarn->handle_count; i++) {
        const struct snapshot_handle *handle = &tarn->handles[i];
        uint64_t bytes = 0;
        if (handle->device != analysis->device)
            continue;
        for (size_t j = 0; j < tarn->workspace_count; j++)
            if (tarn->workspaces[j].device == analysis->device &&
                tarn->workspaces[j].library == handle->library)
                bytes += tarn->workspaces[j].size;
        fprintf(out, "%s%s %" PRIu64 " (%" PRIu64 " in use", first ? "\nHandles: " : ", ",
                snapshot_text(snapshot, handle->library), handle->count, handle->in_use);
        fprintf(out, bytes ? ", workspaces %s)" : "%s)", bytes ? units_bytes(bytes).text : "");
        first = false;
    }
    if (!first)
        putc('\n', out);
}

/* The head of the table of graphs. The default pool never sleeps. */
static void write_graphs_head(FILE *out, const struct analysis *analysis,
                              const struct snapshot_graph *const *graphs, size_t count)
{
    bool may_sleep = false;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *pool = analysis->snapshot->pools[graphs[i]->pool];
        may_sleep = may_sleep || pool[0] || pool[1];
    }
    fprintf(out,
            "\nGraphs and the pools that they refer to%s\n"
            "     graph       bytes   blocks  of them gone  pool\n",
            may_sleep ? ": a launch fails while a private pool sleeps" : "");
}

/* What remembered graphs refer to, and which memory is only theirs. */
static bool write_graphs(FILE *out, const struct analysis *analysis,
                         const struct report_options *options)
{
    uint64_t pools, bytes = report_of_graphs(analysis, &pools);
    size_t count;
    const struct snapshot_graph **graphs = report_graphs(analysis, &count);
    if (!graphs)
        return false;
    if (count)
        write_graphs_head(out, analysis, graphs, count);
    for (size_t i = 0; i < count && i < options->rows; i++) {
        char label[64];
        fprintf(out, "%10" PRIu64 " %11s %8s %13s  %s\n", graphs[i]->number,
                units_bytes(graphs[i]->bytes).text, units_count(graphs[i]->blocks).text,
                units_count(graphs[i]->gone).text,
                analysis_label(analysis, ANALYSIS_BY_POOL, graphs[i]->pool, label, sizeof label));
    }
    if (count > options->rows)
        fprintf(out, "%10s %11s %8s %13s  %zu more\n", "", "", "", "", count - options->rows);
    if (pools)
        fprintf(out, "\nOnly graphs hold %s, in %s pool%s.\n", units_bytes(bytes).text,
                units_count(pools).text, pools == 1 ? "" : "s");
    free(graphs);
    return true;
}

static bool write_device(FILE *out, const struct report_file *file, const struct analysis *analysis,
                         const struct report_options *options)
{
    uint32_t moment = report_moment_of(analysis, &options->moment);
    struct analysis_state state;
    if (!analysis_states(analysis, &moment, 1, &state))
        return false;
    write_head(out, file, analysis);
    if (!write_advice(out, file, analysis, options))
        return false;
    write_sums(out, analysis, options, moment, &state);
    if (analysis->has_trace && !write_chart(out, analysis, options))
        return false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if ((!options->by || options->by >> tables[i].by & 1) &&
            !write_groups(out, analysis, tables[i].by, tables[i].name, options, moment,
                          state.allocated))
            return false;
    if (!write_graphs(out, analysis, options))
        return false;
    write_handles(out, analysis);
    return write_ooms(out, analysis, options);
}

bool report_text_write(FILE *out, const struct report_file *file,
                       const struct report_options *options)
{
    for (size_t i = 0; i < file->count; i++) {
        if (i)
            putc('\n', out);
        if (!write_device(out, file, &file->analyses[i], options))
            return false;
    }
    return !ferror(out);
}

/* --- the comparison --- */

static const struct analysis *device_of(const struct report_file *file, int device)
{
    for (size_t i = 0; i < file->count; i++)
        if (file->analyses[i].device == device)
            return &file->analyses[i];
    return NULL;
}

/* "+1.50 GiB" */
static struct units_text growth(uint64_t before, uint64_t after)
{
    struct units_text text = {"0 B"};
    if (before != after)
        snprintf(text.text, sizeof text.text, "%c%.30s", after > before ? '+' : '-',
                 units_bytes(after > before ? after - before : before - after).text);
    return text;
}

static void diff_row(FILE *out, const char *name, uint64_t before, uint64_t after)
{
    fprintf(out, "%-28s %11s %11s %12s\n", name, units_bytes(before).text, units_bytes(after).text,
            growth(before, after).text);
}

/* The same for a figure that a file may lack. A missing figure is "-", and then no growth is
 * printed. */
static void diff_row_known(FILE *out, const char *name, uint64_t before, bool one, uint64_t after,
                           bool two)
{
    fprintf(out, "%-28s %11s %11s", name, one ? units_bytes(before).text : "-",
            two ? units_bytes(after).text : "-");
    if (one && two)
        fprintf(out, " %12s", growth(before, after).text);
    putc('\n', out);
}

/* A file may have a trace and no segments. */
static bool shows_reserved(const struct analysis_state *state)
{
    return state->reserved || !state->allocated;
}

static void diff_reserved(FILE *out, const struct analysis *before,
                          const struct analysis_state *one, const struct analysis *after,
                          const struct analysis_state *two)
{
    const bool first = shows_reserved(one), second = shows_reserved(two);
    diff_row_known(out, "reserved", one->reserved, first, two->reserved, second);
    diff_row_known(out, "free in reserved", one->unused, first, two->unused, second);
    diff_row_known(out, "largest hole", one->largest_free, first, two->largest_free, second);
    diff_row(out, "peak allocated", before->at_peak.allocated, after->at_peak.allocated);
    diff_row_known(out, "peak reserved", before->at_peak_reserved.reserved,
                   shows_reserved(&before->at_peak_reserved), after->at_peak_reserved.reserved,
                   shows_reserved(&after->at_peak_reserved));
}

/* The last cells of a comparison: a share in percent, and a number of errors. */
static struct units_text share_of(const struct analysis_state *state)
{
    struct units_text text = {"-"};
    if (shows_reserved(state))
        snprintf(text.text, sizeof text.text, "%.1f%%", 100 * report_free_share(state));
    return text;
}

static struct units_text errors_of(const struct analysis *analysis)
{
    return analysis_shows_ooms(analysis) ? units_count(analysis->oom_count)
                                         : (struct units_text){"-"};
}

static bool diff_groups(FILE *out, const struct analysis *before, const struct analysis *after,
                        enum analysis_by by, const char *name, const struct report_options *options)
{
    size_t count, shown = 0;
    struct analysis_change *changes =
        analysis_diff(before, report_moment_of(before, &options->moment), after,
                      report_moment_of(after, &options->moment), by, &count);
    if (!changes)
        return false;
    for (size_t i = 0; i < count && shown < options->rows && changes[i].before != changes[i].after;
         i++, shown++) {
        if (!shown)
            fprintf(out, "\n%-12s %11s %11s %15s  %s\n", "growth", "before", "after", "blocks",
                    name);
        char blocks[48];
        snprintf(blocks, sizeof blocks, "%zu > %zu", changes[i].blocks_before,
                 changes[i].blocks_after);
        fprintf(out, "%-12s %11s %11s %15s  ", growth(changes[i].before, changes[i].after).text,
                units_bytes(changes[i].before).text, units_bytes(changes[i].after).text, blocks);
        report_print_label(out, changes[i].label, options->width - 55);
        putc('\n', out);
    }
    free(changes);
    return true;
}

bool report_diff_say(const struct analysis *before, const struct analysis *after,
                     const struct report_options *options, char *text, size_t size)
{
    enum analysis_by by = ANALYSIS_BY_SITE;
    if (options->by && !(options->by >> by & 1))
        for (by = 0; !(options->by >> by & 1);)
            by++;
    return analysis_diff_say(before, report_moment_of(before, &options->moment), after,
                             report_moment_of(after, &options->moment), by,
                             report_moment_name(&options->moment), text, size);
}

static bool diff_device(FILE *out, const struct analysis *before, const struct analysis *after,
                        const struct report_options *options)
{
    const uint32_t moments[] = {report_moment_of(before, &options->moment),
                                report_moment_of(after, &options->moment)};
    const unsigned asked =
        options->by ? options->by
                    : 1U << ANALYSIS_BY_TAG | 1U << ANALYSIS_BY_SITE | 1U << ANALYSIS_BY_POOL;
    struct analysis_state one, two;
    if (!analysis_states(before, &moments[0], 1, &one) ||
        !analysis_states(after, &moments[1], 1, &two))
        return false;
    fprintf(out, "device %d at %-16s %11s %11s %12s\n", before->device,
            report_moment_name(&options->moment), "before", "after", "growth");
    diff_row(out, "allocated", one.allocated, two.allocated);
    diff_row(out, "waiting", one.waiting, two.waiting);
    diff_reserved(out, before, &one, after, &two);
    fprintf(out, "%-28s %11s %11s\n", "blocks", units_count(one.blocks).text,
            units_count(two.blocks).text);
    fprintf(out, "%-28s %11s %11s\n", "free share of reserved", share_of(&one).text,
            share_of(&two).text);
    fprintf(out, "%-28s %11s %11s\n", "times out of memory", errors_of(before).text,
            errors_of(after).text);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (asked >> tables[i].by & 1 &&
            !diff_groups(out, before, after, tables[i].by, tables[i].name, options))
            return false;
    return true;
}

/* Prints what changed, one sentence per device that both files have. */
static bool diff_verdicts(FILE *out, const struct report_file *before,
                          const struct report_file *after, const struct report_options *options)
{
    for (size_t i = 0; i < before->count; i++) {
        const struct analysis *one = &before->analyses[i], *two = device_of(after, one->device);
        char text[800];
        int begun = before->count > 1 ? snprintf(text, sizeof text, "device %d: ", one->device) : 0;
        if (two && !report_diff_say(one, two, options, text + begun, sizeof text - (size_t)begun))
            return false;
        if (two)
            report_print_wrapped(out, text, options);
    }
    putc('\n', out);
    return true;
}

bool report_diff_text(FILE *out, const struct report_file *before, const struct report_file *after,
                      const struct report_options *options)
{
    bool first = true;
    if (!diff_verdicts(out, before, after, options))
        return false;
    fprintf(out, "before: %s\nafter:  %s\n", name_shown(before->path).text,
            name_shown(after->path).text);
    for (size_t i = 0; i < before->count; i++) {
        const struct analysis *other = device_of(after, before->analyses[i].device);
        if (!other) {
            fprintf(out, "\ndevice %d is only in the first file\n", before->analyses[i].device);
            continue;
        }
        putc('\n', out);
        if (!diff_device(out, &before->analyses[i], other, options))
            return false;
        first = false;
    }
    for (size_t i = 0; i < after->count; i++)
        if (!device_of(before, after->analyses[i].device))
            fprintf(out, "\ndevice %d is only in the second file\n", after->analyses[i].device);
    if (first)
        fputs("\nThe files have no device in common.\n", out);
    return !ferror(out);
}
