# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Checks of captured graphs: tarn/graph.h."""

from ctypes import byref, c_int, c_uint64, c_void_p, sizeof
from typing import Any, List, NamedTuple, Optional, Set, Union

from . import _c
from ._integers import integer
from ._library import lib
from .devices import StreamLike, stream_value
from .errors import Callbacks, check
from .pools import PoolId

_STATES = ("live", "held", "free", "others", "changed", "unmapped")
_CERTAINTIES = ("", "perhaps", "likely", "certain")
_KINDS = ("kernel", "copy", "fill", "release", "batch")
_VERDICTS = ("clean", "unknown", "suspicious")

#: The vendor's handle of a graph, a cudaGraph_t or hipGraph_t: a number, or what ctypes makes of one.
GraphHandle = Union[int, c_void_p]


def graph_pointer(graph: GraphHandle) -> c_void_p:
    """A handle for C. ctypes would pass the address of a string."""
    return graph if isinstance(graph, c_void_p) else c_void_p(integer("graph", graph))


class GraphReference(NamedTuple):
    """An address in tarn's memory that a graph contains."""
    certainty: str  #: that it is a fault: "certain", "likely", "perhaps", or "" where it is none
    state: str  #: what lies there: "live", "held", "free", "others", "changed", "unmapped"
    node: int  #: the number of the node
    depth: int  #: in how many embedded graphs and bodies of conditional nodes it is
    kind: str  #: of the node: "kernel", "copy", "fill", "release", "batch"
    kernel: str  #: the kernel's name, which may be mangled
    parameter: int  #: its index
    offset: int  #: bytes from the start of the parameter
    address: int  #: the value
    block: Optional[int]  #: where the block begins
    requested: int  #: its bytes
    tag: str  #: its tag
    remembered_at: str  #: the call stack of remember_graph(), or of the end of the capture; "" where it is not known
    freed_at: str  #: the same of the block's free
    allocated_at: str  #: the same of its allocation, as the trace had it
    region: str  #: the regions that it was allocated in: "step 3/layer 7"
    device: Optional[int]  #: of the memory
    pool: PoolId  #: of the memory; (0, 0) is the default pool
    parameter_bytes: int  #: of the whole parameter; for other nodes than kernels the bytes used from `address` on, 0 where unknown
    native: int  #: the vendor's node


class GraphCheck(NamedTuple):
    """The result of a check of a graph."""
    verdict: str  #: "clean", "unknown": not everything could be seen or told apart, "suspicious"
    findings: List[GraphReference]  #: in the order of nodes; with `all` other references too
    remembered: bool  #: remember_graph() was called for it
    nodes: int  #: those of embedded graphs among them
    references: int  #: addresses in tarn's memory
    unproven: int  #: of these, in live blocks that may be others than at the capture
    unseen: int  #: nodes and bodies that could not be looked at, the sum of the following
    unseen_host: int  #: functions of the host
    unseen_kernels: int  #: kernels whose parameters the driver does not tell
    unseen_updatable: int  #: kernels whose parameters the device may change
    unseen_conditional: int  #: conditional nodes whose bodies the driver does not show, as CUDA before 13.2
    unseen_other: int  #: semaphores and other kinds; what the driver did not tell
    certain: int  #: findings by their certainty
    likely: int
    perhaps: int


def _reference(found: Any) -> GraphReference:
    return GraphReference(_CERTAINTIES[found.certainty], _STATES[found.state], found.node, found.depth, _KINDS[found.kind],
                          (found.kernel or b"").decode(errors="replace"), found.parameter, found.offset, found.address or 0, found.block,
                          found.requested, (lib.tarn_tag_text(found.tag) or b"").decode(errors="replace"),
                          found.remembered_at.decode(errors="replace"), found.freed_at.decode(errors="replace"),
                          found.allocated_at.decode(errors="replace"), found.region.decode(errors="replace"),
                          None if found.device < 0 else found.device, PoolId(found.pool.first, found.pool.second), found.parameter_bytes,
                          found.native or 0)


