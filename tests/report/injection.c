/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A tool's library as NVTX_INJECTION64_PATH names one: it keeps what it is told, and counts what
 * makes no sense. As a tool does it believes sizes that structures say, and nothing else.
 * NVTX_TEST_TOOL=deaf takes nothing, NVTX_TEST_TOOL=fails fails, and NVTX_TEST_TOOL=refuses takes
 * no heaps. */
#include "injection.h"
#include "report/nvtx_abi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 100000
#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct told told;
static struct told_range heaps[1000], regions[MOST]; /* regions by address */
static _Thread_local int depth;

static void mistake(const char *text, uintptr_t address)
{
    if (told.mistakes++ == 0)
        snprintf(told.first, sizeof told.first, "%s %#lx", text, (unsigned long)address);
}

static int heap_at(uintptr_t address)
{
    for (int i = 0; i < told.heaps; i++)
        if (address - heaps[i].start < heaps[i].size)
            return i;
    return -1;
}

/* The first region that ends behind an address. */
static int region_behind(uintptr_t address)
{
    int low = 0, high = told.regions;
    while (low < high) {
        int middle = (low + high) / 2;
        if (regions[middle].start + regions[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int is_asked(const char *what)
{
    const char *tool = getenv("NVTX_TEST_TOOL");
    return tool && strcmp(tool, what) == 0;
}

static nvtx_heap_handle heap_register(nvtx_domain domain, const struct nvtx_heap_description *heap)
{
    const struct nvtx_range *range = heap->range;
    if (is_asked("refuses"))
        return NVTX_HEAP_NO_TOOL;
    pthread_mutex_lock(&lock);
    if (domain || heap->compatible != 0x0102 || heap->size != sizeof *heap ||
        heap->range_size != sizeof *range || heap->usage != 1 || heap->type != 1 ||
        heap->text_type != 1)
        mistake("a heap that makes no sense", (uintptr_t)range->start);
    if (heap_at((uintptr_t)range->start) >= 0)
        mistake("a heap in a heap", (uintptr_t)range->start);
    struct told_range *made = &heaps[told.heaps++];
    *made = (struct told_range){.start = (uintptr_t)range->start, .size = range->size};
    snprintf(made->name, sizeof made->name, "%s", heap->text.ascii);
    pthread_mutex_unlock(&lock);
    return (nvtx_heap_handle)range->start;
}

static void heap_unregister(nvtx_domain domain, nvtx_heap_handle handle)
{
    uintptr_t start = (uintptr_t)handle;
    pthread_mutex_lock(&lock);
    int i = heap_at(start), first = region_behind(start);
    if (domain || i < 0 || heaps[i].start != start)
        mistake("the end of what is no heap", start);
    else if (first < told.regions && regions[first].start < start + heaps[i].size)
        mistake("a heap ended with a region in it", regions[first].start);
    if (i >= 0)
        heaps[i] = heaps[--told.heaps];
    pthread_mutex_unlock(&lock);
}

static void regions_register(nvtx_domain domain, const struct nvtx_regions_register *batch)
{
    const struct nvtx_range *range = batch->ranges;
    pthread_mutex_lock(&lock);
    uintptr_t start = (uintptr_t)range->start;
    int heap = heap_at(start), at = region_behind(start);
    if (domain || batch->compatible != 0x0102 || batch->size != sizeof *batch ||
        batch->count != 1 || batch->type != 1 || batch->range_size != sizeof *range ||
        batch->handles)
        mistake("a region that makes no sense", start);
    if (heap < 0 || heaps[heap].start != (uintptr_t)batch->heap ||
        start + range->size > heaps[heap].start + heaps[heap].size)
        mistake("a region that is not in its heap", start);
    if (at < told.regions && regions[at].start < start + range->size)
        mistake("a region over another", start);
    memmove(&regions[at + 1], &regions[at], (size_t)(told.regions++ - at) * sizeof *regions);
    regions[at] =
        (struct told_range){.start = start, .size = range->size, .heap = (uintptr_t)batch->heap};
    told.ever++;
    pthread_mutex_unlock(&lock);
}

static int region_at(uintptr_t start)
{
    int at = region_behind(start);
    return at < told.regions && regions[at].start == start ? at : -1;
}

static void regions_resize(nvtx_domain domain, const struct nvtx_regions_resize *batch)
{
    const struct nvtx_range *range = batch->ranges;
    pthread_mutex_lock(&lock);
    int at = region_at((uintptr_t)range->start);
    if (domain || batch->size != sizeof *batch || at < 0)
        mistake("another size of what is no region", (uintptr_t)range->start);
    else
        regions[at].size = range->size;
    told.resized++;
    pthread_mutex_unlock(&lock);
}

static void regions_unregister(nvtx_domain domain, const struct nvtx_regions_unregister *batch)
{
    pthread_mutex_lock(&lock);
    uintptr_t start = (uintptr_t)batch->regions->pointer;
    int at = region_at(start);
    if (domain || batch->size != sizeof *batch || batch->count != 1 || batch->reference != 1 ||
        at < 0)
        mistake("the end of what is no region", start);
    else
        memmove(&regions[at], &regions[at + 1], (size_t)(--told.regions - at) * sizeof *regions);
    pthread_mutex_unlock(&lock);
}

static void regions_name(nvtx_domain domain, const struct nvtx_regions_name *batch)
{
    pthread_mutex_lock(&lock);
    int at = region_at((uintptr_t)batch->names->region.pointer);
    if (domain || batch->size != sizeof *batch || batch->name_size != sizeof *batch->names ||
        at < 0)
        mistake("a name of what is no region", (uintptr_t)batch->names->region.pointer);
    else
        snprintf(regions[at].name, sizeof regions[at].name, "%s", batch->names->text.ascii);
    pthread_mutex_unlock(&lock);
}

static void note(const char *sign, const char *name)
{
    size_t length = strlen(told.ranges);
    snprintf(told.ranges + length, sizeof told.ranges - length, "%s%s ", sign, name);
}

static int range_push(nvtx_domain domain, const struct nvtx_event *event)
{
    pthread_mutex_lock(&lock);
    if ((uintptr_t)domain != 7 || event->version != 3 || event->size != sizeof *event ||
        event->text_type != 1)
        mistake("a range that makes no sense", 0);
    note("+", event->text.ascii);
    pthread_mutex_unlock(&lock);
    return depth++;
}

static int range_pop(nvtx_domain domain)
{
    pthread_mutex_lock(&lock);
    if ((uintptr_t)domain != 7 || depth == 0)
        mistake("the end of no range", 0);
    note("-", "");
    pthread_mutex_unlock(&lock);
    return --depth;
}

static nvtx_domain domain_create(const char *name)
{
    snprintf(told.domain, sizeof told.domain, "%s", name);
    return (nvtx_domain)(uintptr_t)7;
}

EXPORT int InitializeInjectionNvtx2(nvtx_get_table *get_table)
{
    const struct nvtx_callbacks *callbacks = get_table(1);
    const struct nvtx_version *version = get_table(3);
    nvtx_function **table = NULL;
    unsigned entries = 0;
    if (is_asked("fails") || !callbacks || callbacks->size != sizeof *callbacks || !version ||
        get_table(2))
        return 0;
    version->set_tool_version(3);
    for (unsigned module = 1; module <= 6; module++)
        if (callbacks->module_table(module, &table, &entries) && entries > 6 && table[1] &&
            !table[0])
            told.tables++;
    if (callbacks->module_table(0, &table, &entries) ||
        callbacks->module_table(7, &table, &entries))
        return 0;
    if (is_asked("deaf"))
        return 1;
    if (!callbacks->module_table(5, &table, &entries) || entries != 16)
        return 0;
    *table[4] = (nvtx_function)range_push;
    *table[5] = (nvtx_function)range_pop;
    *table[12] = (nvtx_function)domain_create;
    return 1;
}

EXPORT int InitializeInjectionNvtxExtension(struct nvtx_module *module)
{
    if (is_asked("fails") || module->number != 1 || module->size != sizeof *module ||
        module->segment_count != 1 || module->segments->slot_count != 63)
        return 0;
    if (is_asked("deaf"))
        return 1;
    intptr_t *slots = module->segments->slots;
    slots[0] = (intptr_t)heap_register;
    slots[1] = (intptr_t)heap_unregister;
    slots[2] = 1;
    slots[3] = (intptr_t)regions_register;
    slots[4] = (intptr_t)regions_resize;
    slots[5] = (intptr_t)regions_unregister;
    slots[6] = (intptr_t)regions_name;
    return 1;
}

EXPORT const struct told *told_now(void);
const struct told *told_now(void)
{
    told.depth = depth;
    told.all_regions = regions;
    return &told;
}
