/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The library's own memory. Owns all bookkeeping memory: pages from mmap, small memory in classes
 * of powers of two, objects in chunks of 64 KiB or, in pools with marks, of twice as much each
 * time. Chunks are never freed; pages are freed at once. Each object pool has its own lock and is
 * never destroyed; the counters are atomic. */
#include "base/pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)
#define CHUNK_BYTES ((size_t)64 << 10)
#define SMALL_CLASSES 8 /* 32 bytes to 4 KiB; larger memory has whole pages */

static atomic_uint_fast64_t mapped_bytes;

static struct {
    atomic_uint_fast64_t nth; /* 0: no failure is wanted */
    atomic_uint_fast64_t times;
    atomic_uint_fast64_t calls, hits;
} injected;

void pages_fail_times(uint64_t nth, uint64_t times)
{
    atomic_store(&injected.nth, 0);
    atomic_store(&injected.times, times);
    atomic_store(&injected.calls, 0);
    atomic_store(&injected.hits, 0);
    atomic_store(&injected.nth, nth);
}

void pages_fail(uint64_t nth, bool forever)
{
    pages_fail_times(nth, forever ? UINT64_MAX : 1);
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

/* Whether a test wants this allocation to fail. One relaxed load if no test is active. */
static inline bool fails_by_request(void)
{
    uint64_t nth = atomic_load_explicit(&injected.nth, memory_order_relaxed);
    if (nth == 0)
        return false;
    uint64_t call = atomic_fetch_add(&injected.calls, 1) + 1;
    if (call < nth || call - nth >= atomic_load(&injected.times))
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

void pages_prefer_large(void *start, size_t size)
{
    uintptr_t first = ((uintptr_t)start + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    uintptr_t end = (uintptr_t)start + size;
    int saved = errno;
    if (first < end)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
    errno = saved;
}

void pages_unmap(void *memory, size_t size)
{
    if (!memory)
        return;
    munmap(memory, whole_pages(size));
    atomic_fetch_sub_explicit(&mapped_bytes, whole_pages(size), memory_order_relaxed);
}

/* The header of a chunk in a pool with marks. Each chunk is twice as large as the one before, so
 * that few have to be searched. */
struct object_chunk {
    _Alignas(64) struct object_chunk *before;
    size_t size; /* bytes, with this header */
};

/* The word behind each object that is handed out. Nothing else in the pool's memory has this number
 * at such a place. */
#define MARK UINT64_C(0x9e3779b97f4a7c15)

static _Atomic(uint64_t) *mark_of(const struct object_pool *pool, uintptr_t object)
{
    return (_Atomic(uint64_t) *)(object + pool->mark);
}

bool object_is_live(struct object_pool *pool, const void *address)
{
    uintptr_t object = (uintptr_t)address;
    const struct object_chunk *chunk = atomic_load_explicit(&pool->chunks, memory_order_acquire);
    while (chunk && object - (uintptr_t)chunk >= chunk->size)
        chunk = chunk->before;
    if (!chunk || object % sizeof(uint64_t) || (uintptr_t)chunk + chunk->size - object < pool->size)
        return false;
    return atomic_load_explicit(mark_of(pool, object), memory_order_acquire) == (MARK ^ object);
}

/* Object pools with a chunk, newest first; none is ever removed. */
static _Atomic(struct object_pool *) pools_in_use;

static void pool_enter(struct object_pool *pool)
{
    pool->next = atomic_load_explicit(&pools_in_use, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&pools_in_use, &pool->next, pool,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

void object_pools_each(void (*call)(void *argument, const struct object_pool *pool, uint64_t live,
                                    uint64_t bytes),
                       void *argument)
{
    struct object_pool *pool = atomic_load_explicit(&pools_in_use, memory_order_acquire);
    for (; pool; pool = pool->next) {
        mutex_lock(&pool->lock);
        uint64_t live = pool->live, bytes = pool->bytes;
        mutex_unlock(&pool->lock);
        call(argument, pool, live, bytes);
    }
}

static bool chunk_take_locked(struct object_pool *pool)
{
    struct object_chunk *before = atomic_load_explicit(&pool->chunks, memory_order_relaxed);
    size_t size = before ? 2 * before->size : CHUNK_BYTES;
    char *chunk = map(size);
    if (!chunk)
        return false;
    if (!pool->bytes)
        pool_enter(pool);
    pool->bytes += size;
    pool->fresh = chunk;
    pool->fresh_end = chunk + size;
    if (pool->mark) {
        *(struct object_chunk *)(void *)chunk =
            (struct object_chunk){.before = before, .size = size};
        pool->fresh += sizeof(struct object_chunk);
        atomic_store_explicit(&pool->chunks, (struct object_chunk *)(void *)chunk,
                              memory_order_release);
    }
    return true;
}

static void *object_take_locked(struct object_pool *pool)
{
    void *object = pool->free;
    if (object) {
        memcpy(&pool->free, object, sizeof pool->free);
        return object;
    }
    if ((size_t)(pool->fresh_end - pool->fresh) < pool->size && !chunk_take_locked(pool))
        return NULL;
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
    if (object && pool->mark)
        atomic_store_explicit(mark_of(pool, (uintptr_t)object), MARK ^ (uintptr_t)object,
                              memory_order_release);
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
    if (pool->mark)
        atomic_store_explicit(mark_of(pool, (uintptr_t)object), 0, memory_order_release);
    mutex_lock(&pool->lock);
    memcpy(object, &pool->free, sizeof pool->free);
    pool->free = object;
    pool->live--;
    mutex_unlock(&pool->lock);
}

#define SMALL(bytes)                                                               \
    {                                                                              \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = "up to " #bytes " bytes", \
        .size = (bytes), .zeroed = (bytes)                                         \
    }
static struct object_pool small_pools[SMALL_CLASSES] = {SMALL(32),   SMALL(64),  SMALL(128),
                                                        SMALL(256),  SMALL(512), SMALL(1024),
                                                        SMALL(2048), SMALL(4096)};

/* The pool for `size` bytes; NULL: it takes whole pages. */
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
