/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A libcuda.so.1 for the tests of `tarn run`: two devices without anything behind them, every
 * function that the shim hooks or asks, and a resolver that tells all prototypes of CUDA 13.5
 * apart. What a row has no function for is answered with an address of its own, so that a hook that
 * is given out for another prototype shows.
 *
 * FAKE_DRIVER_SWAPPED: the devices have each other's UUID, as if CUDA_VISIBLE_DEVICES had turned
 * their order. FAKE_DRIVER_UUID: what every byte of the first device's UUID is; one more is the
 * second's. FAKE_DRIVER_APART: threads have addresses of their own, which cost next to nothing and
 * are not counted; for a benchmark. FAKE_DRIVER_OLD: of CUDA 13.0, all of whose captures the shim
 * sees begin, and whose resolver knows no newer prototypes. FAKE_DRIVER_TOTAL: bytes of each
 * device. FAKE_DRIVER_NEWER: the resolver knows a cuMemAlloc of CUDA 14. FAKE_DRIVER_LOG: a file to
 * which every name that is asked for is added. FAKE_DRIVER_KEEPS: pools keep what is freed until a
 * wait. FAKE_DRIVER_FORGETS: their memory goes with a primary context. */
#include "fake_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PITCH = 512, OLD = 13000 };

static bool are_apart;
struct fake fake = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

#define OWN _Thread_local __attribute__((tls_model("initial-exec")))
static OWN cu_context current;
static OWN cu_context pushed[8];
static OWN unsigned pushes;
static char contexts[DEVICES + 1], markers[8192]; /* the last is of device 0, and not its primary
                                                     one */

static uint64_t total(void)
{
    const char *text = getenv("FAKE_DRIVER_TOTAL");
    return text ? strtoull(text, NULL, 10) : UINT64_C(1) << 30;
}

int fake_device_of(cu_context context)
{
    return context == (cu_context)&contexts[1]                                                ? 1
           : context == (cu_context)&contexts[0] || context == (cu_context)&contexts[DEVICES] ? 0
                                                                                              : -1;
}

bool fake_has_context(void)
{
    return fake_device_of(current) >= 0;
}

cu_context fake_context(void)
{
    return current;
}

cu_context fake_primary(int device)
{
    return (cu_context)&contexts[device];
}

cu_context cuFakeOtherContext(void)
{
    return (cu_context)&contexts[DEVICES];
}

static OWN unsigned calls;
void fake_called(void)
{
    calls++;
}

unsigned cuFakeCalls(void)
{
    return calls;
}

unsigned cuFakeWaits(void)
{
    return atomic_load_explicit(&fake.waits, memory_order_relaxed);
}

unsigned cuFakeLive(void)
{
    unsigned live = 0;
    pthread_mutex_lock(&fake.lock);
    for (uint32_t i = 1; i <= fake.used; i++)
        live += fake.slots[i].size != 0;
    pthread_mutex_unlock(&fake.lock);
    return live;
}

