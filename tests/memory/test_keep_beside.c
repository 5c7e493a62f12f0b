/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools beside the rest of tarn, before an adoption and after it: snapshots, limits,
 * compaction, exports, checkpoints, captures and peers. */
#include "driver/driver.h"
#include "keep_test.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <tarn/debug.h>
#include <tarn/observe.h>
#include <tarn/share.h>
#include <tarn/sleep.h>
#include <tarn/snapshot.h>

#include <cmocka.h>

#define DEVICE_BYTES (512 * MIB)

static struct told told;

static tarn_pool *adopted_pool(void)
{
    tarn_kept kept;
    kill_side(filled(&told));
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.adopted && !kept.moved && kept.blocks == 2);
    return pool;
}

static bool is_sealed(tarn_pool *pool, const char *name)
{
    tarn_sealed_block block = {.size = sizeof block};
    return tarn_pool_block_find(pool, name, &block) == TARN_OK;
}

static struct {
    tarn_pool_id pool;
    const void *first, *second;
    size_t bytes, live;
} listed;

static void list(const tarn_memory_segment *segment, void *user)
{
    (void)user;
    if (memcmp(&segment->pool, &listed.pool, sizeof listed.pool) != 0)
        return;
    listed.bytes += segment->bytes;
    for (size_t i = 0; i < segment->part_count; i++) {
        const tarn_memory_part *part = &segment->parts[i];
        listed.live += part->state == TARN_MEMORY_LIVE;
        CHECK(part->state != TARN_MEMORY_LIVE || part->address == listed.first ||
              part->address == listed.second);
        CHECK(!part->tag); /* tags are not kept */
    }
}

static void a_snapshot_shows_what_was_adopted(void **state)
{
    (void)state;
    tarn_pool_info info = {.size = sizeof info};
    tarn_pool *pool = adopted_pool();
    OK(tarn_pool_info_get(pool, &info));
    listed.pool = info.id;
    listed.first = found(pool, "first").pointer;
    listed.second = found(pool, "second").pointer;
    OK(tarn_memory_list(list, NULL));
    CHECK(listed.bytes == reserved() && listed.live == 2);
    end_pool(pool);
}

