/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every public call with arguments that it would accept, for what must hold of all of them. */
#ifndef TESTS_SUPPORT_EVERY_CALL_H
#define TESTS_SUPPORT_EVERY_CALL_H

#include "support/host.h"

/* What the calls are made with. Before it is made, a call may find that its argument names
 * nothing. */
struct world {
    bool made;
    tarn_stream stream, adopted, capturing;
    tarn_event *event;
    void *block, *pool_block, *suspended_block, *pinned, *imported, *exported, *graph, *registered;
    tarn_pool *pool, *suspended;
    tarn_range *range;
    tarn_checkpoint *checkpoint;
    tarn_scope scope;
    tarn_observer observer;
    tarn_sleeper sleeper;
    tarn_share *share, *pool_share;
    tarn_pool *registrable;
    tarn_imported_pool *imported_pool;
    tarn_library library;
    tarn_lease lease;
    tarn_workspace_call workspace;
    tarn_guard device_guard;
    tarn_guard stream_guard;
    int sockets[2];
};

extern struct world world;

/* One of everything, and some of it in use. */
void world_make(void);
/* All of it given back, and nothing is left on the device. */
void world_end(void);

/* Makes every call and demands that it gives `wanted`, or is one of those whose header says that
 * they answer always, and that it writes nothing where it fails; and that tarn_shutdown() gives
 * `shutdown`. */
void every_call_gives(tarn_status wanted, tarn_status shutdown);
/* The same, whatever they give. every_call_now is the one that runs. */
void every_call_returns(void);
extern const char *every_call_now;
/* The same with something before and after each. */
void every_call_between(void (*before)(void), void (*after)(const char *name, tarn_status status));
/* The thread's last error before each of these calls. */
#define EARLIER_ERROR "an error of an earlier call"
/* Whether the last one has failed and written a result. */
extern bool every_call_wrote;
/* One of them, and what it gives. Those that the others leave out come last: a sleep of all, and
 * tarn_shutdown(). */
size_t every_call_count(void);
const char *every_call_name(size_t i);
tarn_status every_call_make(size_t i);

/* Demands that these are all that src/tarn.map names. */
void every_call_is_listed(void);

#endif
