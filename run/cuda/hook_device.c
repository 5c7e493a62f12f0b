/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a device has (under a limit, as if it were smaller); and the ends of contexts, which free
 * what the program did not. */
#include "pool/pool.h"
#include "shim.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* True if there is a limit or a pool, so that the answer differs from the driver's. After true,
 * shim_leave() ends the hook. */
static bool enter_limited(void)
{
    if (!shim_enter())
        return false;
    group_limits();
    if (atomic_load_explicit(&book->limited, memory_order_relaxed) || book->pool)
        return true;
    shim_leave();
    return false;
}

HOOK cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    cu_result code = PASS(cuDeviceTotalMem_v2, (bytes, device));
    if (code || !bytes || device < 0 || !enter_limited())
        return code;
    if ((unsigned)device < book->devices)
        *bytes = least(*bytes, atomic_load(&book->device[device].limit));
    shim_leave();
    return code;
}

/* Either output may be NULL, as OptiX passes it. Segments of pools without blocks count as free. A
 * device without a limit has the driver's figures beside that, also after its limit went. */
HOOK cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    cu_context context;
    cu_result code = PASS(cuMemGetInfo_v2, (free_bytes, total_bytes));
    if (code || !enter_limited())
        return code;
    unsigned index = current_device(&context);
    uint64_t idle = pool_idle(index);
    if (free_bytes)
        *free_bytes += idle;
    uint64_t limit = index < book->devices ? atomic_load(&book->device[index].limit) : UINT64_MAX;
    if (limit != UINT64_MAX) {
        uint64_t unseen = limits_unseen(&book->device[index]);
        uint64_t used = group_has(index) ? group_used(index, unseen) : unseen + charge_used(index);
        used -= least(used, idle + pool_idle_ordered(index));
        if (free_bytes)
            *free_bytes = least(*free_bytes, limit > used ? limit - used : 0);
        if (total_bytes)
            *total_bytes = least(*total_bytes, limit);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuCtxDestroy(cu_context context)
{
    if (!shim_enter())
        return PASS(cuCtxDestroy, (context));
    cu_result code = PASS(cuCtxDestroy, (context));
    if (!code)
        charge_drop(context);
    shim_leave();
    return code;
}

HOOK cu_result cuCtxDestroy_v2(cu_context context)
{
    if (!shim_enter())
        return PASS(cuCtxDestroy_v2, (context));
    cu_result code = PASS(cuCtxDestroy_v2, (context));
    if (!code)
        charge_drop(context);
    shim_leave();
    return code;
}

static bool is_active(cu_device device)
{
    unsigned flags;
    int active = 0;
    return real.cuDevicePrimaryCtxGetState &&
           !real.cuDevicePrimaryCtxGetState(device, &flags, &active) && active;
}

/* Retains the primary context once more and releases it at once, which changes nothing. */
cu_context primary_context(cu_device device)
{
    cu_context context = NULL;
    if (!is_active(device) || !real.cuDevicePrimaryCtxRetain ||
        real.cuDevicePrimaryCtxRetain(&context, device))
        return NULL;
    if (real.cuDevicePrimaryCtxRelease_v2)
        (void)real.cuDevicePrimaryCtxRelease_v2(device);
    else
        (void)PASS(cuDevicePrimaryCtxRelease, (device));
    return context;
}

/* Frees in the book what ended with a primary context: it ends at its last release, and at every
 * reset. */
static void drop(cu_context context, cu_device device, cu_result code, bool is_reset)
{
    if (code || !context || (!is_reset && is_active(device))) {
        pool_stay(device);
        return;
    }
    pool_gone(device);
    charge_drop(context);
}

HOOK cu_result cuDevicePrimaryCtxRelease(cu_device device)
{
    if (!shim_enter())
        return PASS(cuDevicePrimaryCtxRelease, (device));
    cu_context context = primary_context(device);
    pool_leave(device);
    cu_result code = PASS(cuDevicePrimaryCtxRelease, (device));
    drop(context, device, code, false);
    shim_leave();
    return code;
}

HOOK cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    if (!shim_enter())
        return PASS(cuDevicePrimaryCtxRelease_v2, (device));
    cu_context context = primary_context(device);
    pool_leave(device);
    cu_result code = PASS(cuDevicePrimaryCtxRelease_v2, (device));
    drop(context, device, code, false);
    shim_leave();
    return code;
}

HOOK cu_result cuDevicePrimaryCtxReset(cu_device device)
{
    if (!shim_enter())
        return PASS(cuDevicePrimaryCtxReset, (device));
    cu_context context = primary_context(device);
    pool_leave(device);
    cu_result code = PASS(cuDevicePrimaryCtxReset, (device));
    drop(context, device, code, true);
    shim_leave();
    return code;
}

HOOK cu_result cuDevicePrimaryCtxReset_v2(cu_device device)
{
    if (!shim_enter())
        return PASS(cuDevicePrimaryCtxReset_v2, (device));
    cu_context context = primary_context(device);
    pool_leave(device);
    cu_result code = PASS(cuDevicePrimaryCtxReset_v2, (device));
    drop(context, device, code, true);
    shim_leave();
    return code;
}
