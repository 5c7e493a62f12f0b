/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn prints on standard error: what TARN_LOG asks for (errors, info, all), and what another
 * variable asks for. Thread-safe. */
#ifndef TARN_BASE_LOG_H
#define TARN_BASE_LOG_H

enum log_level { LOG_NOTHING, LOG_ERRORS, LOG_INFO, LOG_ALL };

/* Prints one line, beginning with "tarn: ". */
void log_write(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* The same for TARN_DEBUG or TARN_STATS, whatever TARN_LOG says. */
void log_say(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

#endif
