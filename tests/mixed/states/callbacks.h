/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The callbacks that the headers have. A test has one of them called, and calls what it likes from
 * there. */
#ifndef TARN_TESTS_CALLBACKS_H
#define TARN_TESTS_CALLBACKS_H

#include <stdbool.h>
#include <stddef.h>

/* Demands that these are all that the headers declare, except those that must not call tarn. */
void callbacks_are_listed(void);

/* The name of the i-th; NULL behind the last. */
const char *callback_name(size_t i);

/* Whether it needs debug mode, which is chosen by the environment. */
bool callback_is_debug(size_t i);

/* Has it called, after world_make(). The first call makes `calls`; those that they cause make
 * none. */
void callback_cause(size_t i, void (*calls)(void));

#endif
