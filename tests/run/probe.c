/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A CUDA program for the tests of `tarn run`: opens the driver by name, as everyone does, and does
 * what its first argument says. What it prints must not depend on the shim, except where it asks
 * for it. Exits 1 at the first thing that is wrong. */
#include "run/abi.h"
#include "run/group.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef TRIPLES /* or what scripts/run-wheels makes of another header */
#define TRIPLES "triples.h"
#endif
#define MIB ((size_t)1 << 20)
#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "probe: line %d: %s\n", __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static void *library;
static struct {
#define X(name, version, mode, symbol, parameters, arguments) cu_result(*symbol) parameters;
    RUN_HOOK_LIST(X)
    RUN_ASK_LIST(X)
#undef X
    cu_result (*cuCtxSetCurrent)(cu_context);
} cu;

static void open_driver(const char *name)
{
    library = dlopen(name, RTLD_NOW);
    if (!library) {
        puts(dlerror());
        exit(3);
    }
    void *found;
#define X(name, version, mode, symbol, parameters, arguments) \
    found = dlsym(library, #symbol);                          \
    memcpy(&cu.symbol, &found, sizeof found);
    RUN_HOOK_LIST(X)
    RUN_ASK_LIST(X)
    X(, , , cuCtxSetCurrent, , )
#undef X
}

static cu_context start_context;
static size_t wanted; /* the second argument: mostly a number of MiB */

static cu_context start(int device)
{
    cu_context context;
    CHECK(cu.cuInit(0) == CU_OK);
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, device) == CU_OK);
    CHECK(cu.cuCtxSetCurrent(context) == CU_OK);
    return context;
}

/* One of each kind; the first of each is freed again, the second stays. */
static void kinds(void)
{
    cu_address address[2];
    size_t pitch;
    cu_piece piece[2], again;
    cu_array array[2];
    cu_mipmapped mipmapped[2];
    void *host[2];
    cu_pool pool;
    cu_graph_node node;
    static char registered[2][4096];
    struct cu_ipc handle = {{0}};
    struct cu_allocation_properties properties = {.type = 1, .location = {CU_LOCATION_DEVICE, 1}};
    struct cu_array3d_descriptor shape = {64, 64, 0, 0x20, 4, 0};
    /* layers do not get fewer from level to level */
    struct cu_array3d_descriptor layers = {64, 64, 64, 0x20, 4, RUN_ARRAY_LAYERED};
    struct cu_pool_properties managed = {.type = RUN_MANAGED_POOL,
                                         .location = {CU_LOCATION_DEVICE, 0}};
    struct cu_array_descriptor flat = {128, 1, 0x01, 1};
    struct cu_alloc_node wanted = {.pool = {.location = {CU_LOCATION_DEVICE, 0}}, .size = 7 * MIB};
    start(0);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMemAlloc_v2(&address[i], MIB) == CU_OK);
    CHECK(cu.cuMemFree_v2(address[0]) == CU_OK);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMemAllocPitch_v2(&address[i], &pitch, 100, 2048, 4) == CU_OK && pitch == 512);
    CHECK(cu.cuMemFree_v2(address[0]) == CU_OK);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMemAllocManaged(&address[i], 2 * MIB, 1) == CU_OK);
    CHECK(cu.cuMemFree_v2(address[0]) == CU_OK);
    CHECK(cu.cuMemAllocAsync(&address[0], 3 * MIB, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync_ptsz(&address[1], 3 * MIB, NULL) == CU_OK);
    CHECK(cu.cuMemFreeAsync(address[0], NULL) == CU_OK);
    CHECK(cu.cuDeviceGetMemPool(&pool, 1) == CU_OK); /* of the other device */
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMemAllocFromPoolAsync(&address[i], 5 * MIB, pool, NULL) == CU_OK);
    CHECK(cu.cuMemFreeAsync_ptsz(address[0], NULL) == CU_OK);
    CHECK(cu.cuMemPoolCreate(&pool, &managed) == CU_OK);
    CHECK(cu.cuMemAllocFromPoolAsync(&address[0], 2 * MIB, pool, NULL) == CU_OK);
    CHECK(cu.cuMemAllocAsync(&address[0], MIB, (cu_stream)0x77) == CU_OK); /* into a graph */
    CHECK(cu.cuGraphAddMemAllocNode(&node, NULL, NULL, 0, &wanted) == CU_OK);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMemCreate(&piece[i], 2 * MIB, &properties, 0) == CU_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(cu.cuMemMap(0x10000000 + (cu_address)i * 2 * MIB, 2 * MIB, 0, piece[i], 0) == CU_OK);
        CHECK(cu.cuMemRelease(piece[i]) == CU_OK); /* a mapping holds it */
    }
    CHECK(cu.cuMemRetainAllocationHandle(&again, (void *)0x10000000) == CU_OK && again == piece[0]);
    CHECK(cu.cuMemCreate(&piece[1], 4 * MIB, &properties, 0) == CU_OK);
    CHECK(cu.cuMemUnmap(0x10000000, 4 * MIB) == CU_OK); /* both at once; the retained handle holds
                                                           the first */
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuArray3DCreate_v2(&array[i], &shape) == CU_OK);
    CHECK(cu.cuArrayDestroy(array[0]) == CU_OK);
    CHECK(cu.cuArrayCreate_v2(&array[0], &flat) == CU_OK && cu.cuArrayDestroy(array[0]) == CU_OK);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMipmappedArrayCreate(&mipmapped[i], i ? &layers : &shape, 2) == CU_OK);
    CHECK(cu.cuMipmappedArrayDestroy(mipmapped[0]) == CU_OK);
    CHECK(cu.cuMemHostAlloc(&host[0], MIB, 0) == CU_OK &&
          cu.cuMemAllocHost_v2(&host[1], MIB) == CU_OK);
    CHECK(cu.cuMemFreeHost(host[0]) == CU_OK);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMemHostRegister_v2(registered[i], sizeof registered[i], 0) == CU_OK);
    CHECK(cu.cuMemHostUnregister(registered[0]) == CU_OK);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuIpcOpenMemHandle_v2(&address[i], handle, 1) == CU_OK);
    CHECK(cu.cuIpcCloseMemHandle(address[0]) == CU_OK);
}

