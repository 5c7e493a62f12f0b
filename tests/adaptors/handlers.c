/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The handlers beside the headers of the libraries that take them: each initialiser compiles
 * without a cast, each structure has the size that the manual says, and the callbacks do what they
 * promise on the driver that runs. */
#include "check.h"

#include <semaphore.h>
#include <string.h>
#include <tarn/adaptors/tarn_handlers.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

#ifdef HAVE_CUDSS
#include <cudss.h>
#endif
#ifdef HAVE_CUSTATEVEC
#include <custatevec.h>
#endif
#ifdef HAVE_CUTENSORNET
#include <cutensornet.h>
#endif
#ifdef HAVE_NVJPEG
#include <nvjpeg.h>
#endif
#ifdef HAVE_NVJPEG2K
#include <nvjpeg2k.h>
#endif
#ifdef HAVE_NVIMGCODEC
#include <nvimgcodec.h>
#endif

/* Allocates and frees through a vendor's structure. */
#define TRY(allocate, release, context)                                   \
    do {                                                                  \
        void *block = NULL;                                               \
        CHECK((allocate)((context), &block, 1000, native) == 0 && block); \
        CHECK(used() == before + 1024);                                   \
        CHECK((release)((context), block, 1000, native) == 0);            \
        CHECK(used() == before);                                          \
    } while (0)

static sem_t gate;
static void wait_at_gate(void *user)
{
    (void)user;
    while (sem_wait(&gate))
        ;
}

/* A block is free behind the work of the stream that it is freed on: until that has run, its own
 * stream is not given it again. */
static void check_order(tarn_pool *pool, struct CUstream_st *native, struct CUstream_st *other)
{
    enum { SIZE = 4 << 20 };
    void *first = NULL, *second = NULL;
    CHECK(sem_init(&gate, 0, 0) == 0 && tarn_handler_alloc(pool, &first, SIZE, native) == 0);
    CHECK(tarn_host_call(0, other, wait_at_gate, NULL) == TARN_OK);
    CHECK(tarn_handler_free(pool, first, SIZE, other) == 0);
    CHECK(tarn_handler_alloc(pool, &second, SIZE, native) == 0 && second != first);
    CHECK(sem_post(&gate) == 0 && tarn_device_synchronize(0) == TARN_OK);
    CHECK(tarn_handler_free(pool, second, SIZE, native) == 0);

    CHECK(tarn_handler_pinned_alloc(pool, &first, SIZE, native) == 0);
    CHECK(tarn_host_call(0, other, wait_at_gate, NULL) == TARN_OK);
    CHECK(tarn_handler_pinned_free(pool, first, SIZE, other) == 0);
    CHECK(tarn_handler_pinned_alloc(pool, &second, SIZE, native) == 0 && second != first);
    CHECK(sem_post(&gate) == 0 && tarn_device_synchronize(0) == TARN_OK);
    CHECK(tarn_handler_pinned_free(pool, second, SIZE, native) == 0);
}

static int64_t used(void)
{
    tarn_stats stats = {.size = sizeof stats};
    CHECK(tarn_device_stats_get(0, &stats) == TARN_OK);
    return stats.allocated_bytes[TARN_STAT_ALL].current;
}

/* A free whose stream tarn does not find leaves no block behind, and gives none out too early. */
static void check_late(tarn_pool *pool, struct CUstream_st *native)
{
    enum { SIZE = 4 << 20 };
    int64_t before = used();
    tarn_stream leased = 0, captures = 0;
    void *returned = NULL, *block = NULL, *pinned = NULL, *next = NULL;
    CHECK(tarn_stream_lease(0, 0, &leased) == TARN_OK &&
          tarn_stream_native_get(leased, &returned) == TARN_OK);
    CHECK(tarn_stream_return(leased) == TARN_OK && tarn_stream_lease(0, -1, &captures) == TARN_OK);
    CHECK(tarn_handler_alloc(pool, &block, SIZE, returned) == TARN_ERROR_INVALID_STREAM);
    CHECK(tarn_handler_alloc(pool, &block, SIZE, native) == 0);
    CHECK(tarn_handler_free(pool, block, SIZE, returned) == 0 && used() == before);
    CHECK(tarn_handler_free(pool, &block, SIZE, returned) == TARN_ERROR_INVALID_POINTER);

    CHECK(tarn_handler_alloc(pool, &block, SIZE, native) == 0);
    CHECK(tarn_handler_pinned_alloc(pool, &pinned, SIZE, native) == 0);
    CHECK(tarn_capture_begin(captures, TARN_CAPTURE_THREAD_LOCAL) == TARN_OK);
    CHECK(tarn_handler_free(pool, block, SIZE, returned) == 0 && used() == before + SIZE);
    CHECK(tarn_handler_pinned_free(pool, pinned, SIZE, returned) == 0);
    CHECK(tarn_handler_pinned_alloc(pool, &next, SIZE, native) == 0 && next != pinned);
    CHECK(tarn_capture_abort(captures) == TARN_OK);
    CHECK(tarn_handler_pinned_free(pool, next, SIZE, returned) == 0 && used() == before);
    tarn_pinned_stats stats = {.size = sizeof stats};
    CHECK(tarn_pinned_stats_get(&stats) == TARN_OK && stats.active_bytes.current == 0);
    CHECK(tarn_stream_return(captures) == TARN_OK);
}

