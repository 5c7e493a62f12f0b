/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What test_failures.c demands, with private pools: a call that fails must leave its results, the
 * live blocks, the pools, their counts, scopes and captures as they should be; and once nothing
 * fails any more the same scenario must succeed and leave nothing. */
#include "driver/driver.h"
#include "support/failures.h"
#include "support/host.h"
#include "support/painted.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (96 * MIB)
#define POOLS 4
#define SCOPES 4

static struct {
    tarn_pool *pools[POOLS];
    tarn_scope scopes[SCOPES]; /* in the order of their begin; 0: not open */
    tarn_stream streams[2], adopted;
    void *native;    /* of a stream to adopt */
    bool capturing;  /* streams[0] */
    void *graphs[2]; /* NULL: none */
} t;

static void make(int index, bool use_on_oom)
{
    tarn_pool_options options = {.size = sizeof options, .device = 0, .use_on_oom = use_on_oom};
    tarn_pool *pool = (tarn_pool *)&t;
    if (TRY(tarn_pool_create(&options, &pool)))
        t.pools[index] = pool;
    else
        CHECK(pool == (tarn_pool *)&t);
}

static void drop(int index)
{
    OK(tarn_pool_release(t.pools[index]));
    t.pools[index] = NULL;
}

static void allocate_from(int index, tarn_stream stream, size_t size)
{
    if (t.pools[index])
        (void)painted_alloc(t.pools[index], stream, size);
}

static void allocate_on(tarn_stream stream, size_t size)
{
    (void)painted_alloc(NULL, stream, size);
}

static void begin_scope(int index, int pool, tarn_scope_kind kind)
{
    tarn_scope scope = 77;
    unsigned before = 0, count = 0;
    if (!t.pools[pool])
        return;
    before = pool_info_of(t.pools[pool]).use_count;
    bool begun = TRY(tarn_scope_begin(t.pools[pool], kind, t.streams[0], &scope));
    count = pool_info_of(t.pools[pool]).use_count;
    CHECK(count == before + begun && (begun || scope == 77));
    t.scopes[index] = begun ? scope : 0;
}

static void end_scope(int index)
{
    if (t.scopes[index])
        OK(tarn_scope_end(t.scopes[index])); /* which cannot fail */
    t.scopes[index] = 0;
}

/* Scenarios ------------------------------------------------------------------------------------ */

static void pools_come_and_go(void)
{
    make(0, false);
    make(1, true);
    for (size_t i = 0; i < 6; i++) {
        allocate_from(0, t.streams[i % 2], i % 3 ? 700 + i * 3000 : i * MIB + 1);
        allocate_from(1, t.streams[1], (i + 1) * 90000);
    }
    painted_free_every_second();
    drop(0); /* with live blocks */
    allocate_on(t.streams[0], 5 * MIB);
    while (painted.count > 2)
        painted_free(0);
    make(2, false);
    allocate_from(2, t.streams[0], 12 * MIB);
    drop(2);
    drop(1);
    allocate_on(t.streams[1], 9 * MIB);
}

static void scopes_begin_and_end(void)
{
    make(0, false);
    make(1, false);
    begin_scope(0, 0, TARN_SCOPE_ALWAYS);
    allocate_on(t.streams[1], 3 * MIB);
    begin_scope(1, 1, TARN_SCOPE_STREAM);
    allocate_on(t.streams[0], 5000);
    begin_scope(2, 0, TARN_SCOPE_THREAD);
    allocate_on(t.streams[0], 4 * MIB);
    drop(0); /* the scopes count it */
    end_scope(0);
    allocate_on(t.streams[0], 800);
    end_scope(2);
    end_scope(1);
    drop(1);
}

