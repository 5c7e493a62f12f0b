/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Physical memory of the virtual-memory calls. A piece takes memory from its creation until its
 * handle, all retained handles and all its mappings are gone. Pieces in host memory count as host
 * memory. Imported pieces were charged to the process that exported them. */
#include "pool/pool.h"
#include "shim.h"

HOOK cu_result cuMemCreate(cu_piece *piece, size_t size,
                           const struct cu_allocation_properties *properties,
                           unsigned long long flags)
{
    struct charge charge;
    if (!piece || !size || !properties || !shim_enter())
        return PASS(cuMemCreate, (piece, size, properties, flags));
    pool_sees_handles(properties->handle_types);
    bool of_device = properties->location.type == CU_LOCATION_DEVICE;
    unsigned device = !of_device                    ? 0
                      : properties->location.id < 0 ? NO_DEVICE
                                                    : (unsigned)properties->location.id;
    cu_result code =
        charge_begin(&charge, of_device ? RUN_VIRTUAL : RUN_HOST, device, size, CALLER);
    if (!code) {
        code = AGAIN(device, PASS(cuMemCreate, (piece, size, properties, flags)));
        charge_end(&charge, code, SPACE_PIECE, code ? 0 : *piece, size);
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

HOOK cu_result cuMemRelease(cu_piece piece)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuMemRelease, (piece));
    enum block_change change = blocks_refer(SPACE_PIECE, piece, -1, &block);
    cu_result code = PASS(cuMemRelease, (piece));
    if (change == BLOCK_GONE && code) {
        block.references = 1;
        charge_restore(&block);
    } else if (change == BLOCK_GONE) {
        charge_free(&block, NULL);
    } else if (change == BLOCK_KEPT && code) {
        (void)blocks_refer(SPACE_PIECE, piece, 1, &block);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMemRetainAllocationHandle(cu_piece *piece, void *address)
{
    struct block block;
    if (!piece || !shim_enter())
        return PASS(cuMemRetainAllocationHandle, (piece, address));
    cu_result code = PASS(cuMemRetainAllocationHandle, (piece, address));
    if (!code)
        (void)blocks_refer(SPACE_PIECE, *piece, 1, &block);
    shim_leave();
    return code;
}

HOOK cu_result cuMemMap(cu_address address, size_t size, size_t offset, cu_piece piece,
                        unsigned long long flags)
{
    struct block block, old;
    if (!shim_enter())
        return PASS(cuMemMap, (address, size, offset, piece, flags));
    uint64_t own = blocks_refer(SPACE_PIECE, piece, 1, &block) == BLOCK_KEPT ? piece : NOBODYS;
    cu_result code = PASS(cuMemMap, (address, size, offset, piece, flags));
    struct block mapping = {
        .key = address, .size = size, .other = own, .space = SPACE_MAPPING, .references = 1};
    if (code || !blocks_put(&mapping, &old))
        unrefer(own);
    else if (old.space) /* the unmap of an earlier mapping there was not seen */
        unrefer(old.other);
    shim_leave();
    return code;
}

/* One call may unmap several adjacent mappings, some of them of unknown pieces. Their addresses
 * stay reserved, and nobody maps there before the program knows that the call succeeded, so the
 * mappings are taken out of the table after the call. The walk ends at a mapping that the table
 * lacks, for lack of host memory. */
HOOK cu_result cuMemUnmap(cu_address address, size_t size)
{
    struct block mapping;
    if (!shim_enter())
        return PASS(cuMemUnmap, (address, size));
    cu_result code = PASS(cuMemUnmap, (address, size));
    for (size_t done = 0;
         !code && done < size && blocks_take(SPACE_MAPPING, address + done, &mapping);) {
        unrefer(mapping.other);
        done += mapping.size;
    }
    shim_leave();
    return code;
}
