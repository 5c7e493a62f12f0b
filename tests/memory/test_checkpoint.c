/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* After PyTorch's TestBlockStateAbsorption (test/test_cuda.py): the state of a pool is taken, and made again later. */
#include "support/host.h"

#include "base/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)
#define MOST 400

static tarn_pool *pool;
static tarn_stream streams[2];

static void begin(void)
{
    OK(tarn_pool_create(NULL, &pool));
    streams[0] = lease(0);
    streams[1] = lease(0);
}

static void end(void)
{
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_stream_return(streams[0]));
    OK(tarn_stream_return(streams[1]));
}

static void *get(size_t size)
{
    void *pointer = NULL;
    OK(tarn_pool_alloc(pool, streams[0], size, &pointer));
    return pointer;
}

/* The live blocks of the pool, which a test compares with another time's. */
struct state {
    tarn_pool_block blocks[MOST];
    size_t count;
};

static void read_state(struct state *state)
{
    OK(tarn_pool_blocks(pool, state->blocks, MOST, &state->count));
    CHECK(state->count <= MOST);
}

static bool is_same(const struct state *a, const struct state *b)
{
    return a->count == b->count && memcmp(a->blocks, b->blocks, a->count * sizeof *a->blocks) == 0;
}

static size_t made, gone;

static void note(void *user, const tarn_pool_block *block, bool live)
{
    CHECK(user == &made && block->address);
    live ? made++ : gone++;
}

static void restore(const tarn_checkpoint *checkpoint)
{
    made = gone = 0;
    OK(tarn_pool_restore(pool, checkpoint, note, &made));
    verify(0);
}

static void free_blocks(const struct state *state)
{
    for (size_t i = 0; i < state->count; i++)
        OK(tarn_free(state->blocks[i].address));
}

static void an_empty_state_frees_everything_and_a_full_one_brings_it_back(void **unused)
{
    (void)unused;
    tarn_checkpoint *empty = NULL, *full = NULL;
    static struct state before, after;
    begin();
    OK(tarn_pool_checkpoint(pool, &empty));
    for (int i = 0; i < 20; i++)
        memset(get(1000 * (size_t)(i + 1) * (size_t)(i + 1)), i, 1000);
    OK(tarn_pool_checkpoint(pool, &full));
    read_state(&before);
    int64_t live = stats_of(0).allocated_bytes[0].current, requested = stats_of(0).requested_bytes[0].current;
    restore(empty);
    CHECK(made == 0 && gone == 20 && stats_of(0).allocation[0].current == 0);
    restore(full);
    read_state(&after);
    CHECK(made == 20 && gone == 0 && is_same(&before, &after));
    CHECK(stats_of(0).allocated_bytes[0].current == live && stats_of(0).requested_bytes[0].current == requested);
    for (int i = 0; i < 20; i++) /* the contents nobody has touched */
        for (size_t k = 0; k < before.count; k++)
            if (before.blocks[k].requested == 1000 * (size_t)(i + 1) * (size_t)(i + 1))
                CHECK(*(char *)before.blocks[k].address == i);
    restore(full);
    CHECK(made == 0 && gone == 0);
    free_blocks(&after);
    OK(tarn_checkpoint_destroy(full));
    OK(tarn_checkpoint_destroy(empty));
    OK(tarn_checkpoint_destroy(NULL));
    end();
}

static void blocks_in_the_middle_come_back_where_they_were(void **unused)
{
    (void)unused;
    tarn_checkpoint *checkpoint = NULL;
    static struct state before, after;
    void *blocks[12];
    begin();
    for (int i = 0; i < 12; i++)
        blocks[i] = get(i % 2 ? 3000 : 3 * MIB);
    for (int i = 0; i < 12; i++)
        if (i % 3 != 1)
            OK(tarn_free(blocks[i]));
    read_state(&before);
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    void *others[] = {get(5 * MIB), get(2 * MIB), get(700), get(3000)}; /* some of them in the gaps */
    for (int i = 1; i < 12; i += 3)
        OK(tarn_free(blocks[i]));
    restore(checkpoint);
    CHECK(gone == 4 && made == 4);
    read_state(&after);
    CHECK(is_same(&before, &after));
    for (int i = 0; i < 4; i++)
        GIVES(tarn_free(others[i]), TARN_ERROR_DOUBLE_FREE);
    OK(tarn_free(blocks[1]));
    restore(checkpoint); /* as often as one likes */
    read_state(&after);
    CHECK(made == 1 && is_same(&before, &after));
    free_blocks(&after);
    OK(tarn_checkpoint_destroy(checkpoint));
    end();
}

static void what_a_graph_left_is_found_by_the_next_capture(void **unused)
{
    (void)unused;
    tarn_checkpoint *checkpoint = NULL;
    void *graphs[2], *first = NULL, *second = NULL;
    begin();
    for (int round = 0; round < 2; round++) {
        if (round)
            OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
        else
            OK(tarn_pool_checkpoint(pool, &checkpoint));
        OK(tarn_pool_capture_begin(pool, streams[0], TARN_CAPTURE_RELAXED));
        OK(tarn_alloc_on(streams[0], 30 * MIB, round ? &second : &first));
        OK(tarn_capture_end(streams[0], &graphs[round]));
    }
    CHECK(first == second && ledger_of(0).created == 30 * MIB);
    OK(tarn_free(second));
    OK(tarn_host_graph_destroy(graphs[0]));
    OK(tarn_host_graph_destroy(graphs[1]));
    OK(tarn_checkpoint_destroy(checkpoint));
    end();
}

