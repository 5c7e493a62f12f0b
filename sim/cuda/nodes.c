/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The nodes of the simulated libcuda's graphs: their kinds, their parameters, and graphs that are
 * built node by node. What the host device does not store is noted by common/nodes.c. Kernel nodes,
 * embedded graphs, bodies of conditional nodes, batches and frees do nothing in a launch. An
 * embedded graph is the caller's own graph with one more holder, not a copy. */
#include "common/nodes.h"
#include "base/pages.h"
#include "cuda/sim_cuda.h"

#include <string.h>

/* What is known of a node. A kernel's parameters are copied into `packed`, at the offsets of the
 * kernel's layout; `pointers` point there, or `extra` does. */
struct more {
    struct sim_node noted;
    cu_node_type type;
    bool updatable;
    union {
        struct cu_kernel_node kernel;
        struct cu_batch_node batch;
        cu_graph child;
        cu_address address;
        struct cu_any_node any; /* a conditional node; its bodies are `packed` */
    };
    void *packed; /* from pages_alloc() */
    size_t packed_size, room;
    void **pointers; /* from pages_alloc() */
    size_t pointer_count;
    void *extra[5];
};

static struct object_pool mores = OBJECT_POOL(struct more);

static void more_free(struct more *more)
{
    pages_free(more->packed, more->room);
    pages_free(more->pointers, more->pointer_count * sizeof *more->pointers);
    object_free(&mores, more);
}

/* Called when the graph of a node has ended. */
static void node_ended(struct sim_node *noted)
{
    struct more *more = (struct more *)(void *)noted;
    if (more->type == CU_NODE_GRAPH)
        sim_graph_let_go_at_end(sim_graph_of(more->child));
    for (unsigned i = 0; more->type == CU_NODE_CONDITIONAL && i < more->any.conditional.size; i++)
        sim_graph_let_go_at_end(sim_graph_of(more->any.conditional.bodies[i]));
    more_free(more);
}

/* Notes what is known of a node. Frees it if that fails. */
static cu_result enter(int device, driver_node node, struct more *more)
{
    more->noted.end = node_ended;
    return sim_code(sim_node_enter(device, node, &more->noted));
}

/* ---- Kernels ---- */

static cu_function function_of(const struct cu_kernel_node *kernel)
{
    return kernel->function ? kernel->function : (cu_function)(void *)kernel->kernel;
}

/* Reads the buffer and its size from `extra`. */
static bool read_extra(void **extra, const void **buffer, size_t *size)
{
    *buffer = NULL;
    *size = 0;
    for (; *extra != (void *)CU_PARAM_END; extra += 2) {
        if (*extra == (void *)CU_PARAM_BUFFER)
            *buffer = extra[1];
        else if (*extra == (void *)CU_PARAM_SIZE)
            *size = *(size_t *)extra[1];
        else
            return false;
    }
    return *buffer;
}

static size_t count_parameters(cu_function function, size_t *bytes)
{
    size_t count = 0, offset = 0, size;
    for (*bytes = 0; (size = sim_function_parameter(function, count, &offset)); count++)
        *bytes = offset + size;
    return count;
}

/* Copies the parameters of a launch, since the caller's memory may go. */
static bool keep_parameters(struct more *more, const struct cu_kernel_node *given)
{
    cu_function function = function_of(given);
    const void *buffer = NULL;
    size_t bytes = 0, offset = 0, size, count = count_parameters(function, &bytes);
    if (given->parameters && given->extra)
        return false;
    if (given->extra && !read_extra(given->extra, &buffer, &bytes))
        return false;
    more->kernel = *given;
    more->room = bytes ? bytes : 1;
    more->packed = pages_alloc(more->room);
    more->pointer_count = count ? count : 1;
    more->pointers = pages_alloc(more->pointer_count * sizeof *more->pointers);
    if (!more->packed || !more->pointers || (count && !given->parameters && !buffer))
        return false;
    if (buffer) {
        memcpy(more->packed, buffer, bytes);
        more->packed_size = bytes;
        void *extra[] = {(void *)CU_PARAM_BUFFER, more->packed, (void *)CU_PARAM_SIZE,
                         &more->packed_size, (void *)CU_PARAM_END};
        memcpy(more->extra, extra, sizeof extra);
        more->kernel.extra = more->extra;
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        size = sim_function_parameter(function, i, &offset);
        more->pointers[i] = (char *)more->packed + offset;
        memcpy(more->pointers[i], given->parameters[i], size);
    }
    more->kernel.parameters = more->pointers;
    return true;
}

