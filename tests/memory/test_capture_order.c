/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks that several streams of a capture used, and that are given back inside it
 * (graph_capture_record_stream_reuse): never before the graph has the order, and then when memory
 * would grow otherwise. */
#include "support/host.h"

#include "base/pages.h"
#include "driver/driver.h"
#include "driver/host/host.h"
#include "memory/heap/idle/capture_order.h"
#include "memory/pool/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (8192 * MIB)
#define STREAMS 5
#define SIZE (20 * MIB) /* of a block: a piece of its own, so that one more is a growth */

static tarn_stream streams[STREAMS];

static int start(void **state)
{
    (void)state;
    for (int i = 0; i < STREAMS; i++)
        streams[i] = lease(0);
    OK(tarn_configuration_set("graph_capture_record_stream_reuse:True"));
    return 0;
}

static int finish(void **state)
{
    (void)state;
    OK(tarn_configuration_set("all:default"));
    nothing_is_left(0);
    for (int i = 0; i < STREAMS; i++)
        OK(tarn_stream_return(streams[i]));
    return 0;
}

static void follow(tarn_stream behind, tarn_stream ahead)
{
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    OK(tarn_event_record(event, ahead));
    OK(tarn_stream_wait(behind, event));
    OK(tarn_event_destroy(event));
}

static void work(tarn_stream stream)
{
    OK(tarn_host_work(0, native_of(stream), NULL, 0, 10));
}

static void begin(void)
{
    OK(tarn_pool_capture_begin(NULL, streams[0], TARN_CAPTURE_GLOBAL));
}

static void end(void)
{
    void *graph = NULL;
    OK(tarn_capture_end(streams[0], &graph));
    for (int i = 0; i < 3; i++)
        OK(tarn_host_graph_launch(0, graph, native_of(streams[1])));
    OK(tarn_device_synchronize(0));
    OK(tarn_host_graph_destroy(graph));
}

/* A block of the first stream's that those up to `count` use behind it; freed then. */
static void *used_by(unsigned count)
{
    void *block = alloc_on(streams[0], SIZE);
    work(streams[0]);
    for (unsigned i = 1; i < count; i++) {
        follow(streams[i], streams[0]);
        work(streams[i]);
        OK(tarn_record_stream(block, streams[i]));
    }
    OK(tarn_free(block));
    return block;
}

/* Allocates once more on the first stream, and says whether that gave the block. */
static bool comes_back(const void *block)
{
    void *again = alloc_on(streams[0], SIZE);
    OK(tarn_free(again));
    return again == block;
}

/* The first stream goes on behind the others. */
static void join(unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        follow(streams[0], streams[i]);
}

/* ---- By hand ---- */

/* test_graph_capture_reclaim_2_streams and _4_streams: not before the join, not while one is
 * missing, and then at once. */
static void a_block_comes_back_when_all_have_joined(void **state)
{
    (void)state;
    for (unsigned count = 2; count <= STREAMS; count++) {
        begin();
        void *block = used_by(count), *others[STREAMS] = {NULL};
        for (unsigned i = 1; i < count; i++) {
            work(streams[i]); /* what others do later does not matter */
            others[i] = alloc_on(streams[0], SIZE);
            CHECK(others[i] != block);
            work(streams[0]);
            follow(streams[0], streams[i]);
        }
        void *again = alloc_on(streams[0], SIZE);
        CHECK(again == block);
        others[0] = again;
        for (unsigned i = 0; i < count; i++)
            OK(tarn_free(others[i]));
        verify(0);
        end();
    }
}

static void a_join_may_go_round(void **state)
{
    (void)state;
    begin();
    void *block = used_by(2);
    follow(streams[2], streams[1]);
    work(streams[2]);
    follow(streams[3], streams[2]);
    CHECK(!comes_back(block));
    follow(streams[0], streams[3]); /* without a node between: the first's last nodes are two */
    void *again = alloc_on(streams[0], SIZE), *more = alloc_on(streams[0], SIZE);
    CHECK(again == block || more == block);
    OK(tarn_free(again));
    OK(tarn_free(more));
    join(4);
    end();
}

