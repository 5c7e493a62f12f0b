/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Registrable pools: two devices stand for two ranks, which make the same calls on devices that are
 * otherwise not alike; and what is registered stays where it is. */
#include "driver/driver.h"
#include "memory/arena/arena.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEGMENT (32 * MIB)
#define RECOMMENDED (4 * MIB)
#define DEVICE (768 * MIB)
#define ROOM 64

static tarn_pool *registrable(int device, size_t limit)
{
    tarn_pool *pool = pool_with((tarn_pool_options){.device = device, .registrable = true});
    OK(tarn_pool_limit_set(pool, limit));
    return pool;
}

static size_t segments_of(tarn_pool *pool, tarn_mapping *segments)
{
    size_t count = 0;
    OK(tarn_pool_segments_get(pool, segments, ROOM, &count));
    CHECK(count <= ROOM);
    return count;
}

/* Where a block lies: the number of the segment, and the bytes into it. */
struct place {
    size_t segment, offset;
};

static struct place place_of(tarn_pool *pool, const char *block)
{
    tarn_mapping segments[ROOM];
    size_t count = segments_of(pool, segments), i = 0;
    while (i < count && (size_t)(block - (char *)segments[i].address) >= segments[i].bytes)
        i++;
    CHECK(i < count);
    return (struct place){i, (size_t)(block - (char *)segments[i].address)};
}

static uint64_t piece_at(int device, const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(device, address, 1, &extent) == TARN_OK ? extent.piece : 0;
}

/* ---- */

#define RANKS 2
#define LIVE 40
#define CALLS 3000

struct rank {
    tarn_pool *pool;
    tarn_stream streams[2];
    char *blocks[LIVE];
    uint64_t noise;
    void *others[16]; /* of the default pool */
};

/* What a rank does beside its calls for the pool: another amount of other memory comes and goes,
 * and time passes. */
static void disturb(struct rank *rank, int device)
{
    size_t slot = random_next(&rank->noise) % 16;
    OK(tarn_free(rank->others[slot]));
    rank->others[slot] =
        device ? alloc_on(rank->streams[slot % 2], 1 + random_next(&rank->noise) % (8 * MIB))
               : NULL;
    if (device && slot < 4)
        time_pass(1000);
}

static size_t any_size(uint64_t *random)
{
    size_t most = (size_t)1 << (9 + random_next(random) % 16);
    return 1 + random_next(random) % most;
}

static void the_same_calls_give_the_same_places(void **state)
{
    (void)state;
    struct rank ranks[RANKS] = {0};
    size_t wide = 0;
    for (int r = 0; r < RANKS; r++) {
        ranks[r].noise = 77;
        for (int s = 0; s < 2; s++)
            ranks[r].streams[s] = lease(r);
        for (int i = 0; i < 5 * r; i++) /* the addresses of one are not free in the order of the
                                           other's */
            ranks[r].others[i] = alloc_on(ranks[r].streams[i % 2], 24 * MIB);
        ranks[r].pool = registrable(r, TARN_NO_LIMIT);
    }
    uint64_t random = 12345;
    for (int call = 0; call < CALLS; call++) {
        size_t slot = random_next(&random) % LIVE, size = any_size(&random);
        size_t alignment = (size_t)1 << (9 + random_next(&random) % 13); /* up to 2 MiB */
        bool busy = random_next(&random) % 2;
        for (int r = 0; r < RANKS; r++) {
            struct rank *rank = &ranks[r];
            disturb(rank, r);
            if (rank->blocks[slot]) {
                if (busy && r)
                    work_on(rank->streams[slot % 2], rank->blocks[slot], 1, 5000);
                OK(tarn_free(rank->blocks[slot]));
                rank->blocks[slot] = NULL;
            } else {
                tarn_alloc_options options = {.size = sizeof options,
                                              .device = r,
                                              .stream = rank->streams[slot % 2],
                                              .alignment = alignment,
                                              .pool = rank->pool};
                OK(tarn_alloc(&options, size, (void **)&rank->blocks[slot]));
            }
            if (call % 500 == 499)
                OK(tarn_pool_trim(rank->pool, 0));
        }
        if (!ranks[0].blocks[slot])
            continue;
        struct place first = place_of(ranks[0].pool, ranks[0].blocks[slot]),
                     second = place_of(ranks[1].pool, ranks[1].blocks[slot]);
        CHECK(first.segment == second.segment && first.offset == second.offset);
        wide = first.segment > wide ? first.segment : wide;
    }
    CHECK(wide >= 3); /* else this showed little */
    bool in_order[RANKS] = {true, true};
    for (int r = 0; r < RANKS; r++) {
        tarn_mapping segments[ROOM];
        size_t count = segments_of(ranks[r].pool, segments);
        for (size_t i = 1; i < count; i++)
            in_order[r] = in_order[r] && segments[i].address > segments[i - 1].address;
        verify(r);
    }
    CHECK(!in_order[0] || !in_order[1]); /* likewise */
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < LIVE; i++)
            OK(tarn_free(ranks[r].blocks[i]));
        for (int i = 0; i < 16; i++)
            OK(tarn_free(ranks[r].others[i]));
        OK(tarn_pool_release(ranks[r].pool));
        nothing_is_left(r);
    }
}

