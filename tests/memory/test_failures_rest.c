/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What test_failures.c demands, of the calls that the others do not make: traces, snapshots and
 * metrics; settings while memory is in use; pins; scopes that workers join; what is asked of pools,
 * blocks, streams and devices; pools that callers' graphs keep. */
#include "driver/driver.h"
#include "memory/pressure/release.h"
#include "support/failures.h"
#include "support/host.h"
#include "support/live.h"
#include "support/painted.h"
#include "support/system.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/config.h>
#include <tarn/debug.h>
#include <tarn/metrics.h>
#include <tarn/share.h>
#include <tarn/snapshot.h>
#include <tarn/trace.h>

#include <cmocka.h>

#define MEMORY (96 * MIB)

static struct {
    tarn_stream streams[2];
    tarn_pool *pool; /* NULL: none */
    tarn_scope scope;
    unsigned char *pinned; /* NULL: nothing is */
    void *graph;
    bool announced;
} t;

static bool make(void)
{
    return TRY(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options)}, &t.pool));
}

static void drop(void)
{
    if (t.pool)
        OK(tarn_pool_release(t.pool));
    t.pool = NULL;
}

static bool swallow(const void *data, size_t size, void *user)
{
    (void)data;
    *(size_t *)user += size;
    return true;
}

/* ---- Scenarios ---- */

static void traces_begin_and_end(void)
{
    static int number;
    char name[32];
    size_t printed = 0;
    uint64_t had = 0, missed = 0;
    tarn_trace_options options = {.size = sizeof options, .records = 512, .regions = true};
    snprintf(name, sizeof name, "region %d", number++ % 50); /* a name stays for good */
    (void)TRY(tarn_trace_start(&options));
    bool inside = TRY(tarn_region_push(name));
    painted_alloc(NULL, t.streams[0], 3000);
    painted_alloc(NULL, t.streams[1], 3 * MIB);
    if (inside)
        OK(tarn_region_pop());
    painted_free_every_second();
    (void)TRY(tarn_trace_count_get(&had, &missed));
    (void)TRY(tarn_snapshot_print(swallow, &printed, NULL));
    (void)TRY(tarn_metrics_print(swallow, &printed));
    (void)TRY(tarn_trace_stop());
    (void)TRY(tarn_trace_clear());
    painted_alloc(NULL, t.streams[0], 800);
}

/* The settings are those from before, or the new ones. */
static void settings_change(void)
{
    static const char *const texts[] = {"garbage_collection_threshold:0.5,max_split_size_mb:40",
                                        "roundup_power2_divisions:4", ""};
    char before[2048], now[2048];
    for (int i = 0; i < 3; i++) {
        bool known = TRY(tarn_configuration_get(before, sizeof before, NULL));
        if (!TRY(tarn_configuration_set(texts[i])) && known &&
            TRY(tarn_configuration_get(now, sizeof now, NULL)))
            CHECK(strcmp(before, now) == 0);
        const char *note = NULL;
        (void)TRY(tarn_configuration_note_get(0, &note));
        painted_alloc(NULL, t.streams[i % 2], (size_t)(i + 1) * MIB);
    }
}

static void callers_pin_memory(void)
{
    painted_alloc(NULL, t.streams[0], 5 * MIB);
    painted_alloc(NULL, t.streams[0], 9000);
    if (painted.count == 0)
        return;
    unsigned char *start = painted.blocks[0].start;
    if (TRY(tarn_anchor(start, 5000)))
        t.pinned = start;
    painted_free(0);
    (void)TRY(tarn_device_trim(0, 0));
    if (t.pinned && TRY(tarn_unanchor(t.pinned, 5000)))
        t.pinned = NULL;
    (void)TRY(tarn_device_trim(0, 0));
}

static void work_in_scope(void)
{
    if (!TRY(tarn_scope_join(t.scope)))
        return;
    painted_alloc(NULL, t.streams[1], 2 * MIB);
    OK(tarn_scope_end(t.scope));
    painted_alloc(NULL, t.streams[1], 700);
}

static void workers_join_scopes(void)
{
    if (!make())
        return;
    if (TRY(tarn_scope_begin(t.pool, TARN_SCOPE_THREAD, 0, &t.scope))) {
        system_in_thread(work_in_scope);
        system_in_thread(work_in_scope);
        OK(tarn_scope_end(t.scope));
    }
    drop();
}

static void pools_are_asked(void)
{
    tarn_pool *found = NULL;
    tarn_pool_id id;
    tarn_pool_info info = {.size = sizeof info};
    tarn_stats stats = {.size = sizeof stats};
    void *pointer = &t;
    bool same = false;
    if (!TRY(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 0},
                              &t.pool)))
        return;
    id = pool_info_of(t.pool).id;
    if (TRY(tarn_pool_find(id, &found))) {
        CHECK(found == t.pool);
        OK(tarn_pool_release(found));
    }
    if (TRY(tarn_pool_retain(t.pool)))
        OK(tarn_pool_release(t.pool));
    (void)TRY(tarn_pool_info_get(t.pool, &info));
    (void)TRY(tarn_pool_limit_set(t.pool, 8 * MIB));
    painted_alloc(t.pool, t.streams[0], 3 * MIB);
    tarn_status status = tarn_pool_alloc(t.pool, t.streams[1], 20 * MIB, &pointer);
    if (status)
        CHECK(pointer == &t);
    else
        painted_add(pointer, 20 * MIB); /* the limit could not be set */
    CHECK(status || injecting);
    void *pointers[PAINTED_MOST];
    for (int i = 0; i < painted.count; i++)
        pointers[i] = painted.blocks[i].start;
    if (TRY(live_are(t.pool, pointers, (size_t)painted.count, &same)))
        CHECK(same);
    (void)TRY(tarn_pool_stats_get(t.pool, &stats));
    drop(); /* with live blocks */
}

