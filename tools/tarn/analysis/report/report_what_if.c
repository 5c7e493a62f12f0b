/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what a report says of other allocators: one replay of each file, in a process of its own, as
 * `tarn replay` does it. */
#include "analysis/report/report.h"
#include "analysis/report/report_fits.h"
#include "replay/replay_file.h"

#include <stdlib.h>
#include <string.h>

/* Above this many events the smallest devices are not searched, because the search runs a trace a
 * dozen times per policy and the user would wait too long. Nor are they for a trace with several
 * streams. */
#define LEAST_EVENTS 250000
#define FAILED_EVENTS 50000 /* the same if the advice needs the smallest devices */
#define TEXT_EVENTS 1000000 /* above this many events, text is printed without a replay */

static bool wants_least(const struct report_file *file)
{
    bool wants = false;
    for (size_t i = 0; i < file->count; i++)
        wants = wants || advice_wants_least(&file->analyses[i]);
    return wants;
}

static const struct replay_options *choose(struct report_file *file, bool page, bool least)
{
    static const struct replay_options quick = {.driver = "host", .repeat = 1, .compare = true},
                                       whole = {.driver = "host",
                                                .repeat = 1,
                                                .compare = true,
                                                .least = true};
    uint64_t events = 0;
    for (size_t i = 0; i < file->count; i++)
        events += file->analyses[i].event_count;
    if (least || (wants_least(file) && events <= FAILED_EVENTS))
        return &whole;
    file->not_searched = file->snapshot.stream_count > 1 ? "has several streams"
                         : events > LEAST_EVENTS         ? "has more than 250,000 events"
                                                         : NULL;
    return page && !file->not_searched ? &whole : &quick;
}

void report_what_if_run(struct report_file *file, bool page, bool least)
{
    bool wanted = false, traced = false;
    uint64_t events = 0;
    for (size_t i = 0; i < file->count; i++) {
        traced = traced || file->analyses[i].has_trace;
        bool told = page ? file->analyses[i].has_trace && !analysis_begins_late(&file->analyses[i])
                         : advice_wants_replay(&file->analyses[i]);
        wanted = wanted || told || (page && least);
        events += file->analyses[i].event_count;
    }
    if (!page && !least && events > TEXT_EVENTS) {
        file->least_left_out = wanted && wants_least(file);
        return;
    }
    if (!wanted) {
        file->not_searched = traced ? "began late, when most memory was reserved already" : NULL;
        return;
    }
    const struct replay_options *how = choose(file, page, least);
    file->least_left_out = !how->least && wants_least(file);
    file->what_if = calloc(1, sizeof *file->what_if);
    if (file->what_if)
        (void)replay_file_run(file->path, how, false, file->what_if);
}

void report_what_if_finish(struct report_file *file)
{
    if (file->what_if)
        replay_file_finish(file->what_if);
    free(file->what_if);
    file->what_if = NULL;
}

/* A policy's row. A replay that failed, diverged or ran out of memory has no figures. */
static struct report_what_if row_of(const struct replay_result *result, enum replay_policy policy)
{
    const struct replay_model *model = &result->models[policy];
    bool tarn = policy == REPLAY_TARN;
    struct report_what_if row = {.least = result->least[policy]};
    row.ran = tarn ? (!result->error[0] || result->shortage.there) && !result->divergences
                   : model->run.peak_reserved;
    row.tried = tarn ? result->ooms_tried : model->run.tried;
    row.denied = tarn ? result->ooms_here : model->run.denied;
    row.fits = row.ran && !row.denied && !(tarn ? result->shortage.there : model->run.ooms);
    row.reserved = tarn ? result->peak_reserved : model->run.peak_reserved;
    row.driver_ns = tarn ? result->first.time_c_ns : model->time_c_ns;
    return row;
}

bool report_what_if_get(const struct report_file *file, int device, uint64_t *requested,
                        struct report_what_if rows[REPORT_POLICIES])
{
    static const enum replay_policy policies[REPORT_POLICIES] = {REPLAY_NATIVE, REPLAY_EXPANDABLE,
                                                                 REPLAY_TARN};
    const struct replay_file *run = file->what_if;
    for (size_t i = 0; run && !run->error[0] && i < run->device_count; i++) {
        const struct replay_result *result = &run->devices[i].result;
        if (result->device != device || !result->peak_requested)
            continue;
        *requested = result->peak_requested;
        for (size_t k = 0; k < REPORT_POLICIES; k++)
            rows[k] = row_of(result, policies[k]);
        return true;
    }
    return false;
}

static struct advice_run run_of(const struct report_what_if *row)
{
    return (struct advice_run){.ran = row->ran,
                               .reserved = row->fits ? row->reserved : 0,
                               .served = row->ran ? row->tried - row->denied : 0,
                               .least = row->least};
}

bool report_advice(const struct report_file *file, const struct analysis *analysis,
                   struct advice_list *list)
{
    uint64_t requested;
    struct report_what_if rows[REPORT_POLICIES];
    struct advice_replay replay = {.least_left_out = file->least_left_out};
    if (report_what_if_get(file, analysis->device, &requested, rows)) {
        replay.native = run_of(&rows[0]);
        replay.expandable = run_of(&rows[1]);
        replay.tarn = run_of(&rows[2]);
        replay.tried = rows[0].tried;
    }
    return advice_make(analysis, &replay, list);
}

bool fits_outside(const struct snapshot *snapshot, int device, uint64_t *outside)
{
    const struct snapshot_tarn *tarn = &snapshot->tarn;
    if ((size_t)device >= tarn->device_count)
        return false;
    const struct snapshot_device *about = &tarn->devices[device];
    if (!about->total || about->free + about->reserved > about->total)
        return false;
    *outside = about->total - about->free - about->reserved;
    return true;
}

uint64_t fits_unsure(const struct analysis *analysis)
{
    const uint32_t beginning = 0;
    struct analysis_state state;
    if (!analysis->has_trace || !analysis_states(analysis, &beginning, 1, &state))
        return 0;
    return state.unused;
}
