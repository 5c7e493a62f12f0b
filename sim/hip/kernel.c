/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The entry points by which compiled programs register and launch kernels, which do nothing here.
 * Of a code object that is text, the names of the kernels and the layout of their parameters are
 * read: the metadata of LLVM's assembler (LLVM, "User Guide for AMDGPU Backend", "Code Object V3
 * Metadata": amdhsa.kernels, .args, .offset, .size), where a kernel begins with its .name. On a
 * capturing stream a launch of such a kernel becomes a kernel node. Any other registration is
 * ignored, and any other launch returns hipErrorNotSupported. */
#include "base/pages.h"
#include "base/thread/lock.h"
#include "common/nodes.h"
#include "hip/sim_hip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is registered ---- */

/* As clang writes it for a code object ("__hip_fatbin_wrapper" in clang's CGCUDANV.cpp). */
struct wrapper {
    uint32_t magic, version;
    const char *object;
    void *unused;
};
#define WRAPPER_MAGIC 0x48495046u

static mutex kernels_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct sim_kernel *kernels; /* kernels_lock */
static struct object_pool kernel_objects = OBJECT_POOL(struct sim_kernel);

const struct sim_kernel *sim_kernel_of(const void *symbol)
{
    mutex_lock(&kernels_lock);
    const struct sim_kernel *kernel = kernels;
    while (kernel && kernel->symbol != symbol)
        kernel = kernel->next;
    mutex_unlock(&kernels_lock);
    return kernel;
}

/* The number behind `key`, before `end`; -1: there is none. */
static long number_behind(const char *text, const char *end, const char *key)
{
    const char *at = strstr(text, key);
    return at && at < end ? strtol(at + strlen(key), NULL, 10) : -1;
}

/* Reads the parameters behind ".name: NAME", up to the next kernel. */
static bool read_layout(struct sim_kernel *kernel, const char *text)
{
    const char *next = strstr(text, "\n  - .name:"), *end = next ? next : text + strlen(text);
    for (const char *at = text; (at = strstr(at, ".offset:")) && at < end; at++) {
        long offset = number_behind(at, end, ".offset:"), size = number_behind(at, end, ".size:");
        if (offset < 0 || size <= 0 || kernel->count == SIM_HIP_PARAMETERS)
            return false;
        kernel->parameters[kernel->count].offset = (size_t)offset;
        kernel->parameters[kernel->count++].size = (size_t)size;
    }
    return true;
}

/* Finds a kernel in the text of its module. */
static bool find_layout(struct sim_kernel *kernel, const char *text)
{
    size_t length = strlen(kernel->name);
    for (const char *at = text; (at = strstr(at, ".name:"));) {
        at += strlen(".name:");
        at += strspn(at, " ");
        if (strncmp(at, kernel->name, length) == 0 && at[length] == '\n')
            return read_layout(kernel, at + length);
    }
    return false;
}

static bool is_text(const char *object)
{
    return object && strncmp(object, "amdhsa.kernels:", strlen("amdhsa.kernels:")) == 0;
}

/* ---- Launches ---- */

static _Thread_local struct {
    struct hip_dimensions grid, block;
    size_t shared;
    hip_stream stream;
} configuration;

hip_result __hipPushCallConfiguration(struct hip_dimensions grid, struct hip_dimensions block,
                                      size_t shared, hip_stream stream)
{
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return HIP_OK;
}

hip_result __hipPopCallConfiguration(struct hip_dimensions *grid, struct hip_dimensions *block,
                                     size_t *shared, hip_stream *stream)
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *stream = configuration.stream;
    return HIP_OK;
}

static void do_nothing(void *argument)
{
    (void)argument;
}

/* Adds a node to the graph of a capturing stream. */
static hip_result capture(const struct hip_kernel_node *node, hip_stream stream)
{
    int device;
    driver_stream queue;
    struct driver_capture capture = {0};
    const struct sim_kernel *kernel = sim_kernel_of(node->function);
    hip_result code = sim_stream(stream, &device, &queue);
    if (code)
        return code;
    if (!kernel || !kernel->has_layout || !queue || host_capture_status(device, queue, &capture) ||
        capture.state != DRIVER_CAPTURE_ACTIVE)
        return HIP_NOT_SUPPORTED; /* outside of a capture a kernel would have to run */
    code = sim_code(host_call(device, queue, do_nothing, NULL), HIP_CAPTURE_UNSUPPORTED);
    if (!code && host_capture_status(device, queue, &capture))
        code = HIP_CAPTURE_INVALIDATED;
    return code ? code : sim_node_is_kernel(device, capture.nodes[0], node);
}

