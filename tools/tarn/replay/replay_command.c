/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn replay`: the command line. Files are replayed one after the other, so that their times are
 * comparable. */
#include "command.h"
#include "input/once.h"
#include "plain_output.h"
#include "replay/replay_report.h"
#include "replay/run_options.h"
#include "replay/what_if.h"
#include "units.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: tarn replay [OPTION]... FILE...\n"
    "\n"
    "Replays PyTorch memory snapshots through tarn's allocator, on a device that is simulated in "
    "host memory. Shows\n"
    "how much memory tarn takes, compared with PyTorch's allocator with its default settings and "
    "with expandable\n"
    "segments. A FILE is a snapshot of torch.cuda.memory._dump_snapshot(), or a log (CSV) of "
    "RMM's\n"
    "logging_resource_adaptor, plain or compressed with zstd or gzip. It is read as data; nothing "
    "in it is executed.\n"
    "\n"
    "Every step is verified from outside: no two live blocks share memory, each is mapped, and no "
    "block is handed out\n"
    "while another stream's work on it is unfinished. For a snapshot without a trace, only its "
    "state is shown.\n"
    "\n"
    "Options:\n"
    "      --json                 Print one JSON array instead of tables\n"
    "      --device-memory SIZE   Memory of each device, such as 80G, 512MiB or in bytes; the "
    "default is that of the\n"
    "                             recorded device where an out-of-memory error or tarn's recording "
    "tells it, else the\n"
    "                             larger of 80 GiB and 1.25 times the memory that was reserved in "
    "the recording\n"
    "      --lag MS               Milliseconds from a block's free to the end of its last use (0)\n"
    "      --repeat N             Run each trace N times in a row, releasing nothing in between "
    "(1)\n"
    "      --deal-streams N       Distribute the blocks over N streams by a hash of their "
    "addresses, and use every\n"
    "                             20th on a second stream too, until --lag after its free\n"
    "      --deal-threads N       Distribute them over N threads, with 30 % of the frees by "
    "another thread\n"
    "      --vary SEED            Vary the run a little: 1 % of the sizes changed, 0.5 % of the "
    "blocks left\n"
    "                             out, 0.5 % added, 1 % of neighbours swapped\n"
    "      --least                Search the smallest device on which each trace runs to its end, "
    "and what failed\n"
    "                             in it does not fail, for tarn and for both of PyTorch's "
    "policies\n"
    "      --what-if SPEC         Run each trace with other settings too, and show all runs side "
    "by side; may be\n"
    "                             given several times. SPEC is a comma-separated list of "
    "memory=SIZE, lag=MS, "
    "repeat=N,\n"
    "                             deal-streams=N, deal-threads=N, vary=SEED, policy=pytorch or "
    "policy=expandable\n"
    "                             (PyTorch's policies on that device), least=yes, and as the last "
    "item conf=TEXT "
    "(what\n"
    "                             TARN_ALLOC_CONF may say, or with PyTorch's policies "
    "PYTORCH_CUDA_ALLOC_CONF)\n"
    "      --driver NAME          The driver to replay on: host (host)\n"
    "  -h, --help                 Show this help\n"
    "\n"
    "Exit status: 0 when every file was replayed and verified, 1 when one failed or diverged, 2 "
    "for an invalid\n"
    "command line; 3, with --what-if only, when nothing is wrong except that a run does not fit "
    "into its\n"
    "device. Colours appear on a terminal only, not with NO_COLOR or TERM=dumb.\n"
    "\n"
    "Examples:\n"
    "  tarn replay train.pickle\n"
    "      What a recorded training run takes.\n"
    "  tarn replay --device-memory 24G --lag 20 *.pickle\n"
    "      Whether runs would fit into 24 GiB, if the device finishes 20 ms behind the program.\n"
    "  tarn replay --repeat 5 train.pickle.zst\n"
    "      Which driver calls remain once the allocator has warmed up.\n"
    "  tarn replay --deal-streams 4 --lag 20 train.pickle\n"
    "      What the same run would take on four streams.\n"
    "  tarn replay --what-if memory=24G --what-if memory=24G,policy=pytorch --what-if "
    "conf=compaction:on_oom "
    "train.pickle\n"
    "      Whether it fits into 24 GiB with tarn, and with PyTorch's allocator.\n"
    "  tarn replay --what-if policy=pytorch,conf=max_split_size_mb:256 --what-if policy=expandable "
    "train.pickle\n"
    "      What other PyTorch settings would change.\n"
    "  tarn replay --least --lag 20 train.pickle\n"
    "      The smallest device on which it runs, with tarn and with PyTorch's allocator.\n"
    "  tarn replay --json *.pickle | jq '.[] | select(.peak_reserved > 0) |\n"
    "      {file, ratio: (.peak_reserved / .peak_requested)}'\n"
    "      One figure per file; files that failed or have no trace are left out.\n";

struct arguments {
    struct replay_options options;
    const char *what_if[WHAT_IF_MAX];
    size_t what_if_count;
    bool json;
};

enum { COMMAND_UNFIT = 3 }; /* an exit status of this command in addition to the common ones */

static bool take_what_if(void *arguments, const char *value)
{
    struct arguments *own = arguments;
    if (own->what_if_count == WHAT_IF_MAX)
        return false;
    own->what_if[own->what_if_count++] = value;
    return true;
}

static bool take_driver(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->options.driver = value;
    return true;
}

/* The options of a run are stored in `struct replay_options`, with which the arguments begin. */
static const struct command_option options[] = {
    {.name = "json", .flag = offsetof(struct arguments, json)},
    {.name = "device-memory", .wants = UNITS_WANTS_MEMORY, .take = run_take_memory},
#define X(field, text, what) {.name = (text), .wants = (what), .take = run_take_##field},
    RUN_OPTION_LIST(X)
#undef X
        {.name = "least", .flag = offsetof(struct arguments, options.least)},
    {.name = "what-if",
     .wants = "a list of items, and that no more than 64 times",
     .take = take_what_if},
    {.name = "driver", .wants = "a driver's name", .take = take_driver},
    {.name = NULL},
};
static_assert(offsetof(struct arguments, options) == 0, "run_take_ functions write there");
static_assert(WHAT_IF_MAX == 64, "what --what-if wants");

static bool has_trace(const struct replay_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (files[i].device_count)
            return true;
    return false;
}

/* All runs, and where they are shown. */
struct session {
    /* the runs of each file: that of the command line, then those of --what-if */
    const struct replay_options *runs;
    size_t run_count;
    char **paths;
    size_t path_count;
    struct replay_file *files; /* path by path */
    bool json, colour;
};

/* Makes all runs of a file, and shows them. False if they could not be shown. */
static bool run_file(const struct session *session, size_t number, enum replay_verdict *verdict)
{
    struct replay_file *runs = &session->files[number * session->run_count];
    for (size_t i = 0; i < session->run_count; i++) {
        (void)replay_file_run(session->paths[number], &session->runs[i], plain_output_moves(),
                              &runs[i]);
        enum replay_verdict own = replay_file_verdict(&runs[i]);
        *verdict = own > *verdict ? own : *verdict;
    }
    bool written = true;
    if (!session->json)
        written = session->run_count > 1
                      ? replay_compare_write(stdout, runs, session->run_count, session->colour)
                      : replay_table_write(stdout, runs, session->colour);
    for (size_t i = 0; i < session->run_count; i++)
        if (runs[i].error[0])
            fprintf(stderr, "tarn replay: %s: %s%s%s\n", runs[i].path,
                    runs[i].options->what_if ? runs[i].options->what_if : "",
                    runs[i].options->what_if ? ": " : "", runs[i].error);
    return written;
}

static int run_files(const struct session *session)
{
    enum replay_verdict verdict = REPLAY_WELL;
    size_t count = session->path_count * session->run_count;
    bool written = true;
    for (size_t i = 0; i < session->path_count; i++)
        written = run_file(session, i, &verdict) && written;
    if (session->json)
        written = replay_json_write(stdout, session->files, count);
    else if (session->run_count == 1 && count > 1 && has_trace(session->files, count))
        written = replay_summary_write(stdout, session->files, count, session->colour) && written;
    if (!written)
        fputs("tarn replay: the results could not be written\n", stderr);
    if (!written || verdict == REPLAY_FAILED ||
        (verdict == REPLAY_UNFIT && session->run_count == 1))
        return COMMAND_FAILED;
    return verdict == REPLAY_UNFIT ? COMMAND_UNFIT : COMMAND_OK;
}

/* Makes the options of every run. */
static int what_if(struct arguments *arguments, struct replay_options *runs)
{
    char error[256];
    arguments->options.compare = arguments->what_if_count > 0;
    runs[0] = arguments->options;
    for (size_t i = 0; i < arguments->what_if_count; i++) {
        runs[i + 1] = arguments->options;
        if (!what_if_parse(arguments->what_if[i], &runs[i + 1], error, sizeof error))
            return command_usage_error("replay", "--what-if %s: %s", arguments->what_if[i], error);
    }
    return COMMAND_OK;
}

static int replay(struct arguments *arguments, char **paths, size_t count)
{
    struct replay_options runs[WHAT_IF_MAX + 1];
    char error[256];
    int status = what_if(arguments, runs);
    if (status != COMMAND_OK)
        return status;
    struct session session = {.runs = runs,
                              .run_count = arguments->what_if_count + 1,
                              .paths = paths,
                              .path_count = count,
                              .json = arguments->json,
                              .colour = command_colours()};
    session.files = calloc(count * session.run_count, sizeof *session.files);
    if (!session.files) {
        fputs("tarn replay: out of memory\n", stderr);
        return COMMAND_FAILED;
    }
    /* a file from a pipe is kept, since it may be read several times */
    for (size_t i = 0; i < count && status == COMMAND_OK; i++)
        if (!once_hold(paths[i], error, sizeof error)) {
            fprintf(stderr, "tarn replay: %s: %s\n", paths[i], error);
            status = COMMAND_FAILED;
        }
    if (status == COMMAND_OK)
        status = run_files(&session);
    for (size_t i = 0; i < count * session.run_count; i++)
        replay_file_finish(&session.files[i]);
    free(session.files);
    return status;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {.options = {.driver = "host", .repeat = 1}};
    int status = command_parse(&replay_command, options, &arguments, argc, argv);
    if (status != COMMAND_GO_ON)
        return status;
    if (optind == argc)
        return command_usage_error("replay", "no file was named");
    return replay(&arguments, argv + optind, (size_t)(argc - optind));
}

const struct command replay_command = {
    .name = "replay",
    .summary = "Replay memory snapshots of PyTorch and logs of RMM, compare allocators",
    .help = help,
    .run = run,
};
