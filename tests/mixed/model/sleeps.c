/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sleeps of the whole process: prepared, committed or cancelled, and awake again, while everything
 * else goes on. */
#include "mixed/model/mixed.h"

#include <tarn/sleep.h>

static struct {
    tarn_sleep_state state;
    unsigned what;
    struct {
        bool sleeps, keeps; /* sleeps, keeps: by the options, if the pool can */
        /* the sleep counts it: until the commit if it stays awake, otherwise until the wake */
        bool counted;
        unsigned turn;
    } pools[POOLS];
} night;

/* A sleeper that refuses or fails now and then, and knows which callback may come next. */
static struct {
    tarn_sleeper number; /* 0: none */
    enum { AWAKE, PREPARED, IN_PART, ASLEEP } state;
    bool failed; /* in the call that is running */
} guest;

static tarn_status guest_says(char *why, size_t room)
{
    if (!CHANCE(6))
        return TARN_OK;
    snprintf(why, room, "it dreams");
    guest.failed = true;
    return TARN_ERROR_LIBRARY;
}

static tarn_status guest_prepare(void *user, char *why, size_t room)
{
    (void)user;
    SO(guest.state == AWAKE, "a sleeper is prepared twice", "it is in state %d", (int)guest.state);
    if (CHANCE(6))
        return TARN_ERROR_BUSY;
    tarn_status status = guest_says(why, room);
    guest.state = status ? AWAKE : PREPARED;
    return status;
}

static void guest_cancel(void *user)
{
    (void)user;
    SO(guest.state == PREPARED, "a sleeper is cancelled that is not prepared", "it is in state %d",
       (int)guest.state);
    guest.state = AWAKE;
}

static tarn_status guest_commit(void *user, char *why, size_t room)
{
    (void)user;
    SO(guest.state == PREPARED || guest.state == IN_PART,
       "a sleeper is committed that is not prepared", "it is in state %d", (int)guest.state);
    tarn_status status = guest_says(why, room);
    guest.state = status ? IN_PART : ASLEEP;
    return status;
}

static tarn_status guest_wake(void *user, char *why, size_t room)
{
    (void)user;
    SO(guest.state == ASLEEP || guest.state == IN_PART, "a sleeper is woken that does not sleep",
       "it is in state %d", (int)guest.state);
    tarn_status status = guest_says(why, room);
    guest.state = status ? IN_PART : AWAKE;
    return status;
}

bool is_night(void)
{
    return night.state != TARN_SLEEP_AWAKE;
}

void night_leaves(int pool)
{
    /* otherwise the sleep knows an earlier pool with this index */
    if (night.pools[pool].turn == m.pools[pool].turn)
        night.pools[pool].sleeps = false;
}

bool night_counts(int pool, unsigned turn)
{
    return is_night() && night.pools[pool].counted && night.pools[pool].turn == turn;
}

bool night_keeps_ended(void)
{
    bool keeps = false;
    for (int i = 0; i < POOLS; i++)
        keeps |= is_night() && night.pools[i].counted &&
                 !(m.pools[i].live && m.pools[i].turn == night.pools[i].turn);
    return keeps;
}

static tarn_sleep_contents contents_of(const tarn_sleep_options *options, const struct pool *pool)
{
    for (size_t i = 0; i < options->rule_count; i++)
        if (options->rules[i].tag == pool->tag)
            return options->rules[i].contents;
    return options->contents;
}

/* Checks that the state follows from the calls; after a failure, takes what tarn says. */
static void state_is(tarn_sleep_state wanted)
{
    tarn_sleep_state state = TARN_SLEEP_CHANGES;
    MINE(tarn_sleep_state_get(&state));
    SO(state == wanted || was_injected() || wanted == TARN_SLEEP_CHANGES,
       "a sleep is in another state", "%d, not %d", (int)state, (int)wanted);
    night.state = state;
}