static void limits_count_what_was_adopted(void **state)
{
    (void)state;
    void *none = NULL;
    size_t limit = 0;
    tarn_pool *pool = adopted_pool();
    OK(tarn_device_limit_get(0, &limit));
    OK(tarn_device_limit_set(0, reserved() + 4 * MIB));
    GIVES(tarn_pool_alloc(pool, 0, 40 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_alloc_on(0, 40 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_limit_set(0, limit));
    OK(tarn_pool_limit_set(pool, reserved()));
    GIVES(tarn_pool_alloc(pool, 0, 40 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(both_are_whole(pool));
    end_pool(pool);
}

/* It is on the device already, so it takes nothing of what must stay free there. */
static void an_adoption_takes_no_free_memory(void **state)
{
    (void)state;
    void *none = NULL;
    OK(tarn_configuration_set("leave_free_mb:500"));
    tarn_pool *pool = adopted_pool();
    GIVES(tarn_pool_alloc(pool, 0, 40 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(both_are_whole(pool));
    OK(tarn_configuration_set("leave_free_mb:0"));
    end_pool(pool);
}

static void compaction_and_trims_leave_what_is_sealed(void **state)
{
    (void)state;
    size_t gained = 0;
    tarn_pool *pool = adopted_pool();
    const void *first = found(pool, "first").pointer;
    (void)tarn_compact(0, SIZE_MAX, &gained);
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_device_trim(0, 0));
    CHECK(both_are_whole(pool) && found(pool, "first").pointer == first);
    end_pool(pool);
}

static void it_is_not_exported(void **state)
{
    (void)state;
    tarn_share *share = NULL;
    tarn_pool *pool = adopted_pool();
    GIVES(tarn_export(found(pool, "first").pointer, &share), TARN_ERROR_NOT_SUPPORTED);
    tarn_status status = tarn_pool_export(pool, NULL, &share);
    CHECK(status == TARN_ERROR_NOT_SUPPORTED || status == TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strlen(tarn_last_error()) > 10 && !share);
    end_pool(pool);
}

/* ---- Failures ---- */

static void trim_the_other_device(void)
{
    const tarn_alloc_options options = {.size = sizeof options, .device = 1};
    void *block = NULL;
    OK(tarn_alloc(&options, MIB, &block));
    OK(tarn_free(block));
    OK(tarn_device_trim(1, 0));
}

/* While the driver refuses to unmap or to release a segment, it is the pool's, and counts. A trim
 * of another device, and the keeping of another pool, end both or neither. */
static void what_the_driver_refuses_to_give_up_stays_until_it_does(void **state)
{
    (void)state;
    static const char *const kinds[] = {"unmap", "release"};
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    for (int i = 0; i < 2; i++) {
        tarn_kept kept;
        tarn_pool *pool = keep("weights", &kept);
        OK(tarn_free(alloc_in(pool, 0, 20 * MIB)));
        OK(tarn_host_fail_set(kind_of(kinds[i]), 1, true, TARN_ERROR_DRIVER));
        GIVES(tarn_pool_trim(pool, 0), TARN_ERROR_DRIVER);
        CHECK(reserved() == ledger_of(0).created && reserved() == 20 * MIB);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        trim_the_other_device();
        CHECK(reserved() == ledger_of(0).created);
        tarn_pool *other = keep("others", &kept);
        CHECK(reserved() == ledger_of(0).created);
        OK(tarn_pool_release(other));
        OK(tarn_pool_trim(pool, 0));
        CHECK(reserved() == 0 && ledger_of(0).created == 0);
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* The same of what a process only reads, and of an adoption that failed. */
static void mappings_that_the_driver_refuses_to_end_go_later(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    struct side writer = filled(&told);
    options.read = true;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    OK(tarn_host_fail_set(kind_of("unmap"), 1, true, TARN_ERROR_DRIVER));
    OK(tarn_pool_release(pool));
    CHECK(ledger_of(0).mapped > 0);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).mapped == 0);

    OK(tarn_host_fail_set(-1, 5, true, TARN_ERROR_DRIVER)); /* among others the map of a segment */
    pool = NULL;
    CHECK(tarn_pool_keep("weights", &options, &pool, NULL) && !pool);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    CHECK(both_are_whole(pool));
    OK(tarn_pool_release(pool));
    CHECK(ledger_of(0).mapped == 0);
    kill_side(writer);
    end_pool(keep("weights", &kept));
}

/* A pool is registered with its device's name, or not at all: nobody could take it over. */
static void no_pool_is_of_an_unknown_device(void **state)
{
    (void)state;
    if (!machine->fail)
        return; /* the built-in device always says which it is */
    for (unsigned nth = 1; nth < 12; nth++) {
        tarn_keep_options options = small_segments();
        tarn_pool *pool = NULL;
        (machine->fail)(nth, false, 304);
        tarn_status status = tarn_pool_keep("weights", &options, &pool, NULL);
        (machine->fail)(0, false, 0);
        if (status == TARN_OK) {
            CHECK(lines_of_list("| grep GPU-") == 1);
            OK(tarn_pool_release(pool));
        }
    }
}

/* ---- Checkpoints ---- */

/* A restore takes the seal off a block that it frees, and off no other. */
static void restore_and_wait(int socket)
{
    tarn_kept kept;
    tarn_checkpoint *checkpoint = NULL;
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2);
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_pool_block_seal(alloc_in(pool, 0, 2 * MIB), "later", NULL, NULL));
    OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    OK(tarn_checkpoint_destroy(checkpoint));
    CHECK(both_are_whole(pool) && !is_sealed(pool, "later"));
    void *again = alloc_in(pool, 0, 2 * MIB);
    fill(again, 2 * MIB, 8);
    OK(tarn_pool_block_seal(again, "again", NULL, NULL));
    say(socket, 'w');
    hear(socket, 'e');
}

static void a_restore_takes_off_the_seals_of_what_it_frees_alone(void **state)
{
    (void)state;
    tarn_kept kept;
    kill_side(filled(&told));
    struct side side = start_side("restore and wait", SOCK_STREAM);
    hear(side.socket, 'w');
    kill_side(side);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 3 && both_are_whole(pool) && !is_sealed(pool, "later"));
    CHECK(holds(found(pool, "again").pointer, 2 * MIB, 8));
    OK(tarn_free(found(pool, "again").pointer));
    end_pool(pool);
}

/* The live block has the span of the recorded one, and begins elsewhere, as debug mode puts its
 * zone before it, or has another size. The restore frees it, so its seal goes. */
static void restore_another_and_wait(int socket)
{
    tarn_kept kept;
    tarn_checkpoint *checkpoint = NULL;
    tarn_pool *pool = keep("others", &kept);
    static const struct {
        size_t bytes, aligned, later, later_aligned;
    } pairs[] = {{MIB, 0, MIB + 512 - 4096, 4096}, {MIB, 0, MIB - 100, 0}};
    for (int i = 0; i < 2; i++) {
        tarn_alloc_options options = {.size = sizeof options, .pool = pool};
        void *block = NULL, *later = NULL;
        options.alignment = pairs[i].aligned;
        OK(tarn_alloc(&options, pairs[i].bytes, &block));
        OK(tarn_pool_checkpoint(pool, &checkpoint));
        OK(tarn_free(block));
        OK(tarn_device_synchronize(0));
        OK(tarn_debug_check(0)); /* which has the free memory checked */
        options.alignment = pairs[i].later_aligned;
        OK(tarn_alloc(&options, pairs[i].later, &later));
        CHECK((uintptr_t)later - (uintptr_t)block <= 4096);
        OK(tarn_pool_block_seal(later, "later", NULL, NULL));
        OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
        OK(tarn_checkpoint_destroy(checkpoint));
        CHECK(!is_sealed(pool, "later"));
        OK(tarn_pool_block_seal(block, "again", NULL, NULL));
        OK(tarn_free(block));
        CHECK(!is_sealed(pool, "again"));
    }
    OK(tarn_pool_release(pool));
    say(socket, 'w');
    hear(socket, 'e');
}

static void a_restore_takes_the_seal_off_what_was_otherwise(void **state)
{
    (void)state;
    CHECK(setenv("TARN_DEBUG", "redzone", 1) == 0);
    struct side side = start_side("restore another and wait", SOCK_STREAM);
    CHECK(unsetenv("TARN_DEBUG") == 0);
    hear(side.socket, 'w');
    kill_side(side);
}

/* ---- Captures ---- */

static tarn_stream stream;

/* Captures a block of the pool and work on a sealed one. The result is the graph. */
static void *capture(tarn_pool *pool, void **block)
{
    void *graph = NULL;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL));
    OK(tarn_alloc_on(stream, 2 * MIB, block));
    OK(tarn_capture_end(stream, &graph));
    return graph;
}

