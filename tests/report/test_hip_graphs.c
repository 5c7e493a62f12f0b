/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn_graph_check() on the simulated libamdhip64: each kind of node, and what each version of HIP
 * tells. */
#include "../../sim/hip/calls.h"
#include "../driver/hip_test.h"
#include "report/found_test.h"

#include <tarn/debug.h>

static struct found found;

static struct {
#define X(symbol, since, needed, parameters) hip_result(*symbol) parameters;
    SIM_HIP_CALL_LIST(X)
#undef X
    void **(*__hipRegisterFatBinary)(const void *);
    void (*__hipRegisterFunction)(void **, const void *, const char *, const char *, unsigned,
                                  void *, void *, void *, void *, const int *);
    void (*__hipUnregisterFatBinary)(void **);
} theirs;

#define HIP(call) CHECK((call) == HIP_OK)

/* A kernel with a pointer, a number and a pointer, and one with a structure of 64 bytes. */
static const char metadata[] = "amdhsa.kernels:\n"
                               "  - .name: three\n"
                               "    .args:\n"
                               "      - .offset: 0\n        .size: 8\n"
                               "      - .offset: 8\n        .size: 4\n"
                               "      - .offset: 16\n        .size: 8\n"
                               "  - .name: packed\n"
                               "    .args:\n"
                               "      - .offset: 0\n        .size: 64\n";
static const struct {
    uint32_t magic, version;
    const char *object;
    void *unused;
} binary = {0x48495046, 1, metadata, NULL};

/* The symbols of the kernels; the last is no kernel's, as a module's function. */
static char three, packed, unknown;
static void **module;

static void register_kernel(const void *symbol, const char *name)
{
    theirs.__hipRegisterFunction(module, symbol, name, name, 0, NULL, NULL, NULL, NULL, NULL);
}

static void calls_load(void)
{
#define X(symbol, since, needed, parameters) \
    loader_store(&theirs.symbol, loader_symbol(&hip.library, #symbol));
    SIM_HIP_CALL_LIST(X)
#undef X
    loader_store(&theirs.__hipRegisterFatBinary,
                 loader_symbol(&hip.library, "__hipRegisterFatBinary"));
    loader_store(&theirs.__hipRegisterFunction,
                 loader_symbol(&hip.library, "__hipRegisterFunction"));
    loader_store(&theirs.__hipUnregisterFatBinary,
                 loader_symbol(&hip.library, "__hipUnregisterFatBinary"));
    module = theirs.__hipRegisterFatBinary(&binary);
    register_kernel(&three, "three");
    register_kernel(&packed, "packed");
}

static void begin_on_hip(void)
{
    host_start_with(1, 512 * MIB);
    OK(tarn_device_set(0));
    CHECK(strcmp(driver->name, "hip") == 0);
    calls_load();
}

static hip_graph graph_made(void)
{
    hip_graph graph = NULL;
    HIP(hip.call.hipGraphCreate(&graph, 0));
    return graph;
}

static void add_kernel(hip_graph graph, void *symbol, void **parameters)
{
    hip_graph_node node;
    const struct hip_kernel_node given = {
        .function = symbol, .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameters = parameters};
    HIP(theirs.hipGraphAddKernelNode(&node, graph, NULL, 0, &given));
}

static void add_three(hip_graph graph, const void *a, const void *b)
{
    unsigned n = 7;
    add_kernel(graph, &three, (void *[]){&a, &n, &b});
}

static void add_row(hip_graph graph, void *to, const void *from, size_t size)
{
    hip_graph_node node;
    HIP(hip.call.hipGraphAddMemcpyNode1D(&node, graph, NULL, 0, to, from, size, HIP_COPY_DEFAULT));
}

static void add_fill(hip_graph graph, void *to, size_t size)
{
    hip_graph_node node;
    const struct hip_set_node set = {.to = to, .element = 1, .height = 1, .width = size};
    HIP(theirs.hipGraphAddMemsetNode(&node, graph, NULL, 0, &set));
}

static void add_copy(hip_graph graph, const struct hip_copy_node *copy)
{
    hip_graph_node node;
    HIP(theirs.hipGraphAddMemcpyNode(&node, graph, NULL, 0, copy));
}

static void add_child(hip_graph graph, hip_graph child)
{
    hip_graph_node node;
    HIP(theirs.hipGraphAddChildGraphNode(&node, graph, NULL, 0, child));
}

static const tarn_graph_reference *only(void *graph, bool all)
{
    check_into(&found, graph, all);
    CHECK(found.count == 1);
    return found.list;
}

static void each_kind_of_node_is_looked_at(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    hip_graph_node node;
    hip_graph graph = graph_made(), child = graph_made();
    add_row(graph, input, input + 512, 64);
    add_fill(graph, input, 64);
    HIP(theirs.hipGraphAddEmptyNode(&node, graph, NULL, 0));
    add_three(graph, NULL, input);
    add_fill(child, input, 32);
    add_child(graph, child);
    HIP(hip.call.hipGraphDestroy(child));
    check_into(&found, graph, true);
    CHECK(found.count == 5 && found.summary.nodes == 6 && found.summary.unseen == 0);
    static const tarn_graph_node_kind kinds[] = {TARN_GRAPH_COPY, TARN_GRAPH_COPY, TARN_GRAPH_FILL,
                                                 TARN_GRAPH_KERNEL, TARN_GRAPH_FILL};
    static const unsigned parameters[] = {0, 1, 0, 2, 0};
    static const size_t sizes[] = {64, 64, 64, 8, 32}, nodes[] = {0, 0, 1, 3, 5};
    for (size_t i = 0; i < 5; i++) {
        const tarn_graph_reference *it = &found.list[i];
        CHECK(it->kind == kinds[i] && it->parameter == parameters[i] && it->node == nodes[i]);
        CHECK(it->parameter_bytes == sizes[i] && it->state == TARN_GRAPH_LIVE && it->native);
        CHECK(it->depth == (i == 4) && strcmp(it->kernel, i == 3 ? "three" : "") == 0);
        CHECK((char *)it->address == input + (i == 1 ? 512 : 0));
    }
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.count == 5 && found.summary.certain == 4 && found.summary.likely == 1);
    CHECK(hip.call.hipGetLastError() == HIP_OK);
    HIP(hip.call.hipGraphDestroy(graph));
}

static void a_freed_block_is_found_by_what_was_remembered(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB), *kept = alloc_on(stream, MIB);
    const void *fields[8] = {NULL, NULL, NULL, input};
    hip_graph graph = graph_made();
    add_three(graph, kept, input);
    add_kernel(graph, &packed, (void *[]){(void *)(uintptr_t)fields});
    OK(tarn_graph_remember(graph, NULL));
    check_into(&found, graph, false);
    CHECK(found.summary.verdict == TARN_GRAPH_CLEAN && found.summary.references == 3);
    OK(tarn_free(input));
    check_into(&found, graph, false);
    CHECK(found.count == 2 && found.summary.certain == 2);
    CHECK(found.list[0].parameter == 2 && found.list[0].block == input);
    CHECK(found.list[1].offset == 24 && found.list[1].parameter_bytes == 64);
    HIP(hip.call.hipGraphDestroy(graph));
    OK(tarn_free(kept));
}