static void a_free_on_another_stream_is_a_use(void **state)
{
    (void)state;
    begin();
    void *block = alloc_on(streams[0], SIZE);
    follow(streams[1], streams[0]);
    work(streams[1]);
    OK(tarn_free_on(block, streams[1]));
    void *other = alloc_on(streams[0], SIZE);
    CHECK(other != block);
    join(2);
    CHECK(comes_back(block));
    OK(tarn_free(other));
    end();
}

/* Only streams of the capture can be proved to be done, and only of what they did inside. */
static void what_the_graph_does_not_know_waits_for_its_end(void **state)
{
    (void)state;
    enum { OFF, USED_BEFORE, OUTSIDE, NOT_ALONE, WITHOUT_A_POOL, CASES };
    for (int which = 0; which < CASES; which++) {
        if (which == OFF)
            OK(tarn_configuration_set("graph_capture_record_stream_reuse:False"));
        tarn_pool *pool = NULL;
        OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 0},
                            &pool));
        void *block = NULL;
        OK(tarn_pool_alloc(pool, streams[0], SIZE, &block));
        if (which == USED_BEFORE)
            OK(tarn_record_stream(block, streams[1]));
        if (which == NOT_ALONE)
            OK(tarn_record_stream(block, streams[2]));
        if (which == WITHOUT_A_POOL) {
            OK(tarn_capture_begin(streams[0], TARN_CAPTURE_GLOBAL));
            OK(tarn_free(block));
            block = alloc_on(streams[0], SIZE);
        } else {
            OK(tarn_pool_capture_begin(pool, streams[0], TARN_CAPTURE_GLOBAL));
        }
        work(streams[0]);
        follow(streams[1], streams[0]);
        work(streams[1]);
        OK(tarn_record_stream(block, streams[1]));
        if (which == OUTSIDE) {
            work_on(streams[3], NULL, 0, 1000000);
            OK(tarn_record_stream(block, streams[3]));
        }
        if (which == NOT_ALONE) {
            follow(streams[2], streams[1]);
            work(streams[2]);
            OK(tarn_record_stream(block, streams[2]));
        }
        OK(tarn_free(block));
        join(which == NOT_ALONE ? 3 : 2);
        CHECK(!comes_back(block));
        end();
        OK(tarn_pool_release(pool));
        OK(tarn_configuration_set("graph_capture_record_stream_reuse:True"));
    }
}

/* A program may set a stream back: what it was behind before, it need not be any more. */
static void a_stream_that_is_set_back_is_behind_less(void **state)
{
    (void)state;
    struct driver_capture capture;
    begin();
    work(streams[0]);
    CHECK(!driver->capture_status(0, native_of(streams[0]), &capture) && capture.node_count == 1);
    driver_node first = capture.nodes[0];
    void *early = used_by(2), *other = alloc_on(streams[0], SIZE);
    join(2);
    work(streams[0]);
    CHECK(comes_back(early)); /* and all that is known of the stream is up to here */
    void *again = alloc_on(streams[0], SIZE);
    CHECK(again == early);
    void *late = used_by(2);
    CHECK(late != early);
    join(2);
    work(streams[0]);
    CHECK(!driver->capture_status(0, native_of(streams[0]), &capture) && capture.node_count == 1);
    driver_node last = capture.nodes[0];
    CHECK(!driver->capture_depend(0, native_of(streams[0]), &first, 1));
    CHECK(!comes_back(late));
    work(streams[0]);
    CHECK(!comes_back(late));
    CHECK(!driver->capture_depend(0, native_of(streams[0]), &last, 1));
    OK(tarn_free(again));
    OK(tarn_free(other));
    void *blocks[4];
    bool found = false;
    for (int i = 0; i < 4; i++) {
        blocks[i] = alloc_on(streams[0], SIZE);
        found = found || blocks[i] == late;
    }
    CHECK(found);
    for (int i = 0; i < 4; i++)
        OK(tarn_free(blocks[i]));
    join(2);
    end();
}

