/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sleeps of the process: what goes and comes back, with which contents; what stays, and for which
 * reason; each call of the driver and each allocation of the library's failing; and a model of
 * pools, tags, anchors and blocks, in which every byte is checked. */
#include "driver/driver.h"
#include "support/failures.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tarn/pinned.h>
#include <tarn/sleep.h>

#include <cmocka.h>

enum { DEVICES = 2, BLOCKS = 6, POOLS = 4, ITEMS = 16 };

static tarn_sleep_state state_now(void)
{
    tarn_sleep_state state = TARN_SLEEP_CHANGES;
    OK(tarn_sleep_state_get(&state));
    return state;
}

static size_t reserved_on(int device)
{
    return (size_t)stats_of(device).reserved_bytes[TARN_STAT_ALL].current;
}

static tarn_residue_item items[ITEMS];

static tarn_residue residue_new(void)
{
    memset(items, 0, sizeof items);
    return (tarn_residue){.size = sizeof(tarn_residue), .items = items, .room = ITEMS};
}

static const tarn_residue_item *item_of(const tarn_residue *residue, tarn_residue_reason reason)
{
    for (size_t i = 0; i < residue->count && i < residue->room; i++)
        if (items[i].reason == reason)
            return &items[i];
    return NULL;
}

/* Pools with blocks ---------------------------------------------------------------------------- */

struct block {
    unsigned char *memory; /* NULL: none */
    size_t size;
    unsigned char letter;
    bool undefined; /* its contents were discarded */
};

struct filled {
    tarn_pool *pool;
    tarn_stream stream;
    struct block blocks[BLOCKS];
};

static unsigned char next_letter;

static void block_fill(struct block *block)
{
    block->letter = ++next_letter;
    block->undefined = false;
    memset(block->memory, block->letter, block->size);
}

static bool block_is_right(const struct block *block)
{
    const unsigned char *memory = block->memory;
    return !memory || block->undefined ||
           (memory[0] == block->letter && memcmp(memory, memory + 1, block->size - 1) == 0);
}

static void block_make(struct filled *filled, int which, size_t size)
{
    struct block *block = &filled->blocks[which];
    block->memory = alloc_in(filled->pool, filled->stream, size);
    block->size = size;
    block_fill(block);
}

static void filled_begin(struct filled *filled, int device, const char *tag)
{
    tarn_tag number = 0, read = 77;
    *filled = (struct filled){.pool = pool_with((tarn_pool_options){.device = device}),
                              .stream = lease(device)};
    if (tag)
        OK(tarn_tag_intern(tag, &number));
    OK(tarn_pool_tag_set(filled->pool, number));
    read = pool_info_of(filled->pool).tag;
    CHECK(read == number);
    for (int i = 0; i < BLOCKS; i++)
        block_make(filled, i, i % 2 ? 3000 : (size_t)i * MIB / 2 + 500);
}

static bool filled_is_right(const struct filled *filled)
{
    for (int i = 0; i < BLOCKS; i++)
        if (!block_is_right(&filled->blocks[i]))
            return false;
    return true;
}

static void filled_end(struct filled *filled)
{
    for (int i = 0; i < BLOCKS; i++)
        OK(tarn_free(filled->blocks[i].memory));
    OK(tarn_pool_release(filled->pool));
    OK(tarn_stream_return(filled->stream));
}

static void nothing_is_left_at_all(void)
{
    OK(tarn_pinned_trim(0));
    for (int i = 0; i < DEVICES; i++)
        nothing_is_left(i);
}

/* What a sleep does ---------------------------------------------------------------------------- */

static void memory_goes_and_comes_back(void **state)
{
    (void)state;
    struct filled weights, cache, other;
    filled_begin(&weights, 0, "weights");
    filled_begin(&cache, 0, "cache");
    filled_begin(&other, 1, NULL);
    tarn_tag tag;
    OK(tarn_tag_intern("cache", &tag));
    tarn_sleep_rule rule = {.tag = tag, .contents = TARN_SLEEP_DISCARD};
    tarn_sleep_options options = {.size = sizeof options, .rules = &rule, .rule_count = 1};
    tarn_residue residue = residue_new();
    size_t before = reserved_on(0) + reserved_on(1);
    OK(tarn_sleep(&options, &residue));
    CHECK(state_now() == TARN_SLEEP_ASLEEP);
    CHECK(residue.before == before && residue.after == 0 && residue.count == 0);
    CHECK(residue.saved > weights.blocks[4].size && reserved_on(0) == 0 && reserved_on(1) == 0);
    void *none = NULL;
    GIVES(tarn_pool_alloc(weights.pool, weights.stream, 1000, &none), TARN_ERROR_SUSPENDED);
    OK(tarn_wake());
    CHECK(state_now() == TARN_SLEEP_AWAKE && filled_is_right(&weights) && filled_is_right(&other));
    CHECK(!filled_is_right(&cache)); /* else nothing was discarded */
    OK(tarn_pool_alloc(weights.pool, weights.stream, 1000, &none));
    OK(tarn_free(none));
    filled_end(&weights);
    filled_end(&cache);
    filled_end(&other);
    nothing_is_left_at_all();
}