static void kernels_without_a_layout_are_not_seen(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    hip_graph graph = graph_made();
    add_kernel(graph, &unknown, NULL);
    check_into(&found, graph, true);
    CHECK(found.count == 0 && found.summary.unseen == 1 && found.summary.unseen_kernels == 1);
    CHECK(found.summary.verdict == TARN_GRAPH_UNKNOWN);
    add_three(graph, input, NULL);
    CHECK(only(graph, true)->address == input && found.summary.unseen_kernels == 1);
    theirs.__hipUnregisterFatBinary(module); /* as when the library of the kernel is closed */
    check_into(&found, graph, true);
    CHECK(found.count == 0 && found.summary.unseen_kernels == 2);
    CHECK(hip.call.hipGetLastError() == HIP_OK);
    module = theirs.__hipRegisterFatBinary(&binary);
    register_kernel(&three, "three");
    register_kernel(&packed, "packed");
    HIP(hip.call.hipGraphDestroy(graph));
    OK(tarn_free(input));
}

static void do_nothing(void *argument)
{
    (void)argument;
}

static void what_is_not_seen_is_counted(void **state)
{
    (void)state;
    hip_graph_node node;
    hip_graph graph = graph_made();
    const struct hip_host_node host_node = {do_nothing, NULL};
    HIP(theirs.hipGraphAddHostNode(&node, graph, NULL, 0, &host_node));
    check_into(&found, graph, true);
    CHECK(found.summary.unseen == 1 && found.summary.unseen_host == 1);
    hip_graph deep = graph;
    for (int i = 0; i < 12; i++) {
        hip_graph outer = graph_made();
        add_child(outer, deep);
        HIP(hip.call.hipGraphDestroy(deep));
        deep = outer;
    }
    check_into(&found, deep, true);
    CHECK(found.summary.unseen == 1 && found.summary.unseen_other == 1);
    HIP(hip.call.hipGraphDestroy(deep));
}

