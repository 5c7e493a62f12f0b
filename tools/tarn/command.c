/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What subcommands share: how they read their command line, and complain about it. */
#include "command.h"
#include "base/file.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int command_usage_error(const char *name, const char *format, ...)
{
    va_list arguments;
    char text[2048];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "tarn %s: %s", name, text);
    fprintf(stderr, "\nTry `tarn help %s`.\n", name);
    return COMMAND_USAGE;
}

/* Reports an option for which getopt_long() returned '?' or ':'. */
static int option_error(const char *name, int given, char *const *argv,
                        const struct option *options)
{
    if (given == ':') {
        for (const struct option *option = options; option->name; option++)
            if (option->val == optopt)
                return command_usage_error(name, "the option --%s needs a value", option->name);
        return command_usage_error(name, "the option -%c needs a value", optopt);
    }
    for (const struct option *option = options; option->name; option++)
        if (optopt && option->val == optopt && !option->has_arg)
            return command_usage_error(name, "the option --%s takes no value", option->name);
    if (optopt)
        return command_usage_error(name, "there is no option -%c", optopt);
    const char *text =
        argv[optind - 1]; /* "--" and the name or its beginning, perhaps with "=" and a value */
    int length = (int)strcspn(text, "=");
    for (const struct option *option = options; option->name; option++)
        /* An option that begins like this shows that the name is ambiguous */
        if (strncmp(option->name, text + 2, (size_t)length - 2) == 0)
            return command_usage_error(name, "the option %.*s may mean more than one", length,
                                       text);
    return command_usage_error(name, "there is no option %.*s", length, text);
}

/* Takes an option that getopt_long() found. Returns COMMAND_GO_ON or COMMAND_USAGE. */
static int take(const struct command *command, const struct command_option *option, void *arguments)
{
    if (!option->wants)
        *(bool *)((char *)arguments + option->flag) = true;
    else if (!option->take(arguments, optarg))
        return command_usage_error(command->name, "--%s wants %s, not \"%s\"", option->name,
                                   option->wants, optarg);
    return COMMAND_GO_ON;
}

/* `letters_begin` is for getopt_long(): "+" if options end at the first operand, and ":" so that it
 * prints nothing itself. */
static int parse(const struct command *command, const struct command_option *options,
                 void *arguments, int argc, char **argv, const char *letters_begin)
{
    enum { HELP = 'h', FIRST = 256 };
    struct option names[COMMAND_OPTIONS_MOST + 2] = {{"help", no_argument, NULL, HELP}};
    char letters[2 * COMMAND_OPTIONS_MOST + 8];
    int found, status = COMMAND_GO_ON;
    int length = snprintf(letters, sizeof letters, "%.4sh", letters_begin);
    for (int i = 0; options[i].name; i++) {
        int has_value = !options[i].wants     ? no_argument
                        : options[i].optional ? optional_argument
                                              : required_argument;
        names[i + 1] = (struct option){options[i].name, has_value, NULL,
                                       options[i].letter ? options[i].letter : FIRST + i};
        if (options[i].letter)
            length += snprintf(letters + length, sizeof letters - (size_t)length, "%c%s",
                               options[i].letter, options[i].wants ? ":" : "");
    }
    while (status == COMMAND_GO_ON &&
           (found = getopt_long(argc, argv, letters, names, NULL)) != -1) {
        if (found == HELP)
            return fputs(command->help, stdout) == EOF ? COMMAND_FAILED : COMMAND_OK;
        if (found == '?' || found == ':')
            return option_error(command->name, found, argv, names);
        const struct command_option *option = options;
        while (found < FIRST && option->letter != found)
            option++;
        status = take(command, found < FIRST ? option : &options[found - FIRST], arguments);
    }
    return status;
}

int command_parse(const struct command *command, const struct command_option *options,
                  void *arguments, int argc, char **argv)
{
    return parse(command, options, arguments, argc, argv, ":");
}

int command_parse_front(const struct command *command, const struct command_option *options,
                        void *arguments, int argc, char **argv)
{
    return parse(command, options, arguments, argc, argv, "+:");
}

bool command_colours(void)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && terminal && *terminal &&
           strcmp(terminal, "dumb") != 0;
}

bool command_may_write(const char *name, const char *path)
{
    if (file_may_be_replaced(path))
        return true;
    fprintf(stderr, "tarn %s: %s cannot be written: it exists and is not a regular file\n", name,
            path);
    return false;
}

/* A pickle, or what zstd or gzip has compressed. */
static bool is_recording(const char *path)
{
    unsigned char first[4] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, first, sizeof first);
    if (file >= 0)
        close(file);
    return length == (ssize_t)sizeof first &&
           (first[0] == 0x80 || (first[0] == 0x1f && first[1] == 0x8b) ||
            memcmp(first, "\x28\xb5\x2f\xfd", sizeof first) == 0);
}

bool command_may_write_result(const char *name, const char *path)
{
    if (!command_may_write(name, path))
        return false;
    if (!is_recording(path))
        return true;
    fprintf(stderr, "tarn %s: %s cannot be written: a recording is there, and would be lost\n",
            name, path);
    return false;
}

bool command_is_folder(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

bool command_can_be_listed(const char *path)
{
    return path && path[0] == '/' && !strpbrk(path, ":;$");
}

bool command_folder(const char *beside, const char *installed, char *path, size_t size)
{
    const char *const places[] = {beside, installed};
    char self[PATH_MAX], place[2 * PATH_MAX], real[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return false;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (places[i][0] == '/')
            snprintf(place, sizeof place, "%s", places[i]);
        else
            snprintf(place, sizeof place, "%s/%s", self, places[i]);
        if (command_is_folder(place) && realpath(place, real))
            return (size_t)snprintf(path, size, "%s", real) < size;
    }
    return false;
}
