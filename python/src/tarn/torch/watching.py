# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""TARN_DEBUG=graphs under tarn.torch: each graph is remembered at the end of its capture, and checked before each replay."""

import atexit
import ctypes
import os
import sys
import traceback
import warnings
import weakref
from typing import Any, Dict, NamedTuple, Optional, Set, Union

from .. import graphs as _graphs
from ..devices import Stream
from ..errors import InvalidArgumentError, TarnError


class Frees:
    """Where Python freed the blocks that a graph refers to."""

    def __init__(self) -> None:
        self.stacks: Dict[int, traceback.StackSummary] = {}  #: by the block's address

    def text(self, block: Optional[int]) -> str:
        """Python's stack of the free of a block; "": it is not known."""
        return "".join(self.stacks[block].format()) if block in self.stacks else ""


class Watched(NamedTuple):
    """What is remembered of a torch.cuda.CUDAGraph."""
    number: int  #: of tarn.remember_graph()
    stack: str  #: Python's, at the end of the capture
    told: Set[Union[int, str]]  #: what a warning was about: blocks, addresses, and texts of errors
    frees: Frees


class GraphMemoryWarning(RuntimeWarning):
    """A graph is replayed, and uses memory that is not its own any more."""


def is_wanted() -> bool:
    """Whether the environment asks for it."""
    words = os.environ.get("TARN_DEBUG", "").split(",")
    return any(word in words for word in ("graphs", "all", "1", "on"))


def watched(graph: Any) -> Optional[Watched]:
    """What is remembered of a graph; None: nothing."""
    found = getattr(graph, "_tarn_watched", None)
    return found if isinstance(found, Watched) else None


_DEEPEST = 10  # frames of a call stack

_FREED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Python(ctypes.Structure):
    """What the shim calls: frees.cc."""
    _fields_ = [*((name, ctypes.c_void_p) for name in ("lock", "unlock", "take_error", "give_error")), ("freed", _FREED)]


_awaited: Dict[int, "weakref.WeakSet[Frees]"] = {}  # by the address of a live block
_shim: Any = None  # that tells of frees


def _freed(block: int) -> None:
    """Called by the shim just before a free. Keeps the stack of the thread that frees, which has none if Python did not call it."""
    caller = sys._getframe().f_back
    wanted = _awaited.pop(block, ())
    if caller is None or not wanted:
        return
    stack = traceback.StackSummary.extract(traceback.walk_stack(caller), limit=_DEEPEST, lookup_lines=False)
    stack.reverse()
    for frees in wanted:
        frees.stacks.setdefault(block, stack)


_told = _FREED(_freed)  # which the shim may call at any time


def follow_frees(shim: Any) -> None:
    """Has the shim tell of frees until the interpreter ends."""
    global _shim
    calls = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_Fetch", "PyErr_Restore")
    python = _Python(*(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in calls), _told)
    shim.tarn_torch_follow_frees.argtypes = [ctypes.c_void_p]
    shim.tarn_torch_follow_frees.restype = None
    shim.tarn_torch_await_frees.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    shim.tarn_torch_await_frees.restype = ctypes.c_bool
    shim.tarn_torch_follow_frees(ctypes.addressof(python))
    atexit.register(shim.tarn_torch_follow_frees, None)
    _shim = shim


def _await_frees(number: int) -> Frees:
    """Keeps Python's stacks of the frees of the blocks that a remembered graph refers to, as far as the shim tells of them."""
    frees = Frees()
    if _shim is not None:
        blocks = _graphs.referred_blocks(number)
        for block in blocks:
            _awaited.setdefault(block, weakref.WeakSet()).add(frees)
        _shim.tarn_torch_await_frees((ctypes.c_void_p * len(blocks))(*blocks), len(blocks))
    return frees


def _remember(stream: Any) -> Optional[Watched]:
    """Remembers the graph that a stream captures into. Never fails a capture: where nothing can be remembered, as without CUDA 11.3, it warns."""
    try:
        captured = _graphs.capture_graph(Stream.find(stream, getattr(stream, "device_index", None)))
        number = _graphs.remember_graph(captured)
        frees = _await_frees(number)
    except TarnError as error:
        warnings.warn(f"a graph is captured whose memory is not watched: {error}", RuntimeWarning, stacklevel=3)
        return None
    return Watched(number, "".join(traceback.format_list(traceback.extract_stack(limit=_DEEPEST)[:-2])), set(), frees)


def _lost(it: _graphs.GraphReference) -> bool:
    """Whether the graph has lost a tensor, the block of `it`. Else no tensor had the address at the capture, and a block there came later."""
    return bool(it.block) and (it.state != "changed" or bool(it.freed_at))


def _key(it: _graphs.GraphReference) -> int:
    return it.block if it.block and _lost(it) else it.address


def freed_at(it: _graphs.GraphReference, found: Watched) -> str:
    """Where the block of a finding was freed: Python's call stack if it is known, otherwise the native one, otherwise an empty text."""
    return (found.frees.text(it.block) if it.freed_at else "") or it.freed_at


def _text(it: _graphs.GraphReference, found: Watched) -> str:
    """The warning about a finding of a graph."""
    what = f"kernel {it.kernel}" if it.kernel else f"a {it.kind}"
    now = {"free": "free", "changed": "another tensor's", "unmapped": "asleep"}.get(it.state, it.state)
    place = f"{what} (node {it.node}, parameter {it.parameter}) has the address {it.address:#x}"
    if _lost(it):
        said = (f"a graph that is replayed uses a tensor that is gone: {place} of {it.requested} bytes whose memory is {now}. "
                "Keep what a graph reads as long as the graph.")
    else:
        now = "given back" if it.state == "unmapped" else now
        said = (f"a graph that is replayed uses memory that no tensor had when its capture ended: {place}, whose memory is {now}. "
                "Free what a graph reads after the graph.")
    freed = freed_at(it, found)
    return f"{said}\nCaptured at:\n{found.stack}" + ("" if not freed else f"Freed at: {freed}" if freed == it.freed_at else f"Freed at:\n{freed}")


def _look(found: Watched) -> None:
    try:
        if not _graphs.certain_count(found.number):
            return
        findings = _graphs.graph_check(remembered=found.number).findings
    except InvalidArgumentError:  # the graph was reset, which its own replay() says
        return
    except TarnError as error:
        if str(error) not in found.told:
            found.told.add(str(error))
            warnings.warn(f"a graph is replayed without a check of its memory: {error}", RuntimeWarning, stacklevel=3)
        return
    for it in findings:
        if it.certainty != "certain" or _key(it) in found.told:
            continue
        found.told.add(_key(it))
        warnings.warn(_text(it, found), GraphMemoryWarning, stacklevel=3)


def watch(cuda: Any) -> None:
    """Wraps capture_end() and replay() of `cuda`.CUDAGraph, where `cuda` is torch.cuda. Calling it again does nothing."""
    graph = cuda.CUDAGraph
    if hasattr(graph, "_tarn_watched"):
        return
    graph._tarn_watched = None
    own_end, own_replay = graph.capture_end, graph.replay

    def capture_end(self: Any) -> None:
        remembered = _remember(cuda.current_stream())
        own_end(self)
        self._tarn_watched = remembered

    def replay(self: Any) -> None:
        found = watched(self)
        if found is not None:
            _look(found)
        own_replay(self)

    capture_end.__doc__, replay.__doc__ = own_end.__doc__, own_replay.__doc__
    graph.capture_end, graph.replay = capture_end, replay


__all__ = ["GraphMemoryWarning", "Watched", "follow_frees", "freed_at", "is_wanted", "watch", "watched"]
