/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The tables of `tarn replay`, for a person at a terminal of 100 columns: one card per device, with
 * a row per figure and a column per allocator; and for several files one line per device.
 * libsmartcols lays out the columns. */
#include "name.h"
#include "replay/replay_report.h"
#include "units.h"

#include <inttypes.h>
#include <libsmartcols.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PROBLEM_COLOUR "\033[1;31m"

struct column {
    const char *name;
    int flags;
};

/* A table under construction. After the first failure nothing more is done. */
struct table_draft {
    struct libscols_table *table;
    FILE *out;
    size_t columns;
    bool failed;
};

/* The last part of a path, as it may be shown. */
static struct name_text base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return name_shown(slash && slash[1] ? slash + 1 : path);
}

static struct table_draft table_begin(FILE *out, const struct column *columns, size_t count,
                                      bool colour)
{
    struct table_draft draft = {.table = scols_new_table(), .out = out, .columns = count};
    draft.failed = !draft.table || scols_table_set_column_separator(draft.table, "  ") ||
                   scols_table_enable_colors(draft.table, colour);
    for (size_t i = 0; i < count && !draft.failed; i++)
        draft.failed = !scols_table_new_column(draft.table, columns[i].name, 0, columns[i].flags);
    return draft;
}

/* Adds a row of one text per column; NULL leaves a cell empty. */
static void table_row(struct table_draft *draft, const char *const *cells, const char *colour)
{
    struct libscols_line *line = draft->failed ? NULL : scols_table_new_line(draft->table, NULL);
    draft->failed = !line;
    for (size_t i = 0; i < draft->columns && !draft->failed; i++)
        draft->failed = cells[i] && scols_line_set_data(line, i, cells[i]) != 0;
    if (colour && !draft->failed)
        draft->failed = scols_line_set_color(line, colour) != 0;
}

/* Prints the table and frees it, without the padding at the ends of lines. */
static bool table_end(struct table_draft *draft)
{
    char *text = NULL;
    bool done = !draft->failed && scols_print_table_to_string(draft->table, &text) == 0 && text;
    for (const char *line = text; done && *line;) {
        size_t length = strcspn(line, "\n"), kept = length;
        while (kept > 0 && line[kept - 1] == ' ')
            kept--;
        done = fprintf(draft->out, "%.*s\n", (int)kept, line) > 0;
        line += length + (line[length] == '\n');
    }
    free(text);
    scols_unref_table(draft->table);
    return done;
}

static struct units_text ratio_text(double numerator, double denominator)
{
    struct units_text text = {"-"};
    if (denominator > 0)
        snprintf(text.text, sizeof text.text, "%.3f", numerator / denominator);
    return text;
}

static const char *const policy_names[] = {[REPLAY_TARN] = "tarn",
                                           [REPLAY_NATIVE] = "PyTorch's native policy",
                                           [REPLAY_EXPANDABLE] =
                                               "PyTorch with expandable segments"};

/* The figures of an allocator. */
struct taken {
    uint64_t reserved, least, time_ns, calls; /* bytes, ns by the cost table that is shown */
};

static uint64_t sum_calls(const uint64_t *calls)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < REPLAY_MAX_CALLS; i++)
        sum += calls[i];
    return sum;
}

static struct taken taken_by(const struct replay_result *result, enum replay_policy policy)
{
    const struct replay_repetition *first = &result->first;
    const struct replay_model *model = &result->models[policy];
    if (policy == REPLAY_TARN)
        return (struct taken){result->peak_reserved, result->least[policy],
                              result->has_table_c ? first->time_c_ns : first->time_b_ns,
                              sum_calls(first->calls)};
    return (struct taken){model->run.peak_reserved, result->least[policy],
                          result->has_table_c ? model->time_c_ns : model->time_b_ns,
                          c10_calls(&model->run)};
}

/* ---- the card of a device ---- */

#define CARD_COLUMNS (1 + REPLAY_POLICIES)

/* A row with a figure of each allocator; an empty text leaves its cell empty. */
static void card_row(struct table_draft *draft, const char *label, const struct units_text *texts)
{
    const char *cells[CARD_COLUMNS] = {label};
    for (int i = 0; i < REPLAY_POLICIES; i++)
        cells[1 + i] = texts[i].text[0] ? texts[i].text : NULL;
    table_row(draft, cells, NULL);
}

