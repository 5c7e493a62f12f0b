/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Physical memory, addresses and what is mapped where.
 *
 * An ordinary piece is a stretch of its device's memfd, which only ever grows: a piece is contiguous there, an offset is
 * never used twice, and a release punches the stretch out. An exportable piece has a memfd of its own. A reserved range
 * is PROT_NONE address space with one index entry a granule, so an address leads to its mapping in two steps. A plain
 * allocation is anonymous memory of whole granules.
 *
 * Budget: `vmas` is an upper bound of what the kernel counts for us. In a range each mapping and each hole between is one
 * (that neighbours may merge is not counted on), a plain allocation is one. So taking a mapping away never needs more
 * than is counted, and what gives memory back never fails for the budget.
 *
 * A leaving mapping was unmapped while queued work uses it (the checker saw it): for its owner it is gone, but it stays
 * until that work ends; until then its address is TARN_ERROR_BUSY to map and unreserve. Ours are hidden from fork
 * children once they are accessible.
 *
 * Everything here is under `lock`, the first in the order of locks; system calls are made with it. */
#include "base/lock.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/tree.h"
#include "driver/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECES_PER_CHUNK ((size_t)1024)
#define CHUNKS ((size_t)8192)

struct host_mapping {
    struct host_mapping *next_of_piece, *next_leaving;
    struct host_region *region;
    struct host_piece *piece;
    uintptr_t address;
    bool accessible, leaving;
};

/* A slot. Its handle is slot + 1 below, and above the number of pieces that the slot held before, so that none comes twice. */
struct host_piece {
    uint64_t handle;
    struct host_device *device;
    size_t size;
    uint64_t offset; /* in the device's file, or 0 in its own */
    int file;        /* its own memfd, or -1 */
    bool live;       /* created and not released */
    bool exists;     /* live, or released and still mapped */
    struct host_mapping *mappings;
    struct host_piece *next_free;
};

/* A reserved range, or a plain allocation, which has no index. */
struct host_region {
    struct tree_node node;
    struct host_device *device;
    uintptr_t address;
    size_t size;
    struct host_mapping **granules; /* of a range: the mapping that covers each granule, or NULL */
    uint64_t mappings;              /* leaving ones among them */
    uint64_t plain;                 /* of a plain allocation: its handle as a piece */
};

static int region_order(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct host_region, node)->address;
    uintptr_t y = TREE_ENTRY(b, struct host_region, node)->address;
    return (x > y) - (x < y);
}

static mutex lock = MUTEX_INITIALIZER;
static struct tree regions = {.order = region_order};
static struct host_region *recent; /* the region found last, or NULL */
static size_t vmas;
static struct host_mapping *leaving;
static struct host_piece *chunks[CHUNKS];
static size_t slots_used;
static struct host_piece *free_slots;
static struct object_pool mapping_objects = OBJECT_POOL(struct host_mapping);
static struct object_pool region_objects = OBJECT_POOL(struct host_region);

/* ---- Looking up ------------------------------------------------------------------------------------------------------ */

static bool region_ends_after(const struct tree_node *node, uint64_t key)
{
    const struct host_region *region = TREE_ENTRY(node, struct host_region, node);
    return region->address + region->size > key;
}

/* The region that holds `address`, or NULL. */
static struct host_region *region_at(uintptr_t address)
{
    if (recent && address - recent->address < recent->size)
        return recent;
    struct tree_node *node = tree_find_first(&regions, region_ends_after, address);
    struct host_region *region = node ? TREE_ENTRY(node, struct host_region, node) : NULL;
    if (!region || region->address > address)
        return NULL;
    return recent = region;
}

/* The range that holds all of [address, address + size), or NULL. */
static struct host_region *range_around(const struct host_device *device, uintptr_t address, size_t size)
{
    struct host_region *region = region_at(address);
    if (!region || !region->granules || region->device != device || size > region->size - (address - region->address))
        return NULL;
    return region;
}

static struct host_mapping **granule_of(const struct host_region *range, uintptr_t address)
{
    return &range->granules[(address - range->address) / HOST_GRANULE];
}

static struct host_piece *piece_find(driver_piece handle)
{
    size_t slot = (size_t)(handle & UINT32_MAX) - 1;
    if (slot >= slots_used)
        return NULL;
    struct host_piece *piece = &chunks[slot / PIECES_PER_CHUNK][slot % PIECES_PER_CHUNK];
    return piece->exists && piece->handle == handle ? piece : NULL;
}

