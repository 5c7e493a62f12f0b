/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "launch/driver_search.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child found out: whether, and a path or a reason. */
struct answer {
    char good; /* 'y' or 'n' */
    char text[PATH_MAX];
};

/* The driver behind a library that was opened: what a shim says, else the file itself. */
static void driver_of(void *library, const char *has, struct answer *answer)
{
    struct link_map *map = NULL;
    const char *(*says)(void) = NULL;
    void *symbol = dlsym(library, "tarn_run_driver");
    char real[PATH_MAX];
    memcpy(&says, &symbol, sizeof says);
    const char *path = says                                          ? says()
                       : dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name
                                                                     : "";
    answer->good = path[0] && realpath(path, real) && dlsym(library, has) ? 'y' : 'n';
    if (answer->good == 'y')
        snprintf(answer->text, sizeof answer->text, "%s", real);
    else
        snprintf(answer->text, sizeof answer->text, "it has no %s()", has);
}

/* Answers within a child, which then goes without a trace. */
static bool ask(const char *library, const char *has, struct answer *answer)
{
    int ends[2];
    *answer = (struct answer){.good = 'n', .text = "no process could be made"};
    if (pipe(ends))
        return false;
    pid_t child = fork();
    if (child == 0) {
        void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (opened)
            driver_of(opened, has, answer);
        else
            snprintf(answer->text, sizeof answer->text, "%s", dlerror());
        _exit(write(ends[1], answer, sizeof *answer) != sizeof *answer);
    }
    close(ends[1]);
    if (child > 0) {
        struct answer got;
        bool whole = read(ends[0], &got, sizeof got) == sizeof got;
        if (whole)
            *answer = got;
        else
            snprintf(answer->text, sizeof answer->text, "%.1024s ended the process that opened it",
                     library);
        /* Else nobody is to be waited for: SIGCHLD is ignored */
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    return answer->good == 'y';
}

bool driver_find(const char *library, const char *has, char *path, size_t size, char *why,
                 size_t why_size)
{
    struct answer answer;
    bool found = ask(library, has, &answer);
    if (!found)
        snprintf(why, why_size, "%s", answer.text);
    else if ((size_t)snprintf(path, size, "%s", answer.text) >= size) {
        snprintf(why, why_size, "the path of the driver is too long: %.200s...", answer.text);
        found = false;
    }
    return found;
}

bool driver_is_behind(const char *shim, const char *has, const char *driver, char *why,
                      size_t why_size)
{
    struct answer answer;
    if (!ask(shim, has, &answer)) {
        snprintf(why, why_size, "%s", answer.text);
        return false;
    }
    if (strcmp(answer.text, driver) == 0)
        return true;
    snprintf(why, why_size, "%.200s is in front of %.200s", shim, answer.text);
    return false;
}
