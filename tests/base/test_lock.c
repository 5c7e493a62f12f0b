/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The lock that many share: who wants it alone gets it though those who share it never all let go
 * by themselves. The quick mutex: one thread has it at a time, others sleep meanwhile and are
 * woken. And, where it is
 * compiled in, the check of the order: each wrong order ends a process, and no right one does. */
#include "base/thread/lock.h"
#include "support/host.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static shared_lock lock;
static atomic_int sharing;
static atomic_bool asked, had, over;

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Lets go when another has it too, so that somebody always has, or when nobody else has come for 20
 * ms. */
static void *share(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        shared_lock_shared(&lock);
        atomic_fetch_add(&sharing, 1);
        uint64_t until = now_ms() + 20;
        for (int two = 2; !atomic_compare_exchange_weak(&sharing, &two, 1); two = 2) {
            if (now_ms() > until || atomic_load(&over)) {
                atomic_fetch_sub(&sharing, 1);
                break;
            }
            sched_yield();
        }
        shared_unlock(&lock);
    }
    return NULL;
}

static void *want_alone(void *unused)
{
    (void)unused;
    atomic_store(&asked, true);
    shared_lock_alone(&lock);
    atomic_store(&had, true);
    shared_unlock(&lock);
    return NULL;
}

static void test_comes_before_those_who_come_later(void **state)
{
    (void)state;
    pthread_t sharers[3], alone;
    shared_init(&lock, LOCK_LEAF);
    for (int i = 0; i < 3; i++)
        pthread_create(&sharers[i], NULL, share, NULL);
    while (atomic_load(&sharing) < 2)
        sched_yield();
    pthread_create(&alone, NULL, want_alone, NULL);
    for (uint64_t until = now_ms() + 3000; !atomic_load(&had) && now_ms() < until;)
        sched_yield();
    bool in_time = atomic_load(&had);
    atomic_store(&over, true);
    for (int i = 0; i < 3; i++)
        pthread_join(sharers[i], NULL);
    pthread_join(alone, NULL);
    shared_finish(&lock);
    assert_true(atomic_load(&asked));
    assert_true(in_time);
}

static void test_tries(void **state)
{
    (void)state;
    shared_init(&lock, LOCK_LEAF);
    assert_true(shared_try_shared(&lock));
    assert_true(shared_try_shared(&lock));
    assert_false(shared_try_alone(&lock));
    shared_unlock(&lock);
    shared_unlock(&lock);
    assert_true(shared_try_alone(&lock));
    assert_false(shared_try_alone(&lock));
    assert_false(shared_try_shared(&lock));
    shared_unlock(&lock);
    shared_finish(&lock);
}

static quick_mutex quick;
static uint64_t counted;

static void *count(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        mutex_lock(&quick);
        uint64_t before = counted;
        if (i % 100 == 0)
            sched_yield(); /* others come, and sleep */
        counted = before + 1;
        mutex_unlock(&quick);
    }
    return NULL;
}

static void test_quick_has_one_at_a_time(void **state)
{
    (void)state;
    pthread_t threads[4];
    counted = 0;
    quick_mutex_init(&quick, LOCK_LEAF);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, count, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counted, 80000);
}

static atomic_int waited;       /* threads */
static atomic_uint_fast64_t us; /* of processor time that they took, together */

static void *wait_for_quick(void *unused)
{
    (void)unused;
    struct timespec used;
    errno = EDOM;
    mutex_lock(&quick);
    mutex_unlock(&quick);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    atomic_fetch_add(&us, (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000);
    if (errno == EDOM)
        atomic_fetch_add(&waited, 1);
    return NULL;
}

static void test_quick_sleeps_and_is_woken(void **state)
{
    (void)state;
    pthread_t threads[3];
    atomic_store(&us, 0);
    atomic_store(&waited, 0);
    quick_mutex_init(&quick, LOCK_LEAF);
    mutex_lock(&quick);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, wait_for_quick, NULL);
    usleep(300000);
    mutex_unlock(&quick);
    for (uint64_t until = now_ms() + 10000; atomic_load(&waited) < 3 && now_ms() < until;)
        usleep(1000);
    assert_int_equal(atomic_load(&waited), 3);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&us) < 50000);
}

#if defined(TARN_DEBUG_CHECKS) && TARN_DEBUG_CHECKS

static quick_mutex quick_heap_lock;
static mutex arena_lock = MUTEX_INITIALIZER(LOCK_ARENA), heap_lock = MUTEX_INITIALIZER(LOCK_HEAP),
             heaps_lock = MUTEX_INITIALIZER(LOCK_HEAPS),
             other_heap_lock = MUTEX_INITIALIZER(LOCK_HEAP);
static shared_lock moving;
static spinlock spin;
static mutex leaf = MUTEX_INITIALIZER(LOCK_LEAF), other_leaf = MUTEX_INITIALIZER(LOCK_LEAF);

