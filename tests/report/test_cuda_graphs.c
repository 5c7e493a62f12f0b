/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn_graph_check() on the simulated libcuda: each kind of node, each state, each rule. */
#include "report/graph_test.h"

static struct found found;

static const tarn_graph_reference *only(void *graph, bool all)
{
    check_into(&found, graph, all);
    CHECK(found.count == 1);
    return found.list;
}

static void a_freed_block_is_found_by_what_was_remembered(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB), *kept = alloc_on(stream, MIB);
    cu_graph graph = graph_made();
    add_three(graph, kept, input);
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, false);
    CHECK(found.count == 0 && found.summary.remembered && found.summary.references == 2);
    OK(tarn_free(input));
    const tarn_graph_reference *it = only(graph, false);
    CHECK(it->certainty == TARN_GRAPH_CERTAIN && it->state == TARN_GRAPH_FREE);
    CHECK(it->address == input && it->block == input && it->requested == MIB);
    CHECK(it->node == 0 && it->parameter == 2 && it->offset == 0 && it->parameter_bytes == 8);
    CHECK(it->kind == TARN_GRAPH_KERNEL && strcmp(it->kernel, "three") == 0 && it->device == 0);
    CHECK(found.summary.verdict == TARN_GRAPH_SUSPICIOUS && found.summary.certain == 1);
    CU(cu.cuGraphDestroy(graph));
}

static void without_memory_of_the_capture_it_is_likely(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    cu_graph graph = graph_made();
    add_one(graph, input);
    check_into(&found, graph, false);
    CHECK(found.count == 0 && found.summary.verdict == TARN_GRAPH_UNKNOWN);
    CHECK(found.summary.unproven == 1 && !found.summary.remembered);
    OK(tarn_free(input));
    CHECK(only(graph, false)->certainty == TARN_GRAPH_LIKELY);
    CU(cu.cuGraphDestroy(graph));
}

static void a_block_in_the_same_place_is_another_one(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, 4096);
    cu_graph graph = graph_made();
    add_one(graph, input);
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, false);
    CHECK(found.summary.verdict == TARN_GRAPH_CLEAN && found.summary.unproven == 0);
    OK(tarn_free(input));
    CHECK(alloc_at(stream, 4096, input));
    const tarn_graph_reference *it = only(graph, false);
    CHECK(it->state == TARN_GRAPH_CHANGED && it->certainty == TARN_GRAPH_CERTAIN);
    CU(cu.cuGraphDestroy(graph));
}

static void an_inner_address_is_likely(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    cu_graph graph = graph_made();
    add_one(graph, input + 512);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    const tarn_graph_reference *it = only(graph, false);
    CHECK(it->certainty == TARN_GRAPH_LIKELY && it->block == input && it->address == input + 512);
    CU(cu.cuGraphDestroy(graph));
}

static void an_end_is_not_certain(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *range = alloc_on(stream, 2 * MIB), *next = alloc_on(stream, 2 * MIB);
    CHECK(next == range + 2 * MIB);
    cu_graph graph = graph_made();
    add_three(graph, range, next);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(next));
    CHECK(only(graph, false)->certainty == TARN_GRAPH_LIKELY);
    CU(cu.cuGraphDestroy(graph));
}

static void a_field_needs_a_second_node(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB), *output = alloc_on(stream, MIB);
    const void *fields[8] = {NULL, NULL, NULL, NULL, NULL, input};
    cu_graph graph = graph_made();
    add_packed(graph, fields, output);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    const tarn_graph_reference *it = only(graph, false);
    CHECK(it->certainty == TARN_GRAPH_PERHAPS && it->parameter == 0 && it->offset == 40);
    CHECK(it->parameter_bytes == 64 && it->address == input);
    CU(cu.cuGraphDestroy(graph));

    input = alloc_on(stream, MIB);
    fields[5] = input;
    graph = graph_made();
    add_packed(graph, fields, output);
    add_one(graph, input);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.summary.certain == 2 && found.count == 2 && found.list[1].node == 1);
    CU(cu.cuGraphDestroy(graph));
}