/* One call unmaps a piece of another process, and behind it one of our own. A mapping whose unmap
 * was not seen, since the address is mapped again, holds nothing any more. */
static void unmaps(void)
{
    struct cu_allocation_properties properties = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    cu_piece others, piece[3];
    start(0);
    CHECK(cu.cuMemImportFromShareableHandle(&others, NULL, 1) == CU_OK);
    for (int i = 0; i < 3; i++)
        CHECK(cu.cuMemCreate(&piece[i], 2 * MIB, &properties, 0) == CU_OK);
    CHECK(cu.cuMemMap(0x10000000, 2 * MIB, 0, others, 0) == CU_OK);
    CHECK(cu.cuMemMap(0x10000000 + 2 * MIB, 2 * MIB, 0, piece[0], 0) == CU_OK);
    for (int i = 0; i < 2; i++)
        CHECK(cu.cuMemMap(0x10000000 + 4 * MIB, 2 * MIB, 0, piece[1 + i], 0) == CU_OK);
    for (int i = 0; i < 3; i++)
        CHECK(cu.cuMemRelease(piece[i]) == CU_OK);
    CHECK(cu.cuMemUnmap(0x10000000, 6 * MIB) == CU_OK && cu.cuMemRelease(others) == CU_OK);
}

/* The codes of what makes no sense, and what it leaves; the same with and without the shim. */
static void bad(void)
{
    cu_address address = 1;
    size_t pitch = 2, one = 3;
    cu_piece piece = 4;
    void *memory = NULL, *function = &one;
    struct cu_allocation_properties properties = {.type = 1, .location = {CU_LOCATION_DEVICE, 0}};
    printf("before init: %u %u\n", cu.cuDeviceTotalMem_v2(&one, 0),
           cu.cuMemAlloc_v2(&address, MIB));
    printf("init: %u %u\n", cu.cuInit(1), cu.cuInit(0));
    printf("no context: %u %u %llu\n", cu.cuMemAlloc_v2(&address, MIB),
           cu.cuMemGetInfo_v2(NULL, NULL), address);
    start(0);
    printf("alloc: %u %u %llu\n", cu.cuMemAlloc_v2(NULL, MIB), cu.cuMemAlloc_v2(&address, 0),
           address);
    printf("pitch: %u %u %u\n", cu.cuMemAllocPitch_v2(NULL, &pitch, 1, 1, 4),
           cu.cuMemAllocPitch_v2(&address, NULL, 1, 1, 4),
           cu.cuMemAllocPitch_v2(&address, &pitch, 0, 0, 4));
    printf("managed: %u %u\n", cu.cuMemAllocManaged(NULL, MIB, 1),
           cu.cuMemAllocManaged(&address, 0, 1));
    printf("ordered: %u %u\n", cu.cuMemAllocAsync(NULL, MIB, NULL),
           cu.cuMemAllocAsync(&address, 0, NULL));
    printf("pool: %u %u\n", cu.cuMemAllocFromPoolAsync(NULL, MIB, NULL, NULL),
           cu.cuMemAllocFromPoolAsync(&address, MIB, NULL, NULL));
    printf("free: %u %u %u\n", cu.cuMemFree_v2(0), cu.cuMemFree_v2(0x1234),
           cu.cuMemFreeAsync(0x1234, NULL));
    printf("create: %u %u %u\n", cu.cuMemCreate(NULL, MIB, &properties, 0),
           cu.cuMemCreate(&piece, 0, &properties, 0), cu.cuMemCreate(&piece, MIB, NULL, 0));
    printf("release: %u %u\n", cu.cuMemRelease(0), cu.cuMemUnmap(0x10000000, 0));
    printf("array: %u %u\n", cu.cuArrayCreate_v2(NULL, NULL), cu.cuArrayDestroy(NULL));
    printf("host: %u %u %u\n", cu.cuMemHostAlloc(NULL, 1, 0), cu.cuMemHostAlloc(&memory, 0, 0),
           cu.cuMemFreeHost(NULL));
    printf("register: %u %u\n", cu.cuMemHostRegister_v2(NULL, 1, 0), cu.cuMemHostUnregister(NULL));
    printf("info: %u %u %u\n", cu.cuMemGetInfo_v2(NULL, &one), cu.cuMemGetInfo_v2(&one, NULL),
           cu.cuMemGetInfo_v2(NULL, NULL));
    printf("total: %u %u\n", cu.cuDeviceTotalMem_v2(NULL, 0), cu.cuDeviceTotalMem_v2(&one, 99));
    printf("resolver: %u %u %u %u\n", cu.cuGetProcAddress_v2(NULL, &function, 12000, 0, NULL),
           cu.cuGetProcAddress_v2("cuMemAlloc", NULL, 12000, 0, NULL),
           cu.cuGetProcAddress_v2("", &function, 0, 0, NULL),
           cu.cuGetProcAddress_v2("cuMemAlloc_v2", &function, 12000, 0, NULL));
    printf("resolver: %u %u\n", cu.cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 99, NULL),
           cu.cuGetProcAddress_v2("cuMemAlloc", &function, 1, 0, NULL));
    CHECK(cu.cuMemAlloc_v2(&address, MIB) == CU_OK);
    printf("double free: %u %u\n", cu.cuMemFree_v2(address), cu.cuMemFree_v2(address));
    printf("too much: %u %u\n", cu.cuMemAlloc_v2(&address, (size_t)1 << 62),
           cu.cuMemCreate(&piece, SIZE_MAX, &properties, 0));
    printf("release: %u %u\n", cu.cuDevicePrimaryCtxRelease_v2(0),
           cu.cuDevicePrimaryCtxRelease_v2(1));
}

