/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Address space of the host device: reserved ranges, plain allocations, the budget of mappings, and
 * what is behind an address.
 *
 * A reserved range is PROT_NONE address space with one index entry per granule, so an address leads
 * to its mapping in two steps. A plain allocation is anonymous memory of whole granules, hidden
 * from children of fork().
 *
 * Budget: `vmas` is an upper bound of the kernel's mappings that the device has. In a range, each
 * mapping and each hole between mappings counts as one, although neighbours may merge; a plain
 * allocation counts as one. So removing a mapping never needs more than is counted, and code that
 * gives memory back never fails for the budget. It does not fail at the kernel's own limit either:
 * then a spare mapping is given up.
 *
 * Everything is under host_memory_lock. */
#include "base/pages.h"
#include "base/status.h"
#include "driver/host/host_memory.h"
#include "driver/host/host_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

mutex host_memory_lock = MUTEX_INITIALIZER(LOCK_HOST_MEMORY);

static int region_order(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct host_region, node)->address;
    uintptr_t y = TREE_ENTRY(b, struct host_region, node)->address;
    return (x > y) - (x < y);
}

static struct tree regions = {.order = region_order};
static struct host_region *recent; /* the region found last, or NULL */
/* Freed in the order of a stream whose work has not ended; in no tree. */
static struct host_region *freed;
static size_t vmas;
static struct object_pool region_objects = OBJECT_POOL(struct host_region);

/* ---- Looking up ---- */

static bool region_ends_after(const struct tree_node *node, uint64_t key)
{
    const struct host_region *region = TREE_ENTRY(node, struct host_region, node);
    return region->address + region->size > key;
}

/* The region that holds `address`, or NULL. */
struct host_region *host_region_at(uintptr_t address)
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
struct host_region *host_range_around(const struct host_device *device, uintptr_t address,
                                      size_t size)
{
    struct host_region *region = host_region_at(address);
    if (!region || !region->granules || region->device != device ||
        size > region->size - (address - region->address))
        return NULL;
    return region;
}

/* ---- The budget of mappings ---- */

/* By how much a mapping at [address, end) increases the kernel's number of mappings: one for each
 * side on which a hole remains. */
static size_t mapping_cost(const struct host_region *range, uintptr_t address, uintptr_t end)
{
    bool left = address > range->address && !*host_granule_of(range, address - HOST_GRANULE);
    bool right = end < range->address + range->size && !*host_granule_of(range, end);
    return (size_t)left + (size_t)right;
}

static tarn_status refuse_mapping(const char *call, size_t wanted)
{
    return failed(TARN_ERROR_MAPPING_LIMIT,
                  "host %s: %zu mappings exist and %zu more are needed; the limit is %zu by %s. "
                  "Larger pieces need fewer; the "
                  "machine's limit is raised by: sysctl -w vm.max_map_count=1048576",
                  call, vmas, wanted, host.maps, host.maps_from);
}

static bool budget_has(size_t wanted)
{
    return wanted == 0 || vmas + wanted <= host.maps;
}

tarn_status host_budget_take(const char *call)
{
    if (!budget_has(1))
        return refuse_mapping(call, 1);
    vmas++;
    return TARN_OK;
}

void host_budget_give(void)
{
    vmas--;
}

/* What the kernel refused, as a status. */
tarn_status host_system_failed(const char *call, const char *function)
{
    int code = errno;
    if (code == ENOMEM)
        return failed(TARN_ERROR_MAPPING_LIMIT,
                      "host %s: %s gave ENOMEM: %zu mappings of ours exist, of %zu by %s. The "
                      "process is at the "
                      "machine's limit of "
                      "mappings (raised by: sysctl -w vm.max_map_count=1048576) or of address "
                      "space (ulimit -v)",
                      call, function, vmas, host.maps, host.maps_from);
    return failed(TARN_ERROR_DRIVER, "host %s: %s: %s", call, function, strerror(code));
}

tarn_status host_budget_check(const struct host_region *range, uintptr_t address, uintptr_t end)
{
    size_t cost = mapping_cost(range, address, end);
    return budget_has(cost) ? TARN_OK : refuse_mapping("map", cost);
}

void host_budget_add(const struct host_region *range, uintptr_t address, uintptr_t end)
{
    vmas += mapping_cost(range, address, end);
}

