/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How many records of a trace fit into a file of limited size. */
#ifndef TARN_REPORT_SNAPSHOT_FIT_H
#define TARN_REPORT_SNAPSHOT_FIT_H

#include "report/sink.h"

/* Writes everything from record `first` on. Called several times. */
typedef void (*fit_writer)(void *argument, struct sink *sink, size_t first);

/* Finds the first of `count` records from which everything fits into `most` bytes; 0 if `most` is
 * TARN_NO_LIMIT. Writes to nowhere about log2(count) times. TARN_ERROR_INVALID_ARGUMENT: even no
 * records do not fit. */
tarn_status fit(fit_writer write, void *argument, size_t count, uint64_t most, size_t *first);

#endif