cu_result sim_node_is_kernel(int device, driver_node node, const struct cu_kernel_node *given)
{
    struct more *more = object_alloc(&mores);
    if (!more)
        return CU_OUT_OF_MEMORY;
    more->type = CU_NODE_KERNEL;
    if (keep_parameters(more, given))
        return enter(device, node, more);
    more_free(more);
    return CU_INVALID_VALUE;
}

/* ---- Building ---- */

static cu_result add(const char *call, cu_graph_node *node, cu_graph graph,
                     const cu_graph_node *before, size_t count, const struct host_op *op)
{
    int device;
    cu_result code = sim_enter(call, &device);
    if (code)
        return code;
    if (!node || !sim_graph_exists(sim_graph_of(graph)) || (count && !before))
        return CU_INVALID_VALUE;
    return sim_code(sim_node_add(sim_graph_of(graph), before, count, op, (void **)(void *)node));
}

static const struct host_op nothing = {.kind = HOST_OP_TIMED};

/* Adds a node that does nothing; `model` has what is known of it. */
static cu_result add_more(const char *call, cu_graph_node *node, cu_graph graph,
                          const cu_graph_node *before, size_t count, const struct more *model)
{
    cu_result code = add(call, node, graph, before, count, &nothing);
    struct more *more = code ? NULL : object_alloc(&mores);
    if (!more)
        return code ? code : CU_OUT_OF_MEMORY;
    *more = *model;
    return enter(sim_graph_of(graph)->device, *node, more);
}

cu_result cuGraphAddKernelNode_v2(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                                  size_t count, const struct cu_kernel_node *parameters)
{
    if (!parameters || !sim_function_exists(function_of(parameters)))
        return CU_INVALID_VALUE;
    cu_result code = add("cuGraphAddKernelNode", node, graph, before, count, &nothing);
    return code ? code : sim_node_is_kernel(sim_graph_of(graph)->device, *node, parameters);
}

/* The address of the first byte of one side of a copy. */
static uintptr_t side_start(const struct cu_copy_side *side)
{
    uintptr_t start = side->type == CU_MEMORY_HOST ? (uintptr_t)side->host : side->device;
    return start + side->x + side->pitch * (side->y + side->height * side->z);
}

/* A copy of one row is made at a launch. A copy of several rows is only stored, and does
 * nothing. */
cu_result cuGraphAddMemcpyNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                               size_t count, const struct cu_copy_node *parameters,
                               cu_context context)
{
    (void)context;
    if (!parameters || !parameters->width || parameters->height > 1 || parameters->depth > 1 ||
        parameters->from.type == CU_MEMORY_ARRAY || parameters->to.type == CU_MEMORY_ARRAY)
        return CU_INVALID_VALUE;
    const struct host_op op = {.kind = HOST_OP_COPY,
                               .move = {.to = side_start(&parameters->to),
                                        .from = side_start(&parameters->from),
                                        .size = parameters->width}};
    return add("cuGraphAddMemcpyNode", node, graph, before, count, &op);
}

cu_result cuGraphAddMemsetNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                               size_t count, const struct cu_set_node *parameters,
                               cu_context context)
{
    (void)context;
    if (!parameters || parameters->element != 1 || parameters->height != 1)
        return CU_INVALID_VALUE;
    const struct host_op op = {
        .kind = HOST_OP_FILL,
        .move = {.to = parameters->to, .size = parameters->width, .value = (int)parameters->value}};
    return add("cuGraphAddMemsetNode", node, graph, before, count, &op);
}

cu_result cuGraphAddHostNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                             size_t count, const struct cu_host_node *parameters)
{
    if (!parameters || !parameters->function)
        return CU_INVALID_VALUE;
    const struct host_op op = {
        .kind = HOST_OP_CALL,
        .call = {.function = parameters->function, .argument = parameters->argument}};
    return add("cuGraphAddHostNode", node, graph, before, count, &op);
}

cu_result cuGraphAddEmptyNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                              size_t count)
{
    return add("cuGraphAddEmptyNode", node, graph, before, count, &nothing);
}

cu_result cuGraphAddChildGraphNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                                   size_t count, cu_graph child)
{
    if (child == graph || !sim_graph_hold(sim_graph_of(child)))
        return CU_INVALID_VALUE;
    const struct more model = {.type = CU_NODE_GRAPH, .child = child};
    cu_result code = add_more("cuGraphAddChildGraphNode", node, graph, before, count, &model);
    if (code)
        (void)sim_graph_let_go(sim_graph_of(child));
    return code;
}

cu_result cuGraphAddBatchMemOpNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                                   size_t count, const struct cu_batch_node *parameters)
{
    struct more model = {.type = CU_NODE_BATCH};
    if (!parameters || !parameters->count || !parameters->operations)
        return CU_INVALID_VALUE;
    model.batch = *parameters;
    model.room = model.packed_size = parameters->count * sizeof *parameters->operations;
    model.packed = pages_alloc(model.room);
    if (!model.packed)
        return CU_OUT_OF_MEMORY;
    memcpy(model.packed, parameters->operations, model.room);
    model.batch.operations = model.packed;
    cu_result code = add_more("cuGraphAddBatchMemOpNode", node, graph, before, count, &model);
    if (code)
        pages_free(model.packed, model.room);
    return code;
}

cu_result cuGraphAddMemFreeNode(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                                size_t count, cu_address address)
{
    const struct more model = {.type = CU_NODE_FREE, .address = address};
    return add_more("cuGraphAddMemFreeNode", node, graph, before, count, &model);
}

cu_result cuGraphConditionalHandleCreate(uint64_t *handle, cu_graph graph, cu_context context,
                                         unsigned value, unsigned flags)
{
    int device;
    cu_result code = sim_enter("cuGraphConditionalHandleCreate", &device);
    (void)context;
    (void)value;
    if (!code && (!handle || !sim_graph_exists(sim_graph_of(graph)) || flags > 1))
        code = CU_INVALID_VALUE;
    if (!code)
        *handle = (uintptr_t)graph | 1;
    return code;
}

/* Makes the bodies of a conditional node, which live as long as it. */
static cu_result make_bodies(int device, struct more *model, unsigned count)
{
    cu_result code = CU_OK;
    model->room = model->packed_size = count * sizeof(cu_graph);
    model->packed = pages_alloc(model->room);
    model->any.conditional.bodies = model->packed;
    model->any.conditional.size = 0;
    if (!model->packed)
        return CU_OUT_OF_MEMORY;
    for (unsigned i = 0; i < count && !code; i++) {
        struct sim_graph *body;
        code = sim_code(sim_graph_create(device, &body));
        if (!code)
            model->any.conditional.bodies[model->any.conditional.size++] = (cu_graph)(void *)body;
    }
    return code;
}

/* Only conditional nodes: tests add others by the calls of their kinds. */
cu_result cuGraphAddNode_v2(cu_graph_node *node, cu_graph graph, const cu_graph_node *before,
                            const struct cu_edge *edges, size_t count,
                            struct cu_any_node *parameters)
{
    struct more model = {.type = CU_NODE_CONDITIONAL};
    if (!parameters || parameters->type != CU_NODE_CONDITIONAL || edges ||
        !parameters->conditional.handle || !parameters->conditional.size ||
        !sim_graph_exists(sim_graph_of(graph)))
        return CU_INVALID_VALUE;
    model.any = *parameters;
    cu_result code = make_bodies(sim_graph_of(graph)->device, &model, parameters->conditional.size);
    if (!code)
        code = add_more("cuGraphAddNode", node, graph, before, count, &model);
    if (!code) {
        *parameters = model.any;
        return code;
    }
    for (unsigned i = 0; i < model.any.conditional.size; i++)
        (void)sim_graph_let_go(sim_graph_of(model.any.conditional.bodies[i]));
    pages_free(model.packed, model.room);
    return code;
}

/* ---- Questions ---- */

cu_result cuGraphGetNodes(cu_graph graph, cu_graph_node *nodes, size_t *count)
{
    int device;
    cu_result code = sim_enter("cuGraphGetNodes", &device);
    if (code)
        return code;
    if (!sim_graph_exists(sim_graph_of(graph)) || !count)
        return CU_INVALID_VALUE;
    size_t room = nodes ? *count : 0;
    size_t found = sim_nodes_list(sim_graph_of(graph), (void **)(void *)nodes, room);
    for (size_t i = found; i < room; i++)
        nodes[i] = NULL;
    *count = nodes && found > room ? room : found;
    return CU_OK;
}

/* Begins a call that asks about a node. */
static cu_result look(const char *call, cu_graph_node node, struct more **more, struct host_op *op)
{
    int device;
    cu_result code = sim_enter(call, &device);
    if (code)
        return code;
    bool live = sim_node_read(node, op);
    *more = live ? (struct more *)(void *)sim_node_find(node) : NULL;
    return live ? CU_OK : CU_INVALID_VALUE;
}

