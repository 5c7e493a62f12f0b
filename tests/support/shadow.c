/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* One flag per unit of 512 bytes, for pages of 64 KiB that a block covers in part. One number per
 * page: how many blocks cover a part of it, or WHOLE if one block covers all of it. */
#include "support/shadow.h"
#include "support/host.h"

#include <stdatomic.h>

#define UNIT ((uintptr_t)512)
#define PAGE ((uintptr_t)128)      /* units */
#define UNITS ((uintptr_t)1 << 25) /* 16 GiB: four times the memory of the largest test */
#define WHOLE 0x8000u

static atomic_uchar flags[UNITS];
static _Atomic uint16_t pages[UNITS / PAGE];
static atomic_size_t blocks;

static void enter(uintptr_t first, uintptr_t end)
{
    for (uintptr_t unit = first, next; unit < end; unit = next) {
        next = (unit / PAGE + 1) * PAGE < end ? (unit / PAGE + 1) * PAGE : end;
        bool whole = next - unit == PAGE;
        uint16_t before =
            atomic_fetch_add_explicit(&pages[unit / PAGE % (UNITS / PAGE)],
                                      (uint16_t)(whole ? WHOLE : 1), memory_order_relaxed);
        CHECK(whole ? before == 0 : before < WHOLE);
        for (; !whole && unit < next; unit++)
            CHECK(!atomic_exchange_explicit(&flags[unit % UNITS], 1, memory_order_relaxed));
    }
}

static void leave(uintptr_t first, uintptr_t end)
{
    for (uintptr_t unit = first, next; unit < end; unit = next) {
        next = (unit / PAGE + 1) * PAGE < end ? (unit / PAGE + 1) * PAGE : end;
        bool whole = next - unit == PAGE;
        for (uintptr_t i = unit; !whole && i < next; i++)
            CHECK(atomic_exchange_explicit(&flags[i % UNITS], 0, memory_order_relaxed));
        atomic_fetch_sub_explicit(&pages[unit / PAGE % (UNITS / PAGE)],
                                  (uint16_t)(whole ? WHOLE : 1), memory_order_relaxed);
    }
}

void shadow_enter(const void *start, size_t size)
{
    atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed);
    enter((uintptr_t)start / UNIT, ((uintptr_t)start + size + UNIT - 1) / UNIT);
}

void shadow_leave(const void *start, size_t size)
{
    leave((uintptr_t)start / UNIT, ((uintptr_t)start + size + UNIT - 1) / UNIT);
    atomic_fetch_sub_explicit(&blocks, 1, memory_order_relaxed);
}

void shadow_is_empty(void)
{
    CHECK(atomic_load(&blocks) == 0);
}
