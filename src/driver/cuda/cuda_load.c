/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds libcuda.so.1, its entry points and its devices. Owns `cuda`, which is filled in when one
 * thread's find is chosen as the driver. Creates no context: a device that is not used stays
 * untouched. */
#include "base/machine.h"
#include "driver/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

struct cuda cuda;

/* ---- Codes ---- */

/* Codes after which the context is dead: every later call on it returns the same code. */
static bool is_sticky(cu_result code)
{
    switch (code) {
    case CU_ECC_UNCORRECTABLE:
    case CU_NVLINK_UNCORRECTABLE:
    case CU_CONTAINED:
    case CU_ILLEGAL_ADDRESS:
    case CU_LAUNCH_TIMEOUT:
    case CU_CONTEXT_IS_DESTROYED: /* the program reset the device: its memory is gone */
    case CU_ASSERT:
    case CU_TENSOR_MEMORY_LEAK:
    case CU_UNKNOWN:
        return true;
    default:
        return code >= CU_HARDWARE_STACK && code <= CU_LAUNCH_FAILED;
    }
}

tarn_status cuda_status(cu_result code)
{
    if (is_sticky(code))
        return TARN_ERROR_DEVICE_LOST;
    if (code >= CU_CAPTURE_UNSUPPORTED && code <= 909)
        return TARN_ERROR_CAPTURE;
    switch (code) {
    case CU_INVALID_VALUE:
    case CU_INVALID_HANDLE:
    case CU_HOST_REGISTERED:
    case CU_HOST_NOT_REGISTERED:
        return TARN_ERROR_INVALID_ARGUMENT;
    case CU_OUT_OF_MEMORY:
        return TARN_ERROR_OUT_OF_MEMORY;
    case CU_DEINITIALIZED:
        return TARN_ERROR_SHUTDOWN;
    case CU_STUB_LIBRARY:
    case CU_NO_DEVICE:
        return TARN_ERROR_NO_DRIVER;
    case CU_INVALID_DEVICE:
        return TARN_ERROR_INVALID_DEVICE;
    case CU_ILLEGAL_STATE: /* the stream captures already, or does not capture */
        return TARN_ERROR_CAPTURE;
    case CU_NOT_READY:
        return TARN_ERROR_NOT_READY;
    case CU_NOT_PERMITTED:
    case CU_NOT_SUPPORTED:
        return TARN_ERROR_NOT_SUPPORTED;
    default:
        return TARN_ERROR_DRIVER;
    }
}

static void say(const struct cuda_calls *call, char *text, size_t size, cu_result code)
{
    const char *name = NULL, *meaning = NULL;
    if (call->cuGetErrorName && call->cuGetErrorName(code, &name))
        name = NULL;
    if (call->cuGetErrorString && call->cuGetErrorString(code, &meaning))
        meaning = NULL;
    if (name && meaning)
        snprintf(text, size, "CUDA error %u (%s: %s)", code, name, meaning);
    else
        snprintf(text, size, "CUDA error %u%s%s%s", code, name ? " (" : "", name ? name : "",
                 name ? ")" : "");
}

void cuda_say(char *text, size_t size, cu_result code)
{
    say(&cuda.call, text, size, code);
}

/* ---- Entry points ---- */

/* The entry point of a name with the prototype of `version`. cuGetProcAddress speaks for the
 * driver, so its "no" is final. It is not asked for what is newer than the driver: that would be an
 * error, which compute-sanitizer reports. A driver without it is older than 11.3; then the exported
 * name tells the prototype. */
static void *find(const struct cuda *found, const char *name, int version, const char *symbol)
{
    void *address = NULL;
    const struct cuda_calls *call = &found->call;
    if (version > found->version && (call->cuGetProcAddress_v2 || call->cuGetProcAddress))
        return NULL;
    if (call->cuGetProcAddress_v2) {
        cu_lookup_status status = CU_LOOKUP_NO_SYMBOL;
        cu_result code = call->cuGetProcAddress_v2(name, &address, version, 0, &status);
        return code || status != CU_LOOKUP_FOUND ? NULL : address;
    }
    if (call->cuGetProcAddress)
        return call->cuGetProcAddress(name, &address, version, 0) ? NULL : address;
    return loader_symbol(&found->library, symbol);
}

