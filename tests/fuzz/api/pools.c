/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* pool.h and stats.h. */
#include "api/api.h"

#include <string.h>
#include <sys/mman.h>

/* ---- Pools ---- */

static void *take_pages(size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    DEMAND(user == &world);
    void *memory = MAP_FAILED;
    if (size <= DEVICE_MEMORY)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void give_pages(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    DEMAND(user == &world && munmap(pointer, size) == 0);
}

static void fuzz_tarn_pool_create(void)
{
    tarn_pool *pool = NULL;
    uint8_t which = take();
    tarn_pool_allocator allocator = {.size = struct_size(sizeof allocator),
                                     .alloc = take_pages,
                                     .free = take() < 248 ? give_pages : NULL,
                                     .user = &world};
    tarn_pool_options options = {.size = struct_size(sizeof options), .device = any_device()};
    size_t limit = which & 1 ? any_size() : TARN_NO_LIMIT;
    options.use_on_oom = which & 2;
    options.no_remap = which & 4;
    options.exportable = which & 8;
    options.registrable = (which & 192) == 192;
    options.segments = take() < 128 ? TARN_SEGMENTS_DEFAULT : (tarn_segments)(take() % 8);
    options.no_split = (which & 48) == 48;
    options.idle_release = which & 1 ? TARN_NO_IDLE_RELEASE : 0;
    options.allocator = (which & 48) == 16 ? &allocator : NULL;
    tarn_segment_sizes sizes;
    if ((which & 48) == 32) {
        sizes = (tarn_segment_sizes){sizeof sizes, any_size(), any_size(), any_size(),
                                     any_size(),   any_size(), any_size()};
        options.sizes = &sizes;
    }
    if (has_room(world.pools) && !tarn_pool_create(or_null(&options), or_null(&pool))) {
        slot_add(world.pools, pool, 0);
        (void)tarn_pool_limit_set(pool, limit);
    }
}

static void fuzz_tarn_pool_retain(void)
{
    tarn_pool *pool = any_object(world.pools);
    if (has_room(world.pools) && !tarn_pool_retain(pool))
        slot_add(world.pools, pool, 0);
}

static void fuzz_tarn_pool_release(void)
{
    tarn_pool *pool = any_object(world.pools);
    if (!tarn_pool_release(pool))
        slot_ended(world.pools, pool, 0);
}

static void fuzz_tarn_pool_find(void)
{
    tarn_pool *pool = NULL;
    tarn_pool_id id = {take_number(), take_number()};
    tarn_pool_info info = {.size = sizeof info};
    if (take_bool() && !tarn_pool_info_get(any_object(world.pools), &info))
        id = info.id;
    if (has_room(world.pools) && !tarn_pool_find(id, or_null(&pool)))
        slot_add(world.pools, pool, 0);
}

static void fuzz_tarn_pool_info_get(void)
{
    tarn_pool_info info = {.size = struct_size(sizeof info)};
    (void)tarn_pool_info_get(any_object(world.pools), or_null(&info));
}

static void fuzz_tarn_pool_stats_get(void)
{
    tarn_stats stats = {.size = struct_size(sizeof stats)};
    (void)tarn_pool_stats_get(any_object(world.pools), or_null(&stats));
}

static void fuzz_tarn_pool_default(void)
{
    tarn_pool *pool = NULL;
    size_t count = 0;
    if (tarn_pool_default(any_device(), or_null(&pool)))
        return;
    (void)tarn_pool_trim(pool, any_size());
    (void)tarn_pool_blocks_get(pool, NULL, 0, &count);
    (void)tarn_pool_release(pool);
    (void)tarn_pool_suspend(pool, take_bool());
}

static void fuzz_tarn_pool_trim(void)
{
    (void)tarn_pool_trim(any_object(world.pools), any_size());
}

static void fuzz_tarn_pool_limit_set(void)
{
    (void)tarn_pool_limit_set(any_object(world.pools), any_size());
}

static void fuzz_tarn_pool_alloc(void)
{
    void *pointer = NULL;
    tarn_pool *pool = any_object(world.pools);
    tarn_stream stream = any_stream();
    size_t size = any_size();
    if (!tarn_pool_alloc(pool, stream, size, or_null(&pointer)))
        block_add(DEVICE_BLOCK, pointer, size, stream);
}

static void fuzz_tarn_pool_blocks_get(void)
{
    tarn_pool_block blocks[BLOCKS];
    size_t count = 0, room = take() % (BLOCKS + 1);
    (void)tarn_pool_blocks_get(any_object(world.pools), or_null(blocks), room, or_null(&count));
}

static void fuzz_tarn_pool_segments_get(void)
{
    tarn_mapping segments[BLOCKS];
    size_t count = 0, room = take() % (BLOCKS + 1);
    (void)tarn_pool_segments_get(any_object(world.pools), or_null(segments), room, or_null(&count));
}

/* ---- Suspending, checkpoints ---- */

static void fuzz_tarn_pool_suspend(void)
{
    (void)tarn_pool_suspend(any_object(world.pools), take_bool());
}

static void fuzz_tarn_pool_resume(void)
{
    (void)tarn_pool_resume(any_object(world.pools));
}

static void fuzz_tarn_pool_checkpoint(void)
{
    tarn_checkpoint *checkpoint = NULL;
    if (has_room(world.checkpoints) &&
        !tarn_pool_checkpoint(any_object(world.pools), or_null(&checkpoint)))
        slot_add(world.checkpoints, checkpoint, 0);
}

static void fuzz_tarn_checkpoint_destroy(void)
{
    tarn_checkpoint *checkpoint = any_object(world.checkpoints);
    if (!tarn_checkpoint_destroy(checkpoint))
        slot_ended(world.checkpoints, checkpoint, 0);
}

/* Without it, what becomes live is known by tarn alone: it is freed by the pool's list of blocks
 * then. */
static void on_change(const tarn_pool_block *block, bool live, void *user)
{
    DEMAND(user == &world);
    if (live)
        block_add(DEVICE_BLOCK, block->address, block->requested, block->stream);
    else
        block_ended(DEVICE_BLOCK, block->address);
}

static void fuzz_tarn_pool_restore(void)
{
    (void)tarn_pool_restore(any_object(world.pools), any_object(world.checkpoints), on_change,
                            &world);
}

/* ---- Scopes ---- */

static void scope_add(tarn_scope scope)
{
    struct mine *here = mine();
    here->scopes[here->scope_count++] = (struct slot){.value = scope, .live = true};
    slot_add(world.scopes, NULL, scope);
}

static void scope_gone(tarn_scope scope)
{
    struct mine *here = mine();
    slot_ended(world.scopes, NULL, scope);
    for (size_t i = 0; i < here->scope_count; i++)
        if (here->scopes[i].value == scope) {
            memmove(&here->scopes[i], &here->scopes[i + 1],
                    (here->scope_count - i - 1) * sizeof here->scopes[0]);
            here->scope_count--;
            return;
        }
}

static void fuzz_tarn_scope_begin(void)
{
    tarn_scope scope = 0;
    tarn_pool *pool = any_object(world.pools);
    tarn_scope_kind kind = (tarn_scope_kind)(take() % 4);
    tarn_stream stream = any_stream();
    if (mine()->scope_count < SLOTS && !tarn_scope_begin(pool, kind, stream, or_null(&scope)))
        scope_add(scope);
}

static void fuzz_tarn_scope_end(void)
{
    tarn_scope scope = any_value(world.scopes);
    if (!tarn_scope_end(scope))
        scope_gone(scope);
}

static void fuzz_tarn_scope_join(void)
{
    tarn_scope scope = any_value(world.scopes);
    if (mine()->scope_count < SLOTS && !tarn_scope_join(scope))
        scope_add(scope);
}

/* ---- Captures with a pool ---- */

static void capture_note(tarn_stream stream)
{
    tarn_capture_state state;
    uint64_t id = 0;
    if (!tarn_capture_state_get(stream, &state, &id, NULL))
        slot_add(world.captures, NULL, id);
}

static void fuzz_tarn_pool_capture_begin(void)
{
    tarn_pool *pool = take_bool() ? any_object(world.pools) : NULL;
    tarn_stream stream = any_stream();
    if (!tarn_pool_capture_begin(pool, stream, (tarn_capture_mode)(take() % 4)))
        capture_note(stream);
}

static void fuzz_tarn_pool_capture_announce(void)
{
    (void)tarn_pool_capture_announce(take_bool() ? any_object(world.pools) : NULL, any_stream());
}

/* Pools by their holds, each of which is dropped at the end: a pool that is held keeps its
 * memory. */
static tarn_pool *held[512];
static size_t holds;

static void fuzz_tarn_pool_hold(void)
{
    tarn_pool *pool = any_object(world.pools);
    void *graph = take_bool() ? any_object(world.graphs) : NULL;
    if (holds < sizeof held / sizeof *held && tarn_pool_hold(pool, graph) == TARN_OK && !graph)
        held[holds++] = pool;
}

static void fuzz_tarn_pool_unhold(void)
{
    tarn_pool *pool = any_object(world.pools);
    if (tarn_pool_unhold(pool))
        return;
    for (size_t i = 0; i < holds; i++)
        if (held[i] == pool) {
            held[i] = held[--holds];
            return;
        }
}

void fuzz_holds_end(void)
{
    while (holds)
        (void)tarn_pool_unhold(held[--holds]);
}

static tarn_tag any_tag(void)
{
    tarn_tag tag = 0;
    if (take_bool())
        (void)tarn_tag_intern(take_bool() ? "weights" : "cache", &tag);
    return take() % 8 ? tag : (tarn_tag)take_number();
}

static void fuzz_tarn_pool_tag_set(void)
{
    (void)tarn_pool_tag_set(any_object(world.pools), any_tag());
}

/* A sleep with anything, in one step or the first of two. */
static void fuzz_any_sleep(tarn_status (*call)(const tarn_sleep_options *options,
                                               tarn_residue *residue))
{
    tarn_residue_item items[4];
    tarn_sleep_rule rules[2];
    tarn_residue residue = {
        .size = struct_size(sizeof residue), .items = items, .room = take() % 5};
    for (int i = 0; i < 2; i++)
        rules[i] = (tarn_sleep_rule){any_tag(), (tarn_sleep_contents)(take() % 4)};
    tarn_sleep_options options = {.size = struct_size(sizeof options),
                                  .what = take() % 17,
                                  .contents = (tarn_sleep_contents)(take() % 4),
                                  .rules = or_null(rules),
                                  .rule_count = take() % 3};
    (void)call(or_null(&options), or_null(&residue));
}

static void fuzz_tarn_sleep(void)
{
    fuzz_any_sleep(tarn_sleep);
}

static void fuzz_tarn_sleep_prepare(void)
{
    fuzz_any_sleep(tarn_sleep_prepare);
}

static void fuzz_tarn_sleep_commit(void)
{
    tarn_residue residue = {.size = struct_size(sizeof residue)};
    (void)tarn_sleep_commit(or_null(&residue));
}

static void fuzz_tarn_sleep_cancel(void)
{
    (void)tarn_sleep_cancel();
}

static void fuzz_tarn_wake(void)
{
    (void)tarn_wake();
}

static void fuzz_tarn_sleep_state_get(void)
{
    tarn_sleep_state state;
    (void)tarn_sleep_state_get(or_null(&state));
}

/* Callbacks that fail, and refuse, and remove their own sleeper. */
static tarn_sleeper sleepers[3];

static tarn_status fuzz_sleeper(void *user, char *why, size_t room)
{
    DEMAND(room > 8);
    memcpy(why, "for fun", 8);
    if (take() % 8 == 0)
        DEMAND(tarn_sleeper_remove(*(tarn_sleeper *)user) == TARN_ERROR_BUSY);
    return take() % 2 ? TARN_OK : take() % 2 ? TARN_ERROR_BUSY : TARN_ERROR_DRIVER;
}

static void fuzz_sleeper_cancelled(void *user)
{
    DEMAND(tarn_sleep(NULL, NULL) == TARN_ERROR_BUSY);
    (void)user;
}

static size_t fuzz_sleeper_holds(void *user)
{
    return *(tarn_sleeper *)user;
}

static void fuzz_tarn_sleeper_add(void)
{
    tarn_sleeper *sleeper = &sleepers[take() % 3];
    tarn_sleeper_options options = {.size = struct_size(sizeof options),
                                    .name = or_null("fuzz"),
                                    .device = (int)(take() % 4) - 1,
                                    .pool = any_object(world.pools),
                                    .user = sleeper,
                                    .prepare = take() % 2 ? fuzz_sleeper : NULL,
                                    .cancel = take() % 2 ? fuzz_sleeper_cancelled : NULL,
                                    .commit = take() % 8 ? fuzz_sleeper : NULL,
                                    .wake = take() % 8 ? fuzz_sleeper : NULL,
                                    .held = take() % 2 ? fuzz_sleeper_holds : NULL};
    if (!*sleeper)
        (void)tarn_sleeper_add(or_null(&options), or_null(sleeper));
}

static void fuzz_tarn_sleeper_remove(void)
{
    tarn_sleeper *sleeper = &sleepers[take() % 3];
    if (tarn_sleeper_remove(*sleeper) == TARN_OK)
        *sleeper = 0;
}

static void fuzz_tarn_sleeper_info_get(void)
{
    tarn_sleeper_info info = {.size = struct_size(sizeof info)};
    (void)tarn_sleeper_info_get(sleepers[take() % 3], or_null(&info));
}

/* They would refuse and fail for ever. */
void fuzz_sleepers_end(void)
{
    for (int i = 0; i < 3; i++)
        DEMAND(!sleepers[i] || tarn_sleeper_remove(sleepers[i]) == TARN_OK);
    memset(sleepers, 0, sizeof sleepers);
}

/* ---- Statistics of devices ---- */

static void on_kind(const tarn_metadata_kind *kind, void *user)
{
    DEMAND(user == &world && *kind->name && kind->records >= 0 && kind->bytes >= 0);
}

static void fuzz_tarn_metadata_list(void)
{
    (void)tarn_metadata_list(take() < 248 ? on_kind : NULL, &world);
}

static void fuzz_tarn_device_stats_get(void)
{
    tarn_stats stats = {.size = struct_size(sizeof stats)};
    (void)tarn_device_stats_get(any_device(), or_null(&stats));
}

static void fuzz_tarn_device_stats_reset(void)
{
    (void)tarn_device_stats_reset(any_device(), (tarn_stats_what)(take() % 3));
}

/* ---- Ranges ---- */

#define GRANULE ((size_t)2 << 20)

/* Whole pages more often than not. */
static size_t any_extent(void)
{
    return take() < 200 ? take() % 16 * GRANULE : any_size();
}

static void fuzz_tarn_range_create(void)
{
    tarn_range_options options = {.size = struct_size(sizeof options), .pool = NULL};
    tarn_range *range = NULL;
    if (take_bool())
        options.pool = any_object(world.pools);
    if (take() < 64)
        options.page = any_extent();
    size_t bytes = any_extent();
    if (has_room(world.ranges) && !tarn_range_create(or_null(&options), bytes, or_null(&range)))
        slot_add(world.ranges, range, 0);
}

static void fuzz_tarn_range_commit(void)
{
    size_t offset = any_extent(), bytes = any_extent();
    (void)tarn_range_commit(any_object(world.ranges), offset, bytes, any_stream());
}

static void fuzz_tarn_range_decommit(void)
{
    size_t offset = any_extent(), bytes = any_extent();
    (void)tarn_range_decommit(any_object(world.ranges), offset, bytes, any_stream());
}

static void fuzz_tarn_range_hold(void)
{
    size_t offset = any_extent(), bytes = any_extent();
    (void)tarn_range_hold(any_object(world.ranges), offset, bytes,
                          take_bool() ? any_object(world.graphs) : NULL);
}

static void fuzz_tarn_range_unhold(void)
{
    size_t offset = any_extent(), bytes = any_extent();
    (void)tarn_range_unhold(any_object(world.ranges), offset, bytes);
}

static void fuzz_tarn_range_info_get(void)
{
    tarn_range_info info = {.size = struct_size(sizeof info)};
    (void)tarn_range_info_get(any_object(world.ranges), or_null(&info));
}

static void fuzz_tarn_range_destroy(void)
{
    tarn_range *range = any_object(world.ranges);
    if (!tarn_range_destroy(range))
        slot_ended(world.ranges, range, 0);
}

/* ---- Kept pools: no owner runs ---- */

static void fuzz_tarn_pool_keep(void)
{
    tarn_keep_options options = {.size = struct_size(sizeof options), .socket = "/nowhere"};
    tarn_kept kept = {.size = struct_size(sizeof kept)};
    tarn_pool *pool = NULL;
    options.device = any_device();
    if (take_bool())
        options.segment = any_extent();
    DEMAND(tarn_pool_keep(take_bool() ? "none" : NULL, or_null(&options), or_null(&pool),
                          or_null(&kept)) != TARN_OK);
}

static void fuzz_tarn_pool_block_seal(void)
{
    (void)tarn_pool_block_seal(any_pointer(), "none", NULL, any_object(world.events));
}

static void fuzz_tarn_pool_block_unseal(void)
{
    (void)tarn_pool_block_unseal(any_pointer());
}

static void fuzz_tarn_pool_save(void)
{
    (void)tarn_pool_save(any_object(world.pools), -1);
}

static void fuzz_tarn_pool_load(void)
{
    (void)tarn_pool_load(any_object(world.pools), -1);
}

static void fuzz_tarn_pool_block_find(void)
{
    tarn_sealed_block block = {.size = struct_size(sizeof block)};
    (void)tarn_pool_block_find(any_object(world.pools), "none", or_null(&block));
}

void fuzz_ranges_end(void)
{
    for (size_t i = 0; i < SLOTS; i++) {
        tarn_range *range = world.ranges[i].object;
        if (!world.ranges[i].live)
            continue;
        for (size_t first = 0; first < 16; first++)
            for (size_t count = 1; count < 16; count++)
                while (!tarn_range_unhold(range, first * GRANULE, count * GRANULE))
                    ;
        DEMAND(tarn_range_destroy(range) == TARN_OK);
    }
}

const struct api_call api_pools[] = {
    CALL(tarn_range_create),
    CALL(tarn_range_commit),
    CALL(tarn_range_decommit),
    CALL(tarn_range_hold),
    CALL(tarn_range_unhold),
    CALL(tarn_range_info_get),
    CALL(tarn_range_destroy),
    CALL(tarn_pool_create),
    CALL(tarn_pool_keep),
    CALL(tarn_pool_block_seal),
    CALL(tarn_pool_block_unseal),
    CALL(tarn_pool_block_find),
    CALL(tarn_pool_save),
    CALL(tarn_pool_load),
    CALL(tarn_pool_default),
    CALL(tarn_pool_retain),
    CALL(tarn_pool_release),
    CALL(tarn_pool_find),
    CALL(tarn_pool_info_get),
    CALL(tarn_pool_stats_get),
    CALL(tarn_pool_trim),
    CALL(tarn_pool_limit_set),
    CALL(tarn_pool_alloc),
    CALL(tarn_pool_blocks_get),
    CALL(tarn_pool_segments_get),
    ALSO(tarn_pool_blocks_get, tarn_pool_blocks_get),
    CALL(tarn_pool_suspend),
    CALL(tarn_pool_resume),
    CALL(tarn_pool_checkpoint),
    CALL(tarn_checkpoint_destroy),
    CALL(tarn_pool_restore),
    CALL(tarn_scope_begin),
    CALL(tarn_scope_end),
    CALL(tarn_scope_join),
    ALSO(tarn_scope_end, tarn_scope_end),
    CALL(tarn_pool_capture_begin),
    CALL(tarn_pool_capture_announce),
    CALL(tarn_metadata_list),
    CALL(tarn_device_stats_get),
    CALL(tarn_device_stats_reset),
    CALL(tarn_pool_hold),
    CALL(tarn_pool_unhold),
    CALL(tarn_pool_tag_set),
    CALL(tarn_sleep),
    CALL(tarn_sleep_prepare),
    CALL(tarn_sleep_commit),
    CALL(tarn_sleep_cancel),
    CALL(tarn_wake),
    CALL(tarn_sleep_state_get),
    CALL(tarn_sleeper_add),
    CALL(tarn_sleeper_remove),
    CALL(tarn_sleeper_info_get),
    {0},
};