static void a_prepare_is_undone_without_a_driver(void **state)
{
    (void)state;
    struct filled filled;
    filled_begin(&filled, 0, NULL);
    size_t reserved = reserved_on(0);
    tarn_residue residue = residue_new();
    OK(tarn_sleep_prepare(NULL, &residue));
    CHECK(state_now() == TARN_SLEEP_PREPARED && reserved_on(0) == reserved && residue.saved > 0);
    CHECK(filled_is_right(&filled));
    void *none = NULL;
    GIVES(tarn_pool_alloc(filled.pool, filled.stream, 1000, &none), TARN_ERROR_SUSPENDED);
    GIVES(tarn_pool_suspend(filled.pool, true), TARN_ERROR_SUSPENDED);
    GIVES(tarn_sleep_prepare(NULL, NULL), TARN_ERROR_BUSY);
    GIVES(tarn_wake(), TARN_ERROR_INVALID_ARGUMENT);
    tarn_stream other = lease(1);
    OK(tarn_capture_begin(other, TARN_CAPTURE_RELAXED)); /* which stops a commit, and no cancel */
    GIVES(tarn_sleep_commit(NULL), TARN_ERROR_CAPTURE);
    CHECK(state_now() == TARN_SLEEP_PREPARED);
    uint64_t calls = all_calls(0);
    OK(tarn_sleep_cancel());
    OK(tarn_capture_abort(other));
    OK(tarn_stream_return(other));
    CHECK(all_calls(0) == calls && state_now() == TARN_SLEEP_AWAKE && filled_is_right(&filled));
    GIVES(tarn_sleep_cancel(), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleep_commit(NULL), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_alloc(filled.pool, filled.stream, 1000, &none));
    OK(tarn_free(none));
    filled_end(&filled);
    nothing_is_left_at_all();
}

static int make_handle(void **handle)
{
    static char made[64];
    static size_t count;
    if (count == sizeof made)
        return 1;
    *handle = &made[count++];
    return 0;
}

static int end_handle(void *handle)
{
    return handle ? 0 : 1;
}

