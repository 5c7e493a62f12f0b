# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""overhead.py [PAIRS.so]: what an allocation with its free costs on PyTorch's own allocator and on tarn, from Python and, with pairs.cc
compiled, layer by layer. Prints JSON lines, nanoseconds, the smallest of several runs each."""

import ctypes
import json
import os
import subprocess
import sys
import time

SIZES = (512, 1 << 20, 64 << 20)
LAYERS = ("tensor", "raw", "tarn", "stream_find", "current_stream")
RUNS, ROUNDS = 7, 20000


def measure(on_tarn, pairs):
    import torch
    if on_tarn:
        import tarn.torch
        tarn.torch.enable()
    library = ctypes.CDLL(pairs) if pairs else None
    torch.ones(1, device="cuda")
    for size in SIZES:
        row = {"allocator": torch.cuda.get_allocator_backend(), "bytes": size}

        def python():
            start = time.perf_counter_ns()
            for _ in range(ROUNDS):
                torch.empty(size, dtype=torch.uint8, device="cuda")
            return (time.perf_counter_ns() - start) / ROUNDS

        python()
        row["python"] = round(min(python() for _ in range(RUNS)))
        with torch.cuda.stream(torch.cuda.Stream()):
            python()
            row["side_stream"] = round(min(python() for _ in range(RUNS)))
        for layer in LAYERS if library else ():
            if not on_tarn and layer in ("tarn", "stream_find"):
                continue
            call = getattr(library, f"pairs_{layer}")
            call.restype, call.argtypes = ctypes.c_double, [ctypes.c_size_t, ctypes.c_int]
            row[layer] = round(min(call(size, ROUNDS) for _ in range(RUNS)), 1)
        print(json.dumps(row), flush=True)
    grow = []
    for _ in range(5):
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        grow.append(time.perf_counter_ns() - start)
        del kept
    print(json.dumps({"allocator": torch.cuda.get_allocator_backend(), "growth_by_1_gib": min(grow),
                      "sends": os.environ.get("TARN_TORCH_SEND", "1")}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2] in ("on", "off"):
        measure(sys.argv[2] == "on", sys.argv[1] if sys.argv[1] != "-" else None)
    else:
        library = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "-"
        for which in ("off", "on", "off", "on"):
            subprocess.run([sys.executable, os.path.abspath(__file__), library, which], check=True)
