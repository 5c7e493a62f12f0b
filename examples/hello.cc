/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hello.c in C++17: owners end what they have when they go out of scope, and a failure is an
 * exception.
 *   c++ -std=c++17 hello.cc $(pkg-config --cflags --libs tarn) -o hello && ./hello */
#include <iostream>
#include <tarn/tarn.hpp>

int main()
{
    try {
        tarn::leased_stream one(0), two(0); /* of device 0 */
        void *first;
        {
            tarn::block block(one, 3 << 20);
            first = block.get();
            /* Launch kernels that use the block on stream `one` here; tarn::native_stream(one) is
             * the cudaStream_t. */
        } /* freed without a wait: later work of `one` runs after its earlier work */
        tarn::block again(one, 3 << 20), other(two, 3 << 20);
        std::cout << "same stream: " << (again.get() == first ? "the same" : "other")
                  << " memory; another stream: " << (other.get() == first ? "the same" : "other")
                  << " memory\n";

        /* A pool keeps its memory apart, under a limit of its own, and serves std::pmr. */
        tarn::pool pool(0);
        tarn::device_resource resource(one, pool.get());
        void *buffer = resource.allocate(1 << 20);
        resource.deallocate(buffer, 1 << 20);
    } catch (const tarn::error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
