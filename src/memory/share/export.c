/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes shares of blocks. Under the lock of the block's heap it anchors and notes the block's
 * pieces. These then stay where they are, so the driver is asked for their files with no lock held.
 * Owns this process's name among exporters, a random number: it tells nothing about the process,
 * and no later process has it. */
#include "base/file.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "memory/arena/generation.h"
#include "memory/growth/segment.h"
#include "memory/settings/hooks.h"
#include "memory/share/pointer.h"
#include "memory/share/pool_export.h"
#include "memory/share/share.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t process_name;

static void process_name_make(void)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (getrandom(&process_name, sizeof process_name, 0) == (ssize_t)sizeof process_name)
        return;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    process_name = ((uint64_t)getpid() << 32) ^ (uint64_t)now.tv_sec * UINT64_C(1000000000) ^
                   (uint64_t)now.tv_nsec;
}

uint64_t process_name_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_name_make);
    return process_name;
}

tarn_status tarn_export_enable(int device)
{
    struct device *found = NULL;
    struct arena *arena = NULL;
    tarn_status status = memory_ready();
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;
    if (!found->properties.exportable)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d cannot export memory to other processes",
                      device);
    status = arena_of(found, &arena);
    if (status)
        return status;
    mutex_lock(&arena->lock);
    size_t reserved = arena->reserved;
    bool enabled = arena->piece_flags & DRIVER_PIECE_EXPORTABLE;
    if (reserved == 0)
        arena->piece_flags |= DRIVER_PIECE_EXPORTABLE;
    mutex_unlock(&arena->lock);
    if (enabled || reserved == 0)
        return TARN_OK;
    return failed(TARN_ERROR_BUSY,
                  "%zu bytes of device %d were created before and are not exportable: call "
                  "tarn_export_enable() before its memory is used, or free all of it and call "
                  "tarn_device_trim()",
                  reserved, device);
}

/* The argument of note_pieces(), and its result. */
struct exporting {
    const void *pointer;
    struct tarn_share *share;
};

/* Anchors the pieces of a block and notes them in a share. Under the lock of the block's heap. */
static tarn_status note_pieces(struct store *store, const tarn_block_info *block, void *argument)
{
    struct arena *arena = store->arena;
    struct exporting *exporting = argument;
    uintptr_t start = (uintptr_t)block->base, end = start + block->usable_size;
    if (block->base != exporting->pointer)
        return failed(TARN_ERROR_INVALID_POINTER,
                      "%p is not the start of a block: it lies in the one at %p",
                      exporting->pointer, block->base);
    tarn_status status = store_check(store);
    if (!status && store->kind.exports == EXPORTS_NOTHING)
        status = failed(TARN_ERROR_NOT_SUPPORTED,
                        "the block at %p lies in a plain segment, which cannot be exported; "
                        "segments:virtual, or a pool of such, has memory that can",
                        block->base);
    if (status)
        return status;
    const struct piece *first = arena_piece(arena, start), *piece = NULL;
    struct share_head head = {
        .magic = SHARE_MAGIC,
        .version = SHARE_VERSION,
        .bytes = block->usable_size,
        .offset = start - first->address,
        .id = {process_name_get(), start},
        .generation = generation_newest(arena, start, block->usable_size),
        .device = arena->device->number,
    };
    for (uintptr_t address = first->address; address < end; address += piece->size) {
        piece = arena_piece(arena, address);
        head.mapped += piece->size;
        head.parts++;
        if (!(piece->flags & DRIVER_PIECE_EXPORTABLE))
            return failed(
                TARN_ERROR_NOT_SUPPORTED,
                "the memory of %p is not exportable: call tarn_export_enable(%d) before "
                "the device's memory is used, or allocate from a pool that is `exportable`",
                exporting->pointer, arena->device->number);
    }
    if (head.parts > SHARE_MOST_PARTS)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "the block at %p lies in %" PRIu32 " pieces; at most %u can be shared",
                      exporting->pointer, head.parts, SHARE_MOST_PARTS);
    strncpy(head.driver, driver->name, sizeof head.driver - 1);
    struct tarn_share *share = share_create(&head);
    if (!share)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    struct share_part *part = share->parts;
    for (uintptr_t address = first->address; address < end; address += piece->size, part++) {
        piece = arena_piece(arena, address);
        part->size = piece->size;
        part->piece = piece->handle;
    }
    share->arena = arena;
    share->start = start;
    pieces_anchor(arena, start, head.bytes);
    exporting->share = share;
    return TARN_OK;
}

tarn_status share_part_export(struct device *device, struct share_part *part)
{
    tarn_status status =
        device_note(device, driver->export(device->number, part->piece, &part->file));
    if (!status) {
        part->file = file_renumber(part->file);
        if (part->file < 0)
            status =
                failed(TARN_ERROR_SYSTEM, "no file descriptor for a share: %s", strerror(errno));
    }
    file_keep_from_children(part->file);
    return status;
}

tarn_status tarn_export(const void *pointer, tarn_share **result)
{
    struct exporting exporting = {.pointer = pointer};
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "share is NULL");
    tarn_status status = pointer_do_settled(pointer, note_pieces, &exporting);
    if (status)
        return status;
    struct tarn_share *share = exporting.share;
    struct device *device = share->arena->device;
    for (uint32_t i = 0; !status && i < share->head.parts; i++)
        status = share_part_export(device, &share->parts[i]);
    if (status) {
        share_destroy(share);
        return status;
    }
    *result = share;
    return TARN_OK;
}
