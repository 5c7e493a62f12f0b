/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the files of `tarn report` and `tarn diff`, and the sentences about a file that every output
 * has. */
#include "analysis/report/report.h"

#include "input/once.h"
#include "input/thin.h"
#include "units.h"

#include <stdlib.h>
#include <string.h>

bool report_file_open(const char *command, const char *path, int device,
                      const struct report_rules *rules, struct report_file *file)
{
    struct snapshot_error error;
    *file = (struct report_file){.path = path, .name = report_base_name(path), .rules = rules};
    if (!once_hold(path, error.text, sizeof error.text) ||
        !snapshot_read_file(path, &file->snapshot, &error)) {
        fprintf(stderr, "tarn %s: %s: %s\n", command, path, error.text);
        return false;
    }
    int devices = analysis_devices(&file->snapshot);
    file->analyses = calloc((size_t)devices + 1, sizeof *file->analyses);
    bool done = file->analyses;
    for (size_t i = 0; done && rules->most_events && i < file->snapshot.trace_count; i++)
        done = thin_trace(&file->snapshot, i, rules->most_events);
    for (int i = 0; done && i < devices; i++)
        if ((device < 0 || device == i) && analysis_exists(&file->snapshot, i)) {
            done = analysis_build(&file->snapshot, i, &file->analyses[file->count]);
            file->count += done;
            done = done && analysis_fold(&file->analyses[file->count - 1], &rules->folding) &&
                   categories_make(&file->analyses[file->count - 1], rules->categories,
                                   rules->category_count);
        }
    if (!done)
        fprintf(stderr, "tarn %s: %s: memory is short, or its trace has more than 2^31 events\n",
                command, path);
    else if (!file->count && device >= 0)
        fprintf(stderr, "tarn %s: %s: it has nothing of device %d; leave out --device to see all\n",
                command, path, device);
    else if (!file->count)
        fprintf(stderr,
                "tarn %s: %s: it has no segments and no trace, so there is nothing to show\n",
                command, path);
    if (done && file->count)
        return true;
    report_file_finish(file);
    return false;
}

void report_file_finish(struct report_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        analysis_finish(&file->analyses[i]);
    free(file->analyses);
    report_what_if_finish(file);
    snapshot_finish(&file->snapshot);
    *file = (struct report_file){0};
}

bool report_moment_parse(const char *text, struct report_moment *moment)
{
    uint64_t event;
    *moment = (struct report_moment){.kind = REPORT_AT_EVENT};
    if (strcmp(text, "peak") == 0)
        moment->kind = REPORT_AT_PEAK;
    else if (strcmp(text, "peak-reserved") == 0)
        moment->kind = REPORT_AT_PEAK_RESERVED;
    else if (strcmp(text, "end") == 0)
        moment->kind = REPORT_AT_END;
    else if (strcmp(text, "oom") == 0)
        moment->kind = REPORT_AT_OOM;
    else if (units_parse_count(text, 0, INT32_MAX, &event))
        moment->event = (uint32_t)event;
    else if (units_parse_time(text, &moment->time))
        moment->kind = REPORT_AT_TIME;
    else
        return false;
    return true;
}

