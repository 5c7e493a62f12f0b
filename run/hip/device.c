/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* HIP's devices: which one is current; their memory, which is smaller under a limit; and their
 * reset, which frees everything on a device. HIP initializes itself in the first call that needs
 * it, so the shim starts at the first allocation or question about memory. */
#include "hip/enter.h"

#include <string.h>

static run_context context_of(int device)
{
    return (run_context)(uintptr_t)(device + 1);
}

unsigned current_device(run_context *context)
{
    int device;
    *context = NULL;
    if (!real.hipGetDevice || real.hipGetDevice(&device) || device < 0 ||
        (unsigned)device >= book->devices)
        return NO_DEVICE;
    *context = context_of(device);
    return (unsigned)device;
}

void current_device_changes(void) {}

void describe_devices(void)
{
    int count = 0;
    if (!real.hipGetDeviceCount || real.hipGetDeviceCount(&count) || count < 0)
        count = 0;
    book->devices = (uint32_t)(count > BOOK_DEVICES ? BOOK_DEVICES : count);
    for (int i = 0; i < (int)book->devices; i++) {
        struct book_device *device = &book->device[i];
        struct hip_uuid uuid = {{0}};
        size_t total = 0;
        if (real.hipDeviceGetPCIBusId &&
            real.hipDeviceGetPCIBusId(device->address, sizeof device->address, i))
            device->address[0] = '\0';
        if (real.hipDeviceGetUuid && real.hipDeviceGetUuid(&uuid, i) == HIP_OK)
            memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
        else /* without a UUID, the bus address identifies the device */
            memcpy(device->uuid, device->address, sizeof device->uuid);
        if (real.hipDeviceGetName && real.hipDeviceGetName(device->name, sizeof device->name, i))
            device->name[0] = '\0';
        if (real.hipDeviceTotalMem && real.hipDeviceTotalMem(&total, i) == HIP_OK)
            device->total = total;
        atomic_store(&device->limit, UINT64_MAX);
        atomic_store(&device->residue, UINT64_MAX);
    }
}

HOOK hip_result hipInit(unsigned flags)
{
    hip_result code = PASS(hipInit, (flags));
    if (!code && !shim_depth)
        shim_wake();
    return code;
}

/* Limits --------------------------------------------------------------------------------------- */

static bool enter_limited(void)
{
    if (!hip_enter())
        return false;
    group_limits();
    if (atomic_load_explicit(&book->limited, memory_order_relaxed))
        return true;
    shim_leave();
    return false;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t limit_of(int device)
{
    return device >= 0 && (unsigned)device < book->devices
               ? atomic_load(&book->device[device].limit)
               : UINT64_MAX;
}

HOOK hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
    hip_result code = PASS(hipDeviceTotalMem, (bytes, device));
    if (code || !bytes || !enter_limited())
        return code;
    *bytes = least(*bytes, limit_of(device));
    shim_leave();
    return code;
}

/* Changes one number of a structure whose layout depends on the version. */
static void limit_number(void *properties, size_t offset, int device)
{
    size_t bytes;
    if (!enter_limited())
        return;
    memcpy(&bytes, (char *)properties + offset, sizeof bytes);
    bytes = least(bytes, limit_of(device));
    memcpy((char *)properties + offset, &bytes, sizeof bytes);
    shim_leave();
}

HOOK hip_result hipGetDeviceProperties(void *properties, int device)
{
    hip_result code = PASS(hipGetDeviceProperties, (properties, device));
    if (!code && properties)
        limit_number(properties, RUN_PROPERTIES_BYTES, device);
    return code;
}

HOOK hip_result hipGetDevicePropertiesR0600(void *properties, int device)
{
    hip_result code = PASS(hipGetDevicePropertiesR0600, (properties, device));
    if (!code && properties)
        limit_number(properties, RUN_PROPERTIES_R0600_BYTES, device);
    return code;
}

HOOK hip_result hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    run_context context;
    hip_result code = PASS(hipMemGetInfo, (free_bytes, total_bytes));
    if (code || !enter_limited())
        return code;
    unsigned index = current_device(&context);
    uint64_t limit = index == NO_DEVICE ? UINT64_MAX : limit_of((int)index);
    if (limit != UINT64_MAX) {
        uint64_t unseen = limits_unseen(&book->device[index]);
        uint64_t used = group_has(index) ? group_used(index, unseen) : unseen + charge_used(index);
        if (free_bytes)
            *free_bytes = least(*free_bytes, limit > used ? limit - used : 0);
        if (total_bytes)
            *total_bytes = least(*total_bytes, limit);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipDeviceReset(void)
{
    run_context context;
    if (!shim_enter())
        return PASS(hipDeviceReset, ());
    (void)current_device(&context);
    hip_result code = PASS(hipDeviceReset, ());
    if (!code)
        charge_drop(context);
    shim_leave();
    return code;
}

/* The resolver --------------------------------------------------------------------------------- */

/* HIP has one prototype per name, whatever version is asked for; a changed prototype gets a new
 * name. */
HOOK hip_result hipGetProcAddress(const char *name, void **address, int version, uint64_t flags,
                                  unsigned *status)
{
    static const struct {
        const char *name;
        void (*hook)(void);
    } rows[] = {
#define X(row, since, mode, symbol, parameters, arguments) {#row, (void (*)(void))symbol},
        RUN_HOOK_LIST(X)
#undef X
    };
    hip_result code = PASS(hipGetProcAddress, (name, address, version, flags, status));
    for (size_t i = 0;
         !code && !shim_depth && name && address && *address && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            memcpy(address, &rows[i].hook, sizeof *address);
    return code;
}
