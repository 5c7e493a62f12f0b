/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns `tarn report --fits`: one replay of the file with the memory that a device leaves for the
 * allocator, and the search for the smallest device. `tarn replay` does both in the same way. */
#include "analysis/report/report_fits.h"

#include "name.h"
#include "replay/least.h"
#include "replay/replay_file.h"
#include "units.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[REPORT_POLICIES] = {"native", "expandable", "tarn"};

static struct fits_answer answer_of(const struct replay_result *result, enum replay_policy policy,
                                    const struct fits_device *device, uint64_t unsure)
{
    const struct c10_result *run = &result->models[policy].run;
    struct fits_answer answer = {.verdict = FITS_FAILED, .least = result->least[policy]};
    answer.most = answer.least ? answer.least + unsure : 0;
    const struct replay_shortage *lack = policy == REPLAY_TARN ? replay_lack(result) : NULL;
    bool ran = policy == REPLAY_TARN ? !result->divergences && (lack || !result->error[0])
                                     : run->peak_reserved || run->ooms || run->denied;
    if (!ran)
        return answer;
    if (policy == REPLAY_TARN && lack) {
        answer.stops = true;
        answer.before = lack->before;
        answer.event = lack->event;
        answer.size = lack->size;
    } else if (policy != REPLAY_TARN && (run->ooms || run->denied)) {
        answer.stops = true;
        answer.before = run->first_oom == UINT32_MAX;
        answer.event = run->first_oom;
        answer.size = run->first_oom_size;
    }
    answer.verdict = answer.stops                           ? FITS_NO
                     : unsure && device->room < answer.most ? FITS_OPEN
                     : device->ended_by != ANALYSIS_NEVER   ? FITS_PAST
                                                            : FITS_YES;
    return answer;
}

static void answer_device(struct fits_device *found, const struct report_file *file,
                          const struct analysis *analysis, const struct fits_question *question)
{
    found->device = analysis->device;
    found->ended_by = analysis_ended_by(analysis);
    found->measured = !question->outside_given &&
                      fits_outside(&file->snapshot, analysis->device, &found->outside);
    if (question->outside_given)
        found->outside = question->outside;
    found->known = found->measured || question->outside_given;
    found->late = fits_unsure(analysis) != 0;
    found->room = question->device > found->outside ? question->device - found->outside : 0;
    found->room -= found->room % LEAST_GRANULE;
}

/* Replays one device of the file with the memory that is left. */
static bool run_device(struct fits_device *found, const struct report_file *file,
                       const struct analysis *analysis)
{
    static const enum replay_policy policies[REPORT_POLICIES] = {REPLAY_NATIVE, REPLAY_EXPANDABLE,
                                                                 REPLAY_TARN};
    const struct replay_options options = {.driver = "host",
                                           .repeat = 1,
                                           .compare = true,
                                           .least = true,
                                           .only = found->device + 1,
                                           .device_memory = found->room};
    struct replay_file run = {0};
    (void)replay_file_run(file->path, &options, false, &run);
    bool answered = run.device_count == 1;
    for (size_t k = 0; answered && k < REPORT_POLICIES; k++)
        found->answers[k] =
            answer_of(&run.devices[0].result, policies[k], found, fits_unsure(analysis));
    if (!answered)
        fprintf(stderr, "tarn report: %s: device %d cannot be replayed%s%s\n",
                name_shown(file->path).text, found->device, run.error[0] ? ": " : "", run.error);
    replay_file_finish(&run);
    return answered;
}

struct fits_device *fits_find(const struct report_file *file, const struct fits_question *question,
                              size_t *count)
{
    struct fits_device *devices = calloc(file->count + 1, sizeof *devices);
    bool done = devices, host = false;
    *count = 0;
    if (!devices)
        fputs("tarn report: memory is short\n", stderr);
    for (size_t i = 0; done && i < file->count; i++) {
        if (!file->analyses[i].has_trace)
            continue;
        host = host || analysis_is_of_host(&file->analyses[i]);
        if (analysis_is_of_host(&file->analyses[i]))
            continue;
        struct fits_device *found = &devices[(*count)++];
        answer_device(found, file, &file->analyses[i], question);
        if (found->room < LEAST_GRANULE) {
            fprintf(stderr,
                    "tarn report: --fits: a device of %s has nothing left of it: %s lie "
                    "outside of the allocator\n",
                    units_bytes(question->device).text, units_bytes(found->outside).text);
            done = false;
        } else {
            done = run_device(found, file, &file->analyses[i]);
        }
    }
    if (done && !*count) {
        fprintf(stderr,
                "tarn report: %s: --fits replays the trace of a device, and this file has none: "
                "it %s\n",
                name_shown(file->path).text, host ? "has memory of the host alone" : "is a state");
        done = false;
    }
    if (done)
        return devices;
    free(devices);
    return NULL;
}

