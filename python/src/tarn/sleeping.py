# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Sleep: one call gives tarn's device memory back to the drivers, and another takes it again."""

from bisect import bisect_left
from ctypes import CFUNCTYPE, byref, c_int, c_size_t, c_uint64, c_void_p, cast, memmove, sizeof
from mmap import mmap
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

from . import _c, _texts
from ._integers import integer
from ._library import lib
from .errors import BusyError, Callbacks, InvalidArgumentError, Owning, check, close_at_exit
from .memory import tag_number
from .pools import Pool, PoolId


class Residue(NamedTuple):
    """Memory that stays on the device while the process sleeps, with the reason."""
    reason: str  #: such as "default_pool"; docs/sleep.md has them all
    text: str  #: the same in words
    device: int  #: -1: memory of the host
    pool: PoolId
    bytes: int
    handles: int  #: how many
    sleeper: str = ""  #: the name of a Sleeper, and its reason


class Slept(NamedTuple):
    """What a sleep has given back, and what stays."""
    before: int  #: bytes that tarn had reserved of all devices
    after: int  #: and has reserved while the process sleeps
    saved: int  #: bytes of contents in host memory
    residue: List[Residue]


#: Room for what stays: more than the mappings that Linux gives a process. Only what is written takes memory.
_MOST_ITEMS = 1 << 18
_sleepers: "Dict[int, Sleeper]" = {}  # the library has the callbacks of these
close_at_exit(_sleepers)
_callbacks = Callbacks()