static void what_stays_is_said_with_its_reason(void **state)
{
    (void)state;
    struct filled left, registered, asleep;
    filled_begin(&left, 0, "left");
    filled_begin(&registered, 0, NULL);
    filled_begin(&asleep, 1, NULL);
    tarn_pool *plain = pool_with((tarn_pool_options){.device = 0, .segments = TARN_SEGMENTS_PLAIN});
    tarn_pool *exported = pool_with((tarn_pool_options){.device = 1, .exportable = true});
    tarn_pool *ended = pool_with((tarn_pool_options){.device = 0});
    tarn_library_row row = {
        .size = sizeof row, .name = "sleeptest", .create = make_handle, .destroy = end_handle};
    tarn_library library;
    void *handle, *in_plain = alloc_in(plain, left.stream, MIB),
                  *shared = alloc_in(exported, asleep.stream, MIB);
    void *in_default = alloc_on(left.stream, MIB), *pinned, *imported;
    void *in_ended = alloc_in(ended, left.stream, MIB);
    tarn_share *share;
    OK(tarn_library_register(&row, &library));
    OK(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle));
    OK(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2));
    OK(tarn_anchor(registered.blocks[2].memory, 100));
    OK(tarn_export(shared, &share));
    OK(tarn_import(share, 1, &imported));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 5000, &pinned));
    tarn_tag tag;
    OK(tarn_tag_intern("left", &tag));
    tarn_sleep_rule rule = {.tag = tag, .contents = TARN_SLEEP_LEAVE};
    tarn_sleep_options options = {.size = sizeof options, .rules = &rule, .rule_count = 1};
    tarn_residue residue = residue_new();
    tarn_pool_id ids[5];
    ids[4] = pool_info_of(ended).id;
    OK(tarn_pool_release(ended));
    OK(tarn_sleep(&options, &residue));
    static const tarn_residue_reason reasons[] = {
        TARN_RESIDUE_LEFT,     TARN_RESIDUE_REGISTERED, TARN_RESIDUE_PLAIN,
        TARN_RESIDUE_EXPORTED, TARN_RESIDUE_ENDED,      TARN_RESIDUE_DEFAULT_POOL,
        TARN_RESIDUE_HANDLES,  TARN_RESIDUE_PINNED,     TARN_RESIDUE_IMPORTED};
    ids[0] = pool_info_of(left.pool).id;
    ids[1] = pool_info_of(registered.pool).id;
    ids[2] = pool_info_of(plain).id;
    ids[3] = pool_info_of(exported).id;
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        const struct tarn_residue_item *item = item_of(&residue, reasons[i]);
        CHECK(item && (i >= 5 || memcmp(&item->pool, &ids[i], sizeof ids[i]) == 0));
        CHECK(reasons[i] == TARN_RESIDUE_HANDLES ? item->count == 1 && !item->bytes
                                                 : item->bytes > 0);
        bytes += item->device >= 0 && reasons[i] != TARN_RESIDUE_IMPORTED ? item->bytes : 0;
        CHECK(item->text && strlen(item->text) > 20);
    }
    CHECK(residue.count == sizeof reasons / sizeof *reasons && bytes == residue.after);
    tarn_handle_stats stats = {.size = sizeof stats};
    OK(tarn_handle_stats_get(library, 0, &stats));
    CHECK(stats.available == 0 && stats.in_use == 1);
    tarn_residue small = {.size = sizeof small};
    GIVES(tarn_sleep_commit(&small), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_wake());
    CHECK(filled_is_right(&left) && filled_is_right(&registered) && filled_is_right(&asleep));
    OK(tarn_unanchor(registered.blocks[2].memory, 100));
    OK(tarn_share_close(share));
    OK(tarn_import_close(imported));
    OK(tarn_free(in_plain));
    OK(tarn_free(shared));
    OK(tarn_free(in_default));
    OK(tarn_free(in_ended));
    OK(tarn_free(pinned));
    OK(tarn_pool_release(plain));
    OK(tarn_pool_release(exported));
    filled_end(&left);
    filled_end(&registered);
    filled_end(&asleep);
    nothing_is_left_at_all();
}

static void *lend(size_t size, int device, void *native, void *lent)
{
    (void)device;
    (void)native;
    ++*(int *)lent;
    return aligned_alloc(4096, (size + 4095) / 4096 * 4096);
}

static void take_back(void *segment, size_t size, int device, void *native, void *lent)
{
    (void)size;
    (void)device;
    (void)native;
    --*(int *)lent;
    free(segment);
}

static void idle_plain_segments_go(void **state)
{
    (void)state;
    int lent = 0;
    const tarn_pool_allocator allocator = {sizeof allocator, lend, take_back, NULL, &lent};
    tarn_pool *pools[] = {
        pool_with((tarn_pool_options){.device = 0, .segments = TARN_SEGMENTS_PLAIN}),
        pool_with((tarn_pool_options){.device = 1, .allocator = &allocator})};
    tarn_residue residue = residue_new();
    void *live[2];
    for (int i = 0; i < 2; i++) {
        live[i] = alloc_in(pools[i], TARN_STREAM_LEGACY, MIB);
        OK(tarn_free(alloc_in(pools[i], TARN_STREAM_LEGACY, 24 * MIB)));
    }
    CHECK(lent == 2);
    OK(tarn_sleep(NULL, &residue));
    CHECK(lent == 1 && reserved_on(0) == 2 * MIB && reserved_on(1) == 2 * MIB);
    const tarn_residue_item *item = item_of(&residue, TARN_RESIDUE_PLAIN);
    CHECK(item && item->bytes == 2 * MIB);
    OK(tarn_wake());
    for (int i = 0; i < 2; i++) {
        OK(tarn_free(live[i]));
        OK(tarn_pool_release(pools[i]));
    }
    nothing_is_left_at_all();
    CHECK(lent == 0);
}

