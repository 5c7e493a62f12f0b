/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Looks at the nodes of a CUDA graph, by the driver API alone. Owns nothing.
 *
 * What may be read, and from where, is what cuda.h says: "The kernelParams or extra array returned
 * in nodeParams, as well as the argument values it points to, are owned by the node" and valid
 * until the node is destroyed or changed (cuGraphKernelNodeGetParams); the layout is told parameter
 * by parameter until CUDA_ERROR_INVALID_VALUE (cuFuncGetParamInfo, of 12.4); the buffer in `extra`
 * has the parameters at the same offsets (cuLaunchKernel). */
#include "base/pages.h"
#include "base/status.h"
#include "driver/cuda/cuda.h"
#include "driver/walked.h"

#include <string.h>

/* ---- Kernels ---- */

static enum walked_answer ask_parameter(const void *asked, size_t index,
                                        struct walked_parameter *parameter)
{
    const struct cu_kernel_node *node = asked;
    size_t *offset = &parameter->offset, *size = &parameter->size;
    cu_result code = CU_NOT_SUPPORTED;
    if (node->function && cuda.call.cuFuncGetParamInfo)
        code = cuda.call.cuFuncGetParamInfo(node->function, index, offset, size);
    else if (!node->function && cuda.call.cuKernelGetParamInfo)
        code = cuda.call.cuKernelGetParamInfo(node->kernel, index, offset, size);
    return !code ? WALKED_PARAMETER : code == CU_INVALID_VALUE ? WALKED_END : WALKED_NO_ANSWER;
}

static const char *ask_name(const void *asked)
{
    const struct cu_kernel_node *node = asked;
    const char *name = NULL;
    if (node->function && cuda.call.cuFuncGetName &&
        !cuda.call.cuFuncGetName(&name, node->function) && name)
        return name;
    if (!node->function && cuda.call.cuKernelGetName &&
        !cuda.call.cuKernelGetName(&name, node->kernel) && name)
        return name;
    return "";
}

static const struct walked_asker asker = {ask_parameter, ask_name};

/* The buffer named by `extra`; NULL: it has something else. */
static const char *buffer_of(void *const *extra, size_t *size)
{
    const char *buffer = NULL;
    *size = 0;
    for (; *extra != (void *)CU_PARAM_END; extra += 2) {
        if (*extra == (void *)CU_PARAM_BUFFER)
            buffer = extra[1];
        else if (*extra == (void *)CU_PARAM_SIZE && extra[1])
            memcpy(size, extra[1], sizeof *size);
        else
            return NULL;
    }
    return buffer;
}

static void look_at_parameters(struct walked *walked, const struct cu_kernel_node *node,
                               const struct walked_layout *layout)
{
    size_t size = 0;
    const char *buffer = node->parameters || !node->extra ? NULL : buffer_of(node->extra, &size);
    bool missed = false;
    walked->word.kernel = layout->name;
    for (size_t i = 0; i < layout->count; i++) {
        const struct walked_parameter *parameter = &walked->parameters[layout->first + i];
        const char *bytes = NULL;
        if (node->parameters)
            bytes = node->parameters[i];
        else if (buffer && parameter->offset + parameter->size <= size)
            bytes = buffer + parameter->offset;
        walked->word.parameter = (unsigned)i;
        if (bytes)
            walked_parameter(walked, parameter, bytes);
        missed = missed || !bytes;
    }
    if (missed)
        walked_miss(walked, UNSEEN_KERNEL);
}

static bool is_updatable(cu_graph_node handle)
{
    union cu_attribute_value value = {{0}};
    return cuda.call.cuGraphKernelNodeGetAttribute &&
           !cuda.call.cuGraphKernelNodeGetAttribute(handle, CU_NODE_UPDATABLE, &value) &&
           value.updatable.is;
}