static void print_answer(FILE *out, const char *name, const struct fits_answer *answer,
                         const struct fits_device *device)
{
    const uint64_t room = device->room, outside = device->outside;
    static const char *const verdicts[] = {"finishes", "runs out of memory", "may finish",
                                           "gets past", "could not be replayed"};
    const bool ended = device->ended_by != ANALYSIS_NEVER;
    fprintf(out, "  %-10s  %s", name,
            ended && answer->verdict == FITS_OPEN ? "may get past" : verdicts[answer->verdict]);
    if (ended && (answer->verdict == FITS_OPEN || answer->verdict == FITS_PAST))
        fprintf(out, " the request that failed at event %s; what follows was not recorded",
                units_count(device->ended_by).text);
    if (answer->stops && answer->before)
        fprintf(out, " before the recording's first event, at a request of %s",
                units_bytes(answer->size).text);
    else if (answer->stops)
        fprintf(out, " at event %s, at a request of %s", units_count(answer->event).text,
                units_bytes(answer->size).text);
    if (answer->stops && answer->least > room) {
        fprintf(out, "; %s", units_bytes_up(answer->least - room).text);
        if (answer->most != answer->least)
            fprintf(out, " to %s", units_bytes_up(answer->most - room).text);
        fputs(" are missing", out);
    }
    if (answer->least) {
        fprintf(out, "; smallest device: %s", units_bytes_up(answer->least + outside).text);
        if (answer->most != answer->least)
            fprintf(out, " to %s", units_bytes_up(answer->most + outside).text);
    }
    putc('\n', out);
}

void fits_print(FILE *out, const struct report_file *file, const struct fits_question *question,
                const struct fits_device *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct fits_device *device = &devices[i];
        fprintf(out, "%s, device %d, on a device of %s:\n",
                name_shown(report_base_name(file->path)).text, device->device,
                units_bytes(question->device).text);
        for (size_t k = 0; k < REPORT_POLICIES; k++)
            print_answer(out, names[k], &device->answers[k], device);
        if (device->known)
            fprintf(out, "%s of it are left to the allocator: %s lie outside (%s).\n",
                    units_bytes(device->room).text, units_bytes(device->outside).text,
                    device->measured ? "measured in the recording" : "--outside");
        else
            fputs("Contexts, libraries and NCCL are not subtracted: the recording did not measure "
                  "them; --outside SIZE does.\n",
                  out);
        if (device->ended_by != ANALYSIS_NEVER)
            fputs("The recording ends with a request that failed. What the program wanted "
                  "afterwards may need a larger device.\n",
                  out);
        if (device->late)
            fputs("The recording begins late: a replay places what was there before anew, so sizes "
                  "are intervals.\n",
                  out);
        else
            fputs("Each answer is that of a replay on exactly this device; smallest devices are "
                  "exact to 2 MiB.\n",
                  out);
        putc('\n', out);
    }
}

bool fits_print_json(FILE *out, const struct fits_question *question,
                     const struct fits_device *devices, size_t count)
{
    static const char *const verdicts[] = {"yes", "no", "open", "past", "failed"};
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        const struct fits_device *device = &devices[i];
        json_t *rows = json_array();
        for (size_t k = 0; k < REPORT_POLICIES; k++) {
            const struct fits_answer *answer = &device->answers[k];
            bool at = answer->stops && !answer->before;
            json_array_append_new(
                rows,
                json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:I}", "name", names[k], "finishes",
                          verdicts[answer->verdict], "event",
                          at ? json_integer((json_int_t)answer->event) : json_null(), "request",
                          (json_int_t)answer->size, "least", (json_int_t)answer->least,
                          "least_at_most", (json_int_t)answer->most, "missing",
                          (json_int_t)(answer->stops && answer->least > device->room
                                           ? answer->least - device->room
                                           : 0)));
        }
        json_array_append_new(array,
                              json_pack("{s:i, s:I, s:I, s:o, s:I, s:b, s:o, s:o}", "device",
                                        device->device, "memory", (json_int_t)question->device,
                                        "outside", (json_int_t)device->outside, "outside_from",
                                        json_string(device->measured ? "recording"
                                                    : device->known  ? "given"
                                                                     : "not known"),
                                        "room", (json_int_t)device->room, "begins_late",
                                        (int)device->late, "ended_by",
                                        device->ended_by == ANALYSIS_NEVER
                                            ? json_null()
                                            : json_integer((json_int_t)device->ended_by),
                                        "allocators", rows));
    }
    bool done = array && json_dumpf(array, out, JSON_INDENT(2)) == 0 && putc('\n', out) != EOF;
    json_decref(array);
    return done;
}
