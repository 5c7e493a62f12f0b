/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory of the simulated libcuda. The uppermost byte of a piece's handle is its device, since
 * CUDA's calls do not name the device. */
#include "common/card.h"
#include "cuda/sim_cuda.h"
#include "driver/host/host_memory.h"

#include <string.h>
#include <sys/stat.h>

#define PIECE_BITS 56
#define PIECE_MASK (((cu_piece)1 << PIECE_BITS) - 1)

/* Finds the region that contains an address. */
static bool region_of(cu_address address, int *device, uintptr_t *base, size_t *size)
{
    mutex_lock(&host_memory_lock);
    const struct host_region *region = host_region_at((uintptr_t)address);
    if (region) {
        *device = region->device->number;
        *base = region->address;
        *size = region->size;
    }
    mutex_unlock(&host_memory_lock);
    return region != NULL;
}

/* Begins a call about an address. There must be a current context, but it may be of another device
 * than the address. */
static cu_result enter_at(const char *call, cu_address address, int *device)
{
    uintptr_t base;
    size_t size;
    cu_result code = sim_enter(call, device);
    if (code)
        return code;
    if (!region_of(address, device, &base, &size))
        return CU_INVALID_VALUE;
    return sim_lost(*device);
}

/* ---- Allocations ---- */

cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    int device;
    size_t available = 0, total = 0; /* either output may be NULL */
    cu_result code = sim_enter("cuMemGetInfo", &device);
    if (!code)
        code = sim_code(driver->memory_info(device, &available, &total));
    if (code)
        return code;
    size_t used = total - available;
    if (sim_card()->paged)
        total /= 2;
    if (free_bytes)
        *free_bytes = used < total ? total - used : 0;
    if (total_bytes)
        *total_bytes = total;
    return CU_OK;
}

/* What the machine of an integrated card has, which tarn asks beside the kernel (base/machine.h):
 * the kernel counts simulated memory only when it is touched. False: the card is not integrated. */
SIM_EXPORT bool tarn_sim_machine_memory(size_t *available, size_t *total);
bool tarn_sim_machine_memory(size_t *available, size_t *total)
{
    size_t taken = 0, unused = 0;
    tarn_host_ledger ledger = {.size = sizeof ledger};
    if (!sim_card()->integrated || driver->memory_info(0, &unused, total))
        return false;
    for (int device = 0; !tarn_host_ledger_get(device, &ledger); device++)
        taken += ledger.created + ledger.pinned_bytes;
    *available = *total > taken ? *total - taken : 0;
    return true;
}

cu_result cuMemAlloc_v2(cu_address *address, size_t size)
{
    int device;
    uintptr_t result = 0;
    cu_result code = sim_enter("cuMemAlloc", &device);
    if (code)
        return code;
    if (!address || !size)
        return CU_INVALID_VALUE;
    code = sim_code(driver->alloc(device, size, &result));
    if (!code)
        *address = result;
    return code;
}

static tarn_status free_now(int device, uintptr_t address, driver_stream queue)
{
    (void)queue;
    return driver->free(device, address);
}

cu_result cuMemFree_v2(cu_address address)
{
    int device;
    if (!address)
        return sim_enter("cuMemFree", &device);
    cu_result code = enter_at("cuMemFree", address, &device);
    return code ? code : sim_pool_free(address, free_now, device, 0);
}

cu_result cuMemGetAddressRange_v2(cu_address *base, size_t *size, cu_address address)
{
    int device;
    uintptr_t start;
    size_t bytes;
    cu_result code = sim_enter("cuMemGetAddressRange", &device);
    if (code)
        return code;
    if (!region_of(address, &device, &start, &bytes))
        return CU_NOT_FOUND;
    if (base)
        *base = start;
    if (size)
        *size = bytes;
    return CU_OK;
}

/* ---- Attributes ---- */

enum attribute { /* CU_POINTER_ATTRIBUTE_ */
                 CONTEXT = 1,
                 TYPE,
                 POINTER,
                 BUFFER_ID = 7,
                 MANAGED,
                 ORDINAL,
                 LEGACY_IPC,
                 START,
                 SIZE,
                 MAPPED,
                 POOL = 17
};