/* Every name, version and flag that the headers of CUDA 13.0 and 13.5 have, and some around them: a
 * hook where the driver's answer is the function that it hooks, and the driver's answer where it is
 * not. */
static const struct {
    const char *name;
    int version;
} asked[] = {
#define X(name, version, mode) {#name, version},
#include TRIPLES
#undef X
    {"", 0},           {"cuNothing", 12000}, {"cuMemAlloc_v2", 12000},
    {"cuMemAlloc", 0}, {"cuMemAlloc", -1},   {"cuMemAlloc", 14000},
};

static const char *const hooks[] = {
#define X(name, version, mode, symbol, parameters, arguments) #symbol,
    RUN_HOOK_LIST(X)
#undef X
};

static void *expected(void *real, void *answer, int version)
{
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (answer && dlsym(real, hooks[i]) == answer)
            return dlsym(library, hooks[i]);
    (void)version;
    return answer;
}

static void triples(void)
{
    cu_result (*ask)(const char *, void **, int, uint64_t, cu_lookup_status *);
    cu_result (*ask_old)(const char *, void **, int, uint64_t);
    const char *(*path)(void);
    void *found = dlsym(library, "tarn_run_driver");
    CHECK(found);
    memcpy(&path, &found, sizeof found);
    void *real = dlopen(path(), RTLD_NOW | RTLD_NOLOAD);
    CHECK(real);
    found = dlsym(real, "cuGetProcAddress_v2");
    CHECK(found && found != dlsym(library, "cuGetProcAddress_v2"));
    memcpy(&ask, &found, sizeof found);
    found = dlsym(real, "cuGetProcAddress");
    memcpy(&ask_old, &found, sizeof found);
    size_t compared = 0, hooked = 0;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int versions[] = {
            asked[i].version - 1, asked[i].version, asked[i].version + 1, 12000, 13000, RUN_NEWEST};
        for (size_t j = 0; j < sizeof versions / sizeof *versions; j++)
            for (uint64_t flags = 0; flags < 4; flags++) {
                void *ours = NULL, *theirs = NULL;
                cu_lookup_status our_status = 9, their_status = 9;
                cu_result ours_code =
                    cu.cuGetProcAddress_v2(asked[i].name, &ours, versions[j], flags, &our_status);
                cu_result code = ask(asked[i].name, &theirs, versions[j], flags, &their_status);
                CHECK(ours_code == code && our_status == their_status);
                CHECK(ours == expected(real, theirs, versions[j]));
                ours_code = cu.cuGetProcAddress(asked[i].name, &ours, versions[j], flags);
                code = ask_old(asked[i].name, &theirs, versions[j], flags);
                CHECK(ours_code == code && ours == expected(real, theirs, versions[j]));
                compared++;
                hooked += ours != theirs;
            }
    }
    printf("%zu compared, hooked: %s\n", compared, hooked ? "some" : "none");
}

