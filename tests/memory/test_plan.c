/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plans: where requests are put, whatever the program does; and that it is safe. What is refused of
 * a file is in test_plan_file.c. Each test runs in a child, since a plan counts for a process. The
 * device has 256 MiB. */
#include "memory/heap/heap.h"
#include "memory/pressure/release.h"
#include "plan_test.h"

#include <fcntl.h>

static void use_plan(const struct plan_request *requests, size_t count, uint64_t arena,
                     uint64_t small)
{
    write_plan(header_of(count, arena, small), requests, count);
    use_file();
}

static void use_four(void)
{
    use_plan(four, LENGTH(four), 16 * MIB, 2 * MIB);
}

static struct plan_counts counted(void)
{
    return plan_counts();
}

static void a_plan_counts_from_the_first_use_on(void)
{
    char text[128], wanted[64];
    use_four();
    OK(tarn_configuration_get(text, sizeof text, NULL));
    snprintf(wanted, sizeof wanted, "all:default,plan:%s", path);
    CHECK(strcmp(text, wanted) == 0);
    OK(tarn_configuration_set("plan:none"));
    CHECK(!atomic_load(&plan_now));
    snprintf(text, sizeof text, "plan:%s", path);
    OK(tarn_configuration_set(text));
    void *block = alloc_on(lease(0), 8 * MIB);
    OK(tarn_configuration_set(text)); /* what it is may be said again */
    GIVES(tarn_configuration_set("plan:none"), TARN_ERROR_CONFIGURATION);
    CHECK(strstr(tarn_last_error(), "memory was used with it"));
    OK(tarn_free(block));
}

static void requests_are_put_where_the_plan_has_them(void)
{
    use_four();
    tarn_stream stream = lease(0);
    char *base = alloc_on(stream, 8 * MIB - 100); /* the size is rounded as everywhere */
    CHECK(ledger_of(0).created == 8 * MIB);       /* what nothing was put in has no memory yet */
    uint64_t calls = 0;
    for (int i = 0; i < 3; i++) { /* behind its end the plan begins anew */
        char *second = alloc_on(stream, 4 * MIB);
        CHECK(second == base + 8 * MIB);
        OK(tarn_free(second));
        char *third = alloc_on(stream, 6 * MIB), *small = alloc_on(stream, 3000),
             *fourth = alloc_on(stream, 2 * MIB);
        CHECK(third == base + 8 * MIB && fourth == base + 14 * MIB);
        CHECK(usable_size(third) == 6 * MIB);
        verify(0);
        OK(tarn_free(third));
        OK(tarn_free(small));
        OK(tarn_free(fourth));
        OK(tarn_free(base));
        CHECK((char *)alloc_on(stream, 8 * MIB) == base);
        CHECK(ledger_of(0).created == 18 * MIB && (i == 0 || all_calls(0) == calls));
        calls = all_calls(0);
    }
    CHECK(counted().planned == 13 && counted().beside + counted().ordinary == 0);
    OK(tarn_free(base));
    nothing_is_left(0);
}

static void a_place_that_is_taken_is_not_used(void)
{
    use_four();
    tarn_stream stream = lease(0);
    char *base = alloc_on(stream, 8 * MIB), *second = alloc_on(stream, 4 * MIB);
    char *third = alloc_on(stream, 6 * MIB); /* the second was not given back */
    CHECK(third != base + 8 * MIB);
    CHECK(third + 6 * MIB <= base || third >= base + 12 * MIB);
    char *fourth = alloc_on(stream, 2 * MIB);
    CHECK(ledger_of(0).created == 20 * MIB);
    verify(0);
    void *all[] = {base, second, third, fourth};
    for (size_t i = 0; i < LENGTH(all); i++)
        OK(tarn_free(all[i]));
    nothing_is_left(0);
}

