/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* When a heap lends idle memory to the heap of another stream: for an amount that is worth it, and
 * less readily after loans that it regretted. So streams whose needs go up and down come to
 * rest. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((size_t)1 << 30)
#define MEMORY (80 * GIB)
#define MUCH (18 * GIB)     /* beside it the least loan is 24 MiB, */
#define LITTLE (20 * MIB)   /* so this is not lent, */
#define ENOUGH (42 * MIB)   /* and this is, until the lender has regretted it often enough; */
#define PLENTY (152 * MIB)  /* this still is then */
#define MOST (400 * MIB)    /* this always: a 48th of what is reserved; */
#define REGRETS 11          /* loans that are taken back until ENOUGH is not lent any more, */
#define REGRETS_OF_LITTLE 6 /* and LITTLE, beside less memory */

static tarn_stream own, other;
static void *much, *stays; /* of `own`, and of `other`, so that it does not begin again */

static uint64_t created(void)
{
    return ledger_of(0).created;
}

static void begin(size_t size)
{
    much = alloc_on(own, size);
    stays = alloc_on(other, LITTLE);
}

static void end(void)
{
    OK(tarn_free(much));
    OK(tarn_free(stays));
    nothing_is_left(0);
}

/* Whether `own` gets what `other` has free, or new memory. Nothing is free before and
 * afterwards. */
static bool lends(size_t size)
{
    OK(tarn_free(alloc_on(other, size)));
    uint64_t before = created();
    void *block = alloc_on(own, size);
    bool lent = created() == before;
    CHECK(lent || created() == before + size);
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    CHECK(created() == before - size);
    return lent;
}

/* Lends, and has the lender take as much again, so that it grows. `walls` are both blocks. */
static void lend_and_regret(size_t size, void *walls[2])
{
    OK(tarn_free(alloc_on(other, size)));
    uint64_t before = created();
    walls[0] = alloc_on(own, size);
    CHECK(created() == before);
    walls[1] = alloc_on(other, size);
    CHECK(created() == before + size);
}

static void walls_free(void *walls[][2], int count)
{
    for (int i = 0; i < count; i++) {
        OK(tarn_free(walls[i][0]));
        OK(tarn_free(walls[i][1]));
    }
}

static void a_loan_of_little_is_not_worth_its_calls(void **state)
{
    (void)state;
    begin(MUCH);
    CHECK(!lends(LITTLE));
    CHECK(lends(ENOUGH));
    end();
    begin(MUCH / 2); /* beside less memory it is worth them */
    CHECK(lends(LITTLE));
    end();
}

static void a_lender_that_regrets_lends_less_readily(void **state)
{
    (void)state;
    void *walls[REGRETS][2];
    begin(MUCH);
    for (int i = 0; i < REGRETS; i++)
        lend_and_regret(ENOUGH, walls[i]);
    CHECK(!lends(ENOUGH));
    CHECK(lends(PLENTY));
    walls_free(walls, REGRETS);
    end();
    begin(MUCH); /* a program that starts again starts as the first time */
    CHECK(lends(ENOUGH));
    end();
}

static void a_lender_that_regrets_soon_lends_no_less_than_a_small_piece(void **state)
{
    (void)state;
    void *walls[REGRETS][2];
    begin(MUCH / 4); /* so a 48th is lent for long: 94 MiB */
    for (int i = 0; i < REGRETS_OF_LITTLE; i++)
        lend_and_regret(LITTLE, walls[i]);
    CHECK(!lends(LITTLE));
    CHECK(lends(ENOUGH));
    for (int i = REGRETS_OF_LITTLE; i < REGRETS; i++)
        lend_and_regret(ENOUGH, walls[i]);
    CHECK(lends(ENOUGH)); /* which is more than a small piece */
    walls_free(walls, REGRETS);
    end();
}

static void a_loan_of_much_is_made_however_often_it_was_regretted(void **state)
{
    (void)state;
    void *walls[1][2];
    begin(MUCH);
    for (int i = 0; i < 100; i++) {
        lend_and_regret(MOST, walls[0]);
        walls_free(walls, 1);
        OK(tarn_device_trim(0, 0));
    }
    end();
}

