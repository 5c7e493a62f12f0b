/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices, contexts and codes of the simulated libcuda. Owns the primary contexts and each thread's
 * stack of them. */
#include "base/thread/lock.h"
#include "common/card.h"
#include "cuda/sim_cuda.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define STACK 32

static mutex contexts_lock = MUTEX_INITIALIZER(LOCK_SIM_CONTEXTS);
static struct CUctx_st primary[TARN_MAX_DEVICES];
static atomic_uint lost[TARN_MAX_DEVICES]; /* the sticky code of a lost device; 0: not lost */
static _Thread_local cu_context stack[STACK];
static _Thread_local int depth;

/* ---- Codes ---- */

static const struct {
    cu_result code;
    const char *name;
} results[] = {
#define X(name, value, theirs) {value, #theirs},
    CUDA_RESULT_LIST(X)
#undef X
};

cu_result cuGetErrorName(cu_result code, const char **text)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i].code == code) {
            *text = results[i].name;
            return CU_OK;
        }
    }
    *text = NULL;
    return CU_INVALID_VALUE;
}

cu_result cuGetErrorString(cu_result code, const char **text)
{
    cu_result known = cuGetErrorName(code, text);
    if (!known)
        *text = code == CU_OK                ? "no error"
                : code == CU_OUT_OF_MEMORY   ? "out of memory"
                : code == CU_DEINITIALIZED   ? "driver shutting down"
                : code == CU_NOT_INITIALIZED ? "initialization error"
                : code == CU_CAPTURE_IMPLICIT
                    ? "operation would make the legacy stream depend on a capturing blocking stream"
                    : "simulated";
    return known;
}

/* The host device's error text of a failed call in a capture ends with CUDA's number for it. */
static cu_result capture_code(void)
{
    const char *at = strstr(tarn_last_error(), "(90");
    if (strstr(tarn_last_error(), "(1)"))
        return CU_INVALID_VALUE;
    if (strstr(tarn_last_error(), "(401)"))
        return CU_ILLEGAL_STATE;
    return at && at[3] >= '0' && at[3] <= '9' && at[4] == ')' ? 900 + (cu_result)(at[3] - '0')
                                                              : CU_CAPTURE_UNSUPPORTED;
}

cu_result sim_code(tarn_status status)
{
    switch (status) {
    case TARN_OK:
        return CU_OK;
    case TARN_ERROR_OUT_OF_MEMORY:
    case TARN_ERROR_OUT_OF_HOST_MEMORY:
    case TARN_ERROR_MAPPING_LIMIT:
        return CU_OUT_OF_MEMORY;
    case TARN_ERROR_INVALID_DEVICE:
        return CU_INVALID_DEVICE;
    case TARN_ERROR_INVALID_STREAM:
        return CU_INVALID_HANDLE;
    case TARN_ERROR_NOT_READY:
        return CU_NOT_READY;
    case TARN_ERROR_CAPTURE:
        return capture_code();
    case TARN_ERROR_DEVICE_LOST:
        return CU_ILLEGAL_ADDRESS;
    case TARN_ERROR_NOT_SUPPORTED:
        return CU_NOT_SUPPORTED;
    case TARN_ERROR_FORKED:
        return CU_NOT_INITIALIZED;
    default:
        return CU_INVALID_VALUE;
    }
}

/* ---- Beginning of a call ---- */

unsigned sim_cuda_version(void)
{
    return sim_number("TARN_SIM_CUDA_VERSION", SIM_CUDA_VERSION_DEFAULT);
}

/* True for errors after which every later call returns the same. These are the errors of which
 * cuda.h says so ("leaves the process in an inconsistent state", "must be destroyed"), and the
 * errors of memory and links and the unknown one, of which it says nothing. */
static bool is_sticky(cu_result code)
{
    switch (code) {
    case CU_ECC_UNCORRECTABLE:
    case CU_NVLINK_UNCORRECTABLE:
    case CU_CONTAINED:
    case CU_ILLEGAL_ADDRESS:
    case CU_LAUNCH_TIMEOUT:
    case CU_ASSERT:
    case CU_TENSOR_MEMORY_LEAK:
    case CU_UNKNOWN:
        return true;
    default:
        return code >= CU_HARDWARE_STACK && code <= CU_LAUNCH_FAILED;
    }
}

static cu_context current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

cu_result sim_lost(int device)
{
    return atomic_load_explicit(&lost[device], memory_order_relaxed);
}

static cu_result check_process(void)
{
    switch (sim_state()) {
    case SIM_EXITS:
        return CU_DEINITIALIZED;
    case SIM_RUNS:
        return CU_OK;
    default:
        return CU_NOT_INITIALIZED;
    }
}

cu_result sim_enter_process(const char *call)
{
    cu_result code = check_process();
    return code ? code : sim_knob(call);
}

