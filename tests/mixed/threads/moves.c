/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Operations that move memory or take it away beside the other threads. The process sleeps, with a
 * pool per thread; a pool that others use stays awake. Shares of blocks are exported, sent and
 * imported, one of them by all threads. A compaction runs while others allocate and free, and queue
 * no work. Caching is turned off and on. An observer asks for handles while memory moves. */
#include "mixed/threads/threads.h"

#include <sys/socket.h>
#include <unistd.h>

static bool exports; /* the device's memory can be exported */

/* ---- The process asleep ---- */

/* Creates, uses or frees a block in the thread's own pool. */
void op_keep(struct worker *worker)
{
    int flow = (int)below(worker, STREAMS);
    struct block *block = &worker->kept[below(worker, KEPT)];
    void *got = NULL;
    if (worker->night == TARN_SLEEP_ASLEEP || worker->night == TARN_SLEEP_PREPARED) {
        SO(tarn_pool_alloc(worker->pool, worker->flows[flow].value, 1000, &got) ==
                   TARN_ERROR_SUSPENDED &&
               !got,
           "a pool that sleeps gives a block", "%p", got);
        if (block->live && !below(worker, 8))
            give_back(worker, block);
    } else if (!block->live) {
        size_t size = some_size(worker);
        if (!WELL(SHORT, tarn_pool_alloc, worker->pool, worker->flows[flow].value, size, &got))
            return;
        taken(block, got, size, flow);
        use(worker, flow, block);
    } else if (below(worker, 3)) {
        use(worker, block->flow, block);
    } else {
        give_back(worker, block);
    }
}

static void kept_is_there(struct worker *worker)
{
    for (int i = 0; i < KEPT; i++) {
        struct block *block = &worker->kept[i];
        block->known &= !worker->discards;
        if (block->live)
            use(worker, block->flow, block);
    }
}

static void state_is(const struct worker *worker, tarn_pool_state wanted)
{
    tarn_pool_info info = {.size = sizeof info};
    MINE(tarn_pool_info_get(worker->pool, &info));
    SO(info.state == wanted, "a pool is in another state", "%d, not %d, of thread %d",
       (int)info.state, (int)wanted, worker->number);
}

/* Makes the memory of this thread's pool sleep, and memory that nobody uses. */
static void fall_asleep(struct worker *worker)
{
    worker->discards = below(worker, 4) == 0;
    tarn_sleep_rule rule = {.tag = worker->tag,
                            .contents = worker->discards ? TARN_SLEEP_DISCARD : TARN_SLEEP_SAVE};
    tarn_sleep_options options = {.size = sizeof options,
                                  .what = TARN_SLEEP_POOLS | below(worker, 16),
                                  .contents = TARN_SLEEP_LEAVE,
                                  .rules = &rule,
                                  .rule_count = 1};
    tarn_residue residue = {.size = sizeof residue};
    /* another thread's sleep, suspend or resume is running */
    uint64_t reasons = BARRED | BIT(TARN_ERROR_BUSY);
    bool prepares = below(worker, 2);
    if (!(prepares ? WELL(reasons, tarn_sleep_prepare, &options, &residue)
                   : WELL(reasons, tarn_sleep, &options, &residue))) {
        state_is(worker, TARN_POOL_RUNS);
        return;
    }
    worker->night = prepares ? TARN_SLEEP_PREPARED : TARN_SLEEP_ASLEEP;
    if (!prepares)
        state_is(worker, worker->discards ? TARN_POOL_DISCARDED : TARN_POOL_SAVED);
    count(SLEEPS);
}

void op_sleep(struct worker *worker)
{
    if (worker->night == TARN_SLEEP_AWAKE) {
        fall_asleep(worker);
    } else if (worker->night == TARN_SLEEP_PREPARED && below(worker, 2)) {
        if (!WELL(BARRED, tarn_sleep_commit, NULL))
            return;
        worker->night = TARN_SLEEP_ASLEEP;
        state_is(worker, worker->discards ? TARN_POOL_DISCARDED : TARN_POOL_SAVED);
    } else {
        bool prepared = worker->night == TARN_SLEEP_PREPARED;
        if (!well(prepared ? "tarn_sleep_cancel" : "tarn_wake",
                  prepared ? tarn_sleep_cancel() : tarn_wake(), prepared ? 0 : SHORT | BARRED))
            return;
        worker->night = TARN_SLEEP_AWAKE;
        worker->discards &= !prepared;
        state_is(worker, TARN_POOL_RUNS);
        kept_is_there(worker);
    }
}

/* ---- Sleepers ---- */

/* A sleeper's callback. Only tarn calls it, in the thread that makes the sleep; the test protects
 * its state by nothing else. */
static tarn_status guest_goes(struct worker *owner, int from, int to)
{
    SO(owner->guest_state == from, "a sleeper's callback out of turn", "state %d, not %d",
       owner->guest_state, from);
    owner->guest_state = to;
    return TARN_OK;
}

static tarn_status guest_prepare(void *user, char *why, size_t room)
{
    (void)why;
    (void)room;
    return guest_goes(user, 0, 1);
}