/* A pool that serves where the device is full, and two that may not. */
static void memory_runs_out(void)
{
    void *pointer = &t;
    make(0, true);
    make(1, false);
    allocate_from(0, t.streams[0], 30 * MIB);
    allocate_from(1, t.streams[0], 20 * MIB);
    painted_free_all();
    allocate_on(t.streams[0], 40 * MIB);
    tarn_status status = tarn_alloc_on(t.streams[0], 28 * MIB, &pointer);
    if (went_well(status, true, "alloc"))
        painted_add(pointer, 28 * MIB);
    pointer = &t;
    status = t.pools[1] ? tarn_pool_alloc(t.pools[1], t.streams[1], 60 * MIB, &pointer)
                        : TARN_ERROR_OUT_OF_MEMORY;
    if (went_well(status, true, "alloc"))
        painted_add(pointer, 60 * MIB);
    for (int i = 0; i < 2; i++)
        if (t.pools[i])
            drop(i);
}

static void pools_are_trimmed(void)
{
    make(0, false);
    for (size_t i = 0; i < 6; i++)
        allocate_from(0, t.streams[i % 2], (i + 1) * 2 * MIB);
    for (int i = painted.count - 1; i > 0; i -= 2) {
        (void)machine->work(0, native_of(t.streams[i % 2]), painted.blocks[i].start, 1, 500);
        painted_free(i);
    }
    if (!t.pools[0])
        return;
    (void)TRY(tarn_pool_trim(t.pools[0], 20 * MIB));
    (void)TRY(tarn_pool_trim(t.pools[0], 0));
    drop(0);
}

/* Segments come, are registered, go and come back, one after the other. */
static void pools_are_registrable(void)
{
    tarn_device_properties device = {.size = sizeof device};
    tarn_pool_options options = {.size = sizeof options, .device = 0, .registrable = true};
    size_t count = 0;
    allocate_on(t.streams[1], 3 * MIB);
    if (!TRY(tarn_device_properties_get(0, &device)) || !device.exportable ||
        !TRY(tarn_pool_create(&options, &t.pools[0])))
        return;
    allocate_from(0, t.streams[0], 900);
    allocate_from(0, t.streams[1], 20 * MIB);
    void *first = painted.count ? painted.blocks[0].start : NULL;
    bool anchored = first && TRY(tarn_anchor(first, 1));
    if (TRY(tarn_pool_segments_get(t.pools[0], NULL, 0, &count)))
        CHECK(count <= 2);
    if (painted.count)
        painted_free(painted.count - 1);
    (void)TRY(tarn_pool_trim(t.pools[0], 0));
    if (anchored)
        OK(tarn_unanchor(first, 1));
    allocate_from(0, t.streams[1], 33 * MIB);
    painted_free_all();
    (void)TRY(tarn_pool_trim(t.pools[0], 0));
    drop(0);
}

static void end_capture(bool with_graph, void **graph)
{
    if (!with_graph) {
        t.capturing = !TRY(tarn_capture_abort(t.streams[0]));
        return;
    }
    *graph = NULL;
    if (TRY(tarn_capture_end(t.streams[0], graph)))
        t.capturing = false;
    else
        CHECK(!*graph);
}

/* The pool of a graph goes on with the graph, and with it alone. */
static void capture(int pool, void **graph, bool with_graph)
{
    void *inside = NULL;
    if (!TRY(tarn_pool_capture_begin(pool < 0 ? NULL : t.pools[pool], t.streams[0],
                                     TARN_CAPTURE_RELAXED)))
        return;
    t.capturing = true;
    if (TRY(tarn_alloc_on(t.streams[0], 3 * MIB, &inside))) {
        (void)machine->work(0, native_of(t.streams[0]), inside, 3 * MIB, 100);
        OK(tarn_free(inside));
    }
    allocate_on(t.streams[0], 900);
    end_capture(with_graph, graph);
    if (device_is_lost()) {
        t.capturing = false; /* it is over with its device */
        return;
    }
    /* It is over without a graph, or the driver could not end it: then it is open still */
    if (t.capturing) {
        tarn_capture_state state = TARN_CAPTURE_NONE;
        injecting ? clear_injection() : (void)0;
        if (TRY(tarn_capture_state_get(t.streams[0], &state, NULL, NULL)) &&
            state != TARN_CAPTURE_NONE)
            (void)TRY(tarn_capture_abort(t.streams[0]));
        t.capturing = false;
    }
    if (*graph)
        /* The test's own: for lack of host memory */
        (void)machine->graph_launch(0, *graph, native_of(t.streams[0]));
}

