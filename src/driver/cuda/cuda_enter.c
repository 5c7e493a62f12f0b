/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Begins and ends calls of CUDA: the primary context, the capture mode, and the text of a failure.
 * Only primary contexts are used, because all copies of the CUDA runtime in a process share them.
 * They are retained and never released: a release by the last holder would destroy live memory. */
#include "base/status.h"
#include "base/thread/cancel.h"
#include "driver/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>

tarn_status cuda_no_device(int device)
{
    return failed(TARN_ERROR_INVALID_DEVICE, "cuda: there is no device %d, only %d in all", device,
                  cuda.devices);
}

tarn_status cuda_missing(const char *call)
{
    return failed(TARN_ERROR_NOT_SUPPORTED, "%s: the driver, of CUDA %d.%d, has no such call", call,
                  cuda.version / 1000, cuda.version % 1000 / 10);
}

tarn_status cuda_failed(cu_result code, const char *call)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    char text[192];
    cuda_say(text, sizeof text, code);
    tarn_status status = cuda_status(code);
    error_set(status, "%s: %s", call, text);
    return status;
}

/* Without a lock, since creating a context may load libraries. Several threads may retain it at the
 * same time; that is harmless, because none releases it. */
static tarn_status retain(struct cuda_device *device)
{
    cu_context context = NULL;
    cu_result code = cuda.call.cuDevicePrimaryCtxRetain(&context, device->handle);
    if (code)
        return cuda_failed(code, "cuDevicePrimaryCtxRetain");
    if (!context)
        return failed(TARN_ERROR_DRIVER, "cuDevicePrimaryCtxRetain succeeded and gave no context");
    atomic_store_explicit(&device->context, context, memory_order_release);
    return TARN_OK;
}

tarn_status cuda_context(int number, cu_context *context)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct cuda_device *device = &cuda.device[number];
    *context = atomic_load_explicit(&device->context, memory_order_acquire);
    if (*context)
        return TARN_OK;
    tarn_status status = retain(device);
    *context = atomic_load_explicit(&device->context, memory_order_acquire);
    return status;
}

static void put_back(const struct cuda_scope *scope)
{
    cu_context popped;
    cu_capture_mode mode = scope->mode;
    if (scope->pushed)
        (void)cuda.call.cuCtxPopCurrent_v2(&popped);
    if (scope->exchanged)
        (void)cuda.call.cuThreadExchangeStreamCaptureMode(&mode);
}

tarn_status cuda_enter(int device, bool relaxed, struct cuda_scope *scope)
{
    *scope = (struct cuda_scope){.device = device, .mode = CU_MODE_RELAXED};
    if (device < 0 || device >= cuda.devices)
        return cuda_no_device(device);
    scope->cancel = cancel_off();

    cu_context wanted, current = NULL;
    cu_result code;
    tarn_status status = TARN_OK;
    if (relaxed && cuda.call.cuThreadExchangeStreamCaptureMode) {
        /* If the mode could not be changed, the call would invalidate another thread's capture. */
        code = cuda.call.cuThreadExchangeStreamCaptureMode(&scope->mode);
        if (code)
            status = cuda_failed(code, "cuThreadExchangeStreamCaptureMode");
        scope->exchanged = !code;
    }
    if (!status)
        status = cuda_context(device, &wanted);
    if (status)
        goto fail;
    code = cuda.call.cuCtxGetCurrent(&current);
    if (code) {
        status = cuda_failed(code, "cuCtxGetCurrent");
        goto fail;
    }
    if (current == wanted)
        return TARN_OK;
    code = cuda.call.cuCtxPushCurrent_v2(wanted);
    if (code) {
        status = cuda_failed(code, "cuCtxPushCurrent");
        goto fail;
    }
    scope->pushed = true;
    return TARN_OK;
fail:
    put_back(scope);
    cancel_restore(scope->cancel);
    return status;
}

tarn_status cuda_leave_silently(const struct cuda_scope *scope, cu_result code)
{
    struct cancel cancel CANCEL_RESTORED = scope->cancel;
    put_back(scope);
    return code ? cuda_status(code) : TARN_OK;
}

tarn_status cuda_leave(const struct cuda_scope *scope, cu_result code, const char *format, ...)
{
    struct cancel cancel CANCEL_RESTORED = scope->cancel;
    put_back(scope);
    if (!code)
        return TARN_OK;
    char call[128], text[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call, sizeof call, format, arguments);
    va_end(arguments);
    cuda_say(text, sizeof text, code);
    tarn_status status = cuda_status(code);
    error_set(status, "%s on device %d: %s", call, scope->device, text);
    return status;
}
