/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the list of sleepers, the oldest first. A callback runs without the lock of the list.
 * Meanwhile its sleeper is marked as `running`, and cannot be removed. The walks below find their
 * next sleeper by its number, so others may come and go. */
#include "sleep/sleepers.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread/callback.h"
#include "base/thread/lock.h"
#include "base/thread/process.h"
#include "memory/pool/pool.h"

#include <stdio.h>
#include <tarn/device.h>

struct sleeper {
    struct sleeper *next;
    tarn_sleeper number;
    tarn_sleeper_options options;
    tarn_sleeper_info info; /* what tarn_sleeper_info_get() returns */
    bool running;           /* one of its callbacks runs */
    bool refused;           /* it refused to take part in this sleep */
    bool in_part;           /* asleep, but a commit or a wake has failed */
};

/* Protects the list. `refused` and `in_part` belong to the thread that changes the state of the
 * sleep. */
static mutex sleepers_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct sleeper *sleepers;
static tarn_sleeper last_number;
static struct object_pool sleeper_objects = OBJECT_POOL(struct sleeper);

/* ---- Walks ---- */

static struct sleeper *after_locked(tarn_sleeper number)
{
    struct sleeper *sleeper = sleepers;
    while (sleeper && sleeper->number <= number)
        sleeper = sleeper->next;
    return sleeper;
}

static struct sleeper *before_locked(tarn_sleeper number)
{
    struct sleeper *found = NULL;
    for (struct sleeper *sleeper = sleepers; sleeper && sleeper->number < number;
         sleeper = sleeper->next)
        found = sleeper;
    return found;
}

/* The next sleeper of a walk, marked as running; NULL: the end. `number` is the last one's, 0 at
 * first. */
static struct sleeper *next(tarn_sleeper *number, bool newest_first)
{
    mutex_lock(&sleepers_lock);
    struct sleeper *sleeper =
        newest_first ? before_locked(*number ? *number : UINT64_MAX) : after_locked(*number);
    if (sleeper) {
        sleeper->running = true;
        *number = sleeper->number;
    }
    mutex_unlock(&sleepers_lock);
    return sleeper;
}

/* Ends the callback of a sleeper, with its result. */
static void let_go(struct sleeper *sleeper, tarn_sleeper_state state, tarn_status status,
                   const char *why)
{
    mutex_lock(&sleepers_lock);
    sleeper->running = false;
    sleeper->info.state = state;
    sleeper->info.status = status;
    snprintf(sleeper->info.why, sizeof sleeper->info.why, "%s", status ? why : "");
    mutex_unlock(&sleepers_lock);
}

/* Ends a visit without a callback. */
static void pass(struct sleeper *sleeper)
{
    mutex_lock(&sleepers_lock);
    sleeper->running = false;
    mutex_unlock(&sleepers_lock);
}

/* The result of a callback. */
struct said {
    tarn_status status;
    char why[sizeof((tarn_sleeper_info *)0)->why];
};

CALLS_BACK static struct said ask(const struct sleeper *sleeper,
                                  tarn_status (*function)(void *user, char *why, size_t room))
{
    struct said said = {.status = TARN_OK};
    struct callback callback;
    callback_begin(&callback);
    said.status = function(sleeper->options.user, said.why, sizeof said.why);
    callback_end(&callback);
    said.why[sizeof said.why - 1] = 0;
    return said;
}

CALLS_BACK static void call_cancel(const tarn_sleeper_options *options)
{
    struct callback callback;
    callback_begin(&callback);
    options->cancel(options->user);
    callback_end(&callback);
}

CALLS_BACK static size_t call_held(const tarn_sleeper_options *options)
{
    struct callback callback;
    callback_begin(&callback);
    size_t held = options->held(options->user);
    callback_end(&callback);
    return held;
}

static tarn_status failure(const struct sleeper *sleeper, const char *what, const struct said *said)
{
    return failed(TARN_ERROR_LIBRARY, "%s of the sleeper %s returned %s%s%s", what,
                  sleeper->info.name, tarn_status_name(said->status), *said->why ? ": " : "",
                  said->why);
}

/* ---- A sleep ---- */