void host_budget_remove(const struct host_region *range, uintptr_t address, uintptr_t end)
{
    vmas -= mapping_cost(range, address, end);
}

/* A spare mapping without content. At the limit of mappings the kernel refuses every mmap(), even
 * one that would lower their number (mm/mmap.c: `map_count > sysctl_max_map_count`). Then the spare
 * mapping is given up. It is shared memory, so it does not merge with neighbours. */
static void *spare;
static const size_t spare_size = 4096;

static void spare_make(void)
{
    if (spare)
        return;
    spare = mmap(NULL, spare_size, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (spare == MAP_FAILED)
        spare = NULL;
}

static void spare_give_up(void)
{
    if (spare)
        munmap(spare, spare_size);
    spare = NULL;
}

static bool place_nothing(uintptr_t address, size_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap((void *)address, size, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

tarn_status host_place_nothing(uintptr_t address, size_t size)
{
    bool placed = place_nothing(address, size);
    if (!placed && errno == ENOMEM && spare) {
        spare_give_up();
        placed = place_nothing(address, size);
        int code = errno;
        spare_make();
        errno = code;
    }
    return placed ? TARN_OK : host_system_failed("unmap", "mmap");
}

/* ---- Address space ---- */

/* Maps anonymous memory at a multiple of `alignment`. NULL with errno: the kernel has none. */
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
    uintptr_t start = (uintptr_t)memory,
              address = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (address > start)
        munmap(memory, address - start);
    if (address + size < start + whole)
        munmap((void *)(address + size), start + whole - address - size);
    return (void *)address;
}

/* Addresses at a wish, or anywhere. */
static void *map_at(uintptr_t wish, size_t size, size_t alignment)
{
    if (!wish || wish % alignment)
        return map_aligned(size, alignment, PROT_NONE);
    void *memory =
        mmap((void *)wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == (void *)wish)
        return memory;
    if (memory != MAP_FAILED)
        munmap(memory, size);
    return map_aligned(size, alignment, PROT_NONE);
}

static tarn_status reserve_locked(struct host_device *device, size_t size, size_t alignment,
                                  uintptr_t *address)
{
    if (size > host_addresses(device) - device->reserved_addresses)
        return failed(TARN_ERROR_OUT_OF_MEMORY,
                      "host reserve: %zu bytes of addresses on device %d, where %" PRIu64
                      " of %zu are reserved",
                      size, device->number, device->reserved_addresses, host_addresses(device));
    if (!budget_has(1))
        return refuse_mapping("reserve", 1);
    spare_make();

    struct host_region *range = object_alloc(&region_objects);
    if (!range)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host reserve: no memory for the range");
    range->granules = pages_map(size / HOST_GRANULE * sizeof *range->granules);
    if (!range->granules) {
        object_free(&region_objects, range);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "host reserve: no memory for the index of the range");
    }
    void *memory = map_at(*address, size, alignment);
    if (!memory) {
        tarn_status status = host_system_failed("reserve", "mmap");
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
    tarn_status status = host_enter_unsafe(DRIVER_CALL_reserve, number, &device);
    if (status)
        return status;
    if (alignment == 0)
        alignment = HOST_GRANULE;
    if (host_off_granule(0, size) || alignment % HOST_GRANULE || (alignment & (alignment - 1)))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host reserve: size %zu is not a multiple of 2 MiB above 0, or alignment %zu "
                      "not a power of two from there",
                      size, alignment);
    mutex_lock(&host_memory_lock);
    status = reserve_locked(device, size, alignment, address);
    mutex_unlock(&host_memory_lock);
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
    struct host_region *range = host_range_around(device, address, size);
    if (!range || range->address != address || range->size != size)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host unreserve: %#" PRIxPTR
                      " with %zu bytes is not a range as it was reserved on device %d",
                      address, size, device->number);
    uintptr_t busy;
    if (host_range_leaves(range, &busy))
        return failed(TARN_ERROR_BUSY,
                      "host unreserve: %#" PRIxPTR
                      " was unmapped while queued work uses it, which has not ended",
                      busy);
    if (range->mappings)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host unreserve: %" PRIu64 " pieces are mapped in %#" PRIxPTR " still",
                      range->mappings, address);
    if (munmap((void *)address, size))
        return host_system_failed("unreserve", "munmap");
    region_forget(range);
    device->reserved_addresses -= size;
    vmas--;
    return TARN_OK;
}

