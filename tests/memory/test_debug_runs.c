/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Debug mode where nothing is wrong: long random runs, several threads, and failures of every
 * driver call and host allocation. It reports nothing, keeps nothing, and makes no call fail that
 * would succeed without it. TARN_SEED and TARN_DEBUG_STEPS change the random run. */
#include "base/pages.h"
#include "driver/driver.h"
#include "driver/host/host.h"
#include "support/host.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/debug.h>

#include <cmocka.h>

#define MEMORY (96 * MIB)
#define BLOCKS 48
#define STREAMS 3

/* One thread's blocks; every write is queued, and stays within its block. */
struct player {
    uint64_t random;
    tarn_stream streams[STREAMS];
    tarn_event *event;
    tarn_pool *pool;
    struct {
        char *address;
        size_t size;
        int stream;
    } blocks[BLOCKS];
    uint64_t allocated, full;
    bool excused; /* a failure is injected */
};

static void hear(const tarn_debug_report *report, void *user)
{
    (void)user;
    fprintf(stderr, "%s\n", report->text);
}

static void player_begin(struct player *player, uint64_t seed)
{
    *player = (struct player){.random = seed};
    for (int i = 0; i < STREAMS; i++)
        player->streams[i] = lease(0);
    OK(tarn_event_create(0, &player->event));
    OK(tarn_pool_create(NULL, &player->pool));
}

static uint64_t draw(struct player *player, uint64_t limit)
{
    return random_next(&player->random) % limit;
}

static size_t draw_size(struct player *player)
{
    size_t most = draw(player, 8) ? 70000 : MIB;
    return draw(player, 8) ? 1 + draw(player, most) : (size_t)512 << draw(player, 10);
}

static void fill(struct player *player, int stream, int at)
{
    if (!player->excused)
        OK(tarn_host_fill(0, native_of(player->streams[stream]), player->blocks[at].address, at,
                          player->blocks[at].size));
}

/* What may go wrong, in an injected failure or a full device. */
static bool went_well(struct player *player, tarn_status status)
{
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        player->full++;
    else if (!player->excused)
        OK(status);
    return status == TARN_OK;
}

static void allocate(struct player *player, int at)
{
    size_t size = draw_size(player);
    int stream = (int)draw(player, STREAMS);
    void *block = NULL;
    tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = player->streams[stream]};
    tarn_status status;
    switch (draw(player, 4)) {
    case 0:
        status = tarn_pool_alloc(player->pool, player->streams[stream], size, &block);
        break;
    case 1:
        options.alignment = (size_t)1 << draw(player, 17);
        status = tarn_alloc(&options, size, &block);
        break;
    default:
        status = tarn_alloc_on(player->streams[stream], size, &block);
    }
    if (!went_well(player, status))
        return;
    player->allocated++;
    player->blocks[at].address = block;
    player->blocks[at].size = size;
    player->blocks[at].stream = stream;
    fill(player, stream, at);
}

/* Writes to the block on another stream, behind what was queued for it. */
static void fill_on_other(struct player *player, int other, int at)
{
    OK(tarn_event_record(player->event, player->streams[player->blocks[at].stream]));
    OK(tarn_stream_wait(player->streams[other], player->event));
    fill(player, other, at);
}

/* With injected failures a free in another form may fail, and leaves the block; tarn_free() never
 * does. */
static void release(struct player *player, int at)
{
    void *block = player->blocks[at].address;
    int other = (int)draw(player, STREAMS);
    tarn_status status = TARN_OK;
    bool done = false;
    if (!player->excused) {
        switch (draw(player, 5)) {
        case 0:
            OK(tarn_record_stream(block, player->streams[other]));
            fill_on_other(player, other, at);
            break;
        case 1:
            fill_on_other(player, other, at);
            done = went_well(player, tarn_free_on(block, player->streams[other]));
            break;
        case 2:
            fill_on_other(player, other, at);
            OK(tarn_event_record(player->event, player->streams[other]));
            done = went_well(player, tarn_free_after(block, player->event));
            break;
        default:
            break;
        }
    }
    if (!done)
        status = tarn_free(block);
    OK(status);
    player->blocks[at].address = NULL;
}

static void step(struct player *player)
{
    int at = (int)draw(player, BLOCKS);
    if (player->blocks[at].address)
        release(player, at);
    else
        allocate(player, at);
}

static void player_end(struct player *player)
{
    for (int i = 0; i < BLOCKS; i++)
        if (player->blocks[i].address)
            release(player, i);
    OK(tarn_pool_release(player->pool));
    OK(tarn_event_destroy(player->event));
    for (int i = 0; i < STREAMS; i++)
        OK(tarn_stream_return(player->streams[i]));
}

static void begin(const char *words)
{
    setenv("TARN_DEBUG", words, 1);
    host_start_with(1, MEMORY);
    tarn_debug_callback_set(hear, NULL);
}

static void nothing_was_found(void)
{
    nothing_is_left(0);
    OK(tarn_debug_check(0));
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_shutdown());
    CHECK(tarn_debug_reports() == 0);
}

static uint64_t steps_wanted(void)
{
    const char *steps = getenv("TARN_DEBUG_STEPS");
    return steps ? strtoull(steps, NULL, 0) : 2000;
}

static void run_alone(const char *words)
{
    static struct player player;
    const char *seed = getenv("TARN_SEED");
    begin(words);
    player_begin(&player, seed ? strtoull(seed, NULL, 0) : 1);
    for (uint64_t i = 0; i < steps_wanted(); i++) {
        step(&player);
        if (i % 500 == 499) {
            OK(tarn_debug_check(0));
            CHECK(tarn_debug_reports() == 0);
            verify(0);
        }
    }
    CHECK(player.allocated > steps_wanted() / 4);
    player_end(&player);
    nothing_was_found();
}