/* The oldest segment serves, though a newer one has the lower address. */
/* A small block that its zone does not serve goes to no leftover of the other: whether that is
 * asked for depends on what has ended. */
static void a_small_block_stays_in_its_zone(void **state)
{
    (void)state;
    char *small[RANKS], *large[RANKS], *filled[RANKS][SEGMENT / MIB];
    tarn_pool *pools[RANKS];
    tarn_stream own[RANKS], other[RANKS];
    for (int r = 0; r < RANKS; r++) {
        pools[r] = registrable(r, TARN_NO_LIMIT);
        own[r] = lease(r);
        other[r] = lease(r);
        large[r] = alloc_in(pools[r], own[r], SEGMENT - MIB / 2);
        char *used = alloc_in(pools[r], own[r], SEGMENT);
        OK(tarn_record_stream(used, other[r]));
        if (r) /* on this rank the block still waits below */
            work_on(other[r], used, 1, 1000000);
        OK(tarn_free(used));
        for (size_t i = 0; i < SEGMENT / MIB; i++)
            filled[r][i] = alloc_in(pools[r], own[r], MIB);
        small[r] = alloc_in(pools[r], own[r], MIB / 2);
    }
    struct place first = place_of(pools[0], small[0]), second = place_of(pools[1], small[1]);
    CHECK(first.segment == second.segment && first.offset == second.offset);
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < SEGMENT / MIB; i++)
            OK(tarn_free(filled[r][i]));
        OK(tarn_free(small[r]));
        OK(tarn_free(large[r]));
        OK(tarn_pool_release(pools[r]));
        OK(tarn_stream_return(own[r]));
        OK(tarn_stream_return(other[r]));
        nothing_is_left(r);
    }
}

