/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sleeps of the whole process. Owns the list of pools that take part, with a reference to each from
 * the prepare to the end. Only the thread that has changed the state to TARN_SLEEP_CHANGES may use
 * the list. So the list needs no lock, and no lock is held over the waits.
 *
 * Order. Sleepers (sleepers.c) come before the pools on the way down and after them on the way up,
 * since they have pools' memory registered. A prepare does what can fail and be undone without a
 * driver call: it waits, and copies. A commit unmaps all pools before it releases any of them. Up
 * to that point each step can be undone, and pools still have contents that are to be discarded.
 * The commit of a sleeper may be collective, so no failure undoes it by itself: other ranks would
 * not take part in that. Caches (workspaces, handles, idle and pinned memory) go last, since they
 * can be created again. */
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "handle/handle.h"
#include "memory/arena/observe.h"
#include "memory/pool/pool.h"
#include "memory/range/range.h"
#include "memory/share/pointer.h"
#include "memory/watch/occupancy.h"
#include "sleep/sleepers.h"

#include <tarn/handle.h>
#include <tarn/pinned.h>
#include <tarn/sleep.h>
#include <unistd.h>

/* A pool of the process. */
struct member {
    struct pool *pool;
    enum { STAYS, PREPARED, UNMAPPED, SLEEPS } state;
    tarn_residue_reason reason; /* STAYS; 0: it was suspended before, woken or cancelled */
    bool saves;
};

static struct {
    atomic_int state; /* tarn_sleep_state */
    struct member *members;
    size_t count, room;
    unsigned what;
    size_t before; /* bytes */
} sleeping;

/* States --------------------------------------------------------------------------------------- */

static tarn_status refuse(int from, int state, const char *what)
{
    static const char *const texts[] = {
        [TARN_SLEEP_AWAKE] = "the process is awake",
        [TARN_SLEEP_CHANGES] = "another thread puts the process to sleep, or wakes it",
        [TARN_SLEEP_PREPARED] = "a sleep is prepared: commit it or cancel it",
        [TARN_SLEEP_ASLEEP] = "the process sleeps: wake it first",
    };
    bool is_busy = from == TARN_SLEEP_AWAKE || state == TARN_SLEEP_CHANGES;
    return failed(is_busy ? TARN_ERROR_BUSY : TARN_ERROR_INVALID_ARGUMENT, "%s: %s", what,
                  texts[state]);
}

/* Runs after the memory layer's end, which has resumed prepared pools. No other call of tarn runs
 * any more. */
static void sleep_shutdown(void)
{
    pages_free(sleeping.members, sleeping.room * sizeof *sleeping.members);
    sleeping.members = NULL;
    sleeping.count = sleeping.room = 0;
    sleepers_forget();
    atomic_store(&sleeping.state, TARN_SLEEP_AWAKE);
}

static void register_end(void)
{
    device_on_shutdown(sleep_shutdown);
}

/* Gets the right to change the state. */
static tarn_status change_begin(int from, const char *what)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int state = from;
    tarn_status status = device_layer_ready();
    if (!status)
        pthread_once(&once, register_end);
    if (!status)
        status = observe_refuse_moving(what);
    if (status)
        return status;
    return atomic_compare_exchange_strong(&sleeping.state, &state, TARN_SLEEP_CHANGES)
               ? TARN_OK
               : refuse(from, state, what);
}

static tarn_status change_end(int state, tarn_status status)
{
    atomic_store(&sleeping.state, state);
    return status;
}

/* The same, with all captures barred. */
static tarn_status barred_begin(int from, const char *what)
{
    tarn_status status = change_begin(from, what);
    if (!status) {
        status = captures_bar_all(what);
        if (status)
            return change_end(from, status);
    }
    return status;
}

static tarn_status barred_end(int state, tarn_status status)
{
    captures_unbar_all();
    return change_end(state, status);
}

/* The list ------------------------------------------------------------------------------------- */