static void a_random_run_with_everything(void)
{
    run_alone("all,quarantine=8M");
}

static void a_random_run_with_red_zones_alone(void)
{
    run_alone("redzone");
}

static void a_random_run_with_poison_alone(void)
{
    run_alone("poison,check");
}

#define THREADS 3

static void *play(void *argument)
{
    struct player *player = argument;
    for (uint64_t i = 0; i < steps_wanted() / 4; i++)
        step(player);
    return NULL;
}

static void several_threads(void)
{
    static struct player players[THREADS];
    pthread_t threads[THREADS];
    begin("all,quarantine=4M");
    for (int i = 0; i < THREADS; i++)
        player_begin(&players[i], (uint64_t)i + 1);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, play, &players[i]) == 0);
    for (int i = 0; i < 20; i++) {
        OK(tarn_debug_check(0));
        CHECK(tarn_debug_reports() == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        player_end(&players[i]);
    nothing_was_found();
}

/* Failures ------------------------------------------------------------------------------------- */

/* Calls that the memory layer makes for debug mode alone: where they fail, nothing else may. */
static const char *const debug_calls[] = {"stream_create", "set", "copy", "stream_synchronize",
                                          "capture_mode"};

static void play_a_little(struct player *player)
{
    for (int i = 0; i < 40; i++)
        step(player);
    (void)tarn_debug_reports();
}

/* Everything given back, nothing found, and what is left is consistent. */
static void settle(struct player *player)
{
    player->excused = false;
    for (int i = 0; i < BLOCKS; i++)
        if (player->blocks[i].address)
            release(player, i);
    OK(tarn_device_synchronize(0));
    OK(tarn_pool_trim(player->pool, 0));
    nothing_is_left(0);
    CHECK(tarn_debug_reports() == 0);
}

static void failures_of_its_own_driver_calls_harm_nobody(void)
{
    static struct player player;
    uint64_t injections = 0;
    begin("all,quarantine=1M");
    player_begin(&player, 5);
    for (size_t kind = 0; kind < sizeof debug_calls / sizeof *debug_calls; kind++) {
        for (int forever = 0; forever < 2; forever++) {
            for (uint64_t nth = 1, hits = 1; hits && nth < 40; nth += forever ? 13 : 1) {
                uint64_t again = player.random;
                OK(tarn_host_fail_set(kind_of(debug_calls[kind]), nth, forever, TARN_ERROR_DRIVER));
                play_a_little(&player);
                hits = host_fail_hits();
                OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
                settle(&player);
                player.random = again;
                injections += hits != 0;
            }
        }
    }
    print_message("%" PRIu64 " injections\n", injections);
    CHECK(injections > 40);
    player_end(&player);
    nothing_was_found();
}

/* Any driver call: a request may fail as it may without debug mode; tarn_free() never. */
static void failures_of_any_driver_call_leave_all_as_it_was(void)
{
    static struct player player;
    uint64_t injections = 0;
    begin("all,quarantine=1M");
    player_begin(&player, 7);
    for (int forever = 0; forever < 2; forever++) {
        for (uint64_t nth = 1, hits = 1; hits && nth < 1500; nth += forever ? 61 : 11) {
            uint64_t again = player.random;
            player.excused = true;
            OK(tarn_host_fail_set(-1, nth, forever, TARN_ERROR_DRIVER));
            play_a_little(&player);
            hits = host_fail_hits();
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            settle(&player);
            player.random = again;
            injections += hits != 0;
        }
    }
    print_message("%" PRIu64 " injections\n", injections);
    CHECK(injections > 25);
    player_end(&player);
    nothing_was_found();
}

static void failures_of_host_allocations_leave_all_as_it_was(void)
{
    static struct player player;
    uint64_t injections = 0;
    begin("all,quarantine=1M");
    player_begin(&player, 9);
    for (int forever = 0; forever < 2; forever++) {
        for (uint64_t nth = 1, hits = 1; hits && nth < 2000; nth += forever ? 17 : 3) {
            uint64_t again = player.random;
            player.excused = true;
            pages_fail(nth, forever);
            play_a_little(&player);
            hits = pages_fail_hits();
            pages_fail(0, false);
            settle(&player);
            player.random = again;
            injections += hits != 0;
        }
    }
    print_message("%" PRIu64 " injections\n", injections);
    CHECK(injections > 40);
    player_end(&player);
    nothing_was_found();
}

static void a_lost_device_keeps_the_books(void)
{
    static struct player player;
    begin("all,quarantine=1M");
    player_begin(&player, 11);
    for (int i = 0; i < 60; i++)
        step(&player);
    OK(tarn_host_fail_set(kind_of("event_record"), 1, false, TARN_ERROR_DEVICE_LOST));
    player.excused = true;
    for (int i = 0; i < 60; i++)
        step(&player);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    for (int i = 0; i < BLOCKS; i++)
        if (player.blocks[i].address)
            OK(tarn_free(player.blocks[i].address));
    CHECK(tarn_debug_reports() == 0);
    CHECK(stats_of(0).allocated_bytes[0].current == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_random_run_with_everything),
        CHILD_TEST(a_random_run_with_red_zones_alone),
        CHILD_TEST(a_random_run_with_poison_alone),
        CHILD_TEST(several_threads),
        CHILD_TEST(failures_of_its_own_driver_calls_harm_nobody),
        CHILD_TEST(failures_of_any_driver_call_leave_all_as_it_was),
        CHILD_TEST(failures_of_host_allocations_leave_all_as_it_was),
        CHILD_TEST(a_lost_device_keeps_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
