/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pointers that callers name objects by: whatever is given, a pool, an event, a share or a
 * checkpoint is told apart from anything else, and from one that is gone. Each case runs in a
 * process of its own. */
#include "base/pages.h"
#include "support/clearing.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* ---- What all of them stand on ---- */

struct thing {
    uint64_t words[5];
};

static void an_address_is_an_object_while_it_is_handed_out(void)
{
    static struct object_pool things = OBJECT_POOL_NAMED(struct thing);
    static void *made[5000]; /* over several chunks */
    CHECK(!object_is_live(&things, NULL) && !object_is_live(&things, &things));
    for (size_t i = 0; i < 5000; i++)
        CHECK((made[i] = object_alloc(&things)) != NULL);
    for (size_t i = 0; i < 5000; i++) {
        CHECK(object_is_live(&things, made[i]));
        memset(made[i], 0xff, sizeof(struct thing)); /* its own memory is all its user's */
        for (size_t off = 1; off < sizeof(struct thing) + 8; off++)
            CHECK(!object_is_live(&things, (char *)made[i] + off));
        CHECK(object_is_live(&things, made[i]));
    }
    for (size_t i = 0; i < 5000; i += 2)
        object_free(&things, made[i]);
    for (size_t i = 0; i < 5000; i++)
        CHECK(object_is_live(&things, made[i]) == (i % 2 == 1));
    void *again = object_alloc(&things);
    CHECK(object_is_live(&things, again));
    /* The ends of all there is, and a copy of an object with what stands behind it. */
    _Alignas(64) char copy[64];
    memcpy(copy, made[1], sizeof(struct thing) + 8);
    CHECK(!object_is_live(&things, copy));
    CHECK(!object_is_live(&things, (void *)UINTPTR_MAX) &&
          !object_is_live(&things, (void *)(UINTPTR_MAX - 7)));
}

/* Where the next page is nobody's, or may not be read. */
static void nothing_behind_a_chunk_is_read(void)
{
    static struct object_pool things = OBJECT_POOL_NAMED(struct thing);
    void *guard = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(guard != MAP_FAILED && object_alloc(&things));
    const char *end = things.fresh_end;
    if (end != guard) /* the system may put the chunk elsewhere: then this page is guarded, or
                         another's */
        (void)mmap((void *)(uintptr_t)end, 4096, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    for (const char *at = end - 256; at < end + 256; at += 8)
        CHECK(!object_is_live(&things, at));
}

static void test_addresses(void **state)
{
    (void)state;
    in_child(an_address_is_an_object_while_it_is_handed_out);
    in_child(nothing_behind_a_chunk_is_read);
}

/* ---- What callers do ---- */

#define WRONG(call) GIVES(call, TARN_ERROR_INVALID_ARGUMENT)

static void try_pool(tarn_pool *pool, tarn_pool *good)
{
    void *block = NULL, *graph = NULL;
    size_t bytes;
    tarn_scope scope;
    tarn_checkpoint *checkpoint = NULL;
    tarn_stats stats = {.size = sizeof stats};
    tarn_pool_info info = {.size = sizeof info};
    WRONG(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 512, &block));
    WRONG(tarn_pool_retain(pool));
    WRONG(tarn_pool_info_get(pool, &info));
    WRONG(tarn_pool_stats_get(pool, &stats));
    WRONG(tarn_pool_trim(pool, 0));
    WRONG(tarn_pool_limit_set(pool, 0));
    WRONG(tarn_pool_blocks_get(pool, NULL, 0, &bytes));
    WRONG(tarn_pool_suspend(pool, false));
    WRONG(tarn_pool_resume(pool));
    WRONG(tarn_pool_checkpoint(pool, &checkpoint));
    WRONG(tarn_scope_begin(pool, TARN_SCOPE_ALWAYS, 0, &scope));
    WRONG(tarn_pool_hold(pool, &graph));
    WRONG(workspaces_clear_pool(pool, NULL));
    OK(tarn_pool_checkpoint(good, &checkpoint));
    WRONG(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    OK(tarn_checkpoint_destroy(checkpoint));
    if (pool) { /* NULL means one of its own, and nothing */
        tarn_stream stream = lease(0);
        WRONG(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
        WRONG(tarn_pool_capture_announce(pool, stream));
        WRONG(tarn_pool_release(pool));
        OK(tarn_stream_return(stream));
    }
}

static void try_event(tarn_event *event)
{
    void *block = alloc_on(TARN_STREAM_LEGACY, 512);
    WRONG(tarn_event_record(event, TARN_STREAM_LEGACY));
    WRONG(tarn_event_query(event));
    WRONG(tarn_event_synchronize(event));
    WRONG(tarn_stream_wait(TARN_STREAM_LEGACY, event));
    WRONG(tarn_free_after(block, event));
    OK(tarn_free(block)); /* still live */
    if (event)
        WRONG(tarn_event_destroy(event));
}

static void try_share(tarn_share *share)
{
    tarn_share_info info = {.size = sizeof info};
    void *block = NULL;
    WRONG(tarn_share_info_get(share, &info));
    WRONG(tarn_share_send(0, share));
    WRONG(tarn_import(share, 0, &block));
    WRONG(tarn_pool_import(share, 0, &(tarn_imported_pool *){NULL}));
    WRONG(tarn_share_revoke(share));
    if (share)
        WRONG(tarn_share_close(share));
}

static void try_imported(tarn_imported_pool *imported, const tarn_share *share)
{
    tarn_import_state state = TARN_IMPORT_CURRENT;
    void *pointer = NULL;
    WRONG(tarn_imported_pool_update(imported, share));
    WRONG(tarn_imported_pool_find(imported, NULL, 1, &pointer));
    WRONG(tarn_imported_pool_state_get(imported, &state));
    if (imported)
        WRONG(tarn_imported_pool_close(imported));
}

static void try_checkpoint(tarn_checkpoint *checkpoint, tarn_pool *pool)
{
    WRONG(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    if (checkpoint)
        WRONG(tarn_checkpoint_destroy(checkpoint));
}

static void a_pointer_that_is_none_is_a_clear_error(void)
{
    tarn_pool *pool = NULL, *gone_pool = NULL;
    tarn_event *event = NULL, *gone_event = NULL;
    tarn_share *share = NULL, *gone_share = NULL;
    tarn_checkpoint *checkpoint = NULL, *gone_checkpoint = NULL;
    uint64_t here[64] = {0};
    host_start_with(1, 64 * MIB);
    OK(tarn_export_enable(0));
    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *block = alloc_on(TARN_STREAM_LEGACY, MIB);
    OK(tarn_pool_create(NULL, &gone_pool));
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_event_create(0, &gone_event));
    OK(tarn_event_create(0, &event));
    OK(tarn_export(block, &gone_share));
    OK(tarn_export(block, &share));
    OK(tarn_pool_checkpoint(pool, &gone_checkpoint));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_pool_release(gone_pool));
    OK(tarn_event_destroy(gone_event));
    OK(tarn_share_close(gone_share));
    OK(tarn_checkpoint_destroy(gone_checkpoint));
    void *wrong[] = {NULL,
                     (void *)8,
                     here,
                     nowhere,
                     &wrong,
                     block,
                     (void *)UINTPTR_MAX,
                     pool,
                     event,
                     share,
                     checkpoint,
                     gone_pool,
                     gone_event,
                     gone_share,
                     nowhere,
                     (char *)pool + 8,
                     (char *)event + 8,
                     (char *)share + 1,
                     gone_checkpoint};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (wrong[i] != pool)
            try_pool(wrong[i], pool);
        if (wrong[i] != event)
            try_event(wrong[i]);
        if (wrong[i] != share)
            try_share(wrong[i]);
        if (wrong[i] != checkpoint)
            try_checkpoint(wrong[i], pool);
        try_imported(wrong[i], share);
    }
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_share_close(share));
    OK(tarn_event_destroy(event));
    OK(tarn_pool_release(pool));
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void test_wrong_pointers(void **state)
{
    (void)state;
    in_child(a_pointer_that_is_none_is_a_clear_error);
}

