/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the program asks about an address, and what it exports. The driver is asked first, so that
 * errors are its own. Of its answer for a segment, only what differs for the block is replaced. An
 * address in a segment but in no live block belongs to no allocation as the program sees it, so the
 * driver is asked about an address of no allocation instead. */
#include "pool.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOWHERE ((cu_address)0x10)

enum attribute { /* CU_POINTER_ATTRIBUTE_ */
                 P2P_TOKENS = 5,
                 SYNC_MEMOPS = 6,
                 BUFFER_ID = 7,
                 IS_LEGACY_IPC_CAPABLE = 10,
                 RANGE_START = 11,
                 RANGE_SIZE = 12,
                 MAPPING_SIZE = 18,
                 MAPPING_START = 19,
                 MEMORY_BLOCK_ID = 20,
};

/* Replaces the value of an attribute. Booleans have one byte or four, and are 0 or 1. */
static void correct(const struct block *block, unsigned attribute, void *data)
{
    struct block now;
    uint64_t value = 0;
    switch ((enum attribute)attribute) {
    case SYNC_MEMOPS:
        if (!block->synced)
            *(char *)data = 0;
        return;
    case IS_LEGACY_IPC_CAPABLE:
        *(char *)data = 0;
        return;
    case BUFFER_ID:
    case MEMORY_BLOCK_ID:
        value = pool_note(block, NULL, &now) ? now.other : 0;
        break;
    case RANGE_START:
    case MAPPING_START:
        value = block->key;
        break;
    case RANGE_SIZE:
    case MAPPING_SIZE:
        value = block->size;
        break;
    default:
        return;
    }
    memcpy(data, &value, sizeof value);
}

HOOK cu_result cuMemGetAddressRange_v2(cu_address *base, size_t *size, cu_address address)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuMemGetAddressRange_v2, (base, size, address));
    enum pool_place place = pool_find(address, &block);
    cu_result code =
        PASS(cuMemGetAddressRange_v2, (base, size, place == POOL_BETWEEN ? NOWHERE : address));
    if (!code && place == POOL_BLOCK) {
        if (base)
            *base = block.key;
        if (size)
            *size = block.size;
    }
    shim_leave();
    return code;
}

HOOK cu_result cuPointerGetAttribute(void *data, unsigned attribute, cu_address address)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuPointerGetAttribute, (data, attribute, address));
    enum pool_place place = pool_find(address, &block);
    if (attribute == P2P_TOKENS)
        pool_end("tokens for RDMA were asked for");
    cu_result code =
        PASS(cuPointerGetAttribute, (data, attribute, place == POOL_BETWEEN ? NOWHERE : address));
    if (!code && place == POOL_BLOCK && data)
        correct(&block, attribute, data);
    shim_leave();
    return code;
}

HOOK cu_result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data,
                                      cu_address address)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuPointerGetAttributes, (count, attributes, data, address));
    enum pool_place place = pool_find(address, &block);
    for (unsigned i = 0; attributes && i < count; i++)
        if (attributes[i] == P2P_TOKENS)
            pool_end("tokens for RDMA were asked for");
    cu_result code = PASS(cuPointerGetAttributes,
                          (count, attributes, data, place == POOL_BETWEEN ? NOWHERE : address));
    for (unsigned i = 0; !code && place == POOL_BLOCK && i < count; i++)
        if (data[i])
            correct(&block, attributes[i], data[i]);
    shim_leave();
    return code;
}

/* Sets SYNC_MEMOPS of a block. The driver has the attribute per segment. So it is turned on for all
 * blocks of the segment, which wait more than needed, and never turned off. */
HOOK cu_result cuPointerSetAttribute(const void *value, unsigned attribute, cu_address address)
{
    struct block block, now;
    unsigned wanted = 1;
    if (!shim_enter())
        return PASS(cuPointerSetAttribute, (value, attribute, address));
    enum pool_place place = pool_find(address, &block);
    if (attribute == SYNC_MEMOPS)
        pool_end("SYNC_MEMOPS was set, as for RDMA");
    if (place == POOL_BLOCK && attribute == SYNC_MEMOPS && value)
        memcpy(&wanted, value, sizeof wanted);
    bool on = wanted;
    cu_result code = on ? PASS(cuPointerSetAttribute,
                               (value, attribute, place == POOL_BETWEEN ? NOWHERE : address))
                        : CU_OK;
    if (!code && place == POOL_BLOCK && attribute == SYNC_MEMOPS)
        (void)pool_note(&block, &on, &now);
    shim_leave();
    return code;
}

