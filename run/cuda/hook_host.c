/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Host memory that the driver has pinned, and memory of another process. Neither takes memory of
 * the device, so neither counts against a limit. Host memory is shown under the device that was
 * current. The process that exported imported memory was charged for it. */
#include "pool/pool.h"
#include "shim.h"

static void begin(struct charge *charge, enum run_kind kind, size_t size, void *caller)
{
    cu_context context;
    unsigned device = current_device(&context);
    (void)charge_begin(charge, kind, device, size, caller); /* no limit refuses these kinds */
    charge->block.context = context;
}

static void end(struct charge *charge, cu_result code, enum block_space space, const void *memory,
                size_t size)
{
    charge_end(charge, code, space, (uint64_t)(uintptr_t)memory, size);
}

static void freed(bool known, cu_result code, const struct block *block)
{
    if (known && code)
        charge_restore(block);
    else if (known)
        charge_free(block, NULL);
}

HOOK cu_result cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    struct charge charge;
    if (!memory || !size || !shim_enter())
        return PASS(cuMemHostAlloc, (memory, size, flags));
    begin(&charge, RUN_HOST, size, CALLER);
    cu_result code = PASS(cuMemHostAlloc, (memory, size, flags));
    end(&charge, code, SPACE_ADDRESS, code ? NULL : *memory, size);
    shim_leave();
    return code;
}

HOOK cu_result cuMemAllocHost_v2(void **memory, size_t size)
{
    struct charge charge;
    if (!memory || !size || !shim_enter())
        return PASS(cuMemAllocHost_v2, (memory, size));
    begin(&charge, RUN_HOST, size, CALLER);
    cu_result code = PASS(cuMemAllocHost_v2, (memory, size));
    end(&charge, code, SPACE_ADDRESS, code ? NULL : *memory, size);
    shim_leave();
    return code;
}

HOOK cu_result cuMemFreeHost(void *memory)
{
    struct block block;
    if (!memory || !shim_enter())
        return PASS(cuMemFreeHost, (memory));
    bool known = blocks_take(SPACE_ADDRESS, (uint64_t)(uintptr_t)memory, &block);
    cu_result code = PASS(cuMemFreeHost, (memory));
    freed(known, code, &block);
    shim_leave();
    return code;
}

HOOK cu_result cuMemHostRegister_v2(void *memory, size_t size, unsigned flags)
{
    struct charge charge;
    if (!memory || !size || !shim_enter())
        return PASS(cuMemHostRegister_v2, (memory, size, flags));
    begin(&charge, RUN_REGISTERED, size, CALLER);
    cu_result code = PASS(cuMemHostRegister_v2, (memory, size, flags));
    end(&charge, code, SPACE_REGISTERED, code ? NULL : memory, size);
    shim_leave();
    return code;
}

HOOK cu_result cuMemHostUnregister(void *memory)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuMemHostUnregister, (memory));
    bool known = blocks_take(SPACE_REGISTERED, (uint64_t)(uintptr_t)memory, &block);
    cu_result code = PASS(cuMemHostUnregister, (memory));
    freed(known, code, &block);
    shim_leave();
    return code;
}

/* The call does not return the size of an imported block, so the driver is asked. */
static void imported(cu_address address, cu_result code, void *caller)
{
    struct charge charge;
    cu_address base;
    size_t size = 0;
    if (code ||
        (real.cuMemGetAddressRange_v2 && real.cuMemGetAddressRange_v2(&base, &size, address)))
        return;
    begin(&charge, RUN_IMPORTED, size, caller);
    charge_end(&charge, CU_OK, SPACE_ADDRESS, address, size);
}

HOOK cu_result cuIpcOpenMemHandle(cu_address *address, struct cu_ipc handle, unsigned flags)
{
    if (!address || !shim_enter())
        return PASS(cuIpcOpenMemHandle, (address, handle, flags));
    pool_end("another process's memory was opened by cuIpcOpenMemHandle");
    cu_result code = PASS(cuIpcOpenMemHandle, (address, handle, flags));
    imported(*address, code, CALLER);
    shim_leave();
    return code;
}

HOOK cu_result cuIpcOpenMemHandle_v2(cu_address *address, struct cu_ipc handle, unsigned flags)
{
    if (!address || !shim_enter())
        return PASS(cuIpcOpenMemHandle_v2, (address, handle, flags));
    pool_end("another process's memory was opened by cuIpcOpenMemHandle");
    cu_result code = PASS(cuIpcOpenMemHandle_v2, (address, handle, flags));
    imported(*address, code, CALLER);
    shim_leave();
    return code;
}

HOOK cu_result cuIpcCloseMemHandle(cu_address address)
{
    struct block block;
    if (!shim_enter())
        return PASS(cuIpcCloseMemHandle, (address));
    bool known = blocks_take(SPACE_ADDRESS, address, &block);
    cu_result code = PASS(cuIpcCloseMemHandle, (address));
    freed(known, code, &block);
    shim_leave();
    return code;
}