/* Padding may repeat what is in the same launch, as memory of the caller's stack does. */
static void a_node_does_not_confirm_its_own_field(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    const void *fields[8] = {input, NULL, NULL, input};
    cu_graph graph = graph_made();
    add_packed(graph, fields, NULL);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.count == 2 && found.summary.perhaps == 2);
    CU(cu.cuGraphDestroy(graph));

    input = alloc_on(stream, MIB);
    fields[0] = NULL;
    fields[3] = input;
    graph = graph_made();
    add_packed(graph, fields, input);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.count == 2 && found.summary.perhaps == 1 && found.summary.certain == 1);
    CHECK(found.list[0].offset == 24 && found.list[0].certainty == TARN_GRAPH_PERHAPS);
    CU(cu.cuGraphDestroy(graph));

    input = alloc_on(stream, MIB);
    fields[3] = input;
    graph = graph_made();
    add_packed(graph, fields, input);
    add_one(graph, input); /* the second node that has it as a parameter confirms the first one's */
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.count == 3 && found.summary.certain == 3);
    CU(cu.cuGraphDestroy(graph));
}

/* Pointers are at multiples of 8 of all parameters, not of the structure. */
static void a_structure_at_an_odd_place_is_looked_at(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    unsigned n = 1;
    char fields[20] = {0};
    memcpy(fields + 12, &input, sizeof input);
    cu_graph graph = graph_made();
    add_kernel(graph, kernel_odd, (void *[]){&n, fields});
    const tarn_graph_reference *it = only(graph, true);
    CHECK(it->parameter == 1 && it->offset == 12 && it->parameter_bytes == 20);
    CHECK(it->address == input);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_free(input));
}

static void each_kind_of_node_is_looked_at(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    cu_graph_node node;
    cu_graph graph = graph_made(), child = graph_made();
    add_copy(graph, input, input, 64);
    add_fill(graph, input, 64);
    add_batch(graph, input);
    CU(cu.cuGraphAddMemFreeNode(&node, graph, NULL, 0, (uintptr_t)input));
    CU(cu.cuGraphAddEmptyNode(&node, graph, NULL, 0));
    add_fill(child, input, 32);
    add_child(graph, child);
    CU(cu.cuGraphDestroy(child));
    check_into(&found, graph, true);
    CHECK(found.count == 6 && found.summary.nodes == 7 && found.summary.unseen == 0);
    static const tarn_graph_node_kind kinds[] = {TARN_GRAPH_COPY,    TARN_GRAPH_COPY,
                                                 TARN_GRAPH_FILL,    TARN_GRAPH_BATCH,
                                                 TARN_GRAPH_RELEASE, TARN_GRAPH_FILL};
    static const unsigned parameters[] = {0, 1, 0, 1, 0, 0};
    static const size_t sizes[] = {64, 64, 64, 4, 0, 32}, nodes[] = {0, 0, 1, 2, 3, 6};
    for (size_t i = 0; i < 6; i++) {
        const tarn_graph_reference *it = &found.list[i];
        CHECK(it->kind == kinds[i] && it->parameter == parameters[i] && it->node == nodes[i]);
        CHECK(it->parameter_bytes == sizes[i] && it->state == TARN_GRAPH_LIVE);
        CHECK(it->depth == (i == 5) && it->kernel[0] == '\0' && it->native);
    }
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.count == 6 && found.summary.certain == 6); /* they use the address for certain */
    CU(cu.cuGraphDestroy(graph));
}

static void parameters_in_a_buffer_are_seen(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    struct {
        const void *a;
        unsigned n;
        const void *b;
    } packed = {NULL, 3, input};
    size_t size = sizeof packed;
    void *extra[] = {(void *)CU_PARAM_BUFFER, &packed, (void *)CU_PARAM_SIZE, &size,
                     (void *)CU_PARAM_END};
    struct cu_kernel_node given = {.kernel = (cu_kernel)(void *)kernel_three,
                                   .grid_x = 1,
                                   .grid_y = 1,
                                   .grid_z = 1,
                                   .block_x = 1,
                                   .block_y = 1,
                                   .block_z = 1,
                                   .extra = extra};
    cu_graph_node node;
    cu_graph graph = graph_made();
    CU(cu.cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &given));
    const tarn_graph_reference *it = only(graph, true);
    CHECK(it->parameter == 2 && it->address == input && strcmp(it->kernel, "three") == 0);
    CHECK(found.summary.unseen == 0);
    size = 16; /* the last parameter is not in it */
    CU(cu.cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &given));
    check_into(&found, graph, true);
    CHECK(found.count == 1 && found.summary.unseen_kernels == 1);
    CU(cu.cuGraphDestroy(graph));
}

static void do_nothing(void *argument)
{
    (void)argument;
}

