/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* NVTX: tells NVIDIA's tools, or similar ones, which blocks are in tarn's memory, and where regions
 * begin and end. Owns the tables of functions, which the tool's library fills at the first use and
 * which are constant then, and the heaps reported to the tool: one per plain segment.
 *
 * compute-sanitizer (CUDA 13.0) accepts heaps only in memory from cudaMalloc(), not in mapped
 * memory. So only plain segments are reported, which are the default then (segments:driver). It
 * takes the end of a block as valid for work queued later. The tool is called with no lock of tarn
 * held. It learns of one block in order: before the caller has the block, and of its end before it
 * is freed. */
#include "base/nvtx.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/tree.h"
#include "base/variable.h"
#include "device/device.h"
#include "driver/loader.h"
#include "memory/settings/hooks.h"
#include "report/nvtx_abi.h"
#include "report/start.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct heap_told {
    struct tree_node node;
    uintptr_t start, end;
    nvtx_heap_handle handle;
};

static int by_start(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct heap_told, node)->start,
              y = TREE_ENTRY(b, struct heap_told, node)->start;
    return (x > y) - (x < y);
}

static mutex told_lock = MUTEX_INITIALIZER(LOCK_LEAF); /* protects the tree */
static struct tree heaps = {.order = by_start};
static struct object_pool heap_objects = OBJECT_POOL(struct heap_told);

/* The functions of the tool; NULL: it has none. Constant after nvtx_begin(). */
static struct {
    nvtx_range_push *range_push;
    nvtx_range_pop *range_pop;
    nvtx_domain domain;
    nvtx_heap_register *heap_register;
    nvtx_heap_unregister *heap_unregister;
    nvtx_regions_register *regions_register;
    nvtx_regions_resize *regions_resize;
    nvtx_regions_unregister *regions_unregister;
    nvtx_regions_name *regions_name;
} tool;

static _Atomic(void *) opened_tool; /* its library */

/* The tables that the tool fills --------------------------------------------------------------- */

/* A module's functions, and the table of their places. */
static struct module {
    nvtx_function functions[NVTX_MODULE_ENTRIES];
    nvtx_function *table[NVTX_MODULE_ENTRIES + 1];
} modules[7];

static int module_table(unsigned module, nvtx_function ***table, unsigned *entries)
{
    static const unsigned counts[] = {
#define X(MODULE, number, count) [number] = count,
        NVTX_MODULE_LIST(X)
#undef X
    };
    if (module == 0 || module >= sizeof counts / sizeof *counts)
        return 0;
    for (unsigned i = 1; i < counts[module]; i++)
        modules[module].table[i] = &modules[module].functions[i];
    if (table)
        *table = modules[module].table;
    if (entries)
        *entries = counts[module];
    return 1;
}

static void set_tool_version(uint32_t version)
{
    (void)version;
}

static const void *get_table(uint32_t table)
{
    static const struct nvtx_callbacks callbacks = {sizeof callbacks, module_table};
    static const struct nvtx_version version = {sizeof version, NVTX_API_VERSION, 0,
                                                set_tool_version};
    return table == NVTX_TABLE_CALLBACKS ? (const void *)&callbacks
           : table == NVTX_TABLE_VERSION ? (const void *)&version
                                         : NULL;
}

static intptr_t memory_slots[NVTX_MEMORY_SLOTS];

/* Stores the address of a slot's function, or NULL. */
static void slot_get(enum nvtx_memory_slot slot, void *function)
{
    intptr_t address = memory_slots[slot];
    loader_store(function, address && address != NVTX_SLOT_NONE ? (void *)address : NULL);
}

static void core_get(unsigned entry, void *function)
{
    memcpy(function, &modules[5].functions[entry], sizeof(nvtx_function)); /* CORE2 */
}

/* Blocks --------------------------------------------------------------------------------------- */

static void name_pool(char *text, size_t size, const uint64_t pool[2])
{
    if (pool[0] || pool[1])
        snprintf(text, size, "tarn pool (%llu, %llu)", (unsigned long long)pool[0],
                 (unsigned long long)pool[1]);
    else
        snprintf(text, size, "tarn");
}

