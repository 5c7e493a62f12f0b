/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tests of files of metrics share. */
#ifndef TESTS_REPORT_METRICS_TEST_H
#define TESTS_REPORT_METRICS_TEST_H

#include "base/pages.h"
#include "device/device.h"
#include "report/metrics.h"
#include "report/survey.h"

/* Writes the file once, as tarn does from time to time with TARN_METRICS. */
static inline tarn_status write_metrics(const char *path)
{
    tarn_status status = device_layer_ready();
    struct surveyor *surveyor = status ? NULL : pages_map(sizeof *surveyor);
    if (!surveyor)
        return status ? status : TARN_ERROR_OUT_OF_HOST_MEMORY;
    survey_take(surveyor);
    status = metrics_write(path, &surveyor->survey);
    pages_unmap(surveyor, sizeof *surveyor);
    return status;
}

#endif
