/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What test_failures.c demands, of what is used less: pools that are suspended, restored to a
 * checkpoint, or have their memory from the caller; plain segments; observers; blocks that other
 * threads free; regions, tags and limits; memory between processes. */
#include "support/failures.h"
#include "support/host.h"
#include "support/painted.h"
#include "support/system.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <tarn/observe.h>
#include <tarn/share.h>
#include <tarn/trace.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)

static struct {
    tarn_pool *pool; /* NULL: none */
    bool suspended;
    tarn_checkpoint *checkpoint;
    tarn_observer observer; /* 0: none */
    uint64_t mapped;        /* bytes that were reported to the observer */
    tarn_share *share, *received;
    void *imported;
    tarn_imported_pool *imported_pool;
    tarn_stream streams[2];
    int taken; /* of the caller's segments, not given back */
} t;

static void take(tarn_stream stream, size_t size)
{
    (void)painted_alloc(t.pool, stream, size);
}

static bool make(tarn_pool_options *options)
{
    options->size = sizeof *options;
    if (TRY(tarn_pool_create(options, &t.pool)))
        return true;
    CHECK(!t.pool);
    return false;
}

static void drop(void)
{
    if (t.pool)
        OK(tarn_pool_release(t.pool));
    t.pool = NULL;
}

/* ---- Scenarios ---- */

static bool is_suspended(void)
{
    tarn_pool_state state = pool_info_of(t.pool).state;
    return state != TARN_POOL_RUNS;
}

static void suspend_and_resume(bool save_contents)
{
    if (!make(&(tarn_pool_options){0}))
        return;
    take(t.streams[0], 2 * MIB);
    take(t.streams[1], 3000);
    if (!save_contents)
        for (int i = 0; i < painted.count; i++)
            painted.blocks[i].checked = false;
    tarn_status status = tarn_pool_suspend(t.pool, save_contents);
    bool done = status == TARN_ERROR_NOT_SUPPORTED || TRY(status); /* plain segments cannot be */
    /* In part, where not all could be undone */
    t.suspended = is_suspended();
    CHECK(!done || t.suspended || status);
    if (t.suspended && TRY(tarn_pool_resume(t.pool)))
        t.suspended = is_suspended();
    if (!t.suspended)
        take(t.streams[1], MIB);
}

static void pools_are_suspended(void)
{
    suspend_and_resume(false);
}

static void pools_are_suspended_with_their_contents(void)
{
    suspend_and_resume(true);
}

static void count_change(const tarn_pool_block *block, bool live, void *user)
{
    (void)block;
    *(int *)user += live ? 1 : -1;
}

/* The blocks are those of the checkpoint; one at an address that was live may be another now. */
static void restore(void)
{
    tarn_pool_block blocks[PAINTED_MOST];
    int change = 0;
    size_t count = 0;
    if (!TRY(tarn_pool_restore(t.pool, t.checkpoint, count_change, &change))) {
        CHECK(change == 0);
        return;
    }
    OK(tarn_pool_blocks_get(t.pool, blocks, PAINTED_MOST, &count));
    CHECK((int)count == painted.count + change);
    painted.count = (int)count;
    for (int i = 0; i < painted.count; i++) {
        painted.blocks[i].start = blocks[i].address;
        painted.blocks[i].size = blocks[i].requested;
        painted.blocks[i].checked = false;
    }
}

static void pools_are_restored(void)
{
    if (!make(&(tarn_pool_options){0}))
        return;
    take(t.streams[0], 3 * MIB);
    take(t.streams[0], 700);
    if (!TRY(tarn_pool_checkpoint(t.pool, &t.checkpoint))) {
        CHECK(!t.checkpoint);
        return;
    }
    take(t.streams[0], 5000);
    if (painted.count > 0)
        painted_free(0);
    take(t.streams[0], 4 * MIB);
    restore();
    OK(tarn_checkpoint_destroy(t.checkpoint));
    t.checkpoint = NULL;
}

static void *their_alloc(size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    CHECK(user == &t);
    void *memory = aligned_alloc(512, size);
    t.taken += memory != NULL;
    return memory;
}

static void their_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size;
    (void)device;
    (void)stream;
    CHECK(user == &t);
    t.taken--;
    free(pointer);
}

static void callers_give_memory(void)
{
    static const tarn_pool_allocator theirs = {
        .size = sizeof theirs, .alloc = their_alloc, .free = their_free, .user = &t};
    if (!make(&(tarn_pool_options){.allocator = &theirs}))
        return;
    for (size_t i = 0; i < 6; i++)
        take(t.streams[i % 2], i % 2 ? 3 * MIB * i : 900);
    painted_free_every_second();
    (void)TRY(tarn_pool_trim(t.pool, 0));
    take(t.streams[0], 4 * MIB);
}

