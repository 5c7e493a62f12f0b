/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory of the simulated libamdhip64. Its addresses are addresses of the process. An address range
 * belongs to the device that was current when it was reserved. */
#include "base/pages.h"
#include "driver/host/host_memory.h"
#include "hip/sim_hip.h"

#include <sys/stat.h>

static struct object_pool pieces = OBJECT_POOL(struct ihipMemGenericAllocationHandle);

/* What an address belongs to. */
struct region {
    int device;
    uintptr_t address;
    size_t size; /* bytes */
    /* bytes of the mapping that begins at the address asked about; 0: none begins there */
    size_t mapping;
    bool is_range;
};

static bool region_of(const void *at, struct region *found)
{
    uintptr_t address = (uintptr_t)at;
    mutex_lock(&host_memory_lock);
    const struct host_region *region = host_region_at(address);
    if (region) {
        const struct host_mapping *mapping =
            region->granules ? *host_granule_of(region, address) : NULL;
        *found = (struct region){
            .device = region->device->number,
            .address = region->address,
            .size = region->size,
            .mapping = mapping && mapping->address == address ? mapping->piece->size : 0,
            .is_range = region->granules != NULL,
        };
    }
    mutex_unlock(&host_memory_lock);
    return region != NULL;
}

/* ---- Allocations ---- */

