/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned memory stays where it is, at its address and with its physical memory, whatever becomes of
 * the block, the heap and the rest of the device; and nothing else is kept by it. */
#include "base/pages.h"
#include "driver/driver.h"
#include "support/fail_hits.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

#define PIECE (20 * MIB)
#define DEVICE (256 * MIB)

static tarn_stream own, other;

/* The driver's number of the piece at an address; 0 where nothing is mapped. */
static uint64_t piece_at(const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(0, address, 1, &extent) == TARN_OK ? extent.piece : 0;
}

/* Blocks of one piece each, in a row. */
static void in_a_row(char *blocks[], int count)
{
    for (int i = 0; i < count; i++) {
        blocks[i] = alloc_on(own, PIECE);
        CHECK(i == 0 || blocks[i] == blocks[i - 1] + PIECE);
    }
}

static void a_trim_leaves_pinned_memory_until_it_is_unpinned(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE);
    uint64_t piece = piece_at(block);
    OK(tarn_anchor(block, PIECE));
    OK(tarn_anchor(block, PIECE));
    OK(tarn_anchor(block + MIB, 1));
    OK(tarn_free(block));
    for (int i = 0; i < 3; i++) {
        OK(tarn_device_trim(0, 0));
        CHECK(piece_at(block) == piece && ledger_of(0).created == PIECE);
        verify(0);
        OK(i < 2 ? tarn_unanchor(block, PIECE) : tarn_unanchor(block + MIB, 1));
    }
    OK(tarn_device_trim(0, 0));
    CHECK(piece_at(block) == 0);
    GIVES(tarn_unanchor(block, PIECE), TARN_ERROR_INVALID_ARGUMENT);
    nothing_is_left(0);
}

static void a_pin_keeps_its_own_pieces_and_no_others(void **state)
{
    (void)state;
    char *blocks[5];
    uint64_t pieces[5];
    in_a_row(blocks, 5);
    for (int i = 0; i < 5; i++)
        pieces[i] = piece_at(blocks[i]);
    OK(tarn_anchor(blocks[1] + PIECE - 1, 1));
    OK(tarn_anchor(blocks[3], 1));
    for (int i = 0; i < 5; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_device_trim(0, 0)); /* one free span, of which three parts go at once */
    for (int i = 0; i < 5; i++)
        CHECK(piece_at(blocks[i]) == (i % 2 ? pieces[i] : 0));
    CHECK(ledger_of(0).created == 2 * PIECE);
    verify(0);

    char *again = alloc_on(own, PIECE); /* the same stream may use it */
    CHECK(again == blocks[1] || again == blocks[3]);
    OK(tarn_free(again));
    OK(tarn_unanchor(blocks[1] + PIECE - 1, 1));
    OK(tarn_unanchor(blocks[3], 1));
    nothing_is_left(0);
}

/* A growth takes idle free memory of its own heap, of others' through the ladder, and maps what is
 * busy a second time. */
static void pinned_memory_is_given_to_nobody(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        char *blocks[6];
        uint64_t pinned;
        in_a_row(blocks, 6);
        pinned = piece_at(blocks[2]);
        OK(tarn_anchor(blocks[2], PIECE));
        for (int i = 0; i < 5; i++) { /* the last stays, so that a growth begins elsewhere */
            if (busy)
                work_on(own, blocks[i], PIECE, 1000);
            OK(tarn_free(blocks[i]));
        }
        char *wide = alloc_on(own, 6 * PIECE);
        /* The four around it moved */
        CHECK(piece_at(blocks[2]) == pinned && ledger_of(0).created == 8 * PIECE);
        for (int i = 0; i < 6; i++)
            CHECK(piece_at(wide + (size_t)i * PIECE) != pinned);
        verify(0);
        time_pass(2000);
        OK(tarn_device_limit_set(0, 8 * PIECE));
        void *more = NULL;
        GIVES(tarn_alloc_on(other, PIECE, &more), TARN_ERROR_OUT_OF_MEMORY);
        CHECK(piece_at(blocks[2]) == pinned);
        OK(tarn_unanchor(blocks[2], PIECE));
        OK(tarn_alloc_on(other, PIECE, &more));
        CHECK(piece_at(more) == pinned);
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
        OK(tarn_free(more));
        OK(tarn_free(wide));
        OK(tarn_free(blocks[5]));
        nothing_is_left(0);
    }
}

static void small_blocks_pin_the_piece_that_they_lie_in(void **state)
{
    (void)state;
    char *small = alloc_on(own, 700);
    uint64_t piece = piece_at(small);
    OK(tarn_anchor(small + 100, 600));
    OK(tarn_free(small));
    OK(tarn_device_trim(0, 0));
    CHECK(piece_at(small) == piece);
    OK(tarn_unanchor(small + 100, 600));
    nothing_is_left(0);
}

static void what_is_no_part_of_a_block_cannot_be_pinned(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE);
    size_t size = usable_size(block);
    GIVES(tarn_anchor(block, 0), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_anchor(block, size + 1), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_anchor(block + 1, size), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_anchor(block + 1, SIZE_MAX), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_anchor(&block, 1), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_anchor(NULL, 1), TARN_ERROR_INVALID_POINTER);
    OK(tarn_anchor(block + 1, size - 1));
    GIVES(tarn_unanchor(block, size - 1), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_unanchor(block + 1, size), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_unanchor(block + 1, size - 1));
    OK(tarn_free(block));
    GIVES(tarn_anchor(block, 1), TARN_ERROR_INVALID_POINTER);
    nothing_is_left(0);
}

