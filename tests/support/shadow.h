/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whether two live blocks share a byte, asked exactly and by any number of threads: with no lock
 * and in no order, so that it hides no race from the thread sanitizer. */
#ifndef TESTS_SUPPORT_SHADOW_H
#define TESTS_SUPPORT_SHADOW_H

#include <stddef.h>

/* After a block was handed out, and before it is given back: [start, start + size). Fails the test
 * where another one shares a unit of 512 bytes with it. */
void shadow_enter(const void *start, size_t size);
void shadow_leave(const void *start, size_t size);
/* Fails the test if a block is still there. */
void shadow_is_empty(void);

#endif
