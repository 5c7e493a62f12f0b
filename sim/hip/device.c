/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices and codes of the simulated libamdhip64. Owns each thread's current device and last
 * error. */
#include "common/card.h"
#include "hip/sim_hip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int current;
static _Thread_local hip_result last_error;

/* ---- Beginning of a call ---- */

int sim_hip_version(void)
{
    return (int)sim_number("TARN_SIM_HIP_VERSION", SIM_HIP_VERSION);
}

hip_result sim_enter(const char *call)
{
    static atomic_bool said; /* any call starts the library, so each would say it */
    if (sim_state() == SIM_NOT_STARTED && sim_start()) {
        if (!atomic_exchange(&said, true))
            fprintf(stderr, "tarn sim: libamdhip64: %s\n", tarn_last_error());
        return HIP_NOT_INITIALIZED;
    }
    switch (sim_state()) {
    case SIM_RUNS:
        return (hip_result)sim_knob(call);
    case SIM_EXITS:
        return HIP_DEINITIALIZED;
    default:
        return HIP_NOT_INITIALIZED;
    }
}

/* Before 7.0 a call that succeeds overwrites the thread's last error. */
hip_result sim_leave(hip_result code)
{
    if (code || HIP_MAJOR(sim_hip_version()) < 7)
        last_error = code;
    return code;
}

/* The host device's error text of a failed call in a capture contains CUDA's number, such as
 * "(906)", which HIP uses too. */
static hip_result named_code(hip_result otherwise)
{
    const char *at = strstr(tarn_last_error(), "(90");
    if (!at || at[3] < '0' || at[3] > '8' || at[4] != ')')
        return otherwise;
    return HIP_CAPTURE_UNSUPPORTED + (hip_result)(at[3] - '0');
}

hip_result sim_code(tarn_status status, hip_result capture)
{
    switch (status) {
    case TARN_OK:
        return HIP_OK;
    case TARN_ERROR_OUT_OF_MEMORY:
    case TARN_ERROR_OUT_OF_HOST_MEMORY:
    case TARN_ERROR_MAPPING_LIMIT:
        return HIP_OUT_OF_MEMORY;
    case TARN_ERROR_INVALID_DEVICE:
        return HIP_INVALID_DEVICE;
    case TARN_ERROR_INVALID_STREAM:
        return HIP_CONTEXT_IS_DESTROYED;
    case TARN_ERROR_NOT_READY:
        return HIP_NOT_READY;
    case TARN_ERROR_CAPTURE:
        return named_code(capture);
    case TARN_ERROR_NOT_SUPPORTED:
        return HIP_NOT_SUPPORTED;
    case TARN_ERROR_DEVICE_LOST:
        return HIP_ILLEGAL_ADDRESS;
    default:
        return HIP_INVALID_VALUE;
    }
}

void sim_crash(const char *why)
{
    fprintf(stderr, "tarn sim: libamdhip64: %s\n", why);
    abort();
}

int sim_device(void)
{
    return current;
}

/* ---- Codes ---- */

static const struct {
    hip_result code;
    const char *name;
} results[] = {
#define X(name, value, theirs) {value, #theirs},
    HIP_RESULT_LIST(X)
#undef X
};

const char *hipGetErrorName(hip_result code)
{
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].code == code)
            return results[i].name;
    return "hipErrorUnknown";
}

/* Before 6.0 the text is the error's name. */
const char *hipGetErrorString(hip_result code)
{
    if (HIP_MAJOR(sim_hip_version()) < 6)
        return hipGetErrorName(code);
    switch (code) {
    case HIP_OK:
        return "no error";
    case HIP_OUT_OF_MEMORY:
        return "out of memory";
    case HIP_INVALID_VALUE:
        return "invalid argument";
    default:
        return "an error of the simulated runtime";
    }
}

hip_result hipGetLastError(void)
{
    hip_result code = last_error;
    last_error = HIP_OK;
    return code;
}

hip_result hipPeekAtLastError(void)
{
    return last_error;
}

/* ---- Devices ---- */

hip_result hipInit(unsigned flags)
{
    hip_result code = sim_enter(__func__);
    return sim_leave(code ? code : flags ? HIP_INVALID_VALUE : HIP_OK);
}

hip_result hipRuntimeGetVersion(int *version)
{
    hip_result code = sim_enter(__func__);
    if (!code && !version)
        code = HIP_INVALID_VALUE;
    if (!code)
        *version = sim_hip_version();
    return sim_leave(code);
}

hip_result hipDriverGetVersion(int *version)
{
    return hipRuntimeGetVersion(version);
}

hip_result hipGetDeviceCount(int *count)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code =
            count ? sim_code(host_device_count(count), HIP_CAPTURE_UNSUPPORTED) : HIP_INVALID_VALUE;
    return sim_leave(code);
}

static hip_result check_device(int device)
{
    return device >= 0 && device < atomic_load(&host.devices) ? HIP_OK : HIP_INVALID_DEVICE;
}

hip_result hipSetDevice(int device)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = check_device(device);
    if (!code)
        current = device;
    return sim_leave(code);
}

hip_result hipGetDevice(int *device)
{
    hip_result code = sim_enter(__func__);
    if (!code && !device)
        code = HIP_INVALID_VALUE;
    if (!code)
        *device = current;
    return sim_leave(code);
}

hip_result hipDeviceGetName(char *name, int size, int device)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = name && size > 0 ? check_device(device) : HIP_INVALID_VALUE;
    if (!code)
        snprintf(name, (size_t)size, "%s%starn simulated AMD device", sim_card_amd()->device,
                 *sim_card_amd()->device ? ", " : "");
    return sim_leave(code);
}

