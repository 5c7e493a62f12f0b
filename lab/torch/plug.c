/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of PyTorch's pools, under `lock`, and of its streams, which live as long as the
 * process and are adopted once each. Touches tarn by its public headers only. A filter is called
 * under the lock, as PyTorch's own allocator does. */
#include "plug.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <tarn/tarn.h>
#include <unistd.h>

#define POOLS 256
#define STREAMS 1024

/* A pool that PyTorch opened. `pool` is NULL in an unused entry. */
struct plugged {
    struct tarn_torch_id id;
    int device;
    tarn_pool *pool;
    bool open;                       /* blocks go to it that `filter` says yes to */
    struct tarn_torch_filter filter; /* of ours while it is open */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct plugged pools[POOLS];
static atomic_uint opened; /* how many are open */

/* The streams that were adopted; entries are written once, under the lock, and counted then. */
static struct {
    void *native;
    int device;
    tarn_stream stream;
} streams[STREAMS];
static atomic_uint stream_count;

static atomic_int device_count;

static void say(const char *call, size_t size)
{
    fprintf(stderr, "%s of %zu bytes: %s\n", call, size, tarn_last_error());
}

static _Noreturn void end(const char *call, size_t size)
{
    say(call, size);
    fflush(NULL);
    _exit(TARN_TORCH_EXIT);
}

/* ---- Streams ---- */

static bool find(int device, void *native, unsigned count, tarn_stream *stream)
{
    for (unsigned i = 0; i < count; i++) {
        if (streams[i].native != native || streams[i].device != device)
            continue;
        *stream = streams[i].stream;
        return true;
    }
    return false;
}

static tarn_stream stream_of(int device, void *native)
{
    tarn_stream stream = TARN_STREAM_LEGACY;
    if (!native ||
        find(device, native, atomic_load_explicit(&stream_count, memory_order_acquire), &stream))
        return stream;
    pthread_mutex_lock(&lock);
    unsigned count = atomic_load_explicit(&stream_count, memory_order_relaxed);
    if (!find(device, native, count, &stream)) {
        if (tarn_stream_adopt(device, native, &stream))
            end("adopting a stream for a block", 0);
        if (count < STREAMS) {
            streams[count].native = native;
            streams[count].device = device;
            streams[count].stream = stream;
            atomic_store_explicit(&stream_count, count + 1, memory_order_release);
        }
    }
    pthread_mutex_unlock(&lock);
    return stream;
}

/* ---- Pools ---- */

static struct plugged *find_locked(int device, struct tarn_torch_id id)
{
    for (unsigned i = 0; i < POOLS; i++) {
        struct plugged *plugged = &pools[i];
        if (plugged->pool && plugged->device == device && plugged->id.first == id.first &&
            plugged->id.second == id.second)
            return plugged;
    }
    return NULL;
}

/* A new pool, held until PyTorch releases it. */
static tarn_status pool_make(struct plugged *plugged)
{
    tarn_pool_options options = {.size = sizeof options, .device = plugged->device};
    tarn_status status = tarn_pool_create(&options, &plugged->pool);
    if (!status && (status = tarn_pool_hold(plugged->pool, NULL))) {
        (void)tarn_pool_release(plugged->pool);
        plugged->pool = NULL;
    }
    return status;
}

static struct plugged *make_locked(int device, struct tarn_torch_id id)
{
    struct plugged *plugged = find_locked(device, id);
    for (unsigned i = 0; i < POOLS && !plugged; i++) {
        if (pools[i].pool)
            continue;
        pools[i] = (struct plugged){.id = id, .device = device};
        if (pool_make(&pools[i]))
            end("making a pool", 0);
        plugged = &pools[i];
    }
    return plugged;
}

static void close_locked(struct plugged *plugged)
{
    if (!plugged->open)
        return;
    if (plugged->filter.manager)
        plugged->filter.manager(plugged->filter.store, plugged->filter.store,
                                TARN_TORCH_FILTER_DESTROY);
    plugged->filter = (struct tarn_torch_filter){0};
    plugged->open = false;
    atomic_fetch_sub(&opened, 1);
}

/* The pool that a block for a stream goes to; NULL: the default one. The caller gives it back with
 * tarn_pool_release(). */
static tarn_pool *pool_for(int device, void *stream)
{
    tarn_pool *pool = NULL;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < POOLS && !pool; i++) {
        const struct plugged *plugged = &pools[i];
        if (!plugged->open || plugged->device != device)
            continue;
        if (!plugged->filter.manager || plugged->filter.invoker(plugged->filter.store, &stream))
            pool = plugged->pool;
    }
    if (pool && tarn_pool_retain(pool))
        end("holding a pool", 0);
    pthread_mutex_unlock(&lock);
    return pool;
}

