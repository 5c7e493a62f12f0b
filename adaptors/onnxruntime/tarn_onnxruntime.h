/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* ONNX Runtime's OrtAllocator, stream-aware (AllocOnStream, from version 1.23 on): a session's
 * device memory from tarn.
 *
 *     tarn_ort_allocator allocator;
 *     OrtStatus *failed = tarn_ort_allocator_init(&allocator, api, pool, "Cuda");
 *     if (!failed) failed = api->RegisterAllocator(environment, &allocator.base);
 *     if (!failed) failed = api->AddSessionConfigEntry(options, "session.use_env_allocators", "1");
 *
 * Without the last line ONNX Runtime never uses the allocator, and reports nothing. The allocator
 * must outlive the environment; or unregister it after the last session has ended and everything
 * that the sessions returned was released. It always allocates from its pool, whatever scopes are
 * open.
 *
 * A block that was allocated for a stream is freed in that stream's order; ONNX Runtime itself
 * orders uses on other streams. A block without a stream (mostly initialisers) may be used on any
 * stream: its allocation waits for the work of the legacy stream, and its free for the device's. No
 * memory is given out while work may use it: where such a free cannot wait, because a known capture
 * is open on the device, the block stays allocated until a later call can wait (tarn_late_free.h),
 * and where such an allocation cannot wait, it fails.
 *
 * Header-only; C11 and C++17. If onnxruntime_c_api.h has another path, include it first.
 * Thread-safe. See docs/adaptors/onnxruntime.md. */
#ifndef TARN_ONNXRUNTIME_H
#define TARN_ONNXRUNTIME_H

#ifndef ORT_API_VERSION
#include <onnxruntime_c_api.h>
#endif
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tarn/device.h>
#include <tarn/memory.h>
#include <tarn/pool.h>
#include <tarn/stats.h>

#include "tarn_late_free.h"

#if ORT_API_VERSION < 23
#error "tarn_onnxruntime.h needs ONNX Runtime 1.23 or newer, whose allocators know streams"
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tarn_ort_allocator {
    OrtAllocator base; /* first: ONNX Runtime hands this back */
    const OrtApi *api;
    OrtMemoryInfo *info;
    tarn_pool *pool;
    int device;
    /* The device's legacy stream: blocks that were allocated without a stream belong to it. */
    tarn_stream legacy;
} tarn_ort_allocator;

static inline void *tarn_ort_take(tarn_ort_allocator *allocator, tarn_stream stream, size_t size)
{
    void *pointer = NULL;
    tarn_status status = tarn_pool_alloc(allocator->pool, stream, size, &pointer);
    if (status == TARN_ERROR_OUT_OF_MEMORY && tarn_late_flush())
        status = tarn_pool_alloc(allocator->pool, stream, size, &pointer);
    return status ? NULL : pointer;
}

/* For work on any stream. */
static inline void *tarn_ort_take_for_all(tarn_ort_allocator *allocator, size_t size)
{
    void *pointer = tarn_ort_take(allocator, allocator->legacy, size);
    if (!pointer || !tarn_stream_synchronize(allocator->legacy))
        return pointer;
    (void)tarn_free(pointer); /* nobody has used it */
    return NULL;
}

static inline void *ORT_API_CALL tarn_ort_alloc(OrtAllocator *base, size_t size)
{
    tarn_ort_allocator *allocator = (tarn_ort_allocator *)(void *)base;
    return tarn_ort_take_for_all(allocator, size);
}

static inline void *ORT_API_CALL tarn_ort_alloc_on_stream(OrtAllocator *base, size_t size,
                                                          OrtSyncStream *stream)
{
    tarn_ort_allocator *allocator = (tarn_ort_allocator *)(void *)base;
    if (!stream)
        return tarn_ort_take_for_all(allocator, size);
    tarn_stream found = 0;
    if (tarn_stream_find(allocator->device, allocator->api->SyncStream_GetHandle(stream), &found))
        return NULL;
    return tarn_ort_take(allocator, found, size);
}