/* Rows, layers, and an array, whose elements have an unknown size. */
static void copies_of_all_shapes_are_looked_at(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    struct hip_copy_node copy = {.to = {input, 1024, 64, 4},
                                 .to_at = {16, 3, 2},
                                 .from = {input, 512, 512, 4},
                                 .extent = {64, 2, 2},
                                 .kind = HIP_COPY_ON_DEVICE};
    hip_graph graph = graph_made();
    add_copy(graph, &copy);
    check_into(&found, graph, true);
    CHECK(found.count == 2 && found.list[0].parameter_bytes == 0);
    CHECK((char *)found.list[0].address == input + 16 + (size_t)1024 * (3 + 4 * 2));
    CHECK(found.list[1].address == input);
    HIP(hip.call.hipGraphDestroy(graph));

    copy.from_array = &copy;
    copy.from.address = NULL;
    copy.extent.height = copy.extent.depth = 1;
    copy.to_at.z = 0;
    graph = graph_made();
    add_copy(graph, &copy);
    CHECK((char *)only(graph, true)->address == input + (size_t)1024 * 3);
    CHECK(found.list[0].parameter_bytes == 0 && found.summary.unseen == 0);
    HIP(hip.call.hipGraphDestroy(graph));
    OK(tarn_free(input));
}

/* What a copy of the driver's kind looks like where it is read as one of the runtime's. */
static void what_is_no_copy_is_not_seen(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB);
    const struct hip_copy_node good = {.to = {.address = input},
                                       .from = {.address = input},
                                       .extent = {64, 1, 1},
                                       .kind = HIP_COPY_DEFAULT};
    for (int i = 0; i < 7; i++) {
        struct hip_copy_node copy = good;
        hip_graph graph = graph_made();
        switch (i) {
        case 0:
            copy.to.address = NULL;
            break;
        case 1:
            copy.from_array = &copy;
            break;
        case 2:
            copy.from.address = (void *)2;
            break;
        case 3:
            copy.extent.height = 0;
            break;
        case 4:
            copy.extent.depth = 0;
            break;
        case 5:
            copy.kind = 512;
            break;
        default:
            copy.kind = HIP_COPY_ON_DEVICE_BY_ENGINE;
        }
        add_copy(graph, &copy);
        check_into(&found, graph, true);
        CHECK(found.count == (i == 6 ? 2 : 0) && found.summary.unseen_other == (i != 6));
        HIP(hip.call.hipGraphDestroy(graph));
    }
    OK(tarn_free(input));
}

/* As a framework does that gives no graph away: it is taken while the stream captures. */
static void a_graph_is_remembered_before_its_capture_ends(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *taken = NULL;
    uint64_t number = 0;
    hip_graph graph = NULL;
    hip_graph_exec exec = NULL;
    char *input = alloc_on(stream, MIB);
    unsigned n = 1;
    tarn_capture_state captures = TARN_CAPTURE_ACTIVE;
    taken = &taken;
    OK(tarn_capture_state_get(stream, &captures, NULL, &taken));
    CHECK(captures == TARN_CAPTURE_NONE && !taken);
    OK(tarn_capture_announce(stream));
    HIP(hip.call.hipStreamBeginCapture(native_of(stream), HIP_MODE_RELAXED));
    HIP(theirs.hipLaunchKernel(&three, (struct hip_dimensions){1, 1, 1},
                               (struct hip_dimensions){1, 1, 1}, (void *[]){&input, &n, &input}, 0,
                               native_of(stream)));
    HIP(hip.call.hipMemsetAsync(input, 1, 64, native_of(stream)));
    OK(tarn_capture_state_get(stream, &captures, NULL, &taken));
    OK(tarn_graph_remember(taken, &number));
    HIP(hip.call.hipStreamEndCapture(native_of(stream), &graph));
    CHECK(graph == taken);
    OK(tarn_capture_end_announced(stream, NULL));
    HIP(hip.call.hipGraphInstantiateWithFlags(&exec, graph, 0));
    HIP(hip.call.hipGraphDestroy(graph));
    const tarn_graph_options by_number = {.size = sizeof by_number, .remembered = number};
    tarn_graph_summary summary = {.size = sizeof summary};
    OK(tarn_graph_check(NULL, &by_number, NULL, NULL, &summary));
    CHECK(summary.verdict == TARN_GRAPH_CLEAN && summary.nodes == 2 && summary.references == 3);
    OK(tarn_free(input));
    OK(tarn_graph_check(NULL, &by_number, NULL, NULL, &summary));
    CHECK(summary.certain == 3);
    HIP(hip.call.hipGraphExecDestroy(exec));
    GIVES(tarn_graph_check(NULL, &by_number, NULL, NULL, &summary), TARN_ERROR_INVALID_ARGUMENT);
}

/* ---- Versions, and TARN_DEBUG=graphs: each in a process of its own ---- */

