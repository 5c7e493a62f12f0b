/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Library handles on a full device. Memory that tarn does not know fills the device; then a create
 * that finds no room must say so (TARN_ERROR_OUT_OF_MEMORY), must succeed once there is room, and
 * must succeed at once where tarn has idle memory to give back. What a vendor's create says of a
 * full device is not what its documentation lists, so only a real one can be asked. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

#define LARGEST ((size_t)8 << 30)
#define SMALLEST (2 * MIB)
#define IDLE (512 * MIB) /* more than any library takes for its first handle */

static const tarn_library libraries[] = {
    TARN_LIBRARY_CUBLAS,      TARN_LIBRARY_CUBLASLT,    TARN_LIBRARY_CUDNN,  TARN_LIBRARY_CUSPARSE,
    TARN_LIBRARY_CUSOLVER_DN, TARN_LIBRARY_CUSOLVER_SP, TARN_LIBRARY_CURAND, TARN_LIBRARY_CUDSS};

/* Memory that the driver gives, taken until there is no more. */
struct ballast {
    cu_address held[512];
    size_t count;
};

static void fill(struct ballast *ballast)
{
    ballast->count = 0;
    for (size_t size = LARGEST; size >= SMALLEST; size /= 2)
        while (ballast->count < COUNT(ballast->held) &&
               !gpu.cuMemAlloc_v2(&ballast->held[ballast->count], size))
            ballast->count++;
}

static void empty(struct ballast *ballast)
{
    while (ballast->count > 0)
        (void)CU("ballast", gpu.cuMemFree_v2(ballast->held[--ballast->count]));
}

/* Takes a handle, gives it back, and destroys it, so that the next one is made from the start. */
static tarn_status make_one(tarn_library library, tarn_stream stream)
{
    tarn_lease lease = {0};
    tarn_status status = tarn_handle_lease(library, stream, &lease);
    if (!status && !(status = tarn_handle_return(&lease)))
        status = tarn_handle_trim(library, 0, NULL);
    return status;
}

static void check(const char *name, tarn_library library, tarn_stream stream)
{
    static struct ballast ballast;
    char what[96];
    void *block = NULL;

    snprintf(what, sizeof what, "%s on a full device", name);
    fill(&ballast);
    tarn_status status = make_one(library, stream);
    gpu_say(!status || status == TARN_ERROR_OUT_OF_MEMORY ? GPU_PASS : GPU_FAIL, what, "%s%s%s",
            tarn_status_name(status), status ? ": " : ", it needs no memory",
            status ? tarn_last_error() : "");
    empty(&ballast);

    snprintf(what, sizeof what, "%s once there is room", name);
    if (OK(what, make_one(library, stream)))
        gpu_say(GPU_PASS, what, "%s", "");

    snprintf(what, sizeof what, "%s beside idle memory", name);
    if (!OK(what, tarn_alloc_on(stream, IDLE, &block)) || !OK(what, tarn_free(block)) ||
        !OK(what, tarn_stream_synchronize(stream)))
        return;
    fill(&ballast);
    if (OK(what, make_one(library, stream)))
        gpu_say(GPU_PASS, what, "%zu MiB were idle", IDLE / MIB);
    empty(&ballast);
    (void)OK(what, tarn_device_trim(0, 0));
}

int main(void)
{
    tarn_stream stream = 0;
    int status = gpu_start();
    if (status)
        return status;
    if (!OK("stream", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    for (size_t i = 0; i < COUNT(libraries); i++) {
        tarn_library_info info = {.size = sizeof info};
        if (!OK("library", tarn_library_info_get(libraries[i], &info)))
            continue;
        if (info.usable)
            check(info.name, libraries[i], stream);
        else
            gpu_say(GPU_SKIP, info.name, "%s", info.reason);
    }
    (void)(OK("end", tarn_stream_return(stream)) && OK("end", tarn_shutdown()));
    return gpu_end();
}
