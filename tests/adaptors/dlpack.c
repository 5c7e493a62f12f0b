/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The allocator of tensors beside DLPack's header: our structures are its, the function has its
 * type, and the tensors are what was asked for. With TVM-FFI's library (HAVE_TVM_FFI) that calls it
 * too. */
#include "../../adaptors/dlpack/tarn_dlpack_abi.h"
#include "check.h"

#include <stddef.h>
#include <string.h>
#include <tarn/adaptors/tarn_dlpack.h>
#include <tarn/tarn.h>

#ifdef HAVE_TVM_FFI
#include <tvm/ffi/extra/c_env_api.h>
#endif

#define SAME(ours, field, theirs, their_field)                                           \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME(struct dl_tensor, data, DLTensor, data);
SAME(struct dl_tensor, device, DLTensor, device);
SAME(struct dl_tensor, device.id, DLTensor, device.device_id);
SAME(struct dl_tensor, dimensions, DLTensor, ndim);
SAME(struct dl_tensor, type, DLTensor, dtype);
SAME(struct dl_tensor, type.bits, DLTensor, dtype.bits);
SAME(struct dl_tensor, type.lanes, DLTensor, dtype.lanes);
SAME(struct dl_tensor, shape, DLTensor, shape);
SAME(struct dl_tensor, strides, DLTensor, strides);
SAME(struct dl_tensor, byte_offset, DLTensor, byte_offset);
SAME(struct dl_managed, major, DLManagedTensorVersioned, version.major);
SAME(struct dl_managed, minor, DLManagedTensorVersioned, version.minor);
SAME(struct dl_managed, context, DLManagedTensorVersioned, manager_ctx);
SAME(struct dl_managed, deleter, DLManagedTensorVersioned, deleter);
SAME(struct dl_managed, flags, DLManagedTensorVersioned, flags);
SAME(struct dl_managed, tensor, DLManagedTensorVersioned, dl_tensor);
_Static_assert(sizeof(struct dl_managed) == sizeof(DLManagedTensorVersioned),
               "DLManagedTensorVersioned");
_Static_assert((int)DEVICE_CPU == (int)kDLCPU && (int)DEVICE_CUDA == (int)kDLCUDA &&
                   (int)DEVICE_ROCM == (int)kDLROCM && DLPACK_MAJOR == DLPACK_MAJOR_VERSION,
               "values");

static DLPackManagedTensorAllocator const allocator = tarn_dlpack_allocator;

static char kind[64];
static void note(void *context, const char *error_kind, const char *message)
{
    CHECK(context == kind && *message);
    snprintf(kind, sizeof kind, "%s", error_kind);
}

static int64_t used(void)
{
    tarn_stats stats = {.size = sizeof stats};
    CHECK(tarn_device_stats_get(0, &stats) == TARN_OK);
    return stats.allocated_bytes[TARN_STAT_ALL].current;
}

static tarn_stream chosen;
static int32_t asked;
static void *source(int32_t type, int32_t device)
{
    void *native = NULL;
    CHECK(device == 0);
    asked = type;
    CHECK(tarn_stream_native_get(chosen, &native) == TARN_OK);
    return native;
}

static void check_tensor(DLManagedTensorVersioned *made, DLDevice device)
{
    const DLTensor *tensor = &made->dl_tensor;
    CHECK(made->version.major == DLPACK_MAJOR_VERSION && !made->flags && tensor->data &&
          !tensor->byte_offset);
    CHECK(tensor->device.device_type == device.device_type && tensor->device.device_id == 0);
    CHECK(tensor->ndim == 3 && tensor->shape[0] == 2 && tensor->shape[1] == 3 &&
          tensor->shape[2] == 5);
    CHECK(tensor->strides[0] == 15 && tensor->strides[1] == 5 && tensor->strides[2] == 1);
    tarn_block_info info = {.size = sizeof info};
    CHECK(tarn_pointer_info_get(tensor->data, &info) == TARN_OK &&
          info.requested == 2 * 3 * 5 * 4 && info.base == tensor->data);
}

