/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Stream-ordered memory, from lanes (pool/lane.c) or passed on. A block is charged to the device of
 * its pool, or to the context's device if the call names no pool. The bytes of blocks are charged,
 * although the driver's pools keep what is free. What a capture allocates is a node of its graph,
 * whose memory comes and goes with launches. */
#include "pool/pool.h"
#include "shim.h"

bool stream_captures(cu_stream stream, bool per_thread)
{
    cu_capture_status status = CU_CAPTURE_IS_NONE;
    cu_result code = CU_NOT_FOUND;
    if (!pool_may_capture())
        return false;
    if (per_thread && real.cuStreamIsCapturing_ptsz)
        code = real.cuStreamIsCapturing_ptsz(stream, &status);
    else if (real.cuStreamIsCapturing)
        code = real.cuStreamIsCapturing(stream, &status);
    return code == CU_OK && status != CU_CAPTURE_IS_NONE;
}

static void end(struct charge *charge, cu_result code, cu_address address, size_t size,
                cu_stream stream, bool per_thread)
{
    if (!code && stream_captures(stream, per_thread))
        charge->block.kind = RUN_GRAPH;
    charge->stream = stream;
    pool_heard(charge->block.device, code);
    if (!code && charge->block.kind == RUN_ORDERED)
        pool_passes(charge->block.owner, (int64_t)size);
    charge_end(charge, code, SPACE_ADDRESS, address, size);
}

static unsigned device_of_pool(cu_pool pool, enum run_kind *kind, unsigned *source)
{
    struct block known;
    cu_context context;
    *kind = RUN_ORDERED;
    *source = 0;
    if (!blocks_find(SPACE_POOL, (uint64_t)(uintptr_t)pool, &known)) {
        unsigned device = current_device(&context);
        *source = pool_source_known(pool, device);
        return device;
    }
    *kind = known.kind;
    *source = known.owner ? known.owner : pool_source_known(pool, known.device);
    return known.device;
}

