/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sleepers: what is not tarn's and sleeps with the process. Each of the test's own anchors a block
 * of a pool while it is awake, as a communicator does that has registered it, and knows which of
 * its callbacks may come next. Tried are the order, refusals, failures of each callback and of each
 * call of the driver, removals; and a model of them at random. */
#include "support/failures.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/pinned.h>
#include <tarn/sleep.h>

#include <cmocka.h>

enum { SLEEPERS = 3, SIZE = 3 * MIB, ITEMS = 16 };
enum callback { PREPARE, CANCEL, COMMIT, WAKE, CALLBACKS };

struct sleeper {
    tarn_sleeper number; /* 0: none */
    char letter;
    tarn_pool *pool;
    tarn_stream stream;
    unsigned char *block; /* of the pool, anchored while awake */
    bool anchored;
    enum { AWAKE, PREPARED, IN_PART, ASLEEP } state;
    tarn_status gives[CALLBACKS]; /* the next time */
    size_t holds;
    bool removes; /* tries to remove itself in each callback */
};

static struct sleeper sleepers[SLEEPERS];
static char events[128]; /* "pC" and so on: the callback, and whose */

static tarn_sleep_state state_now(void)
{
    tarn_sleep_state state = TARN_SLEEP_CHANGES;
    OK(tarn_sleep_state_get(&state));
    return state;
}

static tarn_pool_state pool_state(const struct sleeper *sleeper)
{
    return pool_info_of(sleeper->pool).state;
}

static tarn_sleeper_info info_of(const struct sleeper *sleeper)
{
    tarn_sleeper_info info = {.size = sizeof info};
    OK(tarn_sleeper_info_get(sleeper->number, &info));
    return info;
}

/* ---- Their callbacks ---- */

static tarn_status called(struct sleeper *sleeper, enum callback callback, char *why, size_t room)
{
    char event[3] = {"pxcw"[callback], sleeper -> letter, 0};
    tarn_status status = sleeper->gives[callback];
    CHECK(state_now() == TARN_SLEEP_CHANGES);
    if (strlen(events) + sizeof event <= sizeof events)
        strcat(events, event);
    sleeper->gives[callback] = TARN_OK;
    if (why)
        snprintf(why, room, "it is %c's day off", sleeper->letter);
    if (sleeper->removes)
        GIVES(tarn_sleeper_remove(sleeper->number), TARN_ERROR_BUSY);
    GIVES(tarn_sleep(NULL, NULL), TARN_ERROR_BUSY);
    return status;
}

static tarn_status prepare(void *user, char *why, size_t room)
{
    struct sleeper *sleeper = user;
    tarn_status status = called(sleeper, PREPARE, why, room);
    CHECK(sleeper->state == AWAKE && (pool_state(sleeper) == TARN_POOL_RUNS || !sleeper->anchored));
    sleeper->state = status ? AWAKE : PREPARED;
    return status;
}

static void cancel(void *user)
{
    struct sleeper *sleeper = user;
    (void)called(sleeper, CANCEL, NULL, 0);
    CHECK(sleeper->state == PREPARED);
    sleeper->state = AWAKE;
}

/* The anchors go, with half of the work done where it fails. */
static tarn_status commit(void *user, char *why, size_t room)
{
    struct sleeper *sleeper = user;
    tarn_status status = called(sleeper, COMMIT, why, room);
    CHECK(sleeper->state == PREPARED || sleeper->state == IN_PART);
    if (sleeper->anchored)
        OK(tarn_unanchor(sleeper->block, 1));
    sleeper->anchored = false;
    sleeper->state = status ? IN_PART : ASLEEP;
    return status;
}

static tarn_status wake(void *user, char *why, size_t room)
{
    struct sleeper *sleeper = user;
    tarn_status status = called(sleeper, WAKE, why, room);
    CHECK(sleeper->state == ASLEEP || sleeper->state == IN_PART);
    sleeper->state = IN_PART;
    if (status || sleeper->anchored)
        return status;
    status = tarn_anchor(sleeper->block, 1); /* its pool runs again */
    if (status)
        return status;
    sleeper->anchored = true;
    sleeper->state = AWAKE;
    return TARN_OK;
}

