# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""PyTorch's caching allocator and tarn side by side on one GPU, both called from Python.

usage: torch_peer.py LIBTARN_SO [RESULTS_FOLDER]
Prints "PASS", "FAIL" and "SKIPPED" lines as the other checks do; 0, or 1 when something failed.
A call from Python costs more than the allocators do, so what an empty call costs is printed beside.
"""
import ctypes
import json
import os
import random
import statistics
import sys
import time

KIB, MIB = 1 << 10, 1 << 20
SIZES = [512, 4 * KIB, 64 * KIB, MIB, 20 * MIB, 256 * MIB]
# tarn_stats: size, max_split_size, metadata_bytes; then nine counters of three classes of four values
STATS_BYTES = 24 + 9 * 96 + 2 * 32 + 6 * 8
RESERVED_PEAK = 24 + 5 * 96 + 8


def skip(why):
    print(f"SKIPPED torch: {why}")
    sys.exit(0)


class Torch:
    name = "PyTorch"

    def __init__(self, torch):
        self.torch = torch
        self.stream = torch.cuda.current_stream().cuda_stream
        self.alloc_call = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self.free = torch._C._cuda_cudaCachingAllocator_raw_delete

    def alloc(self, size):
        return self.alloc_call(size, self.stream)

    def empty(self):
        return self.torch.cuda.is_initialized()

    def trim(self):
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()

    def peak(self):
        return self.torch.cuda.max_memory_reserved()


class Tarn:
    name = "tarn"

    def __init__(self, path):
        self.library = library = ctypes.CDLL(path)
        library.tarn_malloc.restype = ctypes.c_void_p
        library.tarn_malloc.argtypes = [ctypes.c_size_t]
        library.tarn_free.argtypes = [ctypes.c_void_p]
        library.tarn_device_trim.argtypes = [ctypes.c_int, ctypes.c_size_t]
        library.tarn_last_error.restype = ctypes.c_char_p
        self.free = library.tarn_free
        self.empty = library.tarn_last_status
        self.check(library.tarn_device_set(0))

    def check(self, status):
        if status:
            raise RuntimeError(f"tarn: status {status}: {self.library.tarn_last_error().decode()}")

    def alloc(self, size):
        pointer = self.library.tarn_malloc(size)
        if not pointer:
            raise RuntimeError(f"tarn: {self.library.tarn_last_error().decode()}")
        return pointer

    def trim(self):
        self.check(self.library.tarn_device_synchronize(0))
        self.check(self.library.tarn_device_trim(0, 0))
        self.check(self.library.tarn_device_stats_reset(0, 0))

    def peak(self):
        stats = ctypes.create_string_buffer(STATS_BYTES)
        ctypes.c_size_t.from_buffer(stats, 0).value = STATS_BYTES
        self.check(self.library.tarn_device_stats_get(0, stats))
        return ctypes.c_int64.from_buffer(stats, RESERVED_PEAK).value


def pairs(allocator, size):
    """Nanoseconds: the first pair from an empty cache, the median of later ones, and of an empty call."""
    allocator.trim()
    start = time.perf_counter_ns()
    allocator.free(allocator.alloc(size))
    cold = time.perf_counter_ns() - start
    batches = []
    for _ in range(20):
        start = time.perf_counter_ns()
        for _ in range(500):
            allocator.free(allocator.alloc(size))
        batches.append((time.perf_counter_ns() - start) / 500)
    start = time.perf_counter_ns()
    for _ in range(10000):
        allocator.empty()
    return cold, statistics.median(batches), (time.perf_counter_ns() - start) / 10000


def sequence(allocator):
    """Blocks of mixed sizes come and go; the most bytes reserved, the most requested, the seconds."""
    rng = random.Random(7)
    live, asked, most = [], 0, 0
    allocator.trim()
    start = time.perf_counter()
    for step in range(4000):
        if live and (len(live) >= 200 or rng.random() < 0.45):
            pointer, size = live.pop(rng.randrange(len(live)))
            allocator.free(pointer)
            asked -= size
        else:
            size = int(2 ** rng.uniform(9, 25))
            live.append((allocator.alloc(size), size))
            asked += size
            most = max(most, asked)
    for pointer, _ in live:
        allocator.free(pointer)
    seconds = time.perf_counter() - start
    peak = allocator.peak()
    allocator.trim()
    return peak, most, seconds


def main():
    os.environ["TARN_DRIVER"] = "cuda"
    try:
        import torch
    except ImportError as error:
        skip(f"PyTorch is not here ({error})")
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    results = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "pairs": []}
    allocators = [Torch(torch), Tarn(sys.argv[1])]
    print(f"        PyTorch {torch.__version__} and tarn from Python; us: first pair, a pair afterwards (an empty call)")
    for size in SIZES:
        line = []
        for allocator in allocators:
            cold, hit, empty = pairs(allocator, size)
            results["pairs"].append(
                {"allocator": allocator.name, "size": size, "first_ns": cold, "pair_ns": hit, "empty_call_ns": empty})
            line.append(f"{allocator.name} {cold / 1000:.1f}, {hit / 1000:.2f} ({empty / 1000:.2f})")
        print(f"        {size // KIB if size >= KIB else 0.5:>8} KiB: " + "; ".join(line))
    for allocator in allocators:
        peak, most, seconds = sequence(allocator)
        results[allocator.name] = {"peak_reserved": peak, "peak_requested": most, "seconds": seconds}
        print(f"PASS    torch: a mixed sequence, {allocator.name}: {peak / MIB:.0f} MiB reserved at most, "
              f"{most / MIB:.0f} asked for: {peak / most:.3f}; {seconds * 1000:.0f} ms")
    if results["tarn"]["peak_reserved"] > results["PyTorch"]["peak_reserved"]:
        print("NOTE    torch: tarn reserved more than PyTorch")
    if len(sys.argv) > 2:
        with open(os.path.join(sys.argv[2], "torch.json"), "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # a peer that breaks is one failed check
        print(f"FAIL    torch: {type(error).__name__}: {error}")
        sys.exit(1)
