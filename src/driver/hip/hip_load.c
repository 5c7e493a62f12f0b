/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds libamdhip64, its entry points and its devices. Owns `hip`, which gets what one thread has
 * found when the driver is chosen. Three major versions are in use. Where they differ, the version
 * that the runtime reports decides. */
#include "base/variable.h"
#include "driver/hip/hip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first version whose virtual memory is used by default, because it was tested on hardware:
 * none yet. */
#define FIRST_TESTED_VIRTUAL_MEMORY INT32_MAX

struct hip hip;

const struct hip_unchecked hip_unchecked[] = {
#define X(symbol, since, needed, parameters) {#symbol, #since},
    HIP_LATER_CALL_LIST(X)
#undef X
#define X(name, value, theirs, since) {#theirs, since},
        HIP_LATER_VALUE_LIST(X)
#undef X
            {"hipMemAllocationProp", "6.0"},
    {"hipMemoryType", "6.0"},
    {"hipMemImportFromShareableHandle of a file descriptor by value", "7.1"},
    {NULL, NULL},
};

/* ---- Codes ---- */

/* Codes after which the device is dead for this process. 999 is not one: HIP returns it for many
 * failures. */
static bool is_sticky(hip_result code)
{
    switch (code) {
    case HIP_ECC_NOT_CORRECTABLE:
    case HIP_ILLEGAL_ADDRESS:
    case HIP_LAUNCH_TIMEOUT:
    case HIP_ASSERT:
    case HIP_LAUNCH_FAILURE:
        return true;
    default:
        return false;
    }
}

tarn_status hip_status(hip_result code)
{
    if (is_sticky(code))
        return TARN_ERROR_DEVICE_LOST;
    if ((code >= HIP_CAPTURE_UNSUPPORTED && code <= 909) || code == HIP_ILLEGAL_STATE)
        return TARN_ERROR_CAPTURE; /* the stream captures already, or does not capture */
    switch (code) {
    case HIP_INVALID_VALUE:
    case HIP_INVALID_DEVICE_POINTER:
    case HIP_INVALID_HANDLE:
    case HIP_HOST_REGISTERED:
    case HIP_HOST_NOT_REGISTERED:
    case HIP_CONTEXT_IS_DESTROYED: /* HIP returns this for an invalid stream, not for a device */
        return TARN_ERROR_INVALID_ARGUMENT;
    case HIP_OUT_OF_MEMORY:
        return TARN_ERROR_OUT_OF_MEMORY;
    case HIP_DEINITIALIZED:
        return TARN_ERROR_SHUTDOWN;
    case HIP_INSUFFICIENT_DRIVER:
    case HIP_NO_DEVICE:
        return TARN_ERROR_NO_DRIVER;
    case HIP_INVALID_DEVICE:
        return TARN_ERROR_INVALID_DEVICE;
    case HIP_NOT_READY:
        return TARN_ERROR_NOT_READY;
    case HIP_NOT_SUPPORTED:
        return TARN_ERROR_NOT_SUPPORTED;
    default:
        return TARN_ERROR_DRIVER;
    }
}

static void say(const struct hip_calls *call, char *text, size_t size, hip_result code)
{
    const char *name = call->hipGetErrorName ? call->hipGetErrorName(code) : NULL;
    const char *meaning = call->hipGetErrorString ? call->hipGetErrorString(code) : NULL;
    if (name && meaning && strcmp(name, meaning) != 0) /* before 6.0 the text is the name */
        snprintf(text, size, "HIP error %u (%s: %s)", code, name, meaning);
    else
        snprintf(text, size, "HIP error %u%s%s%s", code, name ? " (" : "", name ? name : "",
                 name ? ")" : "");
}

void hip_say(char *text, size_t size, hip_result code)
{
    say(&hip.call, text, size, code);
}

/* ---- Entry points ---- */

static tarn_status find_all(struct hip *found, char *why, size_t size)
{
#define X(symbol, since, needed, parameters) {#symbol, since, needed, &found->call.symbol},
#define Y(symbol, since, parameters) {#symbol, since, false, &found->call.symbol},
    const struct {
        const char *symbol;
        int since;
        bool needed;
        void *function;
    } calls[] = {HIP_CALL_LIST(X) HIP_LATER_CALL_LIST(X) HIP_TEXT_LIST(Y)};
#undef X
#undef Y
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *address = loader_symbol(&found->library, calls[i].symbol);
        if (!address && calls[i].needed) {
            loader_say(why, size, "%s has no %s of HIP %d.%d", loader_path(&found->library),
                       calls[i].symbol, calls[i].since / 10, calls[i].since % 10);
            return TARN_ERROR_NO_DRIVER;
        }
        loader_store(calls[i].function, address);
    }
    return TARN_OK;
}

/* ---- Virtual memory ---- */

/* Whether virtual memory may be used if the runtime has it: by TARN_HIP_VMM, otherwise by the
 * version. */
static tarn_status read_wish(const struct hip *found, bool *wanted, char *why, size_t size)
{
    const char *value = variable_get("TARN_HIP_VMM");
    *wanted = found->version >= FIRST_TESTED_VIRTUAL_MEMORY;
    if (!value)
        return TARN_OK;
    *wanted = strcmp(value, "1") == 0;
    if (*wanted || strcmp(value, "0") == 0)
        return TARN_OK;
    loader_say(why, size, "TARN_HIP_VMM=%s: the values are 0 and 1", value);
    return TARN_ERROR_CONFIGURATION;
}

