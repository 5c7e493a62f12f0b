/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The CSV log of RMM, the RAPIDS Memory Manager: what its logging_resource_adaptor writes
 * (rapidsai/rmm, cpp/src/mr/detail/ logging_resource_adaptor_impl.cpp), as a snapshot with one
 * trace, of device 0, and no state. */
#ifndef TOOLS_RMM_CSV_H
#define TOOLS_RMM_CSV_H

#include "input/pickle_input.h"
#include "input/snapshot.h"

#define RMM_CSV_HEADER "Thread,Time,Action,Pointer,Size,Stream"
#define RMM_CSV_MARK "\xef\xbb\xbf" /* of UTF-8, which may come before it */

/* Reads what `input`, at its first byte, gives. The thread and the stream of every line are kept,
 * that of a free too; a failure is an event SNAPSHOT_OOM. A last line that was cut off is counted
 * as lost (an allocation of no bytes). False on failure, with `error` filled: line and field, and
 * what was met; `snapshot` may then hold events, and is the caller's to finish either way. */
bool rmm_csv_read(struct pickle_input *input, struct snapshot *snapshot,
                  struct snapshot_error *error);

#endif