cu_result sim_enter(const char *call, int *device)
{
    cu_result code = check_process();
    if (code)
        return code;
    cu_context context = current();
    if (!context)
        return CU_INVALID_CONTEXT;
    if (!context->holders)
        return CU_CONTEXT_IS_DESTROYED;
    *device = context->device;
    code = sim_lost(*device);
    if (code)
        return code;
    code = sim_knob(call);
    if (is_sticky(code))
        atomic_store(&lost[*device], code);
    return code;
}

/* ---- Devices ---- */

cu_result cuInit(unsigned flags)
{
    if (flags)
        return CU_INVALID_VALUE;
    if (sim_state() == SIM_EXITS)
        return CU_DEINITIALIZED;
    if (sim_state() == SIM_FORKED)
        return CU_NOT_INITIALIZED;
    cu_result code = sim_knob("cuInit");
    if (code)
        return code;
    tarn_status status = sim_start();
    if (status)
        fprintf(stderr, "tarn sim: libcuda.so.1: %s\n", tarn_last_error());
    return status ? CU_NO_DEVICE : CU_OK;
}

cu_result cuDriverGetVersion(int *version)
{
    if (!version)
        return CU_INVALID_VALUE;
    *version = (int)sim_cuda_version();
    return CU_OK;
}

cu_result cuDeviceGetCount(int *count)
{
    cu_result code = sim_enter_process("cuDeviceGetCount");
    if (code)
        return code;
    return count ? sim_code(driver->device_count(count)) : CU_INVALID_VALUE;
}

static bool is_device(int device)
{
    int count = 0;
    return driver->device_count(&count) == TARN_OK && device >= 0 && device < count;
}

cu_result cuDeviceGet(cu_device *device, int ordinal)
{
    cu_result code = sim_enter_process("cuDeviceGet");
    if (code)
        return code;
    if (!is_device(ordinal))
        return CU_INVALID_DEVICE;
    *device = ordinal;
    return CU_OK;
}

cu_result cuDeviceGetName(char *name, int size, cu_device device)
{
    cu_result code = sim_enter_process("cuDeviceGetName");
    if (code)
        return code;
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    if (!name || size <= 0)
        return CU_INVALID_VALUE;
    const char *card = sim_card()->device;
    snprintf(name, (size_t)size, "%s%starn simulated CUDA device", card, *card ? ", " : "");
    return CU_OK;
}

/* A device has the same UUID in every process, so that several processes can be said to share
 * one. */
cu_result cuDeviceGetUuid(struct cu_uuid *uuid, cu_device device)
{
    cu_result code = sim_enter_process("cuDeviceGetUuid");
    if (code)
        return code;
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    if (!uuid)
        return CU_INVALID_VALUE;
    *uuid = (struct cu_uuid){{'t', 'a', 'r', 'n', [15] = (unsigned char)device}};
    return CU_OK;
}

/* The UUID of a slice. Without slices it is the device's UUID. */
cu_result cuDeviceGetUuid_v2(struct cu_uuid *uuid, cu_device device)
{
    cu_result code = cuDeviceGetUuid(uuid, device);
    if (!code && sim_card()->slice)
        uuid->bytes[14] = 1;
    return code;
}

cu_result cuDeviceGetPCIBusId(char *text, int size, cu_device device)
{
    cu_result code = sim_enter_process("cuDeviceGetPCIBusId");
    if (code)
        return code;
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    if (!text || size < 13)
        return CU_INVALID_VALUE;
    snprintf(text, (size_t)size, "0000:%02X:00.0", (unsigned)device);
    return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    struct driver_properties properties;
    cu_result code = sim_enter_process("cuDeviceTotalMem");
    if (code)
        return code;
    code = sim_code(driver->device_properties(device, &properties));
    if (!code)
        *bytes = sim_card()->paged ? properties.memory / 2 : properties.memory;
    return code;
}

static int attribute_of(const struct sim_card *card, cu_device_attribute attribute)
{
    enum { UNIFIED_ADDRESSING = 41, PAGEABLE = 88 };
    switch ((int)attribute) {
    case CU_CAPABILITY_MAJOR:
        return card->major;
    case CU_CAPABILITY_MINOR:
        return card->minor;
    case CU_IS_INTEGRATED:
        return card->integrated;
    case CU_HAS_HOST_PIECES:
        return !card->no_host_pieces;
    case PAGEABLE:
    case CU_IS_COHERENT:
        return card->coherent;
    case CU_IS_SHARED:
        return card->mps;
    case CU_HAS_PRIORITIES:
    case CU_HAS_VIRTUAL_MEMORY:
    case CU_HAS_POSIX_FD:
    case CU_HAS_RDMA:
    case UNIFIED_ADDRESSING:
        return true;
    default:
        return 0;
    }
}

cu_result cuDeviceGetAttribute(int *value, cu_device_attribute attribute, cu_device device)
{
    cu_result code = sim_enter_process("cuDeviceGetAttribute");
    if (code)
        return code;
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    *value = attribute_of(sim_card(), attribute);
    return CU_OK;
}

cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer)
{
    bool possible = false;
    cu_result code = sim_enter_process("cuDeviceCanAccessPeer");
    if (code)
        return code;
    code = sim_code(driver->peer_possible(device, peer, &possible));
    if (!code)
        *can = device != peer && possible; /* CUDA too says that a device cannot be its own peer */
    return code;
}

/* ---- Contexts ---- */

cu_context sim_context(int device)
{
    return &primary[device];
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
    cu_result code = sim_enter_process("cuDevicePrimaryCtxRetain");
    if (code)
        return code;
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    mutex_lock(&contexts_lock);
    if (primary[device].device != device)
        primary[device].device = device;
    primary[device].holders++;
    mutex_unlock(&contexts_lock);
    *context = &primary[device];
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    cu_result code = sim_enter_process("cuDevicePrimaryCtxRelease");
    if (code)
        return code;
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    mutex_lock(&contexts_lock);
    bool held = primary[device].holders > 0;
    if (held)
        primary[device].holders--;
    mutex_unlock(&contexts_lock);
    return held ? CU_OK : CU_INVALID_CONTEXT;
}

cu_result cuDevicePrimaryCtxGetState(cu_device device, unsigned *flags, int *active)
{
    cu_result code = sim_enter_process("cuDevicePrimaryCtxGetState");
    if (code)
        return code;
    if (!is_device(device))
        return CU_INVALID_DEVICE;
    mutex_lock(&contexts_lock);
    *flags = primary[device].flags;
    *active = primary[device].holders > 0;
    mutex_unlock(&contexts_lock);
    return CU_OK;
}

cu_result cuCtxGetCurrent(cu_context *context)
{
    cu_result code = sim_enter_process("cuCtxGetCurrent");
    if (!code)
        *context = current();
    return code;
}

cu_result cuCtxSetCurrent(cu_context context)
{
    cu_result code = sim_enter_process("cuCtxSetCurrent");
    if (code)
        return code;
    if (context && !context->holders)
        return CU_CONTEXT_IS_DESTROYED;
    if (depth)
        depth--;
    if (context)
        stack[depth++] = context;
    return CU_OK;
}

cu_result cuCtxPushCurrent_v2(cu_context context)
{
    cu_result code = sim_enter_process("cuCtxPushCurrent");
    if (code)
        return code;
    if (!context)
        return CU_INVALID_VALUE;
    if (!context->holders)
        return CU_CONTEXT_IS_DESTROYED;
    if (depth == STACK)
        return CU_INVALID_CONTEXT;
    stack[depth++] = context;
    return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *context)
{
    cu_result code = check_process();
    if (code)
        return code;
    if (!depth)
        return CU_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CU_OK;
}

cu_result cuCtxGetDevice(cu_device *device)
{
    cu_result code = check_process();
    if (code)
        return code;
    if (!current())
        return CU_INVALID_CONTEXT;
    *device = current()->device;
    return CU_OK;
}

cu_result cuCtxGetDevice_v2(cu_device *device, cu_context context)
{
    cu_result code = check_process();
    if (code)
        return code;
    if (!context)
        return cuCtxGetDevice(device);
    *device = context->device;
    return CU_OK;
}

cu_result cuCtxSynchronize(void)
{
    int device;
    cu_result code = sim_enter("cuCtxSynchronize", &device);
    return code ? code : sim_code(driver->device_synchronize(device));
}

cu_result cuCtxSynchronize_v2(cu_context context)
{
    if (!context)
        return cuCtxSynchronize();
    cu_result code = sim_enter_process("cuCtxSynchronize");
    return code ? code : sim_code(driver->device_synchronize(context->device));
}

cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct driver_properties properties = {0};
    int device;
    cu_result code = sim_enter("cuCtxGetStreamPriorityRange", &device);
    if (!code)
        code = sim_code(driver->device_properties(device, &properties));
    if (!code && least)
        *least = properties.least_priority;
    if (!code && greatest)
        *greatest = properties.greatest_priority;
    return code;
}

cu_result cuCtxEnablePeerAccess(cu_context peer, unsigned flags)
{
    static bool enabled[TARN_MAX_DEVICES][TARN_MAX_DEVICES]; /* protected by contexts_lock */
    int device;
    cu_result code = sim_enter("cuCtxEnablePeerAccess", &device);
    if (code)
        return code;
    if (!peer || peer->device == device)
        return CU_INVALID_CONTEXT;
    if (flags)
        return CU_INVALID_VALUE;
    mutex_lock(&contexts_lock);
    bool before = enabled[device][peer->device];
    code = before ? CU_PEER_ALREADY_ENABLED : sim_code(driver->peer_enable(device, peer->device));
    enabled[device][peer->device] = before || !code;
    mutex_unlock(&contexts_lock);
    return code;
}
