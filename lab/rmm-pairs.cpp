// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors

// RMM beside tarn on a GPU: nanoseconds for an allocation and its free, by the number of threads,
// median of three rounds of 150 ms. Each thread has a stream of its own, or all have one. RMM's pool
// and arena begin with 8 GiB. Compile it as C++20 with RMM's folders include and include/rapids, as
// the wheel librmm-cu13 has them, with tarn's and CUDA's; link librmm, librapids_logger, libtarn and
// libcudart.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <tarn/tarn.h>
#include <thread>
#include <vector>

constexpr std::size_t MIB = std::size_t(1) << 20, FIRST = std::size_t(8) << 30;
constexpr int MOST = 16;

template <class Pair> static double once(int threads, Pair pair)
{
    std::vector<std::thread> all;
    std::atomic<int> ready{0};
    std::atomic<bool> go{false}, stop{false};
    std::atomic<long> total{0};
    for (int thread = 0; thread < threads; thread++)
        all.emplace_back([&, thread] {
            long count = 0;
            for (int i = 0; i < 100; i++)
                pair(thread);
            ready++;
            while (!go)
                ;
            for (; !stop; count += MOST)
                for (int i = 0; i < MOST; i++)
                    pair(thread);
            total += count;
        });
    while (ready != threads)
        ;
    auto begun = std::chrono::steady_clock::now();
    go = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    stop = true;
    std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun;
    for (auto &thread : all)
        thread.join();
    return took.count() * threads / static_cast<double>(total);
}

template <class Pair> static void row(std::size_t bytes, bool one, const char *name, Pair pair)
{
    std::printf("| %zu KiB | %s | %s |", bytes >> 10, one ? "one" : "own", name);
    for (int threads : {1, 4, 16}) {
        double rounds[3];
        for (double &round : rounds)
            round = once(threads, pair);
        std::sort(rounds, rounds + 3);
        std::printf(" %.0f |", rounds[1]);
    }
    std::printf("\n");
    std::fflush(stdout);
}

int main()
{
    cudaStream_t streams[MOST];
    tarn_stream adopted[MOST];
    for (int i = 0; i < MOST; i++)
        if (cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) ||
            tarn_stream_adopt(0, streams[i], &adopted[i]))
            return 1;
    rmm::mr::cuda_memory_resource upstream;
    rmm::mr::pool_memory_resource pool(upstream, FIRST);
    rmm::mr::arena_memory_resource arena(upstream, FIRST);
    rmm::mr::cuda_async_memory_resource async(FIRST);
    std::printf(
        "| block | streams | allocator | 1 thread | 4 | 16 |\n|---|---|---|---:|---:|---:|\n");
    for (std::size_t bytes : {std::size_t(4096), MIB / 4, 2 * MIB, 32 * MIB})
        for (bool one : {false, true}) {
            auto with = [&](const char *name, auto &resource) {
                row(bytes, one, name, [&](int thread) {
                    cuda::stream_ref stream{streams[one ? 0 : thread]};
                    resource.deallocate(stream, resource.allocate(stream, bytes, 256), bytes, 256);
                });
            };
            row(bytes, one, "tarn", [&](int thread) {
                void *block = nullptr;
                if (tarn_alloc_on(adopted[one ? 0 : thread], bytes, &block) || tarn_free(block))
                    std::abort();
            });
            with("RMM pool", pool);
            with("RMM arena", arena);
            with("RMM cudaMallocAsync", async);
        }
}
