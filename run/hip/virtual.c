/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pieces of HIP's virtual memory, counted as run/cuda/hook_virtual.c counts CUDA's; and arrays. */
#include "array_size.h"
#include "hip/enter.h"

static uint64_t key_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

HOOK hip_result hipMemCreate(hip_piece *piece, size_t size,
                             const struct hip_allocation_properties *properties,
                             unsigned long long flags)
{
    struct charge charge;
    if (!piece || !size || !properties || !hip_enter())
        return PASS(hipMemCreate, (piece, size, properties, flags));
    bool of_device = properties->location.type == HIP_LOCATION_DEVICE;
    unsigned device = !of_device                    ? 0
                      : properties->location.id < 0 ? NO_DEVICE
                                                    : (unsigned)properties->location.id;
    hip_result code =
        hip_begin_on(&charge, of_device ? RUN_VIRTUAL : RUN_HOST, device, size, CALLER);
    if (!code) {
        code = PASS(hipMemCreate, (piece, size, properties, flags));
        hip_end(&charge, code, SPACE_PIECE, code ? NULL : *piece, size);
    }
    shim_leave();
    return code;
}

/* Recorded as the piece of a mapping whose piece is not known, such as another process's. */
#define NOBODYS UINT64_C(0)

static void unrefer(uint64_t piece)
{
    struct block block;
    if (piece != NOBODYS && blocks_refer(SPACE_PIECE, piece, -1, &block) == BLOCK_GONE)
        charge_free(&block, NULL);
}

HOOK hip_result hipMemRelease(hip_piece piece)
{
    struct block block;
    if (!shim_enter())
        return PASS(hipMemRelease, (piece));
    enum block_change change = blocks_refer(SPACE_PIECE, key_of(piece), -1, &block);
    hip_result code = PASS(hipMemRelease, (piece));
    if (change == BLOCK_GONE && code) {
        block.references = 1;
        charge_restore(&block);
    } else if (change == BLOCK_GONE) {
        charge_free(&block, NULL);
    } else if (change == BLOCK_KEPT && code) {
        (void)blocks_refer(SPACE_PIECE, key_of(piece), 1, &block);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipMemRetainAllocationHandle(hip_piece *piece, void *address)
{
    struct block block;
    if (!piece || !shim_enter())
        return PASS(hipMemRetainAllocationHandle, (piece, address));
    hip_result code = PASS(hipMemRetainAllocationHandle, (piece, address));
    if (!code)
        (void)blocks_refer(SPACE_PIECE, key_of(*piece), 1, &block);
    shim_leave();
    return code;
}

HOOK hip_result hipMemMap(void *address, size_t size, size_t offset, hip_piece piece,
                          unsigned long long flags)
{
    struct block block, old;
    if (!shim_enter())
        return PASS(hipMemMap, (address, size, offset, piece, flags));
    uint64_t own =
        blocks_refer(SPACE_PIECE, key_of(piece), 1, &block) == BLOCK_KEPT ? key_of(piece) : NOBODYS;
    hip_result code = PASS(hipMemMap, (address, size, offset, piece, flags));
    struct block mapping = {.key = key_of(address),
                            .size = size,
                            .other = own,
                            .space = SPACE_MAPPING,
                            .references = 1};
    if (code || !blocks_put(&mapping, &old))
        unrefer(own);
    else if (old.space) /* the unmap of an earlier mapping there was not seen */
        unrefer(old.other);
    shim_leave();
    return code;
}

HOOK hip_result hipMemUnmap(void *address, size_t size)
{
    struct block mapping;
    if (!shim_enter())
        return PASS(hipMemUnmap, (address, size));
    hip_result code = PASS(hipMemUnmap, (address, size));
    for (size_t done = 0;
         !code && done < size && blocks_take(SPACE_MAPPING, key_of(address) + done, &mapping);) {
        unrefer(mapping.other);
        done += mapping.size;
    }
    shim_leave();
    return code;
}

/* Arrays --------------------------------------------------------------------------------------- */

static size_t bytes_of(size_t width, size_t height, size_t depth, unsigned bits)
{
    return array_some(width) * array_some(height) * array_some(depth) * bits / 8;
}

static unsigned bits_of(const struct hip_channels *channels)
{
    int bits = 0;
    for (int i = 0; i < 4; i++)
        bits += channels->bits[i];
    return bits > 0 ? (unsigned)bits : 0;
}

HOOK hip_result hipMallocArray(hip_array *array, const struct hip_channels *channels, size_t width,
                               size_t height, unsigned flags)
{
    struct charge charge;
    if (!array || !channels || !hip_enter())
        return PASS(hipMallocArray, (array, channels, width, height, flags));
    hip_result code =
        hip_begin(&charge, RUN_ARRAY, bytes_of(width, height, 0, bits_of(channels)), CALLER);
    if (!code) {
        code = PASS(hipMallocArray, (array, channels, width, height, flags));
        hip_end(&charge, code, SPACE_ARRAY, code ? NULL : *array, charge.block.size);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipMalloc3DArray(hip_array *array, const struct hip_channels *channels,
                                 struct hip_extent extent, unsigned flags)
{
    struct charge charge;
    if (!array || !channels || !hip_enter())
        return PASS(hipMalloc3DArray, (array, channels, extent, flags));
    hip_result code =
        hip_begin(&charge, RUN_ARRAY,
                  bytes_of(extent.width, extent.height, extent.depth, bits_of(channels)), CALLER);
    if (!code) {
        code = PASS(hipMalloc3DArray, (array, channels, extent, flags));
        hip_end(&charge, code, SPACE_ARRAY, code ? NULL : *array, charge.block.size);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipArrayCreate(hip_array *array, const struct hip_array_descriptor *descriptor)
{
    struct charge charge;
    if (!array || !descriptor || !hip_enter())
        return PASS(hipArrayCreate, (array, descriptor));
    hip_result code = hip_begin(&charge, RUN_ARRAY,
                                bytes_of(descriptor->width, descriptor->height, 0,
                                         array_bits(descriptor->format, descriptor->channels)),
                                CALLER);
    if (!code) {
        code = PASS(hipArrayCreate, (array, descriptor));
        hip_end(&charge, code, SPACE_ARRAY, code ? NULL : *array, charge.block.size);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipArray3DCreate(hip_array *array, const struct hip_array3d_descriptor *descriptor)
{
    struct charge charge;
    if (!array || !descriptor || !hip_enter())
        return PASS(hipArray3DCreate, (array, descriptor));
    hip_result code = hip_begin(&charge, RUN_ARRAY,
                                bytes_of(descriptor->width, descriptor->height, descriptor->depth,
                                         array_bits(descriptor->format, descriptor->channels)),
                                CALLER);
    if (!code) {
        code = PASS(hipArray3DCreate, (array, descriptor));
        hip_end(&charge, code, SPACE_ARRAY, code ? NULL : *array, charge.block.size);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipFreeArray(hip_array array)
{
    struct block block;
    if (!shim_enter())
        return PASS(hipFreeArray, (array));
    bool known = blocks_take(SPACE_ARRAY, key_of(array), &block);
    hip_result code = PASS(hipFreeArray, (array));
    hip_freed(known, code, &block, NULL);
    shim_leave();
    return code;
}

HOOK hip_result hipArrayDestroy(hip_array array)
{
    struct block block;
    if (!shim_enter())
        return PASS(hipArrayDestroy, (array));
    bool known = blocks_take(SPACE_ARRAY, key_of(array), &block);
    hip_result code = PASS(hipArrayDestroy, (array));
    hip_freed(known, code, &block, NULL);
    shim_leave();
    return code;
}
