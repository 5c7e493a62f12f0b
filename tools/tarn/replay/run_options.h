/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The options of one run of `tarn replay`: --NAME on the command line is for all runs, NAME= in a
 * --what-if for one. */
#ifndef TOOLS_RUN_OPTIONS_H
#define TOOLS_RUN_OPTIONS_H

#include <stdbool.h>

/* X(field of struct replay_options, name, what its value must be) */
#define RUN_OPTION_LIST(X)                                     \
    X(lag, "lag", "milliseconds from 0 to 10^9")               \
    X(repeat, "repeat", "a number from 1 to 10000")            \
    X(deal_streams, "deal-streams", "a number from 1 to 256")  \
    X(deal_threads, "deal-threads", "a number from 1 to 1024") \
    X(vary, "vary", "a seed from 1 to 10^9")

/* Writes a value into a `struct replay_options`. False if the value is not what the option
 * wants. */
#define X(field, name, wants) bool run_take_##field(void *options, const char *value);
RUN_OPTION_LIST(X)
#undef X
bool run_take_memory(void *options,
                     const char *value); /* it has two names: "device-memory" and "memory" */

#endif
