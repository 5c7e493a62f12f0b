/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Physical memory of the host device, and where it is mapped.
 *
 * An ordinary piece is a contiguous part of its device's memfd. The memfd only grows: an offset is
 * never used twice, and a release punches a hole. An exportable piece has a memfd of its own with a
 * sealed size, so that an importer can rely on the size. Imported pieces and host memory are not in
 * the ledger. Accessible memory is hidden from children of fork().
 *
 * A leaving mapping was unmapped while queued work used it (the checker saw that). For its owner it
 * is gone, but it stays until that work ends. Until then, mapping or unreserving its address fails
 * with TARN_ERROR_BUSY.
 *
 * Everything is under host_memory_lock. */
#include "driver/host/host_memory.h"
#include "base/file.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PIECES_PER_CHUNK ((size_t)1024)
#define CHUNKS ((size_t)8192)

static struct host_mapping *leaving;
static struct host_piece *chunks[CHUNKS];
static size_t slots_used;
static struct host_piece *free_slots;
static struct object_pool mapping_objects = OBJECT_POOL(struct host_mapping);

/* ---- Pieces ---- */

static struct host_piece *piece_find(driver_piece handle)
{
    size_t slot = (size_t)(handle & UINT32_MAX) - 1;
    if (slot >= slots_used)
        return NULL;
    struct host_piece *piece = &chunks[slot / PIECES_PER_CHUNK][slot % PIECES_PER_CHUNK];
    return piece->exists && piece->handle == handle ? piece : NULL;
}

static tarn_status refuse_off_granule(const char *call, uintptr_t address, size_t size)
{
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  "host %s: address %#" PRIxPTR " or size %zu is not a multiple of 2 MiB above 0",
                  call, address, size);
}

/* A slot with only its handle set. NULL: no host memory. */
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

uint64_t host_piece_number(void)
{
    struct host_piece *slot = slot_take();
    if (!slot)
        return 0;
    slot_give(slot);
    return slot->handle;
}

/* Blocks SIGXFSZ: a process whose files may not grow so far (ulimit -f) gets a status, and does not
 * end. */
static int grow(int file, size_t size)
{
    struct quiet quiet;
    quiet_begin(&quiet);
    int code = ftruncate(file, (off_t)size);
    quiet_end(&quiet);
    return code;
}

/* Gives the piece a part of the device's file, which grows by the device's size each time; it is
 * sparse. */
static tarn_status piece_place(struct host_device *device, struct host_piece *piece)
{
    if (device->file < 0) {
        device->file = file_renumber(memfd_create("tarn-device", MFD_CLOEXEC));
        if (device->file < 0)
            return host_system_failed("create", "memfd_create");
    }
    uint64_t end = device->file_next + piece->size;
    if (end > device->file_end) {
        uint64_t length = end + device->memory;
        if (grow(device->file, length))
            return host_system_failed("create", "ftruncate");
        device->file_end = length;
    }
    piece->offset = device->file_next;
    device->file_next = end;
    return TARN_OK;
}

static tarn_status piece_open(struct host_piece *piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    piece->file = file_renumber(memfd_create("tarn-piece", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (piece->file < 0)
        return host_system_failed("create", "memfd_create");
    if (grow(piece->file, piece->size) == 0 &&
        fcntl(piece->file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return TARN_OK;
    tarn_status status = host_system_failed("create", "the size of a memfd");
    close(piece->file);
    return status;
}

static tarn_status create_locked(struct host_device *device, size_t size, unsigned flags,
                                 driver_piece *handle)
{
    bool outside = flags & DRIVER_PIECE_HOST;
    if (!outside && size > device->memory - device->created)
        return host_refuse_full("create", device, size);
    struct host_piece *piece = slot_take();
    if (!piece)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host create: no memory for the piece");
    piece->device = device;
    piece->size = size;
    tarn_status status = flags & (DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_HOST)
                             ? piece_open(piece)
                             : piece_place(device, piece);
    if (status) {
        slot_give(piece);
        return status;
    }
    piece->live = piece->exists = true;
    piece->outside = outside;
    if (!outside) {
        device->pieces++;
        host_ledger_created(device, size);
    }
    *handle = piece->handle;
    return TARN_OK;
}

tarn_status host_create(int number, size_t size, unsigned flags, driver_piece *piece)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_create, number, &device);
    if (status)
        return status;
    if (host_off_granule(0, size) ||
        flags & ~(DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA | DRIVER_PIECE_HOST))
        return failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "host create: size %zu is not a multiple of 2 MiB above 0, or flags %#x unknown", size,
            flags);
    mutex_lock(&host_memory_lock);
    status = create_locked(device, size, flags, piece);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_create, size, 1);
    return status;
}

