/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The nodes of the simulated libamdhip64's graphs: their types, their parameters, and graphs that
 * are built node by node. What the host device does not store is noted by common/nodes.c. Kernel
 * nodes and embedded graphs do nothing in a launch. An embedded graph is the caller's own graph
 * with one more holder, not a copy.
 *
 * Like the real library before 7, this one has no parameters to tell of a copy of one row. Asked
 * for them it returns those of another copy, as the real one returns whatever was in the memory
 * (GraphMemcpyNode1D in ROCm/clr@f9f995c, hipamd/src/hip_graph_internal.hpp). */
#include "common/nodes.h"
#include "base/pages.h"
#include "hip/sim_hip.h"

#include <string.h>

/* What is known of a node. A kernel's parameters are copied into `packed`, at the offsets of the
 * kernel's layout; `pointers` point there. */
struct more {
    struct sim_node noted;
    hip_node_type type;
    union {
        struct hip_kernel_node kernel;
        struct hip_copy_node copy;
        hip_graph child;
    };
    void *packed; /* from pages_alloc() */
    size_t room;
    void *pointers[SIM_HIP_PARAMETERS];
};

static struct object_pool mores = OBJECT_POOL(struct more);

static void more_free(struct more *more)
{
    pages_free(more->packed, more->room);
    object_free(&mores, more);
}

/* Called when the graph of a node has ended. */
static void node_ended(struct sim_node *noted)
{
    struct more *more = (struct more *)(void *)noted;
    if (more->type == HIP_NODE_GRAPH)
        sim_graph_let_go_at_end(sim_graph_of(more->child));
    more_free(more);
}

/* Notes what is known of a node. Frees it if that fails. */
static hip_result enter(int device, driver_node node, struct more *more)
{
    more->noted.end = node_ended;
    return sim_code(sim_node_enter(device, node, &more->noted), HIP_CAPTURE_UNSUPPORTED);
}

/* ---- Kernels ---- */

/* Copies the parameters of a launch, since the caller's memory may go. */
static bool keep_parameters(struct more *more, const struct sim_kernel *kernel)
{
    void **given = more->kernel.parameters;
    size_t count = kernel->count;
    if (count && !given)
        return false;
    more->room =
        count ? kernel->parameters[count - 1].offset + kernel->parameters[count - 1].size : 1;
    more->packed = pages_alloc(more->room);
    if (!more->packed)
        return false;
    for (size_t i = 0; i < count; i++) {
        more->pointers[i] = (char *)more->packed + kernel->parameters[i].offset;
        memcpy(more->pointers[i], given[i], kernel->parameters[i].size);
    }
    more->kernel.parameters = more->pointers;
    return true;
}

hip_result sim_node_is_kernel(int device, driver_node node, const struct hip_kernel_node *given)
{
    const struct sim_kernel *kernel = sim_kernel_of(given->function);
    struct more *more = object_alloc(&mores);
    if (!more)
        return HIP_OUT_OF_MEMORY;
    *more = (struct more){.type = HIP_NODE_KERNEL, .kernel = *given};
    if (!kernel || !kernel->has_layout)
        more->kernel.parameters = NULL;
    else if (!keep_parameters(more, kernel)) {
        more_free(more);
        return HIP_INVALID_VALUE;
    }
    return enter(device, node, more);
}

/* ---- Building ---- */

static hip_result add(const char *call, hip_graph_node *node, hip_graph graph,
                      const hip_graph_node *before, size_t count, const struct host_op *op)
{
    hip_result code = sim_enter(call);
    if (code)
        return code;
    if (!node || !sim_graph_exists(sim_graph_of(graph)) || (count && !before))
        return HIP_INVALID_VALUE;
    return sim_code(sim_node_add(sim_graph_of(graph), before, count, op, (void **)(void *)node),
                    HIP_CAPTURE_UNSUPPORTED);
}

static const struct host_op nothing = {.kind = HOST_OP_TIMED};

/* Adds a node that executes `op`, and notes `model` as its parameters. */
static hip_result add_more(const char *call, hip_graph_node *node, hip_graph graph,
                           const hip_graph_node *before, size_t count, const struct host_op *op,
                           const struct more *model)
{
    hip_result code = add(call, node, graph, before, count, op);
    struct more *more = code ? NULL : object_alloc(&mores);
    if (!more)
        return code ? code : HIP_OUT_OF_MEMORY;
    *more = *model;
    return enter(sim_graph_of(graph)->device, *node, more);
}