/* Sixteen hexadecimal digits, as from AMD's runtime. */
hip_result hipDeviceGetUuid(struct hip_uuid *uuid, int device)
{
    char text[sizeof uuid->bytes + 1];
    hip_result code = sim_enter(__func__);
    if (!code)
        code = uuid ? check_device(device) : HIP_INVALID_VALUE;
    if (!code) {
        snprintf(text, sizeof text, "7461726e%08x", (unsigned)device);
        memcpy(uuid->bytes, text, sizeof uuid->bytes);
    }
    return sim_leave(code);
}

hip_result hipDeviceGetPCIBusId(char *address, int size, int device)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = address && size >= 13 ? check_device(device) : HIP_INVALID_VALUE;
    if (!code)
        snprintf(address, (size_t)size, "0000:%02x:00.0", (unsigned)device);
    return sim_leave(code);
}

hip_result hipDeviceGetAttribute(int *value, hip_device_attribute attribute, int device)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = value ? check_device(device) : HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    switch (attribute) {
    case HIP_CAPABILITY_MAJOR:
        *value = sim_card_amd()->major;
        return sim_leave(HIP_OK);
    case HIP_CAPABILITY_MINOR:
        *value = sim_card_amd()->minor;
        return sim_leave(HIP_OK);
    case HIP_HAS_MEMORY_POOLS:
        *value = 1;
        return sim_leave(HIP_OK);
    case HIP_IS_INTEGRATED:
        *value = sim_card_amd()->integrated;
        return sim_leave(HIP_OK);
    case HIP_IS_COHERENT:
        *value = sim_card_amd()->coherent;
        return sim_leave(HIP_OK);
    case HIP_HAS_VIRTUAL_MEMORY:
        if (sim_hip_version() < HIP_FIRST_VIRTUAL_MEMORY)
            sim_crash("hipDeviceGetAttribute of 89, which is not an attribute of this version");
        *value = 1;
        return sim_leave(HIP_OK);
    default:
        return sim_leave(HIP_INVALID_VALUE);
    }
}

hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = bytes ? check_device(device) : HIP_INVALID_VALUE;
    if (!code)
        *bytes = host.device[device].memory;
    return sim_leave(code);
}

/* HIP has three priorities, with the normal one in the middle. */
hip_result hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    hip_result code = sim_enter(__func__);
    if (code)
        return sim_leave(code);
    if (least)
        *least = 1;
    if (greatest)
        *greatest = -1;
    return sim_leave(HIP_OK);
}

/* The properties of an MI50, for which most binaries of AMD's libraries have kernels. */
hip_result hipGetDeviceProperties(struct hip_properties *properties, int device)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = properties ? check_device(device) : HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    *properties = (struct hip_properties){
        .name = "tarn simulated AMD device",
        .memory = host.device[device].memory,
        .shared_per_block = 64 << 10,
        .registers_per_block = 65536,
        .warp_size = 64,
        .threads_per_block = 1024,
        .block_size = {1024, 1024, 1024},
        .grid_size = {INT32_MAX, INT32_MAX, INT32_MAX},
        .clock_rate = 1725000,
        .memory_clock_rate = 1000000,
        .memory_bus_width = 4096,
        .constant_memory = INT32_MAX,
        .major = 9,
        .processors = 60,
        .l2_size = 4 << 20,
        .threads_per_processor = 2560,
        .concurrent_kernels = 1,
        .pci_bus = 1 + device,
        .shared_per_processor = 64 << 10,
        .maps_host_memory = 1,
        .architecture = 906,
        .architecture_name = "gfx906:sramecc+:xnack-",
        .pitch = INT32_MAX,
        .texture_alignment = 256,
        .texture_pitch = 256,
    };
    return sim_leave(HIP_OK);
}

hip_result hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    bool possible = false;
    hip_result code = sim_enter(__func__);
    if (!code)
        code = can ? sim_code(host_peer_possible(device, peer, &possible), HIP_CAPTURE_UNSUPPORTED)
                   : HIP_INVALID_VALUE;
    if (!code)
        *can = possible && device != peer;
    return sim_leave(code);
}

hip_result hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = flags || peer == current ? HIP_INVALID_VALUE : check_device(peer);
    if (!code && host_peer_enabled(current, peer))
        code = HIP_PEER_ALREADY_ENABLED;
    if (!code)
        code = sim_code(host_peer_enable(current, peer), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

hip_result sim_beside_no_capture(hip_result refusal)
{
    if (atomic_load(&host.captures) == 0)
        return HIP_OK;
    for (int i = 0; i < atomic_load(&host.devices); i++)
        (void)host_device_synchronize(i);
    return refusal;
}

/* From 6.2 on this invalidates the captures of all devices (CHECK_SUPPORTED_DURING_CAPTURE in
 * ROCm/clr, hip_device_runtime.cpp of rocm-6.2.0 and later, and in ROCm/rocm-systems). Up to
 * rocm-6.1.2 it ignores captures. */
hip_result hipDeviceSynchronize(void)
{
    hip_result code = sim_enter(__func__);
    if (!code && sim_hip_version() < 60200000 && atomic_load(&host.captures) > 0) {
        (void)host_device_wait(&host.device[current]);
        return sim_leave(HIP_OK);
    }
    if (!code)
        code = sim_beside_no_capture(HIP_CAPTURE_UNSUPPORTED);
    if (!code)
        code = sim_code(host_device_synchronize(current), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}
