# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""PyTorch on tarn: every device allocation of PyTorch is tarn's, and what PyTorch says of memory still works.

    import tarn.torch
    tarn.torch.enable()          # before CUDA is initialised

or `python -m tarn.torch train.py ARGS`, or TARN_TORCH=1 in the environment. docs/torch.md is its manual."""

import ctypes
import os
import sys
import warnings
from typing import Any, Dict, Iterable, List, Optional

from .. import graphs as _graphs
from .. import pools as _pools
from .._library import lib as _lib
from ..configuration import configure as _configure
from ..errors import InvalidArgumentError as _InvalidArgumentError
from ..errors import check as _check
from ..memory import limit as _limit
from ..sleeping import Registration as _Registration
from ..sleeping import Slept as _Slept
from ..sleeping import set_pool_tag as _set_pool_tag
from ..sleeping import sleep as _sleep
from ..sleeping import wake as _wake
from ..snapshots import region as tag
from . import watching as _watching
from .keeping import KeptModule, keep
from .shim import check_shim, shim_path

_shim: Optional[ctypes.CDLL] = globals().get("_shim")  # kept when the module is reloaded


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


def enable(*, late: bool = False, plan: Optional[str] = None, pinned: bool = True) -> None:
    """Puts PyTorch's device memory on tarn. To be called before CUDA is initialised in PyTorch: what is allocated already cannot follow.

    With `late` it may be: what PyTorch has allocated so far stays with its own allocator, which frees it; what comes is tarn's. `plan` is
    a file that `tarn plan` made of a run like this one, which requests follow then. `pinned`, or TARN_TORCH_PINNED=0, says whether pinned
    host memory is tarn's too, as it can be from PyTorch 2.8 on. Calling it again does nothing, unless torch.cuda.memory.change_current_allocator()
    was called since. EnableError says what is in the way. Other processes that this one starts by torch.multiprocessing follow when they receive a
    tensor."""
    global _shim
    if is_enabled():
        return
    try:
        import torch
    except ImportError as error:
        raise EnableError(f"torch cannot be imported ({error}): pip install torch, or leave it out") from error
    if plan is not None:
        _configure(f"plan:{os.fspath(plan)}")
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
    check_shim(torch, path)
    text = ctypes.create_string_buffer(1024)
    shim.tarn_torch_install.argtypes = [ctypes.c_bool, ctypes.c_char_p, ctypes.c_size_t]
    if shim.tarn_torch_install(late, text, len(text)):
        reason = text.value.decode()
        if reason.startswith("CUDA is initialised"):
            reason += f". {_who_came_first()}"
        raise EnableError(reason)
    if pinned and os.environ.get("TARN_TORCH_PINNED", "1") != "0" and (major, minor) >= (2, 8):
        shim.tarn_torch_install_pinned.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        if shim.tarn_torch_install_pinned(text, len(text)):
            shim.tarn_torch_uninstall()
            raise EnableError(f"pinned memory: {text.value.decode()}. pinned=False leaves it to PyTorch")
    _shim = shim
    from .processes import register
    register(torch)
    if _watching.is_wanted():
        _watching.follow_frees(shim)
        _watching.watch(torch.cuda)
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if os.environ.get(name) and os.environ.get("TARN_ALLOC_CONF") != "pytorch":
            warnings.warn(f"{name}={os.environ[name]} does nothing on tarn, which maps memory as expandable segments do. tarn's settings are "
                          "in TARN_ALLOC_CONF; TARN_ALLOC_CONF=pytorch takes them from PyTorch's variable", stacklevel=2)


def _settle() -> None:
    """Ends what captures have left whose end failed: PyTorch does not, and their memory stays in place until then."""
    if _shim is not None:
        _shim.tarn_torch_settle()


def is_enabled() -> bool:
    """Whether PyTorch's device memory is tarn's."""
    return _shim is not None and bool(_shim.tarn_torch_is_installed())


def _pools_of(pools: List[Any]) -> List[_pools.Pool]:
    found = []
    for pool in pools:
        first, second = _id_of(pool)
        found.append(_pools.Pool.find(first, second))
    return found


def _id_of(pool: Any) -> Any:
    """tarn's number of a PyTorch pool."""
    assert _shim is not None
    first, second = ctypes.c_uint64(), ctypes.c_uint64()
    index = _device_of(pool)
    status = _shim.tarn_torch_pool(index, ctypes.c_uint64(pool.id[0]), ctypes.c_uint64(pool.id[1]),
                                   ctypes.byref(first), ctypes.byref(second))
    if status:
        raise ValueError(f"PyTorch has no pool {pool.id} with memory on device {index}")
    return first.value, second.value