static bool off_granule(uintptr_t address, size_t size)
{
    return size == 0 || (address | size) % HOST_GRANULE;
}

static tarn_status refuse_off_granule(const char *call, uintptr_t address, size_t size)
{
    return fail(TARN_ERROR_INVALID_ARGUMENT,
                "host %s: address %#" PRIxPTR " or size %zu is not a multiple of 2 MiB above 0", call, address, size);
}

/* ---- The budget of mappings ------------------------------------------------------------------------------------------ */

/* How many more of the kernel's mappings a mapping at [address, end) of the range is than the hole it lies in: one for each
 * side on which a hole remains. */
static size_t mapping_cost(const struct host_region *range, uintptr_t address, uintptr_t end)
{
    bool left = address > range->address && !*granule_of(range, address - HOST_GRANULE);
    bool right = end < range->address + range->size && !*granule_of(range, end);
    return (size_t)left + (size_t)right;
}

static tarn_status refuse_mapping(const char *call, size_t wanted)
{
    return fail(
        TARN_ERROR_MAPPING_LIMIT,
        "host %s: %zu mappings exist and %zu more are needed; the limit is %zu by %s. Larger pieces need fewer; the "
        "machine's limit is raised by: sysctl -w vm.max_map_count=1048576",
        call, vmas, wanted, host.maps, host.maps_from);
}

static bool budget_has(size_t wanted)
{
    return wanted == 0 || vmas + wanted <= host.maps;
}

/* What the kernel refused, as a status. */
static tarn_status system_failed(const char *call, const char *function)
{
    int code = errno;
    if (code == ENOMEM)
        return fail(TARN_ERROR_MAPPING_LIMIT,
                    "host %s: %s gave ENOMEM: %zu mappings of ours exist, of %zu by %s. The process is at the "
                    "machine's limit of "
                    "mappings (raised by: sysctl -w vm.max_map_count=1048576) or of address space (ulimit -v)",
                    call, function, vmas, host.maps, host.maps_from);
    return fail(TARN_ERROR_DRIVER, "host %s: %s: %s", call, function, strerror(code));
}

/* ---- Address space --------------------------------------------------------------------------------------------------- */

/* Maps anonymous memory at a multiple of `alignment`. NULL, with errno, where the kernel has none. */
static void *map_aligned(size_t size, size_t alignment, int protection)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t whole;
    if (__builtin_add_overflow(size, alignment, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    void *memory = mmap(NULL, whole, protection, flags, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    uintptr_t start = (uintptr_t)memory, address = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (address > start)
        munmap(memory, address - start);
    if (address + size < start + whole)
        munmap((void *)(address + size), start + whole - address - size);
    return (void *)address;
}

static tarn_status reserve_locked(struct host_device *device, size_t size, size_t alignment, uintptr_t *address)
{
    if (size > 4 * device->memory - device->reserved_addresses)
        return fail(TARN_ERROR_OUT_OF_MEMORY,
                    "host reserve: %zu bytes of addresses on device %d, where %" PRIu64 " of %zu are reserved", size,
                    device->number, device->reserved_addresses, 4 * device->memory);
    if (!budget_has(1))
        return refuse_mapping("reserve", 1);

    struct host_region *range = object_alloc(&region_objects);
    if (!range)
        return fail(TARN_ERROR_OUT_OF_HOST_MEMORY, "host reserve: no memory for the range");
    range->granules = pages_map(size / HOST_GRANULE * sizeof *range->granules);
    if (!range->granules) {
        object_free(&region_objects, range);
        return fail(TARN_ERROR_OUT_OF_HOST_MEMORY, "host reserve: no memory for the index of the range");
    }
    void *memory = map_aligned(size, alignment, PROT_NONE);
    if (!memory) {
        tarn_status status = system_failed("reserve", "mmap");
        pages_unmap(range->granules, size / HOST_GRANULE * sizeof *range->granules);
        object_free(&region_objects, range);
        return status;
    }
    range->device = device;
    range->address = (uintptr_t)memory;
    range->size = size;
    tree_insert(&regions, &range->node);
    device->reserved_addresses += size;
    vmas++;
    *address = range->address;
    return TARN_OK;
}

tarn_status host_reserve(int number, size_t size, size_t alignment, uintptr_t *address)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_reserve, number, &device);
    if (status)
        return status;
    if (alignment == 0)
        alignment = HOST_GRANULE;
    if (off_granule(0, size) || alignment % HOST_GRANULE || (alignment & (alignment - 1)))
        return fail(
            TARN_ERROR_INVALID_ARGUMENT,
            "host reserve: size %zu is not a multiple of 2 MiB above 0, or alignment %zu not a power of two from there",
            size, alignment);
    mutex_lock(&lock);
    status = reserve_locked(device, size, alignment, address);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_reserve, size, 0);
    return status;
}

