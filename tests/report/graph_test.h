/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of checks of CUDA's graphs share: the simulated libcuda's entry points, and
 * kernels. */
#ifndef TARN_TESTS_REPORT_GRAPH_TEST_H
#define TARN_TESTS_REPORT_GRAPH_TEST_H

#include "../../sim/cuda/calls.h"
#include "driver/cuda_test.h"
#include "report/found_test.h"

static struct {
#define X(name, version, symbol, needed, parameters) cu_result(*symbol) parameters;
    CUDA_CALL_LIST(X)
    SIM_CUDA_CALL_LIST(X)
#undef X
} cu;

/* One parameter; three; a structure of 64 bytes and one; a structure behind a number; one that is
 * not at a multiple of 8; none. */
static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                          ".visible .entry one(.param .u64 a) { ret; }\n"
                          ".visible .entry three(.param .u64 .ptr.global.align 16 a,\n"
                          "  .param .u32 n, .param .u64 b) { ret; }\n"
                          ".visible .entry packed(.param .align 8 .b8 s[64], .param .u64 out)\n"
                          "{ ret; }\n"
                          ".visible .entry behind(.param .u32 n, .param .align 8 .b8 s[736])\n"
                          "{ ret; }\n"
                          ".visible .entry odd(.param .u32 n, .param .align 4 .b8 s[20])\n"
                          "{ ret; }\n"
                          ".visible .entry none() { ret; }\n";

static cu_function kernel_one, kernel_three, kernel_packed, kernel_behind, kernel_odd, kernel_none;

#define CU(call) CHECK((call) == CU_OK)

static inline cu_function kernel(cu_module module, const char *name)
{
    cu_function function = NULL;
    CU(cu.cuModuleGetFunction(&function, module, name));
    return function;
}

static inline void cuda_calls_load(void)
{
    cu_module module;
#define X(name, version, symbol, needed, parameters) loader_store(&cu.symbol, their(#symbol));
    CUDA_CALL_LIST(X)
    SIM_CUDA_CALL_LIST(X)
#undef X
    OK(tarn_device_set(0));
    CU(cu.cuModuleLoadData(&module, ptx));
    kernel_one = kernel(module, "one");
    kernel_three = kernel(module, "three");
    kernel_packed = kernel(module, "packed");
    kernel_behind = kernel(module, "behind");
    kernel_odd = kernel(module, "odd");
    kernel_none = kernel(module, "none");
}

static inline cu_graph graph_made(void)
{
    cu_graph graph = NULL;
    CU(cu.cuGraphCreate(&graph, 0));
    return graph;
}

static inline cu_graph_node add_kernel(cu_graph graph, cu_function function, void **parameters)
{
    cu_graph_node node = NULL;
    const struct cu_kernel_node given = {.function = function,
                                         .grid_x = 1,
                                         .grid_y = 1,
                                         .grid_z = 1,
                                         .block_x = 1,
                                         .block_y = 1,
                                         .block_z = 1,
                                         .parameters = parameters};
    CU(cu.cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &given));
    return node;
}

static inline void add_one(cu_graph graph, const void *value)
{
    add_kernel(graph, kernel_one, (void *[]){&value});
}

static inline void add_three(cu_graph graph, const void *a, const void *b)
{
    unsigned n = 7;
    add_kernel(graph, kernel_three, (void *[]){&a, &n, &b});
}

static inline void add_packed(cu_graph graph, const void *const fields[8], const void *out)
{
    add_kernel(graph, kernel_packed, (void *[]){(void *)(uintptr_t)fields, &out});
}

static inline void add_copy(cu_graph graph, const void *to, const void *from, size_t size)
{
    cu_graph_node node;
    const struct cu_copy_node copy = {
        .to = {.type = CU_MEMORY_DEVICE, .device = (uintptr_t)to},
        .from = {.type = CU_MEMORY_DEVICE, .device = (uintptr_t)from},
        .width = size,
        .height = 1,
        .depth = 1,
    };
    CU(cu.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, current_context()));
}

static inline void add_fill(cu_graph graph, const void *to, size_t size)
{
    cu_graph_node node;
    const struct cu_set_node fill = {.to = (uintptr_t)to, .element = 1, .width = size, .height = 1};
    CU(cu.cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, current_context()));
}

static inline void add_batch(cu_graph graph, const void *address)
{
    cu_graph_node node;
    union cu_memory_operation operations[2] = {
        {.operation = CU_OPERATION_BARRIER},
        {.value = {.operation = CU_OPERATION_WRITE_32, .address = (uintptr_t)address}},
    };
    const struct cu_batch_node batch = {
        .context = current_context(), .count = 2, .operations = operations};
    CU(cu.cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &batch));
}

static inline void add_child(cu_graph graph, cu_graph child)
{
    cu_graph_node node;
    CU(cu.cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
}

/* Adds a conditional node, and returns its bodies: the driver's. */
static inline cu_graph *add_conditional(cu_graph graph, unsigned count)
{
    cu_graph_node node;
    struct cu_any_node given = {.type = CU_NODE_CONDITIONAL, .conditional.size = count};
    CU(cu.cuGraphConditionalHandleCreate(&given.conditional.handle, graph, current_context(), 0,
                                         0));
    CU(cu.cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &given));
    return given.conditional.bodies;
}

#endif
