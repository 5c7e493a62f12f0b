/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn's resource beside CCCL's concepts and erased types, and with HAVE_RMM beside RMM's
 * headers. */
#include "check.h"

#include <tarn/adaptors/tarn_resource.hpp>
#ifdef HAVE_RMM
#include <rmm/error.hpp>
#include <rmm/resource_ref.hpp>
#endif
#include <chrono>
#include <cstring>
#include <functional>
#include <tarn/host.h>
#include <thread>
#include <utility>

using resource = tarn::resource;
#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource<resource>);
static_assert(cuda::mr::synchronous_resource<resource>);
static_assert(cuda::mr::resource_with<resource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<resource, cuda::mr::host_accessible>);
using reference = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
static_assert(cuda::mr::async_resource<resource>);
static_assert(cuda::mr::resource<resource>);
static_assert(cuda::mr::async_resource_with<resource, cuda::mr::device_accessible>);
using reference = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#endif

static std::int64_t used()
{
    tarn_stats stats{};
    stats.size = sizeof stats;
    CHECK(tarn_device_stats_get(0, &stats) == TARN_OK);
    return stats.allocated_bytes[TARN_STAT_ALL].current;
}

template <class Memory> static void *take(Memory &memory, cuda::stream_ref stream, std::size_t size)
{
#if CCCL_VERSION >= 3001000
    return memory.allocate(stream, size, 256);
#else
    return memory.allocate_async(size, 256, stream);
#endif
}

template <class Memory>
static void give(Memory &memory, cuda::stream_ref stream, void *block, std::size_t size)
{
#if CCCL_VERSION >= 3001000
    memory.deallocate(stream, block, size, 256);
#else
    memory.deallocate_async(block, size, 256, stream);
#endif
}

template <class Error, class Memory> static bool runs_out(Memory &memory, cuda::stream_ref stream)
{
    try {
        (void)take(memory, stream, std::size_t{1} << 50);
    } catch (const Error &failure) {
        return std::strstr(failure.what(), "1 PiB");
    }
    return false;
}

/* The name of a stream that tarn does not find: it was leased, and has been returned. */
static cudaStream_t returned_stream()
{
    tarn::leased_stream leased(0);
    return static_cast<cudaStream_t>(tarn::native_of(leased));
}

/* No memory is given out while work may use it: not where a free cannot wait, nor where its stream
 * is not known. */
static void check_late(cuda::stream_ref stream)
{
    constexpr std::size_t size = std::size_t{4} << 20;
    tarn::pool pool(0);
    resource memory(pool.get());
    tarn::leased_stream captures(0);
    std::int64_t before = used();

    void *block = memory.allocate_sync(size);
    CHECK(tarn_capture_begin(captures.get(), TARN_CAPTURE_THREAD_LOCAL) == TARN_OK);
    memory.deallocate_sync(block, size);
    CHECK(used() == before + static_cast<std::int64_t>(size));
    void *next = memory.allocate_sync(size);
    CHECK(next != block);
    memory.deallocate_sync(next, size);
    CHECK(used() == before + 2 * static_cast<std::int64_t>(size));
    CHECK(tarn_capture_abort(captures.get()) == TARN_OK);

    /* When memory is short, an allocation waits for it. */
    tarn_stats stats{};
    stats.size = sizeof stats;
    CHECK(tarn_pool_stats_get(pool.get(), &stats) == TARN_OK);
    std::int64_t all = stats.reserved_bytes[TARN_STAT_ALL].current;
    CHECK(tarn_pool_limit_set(pool.get(), static_cast<std::size_t>(all)) == TARN_OK);
    next = take(memory, stream, static_cast<std::size_t>(all));
    CHECK(used() == before + all);
    give(memory, stream, next, static_cast<std::size_t>(all));

    block = take(memory, stream, size);
    give(memory, cuda::stream_ref(returned_stream()), block, size);
    CHECK(used() == before);
    memory.deallocate_sync(nullptr, 0);
}

/* What RMM calls when memory is short: a function of the bytes and of what it was given. */
using failure_callback = std::function<bool(std::size_t, void *)>;

/* What the program can do without gives way, in place of RMM's failure callback. */
static void check_callback(cuda::stream_ref stream)
{
    constexpr std::size_t size = std::size_t{4} << 20;
    tarn::pool pool(0);
    resource memory(pool.get());
    CHECK(tarn_pool_limit_set(pool.get(), 2 * size) == TARN_OK);
    void *cached = take(memory, stream, size), *kept = take(memory, stream, size);
    failure_callback callback = [&](std::size_t bytes, void *user) {
        CHECK(bytes == size);
        if (!*static_cast<void **>(user))
            return false;
        give(memory, stream, std::exchange(*static_cast<void **>(user), nullptr), size);
        return true;
    };
    tarn::spiller spiller([&](const tarn_shortage &of) { return callback(of.requested, &cached); });
    void *block = take(memory, stream, size);
    CHECK(!cached);
    give(memory, stream, block, size);
    give(memory, stream, kept, size);
}

