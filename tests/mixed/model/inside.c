/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is only known, or done, inside of the library. Not a part of the model's other files, whose
 * names clash with those of heap.h. */
#include "memory/keep/keep.h"
#include "memory/plan/plan.h"
#include "memory/pressure/release.h"

uint64_t requests_planned(void);
void idle_pass(uint64_t ns);
uint64_t pool_numbered(tarn_pool *pool);
uint64_t pool_adopted(tarn_pool *pool, uint64_t numbered);
bool fell_back(int device);

uint64_t requests_planned(void)
{
    return plan_counts().planned;
}

/* One of the thread of idle_release, so much later than the one before. */
void idle_pass(uint64_t ns)
{
    static uint64_t time = UINT64_C(1) << 62;
    release_pass(time += ns);
}

/* Whether pools of this device have plain segments because the driver gave it no addresses, which
 * an injected failure may have caused. */
bool fell_back(int device)
{
    const struct arena *arena = arena_if_used(device);
    return arena && arena->plain;
}

/* The number of a kept pool's newest segment. */
uint64_t pool_numbered(tarn_pool *pool)
{
    return keep_of_store(store_of_public(pool))->numbered;
}

/* Bytes of its segments up to that number, which it still has. A segment that failed, and that the
 * driver refuses to give up, has no number. */
uint64_t pool_adopted(tarn_pool *pool, uint64_t numbered)
{
    const struct keep *keep = keep_of_store(store_of_public(pool));
    uint64_t bytes = 0;
    for (unsigned i = 0; i < keep->piece_count; i++)
        if ((keep->pieces[i].mapped || keep->pieces[i].stuck) && keep->pieces[i].number &&
            keep->pieces[i].number <= numbered)
            bytes += keep->pieces[i].size;
    return bytes;
}
