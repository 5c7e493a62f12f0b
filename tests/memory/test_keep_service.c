/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn keep` as a service: what was kept is still kept after a kill of the owner. */
#include "group_test.h"
#include "keep_generations.h"
#include "keep_manager.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#define DEVICE_BYTES (512 * MIB)

/* ---- Tests ---- */

static void what_ends_while_there_is_no_owner_is_kept(void **state)
{
    (void)state;
    int signals[] = {SIGKILL, SIGTERM};
    for (int i = 0; i < 2; i++) {
        struct told told;
        tarn_kept kept;
        struct side side = filled(&told);
        end_owner(signals[i]);
        kill_side(side);
        start_service();
        tarn_pool *pool = keep("weights", &kept);
        CHECK(kept.adopted && kept.blocks == 2 && both_are_whole(pool));
        CHECK(kept.moved || found(pool, "first").pointer == told.first);
        end_pool(pool);
        CHECK(held_count() == 0 && lines_of_list("") == 1);
    }
}

static void an_owner_says_when_it_serves(void **state)
{
    (void)state;
    unsigned before = manager.store.ready;
    restart_service(SIGTERM);
    for (int i = 0; i < 1000 && manager.store.ready == before; i++) {
        usleep(10000);
        obey_all();
    }
    CHECK(manager.store.ready == before + 1);
    CHECK(access(keep_path, F_OK) == 0); /* the manager's, so the owner has not removed it */
}

/* The pool is its process's in the new owner too, and what the process does not use any more goes
 * back to the driver. */
static void a_living_process_does_not_notice(void **state)
{
    (void)state;
    struct told told;
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    struct side side = filled(&told);
    unsigned held = held_count();
    restart_service(SIGKILL);
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_BUSY);
    CHECK(strstr(tarn_last_error(), "process"));
    CHECK(held_count() == held);
    kill_side(side);
    tarn_kept kept;
    pool = keep("weights", &kept);
    CHECK(both_are_whole(pool) && held_count() == held);
    restart_service(SIGKILL);
    size_t mapped = reserved();
    OK(tarn_free(found(pool, "second").pointer));
    manager.late = 20000;
    OK(tarn_pool_trim(pool, 0));
    CHECK(reserved() < mapped && held_now() < held); /* the memory is the driver's again */
    OK(tarn_free(found(pool, "first").pointer));
    OK(tarn_pool_release(pool));
    CHECK(held_now() == 0);
    manager.late = 0;
}

/* Another pool, beside that of fill_and_wait(). */
static void fill_two_and_wait(int socket)
{
    tarn_kept kept;
    char *block = alloc_in(keep("others", &kept), 0, MIB);
    fill(block, MIB, 5);
    OK(tarn_pool_block_seal(block, "third", NULL, NULL));
    fill_and_wait(socket);
}

static void end_others(tarn_pool *others)
{
    char *third = found(others, "third").pointer;
    CHECK(holds(third, MIB, 5));
    OK(tarn_free(third));
    OK(tarn_pool_release(others));
}

/* A thread that looks at the group all the time. */
struct watcher {
    pthread_t thread;
    uint64_t bytes; /* that the group is to have */
    atomic_bool ends;
    atomic_uint looks;
    unsigned odd; /* looks that found others */
};

static void *watch(void *argument)
{
    struct watcher *watcher = argument;
    while (!atomic_load(&watcher->ends)) {
        struct group_sum sum = group_look();
        watcher->odd += sum.used + sum.pending != watcher->bytes;
        atomic_fetch_add(&watcher->looks, 1);
    }
    return NULL;
}

static void watch_begin(struct watcher *watcher, uint64_t bytes)
{
    *watcher = (struct watcher){.bytes = bytes};
    CHECK(pthread_create(&watcher->thread, NULL, watch, watcher) == 0);
}

static void watch_end(struct watcher *watcher)
{
    atomic_store(&watcher->ends, true);
    CHECK(pthread_join(watcher->thread, NULL) == 0);
    CHECK(!watcher->odd);
}

/* Until that many looks more. */
static void be_watched(struct watcher *watcher, unsigned looks)
{
    for (unsigned from = atomic_load(&watcher->looks); atomic_load(&watcher->looks) - from < looks;)
        usleep(100);
}

/* What pools have in a group of `tarn run` they have with the next owner too, and while there is
 * none: at each moment, and once. */
static void pools_count_in_their_group_with_each_owner(void **state)
{
    (void)state;
    struct told told;
    struct watcher watcher;
    tarn_kept kept;
    group_choose("service");
    setenv("TARN_RUN_GROUP", group_path, 1);
    struct side side = start_side("fill two and wait", SOCK_STREAM);
    receive_all(side.socket, &told, sizeof told);
    uint64_t bytes = group_look().used;
    CHECK(bytes >= 29 * MIB);
    watch_begin(&watcher, bytes);
    for (int i = 0; i < 8; i++) {
        end_owner(i % 2 ? SIGTERM : SIGKILL);
        if (i == 4)
            kill_side(side);
        be_watched(&watcher, 20);
        start_service();
        be_watched(&watcher, 20);
    }
    watch_end(&watcher);
    end_others(keep("others", &kept));
    end_pool(keep("weights", &kept));
    unsetenv("TARN_RUN_GROUP");
    CHECK(held_count() == 0 && access(group_path, F_OK) != 0);
}

/* What the manager gives up counts no longer. */
static void a_stop_of_the_service_ends_the_count(void **state)
{
    (void)state;
    struct told told;
    group_choose("stop");
    setenv("TARN_RUN_GROUP", group_path, 1);
    kill_side(filled(&told));
    unsetenv("TARN_RUN_GROUP");
    end_owner(SIGTERM);
    CHECK(group_look().used >= 28 * MIB);
    give_all_up();
    struct group_sum sum = group_look();
    CHECK(sum.used == 0 && sum.processes == 0);
    CHECK(unlink(group_path) == 0);
    start_service();
    CHECK(lines_of_list("") == 1);
}

/* The manager hands over the file of a group whose name another file has now. */
static void a_group_that_was_replaced_is_left(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    group_choose("replaced");
    setenv("TARN_RUN_GROUP", group_path, 1);
    kill_side(filled(&told));
    unsetenv("TARN_RUN_GROUP");
    uint64_t bytes = group_look().used;
    unsigned held = held_count();
    end_owner(SIGKILL);
    CHECK(unlink(group_path) == 0);
    start_service();
    CHECK(group_look().used == bytes && held_count() == held);
    end_pool(keep("weights", &kept));
    CHECK(held_count() == 0);
}

/* The process sends one pipe for both. */
static void each_pool_of_a_process_stays_its_own(void **state)
{
    (void)state;
    static const char *const names[] = {"others", "weights"};
    struct told told;
    tarn_kept kept;
    struct side side = start_side("fill two and wait", SOCK_STREAM);
    receive_all(side.socket, &told, sizeof told);
    unsigned held = held_count();
    for (int i = 0; i < 2; i++) {
        restart_service(SIGKILL);
        for (int k = 0; k < 2; k++) {
            tarn_keep_options options = small_segments();
            tarn_pool *pool = NULL;
            GIVES(tarn_pool_keep(names[k], &options, &pool, NULL), TARN_ERROR_BUSY);
            CHECK(strstr(tarn_last_error(), "process"));
        }
        CHECK(held_count() == held);
    }
    kill_side(side);
    tarn_pool *others = keep("others", &kept);
    CHECK(kept.blocks == 1);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    end_others(others);
    end_pool(pool);
    CHECK(held_count() == 0);
}

static void discard_and_wait(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    (void)alloc_in(pool, 0, MIB);
    OK(tarn_pool_suspend(pool, false));
    say(socket, 'd');
    hear(socket, 'e');
}

/* A pool without memory, which a process has failed to take over: its reader sees what the next
 * process seals. */
static void a_pool_without_memory_stays_for_its_reader(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_pool *reader = NULL, *none = NULL;
    tarn_keep_options options = small_segments();
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    struct side side = start_side("discard and wait", SOCK_STREAM);
    hear(side.socket, 'd');
    options.read = true;
    OK(tarn_pool_keep("weights", &options, &reader, NULL));
    kill_side(side);
    options.read = false;
    options.wait_ms = 10000;
    OK(tarn_host_fail_set(kind_of("reserve"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_pool_keep("weights", &options, &none, NULL), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    restart_service(SIGKILL);
    tarn_pool *pool = keep("weights", &kept);
    char *third = alloc_in(pool, 0, MIB);
    fill(third, MIB, 5);
    OK(tarn_pool_block_seal(third, "third", NULL, NULL));
    CHECK(kept.adopted && holds(found(reader, "third").pointer, MIB, 5));
    OK(tarn_free(third));
    OK(tarn_pool_release(reader));
    OK(tarn_pool_release(pool));
    CHECK(held_count() == 0);
}

static void a_child_is_named_by_the_next_owner(void **state)
{
    (void)state;
    char text[32];
    pid_t child = 0;
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    struct side side = start_side("fill and fork", SOCK_STREAM);
    receive_all(side.socket, &child, sizeof child);
    CHECK(kill(side.process, SIGKILL) == 0);
    restart_service(SIGKILL);
    options.wait_ms = 100;
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_BUSY);
    snprintf(text, sizeof text, "process %d, a child", (int)child);
    CHECK(strstr(tarn_last_error(), text));
    end_side(side, 128 + SIGKILL);
    options.wait_ms = 20000;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    OK(tarn_pool_release(pool));
    CHECK(held_count() == 0);
}

/* Descriptors that are no part of a pool are closed, in the manager too; others are not harmed. */
static void what_is_no_pool_is_given_up(void **state)
{
    (void)state;
    static const char *const names[] = {
        "pool1.record", "pool1.layout", "pool2.layout", "pool3.0+200000",
        "pool4.record", "pool0.junk",   "pool",         "pool99999999999.pipe",
        "pool0.zz+1",   "stored",       "group0.night", "group9999.x",
        "group3.",      "group0..x",    "group",
    };
    struct told told;
    tarn_kept kept;
    kill_side(filled(&told));
    unsigned held = held_count();
    end_owner(SIGKILL);
    pthread_mutex_lock(&manager.lock);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fd_store_hold(&manager.store, names[i], memfd_create("junk", MFD_CLOEXEC));
    pthread_mutex_unlock(&manager.lock);
    start_service();
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    end_pool(pool);
    CHECK(held > 0 && held_count() == 0);
}

/* A manager that holds fewer descriptors than there are: what it has is not lost. */
static void a_store_that_is_too_small_says_so(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    manager.store.room = 5; /* four of the pool, one segment */
    struct side side = filled(&told);
    CHECK(held_count() == 5);
    restart_service(SIGKILL);
    manager.store.room = FD_STORE_MOST;
    kill_side(side);
    GIVES(tarn_pool_keep("weights", &options, &pool, &kept), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "in no segment"));
    char command[300];
    snprintf(command, sizeof command, "\"$TARN_PROGRAM\" keep --socket %s --drop weights",
             keep_path);
    CHECK(system(command) == 0 && held_count() == 0);
}

/* Owners and processes are killed at any moment, in any order. */
static void owners_and_processes_are_killed_at_any_moment(void **state)
{
    (void)state;
    int count = count_of_kills(40, 2000);
    for (int i = 0; i < count; i++) {
        struct side side = next_generation();
        for (unsigned kills = pick(3); kills > 0; kills--) {
            usleep(pick(10000));
            restart_service(SIGKILL);
        }
        usleep(pick(10000));
        bool owner_first = pick(2);
        if (owner_first)
            end_owner(SIGKILL);
        kill_side(side);
        if (owner_first)
            start_service();
    }
    last_generation();
    CHECK(held_count() == 0);
}

static void prepare_device(void)
{
    host_start_with(1, DEVICE_BYTES);
}

static int begin(void **state)
{
    (void)state;
    prepare_device();
    keep_name_socket("service");
    manager_begin();
    start_service();
    return 0;
}

static int end(void **state)
{
    (void)state;
    end_owner(SIGTERM);
    manager_end();
    return 0;
}

static const struct role roles[] = {
    {"fill two and wait", fill_two_and_wait},
    {"discard and wait", discard_and_wait},
    KEEP_ROLES,
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (role_play(argc, argv, prepare_device, roles))
        return 0;
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ends_while_there_is_no_owner_is_kept),
        cmocka_unit_test(an_owner_says_when_it_serves),
        cmocka_unit_test(a_living_process_does_not_notice),
        cmocka_unit_test(pools_count_in_their_group_with_each_owner),
        cmocka_unit_test(a_stop_of_the_service_ends_the_count),
        cmocka_unit_test(a_group_that_was_replaced_is_left),
        cmocka_unit_test(each_pool_of_a_process_stays_its_own),
        cmocka_unit_test(a_pool_without_memory_stays_for_its_reader),
        cmocka_unit_test(a_child_is_named_by_the_next_owner),
        cmocka_unit_test(what_is_no_pool_is_given_up),
        cmocka_unit_test(a_store_that_is_too_small_says_so),
        cmocka_unit_test(owners_and_processes_are_killed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