static void guest_cancel(void *user)
{
    (void)guest_goes(user, 1, 0);
}

static tarn_status guest_commit(void *user, char *why, size_t room)
{
    (void)why;
    (void)room;
    return guest_goes(user, 1, 2);
}

static tarn_status guest_wake(void *user, char *why, size_t room)
{
    (void)why;
    (void)room;
    return guest_goes(user, 2, 0);
}

/* Adds the thread's sleeper, or removes it if it is not being called now. After that nobody may
 * call it. */
void op_guest(struct worker *worker)
{
    const tarn_sleeper_options options = {.size = sizeof options,
                                          .name = "a thread's",
                                          .device = TARN_ALL_DEVICES,
                                          .user = worker,
                                          .prepare = guest_prepare,
                                          .cancel = guest_cancel,
                                          .commit = guest_commit,
                                          .wake = guest_wake};
    tarn_sleeper_info info = {.size = sizeof info};
    if (!worker->guest) {
        MINE(tarn_sleeper_add(&options, &worker->guest));
    } else if (below(worker, 2)) {
        MINE(tarn_sleeper_info_get(worker->guest, &info));
    } else if (WELL(BIT(TARN_ERROR_BUSY), tarn_sleeper_remove, worker->guest)) {
        worker->guest = 0;
        worker->guest_state = 0;
    }
}

/* ---- Shares ---- */

/* A block that all threads share; every import shows the same contents. */
static struct {
    unsigned char *start;
    tarn_share *share; /* NULL: none */
    tarn_stream stream;
} common;
enum { COMMON = 300000, COMMON_VALUE = 0x5a };

/* Sends a share through a socket, as to another process. */
static tarn_share *sent(const tarn_share *share)
{
    int ends[2];
    tarn_share *received = NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        fault("the test's own limit", "no socket");
    if (WELL(0, tarn_share_send, ends[0], share))
        (void)WELL(0, tarn_share_receive, ends[1], &received);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return received;
}

void imports_close(struct worker *worker)
{
    for (int i = 0; i < IMPORTS; i++) {
        struct import *import = &worker->imports[i];
        if (import->pointer && has_ended(worker, import->flow, import->number) &&
            WELL(0, tarn_import_close, import->pointer))
            import->pointer = NULL;
    }
}

static struct import *import_slot(struct worker *worker)
{
    imports_close(worker);
    for (int i = 0; i < IMPORTS; i++)
        if (!worker->imports[i].pointer)
            return &worker->imports[i];
    return NULL;
}

/* Checks that what is written through an import is in the block, and the other way round. */
static void through_import(struct worker *worker, struct block *block, struct import *import)
{
    struct block shown = *block;
    shown.start = import->pointer;
    SO(shown.start != block->start, "an import is the block itself", "%p", import->pointer);
    import->flow = block->flow;
    use(worker, block->flow, &shown);
    block->value = shown.value;
    block->known = true;
    use(worker, block->flow, block);
    import->number = worker->flows[block->flow].queued;
}

void op_share(struct worker *worker)
{
    struct block *block = some_block(worker, true);
    struct import *import = import_slot(worker);
    tarn_share *share = NULL, *copy = NULL;
    tarn_share_info info = {.size = sizeof info};
    /* the block was allocated without caching */
    const uint64_t reasons = BIT(TARN_ERROR_NOT_SUPPORTED);
    if (!exports || !block || !import || !WELL(reasons, tarn_export, block->start, &share))
        return;
    if (WELL(0, tarn_share_info_get, share, &info))
        SO(info.bytes >= block->size && info.device == 0, "a share shows another block",
           "%zu bytes of %zu", info.bytes, block->size);
    if (below(worker, 2))
        copy = sent(share);
    if (WELL(SHORT, tarn_import, copy ? copy : share, 0, &import->pointer))
        through_import(worker, block, import);
    MINE(tarn_share_close(copy));
    MINE(tarn_share_close(share));
    count(SHARES);
}

/* All threads import the same share. While one of them has it, it must be at one address. */
void op_common(struct worker *worker)
{
    struct import *import = import_slot(worker);
    int flow = (int)below(worker, STREAMS);
    tarn_share *again = NULL;
    void *second = NULL;
    if (!common.share || !import || worker->pending > SLOTS / 2 ||
        !WELL(SHORT, tarn_import, common.share, 0, &import->pointer))
        return;
    pthread_rwlock_rdlock(&queueing);
    check_later(worker, flow, import->pointer, PART, COMMON_VALUE);
    check_later(worker, flow, (unsigned char *)import->pointer + COMMON - PART, PART, COMMON_VALUE);
    queue_end(worker, flow);
    pthread_rwlock_unlock(&queueing);
    import->flow = flow;
    import->number = worker->flows[flow].queued;
    if (below(worker, 2) && WELL(SHORT, tarn_import, common.share, 0, &second)) {
        SO(second == import->pointer, "the same share was imported at another place", "%p, not %p",
           second, import->pointer);
        MINE(tarn_import_close(second));
    }
    if (below(worker, 2) && WELL(0, tarn_export, common.start, &again))
        MINE(tarn_share_close(again));
}

