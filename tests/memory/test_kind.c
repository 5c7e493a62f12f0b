/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The table of kinds: what each row says is what a store of that kind does; and what a row does not
 * allow is found. */
#include "device/stream.h"
#include "memory/growth/segment.h"
#include "memory/heap/heap.h"
#include "memory/pool/pool.h"
#include "memory/watch/verify.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)
#define ALL_FLAGS \
    (STORE_OF_POOL | STORE_REMAPS | STORE_NO_SPLIT | STORE_NO_SLABS | STORE_KEPT | STORE_HELPS)

static tarn_stream stream;

static void *alloc(tarn_pool *pool, size_t size)
{
    return pool ? alloc_in(pool, stream, size) : alloc_on(stream, size);
}

static uint64_t taken(void)
{
    return calls_of(0, "create") + calls_of(0, "alloc") + calls_of(0, "alloc_async");
}

/* The heap that a block lies in. */
static struct heap *heap_at(const void *pointer)
{
    const struct span *span = map_span(map_get((uintptr_t)pointer));
    CHECK(span);
    return atomic_load(&span->heap);
}

static void where_memory_lies(const struct store_traits *kind, const struct heap *heap,
                              const void *block)
{
    const struct run *run = heap->zones.of[ZONE_LARGE].runs;
    CHECK((arena_at((uintptr_t)block) != NULL) == kind->pieces);
    CHECK(segment_has((uintptr_t)block) == !kind->pieces);
    CHECK((run->next != NULL) == kind->whole);
    CHECK(atomic_load(&heap->parked.parks) == kind->parks);
}

static void what_serves(const struct store_traits *kind, tarn_pool *pool)
{
    void *block = alloc(pool, 100 * MIB);
    uint64_t before = taken();
    OK(tarn_free(block));
    block = alloc(pool, 100 * MIB);
    CHECK((taken() == before) == kind->reuses);
    OK(tarn_free(block));
    block = alloc(pool, 512);
    CHECK((map_slab(map_get((uintptr_t)block)) != NULL) == kind->slabs);
    OK(tarn_free(block));
}

static void who_frees(const struct store_traits *kind, tarn_pool *pool)
{
    void *block = alloc(pool, 100 * MIB);
    uint64_t before = calls_of(0, "free_async");
    OK(tarn_free(block));
    CHECK((calls_of(0, "free_async") != before) == kind->ordered);
}

static void what_leaves(const struct store_traits *kind, tarn_pool *pool, const void *block)
{
    tarn_share *share = NULL;
    tarn_status exported = tarn_export(block, &share);
    CHECK(exported == (kind->exports == EXPORTS_NOTHING ? TARN_ERROR_NOT_SUPPORTED : TARN_OK));
    OK(tarn_share_close(share));
    share = NULL;
    exported = tarn_pool_export(pool, NULL, &share);
    CHECK(exported == (kind->exports == EXPORTS_POOL ? TARN_OK : TARN_ERROR_INVALID_ARGUMENT));
    OK(tarn_share_close(share));
}

static void what_is_suspended(const struct store_traits *kind, tarn_pool *pool)
{
    tarn_status suspended = tarn_pool_suspend(pool, false);
    CHECK(suspended == (kind->suspends ? TARN_OK : TARN_ERROR_NOT_SUPPORTED));
    if (!suspended)
        OK(tarn_pool_resume(pool));
}

/* A store of the kind does what its row says. */
static void row_holds(enum store_kind number, tarn_pool *pool)
{
    const struct store_traits *kind = &store_kinds[number];
    void *blocks[2] = {alloc(pool, 40 * MIB), alloc(pool, 60 * MIB)};
    const struct heap *heap = heap_at(blocks[0]);
    CHECK(heap->store->kind.name == kind->name);
    where_memory_lies(kind, heap, blocks[0]);
    what_serves(kind, pool);
    who_frees(kind, pool);
    if (pool)
        what_leaves(kind, pool, blocks[0]);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    if (pool) {
        what_is_suspended(kind, pool);
        OK(tarn_pool_release(pool));
    }
    verify(0);
}

static void begin(const char *settings)
{
    if (settings)
        setenv("TARN_ALLOC_CONF", settings, 1);
    host_start_with(1, MEMORY);
    stream = lease(0);
}

static void virtual_stores(void)
{
    begin(NULL);
    row_holds(KIND_VIRTUAL, NULL);
    row_holds(KIND_VIRTUAL, pool_with((tarn_pool_options){.exportable = true}));
}

static void registrable_stores(void)
{
    begin(NULL);
    row_holds(KIND_REGISTRABLE, pool_with((tarn_pool_options){.registrable = true}));
}

