/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the one NVML of the program. */
#include "nvml.h"
#include "driver/loader.h"

#include <string.h>

#define NVML_OK 0

static struct {
    int (*init)(void);
    int (*by_uuid)(const char *uuid, nvml_device *device);
    int (*by_pci)(const char *address, nvml_device *device);
    int (*memory)(nvml_device device, struct nvml_memory *memory);
    int (*compute)(nvml_device device, unsigned *count, struct nvml_process *list);
} nvml;

static bool open_once(void)
{
    static const char *const sonames[] = {"libnvidia-ml.so.1", NULL};
    static enum { UNTRIED, THERE, MISSING } state;
    struct loaded library;
    if (state != UNTRIED)
        return state == THERE;
    state = MISSING;
    if (loader_open(sonames, &library, NULL, 0) != TARN_OK)
        return false;
    loader_store(&nvml.init, loader_symbol(&library, "nvmlInit_v2"));
    loader_store(&nvml.by_uuid, loader_symbol(&library, "nvmlDeviceGetHandleByUUID"));
    loader_store(&nvml.by_pci, loader_symbol(&library, "nvmlDeviceGetHandleByPciBusId_v2"));
    loader_store(&nvml.memory, loader_symbol(&library, "nvmlDeviceGetMemoryInfo"));
    loader_store(&nvml.compute, loader_symbol(&library, "nvmlDeviceGetComputeRunningProcesses_v3"));
    if (nvml.init && nvml.init() == NVML_OK)
        state = THERE;
    return state == THERE;
}

void nvml_prepare(void)
{
    (void)open_once();
}

nvml_device nvml_find(const char *uuid, const char *pci)
{
    nvml_device device = NULL;
    if (!open_once())
        return NULL;
    if (*uuid && nvml.by_uuid && nvml.by_uuid(uuid, &device) == NVML_OK && device)
        return device;
    bool is_slice = strncmp(uuid, "MIG", 3) == 0; /* the address is the whole device's */
    device = NULL;
    return *pci && !is_slice && nvml.by_pci && nvml.by_pci(pci, &device) == NVML_OK ? device : NULL;
}

bool nvml_memory_get(nvml_device device, struct nvml_memory *memory)
{
    return nvml.memory && nvml.memory(device, memory) == NVML_OK;
}

bool nvml_processes_get(nvml_device device, struct nvml_process *list, unsigned *count)
{
    unsigned most = *count;
    if (!nvml.compute || nvml.compute(device, count, list) != NVML_OK)
        return false;
    *count = *count < most ? *count : most;
    return true;
}
