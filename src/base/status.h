/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How an internal function fails: `return failed(TARN_ERROR_..., "what was tried, and why not", ...)`. */
#ifndef TARN_BASE_STATUS_H
#define TARN_BASE_STATUS_H

#include <tarn/status.h>

/* Makes the text this thread's last error. No lock, no allocation. */
void error_set(tarn_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
/* Puts "text: " in front of this thread's last error: the caller's part of a sentence. */
void error_within(tarn_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Both give the status back: macros, so that compilers and analysers see that it is not TARN_OK. `status` is a constant or a variable. */
#define failed(status, ...) (error_set((status), __VA_ARGS__), (status))
#define failed_within(status, ...) (error_within((status), __VA_ARGS__), (status))

/* What tarn_last_status() gives. */
void status_set_last(tarn_status status);

#endif