hip_result hipGraphAddKernelNode(hip_graph_node *node, hip_graph graph,
                                 const hip_graph_node *before, size_t count,
                                 const struct hip_kernel_node *parameters)
{
    hip_result code = parameters && parameters->function
                          ? add(__func__, node, graph, before, count, &nothing)
                          : HIP_INVALID_VALUE;
    if (!code)
        code = sim_node_is_kernel(sim_graph_of(graph)->device, *node, parameters);
    return sim_leave(code);
}

static struct host_op op_of_copy(const struct hip_copy_node *copy)
{
    struct host_op op = nothing;
    if (copy->extent.height == 1 && copy->extent.depth == 1 && !copy->to_array && !copy->from_array)
        op = (struct host_op){.kind = HOST_OP_COPY,
                              .move = {.to = (uintptr_t)copy->to.address + copy->to_at.x,
                                       .from = (uintptr_t)copy->from.address + copy->from_at.x,
                                       .size = copy->extent.width}};
    return op;
}

/* What HIP returns for a copy of one row, whose parameters it does not store: this thread's latest
 * other copy. */
static _Thread_local struct hip_copy_node left_over;

/* A copy of one row is made at a launch. A copy of several rows is only stored, and does
 * nothing. */
hip_result hipGraphAddMemcpyNode(hip_graph_node *node, hip_graph graph,
                                 const hip_graph_node *before, size_t count,
                                 const struct hip_copy_node *parameters)
{
    if (!parameters || !parameters->extent.width)
        return sim_leave(HIP_INVALID_VALUE);
    const struct host_op op = op_of_copy(parameters);
    const struct more model = {.type = HIP_NODE_COPY, .copy = *parameters};
    left_over = *parameters;
    return sim_leave(add_more(__func__, node, graph, before, count, &op, &model));
}

hip_result hipGraphAddMemcpyNode1D(hip_graph_node *node, hip_graph graph,
                                   const hip_graph_node *before, size_t count, void *to,
                                   const void *from, size_t size, hip_copy_kind kind)
{
    const struct host_op op = {
        .kind = HOST_OP_COPY, .move = {.to = (uintptr_t)to, .from = (uintptr_t)from, .size = size}};
    return sim_leave(to && from && size && kind <= HIP_COPY_DEFAULT
                         ? add(__func__, node, graph, before, count, &op)
                         : HIP_INVALID_VALUE);
}

hip_result hipGraphAddMemsetNode(hip_graph_node *node, hip_graph graph,
                                 const hip_graph_node *before, size_t count,
                                 const struct hip_set_node *parameters)
{
    if (!parameters || parameters->element != 1 || parameters->height != 1)
        return sim_leave(HIP_INVALID_VALUE);
    const struct host_op op = {.kind = HOST_OP_FILL,
                               .move = {.to = (uintptr_t)parameters->to,
                                        .size = parameters->width,
                                        .value = (int)parameters->value}};
    return sim_leave(add(__func__, node, graph, before, count, &op));
}

hip_result hipGraphAddHostNode(hip_graph_node *node, hip_graph graph, const hip_graph_node *before,
                               size_t count, const struct hip_host_node *parameters)
{
    if (!parameters || !parameters->function)
        return sim_leave(HIP_INVALID_VALUE);
    const struct host_op op = {
        .kind = HOST_OP_CALL,
        .call = {.function = parameters->function, .argument = parameters->argument}};
    return sim_leave(add(__func__, node, graph, before, count, &op));
}

hip_result hipGraphAddEmptyNode(hip_graph_node *node, hip_graph graph, const hip_graph_node *before,
                                size_t count)
{
    return sim_leave(add(__func__, node, graph, before, count, &nothing));
}

hip_result hipGraphAddChildGraphNode(hip_graph_node *node, hip_graph graph,
                                     const hip_graph_node *before, size_t count, hip_graph child)
{
    if (child == graph || !sim_graph_hold(sim_graph_of(child)))
        return sim_leave(HIP_INVALID_VALUE);
    const struct more model = {.type = HIP_NODE_GRAPH, .child = child};
    hip_result code = add_more(__func__, node, graph, before, count, &nothing, &model);
    if (code)
        (void)sim_graph_let_go(sim_graph_of(child));
    return sim_leave(code);
}

/* ---- Questions ---- */

