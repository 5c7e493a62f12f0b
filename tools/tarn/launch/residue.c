/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* NVML, opened at the first sample. Prototypes are those of nvml.h. A sample counts only where the
 * book did not change meanwhile, so that a free between the two looks does not appear as memory
 * that nobody sees.
 *
 * Of a process that allocates in the order of streams the least that was ever sampled counts
 * against its limit: what the driver's pools keep is theirs to use again, and NVML does not tell it
 * from the rest. */
#include "launch/residue.h"
#include "driver/loader.h"

#include <stdlib.h>
#include <string.h>

enum { PROCESSES_MOST = 512 };

typedef struct nvml_device *nvml_device;

struct nvml_process {
    unsigned number;
    unsigned long long bytes; /* all bits set where it is not told */
    unsigned gpu_instance, compute_instance;
};

struct nvml_memory {
    unsigned long long total, free, used;
};

static struct {
    bool tried, there;
    int (*init)(void);
    int (*find)(const char *address, nvml_device *device);
    int (*compute)(nvml_device device, unsigned *count, struct nvml_process *list);
    int (*memory)(nvml_device device, struct nvml_memory *memory);
} nvml;

static bool nvml_open(void)
{
    static const char *const sonames[] = {"libnvidia-ml.so.1", NULL};
    struct loaded library;
    if (nvml.tried)
        return nvml.there;
    nvml.tried = true;
    if (loader_open(sonames, &library, NULL, 0) != TARN_OK)
        return false;
    loader_store(&nvml.init, loader_symbol(&library, "nvmlInit_v2"));
    loader_store(&nvml.find, loader_symbol(&library, "nvmlDeviceGetHandleByPciBusId_v2"));
    loader_store(&nvml.compute, loader_symbol(&library, "nvmlDeviceGetComputeRunningProcesses_v3"));
    loader_store(&nvml.memory, loader_symbol(&library, "nvmlDeviceGetMemoryInfo"));
    nvml.there = nvml.init && nvml.find && nvml.compute && nvml.init() == 0;
    return nvml.there;
}

/* What NVML says that a process has on a device; UINT64_MAX where it says nothing. A process may be
 * listed once per MIG instance. */
static uint64_t process_bytes(const struct book_device *device, uint32_t process)
{
    static struct nvml_process list[PROCESSES_MOST];
    unsigned count = PROCESSES_MOST;
    nvml_device handle = NULL;
    uint64_t bytes = UINT64_MAX;
    if (!device->address[0] || nvml.find(device->address, &handle) || !handle ||
        nvml.compute(handle, &count, list))
        return UINT64_MAX;
    for (unsigned i = 0; i < count && i < PROCESSES_MOST; i++)
        if (list[i].number == process && list[i].bytes != ~0ull)
            bytes = bytes == UINT64_MAX ? list[i].bytes : bytes + list[i].bytes;
    return bytes;
}

static bool is_ordered(const struct book *book, unsigned device)
{
    uint32_t libraries = atomic_load(&book->libraries);
    for (uint32_t i = 0; i < libraries && i < BOOK_LIBRARIES; i++)
        if (books_account(book, device, i, RUN_ORDERED).made)
            return true;
    return false;
}

/* Whether it came to something: a figure, or the certainty that there is none. */
static bool sample(struct opened_book *opened, unsigned index)
{
    const struct book *book = opened->book;
    if (strcmp(book->driver, "cuda") != 0 || !nvml_open())
        return true;
    books_read(opened);
    uint64_t before = books_device_sums(book, index).used;
    uint64_t bytes = process_bytes(&book->device[index], book->process);
    books_read(opened);
    if (bytes == UINT64_MAX || atomic_load(&book->ended))
        return true;
    if (books_device_sums(book, index).used != before)
        return false;
    uint64_t unseen = bytes > before ? bytes - before : 0;
    opened->last_unseen[index] = unseen;
    if (unseen < opened->least_unseen[index])
        opened->least_unseen[index] = unseen;
    books_write_residue(opened, index,
                        is_ordered(book, index) ? opened->least_unseen[index] : unseen);
    return true;
}

void residue_prepare(void)
{
    (void)nvml_open();
}

static bool asks(const struct opened_book *opened, unsigned index)
{
    const struct book_device *device = &opened->book->device[index];
    return atomic_load(&device->asks) && !atomic_load(&device->looked);
}

/* A sample reads the book again, so the devices may be fewer after it; their places in the copy
 * stay. */
void residue_sample(struct books *books, bool asking)
{
    for (size_t i = 0; i < books->count; i++) {
        struct opened_book *opened = &books->list[i];
        books_read_devices(opened);
        for (unsigned j = 0; j < opened->book->devices; j++) {
            bool waits = asks(opened, j);
            if ((waits || !asking) && sample(opened, j) && waits)
                books_write_looked(opened, j);
        }
    }
}

uint64_t residue_device_used(const struct book *book, const struct book_device *device)
{
    struct nvml_memory memory = {0};
    nvml_device handle = NULL;
    if (strcmp(book->driver, "cuda") != 0 || !nvml_open() || !nvml.memory || !device->address[0] ||
        nvml.find(device->address, &handle) || !handle || nvml.memory(handle, &memory))
        return UINT64_MAX;
    return memory.used;
}
