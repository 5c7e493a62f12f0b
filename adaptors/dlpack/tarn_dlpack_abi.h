/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The structures of DLPack 1 (dmlc/dlpack, include/dlpack/dlpack.h), whose ABI is stable.
 * tests/adaptors/dlpack.c compares them with the header. */
#ifndef TARN_DLPACK_ABI_H
#define TARN_DLPACK_ABI_H

#include <stdint.h>

enum { DEVICE_CPU = 1, DEVICE_CUDA = 2, DEVICE_ROCM = 10 };
enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 0 };

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_managed *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

#endif