static void a_place_that_is_free_in_part_is_not_used(void)
{
    static const struct plan_request requests[] = {
        REQUEST(4 * MIB, 0, 3), REQUEST(2 * MIB, 6 * MIB, 2), REQUEST(4 * MIB, 4 * MIB, 3)};
    use_plan(requests, LENGTH(requests), 8 * MIB, 0);
    tarn_stream stream = lease(0);
    char *base = alloc_on(stream, 4 * MIB), *second = alloc_on(stream, 2 * MIB);
    CHECK(second == base + 6 * MIB);
    char *third =
        alloc_on(stream, 4 * MIB); /* its place begins free, and ends in the second, which was not
                                      given back */
    CHECK(third >= base + 8 * MIB || third + 4 * MIB <= base);
    verify(0);
    OK(tarn_free(base));
    OK(tarn_free(second));
    OK(tarn_free(third));
    nothing_is_left(0);
}

static void a_block_that_another_stream_uses_keeps_its_place(void)
{
    use_four();
    tarn_stream stream = lease(0), other = lease(0);
    char *base = alloc_on(stream, 8 * MIB), *second = alloc_on(stream, 4 * MIB);
    OK(tarn_record_stream(second, other));
    work_on(other, second, 4 * MIB, 1000);
    OK(tarn_free(second));
    char *third = alloc_on(stream, 6 * MIB);
    CHECK(third >= base + 12 * MIB || third + 6 * MIB <= base + 8 * MIB);
    OK(tarn_free(third));
    OK(tarn_free(alloc_on(stream, 2 * MIB)));
    OK(tarn_free(base));
    CHECK((char *)alloc_on(stream, 8 * MIB) == base); /* the plan begins anew, and the other stream
                                                         has finished: */
    time_pass(2000);
    CHECK((char *)alloc_on(stream, 4 * MIB) == base + 8 * MIB);
    OK(tarn_free(base + 8 * MIB));
    OK(tarn_free(base));
    nothing_is_left(0);
}

/* Eight blocks of sizes that differ, one behind the other, all alive to the end. */
static const struct plan_request eight[] = {
    REQUEST(1 * MIB, 0, 8),        REQUEST(2 * MIB, 1 * MIB, 8),  REQUEST(3 * MIB, 3 * MIB, 8),
    REQUEST(4 * MIB, 6 * MIB, 8),  REQUEST(5 * MIB, 10 * MIB, 8), REQUEST(6 * MIB, 15 * MIB, 8),
    REQUEST(7 * MIB, 21 * MIB, 8), REQUEST(8 * MIB, 28 * MIB, 8),
};

/* Goes through the plan of eight once, so that all of it has memory. Then asks for sizes in MiB;
 * each must be where the plan has it, except for those that are negative, which are given back at
 * once. */
static void follow(tarn_stream stream, const int *sizes, size_t count)
{
    void *blocks[LENGTH(eight)];
    char *base = NULL;
    for (size_t i = 0; i < LENGTH(eight); i++)
        blocks[i] = alloc_on(stream, (i + 1) * MIB);
    for (size_t i = 0; i < LENGTH(eight); i++)
        OK(tarn_free(blocks[i]));
    CHECK(ledger_of(0).created == 36 * MIB);
    for (size_t i = 0; i < count; i++) {
        size_t size = (size_t)abs(sizes[i]);
        char *block = alloc_on(stream, size * MIB);
        if (i == 0)
            base = block;
        if (sizes[i] > 0)
            CHECK(block == base + size * (size - 1) / 2 * MIB);
        else
            OK(tarn_free(block));
    }
    verify(0);
}

static void requests_may_be_skipped(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    static const int sizes[] = {1, 2, 4, 5, 6, 7, 8};
    follow(lease(0), sizes, LENGTH(sizes));
}

static void requests_may_come_in_addition(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    static const int sizes[] = {1, 2, -20, 3, -9, 4, 5, 6, 7, 8};
    follow(lease(0), sizes, LENGTH(sizes));
}

