/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn sim`: runs a program on the simulated vendor libraries. It finds their folder from its own
 * place, puts the folder first on the loader's path, sets the variables that the libraries read,
 * and becomes the program. */
#include "command.h"
#include "sim_path.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: tarn sim [OPTION]... [--] COMMAND [ARGUMENT]...\n"
    "       tarn sim --path\n"
    "\n"
    "Runs COMMAND on simulated GPUs: instead of the vendors' libraries it opens tarn's, which use "
    "a device that is\n"
    "simulated in host memory. Memory, streams, events, copies and graph captures work; kernels do "
    "not run, and\n"
    "NVIDIA's own libraries (the CUDA runtime among them) do not run on a simulated driver.\n"
    "\n"
    "Options:\n"
    "      --devices N              The number of devices (1)\n"
    "      --device-memory SIZE     Memory of each device, such as 80G, 512MiB or in bytes (16G)\n"
    "      --card NAME              The machine, with what is different there: orin, thor, gb10, "
    "wsl2, mig, mps, gh200, va39\n"
    "                               or apu (a discrete GPU that lacks nothing)\n"
    "      --cuda-version VERSION   The CUDA version that the driver reports, such as 11.4 (13.0)\n"
    "      --fail CALL:N:CODE       Make the N-th call of CALL fail with the vendor's CODE; with a "
    "+ after CODE, "
    "every\n"
    "                               later call too. `any` means every call. May be repeated\n"
    "      --slow CALL:MS           Make every call of CALL take MS milliseconds longer. May be "
    "repeated\n"
    "      --driver NAME            The driver for tarn in COMMAND, unless TARN_DRIVER is set: "
    "auto, cuda, hip or "
    "host\n"
    "                               (auto; with the card apu hip)\n"
    "      --path                   Print the folder of the simulated libraries, and run nothing\n"
    "  -h, --help                   Show this help\n"
    "\n"
    "Exit status: that of COMMAND; 127 when it was not found, 126 when it could not be run, 1 when "
    "the simulated\n"
    "libraries are missing, 2 for an invalid command line.\n"
    "\n"
    "Examples:\n"
    "  tarn sim -- ./my-program\n"
    "      A program on a simulated GPU.\n"
    "  tarn sim --devices 4 --device-memory 1G -- ctest\n"
    "      A test suite on four small devices.\n"
    "  tarn sim --fail cuMemCreate:3:2 -- ./my-program\n"
    "      How it behaves when the third cuMemCreate finds no memory.\n"
    "  LD_LIBRARY_PATH=$(tarn sim --path) gdb ./my-program\n"
    "      The same folder, by hand.\n";

struct arguments {
    const char *driver, *card; /* NULL: not given */
    bool path;
    int status; /* COMMAND_OK, or COMMAND_FAILED if a variable could not be set */
};

/* Sets a variable, or adds to a list between commas. */
static int set_variable(const char *name, const char *value, bool add)
{
    const char *before = getenv(name);
    char *text = NULL;
    int failure;
    if (add && before && *before) {
        failure = asprintf(&text, "%s,%s", before, value) < 0;
        if (!failure)
            failure = setenv(name, text, 1);
        free(text);
    } else {
        failure = setenv(name, value, 1);
    }
    if (failure)
        fputs("tarn sim: out of memory\n", stderr);
    return failure ? COMMAND_FAILED : COMMAND_OK;
}

static int set_number(const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return set_variable(name, text, false);
}

/* Reads a number without a sign at `*at`, and moves `*at` behind it. */
static bool take_number(const char **at, unsigned long most, unsigned long *number)
{
    char *end = NULL;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *number = strtoul(*at, &end, 10);
    *at = end;
    return errno == 0 && *number <= most;
}

/* Reads a version: "11.4" becomes 11040. */
static bool parse_version(const char *text, uint64_t *version)
{
    unsigned long major = 0, minor = 0;
    if (!take_number(&text, 999, &major) || major == 0 || *text++ != '.' ||
        !take_number(&text, 99, &minor) || *text)
        return false;
    *version = 1000 * major + 10 * minor;
    return true;
}

/* True for a rule: "CALL:N:CODE", perhaps with "+", or "CALL:MS". */
static bool is_rule(const char *text, bool has_code)
{
    unsigned long first = 0, second = 0;
    size_t name = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    text += name;
    if (!name || name > 47 || *text++ != ':' || !take_number(&text, 1000000000, &first))
        return false;
    if (!has_code)
        return !*text;
    if (*text++ != ':' || !take_number(&text, 1000000000, &second) || !first || !second)
        return false;
    return !*text || strcmp(text, "+") == 0;
}

/* Keeps the status for the end of the command line. */
static bool set(void *arguments, int status)
{
    struct arguments *own = arguments;
    own->status = status == COMMAND_OK ? own->status : status;
    return true;
}

static bool take_devices(void *arguments, const char *value)
{
    uint64_t count;
    return units_parse_count(value, 1, 64, &count) &&
           set(arguments, set_number("TARN_HOST_DEVICES", count));
}

static bool take_memory(void *arguments, const char *value)
{
    uint64_t bytes;
    return units_parse_memory(value, &bytes) &&
           set(arguments, set_number("TARN_HOST_MEMORY", bytes & ~((UINT64_C(2) << 20) - 1)));
}

static bool take_version(void *arguments, const char *value)
{
    uint64_t version;
    return parse_version(value, &version) &&
           set(arguments, set_number("TARN_SIM_CUDA_VERSION", version));
}

static bool take_card(void *arguments, const char *value)
{
    static const char *const names[] = {"orin", "thor",  "gb10", "wsl2", "mig",
                                        "mps",  "gh200", "va39", "apu"};
    size_t i = 0;
    while (i < sizeof names / sizeof *names && strcmp(value, names[i]) != 0)
        i++;
    if (i == sizeof names / sizeof *names)
        return false;
    ((struct arguments *)arguments)->card = value;
    return true;
}

static bool take_failure(void *arguments, const char *value)
{
    return is_rule(value, true) && set(arguments, set_variable("TARN_SIM_FAIL", value, true));
}

static bool take_delay(void *arguments, const char *value)
{
    return is_rule(value, false) && set(arguments, set_variable("TARN_SIM_SLOW", value, true));
}

static bool take_driver(void *arguments, const char *value)
{
    static const char *const names[] = {"auto", "cuda", "hip", "host"};
    ((struct arguments *)arguments)->driver = value;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(value, names[i]) == 0)
            return true;
    return false;
}

static const struct command_option options[] = {
    {.name = "devices", .wants = "a number from 1 to 64", .take = take_devices},
    {.name = "device-memory", .wants = UNITS_WANTS_MEMORY, .take = take_memory},
    {.name = "card",
     .wants = "orin, thor, gb10, wsl2, mig, mps, gh200, va39 or apu",
     .take = take_card},
    {.name = "cuda-version", .wants = "a version as 11.4", .take = take_version},
    {.name = "fail", .wants = "CALL:N:CODE, as cuMemCreate:3:2", .take = take_failure},
    {.name = "slow", .wants = "CALL:MS, as cuMemCreate:100", .take = take_delay},
    {.name = "driver", .wants = "auto, cuda, hip or host", .take = take_driver},
    {.name = "path", .flag = offsetof(struct arguments, path)},
    {.name = NULL},
};

/* True if a library contains a text that ends with a 0, as the names of its calls do. */
static bool has_text(const char *path, const char *text, size_t length)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    bool found = false;
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        size_t size = (size_t)about.st_size;
        const char *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        for (const char *at = bytes, *end = bytes + size; bytes != MAP_FAILED && !found && at;) {
            at = memmem(at, (size_t)(end - at), text, length);
            found = at && at + length < end && !at[length] && at > bytes && !at[-1];
            at = at ? at + 1 : NULL;
        }
        if (bytes != MAP_FAILED)
            munmap((void *)(uintptr_t)bytes, size);
    }
    if (file >= 0)
        close(file);
    return found;
}

/* True if a simulated driver has the call that a rule begins with. */
static bool is_call(const char *folder, const char *rule)
{
    static const char *const drivers[] = {"libcuda.so.1", "libamdhip64.so.5", "libamdhip64.so.6",
                                          "libamdhip64.so.7"};
    size_t length = strcspn(rule, ":,");
    bool found = length == 3 && memcmp(rule, "any", 3) == 0;
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers && !found; i++) {
        char path[2 * PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, drivers[i]);
        found = has_text(path, rule, length);
    }
    return found;
}

/* The first rule of a variable, options included, whose call no simulated driver has; NULL:
 * none. */
static const char *rule_of_no_call(const char *folder, const char *variable)
{
    const char *rule = getenv(variable);
    while (rule && *rule && is_call(folder, rule)) {
        rule += strcspn(rule, ",");
        rule += *rule == ',';
    }
    return rule && *rule ? rule : NULL;
}

/* Sets what the card changes: for the simulated libraries, and what tarn sees of a machine that is
 * not the driver's. */
static int set_card(const char *card)
{
    if (strcmp(card, "va39") == 0 &&
        setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)1 << 39, RLIM_INFINITY}))
        fprintf(stderr, "tarn sim: addresses cannot be limited: %s\n", strerror(errno));
    int status =
        strcmp(card, "wsl2") == 0 ? set_variable("WSL_DISTRO_NAME", "tarn", false) : COMMAND_OK;
    return status == COMMAND_OK ? set_variable("TARN_SIM_CARD", card, false) : status;
}

/* Becomes the command. Returns a status only if that failed. */
static int become(char **command, const char *folder, const struct arguments *arguments)
{
    const char *before = getenv("LD_LIBRARY_PATH");
    char *path = NULL;
    if (asprintf(&path, "%s%s%s", folder, before && *before ? ":" : "", before ? before : "") < 0) {
        fputs("tarn sim: out of memory\n", stderr);
        return COMMAND_FAILED;
    }
    int status = set_variable("LD_LIBRARY_PATH", path, false);
    free(path);
    if (status == COMMAND_OK && arguments->card)
        status = set_card(arguments->card);
    /* The card apu is AMD's, of which no other driver has anything to show. */
    bool amd = arguments->card && strcmp(arguments->card, "apu") == 0;
    const char *driver = arguments->driver ? arguments->driver : amd ? "hip" : NULL;
    if (status == COMMAND_OK && driver && setenv("TARN_DRIVER", driver, 0))
        status = COMMAND_FAILED;
    if (status != COMMAND_OK)
        return status;
    execvp(command[0], command);
    fprintf(stderr, "tarn sim: %s: %s\n", command[0], strerror(errno));
    return errno == ENOENT ? 127 : 126;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {.status = COMMAND_OK};
    char folder[PATH_MAX];
    int status = command_parse_front(&sim_command, options, &arguments, argc, argv);
    if (status != COMMAND_GO_ON)
        return status;
    if (arguments.status != COMMAND_OK)
        return arguments.status;
    if (!arguments.path && optind >= argc)
        return command_usage_error("sim", "no command was named");
    if (!command_folder("sim", TARN_SIM_FROM_BIN, folder, sizeof folder)) {
        fputs("tarn sim: the simulated libraries are neither beside this program nor "
              "in " TARN_SIM_FROM_BIN "; a build with -DTARN_SIM=ON has them\n",
              stderr);
        return COMMAND_FAILED;
    }
    if (!command_can_be_listed(folder)) {
        fprintf(stderr, "tarn sim: %s: " COMMAND_NOT_LISTED "\n", folder);
        return COMMAND_FAILED;
    }
    const char *rule = rule_of_no_call(folder, "TARN_SIM_FAIL");
    rule = rule ? rule : rule_of_no_call(folder, "TARN_SIM_SLOW");
    if (rule)
        return command_usage_error("sim", "the simulated drivers have no call \"%.*s\"",
                                   (int)strcspn(rule, ":,"), rule);
    if (arguments.path) {
        puts(folder);
        return COMMAND_OK;
    }
    return become(argv + optind, folder, &arguments);
}

const struct command sim_command = {
    .name = "sim",
    .summary = "Run a program on simulated GPUs",
    .help = help,
    .run = run,
};