static bool has_virtual_memory_calls(const struct hip_calls *call)
{
    return call->hipMemAddressReserve && call->hipMemAddressFree && call->hipMemCreate &&
           call->hipMemRelease && call->hipMemMap && call->hipMemUnmap && call->hipMemSetAccess &&
           call->hipMemGetAllocationGranularity;
}

/* The size of a granule; 0: the device has no virtual memory. A runtime before 6.1 is not asked: it
 * exports the calls, but they do not work, and it has no attribute that says so. */
static size_t granule_of(const struct hip *found, int number)
{
    const struct hip_calls *call = &found->call;
    int has = 0;
    size_t granule = 0;
    if (found->version < HIP_FIRST_VIRTUAL_MEMORY || !has_virtual_memory_calls(call))
        return 0;
    if (call->hipDeviceGetAttribute(&has, HIP_HAS_VIRTUAL_MEMORY, number) || !has)
        return 0;
    const struct hip_allocation_properties properties = {
        .type = HIP_ALLOCATION_PINNED,
        .handle_types = HIP_HANDLE_NONE,
        .location = {.type = HIP_LOCATION_DEVICE, .id = number},
    };
    if (call->hipMemGetAllocationGranularity(&granule, &properties, HIP_GRANULARITY_MINIMUM))
        return 0;
    return granule;
}

/* ---- Devices ---- */

static hip_result device_init(const struct hip *found, struct hip_device *device, int number,
                              bool virtual_memory)
{
    const struct hip_calls *call = &found->call;
    *device = (struct hip_device){0};
    hip_result code = call->hipDeviceTotalMem(&device->memory, number);
    if (code)
        return code;
    device->granule = virtual_memory ? granule_of(found, number) : 0;
    device->virtual_memory = device->granule != 0;
    /* The range goes from 1 to -1; tarn uses nothing lower than the normal 0. */
    int least = 0;
    if (call->hipDeviceGetStreamPriorityRange(&least, &device->greatest_priority))
        device->greatest_priority = 0;
    if (call->hipDeviceGetAttribute(&device->capability_major, HIP_CAPABILITY_MAJOR, number) ||
        call->hipDeviceGetAttribute(&device->capability_minor, HIP_CAPABILITY_MINOR, number))
        device->capability_major = device->capability_minor = 0;
    int integrated = 0, coherent = 0;
    device->integrated =
        !call->hipDeviceGetAttribute(&integrated, HIP_IS_INTEGRATED, number) && integrated;
    device->coherent = !call->hipDeviceGetAttribute(&coherent, HIP_IS_COHERENT, number) && coherent;
    (void)call->hipGetLastError(); /* removes the error, which the program did not cause */
    return HIP_OK;
}

static tarn_status refuse(const struct hip *found, char *why, size_t size, const char *call,
                          hip_result code)
{
    char text[192];
    (void)found->call.hipGetLastError();
    say(&found->call, text, sizeof text, code);
    bool none = code == HIP_NO_DEVICE || code == HIP_INVALID_DEVICE;
    loader_say(why, size, "%s%s: %s: %s", loader_path(&found->library),
               none ? " finds no device" : "", call, text);
    return TARN_ERROR_NO_DRIVER;
}

static tarn_status start(struct hip *found, char *why, size_t size)
{
    const struct hip_calls *call = &found->call;
    int count = 0;
    bool virtual_memory = false;
    tarn_status status = find_all(found, why, size);
    if (status)
        return status;

    /* Without a device hipInit() returns 101 and hipGetDeviceCount() 100 (5.2). Both are
     * recognized. */
    hip_result code = call->hipInit(0);
    if (code)
        return refuse(found, why, size, "hipInit", code);
    code = call->hipRuntimeGetVersion(&found->version);
    if (code)
        return refuse(found, why, size, "hipRuntimeGetVersion", code);
    code = call->hipGetDeviceCount(&count);
    if (!code && count <= 0)
        code = HIP_NO_DEVICE;
    if (code)
        return refuse(found, why, size, "hipGetDeviceCount", code);
    status = read_wish(found, &virtual_memory, why, size);
    if (status)
        return status;
    if (count > TARN_MAX_DEVICES)
        count = TARN_MAX_DEVICES;
    for (int i = 0; i < count; i++) {
        code = device_init(found, &found->device[i], i, virtual_memory);
        if (code)
            return refuse(found, why, size, "hipDeviceTotalMem", code);
    }
    found->devices = count;
    return TARN_OK;
}

tarn_status hip_probe(struct hip *found, char *why, size_t size)
{
    static const char *const sonames[] = {"libamdhip64.so.7", "libamdhip64.so.6",
                                          "libamdhip64.so.5", NULL};
    char reason[512] = "";
    *found = (struct hip){0};
    tarn_status status = loader_open(sonames, &found->library, reason, sizeof reason);
    status = status ? TARN_ERROR_NO_DRIVER : start(found, reason, sizeof reason);
    if (status)
        loader_say(why, size, "%s", reason);
    else
        loader_say(why, size, "%s, HIP %d.%d, %d device%s", loader_path(&found->library),
                   HIP_MAJOR(found->version), found->version / 100000 % 100, found->devices,
                   found->devices == 1 ? "" : "s");
    return status;
}

bool driver_hip_serves(void *library, char *why, size_t size)
{
    if (!hip.devices || !library)
        return true;
    const struct loaded theirs = {.library = library};
    hip_result (*get_device)(int *) = NULL;
    loader_store(&get_device, loader_symbol(&theirs, "hipGetDevice"));
    if (!get_device || get_device == hip.call.hipGetDevice)
        return true;
    loader_say(why, size,
               "it is linked against another libamdhip64 than %s, on which the driver runs",
               loader_path(&hip.library));
    return false;
}
