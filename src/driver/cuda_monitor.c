/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Who else has memory on a device: NVML, where the driver's package has brought it. It is opened at the first question, stays, and
 * whatever is wrong with it only means that nothing is known (pytorch/pytorch#185240). Prototypes are those of nvml.h. A device is
 * found by its PCI address, since NVML's numbers do not follow CUDA_VISIBLE_DEVICES. */
#include "base/cancel.h"
#include "driver/cuda.h"

#include <pthread.h>

typedef struct nvml_device *nvml_device;

struct nvml_process {
    unsigned number;
    unsigned long long bytes; /* all bits set where it is not told */
    unsigned gpu_instance, compute_instance;
};

#define NVML_OK 0
#define NVML_MOST 128

static struct {
    int (*init)(void);
    int (*find)(const char *address, nvml_device *device);
    int (*compute)(nvml_device device, unsigned *count, struct nvml_process *list);
    bool there;
} nvml;

static void nvml_open(void)
{
    static const char *const sonames[] = {"libnvidia-ml.so.1", NULL};
    struct loaded library;
    if (loader_open(sonames, &library, NULL, 0))
        return;
    loader_store(&nvml.init, loader_symbol(&library, "nvmlInit_v2"));
    loader_store(&nvml.find, loader_symbol(&library, "nvmlDeviceGetHandleByPciBusId_v2"));
    loader_store(&nvml.compute, loader_symbol(&library, "nvmlDeviceGetComputeRunningProcesses_v3"));
    nvml.there = nvml.init && nvml.find && nvml.compute && cuda.call.cuDeviceGetPCIBusId && nvml.init() == NVML_OK;
}

size_t cuda_processes(int device, struct driver_process *list, size_t room)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct nvml_process found[NVML_MOST] = {0}; /* what is said to be there need not be */
    unsigned count = NVML_MOST;
    char address[32];
    nvml_device handle = NULL;
    pthread_once(&once, nvml_open);
    if (!nvml.there || cuda.call.cuDeviceGetPCIBusId(address, sizeof address, cuda.device[device].handle) != CU_OK ||
        nvml.find(address, &handle) != NVML_OK || !handle || nvml.compute(handle, &count, found) != NVML_OK)
        return 0;
    size_t stored = 0;
    for (size_t i = 0; i < count && i < NVML_MOST && stored < room; i++)
        if (found[i].number)
            list[stored++] = (struct driver_process){
                .number = found[i].number,
                .bytes = found[i].bytes == ~0ull ? SIZE_MAX : (size_t)found[i].bytes,
            };
    return stored;
}