/* A row with a figure that all share, or that only tarn has. */
static void card_row_of_one(struct table_draft *draft, const char *label, struct units_text text)
{
    const struct units_text texts[REPLAY_POLICIES] = {text};
    card_row(draft, label, texts);
}

/* A row of quotients. */
static void card_ratios(struct table_draft *draft, const char *label, const uint64_t *bytes,
                        uint64_t of)
{
    struct units_text texts[REPLAY_POLICIES];
    for (int i = 0; i < REPLAY_POLICIES; i++)
        texts[i] = ratio_text((double)bytes[i], (double)of);
    card_row(draft, label, texts);
}

static void card_memory(struct table_draft *draft, const struct replay_result *result, bool least)
{
    struct units_text reserved[REPLAY_POLICIES], devices[REPLAY_POLICIES];
    uint64_t bytes[REPLAY_POLICIES];
    for (enum replay_policy policy = REPLAY_TARN; policy < REPLAY_POLICIES; policy++) {
        bytes[policy] = taken_by(result, policy).reserved;
        reserved[policy] = units_bytes(bytes[policy]);
        devices[policy] = result->least[policy] ? units_bytes_up(result->least[policy])
                                                : (struct units_text){"-"};
    }
    card_row_of_one(draft, "peak requested", units_bytes(result->peak_requested));
    card_row_of_one(draft, "peak active", units_bytes(result->peak_active));
    card_row(draft, "peak reserved", reserved);
    card_ratios(draft, "reserved / requested", bytes, result->peak_requested);
    card_ratios(draft, "reserved / active", bytes, result->peak_active);
    if (least) {
        card_row(draft, "smallest device", devices);
        card_ratios(draft, "smallest device / requested", result->least, result->peak_requested);
    }
}

/* How often a model makes a driver call, by the host device's name of it. */
static uint64_t model_calls(const struct c10_result *run, const char *name)
{
    for (int i = 0; i < C10_CALLS; i++)
        if (strcmp(c10_call_name((enum c10_call)i), name) == 0)
            return run->cost[i].calls;
    return 0;
}

