/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* TensorRT on tarn: an engine is loaded, and its memory is tarn's.
 *
 *     c++ -std=c++17 tensorrt.cc -ltarn -lnvinfer && ./a.out ENGINE */
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <tarn/adaptors/tarn_tensorrt.hpp>
#include <vector>

struct logger final : nvinfer1::ILogger {
    void log(Severity severity, const char *text) noexcept override
    {
        if (severity <= Severity::kWARNING)
            std::fprintf(stderr, "%s\n", text);
    }
};

int main(int count, char **arguments)
{
    if (count != 2)
        return std::fprintf(stderr, "usage: %s ENGINE\n", arguments[0]), 2;
    std::ifstream file(arguments[1], std::ios::binary);
    std::vector<char> data{std::istreambuf_iterator<char>(file), {}};

    logger log;
    tarn::tensorrt_allocator allocator(tarn::default_pool(0)); // outlives all of what follows
    std::unique_ptr<nvinfer1::IRuntime> runtime(nvinfer1::createInferRuntime(log));
    runtime->setGpuAllocator(&allocator);
    std::unique_ptr<nvinfer1::ICudaEngine> engine(
        runtime->deserializeCudaEngine(data.data(), data.size()));
    if (!engine)
        return 1;
    tarn_stats stats{};
    stats.size = sizeof stats;
    tarn_device_stats_get(0, &stats);
    std::printf("the engine has %lld bytes from tarn\n",
                static_cast<long long>(stats.allocated_bytes[TARN_STAT_ALL].current));
}
