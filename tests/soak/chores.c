/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The chores: what tarn has beside allocations and frees, one at a time and at random between the
 * steps of the mix, with driver calls that fail and limits that change all the while. A call must
 * succeed, or fail with a status that may come of that. */
#include "chores.h"

#include <stdio.h>
#include <stdlib.h>
#include <tarn/metrics.h>

tarn_stream shared[DEVICES][SHARED];
static void *shared_native[DEVICES][SHARED];
static atomic_uint_fast64_t injected;
static atomic_bool fails_for_ever;

bool went(const char *call, tarn_status status, uint64_t also)
{
    if (!status)
        return true;
    also |= MAY(TARN_ERROR_OUT_OF_MEMORY) | MAY(TARN_ERROR_DRIVER) | MAY(TARN_ERROR_MAPPING_LIMIT);
    if (!(also & MAY(status)))
        wrong("%s gave %s: %s", call, tarn_status_name(status), tarn_last_error());
    return false;
}

static void count_injected(void)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    OK(tarn_host_ledger_get(0, &ledger));
    atomic_fetch_add(&injected, ledger.failed);
}

void calm(void)
{
    count_injected();
    (void)tarn_host_fail_set(-1, 0, false, TARN_OK);
    (void)tarn_device_limit_set(0, TARN_NO_LIMIT);
    (void)tarn_device_limit_set(1, TARN_NO_LIMIT);
}

uint64_t failures_injected(void)
{
    return atomic_load(&injected);
}

struct place some_place(struct worker *worker, int device)
{
    uint64_t which = below(worker, SHARED + 2);
    if (which < SHARED)
        return (struct place){shared[device][which], shared_native[device][which], device};
    bool adopted = which == SHARED && worker->adopted[device];
    return (struct place){adopted ? worker->adopted[device] : worker->lent[device],
                          worker->native[device], device};
}

size_t some_bytes(struct worker *worker)
{
    static const size_t most[] = {2000,  2000,   2000,   70000, 70000,
                                  70000, 300000, 300000, MIB,   5 * MIB};
    return 16 + below(worker, most[below(worker, sizeof most / sizeof *most)]);
}

void leave(struct worker *worker, void *block, size_t size)
{
    void **slot = &worker->slots[below(worker, SLOTS)];
    if (*slot) {
        OK(tarn_free(block));
        return;
    }
    mix_adopt(block, size);
    *slot = block;
}

void settle(tarn_stream stream)
{
    for (int tries = 0; !OK(tarn_stream_synchronize(stream)); tries++) {
        calm();
        if (tries > 1000) {
            wrong("a stream cannot be waited for: %s", tarn_last_error());
            return;
        }
    }
}

/* Where the mix allocates from now on. */
static void do_stream(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    uint64_t which = below(worker, 8);
    OK(tarn_device_set(device));
    if (which < 2)
        OK(tarn_stream_set(which ? TARN_STREAM_PER_THREAD : TARN_STREAM_LEGACY));
    else /* not one that is retired soon */
        OK(tarn_stream_set(which < 4 ? worker->lent[device] : shared[device][which % SHARED]));
}

static void pass_time(struct worker *worker)
{
    uint64_t now = 0;
    OK(tarn_host_time_get(&now));
    OK(tarn_host_advance(now + below(worker, 20000)));
}

/* Work on streams, blocks that several of them use, and all ways to free one. */
static void do_work(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    struct place place = some_place(worker, device), other = some_place(worker, device);
    void *block = NULL;
    size_t size = some_bytes(worker);
    tarn_event *event = NULL;
    if (!OK(tarn_alloc_on(place.stream, size, &block)))
        return;
    OK(tarn_host_work(device, place.native, block, size, below(worker, 10000)));
    bool is_recorded = below(worker, 2) &&
                       OK(tarn_record_stream((char *)block + below(worker, size), other.stream));
    if (is_recorded)
        OK(tarn_host_work(device, other.native, block, size, below(worker, 10000)));
    pass_time(worker);
    switch (below(worker, 4)) {
    case 0:
        if (!OK(tarn_free_on(block, other.stream)))
            OK(tarn_free(block));
        break;
    case 1:
        if (!OK(tarn_event_create(device, &event)) || !OK(tarn_event_record(event, other.stream)) ||
            !OK(tarn_free_after(block, event)))
            OK(tarn_free(block));
        OK_OR(tarn_event_destroy(event), 0);
        break;
    case 2:
        leave(worker, block, size);
        break;
    default:
        OK(tarn_free(block));
    }
}