/* Of a version that is newer than what the shim was compared with. */
static void newer(void)
{
    void *newest = NULL, *known = NULL, *plain = NULL;
    start(0);
    CHECK(cu.cuGetProcAddress_v2("cuMemAlloc", &newest, 14000, 0, NULL) == CU_OK);
    CHECK(cu.cuGetProcAddress_v2("cuMemAlloc", &known, 13000, 0, NULL) == CU_OK);
    CHECK(cu.cuGetProcAddress_v2("cuMemFree", &plain, 14000, 0, NULL) == CU_OK);
    CHECK(known == dlsym(library, "cuMemAlloc_v2") && newest != known);
    CHECK(plain == dlsym(library, "cuMemFree_v2")); /* unchanged, so it is hooked */
}

static size_t free_now(void)
{
    size_t free_bytes = 0;
    CHECK(cu.cuMemGetInfo_v2(&free_bytes, NULL) == CU_OK);
    return free_bytes;
}

/* Under --limit 64M,1=32M. */
static void limited(void)
{
    cu_address address[3];
    size_t total_bytes = 0, free_bytes = 0;
    struct cu_allocation_properties properties = {.type = 1, .location = {CU_LOCATION_DEVICE, 1}};
    cu_piece piece;
    start(0);
    CHECK(cu.cuDeviceTotalMem_v2(&total_bytes, 0) == CU_OK && total_bytes == 64 * MIB);
    CHECK(cu.cuDeviceTotalMem_v2(&total_bytes, 1) == CU_OK && total_bytes == 32 * MIB);
    CHECK(cu.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CU_OK && total_bytes == 64 * MIB &&
          free_bytes == 64 * MIB);
    CHECK(cu.cuMemAlloc_v2(&address[0], 40 * MIB) == CU_OK && free_now() == 24 * MIB);
    CHECK(cu.cuMemAlloc_v2(&address[1], 25 * MIB) == CU_OUT_OF_MEMORY && free_now() == 24 * MIB);
    CHECK(cu.cuMemAllocAsync(&address[1], 24 * MIB, NULL) == CU_OK && free_now() == 0);
    CHECK(cu.cuMemAlloc_v2(&address[2], 1) == CU_OUT_OF_MEMORY);
    CHECK(cu.cuMemCreate(&piece, 32 * MIB, &properties, 0) == CU_OK);
    CHECK(cu.cuMemRelease(piece) == CU_OK);
    CHECK(cu.cuMemCreate(&piece, 34 * MIB, &properties, 0) == CU_OUT_OF_MEMORY);
    /* May exceed a device, so it is none of it */
    CHECK(cu.cuMemAllocManaged(&address[2], 100 * MIB, 1) == CU_OK);
    CHECK(cu.cuMemFree_v2(address[0]) == CU_OK && free_now() == 40 * MIB);
    /* A second free gives nothing */
    CHECK(cu.cuMemFree_v2(address[0]) != CU_OK && free_now() == 40 * MIB);
    CHECK(cu.cuMemFreeAsync(address[1], NULL) == CU_OK && free_now() == 64 * MIB);
    CHECK(cu.cuMemAlloc_v2(&address[0], 64 * MIB) == CU_OK);
    CHECK(cu.cuDevicePrimaryCtxReset_v2(0) == CU_OK &&
          free_now() == 64 * MIB); /* a context that ends frees all of its memory */
    CHECK(cu.cuMemAlloc_v2(&address[0], 64 * MIB) == CU_OK);
}

/* Memory of the host and of places that nobody has named yet is none of a device, on a thread
 * without a context; and what was allocated behind the shim, as memory of other interfaces is, can
 * be freed. */
static void *other_places(void *argument)
{
    static const int types[] = {2, 3, 4, 5, 6, 99};
    cu_piece piece;
    (void)argument;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct cu_allocation_properties properties = {
            .type = 1, .location = {(unsigned)types[i], i % 2 ? 0 : -1}};
        CHECK(cu.cuMemCreate(&piece, 40 * MIB, &properties, 0) == CU_OK);
    }
    struct cu_allocation_properties nowhere = {.type = 1, .location = {CU_LOCATION_DEVICE, 77}};
    CHECK(cu.cuMemCreate(NULL, 40 * MIB, &nowhere, 0) == CU_INVALID_VALUE);
    return NULL;
}

