/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn metrics`: the command line. */
#include "command.h"
#include "metrics/machine.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] = "Usage: tarn metrics [OPTION]...\n"
                           "\n"
                           "Prints the metrics of all processes that publish, in the Prometheus "
                           "text format, or serves them. A process "
                           "publishes\n"
                           "when TARN_LIVE=1 is in its environment as it starts, or when it calls "
                           "tarn_live_start(). Those of other users "
                           "are\n"
                           "counted and not read, except by root.\n"
                           "\n"
                           "Options:\n"
                           "      --listen [ADDRESS:]PORT  Serve http://ADDRESS:PORT/metrics until "
                           "a signal ends it. The default ADDRESS is\n"
                           "                               127.0.0.1; 0.0.0.0 or [::] is every "
                           "address of the machine. PORT 0 chooses a free\n"
                           "                               port. The URL is printed\n"
                           "      --directory DIR          Look for pages in DIR; otherwise in "
                           "TARN_LIVE_DIRECTORY or XDG_RUNTIME_DIR, in\n"
                           "                               /dev/shm and in /run/user/ID\n"
                           "  -h, --help                   Show this help\n"
                           "\n"
                           "Exit status: 0 when the text was printed, or the server was ended by "
                           "SIGINT, SIGTERM or SIGHUP; 1 when something\n"
                           "failed, 2 for an invalid command line.\n"
                           "\n"
                           "Examples:\n"
                           "  tarn metrics | grep tarn_reserved_bytes\n"
                           "      One metric of all processes.\n"
                           "  tarn metrics --listen 0.0.0.0:9839\n"
                           "      For Prometheus on another machine.\n";

struct arguments {
    const char *listen, *directory;
};

static bool take_listen(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->listen = value;
    return metrics_is_place(value);
}

static bool take_directory(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->directory = value;
    return command_is_folder(value);
}

static const struct command_option options[] = {
    {.name = "listen", .wants = "a port, or an address, a colon and a port", .take = take_listen},
    {.name = "directory", .wants = "a folder that is there", .take = take_directory},
    {.name = NULL},
};

static int run(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct metrics_text text;
    int status = command_parse(&metrics_command, options, &arguments, argc, argv);
    if (status != COMMAND_GO_ON)
        return status;
    if (optind < argc)
        return command_usage_error("metrics", "takes options only, not \"%s\"", argv[optind]);
    if (arguments.listen)
        return metrics_serve(arguments.listen, arguments.directory);
    if (!metrics_text_make(arguments.directory, &text)) {
        fputs("tarn metrics: out of memory\n", stderr);
        return COMMAND_FAILED;
    }
    bool done = fwrite(text.text, 1, text.length, stdout) == text.length;
    free(text.text);
    return done ? COMMAND_OK : COMMAND_FAILED;
}

const struct command metrics_command = {
    .name = "metrics",
    .summary = "Print or serve the metrics of running processes",
    .help = help,
    .run = run,
};
