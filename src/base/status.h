/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How an internal function fails: `return fail(TARN_ERROR_..., "what was tried, and why not", ...)`. */
#ifndef TARN_BASE_STATUS_H
#define TARN_BASE_STATUS_H

#include <tarn/status.h>

/* Makes the text this thread's last error and gives `status` back. No lock, no allocation. */
tarn_status fail(tarn_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Puts "text: " in front of this thread's last error: the caller's part of a sentence. Gives `status` back. */
tarn_status fail_within(tarn_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* What tarn_last_status() gives. */
void status_set_last(tarn_status status);

#endif