tarn_status host_unreserve(int number, uintptr_t address, size_t size)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_unreserve, number, &device);
    if (status)
        return status;
    mutex_lock(&host_memory_lock);
    status = unreserve_locked(device, address, size);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_unreserve, size, 0);
    return status;
}

tarn_status host_refuse_full(const char *call, const struct host_device *device, size_t size)
{
    return failed(TARN_ERROR_OUT_OF_MEMORY,
                  "host %s: %zu bytes on device %d, where %" PRIu64 " of %zu are created", call,
                  size, device->number, device->created, device->memory);
}

void host_ledger_created(struct host_device *device, size_t size)
{
    device->created += size;
    if (device->created > device->created_peak)
        device->created_peak = device->created;
}

/* ---- Plain allocations ---- */

static tarn_status alloc_locked(const char *call, struct host_device *device, size_t size,
                                uintptr_t *address)
{
    if (size > device->memory - device->created)
        return host_refuse_full(call, device, size);
    if (!budget_has(1))
        return refuse_mapping(call, 1);
    struct host_region *region = object_alloc(&region_objects);
    uint64_t number = region ? host_piece_number() : 0;
    if (!number) {
        object_free(&region_objects, region);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host %s: no memory for the allocation", call);
    }
    void *memory = map_aligned(size, HOST_GRANULE, PROT_READ | PROT_WRITE);
    if (!memory) {
        tarn_status status = host_system_failed(call, "mmap");
        object_free(&region_objects, region);
        return status;
    }
    (void)madvise(memory, size, MADV_DONTFORK);
    region->device = device;
    region->address = (uintptr_t)memory;
    region->size = size;
    region->plain = number;
    tree_insert(&regions, &region->node);
    vmas++;
    device->plain++;
    host_ledger_created(device, size);
    *address = region->address;
    return TARN_OK;
}

static size_t whole_granules(size_t size)
{
    return size > SIZE_MAX - HOST_GRANULE ? SIZE_MAX - HOST_GRANULE + 1
                                          : (size + HOST_GRANULE - 1) & ~(HOST_GRANULE - 1);
}

tarn_status host_alloc(int number, size_t size, uintptr_t *address)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_alloc, number, &device);
    if (status)
        return status;
    if (size == 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host alloc: of 0 bytes");
    size_t whole = whole_granules(size);
    mutex_lock(&host_memory_lock);
    status = alloc_locked("alloc", device, whole, address);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_alloc, whole, 1);
    return status;
}

/* The plain allocation that starts at `address`, or NULL. */
static struct host_region *plain_at(const struct host_device *device, uintptr_t address)
{
    struct host_region *region = host_region_at(address);
    return region && !region->granules && region->address == address && region->device == device
               ? region
               : NULL;
}

/* Takes the plain allocation at `address` out of the tree. It keeps its addresses and stays in the
 * ledger. */
static struct host_region *free_detach_locked(struct host_device *device, uintptr_t address)
{
    struct host_region *region = plain_at(device, address);
    if (!region)
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
    tarn_status status = host_enter_unsafe(DRIVER_CALL_free, number, &device);
    if (status)
        return status;
    mutex_lock(&host_memory_lock);
    struct host_region *region = free_detach_locked(device, address);
    mutex_unlock(&host_memory_lock);
    if (!region)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host free: %#" PRIxPTR " is not a plain allocation of device %d", address,
                      device->number);
    size_t size = region->size;
    host_charge_wait(device, host_device_wait(device));
    mutex_lock(&host_memory_lock);
    free_finish_locked(region);
    mutex_unlock(&host_memory_lock);
    host_charge(device, DRIVER_CALL_free, size, 1);
    host_settle();
    return TARN_OK;
}

/* ---- Plain allocations in the order of a stream ---- */

static bool is_due_locked(const struct host_region *region)
{
    return region->freed_on->done >= region->freed_at;
}

/* Waits until the oldest free with no effect yet takes effect. False: there is none, or other work
 * uses it. */