void tarn_torch_begin_allocate_to_pool(int device, struct tarn_torch_id id,
                                       struct tarn_torch_filter *filter)
{
    pthread_mutex_lock(&lock);
    struct plugged *plugged = make_locked(device, id);
    if (!plugged)
        end("opening one pool too many", POOLS);
    close_locked(plugged);
    if (filter && filter->manager) {
        plugged->filter.manager = filter->manager;
        plugged->filter.invoker = filter->invoker;
        filter->manager(plugged->filter.store, filter->store, TARN_TORCH_FILTER_CLONE);
    }
    plugged->open = true;
    atomic_fetch_add(&opened, 1);
    pthread_mutex_unlock(&lock);
}

void tarn_torch_end_allocate_to_pool(int device, struct tarn_torch_id id)
{
    pthread_mutex_lock(&lock);
    struct plugged *plugged = find_locked(device, id);
    if (plugged)
        close_locked(plugged);
    pthread_mutex_unlock(&lock);
}

void tarn_torch_release_pool(int device, struct tarn_torch_id id)
{
    struct plugged gone = {0};
    pthread_mutex_lock(&lock);
    struct plugged *plugged = find_locked(device, id);
    if (plugged) {
        close_locked(plugged);
        gone = *plugged;
        plugged->pool = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (gone.pool && (tarn_pool_unhold(gone.pool) || tarn_pool_release(gone.pool)))
        say("releasing a pool", 0);
}

unsigned tarn_torch_pools(void)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < POOLS; i++)
        count += pools[i].pool != NULL;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- Blocks ---- */

void *tarn_torch_alloc(size_t size, int device, void *stream)
{
    tarn_alloc_options options = {
        .size = sizeof options, .device = device, .stream = stream_of(device, stream)};
    void *pointer = NULL;
    if (atomic_load_explicit(&opened, memory_order_acquire))
        options.pool = pool_for(device, stream);
    if (tarn_alloc(&options, size, &pointer))
        end("allocation", size);
    if (options.pool && tarn_pool_release(options.pool))
        say("releasing a pool", 0);
    return pointer;
}

/* PyTorch frees as C++ does, which cannot fail. */
void tarn_torch_free(void *pointer, size_t size, int device, void *stream)
{
    (void)device;
    (void)stream;
    if (tarn_free(pointer))
        say("free", size);
}

/* ---- The other hooks ---- */

void tarn_torch_init(int devices)
{
    atomic_store(&device_count, devices);
}

/* torch.cuda.empty_cache(). What a pool that PyTorch has not released holds stays: graphs may use
 * it. */
void tarn_torch_reset(void)
{
    for (int device = 0; device < atomic_load(&device_count); device++) {
        int64_t reserved = 0;
        tarn_stats stats = {.size = sizeof stats};
        if (!tarn_device_stats_get(device, &stats))
            reserved = stats.reserved_bytes[TARN_STAT_ALL].current;
        if (reserved && tarn_device_trim(device, 0))
            say("a trim", 0);
    }
}

void tarn_torch_memory_fraction(double fraction, int device)
{
    tarn_device_properties properties = {.size = sizeof properties};
    tarn_status status = tarn_device_properties_get(device, &properties);
    if (!status)
        status = tarn_device_limit_set(device, (size_t)((double)properties.memory * fraction));
    if (status)
        say("a limit", 0);
}

void *tarn_torch_base_alloc(void *pointer, size_t *size)
{
    tarn_block_info info = {.size = sizeof info};
    if (tarn_pointer_info_get(pointer, &info))
        return pointer;
    if (size)
        *size = info.usable_size;
    return info.base;
}

void tarn_torch_record_stream(void *pointer, void *stream)
{
    tarn_block_info info = {.size = sizeof info};
    if (!pointer)
        return;
    tarn_status status = tarn_pointer_info_get(pointer, &info);
    if (!status)
        status = tarn_record_stream(pointer, stream_of(info.device, stream));
    if (status)
        say("a use by a stream", 0);
}
