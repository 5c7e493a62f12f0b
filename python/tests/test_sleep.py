# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""The whole process asleep, and awake again."""

import ctypes
import gc

import pytest

import tarn

MIB = 1 << 20


def filled(pool, size, byte):
    """A block of a pool whose bytes are known."""
    with pool:
        block = tarn.alloc(size)
    ctypes.memset(block.ptr, byte, size)  # the host device
    return block


def test_pools_sleep_with_their_contents():
    with tarn.Pool() as first, tarn.Pool() as second:
        pass
    tarn.set_pool_tag(second, "cache")
    kept, lost = filled(first, 8 * MIB, 7), filled(second, 8 * MIB, 9)
    addresses, outside = (kept.ptr, lost.ptr), tarn.alloc(4 * MIB)
    slept = tarn.sleep(discard=["cache"])
    assert slept.before - slept.after >= 16 * MIB and 8 * MIB <= slept.saved < 16 * MIB, slept
    assert tarn.memory_reserved() == slept.after
    stays = [item for item in slept.residue if item.reason == "default_pool"]
    assert stays and stays[0].bytes >= 4 * MIB and stays[0].device == 0 and "default pool" in stays[0].text
    with pytest.raises(tarn.SuspendedError), first:
        tarn.alloc(MIB)
    tarn.wake()
    assert (kept.ptr, lost.ptr) == addresses and ctypes.string_at(kept.ptr, 8 * MIB) == bytes([7]) * (8 * MIB)
    for block in (kept, lost, outside):
        block.close()
    first.close()
    second.close()


def test_names_choose_who_stays_awake():
    with tarn.Pool() as pool:
        block = tarn.alloc(4 * MIB)
    tarn.set_pool_tag(pool, "weights")
    slept = tarn.sleep(leave=["weights"], handles=False, pinned=False)
    assert [item.bytes >= 4 * MIB for item in slept.residue if item.reason == "left"] == [True], slept
    tarn.wake()
    tarn.set_pool_tag(pool, None)
    assert tarn.sleep(leave=["weights"], save_contents=False).saved == 0
    with pytest.raises(tarn.BusyError):
        tarn.sleep()
    tarn.wake()
    block.close()
    pool.close()


def test_all_that_stays_is_listed(python):
    assert python("""
        import tarn
        pools = [tarn.Pool() for _ in range(300)]
        blocks = [pool.alloc(1000) for pool in pools]
        for pool in pools:
            tarn.set_pool_tag(pool, "weights")
        stays = [item.pool for item in tarn.sleep(leave=["weights"]).residue if item.reason == "left"]
        print(len(stays), set(stays) == {pool.id for pool in pools})
        """, TARN_HOST_MEMORY="1G") == "300 True\n"


def test_a_sleeper_goes_first_and_comes_last():
    with tarn.Pool() as pool:
        block = tarn.alloc(4 * MIB)
    done, refuses = [], [True]

    def says(what):
        def call():
            done.append(what)
            if what == "prepare" and refuses[0]:
                raise tarn.BusyError("a collective runs")
            if what == "commit" and "fails" in done:
                raise RuntimeError("no link")
        return call
    sleeper = tarn.Sleeper("a communicator", prepare=says("prepare"), commit=says("commit"), wake=says("wake"), cancel=says("cancel"),
                           held=lambda: 12345, pool=pool, device=0)
    stays = [item for item in tarn.sleep().residue if item.reason == "sleeper"]
    assert len(stays) == 1 and stays[0].bytes == 12345 and "a communicator" in stays[0].sleeper and "a collective runs" in stays[0].sleeper, stays
    assert "a collective runs" in sleeper.why
    tarn.wake()
    assert done == ["prepare"]
    refuses[0] = False
    tarn.sleep()
    tarn.wake()
    assert done == ["prepare", "prepare", "commit", "wake"] and not sleeper.why
    done.append("fails")
    with pytest.raises(tarn.TarnError, match="a communicator.*no link"):
        tarn.sleep()  # which cancels itself
    assert done[5:] == ["prepare", "commit", "wake"]
    sleeper.close()
    sleeper.close()
    tarn.sleep()
    tarn.wake()
    assert len(done) == 8
    block.close()
    pool.close()


