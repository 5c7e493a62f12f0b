/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes shares of blocks. Under the lock of the block's heap its pieces are pinned and noted; after that they stay where
 * they are, so the driver is asked for their files with no lock held. Owns the name of this process among those that
 * export: random, so that it says nothing of the process and no later one has it. */
#include "memory/share/share.h"
#include "base/cancel.h"
#include "base/file.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"
#include "memory/generation.h"
#include "memory/malloc.h"
#include "memory/pin.h"

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
    process_name = ((uint64_t)getpid() << 32) ^ (uint64_t)now.tv_sec * UINT64_C(1000000000) ^ (uint64_t)now.tv_nsec;
}

static uint64_t process_name_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_name_make);
    return process_name;
}

/* ---- Shares ------------------------------------------------------------------------------------------------------ */

static struct object_pool shares = OBJECT_POOL_NAMED(struct tarn_share);

static size_t parts_bytes(const struct share_head *head)
{
    return head->parts * sizeof(struct share_part);
}

tarn_status share_known(const struct tarn_share *share)
{
    if (object_is_live(&shares, share))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT, share ? "%p is no share, or one that was closed" : "share is NULL",
                  (const void *)share);
}

struct tarn_share *share_create(const struct share_head *head)
{
    struct tarn_share *share = object_alloc(&shares);
    struct share_part *parts = share ? pages_alloc(parts_bytes(head)) : NULL;
    if (!parts) {
        object_free(&shares, share);
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a share of %" PRIu32 " pieces", head->parts);
        return NULL;
    }
    share->head = *head;
    share->parts = parts;
    for (uint32_t i = 0; i < head->parts; i++)
        share->parts[i].file = -1;
    return share;
}

void share_destroy(struct tarn_share *share)
{
    if (!share)
        return;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    for (uint32_t i = 0; i < share->head.parts; i++)
        if (share->parts[i].file >= 0)
            close(share->parts[i].file);
    if (share->arena)
        pieces_unpin(share->arena, share->start, share->head.bytes);
    pages_free(share->parts, parts_bytes(&share->head));
    object_free(&shares, share);
}

tarn_status tarn_share_close(tarn_share *share)
{
    tarn_status status = process_check();
    if (status == TARN_ERROR_FORKED)
        return status;
    status = share ? share_known(share) : TARN_OK;
    if (!status)
        share_destroy(share);
    return status;
}

static tarn_status malformed(const char *what)
{
    return failed(TARN_ERROR_INVALID_ARGUMENT, "what was received is not a share as tarn sends it: %s", what);
}

tarn_status share_head_check(const struct share_head *head)
{
    if (head->magic != SHARE_MAGIC)
        return malformed("it begins otherwise");
    if (head->version != SHARE_VERSION)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the share is of version %" PRIu32 ", and this tarn reads %u: both sides must use the same tarn",
                      head->version, SHARE_VERSION);
    if (head->parts == 0 || head->parts > SHARE_MOST_PARTS)
        return malformed("its number of pieces");
    if (head->bytes == 0 || head->mapped > SIZE_MAX / 2 || head->offset >= head->mapped ||
        head->bytes > head->mapped - head->offset)
        return malformed("its block is not in its pieces");
    if (!memchr(head->driver, '\0', sizeof head->driver) || head->device < 0)
        return malformed("its driver or its device");
    return TARN_OK;
}

/* The parts are all that the block lies in, and no more. */
tarn_status share_check(const struct tarn_share *share)
{
    const struct share_head *head = &share->head;
    uint64_t sum = 0;
    tarn_status status = share_head_check(head);
    for (uint32_t i = 0; !status && i < head->parts; i++) {
        const struct share_part *part = &share->parts[i];
        if (part->file < 0)
            status = malformed("a file is missing");
        else if (part->size == 0 || part->size > head->mapped - sum)
            status = malformed("the sizes of its pieces");
        sum += part->size;
    }
    if (status)
        return status;
    const struct share_part *last = &share->parts[head->parts - 1];
    if (sum != head->mapped || head->offset >= share->parts[0].size ||
        head->offset + head->bytes <= head->mapped - last->size)
        return malformed("its block does not fill its pieces");
    return TARN_OK;
}

tarn_status tarn_share_info_get(const tarn_share *share, tarn_share_info *info)
{
    if (!info || info->size != sizeof *info)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "info is NULL, or info->size is not sizeof(tarn_share_info)");
    tarn_status status = process_check();
    if (status || (status = share_known(share)))
        return status;
    *info = (tarn_share_info){
        .size = sizeof *info,
        .bytes = share->head.bytes,
        .offset = share->head.offset,
        .mapped = share->head.mapped,
        .pieces = share->head.parts,
        .device = share->head.device,
        .id = {share->head.id[0], share->head.id[1]},
        .generation = share->head.generation,
    };
    return TARN_OK;
}

/* ---- Export ------------------------------------------------------------------------------------------------------ */

tarn_status tarn_export_enable(int device)
{
    struct device *found = NULL;
    struct arena *arena = NULL;
    tarn_status status = memory_ready();
    if (status || (status = device_find(device, &found)))
        return status;
    if (!found->properties.exportable)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d cannot give its memory to other processes", device);
    if ((status = arena_of(found, &arena)))
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
                  "%zu bytes of device %d were created already, and not for other processes: call "
                  "tarn_export_enable() before its memory is used, or free all of it and call tarn_trim()",
                  reserved, device);
}

/* What is exported, and what comes of it. */
struct exporting {
    const void *pointer;
    struct tarn_share *share;
};

/* Under the lock of the block's heap: pins the pieces of the block and notes them in a share. */
static tarn_status note_pieces(struct store *store, const tarn_block_info *block, void *argument)
{
    struct arena *arena = store->arena;
    struct exporting *exporting = argument;
    uintptr_t start = (uintptr_t)block->base, end = start + block->usable_size;
    if (block->base != exporting->pointer)
        return failed(TARN_ERROR_INVALID_POINTER, "%p is not the start of a block: it lies in the one at %p",
                      exporting->pointer, block->base);
    tarn_status status = store_check(store);
    if (!status && store->plain)
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
            return failed(TARN_ERROR_NOT_SUPPORTED,
                          "the memory of %p was not created for other processes: call tarn_export_enable(%d) before "
                          "the device's memory is used, or allocate from a pool that is `exportable`",
                          exporting->pointer, arena->device->number);
    }
    if (head.parts > SHARE_MOST_PARTS)
        return failed(TARN_ERROR_NOT_SUPPORTED, "the block at %p lies in %" PRIu32 " pieces; at most %u can be shared",
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
    pieces_pin(arena, start, head.bytes);
    exporting->share = share;
    return TARN_OK;
}

static tarn_status export_part(struct device *device, struct share_part *part)
{
    tarn_status status = device_note(device, driver->export(device->number, part->piece, &part->file));
    if (!status && (part->file = file_apart(part->file)) < 0)
        status = failed(TARN_ERROR_SYSTEM, "no number for a file of a share: %s", strerror(errno));
    return status;
}

tarn_status tarn_export(const void *pointer, tarn_share **result)
{
    struct exporting exporting = {.pointer = pointer};
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "share is NULL");
    tarn_status status = memory_block_do(pointer, note_pieces, &exporting);
    if (status)
        return status;
    struct tarn_share *share = exporting.share;
    struct device *device = share->arena->device;
    for (uint32_t i = 0; !status && i < share->head.parts; i++)
        status = export_part(device, &share->parts[i]);
    if (status) {
        share_destroy(share);
        return status;
    }
    *result = share;
    return TARN_OK;
}
