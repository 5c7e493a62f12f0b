/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Looks at the nodes of a CUDA graph, by the driver API alone. Owns nothing: the layouts of kernels
 * are kept for one walk, as a handle may be another kernel's in the next.
 *
 * What may be read, and from where, is what cuda.h says: "The kernelParams or extra array returned
 * in nodeParams, as well as the argument values it points to, are owned by the node" and valid
 * until the node is destroyed or changed (cuGraphKernelNodeGetParams); the layout is told parameter
 * by parameter until CUDA_ERROR_INVALID_VALUE (cuFuncGetParamInfo, of 12.4); the buffer in `extra`
 * has the parameters at the same offsets (cuLaunchKernel). */
#include "base/pages.h"
#include "base/status.h"
#include "driver/cuda/cuda.h"

#include <string.h>

#define DEEPEST 8 /* graphs embedded in graphs */
#define KERNELS 256

/* A kernel's parameters: `count` entries of the list from `first` on. */
struct layout {
    const void *kernel; /* its function; otherwise its kernel */
    const char *name;
    size_t first, count;
    bool known;
};

struct parameter {
    size_t offset, size;
};

struct walker {
    struct driver_walk *walk;
    struct driver_word word;        /* the word being visited */
    bool full;                      /* the caller has no more room */
    struct layout layouts[KERNELS]; /* the latest ones, by the kernel's address */
    struct parameter *parameters;   /* from pages_map() */
    size_t parameter_count, parameter_room;
};

static void tell(struct walker *walker, uint64_t value)
{
    if (!walker->full && driver_word_may_be_address(value)) {
        walker->word.value = value;
        walker->full = !walker->walk->word(&walker->word, walker->walk->user);
    }
}

static void tell_address(struct walker *walker, unsigned parameter, uint64_t value, size_t size)
{
    walker->word.kind = WORD_IS_ADDRESS;
    walker->word.parameter = parameter;
    walker->word.offset = 0;
    walker->word.size = size;
    tell(walker, value);
}

static void miss(struct walker *walker, enum driver_unseen why)
{
    walker->walk->unseen[why]++;
}

/* ---- Kernels ---- */

static bool add_parameter(struct walker *walker, size_t offset, size_t size)
{
    if (walker->parameter_count == walker->parameter_room) {
        size_t room = walker->parameter_room ? 2 * walker->parameter_room : 1024;
        struct parameter *list = pages_map(room * sizeof *list);
        if (!list)
            return false;
        if (walker->parameter_count)
            memcpy(list, walker->parameters, walker->parameter_count * sizeof *list);
        pages_unmap(walker->parameters, walker->parameter_room * sizeof *list);
        walker->parameters = list;
        walker->parameter_room = room;
    }
    walker->parameters[walker->parameter_count++] = (struct parameter){offset, size};
    return true;
}

static cu_result ask_parameter(const struct cu_kernel_node *node, size_t index, size_t *offset,
                               size_t *size)
{
    if (node->function)
        return cuda.call.cuFuncGetParamInfo
                   ? cuda.call.cuFuncGetParamInfo(node->function, index, offset, size)
                   : CU_NOT_SUPPORTED;
    return cuda.call.cuKernelGetParamInfo
               ? cuda.call.cuKernelGetParamInfo(node->kernel, index, offset, size)
               : CU_NOT_SUPPORTED;
}

static const char *ask_name(const struct cu_kernel_node *node)
{
    const char *name = NULL;
    if (node->function && cuda.call.cuFuncGetName &&
        !cuda.call.cuFuncGetName(&name, node->function) && name)
        return name;
    if (!node->function && cuda.call.cuKernelGetName &&
        !cuda.call.cuKernelGetName(&name, node->kernel) && name)
        return name;
    return "";
}

/* The layout of a node's kernel, asked for once. */
static const struct layout *layout_of(struct walker *walker, const struct cu_kernel_node *node)
{
    const void *kernel = node->function ? (const void *)node->function : node->kernel;
    struct layout *layout = &walker->layouts[((uintptr_t)kernel >> 4) % KERNELS];
    if (layout->kernel == kernel)
        return layout;
    *layout =
        (struct layout){.kernel = kernel, .name = ask_name(node), .first = walker->parameter_count};
    cu_result code;
    size_t offset = 0, size = 0;
    while (!(code = ask_parameter(node, layout->count, &offset, &size)) &&
           add_parameter(walker, offset, size))
        layout->count++;
    layout->known = code == CU_INVALID_VALUE;
    return layout;
}

