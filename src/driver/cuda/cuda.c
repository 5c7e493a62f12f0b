/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* CUDA's devices, memory, streams and events as entries of the driver table. Each is one vendor
 * call between cuda_enter() and cuda_leave(). Calls that a global capture of any thread forbids run
 * in relaxed mode: allocations, mappings, queries, waits. Calls that belong into a capture do not:
 * records, waits of streams, copies, host functions. */
#include "driver/cuda/cuda.h"
#include "base/status.h"
#include "base/thread/cancel.h"

#include <stdio.h>
#include <string.h>

/* ---- Devices ---- */

tarn_status cuda_device_count(int *count)
{
    *count = cuda.devices;
    return TARN_OK;
}

/* The real range can only be asked for in a context, and a device without one gets none for that.
 * Then it is 0 to -5, which every device since 2017 has; a stream of a priority outside the range
 * gets the nearest in it. */
static void priorities(int number, int *least, int *greatest)
{
    const struct cuda_device *device = &cuda.device[number];
    unsigned flags = 0;
    int active = 0, supported = 0, low = 0, high = 0;
    struct cuda_scope scope;
    *least = *greatest = 0;
    if (cuda.call.cuDeviceGetAttribute(&supported, CU_HAS_PRIORITIES, device->handle) || !supported)
        return;
    *greatest = -5;
    if (!cuda.call.cuCtxGetStreamPriorityRange ||
        cuda.call.cuDevicePrimaryCtxGetState(device->handle, &flags, &active) || !active)
        return;
    if (cuda_enter(number, true, &scope))
        return;
    cu_result code = cuda.call.cuCtxGetStreamPriorityRange(&low, &high);
    if (cuda_leave_silently(&scope, code) == TARN_OK) {
        *least = low;
        *greatest = high;
    }
}

tarn_status cuda_device_properties(int number, struct driver_properties *properties)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (number < 0 || number >= cuda.devices)
        return cuda_no_device(number);
    const struct cuda_device *device = &cuda.device[number];
    struct driver_properties result = {
        .memory = device->memory,
        .granule = device->virtual_memory ? device->granule : (size_t)2 << 20,
        .recommended = device->virtual_memory ? device->recommended : (size_t)2 << 20,
        .address_limit = SIZE_MAX,
        .virtual_memory = device->virtual_memory,
        .alias = device->virtual_memory,
        .exportable = device->posix_fd,
        .integrated = device->integrated,
        .fills_machine = device->integrated,
        .coherent = device->coherent,
        .slice = device->slice,
        .mps = device->mps,
        .paged = cuda.paged,
    };
    cu_result code = cuda.call.cuDeviceGetName(result.name, sizeof result.name, device->handle);
    if (code)
        return cuda_failed(code, "cuDeviceGetName");
    result.name[sizeof result.name - 1] = '\0';
    if (cuda.call.cuDeviceGetAttribute(&result.capability_major, CU_CAPABILITY_MAJOR,
                                       device->handle) ||
        cuda.call.cuDeviceGetAttribute(&result.capability_minor, CU_CAPABILITY_MINOR,
                                       device->handle))
        result.capability_major = result.capability_minor = 0;
    priorities(number, &result.least_priority, &result.greatest_priority);
    *properties = result;
    return TARN_OK;
}

tarn_status cuda_activate(int device)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_context context;
    if (device < 0 || device >= cuda.devices)
        return cuda_no_device(device);
    /* For the relaxed mode, in which a context can be created during a capture. */
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (!status)
        status = cuda_leave(&scope, CU_OK, "cuCtxSetCurrent");
    if (!status)
        status = cuda_context(device, &context);
    if (status)
        return status;
    cu_result code = cuda.call.cuCtxSetCurrent(context);
    return code ? cuda_failed(code, "cuCtxSetCurrent") : TARN_OK;
}

tarn_status cuda_current(int *device)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_context context = NULL;
    cu_device handle = 0;
    cu_result code = cuda.call.cuCtxGetCurrent(&context);
    if (code)
        return cuda_failed(code, "cuCtxGetCurrent");
    if (!context) { /* then the CUDA runtime calls device 0 current */
        *device = 0;
        return TARN_OK;
    }
    code = cuda.call.cuCtxGetDevice(&handle);
    if (code)
        return cuda_failed(code, "cuCtxGetDevice");
    for (int i = 0; i < cuda.devices; i++) {
        if (cuda.device[i].handle == handle) {
            *device = i;
            return TARN_OK;
        }
    }
    return cuda_no_device(handle);
}

