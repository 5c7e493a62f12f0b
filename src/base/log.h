/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the library says on standard error: nothing, unless TARN_LOG asks for it (errors, info, all). Thread-safe. */
#ifndef TARN_BASE_LOG_H
#define TARN_BASE_LOG_H

enum log_level { LOG_NOTHING, LOG_ERRORS, LOG_INFO, LOG_ALL };

/* One line, "tarn: " in front. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

#endif
