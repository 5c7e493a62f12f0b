/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure of the driver and of the library's own allocations, one at a time: a scenario runs
 * once clean, while both are counted, then once for each of them, with that one failing, and with
 * it and all later ones failing. A call that fails leaves its results, what lives, and the books as
 * they were; a free never fails; and once nothing fails the scenario succeeds again and leaves
 * nothing behind. */
#include "memory/settings/hooks.h"
#include "support/failures.h"
#include "support/pinned.h"

#define BLOCKS 64

static struct {
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

static void take(size_t size)
{
    void *pointer = &t;
    if (!TRY(tarn_pinned_alloc(TARN_STREAM_CURRENT, size, &pointer))) {
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
    (void)TRY(tarn_record_stream(t.blocks[block], t.streams[stream]));
}

static void give_all(void)
{
    for (int i = 0; i < t.count; i++) {
        for (size_t j = 0; j < t.sizes[i] && j < 100; j++)
            CHECK(t.blocks[i][j] == i + 1);
        OK(tarn_free(t.blocks[i]));
        GIVES(tarn_free(t.blocks[i]), TARN_ERROR_DOUBLE_FREE);
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
        (void)machine->work(0, native_of(t.streams[0]), t.blocks[0], 1, 100);
    give_all();
    take(6 * MIB);
    give_all();
    take(300);
    take(3 * MIB);
    give_all();
    (void)TRY(tarn_pinned_limit_set(TARN_NO_LIMIT));
}

static void it_is_registered(void)
{
    struct pinned_settings settings = pinned_settings();
    settings.use_register = true;
    settings.register_threads = 4;
    settings.max_cached_size = MIB;
    pinned_settings_set(&settings);
    take(3 * MIB);
    take(100);
    for (int i = 0; i < t.count; i++) /* one goes back at once, which may fail */
        OK(tarn_free(t.blocks[i]));
    t.count = 0;
    settings.use_register = false;
    settings.max_cached_size = SIZE_MAX;
    pinned_settings_set(&settings);
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
        /* The driver may have refused: it is open still */
        if (!TRY(tarn_capture_abort(t.streams[0]))) {
            clear_injection();
            tarn_status status = tarn_capture_abort(t.streams[0]);
            /* Or only its graph was not destroyed */
            CHECK(status == TARN_OK || status == TARN_ERROR_INVALID_ARGUMENT);
        }
    }
    give_all();
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

static const struct scenario scenarios[] = {
    {"blocks are cut and joined", cut_and_grow},
    {"streams use blocks", streams_use_it},
    {"room is short", room_is_short},
    {"memory is registered", it_is_registered},
    {"graphs use it", graphs_use_it},
    {"memory is trimmed", it_is_trimmed},
};

/* Back to where every run starts. */
static void settle(void)
{
    OK(tarn_pinned_limit_set(TARN_NO_LIMIT));
    OK(tarn_pinned_forget_captures());
    pinned_check(1);
    pinned_nothing_is_left(1);
}

static void lost(void)
{
    OK(pinned_verify());
    give_all();
}

static void set_up(void)
{
    atomic_store(&upper_hooks.pinned_route, choose);
    for (int i = 0; i < 2; i++)
        t.streams[i] = lease(0);
}

static void each_failure(void **state)
{
    (void)state;
    static const struct scenarios shared = {.set_up = set_up, .settle = settle, .lost = lost};
    each_failure_of(&shared, scenarios, sizeof scenarios / sizeof *scenarios);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure)};
    host_start_with(1, 64 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
