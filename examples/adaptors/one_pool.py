# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""PyTorch, CuPy and Numba on one pool: what one library frees, another is given, and one limit holds for all."""

import tarn

tarn.use(torch=True, cupy=True, numba=True)

import cupy  # noqa: E402
import torch  # noqa: E402
from numba import cuda  # noqa: E402

tarn.limit(2 << 30)


@cuda.jit
def add(values, one):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += one


MIB = 1 << 20
tensor = torch.ones(256 * MIB, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
reserved = tarn.memory_reserved()
print(f"PyTorch has {tarn.memory_allocated() // MIB} MiB, reserved {reserved // MIB} MiB")

del tensor  # the next array takes its place
array = cupy.arange(256 * MIB // 4, dtype="i4")
cupy.cuda.get_current_stream().synchronize()
print(f"CuPy has {tarn.memory_allocated() // MIB} MiB, reserved {tarn.memory_reserved() // MIB} MiB")
assert tarn.memory_reserved() <= reserved + 32 * MIB

del array
values = cuda.to_device(cupy.arange(1000, dtype="f8").get())
add[4, 256](values, 0.0)
print(f"sum in Numba: {values.copy_to_host().sum():.0f}")

for library, allocate, error in (("PyTorch", lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"), torch.OutOfMemoryError),
                                 ("CuPy", lambda: cupy.empty(3 << 30, "u1"), cupy.cuda.memory.OutOfMemoryError),
                                 ("Numba", lambda: cuda.device_array(3 << 30, dtype="u1"), cuda.cudadrv.driver.CudaAPIError)):
    try:
        allocate()
    except error as shortage:
        print(f"{library} meets the limit: {type(shortage).__name__}")
print("one pool:", {key: value for key, value in tarn.memory_stats().items() if key == "reserved_bytes.all.peak"})
