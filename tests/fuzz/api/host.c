/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* host.h. Bytes are written only where a program may: to a live block, on its own stream. */
#include "api/api.h"

#include <string.h>

static void *any_native(void)
{
    void *native = NULL;
    if (take() < 224)
        (void)tarn_stream_native_get(any_stream(), &native);
    else
        native = any_object(world.events);
    return native;
}

/* A live block of a device that runs its stream, with where that is; NULL where the choice fell on
 * none. */
static const struct block *any_place(int *device, void **native)
{
    const struct block *block = any_block();
    tarn_block_info info = {.size = sizeof info};
    tarn_stream_info stream = {.size = sizeof stream};
    tarn_capture_state state;
    tarn_pool_info pool_info = {.size = sizeof pool_info};
    tarn_pool *pool = NULL;
    if (!block->live || block->kind != DEVICE_BLOCK ||
        tarn_pointer_info_get(block->pointer, &info) ||
        tarn_stream_info_get(info.stream, &stream) || stream.device != info.device ||
        tarn_capture_state_get(info.stream, &state, NULL, NULL) || state != TARN_CAPTURE_NONE ||
        tarn_stream_native_get(info.stream, native))
        return NULL;
    *device = info.device;
    if ((info.pool.first || info.pool.second) && !tarn_pool_find(info.pool, &pool)) {
        (void)tarn_pool_info_get(pool, &pool_info);
        (void)tarn_pool_release(pool);
    } else if (info.pool.first || info.pool.second) {
        return NULL;
    }
    return pool_info.state == TARN_POOL_RUNS ? block : NULL;
}

static void fuzz_tarn_host_configuration_set(void)
{
    tarn_host_configuration config = {.size = struct_size(sizeof config),
                                      .devices = any_device(),
                                      .memory = any_size(),
                                      .maps = any_size()};
    DEMAND(tarn_host_configuration_set(or_null(&config)));
}

static void fuzz_tarn_host_call_name(void)
{
    (void)tarn_host_call_name((int)take_number());
}

static void fuzz_tarn_host_ledger_get(void)
{
    tarn_host_ledger ledger = {.size = struct_size(sizeof ledger)};
    (void)tarn_host_ledger_get(any_device(), or_null(&ledger));
}

static void fuzz_tarn_host_ledger_reset(void)
{
    (void)tarn_host_ledger_reset(any_device());
}

static void fuzz_tarn_host_cost_get(void)
{
    uint64_t ns;
    (void)tarn_host_cost_get((char)('A' + take() % 5), (int)take_number(), any_size(),
                             take_number(), or_null(&ns));
}

/* A device that is lost stays so, and every later sequence would find nothing but that. */
static void fuzz_tarn_host_fail_set(void)
{
    tarn_status status = (tarn_status)(take() % 27);
    int kind = (int)(take() % TARN_HOST_MAX_KINDS) - 1;
    (void)tarn_host_fail_set(kind, take() % 16, take() >= 240,
                             status == TARN_ERROR_DEVICE_LOST ? TARN_ERROR_DRIVER : status);
}

static void fuzz_tarn_host_time_get(void)
{
    uint64_t now;
    (void)tarn_host_time_get(or_null(&now));
}

static void fuzz_tarn_host_advance(void)
{
    uint64_t now = 0;
    (void)tarn_host_time_get(&now);
    (void)tarn_host_advance(take_bool() ? now + (uint64_t)take() * 1000 : take());
}

static void fuzz_tarn_host_work(void)
{
    const void *address = any_pointer();
    size_t size = any_size();
    (void)tarn_host_work(any_device(), any_native(), address, size,
                         (uint64_t)take() << (take() % 24));
}

static void fuzz_tarn_host_fill(void)
{
    int device = 0;
    void *native = NULL;
    const struct block *block = any_place(&device, &native);
    if (block)
        (void)tarn_host_fill(device, native, block->pointer, take(), block->size);
}

static void called(void *argument)
{
    DEMAND(argument == &world);
}

static void fuzz_tarn_host_call(void)
{
    (void)tarn_host_call(any_device(), any_native(), take() < 240 ? called : NULL, &world);
}

static void fuzz_tarn_host_graph_launch(void)
{
    (void)tarn_host_graph_launch(any_device(), any_object(world.graphs), any_native());
}

static void fuzz_tarn_host_graph_destroy(void)
{
    void *graph = any_object(world.graphs);
    if (!tarn_host_graph_destroy(graph))
        slot_ended(world.graphs, graph, 0);
}

static void fuzz_tarn_host_extent_get(void)
{
    tarn_host_extent extent;
    (void)tarn_host_extent_get(any_device(), any_pointer(), any_size(), or_null(&extent));
}

/* Off only: what it reports is the caller's mistake, and these callers make them. */
static void fuzz_tarn_host_check_set(void)
{
    (void)tarn_host_check_set(false, NULL, NULL);
}

const struct api_call api_host[] = {
    CALL(tarn_host_configuration_set),
    CALL(tarn_host_call_name),
    CALL(tarn_host_ledger_get),
    CALL(tarn_host_ledger_reset),
    CALL(tarn_host_cost_get),
    CALL(tarn_host_fail_set),
    ALSO(tarn_host_ledger_get, tarn_host_ledger_get),
    CALL(tarn_host_time_get),
    CALL(tarn_host_advance),
    CALL(tarn_host_work),
    CALL(tarn_host_fill),
    CALL(tarn_host_call),
    CALL(tarn_host_graph_launch),
    CALL(tarn_host_graph_destroy),
    CALL(tarn_host_extent_get),
    CALL(tarn_host_check_set),
    {0},
};