static void region_forget(struct host_region *region)
{
    tree_remove(&regions, &region->node);
    if (recent == region)
        recent = NULL;
    if (region->granules)
        pages_unmap(region->granules, region->size / HOST_GRANULE * sizeof *region->granules);
    object_free(&region_objects, region);
}

static tarn_status unreserve_locked(struct host_device *device, uintptr_t address, size_t size)
{
    struct host_region *range = range_around(device, address, size);
    if (!range || range->address != address || range->size != size)
        return fail(TARN_ERROR_INVALID_ARGUMENT,
                    "host unreserve: %#" PRIxPTR " with %zu bytes is not a range as it was reserved on device %d",
                    address, size, device->number);
    for (const struct host_mapping *mapping = leaving; mapping; mapping = mapping->next_leaving)
        if (mapping->region == range)
            return fail(TARN_ERROR_BUSY,
                        "host unreserve: %#" PRIxPTR " was unmapped while queued work uses it, which has not ended",
                        mapping->address);
    if (range->mappings)
        return fail(TARN_ERROR_INVALID_ARGUMENT, "host unreserve: %" PRIu64 " pieces are mapped in %#" PRIxPTR " still",
                    range->mappings, address);
    if (munmap((void *)address, size))
        return system_failed("unreserve", "munmap");
    region_forget(range);
    device->reserved_addresses -= size;
    vmas--;
    return TARN_OK;
}

tarn_status host_unreserve(int number, uintptr_t address, size_t size)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_unreserve, number, &device);
    if (status)
        return status;
    mutex_lock(&lock);
    status = unreserve_locked(device, address, size);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_unreserve, size, 0);
    return status;
}

/* ---- Pieces ---------------------------------------------------------------------------------------------------------- */

/* A slot, with its handle and nothing else set; NULL where the host has no memory. */
static struct host_piece *slot_take(void)
{
    struct host_piece *piece = free_slots;
    if (piece) {
        free_slots = piece->next_free;
        uint64_t handle = piece->handle + ((uint64_t)1 << 32);
        *piece = (struct host_piece){.handle = handle, .file = -1};
        return piece;
    }
    if (slots_used == CHUNKS * PIECES_PER_CHUNK)
        return NULL;
    struct host_piece **chunk = &chunks[slots_used / PIECES_PER_CHUNK];
    if (!*chunk)
        *chunk = pages_map(PIECES_PER_CHUNK * sizeof **chunk);
    if (!*chunk)
        return NULL;
    piece = &(*chunk)[slots_used % PIECES_PER_CHUNK];
    *piece = (struct host_piece){.handle = ++slots_used, .file = -1};
    return piece;
}

static void slot_give(struct host_piece *piece)
{
    piece->live = piece->exists = false;
    piece->next_free = free_slots;
    free_slots = piece;
}

/* Gives the piece a stretch of the device's file. The file grows by the device's size at a time: it is sparse. */
static tarn_status piece_place(struct host_device *device, struct host_piece *piece)
{
    if (device->file < 0) {
        device->file = memfd_create("tarn-device", MFD_CLOEXEC);
        if (device->file < 0)
            return system_failed("create", "memfd_create");
    }
    uint64_t end = device->file_next + piece->size;
    if (end > device->file_end) {
        uint64_t length = end + device->memory;
        if (ftruncate(device->file, (off_t)length))
            return system_failed("create", "ftruncate");
        device->file_end = length;
    }
    piece->offset = device->file_next;
    device->file_next = end;
    return TARN_OK;
}

static tarn_status piece_open(struct host_piece *piece)
{
    piece->file = memfd_create("tarn-piece", MFD_CLOEXEC);
    if (piece->file < 0)
        return system_failed("create", "memfd_create");
    if (ftruncate(piece->file, (off_t)piece->size) == 0)
        return TARN_OK;
    tarn_status status = system_failed("create", "ftruncate");
    close(piece->file);
    return status;
}