static inline void ORT_API_CALL tarn_ort_free(OrtAllocator *base, void *pointer)
{
    tarn_ort_allocator *allocator = (tarn_ort_allocator *)(void *)base;
    tarn_block_info block;
    memset(&block, 0, sizeof block);
    block.size = sizeof block;
    if (!pointer)
        return;
    if (!tarn_pointer_info_get(pointer, &block) && block.stream == allocator->legacy)
        (void)tarn_late_free(allocator->device, pointer);
    else
        (void)tarn_free(pointer);
}

static inline const OrtMemoryInfo *ORT_API_CALL tarn_ort_info(const OrtAllocator *base)
{
    return ((const tarn_ort_allocator *)(const void *)base)->info;
}

/* The keys of ONNX Runtime's own arena, without NumReserves and MaxAllocSize. The values are the
 * pool's, so they include its other users. */
static inline OrtStatus *ORT_API_CALL tarn_ort_stats(const OrtAllocator *base,
                                                     OrtKeyValuePairs **pairs) NO_EXCEPTION
{
    const tarn_ort_allocator *allocator = (const tarn_ort_allocator *)(const void *)base;
    tarn_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    tarn_pool_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    if (tarn_pool_stats_get(allocator->pool, &stats) || tarn_pool_info_get(allocator->pool, &info))
        return allocator->api->CreateStatus(ORT_FAIL, tarn_last_error());
    const struct {
        const char *key;
        int64_t value;
    } found[] = {
        {"Limit", info.limit == TARN_NO_LIMIT ? -1 : (int64_t)info.limit},
        {"InUse", stats.allocated_bytes[TARN_STAT_ALL].current},
        {"TotalAllocated", stats.reserved_bytes[TARN_STAT_ALL].current},
        {"MaxInUse", stats.allocated_bytes[TARN_STAT_ALL].peak},
        {"NumAllocs", stats.allocation[TARN_STAT_ALL].allocated},
        {"NumArenaExtensions", stats.segment[TARN_STAT_ALL].allocated},
        {"NumArenaShrinkages", stats.segment[TARN_STAT_ALL].freed},
    };
    allocator->api->CreateKeyValuePairs(pairs);
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        char text[24];
        snprintf(text, sizeof text, "%" PRId64, found[i].value);
        allocator->api->AddKeyValuePair(*pairs, found[i].key, text);
    }
    return NULL;
}

/* Initialises an allocator of `pool`. `name` is ONNX Runtime's name for the memory of the pool's
 * device: "Cuda" for the CUDA provider. Returns NULL, or an error that the caller releases; then
 * there is nothing to finish. */
static inline OrtStatus *tarn_ort_allocator_init(tarn_ort_allocator *allocator, const OrtApi *api,
                                                 tarn_pool *pool, const char *name)
{
    memset(allocator, 0, sizeof *allocator);
    allocator->api = api;
    allocator->pool = pool;
    tarn_pool_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    if (tarn_pool_info_get(pool, &info) || tarn_stream_find(info.device, NULL, &allocator->legacy))
        return api->CreateStatus(ORT_FAIL, tarn_last_error());
    allocator->device = info.device;
    OrtStatus *failed = api->CreateMemoryInfo(name, OrtDeviceAllocator, allocator->device,
                                              OrtMemTypeDefault, &allocator->info);
    if (failed)
        return failed;
    allocator->base.version = 23; /* of this structure's last member that is set */
    allocator->base.Alloc = tarn_ort_alloc;
    allocator->base.Free = tarn_ort_free;
    allocator->base.Info = tarn_ort_info;
    allocator->base.Reserve = tarn_ort_alloc;
    allocator->base.GetStats = tarn_ort_stats;
    allocator->base.AllocOnStream = tarn_ort_alloc_on_stream;
    return NULL;
}

/* Ends an allocator. It must be unregistered, and everything that it allocated must be freed. */
static inline void tarn_ort_allocator_finish(tarn_ort_allocator *allocator)
{
    (void)tarn_late_flush();
    if (allocator->info)
        allocator->api->ReleaseMemoryInfo(allocator->info);
    allocator->info = NULL;
}

#ifdef __cplusplus
}
#endif
#endif
