/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes shares of pools. An exported pool is registrable: each of its segments is one piece, which
 * is neither moved nor cut, so layouts differ only in whole segments. Segments are anchored and
 * noted under the lock of each heap. The driver is asked for their files with no lock held. Owns
 * the set of exports, under `exports_lock` ("lock" below). */
#include "memory/share/pool_export.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "memory/arena/generation.h"
#include "memory/growth/segment.h"
#include "memory/pool/pool.h"
#include "memory/share/board.h"
#include "memory/share/share.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct pool_export {
    struct pool_export *next;  /* lock: in the set */
    const struct arena *arena; /* of the exported pool; with its id */
    uint64_t pool[2];
    uint64_t serial;    /* unique in this process */
    struct board board; /* its generation is written under the lock */
    uint64_t layout;    /* lock: a hash of the newest layout */
    unsigned shares;    /* lock: number of shares */
    bool revoked;       /* lock: it is out of the set */
};

static mutex exports_lock = MUTEX_INITIALIZER(LOCK_EXPORTS);
static struct pool_export *exports;
static uint64_t last_serial; /* lock */
static struct object_pool export_objects = OBJECT_POOL(struct pool_export);

/* ---- The set ---- */

static bool is_of(const struct pool_export *export, const struct store *store)
{
    return export->arena == store->arena && export->pool[0] == store->id[0] &&
           export->pool[1] == store->id[1];
}

/* The export of a store, with one more share; or NULL. */
static struct pool_export *count_in_locked(const struct store *store)
{
    struct pool_export *export = exports;
    while (export && !is_of(export, store))
        export = export->next;
    if (export)
        export->shares++;
    return export;
}

static struct pool_export *count_in(const struct store *store)
{
    mutex_lock(&exports_lock);
    struct pool_export *export = count_in_locked(store);
    mutex_unlock(&exports_lock);
    return export;
}

static void revoke_locked(struct pool_export *export)
{
    struct pool_export **place = &exports;
    if (export->revoked)
        return;
    while (*place != export)
        place = &(*place)->next;
    *place = export->next;
    export->revoked = true;
    atomic_store_explicit(&export->board.words->revoked, 1, memory_order_release);
}

static void export_destroy(struct pool_export *export)
{
    board_leave(&export->board);
    object_free(&export_objects, export);
}

/* The same; created if there is none. */
static tarn_status export_of(const struct store *store, struct pool_export **result)
{
    *result = count_in(store);
    if (*result)
        return TARN_OK;
    struct pool_export *made = object_alloc(&export_objects);
    if (!made)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the export of a pool");
    tarn_status status = board_create(&made->board);
    if (status) {
        object_free(&export_objects, made);
        return status;
    }
    made->arena = store->arena;
    made->pool[0] = store->id[0];
    made->pool[1] = store->id[1];
    made->shares = 1;
    mutex_lock(&exports_lock);
    *result = count_in_locked(store); /* another thread was faster */
    if (!*result) {
        made->serial = ++last_serial;
        made->next = exports;
        *result = exports = made;
    }
    mutex_unlock(&exports_lock);
    if (*result != made)
        export_destroy(made);
    return TARN_OK;
}

void pool_export_release(struct pool_export *export)
{
    if (!export)
        return;
    mutex_lock(&exports_lock);
    bool last = --export->shares == 0;
    if (last)
        revoke_locked(export);
    mutex_unlock(&exports_lock);
    if (last)
        export_destroy(export);
}

int pool_export_board(const struct pool_export *export)
{
    return export->board.file;
}

/* ---- Segments ---- */

/* Whether a segment can be shared: not while it is free and a thread maps or unmaps it. */
static bool is_there_locked(const struct run *run)
{
    return run->first != run->last || run->first->state != SPAN_TAKEN;
}

static void note_locked(struct arena *arena, const struct run *run, struct share_part *part)
{
    const struct piece *piece = arena_piece(arena, run->start);
    *part = (struct share_part){.size = piece->size,
                                .address = piece->address,
                                .generation = generation_at(arena, piece->address),
                                .file = -1,
                                .piece = piece->handle};
    pieces_anchor(arena, piece->address, piece->size);
}

/* Counts the segments of a heap in `count`, and notes them in a share as far as there is room;
 * NULL: only counts. */
static void each_segment_locked(struct heap *heap, struct tarn_share *share, size_t *count)
{
    for (int zone = 0; zone < ZONES; zone++)
        for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next) {
            if (!is_there_locked(run))
                continue;
            ++*count;
            if (share && share->head.parts < share->room)
                note_locked(heap->arena, run, &share->parts[share->head.parts++]);
        }
}

static tarn_status each_segment(struct store *store, struct tarn_share *share, size_t *count)
{
    tarn_status status = store_check(store);
    for (struct heap *heap = heap_next_of(store, NULL); heap && !status;
         heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        if (heap->store == store) {
            status = store_check(store);
            if (status == TARN_OK)
                each_segment_locked(heap, share, count);
        }
        mutex_unlock(&heap->lock);
    }
    return status;
}

static int by_address(const void *a, const void *b)
{
    const struct share_part *left = a, *right = b;
    return left->address < right->address ? -1 : left->address > right->address;
}