tarn_status cuda_context_get(driver_context *context)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_context current = NULL;
    cu_result code = cuda.call.cuCtxGetCurrent(&current);
    if (code)
        return cuda_failed(code, "cuCtxGetCurrent");
    *context = current;
    return TARN_OK;
}

tarn_status cuda_context_set(driver_context context)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_result code = cuda.call.cuCtxSetCurrent(context);
    return code ? cuda_failed(code, "cuCtxSetCurrent") : TARN_OK;
}

tarn_status cuda_is_active(int device, bool *active)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    unsigned flags = 0;
    int state = 0;
    if (device < 0 || device >= cuda.devices)
        return cuda_no_device(device);
    cu_result code =
        cuda.call.cuDevicePrimaryCtxGetState(cuda.device[device].handle, &flags, &state);
    if (code)
        return cuda_failed(code, "cuDevicePrimaryCtxGetState");
    *active = state;
    return TARN_OK;
}

tarn_status cuda_memory_info(int device, size_t *free_bytes, size_t *total_bytes)
{
    size_t available = 0, total = 0;
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemGetInfo_v2(&available, &total);
    status = cuda_leave(&scope, code, "cuMemGetInfo");
    if (status)
        return status;
    *free_bytes =
        cuda.device[device].integrated ? driver_machine_free_bytes(available, total) : available;
    *total_bytes = total;
    return TARN_OK;
}

tarn_status cuda_device_synchronize(int device)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuCtxSynchronize(), "cuCtxSynchronize");
}

/* ---- Memory ---- */

tarn_status cuda_alloc(int device, size_t size, uintptr_t *address)
{
    cu_address result = 0;
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemAlloc_v2(&result, size);
    status = cuda_leave(&scope, code, "cuMemAlloc of %zu bytes", size);
    if (status)
        return status;
    *address = (uintptr_t)result;
    return TARN_OK;
}

tarn_status cuda_free(int device, uintptr_t address)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuMemFree_v2(address), "cuMemFree of %p", (void *)address);
}

static tarn_status refuse_captured(const char *call, int device, driver_stream stream)
{
    struct driver_capture capture = {0};
    tarn_status answer = cuda_capture_status(device, stream, &capture);
    return driver_refuse_captured(call, device, answer, &capture);
}

tarn_status cuda_alloc_async(int device, size_t size, driver_stream stream, uintptr_t *address)
{
    cu_address result = 0;
    struct cuda_scope scope;
    if (!cuda.call.cuMemAllocAsync || !cuda.call.cuMemFreeAsync)
        return cuda_missing("cuMemAllocAsync");
    tarn_status status = refuse_captured("cuMemAllocAsync", device, stream);
    if (!status)
        status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemAllocAsync(&result, size, stream);
    status = cuda_leave(&scope, code, "cuMemAllocAsync of %zu bytes", size);
    if (status)
        return status;
    *address = (uintptr_t)result;
    return TARN_OK;
}

tarn_status cuda_free_async(int device, uintptr_t address, driver_stream stream)
{
    struct cuda_scope scope;
    if (!cuda.call.cuMemFreeAsync)
        return cuda_missing("cuMemFreeAsync");
    tarn_status status = refuse_captured("cuMemFreeAsync", device, stream);
    if (!status)
        status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemFreeAsync(address, stream);
    return cuda_leave(&scope, code, "cuMemFreeAsync of %p", (void *)address);
}

/* Portable: pinned for every context, present and future. */
tarn_status cuda_host_alloc(int device, size_t size, uintptr_t *address)
{
    void *result = NULL;
    struct cuda_scope scope;
    if (!cuda.call.cuMemHostAlloc || !cuda.call.cuMemFreeHost)
        return cuda_missing("cuMemHostAlloc");
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemHostAlloc(&result, size, CU_HOST_PORTABLE);
    status = cuda_leave(&scope, code, "cuMemHostAlloc of %zu bytes", size);
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER, "cuMemHostAlloc of %zu bytes succeeded and gave nothing",
                      size);
    *address = (uintptr_t)result;
    return TARN_OK;
}

