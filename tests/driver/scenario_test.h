/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Scenarios in a process of their own, whose environment nobody has read yet. */
#ifndef TARN_TESTS_DRIVER_SCENARIO_TEST_H
#define TARN_TESTS_DRIVER_SCENARIO_TEST_H

#include "host_test.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs this program again with a scenario's name as its argument and `variables` ("NAME=VALUE",
 * NULL at the end) in its environment. Gives its exit status; 128 and above for a signal. */
static inline int run_scenario(const char *name, const char *const *variables)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (; *variables; variables++)
            putenv((char *)(uintptr_t)*variables);
        execl("/proc/self/exe", "scenario", name, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* In a scenario, where cmocka does not run. */
#define NEED(condition)                                                                 \
    do {                                                                                \
        if (!(condition)) {                                                             \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    tarn_last_error());                                                 \
            _exit(1);                                                                   \
        }                                                                               \
    } while (0)

#endif