static tarn_status prepare(struct sleeper *sleeper)
{
    struct said said = {.status = TARN_OK};
    tarn_status status = TARN_OK;
    sleeper->refused = sleeper->in_part = false;
    if (sleeper->options.prepare)
        said = ask(sleeper, sleeper->options.prepare);
    if (said.status == TARN_ERROR_BUSY)
        sleeper->refused = true;
    else if (said.status)
        status = failure(sleeper, "prepare", &said);
    let_go(sleeper, said.status ? TARN_SLEEPER_AWAKE : TARN_SLEEPER_PREPARED, said.status,
           said.why);
    return status;
}

tarn_status sleepers_prepare(void)
{
    tarn_status status = TARN_OK;
    tarn_sleeper number = 0;
    for (struct sleeper *sleeper; !status && (sleeper = next(&number, true));)
        status = prepare(sleeper);
    return status;
}

void sleepers_cancel(void)
{
    tarn_sleeper number = 0;
    for (struct sleeper *sleeper; (sleeper = next(&number, false));) {
        bool prepared = sleeper->info.state == TARN_SLEEPER_PREPARED;
        sleeper->refused = false;
        if (prepared && sleeper->options.cancel)
            call_cancel(&sleeper->options);
        if (prepared)
            let_go(sleeper, TARN_SLEEPER_AWAKE, TARN_OK, "");
        else
            pass(sleeper);
    }
}

/* After a failed commit a sleeper is asleep in part: it may have given some memory back. */
static tarn_status commit(struct sleeper *sleeper)
{
    struct said said = ask(sleeper, sleeper->options.commit);
    tarn_status status = said.status ? failure(sleeper, "commit", &said) : TARN_OK;
    sleeper->in_part = said.status != TARN_OK;
    let_go(sleeper, TARN_SLEEPER_ASLEEP, said.status, said.why);
    return status;
}

tarn_status sleepers_commit(void)
{
    tarn_status status = TARN_OK;
    tarn_sleeper number = 0;
    for (struct sleeper *sleeper; !status && (sleeper = next(&number, true));) {
        if (sleeper->info.state == TARN_SLEEPER_PREPARED || sleeper->in_part)
            status = commit(sleeper);
        else
            pass(sleeper);
    }
    return status;
}

static tarn_status wake(struct sleeper *sleeper)
{
    struct said said = ask(sleeper, sleeper->options.wake);
    tarn_status status = said.status ? failure(sleeper, "wake", &said) : TARN_OK;
    sleeper->in_part = said.status != TARN_OK;
    let_go(sleeper, said.status ? TARN_SLEEPER_ASLEEP : TARN_SLEEPER_AWAKE, said.status, said.why);
    return status;
}

tarn_status sleepers_wake(void)
{
    tarn_status status = TARN_OK;
    tarn_sleeper number = 0;
    for (struct sleeper *sleeper; !status && (sleeper = next(&number, false));) {
        sleeper->refused = false;
        if (sleeper->info.state == TARN_SLEEPER_ASLEEP)
            status = wake(sleeper);
        else
            pass(sleeper);
    }
    return status;
}

bool sleepers_any_asleep(void)
{
    bool found = false;
    mutex_lock(&sleepers_lock);
    for (const struct sleeper *sleeper = sleepers; sleeper && !found; sleeper = sleeper->next)
        found = sleeper->info.state == TARN_SLEEPER_ASLEEP;
    mutex_unlock(&sleepers_lock);
    return found;
}

bool sleepers_release(const struct pool *pool)
{
    bool found = false;
    mutex_lock(&sleepers_lock);
    for (const struct sleeper *sleeper = sleepers; sleeper && !found; sleeper = sleeper->next)
        found = sleeper->info.state == TARN_SLEEPER_PREPARED &&
                sleeper->options.pool == (const tarn_pool *)pool;
    mutex_unlock(&sleepers_lock);
    return found;
}