class Library:
    """Registers a pool as communication libraries do: it keeps the physical memory that it found."""

    def __init__(self, pool):
        self.pool, self.known, self.fails = pool, {}, False

    def register(self):
        if self.fails:
            raise RuntimeError("no link")
        for segment in self.pool.segments():
            self.known.setdefault(segment.address, segment.generation)

    def deregister(self):
        self.known.clear()

    def reads_old_memory(self):
        there = {segment.address: segment.generation for segment in self.pool.segments()}
        return any(there.get(address) != generation for address, generation in self.known.items())


def test_what_is_registered_stays_until_a_sleep_deregisters_it():
    pool = tarn.Pool(registrable=True)
    with pool:
        blocks = [tarn.alloc(40 * MIB) for _ in range(2)]
    ctypes.memset(blocks[0].ptr, 7, 40 * MIB)
    library = Library(pool)
    registration = tarn.Registration(pool, library.register, library.deregister)
    assert len(library.known) == 2 and registration.update() == 2
    with pytest.raises(tarn.BusyError):
        pool.suspend()
    with pool:
        blocks.append(tarn.alloc(40 * MIB))
    assert registration.update() == 3 and len(library.known) == 3
    blocks.pop().close()
    pool.trim()
    assert len(pool.segments()) == 3 and not library.reads_old_memory()  # the library has it
    slept = tarn.sleep()
    assert slept.after == 0 and not slept.residue and not library.known, slept
    tarn.wake()
    assert len(library.known) == 2 and not library.reads_old_memory()  # the third has no block by which to anchor it
    assert ctypes.string_at(blocks[0].ptr, 40 * MIB) == bytes([7]) * (40 * MIB)
    library.fails = True
    tarn.sleep()
    with pytest.raises(tarn.TarnError, match="no link"):
        tarn.wake()
    library.fails = False
    tarn.wake()
    assert len(library.known) == 2 and not library.reads_old_memory()
    registration.close()
    registration.close()
    assert not library.known
    pool.suspend()
    pool.resume()
    for block in blocks:
        block.close()
    pool.close()


def test_nothing_to_do_is_an_error():
    with pytest.raises(ValueError, match="nothing would sleep"):
        tarn.sleep(pools=False, handles=False, pinned=False, sleepers=False)
    with pytest.raises(tarn.TarnError):
        tarn.wake()


def test_a_sleeper_takes_part_until_it_is_closed():
    done = []
    number = tarn.Sleeper("nobody keeps it", commit=lambda: done.append("commit"), wake=lambda: done.append("wake")).number
    gc.collect()
    tarn.sleep()
    tarn.wake()
    assert done == ["commit", "wake"]
    sleeper = next(one for one in gc.get_objects() if isinstance(one, tarn.Sleeper) and one.number == number)
    sleeper.close()
    with pytest.raises(tarn.InvalidArgumentError, match="the sleeper was closed"):
        sleeper.why
    tarn.sleep()
    tarn.wake()
    assert len(done) == 2