static void places(void)
{
    const char *(*path)(void);
    cu_result (*alloc)(cu_address *, size_t);
    cu_address address;
    pthread_t thread;
    start(0);
    CHECK(pthread_create(&thread, NULL, other_places, NULL) == 0 &&
          pthread_join(thread, NULL) == 0);
    CHECK(free_now() == 64 * MIB);
    void *found = dlsym(library, "tarn_run_driver");
    memcpy(&path, &found, sizeof found);
    found = dlsym(dlopen(path(), RTLD_NOW | RTLD_NOLOAD), "cuMemAlloc_v2");
    memcpy(&alloc, &found, sizeof found);
    CHECK(alloc(&address, MIB) == CU_OK && cu.cuMemFree_v2(address) == CU_OK &&
          free_now() == 64 * MIB);
}

/* Threads that together would exceed the limit of 64 MiB; the shim must let none through, and lose
 * no byte. */
static void *storm(void *argument)
{
    cu_address mine[4] = {0};
    unsigned seed = (unsigned)(uintptr_t)argument;
    CHECK(cu.cuCtxSetCurrent((cu_context)argument) == CU_OK);
    for (int i = 0; i < 20000; i++) {
        cu_address *at = &mine[rand_r(&seed) % 4];
        if (*at) {
            CHECK(cu.cuMemFree_v2(*at) == CU_OK);
            *at = 0;
        } else if (cu.cuMemAlloc_v2(at, (1 + (size_t)rand_r(&seed) % 16) * MIB)) {
            *at = 0;
        }
    }
    for (int i = 0; i < 4; i++)
        CHECK(!mine[i] || cu.cuMemFree_v2(mine[i]) == CU_OK);
    return NULL;
}

/* Sizes whose sum with anything wraps: the limit must not forget what is held. */
static void beyond(void)
{
    cu_address address;
    start(0);
    CHECK(cu.cuMemAlloc_v2(&address, 40 * MIB) == CU_OK);
    CHECK(cu.cuMemAlloc_v2(&address, SIZE_MAX) == CU_OUT_OF_MEMORY && free_now() == 24 * MIB);
    CHECK(cu.cuMemAlloc_v2(&address, SIZE_MAX / 2 + 1) == CU_OUT_OF_MEMORY &&
          free_now() == 24 * MIB);
}

/* What does not fit must not keep out what does, not for a moment. */
static void *ask_too_much(void *stop)
{
    cu_address address;
    CHECK(cu.cuCtxSetCurrent(start_context) == CU_OK);
    while (!atomic_load((_Atomic int *)stop))
        CHECK(cu.cuMemAlloc_v2(&address, 65 * MIB) == CU_OUT_OF_MEMORY);
    return NULL;
}

static void neighbours(void)
{
    enum { THREADS = 4, TIMES = 400000 }; /* on a busy machine few of the moments meet */
    static _Atomic int stop;
    cu_address address;
    pthread_t threads[THREADS];
    start_context = start(0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_too_much, &stop) == 0);
    for (int i = 0; i < TIMES; i++)
        CHECK(cu.cuMemAlloc_v2(&address, MIB) == CU_OK && cu.cuMemFree_v2(address) == CU_OK);
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void threads(void)
{
    pthread_t thread[4];
    cu_context context = start(0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, storm, context) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK(free_now() == 64 * MIB);
}

/* More threads at once than have desks, each of which frees most of what another has made. */
enum { CROWD = 80, MADE = 100, LEFT = 16 };
static cu_address made_by[CROWD][MADE];
static pthread_barrier_t all_made;

static void *make_and_free(void *argument)
{
    cu_address *mine = argument, *others = mine == made_by[CROWD - 1] ? made_by[0] : mine + MADE;
    CHECK(cu.cuCtxSetCurrent(start_context) == CU_OK);
    for (int i = 0; i < MADE; i++)
        CHECK(cu.cuMemAlloc_v2(&mine[i], 4096) == CU_OK);
    pthread_barrier_wait(&all_made);
    for (int i = LEFT; i < MADE; i++)
        CHECK(cu.cuMemFree_v2(others[i]) == CU_OK);
    return NULL;
}

static void desks(void)
{
    pthread_t thread[CROWD];
    start_context = start(0);
    CHECK(pthread_barrier_init(&all_made, NULL, CROWD) == 0);
    for (int i = 0; i < CROWD; i++)
        CHECK(pthread_create(&thread[i], NULL, make_and_free, made_by[i]) == 0);
    for (int i = 0; i < CROWD; i++)
        pthread_join(thread[i], NULL);
}

