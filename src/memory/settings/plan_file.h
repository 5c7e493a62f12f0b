/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A plan as a file, which `tarn plan` writes and the setting plan:FILE names. It has one arena for
 * each stream of each pool that is planned. Streams are in no order among each other, so that none
 * can be told which bytes another leaves to it, and pools share no memory. An arena is the requests
 * of that stream to that pool in a recorded run, in their order, and where each is best put. Arenas
 * lie one behind the other in the file, each of these bytes; all numbers are little endian.
 *
 *     byte 0   magic "tarnplan"     8   version: 1, or 2     12  requests, how many
 *                                       of several arenas,
 *                                       or 3 with pools
 *     16       arena, bytes         24  small, bytes         32  bound, bytes
 *     40       recorded, bytes      48  arenas behind this   52  pool: 0 is the default
 *                                       one (versions 2, 3)      pool (version 3)
 *     56       checksum of all except itself (plan_checksum)
 *     64       the requests, 12 bytes each: size, offset and end
 *
 * Sizes and offsets of requests are units of 512 bytes. `end` is the number of the first request of
 * the arena that comes after the block was given back. The arenas are in the order of their first
 * requests. Private pools have numbers from 1 on, in the order of the arenas. A plan that is loaded
 * is never changed and never freed. */
#ifndef TARN_MEMORY_PLAN_FILE_H
#define TARN_MEMORY_PLAN_FILE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>

#define PLAN_MAGIC "tarnplan"
#define PLAN_VERSION 1         /* of a file with one arena */
#define PLAN_VERSION_SEVERAL 2 /* of one with more */
#define PLAN_VERSION_POOLS 3   /* of one with an arena of a private pool */
#define PLAN_ARENAS_MOST 32
#define PLAN_REQUESTS_MOST ((uint32_t)1 << 26)
#define PLAN_GROUP 64u
#define PLAN_LEAST_REQUEST \
    ((size_t)64 << 10) /* bytes: only larger ones are planned, what slabs
                          serve is not */

struct plan_header {
    char magic[8];
    uint32_t version, count;
    uint64_t arena;    /* bytes: of the planned places, from offset 0 on */
    uint64_t small;    /* bytes: for what is not planned */
    uint64_t bound;    /* bytes: the most that was live at one time; for people */
    uint64_t recorded; /* bytes: what all requests of the recording came to at most; for people */
    uint32_t behind;   /* arenas that follow in the file */
    uint32_t pool;     /* 0: the default pool; else a private pool, by the order in which they are
                          first used */
    uint64_t checksum;
};

struct plan_request {
    uint32_t size, offset; /* units */
    uint32_t end;
};

_Static_assert(sizeof(struct plan_header) == 64 && sizeof(struct plan_request) == 12,
               "as the file has them");

/* An arena of a plan. */
struct plan {
    const struct plan *next; /* the one behind it; NULL: it is the last */
    struct plan_header header;
    const struct plan_request *requests;
    const uint32_t *by_offset; /* numbers of the requests, the lowest offset first */
    const uint32_t *rank;      /* of each request: where it is in `by_offset` */
    const uint32_t *latest;    /* of each PLAN_GROUP requests, in their order: the latest end */
};

/* Of the header but its last field, and of the requests, as the file has them. */
uint64_t plan_checksum(const struct plan_header *header, const struct plan_request *requests);

/* Reads a plan, and gives its first arena. TARN_ERROR_CONFIGURATION for a file that cannot be read
 * or is not right; the text begins with `source`, the key and the path, and names the place and the
 * value. */
tarn_status plan_load(const char *source, const char *path, const struct plan **plan);

/* The one that is in force, or NULL: config.c. */
extern _Atomic(const struct plan *) plan_now;

#endif