/* What a scope, a capture or a graph counts is not the caller's to give back, and what nobody
 * counts is gone. */
static void one_release_too_many_takes_nothing(void)
{
    tarn_pool *pool = NULL, *found = NULL;
    tarn_scope scope = 0;
    tarn_pool_id id;
    tarn_pool_info info = {.size = sizeof info};
    host_start_with(1, 64 * MIB);
    OK(tarn_pool_create(NULL, &pool));
    id = pool_info_of(pool).id;
    OK(tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope));
    OK(tarn_pool_release(pool));
    WRONG(tarn_pool_release(pool));
    CHECK(pool_info_of(pool).use_count == 1); /* the scope's */
    void *block = tarn_malloc(MIB);
    OK(tarn_pool_find(id, &found));
    CHECK(found == pool);
    OK(tarn_pool_release(pool));
    WRONG(tarn_pool_release(pool));
    OK(tarn_scope_end(scope));
    WRONG(tarn_pool_release(pool)); /* left behind, with a live block */
    WRONG(tarn_pool_retain(pool));
    WRONG(tarn_pool_info_get(pool, &info));
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    WRONG(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void test_releases(void **state)
{
    (void)state;
    in_child(one_release_too_many_takes_nothing);
}

/* A stream is asked about before it is entered: one that the driver does not know could never be
 * retired. */
static void what_is_no_stream_is_not_adopted(void)
{
    tarn_stream stream = 77;
    uint64_t here[64] = {0};
    host_start_with(2, 64 * MIB);
    void *other = NULL;
    tarn_stream leased = lease(1);
    OK(tarn_stream_native_get(leased, &other));
    GIVES(tarn_stream_adopt(0, here, &stream), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_adopt(0, (void *)1, &stream), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_adopt(0, other, &stream), TARN_ERROR_INVALID_STREAM); /* of another device */
    CHECK(stream == 77);
    OK(tarn_stream_adopt(1, other, &stream));
    OK(tarn_stream_retire(stream));
    OK(tarn_stream_return(leased));
    GIVES(tarn_host_graph_launch(0, here, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_host_graph_destroy((void *)8), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_host_work(0, (void *)8, NULL, 0, 1), TARN_ERROR_INVALID_STREAM);
}

static void test_streams(void **state)
{
    (void)state;
    in_child(what_is_no_stream_is_not_adopted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_wrong_pointers),
        cmocka_unit_test(test_releases),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
