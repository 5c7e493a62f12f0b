/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn as PyTorch's pluggable allocator (torch.cuda.memory.CUDAPluggableAllocator), for
 * lab/torch-programs: the two functions that it is made of and the eight hooks of
 * torch.cuda.memory.CUDAPluggableAllocator.allocator(), which take addresses of functions. PyTorch
 * declares the last three of the hooks with types of C++. On x86-64 a std::pair of two numbers
 * arrives as a structure of two, and a std::function by value as a pointer to one
 * (torch/csrc/cuda/CUDAPluggableAllocator.h; the layout is that of libstdc++).
 *
 * Blocks of a pool that PyTorch opens go to a private pool of tarn. It is held until PyTorch
 * releases it, since PyTorch does not say which graphs use it: until then none of its memory is
 * unmapped.
 *
 * PyTorch's wrapper takes NULL for an address and C cannot throw: where memory is short,
 * `tarn_torch_alloc` writes the error to the standard error and ends the process by
 * TARN_TORCH_EXIT. All functions are thread-safe. */
#ifndef TARN_BENCH_TORCH_PLUG_H
#define TARN_BENCH_TORCH_PLUG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TARN_TORCH_EXIT 77
#define TARN_TORCH_API __attribute__((visibility("default")))

/* PyTorch's name of a pool. */
struct tarn_torch_id {
    uint64_t first, second;
};

/* A std::function<bool(cudaStream_t)> of libstdc++. */
struct tarn_torch_filter {
    void *store[2];
    bool (*manager)(void *to, const void *from, int operation);
    bool (*invoker)(const void *store, void **stream);
};
enum { TARN_TORCH_FILTER_CLONE = 2, TARN_TORCH_FILTER_DESTROY = 3 }; /* operations of `manager` */

TARN_TORCH_API void *tarn_torch_alloc(size_t size, int device, void *stream);
TARN_TORCH_API void tarn_torch_free(void *pointer, size_t size, int device, void *stream);

TARN_TORCH_API void tarn_torch_init(int devices);
TARN_TORCH_API void tarn_torch_reset(void);
TARN_TORCH_API void tarn_torch_memory_fraction(double fraction, int device);
TARN_TORCH_API void *tarn_torch_base_alloc(void *pointer, size_t *size);
TARN_TORCH_API void tarn_torch_record_stream(void *pointer, void *stream);
TARN_TORCH_API void tarn_torch_begin_allocate_to_pool(int device, struct tarn_torch_id id,
                                                      struct tarn_torch_filter *filter);
TARN_TORCH_API void tarn_torch_end_allocate_to_pool(int device, struct tarn_torch_id id);
TARN_TORCH_API void tarn_torch_release_pool(int device, struct tarn_torch_id id);

/* How many pools PyTorch has that it has not released. */
TARN_TORCH_API unsigned tarn_torch_pools(void);

#endif
