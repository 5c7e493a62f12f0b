/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What to make of a recording: a few sentences that say what happened and what to do. Each is
 * computed and has its figures; a healthy recording gets none. */
#ifndef TOOLS_ADVICE_H
#define TOOLS_ADVICE_H

#include "analysis/analysis.h"

enum advice_kind {
    ADVICE_OUT_OF_MEMORY,
    ADVICE_LEAK,
    ADVICE_FRAGMENTATION,
    ADVICE_WAITING,
    ADVICE_OPTIMIZER,
    ADVICE_RETURNS, /* to the driver */
};

#define ADVICE_MOST 3

struct advice {
    enum advice_kind kind;
    uint64_t bytes;  /* that it is about */
    uint32_t moment; /* that shows it */
    char text[1200];
};

struct advice_list {
    struct advice items[ADVICE_MOST]; /* what matters most first */
    size_t count;
};

/* "out_of_memory", "leak", ... */
const char *advice_name(enum advice_kind kind);
/* What a replay of the same trace found, of one allocator. */
struct advice_run {
    bool ran;          /* else nothing is known */
    uint64_t reserved; /* bytes, at most; 0: it does not run to its end, or not with what failed in
                          the recording */
    uint64_t served;   /* of the requests that failed in the recording, on a device of that size */
    uint64_t least;    /* bytes: the smallest device for all of it, with what failed; 0: not
                          searched */
};
struct advice_replay {
    uint64_t tried; /* requests that failed in the recording and were tried; 0 where the size of the
                       device is not known */
    struct advice_run native, expandable, tarn;
};

/* `replay` may be NULL. False when memory is short. */
bool advice_make(const struct analysis *analysis, const struct advice_replay *replay,
                 struct advice_list *list);
/* Whether the advice would say what other allocators reserve, for which the trace must be
 * replayed. */
bool advice_wants_replay(const struct analysis *analysis);
/* Whether it would say how large a device must be for what failed, since the recording does not
 * show how large it was. */
bool advice_wants_least(const struct analysis *analysis);

#endif
