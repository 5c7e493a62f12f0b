/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every check of the oracle is made to fire by an allocator that does wrong, and is silent for one
 * that does right. */
#include "replay/oracle/oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define KIB UINT64_C(1024)
#define BASE UINT64_C(0x100000)

/* A driver of 64 pages of 4 KiB from BASE on, each mapped to a page of some piece. */
enum { PAGES = 64 };
static const uint64_t page_size = 4 * KIB;
static struct {
    uint64_t piece, offset; /* piece 0: not mapped */
    bool closed;
} pages[PAGES];

static struct oracle *oracle;
static char last[512];

static bool extent(void *context, uint64_t address, uint64_t size, struct oracle_extent *found)
{
    (void)context;
    uint64_t page = (address - BASE) / page_size;
    if (address < BASE || page >= PAGES || pages[page].piece == 0)
        return false;
    uint64_t inside = (address - BASE) % page_size, length = page_size - inside;
    uint64_t piece = pages[page].piece, offset = pages[page].offset + inside;
    for (uint64_t next = page + 1; length < size && next < PAGES && pages[next].piece == piece &&
                                   pages[next].offset == pages[next - 1].offset + page_size &&
                                   pages[next].closed == pages[page].closed;
         next++)
        length += page_size;
    *found =
        (struct oracle_extent){piece, offset, length < size ? length : size, !pages[page].closed};
    return true;
}

static void report(void *context, const char *text)
{
    (void)context;
    snprintf(last, sizeof last, "%s", text);
}

/* All pages mapped, one piece of 16 pages each. */
static int setup(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < PAGES; i++) {
        pages[i].piece = (UINT64_C(1) << 60) + i / 16; /* names are of any size */
        pages[i].offset = i % 16 * page_size;
        pages[i].closed = false;
    }
    last[0] = '\0';
    const struct oracle_config config = {.extent = extent, .report = report};
    oracle = oracle_create(&config);
    return oracle ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    oracle_destroy(oracle);
    return 0;
}

/* A block of `size` bytes at page `page`, on `stream`. */
static uint32_t take(uint32_t label, uint64_t page, uint64_t size, uint32_t stream, uint64_t now)
{
    uint32_t ticket;
    const struct oracle_block block = {.address = BASE + page * page_size,
                                       .requested = size,
                                       .usable = size,
                                       .stream = stream,
                                       .label = label};
    assert_true(oracle_allocated(oracle, &block, now, &ticket));
    return ticket;
}

static void expect(uint64_t divergences, const char *text)
{
    assert_int_equal(oracle_divergences(oracle), divergences);
    if (!strstr(last, text))
        fail_msg("\"%s\" does not say \"%s\"", last, text);
}

static void what_is_right_passes(void **state)
{
    (void)state;
    uint32_t a = take(1, 0, 4 * page_size, 0, 0), b = take(2, 4, 20 * page_size, 1, 0),
             c = take(3, 60, 512, 2, 0);
    assert_true(a && b && c);
    assert_int_equal(oracle_live(oracle), 3);
    oracle_freed(oracle, a, 0, 0);
    oracle_freed(oracle, b, 50, 0);                      /* its stream works on it until 50 */
    assert_true(take(4, 4, 20 * page_size, 1, 10) != 0); /* the same stream at once */
    assert_true(take(5, 0, 4 * page_size, 1, 10) != 0);  /* another stream, nothing pending */
    oracle_freed(oracle, c, 0, 70);
    assert_true(take(6, 60, 512, 3, 70) != 0); /* ended just now */
    expect(0, "");
    assert_int_equal(oracle_live(oracle), 3);
}

static void not_a_block_at_all(void **state)
{
    (void)state;
    uint32_t ticket;
    struct oracle_block block = {.address = 0, .requested = 10, .usable = 512};
    assert_true(oracle_allocated(oracle, &block, 0, &ticket));
    assert_int_equal(ticket, 0);
    expect(1, "no block at all");
    block = (struct oracle_block){.address = UINT64_MAX - 100, .requested = 200, .usable = 200};
    assert_true(oracle_allocated(oracle, &block, 0, &ticket));
    assert_int_equal(ticket, 0);
    expect(2, "no block at all");
    oracle_freed(oracle, 0, 0, 0);
}

static void a_crooked_address(void **state)
{
    (void)state;
    uint32_t ticket;
    const struct oracle_block block = {.address = BASE + 256, .requested = 10, .usable = 256};
    assert_true(oracle_allocated(oracle, &block, 0, &ticket));
    expect(1, "not aligned");
}