static void what_is_wrong_is_refused_and_changes_nothing(void **unused)
{
    (void)unused;
    tarn_checkpoint *checkpoint = NULL, *foreign = NULL;
    tarn_pool *other = NULL;
    static struct state before, after;
    begin();
    OK(tarn_pool_create(NULL, &other));
    OK(tarn_pool_checkpoint(other, &foreign));
    void *large = get(50 * MIB), *block = get(1000);
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    read_state(&before);
    GIVES(tarn_pool_restore(pool, foreign, note, &made), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_restore(pool, NULL, note, &made), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_checkpoint(pool, NULL), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_record_stream(block, streams[1]));
    GIVES(tarn_pool_restore(pool, checkpoint, note, &made), TARN_ERROR_BUSY);
    work_on(streams[1], block, 1000, 1000);
    OK(tarn_free(block));
    GIVES(tarn_pool_restore(pool, checkpoint, note, &made), TARN_ERROR_BUSY);
    OK(tarn_device_synchronize(0));
    restore(checkpoint);
    read_state(&after);
    CHECK(is_same(&before, &after));
    OK(tarn_free(large));
    OK(tarn_pool_trim(pool, 0)); /* its memory is gone */
    GIVES(tarn_pool_restore(pool, checkpoint, note, &made), TARN_ERROR_NO_ROOM);
    OK(tarn_free(block));
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_checkpoint_destroy(foreign));
    OK(tarn_pool_release(other));
    end();
}

/* Random blocks on two streams, in a pool that a graph holds, restored to random earlier states. */
static void random_states_come_back_exactly(void **unused)
{
    (void)unused;
    enum { STATES = 6 };
    static struct state states[STATES], now;
    tarn_checkpoint *checkpoints[STATES] = {0};
    uint64_t seed = 77;
    void *graph = NULL;
    begin();
    OK(tarn_pool_capture_begin(pool, streams[0], TARN_CAPTURE_RELAXED));
    OK(tarn_capture_end(streams[0], &graph));
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 30; i++) {
            read_state(&now);
            size_t size = 1 + random_next(&seed) % (random_next(&seed) % 4 ? 40000 : 3 * MIB);
            void *pointer = NULL;
            if (now.count < MOST / 2 && random_next(&seed) % 2)
                OK(tarn_pool_alloc(pool, streams[random_next(&seed) % 2], size, &pointer));
            else if (now.count)
                OK(tarn_free(now.blocks[random_next(&seed) % now.count].address));
        }
        size_t which = random_next(&seed) % STATES;
        if (checkpoints[which] && random_next(&seed) % 2) {
            restore(checkpoints[which]);
            read_state(&now);
            CHECK(is_same(&now, &states[which]));
        } else {
            OK(tarn_checkpoint_destroy(checkpoints[which]));
            OK(tarn_pool_checkpoint(pool, &checkpoints[which]));
            read_state(&states[which]);
        }
    }
    read_state(&now);
    free_blocks(&now);
    for (int i = 0; i < STATES; i++)
        OK(tarn_checkpoint_destroy(checkpoints[i]));
    OK(tarn_host_graph_destroy(graph));
    end();
}

static void without_host_memory_nothing_changes(void **unused)
{
    (void)unused;
    static struct state before, after;
    tarn_checkpoint *checkpoint = NULL;
    begin();
    for (int i = 0; i < 5; i++)
        get(100000 * (size_t)(i + 1));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(get(9 * MIB)));
    void *more = get(20000);
    read_state(&before);
    uint64_t hits = 1, all = 0;
    for (uint64_t nth = 1; hits; nth++) {
        tarn_checkpoint *second = NULL;
        pages_fail(nth, true);
        tarn_status status = tarn_pool_checkpoint(pool, &second);
        if (!status)
            status = tarn_pool_restore(pool, checkpoint, NULL, NULL);
        hits = pages_fail_hits();
        pages_fail(0, false);
        OK(tarn_checkpoint_destroy(second));
        all += hits;
        CHECK(!status || hits);
        read_state(&after);
        CHECK(!status || is_same(&before, &after));
        if (!status)
            break;
    }
    CHECK(all >= 5 && after.count == 5);
    GIVES(tarn_free(more), TARN_ERROR_DOUBLE_FREE);
    free_blocks(&after);
    OK(tarn_checkpoint_destroy(checkpoint));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_state_frees_everything_and_a_full_one_brings_it_back),
        cmocka_unit_test(blocks_in_the_middle_come_back_where_they_were),
        cmocka_unit_test(what_a_graph_left_is_found_by_the_next_capture),
        cmocka_unit_test(what_is_wrong_is_refused_and_changes_nothing),
        cmocka_unit_test(random_states_come_back_exactly),
        cmocka_unit_test(without_host_memory_nothing_changes),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