static size_t held(void *user)
{
    const struct sleeper *sleeper = user;
    return sleeper->holds;
}

static void add(int i)
{
    struct sleeper *sleeper = &sleepers[i];
    char name[16];
    snprintf(name, sizeof name, "sleeper %c", sleeper->letter);
    tarn_sleeper_options options = {.size = sizeof options,
                                    .name = name,
                                    .device = i ? 0 : TARN_ALL_DEVICES,
                                    .pool = sleeper->pool,
                                    .user = sleeper,
                                    .prepare = prepare,
                                    .cancel = cancel,
                                    .commit = commit,
                                    .wake = wake,
                                    .held = held};
    OK(tarn_sleeper_add(&options, &sleeper->number));
    memset(name, '?', sizeof name - 1);
    sleeper->state = AWAKE;
}

static bool block_is_right(const struct sleeper *sleeper)
{
    return sleeper->block[0] == (unsigned char)sleeper->letter &&
           memcmp(sleeper->block, sleeper->block + 1, SIZE - 1) == 0;
}

static int set_up(void **state)
{
    (void)state;
    memset(sleepers, 0, sizeof sleepers);
    for (int i = 0; i < SLEEPERS; i++) {
        struct sleeper *sleeper = &sleepers[i];
        sleeper->letter = (char)('A' + i);
        sleeper->pool = pool_with((tarn_pool_options){.device = 0});
        sleeper->stream = lease(0);
        sleeper->block = alloc_in(sleeper->pool, sleeper->stream, SIZE);
        memset(sleeper->block, sleeper->letter, SIZE);
        OK(tarn_anchor(sleeper->block, 1));
        sleeper->anchored = true;
        add(i);
    }
    events[0] = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    CHECK(state_now() == TARN_SLEEP_AWAKE);
    for (int i = 0; i < SLEEPERS; i++) {
        struct sleeper *sleeper = &sleepers[i];
        CHECK(sleeper->state == AWAKE && block_is_right(sleeper));
        if (sleeper->number)
            OK(tarn_sleeper_remove(sleeper->number));
        if (sleeper->anchored)
            OK(tarn_unanchor(sleeper->block, 1));
        OK(tarn_free(sleeper->block));
        OK(tarn_pool_release(sleeper->pool));
        OK(tarn_stream_return(sleeper->stream));
    }
    OK(tarn_pinned_trim(0));
    nothing_is_left(0);
    return 0;
}

static void were(const char *wanted)
{
    if (strcmp(events, wanted) != 0)
        fprintf(stderr, "the callbacks were %s, not %s\n", events, wanted);
    CHECK(strcmp(events, wanted) == 0);
    events[0] = 0;
}

static void all_are(tarn_pool_state wanted)
{
    for (int i = 0; i < SLEEPERS; i++)
        CHECK(pool_state(&sleepers[i]) == wanted);
}

/* ---- Tests ---- */

static void the_newest_sleeps_first_and_the_oldest_wakes_first(void **state)
{
    (void)state;
    tarn_residue residue = {.size = sizeof residue};
    OK(tarn_sleep(NULL, &residue));
    were("pCpBpAcCcBcA");
    CHECK(residue.count == 0 && residue.after == 0); /* what was anchored has gone */
    all_are(TARN_POOL_SAVED);
    CHECK(info_of(&sleepers[1]).state == TARN_SLEEPER_ASLEEP);
    OK(tarn_wake());
    were("wAwBwC");
    all_are(TARN_POOL_RUNS);
    CHECK(info_of(&sleepers[1]).state == TARN_SLEEPER_AWAKE && !*info_of(&sleepers[1]).why);
    OK(tarn_sleep_prepare(NULL, NULL));
    were("pCpBpA");
    CHECK(info_of(&sleepers[1]).state == TARN_SLEEPER_PREPARED && sleepers[1].anchored);
    uint64_t calls = all_calls(0);
    OK(tarn_sleep_cancel());
    were("xAxBxC");
    CHECK(all_calls(0) == calls);
}

