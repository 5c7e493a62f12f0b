/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A share: the description of a block's memory that one process sends to another. export.c creates it, share.c keeps and closes it, wire.c
 * sends and receives it, import.c maps it. A received share is well formed, since share_check() has checked it. Whether its files are what
 * it says, only the driver can tell. */
#ifndef TARN_MEMORY_SHARE_H
#define TARN_MEMORY_SHARE_H

#include "memory/arena/arena.h"

#include <tarn/share.h>

#define SHARE_MAGIC UINT64_C(0x6572616873727431) /* "1trshare" as a machine of the same byte order reads it */
#define SHARE_VERSION 1u
#define SHARE_MOST_PARTS 65536u

/* The same when sent and in memory, without gaps. Both ends run on one machine. */
struct share_head {
    uint64_t magic;
    uint32_t version, parts;
    uint64_t bytes, offset; /* of the block, and where it begins in the first part */
    uint64_t mapped;        /* bytes of all parts */
    uint64_t id[2], generation;
    int32_t device;
    char driver[12]; /* NUL-terminated */
};

struct share_part {
    uint64_t size; /* bytes */
    int file;      /* -1 until there is one */
    driver_piece piece;
};

struct tarn_share {
    struct share_head head;
    struct arena *arena; /* in the exporter: where its pieces are anchored; otherwise NULL */
    uintptr_t start;
    struct share_part *parts; /* head.parts */
};

/* Whether a pointer from a caller is a share that was created or received, and not closed. */
tarn_status share_known(const struct tarn_share *share);

/* Creates an empty share with room for the parts; NULL with an error text. Freeing it closes its files and removes its anchors. */
struct tarn_share *share_create(const struct share_head *head);
void share_destroy(struct tarn_share *share);

/* Whether a head is consistent; and whether a whole share is, when its parts have their sizes and files. */
tarn_status share_head_check(const struct share_head *head);
tarn_status share_check(const struct tarn_share *share);

#endif
