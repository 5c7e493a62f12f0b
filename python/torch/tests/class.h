/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of the allocator class share: class.cc has the program, captures.cc, processes.cc
 * and traces.cc some of the tests. */
#ifndef TARN_TORCH_TESTS_CLASS_H
#define TARN_TORCH_TESTS_CLASS_H

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <tarn/tarn.h>

extern "C" {
#include "common/machine.h"
extern const struct machine tarn_sim_machine;
unsigned cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaMemcpy(void *to, const void *from, size_t count, cudaMemcpyKind kind);
}

/* Exported, and in no header: libtorch_cuda calls it. */
namespace c10::cuda::_internal
{
void setHasPrimaryContext(bool (*has)(DeviceIndex));
}

/* libtorch_cpu's, or torch_cpu.cc's here. */
namespace at
{
HostAllocator *getHostAllocator(c10::DeviceType device);
void setHostAllocator(c10::DeviceType device, HostAllocator *allocator, uint8_t priority);
} // namespace at

using namespace c10::cuda::CUDACachingAllocator;
using c10::DataPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;
using c10::cuda::CUDAStream;

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::_Exit(1);                                                               \
        }                                                                                \
    } while (0)

#define THROWS(statement, words)                                                        \
    do {                                                                                \
        std::string said = "nothing";                                                   \
        try {                                                                           \
            statement;                                                                  \
        } catch (const std::exception &error) {                                         \
            said = error.what();                                                        \
        }                                                                               \
        if (said.find(words) == std::string::npos) {                                    \
            std::fprintf(stderr, "%s:%d: %s says %s\n", __FILE__, __LINE__, #statement, \
                         said.c_str());                                                 \
            std::_Exit(1);                                                              \
        }                                                                               \
    } while (0)

inline constexpr size_t MIB = 1 << 20;

/* What tests begin with: tarn installed, as lazy initialisation leaves it. */
CUDAAllocator &ours();

/* The paths of the shim, and of this program, which runs itself as another process: */
extern const char *shim_path, *own_path;
int received(const std::string &hex, ptrdiff_t offset);

/* A function of the shim. */
void *function_of_shim(const char *name);

/* Bytes of device 0. */
size_t allocated();
size_t reserved();

/* PyTorch's allocator of pinned memory, as far as it is asked for what it gave before. */
struct Before final : at::HostAllocator {
    DataPtr allocate(size_t) override
    {
        return {own, own, [](void *) {}, c10::Device(c10::kCPU)};
    }
    void copy_data(void *, const void *, size_t) const override {}
    bool record_event(void *pointer, void *, c10::Stream) override
    {
        return pointer == own && ++recorded;
    }
    void empty_cache() override
    {
        emptied++;
    }
    at::HostStats get_stats() override
    {
        return {};
    }
    void reset_accumulated_stats() override {}
    void reset_peak_stats() override {}
    char own[16];
    int recorded = 0, emptied = 0;
};

/* What a history makes stacks with: a new one each time. */
std::shared_ptr<c10::GatheredContext> make_context();

/* ours(), and tarn's allocator of pinned memory installed behind `before`. */
at::HostAllocator &pinned(Before *before);

/* The tests in captures.cc. */
#define CAPTURE_TESTS(X)                     \
    X(captures_hold_their_pool)              \
    X(what_a_graph_writes_to_stays)          \
    X(a_graph_that_is_gone_may_still_run)    \
    X(pinned_memory_of_a_graph_stays)        \
    X(failed_captures_lose_no_memory)        \
    X(failed_captures_bar_nothing)           \
    X(a_capture_follows_one_that_failed)     \
    X(a_capture_fails_in_another_thread)     \
    X(a_graph_has_conditional_nodes)         \
    X(a_scope_within_a_capture_ends_with_it) \
    X(captures_come_and_fail)

/* The tests in processes.cc. */
#define PROCESS_TESTS(X)                         \
    X(blocks_go_to_other_processes)              \
    X(another_user_does_not_answer_for_a_sender) \
    X(another_user_receives_nothing)             \
    X(silent_processes_hold_up_nobody)           \
    X(an_import_ends_after_a_capture)            \
    X(a_pool_s_blocks_go_to_other_processes)     \
    X(what_is_not_for_others_says_so)

/* The tests in traces.cc. */
#define TRACE_TESTS(X)                    \
    X(snapshots_have_contexts_and_traces) \
    X(frees_have_a_stack_and_a_pool)      \
    X(annotations_are_bounded)            \
    X(python_is_told_of_awaited_frees)    \
    NEWER_TRACE_TESTS(X)
#if TARN_TORCH_VERSION >= 2014
#define NEWER_TRACE_TESTS(X) X(snapshots_have_pinned_memory)
#else
#define NEWER_TRACE_TESTS(X)
#endif

#define X(name) void name();
CAPTURE_TESTS(X)
PROCESS_TESTS(X)
TRACE_TESTS(X)
#undef X

#endif