static void list_free(void)
{
    for (size_t i = 0; i < sleeping.count; i++)
        pool_release(sleeping.members[i].pool);
    pages_free(sleeping.members, sleeping.room * sizeof *sleeping.members);
    sleeping.members = NULL;
    sleeping.count = sleeping.room = 0;
}

static int device_of(const struct member *member)
{
    return member->pool->store.arena->device->number;
}

/* Whether a member is awake. One that slept after a failed commit may have been resumed by the
 * program. */
static bool is_awake(const struct member *member)
{
    return member->state == STAYS ||
           (member->state == SLEEPS && atomic_load(&member->pool->state) == TARN_POOL_RUNS);
}

/* Drops the sleep's references to pools that are awake, so that such a pool can end when the
 * program releases it. */
static void list_forget_awake(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < sleeping.count; i++)
        if (is_awake(&sleeping.members[i]))
            pool_release(sleeping.members[i].pool);
        else
            sleeping.members[kept++] = sleeping.members[i];
    sleeping.count = kept;
}

static size_t pools_there(void)
{
    size_t count = 0;
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (!arena)
            continue;
        mutex_lock(&arena->lock);
        for (struct store *store = arena->pools.list; store; store = store->lists.next)
            count++;
        mutex_unlock(&arena->lock);
    }
    return count;
}

/* Adds a reference to each pool. A pool that is created meanwhile is omitted if the list has no
 * room. */
static tarn_status list_make(void)
{
    size_t room = pools_there() + 16;
    sleeping.members = pages_alloc(room * sizeof *sleeping.members);
    if (!sleeping.members)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a list of %zu pools",
                      room);
    sleeping.room = room;
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (!arena)
            continue;
        mutex_lock(&arena->lock);
        for (struct store *store = arena->pools.list; store && sleeping.count < room;
             store = store->lists.next) {
            struct pool *pool = pool_of_store(store);
            if (pool && pool_retain(pool))
                sleeping.members[sleeping.count++] = (struct member){.pool = pool};
        }
        mutex_unlock(&arena->lock);
    }
    return TARN_OK;
}

static tarn_sleep_contents contents_of(const tarn_sleep_options *options, struct pool *pool)
{
    tarn_tag tag = (tarn_tag)atomic_load(&pool->tag);
    for (size_t i = 0; i < options->rule_count; i++)
        if (options->rules[i].tag == tag)
            return options->rules[i].contents;
    return options->contents;
}

/* Preparing ------------------------------------------------------------------------------------ */

static void stay(struct member *member, tarn_residue_reason reason)
{
    member->state = STAYS;
    member->reason = reason;
}

/* Whether the program suspended the pool before; then the program resumes it. */
static bool is_suspended(struct pool *pool)
{
    int state = atomic_load(&pool->state);
    return state == TARN_POOL_SAVED || state == TARN_POOL_DISCARDED;
}

static tarn_residue_reason why_it_stays(struct pool *pool)
{
    if (anchors_any(&pool->store))
        return TARN_RESIDUE_REGISTERED;
    if (store_has(&pool->store, STORE_KEPT)) /* it is adopted, saved or loaded now, or only read */
        return TARN_RESIDUE_KEPT;
    return ranges_have_memory(&pool->store) ? TARN_RESIDUE_RANGE : TARN_RESIDUE_EXPORTED;
}

