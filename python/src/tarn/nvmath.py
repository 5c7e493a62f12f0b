# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""nvmath-python on tarn: `nvmath.fft.FFT(a, options={"allocator": tarn.nvmath.Allocator})`. docs/adaptors/nvmath.md is the manual."""

from typing import Any

from . import adaptors
from .devices import native_address


class Allocator:
    """nvmath's protocol `BaseCUDAMemoryManagerAsync`: workspaces of one operation, in the order of its stream."""

    def __init__(self, device_id: int, logger: Any) -> None:
        self.device_id, self.logger = int(device_id), logger

    def memalloc_async(self, size: int, stream: Any) -> adaptors.Owner:
        """A block that is freed when the object is collected."""
        return adaptors.Owner(adaptors.take(self.device_id, native_address(stream), size))


__all__ = ["Allocator"]
