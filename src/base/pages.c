/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library's own memory. Owns every byte of bookkeeping: pages from mmap, small memory in classes of powers of two,
 * objects in chunks of 64 KiB. Chunks of objects are kept for ever; pages go back at once. Assumes that an object pool is never
 * destroyed. Each pool has its lock; the counters are atomic. */
#include "base/pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)
#define CHUNK_BYTES ((size_t)64 << 10)
#define SMALL_CLASSES 8 /* 32 bytes to 4 KiB; above it whole pages */

static atomic_uint_fast64_t mapped_bytes;

static struct {
    atomic_uint_fast64_t nth; /* 0: no failure is wanted */
    atomic_bool forever;
    atomic_uint_fast64_t calls, hits;
} injected;

void pages_fail(uint64_t nth, bool forever)
{
    atomic_store(&injected.nth, 0);
    atomic_store(&injected.forever, forever);
    atomic_store(&injected.calls, 0);
    atomic_store(&injected.hits, 0);
    atomic_store(&injected.nth, nth);
}

bool pages_fail_armed(void)
{
    return atomic_load_explicit(&injected.nth, memory_order_relaxed) != 0;
}

uint64_t pages_fail_calls(void)
{
    return atomic_load(&injected.calls);
}

uint64_t pages_fail_hits(void)
{
    return atomic_load(&injected.hits);
}

/* Whether this allocation is one that a test wants to fail. One relaxed load where no test asked. */
static inline bool fails_by_request(void)
{
    uint64_t nth = atomic_load_explicit(&injected.nth, memory_order_relaxed);
    if (nth == 0)
        return false;
    uint64_t call = atomic_fetch_add(&injected.calls, 1) + 1;
    if (call != nth && !(call > nth && atomic_load(&injected.forever)))
        return false;
    atomic_fetch_add(&injected.hits, 1);
    return true;
}

uint64_t pages_bytes(void)
{
    return atomic_load_explicit(&mapped_bytes, memory_order_relaxed);
}

static size_t whole_pages(size_t size)
{
    return (size + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    atomic_fetch_add_explicit(&mapped_bytes, size, memory_order_relaxed);
    return memory;
}

void *pages_map(size_t size)
{
    if (fails_by_request() || size > SIZE_MAX - PAGE_BYTES)
        return NULL;
    int saved = errno;
    void *memory = map(whole_pages(size));
    errno = saved;
    return memory;
}

void pages_unmap(void *memory, size_t size)
{
    if (!memory)
        return;
    munmap(memory, whole_pages(size));
    atomic_fetch_sub_explicit(&mapped_bytes, whole_pages(size), memory_order_relaxed);
}

static void *object_take_locked(struct object_pool *pool)
{
    void *object = pool->free;
    if (object) {
        memcpy(&pool->free, object, sizeof pool->free);
        return object;
    }
    if ((size_t)(pool->fresh_end - pool->fresh) < pool->size) {
        char *chunk = map(CHUNK_BYTES);
        if (!chunk)
            return NULL;
        pool->fresh = chunk;
        pool->fresh_end = chunk + CHUNK_BYTES;
    }
    object = pool->fresh;
    pool->fresh += pool->size;
    return object;
}

static void *object_alloc_counted(struct object_pool *pool)
{
    mutex_lock(&pool->lock);
    void *object = object_take_locked(pool);
    if (object)
        pool->live++;
    mutex_unlock(&pool->lock);
    if (object)
        memset(object, 0, pool->zeroed);
    return object;
}

void *object_alloc(struct object_pool *pool)
{
    return fails_by_request() ? NULL : object_alloc_counted(pool);
}

void object_free(struct object_pool *pool, void *object)
{
    if (!object)
        return;
    mutex_lock(&pool->lock);
    memcpy(object, &pool->free, sizeof pool->free);
    pool->free = object;
    pool->live--;
    mutex_unlock(&pool->lock);
}

#define SMALL(bytes)                                                  \
    {                                                                 \
        .lock = MUTEX_INITIALIZER, .size = (bytes), .zeroed = (bytes) \
    }
static struct object_pool small_pools[SMALL_CLASSES] = {SMALL(32),  SMALL(64),   SMALL(128),  SMALL(256),
                                                        SMALL(512), SMALL(1024), SMALL(2048), SMALL(4096)};

/* The pool that serves `size` bytes; NULL for what takes whole pages. */
static struct object_pool *small_pool(size_t size)
{
    for (int i = 0; i < SMALL_CLASSES; i++)
        if (size <= small_pools[i].size)
            return &small_pools[i];
    return NULL;
}

void *pages_alloc(size_t size)
{
    struct object_pool *pool = small_pool(size);
    if (!pool)
        return pages_map(size);
    return fails_by_request() ? NULL : object_alloc_counted(pool);
}

void pages_free(void *memory, size_t size)
{
    if (!memory)
        return;
    struct object_pool *pool = small_pool(size);
    if (pool)
        object_free(pool, memory);
    else
        pages_unmap(memory, size);
}