/* More last nodes than are written down: no proof, and no harm. */
static void too_many_last_nodes_are_no_proof(void **state)
{
    (void)state;
    tarn_stream many[POINT_NODES + 2];
    begin();
    void *block = alloc_on(streams[0], SIZE);
    follow(streams[1], streams[0]);
    for (int i = 0; i < POINT_NODES + 2; i++) {
        many[i] = lease(0);
        follow(many[i], streams[0]);
        work(many[i]);
        follow(streams[1], many[i]);
    }
    OK(tarn_record_stream(block, streams[1]));
    OK(tarn_free(block));
    follow(streams[0], streams[1]);
    CHECK(!comes_back(block)); /* neither do the first's own come to be known */
    work(streams[0]);
    CHECK(!comes_back(block));
    end();
    for (int i = 0; i < POINT_NODES + 2; i++)
        OK(tarn_stream_return(many[i]));
}

/* ---- Cost ---- */

static void a_node_is_asked_about_once(void **state)
{
    (void)state;
    enum { ROUNDS = 200, NODES = 20 };
    begin();
    int64_t bytes = 0;
    uint64_t calls = calls_of(0, "node_before");
    for (int i = 0; i < ROUNDS; i++) {
        (void)used_by(3);
        for (int k = 0; k < NODES; k++)
            work(streams[0]);
        join(3);
        bytes = i == 1 ? stats_of(0).reserved_bytes[0].current : bytes;
        CHECK(i < 2 || stats_of(0).reserved_bytes[0].current == bytes);
    }
    calls = calls_of(0, "node_before") - calls;
    CHECK(calls >= ROUNDS && calls <= ROUNDS * (NODES + 3) + 3);
    end();
}

static void small_blocks_come_back_too(void **state)
{
    (void)state;
    begin();
    int64_t bytes = 0;
    for (int i = 0; i < 300; i++) {
        void *blocks[64];
        for (int k = 0; k < 64; k++)
            blocks[k] = alloc_on(streams[0], 40000);
        follow(streams[1], streams[0]);
        work(streams[1]);
        for (int k = 0; k < 64; k++) {
            OK(tarn_record_stream(blocks[k], streams[1]));
            OK(tarn_free(blocks[k]));
        }
        join(2);
        if (i % 100 == 99) /* until then its last nodes are one more each time */
            work(streams[0]);
        bytes = i == 3 ? stats_of(0).reserved_bytes[0].current : bytes;
        CHECK(i < 4 || stats_of(0).reserved_bytes[0].current == bytes);
    }
    verify(0);
    end();
}

/* ---- Failures ---- */

/* Whether the block came back; calls may fail. */
static bool try_a_round(void)
{
    void *block = NULL, *again = NULL;
    bool back = false;
    if (tarn_pool_capture_begin(NULL, streams[0], TARN_CAPTURE_GLOBAL))
        return false;
    tarn_event *event = NULL;
    if (!tarn_alloc_on(streams[0], SIZE, &block) && !tarn_event_create(0, &event)) {
        bool well = !tarn_event_record(event, streams[0]) && !tarn_stream_wait(streams[1], event) &&
                    !tarn_host_work(0, native_of(streams[1]), NULL, 0, 10) &&
                    !tarn_record_stream(block, streams[1]);
        OK(tarn_free(block));
        well = well && !tarn_event_record(event, streams[1]) &&
               !tarn_stream_wait(streams[0], event) &&
               !tarn_host_work(0, native_of(streams[0]), NULL, 0, 10);
        if (well && !tarn_alloc_on(streams[0], SIZE, &again)) {
            back = again == block;
            OK(tarn_free(again));
        }
    } else {
        OK(tarn_free(block));
    }
    (void)tarn_event_destroy(event);
    tarn_capture_state captures = TARN_CAPTURE_ACTIVE;
    while (tarn_capture_abort(streams[0]) &&
           (tarn_capture_state_get(streams[0], &captures, NULL, NULL) ||
            captures != TARN_CAPTURE_NONE))
        ;
    return back;
}

