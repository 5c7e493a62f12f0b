/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* nvJPEG on tarn: an image on the device becomes a JPEG, and all memory that nvJPEG takes for it is
 * tarn's.
 *
 *     cc nvjpeg.c -I/usr/local/cuda/include -L/usr/local/cuda/lib64 -ltarn_adaptors -ltarn -lnvjpeg
 *     -lcudart */
#include <nvjpeg.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/adaptors/tarn_handlers.h>
#include <tarn/tarn.h>

#define OK(call)                                                                     \
    do {                                                                             \
        int status = (int)(call);                                                    \
        if (status) {                                                                \
            fprintf(stderr, "%s: %d; tarn: %s\n", #call, status, tarn_last_error()); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

enum { WIDTH = 1024, HEIGHT = 768 };

int main(void)
{
    tarn_pool *pool = NULL;
    OK(tarn_device_set(0));
    OK(tarn_pool_default(0, &pool));
    nvjpegDevAllocatorV2_t on_device = {tarn_handler_alloc, tarn_handler_free, pool};
    nvjpegPinnedAllocatorV2_t on_host = {tarn_handler_pinned_alloc, tarn_handler_pinned_free, pool};
    nvjpegHandle_t handle = NULL;
    OK(nvjpegCreateExV2(NVJPEG_BACKEND_DEFAULT, &on_device, &on_host, NVJPEG_FLAGS_DEFAULT,
                        &handle));

    tarn_stream leased = 0;
    void *native = NULL, *pixels = NULL;
    OK(tarn_stream_lease(0, 0, &leased));
    OK(tarn_stream_native_get(leased, &native));
    cudaStream_t stream = (cudaStream_t)native;
    OK(tarn_alloc_on(leased, 3 * WIDTH * HEIGHT, &pixels));
    OK(cudaMemsetAsync(pixels, 128, 3 * WIDTH * HEIGHT, stream));

    nvjpegEncoderState_t state = NULL;
    nvjpegEncoderParams_t parameters = NULL;
    OK(nvjpegEncoderStateCreate(handle, &state, stream));
    OK(nvjpegEncoderParamsCreate(handle, &parameters, stream));
    OK(nvjpegEncoderParamsSetSamplingFactors(parameters, NVJPEG_CSS_444, stream));
    nvjpegImage_t image = {.channel = {pixels}, .pitch = {3 * WIDTH}};
    OK(nvjpegEncodeImage(handle, state, parameters, &image, NVJPEG_INPUT_RGBI, WIDTH, HEIGHT,
                         stream));
    size_t length = 0;
    OK(nvjpegEncodeRetrieveBitstream(handle, state, NULL, &length, stream));
    OK(cudaStreamSynchronize(stream));

    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_device_stats_get(0, &stats));
    printf("a JPEG of %zu bytes; nvJPEG has %lld bytes from tarn\n", length,
           (long long)stats.allocated_bytes[TARN_STAT_ALL].current - 3 * WIDTH * HEIGHT);
    OK(nvjpegEncoderParamsDestroy(parameters));
    OK(nvjpegEncoderStateDestroy(state));
    OK(nvjpegDestroy(handle));
    OK(tarn_free(pixels));
    OK(tarn_device_stats_get(0, &stats));
    printf("afterwards %lld\n", (long long)stats.allocated_bytes[TARN_STAT_ALL].current);
    return 0;
}
