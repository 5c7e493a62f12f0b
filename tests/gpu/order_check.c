/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The order of streams: kernels write and check patterns in tarn's memory, late on purpose, while
 * blocks are freed and handed out again: on one stream, on others by each of the ways that a free
 * has, from thread to thread, under a limit that forces memory to be mapped again, on streams that
 * each thread has by the same name, and in captures. Memory that is given out too early shows as a
 * wrong word, and is reported with the block, the streams and the way it was freed. */
#include "gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define STREAMS 4               /* per thread; the first is its default stream */
#define THREADS_OWN ((void *)2) /* CU_STREAM_PER_THREAD */
#define STEPS 1500
#define LIVE 12 /* blocks a thread keeps */
#define LIMIT (384 * MIB)
#define LATE 40000 /* ns: the most that a kernel waits */

enum way { WAY_FREE, WAY_RECORD, WAY_FREE_ON, WAY_FREE_AFTER, WAY_OTHER_THREAD, WAYS };
static const char *const way_names[WAYS] = {"tarn_free", "tarn_record_stream", "tarn_free_on",
                                            "tarn_free_after", "tarn_free by another thread"};

/* What was checked in a slot. */
struct use {
    void *address;
    size_t size;
    tarn_stream owner, user;
    uint32_t seed;
    enum way way;
    bool used;
};

struct block {
    void *address;
    size_t size;
    tarn_stream stream;
    uint32_t seed;
};

static struct gpu_slots slots;
static struct use *uses;

/* Reads the slots and reports what is wrong in them. */
static bool slots_are_right(const char *name, tarn_stream stream)
{
    size_t wrong = 0, checked = 0;
    if (!gpu_slots_read(&slots, stream))
        return false;
    for (size_t i = 0; i < slots.count; i++) {
        const struct gpu_slot *slot = &slots.host[i];
        const struct use *use = &uses[i];
        checked += use->used;
        if (!slot->wrong)
            continue;
        if (++wrong <= 5)
            gpu_say(GPU_FAIL, name,
                    "block %p of %zu bytes, of stream %llx, checked on %llx, freed by %s: %llu "
                    "wrong words, the first is "
                    "%llu, one of them %#llx; seed %#x",
                    use->address, use->size, (unsigned long long)use->owner,
                    (unsigned long long)use->user, way_names[use->way],
                    (unsigned long long)slot->wrong, (unsigned long long)slot->first,
                    (unsigned long long)slot->found, use->seed);
    }
    if (!wrong)
        gpu_say(GPU_PASS, name, "%zu blocks were what was written to them", checked);
    return !wrong;
}

static bool slots_begin(tarn_stream stream, size_t count)
{
    uses = calloc(count, sizeof *uses);
    return uses && gpu_slots_create(&slots, stream, count);
}

static void slots_end(void)
{
    gpu_slots_destroy(&slots);
    free(uses);
    uses = NULL;
}

static bool fill(const struct block *block, uint64_t late)
{
    return gpu_fill(block->stream, block->address, block->size, block->seed, late);
}

static bool check(const struct block *block, tarn_stream on, enum way way, size_t slot,
                  uint64_t late)
{
    uses[slot] =
        (struct use){block->address, block->size, block->stream, on, block->seed, way, true};
    return gpu_check(on, block->address, block->size, block->seed, late, &slots, slot);
}

/* ---- The checks themselves ---- */

/* One word is overwritten: it is found, with its place, and nothing before that or once the block
 * is written anew. */
static void wrong_words(tarn_stream stream)
{
    const char *name = "order: a wrong word is seen";
    const size_t size = MIB, word = 12345;
    struct block block = {NULL, size, stream, 3};
    if (!slots_begin(stream, 3))
        return;
    if (OK(name, tarn_alloc_on(stream, size, &block.address)) && fill(&block, 0) &&
        check(&block, stream, WAY_FREE, 0, 0) &&
        CU(name,
           gpu.cuMemsetD8Async((uintptr_t)block.address + (gpu_has_kernels ? word * 4 : size / 2),
                               0xEE, 4, gpu_native(stream))) &&
        check(&block, stream, WAY_FREE, 1, 0) && fill(&block, 0) &&
        check(&block, stream, WAY_FREE, 2, 0) && OK(name, tarn_stream_synchronize(stream)) &&
        gpu_slots_read(&slots, stream)) {
        const struct gpu_slot *found = slots.host;
        bool well = !found[0].wrong && found[1].wrong == 1 && !found[2].wrong &&
                    (!gpu_has_kernels || (found[1].first == word && found[1].found == 0xEEEEEEEE));
        gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%llu, %llu and %llu wrong words, at %llu: %#llx",
                (unsigned long long)found[0].wrong, (unsigned long long)found[1].wrong,
                (unsigned long long)found[2].wrong, (unsigned long long)found[1].first,
                (unsigned long long)found[1].found);
    }
    (void)OK(name, tarn_free(block.address));
    slots_end();
}

/* ---- One stream ---- */