static void a_short_block(void **state)
{
    (void)state;
    uint32_t ticket;
    const struct oracle_block block = {.address = BASE, .requested = 513, .usable = 512};
    assert_true(oracle_allocated(oracle, &block, 0, &ticket));
    expect(1, "512 B of the 513 B asked for");
}

static void two_blocks_at_one_address(void **state)
{
    (void)state;
    take(1, 4, 4 * page_size, 0, 0);
    take(2, 8, page_size, 0, 0);
    expect(0, "");
    for (uint64_t i = 0; i < PAGES; i++) /* other memory there by now, so that only the address is
                                            shared */
        pages[i].piece += 100;
    take(3, 7, page_size, 0, 0);
    expect(1, "block 3 at 0x107000 (4096 B) overlaps live block 1 at 0x104000");
}

static void two_blocks_on_one_physical_memory(void **state)
{
    (void)state;
    take(1, 2, 2 * page_size, 0, 0);
    pages[40] = pages[3]; /* the last of block 1's pages shows once more */
    take(2, 39, 2 * page_size, 0, 0);
    expect(1, "block 2 at 0x127000 has physical memory of live block 1 at 0x102000 (piece 0, "
              "offset 12288)");
}

static void a_hole_in_a_block(void **state)
{
    (void)state;
    pages[3].piece = 0;
    uint32_t ticket = take(1, 2, 2 * page_size, 0, 0);
    expect(1, "its byte 4096 is not mapped");
    oracle_freed(oracle, ticket, 0, 0); /* not said twice */
    expect(1, "");
}

static void a_block_without_access(void **state)
{
    (void)state;
    pages[17].closed = true;
    take(1, 16, 2 * page_size, 0, 0);
    expect(1, "its byte 4096 is not accessible");
}

static void a_live_block_is_unmapped(void **state)
{
    (void)state;
    uint32_t ticket = take(1, 16, 2 * page_size, 0, 0);
    pages[17].piece = 0;
    oracle_freed(oracle, ticket, 0, 0);
    expect(1, "live block 1 at 0x110000 (8192 B): its byte 4096 is not mapped any more");
}

static void a_live_block_is_moved(void **state)
{
    (void)state;
    uint32_t ticket = take(1, 16, 2 * page_size, 0, 0);
    pages[16].piece = pages[17].piece = 77;
    oracle_freed(oracle, ticket, 0, 0);
    expect(1, "other physical memory");
}

static void memory_comes_too_early_to_another_stream(void **state)
{
    (void)state;
    uint32_t ticket = take(1, 0, 4 * page_size, 5, 0);
    oracle_freed(oracle, ticket, 100, 0);
    pages[50] = pages[3]; /* through another address: it is the physical memory that counts */
    take(2, 50, page_size, 6, 99);
    expect(1, "block 2 on stream 6 has memory that work of freed block 1 uses on its own stream "
              "for another 1 ns");
}

static void memory_comes_before_a_late_free_to_its_own_stream(void **state)
{
    (void)state;
    uint32_t ticket = take(1, 0, 4 * page_size, 5, 0);
    oracle_freed(oracle, ticket, 0, 100);
    take(2, 1, page_size, 5, 40);
    expect(1, "block 2 on stream 5 has memory that work of freed block 1 uses on a further stream "
              "for another 60 ns");
}

static void what_is_left_of_a_freed_block_stays_busy(void **state)
{
    (void)state;
    uint32_t first = take(1, 0, 4 * page_size, 5, 0);
    oracle_freed(oracle, first, 100, 0);
    uint32_t second = take(2, 1, page_size, 5, 10);
    oracle_freed(oracle, second, 120, 0);
    expect(0, "");
    take(3, 1, page_size, 6, 110);
    expect(1, "freed block 2");
    take(4, 2, page_size, 6, 99);
    expect(2, "freed block 1");
    take(5, 3, page_size, 6, 100);
    expect(2, "");
}

static void a_piece_beyond_the_watched_ones_is_reported(void **state)
{
    (void)state;
    pages[5].offset = UINT64_C(1) << 40;
    take(1, 5, page_size, 0, 0);
    expect(1, "larger than what is watched");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_right_passes),
        TEST(not_a_block_at_all),
        TEST(a_crooked_address),
        TEST(a_short_block),
        TEST(two_blocks_at_one_address),
        TEST(two_blocks_on_one_physical_memory),
        TEST(a_hole_in_a_block),
        TEST(a_block_without_access),
        TEST(a_live_block_is_unmapped),
        TEST(a_live_block_is_moved),
        TEST(memory_comes_too_early_to_another_stream),
        TEST(memory_comes_before_a_late_free_to_its_own_stream),
        TEST(what_is_left_of_a_freed_block_stays_busy),
        TEST(a_piece_beyond_the_watched_ones_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
