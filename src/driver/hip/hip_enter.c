/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Begins and ends calls of HIP: the current device, the capture mode, and the text of a failure.
 * HIP has no usable stack of contexts; the current device is a value of the thread, saved and
 * restored. */
#include "base/status.h"
#include "base/thread/cancel.h"
#include "driver/hip/hip.h"

#include <stdarg.h>
#include <stdio.h>

tarn_status hip_no_device(int device)
{
    return failed(TARN_ERROR_INVALID_DEVICE, "hip: there is no device %d, only %d in all", device,
                  hip.devices);
}

static void forget_error(hip_result code)
{
    if (code)
        (void)hip.call.hipGetLastError();
}

tarn_status hip_failed(hip_result code, const char *call)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    char text[192];
    forget_error(code);
    hip_say(text, sizeof text, code);
    tarn_status status = hip_status(code);
    error_set(status, "%s: %s", call, text);
    return status;
}

static void put_back(const struct hip_scope *scope)
{
    hip_stream_capture_mode mode = scope->mode;
    if (scope->moved)
        (void)hip.call.hipSetDevice(scope->before);
    if (scope->exchanged)
        (void)hip.call.hipThreadExchangeStreamCaptureMode(&mode);
}

tarn_status hip_enter(int device, bool relaxed, struct hip_scope *scope)
{
    *scope = (struct hip_scope){.device = device, .mode = HIP_MODE_RELAXED};
    if (device < 0 || device >= hip.devices)
        return hip_no_device(device);
    scope->cancel = cancel_off();
    const char *call = "hipGetDevice";
    hip_result code = hip.call.hipGetDevice(&scope->before);
    if (!code && scope->before != device) {
        call = "hipSetDevice";
        code = hip.call.hipSetDevice(device);
        scope->moved = !code;
    }
    if (!code && relaxed) {
        call = "hipThreadExchangeStreamCaptureMode";
        code = hip.call.hipThreadExchangeStreamCaptureMode(&scope->mode);
        scope->exchanged = !code;
    }
    if (!code)
        return TARN_OK;
    put_back(scope);
    cancel_restore(scope->cancel);
    return hip_failed(code, call);
}

tarn_status hip_leave_silently(const struct hip_scope *scope, hip_result code)
{
    struct cancel cancel CANCEL_RESTORED = scope->cancel;
    forget_error(code);
    put_back(scope);
    return code ? hip_status(code) : TARN_OK;
}

tarn_status hip_leave(const struct hip_scope *scope, hip_result code, const char *format, ...)
{
    struct cancel cancel CANCEL_RESTORED = scope->cancel;
    forget_error(code);
    put_back(scope);
    if (!code)
        return TARN_OK;
    char call[128], text[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call, sizeof call, format, arguments);
    va_end(arguments);
    hip_say(text, sizeof text, code);
    tarn_status status = hip_status(code);
    error_set(status, "%s on device %d: %s", call, scope->device, text);
    return status;
}
