# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

import ctypes
import os
import pickle
import subprocess
import types

import pytest

import tarn


def test_statistics_have_pytorchs_keys():
    stats = tarn.memory_stats()
    for key in ("allocation.all.current", "reserved_bytes.large_pool.peak", "inactive_split_bytes.small_pool.freed", "num_ooms",
                "max_split_size", "oversize_segments.allocated", "requested_bytes.all.current", "num_sync_all_streams"):
        assert key in stats
    assert list(stats) == sorted(stats)
    block = tarn.alloc(10 << 20)
    tarn.reset_peak_memory_stats()
    assert tarn.max_memory_allocated() == tarn.memory_allocated() >= 10 << 20
    assert tarn.memory_reserved() >= tarn.memory_allocated()
    block.close()
    assert tarn.max_memory_allocated() >= 10 << 20 and tarn.max_memory_reserved() >= 10 << 20
    tarn.reset_accumulated_memory_stats()
    assert tarn.memory_stats()["allocation.all.freed"] == 0


def test_a_snapshot_is_a_dictionary_and_a_file_that_is_reported(tmp_path):
    tarn.trace_start(regions=True)
    try:
        with tarn.region("step 1"):
            block = tarn.alloc(3 << 20, tag="weights")
        kept, lost = tarn.trace_count()
        assert kept >= 1 and lost == 0
        found = tarn.snapshot()
        assert any(part["address"] == block.ptr and part["state"] == "active_allocated"
                   for segment in found["segments"] for part in segment["blocks"])
        path = tmp_path / "snapshot.pickle"
        tarn.dump_snapshot(path)
        assert pickle.loads(path.read_bytes())["segments"]
        tarn.dump_snapshot(tmp_path / "timeline.json", format="chrome")
        block.close()
    finally:
        tarn.trace_stop()
        tarn.trace_clear()
    if "TARN_PROGRAM" not in os.environ:
        from tarn._library import program
        try:
            program()
        except FileNotFoundError:
            pytest.skip("the program tarn is not built")
    text = tarn.report(path, output=tmp_path / "page.html")
    assert "3.00 MiB" in text
    assert "<html" in (tmp_path / "page.html").read_text()[:200].lower()
    with pytest.raises(ValueError, match="no-such"):
        tarn.report(tmp_path / "no-such.pickle")


def test_a_block_that_grew_has_its_tag_in_the_trace():
    tarn.trace_start()
    try:
        tarn.alloc(32 << 20).close()  # so that there is room behind
        blocks = {tarn.alloc(100, tag="small"): 300, tarn.alloc(2 << 20, tag="large"): 3 << 20}
        for block, size in blocks.items():
            block.extend(size)
        last = {}
        for event in tarn.snapshot()["device_traces"][0]:
            if event["action"] == "alloc":
                last[event["addr"]] = event["size"], event.get("user_metadata")
        assert [last[block.ptr] for block in blocks] == [(300, "small"), (3 << 20, "large")]
    finally:
        tarn.trace_stop()
        tarn.trace_clear()


def test_what_is_no_option_is_refused(tmp_path):
    with pytest.raises(ValueError, match="jpeg"):
        tarn.dump_snapshot(tmp_path / "x", format="jpeg")
    with pytest.raises(ValueError, match="some"):
        tarn.trace_start(stacks="some")
    with pytest.raises(tarn.SystemCallError):
        tarn.dump_snapshot(tmp_path / "no-such-folder" / "x")
    assert not list(tmp_path.iterdir())


def test_metrics_are_text_for_prometheus():
    text = tarn.metrics()
    assert "# TYPE tarn_" in text and text.endswith("\n")


def test_metrics_are_utf8_whatever_a_process_is_called(python):
    """Prometheus refuses all of a text that is not, also what other processes have in it."""
    text = python("import tarn; tarn.alloc(5); print(ascii(tarn.metrics()))", TARN_LIVE_NAME='\u00e9"\udcff\udcc3')
    assert 'process="\\xe9\\\\"??"' in text


