/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn report` and `tarn diff`: their command lines. */
#include "analysis/ranks.h"
#include "analysis/report/report.h"
#include "analysis/report/report_fits.h"
#include "command.h"
#include "input/thin.h"
#include "report/sink.h"
#include "units.h"

#include <langinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define RULES 64

/* Bytes from which on a browser may not take a page: its strings end at half a gigabyte. */
#define PAGE_LARGE ((off_t)400 << 20)

/* The options that both commands have. */
#define TABLE_OPTIONS                                                                            \
    "      --by LIST          Only these tables, separated by commas: tag, tag_first_part, "     \
    "category, call_site,\n"                                                                     \
    "                         module, stream, pool, thread\n"                                    \
    "      --top N            Rows of each table (8; with --json 50)\n"                          \
    "      --depth N          Frames per call site, which include its callers (1)\n"             \
    "      --fold TEXT        Skip functions and files with TEXT in their name, and show their " \
    "callers; may be\n"                                                                          \
    "                         repeated\n"                                                        \
    "      --category NAME=TEXT  Put what functions and files with TEXT in their name allocate " \
    "into the category\n"                                                                        \
    "                         NAME: weights, gradients, optimizer, activations, caches, "        \
    "workspaces "                                                                                \
    "or\n"                                                                                       \
    "                         temporaries; may be repeated\n"                                    \
    "  -h, --help             Show this help\n"

static const char report_help[] =
    "Usage: tarn report [OPTION]... FILE...\n"
    "       tarn report [OPTION]... -o PAGE.html [FILE]...\n"
    "\n"
    "Shows what used a GPU's memory, and when. A FILE is a memory snapshot of tarn, or one of "
    "PyTorch\n"
    "(torch.cuda.memory._dump_snapshot()); a log of RMM; or JSON of PyTorch's profiler; plain or "
    "compressed with zstd or\n"
    "gzip. It is read as data; nothing in it is executed.\n"
    "\n"
    "The report begins with up to three sentences that say what happened and what to do.\n"
    "\n"
    "With -o it writes one page for a browser, which needs no network: memory over time by tag, "
    "call site, stream or\n"
    "pool, down to single allocations, and the live blocks and holes of any moment.\n"
    "Without a FILE the page is a viewer, on which snapshots are dropped. They stay in the "
    "browser.\n"
    "Without -o it prints a screen of text for each device, after a comparison where there are "
    "several.\n"
    "\n"
    "Several files are compared. They are the ranks of one job if each has a number of its own "
    "behind \"rank\" in its\n"
    "name. The report says which differ from the others and how, and which runs out of memory "
    "first. Two files that\n"
    "are no ranks are compared as by `tarn diff`.\n"
    "\n"
    "Options:\n"
    "  -o, --output PAGE      Write a page; \"-\" is standard output\n"
    "      --text             Print text (the default without -o and --json)\n"
    "      --json             Print JSON instead: of one file an array, an object for each device; "
    "of two that are no\n"
    "                         ranks what `tarn diff --json` prints; of others one object, of the "
    "ranks\n"
    "      --no-what-if       Do not replay the trace to find what other allocators would take\n"
    "      --least            Search the smallest device for each allocator, even if that takes "
    "long\n"
    "      --fits SIZE        Say whether the recording would finish on a device of SIZE, as 24G: "
    "with PyTorch's native\n"
    "                         and expandable segments and with tarn; if not, where it stops and "
    "how "
    "much is missing\n"
    "      --outside SIZE     With --fits, what no allocator has: contexts, libraries, NCCL "
    "(as recorded)\n"
    "      --device N         Only this device (all)\n"
    "      --at MOMENT        What to look at: peak, peak-reserved, end, oom (the last "
    "out-of-memory error), a time "
    "such\n"
    "                         as 1.5s or 250ms, or a number of events (peak)\n" TABLE_OPTIONS "\n"
    "A block's tag is the name that the program gave it, or PyTorch's user metadata. Its call site "
    "is the innermost\n"
    "frame of its stack outside PyTorch, Python and installed packages, except wrappers such as "
    "allocate() that only\n"
    "return what they allocate. \"-\" as FILE is standard input.\n"
    "\n"
    "Exit status: 0 when all was read and written, 1 when something failed, 2 for an invalid "
    "command line.\n"
    "\n"
    "Examples:\n"
    "  tarn report train.pickle\n"
    "      What has the memory at the peak, as text.\n"
    "  tarn report -o page.html train.pickle && xdg-open page.html\n"
    "      The same as a page to explore.\n"
    "  tarn report -o viewer.html\n"
    "      A page that reads snapshots itself, for where tarn is not installed.\n"
    "  tarn report --fits 24G --outside 600M train.pickle\n"
    "      Whether it would have finished on a smaller device.\n"
    "  ssh node zstd -dc train.pickle.zst | tarn report --at oom --by call_site --depth 3 -\n"
    "      What had the memory when it ran out, with callers.\n"
    "  tarn report rank*.pickle\n"
    "      Which rank differs, and which runs out first; with -o as a page.\n"
    "  tarn report --at end state.pickle.zst\n"
    "      What was still allocated at the end, leaks included.\n";

static const char diff_help[] =
    "Usage: tarn diff [OPTION]... BEFORE AFTER\n"
    "       tarn diff [OPTION]... RANK...\n"
    "\n"
    "Compares two memory snapshots of tarn or PyTorch. Shows their peaks side by side, and what "
    "grew or shrank by "
    "tag,\n"
    "call site and pool, the largest change first. Devices are matched by their number.\n"
    "Three or more files are the ranks of one job, as in `tarn report`.\n"
    "\n"
    "Options:\n"
    "      --json             Print JSON instead: of two files an array, an object for each "
    "device; of more one\n"
    "                         object, of the ranks\n"
    "      --device N         Only this device (all)\n"
    "      --at MOMENT        What to compare: peak, peak-reserved, end, oom (the last "
    "out-of-memory error), a time "
    "such\n"
    "                         as 1.5s or 250ms, or a number of events (peak)\n" TABLE_OPTIONS "\n"
    "Exit status: 0 when all files were read, 1 when something failed, 2 for an invalid command "
    "line.\n"
    "\n"
    "Examples:\n"
    "  tarn diff monday.pickle tuesday.pickle\n"
    "      Why the peak is higher.\n"
    "  tarn diff --at end step-10.pickle step-1000.pickle\n"
    "      What leaks.\n";

struct arguments {
    struct report_options options;
    struct report_rules rules;
    const char *folds[RULES];
    struct category_rule categories[RULES];
    const char *output;
    const char *made_by; /* the command line, for the foot of a page */
    struct fits_question fits;
    int device;
    bool json, text, no_what_if, least;
};

/* "tag,call_site" to bits. */
static bool parse_by(const char *list, unsigned *by)
{
    *by = 0;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        enum analysis_by found = 0;
        while (found < ANALYSIS_BY_COUNT && (strlen(report_by_name(found)) != length ||
                                             memcmp(report_by_name(found), at, length) != 0))
            found++;
        if (found == ANALYSIS_BY_COUNT)
            return false;
        *by |= 1U << found;
        at += length;
        if (!*at)
            return true;
    }
}

static bool take_output(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->output = value;
    return true;
}

static bool take_device(void *arguments, const char *value)
{
    uint64_t device;
    if (!units_parse_count(value, 0, 4095, &device))
        return false;
    ((struct arguments *)arguments)->device = (int)device;
    return true;
}

static bool take_moment(void *arguments, const char *value)
{
    return report_moment_parse(value, &((struct arguments *)arguments)->options.moment);
}

static bool take_by(void *arguments, const char *value)
{
    return parse_by(value, &((struct arguments *)arguments)->options.by);
}

static bool take_rows(void *arguments, const char *value)
{
    uint64_t rows;
    if (!units_parse_count(value, 1, 1000000, &rows))
        return false;
    ((struct arguments *)arguments)->options.rows = (size_t)rows;
    return true;
}

static bool take_depth(void *arguments, const char *value)
{
    uint64_t depth;
    if (!units_parse_count(value, 1, 100, &depth))
        return false;
    ((struct arguments *)arguments)->rules.folding.depth = (unsigned)depth;
    return true;
}

static bool take_fold(void *arguments, const char *value)
{
    struct arguments *given = arguments;
    if (!*value || given->rules.folding.fold_count == RULES)
        return false;
    given->folds[given->rules.folding.fold_count++] = value;
    return true;
}

static bool take_category(void *arguments, const char *value)
{
    struct arguments *given = arguments;
    const char *text = strchr(value, '=');
    enum category category =
        text ? category_of_name(value, (size_t)(text - value)) : CATEGORY_COUNT;
    if (category == CATEGORY_COUNT || !text[1] || given->rules.category_count == RULES)
        return false;
    given->categories[given->rules.category_count++] = (struct category_rule){category, text + 1};
    return true;
}

static bool take_fits(void *arguments, const char *value)
{
    return units_parse_memory(value, &((struct arguments *)arguments)->fits.device);
}

static bool take_outside(void *arguments, const char *value)
{
    struct fits_question *fits = &((struct arguments *)arguments)->fits;
    fits->outside_given = units_parse_bytes(value, &fits->outside);
    return fits->outside_given;
}

#define DIFF_FIRST 6 /* `tarn diff` has the options from there on */
static const struct command_option options[] = {
    {.name = "fits", .wants = UNITS_WANTS_MEMORY, .take = take_fits},
    {.name = "outside", .wants = "a size, as 600M", .take = take_outside},
    {.name = "least", .flag = offsetof(struct arguments, least)},
    {.name = "no-what-if", .flag = offsetof(struct arguments, no_what_if)},
    {.name = "output", .letter = 'o', .wants = "a path", .take = take_output},
    {.name = "text", .flag = offsetof(struct arguments, text)},
    {.name = "json", .flag = offsetof(struct arguments, json)},
    {.name = "device", .wants = "a number from 0 to 4095", .take = take_device},
    {.name = "at",
     .wants = "peak, peak-reserved, end, oom, a time as 1.5s or a number of events",
     .take = take_moment},
    {.name = "by",
     .wants = "some of tag, tag_first_part, category, call_site, module, stream, pool, thread with "
              "commas",
     .take = take_by},
    {.name = "top", .wants = "a number from 1 to 1000000", .take = take_rows},
    {.name = "depth", .wants = "a number from 1 to 100", .take = take_depth},
    {.name = "fold", .wants = "part of a name, 64 times at most", .take = take_fold},
    {.name = "category",
     .wants = "weights, gradients, optimizer, activations, caches, workspaces or temporaries, "
              "\"=\" and part of a name, "
              "64 times at most",
     .take = take_category},
    {.name = NULL},
};

static int parse(const struct command *command, const struct command_option *own, int argc,
                 char **argv, struct arguments *arguments)
{
    *arguments = (struct arguments){.device = -1, .rules.folding.depth = 1};
    arguments->rules.folding.folds = arguments->folds;
    arguments->rules.categories = arguments->categories;
    int status = command_parse(command, own, arguments, argc, argv);
    if (!arguments->options.rows)
        arguments->options.rows = arguments->json ? 50 : 8;
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col;
    arguments->options.width = known ? size.ws_col < 60    ? 60
                                       : size.ws_col > 160 ? 160
                                                           : size.ws_col
                                     : 100;
    arguments->options.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    return status;
}

static ssize_t to_sink(void *sink, const char *text, size_t size)
{
    sink_write(sink, text, size);
    return ((const struct sink *)sink)->failed ? 0 : (ssize_t)size;
}

static const struct sink *unfinished; /* a page that takes its name at the end */

static void leave_nothing(int number)
{
    (void)unlink(unfinished->temporary);
    (void)raise(number);
}

/* From now on a signal that ends the program removes the file first, since large pages take
 * seconds. A signal that is ignored stays so. */
static void remove_at_signals(const struct sink *sink)
{
    static const int ends[] = {SIGHUP, SIGINT, SIGTERM};
    const struct sigaction leaves = {.sa_handler = leave_nothing, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    unfinished = sink;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!sigaction(ends[i], NULL, &before) && before.sa_handler != SIG_IGN)
            (void)sigaction(ends[i], &leaves, NULL);
}

/* Writes the page to a file that is there whole or not at all. */
static bool write_file(const char *path, const struct report_file *files, size_t count,
                       const char *made_by)
{
    static struct sink sink; /* a signal handler reads it */
    tarn_status status = sink_to_file(&sink, path, 0666);
    bool done = false;
    if (!status) {
        remove_at_signals(&sink);
        FILE *out = fopencookie(&sink, "w", (cookie_io_functions_t){.write = to_sink});
        done = out && report_page_write(out, files, count, made_by);
        done = out && !fclose(out) && done;
        status = sink_end(&sink, !done);
    }
    if (status)
        fprintf(stderr, "tarn report: %s\n", tarn_last_error());
    else if (!done)
        fprintf(stderr, "tarn report: %s cannot be written: memory is short\n", path);
    return done && !status;
}

static bool write_page(const char *path, const struct report_file *files, size_t count,
                       const char *made_by)
{
    if (strcmp(path, "-") == 0) {
        if (report_page_write(stdout, files, count, made_by))
            return true;
        fputs("tarn report: the page could not be written\n", stderr);
        return false;
    }
    if (!write_file(path, files, count, made_by))
        return false;
    struct stat made;
    if (stat(path, &made) == 0 && made.st_size > PAGE_LARGE)
        fprintf(stderr,
                "tarn report: %s has %s: a browser may refuse it; --text and --json have no such "
                "limit\n",
                path, units_bytes((uint64_t)made.st_size).text);
    return true;
}

/* Several files, or the devices of one, beside each other. */
static bool show_ranks(const struct arguments *arguments, const struct report_file *files,
                       size_t count)
{
    struct ranks ranks;
    if (!ranks_make(files, count, &ranks))
        return false;
    bool done = arguments->json ? ranks_json_write(stdout, &ranks, &arguments->options)
                                : ranks_text_write(stdout, &ranks, &arguments->options);
    ranks_finish(&ranks);
    return done;
}

/* As text or JSON. Two files that are no ranks are compared in either. */
static bool show(const struct arguments *arguments, const struct report_file *files, size_t count)
{
    const struct report_options *how = &arguments->options;
    if (count == 2 && !ranks_are_compared(files, count))
        return arguments->json ? report_diff_json(stdout, &files[0], &files[1], how)
                               : report_diff_text(stdout, &files[0], &files[1], how);
    if (arguments->json)
        return count > 1 ? show_ranks(arguments, files, count)
                         : report_json_write(stdout, &files[0], how);
    if (ranks_are_compared(files, count) &&
        (!show_ranks(arguments, files, count) || (count == 1 && putchar('\n') == EOF)))
        return false;
    return count > 1 || report_text_write(stdout, &files[0], how);
}

/* Says where the moment of an error is asked for, and there is none: the end is shown. */
static void say_no_error(const struct arguments *arguments, const char *command,
                         const struct report_file *file)
{
    for (size_t i = 0; arguments->options.moment.kind == REPORT_AT_OOM && i < file->count; i++)
        if (!file->analyses[i].oom_count)
            fprintf(stderr, "tarn %s: %s: device %d has no out-of-memory error; its end is shown\n",
                    command, file->path, file->analyses[i].device);
}

/* `--fits`: of one file, the verdict alone. */
static int report_fits(const struct arguments *arguments, const char *path)
{
    struct report_file file = {0};
    size_t count = 0;
    if (!report_file_open("report", path, arguments->device, &arguments->rules, &file))
        return COMMAND_FAILED;
    struct fits_device *devices = fits_find(&file, &arguments->fits, &count);
    bool done = devices;
    if (devices && arguments->json)
        done = fits_print_json(stdout, &arguments->fits, devices, count);
    else if (devices)
        fits_print(stdout, &file, &arguments->fits, devices, count);
    free(devices);
    report_file_finish(&file);
    return done ? COMMAND_OK : COMMAND_FAILED;
}

static int report(const struct arguments *arguments, const char *command, char **paths,
                  size_t count)
{
    struct report_file *files = calloc(count + 1, sizeof *files);
    struct report_rules rules = arguments->rules;
    bool done = files != NULL;
    if (!done)
        fprintf(stderr, "tarn %s: memory is short\n", command);
    rules.most_events = arguments->output ? THIN_EVENTS : 0; /* text and JSON have all */
    for (size_t i = 0; i < count && done; i++)
        done = report_file_open(command, paths[i], arguments->device, &rules, &files[i]);
    for (size_t i = 0; i < count && done; i++)
        files[i].name = report_name(paths, count, i);
    for (size_t i = 0; i < count && done; i++)
        say_no_error(arguments, command, &files[i]);
    for (size_t i = 0;
         i < count && done && !arguments->no_what_if && (arguments->output || count == 1); i++)
        report_what_if_run(&files[i], arguments->output, arguments->least);
    if (done && arguments->output) {
        done = write_page(arguments->output, files, count, arguments->made_by);
    } else if (done) {
        done = show(arguments, files, count);
        if (!done)
            fprintf(stderr, "tarn %s: the results could not be written\n", command);
    }
    for (size_t i = 0; i < count && files; i++)
        report_file_finish(&files[i]);
    free(files);
    return done ? COMMAND_OK : COMMAND_FAILED;
}

/* A word as a shell would take it, of two parts. */
static void put_word(FILE *out, const char *begin, size_t length, const char *rest)
{
    static const char plain_letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    bool plain = (length || *rest) && strspn(begin, plain_letters) >= length &&
                 !rest[strspn(rest, plain_letters)];
    fputs(plain ? " " : " '", out);
    for (size_t i = 0; i < length; i++)
        fputs(begin[i] == '\'' ? "'\\''" : (char[]){begin[i], 0}, out);
    for (; *rest; rest++)
        fputs(*rest == '\'' ? "'\\''" : (char[]){*rest, 0}, out);
    fputs(plain ? "" : "'", out);
}

/* A command line as a shell would take it, without the folders of its files, as far as their names
 * differ: a page is sent to others. Nobody knows what was standard input, so the reader has to name
 * it. */
static char *describe_command(int argc, char **argv, const struct arguments *arguments)
{
    char *text = NULL;
    size_t size, tail = arguments->output ? strlen(arguments->output) : 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fputs("tarn report", out);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *name = word;
        size_t length = strlen(word);
        if (i >= optind)
            name = report_name(argv + optind, (size_t)(argc - optind), (size_t)(i - optind));
        if (i >= optind && strcmp(word, "-") == 0)
            fputs(" - <FILE", out);
        else if (i >= optind)
            put_word(out, "./", *name == '-' ? 2 : 0, name);
        else if (arguments->output && length >= tail && word + length - tail == arguments->output)
            put_word(out, word, length - tail,
                     strcmp(arguments->output, "-") == 0 ? "-"
                                                         : report_base_name(arguments->output));
        else
            put_word(out, word, length, "");
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static int run_report(int argc, char **argv)
{
    struct arguments arguments;
    int status = parse(&report_command, options, argc, argv, &arguments);
    if (status != COMMAND_GO_ON)
        return status;
    int count = argc - optind;
    if (count < 1 && !arguments.output)
        return command_usage_error("report", "no file was named");
    if ((arguments.output != NULL) + arguments.text + arguments.json > 1)
        return command_usage_error(
            "report", "-o, --text and --json are different ways to show it: choose one");
    if (count > 1 && arguments.options.moment.kind != REPORT_AT_PEAK)
        return command_usage_error("report",
                                   "several files are compared at their peaks: leave out --at");
    if (arguments.fits.outside_given && !arguments.fits.device)
        return command_usage_error("report", "--outside goes with --fits");
    if (arguments.fits.device && (arguments.output || count != 1))
        return command_usage_error("report",
                                   "--fits prints its answer for one file; a page has a slider");
    if (arguments.fits.device &&
        (arguments.options.moment.kind != REPORT_AT_PEAK || arguments.options.by))
        return command_usage_error("report",
                                   "--fits shows no moment and no tables: leave out --at and --by");
    if (arguments.fits.device)
        return report_fits(&arguments, argv[optind]);
    if (arguments.output && !report_page_exists()) {
        fputs("tarn report: this tarn was built without D3, which draws the page. Install it "
              "(Debian: node-d3; "
              "`scripts/setup\n"
              "demo` does) and build again; --text and --json work without it.\n",
              stderr);
        return COMMAND_FAILED;
    }
    if (count < 1 && !report_viewer_exists()) {
        fputs("tarn report: this tarn was built without the viewer. Install what compiles it "
              "(Debian: clang, lld, "
              "wasi-libc and\n"
              "libclang-rt-14-dev-wasm32; `scripts/setup demo` does) and build again; with a FILE "
              "there is a page.\n",
              stderr);
        return COMMAND_FAILED;
    }
    if (arguments.output && strcmp(arguments.output, "-") != 0 &&
        !command_may_write_result("report", arguments.output))
        return COMMAND_FAILED;
    char *made_by = describe_command(argc, argv, &arguments);
    arguments.made_by = made_by ? made_by : "tarn report";
    status = report(&arguments, "report", argv + optind, (size_t)count);
    free(made_by);
    return status;
}

static int run_diff(int argc, char **argv)
{
    struct arguments arguments;
    int status = parse(&diff_command, options + DIFF_FIRST, argc, argv, &arguments);
    if (status != COMMAND_GO_ON)
        return status;
    if (argc - optind < 2)
        return command_usage_error("diff", "it compares two files or more");
    if (argc - optind > 2 && arguments.options.moment.kind != REPORT_AT_PEAK)
        return command_usage_error(
            "diff", "more than two files are compared at their peaks: leave out --at");
    if (argc - optind > 2)
        return report(&arguments, "diff", argv + optind, (size_t)(argc - optind));
    struct report_file before = {0}, after = {0};
    bool done =
        report_file_open("diff", argv[optind], arguments.device, &arguments.rules, &before) &&
        report_file_open("diff", argv[optind + 1], arguments.device, &arguments.rules, &after);
    if (done) {
        say_no_error(&arguments, "diff", &before);
        say_no_error(&arguments, "diff", &after);
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
