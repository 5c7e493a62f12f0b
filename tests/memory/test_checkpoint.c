/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* After PyTorch's TestBlockStateAbsorption (test/test_cuda.py): the state of a pool is taken, and
 * made again later. */
#include "support/host.h"

#include "base/pages.h"
#include "memory/malloc.h"
#include "memory/pool/pool.h"

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
    OK(tarn_pool_blocks_get(pool, state->blocks, MOST, &state->count));
    CHECK(state->count <= MOST);
}

static bool is_same(const struct state *a, const struct state *b)
{
    return a->count == b->count && memcmp(a->blocks, b->blocks, a->count * sizeof *a->blocks) == 0;
}

static size_t made, gone;

static void note(const tarn_pool_block *block, bool live, void *user)
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
    int64_t live = stats_of(0).allocated_bytes[0].current,
            requested = stats_of(0).requested_bytes[0].current;
    restore(empty);
    CHECK(made == 0 && gone == 20 && stats_of(0).allocation[0].current == 0);
    restore(full);
    read_state(&after);
    CHECK(made == 20 && gone == 0 && is_same(&before, &after));
    CHECK(stats_of(0).allocated_bytes[0].current == live &&
          stats_of(0).requested_bytes[0].current == requested);
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
    /* Some of them in the gaps */
    void *others[] = {get(5 * MIB), get(2 * MIB), get(700), get(3000)};
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

static void restore_while_unmapping(const tarn_mapping *range, void *checkpoint)
{
    (void)range;
    GIVES(tarn_pool_restore(pool, checkpoint, NULL, NULL), TARN_ERROR_BUSY);
    CHECK(strstr(tarn_last_error(), "observer"));
}

/* The memory of the block is about to go. */
static void a_callback_restores_nothing(void **unused)
{
    (void)unused;
    tarn_checkpoint *checkpoint = NULL;
    tarn_observer observer;
    begin();
    void *block = get(50 * MIB);
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(block));
    OK(tarn_observer_add(&(tarn_observer_options){.size = sizeof(tarn_observer_options),
                                                  .unmapping = restore_while_unmapping,
                                                  .user = checkpoint},
                         &observer));
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_observer_remove(observer));
    CHECK(ledger_of(0).created == 0 && pool_stats_of(pool).allocated_bytes[0].current == 0);
    OK(tarn_checkpoint_destroy(checkpoint));
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

static tarn_block_info info_of(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(pointer, &info));
    return info;
}

static void blocks_come_back_with_their_tags(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {700, 1000, 40000, 200000, 3 * MIB};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    tarn_checkpoint *checkpoint = NULL;
    tarn_tag tags[COUNT];
    tarn_scope scope;
    void *blocks[COUNT], *others[COUNT];
    begin();
    OK(tarn_scope_begin(pool, TARN_SCOPE_THREAD, 0, &scope));
    for (int i = 0; i < COUNT; i++) {
        char text[] = "tag 0";
        text[4] = (char)('0' + i);
        OK(tarn_tag_intern(text, &tags[i]));
        tarn_alloc_options options = {.size = sizeof options,
                                      .device = TARN_CURRENT_DEVICE,
                                      .stream = streams[0],
                                      .tag = tags[i]};
        OK(tarn_alloc(&options, sizes[i], &blocks[i]));
    }
    OK(tarn_scope_end(scope));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    /* Out of slabs and spans; and then out of what was restored */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++)
            OK(tarn_free(blocks[i]));
        for (int i = 0; i < COUNT; i++)
            others[i] = get(sizes[i]);
        restore(checkpoint);
        for (int i = 0; i < COUNT; i++) {
            tarn_block_info info = info_of(blocks[i]);
            CHECK(info.tag == tags[i] && info.requested == sizes[i] && info.stream == streams[0]);
        }
    }
    (void)others;
    for (int i = 0; i < COUNT; i++)
        OK(tarn_free(blocks[i]));
    for (int i = 0; i < COUNT; i++) { /* what has their memory next has none */
        blocks[i] = get(sizes[i]);
        CHECK(info_of(blocks[i]).tag == 0);
    }
    for (int i = 0; i < COUNT; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_checkpoint_destroy(checkpoint));
    end();
}

/* The end of a lease ends nothing of what was allocated: the stream is the same, whoever has it. */
static void a_lease_ends_between_checkpoint_and_restore(void **unused)
{
    (void)unused;
    tarn_checkpoint *checkpoint = NULL;
    void *block = NULL;
    begin();
    tarn_stream leased = lease(0), again = 0;
    OK(tarn_pool_alloc(pool, leased, 3 * MIB, &block));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_stream_return(leased));
    OK(tarn_pool_restore(pool, checkpoint, note, &made));
    again = lease(0);
    OK(tarn_free(block));
    OK(tarn_pool_restore(pool, checkpoint, note, &made));
    CHECK(info_of(block).stream == again);
    OK(tarn_free(block));
    OK(tarn_stream_return(again));
    OK(tarn_checkpoint_destroy(checkpoint));
    end();
}

