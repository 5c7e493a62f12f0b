/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn plan`: the smallest device for a trace, and a plan for it. What it says of a plan or a
 * device is the result of a replay of the file, each in a process of its own. */
#include "base/file.h"
#include "command.h"
#include "input/intervals.h"
#include "input/once.h"
#include "json_print.h"
#include "memory/settings/config.h"
#include "name.h"
#include "plain_output.h"
#include "plan/plan_intervals.h"
#include "plan/plan_make.h"
#include "replay/least.h"
#include "replay/replay_file.h"
#include "report/sink.h"
#include "units.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EFFORT UINT64_C(1000000000) /* steps of the placement: a few seconds */
#define LARGEST 4                   /* how many of the largest arenas are each left out in turn */

static const char help[] =
    "Usage: tarn plan [OPTION]... FILE [-o PLAN]\n"
    "\n"
    "Finds the smallest device on which the trace of FILE runs, and writes a plan. The plan has a "
    "place for each "
    "block\n"
    "above 64 KiB, so that all of them fit into little more than the peak of live memory. A "
    "program that allocates\n"
    "from tarn follows the plan when it is started with TARN_ALLOC_CONF=plan:PLAN: it maps memory "
    "when a block needs\n"
    "it, and makes no driver call to move it afterwards, as long as its requests are those of the "
    "recorded run. Where\n"
    "they differ, tarn places blocks as without a plan. A PyTorch program must run on tarn to "
    "follow a plan: python3 "
    "-m "
    "tarn.torch.\n"
    "FILE is what `tarn replay` reads, or a CSV file of blocks with known lifetimes, which begins "
    "with the line\n"
    "id,lower,upper,size: a block lives from `lower` to before `upper`. Then PLAN is the same with "
    "a column `offset`.\n"
    "Up to 2,000 blocks are placed by a search, which prints how far its result is above the lower "
    "bound.\n"
    "A plan covers the streams and private pools with which a replay reserves least.\n"
    "\n"
    "Options:\n"
    "  -o, --output PLAN   The file to write; without it nothing is written\n"
    "      --device N      The device of FILE to plan for (the first one with a trace)\n"
    "      --seconds N     Search for a placement for at most N seconds of processor time (10); "
    "with 0 nothing is\n"
    "                      searched, neither the smallest devices nor what is better not planned\n"
    "      --steps N       Search for at most N steps; the same N gives the same plan on every "
    "machine\n"
    "      --json          Print one JSON object instead of a table\n"
    "  -h, --help          Show this help\n"
    "\n"
    "Exit status: 0 when the plan was made, written and verified by a replay, 1 when something "
    "failed, 2 for an "
    "invalid\n"
    "command line.\n"
    "\n"
    "Examples:\n"
    "  tarn plan train.pickle -o train.plan\n"
    "      Plan a recorded training run.\n"
    "  TARN_ALLOC_CONF=plan:train.plan ./train\n"
    "      Follow the plan, in a program that uses tarn's library.\n"
    "  TARN_ALLOC_CONF=plan:train.plan python3 -m tarn.torch train.py\n"
    "      Follow it in a PyTorch program, which tarn's Python package puts on tarn.\n"
    "  tarn plan --seconds 60 blocks.csv -o placed.csv\n"
    "      Place blocks with known lifetimes, and search for a minute.\n"
    "  tarn replay --what-if conf=plan:train.plan --what-if vary=1,conf=plan:train.plan "
    "train.pickle\n"
    "      What the plan saves, on the same run and on a slightly different one.\n";

struct arguments {
    const char *path, *output;
    int device;     /* -1: the first */
    int others;     /* how many other devices have a trace */
    uint64_t large; /* bytes: a device with room for everything */
    uint64_t steps;
    double seconds;
    bool json;
};

/* Results, in bytes; 0: not known. */
struct findings {
    uint64_t requested;              /* peak of the trace */
    uint64_t without;                /* peak reserved without a plan */
    uint64_t ranges;                 /* most pages of ranges at one time, in all below but bound */
    uint64_t planned, tarn, pytorch; /* the smallest devices */
    struct replay_result replay;     /* with the plan, on a device with room for everything */
};

/* ---- the plan ---- */

static bool complain(const char *path, const char *error)
{
    fprintf(stderr, "tarn plan: %s: %s\n", path, error);
    return false;
}

/* Reads the file and builds the workload of the device that the user named. */
static bool read_workload(struct arguments *arguments, struct workload *workload)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    char text[128];
    if (!snapshot_read_file(arguments->path, &snapshot, &error))
        return complain(arguments->path, error.text);
    int device = arguments->device;
    for (int i = 0; device < 0 && (size_t)i < snapshot.trace_count; i++)
        device = workload_exists(&snapshot, i) ? i : -1;
    bool done = device >= 0 && workload_exists(&snapshot, device);
    if (!done && arguments->device >= 0)
        snprintf(text, sizeof text, "device %d has no trace", arguments->device);
    else if (!done)
        snprintf(text, sizeof text, "there is no trace to plan for");
    else {
        done = workload_build(&snapshot, device, workload);
        if (!done)
            snprintf(text, sizeof text, "there is not enough host memory for the trace");
    }
    for (int i = 0; (size_t)i < snapshot.trace_count; i++)
        arguments->others += i != device && workload_exists(&snapshot, i);
    snapshot_finish(&snapshot);
    arguments->device = device;
    uint64_t twice = done ? least_round_up(2 * workload->peak_tried) : 0;
    arguments->large = twice < REPLAY_DEFAULT_MEMORY ? REPLAY_DEFAULT_MEMORY
                       : twice > REPLAY_MAX_MEMORY   ? REPLAY_MAX_MEMORY
                                                     : twice;
    return done || complain(arguments->path, text);
}

/* Replays the file with settings on a device of `memory` bytes; 0: a large one. False if that fails
 * for another reason than lack of memory. */
static bool run_replay(const struct arguments *arguments, const char *conf, uint64_t memory,
                       struct replay_result *result)
{
    const struct replay_options options = {.driver = "host",
                                           .repeat = 1,
                                           .device_memory = memory ? memory : arguments->large,
                                           .conf = conf,
                                           .only = arguments->device + 1,
                                           .leave_ranges = true,
                                           .compare = true};
    struct replay_file file;
    (void)replay_file_run(arguments->path, &options, plain_output_moves(), &file);
    bool found = file.device_count == 1;
    if (found)
        *result = file.devices[0].result;
    bool well = found && !result->divergences && (!result->error[0] || result->shortage.there);
    if (!well)
        complain(arguments->path, file.error[0]                  ? file.error
                                  : found && result->error[0]    ? result->error
                                  : found && result->divergences ? result->divergence[0]
                                                                 : "the replay gave no result");
    replay_file_finish(&file);
    return well;
}

static bool to_file(const void *data, size_t size, void *file)
{
    return file_write(*(const int *)file, data, size);
}

/* Writes a draft to a file without a name, and replays the file with it as the plan. */
static bool try_draft(const struct arguments *arguments, const struct plan_draft *draft,
                      uint64_t memory, struct replay_result *result)
{
    char conf[64];
    struct sink sink;
    int file = memfd_create("tarn-plan", MFD_CLOEXEC);
    sink_to_function(&sink, to_file, &file);
    bool done = file >= 0 && plan_draft_write(draft, &sink);
    if (sink_end(&sink, !done) || !done) {
        (void)complain(arguments->path, "there is not enough host memory to try the plan");
        done = false;
    }
    snprintf(conf, sizeof conf, "plan:/proc/self/fd/%d", file);
    done = done && run_replay(arguments, conf, memory, result);
    if (file >= 0)
        close(file);
    return done;
}

/* Measures how much memory unplanned requests take in addition to the arenas, and lets the plan
 * reserve it. The plan reserves at most what half full slabs could take for small requests, since
 * other streams and pools have memory of their own. */
static bool plan_rest(const struct arguments *arguments, struct plan_draft *draft,
                      struct findings *findings)
{
    if (!try_draft(arguments, draft, 0, &findings->replay))
        return false;
    uint64_t arenas = plan_draft_arenas(draft);
    uint64_t beside =
        findings->replay.peak_reserved > arenas ? findings->replay.peak_reserved - arenas : 0;
    for (uint32_t i = 0; i < draft->count; i++) {
        struct plan_draft_arena *arena = &draft->arenas[i];
        uint64_t most = arena->rest ? least_round_up(2 * arena->rest + LEAST_GRANULE) : 0;
        arena->header.small = beside < most ? beside : most;
        beside -= arena->header.small;
    }
    return try_draft(arguments, draft, 0, &findings->replay);
}

/* Parts of a draft that are set aside while it is tried without an arena. */
struct set_aside {
    uint64_t small[PLAN_ARENAS_MOST];
    struct findings findings;
};

static void keep(const struct plan_draft *draft, const struct findings *findings,
                 struct set_aside *aside)
{
    aside->findings = *findings;
    for (uint32_t i = 0; i < draft->count; i++)
        aside->small[i] = draft->arenas[i].header.small;
}

static void put_back(struct plan_draft *draft, struct findings *findings,
                     const struct set_aside *aside)
{
    plan_draft_undrop(draft);
    *findings = aside->findings;
    for (uint32_t i = 0; i < draft->count; i++)
        draft->arenas[i].header.small = aside->small[i];
}

/* Finds the arena, of the LARGEST largest, without which least is reserved; the draft's count if
 * leaving one out does not help. A gain of one granule does not count: a stream without an arena
 * may follow the arena of a stream that begins alike. */
static bool find_worst(const struct arguments *arguments, struct plan_draft *draft,
                       struct findings *findings, uint32_t *worst)
{
    uint64_t least = findings->replay.peak_reserved, before = UINT64_MAX;
    struct set_aside aside;
    *worst = draft->count;
    for (int tried = 0; tried < LARGEST; tried++) {
        uint32_t next = plan_draft_largest_below(draft, before);
        if (next == draft->count)
            break;
        before = plan_draft_rank(draft, next);
        keep(draft, findings, &aside);
        plan_draft_drop(draft, next);
        bool done = plan_rest(arguments, draft, findings);
        uint64_t reserved = findings->replay.peak_reserved;
        put_back(draft, findings, &aside);
        if (!done)
            return false;
        if (reserved + LEAST_GRANULE < least) {
            least = reserved;
            *worst = next;
        }
    }
    return true;
}

/* Makes a plan of all streams of all pools, and leaves arenas out as long as that reduces reserved
 * memory. Streams and pools with peaks at different times are better without arenas, since each can
 * use memory that another does not need. */
static bool make_plan(const struct arguments *arguments, const struct workload *workload,
                      struct plan_draft *draft, struct findings *findings)
{
    const struct packing_limits limits = {
        .steps = arguments->steps, .seconds = arguments->seconds, .show = plain_output_moves()};
    char error[256];
    if (!plan_draft_make(workload, PLAN_ARENAS_MOST, EFFORT, &limits, draft, error, sizeof error))
        return complain(arguments->path, error);
    bool done = plan_rest(arguments, draft, findings);
    while (done && draft->count > 1 && arguments->seconds > 0) {
        uint32_t worst;
        done = find_worst(arguments, draft, findings, &worst);
        if (!done || worst == draft->count)
            break;
        plan_draft_drop(draft, worst);
        done = plan_rest(arguments, draft, findings);
    }
    return done;
}

/* ---- the smallest devices ---- */

static bool fits_tarn(void *context, uint64_t memory, bool *fits)
{
    struct replay_result result;
    if (!run_replay(context, NULL, memory, &result))
        return false;
    *fits = !replay_lack(&result);
    return true;
}

/* What a device is tried with. */
struct planned {
    const struct arguments *arguments;
    const struct plan_draft *draft;
};

static bool fits_planned(void *context, uint64_t memory, bool *fits)
{
    const struct planned *planned = context;
    struct replay_result result;
    if (!try_draft(planned->arguments, planned->draft, memory, &result))
        return false;
    *fits = !replay_lack(&result);
    return true;
}

static bool fits_pytorch(void *context, uint64_t memory, bool *fits)
{
    const struct c10_policy policy = c10_policy_default(false);
    return c10_fits(context, &policy, memory, fits);
}

/* Searches the smallest devices, from just below what is live at one time on. */
static bool search_devices(struct arguments *arguments, struct workload *workload,
                           const struct plan_draft *draft, struct findings *findings)
{
    struct planned planned = {arguments, draft};
    uint64_t small = least_round_up(workload->peak_tried) - LEAST_GRANULE;
    struct replay_result free_run;
    struct c10_result native;
    const struct c10_policy policy = c10_policy_default(false);
    if (!run_replay(arguments, NULL, 0, &free_run) ||
        !c10_run(workload, &policy, UINT64_MAX, &native))
        return false;
    findings->without = free_run.peak_reserved;
    return least_climb(small, workload->peak_tried, fits_tarn, arguments, &findings->tarn) &&
           least_climb(small, workload->peak_tried, fits_planned, &planned, &findings->planned) &&
           least_search(small, least_round_up(native.peak_reserved), fits_pytorch, workload,
                        &findings->pytorch);
}

/* Counts the pages of ranges, which no replay has, to all that is reserved or needed: they never
 * lie in an arena, and idle memory of the rest makes room for them. */
static void add_ranges(const struct workload *workload, struct findings *findings)
{
    uint64_t *const figures[] = {&findings->without, &findings->planned, &findings->tarn,
                                 &findings->pytorch, &findings->replay.peak_reserved};
    findings->ranges = workload->peak_ranges ? least_round_up(workload->peak_ranges) : 0;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        *figures[i] += *figures[i] ? findings->ranges : 0;
}

/* ---- what is said ---- */

static void line(const char *label, uint64_t bytes, uint64_t bound)
{
    printf("  %-44s %12s  %.4f\n", label, units_bytes(bytes).text, (double)bytes / (double)bound);
}

static void line_device(const char *label, uint64_t bytes, uint64_t bound)
{
    if (bytes)
        printf("  %-44s %12s  %.4f\n", label, units_bytes_up(bytes).text,
               (double)bytes / (double)bound);
    else
        printf("  %-44s %12s\n", label, "not known");
}

static void print_arena(const struct plan_draft_arena *arena, uint64_t bound)
{
    char label[96], pool[24] = "";
    if (arena->header.pool)
        snprintf(pool, sizeof pool, "pool %" PRIu32 ", ", arena->header.pool);
    snprintf(label, sizeof label, "    %sstream 0x%" PRIx64 ", %.5f", pool, arena->stream,
             (double)arena->found.height / (double)arena->found.bound);
    line(label, arena->found.height, bound);
}

/* Says how many streams of the default pool are planned, and how many private pools. */
static void describe_arenas(const struct plan_draft *draft, char *text, size_t size)
{
    uint32_t of_default = 0;
    uint64_t stream = 0;
    for (uint32_t i = 0; i < draft->count; i++) {
        if (draft->arenas[i].pool)
            continue;
        of_default++;
        stream = draft->arenas[i].stream;
    }
    int length = 0;
    if (of_default == 1)
        length = snprintf(text, size, "on stream 0x%" PRIx64, stream);
    else if (of_default)
        length = snprintf(text, size, "on %" PRIu32 " streams", of_default);
    if (draft->pools)
        snprintf(text + length, size - (size_t)length, "%sin %" PRIu32 " private pool%s",
                 of_default ? " and " : "", draft->pools, draft->pools > 1 ? "s" : "");
}

/* Prints what the plan does not cover. */
static void print_limits(const struct arguments *arguments, const struct workload *workload,
                         const struct findings *findings)
{
    if (findings->ranges)
        printf("  not planned: pages of ranges; what is reserved, and the devices, have %s for "
               "them\n",
               units_bytes(findings->ranges).text);
    if (workload->initial_count)
        printf("  not planned: what was freed before the recording began, and the order of the %s "
               "block%s from before; "
               "record from the start of the program\n",
               units_count(workload->initial_count).text, workload->initial_count == 1 ? "" : "s");
    if (arguments->others)
        printf("  not planned: %d other device%s of this file; --device N plans device N\n",
               arguments->others, arguments->others == 1 ? "" : "s");
    if (workload->oom_count)
        printf("  not planned: %s request%s that failed; the smallest devices have room for %s\n",
               units_count(workload->oom_count).text, workload->oom_count == 1 ? "" : "s",
               workload->oom_count == 1 ? "it" : "them");
}

/* The sentence that the table begins with. */
static void print_verdict(const struct findings *findings)
{
    if (findings->planned && findings->tarn)
        printf("a device of %s is enough with the plan, one of %s without\n",
               units_bytes_up(findings->planned).text, units_bytes_up(findings->tarn).text);
    else
        printf("with the plan at most %s are reserved, for at most %s requested\n",
               units_bytes(findings->replay.peak_reserved).text,
               units_bytes(findings->requested).text);
}

static void print_table(const struct arguments *arguments, const struct workload *workload,
                        const struct plan_draft *draft, const struct findings *findings)
{
    const char *slash = strrchr(arguments->path, '/');
    uint64_t bound = findings->requested;
    printf("%s, device %d\n", slash ? slash + 1 : arguments->path, workload->device);
    print_verdict(findings);
    char streams[80];
    describe_arenas(draft, streams, sizeof streams);
    printf("  placed / lower bound: %.5f%s\n",
           (double)draft->found.height / (double)draft->found.bound,
           draft->found.height <= draft->found.proved ? "; no placement is lower" : "");
    printf("  planned: %s of %s allocations, those above 64 KiB %s; orders tried: %s\n",
           units_count(draft->planned).text,
           units_count(workload->alloc_count + workload->initial_count).text, streams,
           units_count(draft->found.tries).text);
    print_limits(arguments, workload, findings);
    printf("\n  %-44s %12s  %s\n", "", "", "/ requested");
    line("peak requested", bound, bound);
    line("peak of what is planned, the lower bound", draft->found.bound, bound);
    line("  placed", draft->found.height, bound);
    if (draft->count > 1)
        printf("    of these, and placed / lower bound of each:\n");
    for (uint32_t i = 0; i < draft->count && draft->count > 1; i++)
        print_arena(&draft->arenas[i], bound);
    line("reserved with the plan", findings->replay.peak_reserved, bound);
    line_device("smallest device, with the plan", findings->planned, bound);
    line_device("smallest device, without", findings->tarn, bound);
    line_device("smallest device, PyTorch's policy", findings->pytorch, bound);
    if (findings->without && findings->replay.peak_reserved > findings->without)
        printf("\n  with the plan more is reserved, where there is room, than without it (%s)\n",
               units_bytes(findings->without).text);
    if (arguments->output)
        printf("\n  written: %s, %s; TARN_ALLOC_CONF=plan:%s\n", arguments->output,
               units_bytes(plan_draft_size(draft)).text, arguments->output);
}

static json_t *json_known(uint64_t bytes)
{
    return bytes ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *json_arenas(const struct plan_draft *draft)
{
    json_t *arenas = json_array();
    for (uint32_t i = 0; i < draft->count; i++) {
        const struct plan_draft_arena *arena = &draft->arenas[i];
        json_array_append_new(
            arenas,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "stream", (json_int_t)arena->stream,
                      "pool", (json_int_t)arena->header.pool, "planned",
                      (json_int_t)arena->header.count, "bound", (json_int_t)arena->found.bound,
                      "proved", (json_int_t)arena->found.proved, "placed",
                      (json_int_t)arena->found.height, "small", (json_int_t)arena->header.small));
    }
    return arenas;
}

static bool print_json(const struct arguments *arguments, const struct workload *workload,
                       const struct plan_draft *draft, const struct findings *findings)
{
    const struct name_text output = name_valid(arguments->output ? arguments->output : "");
    json_t *devices =
        json_pack("{s:o, s:o, s:o}", "plan", json_known(findings->planned), "tarn",
                  json_known(findings->tarn), "pytorch", json_known(findings->pytorch));
    json_int_t count = (json_int_t)workload->alloc_count + (json_int_t)workload->initial_count;
    json_int_t small = 0;
    for (uint32_t i = 0; i < draft->count; i++)
        small += (json_int_t)draft->arenas[i].header.small;
    json_t *object = json_pack(
        "{s:s?, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:o, s:o, s:s?}",
        "file", name_valid(arguments->path).text, "device", workload->device, "other_devices",
        arguments->others, "initial_blocks", (json_int_t)workload->initial_count, "recorded_ooms",
        (json_int_t)workload->oom_count, "allocations", count, "planned",
        (json_int_t)draft->planned, "stream", (json_int_t)draft->arenas[draft->largest].stream,
        "peak_requested", (json_int_t)findings->requested, "bound", (json_int_t)draft->found.bound,
        "proved", (json_int_t)draft->found.proved, "placed", (json_int_t)draft->found.height,
        "small", small, "ranges", (json_int_t)findings->ranges, "reserved",
        (json_int_t)findings->replay.peak_reserved, "orders", (json_int_t)draft->found.tries,
        "steps", (json_int_t)draft->found.steps, "arenas", json_arenas(draft), "smallest_device",
        devices, "output", arguments->output ? output.text : NULL);
    bool done = json_print(object, stdout);
    json_decref(object);
    return done || complain(arguments->path, "the result could not be written");
}

/* ---- the command line ---- */

/* The file is there whole or not at all. */
static bool write_output(const struct arguments *arguments, const struct plan_draft *draft)
{
    struct sink sink;
    bool done = false;
    tarn_status status = sink_to_file(&sink, arguments->output, 0666);
    if (!status) {
        done = plan_draft_write(draft, &sink);
        status = sink_end(&sink, !done);
    }
    if (status)
        return complain(arguments->path, tarn_last_error());
    return done || complain(arguments->path, "there is not enough host memory to write the plan");
}

/* What cannot be written is said before the search, which may take long. */
static bool may_write(const struct arguments *arguments)
{
    struct sink sink;
    if (!arguments->output)
        return true;
    if (!command_may_write_result("plan", arguments->output))
        return false;
    if (sink_to_file(&sink, arguments->output, 0666))
        return complain(arguments->path, tarn_last_error());
    (void)sink_end(&sink, true);
    return true;
}

static int plan(struct arguments *arguments)
{
    struct workload workload = {0};
    struct plan_draft draft = {0};
    struct findings findings = {0};
    char error[256];
    if (!may_write(arguments))
        return COMMAND_FAILED;
    /* keep what comes through a pipe, since the file is replayed many times */
    if (!once_hold(arguments->path, error, sizeof error))
        return complain(arguments->path, error) ? COMMAND_OK : COMMAND_FAILED;
    if (intervals_are_in(arguments->path)) {
        const struct plan_intervals_options intervals = {arguments->path, arguments->output,
                                                         arguments->steps, arguments->seconds,
                                                         arguments->json};
        return plan_intervals(&intervals) ? COMMAND_OK : COMMAND_FAILED;
    }
    if (!read_workload(arguments, &workload))
        return COMMAND_FAILED;
    findings.requested = workload.peak_requested;
    workload_leave_ranges(&workload);
    bool done =
        make_plan(arguments, &workload, &draft, &findings) &&
        (arguments->seconds <= 0 || search_devices(arguments, &workload, &draft, &findings));
    add_ranges(&workload, &findings);
    done = done && (!arguments->output || write_output(arguments, &draft));
    if (done && arguments->json)
        done = print_json(arguments, &workload, &draft, &findings);
    else if (done)
        print_table(arguments, &workload, &draft, &findings);
    plan_draft_finish(&draft);
    workload_finish(&workload);
    return done ? COMMAND_OK : COMMAND_FAILED;
}

/* TARN_ALLOC_CONF must be able to name it. */
static bool take_output(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->output = value;
    return *value && strcmp(value, "-") != 0 && !value[strcspn(value, ",:[]")] &&
           strlen(value) < CONFIG_PATH_BYTES;
}

static bool take_device(void *arguments, const char *value)
{
    uint64_t device;
    if (!units_parse_count(value, 0, INT32_MAX, &device))
        return false;
    ((struct arguments *)arguments)->device = (int)device;
    return true;
}

static bool take_seconds(void *arguments, const char *value)
{
    return units_parse_number(value, 0, 1e6, &((struct arguments *)arguments)->seconds);
}

static bool take_steps(void *arguments, const char *value)
{
    return units_parse_count(value, 0, INT64_MAX, &((struct arguments *)arguments)->steps);
}

static const struct command_option options[] = {
    {.name = "output",
     .letter = 'o',
     .wants = "a path of at most 255 bytes without , : [ and ], which TARN_ALLOC_CONF can name, "
              "and not - alone",
     .take = take_output},
    {.name = "device", .wants = "a device's number", .take = take_device},
    {.name = "seconds", .wants = "seconds from 0 to 10^6", .take = take_seconds},
    {.name = "steps", .wants = "a number of steps", .take = take_steps},
    {.name = "json", .flag = offsetof(struct arguments, json)},
    {.name = NULL},
};
static_assert(CONFIG_PATH_BYTES - 1 == 255, "what --output wants");

static int run(int argc, char **argv)
{
    struct arguments arguments = {.device = -1, .steps = INT64_MAX, .seconds = 10};
    int status = command_parse(&plan_command, options, &arguments, argc, argv);
    if (status != COMMAND_GO_ON)
        return status;
    if (argc - optind != 1)
        return command_usage_error("plan", optind == argc ? "no file was named"
                                                          : "one file can be planned at a time");
    arguments.path = argv[optind];
    return plan(&arguments);
}

const struct command plan_command = {
    .name = "plan",
    .summary = "Plan the memory of a recorded run, and find the smallest device for it",
    .help = help,
    .run = run,
};
