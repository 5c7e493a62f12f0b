/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools. The import of a pool's memory is charged to nobody. A copy of tarn that takes a pool
 * over (tarn_pool_keep()) calls the functions of this file to charge the memory to its process.
 * tarn finds them by name (driver.c), so names and parameters never change. */
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
