/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated libamdhip64 exports and tarn does not use: entry points that AMD's own
 * libraries and common programs need. The columns are those of HIP_CALL_LIST. tests/abi/check_hip.c
 * compares these rows too. */
#ifndef SIM_HIP_CALLS_H
#define SIM_HIP_CALLS_H

#include "driver/hip/hip_abi.h"

/* hipDeviceProp_t as it was before 6.0. hipGetDeviceProperties() fills it in every version; with
 * later headers that name means hipGetDevicePropertiesR0600(). */
struct hip_properties {
    char name[256];
    size_t memory, shared_per_block; /* bytes */
    int registers_per_block, warp_size, threads_per_block;
    int block_size[3], grid_size[3];
    int clock_rate, memory_clock_rate, memory_bus_width;
    size_t constant_memory;
    int major, minor, processors, l2_size, threads_per_processor, compute_mode, instruction_rate;
    unsigned features;
    int concurrent_kernels, pci_domain, pci_bus, pci_device;
    size_t shared_per_processor;
    int multi_gpu_board, maps_host_memory, architecture;
    char architecture_name[256];
    int integrated, cooperative, cooperative_many;
    int texture_1d_linear, texture_1d, texture_2d[2], texture_3d[3];
    unsigned *flush_memory, *flush_registers;
    size_t pitch, texture_alignment, texture_pitch;
    int timeout, ecc, tcc, unmatched[4], large_bar, revision;
    int managed, direct_managed, concurrent_managed, pageable, pageable_tables;
};

struct hip_host_node {
    hip_host_function function;
    void *argument;
};

/* X(exported symbol, HIP version that has it, whether tarn cannot do without, parameters) */
#define SIM_HIP_CALL_LIST(X)                                                                       \
    X(hipDriverGetVersion, 42, false, (int *version))                                              \
    X(hipGetDeviceProperties, 42, false, (struct hip_properties * properties, int device))         \
    X(hipPeekAtLastError, 42, false, (void))                                                       \
    X(hipMemcpy, 42, false, (void *to, const void *from, size_t size, hip_copy_kind kind))         \
    X(hipMemcpyWithStream, 42, false,                                                              \
      (void *to, const void *from, size_t size, hip_copy_kind kind, hip_stream stream))            \
    X(hipMemcpy2D, 42, false,                                                                      \
      (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,               \
       size_t height, hip_copy_kind kind))                                                         \
    X(hipMemset, 42, false, (void *address, int value, size_t size))                               \
    X(hipMemset2DAsync, 42, false,                                                                 \
      (void *address, size_t pitch, int value, size_t width, size_t height, hip_stream stream))    \
    X(hipStreamCreate, 42, false, (hip_stream * stream))                                           \
    X(hipStreamCreateWithFlags, 42, false, (hip_stream * stream, unsigned flags))                  \
    X(hipStreamGetFlags, 42, false, (hip_stream stream, unsigned *flags))                          \
    X(hipStreamGetPriority, 42, false, (hip_stream stream, int *priority))                         \
    X(hipEventCreate, 42, false, (hip_event * event))                                              \
    X(hipGraphAddKernelNode, 43, false,                                                            \
      (hip_graph_node * node, hip_graph graph, const hip_graph_node *before, size_t count,         \
       const struct hip_kernel_node *parameters))                                                  \
    X(hipGraphAddMemcpyNode, 43, false,                                                            \
      (hip_graph_node * node, hip_graph graph, const hip_graph_node *before, size_t count,         \
       const struct hip_copy_node *parameters))                                                    \
    X(hipGraphAddMemsetNode, 43, false,                                                            \
      (hip_graph_node * node, hip_graph graph, const hip_graph_node *before, size_t count,         \
       const struct hip_set_node *parameters))                                                     \
    X(hipGraphAddHostNode, 45, false,                                                              \
      (hip_graph_node * node, hip_graph graph, const hip_graph_node *before, size_t count,         \
       const struct hip_host_node *parameters))                                                    \
    X(hipGraphAddEmptyNode, 44, false,                                                             \
      (hip_graph_node * node, hip_graph graph, const hip_graph_node *before, size_t count))        \
    X(hipGraphAddChildGraphNode, 45, false,                                                        \
      (hip_graph_node * node, hip_graph graph, const hip_graph_node *before, size_t count,         \
       hip_graph child))                                                                           \
    X(hipLaunchKernel, 42, false,                                                                  \
      (const void *function, struct hip_dimensions grid, struct hip_dimensions block,              \
       void **arguments, size_t shared, hip_stream stream))                                        \
    X(__hipPushCallConfiguration, 42, false,                                                       \
      (struct hip_dimensions grid, struct hip_dimensions block, size_t shared, hip_stream stream)) \
    X(__hipPopCallConfiguration, 42, false,                                                        \
      (struct hip_dimensions * grid, struct hip_dimensions * block, size_t * shared,               \
       hip_stream * stream))

/* Functions that clang's generated code calls to register kernels. No header declares them. */
void **__hipRegisterFatBinary(const void *binary);
void __hipUnregisterFatBinary(void **modules);
void __hipRegisterFunction(void **modules, const void *function, const char *name,
                           const char *device_name, unsigned limit, void *thread, void *block,
                           void *block_size, void *grid_size, const int *warp_size);
void __hipRegisterVar(void **modules, void *variable, const char *name, const char *device_name,
                      int is_external, size_t size, int is_constant, int is_global);

#endif
