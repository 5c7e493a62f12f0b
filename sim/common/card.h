/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated drivers and libnvidia-ml say of a machine, by TARN_SIM_CARD. */
#ifndef SIM_COMMON_CARD_H
#define SIM_COMMON_CARD_H

#include <stdbool.h>
#include <stddef.h>

struct sim_card {
    const char *name;   /* TARN_SIM_CARD */
    const char *device; /* what its name begins with */
    int major, minor;   /* compute capability */
    bool amd;           /* HIP has it, and CUDA does not */
    bool integrated;
    bool slice;            /* a MIG slice, with a UUID of its own */
    bool mps;              /* its contexts are shared by MPS */
    bool coherent;         /* the processor's page tables serve the device */
    bool paged;            /* twice its memory can be created, as the system pages it */
    bool no_posix_fd;      /* no piece for export as a file descriptor, which the driver claims */
    bool no_host_pieces;   /* no pieces of host memory */
    bool no_monitor;       /* NVML says "not supported" of memory and processes */
    bool no_bytes;         /* NVML lists processes without their memory */
    unsigned address_bits; /* of the process's addresses; 0: 47 */
    size_t reservation;    /* bytes: as many or more cannot be reserved at once; 0: no limit */
};

/* The table, with the source of each difference. X(name, device, major, minor, what differs).
 *
 *  orin   Compute capability 8.7, memory of the machine, free bytes without the page cache
 *         (sgl-project/sglang#10075, ollama/ollama#12490). NVML is missing or does not support
 *         memory (vllm-project/vllm#9728, pytorch/pytorch#185240). cuMemAddressReserve() of 32 GiB
 *         is CUDA_ERROR_OUT_OF_MEMORY, of 8 GiB it works (ggml-org/llama.cpp#29142 and #4680). Its
 *         kernels have addresses of 48 bits (CONFIG_ARM64_VA_BITS_48 in the defconfig of
 *         OE4T/linux-tegra-5.10 and OE4T/linux-jammy-nvidia-tegra)
 *  thor   Capability 11.0, memory of the machine (ollama/ollama#12283), NVML without memory
 *         (nvidia-cosmos/cosmos-reason1#61). It reads the processor's page tables ("What's New in
 *         CUDA Toolkit 13.0 for Jetson Thor", developer.nvidia.com)
 *  gb10   Capability 12.1, integrated (vllm-project/vllm#48140, ollama/ollama#12490);
 *         nvmlDeviceGetMemoryInfo() is NVML_ERROR_NOT_SUPPORTED (XuehaiPan/nvitop#208,
 *         leptonai/gpud#1170; "Known Issues" of the DGX Spark user guide). nvidia-smi calls its
 *         addressing mode ATS, in which it reads the processor's page tables
 *         (AlexsJones/llmfit#792; "Unified and System Memory" of the CUDA programming guide)
 *  wsl2   Windows pages the memory (microsoft/WSL#40732, #11050). No export by file descriptor
 *         (rapidsai/rmm#1051), although the driver may claim it (NVIDIA/cuda-python#1045). NVML
 *         knows the device's memory and not that of processes (Syllo/nvtop#432)
 *  mig    An instance has a UUID of its own (cuDeviceGetUuid_v2() in cuda.h: "returns its MIG
 *         UUID"). NVML finds it by that; of the whole device, only a privileged user hears of
 *         processes (nvmlDeviceGetComputeRunningProcesses_v3() in nvml.h)
 *  mps    CU_DEVICE_ATTRIBUTE_MPS_ENABLED (cuda.h)
 *  gh200  Capability 9.0, memory of its own. It reads the processor's page tables ("Understanding
 *         Memory Management on Hardware-Coherent Platforms", developer.nvidia.com)
 *  va39   The kernel gives processes addresses of 39 bits, as those of Raspberry Pi OS
 *         (raspberrypi/linux#6261) and of boards with an RK3588 (scylladb/scylladb#13712)
 *  apu    An AMD APU is integrated (ROCm/legacy-rocm-build#6004). hipMemGetInfo() says what HIP may
 *         have, and MemAvailable does not (ggml-org/llama.cpp#18159, #27083) */
#define SIM_CARD_LIST(X)                                                                           \
    X(orin, "Orin", 8, 7, .integrated = true, .no_monitor = true, .no_host_pieces = true,          \
      .reservation = (size_t)32 << 30)                                                             \
    X(thor, "NVIDIA Thor", 11, 0, .integrated = true, .no_monitor = true, .coherent = true)        \
    X(gb10, "NVIDIA GB10", 12, 1, .integrated = true, .no_monitor = true, .coherent = true)        \
    X(wsl2, "NVIDIA GeForce RTX 4090", 8, 9, .paged = true, .no_posix_fd = true, .no_bytes = true, \
      .no_host_pieces = true)                                                                      \
    X(mig, "NVIDIA H100 MIG 1g.10gb", 9, 0, .slice = true)                                         \
    X(mps, "NVIDIA H100 80GB HBM3", 9, 0, .mps = true)                                             \
    X(gh200, "NVIDIA GH200 480GB", 9, 0, .coherent = true)                                         \
    X(va39, "NVIDIA T1000", 7, 5, .address_bits = 39)                                              \
    X(apu, "AMD Radeon 8060S", 11, 5, .amd = true, .integrated = true)

/* The names, each behind a space. */
#define SIM_CARD_NAME(id, ...) " " #id
#define SIM_CARD_NAMES SIM_CARD_LIST(SIM_CARD_NAME)

/* True for a name in the table. */
bool sim_card_is(const char *name);

/* The card of the environment, for CUDA and for HIP. Without one, or with the other vendor's: a
 * discrete GPU that lacks nothing. */
const struct sim_card *sim_card(void);
const struct sim_card *sim_card_amd(void);

#endif
