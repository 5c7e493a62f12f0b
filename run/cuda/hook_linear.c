/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory of a context: plain, pitched and managed; and cuMemFree(), which frees other kinds too. A
 * block is taken out of the table before it is freed, since another thread may get its address at
 * once. If the free fails, the block is put back. */
#include "pool/pool.h"
#include "shim.h"

HOOK cu_result cuMemAlloc_v2(cu_address *address, size_t size)
{
    struct charge charge;
    cu_context context;
    if (!address || !size || !shim_enter())
        return PASS(cuMemAlloc_v2, (address, size));
    unsigned device = current_device(&context);
    if (pool_alloc(address, size, device, context, CALLER)) {
        shim_leave();
        return CU_OK;
    }
    cu_result code = charge_begin(&charge, RUN_PLAIN, device, size, CALLER);
    if (!code) {
        code = AGAIN(device, PASS(cuMemAlloc_v2, (address, size)));
        pool_heard(device, code);
        charge.block.context = context;
        charge_end(&charge, code, SPACE_ADDRESS, code ? 0 : *address, size);
    }
    shim_leave();
    return code;
}

/* The driver chooses the pitch, so the padding of the rows is charged after the call. */
HOOK cu_result cuMemAllocPitch_v2(cu_address *address, size_t *pitch, size_t width, size_t height,
                                  unsigned element)
{
    struct charge charge;
    cu_context context;
    size_t least;
    if (!address || !pitch || __builtin_mul_overflow(width, height, &least) || !shim_enter())
        return PASS(cuMemAllocPitch_v2, (address, pitch, width, height, element));
    unsigned device = current_device(&context);
    cu_result code = charge_begin(&charge, RUN_PITCHED, device, least, CALLER);
    if (!code) {
        code = AGAIN(device, PASS(cuMemAllocPitch_v2, (address, pitch, width, height, element)));
        charge.block.context = context;
        charge_end(&charge, code, SPACE_ADDRESS, code ? 0 : *address, code ? 0 : *pitch * height);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMemAllocManaged(cu_address *address, size_t size, unsigned flags)
{
    struct charge charge;
    cu_context context;
    if (!address || !size || !shim_enter())
        return PASS(cuMemAllocManaged, (address, size, flags));
    unsigned device = current_device(&context);
    cu_result code = charge_begin(&charge, RUN_MANAGED, device, size, CALLER);
    if (!code) {
        code = AGAIN(device, PASS(cuMemAllocManaged, (address, size, flags)));
        charge.block.context = context;
        charge_end(&charge, code, SPACE_ADDRESS, code ? 0 : *address, size);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMemFree_v2(cu_address address)
{
    struct block block;
    if (!address || !shim_enter())
        return PASS(cuMemFree_v2, (address));
    bool known = blocks_take(SPACE_ADDRESS, address, &block);
    if ((known && block.pooled) || (!known && pool_owns(address))) {
        cu_result pooled = known ? pool_free(&block) : CU_INVALID_VALUE;
        shim_leave();
        return pooled;
    }
    cu_result code = PASS(cuMemFree_v2, (address));
    if (code)
        pool_heard(NO_DEVICE, code);
    if (known && code)
        charge_restore(&block);
    else if (known)
        charge_free(&block, NULL);
    if (known && !code && block.kind == RUN_ORDERED)
        pool_passes(block.owner, -(int64_t)block.size);
    shim_leave();
    return code;
}