static tarn_status refuse_full(const char *call, const struct host_device *device, size_t size)
{
    return fail(TARN_ERROR_OUT_OF_MEMORY, "host %s: %zu bytes on device %d, where %" PRIu64 " of %zu are created", call,
                size, device->number, device->created, device->memory);
}

static void ledger_created(struct host_device *device, size_t size)
{
    device->created += size;
    if (device->created > device->created_peak)
        device->created_peak = device->created;
}

static tarn_status create_locked(struct host_device *device, size_t size, unsigned flags, driver_piece *handle)
{
    if (size > device->memory - device->created)
        return refuse_full("create", device, size);
    struct host_piece *piece = slot_take();
    if (!piece)
        return fail(TARN_ERROR_OUT_OF_HOST_MEMORY, "host create: no memory for the piece");
    piece->device = device;
    piece->size = size;
    tarn_status status = flags & DRIVER_PIECE_EXPORTABLE ? piece_open(piece) : piece_place(device, piece);
    if (status) {
        slot_give(piece);
        return status;
    }
    piece->live = piece->exists = true;
    device->pieces++;
    ledger_created(device, size);
    *handle = piece->handle;
    return TARN_OK;
}

tarn_status host_create(int number, size_t size, unsigned flags, driver_piece *piece)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_create, number, &device);
    if (status)
        return status;
    if (off_granule(0, size) || flags & ~DRIVER_PIECE_EXPORTABLE)
        return fail(TARN_ERROR_INVALID_ARGUMENT,
                    "host create: size %zu is not a multiple of 2 MiB above 0, or flags %#x unknown", size, flags);
    mutex_lock(&lock);
    status = create_locked(device, size, flags, piece);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_create, size, 1);
    return status;
}

/* The piece is released and not mapped: its memory goes back to the machine. A hole that cannot be punched stays as unused
 * memory of the file; the offset is not used again. */
static void piece_end(struct host_piece *piece)
{
    struct host_device *device = piece->device;
    if (piece->file >= 0)
        close(piece->file);
    else
        (void)fallocate(device->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)piece->offset,
                        (off_t)piece->size);
    device->created -= piece->size;
    device->pieces--;
    slot_give(piece);
}

/* Release of a piece is legal while it is mapped; the checker speaks up only where its memory is in use and no unmap was
 * reported for that already. */
static tarn_status release_locked(struct host_device *device, driver_piece handle)
{
    struct host_piece *piece = piece_find(handle);
    if (!piece || !piece->live || piece->device != device)
        return fail(TARN_ERROR_INVALID_ARGUMENT, "host release: %#" PRIx64 " is not a piece of device %d%s", handle,
                    device->number, piece && piece->device == device ? ": it was released before" : "");
    if (atomic_load_explicit(&host.checking, memory_order_relaxed))
        for (const struct host_mapping *mapping = piece->mappings; mapping; mapping = mapping->next_of_piece)
            if (!mapping->leaving)
                host_check_in_use("release", device, mapping->address, piece->size);
    piece->live = false;
    if (!piece->mappings)
        piece_end(piece);
    return TARN_OK;
}

tarn_status host_release(int number, driver_piece piece)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_release, number, &device);
    if (status)
        return status;
    mutex_lock(&lock);
    status = release_locked(device, piece);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_release, 0, 1);
    host_settle();
    return status;
}

/* ---- Mapping --------------------------------------------------------------------------------------------------------- */

static tarn_status map_check(const struct host_device *device, uintptr_t address, size_t size, driver_piece handle)
{
    const struct host_piece *piece = piece_find(handle);
    if (!piece || !piece->live || piece->device != device)
        return fail(TARN_ERROR_INVALID_ARGUMENT, "host map: %#" PRIx64 " is not a piece of device %d", handle,
                    device->number);
    if (piece->size != size)
        return fail(TARN_ERROR_INVALID_ARGUMENT, "host map: %zu bytes of a piece of %zu; pieces are mapped whole", size,
                    piece->size);
    const struct host_region *range = range_around(device, address, size);
    if (!range)
        return fail(TARN_ERROR_INVALID_ARGUMENT,
                    "host map: %#" PRIxPTR " with %zu bytes is not inside a reserved range of device %d", address, size,
                    device->number);
    for (uintptr_t at = address; at < address + size; at += HOST_GRANULE) {
        const struct host_mapping *mapping = *granule_of(range, at);
        if (mapping && mapping->leaving)
            return fail(TARN_ERROR_BUSY,
                        "host map: %#" PRIxPTR " was unmapped while queued work uses it, which has not ended", at);
        if (mapping)
            return fail(TARN_ERROR_INVALID_ARGUMENT, "host map: a piece is mapped at %#" PRIxPTR " already", at);
    }
    size_t cost = mapping_cost(range, address, address + size);
    return budget_has(cost) ? TARN_OK : refuse_mapping("map", cost);
}

