/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "memory/heap/slab.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static tarn_stream own;

static void every_size_to_64_kib_has_a_slot_that_is_large_enough_and_wastes_little(void **state)
{
    (void)state;
    size_t before = 0;
    for (size_t size = 1; size <= SLAB_MOST; size++) {
        size_t slot = slab_slot_size(size);
        CHECK(slot >= size && slot % TARN_BLOCK_UNIT == 0 && slot <= SLAB_MOST);
        /* A larger size never has a smaller slot */
        CHECK(slot >= before);
        CHECK(slot - size < 512 || slot - size <= slot / 8); /* a unit, or an eighth */
        CHECK(slab_slot_size(slot) == slot);                 /* a slot's size is its own class */
        struct request request = {size, size, TARN_BLOCK_UNIT, 0, false, false, 0, 0};
        size_t span = slab_span_size(slab_class(size));
        CHECK(slab_serves(&request) && span % MAP_PAGE == 0);
        CHECK(span / slot >= 8 && span / slot <= SLAB_SLOTS && span % slot <= span / 16 &&
              span <= MIB);
        before = slot;
    }
    struct request large = {SLAB_MOST + 512, SLAB_MOST + 1, TARN_BLOCK_UNIT, 0, false, false, 0, 0};
    CHECK(!slab_serves(&large));
}

static void a_slab_serves_an_alignment_only_where_all_its_slots_have_it(void **state)
{
    (void)state;
    for (size_t size = 512; size <= SLAB_MOST; size += 512) {
        for (size_t alignment = 512; alignment <= TARN_MAX_ALIGNMENT; alignment *= 2) {
            struct request request = {size, size, alignment, 0, false, false, 0, 0};
            CHECK(slab_serves(&request) == (slab_slot_size(size) % alignment == 0));
        }
    }
}

static void all_slots_of_a_size_are_distinct_aligned_and_wholly_usable(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,    512,  513,   1024,  3000,  4096, 8192,
                                   8193, 9217, 20000, 33000, 57345, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *blocks[300];
        size_t slot = slab_slot_size(sizes[i]);
        for (int k = 0; k < 300; k++) {
            blocks[k] = alloc_on(own, sizes[i]);
            CHECK((uintptr_t)blocks[k] % 512 == 0 && usable_size(blocks[k]) == slot);
            memset(blocks[k], k % 256, slot);
        }
        for (int k = 0; k < 300; k++) {
            CHECK(blocks[k][0] == k % 256 && blocks[k][slot - 1] == k % 256);
            tarn_block_info info = {.size = sizeof info};
            OK(tarn_pointer_info_get(blocks[k] + slot - 1, &info));
            CHECK(info.base == blocks[k] && info.requested == sizes[i]);
        }
        verify(0);
        for (int k = 0; k < 300; k++)
            OK(tarn_free(blocks[k]));
        nothing_is_left(0);
    }
}

static void a_freed_slot_is_the_next_one_given(void **state)
{
    (void)state;
    void *blocks[64];
    for (int i = 0; i < 64; i++)
        blocks[i] = alloc_on(own, 2048); /* two slabs of 32 */
    OK(tarn_free(blocks[40]));
    OK(tarn_free(blocks[37]));
    CHECK(alloc_on(own, 2048) == blocks[37]); /* the lowest of a slab */
    CHECK(alloc_on(own, 2048) == blocks[40]);
    for (int i = 0; i < 64; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
}

static void the_memory_of_empty_slabs_serves_other_sizes_when_there_is_no_other(void **state)
{
    (void)state;
    void *blocks[512];
    for (int i = 0; i < 512; i++)
        blocks[i] = alloc_on(own, 4096); /* 2 MiB */
    uint64_t created = ledger_of(0).created;
    for (int i = 0; i < 512; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_device_limit_set(0, created));
    for (int i = 0; i < 2; i++)
        blocks[i] = alloc_on(own, MIB);
    CHECK(ledger_of(0).created == created);
    for (int i = 0; i < 2; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static void what_lies_behind_the_last_slot_is_not_a_block(void **state)
{
    (void)state;
    /* 65,536 bytes / 3 slots and the like: sizes whose slabs have an unused end */
    for (size_t size = 512; size <= SLAB_MOST; size += 512) {
        size_t span = slab_span_size(slab_class(size)), slot = slab_slot_size(size),
               end = span / slot * slot;
        if (end == span)
            continue;
        char *block = alloc_on(own, size); /* the first slot of a new slab */
        tarn_block_info info = {.size = sizeof info};
        GIVES(tarn_pointer_info_get(block + end, &info), TARN_ERROR_INVALID_POINTER);
        CHECK(tarn_free(block + end) != TARN_OK);
        CHECK(tarn_free(block + slot) != TARN_OK); /* a slot that was not handed out */
        OK(tarn_free(block));
    }
    nothing_is_left(0);
}

static void random_small_blocks_keep_their_contents(void **state)
{
    (void)state;
    uint64_t random = 11;
    static struct {
        unsigned char *pointer;
        size_t size;
    } blocks[1000];
    for (int step = 0; step < 30000; step++) {
        size_t i = random_next(&random) % 1000;
        if (blocks[i].pointer) {
            CHECK(blocks[i].pointer[0] == i % 256 &&
                  blocks[i].pointer[blocks[i].size - 1] == i % 256);
            OK(tarn_free(blocks[i].pointer));
            blocks[i].pointer = NULL;
        } else {
            blocks[i].size = random_next(&random) % (random_next(&random) % SLAB_MOST + 1) + 1;
            blocks[i].pointer = alloc_on(own, blocks[i].size);
            memset(blocks[i].pointer, (int)(i % 256), blocks[i].size);
        }
        if (step % 2000 == 0)
            verify(0);
    }
    for (size_t i = 0; i < 1000; i++)
        OK(tarn_free(blocks[i].pointer));
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    OK(tarn_free(alloc_on(own, 1))); /* the tables are filled at the first use */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_to_64_kib_has_a_slot_that_is_large_enough_and_wastes_little),
        cmocka_unit_test(a_slab_serves_an_alignment_only_where_all_its_slots_have_it),
        cmocka_unit_test(all_slots_of_a_size_are_distinct_aligned_and_wholly_usable),
        cmocka_unit_test(a_freed_slot_is_the_next_one_given),
        cmocka_unit_test(the_memory_of_empty_slabs_serves_other_sizes_when_there_is_no_other),
        cmocka_unit_test(what_lies_behind_the_last_slot_is_not_a_block),
        cmocka_unit_test(random_small_blocks_keep_their_contents),
    };
    host_start_with(1, 256 * MIB);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
