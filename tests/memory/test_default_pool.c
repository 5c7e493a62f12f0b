/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Each call on a pool with the device's default pool, and blocks whose pool is named. */
#include "support/host.h"
#include "support/live.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)

static tarn_pool *everybodys, *other;
static tarn_stream own;

static tarn_stats stats_of_pool(tarn_pool *pool)
{
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_pool_stats_get(pool, &stats));
    return stats;
}

static tarn_pool_id pool_of(void *block)
{
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(block, &info));
    return info.pool;
}

static bool is_everybodys(void *block)
{
    tarn_pool_id id = pool_of(block);
    return !id.first && !id.second;
}

static void it_is_one_and_counts_nothing(void **state)
{
    (void)state;
    tarn_pool *again = NULL, *second = NULL, *none = NULL;
    tarn_pool_id id = {7, 7};
    tarn_pool_state runs = TARN_POOL_SAVED;
    unsigned count = 0;
    int device = -1;
    OK(tarn_pool_default(TARN_CURRENT_DEVICE, &again));
    OK(tarn_pool_default(1, &second));
    CHECK(again == everybodys && second != everybodys);
    for (int i = 0; i < 5; i++)
        OK(tarn_pool_release(everybodys));
    OK(tarn_pool_retain(everybodys));
    count = pool_info_of(everybodys).use_count;
    id = pool_info_of(everybodys).id;
    device = pool_info_of(second).device;
    runs = pool_info_of(everybodys).state;
    CHECK(count == 1 && !id.first && !id.second && device == 1 && runs == TARN_POOL_RUNS &&
          !pool_info_of(everybodys).allocator);
    GIVES(tarn_pool_find(id, &none), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "tarn_pool_default"));
    GIVES(tarn_pool_default(9, &none), TARN_ERROR_INVALID_DEVICE);
    GIVES(tarn_pool_default(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(!none);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    tarn_checkpoint *checkpoint = NULL, *others = NULL;
    void *block = alloc_on(own, MIB);
    OK(tarn_pool_checkpoint(other, &others));
    GIVES(tarn_pool_suspend(everybodys, true), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_resume(everybodys), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_checkpoint(everybodys, &checkpoint), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_restore(everybodys, others, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_capture_begin(everybodys, own, TARN_CAPTURE_GLOBAL),
          TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_capture_announce(everybodys, own), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_hold(everybodys, block), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "serves everybody") &&
          strstr(tarn_last_error(), "tarn_pool_create"));
    CHECK(!checkpoint);
    OK(tarn_checkpoint_destroy(others));
    OK(tarn_free(block));
}

static void its_statistics_are_its_own(void **state)
{
    (void)state;
    void *mine = NULL, *theirs = NULL, *small = alloc_on(own, 1000);
    OK(tarn_pool_alloc(everybodys, own, 20 * MIB, &mine));
    OK(tarn_pool_alloc(other, own, 40 * MIB, &theirs));
    tarn_stats all = stats_of(0), ours = stats_of_pool(everybodys), others = stats_of_pool(other);
    CHECK(ours.allocated_bytes[TARN_STAT_ALL].current == (int64_t)(20 * MIB) + 1024);
    for (int class = 0; class < TARN_STAT_CLASSES; class ++) {
        CHECK(all.allocated_bytes[class].current ==
              ours.allocated_bytes[class].current + others.allocated_bytes[class].current);
        CHECK(all.reserved_bytes[class].current ==
              ours.reserved_bytes[class].current + others.reserved_bytes[class].current);
        CHECK(all.allocation[class].current ==
              ours.allocation[class].current + others.allocation[class].current);
    }
    CHECK(ours.allocated_bytes[TARN_STAT_ALL].peak < (int64_t)(40 * MIB));
    OK(tarn_free(theirs));
    OK(tarn_free(mine));
    OK(tarn_free(small));
    CHECK(stats_of_pool(everybodys).allocated_bytes[TARN_STAT_ALL].current == 0);
}

static void a_trim_and_a_limit_concern_only_their_own_pool(void **state)
{
    (void)state;
    void *block = NULL, *none = NULL;
    size_t limit = 0;
    OK(tarn_free(alloc_on(own, 20 * MIB)));
    OK(tarn_pool_alloc(other, own, 20 * MIB, &block));
    OK(tarn_free(block));
    const int64_t reserved = stats_of_pool(everybodys).reserved_bytes[TARN_STAT_ALL].current;
    CHECK(reserved >= (int64_t)(20 * MIB) && reserved <= (int64_t)(24 * MIB));
    OK(tarn_pool_trim(everybodys, 24 * MIB)); /* what the pool keeps, whatever others have */
    OK(tarn_pool_trim(everybodys, SIZE_MAX));
    CHECK(stats_of_pool(everybodys).reserved_bytes[TARN_STAT_ALL].current == reserved);
    OK(tarn_device_trim(0, 24 * MIB)); /* what the device keeps, that of others too */
    CHECK(stats_of_pool(everybodys).reserved_bytes[TARN_STAT_ALL].current <= (int64_t)(4 * MIB));
    OK(tarn_free(alloc_on(own, 20 * MIB)));
    OK(tarn_pool_trim(everybodys, 8 * MIB));
    CHECK(stats_of_pool(everybodys).reserved_bytes[TARN_STAT_ALL].current <= (int64_t)(8 * MIB));
    OK(tarn_pool_trim(everybodys, 0));
    CHECK(stats_of_pool(everybodys).reserved_bytes[TARN_STAT_ALL].current == 0);
    CHECK(stats_of_pool(other).reserved_bytes[TARN_STAT_ALL].current >= (int64_t)(20 * MIB));
    OK(tarn_capture_begin(own, TARN_CAPTURE_GLOBAL));
    GIVES(tarn_pool_trim(everybodys, 0), TARN_ERROR_CAPTURE);
    OK(tarn_capture_abort(own));

    OK(tarn_pool_limit_set(everybodys, 30 * MIB));
    limit = pool_info_of(everybodys).limit;
    CHECK(limit == 30 * MIB);
    GIVES(tarn_alloc_on(own, 40 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_pool_alloc(other, own, 40 * MIB, &block));
    OK(tarn_pool_limit_set(everybodys, TARN_NO_LIMIT));
    OK(tarn_free(block));
    OK(tarn_free(alloc_on(own, 40 * MIB)));
    CHECK(!none);
}

static void its_blocks_are_listed(void **state)
{
    (void)state;
    void *pointers[2] = {alloc_on(own, 3 * MIB), alloc_on(own, 700)}, *theirs = NULL;
    tarn_pool_block blocks[4];
    size_t count = 0;
    bool same = false;
    OK(tarn_pool_alloc(other, own, 700, &theirs));
    OK(tarn_pool_blocks_get(everybodys, blocks, 4, &count));
    OK(live_are(everybodys, pointers, 2, &same));
    CHECK(count == 2 && same);
    OK(live_are(everybodys, &theirs, 1, &same));
    CHECK(!same);
    for (int i = 0; i < 2; i++)
        OK(tarn_free(pointers[i]));
    OK(tarn_free(theirs));
}

/* While nothing is cached other memory serves in its place. */
static void without_caching_it_is_the_same_pool(void **state)
{
    (void)state;
    void *block = NULL;
    size_t count = 0;
    OK(tarn_caching_set(false, NULL));
    OK(tarn_pool_alloc(everybodys, own, MIB, &block));
    uint64_t freed = calls_of(0, "free");
    OK(tarn_pool_blocks_get(everybodys, NULL, 0, &count));
    CHECK(count == 1 &&
          stats_of_pool(everybodys).allocated_bytes[TARN_STAT_ALL].current == (int64_t)MIB);
    OK(tarn_free(block));
    OK(tarn_caching_set(true, NULL));
    CHECK(calls_of(0, "free") > freed); /* it was not cached */
}

static void *allocates(void *argument)
{
    void **block = argument;
    *block = alloc_on(own, 5000);
    return NULL;
}

static void a_scope_leads_back_to_it(void **state)
{
    (void)state;
    tarn_scope outer = 0, inner = 0, second = 0;
    for (int kind = 0; kind < 3; kind++) {
        OK(tarn_scope_begin(other, (tarn_scope_kind)kind, own, &outer));
        void *theirs = alloc_on(own, 5000);
        OK(tarn_scope_begin(everybodys, (tarn_scope_kind)kind, own, &inner));
        void *ours = alloc_on(own, 5000), *beside = NULL;
        GIVES(tarn_scope_begin(everybodys, (tarn_scope_kind)kind, own, &second), TARN_ERROR_SCOPE);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, allocates, &beside), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        OK(tarn_scope_end(inner));
        void *after = alloc_on(own, 5000);
        OK(tarn_scope_end(outer));
        CHECK(!is_everybodys(theirs) && is_everybodys(ours) && is_everybodys(beside) &&
              !is_everybodys(after));
        void *all[] = {theirs, ours, beside, after};
        for (int i = 0; i < 4; i++)
            OK(tarn_free(all[i]));
    }
    CHECK(!second);
}

static void *begins_and_ends(void *argument)
{
    tarn_scope scope = 0;
    OK(tarn_scope_begin(everybodys, TARN_SCOPE_THREAD, 0, &scope));
    OK(tarn_free(alloc_on(own, 5000)));
    return argument; /* the scope ends with its only thread */
}

static void a_scope_of_it_ends_with_its_thread(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, begins_and_ends, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_block_of_a_named_pool_has_tag_and_alignment(void **state)
{
    (void)state;
    tarn_scope scope = 0;
    tarn_pool *second = NULL;
    tarn_block_info info = {.size = sizeof info};
    tarn_alloc_options options = {.size = sizeof options,
                                  .device = TARN_CURRENT_DEVICE,
                                  .stream = own,
                                  .alignment = (size_t)1 << 16,
                                  .pool = other};
    void *block = NULL, *back = NULL, *none = NULL;
    OK(tarn_tag_intern("weights", &options.tag));
    OK(tarn_alloc(&options, 3 * MIB, &block));
    OK(tarn_pointer_info_get(block, &info));
    CHECK(!is_everybodys(block) && (uintptr_t)block % (1 << 16) == 0 && info.tag == options.tag);
    OK(tarn_alloc(&options, 0, &none));
    CHECK(!none);
    OK(tarn_scope_begin(other, TARN_SCOPE_THREAD, 0, &scope));
    options.pool = everybodys; /* past the scope */
    OK(tarn_alloc(&options, MIB, &back));
    CHECK(is_everybodys(back));
    OK(tarn_scope_end(scope));
    OK(tarn_pool_default(1, &second));
    options.pool = second;
    GIVES(tarn_alloc(&options, MIB, &none), TARN_ERROR_INVALID_STREAM);
    options.device = 0;
    GIVES(tarn_alloc(&options, MIB, &none), TARN_ERROR_INVALID_DEVICE);
    options.pool = (tarn_pool *)(void *)&options;
    GIVES(tarn_alloc(&options, MIB, &none), TARN_ERROR_INVALID_ARGUMENT);
    options =
        (tarn_alloc_options){.size = sizeof options, .device = TARN_CURRENT_DEVICE, .pool = second};
    void *far = NULL;
    OK(tarn_alloc(&options, MIB, &far)); /* the constant is the pool's device's */
    OK(tarn_pointer_info_get(far, &info));
    CHECK(info.device == 1 && !none);
    OK(tarn_free(far));
    OK(tarn_free(back));
    OK(tarn_free(block));
}

static int set_up(void **state)
{
    (void)state;
    host_start_with(2, MEMORY);
    own = lease(0);
    OK(tarn_pool_default(0, &everybodys));
    OK(tarn_pool_create(NULL, &other));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    OK(tarn_pool_release(other));
    nothing_is_left(0);
    nothing_is_left(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_one_and_counts_nothing),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(its_statistics_are_its_own),
        cmocka_unit_test(a_trim_and_a_limit_concern_only_their_own_pool),
        cmocka_unit_test(its_blocks_are_listed),
        cmocka_unit_test(without_caching_it_is_the_same_pool),
        cmocka_unit_test(a_scope_leads_back_to_it),
        cmocka_unit_test(a_scope_of_it_ends_with_its_thread),
        cmocka_unit_test(a_block_of_a_named_pool_has_tag_and_alignment),
    };
    return cmocka_run_group_tests_name("the default pool", tests, set_up, tear_down);
}
