/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How an internal function fails: `return failed(TARN_ERROR_..., "what was tried, and why not",
 * ...)`. */
#ifndef TARN_BASE_STATUS_H
#define TARN_BASE_STATUS_H

#include <tarn/core.h>

/* Sets this thread's last error. The thread's first error allocates the text, under an object
 * pool's lock (status.c). If there is no memory, a short text serves, and the next error tries
 * again. */
void error_set(tarn_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* The same, but puts "text: " in front of this thread's last error, which may be empty. */
void error_within(tarn_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Both return `status`. They are macros, so that compilers and analysers see that it is not
 * TARN_OK. `status` is a constant or a variable. */
#define failed(status, ...) (error_set((status), __VA_ARGS__), (status))
#define failed_within(status, ...) (error_within((status), __VA_ARGS__), (status))

/* An attempt whose failure another attempt may repair. Between begin and end, errors are set as
 * usual but logged as information only. An end with success restores the earlier error, so that a
 * call that succeeds leaves it as it was. */
#define ERROR_TEXT_BYTES 2048
struct error_before {
    char text[ERROR_TEXT_BYTES];
};
extern _Thread_local int error_attempts; /* attempts in progress in this thread */
void error_attempt_begin(struct error_before *before);
void error_attempt_end(const struct error_before *before, tarn_status status);

/* Sets what tarn_last_status() returns. */
void status_set_last(tarn_status status);

#endif