static void capture_and_wait(int socket)
{
    tarn_kept kept;
    void *told_too[2];
    tarn_pool *pool = keep("weights", &kept);
    OK(tarn_stream_lease(0, 0, &stream));
    (void)capture(pool, &told_too[0]);
    told_too[1] = found(pool, "second").pointer;
    send_all(socket, told_too, sizeof told_too);
    hear(socket, 'e');
}

/* A graph ends with its process. The next one captures it again, and sealed blocks have the
 * addresses that the graph before had. What only the capture had is free memory. */
static void a_graph_is_captured_again_with_the_same_addresses(void **state)
{
    (void)state;
    void *before[2], *block = NULL;
    tarn_kept kept;
    kill_side(filled(&told));
    struct side side = start_side("capture and wait", SOCK_STREAM);
    receive_all(side.socket, before, sizeof before);
    kill_side(side);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && found(pool, "second").pointer == before[1]);
    CHECK(before[1] == told.second);
    size_t mapped = reserved();
    OK(tarn_stream_lease(0, 0, &stream));
    void *graph = capture(pool, &block);
    CHECK(block != before[1] && reserved() <= mapped + SEGMENT);
    OK(tarn_free(block));
    OK(driver->graph_destroy(0, graph));
    OK(tarn_stream_return(stream));
    CHECK(both_are_whole(pool));
    end_pool(pool);
}

/* ---- Peers ---- */

/* From the enabling on, a peer reaches what was adopted before, what is added, and what is adopted
 * later. Runs last, as a peer stays enabled. */
static void peers_reach_what_was_adopted(void **state)
{
    (void)state;
    if (machine->fail)
        return; /* the simulated vendor's devices are asked otherwise */
    tarn_pool *pool = adopted_pool();
    CHECK(reaches(0, found(pool, "second").pointer) && !reaches(1, found(pool, "second").pointer));
    OK(tarn_device_peer_enable(1, 0));
    CHECK(reaches(1, found(pool, "first").pointer) && reaches(1, found(pool, "second").pointer));
    void *more = alloc_in(pool, 0, 40 * MIB);
    CHECK(reaches(1, more));
    OK(tarn_free(more));
    end_pool(pool);
    pool = adopted_pool();
    CHECK(reaches(1, found(pool, "first").pointer) && reaches(1, found(pool, "second").pointer));
    end_pool(pool);
}