def test_configuration_is_read_back():
    before = tarn.configuration()
    tarn.configure("compaction:on_oom")
    assert "on_oom" in tarn.configuration()
    tarn.configure("all:default")
    tarn.configure(before)
    assert tarn.configuration() == before


def test_configuration_with_a_path_that_is_no_utf8(python, tmp_path):
    from tarn._library import program
    log, plan = tmp_path / "log.csv", tmp_path / "\udcff"
    log.write_text("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01,allocate,0x10000000,100000,0x0\n")
    subprocess.run([program(), "plan", log, "-o", plan, "--seconds", "0"], check=True, stdout=subprocess.DEVNULL)
    text = python("""
        import tarn
        before = tarn.configuration()
        tarn.configure(before)
        print(ascii(before), tarn.configuration() == before)
        """, TARN_ALLOC_CONF=f"plan:{plan}")
    assert "\\udcff" in text and text.endswith("True\n")


def test_the_module_runs_the_program():
    import sys
    ended = subprocess.run([sys.executable, "-m", "tarn", "--version"], capture_output=True, text=True)
    if "not installed" in ended.stderr:
        pytest.skip("the program tarn is not built")
    assert ended.returncode == 0 and tarn.__version__ in ended.stdout


def test_a_file_whose_name_looks_like_an_option(tmp_path, monkeypatch):
    from tarn._library import program
    try:
        program()
    except FileNotFoundError:
        pytest.skip("the program tarn is not built")
    monkeypatch.chdir(tmp_path)
    for name in ("-x.pickle", "--text", "-"):
        tarn.dump_snapshot(name)
        assert "device" in tarn.report(name, output="-page.html") and (tmp_path / "-page.html").exists()
        assert "device" in tarn.report(tmp_path / name, name)
        os.unlink("-page.html")


def test_a_graph_is_checked_by_its_handle():
    lib, stream, graph = tarn.adaptors.lib, tarn.Stream(), ctypes.c_void_p()
    block = tarn.alloc(4096, stream=stream)
    assert tarn.capture_graph(stream) == 0
    tarn.errors.check(lib.tarn_capture_begin(stream.value, 0))
    captured = tarn.capture_graph(stream)
    tarn.errors.check(lib.tarn_host_fill(0, stream.native, block.ptr, 1, 4096))
    number = tarn.remember_graph(captured)
    tarn.errors.check(lib.tarn_capture_end(stream.value, ctypes.byref(graph)))
    assert graph.value == captured
    for found in (tarn.graph_check(graph.value, all=True), tarn.graph_check(remembered=number, all=True)):
        assert (found.verdict, found.nodes, found.remembered) == ("clean", 1, True)
        assert [(it.state, it.certainty, it.freed_at) for it in found.findings] == [("live", "", "")]
        assert (found.certain, found.likely, found.perhaps, found.unseen, found.references) == (0, 0, 0, 0, 1)
        it, = found.findings
        assert (it.device, it.pool, it.parameter_bytes) == (0, tarn.Pool.default(0).id, 4096) and it.native
    block.close()
    checked = tarn.graph_check(remembered=number)
    assert (checked.certain, checked.likely, checked.perhaps) == (1, 0, 0)
    found, = checked.findings
    assert (found.certainty, found.state, found.kind, found.requested) == ("certain", "free", "fill", 4096)
    assert found.remembered_at and found.freed_at
    tarn.errors.check(lib.tarn_host_graph_destroy(graph))
    for wrong in ({"graph": 0}, {"remembered": number}, {"graph": 1, "remembered": number}):
        with pytest.raises(tarn.InvalidArgumentError):
            tarn.graph_check(**wrong)
    for call in (tarn.graph_check, tarn.remember_graph):
        with pytest.raises(OverflowError, match="graph: "):
            call(1 << 70)
        with pytest.raises(ValueError, match="graph: -1 is negative"):
            call(-1)


