# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Captures that fail. PyTorch's own allocator keeps what they leave, so only tarn is tried."""
# The bodies below run as programs of their own, after the prologue of conftest.py.
# ruff: noqa: F821
# mypy: ignore-errors

import os

import pytest

pytestmark = pytest.mark.skipif(bool(os.environ.get("TARN_TORCH_OFF")), reason="tarn's own")


def test_failed_captures_lose_no_memory(program):
    def body():
        side = torch.cuda.Stream()
        def fail():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(side):
                graph.capture_begin(capture_error_mode="thread_local")
                served = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
                for spoil in (side.synchronize, graph.capture_end):
                    try:
                        spoil()
                    except RuntimeError:
                        continue
                    raise AssertionError(f"no error of {spoil}")
        for _ in range(40):
            fail()
            block = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
            block.record_stream(side)
            del block
        assert torch.cuda.memory_reserved() <= 300 * MIB, torch.cuda.memory_reserved()
        fail()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == torch.cuda.memory_allocated() == 0, torch.cuda.memory_reserved()
    program(body)


def test_failed_captures_bar_nothing(program):
    def body():
        side = torch.cuda.Stream()
        def fail(allocates):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(side):
                graph.capture_begin(capture_error_mode="thread_local")
                served = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") if allocates else None
                for spoil in (side.synchronize, graph.capture_end):
                    try:
                        spoil()
                    except RuntimeError:
                        continue
                    raise AssertionError(f"no error of {spoil}")
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = torch.full((4 * MIB,), 3, dtype=torch.uint8, device="cuda")
        for allocates in (True, False):
            fail(allocates)
            tarn.torch.compact()
            fail(allocates)
            tarn.torch.sleep()
            tarn.torch.wake()
            fail(allocates)
            tarn.torch.sleep([pool])
            tarn.torch.wake([pool])
            spare = torch.empty(32 * MIB, dtype=torch.uint8, pin_memory=True)
            del spare
            fail(allocates)
            torch._C._host_emptyCache()
            assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 0
        assert int(kept[5]) == 3
        # The next capture on the stream is whole.
        x = torch.full((MIB,), 2.0, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            y = x * 3
        x.fill_(5.0)
        graph.replay()
        torch.cuda.synchronize()
        assert y[17].item() == 15.0
    program(body)
