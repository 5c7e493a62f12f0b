/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated libcuda and libnvidia-ml say of a machine, by TARN_SIM_CARD. */
#ifndef SIM_CUDA_CARD_H
#define SIM_CUDA_CARD_H

#include <stdbool.h>

struct sim_card {
    const char *name;   /* TARN_SIM_CARD */
    const char *device; /* what its name begins with */
    int major, minor;   /* compute capability */
    bool integrated;
    bool slice;            /* its UUID is not that of its device */
    bool coherent;         /* the processor's page tables serve the device */
    bool no_posix_fd;      /* no piece can be exported as a file descriptor */
    bool no_host_pieces;   /* no pieces of host memory */
    bool no_monitor;       /* NVML says "not supported" of memory and processes */
    unsigned address_bits; /* of the process's addresses; 0: 47 */
};

/* The table, with the source of each difference. X(name, device, major, minor, what differs).
 *
 *  orin   Compute capability 8.7, memory of the machine, free bytes as the kernel's MemFree
 *         (sgl-project/sglang#10075, ollama/ollama#12283). NVML is missing or does not support
 *         memory (ollama/ollama#2279, pytorch/pytorch#185240). Jetson Linux builds its kernel with
 *         addresses of 39 bits (CONFIG_ARM64_VA_BITS_39 in arch/arm64/Kconfig of the kernel)
 *  thor   The same of capability 11.0 (ollama/ollama#12283)
 *  gb10   Capability 12.1, integrated (vllm-project/vllm#48140); nvmlDeviceGetMemoryInfo() returns
 *         NVML_ERROR_NOT_SUPPORTED (XuehaiPan/nvitop#208, leptonai/gpud#1170; "Known issues" of the
 *         DGX Spark user guide); the device accesses pageable memory
 *  wsl2   No export by file descriptor, and NVML lists no processes: "CUDA on WSL User Guide",
 *         Known Limitations, and nvidia-smi there
 *  mig    An instance has a UUID of its own (cuDeviceGetUuid_v2() in cuda.h, "returns its MIG
 *         UUID"), and NVML finds it only by that ("NVIDIA Multi-Instance GPU User Guide")
 *  gh200  Capability 9.0, discrete memory, coherent with the processor's ("Understanding memory
 *         management on hardware-coherent platforms", developer.nvidia.com) */
#define SIM_CARD_LIST(X)                                                                    \
    X(orin, "Orin", 8, 7, .integrated = true, .no_monitor = true, .no_host_pieces = true,   \
      .address_bits = 39)                                                                   \
    X(thor, "NVIDIA Thor", 11, 0, .integrated = true, .no_monitor = true)                   \
    X(gb10, "NVIDIA GB10", 12, 1, .integrated = true, .no_monitor = true, .coherent = true) \
    X(wsl2, "NVIDIA GeForce RTX 4090", 8, 9, .no_posix_fd = true, .no_monitor = true,       \
      .no_host_pieces = true)                                                               \
    X(mig, "NVIDIA H100 MIG 1g.10gb", 9, 0, .slice = true)                                  \
    X(gh200, "NVIDIA GH200 480GB", 9, 0, .coherent = true)

/* The card of the environment; without one, or with one that is not in the table, a discrete GPU
 * that lacks nothing. */
const struct sim_card *sim_card(void);

#endif