static void what_is_not_seen_is_counted(void **state)
{
    (void)state;
    cu_graph_node node;
    cu_graph graph = graph_made();
    const struct cu_host_node host_node = {do_nothing, NULL};
    CU(cu.cuGraphAddHostNode(&node, graph, NULL, 0, &host_node));
    check_into(&found, graph, true);
    CHECK(found.summary.unseen == 1 && found.summary.unseen_host == 1);
    CHECK(found.summary.verdict == TARN_GRAPH_UNKNOWN);
    node = add_kernel(graph, kernel_none, NULL);
    check_into(&found, graph, true);
    CHECK(found.summary.unseen == 1 && found.summary.nodes == 2);
    const union cu_attribute_value value = {.updatable = {.is = 1}};
    CU(cu.cuGraphKernelNodeSetAttribute(node, CU_NODE_UPDATABLE, &value));
    check_into(&found, graph, true);
    CHECK(found.summary.unseen == 2 && found.summary.unseen_updatable == 1);
    cu_graph deep = graph;
    for (int i = 0; i < 12; i++) {
        cu_graph outer = graph_made();
        add_child(outer, deep);
        CU(cu.cuGraphDestroy(deep));
        deep = outer;
    }
    check_into(&found, deep, true);
    CHECK(found.summary.unseen == 1 && found.summary.unseen_other == 1);
    CU(cu.cuGraphDestroy(deep));
}

/* From CUDA 13.2 on. A body that a switch never takes counts like the others. */
static int bodies_of_conditional_nodes(void)
{
    host_start_with(1, 64 * MIB);
    cuda_calls_load();
    tarn_stream stream = lease(0);
    char *inputs[3];
    cu_graph graph = graph_made(), *bodies = add_conditional(graph, 3), *inner;
    for (int i = 0; i < 3; i++)
        inputs[i] = alloc_on(stream, MIB);
    add_one(graph, inputs[0]);
    add_one(bodies[0], inputs[1]);
    inner = add_conditional(bodies[2], 1);
    add_fill(inner[0], inputs[2], 64);
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, true);
    CHECK(found.count == 3 && found.summary.nodes == 5 && found.summary.unseen == 0);
    CHECK(found.summary.verdict == TARN_GRAPH_CLEAN);
    OK(tarn_free(inputs[1]));
    OK(tarn_free(inputs[2]));
    check_into(&found, graph, false);
    CHECK(found.count == 2 && found.summary.certain == 2);
    CHECK(found.list[0].address == inputs[1] && found.list[0].depth == 1);
    CHECK(found.list[1].address == inputs[2] && found.list[1].depth == 2);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_free(inputs[0]));
    return 0;
}

/* A driver before that shows no body: such a graph is never clean. */
static void conditional_nodes_of_older_drivers_are_not_seen(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    cu_graph graph = graph_made(), outer = graph_made(), *bodies = add_conditional(graph, 2);
    add_one(bodies[0], input);
    add_child(outer, graph);
    for (int remembered = 0; remembered < 2; remembered++) {
        if (remembered)
            OK(tarn_graph_remember(outer, NULL));
        check_into(&found, outer, true);
        CHECK(found.count == 0 && found.summary.nodes == 2 && found.summary.unseen == 1);
        CHECK(found.summary.unseen_conditional == 1);
        CHECK(found.summary.verdict == TARN_GRAPH_UNKNOWN);
    }
    OK(tarn_free(input));
    check_into(&found, outer, false);
    CHECK(found.summary.verdict == TARN_GRAPH_UNKNOWN);
    CU(cu.cuGraphDestroy(outer));
    CU(cu.cuGraphDestroy(graph));
}

static cu_graph captured(tarn_stream stream, tarn_pool *pool, char **inside, const char *outside)
{
    void *graph;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    *inside = alloc_on(stream, MIB);
    unsigned n = 1;
    CU(cu.cuLaunchKernel(kernel_three, 1, 1, 1, 1, 1, 1, 0, native_of(stream),
                         (void *[]){inside, &n, &outside}, NULL));
    OK(tarn_free(*inside));
    OK(tarn_capture_end(stream, &graph));
    return graph;
}

static void a_graphs_own_pool_is_no_finding(void **state)
{
    (void)state;
    char *inside = NULL, *outside;
    tarn_pool *pool;
    tarn_stream stream = lease(0);
    outside = alloc_on(stream, MIB);
    OK(tarn_pool_create(NULL, &pool));
    cu_graph graph = captured(stream, pool, &inside, outside);
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, true);
    CHECK(found.count == 2 && found.list[0].state == TARN_GRAPH_HELD);
    CHECK(found.list[0].address == inside && found.list[1].state == TARN_GRAPH_LIVE);
    CHECK(found.summary.unproven == 0 && found.summary.certain == 0);
    OK(tarn_free(outside));
    const tarn_graph_reference *it = only(graph, false);
    CHECK(it->address == outside && it->certainty == TARN_GRAPH_CERTAIN);
    /* Another graph that uses the pool's memory without a hold */
    cu_graph other = graph_made();
    add_one(other, inside);
    it = only(other, false);
    CHECK(it->state == TARN_GRAPH_OTHERS && it->certainty == TARN_GRAPH_PERHAPS);
    CHECK(it->pool.second != 0 && it->device == 0);
    OK(tarn_pool_hold(pool, other));
    check_into(&found, other, false);
    CHECK(found.count == 0);
    CU(cu.cuGraphDestroy(other));
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_pool_release(pool));
}