static void requests_may_change_places(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    static const int sizes[] = {1, 3, 2, 4, 6, 5, 7, 8};
    follow(lease(0), sizes, LENGTH(sizes));
}

/* What is not planned goes where nothing is planned as long as it may live. */
static void what_is_not_planned_spares_what_will_come(void)
{
    static const struct plan_request requests[] = {
        REQUEST(4 * MIB, 0, 6),        REQUEST(4 * MIB, 4 * MIB, 6),  REQUEST(2 * MIB, 8 * MIB, 6),
        REQUEST(6 * MIB, 10 * MIB, 6), REQUEST(3 * MIB, 16 * MIB, 6), REQUEST(5 * MIB, 24 * MIB, 6),
    };
    use_plan(requests, LENGTH(requests), 29 * MIB, 0);
    tarn_stream stream = lease(0);
    char *base = alloc_on(stream, 4 * MIB);
    CHECK((char *)alloc_on(stream, 4 * MIB) == base + 4 * MIB);
    /* The only stretch that nothing is planned in */
    CHECK((char *)alloc_on(stream, 5 * MIB / 2) == base + 19 * MIB);
    CHECK((char *)alloc_on(stream, 2 * MIB) == base + 8 * MIB);
    CHECK((char *)alloc_on(stream, 6 * MIB) == base + 10 * MIB);
    CHECK((char *)alloc_on(stream, 3 * MIB) == base + 16 * MIB);
    CHECK((char *)alloc_on(stream, 5 * MIB) == base + 24 * MIB);
    CHECK(counted().planned == 6 && counted().beside == 1 && counted().ordinary == 0);
    CHECK(ledger_of(0).created == 28 * MIB); /* all except the granule that nothing was put in */
    verify(0);
}

static void an_alignment_is_kept(void)
{
    static const struct plan_request requests[] = {REQUEST(3 * MIB, 0, 2),
                                                   REQUEST(4 * MIB, 3 * MIB + 512, 2)};
    use_plan(requests, LENGTH(requests), 8 * MIB, 0);
    tarn_stream stream = lease(0);
    void *first = alloc_on(stream, 3 * MIB), *second = NULL;
    const tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = stream, .alignment = 1 << 20};
    OK(tarn_alloc(&options, 4 * MIB, &second));
    CHECK((uintptr_t)second % MIB == 0);
    OK(tarn_free(first));
    OK(tarn_free(second));
    nothing_is_left(0);
}

/* Memory --------------------------------------------------------------------------------------- */

static void all_go(void *blocks[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
}

/* Blocks of 2 MiB side by side, which fill the device's memory. */
static void places_that_are_next_get_memory_together(void)
{
    struct plan_request requests[MEMORY / (2 * MIB)];
    for (size_t i = 0; i < LENGTH(requests); i++)
        requests[i] = (struct plan_request)REQUEST(2 * MIB, i * 2 * MIB, LENGTH(requests));
    use_plan(requests, LENGTH(requests), MEMORY, 0);
    tarn_stream stream = lease(0);
    void *blocks[6];
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = alloc_on(stream, 2 * MIB);
        CHECK(ledger_of(0).created == (i / 2 + 1) * 4 * MIB);
    }
    blocks[5] = alloc_on(stream, 5 * MIB); /* from now on each when it is used */
    blocks[4] = alloc_on(stream, 2 * MIB);
    CHECK(blocks[4] == (char *)blocks[0] + 8 * MIB && ledger_of(0).created == 16 * MIB);
    verify(0);
    all_go(blocks, LENGTH(blocks));
}