/* A block of now that lies where one of then lay is from then on that one: nothing tells them
 * apart. */
static void a_block_at_the_same_place_is_the_recorded_one(void **unused)
{
    (void)unused;
    tarn_checkpoint *checkpoint = NULL;
    tarn_tag tag = 0;
    begin();
    OK(tarn_tag_intern("then", &tag));
    const tarn_alloc_options tagged = {
        .size = sizeof tagged, .stream = streams[0], .pool = pool, .tag = tag};
    void *then = NULL;
    OK(tarn_alloc(&tagged, 3 * MIB, &then));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_free(then));
    CHECK(get(3 * MIB) == then && info_of(then).tag == 0);
    restore(checkpoint);
    CHECK(made == 0 && gone == 0);
    CHECK(info_of(then).tag == tag);
    OK(tarn_free(then));
    CHECK(get(3 * MIB - 100) == then);
    restore(checkpoint); /* that one is another block */
    CHECK(made == 1 && gone == 1);
    CHECK(info_of(then).tag == tag && info_of(then).requested == 3 * MIB);
    OK(tarn_free(then));
    OK(tarn_checkpoint_destroy(checkpoint));
    end();
}

static tarn_stream adopt(void *native)
{
    tarn_stream adopted;
    OK(tarn_stream_adopt(0, native, &adopted));
    return adopted;
}

static struct heap *heap_now(tarn_stream stream)
{
    struct stream *found = NULL;
    OK(stream_find(stream, 0, &found));
    return heap_if_used(&pool_of_public(pool)->store, found);
}

/* Has every unused heap used, so that the next new one is what is retired next. */
static unsigned use_all_heaps(tarn_stream users[], unsigned most)
{
    unsigned count = 0;
    for (void *block; arena_if_used(0)->heaps.unused_first; count++) {
        CHECK(count < most);
        users[count] = adopt(native_made(0));
        OK(tarn_pool_alloc(pool, users[count], 512, &block));
        OK(tarn_free(block));
    }
    return count;
}

/* The heap of a stream that was retired serves another one next: the memory is the pool's and the
 * heap's still, but not the stream's. */
static void a_retired_streams_blocks_do_not_come_back_as_anothers(void **unused)
{
    (void)unused;
    tarn_checkpoint *checkpoint = NULL;
    void *block = NULL, *next = NULL;
    tarn_stream users[64];
    begin();
    for (int again = 0; again < 2; again++) {
        void *native = native_made(0);
        tarn_stream first = adopt(native), second = again ? 0 : adopt(native_made(0));
        CHECK(again || first >> 32 == second >> 32); /* slots of one generation; else this shows
                                                        nothing */
        OK(tarn_pool_alloc(pool, first, 3 * MIB, &block));
        OK(tarn_pool_checkpoint(pool, &checkpoint));
        OK(tarn_free(block));
        unsigned count = use_all_heaps(users, 64);
        const struct heap *heap = heap_now(first);
        OK(tarn_stream_retire(first));
        GIVES(tarn_pool_restore(pool, checkpoint, note, &made), TARN_ERROR_NO_ROOM);
        OK(tarn_pool_trim(pool, 0));
        if (again) /* the same stream of the driver's once more */
            second = adopt(native);
        CHECK(second != first);
        OK(tarn_pool_alloc(pool, second, 3 * MIB, &next));
        CHECK(next == block && heap_now(second) == heap); /* nor else */
        GIVES(tarn_pool_restore(pool, checkpoint, note, &made), TARN_ERROR_NO_ROOM);
        CHECK(strstr(tarn_last_error(), "stream"));
        CHECK(info_of(next).stream == second);
        OK(tarn_free(next));
        GIVES(tarn_pool_restore(pool, checkpoint, note, &made), TARN_ERROR_NO_ROOM);
        GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
        OK(tarn_stream_retire(second));
        while (count > 0)
            OK(tarn_stream_retire(users[--count]));
        OK(tarn_checkpoint_destroy(checkpoint));
        OK(tarn_pool_trim(pool, 0));
    }
    end();
}