/* What a process says that does `work`; "" where it ends as it should. */
static const char *said_by(void (*work)(void))
{
    static char text[1024];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (!child) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        work();
        _exit(0);
    }
    close(ends[1]);
    size_t size = 0;
    for (ssize_t got; (got = read(ends[0], text + size, sizeof text - 1 - size)) > 0;)
        size += (size_t)got;
    text[size] = 0;
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(size ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT
                     : WIFEXITED(status) && !WEXITSTATUS(status));
    return text;
}

static void in_order(void)
{
    shared_lock_shared(&moving);
    mutex_lock(&heap_lock);
    mutex_lock(&arena_lock);
    spin_lock(&spin, LOCK_SPIN);
    mutex_unlock(&heap_lock); /* not as they were taken */
    spin_unlock(&spin);
    mutex_unlock(&arena_lock);
    shared_unlock(&moving);
    mutex_lock(&heap_lock); /* and nothing is left */
    mutex_unlock(&heap_lock);
}

static void against_the_order(void)
{
    mutex_lock(&arena_lock);
    mutex_lock(&heap_lock);
}

static void shared_against_the_order(void)
{
    mutex_lock(&heap_lock);
    shared_lock_shared(&moving);
}

static void under_a_spinlock(void)
{
    spin_lock(&spin, LOCK_SPIN);
    mutex_lock(&arena_lock);
}

static void leaf_under_leaf(void)
{
    mutex_lock(&leaf);
    mutex_lock(&other_leaf);
}

static void leaves_in_turn(void)
{
    mutex_lock(&leaf);
    spin_lock(&spin, LOCK_SPIN);
    spin_unlock(&spin);
    mutex_unlock(&leaf);
    mutex_lock(&other_leaf);
}

static void quick_against_the_order(void)
{
    quick_mutex_init(&quick_heap_lock, LOCK_HEAP);
    mutex_lock(&arena_lock);
    mutex_lock(&quick_heap_lock);
}

static void under_a_quick_one(void)
{
    quick_mutex_init(&quick_heap_lock, LOCK_HEAP);
    mutex_lock(&quick_heap_lock);
    mutex_lock(&arena_lock);
    mutex_unlock(&quick_heap_lock);
    shared_lock_shared(&moving);
}

static void twice(void)
{
    mutex_lock(&heap_lock);
    mutex_lock(&other_heap_lock);
}

static void twice_under_heaps(void)
{
    mutex_lock(&heaps_lock);
    mutex_lock(&heap_lock);
    mutex_lock(&other_heap_lock);
}

static void tried_against_the_order(void)
{
    mutex_lock(&arena_lock);
    if (!mutex_try(&heap_lock) || !shared_try_shared(&moving))
        _exit(1);
    mutex_unlock(&arena_lock);
    mutex_lock(&arena_lock);
}

static void under_a_tried_one(void)
{
    if (!mutex_try(&arena_lock))
        _exit(1);
    mutex_lock(&heap_lock);
}

static void left_and_not_taken(void)
{
    mutex_unlock(&heap_lock);
}

static void test_order(void **state)
{
    (void)state;
    shared_init(&moving, LOCK_MOVING);
    assert_string_equal(said_by(in_order), "");
    assert_string_equal(said_by(twice_under_heaps), "");
    assert_string_equal(said_by(tried_against_the_order), "");
    assert_non_null(strstr(said_by(shared_against_the_order), "moving"));
    assert_non_null(strstr(said_by(under_a_spinlock), "the counters' lock"));
    assert_string_equal(said_by(leaves_in_turn), "");
    assert_non_null(strstr(said_by(leaf_under_leaf), "a leaf, taken at"));
    assert_non_null(strstr(said_by(quick_against_the_order), "a heap's lock"));
    assert_non_null(strstr(said_by(under_a_quick_one), "under an arena's lock"));
    assert_non_null(strstr(said_by(twice), "a heap's lock"));
    assert_non_null(strstr(said_by(under_a_tried_one), "a heap's lock"));
    assert_non_null(strstr(said_by(left_and_not_taken), "not taken"));
    const char *text = said_by(against_the_order), *place = strstr(text, "test_lock.c:");
    assert_non_null(strstr(text, "a heap's lock (heap/heap.h) is taken at"));
    assert_non_null(strstr(text, "under an arena's lock"));
    assert_non_null(place);
    assert_non_null(strstr(place + 1, "test_lock.c:"));
    shared_finish(&moving);
}

#else

static void test_order(void **state)
{
    (void)state; /* not compiled in: a mutex is a pthread_mutex_t */
    assert_int_equal(sizeof(mutex), sizeof(pthread_mutex_t));
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_before_those_who_come_later),
        cmocka_unit_test(test_tries),
        cmocka_unit_test(test_quick_has_one_at_a_time),
        cmocka_unit_test(test_quick_sleeps_and_is_woken),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
