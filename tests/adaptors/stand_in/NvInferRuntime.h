/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Stands in for TensorRT 10's header of this name, which no package has that can be fetched freely:
 * the virtual functions of nvinfer1::IGpuAllocator and IGpuAsyncAllocator, in the order of the
 * published one (NVIDIA/TensorRT, include/NvInferRuntimeBase.h and NvInferRuntime.h, 10.x). With
 * TENSORRT_DIR the contract test takes the real one. */
#ifndef TESTS_ADAPTORS_NVINFERRUNTIME_H
#define TESTS_ADAPTORS_NVINFERRUNTIME_H

#include <cstddef>
#include <cstdint>

#define NV_TENSORRT_MAJOR 10

struct CUstream_st;
using cudaStream_t = CUstream_st *;

namespace nvinfer1
{
using AllocatorFlags = std::uint32_t;
enum class APILanguage : std::int32_t { kCPP = 0, kPYTHON = 1 };
struct InterfaceInfo {
    char const *kind;
    std::int32_t major, minor;
};
struct IVersionedInterface {
    virtual APILanguage getAPILanguage() const noexcept
    {
        return APILanguage::kCPP;
    }
    virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;
    virtual ~IVersionedInterface() noexcept = default;
};
struct IGpuAllocator : IVersionedInterface {
    [[deprecated]] virtual void *allocate(std::uint64_t const, std::uint64_t const,
                                          AllocatorFlags const) noexcept = 0;
    ~IGpuAllocator() override = default;
    virtual void *reallocate(void *const, std::uint64_t, std::uint64_t) noexcept
    {
        return nullptr;
    }
    [[deprecated]] virtual bool deallocate(void *const) noexcept = 0;
    virtual void *allocateAsync(std::uint64_t const, std::uint64_t const, AllocatorFlags const,
                                cudaStream_t) noexcept = 0;
    virtual bool deallocateAsync(void *const, cudaStream_t) noexcept = 0;
    InterfaceInfo getInterfaceInfo() const noexcept override
    {
        return {"IGpuAllocator", 1, 0};
    }
};
struct IGpuAsyncAllocator : IGpuAllocator {
    void *allocateAsync(std::uint64_t const, std::uint64_t const, AllocatorFlags const,
                        cudaStream_t) noexcept override = 0;
    bool deallocateAsync(void *const, cudaStream_t) noexcept override = 0;
    [[deprecated]] void *allocate(std::uint64_t const size, std::uint64_t const alignment,
                                  AllocatorFlags const flags) noexcept override
    {
        return allocateAsync(size, alignment, flags, nullptr);
    }
    [[deprecated]] bool deallocate(void *const memory) noexcept override
    {
        return deallocateAsync(memory, nullptr);
    }
};
} // namespace nvinfer1

#endif