static void card_call(struct table_draft *draft, const struct replay_result *result, size_t kind)
{
    struct units_text texts[REPLAY_POLICIES] = {units_count(result->first.calls[kind])};
    uint64_t all = result->first.calls[kind];
    for (enum replay_policy policy = REPLAY_NATIVE; policy < REPLAY_POLICIES; policy++) {
        uint64_t calls = model_calls(&result->models[policy].run, result->call_names[kind]);
        texts[policy] = units_count(calls);
        all += calls;
    }
    char label[32] = "  ";
    strncat(label, result->call_names[kind], sizeof label - 3);
    for (char *at = label; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    if (all)
        card_row(draft, label, texts);
}

/* With `repeated` the labels name the repetition. */
static void card_driver(struct table_draft *draft, const struct replay_result *result,
                        bool repeated)
{
    struct units_text times[REPLAY_POLICIES], calls[REPLAY_POLICIES];
    char label[64];
    for (enum replay_policy policy = REPLAY_TARN; policy < REPLAY_POLICIES; policy++) {
        times[policy] = units_time(taken_by(result, policy).time_ns);
        calls[policy] = units_count(taken_by(result, policy).calls);
    }
    snprintf(label, sizeof label, "driver time, cost table %s%s", result->has_table_c ? "C" : "B",
             repeated ? ", repetition 1" : "");
    card_row(draft, label, times);
    if (result->first.waited_ns)
        card_row_of_one(draft, "  of these, waits for work", units_time(result->first.waited_ns));
    card_row(draft, repeated ? "driver calls, repetition 1" : "driver calls", calls);
    for (size_t i = 0; i < REPLAY_MAX_CALLS && result->call_names[i][0]; i++)
        card_call(draft, result, i);
}

static bool repetitions_write(FILE *out, const struct replay_device *device, bool colour)
{
    static const struct column columns[] = {
        {"repetition", SCOLS_FL_RIGHT},      {"peak reserved", SCOLS_FL_RIGHT},
        {"driver calls", SCOLS_FL_RIGHT},    {"driver time", SCOLS_FL_RIGHT},
        {"events a second", SCOLS_FL_RIGHT},
    };
    fputc('\n', out);
    struct table_draft draft = table_begin(out, columns, sizeof columns / sizeof *columns, colour);
    for (size_t i = 0; i < device->repetition_count; i++) {
        if (device->repetition_count > 20 && i == 10) { /* further rows would say nothing more */
            i = device->repetition_count - 6;
            table_row(&draft, (const char *const[]){"...", NULL, NULL, NULL, NULL}, NULL);
            continue;
        }
        const struct replay_repetition *repetition = &device->repetitions[i];
        double speed =
            repetition->seconds > 0 ? (double)device->result.events / repetition->seconds : 0;
        uint64_t time = device->result.has_table_c ? repetition->time_c_ns : repetition->time_b_ns;
        table_row(&draft,
                  (const char *const[]){units_count(i + 1).text,
                                        units_bytes(repetition->peak_reserved).text,
                                        units_count(sum_calls(repetition->calls)).text,
                                        units_time(time).text, units_count((uint64_t)speed).text},
                  NULL);
    }
    return table_end(&draft);
}

static void notes_write(FILE *out, const struct replay_result *result, size_t repetitions)
{
    if (repetitions > 1)
        fprintf(out, "  repetitions: %s; the peaks are over all of them\n",
                units_count(repetitions).text);
    if (result->initial_blocks)
        fprintf(out, "  %s block%s alive before the trace\n",
                units_count(result->initial_blocks).text,
                result->initial_blocks == 1 ? " was" : "s were");
    if (result->late_frees)
        fprintf(out, "  late frees: %s, each used by %s stream until it was completed\n",
                units_count(result->late_frees).text, result->has_order ? "another" : "a helper");
    if (result->moved_frees)
        fprintf(out, "  frees in the order of another stream than the block's: %s\n",
                units_count(result->moved_frees).text);
    if (result->pools > 1)
        fprintf(out, "  pools: %s, each one of its own%s\n", units_count(result->pools).text,
                result->has_order ? "" : ", held as by graphs");
    if (result->trims)
        fprintf(out, "  times that the program gave back what was cached: %s\n",
                units_count(result->trims).text);
    if (result->waits || result->captures)
        fprintf(out, "  waits of streams: %s, captures: %s%s%s\n", units_count(result->waits).text,
                units_count(result->captures).text, result->refused ? "; refused here: " : "",
                result->refused ? units_count(result->refused).text : "");
    if (result->ooms_tried)
        fprintf(out,
                "  out-of-memory errors in the recording: %s; of %s that were tried, %s fail here\n"
                "  of %s that were tried with PyTorch's native policy, %s fail; with expandable "
                "segments %s\n",
                units_count(result->recorded_ooms).text, units_count(result->ooms_tried).text,
                units_count(result->ooms_here).text,
                units_count(result->models[REPLAY_NATIVE].run.tried).text,
                units_count(result->models[REPLAY_NATIVE].run.denied).text,
                units_count(result->models[REPLAY_EXPANDABLE].run.denied).text);
    else if (result->recorded_ooms)
        fprintf(out, "  out-of-memory errors in the recording: %s%s\n",
                units_count(result->recorded_ooms).text,
                result->unsized ? ", not tried, since it does not show how large the device was; "
                                  "--device-memory says it, "
                                  "--least finds what would do"
                                : "");
    if (result->lost_events)
        fprintf(out, "  the recording lost or contradicts %s events\n",
                units_count(result->lost_events).text);
    for (enum replay_policy policy = REPLAY_NATIVE; policy < REPLAY_POLICIES; policy++)
        if (result->models[policy].run.ooms)
            fprintf(out,
                    "  %s finds no memory for %s allocations on this device, and leaves them out\n",
                    policy_names[policy], units_count(result->models[policy].run.ooms).text);
    if (result->recorded_peak_reserved != WORKLOAD_NOT_KNOWN)
        fprintf(out, "  reserved in the recording%s: %s, %s times what was requested\n",
                result->modelled ? " (modelled)" : "",
                units_bytes(result->recorded_peak_reserved).text,
                ratio_text((double)result->recorded_peak_reserved, (double)result->peak_requested)
                    .text);
}

static void verdict_write(FILE *out, const struct replay_result *result, bool colour)
{
    const char *on = colour ? PROBLEM_COLOUR : "", *off = colour ? "\033[0m" : "";
    if (result->error[0])
        fprintf(out, "%sfailed: %s%s\n", on, result->error, off);
    if (result->divergences) {
        fprintf(out, "%sDIVERGENCES: %s%s\n", on, units_count(result->divergences).text, off);
        for (size_t i = 0; i < result->divergences && i < REPLAY_KEPT_DIVERGENCES; i++)
            fprintf(out, "  %s\n", result->divergence[i]);
        if (result->divergences > REPLAY_KEPT_DIVERGENCES)
            fprintf(out, "  ...\n");
    } else if (!result->error[0]) {
        fprintf(out, "every step was verified: no divergence\n");
    }
}

/* "tarn reserves at most 1.17 GiB, PyTorch native 1.20 GiB, ..." */
static void reserved_write(FILE *out, const struct replay_result *result)
{
    if (result->error[0])
        return;
    static const char *const names[] = {
        [REPLAY_NATIVE] = "PyTorch native", [REPLAY_EXPANDABLE] = "expandable"};
    fprintf(out, "tarn reserves at most %s", units_bytes(result->peak_reserved).text);
    for (enum replay_policy policy = REPLAY_NATIVE; policy < REPLAY_POLICIES; policy++) {
        const struct c10_result *run = &result->models[policy].run;
        if (run->ooms)
            fprintf(out, ", %s lacks memory", names[policy]);
        else
            fprintf(out, ", %s %s", names[policy], units_bytes(run->peak_reserved).text);
    }
    fputc('\n', out);
}

static bool device_write(FILE *out, const struct replay_file *file,
                         const struct replay_device *device, bool colour)
{
    const struct replay_result *result = &device->result;
    const struct replay_options *options = file->options;
    fprintf(out, "%s%s, device %d%s\n", colour ? "\033[1m" : "", base_name(file->path).text,
            result->device, colour ? "\033[0m" : "");
    reserved_write(out, result);
    verdict_write(out, result, colour);
    fprintf(out, "  %s events, %s allocations, %s %s, on the %s device of %s",
            units_count(result->events).text, units_count(result->allocations).text,
            units_count(result->streams).text, result->streams == 1 ? "stream" : "streams",
            options->driver, units_bytes(result->device_memory).text);
    if (result->lag)
        fprintf(out, ", lag %g ms", (double)result->lag / 1e6);
    if (options->deal_streams)
        fprintf(out, ", dealt over %" PRIu32 " streams", options->deal_streams);
    if (result->threads > 1 && !options->deal_threads)
        fprintf(out, ", %s threads", units_count(result->threads).text);
    if (options->deal_threads)
        fprintf(out, ", dealt over %" PRIu32 " threads", options->deal_threads);
    fputc('\n', out);
    notes_write(out, result, device->repetition_count);

    bool done = true;
    if (!result->error[0]) {
        static const struct column columns[] = {{"", 0},
                                                {"tarn", SCOLS_FL_RIGHT},
                                                {"PyTorch native", SCOLS_FL_RIGHT},
                                                {"expandable", SCOLS_FL_RIGHT}};
        fputc('\n', out);
        struct table_draft draft =
            table_begin(out, columns, sizeof columns / sizeof *columns, colour);
        card_memory(&draft, result, options->least);
        card_driver(&draft, result, device->repetition_count > 1);
        done = table_end(&draft);
        if (device->repetition_count > 1)
            done = repetitions_write(out, device, colour) && done;
        if (result->first.seconds > 0)
            fprintf(out, "\n%s events a second%s (%s, with the oracle)\n",
                    units_count((uint64_t)((double)result->events / result->first.seconds)).text,
                    device->repetition_count > 1 ? " in repetition 1" : "",
                    units_time((uint64_t)(result->first.seconds * 1e9)).text);
    }
    fputc('\n', out);
    return done;
}

/* ---- the state of a file without a trace ---- */

static bool state_write(FILE *out, const struct replay_file *file, bool colour)
{
    static const struct column columns[] = {
        {"", 0},
        {"segments", SCOLS_FL_RIGHT},
        {"blocks", SCOLS_FL_RIGHT},
        {"allocated", SCOLS_FL_RIGHT},
        {"active", SCOLS_FL_RIGHT},
        {"reserved", SCOLS_FL_RIGHT},
        {"largest free", SCOLS_FL_RIGHT},
    };
    fprintf(out, "%s%s%s\n  no trace to replay; the state of the snapshot\n\n",
            colour ? "\033[1m" : "", base_name(file->path).text, colour ? "\033[0m" : "");
    if (file->state_count == 0) {
        fprintf(out, "no segments\n\n");
        return true;
    }
    struct table_draft draft = table_begin(out, columns, sizeof columns / sizeof *columns, colour);
    for (size_t i = 0; i < file->state_count; i++) {
        const struct replay_state *state = &file->states[i];
        char label[96];
        if (state->whole)
            snprintf(label, sizeof label, "device %d", state->device);
        else
            snprintf(label, sizeof label, "  stream 0x%" PRIx64 ", pool %" PRIu64 ".%" PRIu64,
                     state->stream, state->pool[0], state->pool[1]);
        table_row(&draft,
                  (const char *const[]){
                      label, units_count(state->segments).text, units_count(state->blocks).text,
                      units_bytes(state->allocated).text, units_bytes(state->active).text,
                      units_bytes(state->reserved).text, units_bytes(state->largest_free).text},
                  NULL);
    }
    bool done = table_end(&draft);
    fputc('\n', out);
    return done;
}

bool replay_table_write(FILE *out, const struct replay_file *file, bool colour)
{
    bool done = true;
    for (size_t i = 0; i < file->device_count; i++)
        done = device_write(out, file, &file->devices[i], colour) && done;
    if (!file->error[0] && file->device_count == 0)
        done = state_write(out, file, colour) && done;
    return done && fflush(out) == 0 && !ferror(out);
}

/* ---- the summary of several files ---- */

/* A geometric mean in progress. */
struct mean {
    double logs;
    size_t count;
};

static struct units_text mean_add(struct mean *mean, double numerator, double denominator)
{
    if (numerator > 0 && denominator > 0) {
        mean->logs += log(numerator / denominator);
        mean->count++;
    }
    return ratio_text(numerator, denominator);
}

static struct units_text mean_text(const struct mean *mean)
{
    return ratio_text(mean->count ? exp(mean->logs / (double)mean->count) : 0, mean->count ? 1 : 0);
}

struct summary {
    struct table_draft draft;
    struct mean reserved[REPLAY_POLICIES], least[REPLAY_POLICIES], time;
    uint64_t events, divergences;
    double seconds;
    bool with_least, has_table_c;
};

static const struct column summary_columns[] = {
    {"file", 0},
    {"requested", SCOLS_FL_RIGHT},
    {"tarn", SCOLS_FL_RIGHT},
    {"native", SCOLS_FL_RIGHT},
    {"expandable", SCOLS_FL_RIGHT},
    {"time", SCOLS_FL_RIGHT},
    {"M events/s", SCOLS_FL_RIGHT},
    {"diverged", SCOLS_FL_RIGHT},
    {"least: tarn", SCOLS_FL_RIGHT}, /* and those of the other allocators; the last columns */
    {"native", SCOLS_FL_RIGHT},
    {"expandable", SCOLS_FL_RIGHT},
};
enum { SUMMARY_COLUMNS = sizeof summary_columns / sizeof *summary_columns };

static void summary_device(struct summary *summary, const struct replay_file *file,
                           const struct replay_result *result)
{
    char name[40];
    const struct name_text whole = base_name(file->path);
    const char *base = whole.text, *suffix = strstr(base, ".pickle");
    int room = file->device_count > 1 ? 23 : 28;
    room = suffix && suffix > base && suffix - base < room ? (int)(suffix - base) : room;
    int length = snprintf(name, sizeof name, "%.*s", room, base);
    if (file->device_count > 1)
        snprintf(name + length, sizeof name - (size_t)length, " [%d]", result->device);
    if (result->error[0]) {
        table_row(&summary->draft, (const char *const[SUMMARY_COLUMNS]){name, "failed"},
                  PROBLEM_COLOUR);
        return;
    }
    double requested = (double)result->peak_requested;
    struct units_text reserved[REPLAY_POLICIES], least[REPLAY_POLICIES];
    for (enum replay_policy policy = REPLAY_TARN; policy < REPLAY_POLICIES; policy++) {
        struct taken taken = taken_by(result, policy);
        reserved[policy] = mean_add(&summary->reserved[policy], (double)taken.reserved, requested);
        least[policy] = mean_add(&summary->least[policy], (double)taken.least, requested);
    }
    summary->events += result->events;
    summary->seconds += result->first.seconds;
    summary->divergences += result->divergences;
    summary->has_table_c = summary->has_table_c || result->has_table_c;
    struct units_text time = mean_add(&summary->time, (double)taken_by(result, REPLAY_TARN).time_ns,
                                      (double)taken_by(result, REPLAY_EXPANDABLE).time_ns);
    double speed = result->first.seconds > 0 ? (double)result->events / result->first.seconds : 0;
    table_row(&summary->draft,
              (const char *const[SUMMARY_COLUMNS]){
                  name, units_bytes(result->peak_requested).text, reserved[REPLAY_TARN].text,
                  reserved[REPLAY_NATIVE].text, reserved[REPLAY_EXPANDABLE].text, time.text,
                  ratio_text(speed, 1e6).text, units_count(result->divergences).text,
                  least[REPLAY_TARN].text, least[REPLAY_NATIVE].text,
                  least[REPLAY_EXPANDABLE].text},
              result->divergences ? PROBLEM_COLOUR : NULL);
}

bool replay_summary_write(FILE *out, const struct replay_file *files, size_t count, bool colour)
{
    struct summary summary = {.with_least = count && files->options->least};
    summary.draft = table_begin(
        out, summary_columns, SUMMARY_COLUMNS - (summary.with_least ? 0 : REPLAY_POLICIES), colour);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < files[i].device_count; j++)
            summary_device(&summary, &files[i], &files[i].devices[j].result);
        if (files[i].error[0])
            table_row(&summary.draft,
                      (const char *const[SUMMARY_COLUMNS]){base_name(files[i].path).text, "failed"},
                      PROBLEM_COLOUR);
    }
    double speed = summary.seconds > 0 ? (double)summary.events / summary.seconds : 0;
    table_row(&summary.draft,
              (const char *const[SUMMARY_COLUMNS]){
                  "all (geometric means)", NULL, mean_text(&summary.reserved[REPLAY_TARN]).text,
                  mean_text(&summary.reserved[REPLAY_NATIVE]).text,
                  mean_text(&summary.reserved[REPLAY_EXPANDABLE]).text,
                  mean_text(&summary.time).text, ratio_text(speed, 1e6).text,
                  units_count(summary.divergences).text,
                  mean_text(&summary.least[REPLAY_TARN]).text,
                  mean_text(&summary.least[REPLAY_NATIVE]).text,
                  mean_text(&summary.least[REPLAY_EXPANDABLE]).text},
              NULL);
    bool done = table_end(&summary.draft);
    fprintf(out,
            "tarn, native, expandable: peak reserved / peak requested, of tarn and of PyTorch's "
            "two policies.\n"
            "time: of the driver, tarn's / that with expandable segments, by cost table %s.\n",
            summary.has_table_c ? "C" : "B");
    if (summary.with_least)
        fputs("least: the smallest device on which a trace runs / peak requested.\n", out);
    return done && fflush(out) == 0 && !ferror(out);
}

