/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ten thousand of everything in one run: pools, streams, scopes of each kind, captures, graphs,
 * observers, events, blocks with uses, pools that ended while their blocks live. A random model
 * says what each call gives: which pool serves a request, what a pool has, which ids are found. In
 * between the invariants are checked, and in the end nothing is left. And no call costs more for
 * all the others: its time beside thousands stays near its time beside tens.
 *
 * TARN_CROWD is the number; TARN_SEED the seed. */
#include "support/host.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CROWD 1000
#else
#define CROWD 10000
#endif
#define MEMORY (96 * 1024 * MIB)

static uint64_t random_state;

static size_t below(size_t count)
{
    return count ? (size_t)(random_next(&random_state) % count) : 0;
}

/* The model ------------------------------------------------------------------------------------ */

struct pool {
    tarn_pool *pool; /* NULL: released */
    tarn_pool_id id;
    size_t blocks; /* live */
    bool graph;    /* one holds it, or a capture */
};

struct block {
    void *address;
    size_t pool; /* 0: the default pool */
};

struct stream {
    tarn_stream stream;
    tarn_scope scope; /* a stream scope, or 0 */
    size_t scoped;    /* to this pool */
    size_t captured;  /* by a capture into this pool; 0: none */
    void *graph;      /* of its last capture */
    size_t graph_pool;
};

static size_t crowd;
static struct pool *pools; /* from 1 */
static struct stream *streams;
static struct block *blocks;
static size_t block_count, open_captures;
static tarn_observer *observers;
static tarn_event **events;

static void *room_for(size_t count, size_t size)
{
    void *room = calloc(count, size);
    CHECK(room);
    return room;
}

static void pool_make(size_t i)
{
    OK(tarn_pool_create(NULL, &pools[i].pool));
    pools[i].id = pool_info_of(pools[i].pool).id;
    pools[i].blocks = 0;
}

/* Which pool serves a request of a stream outside the thread's scopes: the newest rule for it. A
 * capture begins only where no scope is. */
static size_t pool_for(const struct stream *stream)
{
    return stream->captured ? stream->captured : stream->scope ? stream->scoped : 0;
}

static void pool_is(const void *address, size_t i)
{
    tarn_block_info info = {.size = sizeof info};
    const tarn_pool_id none = {0, 0}, *id = i ? &pools[i].id : &none;
    OK(tarn_pointer_info_get(address, &info));
    CHECK(info.pool.first == id->first && info.pool.second == id->second);
}

static void allocate(void)
{
    struct stream *stream = &streams[below(crowd)];
    size_t wanted = pool_for(stream);
    if (block_count == 2 * crowd)
        return;
    struct block *block = &blocks[block_count];
    OK(tarn_alloc_on(stream->stream, below(4) ? 1 + below(4096) : 70000, &block->address));
    block->pool = wanted;
    pool_is(block->address, wanted);
    pools[wanted].blocks++;
    block_count++;
}

static void allocate_in_pool(void)
{
    size_t i = 1 + below(crowd);
    struct stream *stream = &streams[below(crowd)];
    if (block_count == 2 * crowd || !pools[i].pool || stream->captured)
        return;
    OK(tarn_pool_alloc(pools[i].pool, stream->stream, 1 + below(4096),
                       &blocks[block_count].address));
    blocks[block_count].pool = i;
    pool_is(blocks[block_count++].address, i);
    pools[i].blocks++;
}

static void use_block(void)
{
    struct stream *stream = &streams[below(crowd)];
    if (block_count && !stream->captured)
        OK(tarn_record_stream(blocks[below(block_count)].address, stream->stream));
}

static void free_block(void)
{
    if (!block_count)
        return;
    size_t i = below(block_count);
    OK(tarn_free(blocks[i].address));
    pools[blocks[i].pool].blocks--;
    blocks[i] = blocks[--block_count];
}

static void find_pool(void)
{
    size_t i = 1 + below(crowd);
    tarn_pool *found = NULL;
    if (pools[i].pool) {
        OK(tarn_pool_find(pools[i].id, &found));
        CHECK(found == pools[i].pool);
        OK(tarn_pool_release(found));
    } else if (!pools[i].graph) {
        GIVES(tarn_pool_find(pools[i].id, &found), TARN_ERROR_INVALID_ARGUMENT);
    }
}

static void count_pool(void)
{
    size_t i = 1 + below(crowd), count = 0;
    if (!pools[i].pool)
        return;
    OK(tarn_pool_blocks_get(pools[i].pool, NULL, 0, &count));
    CHECK(count == pools[i].blocks);
    CHECK(pool_stats_of(pools[i].pool).allocation[0].current == (int64_t)count);
}