static void common_begin(void)
{
    void *got = NULL;
    MINE(tarn_stream_lease(0, 0, &common.stream));
    MINE(tarn_alloc_on(common.stream, COMMON, &got));
    memset(got, COMMON_VALUE, COMMON);
    common.start = got;
    MINE(tarn_export(got, &common.share));
}

/* ---- Compaction, caching, observers ---- */

void op_compact(struct worker *worker)
{
    size_t gained = 0;
    /* Another thread may have anchored it just now */
    const uint64_t reasons = BARRED | SHORT | BIT(TARN_ERROR_BUSY);
    uint64_t now = 0;
    pthread_rwlock_wrlock(&queueing);
    MINE(machine->time(&now)); /* no other thread moves the clock while all wait to queue work */
    MINE(machine->advance(now + 1000000000));
    if (WELL(reasons, tarn_compact, 0, below(worker, 2) ? SIZE_MAX : 4 * MIB, &gained))
        count(COMPACTIONS);
    pthread_rwlock_unlock(&queueing);
}

/* One thread turns caching off and on again beside the others. Meanwhile it must not reuse what it
 * had at hand. */
void op_caching(struct worker *worker)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    int flow = (int)below(worker, STREAMS);
    size_t size = 1 + below(worker, below(worker, 2) ? 40000 : 1u << 20);
    struct block block = {.live = false};
    tarn_block_info info = {.size = sizeof info};
    tarn_mapping range;
    void *got = NULL;
    if (pthread_mutex_trylock(&one))
        return;
    if (WELL(SHORT, tarn_alloc_on, worker->flows[flow].value, size, &got)) {
        taken(&block, got, size, flow);
        give_back(worker, &block);
    }
    MINE(tarn_caching_set(false, NULL));
    if (WELL(SHORT, tarn_alloc_on, worker->flows[flow].value, size, &got)) {
        taken(&block, got, size, flow);
        MINE(tarn_pointer_info_get(got, &info));
        MINE(tarn_mapping_get(got, &range));
        SO(range.address == got || info.pool.first || info.pool.second,
           "a block without caching shares its memory", "%p lies in what begins at %p", got,
           range.address);
        use(worker, flow, &block);
        give_back(worker, &block);
    }
    MINE(tarn_caching_set(true, NULL));
    pthread_mutex_unlock(&one);
}

/* While memory moves, an existing handle is returned and none is created. In a capture the handle
 * would get a workspace that nobody clears. */
static void hear(const tarn_mapping *range, void *user)
{
    struct worker *worker = worker_here;
    void *handle = NULL;
    (void)user;
    SO(range->bytes > 0 && range->device == 0, "a range of nothing", "%zu bytes", range->bytes);
    if (worker && !worker->captures)
        (void)WELL(BIT(TARN_ERROR_BUSY) | BARRED | SHORT, tarn_handle_get, library,
                   worker->flows[0].value, &handle);
}

/* ---- The run ---- */

void moves_begin(uint64_t random)
{
    const tarn_observer_options options = {
        .size = sizeof options, .device = TARN_ALL_DEVICES, .mapped = hear, .unmapping = hear};
    tarn_observer observer = 0;
    exports = random % 2 && tarn_export_enable(0) == TARN_OK;
    if (exports)
        common_begin();
    if (random / 2 % 2)
        MINE(tarn_observer_add(&options, &observer));
}

void moves_begin_of(struct worker *worker)
{
    char name[16];
    snprintf(name, sizeof name, "thread %d", worker->number);
    MINE(tarn_tag_intern(name, &worker->tag));
    MINE(tarn_pool_create(NULL, &worker->pool));
    MINE(tarn_pool_tag_set(worker->pool, worker->tag));
}

/* Wakes what sleeps, since there is room now. */
static void wake(struct worker *worker)
{
    if (worker->night == TARN_SLEEP_PREPARED)
        MINE(tarn_sleep_cancel());
    else if (worker->night == TARN_SLEEP_ASLEEP)
        MINE(tarn_wake());
    worker->discards &= worker->night == TARN_SLEEP_ASLEEP;
    if (worker->night != TARN_SLEEP_AWAKE)
        kept_is_there(worker);
    worker->night = TARN_SLEEP_AWAKE;
}

void moves_end(void)
{
    if (common.share) {
        MINE(tarn_share_close(common.share));
        MINE(tarn_free(common.start));
        MINE(tarn_stream_return(common.stream));
    }
    MINE(tarn_device_trim(0, 0));
    for (int i = 0; i < thread_count; i++) {
        struct worker *worker = &workers[i];
        wake(worker);
        if (worker->guest)
            MINE(tarn_sleeper_remove(worker->guest));
        for (int k = 0; k < KEPT; k++)
            if (worker->kept[k].live)
                give_back(worker, &worker->kept[k]);
        MINE(tarn_pool_release(worker->pool));
    }
}
