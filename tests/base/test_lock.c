/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The lock that many share: who wants it alone gets it though those who share it never all let go by themselves. */
#include "base/lock.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

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

/* Lets go when another has it too, so that somebody always has, or when nobody else has come for 20 ms. */
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
    shared_init(&lock);
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
    shared_init(&lock);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_before_those_who_come_later),
        cmocka_unit_test(test_tries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