/* Attributes exist only for allocations, not for ranges of virtual memory or host memory. */
static cu_result attribute_of(void *data, unsigned attribute, cu_address address)
{
    mutex_lock(&host_memory_lock);
    const struct host_region *region = host_region_at((uintptr_t)address);
    bool found = region && !region->granules;
    const struct host_region copy = found ? *region : (struct host_region){0};
    mutex_unlock(&host_memory_lock);
    if (!found || !data)
        return CU_INVALID_VALUE;
    cu_pool pool = sim_pool_of(copy.address);
    uint64_t value = 0;
    size_t size = sizeof(int);
    switch ((enum attribute)attribute) {
    case CONTEXT:
        value = pool ? 0 : (uintptr_t)sim_context(copy.device->number), size = sizeof value;
        break;
    case TYPE:
        value = 2;
        break;
    case POINTER:
        value = address, size = sizeof value;
        break;
    case BUFFER_ID:
        value = copy.plain, size = sizeof value;
        break;
    case MANAGED:
        break;
    case ORDINAL:
        value = (unsigned)copy.device->number;
        break;
    case LEGACY_IPC:
        value = !pool;
        break;
    case START:
        value = copy.address, size = sizeof value;
        break;
    case SIZE:
        value = copy.size, size = sizeof value;
        break;
    case MAPPED:
        value = 1;
        break;
    case POOL:
        value = (uintptr_t)pool, size = sizeof value;
        break;
    default:
        return CU_INVALID_VALUE;
    }
    memcpy(data, &value, size);
    return CU_OK;
}

cu_result cuPointerGetAttribute(void *data, unsigned attribute, cu_address address)
{
    cu_result code = sim_enter_process("cuPointerGetAttribute");
    return code ? code : attribute_of(data, attribute, address);
}

/* An attribute that is not known is 0. */
cu_result cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data,
                                 cu_address address)
{
    cu_result code = sim_enter_process("cuPointerGetAttributes");
    if (code || !count || !attributes || !data)
        return code ? code : CU_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (data[i] && attribute_of(data[i], attributes[i], address))
            memset(data[i], 0, sizeof(int));
    return CU_OK;
}

cu_result cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    int device;
    cu_result code = sim_enter("cuMemHostAlloc", &device);
    if (code)
        return code;
    if (!memory || !size || flags > 7)
        return CU_INVALID_VALUE;
    uintptr_t result = 0;
    code = sim_code(driver->host_alloc(device, size, &result));
    if (!code)
        *memory = (void *)result;
    return code;
}

cu_result cuMemAllocHost_v2(void **memory, size_t size)
{
    return cuMemHostAlloc(memory, size, 0);
}

cu_result cuMemFreeHost(void *memory)
{
    int device;
    cu_result code = sim_enter("cuMemFreeHost", &device);
    return code ? code : sim_code(driver->host_free(device, (uintptr_t)memory));
}

/* Unlike the real call, this takes only whole pages. */
cu_result cuMemHostRegister_v2(void *memory, size_t size, unsigned flags)
{
    int device;
    cu_result code = sim_enter("cuMemHostRegister", &device);
    if (code)
        return code;
    if (!memory || !size || flags > 15)
        return CU_INVALID_VALUE;
    return sim_code(driver->host_register(device, (uintptr_t)memory, size));
}

cu_result cuMemHostUnregister(void *memory)
{
    int device;
    cu_result code = sim_enter("cuMemHostUnregister", &device);
    if (code)
        return code;
    code = sim_code(driver->host_unregister(device, (uintptr_t)memory));
    return code == CU_INVALID_VALUE ? CU_HOST_NOT_REGISTERED : code;
}

/* ---- Virtual memory ---- */

static cu_result check_properties(const struct cu_allocation_properties *properties)
{
    if (!properties || properties->type != CU_ALLOCATION_PINNED ||
        properties->handle_types > CU_HANDLE_POSIX_FD)
        return CU_INVALID_VALUE;
    if (properties->location.type == CU_LOCATION_HOST_NUMA && sim_card()->no_host_pieces)
        return CU_NOT_SUPPORTED;
    if (properties->location.type == CU_LOCATION_HOST_NUMA)
        return properties->location.id == 0 && !properties->handle_types ? CU_OK : CU_INVALID_VALUE;
    if (properties->location.type != CU_LOCATION_DEVICE)
        return CU_INVALID_VALUE;
    int count = 0;
    if (driver->device_count(&count) || properties->location.id < 0 ||
        properties->location.id >= count)
        return CU_INVALID_DEVICE;
    return CU_OK;
}

cu_result cuMemGetAllocationGranularity(size_t *size,
                                        const struct cu_allocation_properties *properties,
                                        cu_granularity_kind kind)
{
    struct driver_properties known;
    cu_result code = sim_enter_process("cuMemGetAllocationGranularity");
    if (!code)
        code = check_properties(properties);
    if (code)
        return code;
    if (!size || kind > 1)
        return CU_INVALID_VALUE;
    bool of_host = properties->location.type == CU_LOCATION_HOST_NUMA;
    code = sim_code(driver->device_properties(of_host ? 0 : properties->location.id, &known));
    if (!code)
        *size = kind == CU_GRANULARITY_RECOMMENDED ? known.recommended : known.granule;
    return code;
}

