/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A libcuda.so.1 for the tests of `tarn run`: two devices without anything behind them, every function that the shim hooks or asks, and a
 * resolver that tells all prototypes of the toolkit's header apart. What a row has no function for is answered with an address of its own,
 * so that a hook that is given out for another prototype shows.
 *
 * FAKE_DRIVER_SWAPPED: the devices have each other's UUID, as if CUDA_VISIBLE_DEVICES had turned their order.
 * FAKE_DRIVER_APART: threads have addresses of their own, which cost next to nothing and are not counted; for a benchmark.
 * FAKE_DRIVER_TOTAL: bytes of each device. FAKE_DRIVER_NEWER: the resolver knows a cuMemAlloc of CUDA 14. FAKE_DRIVER_LOG: a file to which
 * every name that is asked for is added. FAKE_DRIVER_KEEPS: pools keep what is freed until a wait. FAKE_DRIVER_FORGETS: their memory goes with a
 * primary context. */
#include "fake_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PITCH = 512 };

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local cu_context current;
static _Thread_local cu_context pushed[8];
static _Thread_local unsigned pushes;
static _Thread_local cu_capture_mode own_mode;    /* 2: relaxed */
static char contexts[DEVICES + 1], markers[8192]; /* the last is of device 0, and not its primary one */

bool fake_fails(void)
{
    unsigned left = atomic_load(&fake.fail);
    while (left && !atomic_compare_exchange_weak(&fake.fail, &left, left - 1))
        ;
    fake.failed += left == 1;
    return left == 1;
}

/* What a capture in the global mode forbids it invalidates. */
static cu_result forbidden(void)
{
    cu_result code = CU_OK;
    for (size_t i = 0; own_mode != 2 && i < sizeof fake.captures / sizeof *fake.captures; i++)
        if (fake.captures[i].stream && fake.captures[i].mode == 0) {
            fake.captures[i].invalid = true;
            code = CU_CAPTURE_UNSUPPORTED;
        }
    return code;
}

static uint64_t total(void)
{
    const char *text = getenv("FAKE_DRIVER_TOTAL");
    return text ? strtoull(text, NULL, 10) : UINT64_C(1) << 30;
}

static int device_of(cu_context context)
{
    return context == (cu_context)&contexts[1]                                                ? 1
           : context == (cu_context)&contexts[0] || context == (cu_context)&contexts[DEVICES] ? 0
                                                                                              : -1;
}

bool fake_has_context(void)
{
    return device_of(current) >= 0;
}