/* Ends a piece that is released and not mapped: returns its memory to the machine. If no hole can
 * be punched, that part of the file stays as unused memory. */
static void piece_end(struct host_piece *piece)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct host_device *device = piece->device;
    if (piece->file >= 0)
        close(piece->file);
    else
        (void)fallocate(device->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)piece->offset, (off_t)piece->size);
    if (!piece->outside) {
        device->created -= piece->size;
        device->pieces--;
    }
    slot_give(piece);
}

/* A piece may be released while it is mapped. The checker reports that only if queued work uses the
 * memory and no unmap of it was reported. */
static tarn_status release_locked(struct host_device *device, driver_piece handle, size_t *size)
{
    struct host_piece *piece = piece_find(handle);
    if (!piece || !piece->live || piece->device != device)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host release: %#" PRIx64 " is not a piece of device %d%s", handle,
                      device->number,
                      piece && piece->device == device ? ": it was released before" : "");
    if (atomic_load_explicit(&host.checking, memory_order_relaxed))
        for (const struct host_mapping *mapping = piece->mappings; mapping;
             mapping = mapping->next_of_piece)
            if (!mapping->leaving)
                host_check_in_use("release", device, mapping->address, piece->size);
    piece->live = false;
    *size = piece->size;
    if (!piece->mappings)
        piece_end(piece);
    return TARN_OK;
}

tarn_status host_release(int number, driver_piece piece)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_release, number, &device);
    if (status)
        return status;
    size_t size = 0;
    mutex_lock(&host_memory_lock);
    status = release_locked(device, piece, &size);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_release, size, 1);
    host_settle();
    return status;
}

/* ---- Pieces between processes ---- */

static tarn_status export_locked(const struct host_device *device, driver_piece handle, int *file)
{
    const struct host_piece *piece = piece_find(handle);
    if (!piece || !piece->live || piece->device != device)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host export: %#" PRIx64 " is not a piece of device %d", handle,
                      device->number);
    if (piece->imported)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host export: piece %#" PRIx64 " was imported",
                      handle);
    if (piece->file < 0)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "host export: piece %#" PRIx64 " was not created exportable", handle);
    int copy = fcntl(piece->file, F_DUPFD_CLOEXEC, FILE_LEAST);
    if (copy < 0)
        return host_system_failed("export", "F_DUPFD_CLOEXEC");
    *file = copy;
    return TARN_OK;
}

tarn_status host_export(int number, driver_piece piece, int *file)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_export, number, &device);
    if (status)
        return status;
    mutex_lock(&host_memory_lock);
    status = export_locked(device, piece, file);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_export, 0, 1);
    return status;
}

#ifdef F_SEAL_FUTURE_WRITE
#define SEALS_AGAINST_WRITING (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)
#else
#define SEALS_AGAINST_WRITING F_SEAL_WRITE
#endif

/* Memory that is mapped must last as long as its mapping, whatever another process does with the
 * file. Its pages must not be from a store that can run out, such as huge pages: then an access
 * would end the process. */
static tarn_status import_check(int file, size_t size)
{
    struct stat known;
    struct statfs store;
    if (fstat(file, &known))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host import: %d is not an open file descriptor",
                      file);
    int seals = fcntl(file, F_GET_SEALS), mode = fcntl(file, F_GETFL);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || seals & SEALS_AGAINST_WRITING || mode < 0 ||
        (mode & O_ACCMODE) != O_RDWR || fstatfs(file, &store) || store.f_type != TMPFS_MAGIC)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host import: descriptor %d is not of an exported piece: it is not a memfd "
                      "of a sealed size",
                      file);
    if (known.st_size < 0 || (size_t)known.st_size != size)
        return failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "host import: the piece of descriptor %d has %lld bytes, and %zu were announced", file,
            (long long)known.st_size, size);
    return TARN_OK;
}