static void look_at_kernel(struct walked *walked, cu_graph_node handle)
{
    struct cu_kernel_node node = {0};
    if (!cuda.call.cuGraphKernelNodeGetParams_v2 ||
        cuda.call.cuGraphKernelNodeGetParams_v2(handle, &node) ||
        (!node.function && !node.kernel)) {
        walked_miss(walked, UNSEEN_KERNEL);
        return;
    }
    const void *kernel = node.function ? (const void *)node.function : node.kernel;
    const struct walked_layout *layout = walked_layout(walked, kernel, &asker, &node);
    if (layout->known)
        look_at_parameters(walked, &node, layout);
    else
        walked_miss(walked, UNSEEN_KERNEL);
    if (is_updatable(handle))
        walked_miss(walked, UNSEEN_UPDATABLE);
}

/* ---- Other nodes ---- */

/* Only sides in device memory: pinned blocks are not looked at. */
static void tell_side(struct walked *walked, unsigned parameter, const struct cu_copy_side *side,
                      const struct cu_copy_node *copy)
{
    bool one_row = copy->height <= 1 && copy->depth <= 1;
    if (side->type == CU_MEMORY_DEVICE || side->type == CU_MEMORY_UNIFIED)
        walked_address(walked, parameter,
                       side->device + side->x + side->pitch * (side->y + side->height * side->z),
                       one_row ? copy->width : 0);
}

static bool look_at_copy(struct walked *walked, cu_graph_node handle)
{
    struct cu_copy_node copy = {{0}, {0}, 0, 0, 0};
    if (!cuda.call.cuGraphMemcpyNodeGetParams ||
        cuda.call.cuGraphMemcpyNodeGetParams(handle, &copy))
        return false;
    tell_side(walked, 0, &copy.to, &copy);
    tell_side(walked, 1, &copy.from, &copy);
    return true;
}

static bool look_at_set(struct walked *walked, cu_graph_node handle)
{
    struct cu_set_node set = {0};
    if (!cuda.call.cuGraphMemsetNodeGetParams || cuda.call.cuGraphMemsetNodeGetParams(handle, &set))
        return false;
    walked_address(walked, 0, set.to, set.height <= 1 ? set.width * set.element : 0);
    return true;
}

static bool look_at_free(struct walked *walked, cu_graph_node handle)
{
    cu_address address = 0;
    if (!cuda.call.cuGraphMemFreeNodeGetParams ||
        cuda.call.cuGraphMemFreeNodeGetParams(handle, &address))
        return false;
    walked_address(walked, 0, address, 0);
    return true;
}

static bool look_at_batch(struct walked *walked, cu_graph_node handle)
{
    bool seen = true;
    struct cu_batch_node batch = {0};
    if (!cuda.call.cuGraphBatchMemOpNodeGetParams ||
        cuda.call.cuGraphBatchMemOpNodeGetParams(handle, &batch))
        return false;
    for (unsigned i = 0; i < batch.count; i++) {
        const union cu_memory_operation *operation = &batch.operations[i];
        switch (operation->operation) {
        case CU_OPERATION_WAIT_32:
        case CU_OPERATION_WRITE_32:
            walked_address(walked, i, operation->value.address, 4);
            break;
        case CU_OPERATION_WAIT_64:
        case CU_OPERATION_WRITE_64:
            walked_address(walked, i, operation->value.address, 8);
            break;
        case CU_OPERATION_FLUSH:
        case CU_OPERATION_BARRIER:
            break;
        default:
            seen = false;
        }
    }
    return seen;
}

/* ---- Graphs ---- */

static void look_at_graph(struct walked *walked, cu_graph graph, unsigned depth);

static bool look_into(struct walked *walked, cu_graph_node handle, unsigned depth)
{
    cu_graph inner = NULL;
    if (depth >= WALKED_DEEPEST || !cuda.call.cuGraphChildGraphNodeGetGraph ||
        cuda.call.cuGraphChildGraphNodeGetGraph(handle, &inner))
        return false;
    look_at_graph(walked, inner, depth + 1);
    return true;
}

/* The bodies of a conditional node, which a driver tells from CUDA 13.2 on: "Any pointers returned
 * in *nodeParams point to driver-owned memory associated with the node" (cuGraphNodeGetParams). */