/* HIP 6 has nothing to tell of a copy of one row, and returns another copy's parameters. */
static int version_6(void)
{
    loader_fail("libamdhip64.so.5 libamdhip64.so.7");
    begin_on_hip();
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, MIB), *gone = alloc_on(stream, MIB);
    hip_graph old = graph_made(), graph = graph_made();
    add_copy(old, &(struct hip_copy_node){.to = {.address = gone},
                                          .from = {.address = gone},
                                          .extent = {64, 1, 1},
                                          .kind = HIP_COPY_DEFAULT});
    OK(tarn_free(gone));
    add_row(graph, input, input, 64);
    add_fill(graph, input, 64);
    check_into(&found, graph, true);
    NEED(found.count == 1 && found.list[0].kind == TARN_GRAPH_FILL);
    NEED(found.summary.unseen == 1 && found.summary.unseen_other == 1);
    NEED(found.summary.certain == 0 && found.summary.verdict == TARN_GRAPH_UNKNOWN);
    add_three(graph, input, input); /* nor does it tell layouts */
    check_into(&found, graph, true);
    NEED(found.count == 1 && found.summary.unseen_kernels == 1);
    return 0;
}

static int version_5(void)
{
    loader_fail("libamdhip64.so.6 libamdhip64.so.7");
    begin_on_hip();
    hip_graph graph = graph_made();
    NEED(tarn_graph_check(graph, NULL, NULL, NULL, NULL) == TARN_ERROR_NOT_SUPPORTED);
    NEED(strstr(tarn_last_error(), "is of HIP 5.2; 6.0 and later"));
    return 0;
}

static int debug(void)
{
    begin_on_hip();
    tarn_stream stream = lease(0);
    char *input = alloc_on(stream, 4096);
    void *graph = NULL;
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    HIP(hip.call.hipMemsetAsync(input, 1, 4096, native_of(stream)));
    OK(tarn_capture_end(stream, &graph));
    check_into(&found, graph, false);
    NEED(found.summary.remembered && found.summary.verdict == TARN_GRAPH_CLEAN);
    OK(tarn_free(input));
    check_into(&found, graph, false);
    NEED(found.summary.certain == 1 && tarn_debug_reports() == 1);
    return 0;
}

static void a_launch_tells_what_it_finds_and_runs(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    uint64_t number = 0;
    void *graph = NULL;
    hip_graph_exec exec = NULL;
    char *block = alloc_on(stream, MIB);
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    HIP(hip.call.hipMemsetAsync(block, 1, MIB, native_of(stream)));
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_graph_remember(graph, &number));
    HIP(hip.call.hipGraphInstantiateWithFlags(&exec, graph, 0));
    for (int freed = 0; freed < 2; freed++) {
        block[0] = 0;
        found.count = 0;
        OK(tarn_graph_launch(exec, number, stream, note, &found));
        OK(tarn_stream_synchronize(stream));
        CHECK(block[0] == 1 && found.count == (size_t)freed);
        CHECK(!freed || finding(&found, block)->certainty == TARN_GRAPH_CERTAIN);
        if (!freed)
            OK(tarn_free(block));
    }
    HIP(hip.call.hipGraphExecDestroy(exec));
    HIP(hip.call.hipGraphDestroy(graph));
    GIVES(tarn_graph_launch(exec, number, stream, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void what_a_version_does_not_tell_is_not_seen(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("version 6", (const char *const[]){NULL}), 0);
    assert_int_equal(run_scenario("version 5", (const char *const[]){NULL}), 0);
}

static void debug_mode_remembers_and_reports(void **state)
{
    (void)state;
    static const char *const variables[] = {"TARN_DEBUG=graphs,quiet", NULL};
    assert_int_equal(run_scenario("debug", variables), 0);
}

static int begin(void **state)
{
    (void)state;
    begin_on_hip();
    return 0;
}

int main(int count, char **arguments)
{
    setenv("TARN_DRIVER", "hip", 1);
    if (count == 2 && strcmp(arguments[0], "scenario") == 0)
        return strcmp(arguments[1], "version 6") == 0   ? version_6()
               : strcmp(arguments[1], "version 5") == 0 ? version_5()
                                                        : debug();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_node_is_looked_at),
        cmocka_unit_test(a_freed_block_is_found_by_what_was_remembered),
        cmocka_unit_test(kernels_without_a_layout_are_not_seen),
        cmocka_unit_test(what_is_not_seen_is_counted),
        cmocka_unit_test(copies_of_all_shapes_are_looked_at),
        cmocka_unit_test(what_is_no_copy_is_not_seen),
        cmocka_unit_test(a_graph_is_remembered_before_its_capture_ends),
        cmocka_unit_test(a_launch_tells_what_it_finds_and_runs),
        cmocka_unit_test(what_a_version_does_not_tell_is_not_seen),
        cmocka_unit_test(debug_mode_remembers_and_reports),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