/* What did not come has no memory, and its place serves what is not planned. */
static void what_is_left_out_makes_room(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    tarn_stream stream = lease(0);
    static const size_t sizes[] = {1, 2, 3, 5, 6, 7}; /* not the 4 MiB at 6 */
    void *blocks[LENGTH(sizes)];
    for (size_t i = 0; i < LENGTH(sizes); i++)
        blocks[i] = alloc_on(stream, sizes[i] * MIB);
    CHECK(ledger_of(0).created == 24 * MIB && counted().planned == LENGTH(sizes));
    char *more = alloc_on(stream, 7 * MIB / 2), *last = alloc_on(stream, 8 * MIB);
    CHECK(more == (char *)blocks[0] + 6 * MIB && last == (char *)blocks[0] + 28 * MIB);
    CHECK(ledger_of(0).created == 36 * MIB && counted().beside == 1 && counted().ordinary == 0);
    verify(0);
    OK(tarn_free(more));
    OK(tarn_free(last));
    all_go(blocks, LENGTH(blocks));
}

/* A request of about the expected size is the expected one, and so is what comes next. */
static void a_request_may_be_smaller_than_planned(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    tarn_stream stream = lease(0);
    static const size_t halves[] = {2, 4, 6, 7, 10, 12};
    void *blocks[LENGTH(halves)];
    for (size_t i = 0; i < LENGTH(halves); i++) {
        blocks[i] = alloc_on(stream, halves[i] * MIB / 2);
        CHECK((char *)blocks[i] == (char *)blocks[0] + eight[i].offset * TARN_BLOCK_UNIT);
    }
    CHECK(counted().planned == LENGTH(halves) && counted().beside + counted().ordinary == 0);
    all_go(blocks, LENGTH(blocks));
}

/* The places from which a trim takes memory while a block lives get memory again. */
static void after_a_trim_places_get_memory_again(void)
{
    use_four();
    tarn_stream stream = lease(0);
    char *base = NULL;
    for (int i = 0; i < 3; i++) {
        char *first = alloc_on(stream, 8 * MIB);
        CHECK(i == 0 || first == base);
        base = first;
        OK(tarn_free(alloc_on(stream, 4 * MIB)));
        char *third = alloc_on(stream, 6 * MIB), *fourth = alloc_on(stream, 2 * MIB);
        CHECK(third == base + 8 * MIB && fourth == base + 14 * MIB &&
              ledger_of(0).created == 16 * MIB);
        OK(tarn_free(third));
        OK(tarn_free(fourth));
        OK(tarn_device_trim(0, 0));
        CHECK(ledger_of(0).created == 8 * MIB);
        verify(0);
        OK(tarn_free(base));
    }
    CHECK(counted().planned == 12 && counted().beside + counted().ordinary == 0);
    nothing_is_left(0);
}

/* Memory that a request beside the plan took is not created again for the places that have none:
 * the request uses what is free. */
static void places_get_no_more_memory_than_the_arena_has(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    tarn_stream stream = lease(0);
    void *blocks[LENGTH(eight)];
    blocks[0] = alloc_on(stream, 1 * MIB);
    OK(tarn_free(alloc_on(stream, 34 * MIB))); /* does not fit into the arena */
    for (size_t i = 1; i < LENGTH(eight); i++)
        blocks[i] = alloc_on(stream, (i + 1) * MIB);
    CHECK(ledger_of(0).created <= 40 * MIB);
    verify(0);
    all_go(blocks, LENGTH(blocks));
}

/* Live blocks keep addresses and contents, and what goes back between them gets memory again when
 * it is next. */
static void a_compaction_leaves_the_plan_as_it_was(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    tarn_stream stream = lease(0);
    char *blocks[LENGTH(eight)];
    size_t gained = 0;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < LENGTH(eight); i++) {
            blocks[i] = alloc_on(stream, (i + 1) * MIB);
            CHECK(blocks[i] == blocks[0] + eight[i].offset * TARN_BLOCK_UNIT);
            memset(blocks[i], round + 8 * (int)i, (i + 1) * MIB);
        }
        CHECK(ledger_of(0).created == 36 * MIB &&
              counted().planned == LENGTH(eight) * (unsigned)(round + 1));
        for (size_t i = 0; i < LENGTH(eight); i++)
            if (i % 3 != 1)
                OK(tarn_free(blocks[i]));
        OK(tarn_compact(0, SIZE_MAX, &gained));
        CHECK(ledger_of(0).created < 24 * MIB);
        verify(0);
        for (size_t i = 1; i < LENGTH(eight); i += 3) {
            for (size_t j = 0; j < (i + 1) * MIB; j += 4096)
                CHECK(blocks[i][j] == (char)(round + 8 * (int)i));
            OK(tarn_free(blocks[i]));
        }
    }
    CHECK(gained > 0 && counted().beside + counted().ordinary == 0);
    nothing_is_left(0);
}