static void trim_pool(void)
{
    size_t i = 1 + below(crowd);
    if (pools[i].pool && !open_captures)
        OK(tarn_pool_trim(pools[i].pool, 0));
}

static void suspend_pool(void)
{
    size_t i = 1 + below(crowd);
    if (!pools[i].pool || open_captures)
        return;
    OK(tarn_pool_suspend(pools[i].pool, false));
    OK(tarn_pool_resume(pools[i].pool));
}

static bool is_scoped(size_t i)
{
    for (size_t s = 0; s < crowd; s++)
        if (streams[s].scope && streams[s].scoped == i)
            return true;
    return false;
}

/* Another pool takes the place of one, whose blocks live on. */
static void replace_pool(void)
{
    size_t i = 1 + below(crowd);
    if (pools[i].blocks || pools[i].graph || !pools[i].pool || is_scoped(i))
        return;
    OK(tarn_pool_release(pools[i].pool));
    pool_make(i);
}

static void leave_pool(void)
{
    size_t i = 1 + below(crowd);
    if (!pools[i].pool || pools[i].graph || is_scoped(i) || below(4))
        return;
    OK(tarn_pool_release(pools[i].pool));
    pools[i].pool = NULL;
}

static void scope_stream(void)
{
    struct stream *stream = &streams[below(crowd)];
    size_t i = 1 + below(crowd);
    if (stream->scope) {
        OK(tarn_scope_end(stream->scope));
        GIVES(tarn_scope_end(stream->scope), TARN_ERROR_SCOPE);
        stream->scope = 0;
    } else if (!stream->captured && pools[i].pool) {
        tarn_scope twice = 0;
        OK(tarn_scope_begin(pools[i].pool, TARN_SCOPE_STREAM, stream->stream, &stream->scope));
        GIVES(tarn_scope_begin(pools[i].pool, TARN_SCOPE_STREAM, stream->stream, &twice),
              TARN_ERROR_SCOPE);
        stream->scoped = i;
    }
}

static void scope_thread(void)
{
    size_t i = 1 + below(crowd);
    tarn_scope scope = 0;
    void *block = NULL;
    const struct stream *stream = &streams[below(crowd)];
    if (!pools[i].pool)
        return;
    OK(tarn_scope_begin(pools[i].pool, TARN_SCOPE_THREAD, 0, &scope));
    OK(tarn_alloc_on(stream->stream, 3000, &block));
    pool_is(block, i); /* the newest rule */
    OK(tarn_free(block));
    OK(tarn_scope_end(scope));
}

static void capture(void)
{
    struct stream *stream = &streams[below(crowd)];
    size_t i = 1 + below(crowd);
    if (stream->captured) {
        OK(tarn_capture_end(stream->stream, &stream->graph));
        stream->graph_pool = stream->captured;
        stream->captured = 0;
        open_captures--;
    } else if (stream->graph) {
        OK(tarn_host_graph_destroy(stream->graph));
        stream->graph = NULL;
        pools[stream->graph_pool].graph = false;
    } else if (!stream->scope && pools[i].pool && !pools[i].graph) {
        OK(tarn_pool_capture_begin(pools[i].pool, stream->stream, TARN_CAPTURE_RELAXED));
        GIVES(tarn_pool_capture_begin(pools[i].pool, stream->stream, TARN_CAPTURE_RELAXED),
              TARN_ERROR_CAPTURE);
        stream->captured = i;
        pools[i].graph = true;
        open_captures++;
    }
}

static void change_stream(void)
{
    struct stream *stream = &streams[below(crowd)];
    if (stream->captured || stream->scope || stream->graph)
        return;
    OK(tarn_stream_return(stream->stream));
    OK(tarn_stream_lease(0, 0, &stream->stream));
}

static bool ignore(const tarn_shortage *shortage, void *user)
{
    (void)shortage;
    (void)user;
    return false;
}

static void observe(size_t i)
{
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .device = 0,
                                                  .out_of_memory = ignore},
                         &observers[i]));
}

static void change_observer(void)
{
    size_t i = below(crowd);
    OK(tarn_observer_remove(observers[i]));
    GIVES(tarn_observer_remove(observers[i]), TARN_ERROR_INVALID_ARGUMENT);
    observe(i);
}