static void a_pool_with_pinned_memory_is_not_suspended(void **state)
{
    (void)state;
    tarn_pool *pool = NULL;
    void *block = NULL;
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options)}, &pool));
    OK(tarn_pool_alloc(pool, own, 2 * PIECE, &block));
    uint64_t piece = piece_at(block);
    OK(tarn_anchor(block, 1));
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_BUSY);
    CHECK(piece_at(block) == piece);
    tarn_pool_state now = pool_info_of(pool).state;
    CHECK(now == TARN_POOL_RUNS);
    OK(tarn_unanchor(block, 1));
    OK(tarn_pool_suspend(pool, false));
    GIVES(tarn_anchor(block, 1), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    OK(tarn_anchor(block, 1));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool)); /* left behind, and pinned still */
    OK(tarn_device_trim(0, 0));
    CHECK(piece_at(block) != 0);
    verify(0);
    OK(tarn_unanchor(block, 1));
    nothing_is_left(0);
}

static void a_failure_pins_nothing_and_breaks_no_pin(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE);
    pages_fail(1, false);
    GIVES(tarn_anchor(block, PIECE), TARN_ERROR_OUT_OF_HOST_MEMORY);
    pages_fail(0, false);
    GIVES(tarn_unanchor(block, PIECE), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_free(block));
    nothing_is_left(0);

    for (int host = 0; host < 2; host++) {
        for (uint64_t nth = 1, hits = 1; hits; nth++) {
            char *blocks[5];
            void *wide = NULL;
            in_a_row(blocks, 5);
            uint64_t pinned[2] = {piece_at(blocks[1]), piece_at(blocks[3])};
            OK(tarn_anchor(blocks[1], PIECE));
            OK(tarn_anchor(blocks[3], PIECE));
            for (int i = 0; i < 5; i++)
                OK(tarn_free(blocks[i]));
            if (host)
                pages_fail(nth, false);
            else
                OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
            tarn_status status = tarn_alloc_on(own, 6 * PIECE, &wide);
            hits = host ? pages_fail_hits() : host_fail_hits();
            pages_fail(0, false);
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            verify(0);
            CHECK(piece_at(blocks[1]) == pinned[0] && piece_at(blocks[3]) == pinned[1]);
            CHECK((status == TARN_OK) == (wide != NULL) && (hits || !status));
            OK(tarn_free(wide));
            OK(tarn_device_trim(0, 0));
            CHECK(piece_at(blocks[1]) == pinned[0] && piece_at(blocks[3]) == pinned[1]);
            CHECK(ledger_of(0).created == 2 * PIECE);
            OK(tarn_unanchor(blocks[1], PIECE));
            OK(tarn_unanchor(blocks[3], PIECE));
            nothing_is_left(0);
        }
    }
}

static void a_shutdown_leaves_what_is_pinned(void)
{
    host_start_with(1, DEVICE);
    char *block = alloc_on(TARN_STREAM_LEGACY, PIECE);
    OK(tarn_anchor(block, PIECE));
    OK(tarn_free(block));
    block[5] = 5;
    OK(tarn_shutdown());
    CHECK(block[5] == 5);
    GIVES(tarn_unanchor(block, PIECE), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_anchor(block, PIECE), TARN_ERROR_SHUTDOWN);
}

static void at_the_end(void **state)
{
    (void)state;
    in_child(a_shutdown_leaves_what_is_pinned);
}

static atomic_bool storm_ends;

static void *disturb(void *argument)
{
    uint64_t random = 3 + (uint64_t)(uintptr_t)argument;
    while (!atomic_load(&storm_ends)) {
        void *block = NULL;
        tarn_stream stream = random_next(&random) % 2 ? own : other;
        if (tarn_alloc_on(stream, (random_next(&random) % 3 + 1) * PIECE, &block) == TARN_OK)
            OK(tarn_free(block));
        if (random_next(&random) % 4 == 0)
            OK(tarn_device_trim(0, 0));
    }
    return NULL;
}

static void pins_hold_while_others_move_memory(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&storm_ends, false);
    CHECK(pthread_create(&thread, NULL, disturb, NULL) == 0);
    for (int i = 0; i < 1500; i++) {
        char *block = alloc_on(i % 2 ? own : other, PIECE + (size_t)(i % 7) * MIB);
        uint64_t piece = piece_at(block + MIB);
        CHECK(piece != 0);
        OK(tarn_anchor(block + MIB, 2 * MIB));
        OK(tarn_free(block));
        CHECK(piece_at(block + MIB) == piece);
        OK(tarn_device_trim(0, 0));
        CHECK(piece_at(block + MIB) == piece);
        OK(tarn_unanchor(block + MIB, 2 * MIB));
    }
    atomic_store(&storm_ends, true);
    CHECK(pthread_join(thread, NULL) == 0);
    nothing_is_left(0);
}

static int start(void **state)
{
    (void)state;
    host_start_with(1, DEVICE);
    own = lease(0);
    other = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest first[] = {cmocka_unit_test(at_the_end)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trim_leaves_pinned_memory_until_it_is_unpinned),
        cmocka_unit_test(a_pin_keeps_its_own_pieces_and_no_others),
        cmocka_unit_test(pinned_memory_is_given_to_nobody),
        cmocka_unit_test(small_blocks_pin_the_piece_that_they_lie_in),
        cmocka_unit_test(what_is_no_part_of_a_block_cannot_be_pinned),
        cmocka_unit_test(a_pool_with_pinned_memory_is_not_suspended),
        cmocka_unit_test(a_failure_pins_nothing_and_breaks_no_pin),
        cmocka_unit_test(pins_hold_while_others_move_memory),
    };
    int failures = cmocka_run_group_tests(first, NULL, NULL);
    return failures + cmocka_run_group_tests(tests, start, NULL);
}
