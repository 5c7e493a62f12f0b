# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""RMM's buffers on tarn, and with them those of cuDF, cuML and the rest of RAPIDS."""

import tarn

tarn.use(rmm=True)

import rmm  # noqa: E402

buffer = rmm.DeviceBuffer(size=1 << 20)
print(f"a buffer of {buffer.size} bytes; tarn has {tarn.memory_allocated()} bytes")