/* Work that really writes: the memory must be there and be the block's alone. */
static void do_fill(struct worker *worker)
{
    int device = (int)below(worker, DEVICES), value = (int)below(worker, 255) + 1;
    unsigned char *block = NULL;
    size_t size = some_bytes(worker);
    if (!OK(tarn_alloc_on(worker->lent[device], size, (void **)&block)))
        return;
    if (OK(tarn_host_fill(device, worker->native[device], block, value, size))) {
        settle(worker->lent[device]);
        if (block[0] != value || block[size / 2] != value || block[size - 1] != value)
            wrong("a fill of %zu bytes is not what is there", size);
    }
    OK(tarn_free(block));
}

/* Streams come and go, with what is freed on them. */
static void do_lease(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    tarn_stream stream = 0;
    void *block = NULL;
    if (worker->adopted[device]) {
        if (OK(tarn_stream_retire(worker->adopted[device])))
            worker->adopted[device] = 0;
    } else if (OK(tarn_stream_adopt(device, worker->native[device], &stream))) {
        worker->adopted[device] = stream;
    }
    if (!OK(tarn_stream_lease(device, -(int)below(worker, 2), &stream)))
        return;
    if (OK(tarn_alloc_on(stream, some_bytes(worker), &block)))
        OK(tarn_free(block));
    for (int tries = 0; !OK(tarn_stream_return(stream)) && tries < 100; tries++)
        calm();
}

static void do_event(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    struct place place = some_place(worker, device), other = some_place(worker, device);
    tarn_event *event = NULL;
    if (!OK(tarn_event_create(device, &event)))
        return;
    if (OK(tarn_event_record(event, place.stream))) {
        OK(tarn_stream_wait(other.stream, event));
        OK_OR(tarn_event_query(event), MAY(TARN_ERROR_NOT_READY));
    }
    OK(tarn_event_destroy(event));
}

static void do_pinned(struct worker *worker)
{
    struct place place = some_place(worker, (int)below(worker, DEVICES));
    unsigned char *blocks[6] = {0};
    for (int i = 0; i < 6; i++) {
        size_t size = 1 + below(worker, i % 2 ? 300 * KIB : 5000);
        if (!OK(tarn_pinned_alloc(place.stream, size, (void **)&blocks[i])))
            continue;
        blocks[i][0] = blocks[i][size - 1] = (unsigned char)i;
        if (below(worker, 2) && OK(tarn_record_stream(blocks[i], place.stream)))
            OK(tarn_host_work(place.device, place.native, NULL, 0, below(worker, 5000)));
    }
    for (int i = 0; i < 6; i++) {
        if (blocks[i] && blocks[i][0] != i)
            wrong("a pinned block has another's contents");
        OK(tarn_free(blocks[i]));
    }
    if (below(worker, 16) == 0)
        OK_OR(tarn_pinned_trim(below(worker, 4 * MIB)), MAY(TARN_ERROR_CAPTURE));
}

static void do_trim(struct worker *worker)
{
    size_t keep = below(worker, 2) ? 0 : below(worker, 64 * MIB);
    OK_OR(tarn_device_trim((int)below(worker, DEVICES), keep), MAY(TARN_ERROR_CAPTURE));
}

static uint64_t kinds_of_calls(void)
{
    int kinds = 0;
    while (tarn_host_call_name(kinds))
        kinds++;
    return (uint64_t)kinds;
}

/* One worker a time lets everything fail, and for no longer than a few requests take. */
static void do_failures(struct worker *worker)
{
    static const tarn_status statuses[] = {TARN_ERROR_OUT_OF_MEMORY, TARN_ERROR_DRIVER,
                                           TARN_ERROR_MAPPING_LIMIT};
    int kind = below(worker, 2) ? -1 : (int)below(worker, kinds_of_calls());
    bool for_ever = below(worker, 8) == 0 && !atomic_exchange(&fails_for_ever, true);
    count_injected();
    OK(tarn_host_fail_set(kind, 1 + below(worker, 20), for_ever, statuses[below(worker, 3)]));
    if (for_ever) {
        mix_run(&tarn, worker, 256);
        calm();
        atomic_store(&fails_for_ever, false);
    }
}