static void tell_segment(uintptr_t start, size_t size, const uint64_t pool[2], int device)
{
    char name[96], text[128];
    struct nvtx_range range = {size, (const void *)start};
    struct heap_told *heap = object_alloc(&heap_objects);
    if (!heap)
        return;
    name_pool(name, sizeof name, pool);
    snprintf(text, sizeof text, "%s on device %d", name, device);
    struct nvtx_heap_description description = {
        .compatible = NVTX_MEMORY_COMPATIBLE,
        .size = sizeof description,
        .usage = NVTX_HEAP_SUB_ALLOCATOR,
        .type = NVTX_VIRTUAL_ADDRESS,
        .range_size = sizeof range,
        .range = &range,
        .text_type = NVTX_TEXT_ASCII,
        .text.ascii = text,
    };
    heap->start = start;
    heap->end = start + size;
    heap->handle = tool.heap_register(NULL, &description);
    if (heap->handle == NVTX_HEAP_NO_TOOL) {
        object_free(&heap_objects, heap);
        return;
    }
    mutex_lock(&told_lock);
    tree_insert(&heaps, &heap->node);
    mutex_unlock(&told_lock);
}

static bool begins_behind(const struct tree_node *node, uint64_t key)
{
    return TREE_ENTRY(node, struct heap_told, node)->start > key;
}

/* The reported heap around an address. It exists while it has a block. NULL: it was not reported,
 * or the tool refused it; then its blocks are not reported. */
static struct heap_told *heap_around_locked(uintptr_t address)
{
    struct tree_node *behind = tree_find_first(&heaps, begins_behind, address);
    struct tree_node *node = behind ? tree_previous(behind) : tree_last(&heaps);
    struct heap_told *heap = node ? TREE_ENTRY(node, struct heap_told, node) : NULL;
    return heap && address < heap->end ? heap : NULL;
}

/* The handle of that heap; NVTX_HEAP_NO_TOOL: there is none. */
static nvtx_heap_handle heap_around(uintptr_t address)
{
    mutex_lock(&told_lock);
    const struct heap_told *heap = heap_around_locked(address);
    nvtx_heap_handle handle = heap ? heap->handle : NVTX_HEAP_NO_TOOL;
    mutex_unlock(&told_lock);
    return handle;
}

static void tell_segment_gone(uintptr_t start)
{
    mutex_lock(&told_lock);
    struct heap_told *heap = heap_around_locked(start);
    bool known = heap && heap->start == start;
    if (known)
        tree_remove(&heaps, &heap->node);
    mutex_unlock(&told_lock);
    if (!known)
        return;
    tool.heap_unregister(NULL, heap->handle);
    object_free(&heap_objects, heap);
}

/* Names a block by its tag; without one, by its pool. */
static void tell_name(uintptr_t start, const uint64_t pool[2], tarn_tag tag)
{
    char text[96];
    name_pool(text, sizeof text, pool);
    struct nvtx_region_name name = {
        .reference = NVTX_BY_POINTER,
        .text_type = NVTX_TEXT_ASCII,
        .region.pointer = (const void *)start,
        .text.ascii = tag ? tarn_tag_text(tag) : text,
    };
    struct nvtx_regions_name names = {
        .compatible = NVTX_MEMORY_COMPATIBLE,
        .size = sizeof names,
        .count = 1,
        .name_size = sizeof name,
        .names = &name,
    };
    if (tool.regions_name)
        tool.regions_name(NULL, &names);
}

static void tell_block(uintptr_t start, size_t size, const uint64_t pool[2], tarn_tag tag)
{
    nvtx_heap_handle handle = heap_around(start);
    if (handle == NVTX_HEAP_NO_TOOL)
        return;
    struct nvtx_range range = {size, (const void *)start};
    struct nvtx_regions_register regions = {
        .compatible = NVTX_MEMORY_COMPATIBLE,
        .size = sizeof regions,
        .type = NVTX_VIRTUAL_ADDRESS,
        .heap = handle,
        .count = 1,
        .range_size = sizeof range,
        .ranges = &range,
    };
    tool.regions_register(NULL, &regions);
    tell_name(start, pool, tag);
}

static void tell_block_resized(uintptr_t start, size_t size)
{
    struct nvtx_range range = {size, (const void *)start};
    struct nvtx_regions_resize regions = {
        .compatible = NVTX_MEMORY_COMPATIBLE,
        .size = sizeof regions,
        .type = NVTX_VIRTUAL_ADDRESS,
        .count = 1,
        .range_size = sizeof range,
        .ranges = &range,
    };
    if (tool.regions_resize && heap_around(start) != NVTX_HEAP_NO_TOOL)
        tool.regions_resize(NULL, &regions);
}

static void tell_block_gone(uintptr_t start)
{
    union nvtx_region region = {.pointer = (const void *)start};
    struct nvtx_regions_unregister regions = {
        .compatible = NVTX_MEMORY_COMPATIBLE,
        .size = sizeof regions,
        .reference = NVTX_BY_POINTER,
        .count = 1,
        .region_size = sizeof region,
        .regions = &region,
    };
    if (heap_around(start) != NVTX_HEAP_NO_TOOL)
        tool.regions_unregister(NULL, &regions);
}

