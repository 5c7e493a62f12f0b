/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Chores with private pools: made and released, suspended, captured into, brought back to a
 * checkpoint. Each makes its own, and leaves some blocks to the mix, so that pools die before their
 * blocks. */
#include "chores.h"

#include <sys/mman.h>

#define BLOCKS 12

struct blocks {
    unsigned char *start[BLOCKS];
    size_t size[BLOCKS];
};

static atomic_int_fast64_t segments, orphans;

int64_t segments_of_allocators(void)
{
    return atomic_load(&segments);
}

int64_t graphs_orphaned(void)
{
    return atomic_load(&orphans);
}

static void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    (void)user;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    atomic_fetch_add(&segments, 1);
    return memory;
}

static void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    (void)user;
    munmap(pointer, size);
    atomic_fetch_sub(&segments, 1);
}

static const tarn_pool_allocator allocator = {
    .size = sizeof(tarn_pool_allocator), .alloc = segment_alloc, .free = segment_free};

static tarn_pool *pool_make(struct worker *worker, int device)
{
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .device = device};
    size_t limit = below(worker, 4) ? TARN_NO_LIMIT : below(worker, 64 * MIB);
    options.use_on_oom = below(worker, 4) == 0;
    options.no_remap = below(worker, 4) == 0;
    if (below(worker, 3) == 0) {
        options.segments = below(worker, 2) ? TARN_SEGMENTS_PLAIN : TARN_SEGMENTS_EXACT;
        options.allocator = below(worker, 4) ? NULL : &allocator;
        options.no_split = below(worker, 8) == 0;
    }
    if (!OK(tarn_pool_create(&options, &pool)))
        return NULL;
    OK(tarn_pool_limit_set(pool, limit));
    return pool;
}

static tarn_pool *pool_make_virtual(int device)
{
    tarn_pool *pool = NULL;
    tarn_pool_options options = {
        .size = sizeof options, .device = device, .segments = TARN_SEGMENTS_VIRTUAL};
    return OK(tarn_pool_create(&options, &pool)) ? pool : NULL;
}

static void blocks_get(struct worker *worker, tarn_pool *pool, tarn_stream stream,
                       struct blocks *blocks, uint64_t also)
{
    for (int i = 0; i < BLOCKS; i++) {
        void *start = NULL;
        size_t size = some_bytes(worker);
        blocks->start[i] = NULL;
        blocks->size[i] = size;
        if (below(worker, 3) && OK_OR(tarn_pool_alloc(pool, stream, size, &start), also))
            blocks->start[i] = start;
    }
}

static void blocks_free(struct worker *worker, struct blocks *blocks, unsigned most_left)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks->start[i] && below(worker, BLOCKS) < most_left)
            leave(worker, blocks->start[i], blocks->size[i]);
        else
            OK(tarn_free(blocks->start[i]));
        blocks->start[i] = NULL;
    }
}

/* At both ends and in between: with the block's number, which another that has the same memory does
 * not have. */
static void paint(const struct blocks *blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        for (size_t k = 0; blocks->start[i] && k < blocks->size[i]; k += blocks->size[i] / 7 + 1)
            blocks->start[i][k] = (unsigned char)(i + 1);
}

static void check_paint(const struct blocks *blocks, const char *when)
{
    for (int i = 0; i < BLOCKS; i++)
        for (size_t k = 0; blocks->start[i] && k < blocks->size[i]; k += blocks->size[i] / 7 + 1)
            if (blocks->start[i][k] != (unsigned char)(i + 1))
                wrong("%s, a block of a pool has lost its contents at byte %zu of %zu", when, k,
                      blocks->size[i]);
}

void do_pool(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    struct place place = some_place(worker, device);
    tarn_pool *pool = pool_make(worker, device);
    struct blocks blocks;
    if (!pool)
        return;
    tarn_pool_info info = {.size = sizeof info};
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_pool_info_get(pool, &info));
    for (int round = 0; round < 2; round++) {
        blocks_get(worker, pool, place.stream, &blocks, 0);
        paint(&blocks);
        check_paint(&blocks, "at once");
        OK(tarn_pool_stats_get(pool, &stats));
        if (below(worker, 4) == 0)
            OK_OR(tarn_pool_trim(pool, below(worker, 2) ? 0 : below(worker, 8 * MIB)),
                  MAY(TARN_ERROR_CAPTURE));
        if (round == 0)
            blocks_free(worker, &blocks, 0);
    }
    OK(tarn_pool_release(pool));
    if (tarn_pool_find(info.id, &pool) != TARN_ERROR_INVALID_ARGUMENT)
        wrong("a pool that was released is found: %s", tarn_last_error());
    blocks_free(worker, &blocks, 3);
}

