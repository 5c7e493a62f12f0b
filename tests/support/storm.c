/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A storm's threads, their blocks and the mailboxes between them. A block belongs to the thread
 * whose worker has it. The mailboxes are exchanged atomically. */
#include "support/storm.h"

#include "base/pages.h"
#include "driver/driver.h"
#include "support/shadow.h"
#include "support/snapshots.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAILBOXES 24

tarn_stream storm_shared[STORM_SHARED];
uint64_t storm_seed = 1;
bool storm_injects;

static struct storm_worker workers[STORM_THREADS_MOST];
static unsigned worker_count;
static _Atomic(struct storm_block *) mailboxes[MAILBOXES];

int storm_steps(int otherwise)
{
    const char *text = getenv("TARN_STORM_STEPS");
    return text ? atoi(text) : otherwise;
}

uint64_t storm_below(struct storm_worker *worker, uint64_t limit)
{
    return random_next(&worker->random) % limit;
}

tarn_stream storm_stream(struct storm_worker *worker)
{
    switch (storm_below(worker, 4)) {
    case 0:
        return worker->adopted;
    case 1:
        return storm_below(worker, 2) ? TARN_STREAM_LEGACY : TARN_STREAM_PER_THREAD;
    default:
        return storm_shared[storm_below(worker, STORM_SHARED)];
    }
}

size_t storm_size(struct storm_worker *worker)
{
    static const size_t most[] = {2000, 2000, 70000, 70000, MIB, 3 * MIB, 12 * MIB, 40 * MIB};
    return 1 + storm_below(worker, most[storm_below(worker, 8)]);
}

bool storm_may_fail(tarn_status status)
{
    return status == TARN_ERROR_OUT_OF_MEMORY || status == TARN_ERROR_OUT_OF_HOST_MEMORY ||
           (storm_injects && (status == TARN_ERROR_DRIVER || status == TARN_ERROR_MAPPING_LIMIT));
}

/* ---- Blocks ---- */

/* Paints a few bytes at both ends and in the middle: if two blocks share memory, one of them finds
 * it. */
static void paint(const struct storm_block *block)
{
    for (size_t i = 0; i < block->size; i += block->size / 37 + 1)
        block->start[i] = block->paint;
    block->start[block->size - 1] = block->paint;
}

static void check_paint(const struct storm_block *block)
{
    bool whole = block->start[block->size - 1] == block->paint;
    for (size_t i = 0; i < block->size && whole; i += block->size / 37 + 1)
        whole = block->start[i] == block->paint;
    CHECK(whole);
}

void storm_begin_block(struct storm_worker *worker, struct storm_block *block, void *start,
                       size_t size)
{
    *block = (struct storm_block){start, size, (unsigned char)storm_below(worker, 256)};
    shadow_enter(start, size);
    paint(block);
}

/* Frees a block after the work that a stream has now. */
static tarn_status free_after(struct storm_worker *worker, void *start)
{
    tarn_event *event = NULL;
    tarn_status status = tarn_event_create(0, &event);
    if (!status && !(status = tarn_event_record(event, storm_stream(worker))))
        status = tarn_free_after(start, event);
    (void)tarn_event_destroy(event);
    return status;
}

void storm_end_block(struct storm_worker *worker, struct storm_block *block)
{
    tarn_status status = TARN_ERROR_NO_ROOM;
    uint64_t how = storm_below(worker, 8);
    check_paint(block);
    shadow_leave(block->start, block->size); /* before another thread can get the block */
    if (how < 2)
        status = tarn_free_on(block->start, storm_stream(worker));
    else if (how == 2)
        status = free_after(worker, block->start);
    if (status) {
        CHECK(status == TARN_ERROR_NO_ROOM || storm_may_fail(status)); /* the block is still live */
        check_paint(block);
        OK(tarn_free(block->start));
    }
    block->start = NULL;
}

static void use_on_stream(struct storm_worker *worker, struct storm_block *block)
{
    tarn_stream stream = storm_stream(worker);
    tarn_status status =
        tarn_record_stream(block->start + storm_below(worker, block->size), stream);
    CHECK(!status || storm_may_fail(status));
    if (!status)
        (void)tarn_host_work(0, native_of(stream), block->start, block->size,
                             storm_below(worker, 3000));
}

static void extend(struct storm_worker *worker, struct storm_block *block)
{
    size_t size = 0;
    if (tarn_extend(block->start, block->size + storm_below(worker, 4096)) != TARN_OK)
        return;
    OK(tarn_usable_size_get(block->start, &size));
    shadow_leave(block->start, block->size);
    shadow_enter(block->start, size);
    block->size = size;
    paint(block);
}

