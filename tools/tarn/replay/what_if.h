/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn replay --what-if SPEC` replays a trace once more, with the options that SPEC changes.
 *
 *     SPEC := item {"," item}
 *     item := "memory=" SIZE | "lag=" MS | "repeat=" N | "deal-streams=" N | "deal-threads=" N
 *           | "vary=" SEED | "policy=" ("tarn" | "pytorch" | "expandable")
 *           | "least=" ("yes" | "no") | "conf=" TEXT
 *
 * TEXT is what TARN_ALLOC_CONF may contain, or PYTORCH_CUDA_ALLOC_CONF with a policy of PyTorch. It
 * contains commas, so conf comes last. */
#ifndef TOOLS_WHAT_IF_H
#define TOOLS_WHAT_IF_H

#include "replay/replay.h"

#include <stdbool.h>
#include <stddef.h>

#define WHAT_IF_MAX 64 /* SPECs per command */

/* Changes `options` by `spec`; they then point into it. False, with one line in `error`, for an
 * invalid spec; `options` are then undefined. */
bool what_if_parse(const char *spec, struct replay_options *options, char *error,
                   size_t error_size);

#endif
