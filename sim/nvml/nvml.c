/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A simulated libnvidia-ml.so.1, as far as tarn asks: TARN_SIM_PROCESSES lists the processes of every device, as "PID:BYTES" joined by
 * commas; bytes "?" are not told. Not set: nvmlInit_v2() fails, as without a driver. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };

struct device {
    int nothing;
};

struct process {
    unsigned number;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

static struct device the_device;

EXPORT int nvmlInit_v2(void)
{
    return getenv("TARN_SIM_PROCESSES") ? OK : DRIVER_NOT_LOADED;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct device **device)
{
    if (!strchr(address, ':'))
        return NOT_FOUND;
    *device = &the_device;
    return OK;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process *list)
{
    const char *at = getenv("TARN_SIM_PROCESSES");
    unsigned room = *count;
    (void)device;
    *count = 0;
    while (at && *at) {
        char *end;
        struct process process = {.number = (unsigned)strtoul(at, &end, 10), .bytes = ~0ull};
        if (*end == ':' && end[1] != '?')
            process.bytes = strtoull(end + 1, &end, 10);
        if (*count < room)
            list[*count] = process;
        ++*count;
        at = strchr(end, ',');
        at = at ? at + 1 : NULL;
    }
    return *count > room ? INSUFFICIENT_SIZE : OK;
}
