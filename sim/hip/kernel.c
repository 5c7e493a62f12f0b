/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The entry points by which compiled programs register and launch kernels. There are no kernels
 * here: a registration is ignored, and a launch returns hipErrorNotSupported. */
#include "hip/sim_hip.h"

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

hip_result hipLaunchKernel(const void *function, struct hip_dimensions grid,
                           struct hip_dimensions block, void **arguments, size_t shared,
                           hip_stream stream)
{
    hip_result code = sim_enter(__func__);
    (void)function;
    (void)grid;
    (void)block;
    (void)arguments;
    (void)shared;
    (void)stream;
    return sim_leave(code ? code : HIP_NOT_SUPPORTED);
}

/* Called before main() with a library's kernels, which never run here. */
SIM_EXPORT void **__hipRegisterFatBinary(const void *binary)
{
    static void *modules[1];
    (void)binary;
    return modules;
}

SIM_EXPORT void __hipUnregisterFatBinary(void **modules)
{
    (void)modules;
}

SIM_EXPORT void __hipRegisterFunction(void **modules, const void *function, const char *name,
                                      const char *device_name, unsigned limit, void *thread,
                                      void *block, void *block_size, void *grid_size,
                                      const int *warp_size)
{
    (void)modules;
    (void)function;
    (void)name;
    (void)device_name;
    (void)limit;
    (void)thread;
    (void)block;
    (void)block_size;
    (void)grid_size;
    (void)warp_size;
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