static bool freed_wait(struct host_device *device)
{
    struct host_stream *stream = NULL;
    uint64_t position = 0;
    bool due = false;
    mutex_lock(&host_memory_lock);
    host_streams_lock();
    for (const struct host_region *region = freed; region; region = region->next_freed)
        if (region->device == device && is_due_locked(region)) {
            due = due || !region->reported;
        } else if (region->device == device) {
            stream = region->freed_on;
            position = region->freed_at;
        }
    host_streams_unlock();
    mutex_unlock(&host_memory_lock);
    if (!stream || due) { /* another thread may be about to end one that is due */
        host_settle();
        return due;
    }
    host_streams_lock();
    uint64_t waited = host_stream_wait_relocking(stream, position);
    host_streams_leave();
    host_charge_wait(device, waited);
    return true;
}

/* The stream, if it orders memory now: not while it captures. */
static tarn_status ordering_stream_locked(const char *call, struct host_device *device,
                                          driver_stream handle, struct host_stream **stream)
{
    tarn_status status = host_stream_find_locked(call, device, handle, stream);
    return status ? status : host_capture_refuse_locked(call, *stream);
}

tarn_status host_alloc_async(int number, size_t size, driver_stream handle, uintptr_t *address)
{
    struct host_device *device;
    struct host_stream *stream;
    tarn_status status = host_enter(DRIVER_CALL_alloc_async, number, &device);
    if (status)
        return status;
    if (size == 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host alloc_async: of 0 bytes");
    host_streams_lock();
    status = ordering_stream_locked("alloc_async", device, handle, &stream);
    host_streams_unlock();
    if (status)
        return status;
    size_t whole = whole_granules(size);
    bool full = false;
    do {
        mutex_lock(&host_memory_lock);
        full = whole > device->memory - device->created;
        if (!full)
            status = alloc_locked("alloc_async", device, whole, address);
        mutex_unlock(&host_memory_lock);
    } while (full && freed_wait(device));
    if (full)
        return failed(TARN_ERROR_OUT_OF_MEMORY, "host alloc_async: %zu bytes on device %d, of %zu",
                      whole, number, device->memory);
    if (!status)
        host_charge(device, DRIVER_CALL_alloc_async, whole, 1);
    return status;
}

static tarn_status free_async_locked(struct host_device *device, uintptr_t address,
                                     driver_stream handle, size_t *size)
{
    struct host_region *region = plain_at(device, address);
    struct host_stream *stream;
    if (!region)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host free_async: %#" PRIxPTR " is not a plain allocation of device %d",
                      address, device->number);
    tarn_status status = ordering_stream_locked("free_async", device, handle, &stream);
    if (!status)
        status = host_stream_join_locked("free_async", stream);
    if (status)
        return status;
    tree_remove(&regions, &region->node);
    recent = NULL;
    region->freed_on = stream;
    region->freed_at = stream->last;
    region->reported = false;
    region->next_freed = freed;
    freed = region;
    *size = region->size;
    atomic_fetch_add(&host.freed, 1);
    atomic_store(&host.sweeps, true);
    atomic_store(&host.unsettled, true);
    return TARN_OK;
}

tarn_status host_free_async(int number, uintptr_t address, driver_stream stream)
{
    struct host_device *device;
    size_t size = 0;
    tarn_status status = host_enter(DRIVER_CALL_free_async, number, &device);
    if (status)
        return status;
    mutex_lock(&host_memory_lock);
    host_streams_lock();
    status = free_async_locked(device, address, stream, &size);
    host_streams_unlock();
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_free_async, size, 1);
    host_settle();
    return status;
}

/* Whether work of other streams still uses the memory of a free that is due. If the checker is on,
 * that is reported. */
static bool is_used(struct host_region *region)
{
    if (!atomic_load_explicit(&host.checking, memory_order_relaxed))
        return false;
    const char *call = region->reported ? NULL : "free_async";
    bool used = host_check_in_use(call, region->device, region->address, region->size);
    region->reported = region->reported || used;
    return used;
}

void host_freed_sweep(void)
{
    for (struct host_region **link = &freed; *link;) {
        struct host_region *region = *link;
        host_streams_lock();
        bool due = is_due_locked(region);
        host_streams_unlock();
        if (!due || is_used(region)) {
            link = &region->next_freed;
            continue;
        }
        *link = region->next_freed;
        free_finish_locked(region);
        atomic_fetch_sub(&host.freed, 1);
    }
}

