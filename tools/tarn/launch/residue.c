/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Samples what NVML says that each process has. A sample counts only if the book did not change
 * meanwhile. Otherwise a free between the two looks would appear as memory that nobody sees.
 *
 * NVML counts memory of a kept pool for the process that created it while that lives, and then for
 * none (an H200, driver 580).
 *
 * For a process that makes stream-ordered allocations, the lowest sample counts against its limit.
 * The driver's pools keep freed memory and use it again, and NVML does not show which part that
 * is. */
#include "launch/residue.h"
#include "nvml.h"

#include <stdlib.h>
#include <string.h>

enum { PROCESSES_MOST = 512 };

/* What NVML says that a process has on a device; UINT64_MAX: it says nothing. */
static uint64_t process_bytes(const struct book_device *device, uint32_t process)
{
    static struct nvml_process list[PROCESSES_MOST];
    unsigned count = PROCESSES_MOST;
    nvml_device handle = nvml_find("", device->address);
    uint64_t bytes = UINT64_MAX;
    if (!handle || !nvml_processes_get(handle, list, &count))
        return UINT64_MAX;
    for (unsigned i = 0; i < count; i++)
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
    if (strcmp(book->driver, "cuda") != 0)
        return true;
    books_read(opened);
    uint64_t before = books_device_sums(book, index).used;
    uint64_t taken_over = atomic_load(&book->device[index].taken_over);
    uint64_t bytes = process_bytes(&book->device[index], book->process);
    books_read(opened);
    if (bytes == UINT64_MAX || books_has_ended(opened))
        return true;
    if (books_device_sums(book, index).used != before)
        return false;
    uint64_t seen = before > taken_over ? before - taken_over : 0;
    uint64_t unseen = bytes > seen ? bytes - seen : 0;
    opened->last_unseen[index] = unseen;
    if (unseen < opened->least_unseen[index])
        opened->least_unseen[index] = unseen;
    books_write_residue(opened, index,
                        is_ordered(book, index) ? opened->least_unseen[index] : unseen);
    return true;
}

void residue_prepare(void)
{
    nvml_prepare();
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
    nvml_device handle = strcmp(book->driver, "cuda") == 0 ? nvml_find("", device->address) : NULL;
    return handle && nvml_memory_get(handle, &memory) ? memory.used : UINT64_MAX;
}