/* Who follows ---------------------------------------------------------------------------------- */

static void one_stream_follows_and_that_of_the_beginning(void)
{
    use_four();
    tarn_stream other = lease(0), stream = lease(0);
    tarn_pool *pool = NULL;
    void *private = NULL;
    void *unlike = alloc_on(other, 5 * MIB + 512);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, stream, 8 * MIB, &private));
    CHECK(counted().planned == 0);
    char *base = alloc_on(stream, 8 * MIB);
    void *same = alloc_on(other, 8 * MIB);
    CHECK(counted().planned == 1 && base);
    verify(0);
    OK(tarn_free(unlike));
    OK(tarn_free(private));
    OK(tarn_free(same));
    OK(tarn_free(base));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* An arena for a stream that begins with 8 MiB, and one for another that begins with 9. */
static void use_two(void)
{
    struct two two = two_of_four(1);
    struct plan_request *last = &two.others[0];
    *last = (struct plan_request)REQUEST(9 * MIB, 0, 4); /* what tells the second arena */
    two.others[1] = (struct plan_request)REQUEST(4 * MIB, 9 * MIB, 2);
    two.others[2] = (struct plan_request)REQUEST(6 * MIB, 9 * MIB, 4);
    two.others[3] = (struct plan_request)REQUEST(1 * MIB, 15 * MIB, 4);
    write_two(two, sizeof two);
    use_file();
}

/* What begins one arena is near the beginning of another too. */
static void the_arena_that_begins_with_a_request_comes_first(void)
{
    struct two two = two_of_four(1);
    two.others[0] = (struct plan_request)REQUEST(6 * MIB, 0, 4);
    write_two(two, sizeof two);
    use_file();
    tarn_stream one = lease(0), other = lease(0);
    char *six = alloc_on(other, 6 * MIB), *base = alloc_on(one, 8 * MIB);
    CHECK(counted().planned == 2);
    CHECK((char *)alloc_on(one, 4 * MIB) == base + 8 * MIB &&
          (char *)alloc_on(other, 4 * MIB) == six + 8 * MIB);
    verify(0);
}

static void each_stream_follows_an_arena_of_its_own(void)
{
    use_two();
    tarn_stream one = lease(0), other = lease(0), third = lease(0);
    char *far = alloc_on(other, 9 * MIB); /* the second arena, though it is asked for first */
    CHECK(ledger_of(0).created == 10 * MIB && counted().planned == 1);
    char *base = alloc_on(one, 8 * MIB);
    CHECK(ledger_of(0).created == 18 * MIB && counted().planned == 2);
    uint64_t calls = 0;
    for (int i = 0; i < 4; i++) {
        char *second = alloc_on(one, 4 * MIB), *far_second = alloc_on(other, 4 * MIB);
        CHECK(second == base + 8 * MIB && far_second == far + 9 * MIB);
        OK(tarn_free(second));
        char *later = alloc_on(other, 6 * MIB); /* its place is still taken on its own stream, and
                                                   free on the other */
        CHECK(later != base + 8 * MIB && later != far_second);
        OK(tarn_free(far_second));
        OK(tarn_free(later));
        char *last = alloc_on(one, 6 * MIB);
        CHECK(last == base + 8 * MIB);
        verify(0);
        OK(tarn_free(last));
        OK(tarn_free(alloc_on(one, 2 * MIB)));
        OK(tarn_free(alloc_on(other, 1 * MIB)));
        OK(tarn_free(base));
        OK(tarn_free(far));
        CHECK((char *)alloc_on(one, 8 * MIB) == base && (char *)alloc_on(other, 9 * MIB) == far);
        calls = i ? calls : all_calls(0); /* the first time memory was made for what had no place */
    }
    CHECK(all_calls(0) == calls);
    uint64_t planned = counted().planned;
    void *same = alloc_on(third, 8 * MIB); /* no arena is left for it */
    CHECK(counted().planned == planned);
    OK(tarn_free(same));
    OK(tarn_free(base));
    OK(tarn_free(far));
    nothing_is_left(0);
}