static void do_limit(struct worker *worker)
{
    bool is_small = below(worker, 3) == 0;
    OK(tarn_device_limit_set((int)below(worker, DEVICES),
                             is_small ? 16 * MIB + below(worker, 64 * MIB) : TARN_NO_LIMIT));
}

/* More than there is: every step of the ladder. */
static void do_shortage(struct worker *worker)
{
    void *block = NULL;
    int device = (int)below(worker, DEVICES);
    if (OK(tarn_alloc_on(worker->lent[device], (16 + below(worker, 2048)) * MIB, &block)))
        OK(tarn_free(block));
}

#define RECORDS 4096 /* of the trace, a thread */

static void do_trace(struct worker *worker)
{
    tarn_trace_options options = {.size = sizeof options, .records = RECORDS};
    options.stacks = below(worker, 16) ? TARN_TRACE_STACKS_NONE : TARN_TRACE_STACKS_ALLOC;
    options.regions = below(worker, 2);
    switch (below(worker, 4)) {
    case 0:
        OK(tarn_trace_start(&options));
        break;
    case 1:
        OK(tarn_trace_stop());
        break;
    case 2:
        OK(tarn_trace_clear());
        break;
    default:
        if (OK(tarn_region_push(below(worker, 2) ? "step" : "layer"))) {
            mix_run(&tarn, worker, 32);
            OK(tarn_region_pop());
        }
    }
}

static bool take(const void *data, size_t size, void *user)
{
    (void)data;
    *(uint64_t *)user += size;
    return true;
}

static void do_snapshot(struct worker *worker)
{
    uint64_t bytes = 0;
    tarn_snapshot_options options = {.size = sizeof options, .max_bytes = TARN_NO_LIMIT};
    options.format = below(worker, 2) ? TARN_SNAPSHOT_PICKLE : TARN_SNAPSHOT_CHROME;
    if (OK(tarn_snapshot_print(take, &bytes, &options)) && bytes == 0)
        wrong("a snapshot has no bytes");
    OK(tarn_metrics_print(take, &bytes));
}

/* Questions, and what is no question at all. */
static void do_questions(struct worker *worker)
{
    static char not_ours[16];
    void *block = worker->slots[below(worker, SLOTS)];
    tarn_stats stats = {.size = sizeof stats};
    tarn_block_info info = {.size = sizeof info};
    size_t size = 0, total = 0;
    if (block) {
        OK(tarn_usable_size_get(block, &size));
        if (OK(tarn_pointer_info_get((char *)block + below(worker, size), &info)) &&
            info.base != block)
            wrong("a block at %p is said to begin at %p", block, info.base);
        OK_OR(tarn_extend(block, size + below(worker, 4096)), MAY(TARN_ERROR_NO_ROOM));
    }
    OK(tarn_device_stats_get((int)below(worker, DEVICES), &stats));
    OK(tarn_device_memory_get((int)below(worker, DEVICES), &size, &total));
    if (tarn_free(not_ours) != TARN_ERROR_INVALID_POINTER ||
        tarn_free((void *)8) != TARN_ERROR_INVALID_POINTER)
        wrong("a pointer that is not a tarn block was freed");
    if (tarn_stream_set((tarn_stream)0x7fffffff00000007) != TARN_ERROR_INVALID_STREAM)
        wrong("a value that is not a stream was taken for one");
}

static void note_range(const tarn_mapping *range, void *user)
{
    atomic_fetch_add((atomic_uint_fast64_t *)user, range->bytes > 0);
}

static void do_observer(struct worker *worker)
{
    static atomic_uint_fast64_t seen;
    tarn_observer observer = 0;
    tarn_observer_options options = {.size = sizeof options,
                                     .device = TARN_ALL_DEVICES,
                                     .user = &seen,
                                     .mapped = note_range,
                                     .unmapping = note_range};
    if (!OK(tarn_observer_add(&options, &observer)))
        return;
    mix_run(&tarn, worker, 64);
    OK(tarn_observer_remove(observer));
}