/* The words of one parameter. Pointers are at multiples of 8. */
static void tell_parameter(struct walker *walker, const struct parameter *parameter,
                           const char *bytes)
{
    walker->word.kind = parameter->size == 8 ? WORD_IS_WHOLE : WORD_IS_FIELD;
    walker->word.size = parameter->size;
    for (size_t at = -parameter->offset % 8; at + 8 <= parameter->size; at += 8) {
        uint64_t value;
        memcpy(&value, bytes + at, sizeof value);
        walker->word.offset = at;
        tell(walker, value);
    }
}

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

static void look_at_parameters(struct walker *walker, const struct cu_kernel_node *node,
                               const struct layout *layout)
{
    size_t size = 0;
    const char *buffer = node->parameters || !node->extra ? NULL : buffer_of(node->extra, &size);
    bool missed = false;
    walker->word.kernel = layout->name;
    for (size_t i = 0; i < layout->count; i++) {
        const struct parameter *parameter = &walker->parameters[layout->first + i];
        const char *bytes = NULL;
        if (node->parameters)
            bytes = node->parameters[i];
        else if (buffer && parameter->offset + parameter->size <= size)
            bytes = buffer + parameter->offset;
        walker->word.parameter = (unsigned)i;
        if (bytes)
            tell_parameter(walker, parameter, bytes);
        missed = missed || !bytes;
    }
    if (missed)
        miss(walker, UNSEEN_KERNEL);
}

static bool is_updatable(cu_graph_node handle)
{
    union cu_attribute_value value = {{0}};
    return cuda.call.cuGraphKernelNodeGetAttribute &&
           !cuda.call.cuGraphKernelNodeGetAttribute(handle, CU_NODE_UPDATABLE, &value) &&
           value.updatable.is;
}

static void look_at_kernel(struct walker *walker, cu_graph_node handle)
{
    struct cu_kernel_node node = {0};
    if (!cuda.call.cuGraphKernelNodeGetParams_v2 ||
        cuda.call.cuGraphKernelNodeGetParams_v2(handle, &node) ||
        (!node.function && !node.kernel)) {
        miss(walker, UNSEEN_KERNEL);
        return;
    }
    const struct layout *layout = layout_of(walker, &node);
    if (layout->known)
        look_at_parameters(walker, &node, layout);
    else
        miss(walker, UNSEEN_KERNEL);
    if (is_updatable(handle))
        miss(walker, UNSEEN_UPDATABLE);
}

/* ---- Other nodes ---- */

/* Host memory of a copy may be tarn's pinned memory. */
static void tell_side(struct walker *walker, unsigned parameter, const struct cu_copy_side *side,
                      const struct cu_copy_node *copy)
{
    bool one_row = copy->height <= 1 && copy->depth <= 1;
    if (side->type == CU_MEMORY_DEVICE || side->type == CU_MEMORY_UNIFIED)
        tell_address(walker, parameter,
                     side->device + side->x + side->pitch * (side->y + side->height * side->z),
                     one_row ? copy->width : 0);
}

static bool look_at_copy(struct walker *walker, cu_graph_node handle)
{
    struct cu_copy_node copy = {{0}, {0}, 0, 0, 0};
    if (!cuda.call.cuGraphMemcpyNodeGetParams ||
        cuda.call.cuGraphMemcpyNodeGetParams(handle, &copy))
        return false;
    tell_side(walker, 0, &copy.to, &copy);
    tell_side(walker, 1, &copy.from, &copy);
    return true;
}

static bool look_at_set(struct walker *walker, cu_graph_node handle)
{
    struct cu_set_node set = {0};
    if (!cuda.call.cuGraphMemsetNodeGetParams || cuda.call.cuGraphMemsetNodeGetParams(handle, &set))
        return false;
    tell_address(walker, 0, set.to, set.height <= 1 ? set.width * set.element : 0);
    return true;
}