/* Work that another stream still does with a block keeps its place, in each arena; the other
 * stream's arena knows nothing of it. */
static void the_order_of_each_stream_is_kept(void)
{
    use_two();
    tarn_stream one = lease(0), other = lease(0);
    char *base = alloc_on(one, 8 * MIB), *far = alloc_on(other, 9 * MIB);
    char *second = alloc_on(one, 4 * MIB), *far_second = alloc_on(other, 4 * MIB);
    OK(tarn_record_stream(second, other));
    work_on(other, second, 4 * MIB, 1000);
    OK(tarn_free(second));
    OK(tarn_free(far_second)); /* free in the order of its own stream, whose work is behind */
    char *third = alloc_on(one, 6 * MIB), *far_third = alloc_on(other, 6 * MIB);
    CHECK(third >= base + 12 * MIB || third + 6 * MIB <= base + 8 * MIB);
    CHECK(far_third == far + 9 * MIB);
    verify(0);
    void *all[] = {base, far, third, far_third};
    for (size_t i = 0; i < LENGTH(all); i++)
        OK(tarn_free(all[i]));
    nothing_is_left(0);
}

static void an_arena_that_is_given_up_is_followed_again(void)
{
    use_two();
    void *native = native_made(0);
    tarn_stream one, other = lease(0), third = lease(0);
    OK(tarn_stream_adopt(0, native, &one));
    char *base = alloc_on(one, 8 * MIB), *far = alloc_on(other, 9 * MIB);
    CHECK(counted().planned == 2);
    OK(tarn_stream_retire(one));
    char *again = alloc_on(third, 8 * MIB);
    CHECK(counted().planned == 3 && again != base);
    void *unplanned = alloc_on(lease(0), 9 * MIB); /* the other stream still follows that arena */
    CHECK(counted().planned == 3);
    char *still = alloc_on(other, 4 * MIB);
    CHECK(counted().planned == 4 && still == far + 9 * MIB);
    verify(0);
    void *all[] = {base, far, again, still, unplanned};
    for (size_t i = 0; i < LENGTH(all); i++)
        OK(tarn_free(all[i]));
    nothing_is_left(0);
}

static void after_a_trim_a_plan_begins_anew(void)
{
    use_four();
    tarn_stream stream = lease(0);
    void *block = alloc_on(stream, 8 * MIB);
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == 0);
    block = alloc_on(stream, 8 * MIB);
    CHECK(counted().planned == 2 && ledger_of(0).created == 8 * MIB);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void another_stream_follows_when_the_first_is_gone(void)
{
    use_four();
    void *native = native_made(0);
    tarn_stream stream, other = lease(0);
    OK(tarn_stream_adopt(0, native, &stream));
    void *block = alloc_on(stream, 8 * MIB);
    CHECK(counted().planned == 1);
    OK(tarn_stream_retire(stream));
    void *again = alloc_on(other, 8 * MIB);
    CHECK(counted().planned == 2);
    verify(0);
    OK(tarn_free(block));
    OK(tarn_free(again));
    nothing_is_left(0);
}

