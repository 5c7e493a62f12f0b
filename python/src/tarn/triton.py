# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Scratch memory of Triton's kernels from tarn: `tarn.triton.enable()`, or `tarn.use(triton=True)`. docs/adaptors/triton.md is the
manual."""

from contextvars import Context, ContextVar
from typing import Any, Optional

from . import adaptors

_previous: "ContextVar[Any]" = ContextVar("_previous")  # of the thread, as Triton's own


def allocate(size: int, alignment: int, stream: Optional[int]) -> adaptors.Owner:
    """What `triton.set_allocator()` takes: a block of Triton's current device for work on `stream`, freed in its order when the launch lets
    go of it."""
    from triton.runtime import driver
    device = int(driver.active.get_current_device())
    return adaptors.Owner(adaptors.take(device, stream or 0, size, alignment))


def enable() -> None:
    """Gives kernels of the calling thread scratch memory from tarn. Triton keeps the allocator in a context variable: call this in each
    thread that launches kernels, or start the thread in a copy of this one's context. Calling it again does nothing."""
    if is_enabled():
        return
    adaptors.require_gpu()
    triton: Any = adaptors.wanted("triton", "triton")
    _previous.set(_current())
    triton.set_allocator(allocate)


def disable() -> None:
    """Gives Triton the allocator back that the calling thread had."""
    if not is_enabled():
        return
    import triton
    triton.set_allocator(_previous.get(Context().run(_current)))  # where the program set it itself: Triton's own


def is_enabled() -> bool:
    """Whether kernels that the calling thread launches have their scratch memory from tarn."""
    try:
        return _current() is allocate
    except ImportError:
        return False


def _current() -> Any:
    from triton.runtime import _allocation
    return _allocation._allocator.get()


__all__ = ["allocate", "disable", "enable", "is_enabled"]
