/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Other threads beside a pass that gives idle memory back, forks, and the thread that makes the
 * passes. */
#include "device/stream.h"
#include "memory/arena/moves.h"
#include "memory/heap/heap.h"
#include "memory/release_test.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/observe.h>
#include <tarn/sleep.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned told; /* calls of the observer */

static void *pass_beside(void *argument)
{
    pass_after(TIME);
    return argument;
}

/* Another thread moves memory, alone: the pass does not wait for it. */
static void a_pass_waits_for_no_thread(void)
{
    begin();
    use(8 * MIB);
    pass_after(TIME);
    pass_after(TIME);
    call_slowly();
    struct arena *arena = arena_if_used(0);
    move_begin_alone(arena);
    in_another_thread(pass_beside, NULL);
    move_end(arena);
    CHECK(reserved() >= 8 * MIB);
    pass_after(TIME);
    CHECK(reserved() == 0);
    nothing_is_left(0);
}

static tarn_status answer;

static void *ask_for_all(void *unused)
{
    void *block = NULL;
    answer = tarn_alloc_on(stream, 40 * MIB, &block);
    if (!answer)
        OK(tarn_free(block));
    return unused;
}

static pthread_t waiting;

/* From a pass that unmaps: at first starts a thread, and goes on when that waits until it is
 * alone, which is soon after it has shut the gate. */
