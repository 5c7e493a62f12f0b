/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What subcommands share: how they complain about their command line. */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int command_usage_error(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "tarn %s: ", name);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry `tarn help %s`.\n", name);
    return COMMAND_USAGE;
}

int command_option_error(const char *name, int given, char *const *argv, const struct option *options)
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
    const char *text = argv[optind - 1]; /* "--" and the name, or the beginning of one, and perhaps "=" and a value */
    int length = (int)strcspn(text, "=");
    for (const struct option *option = options; option->name; option++)
        if (strncmp(option->name, text + 2, (size_t)length - 2) == 0) /* it begins so: then another one does as well */
            return command_usage_error(name, "the option %.*s may mean more than one", length, text);
    return command_usage_error(name, "there is no option %.*s", length, text);
}

bool command_may_write(const char *name, const char *path)
{
    struct stat before;
    if (stat(path, &before) || S_ISREG(before.st_mode))
        return true;
    fprintf(stderr, "tarn %s: %s cannot be written: it is there, and is no regular file\n", name, path);
    return false;
}
