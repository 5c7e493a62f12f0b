/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the set of imported blocks. Their pieces are mapped in the arena of their device, in claimed
 * addresses of no heap. So a peer enabled later reaches them like all other mappings, and observers
 * hear of them. They are not memory of the arena: not counted as reserved, and never mixed with its
 * unmapped pieces.
 *
 * The lock is not held over driver calls. If two threads import the same share, both may map it;
 * the later one unmaps its own mapping again. */
#include "memory/share/import.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "base/tree.h"
#include "memory/pool/referred.h"
#include "memory/settings/hooks.h"
#include "memory/share/share.h"

#include <string.h>
#include <sys/stat.h>

struct import {
    struct tree_node node;
    uintptr_t start; /* of the claimed addresses */
    struct share_head head;
    uint64_t files; /* files_of() its parts */
    struct arena *arena;
    uint64_t number; /* no other import of the process has it; 0: not given yet */
    uint64_t count;
    /* A segment of an imported pool, used by that pool only; of the head only `bytes` is set. */
    bool of_pool;
};

static int by_address(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t left = TREE_ENTRY(a, struct import, node)->start,
              right = TREE_ENTRY(b, struct import, node)->start;
    return left < right ? -1 : left > right;
}

static mutex imports_lock = MUTEX_INITIALIZER(LOCK_LEAF); /* protects the set */
static struct tree imports = {.order = by_address};
static atomic_size_t import_count; /* size of the set; read without the lock */
static uint64_t import_numbers;    /* imports_lock: given so far */
static struct object_pool import_objects = OBJECT_POOL(struct import);

static void *pointer_of(const struct import *import)
{
    return (void *)(import->start + import->head.offset);
}

/* ---- The set ---- */

static bool ends_after(const struct tree_node *node, uint64_t address)
{
    const struct import *import = TREE_ENTRY(node, struct import, node);
    return import->start + import->head.mapped > address;
}

static struct import *import_at_locked(uintptr_t address)
{
    struct tree_node *node = tree_find_first(&imports, ends_after, address);
    struct import *import = node ? TREE_ENTRY(node, struct import, node) : NULL;
    return import && import->start <= address ? import : NULL;
}

/* A hash of the parts' files, for drivers whose shares are files: it tells memory from other memory
 * with an equal description. CUDA's shares have no file identity; there only the exporter's random
 * name tells. */
static uint64_t files_of(const tarn_share *share)
{
    uint64_t sum = 0;
    struct stat info;
    for (uint32_t i = 0; i < share->head.parts; i++)
        if (fstat(share->parts[i].file, &info) == 0 && S_ISREG(info.st_mode))
            sum = (sum ^ info.st_ino ^ (uint64_t)info.st_dev << 32) * UINT64_C(0x9e3779b97f4a7c15);
    return sum;
}

/* An import of the same memory: the same block and incarnation in the same process, equal pieces,
 * equal files; or NULL. */
static struct import *import_like_locked(const struct arena *arena, const struct share_head *head,
                                         uint64_t files)
{
    for (struct tree_node *node = tree_first(&imports); node; node = tree_next(node)) {
        struct import *import = TREE_ENTRY(node, struct import, node);
        if (import->arena == arena && !import->of_pool && import->files == files &&
            memcmp(&import->head, head, sizeof *head) == 0)
            return import;
    }
    return NULL;
}

static void enter_locked(struct import *import)
{
    import->count = 1;
    import->number = import->number ? import->number : ++import_numbers;
    tree_insert(&imports, &import->node);
    atomic_fetch_add(&import_count, 1);
    atomic_fetch_add(&referred_changes, 1);
}

static bool count_like(const struct arena *arena, const struct share_head *head, uint64_t files,
                       void **pointer)
{
    mutex_lock(&imports_lock);
    struct import *like = import_like_locked(arena, head, files);
    if (like) {
        like->count++;
        *pointer = pointer_of(like);
    }
    mutex_unlock(&imports_lock);
    return like != NULL;
}

uint64_t import_look(uintptr_t address, uintptr_t *end)
{
    if (atomic_load_explicit(&import_count, memory_order_relaxed) == 0)
        return 0;
    mutex_lock(&imports_lock);
    const struct import *import = import_at_locked(address);
    uint64_t number = import ? import->number : 0;
    *end = import ? import->start + import->head.mapped : 0;
    mutex_unlock(&imports_lock);
    return number;
}