static void where_memory_is_short_any_loan_is_made(void **state)
{
    (void)state;
    begin(MUCH);
    OK(tarn_free(alloc_on(other, LITTLE)));
    uint64_t before = created();
    OK(tarn_device_limit_set(0, before));
    void *block = alloc_on(own, LITTLE);
    CHECK(created() == before);
    OK(tarn_device_limit_set(0, SIZE_MAX));
    OK(tarn_free(block));
    end();
}

/* A growth does not ask a heap again in which it has found nothing; until it has something. */
static void a_heap_that_had_nothing_lends_what_it_gets(void **state)
{
    (void)state;
    begin(MUCH);
    void *later = alloc_on(other, ENOUGH), *blocks[2];
    uint64_t before = created();
    blocks[0] = alloc_on(own, ENOUGH);
    CHECK(created() == before + ENOUGH);
    OK(tarn_free(later)); /* parked as it is */
    blocks[1] = alloc_on(own, ENOUGH);
    CHECK(created() == before + ENOUGH);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    end();
}

/* A growth asks a part of many heaps, and the next one those behind them. */
static void a_lender_behind_many_is_found_in_turn(void **state)
{
    enum { MANY = 150, TIMES = 4 };
    static tarn_stream busy[MANY];
    void *blocks[TIMES];
    int lent = 0;
    (void)state;
    begin(MUCH);
    for (int i = 0; i < MANY; i++) {
        busy[i] = lease(0);
        void *block = alloc_on(busy[i], LITTLE);
        work_on(busy[i], block, 1, UINT64_C(1000000000000));
        OK(tarn_free(block));
    }
    OK(tarn_free(alloc_on(other, ENOUGH)));
    for (int i = 0; i < TIMES; i++) {
        uint64_t before = created();
        blocks[i] = alloc_on(own, ENOUGH);
        lent += created() == before;
    }
    CHECK(lent == 1);
    time_pass(UINT64_C(1000000000000));
    for (int i = 0; i < TIMES; i++)
        OK(tarn_free(blocks[i]));
    for (int i = 0; i < MANY; i++)
        OK(tarn_stream_return(busy[i]));
    end();
}

/* ---- Streams that are gone ---- */

#define PARTS 20
#define PART (512 * MIB)

static void *part_of(tarn_pool *pool, tarn_stream stream, size_t size)
{
    return pool ? alloc_in(pool, stream, size) : alloc_on(stream, size);
}

/* A stream that is retired, or between two leases, does not ask for its memory again: another
 * stream takes all of it before it creates any, in whatever sizes. */
static void all_of_a_stream_that_is_gone_is_used_first(void **state)
{
    (void)state;
    static void *blocks[PARTS * 16];
    for (int way = 0; way < 12; way++) {
        bool returned = way & 1, small = way & 2;
        tarn_pool *pool = way / 4 == 1 ? pool_with((tarn_pool_options){0})
                          : way / 4 == 2
                              ? pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN})
                              : NULL;
        size_t size = small && way / 4 != 2 ? PART / 16 : PART;
        int count = (int)(PARTS * PART / size);
        tarn_stream gone = 0;
        void *native = NULL;
        if (returned)
            gone = lease(0);
        else
            OK(tarn_stream_adopt(0, native = native_made(0), &gone));
        for (int i = 0; i < PARTS; i++)
            blocks[i] = part_of(pool, gone, PART);
        for (int i = 0; i < PARTS; i++)
            OK(tarn_free(blocks[i]));
        OK(returned ? tarn_stream_return(gone) : tarn_stream_retire(gone));
        uint64_t before = created(), largest = before;
        for (int i = 0; i < count; i++) {
            blocks[i] = part_of(pool, own, size);
            largest = created() > largest ? created() : largest;
        }
        CHECK(largest == before);
        tarn_stream next = lease(0);
        OK(tarn_free(part_of(pool, next, LITTLE)));
        OK(tarn_stream_return(next));
        verify(0);
        for (int i = 0; i < count; i++)
            OK(tarn_free(blocks[i]));
        if (pool)
            OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* No wait is made for it, and what is at hand is not unmapped for it. */