cu_result fake_take(int device, uint64_t size, bool of_context, uint64_t *key)
{
    static uint64_t most;
    cu_result code = CU_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake.lock);
    most = most ? most : total();
    if (size <= most && fake.bytes[device] + size <= most &&
        (fake.free_count || fake.used + 1 < SLOTS)) {
        uint32_t at = fake.free_count ? fake.free[--fake.free_count] : ++fake.used;
        fake.slots[at] = (struct slot){.size = size,
                                       .device = device,
                                       .of_context = of_context,
                                       .references = 1,
                                       .id = ++fake.ids,
                                       .context = of_context ? current : NULL};
        fake.bytes[device] += size;
        *key = UINT64_C(0x700000000000) + ((uint64_t)at << 28);
        code = CU_OK;
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

static void drop_locked(uint32_t at)
{
    if (!fake.slots[at].pool)
        fake.bytes[fake.slots[at].device] -= fake.slots[at].size;
    fake.slots[at].size = 0;
    fake.free[fake.free_count++] = at;
}

cu_result fake_give(uint64_t key)
{
    uint64_t at = (key - UINT64_C(0x700000000000)) >> 28;
    cu_result code = CU_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    if (key >= UINT64_C(0x700000000000) && at < SLOTS && key << 36 == 0 && fake.slots[at].size) {
        if (!--fake.slots[at].references) {
            if (fake.slots[at].pool)
                fake_pool_drop(&fake.slots[at]);
            drop_locked((uint32_t)at);
        }
        code = CU_OK;
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

/* Addresses of one thread, the last that it gave back first. */
static _Thread_local struct {
    cu_address free[128];
    unsigned count;
    cu_address next;
} apart;

__attribute__((constructor)) static void read_environment(void)
{
    are_apart = getenv("FAKE_DRIVER_APART");
}

static cu_result alloc_apart(cu_address *address)
{
    static _Atomic uint64_t threads;
    if (!apart.next)
        apart.next = UINT64_C(0x500000000000) + (atomic_fetch_add(&threads, 1) << 40);
    *address = apart.count ? apart.free[--apart.count] : (apart.next += 2 << 20);
    return CU_OK;
}

cu_result fake_alloc(cu_address *address, uint64_t size)
{
    uint64_t key;
    int device = fake_device_of(current);
    if (!address || !size)
        return CU_INVALID_VALUE;
    if (are_apart)
        return alloc_apart(address);
    if (device < 0)
        return CU_INVALID_CONTEXT;
    if (fake_fault())
        return fake_fault();
    if (fake_fails())
        return CU_OUT_OF_MEMORY;
    cu_result code = fake_take(device, size, true, &key);
    if (!code)
        *address = key;
    return code;
}

struct slot *fake_slot_at(cu_address address, cu_address *base)
{
    uint64_t at = (address - UINT64_C(0x700000000000)) >> 28;
    if (address < UINT64_C(0x700000000000) || at >= SLOTS)
        return NULL;
    *base = UINT64_C(0x700000000000) + (at << 28);
    return address - *base < fake.slots[at].size ? &fake.slots[at] : NULL;
}

bool fake_look(cu_address address, cu_address *base, struct slot *copy)
{
    pthread_mutex_lock(&fake.lock);
    const struct slot *slot = fake_slot_at(address, base);
    if (slot)
        *copy = *slot;
    pthread_mutex_unlock(&fake.lock);
    return slot;
}

/* Devices and contexts ------------------------------------------------------------------------- */

cu_result cuInit(unsigned flags)
{
    fake.initialized = !flags;
    return flags ? CU_INVALID_VALUE : CU_OK;
}

cu_result cuDriverGetVersion(int *version)
{
    *version = are_apart || getenv("FAKE_DRIVER_OLD") ? OLD : 13050;
    return CU_OK;
}

cu_result cuDeviceGetCount(int *count)
{
    *count = DEVICES;
    return fake.initialized ? CU_OK : CU_NOT_INITIALIZED;
}

cu_result cuDeviceGetName(char *name, int size, cu_device device)
{
    snprintf(name, (size_t)size, "fake device %d", device);
    return CU_OK;
}

cu_result cuDeviceGetUuid_v2(struct cu_uuid *uuid, cu_device device)
{
    const char *first = getenv("FAKE_DRIVER_UUID");
    int byte =
        first ? atoi(first) + device : 0xa0 + (getenv("FAKE_DRIVER_SWAPPED") ? 1 - device : device);
    memset(uuid->bytes, byte, sizeof uuid->bytes);
    return CU_OK;
}

cu_result cuDeviceGetUuid(struct cu_uuid *uuid, cu_device device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

cu_result cuDeviceGetPCIBusId(char *address, int size, cu_device device)
{
    snprintf(address, (size_t)size, "0000:00:%02x.0", device);
    return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    if (!bytes || device < 0 || device >= DEVICES)
        return CU_INVALID_VALUE;
    *bytes = total();
    return CU_OK;
}

cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    int device = fake_device_of(current);
    if (device < 0)
        return CU_INVALID_CONTEXT;
    if (free_bytes)
        *free_bytes = total() - atomic_load_explicit(&fake.bytes[device], memory_order_relaxed);
    if (total_bytes)
        *total_bytes = total();
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
    if (device < 0 || device >= DEVICES)
        return CU_INVALID_DEVICE;
    atomic_fetch_add(&fake.retained[device], 1);
    *context = (cu_context)&contexts[device];
    return CU_OK;
}

static void context_end(cu_context context)
{
    pthread_mutex_lock(&fake.lock);
    for (uint32_t i = 1; i <= fake.used; i++)
        if (fake.slots[i].size && fake.slots[i].context == context)
            drop_locked(i);
    pthread_mutex_unlock(&fake.lock);
    cuFakeFault(CU_OK);
    if (getenv("FAKE_DRIVER_FORGETS"))
        fake_pools_end();
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    if (device < 0 || device >= DEVICES || !fake.retained[device])
        return CU_INVALID_CONTEXT;
    if (!--fake.retained[device])
        context_end((cu_context)&contexts[device]);
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRelease(cu_device device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

cu_result cuDevicePrimaryCtxReset_v2(cu_device device)
{
    context_end((cu_context)&contexts[device]);
    return CU_OK;
}

cu_result cuDevicePrimaryCtxReset(cu_device device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

cu_result cuDevicePrimaryCtxGetState(cu_device device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = fake.retained[device] > 0;
    return CU_OK;
}

cu_result cuCtxDestroy(cu_context context)
{
    if (context != (cu_context)&contexts[DEVICES])
        return fake_device_of(context) < 0 ? CU_INVALID_CONTEXT : CU_OK;
    context_end(context);
    return CU_OK;
}

cu_result cuCtxDestroy_v2(cu_context context)
{
    return cuCtxDestroy(context);
}

cu_result cuCtxGetCurrent(cu_context *context)
{
    fake_called();
    *context = current;
    return CU_OK;
}

cu_result cuCtxSetCurrent(cu_context context)
{
    current = context;
    return CU_OK;
}

cu_result cuCtxGetDevice(cu_device *device)
{
    *device = fake_device_of(current);
    return *device < 0 ? CU_INVALID_CONTEXT : CU_OK;
}

/* Memory --------------------------------------------------------------------------------------- */

cu_result cuMemAlloc_v2(cu_address *address, size_t size)
{
    fake_called();
    cu_result code = are_apart ? CU_OK : fake_forbidden();
    return code ? code : fake_alloc(address, size);
}

/* By way of what goes by the name of another export, as a library that was not linked symbolically
 * would: the shim's. */
cu_result cuMemAllocPitch_v2(cu_address *address, size_t *pitch, size_t width, size_t height,
                             unsigned element)
{
    cu_result (*by_name)(cu_address *, size_t);
    void *found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    (void)element;
    if (!pitch || !found)
        return CU_INVALID_VALUE;
    memcpy(&by_name, &found, sizeof by_name);
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    return by_name(address, *pitch * height);
}

cu_result cuMemAllocManaged(cu_address *address, size_t size, unsigned flags)
{
    (void)flags;
    return fake_alloc(address, size);
}

cu_result cuMemFree_v2(cu_address address)
{
    if (are_apart && address && apart.count < sizeof apart.free / sizeof *apart.free) {
        apart.free[apart.count++] = address;
        return CU_OK;
    }
    if (are_apart || !address)
        return CU_OK;
    fake_called();
    cu_result code = fake_forbidden(); /* a thread without a context may free: seen on an H200,
                                          driver 580.159 */
    if (code || (code = fake_fault()) || fake_fails())
        return code ? code : CU_LAUNCH_FAILED;
    cu_address base;
    struct slot slot;
    if (!fake_look(address, &base, &slot) || !slot.pool)
        atomic_fetch_add_explicit(&fake.waits, 1, memory_order_relaxed);
    else if (fake_is_busy() && !slot.is_safe)
        atomic_fetch_add(&fake.disorder, 1);
    return fake_pool_lose(address);
}

cu_result cuMemGetAddressRange_v2(cu_address *base, size_t *size, cu_address address)
{
    cu_address start;
    struct slot slot;
    if (!fake_look(address, &start, &slot))
        return CU_NOT_FOUND;
    if (base)
        *base = start;
    if (size)
        *size = slot.size;
    return CU_OK;
}

/* Those of memory of a device that this driver tells. */
static cu_result attribute_of(void *data, unsigned attribute, cu_address address)
{
    cu_address base;
    struct slot slot;
    uint64_t value = 0;
    size_t size = sizeof value;
    if (!data || !fake_look(address, &base, &slot))
        return CU_INVALID_VALUE;
    switch (attribute) {
    case 1:
        value = (uintptr_t)slot.context;
        break;
    case 2:
        value = 2, size = 4;
        break;
    case 3:
        value = address;
        break;
    case 5:
        value = 7;
        break;
    case 6:
        value = slot.synced, size = 4;
        break;
    case 7:
        value = slot.id;
        break;
    case 8:
        size = 4;
        break;
    case 9:
        value = (unsigned)slot.device, size = 4;
        break;
    case 10:
        value = slot.of_context, size = 4;
        break;
    case 11:
        value = base;
        break;
    case 12:
        value = slot.size;
        break;
    case 13:
        value = 1, size = 4;
        break;
    case 14:
        break;
    case 17:
        value = slot.pool;
        break;
    case 18:
        value = slot.size;
        break;
    case 19:
        value = base;
        break;
    case 20:
        value = slot.id + 1000;
        break;
    default:
        return CU_INVALID_VALUE;
    }
    memcpy(data, &value, size);
    return CU_OK;
}

cu_result cuPointerGetAttribute(void *data, unsigned attribute, cu_address address)
{
    return attribute_of(data, attribute, address);
}

/* What is unknown is 0. */
cu_result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data,
                                 cu_address address)
{
    for (unsigned i = 0; i < count; i++)
        if (attribute_of(data[i], attributes[i], address))
            memset(data[i], 0, 4);
    return CU_OK;
}

cu_result cuPointerSetAttribute(const void *value, unsigned attribute, cu_address address)
{
    cu_address base;
    if (!value || attribute != 6)
        return CU_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    struct slot *slot = fake_slot_at(address, &base);
    if (slot)
        slot->synced = *(const unsigned *)value;
    pthread_mutex_unlock(&fake.lock);
    return slot ? CU_OK : CU_INVALID_VALUE;
}

/* The driver looks at the addresses of what it is to write itself. */
cu_result cuMemsetD8_v2(cu_address address, unsigned char value, size_t count)
{
    cu_address base;
    struct slot slot;
    (void)value;
    return fake_look(address, &base, &slot) && address - base + count <= slot.size
               ? CU_OK
               : CU_INVALID_VALUE;
}

cu_result cuIpcGetMemHandle(struct cu_ipc *handle, cu_address address)
{
    cu_address base;
    struct slot slot;
    if (!handle || !fake_look(address, &base, &slot) || !slot.of_context)
        return CU_INVALID_VALUE;
    memcpy(handle->reserved, &base, sizeof base);
    return CU_OK;
}

cu_result cuIpcGetEventHandle(struct cu_ipc_event *handle, cu_event event)
{
    return handle && event ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuIpcOpenEventHandle(cu_event *event, struct cu_ipc_event handle)
{
    (void)handle;
    return event ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemGetHandleForAddressRange(void *handle, cu_address address, size_t size,
                                        unsigned kind, unsigned long long flags)
{
    cu_address base;
    struct slot slot;
    (void)kind, (void)flags;
    if (!handle || !fake_look(address, &base, &slot) || address - base + size > slot.size)
        return CU_INVALID_VALUE;
    *(int *)handle = 1;
    return CU_OK;
}

cu_result cuMemExportToShareableHandle(void *handle, cu_piece piece, cu_handle_kind kind,
                                       unsigned long long flags)
{
    (void)piece, (void)kind, (void)flags;
    return handle ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemImportFromShareableHandle(cu_piece *piece, void *handle, cu_handle_kind kind)
{
    uint64_t key;
    (void)handle, (void)kind;
    cu_result code = piece ? fake_take(0, 2 << 20, false, &key) : CU_INVALID_VALUE;
    if (!code)
        *piece = key;
    return code;
}

cu_result cuMemPoolExportToShareableHandle(void *handle, cu_pool pool, cu_handle_kind kind,
                                           unsigned long long flags)
{
    (void)pool, (void)kind, (void)flags;
    return handle ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemPoolImportFromShareableHandle(cu_pool *pool, void *handle, cu_handle_kind kind,
                                             unsigned long long flags)
{
    (void)handle, (void)kind, (void)flags;
    return pool ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuCtxPushCurrent_v2(cu_context context)
{
    fake_called();
    if (fake_fails() || pushes == 8)
        return CU_INVALID_VALUE;
    pushed[pushes++] = current;
    current = context;
    return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *context)
{
    fake_called();
    if (!pushes)
        return CU_INVALID_CONTEXT;
    *context = current;
    current = pushed[--pushes];
    return CU_OK;
}

/* The resolver --------------------------------------------------------------------------------- */

/* Not hooked, and found only by falling through the shim. */
cu_result cuFakeOnly(void)
{
    return 77;
}

cu_result cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return CU_NOT_FOUND;
}

struct row {
    const char *name;
    int version;
    unsigned modes;
};

static const struct row rows[] = {
#define X(name, version, mode) {#name, version, mode},
#include TRIPLES
#undef X
};

static const struct {
    struct row row;
    void (*function)(void);
} functions[] = {
#define X(name, version, mode, symbol, parameters, arguments) \
    {{#name, version, mode}, (void (*)(void))symbol},
    RUN_HOOK_LIST(X) RUN_ASK_LIST(X)
#undef X
        {{"cuCtxSetCurrent", 4000, RUN_ANY}, (void (*)(void))cuCtxSetCurrent},
    {{"cuGetExportTable", 3000, RUN_ANY}, (void (*)(void))cuGetExportTable},
};

static void note(const char *name, int version, uint64_t flags)
{
    const char *path = getenv("FAKE_DRIVER_LOG");
    FILE *out = path ? fopen(path, "a") : NULL;
    if (!out)
        return;
    fprintf(out, "%s %d %llu\n", name, version, (unsigned long long)flags);
    fclose(out);
}

static bool fits(const struct row *row, const char *name, int version, unsigned mode)
{
    return (row->modes & mode) && row->version <= version && strcmp(row->name, name) == 0;
}

cu_result cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags,
                              cu_lookup_status *status)
{
    unsigned mode = flags == RUN_PER_THREAD ? RUN_PER_THREAD : RUN_LEGACY;
    size_t best = sizeof rows / sizeof *rows;
    if (!name || !address || flags > RUN_PER_THREAD)
        return CU_INVALID_VALUE;
    note(name, version, flags);
    version = version > OLD && getenv("FAKE_DRIVER_OLD") ? OLD : version;
    *address = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fits(&rows[i], name, version, mode) &&
            (best == sizeof rows / sizeof *rows || rows[i].version > rows[best].version))
            best = i;
    if (best < sizeof rows / sizeof *rows) {
        *address = &markers[best];
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
            if (fits(&functions[i].row, name, version, mode) &&
                functions[i].row.version == rows[best].version)
                memcpy(address, &functions[i].function, sizeof *address);
    }
    if (getenv("FAKE_DRIVER_NEWER") && strcmp(name, "cuMemAlloc") == 0 && version >= 14000)
        *address = &markers[sizeof markers - 1];
    if (status)
        *status = *address ? CU_LOOKUP_FOUND : CU_LOOKUP_NO_SYMBOL;
    return *address || status ? CU_OK : CU_NOT_FOUND;
}

cu_result cuGetProcAddress(const char *name, void **address, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, address, version, flags, NULL);
}
