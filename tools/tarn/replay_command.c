/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn replay`: the command line. Files are replayed one after the other, so that their times can be compared. */
#include "command.h"
#include "crew.h"
#include "replay_report.h"
#include "units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: tarn replay [OPTION]... FILE...\n"
    "\n"
    "Replays PyTorch memory snapshots through tarn's allocator, on a device that is simulated in host memory, and\n"
    "shows what tarn takes for them beside what PyTorch's allocator takes. A FILE is what\n"
    "torch.cuda.memory._dump_snapshot() writes, or RMM's logging_resource_adaptor (a CSV), plain or compressed with\n"
    "zstd. It is read as data; nothing in it is executed.\n"
    "\n"
    "Every step is verified from outside: that no two live blocks share memory, that each is mapped, and that no\n"
    "block comes with unfinished work of another stream. A snapshot without a trace gives its state.\n"
    "\n"
    "Options:\n"
    "      --json                 Print one JSON array instead of tables\n"
    "      --device-memory SIZE   Memory of each device, as 80G, 512MiB or in bytes; without it the larger of 80 GiB\n"
    "                             and 1.25 times what was reserved in the recording\n"
    "      --lag MS               Milliseconds from a block's free to the end of its last use (0)\n"
    "      --repeat N             Run each trace N times in a row, with nothing given back between (1)\n"
    "      --deal-streams N       Deal the blocks over N streams by a hash of their addresses, and use every 20th on "
    "a\n"
    "                             second one too, until --lag after its free\n"
    "      --deal-threads N       Deal them over N threads, with 30 % of the frees by another thread\n"
    "      --profile NAME         The profile of tarn's settings: default or footprint\n"
    "      --driver NAME          The driver to replay on: host (host)\n"
    "  -h, --help                 Show this help\n"
    "\n"
    "Exit status: 0 when every file was replayed and verified, 1 when one failed or diverged, 2 for a command line\n"
    "that makes no sense. Colours appear on a terminal only, and not with NO_COLOR set.\n"
    "\n"
    "Examples:\n"
    "  tarn replay train.pickle\n"
    "      What a recorded training run takes.\n"
    "  tarn replay --device-memory 24G --lag 20 *.pickle\n"
    "      Whether runs would fit into 24 GiB, if the device finishes 20 ms behind the program.\n"
    "  tarn replay --repeat 5 train.pickle.zst\n"
    "      Which driver calls are left once the allocator has warmed up.\n"
    "  tarn replay --deal-streams 4 --lag 20 train.pickle\n"
    "      What the same run would take on four streams.\n"
    "  tarn replay --json *.pickle | jq '.[] | select(.peak_reserved > 0) |\n"
    "      {file, ratio: (.peak_reserved / .peak_requested)}'\n"
    "      One figure a file; what failed, or has no trace, is left out.\n";

struct arguments {
    struct replay_options options;
    bool json, help;
};

/* Fills `arguments`; gives COMMAND_OK with optind at the first file, or COMMAND_USAGE. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
    enum {
        OPTION_JSON = 256,
        OPTION_MEMORY,
        OPTION_LAG,
        OPTION_REPEAT,
        OPTION_STREAMS,
        OPTION_THREADS,
        OPTION_PROFILE,
        OPTION_DRIVER
    };
    static const struct option options[] = {
        {"json", no_argument, NULL, OPTION_JSON},
        {"device-memory", required_argument, NULL, OPTION_MEMORY},
        {"lag", required_argument, NULL, OPTION_LAG},
        {"repeat", required_argument, NULL, OPTION_REPEAT},
        {"deal-streams", required_argument, NULL, OPTION_STREAMS},
        {"deal-threads", required_argument, NULL, OPTION_THREADS},
        {"profile", required_argument, NULL, OPTION_PROFILE},
        {"driver", required_argument, NULL, OPTION_DRIVER},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct replay_options *replay = &arguments->options;
    double lag;
    uint64_t count;
    int option;
    while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (option) {
        case OPTION_JSON:
            arguments->json = true;
            break;
        case OPTION_MEMORY:
            if (!units_parse_bytes(optarg, &replay->device_memory) || replay->device_memory < UINT64_C(2) << 20)
                return command_usage_error("replay",
                                           "--device-memory wants a size of 2 MiB or more, as 80G, not \"%s\"", optarg);
            break;
        case OPTION_LAG:
            if (!units_parse_number(optarg, 0, 1e9, &lag))
                return command_usage_error("replay", "--lag wants milliseconds from 0 to 10^9, not \"%s\"", optarg);
            replay->lag = (uint64_t)(lag * 1e6);
            break;
        case OPTION_REPEAT:
            if (!units_parse_count(optarg, 1, REPLAY_MAX_REPEAT, &count))
                return command_usage_error("replay", "--repeat wants a number from 1 to %d, not \"%s\"",
                                           REPLAY_MAX_REPEAT, optarg);
            replay->repeat = (uint32_t)count;
            break;
        case OPTION_STREAMS:
            if (!units_parse_count(optarg, 1, REPLAY_MAX_STREAMS, &count))
                return command_usage_error("replay", "--deal-streams wants a number from 1 to %d, not \"%s\"",
                                           REPLAY_MAX_STREAMS, optarg);
            replay->deal_streams = (uint32_t)count;
            break;
        case OPTION_THREADS:
            if (!units_parse_count(optarg, 1, CREW_MAX, &count))
                return command_usage_error("replay", "--deal-threads wants a number from 1 to %d, not \"%s\"", CREW_MAX,
                                           optarg);
            replay->deal_threads = (uint32_t)count;
            break;
        case OPTION_PROFILE:
            if (strcmp(optarg, "default") != 0 && strcmp(optarg, "footprint") != 0)
                return command_usage_error("replay", "--profile wants default or footprint, not \"%s\"", optarg);
            replay->profile = optarg;
            break;
        case OPTION_DRIVER:
            replay->driver = optarg;
            break;
        case 'h':
            arguments->help = true;
            return COMMAND_OK;
        default:
            return command_option_error("replay", option, argv, options);
        }
    }
    return optind < argc ? COMMAND_OK : command_usage_error("replay", "no file was named");
}

static bool has_trace(const struct replay_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (files[i].device_count)
            return true;
    return false;
}

static int replay(const struct arguments *arguments, char **paths, size_t count)
{
    const char *no_colour = getenv("NO_COLOR");
    bool colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
    bool well = true, written = true;
    struct replay_file *files = calloc(count, sizeof *files);
    if (!files) {
        fputs("tarn replay: out of memory\n", stderr);
        return COMMAND_FAILED;
    }
    for (size_t i = 0; i < count; i++) {
        well = replay_file_run(paths[i], &arguments->options, isatty(STDERR_FILENO), &files[i]) && well;
        if (!arguments->json)
            written = replay_table_write(stdout, &files[i], &arguments->options, colour) && written;
        if (files[i].error[0])
            fprintf(stderr, "tarn replay: %s: %s\n", paths[i], files[i].error);
    }
    if (arguments->json)
        written = replay_json_write(stdout, files, count, &arguments->options);
    else if (count > 1 && has_trace(files, count))
        written = replay_summary_write(stdout, files, count, colour) && written;
    if (!written)
        fputs("tarn replay: the results could not be written\n", stderr);
    for (size_t i = 0; i < count; i++)
        replay_file_finish(&files[i]);
    free(files);
    return well && written ? COMMAND_OK : COMMAND_FAILED;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {.options = {.driver = "host", .repeat = 1}};
    int status = parse(argc, argv, &arguments);
    if (status != COMMAND_OK)
        return status;
    if (arguments.help) {
        fputs(help, stdout);
        return COMMAND_OK;
    }
    return replay(&arguments, argv + optind, (size_t)(argc - optind));
}

const struct command replay_command = {
    .name = "replay",
    .summary = "Replay memory snapshots of PyTorch and logs of RMM, compare allocators",
    .help = help,
    .run = run,
};