/* As a workspace that is made in a capture. */
static void *get_own(size_t size)
{
    void *pointer = NULL;
    tarn_pool_id of;
    struct own wanted = {.captured = true};
    OK(stream_find(streams[0], 0, &wanted.stream));
    OK(tarn_pool_capture_begin(pool, streams[0], TARN_CAPTURE_RELAXED));
    OK(memory_alloc_own(&wanted, size, &of, &pointer));
    OK(tarn_capture_abort(streams[0]));
    return pointer;
}

/* What the library has in a pool is not the program's: large or small, waiting or used, beside
 * blocks that come and go. */
static void blocks_of_the_librarys_own_stay(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {100, 5000, 64 * 1024, 300000, 2 * MIB, 9 * MIB};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    tarn_checkpoint *checkpoint = NULL;
    static struct state before, after;
    void *own[COUNT], *blocks[COUNT];
    begin();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = get(sizes[i]);
        own[i] = get_own(sizes[i]);
    }
    read_state(&before);
    CHECK(before.count == COUNT);
    int64_t live = stats_of(0).allocation[0].current;
    CHECK(live == 2 * COUNT);
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    for (int i = 0; i < COUNT; i += 2)
        OK(tarn_free(blocks[i]));
    OK(tarn_free(own[COUNT - 2]));              /* gone since */
    OK(tarn_record_stream(own[0], streams[1])); /* used by another stream, which only a program's
                                                   block may not be */
    void *more = get_own(7 * MIB);
    for (int i = 0; i < COUNT; i++)
        get(sizes[i] / 2 + 1);
    restore(checkpoint);
    CHECK(gone == made + COUNT / 2);
    read_state(&after);
    CHECK(is_same(&before, &after) && stats_of(0).allocation[0].current == live);
    for (int i = 0; i < COUNT; i++) {
        tarn_block_info info = {.size = sizeof info};
        tarn_status status = tarn_pointer_info_get(own[i], &info);
        CHECK(status == (i == COUNT - 2 ? TARN_ERROR_INVALID_POINTER : TARN_OK));
        CHECK(status || (info.base == own[i] && info.requested == sizes[i]));
    }

    /* The place of one that the library makes later is not there for a program's block; freed, it
     * is, as a block like any other. */
    OK(tarn_free(blocks[4]));
    OK(tarn_free(more));
    void *there = get_own(sizes[4]);
    CHECK(there == blocks[4]);
    GIVES(tarn_pool_restore(pool, checkpoint, note, &made), TARN_ERROR_NO_ROOM);
    OK(memory_free(there));
    CHECK(get(sizes[4]) == there);
    read_state(&after);
    CHECK(is_same(&before, &after));
    free_blocks(&after);
    for (int i = 0; i < COUNT; i++)
        if (i != COUNT - 2)
            OK(memory_free(own[i]));
    OK(tarn_checkpoint_destroy(checkpoint));
    end();
}

struct destroying {
    tarn_checkpoint *checkpoint;
    int gone, back;
};

static void destroy_it(const tarn_pool_block *block, bool live, void *user)
{
    struct destroying *destroying = user;
    CHECK(block->address && block->usable_size >= MIB);
    *(live ? &destroying->back : &destroying->gone) += 1;
    OK(tarn_checkpoint_destroy(destroying->checkpoint));
    destroying->checkpoint = NULL;
}

static void the_callback_may_destroy_the_checkpoint(void **unused)
{
    (void)unused;
    struct destroying destroying = {0};
    struct state state;
    begin();
    void *blocks[3] = {get(MIB), get(2 * MIB), get(3 * MIB)};
    OK(tarn_pool_checkpoint(pool, &destroying.checkpoint));
    for (int i = 0; i < 3; i++)
        OK(tarn_free(blocks[i]));
    (void)get(7 * MIB);
    (void)get(9 * MIB);
    OK(tarn_pool_restore(pool, destroying.checkpoint, destroy_it, &destroying));
    CHECK(destroying.back == 3 && destroying.gone >= 1 && !destroying.checkpoint);
    read_state(&state);
    CHECK(state.count == 3);
    free_blocks(&state);
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
        cmocka_unit_test(a_callback_restores_nothing),
        cmocka_unit_test(random_states_come_back_exactly),
        cmocka_unit_test(blocks_come_back_with_their_tags),
        cmocka_unit_test(a_lease_ends_between_checkpoint_and_restore),
        cmocka_unit_test(a_block_at_the_same_place_is_the_recorded_one),
        cmocka_unit_test(a_retired_streams_blocks_do_not_come_back_as_anothers),
        cmocka_unit_test(blocks_of_the_librarys_own_stay),
        cmocka_unit_test(the_callback_may_destroy_the_checkpoint),
        cmocka_unit_test(without_host_memory_nothing_changes),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