/* Its memory would be nobody's until the wake, which may need it. */
static void a_pool_that_is_let_go_while_others_sleep_ends(void **state)
{
    (void)state;
    tarn_tag tag;
    tarn_stream stream = lease(0);
    tarn_pool *awake = pool_with((tarn_pool_options){.device = 0});
    OK(tarn_tag_intern("awake", &tag));
    OK(tarn_pool_tag_set(awake, tag));
    OK(tarn_free(alloc_in(awake, stream, 8 * MIB)));
    tarn_sleep_rule rule = {.tag = tag, .contents = TARN_SLEEP_LEAVE};
    tarn_sleep_options options = {
        .size = sizeof options, .what = TARN_SLEEP_POOLS, .rules = &rule, .rule_count = 1};
    int64_t before = stats_of(0).reserved_bytes[TARN_STAT_ALL].current;
    OK(tarn_sleep(&options, NULL));
    OK(tarn_pool_release(awake));
    OK(tarn_device_synchronize(0));
    OK(tarn_device_trim(0, 0));
    CHECK(stats_of(0).reserved_bytes[TARN_STAT_ALL].current <= before - (int64_t)(8 * MIB));
    OK(tarn_wake());
    OK(tarn_stream_return(stream));
    nothing_is_left_at_all();
}

/* Its last launch ends during the prepare. No wake would resume it, and the program still has the
 * block. */
static void a_block_of_a_destroyed_graphs_pool_stays(void **state)
{
    (void)state;
    void *graph = NULL;
    tarn_stream stream = lease(0);
    OK(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED));
    unsigned char *block = alloc_on(stream, 8 * MIB);
    OK(tarn_host_work(0, native_of(stream), block, MIB, 1000));
    OK(tarn_capture_end(stream, &graph));
    memset(block, 7, 8 * MIB);
    OK(tarn_host_graph_launch(0, graph, native_of(stream)));
    OK(tarn_host_graph_destroy(graph));
    tarn_residue residue = residue_new();
    OK(tarn_sleep(NULL, &residue));
    const tarn_residue_item *item = item_of(&residue, TARN_RESIDUE_ENDED);
    CHECK(item && item->bytes == residue.after);
    CHECK(block[0] == 7 && block[8 * MIB - 1] == 7);
    OK(tarn_wake());
    memset(block, 8, 8 * MIB);
    OK(tarn_free(block));
    OK(tarn_stream_return(stream));
    nothing_is_left_at_all();
}

/* The same of one that a wake has resumed, before it had no room for the next. */
static void a_pool_that_is_let_go_after_half_a_wake_ends(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pools[2];
    void *blocks[2];
    for (int i = 0; i < 2; i++) {
        pools[i] = pool_with((tarn_pool_options){.device = 0});
        blocks[i] = alloc_in(pools[i], stream, 8 * MIB);
    }
    tarn_sleep_options options = {.size = sizeof options, .what = TARN_SLEEP_POOLS};
    OK(tarn_sleep(&options, NULL));
    OK(tarn_device_limit_set(0,
                             (size_t)stats_of(0).reserved_bytes[TARN_STAT_ALL].current + 12 * MIB));
    GIVES(tarn_wake(), TARN_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 2; i++) {
        tarn_pool_state pool_state = pool_info_of(pools[i]).state;
        OK(tarn_free(blocks[i]));
        if (pool_state == TARN_POOL_RUNS) {
            OK(tarn_pool_release(pools[i]));
            pools[i] = NULL;
        }
    }
    CHECK((pools[0] == NULL) != (pools[1] == NULL));
    OK(tarn_wake()); /* with the memory of the one that is gone */
    OK(tarn_pool_release(pools[pools[0] == NULL]));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_stream_return(stream));
    nothing_is_left_at_all();
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    tarn_sleep_rule rule = {.contents = 3};
    tarn_pool *standard;
    tarn_residue residue = {.size = sizeof residue, .room = 1};
    GIVES(tarn_sleep(&(tarn_sleep_options){.size = 3}, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleep(&(tarn_sleep_options){.size = sizeof(tarn_sleep_options), .what = 16}, NULL),
          TARN_ERROR_INVALID_ARGUMENT);
    GIVES(
        tarn_sleep(&(tarn_sleep_options){.size = sizeof(tarn_sleep_options), .contents = 3}, NULL),
        TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleep(&(tarn_sleep_options){.size = sizeof(tarn_sleep_options), .rule_count = 1},
                     NULL),
          TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleep(&(tarn_sleep_options){.size = sizeof(tarn_sleep_options),
                                           .rules = &rule,
                                           .rule_count = 1},
                     NULL),
          TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleep(NULL, &residue), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_sleep_state_get(NULL), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_default(0, &standard));
    GIVES(tarn_pool_tag_set(standard, 0), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(state_now() == TARN_SLEEP_AWAKE);
}

static void a_capture_refuses_a_sleep_and_a_sleep_a_capture(void **state)
{
    (void)state;
    struct filled filled;
    void *graph = NULL;
    filled_begin(&filled, 0, NULL);
    OK(tarn_pool_capture_begin(filled.pool, filled.stream, TARN_CAPTURE_RELAXED));
    GIVES(tarn_sleep(NULL, NULL), TARN_ERROR_CAPTURE);
    OK(tarn_capture_end(filled.stream, &graph));
    CHECK(state_now() == TARN_SLEEP_AWAKE && filled_is_right(&filled));
    OK(tarn_sleep(NULL, NULL)); /* the graph counts the pool, and sleeps with it */
    CHECK(reserved_on(0) == 0);
    OK(tarn_wake());
    CHECK(filled_is_right(&filled));
    OK(tarn_host_graph_destroy(graph));
    filled_end(&filled);
    nothing_is_left_at_all();
}

static void pools_that_slept_before_sleep_on(void **state)
{
    (void)state;
    struct filled mine, other;
    tarn_pool_state pool_state;
    filled_begin(&mine, 0, NULL);
    filled_begin(&other, 0, NULL);
    OK(tarn_pool_suspend(mine.pool, true));
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_pool_resume(other.pool)); /* before the wake, which finds it awake */
    OK(tarn_wake());
    pool_state = pool_info_of(mine.pool).state;
    CHECK(pool_state == TARN_POOL_SAVED && filled_is_right(&other));
    OK(tarn_pool_resume(mine.pool));
    CHECK(filled_is_right(&mine));
    filled_end(&mine);
    filled_end(&other);
    nothing_is_left_at_all();
}

