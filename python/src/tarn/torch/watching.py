# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""TARN_DEBUG=graphs under tarn.torch: each graph is remembered at the end of its capture, and checked before each replay."""

import os
import traceback
import warnings
from typing import Any, NamedTuple, Optional, Set, Union

from .. import graphs as _graphs
from ..devices import Stream
from ..errors import InvalidArgumentError, TarnError


class Watched(NamedTuple):
    """What is remembered of a torch.cuda.CUDAGraph."""
    number: int  #: of tarn.remember_graph()
    stack: str  #: Python's, at the end of the capture
    told: Set[Union[int, str]]  #: what a warning was about: blocks, addresses, and texts of errors


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


def _remember(stream: Any) -> Optional[Watched]:
    """Remembers the graph that a stream captures into. Never fails a capture: where nothing can be remembered, as without CUDA 11.3, it warns."""
    try:
        captured = _graphs.capture_graph(Stream.find(stream, getattr(stream, "device_index", None)))
        number = _graphs.remember_graph(captured)
    except TarnError as error:
        warnings.warn(f"a graph is captured whose memory is not watched: {error}", RuntimeWarning, stacklevel=3)
        return None
    return Watched(number, "".join(traceback.format_list(traceback.extract_stack(limit=10)[:-2])), set())


def _lost(it: _graphs.GraphReference) -> bool:
    """Whether the graph has lost a tensor, the block of `it`. Else no tensor had the address at the capture, and a block there came later."""
    return bool(it.block) and (it.state != "changed" or bool(it.freed_at))


def _key(it: _graphs.GraphReference) -> int:
    return it.block if it.block and _lost(it) else it.address


def _text(it: _graphs.GraphReference, stack: str) -> str:
    """The warning about a finding of a graph, whose capture had the `stack`."""
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
    return f"{said}\nCaptured at:\n{stack}" + (f"Freed at: {it.freed_at}" if it.freed_at else "")


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
        warnings.warn(_text(it, found.stack), GraphMemoryWarning, stacklevel=3)


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


__all__ = ["GraphMemoryWarning", "Watched", "is_wanted", "watch", "watched"]