tarn_status cuda_host_free(int device, uintptr_t address)
{
    struct cuda_scope scope;
    if (!cuda.call.cuMemFreeHost)
        return cuda_missing("cuMemFreeHost");
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuMemFreeHost((void *)address), "cuMemFreeHost of %p",
                      (void *)address);
}

tarn_status cuda_host_register(int device, uintptr_t address, size_t size)
{
    struct cuda_scope scope;
    if (!cuda.call.cuMemHostRegister_v2 || !cuda.call.cuMemHostUnregister)
        return cuda_missing("cuMemHostRegister");
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemHostRegister_v2((void *)address, size, CU_REGISTER_PORTABLE);
    return cuda_leave(&scope, code, "cuMemHostRegister of %zu bytes at %p", size, (void *)address);
}

tarn_status cuda_host_unregister(int device, uintptr_t address)
{
    struct cuda_scope scope;
    if (!cuda.call.cuMemHostUnregister)
        return cuda_missing("cuMemHostUnregister");
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemHostUnregister((void *)address);
    return cuda_leave(&scope, code, "cuMemHostUnregister of %p", (void *)address);
}

/* Enters a call on virtual memory, which not every device has. */
static tarn_status enter_virtual(int device, const char *call, struct cuda_scope *scope)
{
    tarn_status status = cuda_enter(device, true, scope);
    if (status || cuda.device[device].virtual_memory)
        return status;
    (void)cuda_leave_silently(scope, CU_OK);
    return failed(TARN_ERROR_NOT_SUPPORTED, "%s: device %d, or its driver, has no virtual memory",
                  call, device);
}

tarn_status cuda_reserve(int device, size_t size, size_t alignment, uintptr_t *address)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_address result = 0;
    struct cuda_scope scope;
    tarn_status status = enter_virtual(device, "cuMemAddressReserve", &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemAddressReserve(&result, size, alignment, *address, 0);
    status = cuda_leave(&scope, code, "cuMemAddressReserve of %zu bytes", size);
    if (status)
        return status;
    *address = (uintptr_t)result;
    return TARN_OK;
}

tarn_status cuda_unreserve(int device, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct cuda_scope scope;
    tarn_status status = enter_virtual(device, "cuMemAddressFree", &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemAddressFree(address, size);
    return cuda_leave(&scope, code, "cuMemAddressFree of %zu bytes at %p", size, (void *)address);
}

tarn_status cuda_create(int device, size_t size, unsigned flags, driver_piece *piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_piece result = 0;
    struct cuda_scope scope;
    if (flags & ~(DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA | DRIVER_PIECE_HOST))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "cuMemCreate: flags %#x are unknown", flags);
    tarn_status status = enter_virtual(device, "cuMemCreate", &scope);
    if (status)
        return status;
    const struct cuda_device *found = &cuda.device[device];
    bool exportable = flags & DRIVER_PIECE_EXPORTABLE, host = flags & DRIVER_PIECE_HOST;
    if ((exportable && !found->posix_fd) || (host && !found->host_pieces)) {
        (void)cuda_leave_silently(&scope, CU_OK);
        return failed(TARN_ERROR_NOT_SUPPORTED, "cuMemCreate: device %d cannot %s", device,
                      host ? "map pieces of host memory" : "export memory as a file descriptor");
    }
    struct cu_allocation_properties properties = {
        .type = CU_ALLOCATION_PINNED,
        .handle_types = exportable ? CU_HANDLE_POSIX_FD : CU_HANDLE_NONE,
        .location = {.type = host ? CU_LOCATION_HOST_NUMA : CU_LOCATION_DEVICE,
                     .id = host ? found->host_node : found->handle},
    };
    properties.flags.rdma = (flags & DRIVER_PIECE_RDMA) && found->rdma;
    cu_result code = cuda.call.cuMemCreate(&result, size, &properties, 0);
    status = cuda_leave(&scope, code, "cuMemCreate of %zu bytes", size);
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER,
                      "cuMemCreate of %zu bytes on device %d succeeded and gave nothing", size,
                      device);
    *piece = result;
    return TARN_OK;
}