static void captures_end_with_graphs(void)
{
    make(0, false);
    capture(-1, &t.graphs[0], true);
    if (t.pools[0]) {
        capture(0, &t.graphs[1], true);
        drop(0); /* the graph counts it */
    }
}

static void captures_are_aborted(void)
{
    void *none = NULL;
    capture(-1, &none, false);
    make(0, false);
    if (t.pools[0]) {
        capture(0, &none, false);
        drop(0);
    }
}

/* Begun by the caller, who tells the graph. */
static void captures_are_announced(void)
{
    make(0, false);
    if (!t.pools[0] || !TRY(tarn_pool_capture_announce(t.pools[0], t.streams[0])))
        return;
    allocate_on(t.streams[0], 3 * MIB);
    allocate_on(t.streams[0], 3000);
    (void)machine->work(0, native_of(t.streams[0]), NULL, 0, 100);
    while (!TRY(tarn_capture_end_announced(t.streams[0], NULL)) && !device_is_lost())
        clear_injection();
    drop(0);
}

static void streams_are_retired(void)
{
    make(0, false);
    if (!TRY(tarn_stream_adopt(0, t.native, &t.adopted)))
        return;
    allocate_from(0, t.adopted, 3 * MIB);
    allocate_from(0, t.adopted, 3000);
    allocate_on(t.adopted, 5 * MIB);
    allocate_on(t.adopted, 5000);
    painted_free_every_second();
    if (TRY(tarn_stream_retire(t.adopted)))
        t.adopted = 0;
    allocate_from(0, t.streams[0], 3 * MIB);
}

/* What must hold after a scenario, whatever failed in it. Leaves nothing behind. */
static void settle(void)
{
    painted_check();
    verify(0);
    CHECK(!t.capturing);
    for (int i = 0; i < 2; i++) {
        if (t.graphs[i])
            OK(machine->graph_destroy(t.graphs[i]));
        t.graphs[i] = NULL;
    }
    for (int i = SCOPES - 1; i >= 0; i--)
        end_scope(i);
    painted_free_all();
    for (int i = 0; i < POOLS; i++) {
        unsigned count = 1;
        if (t.pools[i])
            count = pool_info_of(t.pools[i]).use_count;
        CHECK(count == 1 || ledger_of(0).graphs > 0);
        drop(i);
    }
    if (t.adopted)
        OK(tarn_stream_retire(t.adopted));
    t.adopted = 0;
    nothing_is_left(0);
}

static const struct scenario scenarios[] = {
    {"pools come and go", pools_come_and_go},
    {"scopes begin and end", scopes_begin_and_end},
    {"memory runs out", memory_runs_out},
    {"pools are trimmed", pools_are_trimmed},
    {"pools are registrable", pools_are_registrable},
    {"captures end with graphs", captures_end_with_graphs},
    {"captures are aborted", captures_are_aborted},
    {"captures are announced", captures_are_announced},
    {"streams are retired", streams_are_retired},
};

static void lost(void)
{
    painted_check();
    for (int i = SCOPES - 1; i >= 0; i--)
        end_scope(i);
    painted_free_all();
    for (int i = 0; i < POOLS; i++)
        drop(i);
    painted_check();
}

static void set_up(void)
{
    for (int i = 0; i < 2; i++)
        t.streams[i] = lease(0);
    OK(driver->stream_create(0, 0, false, &t.native));
}

static void any_failure_leaves_what_lives_and_passes(void **state)
{
    (void)state;
    static const struct scenarios shared = {.set_up = set_up, .settle = settle, .lost = lost};
    each_failure_of(&shared, scenarios, sizeof scenarios / sizeof *scenarios);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_failure_leaves_what_lives_and_passes)};
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