/* As in frameworks, whose captures share a pool that the framework holds: what a capture allocated
 * and freed is free memory by its end. */
static void temporaries_of_a_shared_pool_are_no_finding(void **state)
{
    (void)state;
    tarn_pool *pool;
    tarn_stream stream = lease(0);
    char *temporary, *field, *input = alloc_on(stream, MIB);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_hold(pool, NULL));
    temporary = alloc_in(pool, stream, MIB);
    field = alloc_in(pool, stream, MIB);
    const void *fields[8] = {NULL, field};
    cu_graph graph = graph_made();
    add_one(graph, temporary);
    add_packed(graph, fields, input);
    OK(tarn_free(temporary));
    OK(tarn_free(field));
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, false);
    CHECK(found.count == 0 && found.summary.unproven == 2);
    CHECK(found.summary.verdict == TARN_GRAPH_UNKNOWN);
    /* Another capture has it */
    temporary = alloc_in(pool, stream, MIB);
    check_into(&found, graph, false);
    CHECK(found.count == 0 && found.summary.unproven == 2);
    OK(tarn_free(temporary));
    /* What lived when the graph was remembered is not of this kind */
    OK(tarn_free(input));
    CHECK(only(graph, false)->certainty == TARN_GRAPH_CERTAIN);
    /* Once nothing holds the pool, others may have its memory */
    OK(tarn_pool_unhold(pool));
    check_into(&found, graph, false);
    CHECK(found.count == 3 && found.list[0].certainty == TARN_GRAPH_LIKELY);
    CHECK(found.list[1].certainty == TARN_GRAPH_PERHAPS);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_pool_release(pool));
}

/* Two numbers of 32 bits may look like an address that tarn reserved, and never gave memory. */
static void a_number_in_a_structure_is_no_finding(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, 32 * MIB), *output = alloc_on(stream, MIB);
    OK(tarn_free(input));
    OK(tarn_stream_synchronize(stream));
    OK(tarn_device_trim(0, 0));
    const void *fields[8] = {NULL, NULL, input};
    cu_graph graph = graph_made();
    add_packed(graph, fields, output);
    CHECK(only(graph, false)->certainty == TARN_GRAPH_PERHAPS);
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, false);
    CHECK(found.count == 0 && found.summary.verdict == TARN_GRAPH_CLEAN);
    CU(cu.cuGraphDestroy(graph));
    OK(tarn_free(output));
}

static void count_findings(const tarn_graph_reference *reference, void *user)
{
    size_t *count = user;
    *count += reference->certainty > TARN_GRAPH_NO_FINDING;
}

/* As an optimiser has them that updates all parameters in a few launches, each of which was given
 * a structure of addresses. A check whose time grew with the square of what it finds would not end
 * within the test's limit. */
static void many_findings_in_structures_take_no_square_of_time(void **state)
{
    enum { NODES = 4998, FIELDS = 92 };
    static void *blocks[NODES], *between[NODES]; /* so that no block begins where another ends */
    (void)state;
    tarn_stream stream = lease(0);
    unsigned n = 1;
    size_t told = 0;
    tarn_graph_summary summary = {.size = sizeof summary};
    cu_graph graph = graph_made();
    for (size_t i = 0; i < NODES; i++) {
        blocks[i] = alloc_on(stream, 4096);
        between[i] = alloc_on(stream, 4096);
    }
    for (size_t i = 0; i < NODES; i++) {
        const void *fields[FIELDS];
        for (size_t j = 0; j < FIELDS; j++)
            fields[j] = blocks[(i * FIELDS + j) % NODES];
        add_kernel(graph, kernel_behind, (void *[]){&n, (void *)(uintptr_t)fields});
    }
    for (size_t i = 0; i < NODES; i += 3)
        add_one(graph, blocks[i]);
    OK(tarn_graph_remember(graph, NULL));
    for (size_t i = 0; i < NODES; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_graph_check(graph, NULL, count_findings, &told, &summary));
    CHECK(summary.references == NODES * FIELDS + NODES / 3);
    CHECK(told == summary.references && summary.likely == 0);
    CHECK(summary.certain == NODES / 3 * FIELDS + NODES / 3); /* those that a parameter confirms */
    CU(cu.cuGraphDestroy(graph));
    for (size_t i = 0; i < NODES; i++)
        OK(tarn_free(between[i]));
}

