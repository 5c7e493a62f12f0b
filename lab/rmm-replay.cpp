// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors

// What RMM takes for recorded programs on a GPU. lab/rmm-replay compiles its arguments: logs in RMM's
// format (CSV). One line per log: what was live at most, then what RMM's pool that begins empty and
// the pool of cudaMallocAsync have reserved at most, then the smallest pool and the smallest arena of
// a fixed size in which the log runs to its end. Bytes, tab-separated. The program never waits and no
// kernel runs, so each block is idle when it is freed.
#include <algorithm>
#include <cuda_runtime_api.h>
#include <fstream>
#include <iostream>
#include <map>
#include <new>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <sstream>
#include <string>
#include <vector>

constexpr std::size_t STEP = std::size_t(2) << 20; // of the search

struct event {
    bool allocates;
    std::string pointer; // as the log names the block
    std::size_t bytes;
    cudaStream_t stream;
};

struct block {
    void *address;
    std::size_t bytes;
    cudaStream_t stream;
};

static std::vector<event> read(const char *path, std::map<std::string, cudaStream_t> &streams)
{
    std::vector<event> events;
    std::ifstream file(path);
    std::string line, field[6];
    std::getline(file, line); // the head
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        for (std::string &each : field)
            std::getline(fields, each, ',');
        auto [stream, fresh] = streams.try_emplace(field[5]);
        if (fresh && cudaStreamCreateWithFlags(&stream->second, cudaStreamNonBlocking))
            throw std::runtime_error("there is no stream");
        if (field[2] == "allocate" || field[2] == "free")
            events.push_back(
                {field[2] == "allocate", field[3], std::stoull(field[4]), stream->second});
    }
    return events;
}

static std::size_t most_live(const std::vector<event> &events)
{
    std::map<std::string, std::size_t> live;
    std::size_t now = 0, most = 0;
    for (const event &each : events)
        if (each.allocates) {
            live[each.pointer] = each.bytes;
            now += each.bytes;
            most = std::max(most, now);
        } else if (auto found = live.find(each.pointer); found != live.end()) {
            now -= found->second;
            live.erase(found);
        }
    return most;
}

// Whether the log runs to its end. What is live then is freed.
template <class Resource> static bool runs(Resource &resource, const std::vector<event> &events)
{
    std::map<std::string, block> live;
    bool whole = true;
    auto free = [&](const block &of, cudaStream_t stream) {
        resource.deallocate(cuda::stream_ref{stream}, of.address, of.bytes, 256);
    };
    try {
        for (const event &each : events)
            if (each.allocates) {
                void *address = resource.allocate(cuda::stream_ref{each.stream}, each.bytes, 256);
                live[each.pointer] = {address, each.bytes, each.stream};
            } else if (auto found = live.find(each.pointer); found != live.end()) {
                free(found->second, each.stream);
                live.erase(found);
            }
    } catch (const std::bad_alloc &) { // also RMM's own error
        whole = false;
    }
    for (const auto &[pointer, left] : live)
        free(left, left.stream);
    return whole;
}

// The smallest size from `bytes` to eight times as much with which `fits`, or 0.
template <class Fits> static std::size_t least(std::size_t bytes, Fits fits)
{
    std::size_t low = bytes / STEP,
                high = 8 * (low + 1); // in steps: `low` is too small, `high` fits
    if (!fits(high * STEP))
        return 0;
    while (high - low > 1) {
        std::size_t middle = (low + high) / 2;
        (fits(middle * STEP) ? high : low) = middle;
    }
    return high * STEP;
}

static void replay(const char *path)
{
    std::map<std::string, cudaStream_t> streams;
    const std::vector<event> events = read(path, streams);
    const std::size_t live = most_live(events);
    rmm::mr::cuda_memory_resource device;
    rmm::mr::statistics_resource_adaptor counted(device);
    {
        rmm::mr::pool_memory_resource pool(counted, 0);
        if (!runs(pool, events))
            throw std::runtime_error("RMM's pool has too little memory");
    }
    std::uint64_t async = 0;
    {
        rmm::mr::cuda_async_memory_resource driver;
        if (!runs(driver, events) ||
            cudaMemPoolGetAttribute(driver.pool_handle(), cudaMemPoolAttrReservedMemHigh, &async))
            throw std::runtime_error("cudaMallocAsync has too little memory");
    }
    std::size_t pool_least = least(live, [&](std::size_t size) {
        rmm::mr::pool_memory_resource pool(device, size, size);
        return runs(pool, events);
    });
    std::size_t arena_least = least(live, [&](std::size_t size) {
        rmm::mr::arena_memory_resource arena(device, size);
        return runs(arena, events);
    });
    std::cout << live << '\t' << counted.get_bytes_counter().peak << '\t' << async << '\t'
              << pool_least << '\t' << arena_least << std::endl;
}

int main(int count, char **paths)
{
    for (int i = 1; i < count; i++)
        replay(paths[i]);
}
