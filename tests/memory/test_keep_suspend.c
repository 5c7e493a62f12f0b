/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools that are suspended. With the contents the memory stays with the owner, and only what
 * is free goes; without them the owner drops it, and the blocks get new memory at their addresses.
 */
#include "keep_generations.h"
#include "memory/keep/keep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <tarn/share.h>
#include <tarn/sleep.h>

#include <cmocka.h>

#define DEVICE_BYTES (256 * MIB)

static size_t on_device(void)
{
    size_t free = 0, total = 0;
    OK(tarn_device_memory_get(0, &free, &total));
    return total - free;
}

static tarn_pool_state state_of(tarn_pool *pool)
{
    tarn_pool_info info = {.size = sizeof info};
    OK(tarn_pool_info_get(pool, &info));
    return info.state;
}

/* A pool with a sealed block, one that is not sealed, and free memory. */
struct filled_pool {
    tarn_pool *pool;
    char *sealed, *other;
};

static struct filled_pool fill_pool(void)
{
    tarn_kept kept;
    struct filled_pool filled = {.pool = keep("weights", &kept)};
    CHECK(!kept.adopted);
    filled.sealed = alloc_in(filled.pool, 0, 20 * MIB);
    filled.other = alloc_in(filled.pool, 0, 3 * MIB);
    void *free = alloc_in(filled.pool, 0, 30 * MIB);
    fill(filled.sealed, 20 * MIB, 9);
    fill(filled.other, 3 * MIB, 4);
    OK(tarn_pool_block_seal(filled.sealed, "second", NULL, NULL));
    OK(tarn_free(free));
    return filled;
}

static void end_filled(struct filled_pool filled)
{
    OK(tarn_free(filled.sealed));
    OK(tarn_free(filled.other));
    OK(tarn_pool_release(filled.pool));
    nothing_is_left(0);
}

static void the_contents_stay_with_the_owner(void **state)
{
    (void)state;
    void *none = NULL;
    struct filled_pool filled = fill_pool();
    size_t before = reserved();
    OK(tarn_pool_suspend(filled.pool, true));
    CHECK(state_of(filled.pool) == TARN_POOL_SAVED);
    CHECK(before - reserved() == 30 * MIB); /* a segment of its own that is free */
    GIVES(tarn_pool_alloc(filled.pool, 0, 100, &none), TARN_ERROR_SUSPENDED);
    GIVES(tarn_pool_suspend(filled.pool, true), TARN_ERROR_SUSPENDED);
    CHECK(found(filled.pool, "second").pointer == filled.sealed);
    OK(tarn_device_trim(0, 0));
    OK(tarn_pool_resume(filled.pool));
    CHECK(holds(filled.sealed, 20 * MIB, 9) && holds(filled.other, 3 * MIB, 4));
    OK(tarn_free(alloc_in(filled.pool, 0, 3 * MIB)));
    end_filled(filled);
}

static void without_contents_the_owner_drops_the_memory(void **state)
{
    (void)state;
    size_t empty = on_device();
    tarn_sealed_block none = {.size = sizeof none};
    struct filled_pool filled = fill_pool();
    size_t before = reserved();
    OK(tarn_pool_suspend(filled.pool, false));
    CHECK(state_of(filled.pool) == TARN_POOL_DISCARDED);
    CHECK(reserved() == 0 && on_device() == empty);
    CHECK(stats_of(0).allocation[0].current == 2);
    GIVES(tarn_pool_block_find(filled.pool, "second", &none), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_resume(filled.pool));
    CHECK(reserved() == before - 30 * MIB && on_device() == empty + reserved());
    fill(filled.sealed, 20 * MIB, 5);
    fill(filled.other, 3 * MIB, 6);
    OK(tarn_pool_block_seal(filled.sealed, "second", NULL, NULL));
    OK(tarn_pool_block_seal(filled.other, "first", NULL, NULL));
    CHECK(holds(filled.sealed, 20 * MIB, 5) && holds(filled.other, 3 * MIB, 6));
    end_filled(filled);
}

