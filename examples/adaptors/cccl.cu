/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* CUB on tarn: temporary storage from a resource, in the order of a stream.
 *
 *     nvcc -std=c++20 cccl.cu -ltarn */
#include <cstdio>
#include <cub/device/device_reduce.cuh>
#include <tarn/adaptors/tarn_resource.hpp>
#include <thrust/execution_policy.h>
#include <thrust/sequence.h>

int main()
{
    tarn_device_set(0);
    tarn::resource memory(tarn::default_pool(0));
    tarn::leased_stream leased(0);
    auto native = static_cast<cudaStream_t>(tarn::native_of(leased));
    cuda::stream_ref stream(native);
    constexpr int count = 1 << 20;

    auto *numbers = static_cast<int *>(memory.allocate(stream, count * sizeof(int)));
    auto *sum = static_cast<long long *>(memory.allocate(stream, sizeof(long long)));
    thrust::sequence(thrust::cuda::par_nosync.on(native), numbers, numbers + count, 1);
    std::size_t bytes = 0;
    cub::DeviceReduce::Reduce(nullptr, bytes, numbers, sum, count, cuda::std::plus<long long>{},
                              0ll, native);
    void *scratch = memory.allocate(stream, bytes);
    cub::DeviceReduce::Reduce(scratch, bytes, numbers, sum, count, cuda::std::plus<long long>{},
                              0ll, native);
    memory.deallocate(stream, scratch, bytes);
    memory.deallocate(stream, numbers, count * sizeof(int));
    long long found = 0;
    cudaMemcpyAsync(&found, sum, sizeof found, cudaMemcpyDeviceToHost, native);
    cudaStreamSynchronize(native);
    memory.deallocate(stream, sum, sizeof(long long));
    std::printf("the sum is %lld\n", found);
    return found == (long long)count * (count + 1) / 2 ? 0 : 1;
}