static void a_sleep_of_other_things_leaves_them_alone(void **state)
{
    (void)state;
    tarn_residue_item items[ITEMS];
    tarn_residue residue = {.size = sizeof residue, .items = items, .room = ITEMS};
    tarn_sleep_options options = {.size = sizeof options, .what = TARN_SLEEP_POOLS};
    OK(tarn_sleep(&options, &residue));
    were("");
    CHECK(residue.count == SLEEPERS && items[0].reason == TARN_RESIDUE_REGISTERED);
    OK(tarn_wake());
    options.what = TARN_SLEEP_SLEEPERS;
    OK(tarn_sleep(&options, &residue));
    were("pCpBpAcCcBcA");
    all_are(TARN_POOL_RUNS);
    OK(tarn_wake());
}

static void one_that_refuses_is_residue(void **state)
{
    (void)state;
    tarn_residue_item items[ITEMS];
    tarn_residue residue = {.size = sizeof residue, .items = items, .room = ITEMS};
    sleepers[1].gives[PREPARE] = TARN_ERROR_BUSY;
    sleepers[1].holds = 777;
    sleepers[2].holds = 5;
    OK(tarn_sleep(NULL, &residue));
    were("pCpBpAcCcA");
    tarn_sleeper_info info = info_of(&sleepers[1]);
    CHECK(info.state == TARN_SLEEPER_AWAKE && info.status == TARN_ERROR_BUSY && info.device == 0);
    CHECK(strcmp(info.name, "sleeper B") == 0 && strcmp(info.why, "it is B's day off") == 0);
    CHECK(residue.count == 3 && items[0].reason == TARN_RESIDUE_REGISTERED &&
          items[0].bytes == residue.after);
    CHECK(items[1].reason == TARN_RESIDUE_SLEEPER && items[1].bytes == 777 &&
          items[1].count == sleepers[1].number);
    CHECK(items[2].reason == TARN_RESIDUE_SLEEPER && items[2].bytes == 5 &&
          items[2].count == sleepers[2].number);
    CHECK(items[2].device == 0 && strstr(items[2].text, "what a sleeper has") == items[2].text);
    CHECK(pool_state(&sleepers[1]) == TARN_POOL_RUNS &&
          pool_state(&sleepers[2]) == TARN_POOL_SAVED);
    OK(tarn_wake());
    were("wAwC");
    OK(tarn_sleep(NULL, &residue)); /* and the next time it sleeps */
    CHECK(residue.count == 2);
    OK(tarn_wake());
    sleepers[1].holds = sleepers[2].holds = 0;
}

static void a_prepare_that_fails_is_undone(void **state)
{
    (void)state;
    sleepers[1].gives[PREPARE] = TARN_ERROR_DRIVER;
    GIVES(tarn_sleep(NULL, NULL), TARN_ERROR_LIBRARY);
    CHECK(strstr(tarn_last_error(), "sleeper B") &&
          strstr(tarn_last_error(), "it is B's day off") &&
          strstr(tarn_last_error(), "TARN_ERROR_DRIVER"));
    were("pCpBxC");
    CHECK(state_now() == TARN_SLEEP_AWAKE);
    all_are(TARN_POOL_RUNS);
}

static void anchors_of_others_keep_a_pool_awake(void **state)
{
    (void)state;
    tarn_residue_item items[ITEMS];
    tarn_residue residue = {.size = sizeof residue, .items = items, .room = ITEMS};
    OK(tarn_anchor(sleepers[1].block + MIB, 10));
    OK(tarn_sleep(NULL, &residue));
    were("pCpBpAcCcBcA");
    CHECK(residue.count == 1 && items[0].reason == TARN_RESIDUE_REGISTERED &&
          items[0].bytes == residue.after);
    CHECK(pool_state(&sleepers[1]) == TARN_POOL_RUNS &&
          pool_state(&sleepers[0]) == TARN_POOL_SAVED);
    CHECK(block_is_right(&sleepers[1]));
    OK(tarn_free(alloc_in(sleepers[1].pool, sleepers[1].stream, 1000)));
    OK(tarn_wake());
    OK(tarn_unanchor(sleepers[1].block + MIB, 10));
}