static void a_failed_proof_proves_nothing(void **state)
{
    (void)state;
    CHECK(try_a_round());
    for (int own = 0; own < 2; own++) {
        unsigned without = 0;
        for (uint64_t nth = 1;; nth++) {
            OK(tarn_device_trim(0, 0));
            if (own)
                pages_fail(nth, false);
            else
                OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
            bool back = try_a_round();
            bool hit = own ? pages_fail_hits() : host_fail_hits();
            pages_fail(0, false);
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            without += !back;
            if (!hit)
                break;
            verify(0);
            CHECK(try_a_round()); /* another capture, another chance */
        }
        CHECK(without > 3);
    }
}

/* ---- At random ---- */

#define NODES 512
#define BLOCKS 160

/* What the graph has, by what was asked for: each node with all that it is behind; where each
 * stream stands. */
static struct {
    uint64_t behind[NODES][NODES / 64]; /* itself too */
    driver_node handles[NODES];
    unsigned nodes;
    uint64_t last[STREAMS][NODES / 64]; /* last nodes, as a set */
    bool takes_part[STREAMS];
} graph;

static struct block {
    void *address;
    unsigned owner;
    enum { NEVER, LIVE, FREED } is;
    unsigned users;              /* a bit a stream */
    bool too_many;               /* ... of a user, to be written down */
    bool could;                  /* its owner was behind its users once, and may have got it back
                                    then */
    uint64_t needed[NODES / 64]; /* last nodes of its users when it was freed */
} blocks[BLOCKS];
static unsigned block_count;

/* All that the next node of a stream would be behind. */
static void reach(unsigned stream, uint64_t set[NODES / 64])
{
    memset(set, 0, sizeof graph.last[0]);
    for (unsigned node = 0; node < graph.nodes; node++)
        if (graph.last[stream][node / 64] >> node % 64 & 1)
            for (unsigned i = 0; i < NODES / 64; i++)
                set[i] |= graph.behind[node][i];
}

static void model_work(unsigned stream)
{
    struct driver_capture capture;
    if (graph.nodes == NODES)
        return;
    work(streams[stream]);
    CHECK(!driver->capture_status(0, native_of(streams[stream]), &capture) &&
          capture.node_count == 1);
    unsigned node = graph.nodes++;
    graph.handles[node] = capture.nodes[0];
    reach(stream, graph.behind[node]);
    graph.behind[node][node / 64] |= (uint64_t)1 << node % 64;
    memset(graph.last[stream], 0, sizeof graph.last[stream]);
    graph.last[stream][node / 64] = (uint64_t)1 << node % 64;
}

static void model_follow(unsigned behind, unsigned ahead)
{
    follow(streams[behind], streams[ahead]);
    graph.takes_part[behind] = true;
    for (unsigned i = 0; i < NODES / 64; i++)
        graph.last[behind][i] |= graph.last[ahead][i];
}

static void model_set_back(unsigned stream, uint64_t *random)
{
    driver_node nodes[2];
    size_t count = graph.nodes ? 1 + random_next(random) % 2 : 0;
    memset(graph.last[stream], 0, sizeof graph.last[stream]);
    for (size_t i = 0; i < count; i++) {
        unsigned node = (unsigned)(random_next(random) % graph.nodes);
        nodes[i] = graph.handles[node];
        graph.last[stream][node / 64] |= (uint64_t)1 << node % 64;
    }
    CHECK(!driver->capture_depend(0, native_of(streams[stream]), nodes, count));
}

static bool may_come_back(const struct block *block, const uint64_t reached[NODES / 64])
{
    for (unsigned i = 0; i < NODES / 64; i++)
        if (block->needed[i] & ~reached[i])
            return false;
    return true;
}