static void blocks_may_be_freed_meanwhile(void **state)
{
    (void)state;
    for (int save = 0; save < 2; save++) {
        struct filled_pool filled = fill_pool();
        OK(tarn_pool_suspend(filled.pool, save));
        OK(tarn_free(filled.sealed));
        OK(tarn_pool_resume(filled.pool));
        if (!save) /* free addresses need no memory */
            CHECK(reserved() == SEGMENT);
        filled.sealed = alloc_in(filled.pool, 0, 20 * MIB);
        fill(filled.sealed, 20 * MIB, 1);
        CHECK(!save || holds(filled.other, 3 * MIB, 4));
        end_filled(filled);
    }
}

/* Before its blocks are freed, or after. */
static void a_suspended_pool_may_be_released(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        size_t empty = on_device();
        struct filled_pool filled = fill_pool();
        OK(tarn_pool_suspend(filled.pool, way & 1));
        if (way & 2)
            OK(tarn_pool_release(filled.pool));
        OK(tarn_free(filled.sealed));
        OK(tarn_free(filled.other));
        if (!(way & 2))
            OK(tarn_pool_release(filled.pool));
        OK(tarn_device_trim(0, 0));
        nothing_is_left(0);
        CHECK(on_device() == empty);
        tarn_kept kept;
        tarn_pool *pool = keep("weights", &kept);
        CHECK(!kept.adopted);
        OK(tarn_pool_release(pool));
    }
}

static void a_resume_without_room_loses_nothing(void **state)
{
    (void)state;
    struct filled_pool filled = fill_pool();
    size_t limit = 0;
    OK(tarn_device_limit_get(0, &limit));
    OK(tarn_pool_suspend(filled.pool, false));
    OK(tarn_device_limit_set(0, 25 * MIB)); /* for one of its two segments */
    GIVES(tarn_pool_resume(filled.pool), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(state_of(filled.pool) == TARN_POOL_DISCARDED && reserved() == 0);
    OK(tarn_device_limit_set(0, limit));
    OK(tarn_pool_resume(filled.pool));
    fill(filled.sealed, 20 * MIB, 1);
    fill(filled.other, 3 * MIB, 2);
    CHECK(holds(filled.sealed, 20 * MIB, 1));
    end_filled(filled);
}

static void without_its_owner_discarded_memory_does_not_come_back(void **state)
{
    (void)state;
    struct filled_pool filled = fill_pool();
    OK(tarn_pool_suspend(filled.pool, true)); /* the first takes no notice of the owner */
    end_owner(SIGTERM);
    OK(tarn_pool_resume(filled.pool));
    CHECK(holds(filled.sealed, 20 * MIB, 9));
    OK(tarn_pool_suspend(filled.pool, false));
    CHECK(reserved() == 0);
    GIVES(tarn_pool_resume(filled.pool), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "owner") && reserved() == 0);
    start_owner();
    OK(tarn_pool_resume(filled.pool)); /* it registers with the new one */
    fill(filled.sealed, 20 * MIB, 1);
    end_filled(filled);
}

static void what_is_anchored_or_copied_is_not_suspended(void **state)
{
    (void)state;
    struct filled_pool filled = fill_pool();
    struct keep *kept = keep_of_store(store_of_public(filled.pool));
    for (int save = 0; save < 2; save++) {
        OK(tarn_anchor(filled.other, MIB));
        GIVES(tarn_pool_suspend(filled.pool, save), TARN_ERROR_BUSY);
        OK(tarn_unanchor(filled.other, MIB));
        atomic_store(&kept->transfers, true); /* as during tarn_pool_save() */
        GIVES(tarn_pool_suspend(filled.pool, save), TARN_ERROR_BUSY);
        atomic_store(&kept->transfers, false);
        CHECK(state_of(filled.pool) == TARN_POOL_RUNS);
    }
    CHECK(holds(filled.sealed, 20 * MIB, 9));
    end_filled(filled);
}

/* ---- Sleeps ---- */

static tarn_residue_item items[16];

static const tarn_residue_item *item_kept(const tarn_residue *residue)
{
    for (size_t i = 0; i < residue->count; i++)
        if (items[i].reason == TARN_RESIDUE_KEPT)
            return &items[i];
    return NULL;
}

