/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A share: the description of a block's memory, or of a pool's, that one process sends to another.
 * export.c and pool_export.c create it, share.c keeps and closes it, wire.c sends and receives it,
 * import.c and pool_import.c map it. A received share is well formed, since share_check() has
 * checked it. Whether its files are what it says, only the driver can tell. */
#ifndef TARN_MEMORY_SHARE_H
#define TARN_MEMORY_SHARE_H

#include "memory/arena/arena.h"

#include <tarn/share.h>

#define SHARE_MAGIC \
    UINT64_C(0x6572616873727431) /* "1trshare" as a machine of the same byte order reads it */
#define SHARE_MAGIC_POOL UINT64_C(0x6c6f6f7072727431) /* "1trrpool": the memory of a pool */
#define SHARE_VERSION 1u
#define SHARE_MOST_PARTS 65536u

/* The same when sent and in memory, without gaps. Both ends run on one machine. */
struct share_head {
    uint64_t magic;
    uint32_t version, parts;
    uint64_t bytes, offset; /* of the block, and where it begins in the first part. A pool's: of all
                               parts, and 0 */
    uint64_t mapped;        /* bytes of all parts */
    uint64_t id[2], generation;
    int32_t device;
    char driver[12]; /* NUL-terminated */
};

struct share_part {
    uint64_t size;                /* bytes */
    uint64_t address, generation; /* a pool's: where the exporter has it, and of that mapping; else
                                     0 */
    int file;                     /* -1 until there is one; a pool's: or where whom it is for has
                                     the part already */
    driver_piece piece;
};

struct pool_export;

struct tarn_share {
    struct share_head head;
    struct arena *arena;      /* in the exporter: where its pieces are anchored; otherwise NULL */
    uintptr_t start;          /* a block's */
    struct share_part *parts; /* head.parts, by address */
    uint32_t room;            /* parts that there is memory for */

    /* A pool's (pool_export.h): of an exporter, what it counts in; of an importer, the board that
     * came, or -1. */
    struct pool_export *export;
    int board;
};

static inline bool share_is_of_pool(const struct tarn_share *share)
{
    return share->head.magic == SHARE_MAGIC_POOL;
}

/* The file of a pool's share by which importers find the board. */
int share_board(const struct tarn_share *share);

/* Whether a pointer from a caller is a share that was created or received, and not closed. */
tarn_status share_known(const struct tarn_share *share);

/* Creates an empty share with room for head->parts; NULL with an error text. Freeing it closes its
 * files and removes its anchors. */
struct tarn_share *share_create(const struct share_head *head);
void share_destroy(struct tarn_share *share);

/* Asks the driver for the file of an exporter's part. With no lock held. */
tarn_status share_part_export(struct device *device, struct share_part *part);

/* Whether a head is consistent; and whether a whole share is, when its parts have their sizes and
 * files. */
tarn_status share_head_check(const struct share_head *head);
tarn_status share_check(const struct tarn_share *share);

#endif