HOOK cu_result cuMemAllocAsync(cu_address *address, size_t size, cu_stream stream)
{
    struct charge charge;
    cu_context context;
    if (!address || !size || !shim_enter())
        return PASS(cuMemAllocAsync, (address, size, stream));
    unsigned device = current_device(&context), source = pool_source_of_device(device);
    if (pool_alloc_ordered(address, &(struct ordered_request){size, source, device, context, stream,
                                                              false, CALLER})) {
        shim_leave();
        return CU_OK;
    }
    cu_result code = charge_begin(&charge, RUN_ORDERED, device, size, CALLER);
    if (!code) {
        charge.block.owner = (uint16_t)source;
        code = AGAIN(device, PASS(cuMemAllocAsync, (address, size, stream)));
        end(&charge, code, code ? 0 : *address, size, stream, false);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMemAllocAsync_ptsz(cu_address *address, size_t size, cu_stream stream)
{
    struct charge charge;
    cu_context context;
    if (!address || !size || !shim_enter())
        return PASS(cuMemAllocAsync_ptsz, (address, size, stream));
    unsigned device = current_device(&context), source = pool_source_of_device(device);
    if (pool_alloc_ordered(address, &(struct ordered_request){size, source, device, context, stream,
                                                              true, CALLER})) {
        shim_leave();
        return CU_OK;
    }
    cu_result code = charge_begin(&charge, RUN_ORDERED, device, size, CALLER);
    if (!code) {
        charge.block.owner = (uint16_t)source;
        code = AGAIN(device, PASS(cuMemAllocAsync_ptsz, (address, size, stream)));
        end(&charge, code, code ? 0 : *address, size, stream, true);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMemAllocFromPoolAsync(cu_address *address, size_t size, cu_pool pool,
                                       cu_stream stream)
{
    struct charge charge;
    enum run_kind kind;
    if (!address || !size || !shim_enter())
        return PASS(cuMemAllocFromPoolAsync, (address, size, pool, stream));
    unsigned source, device = device_of_pool(pool, &kind, &source);
    if (pool_alloc_ordered(address, &(struct ordered_request){size, source, device, NULL, stream,
                                                              false, CALLER})) {
        shim_leave();
        return CU_OK;
    }
    cu_result code = charge_begin(&charge, kind, device, size, CALLER);
    if (!code) {
        charge.block.owner = (uint16_t)source;
        code = AGAIN(device, PASS(cuMemAllocFromPoolAsync, (address, size, pool, stream)));
        end(&charge, code, code ? 0 : *address, size, stream, false);
    }
    shim_leave();
    return code;
}

HOOK cu_result cuMemAllocFromPoolAsync_ptsz(cu_address *address, size_t size, cu_pool pool,
                                            cu_stream stream)
{
    struct charge charge;
    enum run_kind kind;
    if (!address || !size || !shim_enter())
        return PASS(cuMemAllocFromPoolAsync_ptsz, (address, size, pool, stream));
    unsigned source, device = device_of_pool(pool, &kind, &source);
    if (pool_alloc_ordered(
            address, &(struct ordered_request){size, source, device, NULL, stream, true, CALLER})) {
        shim_leave();
        return CU_OK;
    }
    cu_result code = charge_begin(&charge, kind, device, size, CALLER);
    if (!code) {
        charge.block.owner = (uint16_t)source;
        code = AGAIN(device, PASS(cuMemAllocFromPoolAsync_ptsz, (address, size, pool, stream)));
        end(&charge, code, code ? 0 : *address, size, stream, true);
    }
    shim_leave();
    return code;
}

static void freed(bool known, cu_result code, const struct block *block, cu_stream stream)
{
    if (code)
        pool_heard(NO_DEVICE, code);
    if (known && code)
        charge_restore(block);
    else if (known)
        charge_free(block, stream);
    if (known && !code && block->kind == RUN_ORDERED)
        pool_passes(block->owner, -(int64_t)block->size);
}

static cu_result pass_free(cu_address address, cu_stream stream, bool per_thread)
{
    return per_thread ? PASS(cuMemFreeAsync_ptsz, (address, stream))
                      : PASS(cuMemFreeAsync, (address, stream));
}

/* A free that a capture records happens at each launch of the graph, so the block stays. For a
 * pooled block, the program gets the error that the driver has for an address at which no
 * allocation begins. */
static cu_result free_of_capture(cu_address address, cu_stream stream, bool per_thread)
{
    struct block block;
    bool pooled = blocks_find(SPACE_ADDRESS, address, &block) ? block.pooled : pool_owns(address);
    return pass_free(pooled ? address + 1 : address, stream, per_thread);
}

static cu_result free_in_order(cu_address address, cu_stream stream, bool per_thread)
{
    struct block block;
    if (stream_captures(stream, per_thread))
        return free_of_capture(address, stream, per_thread);
    bool known = blocks_take(SPACE_ADDRESS, address, &block);
    if (known && block.pooled)
        return pool_free_async(&block, stream, per_thread);
    if (!known && pool_owns(address)) /* in a segment, but no live block begins there */
        return CU_INVALID_VALUE;
    cu_result code = pass_free(address, stream, per_thread);
    freed(known, code, &block, stream);
    return code;
}

HOOK cu_result cuMemFreeAsync(cu_address address, cu_stream stream)
{
    if (!address || !shim_enter())
        return PASS(cuMemFreeAsync, (address, stream));
    cu_result code = free_in_order(address, stream, false);
    shim_leave();
    return code;
}

HOOK cu_result cuMemFreeAsync_ptsz(cu_address address, cu_stream stream)
{
    if (!address || !shim_enter())
        return PASS(cuMemFreeAsync_ptsz, (address, stream));
    cu_result code = free_in_order(address, stream, true);
    shim_leave();
    return code;
}

static enum run_kind kind_of_pool(unsigned location, unsigned type)
{
    return type == RUN_MANAGED_POOL         ? RUN_MANAGED
           : location == CU_LOCATION_DEVICE ? RUN_ORDERED
                                            : RUN_HOST;
}

/* Remembers a pool, for the device and the kind of the memory in it. */
static void know_pool(cu_pool pool, enum run_kind kind, const struct cu_location *location,
                      bool can_be_source)
{
    int device = location->type == CU_LOCATION_DEVICE ? location->id : 0;
    struct block block = {.key = (uint64_t)(uintptr_t)pool,
                          .space = SPACE_POOL,
                          .kind = (uint8_t)kind,
                          .references = 1};
    struct block old;
    if (device < 0 || (unsigned)device >= book->devices)
        return;
    block.device = (uint8_t)device;
    if (can_be_source)
        block.owner = (uint16_t)pool_source(pool, (unsigned)device);
    /* if it fails, blocks of the pool are charged to the context's device */
    (void)blocks_put(&block, &old);
}

HOOK cu_result cuMemPoolCreate(cu_pool *pool, const struct cu_pool_properties *properties)
{
    if (!pool || !properties || !shim_enter())
        return PASS(cuMemPoolCreate, (pool, properties));
    cu_result code = PASS(cuMemPoolCreate, (pool, properties));
    const struct cu_location *location = &properties->location;
    pool_sees_handles(properties->handle_types);
    if (!code)
        know_pool(*pool, kind_of_pool(location->type, properties->type), location,
                  location->type == CU_LOCATION_DEVICE && pool_can_be_source(properties));
    shim_leave();
    return code;
}

HOOK cu_result cuDeviceGetDefaultMemPool(cu_pool *pool, cu_device device)
{
    if (!pool || !shim_enter())
        return PASS(cuDeviceGetDefaultMemPool, (pool, device));
    cu_result code = PASS(cuDeviceGetDefaultMemPool, (pool, device));
    if (!code)
        know_pool(*pool, RUN_ORDERED, &(struct cu_location){CU_LOCATION_DEVICE, device}, true);
    shim_leave();
    return code;
}

/* The pool in use may be one that the program has created: what is known of it stays. */
static void know_current(cu_pool pool, enum run_kind kind, const struct cu_location *location)
{
    struct block known;
    if (!blocks_find(SPACE_POOL, (uint64_t)(uintptr_t)pool, &known))
        know_pool(pool, kind, location, false);
}

HOOK cu_result cuDeviceGetMemPool(cu_pool *pool, cu_device device)
{
    if (!pool || !shim_enter())
        return PASS(cuDeviceGetMemPool, (pool, device));
    cu_result code = PASS(cuDeviceGetMemPool, (pool, device));
    if (!code)
        know_current(*pool, RUN_ORDERED, &(struct cu_location){CU_LOCATION_DEVICE, device});
    shim_leave();
    return code;
}

HOOK cu_result cuMemGetDefaultMemPool(cu_pool *pool, struct cu_location *location, unsigned type)
{
    if (!pool || !location || !shim_enter())
        return PASS(cuMemGetDefaultMemPool, (pool, location, type));
    cu_result code = PASS(cuMemGetDefaultMemPool, (pool, location, type));
    if (!code)
        know_current(*pool, kind_of_pool(location->type, type), location);
    shim_leave();
    return code;
}

HOOK cu_result cuMemGetMemPool(cu_pool *pool, struct cu_location *location, unsigned type)
{
    if (!pool || !location || !shim_enter())
        return PASS(cuMemGetMemPool, (pool, location, type));
    cu_result code = PASS(cuMemGetMemPool, (pool, location, type));
    if (!code)
        know_current(*pool, kind_of_pool(location->type, type), location);
    shim_leave();
    return code;
}

HOOK cu_result cuMemPoolDestroy(cu_pool pool)
{
    struct block block, old;
    if (!shim_enter())
        return PASS(cuMemPoolDestroy, (pool));
    bool known = blocks_take(SPACE_POOL, (uint64_t)(uintptr_t)pool, &block);
    pool_source_leaves(pool);
    cu_result code = PASS(cuMemPoolDestroy, (pool));
    if (known && code)
        (void)blocks_put(&block, &old);
    if (!code)
        pool_source_gone(pool);
    shim_leave();
    return code;
}

HOOK cu_result cuGraphAddMemAllocNode(cu_graph_node *node, cu_graph graph,
                                      const cu_graph_node *before, size_t count,
                                      struct cu_alloc_node *wanted)
{
    struct charge charge;
    if (!wanted || !shim_enter())
        return PASS(cuGraphAddMemAllocNode, (node, graph, before, count, wanted));
    unsigned device = wanted->pool.location.id < 0 ? NO_DEVICE : (unsigned)wanted->pool.location.id;
    (void)charge_begin(&charge, RUN_GRAPH, device, wanted->size, CALLER);
    cu_result code = PASS(cuGraphAddMemAllocNode, (node, graph, before, count, wanted));
    charge_end(&charge, code, SPACE_ADDRESS, code ? 0 : wanted->address, wanted->size);
    shim_leave();
    return code;
}