tarn_status host_memory_info(int number, size_t *free_bytes, size_t *total_bytes)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_memory_info, number, &device);
    if (status)
        return status;
    mutex_lock(&host_memory_lock);
    *free_bytes = device->memory - device->created;
    *total_bytes = device->memory;
    mutex_unlock(&host_memory_lock);
    host_charge(device, DRIVER_CALL_memory_info, 0, 0);
    return TARN_OK;
}

/* ---- What lies behind an address ---- */

/* The extent at `address` that the device can access; length 0: none. Takes two steps if the region
 * is the one found last. */
static tarn_host_extent extent_at(const struct host_device *device, uintptr_t address)
{
    const struct host_region *region = host_region_at(address);
    if (!region)
        return (tarn_host_extent){0};
    bool own = region->device == device;
    if (!region->granules) {
        uint64_t offset = address - region->address;
        if (!own && !host_peer_enabled(device->number, region->device->number))
            return (tarn_host_extent){0};
        return (tarn_host_extent){.piece = region->plain,
                                  .offset = offset,
                                  .length = region->size - offset,
                                  .accessible = true};
    }
    const struct host_mapping *mapping = *host_granule_of(region, address);
    if (!mapping || mapping->leaving)
        return (tarn_host_extent){0};
    bool accessible = mapping->accessible >> device->number & 1;
    if (!own && !accessible)
        return (tarn_host_extent){0};
    uint64_t offset = address - mapping->address;
    return (tarn_host_extent){.piece = mapping->piece->handle,
                              .offset = offset,
                              .length = mapping->piece->size - offset,
                              .accessible = accessible};
}

tarn_status tarn_host_extent_get(int number, const void *address, size_t size,
                                 tarn_host_extent *extent)
{
    struct host_device *device;
    tarn_status status = host_use(number, &device);
    if (status)
        return status;
    if (!extent || size == 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "tarn_host_extent_get: size is 0 or extent is NULL");
    mutex_lock(&host_memory_lock);
    tarn_host_extent found = extent_at(device, (uintptr_t)address);
    mutex_unlock(&host_memory_lock);
    if (found.length == 0)
        return failed(TARN_ERROR_INVALID_POINTER,
                      "tarn_host_extent_get: nothing is mapped at %p on device %d", address,
                      number);
    if (found.length > size)
        found.length = size;
    *extent = found;
    return TARN_OK;
}

/* The start of the first region at or after `address`; UINTPTR_MAX: none. */
static uintptr_t next_of_ours(uintptr_t address)
{
    struct tree_node *node = tree_find_first(&regions, region_ends_after, address);
    if (!node)
        return UINTPTR_MAX;
    uintptr_t start = TREE_ENTRY(node, struct host_region, node)->address;
    return start > address ? start : address;
}

tarn_status host_memory_accessible(const char *what, const struct host_device *device,
                                   uintptr_t address, size_t size)
{
    uintptr_t at = address, end;
    if (__builtin_add_overflow(address, size, &end))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host %s: %#" PRIxPTR " with %zu bytes wraps around", what, address, size);
    tarn_host_extent found = {.accessible = true, .length = 1};
    mutex_lock(&host_memory_lock);
    for (at = next_of_ours(at); at < end && found.length && found.accessible;
         at = next_of_ours(at)) {
        found = extent_at(device ? device : host_region_at(at)->device, at);
        if (found.length && found.accessible)
            at += found.length;
    }
    mutex_unlock(&host_memory_lock);
    if (found.length && found.accessible)
        return TARN_OK;
    return failed(
        TARN_ERROR_INVALID_ARGUMENT, "host %s: %#" PRIxPTR " is %s", what, at,
        found.length ? "mapped but access is not set"
        : device
            ? "reserved but nothing is mapped there, or of another device that cannot be reached"
            : "reserved but nothing is mapped there");
}

/* ---- The whole ---- */

void host_regions_finish(void)
{
    while (freed) {
        struct host_region *region = freed;
        freed = region->next_freed;
        free_finish_locked(region);
    }
    atomic_store(&host.freed, 0);
    for (struct tree_node *node; (node = tree_first(&regions));) {
        struct host_region *region = TREE_ENTRY(node, struct host_region, node);
        if (region->granules)
            host_range_clear(region);
        munmap((void *)region->address, region->size);
        region_forget(region);
    }
    vmas = 0;
}
