/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Looks at the nodes of a HIP graph. Owns whether the runtime tells the parameters of copies, which
 * is found out once.
 *
 * Two things differ from CUDA. A runtime may answer a question about a copy of one row with
 * whatever was in the node's memory before: in ROCm/clr@f9f995c of October 2024 such a node has
 * fields of its own, and hipGraphMemcpyNodeGetParams() returns others, which nothing has filled
 * (hipamd/src/hip_graph_internal.hpp, GraphMemcpyNode1D); ROCm/rocm-systems fills them since 2025.
 * So a copy whose parameters are known is asked first. And a kernel's function is not checked by
 * the runtime: hipKernelGetParamInfo() follows it. So only kernels that the runtime finds by their
 * symbol are looked at. */
#include "base/pages.h"
#include "base/status.h"
#include "driver/hip/hip.h"
#include "driver/walked.h"

/* Whether a call has failed. Removes the failure from hipGetLastError(), which the program uses
 * too. */
static bool fails(hip_result code)
{
    if (code)
        (void)hip.call.hipGetLastError();
    return code;
}

/* ---- Whether copies are told ---- */

static atomic_int copies; /* 0: not asked yet; 1: told; -1: not told */

static bool is_told(hip_graph_node node, const uint64_t *to, const uint64_t *from)
{
    struct hip_copy_node copy = {0};
    hip_node_type type = HIP_NODE_EMPTY;
    return !fails(hip.call.hipGraphNodeGetType(node, &type)) && type == HIP_NODE_COPY &&
           !fails(hip.call.hipGraphMemcpyNodeGetParams(node, &copy)) && copy.to.address == to &&
           copy.from.address == from && copy.extent.width == sizeof *to &&
           copy.extent.height == 1 && copy.extent.depth == 1;
}

static bool ask_about_a_copy(void)
{
    const struct hip_calls *call = &hip.call;
    uint64_t to = 0, from = 0;
    hip_graph graph = NULL;
    hip_graph_node node = NULL;
    if (!call->hipGraphCreate || !call->hipGraphAddMemcpyNode1D ||
        !call->hipGraphMemcpyNodeGetParams || fails(call->hipGraphCreate(&graph, 0)))
        return false;
    bool told = !fails(call->hipGraphAddMemcpyNode1D(&node, graph, NULL, 0, &to, &from, sizeof to,
                                                     HIP_COPY_ON_HOST)) &&
                is_told(node, &to, &from);
    (void)fails(call->hipGraphDestroy(graph));
    return told;
}

static bool tells_copies(void)
{
    int known = atomic_load_explicit(&copies, memory_order_relaxed);
    if (!known) {
        known = ask_about_a_copy() ? 1 : -1;
        atomic_store_explicit(&copies, known, memory_order_relaxed);
    }
    return known > 0;
}

/* ---- Kernels ---- */

/* A kernel that the runtime knows by the symbol of the host. */
struct kernel {
    hip_function function;
    const void *symbol;
};

/* A function and its kernel are the same object (hipKernelGetFunction() in ROCm/rocm-systems,
 * projects/clr/hipamd/src/hip_library.cpp). */
static enum walked_answer ask_parameter(const void *asked, size_t index,
                                        struct walked_parameter *parameter)
{
    hip_kernel kernel = (hip_kernel)(void *)((const struct kernel *)asked)->function;
    hip_result code =
        hip.call.hipKernelGetParamInfo(kernel, index, &parameter->offset, &parameter->size);
    return !fails(code)                ? WALKED_PARAMETER
           : code == HIP_INVALID_VALUE ? WALKED_END
                                       : WALKED_NO_ANSWER;
}

static const char *ask_name(const void *asked)
{
    const void *symbol = ((const struct kernel *)asked)->symbol;
    const char *name =
        hip.call.hipKernelNameRefByPtr ? hip.call.hipKernelNameRefByPtr(symbol, NULL) : NULL;
    return name ? name : "";
}

static bool look_at_kernel(struct walked *walked, hip_graph_node handle)
{
    static const struct walked_asker asker = {ask_parameter, ask_name};
    struct hip_kernel_node node = {.function = NULL};
    struct kernel kernel = {NULL, NULL};
    if (!hip.call.hipKernelGetParamInfo || !hip.call.hipGetFuncBySymbol ||
        !hip.call.hipGraphKernelNodeGetParams ||
        fails(hip.call.hipGraphKernelNodeGetParams(handle, &node)) || !node.function ||
        fails(hip.call.hipGetFuncBySymbol(&kernel.function, node.function)) || !kernel.function)
        return false;
    kernel.symbol = node.function;
    const struct walked_layout *layout = walked_layout(walked, kernel.symbol, &asker, &kernel);
    if (!layout->known || (layout->count && !node.parameters))
        return false;
    walked->word.kernel = layout->name;
    for (size_t i = 0; i < layout->count; i++) {
        walked->word.parameter = (unsigned)i;
        walked_parameter(walked, &walked->parameters[layout->first + i], node.parameters[i]);
    }
    return true;
}

/* ---- Other nodes ---- */

/* A side of a copy has an array or memory. What hipDrvGraphAddMemcpyNode() stores is read as if it
 * were a copy of this kind, and has small numbers where this has addresses. */
static bool is_a_side(const void *array, const struct hip_pitched *side)
{
    return !array != !side->address &&
           (array || driver_word_may_be_address((uintptr_t)side->address));
}

static bool is_a_copy(const struct hip_copy_node *copy)
{
    return copy->extent.width && copy->extent.height && copy->extent.depth &&
           (copy->kind <= HIP_COPY_DEFAULT || copy->kind == HIP_COPY_ON_DEVICE_BY_ENGINE) &&
           is_a_side(copy->to_array, &copy->to) && is_a_side(copy->from_array, &copy->from);
}

