# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Sleep: what tarn has of the devices goes back to their drivers at one call, and comes back at another."""

from ctypes import byref, sizeof
from typing import Iterable, List, NamedTuple, Optional

from . import _c
from ._library import lib
from .errors import check
from .memory import tag_number
from .pools import Pool, PoolId


class Residue(NamedTuple):
    """One thing that stays while the process sleeps."""
    reason: str  #: such as "default_pool"; docs/sleep.md has them all
    text: str  #: the same in words
    device: int  #: -1: memory of the host
    pool: PoolId
    bytes: int
    handles: int  #: how many


class Slept(NamedTuple):
    """What a sleep gave back, and what stays."""
    before: int  #: bytes that tarn had reserved of all devices
    after: int  #: and has reserved while the process sleeps
    kept: int  #: bytes of contents in host memory
    residue: List[Residue]


def set_pool_tag(pool: Pool, name: Optional[str]) -> None:
    """Gives a pool a name by which sleep() chooses it. None: no name."""
    check(lib.tarn_pool_tag_set(pool.pointer, tag_number(name)))


def sleep(*, keep_contents: bool = True, discard: Iterable[str] = (), keep: Iterable[str] = (), leave: Iterable[str] = (),
          pools: bool = True, handles: bool = True, pinned: bool = True) -> Slept:
    """Gives the memory of private pools back to the devices, with handles and pinned memory that nobody has. Addresses stay, and graphs.

    Contents are kept in host memory, or not, as `keep_contents` says; pools with the names in `discard`, `keep` and `leave`
    (set_pool_tag()) are treated as those say, `leave` being that they stay awake. Nothing may use memory that sleeps until wake().
    On failure the process is awake, with its contents."""
    kinds = _c.tarn_sleep_contents
    named = [(name, kind) for names, kind in ((discard, kinds.TARN_SLEEP_DISCARD), (keep, kinds.TARN_SLEEP_KEEP),
                                              (leave, kinds.TARN_SLEEP_LEAVE)) for name in names]
    rules = (_c.tarn_sleep_rule * len(named))(*(_c.tarn_sleep_rule(tag=tag_number(name), contents=kind) for name, kind in named))
    what = pools * _c.TARN_SLEEP_POOLS | handles * _c.TARN_SLEEP_HANDLES | pinned * _c.TARN_SLEEP_PINNED
    if not what:
        raise ValueError("sleep: pools, handles and pinned are all False, so nothing would sleep")
    options = _c.tarn_sleep_options(size=sizeof(_c.tarn_sleep_options), what=what, rules=rules, rule_count=len(named),
                                    contents=kinds.TARN_SLEEP_KEEP if keep_contents else kinds.TARN_SLEEP_DISCARD)
    items = (_c.tarn_residue_item * 256)()
    residue = _c.tarn_residue(size=sizeof(_c.tarn_residue), items=items, room=len(items))
    check(lib.tarn_sleep(byref(options), byref(residue)))
    return Slept(residue.before, residue.after, residue.kept, [
        Residue(_c.tarn_residue_reason(item.reason).name.split("_", 2)[2].lower(),
                lib.tarn_residue_reason_text(item.reason).decode(), item.device, PoolId(item.pool.first, item.pool.second),
                item.bytes, item.count)
        for item in items[:min(residue.count, len(items))]])


def wake() -> None:
    """Takes the memory back, at the same addresses. Where a device has no room, what was not taken back goes on to sleep: call it again."""
    check(lib.tarn_wake())