static void blocks_and_streams_are_asked(void)
{
    tarn_block_info info = {.size = sizeof info};
    void *host = &t;
    painted_alloc(NULL, t.streams[0], 3000);
    (void)machine->work(0, native_of(t.streams[0]), NULL, 0, 1000);
    tarn_status status = tarn_stream_query(t.streams[0]);
    if (status != TARN_ERROR_NOT_READY)
        (void)TRY(status);
    if (painted.count > 0 && TRY(tarn_pointer_info_get(painted.blocks[0].start + 5, &info)))
        CHECK(info.base == painted.blocks[0].start);
    (void)TRY(tarn_device_set(0));
    (void)TRY(tarn_device_peer_enable(0, 0));
    if (TRY(tarn_pinned_alloc(t.streams[0], 70000, &host)))
        OK(tarn_free(host));
    else
        CHECK(host == &t);
    (void)TRY(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    CHECK(tarn_debug_reports() == 0);
    (void)TRY(tarn_debug_check(0));
}

/* A capture that the caller began, in tarn's default pool and in one that the graph keeps. */
static void callers_capture(void)
{
    bool named = make();
    for (int i = 0; i <= named; i++) {
        void *graph = NULL, *native = native_of(t.streams[0]);
        if (!TRY(i ? tarn_pool_capture_announce(t.pool, t.streams[0])
                   : tarn_capture_announce(t.streams[0])))
            continue;
        t.announced = true;
        bool begun = driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED) == TARN_OK;
        painted_alloc(NULL, t.streams[0], 900);
        if (begun && driver->capture_end(0, native, &graph) != TARN_OK) {
            clear_injection();
            (void)driver->capture_end(0, native, &graph);
        }
        if (i && graph && tarn_pool_hold(t.pool, graph) == TARN_ERROR_NOT_SUPPORTED)
            OK(tarn_capture_abort(t.streams[0])); /* nothing tells the graph's end */
        else
            while (!TRY(tarn_capture_end_announced(t.streams[0], graph)) && !device_is_lost())
                clear_injection();
        t.announced = false;
        if (graph && machine->graph_destroy(graph) != TARN_OK)
            t.graph = graph;
    }
}

/* By passes at times of its own; the thread sleeps for a day. */
static void memory_goes_back_by_itself(void)
{
    static uint64_t time;
    if (!TRY(tarn_configuration_set("idle_release:86400000")) || !make())
        return;
    painted_alloc(t.pool, t.streams[0], 9 * MIB);
    painted_alloc(t.pool, t.streams[0], 900);
    for (int i = 0; i < 4; i++) { /* the last round lets rest what the one before has freed */
        void *block = NULL;
        if (i < 3 && tarn_pool_alloc(i ? t.pool : NULL, t.streams[1], 5 * MIB, &block) == TARN_OK) {
            (void)tarn_record_stream(block, t.streams[0]);
            OK(tarn_free(block));
        }
        release_pass(time += UINT64_C(86400000000000));
        (void)TRY(tarn_pool_trim(t.pool, SIZE_MAX)); /* records the marks */
        painted_check();
    }
    release_pass(time += UINT64_C(86400000000000));
}

static const struct scenario scenarios[] = {
    {"memory goes back by itself", memory_goes_back_by_itself},
    {"traces begin and end", traces_begin_and_end},
    {"settings change", settings_change},
    {"callers pin memory", callers_pin_memory},
    {"workers join scopes", workers_join_scopes},
    {"pools are asked", pools_are_asked},
    {"blocks and streams are asked", blocks_and_streams_are_asked},
    {"callers capture", callers_capture},
};

/* ---- The run ---- */

static void settle(void)
{
    painted_check();
    OK(tarn_trace_stop());
    OK(tarn_trace_clear());
    OK(tarn_configuration_set(""));
    if (t.graph)
        OK(machine->graph_destroy(t.graph));
    t.graph = NULL;
    CHECK(!t.announced);
    if (t.pinned)
        OK(tarn_unanchor(t.pinned, 5000));
    t.pinned = NULL;
    verify(0);
    painted_free_all();
    drop();
    OK(tarn_pinned_trim(0));
    nothing_is_left(0);
}

static void lost(void)
{
    painted_check();
    painted_free_all();
    if (t.pinned)
        OK(tarn_unanchor(t.pinned, 5000));
    drop();
    painted_check();
}

static void set_up(void)
{
    for (int i = 0; i < 2; i++)
        t.streams[i] = lease(0);
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
