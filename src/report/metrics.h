/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A survey as OpenMetrics text. */
#ifndef TARN_REPORT_METRICS_H
#define TARN_REPORT_METRICS_H

#include "report/survey.h"

#include <stdbool.h>
#include <stddef.h>

/* Where the text goes: through a buffer, so that `take` is called seldom. */
struct sink {
    bool (*take)(void *argument, const char *text, size_t length);
    void *argument;
    bool broken; /* `take` answered false: nothing more is written */
    size_t used;
    char buffer[4096];
};

/* Prints a survey. False where the sink broke. */
bool metrics_print(struct sink *sink, const struct survey *survey);

/* Writes it to a file, as tarn_metrics_write() does. */
tarn_status metrics_write(const char *path, const struct survey *survey);

#endif
