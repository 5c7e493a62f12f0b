/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Environment variables. */
#ifndef TARN_BASE_VARIABLE_H
#define TARN_BASE_VARIABLE_H

#include <stdlib.h>

/* A variable's text. NULL if it is not set or is empty, or if the program has more rights than its
 * user. */
static inline const char *variable_get(const char *name)
{
    const char *text = secure_getenv(name);
    return text && *text ? text : NULL;
}

#endif