def _reason(error: BaseException, room: int) -> bytes:
    """The text of an exception in at most `room` bytes with the zero; whatever the text is, or raises."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return (text or type(error).__name__).encode(errors="replace")[:room - 1] + bytes(1)


class Sleeper(Owning):
    """Something that is not tarn's and sleeps with the process, such as a communicator that holds registrations of a pool's memory.

    sleep() calls `prepare` and `commit`, of the newest first and before all pools; wake() calls `wake`, of the oldest first and after all
    pools; `cancel` undoes a prepare. A callback fails by an exception, whose text becomes the reason; `prepare` refuses by BusyError, and
    then the sleep goes on without it. `commit` removes the anchors of `pool`. `held` returns the bytes of device memory that it has.
    It takes part until close(), whether the object is kept or not. docs/sleep.md has the rules."""

    def __init__(self, name: str, *, commit: Callable[[], Any], wake: Callable[[], Any], prepare: Optional[Callable[[], Any]] = None,
                 cancel: Optional[Callable[[], Any]] = None, held: Optional[Callable[[], int]] = None, pool: Optional[Pool] = None,
                 device: Optional[int] = None) -> None:
        pointer = None if pool is None else _texts.instance("pool", Pool, pool)._open()
        types: Dict[str, Any] = {field[0]: field[1] for field in _c.tarn_sleeper_options._fields_}
        # ctypes would pass a copy of the buffer for the reason as a c_char_p.
        able_to_fail = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)

        def failing(callback: Optional[Callable[[], Any]], field: str) -> Any:
            if callback is None:
                return types[field]()

            wanted = callback

            def failed(error: BaseException, _user: Any, why: int, room: int) -> int:
                text = _reason(error, room)
                memmove(why, text, len(text))
                return int(_c.tarn_status.TARN_ERROR_BUSY if isinstance(error, BusyError) else _c.tarn_status.TARN_ERROR_LIBRARY)

            def call(*_: Any) -> int:
                wanted()
                return 0
            self._callbacks.append(able_to_fail(_callbacks.guard(call, failed)))
            return cast(self._callbacks[-1], types[field])

        self._callbacks: List[Any] = []
        self._pool = pool
        self.name = name
        options = _c.tarn_sleeper_options(size=sizeof(_c.tarn_sleeper_options), name=_texts.text("name", name),
                                          device=-1 if device is None else device, pool=pointer,
                                          prepare=failing(prepare, "prepare"), commit=failing(commit, "commit"), wake=failing(wake, "wake"))
        for field, function, result in (("cancel", cancel, lambda _: None), ("held", held, lambda bytes: integer("held", bytes))):
            if function is not None:
                guarded = _callbacks.guard(lambda _, function=function, result=result: result(function()), lambda *_: 0)
                self._callbacks.append(types[field](guarded))
                setattr(options, field, self._callbacks[-1])
        number = c_uint64()
        check(lib.tarn_sleeper_add(byref(options), byref(number)))
        self.number = number.value
        _sleepers[self.number] = self

    def _open(self) -> int:
        if not self.number:
            raise InvalidArgumentError("the sleeper was closed")
        return self.number

    @property
    def why(self) -> str:
        """Why the sleeper last refused or failed; empty if it did not."""
        return str(_info(self._open()).why.decode(errors="replace"))

    def close(self) -> None:
        """Removes the sleeper, also while it sleeps. None of its callbacks is called any more."""
        if self.number:
            check(lib.tarn_sleeper_remove(self.number))
            _sleepers.pop(self.number, None)
            self.number = 0


class Registration(Owning):
    """What of a registrable pool a communication library has registered, kept so that the library never uses old memory.

    `register` registers what the pool has and the library does not know yet; `deregister` deregisters all of it. Each registered segment is
    anchored: no trim, shortage, compaction or suspend unmaps it. A sleep deregisters, as a Sleeper, and the wake registers again. Call
    update() at points that you choose, to register what is new. If the calls are collective, all ranks make the same ones in the same order.
    Not thread-safe. A call that fails leaves the segments anchored: call update() or close() again."""

    def __init__(self, pool: Pool, register: Callable[[], Any], deregister: Callable[[], Any], *, name: str = "a registration",
                 prepare: Optional[Callable[[], Any]] = None, device: Optional[int] = None) -> None:
        self._pool, self._register, self._deregister = _texts.instance("pool", Pool, pool), register, deregister
        self._anchors: Dict[int, int] = {}  # where a segment starts, and a byte of a block in it
        self._registered = 0  # how many of them
        self.sleeper = Sleeper(name, prepare=prepare, commit=self._end, wake=self._wake, pool=pool, device=device)
        try:
            self.update()
        except BaseException:
            try:
                self._end()  # nobody can call close()
            finally:
                self.sleeper.close()
            raise

    def update(self) -> int:
        """Registers what is new. Returns how many segments are registered. Releases segments without blocks, which cannot be anchored."""
        if not self.sleeper.number:
            raise InvalidArgumentError("the registration was closed")
        self._begin()
        return len(self._anchors)

    def _begin(self) -> None:
        self._pool.trim()
        blocks = sorted(block.address for block in self._pool.blocks())
        for segment in self._pool.segments():
            if segment.address in self._anchors:
                continue
            at = bisect_left(blocks, segment.address)
            if at == len(blocks) or blocks[at] >= segment.address + segment.bytes:
                continue  # another thread has freed its last block meanwhile; it is not registered
            check(lib.tarn_anchor(blocks[at], 1))
            self._anchors[segment.address] = blocks[at]
        if len(self._anchors) != self._registered:
            self._register()
            self._registered = len(self._anchors)

    def _wake(self) -> None:
        if not self._pool.is_suspended:  # as the program has it; nothing of such a pool is registered
            self._begin()

    def _end(self) -> None:
        if self._anchors:
            self._deregister()
        self._registered = 0
        while self._anchors:
            start, byte = self._anchors.popitem()
            try:
                check(lib.tarn_unanchor(byte, 1))
            except BaseException:
                self._anchors[start] = byte
                raise

    def close(self) -> None:
        """Deregisters everything. A second call does nothing."""
        self._end()
        self.sleeper.close()


def _info(number: int) -> _c.tarn_sleeper_info:
    info = _c.tarn_sleeper_info(size=sizeof(_c.tarn_sleeper_info))
    check(lib.tarn_sleeper_info_get(number, byref(info)))
    return info


def _residue(item: _c.tarn_residue_item) -> Residue:
    text, sleeper, handles = item.text.decode(), "", item.count
    if item.reason == _c.tarn_residue_reason.TARN_RESIDUE_SLEEPER:
        handles = 0
        try:
            info = _info(item.count)
            name, why = info.name.decode(errors="replace"), info.why.decode(errors="replace")
            sleeper = f"{name}: {why}" if why else name
        except InvalidArgumentError:
            sleeper = "closed meanwhile"
    return Residue(_c.tarn_residue_reason(item.reason).name.split("_", 2)[2].lower(), text, item.device,
                   PoolId(item.pool.first, item.pool.second), item.bytes, handles, sleeper)


def set_pool_tag(pool: Pool, name: Optional[str]) -> None:
    """Gives a pool a name by which sleep() chooses it. None: no name."""
    check(lib.tarn_pool_tag_set(_texts.instance("pool", Pool, pool)._open(), tag_number(name, "name")))


def sleep(*, save_contents: bool = True, discard: Iterable[str] = (), save: Iterable[str] = (), leave: Iterable[str] = (),
          pools: bool = True, handles: bool = True, pinned: bool = True, sleepers: bool = True) -> Slept:
    """Gives the memory of private pools back to the devices, with handles and pinned memory that nobody has, and what each Sleeper has.
    Addresses stay, and graphs.

    Contents are saved in host memory, or not, as `save_contents` says; pools with the names in `discard`, `save` and `leave`
    (set_pool_tag()) are treated as those say, `leave` being that they stay awake. Nothing may use memory that sleeps until wake().
    After a failure the process is awake, with its contents, unless what failed came too late to undo: sleep_state() tells."""
    kinds, named = _c.tarn_sleep_contents, []
    for argument, names, kind in (("discard", discard, kinds.TARN_SLEEP_DISCARD), ("save", save, kinds.TARN_SLEEP_SAVE),
                                  ("leave", leave, kinds.TARN_SLEEP_LEAVE)):
        if isinstance(names, str):
            raise TypeError(f"{argument}: a list of names is wanted, [{names!r}] instead of {names!r}")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{argument}: names are texts, which {name!r} is not")
            named.append((tag_number(name, argument), kind))
    rules = (_c.tarn_sleep_rule * len(named))(*(_c.tarn_sleep_rule(tag=tag, contents=kind) for tag, kind in named))
    what = pools * _c.TARN_SLEEP_POOLS | handles * _c.TARN_SLEEP_HANDLES | pinned * _c.TARN_SLEEP_PINNED | \
        sleepers * _c.TARN_SLEEP_SLEEPERS
    if not what:
        raise ValueError("sleep: pools, handles, pinned and sleepers are all False, so nothing would sleep")
    options = _c.tarn_sleep_options(size=sizeof(_c.tarn_sleep_options), what=what, rules=rules, rule_count=len(named),
                                    contents=kinds.TARN_SLEEP_SAVE if save_contents else kinds.TARN_SLEEP_DISCARD)
    # C says how many items there are when they can no longer be asked for.
    items = (_c.tarn_residue_item * _MOST_ITEMS).from_buffer(mmap(-1, _MOST_ITEMS * sizeof(_c.tarn_residue_item)))
    residue = _c.tarn_residue(size=sizeof(_c.tarn_residue), items=items, room=len(items))
    _callbacks.check(lib.tarn_sleep(byref(options), byref(residue)))
    return Slept(residue.before, residue.after, residue.saved, [_residue(items[i]) for i in range(min(residue.count, len(items)))])


def wake() -> None:
    """Takes the memory back, at the same addresses. Where a device has no room, what was not taken back goes on to sleep: call it again."""
    _callbacks.check(lib.tarn_wake())


def sleep_state() -> str:
    """Whether the process sleeps: "awake"; "asleep", and wake() is next; "prepared" where a failed sleep() could not be undone, and
    cancel_sleep() is next; or "changes" while another thread is in one of these calls."""
    state = c_int()
    check(lib.tarn_sleep_state_get(byref(state)))
    return _c.tarn_sleep_state(state.value).name.split("_", 2)[2].lower()


def cancel_sleep() -> None:
    """Undoes a sleep that failed and could not be undone then: what has no memory takes it again, and sleepers wake. If the call fails, call
    it again."""
    _callbacks.check(lib.tarn_sleep_cancel())