static void a_stream_that_is_gone_is_not_waited_for(void **state)
{
    (void)state;
    tarn_stream gone = lease(0);
    void *block = alloc_on(gone, PART);
    uint64_t start = time_now();
    work_on(gone, block, PART, 1000000);
    OK(tarn_free(block));
    OK(tarn_stream_return(gone));
    uint64_t before = created();
    void *first = alloc_on(own, PART);
    CHECK(time_now() == start && created() == before + PART);
    time_pass(1000000);
    void *second = alloc_on(own, PART);
    CHECK(created() == before + PART);
    OK(tarn_free(first));
    OK(tarn_free(second));
    nothing_is_left(0);
}

/* ---- Streams whose needs go up and down, each at other times ---- */

#define STREAMS 16
#define SLOTS 256
#define SETTLING 5000 /* steps of each stream */
#define STEPS 3000    /* after that */
#define SEEDS 8       /* one alone decides by chance */

struct walk {
    tarn_stream stream;
    uint64_t random;
    void *slots[SLOTS];
};

static void step(struct walk *walk)
{
    uint64_t random = random_next(&walk->random);
    void **slot = &walk->slots[(random >> 16) % SLOTS];
    if (*slot)
        OK(tarn_free(*slot));
    *slot = *slot ? NULL : alloc_on(walk->stream, (size_t)(256 << 10) << (random >> 40) % 8);
}

/* How often memory is mapped by so many streams after they have settled. */
static uint64_t maps_at_rest(size_t streams, uint64_t seed)
{
    static struct walk walks[STREAMS];
    uint64_t maps = 0;
    memset(walks, 0, sizeof walks);
    for (size_t i = 0; i < streams; i++) {
        walks[i].stream = lease(0);
        walks[i].random = 0x9e3779b97f4a7c15u * (seed + i + 1);
    }
    for (int i = 0; i < SETTLING + STEPS; i++) {
        if (i == SETTLING)
            maps = calls_of(0, "map");
        for (size_t k = 0; k < streams; k++)
            step(&walks[k]);
    }
    maps = calls_of(0, "map") - maps;
    for (size_t k = 0; k < streams; k++) {
        for (size_t i = 0; i < SLOTS; i++)
            if (walks[k].slots[i])
                OK(tarn_free(walks[k].slots[i]));
        OK(tarn_stream_return(walks[k].stream));
    }
    nothing_is_left(0);
    return maps;
}

/* Then only where a stream needs more than ever before. */
static void streams_of_changing_needs_come_to_rest(void **state)
{
    (void)state;
    uint64_t few = 0, many = maps_at_rest(STREAMS, 0);
    CHECK(many < STREAMS * STEPS / 1000); /* without a least loan one in 90 steps */
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        few += maps_at_rest(4, STREAMS * seed);
    CHECK(few < SEEDS * 4 * STEPS / 250); /* four find less often what they need than 16 */
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_of_changing_needs_come_to_rest),
        cmocka_unit_test(a_loan_of_little_is_not_worth_its_calls),
        cmocka_unit_test(a_lender_that_regrets_lends_less_readily),
        cmocka_unit_test(a_lender_that_regrets_soon_lends_no_less_than_a_small_piece),
        cmocka_unit_test(a_loan_of_much_is_made_however_often_it_was_regretted),
        cmocka_unit_test(where_memory_is_short_any_loan_is_made),
        cmocka_unit_test(a_heap_that_had_nothing_lends_what_it_gets),
        cmocka_unit_test(a_lender_behind_many_is_found_in_turn),
        cmocka_unit_test(all_of_a_stream_that_is_gone_is_used_first),
        cmocka_unit_test(a_stream_that_is_gone_is_not_waited_for),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