static tarn_status prepare_one(struct member *member, tarn_sleep_contents contents, bool *waited)
{
    struct pool *pool = member->pool;
    struct error_before before;
    if (is_suspended(pool)) {
        stay(member, 0);
        return TARN_OK;
    }
    bool suspends = pool_suspends(pool);
    if (contents == TARN_SLEEP_LEAVE || !suspends) {
        stay(member, suspends ? TARN_RESIDUE_LEFT : TARN_RESIDUE_PLAIN);
        return TARN_OK;
    }
    member->saves = contents == TARN_SLEEP_SAVE;
    error_attempt_begin(&before);
    tarn_status status = pool_sleep_prepare(
        pool, member->saves, sleepers_release(pool) && anchors_any(&pool->store), waited);
    bool stays = status == TARN_ERROR_BUSY || status == TARN_ERROR_NOT_SUPPORTED;
    error_attempt_end(&before, stays ? TARN_OK : status);
    if (!status) {
        member->state = PREPARED;
        return TARN_OK;
    }
    if (pool_sleep_is_in_part(pool))
        member->state = SLEEPS;
    if (stays) { /* memory that stays is residue, not a failure */
        stay(member, why_it_stays(pool));
        return TARN_OK;
    }
    if (status == TARN_ERROR_SUSPENDED) /* another thread is suspending or resuming it */
        return failed_within(TARN_ERROR_BUSY, "a sleep cannot begin");
    return status;
}

/* Resumes a pool, unless only the sleep still has a reference to it: then it ends with the list. */
static tarn_status resume(const struct member *member)
{
    struct pool *pool = member->pool;
    if (!is_suspended(pool) || atomic_load(&pool->count) == 1)
        return TARN_OK;
    return tarn_pool_resume((tarn_pool *)pool);
}

/* Resumes the pools that have no memory, and returns the first failure. A pool that fails stays
 * suspended, and the next ones are still resumed, since another device may have room. A pool of a
 * lost device never gets memory again; everything else wakes without it, and `lost` is set. */
static tarn_status resume_all(tarn_status *lost)
{
    tarn_status first = TARN_OK;
    struct error_before before;
    for (size_t i = 0; i < sleeping.count; i++) {
        struct member *member = &sleeping.members[i];
        if (member->state != SLEEPS)
            continue;
        error_attempt_begin(&before);
        tarn_status status = resume(member);
        error_attempt_end(&before, first ? TARN_OK : status);
        if (status == TARN_ERROR_DEVICE_LOST)
            *lost = status;
        else
            first = first ? first : status;
        if (!status || status == TARN_ERROR_DEVICE_LOST)
            member->state = STAYS;
    }
    return first;
}

static void cancel_all(void)
{
    for (size_t i = sleeping.count; i-- > 0;)
        if (sleeping.members[i].state == PREPARED) {
            pool_sleep_cancel(sleeping.members[i].pool);
            sleeping.members[i].state = STAYS;
        }
}

static tarn_status read_options(const tarn_sleep_options *given, tarn_sleep_options *options)
{
    static const tarn_sleep_options everything = {.size = sizeof everything};
    const unsigned all =
        TARN_SLEEP_POOLS | TARN_SLEEP_HANDLES | TARN_SLEEP_PINNED | TARN_SLEEP_SLEEPERS;
    tarn_status status =
        sized_read("tarn_sleep_options", given ? given : &everything, options, sizeof *options);
    if (status)
        return status;
    if (options->what & ~all)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "what: %#x has bits that mean nothing",
                      options->what);
    options->what = options->what ? options->what : all;
    if ((unsigned)options->contents > TARN_SLEEP_LEAVE)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "contents: %d is no such choice",
                      (int)options->contents);
    if (options->rule_count && !options->rules)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "rules is NULL, and rule_count %zu",
                      options->rule_count);
    for (size_t i = 0; i < options->rule_count; i++)
        if ((unsigned)options->rules[i].contents > TARN_SLEEP_LEAVE)
            return failed(TARN_ERROR_INVALID_ARGUMENT, "rule %zu: %d is not a choice of contents",
                          i, (int)options->rules[i].contents);
    return TARN_OK;
}

/* Residue -------------------------------------------------------------------------------------- */

static void residue_add(tarn_residue *residue, tarn_residue_item item)
{
    static const char *const texts[] = {
#define X(name, value, text) [value] = text,
        TARN_RESIDUE_REASON_LIST(X) /* NOLINT(bugprone-suspicious-missing-comma): long texts */
#undef X
    };
    item.text = texts[item.reason];
    if (residue->count < residue->room)
        residue->items[residue->count] = item;
    residue->count++;
}

