# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""PyTorch on tarn: every device allocation of PyTorch is tarn's, and what PyTorch says of memory still works.

    import tarn.torch
    tarn.torch.enable()          # before CUDA is initialised

or `python -m tarn.torch train.py ARGS`, or TARN_TORCH=1 in the environment. docs/torch.md is its manual."""

import ctypes
import os
import sys
from typing import Any, Dict, List, Optional

from .. import devices as _devices
from .. import pools as _pools
from .._library import lib as _lib
from ..configuration import configure as _configure
from ..errors import check as _check
from ..memory import limit
from ..snapshots import region as tag
from .shim import shim_path

_shim: Optional[ctypes.CDLL] = None


class EnableError(RuntimeError):
    """PyTorch could not be put on tarn. The message says why and what helps."""


def _who_came_first() -> str:
    """The imports that may have initialised CUDA: packages that use torch, in the order in which they came."""
    found = []
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        names_torch = getattr(getattr(module, "torch", None), "__name__", "") == "torch"
        if names_torch and package not in ("torch", "torchgen", "functorch", "tarn", "__main__") and package not in found:
            found.append(package)
    if not found:
        return "No other package uses torch here, so the program itself did it"
    return f"It was the program itself, or an import of {', '.join(found)}"


def enable(*, late: bool = False, plan: Optional[str] = None) -> None:
    """Puts PyTorch's device memory on tarn. To be called before CUDA is initialised in PyTorch: what is allocated already cannot follow.

    With `late` it may be: what PyTorch has allocated so far stays with its own allocator, which frees it; what comes is tarn's. `plan` is
    a file that `tarn plan` made of a run like this one, which requests follow then. Calling it again does nothing. EnableError says what
    is in the way. Other processes that this one starts by torch.multiprocessing follow when they receive a tensor."""
    global _shim
    if _shim is not None:
        return
    if plan is not None:
        _configure(f"plan:{os.fspath(plan)}")
    import torch
    if not torch.backends.cuda.is_built():
        raise EnableError(f"PyTorch {torch.__version__} has no CUDA: install a build that has")
    path = shim_path(torch)
    try:
        shim = ctypes.CDLL(str(path))
    except OSError as error:
        raise EnableError(f"{path} cannot be opened: {error}. Remove it, and it will be compiled again") from error
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if shim.tarn_torch_version() != 1000 * major + minor:
        made_for = divmod(shim.tarn_torch_version(), 1000)
        raise EnableError(f"{path} was compiled for PyTorch {made_for[0]}.{made_for[1]}, and this is {torch.__version__}: unset "
                          "TARN_TORCH_SHIM, or name one that was compiled for this release")
    text = ctypes.create_string_buffer(1024)
    shim.tarn_torch_install.argtypes = [ctypes.c_bool, ctypes.c_char_p, ctypes.c_size_t]
    if shim.tarn_torch_install(late, text, len(text)):
        reason = text.value.decode()
        if reason.startswith("CUDA is initialised"):
            reason += f". {_who_came_first()}"
        raise EnableError(reason)
    _shim = shim
    from .processes import register
    register(torch)


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


def compact(wanted: Optional[int] = None, device: Any = None) -> int:
    """Gives physical memory between live tensors back to the device, `wanted` bytes of it or all there is. The bytes by which less is
    reserved. Waits for the device. Tensors keep their addresses, and nothing else may use the device meanwhile."""
    import torch
    torch.cuda.synchronize(device)
    gained = ctypes.c_size_t()
    with torch.cuda.device(device):
        _check(_lib.tarn_compact(torch.cuda.current_device(), 2**64 - 1 if wanted is None else wanted, ctypes.byref(gained)))
    return gained.value


def memory_stats(device: Any = None) -> Dict[str, int]:
    """tarn's counters of a device: what torch.cuda.memory_stats() has, and tarn's own."""
    from ..stats import memory_stats as stats
    return stats(getattr(device, "index", device))


__all__ = ["EnableError", "compact", "enable", "is_enabled", "limit", "memory_stats", "sleep", "tag", "wake"]