/* Freed and handed out again at once, with the work still queued. */
static void one_stream(tarn_stream stream)
{
    const char *name = "order: one stream";
    const size_t count = 400;
    size_t same = 0;
    void *before = NULL;
    if (!slots_begin(stream, count))
        return;
    for (size_t i = 0; i < count; i++) {
        struct block block = {NULL, (i % 7 + 1) * (i & 1 ? 4096 : MIB), stream,
                              (uint32_t)(i * 77 + 1)};
        if (!OK(name, tarn_alloc_on(stream, block.size, &block.address)) || !fill(&block, 20000) ||
            !check(&block, stream, WAY_FREE, i, 0) || !OK(name, tarn_free(block.address)))
            break;
        same += block.address == before;
        before = block.address;
    }
    if (OK(name, tarn_stream_synchronize(stream)))
        slots_are_right(name, stream);
    gpu_say(GPU_NOTE, name, "%zu of %zu blocks were where the one before was", same, count);
    slots_end();
}

/* ---- Two streams ---- */

/* Hands a block that is written on its own stream to another, which checks it late, and frees it
 * meanwhile. */
static bool hand_over(const char *name, const struct block *block, tarn_stream user, enum way way,
                      size_t slot, uint64_t late)
{
    tarn_event *event = NULL;
    bool well = OK(name, tarn_event_create(0, &event)) &&
                OK(name, tarn_event_record(event, block->stream)) &&
                OK(name, tarn_stream_wait(user, event)) && check(block, user, way, slot, late);
    if (well && way == WAY_RECORD)
        well = OK(name, tarn_record_stream(block->address, user)) &&
               OK(name, tarn_free(block->address));
    else if (well && way == WAY_FREE_ON)
        well = OK(name, tarn_free_on(block->address, user));
    else if (well)
        well = OK(name, tarn_event_record(event, user)) &&
               OK(name, tarn_free_after(block->address, event));
    return OK(name, tarn_event_destroy(event)) && well;
}

static void two_streams(tarn_stream owner, tarn_stream user)
{
    const char *name = "order: two streams";
    const size_t count = 300;
    if (!slots_begin(owner, 2 * count))
        return;
    for (size_t i = 0; i < count; i++) {
        enum way way = WAY_RECORD + (enum way)(i % 3);
        struct block block = {NULL, (i % 5 + 1) * (i & 1 ? 2 * MIB : 8192), owner,
                              (uint32_t)(i * 131 + 5)};
        if (!OK(name, tarn_alloc_on(owner, block.size, &block.address)) || !fill(&block, 0) ||
            !hand_over(name, &block, user, way, 2 * i, 100000))
            break;
        /* Whoever gets the memory now writes to it at once. */
        struct block next = {NULL, block.size, owner, ~block.seed};
        if (!OK(name, tarn_alloc_on(owner, next.size, &next.address)) || !fill(&next, 0) ||
            !check(&next, owner, WAY_FREE, 2 * i + 1, 0) || !OK(name, tarn_free(next.address)))
            break;
    }
    if (OK(name, tarn_device_synchronize(0)))
        slots_are_right(name, owner);
    slots_end();
}

/* ---- Pressure ---- */

/* A block on its way to another thread, which frees it. */
static struct {
    pthread_mutex_t lock;
    void *address;
} letterbox = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct worker {
    unsigned number;
    uint64_t random;
    tarn_stream streams[STREAMS];
    struct block live[LIVE];
    size_t count, full, ooms;
};

static uint64_t random_below(struct worker *worker, uint64_t bound)
{
    return gpu_random(&worker->random) % bound;
}

static bool post(const char *name, void *address)
{
    pthread_mutex_lock(&letterbox.lock);
    void *found = letterbox.address;
    letterbox.address = address;
    pthread_mutex_unlock(&letterbox.lock);
    return OK(name, tarn_free(found));
}

static bool end_block(struct worker *worker, const char *name, size_t index, size_t slot)
{
    struct block block = worker->live[index];
    worker->live[index] = worker->live[--worker->count];
    enum way way = (enum way)random_below(worker, WAYS);
    uint64_t late = random_below(worker, LATE);
    if (way == WAY_FREE || way == WAY_OTHER_THREAD) {
        if (!check(&block, block.stream, way, slot, late))
            return false;
        return way == WAY_FREE ? OK(name, tarn_free(block.address)) : post(name, block.address);
    }
    return hand_over(name, &block, worker->streams[random_below(worker, STREAMS)], way, slot, late);
}

static size_t random_size(struct worker *worker)
{
    uint64_t kind = random_below(worker, 10);
    if (kind < 3)
        return (random_below(worker, 64) + 1) * 512;
    if (kind < 7)
        return (random_below(worker, 64) + 1) * 65536;
    return (random_below(worker, 24) + 1) * MIB;
}

