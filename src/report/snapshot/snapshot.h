/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The two forms in which a picture is written. No lock is held; the sink is not ended. */
#ifndef TARN_REPORT_SNAPSHOT_SNAPSHOT_H
#define TARN_REPORT_SNAPSHOT_SNAPSHOT_H

#include "memory/watch/picture.h"
#include "report/sink.h"

#include <tarn/snapshot.h>

/* At most `most` bytes, 0 being no limit, by leaving out the oldest records.
 * TARN_ERROR_INVALID_ARGUMENT where that does not help. */
tarn_status snapshot_write_pickle(const struct picture *picture, struct sink *sink, uint64_t most);
tarn_status snapshot_write_chrome(const struct picture *picture, struct sink *sink, uint64_t most);

/* A snapshot of now, for those that tarn takes by itself. */
tarn_status snapshot_to(struct sink *sink, const tarn_snapshot_options *options);

#endif