static void wait_for(void *(*run)(void *), struct arena *arena)
{
    if (!told++) {
        CHECK(pthread_create(&waiting, NULL, run, arena) == 0);
        while (pthread_mutex_trylock(&arena->moves.moving.gate) == 0)
            pthread_mutex_unlock(&arena->moves.moving.gate);
    }
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

static void ask_while_unmapping(const tarn_mapping *range, void *arena)
{
    (void)range;
    wait_for(ask_for_all, arena);
}

/* What a pass has in its hands is no reason for a refusal, where requests above a limit are refused
 * early too. */
static void a_request_beside_a_pass_is_served(void)
{
    start_on(1, 4 * MEMORY, "idle_release:86400000,throw_on_cudamalloc_oom:True");
    OK(tarn_device_limit_set(0, 44 * MIB));
    use(40 * MIB);
    pass_after(TIME);
    pass_after(TIME);
    call_slowly();
    tarn_observer observer;
    tarn_observer_options options = {.size = sizeof options,
                                     .unmapping = ask_while_unmapping,
                                     .any_thread = true,
                                     .user = arena_if_used(0)};
    OK(tarn_observer_add(&options, &observer));
    pass_after(TIME);
    CHECK(told > 0 && pthread_join(waiting, NULL) == 0 && answer == TARN_OK);
    OK(tarn_observer_remove(observer));
    rest();
    nothing_is_left(0);
}

static void *move(void *arena)
{
    move_begin(arena);
    move_end(arena);
    return NULL;
}

static unsigned told_before; /* the thread that wanted to be alone was */

static void *move_alone(void *arena)
{
    move_begin_alone(arena);
    told_before = told;
    move_end(arena);
    return NULL;
}

static void wait_while_unmapping(const tarn_mapping *range, void *arena)
{
    (void)range;
    wait_for(move_alone, arena);
}

/* A thread that wants to be alone waits for one heap of a pass, not for all. */
static void a_pass_makes_way(void)
{
    start_on(1, 4 * MEMORY, "idle_release:86400000");
    tarn_pool *pools[4];
    for (int i = 0; i < 4; i++) {
        pools[i] = pool_with((tarn_pool_options){.device = 0});
        OK(tarn_free(alloc_in(pools[i], stream, 8 * MIB)));
    }
    OK(tarn_stream_synchronize(stream));
    pass_after(TIME);
    pass_after(TIME);
    call_slowly();
    tarn_observer observer;
    tarn_observer_options options = {.size = sizeof options,
                                     .unmapping = wait_while_unmapping,
                                     .any_thread = true,
                                     .user = arena_if_used(0)};
    OK(tarn_observer_add(&options, &observer));
    pass_after(TIME);
    CHECK(told > 0 && pthread_join(waiting, NULL) == 0);
    CHECK(reserved() > 0 || told_before < told);
    OK(tarn_observer_remove(observer));
    for (int i = 0; i < 4; i++)
        OK(tarn_pool_release(pools[i]));
    rest();
    nothing_is_left(0);
}

static void pass_while_unmapping(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    if (told++) /* also of what the pass itself unmaps */
        return;
    for (int i = 0; i < 3; i++)
        in_another_thread(pass_beside, NULL);
}

/* Passes in the middle of a suspend: they neither wait for it nor take what it has. */
static void a_suspend_in_progress_is_left_alone(void)
{
    begin();
    tarn_observer observer;
    tarn_observer_options options = {
        .size = sizeof options, .unmapping = pass_while_unmapping, .any_thread = true};
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    char *block = alloc_in(pool, stream, 4 * MIB);
    memset(block, 9, 4 * MIB);
    OK(tarn_free(alloc_in(pool, stream, 20 * MIB)));
    pass_after(TIME);
    OK(tarn_stream_synchronize(stream));
    OK(tarn_observer_add(&options, &observer));
    OK(tarn_pool_suspend(pool, true));
    CHECK(told > 0 && reserved() == 0);
    OK(tarn_observer_remove(observer));
    OK(tarn_pool_resume(pool));
    CHECK(block[0] == 9 && block[4 * MIB - 1] == 9);
    OK(tarn_free(block));
    verify(0);
    OK(tarn_pool_release(pool));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

static atomic_bool over;

static void *pass_until_over(void *argument)
{
    while (!atomic_load(&over))
        pass_after(TIME);
    return argument;
}

static void pools_sleep_beside_passes(void)
{
    begin();
    pthread_t thread;
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    CHECK(pthread_create(&thread, NULL, pass_until_over, NULL) == 0);
    for (int i = 0; i < 50; i++) {
        char *block = alloc_in(pool, stream, 4 * MIB);
        memset(block, i, 4 * MIB);
        OK(tarn_free(alloc_in(pool, stream, 8 * MIB)));
        OK(tarn_pool_suspend(pool, true));
        OK(tarn_pool_resume(pool));
        CHECK(block[0] == (char)i && block[4 * MIB - 1] == (char)i);
        OK(tarn_free(block));
    }
    atomic_store(&over, true);
    CHECK(pthread_join(thread, NULL) == 0);
    verify(0);
    OK(tarn_pool_release(pool));
    OK(tarn_device_trim(0, 0));
    nothing_is_left(0);
}

/* A thread's own moves on one device hide no other thread's on another. */
static void stillness_is_of_one_device(void)
{
    start_on(2, MEMORY, "idle_release:86400000");
    OK(tarn_free(alloc_on(stream, 100)));
    OK(tarn_free(alloc_on(lease(1), 100)));
    struct arena *arena = arena_if_used(0), *other = arena_if_used(1);
    struct stillness since = stillness_begin(arena);
    move(arena);
    move(other);
    CHECK(was_still(arena, &since));
    in_another_thread(move, other);
    CHECK(was_still(arena, &since));
    in_another_thread(move, arena);
    CHECK(!was_still(arena, &since));
    struct stillness again = stillness_begin(arena), of_other = stillness_begin(other);
    move(other);
    in_another_thread(move, arena);
    CHECK(was_still(other, &of_other) && !was_still(arena, &again));
}

static void marks_are_barred_in_one_thread_only(void)
{
    begin();
    struct stream *found = NULL;
    struct mark *mark = NULL;
    OK(stream_find(stream, 0, &found));
    uint64_t calls = all_calls(0);
    marks_bar(true);
    CHECK(mark_record(found, &mark) == TARN_ERROR_NOT_READY && !mark && all_calls(0) == calls);
    marks_bar(false);
    OK(mark_record(found, &mark));
    mark_release(mark);
}

static unsigned long value_of(const char *path, const char *field, int base)
{
    char line[128];
    unsigned long value = 0;
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            value = strtoul(line + strlen(field), NULL, base);
    CHECK(fclose(file) == 0);
    return value;
}

/* The threads that take signals, which are the program's: each of the library's has them all
 * blocked. And how often the library's have slept. */
static unsigned count_threads(unsigned long *sleeps)
{
    unsigned count = 0;
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads);
    *sleeps = 0;
    for (struct dirent *entry; (entry = readdir(threads));) {
        char path[300];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        if (value_of(path, "SigBlk:", 16) & (1u << (SIGUSR1 - 1)))
            *sleeps += value_of(path, "voluntary_ctxt_switches:", 10);
        else
            count++;
    }
    CHECK(closedir(threads) == 0);
    return count;
}

static void goes_within_seconds(void)
{
    for (int i = 0; reserved() && i < 5000; i++) {
        call_slowly();
        (void)usleep(1000);
    }
    CHECK(reserved() == 0);
}

/* The child has no such thread, at whatever point of a pass the fork came. */
static void forked(void)
{
    void *block;
    GIVES(tarn_alloc_on(stream, 100, &block), TARN_ERROR_FORKED);
    GIVES(tarn_configuration_set("idle_release:1"), TARN_ERROR_FORKED);
    release_pass(now += TIME);
}

static void forks_come_at_any_point_of_a_pass(void)
{
    start_with("idle_release:1");
    for (int i = 0; i < 20; i++) {
        use(20 * MIB);
        (void)usleep((useconds_t)i * 125);
        in_child(forked);
    }
    goes_within_seconds();
    OK(tarn_shutdown());
}

/* The thread itself. */
static void the_thread_does_it(void)
{
    start_with("idle_release:2");
    use(20 * MIB);
    goes_within_seconds();
    unsigned long sleeps;
    CHECK(count_threads(&sleeps) == 1 && sleeps > 0);
    in_child(forked);
    use(20 * MIB);
    goes_within_seconds();
    OK(tarn_configuration_set("idle_release:0"));
    use(8 * MIB);
    (void)usleep(20000);
    CHECK(reserved() >= 8 * MIB);
    OK(tarn_configuration_set("idle_release:1"));
    goes_within_seconds();
    OK(tarn_shutdown());
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_SHUTDOWN);
}