bool import_has(uintptr_t address)
{
    uintptr_t end;
    return import_look(address, &end) != 0;
}

tarn_status import_refuse(uintptr_t address)
{
    return failed(TARN_ERROR_INVALID_POINTER,
                  "%p is memory of another process, imported by tarn_import() or "
                  "tarn_pool_import(): it is not a block of "
                  "this process; close it by tarn_import_close() or tarn_imported_pool_close()",
                  (void *)address);
}

bool import_info(const void *pointer, tarn_block_info *info)
{
    if (atomic_load_explicit(&import_count, memory_order_relaxed) == 0)
        return false;
    mutex_lock(&imports_lock);
    const struct import *import = import_at_locked((uintptr_t)pointer);
    bool found = import && (uintptr_t)pointer - (uintptr_t)pointer_of(import) < import->head.bytes;
    if (found)
        *info = (tarn_block_info){
            .size = sizeof *info,
            .base = pointer_of(import),
            .usable_size = import->head.bytes,
            .requested = import->head.bytes,
            .device = import->arena->device->number,
            .imported = true,
        };
    mutex_unlock(&imports_lock);
    return found;
}

/* ---- Mapping ---- */

/* Gives unmapped pieces back to the driver. A trim tries again with those that it refuses. */
static void give_back(struct arena *arena)
{
    struct error_before before;
    error_attempt_begin(&before);
    (void)store_release_unmapped(&arena->imports, 0);
    error_attempt_end(&before, TARN_OK);
}

/* The pieces of parts, in order. On failure none. */
static tarn_status pieces_import(struct arena *arena, const struct share_part *parts,
                                 uint32_t count, struct piece_list *list)
{
    struct piece *piece = NULL;
    for (uint32_t i = count; i-- > 0;) {
        tarn_status status = piece_import(arena, parts[i].file, parts[i].size, &piece);
        if (status) {
            pieces_to_unmapped(arena, list);
            return status;
        }
        pieces_push(list, piece);
    }
    return TARN_OK;
}

/* Maps parts of `size` bytes in total. On failure nothing is left, except what the driver refuses
 * to unmap; a trim tries again. */
static tarn_status map_parts(struct arena *arena, const struct share_part *parts, uint32_t count,
                             size_t size, uintptr_t *start)
{
    struct piece_list list = {0};
    size_t left = 0;
    tarn_status status = arena_claim_high(arena, size, start);
    if (status)
        return status;
    status = pieces_import(arena, parts, count, &list);
    if (!status)
        status = pieces_map(arena, &list, *start, 0, &left);
    if (status) {
        arena_unclaim(arena, *start + left, size - left);
        give_back(arena);
    }
    return status;
}

static tarn_status unmap_import(const struct import *import)
{
    struct piece_list list = {0};
    struct arena *arena = import->arena;
    tarn_status status = pieces_unmap(arena, import->start, import->head.mapped, &list);
    if (status)
        return status;
    arena_unclaim(arena, import->start, import->head.mapped);
    pieces_to_unmapped(arena, &list);
    give_back(arena);
    return TARN_OK;
}

/* ---- Segments of pools ---- */

tarn_status import_segment(struct arena *arena, const struct share_part *part,
                           struct import **result)
{
    struct import *import = object_alloc(&import_objects);
    if (!import)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an import");
    import->head.bytes = import->head.mapped = part->size;
    import->arena = arena;
    import->of_pool = true;
    tarn_status status = map_parts(arena, part, 1, part->size, &import->start);
    if (status) {
        object_free(&import_objects, import);
        return status;
    }
    mutex_lock(&imports_lock);
    enter_locked(import);
    mutex_unlock(&imports_lock);
    *result = import;
    return TARN_OK;
}

uintptr_t import_start(const struct import *import)
{
    return import->start;
}

static void remove_locked(struct import *import)
{
    tree_remove(&imports, &import->node);
    atomic_fetch_sub(&import_count, 1);
    atomic_fetch_add(&referred_changes, 1);
}

tarn_status import_segment_end(struct import *import, bool surely)
{
    mutex_lock(&imports_lock);
    remove_locked(import);
    mutex_unlock(&imports_lock);
    tarn_status status = unmap_import(import);
    if (status && !surely) {
        mutex_lock(&imports_lock);
        enter_locked(import);
        mutex_unlock(&imports_lock);
        return status;
    }
    if (status)
        pieces_leave_stuck(import->arena, import->start, import->head.mapped);
    object_free(&import_objects, import);
    return TARN_OK;
}