static void reuse_is_by_age(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = registrable(0, TARN_NO_LIMIT);
    char *blocks[6];
    tarn_mapping segments[ROOM];
    for (int i = 0; i < 6; i++)
        blocks[i] = alloc_in(pool, stream, SEGMENT);
    CHECK(segments_of(pool, segments) == 6);
    int inverted = 0;
    for (int i = 1; i < 6; i++)
        inverted += segments[i].address < segments[i - 1].address;
    CHECK(inverted > 0);
    for (int i = 5; i >= 0; i--)
        OK(tarn_free(blocks[i]));
    for (int i = 0; i < 6; i++)
        CHECK(alloc_in(pool, stream, SEGMENT) == segments[i].address);
    for (int i = 0; i < 6; i++)
        OK(tarn_free(segments[i].address));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Where there are no other addresses they touch. */
static void segments_that_touch_stay_two(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = registrable(0, TARN_NO_LIMIT);
    tarn_mapping segments[ROOM];
    struct arena *arena = arena_if_used(0);
    uintptr_t window = (arena->base + RECOMMENDED - 1) / RECOMMENDED * RECOMMENDED;
    mutex_lock(&arena->lock);
    arena_claim_locked(arena, arena->base, arena->size);
    mutex_unlock(&arena->lock);
    arena_unclaim(arena, window, 2 * SEGMENT + RECOMMENDED);
    char *first = alloc_in(pool, stream, SEGMENT), *second = alloc_in(pool, stream, SEGMENT);
    void *wide = NULL;
    CHECK((uintptr_t)first == window && second == first + SEGMENT);
    OK(tarn_free(first));
    OK(tarn_free(second));
    CHECK(segments_of(pool, segments) == 2 && segments[0].bytes == SEGMENT);
    GIVES(tarn_pool_alloc(pool, stream, SEGMENT + 1, &wide), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_pool_trim(pool, 0));
    arena_unclaim(arena, arena->base, arena->size);
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_segment_is_one_piece_as_others_want_it(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = registrable(0, TARN_NO_LIMIT);
    const size_t sizes[] = {1, 5 * MIB, 33 * MIB, 70 * MIB};
    char *blocks[4];
    tarn_mapping segments[ROOM];
    for (int i = 0; i < 4; i++)
        blocks[i] = alloc_in(pool, stream, sizes[i]);
    size_t count = segments_of(pool, segments);
    /* Of small blocks, and of large ones */
    CHECK(count == 4 && place_of(pool, blocks[0]).offset == 0);
    for (size_t i = 0; i < count; i++) {
        tarn_host_extent extent;
        tarn_mapping range;
        CHECK((uintptr_t)segments[i].address % RECOMMENDED == 0 &&
              segments[i].bytes % RECOMMENDED == 0);
        CHECK(segments[i].bytes >= SEGMENT && segments[i].generation != 0 &&
              segments[i].device == 0);
        OK(tarn_host_extent_get(0, segments[i].address, segments[i].bytes, &extent));
        CHECK(extent.offset == 0 && extent.length == segments[i].bytes && extent.accessible);
        struct arena *arena = arena_at((uintptr_t)segments[i].address);
        CHECK(arena_piece(arena, (uintptr_t)segments[i].address)->flags ==
              (DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA));
        OK(tarn_mapping_get(blocks[i], &range));
        CHECK(range.address == segments[i].address && range.bytes == segments[i].bytes &&
              range.generation == segments[i].generation);
    }
    CHECK(usable_size(blocks[0]) == 64 << 10);
    tarn_share *share = NULL;
    OK(tarn_export(blocks[2], &share));
    OK(tarn_share_close(share));

    tarn_host_extent extent; /* to every enabled peer, now and later */
    OK(tarn_device_peer_enable(1, 0));
    char *later = alloc_in(pool, stream, 40 * MIB);
    for (size_t i = 0; i < 4; i++)
        CHECK(tarn_host_extent_get(1, blocks[i], 1, &extent) == TARN_OK && extent.accessible);
    CHECK(tarn_host_extent_get(1, later, 1, &extent) == TARN_OK && extent.accessible);

    size_t many = 0;
    OK(tarn_pool_segments_get(pool, NULL, 0, &many));
    CHECK(many == 5);
    OK(tarn_pool_segments_get(pool, segments, 1, &many));
    CHECK(many == 5 && segments[0].address == blocks[0]);
    OK(tarn_free(later));
    for (int i = 0; i < 4; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void what_is_registered_stays(void **state)
{
    (void)state;
    tarn_stream stream = lease(0), other = lease(0);
    tarn_pool *pool = registrable(0, TARN_NO_LIMIT);
    char *first = alloc_in(pool, stream, SEGMENT), *second = alloc_in(pool, stream, SEGMENT);
    tarn_mapping segments[ROOM];
    uint64_t piece = piece_at(0, first);
    OK(tarn_anchor(first + MIB, 1));
    GIVES(tarn_pool_suspend(pool, false), TARN_ERROR_BUSY);
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(tarn_pool_trim(pool, 0));
    CHECK(segments_of(pool, segments) == 1 && segments[0].address == first &&
          piece_at(0, first) == piece);
    OK(tarn_device_limit_set(0, 2 * SEGMENT)); /* a shortage elsewhere, and of the pool's own */
    void *more = alloc_on(other, SEGMENT), *none = NULL;
    GIVES(tarn_alloc_on(other, SEGMENT, &none), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_pool_alloc(pool, other, SEGMENT, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(piece_at(0, first) == piece);
    CHECK(alloc_in(pool, stream, SEGMENT) == first);
    OK(tarn_free(first));
    OK(tarn_free(more));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_unanchor(first + MIB, 1));
    OK(tarn_pool_trim(pool, 0));
    CHECK(segments_of(pool, segments) == 0 && piece_at(0, first) == 0);
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A shortage of one rank must not change what later requests get there. */
static void a_shortage_takes_nothing_from_the_pool_itself(void **state)
{
    (void)state;
    tarn_stream stream = lease(0), other = lease(0);
    tarn_pool *pool = registrable(0, 2 * SEGMENT);
    char *large = alloc_in(pool, stream, 20 * MIB), *small = alloc_in(pool, other, 1000);
    void *none = NULL;
    OK(tarn_free(large));
    OK(tarn_free(small)); /* both segments are idle */
    GIVES(tarn_pool_alloc(pool, other, 20 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_pool_alloc(pool, stream, 1000, &none), TARN_ERROR_OUT_OF_MEMORY);
    tarn_mapping segments[ROOM];
    CHECK(segments_of(pool, segments) == 2 && segments[0].address == large &&
          segments[1].address == small);
    CHECK(alloc_in(pool, stream, 20 * MIB) == large && alloc_in(pool, other, 1000) == small);
    OK(tarn_free(large));
    OK(tarn_free(small));
    OK(tarn_pool_trim(pool, 0));

    OK(tarn_pool_limit_set(pool, 12 * MIB)); /* no room for a segment of the usual size */
    large = alloc_in(pool, stream, 5 * MIB);
    CHECK(segments_of(pool, segments) == 1 && segments[0].bytes == 8 * MIB);
    OK(tarn_free(large));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_pause_keeps_segments_whole(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = registrable(0, TARN_NO_LIMIT);
    char *block = alloc_in(pool, stream, 70 * MIB);
    tarn_mapping before[ROOM], after[ROOM];
    tarn_host_extent extent;
    size_t count = 9;
    memset(block, 5, 70 * MIB);
    CHECK(segments_of(pool, before) == 1);
    OK(tarn_device_limit_set(0, 160 * MIB)); /* where a piece of any other pool is smaller than
                                                that */
    OK(tarn_pool_suspend(pool, true));
    GIVES(tarn_pool_segments_get(pool, after, ROOM, &count), TARN_ERROR_SUSPENDED);
    CHECK(count == 9);
    OK(tarn_pool_resume(pool));
    CHECK(segments_of(pool, after) == 1 && after[0].address == before[0].address &&
          after[0].bytes == before[0].bytes);
    CHECK(after[0].generation > before[0].generation); /* what was registered must be so again */
    OK(tarn_host_extent_get(0, block, after[0].bytes, &extent));
    CHECK(extent.length == after[0].bytes && block[0] == 5 && block[70 * MIB - 1] == 5);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    const tarn_pool_options wrong[] = {
        {.registrable = true, .use_on_oom = true},
        {.registrable = true, .no_split = true},
        {.registrable = true, .segments = TARN_SEGMENTS_PLAIN},
        {.registrable = true, .sizes = SIZES(.rounding = 4 * MIB)},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tarn_pool_options options = wrong[i];
        tarn_pool *pool = NULL;
        options.size = sizeof options;
        GIVES(tarn_pool_create(&options, &pool), TARN_ERROR_INVALID_ARGUMENT);
        CHECK(!pool);
    }
    size_t count = 9;
    tarn_mapping segments[1];
    tarn_pool *ordinary = pool_with((tarn_pool_options){.device = 0}),
              *pool = registrable(0, TARN_NO_LIMIT);
    GIVES(tarn_pool_segments_get(ordinary, segments, 1, &count), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_segments_get(NULL, segments, 1, &count), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_segments_get(pool, NULL, 1, &count), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_segments_get(pool, segments, 1, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(count == 9);
    OK(tarn_pool_segments_get(pool, segments, 1, &count));
    CHECK(count == 0);
    OK(tarn_pool_release(ordinary));
    OK(tarn_pool_release(pool));
}

static int set_up(void **state)
{
    (void)state;
    host_start_with(RANKS, DEVICE);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_calls_give_the_same_places),
        cmocka_unit_test(a_small_block_stays_in_its_zone),
        cmocka_unit_test(reuse_is_by_age),
        cmocka_unit_test(segments_that_touch_stay_two),
        cmocka_unit_test(a_segment_is_one_piece_as_others_want_it),
        cmocka_unit_test(what_is_registered_stays),
        cmocka_unit_test(a_shortage_takes_nothing_from_the_pool_itself),
        cmocka_unit_test(a_pause_keeps_segments_whole),
        cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests_name("registrable pools", tests, set_up, NULL);
}
