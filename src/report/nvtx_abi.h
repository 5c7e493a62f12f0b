/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn uses of NVTX 3 (NVIDIA/NVTX), declared here. NVTX is a header whose functions fill
 * tables and pass them to a tool's library; these tables are its binary interface.
 * tests/abi/check_nvtx.c compares every line with the headers.
 *
 * The way to the tool: NVTX_INJECTION64_PATH names its library. InitializeInjectionNvtx2 in it gets
 * a function. That function returns a table, through which the tool gets the function table of each
 * module, where it stores its functions. A result of 0 means that it failed. Then
 * InitializeInjectionNvtxExtension gets a list of slots per extension, where the tool stores its
 * functions. */
#ifndef TARN_REPORT_NVTX_ABI_H
#define TARN_REPORT_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>

#define NVTX_API_VERSION 3

typedef void (*nvtx_function)(void);
typedef struct nvtxDomainRegistration_st *nvtx_domain;
typedef struct nvtxMemHeap_v1 *nvtx_heap_handle;
#define NVTX_HEAP_NO_TOOL ((nvtx_heap_handle)(intptr_t)-1) /* the tool takes no heaps */

/* X(MODULE, number, entries): the modules of the core and the size of each one's table. Entry 0 is
 * unused. */
#define NVTX_MODULE_LIST(X) \
    X(CORE, 1, 16)          \
    X(CUDA, 2, 9)           \
    X(OPENCL, 3, 15)        \
    X(CUDART, 4, 7)         \
    X(CORE2, 5, 16)         \
    X(SYNC, 6, 7)

enum { NVTX_MODULE_ENTRIES = 16 }; /* the most */

/* Entries of module CORE2. */
enum { NVTX_DOMAIN_RANGE_PUSH_EX = 4, NVTX_DOMAIN_RANGE_POP = 5, NVTX_DOMAIN_CREATE_A = 12 };

enum { NVTX_TABLE_CALLBACKS = 1, NVTX_TABLE_VERSION = 3 };

struct nvtx_callbacks {
    size_t size;
    int (*module_table)(unsigned module, nvtx_function ***table, unsigned *entries);
};

struct nvtx_version {
    size_t size;
    uint32_t version, reserved;
    void (*set_tool_version)(uint32_t version);
};

typedef const void *nvtx_get_table(uint32_t table);
typedef int nvtx_initialize(nvtx_get_table *get_table);

/* A text by the first member, or a text registered with the tool. */
union nvtx_text {
    const char *ascii;
    const void *other;
};
enum { NVTX_TEXT_ASCII = 1 };

struct nvtx_event {
    uint16_t version, size;
    uint32_t category;
    int32_t colour_type;
    uint32_t colour;
    int32_t payload_type, reserved;
    union {
        uint64_t number;
        double real;
    } payload;
    int32_t text_type;
    union nvtx_text text;
};

typedef int nvtx_range_push(nvtx_domain domain, const struct nvtx_event *event);
typedef int nvtx_range_pop(nvtx_domain domain);
typedef nvtx_domain nvtx_domain_create(const char *name);

/* Extensions */
struct nvtx_segment {
    size_t number, slot_count;
    intptr_t *slots; /* 0 before; then a function, 0, or 1 (none) */
};

struct nvtx_module {
    uint16_t version, size, number, compatible;
    size_t segment_count;
    struct nvtx_segment *segments;
    intptr_t (*get_export)(uint32_t function);
    const void *info;
};

typedef int nvtx_initialize_extension(struct nvtx_module *module);

/* The memory extension */
enum {
    NVTX_MEMORY = 1, /* the extension's number */
    NVTX_MEMORY_COMPATIBLE = 0x0102,
    NVTX_MEMORY_SLOTS = 63,
    NVTX_SLOT_NONE = 1
};

/* X(NAME, number): the extension's functions, by slot. */
#define NVTX_MEMORY_LIST(X)  \
    X(HEAP_REGISTER, 0)      \
    X(HEAP_UNREGISTER, 1)    \
    X(REGIONS_REGISTER, 3)   \
    X(REGIONS_RESIZE, 4)     \
    X(REGIONS_UNREGISTER, 5) \
    X(REGIONS_NAME, 6)

enum nvtx_memory_slot {
#define X(NAME, number) NVTX_MEMORY_##NAME = number,
    NVTX_MEMORY_LIST(X)
#undef X
};

enum { NVTX_HEAP_SUB_ALLOCATOR = 1, NVTX_VIRTUAL_ADDRESS = 1, NVTX_BY_POINTER = 1 };

struct nvtx_range {
    size_t size;
    const void *start;
};

struct nvtx_heap_description {
    uint16_t compatible, size;
    uint32_t reserved;
    uint32_t usage, type;
    size_t range_size;
    const void *range;
    uint32_t category, text_type;
    union nvtx_text text;
};

struct nvtx_regions_register {
    uint16_t compatible, size;
    uint32_t type;
    nvtx_heap_handle heap;
    size_t count, range_size;
    const void *ranges;
    void *handles;
};

struct nvtx_regions_resize {
    uint16_t compatible, size;
    uint32_t type;
    size_t count, range_size;
    const void *ranges;
};

union nvtx_region {
    const void *pointer;
    void *handle;
};

struct nvtx_regions_unregister {
    uint16_t compatible, size;
    uint32_t reference;
    size_t count, region_size;
    const union nvtx_region *regions;
};

struct nvtx_region_name {
    uint32_t reference, text_type;
    union nvtx_region region;
    union nvtx_text text;
    uint32_t category, reserved;
};

struct nvtx_regions_name {
    uint16_t compatible, size;
    uint32_t reserved;
    size_t count, name_size;
    const struct nvtx_region_name *names;
    size_t also_reserved;
};

typedef nvtx_heap_handle nvtx_heap_register(nvtx_domain domain,
                                            const struct nvtx_heap_description *heap);
typedef void nvtx_heap_unregister(nvtx_domain domain, nvtx_heap_handle heap);
typedef void nvtx_regions_register(nvtx_domain domain, const struct nvtx_regions_register *regions);
typedef void nvtx_regions_resize(nvtx_domain domain, const struct nvtx_regions_resize *regions);
typedef void nvtx_regions_unregister(nvtx_domain domain,
                                     const struct nvtx_regions_unregister *regions);
typedef void nvtx_regions_name(nvtx_domain domain, const struct nvtx_regions_name *regions);

#endif