static tarn_status map_locked(struct host_device *device, uintptr_t address, size_t size, driver_piece handle)
{
    tarn_status status = map_check(device, address, size, handle);
    if (status)
        return status;
    struct host_region *range = region_at(address);
    struct host_piece *piece = piece_find(handle);
    struct host_mapping *mapping = object_alloc(&mapping_objects);
    if (!mapping)
        return fail(TARN_ERROR_OUT_OF_HOST_MEMORY, "host map: no memory for the mapping");
    int file = piece->file >= 0 ? piece->file : device->file;
    if (mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, (off_t)piece->offset) ==
        MAP_FAILED) {
        status = system_failed("map", "mmap");
        object_free(&mapping_objects, mapping);
        return status;
    }
    *mapping =
        (struct host_mapping){.next_of_piece = piece->mappings, .region = range, .piece = piece, .address = address};
    piece->mappings = mapping;
    vmas += mapping_cost(range, address, address + size);
    for (uintptr_t at = address; at < address + size; at += HOST_GRANULE)
        *granule_of(range, at) = mapping;
    range->mappings++;
    device->mappings++;
    device->mapped += size;
    if (device->mapped > device->mapped_peak)
        device->mapped_peak = device->mapped;
    return TARN_OK;
}

tarn_status host_map(int number, uintptr_t address, size_t size, driver_piece piece)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_map, number, &device);
    if (status)
        return status;
    if (off_granule(address, size))
        return refuse_off_granule("map", address, size);
    mutex_lock(&lock);
    status = map_locked(device, address, size, piece);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_map, size, 1);
    return status;
}

/* Fails unless [address, address + size) is exactly one or more mappings in a row; counts them. */
static tarn_status check_row(const char *call, struct host_device *device, uintptr_t address, size_t size,
                             uint64_t *count)
{
    const struct host_region *range = range_around(device, address, size);
    if (!range)
        return fail(TARN_ERROR_INVALID_ARGUMENT,
                    "host %s: %#" PRIxPTR " with %zu bytes is not inside a reserved range of device %d", call, address,
                    size, device->number);
    uintptr_t end = address + size;
    *count = 0;
    for (uintptr_t at = address; at < end; ++*count) {
        const struct host_mapping *mapping = *granule_of(range, at);
        if (!mapping || mapping->leaving)
            return fail(TARN_ERROR_INVALID_ARGUMENT, "host %s: nothing is mapped at %#" PRIxPTR, call, at);
        if (mapping->address != at || mapping->piece->size > end - at)
            return fail(TARN_ERROR_INVALID_ARGUMENT,
                        "host %s: %#" PRIxPTR " with %zu bytes cuts the mapping of %zu bytes at %#" PRIxPTR, call,
                        address, size, mapping->piece->size, mapping->address);
        at += mapping->piece->size;
    }
    return TARN_OK;
}

static tarn_status set_access_locked(struct host_device *device, uintptr_t address, size_t size, uint64_t *count)
{
    tarn_status status = check_row("set_access", device, address, size, count);
    if (status)
        return status;
    if (mprotect((void *)address, size, PROT_READ | PROT_WRITE))
        return system_failed("set_access", "mprotect");
    (void)madvise((void *)address, size, MADV_DONTFORK);
    const struct host_region *range = region_at(address);
    for (uintptr_t at = address; at < address + size;) {
        struct host_mapping *mapping = *granule_of(range, at);
        mapping->accessible = true;
        at += mapping->piece->size;
    }
    return TARN_OK;
}

