# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""PyTorch on tarn: every device allocation of PyTorch is tarn's, and what PyTorch says of memory still works.

    import tarn.torch
    tarn.torch.enable()          # before CUDA is initialised

or `python -m tarn.torch train.py ARGS`, or TARN_TORCH=1 in the environment. docs/torch.md is its manual."""

import ctypes
from typing import Any, Dict, List, Optional

from .. import devices as _devices
from .. import pools as _pools
from ..memory import limit
from ..snapshots import region as tag
from .shim import shim_path

_shim: Optional[ctypes.CDLL] = None


class EnableError(RuntimeError):
    """PyTorch could not be put on tarn. The message says why and what helps."""


def enable(*, late: bool = False) -> None:
    """Puts PyTorch's device memory on tarn. To be called before CUDA is initialised in PyTorch: what is allocated already cannot follow.

    With `late` it may be: what PyTorch has allocated so far stays with its own allocator, which frees it; what comes is tarn's. Calling
    it again does nothing. EnableError says what is in the way."""
    global _shim
    if _shim is not None:
        return
    import torch
    if not torch.backends.cuda.is_built():
        raise EnableError(f"PyTorch {torch.__version__} has no CUDA: install a build that has")
    path = shim_path(torch)
    try:
        shim = ctypes.CDLL(str(path))
    except OSError as error:
        raise EnableError(f"{path} cannot be opened: {error}. Remove it, and it will be compiled again") from error
    text = ctypes.create_string_buffer(1024)
    shim.tarn_torch_install.argtypes = [ctypes.c_bool, ctypes.c_char_p, ctypes.c_size_t]
    if shim.tarn_torch_install(late, text, len(text)):
        raise EnableError(text.value.decode())
    _shim = shim


def is_enabled() -> bool:
    """Whether PyTorch's device memory is tarn's."""
    return _shim is not None


def _pools_of(pools: Optional[List[Any]]) -> List[_pools.Pool]:
    if pools is None:
        raise ValueError("say which pools: sleep() takes PyTorch's MemPool objects, and the default pool cannot be suspended")
    found = []
    for pool in pools:
        first, second = _id_of(pool)
        found.append(_pools.Pool.find(first, second))
    return found


def _id_of(pool: Any) -> Any:
    """tarn's number of a PyTorch pool."""
    assert _shim is not None
    first, second = ctypes.c_uint64(), ctypes.c_uint64()
    device = getattr(pool, "device", _devices.current_device().index)
    status = _shim.tarn_torch_pool(int(getattr(device, "index", device) or 0), ctypes.c_uint64(pool.id[0]), ctypes.c_uint64(pool.id[1]),
                                   ctypes.byref(first), ctypes.byref(second))
    if status:
        raise ValueError(f"PyTorch has no pool {pool.id} with memory on this device")
    return first.value, second.value


def sleep(pools: List[Any], *, keep_contents: bool = True) -> None:
    """Gives the memory of PyTorch's MemPools back to the device. Addresses stay, and so do contents unless told otherwise; graphs that use
    the pools stay too, and must not be launched before wake(). Waits for the device."""
    import torch
    torch.cuda.synchronize()
    done: List[_pools.Pool] = []
    try:
        for pool in _pools_of(pools):
            pool.suspend(keep_contents=keep_contents)
            done.append(pool)
    except BaseException:
        for pool in done:
            pool.resume()
        raise


def wake(pools: List[Any]) -> None:
    """Takes the memory of pools that sleep back, at the same addresses."""
    for pool in _pools_of(pools):
        if pool.is_suspended:
            pool.resume()


def memory_stats(device: Any = None) -> Dict[str, int]:
    """tarn's counters of a device: what torch.cuda.memory_stats() has, and tarn's own."""
    from ..stats import memory_stats as stats
    return stats(getattr(device, "index", device))


__all__ = ["EnableError", "enable", "is_enabled", "limit", "memory_stats", "sleep", "tag", "wake"]
