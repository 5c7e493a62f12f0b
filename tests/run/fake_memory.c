/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The memory of the driver for the tests of `tarn run` that is not plain and in no pool: pieces,
 * arrays, of other processes, of the host, nodes of graphs. */
#include "fake_driver.h"

#include <stdlib.h>

cu_result cuMemCreate(cu_piece *piece, size_t size,
                      const struct cu_allocation_properties *properties, unsigned long long flags)
{
    uint64_t key;
    (void)flags;
    if (!piece || !size || !properties)
        return CU_INVALID_VALUE;
    bool of_device = properties->location.type == CU_LOCATION_DEVICE;
    cu_result code = fake_take(of_device ? properties->location.id : 0, size, false, &key);
    if (!code)
        *piece = key;
    return code;
}

cu_result cuMemRelease(cu_piece piece)
{
    return fake_give(piece);
}

static uint64_t mapped[64];

static cu_result refer(cu_piece piece)
{
    cu_address base;
    pthread_mutex_lock(&fake.lock);
    struct slot *slot = fake_slot_at(piece, &base);
    if (slot)
        slot->references++;
    pthread_mutex_unlock(&fake.lock);
    return slot ? CU_OK : CU_INVALID_VALUE;
}

/* Addresses are those of the tests: 0x10000000 and each 2 MiB behind it. */
cu_result cuMemMap(cu_address address, size_t size, size_t offset, cu_piece piece,
                   unsigned long long flags)
{
    (void)size, (void)offset, (void)flags;
    cu_result code = refer(piece);
    if (!code)
        mapped[(address - 0x10000000) >> 21 & 63] = piece;
    return code;
}

cu_result cuMemUnmap(cu_address address, size_t size)
{
    cu_result code = size ? CU_OK : CU_INVALID_VALUE;
    for (size_t done = 0; done < size && !code; done += 2 << 20)
        code = fake_give(mapped[(address + done - 0x10000000) >> 21 & 63]);
    return code;
}

cu_result cuMemRetainAllocationHandle(cu_piece *piece, void *address)
{
    if ((uintptr_t)address < 0x10000000 || (uintptr_t)address - 0x10000000 >= (uintptr_t)64 << 21)
        return CU_INVALID_VALUE;
    *piece = mapped[((uintptr_t)address - 0x10000000) >> 21 & 63];
    return refer(*piece);
}

cu_result cuArrayCreate_v2(cu_array *array, const struct cu_array_descriptor *descriptor)
{
    cu_address address;
    cu_result code = array && descriptor ? fake_alloc(&address, 4096) : CU_INVALID_VALUE;
    if (!code)
        *array = (cu_array)(uintptr_t)address;
    return code;
}

cu_result cuArray3DCreate_v2(cu_array *array, const struct cu_array3d_descriptor *descriptor)
{
    cu_address address;
    cu_result code = array && descriptor ? fake_alloc(&address, 4096) : CU_INVALID_VALUE;
    if (!code)
        *array = (cu_array)(uintptr_t)address;
    return code;
}

cu_result cuArrayDestroy(cu_array array)
{
    return fake_give((uint64_t)(uintptr_t)array);
}

cu_result cuMipmappedArrayCreate(cu_mipmapped *array,
                                 const struct cu_array3d_descriptor *descriptor, unsigned levels)
{
    cu_address address;
    cu_result code = array && descriptor && levels ? fake_alloc(&address, 4096) : CU_INVALID_VALUE;
    if (!code)
        *array = (cu_mipmapped)(uintptr_t)address;
    return code;
}

cu_result cuMipmappedArrayDestroy(cu_mipmapped array)
{
    return fake_give((uint64_t)(uintptr_t)array);
}

cu_result cuIpcOpenMemHandle_v2(cu_address *address, struct cu_ipc handle, unsigned flags)
{
    (void)handle, (void)flags;
    return fake_alloc(address, 4096);
}

cu_result cuIpcOpenMemHandle(cu_address *address, struct cu_ipc handle, unsigned flags)
{
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

cu_result cuIpcCloseMemHandle(cu_address address)
{
    return fake_give(address);
}

cu_result cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    if (!memory || !size || !fake_has_context())
        return CU_INVALID_VALUE;
    *memory = malloc(size);
    return *memory ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuMemAllocHost_v2(void **memory, size_t size)
{
    return cuMemHostAlloc(memory, size, 0);
}

cu_result cuMemFreeHost(void *memory)
{
    free(memory);
    return memory ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemHostRegister_v2(void *memory, size_t size, unsigned flags)
{
    (void)flags;
    return memory && size ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemHostUnregister(void *memory)
{
    return memory ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuGraphAddMemAllocNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                                 size_t count, struct cu_alloc_node *wanted)
{
    (void)graph, (void)before, (void)count;
    if (!node || !wanted)
        return CU_INVALID_VALUE;
    wanted->address = 0x600000000000;
    return CU_OK;
}
