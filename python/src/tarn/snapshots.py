# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""The trace, snapshots of memory, and reports about them."""

import io
import os
import pickle
import subprocess
from contextlib import contextmanager
from ctypes import byref, c_uint64, sizeof, string_at
from typing import Any, Dict, Iterator, Optional, Tuple, Union

from . import _c, _texts
from ._entered import Enterable, Entry, regions
from ._library import lib, program
from .errors import Callbacks, check

PathLike = Union[str, "os.PathLike[str]"]
_STACKS = {"none": 0, "alloc": 1, "all": 2}


class _Plain(pickle.Unpickler):
    """Snapshots hold only plain values: a file that names a class is not a snapshot."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot has no objects, and this one names {module}.{name}")


def snapshot(max_bytes: Optional[int] = None) -> Dict[str, Any]:
    """What lies where in device memory, and what happened to it while the trace was on: the dictionary that
    `torch.cuda.memory._snapshot()` gives, with a key "tarn" for what PyTorch has no name for."""
    parts = []

    def write(data: int, size: int, _user: Any) -> bool:
        parts.append(string_at(data, size))
        return True

    callbacks = Callbacks()
    callback = _c.FUNCTIONS["tarn_snapshot_print"][1][0](callbacks.guard(write, lambda *_: False))
    callbacks.check(lib.tarn_snapshot_print(callback, None, byref(_options("pickle", max_bytes))))
    found: Dict[str, Any] = _Plain(io.BytesIO(b"".join(parts))).load()
    return found


def dump_snapshot(path: PathLike, *, format: str = "pickle", max_bytes: Optional[int] = None) -> None:
    """Writes a snapshot to a file: "pickle" for `tarn report` and PyTorch's viewers, "chrome" for ui.perfetto.dev."""
    check(lib.tarn_snapshot_write(_texts.path("path", path), byref(_options(format, max_bytes))))


def _options(format: str, max_bytes: Optional[int]) -> "_c.tarn_snapshot_options":
    formats = {"pickle": _c.tarn_snapshot_format.TARN_SNAPSHOT_PICKLE, "chrome": _c.tarn_snapshot_format.TARN_SNAPSHOT_CHROME}
    if format not in formats:
        raise ValueError(f"no format of snapshots: {format!r}; there are {', '.join(formats)}")
    return _c.tarn_snapshot_options(size=sizeof(_c.tarn_snapshot_options), format=formats[format],
                                    max_bytes=_c.TARN_NO_LIMIT if max_bytes is None else max_bytes)


def trace_start(*, records: int = 0, stacks: str = "none", regions: bool = False) -> None:
    """Begins to record what happens to memory. `records` per thread are kept; `stacks` is "none", "alloc" or "all"."""
    if stacks not in _STACKS:
        raise ValueError(f"stacks is one of {', '.join(_STACKS)}, not {stacks!r}")
    check(lib.tarn_trace_start(byref(_c.tarn_trace_options(size=sizeof(_c.tarn_trace_options), records=records,
                                                           stacks=_STACKS[stacks], regions=regions))))


def trace_stop() -> None:
    """Records no more. What was recorded stays for snapshots."""
    check(lib.tarn_trace_stop())


def trace_clear() -> None:
    """Forgets what was recorded."""
    check(lib.tarn_trace_clear())


def trace_count() -> Tuple[int, int]:
    """Records kept now, and lost."""
    kept, lost = c_uint64(), c_uint64()
    check(lib.tarn_trace_count_get(byref(kept), byref(lost)))
    return kept.value, lost.value


class _InRegion(Entry):
    def __init__(self, owner: Any, name: str) -> None:
        super().__init__(owner, 0)
        self._name = _texts.text("name", name)
        self._is_pushed = False

    def begin(self) -> int:
        status = int(lib.tarn_region_push(self._name))
        self._is_pushed = not status
        return status

    def end(self) -> int:
        was_pushed, self._is_pushed = self._is_pushed, False  # one that is popped twice would pop another
        return int(lib.tarn_region_pop()) if was_pushed else 0


class _Region(Enterable):
    _track = regions

    def __init__(self, name: str) -> None:
        self._name = name

    def _entry(self) -> Entry:
        return _InRegion(self, self._name)


@contextmanager
def region(name: str) -> Iterator[None]:
    """Names what the thread is doing inside: `with tarn.region("step 3"): ...`. Blocks that it allocates there say so in snapshots."""
    with _Region(name):
        yield


def report(path: PathLike, *others: PathLike, output: Optional[PathLike] = None) -> str:
    """What used the memory, and when, from snapshots of tarn or PyTorch: the text of `tarn report`. With `output` a page for a browser is
    written there too."""
    files = [_name(file) for file in (path, *others)]
    if output is not None:
        _run("report", "-o", _name(output), *files)
    return _run("report", "--text", *files)


def _name(path: PathLike) -> str:
    """A file's name that is no option, nor "-", which means a pipe."""
    name = os.fsdecode(_texts.path("path", path))
    return os.path.join(".", name) if name.startswith("-") else name


def _run(*arguments: str) -> str:
    ended = subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ValueError(ended.stderr.strip() or f"tarn {arguments[0]} ended with status {ended.returncode}")
    return ended.stdout