static bool look_at_free(struct walker *walker, cu_graph_node handle)
{
    cu_address address = 0;
    if (!cuda.call.cuGraphMemFreeNodeGetParams ||
        cuda.call.cuGraphMemFreeNodeGetParams(handle, &address))
        return false;
    tell_address(walker, 0, address, 0);
    return true;
}

static bool look_at_batch(struct walker *walker, cu_graph_node handle)
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
            tell_address(walker, i, operation->value.address, 4);
            break;
        case CU_OPERATION_WAIT_64:
        case CU_OPERATION_WRITE_64:
            tell_address(walker, i, operation->value.address, 8);
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

static void look_at_graph(struct walker *walker, cu_graph graph, unsigned depth);

static bool look_into(struct walker *walker, cu_graph_node handle, unsigned depth)
{
    cu_graph inner = NULL;
    if (depth >= DEEPEST || !cuda.call.cuGraphChildGraphNodeGetGraph ||
        cuda.call.cuGraphChildGraphNodeGetGraph(handle, &inner))
        return false;
    look_at_graph(walker, inner, depth + 1);
    return true;
}

static void look_at_node(struct walker *walker, cu_graph_node handle, unsigned depth)
{
    static const enum driver_node_kind kinds[] = {[CU_NODE_KERNEL] = DRIVER_NODE_KERNEL,
                                                  [CU_NODE_COPY] = DRIVER_NODE_COPY,
                                                  [CU_NODE_SET] = DRIVER_NODE_SET,
                                                  [CU_NODE_FREE] = DRIVER_NODE_FREE,
                                                  [CU_NODE_BATCH] = DRIVER_NODE_BATCH};
    cu_node_type type = CU_NODE_CONDITIONAL + 1;
    bool seen = !cuda.call.cuGraphNodeGetType(handle, &type);
    walker->word = (struct driver_word){.node = handle,
                                        .number = walker->walk->nodes++,
                                        .depth = depth,
                                        .kernel = "",
                                        .of = type <= CU_NODE_BATCH ? kinds[type] : 0};
    switch (type) {
    case CU_NODE_KERNEL:
        look_at_kernel(walker, handle);
        break;
    case CU_NODE_COPY:
        seen = look_at_copy(walker, handle);
        break;
    case CU_NODE_SET:
        seen = look_at_set(walker, handle);
        break;
    case CU_NODE_FREE:
        seen = look_at_free(walker, handle);
        break;
    case CU_NODE_BATCH:
        seen = look_at_batch(walker, handle);
        break;
    case CU_NODE_GRAPH:
        seen = look_into(walker, handle, depth);
        break;
    case CU_NODE_HOST:
        miss(walker, UNSEEN_HOST);
        break;
    case CU_NODE_CONDITIONAL:
        miss(walker, UNSEEN_CONDITIONAL);
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
        miss(walker, UNSEEN_OTHER);
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

static void look_at_graph(struct walker *walker, cu_graph graph, unsigned depth)
{
    cu_graph_node *nodes;
    size_t count;
    cu_result code = nodes_of(graph, &nodes, &count);
    for (size_t i = 0; i < count && !code && !walker->full; i++)
        look_at_node(walker, nodes[i], depth);
    if (code)
        miss(walker, UNSEEN_OTHER);
    pages_unmap(nodes, count * sizeof *nodes);
}

tarn_status cuda_graph_walk(int device, driver_graph graph, struct driver_walk *walk)
{
    struct cuda_scope scope;
    size_t count = 0;
    if (!cuda.call.cuGraphGetNodes || !cuda.call.cuGraphNodeGetType)
        return cuda_missing("cuGraphGetNodes");
    struct walker *walker = pages_map(sizeof *walker);
    if (!walker)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to look at a graph");
    walker->walk = walk;
    tarn_status status = cuda_enter(device, true, &scope);
    if (!status) {
        cu_result code = cuda.call.cuGraphGetNodes(graph, NULL, &count);
        if (!code)
            look_at_graph(walker, graph, 0);
        status = cuda_leave(&scope, code, "cuGraphGetNodes");
    }
    if (!status && walker->full)
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the words of a graph");
    pages_unmap(walker->parameters, walker->parameter_room * sizeof *walker->parameters);
    pages_unmap(walker, sizeof *walker);
    return status;
}
