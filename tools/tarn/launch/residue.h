/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What no hook sees: contexts, modules, local memory. NVML says what a process has on a device;
 * less what its book has. NVML is asked from here and never from within the program. */
#ifndef TOOLS_RESIDUE_H
#define TOOLS_RESIDUE_H

#include "launch/books.h"

/* Opens NVML, which takes a while, before a process waits for the first look. */
void residue_prepare(void);

/* Samples every process that lives, into the list and, for its limit, into its book; with `asking`,
 * only devices on which a process waits for the first look. */
void residue_sample(struct books *books, bool asking);

/* Bytes that a device has in use, by whomever; UINT64_MAX where nobody says. */
uint64_t residue_device_used(const struct book *book, const struct book_device *device);

#endif