/* Checks that the sleeper's state fits that of the sleep. */
static void check_guest(void)
{
    SO(night.state != TARN_SLEEP_AWAKE || guest.state == AWAKE,
       "a sleeper sleeps in a process that is awake", "it is in state %d", (int)guest.state);
    SO(night.state != TARN_SLEEP_ASLEEP || guest.state != PREPARED, "a sleeper was passed over",
       "it is prepared");
}

/* In a wake, sleepers come after the pools. So if one fails, all pools have left the sleep. */
static void guest_was_last(void)
{
    for (int i = 0; i < POOLS && guest.failed; i++)
        night.pools[i].counted = night.pools[i].sleeps = false;
}

/* Checks a pool that has just fallen asleep, if nothing has failed. */
static void check_sleeper(int index)
{
    const struct pool *pool = &m.pools[index];
    tarn_stats stats = {.size = sizeof stats};
    SO(pool->state == (night.pools[index].keeps ? TARN_POOL_SAVED : TARN_POOL_DISCARDED),
       "a pool does not sleep as it was told", "pool %d: %d", index, (int)pool->state);
    MINE(tarn_pool_stats_get(pool->pool, &stats));
    bool stays = pool->kept && pool->state == TARN_POOL_SAVED; /* with the owner */
    SO(stats.reserved_bytes[0].current == 0 || stays, "a pool sleeps with memory",
       "pool %d: %" PRId64 " bytes", index, stats.reserved_bytes[0].current);
}

static bool is_suspended(tarn_pool_state state)
{
    return state == TARN_POOL_SAVED || state == TARN_POOL_DISCARDED;
}

/* Finds out what has become of each pool. The model has no handle of pools that captures made, and
 * goes by what it asked for. */
static void pools_look(bool sure)
{
    for (int i = 0; i < POOLS; i++) {
        struct pool *pool = &m.pools[i];
        if (!pool->live)
            continue;
        tarn_pool_state before = pool->state;
        bool listed = night.pools[i].sleeps && night.pools[i].turn == pool->turn;
        if (pool->pool)
            pool->state = pool_info(pool->pool).state;
        else if (night.state != TARN_SLEEP_AWAKE && listed)
            pool->state = night.pools[i].keeps ? TARN_POOL_SAVED : TARN_POOL_DISCARDED;
        else if (night.state == TARN_SLEEP_AWAKE)
            pool->state = TARN_POOL_RUNS;
        if (sure && pool->pool && listed && before == TARN_POOL_RUNS &&
            night.state == TARN_SLEEP_ASLEEP)
            check_sleeper(i);
        if (sure && pool->pool && !listed && before == TARN_POOL_RUNS)
            SO(pool->state == TARN_POOL_RUNS, "a pool sleeps that was to stay awake", "pool %d: %d",
               i, (int)pool->state);
        /* Perhaps in part, if a commit failed. */
        if (is_suspended(pool->state) &&
            (night.state == TARN_SLEEP_ASLEEP || !is_suspended(before)))
            contents_of_pool(i, pool->state == TARN_POOL_SAVED);
        else if (pool->state != TARN_POOL_RUNS && before == TARN_POOL_RUNS)
            contents_of_pool(i, true);
    }
}

static void committed(void)
{
    for (int i = 0; i < POOLS && night.state == TARN_SLEEP_ASLEEP; i++)
        night.pools[i].counted &= night.pools[i].sleeps;
    if (night.state == TARN_SLEEP_ASLEEP && night.what & TARN_SLEEP_HANDLES)
        workspaces_were_cleared();
}

/* Bytes reserved on all devices. */
static size_t reserved(void)
{
    size_t bytes = 0;
    for (int device = 0; device < m.devices; device++) {
        tarn_stats stats = {.size = sizeof stats};
        MINE(tarn_device_stats_get(device, &stats));
        bytes += (size_t)stats.reserved_bytes[0].current;
    }
    return bytes;
}

