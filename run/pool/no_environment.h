/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Before each file of the tarn that is in the shim: the environment is the program's, whose own
 * tarn may read it. */
#ifndef TARN_RUN_NO_ENVIRONMENT_H
#define TARN_RUN_NO_ENVIRONMENT_H

#include <stdlib.h>

static inline char *tarn_run_environment(const char *name)
{
    (void)name;
    return NULL;
}
#define secure_getenv tarn_run_environment

#endif