static tarn_status import_locked(struct host_device *device, int file, size_t size,
                                 driver_piece *handle)
{
    struct host_piece *piece = slot_take();
    if (!piece)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host import: no memory for the piece");
    piece->file = fcntl(file, F_DUPFD_CLOEXEC, FILE_LEAST);
    if (piece->file < 0) {
        tarn_status status = host_system_failed("import", "F_DUPFD_CLOEXEC");
        slot_give(piece);
        return status;
    }
    piece->device = device;
    piece->size = size;
    piece->live = piece->exists = piece->outside = piece->imported = true;
    *handle = piece->handle;
    return TARN_OK;
}

tarn_status host_import(int number, int file, size_t size, driver_piece *piece)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_import, number, &device);
    if (status)
        return status;
    if (host_off_granule(0, size))
        return refuse_off_granule("import", 0, size);
    status = import_check(file, size);
    if (status)
        return status;
    mutex_lock(&host_memory_lock);
    status = import_locked(device, file, size, piece);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_import, size, 1);
    return status;
}

/* ---- Mapping ---- */

static tarn_status map_check(const struct host_device *device, uintptr_t address, size_t size,
                             driver_piece handle)
{
    const struct host_piece *piece = piece_find(handle);
    if (!piece || !piece->live || piece->device != device)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host map: %#" PRIx64 " is not a piece of device %d", handle, device->number);
    if (piece->size != size)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host map: %zu bytes of a piece of %zu; pieces are mapped whole", size,
                      piece->size);
    const struct host_region *range = host_range_around(device, address, size);
    if (!range)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host map: %#" PRIxPTR
                      " with %zu bytes is not inside a reserved range of device %d",
                      address, size, device->number);
    for (uintptr_t at = address; at < address + size; at += HOST_GRANULE) {
        const struct host_mapping *mapping = *host_granule_of(range, at);
        if (mapping && mapping->leaving)
            return failed(TARN_ERROR_BUSY,
                          "host map: %#" PRIxPTR
                          " was unmapped while queued work uses it, which has not ended",
                          at);
        if (mapping)
            return failed(TARN_ERROR_INVALID_ARGUMENT,
                          "host map: a piece is mapped at %#" PRIxPTR " already", at);
    }
    return host_budget_check(range, address, address + size);
}

static tarn_status map_locked(struct host_device *device, uintptr_t address, size_t size,
                              driver_piece handle)
{
    tarn_status status = map_check(device, address, size, handle);
    if (status)
        return status;
    struct host_region *range = host_region_at(address);
    struct host_piece *piece = piece_find(handle);
    struct host_mapping *mapping = object_alloc(&mapping_objects);
    if (!mapping)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host map: no memory for the mapping");
    int file = piece->file >= 0 ? piece->file : device->file;
    if (mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
             (off_t)piece->offset) == MAP_FAILED) {
        status = host_system_failed("map", "mmap");
        object_free(&mapping_objects, mapping);
        return status;
    }
    *mapping = (struct host_mapping){
        .next_of_piece = piece->mappings, .region = range, .piece = piece, .address = address};
    piece->mappings = mapping;
    host_budget_add(range, address, address + size);
    for (uintptr_t at = address; at < address + size; at += HOST_GRANULE)
        *host_granule_of(range, at) = mapping;
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
    tarn_status status = host_enter_unsafe(DRIVER_CALL_map, number, &device);
    if (status)
        return status;
    if (host_off_granule(address, size))
        return refuse_off_granule("map", address, size);
    mutex_lock(&host_memory_lock);
    status = map_locked(device, address, size, piece);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_map, size, 1);
    return status;
}

/* Fails unless [address, address + size) is exactly one or more mappings in a row. Counts them. */
static tarn_status check_row(const char *call, struct host_device *device, uintptr_t address,
                             size_t size, uint64_t *count)
{
    const struct host_region *range = host_range_around(device, address, size);
    if (!range)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host %s: %#" PRIxPTR
                      " with %zu bytes is not inside a reserved range of device %d",
                      call, address, size, device->number);
    uintptr_t end = address + size;
    *count = 0;
    for (uintptr_t at = address; at < end; ++*count) {
        const struct host_mapping *mapping = *host_granule_of(range, at);
        if (!mapping || mapping->leaving)
            return failed(TARN_ERROR_INVALID_ARGUMENT, "host %s: nothing is mapped at %#" PRIxPTR,
                          call, at);
        if (mapping->address != at || mapping->piece->size > end - at)
            return failed(TARN_ERROR_INVALID_ARGUMENT,
                          "host %s: %#" PRIxPTR
                          " with %zu bytes cuts the mapping of %zu bytes at %#" PRIxPTR,
                          call, address, size, mapping->piece->size, mapping->address);
        at += mapping->piece->size;
    }
    return TARN_OK;
}