/* A symbol that a test wants missing is missing by its exported name, however it would be found. */
static tarn_status find_all(struct cuda *found, char *why, size_t size)
{
#define X(name, version, symbol, needed, parameters) \
    {#name, version, #symbol, needed, &found->call.symbol},
    const struct {
        const char *name;
        int version;
        const char *symbol;
        bool needed;
        void *function;
    } calls[] = {CUDA_CALL_LIST(X)};
#undef X
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *address = NULL;
        if (!loader_is_missing(calls[i].symbol))
            address = find(found, calls[i].name, calls[i].version, calls[i].symbol);
        if (!address && calls[i].needed) {
            loader_say(why, size, "%s has no %s of CUDA %d.%d", loader_path(&found->library),
                       calls[i].name, calls[i].version / 1000, calls[i].version % 1000 / 10);
            return TARN_ERROR_NO_DRIVER;
        }
        loader_store(calls[i].function, address);
    }
    return TARN_OK;
}

static bool has_virtual_memory_calls(const struct cuda_calls *call)
{
    return call->cuMemAddressReserve && call->cuMemAddressFree && call->cuMemCreate &&
           call->cuMemRelease && call->cuMemMap && call->cuMemUnmap && call->cuMemSetAccess &&
           call->cuMemGetAllocationGranularity;
}

/* ---- Devices ---- */

/* If the driver is too old to know an attribute, the device lacks it. */
static cu_result ask(const struct cuda_calls *call, const struct cuda_device *device,
                     cu_device_attribute attribute, bool *has)
{
    int value = 0;
    cu_result code = call->cuDeviceGetAttribute(&value, attribute, device->handle);
    *has = code == CU_OK && value;
    return code == CU_INVALID_VALUE ? CU_OK : code;
}

/* The granularity that suits every kind of piece, and the one recommended for registration. */
static cu_result ask_granules(const struct cuda_calls *call, struct cuda_device *device)
{
    struct cu_allocation_properties properties = {
        .type = CU_ALLOCATION_PINNED,
        .handle_types = device->posix_fd ? CU_HANDLE_POSIX_FD : CU_HANDLE_NONE,
        .location = {.type = CU_LOCATION_DEVICE, .id = device->handle},
    };
    cu_result code =
        call->cuMemGetAllocationGranularity(&device->granule, &properties, CU_GRANULARITY_MINIMUM);
    if (!code) {
        properties.flags.rdma = device->rdma;
        code = call->cuMemGetAllocationGranularity(&device->recommended, &properties,
                                                   CU_GRANULARITY_RECOMMENDED);
    }
    /* No context is created to get the answer, which has been this on every device so far. */
    if (code == CU_INVALID_CONTEXT) {
        device->granule = device->recommended = (size_t)2 << 20;
        return CU_OK;
    }
    if (!code &&
        (!device->granule || !device->recommended || device->recommended % device->granule))
        return CU_INVALID_VALUE;
    return code;
}

/* The newer call returns a slice's own UUID; the older one that of the device. */
static bool is_slice(const struct cuda_calls *call, cu_device device)
{
    struct cu_uuid whole = {{0}}, part = {{0}};
    return call->cuDeviceGetUuid && call->cuDeviceGetUuid_v2 &&
           call->cuDeviceGetUuid(&whole, device) == CU_OK &&
           call->cuDeviceGetUuid_v2(&part, device) == CU_OK &&
           memcmp(&whole, &part, sizeof whole) != 0;
}

/* WSL2's driver may claim file descriptors and RDMA, and then fail with them
 * (NVIDIA/cuda-python#1045, pytorch/pytorch#192330). */
