/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the programs for the tests of `tarn run --pool` share: the calls, by dlsym() as a program
 * finds them, and a context. With PROBE_ANY_DRIVER a call that the driver lacks is NULL. */
#ifndef TARN_TESTS_POOL_PROBE_H
#define TARN_TESTS_POOL_PROBE_H

#include "run/abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s: line %d: %s\n", PROBE, __LINE__, #condition); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

enum {
    CONTEXT = 1,
    TYPE,
    POINTER,
    HOST_POINTER,
    TOKENS,
    SYNC,
    ID,
    MANAGED,
    ORDINAL,
    LEGACY_IPC,
    START,
    SIZE,
    MAPPED,
    HANDLES,
    MEMPOOL = 17,
    MAPPING_SIZE,
    MAPPING_START,
    BLOCK_ID
};
enum { GLOBAL, THREAD, RELAXED };

static void *library;
static struct {
#define X(name, version, mode, symbol, parameters, arguments) cu_result(*symbol) parameters;
    RUN_HOOK_LIST(X)
    RUN_ASK_LIST(X)
#undef X
    cu_result (*cuCtxSetCurrent)(cu_context);
    cu_result (*cuMemPoolSetAccess)(cu_pool, const struct cu_access *, size_t);
    cu_result (*cuMemPoolGetAccess)(unsigned *, cu_pool, struct cu_location *);
    cu_result (*cuMemsetD8_v2)(cu_address, unsigned char, size_t);
    unsigned (*cuFakeWaits)(void);
    unsigned (*cuFakeLive)(void);
    unsigned (*cuFakeFailed)(void);
    void (*cuFakeFinish)(void);
    void (*cuFakeFail)(unsigned);
    void (*cuFakeWork)(void);
    void (*cuFakeStream)(cu_stream);
    unsigned (*cuFakeCapture)(cu_stream);
    unsigned (*cuFakeUse)(size_t);
    unsigned (*cuFakeDisorder)(void);
    uint64_t (*cuFakeReserved)(cu_pool);
    unsigned (*cuFakeReaches)(cu_address, int);
    void (*cuFakeFault)(unsigned);
    unsigned (*cuFakeCalls)(void);
    cu_context (*cuFakeOtherContext)(void);
} cu;
static cu_context primary;

#ifdef PROBE_ANY_DRIVER
#define MUST_BE_THERE(found) (void)(found)
#else
#define MUST_BE_THERE(found) CHECK(found)
#endif

static inline void open_driver(void)
{
    void *found;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library);
#define X(name, version, mode, symbol, parameters, arguments) \
    found = dlsym(library, #symbol);                          \
    MUST_BE_THERE(found);                                     \
    memcpy(&cu.symbol, &found, sizeof found);
    RUN_HOOK_LIST(X)
    RUN_ASK_LIST(X)
    X(, , , cuCtxSetCurrent, , )
    X(, , , cuMemPoolSetAccess, , )
    X(, , , cuMemPoolGetAccess, , )
    X(, , , cuMemsetD8_v2, , )
    X(, , , cuFakeWaits, , )
    X(, , , cuFakeLive, , )
    X(, , , cuFakeFailed, , )
    X(, , , cuFakeFinish, , )
    X(, , , cuFakeFail, , )
    X(, , , cuFakeWork, , )
    X(, , , cuFakeStream, , )
    X(, , , cuFakeCapture, , )
    X(, , , cuFakeUse, , )
    X(, , , cuFakeDisorder, , )
    X(, , , cuFakeReserved, , )
    X(, , , cuFakeReaches, , )
    X(, , , cuFakeFault, , )
    X(, , , cuFakeCalls, , )
    X(, , , cuFakeOtherContext, , )
#undef X
}

static inline void start(void)
{
    CHECK(cu.cuInit(0) == CU_OK);
    CHECK(cu.cuDevicePrimaryCtxRetain(&primary, 0) == CU_OK);
    CHECK(cu.cuCtxSetCurrent(primary) == CU_OK);
}

static inline cu_address make(size_t size)
{
    cu_address address = 0;
    CHECK(cu.cuMemAlloc_v2(&address, size) == CU_OK && address);
    return address;
}

static inline void end(cu_address address)
{
    CHECK(cu.cuMemFree_v2(address) == CU_OK);
}

/* Two, of which a pool serves the second from the first one's segment, if it serves any. */
static inline bool are_pooled(void)
{
    cu_address first = make(4096);
    unsigned before = cu.cuFakeLive();
    cu_address second = make(4096);
    bool pooled = cu.cuFakeLive() == before;
    end(first);
    end(second);
    return pooled;
}

static inline uint64_t ask(unsigned attribute, cu_address address)
{
    uint64_t value = 0;
    CHECK(cu.cuPointerGetAttribute(&value, attribute, address) == CU_OK);
    return value;
}

static inline size_t free_now(void)
{
    size_t free_bytes = 0;
    CHECK(cu.cuMemGetInfo_v2(&free_bytes, NULL) == CU_OK);
    return free_bytes;
}

/* No two blocks may share a byte: the range of each is its own. */
static inline size_t size_of(cu_address block)
{
    cu_address base = 0;
    size_t size = 0;
    CHECK(cu.cuMemGetAddressRange_v2(&base, &size, block) == CU_OK && base == block);
    return size;
}

/* Threads make and free blocks, each its own and the others'. */
enum { THREADS = 4, PLACES = 64 };
struct threads {
    _Atomic(cu_address) places[PLACES];
    bool injects; /* calls of the driver fail now and then */
};

static inline size_t random_size(unsigned *seed)
{
    return 1 + (size_t)rand_r(seed) % (rand_r(seed) % 8 ? 5000 : 1200000);
}

/* Puts a block into a place, and takes out the one that was there. Of that which a call returned
 * with a code it is said whether it may. */
static inline cu_address threads_exchange(struct threads *threads, unsigned *seed, cu_address block,
                                          cu_result code, size_t size)
{
    CHECK(code == CU_OK || (threads->injects && code == CU_OUT_OF_MEMORY));
    CHECK(code || (size_of(block) == size && block % 512 == 0));
    return atomic_exchange(&threads->places[(size_t)rand_r(seed) % PLACES], block);
}

static inline void threads_inject(const struct threads *threads, unsigned *seed)
{
    if (threads->injects && rand_r(seed) % 64 == 0)
        cu.cuFakeFail(1 + (unsigned)rand_r(seed) % 4);
}

/* Runs the threads, whose argument is their number from 1 on. */
static inline void threads_run(void *(*churn)(void *))
{
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    cu.cuFakeFail(0);
}

/* Nothing was lost: one block takes all. */
static inline void take_all(void)
{
    cu_address all = make(1024 * MIB);
    CHECK(cu.cuFakeLive() == 1);
    end(all);
}

/* One command per contract. */
struct command {
    const char *name;
    void (*run)(void);
};

static inline const struct command *command_of(const struct command *commands, size_t count,
                                               const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

#endif
