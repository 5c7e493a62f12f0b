/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the shim asks CUDA: its devices, and which one is current. Also cuInit(), before which the
 * shim asks nothing. */
#include "shim.h"

#include <string.h>

/* Each thread remembers the device of its context, which rarely changes. `context_changes` grows
 * when a context goes, since another one may get the same pointer. */
static _Atomic uint64_t context_changes;
static _Thread_local struct {
    cu_context context;
    uint64_t changes;
    unsigned device;
} last __attribute__((tls_model("initial-exec")));

unsigned current_device(cu_context *context)
{
    uint64_t changes = atomic_load_explicit(&context_changes, memory_order_acquire);
    cu_device device;
    *context = NULL;
    if (!real.cuCtxGetCurrent || real.cuCtxGetCurrent(context) || !*context)
        return NO_DEVICE;
    if (*context == last.context && changes == last.changes)
        return last.device;
    if (!real.cuCtxGetDevice || real.cuCtxGetDevice(&device) || device < 0 ||
        (unsigned)device >= book->devices)
        return NO_DEVICE;
    last.context = *context;
    last.changes = changes;
    last.device = (unsigned)device;
    return last.device;
}

void current_device_changes(void)
{
    atomic_fetch_add(&context_changes, 1);
}

void describe_devices(void)
{
    int count = 0;
    if (!real.cuDeviceGetCount || real.cuDeviceGetCount(&count) || count < 0)
        count = 0;
    book->devices = (uint32_t)(count > BOOK_DEVICES ? BOOK_DEVICES : count);
    for (int i = 0; i < (int)book->devices; i++) {
        struct book_device *device = &book->device[i];
        struct cu_uuid uuid = {{0}};
        size_t total = 0;
        cu_result code = CU_NOT_FOUND;
        if (real.cuDeviceGetUuid_v2)
            code = real.cuDeviceGetUuid_v2(&uuid, i);
        else if (real.cuDeviceGetUuid)
            code = real.cuDeviceGetUuid(&uuid, i);
        if (!code)
            memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
        if (real.cuDeviceGetPCIBusId &&
            real.cuDeviceGetPCIBusId(device->address, sizeof device->address, i))
            device->address[0] = '\0';
        if (real.cuDeviceGetName && real.cuDeviceGetName(device->name, sizeof device->name, i))
            device->name[0] = '\0';
        if (real.cuDeviceTotalMem_v2 && real.cuDeviceTotalMem_v2(&total, i) == CU_OK)
            device->total = total;
        atomic_store(&device->limit, UINT64_MAX);
        atomic_store(&device->residue, UINT64_MAX);
    }
}

HOOK cu_result cuInit(unsigned flags)
{
    cu_result code = PASS(cuInit, (flags));
    if (!code && !shim_depth)
        shim_wake();
    return code;
}