static tarn_status set_access_locked(struct host_device *device, uintptr_t address, size_t size,
                                     uint64_t devices, int protection, uint64_t *count)
{
    tarn_status status = check_row("set_access", device, address, size, count);
    if (status)
        return status;
    if (mprotect((void *)address, size, protection))
        return host_system_failed("set_access", "mprotect");
    (void)madvise((void *)address, size, MADV_DONTFORK);
    const struct host_region *range = host_region_at(address);
    for (uintptr_t at = address; at < address + size;) {
        struct host_mapping *mapping = *host_granule_of(range, at);
        mapping->accessible |= devices;
        at += mapping->piece->size;
    }
    return TARN_OK;
}

static tarn_status set_access(int number, uintptr_t address, size_t size, const int *devices,
                              int device_count, int protection)
{
    struct host_device *device;
    uint64_t bits = 0;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_set_access, number, &device);
    if (!status)
        status = host_peers_check("set_access", number, devices, device_count, &bits);
    if (status)
        return status;
    if (host_off_granule(address, size))
        return refuse_off_granule("set_access", address, size);
    uint64_t count = 0;
    mutex_lock(&host_memory_lock);
    status = set_access_locked(device, address, size, bits, protection, &count);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_set_access, size, count);
    return status;
}

tarn_status host_set_access(int number, uintptr_t address, size_t size, const int *devices,
                            int device_count)
{
    return set_access(number, address, size, devices, device_count, PROT_READ | PROT_WRITE);
}

tarn_status host_set_read(int number, uintptr_t address, size_t size, const int *devices,
                          int device_count)
{
    return set_access(number, address, size, devices, device_count, PROT_READ);
}

/* Returns the addresses to the range, and uncounts the mapping. */
static void mapping_forget(struct host_mapping *mapping)
{
    struct host_region *range = mapping->region;
    struct host_piece *piece = mapping->piece;
    struct host_mapping **link = &piece->mappings;
    while (*link != mapping)
        link = &(*link)->next_of_piece;
    *link = mapping->next_of_piece;
    for (uintptr_t at = mapping->address; at < mapping->address + piece->size; at += HOST_GRANULE)
        *host_granule_of(range, at) = NULL;
    host_budget_remove(range, mapping->address, mapping->address + piece->size);
    range->mappings--;
    piece->device->mappings--;
    piece->device->mapped -= piece->size;
    object_free(&mapping_objects, mapping);
    if (!piece->live && !piece->mappings)
        piece_end(piece);
}

/* Makes [address, end), which is mappings in a row, PROT_NONE address space. */
static tarn_status unmap_row(const struct host_region *range, uintptr_t address, uintptr_t end)
{
    if (address == end)
        return TARN_OK;
    tarn_status status = host_place_nothing(address, end - address);
    if (status)
        return status;
    for (uintptr_t at = address; at < end;) {
        struct host_mapping *mapping = *host_granule_of(range, at);
        at += mapping->piece->size;
        mapping_forget(mapping);
    }
    return TARN_OK;
}

/* Reports the unmap of a mapping that queued work uses, and defers it. The mapping is counted in
 * `host.leaving` before the check, because work that ends looks there. */
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