static void a_wake_without_room_can_be_repeated(void **state)
{
    (void)state;
    struct filled first, second;
    filled_begin(&first, 0, NULL);
    filled_begin(&second, 0, NULL);
    size_t reserved = reserved_on(0);
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_device_limit_set(0, reserved / 4)); /* free memory does not come back */
    GIVES(tarn_wake(), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(state_now() == TARN_SLEEP_ASLEEP);
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_wake());
    CHECK(filled_is_right(&first) && filled_is_right(&second));
    filled_end(&first);
    filled_end(&second);
    nothing_is_left_at_all();
}

static bool sleeps(tarn_pool *pool)
{
    tarn_pool_info info = {.size = sizeof info};
    OK(tarn_pool_info_get(pool, &info));
    return info.state != TARN_POOL_RUNS;
}

/* A device that is full keeps no pool of another device asleep, nor a smaller one of its own; and
 * the text is the first failure's. */
static void a_full_device_keeps_no_other_asleep(void **state)
{
    (void)state;
    for (int full = 0; full < DEVICES; full++) {
        struct filled large[DEVICES];
        void *most[DEVICES];
        for (int device = 0; device < DEVICES; device++) {
            filled_begin(&large[device], device, NULL);
            most[device] = alloc_in(large[device].pool, large[device].stream, 64 * MIB);
        }
        struct filled small;
        filled_begin(&small, full, NULL);
        OK(tarn_sleep(NULL, NULL));
        OK(tarn_device_limit_set(full, reserved_on(full) + 32 * MIB));
        GIVES(tarn_wake(), TARN_ERROR_OUT_OF_MEMORY);
        char device[32];
        snprintf(device, sizeof device, "on device %d", full);
        CHECK(strstr(tarn_last_error(), device));
        CHECK(state_now() == TARN_SLEEP_ASLEEP);
        for (int i = 0; i < DEVICES; i++)
            CHECK(sleeps(large[i].pool) == (i == full));
        CHECK(!sleeps(small.pool) && filled_is_right(&small));
        OK(tarn_device_limit_set(full, TARN_NO_LIMIT));
        OK(tarn_wake());
        for (int i = 0; i < DEVICES; i++) {
            CHECK(filled_is_right(&large[i]));
            OK(tarn_free(most[i]));
            filled_end(&large[i]);
        }
        filled_end(&small);
    }
    nothing_is_left_at_all();
}

static void end_while_prepared(void)
{
    struct filled filled;
    filled_begin(&filled, 0, NULL);
    OK(tarn_sleep_prepare(NULL, NULL));
    OK(tarn_shutdown());
    CHECK(state_now() == TARN_SLEEP_AWAKE);
    GIVES(tarn_sleep_cancel(), TARN_ERROR_SHUTDOWN);
}

