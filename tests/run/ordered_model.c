/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A random model of stream-ordered memory for `tarn run --pool` on the simulated driver, whose
 * streams run in the background: threads allocate on streams, fill, copy to the host and free, all
 * queued; on the same stream, on another one that waits for it, or by cuMemFree after a wait.
 * Streams come and go. Each copy must have found its block's own bytes, and in the end the pool
 * counts nothing. The argument is the seed. */
#include "driver/cuda/cuda_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                           \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "ordered_model: line %d: %s\n", __LINE__, #condition); \
            exit(1);                                                               \
        }                                                                          \
    } while (0)

enum {
    THREADS = 3,
    STREAMS = 3,
    PLACES = 24,
    STEPS = 2500,
    MOST = 600000,
    LOOKS = 32,
    USED = 7,
    USED_HIGH = 8,
    THRESHOLD = 4
};

#define CALLS(X)                                                           \
    X(cuInit, (unsigned))                                                  \
    X(cuDevicePrimaryCtxRetain, (cu_context *, cu_device))                 \
    X(cuCtxSetCurrent, (cu_context))                                       \
    X(cuCtxSynchronize, (void))                                            \
    X(cuMemAlloc_v2, (cu_address *, size_t))                               \
    X(cuMemFree_v2, (cu_address))                                          \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                               \
    X(cuMemAllocAsync, (cu_address *, size_t, cu_stream))                  \
    X(cuMemAllocFromPoolAsync, (cu_address *, size_t, cu_pool, cu_stream)) \
    X(cuMemFreeAsync, (cu_address, cu_stream))                             \
    X(cuDeviceGetDefaultMemPool, (cu_pool *, cu_device))                   \
    X(cuMemPoolGetAttribute, (cu_pool, unsigned, void *))                  \
    X(cuMemPoolSetAttribute, (cu_pool, unsigned, void *))                  \
    X(cuMemPoolTrimTo, (cu_pool, size_t))                                  \
    X(cuMemsetD8Async, (cu_address, unsigned char, size_t, cu_stream))     \
    X(cuMemcpyDtoHAsync_v2, (void *, cu_address, size_t, cu_stream))       \
    X(cuStreamCreate, (cu_stream *, unsigned))                             \
    X(cuStreamDestroy_v2, (cu_stream))                                     \
    X(cuStreamSynchronize, (cu_stream))                                    \
    X(cuStreamWaitEvent, (cu_stream, cu_event, unsigned))                  \
    X(cuEventCreate, (cu_event *, unsigned))                               \
    X(cuEventRecord, (cu_event, cu_stream))                                \
    X(cuEventDestroy_v2, (cu_event))
static struct {
#define X(name, parameters) cu_result(*name) parameters;
    CALLS(X)
#undef X
} cu;
static cu_context context;
static cu_pool pool;

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *found;
    CHECK(library);
#define X(name, parameters)        \
    found = dlsym(library, #name); \
    CHECK(found);                  \
    memcpy(&cu.name, &found, sizeof found);
    CALLS(X)
#undef X
}

/* A block that any thread may take: `filled` is behind its bytes. */
static struct place {
    pthread_mutex_t lock;
    cu_address address; /* 0: nothing */
    size_t size;
    unsigned char value;
    cu_event filled;
} places[PLACES];

/* A copy that is queued. */
struct look {
    unsigned char *bytes;
    size_t size;
    unsigned char value;
};

struct worker {
    unsigned seed, looks;
    cu_stream streams[STREAMS + 2]; /* its own; the legacy one; its own default one */
    struct look look[LOOKS];
};

static void look_at_all(struct worker *worker)
{
    CHECK(cu.cuCtxSynchronize() == CU_OK);
    for (unsigned i = 0; i < worker->looks; i++)
        for (size_t k = 0; k < worker->look[i].size; k++)
            CHECK(worker->look[i].bytes[k] == worker->look[i].value);
    worker->looks = 0;
}

/* The place's bytes are on their way to the host, in front of the free. */
static void take_away(struct worker *worker, struct place *place, cu_stream stream)
{
    struct look *look = &worker->look[worker->looks++];
    look->size = place->size;
    look->value = place->value;
    CHECK(cu.cuStreamWaitEvent(stream, place->filled, 0) == CU_OK);
    CHECK(cu.cuMemcpyDtoHAsync_v2(look->bytes, place->address, place->size, stream) == CU_OK);
    if (rand_r(&worker->seed) % 8 == 0) {
        CHECK(cu.cuStreamSynchronize(stream) == CU_OK && cu.cuMemFree_v2(place->address) == CU_OK);
    } else {
        CHECK(cu.cuMemFreeAsync(place->address, stream) == CU_OK);
    }
    place->address = 0;
}

