/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What NVML, the monitor that the driver's package brings, says of a device. It is opened at the
 * first call. Asking it makes no context. Prototypes are those of nvml.h. Whatever is wrong only
 * means that nothing is known. For one thread. */
#ifndef TARN_TOOLS_NVML_H
#define TARN_TOOLS_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef struct nvml_device *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

struct nvml_process {
    unsigned number;
    unsigned long long bytes; /* all bits set: NVML does not say */
    unsigned gpu_instance, compute_instance;
};

/* Opens NVML now, rather than at the first of the calls below. */
void nvml_prepare(void);
/* Finds a device by its UUID, which parts of a divided GPU have too, or else by its PCI address.
 * Either may be "". Returns NULL if NVML knows no such device. */
nvml_device nvml_find(const char *uuid, const char *pci);
bool nvml_memory_get(nvml_device device, struct nvml_memory *memory);
/* The processes that compute on a device: stores at most `*count` of them, and sets `*count` to the
 * number stored. A process may be listed once per MIG instance. */
bool nvml_processes_get(nvml_device device, struct nvml_process *list, unsigned *count);

#endif