static void segments_are_plain(void)
{
    static const tarn_segments kinds[] = {TARN_SEGMENTS_PLAIN, TARN_SEGMENTS_EXACT};
    for (int kind = 0; kind < 2; kind++) {
        if (!make(&(tarn_pool_options){.segments = kinds[kind], .no_split = kind == 1}))
            continue;
        take(t.streams[0], 12 * MIB);
        take(t.streams[1], 800);
        take(t.streams[0], 3 * MIB);
        if (painted.count > 1)
            painted_free(painted.count - 1);
        (void)TRY(tarn_pool_trim(t.pool, 0));
        drop(); /* with live blocks */
    }
}

static void note_mapped(const tarn_mapping *range, void *user)
{
    (void)user;
    t.mapped += range->bytes;
}

static void note_unmapping(const tarn_mapping *range, void *user)
{
    (void)user;
    CHECK(t.mapped >= range->bytes);
    t.mapped -= range->bytes;
}

static void observers_come_and_go(void)
{
    tarn_observer_options options = {
        .size = sizeof options, .mapped = note_mapped, .unmapping = note_unmapping};
    if (!TRY(tarn_observer_add(&options, &t.observer))) {
        CHECK(!t.observer);
        return;
    }
    take(t.streams[0], 5 * MIB);
    take(t.streams[1], 2000);
    painted_free_all();
    (void)TRY(tarn_device_trim(0, 0));
    take(t.streams[0], 4 * MIB);
}

static void take_in_a_thread(void)
{
    for (size_t i = 0; i < 12; i++)
        take(t.streams[i % 2], 100 + i * 5000);
}

/* The first thread's caches outlive it in what others free. */
static void threads_free_what_others_took(void)
{
    system_in_thread(take_in_a_thread);
    system_in_thread(painted_free_every_second);
    take(t.streams[0], 400);
    painted_free_every_second();
    system_in_thread(take_in_a_thread);
}

static void names_and_limits(void)
{
    tarn_tag tag = 7;
    char name[32];
    static int number;
    snprintf(name, sizeof name, "name %d", number++); /* each is made but once */
    if (!TRY(tarn_tag_intern(name, &tag)))
        CHECK(tag == 7);
    tarn_alloc_options options = {
        .size = sizeof options, .stream = t.streams[0], .tag = tag == 7 ? 0 : tag};
    void *pointer = &t;
    if (TRY(tarn_alloc(&options, 5000, &pointer)))
        painted_add(pointer, 5000);
    (void)TRY(tarn_device_limit_set(0, 16 * MIB));
    pointer = &t;
    tarn_status status = tarn_alloc_on(t.streams[0], 40 * MIB, &pointer);
    CHECK(status != TARN_OK && pointer == &t);
    (void)TRY(tarn_device_limit_set(0, SIZE_MAX / 2));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_caching_set(false, NULL));
    take(t.streams[1], 3 * MIB);
    painted_free_every_second();
    OK(tarn_caching_set(true, NULL));
    tarn_mapping range;
    if (painted.count > 0)
        (void)TRY(tarn_mapping_get(painted.blocks[0].start, &range));
}

/* From one end of a pair of sockets to the other, and mapped a second time here. */
static void send_and_import(int from, int to)
{
    if (!TRY(tarn_export(painted.blocks[0].start, &t.share)) ||
        !TRY(tarn_share_send(from, t.share)) || !TRY(tarn_share_receive(to, &t.received)) ||
        !TRY(tarn_import(t.received, 0, &t.imported)))
        return;
    CHECK(*(unsigned char *)t.imported == paint_of(0));
    if (TRY(tarn_import_close(t.imported)))
        t.imported = NULL;
}

static void memory_is_shared(void)
{
    int ends[2];
    tarn_pool_options options = {.size = sizeof options, .exportable = true};
    tarn_status status = tarn_pool_create(&options, &t.pool);
    if (status == TARN_ERROR_NOT_SUPPORTED || !TRY(status)) /* plain segments are not shared */
        return;
    take(t.streams[0], 22 * MIB);
    if (painted.count == 0)
        return;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    send_and_import(ends[0], ends[1]);
    close(ends[0]);
    close(ends[1]);
    OK(tarn_share_close(t.received));
    OK(tarn_share_close(t.share));
    t.share = t.received = NULL;
}

