# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What programs see of PyTorch's own allocator beyond tensors: texts, types of errors, histories, counters. Each test passes with and without
tarn (TARN_TORCH_OFF=1), except for what is tarn's own."""
# The bodies below run as programs of their own, after the prologue of conftest.py.
# ruff: noqa: F821
# mypy: ignore-errors

import os

import pytest

OFF = bool(os.environ.get("TARN_TORCH_OFF"))


def test_out_of_memory_has_pytorchs_words(program):
    def body():
        torch.cuda.set_per_process_memory_fraction(0.02)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            text = str(error)
        for words in ("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of ", " is free. ", "memory in use", " allowed; ",
                      "is allocated by PyTorch, with 8.00 MiB allocated in private pools (e.g., CUDA Graphs), and ",
                      "is reserved by PyTorch but unallocated"):
            assert words in text, (words, text)
        stats = torch.cuda.memory_stats()
        assert stats["num_alloc_retries"] >= 1 and stats["num_ooms"] == 1, stats
    program(body)


def test_errors_that_stay_are_accelerator_errors(program):
    def body():
        spare = torch.empty(8 * MIB, dtype=torch.uint8, pin_memory=True)
        torch.zeros(1, device="cuda")[torch.tensor([5], device="cuda")]
        # Device memory is no such call: the driver maps new memory without a word about the error (H100, 580.159.04).
        for call in (torch.cuda.synchronize, lambda: torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)):
            try:
                call()
            except torch.AcceleratorError as error:
                assert "device-side assert" in str(error), error
            else:
                raise AssertionError("no error")
        sys.stdout.flush()
        os._exit(0)  # destructors would fail
    program(body)


def test_frees_have_a_stack_and_a_pool(program):
    def body():
        torch.cuda.memory._record_memory_history(context="alloc", max_entries=1000)
        pool = torch.cuda.MemPool()
        def who_allocates():
            return torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
        with torch.cuda.use_mem_pool(pool):
            inside = who_allocates()
        outside = who_allocates()
        del inside, outside
        traces = torch.cuda.memory._snapshot()["device_traces"][0]
        frees = [event for event in traces if event["action"] in ("free_requested", "free_completed")]
        assert len(frees) == 4, frees
        for event in frees:
            assert any(frame["name"] == "who_allocates" for frame in event["frames"]), event
        for arguments in ((pool.id,), (pool.id, True), ((pool.id, True),)):  # which has changed
            try:
                found = torch._C._cuda_memorySnapshot(*arguments)
            except TypeError:
                continue
            break
        actions = [event["action"] for event in found["device_traces"][0] if event["action"] in ("alloc", "free_requested", "free_completed")]
        assert actions == ["alloc", "free_requested", "free_completed"], actions
    program(body)


def test_annotations_are_bounded(program):
    def body():
        torch.cuda.memory._record_memory_history(max_entries=10, global_record_annotations=True)
        a = torch.ones(10, device="cuda")
        for i in range(4000):
            with torch.profiler.record_function(f"step {i}"):
                pass
        notes = torch.cuda.memory._snapshot().get("external_annotations", [])
        assert len(notes) <= 10, len(notes)
        torch.cuda.memory._record_memory_history(enabled=None)
        assert not torch.cuda.memory._snapshot().get("external_annotations", [])
    program(body)


def test_a_child_frees_in_silence(program):
    def body():
        a = torch.ones(1000, device="cuda")
        page = torch.empty(1000, pin_memory=True)
        torch.cuda.synchronize()
        sys.stdout.flush()
        ends = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(ends[1], 2)
            del a, page
            gc.collect()
            os._exit(0)
        os.close(ends[1])
        said = os.read(ends[0], 10000)
        assert os.waitpid(child, 0)[1] == 0 and said == b"", said
        assert a.sum().item() == 1000
    program(body)


def test_pinned_memory_makes_no_second_context(program):
    def body():
        if torch.cuda.device_count() < 2:
            sys.exit(0)
        a = torch.ones(10, device="cuda:1")
        page = torch.empty(MIB, pin_memory=True)
        assert page.is_pinned() and not torch._C._cuda_hasPrimaryContext(0)
    program(body)


@pytest.mark.skipif(OFF, reason="tarn's own")
def test_devices_are_named_as_in_pytorch(program):
    def body():
        a = torch.ones(MIB, dtype=torch.uint8, device="cuda")
        for device in ("cuda:0", "cuda", torch.device("cuda", 0), 0, None):
            assert tarn.torch.memory_stats(device)["allocated_bytes.all.current"] == torch.cuda.memory_allocated(device), device
        before = tarn.torch.limit(device="cuda:0")
        assert tarn.torch.limit(8 << 30, device=torch.device("cuda:0")) == 8 << 30
        assert tarn.torch.limit(before, device="cuda:0") == before
    program(body)


@pytest.mark.skipif(OFF, reason="tarn's own")
def test_a_reload_changes_nothing(program):
    def body():
        import importlib
        a = torch.ones(MIB, device="cuda")
        importlib.reload(tarn.torch.processes)
        importlib.reload(tarn.torch)
        assert tarn.torch.is_enabled()
        tarn.torch.enable()
        assert a.sum().item() == MIB and torch.cuda.get_allocator_backend() == "tarn"
    program(body)