/* With a bound, memory that work of another stream holds back counts as missing. */
static void check_wait(cuda::stream_ref stream, cuda::stream_ref other)
{
    constexpr std::size_t size = std::size_t{4} << 20;
    tarn::pool pool(0);
    resource waits(pool.get());
    CHECK(tarn_pool_limit_set(pool.get(), size) == TARN_OK);
    void *block = take(waits, other, size);
    tarn_status status = tarn_host_work(0, other.get(), block, size, 1000000);
    give(waits, other, block, size);
    for (std::uint64_t wait : {TARN_NO_WAIT, std::uint64_t{1000}}) {
        resource hurries(pool.get(), wait);
        tarn_status thrown = TARN_OK;
        try {
            give(hurries, stream, take(hurries, stream, size), size);
        } catch (const tarn::out_of_memory &failure) {
            thrown = failure.status();
        }
        CHECK(hurries == waits);
        CHECK(thrown == (status == TARN_OK ? TARN_ERROR_NOT_READY : TARN_OK));
    }
    give(waits, stream, take(waits, stream, size), size);
}

/* The same for allocate_sync(), which waits for the legacy stream. Another thread ends the work. */
static void check_wait_sync()
{
    constexpr std::size_t size = std::size_t{4} << 20;
    constexpr std::uint64_t minute = 60000000000;
    resource waits(tarn::default_pool(0));
    void *block = waits.allocate_sync(size);
    for (std::uint64_t wait : {TARN_NO_WAIT, std::uint64_t{1000}, minute}) {
        resource hurries(tarn::default_pool(0), wait);
        hurries.deallocate_sync(hurries.allocate_sync(size), size); /* nothing runs */
        std::int64_t before = used();
        tarn_status status = tarn_host_work(0, nullptr, block, size, minute);
        std::thread ends([&] {
            std::uint64_t now = 0;
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            if (status == TARN_OK && wait == minute) {
                CHECK(tarn_host_time_get(&now) == TARN_OK);
                CHECK(tarn_host_advance(now + minute) == TARN_OK);
            }
        });
        tarn_status thrown = TARN_OK;
        try {
            hurries.deallocate_sync(hurries.allocate_sync(size), size);
        } catch (const tarn::out_of_memory &failure) {
            CHECK(std::strstr(failure.what(), "legacy stream"));
            thrown = failure.status();
        }
        CHECK(thrown == (status == TARN_OK && wait != minute ? TARN_ERROR_NOT_READY : TARN_OK));
        CHECK(used() == before);
        ends.join();
        CHECK(tarn_device_synchronize(0) == TARN_OK);
    }
    waits.deallocate_sync(block, size);
}

int main()
{
    resource memory(tarn::default_pool(0));
    tarn::leased_stream leased(0), other(0);
    cuda::stream_ref stream(static_cast<cudaStream_t>(tarn::native_of(leased)));
    cuda::stream_ref stream_other(static_cast<cudaStream_t>(tarn::native_of(other)));
    std::int64_t before = used();

    void *block = take(memory, stream, 1000);
    CHECK(block && used() == before + 1024);
    tarn_block_info known{};
    known.size = sizeof known;
    CHECK(tarn_pointer_info_get(block, &known) == TARN_OK && known.stream == leased.get());
    give(memory, stream_other, block, 1000);
    CHECK(used() == before);

    reference erased(memory);
    block = take(erased, stream, 5000);
    CHECK(block && used() == before + 5120);
    give(erased, stream, block, 5000);
    CHECK(used() == before);
    block = memory.allocate_sync(100, 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
    memory.deallocate_sync(block, 100, 4096);
    CHECK(used() == before);

    check_late(stream);
    check_callback(stream);
    check_wait(stream, stream_other);
    check_wait_sync();
    CHECK(runs_out<std::bad_alloc>(memory, stream) &&
          runs_out<tarn::out_of_memory>(erased, stream));
    tarn::pool pool(0);
    resource elsewhere(pool.get());
    CHECK(elsewhere != memory && memory == resource(tarn::default_pool(0)) &&
          elsewhere.pool() == pool.get());

#if CCCL_VERSION >= 3001000
    {
        cuda::mr::any_resource<cuda::mr::device_accessible> owned(elsewhere);
        auto copy = owned;
        block = take(copy, stream, 1 << 20);
        CHECK(tarn_pointer_info_get(block, &known) == TARN_OK && known.pool.second);
        give(owned, stream, block, 1 << 20);
    }
    std::puts("cccl: any_resource");
#endif
#ifdef HAVE_RMM
    tarn::basic_resource<rmm::out_of_memory> for_rmm(tarn::default_pool(0));
    rmm::device_async_resource_ref of_rmm(for_rmm);
    block = take(of_rmm, stream, 1000);
    give(of_rmm, stream, block, 1000);
    CHECK(runs_out<rmm::out_of_memory>(of_rmm, stream) && runs_out<rmm::bad_alloc>(of_rmm, stream));
    std::puts("cccl: rmm");
#endif
    CHECK(used() == before);
    std::printf("cccl: done, %d.%d\n", CCCL_VERSION / 1000000, CCCL_VERSION / 1000 % 1000);
}
