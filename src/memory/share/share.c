/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the shares that were made or received. */
#include "memory/share/share.h"
#include "base/cancel.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/sized.h"
#include "base/status.h"
#include "memory/growth/segment.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static struct object_pool shares = OBJECT_POOL_NAMED(struct tarn_share);

static size_t parts_bytes(const struct share_head *head)
{
    return head->parts * sizeof(struct share_part);
}

tarn_status share_known(const struct tarn_share *share)
{
    if (object_is_live(&shares, share))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT, share ? "%p is not a share, or was closed" : "share is NULL",
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
        pieces_unanchor(share->arena, share->start, share->head.bytes);
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
    tarn_status status = sized_check("tarn_share_info", info, sizeof *info);
    if (status || (status = process_check()) || (status = share_known(share)))
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
    };
    sized_write(info, &result, sizeof result);
    return TARN_OK;
}