/* A graph's pool may have ended since: the graph's work ended during the waits, and only the sleep
 * counted the pool. */
static void check_residue(const tarn_residue *residue, unsigned room)
{
    SO(residue->after >= reserved(), "a residue is of other memory",
       "%zu bytes, and %zu are reserved", residue->after, reserved());
    for (size_t i = 0; i < residue->count && i < room; i++)
        SO(residue->items[i].text && *residue->items[i].text, "a residue without a reason", "%d",
           (int)residue->items[i].reason);
    SO(residue->after <= residue->before || is_night(), "a sleep that takes more than it gives",
       "%zu, %zu before", residue->after, residue->before);
}

static void fall_asleep(void)
{
    tarn_sleep_rule rules[2] = {{.tag = m.tags[1], .contents = (tarn_sleep_contents)below(3)},
                                {.tag = m.tags[2], .contents = (tarn_sleep_contents)below(3)}};
    tarn_sleep_options options = {.size = sizeof options,
                                  .what = below(16),
                                  .contents = (tarn_sleep_contents)below(3),
                                  .rules = rules,
                                  .rule_count = below(3)};
    tarn_residue_item items[6];
    tarn_residue residue = {.size = sizeof residue, .items = items, .room = 6};
    bool barred = any_open(-1), prepares = CHANCE(2);
    const unsigned all =
        TARN_SLEEP_POOLS | TARN_SLEEP_HANDLES | TARN_SLEEP_PINNED | TARN_SLEEP_SLEEPERS;
    night.what = options.what ? options.what : all;
    guest.failed = false;
    for (int i = 0; i < POOLS; i++) {
        const struct pool *pool = &m.pools[i];
        tarn_sleep_contents contents = contents_of(&options, pool);
        night.pools[i].turn = pool->turn;
        night.pools[i].keeps = contents == TARN_SLEEP_SAVE;
        night.pools[i].sleeps = pool->live && night.what & TARN_SLEEP_POOLS &&
                                contents != TARN_SLEEP_LEAVE && !pool->plain &&
                                pool->state == TARN_POOL_RUNS && !is_anchored_in(i);
        night.pools[i].counted = pool->live && night.what & TARN_SLEEP_POOLS;
    }
    ended_look();
    m.moves = true;
    bool asks = CHANCE(2);
    tarn_status status = prepares ? CALL(tarn_sleep_prepare, &options, asks ? &residue : NULL)
                                  : CALL(tarn_sleep, &options, asks ? &residue : NULL);
    m.moves = false;
    bool good =
        well("a sleep", status,
             (barred ? BIT(TARN_ERROR_CAPTURE) : 0) | (guest.failed ? BIT(TARN_ERROR_LIBRARY) : 0));
    SO(!good || !barred, "a sleep during a known capture", "it was not refused");
    state_is(!good ? TARN_SLEEP_CHANGES : prepares ? TARN_SLEEP_PREPARED : TARN_SLEEP_ASLEEP);
    if (night.state == TARN_SLEEP_PREPARED) /* the cancel failed too */
        guest_was_last();
    if (good && asks)
        check_residue(&residue, 6);
    pools_look(good && !was_injected());
    committed();
    check_guest();
    m.count.sleeps += night.state != TARN_SLEEP_AWAKE;
}

/* A cancel that failed has resumed some of the pools that a commit had left without memory. */
static void resumed_leave(void)
{
    for (int i = 0; i < POOLS; i++) {
        const struct pool *pool = &m.pools[i];
        if (!pool->live || !pool->pool || pool->state == TARN_POOL_RUNS)
            continue;
        if (pool_info(pool->pool).state == TARN_POOL_RUNS)
            night_leaves(i);
    }
}

