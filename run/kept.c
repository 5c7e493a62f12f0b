/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools, whose memory outlives the process that created it. An import alone charges nobody. A
 * tarn in the process that takes a pool over (tarn_pool_keep()) says here that the memory is its
 * own. It finds these functions by their names (driver.c), so they never change. */
#include "shim.h"

HOOK bool tarn_run_takes_over(int device, uint64_t piece, uint64_t size)
{
    if (device < 0 || !shim_enter())
        return false;
    bool counted = charge_taken_over((unsigned)device, piece, size, CALLER);
    shim_leave();
    return counted;
}

HOOK void tarn_run_has_taken_over(int device, uint64_t size)
{
    if (device < 0 || !shim_enter())
        return;
    group_expected((unsigned)device, size);
    shim_leave();
}

HOOK int tarn_run_slot(void)
{
    if (!shim_enter())
        return -1;
    int slot = group_slot();
    shim_leave();
    return slot;
}
