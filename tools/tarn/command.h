/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Subcommands of the program `tarn`. One file each; main.c has the table. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <getopt.h>
#include <stdbool.h>

/* Exit statuses of the program. */
enum { COMMAND_OK = 0, COMMAND_FAILED = 1, COMMAND_USAGE = 2 };

struct command {
    const char *name, *summary; /* summary: one line for `tarn --help` */
    const char *help;           /* the whole text of `tarn help NAME` */
    /* Runs it; argv[0] is its name. Gives an exit status. */
    int (*run)(int argc, char **argv);
};

extern const struct command diff_command, info_command, plan_command, replay_command, report_command, sim_command,
    top_command;

/* Prints "tarn NAME: ..." and where to find help, on standard error. Gives COMMAND_USAGE. */
int command_usage_error(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what getopt_long() gave '?' or ':' for; `options` begins with ':' so that it prints nothing itself. */
int command_option_error(const char *name, int given, char *const *argv, const struct option *options);

/* Whether a file may take this place: a device or a pipe that is there would give way to it. Else says so on standard error. */
bool command_may_write(const char *name, const char *path);

#endif