/* Exports the pool, and imports it, or updates the import; the share is kept in `t`. */
static bool export_again(int from, int to)
{
    tarn_share *share = NULL;
    tarn_share_info info = {.size = sizeof info};
    if (!TRY(tarn_pool_export(t.pool, t.share, &share)))
        return false;
    OK(tarn_share_close(t.share));
    t.share = share;
    if (!TRY(tarn_share_send(from, share)) || !TRY(tarn_share_receive(to, &t.received)))
        return false;
    bool well = t.imported_pool ? TRY(tarn_imported_pool_update(t.imported_pool, t.received))
                                : TRY(tarn_pool_import(t.received, 0, &t.imported_pool));
    OK(tarn_share_close(t.received));
    t.received = NULL;
    if (TRY(tarn_share_info_get(share, &info)))
        CHECK(info.importers == (t.imported_pool != NULL));
    return well;
}

static void see_each(void)
{
    for (int i = 0; i < painted.count; i++) {
        void *seen = NULL;
        if (TRY(tarn_imported_pool_find(t.imported_pool, painted.blocks[i].start,
                                        painted.blocks[i].size, &seen)))
            CHECK(*(unsigned char *)seen == paint_of(i));
    }
}

/* A pool goes to another process, grows, and is taken back. */
static void pools_are_exported(void)
{
    int ends[2];
    tarn_device_properties device = {.size = sizeof device};
    tarn_import_state state = TARN_IMPORT_CURRENT;
    if (!TRY(tarn_device_properties_get(0, &device)) || !device.exportable ||
        !make(&(tarn_pool_options){.registrable = true}))
        return;
    take(t.streams[0], 22 * MIB);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    if (export_again(ends[0], ends[1])) {
        see_each();
        take(t.streams[1], 33 * MIB);
        if (export_again(ends[0], ends[1]))
            see_each();
    }
    if (t.share)
        OK(tarn_share_revoke(t.share));
    if (t.imported_pool && TRY(tarn_imported_pool_state_get(t.imported_pool, &state)))
        CHECK(state == TARN_IMPORT_REVOKED);
    if (TRY(tarn_imported_pool_close(t.imported_pool)))
        t.imported_pool = NULL;
    close(ends[0]);
    close(ends[1]);
    OK(tarn_share_close(t.received));
    OK(tarn_share_close(t.share));
    t.share = t.received = NULL;
}

static const struct scenario scenarios[] = {
    {"pools are suspended", pools_are_suspended},
    {"pools are suspended with contents", pools_are_suspended_with_their_contents},
    {"pools are restored", pools_are_restored},
    {"callers give memory", callers_give_memory},
    {"segments are plain", segments_are_plain},
    {"observers come and go", observers_come_and_go},
    {"threads free what others took", threads_free_what_others_took},
    {"names and limits", names_and_limits},
    {"memory is shared", memory_is_shared},
    {"pools are exported", pools_are_exported},
};

/* ---- The run ---- */

static void end_all(void)
{
    if (t.observer)
        OK(tarn_observer_remove(t.observer));
    t.observer = 0;
    OK(tarn_checkpoint_destroy(t.checkpoint));
    t.checkpoint = NULL;
    painted_free_all();
    drop();
    painted_check();
}

static void settle(void)
{
    if (t.suspended)
        OK(tarn_pool_resume(t.pool));
    t.suspended = false;
    if (t.imported)
        OK(tarn_import_close(t.imported));
    t.imported = NULL;
    OK(tarn_imported_pool_close(t.imported_pool));
    t.imported_pool = NULL;
    painted_check();
    if (t.observer) {
        tarn_host_ledger ledger = ledger_of(0);
        CHECK(t.mapped <= ledger.mapped || ledger.plain > 0);
    }
    verify(0);
    end_all();
    t.mapped = 0;
    nothing_is_left(0);
    CHECK(t.taken == 0);
}

static void lost(void)
{
    for (int i = 0; i < painted.count; i++)
        painted.blocks[i].checked = false; /* there may be nothing mapped any more */
    end_all();
}

static void set_up(void)
{
    for (int i = 0; i < 2; i++)
        t.streams[i] = lease(0);
}

static void any_failure_leaves_what_lives_and_passes(void **state)
{
    (void)state;
    static const struct scenarios shared = {.set_up = set_up, .settle = settle, .lost = lost};
    each_failure_of(&shared, scenarios, sizeof scenarios / sizeof *scenarios);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_failure_leaves_what_lives_and_passes)};
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
