/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares what src/report/nvtx_abi.h declares with the toolkit's headers of NVTX 3. Compiling it
 * is the test: every value, every layout, and every prototype. */
#include "report/nvtx_abi.h"

#include <nvtx3/nvToolsExtMem.h>

#define SAME_VALUE(ours, theirs) _Static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs)
SAME_VALUE(NVTX_API_VERSION, NVTX_VERSION);
#define X(MODULE, number, entries)                  \
    SAME_VALUE(number, NVTX_CB_MODULE_##MODULE);    \
    SAME_VALUE(entries, NVTX_CBID_##MODULE##_SIZE); \
    _Static_assert((entries) <= NVTX_MODULE_ENTRIES, #MODULE);
NVTX_MODULE_LIST(X)
#undef X
SAME_VALUE(NVTX_DOMAIN_RANGE_PUSH_EX, NVTX_CBID_CORE2_DomainRangePushEx);
SAME_VALUE(NVTX_DOMAIN_RANGE_POP, NVTX_CBID_CORE2_DomainRangePop);
SAME_VALUE(NVTX_DOMAIN_CREATE_A, NVTX_CBID_CORE2_DomainCreateA);
SAME_VALUE(NVTX_TABLE_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME_VALUE(NVTX_TABLE_VERSION, NVTX_ETID_VERSIONINFO);
SAME_VALUE(NVTX_TEXT_ASCII, NVTX_MESSAGE_TYPE_ASCII);
SAME_VALUE(NVTX_MEMORY, NVTX_EXT_MODULEID_MEM);
SAME_VALUE(NVTX_MEMORY_COMPATIBLE, NVTX_EXT_COMPATID_MEM);
SAME_VALUE(NVTX_MEMORY_SLOTS, NVTX_EXT_MEM_SLOT_COUNT);
SAME_VALUE(NVTX_SLOT_NONE, NVTX_EXTENSION_DISABLED);
SAME_VALUE(NVTX_MEMORY_HEAP_REGISTER, NVTX3EXT_CBID_nvtxMemHeapRegister);
SAME_VALUE(NVTX_MEMORY_HEAP_UNREGISTER, NVTX3EXT_CBID_nvtxMemHeapUnregister);
SAME_VALUE(NVTX_MEMORY_REGIONS_REGISTER, NVTX3EXT_CBID_nvtxMemRegionsRegister);
SAME_VALUE(NVTX_MEMORY_REGIONS_RESIZE, NVTX3EXT_CBID_nvtxMemRegionsResize);
SAME_VALUE(NVTX_MEMORY_REGIONS_UNREGISTER, NVTX3EXT_CBID_nvtxMemRegionsUnregister);
SAME_VALUE(NVTX_MEMORY_REGIONS_NAME, NVTX3EXT_CBID_nvtxMemRegionsName);
SAME_VALUE(NVTX_HEAP_SUB_ALLOCATOR, NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR);
SAME_VALUE(NVTX_VIRTUAL_ADDRESS, NVTX_MEM_TYPE_VIRTUAL_ADDRESS);
SAME_VALUE(NVTX_BY_POINTER, NVTX_MEM_REGION_REF_TYPE_POINTER);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME_SIZE(struct nvtx_callbacks, NvtxExportTableCallbacks);
SAME_FIELD(struct nvtx_callbacks, module_table, NvtxExportTableCallbacks, GetModuleFunctionTable);
SAME_SIZE(struct nvtx_version, NvtxExportTableVersionInfo);
SAME_FIELD(struct nvtx_version, version, NvtxExportTableVersionInfo, version);
SAME_FIELD(struct nvtx_version, set_tool_version, NvtxExportTableVersionInfo,
           SetInjectionNvtxVersion);
SAME_SIZE(union nvtx_text, nvtxMessageValue_t);
SAME_SIZE(struct nvtx_event, nvtxEventAttributes_t);
SAME_FIELD(struct nvtx_event, version, nvtxEventAttributes_t, version);
SAME_FIELD(struct nvtx_event, size, nvtxEventAttributes_t, size);
SAME_FIELD(struct nvtx_event, category, nvtxEventAttributes_t, category);
SAME_FIELD(struct nvtx_event, colour_type, nvtxEventAttributes_t, colorType);
SAME_FIELD(struct nvtx_event, colour, nvtxEventAttributes_t, color);
SAME_FIELD(struct nvtx_event, payload_type, nvtxEventAttributes_t, payloadType);
SAME_FIELD(struct nvtx_event, payload, nvtxEventAttributes_t, payload);
SAME_FIELD(struct nvtx_event, text_type, nvtxEventAttributes_t, messageType);
SAME_FIELD(struct nvtx_event, text, nvtxEventAttributes_t, message);
SAME_SIZE(struct nvtx_segment, nvtxExtModuleSegment_t);
SAME_FIELD(struct nvtx_segment, number, nvtxExtModuleSegment_t, segmentId);
SAME_FIELD(struct nvtx_segment, slot_count, nvtxExtModuleSegment_t, slotCount);
SAME_FIELD(struct nvtx_segment, slots, nvtxExtModuleSegment_t, functionSlots);
SAME_SIZE(struct nvtx_module, nvtxExtModuleInfo_t);
SAME_FIELD(struct nvtx_module, version, nvtxExtModuleInfo_t, nvtxVer);
SAME_FIELD(struct nvtx_module, size, nvtxExtModuleInfo_t, structSize);
SAME_FIELD(struct nvtx_module, number, nvtxExtModuleInfo_t, moduleId);
SAME_FIELD(struct nvtx_module, compatible, nvtxExtModuleInfo_t, compatId);
SAME_FIELD(struct nvtx_module, segment_count, nvtxExtModuleInfo_t, segmentsCount);
SAME_FIELD(struct nvtx_module, segments, nvtxExtModuleInfo_t, segments);
SAME_FIELD(struct nvtx_module, get_export, nvtxExtModuleInfo_t, getExportFunction);
SAME_FIELD(struct nvtx_module, info, nvtxExtModuleInfo_t, extInfo);
SAME_SIZE(struct nvtx_range, nvtxMemVirtualRangeDesc_t);
SAME_FIELD(struct nvtx_range, size, nvtxMemVirtualRangeDesc_t, size);
SAME_FIELD(struct nvtx_range, start, nvtxMemVirtualRangeDesc_t, ptr);
SAME_SIZE(struct nvtx_heap_description, nvtxMemHeapDesc_t);
SAME_FIELD(struct nvtx_heap_description, compatible, nvtxMemHeapDesc_t, extCompatID);
SAME_FIELD(struct nvtx_heap_description, size, nvtxMemHeapDesc_t, structSize);
SAME_FIELD(struct nvtx_heap_description, usage, nvtxMemHeapDesc_t, usage);
SAME_FIELD(struct nvtx_heap_description, type, nvtxMemHeapDesc_t, type);
SAME_FIELD(struct nvtx_heap_description, range_size, nvtxMemHeapDesc_t, typeSpecificDescSize);
SAME_FIELD(struct nvtx_heap_description, range, nvtxMemHeapDesc_t, typeSpecificDesc);
SAME_FIELD(struct nvtx_heap_description, category, nvtxMemHeapDesc_t, category);
SAME_FIELD(struct nvtx_heap_description, text_type, nvtxMemHeapDesc_t, messageType);
SAME_FIELD(struct nvtx_heap_description, text, nvtxMemHeapDesc_t, message);
SAME_SIZE(struct nvtx_regions_register, nvtxMemRegionsRegisterBatch_t);
SAME_FIELD(struct nvtx_regions_register, compatible, nvtxMemRegionsRegisterBatch_t, extCompatID);
SAME_FIELD(struct nvtx_regions_register, size, nvtxMemRegionsRegisterBatch_t, structSize);
SAME_FIELD(struct nvtx_regions_register, type, nvtxMemRegionsRegisterBatch_t, regionType);
SAME_FIELD(struct nvtx_regions_register, heap, nvtxMemRegionsRegisterBatch_t, heap);
SAME_FIELD(struct nvtx_regions_register, count, nvtxMemRegionsRegisterBatch_t, regionCount);
SAME_FIELD(struct nvtx_regions_register, range_size, nvtxMemRegionsRegisterBatch_t,
           regionDescElementSize);
SAME_FIELD(struct nvtx_regions_register, ranges, nvtxMemRegionsRegisterBatch_t, regionDescElements);
SAME_FIELD(struct nvtx_regions_register, handles, nvtxMemRegionsRegisterBatch_t,
           regionHandleElementsOut);
SAME_SIZE(struct nvtx_regions_resize, nvtxMemRegionsResizeBatch_t);
SAME_FIELD(struct nvtx_regions_resize, type, nvtxMemRegionsResizeBatch_t, regionType);
SAME_FIELD(struct nvtx_regions_resize, count, nvtxMemRegionsResizeBatch_t, regionDescCount);
SAME_FIELD(struct nvtx_regions_resize, range_size, nvtxMemRegionsResizeBatch_t,
           regionDescElementSize);
SAME_FIELD(struct nvtx_regions_resize, ranges, nvtxMemRegionsResizeBatch_t, regionDescElements);
SAME_SIZE(union nvtx_region, nvtxMemRegionRef_t);
SAME_SIZE(struct nvtx_regions_unregister, nvtxMemRegionsUnregisterBatch_t);
SAME_FIELD(struct nvtx_regions_unregister, reference, nvtxMemRegionsUnregisterBatch_t, refType);
SAME_FIELD(struct nvtx_regions_unregister, count, nvtxMemRegionsUnregisterBatch_t, refCount);
SAME_FIELD(struct nvtx_regions_unregister, region_size, nvtxMemRegionsUnregisterBatch_t,
           refElementSize);
SAME_FIELD(struct nvtx_regions_unregister, regions, nvtxMemRegionsUnregisterBatch_t, refElements);
SAME_SIZE(struct nvtx_region_name, nvtxMemRegionNameDesc_t);
SAME_FIELD(struct nvtx_region_name, reference, nvtxMemRegionNameDesc_t, regionRefType);
SAME_FIELD(struct nvtx_region_name, text_type, nvtxMemRegionNameDesc_t, nameType);
SAME_FIELD(struct nvtx_region_name, region, nvtxMemRegionNameDesc_t, region);
SAME_FIELD(struct nvtx_region_name, text, nvtxMemRegionNameDesc_t, name);
SAME_FIELD(struct nvtx_region_name, category, nvtxMemRegionNameDesc_t, category);
SAME_SIZE(struct nvtx_regions_name, nvtxMemRegionsNameBatch_t);
SAME_FIELD(struct nvtx_regions_name, count, nvtxMemRegionsNameBatch_t, regionCount);
SAME_FIELD(struct nvtx_regions_name, name_size, nvtxMemRegionsNameBatch_t, regionElementSize);
SAME_FIELD(struct nvtx_regions_name, names, nvtxMemRegionsNameBatch_t, regionElements);

/* Their prototypes, as ours are with our types in place of theirs. */
__attribute__((unused)) static inline void prototypes(nvtxDomainHandle_t domain)
{
    nvtxMemHeapHandle_t (*heap_register)(nvtxDomainHandle_t, const nvtxMemHeapDesc_t *) =
        nvtxMemHeapRegister;
    void (*heap_unregister)(nvtxDomainHandle_t, nvtxMemHeapHandle_t) = nvtxMemHeapUnregister;
    void (*regions_register)(nvtxDomainHandle_t, const nvtxMemRegionsRegisterBatch_t *) =
        nvtxMemRegionsRegister;
    void (*regions_resize)(nvtxDomainHandle_t, const nvtxMemRegionsResizeBatch_t *) =
        nvtxMemRegionsResize;
    void (*regions_unregister)(nvtxDomainHandle_t, const nvtxMemRegionsUnregisterBatch_t *) =
        nvtxMemRegionsUnregister;
    void (*regions_name)(nvtxDomainHandle_t, const nvtxMemRegionsNameBatch_t *) =
        nvtxMemRegionsName;
    int (*push)(nvtxDomainHandle_t, const nvtxEventAttributes_t *) = nvtxDomainRangePushEx;
    int (*pop)(nvtxDomainHandle_t) = nvtxDomainRangePop;
    nvtxDomainHandle_t (*create)(const char *) = nvtxDomainCreateA;
    NvtxInitializeInjectionNvtxFunc_t initialize = NULL;
    int (*with)(NvtxGetExportTableFunc_t) = initialize;
    NvtxExtInitializeInjectionFunc_t initialize_extension = NULL;
    int (*with_module)(nvtxExtModuleInfo_t *) = initialize_extension;
    (void)domain, (void)heap_register, (void)heap_unregister, (void)regions_register,
        (void)regions_resize;
    (void)regions_unregister, (void)regions_name, (void)push, (void)pop, (void)create, (void)with,
        (void)with_module;
}