/* Other processes ------------------------------------------------------------------------------ */

/* Says so once per process. */
static void say_refused(void)
{
    static const char line[] =
        "tarn run: an allocation that --pool serves cannot be shared by cuIpcGetMemHandle: run "
        "this program without --pool, or with a smaller size\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        (void)!write(STDERR_FILENO, line, sizeof line - 1);
}

/* Refused for a pooled block: the driver would export the whole segment, and the importer would get
 * the beginning of that. */
HOOK cu_result cuIpcGetMemHandle(struct cu_ipc *handle, cu_address address)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuIpcGetMemHandle, (handle, address));
    pool_end("memory was shared by cuIpcGetMemHandle");
    enum pool_place place = pool_find(address, &block);
    cu_result code = PASS(cuIpcGetMemHandle, (handle, place == POOL_NONE ? address : NOWHERE));
    if (place != POOL_NONE && !code)
        code = CU_INVALID_VALUE;
    if (place == POOL_BLOCK)
        say_refused();
    shim_leave();
    return code;
}

HOOK cu_result cuIpcGetEventHandle(struct cu_ipc_event *handle, cu_event event)
{
    if (!shim_enter())
        return PASS(cuIpcGetEventHandle, (handle, event));
    pool_end("an event was shared by cuIpcGetEventHandle");
    cu_result code = PASS(cuIpcGetEventHandle, (handle, event));
    shim_leave();
    return code;
}

HOOK cu_result cuIpcOpenEventHandle(cu_event *event, struct cu_ipc_event handle)
{
    if (!shim_enter())
        return PASS(cuIpcOpenEventHandle, (event, handle));
    pool_end("another process's event was opened by cuIpcOpenEventHandle");
    cu_result code = PASS(cuIpcOpenEventHandle, (event, handle));
    shim_leave();
    return code;
}

/* A part of a block is also a part of its segment, so the driver can export it. Pooling ends here,
 * so no other block gets that memory while an importer has it. */
HOOK cu_result cuMemGetHandleForAddressRange(void *handle, cu_address address, size_t size,
                                             unsigned kind, unsigned long long flags)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuMemGetHandleForAddressRange, (handle, address, size, kind, flags));
    pool_end("memory was exported by cuMemGetHandleForAddressRange");
    enum pool_place place = pool_find(address, &block);
    bool lies_within = place == POOL_BLOCK && size <= block.size - (address - block.key);
    cu_address asked = place == POOL_NONE || lies_within ? address : NOWHERE;
    cu_result code = PASS(cuMemGetHandleForAddressRange, (handle, asked, size, kind, flags));
    shim_leave();
    return code;
}

HOOK cu_result cuMemExportToShareableHandle(void *handle, cu_piece piece, cu_handle_kind kind,
                                            unsigned long long flags)
{
    if (!shim_enter())
        return PASS(cuMemExportToShareableHandle, (handle, piece, kind, flags));
    pool_end("memory was exported by cuMemExportToShareableHandle");
    cu_result code = PASS(cuMemExportToShareableHandle, (handle, piece, kind, flags));
    shim_leave();
    return code;
}

HOOK cu_result cuMemImportFromShareableHandle(cu_piece *piece, void *handle, cu_handle_kind kind)
{
    if (!shim_enter())
        return PASS(cuMemImportFromShareableHandle, (piece, handle, kind));
    pool_end("memory was imported by cuMemImportFromShareableHandle");
    cu_result code = PASS(cuMemImportFromShareableHandle, (piece, handle, kind));
    shim_leave();
    return code;
}

HOOK cu_result cuMemPoolExportToShareableHandle(void *handle, cu_pool pool, cu_handle_kind kind,
                                                unsigned long long flags)
{
    if (!shim_enter())
        return PASS(cuMemPoolExportToShareableHandle, (handle, pool, kind, flags));
    pool_end("a pool was exported by cuMemPoolExportToShareableHandle");
    cu_result code = PASS(cuMemPoolExportToShareableHandle, (handle, pool, kind, flags));
    shim_leave();
    return code;
}

HOOK cu_result cuMemPoolImportFromShareableHandle(cu_pool *pool, void *handle, cu_handle_kind kind,
                                                  unsigned long long flags)
{
    if (!shim_enter())
        return PASS(cuMemPoolImportFromShareableHandle, (pool, handle, kind, flags));
    pool_end("a pool was imported by cuMemPoolImportFromShareableHandle");
    cu_result code = PASS(cuMemPoolImportFromShareableHandle, (pool, handle, kind, flags));
    shim_leave();
    return code;
}