static atomic_int shares; /* 1: `moving` is shared; 2: no longer */

static void *share_moving(void *argument)
{
    move_begin(arena_if_used(0));
    atomic_store(&shares, 1);
    while (atomic_load(&shares) < 2)
        (void)usleep(100);
    move_end(arena_if_used(0));
    return argument;
}

/* The thread of a pool with a short time sleeps again when the pool is over, also if the pool could
 * not be removed because memory was on the move, and no call comes after it. */
static void a_pool_that_is_over_wakes_nobody(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0, .idle_release = 1});
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, share_moving, NULL) == 0);
    while (!atomic_load(&shares))
        (void)usleep(100);
    OK(tarn_pool_release(pool));
    atomic_store(&shares, 2);
    CHECK(pthread_join(thread, NULL) == 0);
    unsigned long sleeps = 0, before = 1;
    for (int i = 0; i < 100 && (!sleeps || sleeps != before); i++) {
        before = sleeps;
        (void)usleep(50000);
        (void)count_threads(&sleeps);
    }
    CHECK(sleeps == before);
    OK(tarn_shutdown());
}

#define THREADS 4
#define ROUNDS 300

static void *storm(void *argument)
{
    uint64_t seed = (uintptr_t)argument + 1;
    tarn_stream own = lease(0);
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = 1 + random_next(&seed) % (3 * MIB);
        char *block = NULL;
        if (tarn_alloc_on(own, size, (void **)&block))
            continue;
        OK(tarn_stream_synchronize(own));
        block[0] = block[size - 1] = (char)i;
        if (random_next(&seed) % 8 == 0)
            (void)usleep(1500);
        CHECK(block[0] == (char)i && block[size - 1] == (char)i);
        OK(tarn_free(block));
    }
    OK(tarn_stream_return(own));
    return NULL;
}

static void threads_go_on_beside_it(void)
{
    start_with("idle_release:1");
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, storm, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    goes_within_seconds();
    OK(tarn_configuration_set("idle_release:0"));
    moves_flush(arena_if_used(0)); /* a pass may be in progress */
    verify(0);
    OK(tarn_shutdown());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_pass_waits_for_no_thread),
        CHILD_TEST(a_request_beside_a_pass_is_served),
        CHILD_TEST(a_pass_makes_way),
        CHILD_TEST(a_suspend_in_progress_is_left_alone),
        CHILD_TEST(pools_sleep_beside_passes),
        CHILD_TEST(stillness_is_of_one_device),
        CHILD_TEST(marks_are_barred_in_one_thread_only),
        CHILD_TEST(the_thread_does_it),
        CHILD_TEST(a_pool_that_is_over_wakes_nobody),
        CHILD_TEST(forks_come_at_any_point_of_a_pass),
        CHILD_TEST(threads_go_on_beside_it),
    };
    return cmocka_run_group_tests_name("release_beside", tests, NULL, NULL);
}