static void end_asleep(void)
{
    struct filled filled;
    filled_begin(&filled, 0, NULL);
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_shutdown());
}

static void a_shutdown_ends_a_sleep(void **state)
{
    (void)state;
    in_child(end_while_prepared);
    in_child(end_asleep);
}

/* Failures ------------------------------------------------------------------------------------- */

/* Sleeps and wakes while one call fails, or it and all later ones. What is to be kept is kept
 * whatever fails. What is to be discarded is still there where the process did not sleep, if what
 * undoes a step may work. */
static void fail_one(struct filled *kept, struct filled *gone, enum failure_kind kind, uint64_t nth,
                     bool forever, bool *hit)
{
    tarn_tag tag;
    OK(tarn_tag_intern("gone", &tag));
    tarn_sleep_rule rule = {.tag = tag, .contents = TARN_SLEEP_DISCARD};
    tarn_sleep_options options = {.size = sizeof options, .rules = &rule, .rule_count = 1};
    tarn_residue residue = residue_new();
    for (int i = 0; i < BLOCKS; i++) {
        block_fill(&kept->blocks[i]);
        block_fill(&gone->blocks[i]);
    }
    failure_arm(&(struct failure){.kind = kind, .nth = nth, .forever = forever});
    tarn_status status = tarn_sleep(&options, &residue);
    bool slept = state_now() == TARN_SLEEP_ASLEEP;
    CHECK(status || slept);
    if (slept)
        (void)tarn_wake();
    *hit = failure_hits() > 0;
    failure_clear();
    if (state_now() == TARN_SLEEP_PREPARED)
        OK(tarn_sleep_cancel());
    if (state_now() == TARN_SLEEP_ASLEEP)
        OK(tarn_wake());
    CHECK(state_now() == TARN_SLEEP_AWAKE && filled_is_right(kept));
    CHECK(slept || forever || filled_is_right(gone));
    tarn_pool_state pool_state = pool_info_of(kept->pool).state;
    if (pool_state != TARN_POOL_RUNS) /* a prepare that could not even undo its copies leaves it to
                                         its owner */
        OK(tarn_pool_resume(kept->pool));
    CHECK(filled_is_right(kept));
    verify(0);
}

static bool is_of_a_sleep(const struct filled *filled)
{
    tarn_alloc_options options = {
        .size = sizeof options, .stream = filled->stream, .pool = filled->pool};
    void *block = NULL;
    tarn_status status = tarn_alloc(&options, 1000, &block);
    if (!status)
        OK(tarn_free(block));
    return status == TARN_ERROR_SUSPENDED;
}

/* Whether this failure of a commit leaves a pool without memory. A cancel, which must give it some,
 * waits for the end of a capture; until then the other pool is as much a part of the sleep as
 * before, and both may be committed. */
static bool cancel_meets_a_capture(const struct filled filled[2], uint64_t nth, bool *hit)
{
    void *graph = NULL;
    tarn_stream other = lease(0);
    OK(tarn_sleep_prepare(NULL, NULL));
    failure_arm(&(struct failure){.kind = FAIL_driver, .nth = nth, .forever = true});
    (void)tarn_sleep_commit(NULL);
    *hit = failure_hits() > 0;
    failure_clear();
    bool refused = false;
    if (state_now() == TARN_SLEEP_PREPARED) {
        OK(tarn_capture_begin(other, TARN_CAPTURE_RELAXED));
        refused = tarn_sleep_cancel() == TARN_ERROR_CAPTURE;
        CHECK(state_now() == (refused ? TARN_SLEEP_PREPARED : TARN_SLEEP_AWAKE));
        CHECK(is_of_a_sleep(&filled[0]) == refused && is_of_a_sleep(&filled[1]) == refused);
        OK(tarn_capture_end(other, &graph));
        OK(driver->graph_destroy(0, graph));
        if (refused && nth % 2)
            OK(tarn_sleep_cancel());
        else if (refused)
            OK(tarn_sleep_commit(NULL));
    }
    if (state_now() == TARN_SLEEP_ASLEEP) {
        CHECK(is_of_a_sleep(&filled[0]) && is_of_a_sleep(&filled[1]));
        OK(tarn_wake());
    }
    OK(tarn_stream_return(other));
    CHECK(state_now() == TARN_SLEEP_AWAKE && filled_is_right(&filled[0]) &&
          filled_is_right(&filled[1]));
    return refused;
}

