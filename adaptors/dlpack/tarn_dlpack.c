/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Tensors whose memory is a tarn block. The record of a tensor is one host allocation, followed by
 * its shape and strides. The deleter frees the block first, then the record. */
#include "tarn_dlpack.h"

#include "tarn_dlpack_abi.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/device.h>

struct tensor {
    struct dl_managed managed;
    int64_t lengths[]; /* the shape, then the strides */
};

static _Atomic(tarn_dlpack_stream_source) stream_source;

void tarn_dlpack_stream_source_set(tarn_dlpack_stream_source source)
{
    atomic_store(&stream_source, source);
}

/* What a dimension of this length multiplies the strides before it by. 0 counts as 1, as in
 * PyTorch: a tensor without elements has the strides of one with them, which must not overflow. */
static int64_t factor_of(int64_t length)
{
    return length ? length : 1;
}

/* Stores the bytes of a compact tensor. Returns false if the shape is invalid, or its size or a
 * stride overflows. */
static bool size_of(const struct dl_tensor *tensor, size_t *size)
{
    size_t bits = 0;
    int64_t count = 1;
    bool is_empty = false;
    for (int i = 0; i < tensor->dimensions; i++) {
        int64_t length = tensor->shape[i];
        if (length < 0 || __builtin_mul_overflow(count, factor_of(length), &count))
            return false;
        is_empty |= !length;
    }
    size_t element = (size_t)tensor->type.bits * tensor->type.lanes;
    if (__builtin_mul_overflow((size_t)count, element, &bits) || bits > SIZE_MAX - 7)
        return false;
    *size = is_empty ? 0 : (bits + 7) / 8; /* types of less than a byte are packed without gaps */
    return true;
}

/* DLPack and tarn number devices alike. DLPack's CPU means tarn's host device, if that is the
 * driver. */
static bool is_of_driver(const struct dl_tensor *tensor, const char *driver)
{
    return tensor->device.type == (!strcmp(driver, "cuda")  ? DEVICE_CUDA
                                   : !strcmp(driver, "hip") ? DEVICE_ROCM
                                                            : DEVICE_CPU);
}

static tarn_status stream_of(const struct dl_tensor *tensor, int device, tarn_stream *stream)
{
    tarn_dlpack_stream_source source = atomic_load(&stream_source);
    return source ? tarn_stream_find(device, source(tensor->device.type, tensor->device.id), stream)
                  : tarn_stream_get(device, stream);
}

static void delete_tensor(struct dl_managed *managed)
{
    if (!managed)
        return;
    (void)tarn_free(managed->tensor.data);
    free(managed);
}

static int fail(void *context, void (*set_error)(void *, const char *, const char *),
                const char *kind, const char *text)
{
    if (set_error)
        set_error(context, kind, text);
    return -1;
}

int tarn_dlpack_allocate(const void *prototype, void **managed, void *error_context,
                         void (*set_error)(void *error_context, const char *kind,
                                           const char *message))
{
    const struct dl_tensor *wanted = prototype;
    size_t size = 0;
    if (!wanted || !managed || wanted->dimensions < 0 || (wanted->dimensions && !wanted->shape) ||
        !size_of(wanted, &size))
        return fail(error_context, set_error, "ValueError",
                    "tarn: invalid shape, or its size overflows");
    int device = wanted->device.type == DEVICE_CPU ? 0 : wanted->device.id;
    struct tarn_device_properties properties = {.size = sizeof properties};
    tarn_status status = tarn_device_properties_get(device, &properties);
    if (status)
        return fail(error_context, set_error,
                    status == TARN_ERROR_INVALID_DEVICE ? "ValueError" : "RuntimeError",
                    tarn_last_error());
    if (!is_of_driver(wanted, properties.driver))
        return fail(error_context, set_error, "ValueError",
                    "tarn: the tensor's device is not one that tarn uses");

    size_t dimensions = (size_t)wanted->dimensions;
    struct tensor *tensor = calloc(1, sizeof *tensor + 2 * dimensions * sizeof *tensor->lengths);
    if (!tensor)
        return fail(error_context, set_error, "MemoryError", "tarn: the host has no memory left");
    struct dl_managed *made = &tensor->managed;
    tarn_alloc_options options = {.size = sizeof options, .device = device};
    status = stream_of(wanted, device, &options.stream);
    if (!status)
        status = tarn_alloc(&options, size, &made->tensor.data);
    if (status) {
        free(tensor);
        return fail(error_context, set_error,
                    status == TARN_ERROR_OUT_OF_MEMORY ? "MemoryError" : "RuntimeError",
                    tarn_last_error());
    }
    made->major = DLPACK_MAJOR;
    made->minor = DLPACK_MINOR;
    made->deleter = delete_tensor;
    made->tensor.device = wanted->device;
    made->tensor.type = wanted->type;
    made->tensor.dimensions = wanted->dimensions;
    made->tensor.shape = tensor->lengths;
    made->tensor.strides = tensor->lengths + dimensions;
    int64_t step = 1;
    for (size_t i = dimensions; i-- > 0;) {
        made->tensor.shape[i] = wanted->shape[i];
        made->tensor.strides[i] = step;
        step *= factor_of(wanted->shape[i]);
    }
    *managed = made;
    return 0;
}