static cu_node_type type_of(const struct more *more, const struct host_op *op)
{
    if (more)
        return more->type;
    return op->kind == HOST_OP_FILL   ? CU_NODE_SET
           : op->kind == HOST_OP_COPY ? CU_NODE_COPY
           : op->kind == HOST_OP_CALL ? CU_NODE_HOST
                                      : CU_NODE_EMPTY;
}

static cu_result look_for(const char *call, cu_graph_node node, cu_node_type type,
                          const void *result, struct more **more, struct host_op *op)
{
    cu_result code = look(call, node, more, op);
    return !code && (!result || type_of(*more, op) != type) ? CU_INVALID_VALUE : code;
}

cu_result cuGraphNodeGetType(cu_graph_node node, cu_node_type *type)
{
    struct more *more;
    struct host_op op;
    cu_result code = look("cuGraphNodeGetType", node, &more, &op);
    if (!code && !type)
        code = CU_INVALID_VALUE;
    if (!code)
        *type = type_of(more, &op);
    return code;
}

cu_result cuGraphKernelNodeGetParams_v2(cu_graph_node node, struct cu_kernel_node *parameters)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphKernelNodeGetParams", node, CU_NODE_KERNEL, parameters, &more, &op);
    if (!code)
        *parameters = more->kernel;
    return code;
}

cu_result cuGraphKernelNodeGetAttribute(cu_graph_node node, cu_node_attribute attribute,
                                        union cu_attribute_value *value)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphKernelNodeGetAttribute", node, CU_NODE_KERNEL, value, &more, &op);
    if (!code && attribute != CU_NODE_UPDATABLE)
        code = CU_INVALID_VALUE;
    if (!code)
        *value = (union cu_attribute_value){.updatable = {.is = more->updatable}};
    return code;
}

cu_result cuGraphKernelNodeSetAttribute(cu_graph_node node, cu_node_attribute attribute,
                                        const union cu_attribute_value *value)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphKernelNodeSetAttribute", node, CU_NODE_KERNEL, value, &more, &op);
    if (!code && attribute != CU_NODE_UPDATABLE)
        code = CU_INVALID_VALUE;
    if (!code)
        more->updatable = value->updatable.is;
    return code;
}

cu_result cuGraphMemcpyNodeGetParams(cu_graph_node node, struct cu_copy_node *parameters)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphMemcpyNodeGetParams", node, CU_NODE_COPY, parameters, &more, &op);
    if (!code)
        *parameters = (struct cu_copy_node){
            .from = {.type = CU_MEMORY_UNIFIED, .device = op.move.from},
            .to = {.type = CU_MEMORY_UNIFIED, .device = op.move.to},
            .width = op.move.size,
            .height = 1,
            .depth = 1,
        };
    return code;
}

cu_result cuGraphMemsetNodeGetParams(cu_graph_node node, struct cu_set_node *parameters)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphMemsetNodeGetParams", node, CU_NODE_SET, parameters, &more, &op);
    if (!code)
        *parameters = (struct cu_set_node){.to = op.move.to,
                                           .value = (unsigned)op.move.value,
                                           .element = 1,
                                           .width = op.move.size,
                                           .height = 1};
    return code;
}

cu_result cuGraphBatchMemOpNodeGetParams(cu_graph_node node, struct cu_batch_node *parameters)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphBatchMemOpNodeGetParams", node, CU_NODE_BATCH, parameters, &more, &op);
    if (!code)
        *parameters = more->batch;
    return code;
}

cu_result cuGraphMemFreeNodeGetParams(cu_graph_node node, cu_address *address)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphMemFreeNodeGetParams", node, CU_NODE_FREE, address, &more, &op);
    if (!code)
        *address = more->address;
    return code;
}

cu_result cuGraphChildGraphNodeGetGraph(cu_graph_node node, cu_graph *graph)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphChildGraphNodeGetGraph", node, CU_NODE_GRAPH, graph, &more, &op);
    if (!code)
        *graph = more->child;
    return code;
}

/* Of conditional nodes alone: tarn asks about no others. */
cu_result cuGraphNodeGetParams(cu_graph_node node, struct cu_any_node *parameters)
{
    struct more *more;
    struct host_op op;
    cu_result code =
        look_for("cuGraphNodeGetParams", node, CU_NODE_CONDITIONAL, parameters, &more, &op);
    if (!code)
        *parameters = more->any;
    return code;
}
