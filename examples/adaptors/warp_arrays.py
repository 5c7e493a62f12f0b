# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""NVIDIA Warp's arrays on tarn."""

import tarn

tarn.use(warp=True)

import warp  # noqa: E402

array = warp.full(1 << 20, 2.0, dtype=float, device="cuda:0")
print(f"sum {array.numpy().sum():.0f}; tarn has {tarn.memory_allocated() >> 20} MiB")