cu_result cuMemAddressReserve(cu_address *address, size_t size, size_t alignment, cu_address hint,
                              unsigned long long flags)
{
    int device;
    uintptr_t result = (uintptr_t)hint;
    cu_result code = sim_enter("cuMemAddressReserve", &device);
    if (code)
        return code;
    if (!address || flags)
        return CU_INVALID_VALUE;
    const struct sim_card *card = sim_card();
    if ((card->address_bits && size >> (card->address_bits - 1)) ||
        (card->reservation && size >= card->reservation))
        return CU_OUT_OF_MEMORY;
    code = sim_code(driver->reserve(device, size, alignment, &result));
    if (!code)
        *address = result;
    return code;
}

cu_result cuMemAddressFree(cu_address address, size_t size)
{
    int device;
    cu_result code = enter_at("cuMemAddressFree", address, &device);
    return code ? code : sim_code(driver->unreserve(device, (uintptr_t)address, size));
}

cu_result cuMemCreate(cu_piece *piece, size_t size,
                      const struct cu_allocation_properties *properties, unsigned long long flags)
{
    int current;
    driver_piece result = 0;
    cu_result code = sim_enter("cuMemCreate", &current);
    if (!code)
        code = check_properties(properties);
    if (code)
        return code;
    if (!piece || flags || (properties->handle_types && sim_card()->no_posix_fd))
        return CU_INVALID_VALUE;
    bool of_host = properties->location.type == CU_LOCATION_HOST_NUMA;
    int device = of_host ? current : properties->location.id;
    unsigned kind = of_host                                         ? DRIVER_PIECE_HOST
                    : properties->handle_types & CU_HANDLE_POSIX_FD ? DRIVER_PIECE_EXPORTABLE
                                                                    : 0;
    code = sim_code(driver->create(device, size, kind, &result));
    if (!code)
        *piece = (cu_piece)device << PIECE_BITS | (result & PIECE_MASK);
    return code;
}

cu_result cuMemRelease(cu_piece piece)
{
    int current;
    cu_result code = sim_enter("cuMemRelease", &current);
    if (code)
        return code;
    return sim_code(driver->release((int)(piece >> PIECE_BITS), piece & PIECE_MASK));
}

cu_result cuMemExportToShareableHandle(void *handle, cu_piece piece, cu_handle_kind kind,
                                       unsigned long long flags)
{
    int current, file = -1;
    cu_result code = sim_enter("cuMemExportToShareableHandle", &current);
    if (code)
        return code;
    if (!handle || kind != CU_HANDLE_POSIX_FD || flags)
        return CU_INVALID_VALUE;
    code = sim_code(driver->export((int)(piece >> PIECE_BITS), piece & PIECE_MASK, &file));
    if (!code)
        *(int *)handle = file;
    return code;
}

/* The piece counts as one of the current device, because a memfd does not say which device it came
 * from. */
cu_result cuMemImportFromShareableHandle(cu_piece *piece, void *handle, cu_handle_kind kind)
{
    int device, file = (int)(intptr_t)handle;
    struct stat known;
    driver_piece result = 0;
    cu_result code = sim_enter("cuMemImportFromShareableHandle", &device);
    if (code)
        return code;
    if (!piece || kind != CU_HANDLE_POSIX_FD || fstat(file, &known))
        return CU_INVALID_VALUE;
    code = sim_code(driver->import(device, file, (size_t)known.st_size, &result));
    if (!code)
        *piece = (cu_piece)device << PIECE_BITS | (result & PIECE_MASK);
    return code;
}

cu_result cuMemMap(cu_address address, size_t size, size_t offset, cu_piece piece,
                   unsigned long long flags)
{
    int device;
    cu_result code = enter_at("cuMemMap", address, &device);
    if (code)
        return code;
    if (offset || flags || (int)(piece >> PIECE_BITS) != device)
        return CU_INVALID_VALUE;
    return sim_code(driver->map(device, (uintptr_t)address, size, piece & PIECE_MASK));
}

cu_result cuMemUnmap(cu_address address, size_t size)
{
    int device;
    cu_result code = enter_at("cuMemUnmap", address, &device);
    return code ? code : sim_code(driver->unmap(device, (uintptr_t)address, size));
}

