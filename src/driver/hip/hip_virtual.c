/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* HIP's virtual memory as entries of the driver table. Owns, for each reserved range, what is
 * mapped where, under `ranges_lock`. This has two reasons. HIP follows an unknown address or size
 * into a NULL pointer (hipMemAddressFree, hipMemUnmap: ROCm/clr, hipamd/src/hip_vm.cpp), so it must
 * never get one. And its hipMemUnmap takes one mapping at a time, while the driver table allows
 * several in a row, all or none. Map and unmap wait for the legacy stream, because they order the
 * device. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/tree.h"
#include "driver/hip/hip.h"

#include <inttypes.h>
#include <string.h>

/* A mapping, stored at its first granule. */
#define CONTINUED SIZE_MAX
struct mapping {
    size_t size; /* bytes; CONTINUED: a further granule of a mapping; 0: nothing is mapped */
    hip_piece piece;
    uint64_t devices; /* one bit per device with access */
};

/* A reserved range. */
struct range {
    struct tree_node node;
    int device;
    uintptr_t address;
    size_t size, granule, mapped; /* bytes */
    struct mapping *mappings;     /* by granule; from pages_map() */
};

static int by_address(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t left = TREE_ENTRY(a, struct range, node)->address,
              right = TREE_ENTRY(b, struct range, node)->address;
    return left < right ? -1 : left > right;
}

static mutex ranges_lock = MUTEX_INITIALIZER(LOCK_HIP_RANGES);
static struct tree ranges = {.order = by_address}; /* under ranges_lock */
static struct object_pool range_objects = OBJECT_POOL(struct range);

/* Begins a call on virtual memory, which is off unless it was asked for. */
static tarn_status enter_virtual(int device, const char *call, struct hip_scope *scope)
{
    tarn_status status = hip_enter(device, true, scope);
    if (status || hip.device[device].virtual_memory)
        return status;
    (void)hip_leave_silently(scope, HIP_OK);
    return failed(TARN_ERROR_NOT_SUPPORTED,
                  "%s: virtual memory is not used on device %d; HIP %d.%d %s", call, device,
                  HIP_MAJOR(hip.version), hip.version / 100000 % 100,
                  hip.version < HIP_FIRST_VIRTUAL_MEMORY ? "does not have it"
                                                         : "may have it with TARN_HIP_VMM=1");
}

/* ---- Ranges ---- */

static bool ends_after(const struct tree_node *node, uint64_t address)
{
    const struct range *range = TREE_ENTRY(node, struct range, node);
    return range->address + range->size > address;
}

/* The device's range that contains all of [address, address + size), which is whole granules; or
 * NULL. */
static struct range *range_around_locked(int device, uintptr_t address, size_t size)
{
    struct tree_node *node = tree_find_first(&ranges, ends_after, address);
    struct range *range = node ? TREE_ENTRY(node, struct range, node) : NULL;
    if (!range || range->device != device || range->address > address || size == 0 ||
        size > range->size - (address - range->address) ||
        (address - range->address) % range->granule || size % range->granule)
        return NULL;
    return range;
}

static struct mapping *mapping_at(const struct range *range, uintptr_t address)
{
    return &range->mappings[(address - range->address) / range->granule];
}

/* Whether no mapping touches [address, address + size). */
static bool is_empty_locked(const struct range *range, uintptr_t address, size_t size)
{
    const struct mapping *at = mapping_at(range, address), *end = at + size / range->granule;
    while (at < end && !at->size)
        at++;
    return at == end;
}

/* Enters a mapping of [address, address + size). */
static void enter_locked(struct range *range, uintptr_t address, size_t size, hip_piece piece)
{
    struct mapping *at = mapping_at(range, address), *end = at + size / range->granule;
    *at = (struct mapping){.size = size, .piece = piece};
    while (++at < end)
        at->size = CONTINUED;
    range->mapped += size;
}

/* Removes the mappings in [address, address + size), which are whole ones in a row. */
static void remove_locked(struct range *range, uintptr_t address, size_t size)
{
    memset(mapping_at(range, address), 0, size / range->granule * sizeof(struct mapping));
    range->mapped -= size;
}

/* Whether [address, address + size) is whole mappings in a row. */
static bool is_row_locked(const struct range *range, uintptr_t address, size_t size)
{
    for (uintptr_t at = address; at < address + size;) {
        size_t mapped = mapping_at(range, at)->size;
        if (!mapped || mapped == CONTINUED || mapped > address + size - at)
            return false;
        at += mapped;
    }
    return true;
}