int main(void)
{
    tarn_pool *pool = NULL;
    tarn_stream leased = 0;
    void *address = NULL;
    CHECK(tarn_pool_default(0, &pool) == TARN_OK && tarn_stream_lease(0, 0, &leased) == TARN_OK);
    CHECK(tarn_stream_native_get(leased, &address) == TARN_OK);
    struct CUstream_st *native = address;
    int64_t before = used();
    int libraries = 0;
    (void)libraries;

#ifdef HAVE_CUDSS
    cudssDeviceMemHandler_t solver = {pool, tarn_handler_alloc, tarn_handler_free, "tarn"};
    _Static_assert(sizeof solver == 88, "cudssDeviceMemHandler_t");
    TRY(solver.device_alloc, solver.device_free, solver.ctx);
    libraries++;
#endif
#ifdef HAVE_CUSTATEVEC
    custatevecDeviceMemHandler_t states = {pool, tarn_handler_alloc, tarn_handler_free, "tarn"};
    _Static_assert(sizeof states == 88, "custatevecDeviceMemHandler_t");
    TRY(states.device_alloc, states.device_free, states.ctx);
    libraries++;
#endif
#ifdef HAVE_CUTENSORNET
    cutensornetDeviceMemHandler_t tensors = {pool, tarn_handler_alloc, tarn_handler_free, "tarn"};
    _Static_assert(sizeof tensors == 88, "cutensornetDeviceMemHandler_t");
    TRY(tensors.device_alloc, tensors.device_free, tensors.ctx);
    libraries++;
#endif
#ifdef HAVE_NVJPEG
    nvjpegDevAllocatorV2_t jpeg = {tarn_handler_alloc, tarn_handler_free, pool};
    nvjpegPinnedAllocatorV2_t jpeg_pinned = {tarn_handler_pinned_alloc, tarn_handler_pinned_free,
                                             pool};
    TRY(jpeg.dev_malloc, jpeg.dev_free, jpeg.dev_ctx);
    CHECK(jpeg_pinned.pinned_ctx == pool);
    libraries++;
#endif
#ifdef HAVE_NVJPEG2K
    nvjpeg2kDeviceAllocatorV2_t jpeg2k = {tarn_handler_alloc, tarn_handler_free, pool};
    nvjpeg2kPinnedAllocatorV2_t jpeg2k_pinned = {tarn_handler_pinned_alloc,
                                                 tarn_handler_pinned_free, pool};
    TRY(jpeg2k.device_malloc, jpeg2k.device_free, jpeg2k.device_ctx);
    CHECK(jpeg2k_pinned.pinned_ctx == pool);
    libraries++;
#endif
#ifdef HAVE_NVIMGCODEC
    nvimgcodecDeviceAllocator_t codec = {.struct_type = NVIMGCODEC_STRUCTURE_TYPE_DEVICE_ALLOCATOR,
                                         .struct_size = sizeof codec,
                                         .device_malloc = tarn_handler_alloc,
                                         .device_free = tarn_handler_free,
                                         .device_ctx = pool};
    nvimgcodecPinnedAllocator_t codec_pinned = {.struct_type =
                                                    NVIMGCODEC_STRUCTURE_TYPE_PINNED_ALLOCATOR,
                                                .struct_size = sizeof codec_pinned,
                                                .pinned_malloc = tarn_handler_pinned_alloc,
                                                .pinned_free = tarn_handler_pinned_free,
                                                .pinned_ctx = pool};
    TRY(codec.device_malloc, codec.device_free, codec.device_ctx);
    CHECK(codec_pinned.pinned_ctx == pool);
    libraries++;
#endif

    /* What they promise whatever the library. */
    TRY(tarn_handler_alloc, tarn_handler_free, pool);
    CHECK(tarn_handler_free(pool, NULL, 0, native) == 0 &&
          tarn_handler_pinned_free(pool, NULL, 0, native) == 0);
    void *block = NULL;
    CHECK(tarn_handler_alloc(pool, &block, (size_t)1 << 50, native) == TARN_ERROR_OUT_OF_MEMORY &&
          !block);
    CHECK(tarn_handler_alloc(NULL, &block, 1, native) == TARN_ERROR_INVALID_ARGUMENT && !block);
    CHECK(tarn_handler_free(pool, &block, 1, native) == TARN_ERROR_INVALID_POINTER);
    CHECK(tarn_handler_pinned_alloc(pool, &block, 4096, native) == 0);
    memset(block, 1, 4096);
    CHECK(tarn_handler_pinned_free(pool, block, 4096, native) == 0);

    /* The stream is the one that is named. */
    tarn_stream other = 0;
    CHECK(tarn_stream_lease(0, 0, &other) == TARN_OK &&
          tarn_stream_native_get(other, &address) == TARN_OK);
    void *first = NULL, *second = NULL;
    CHECK(tarn_handler_alloc(pool, &first, 1000, native) == 0);
    tarn_block_info info = {.size = sizeof info};
    CHECK(tarn_pointer_info_get(first, &info) == TARN_OK && info.stream == leased &&
          info.requested == 1000);
    CHECK(tarn_handler_free(pool, first, 1000, address) == 0);
    CHECK(tarn_handler_alloc(pool, &second, 1000, address) == 0);
    CHECK(tarn_pointer_info_get(second, &info) == TARN_OK && info.stream == other);
    CHECK(tarn_handler_free(pool, second, 1000, address) == 0);
    struct tarn_device_properties properties = {.size = sizeof properties};
    CHECK(tarn_device_properties_get(0, &properties) == TARN_OK);
    if (!strcmp(properties.driver, "host"))
        check_order(pool, native, address);
    check_late(pool, native);
    CHECK(tarn_stream_return(other) == TARN_OK && tarn_stream_return(leased) == TARN_OK &&
          used() == before);
    printf("handlers: %d libraries\n", libraries);
    return 0;
}