static void after_a_commit_that_fails_it_goes_on_or_back(void **state)
{
    (void)state;
    for (int back = 0; back < 2; back++) {
        tarn_residue_item items[ITEMS];
        tarn_residue residue = {.size = sizeof residue, .items = items, .room = ITEMS};
        OK(tarn_sleep_prepare(NULL, NULL));
        events[0] = 0;
        sleepers[1].gives[COMMIT] = TARN_ERROR_LIBRARY;
        GIVES(tarn_sleep_commit(&residue), TARN_ERROR_LIBRARY);
        CHECK(strstr(tarn_last_error(), "commit of the sleeper sleeper B"));
        were("cCcB");
        CHECK(state_now() == TARN_SLEEP_PREPARED &&
              info_of(&sleepers[1]).state == TARN_SLEEPER_ASLEEP);
        CHECK(residue.count == 1 && items[0].reason == TARN_RESIDUE_SLEEPER &&
              items[0].count == sleepers[1].number);
        for (int i = 0; i < SLEEPERS; i++)
            CHECK(block_is_right(&sleepers[i])); /* no memory has gone */
        if (back) {
            OK(tarn_sleep_cancel());
            were("wBwCxA");
        } else {
            OK(tarn_sleep_commit(NULL));
            were("cBcA");
            all_are(TARN_POOL_SAVED);
            OK(tarn_wake());
            were("wAwBwC");
        }
        all_are(TARN_POOL_RUNS);
    }
    sleepers[0].gives[COMMIT] = TARN_ERROR_LIBRARY;
    GIVES(tarn_sleep(NULL, NULL), TARN_ERROR_LIBRARY);
    were("pCpBpAcCcBcAwAwBwC");
    CHECK(strstr(tarn_last_error(), "sleeper A") && state_now() == TARN_SLEEP_AWAKE);
}

static void a_wake_that_fails_can_be_repeated(void **state)
{
    (void)state;
    OK(tarn_sleep(NULL, NULL));
    events[0] = 0;
    sleepers[1].gives[WAKE] = TARN_ERROR_OUT_OF_MEMORY;
    GIVES(tarn_wake(), TARN_ERROR_LIBRARY);
    were("wAwB");
    CHECK(state_now() == TARN_SLEEP_ASLEEP &&
          info_of(&sleepers[1]).status == TARN_ERROR_OUT_OF_MEMORY);
    all_are(TARN_POOL_RUNS);
    OK(tarn_wake());
    were("wBwC");

    OK(tarn_sleep_prepare(NULL, NULL)); /* the same of a cancel */
    sleepers[1].gives[COMMIT] = TARN_ERROR_LIBRARY;
    GIVES(tarn_sleep_commit(NULL), TARN_ERROR_LIBRARY);
    events[0] = 0;
    sleepers[1].gives[WAKE] = TARN_ERROR_LIBRARY;
    GIVES(tarn_sleep_cancel(), TARN_ERROR_LIBRARY);
    were("wB");
    CHECK(state_now() == TARN_SLEEP_PREPARED);
    all_are(TARN_POOL_RUNS);
    OK(tarn_sleep_cancel());
    were("wBwCxA");
}

static void a_cancel_that_wakes_waits_for_captures(void **state)
{
    (void)state;
    void *graph = NULL;
    tarn_stream other = lease(0);
    OK(tarn_sleep_prepare(NULL, NULL));
    sleepers[0].gives[COMMIT] = TARN_ERROR_LIBRARY;
    GIVES(tarn_sleep_commit(NULL), TARN_ERROR_LIBRARY);
    events[0] = 0;
    OK(tarn_capture_begin(other, TARN_CAPTURE_RELAXED));
    GIVES(tarn_sleep_cancel(), TARN_ERROR_CAPTURE);
    were("");
    OK(tarn_capture_end(other, &graph));
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_sleep_cancel());
    were("wAwBwC");
    OK(tarn_stream_return(other));
}