cu_result fake_take(int device, uint64_t size, bool of_context, uint64_t *key)
{
    static uint64_t most;
    cu_result code = CU_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake.lock);
    most = most ? most : total();
    if (fake.bytes[device] + size <= most && (fake.free_count || fake.used + 1 < SLOTS)) {
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
                fake_pool_drop(&fake.slots[at], true);
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
static bool are_apart;

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
    int device = device_of(current);
    if (!address || !size)
        return CU_INVALID_VALUE;
    if (are_apart)
        return alloc_apart(address);
    if (device < 0)
        return CU_INVALID_CONTEXT;
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

/* Devices and contexts --------------------------------------------------------------------------------------------- */

cu_result cuInit(unsigned flags)
{
    fake.initialized = !flags;
    return flags ? CU_INVALID_VALUE : CU_OK;
}

cu_result cuDriverGetVersion(int *version)
{
    *version = 13000;
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
    memset(uuid->bytes, 0xa0 + (getenv("FAKE_DRIVER_SWAPPED") ? 1 - device : device), sizeof uuid->bytes);
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
    int device = device_of(current);
    if (device < 0)
        return CU_INVALID_CONTEXT;
    if (free_bytes)
        *free_bytes = total() - fake.bytes[device];
    if (total_bytes)
        *total_bytes = total();
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
    if (device < 0 || device >= DEVICES)
        return CU_INVALID_DEVICE;
    fake.retained[device]++;
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
        return device_of(context) < 0 ? CU_INVALID_CONTEXT : CU_OK;
    context_end(context);
    return CU_OK;
}

cu_result cuCtxDestroy_v2(cu_context context)
{
    return cuCtxDestroy(context);
}

cu_result cuCtxGetCurrent(cu_context *context)
{
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
    *device = device_of(current);
    return *device < 0 ? CU_INVALID_CONTEXT : CU_OK;
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

cu_result cuMemAlloc_v2(cu_address *address, size_t size)
{
    cu_result code = are_apart ? CU_OK : forbidden();
    return code ? code : fake_alloc(address, size);
}

/* By way of what goes by the name of another export, as a library that was not linked symbolically would: the shim's. */
cu_result cuMemAllocPitch_v2(cu_address *address, size_t *pitch, size_t width, size_t height, unsigned element)
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
    cu_result code = forbidden(); /* a thread without a context may free: seen on an H200, driver 580.159 */
    if (code || fake_fails())
        return code ? code : CU_LAUNCH_FAILED;
    cu_address base;
    struct slot *slot = fake_slot_at(address, &base);
    if (!slot || !slot->pool)
        fake.waits++;
    else if (fake_is_busy() && !slot->is_safe)
        fake.disorder++;
    return fake_give(address);
}

cu_result cuMemGetAddressRange_v2(cu_address *base, size_t *size, cu_address address)
{
    cu_address start;
    const struct slot *slot = fake_slot_at(address, &start);
    if (!slot)
        return CU_NOT_FOUND;
    if (base)
        *base = start;
    if (size)
        *size = slot->size;
    return CU_OK;
}

/* Those of memory of a device that this driver tells. */
static cu_result attribute_of(void *data, unsigned attribute, cu_address address)
{
    cu_address base;
    const struct slot *slot = fake_slot_at(address, &base);
    uint64_t value = 0;
    size_t size = sizeof value;
    if (!slot || !data)
        return CU_INVALID_VALUE;
    switch (attribute) {
    case 1:
        value = (uintptr_t)slot->context;
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
        value = slot->synced, size = 4;
        break;
    case 7:
        value = slot->id;
        break;
    case 8:
        size = 4;
        break;
    case 9:
        value = (unsigned)slot->device, size = 4;
        break;
    case 10:
        value = slot->of_context, size = 4;
        break;
    case 11:
        value = base;
        break;
    case 12:
        value = slot->size;
        break;
    case 13:
        value = 1, size = 4;
        break;
    case 14:
        break;
    case 17:
        value = slot->pool;
        break;
    case 18:
        value = slot->size;
        break;
    case 19:
        value = base;
        break;
    case 20:
        value = slot->id + 1000;
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
cu_result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data, cu_address address)
{
    for (unsigned i = 0; i < count; i++)
        if (attribute_of(data[i], attributes[i], address))
            memset(data[i], 0, 4);
    return CU_OK;
}

cu_result cuPointerSetAttribute(const void *value, unsigned attribute, cu_address address)
{
    cu_address base;
    struct slot *slot = fake_slot_at(address, &base);
    if (!slot || !value || attribute != 6)
        return CU_INVALID_VALUE;
    slot->synced = *(const unsigned *)value;
    return CU_OK;
}

cu_result cuIpcGetMemHandle(struct cu_ipc *handle, cu_address address)
{
    cu_address base;
    const struct slot *slot = fake_slot_at(address, &base);
    if (!slot || !slot->of_context || !handle)
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

cu_result cuMemGetHandleForAddressRange(void *handle, cu_address address, size_t size, unsigned kind,
                                        unsigned long long flags)
{
    cu_address base;
    const struct slot *slot = fake_slot_at(address, &base);
    (void)kind, (void)flags;
    if (!slot || !handle || address - base + size > slot->size)
        return CU_INVALID_VALUE;
    *(int *)handle = 1;
    return CU_OK;
}

cu_result cuMemExportToShareableHandle(void *handle, cu_piece piece, cu_handle_kind kind, unsigned long long flags)
{
    (void)piece, (void)kind, (void)flags;
    return handle ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemImportFromShareableHandle(cu_piece *piece, void *handle, cu_handle_kind kind)
{
    (void)handle, (void)kind;
    return piece ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemPoolExportToShareableHandle(void *handle, cu_pool pool, cu_handle_kind kind, unsigned long long flags)
{
    (void)pool, (void)kind, (void)flags;
    return handle ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMemPoolImportFromShareableHandle(cu_pool *pool, void *handle, cu_handle_kind kind, unsigned long long flags)
{
    (void)handle, (void)kind, (void)flags;
    return pool ? CU_OK : CU_INVALID_VALUE;
}

/* Work, and captures of it ------------------------------------------------------------------------------------------ */

cu_result cuCtxSynchronize(void)
{
    cu_result code = device_of(current) < 0 ? CU_INVALID_CONTEXT : forbidden();
    if (code || fake_fails())
        return code ? code : CU_LAUNCH_FAILED;
    fake.waits++;
    if (fake_is_busy())
        atomic_store(&fake.finished, atomic_load(&fake.recorded));
    fake_ended(NULL);
    fake_wait();
    return CU_OK;
}

cu_result cuCtxSynchronize_v2(cu_context context)
{
    return device_of(context) < 0 ? CU_INVALID_CONTEXT : cuCtxSynchronize();
}

cu_result cuCtxPushCurrent_v2(cu_context context)
{
    if (fake_fails() || pushes == 8)
        return CU_INVALID_VALUE;
    pushed[pushes++] = current;
    current = context;
    return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *context)
{
    if (!pushes)
        return CU_INVALID_CONTEXT;
    *context = current;
    current = pushed[--pushes];
    return CU_OK;
}

/* How many events were recorded before it, and 1. */
struct event {
    uint64_t number;
    cu_stream stream;
};

static bool has_ended(const struct event *event)
{
    bool ended = event->number <= atomic_load(&fake.finished);
    for (size_t i = 0; i < sizeof fake.waited / sizeof *fake.waited; i++)
        ended = ended || (fake.waited[i].stream == event->stream && event->number <= fake.waited[i].number);
    return ended;
}

/* A wait for one stream ends its work. */
static void wait_for(cu_stream stream)
{
    size_t at = 0;
    pthread_mutex_lock(&fake.lock);
    while (at + 1 < sizeof fake.waited / sizeof *fake.waited && fake.waited[at].stream &&
           fake.waited[at].stream != stream)
        at++;
    fake.waited[at].stream = stream;
    fake.waited[at].number = atomic_load(&fake.recorded);
    pthread_mutex_unlock(&fake.lock);
    fake_ended(stream);
    fake_wait();
}

cu_result cuEventCreate(cu_event *event, unsigned flags)
{
    (void)flags;
    if (fake_fails())
        return CU_OUT_OF_MEMORY;
    *event = calloc(1, sizeof(struct event));
    return *event ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuEventRecord(cu_event event, cu_stream stream)
{
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    if (fake_fails())
        return CU_LAUNCH_FAILED;
    struct event *own = (void *)event;
    own->stream = stream ? stream : (cu_stream)1;
    own->number = atomic_fetch_add(&fake.recorded, 1) + 1;
    return CU_OK;
}

cu_result cuEventRecord_ptsz(cu_event event, cu_stream stream)
{
    return cuEventRecord(event, stream ? stream : (cu_stream)2);
}

cu_result cuEventQuery(cu_event event)
{
    cu_result code = forbidden();
    if (code)
        return code;
    return has_ended((const struct event *)(const void *)event) ? CU_OK : CU_NOT_READY;
}

cu_result cuEventDestroy_v2(cu_event event)
{
    free(event);
    return CU_OK;
}

cu_result cuStreamBeginCapture_v2(cu_stream stream, cu_capture_mode mode)
{
    for (size_t i = 0; stream && i < sizeof fake.captures / sizeof *fake.captures; i++)
        if (!fake.captures[i].stream) {
            fake.captures[i].stream = stream;
            fake.captures[i].mode = mode;
            fake.captures[i].invalid = false;
            return CU_OK;
        }
    return CU_CAPTURE_UNSUPPORTED;
}

cu_result cuStreamBeginCapture(cu_stream stream)
{
    return cuStreamBeginCapture_v2(stream, 0);
}

cu_result cuStreamBeginCapture_ptsz(cu_stream stream)
{
    return cuStreamBeginCapture_v2(stream, 0);
}

cu_result cuStreamBeginCapture_v2_ptsz(cu_stream stream, cu_capture_mode mode)
{
    return cuStreamBeginCapture_v2(stream, mode);
}

cu_result cuStreamBeginCaptureToGraph(cu_stream stream, cu_graph graph, const cu_graph_node *before,
                                      const struct cu_edge *edges, size_t count, cu_capture_mode mode)
{
    (void)graph, (void)before, (void)edges, (void)count;
    return cuStreamBeginCapture_v2(stream, mode);
}

cu_result cuStreamBeginCaptureToGraph_ptsz(cu_stream stream, cu_graph graph, const cu_graph_node *before,
                                           const struct cu_edge *edges, size_t count, cu_capture_mode mode)
{
    return cuStreamBeginCaptureToGraph(stream, graph, before, edges, count, mode);
}

cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph)
{
    for (size_t i = 0; stream && i < sizeof fake.captures / sizeof *fake.captures; i++)
        if (fake.captures[i].stream == stream) {
            fake.captures[i].stream = NULL;
            *graph = NULL;
            return fake.captures[i].invalid ? 901 : CU_OK;
        }
    return 401; /* CUDA_ERROR_ILLEGAL_STATE */
}

cu_result cuStreamEndCapture_ptsz(cu_stream stream, cu_graph *graph)
{
    return cuStreamEndCapture(stream, graph);
}

unsigned cuFakeWaits(void)
{
    return fake.waits;
}

unsigned cuFakeLive(void)
{
    unsigned live = 0;
    for (uint32_t i = 1; i <= fake.used; i++)
        live += fake.slots[i].size != 0;
    return live;
}

void cuFakeFinish(void)
{
    atomic_store(&fake.finished, UINT64_MAX);
    fake_ended(NULL);
}

void cuFakeWork(void)
{
    atomic_store(&fake.finished, atomic_load(&fake.recorded));
}

bool fake_is_busy(void)
{
    return atomic_load(&fake.finished) != UINT64_MAX;
}

bool fake_is_stream(cu_stream stream)
{
    for (size_t i = 0; stream && i < sizeof fake.gone / sizeof *fake.gone; i++)
        if (fake.gone[i] == stream)
            return false;
    return (uintptr_t)stream < 0x10000;
}

void cuFakeStream(cu_stream stream)
{
    for (size_t i = 0; i < sizeof fake.gone / sizeof *fake.gone; i++)
        if (fake.gone[i] == stream)
            fake.gone[i] = NULL;
}

cu_result cuStreamDestroy_v2(cu_stream stream)
{
    if (!fake_is_stream(stream) || (uintptr_t)stream < 3)
        return CU_INVALID_HANDLE;
    for (size_t i = 0; i < sizeof fake.gone / sizeof *fake.gone; i++)
        if (!fake.gone[i]) {
            fake.gone[i] = stream;
            break;
        }
    return CU_OK;
}

cu_result cuStreamDestroy(cu_stream stream)
{
    return cuStreamDestroy_v2(stream);
}

/* Those whose number begins so are the other context's. */
cu_result cuStreamGetCtx(cu_stream stream, cu_context *context)
{
    bool other = (uintptr_t)stream >> 8 == 0x90;
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    *context = other ? cuFakeOtherContext() : current;
    return CU_OK;
}

cu_result cuStreamQuery(cu_stream stream)
{
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    cu_result code = forbidden();
    return code ? code : fake_is_busy() ? CU_NOT_READY : CU_OK;
}

cu_result cuStreamSynchronize(cu_stream stream)
{
    if (!fake_is_stream(stream))
        return CU_INVALID_HANDLE;
    wait_for(stream ? stream : (cu_stream)1);
    return CU_OK;
}

cu_result cuStreamSynchronize_ptsz(cu_stream stream)
{
    return cuStreamSynchronize(stream ? stream : (cu_stream)2);
}

cu_result cuEventSynchronize(cu_event event)
{
    if (!event)
        return CU_INVALID_HANDLE;
    fake_wait();
    return CU_OK;
}

cu_result cuThreadExchangeStreamCaptureMode(cu_capture_mode *mode)
{
    cu_capture_mode before = own_mode;
    own_mode = *mode;
    *mode = before;
    return CU_OK;
}

void cuFakeFail(unsigned calls)
{
    atomic_store(&fake.fail, calls);
}

unsigned cuFakeFailed(void)
{
    return fake.failed;
}

cu_context cuFakeOtherContext(void)
{
    return (cu_context)&contexts[DEVICES];
}

/* The resolver ----------------------------------------------------------------------------------------------------- */

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
#include "fake_triples.h"
#undef X
};

static const struct {
    struct row row;
    void (*function)(void);
} functions[] = {
#define X(name, version, mode, symbol, parameters, arguments) {{#name, version, mode}, (void (*)(void))symbol},
    RUN_HOOK_LIST(X) RUN_ASK_LIST(X)
#undef X
        {{"cuDriverGetVersion", 2020, RUN_ANY}, (void (*)(void))cuDriverGetVersion},
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

cu_result cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, cu_lookup_status *status)
{
    unsigned mode = flags == RUN_PER_THREAD ? RUN_PER_THREAD : RUN_LEGACY;
    size_t best = sizeof rows / sizeof *rows;
    if (!name || !address || flags > RUN_PER_THREAD)
        return CU_INVALID_VALUE;
    note(name, version, flags);
    *address = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fits(&rows[i], name, version, mode) &&
            (best == sizeof rows / sizeof *rows || rows[i].version > rows[best].version))
            best = i;
    if (best < sizeof rows / sizeof *rows) {
        *address = &markers[best];
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
            if (fits(&functions[i].row, name, version, mode) && functions[i].row.version == rows[best].version)
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
