/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/painted.h"

#include <string.h>

#define PAINTED ((size_t)4096) /* the most bytes of a block that are painted */

struct painted painted;

unsigned char paint_of(int index)
{
    return (unsigned char)(painted.blocks[index].size % 251 + 1);
}

static size_t bytes_of(int index)
{
    return painted.blocks[index].size < PAINTED ? painted.blocks[index].size : PAINTED;
}

void painted_add(void *pointer, size_t size)
{
    int index = painted.count++;
    CHECK(index < PAINTED_MOST);
    painted.blocks[index].start = pointer;
    painted.blocks[index].size = size;
    painted.blocks[index].checked = true;
    memset(pointer, paint_of(index), bytes_of(index));
}

bool painted_alloc(tarn_pool *pool, tarn_stream stream, size_t size)
{
    void *pointer = &painted;
    tarn_status status = pool ? tarn_pool_alloc(pool, stream, size, &pointer)
                              : tarn_alloc_on(stream, size, &pointer);
    if (went_well(status, false, "alloc"))
        painted_add(pointer, size);
    else
        CHECK(pointer == &painted);
    return !status;
}

static void check_block(int index)
{
    for (size_t i = 0; painted.blocks[index].checked && i < bytes_of(index); i++)
        CHECK(painted.blocks[index].start[i] == paint_of(index));
}

void painted_free(int index)
{
    check_block(index);
    OK(tarn_free(painted.blocks[index].start));
    painted.blocks[index] = painted.blocks[--painted.count];
}

void painted_free_every_second(void)
{
    for (int i = painted.count - 1; i >= 0; i -= 2)
        painted_free(i);
}

void painted_free_all(void)
{
    while (painted.count > 0)
        painted_free(painted.count - 1);
}

void painted_check(void)
{
    int64_t requested = 0;
    for (int i = 0; i < painted.count; i++) {
        check_block(i);
        requested += (int64_t)painted.blocks[i].size;
    }
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[0].current == painted.count &&
          stats.requested_bytes[0].current == requested);
}