tarn_status cuda_release(int device, driver_piece piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct cuda_scope scope;
    tarn_status status = enter_virtual(device, "cuMemRelease", &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuMemRelease(piece), "cuMemRelease");
}

tarn_status cuda_map(int device, uintptr_t address, size_t size, driver_piece piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct cuda_scope scope;
    tarn_status status = enter_virtual(device, "cuMemMap", &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemMap(address, size, 0, piece, 0);
    return cuda_leave(&scope, code, "cuMemMap of %zu bytes at %p", size, (void *)address);
}

tarn_status cuda_unmap(int device, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct cuda_scope scope;
    tarn_status status = enter_virtual(device, "cuMemUnmap", &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemUnmap(address, size);
    return cuda_leave(&scope, code, "cuMemUnmap of %zu bytes at %p", size, (void *)address);
}

static tarn_status set_access(int device, uintptr_t address, size_t size, const int *devices,
                              int count, unsigned flags)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct cu_access access[TARN_MAX_DEVICES];
    struct cuda_scope scope;
    if (count < 1 || count > TARN_MAX_DEVICES)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "cuMemSetAccess for %d devices", count);
    for (int i = 0; i < count; i++) {
        if (devices[i] < 0 || devices[i] >= cuda.devices)
            return cuda_no_device(devices[i]);
        access[i] = (struct cu_access){
            .location = {.type = CU_LOCATION_DEVICE, .id = cuda.device[devices[i]].handle},
            .flags = flags,
        };
    }
    tarn_status status = enter_virtual(device, "cuMemSetAccess", &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemSetAccess(address, size, access, (size_t)count);
    return cuda_leave(&scope, code, "cuMemSetAccess for %d devices on %zu bytes at %p", count, size,
                      (void *)address);
}

tarn_status cuda_set_access(int device, uintptr_t address, size_t size, const int *devices,
                            int count)
{
    return set_access(device, address, size, devices, count, CU_ACCESS_READ_WRITE);
}

static tarn_status cuda_set_read(int device, uintptr_t address, size_t size, const int *devices,
                                 int count)
{
    return set_access(device, address, size, devices, count, CU_ACCESS_READ);
}

/* ---- Memory between processes ---- */

static tarn_status enter_sharing(int device, const char *call, struct cuda_scope *scope)
{
    tarn_status status = enter_virtual(device, call, scope);
    if (status || cuda.device[device].posix_fd)
        return status;
    (void)cuda_leave_silently(scope, CU_OK);
    return failed(TARN_ERROR_NOT_SUPPORTED,
                  "%s: device %d cannot share memory by a file descriptor", call, device);
}

tarn_status cuda_export(int device, driver_piece piece, int *file)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    int result = -1;
    struct cuda_scope scope;
    tarn_status status = enter_sharing(device, "cuMemExportToShareableHandle", &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemExportToShareableHandle(&result, piece, CU_HANDLE_POSIX_FD, 0);
    status = cuda_leave(&scope, code, "cuMemExportToShareableHandle");
    if (status)
        return status;
    if (result < 0)
        return failed(TARN_ERROR_DRIVER,
                      "cuMemExportToShareableHandle on device %d succeeded and gave nothing",
                      device);
    *file = result;
    return TARN_OK;
}

/* The descriptor is passed by value. CUDA does not tell the size of a piece: a wrong size is
 * refused by the map. */
tarn_status cuda_import(int device, int file, size_t size, driver_piece *piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_piece result = 0;
    struct cuda_scope scope;
    tarn_status status = enter_sharing(device, "cuMemImportFromShareableHandle", &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemImportFromShareableHandle(&result, (void *)(intptr_t)file,
                                                              CU_HANDLE_POSIX_FD);
    status = cuda_leave(&scope, code, "cuMemImportFromShareableHandle of %zu bytes", size);
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER,
                      "cuMemImportFromShareableHandle on device %d succeeded and gave nothing",
                      device);
    *piece = result;
    return TARN_OK;
}

/* ---- Streams ---- */

tarn_status cuda_stream_create(int device, int priority, bool blocking, driver_stream *stream)
{
    cu_stream result = NULL;
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    unsigned flags = blocking ? CU_STREAM_BLOCKING : CU_STREAM_NOT_BLOCKING;
    cu_result code = cuda.call.cuStreamCreateWithPriority(&result, flags, priority);
    status = cuda_leave(&scope, code, "cuStreamCreateWithPriority");
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER,
                      "cuStreamCreateWithPriority on device %d succeeded and gave nothing", device);
    *stream = result;
    return TARN_OK;
}