cu_result cuMemSetAccess(cu_address address, size_t size, const struct cu_access *access,
                         size_t count)
{
    int device, devices[TARN_MAX_DEVICES];
    cu_result code = enter_at("cuMemSetAccess", address, &device);
    if (code)
        return code;
    if (!access || !count || count > TARN_MAX_DEVICES)
        return CU_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_LOCATION_DEVICE)
            return CU_INVALID_VALUE;
        if (access[i].flags != access[0].flags ||
            (access[i].flags != CU_ACCESS_READ_WRITE && access[i].flags != CU_ACCESS_READ))
            return CU_NOT_SUPPORTED;
        devices[i] = access[i].location.id;
    }
    if (access[0].flags == CU_ACCESS_READ)
        return sim_code(driver->set_read(device, (uintptr_t)address, size, devices, (int)count));
    return sim_code(driver->set_access(device, (uintptr_t)address, size, devices, (int)count));
}

/* ---- Copies ---- */

/* Which ends of a copy must be device memory. */
enum { ANY_END = 0, TO_DEVICE = 1, FROM_DEVICE = 2 };

static bool is_device_memory(uintptr_t address)
{
    int device;
    uintptr_t base;
    size_t size;
    return region_of(address, &device, &base, &size);
}

static cu_result copy(const char *call, int ends, uintptr_t to, uintptr_t from, size_t size,
                      cu_stream stream, bool wait)
{
    int device;
    driver_stream queue;
    cu_result code = sim_enter(call, &device);
    if (!code)
        code = sim_stream(stream, &device, &queue);
    if (code)
        return code;
    if ((ends & TO_DEVICE && !is_device_memory(to)) ||
        (ends & FROM_DEVICE && !is_device_memory(from)))
        return CU_INVALID_VALUE;
    code = sim_code(driver->copy(device, to, from, size, queue));
    if (!code && wait)
        code = sim_code(driver->stream_synchronize(device, queue));
    return code;
}

static cu_result fill(const char *call, cu_address address, unsigned char value, size_t size,
                      cu_stream stream, bool wait)
{
    int device;
    driver_stream queue;
    cu_result code = sim_enter(call, &device);
    if (!code)
        code = sim_stream(stream, &device, &queue);
    if (code)
        return code;
    if (!is_device_memory((uintptr_t)address))
        return CU_INVALID_VALUE;
    code = sim_code(driver->set(device, (uintptr_t)address, value, size, queue));
    if (!code && wait)
        code = sim_code(driver->stream_synchronize(device, queue));
    return code;
}

cu_result cuMemcpyAsync(cu_address to, cu_address from, size_t size, cu_stream stream)
{
    return copy("cuMemcpyAsync", ANY_END, (uintptr_t)to, (uintptr_t)from, size, stream, false);
}

cu_result cuMemcpyHtoDAsync_v2(cu_address to, const void *from, size_t size, cu_stream stream)
{
    return copy("cuMemcpyHtoDAsync", TO_DEVICE, (uintptr_t)to, (uintptr_t)from, size, stream,
                false);
}

cu_result cuMemcpyDtoHAsync_v2(void *to, cu_address from, size_t size, cu_stream stream)
{
    return copy("cuMemcpyDtoHAsync", FROM_DEVICE, (uintptr_t)to, (uintptr_t)from, size, stream,
                false);
}

cu_result cuMemcpyDtoDAsync_v2(cu_address to, cu_address from, size_t size, cu_stream stream)
{
    return copy("cuMemcpyDtoDAsync", TO_DEVICE | FROM_DEVICE, (uintptr_t)to, (uintptr_t)from, size,
                stream, false);
}

cu_result cuMemcpy(cu_address to, cu_address from, size_t size)
{
    return copy("cuMemcpy", ANY_END, (uintptr_t)to, (uintptr_t)from, size, NULL, true);
}

cu_result cuMemcpyHtoD_v2(cu_address to, const void *from, size_t size)
{
    return copy("cuMemcpyHtoD", TO_DEVICE, (uintptr_t)to, (uintptr_t)from, size, NULL, true);
}

cu_result cuMemcpyDtoH_v2(void *to, cu_address from, size_t size)
{
    return copy("cuMemcpyDtoH", FROM_DEVICE, (uintptr_t)to, (uintptr_t)from, size, NULL, true);
}

cu_result cuMemcpyDtoD_v2(cu_address to, cu_address from, size_t size)
{
    return copy("cuMemcpyDtoD", TO_DEVICE | FROM_DEVICE, (uintptr_t)to, (uintptr_t)from, size, NULL,
                true);
}

cu_result cuMemsetD8Async(cu_address address, unsigned char value, size_t count, cu_stream stream)
{
    return fill("cuMemsetD8Async", address, value, count, stream, false);
}

cu_result cuMemsetD8_v2(cu_address address, unsigned char value, size_t count)
{
    return fill("cuMemsetD8", address, value, count, NULL, true);
}
