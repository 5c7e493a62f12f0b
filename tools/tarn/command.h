/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Subcommands of the program `tarn`. One file each; main.c has the table. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses of the program. COMMAND_GO_ON: none yet. */
enum { COMMAND_OK = 0, COMMAND_FAILED = 1, COMMAND_USAGE = 2, COMMAND_GO_ON = -1 };

struct command {
    const char *name, *summary; /* summary: one line for `tarn --help` */
    const char *help;           /* the whole text of `tarn help NAME` */
    /* Runs it; argv[0] is its name. Gives an exit status. */
    int (*run)(int argc, char **argv);
};

/* An option of a command. An option with a value says what the value must be, and takes it. An
 * option without one sets a bool. */
struct command_option {
    const char *name; /* NULL ends a table */
    char letter;      /* its short form, or 0 */
    /* what the value must be, such as "milliseconds from 0 to 10^9"; NULL: it has no value */
    const char *wants;
    /* Writes a value into the command's arguments. False if the value is not what the option
     * wants. */
    bool (*take)(void *arguments, const char *value);
    size_t flag;   /* offset of the bool in the arguments */
    bool optional; /* the value may be missing, and is NULL then; if given, it follows a "=" */
};

enum { COMMAND_OPTIONS_MOST = 20 };

extern const struct command check_command, diff_command, keep_command, metrics_command,
    plan_command, replay_command, report_command, run_command, sim_command, top_command;

/* Prints "tarn NAME: ..." and where to find help, on standard error. Returns COMMAND_USAGE. */
int command_usage_error(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads a command line into `arguments`, including --help and -h, and sets optind to the first
 * operand. Returns COMMAND_GO_ON, or the exit status after it has printed help or an error. */
int command_parse(const struct command *command, const struct command_option *options,
                  void *arguments, int argc, char **argv);
/* The same for a command whose first operand begins the command line of another program. */
int command_parse_front(const struct command *command, const struct command_option *options,
                        void *arguments, int argc, char **argv);

/* True if standard output is a terminal that shows colours and the user has not forbidden them
 * (NO_COLOR; TERM is dumb or not set). */
bool command_colours(void);

/* True if a file may be written to this path. False, after a message, if a device or a pipe is
 * there, which the file would replace. */
bool command_may_write(const char *name, const char *path);
/* The same for a result that is made of recordings. Also false, after a message, if there is a
 * recording: the user meant to read it, and it cannot be made again. */
bool command_may_write_result(const char *name, const char *path);

/* True if a folder is there. */
bool command_is_folder(const char *path);

/* True for an absolute path that the loader takes in a list, as LD_LIBRARY_PATH is. A list ends a
 * name at some characters, and replaces what begins with another. NULL is allowed. */
bool command_can_be_listed(const char *path);
#define COMMAND_NOT_LISTED \
    "the loader takes no path with \":\", \";\" or \"$\" in it: install tarn elsewhere"

/* Finds a folder of libraries that belong to the program: `beside` it in a build tree, otherwise
 * `installed`, which may be relative to the program. False if neither exists. */
bool command_folder(const char *beside, const char *installed, char *path, size_t size);

#endif
