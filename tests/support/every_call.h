/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every public call with arguments that it would accept, for tests of what must hold for all
 * calls. */
#ifndef TESTS_SUPPORT_EVERY_CALL_H
#define TESTS_SUPPORT_EVERY_CALL_H

#include "support/host.h"

/* The arguments of the calls. Before world_make(), an argument may name nothing. */
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

/* Makes one object of every kind, some of them in use. */
void world_make(void);
/* Gives everything back. Nothing may be left on the device. */
void world_end(void);

/* Makes every call. Each must return `wanted`, or be one whose header says that it always answers,
 * and must write nothing if it fails. tarn_shutdown() must return `shutdown`. */
void every_call_gives(tarn_status wanted, tarn_status shutdown);
/* Makes every call, whatever it returns. every_call_now is the one that is running. */
void every_call_returns(void);
extern const char *every_call_now;
/* The same, with a function called before and after each. */
void every_call_between(void (*before)(void), void (*after)(const char *name, tarn_status status));
/* The thread's last error is set to this before each call. */
#define EARLIER_ERROR "an error of an earlier call"
/* The last call failed although it had written a result. */
extern bool every_call_wrote;
/* How many calls there are; one of them by its number, and what it returns. Calls that the
 * functions above leave out come last: a sleep of everything, and tarn_shutdown(). */
size_t every_call_count(void);
const char *every_call_name(size_t i);
tarn_status every_call_make(size_t i);

/* Demands that the list has all names of src/tarn.map. */
void every_call_is_listed(void);

#endif
