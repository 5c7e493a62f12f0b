/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of the CUDA driver share: the driver started on the simulated libcuda, that library as a caller beside
 * tarn would use it, and scenarios in a process of their own, whose environment nobody has read yet. */
#ifndef TARN_TESTS_DRIVER_CUDA_TEST_H
#define TARN_TESTS_DRIVER_CUDA_TEST_H

#include "driver/cuda_abi.h"
#include "driver/loader.h"
#include "host_test.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The library as the program would use it: the same one that tarn has loaded. */
static inline void *their(const char *symbol)
{
    static const char *const sonames[] = {"libcuda.so.1", NULL};
    struct loaded library = {0};
    assert_int_equal(loader_open(sonames, &library, NULL, 0), TARN_OK);
    return loader_symbol(&library, symbol);
}

static inline cu_context current_context(void)
{
    cu_result (*get)(cu_context *) = NULL;
    cu_context context = NULL;
    loader_store(&get, their("cuCtxGetCurrent"));
    assert_int_equal(get(&context), CU_OK);
    return context;
}

static inline void set_context(cu_context context)
{
    cu_result (*set)(cu_context) = NULL;
    loader_store(&set, their("cuCtxSetCurrent"));
    assert_int_equal(set(context), CU_OK);
}

static inline bool has_context(int device)
{
    cu_result (*get)(cu_device, unsigned *, int *) = NULL;
    unsigned flags = 0;
    int active = -1;
    loader_store(&get, their("cuDevicePrimaryCtxGetState"));
    assert_int_equal(get(device, &flags, &active), CU_OK);
    return active != 0;
}

/* Runs this program again with a scenario's name as its argument and `variables` ("NAME=VALUE", NULL at the end) in its
 * environment. Gives its exit status; 128 and above for a signal. */
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
#define NEED(condition)                                                                                     \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, tarn_last_error()); \
            _exit(1);                                                                                       \
        }                                                                                                   \
    } while (0)

#endif