static void range_end(struct range *range)
{
    pages_unmap(range->mappings, range->size / range->granule * sizeof *range->mappings);
    object_free(&range_objects, range);
}

static struct range *range_create(int device, size_t size)
{
    size_t granule = hip.device[device].granule;
    struct range *range = object_alloc(&range_objects);
    if (!range)
        return NULL;
    *range = (struct range){.device = device, .size = size, .granule = granule};
    range->mappings = pages_map(size / granule * sizeof *range->mappings);
    if (range->mappings)
        return range;
    object_free(&range_objects, range);
    return NULL;
}

tarn_status hip_reserve(int device, size_t size, size_t alignment, uintptr_t *address)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    void *result = NULL;
    struct hip_scope scope;
    tarn_status status = enter_virtual(device, "hipMemAddressReserve", &scope);
    if (status)
        return status;
    if (!size || size % hip.device[device].granule)
        return hip_leave(&scope, HIP_INVALID_VALUE, "hipMemAddressReserve of %zu bytes", size);
    struct range *range = range_create(device, size);
    if (!range) {
        (void)hip_leave_silently(&scope, HIP_OK);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "hipMemAddressReserve: no host memory to remember it");
    }
    hip_result code = hip.call.hipMemAddressReserve(&result, size, alignment, (void *)*address, 0);
    if (!code && !result)
        code = HIP_OUT_OF_MEMORY;
    status = hip_leave(&scope, code, "hipMemAddressReserve of %zu bytes", size);
    if (status) {
        range_end(range);
        return status;
    }
    range->address = (uintptr_t)result;
    mutex_lock(&ranges_lock);
    tree_insert(&ranges, &range->node);
    mutex_unlock(&ranges_lock);
    *address = range->address;
    return TARN_OK;
}

tarn_status hip_unreserve(int device, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct hip_scope scope;
    tarn_status status = enter_virtual(device, "hipMemAddressFree", &scope);
    if (status)
        return status;
    mutex_lock(&ranges_lock);
    struct range *range = range_around_locked(device, address, size);
    if (range && range->address == address && range->size == size && range->mapped == 0)
        tree_remove(&ranges, &range->node);
    else
        range = NULL;
    mutex_unlock(&ranges_lock);
    if (!range)
        return hip_leave(&scope, HIP_INVALID_VALUE,
                         "hipMemAddressFree of %zu bytes at %#" PRIxPTR
                         ", which is not an empty range of this device",
                         size, address);
    hip_result code = hip.call.hipMemAddressFree((void *)address, size);
    if (code) {
        mutex_lock(&ranges_lock);
        tree_insert(&ranges, &range->node);
        mutex_unlock(&ranges_lock);
    } else {
        range_end(range);
    }
    return hip_leave(&scope, code, "hipMemAddressFree of %zu bytes at %#" PRIxPTR, size, address);
}

/* ---- Pieces ---- */

_Static_assert(sizeof(hip_piece) <= sizeof(driver_piece), "a piece holds HIP's pointer");

static hip_piece theirs(driver_piece piece)
{
    return (hip_piece)(uintptr_t)piece;
}

tarn_status hip_create(int device, size_t size, unsigned flags, driver_piece *piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    hip_piece result = NULL;
    struct hip_scope scope;
    if (flags & ~(DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA | DRIVER_PIECE_HOST))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "hipMemCreate: flags %#x are unknown", flags);
    if (flags & DRIVER_PIECE_HOST)
        return failed(TARN_ERROR_NOT_SUPPORTED, "hipMemCreate makes no pieces of host memory");
    tarn_status status = enter_virtual(device, "hipMemCreate", &scope);
    if (status)
        return status;
    /* All memory of a device can be accessed by RDMA; HIP has no flag for it. */
    const struct hip_allocation_properties properties = {
        .type = HIP_ALLOCATION_PINNED,
        .handle_types = flags & DRIVER_PIECE_EXPORTABLE ? HIP_HANDLE_POSIX_FD : HIP_HANDLE_NONE,
        .location = {.type = HIP_LOCATION_DEVICE, .id = device},
    };
    hip_result code = hip.call.hipMemCreate(&result, size, &properties, 0);
    status = hip_leave(&scope, code, "hipMemCreate of %zu bytes", size);
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER,
                      "hipMemCreate of %zu bytes on device %d succeeded and gave nothing", size,
                      device);
    *piece = (driver_piece)(uintptr_t)result;
    return TARN_OK;
}

