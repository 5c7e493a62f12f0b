# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""scripts/torch-tests, with tests of a few lines instead of those of PyTorch, and a module instead of the package."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.environ.get("TARN_NIGHTLY") != "1", reason="the script is for a GPU, and its tests are left to make nightly")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "torch-tests"

TESTS = """
    import os, signal, sys, time
    import pytest

    def on_tarn():
        return getattr(sys.modules.get("tarn"), "enabled", False)

    def helper():
        assert not on_tarn(), "only without tarn"

    def test_passes():
        pass

    def test_skipped():
        pytest.skip("no second GPU")

    def test_fails_on_tarn():
        helper()

    def test_fails_without():
        assert on_tarn()

"""
HARD = """
    def test_hangs_on_tarn():
        if on_tarn():
            time.sleep(1000)

    def test_ends_the_process():
        if on_tarn():
            os.kill(os.getpid(), signal.SIGKILL)

    @pytest.mark.parametrize("value", [1, 2])
    def test_behind(value):
        pass

    def test_disturbed():
        # Fails beside others: the first time on each side.
        mark = os.environ["MARKS"] + ("/seen-on-tarn" if on_tarn() else "/seen")
        if not os.path.exists(mark):
            open(mark, "w").close()
            assert False
"""

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="without the source tree")


@pytest.fixture
def script(tmp_path):
    """Runs the script on a checkout of one file."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_small.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "test" / "test_hard.py").write_text(textwrap.dedent(TESTS + HARD))
    (tmp_path / "tarn" / "torch").mkdir(parents=True)
    (tmp_path / "tarn" / "__init__.py").write_text("enabled = False\n")
    (tmp_path / "tarn" / "torch" / "__init__.py").write_text("import tarn\ndef enable():\n    tarn.enabled = True\n")

    def run(*arguments, file="test_small.py", status=0):
        ended = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path), "--file", file, "--results",
                                str(tmp_path / "results.jsonl"), "--limit", "2", *arguments], capture_output=True, text=True, timeout=120,
                               check=False, env={**os.environ, "PYTHONPATH": str(tmp_path), "MARKS": str(tmp_path)}, cwd=tmp_path)
        assert status is None or ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout

    run.results = tmp_path / "results.jsonl"
    return run


def rows(path):
    """The last row by test and side."""
    found = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "result" in row:
            found[row["test"].split("::")[1], row["tarn"]] = row
    return found


def test_both_sides_are_compared(script):
    printed = script("--jobs", "2", file="test_hard.py", status=1)
    found = rows(script.results)
    assert "9 tests ran on both; of 7 that pass without tarn 4 pass with it" in printed, printed
    assert "native  7 passed, 1 failed, 1 skipped, 0 timeout" in printed
    assert "tarn    5 passed, 2 failed, 1 skipped, 1 timeout" in printed
    assert "only with tarn: test_hard.py::test_fails_without" in printed
    line = 1 + TESTS.splitlines().index('        assert not on_tarn(), "only without tarn"')
    assert found["test_fails_on_tarn", True]["why"].startswith(f"test_hard.py:{line}: AssertionError: only without tarn")
    assert found["test_hangs_on_tarn", True]["result"] == "timeout" and found["test_hangs_on_tarn", True]["round"] == 3
    assert "status -9" in found["test_ends_the_process", True]["why"]
    assert found["test_behind[2]", True]["result"] == "passed"
    assert found["test_disturbed", True]["result"] == found["test_disturbed", False]["result"] == "passed"
    assert (found["test_passes", True]["round"], found["test_disturbed", True]["round"]) == (1, 2)


def test_a_run_goes_on_where_it_ended(script):
    whole = script(status=1)
    lines = script.results.read_text().splitlines()
    cut = lines[:4] + [lines[4][:20]]
    script.results.write_text("\n".join(cut) + "\n")
    assert script(status=1) == whole
    again = script.results.read_text()
    assert script(status=1) == whole
    assert script.results.read_text() == again


def test_time_that_is_up_leaves_tests(script):
    assert "tests are left" in script("--seconds", "0", status=75)
    assert rows(script.results) == {}


def test_shards_take_all_tests_once(script):
    for part in ("1/2", "2/2"):
        script("--shard", part, status=None)
    assert len(rows(script.results)) == 8


def test_a_side_that_cannot_start_fails_at_once(script, tmp_path):
    (tmp_path / "tarn" / "torch" / "__init__.py").write_text("def enable():\n    raise RuntimeError('no shim')\n")
    script(status=1)
    assert all(row["result"] == "failed" and "no shim" in row["why"] for (_, on_tarn), row in rows(script.results).items() if on_tarn)