void do_scope(struct worker *worker)
{
    int device = 0;
    tarn_scope scope = 0;
    OK(tarn_device_get(&device));
    struct place place = some_place(worker, device);
    tarn_pool *pool = pool_make(worker, device);
    if (!pool)
        return;
    tarn_scope_kind kind = (tarn_scope_kind)below(worker, 3);
    bool open = OK(tarn_scope_begin(pool, kind, place.stream, &scope));
    OK(tarn_pool_release(pool)); /* the scope has it */
    if (!open)
        return;
    mix_run(&tarn, worker, 64);
    if (kind == TARN_SCOPE_THREAD && below(worker, 8) == 0)
        worker->dies = true; /* in the scope, which ends with it */
    else
        OK(tarn_scope_end(scope));
}

/* Ends a capture, whatever fails. Gives the graph, or NULL: a graph that nobody was given has been
 * destroyed, unless the driver refused that; then it is the driver's own. */
static void *capture_end(tarn_stream stream)
{
    for (int tries = 0;; tries++) {
        void *graph = NULL;
        tarn_status status = tarn_capture_end(stream, &graph);
        if (!status || status == TARN_ERROR_INVALID_ARGUMENT || status == TARN_ERROR_CAPTURE)
            return graph; /* or over without one: it was spoilt, or the driver failed at its end
                             before */
        went("tarn_capture_end", status, 0);
        atomic_fetch_add(&orphans, 1);
        calm();
        if (tries > 1000) {
            wrong("a capture does not end: %s", tarn_last_error());
            return NULL;
        }
    }
}

/* A second stream joins the capture, and is joined again. */
static void capture_fork(struct worker *worker, int device, tarn_stream stream)
{
    tarn_stream other = worker->adopted[device];
    tarn_event *event = NULL;
    if (!other || !OK(tarn_event_create(device, &event)))
        return;
    /* A capture that is not joined again is spoilt, so failures end here. */
    if (tarn_event_record(event, stream) == TARN_OK && tarn_stream_wait(other, event) == TARN_OK) {
        void *block = NULL;
        if (OK_OR(tarn_alloc_on(other, some_bytes(worker), &block), 0))
            OK(tarn_free(block));
        for (int tries = 0; tries < 100 && tarn_event_record(event, other) != TARN_OK; tries++)
            calm();
        for (int tries = 0; tries < 100 && tarn_stream_wait(stream, event) != TARN_OK; tries++)
            calm();
    }
    OK(tarn_event_destroy(event));
}

static void graph_launch(struct worker *worker, const struct place *place, void *graph)
{
    for (uint64_t i = 0, count = below(worker, 4); i < count; i++)
        OK_OR(tarn_host_graph_launch(place->device, graph, place->native),
              MAY(TARN_ERROR_INVALID_ARGUMENT));
    for (int tries = 0; tarn_host_graph_destroy(graph) != TARN_OK && tries < 100; tries++)
        calm();
}