tarn_status host_set_access(int number, uintptr_t address, size_t size)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_set_access, number, &device);
    if (status)
        return status;
    if (off_granule(address, size))
        return refuse_off_granule("set_access", address, size);
    uint64_t count = 0;
    mutex_lock(&lock);
    status = set_access_locked(device, address, size, &count);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_set_access, size, count);
    return status;
}

/* Gives the addresses back to the range and its books. */
static void mapping_forget(struct host_mapping *mapping)
{
    struct host_region *range = mapping->region;
    struct host_piece *piece = mapping->piece;
    struct host_mapping **link = &piece->mappings;
    while (*link != mapping)
        link = &(*link)->next_of_piece;
    *link = mapping->next_of_piece;
    for (uintptr_t at = mapping->address; at < mapping->address + piece->size; at += HOST_GRANULE)
        *granule_of(range, at) = NULL;
    vmas -= mapping_cost(range, mapping->address, mapping->address + piece->size);
    range->mappings--;
    piece->device->mappings--;
    piece->device->mapped -= piece->size;
    object_free(&mapping_objects, mapping);
    if (!piece->live && !piece->mappings)
        piece_end(piece);
}

/* Makes [address, end), mappings in a row, PROT_NONE address space again. */
static tarn_status unmap_row(const struct host_region *range, uintptr_t address, uintptr_t end)
{
    if (address == end)
        return TARN_OK;
    if (mmap((void *)address, end - address, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        return system_failed("unmap", "mmap");
    for (uintptr_t at = address; at < end;) {
        struct host_mapping *mapping = *granule_of(range, at);
        at += mapping->piece->size;
        mapping_forget(mapping);
    }
    return TARN_OK;
}

/* Reports and defers the unmap of a mapping that queued work uses. Work that ends looks at `host.leaving`, so the mapping
 * is counted there before it is known to be in use. */
static bool leave_if_used(struct host_mapping *mapping)
{
    struct host_device *device = mapping->piece->device;
    atomic_fetch_add(&host.leaving, 1);
    if (!host_check_in_use("unmap", device, mapping->address, mapping->piece->size)) {
        atomic_fetch_sub(&host.leaving, 1);
        return false;
    }
    mapping->leaving = true;
    mapping->next_leaving = leaving;
    leaving = mapping;
    return true;
}

static tarn_status unmap_locked(struct host_device *device, uintptr_t address, size_t size, uint64_t *count)
{
    tarn_status status = check_row("unmap", device, address, size, count);
    if (status)
        return status;
    const struct host_region *range = region_at(address);
    if (!atomic_load_explicit(&host.checking, memory_order_relaxed))
        return unmap_row(range, address, address + size);

    uintptr_t from = address;
    for (uintptr_t at = address, next; at < address + size; at = next) {
        struct host_mapping *mapping = *granule_of(range, at);
        next = at + mapping->piece->size;
        if (!leave_if_used(mapping))
            continue;
        status = unmap_row(range, from, at);
        if (status)
            return status;
        from = next;
    }
    return unmap_row(range, from, address + size);
}

tarn_status host_unmap(int number, uintptr_t address, size_t size)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_unmap, number, &device);
    if (status)
        return status;
    if (off_granule(address, size))
        return refuse_off_granule("unmap", address, size);
    uint64_t count = 0;
    mutex_lock(&lock);
    status = unmap_locked(device, address, size, &count);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_unmap, size, count);
    host_settle();
    return status;
}

void host_memory_sweep(void)
{
    mutex_lock(&lock);
    for (struct host_mapping **link = &leaving; *link;) {
        struct host_mapping *mapping = *link;
        uintptr_t address = mapping->address, end = address + mapping->piece->size;
        if (host_check_in_use(NULL, mapping->piece->device, address, end - address)) {
            link = &mapping->next_leaving;
            continue;
        }
        *link = mapping->next_leaving;
        if (unmap_row(mapping->region, address, end)) { /* the kernel has no room: try again at the next sweep */
            mapping->next_leaving = *link;
            *link = mapping;
            break;
        }
        atomic_fetch_sub(&host.leaving, 1);
    }
    mutex_unlock(&lock);
}

/* ---- Plain allocations ----------------------------------------------------------------------------------------------- */