static uint64_t mixed(uint64_t sum, uint64_t value)
{
    sum = (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 32;
}

/* Numbers the layout in a share. An unchanged layout keeps its number. */
static void number_locked(struct pool_export *export, struct tarn_share *share)
{
    uint64_t sum = 1, generation = atomic_load(&export->board.words->generation);
    for (uint32_t i = 0; i < share->head.parts; i++) {
        const struct share_part *part = &share->parts[i];
        sum = mixed(mixed(mixed(sum, part->address), part->size), part->generation);
        share->head.mapped += part->size;
    }
    share->head.bytes = share->head.mapped;
    if (generation == 0 || export->layout != sum) {
        export->layout = sum;
        atomic_store_explicit(&export->board.words->generation, ++generation, memory_order_release);
    }
    share->head.generation = generation;
}

/* Fills a share with the segments of a store. `count` is their number, which may exceed the
 * room. */
static tarn_status fill(struct store *store, struct tarn_share *share, size_t *count)
{
    *count = 0;
    mutex_lock(&exports_lock); /* so that a later layout has a higher number */
    tarn_status status = each_segment(store, share, count);
    if (!status && *count <= share->room) {
        qsort(share->parts, share->head.parts, sizeof *share->parts, by_address);
        number_locked(share->export, share);
    }
    mutex_unlock(&exports_lock);
    return status;
}

/* A share of all segments of a store, without files. Takes over the caller's share of `export`. */
static tarn_status share_segments(struct store *store, struct pool_export *export,
                                  struct tarn_share **result)
{
    struct share_head head = {.magic = SHARE_MAGIC_POOL,
                              .version = SHARE_VERSION,
                              .id = {process_name_get(), export->serial},
                              .device = store->arena->device->number};
    size_t count = 0;
    strncpy(head.driver, driver->name, sizeof head.driver - 1);
    tarn_status status = each_segment(store, NULL, &count);
    while (!status) {
        if (count > SHARE_MOST_PARTS) {
            status = failed(TARN_ERROR_NOT_SUPPORTED,
                            "the pool has %zu segments; at most %u can be shared", count,
                            SHARE_MOST_PARTS);
            break;
        }
        head.parts = (uint32_t)count;
        struct tarn_share *share = share_create(&head);
        if (!share) {
            status = TARN_ERROR_OUT_OF_HOST_MEMORY;
            break;
        }
        share->head.parts = 0;
        share->arena = store->arena;
        share->export = export;
        status = fill(store, share, &count);
        if (!status && count <= share->room) {
            *result = share;
            return TARN_OK;
        }
        share->export = NULL; /* kept for the next try, which has more room */
        share_destroy(share);
    }
    pool_export_release(export);
    return status;
}

/* ---- Files ---- */

static bool is_same(const struct share_part *a, const struct share_part *b)
{
    return a->address == b->address && a->size == b->size && a->generation == b->generation;
}

/* Asks the driver for the files of parts that are not in `before`. Both shares are ordered by
 * address. */
static tarn_status export_files(struct tarn_share *share, const struct tarn_share *before)
{
    tarn_status status = TARN_OK;
    uint32_t old = 0, all = before ? before->head.parts : 0;
    for (uint32_t i = 0; !status && i < share->head.parts; i++) {
        struct share_part *part = &share->parts[i];
        while (old < all && before->parts[old].address < part->address)
            old++;
        if (old == all || !is_same(&before->parts[old], part))
            status = share_part_export(share->arena->device, part);
    }
    return status;
}

/* ---- Calls ---- */

/* Whether a share is of a pool, and was made in this process. */
static tarn_status exported(const struct tarn_share *share)
{
    tarn_status status = share_known(share);
    if (!status && !share->export)
        status = failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "the share was not made by tarn_pool_export(): it was received, or it is of a block");
    return status;
}

static tarn_status check_before(const struct store *store, const struct tarn_share *before)
{
    tarn_status status = exported(before);
    if (!status && !is_of(before->export, store))
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "the share before is of another pool");
    return status;
}

tarn_status tarn_pool_export(tarn_pool *public, const tarn_share *before, tarn_share **result)
{
    struct pool_export *export = NULL;
    struct tarn_share *share = NULL;
    tarn_status status = pool_check_any(public);
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "share is NULL");
    struct store *store = store_of_public(public);
    if (store->kind.exports != EXPORTS_POOL)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the pool is not registrable, so its memory cannot be exported as a whole");
    if (before)
        status = check_before(store, before);
    if (!status)
        status = store_check(store);
    if (!status)
        status = export_of(store, &export);
    if (status)
        return status;
    if (before && before->export != export) {
        pool_export_release(export);
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the share before was revoked: what follows it must be whole");
    }
    status = share_segments(store, export, &share);
    if (status)
        return status;
    status = export_files(share, before);
    if (status) {
        share_destroy(share);
        return status;
    }
    *result = share;
    return TARN_OK;
}

tarn_status tarn_share_revoke(const tarn_share *share)
{
    tarn_status status = process_check();
    if (!status)
        status = exported(share);
    if (status)
        return status;
    mutex_lock(&exports_lock);
    revoke_locked(share->export);
    mutex_unlock(&exports_lock);
    return TARN_OK;
}

tarn_status pool_export_importers(const struct pool_export *export, size_t *count)
{
    return board_importers(&export->board, count);
}
