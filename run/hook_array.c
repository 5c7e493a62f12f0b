/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Arrays. How much memory the driver takes for one it does not say, so what its elements need is charged: a little less than the truth, as
 * an array is laid out in tiles. */
#include "shim.h"

/* Bits per element of `channels` channels; formats that are not known count as a byte per channel. */
static unsigned bits_of(unsigned format, unsigned channels)
{
    static const unsigned char normalized[] = {8, 16, 32, 16, 32, 64}; /* 1, 2 and 4 channels of 8 and 16 bits */
    if (format >= 0xc0 && format <= 0xcb)
        return normalized[(format - 0xc0) % 6];
    switch (format) {
    case 0x02: /* unsigned and signed 16 bits, half */
    case 0x09:
    case 0x10:
        return 16 * channels;
    case 0x03: /* unsigned and signed 32 bits, float, 10-10-10-2 */
    case 0x0a:
    case 0x20:
        return 32 * channels;
    case 0x50:
        return 32;
    case 0x91: /* BC1 and BC4: 8 bytes per 16 elements */
    case 0x92:
    case 0x97:
    case 0x98:
        return 4;
    case 0x93: /* other block-compressed: 16 bytes per 16 elements */
    case 0x94:
    case 0x95:
    case 0x96:
    case 0x99:
    case 0x9a:
    case 0x9b:
    case 0x9c:
    case 0x9d:
    case 0x9e:
        return 8;
    default:
        return 8 * channels;
    }
}

static size_t some(size_t extent)
{
    return extent ? extent : 1;
}

static size_t size_of(const struct cu_array3d_descriptor *shape, unsigned levels)
{
    size_t bytes = 0, width = some(shape->width), height = some(shape->height), depth = some(shape->depth);
    if (shape->flags & (RUN_ARRAY_SPARSE | RUN_ARRAY_DEFERRED))
        return 0; /* it is mapped later, if ever, by pieces */
    for (unsigned level = 0; level < levels && level < 32; level++) {
        bytes += width * height * depth * bits_of(shape->format, shape->channels) / 8;
        width = some(width / 2);
        height = some(height / 2);
        depth = some(depth / 2);
    }
    return bytes;
}

static cu_result begin(struct charge *charge, const struct cu_array3d_descriptor *shape, unsigned levels, void *caller)
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
        code = PASS(cuArrayCreate_v2, (array, descriptor));
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
        code = PASS(cuArray3DCreate_v2, (array, descriptor));
        end(&charge, code, code ? NULL : *array);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMipmappedArrayCreate(cu_mipmapped *array, const struct cu_array3d_descriptor *descriptor,
                                      unsigned levels)
{
    struct charge charge;
    if (!array || !descriptor || !shim_enter())
        return PASS(cuMipmappedArrayCreate, (array, descriptor, levels));
    cu_result code = begin(&charge, descriptor, levels, CALLER);
    if (!code) {
        code = PASS(cuMipmappedArrayCreate, (array, descriptor, levels));
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