static void *press(void *argument)
{
    struct worker *worker = argument;
    const char *name = "order: threads under a limit";
    size_t slot = (size_t)worker->number * STEPS;
    if (!OK(name, tarn_device_set(0)) ||
        !OK(name, tarn_stream_adopt(0, THREADS_OWN, &worker->streams[0])))
        return NULL;
    for (size_t step = 0; step < STEPS; step++, slot++) {
        struct block block = {NULL, random_size(worker),
                              worker->streams[random_below(worker, STREAMS)], 0};
        block.seed = (uint32_t)gpu_random(&worker->random);
        if (worker->count == LIVE && !end_block(worker, name, random_below(worker, LIVE), slot))
            break;
        tarn_status status = tarn_alloc_on(block.stream, block.size, &block.address);
        if (status == TARN_ERROR_OUT_OF_MEMORY) { /* the limit; make room for the next step */
            worker->ooms++;
            if (worker->count && !uses[slot].used && !end_block(worker, name, 0, slot))
                break;
            continue;
        }
        if (!OK(name, status) || !fill(&block, random_below(worker, LATE)))
            break;
        worker->live[worker->count++] = block;
    }
    for (size_t i = 0; i < worker->count; i++)
        (void)OK(name, tarn_free(worker->live[i].address));
    return NULL;
}

static void under_pressure(tarn_stream stream)
{
    const char *name = "order: threads under a limit";
    struct worker workers[THREADS] = {{0}};
    pthread_t threads[THREADS];
    size_t ooms = 0;
    int started = 0;
    tarn_stats stats = {.size = sizeof stats};
    if (!slots_begin(stream, (size_t)THREADS * STEPS) || !OK(name, tarn_device_trim(0, 0)) ||
        !OK(name, tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED)) ||
        !OK(name, tarn_device_stats_reset(0, TARN_STATS_PEAK)) ||
        !OK(name, tarn_device_limit_set(0, LIMIT)))
        return;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].random = 88172645463325252u + i * 1000003u;
        for (int j = 1; j < STREAMS; j++)
            (void)OK(name, tarn_stream_lease(0, 0, &workers[i].streams[j]));
    }
    for (; started < THREADS; started++)
        if (pthread_create(&threads[started], NULL, press, &workers[started]))
            break;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    (void)post(name, NULL);
    (void)OK(name, tarn_device_synchronize(0));
    if (OK(name, tarn_device_stats_get(0, &stats))) {
        for (int i = 0; i < THREADS; i++)
            ooms += workers[i].ooms;
        gpu_say(GPU_NOTE, name,
                "%lld MiB reserved at most, of %lld; %lld retries, %zu requests refused",
                (long long)(stats.reserved_bytes[0].peak >> 20), (long long)(LIMIT >> 20),
                (long long)stats.num_alloc_retries, ooms);
        if (stats.reserved_bytes[0].peak > (int64_t)LIMIT)
            gpu_say(GPU_FAIL, name, "the limit was passed");
    }
    slots_are_right(name, stream);
    (void)OK(name, tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (int i = 0; i < THREADS; i++)
        for (int j = 1; j < STREAMS; j++)
            (void)OK(name, tarn_stream_return(workers[i].streams[j]));
    slots_end();
}

/* ---- Captures ---- */

/* Blocks that are allocated and freed while their stream captures serve it again in order, in the
 * graph too. */
static void captured(tarn_stream stream)
{
    const char *name = "order: a capture";
    enum { BLOCKS = 20 };
    struct block blocks[BLOCKS] = {{0}};
    void *graph = NULL;
    size_t same = 0, count = 0;
    if (!slots_begin(stream, BLOCKS))
        return;
    if (OK(name, tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL))) {
        bool well = true;
        for (; well && count < BLOCKS; count++) {
            struct block *block = &blocks[count];
            *block = (struct block){NULL, 3 * MIB, stream, (uint32_t)(count + 1) * 40503};
            well = OK(name, tarn_alloc_on(stream, block->size, &block->address)) &&
                   fill(block, 5000) && check(block, stream, WAY_FREE, count, 0);
            same += count && block->address == blocks[0].address;
            if (well && count + 1 < BLOCKS) /* the last stays, and with it the memory of all that
                                               were where it is */
                well = OK(name, tarn_free(block->address));
        }
        well = OK(name, tarn_capture_end(stream, &graph)) && well;
        if (well && same + 1 != BLOCKS)
            gpu_say(GPU_SKIP, name,
                    "the blocks were not all at one place, so the graph may not be launched");
        else if (well && gpu_run_graph(graph, stream, 2, name) &&
                 OK(name, tarn_device_synchronize(0)))
            slots_are_right(name, stream);
        if (graph)
            (void)CU(name, gpu.cuGraphDestroy(graph));
        if (count)
            (void)OK(name, tarn_free(blocks[count - 1].address));
    }
    slots_end();
}

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    tarn_stream a = 0, b = 0;
    if (!gpu_has_kernels)
        gpu_say(GPU_SKIP, "order: kernels", "no kernels here: memsets and copies do the work");
    if (OK("streams", tarn_stream_lease(0, 0, &a)) && OK("streams", tarn_stream_lease(0, 0, &b))) {
        wrong_words(a);
        one_stream(a);
        two_streams(a, b);
        under_pressure(a);
        captured(a);
    }
    if (OK("end", tarn_device_synchronize(0)))
        (void)OK("end", tarn_shutdown());
    return gpu_end();
}
