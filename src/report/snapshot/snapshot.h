/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes a picture in two forms. No lock is held, and the sink is not ended. */
#ifndef TARN_REPORT_SNAPSHOT_SNAPSHOT_H
#define TARN_REPORT_SNAPSHOT_SNAPSHOT_H

#include "memory/watch/picture.h"
#include "report/sink.h"

#include <tarn/snapshot.h>

/* Writes at most `most` bytes, by leaving out the oldest records; 0: no limit.
 * TARN_ERROR_INVALID_ARGUMENT: that does not suffice. */
tarn_status snapshot_write_pickle(const struct picture *picture, struct sink *sink, uint64_t most);
tarn_status snapshot_write_chrome(const struct picture *picture, struct sink *sink, uint64_t most);

#endif
