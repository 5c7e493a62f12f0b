/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A libnvidia-ml.so.1 for the tests of `tarn run`. The file FAKE_NVML has lines "PROCESS BYTES",
 * what each process has on the first device; FAKE_NVML_USED is what each device has in use. Without
 * the first NVML does not start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct process {
    unsigned number;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

struct memory {
    unsigned long long total, free, used;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                                   struct process *list);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);

int nvmlInit_v2(void)
{
    return getenv("FAKE_NVML") ? 0 : 9;
}

static char devices[2];

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device)
{
    *device = &devices[strcmp(address, "0000:00:00.0") != 0];
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *list)
{
    FILE *in = device == &devices[0] ? fopen(getenv("FAKE_NVML"), "r") : NULL;
    unsigned room = *count;
    *count = 0;
    while (in && *count < room &&
           fscanf(in, "%u %llu", &list[*count].number, &list[*count].bytes) == 2)
        ++*count;
    if (in)
        fclose(in);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    const char *used = getenv("FAKE_NVML_USED");
    (void)device;
    *memory = (struct memory){.used = used ? strtoull(used, NULL, 10) : 0};
    return used ? 0 : 999;
}