static const struct announcer blocks_told = {
    .segment = tell_segment,
    .segment_gone = tell_segment_gone,
    .block = tell_block,
    .block_resized = tell_block_resized,
    .block_gone = tell_block_gone,
};

/* Ranges --------------------------------------------------------------------------------------- */

static void range_begin(const char *name)
{
    struct nvtx_event event = {.version = NVTX_API_VERSION,
                               .size = sizeof event,
                               .text_type = NVTX_TEXT_ASCII,
                               .text.ascii = name};
    (void)tool.range_push(tool.domain, &event);
}

static void range_end(void)
{
    (void)tool.range_pop(tool.domain);
}

static const struct nvtx_ranges ranges_told = {range_begin, range_end};

/* Finding the tool ----------------------------------------------------------------------------- */

static void use_core(void)
{
    nvtx_domain_create *create = NULL;
    core_get(NVTX_DOMAIN_RANGE_PUSH_EX, &tool.range_push);
    core_get(NVTX_DOMAIN_RANGE_POP, &tool.range_pop);
    core_get(NVTX_DOMAIN_CREATE_A, &create);
    if (!tool.range_push || !tool.range_pop)
        return;
    tool.domain = create ? create("tarn") : NULL;
    nvtx_ranges = &ranges_told;
}

static void use_memory(void)
{
    slot_get(NVTX_MEMORY_HEAP_REGISTER, &tool.heap_register);
    slot_get(NVTX_MEMORY_HEAP_UNREGISTER, &tool.heap_unregister);
    slot_get(NVTX_MEMORY_REGIONS_REGISTER, &tool.regions_register);
    slot_get(NVTX_MEMORY_REGIONS_RESIZE, &tool.regions_resize);
    slot_get(NVTX_MEMORY_REGIONS_UNREGISTER, &tool.regions_unregister);
    slot_get(NVTX_MEMORY_REGIONS_NAME, &tool.regions_name);
    if (tool.heap_register && tool.heap_unregister && tool.regions_register &&
        tool.regions_unregister)
        announcer = &blocks_told;
}

/* Lets the tool's library, which stays loaded, fill the tables. */
static void use_tool(const char *path, void *library)
{
    nvtx_initialize *initialize = NULL;
    nvtx_initialize_extension *initialize_extension = NULL;
    static struct nvtx_segment segment = {1, NVTX_MEMORY_SLOTS, memory_slots};
    static struct nvtx_module module = {.version = NVTX_API_VERSION,
                                        .size = sizeof module,
                                        .number = NVTX_MEMORY,
                                        .compatible = NVTX_MEMORY_COMPATIBLE,
                                        .segment_count = 1,
                                        .segments = &segment};
    loader_store(&initialize, dlsym(library, "InitializeInjectionNvtx2"));
    loader_store(&initialize_extension, dlsym(library, "InitializeInjectionNvtxExtension"));
    if (initialize && initialize(get_table))
        use_core();
    if (initialize_extension && initialize_extension(&module))
        use_memory();
    log_write(LOG_INFO, "NVTX: %s takes %s, %s", path, nvtx_ranges ? "ranges" : "no ranges",
              announcer ? "blocks, in plain segments" : "no blocks");
}

/* The path of the tool's library; NULL: none is wanted. One is wanted if it is named, and the
 * driver is CUDA's or TARN_NVTX demands it. */
static tarn_status read_wish(const char **path)
{
    const char *wish = variable_get("TARN_NVTX"), *named = variable_get("NVTX_INJECTION64_PATH");
    bool asked = wish && strcmp(wish, "1") == 0, refused = wish && strcmp(wish, "0") == 0;
    *path = NULL;
    if (wish && !asked && !refused)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_NVTX=%.64s must be 0 or 1", wish);
    if (!refused && named && (asked || driver == &driver_cuda))
        *path = named;
    return TARN_OK;
}

void nvtx_prepare(void)
{
    static atomic_bool opens;
    struct error_before before;
    const char *path = NULL;
    error_attempt_begin(&before);
    tarn_status status = read_wish(&path);
    error_attempt_end(&before, TARN_OK);
    if (status || !path)
        return;
    bool first = !atomic_exchange(&opens, true);
    void *library = dlopen(path, RTLD_LAZY);
    if (!library && first)
        log_write(LOG_ERRORS, "NVTX_INJECTION64_PATH: %s", dlerror());
    atomic_store(&opened_tool, library);
}

tarn_status nvtx_begin(void)
{
    static bool begun;
    const char *path = NULL;
    tarn_status status = read_wish(&path);
    void *library = atomic_load(&opened_tool);
    if (status || begun || !path || !library)
        return status;
    begun = true;
    use_tool(path, library);
    return TARN_OK;
}