static void a_sleep_says_what_the_owner_keeps(void **state)
{
    (void)state;
    struct filled_pool filled = fill_pool();
    tarn_sleep_options options = {.size = sizeof options};
    tarn_residue residue = {.size = sizeof residue, .items = items, .room = 16};
    OK(tarn_sleep_prepare(&options, &residue));
    CHECK(item_kept(&residue) && item_kept(&residue)->bytes == 28 * MIB);
    OK(tarn_sleep_cancel());
    CHECK(state_of(filled.pool) == TARN_POOL_RUNS);
    OK(tarn_sleep(&options, &residue));
    CHECK(item_kept(&residue) && item_kept(&residue)->bytes == 28 * MIB &&
          item_kept(&residue)->device == 0 && strstr(item_kept(&residue)->text, "owner"));
    CHECK(!residue.saved && residue.after == 28 * MIB);
    CHECK(state_of(filled.pool) == TARN_POOL_SAVED);
    OK(tarn_wake());
    CHECK(holds(filled.sealed, 20 * MIB, 9) && holds(filled.other, 3 * MIB, 4));

    options.contents = TARN_SLEEP_DISCARD;
    OK(tarn_sleep_prepare(&options, &residue));
    OK(tarn_sleep_cancel());
    CHECK(found(filled.pool, "second").pointer == filled.sealed &&
          holds(filled.sealed, 20 * MIB, 9));
    OK(tarn_sleep(&options, &residue));
    CHECK(!item_kept(&residue) && !residue.after && !reserved());
    OK(tarn_wake());
    CHECK(reserved() == 28 * MIB);

    options.contents = TARN_SLEEP_LEAVE;
    OK(tarn_sleep(&options, &residue));
    CHECK(!item_kept(&residue) && residue.after == 28 * MIB &&
          state_of(filled.pool) == TARN_POOL_RUNS);
    OK(tarn_wake());
    end_filled(filled);
}

/* ---- Generations ---- */

static void suspend_and_wait(int socket)
{
    struct filled_pool filled = fill_pool();
    char how;
    receive_all(socket, &how, 1);
    OK(tarn_pool_suspend(filled.pool, !strchr("dD", how)));
    if (how == 'r') {
        OK(tarn_pool_resume(filled.pool));
        OK(tarn_pool_block_seal(filled.other, "first", NULL, NULL));
    }
    if (strchr("SD", how))
        OK(tarn_shutdown());
    say(socket, 'w');
    hear(socket, 'e');
}

static void the_next_process_has_what_was_suspended(void **state)
{
    (void)state;
    static const char ways[] = "sdrSD"; /* saved, discarded, resumed; shut down */
    static const size_t blocks[] = {1, 0, 2, 1, 0};
    for (int i = 0; i < 5; i++) {
        tarn_kept kept;
        struct side side = start_side("suspend and wait", SOCK_STREAM);
        say(side.socket, ways[i]);
        hear(side.socket, 'w');
        kill_side(side);
        tarn_pool *pool = keep("weights", &kept);
        CHECK((kept.adopted || ways[i] == 'D') && kept.blocks == blocks[i]);
        CHECK(kept.mapped == (strchr("dD", ways[i]) ? 0 : 28 * MIB));
        if (kept.blocks) {
            tarn_sealed_block block = found(pool, "second");
            CHECK(holds(block.pointer, 20 * MIB, 9));
            OK(tarn_free(block.pointer));
        }
        if (ways[i] == 'r') {
            CHECK(holds(found(pool, "first").pointer, 3 * MIB, 4));
            OK(tarn_free(found(pool, "first").pointer));
        }
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

static int start(void **state)
{
    (void)state;
    host_start_with(1, DEVICE_BYTES);
    keep_name_socket("keep-suspend");
    start_owner();
    return 0;
}

static int end(void **state)
{
    (void)state;
    end_owner(SIGTERM);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        host_start_with(1, DEVICE_BYTES);
        suspend_and_wait(atoi(argv[2]));
        return 0;
    }
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_contents_stay_with_the_owner),
        cmocka_unit_test(without_contents_the_owner_drops_the_memory),
        cmocka_unit_test(blocks_may_be_freed_meanwhile),
        cmocka_unit_test(a_suspended_pool_may_be_released),
        cmocka_unit_test(a_resume_without_room_loses_nothing),
        cmocka_unit_test(without_its_owner_discarded_memory_does_not_come_back),
        cmocka_unit_test(what_is_anchored_or_copied_is_not_suspended),
        cmocka_unit_test(a_sleep_says_what_the_owner_keeps),
        cmocka_unit_test(the_next_process_has_what_was_suspended),
    };
    return cmocka_run_group_tests(tests, start, end);
}
