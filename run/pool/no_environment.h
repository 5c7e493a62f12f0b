/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Included before each source file of the tarn that is in the shim. It hides the environment, which
 * is the program's: the program may use a tarn of its own, and the variables are meant for that. */
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
