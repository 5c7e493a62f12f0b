/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure of the driver and of the library's own allocations, one at a time: a scenario runs once clean, while both
 * are counted, then once for each of them, with that one failing, and with it and all later ones failing. A call that fails
 * leaves its results, what lives, and the books as they were; a free never fails; and once nothing fails the scenario
 * succeeds again and leaves nothing behind. */
#include "base/pages.h"
#include "support/pinned.h"

#include <inttypes.h>
#include <stdio.h>

#define BLOCKS 64

static struct {
    bool injecting;
    int failures;
    unsigned char *blocks[BLOCKS];
    size_t sizes[BLOCKS];
    int count;
    tarn_stream streams[2];
    struct pinned_pool *pool; /* where requests go; NULL: the default one */
} t;

static struct pinned_pool *choose(struct stream *stream)
{
    (void)stream;
    if (t.pool)
        pinned_pool_retain(t.pool);
    return t.pool;
}

static bool went_well(tarn_status status, const char *what)
{
    if (!status)
        return true;
    t.failures++;
    if (!t.injecting)
        status_at(status, TARN_OK, what, __FILE__, __LINE__);
    return false;
}

#define TRY(call) went_well((call), #call)

static void take(size_t size)
{
    void *pointer = &t;
    if (!TRY(tarn_pinned_alloc(size, &pointer))) {
        CHECK(pointer == &t);
        return;
    }
    t.blocks[t.count] = pointer;
    t.sizes[t.count] = size;
    memset(pointer, t.count + 1, size < 100 ? size : 100);
    t.count++;
}

static void use(int block, int stream)
{
    if (block >= t.count)
        return;
    (void)TRY(tarn_pinned_record_stream(t.blocks[block], t.streams[stream]));
}

static void give_all(void)
{
    for (int i = 0; i < t.count; i++) {
        for (size_t j = 0; j < t.sizes[i] && j < 100; j++)
            CHECK(t.blocks[i][j] == i + 1);
        OK(tarn_pinned_free(t.blocks[i]));
        GIVES(tarn_pinned_free(t.blocks[i]), TARN_ERROR_DOUBLE_FREE);
    }
    t.count = 0;
}

static void cut_and_grow(void)
{
    for (size_t i = 0; i < 12; i++)
        take(1 + i * 30 * KIB);
    give_all();
    take(4 * MIB);
    take(200);
    give_all();
}

static void streams_use_it(void)
{
    for (size_t i = 0; i < 4; i++) {
        take((1 + i) * 400 * KIB);
        use((int)i, 0);
        use((int)i, (int)(i % 2));
    }
    give_all();
    take(400 * KIB);
    give_all();
}

static void room_is_short(void)
{
    (void)TRY(tarn_pinned_limit_set(6 * MIB));
    take(5 * MIB);
    use(0, 0);
    if (t.count)
        (void)tarn_host_work(0, native_of(t.streams[0]), t.blocks[0], 1, 100);
    give_all();
    take(6 * MIB);
    give_all();
    take(300);
    take(3 * MIB);
    give_all();
    (void)TRY(tarn_pinned_limit_set(SIZE_MAX));
}

static void it_is_registered(void)
{
    tarn_pinned_settings settings = pinned_settings();
    settings.use_register = true;
    settings.register_threads = 4;
    settings.max_cached_size = MIB;
    OK(tarn_pinned_settings_set(&settings));
    take(3 * MIB);
    take(100);
    for (int i = 0; i < t.count; i++) /* one goes back at once, which may fail */
        OK(tarn_pinned_free(t.blocks[i]));
    t.count = 0;
    settings.use_register = false;
    settings.max_cached_size = SIZE_MAX;
    OK(tarn_pinned_settings_set(&settings));
}

static void graphs_use_it(void)
{
    if (!TRY(pinned_pool_create(&t.pool)))
        return;
    take(MIB);
    if (TRY(tarn_capture_begin(t.streams[0], TARN_CAPTURE_RELAXED))) {
        take(2 * MIB);
        for (int i = 0; i < t.count; i++) {
            use(i, 0);
            use(i, 1);
        }
        give_all();
        if (!TRY(tarn_capture_abort(t.streams[0]))) { /* the driver may have refused: it is open still */
            OK(tarn_host_fail(-1, 0, false, TARN_OK));
            pages_fail(0, false);
            tarn_status status = tarn_capture_abort(t.streams[0]);
            CHECK(status == TARN_OK || status == TARN_ERROR_INVALID_ARGUMENT); /* or only its graph was not destroyed */
        }
    }
    give_all();
    struct stream *stream = NULL;
    OK(stream_find(t.streams[1], 0, &stream));
    (void)TRY(pinned_pool_record_stream(t.pool, stream));
    pinned_pool_release(t.pool);
    t.pool = NULL;
}

static void it_is_trimmed(void)
{
    take(2 * MIB);
    take(3 * MIB);
    use(0, 1);
    give_all();
    (void)TRY(tarn_pinned_trim(2 * MIB));
    (void)TRY(tarn_pinned_trim(0));
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"blocks are cut and joined", cut_and_grow},
    {"streams use blocks", streams_use_it},
    {"room is short", room_is_short},
    {"memory is registered", it_is_registered},
    {"graphs use it", graphs_use_it},
    {"memory is trimmed", it_is_trimmed},
};

static void clear(void)
{
    OK(tarn_host_fail(-1, 0, false, TARN_OK));
    pages_fail(0, false);
    t.injecting = false;
}

/* Back to where every run starts. */
static void settle(void)
{
    OK(tarn_pinned_limit_set(SIZE_MAX));
    OK(tarn_pinned_forget_captures());
    pinned_check(1);
    pinned_nothing_is_left(1);
}

static void run_clean(int scenario)
{
    t.failures = 0;
    scenarios[scenario].run();
    CHECK(t.failures == 0);
    settle();
}

static void inject(int scenario, bool driver_calls, uint64_t nth, bool forever, tarn_status status)
{
    t.injecting = true;
    if (driver_calls)
        OK(tarn_host_fail(-1, nth, forever, status));
    else
        pages_fail(nth, forever);
    scenarios[scenario].run();
    clear();
    settle();
    run_clean(scenario);
}

static void each_failure(void)
{
    static const tarn_status statuses[] = {TARN_ERROR_DRIVER, TARN_ERROR_OUT_OF_MEMORY};
    host_start_with(1, 64 * MIB);
    pinned_on_route(choose);
    for (int i = 0; i < 2; i++)
        t.streams[i] = lease(0);
    for (int i = 0; i < (int)(sizeof scenarios / sizeof *scenarios); i++) {
        run_clean(i);
        run_clean(i);
        uint64_t before = all_calls(0);
        pages_fail(UINT64_MAX, false);
        scenarios[i].run();
        uint64_t allocations = pages_fail_calls(), calls = all_calls(0) - before;
        clear();
        settle();
        CHECK(calls > 4 && allocations > 1);
        for (uint64_t n = 1; n <= calls + 4; n++)
            for (int variant = 0; variant < 4; variant++)
                inject(i, true, n, variant % 2, statuses[variant / 2]);
        for (uint64_t n = 1; n <= allocations + 2; n++)
            for (int forever = 0; forever < 2; forever++)
                inject(i, false, n, forever, TARN_OK);
        printf("%-28s %3" PRIu64 " driver calls, %3" PRIu64 " allocations\n", scenarios[i].name, calls, allocations);
    }
    fflush(NULL);
}

IN_CHILD(each_failure)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_failure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
