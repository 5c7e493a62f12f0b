/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* TVM-FFI on tarn: tensors that kernels of FlashInfer, TileLang and TVM ask for are tarn's.
 *
 *     cc dlpack.c -ltarn_adaptors -ltarn -ltvm_ffi */
#include <stdio.h>
#include <tarn/adaptors/tarn_dlpack.h>
#include <tarn/tarn.h>
#include <tvm/ffi/extra/c_env_api.h>

int main(void)
{
    struct tarn_device_properties properties = {.size = sizeof properties};
    if (tarn_device_properties_get(0, &properties))
        return fprintf(stderr, "%s\n", tarn_last_error()), 1;
    DLDevice device = {properties.driver[0] == 'c' ? kDLCUDA : kDLCPU, 0};

    tarn_dlpack_stream_source_set(TVMFFIEnvGetStream);
    TVMFFIEnvSetDLPackManagedTensorAllocator(tarn_dlpack_allocator, 1, NULL);

    int64_t shape[] = {1024, 1024};
    DLTensor prototype = {.device = device, .ndim = 2, .dtype = {kDLFloat, 16, 1}, .shape = shape};
    TVMFFIObjectHandle tensor = NULL;
    if (TVMFFIEnvTensorAlloc(&prototype, &tensor))
        return 1;
    tarn_stats stats = {.size = sizeof stats};
    tarn_device_stats_get(0, &stats);
    printf("a tensor of %lld bytes from tarn\n",
           (long long)stats.allocated_bytes[TARN_STAT_ALL].current);
    TVMFFIObjectDecRef(tensor);
    return 0;
}
