/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the imported pools: where each of the exporter's segments is mapped here. Each segment is an
 * import of its own (import.c), anywhere in the arena. Only inside a segment are offsets the
 * exporter's.
 *
 * The thread that changes a pool replaces its list as a whole, under `lock`, a leaf. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "memory/settings/hooks.h"
#include "memory/share/board.h"
#include "memory/share/import.h"
#include "memory/share/share.h"

#include <string.h>

struct segment {
    uint64_t address, size, generation; /* as in the exporter */
    struct import *import;
    bool fresh; /* mapped by the present change */
};

struct segment_list {
    struct segment *items; /* by address */
    uint32_t count, room;
};

struct tarn_imported_pool {
    struct arena *arena;
    uint64_t id[2];           /* of the export */
    uint64_t generation;      /* lock: number of the layout in the list */
    struct segment_list list; /* lock */
    struct board board;       /* constant */
    atomic_bool changing;     /* a thread updates or closes the pool */
};

static struct object_pool imported_pools = OBJECT_POOL_NAMED(struct tarn_imported_pool);
static mutex imported_lock = MUTEX_INITIALIZER(LOCK_LEAF);

static tarn_status imported_known(const struct tarn_imported_pool *imported)
{
    tarn_status status = process_check();
    if (status || object_is_live(&imported_pools, imported))
        return status;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  imported ? "%p is not an imported pool, or was closed"
                           : "the imported pool is NULL",
                  (const void *)imported);
}

static tarn_status change_begin(struct tarn_imported_pool *imported)
{
    if (!atomic_exchange(&imported->changing, true))
        return TARN_OK;
    return failed(TARN_ERROR_BUSY, "another thread updates or closes the imported pool");
}

static void change_end(struct tarn_imported_pool *imported)
{
    atomic_store(&imported->changing, false);
}

/* ---- Lists ---- */

static size_t list_bytes(uint32_t room)
{
    return (room ? room : 1) * sizeof(struct segment);
}

static tarn_status list_create(struct segment_list *list, uint32_t room)
{
    *list = (struct segment_list){.items = pages_alloc(list_bytes(room)), .room = room};
    if (list->items)
        return TARN_OK;
    return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for %u segments of a pool",
                  (unsigned)room);
}

static void list_destroy(struct segment_list *list)
{
    if (list->items)
        pages_free(list->items, list_bytes(list->room));
    *list = (struct segment_list){0};
}

/* The segment that contains an address of the exporter, or NULL. */
static struct segment *segment_at(const struct segment_list *list, uint64_t address)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct segment *segment = &list->items[middle];
        if (address < segment->address)
            high = middle;
        else if (address - segment->address >= segment->size)
            low = middle + 1;
        else
            return segment;
    }
    return NULL;
}

static struct segment *segment_like(const struct segment_list *list, uint64_t address,
                                    uint64_t size, uint64_t generation)
{
    struct segment *segment = segment_at(list, address);
    bool same = segment && segment->address == address && segment->size == size &&
                segment->generation == generation;
    return same ? segment : NULL;
}

/* Makes the list of a share's segments. Segments that `old` has already are taken from there,
 * others are mapped. On failure nothing has changed. */
static tarn_status list_make(struct arena *arena, const tarn_share *share,
                             const struct segment_list *old, struct segment_list *list)
{
    tarn_status status = list_create(list, share->head.parts);
    for (uint32_t i = 0; !status && i < share->head.parts; i++) {
        const struct share_part *part = &share->parts[i];
        const struct segment *same = segment_like(old, part->address, part->size, part->generation);
        struct segment *segment = &list->items[list->count];
        *segment = (struct segment){part->address, part->size, part->generation,
                                    same ? same->import : NULL, !same};
        if (!same && part->file < 0)
            status = failed(TARN_ERROR_INVALID_ARGUMENT,
                            "the share is of what is new since an earlier one, which was not "
                            "imported here: the exporter "
                            "must send a whole one");
        else if (!same)
            status = import_segment(arena, part, &segment->import);
        list->count += !status;
    }
    if (!status)
        return TARN_OK;
    struct error_before before;
    error_attempt_begin(&before);
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].fresh)
            (void)import_segment_end(list->items[i].import, true);
    error_attempt_end(&before, status);
    list_destroy(list);
    return status;
}

/* Unmaps segments that only the old list has. The call has succeeded already; a trim tries again
 * with what the driver refuses. */
static void list_retire(struct segment_list *old, const struct segment_list *list)
{
    struct error_before before;
    error_attempt_begin(&before);
    for (uint32_t i = 0; i < old->count; i++) {
        const struct segment *segment = &old->items[i];
        if (!segment_like(list, segment->address, segment->size, segment->generation))
            (void)import_segment_end(segment->import, true);
    }
    error_attempt_end(&before, TARN_OK);
    list_destroy(old);
}

/* ---- Calls ---- */

