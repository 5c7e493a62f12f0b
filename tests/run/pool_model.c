/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A random model for `tarn run --pool` on the simulated driver: threads allocate, fill, look, and
 * free each other's blocks, some of which a pool serves and some of which are too large. No block
 * may have another's bytes, each must begin and end where the driver says, and when all are freed
 * nothing is left. The argument is the seed. */
#include "driver/cuda/cuda_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "pool_model: line %d: %s\n", __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

enum { THREADS = 3, PLACES = 48, STEPS = 1500, MOST = 1200000 };

static cu_context context;
static struct {
    cu_result (*cuInit)(unsigned);
    cu_result (*cuDevicePrimaryCtxRetain)(cu_context *, cu_device);
    cu_result (*cuCtxSetCurrent)(cu_context);
    cu_result (*cuMemGetInfo_v2)(size_t *, size_t *);
    cu_result (*cuMemAlloc_v2)(cu_address *, size_t);
    cu_result (*cuMemFree_v2)(cu_address);
    cu_result (*cuMemFreeAsync)(cu_address, cu_stream);
    cu_result (*cuMemGetAddressRange_v2)(cu_address *, size_t *, cu_address);
    cu_result (*cuMemsetD8Async)(cu_address, unsigned char, size_t, cu_stream);
    cu_result (*cuMemcpyDtoH_v2)(void *, cu_address, size_t);
} cu;

static void *library;
static void find(void *function, const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found);
    memcpy(function, &found, sizeof found);
}

/* What a thread has put down, for any to look at and free. */
static struct place {
    pthread_mutex_t lock;
    cu_address address; /* 0: nothing */
    size_t size;
    unsigned char value;
} places[PLACES];

static void look(const struct place *place, unsigned char *buffer)
{
    cu_address base = 0;
    size_t size = 0;
    CHECK(cu.cuMemGetAddressRange_v2(&base, &size, place->address + place->size / 2) == CU_OK);
    CHECK(base == place->address &&
          /* The simulated one tells whole granules */
          (size == place->size || size % (2 << 20) == 0));
    CHECK(cu.cuMemcpyDtoH_v2(buffer, place->address, place->size) == CU_OK);
    for (size_t i = 0; i < place->size; i++)
        CHECK(buffer[i] == place->value);
}

static void step(struct place *place, unsigned *seed, unsigned char *buffer)
{
    if (place->address) {
        look(place, buffer);
        if (rand_r(seed) % 4 == 0)
            return;
        CHECK((place->size <= 1 << 20 && rand_r(seed) % 8 == 0
                   ? cu.cuMemFreeAsync(place->address, NULL)
                   : cu.cuMemFree_v2(place->address)) == CU_OK);
        place->address = 0;
        return;
    }
    place->size = 1 + (size_t)rand_r(seed) % (rand_r(seed) % 6 ? 6000 : MOST);
    place->value = (unsigned char)rand_r(seed);
    CHECK(cu.cuMemAlloc_v2(&place->address, place->size) == CU_OK && place->address % 512 == 0);
    CHECK(cu.cuMemsetD8Async(place->address, place->value, place->size, NULL) == CU_OK);
}

static void *work(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    unsigned char *buffer = malloc(MOST);
    CHECK(buffer && cu.cuCtxSetCurrent(context) == CU_OK);
    for (int i = 0; i < STEPS; i++) {
        struct place *place = &places[(size_t)rand_r(&seed) % PLACES];
        pthread_mutex_lock(&place->lock);
        step(place, &seed, buffer);
        pthread_mutex_unlock(&place->lock);
    }
    free(buffer);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    unsigned seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    size_t before = 0, after = 0;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library);
    find(&cu.cuInit, "cuInit");
    find(&cu.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(&cu.cuCtxSetCurrent, "cuCtxSetCurrent");
    find(&cu.cuMemGetInfo_v2, "cuMemGetInfo_v2");
    find(&cu.cuMemAlloc_v2, "cuMemAlloc_v2");
    find(&cu.cuMemFree_v2, "cuMemFree_v2");
    find(&cu.cuMemFreeAsync, "cuMemFreeAsync");
    find(&cu.cuMemGetAddressRange_v2, "cuMemGetAddressRange_v2");
    find(&cu.cuMemsetD8Async, "cuMemsetD8Async");
    find(&cu.cuMemcpyDtoH_v2, "cuMemcpyDtoH_v2");
    CHECK(cu.cuInit(0) == CU_OK && cu.cuDevicePrimaryCtxRetain(&context, 0) == CU_OK);
    CHECK(cu.cuCtxSetCurrent(context) == CU_OK && cu.cuMemGetInfo_v2(&before, NULL) == CU_OK);
    for (int i = 0; i < PLACES; i++)
        pthread_mutex_init(&places[i].lock, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(seed * 100 + i)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < PLACES; i++)
        CHECK(!places[i].address || cu.cuMemFree_v2(places[i].address) == CU_OK);
    CHECK(cu.cuMemGetInfo_v2(&after, NULL) == CU_OK);
    if (before != after)
        fprintf(stderr, "pool_model: %zu bytes were free, and are %zu\n", before, after);
    return before != after;
}
