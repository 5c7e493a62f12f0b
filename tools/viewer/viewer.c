/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The analysis of `tarn report` for a page that reads snapshots itself: a program of WebAssembly
 * whose arguments are the names of files. It writes the data of a page (report_data.h) to standard
 * output, or an error to standard error.
 *
 * The page's script (page/analyse.js) provides its system calls. The files are already open, in the
 * order of their names, with the numbers after the standard streams. */
#include "analysis/report/report.h"
#include "analysis/report/report_data.h"
#include "input/once.h"
#include "input/thin.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_FILE 3 /* descriptor */
#define BUFFER ((size_t)1 << 20)

static char **names;

bool once_hold(const char *path, char *error, size_t size)
{
    (void)path, (void)error, (void)size;
    return true;
}

int once_open(const char *path)
{
    int file = 0;
    while (names[file] != path)
        file++;
    (void)lseek(FIRST_FILE + file, 0, SEEK_SET);
    return FIRST_FILE + file;
}

int main(int argc, char **argv)
{
    static const struct report_rules rules = {.folding.depth = 1, .most_events = THIN_EVENTS};
    size_t count = argc > 1 ? (size_t)argc - 1 : 0;
    struct report_file *files = calloc(count + 1, sizeof *files);
    static char buffer[BUFFER];
    bool done = files && setvbuf(stdout, buffer, _IOFBF, BUFFER) == 0;
    names = argv + 1;
    for (size_t i = 0; done && i < count; i++)
        done = report_file_open("report", names[i], -1, &rules, &files[i]);
    for (size_t i = 0; done && i < count; i++)
        report_what_if_run(&files[i], true, false);
    done = done && report_data_write(stdout, files, count) && fflush(stdout) == 0;
    return done ? 0 : 1; /* the page discards all of its memory */
}