static void put_down(struct worker *worker, struct place *place, cu_stream stream)
{
    place->size = 1 + (size_t)rand_r(&worker->seed) % (rand_r(&worker->seed) % 4 ? 6000 : MOST);
    place->value = (unsigned char)rand_r(&worker->seed);
    CHECK((rand_r(&worker->seed) % 2
               ? cu.cuMemAllocAsync(&place->address, place->size, stream)
               : cu.cuMemAllocFromPoolAsync(&place->address, place->size, pool, stream)) == CU_OK);
    CHECK(cu.cuMemsetD8Async(place->address, place->value, place->size, stream) == CU_OK);
    CHECK(cu.cuEventRecord(place->filled, stream) == CU_OK);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    CHECK(cu.cuCtxSetCurrent(context) == CU_OK);
    for (int i = 0; i < LOOKS; i++)
        CHECK((worker->look[i].bytes = malloc(MOST + 1)));
    for (int i = 0; i < STREAMS; i++)
        CHECK(cu.cuStreamCreate(&worker->streams[i], 1) == CU_OK);
    worker->streams[STREAMS] = NULL;
    worker->streams[STREAMS + 1] = (cu_stream)2;
    for (int i = 0; i < STEPS; i++) {
        struct place *place = &places[(size_t)rand_r(&worker->seed) % PLACES];
        cu_stream *stream = &worker->streams[(size_t)rand_r(&worker->seed) % (STREAMS + 2)];
        pthread_mutex_lock(&place->lock);
        (place->address ? take_away : put_down)(worker, place, *stream);
        pthread_mutex_unlock(&place->lock);
        if (worker->looks == LOOKS)
            look_at_all(worker);
        if (rand_r(&worker->seed) % 64 == 0 && stream < &worker->streams[STREAMS])
            CHECK(cu.cuStreamDestroy_v2(*stream) == CU_OK && cu.cuStreamCreate(stream, 1) == CU_OK);
        if (rand_r(&worker->seed) % 256 == 0)
            CHECK(cu.cuMemPoolTrimTo(pool, 0) == CU_OK);
    }
    look_at_all(worker);
    for (int i = 0; i < LOOKS; i++)
        free(worker->look[i].bytes);
    return NULL;
}

static uint64_t get(unsigned attribute)
{
    uint64_t value = 0;
    CHECK(cu.cuMemPoolGetAttribute(pool, attribute, &value) == CU_OK);
    return value;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    pthread_t thread[THREADS];
    unsigned seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    uint64_t all = UINT64_MAX;
    size_t before = 0, after = 0;
    open_driver();
    CHECK(cu.cuInit(0) == CU_OK && cu.cuDevicePrimaryCtxRetain(&context, 0) == CU_OK);
    CHECK(cu.cuCtxSetCurrent(context) == CU_OK && cu.cuDeviceGetDefaultMemPool(&pool, 0) == CU_OK);
    CHECK(cu.cuMemGetInfo_v2(&before, NULL) == CU_OK);
    CHECK(seed % 2 == 0 || cu.cuMemPoolSetAttribute(pool, THRESHOLD, &all) == CU_OK);
    for (int i = 0; i < PLACES; i++) {
        pthread_mutex_init(&places[i].lock, NULL);
        CHECK(cu.cuEventCreate(&places[i].filled, 2) == CU_OK);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].seed = seed * 100 + i;
        CHECK(pthread_create(&thread[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < PLACES; i++)
        CHECK(!places[i].address || cu.cuMemFreeAsync(places[i].address, NULL) == CU_OK);
    CHECK(cu.cuCtxSynchronize() == CU_OK && get(USED) == 0 && get(USED_HIGH) > 0);
    CHECK(cu.cuMemPoolTrimTo(pool, 0) == CU_OK && cu.cuMemGetInfo_v2(&after, NULL) == CU_OK);
    if (before != after)
        fprintf(stderr, "ordered_model: %zu bytes were free, and are %zu\n", before, after);
    return before != after;
}
