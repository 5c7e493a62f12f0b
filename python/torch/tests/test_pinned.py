# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""PyTorch's pinned memory on tarn. Each test runs on PyTorch's own allocator too, except for what only tarn promises: TARN_TORCH_OFF=1."""
# The bodies below run as programs of their own, after the prologue of conftest.py.
# ruff: noqa: F821
# mypy: ignore-errors


def test_sizes_are_exact_and_memory_goes_back(program):
    def body():
        torch.cuda.init()  # host_memory_stats() is empty before
        stats = torch.cuda.host_memory_stats
        a = torch.empty(33 * MIB, dtype=torch.uint8, pin_memory=True)
        assert a.is_pinned()
        if not os.environ.get("TARN_TORCH_OFF"):
            assert 33 * MIB <= stats()["active_bytes.current"] < 38 * MIB, stats()
        b = torch.arange(MIB).pin_memory()
        assert b.is_pinned() and int(b[12345]) == 12345 and stats()["active_requests.current"] == 2
        del a, b
        gc.collect()
        torch._C._host_emptyCache()
        assert stats()["allocated_bytes.current"] == 0 and stats()["allocated_bytes.peak"] >= 33 * MIB
        torch.cuda.reset_peak_host_memory_stats()
        torch.cuda.reset_accumulated_host_memory_stats()
        assert stats()["allocated_bytes.peak"] == 0
        assert torch.empty(0, pin_memory=True).numel() == 0
    program(body)


def test_a_copy_that_runs_keeps_its_source(program):
    def body():
        side = torch.cuda.Stream()
        target = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
        source = torch.full((8 * MIB,), 7, dtype=torch.uint8).pin_memory()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(400_000_000)
            target.copy_(source[:], non_blocking=True)
        del source
        others = [torch.full((8 * MIB,), 9, dtype=torch.uint8).pin_memory() for _ in range(4)]
        side.synchronize()
        assert bool((target == 7).all())
        back = torch.empty(8 * MIB, dtype=torch.uint8, pin_memory=True)
        back.copy_(target, non_blocking=True)
        torch.cuda.synchronize()
        assert bool((back == 7).all()) and all(int(other[5]) == 9 for other in others)
    program(body)


def test_a_graph_reads_its_source_at_every_launch(program):
    def body():
        graph = torch.cuda.CUDAGraph()
        target = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
        source = torch.full((MIB,), 3, dtype=torch.uint8).pin_memory()
        with torch.cuda.graph(graph):
            made = target + 1
            target.copy_(source, non_blocking=True)
        del source
        others = [torch.full((MIB,), 9, dtype=torch.uint8).pin_memory() for _ in range(8)]
        for _ in range(3):
            target.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert bool((target == 3).all()) and int(made[0]) == 1
        graph.reset()
    program(body)


def test_a_loader_pins(program):
    def body():
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(4096, dtype=torch.float32).reshape(256, 16))
        total = 0.0
        for (batch,) in DataLoader(data, batch_size=32, pin_memory=True, num_workers=2):
            assert batch.is_pinned()
            total += batch.cuda(non_blocking=True).sum().item()
        assert total == sum(range(4096))
    program(body)


def test_it_can_be_left_to_pytorch(program):
    def body():
        torch.cuda.init()
        a = torch.empty(33 * MIB, dtype=torch.uint8, pin_memory=True)
        assert torch.cuda.host_memory_stats()["active_bytes.current"] == 64 * MIB  # the next power of two
        assert torch.cuda.get_allocator_backend() == ("native" if os.environ.get("TARN_TORCH_OFF") else "tarn")
    program(body, TARN_TORCH_PINNED="0")
