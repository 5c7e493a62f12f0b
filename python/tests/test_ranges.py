# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

import json
import os
import pickle
import subprocess

import pytest

import tarn
from tarn._library import lib

PAGE = 2 << 20


def test_pages_come_and_go():
    with tarn.Range(16 * PAGE) as pages:
        assert (pages.info.nbytes, pages.info.page, pages.info.pool) == (16 * PAGE, PAGE, (0, 0))
        assert pages.ptr == pages.info.address and pages.device == tarn.Device(0)
        stream = tarn.Stream()
        pages.commit(0, 2 * PAGE, stream)
        assert pages.info.committed == 2 * PAGE
        pages.decommit(PAGE, PAGE, stream)
        assert (pages.info.committed, pages.info.decommitted) == (PAGE, PAGE)
        pages.commit(PAGE, PAGE)  # after the stream's work
        with pytest.raises(tarn.InvalidArgumentError, match="committed already"):
            pages.commit(PAGE, PAGE)
        with pytest.raises(tarn.InvalidArgumentError, match="whole pages"):
            pages.commit(0, 100)
        with pytest.raises(tarn.InvalidArgumentError, match="outside the range"):
            pages.commit(16 * PAGE, PAGE)
        with pytest.raises(ValueError, match="offset"):
            pages.commit(-PAGE, PAGE)
    assert repr(pages) == "<tarn.Range, closed>"
    pages.close()


def test_two_threads_close_a_range(monkeypatch):
    """While one is in C, the other has nothing left to do: a new range may have the place of the old one by then."""
    pages, destroy = tarn.Range(PAGE), lib.tarn_range_destroy

    def beside(pointer):
        monkeypatch.undo()
        pages.close()
        return destroy(pointer)

    monkeypatch.setattr(lib, "tarn_range_destroy", beside)
    pages.close()


def test_the_pool_limits_and_counts():
    pool = tarn.Pool(limit=4 * PAGE)
    pages = tarn.Range(64 * PAGE, pool=pool, page=2 * PAGE, tag="cache")
    assert pages.info.page == 2 * PAGE and pages.info.pool == pool.id
    pages.commit(0, 4 * PAGE)
    assert pool.stats()["reserved_bytes.all.current"] == 4 * PAGE
    with pytest.raises(tarn.OutOfMemoryError, match="a commit of a range needs"):
        pages.commit(8 * PAGE, 2 * PAGE)
    pages.decommit(0, 4 * PAGE)
    pages.commit(8 * PAGE, 2 * PAGE)
    del pages
    pool.trim()
    assert pool.stats()["reserved_bytes.all.current"] == 0


def test_held_pages_stay():
    pages = tarn.Range(4 * PAGE)
    pages.commit(0, PAGE)
    pages.hold(0, PAGE)
    with pytest.raises(tarn.BusyError, match="held"):
        pages.decommit(0, PAGE)
    with pytest.raises(tarn.BusyError):
        pages.close()
    pages.unhold(0, PAGE)
    pages.decommit(0, PAGE)
    pages.close()


def test_wrong_arguments_are_named():
    for arguments in ({"pool": 5}, {"tag": 5}, {"tag": 0}, {"page": "x"}):
        with pytest.raises(TypeError, match=f"^{next(iter(arguments))}: "):
            tarn.Range(PAGE, **arguments)
    pool = tarn.Pool()
    pool.close()
    with pytest.raises(tarn.InvalidArgumentError, match="the pool was closed"):
        tarn.Range(PAGE, pool=pool)
    pages = tarn.Range(PAGE)
    pages.commit(0, PAGE)
    for graph in ("x", b"x", 1.5):
        for call in (lambda: pages.hold(0, PAGE, graph), lambda: tarn.graph_check(graph), lambda: tarn.remember_graph(graph)):
            with pytest.raises(TypeError, match="^graph: "):
                call()
    pages.decommit(0, PAGE)
    pages.close()
    for call in (lambda: pages.info, *(lambda call=call: call(0, PAGE) for call in (pages.commit, pages.decommit, pages.hold, pages.unhold))):
        with pytest.raises(tarn.InvalidArgumentError, match="the range was closed"):
            call()


def test_a_range_is_neither_an_array_nor_copied():
    pages = tarn.Range(PAGE)
    with pytest.raises(BufferError, match="pages come and go"):
        pages.__dlpack__()
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(pages)
    pages.close()


def plan_of(recording, output):
    """What `tarn plan` says, as JSON."""
    if "TARN_PROGRAM" not in os.environ:
        pytest.skip("needs the program `tarn` (TARN_PROGRAM)")
    command = [os.environ["TARN_PROGRAM"], "plan", "--json", "--steps", "100000", recording, "-o", output]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout)


BESIDE_BLOCKS = """
import os, random, tarn
random.seed(7)
pages, live, committed, free = tarn.Range(256 << 20), [], [], list(range(64))
for i in range(230):
    if i % 8:
        live.append(tarn.alloc(random.randrange(1, 24) << 19))
        if len(live) > 20:
            live.pop(random.randrange(len(live))).close()
        continue
    if len(committed) > 8:
        free.append(committed.pop(random.randrange(len(committed))))
        pages.decommit(free[-1] << 21, 1 << 21)
    committed.append(free.pop(0))
    pages.commit(committed[-1] << 21, 1 << 21)
if "RECORDING" in os.environ:
    tarn.dump_snapshot(os.environ["RECORDING"])
print(tarn.max_memory_reserved())
"""


def test_the_device_that_a_plan_promises_has_room_for_ranges(python, tmp_path):
    recording, plan = str(tmp_path / "recording.pickle"), str(tmp_path / "plan")
    python(BESIDE_BLOCKS, TARN_TRACE="1", RECORDING=recording, TARN_HOST_DEVICES="1", TARN_HOST_MEMORY="1G")
    said = plan_of(recording, plan)
    assert said["planned"] == said["allocations"] == 201 and said["ranges"] == 9 * PAGE
    promised = said["smallest_device"]["plan"]
    assert said["peak_requested"] <= promised < said["smallest_device"]["tarn"]
    reserved = python(BESIDE_BLOCKS, TARN_ALLOC_CONF=f"plan:{plan}", TARN_HOST_DEVICES="1", TARN_HOST_MEMORY=str(promised))
    assert int(reserved) <= promised


def test_pools_that_follow_no_plan_are_not_planned(owner, python, tmp_path):
    recording = str(tmp_path / "recording.pickle")
    python("""
        import os, tarn
        pools = [tarn.keep("weights", segment=8 << 20), tarn.Pool(registrable=True), tarn.Pool(), None]
        blocks = [tarn.alloc(1 << 20, pool=pool) for pool in pools for _ in range(3)]
        tarn.dump_snapshot(os.environ["RECORDING"])
        del blocks
        """, TARN_TRACE="1", RECORDING=recording)
    said = plan_of(recording, str(tmp_path / "plan"))
    assert said["planned"] == 6 and [arena["pool"] for arena in said["arenas"]] == [1, 0]