/* Beside an array, x and the width count its elements, whose size is unknown. */
static void tell_side(struct walked *walked, unsigned parameter, const struct hip_pitched *side,
                      const struct hip_place *at, const struct hip_copy_node *copy)
{
    bool in_bytes = !copy->to_array && !copy->from_array;
    bool one_row = copy->extent.height == 1 && copy->extent.depth == 1;
    if (side->address)
        walked_address(walked, parameter,
                       (uintptr_t)side->address + (in_bytes ? at->x : 0) +
                           side->pitch * (at->y + side->height * at->z),
                       in_bytes && one_row ? copy->extent.width : 0);
}

static bool look_at_copy(struct walked *walked, hip_graph_node handle)
{
    struct hip_copy_node copy = {0};
    if (!tells_copies() || fails(hip.call.hipGraphMemcpyNodeGetParams(handle, &copy)) ||
        !is_a_copy(&copy))
        return false;
    tell_side(walked, 0, &copy.to, &copy.to_at, &copy);
    tell_side(walked, 1, &copy.from, &copy.from_at, &copy);
    return true;
}

static bool look_at_set(struct walked *walked, hip_graph_node handle)
{
    struct hip_set_node set = {0};
    if (!hip.call.hipGraphMemsetNodeGetParams ||
        fails(hip.call.hipGraphMemsetNodeGetParams(handle, &set)))
        return false;
    walked_address(walked, 0, (uintptr_t)set.to, set.height <= 1 ? set.width * set.element : 0);
    return true;
}

/* ---- Graphs ---- */

static void look_at_graph(struct walked *walked, hip_graph graph, unsigned depth);

static bool look_into(struct walked *walked, hip_graph_node handle, unsigned depth)
{
    hip_graph inner = NULL;
    if (depth >= WALKED_DEEPEST || !hip.call.hipGraphChildGraphNodeGetGraph ||
        fails(hip.call.hipGraphChildGraphNodeGetGraph(handle, &inner)))
        return false;
    look_at_graph(walked, inner, depth + 1);
    return true;
}

static void look_at_node(struct walked *walked, hip_graph_node handle, unsigned depth)
{
    static const enum driver_node_kind kinds[] = {[HIP_NODE_KERNEL] = DRIVER_NODE_KERNEL,
                                                  [HIP_NODE_COPY] = DRIVER_NODE_COPY,
                                                  [HIP_NODE_SET] = DRIVER_NODE_SET};
    hip_node_type type = 0;
    bool seen = !fails(hip.call.hipGraphNodeGetType(handle, &type));
    walked_node(walked, handle, depth, seen && type <= HIP_NODE_SET ? kinds[type] : 0);
    if (!seen) {
        walked_miss(walked, UNSEEN_OTHER);
        return;
    }
    switch (type) {
    case HIP_NODE_KERNEL:
        if (!look_at_kernel(walked, handle))
            walked_miss(walked, UNSEEN_KERNEL);
        break;
    case HIP_NODE_COPY:
        seen = look_at_copy(walked, handle);
        break;
    case HIP_NODE_SET:
        seen = look_at_set(walked, handle);
        break;
    case HIP_NODE_GRAPH:
        seen = look_into(walked, handle, depth);
        break;
    case HIP_NODE_HOST:
        walked_miss(walked, UNSEEN_HOST);
        break;
    case HIP_NODE_EMPTY:
    case HIP_NODE_WAIT_EVENT:
    case HIP_NODE_RECORD_EVENT:
    case HIP_NODE_ALLOC:
        break; /* they name no memory of the program */
    default:
        seen = false;
    }
    if (!seen)
        walked_miss(walked, UNSEEN_OTHER);
}

/* The nodes of a graph. NULL with a count of 0: it has none. */
static hip_result nodes_of(hip_graph graph, hip_graph_node **nodes, size_t *count)
{
    *nodes = NULL;
    *count = 0;
    hip_result code = hip.call.hipGraphGetNodes(graph, NULL, count);
    if (code || !*count)
        return code;
    *nodes = pages_map(*count * sizeof **nodes);
    return *nodes ? hip.call.hipGraphGetNodes(graph, *nodes, count) : HIP_OUT_OF_MEMORY;
}

static void look_at_graph(struct walked *walked, hip_graph graph, unsigned depth)
{
    hip_graph_node *nodes;
    size_t count;
    hip_result code = nodes_of(graph, &nodes, &count);
    for (size_t i = 0; i < count && !code && !walked->full; i++)
        look_at_node(walked, nodes[i], depth);
    if (fails(code))
        walked_miss(walked, UNSEEN_OTHER);
    pages_unmap(nodes, count * sizeof *nodes);
}

tarn_status hip_graph_walk(int device, driver_graph graph, struct driver_walk *walk)
{
    struct hip_scope scope;
    size_t count = 0;
    if (!hip.call.hipGraphGetNodes || !hip.call.hipGraphNodeGetType ||
        hip.version < HIP_FIRST_NODE_TYPES)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "the nodes of a graph: %s is of HIP %d.%d; 6.0 and later tell them as tarn "
                      "reads them",
                      loader_path(&hip.library), HIP_MAJOR(hip.version),
                      hip.version / 100000 % 100);
    struct walked *walked = walked_begin(walk);
    if (!walked)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = hip_enter(device, true, &scope);
    if (!status) {
        hip_result code = hip.call.hipGraphGetNodes(graph, NULL, &count);
        if (!code)
            look_at_graph(walked, graph, 0);
        status = hip_leave(&scope, code, "hipGraphGetNodes");
    }
    return walked_end(walked, status);
}
