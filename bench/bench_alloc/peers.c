/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn runs on the host device, its library opened with dlopen() (TARN_LIBRARY names another
 * build). The peers hand out host memory: they say what an allocator's bookkeeping can cost, no
 * more. */
#include "peers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/host.h>
#include <tarn/stream.h>
#include <tarn/trace.h>

#ifdef TARN_HAVE_MIMALLOC
#include <mimalloc.h>
#endif

#define STREAMS 16
#define HOST_MEMORY ((size_t)160 << 30) /* bytes; what is not touched is not there */

struct peer peers[PEERS];
size_t peer_count;

void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_alloc: %s: %s\n", what, why);
    exit(1);
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        die(name, dlerror());
    return found;
}

/* A function out of a library, of the type of `pointer`. */
#define FUNCTION(library, name, pointer) (*(void **)(&(pointer)) = symbol(library, name))

static tarn_status (*tarn_shared_get)(int device, int priority, tarn_stream *stream);
static tarn_status (*tarn_set)(tarn_stream stream);

static void tarn_stream_use(int stream)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tarn_stream streams[STREAMS];
    static int made;
    tarn_stream wanted = TARN_STREAM_LEGACY;
    pthread_mutex_lock(&lock);
    while (made <= stream)
        if (tarn_shared_get(0, 0, &streams[made++]) != TARN_OK)
            die("tarn_stream_shared_get", "failed");
    if (stream >= 0)
        wanted = streams[stream];
    pthread_mutex_unlock(&lock);
    if (tarn_set(wanted) != TARN_OK)
        die("tarn_stream_set", "failed");
}

static tarn_status (*trace_start)(const tarn_trace_options *options), (*trace_stop)(void);

static void tarn_trace_set(bool on)
{
    if ((on ? trace_start(NULL) : trace_stop()) != TARN_OK)
        die("the trace", "failed");
}

static void tarn_open(void)
{
    const char *path = getenv("TARN_LIBRARY");
    const char *(*version)(void);
    tarn_status (*configure)(const tarn_host_configuration *);
    tarn_host_configuration config = {.size = sizeof config, .devices = 1, .memory = HOST_MEMORY};
    struct peer *tarn = &peers[peer_count++];
    void *library = dlopen(path && *path ? path : TARN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        die("dlopen", dlerror());
    tarn->name = "tarn";
    FUNCTION(library, "tarn_malloc", tarn->alloc);
    FUNCTION(library, "tarn_free", tarn->free_checked);
    FUNCTION(library, "tarn_stream_shared_get", tarn_shared_get);
    FUNCTION(library, "tarn_stream_set", tarn_set);
    tarn->stream_use = tarn_stream_use;
    FUNCTION(library, "tarn_trace_start", trace_start);
    FUNCTION(library, "tarn_trace_stop", trace_stop);
    tarn->trace_set = tarn_trace_set;
    FUNCTION(library, "tarn_version", version);
    FUNCTION(library, "tarn_host_configuration_set", configure);
    if (configure(&config) != TARN_OK)
        die("tarn_host_configuration_set", "failed");
    printf("tarn %s, one stream of the host device\n", version());
}

static void mimalloc_open(void)
{
#ifdef TARN_HAVE_MIMALLOC
    int version = mi_version(); /* 209 is 2.0.9, 30600 is 3.6.0 */
    int unit = version < 10000 ? 10 : 100;
    peers[peer_count++] = (struct peer){"mimalloc", mi_malloc, mi_free, NULL, NULL, NULL};
    printf("mimalloc %d.%d.%d\n", version / unit / unit, version / unit % unit, version % unit);
#else
    puts("mimalloc: not built in (libmimalloc-dev): left out");
#endif
}

static void glibc_open(void)
{
    /* By name out of the C library: mimalloc's shared library replaces malloc() where a program
     * links it. */
    const char *(*version)(void);
    struct peer *glibc = &peers[peer_count++];
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        die("dlopen", dlerror());
    glibc->name = "glibc";
    FUNCTION(library, "malloc", glibc->alloc);
    FUNCTION(library, "free", glibc->free);
    FUNCTION(library, "gnu_get_libc_version", version);
    printf("glibc %s\n", version());
}

/* oneAPI's Unified Memory Framework: its disjoint pool over the system's memory, with its defaults
 * (umf/pools/pool_disjoint.h). */
static struct {
    void *pool;
    void *(*alloc)(void *pool, size_t size);
    int (*free)(void *pool, void *block);
} umf;

static void *umf_alloc(size_t size)
{
    return umf.alloc(umf.pool, size);
}

static void umf_free(void *block)
{
    if (umf.free(umf.pool, block) != 0)
        die("UMF", "a free failed");
}

/* The steps to a pool. NULL, or what failed. */
static const char *umf_pool_make(void *library)
{
    int (*provider_params_create)(void **), (*provider_create)(const void *, const void *, void **);
    int (*pool_params_create)(void **),
        (*pool_create)(const void *, void *, const void *, uint32_t, void **);
    const void *(*provider_ops)(void), *(*pool_ops)(void);
    void *provider_params = NULL, *provider = NULL, *pool_params = NULL;
    FUNCTION(library, "umfOsMemoryProviderParamsCreate", provider_params_create);
    FUNCTION(library, "umfOsMemoryProviderOps", provider_ops);
    FUNCTION(library, "umfMemoryProviderCreate", provider_create);
    FUNCTION(library, "umfDisjointPoolParamsCreate", pool_params_create);
    FUNCTION(library, "umfDisjointPoolOps", pool_ops);
    FUNCTION(library, "umfPoolCreate", pool_create);
    FUNCTION(library, "umfPoolMalloc", umf.alloc);
    FUNCTION(library, "umfPoolFree", umf.free);
    if (provider_params_create(&provider_params) != 0 ||
        provider_create(provider_ops(), provider_params, &provider) != 0)
        return "no provider of the system's memory";
    if (pool_params_create(&pool_params) != 0 ||
        pool_create(pool_ops(), provider, pool_params, 0, &umf.pool) != 0)
        return "no disjoint pool";
    return NULL;
}

static void umf_open(void)
{
    void *library = dlopen("libumf.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *failure = library ? umf_pool_make(library) : dlerror();
    if (failure) {
        printf("UMF: %s: left out\n", failure);
        return;
    }
    int (*version)(void);
    FUNCTION(library, "umfGetCurrentVersion", version);
    int number = version();
    peers[peer_count++] = (struct peer){"UMF", umf_alloc, umf_free, NULL, NULL, NULL};
    printf("UMF %d.%d, disjoint pool over the system's memory\n", number >> 16, number & 0xffff);
}

void peers_open(void)
{
    tarn_open();
    mimalloc_open();
    glibc_open();
    umf_open();
}