static unsigned early; /* how often the pool was found before its adoption was complete */

static void seek_next(const tarn_mapping *range, void *user)
{
    tarn_pool *pool = NULL;
    (void)range;
    early += tarn_pool_find(*(const tarn_pool_id *)user, &pool) == TARN_OK;
}

/* Until then another thread could take the memory of its sealed blocks. */
static void a_pool_is_found_when_it_is_adopted(void **state)
{
    (void)state;
    tarn_pool *before = NULL, *again = NULL;
    tarn_pool_info info = {.size = sizeof info};
    tarn_kept kept;
    tarn_observer observer;
    kill_side(filled(&told));
    OK(tarn_pool_create(NULL, &before));
    OK(tarn_pool_info_get(before, &info));
    OK(tarn_pool_release(before));
    info.id.second++;
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .device = 0,
                                                  .user = &info.id,
                                                  .mapped = seek_next},
                         &observer));
    tarn_pool *pool = keep("weights", &kept);
    OK(tarn_observer_remove(observer));
    CHECK(kept.mapped == reserved() && early == 0);
    OK(tarn_pool_find(info.id, &again));
    CHECK(again == pool);
    OK(tarn_pool_release(again));
    end_pool(pool);
}

static atomic_bool adopting;

static void *sleep_meanwhile(void *unused)
{
    (void)unused;
    while (atomic_load(&adopting)) {
        OK(tarn_sleep_prepare(NULL, NULL));
        OK(tarn_sleep_cancel());
    }
    return NULL;
}

static void linger(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    usleep(20000);
}

/* Otherwise it would take the sealed blocks for free memory. */
static void a_sleep_leaves_what_is_being_adopted(void **state)
{
    (void)state;
    pthread_t thread;
    tarn_kept kept;
    tarn_observer observer;
    kill_side(filled(&told));
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .device = 0,
                                                  .mapped = linger},
                         &observer));
    atomic_store(&adopting, true);
    CHECK(pthread_create(&thread, NULL, sleep_meanwhile, NULL) == 0);
    tarn_pool *pool = keep("weights", &kept);
    atomic_store(&adopting, false);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(tarn_observer_remove(observer));
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    end_pool(pool);
}

static int start(void **state)
{
    (void)state;
    host_start_with(2, DEVICE_BYTES);
    keep_name_socket("keep-beside");
    start_owner();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        int socket = atoi(argv[2]);
        host_start_with(2, DEVICE_BYTES);
        if (strcmp(argv[1], "restore and wait") == 0)
            restore_and_wait(socket);
        else if (strcmp(argv[1], "restore another and wait") == 0)
            restore_another_and_wait(socket);
        else if (strcmp(argv[1], "capture and wait") == 0)
            capture_and_wait(socket);
        else
            fill_and_wait(socket);
        return 0;
    }
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_shows_what_was_adopted),
        cmocka_unit_test(limits_count_what_was_adopted),
        cmocka_unit_test(an_adoption_takes_no_free_memory),
        cmocka_unit_test(compaction_and_trims_leave_what_is_sealed),
        cmocka_unit_test(it_is_not_exported),
        cmocka_unit_test(what_the_driver_refuses_to_give_up_stays_until_it_does),
        cmocka_unit_test(mappings_that_the_driver_refuses_to_end_go_later),
        cmocka_unit_test(no_pool_is_of_an_unknown_device),
        cmocka_unit_test(a_restore_takes_off_the_seals_of_what_it_frees_alone),
        cmocka_unit_test(a_restore_takes_the_seal_off_what_was_otherwise),
        cmocka_unit_test(a_graph_is_captured_again_with_the_same_addresses),
        cmocka_unit_test(peers_reach_what_was_adopted),
        cmocka_unit_test(a_pool_is_found_when_it_is_adopted),
        cmocka_unit_test(a_sleep_leaves_what_is_being_adopted),
    };
    return cmocka_run_group_tests(tests, start, owner_ends);
}
