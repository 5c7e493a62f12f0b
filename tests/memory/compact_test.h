/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of compaction share: blocks with contents of their own, which lie so that pieces
 * are partly used. The device has 256 MiB. */
#ifndef TESTS_MEMORY_COMPACT_TEST_H
#define TESTS_MEMORY_COMPACT_TEST_H

#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)
#define BLOCKS 64

static tarn_stream stream, other;

/* Live blocks, each with contents of its own, at every byte. */
static struct {
    unsigned char *start;
    size_t size;
} blocks[BLOCKS];
static int count;

static inline void *get(tarn_pool *pool, tarn_stream on, size_t size)
{
    void *block = NULL;
    if (pool)
        OK(tarn_pool_alloc(pool, on, size, &block));
    else
        OK(tarn_alloc_on(on, size, &block));
    return block;
}

static inline int add(tarn_pool *pool, tarn_stream on, size_t size)
{
    CHECK(count < BLOCKS);
    void *block = get(pool, on, size);
    blocks[count].start = block;
    blocks[count].size = size;
    memset(block, 0x40 + count, size);
    return count++;
}

static inline void check(void)
{
    for (int i = 0; i < count; i++) {
        const unsigned char *start = blocks[i].start;
        CHECK(!start ||
              (start[0] == 0x40 + i && memcmp(start, start + 1, blocks[i].size - 1) == 0));
    }
}

static inline void drop(int index)
{
    OK(tarn_free(blocks[index].start));
    blocks[index].start = NULL;
}

static inline void end(void)
{
    check();
    for (int i = 0; i < count; i++)
        drop(i);
    count = 0;
    nothing_is_left(0);
}

/* Large pieces with one small live block in each, and some small blocks. */
static inline void fragment(tarn_pool *pool, tarn_stream on, int pieces)
{
    void *before[8], *behind[8];
    CHECK(pieces <= 8);
    for (int i = 0; i < pieces; i++) {
        before[i] = get(pool, on, 7 * MIB);
        (void)add(pool, on, MIB + 5000);
        behind[i] = get(pool, on, 11 * MIB);
    }
    for (int i = 0; i < pieces; i++) {
        OK(tarn_free(before[i]));
        OK(tarn_free(behind[i]));
    }
    (void)add(pool, on, 3000);
}

static inline size_t compact_by(size_t wanted)
{
    size_t gained = SIZE_MAX;
    uint64_t created = ledger_of(0).created;
    OK(tarn_compact(0, wanted, &gained));
    CHECK(ledger_of(0).created == created - gained);
    CHECK(ledger_of(0).created == (uint64_t)stats_of(0).reserved_bytes[0].current);
    verify(0);
    return gained;
}

static inline int set_up(void **state)
{
    (void)state;
    stream = lease(0);
    other = lease(0);
    return 0;
}

#endif
