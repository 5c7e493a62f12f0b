/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of the CUDA driver share: the driver started on the simulated libcuda, that
 * library as a caller beside tarn would use it, and scenarios in a process of their own, whose
 * environment nobody has read yet. */
#ifndef TARN_TESTS_DRIVER_CUDA_TEST_H
#define TARN_TESTS_DRIVER_CUDA_TEST_H

#include "driver/cuda/cuda_abi.h"
#include "driver/loader.h"
#include "scenario_test.h"

#define CALL(cuda, hip) cuda                         /* the name of a call */
#define DESTROYED_STREAM "CUDA_ERROR_INVALID_HANDLE" /* what it says of one */

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

#endif
