/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Subcommands of the program `tarn`. One file each; main.c has the table. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses of the program; and what command_parse() gives where there is none yet. */
enum { COMMAND_OK = 0, COMMAND_FAILED = 1, COMMAND_USAGE = 2, COMMAND_GO_ON = -1 };

struct command {
    const char *name, *summary; /* summary: one line for `tarn --help` */
    const char *help;           /* the whole text of `tarn help NAME` */
    /* Runs it; argv[0] is its name. Gives an exit status. */
    int (*run)(int argc, char **argv);
};

/* An option of a command. One with a value says what that must be, and takes it; one without sets a
 * bool. */
struct command_option {
    const char *name;  /* NULL ends a table */
    char letter;       /* its short form, or 0 */
    const char *wants; /* "milliseconds from 0 to 10^9"; NULL: it has no value */
    /* Writes a value into the command's arguments. False for one that is not what the option
     * wants. */
    bool (*take)(void *arguments, const char *value);
    size_t flag;   /* where the bool is in the arguments */
    bool optional; /* the value may be missing, and is NULL then; one that is there follows a "=" */
};

enum { COMMAND_OPTIONS_MOST = 20 };

extern const struct command check_command, diff_command, metrics_command, plan_command,
    replay_command, report_command, run_command, sim_command, top_command;

/* Prints "tarn NAME: ..." and where to find help, on standard error. Gives COMMAND_USAGE. */
int command_usage_error(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads a command line into `arguments`, --help and -h included, and leaves optind at the first
 * operand. Gives COMMAND_GO_ON; or the exit status, after help was printed or an error was said. */
int command_parse(const struct command *command, const struct command_option *options,
                  void *arguments, int argc, char **argv);
/* The same for a command whose first operand begins another's command line. */
int command_parse_front(const struct command *command, const struct command_option *options,
                        void *arguments, int argc, char **argv);

/* Whether standard output is a terminal that shows colours, and nobody has said no (NO_COLOR; TERM
 * is dumb or not there). */
bool command_colours(void);

/* Whether a file may take this place: a device or a pipe that is there would give way to it. Else
 * says so on standard error. */
bool command_may_write(const char *name, const char *path);

/* The folder of libraries that belong to the program: `beside` it in a build tree, else
 * `installed`, which may be relative to where the program is. False where there is neither. */
bool command_folder(const char *beside, const char *installed, char *path, size_t size);

#endif
