/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Advice on a recording: a few sentences that say what happened and what to do. Each is computed
 * and has its figures. A healthy recording gets none. */
#ifndef TOOLS_ADVICE_H
#define TOOLS_ADVICE_H

#include "analysis/analysis.h"

enum advice_kind {
    ADVICE_OUT_OF_MEMORY,
    ADVICE_LEAK,
    ADVICE_FRAGMENTATION,
    ADVICE_WAITING,
    ADVICE_OPTIMIZER,
    ADVICE_RETURNS, /* memory that goes to the driver and comes back */
};

#define ADVICE_MOST 3

struct advice {
    enum advice_kind kind;
    uint64_t bytes;  /* the bytes that the advice is about */
    uint32_t moment; /* a moment that shows it */
    char text[1200];
};

struct advice_list {
    struct advice items[ADVICE_MOST]; /* the most important first */
    size_t count;
};

/* "out_of_memory", "leak", ... */
const char *advice_name(enum advice_kind kind);
/* The result of one allocator in a replay of the same trace. */
struct advice_run {
    bool ran; /* if false, nothing else is known */
    /* peak bytes; 0: the trace does not run to its end, or not with the requests that failed in the
     * recording */
    uint64_t reserved;
    /* how many of the requests that failed in the recording it serves, on a device of that size */
    uint64_t served;
    /* bytes of the smallest device for the whole trace with the failed requests; 0: not searched */
    uint64_t least;
};
struct advice_replay {
    /* requests that failed in the recording and were tried again; 0 if the size of the device is
     * not known */
    uint64_t tried;
    struct advice_run native, expandable, tarn;
    bool least_left_out; /* the smallest devices were not searched, because that takes long */
};

/* `replay` may be NULL. False if memory is short. */
bool advice_make(const struct analysis *analysis, const struct advice_replay *replay,
                 struct advice_list *list);
/* True if the advice needs a replay, to say what other allocators reserve. */
bool advice_wants_replay(const struct analysis *analysis);
/* True if the advice needs the smallest devices for the failed requests, because the recording does
 * not show how large its device was. */
bool advice_wants_least(const struct analysis *analysis);

#endif