static tarn_status unmap_locked(struct host_device *device, uintptr_t address, size_t size,
                                uint64_t *count)
{
    tarn_status status = check_row("unmap", device, address, size, count);
    if (status)
        return status;
    const struct host_region *range = host_region_at(address);
    if (!atomic_load_explicit(&host.checking, memory_order_relaxed))
        return unmap_row(range, address, address + size);

    uintptr_t from = address;
    for (uintptr_t at = address, next; at < address + size; at = next) {
        struct host_mapping *mapping = *host_granule_of(range, at);
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
    tarn_status status = host_enter_unsafe(DRIVER_CALL_unmap, number, &device);
    if (status)
        return status;
    if (host_off_granule(address, size))
        return refuse_off_granule("unmap", address, size);
    uint64_t count = 0;
    mutex_lock(&host_memory_lock);
    status = unmap_locked(device, address, size, &count);
    mutex_unlock(&host_memory_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_unmap, size, count);
    host_settle();
    return status;
}

void host_memory_sweep(void)
{
    mutex_lock(&host_memory_lock);
    for (struct host_mapping **link = &leaving; *link;) {
        struct host_mapping *mapping = *link;
        uintptr_t address = mapping->address, end = address + mapping->piece->size;
        if (host_check_in_use(NULL, mapping->piece->device, address, end - address)) {
            link = &mapping->next_leaving;
            continue;
        }
        *link = mapping->next_leaving;
        /* The kernel has no room: the next sweep tries again. */
        if (unmap_row(mapping->region, address, end)) {
            mapping->next_leaving = *link;
            *link = mapping;
            break;
        }
        atomic_fetch_sub(&host.leaving, 1);
    }
    host_freed_sweep();
    mutex_unlock(&host_memory_lock);
}

bool host_range_leaves(const struct host_region *range, uintptr_t *address)
{
    for (const struct host_mapping *mapping = leaving; mapping; mapping = mapping->next_leaving)
        if (mapping->region == range) {
            *address = mapping->address;
            return true;
        }
    return false;
}

void host_range_clear(struct host_region *range)
{
    for (size_t i = 0; range->mappings; i++)
        if (range->granules[i])
            mapping_forget(range->granules[i]);
}

/* ---- The whole ---- */

void host_memory_ledger(const struct host_device *device, tarn_host_ledger *ledger)
{
    mutex_lock(&host_memory_lock);
    ledger->created = device->created;
    ledger->created_peak = device->created_peak;
    ledger->mapped = device->mapped;
    ledger->mapped_peak = device->mapped_peak;
    ledger->pieces = device->pieces;
    ledger->mappings = device->mappings;
    ledger->plain = device->plain;
    ledger->reserved_addresses = device->reserved_addresses;
    ledger->pinned = device->pinned;
    ledger->pinned_bytes = device->pinned_bytes;
    ledger->pinned_peak = device->pinned_peak;
    mutex_unlock(&host_memory_lock);
}

void host_memory_ledger_reset(struct host_device *device)
{
    mutex_lock(&host_memory_lock);
    device->created_peak = device->created;
    device->mapped_peak = device->mapped;
    device->pinned_peak = device->pinned_bytes;
    mutex_unlock(&host_memory_lock);
}

static void host_pieces_finish(void)
{
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
    leaving = NULL;
}

void host_memory_finish(void)
{
    mutex_lock(&host_memory_lock);
    host_pinned_finish();
    host_regions_finish();
    host_pieces_finish();
    for (int i = 0; i < TARN_MAX_DEVICES; i++)
        if (host.device[i].memory && host.device[i].file >= 0)
            close(host.device[i].file);
    atomic_store(&host.leaving, 0);
    mutex_unlock(&host_memory_lock);
}

/* ---- Contents ---- */

/* Whether a granule was never written, so that it is zero. */
static bool is_untouched(uintptr_t address)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    bool untouched = false;
    mutex_lock(&host_memory_lock);
    const struct host_region *region = host_region_at(address);
    const struct host_mapping *mapping =
        region && region->granules ? *host_granule_of(region, address) : NULL;
    if (mapping) {
        const struct host_piece *piece = mapping->piece;
        off_t offset = (off_t)(piece->offset + (address - mapping->address));
        off_t data = lseek(piece->file >= 0 ? piece->file : piece->device->file, offset, SEEK_DATA);
        untouched = data < 0 ? errno == ENXIO : data >= offset + (off_t)HOST_GRANULE;
    }
    mutex_unlock(&host_memory_lock);
    return untouched;
}

void host_move_bytes(uintptr_t to, uintptr_t from, size_t size)
{
    bool whole = (to | from) % HOST_GRANULE == 0 && (to + size <= from || from + size <= to);
    for (size_t done = 0, length; done < size; done += length) {
        length = whole && size - done >= HOST_GRANULE ? HOST_GRANULE : size - done;
        if (whole && length == HOST_GRANULE && is_untouched(from + done) && is_untouched(to + done))
            continue;
        memmove((void *)(to + done), (const void *)(from + done), length);
    }
}