static tarn_status alloc_locked(struct host_device *device, size_t size, uintptr_t *address)
{
    if (size > device->memory - device->created)
        return refuse_full("alloc", device, size);
    if (!budget_has(1))
        return refuse_mapping("alloc", 1);
    struct host_region *region = object_alloc(&region_objects);
    struct host_piece *slot = region ? slot_take() : NULL;
    if (!slot) {
        object_free(&region_objects, region);
        return fail(TARN_ERROR_OUT_OF_HOST_MEMORY, "host alloc: no memory for the allocation");
    }
    uint64_t handle = slot->handle; /* only its number: it is no piece for anybody */
    slot_give(slot);
    void *memory = map_aligned(size, HOST_GRANULE, PROT_READ | PROT_WRITE);
    if (!memory) {
        tarn_status status = system_failed("alloc", "mmap");
        object_free(&region_objects, region);
        return status;
    }
    (void)madvise(memory, size, MADV_DONTFORK);
    region->device = device;
    region->address = (uintptr_t)memory;
    region->size = size;
    region->plain = handle;
    tree_insert(&regions, &region->node);
    vmas++;
    device->plain++;
    ledger_created(device, size);
    *address = region->address;
    return TARN_OK;
}

tarn_status host_alloc(int number, size_t size, uintptr_t *address)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_alloc, number, &device);
    if (status)
        return status;
    if (size == 0)
        return fail(TARN_ERROR_INVALID_ARGUMENT, "host alloc: of 0 bytes");
    size_t whole =
        size > SIZE_MAX - HOST_GRANULE ? SIZE_MAX - HOST_GRANULE + 1 : (size + HOST_GRANULE - 1) & ~(HOST_GRANULE - 1);
    mutex_lock(&lock);
    status = alloc_locked(device, whole, address);
    mutex_unlock(&lock);
    if (!status)
        host_charge(device, DRIVER_CALL_alloc, whole, 1);
    return status;
}

/* The plain allocation that starts at `address`; it keeps its addresses and its place in the ledger. */
static struct host_region *free_detach_locked(struct host_device *device, uintptr_t address)
{
    struct host_region *region = region_at(address);
    if (!region || region->granules || region->address != address || region->device != device)
        return NULL;
    if (atomic_load_explicit(&host.checking, memory_order_relaxed))
        host_check_in_use("free", device, address, region->size);
    tree_remove(&regions, &region->node);
    recent = NULL;
    return region;
}

static void free_finish_locked(struct host_region *region)
{
    struct host_device *device = region->device;
    munmap((void *)region->address, region->size);
    device->plain--;
    device->created -= region->size;
    vmas--;
    object_free(&region_objects, region);
}

tarn_status host_free(int number, uintptr_t address)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_free, number, &device);
    if (status)
        return status;
    mutex_lock(&lock);
    struct host_region *region = free_detach_locked(device, address);
    mutex_unlock(&lock);
    if (!region)
        return fail(TARN_ERROR_INVALID_ARGUMENT, "host free: %#" PRIxPTR " is not a plain allocation of device %d",
                    address, device->number);
    host_charge_wait(device, host_device_wait(device));
    mutex_lock(&lock);
    free_finish_locked(region);
    mutex_unlock(&lock);
    host_charge(device, DRIVER_CALL_free, 0, 1);
    host_settle();
    return TARN_OK;
}

tarn_status host_memory_info(int number, size_t *free_bytes, size_t *total_bytes)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_memory_info, number, &device);
    if (status)
        return status;
    mutex_lock(&lock);
    *free_bytes = device->memory - device->created;
    *total_bytes = device->memory;
    mutex_unlock(&lock);
    host_charge(device, DRIVER_CALL_memory_info, 0, 0);
    return TARN_OK;
}

/* ---- What lies behind an address ------------------------------------------------------------------------------------- */

/* The extent at `address` on the device, or length 0. Two steps where the region is the one asked about last. */
static tarn_host_extent extent_at(const struct host_device *device, uintptr_t address)
{
    const struct host_region *region = region_at(address);
    if (!region || region->device != device)
        return (tarn_host_extent){0};
    if (!region->granules) {
        uint64_t offset = address - region->address;
        return (tarn_host_extent){
            .piece = region->plain, .offset = offset, .length = region->size - offset, .accessible = true};
    }
    const struct host_mapping *mapping = *granule_of(region, address);
    if (!mapping || mapping->leaving)
        return (tarn_host_extent){0};
    uint64_t offset = address - mapping->address;
    return (tarn_host_extent){.piece = mapping->piece->handle,
                              .offset = offset,
                              .length = mapping->piece->size - offset,
                              .accessible = mapping->accessible};
}