def _device_of(pool: Any) -> int:
    """The device of a PyTorch pool. Where the pool does not say it, it is PyTorch's current one, which need not be tarn's."""
    import torch
    device = getattr(pool, "device", None)
    index = getattr(device, "index", device)
    return int(torch.cuda.current_device() if index is None else index)


def registrable(pool: Any) -> None:
    """Makes the memory of a MemPool registrable by communication libraries (docs/pools.md). Nothing may have been allocated from it yet."""
    if _shim is None:
        raise EnableError("tarn.torch is not enabled")
    text = ctypes.create_string_buffer(256)
    if _shim.tarn_torch_registrable(_device_of(pool), ctypes.c_uint64(pool.id[0]), ctypes.c_uint64(pool.id[1]), text,
                                    ctypes.c_size_t(len(text))):
        raise ValueError(f"registrable: {text.value.decode()}")


def register(pool: Any, group: Any = None, *, symmetric: bool = False) -> _Registration:
    """Registers the memory of a registrable() MemPool with a process group's NCCL communicator, by PyTorch's register_mem_pool(), and keeps
    it so: what is registered is not unmapped, and sleep() and wake() deregister and register it. update() registers what is new, close()
    ends it. `group`: None is the default group. `symmetric`: as windows, which all ranks register together."""
    import torch
    import torch.distributed
    index = _device_of(pool)
    group = torch.distributed.distributed_c10d._get_default_group() if group is None else group
    backend = group._get_backend(torch.device("cuda", index))
    more = (symmetric,) if symmetric else ()

    def deregister() -> None:
        # PyTorch refuses to deregister a pool with a segment that it has not registered.
        backend.register_mem_pool(pool, *more)
        backend.deregister_mem_pool(pool)
    return _Registration(_pools_of([pool])[0], lambda: backend.register_mem_pool(pool, *more), deregister, name="a process group",
                         device=index)


def name_pool(pool: Any, name: Optional[str]) -> None:
    """Gives a MemPool a name, by which sleep() knows what to do with it. Something must have been allocated from it."""
    _set_pool_tag(_pools_of([pool])[0], name)


def check_graph(graph: Any, *, all: bool = False) -> _graphs.GraphCheck:
    """Looks for addresses of memory that a torch.cuda.CUDAGraph does not have: tarn.graph_check(). With TARN_DEBUG=graphs every graph can be
    checked, and `freed_at` is Python's stack where Python freed the tensor. Without, the graph must have been made with `keep_graph=True`, in
    PyTorch from 2.8 on, and remember_graph() before its inputs may go makes the answer certain."""
    found = _watching.watched(graph)
    if found is None:
        return _graphs.graph_check(_raw(graph, "check_graph"), all=all)
    try:
        check = _graphs.graph_check(remembered=found.number, all=all)
        return check._replace(findings=[it._replace(freed_at=_watching.freed_at(it, found)) for it in check.findings])
    except _InvalidArgumentError as error:
        raise _InvalidArgumentError("check_graph: the graph was reset, and has nothing to check until its next capture ends") from error


def remember_graph(graph: Any) -> int:
    """Notes which blocks a torch.cuda.CUDAGraph refers to, at the end of its capture: tarn.remember_graph()."""
    return _graphs.remember_graph(_raw(graph, "remember_graph"))