/* Two requests far from each other in an arena. */
static void ask_for_two(size_t arena, uint64_t planned)
{
    const struct plan_request requests[] = {REQUEST(8 * MIB, 0, 2),
                                            REQUEST(4 * MIB, arena - 4 * MIB, 2)};
    use_plan(requests, LENGTH(requests), arena, 0);
    tarn_stream stream = lease(0);
    void *first = alloc_on(stream, 8 * MIB), *second = alloc_on(stream, 4 * MIB);
    CHECK(counted().planned == planned && ledger_of(0).created == 12 * MIB);
    verify(0);
    OK(tarn_free(first));
    OK(tarn_free(second));
    nothing_is_left(0);
}

static void a_plan_larger_than_the_addresses_is_not_followed(void)
{
    ask_for_two((ARENA_ADDRESS_FACTOR + 1) * MEMORY, 0);
}

static void a_plan_larger_than_the_device_takes_what_is_used_of_it(void)
{
    ask_for_two(MEMORY + 44 * MIB, 2);
}

/* What is mapped ahead of the requests does not go back in the next pass. */
static void what_is_mapped_ahead_rests(void)
{
    enum { PLANNED = 1000, ASKED = 40, SIZE = 2 * 1024 * 1024 };
    const uint64_t day = UINT64_C(86400000000000);
    static struct plan_request requests[PLANNED];
    char text[128];
    int times = 0;
    for (uint32_t i = 0; i < PLANNED; i++)
        requests[i] = (struct plan_request)REQUEST(SIZE, (size_t)i * SIZE, PLANNED);
    write_plan(header_of(PLANNED, (uint64_t)PLANNED * SIZE, SIZE), requests, PLANNED);
    snprintf(text, sizeof text, "plan:%s,idle_release:86400000", path);
    OK(tarn_configuration_set(text));
    host_start_with(1, 8192 * MIB);
    tarn_stream stream = lease(0);
    for (int i = 0; i < ASKED; i++) {
        size_t before = ledger_of(0).created;
        (void)alloc_on(stream, SIZE);
        size_t created = ledger_of(0).created;
        release_pass(day * (unsigned)(i + 1));
        if (created > before + SIZE) {
            CHECK(ledger_of(0).created == created);
            times++;
        }
    }
    CHECK(times > 0);
}

/* The memory of a plan that is not needed serves others when they are short. */
static void the_arena_serves_who_is_short(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 0);
    tarn_stream stream = lease(0), other = lease(0);
    void *block = alloc_on(stream, 1 * MIB);
    void *large = alloc_on(other, 224 * MIB);
    CHECK(ledger_of(0).created <= MEMORY);
    verify(0);
    OK(tarn_free(large));
    OK(tarn_free(block));
    nothing_is_left(0);
}

/* The n-th driver call, or host allocation, of the beginning fails: the request is served all the
 * same, or fails and changes nothing. */
static void begin_with_failure(uint64_t n, bool host)
{
    tarn_stream stream = lease(0);
    void *block = alloc_with_failure(NULL, stream, 8 * MIB, n, host);
    if (block)
        OK(tarn_free(block));
    block = alloc_on(stream, 8 * MIB);
    OK(tarn_free(block));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void failures_at_the_beginning_leave_all_as_it_was(void)
{
    use_plan(eight, LENGTH(eight), 36 * MIB, 2 * MIB);
    void *warm = alloc_on(lease(0), 100); /* what the device needs at its first use is there */
    OK(tarn_free(warm));
    for (uint64_t n = 1; n <= 64; n++) {
        begin_with_failure(n, false);
        begin_with_failure(n, true);
    }
    CHECK(counted().planned > 8);
}

/* The same of the second arena, while the first is followed: the stream that follows it notices
 * nothing. */
static void second_with_failure(tarn_stream one, tarn_stream other, uint64_t n, bool host)
{
    char *base = alloc_on(one, 8 * MIB);
    void *block = alloc_with_failure(NULL, other, 9 * MIB, n, host);
    char *second = alloc_on(one, 4 * MIB);
    CHECK(second == base + 8 * MIB);
    OK(tarn_free(second));
    CHECK((char *)alloc_on(one, 6 * MIB) == second);
    OK(tarn_free(second));
    if (block)
        OK(tarn_free(block));
    OK(tarn_free(base));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == 0);
}

