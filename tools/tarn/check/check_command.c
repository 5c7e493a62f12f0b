/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn check`: what tarn finds on this machine, and which of its promises hold here. */
#include "check.h"
#include "command.h"
#include "json_print.h"
#include "plain_output.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: tarn check [OPTION]...\n"
    "\n"
    "Shows the driver that tarn chooses on this machine and why, its devices, limits, settings and "
    "the vendors' libraries,\n"
    "and tries what tarn promises: each contract in a process of its own, which is ended where it "
    "takes too long. It takes\n"
    "at most 60 seconds. The last line says what works here, and what to do where something does "
    "not.\n"
    "\n"
    "The text has no names of users and hosts, no UUIDs and no paths of the user. Read it before "
    "you publish it.\n"
    "\n"
    "Options:\n"
    "      --json   Print one JSON object\n"
    "  -h, --help   Show this help\n"
    "\n"
    "Environment:\n"
    "  TARN_DRIVER         The driver to choose: auto (a GPU if one answers, otherwise the host\n"
    "                      device), cuda, hip or host\n"
    "  TARN_ALLOC_CONF     The settings of the memory layer\n"
    "  TARN_LIBRARY_PATH   Colon-separated directories that are searched for libraries first\n"
    "\n"
    "Exit status: 0 when all that can work here works, 1 when something failed or no device works, "
    "2 for an invalid\n"
    "command line.\n"
    "\n"
    "Examples:\n"
    "  tarn check\n"
    "      The text for a report of a bug.\n"
    "  tarn check --json | jq -r '.libraries[] | select(.usable) | .name'\n"
    "      The libraries whose handles can be used.\n";

static const char wrong_setting[] = "TARN_ERROR_CONFIGURATION: ";

enum { ALL_SECONDS = 58, INVENTORY_SECONDS = 20, LIBRARY_SECONDS = 15 };

struct progress {
    double until; /* when everything must have ended */
    int failed, late;
    char broken[512]; /* names of the contracts that failed */
    /* Names of the contracts that did not end in time, or for which no time was left. */
    char untried[512];
    const char *remedy; /* of the first one that failed */
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void show(const char *name)
{
    if (!plain_output_moves())
        return;
    plain_output_move("\r\033[K");
    fprintf(stderr, "%s%s", name, *name ? " ..." : "");
}

static void add_name(char *names, size_t size, const char *name)
{
    size_t used = strlen(names);
    snprintf(names + used, size - used, "%s%s", used ? ", " : "", name);
}

/* Runs one contract and adds it to the list. */
static bool add(json_t *list, struct progress *progress, const char *name, const char *promise,
                json_t *(*function)(const void *), const void *argument, double limit,
                const char *remedy)
{
    char why[256] = "no time was left";
    double start = child_clock(), left = progress->until - start;
    json_t *answer = NULL;
    bool late = left < 1;
    show(name);
    if (!late)
        answer =
            child_answer(function, argument, left < limit ? left : limit, why, sizeof why, &late);
    if (!answer)
        answer = json_pack("{s:s, s:s}", "state", late ? "no time" : "failed", "text", why);
    if (!answer || json_object_set_new(answer, "name", json_string(name)) ||
        json_object_set_new(answer, "promise", json_string(promise)) ||
        json_object_set_new(answer, "seconds", json_real(child_clock() - start)))
        return false;
    if (strcmp(text_of(answer, "state"), "failed") == 0) {
        if (strncmp(text_of(answer, "text"), wrong_setting, strlen(wrong_setting)) == 0)
            remedy = "correct the setting that its line names";
        add_name(progress->broken, sizeof progress->broken, name);
        progress->remedy = progress->failed++ ? progress->remedy : remedy;
    } else if (late) {
        add_name(progress->untried, sizeof progress->untried, name);
        progress->late++;
    }
    return json_array_append_new(list, answer) == 0;
}

static bool run_contracts(json_t *report, struct progress *progress)
{
    json_t *list = json_array();
    const json_t *libraries = json_object_get(report, "libraries");
    bool done = list != NULL;
    if (!*text_of(json_object_get(report, "settings"), "error"))
        unsetenv("TARN_DEBUG"); /* which holds freed blocks back; the inventory has read it */
    for (const struct contract *at = contracts; at->name && done; at++)
        done = add(list, progress, at->name, at->promise, contract_run, at, at->limit, at->remedy);
    for (size_t i = 0; i < json_array_size(libraries) && done; i++) {
        const json_t *library = json_array_get(libraries, i);
        const char *name = text_of(library, "name");
        if (json_is_true(json_object_get(library, "usable")))
            done = add(list, progress, name, "a handle for a stream", contract_library, name,
                       LIBRARY_SECONDS,
                       "use the version of the library that belongs to the driver, and see that "
                       "the device has memory left");
    }
    show("");
    return json_object_set_new(report, "contracts", list) == 0 && done;
}

static bool any_device(const json_t *report)
{
    const json_t *devices = json_object_get(report, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++)
        if (json_is_true(json_object_get(json_array_get(devices, i), "works")))
            return true;
    return false;
}

/* Adds the last line. True if all that applies here works. */
static bool judge(json_t *report, const struct progress *progress)
{
    char line[1600];
    const char *driver = text_of(report, "driver"), *remedy = "see docs/drivers.md", *why = NULL;
    const char *settings = text_of(json_object_get(report, "settings"), "error");
    bool host = strcmp(driver, "host") == 0, good = false;
    if (!*driver || (host && strcmp(text_of(report, "reason"), "host: asked for") != 0))
        why = surroundings_no_gpu(json_object_get(report, "machine"), &remedy);
    if (*settings) {
        snprintf(line, sizeof line, "Nothing works: a setting is wrong. Correct it: %s.", settings);
    } else if (!any_device(report)) {
        snprintf(line, sizeof line, "Nothing works: no device answers%s%s. To do: %s.",
                 why ? ", because " : "", why ? why : "", remedy);
    } else if (progress->failed) {
        snprintf(line, sizeof line, "%d failed here: %s. To do: %s.%s%s%s", progress->failed,
                 progress->broken, progress->remedy,
                 progress->late ? " There was no time for " : "", progress->untried,
                 progress->late ? "." : "");
    } else if (progress->late) {
        snprintf(line, sizeof line,
                 "The time was not enough for %d: %s. To do: run it again while the machine is "
                 "idle; if it takes as long then, the driver hangs.",
                 progress->late, progress->untried);
    } else if (host) {
        good = true;
        snprintf(line, sizeof line,
                 why ? "No GPU was found: %s. To do: %s. All of tarn works on its host device."
                     : "All of tarn works on its host device, which uses no GPU.",
                 why, remedy);
    } else {
        good = true;
        snprintf(line, sizeof line, "All that can work here works, on %s.", driver);
    }
    return json_object_set_new(report, "verdict", check_json_text(line)) == 0 && good;
}

/* What a child finds of the driver; empty where it found nothing. */
static json_t *find(void)
{
    char why[256];
    bool late;
    json_t *report = child_answer(inventory, NULL, INVENTORY_SECONDS, why, sizeof why, &late);
    if (report)
        return report;
    return json_pack("{s:n, s:o, s:{s:n, s:n, s:[]}, s:[], s:[]}", "driver", "reason",
                     json_sprintf("the driver: %s", why), "settings", "text", "error",
                     "without_effect", "devices", "libraries");
}

static void hide(json_t *report)
{
    char host[256] = "";
    const struct passwd *entry = getpwuid(getuid());
    const char *home = getenv("HOME");
    (void)gethostname(host, sizeof host - 1);
    redact(report, &(struct secrets){.home = home && strlen(home) > 1 ? home : NULL,
                                     .user = entry ? entry->pw_name : getenv("USER"),
                                     .host = host});
}

static int check(bool json)
{
    struct progress progress = {.until = child_clock() + ALL_SECONDS};
    show("driver");
    json_t *report = find();
    bool done = report && !json_object_set_new(report, "version", json_string(tarn_version())) &&
                !json_object_set_new(report, "machine", surroundings("")) &&
                run_contracts(report, &progress);
    bool good = done && judge(report, &progress);
    if (done) {
        hide(report);
        done = json ? json_print(report, stdout) : check_text(report, stdout);
    }
    if (!done)
        fputs("tarn check: out of memory, or the results could not be written\n", stderr);
    json_decref(report);
    return done && good ? COMMAND_OK : COMMAND_FAILED;
}

static int run(int argc, char **argv)
{
    static const struct command_option options[] = {{.name = "json"}, {.name = NULL}};
    bool json = false; /* all there is to say */
    int status = command_parse(&check_command, options, &json, argc, argv);
    if (status != COMMAND_GO_ON)
        return status;
    if (optind < argc)
        return command_usage_error("check", "takes options only, not \"%s\"", argv[optind]);
    return check(json);
}

const struct command check_command = {
    .name = "check",
    .summary = "Show what tarn finds on this machine, and try what it promises",
    .help = help,
    .run = run,
};
