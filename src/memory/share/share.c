/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the shares that were made or received, and checks them. */
#include "memory/share/share.h"
#include "base/file.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "memory/growth/segment.h"
#include "memory/share/pool_export.h"

#include <inttypes.h>
#include <string.h>

static struct object_pool shares = OBJECT_POOL_NAMED(struct tarn_share);

static size_t parts_bytes(uint32_t room)
{
    return (room ? room : 1) * sizeof(struct share_part);
}

tarn_status share_known(const struct tarn_share *share)
{
    if (object_is_live(&shares, share))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  share ? "%p is not a share, or was closed" : "share is NULL",
                  (const void *)share);
}

struct tarn_share *share_create(const struct share_head *head)
{
    struct tarn_share *share = object_alloc(&shares);
    struct share_part *parts = share ? pages_alloc(parts_bytes(head->parts)) : NULL;
    if (!parts) {
        object_free(&shares, share);
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                     "no host memory for a share of %" PRIu32 " pieces", head->parts);
        return NULL;
    }
    share->head = *head;
    share->parts = parts;
    share->room = head->parts;
    share->board = -1;
    for (uint32_t i = 0; i < head->parts; i++)
        share->parts[i].file = -1;
    return share;
}

int share_board(const struct tarn_share *share)
{
    return share->export ? pool_export_board(share->export) : share->board;
}

static void unanchor(const struct tarn_share *share)
{
    if (!share_is_of_pool(share))
        pieces_unanchor(share->arena, share->start, share->head.bytes);
    for (uint32_t i = 0; i < share->head.parts && share_is_of_pool(share); i++)
        pieces_unanchor(share->arena, share->parts[i].address, share->parts[i].size);
}

void share_destroy(struct tarn_share *share)
{
    if (!share)
        return;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    for (uint32_t i = 0; i < share->head.parts; i++)
        if (share->parts[i].file >= 0)
            file_close(share->parts[i].file);
    if (share->board >= 0)
        file_close(share->board);
    if (share->arena)
        unanchor(share);
    pool_export_release(share->export);
    pages_free(share->parts, parts_bytes(share->room));
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
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  "what was received is not a share as tarn sends it: %s", what);
}

tarn_status share_head_check(const struct share_head *head)
{
    bool pool = head->magic == SHARE_MAGIC_POOL;
    if (head->magic != SHARE_MAGIC && !pool)
        return malformed("it begins otherwise");
    if (head->version != SHARE_VERSION)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the share is of version %" PRIu32
                      ", and this tarn reads %u: both sides must use the same tarn",
                      head->version, SHARE_VERSION);
    if ((head->parts == 0 && !pool) || head->parts > SHARE_MOST_PARTS)
        return malformed("its number of pieces");
    if (pool && (head->offset != 0 || head->bytes != head->mapped || head->mapped > SIZE_MAX / 2))
        return malformed("the bytes of its pool");
    if (!pool && (head->bytes == 0 || head->mapped > SIZE_MAX / 2 || head->offset >= head->mapped ||
                  head->bytes > head->mapped - head->offset))
        return malformed("its block is not in its pieces");
    if (!memchr(head->driver, '\0', sizeof head->driver) || head->device < 0)
        return malformed("its driver or its device");
    return TARN_OK;
}

/* Segments are in the order of addresses. One without a file is for an importer that has it
 * already. */
static tarn_status check_pool(const struct tarn_share *share)
{
    uint64_t sum = 0, end = 1;
    if (share_board(share) < 0)
        return malformed("a file is missing");
    for (uint32_t i = 0; i < share->head.parts; i++) {
        const struct share_part *part = &share->parts[i];
        if (part->size == 0 || part->size > share->head.mapped - sum)
            return malformed("the sizes of its segments");
        if (part->address < end || part->address > UINT64_MAX - part->size || part->generation == 0)
            return malformed("the places of its segments");
        sum += part->size;
        end = part->address + part->size;
    }
    return sum == share->head.mapped ? TARN_OK : malformed("the sizes of its segments");
}

/* The parts are exactly those that the block lies in. */
tarn_status share_check(const struct tarn_share *share)
{
    const struct share_head *head = &share->head;
    uint64_t sum = 0;
    tarn_status status = share_head_check(head);
    if (!status && share_is_of_pool(share))
        return check_pool(share);
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
    tarn_status status = sized_check("tarn_share_info", info, sizeof *info);
    if (!status)
        status = process_check();
    if (!status)
        status = share_known(share);
    size_t importers = 0;
    if (!status && share->export)
        status = pool_export_importers(share->export, &importers);
    if (status)
        return status;
    tarn_share_info result = {
        .size = sizeof result,
        .bytes = share->head.bytes,
        .offset = share->head.offset,
        .mapped = share->head.mapped,
        .pieces = share->head.parts,
        .device = share->head.device,
        .id = {share->head.id[0], share->head.id[1]},
        .generation = share->head.generation,
        .importers = importers,
    };
    sized_write(info, &result, sizeof result);
    return TARN_OK;
}
