/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Walking the calling thread's stack. */
#ifndef TARN_RECORD_STACK_H
#define TARN_RECORD_STACK_H

#include <stdbool.h>

/* Whether stacks can be walked in this process. Thread-safe, as is stack_walk(). */
bool stack_can_be_walked(void);

/* Writes at most `room` return addresses, innermost first; the first may be in this function.
 * Returns their number; 0: stacks cannot be walked. Takes about 1 us. */
int stack_walk(void **frames, int room);

#endif