/* The real library follows any other pointer. */
hip_result hipGraphGetNodes(hip_graph graph, hip_graph_node *nodes, size_t *count)
{
    hip_result code = sim_enter(__func__);
    if (!code && (!graph || !count))
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    if (!sim_graph_exists(sim_graph_of(graph)))
        sim_crash("hipGraphGetNodes of a graph that is gone, at which the real library crashes");
    size_t room = nodes ? *count : 0;
    size_t found = sim_nodes_list(sim_graph_of(graph), (void **)(void *)nodes, room);
    for (size_t i = found; i < room; i++)
        nodes[i] = NULL;
    *count = nodes && found > room ? room : found;
    return sim_leave(HIP_OK);
}

/* Begins a call that asks about a node. */
static hip_result look(const char *call, hip_graph_node node, const void *result,
                       struct more **more, struct host_op *op)
{
    hip_result code = sim_enter(call);
    if (code)
        return code;
    bool live = sim_node_read(node, op);
    *more = live ? (struct more *)(void *)sim_node_find(node) : NULL;
    return live && result ? HIP_OK : HIP_INVALID_VALUE;
}

static hip_node_type type_of(const struct more *more, const struct host_op *op)
{
    if (more)
        return more->type;
    return op->kind == HOST_OP_FILL   ? HIP_NODE_SET
           : op->kind == HOST_OP_COPY ? HIP_NODE_COPY
           : op->kind == HOST_OP_CALL ? HIP_NODE_HOST
                                      : HIP_NODE_EMPTY;
}

hip_result hipGraphNodeGetType(hip_graph_node node, hip_node_type *type)
{
    struct more *more = NULL;
    struct host_op op;
    hip_result code = look(__func__, node, type, &more, &op);
    if (!code)
        *type = type_of(more, &op) + (sim_hip_version() < HIP_FIRST_NODE_TYPES);
    return sim_leave(code);
}

/* The real library reads a node of another type as one of the type that is asked for. */
static void must_be(const char *call, hip_node_type type, const struct more *more,
                    const struct host_op *op)
{
    if (type_of(more, op) != type)
        sim_crash(call);
}

hip_result hipGraphKernelNodeGetParams(hip_graph_node node, struct hip_kernel_node *parameters)
{
    struct more *more = NULL;
    struct host_op op;
    hip_result code = look(__func__, node, parameters, &more, &op);
    if (!code && type_of(more, &op) != HIP_NODE_KERNEL)
        code = HIP_INVALID_VALUE;
    if (!code)
        *parameters = more->kernel;
    return sim_leave(code);
}

static struct hip_copy_node one_row(const struct host_op *op)
{
    if (sim_hip_version() < HIP_FIRST_COPIES_TOLD)
        return left_over;
    return (struct hip_copy_node){.from = {.address = (void *)op->move.from},
                                  .to = {.address = (void *)op->move.to},
                                  .extent = {op->move.size, 1, 1},
                                  .kind = HIP_COPY_DEFAULT};
}

hip_result hipGraphMemcpyNodeGetParams(hip_graph_node node, struct hip_copy_node *parameters)
{
    struct more *more = NULL;
    struct host_op op;
    hip_result code = look(__func__, node, parameters, &more, &op);
    if (!code) {
        must_be("hipGraphMemcpyNodeGetParams of another node", HIP_NODE_COPY, more, &op);
        *parameters = more ? more->copy : one_row(&op);
    }
    return sim_leave(code);
}

hip_result hipGraphMemsetNodeGetParams(hip_graph_node node, struct hip_set_node *parameters)
{
    struct more *more = NULL;
    struct host_op op;
    hip_result code = look(__func__, node, parameters, &more, &op);
    if (!code) {
        must_be("hipGraphMemsetNodeGetParams of another node", HIP_NODE_SET, more, &op);
        *parameters = (struct hip_set_node){.to = (void *)op.move.to,
                                            .element = 1,
                                            .height = 1,
                                            .value = (unsigned)op.move.value,
                                            .width = op.move.size};
    }
    return sim_leave(code);
}

hip_result hipGraphChildGraphNodeGetGraph(hip_graph_node node, hip_graph *graph)
{
    struct more *more = NULL;
    struct host_op op;
    hip_result code = look(__func__, node, graph, &more, &op);
    if (!code && type_of(more, &op) != HIP_NODE_GRAPH)
        code = HIP_INVALID_VALUE;
    if (!code)
        *graph = more->child;
    return sim_leave(code);
}
