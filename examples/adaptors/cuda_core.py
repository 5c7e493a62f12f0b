# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""cuda.core on tarn: the buffers of a device, in the order of streams."""

import tarn

tarn.use(cuda_core=True)

from cuda.core import Device  # noqa: E402

device = Device(0)
device.set_current()
stream = device.create_stream()
with device.allocate(1 << 20, stream=stream) as buffer:
    buffer.fill(0, stream=stream)
    print(f"a buffer of {buffer.size} bytes from {buffer.memory_resource}; tarn has {tarn.memory_allocated()} bytes")
stream.sync()