static void addresses_without_memory_are_found(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, 32 * MIB);
    cu_graph graph = graph_made();
    add_one(graph, input);
    OK(tarn_graph_remember(graph, NULL));
    OK(tarn_free(input));
    OK(tarn_stream_synchronize(stream));
    OK(tarn_device_trim(0, 0));
    const tarn_graph_reference *it = only(graph, false);
    CHECK(it->state == TARN_GRAPH_UNMAPPED && it->certainty == TARN_GRAPH_CERTAIN);
    CU(cu.cuGraphDestroy(graph));
}

static void a_changed_graph_is_not_the_remembered_one(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    cu_graph graph = graph_made();
    add_one(graph, input);
    OK(tarn_graph_remember(graph, NULL));
    add_one(graph, input);
    check_into(&found, graph, false);
    CHECK(!found.summary.remembered);
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, false);
    CHECK(found.summary.remembered);
    CU(cu.cuGraphDestroy(graph));
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    cu_graph graph = graph_made();
    tarn_graph_options options = {.size = 1};
    tarn_graph_summary summary = {.size = 1};
    GIVES(tarn_graph_check(NULL, NULL, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_graph_check(graph, &options, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_graph_check(graph, NULL, NULL, NULL, &summary), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_graph_remember(NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_graph_check(graph, NULL, NULL, NULL, NULL));
    CU(cu.cuGraphDestroy(graph));
    GIVES(tarn_graph_check(graph, NULL, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_graph_remember(graph, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

/* A driver of CUDA 12.3 does not tell layouts. */
static int old_driver(void)
{
    host_start_with(1, 64 * MIB);
    cuda_calls_load();
    char *input = alloc_on(lease(0), MIB);
    cu_graph graph = graph_made();
    add_one(graph, input);
    add_fill(graph, input, 64);
    check_into(&found, graph, true);
    NEED(found.count == 1 && found.summary.unseen_kernels == 1);
    NEED(found.summary.verdict == TARN_GRAPH_UNKNOWN);
    return 0;
}

static void an_older_driver_shows_less(void **state)
{
    (void)state;
    static const char *const variables[] = {"TARN_SIM_CUDA_VERSION=12030", NULL};
    assert_int_equal(run_scenario("old", variables), 0);
}

static void bodies_of_conditional_nodes_are_seen(void **state)
{
    (void)state;
    static const char *const variables[] = {"TARN_SIM_CUDA_VERSION=13020", NULL};
    assert_int_equal(run_scenario("bodies", variables), 0);
}

static int begin(void **state)
{
    (void)state;
    host_start_with(1, 512 * MIB);
    cuda_calls_load();
    return 0;
}

int main(int count, char **arguments)
{
    setenv("TARN_DRIVER", "cuda", 1);
    if (count == 2 && strcmp(arguments[0], "scenario") == 0)
        return strcmp(arguments[1], "bodies") == 0 ? bodies_of_conditional_nodes() : old_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_freed_block_is_found_by_what_was_remembered),
        cmocka_unit_test(without_memory_of_the_capture_it_is_likely),
        cmocka_unit_test(a_block_in_the_same_place_is_another_one),
        cmocka_unit_test(an_inner_address_is_likely),
        cmocka_unit_test(an_end_is_not_certain),
        cmocka_unit_test(a_field_needs_a_second_node),
        cmocka_unit_test(a_node_does_not_confirm_its_own_field),
        cmocka_unit_test(a_structure_at_an_odd_place_is_looked_at),
        cmocka_unit_test(each_kind_of_node_is_looked_at),
        cmocka_unit_test(parameters_in_a_buffer_are_seen),
        cmocka_unit_test(what_is_not_seen_is_counted),
        cmocka_unit_test(bodies_of_conditional_nodes_are_seen),
        cmocka_unit_test(conditional_nodes_of_older_drivers_are_not_seen),
        cmocka_unit_test(a_graphs_own_pool_is_no_finding),
        cmocka_unit_test(temporaries_of_a_shared_pool_are_no_finding),
        cmocka_unit_test(a_number_in_a_structure_is_no_finding),
        cmocka_unit_test(many_findings_in_structures_take_no_square_of_time),
        cmocka_unit_test(addresses_without_memory_are_found),
        cmocka_unit_test(a_changed_graph_is_not_the_remembered_one),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(an_older_driver_shows_less),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
