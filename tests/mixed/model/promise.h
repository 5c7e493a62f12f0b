/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which statuses the headers promise of each function. */
#ifndef TESTS_MIXED_PROMISE_H
#define TESTS_MIXED_PROMISE_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/status.h>

#define BIT(status) (UINT64_C(1) << (status))

/* Reads the headers of TARN_SOURCE. Ends the process if they are missing. */
void promises_read(void);
/* The statuses that the header names for a function, as bits, including TARN_OK. False if no header
 * has the function. */
bool promised_statuses(const char *name, uint64_t *statuses);

#endif