/* The block that begins at an address: there must be none that is live, or that the stream is not
 * behind. Where one could come back, one does. */
static void model_alloc(unsigned stream)
{
    uint64_t reached[NODES / 64];
    struct block *found = NULL;
    bool could = false;
    reach(stream, reached);
    void *address = alloc_on(streams[stream], SIZE);
    for (unsigned i = 0; i < block_count; i++) {
        struct block *block = &blocks[i];
        bool can = block->is == FREED && !block->too_many && block->owner == stream &&
                   may_come_back(block, reached);
        could = could || can;
        block->could = block->could || can;
        if (block->address != address)
            continue;
        CHECK(block->is == FREED && block->owner == stream && block->could);
        found = block;
    }
    CHECK(found || !could);
    if (!found)
        found = &blocks[block_count++];
    *found = (struct block){.address = address, .owner = stream, .is = LIVE};
}

static void model_free(struct block *block)
{
    for (unsigned stream = 0; stream < STREAMS; stream++) {
        int last = 0;
        for (unsigned i = 0; block->users >> stream & 1 && i < NODES / 64; i++) {
            block->needed[i] |= graph.last[stream][i];
            last += __builtin_popcountll(graph.last[stream][i]);
        }
        block->too_many = block->too_many || last > POINT_NODES;
    }
    block->is = FREED;
    OK(tarn_free(block->address));
}

static void model_step(uint64_t *random)
{
    unsigned stream = (unsigned)(random_next(random) % STREAMS),
             other = (unsigned)(random_next(random) % STREAMS);
    struct block *block = block_count ? &blocks[random_next(random) % block_count] : NULL;
    if (!graph.takes_part[stream])
        return;
    switch (random_next(random) % 16) {
    case 0:
    case 1:
    case 2:
        model_work(stream);
        break;
    case 3:
    case 4:
    case 5:
        if (stream != other)
            model_follow(other, stream);
        break;
    case 6:
        if (random_next(random) % 8 == 0)
            model_set_back(stream, random);
        break;
    case 7:
    case 8:
    case 9:
        if (block_count < BLOCKS)
            model_alloc(stream);
        break;
    case 10:
    case 11:
        if (block && block->is == LIVE && block->owner != stream) {
            OK(tarn_record_stream(block->address, streams[stream]));
            block->users |= 1u << stream;
        }
        break;
    default:
        if (block && block->is == LIVE)
            model_free(block);
    }
}

static void forks_and_joins_at_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        uint64_t random = seed * 0x9e3779b97f4a7c15u;
        memset(&graph, 0, sizeof graph);
        block_count = 0;
        graph.takes_part[0] = true;
        begin();
        for (int i = 0; i < 500; i++)
            model_step(&random);
        for (unsigned i = 0; i < block_count; i++)
            if (blocks[i].is == LIVE)
                OK(tarn_free(blocks[i].address));
        OK(tarn_capture_abort(streams[0])); /* who was set back is not joined */
        verify(0);
        nothing_is_left(0);
    }
}

#define ORDER_TEST(function) cmocka_unit_test_setup_teardown(function, start, finish)

int main(void)
{
    host_start_with(1, MEMORY);
    const struct CMUnitTest tests[] = {
        ORDER_TEST(a_block_comes_back_when_all_have_joined),
        ORDER_TEST(a_join_may_go_round),
        ORDER_TEST(a_free_on_another_stream_is_a_use),
        ORDER_TEST(what_the_graph_does_not_know_waits_for_its_end),
        ORDER_TEST(a_stream_that_is_set_back_is_behind_less),
        ORDER_TEST(too_many_last_nodes_are_no_proof),
        ORDER_TEST(a_node_is_asked_about_once),
        ORDER_TEST(small_blocks_come_back_too),
        ORDER_TEST(a_failed_proof_proves_nothing),
        ORDER_TEST(forks_and_joins_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