hip_result hipLaunchKernel(const void *function, struct hip_dimensions grid,
                           struct hip_dimensions block, void **arguments, size_t shared,
                           hip_stream stream)
{
    const struct hip_kernel_node node = {.function = (void *)(uintptr_t)function,
                                         .grid = grid,
                                         .block = block,
                                         .shared = (unsigned)shared,
                                         .parameters = arguments};
    hip_result code = sim_enter(__func__);
    return sim_leave(code ? code : capture(&node, stream));
}

/* ---- Questions ---- */

const char *hipKernelNameRefByPtr(const void *symbol, hip_stream stream)
{
    const struct sim_kernel *kernel = sim_kernel_of(symbol);
    (void)stream;
    return kernel ? kernel->name : NULL;
}

#if SIM_HIP_VERSION >= 60200000
hip_result hipGetFuncBySymbol(hip_function *function, const void *symbol)
{
    hip_result code = sim_enter(__func__);
    const struct sim_kernel *kernel = sim_kernel_of(symbol);
    if (!code && (!function || !kernel))
        code = HIP_INVALID_FUNCTION;
    if (!code)
        *function = (hip_function)(void *)(uintptr_t)kernel;
    return sim_leave(code);
}
#endif

#if SIM_HIP_VERSION >= 70200000
/* The kernel of a function that hipGetFuncBySymbol() has returned. */
hip_result hipKernelGetParamInfo(hip_kernel handle, size_t index, size_t *offset, size_t *size)
{
    const struct sim_kernel *kernel = (const struct sim_kernel *)(const void *)handle;
    hip_result code = sim_enter(__func__);
    if (!code && (!kernel || !offset))
        code = HIP_INVALID_VALUE;
    if (!code && !kernel->has_layout)
        code = HIP_INVALID_FUNCTION;
    if (!code && index >= kernel->count)
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    *offset = kernel->parameters[index].offset;
    if (size)
        *size = kernel->parameters[index].size;
    return sim_leave(HIP_OK);
}
#endif

/* ---- Registration ---- */

/* Called before main() with a library's kernels. */
SIM_EXPORT void **__hipRegisterFatBinary(const void *binary)
{
    static void *unknown[1];
    const struct wrapper *wrapper = binary;
    void **module = wrapper && wrapper->magic == WRAPPER_MAGIC && is_text(wrapper->object)
                        ? pages_alloc(sizeof *module)
                        : NULL;
    if (!module)
        return unknown;
    *module = (void *)(uintptr_t)wrapper->object;
    return module;
}

SIM_EXPORT void __hipUnregisterFatBinary(void **module)
{
    mutex_lock(&kernels_lock);
    for (struct sim_kernel **place = &kernels; *place;) {
        struct sim_kernel *kernel = *place;
        if (kernel->module == module) {
            *place = kernel->next;
            object_free(&kernel_objects, kernel);
        } else {
            place = &kernel->next;
        }
    }
    mutex_unlock(&kernels_lock);
    if (module && *module)
        pages_free(module, sizeof *module);
}

SIM_EXPORT void __hipRegisterFunction(void **module, const void *function, const char *name,
                                      const char *device_name, unsigned limit, void *thread,
                                      void *block, void *block_size, void *grid_size,
                                      const int *warp_size)
{
    const char *known = device_name ? device_name : name;
    struct sim_kernel *kernel = NULL;
    (void)limit;
    (void)thread;
    (void)block;
    (void)block_size;
    (void)grid_size;
    (void)warp_size;
    if (module && *module && known && strlen(known) < sizeof kernel->name)
        kernel = object_alloc(&kernel_objects);
    if (!kernel)
        return;
    *kernel = (struct sim_kernel){.symbol = function, .module = module};
    snprintf(kernel->name, sizeof kernel->name, "%s", known);
    kernel->has_layout = find_layout(kernel, *module);
    mutex_lock(&kernels_lock);
    kernel->next = kernels;
    kernels = kernel;
    mutex_unlock(&kernels_lock);
}

SIM_EXPORT void __hipRegisterVar(void **modules, void *variable, const char *name,
                                 const char *device_name, int is_external, size_t size,
                                 int is_constant, int is_global)
{
    (void)modules;
    (void)variable;
    (void)name;
    (void)device_name;
    (void)is_external;
    (void)size;
    (void)is_constant;
    (void)is_global;
}
