/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A plan as a file, which `tarn plan` writes and the setting plan:FILE names. A plan has one arena
 * per stream and planned pool. It has the requests of that stream to that pool in a recorded run,
 * in their order, and the best place for each. Arenas do not share memory, since streams have no
 * order among each other, and pools share nothing. Arenas are one behind the other in the file,
 * each in this form; all numbers are little endian.
 *
 *      byte 0   magic "tarnplan"     8   version: 1, or 2     12  requests, how many
 *                                        of several arenas,
 *                                        or 3 with pools
 *      16       arena, bytes         24  small, bytes         32  bound, bytes
 *      40       recorded, bytes      48  arenas behind this   52  pool: 0 is the default
 *                                        one (versions 2, 3)      pool (version 3)
 *      56       checksum of all except itself (plan_checksum)
 *      64       the requests, 12 bytes each: size, offset and end
 *
 * Sizes and offsets of requests are in units of 512 bytes. `end` is the number of the first request
 * of the arena after the block was freed. Arenas are in the order of their first requests. Private
 * pools are numbered from 1, in the order of the arenas. A plan that is loaded is never changed and
 * never freed. */
#ifndef TARN_MEMORY_PLAN_FILE_H
#define TARN_MEMORY_PLAN_FILE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>

#define PLAN_MAGIC "tarnplan"
#define PLAN_VERSION 1         /* a file with one arena */
#define PLAN_VERSION_SEVERAL 2 /* a file with more */
#define PLAN_VERSION_POOLS 3   /* a file with an arena of a private pool */
#define PLAN_ARENAS_MOST 32
#define PLAN_REQUESTS_MOST ((uint32_t)1 << 26)
#define PLAN_GROUP 64u
/* Bytes: larger requests are planned; slabs serve the others. */
#define PLAN_LEAST_REQUEST ((size_t)64 << 10)

struct plan_header {
    char magic[8];
    uint32_t version, count;
    uint64_t arena;    /* bytes that the planned places need, from offset 0 */
    uint64_t small;    /* bytes for requests that are not planned */
    uint64_t bound;    /* bytes: the most that was live at one time; for people */
    uint64_t recorded; /* bytes: the most of all requests of the recording; for people */
    uint32_t behind;   /* number of arenas behind this one in the file */
    uint32_t pool;     /* 0: the default pool; otherwise a private pool, numbered by first use */
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
    const struct plan *next; /* the next arena; NULL: this is the last */
    struct plan_header header;
    const struct plan_request *requests;
    const uint32_t *by_offset; /* numbers of the requests, in the order of their offsets */
    const uint32_t *rank;      /* per request: its index in `by_offset` */
    const uint32_t *latest;    /* per group of PLAN_GROUP requests: their latest end */
};

/* The checksum of a header without its last field, and of the requests, as they are in the file. */
uint64_t plan_checksum(const struct plan_header *header, const struct plan_request *requests);

/* Loads a plan and returns its first arena. TARN_ERROR_CONFIGURATION if the file cannot be read or
 * is malformed. The text begins with `source`, the key and the path, and names the place and the
 * value. */
tarn_status plan_load(const char *source, const char *path, const struct plan **plan);

/* The plan in force; NULL: none. Set by config.c. */
extern _Atomic(const struct plan *) plan_now;

#endif
