/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn top`: the command line, the choice of the process, and what is done on a terminal and
 * elsewhere. The screen itself is top_screen.c's. */
#include "command.h"
#include "top/fleet.h"
#include "top/top.h"
#include "top/top_screen.h"
#include "units.h"

#include <assert.h>
#include <langinfo.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 2000 /* for the first reading of a process that has just begun */

static const char help[] =
    "Usage: tarn top [OPTION]... [PROCESS]\n"
    "\n"
    "Shows what tarn has in a running process: memory by device, pool and stream, rates, handles. "
    "PROCESS is its\n"
    "process id, or the name that it publishes. Without PROCESS, all processes that publish are "
    "shown: for each "
    "process\n"
    "its tarn memory per device; for each device what these processes have besides tarn, what "
    "others have, and what "
    "is\n"
    "free. Pools that outlive their processes are shown too, if TARN_KEEP names their owner "
    "(`tarn keep`).\n"
    "\n"
    "A process publishes if it was started with TARN_LIVE=1 in its environment, or if it calls "
    "tarn_live_start(). A\n"
    "separate thread then writes a few readings per second. Only the same user and root can see "
    "them.\n"
    "\n"
    "On a terminal the screen is refreshed until the process ends or you press q. Elsewhere one "
    "reading is printed.\n"
    "Without PROCESS a key chooses the order: r reserved, a allocated, k peak, t rate, n name, p "
    "process, g age.\n"
    "\n"
    "Options:\n"
    "      --interval S      Seconds between two readings, 0.1 to 3600 (1); rates are averages "
    "over this time.\n"
    "                        Without PROCESS a list that is printed once has rates with --interval "
    "or --sort rate\n"
    "      --sort KEY        The order of processes: reserved (the default), allocated, peak, "
    "rate, name, process, "
    "age\n"
    "      --once            Print one reading and stop, on a terminal too\n"
    "      --json            Print JSON: an object for PROCESS, or an array of all processes that "
    "publish\n"
    "      --device N        Show only this device of PROCESS\n"
    "      --directory DIR   Look for pages in DIR; otherwise in TARN_LIVE_DIRECTORY or "
    "XDG_RUNTIME_DIR, in /dev/shm\n"
    "                        and in /run/user/ID\n"
    "  -h, --help            Show this help\n"
    "\n"
    "Exit status: 0 when a reading or the list was shown, 1 when there is none, 2 for an invalid "
    "command line. Bold\n"
    "type appears on a terminal only, and not with NO_COLOR set or TERM=dumb.\n"
    "\n"
    "Examples:\n"
    "  TARN_LIVE=1 TARN_LIVE_NAME=trainer ./train &\n"
    "  tarn top trainer\n"
    "      Watch it.\n"
    "  tarn top --once --interval 10 trainer\n"
    "      What it has, and what it did in the last ten seconds.\n"
    "  tarn top --sort peak\n"
    "      All processes, those with the highest peak first.\n"
    "  tarn top --json trainer | jq '.devices[].stats.reserved_bytes.all.peak'\n"
    "      One figure.\n";

struct arguments {
    const char *process, *directory;
    double interval; /* seconds */
    int device;      /* -1: all */
    enum fleet_order order;
    bool paced; /* --interval was given */
    bool once, json;
};

static bool take_interval(void *arguments, const char *value)
{
    struct arguments *own = arguments;
    own->paced = true;
    return units_parse_number(value, 0.1, 3600, &own->interval);
}

static bool take_device(void *arguments, const char *value)
{
    uint64_t device;
    if (!units_parse_count(value, 0, SURVEY_DEVICES - 1, &device))
        return false;
    ((struct arguments *)arguments)->device = (int)device;
    return true;
}

static bool take_order(void *arguments, const char *value)
{
    for (int i = 0; i < FLEET_ORDERS; i++) {
        if (strcmp(fleet_orders[i].name, value) != 0)
            continue;
        ((struct arguments *)arguments)->order = (enum fleet_order)i;
        return true;
    }
    return false;
}

static bool take_directory(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->directory = value;
    return command_is_folder(value);
}

static const struct command_option options[] = {
    {.name = "interval", .wants = "seconds from 0.1 to 3600", .take = take_interval},
    {.name = "sort",
     .wants = "reserved, allocated, peak, rate, name, process or age",
     .take = take_order},
    {.name = "once", .flag = offsetof(struct arguments, once)},
    {.name = "json", .flag = offsetof(struct arguments, json)},
    {.name = "device", .wants = "a number from 0 to 63", .take = take_device},
    {.name = "directory", .wants = "a folder that is there", .take = take_directory},
    {.name = NULL},
};
static_assert(SURVEY_DEVICES == 64, "what --device wants");

static int parse(int argc, char **argv, struct arguments *arguments)
{
    int status = command_parse(&top_command, options, arguments, argc, argv);
    if (status == COMMAND_GO_ON && optind + 1 < argc)
        return command_usage_error("top", "one process at a time, not \"%s\" as well",
                                   argv[optind + 1]);
    if (status == COMMAND_GO_ON && optind == argc && arguments->device >= 0)
        return command_usage_error(
            "top", "--device is a number of PROCESS: each process may number devices differently");
    arguments->process = optind < argc ? argv[optind] : NULL;
    return status;
}

/* Finding -------------------------------------------------------------------------------------- */

static const char *user_name(uid_t user, char *text, size_t size)
{
    const struct passwd *entry = getpwuid(user);
    if (entry)
        snprintf(text, size, "%s", entry->pw_name);
    else
        snprintf(text, size, "user %lu", (unsigned long)user);
    return text;
}

/* Says why a process of a number cannot be shown. */
static int no_page(long pid)
{
    char process[64], name[64], program[64] = "";
    struct stat info;
    snprintf(process, sizeof process, "/proc/%ld/comm", pid);
    FILE *file = fopen(process, "re");
    if (!file || stat(process, &info)) {
        fprintf(stderr, "tarn top: there is no process %ld\n", pid);
        if (file)
            fclose(file);
        return COMMAND_FAILED;
    }
    if (fgets(program, sizeof program, file))
        program[strcspn(program, "\n")] = '\0';
    fclose(file);
    if (info.st_uid != geteuid() && geteuid() != 0)
        fprintf(stderr,
                "tarn top: process %ld (%s) belongs to %s: only that user and root can see what it "
                "publishes\n",
                pid, program, user_name(info.st_uid, name, sizeof name));
    else
        fprintf(stderr,
                "tarn top: process %ld (%s) does not publish\n"
                "Start it with TARN_LIVE=1 in its environment, or have it call tarn_live_start(). "
                "If it does, its page is\n"
                "in another directory than those that were looked through: --directory names it.\n",
                pid, program);
    return COMMAND_FAILED;
}

static bool is_number(const char *text)
{
    return text[strspn(text, "0123456789")] == '\0';
}

static bool is_wanted(const struct top_entry *entry, const char *process)
{
    if (entry->foreign)
        return false;
    if (!is_number(process))
        return strcmp(entry->head.name, process) == 0;
    return entry->head.pid == strtoull(process, NULL, 10);
}

/* Opens the page of the process that is asked for. */
static int choose(const struct arguments *arguments, int *file)
{
    struct top_list list;
    struct top_why why = {""};
    const struct top_entry *found = NULL;
    const char *process = arguments->process;
    size_t count = 0;
    long pid = is_number(process) ? strtol(process, NULL, 10) : 0;
    if (!top_list_make(arguments->directory, pid, &list)) {
        fputs("tarn top: out of memory\n", stderr);
        top_list_finish(&list);
        return COMMAND_FAILED;
    }
    for (size_t i = 0; i < list.count; i++) {
        if (!is_wanted(&list.entries[i], process))
            continue;
        found = &list.entries[i];
        count++;
    }
    int status = COMMAND_FAILED;
    if (count > 1) {
        fprintf(stderr, "tarn top: %zu processes publish as %s; name one by its number:", count,
                process);
        for (size_t i = 0; i < list.count; i++)
            if (is_wanted(&list.entries[i], process))
                fprintf(stderr, " %llu", (unsigned long long)list.entries[i].head.pid);
        fputc('\n', stderr);
    } else if (count == 1) {
        enum top_result result = top_open(found->path, file, &why);
        status = result == TOP_OK ? COMMAND_OK : COMMAND_FAILED;
        if (status)
            fprintf(stderr, "tarn top: %s\n",
                    why.text[0] ? why.text : "the process has just ended");
    } else if (pid) {
        status = no_page(pid);
    } else {
        fprintf(stderr,
                "tarn top: no process publishes as \"%s\"; `tarn top` lists those that publish\n",
                process);
    }
    top_list_finish(&list);
    return status;
}

static struct top_look look_of(const struct arguments *arguments, bool terminal)
{
    return (struct top_look){
        .device = arguments->device,
        .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
        .colour = terminal && command_colours(),
    };
}

static void sleep_for(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* All processes at a moment, with the rates since `before`, which may be NULL. */
struct machine {
    struct top_list list;
    struct fleet fleet;
};

static bool machine_read(const struct arguments *arguments, const struct fleet *before,
                         struct machine *machine)
{
    return top_list_make(arguments->directory, 0, &machine->list) &&
           fleet_make(&machine->list, before, arguments->order, &machine->fleet);
}

static void machine_finish(struct machine *machine)
{
    fleet_finish(&machine->fleet);
    top_list_finish(&machine->list);
}

static bool list_print(const struct arguments *arguments, const struct machine *machine)
{
    struct top_frame frame = {0};
    struct top_look look = look_of(arguments, isatty(STDOUT_FILENO));
    const struct fleet *fleet = &machine->fleet;
    bool done = true;
    if (arguments->json)
        return top_json_list(stdout, fleet);
    if (fleet->share_count || fleet->kept_count) {
        fleet_frame(&frame, fleet, &look);
        done = !frame.failed && fwrite(frame.text, 1, frame.length, stdout) == frame.length;
    }
    if (done && machine->list.foreign)
        printf("%zu of other users\n", machine->list.foreign);
    if (done && machine->list.left_out)
        printf("%zu pages more were not looked at: there are too many, or they cannot be read\n",
               machine->list.left_out);
    top_frame_finish(&frame);
    return done;
}

/* What it is now. Rates need a second look. */
static int list_once(const struct arguments *arguments)
{
    struct machine machines[2] = {0};
    bool rates = arguments->paced || arguments->order == FLEET_BY_RATE;
    bool done = machine_read(arguments, NULL, &machines[0]);
    if (done && rates) {
        sleep_for(arguments->interval);
        done = machine_read(arguments, &machines[0].fleet, &machines[1]);
    }
    const struct machine *now = &machines[rates];
    bool any = now->fleet.share_count || now->fleet.kept_count;
    done = done && list_print(arguments, now);
    if (!done)
        fputs("tarn top: the list could not be made\n", stderr);
    else if (!any)
        fputs("tarn top: no process publishes; start one with TARN_LIVE=1 in its environment\n",
              stderr);
    machine_finish(&machines[1]);
    machine_finish(&machines[0]);
    return done && any ? COMMAND_OK : COMMAND_FAILED;
}

static int list(const struct arguments *arguments)
{
    if (arguments->once || arguments->json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return list_once(arguments);
    bool done = top_screen_fleet(arguments->directory, arguments->interval, arguments->order,
                                 look_of(arguments, true));
    return done ? COMMAND_OK : COMMAND_FAILED;
}

/* Showing -------------------------------------------------------------------------------------- */

/* Reads, and waits for a first reading where there is none yet. Says what went wrong. */
static bool read_first(int file, struct top_reading *reading)
{
    struct top_why why = {""};
    enum top_result result = TOP_NONE;
    for (int ms = 0; result == TOP_NONE && ms < WAIT_MS; ms += 200) {
        result = top_read(file, reading, &why);
        if (result == TOP_NONE)
            sleep_for(0.01);
    }
    if (result == TOP_OK)
        return true;
    fprintf(stderr, "tarn top: %s\n",
            result == TOP_ENDED ? "the process has ended"
            : why.text[0]       ? why.text
                                : "the process has published nothing yet; is it stopped?");
    return false;
}

static bool has_device(const struct survey *survey, int device)
{
    for (uint32_t i = 0; i < survey->device_count.here; i++)
        if (survey->devices[i].number == device)
            return true;
    return device < 0;
}

/* One reading, and the rates since the one before it. */
static int show_once(const struct arguments *arguments, int file, struct top_reading readings[3])
{
    struct top_look look = look_of(arguments, isatty(STDOUT_FILENO));
    struct top_frame frame = {0};
    sleep_for(arguments->interval);
    /* If not, the first one is the last */
    bool again = top_read_newer(file, &readings[0], &readings[1]);
    const struct top_reading *before = again ? &readings[0] : NULL, *now = &readings[again];
    bool done;
    if (arguments->json) {
        done = top_json_write(stdout, before, now, arguments->device);
    } else {
        top_frame_make(&frame, before, now, &look);
        done = !frame.failed && fwrite(frame.text, 1, frame.length, stdout) == frame.length;
    }
    top_frame_finish(&frame);
    if (!done)
        fputs("tarn top: the reading could not be written\n", stderr);
    if (!page_is_shown(file))
        fprintf(stderr, "tarn top: process %llu has ended; this was its last reading\n",
                (unsigned long long)now->head.pid);
    return done ? COMMAND_OK : COMMAND_FAILED;
}

static int show(const struct arguments *arguments, int file)
{
    struct top_reading *readings = calloc(3, sizeof *readings);
    int status = COMMAND_FAILED;
    if (!readings)
        fputs("tarn top: out of memory\n", stderr);
    else if (!read_first(file, &readings[0]))
        ;
    else if (!has_device(&readings[0].survey, arguments->device))
        fprintf(stderr, "tarn top: the process has no device %d; its first is 0, its last %u\n",
                arguments->device, readings[0].survey.device_count.here - 1);
    else if (arguments->once || arguments->json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        status = show_once(arguments, file, readings);
    else
        status = top_screen_run(file, readings, arguments->interval, look_of(arguments, true))
                     ? COMMAND_OK
                     : COMMAND_FAILED;
    free(readings);
    return status;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {.interval = 1, .device = -1};
    int file = -1, status = parse(argc, argv, &arguments);
    if (status != COMMAND_GO_ON)
        return status;
    if (!arguments.process)
        return list(&arguments);
    status = choose(&arguments, &file);
    if (status == COMMAND_OK)
        status = show(&arguments, file);
    if (file >= 0)
        close(file);
    return status;
}

const struct command top_command = {
    .name = "top",
    .summary = "Show what tarn has in running processes",
    .help = help,
    .run = run,
};