tarn_status cuda_stream_destroy(int device, driver_stream stream)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

/* The device of a context, whatever is current. */
static cu_result device_of(cu_context context, cu_device *device)
{
    cu_context popped;
    cu_result code = cuda.call.cuCtxPushCurrent_v2(context);
    if (code)
        return code;
    code = cuda.call.cuCtxGetDevice(device);
    (void)cuda.call.cuCtxPopCurrent_v2(&popped);
    return code;
}

/* Drivers before 12.5 report another context than the primary one for streams of green contexts.
 * There only the device is compared. */
static cu_result is_primary(const struct cuda_device *device, cu_stream stream, bool *is)
{
    cu_context context = NULL;
    cu_green_context green = NULL;
    cu_device found = device->handle;
    cu_result code = CU_OK;
    *is = true;
    if (cuda.call.cuStreamGetCtx_v2) {
        code = cuda.call.cuStreamGetCtx_v2(stream, &context, &green);
        *is = context == atomic_load_explicit(&device->context, memory_order_relaxed);
    } else {
        if (cuda.call.cuStreamGetCtx) {
            code = cuda.call.cuStreamGetCtx(stream, &context);
            if (!code) {
                code = device_of(context, &found);
                *is = found == device->handle;
            }
        }
    }
    return code;
}

tarn_status cuda_stream_check(int device, driver_stream stream)
{
    struct cuda_scope scope;
    bool is = false;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = is_primary(&cuda.device[device], stream, &is);
    status = cuda_leave(&scope, code, "cuStreamGetCtx");
    if (status || is)
        return status;
    return failed(TARN_ERROR_INVALID_STREAM,
                  "cuStreamGetCtx: stream %p is not of the primary context of device %d", stream,
                  device);
}

/* A stream that captures does not tell its number, even in relaxed mode: cuStreamGetId() returns
 * 900 and invalidates the capture (driver 580.159, H200). */
tarn_status cuda_stream_number(int device, driver_stream stream, uint64_t *number)
{
    struct cuda_scope scope;
    unsigned long long id = 0;
    uint64_t capture = 0;
    cu_capture_status state = CU_CAPTURE_IS_NONE;
    if (!cuda.call.cuStreamGetId)
        return TARN_ERROR_NOT_SUPPORTED;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = CU_OK;
    if (cuda.call.cuStreamGetCaptureInfo) {
        code = cuda.call.cuStreamGetCaptureInfo(stream, &state, &capture);
        if (code)
            return cuda_leave(&scope, code, "cuStreamGetCaptureInfo"); /* it may capture */
    }
    if (state != CU_CAPTURE_IS_NONE) {
        (void)cuda_leave_silently(&scope, CU_OK);
        return TARN_ERROR_CAPTURE;
    }
    code = cuda.call.cuStreamGetId(stream, &id);
    status = cuda_leave(&scope, code, "cuStreamGetId");
    if (status)
        return status;
    *number = id + 1;
    return TARN_OK;
}

/* A query: "not ready" is an answer, not an error. */
static tarn_status leave_query(const struct cuda_scope *scope, cu_result code, const char *call)
{
    return code == CU_NOT_READY ? cuda_leave_silently(scope, code)
                                : cuda_leave(scope, code, "%s", call);
}

tarn_status cuda_stream_query(int device, driver_stream stream)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return leave_query(&scope, cuda.call.cuStreamQuery(stream), "cuStreamQuery");
}

tarn_status cuda_stream_synchronize(int device, driver_stream stream)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

/* An event that was last recorded in a capture is refused with 907, and with 1 once that capture is
 * over or invalidated (driver 580.159.04, H200). */
