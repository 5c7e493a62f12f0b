/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn report` and `tarn diff`: their command lines. */
#include "analysis/report.h"
#include "command.h"
#include "units.h"

#include <errno.h>
#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes from which on a browser may not take a page: its strings end at half a gigabyte. */
#define PAGE_LARGE ((off_t)400 << 20)

static const char report_help[] =
    "Usage: tarn report [OPTION]... FILE\n"
    "       tarn report [OPTION]... -o PAGE.html FILE [FILE2]\n"
    "\n"
    "Shows what used a GPU's memory, and when. A FILE is a memory snapshot of tarn, or one of PyTorch as\n"
    "torch.cuda.memory._dump_snapshot() writes it, plain or compressed with zstd. It is read as data; nothing in it\n"
    "is executed.\n"
    "\n"
    "With -o it writes one page that a browser shows without a network: memory over time by tag, call site, stream or\n"
    "pool, down to single allocations; what lived at any moment; where it lay and what was free between. With FILE2\n"
    "the page compares the two. Without -o it prints a screen of text for each device.\n"
    "\n"
    "Options:\n"
    "  -o, --output PAGE      Write a page; \"-\" is standard output\n"
    "      --text             Print text (what it does without -o and --json)\n"
    "      --json             Print one JSON array instead, an object for each device\n"
    "      --device N         Only this device (all)\n"
    "      --at MOMENT        What to look at: peak, peak-reserved, end, or a number of events (peak)\n"
    "      --rows N           Rows of each table (8; with --json 50)\n"
    "  -h, --help             Show this help\n"
    "\n"
    "A block's tag is what the program named it by, or PyTorch's user metadata. Its call site is the\n"
    "innermost frame of its stack that is neither PyTorch's nor Python's nor of an installed package.\n"
    "\n"
    "Exit status: 0 when all was read and written, 1 when something failed, 2 for a command line that makes no sense.\n"
    "\n"
    "Examples:\n"
    "  tarn report train.pickle\n"
    "      Who has the memory at the peak, as text.\n"
    "  tarn report -o page.html train.pickle && xdg-open page.html\n"
    "      The same to look around in.\n"
    "  tarn report --at end state.pickle.zst\n"
    "      What was still allocated at the end: what leaks stays in it.\n"
    "  tarn report --json train.pickle | jq '.[] | .groups.call_site[0]'\n"
    "      The call site that has most.\n";

static const char diff_help[] =
    "Usage: tarn diff [OPTION]... BEFORE AFTER\n"
    "\n"
    "Compares two memory snapshots, of tarn or of PyTorch: their peaks side by side, and by tag, call site and pool "
    "what\n"
    "grew or shrank, the largest change first. Devices are compared by their number.\n"
    "\n"
    "Options:\n"
    "      --json             Print one JSON array instead, an object for each device\n"
    "      --device N         Only this device (all)\n"
    "      --at MOMENT        What to compare: peak, peak-reserved, end, or a number of events (peak)\n"
    "      --rows N           Rows of each table (8; with --json 50)\n"
    "  -h, --help             Show this help\n"
    "\n"
    "Exit status: 0 when both were read, 1 when something failed, 2 for a command line that makes no sense.\n"
    "\n"
    "Examples:\n"
    "  tarn diff monday.pickle tuesday.pickle\n"
    "      Why the peak is higher.\n"
    "  tarn diff --at end step-10.pickle step-1000.pickle\n"
    "      What leaks.\n";

struct arguments {
    struct report_options options;
    const char *output;
    int device;
    bool json, text, help;
};

enum { OPTION_TEXT = 256, OPTION_JSON, OPTION_DEVICE, OPTION_AT, OPTION_ROWS };

/* One option; COMMAND_OK, or COMMAND_USAGE with what is wrong said. */
static int take(const char *name, int option, struct arguments *arguments)
{
    uint64_t number;
    switch (option) {
    case 'o':
        arguments->output = optarg;
        return COMMAND_OK;
    case OPTION_TEXT:
        arguments->text = true;
        return COMMAND_OK;
    case OPTION_JSON:
        arguments->json = true;
        return COMMAND_OK;
    case OPTION_DEVICE:
        if (!units_parse_count(optarg, 0, 4095, &number))
            return command_usage_error(name, "--device wants a number from 0 to 4095, not \"%s\"", optarg);
        arguments->device = (int)number;
        return COMMAND_OK;
    case OPTION_AT:
        if (!report_moment_parse(optarg, &arguments->options.moment))
            return command_usage_error(name, "--at wants peak, peak-reserved, end or a number of events, not \"%s\"",
                                       optarg);
        return COMMAND_OK;
    case OPTION_ROWS:
        if (!units_parse_count(optarg, 1, 1000000, &number))
            return command_usage_error(name, "--rows wants a number from 1 to 1000000, not \"%s\"", optarg);
        arguments->options.rows = (size_t)number;
        return COMMAND_OK;
    default:
        arguments->help = true;
        return COMMAND_OK;
    }
}

static int parse(const char *name, int argc, char **argv, const char *letters, const struct option *options,
                 struct arguments *arguments)
{
    int option;
    *arguments = (struct arguments){.device = -1};
    while (!arguments->help && (option = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return command_option_error(name, option, argv, options);
        int status = take(name, option, arguments);
        if (status != COMMAND_OK)
            return status;
    }
    if (!arguments->options.rows)
        arguments->options.rows = arguments->json ? 50 : 8;
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col;
    arguments->options.width = known ? size.ws_col < 60 ? 60 : size.ws_col > 160 ? 160 : size.ws_col : 100;
    arguments->options.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    return COMMAND_OK;
}

/* Writes the page beside its place and moves it there when it is whole. */
static bool write_page(const char *path, const struct report_file *one, const struct report_file *two)
{
    if (strcmp(path, "-") == 0) {
        if (report_page_write(stdout, one, two))
            return true;
        fputs("tarn report: the page could not be written\n", stderr);
        return false;
    }
    if (!command_may_write("report", path))
        return false;
    size_t size = strlen(path) + 8;
    char *draft = malloc(size);
    int file = -1;
    if (draft) {
        snprintf(draft, size, "%s.XXXXXX", path);
        file = mkstemp(draft);
    }
    FILE *out = file >= 0 ? fdopen(file, "w") : NULL;
    mode_t mask = umask(0);
    umask(mask);
    bool done = out && fchmod(file, 0666 & ~mask) == 0 && report_page_write(out, one, two);
    int reason = errno;
    if (file >= 0 && !out)
        close(file);
    if (out && fclose(out) && done) {
        reason = errno;
        done = false;
    }
    if (done && rename(draft, path)) {
        reason = errno;
        done = false;
    }
    struct stat made;
    if (done && stat(path, &made) == 0 && made.st_size > PAGE_LARGE)
        fprintf(stderr, "tarn report: %s has %s: a browser may refuse it; --text and --json have no such limit\n", path,
                units_bytes((uint64_t)made.st_size).text);
    if (!done)
        fprintf(stderr, "tarn report: %s: the page could not be written: %s\n", path,
                reason ? strerror(reason) : "memory is short");
    if (!done && file >= 0)
        unlink(draft);
    free(draft);
    return done;
}

static int report(const struct arguments *arguments, char **paths, int count)
{
    struct report_file files[2] = {{0}};
    bool done = true;
    for (int i = 0; i < count && done; i++)
        done = report_file_open("report", paths[i], arguments->device, &files[i]);
    if (done && arguments->output) {
        errno = 0;
        done = write_page(arguments->output, &files[0], count > 1 ? &files[1] : NULL);
    } else if (done) {
        done = arguments->json ? report_json_write(stdout, &files[0], &arguments->options)
                               : report_text_write(stdout, &files[0], &arguments->options);
        if (!done)
            fputs("tarn report: the results could not be written\n", stderr);
    }
    for (int i = 0; i < count; i++)
        report_file_finish(&files[i]);
    return done ? COMMAND_OK : COMMAND_FAILED;
}

static int run_report(int argc, char **argv)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},   {"text", no_argument, NULL, OPTION_TEXT},
        {"json", no_argument, NULL, OPTION_JSON},   {"device", required_argument, NULL, OPTION_DEVICE},
        {"at", required_argument, NULL, OPTION_AT}, {"rows", required_argument, NULL, OPTION_ROWS},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct arguments arguments;
    int status = parse("report", argc, argv, ":ho:", options, &arguments);
    if (status != COMMAND_OK)
        return status;
    if (arguments.help) {
        fputs(report_help, stdout);
        return COMMAND_OK;
    }
    int count = argc - optind;
    if (count < 1)
        return command_usage_error("report", "no file was named");
    if ((arguments.output != NULL) + arguments.text + arguments.json > 1)
        return command_usage_error("report", "-o, --text and --json are different ways to show it: choose one");
    if (count > (arguments.output ? 2 : 1))
        return command_usage_error("report", arguments.output
                                                 ? "a page shows one file or compares two"
                                                 : "text and JSON show one file; `tarn diff` compares two");
    if (arguments.output && !report_page_exists()) {
        fputs("tarn report: this tarn was built without D3, which draws the page. Install it (Debian: node-d3; "
              "`scripts/setup\n"
              "demo` does) and build again; --text and --json work without it.\n",
              stderr);
        return COMMAND_FAILED;
    }
    return report(&arguments, argv + optind, count);
}

