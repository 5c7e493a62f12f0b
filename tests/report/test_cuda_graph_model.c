/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that allocate, free each other's blocks, suspend pools, commit and decommit pages of
 * ranges, import and close, and remember and check graphs at random. Each thread keeps a book of
 * what is gone: of its blocks, pages and imports. A check of its graphs finds these, as certain as
 * their nodes make them, and no other of them. Structures in the graphs have addresses of other
 * threads' blocks, which are noted while their owners free them. TARN_SEED chooses the sequence. */
#include "report/graph_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <tarn/range.h>
#include <tarn/share.h>
#include <unistd.h>

#define THREADS 4
#define STEPS 1500
#define BLOCKS 24
#define GRAPHS 6
#define PAGES 6
#define IMPORTS 3
#define PLACES (PAGES + IMPORTS)

struct block {
    char *start;       /* NULL: none was allocated */
    atomic_bool freed; /* by any thread */
    atomic_bool given; /* another thread may be freeing it */
    bool pooled;       /* of the thread's pool */
};

/* A page of the thread's range, or one of its imports. */
struct place {
    char *start;
    uint64_t turn; /* how often it has ended */
    bool there;    /* it is committed, or imported */
};

/* How a node refers to a place. */
enum way { AS_A_PARAMETER, AS_A_TARGET, IN_A_STRUCTURE };

/* A node with a place's address, and what the place was when the graph was remembered. */
struct outside_use {
    const struct place *place;
    struct place then;
    enum way way;
};

struct graph {
    cu_graph graph; /* NULL: it was destroyed, and only the executable is left */
    cu_graph_exec exec;
    uint64_t number; /* 0: there is no graph */
    struct block *blocks[BLOCKS];
    int count;
    struct outside_use uses[PLACES]; /* the nodes behind those of blocks and the structure */
    int use_count;
};

