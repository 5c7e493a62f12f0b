/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the checks on a real GPU share. Each is a program that prints a line a check, "PASS name",
 * "FAIL name: why" or "SKIPPED name: why", and ends with 0, 1 when something failed, or 3 when
 * there is no GPU. Run by scripts/gpu-check.
 *
 * They also run on the simulated libcuda, where there are no kernels: then fills are memsets, and a
 * check looks at three places of a block only. */
#ifndef TESTS_GPU_GPU_H
#define TESTS_GPU_GPU_H

#include "gpu_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/tarn.h>

#define GPU_FAILED 1
#define GPU_NONE 3
#define MIB ((size_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The driver's entry points by their exported names; NULL where it has none. */
struct gpu_calls {
#define X(name, version, symbol, needed, parameters) cu_result(*symbol) parameters;
    CUDA_CALL_LIST(X)
    GPU_CALL_LIST(X)
#undef X
};
extern struct gpu_calls gpu;
extern bool gpu_has_kernels;
extern bool gpu_is_simulated;
extern tarn_device_properties gpu_properties; /* of device 0, the one that is used */

/* Opens the driver, checks that there is a GPU, and makes device 0 current in tarn and in the
 * driver. 0, or the exit status, with the reason printed. */
int gpu_start(void);
/* The same for another device, which is the one that is used from then on. */
bool gpu_device_use(int device);
/* The exit status, with a line that sums up. */
int gpu_end(void);

/* Thread-safe. The result of one check; the text is what was seen. */
enum gpu_result { GPU_PASS, GPU_FAIL, GPU_SKIP, GPU_NOTE };
void gpu_say(enum gpu_result result, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says FAIL where the call did not succeed; whether it did. */
bool gpu_ok(tarn_status status, const char *name, const char *call);
bool gpu_cu(cu_result code, const char *name, const char *call);
#define OK(name, call) gpu_ok((call), (name), #call)
#define CU(name, call) gpu_cu((call), (name), #call)
/* Says PASS or FAIL, with what was seen. */
void gpu_verdict(bool well, const char *name, const char *text);
/* Says PASS where a goal of speed is reached, and otherwise NOTE: other work on the machine may be
 * why. */
void gpu_goal(bool reached, const char *name, const char *text);

uint64_t gpu_ns(void);
/* Bytes of device 0 that are free, as the driver says. */
size_t gpu_free_bytes(void);
uint64_t gpu_random(uint64_t *state);
cu_stream gpu_native(tarn_stream stream);

/* Copies on a stream, and waits for it. */
bool gpu_upload(tarn_stream stream, void *to, const void *from, size_t size);
bool gpu_download(tarn_stream stream, void *to, const void *from, size_t size);

/* Opens a file of results in the folder that GPU_RESULTS names, "." without. NULL and a FAIL where
 * that cannot be. */
void *gpu_results_open(const char *name);

/* Patterns ------------------------------------------------------------------------------------- */

/* What became of one check on the device. */
struct gpu_slot {
    uint64_t wrong, first, found;
};

/* Room for `count` checks whose results are read at the end. */
struct gpu_slots {
    size_t count;
    struct gpu_slot *device; /* memory from tarn */
    struct gpu_slot *host;
    unsigned char (*samples)[4]; /* without kernels: three bytes, and the one expected */
};
bool gpu_slots_create(struct gpu_slots *slots, tarn_stream stream, size_t count);
void gpu_slots_destroy(struct gpu_slots *slots);
/* Reads them; the device must have finished. */
bool gpu_slots_read(struct gpu_slots *slots, tarn_stream stream);

/* Queue work that waits `wait_ns` and then writes, or checks, the words of a block. */
bool gpu_fill(tarn_stream stream, void *words, size_t bytes, uint32_t seed, uint64_t wait_ns);
/* A fill by each way to launch a kernel: its parameters as pointers, in one buffer (`extra` of
 * cuLaunchKernel()), or cooperatively. Without kernels, all are memsets. */
enum gpu_launch { GPU_LAUNCH_PLAIN, GPU_LAUNCH_EXTRA, GPU_LAUNCH_COOPERATIVE };
bool gpu_fill_by(enum gpu_launch way, tarn_stream stream, void *words, size_t bytes);
bool gpu_check(tarn_stream stream, void *words, size_t bytes, uint32_t seed, uint64_t wait_ns,
               struct gpu_slots *slots, size_t slot);
/* The same for the whole of a block, or of several, which they wait for. Block i has the pattern of
 * `seed` + i. What is wrong is said. */
bool gpu_write(const char *name, tarn_stream stream, void *block, size_t bytes, uint32_t seed);
bool gpu_holds(const char *name, tarn_stream stream, void *const *blocks, size_t count,
               size_t bytes, uint32_t seed);
/* Queues an addition: each of the 32-bit words is increased by the one of `others` at its place. */
bool gpu_add(tarn_stream stream, void *words, size_t bytes, void *others);
/* Keeps the stream busy; false where there are no kernels. */
bool gpu_spin(tarn_stream stream, uint64_t ns);

/* Runs a graph of a capture's: instantiates it, launches it `times`, waits, and destroys what it
 * ran by; the graph stays. */
bool gpu_run_graph(void *graph, tarn_stream stream, int times, const char *name);

#endif
