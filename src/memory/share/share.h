/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A share describes the memory of a block, or of a pool, for another process. export.c and
 * pool_export.c create it, share.c keeps and closes it, wire.c sends and receives it, import.c and
 * pool_import.c map it. A received share is well formed: share_check() has checked it. Only the
 * driver can tell whether its files are what it says. */
#ifndef TARN_MEMORY_SHARE_H
#define TARN_MEMORY_SHARE_H

#include "memory/arena/arena.h"

#include <tarn/share.h>

#define SHARE_MAGIC UINT64_C(0x6572616873727431)      /* "1trshare" in this machine's byte order */
#define SHARE_MAGIC_POOL UINT64_C(0x6c6f6f7072727431) /* "1trrpool": the memory of a pool */
#define SHARE_VERSION 1u
#define SHARE_MOST_PARTS 65536u

/* The same when sent and in memory, without padding. Both ends run on one machine. */
struct share_head {
    uint64_t magic;
    uint32_t version, parts;
    /* Of a block: its size, and where it begins in the first part; of a pool: the size of all
     * parts, and 0. */
    uint64_t bytes, offset;
    uint64_t mapped; /* bytes of all parts */
    uint64_t id[2], generation;
    int32_t device;
    char driver[12]; /* NUL-terminated */
};

struct share_part {
    uint64_t size; /* bytes */
    /* Of a pool: the exporter's address, and the generation of that mapping; of a block: 0. */
    uint64_t address, generation;
    /* -1: none yet; of a pool also: the receiver has this part already. */
    int file;
    driver_piece piece;
};

struct pool_export;

struct tarn_share {
    struct share_head head;
    struct arena *arena;      /* exporter: the arena whose pieces are anchored; otherwise NULL */
    uintptr_t start;          /* of a block */
    struct share_part *parts; /* head.parts, by address */
    uint32_t room;            /* parts that fit into `parts` */

    /* For the share of a pool. On the exporter's side `export` is the export that counts the share.
     * On the importer's side `board` is the file of the board, or -1. */
    struct pool_export *export;
    int board;
};

static inline bool share_is_of_pool(const struct tarn_share *share)
{
    return share->head.magic == SHARE_MAGIC_POOL;
}

/* The file of the board that goes with a pool's share. */
int share_board(const struct tarn_share *share);

/* Whether a caller's pointer is a share that was made or received and is not closed. */
tarn_status share_known(const struct tarn_share *share);

/* Creates an empty share with room for head->parts. NULL with an error text. Destroying it closes
 * its files and removes its anchors. */
struct tarn_share *share_create(const struct share_head *head);
void share_destroy(struct tarn_share *share);

/* Asks the driver for the file of a part, in the exporter. No lock held. */
tarn_status share_part_export(struct device *device, struct share_part *part);

/* Whether a head is consistent by itself. */
tarn_status share_head_check(const struct share_head *head);
/* Whether a whole share is, once its parts have sizes and files. */
tarn_status share_check(const struct tarn_share *share);

#endif
