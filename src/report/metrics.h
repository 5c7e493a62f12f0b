/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A survey as OpenMetrics text. */
#ifndef TARN_REPORT_METRICS_H
#define TARN_REPORT_METRICS_H

#include "report/sink.h"
#include "report/survey.h"

#include <stdbool.h>
#include <stddef.h>

/* Prints a survey. */
void metrics_print(struct sink *sink, const struct survey *survey);

/* Writes it to a file, as tarn_metrics_write() does. */
tarn_status metrics_write(const char *path, const struct survey *survey);

#endif
