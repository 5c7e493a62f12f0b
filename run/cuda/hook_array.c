/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Arrays. They are charged by the bytes that their elements need. */
#include "array_size.h"
#include "pool/pool.h"
#include "shim.h"

static size_t size_of(const struct cu_array3d_descriptor *shape, unsigned levels)
{
    bool is_volume = !(shape->flags & (RUN_ARRAY_LAYERED | RUN_ARRAY_CUBEMAP));
    size_t bytes = 0, width = array_some(shape->width), height = array_some(shape->height),
           depth = array_some(shape->depth);
    if (shape->flags & (RUN_ARRAY_SPARSE | RUN_ARRAY_DEFERRED))
        return 0; /* it has no memory until pieces are mapped to it */
    for (unsigned level = 0; level < levels && level < 32; level++) {
        bytes += width * height * depth * array_bits(shape->format, shape->channels) / 8;
        width = array_some(width / 2);
        height = array_some(height / 2);
        depth = is_volume ? array_some(depth / 2) : depth;
    }
    return bytes;
}

static cu_result begin(struct charge *charge, const struct cu_array3d_descriptor *shape,
                       unsigned levels, void *caller)
{
    cu_context context;
    unsigned device = current_device(&context);
    cu_result code = charge_begin(charge, RUN_ARRAY, device, size_of(shape, levels), caller);
    charge->block.context = context;
    return code;
}

static void end(struct charge *charge, cu_result code, const void *array)
{
    charge_end(charge, code, SPACE_ARRAY, (uint64_t)(uintptr_t)array, charge->block.size);
}

HOOK cu_result cuArrayCreate_v2(cu_array *array, const struct cu_array_descriptor *descriptor)
{
    struct charge charge;
    if (!array || !descriptor || !shim_enter())
        return PASS(cuArrayCreate_v2, (array, descriptor));
    struct cu_array3d_descriptor shape = {descriptor->width,  descriptor->height,   0,
                                          descriptor->format, descriptor->channels, 0};
    cu_result code = begin(&charge, &shape, 1, CALLER);
    if (!code) {
        code = AGAIN(charge.block.device, PASS(cuArrayCreate_v2, (array, descriptor)));
        end(&charge, code, code ? NULL : *array);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuArray3DCreate_v2(cu_array *array, const struct cu_array3d_descriptor *descriptor)
{
    struct charge charge;
    if (!array || !descriptor || !shim_enter())
        return PASS(cuArray3DCreate_v2, (array, descriptor));
    cu_result code = begin(&charge, descriptor, 1, CALLER);
    if (!code) {
        code = AGAIN(charge.block.device, PASS(cuArray3DCreate_v2, (array, descriptor)));
        end(&charge, code, code ? NULL : *array);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMipmappedArrayCreate(cu_mipmapped *array,
                                      const struct cu_array3d_descriptor *descriptor,
                                      unsigned levels)
{
    struct charge charge;
    if (!array || !descriptor || !shim_enter())
        return PASS(cuMipmappedArrayCreate, (array, descriptor, levels));
    cu_result code = begin(&charge, descriptor, levels, CALLER);
    if (!code) {
        code =
            AGAIN(charge.block.device, PASS(cuMipmappedArrayCreate, (array, descriptor, levels)));
        end(&charge, code, code ? NULL : *array);
    }
    shim_leave();
    return code;
}

static bool take(const void *array, struct block *block)
{
    return blocks_take(SPACE_ARRAY, (uint64_t)(uintptr_t)array, block);
}

static void freed(bool known, cu_result code, const struct block *block)
{
    if (known && code)
        charge_restore(block);
    else if (known)
        charge_free(block, NULL);
}

HOOK cu_result cuArrayDestroy(cu_array array)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuArrayDestroy, (array));
    bool known = take(array, &block);
    cu_result code = PASS(cuArrayDestroy, (array));
    freed(known, code, &block);
    shim_leave();
    return code;
}

HOOK cu_result cuMipmappedArrayDestroy(cu_mipmapped array)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuMipmappedArrayDestroy, (array));
    bool known = take(array, &block);
    cu_result code = PASS(cuMipmappedArrayDestroy, (array));
    freed(known, code, &block);
    shim_leave();
    return code;
}
