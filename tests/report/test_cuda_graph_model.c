/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that allocate, free each other's blocks, suspend pools, and remember and check graphs at
 * random. Each thread knows which of its blocks are gone. A check of its graphs finds these for
 * certain, and no other of its blocks. Structures in the graphs have addresses of other threads'
 * blocks, which are noted while their owners free them. TARN_SEED chooses the sequence. */
#include "report/graph_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define THREADS 4
#define STEPS 1500
#define BLOCKS 24
#define GRAPHS 6

struct block {
    char *start;       /* NULL: none was allocated */
    atomic_bool freed; /* by any thread */
    atomic_bool given; /* another thread may be freeing it */
    bool pooled;       /* of the thread's pool */
};

struct graph {
    cu_graph graph; /* NULL: it was destroyed, and only the executable is left */
    cu_graph_exec exec;
    uint64_t number; /* 0: there is no graph */
    struct block *blocks[BLOCKS];
    int count;
};

struct worker {
    uint64_t state;
    tarn_stream stream;
    tarn_pool *pool;
    struct block *blocks[BLOCKS]; /* never freed: graphs have their addresses */
    struct graph graphs[GRAPHS];
    struct found found;
};

static struct worker workers[THREADS];
static _Atomic(char *) lately[64]; /* addresses of blocks of any thread */
static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *given[256]; /* for any thread to free */
static int given_count;

static uint64_t below(struct worker *worker, uint64_t n)
{
    return random_next(&worker->state) % n;
}

static void take_block(struct worker *worker)
{
    struct block **place = &worker->blocks[below(worker, BLOCKS)];
    if (*place && !atomic_load(&(*place)->freed))
        return;
    struct block *block = calloc(1, sizeof *block);
    CHECK(block);
    static const size_t sizes[] = {512, 4096, 65536, 1 << 20};
    size_t size = sizes[below(worker, 4)];
    block->pooled = below(worker, 4) == 0;
    block->start = block->pooled ? alloc_in(worker->pool, worker->stream, size)
                                 : alloc_on(worker->stream, size);
    atomic_store(&lately[below(worker, 64)], block->start);
    *place = block;
}

static void free_block(struct block *block)
{
    OK(tarn_free(block->start));
    atomic_store(&block->freed, true);
}

/* To be freed by whoever comes first; until then it is a live block. */
static void give_block(struct block *block)
{
    pthread_mutex_lock(&given_lock);
    atomic_store(&block->given, true);
    if (given_count < 256)
        given[given_count++] = block;
    else
        free_block(block);
    pthread_mutex_unlock(&given_lock);
}

static void free_given(void)
{
    pthread_mutex_lock(&given_lock);
    struct block *block = given_count ? given[--given_count] : NULL;
    pthread_mutex_unlock(&given_lock);
    if (block)
        free_block(block);
}

static void drop_block(struct worker *worker)
{
    struct block **place = &worker->blocks[below(worker, BLOCKS)];
    if (!*place || atomic_load(&(*place)->freed))
        return;
    if (!(*place)->pooled && below(worker, 3) == 0)
        give_block(*place);
    else
        free_block(*place);
    *place = NULL;
}

static void destroy(struct graph *graph)
{
    if (graph->graph)
        CU(cu.cuGraphDestroy(graph->graph));
    if (graph->exec)
        CU(cu.cuGraphExecDestroy(graph->exec));
    *graph = (struct graph){0};
}

static void make_graph(struct worker *worker)
{
    struct graph *graph = &worker->graphs[below(worker, GRAPHS)];
    destroy(graph);
    graph->graph = graph_made();
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = worker->blocks[i];
        if (!block || atomic_load(&block->freed) || below(worker, 2))
            continue;
        add_one(graph->graph, block->start);
        graph->blocks[graph->count++] = block;
    }
    const void *fields[8];
    for (int i = 0; i < 8; i++)
        fields[i] = atomic_load(&lately[below(worker, 64)]);
    add_packed(graph->graph, fields, NULL);
    OK(tarn_graph_remember(graph->graph, &graph->number));
    if (below(worker, 2)) {
        CU(cu.cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0));
        CU(cu.cuGraphDestroy(graph->graph));
        graph->graph = NULL;
    }
}

/* Of a block that another thread may be freeing either answer is right. */
static void check_graph(struct worker *worker, struct graph *graph, bool sleeps)
{
    bool before[BLOCKS];
    const tarn_graph_options options = {.size = sizeof options,
                                        .remembered = graph->graph ? 0 : graph->number};
    for (int i = 0; i < graph->count; i++)
        before[i] = atomic_load(&graph->blocks[i]->freed);
    struct found *found = &worker->found;
    found->count = 0;
    found->summary = (tarn_graph_summary){.size = sizeof found->summary};
    OK(tarn_graph_check(graph->graph, &options, note, found, &found->summary));
    CHECK(found->summary.remembered && found->summary.unproven == 0);
    bool listed[BLOCKS] = {false};
    for (size_t i = 0; i < found->count; i++)
        if (found->list[i].node < (size_t)graph->count) {
            CHECK(found->list[i].certainty == TARN_GRAPH_CERTAIN);
            listed[found->list[i].node] = true;
        }
    for (int i = 0; i < graph->count; i++) {
        const struct block *block = graph->blocks[i];
        bool wanted = before[i] || (sleeps && block->pooled);
        CHECK(!wanted || listed[i]);
        CHECK(!listed[i] || wanted || atomic_load(&block->given));
    }
}

static void check_all(struct worker *worker, bool sleeps)
{
    for (int i = 0; i < GRAPHS; i++)
        if (worker->graphs[i].number)
            check_graph(worker, &worker->graphs[i], sleeps);
}

static void sleep_and_wake(struct worker *worker)
{
    if (tarn_pool_suspend(worker->pool, below(worker, 2)))
        return;
    check_all(worker, true);
    OK(tarn_pool_resume(worker->pool));
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    OK(tarn_device_set(0));
    for (int step = 0; step < STEPS; step++)
        switch (below(worker, 16)) {
        case 0:
            make_graph(worker);
            break;
        case 1:
            check_all(worker, false);
            break;
        case 2:
            free_given();
            break;
        case 3:
            destroy(&worker->graphs[below(worker, GRAPHS)]);
            break;
        case 4:
            if (below(worker, 8) == 0)
                sleep_and_wake(worker);
            break;
        case 5:
        case 6:
        case 7:
        case 8:
        case 9:
            drop_block(worker);
            break;
        default:
            take_block(worker);
        }
    for (int i = 0; i < GRAPHS; i++)
        destroy(&worker->graphs[i]);
    for (int i = 0; i < BLOCKS; i++)
        if (worker->blocks[i] && !atomic_load(&worker->blocks[i]->freed))
            free_block(worker->blocks[i]);
    return NULL;
}

static void threads_find_what_is_gone(void)
{
    const char *seed = getenv("TARN_SEED");
    uint64_t number = seed ? strtoull(seed, NULL, 0) : 36;
    pthread_t threads[THREADS];
    host_start_with(1, 512 * MIB);
    cuda_calls_load();
    for (int i = 0; i < THREADS; i++) {
        workers[i].state = (number * THREADS + (uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        workers[i].stream = lease(0);
        workers[i].pool = pool_with((tarn_pool_options){0});
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    while (given_count)
        free_given();
    for (int i = 0; i < THREADS; i++)
        OK(tarn_pool_release(workers[i].pool));
    nothing_is_left(0);
}

int main(void)
{
    setenv("TARN_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {CHILD_TEST(threads_find_what_is_gone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