/* ---- runs of one file side by side ---- */

struct fits_text {
    char text[128];
};

/* "yes", or the event whose allocation found no room, and its size. */
static struct fits_text fits_text(const struct replay_result *result)
{
    const struct replay_shortage *lack = replay_lack(result);
    struct fits_text text = {"yes"};
    if (result->divergences)
        snprintf(text.text, sizeof text.text, "DIVERGED");
    else if (result->error[0] && !lack)
        snprintf(text.text, sizeof text.text, "failed");
    else if (lack && lack->before)
        snprintf(text.text, sizeof text.text, "no: %s before it", units_bytes(lack->size).text);
    else if (lack)
        snprintf(text.text, sizeof text.text, "no: %s at event %s", units_bytes(lack->size).text,
                 units_count(lack->event).text);
    return text;
}

enum { COMPARE_COLUMNS = 7 };

/* The line of a run; NULL if the run has nothing of this device. */
static void compare_row(struct table_draft *draft, const struct replay_file *run,
                        const struct replay_result *result)
{
    const char *name = run->options->what_if ? run->options->what_if : "as it is";
    uint64_t device = result ? result->least[run->options->policy] : 0;
    struct units_text least = device ? units_bytes_up(device) : (struct units_text){"-"};
    if (!result || result->error[0] || replay_lack(result)) {
        table_row(draft,
                  (const char *const[COMPARE_COLUMNS]){name,
                                                       result ? fits_text(result).text : "failed",
                                                       NULL, NULL, NULL, NULL, least.text},
                  PROBLEM_COLOUR);
        return;
    }
    struct taken taken = taken_by(result, run->options->policy);
    table_row(draft,
              (const char *const[COMPARE_COLUMNS]){
                  name, fits_text(result).text, units_bytes(result->peak_reserved).text,
                  units_bytes(result->wasted).text, units_count(taken.calls).text,
                  units_time(taken.time_ns).text, least.text},
              result->divergences ? PROBLEM_COLOUR : NULL);
}

