/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The callbacks that the headers have. A test makes tarn call one of them, and makes calls from
 * there. */
#ifndef TARN_TESTS_CALLBACKS_H
#define TARN_TESTS_CALLBACKS_H

#include <stdbool.h>
#include <stddef.h>

/* Demands that the list has all callbacks that the headers declare, except those that must not call
 * tarn. */
void callbacks_are_listed(void);

/* The name of the i-th callback; NULL behind the last. */
const char *callback_name(size_t i);

/* True if it needs debug mode, which the environment turns on. */
bool callback_is_debug(size_t i);

/* Makes tarn call it, after world_make(). In the first call it runs `calls`; callbacks that these
 * cause run nothing. */
void callback_cause(size_t i, void (*calls)(void));

#endif