static void record_event(void)
{
    const struct stream *stream = &streams[below(crowd)];
    if (!stream->captured)
        OK(tarn_event_record(events[below(crowd)], stream->stream));
}

static void begin_all(void)
{
    pools = room_for(crowd + 1, sizeof *pools);
    streams = room_for(crowd, sizeof *streams);
    blocks = room_for(2 * crowd, sizeof *blocks);
    observers = room_for(crowd, sizeof *observers);
    events = room_for(crowd, sizeof *events);
    for (size_t i = 0; i < crowd; i++) {
        pool_make(i + 1);
        OK(tarn_stream_lease(0, 0, &streams[i].stream));
        observe(i);
        OK(tarn_event_create(0, &events[i]));
    }
}

static void end_all(void)
{
    for (size_t i = 0; i < crowd; i++) {
        struct stream *stream = &streams[i];
        if (stream->captured)
            OK(tarn_capture_end(stream->stream, &stream->graph));
        if (stream->graph)
            OK(tarn_host_graph_destroy(stream->graph));
        if (stream->scope)
            OK(tarn_scope_end(stream->scope));
        OK(tarn_observer_remove(observers[i]));
        tarn_event_destroy(events[i]);
    }
    while (block_count)
        free_block();
    for (size_t i = 1; i <= crowd; i++)
        OK(tarn_pool_release(pools[i].pool));
    for (size_t i = 0; i < crowd; i++)
        OK(tarn_stream_return(streams[i].stream));
}

static void ten_thousand_of_everything(void)
{
    static void (*const operations[])(void) = {
        allocate,     allocate,      allocate,     allocate_in_pool, use_block,
        free_block,   free_block,    find_pool,    count_pool,       trim_pool,
        suspend_pool, replace_pool,  leave_pool,   scope_stream,     scope_stream,
        scope_thread, change_stream, record_event, change_observer};
    const char *number = getenv("TARN_CROWD"), *seed = getenv("TARN_SEED");
    crowd = number ? strtoul(number, NULL, 10) : CROWD;
    random_state = seed ? strtoull(seed, NULL, 10) : 1;
    host_start_with(1, MEMORY);
    begin_all();
    for (size_t step = 0; step < 8 * crowd; step++) {
        operations[below(sizeof operations / sizeof *operations)]();
        /* In the second half captures are open, beside which nothing is trimmed. */
        if (step >= 4 * crowd && step % 4 == 0)
            capture();
        if (step % (4 * crowd) == 0)
            verify(0);
    }
    verify(0);
    end_all();
    nothing_is_left(0);
}

/* Costs ---------------------------------------------------------------------------------------- */

#define FEW 32
#define MANY 4096
#define CALLS 32
#define TIMES 5
#define TRIES 6

static tarn_pool *bystanders[MANY];
static tarn_stream bystander_streams[MANY], own, capturing;
static void *bystander_blocks[MANY], *used;
static tarn_scope bystander_scopes[MANY];
static tarn_observer bystander_observers[MANY];
static size_t pools_present, streams_present;

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void cost_of_a_pool(void)
{
    tarn_pool *pool = NULL;
    void *block = NULL;
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, own, 4096, &block));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
}

static void cost_of_a_look_up(void)
{
    tarn_pool_id id;
    tarn_pool *found = NULL;
    id = pool_info_of(bystanders[below(FEW)]).id;
    OK(tarn_pool_find(id, &found));
    OK(tarn_pool_release(found));
}

static void cost_of_statistics(void)
{
    size_t count = 0;
    (void)pool_stats_of(bystanders[below(FEW)]);
    OK(tarn_pool_blocks_get(bystanders[below(FEW)], NULL, 0, &count));
}

static void cost_of_a_trim(void)
{
    OK(tarn_pool_trim(bystanders[below(FEW)], 0));
}

static void cost_of_a_suspend(void)
{
    tarn_pool *pool = bystanders[below(FEW)];
    OK(tarn_pool_suspend(pool, false));
    OK(tarn_pool_resume(pool));
}

static void cost_of_growth(void)
{
    void *block = NULL;
    OK(tarn_alloc_on(own, 32 * MIB, &block));
}

static void cost_of_a_stream(void)
{
    tarn_stream stream;
    void *block = NULL;
    OK(tarn_stream_adopt(0, native_made(0), &stream));
    OK(tarn_alloc_on(stream, 4096, &block));
    OK(tarn_free(block));
    OK(tarn_stream_retire(stream));
}

static void cost_of_a_use(void)
{
    OK(tarn_record_stream(used, bystander_streams[below(FEW)]));
}