static void residue_of_sleeper(const tarn_residue_item *item, void *residue)
{
    residue_add(residue, *item);
}

static void residue_bytes(tarn_residue *residue, tarn_residue_reason reason, int device,
                          size_t bytes)
{
    if (bytes)
        residue_add(residue,
                    (tarn_residue_item){.reason = reason, .device = device, .bytes = bytes});
}

static size_t reserved_of(const struct store *store)
{
    mutex_lock(&store->arena->lock);
    size_t reserved = store->reserved;
    mutex_unlock(&store->arena->lock);
    return reserved;
}

static size_t reserved_on(struct arena *arena)
{
    mutex_lock(&arena->lock);
    size_t reserved = arena->reserved;
    mutex_unlock(&arena->lock);
    return reserved;
}

static size_t reserved_in_all(void)
{
    size_t reserved = 0;
    for (int i = 0; i < device_count(); i++)
        if (arena_if_used(i))
            reserved += reserved_on(arena_if_used(i));
    return reserved;
}

/* Memory of the process on a device that is not tarn's, if the driver's monitor reports it. */
static size_t beside(int device, size_t reserved)
{
    enum { MOST = 128 };
    struct driver_process list[MOST];
    size_t count = driver->processes ? driver->processes(device, list, MOST) : 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].number == (long)getpid() && list[i].bytes != SIZE_MAX &&
            list[i].bytes > reserved)
            return list[i].bytes - reserved;
    return 0;
}

static size_t handles_in_use(int device)
{
    size_t count = 0;
    for (int i = 1; i <= entry_count(); i++) {
        tarn_handle_stats stats = {.size = sizeof stats};
        if (shelf_known(entry_at(i), device) && tarn_handle_stats_get(i, device, &stats) == TARN_OK)
            count += stats.in_use;
    }
    return count;
}

static void residue_of_device(tarn_residue *residue, struct arena *arena)
{
    int device = arena->device->number;
    struct pool_occupancy standard = {.reserved = 0};
    tarn_workspace_stats workspaces = {.size = sizeof workspaces};
    size_t handles = handles_in_use(device), scratch = 0;
    (void)occupancy_pools(arena, &standard, 1);
    /* Workspaces of captures are in their pools. */
    if (tarn_workspace_stats_get(device, &workspaces) == TARN_OK)
        scratch = workspaces.bytes > workspaces.captured_bytes
                      ? workspaces.bytes - workspaces.captured_bytes
                      : 0;
    residue_bytes(residue, TARN_RESIDUE_CONTEXT, device, beside(device, reserved_on(arena)));
    if (handles)
        residue_add(residue, (tarn_residue_item){.reason = TARN_RESIDUE_HANDLES,
                                                 .device = device,
                                                 .count = handles});
    residue_bytes(residue, TARN_RESIDUE_WORKSPACES, device, scratch);
    residue_bytes(residue, TARN_RESIDUE_DEFAULT_POOL, device,
                  standard.reserved > scratch ? standard.reserved - scratch : 0);
    residue_bytes(residue, TARN_RESIDUE_IMPORTED, device, reserved_of(&arena->imports));
}

static void residue_of_pools(tarn_residue *residue)
{
    for (size_t i = 0; i < sleeping.count; i++) {
        const struct member *member = &sleeping.members[i];
        const struct store *store = &member->pool->store;
        bool kept = store_has(store, STORE_KEPT) && member->state != STAYS && member->saves;
        tarn_residue_reason reason = kept                     ? TARN_RESIDUE_KEPT
                                     : member->state == STAYS ? member->reason
                                                              : 0;
        size_t bytes = reason ? reserved_of(store) : 0;
        if (bytes)
            residue_add(residue, (tarn_residue_item){.reason = reason,
                                                     .device = store->arena->device->number,
                                                     .pool = {store->id[0], store->id[1]},
                                                     .bytes = bytes});
        if (member->state != STAYS && member->saves)
            residue->saved += contents_bytes(&member->pool->contents);
    }
}