void sleepers_residue(void (*add)(const tarn_residue_item *item, void *argument), void *argument)
{
    tarn_sleeper number = 0;
    for (struct sleeper *sleeper; (sleeper = next(&number, false));) {
        bool asleep = sleeper->info.state == TARN_SLEEPER_ASLEEP,
             asked = asleep || sleeper->refused;
        size_t held = asked && sleeper->options.held ? call_held(&sleeper->options) : 0;
        if (sleeper->refused || (asleep && (held || sleeper->in_part))) {
            const tarn_residue_item item = {.reason = TARN_RESIDUE_SLEEPER,
                                            .device = sleeper->options.device,
                                            .bytes = held,
                                            .count = (size_t)number};
            add(&item, argument);
        }
        pass(sleeper);
    }
}

void sleepers_forget(void)
{
    mutex_lock(&sleepers_lock);
    for (struct sleeper *sleeper = sleepers; sleeper; sleeper = sleeper->next) {
        sleeper->info.state = TARN_SLEEPER_AWAKE;
        sleeper->refused = sleeper->in_part = false;
    }
    mutex_unlock(&sleepers_lock);
}

/* ---- Public ---- */

static tarn_status check(const tarn_sleeper_options *options)
{
    if (!options->name || !*options->name)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the sleeper has no name");
    if (!options->commit || !options->wake)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the sleeper %s needs the callbacks commit and wake", options->name);
    if (options->device < TARN_ALL_DEVICES || options->device >= TARN_MAX_DEVICES)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "device %d is neither TARN_ALL_DEVICES nor below %d", options->device,
                      TARN_MAX_DEVICES);
    return options->pool ? pool_check(options->pool) : TARN_OK;
}

tarn_status tarn_sleeper_add(const tarn_sleeper_options *given, tarn_sleeper *number)
{
    tarn_sleeper_options options;
    tarn_status status = sized_read("tarn_sleeper_options", given, &options, sizeof options);
    if (status)
        return status;
    if (!number)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "sleeper is NULL");
    status = process_check();
    if (!status)
        status = check(&options);
    if (status)
        return status;
    struct sleeper *sleeper = object_alloc(&sleeper_objects);
    if (!sleeper)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a sleeper");
    sleeper->options = options;
    sleeper->options.name = NULL; /* the caller's string, which is copied below */
    sleeper->info = (tarn_sleeper_info){.size = sizeof sleeper->info, .device = options.device};
    text_was_cut(sleeper->info.name, sizeof sleeper->info.name,
                 snprintf(sleeper->info.name, sizeof sleeper->info.name, "%s", options.name));
    mutex_lock(&sleepers_lock);
    struct sleeper **end = &sleepers;
    while (*end)
        end = &(*end)->next;
    sleeper->number = ++last_number;
    *end = sleeper;
    *number = sleeper->number;
    mutex_unlock(&sleepers_lock);
    return TARN_OK;
}

static tarn_status unknown(tarn_sleeper number)
{
    return failed(TARN_ERROR_INVALID_ARGUMENT, "%llu is not a sleeper, or was removed",
                  (unsigned long long)number);
}

tarn_status tarn_sleeper_remove(tarn_sleeper number)
{
    tarn_status status = process_check();
    if (status == TARN_ERROR_FORKED)
        return status;
    mutex_lock(&sleepers_lock);
    struct sleeper **place = &sleepers, *found = NULL;
    while (*place && (*place)->number != number)
        place = &(*place)->next;
    bool running = *place && (*place)->running;
    if (*place && !running) {
        found = *place;
        *place = found->next;
    }
    mutex_unlock(&sleepers_lock);
    if (running)
        return failed(TARN_ERROR_BUSY, "a callback of sleeper %llu runs",
                      (unsigned long long)number);
    if (!found)
        return unknown(number);
    object_free(&sleeper_objects, found);
    return TARN_OK;
}

tarn_status tarn_sleeper_info_get(tarn_sleeper number, tarn_sleeper_info *info)
{
    tarn_sleeper_info own;
    tarn_status status = sized_check("tarn_sleeper_info", info, sizeof own);
    if (!status)
        status = process_check();
    if (status)
        return status;
    mutex_lock(&sleepers_lock);
    const struct sleeper *sleeper = number ? after_locked(number - 1) : NULL;
    bool found = sleeper && sleeper->number == number;
    if (found)
        own = sleeper->info;
    mutex_unlock(&sleepers_lock);
    if (!found)
        return unknown(number);
    sized_write(info, &own, sizeof own);
    return TARN_OK;
}