tarn_status tarn_host_extent_get(int number, const void *address, size_t size, tarn_host_extent *extent)
{
    struct host_device *device;
    tarn_status status = host_use(number, &device);
    if (status)
        return status;
    if (!extent || size == 0)
        return fail(TARN_ERROR_INVALID_ARGUMENT, "tarn_host_extent_get: size is 0 or extent is NULL");
    mutex_lock(&lock);
    tarn_host_extent found = extent_at(device, (uintptr_t)address);
    mutex_unlock(&lock);
    if (found.length == 0)
        return fail(TARN_ERROR_INVALID_POINTER, "tarn_host_extent_get: nothing is mapped at %p on device %d", address,
                    number);
    if (found.length > size)
        found.length = size;
    *extent = found;
    return TARN_OK;
}

/* Where the first address at or after `address` that is in a region of ours begins; UINTPTR_MAX where there is none. */
static uintptr_t next_of_ours(uintptr_t address)
{
    struct tree_node *node = tree_find_first(&regions, region_ends_after, address);
    if (!node)
        return UINTPTR_MAX;
    uintptr_t start = TREE_ENTRY(node, struct host_region, node)->address;
    return start > address ? start : address;
}

tarn_status host_memory_accessible(const char *what, uintptr_t address, size_t size)
{
    uintptr_t at = address, end;
    if (__builtin_add_overflow(address, size, &end))
        return fail(TARN_ERROR_INVALID_ARGUMENT, "host %s: %#" PRIxPTR " with %zu bytes wraps around", what, address,
                    size);
    tarn_host_extent found = {.accessible = true, .length = 1};
    mutex_lock(&lock);
    for (at = next_of_ours(at); at < end && found.length && found.accessible; at = next_of_ours(at)) {
        found = extent_at(region_at(at)->device, at);
        if (found.length && found.accessible)
            at += found.length;
    }
    mutex_unlock(&lock);
    if (found.length && found.accessible)
        return TARN_OK;
    return fail(TARN_ERROR_INVALID_ARGUMENT, "host %s: %#" PRIxPTR " is %s", what, at,
                found.length ? "mapped but access is not set" : "reserved but nothing is mapped there");
}

/* ---- The whole ------------------------------------------------------------------------------------------------------- */

void host_memory_ledger(const struct host_device *device, tarn_host_ledger *ledger)
{
    mutex_lock(&lock);
    ledger->created = device->created;
    ledger->created_peak = device->created_peak;
    ledger->mapped = device->mapped;
    ledger->mapped_peak = device->mapped_peak;
    ledger->pieces = device->pieces;
    ledger->mappings = device->mappings;
    ledger->plain = device->plain;
    ledger->reserved_addresses = device->reserved_addresses;
    mutex_unlock(&lock);
}

void host_memory_ledger_reset(struct host_device *device)
{
    mutex_lock(&lock);
    device->created_peak = device->created;
    device->mapped_peak = device->mapped;
    mutex_unlock(&lock);
}

void host_memory_start(void)
{
    mutex_lock(&lock);
    vmas = 0;
    mutex_unlock(&lock);
}

void host_memory_finish(void)
{
    mutex_lock(&lock);
    leaving = NULL;
    for (struct tree_node *node; (node = tree_first(&regions));) {
        struct host_region *region = TREE_ENTRY(node, struct host_region, node);
        for (size_t i = 0; region->granules && region->mappings; i++)
            if (region->granules[i])
                mapping_forget(region->granules[i]);
        munmap((void *)region->address, region->size);
        region_forget(region);
    }
    for (size_t slot = 0; slot < slots_used; slot++) {
        struct host_piece *piece = &chunks[slot / PIECES_PER_CHUNK][slot % PIECES_PER_CHUNK];
        if (piece->exists && piece->file >= 0)
            close(piece->file);
    }
    for (size_t i = 0; i < CHUNKS && chunks[i]; i++) {
        pages_unmap(chunks[i], PIECES_PER_CHUNK * sizeof *chunks[i]);
        chunks[i] = NULL;
    }
    slots_used = 0;
    free_slots = NULL;
    for (int i = 0; i < TARN_MAX_DEVICES; i++)
        if (host.device[i].memory && host.device[i].file >= 0)
            close(host.device[i].file);
    mutex_unlock(&lock);
}
