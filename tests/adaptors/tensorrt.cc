/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* TensorRT's allocator as TensorRT calls it: through the interface. */
#include "check.h"

#include <semaphore.h>
#include <tarn/adaptors/tarn_tensorrt.hpp>
#include <tarn/host.h>
#include <unistd.h>

static std::int64_t used()
{
    tarn_stats stats{};
    stats.size = sizeof stats;
    CHECK(tarn_device_stats_get(0, &stats) == TARN_OK);
    return stats.allocated_bytes[TARN_STAT_ALL].current;
}

/* No memory is given out while work may use it: not where a free cannot wait, nor where its stream
 * is not known. */
static void check_late(nvinfer1::IGpuAllocator &allocator, cudaStream_t native)
{
    constexpr std::uint64_t size = std::uint64_t{4} << 20;
    tarn::leased_stream captures(0);
    std::int64_t before = used();
    void *block = allocator.allocate(size, 256, 0);
    CHECK(tarn_capture_begin(captures.get(), TARN_CAPTURE_THREAD_LOCAL) == TARN_OK);
    CHECK(allocator.deallocate(block) && used() == before + static_cast<std::int64_t>(size));
    void *next = allocator.allocate(size, 256, 0);
    CHECK(next && next != block);

    /* A second free is refused then too. Its address is soon another block's. */
    void *freed = allocator.allocateAsync(size, 256, 0, native);
    CHECK(allocator.deallocateAsync(freed, native) && !allocator.deallocateAsync(freed, native));
    CHECK(!allocator.deallocate(freed) && !allocator.deallocate(&before));
    void *others = allocator.allocateAsync(size, 256, 0, native);
    CHECK(others == freed);
    CHECK(tarn_capture_abort(captures.get()) == TARN_OK);
    CHECK(allocator.deallocate(next) && used() == before + static_cast<std::int64_t>(size));
    CHECK(allocator.deallocateAsync(others, native) && used() == before);

    cudaStream_t returned = nullptr;
    {
        tarn::leased_stream leased(0);
        returned = static_cast<cudaStream_t>(tarn::native_of(leased));
    }
    block = allocator.allocateAsync(size, 256, 0, native);
    CHECK(block && !allocator.allocateAsync(size, 256, 0, returned));
    CHECK(allocator.deallocateAsync(block, returned) && used() == before);
    CHECK(!allocator.deallocateAsync(&before, returned));
}

static sem_t gate;
static void wait_at_gate(void *)
{
    while (sem_wait(&gate))
        ;
}

/* A second free is refused at once: with a wait before it, its address could be another block's. */
static void check_second(nvinfer1::IGpuAllocator &allocator, cudaStream_t native,
                         cudaStream_t native_other)
{
    tarn_device_properties properties{};
    properties.size = sizeof properties;
    CHECK(tarn_device_properties_get(0, &properties) == TARN_OK);
    if (std::string(properties.driver) != "host")
        return;
    CHECK(sem_init(&gate, 0, 0) == 0);
    CHECK(tarn_host_call(0, native_other, wait_at_gate, nullptr) == TARN_OK);
    (void)alarm(60);
    void *block = allocator.allocateAsync(std::uint64_t{4} << 20, 256, 0, native);
    CHECK(allocator.deallocateAsync(block, native) && !allocator.deallocateAsync(block, native));
    CHECK(!allocator.deallocate(block));
    (void)alarm(0);
    CHECK(sem_post(&gate) == 0 && tarn_device_synchronize(0) == TARN_OK);
}

int main()
{
    tarn::tensorrt_allocator ours(tarn::default_pool(0));
    nvinfer1::IGpuAllocator &allocator = ours;
    tarn::leased_stream stream(0), other(0);
    auto native = static_cast<cudaStream_t>(tarn::native_of(stream)),
         native_other = static_cast<cudaStream_t>(tarn::native_of(other));
    std::int64_t before = used();

    nvinfer1::InterfaceInfo info = allocator.getInterfaceInfo();
    CHECK(std::string(info.kind) == "IGpuAllocator" && info.major == 1 && info.minor == 0);

    void *block = allocator.allocateAsync(1000, 0, 0, native);
    CHECK(block && used() == before + 1024);
    tarn_block_info known{};
    known.size = sizeof known;
    CHECK(tarn_pointer_info_get(block, &known) == TARN_OK && known.stream == stream.get());
    CHECK(allocator.deallocateAsync(block, native_other) && used() == before);
    CHECK(!allocator.allocateAsync(0, 0, 0, native) && allocator.deallocateAsync(nullptr, native) &&
          allocator.deallocate(nullptr));
    CHECK(!allocator.allocateAsync(std::uint64_t{1} << 50, 0, 0, native));
    CHECK(std::string(tarn_last_error()).find("1 PiB") == 0);
    block = allocator.allocateAsync(10, 65536, 0, native);
    CHECK(block && reinterpret_cast<std::uintptr_t>(block) % 65536 == 0);
    CHECK(allocator.deallocateAsync(block, native));

    /* In place, or not at all: then the block stays as it is. */
    void *whole = allocator.allocateAsync(std::uint64_t{6} << 20, 0, 0, native);
    CHECK(whole && allocator.deallocateAsync(whole, native));
    block = allocator.allocateAsync(std::uint64_t{2} << 20, 0, 0, native);
    void *grown = allocator.reallocate(block, 0, std::uint64_t{4} << 20);
    CHECK(grown == block);
    std::size_t size = 0;
    CHECK(tarn_usable_size_get(block, &size) == TARN_OK && size >= std::size_t{4} << 20);
    CHECK(!allocator.reallocate(block, 0, std::uint64_t{1} << 50) &&
          !allocator.reallocate(nullptr, 0, 100));
    CHECK(tarn_usable_size_get(block, &size) == TARN_OK && size >= std::size_t{4} << 20);
    CHECK(allocator.deallocateAsync(block, native));

    block = allocator.allocate(1000, 256, 0);
    CHECK(block && allocator.deallocate(block) && !allocator.deallocate(&size) && used() == before);
    check_late(allocator, native);
    check_second(allocator, native, native_other);
    bool threw = false;
    try {
        tarn::tensorrt_allocator none(nullptr);
    } catch (const tarn::error &failure) {
        threw = failure.status() == TARN_ERROR_INVALID_ARGUMENT;
    }
    CHECK(threw);
    std::puts("tensorrt: done");
}
