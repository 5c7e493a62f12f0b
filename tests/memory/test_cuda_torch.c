/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* lab/torch/plug.c on the simulated libcuda: its two functions and its eight hooks, called with
 * what PyTorch calls them with. */
#include "../../lab/torch/plug.h"
#include "driver/driver.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)

static tarn_block_info info_of(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(pointer, &info));
    return info;
}

static void fill(void *pointer, unsigned char value, size_t size)
{
    OK(driver->set(0, (uintptr_t)pointer, value, size, NULL));
    OK(driver->device_synchronize(0));
}

static bool is_full_of(const void *pointer, unsigned char value, size_t size)
{
    const unsigned char *bytes = pointer;
    return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* A std::function that says yes to one stream, and how often it was copied and destroyed. */
static struct {
    int clones, destroys, questions;
} filters;

static bool filter_manage(void *to, const void *from, int operation)
{
    if (operation == TARN_TORCH_FILTER_CLONE) {
        memcpy(to, from, 2 * sizeof(void *));
        filters.clones++;
    } else if (operation == TARN_TORCH_FILTER_DESTROY) {
        filters.destroys++;
    }
    return false;
}

static bool filter_ask(const void *store, void **stream)
{
    filters.questions++;
    return ((void *const *)store)[0] == *stream;
}

static struct tarn_torch_filter filter_for(void *stream)
{
    return (struct tarn_torch_filter){{stream, NULL}, filter_manage, filter_ask};
}

/* The hook gets its caller's object, which is gone after the call. */
static void begin(struct tarn_torch_id id, void *stream)
{
    struct tarn_torch_filter filter = filter_for(stream);
    tarn_torch_begin_allocate_to_pool(0, id, &filter);
    memset(&filter, 0xEE, sizeof filter);
}

static void empty_cache(void)
{
    OK(tarn_device_synchronize(0));
    tarn_torch_reset();
}

/* ---- */

static void blocks_hold_what_is_written_until_they_are_freed(void **state)
{
    (void)state;
    void *native = native_made(0), *first = tarn_torch_alloc(3 * MIB, 0, native),
         *second = tarn_torch_alloc(MIB, 0, NULL);
    fill(first, 1, 3 * MIB);
    fill(second, 2, MIB);
    CHECK(is_full_of(first, 1, 3 * MIB) && is_full_of(second, 2, MIB));
    CHECK(native_of(info_of(first).stream) == native && info_of(first).requested == 3 * MIB);
    CHECK(!native_of(info_of(second).stream));
    CHECK(!tarn_torch_alloc(0, 0, native));
    tarn_torch_free(NULL, 0, 0, native);
    tarn_torch_free(first, 3 * MIB, 0, native);
    CHECK(tarn_torch_alloc(3 * MIB, 0, native) == first); /* in the order of its stream */
    tarn_torch_free(first, 3 * MIB, 0, native);
    tarn_torch_free(second, MIB, 0, NULL);
    empty_cache();
    nothing_is_left(0);
}

static void a_block_waits_for_the_streams_that_use_it(void **state)
{
    (void)state;
    void *native = native_made(0), *other = native_made(0),
         *block = tarn_torch_alloc(4 * MIB, 0, native);
    tarn_stream user = 0;
    OK(tarn_stream_adopt(0, other, &user));
    work_on(user, block, 4 * MIB, 1000);
    tarn_torch_record_stream(block, other);
    tarn_torch_record_stream(NULL, other);
    tarn_torch_free(block, 4 * MIB, 0, native);
    void *meanwhile = tarn_torch_alloc(4 * MIB, 0, native);
    CHECK(meanwhile != block);
    time_pass(2000);
    tarn_torch_free(meanwhile, 4 * MIB, 0, native);
    OK(tarn_stream_retire(user));
    empty_cache();
    nothing_is_left(0);
}

static void a_pool_has_the_blocks_that_its_filter_names(void **state)
{
    (void)state;
    const struct tarn_torch_id id = {7, 0};
    void *captured = native_made(0), *eager = native_made(0);
    memset(&filters, 0, sizeof filters);
    begin(id, captured);
    CHECK(filters.clones == 1 && filters.destroys == 0 && tarn_torch_pools() == 1);
    void *inside = tarn_torch_alloc(MIB, 0, captured), *outside = tarn_torch_alloc(MIB, 0, eager);
    tarn_pool_id pool = info_of(inside).pool;
    CHECK(filters.questions == 2 && (pool.first || pool.second));
    CHECK(!info_of(outside).pool.first && !info_of(outside).pool.second);
    tarn_torch_end_allocate_to_pool(0, id);
    CHECK(filters.destroys == 1);
    tarn_torch_end_allocate_to_pool(0, id); /* once is enough */
    CHECK(filters.destroys == 1);

    void *after = tarn_torch_alloc(MIB, 0, captured);
    CHECK(!info_of(after).pool.first && !info_of(after).pool.second && filters.questions == 2);
    begin(id, captured); /* another graph of the same pool */
    void *second = tarn_torch_alloc(MIB, 0, captured);
    CHECK(info_of(second).pool.second == pool.second && tarn_torch_pools() == 1);
    tarn_torch_release_pool(0, id);
    CHECK(filters.destroys == 2 && tarn_torch_pools() == 0);

    fill(inside, 9, MIB); /* live blocks outlast their pool */
    CHECK(is_full_of(inside, 9, MIB));
    void *const blocks[] = {inside, outside, after, second};
    for (int i = 0; i < 4; i++)
        tarn_torch_free(blocks[i], MIB, 0, NULL);
    empty_cache();
    nothing_is_left(0);
}

/* Graphs use what was freed while they were captured. */
static void what_a_pool_has_stays_until_it_is_released(void **state)
{
    (void)state;
    const struct tarn_torch_id id = {0, 3};
    void *native = native_made(0);
    tarn_torch_begin_allocate_to_pool(0, id, NULL); /* and without a filter all is its own */
    void *inside = tarn_torch_alloc(40 * MIB, 0, native),
         *beside = tarn_torch_alloc(30 * MIB, 0, native);
    tarn_torch_end_allocate_to_pool(0, id);
    void *outside = tarn_torch_alloc(40 * MIB, 0, native);
    uint64_t held = ledger_of(0).mapped;
    fill(inside, 3, 40 * MIB);
    tarn_torch_free(inside, 40 * MIB, 0, native);
    tarn_torch_free(outside, 40 * MIB, 0, native);
    empty_cache();
    CHECK(ledger_of(0).mapped < held && ledger_of(0).mapped >= 40 * MIB);
    tarn_torch_begin_allocate_to_pool(0, id, NULL); /* nor does the pool's own growth take it */
    void *more = tarn_torch_alloc(60 * MIB, 0, native);
    tarn_torch_end_allocate_to_pool(0, id);
    fill(more, 4, 60 * MIB);
    CHECK(is_full_of(inside, 3, 40 * MIB)); /* the address is mapped, with the same memory */
    tarn_torch_free(more, 60 * MIB, 0, native);
    tarn_torch_free(beside, 30 * MIB, 0, native);
    tarn_torch_release_pool(0, id);
    tarn_torch_release_pool(0, id);
    empty_cache();
    CHECK(ledger_of(0).mapped == 0);
    nothing_is_left(0);
}

static void a_fraction_is_a_limit_and_a_block_has_a_base(void **state)
{
    (void)state;
    size_t limit = 0, size = 0;
    tarn_torch_memory_fraction(0.25, 0);
    OK(tarn_device_limit_get(0, &limit));
    CHECK(limit == MEMORY / 4);
    tarn_torch_memory_fraction(1.0, 0);
    char *block = tarn_torch_alloc(2 * MIB, 0, NULL);
    CHECK(tarn_torch_base_alloc(block + MIB, &size) == block && size >= 2 * MIB);
    CHECK(tarn_torch_base_alloc(block, NULL) == block);
    CHECK(tarn_torch_base_alloc(&limit, &size) == &limit); /* none of tarn's */
    tarn_torch_free(block, 2 * MIB, 0, NULL);
    empty_cache();
    nothing_is_left(0);
}

static void ask_for_too_much(void)
{
    host_start_with(1, MEMORY);
    (void)tarn_torch_alloc(2 * MEMORY, 0, NULL);
}

static void a_shortage_ends_the_process_with_a_message(void **state)
{
    (void)state;
    in_child_that_exits(ask_for_too_much, TARN_TORCH_EXIT);
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(setenv("TARN_DRIVER", "cuda", 1), 0);
    a_shortage_ends_the_process_with_a_message(NULL); /* before tarn is used here: a child of that
                                                         cannot */
    host_start_with(1, MEMORY);
    tarn_torch_init(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_hold_what_is_written_until_they_are_freed),
        cmocka_unit_test(a_block_waits_for_the_streams_that_use_it),
        cmocka_unit_test(a_pool_has_the_blocks_that_its_filter_names),
        cmocka_unit_test(what_a_pool_has_stays_until_it_is_released),
        cmocka_unit_test(a_fraction_is_a_limit_and_a_block_has_a_base),
    };
    return cmocka_run_group_tests_name("PyTorch's pluggable allocator", tests, set_up, NULL);
}
