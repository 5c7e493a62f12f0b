/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Opens the driver once, by its soname, so that the process has one copy. If the driver or one of
 * its functions is missing, every call reports that there is no device. */
#include "vendor/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define CUDA_LIST(X)                                             \
    X(cuInit, (unsigned flags))                                  \
    X(cuDriverGetVersion, (int *version))                        \
    X(cuCtxGetCurrent, (void **context))                         \
    X(cuCtxSetCurrent, (void *context))                          \
    X(cuCtxGetDevice, (int *device))                             \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))    \
    X(cuCtxSynchronize, (void))                                  \
    X(cuMemAlloc_v2, (unsigned long long *address, size_t size)) \
    X(cuMemFree_v2, (unsigned long long address))
#define HIP_LIST(X)                             \
    X(hipInit, (unsigned flags))                \
    X(hipGetDevice, (int *device))              \
    X(hipDeviceSynchronize, (void))             \
    X(hipMalloc, (void **pointer, size_t size)) \
    X(hipFree, (void *pointer))

#ifdef SIM_ON_HIP
#define ENTRY_LIST HIP_LIST
#else
#define ENTRY_LIST CUDA_LIST
#endif

static struct {
    bool ready;
#define X(symbol, parameters) int(*symbol) parameters;
    ENTRY_LIST(X)
#undef X
} below;

static void open_once(void)
{
    static const char *const names[] = {
#define X(symbol, parameters) #symbol,
        ENTRY_LIST(X)
#undef X
    };
    void *const places[] = {
#define X(symbol, parameters) &below.symbol,
        ENTRY_LIST(X)
#undef X
    };
    void *library = dlopen(SIM_DRIVER, RTLD_NOW | RTLD_LOCAL);
    bool ready = library != NULL;
    for (size_t i = 0; library && i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(library, names[i]);
        memcpy(places[i], &symbol, sizeof symbol);
        ready = ready && symbol;
    }
    below.ready = ready;
}

static bool opened(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    return below.ready;
}

#ifdef SIM_ON_HIP

int below_version(void)
{
    return 0;
}

int below_device(int *device)
{
    int code = opened() ? below.hipInit(0) : BELOW_NO_DEVICE;
    return code ? code : below.hipGetDevice(device);
}

int below_alloc(void **pointer, size_t size)
{
    return opened() ? below.hipMalloc(pointer, size) : BELOW_NO_DEVICE;
}

int below_free(void *pointer)
{
    return opened() ? below.hipFree(pointer) : BELOW_NO_DEVICE;
}

int below_synchronize(void)
{
    return opened() ? below.hipDeviceSynchronize() : BELOW_NO_DEVICE;
}

#else

int below_version(void)
{
    int version = 0;
    return opened() && below.cuDriverGetVersion(&version) == 0 ? version : 0;
}

int below_device(int *device)
{
    void *context = NULL;
    int code = opened() ? below.cuInit(0) : BELOW_NO_DEVICE;
    if (!code)
        code = below.cuCtxGetCurrent(&context);
    if (!code && !context) {
        code = below.cuDevicePrimaryCtxRetain(&context, 0);
        if (!code)
            code = below.cuCtxSetCurrent(context);
    }
    return code ? code : below.cuCtxGetDevice(device);
}

int below_alloc(void **pointer, size_t size)
{
    unsigned long long address = 0;
    int code = opened() ? below.cuMemAlloc_v2(&address, size) : BELOW_NO_DEVICE;
    if (!code)
        *pointer = (void *)(uintptr_t)address;
    return code;
}

int below_free(void *pointer)
{
    return opened() ? below.cuMemFree_v2((uintptr_t)pointer) : BELOW_NO_DEVICE;
}

int below_synchronize(void)
{
    return opened() ? below.cuCtxSynchronize() : BELOW_NO_DEVICE;
}

#endif