hip_result hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    hip_result code = sim_enter(__func__);
    if (!code && (!free_bytes || !total_bytes))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(host_memory_info(sim_device(), free_bytes, total_bytes),
                        HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

static hip_result allocate(int device, void **address, size_t size)
{
    uintptr_t result = 0;
    if (!address)
        return HIP_INVALID_VALUE;
    hip_result code =
        size ? sim_code(host_alloc(device, size, &result), HIP_CAPTURE_UNSUPPORTED) : HIP_OK;
    if (!code)
        *address = (void *)result;
    return code;
}

hip_result hipMalloc(void **address, size_t size)
{
    hip_result code = sim_enter(__func__);
    return sim_leave(code ? code : allocate(sim_device(), address, size));
}

static hip_result give_back(void *address)
{
    struct region region;
    if (!region_of(address, &region) || region.is_range || region.address != (uintptr_t)address)
        return HIP_INVALID_VALUE;
    return sim_code(host_free(region.device, region.address), HIP_CAPTURE_UNSUPPORTED);
}

/* A capture bars hipFree(NULL) too. */
hip_result hipFree(void *address)
{
    hip_result code = sim_enter(__func__);
    if (!code && !address)
        code = sim_code(host_refuse_unsafe(DRIVER_CALL_free), HIP_CAPTURE_UNSUPPORTED);
    else if (!code)
        code = give_back(address);
    return sim_leave(code);
}

/* A request on a capturing stream is refused. */
static hip_result enter_ordered(const char *call, hip_stream stream, int *device,
                                driver_stream *queue)
{
    struct driver_capture capture;
    hip_result code = sim_enter(call);
    if (!code)
        code = sim_stream(stream, device, queue);
    if (!code)
        code = sim_code(host_capture_status(*device, *queue, &capture), HIP_CAPTURE_IMPLICIT);
    return code ? code : capture.state == DRIVER_CAPTURE_NONE ? HIP_OK : HIP_NOT_SUPPORTED;
}

hip_result hipMallocAsync(void **address, size_t size, hip_stream stream)
{
    int device;
    driver_stream queue;
    uintptr_t result = 0;
    hip_result code = enter_ordered(__func__, stream, &device, &queue);
    if (!code && !address)
        code = HIP_INVALID_VALUE;
    if (!code && size)
        code = sim_code(host_alloc_async(device, size, queue, &result), HIP_CAPTURE_IMPLICIT);
    if (!code)
        *address = (void *)result;
    return sim_leave(code);
}

hip_result hipFreeAsync(void *address, hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = enter_ordered(__func__, stream, &device, &queue);
    if (!code)
        code = sim_code(host_free_async(device, (uintptr_t)address, queue), HIP_CAPTURE_IMPLICIT);
    return sim_leave(code);
}

hip_result hipHostMalloc(void **memory, size_t size, unsigned flags)
{
    uintptr_t result = 0;
    hip_result code = sim_enter(__func__);
    (void)flags;
    if (!code && !memory)
        code = HIP_INVALID_VALUE;
    if (!code && size)
        code = sim_code(host_host_alloc(sim_device(), size, &result), HIP_CAPTURE_UNSUPPORTED);
    else if (!code)
        code = sim_code(host_refuse_unsafe(DRIVER_CALL_host_alloc), HIP_CAPTURE_UNSUPPORTED);
    if (!code)
        *memory = (void *)result;
    return sim_leave(code);
}

hip_result hipHostFree(void *memory)
{
    hip_result code = sim_enter(__func__);
    if (!code && memory)
        code = sim_code(host_host_free(sim_device(), (uintptr_t)memory), HIP_CAPTURE_UNSUPPORTED);
    else if (!code)
        code = sim_code(host_refuse_unsafe(DRIVER_CALL_host_free), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

/* Unlike the real call, this takes only whole pages. */
hip_result hipHostRegister(void *memory, size_t size, unsigned flags)
{
    hip_result code = sim_enter(__func__);
    (void)flags;
    if (!code && (!memory || !size))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(host_host_register(sim_device(), (uintptr_t)memory, size),
                        HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

hip_result hipHostUnregister(void *memory)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = sim_code(host_host_unregister(sim_device(), (uintptr_t)memory),
                        HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code == HIP_INVALID_VALUE ? HIP_HOST_NOT_REGISTERED : code);
}

static unsigned device_memory_number(void)
{
#define X(kind, old, now) [kind] = HIP_MAJOR(SIM_HIP_VERSION) < 6 ? (old) : (now),
    static const unsigned numbers[] = {HIP_MEMORY_KIND_LIST(X)};
#undef X
    return numbers[HIP_MEMORY_DEVICE];
}

/* For memory that HIP does not know: an error before 6.0, and since then the type unregistered
 * (0). */
hip_result hipPointerGetAttributes(struct hip_pointer_attributes *attributes, const void *address)
{
    struct region region;
    hip_result code = sim_enter(__func__);
    if (!code && !attributes)
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    if (region_of(address, &region))
        *attributes = (struct hip_pointer_attributes){.type = device_memory_number(),
                                                      .device = region.device,
                                                      .device_pointer = (void *)(uintptr_t)address};
    else if (HIP_MAJOR(sim_hip_version()) >= 6)
        *attributes = (struct hip_pointer_attributes){.host_pointer = (void *)(uintptr_t)address};
    else
        code = HIP_INVALID_VALUE;
    return sim_leave(code);
}

/* ---- Virtual memory ---- */

static hip_result enter_virtual(const char *call)
{
    hip_result code = sim_enter(call);
    if (!code && sim_hip_version() < HIP_FIRST_VIRTUAL_MEMORY)
        code = HIP_OUT_OF_MEMORY; /* these versions export the calls, which do not work */
    return code;
}

/* HIP's calls that map and unmap wait for the legacy stream. While a capture is open that wait
 * would be refused, so it is left out. */
static void order_device(int device)
{
    if (atomic_load(&host.captures) == 0)
        (void)host_stream_synchronize(device, NULL);
}

static hip_result check_properties(const struct hip_allocation_properties *properties)
{
    if (!properties || properties->type != HIP_ALLOCATION_PINNED ||
        properties->location.type != HIP_LOCATION_DEVICE || properties->location.id < 0 ||
        properties->location.id >= atomic_load(&host.devices))
        return HIP_INVALID_VALUE;
    return properties->handle_types > HIP_HANDLE_POSIX_FD ? HIP_NOT_SUPPORTED : HIP_OK;
}

hip_result hipMemGetAllocationGranularity(size_t *size,
                                          const struct hip_allocation_properties *properties,
                                          hip_granularity_kind kind)
{
    hip_result code = enter_virtual(__func__);
    if (!code)
        code = size && kind <= 1 ? check_properties(properties) : HIP_INVALID_VALUE;
    if (!code)
        *size = HOST_GRANULE;
    return sim_leave(code);
}

hip_result hipMemAddressReserve(void **address, size_t size, size_t alignment, void *hint,
                                unsigned long long flags)
{
    uintptr_t result = (uintptr_t)hint;
    hip_result code = enter_virtual(__func__);
    if (!code && (!address || flags))
        code = HIP_INVALID_VALUE;
    if (!code && (!size || size % HOST_GRANULE || (alignment & (alignment - 1))))
        code = HIP_OUT_OF_MEMORY; /* HIP's own code for this */
    if (!code)
        code =
            sim_code(host_reserve(sim_device(), size, alignment, &result), HIP_CAPTURE_UNSUPPORTED);
    if (!code)
        *address = (void *)result;
    return sim_leave(code);
}

/* The size is ignored: the whole range is freed. */
hip_result hipMemAddressFree(void *address, size_t size)
{
    struct region region;
    hip_result code = enter_virtual(__func__);
    if (!code && (!address || !size))
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    if (!region_of(address, &region) || !region.is_range || region.address != (uintptr_t)address)
        sim_crash("hipMemAddressFree of an unknown address, at which the real library crashes");
    return sim_leave(sim_code(host_unreserve(region.device, region.address, region.size),
                              HIP_CAPTURE_UNSUPPORTED));
}

/* Ends a call that makes a piece: fills in the object and returns it, or frees it if the call
 * failed. */
static hip_result hand_out(hip_result code, hip_piece object, int device, size_t size,
                           driver_piece made, hip_piece *piece)
{
    if (code) {
        object_free(&pieces, object);
        return code;
    }
    *object = (struct ihipMemGenericAllocationHandle){
        .live = true, .device = device, .size = size, .host = made};
    *piece = object;
    return HIP_OK;
}

hip_result hipMemCreate(hip_piece *piece, size_t size,
                        const struct hip_allocation_properties *properties,
                        unsigned long long flags)
{
    driver_piece made = 0;
    hip_result code = enter_virtual(__func__);
    if (!code)
        code = piece && size && !flags ? check_properties(properties) : HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    hip_piece result = object_alloc(&pieces);
    if (!result)
        return sim_leave(HIP_OUT_OF_MEMORY);
    int device = properties->location.id;
    unsigned kind = properties->handle_types & HIP_HANDLE_POSIX_FD ? DRIVER_PIECE_EXPORTABLE : 0;
    code = sim_code(host_create(device, size, kind, &made), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(hand_out(code, result, device, size, made, piece));
}

hip_result hipMemRelease(hip_piece piece)
{
    hip_result code = enter_virtual(__func__);
    if (!code && !piece)
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    if (!piece->live)
        sim_crash("hipMemRelease of a handle that was released, at which the real library crashes");
    code = sim_code(host_release(piece->device, piece->host), HIP_CAPTURE_UNSUPPORTED);
    if (!code) {
        piece->live = false;
        object_free(&pieces, piece);
    }
    return sim_leave(code);
}

hip_result hipMemMap(void *address, size_t size, size_t offset, hip_piece piece,
                     unsigned long long flags)
{
    hip_result code = enter_virtual(__func__);
    if (!code && (!address || !size || offset || !piece || flags))
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    if (!piece->live)
        sim_crash("hipMemMap of a handle that was released, at which the real library crashes");
    order_device(piece->device);
    return sim_leave(sim_code(host_map(piece->device, (uintptr_t)address, size, piece->host),
                              HIP_CAPTURE_UNSUPPORTED));
}

hip_result hipMemUnmap(void *address, size_t size)
{
    struct region region;
    hip_result code = enter_virtual(__func__);
    if (!code && (!address || !size))
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    if (!region_of(address, &region) || !region.mapping)
        sim_crash("hipMemUnmap where nothing is mapped, at which the real library crashes");
    if (region.mapping != size)
        return sim_leave(HIP_INVALID_VALUE);
    order_device(region.device);
    return sim_leave(
        sim_code(host_unmap(region.device, (uintptr_t)address, size), HIP_CAPTURE_UNSUPPORTED));
}

/* The type of a location is ignored. */
hip_result hipMemSetAccess(void *address, size_t size, const struct hip_access *access,
                           size_t count)
{
    int devices[TARN_MAX_DEVICES];
    struct region region;
    hip_result code = enter_virtual(__func__);
    if (!code && (!address || !size || !access || !count || count > TARN_MAX_DEVICES ||
                  !region_of(address, &region)))
        code = HIP_INVALID_VALUE;
    for (size_t i = 0; !code && i < count; i++) {
        if (access[i].flags != HIP_ACCESS_READ_WRITE)
            code = HIP_NOT_SUPPORTED;
        devices[i] = access[i].location.id;
    }
    if (!code)
        code =
            sim_code(host_set_access(region.device, (uintptr_t)address, size, devices, (int)count),
                     HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code == HIP_INVALID_DEVICE ? HIP_INVALID_VALUE : code);
}

hip_result hipMemExportToShareableHandle(void *handle, hip_piece piece, hip_handle_kind kind,
                                         unsigned long long flags)
{
    int file = -1;
    hip_result code = enter_virtual(__func__);
    if (!code && (!handle || !piece || kind != HIP_HANDLE_POSIX_FD || flags))
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    if (!piece->live)
        sim_crash("hipMemExportToShareableHandle of a handle that was released, at which the real "
                  "library crashes");
    code = sim_code(host_export(piece->device, piece->host, &file), HIP_CAPTURE_UNSUPPORTED);
    if (!code)
        *(int *)handle = file;
    return sim_leave(code);
}

/* How the descriptor is passed depends on the version. The piece counts as one of the current
 * device, because a memfd does not say which device it came from. */
hip_result hipMemImportFromShareableHandle(hip_piece *piece, void *handle, hip_handle_kind kind)
{
    struct stat known;
    driver_piece made = 0;
    hip_result code = enter_virtual(__func__);
    if (!code && (!piece || !handle || kind != HIP_HANDLE_POSIX_FD))
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    bool by_value = sim_hip_version() >= HIP_FIRST_IMPORT_BY_VALUE;
    if (!by_value && (uintptr_t)handle < 4096)
        sim_crash("hipMemImportFromShareableHandle of a descriptor by value, at which the real "
                  "library crashes");
    int file = by_value ? (int)(intptr_t)handle : *(int *)handle;
    if (fstat(file, &known))
        return sim_leave(HIP_INVALID_VALUE);
    hip_piece result = object_alloc(&pieces);
    if (!result)
        return sim_leave(HIP_OUT_OF_MEMORY);
    size_t size = (size_t)known.st_size;
    code = sim_code(host_import(sim_device(), file, size, &made), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(hand_out(code, result, sim_device(), size, made, piece));
}

/* ---- Copies ---- */

static hip_result copy(void *to, const void *from, size_t size, hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = sim_stream(stream, &device, &queue);
    if (code)
        return code;
    return sim_code(host_copy(device, (uintptr_t)to, (uintptr_t)from, size, queue),
                    HIP_CAPTURE_IMPLICIT);
}

static hip_result fill(void *address, int value, size_t size, hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = sim_stream(stream, &device, &queue);
    if (code)
        return code;
    return sim_code(host_set(device, (uintptr_t)address, (unsigned char)value, size, queue),
                    HIP_CAPTURE_IMPLICIT);
}

static hip_result wait(hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = sim_stream(stream, &device, &queue);
    return code ? code : sim_code(host_stream_synchronize(device, queue), HIP_CAPTURE_IMPLICIT);
}

hip_result hipMemcpyAsync(void *to, const void *from, size_t size, hip_copy_kind kind,
                          hip_stream stream)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = kind > HIP_COPY_DEFAULT ? HIP_INVALID_VALUE : copy(to, from, size, stream);
    return sim_leave(code);
}

hip_result hipMemcpyWithStream(void *to, const void *from, size_t size, hip_copy_kind kind,
                               hip_stream stream)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = sim_beside_no_capture(HIP_CAPTURE_IMPLICIT);
    if (!code)
        code = kind > HIP_COPY_DEFAULT ? HIP_INVALID_VALUE : copy(to, from, size, stream);
    return sim_leave(code ? code : wait(stream));
}

hip_result hipMemcpy(void *to, const void *from, size_t size, hip_copy_kind kind)
{
    return hipMemcpyWithStream(to, from, size, kind, NULL);
}

hip_result hipMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                       size_t height, hip_copy_kind kind)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = sim_beside_no_capture(HIP_CAPTURE_IMPLICIT);
    if (!code && (kind > HIP_COPY_DEFAULT || width > to_pitch || width > from_pitch))
        code = HIP_INVALID_VALUE;
    for (size_t row = 0; !code && row < height; row++)
        code =
            copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, NULL);
    return sim_leave(code ? code : wait(NULL));
}

hip_result hipMemsetAsync(void *address, int value, size_t size, hip_stream stream)
{
    hip_result code = sim_enter(__func__);
    return sim_leave(code ? code : fill(address, value, size, stream));
}

hip_result hipMemset(void *address, int value, size_t size)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = sim_beside_no_capture(HIP_CAPTURE_IMPLICIT);
    if (!code)
        code = fill(address, value, size, NULL);
    return sim_leave(code ? code : wait(NULL));
}

hip_result hipMemset2DAsync(void *address, size_t pitch, int value, size_t width, size_t height,
                            hip_stream stream)
{
    hip_result code = sim_enter(__func__);
    if (!code && width > pitch)
        code = HIP_INVALID_VALUE;
    for (size_t row = 0; !code && row < height; row++)
        code = fill((char *)address + row * pitch, value, width, stream);
    return sim_leave(code);
}