static bool look_into_bodies(struct walked *walked, cu_graph_node handle, unsigned depth)
{
    struct cu_any_node node = {.type = CU_NODE_CONDITIONAL};
    if (depth >= WALKED_DEEPEST || !cuda.call.cuGraphNodeGetParams ||
        cuda.call.cuGraphNodeGetParams(handle, &node) || node.type != CU_NODE_CONDITIONAL ||
        !node.conditional.size || !node.conditional.bodies)
        return false;
    for (unsigned i = 0; i < node.conditional.size; i++)
        look_at_graph(walked, node.conditional.bodies[i], depth + 1);
    return true;
}

static void look_at_node(struct walked *walked, cu_graph_node handle, unsigned depth)
{
    static const enum driver_node_kind kinds[] = {[CU_NODE_KERNEL] = DRIVER_NODE_KERNEL,
                                                  [CU_NODE_COPY] = DRIVER_NODE_COPY,
                                                  [CU_NODE_SET] = DRIVER_NODE_SET,
                                                  [CU_NODE_FREE] = DRIVER_NODE_FREE,
                                                  [CU_NODE_BATCH] = DRIVER_NODE_BATCH};
    cu_node_type type = CU_NODE_CONDITIONAL + 1;
    bool seen = !cuda.call.cuGraphNodeGetType(handle, &type);
    walked_node(walked, handle, depth, type <= CU_NODE_BATCH ? kinds[type] : 0);
    switch (type) {
    case CU_NODE_KERNEL:
        look_at_kernel(walked, handle);
        break;
    case CU_NODE_COPY:
        seen = look_at_copy(walked, handle);
        break;
    case CU_NODE_SET:
        seen = look_at_set(walked, handle);
        break;
    case CU_NODE_FREE:
        seen = look_at_free(walked, handle);
        break;
    case CU_NODE_BATCH:
        seen = look_at_batch(walked, handle);
        break;
    case CU_NODE_GRAPH:
        seen = look_into(walked, handle, depth);
        break;
    case CU_NODE_HOST:
        walked_miss(walked, UNSEEN_HOST);
        break;
    case CU_NODE_CONDITIONAL:
        if (!look_into_bodies(walked, handle, depth))
            walked_miss(walked, UNSEEN_CONDITIONAL);
        break;
    case CU_NODE_EMPTY:
    case CU_NODE_WAIT_EVENT:
    case CU_NODE_RECORD_EVENT:
    case CU_NODE_ALLOC:
        break; /* they name no memory of the program */
    default:
        seen = false;
    }
    if (!seen)
        walked_miss(walked, UNSEEN_OTHER);
}

/* The nodes of a graph. NULL with a count of 0: it has none. */
static cu_result nodes_of(cu_graph graph, cu_graph_node **nodes, size_t *count)
{
    *nodes = NULL;
    *count = 0;
    cu_result code = cuda.call.cuGraphGetNodes(graph, NULL, count);
    if (code || !*count)
        return code;
    *nodes = pages_map(*count * sizeof **nodes);
    return *nodes ? cuda.call.cuGraphGetNodes(graph, *nodes, count) : CU_OUT_OF_MEMORY;
}

static void look_at_graph(struct walked *walked, cu_graph graph, unsigned depth)
{
    cu_graph_node *nodes;
    size_t count;
    cu_result code = nodes_of(graph, &nodes, &count);
    for (size_t i = 0; i < count && !code && !walked->full; i++)
        look_at_node(walked, nodes[i], depth);
    if (code)
        walked_miss(walked, UNSEEN_OTHER);
    pages_unmap(nodes, count * sizeof *nodes);
}

tarn_status cuda_graph_walk(int device, driver_graph graph, struct driver_walk *walk)
{
    struct cuda_scope scope;
    size_t count = 0;
    if (!cuda.call.cuGraphGetNodes || !cuda.call.cuGraphNodeGetType)
        return cuda_missing("cuGraphGetNodes");
    struct walked *walked = walked_begin(walk);
    if (!walked)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = cuda_enter(device, true, &scope);
    if (!status) {
        cu_result code = cuda.call.cuGraphGetNodes(graph, NULL, &count);
        if (!code)
            look_at_graph(walked, graph, 0);
        status = cuda_leave(&scope, code, "cuGraphGetNodes");
    }
    return walked_end(walked, status);
}
