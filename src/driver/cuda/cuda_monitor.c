/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which processes have memory on a device: by NVML, if the driver's package has it. It is opened at
 * the first question and stays open. If anything fails, the answer is only that nothing is known
 * (pytorch/pytorch#185240). Prototypes are those of nvml.h. A device is found by its PCI address,
 * since NVML's numbers do not follow CUDA_VISIBLE_DEVICES. A slice is found by its UUID: of the
 * device at the address NVML reports the processes of all slices, to privileged users only. */
#include "base/thread/cancel.h"
#include "base/thread/lock.h"
#include "driver/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

typedef struct nvml_device *nvml_device;

struct nvml_process {
    unsigned number;
    unsigned long long bytes; /* all bits set: unknown */
    unsigned gpu_instance, compute_instance;
};

#define NVML_OK 0
#define NVML_MOST 128

struct nvml {
    int (*init)(void);
    int (*find)(const char *address, nvml_device *device);
    int (*find_slice)(const char *uuid, nvml_device *device);
    int (*compute)(nvml_device device, unsigned *count, struct nvml_process *list);
};

static struct nvml nvml;
enum { UNTRIED, THERE, MISSING };
static atomic_int state;                               /* THERE: `nvml` is complete */
static mutex nvml_lock = MUTEX_INITIALIZER(LOCK_LEAF); /* held while `nvml` is filled */

/* Several threads may search at the same time, and find the same. No thread waits for another,
 * which may be waiting for the loader. */
static int nvml_open(void)
{
    static const char *const sonames[] = {"libnvidia-ml.so.1", NULL};
    struct loaded library;
    struct nvml found = {0};
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now != UNTRIED)
        return now;
    if (loader_open(sonames, &library, NULL, 0) == TARN_OK) {
        loader_store(&found.init, loader_symbol(&library, "nvmlInit_v2"));
        loader_store(&found.find, loader_symbol(&library, "nvmlDeviceGetHandleByPciBusId_v2"));
        loader_store(&found.find_slice, loader_symbol(&library, "nvmlDeviceGetHandleByUUID"));
        loader_store(&found.compute,
                     loader_symbol(&library, "nvmlDeviceGetComputeRunningProcesses_v3"));
    }
    bool there = found.init && found.find && found.compute && found.init() == NVML_OK;
    mutex_lock(&nvml_lock);
    if (atomic_load(&state) == UNTRIED) {
        nvml = found;
        atomic_store(&state, there ? THERE : MISSING);
    }
    mutex_unlock(&nvml_lock);
    return atomic_load_explicit(&state, memory_order_acquire);
}

/* NULL where NVML knows no such device. */
static nvml_device handle_of(int device)
{
    struct driver_identity identity;
    nvml_device handle = NULL;
    cuda_identity(device, &identity);
    if (cuda.device[device].slice)
        return nvml.find_slice && nvml.find_slice(identity.uuid, &handle) == NVML_OK ? handle
                                                                                     : NULL;
    return *identity.pci && nvml.find(identity.pci, &handle) == NVML_OK ? handle : NULL;
}

size_t cuda_processes(int device, struct driver_process *list, size_t room)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct nvml_process found[NVML_MOST] = {0}; /* NVML may report more entries than it writes */
    unsigned count = NVML_MOST;
    nvml_device handle = nvml_open() == THERE ? handle_of(device) : NULL;
    if (!handle || nvml.compute(handle, &count, found) != NVML_OK)
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

void cuda_identity(int device, struct driver_identity *identity)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct cu_uuid whole = {{0}}, part = {{0}};
    char address[24] = "";
    cu_device handle = cuda.device[device].handle;
    bool has_whole =
        cuda.call.cuDeviceGetUuid && cuda.call.cuDeviceGetUuid(&whole, handle) == CU_OK;
    bool has_part =
        cuda.call.cuDeviceGetUuid_v2 && cuda.call.cuDeviceGetUuid_v2(&part, handle) == CU_OK;
    *identity = (struct driver_identity){.uuid = ""};
    if (has_whole || has_part)
        driver_uuid_print(identity, cuda.device[device].slice ? "MIG" : "GPU",
                          has_part ? part.bytes : whole.bytes);
    if (cuda.call.cuDeviceGetPCIBusId &&
        cuda.call.cuDeviceGetPCIBusId(address, sizeof address, handle) == CU_OK) {
        address[sizeof address - 1] = '\0';
        snprintf(identity->pci, sizeof identity->pci, "%s", address);
    }
}