static void cost_of_a_scope(void)
{
    tarn_scope scope;
    OK(tarn_scope_begin(bystanders[below(FEW)], TARN_SCOPE_STREAM, own, &scope));
    OK(tarn_scope_end(scope));
}

static void cost_of_a_scoped_pair(void)
{
    void *block = NULL;
    OK(tarn_alloc_on(bystander_streams[below(FEW)], 4096, &block));
    OK(tarn_free(block));
}

static void cost_of_an_observer(void)
{
    tarn_observer observer;
    const tarn_observer_options options = {
        .size = sizeof options, .device = 0, .out_of_memory = ignore};
    OK(tarn_observer_add(&options, &observer));
    OK(tarn_observer_remove(observer));
}

static void cost_of_a_capture(void)
{
    void *graph = NULL, *block = NULL;
    OK(tarn_pool_capture_begin(bystanders[0], capturing, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(capturing, 4096, &block));
    OK(tarn_free(block));
    OK(tarn_capture_end(capturing, &graph));
    OK(tarn_host_graph_destroy(graph));
}

/* On a stream that has memory in all pools. */
static void cost_of_a_capture_of_theirs(void)
{
    void *graph = NULL;
    OK(tarn_pool_capture_begin(bystanders[0], own, TARN_CAPTURE_RELAXED));
    OK(tarn_capture_end(own, &graph));
    OK(tarn_host_graph_destroy(graph));
}

static const struct {
    const char *name;
    void (*call)(void);
} calls[] = {
    {"a suspend", cost_of_a_suspend},     {"a pool", cost_of_a_pool},
    {"a look-up", cost_of_a_look_up},     {"statistics", cost_of_statistics},
    {"a trim", cost_of_a_trim},           {"growth", cost_of_growth},
    {"a stream", cost_of_a_stream},       {"a use", cost_of_a_use},
    {"a scope", cost_of_a_scope},         {"a pair", cost_of_a_scoped_pair},
    {"an observer", cost_of_an_observer}, {"a capture beside pools", cost_of_a_capture_of_theirs},
    {"a capture", cost_of_a_capture},     {"a pair in a capture", cost_of_a_scoped_pair},
};
enum { COSTS = sizeof calls / sizeof *calls, IN_CAPTURES = COSTS - 2 };

/* What a call may cost beside many: far below 128 times its cost beside few, and far above what the
 * processor's caches make of it. */
static double bound(double few)
{
    return 12 * few + 3;
}

/* The least that a call costs, in processor time of this thread. What else the machine does can
 * only add to it, so it is tried again while it is more than `enough`. */
static double cost(void (*call)(void), double enough)
{
    double best = 0;
    for (int time = 0; time < TIMES || (best >= enough && time < TIMES * TRIES); time++) {
        double start = now_us();
        for (int i = 0; i < CALLS; i++)
            call();
        double each = (now_us() - start) / CALLS;
        best = time == 0 || each < best ? each : best;
    }
    return best;
}

static void measure(size_t from, size_t to, double *costs, const double *beside_few)
{
    for (; from < to; from++)
        costs[from] = cost(calls[from].call, beside_few ? bound(beside_few[from]) : INFINITY);
}

/* Pools with a block each, and observers. */
static void pools_grow(size_t count)
{
    const tarn_observer_options options = {
        .size = sizeof options, .device = 0, .out_of_memory = ignore};
    for (; pools_present < count; pools_present++) {
        OK(tarn_pool_create(NULL, &bystanders[pools_present]));
        OK(tarn_pool_alloc(bystanders[pools_present], own, 4096, &bystander_blocks[pools_present]));
        OK(tarn_observer_add(&options, &bystander_observers[pools_present]));
    }
}

/* Streams with a block each, and scopes of the pools. */
static void streams_grow(size_t count)
{
    for (size_t i = streams_present; i < count; i++) {
        OK(tarn_stream_lease(0, 0, &bystander_streams[i]));
        OK(tarn_record_stream(used, bystander_streams[i]));
        OK(tarn_alloc_on(bystander_streams[i], 4096, &bystander_blocks[i]));
        OK(tarn_scope_begin(bystanders[i], TARN_SCOPE_STREAM, bystander_streams[i],
                            &bystander_scopes[i]));
    }
    streams_present = count;
}

static void capture_begins(size_t from, size_t to)
{
    for (; from < to; from++) {
        OK(tarn_scope_end(bystander_scopes[from]));
        OK(tarn_pool_capture_begin(bystanders[from], bystander_streams[from],
                                   TARN_CAPTURE_RELAXED));
    }
}

/* Growth is compared here, not speed: a cost that grew with the number would be a hundred times as
 * high. */
static void no_call_costs_more_for_all_the_others(void)
{
    double few[COSTS], many[COSTS];
    random_state = 3;
    host_start_with(1, MEMORY);
    own = lease(0);
    capturing = lease(0);
    used = alloc_on(own, 100000);
    pools_grow(FEW);
    streams_grow(FEW);
    measure(0, IN_CAPTURES, few, NULL);
    pools_grow(MANY);
    streams_grow(MANY);
    measure(0, IN_CAPTURES, many, few);
    capture_begins(0, FEW);
    measure(IN_CAPTURES, COSTS, few, NULL);
    capture_begins(FEW, MANY);
    measure(IN_CAPTURES, COSTS, many, few);
    for (size_t i = 0; i < COSTS; i++) {
        printf("%-22s %8.2f us beside %d, %8.2f beside %d\n", calls[i].name, few[i], FEW, many[i],
               MANY);
        fflush(stdout);
        CHECK(many[i] < bound(few[i]));
    }
}

#define GRAPHS 40000 /* so many that a look at each shows */

static void graphs_grow(void **graphs, size_t from, size_t to)
{
    for (; from < to; from++) {
        OK(tarn_pool_capture_begin(bystanders[0], capturing, TARN_CAPTURE_RELAXED));
        OK(tarn_capture_end(capturing, &graphs[from]));
    }
}

/* The end of a capture does not look at all graphs that hold pools. */
static void a_capture_costs_no_more_beside_many_graphs(void)
{
    void **graphs = room_for(GRAPHS, sizeof *graphs);
    host_start_with(1, MEMORY);
    own = lease(0);
    capturing = lease(0);
    pools_grow(1);
    graphs_grow(graphs, 0, FEW);
    double few = cost(cost_of_a_capture, INFINITY);
    graphs_grow(graphs, FEW, GRAPHS);
    double many = cost(cost_of_a_capture, bound(few));
    printf("%-22s %8.2f us beside %d, %8.2f beside %d\n", "a capture", few, FEW, many, GRAPHS);
    fflush(stdout);
    CHECK(many < bound(few));
    for (size_t i = 0; i < GRAPHS; i++)
        OK(tarn_host_graph_destroy(graphs[i]));
    free(graphs);
}

/* Shortages ------------------------------------------------------------------------------------ */

/* The device is full, and one pool helps out. */
static void cost_of_help(void)
{
    void *block = NULL;
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_alloc_on(own, 64 * MIB, &block));
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.pool.second); /* the helper's */
    OK(tarn_free(block));
}

