/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/kept.h"

#include <string.h>

#define PAINTED ((size_t)4096) /* the most bytes of a block that are painted */

struct kept kept;

unsigned char kept_paint(int index)
{
    return (unsigned char)(kept.blocks[index].size % 251 + 1);
}

static size_t painted(int index)
{
    return kept.blocks[index].size < PAINTED ? kept.blocks[index].size : PAINTED;
}

void kept_add(void *pointer, size_t size)
{
    int index = kept.count++;
    CHECK(index < KEPT_MOST);
    kept.blocks[index].start = pointer;
    kept.blocks[index].size = size;
    kept.blocks[index].checked = true;
    memset(pointer, kept_paint(index), painted(index));
}

bool kept_alloc(tarn_pool *pool, tarn_stream stream, size_t size)
{
    void *pointer = &kept;
    tarn_status status = pool ? tarn_pool_alloc(pool, stream, size, &pointer)
                              : tarn_alloc_on(stream, size, &pointer);
    if (went_well(status, false, "alloc"))
        kept_add(pointer, size);
    else
        CHECK(pointer == &kept);
    return !status;
}

static void check_block(int index)
{
    for (size_t i = 0; kept.blocks[index].checked && i < painted(index); i++)
        CHECK(kept.blocks[index].start[i] == kept_paint(index));
}

void kept_free(int index)
{
    check_block(index);
    OK(tarn_free(kept.blocks[index].start));
    kept.blocks[index] = kept.blocks[--kept.count];
}

void kept_free_every_second(void)
{
    for (int i = kept.count - 1; i >= 0; i -= 2)
        kept_free(i);
}

void kept_free_all(void)
{
    while (kept.count > 0)
        kept_free(kept.count - 1);
}

void kept_check(void)
{
    int64_t requested = 0;
    for (int i = 0; i < kept.count; i++) {
        check_block(i);
        requested += (int64_t)kept.blocks[i].size;
    }
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[0].current == kept.count &&
          stats.requested_bytes[0].current == requested);
}