static void plain_stores(void)
{
    begin("segments:plain");
    row_holds(KIND_PLAIN, NULL);
    row_holds(KIND_PLAIN, pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN}));
}

static void uncached_stores(void)
{
    begin(NULL);
    OK(tarn_caching_set(false, NULL));
    row_holds(KIND_UNCACHED, NULL);
}

static void stores_of_the_drivers_pool(void)
{
    begin("backend:cudaMallocAsync");
    row_holds(KIND_DRIVERS, NULL);
}

/* What a row says, in words. */
static const char *words_of(const struct store_traits *kind)
{
    static char text[256];
    (void)snprintf(text, sizeof text, "%s:%s%s%s%s%s%s%s%s%s%s%s exports %d may %u", kind->name,
                   kind->pieces ? " pieces" : "", kind->whole ? " whole" : "",
                   kind->has_rules ? " rules" : "", kind->reuses ? " reuses" : "",
                   kind->slabs ? " slabs" : "", kind->parks ? " parks" : "",
                   kind->ordered ? " ordered" : "", kind->fixed ? " fixed" : "",
                   kind->plans ? " plans" : "", kind->compacts ? " compacts" : "",
                   kind->suspends ? " suspends" : "", (int)kind->exports, kind->may);
    return text;
}

static void each_row_says_what_it_is_to_say(void **state)
{
    static const char *const rows[STORE_KINDS] = {
        [KIND_VIRTUAL] =
            "virtual: pieces reuses slabs parks plans compacts suspends exports 1 may 35",
        [KIND_REGISTRABLE] =
            "registrable: pieces whole reuses parks fixed suspends exports 2 may 1",
        [KIND_PLAIN] = "plain: whole rules reuses slabs exports 0 may 61",
        [KIND_UNCACHED] = "uncached: whole exports 0 may 0",
        [KIND_DRIVERS] = "driver's: whole ordered exports 0 may 0",
    };
    (void)state;
    for (int kind = 0; kind < STORE_KINDS; kind++)
        assert_string_equal(words_of(&store_kinds[kind]), rows[kind]);
}

/* Whether the checks find what a store of the kind has. */
static bool is_found(enum store_kind kind, unsigned flags, bool has_sizes, unsigned piece_flags)
{
    struct store *store = &arena_if_used(0)->uncached; /* which no test here allocates from */
    store->kind = store_kinds[kind];
    store->flags = flags;
    store->sizes.rounding = has_sizes ? MIB : 0;
    store->piece_flags = piece_flags;
    bool found = store_contradiction(store) != NULL;
    CHECK((arena_verify(store->arena) == TARN_ERROR_INTERNAL) == found);
    return found;
}

static void contradictions_are_found(void)
{
    begin(NULL);
    OK(tarn_free(alloc_on(stream, MIB)));
    for (int kind = 0; kind < STORE_KINDS; kind++) {
        const struct store_traits *row = &store_kinds[kind];
        for (unsigned flags = 0; flags <= ALL_FLAGS; flags++)
            CHECK(is_found((enum store_kind)kind, flags, false, 0) == ((flags & ~row->may) != 0));
        CHECK(is_found((enum store_kind)kind, 0, true, 0) == !row->has_rules);
        CHECK(is_found((enum store_kind)kind, 0, false, DRIVER_PIECE_EXPORTABLE) == !row->pieces);
    }
}

/* The flags that a kind does not allow stay out even where the settings or the device would give
 * them. */
static void a_store_gets_the_flags_of_its_kind(void)
{
    begin("segments:exact");
    tarn_pool *virtual = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_VIRTUAL});
    tarn_pool *exact = pool_with((tarn_pool_options){.no_split = true});
    tarn_pool *fixed =
        pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_VIRTUAL, .registrable = true});
    tarn_pool *still =
        pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_VIRTUAL, .no_remap = true});
    CHECK(store_of_public(virtual)->flags == (STORE_OF_POOL | STORE_REMAPS));
    CHECK(store_of_public(exact)->flags == (STORE_OF_POOL | STORE_NO_SPLIT | STORE_NO_SLABS));
    CHECK(store_of_public(fixed)->flags == STORE_OF_POOL &&
          store_of_public(still)->flags == STORE_OF_POOL);
    CHECK(arena_if_used(0)->store.flags == STORE_NO_SLABS && arena_if_used(0)->uncached.flags == 0);
    verify(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_says_what_it_is_to_say),
        CHILD_TEST(virtual_stores),
        CHILD_TEST(registrable_stores),
        CHILD_TEST(plain_stores),
        CHILD_TEST(uncached_stores),
        CHILD_TEST(stores_of_the_drivers_pool),
        CHILD_TEST(contradictions_are_found),
        CHILD_TEST(a_store_gets_the_flags_of_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