/* Pools without references are not in the list. */
static void residue_of_ended(tarn_residue *residue, struct arena *arena)
{
    mutex_lock(&arena->lock);
    for (struct store *store = arena->pools.list; store; store = store->lists.next)
        if (store->reserved && !atomic_load(&pool_of_store(store)->count))
            residue_add(residue, (tarn_residue_item){.reason = TARN_RESIDUE_ENDED,
                                                     .device = arena->device->number,
                                                     .pool = {store->id[0], store->id[1]},
                                                     .bytes = store->reserved});
    mutex_unlock(&arena->lock);
}

/* Fills in the caller's structure, which was checked before. */
static void residue_take(tarn_residue *given)
{
    tarn_residue residue;
    tarn_pinned_stats pinned = {.size = sizeof pinned};
    struct error_before before;
    if (!given || sized_read("tarn_residue", given, &residue, sizeof residue))
        return;
    residue.count = residue.saved = 0;
    residue.before = sleeping.before;
    residue.after = reserved_in_all();
    error_attempt_begin(&before);
    for (int i = 0; i < device_count(); i++)
        if (arena_if_used(i))
            residue_of_device(&residue, arena_if_used(i));
    residue_of_pools(&residue);
    for (int i = 0; i < device_count(); i++)
        if (arena_if_used(i) && sleeping.what & TARN_SLEEP_POOLS)
            residue_of_ended(&residue, arena_if_used(i));
    sleepers_residue(residue_of_sleeper, &residue);
    if (tarn_pinned_stats_get(&pinned) == TARN_OK && pinned.allocated_bytes.current > 0)
        residue_bytes(&residue, TARN_RESIDUE_PINNED, -1, (size_t)pinned.allocated_bytes.current);
    error_attempt_end(&before, TARN_OK);
    sized_write(given, &residue, sizeof residue);
}

static tarn_status residue_check(const tarn_residue *residue)
{
    tarn_residue own;
    if (!residue)
        return TARN_OK;
    tarn_status status = sized_read("tarn_residue", residue, &own, sizeof own);
    if (!status && own.room && !own.items)
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "items is NULL, and room %zu", own.room);
    return status;
}

/* Committing ----------------------------------------------------------------------------------- */

/* Counts pools that are still anchored as residue. They were prepared because a sleeper was to
 * remove the anchors; other code may have anchors there too. */
static void anchored_stay(void)
{
    for (size_t i = 0; i < sleeping.count; i++) {
        struct member *member = &sleeping.members[i];
        struct error_before before;
        if (member->state != PREPARED)
            continue;
        error_attempt_begin(&before);
        bool stays = pool_sleep_refuse_anchored(member->pool) != TARN_OK;
        error_attempt_end(&before, TARN_OK);
        if (!stays)
            continue;
        stay(member, why_it_stays(member->pool));
        pool_sleep_cancel(member->pool);
    }
}

/* Counts as residue the prepared pools that only the sleep still refers to, for example because
 * their graph was destroyed and its last launch ended during the prepare. Such a pool stays: its
 * live blocks belong to the program, and no wake would resume them. */
static void ended_stay(void)
{
    for (size_t i = 0; i < sleeping.count; i++) {
        struct member *member = &sleeping.members[i];
        if (member->state != PREPARED || atomic_load(&member->pool->count) > 1)
            continue;
        stay(member, TARN_RESIDUE_ENDED);
        pool_sleep_cancel(member->pool);
    }
}

