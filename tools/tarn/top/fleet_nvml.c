/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* NVML, where the driver's package has brought it: no context is made by asking it. Prototypes are
 * those of nvml.h. A device is found by its UUID, which slices have too, or else by its PCI
 * address. Whatever is wrong only means that nothing is known. */
#include "driver/loader.h"
#include "top/fleet.h"

#include <string.h>

#define NVML_OK 0

typedef struct nvml_device *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

struct nvml_process {
    unsigned number;
    unsigned long long bytes; /* all bits set where it is not told */
    unsigned gpu_instance, compute_instance;
};

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
    if (nvml.init && (nvml.by_uuid || nvml.by_pci) && nvml.memory && nvml.compute &&
        nvml.init() == NVML_OK)
        state = THERE;
    return state == THERE;
}

static bool find(const char *uuid, const char *pci, nvml_device *device)
{
    *device = NULL;
    if (*uuid && nvml.by_uuid && nvml.by_uuid(uuid, device) == NVML_OK && *device)
        return true;
    bool is_slice = strncmp(uuid, "MIG", 3) == 0; /* the address is the whole device's */
    return *pci && !is_slice && nvml.by_pci && nvml.by_pci(pci, device) == NVML_OK && *device;
}

bool fleet_monitor_read(const char *uuid, const char *pci, struct fleet_monitor *monitor)
{
    nvml_device device;
    struct nvml_memory memory = {0};
    struct nvml_process list[sizeof monitor->processes / sizeof *monitor->processes] = {{0}};
    unsigned count = sizeof list / sizeof *list;
    if (!open_once() || !find(uuid, pci, &device) || nvml.memory(device, &memory) != NVML_OK)
        return false;
    *monitor = (struct fleet_monitor){.total = memory.total, .used = memory.used};
    if (nvml.compute(device, &count, list) != NVML_OK)
        return true; /* who has it is not known, only how much there is */
    for (unsigned i = 0; i < count && i < sizeof list / sizeof *list; i++)
        if (list[i].number)
            monitor->processes[monitor->count++] = (struct fleet_process){
                .number = list[i].number,
                .bytes = list[i].bytes == ~0ull ? SURVEY_UNKNOWN : list[i].bytes,
            };
    return true;
}
