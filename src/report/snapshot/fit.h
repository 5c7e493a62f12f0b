/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How much of a trace there is room for in a file of a limited size. */
#ifndef TARN_REPORT_SNAPSHOT_FIT_H
#define TARN_REPORT_SNAPSHOT_FIT_H

#include "report/sink.h"

/* Writes all from record `first` on, as often as it is asked to. */
typedef void (*fit_writer)(void *argument, struct sink *sink, size_t first);

/* The first of `count` records with which all from there on is `most` bytes or less; 0 where `most`
 * is TARN_NO_LIMIT. Found by writing to nowhere, some log2(count) times.
 * TARN_ERROR_INVALID_ARGUMENT where it is more without any. */
tarn_status fit(fit_writer write, void *argument, size_t count, uint64_t most, size_t *first);

#endif