uint32_t report_moment_at(const struct analysis *analysis, uint64_t time)
{
    uint32_t low = 0, high = analysis->event_count;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (analysis->times[middle] <= time)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

uint32_t report_moment_of(const struct analysis *analysis, const struct report_moment *moment)
{
    switch (moment->kind) {
    case REPORT_AT_PEAK:
        return analysis->peak;
    case REPORT_AT_PEAK_RESERVED:
        return analysis->peak_reserved;
    case REPORT_AT_END:
        return analysis->event_count;
    case REPORT_AT_OOM:
        return analysis->oom_count &&
                       analysis->ooms[analysis->oom_count - 1].event < analysis->event_count
                   ? analysis->ooms[analysis->oom_count - 1].event
                   : analysis->event_count;
    case REPORT_AT_TIME:
        return report_moment_at(analysis, moment->time);
    case REPORT_AT_EVENT:
        break;
    }
    return moment->event < analysis->event_count ? moment->event : analysis->event_count;
}

const char *report_moment_name(const struct report_moment *moment)
{
    static const char *const names[] = {"the peak",  "the peak of reserved memory",
                                        "the end",   "the last out-of-memory error",
                                        "that time", "that moment"};
    return names[moment->kind];
}

const char *report_by_name(enum analysis_by by)
{
    static const char *const names[ANALYSIS_BY_COUNT] = {
        [ANALYSIS_BY_TAG] = "tag",           [ANALYSIS_BY_TOP] = "tag_first_part",
        [ANALYSIS_BY_CATEGORY] = "category", [ANALYSIS_BY_SITE] = "call_site",
        [ANALYSIS_BY_MODULE] = "module",     [ANALYSIS_BY_STREAM] = "stream",
        [ANALYSIS_BY_POOL] = "pool",         [ANALYSIS_BY_THREAD] = "thread",
    };
    return names[by];
}

const char *report_base_name(const char *path)
{
    if (strcmp(path, "-") == 0)
        return "standard input";
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

const char *report_name(char *const *paths, size_t count, size_t own)
{
    const char *path = paths[own], *name = report_base_name(path);
    for (size_t i = 0; i < count && strcmp(path, "-") != 0; i++) {
        size_t left = strlen(path), right = strlen(paths[i]);
        while (left && right && path[left - 1] == paths[i][right - 1])
            left--, right--;
        while (name > path && name >= path + left && (left || right)) {
            name--;
            while (name > path && name[-1] != '/')
                name--;
        }
    }
    return name;
}

const char *report_writer(const struct snapshot *snapshot, char *text, size_t size)
{
    const struct snapshot_tarn *tarn = &snapshot->tarn;
    if (tarn->there)
        snprintf(text, size, "%s, driver %s", snapshot_text(snapshot, tarn->library),
                 snapshot_text(snapshot, tarn->driver));
    else
        snprintf(text, size, "%s",
                 snapshot->rmm         ? "RMM"
                 : snapshot->profile   ? "PyTorch's profiler"
                 : snapshot->of_driver ? "tarn run"
                                       : "PyTorch");
    return text;
}

const char *report_no_device(const struct analysis *analysis, char *text, size_t size)
{
    const struct snapshot *snapshot = analysis->snapshot;
    *text = 0;
    if (snapshot->no_device && analysis->device == snapshot->device_taken)
        snprintf(text, size,
                 "Segments without the key \"device\" are taken for those of device %d.",
                 analysis->device);
    return text;
}

uint64_t report_of_graphs(const struct analysis *analysis, uint64_t *pools)
{
    const struct snapshot_tarn *tarn = &analysis->snapshot->tarn;
    uint64_t bytes = *pools = 0;
    for (size_t i = 0; i < tarn->pool_count; i++) {
        bool counts = tarn->pools[i].device == analysis->device && tarn->pools[i].of_graphs;
        bytes += counts ? tarn->pools[i].reserved : 0;
        *pools += counts;
    }
    return bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const struct snapshot_graph *x = *(const struct snapshot_graph *const *)a,
                                *y = *(const struct snapshot_graph *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

const struct snapshot_graph **report_graphs(const struct analysis *analysis, size_t *count)
{
    const struct snapshot_tarn *tarn = &analysis->snapshot->tarn;
    const struct snapshot_graph **graphs = calloc(tarn->graph_count + 1, sizeof *graphs);
    *count = 0;
    for (size_t i = 0; graphs && i < tarn->graph_count; i++)
        if (tarn->graphs[i].device == analysis->device)
            graphs[(*count)++] = &tarn->graphs[i];
    if (graphs)
        qsort(graphs, *count, sizeof *graphs, by_bytes);
    return graphs;
}

double report_fragmentation(const struct analysis_state *state)
{
    return state->unused ? 1 - (double)state->largest_free / (double)state->unused : 0;
}

double report_free_share(const struct analysis_state *state)
{
    return state->reserved ? (double)state->unused / (double)state->reserved : 0;
}
