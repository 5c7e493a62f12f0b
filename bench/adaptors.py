# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What an allocation with its free costs from Python, with each library's own memory and with tarn's, in turn in one process each:

    PYTHONPATH=python/src python3 bench/adaptors.py

Prints microseconds: the median of seven runs of 2,000 for 1 KiB and 1 MiB, after one that warms up. Needs a GPU, and tries what is installed."""

import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "cupy": "import cupy\nmake = lambda size: cupy.cuda.alloc(size)\nwait = cupy.cuda.runtime.deviceSynchronize",
    "numba": "from numba import cuda\ncontext = cuda.current_context()\nmake = context.memalloc\nwait = cuda.synchronize",
    "cuda_core": "from cuda.core import Device\ndevice = Device(0)\ndevice.set_current()\nstream = device.create_stream()\n"
                 "make = lambda size: device.allocate(size, stream=stream)\nwait = device.sync",
    "rmm": "import rmm\nmake = lambda size: rmm.DeviceBuffer(size=size)\nfrom cuda.bindings.runtime import cudaDeviceSynchronize as wait",
    "warp": "import warp\nmake = lambda size: warp.empty(size, dtype=warp.uint8, device='cuda:0')\nwait = warp.synchronize",
}


def measure(make, wait, size):
    for _ in range(2000):
        make(size)
    times = []
    for _ in range(7):
        wait()
        started = time.perf_counter()
        for _ in range(2000):
            make(size)
        times.append((time.perf_counter() - started) / 2000 * 1e6)
    return statistics.median(times)


def one(library, on_tarn):
    """In a process of its own."""
    if on_tarn:
        import tarn
        tarn.use(**{library: True})
    names = {}
    exec(PROGRAMS[library], names)
    print(*(f"{measure(names['make'], names['wait'], size):.2f}" for size in (1 << 10, 1 << 20)))


def main():
    if len(sys.argv) == 3:
        one(sys.argv[1], sys.argv[2] == "tarn")
        return
    print(f"{'us':<10} {'own, 1 KiB':>12} {'tarn':>8} {'own, 1 MiB':>12} {'tarn':>8}")
    for library in PROGRAMS:
        found = []
        for whose in ("own", "tarn"):
            ended = subprocess.run([sys.executable, __file__, library, whose], capture_output=True, text=True, timeout=120, check=False)
            found.append(ended.stdout.split() if ended.returncode == 0 else ["-", "-"])
            if ended.returncode:
                print(f"{library}, {whose}: {ended.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        (own, own_large), (ours, ours_large) = found
        print(f"{library:<10} {own:>12} {ours:>8} {own_large:>12} {ours_large:>8}")


main()
