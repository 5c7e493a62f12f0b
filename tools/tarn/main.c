/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The program `tarn`: finds the subcommand and runs it. */
#include "command.h"
#include "plain_output.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <tarn/tarn.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &check_command,  &diff_command, &keep_command, &metrics_command, &plan_command, &replay_command,
    &report_command, &run_command,  &sim_command,  &top_command,     NULL};

static void help(FILE *out)
{
    fputs("Usage: tarn COMMAND [OPTION]... [ARGUMENT]...\n"
          "       tarn help COMMAND\n"
          "\n"
          "Memory pools and library handles for GPU programs: the command-line tools.\n"
          "\n"
          "Commands:\n",
          out);
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("  help       Show the help of a command\n"
          "\n"
          "Options:\n"
          "  -h, --help     Show this help\n"
          "  -V, --version  Show the version\n"
          "\n"
          "Exit status: 0 when all went well, 1 when something failed, 2 for an invalid command "
          "line.\n",
          out);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* How many letters must be changed, added or removed to turn one word into another. Words of more
 * than 31 letters are far from every other. */
static size_t distance(const char *from, const char *to)
{
    enum { MAX = 31 };
    size_t row[MAX + 1], length = strlen(to);
    if (length > MAX || strlen(from) > MAX)
        return MAX;
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 1; from[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t change = corner + (from[i - 1] != to[j - 1]);
            corner = row[j];
            size_t least = row[j - 1] < row[j] ? row[j - 1] + 1 : row[j] + 1;
            row[j] = change < least ? change : least;
        }
    }
    return row[length];
}

static int unknown(const char *name)
{
    const char *nearest = "help";
    size_t least = distance(name, nearest);
    for (size_t i = 0; commands[i]; i++) {
        size_t away = distance(name, commands[i]->name);
        if (away < least) {
            least = away;
            nearest = commands[i]->name;
        }
    }
    fprintf(stderr, "tarn: there is no command \"%s\"", name);
    /* a word of which half differs is not a typing error */
    if (least < 3 && 2 * least < strlen(name))
        fprintf(stderr, "; did you mean \"%s\"?", nearest);
    fputs("\nTry `tarn --help`.\n", stderr);
    return COMMAND_USAGE;
}

/* Flushes the output. What was written may still be in a buffer, and a full disk is a failure
 * too. */
static int finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    perror("tarn: standard output");
    return COMMAND_FAILED;
}

/* If a standard stream is closed, the next file that is opened would get its number, and messages
 * would be written into that file. A file that fails like a closed one takes its place. A program
 * that is run does not inherit it. */
static void occupy_streams(void)
{
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0)
            (void)!open("/dev/null", (file == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

static void do_nothing(int number)
{
    (void)number;
}

/* A write past the size that a file may have (ulimit -f) fails, as one on a full disk does, and
 * does not end the program, which could not remove the file then. A program that is run does not
 * inherit a handler, as it would inherit that the signal is ignored. */
static void survive_large_files(void)
{
    const struct sigaction caught = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
    struct sigaction before;
    if (sigaction(SIGXFSZ, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        (void)sigaction(SIGXFSZ, &caught, NULL);
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0;
}

int main(int argc, char **argv)
{
    occupy_streams();
    survive_large_files();
    setlocale(LC_CTYPE, "");
    plain_output_begin();
    if (argc < 2) {
        help(stderr);
        return COMMAND_USAGE;
    }
    const char *name = argv[1];
    bool asks = strcmp(name, "help") == 0;
    if (is_help(name) && (!asks || argc == 2 || is_help(argv[2]))) {
        help(stdout);
        return finish(COMMAND_OK);
    }
    if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0) {
        printf("tarn %s\n", tarn_version());
        return finish(COMMAND_OK);
    }
    if (asks) {
        const struct command *command = find(argv[2]);
        if (!command)
            return unknown(argv[2]);
        fputs(command->help, stdout);
        return finish(COMMAND_OK);
    }
    if (name[0] == '-') {
        fprintf(stderr, "tarn: there is no option %s\nTry `tarn --help`.\n", name);
        return COMMAND_USAGE;
    }
    const struct command *command = find(name);
    return command ? finish(command->run(argc - 1, argv + 1)) : unknown(name);
}