static void a_cancel_that_maps_waits_for_captures(void **state)
{
    (void)state;
    struct filled filled[2];
    unsigned refused = 0;
    bool hit = true;
    for (int i = 0; i < 2; i++)
        filled_begin(&filled[i], 0, NULL);
    for (uint64_t nth = 1; hit; nth++)
        refused += cancel_meets_a_capture(filled, nth, &hit);
    CHECK(refused > 1);
    for (int i = 0; i < 2; i++)
        filled_end(&filled[i]);
    nothing_is_left_at_all();
}

/* A commit that fails leaves a pool without memory, and the program resumes it: it is no longer a
 * part of the sleep. */
static void a_pool_that_is_resumed_between_commits_has_left(void **state)
{
    (void)state;
    struct filled filled[2];
    unsigned resumed = 0;
    bool hit = true;
    for (int i = 0; i < 2; i++)
        filled_begin(&filled[i], 0, NULL);
    for (uint64_t nth = 1; hit; nth++) {
        tarn_pool_state pool_state;
        unsigned count = 0;
        OK(tarn_sleep_prepare(NULL, NULL));
        failure_arm(&(struct failure){.kind = FAIL_driver, .nth = nth, .forever = true});
        (void)tarn_sleep_commit(NULL);
        hit = failure_hits() > 0;
        failure_clear();
        pool_state = pool_info_of(filled[0].pool).state;
        bool resumes = state_now() == TARN_SLEEP_PREPARED && pool_state == TARN_POOL_SAVED;
        if (resumes)
            OK(tarn_pool_resume(filled[0].pool));
        if (state_now() == TARN_SLEEP_PREPARED)
            OK(tarn_sleep_commit(NULL));
        count = pool_info_of(filled[0].pool).use_count;
        CHECK(count == (resumes ? 1u : 2u) && is_of_a_sleep(&filled[0]) == !resumes &&
              is_of_a_sleep(&filled[1]));
        OK(tarn_wake());
        CHECK(filled_is_right(&filled[0]) && filled_is_right(&filled[1]));
        resumed += resumes;
    }
    CHECK(resumed > 0);
    for (int i = 0; i < 2; i++)
        filled_end(&filled[i]);
    nothing_is_left_at_all();
}

static void nothing_is_lost_whatever_fails(void **state)
{
    (void)state;
    struct filled kept, gone;
    unsigned failures = 0;
    filled_begin(&kept, 0, "kept");
    filled_begin(&gone, 0, "gone");
    for (int kind = FAIL_driver; kind <= FAIL_memory; kind++)
        for (int forever = 0; forever < 2; forever++) {
            bool hit = true;
            for (uint64_t nth = 1; hit; nth++, failures++)
                fail_one(&kept, &gone, (enum failure_kind)kind, nth, forever, &hit);
        }
    print_message("%u failures\n", failures);
    CHECK(failures > 60);
    filled_end(&kept);
    filled_end(&gone);
    nothing_is_left_at_all();
}

/* Model ---------------------------------------------------------------------------------------- */

struct modelled {
    struct filled filled;
    int device, tag; /* 0: none */
    bool anchored, suspended;
};

static struct modelled pools[POOLS];
static tarn_tag tags[3];
static tarn_sleep_rule rules[2];

static tarn_sleep_contents contents_of(const tarn_sleep_options *options,
                                       const struct modelled *pool)
{
    for (size_t i = 0; i < options->rule_count; i++)
        if (rules[i].tag == tags[pool->tag])
            return rules[i].contents;
    return options->contents;
}

static void model_pool_begin(struct modelled *pool, uint64_t *random)
{
    *pool = (struct modelled){.device = (int)(random_next(random) % DEVICES),
                              .tag = (int)(random_next(random) % 3)};
    pool->filled = (struct filled){.pool = pool_with((tarn_pool_options){.device = pool->device}),
                                   .stream = lease(pool->device)};
    OK(tarn_pool_tag_set(pool->filled.pool, tags[pool->tag]));
}

static void model_block(struct modelled *pool, uint64_t *random)
{
    int which = (int)(random_next(random) % BLOCKS);
    struct block *block = &pool->filled.blocks[which];
    if (block->memory && which == 0 && pool->anchored)
        return;
    if (block->memory) {
        CHECK(block_is_right(block));
        OK(tarn_free(block->memory));
        block->memory = NULL;
    } else {
        block_make(&pool->filled, which,
                   random_next(random) % (random_next(random) % 2 ? 5000 : 3 * MIB) + 1);
    }
}