static tarn_status import_pool(struct arena *arena, const tarn_share *share,
                               struct tarn_imported_pool **result)
{
    const struct segment_list none = {0};
    struct tarn_imported_pool *imported = object_alloc(&imported_pools);
    if (!imported)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an imported pool");
    tarn_status status = board_join(share_board(share), &imported->board);
    if (status)
        goto fail_joined;
    imported->arena = arena;
    imported->id[0] = share->head.id[0];
    imported->id[1] = share->head.id[1];
    imported->generation = share->head.generation;
    status = list_make(arena, share, &none, &imported->list);
    if (status)
        goto fail_mapped;
    *result = imported;
    return TARN_OK;

fail_mapped:
    board_leave(&imported->board);
fail_joined:
    object_free(&imported_pools, imported);
    return status;
}

tarn_status tarn_pool_import(const tarn_share *share, int device, tarn_imported_pool **imported)
{
    struct arena *arena = NULL;
    if (!imported)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "imported is NULL");
    tarn_status status = import_begin(share, true, device, &arena);
    if (status)
        return status;
    return import_pool(arena, share, imported);
}

/* Makes the pool's list that of a share, which is well formed. */
static tarn_status change(struct tarn_imported_pool *imported, const tarn_share *share)
{
    struct segment_list list, old = imported->list;
    if (share->head.id[0] != imported->id[0] || share->head.id[1] != imported->id[1])
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the share is not of the pool that was imported, or was made after a "
                      "revocation: close this import, "
                      "and import that share");
    if (share->head.generation < imported->generation)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the share is older than what was imported: generation %llu, not %llu",
                      (unsigned long long)share->head.generation,
                      (unsigned long long)imported->generation);
    tarn_status status = import_check(share, imported->arena->device);
    if (!status)
        status = list_make(imported->arena, share, &old, &list);
    if (status)
        return status;
    mutex_lock(&imported_lock);
    imported->list = list;
    imported->generation = share->head.generation;
    mutex_unlock(&imported_lock);
    list_retire(&old, &list);
    return TARN_OK;
}

tarn_status tarn_imported_pool_update(tarn_imported_pool *imported, const tarn_share *share)
{
    tarn_status status = imported_known(imported);
    if (!status)
        status = import_share_check(share, true);
    if (!status)
        status = device_check(imported->arena->device);
    if (!status)
        status = change_begin(imported);
    if (status)
        return status;
    status = change(imported, share);
    change_end(imported);
    return status;
}

tarn_status tarn_imported_pool_find(tarn_imported_pool *imported, const void *address, size_t size,
                                    void **pointer)
{
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    tarn_status status = imported_known(imported);
    if (status)
        return status;
    uint64_t at = (uintptr_t)address, offset = 0;
    uintptr_t start = 0;
    mutex_lock(&imported_lock);
    const struct segment *segment = segment_at(&imported->list, at);
    if (segment && size <= segment->size - (at - segment->address)) {
        start = import_start(segment->import);
        offset = at - segment->address;
    }
    mutex_unlock(&imported_lock);
    if (!start)
        return failed(
            TARN_ERROR_INVALID_POINTER,
            "%zu bytes at the exporter's %p are not in one segment of the pool as it was imported",
            size, address);
    *pointer = (void *)(start + offset);
    return TARN_OK;
}

tarn_status tarn_imported_pool_state_get(tarn_imported_pool *imported, tarn_import_state *state)
{
    tarn_status status = imported_known(imported);
    if (status)
        return status;
    if (!state)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "state is NULL");
    mutex_lock(&imported_lock);
    uint64_t generation = imported->generation;
    mutex_unlock(&imported_lock);
    const struct board_words *words = imported->board.words;
    if (atomic_load_explicit(&words->revoked, memory_order_acquire))
        *state = TARN_IMPORT_REVOKED;
    else if (!board_has_exporter(&imported->board))
        *state = TARN_IMPORT_ORPHANED;
    else if (atomic_load_explicit(&words->generation, memory_order_acquire) > generation)
        *state = TARN_IMPORT_OUTDATED;
    else
        *state = TARN_IMPORT_CURRENT;
    return TARN_OK;
}

/* Unmaps the segments, from the last one on. At one that the driver refuses to unmap it stops; the
 * rest stays in the list. */
static tarn_status list_close(struct tarn_imported_pool *imported)
{
    tarn_status status = TARN_OK;
    while (!status && imported->list.count > 0) {
        struct import *last = imported->list.items[imported->list.count - 1].import;
        mutex_lock(&imported_lock);
        imported->list.count--;
        mutex_unlock(&imported_lock);
        status = import_segment_end(last, false);
        if (status) {
            mutex_lock(&imported_lock);
            imported->list.count++;
            mutex_unlock(&imported_lock);
        }
    }
    return status;
}

tarn_status tarn_imported_pool_close(tarn_imported_pool *imported)
{
    tarn_status status = imported ? imported_known(imported) : process_check();
    if (status || !imported)
        return status;
    status = change_begin(imported);
    if (status)
        return status;
    status = list_close(imported);
    if (status) {
        change_end(imported);
        return status;
    }
    list_destroy(&imported->list);
    board_leave(&imported->board);
    object_free(&imported_pools, imported);
    return TARN_OK;
}