def graph_check(graph: Optional[GraphHandle] = None, *, all: bool = False, remembered: Optional[int] = None) -> GraphCheck:
    """Looks for addresses of memory that a graph does not have. `graph` is the vendor's handle, as a number or a c_void_p. `remembered`, a
    number of remember_graph(), stands for a graph that may be gone, while an executable made of it exists."""
    findings: List[GraphReference] = []
    options = _c.tarn_graph_options(size=sizeof(_c.tarn_graph_options), all=all, remembered=remembered or 0)
    summary = _c.tarn_graph_summary(size=sizeof(_c.tarn_graph_summary))
    callbacks = Callbacks()
    callback = _c.FUNCTIONS["tarn_graph_check"][1][2](callbacks.guard(lambda it, _user: findings.append(_reference(it[0])), lambda *_: None))
    handle = None if graph is None else graph_pointer(graph)
    callbacks.check(lib.tarn_graph_check(handle, byref(options), callback, None, byref(summary)))
    counts = {name: getattr(summary, name) for name in GraphCheck._fields if name not in ("verdict", "findings")}
    return GraphCheck(verdict=_VERDICTS[summary.verdict], findings=findings, **counts)


def certain_count(remembered: int) -> int:
    """How many findings of a remembered graph are certain. What is less is not listed, which takes no time."""
    options = _c.tarn_graph_options(size=sizeof(_c.tarn_graph_options), remembered=remembered)
    summary = _c.tarn_graph_summary(size=sizeof(_c.tarn_graph_summary))
    check(lib.tarn_graph_check(None, byref(options), _c.FUNCTIONS["tarn_graph_check"][1][2](), None, byref(summary)))
    return int(summary.certain)


def referred_blocks(remembered: int) -> List[int]:
    """The addresses of the blocks that a remembered graph refers to, each once."""
    blocks: Set[int] = set()
    options = _c.tarn_graph_options(size=sizeof(_c.tarn_graph_options), all=True, remembered=remembered)
    callbacks = Callbacks()
    callback = _c.FUNCTIONS["tarn_graph_check"][1][2](callbacks.guard(lambda it, _user: blocks.add(it[0].block or 0), lambda *_: None))
    callbacks.check(lib.tarn_graph_check(None, byref(options), callback, None, None))
    return sorted(blocks - {0})


def remember_graph(graph: GraphHandle) -> int:
    """Notes which blocks a graph refers to, and watches them: then graph_check() is certain of what is gone. At the end of the capture, or
    just before it with the handle that capture_graph() returns. The number names what is remembered when the graph is gone."""
    number = c_uint64()
    check(lib.tarn_graph_remember(graph_pointer(graph), byref(number)))
    return number.value


def graph_launch(executable: GraphHandle, remembered: int, stream: StreamLike = None) -> List[GraphReference]:
    """Checks a graph by its number of remember_graph(), and then launches an executable that was made of it, a cudaGraphExec_t or
    hipGraphExec_t, on a stream. The findings, whatever they are, do not hold the launch up; to refuse one, call graph_check() instead."""
    findings: List[GraphReference] = []
    callbacks = Callbacks()
    callback = _c.FUNCTIONS["tarn_graph_launch"][1][3](callbacks.guard(lambda it, _user: findings.append(_reference(it[0])), lambda *_: None))
    callbacks.check(lib.tarn_graph_launch(graph_pointer(executable), integer("remembered", remembered), stream_value(stream), callback, None))
    return findings


def capture_graph(stream: StreamLike = None) -> int:
    """The handle of the graph that a stream captures into now. It must not be destroyed before the capture has ended. 0 where the stream does
    not capture, or the driver does not show the graph (CUDA before 11.3)."""
    state, graph = c_int(), c_void_p()
    check(lib.tarn_capture_state_get(stream_value(stream), byref(state), None, byref(graph)))
    return graph.value or 0