void storm_use(struct storm_worker *worker, struct storm_block *block)
{
    tarn_block_info info = {.size = sizeof info};
    check_paint(block);
    switch (storm_below(worker, 3)) {
    case 0:
        use_on_stream(worker, block);
        break;
    case 1:
        extend(worker, block);
        break;
    default:
        OK(tarn_pointer_info_get(block->start + storm_below(worker, block->size), &info));
        CHECK(info.base == block->start && info.usable_size >= block->size);
    }
}

void storm_exchange(struct storm_worker *worker, struct storm_block *block)
{
    struct storm_block *parcel = malloc(sizeof *parcel);
    CHECK(parcel);
    *parcel = *block;
    parcel = atomic_exchange(&mailboxes[storm_below(worker, MAILBOXES)], parcel);
    block->start = NULL;
    if (parcel)
        *block = *parcel;
    free(parcel);
}

/* ---- Failures and limits ---- */

void storm_calm(tarn_status status)
{
    CHECK(storm_may_fail(status));
    pages_fail(0, false);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
}

void storm_renew_stream(struct storm_worker *worker)
{
    tarn_status status;
    while ((status = tarn_stream_set(TARN_STREAM_LEGACY))) /* the stream may be the current one */
        storm_calm(status);
    if ((status = tarn_stream_retire(worker->adopted))) {
        CHECK(storm_may_fail(status));
        return;
    }
    while ((status = tarn_stream_adopt(0, worker->native, &worker->adopted)))
        storm_calm(status);
}

void storm_inject(struct storm_worker *worker)
{
    static const tarn_status failures[] = {TARN_ERROR_OUT_OF_MEMORY, TARN_ERROR_DRIVER,
                                           TARN_ERROR_MAPPING_LIMIT};
    if (!storm_injects)
        return;
    switch (storm_below(worker, 3)) {
    case 0:
        OK(tarn_host_fail_set((int)storm_below(worker, (uint64_t)DRIVER_CALLS + 1) - 1,
                              1 + storm_below(worker, 20), storm_below(worker, 4) == 0,
                              failures[storm_below(worker, 3)]));
        break;
    case 1:
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        break;
    default:
        pages_fail(storm_below(worker, 2) ? 0 : 1 + storm_below(worker, 50),
                   storm_below(worker, 8) == 0);
    }
}

/* ---- The storm ---- */

int storm_set_up(void **state)
{
    const char *text = getenv("TARN_SEED");
    (void)state;
    if (text)
        storm_seed = strtoull(text, NULL, 10);
    for (int i = 0; i < STORM_SHARED; i++)
        storm_shared[i] = lease(0);
    return 0;
}

void storm_run(unsigned threads, void *(*body)(void *worker), bool injects)
{
    pthread_t running[STORM_THREADS_MOST];
    storm_injects = injects;
    worker_count = threads;
    memset(workers, 0, sizeof workers);
    for (unsigned i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].random = (storm_seed * threads + i + 1) * 0x9e3779b97f4a7c15u;
        workers[i].native = native_made(0);
        OK(tarn_stream_adopt(0, workers[i].native, &workers[i].adopted));
    }
    snapshots_begin(injects);
    for (unsigned i = 0; i < threads; i++)
        CHECK(pthread_create(&running[i], NULL, body, &workers[i]) == 0);
    for (unsigned i = 0; i < threads; i++)
        CHECK(pthread_join(running[i], NULL) == 0);
    pages_fail(0, false);
    snapshots_end();
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    /* memory that was freed in the order of a stream has arrived at the driver */
    OK(tarn_device_synchronize(0));
    verify(0);
}

void storm_finish(void)
{
    for (unsigned i = 0; i < worker_count; i++) {
        for (int k = 0; k < STORM_BLOCKS; k++)
            if (workers[i].blocks[k].start)
                storm_end_block(&workers[i], &workers[i].blocks[k]);
    }
    for (int i = 0; i < MAILBOXES; i++) {
        struct storm_block *parcel = atomic_exchange(&mailboxes[i], NULL);
        if (parcel && parcel->start)
            storm_end_block(&workers[0], parcel);
        free(parcel);
    }
    for (unsigned i = 0; i < worker_count; i++)
        OK(tarn_stream_retire(workers[i].adopted));
    shadow_is_empty();
    OK(tarn_device_synchronize(0));
    verify(0);
    nothing_is_left(0);
}