def _raw(graph: Any, call: str) -> int:
    """The vendor's graph of a torch.cuda.CUDAGraph. `call` names the function that asks."""
    raw = getattr(graph, "raw_cuda_graph", None)
    if raw is not None:
        return int(raw())
    if not hasattr(graph, "replay"):
        raise TypeError(f"{call}: a torch.cuda.CUDAGraph is taken, and this is no graph but of type {type(graph).__name__}")
    raise RuntimeError(f"{call}: this PyTorch does not show graphs; CUDAGraph.raw_cuda_graph() is in 2.8 and later")


def sleep(pools: Optional[List[Any]] = None, *, save_contents: bool = True, discard: Iterable[str] = (), save: Iterable[str] = (),
          leave: Iterable[str] = ()) -> Optional[_Slept]:
    """Gives memory back to the devices. Addresses stay, and so do contents unless told otherwise; graphs stay too, and must not be launched
    before wake(). Waits for the devices.

    With `pools`, the memory of these MemPools. Without, of all: MemPools, the pools of graphs, idle memory, handles and pinned memory that
    nobody has, and what each tarn.Sleeper and register() has. Then the names that name_pool() gave say which pools discard or save their contents, or stay awake (`leave`), and the result
    says what stays and why: tensors that no pool has stay, so allocate what is to sleep in a MemPool."""
    import torch
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    _settle()
    if pools is None:
        torch.cuda.empty_cache()  # what destroyed graphs have left is nobody's
        return _sleep(save_contents=save_contents, discard=discard, save=save, leave=leave)
    if discard or save or leave:
        raise ValueError("sleep: names are for all pools, and some are given")
    done: List[_pools.Pool] = []
    try:
        for pool in _pools_of(pools):
            pool.suspend(save_contents=save_contents)
            done.append(pool)
    except BaseException:
        for pool in done:
            pool.resume()
        raise
    return None


def wake(pools: Optional[List[Any]] = None) -> None:
    """Takes the memory that sleep() gave back, at the same addresses: that of these MemPools, or all."""
    _settle()
    if pools is None:
        return _wake()
    for pool in _pools_of(pools):
        if pool.is_suspended:
            pool.resume()


def compact(wanted: Optional[int] = None, device: Any = None) -> int:
    """Gives physical memory between live tensors back to the device, `wanted` bytes of it or all there is. The bytes by which less is
    reserved. Waits for the device. Tensors keep their addresses, and nothing else may use the device meanwhile."""
    import torch
    torch.cuda.synchronize(device)
    _settle()
    gained = ctypes.c_size_t()
    with torch.cuda.device(device):
        _check(_lib.tarn_compact(torch.cuda.current_device(), 2**64 - 1 if wanted is None else wanted, ctypes.byref(gained)))
    return gained.value


def _index(device: Any) -> Optional[int]:
    """The number of a device, as PyTorch's functions take one: a number, "cuda:0", a torch.device, or None for PyTorch's current one."""
    import torch
    if isinstance(device, str):
        device = torch.device(device)
    index = getattr(device, "index", device)
    if index is None:
        return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else None
    return int(index)


def memory_stats(device: Any = None) -> Dict[str, int]:
    """tarn's counters of a device: what torch.cuda.memory_stats() has, and tarn's own."""
    from ..stats import memory_stats as stats
    return stats(_index(device))


def limit(bytes: Optional[int] = None, *, device: Any = None) -> int:
    """The most bytes that tarn reserves on a device; sets it first where `bytes` is given. 2**64 - 1 is no limit."""
    return _limit(bytes, device=_index(device))


__all__ = ["EnableError", "KeptModule", "check_graph", "compact", "enable", "is_enabled", "keep", "limit", "memory_stats", "name_pool", "register", "registrable", "remember_graph", "sleep", "tag", "wake"]