static int wait_for(pid_t child)
{
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* A child from before cuInit() has a book of its own; one from after it has none, and passes on. */
static void forks(void)
{
    cu_address address;
    pid_t child = fork();
    if (child == 0) {
        start(0);
        CHECK(cu.cuMemAlloc_v2(&address, 11 * MIB) == CU_OK);
        exit(0);
    }
    CHECK(wait_for(child) == 0);
    start(0);
    CHECK(cu.cuMemAlloc_v2(&address, 3 * MIB) == CU_OK);
    child = fork();
    if (child == 0) {
        CHECK(cu.cuMemFree_v2(address) == CU_OK);
        for (int i = 0; i < 100; i++)
            CHECK(cu.cuMemAlloc_v2(&address, MIB) == CU_OK);
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
}

static void killed(void)
{
    cu_address address;
    start(1);
    CHECK(cu.cuMemAlloc_v2(&address, 9 * MIB) == CU_OK);
    raise(SIGKILL);
}

/* Many programs at once, as many as the second argument says: each is this one again. */
static void many(void)
{
    enum { PROCESSES = 300 };
    pid_t child[PROCESSES];
    CHECK(wanted <= PROCESSES);
    for (size_t i = 0; i < wanted; i++)
        if ((child[i] = fork()) == 0) {
            execl("/proc/self/exe", "probe", "one", (char *)NULL);
            _exit(1);
        }
    for (size_t i = 0; i < wanted; i++)
        CHECK(wait_for(child[i]) == 0);
}

/* Under --limit 64M, of which NVML says, before anything is allocated, that 20 MiB are in use, of
 * two MIG instances. */
static void residue(void)
{
    cu_address address;
    FILE *out = fopen(getenv("FAKE_NVML"), "w");
    CHECK(out &&
          fprintf(out, "1 99\n%d %zu\n%d %zu\n", (int)getpid(), 12 * MIB, (int)getpid(), 8 * MIB) >
              0 &&
          fclose(out) == 0);
    start(0);
    CHECK(free_now() == 44 * MIB);
    CHECK(cu.cuMemAlloc_v2(&address, 45 * MIB) == CU_OUT_OF_MEMORY);
}

/* The context takes more than the limit of 2 MiB. */
static void residue_above(void)
{
    cu_address address;
    FILE *out = fopen(getenv("FAKE_NVML"), "w");
    CHECK(out && fprintf(out, "%d %zu\n", (int)getpid(), 20 * MIB) > 0 && fclose(out) == 0);
    start(0);
    CHECK(cu.cuMemAlloc_v2(&address, 4096) == CU_OUT_OF_MEMORY);
    CHECK(free_now() == 0);
}

/* Takes 30 MiB of a kept pool over, which NVML does not count for the process: it has 20 MiB. */
static void taken_over(void)
{
    bool (*takes_over)(int, uint64_t, uint64_t) = NULL;
    void *found = dlsym(library, "tarn_run_takes_over");
    FILE *out = fopen(getenv("FAKE_NVML"), "w");
    CHECK(out && fprintf(out, "%d %zu\n", (int)getpid(), 20 * MIB) > 0 && fclose(out) == 0);
    CHECK(found);
    memcpy(&takes_over, &found, sizeof found);
    start(0);
    CHECK(free_now() == 44 * MIB);
    CHECK(takes_over(0, 12345, 30 * MIB));
    usleep(200000); /* `tarn run` looks meanwhile */
    CHECK(free_now() == 14 * MIB);
}

static cu_address held; /* "statics": freed when the process ends */

static void free_late(void)
{
    if (held)
        CHECK(cu.cuMemFree_v2(held) == CU_OK);
}

static void one(void)
{
    start(0);
    CHECK(cu.cuMemAlloc_v2(&held, 13 * MIB) == CU_OK);
}

/* Holds 13 MiB, and 5 MiB of the other device, until its input ends. */
static void waits(void)
{
    cu_address other;
    start(1);
    CHECK(cu.cuMemAlloc_v2(&other, 5 * MIB) == CU_OK);
    one();
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

static void wait_for_end(void)
{
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

static void hold(void)
{
    start(0);
    CHECK(cu.cuMemAlloc_v2(&held, wanted * MIB) == CU_OK);
    wait_for_end();
}

/* Stops in the middle of a request: the group's file says how much it wants, but it has not taken
 * it. */
static void about_to_take(void)
{
    struct cu_uuid uuid;
    start(0);
    int file = open(getenv(RUN_GROUP_VARIABLE), O_RDWR | O_CLOEXEC);
    struct group *group = mmap(NULL, sizeof *group, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(group != MAP_FAILED && cu.cuDeviceGetUuid(&uuid, 0) == CU_OK);
    unsigned row = group_row(group, group_device((const char *)uuid.bytes), false), slot = 0;
    while (slot < GROUP_SLOTS && atomic_load(&group->slot[slot].process) != (uint64_t)getpid())
        slot++;
    CHECK(row < BOOK_DEVICES && slot < GROUP_SLOTS);
    atomic_fetch_add(&group->slot[slot].device[row].pending, wanted * MIB);
    close(file);
    wait_for_end();
}

/* Exits 4 where it is refused. */
static void take(void)
{
    start(0);
    if (cu.cuMemAlloc_v2(&held, wanted * MIB)) {
        held = 0;
        exit(4);
    }
}

static void tell_free(void)
{
    start((int)wanted);
    printf("%zu\n", free_now() / MIB);
}

/* Has a file of its own at every number, also at those that the shim had, as a program that closes
 * all that it inherits may. Nothing may happen to that file. The second argument is what it holds
 * of a group, in which 30 MiB more are refused, however often. */
static void overtaken(void)
{
    enum { NUMBERS = 1000, CALLS = 30000 };
    struct stat about;
    cu_address address;
    start(0);
    CHECK(cu.cuMemAlloc_v2(&held, (wanted ? wanted : 1) * MIB) == CU_OK);
    int file = memfd_create("own", 0);
    for (int i = 3; i < NUMBERS; i++)
        CHECK(i == file || dup2(file, i) == i);
    for (int i = 0; i < CALLS; i++)
        CHECK(cu.cuMemAlloc_v2(&address, 4096) == CU_OK && cu.cuMemFree_v2(address) == CU_OK);
    CHECK(fstat(file, &about) == 0 && about.st_size == 0);
    for (int i = 0; wanted && i < 3; i++)
        CHECK(cu.cuMemAlloc_v2(&address, 30 * MIB) == CU_OUT_OF_MEMORY);
    wait_for_end();
}

/* There is room for files only when some calls have found none. */
static void recovers(void)
{
    struct rlimit most;
    cu_address address;
    start(0);
    for (int i = 0; i < 3; i++)
        CHECK(cu.cuMemAlloc_v2(&address, MIB) == CU_OK && cu.cuMemFree_v2(address) == CU_OK);
    CHECK(getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != most.rlim_max);
    most.rlim_cur = most.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &most) == 0);
    CHECK(cu.cuMemAlloc_v2(&address, 7 * MIB) == CU_OK);
}

/* Two blocks in the order of a stream, whose number it prints; the first is freed after a while. */
static void streams(void)
{
    cu_address address;
    cu_stream stream;
    start(1);
    CHECK(cu.cuStreamCreate(&stream, 0) == CU_OK);
    CHECK(cu.cuMemAllocAsync(&address, MIB, stream) == CU_OK);
    usleep(30000);
    CHECK(cu.cuMemFreeAsync(address, stream) == CU_OK &&
          cu.cuMemAllocAsync(&address, 2 * MIB, stream) == CU_OK);
    printf("%llu\n", (unsigned long long)(uintptr_t)stream);
}

/* Ends while its threads allocate and free. */
static void *never_ends(void *argument)
{
    cu_address address;
    CHECK(cu.cuCtxSetCurrent(start_context) == CU_OK);
    for (;;)
        if (cu.cuMemAlloc_v2(&address, 4096) == CU_OK)
            (void)cu.cuMemFree_v2(address);
    return argument;
}

static void exits_busy(void)
{
    pthread_t thread;
    start_context = start(0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread, NULL, never_ends, NULL) == 0);
    CHECK(cu.cuMemAlloc_v2(&held, 4096) == CU_OK);
    usleep(20000);
}

/* Says its number, and per line of its input what a request gives; it keeps nothing. */
static void take_later(void)
{
    cu_address address;
    start(0);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (int byte; (byte = getchar()) != EOF;)
        if (byte == '\n') {
            cu_result code = cu.cuMemAlloc_v2(&address, wanted * MIB);
            CHECK(code || cu.cuMemFree_v2(address) == CU_OK);
            printf("gives %u\n", code);
            fflush(stdout);
        }
}

/* Allocates and frees until it is killed. */
static void churn(void)
{
    cu_address address;
    start(0);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (;;)
        if (cu.cuMemAlloc_v2(&address, wanted * MIB) == CU_OK)
            CHECK(cu.cuMemFree_v2(address) == CU_OK);
}

/* Leaves a child of fork(), which lives on, and is killed. */
static void leave_child(void)
{
    start(0);
    CHECK(cu.cuMemAlloc_v2(&held, wanted * MIB) == CU_OK);
    if (fork() == 0) {
        wait_for_end();
        _exit(0);
    }
    raise(SIGKILL);
}

/* Becomes a program that does not use the driver. */
static void become(void)
{
    start(0);
    CHECK(cu.cuMemAlloc_v2(&held, wanted * MIB) == CU_OK);
    execlp("sh", "sh", "-c", "echo $$; cat >/dev/null", (char *)NULL);
}

/* One program after the other in one process, the last of which waits. */
static void successors(void)
{
    char left[24];
    start(0);
    CHECK(cu.cuMemAlloc_v2(&held, (10 - wanted) * MIB) == CU_OK);
    snprintf(left, sizeof left, "%zu", wanted - 1);
    if (wanted)
        execl("/proc/self/exe", "probe", "successors", left, (char *)NULL);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

/* As many processes at once as the second argument says, each of which asks for 1 MiB when all are
 * there, and keeps it until all have asked. */
static void crowd(void)
{
    int ready[2], go[2], done[2], stay[2], have = 0;
    char byte;
    CHECK(pipe(ready) == 0 && pipe(go) == 0 && pipe(done) == 0 && pipe(stay) == 0);
    for (size_t i = 0; i < wanted; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child)
            continue;
        close(go[1]);
        close(stay[1]);
        start(0);
        CHECK(write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 0);
        byte = cu.cuMemAlloc_v2(&held, MIB) == CU_OK;
        CHECK(write(done[1], &byte, 1) == 1 && read(stay[0], &byte, 1) == 0);
        _exit(0);
    }
    for (size_t i = 0; i < wanted; i++)
        CHECK(read(ready[0], &byte, 1) == 1);
    close(go[1]);
    for (size_t i = 0; i < wanted; i++) {
        CHECK(read(done[0], &byte, 1) == 1);
        have += byte;
    }
    printf("%d of %zu have it\n", have, wanted);
    close(stay[1]);
    while (wait(NULL) > 0)
        ;
}

/* Frees the same twice, under a limit that others have used up. */
static void free_twice(void)
{
    cu_address address;
    start(0);
    CHECK(cu.cuMemAlloc_v2(&address, wanted * MIB) == CU_OK);
    CHECK(cu.cuMemFree_v2(address) == CU_OK && cu.cuMemFree_v2(address) != CU_OK);
    printf("%zu\n", free_now() / MIB);
}

/* Functions begin plainly, for tools that read and replace their first instructions. */
static void prologues(void)
{
#if defined(__x86_64__)
    const char *(*path)(void);
    void *found = dlsym(library, "tarn_run_driver");
    memcpy(&path, &found, sizeof found);
    void *real = dlopen(path(), RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        const unsigned char *at = dlsym(library, hooks[i]);
        if (at == dlsym(real, hooks[i]))
            continue;                                  /* hooked only where pools are */
        CHECK(at && at[0] != 0xe9 && at[0] != 0xeb);   /* no jump */
        CHECK(memcmp(at, "\xf3\x0f\x1e\xfa", 4) != 0); /* no endbr64 */
    }
#endif
}

/* What the shim does not have is the driver's, by either name of the file. */
static void falls_through(void)
{
    void *other = dlopen("libcuda.so", RTLD_NOW), *found = dlsym(library, "cuFakeOnly");
    cu_result (*only)(void);
    CHECK(other == library && found);
    memcpy(&only, &found, sizeof found);
    CHECK(only() == 77);
    CHECK(!dlsym(library, "cuNothing"));
}

static const struct {
    const char *name;
    void (*run)(void);
} commands[] = {
    {"kinds", kinds},
    {"unmaps", unmaps},
    {"bad", bad},
    {"triples", triples},
    {"newer", newer},
    {"limited", limited},
    {"threads", threads},
    {"forks", forks},
    {"killed", killed},
    {"residue", residue},
    {"residue_above", residue_above},
    {"taken_over", taken_over},
    {"many", many},
    {"one", one},
    {"waits", waits},
    {"hold", hold},
    {"take", take},
    {"tell_free", tell_free},
    {"churn", churn},
    {"beyond", beyond},
    {"places", places},
    {"neighbours", neighbours},
    {"desks", desks},
    {"overtaken", overtaken},
    {"exits_busy", exits_busy},
    {"streams", streams},
    {"recovers", recovers},
    {"take_later", take_later},
    {"about_to_take", about_to_take},
    {"leave_child", leave_child},
    {"become", become},
    {"successors", successors},
    {"free_twice", free_twice},
    {"crowd", crowd},
    {"prologues", prologues},
    {"falls_through", falls_through},
};

int main(int argc, char **argv)
{
    atexit(free_late);
    wanted = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    open_driver("libcuda.so.1");
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, argv[1]) == 0) {
            commands[i].run();
            return 0;
        }
    return 2;
}