/* A request of the default pool that is short of memory looks at those pools that may help, and not
 * at the others. */
static void help_costs_no_more_beside_pools_that_give_none(void)
{
    host_start_with(1, MEMORY);
    own = lease(0);
    tarn_pool *helper = pool_with((tarn_pool_options){.use_on_oom = true});
    OK(tarn_free(alloc_in(helper, own, 64 * MIB)));
    double costs[2];
    for (int many = 0; many < 2; many++) {
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
        pools_grow(many ? MANY : FEW);
        OK(tarn_device_limit_set(0, (size_t)stats_of(0).reserved_bytes[0].current));
        costs[many] = cost(cost_of_help, many ? bound(costs[0]) : INFINITY);
    }
    printf("%-22s %8.2f us beside %d, %8.2f beside %d\n", "help in a shortage", costs[0], FEW,
           costs[1], MANY);
    fflush(stdout);
    CHECK(costs[1] < bound(costs[0]));
}

/* A request in vain, while what may help is asked: compaction, and pools that help out. */
static void cost_of_a_shortage(void)
{
    void *block = NULL;
    GIVES(tarn_alloc_on(own, 64 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
}

static tarn_pool *of_ranks;

static void cost_of_a_shortage_of_ranks(void)
{
    void *block = NULL;
    GIVES(tarn_pool_alloc(of_ranks, own, 64 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
}

/* Pools that help out, with a block each, and streams of a registrable pool with a free segment. */
static void helpers_grow(size_t count)
{
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (; pools_present < count; pools_present++) {
        tarn_pool *pool = pool_with((tarn_pool_options){.use_on_oom = true});
        bystanders[pools_present] = pool;
        bystander_blocks[pools_present] = alloc_in(pool, own, 4096);
        OK(tarn_pool_limit_set(of_ranks, (pools_present + 1) * 4 * MIB));
        OK(tarn_free(alloc_in(of_ranks, lease(0), 4096)));
    }
    OK(tarn_device_limit_set(0, (size_t)stats_of(0).reserved_bytes[0].current));
}

static void a_shortage_costs_no_more_for_what_might_have_helped(void)
{
    double costs[2], ranks[2];
    host_start_with(1, MEMORY);
    OK(tarn_configuration_set("compaction:on_oom"));
    own = lease(0);
    of_ranks = pool_with((tarn_pool_options){.registrable = true});
    for (int many = 0; many < 2; many++) {
        helpers_grow(many ? MANY : FEW);
        costs[many] = cost(cost_of_a_shortage, many ? bound(costs[0]) : INFINITY);
        ranks[many] = cost(cost_of_a_shortage_of_ranks, many ? bound(ranks[0]) : INFINITY);
    }
    printf("%-22s %8.2f us beside %d, %8.2f beside %d\n", "a shortage", costs[0], FEW, costs[1],
           MANY);
    printf("%-22s %8.2f us beside %d, %8.2f beside %d\n", "of a registrable pool", ranks[0], FEW,
           ranks[1], MANY);
    fflush(stdout);
    CHECK(costs[1] < bound(costs[0]) && ranks[1] < bound(ranks[0]));
}

/* Growth above the threshold, beside streams whose segments are in use. */
static void growth_costs_no_more_while_garbage_is_collected(void)
{
    double costs[2];
    host_start_with(1, MEMORY);
    OK(tarn_configuration_set("segments:plain,garbage_collection_threshold:0.0001"));
    own = lease(0);
    for (int many = 0; many < 2; many++) {
        for (; streams_present < (many ? MANY : FEW); streams_present++)
            bystander_blocks[streams_present] = alloc_on(lease(0), 4096);
        costs[many] = cost(cost_of_growth, many ? bound(costs[0]) : INFINITY);
    }
    printf("%-22s %8.2f us beside %d, %8.2f beside %d\n", "growth with garbage", costs[0], FEW,
           costs[1], MANY);
    fflush(stdout);
    CHECK(costs[1] < bound(costs[0]));
}

/* Sleeps --------------------------------------------------------------------------------------- */

#define SLEEPERS 64
#define STREAMS 1024

/* Of pools that graphs hold, or that a found stream used: before each is unmapped, the whole device
 * is waited for. */
static uint64_t driver_calls_of_a_sleep(size_t count)
{
    tarn_pool *held[SLEEPERS];
    void *held_blocks[SLEEPERS];
    tarn_stream found = 0;
    OK(tarn_stream_find(0, native_made(0), &found));
    for (size_t i = 0; i < count; i++) {
        OK(tarn_pool_create(NULL, &held[i]));
        OK(tarn_pool_alloc(held[i], i % 2 ? found : own, 4096, &held_blocks[i]));
        if (i % 2 == 0)
            OK(tarn_pool_hold(held[i], NULL));
    }
    uint64_t before = all_calls(0);
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_wake());
    uint64_t calls_made = all_calls(0) - before;
    for (size_t i = 0; i < count; i++) {
        if (i % 2 == 0)
            OK(tarn_pool_unhold(held[i]));
        OK(tarn_free(held_blocks[i]));
        OK(tarn_pool_release(held[i]));
    }
    return calls_made;
}

/* A sleep asks and waits for each stream a few times, not once more for each pool. */
static void a_sleep_waits_for_the_device_once(void)
{
    host_start_with(1, MEMORY);
    own = lease(0);
    for (size_t i = 0; i < STREAMS; i++)
        (void)lease(0);
    uint64_t few = driver_calls_of_a_sleep(2), many = driver_calls_of_a_sleep(SLEEPERS);
    fprintf(stderr, "%llu driver calls of a sleep of 2 pools beside %d streams, %llu of %d\n",
            (unsigned long long)few, STREAMS, (unsigned long long)many, SLEEPERS);
    CHECK(many - few < SLEEPERS * 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(ten_thousand_of_everything),
        CHILD_TEST(no_call_costs_more_for_all_the_others),
        CHILD_TEST(a_capture_costs_no_more_beside_many_graphs),
        CHILD_TEST(help_costs_no_more_beside_pools_that_give_none),
        CHILD_TEST(a_shortage_costs_no_more_for_what_might_have_helped),
        CHILD_TEST(growth_costs_no_more_while_garbage_is_collected),
        CHILD_TEST(a_sleep_waits_for_the_device_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
