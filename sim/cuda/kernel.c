/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kernels of the simulated libcuda, which do nothing. A module is PTX text, of which the names of
 * the entries and the layout of their parameters are read (PTX ISA, "Kernel Function Parameters").
 * On a capturing stream a launch becomes a kernel node; on any other stream it is refused. A
 * function is also its own kernel (cuKernel). When a module is unloaded, its functions remain as
 * objects, without any information. */
#include "base/pages.h"
#include "cuda/sim_cuda.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS 64 /* at most so many per kernel */

struct CUfunc_st {
    void *first;
    struct CUfunc_st *next;
    cu_module module; /* NULL: the module was unloaded */
    char name[128];
    unsigned count;
    struct {
        size_t offset, size;
    } parameters[PARAMETERS];
};

struct CUmod_st {
    void *first;
    bool live;
    struct CUfunc_st *functions;
};

static struct object_pool modules = OBJECT_POOL(struct CUmod_st);
static struct object_pool functions = OBJECT_POOL(struct CUfunc_st);

/* ---- The text ---- */

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* Bytes of a PTX type such as ".u64"; 0: it is not a type. */
static size_t type_size(const char *word)
{
    if (word[0] != '.' || !strchr("usbf", word[1]))
        return 0;
    size_t bits = strtoul(word + 2, NULL, 10);
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 0;
}

/* Reads one ".param", up to its comma or the end of the list: ".align 8 .b8 name[24]", or ".u64
 * .ptr .global .align 4 name". The alignment in the second is that of the memory that the pointer
 * leads to. */
static bool read_parameter(struct CUfunc_st *function, const char *text, const char *end)
{
    size_t size = 0, count = 1, align = 0;
    for (const char *at = text; at < end; at++) {
        if (*at == '.' && !size && type_size(at))
            size = type_size(at);
        else if (*at == '.' && !size && strncmp(at, ".align", 6) == 0)
            align = strtoul(at + 6, NULL, 10);
        else if (*at == '[')
            count = strtoul(at + 1, NULL, 10);
    }
    if (!size || !count || function->count == PARAMETERS)
        return false;
    if (align < size)
        align = size;
    size_t offset = 0;
    if (function->count) {
        offset = function->parameters[function->count - 1].offset +
                 function->parameters[function->count - 1].size;
        offset = (offset + align - 1) / align * align;
    }
    function->parameters[function->count].offset = offset;
    function->parameters[function->count++].size = size * count;
    return true;
}

/* Reads what follows ".entry". */
static bool read_entry(struct CUfunc_st *function, const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = 0;
    while (is_name(text[length]))
        length++;
    if (!length || length >= sizeof function->name)
        return false;
    memcpy(function->name, text, length);
    text += length + strspn(text + length, " \t\n");
    const char *end = *text == '(' ? strchr(text, ')') : text;
    if (!end)
        return false;
    for (const char *at = text; (at = strstr(at, ".param")) && at < end;) {
        at += strlen(".param");
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (!read_parameter(function, at, comma ? comma : end))
            return false;
    }
    return true;
}

/* True for PTX text, false for any binary. */
static bool is_text(const char *image)
{
    image += strspn(image, " \t\n");
    return strncmp(image, ".version", 8) == 0 || strncmp(image, "//", 2) == 0;
}

cu_result cuModuleLoadData(cu_module *module, const void *image)
{
    int device;
    cu_result code = sim_enter("cuModuleLoadData", &device);
    if (code)
        return code;
    if (image && !is_text(image))
        return CU_NOT_SUPPORTED;
    struct CUmod_st *made = module && image ? object_alloc(&modules) : NULL;
    if (!made)
        return CU_INVALID_VALUE;
    made->live = true;
    for (const char *at = image; (at = strstr(at, ".entry"));) {
        at += strlen(".entry");
        struct CUfunc_st *function = object_alloc(&functions);
        if (!function || !read_entry(function, at)) {
            (void)cuModuleUnload(made);
            return CU_INVALID_VALUE;
        }
        function->module = made;
        function->next = made->functions;
        made->functions = function;
    }
    *module = made;
    return CU_OK;
}