static int run_diff(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, OPTION_JSON},   {"device", required_argument, NULL, OPTION_DEVICE},
        {"at", required_argument, NULL, OPTION_AT}, {"rows", required_argument, NULL, OPTION_ROWS},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct arguments arguments;
    int status = parse("diff", argc, argv, ":h", options, &arguments);
    if (status != COMMAND_OK)
        return status;
    if (arguments.help) {
        fputs(diff_help, stdout);
        return COMMAND_OK;
    }
    if (argc - optind != 2)
        return command_usage_error("diff", "it compares two files");
    struct report_file before = {0}, after = {0};
    bool done = report_file_open("diff", argv[optind], arguments.device, &before) &&
                report_file_open("diff", argv[optind + 1], arguments.device, &after);
    if (done) {
        done = arguments.json ? report_diff_json(stdout, &before, &after, &arguments.options)
                              : report_diff_text(stdout, &before, &after, &arguments.options);
        if (!done)
            fputs("tarn diff: the results could not be written\n", stderr);
    }
    report_file_finish(&before);
    report_file_finish(&after);
    return done ? COMMAND_OK : COMMAND_FAILED;
}

const struct command report_command = {
    .name = "report",
    .summary = "Show what used the memory, and when: a page, text or JSON",
    .help = report_help,
    .run = run_report,
};

const struct command diff_command = {
    .name = "diff",
    .summary = "Show what grew from one memory snapshot to another",
    .help = diff_help,
    .run = run_diff,
};