def test_what_a_check_gives_has_all_fields_of_the_structures():
    from tarn import _c
    for given, structure in ((tarn.GraphCheck, _c.tarn_graph_summary), (tarn.GraphReference, _c.tarn_graph_reference)):
        assert {name for name, _ in structure._fields_} - {"size"} == set(given._fields) - {"findings"}


def test_a_finding_says_where_its_block_was_allocated():
    lib, stream, graph = tarn.adaptors.lib, tarn.Stream(), ctypes.c_void_p()
    tarn.trace_start(stacks="alloc")
    with tarn.region("step 3"):
        block = tarn.alloc(4096, stream=stream)
    tarn.errors.check(lib.tarn_capture_begin(stream.value, 0))
    tarn.errors.check(lib.tarn_host_fill(0, stream.native, block.ptr, 1, 4096))
    tarn.errors.check(lib.tarn_capture_end(stream.value, ctypes.byref(graph)))
    tarn.remember_graph(graph)
    tarn.trace_stop()
    block.close()
    found, = tarn.graph_check(graph).findings
    assert found.region == "step 3" and found.allocated_at
    assert "tarn_alloc" not in found.allocated_at and "libtarn" not in found.allocated_at
    tarn.errors.check(lib.tarn_host_graph_destroy(graph))


class _CuPyStream:
    """A stream as CuPy's is, and its graph, of which CuPy 14 keeps only the executable."""

    def __init__(self, stream):
        self._stream, self.ptr = stream, stream.native

    def begin_capture(self):
        tarn.errors.check(tarn.adaptors.lib.tarn_capture_begin(self._stream.value, 0))

    def end_capture(self):
        graph = ctypes.c_void_p()
        tarn.errors.check(tarn.adaptors.lib.tarn_capture_end(self._stream.value, ctypes.byref(graph)))
        return types.SimpleNamespace(graph=0, graphExec=graph.value)


def test_a_graph_of_cupy_is_remembered_before_its_capture_ends():
    own = tarn.Stream()
    stream, block = _CuPyStream(own), tarn.alloc(4096, stream=own)
    stream.begin_capture()
    tarn.errors.check(tarn.adaptors.lib.tarn_host_fill(0, stream.ptr, block.ptr, 1, 4096))
    number = tarn.remember_graph(tarn.capture_graph(stream))
    graph = stream.end_capture()
    assert tarn.graph_launch(graph.graphExec, number, stream) == []
    block.close()
    assert [it.certainty for it in tarn.graph_launch(ctypes.c_void_p(graph.graphExec), number, stream)] == ["certain"]
    for wrong in (number + 1, 0):
        with pytest.raises(tarn.InvalidArgumentError):
            tarn.graph_launch(graph.graphExec, wrong, stream)
    own.synchronize()
    with pytest.raises(tarn.InvalidArgumentError, match="graph is NULL"):
        tarn.graph_check(graph.graph)
    tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(graph.graphExec))


def test_a_graph_of_warp_is_checked_by_its_c_void_p():
    stream, handle = tarn.Stream(), ctypes.c_void_p()
    block = tarn.alloc(4096, stream=stream)
    tarn.errors.check(tarn.adaptors.lib.tarn_capture_begin(stream.value, 0))
    tarn.errors.check(tarn.adaptors.lib.tarn_host_fill(0, stream.native, block.ptr, 1, 4096))
    tarn.errors.check(tarn.adaptors.lib.tarn_capture_end(stream.value, ctypes.byref(handle)))
    capture = types.SimpleNamespace(graph=types.SimpleNamespace(graph=handle, graph_exec=None))
    number = tarn.remember_graph(capture.graph.graph)
    assert number and tarn.graph_check(capture.graph.graph).verdict == "clean"
    block.close()
    assert [it.certainty for it in tarn.graph_check(capture.graph.graph).findings] == ["certain"]
    tarn.errors.check(tarn.adaptors.lib.tarn_host_graph_destroy(handle))