/* ---- Import ---- */

tarn_status import_check(const tarn_share *share, const struct device *device)
{
    if (strcmp(share->head.driver, driver->name) != 0)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "the share is memory of driver %s, but this process uses %s",
                      share->head.driver, driver->name);
    if (!device->properties.exportable)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d cannot import memory of other processes",
                      device->number);
    size_t granule = device->properties.granule;
    for (uint32_t i = 0; i < share->head.parts; i++)
        if (share->parts[i].size % granule)
            return failed(TARN_ERROR_INVALID_ARGUMENT,
                          "a piece of the share has %llu bytes, not a multiple of the %zu bytes "
                          "that device %d maps",
                          (unsigned long long)share->parts[i].size, granule, device->number);
    return TARN_OK;
}

tarn_status import_share_check(const tarn_share *share, bool of_pool)
{
    tarn_status status = memory_ready();
    if (!status)
        status = share_known(share);
    if (status)
        return status;
    if (share_is_of_pool(share) != of_pool)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the share is of a %s: import it by %s()",
                      of_pool ? "block" : "pool", of_pool ? "tarn_import" : "tarn_pool_import");
    return share_check(share);
}

tarn_status import_begin(const tarn_share *share, bool of_pool, int device, struct arena **arena)
{
    struct device *found = NULL;
    tarn_status status = import_share_check(share, of_pool);
    if (!status)
        status = device_find(device, &found);
    if (!status)
        status = device_check(found);
    if (!status)
        status = import_check(share, found);
    if (!status)
        status = arena_of(found, arena);
    return status ? status : arena_addresses(*arena);
}

/* Enters a new mapping into the set; if another thread has entered the same meanwhile, counts that
 * one. */
static void enter(struct import *import, void **pointer)
{
    mutex_lock(&imports_lock);
    struct import *like = import_like_locked(import->arena, &import->head, import->files);
    if (like)
        like->count++;
    else
        enter_locked(import);
    *pointer = pointer_of(like ? like : import);
    mutex_unlock(&imports_lock);
    if (!like)
        return;
    struct error_before before;
    error_attempt_begin(&before);
    if (unmap_import(import)) /* a trim tries again too */
        pieces_leave_stuck(import->arena, import->start, import->head.mapped);
    error_attempt_end(&before, TARN_OK);
    object_free(&import_objects, import);
}

static tarn_status import_new(struct arena *arena, const tarn_share *share, uint64_t files,
                              void **pointer)
{
    struct import *import = object_alloc(&import_objects);
    if (!import)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an import");
    import->head = share->head;
    import->files = files;
    import->arena = arena;
    tarn_status status =
        map_parts(arena, share->parts, share->head.parts, share->head.mapped, &import->start);
    if (status)
        object_free(&import_objects, import);
    else
        enter(import, pointer);
    return status;
}

tarn_status tarn_import(const tarn_share *share, int device, void **pointer)
{
    struct arena *arena = NULL;
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    tarn_status status = import_begin(share, false, device, &arena);
    if (status)
        return status;
    uint64_t files = files_of(share);
    return count_like(arena, &share->head, files, pointer)
               ? TARN_OK
               : import_new(arena, share, files, pointer);
}

/* Closes an import once. With the last close takes it out of the set. */
static tarn_status take_out(void *pointer, struct import **last)
{
    mutex_lock(&imports_lock);
    struct import *import = import_at_locked((uintptr_t)pointer);
    if (import && pointer_of(import) != pointer)
        import = NULL;
    if (import && !import->of_pool && --import->count == 0) {
        remove_locked(import);
        *last = import;
    }
    bool of_pool = import && import->of_pool;
    mutex_unlock(&imports_lock);
    if (of_pool)
        return failed(
            TARN_ERROR_INVALID_POINTER,
            "%p lies in a pool of another process: close that by tarn_imported_pool_close()",
            pointer);
    if (import)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_POINTER,
                  "%p did not come from tarn_import(), or every import of it was closed", pointer);
}

tarn_status tarn_import_close(void *pointer)
{
    struct import *import = NULL;
    tarn_status status = process_check();
    if (!status)
        status = take_out(pointer, &import);
    if (status || !import)
        return status;
    status = unmap_import(import);
    if (status) {
        mutex_lock(&imports_lock);
        enter_locked(import);
        mutex_unlock(&imports_lock);
        return status;
    }
    object_free(&import_objects, import);
    return TARN_OK;
}