static void failures_at_the_second_arena_leave_the_first(void)
{
    use_two();
    tarn_stream one = lease(0), other = lease(0);
    OK(tarn_free(alloc_on(other, 100))); /* what its first use needs is there */
    for (uint64_t n = 1; n <= 48; n++) {
        second_with_failure(one, other, n, false);
        second_with_failure(one, other, n, true);
    }
    CHECK(counted().planned > 48 * 2 * 3);
    nothing_is_left(0);
}

/* The log names what failed, and not an error of before. */
static void why_a_plan_is_not_followed_is_logged(void)
{
    static char said[1 << 14];
    int ends[2];
    unsigned told = 0;
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0 && close(ends[1]) == 0);
    CHECK(setenv("TARN_LOG", "errors", 1) == 0);
    use_plan(eight, LENGTH(eight), 36 * MIB, 2 * MIB);
    OK(tarn_free(alloc_on(lease(0), 100)));
    for (uint64_t n = 1; n <= 64; n++) {
        CHECK(tarn_free(said) == TARN_ERROR_INVALID_POINTER);
        begin_with_failure(n, true);
    }
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && read(ends[0], said, sizeof said - 1) > 0);
    for (const char *at = said; (at = strstr(at, "the plan is not followed: ")); told++) {
        at += strlen("the plan is not followed: ");
        CHECK(strncmp(at, "no host memory", strlen("no host memory")) == 0);
    }
    CHECK(told > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_plan_counts_from_the_first_use_on),
        CHILD_TEST(requests_are_put_where_the_plan_has_them),
        CHILD_TEST(a_place_that_is_taken_is_not_used),
        CHILD_TEST(a_place_that_is_free_in_part_is_not_used),
        CHILD_TEST(a_block_that_another_stream_uses_keeps_its_place),
        CHILD_TEST(requests_may_be_skipped),
        CHILD_TEST(requests_may_come_in_addition),
        CHILD_TEST(requests_may_change_places),
        CHILD_TEST(what_is_not_planned_spares_what_will_come),
        CHILD_TEST(an_alignment_is_kept),
        CHILD_TEST(places_that_are_next_get_memory_together),
        CHILD_TEST(what_is_left_out_makes_room),
        CHILD_TEST(a_request_may_be_smaller_than_planned),
        CHILD_TEST(after_a_trim_places_get_memory_again),
        CHILD_TEST(places_get_no_more_memory_than_the_arena_has),
        CHILD_TEST(a_compaction_leaves_the_plan_as_it_was),
        CHILD_TEST(one_stream_follows_and_that_of_the_beginning),
        CHILD_TEST(the_arena_that_begins_with_a_request_comes_first),
        CHILD_TEST(each_stream_follows_an_arena_of_its_own),
        CHILD_TEST(the_order_of_each_stream_is_kept),
        CHILD_TEST(an_arena_that_is_given_up_is_followed_again),
        CHILD_TEST(after_a_trim_a_plan_begins_anew),
        CHILD_TEST(another_stream_follows_when_the_first_is_gone),
        CHILD_TEST(a_plan_larger_than_the_addresses_is_not_followed),
        CHILD_TEST(a_plan_larger_than_the_device_takes_what_is_used_of_it),
        CHILD_TEST(what_is_mapped_ahead_rests),
        CHILD_TEST(the_arena_serves_who_is_short),
        CHILD_TEST(failures_at_the_beginning_leave_all_as_it_was),
        CHILD_TEST(failures_at_the_second_arena_leave_the_first),
        CHILD_TEST(why_a_plan_is_not_followed_is_logged),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
