/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What readers have mapped of each pool. If a pool gives memory up that a reader has mapped, the
 * memory *lingers*: the device does not get it back yet. A reader is taken to have all segments
 * that the owner gave it, until it says which it has. Each segment lingers once, however many
 * readers have it, and no longer than their connections.
 *
 * Owns the lists of readers, and of what they have. One thread. */
#include "keep/keep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A reader maps at most this many segments, and may have been given as many more. */
enum { HAS_MOST = 2 * KEEP_SEGMENTS_MOST };

static bool is_among(const struct keep_segment *list, unsigned count,
                     const struct keep_segment *segment)
{
    for (unsigned i = 0; i < count; i++)
        if (memcmp(&list[i], segment, sizeof *segment) == 0)
            return true;
    return false;
}

/* Adds a segment to a list that may have grown so before. False without memory. */
static bool append(struct keep_segment **list, unsigned *count, const struct keep_segment *segment)
{
    if ((*count & (*count - 1)) == 0) { /* it has room for the next power of two */
        size_t room = *count ? 2 * (size_t)*count : 1;
        struct keep_segment *grown = realloc(*list, room * sizeof *grown);
        if (!grown)
            return false;
        *list = grown;
    }
    (*list)[(*count)++] = *segment;
    return true;
}

static bool is_read(const struct kept_pool *pool, const struct keep_segment *segment)
{
    for (const struct keep_peer *peer = pool->readers; peer; peer = peer->next)
        if (is_among(peer->has, peer->has_count, segment))
            return true;
    return false;
}

/* Forgets what lingered and no reader has any more. */
static void settle(struct kept_pool *pool)
{
    for (unsigned i = pool->lingering_count; i-- > 0;)
        if (!is_read(pool, &pool->lingering[i]))
            pool->lingering[i] = pool->lingering[--pool->lingering_count];
}

uint64_t keep_readers(const struct kept_pool *pool)
{
    uint64_t count = 0;
    for (const struct keep_peer *peer = pool->readers; peer; peer = peer->next)
        count++;
    return count;
}

uint64_t keep_lingering(const struct kept_pool *pool)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < pool->lingering_count; i++)
        bytes += pool->lingering[i].size;
    return bytes;
}

static void linger(struct kept_pool *pool, const struct keep_segment *segment)
{
    if (!append(&pool->lingering, &pool->lingering_count, segment))
        fprintf(stderr, "tarn keep: pool %s: no memory to count what its readers have\n",
                pool->name);
}

void keep_reader_segment_ends(struct kept_pool *pool, const struct keep_segment *segment)
{
    if (is_read(pool, segment))
        linger(pool, segment);
}

bool keep_reader_begins(struct keep_peer *peer, struct kept_pool *pool)
{
    if (!peer->reads) {
        peer->reads = pool;
        peer->next = pool->readers;
        pool->readers = peer;
    }
    unsigned before = peer->has_count;
    for (unsigned i = 0; i < pool->count; i++)
        if (!is_among(peer->has, before, &pool->segments[i]) &&
            (peer->has_count == HAS_MOST ||
             !append(&peer->has, &peer->has_count, &pool->segments[i])))
            return false;
    return true;
}

bool keep_reader_has(struct keep_peer *peer, const struct keep_message *said)
{
    struct kept_pool *pool = peer->reads;
    bool fits = true;
    for (unsigned i = peer->has_count; i-- > 0;)
        if (peer->has[i].offset >= said->from && peer->has[i].offset < said->to)
            peer->has[i] = peer->has[--peer->has_count];
    for (uint32_t i = 0; fits && i < said->count; i++) {
        const struct keep_segment *segment = &said->segments[i];
        fits = segment->offset >= said->from && segment->offset < said->to &&
               segment->size <= UINT64_MAX - segment->offset && peer->has_count < HAS_MOST &&
               append(&peer->has, &peer->has_count, segment);
        if (fits && !is_among(pool->segments, pool->count, segment) &&
            !is_among(pool->lingering, pool->lingering_count, segment))
            linger(pool, segment); /* since before this owner began */
    }
    settle(pool);
    return fits;
}

void keep_reader_ends(struct keep_peer *peer)
{
    struct kept_pool *pool = peer->reads;
    if (!pool)
        return;
    struct keep_peer **place = &pool->readers;
    while (*place != peer)
        place = &(*place)->next;
    *place = peer->next;
    free(peer->has);
    peer->reads = NULL;
    peer->next = NULL;
    peer->has = NULL;
    peer->has_count = 0;
    settle(pool);
}