class Untold(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_nothing_is_called_when_the_interpreter_has_ended(python):
    """It may end before the process does: a program that embeds it, or a subinterpreter."""
    assert python("""
        import atexit, tarn

        def called(*_):
            print("called")

        kept = [tarn.Sleeper("a sleeper", commit=called, wake=called), tarn.Spiller(called, before_growth=called)]
        atexit._run_exitfuncs()
        tarn.sleep()
        tarn.wake()
        try:
            tarn.alloc(1 << 40)
        except tarn.OutOfMemoryError:
            print(tarn.alloc(100).nbytes)
        """) == "100\n"


@pytest.mark.parametrize("error", [RuntimeError("\udcff"), Untold(), RuntimeError("\u00e9" * 1000)])
def test_whatever_a_failure_says_it_is_a_failure(error):
    def fails():
        raise error
    sleeper = tarn.Sleeper("fails", commit=fails, wake=lambda: None)
    with pytest.raises(tarn.TarnError, match="commit of the sleeper fails"):
        tarn.sleep()
    assert tarn.sleep_state() == "awake"
    sleeper.close()


def test_a_sleep_that_cannot_be_undone_is_cancelled_later():
    link = [False]

    def needs_link():
        if not link[0]:
            raise RuntimeError("no link")
    sleeper = tarn.Sleeper("a communicator", commit=needs_link, wake=needs_link)
    assert tarn.sleep_state() == "awake"
    with pytest.raises(tarn.TarnError, match="commit.*no link"):
        tarn.sleep()
    assert tarn.sleep_state() == "prepared"
    with pytest.raises(tarn.TarnError, match="wake.*no link"):
        tarn.cancel_sleep()
    link[0] = True
    tarn.cancel_sleep()
    assert tarn.sleep_state() == "awake"
    tarn.sleep()
    assert tarn.sleep_state() == "asleep"
    tarn.wake()
    sleeper.close()


def test_a_registration_that_fails_holds_nothing():
    pool, calls = tarn.Pool(registrable=True), []
    with pool:
        block = tarn.alloc(4 * MIB)

    def fails():
        raise RuntimeError("no link")
    with pytest.raises(RuntimeError, match="no link"):
        tarn.Registration(pool, fails, lambda: calls.append("deregister"))
    assert calls == ["deregister"]
    pool.suspend()
    pool.resume()
    block.close()
    pool.close()


def test_a_registration_leaves_a_pool_that_was_suspended_before():
    pool, registered = tarn.Pool(registrable=True), []
    registration = tarn.Registration(pool, lambda: registered.append(len(pool.segments())), registered.clear)
    pool.suspend()
    tarn.sleep()
    tarn.wake()
    assert tarn.sleep_state() == "awake" and pool.is_suspended and not registered
    pool.resume()
    with pool:
        block = tarn.alloc(4 * MIB)
    registration.update()
    assert registered == [1]
    registration.close()
    block.close()
    pool.close()


def test_a_sleeper_of_a_closed_pool_is_refused():
    pool = tarn.Pool()
    pool.close()
    with pytest.raises(tarn.InvalidArgumentError, match="closed"):
        tarn.Sleeper("late", commit=lambda: None, wake=lambda: None, pool=pool)


def test_names_are_given_in_a_list():
    for argument in ("discard", "save", "leave"):
        with pytest.raises(TypeError, match=f"{argument}: a list of names is wanted, .'cache'."):
            tarn.sleep(**{argument: "cache"})
        for wrong in ([1], b"cache", [b"cache"]):
            with pytest.raises(TypeError, match=f"{argument}: names are texts"):
                tarn.sleep(**{argument: wrong})
    assert tarn.sleep_state() == "awake"


def test_what_ends_the_program_goes_through_a_callback():
    """Ctrl-C in a callback goes on as Ctrl-C; what a callback raises otherwise is the cause of the error."""
    raised = []

    def fails():
        raise raised[-1]
    for end in (KeyboardInterrupt(), SystemExit(3)):
        raised.append(end)
        for where in ("prepare", "commit", "held"):
            callbacks = {"commit": int, "wake": int, where: fails}
            sleeper = tarn.Sleeper("one", **callbacks)
            with pytest.raises(type(end)) as caught:
                tarn.sleep()
            assert caught.value is end
            sleeper.close()
            if tarn.sleep_state() == "asleep":
                tarn.wake()
            assert tarn.sleep_state() == "awake"
    raised.append(RuntimeError("no link"))
    sleeper = tarn.Sleeper("one", commit=fails, wake=int)
    error = pytest.raises(tarn.LibraryError, tarn.sleep).value
    assert error.__cause__ is raised[-1] and "no link" in str(error)
    sleeper.close()
    sleeper = tarn.Sleeper("one", commit=int, wake=int, cancel=int, held=lambda: "many")
    tarn.sleep()
    tarn.wake()
    sleeper.close()


def test_what_ends_the_program_goes_through_a_snapshot(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
    for module, call in ((tarn.snapshots, tarn.snapshot), (tarn.stats, tarn.metrics)):
        monkeypatch.setattr(module, "string_at", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call()
