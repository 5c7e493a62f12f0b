/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned host memory of the host device: ranges that it allocated, as anonymous whole pages hidden
 * from children of fork(), and ranges that were registered. All host memory is equally accessible
 * to work; this file only knows what may be freed or unregistered, and the ledger. Under
 * host_memory_lock. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "driver/host/host_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

struct pinned {
    struct tree_node node;
    struct host_device *device;
    uintptr_t address;
    size_t size;
    bool registered; /* the memory is the caller's */
};

static int pinned_order(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct pinned, node)->address,
              y = TREE_ENTRY(b, struct pinned, node)->address;
    return (x > y) - (x < y);
}

static struct tree ranges = {.order = pinned_order};
static struct object_pool range_objects = OBJECT_POOL(struct pinned);
static size_t all_bytes; /* of all ranges, of all devices */

static bool ends_after(const struct tree_node *node, uint64_t key)
{
    const struct pinned *range = TREE_ENTRY(node, struct pinned, node);
    return range->address + range->size > key;
}

/* The first range that ends after the address, or NULL. */
static struct pinned *range_after(uintptr_t address)
{
    struct tree_node *node = tree_find_first(&ranges, ends_after, address);
    return node ? TREE_ENTRY(node, struct pinned, node) : NULL;
}

/* Bytes of the machine: the most that can be pinned. Pages are not touched, so the kernel itself
 * would not refuse. */
static size_t machine_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    return pages > 0 ? (size_t)pages * PAGE : SIZE_MAX;
}

static tarn_status refuse_beyond_machine(const char *call, size_t size)
{
    size_t most = machine_bytes();
    if (size <= most && all_bytes <= most - size)
        return TARN_OK;
    return failed(TARN_ERROR_OUT_OF_MEMORY,
                  "host %s: of %zu bytes: the machine has %zu, of which %zu are pinned", call, size,
                  most, all_bytes);
}

static void range_enter(struct pinned *range, struct host_device *device, uintptr_t address,
                        size_t size)
{
    range->device = device;
    range->address = address;
    range->size = size;
    tree_insert(&ranges, &range->node);
    all_bytes += size;
    device->pinned++;
    device->pinned_bytes += size;
    if (device->pinned_bytes > device->pinned_peak)
        device->pinned_peak = device->pinned_bytes;
}

static void range_leave(struct pinned *range)
{
    tree_remove(&ranges, &range->node);
    all_bytes -= range->size;
    range->device->pinned--;
    range->device->pinned_bytes -= range->size;
    object_free(&range_objects, range);
}

static tarn_status host_alloc_locked(struct host_device *device, size_t size, uintptr_t *address)
{
    tarn_status status = refuse_beyond_machine("host_alloc", size);
    if (!status)
        status = host_budget_take("host_alloc");
    if (status)
        return status;
    struct pinned *range = object_alloc(&range_objects);
    void *memory = MAP_FAILED;
    if (range)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        status = !range ? failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                                 "host host_alloc: no memory for the range")
                        : failed(TARN_ERROR_OUT_OF_MEMORY, "host host_alloc: of %zu bytes: %s",
                                 size, strerror(errno));
        object_free(&range_objects, range);
        host_budget_give();
        return status;
    }
    (void)madvise(memory, size, MADV_DONTFORK);
    range->registered = false;
    range_enter(range, device, (uintptr_t)memory, size);
    *address = (uintptr_t)memory;
    return TARN_OK;
}

tarn_status host_host_alloc(int number, size_t size, uintptr_t *address)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_host_alloc, number, &device);
    if (status)
        return status;
    if (size == 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host host_alloc: of 0 bytes");
    size_t whole = size > SIZE_MAX - PAGE ? SIZE_MAX - PAGE + 1 : (size + PAGE - 1) & ~(PAGE - 1);
    mutex_lock(&host_memory_lock);
    status = host_alloc_locked(device, whole, address);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_host_alloc, whole, 1);
    return status;
}

static tarn_status register_locked(struct host_device *device, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    const struct pinned *next = range_after(address);
    if (next && next->address < address + size)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host host_register: %#" PRIxPTR " with %zu bytes: the memory at %#" PRIxPTR
                      " is pinned already",
                      address, size, next->address);
    tarn_status status = refuse_beyond_machine("host_register", size);
    if (status)
        return status;
    if (msync((void *)address, size, MS_ASYNC))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host host_register: %#" PRIxPTR " with %zu bytes: %s", address, size,
                      strerror(errno));
    struct pinned *range = object_alloc(&range_objects);
    if (!range)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host host_register: no memory for the range");
    range->registered = true;
    range_enter(range, device, address, size);
    return TARN_OK;
}

tarn_status host_host_register(int number, uintptr_t address, size_t size)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_host_register, number, &device);
    if (status)
        return status;
    if (size == 0 || (address | size) % PAGE || address + size < address)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host host_register: %#" PRIxPTR
                      " with %zu bytes are not whole pages of 4096 bytes",
                      address, size);
    mutex_lock(&host_memory_lock);
    status = register_locked(device, address, size);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_host_register, size, 1);
    return status;
}

/* Frees or unregisters the range that begins at the address, once the device's work has ended. Work
 * that uses it is reported if the checker is on. */
static tarn_status leave(enum driver_call call, int number, uintptr_t address, bool registered)
{
    struct host_device *device;
    const char *name = driver_call_name((int)call);
    tarn_status status = host_enter_unsafe(call, number, &device);
    if (status)
        return status;
    mutex_lock(&host_memory_lock);
    struct pinned *range = range_after(address);
    if (!range || range->address != address || range->registered != registered)
        range = NULL;
    else if (atomic_load_explicit(&host.checking, memory_order_relaxed))
        host_check_in_use(name, range->device, address, range->size);
    mutex_unlock(&host_memory_lock);
    if (!range)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host %s: %#" PRIxPTR " is not the start of what was %s", name, address,
                      registered ? "registered" : "allocated");
    host_charge_wait(device, host_device_wait(device));
    mutex_lock(&host_memory_lock);
    size_t size = range->size;
    range_leave(range);
    if (!registered) {
        munmap((void *)address, size);
        host_budget_give();
    }
    mutex_unlock(&host_memory_lock);
    host_charge(device, call, size, 1);
    host_settle();
    return TARN_OK;
}

tarn_status host_host_free(int number, uintptr_t address)
{
    return leave(DRIVER_CALL_host_free, number, address, false);
}

tarn_status host_host_unregister(int number, uintptr_t address)
{
    return leave(DRIVER_CALL_host_unregister, number, address, true);
}

/* Every device counts as in use from the start. */
tarn_status host_is_active(int number, bool *active)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_is_active, number, &device);
    if (!status)
        *active = true;
    return status;
}

void host_pinned_finish(void)
{
    for (struct tree_node *node; (node = tree_first(&ranges));) {
        struct pinned *range = TREE_ENTRY(node, struct pinned, node);
        if (!range->registered)
            munmap((void *)range->address, range->size);
        range_leave(range);
    }
}