static tarn_status unmap_all(void)
{
    bool waited[TARN_MAX_DEVICES] = {false};
    tarn_status status = TARN_OK;
    size_t done = 0;
    for (; done < sleeping.count && !status; done++) {
        struct member *member = &sleeping.members[done];
        if (member->state != PREPARED)
            continue;
        status = pool_sleep_unmap(member->pool, &waited[device_of(member)]);
        member->state = !status                               ? UNMAPPED
                        : pool_sleep_is_in_part(member->pool) ? SLEEPS
                                                              : PREPARED;
    }
    if (!status)
        return TARN_OK;
    struct error_before before;
    error_attempt_begin(&before);
    while (done-- > 0) {
        struct member *member = &sleeping.members[done];
        if (member->state == UNMAPPED)
            member->state = pool_sleep_put_back(member->pool) ? SLEEPS : PREPARED;
    }
    error_attempt_end(&before, TARN_OK);
    return status;
}

/* Keeps the first of the failures that do not stop the call. */
static void note(tarn_status *first, struct error_before *before, tarn_status status)
{
    error_attempt_end(before, *first ? TARN_OK : status);
    *first = *first ? *first : status;
}

static tarn_status release_all(void)
{
    tarn_status first = TARN_OK;
    struct error_before before;
    for (size_t i = 0; i < sleeping.count; i++) {
        struct member *member = &sleeping.members[i];
        if (member->state != UNMAPPED)
            continue;
        error_attempt_begin(&before);
        note(&first, &before, pool_sleep_release(member->pool));
        member->state = SLEEPS;
    }
    return first;
}

static tarn_status drop_handles(void)
{
    tarn_status first = TARN_OK;
    struct error_before before;
    error_attempt_begin(&before);
    note(&first, &before, tarn_workspace_clear(NULL, NULL));
    for (int i = 1; i <= entry_count(); i++)
        for (int device = 0; device < device_count(); device++) {
            if (!shelf_known(entry_at(i), device))
                continue;
            error_attempt_begin(&before);
            note(&first, &before, tarn_handle_trim(i, device, NULL));
        }
    return first;
}

/* Gives unused memory back, also of the default pools and of pools with plain segments. */
static tarn_status drop_caches(void)
{
    tarn_status first = TARN_OK;
    struct error_before before;
    if (sleeping.what & TARN_SLEEP_HANDLES)
        first = drop_handles();
    for (int i = 0; i < device_count() && sleeping.what & TARN_SLEEP_POOLS; i++) {
        if (!arena_if_used(i))
            continue;
        error_attempt_begin(&before);
        note(&first, &before, tarn_device_trim(i, 0));
    }
    for (size_t i = 0; i < sleeping.count; i++) {
        const struct member *member = &sleeping.members[i];
        if (member->state != STAYS || member->reason != TARN_RESIDUE_PLAIN)
            continue;
        error_attempt_begin(&before);
        note(&first, &before, tarn_pool_trim((tarn_pool *)member->pool, 0));
    }
    if (sleeping.what & TARN_SLEEP_PINNED) {
        error_attempt_begin(&before);
        note(&first, &before, tarn_pinned_trim(0));
    }
    return first;
}

/* Public --------------------------------------------------------------------------------------- */

tarn_status tarn_sleep_prepare(const tarn_sleep_options *given, tarn_residue *residue)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_sleep_options options;
    struct error_before before;
    bool waited[TARN_MAX_DEVICES] = {false};
    tarn_status lost = TARN_OK, status = read_options(given, &options);
    if (!status)
        status = residue_check(residue);
    if (!status)
        status = barred_begin(TARN_SLEEP_AWAKE, "a sleep");
    if (status)
        return status;
    sleeping.what = options.what;
    sleeping.before = reserved_in_all();
    if (options.what & TARN_SLEEP_SLEEPERS)
        status = sleepers_prepare();
    if (!status && options.what & TARN_SLEEP_POOLS)
        status = list_make();
    for (size_t i = 0; i < sleeping.count && !status; i++) {
        struct member *member = &sleeping.members[i];
        status =
            prepare_one(member, contents_of(&options, member->pool), &waited[device_of(member)]);
    }
    if (!status) {
        residue_take(residue);
        return barred_end(TARN_SLEEP_PREPARED, TARN_OK);
    }
    error_attempt_begin(&before);
    (void)resume_all(&lost);
    cancel_all();
    list_free();
    sleepers_cancel();
    error_attempt_end(&before, TARN_OK);
    return barred_end(TARN_SLEEP_AWAKE, status);
}