static tarn_status leave_event(const struct cuda_scope *scope, cu_result code, const char *call)
{
    tarn_status status = leave_query(scope, code, call);
    if (code != CU_INVALID_VALUE)
        return status;
    return failed_within(TARN_ERROR_CAPTURE, "the event was recorded in a capture");
}

tarn_status cuda_stream_wait_event(int device, driver_stream stream, driver_event event)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    return leave_event(&scope, cuda.call.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

/* ---- Events ---- */

tarn_status cuda_event_create(int device, driver_event *event)
{
    cu_event result = NULL;
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuEventCreate(&result, CU_EVENT_WITHOUT_TIMING);
    status = cuda_leave(&scope, code, "cuEventCreate");
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER, "cuEventCreate on device %d succeeded and gave nothing",
                      device);
    *event = result;
    return TARN_OK;
}

tarn_status cuda_event_destroy(int device, driver_event event)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuEventDestroy_v2(event), "cuEventDestroy");
}

tarn_status cuda_event_record(int device, driver_event event, driver_stream stream)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuEventRecord(event, stream), "cuEventRecord");
}

tarn_status cuda_event_query(int device, driver_event event)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return leave_event(&scope, cuda.call.cuEventQuery(event), "cuEventQuery");
}

tarn_status cuda_event_synchronize(int device, driver_event event)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    return leave_event(&scope, cuda.call.cuEventSynchronize(event), "cuEventSynchronize");
}

/* ---- Work ---- */

tarn_status cuda_copy(int device, uintptr_t to, uintptr_t from, size_t size, driver_stream stream)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemcpyAsync(to, from, size, stream);
    return cuda_leave(&scope, code, "cuMemcpyAsync of %zu bytes from %p to %p", size, (void *)from,
                      (void *)to);
}

tarn_status cuda_set(int device, uintptr_t address, unsigned char value, size_t size,
                     driver_stream stream)
{
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuMemsetD8Async(address, value, size, stream);
    return cuda_leave(&scope, code, "cuMemsetD8Async of %zu bytes at %p", size, (void *)address);
}

tarn_status cuda_call(int device, driver_stream stream, void (*function)(void *), void *argument)
{
    struct cuda_scope scope;
    if (!cuda.call.cuLaunchHostFunc)
        return cuda_missing("cuLaunchHostFunc");
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuLaunchHostFunc(stream, function, argument),
                      "cuLaunchHostFunc");
}

/* ---- Peers ---- */

tarn_status cuda_peer_possible(int device, int peer, bool *possible)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    int can = 1;
    if (device < 0 || device >= cuda.devices || peer < 0 || peer >= cuda.devices)
        return cuda_no_device(device < 0 || device >= cuda.devices ? device : peer);
    if (device != peer) {
        cu_result code = cuda.call.cuDeviceCanAccessPeer(&can, cuda.device[device].handle,
                                                         cuda.device[peer].handle);
        if (code)
            return cuda_failed(code, "cuDeviceCanAccessPeer");
    }
    *possible = can != 0;
    return TARN_OK;
}

tarn_status cuda_peer_enable(int device, int peer)
{
    cu_context context;
    struct cuda_scope scope;
    if (peer < 0 || peer >= cuda.devices)
        return cuda_no_device(peer);
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = CU_OK;
    if (device != peer) {
        status = cuda_context(peer, &context);
        if (status) {
            (void)cuda_leave_silently(&scope, CU_OK);
            return status;
        }
        code = cuda.call.cuCtxEnablePeerAccess(context, 0);
        if (code == CU_PEER_ALREADY_ENABLED) /* enabled by another user of the primary context */
            code = CU_OK;
    }
    return cuda_leave(&scope, code, "cuCtxEnablePeerAccess to device %d", peer);
}

static void cuda_finish(void)
{
    cuda_graphs_finish();
}

const struct driver driver_cuda = {
    .name = "cuda",
    .legacy = CU_LEGACY_STREAM,
    .per_thread = CU_THREADS_STREAM,
#define X(call, parameters) .call = cuda_##call,
    DRIVER_CALL_LIST(X)
#undef X
        .processes = cuda_processes,
    .identity = cuda_identity,
    .set_read = cuda_set_read,
    .graph_walk = cuda_graph_walk,
    .finish = cuda_finish,
};