int main(void)
{
    struct tarn_device_properties properties = {.size = sizeof properties};
    CHECK(tarn_device_properties_get(0, &properties) == TARN_OK);
    DLDevice device = {strcmp(properties.driver, "cuda") ? kDLCPU : kDLCUDA, 0};
    int64_t shape[] = {2, 3, 5}, before = used();
    DLTensor prototype = {.device = device, .ndim = 3, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    DLManagedTensorVersioned *made = NULL;
    CHECK(allocator(&prototype, &made, kind, note) == 0);
    check_tensor(made, device);
    CHECK(used() > before);
    made->deleter(made);
    CHECK(used() == before);

    /* The stream is that of the source. */
    CHECK(tarn_stream_lease(0, 0, &chosen) == TARN_OK);
    tarn_dlpack_stream_source_set(source);
    CHECK(allocator(&prototype, &made, kind, note) == 0 && asked == (int32_t)device.device_type);
    tarn_block_info info = {.size = sizeof info};
    CHECK(tarn_pointer_info_get(made->dl_tensor.data, &info) == TARN_OK && info.stream == chosen);
    made->deleter(made);
    tarn_dlpack_stream_source_set(NULL);
    CHECK(tarn_stream_return(chosen) == TARN_OK);

    /* Types of less than a byte, no dimension, no element. */
    prototype.dtype = (DLDataType){kDLUInt, 4, 1};
    CHECK(allocator(&prototype, &made, kind, note) == 0);
    CHECK(tarn_pointer_info_get(made->dl_tensor.data, &info) == TARN_OK && info.requested == 15);
    made->deleter(made);
    prototype.dtype = (DLDataType){kDLFloat, 32, 1};
    prototype.ndim = 0;
    CHECK(allocator(&prototype, &made, kind, note) == 0);
    CHECK(tarn_pointer_info_get(made->dl_tensor.data, &info) == TARN_OK && info.requested == 4);
    made->deleter(made);
    prototype.ndim = 3;
    shape[1] = 0;
    CHECK(allocator(&prototype, &made, kind, note) == 0 && !made->dl_tensor.data);
    CHECK(made->dl_tensor.strides[0] == 5 && made->dl_tensor.strides[1] == 5);
    made->deleter(made);

    /* What fails says so, and leaves nothing behind. */
    shape[1] = -1;
    CHECK(allocator(&prototype, &made, kind, note) == -1 && !strcmp(kind, "ValueError"));
    shape[1] = INT64_MAX;
    CHECK(allocator(&prototype, &made, kind, note) == -1 && !strcmp(kind, "ValueError"));
    shape[0] = 0;
    shape[1] = (int64_t)1 << 62;
    CHECK(allocator(&prototype, &made, kind, note) == -1 && !strcmp(kind, "ValueError"));
    shape[0] = shape[2] = 1;
    shape[1] = (int64_t)1 << 48;
    CHECK(allocator(&prototype, &made, kind, note) == -1 && !strcmp(kind, "MemoryError"));
    prototype.device.device_type = kDLVulkan;
    CHECK(allocator(&prototype, &made, kind, note) == -1 && !strcmp(kind, "ValueError"));
    prototype.device = device;
    prototype.device.device_id = 1000;
    shape[1] = 1;
    CHECK(device.device_type == kDLCPU ||
          (allocator(&prototype, &made, kind, note) == -1 && !strcmp(kind, "ValueError")));
    CHECK(used() == before);

#ifdef HAVE_TVM_FFI
    int64_t again[] = {2, 3, 5};
    prototype.device = device;
    prototype.shape = again;
    TVMFFIObjectHandle tensor = NULL;
    tarn_dlpack_stream_source_set(TVMFFIEnvGetStream);
    CHECK(TVMFFIEnvSetDLPackManagedTensorAllocator(tarn_dlpack_allocator, 1, NULL) == 0);
    CHECK(TVMFFIEnvTensorAlloc(&prototype, &tensor) == 0 && tensor && used() > before);
    CHECK(TVMFFIObjectDecRef(tensor) == 0 && used() == before);
    puts("dlpack: by TVM-FFI too");
#endif

    /* A device that tarn cannot use now is no wrong device. */
    CHECK(tarn_shutdown() == TARN_OK);
    prototype.device = device;
    CHECK(allocator(&prototype, &made, kind, note) == -1 && !strcmp(kind, "RuntimeError"));
    puts("dlpack: done");
    return 0;
}