/* A library's destroy has not returned. All pools sleep by then, so the process counts as
 * asleep. */
struct falling_asleep {
    struct undo undo;
    struct cancel cancel;
};

static void asleep_all_the_same(struct undo *undo)
{
    const struct falling_asleep *here =
        (struct falling_asleep *)((char *)undo - offsetof(struct falling_asleep, undo));
    list_forget_awake();
    (void)barred_end(TARN_SLEEP_ASLEEP, TARN_OK);
    cancel_restore(here->cancel);
}

tarn_status tarn_sleep_commit(tarn_residue *residue)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_status status = residue_check(residue);
    if (!status)
        status = barred_begin(TARN_SLEEP_PREPARED, "commit of a sleep");
    if (status)
        return status;
    status = sleepers_commit();
    if (!status) {
        anchored_stay();
        ended_stay();
        status = unmap_all();
    }
    if (status) {
        residue_take(residue);
        return barred_end(TARN_SLEEP_PREPARED, status);
    }
    struct error_before before;
    status = release_all();
    error_attempt_begin(&before);
    struct falling_asleep here = {.cancel = cancel};
    undo_push(&here.undo, asleep_all_the_same);
    note(&status, &before, drop_caches());
    undo_pop(&here.undo);
    residue_take(residue);
    list_forget_awake();
    return barred_end(TARN_SLEEP_ASLEEP, status);
}

tarn_status tarn_sleep_cancel(void)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    static const char what[] = "cancel of a sleep";
    tarn_status lost = TARN_OK, status = change_begin(TARN_SLEEP_PREPARED, what);
    if (status)
        return status;
    bool wakes = sleepers_any_asleep();
    if (wakes) {
        status = captures_bar_all(what);
        if (status)
            return change_end(TARN_SLEEP_PREPARED, status);
    }
    status = resume_all(&lost);
    if (!status) {
        cancel_all();
        list_free();
        status = sleepers_wake();
        if (!status)
            sleepers_cancel();
    }
    if (wakes)
        captures_unbar_all();
    return change_end(status ? TARN_SLEEP_PREPARED : TARN_SLEEP_AWAKE, status ? status : lost);
}

tarn_status tarn_sleep(const tarn_sleep_options *options, tarn_residue *residue)
{
    struct error_before before;
    tarn_status status = tarn_sleep_prepare(options, residue);
    if (status)
        return status;
    status = tarn_sleep_commit(residue);
    if (!status)
        return status;
    if (atomic_load(&sleeping.state) == TARN_SLEEP_PREPARED) {
        error_attempt_begin(&before);
        (void)tarn_sleep_cancel();
        error_attempt_end(&before, TARN_OK);
    }
    return status;
}

tarn_status tarn_wake(void)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_status lost = TARN_OK, status = barred_begin(TARN_SLEEP_ASLEEP, "wake");
    if (status)
        return status;
    status = resume_all(&lost);
    if (status) {
        list_forget_awake(); /* also those that were resumed */
        return barred_end(TARN_SLEEP_ASLEEP, status);
    }
    list_free();
    status = sleepers_wake();
    return barred_end(status ? TARN_SLEEP_ASLEEP : TARN_SLEEP_AWAKE, status ? status : lost);
}

tarn_status tarn_sleep_state_get(tarn_sleep_state *state)
{
    if (!state)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "state is NULL");
    *state = (tarn_sleep_state)atomic_load(&sleeping.state);
    return TARN_OK;
}