tarn_status hip_release(int device, driver_piece piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct hip_scope scope;
    tarn_status status = enter_virtual(device, "hipMemRelease", &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipMemRelease(theirs(piece)), "hipMemRelease");
}

/* ---- Pieces between processes ---- */

bool hip_shares(void)
{
    return hip.call.hipMemExportToShareableHandle && hip.call.hipMemImportFromShareableHandle;
}

static tarn_status enter_sharing(int device, const char *call, struct hip_scope *scope)
{
    tarn_status status = enter_virtual(device, call, scope);
    if (status || hip_shares())
        return status;
    (void)hip_leave_silently(scope, HIP_OK);
    return failed(TARN_ERROR_NOT_SUPPORTED,
                  "%s: this runtime cannot share memory by a file descriptor", call);
}

tarn_status hip_export(int device, driver_piece piece, int *file)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    int result = -1;
    struct hip_scope scope;
    tarn_status status = enter_sharing(device, "hipMemExportToShareableHandle", &scope);
    if (status)
        return status;
    hip_result code = piece ? hip.call.hipMemExportToShareableHandle(&result, theirs(piece),
                                                                     HIP_HANDLE_POSIX_FD, 0)
                            : HIP_INVALID_VALUE;
    status = hip_leave(&scope, code, "hipMemExportToShareableHandle");
    if (status)
        return status;
    if (result < 0)
        return failed(TARN_ERROR_DRIVER,
                      "hipMemExportToShareableHandle on device %d succeeded and gave nothing",
                      device);
    *file = result;
    return TARN_OK;
}

/* HIP does not tell the size of a piece: a wrong size is refused by the map. */
tarn_status hip_import(int device, int file, size_t size, driver_piece *piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    hip_piece result = NULL;
    struct hip_scope scope;
    tarn_status status = enter_sharing(device, "hipMemImportFromShareableHandle", &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipMemImportFromShareableHandle(
        &result, hip_import_handle(hip.version, &file), HIP_HANDLE_POSIX_FD);
    status = hip_leave(&scope, code, "hipMemImportFromShareableHandle of %zu bytes", size);
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER,
                      "hipMemImportFromShareableHandle on device %d succeeded and gave nothing",
                      device);
    *piece = (driver_piece)(uintptr_t)result;
    return TARN_OK;
}

/* ---- Mapping ---- */

static void forget(int device, uintptr_t address, size_t size)
{
    mutex_lock(&ranges_lock);
    struct range *range = range_around_locked(device, address, size);
    if (range)
        remove_locked(range, address, size);
    mutex_unlock(&ranges_lock);
}

tarn_status hip_map(int device, uintptr_t address, size_t size, driver_piece piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct hip_scope scope;
    tarn_status status = enter_virtual(device, "hipMemMap", &scope);
    if (status)
        return status;
    /* Entered before the call, so that no other thread uses the same place. */
    mutex_lock(&ranges_lock);
    struct range *range = range_around_locked(device, address, size);
    bool fits = range && piece && is_empty_locked(range, address, size);
    if (fits)
        enter_locked(range, address, size, theirs(piece));
    mutex_unlock(&ranges_lock);
    if (!fits)
        return hip_leave(&scope, HIP_INVALID_VALUE,
                         "hipMemMap of %zu bytes at %#" PRIxPTR
                         ", which is not empty address space of this device",
                         size, address);
    hip_result code = hip.call.hipMemMap((void *)address, size, 0, theirs(piece), 0);
    if (code)
        forget(device, address, size);
    return hip_leave(&scope, code, "hipMemMap of %zu bytes at %#" PRIxPTR, size, address);
}

/* The mapping that begins at an address, if the range up to `end` is whole mappings; otherwise one
 * of size 0. */
static struct mapping first_of_row(int device, uintptr_t address, uintptr_t end)
{
    mutex_lock(&ranges_lock);
    const struct range *range = range_around_locked(device, address, end - address);
    struct mapping first = {0};
    if (range && is_row_locked(range, address, end - address))
        first = *mapping_at(range, address);
    mutex_unlock(&ranges_lock);
    return first;
}

