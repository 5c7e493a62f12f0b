/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds out exactly whether two live blocks share a byte, for any number of threads. It uses no
 * lock and orders nothing, so that it hides no race from the thread sanitizer. */
#ifndef TESTS_SUPPORT_SHADOW_H
#define TESTS_SUPPORT_SHADOW_H

#include <stddef.h>

/* shadow_enter(): call it after a block was handed out. shadow_leave(): call it before the block is
 * given back. Fails the test if another block shares a unit of 512 bytes with [start, start +
 * size). */
void shadow_enter(const void *start, size_t size);
void shadow_leave(const void *start, size_t size);
/* Fails the test if any block is still entered. */
void shadow_is_empty(void);

#endif