static const struct replay_result *result_of(const struct replay_file *run, int device)
{
    for (size_t i = 0; i < run->device_count; i++)
        if (run->devices[i].result.device == device)
            return &run->devices[i].result;
    return NULL;
}

/* Writes one device. A run that has the device describes it. */
static bool compare_device(FILE *out, const struct replay_file *runs, size_t count,
                           const struct replay_result *known, bool colour)
{
    const struct column columns[COMPARE_COLUMNS] = {
        {"what if", 0},
        {"fits", 0},
        {"peak reserved", SCOLS_FL_RIGHT},
        {"wasted", SCOLS_FL_RIGHT},
        {"calls", SCOLS_FL_RIGHT},
        {known->has_table_c ? "time C" : "time B", SCOLS_FL_RIGHT},
        {"least", SCOLS_FL_RIGHT}, /* the last column, which is there if some run has it */
    };
    bool least = false;
    for (size_t i = 0; i < count; i++)
        least = least || runs[i].options->least;
    fprintf(out, "%s%s, device %d%s\n", colour ? "\033[1m" : "", base_name(runs->path).text,
            known->device, colour ? "\033[0m" : "");
    fprintf(out, "  %s events, %s allocations, peak requested %s; as it is: a device of %s\n\n",
            units_count(known->events).text, units_count(known->allocations).text,
            units_bytes(known->peak_requested).text, units_bytes(known->device_memory).text);
    struct table_draft draft = table_begin(out, columns, COMPARE_COLUMNS - !least, colour);
    for (size_t i = 0; i < count; i++)
        compare_row(&draft, &runs[i], result_of(&runs[i], known->device));
    bool done = table_end(&draft);
    for (size_t i = 0; i < count; i++) {
        const struct replay_result *result = result_of(&runs[i], known->device);
        if (result && (result->divergences || (result->error[0] && !result->shortage.there))) {
            fprintf(out, "%s: ", runs[i].options->what_if ? runs[i].options->what_if : "as it is");
            verdict_write(out, result, colour);
        }
    }
    fputc('\n', out);
    return done;
}

bool replay_compare_write(FILE *out, const struct replay_file *runs, size_t count, bool colour)
{
    const struct replay_file *fullest = runs;
    bool done = true;
    for (size_t i = 1; i < count; i++)
        if (runs[i].device_count > fullest->device_count)
            fullest = &runs[i];
    for (size_t i = 0; i < fullest->device_count; i++)
        done = compare_device(out, runs, count,
                              result_of(runs, fullest->devices[i].result.device)
                                  ? result_of(runs, fullest->devices[i].result.device)
                                  : &fullest->devices[i].result,
                              colour) &&
               done;
    if (!fullest->device_count && runs->state_count)
        done = state_write(out, runs, colour);
    if (fullest->device_count)
        fputs("wasted: reserved - requested when reserved reached its peak. calls, time: of the "
              "driver, by cost table.\n",
              out);
    return done && fflush(out) == 0 && !ferror(out);
}