static hip_result give_access(uintptr_t address, size_t size, uint64_t devices)
{
    struct hip_access access[TARN_MAX_DEVICES];
    size_t count = 0;
    for (int device = 0; device < TARN_MAX_DEVICES; device++)
        if (devices >> device & 1)
            access[count++] =
                (struct hip_access){.location = {.type = HIP_LOCATION_DEVICE, .id = device},
                                    .flags = HIP_ACCESS_READ_WRITE};
    return hip.call.hipMemSetAccess((void *)address, size, access, count);
}

/* Maps what an unmap has unmapped before it failed. Forgets what cannot be mapped again. */
static hip_result map_again(int device, uintptr_t start, uintptr_t end)
{
    hip_result code = HIP_OK, first_failure = HIP_OK;
    for (uintptr_t at = start; at < end;) {
        struct mapping mapping = first_of_row(device, at, end);
        code = hip.call.hipMemMap((void *)at, mapping.size, 0, mapping.piece, 0);
        if (code)
            forget(device, at, mapping.size);
        else if (mapping.devices)
            code = give_access(at, mapping.size, mapping.devices);
        first_failure = first_failure ? first_failure : code;
        at += mapping.size;
    }
    return first_failure;
}

/* If an unmap is incomplete and cannot be undone, other code would take the rest for memory: then
 * nothing of the device can be used. */
tarn_status hip_unmap(int device, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct hip_scope scope;
    tarn_status status = enter_virtual(device, "hipMemUnmap", &scope);
    if (status)
        return status;
    uintptr_t at = address, end = address + size;
    hip_result code = HIP_OK;
    if (end <= address || !first_of_row(device, address, end).size)
        return hip_leave(&scope, HIP_INVALID_VALUE,
                         "hipMemUnmap of %zu bytes at %#" PRIxPTR
                         ", which are not whole mappings of this device",
                         size, address);
    while (at < end) {
        size_t mapped = first_of_row(device, at, end).size;
        code = hip.call.hipMemUnmap((void *)at, mapped);
        if (code)
            break;
        at += mapped;
    }
    if (!code)
        forget(device, address, size);
    hip_result again = code ? map_again(device, address, at) : HIP_OK;
    status = hip_leave(&scope, code, "hipMemUnmap of %zu bytes at %#" PRIxPTR, size, address);
    if (!again)
        return status;
    (void)hip.call.hipGetLastError();
    return failed(TARN_ERROR_DEVICE_LOST,
                  "hipMemUnmap on device %d failed after %zu of %zu bytes at %#" PRIxPTR
                  ", and these cannot be mapped again",
                  device, (size_t)(at - address), size, address);
}

static void note_access(int device, uintptr_t address, size_t size, uint64_t devices)
{
    mutex_lock(&ranges_lock);
    const struct range *range = range_around_locked(device, address, size);
    for (uintptr_t at = address; range && at < address + size; at += range->granule)
        mapping_at(range, at)->devices |= devices;
    mutex_unlock(&ranges_lock);
}

tarn_status hip_set_access(int device, uintptr_t address, size_t size, const int *devices,
                           int count)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    uint64_t bits = 0;
    struct hip_scope scope;
    if (count < 1 || count > TARN_MAX_DEVICES)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "hipMemSetAccess for %d devices", count);
    for (int i = 0; i < count; i++) {
        if (devices[i] < 0 || devices[i] >= hip.devices)
            return hip_no_device(devices[i]);
        bits |= (uint64_t)1 << devices[i];
    }
    tarn_status status = enter_virtual(device, "hipMemSetAccess", &scope);
    if (status)
        return status;
    if (!first_of_row(device, address, address + size).size)
        return hip_leave(&scope, HIP_INVALID_VALUE,
                         "hipMemSetAccess on %zu bytes at %#" PRIxPTR
                         ", which are not whole mappings of this device",
                         size, address);
    hip_result code = give_access(address, size, bits);
    if (!code)
        note_access(device, address, size, bits);
    return hip_leave(&scope, code, "hipMemSetAccess for %d devices on %zu bytes at %#" PRIxPTR,
                     count, size, address);
}

void hip_virtual_finish(void)
{
    mutex_lock(&ranges_lock);
    for (struct tree_node *node; (node = tree_first(&ranges));) {
        tree_remove(&ranges, node);
        range_end(TREE_ENTRY(node, struct range, node));
    }
    mutex_unlock(&ranges_lock);
}