static void one_that_is_removed_is_called_no_more(void **state)
{
    (void)state;
    for (int i = 0; i < SLEEPERS; i++)
        sleepers[i].removes = true;
    OK(tarn_sleep(NULL, NULL));
    events[0] = 0;
    OK(tarn_sleeper_remove(sleepers[1].number));
    GIVES(tarn_sleeper_remove(sleepers[1].number), TARN_ERROR_INVALID_ARGUMENT);
    tarn_sleeper_info info = {.size = sizeof info};
    GIVES(tarn_sleeper_info_get(sleepers[1].number, &info), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleeper_info_get(0, &info), TARN_ERROR_INVALID_ARGUMENT);
    sleepers[1].state = AWAKE;
    tarn_sleeper before = sleepers[1].number;
    add(1); /* while others sleep: it is awake, and the newest now */
    CHECK(sleepers[1].number > before && info_of(&sleepers[1]).state == TARN_SLEEPER_AWAKE);
    OK(tarn_wake());
    were("wAwC");
    OK(tarn_sleep(NULL, NULL));
    were("pBpCpAcBcCcA");
    OK(tarn_wake());
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    tarn_sleeper number = 0;
    tarn_pool *standard;
    OK(tarn_pool_default(0, &standard));
    const tarn_sleeper_options right = {
        .size = sizeof right, .name = "right", .commit = commit, .wake = wake};
    tarn_sleeper_options wrong[6] = {right, right, right, right, right, right};
    wrong[0].name = NULL;
    wrong[1].name = "";
    wrong[2].commit = NULL;
    wrong[3].wake = NULL;
    wrong[4].device = TARN_MAX_DEVICES;
    wrong[5].pool = standard;
    for (size_t i = 0; i < 6; i++)
        GIVES(tarn_sleeper_add(&wrong[i], &number), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleeper_add(&right, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleeper_remove(0), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(number == 0);
    failure_arm(&(struct failure){.kind = FAIL_memory, .nth = 1});
    GIVES(tarn_sleeper_add(&right, &number), TARN_ERROR_OUT_OF_HOST_MEMORY);
    failure_clear();
    CHECK(number == 0);
}

static void end_asleep(void)
{
    void *none = NULL;
    set_up(&none);
    OK(tarn_sleep(NULL, NULL));
    events[0] = 0;
    OK(tarn_shutdown());
    were("");
    GIVES(tarn_wake(), TARN_ERROR_SHUTDOWN);
    OK(tarn_sleeper_remove(sleepers[0].number));
}

static void a_shutdown_calls_none(void **state)
{
    (void)state;
    in_child(end_asleep);
}

/* ---- Failures of everything else, and a model ---- */

/* Until it is awake, which nothing hinders any more. */
static void awake_again(void)
{
    if (state_now() == TARN_SLEEP_PREPARED)
        OK(tarn_sleep_cancel());
    if (state_now() == TARN_SLEEP_ASLEEP)
        OK(tarn_wake());
    CHECK(state_now() == TARN_SLEEP_AWAKE);
    for (int i = 0; i < SLEEPERS; i++) {
        if (pool_state(&sleepers[i]) !=
            TARN_POOL_RUNS) /* a prepare that could not undo its copies leaves it to its owner */
            OK(tarn_pool_resume(sleepers[i].pool));
        CHECK(sleepers[i].state == AWAKE && sleepers[i].anchored && block_is_right(&sleepers[i]));
    }
}

static void none_is_left_behind_whatever_fails(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (int kind = FAIL_driver; kind <= FAIL_memory; kind++)
        for (int forever = 0; forever < 2; forever++) {
            bool hit = true;
            for (uint64_t nth = 1; hit; nth++, failures++) {
                events[0] = 0;
                failure_arm(&(struct failure){
                    .kind = (enum failure_kind)kind, .nth = nth, .forever = forever});
                (void)tarn_sleep(NULL, NULL);
                if (state_now() == TARN_SLEEP_ASLEEP)
                    (void)tarn_wake();
                hit = failure_hits() > 0;
                failure_clear();
                awake_again();
            }
        }
    print_message("%u failures\n", failures);
    CHECK(failures > 60);
}

static void model_failures(uint64_t *random)
{
    static const tarn_status statuses[] = {TARN_OK, TARN_OK, TARN_OK, TARN_ERROR_BUSY,
                                           TARN_ERROR_LIBRARY};
    for (int i = 0; i < SLEEPERS; i++)
        for (int j = 0; j < CALLBACKS; j++)
            sleepers[i].gives[j] = statuses[random_next(random) % 5];
}

/* Each callback checks what it may follow. After a call that succeeded, a pool whose sleeper sleeps
 * has no memory. */
static void model_step(uint64_t *random)
{
    tarn_sleep_options options = {.size = sizeof options,
                                  .what = (unsigned)(random_next(random) % 16)};
    bool go = random_next(random) % 2;
    tarn_status status;
    events[0] = 0;
    model_failures(random);
    switch (state_now()) {
    case TARN_SLEEP_AWAKE:
        status = go ? tarn_sleep(&options, NULL) : tarn_sleep_prepare(&options, NULL);
        break;
    case TARN_SLEEP_PREPARED:
        status = go ? tarn_sleep_commit(NULL) : tarn_sleep_cancel();
        break;
    default:
        status = tarn_wake();
        break;
    }
    CHECK(!status || status == TARN_ERROR_LIBRARY);
    for (int i = 0; i < SLEEPERS; i++) {
        const struct sleeper *sleeper = &sleepers[i];
        static const tarn_sleeper_state states[] = {[AWAKE] = TARN_SLEEPER_AWAKE,
                                                    [PREPARED] = TARN_SLEEPER_PREPARED,
                                                    [IN_PART] = TARN_SLEEPER_ASLEEP,
                                                    [ASLEEP] = TARN_SLEEPER_ASLEEP};
        CHECK(info_of(sleeper).state == states[sleeper->state]);
        CHECK(state_now() != TARN_SLEEP_AWAKE ||
              (sleeper->state == AWAKE && pool_state(sleeper) == TARN_POOL_RUNS));
        CHECK(state_now() != TARN_SLEEP_ASLEEP || sleeper->state != PREPARED);
        CHECK(pool_state(sleeper) != TARN_POOL_SAVED || !sleeper->anchored);
    }
}

static void they_are_as_the_model_says(void **state)
{
    (void)state;
    const char *seed = getenv("TARN_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 0) : 1;
    for (int step = 0; step < 400; step++) {
        model_step(&random);
        if (step % 40 == 39) {
            memset(sleepers[0].gives, 0, sizeof sleepers[0].gives);
            memset(sleepers[1].gives, 0, sizeof sleepers[1].gives);
            memset(sleepers[2].gives, 0, sizeof sleepers[2].gives);
            awake_again();
            memset(sleepers[0].block, ++sleepers[0].letter, SIZE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shutdown_calls_none),
        cmocka_unit_test_setup_teardown(the_newest_sleeps_first_and_the_oldest_wakes_first, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_sleep_of_other_things_leaves_them_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_refuses_is_residue, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_prepare_that_fails_is_undone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(anchors_of_others_keep_a_pool_awake, set_up, tear_down),
        cmocka_unit_test_setup_teardown(after_a_commit_that_fails_it_goes_on_or_back, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_wake_that_fails_can_be_repeated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cancel_that_wakes_waits_for_captures, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_removed_is_called_no_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(none_is_left_behind_whatever_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(they_are_as_the_model_says, set_up, tear_down),
    };
    host_start_with(1, 128 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
