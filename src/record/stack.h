/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Walking the calling thread's stack. */
#ifndef TARN_RECORD_STACK_H
#define TARN_RECORD_STACK_H

#include <stdbool.h>

/* Whether that can be done here. Thread-safe, as is the walk. */
bool stack_can_be_walked(void);

/* Return addresses, innermost first, at most `room`; perhaps one of this function's own before
 * them. How many: 0 where it cannot be done. Some 1 us. */
int stack_walk(void **frames, int room);

#endif