static void do_death(struct worker *worker)
{
    worker->dies = true;
}

static struct chore {
    const char *name;
    unsigned weight;
    void (*run)(struct worker *worker);
    atomic_uint_fast64_t times;
} chores[] = {
    {"streams", 60, do_stream, 0},
    {"work", 200, do_work, 0},
    {"fills", 20, do_fill, 0},
    {"leases", 40, do_lease, 0},
    {"events", 60, do_event, 0},
    {"pinned", 60, do_pinned, 0},
    {"trims", 6, do_trim, 0},
    {"failures", 60, do_failures, 0},
    {"limits", 30, do_limit, 0},
    {"shortages", 6, do_shortage, 0},
    {"traces", 30, do_trace, 0},
    {"snapshots", 1, do_snapshot, 0},
    {"questions", 60, do_questions, 0},
    {"handles", 60, do_handle, 0},
    {"observers", 10, do_observer, 0},
    {"threads", 60, do_death, 0},
    {"pools", 60, do_pool, 0},
    {"scopes", 40, do_scope, 0},
    {"workspaces", 60, do_workspace, 0},
    {"shares", 30, do_share, 0},
    {"pins", 20, do_pin, 0},
    {"captures", 60, do_capture, 0},
    {"suspends", 30, do_suspend, 0},
    {"checkpoints", 20, do_checkpoint, 0},
};
#define CHORES (sizeof chores / sizeof *chores)

static unsigned weights; /* their sum */

void chores_run(struct worker *worker)
{
    uint64_t turn = below(worker, weights);
    int which = 0;
    for (; turn >= chores[which].weight; which++)
        turn -= chores[which].weight;
    atomic_store_explicit(&worker->chore, which, memory_order_relaxed);
    chores[which].run(worker);
    atomic_store_explicit(&worker->chore, -1, memory_order_relaxed);
    atomic_fetch_add_explicit(&chores[which].times, 1, memory_order_relaxed);
}

const char *chore_name(int chore)
{
    return chore < 0 ? "the mix" : chores[chore].name;
}

void chores_print(void)
{
    printf("done:");
    for (size_t i = 0; i < CHORES; i++)
        printf("%s %llu %s", i ? "," : "", (unsigned long long)atomic_load(&chores[i].times),
               chores[i].name);
    printf("; %llu calls of the driver were made to fail\n",
           (unsigned long long)failures_injected());
    for (size_t i = 0; i < CHORES; i++)
        if (atomic_load(&chores[i].times) == 0)
            printf("(there was no time for %s)\n", chores[i].name);
}

void must(bool is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "soak: %s: %s\n", what, tarn_last_error());
    exit(1);
}

void chores_start(struct worker *workers, unsigned count)
{
    handles_start();
    for (int device = 0; device < DEVICES; device++) {
        for (int i = 0; i < SHARED; i++)
            must(tarn_stream_lease(device, 0, &shared[device][i]) == TARN_OK &&
                     tarn_stream_native_get(shared[device][i], &shared_native[device][i]) ==
                         TARN_OK,
                 "tarn_stream_lease");
        for (unsigned i = 0; i < count; i++)
            must(tarn_stream_lease(device, 0, &workers[i].lent[device]) == TARN_OK &&
                     tarn_stream_native_get(workers[i].lent[device], &workers[i].native[device]) ==
                         TARN_OK,
                 "tarn_stream_lease");
    }
    for (size_t i = 0; i < CHORES; i++)
        weights += chores[i].weight;
}

void chores_tidy(struct worker *worker)
{
    handles_tidy(worker);
    for (int device = DEVICES; device-- > 0;) {
        for (int tries = 0; worker->adopted[device] && tries < 100; tries++) {
            calm();
            if (OK(tarn_stream_retire(worker->adopted[device])))
                worker->adopted[device] = 0;
        }
        OK(tarn_device_set(device));
        OK(tarn_stream_set(TARN_STREAM_LEGACY));
    }
}

void chores_warm(void)
{
    OK(tarn_trace_start(
        &(tarn_trace_options){.size = sizeof(tarn_trace_options), .records = RECORDS}));
}

void chores_rest(void)
{
    calm();
    OK(tarn_trace_stop());
    OK(tarn_trace_clear());
    handles_rest();
}