static void op_sleep(void)
{
    if (night.state == TARN_SLEEP_AWAKE && !CHANCE(3))
        return;
    if (night.state == TARN_SLEEP_AWAKE) {
        fall_asleep();
        return;
    }
    bool barred = any_open(-1), prepared = night.state == TARN_SLEEP_PREPARED,
         commits = prepared && CHANCE(2);
    uint64_t reasons =
        /* There may be no room for it now */
        (barred ? BIT(TARN_ERROR_CAPTURE) : 0) | (commits ? 0 : BIT(TARN_ERROR_OUT_OF_MEMORY));
    m.moves = true;
    guest.failed = false;
    tarn_status status = commits    ? CALL(tarn_sleep_commit, NULL)
                         : prepared ? CALL0(tarn_sleep_cancel)
                                    : CALL0(tarn_wake);
    m.moves = false;
    bool good =
        well("the end of a sleep", status, reasons | (guest.failed ? BIT(TARN_ERROR_LIBRARY) : 0));
    state_is(!good ? TARN_SLEEP_CHANGES : commits ? TARN_SLEEP_ASLEEP : TARN_SLEEP_AWAKE);
    if (!good && prepared && !commits)
        resumed_leave();
    pools_look(good && commits && !was_injected());
    if (commits)
        committed();
    else
        guest_was_last();
    check_guest();
}

/* Adds or removes a sleeper, also while the process sleeps. */
static void op_guest(void)
{
    const tarn_sleeper_options options = {.size = sizeof options,
                                          .name = "guest",
                                          .device = TARN_ALL_DEVICES,
                                          .prepare = guest_prepare,
                                          .cancel = guest_cancel,
                                          .commit = guest_commit,
                                          .wake = guest_wake};
    if (guest.number && CHANCE(4) && WELL(0, tarn_sleeper_remove, guest.number)) {
        guest.number = 0;
        guest.state = AWAKE;
    } else if (!guest.number) {
        (void)WELL(0, tarn_sleeper_add, &options, &guest.number);
    }
    static const tarn_sleeper_state states[] = {[AWAKE] = TARN_SLEEPER_AWAKE,
                                                [PREPARED] = TARN_SLEEPER_PREPARED,
                                                [IN_PART] = TARN_SLEEPER_ASLEEP,
                                                [ASLEEP] = TARN_SLEEPER_ASLEEP};
    tarn_sleeper_info info = {.size = sizeof info};
    if (guest.number && WELL(0, tarn_sleeper_info_get, guest.number, &info))
        SO(info.state == states[guest.state], "a sleeper is in another state", "%d, not %d",
           (int)info.state, (int)states[guest.state]);
}

static void op_tag_pool(void)
{
    int index = pool_any(-1, false);
    if (index < 0)
        return;
    tarn_tag tag = m.tags[below(3)];
    if (WELL(0, tarn_pool_tag_set, m.pools[index].pool, tag))
        m.pools[index].tag = tag;
}

/* Call it while nothing captures. What cannot wake for lack of memory wakes once memory is free. */
void sleeps_end(bool may_be_short)
{
    tarn_status status = TARN_OK;
    if (guest.number)
        MINE(tarn_sleeper_remove(guest.number));
    guest.number = 0;
    guest.state = AWAKE;
    state_is(TARN_SLEEP_CHANGES);
    if (night.state == TARN_SLEEP_PREPARED)
        status = CALL0(tarn_sleep_cancel);
    else if (night.state == TARN_SLEEP_ASLEEP)
        status = CALL0(tarn_wake);
    SO(status == TARN_OK || (may_be_short && status == TARN_ERROR_OUT_OF_MEMORY),
       "a call failed without a reason", "the end of a sleep gave %s: %s", tarn_status_name(status),
       tarn_last_error());
    state_is(TARN_SLEEP_CHANGES);
    pools_look(false);
}

const struct operation sleep_operations[] = {{"sleep", 6, NULL, op_sleep, false},
                                             {"a sleeper", 2, NULL, op_guest, false},
                                             {"tag a pool", 2, NULL, op_tag_pool, false},
                                             {NULL, 0, NULL, NULL, false}};