void do_capture(struct worker *worker)
{
    static const tarn_capture_mode modes[] = {TARN_CAPTURE_GLOBAL, TARN_CAPTURE_THREAD_LOCAL,
                                              TARN_CAPTURE_RELAXED};
    int device = (int)below(worker, DEVICES);
    struct place place = {worker->lent[device], worker->native[device], device};
    tarn_pool *pool = below(worker, 2) ? pool_make_virtual(device) : NULL;
    struct blocks inside = {0};
    bool begun = OK_OR(tarn_pool_capture_begin(pool, place.stream, modes[below(worker, 3)]),
                       MAY(TARN_ERROR_BUSY));
    OK(tarn_pool_release(pool));
    if (!begun)
        return;
    for (int i = 0; i < BLOCKS / 2; i++) {
        void *start = NULL;
        inside.size[i] = some_bytes(worker);
        if (!OK(tarn_alloc_on(place.stream, inside.size[i], &start)))
            continue;
        inside.start[i] = start;
        OK(tarn_host_work(device, place.native, start, inside.size[i], below(worker, 5000)));
        if (below(worker, 2)) {
            OK(tarn_free(start));
            inside.start[i] = NULL;
        }
    }
    if (below(worker, 3) == 0)
        capture_fork(worker, device, place.stream);
    bool has_handle = below(worker, 3) == 0;
    if (has_handle)
        handle_in_capture(worker, place.stream);
    if (below(worker, 8) == 0) {
        for (int tries = 0; tries < 100; tries++) {
            tarn_status status = tarn_capture_abort(place.stream);
            if (!status || status == TARN_ERROR_INVALID_ARGUMENT)
                break;
            atomic_fetch_add(&orphans, 1);
            calm();
        }
    } else {
        void *graph = capture_end(place.stream);
        if (graph)
            graph_launch(worker, &place, graph);
    }
    if (has_handle)
        handle_after_capture(place.stream);
    blocks_free(worker, &inside, 2);
}

/* Until the pool runs again. Gives whether it does: the others may have all memory. */
static bool resume(tarn_pool *pool)
{
    tarn_pool_info info = {.size = sizeof info};
    for (int tries = 0; tries < 100 && !atomic_load(&closing); tries++) {
        if (OK_OR(tarn_pool_resume(pool), MAY(TARN_ERROR_CAPTURE) | MAY(TARN_ERROR_SUSPENDED)))
            return true;
        OK(tarn_pool_info_get(pool, &info));
        if (info.state == TARN_POOL_RUNS)
            return true;
        calm();
    }
    return false;
}

void do_suspend(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    struct place place = some_place(worker, device);
    struct blocks blocks;
    bool keep = below(worker, 4) != 0, runs;
    tarn_pool *pool = pool_make_virtual(device);
    tarn_pool_info info = {.size = sizeof info};
    if (!pool)
        return;
    blocks_get(worker, pool, place.stream, &blocks, 0);
    paint(&blocks);
    OK_OR(tarn_pool_suspend(pool, keep), MAY(TARN_ERROR_CAPTURE));
    OK(tarn_pool_info_get(pool, &info));
    runs = info.state == TARN_POOL_RUNS;
    if (!runs) {
        void *start = NULL;
        if (tarn_pool_alloc(pool, place.stream, 1000, &start) == TARN_OK)
            wrong("a suspended pool gave memory");
        OK(tarn_free(blocks.start[0]));
        blocks.start[0] = NULL;
        runs = resume(pool);
    }
    if (runs && (info.state == TARN_POOL_RUNS || keep))
        check_paint(&blocks, "suspended and resumed");
    blocks_free(worker, &blocks, 0);
    OK(tarn_pool_release(pool));
}

static void note_change(const tarn_pool_block *block, bool live, void *user)
{
    struct blocks *blocks = user;
    for (int i = 0; i < BLOCKS; i++)
        if (live && !blocks->start[i]) {
            blocks->start[i] = block->address;
            return;
        } else if (!live && blocks->start[i] == block->address) {
            blocks->start[i] = NULL;
            return;
        }
    wrong("a checkpoint names a block that was not there");
}

void do_checkpoint(struct worker *worker)
{
    int device = (int)below(worker, DEVICES);
    tarn_stream stream = worker->lent[device];
    struct blocks blocks;
    tarn_pool *pool = pool_make_virtual(device);
    tarn_checkpoint *checkpoint = NULL;
    if (!pool)
        return;
    blocks_get(worker, pool, stream, &blocks, 0);
    if (OK(tarn_pool_checkpoint(pool, &checkpoint))) {
        for (int i = 0; i < BLOCKS; i++)
            if (below(worker, 2)) {
                OK(tarn_free(blocks.start[i]));
                blocks.start[i] = NULL;
            }
        OK_OR(tarn_pool_restore(pool, checkpoint, note_change, &blocks),
              MAY(TARN_ERROR_NO_ROOM) | MAY(TARN_ERROR_BUSY));
        OK(tarn_checkpoint_destroy(checkpoint));
    }
    blocks_free(worker, &blocks, 0);
    OK(tarn_pool_release(pool));
}