struct worker {
    uint64_t state;
    tarn_stream stream;
    tarn_pool *pool;
    struct block *blocks[BLOCKS]; /* never freed: graphs have their addresses */
    struct graph graphs[GRAPHS];
    tarn_range *range;
    struct place places[PLACES]; /* the pages of the range, and the imports */
    char *exported[IMPORTS];     /* blocks, and their shares */
    tarn_share *shares[IMPORTS];
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

/* ---- Pages and imports ---- */

static void range_begin(struct worker *worker)
{
    tarn_range_info info = {.size = sizeof info};
    OK(tarn_range_create(NULL, (size_t)PAGES * 2 * MIB, &worker->range));
    OK(tarn_range_info_get(worker->range, &info));
    CHECK(info.page == 2 * MIB);
    for (int i = 0; i < PAGES; i++)
        worker->places[i].start = (char *)info.address + (size_t)i * info.page;
}

static void flip_page(struct worker *worker, int index)
{
    struct place *page = &worker->places[index];
    size_t offset = (size_t)index * 2 * MIB;
    if (page->there)
        OK(tarn_range_decommit(worker->range, offset, 2 * MIB, worker->stream));
    else
        OK(tarn_range_commit(worker->range, offset, 2 * MIB, worker->stream));
    page->turn += page->there;
    page->there = !page->there;
}

static void flip_import(struct worker *worker, int index)
{
    struct place *import = &worker->places[PAGES + index];
    if (import->there)
        OK(tarn_import_close(import->start));
    else
        OK(tarn_import(worker->shares[index], 0, (void **)&import->start));
    import->turn += import->there;
    import->there = !import->there;
}

/* Ends all pages, and often begins a range in the same place. */
static void replace_range(struct worker *worker)
{
    for (int i = 0; i < PAGES; i++)
        if (worker->places[i].there)
            flip_page(worker, i);
    OK(tarn_range_destroy(worker->range));
    range_begin(worker);
}

static void flip(struct worker *worker)
{
    int index = (int)below(worker, PLACES);
    if (index >= PAGES)
        flip_import(worker, index - PAGES);
    else if (below(worker, 16))
        flip_page(worker, index);
    else
        replace_range(worker);
}

/* The share of a block, as another process has it. */
static tarn_share *sent(char *block)
{
    int sockets[2];
    tarn_share *share, *received;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    OK(tarn_export(block, &share));
    OK(tarn_share_send(sockets[0], share));
    OK(tarn_share_receive(sockets[1], &received));
    OK(tarn_share_close(share));
    CHECK(close(sockets[0]) == 0 && close(sockets[1]) == 0);
    return received;
}

static void places_begin(struct worker *worker)
{
    range_begin(worker);
    for (int i = 0; i < IMPORTS; i++) {
        worker->exported[i] = alloc_on(worker->stream, 2 * MIB);
        worker->shares[i] = sent(worker->exported[i]);
    }
}

static void places_end(struct worker *worker)
{
    for (int i = 0; i < PAGES; i++)
        if (worker->places[i].there)
            flip_page(worker, i);
    for (int i = 0; i < IMPORTS; i++) {
        if (worker->places[PAGES + i].there)
            flip_import(worker, i);
        OK(tarn_share_close(worker->shares[i]));
        OK(tarn_free(worker->exported[i]));
    }
    OK(tarn_range_destroy(worker->range));
}

static void add_use(struct worker *worker, struct graph *graph, const struct place *place)
{
    const void *fields[8] = {place->start};
    /* a structure's field without memory, then and later, is no finding: no book tells that */
    enum way way = (enum way)below(worker, place->there ? 3 : 2);
    if (way == AS_A_PARAMETER)
        add_one(graph->graph, place->start);
    else if (way == AS_A_TARGET)
        add_fill(graph->graph, place->start, 64);
    else
        add_packed(graph->graph, fields, NULL);
    graph->uses[graph->use_count++] = (struct outside_use){place, *place, way};
}

/* What the book says of a node. */
static tarn_graph_certainty certainty_by_book(const struct outside_use *use)
{
    static const tarn_graph_certainty of_gone[] = {[AS_A_PARAMETER] = TARN_GRAPH_LIKELY,
                                                   [AS_A_TARGET] = TARN_GRAPH_CERTAIN,
                                                   [IN_A_STRUCTURE] = TARN_GRAPH_PERHAPS};
    bool lasts = use->then.there && use->place->there && use->place->turn == use->then.turn;
    return lasts ? TARN_GRAPH_NO_FINDING : of_gone[use->way];
}

/* Whether what was found at a node is what the book says; NULL: nothing was. */
static void check_use(const struct outside_use *use, const tarn_graph_reference *it)
{
    CHECK((it ? it->certainty : TARN_GRAPH_NO_FINDING) == certainty_by_book(use));
    if (!it)
        return;
    CHECK(it->address == use->then.start && !it->block && it->state != TARN_GRAPH_LIVE);
    if (use->place->there && use->place->start == use->then.start)
        CHECK(it->state == TARN_GRAPH_CHANGED); /* the same place again */
}

static void check_uses(const struct graph *graph, const struct found *found)
{
    const tarn_graph_reference *by_use[PLACES] = {NULL};
    size_t first = (size_t)graph->count + 1;
    for (size_t i = 0; i < found->count; i++)
        if (found->list[i].node >= first) {
            CHECK(found->list[i].node - first < (size_t)graph->use_count);
            CHECK(!by_use[found->list[i].node - first]);
            by_use[found->list[i].node - first] = &found->list[i];
        }
    for (int i = 0; i < graph->use_count; i++)
        check_use(&graph->uses[i], by_use[i]);
}

/* The summary adds up what was told. */
static void check_sums(const struct found *found)
{
    size_t count[TARN_GRAPH_CERTAIN + 1] = {0};
    const tarn_graph_summary *summary = &found->summary;
    for (size_t i = 0; i < found->count; i++)
        count[found->list[i].certainty]++;
    CHECK(summary->certain == count[TARN_GRAPH_CERTAIN] && count[TARN_GRAPH_NO_FINDING] == 0);
    CHECK(summary->likely == count[TARN_GRAPH_LIKELY]);
    CHECK(summary->perhaps == count[TARN_GRAPH_PERHAPS] && summary->unseen == 0);
    CHECK(summary->verdict == (found->count ? TARN_GRAPH_SUSPICIOUS : TARN_GRAPH_CLEAN));
}

/* ---- Graphs ---- */

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
    /* the place of a closed import may be another thread's by now */
    for (int i = 0; i < PLACES; i++)
        if ((i < PAGES || worker->places[i].there) && below(worker, 2))
            add_use(worker, graph, &worker->places[i]);
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
    check_uses(graph, found);
    check_sums(found);
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
        switch (below(worker, 18)) {
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
            flip(worker);
            break;
        case 7:
        case 8:
        case 9:
        case 10:
        case 11:
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
    places_end(worker);
    return NULL;
}

static void threads_find_what_is_gone(void)
{
    const char *seed = getenv("TARN_SEED");
    uint64_t number = seed ? strtoull(seed, NULL, 0) : 36;
    pthread_t threads[THREADS];
    host_start_with(1, 1024 * MIB);
    cuda_calls_load();
    OK(tarn_export_enable(0));
    for (int i = 0; i < THREADS; i++) {
        workers[i].state = (number * THREADS + (uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        workers[i].stream = lease(0);
        workers[i].pool = pool_with((tarn_pool_options){0});
        places_begin(&workers[i]);
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