cu_result cuModuleUnload(cu_module module)
{
    if (!module || !module->live)
        return CU_INVALID_HANDLE;
    for (struct CUfunc_st *function = module->functions; function; function = function->next)
        function->module = NULL;
    module->live = false;
    object_free(&modules, module);
    return CU_OK;
}

cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name)
{
    int device;
    cu_result code = sim_enter("cuModuleGetFunction", &device);
    if (code)
        return code;
    if (!function || !name || !module || !module->live)
        return CU_INVALID_VALUE;
    for (struct CUfunc_st *at = module->functions; at; at = at->next)
        if (strcmp(at->name, name) == 0) {
            *function = at;
            return CU_OK;
        }
    return CU_NOT_FOUND;
}

/* ---- Questions ---- */

bool sim_function_exists(cu_function function)
{
    return function && function->module;
}

size_t sim_function_parameter(cu_function function, size_t index, size_t *offset)
{
    if (index >= function->count)
        return 0;
    *offset = function->parameters[index].offset;
    return function->parameters[index].size;
}

cu_result cuFuncGetParamInfo(cu_function function, size_t index, size_t *offset, size_t *size)
{
    cu_result code = sim_enter_process("cuFuncGetParamInfo");
    if (code)
        return code;
    if (!sim_function_exists(function) || !offset || index >= function->count)
        return CU_INVALID_VALUE;
    size_t bytes = sim_function_parameter(function, index, offset);
    if (size)
        *size = bytes;
    return CU_OK;
}

cu_result cuKernelGetParamInfo(cu_kernel kernel, size_t index, size_t *offset, size_t *size)
{
    cu_result code = sim_enter_process("cuKernelGetParamInfo");
    return code ? code : cuFuncGetParamInfo((cu_function)(void *)kernel, index, offset, size);
}

cu_result cuFuncGetName(const char **name, cu_function function)
{
    cu_result code = sim_enter_process("cuFuncGetName");
    if (code)
        return code;
    if (!name || !sim_function_exists(function))
        return CU_INVALID_VALUE;
    *name = function->name;
    return CU_OK;
}

cu_result cuKernelGetName(const char **name, cu_kernel kernel)
{
    return cuFuncGetName(name, (cu_function)(void *)kernel);
}

/* ---- Launches ---- */

static void do_nothing(void *argument)
{
    (void)argument;
}

cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                         cu_stream stream, void **parameters, void **extra)
{
    int device;
    driver_stream host = NULL;
    struct driver_capture capture = {0};
    const struct cu_kernel_node node = {.function = function,
                                        .grid_x = grid_x,
                                        .grid_y = grid_y,
                                        .grid_z = grid_z,
                                        .block_x = block_x,
                                        .block_y = block_y,
                                        .block_z = block_z,
                                        .shared = shared,
                                        .parameters = parameters,
                                        .extra = extra};
    cu_result code = sim_enter("cuLaunchKernel", &device);
    if (!code)
        code = sim_stream(stream, &device, &host);
    if (!code && !sim_function_exists(function))
        code = CU_INVALID_HANDLE;
    if (!code && (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z))
        code = CU_INVALID_VALUE;
    if (!code && (!host || driver->capture_status(device, host, &capture) ||
                  capture.state != DRIVER_CAPTURE_ACTIVE))
        code = CU_NOT_SUPPORTED; /* outside of a capture a kernel would have to run */
    if (!code)
        code = sim_code(driver->call(device, host, do_nothing, NULL));
    if (!code && driver->capture_status(device, host, &capture))
        code = CU_CAPTURE_INVALIDATED;
    if (code)
        return code;
    return sim_node_is_kernel(device, capture.nodes[0], &node);
}