static void model_anchor(struct modelled *pool)
{
    const struct block *block = &pool->filled.blocks[0];
    if (!block->memory)
        return;
    OK(pool->anchored ? tarn_unanchor(block->memory, 1) : tarn_anchor(block->memory, 1));
    pool->anchored = !pool->anchored;
}

/* A sleep, in one step or two, with everything checked. */
static void model_sleep(uint64_t *random)
{
    tarn_sleep_options options = {.size = sizeof options,
                                  .contents = random_next(random) % 3,
                                  .rules = rules,
                                  .rule_count = random_next(random) % 3};
    tarn_residue residue = residue_new();
    for (size_t i = 0; i < 2; i++)
        rules[i] = (tarn_sleep_rule){.tag = tags[random_next(random) % 3],
                                     .contents = random_next(random) % 3};
    bool goes = random_next(random) % 4 != 0;
    OK(tarn_sleep_prepare(&options, &residue));
    if (!goes) {
        OK(tarn_sleep_cancel());
        return;
    }
    OK(tarn_sleep_commit(&residue));
    size_t stays = 0;
    for (int i = 0; i < POOLS; i++) {
        struct modelled *pool = &pools[i];
        tarn_stats stats = pool_stats_of(pool->filled.pool);
        bool sleeps = !pool->anchored && contents_of(&options, pool) != TARN_SLEEP_LEAVE;
        CHECK(!sleeps || stats.reserved_bytes[TARN_STAT_ALL].current == 0);
        stays += (size_t)stats.reserved_bytes[TARN_STAT_ALL].current;
        for (int j = 0; j < BLOCKS; j++)
            pool->filled.blocks[j].undefined |=
                sleeps && contents_of(&options, pool) == TARN_SLEEP_DISCARD;
    }
    CHECK(residue.after == stays);
    size_t said = 0;
    for (size_t i = 0; i < residue.count; i++)
        said += items[i].bytes;
    CHECK(said == stays);
    OK(tarn_wake());
}

static void model_run(uint64_t seed)
{
    uint64_t random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (int i = 0; i < POOLS; i++)
        model_pool_begin(&pools[i], &random);
    for (int step = 0; step < 120; step++) {
        struct modelled *pool = &pools[random_next(&random) % POOLS];
        switch (random_next(&random) % 10) {
        case 0:
            model_sleep(&random);
            break;
        case 1:
            model_anchor(pool);
            break;
        default:
            model_block(pool, &random);
            break;
        }
        for (int i = 0; i < POOLS; i++)
            CHECK(step % 8 || filled_is_right(&pools[i].filled));
    }
    for (int i = 0; i < POOLS; i++) {
        CHECK(filled_is_right(&pools[i].filled));
        if (pools[i].anchored)
            model_anchor(&pools[i]);
        filled_end(&pools[i].filled);
    }
    nothing_is_left_at_all();
}

static void sleeps_are_as_the_model_says(void **state)
{
    (void)state;
    const char *seed = getenv("TARN_SEED");
    OK(tarn_tag_intern("one", &tags[1]));
    OK(tarn_tag_intern("two", &tags[2]));
    for (uint64_t i = 1; i <= 6; i++)
        model_run(seed ? strtoull(seed, NULL, 0) + i : i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shutdown_ends_a_sleep),
        cmocka_unit_test(memory_goes_and_comes_back),
        cmocka_unit_test(a_prepare_is_undone_without_a_driver),
        cmocka_unit_test(what_stays_is_said_with_its_reason),
        cmocka_unit_test(a_pool_that_is_let_go_while_others_sleep_ends),
        cmocka_unit_test(idle_plain_segments_go),
        cmocka_unit_test(a_block_of_a_destroyed_graphs_pool_stays),
        cmocka_unit_test(a_pool_that_is_let_go_after_half_a_wake_ends),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_capture_refuses_a_sleep_and_a_sleep_a_capture),
        cmocka_unit_test(pools_that_slept_before_sleep_on),
        cmocka_unit_test(a_wake_without_room_can_be_repeated),
        cmocka_unit_test(a_full_device_keeps_no_other_asleep),
        cmocka_unit_test(a_cancel_that_maps_waits_for_captures),
        cmocka_unit_test(a_pool_that_is_resumed_between_commits_has_left),
        cmocka_unit_test(nothing_is_lost_whatever_fails),
        cmocka_unit_test(sleeps_are_as_the_model_says),
    };
    host_start_with(DEVICES, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
