/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The mix: allocations and frees of small and large blocks at random, some of them given to other
 * threads, which free them. Whatever the allocator, it is the same code, the same sizes and the
 * same slots, and each call is timed by itself. A block's first eight bytes say that it is in use,
 * so that one which is handed out twice is noticed. */
#include "chores.h"

#include <dlfcn.h>
#include <stdio.h>

#define LIVE 0x6c697665626c6f63u
#define DEAD 0x64656164626c6f63u

static _Atomic(void *) mailboxes[MAILBOXES];

static bool free_of_tarn(void *block)
{
    return tarn_free(block) == TARN_OK;
}

const struct allocator tarn = {"tarn", tarn_malloc, free_of_tarn};

static void (*mimalloc_free)(void *block);

static bool free_of_mimalloc(void *block)
{
    mimalloc_free(block);
    return true;
}

const struct allocator *mimalloc_open(void)
{
    static struct allocator mimalloc = {"mimalloc", NULL, free_of_mimalloc};
    /* Local: its own malloc() must not replace the program's. */
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        puts("mimalloc is not installed (libmimalloc2.0): left out");
        return NULL;
    }
    *(void **)&mimalloc.alloc = dlsym(library, "mi_malloc");
    *(void **)&mimalloc_free = dlsym(library, "mi_free");
    int (*version)(void);
    *(void **)&version = dlsym(library, "mi_version");
    if (!mimalloc.alloc || !mimalloc_free || !version) {
        wrong("libmimalloc.so.2 has no mi_malloc");
        return NULL;
    }
    int number = version(); /* 209 is 2.0.9 */
    printf("beside it: mimalloc %d.%d.%d, in the same harness\n", number / 100, number / 10 % 10,
           number % 10);
    return &mimalloc;
}

/* Of 512 B to 64 KiB, each power of two as often as another; one in 64 to 16 MiB. */
static size_t some_size(struct worker *worker)
{
    size_t power = below(worker, 64) ? 9 + below(worker, 7) : 16 + below(worker, 8);
    return ((size_t)1 << power) + below(worker, (uint64_t)1 << power);
}

/* The size is in the block's second word, for the class of its free. */
static void mix_free(const struct allocator *allocator, struct worker *worker, void *block)
{
    uint64_t *words = block;
    if (words[0] != (LIVE ^ (uintptr_t)block))
        wrong("%s: the block at %p is another's too: it has %016llx", allocator->name, block,
              (unsigned long long)words[0]);
    struct latency *latency = &worker->latencies.free[words[1] > SMALL];
    words[0] = DEAD;
    uint64_t before = ticks();
    bool freed = allocator->free(block);
    latency_note(latency, ticks() - before);
    if (!freed)
        wrong("%s: a free of %p failed: %s", allocator->name, block, tarn_last_error());
}

void mix_adopt(void *block, size_t size)
{
    uint64_t *words = block;
    words[0] = LIVE ^ (uintptr_t)block;
    words[1] = size;
}

static void *mix_alloc(const struct allocator *allocator, struct worker *worker)
{
    size_t size = some_size(worker);
    uint64_t before = ticks();
    void *block = allocator->alloc(size);
    uint64_t after = ticks();
    if (block) {
        latency_note(&worker->latencies.alloc[size > SMALL], after - before);
        mix_adopt(block, size);
    } else {
        worker->refused++;
        if (!atomic_load_explicit(&disturbed, memory_order_relaxed))
            wrong("%s: no memory for %zu bytes: %s", allocator->name, size, tarn_last_error());
    }
    return block;
}

void mix_run(const struct allocator *allocator, struct worker *worker, int steps)
{
    for (int i = 0; i < steps; i++) {
        void **slot = &worker->slots[below(worker, SLOTS)];
        if (!*slot) {
            *slot = mix_alloc(allocator, worker);
            continue;
        }
        if (below(worker, 8) == 0) /* what another thread allocated, in its place */
            *slot = atomic_exchange_explicit(&mailboxes[below(worker, MAILBOXES)], *slot,
                                             memory_order_acq_rel);
        if (*slot)
            mix_free(allocator, worker, *slot);
        *slot = NULL;
    }
    worker->operations += (uint64_t)steps;
}

void mix_finish(const struct allocator *allocator, struct worker *worker)
{
    for (int i = 0; i < SLOTS; i++) {
        if (worker->slots[i] && !allocator->free(worker->slots[i]))
            wrong("%s: a free of %p failed: %s", allocator->name, worker->slots[i],
                  tarn_last_error());
        worker->slots[i] = NULL;
    }
}

void mix_finish_mailboxes(const struct allocator *allocator)
{
    for (int i = 0; i < MAILBOXES; i++) {
        void *block = atomic_exchange(&mailboxes[i], NULL);
        if (block && !allocator->free(block))
            wrong("%s: a free of %p failed: %s", allocator->name, block, tarn_last_error());
    }
}
