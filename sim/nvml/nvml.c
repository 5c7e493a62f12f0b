/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A simulated libnvidia-ml.so.1, with the calls that tarn uses. TARN_SIM_PROCESSES lists the
 * processes of every device, as "PID:BYTES" joined by commas; with "?" for the bytes they are not
 * reported. If it is not set, nvmlInit_v2() fails, as without a driver. TARN_SIM_NVML_MEMORY is the
 * memory of every device, as "TOTAL:USED" in bytes. A test can make calls fail by number, as in the
 * libraries with handles. */
#include "common/card.h"
#include "vendor/common.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    OK = 0,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    NO_MEMORY = 20,
    UNKNOWN = 999
};

struct device {
    int nothing;
};

struct process {
    unsigned number;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

struct memory {
    unsigned long long total, free, used;
};

static struct device the_device, whole_device; /* of a slice */

static struct {
    atomic_ulong nth, calls, hits; /* nth is 0 while no failure is set */
    atomic_bool forever;
    atomic_int way;
} numbered;

static void fail(unsigned long nth, bool forever, int way)
{
    atomic_store(&numbered.nth, 0);
    atomic_store(&numbered.calls, 0);
    atomic_store(&numbered.hits, 0);
    atomic_store(&numbered.forever, forever);
    atomic_store(&numbered.way, way);
    atomic_store(&numbered.nth, nth);
}

static unsigned long calls(void)
{
    return atomic_load(&numbered.calls);
}

static unsigned long hits(void)
{
    return atomic_load(&numbered.hits);
}

const struct vendor_failures tarn_sim_failures = {.fail = fail, .calls = calls, .hits = hits};

/* True if this call is to fail, with the result in `code`. Then what the caller passed is
 * overwritten with something that is no answer. */
static bool fails(void *place, size_t size, int *code)
{
    unsigned long nth = atomic_load(&numbered.nth), number;
    if (!nth)
        return false;
    number = atomic_fetch_add(&numbered.calls, 1) + 1;
    if (number != nth && !(number > nth && atomic_load(&numbered.forever)))
        return false;
    atomic_fetch_add(&numbered.hits, 1);
    switch ((enum vendor_way)atomic_load(&numbered.way)) {
    case VENDOR_IS_OUT_OF_MEMORY:
        *code = NO_MEMORY;
        return true;
    case VENDOR_SUCCEEDS_WITHOUT:
        *code = OK;
        return true;
    case VENDOR_FAILS_WITH_GARBAGE:
        if (place)
            memset(place, 0x5A, size);
        break;
    case VENDOR_FAILS:
        break;
    }
    *code = UNKNOWN;
    return true;
}

SIM_EXPORT int nvmlInit_v2(void)
{
    int code;
    if (fails(NULL, 0, &code))
        return code;
    return getenv("TARN_SIM_PROCESSES") ? OK : DRIVER_NOT_LOADED;
}

SIM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct device **device)
{
    int code;
    if (fails(device, sizeof *device, &code))
        return code;
    if (!strchr(address, ':'))
        return NOT_FOUND;
    *device = sim_card()->slice ? &whole_device : &the_device;
    return OK;
}

SIM_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    int code;
    if (fails(device, sizeof *device, &code))
        return code;
    if (strncmp(uuid, sim_card()->slice ? "MIG-" : "GPU-", 4) != 0)
        return NOT_FOUND;
    *device = &the_device;
    return OK;
}

SIM_EXPORT int nvmlDeviceGetMemoryInfo(const struct device *device, struct memory *memory)
{
    int code;
    char *end = NULL;
    const char *text = getenv("TARN_SIM_NVML_MEMORY");
    if (fails(memory, sizeof *memory, &code))
        return code;
    if (device == &whole_device)
        return NO_PERMISSION;
    if (device != &the_device)
        abort();
    if (sim_card()->no_monitor)
        return NOT_SUPPORTED;
    if (!text)
        return UNKNOWN;
    memory->total = strtoull(text, &end, 10);
    memory->used = *end == ':' ? strtoull(end + 1, NULL, 10) : 0;
    memory->free = memory->total - memory->used;
    return OK;
}

SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const struct device *device, unsigned *count,
                                                       struct process *list)
{
    int code;
    if (fails(count, sizeof *count, &code))
        return code;
    if (device == &whole_device)
        return NO_PERMISSION;
    if (device != &the_device)
        abort();
    if (sim_card()->no_monitor)
        return NOT_SUPPORTED;
    const char *at = getenv("TARN_SIM_PROCESSES");
    unsigned room = *count;
    *count = 0;
    while (at && *at) {
        char *end;
        struct process process = {.number = (unsigned)strtoul(at, &end, 10), .bytes = ~0ull};
        if (*end == ':' && end[1] != '?')
            process.bytes = strtoull(end + 1, &end, 10);
        if (sim_card()->no_bytes)
            process.bytes = ~0ull;
        if (*count < room)
            list[*count] = process;
        ++*count;
        at = strchr(end, ',');
        at = at ? at + 1 : NULL;
    }
    return *count > room ? INSUFFICIENT_SIZE : OK;
}