static cu_result device_init(const struct cuda *found, struct cuda_device *device, int ordinal)
{
    const struct cuda_calls *call = &found->call;
    *device = (struct cuda_device){0};
    cu_result code = call->cuDeviceGet(&device->handle, ordinal);
    if (!code)
        code = call->cuDeviceTotalMem_v2(&device->memory, device->handle);
    if (!code)
        code = ask(call, device, CU_HAS_POSIX_FD, &device->posix_fd);
    if (!code)
        code = ask(call, device, CU_IS_INTEGRATED, &device->integrated);
    if (!code)
        code = ask(call, device, CU_IS_COHERENT, &device->coherent);
    if (!code)
        code = ask(call, device, CU_IS_SHARED, &device->mps);
    if (!code)
        code = ask(call, device, CU_HAS_RDMA, &device->rdma);
    if (!code)
        code = ask(call, device, CU_HAS_HOST_PIECES, &device->host_pieces);
    if (call->cuDeviceGetAttribute(&device->host_node, CU_HOST_NUMA_NODE, device->handle) ||
        device->host_node < 0)
        device->host_node = 0; /* a system without NUMA nodes */
    if (!code)
        code = ask(call, device, CU_HAS_VIRTUAL_MEMORY, &device->virtual_memory);
    device->slice = is_slice(call, device->handle);
    device->virtual_memory = device->virtual_memory && has_virtual_memory_calls(call);
    device->posix_fd = device->posix_fd && !found->paged;
    device->rdma = device->rdma && !found->paged;
    device->posix_fd = device->posix_fd && device->virtual_memory &&
                       call->cuMemExportToShareableHandle && call->cuMemImportFromShareableHandle;
    if (!code && device->virtual_memory)
        code = ask_granules(call, device);
    return code;
}

static tarn_status refuse(const struct cuda *found, char *why, size_t size, const char *call,
                          cu_result code)
{
    char text[192];
    say(&found->call, text, sizeof text, code);
    if (code == CU_STUB_LIBRARY)
        loader_say(why, size, "%s is the CUDA toolkit's stub, not a driver (%s: %s)",
                   loader_path(&found->library), call, text);
    else
        loader_say(why, size, "%s: %s: %s", loader_path(&found->library), call, text);
    return TARN_ERROR_NO_DRIVER;
}

static tarn_status start(struct cuda *found, char *why, size_t size)
{
    struct cuda_calls *call = &found->call;
    const struct loaded *library = &found->library;
    loader_store(&call->cuInit, loader_symbol(library, "cuInit"));
    loader_store(&call->cuGetProcAddress, loader_symbol(library, "cuGetProcAddress"));
    loader_store(&call->cuGetProcAddress_v2, loader_symbol(library, "cuGetProcAddress_v2"));
    loader_store(&call->cuGetErrorName, loader_symbol(library, "cuGetErrorName"));
    loader_store(&call->cuGetErrorString, loader_symbol(library, "cuGetErrorString"));
    loader_store(&call->cuDriverGetVersion, loader_symbol(library, "cuDriverGetVersion"));
    if (!call->cuInit || !call->cuDriverGetVersion) {
        loader_say(why, size, "%s has no %s", loader_path(library),
                   call->cuInit ? "cuDriverGetVersion" : "cuInit");
        return TARN_ERROR_NO_DRIVER;
    }

    cu_result code = call->cuInit(0);
    if (code)
        return refuse(found, why, size, "cuInit", code);
    code = call->cuDriverGetVersion(&found->version);
    if (code)
        return refuse(found, why, size, "cuDriverGetVersion", code);
    tarn_status status = find_all(found, why, size);
    if (status)
        return status;
    int count = 0;
    code = call->cuDeviceGetCount(&count);
    if (!code && count <= 0)
        code = CU_NO_DEVICE;
    if (code)
        return refuse(found, why, size, "cuDeviceGetCount", code);
    if (count > TARN_MAX_DEVICES)
        count = TARN_MAX_DEVICES;
    found->paged = machine_is_wsl();
    for (int i = 0; i < count; i++) {
        code = device_init(found, &found->device[i], i);
        if (code)
            return refuse(found, why, size, "the properties of a device", code);
    }
    found->devices = count;
    return TARN_OK;
}

tarn_status cuda_probe(struct cuda *found, char *why, size_t size)
{
    static const char *const sonames[] = {"libcuda.so.1", NULL};
    char reason[512] = "";
    *found = (struct cuda){0};
    tarn_status status = loader_open(sonames, &found->library, reason, sizeof reason);
    status = status ? TARN_ERROR_NO_DRIVER : start(found, reason, sizeof reason);
    if (status)
        loader_say(why, size, "%s", reason);
    else
        loader_say(why, size, "%s, driver %d.%d, %d device%s", loader_path(&found->library),
                   found->version / 1000, found->version % 1000 / 10, found->devices,
                   found->devices == 1 ? "" : "s");
    return status;
}
