/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn_graph_remember() on the simulated libcuda: each way in which a watched block ends, and those
 * in which it does not; what is remembered of graphs that are gone; TARN_DEBUG=graphs. Each in a
 * child, as the settings are read once. */
#include "report/graph/graph.h"
#include "report/graph_test.h"
#include "support/snapshots.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/debug.h>
#include <unistd.h>

static struct found found;
static tarn_stream stream;

static void begin(void)
{
    if (!stream) {
        host_start_with(1, 1024 * MIB);
        cuda_calls_load();
        stream = lease(0);
    }
}

static void run_here(void **state)
{
    const struct child_test *test = *state;
    test->function();
}
#define HERE(function) \
    ((struct CMUnitTest){#function, run_here, NULL, NULL, &(struct child_test){function}})

static uint64_t remembered(void *graph)
{
    uint64_t number = 0;
    OK(tarn_graph_remember(graph, &number));
    CHECK(number);
    return number;
}

/* As before a launch of an executable, of which the graph may be gone. */
static void check_number(uint64_t number, bool all)
{
    const tarn_graph_options options = {.size = sizeof options, .all = all, .remembered = number};
    found.count = 0;
    found.summary = (tarn_graph_summary){.size = sizeof found.summary};
    OK(tarn_graph_check(NULL, &options, note, &found, &found.summary));
}

static void is_clean(uint64_t number)
{
    check_number(number, false);
    CHECK(found.count == 0 && found.summary.verdict == TARN_GRAPH_CLEAN);
    CHECK(found.summary.remembered && found.summary.unproven == 0);
}

static void is_certain(uint64_t number, const void *address, tarn_graph_state state)
{
    check_number(number, false);
    const tarn_graph_reference *it = finding(&found, address);
    CHECK(it && it->certainty == TARN_GRAPH_CERTAIN && it->state == state);
    CHECK(found.summary.verdict == TARN_GRAPH_SUSPICIOUS);
}

static cu_graph graph_of(const void *address)
{
    cu_graph graph = graph_made();
    add_one(graph, address);
    return graph;
}

static cu_graph_exec executable(cu_graph graph)
{
    cu_graph_exec exec = NULL;
    CU(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* ---- Ends ---- */

/* The same place, size, tag and stream, and no trace. */
static void another_block_in_the_place_is_seen(void)
{
    begin();
    for (size_t size = 512; size <= 4 * MIB; size *= 16) {
        char *input = alloc_on(stream, size);
        cu_graph graph = graph_of(input);
        uint64_t number = remembered(graph);
        is_clean(number);
        OK(tarn_free(input));
        is_certain(number, input, TARN_GRAPH_FREE);
        CHECK(alloc_at(stream, size, input));
        is_certain(number, input, TARN_GRAPH_CHANGED);
        check_into(&found, graph, false);
        CHECK(found.summary.certain == 1);
        CU(cu.cuGraphDestroy(graph));
        OK(tarn_free(input));
    }
}

static char *freed;

static void *frees(void *argument)
{
    (void)argument;
    OK(tarn_free(freed));
    return NULL;
}

static void *remembers(void *graph)
{
    (void)remembered(graph);
    return NULL;
}

static void in_a_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void frees_of_all_kinds_are_seen(void)
{
    begin();
    tarn_stream other = lease(0);
    tarn_event *event;
    OK(tarn_event_create(0, &event));
    for (int way = 0; way < 5; way++)
        for (size_t size = 512; size <= 4 * MIB; size *= 64) {
            char *input = alloc_on(stream, size);
            cu_graph graph = graph_of(input);
            uint64_t number = remembered(graph);
            freed = input;
            switch (way) {
            case 0:
                in_a_thread(frees, NULL);
                break;
            case 1:
                OK(tarn_free_on(input, other));
                break;
            case 2:
                OK(tarn_event_record(event, other));
                OK(tarn_free_after(input, event));
                break;
            case 3:
                OK(tarn_record_stream(input, other));
                OK(tarn_record_stream(input, stream));
                is_clean(number);
                OK(tarn_free(input));
                break;
            default:
                OK(tarn_trace_start(NULL));
                OK(tarn_free(input));
                OK(tarn_trace_stop());
            }
            is_certain(number, input, TARN_GRAPH_FREE);
            CU(cu.cuGraphDestroy(graph));
            OK(tarn_stream_synchronize(stream));
            OK(tarn_stream_synchronize(other));
            verify(0);
        }
    OK(tarn_event_destroy(event));
    nothing_is_left(0);
}

/* Blocks of this thread's cache, which another thread remembers. */
static void blocks_of_other_threads_are_watched(void)
{
    begin();
    char *small[8];
    cu_graph graph = graph_made();
    for (int i = 0; i < 8; i++) {
        small[i] = alloc_on(stream, 512);
        add_one(graph, small[i]);
    }
    in_a_thread(remembers, graph);
    for (int i = 0; i < 8; i++) {
        OK(tarn_free(small[i]));
        check_into(&found, graph, false);
        CHECK(found.summary.remembered && found.summary.certain == (size_t)i + 1);
        CHECK(finding(&found, small[i]));
    }
    CU(cu.cuGraphDestroy(graph));
    verify(0);
}

static void other_blocks_take_the_fast_path(void)
{
    begin();
    char *watched = alloc_on(stream, 512), *other = alloc_on(stream, 512);
    cu_graph graph = graph_of(watched);
    uint64_t number = remembered(graph);
    for (int i = 0; i < 100; i++) {
        OK(tarn_free(other));
        CHECK(alloc_on(stream, 512) == other);
    }
    is_clean(number);
    GIVES(tarn_free(watched + 8), TARN_ERROR_INVALID_POINTER);
    is_clean(number);
    OK(tarn_free(watched));
    GIVES(tarn_free(watched), TARN_ERROR_DOUBLE_FREE);
    is_certain(number, watched, TARN_GRAPH_FREE);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_free(other));
}

/* Several graphs share what is noted of a block, and a note outlives the graph. */
static void graphs_come_and_go(void)
{
    begin();
    char *input = alloc_on(stream, MIB);
    cu_graph first = graph_of(input), second = graph_of(input);
    uint64_t numbers[] = {remembered(first), remembered(second), remembered(second)};
    CHECK(numbers[0] < numbers[1] && numbers[1] < numbers[2]);
    CU(cu.cuGraphDestroy(first));
    const tarn_graph_options gone = {.size = sizeof gone, .remembered = numbers[0]};
    GIVES(tarn_graph_check(NULL, &gone, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    is_clean(numbers[1]);
    OK(tarn_free(input));
    is_certain(numbers[1], input, TARN_GRAPH_FREE);
    is_certain(numbers[2], input, TARN_GRAPH_FREE);
    CU(cu.cuGraphDestroy(second));
    input = alloc_on(stream, MIB);
    first = graph_of(input);
    (void)remembered(first);
    CU(cu.cuGraphDestroy(first));
    OK(tarn_free(input)); /* it is noted, and nobody asks any more */
    nothing_is_left(0);
}

/* ---- What does not end ---- */

static void a_pool_that_sleeps_has_no_memory(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    char *input = alloc_in(pool, stream, MIB), *small = alloc_in(pool, stream, 512);
    cu_graph graph = graph_of(input);
    add_one(graph, small);
    uint64_t number = remembered(graph);
    for (int i = 0; i < 2; i++) {
        is_clean(number);
        OK(tarn_pool_suspend(pool, i));
        is_certain(number, input, TARN_GRAPH_UNMAPPED);
        is_certain(number, small, TARN_GRAPH_UNMAPPED);
        check_into(&found, graph, false);
        CHECK(found.summary.certain == 2);
        OK(tarn_pool_resume(pool));
        is_clean(number);
    }
    OK(tarn_pool_suspend(pool, false));
    OK(tarn_free(input));
    OK(tarn_pool_resume(pool));
    is_certain(number, input, TARN_GRAPH_FREE);
    CHECK(found.summary.certain == 1);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_free(small));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_restore_ends_what_it_does_not_bring_back(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    tarn_checkpoint *checkpoint;
    char *kept = alloc_in(pool, stream, MIB), *small = alloc_in(pool, stream, 512);
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    char *late = alloc_in(pool, stream, MIB);
    cu_graph graph = graph_made();
    add_one(graph, kept);
    add_one(graph, small);
    add_one(graph, late);
    uint64_t number = remembered(graph);
    is_clean(number);
    for (int i = 0; i < 2; i++) {
        OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
        check_number(number, false);
        CHECK(found.summary.certain == 1 && finding(&found, late));
    }
    OK(tarn_free(kept));
    OK(tarn_free(small));
    check_number(number, false);
    CHECK(found.summary.certain == 3);
    OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    check_number(number, false); /* they are others now */
    CHECK(found.summary.certain == 3);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_free(kept));
    OK(tarn_free(small));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A begin and end pair, captured before a block grew and after: neither end is the start of what
 * lies, or lay, behind it. Findings have the size that the block had last. */
static void blocks_that_grow_end_where_they_ended_at_the_capture(void)
{
    begin();
    char *input = alloc_on(stream, 2 * MIB), *gap = alloc_on(stream, 2 * MIB),
         *next = alloc_on(stream, 2 * MIB);
    CHECK(gap == input + 2 * MIB && next == gap + 2 * MIB);
    cu_graph small = graph_made(), large = graph_made();
    struct survey_graph rows[2];
    add_three(small, input, gap);
    uint64_t first = remembered(small);
    OK(tarn_free(gap));
    OK(tarn_extend(input, 4 * MIB));
    add_three(large, input, next);
    uint64_t second = remembered(large);
    is_clean(second);
    CHECK(remembered_sum_up(rows, 2) == 2 && rows[1].bytes == 6 * MIB);
    OK(tarn_free(next));
    check_number(second, false);
    CHECK(found.count == 1 && found.list[0].certainty == TARN_GRAPH_LIKELY);
    check_number(first, false);
    CHECK(found.count == 1 && found.list[0].certainty == TARN_GRAPH_LIKELY);
    CHECK(found.list[0].address == gap && found.list[0].state == TARN_GRAPH_CHANGED);
    OK(tarn_free(input));
    is_certain(first, input, TARN_GRAPH_FREE);
    CHECK(finding(&found, input)->requested == 4 * MIB);
    CU(cu.cuGraphDestroy(small));
    CU(cu.cuGraphDestroy(large));
    nothing_is_left(0);
}

static void check_again(const tarn_graph_reference *reference, void *number)
{
    tarn_graph_summary summary = {.size = sizeof summary};
    const tarn_graph_options options = {.size = sizeof options, .remembered = *(uint64_t *)number};
    CHECK(reference->certainty == TARN_GRAPH_PERHAPS);
    OK(tarn_graph_check(NULL, &options, NULL, NULL, &summary));
    CHECK(summary.references == 9 && summary.perhaps == 1);
}

static void is_perhaps(uint64_t number, const void *address, tarn_graph_state state)
{
    check_number(number, false);
    CHECK(found.count == 1 && found.summary.perhaps == 1 && found.summary.references == 9);
    CHECK(found.list[0].address == address && found.list[0].state == state);
    CHECK(found.list[0].node == 4 && found.list[0].block == address);
}

static size_t open_words(uint64_t number)
{
    struct remembered *used = remembered_use(NULL, number);
    size_t count = used->verdicts.open_count;
    remembered_leave(used);
    return count;
}

/* A graph with a finding: only that is looked at again, and what is told stays right. */
static void a_check_with_findings_is_cheap_and_right(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    char *input[8], *gone = alloc_in(pool, stream, 4 * MIB);
    cu_graph graph = graph_made();
    const void *fields[8] = {gone};
    for (int i = 0; i < 8; i++) {
        if (i == 4)
            add_packed(graph, fields, NULL);
        add_one(graph, input[i] = alloc_on(stream, 512));
    }
    uint64_t number = remembered(graph);
    is_clean(number);
    CHECK(found.summary.references == 9 && open_words(number) == 0);
    OK(tarn_free(gone));
    for (int i = 0; i < 3; i++) {
        is_perhaps(number, gone, TARN_GRAPH_FREE);
        CHECK(open_words(number) == 1);
    }
    CHECK(alloc_in(pool, stream, 4 * MIB) == gone);
    is_perhaps(number, gone, TARN_GRAPH_CHANGED);
    OK(tarn_free(gone));
    is_perhaps(number, gone, TARN_GRAPH_FREE);
    OK(tarn_pool_hold(pool, NULL));
    is_perhaps(number, gone, TARN_GRAPH_OTHERS);
    OK(tarn_pool_unhold(pool));
    is_perhaps(number, gone, TARN_GRAPH_FREE);
    OK(tarn_pool_trim(pool, 0));
    is_perhaps(number, gone, TARN_GRAPH_UNMAPPED);
    const tarn_graph_options options = {.size = sizeof options, .remembered = number};
    OK(tarn_graph_check(NULL, &options, check_again, &number, NULL));
    OK(tarn_free(input[7]));
    check_number(number, false);
    CHECK(found.count == 2 && found.summary.certain == 1 && found.list[1].address == input[7]);
    CHECK(open_words(number) == 2);
    CU(cu.cuGraphDestroy(graph));
    for (int i = 0; i < 7; i++)
        OK(tarn_free(input[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A pool that something holds serves no other. What was freed there is perhaps the graph's. */
static void memory_of_a_held_pool_is_perhaps_the_graphs(void)
{
    begin();
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    char *input = alloc_in(pool, stream, MIB);
    OK(tarn_pool_hold(pool, NULL));
    cu_graph graph = graph_of(input);
    uint64_t number = remembered(graph);
    OK(tarn_free(input));
    check_number(number, false);
    CHECK(found.count == 1 && found.list[0].state == TARN_GRAPH_OTHERS);
    CHECK(found.list[0].certainty == TARN_GRAPH_PERHAPS && found.list[0].block == input);
    CHECK(alloc_in(pool, stream, MIB) == input);
    check_number(number, false);
    CHECK(found.count == 1 && found.list[0].state == TARN_GRAPH_CHANGED);
    CHECK(found.list[0].certainty == TARN_GRAPH_PERHAPS);
    OK(tarn_pool_hold(pool, graph));
    is_clean(number);
    OK(tarn_free(input));
    is_clean(number);
    OK(tarn_pool_unhold(pool));
    OK(tarn_pool_release(pool)); /* the graph has it */
    is_clean(number);
    CU(cu.cuGraphDestroy(graph));
    nothing_is_left(0);
}

/* An address that was nobody's when the graph was remembered is not that of a later block. */
static void what_was_free_stays_a_finding(void)
{
    begin();
    char *input = alloc_on(stream, MIB);
    cu_graph graph = graph_of(input);
    OK(tarn_free(input));
    uint64_t number = remembered(graph);
    check_number(number, false);
    CHECK(found.count == 1 && found.list[0].certainty == TARN_GRAPH_LIKELY);
    CHECK(alloc_at(stream, MIB, input));
    check_number(number, false);
    CHECK(found.count == 1 && found.list[0].certainty == TARN_GRAPH_LIKELY);
    CHECK(found.list[0].state == TARN_GRAPH_CHANGED);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_free(input));
}

/* What statistics, surveys and snapshots say of graphs. */
static void graphs_are_summed_up(void)
{
    begin();
    struct survey_graph rows[4];
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    char *pooled = alloc_in(pool, stream, MIB), *other = alloc_on(stream, 4096);
    cu_graph graph = graph_of(pooled), second = graph_of(other);
    add_one(graph, pooled + 512);
    add_one(graph, other);
    uint64_t number = remembered(graph), next = remembered(second);
    CHECK(remembered_sum_up(rows, 4) == 3);
    CHECK(rows[0].number == number && rows[1].number == number && rows[2].number == next);
    const struct survey_graph *own = rows[0].pool[1] ? &rows[0] : &rows[1],
                              *common = own == &rows[0] ? &rows[1] : &rows[0];
    CHECK(own->pool[1] && own->device == 0 && own->addresses == 2);
    CHECK(own->blocks == 1 && own->bytes == MIB && own->gone == 0);
    CHECK(!common->pool[0] && !common->pool[1] && common->addresses == 1);
    CHECK(common->blocks == 1 && common->bytes == 4096);
    OK(tarn_free(other));
    CHECK(remembered_sum_up(rows, 4) == 3 && common->blocks == 1);
    CHECK(common->gone == 1 && common->gone_bytes == 4096 && own->gone == 0);
    CHECK(rows[2].gone == 1);
    rows[1].number = 0;
    CHECK(remembered_sum_up(rows, 1) == 3 && rows[0].number == next && rows[1].number == 0);
    CU(cu.cuGraphDestroy(graph));
    CHECK(remembered_sum_up(rows, 4) == 1 && rows[0].number == next);
    CU(cu.cuGraphDestroy(second));
    CHECK(remembered_sum_up(rows, 4) == 0);
    OK(tarn_free(pooled));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

#define MANY 300
#define MANY_POOLS 300

/* Whether a snapshot has a row for each graph and each of its pools. */
static bool snapshot_has_all(void)
{
    char path[4096], command[8192];
    snprintf(path, sizeof path, "%s/many.pickle", snapshots_folder());
    OK(tarn_snapshot_write(path, NULL));
    CHECK(snapshots_check(path));
    snprintf(command, sizeof command,
             "python3 -c \"import pickle; rows = pickle.load(open('%s', 'rb'))['tarn']['graphs']; "
             "numbers = [it['number'] for it in rows]; assert len(set(numbers)) == %d and "
             "len(rows) == %d and numbers == sorted(numbers)\"",
             path, MANY, MANY + MANY_POOLS - 1);
    return system(command) == 0;
}

/* However many there are: graphs, and pools of one. */
static void many_graphs_and_pools_are_summed_up(void)
{
    begin();
    static struct survey_graph rows[MANY + MANY_POOLS];
    static cu_graph graphs[MANY];
    tarn_pool *pools[MANY_POOLS];
    char *blocks[MANY_POOLS];
    for (int i = 0; i < MANY_POOLS; i++) {
        pools[i] = pool_with((tarn_pool_options){0});
        blocks[i] = alloc_in(pools[i], stream, 4096);
    }
    for (int i = 0; i < MANY; i++)
        graphs[i] = graph_of(blocks[0]);
    for (int i = 1; i < MANY_POOLS; i++)
        add_one(graphs[0], blocks[i]);
    for (int i = 0; i < MANY; i++)
        remembered(graphs[i]);
    CHECK(remembered_sum_up(rows, MANY + MANY_POOLS) == MANY + MANY_POOLS - 1);
    CHECK(rows[0].number == rows[MANY_POOLS - 1].number);
    CHECK(rows[MANY_POOLS].number == rows[0].number + 1 && rows[0].blocks == 1);
    CHECK(snapshot_has_all());
    for (int i = 0; i < MANY; i++)
        CU(cu.cuGraphDestroy(graphs[i]));
    for (int i = 0; i < MANY_POOLS; i++) {
        OK(tarn_free(blocks[i]));
        OK(tarn_pool_release(pools[i]));
    }
    nothing_is_left(0);
}

static unsigned pool_flags(const struct surveyor *surveyor, const struct survey_graph *graph)
{
    const struct survey *survey = &surveyor->survey;
    for (uint32_t i = 0; i < survey->pool_count.here; i++)
        if (survey->pools[i].id[0] == graph->pool[0] && survey->pools[i].id[1] == graph->pool[1])
            return survey->pools[i].flags;
    return 0;
}

/* A survey shows which pool a graph refers to, and when nothing but the graph holds it. */
static void what_only_graphs_hold_is_shown(void)
{
    static struct surveyor surveyor;
    begin();
    const struct survey *survey = &surveyor.survey;
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    void *graph = NULL;
    char *inside;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    inside = alloc_on(stream, MIB);
    CU(cu.cuLaunchKernel(kernel_one, 1, 1, 1, 1, 1, 1, 0, native_of(stream), (void *[]){&inside},
                         NULL));
    OK(tarn_capture_end(stream, &graph));
    remembered(graph);
    survey_take(&surveyor);
    CHECK(survey->graph_count.there == 1 && survey->graph_count.here == 1);
    const struct survey_graph *shown = &survey->graphs[0];
    CHECK(shown->blocks == 1 && shown->bytes == MIB && shown->gone == 0);
    unsigned flags = pool_flags(&surveyor, shown);
    CHECK(flags & SURVEY_POOL_HELD && !(flags & SURVEY_POOL_OF_GRAPHS));
    OK(tarn_pool_hold(pool, NULL));
    OK(tarn_pool_release(pool));
    survey_take(&surveyor);
    CHECK(!(pool_flags(&surveyor, shown) & SURVEY_POOL_OF_GRAPHS)); /* the hold is a caller's */
    OK(tarn_pool_unhold(pool));
    survey_take(&surveyor);
    CHECK(pool_flags(&surveyor, shown) & SURVEY_POOL_OF_GRAPHS);
    char path[4096], command[8192];
    snprintf(path, sizeof path, "%s/graphs.pickle", snapshots_folder());
    OK(tarn_snapshot_write(path, NULL));
    CHECK(snapshots_check(path));
    snprintf(command, sizeof command,
             "python3 -c \"import pickle; tarn = pickle.load(open('%s', 'rb'))['tarn']; graph, = "
             "tarn['graphs']; assert graph['count'] == 1 and graph['size'] == 1 << 20; assert "
             "[pool['of_graphs'] for pool in tarn['pools'] if pool['id'] == graph['pool_id']] == "
             "[True]\"",
             path);
    CHECK(system(command) == 0);
    OK(tarn_free(inside));
    CU(cu.cuGraphDestroy(graph));
    survey_take(&surveyor);
    CHECK(survey->graph_count.there == 0);
    nothing_is_left(0);
}

/* ---- Graphs that are gone ---- */

static void an_executable_is_checked_by_number(void)
{
    begin();
    char *input = alloc_on(stream, MIB);
    cu_graph graph = graph_of(input);
    uint64_t number = remembered(graph);
    cu_graph_exec exec = executable(graph);
    CU(cu.cuGraphDestroy(graph));
    is_clean(number);
    OK(tarn_free(input));
    is_certain(number, input, TARN_GRAPH_FREE);
    const tarn_graph_reference *it = finding(&found, input);
    CHECK(it->block == input && it->requested == MIB && strcmp(it->kernel, "one") == 0);
    CU(cu.cuGraphExecDestroy(exec));
    const tarn_graph_options gone = {.size = sizeof gone, .remembered = number};
    GIVES(tarn_graph_check(NULL, &gone, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    graph = graph_made();
    GIVES(tarn_graph_check(graph, &gone, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CU(cu.cuGraphDestroy(graph));
}

/* As a framework does that gives no graph away: it is taken while the stream captures. */
static void a_graph_is_remembered_before_its_capture_ends(void)
{
    begin();
    void *taken = NULL;
    cu_graph graph = NULL;
    char *input = alloc_on(stream, MIB);
    unsigned n = 1;
    tarn_capture_state captures = TARN_CAPTURE_ACTIVE;
    taken = &taken;
    OK(tarn_capture_state_get(stream, &captures, NULL, &taken));
    CHECK(captures == TARN_CAPTURE_NONE && !taken);
    OK(tarn_capture_announce(stream));
    CU(cu.cuStreamBeginCapture_v2(native_of(stream), CU_MODE_RELAXED));
    CU(cu.cuLaunchKernel(kernel_three, 1, 1, 1, 1, 1, 1, 0, native_of(stream),
                         (void *[]){&input, &n, &input}, NULL));
    OK(tarn_capture_state_get(stream, &captures, NULL, &taken));
    uint64_t number = remembered(taken);
    CU(cu.cuStreamEndCapture(native_of(stream), &graph));
    CHECK(graph == taken);
    OK(tarn_capture_end_announced(stream, NULL));
    cu_graph_exec exec = executable(graph);
    CU(cu.cuGraphDestroy(graph));
    is_clean(number);
    CHECK(found.summary.nodes == 1 && found.summary.references == 2);
    OK(tarn_free(input));
    is_certain(number, input, TARN_GRAPH_FREE);
    CU(cu.cuGraphExecDestroy(exec));
}

/* ---- Stacks and debug mode ---- */

static bool names_this_file(const char *text)
{
    void *there = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    return strstr(text, there ? "test_cuda_graph_watch.c:" : "report.cuda_graph_watch+0x");
}

static size_t told;

static void look_at_stacks(const tarn_graph_reference *reference, void *user)
{
    (void)user;
    told++;
    CHECK(names_this_file(reference->remembered_at) && names_this_file(reference->freed_at));
}

static void a_finding_has_both_stacks(void)
{
    begin();
    char *input = alloc_on(stream, 512);
    cu_graph graph = graph_of(input);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    OK(tarn_graph_check(graph, NULL, look_at_stacks, NULL, NULL));
    CHECK(told == 1);
    CU(cu.cuGraphDestroy(graph));
}

/* Where the trace has seen the block allocated, when the graph was remembered. Here tarn's own
 * frames are the program's, and come first. Without optimization they fill the text, as far as
 * alloc_for(). */
static void look_at_origin(const tarn_graph_reference *reference, void *known)
{
    bool names = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *at = reference->allocated_at;
    told++;
    CHECK(!known == !at[0] && !known == !reference->region[0]);
    if (!known)
        return;
    CHECK(names ? strstr(at, "alloc_on") || strstr(at, "alloc_for")
                : strstr(at, "report.cuda_graph_watch+0x") != NULL);
    CHECK(strcmp(reference->region, "step 3/layer 7") == 0);
}

static void a_finding_says_where_its_block_was_allocated(void)
{
    begin();
    const tarn_trace_options options = {.size = sizeof options, .stacks = TARN_TRACE_STACKS_ALLOC};
    const tarn_graph_options all = {.size = sizeof all, .all = true};
    for (size_t size = 512; size <= MIB; size *= 2048) {
        char *before = alloc_on(stream, size);
        OK(tarn_trace_start(&options));
        OK(tarn_region_push("step 3"));
        OK(tarn_region_push("layer 7"));
        char *input = alloc_on(stream, size);
        OK(tarn_region_pop());
        OK(tarn_region_pop());
        cu_graph graph = graph_of(input + 8), unknown = graph_of(before);
        OK(tarn_graph_remember(graph, NULL));
        OK(tarn_graph_remember(unknown, NULL));
        OK(tarn_trace_stop());
        OK(tarn_free(input));
        told = 0;
        OK(tarn_graph_check(graph, NULL, look_at_origin, &told, NULL));
        OK(tarn_graph_check(unknown, &all, look_at_origin, NULL, NULL));
        CHECK(told == 2);
        CU(cu.cuGraphDestroy(graph));
        CU(cu.cuGraphDestroy(unknown));
        OK(tarn_free(before));
    }
}

static struct {
    int count;
    tarn_debug_report last;
    char text[4096];
} heard;

static void hear(const tarn_debug_report *report, void *user)
{
    (void)user;
    heard.count++;
    heard.last = *report;
    snprintf(heard.text, sizeof heard.text, "%s", report->text);
}

static void says(const char *text)
{
    if (!strstr(heard.text, text))
        fprintf(stderr, "not in the report: %s\n%s\n", text, heard.text);
    CHECK(strstr(heard.text, text));
}

static void debug_mode_remembers_and_reports(void)
{
    setenv("TARN_DEBUG", "graphs,quiet", 1);
    begin();
    tarn_debug_callback_set(hear, NULL);
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    void *graph = NULL;
    unsigned n = 1;
    char *input = alloc_on(stream, MIB), *inside;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    inside = alloc_on(stream, MIB);
    CU(cu.cuLaunchKernel(kernel_three, 1, 1, 1, 1, 1, 1, 0, native_of(stream),
                         (void *[]){&inside, &n, &input}, NULL));
    OK(tarn_capture_end(stream, &graph));
    check_into(&found, graph, false);
    CHECK(found.summary.remembered && found.summary.verdict == TARN_GRAPH_CLEAN);
    OK(tarn_free(inside));
    check_into(&found, graph, false);
    CHECK(found.count == 0);
    OK(tarn_free(input));
    CHECK(tarn_debug_reports() == 0); /* a free is no finding */
    for (int i = 0; i < 3; i++) {
        check_into(&found, graph, false);
        CHECK(found.summary.certain == 1);
        CHECK(tarn_debug_reports() == 1 && heard.count == 1);
    }
    CHECK(heard.last.kind == TARN_DEBUG_GRAPH && heard.last.block == input);
    CHECK(heard.last.requested == MIB && heard.last.offset == 0 && heard.last.device == 0);
    says("graph 1 uses memory that is free: node 0, kernel three, parameter 2: block of 1048576 "
         "bytes");
    says("\n  captured at ");
    says("\n  freed at ");
    CHECK(names_this_file(strstr(heard.text, "captured at")));
    CHECK(names_this_file(strstr(heard.text, "freed at")));
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The caller ends the capture, and gives the graph. */
static void debug_mode_remembers_announced_captures(void)
{
    setenv("TARN_DEBUG", "graphs,quiet", 1);
    begin();
    cu_graph graph = NULL;
    char *input = alloc_on(stream, 512);
    OK(tarn_capture_announce(stream));
    CU(cu.cuStreamBeginCapture_v2(native_of(stream), CU_MODE_RELAXED));
    CU(cu.cuMemsetD8Async((uintptr_t)input, 1, 512, native_of(stream)));
    CU(cu.cuStreamEndCapture(native_of(stream), &graph));
    OK(tarn_capture_end_announced(stream, graph));
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.summary.remembered && found.summary.certain == 1 && tarn_debug_reports() == 1);
    CU(cu.cuGraphDestroy(graph));
}

/* Red zones and quarantine, with which a freed block waits before it is free. */
static void all_of_debug_mode_at_once(void)
{
    setenv("TARN_DEBUG", "all,quiet", 1);
    begin();
    for (size_t size = 100; size <= 2 * MIB; size *= 50) {
        char *input = alloc_on(stream, size);
        cu_graph graph = graph_of(input);
        uint64_t number = remembered(graph), before = tarn_debug_reports();
        is_clean(number);
        OK(tarn_free(input));
        check_number(number, false);
        CHECK(found.summary.certain == 1 && tarn_debug_reports() == before + 1);
        CU(cu.cuGraphDestroy(graph));
    }
    verify(0);
}

static void a_child_is_refused(void)
{
    begin();
    char *input = alloc_on(stream, MIB);
    cu_graph graph = graph_of(input);
    uint64_t number = remembered(graph);
    pid_t child = fork();
    if (child == 0) {
        const tarn_graph_options options = {.size = sizeof options, .remembered = number};
        GIVES(tarn_graph_check(NULL, &options, NULL, NULL, NULL), TARN_ERROR_FORKED);
        GIVES(tarn_graph_remember(graph, NULL), TARN_ERROR_FORKED);
        GIVES(tarn_free(input), TARN_ERROR_FORKED);
        _exit(0);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    is_clean(number);
    OK(tarn_free(input));
    is_certain(number, input, TARN_GRAPH_FREE);
    CU(cu.cuGraphDestroy(graph));
}

int main(void)
{
    setenv("TARN_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        CHILD_TEST(debug_mode_remembers_and_reports),
        CHILD_TEST(debug_mode_remembers_announced_captures),
        CHILD_TEST(all_of_debug_mode_at_once),
        HERE(another_block_in_the_place_is_seen),
        HERE(frees_of_all_kinds_are_seen),
        HERE(blocks_of_other_threads_are_watched),
        HERE(other_blocks_take_the_fast_path),
        HERE(graphs_come_and_go),
        HERE(a_pool_that_sleeps_has_no_memory),
        HERE(a_restore_ends_what_it_does_not_bring_back),
        HERE(blocks_that_grow_end_where_they_ended_at_the_capture),
        HERE(a_check_with_findings_is_cheap_and_right),
        HERE(memory_of_a_held_pool_is_perhaps_the_graphs),
        HERE(what_was_free_stays_a_finding),
        HERE(graphs_are_summed_up),
        HERE(many_graphs_and_pools_are_summed_up),
        HERE(what_only_graphs_hold_is_shown),
        HERE(an_executable_is_checked_by_number),
        HERE(a_graph_is_remembered_before_its_capture_ends),
        HERE(a_finding_has_both_stacks),
        HERE(a_finding_says_where_its_block_was_allocated),
        HERE(a_child_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
