# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What PyTorch's memory promises, one test for each of its parts."""
# The bodies below run as programs of their own, after the prologue of conftest.py.
# ruff: noqa: F821
# mypy: ignore-errors

import pathlib
import re
import subprocess
import sys


def test_the_readme(tmp_path):
    """README.md's program, as it is printed there."""
    readme = pathlib.Path(__file__).parents[3] / "README.md"
    program = re.search(r"^```python\n(import tarn\.torch\n.*?)^```$", readme.read_text(encoding="utf-8"), re.S | re.M)[1]
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    ended = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=200, check=True)
    assert ended.stdout.split()[-1] == "tarn"


def test_tensors_and_statistics(program):
    def body():
        before = torch.cuda.memory_allocated()
        a = torch.arange(10 * MIB, device="cuda", dtype=torch.int32)
        b = a * 2
        assert int(b[12345]) == 24690
        assert torch.cuda.memory_allocated() - before == 80 * MIB
        assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
        stats = torch.cuda.memory_stats()
        for key in ("allocated_bytes.all.current", "reserved_bytes.all.peak", "num_ooms", "num_alloc_retries", "segment.all.current",
                    "oversize_allocations.current", "requested_bytes.all.current", "inactive_split_bytes.all.current"):
            assert key in stats, key
        torch.cuda.reset_peak_memory_stats()
        del a
        assert torch.cuda.max_memory_allocated() == before + 80 * MIB
        assert torch.cuda.memory_allocated() == before + 40 * MIB
        del b
        gc.collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() <= 2 * MIB + torch.cuda.memory_allocated()
        assert "GPU reserved memory" in torch.cuda.memory_summary()
        free, total = torch.cuda.mem_get_info()
        assert 0 < free < total
        torch.cuda.reset_accumulated_memory_stats()
    program(body)


def test_torch_accelerator_says_the_same(program):
    def body():
        a = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() >= 64 * MIB
        assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= 64 * MIB
        del a
        torch.accelerator.empty_cache()
        assert torch.accelerator.memory_reserved() == torch.cuda.memory_reserved()
    program(body)


def test_training_gives_the_same_numbers(program):
    def body():
        import torch.nn as nn
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(30):
            x = torch.randn(64 + 8 * (step % 5), 256, device="cuda")
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"{loss.item():.6f}")
    import os
    mine = program(body)
    os.environ["TARN_TORCH_OFF"] = "1"
    try:
        assert mine == program(body)
    finally:
        del os.environ["TARN_TORCH_OFF"]


def test_out_of_memory_is_pytorchs_error_with_our_reason(program):
    def body():
        torch.cuda.set_per_process_memory_fraction(0.05)
        limit = int(0.05 * torch.cuda.get_device_properties(0).total_memory)
        assert abs(torch.cuda.get_per_process_memory_fraction() - 0.05) < 0.01
        keep = torch.empty(limit // 2, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(limit, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            text = str(error)
            assert "CUDA out of memory. Tried to allocate" in text and "GiB" in text, text
            assert "tarn" in text or os.environ.get("TARN_TORCH_OFF"), text
        else:
            raise AssertionError("no error")
        assert torch.cuda.memory_stats()["num_ooms"] == 1
        torch.empty(limit // 4, dtype=torch.uint8, device="cuda")
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.empty(limit, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(1 << 60, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("no error")
    program(body)


def test_out_of_memory_observers_are_called(program):
    def body():
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda device, alloc, total, free: seen.append((device, alloc)))
        torch.cuda.set_per_process_memory_fraction(0.01)
        try:
            torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        assert seen == [(0, 8 << 30)], seen
    program(body)


def test_record_stream_keeps_memory_from_others(program):
    def body():
        side = torch.cuda.Stream()
        a = torch.ones(16 * MIB, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(400_000_000)
            total = a.sum()
        a.record_stream(side)
        address = a.data_ptr()
        del a
        b = torch.zeros(16 * MIB, device="cuda")
        b.fill_(5)
        side.synchronize()
        assert total.item() == 16 * MIB, total.item()
        del b
        torch.cuda.synchronize()
    program(body)


def test_graphs_keep_their_memory(program):
    def body():
        x = torch.full((4 * MIB,), 2.0, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 3
            z = y + 1
        for i in range(5):
            x.fill_(float(i))
            noise = [torch.full((4 * MIB,), 99.0, device="cuda") for _ in range(4)]
            del noise
            torch.cuda.empty_cache()
            graph.replay()
            torch.cuda.synchronize()
            assert z[17].item() == 3.0 * i + 1, (i, z[17].item())
        pool = graph.pool()
        second = torch.cuda.CUDAGraph()
        with torch.cuda.graph(second, pool=pool):
            w = z * 2
        graph.replay()
        second.replay()
        torch.cuda.synchronize()
        assert w[17].item() == 2 * z[17].item()
        held = torch.cuda.memory_reserved()
        del y, z, w
        graph.reset()
        second.reset()
        del graph, second
        gc.collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() < held
    program(body)


def test_mempools(program):
    def body():
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.ones(4 * MIB, device="cuda")
        outside = torch.ones(4 * MIB, device="cuda")
        assert pool.use_count() == 1, pool.use_count()
        segments = pool.snapshot()
        addresses = [block["address"] for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert inside.data_ptr() in addresses and outside.data_ptr() not in addresses, addresses
        assert all(tuple(segment["segment_pool_id"]) == tuple(pool.id) for segment in segments)
        assert inside.sum().item() == 4 * MIB
        del inside
        del pool
        gc.collect()
        again = torch.ones(4 * MIB, device="cuda")
        spare = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(spare):
            torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    program(body)


def test_compiled_graph_trees(program):
    def body():
        @torch.compile(mode="reduce-overhead")
        def f(x, w):
            return torch.relu(x @ w).sum(dim=-1)
        w = torch.randn(256, 256, device="cuda")
        expected = []
        for i in range(6):
            x = torch.full((128, 256), 0.01 * (i % 3), device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            got = f(x, w)
            assert torch.allclose(got, torch.relu(x @ w).sum(dim=-1), rtol=1e-3, atol=1e-3), i
        kept = [f(torch.ones(128, 256, device="cuda"), w).clone() for _ in range(3)]
        assert torch.equal(kept[0], kept[2])
        torch.compiler.reset()
    program(body)


def test_history_and_snapshot_have_python_stacks(program):
    def body():
        torch.cuda.memory._record_memory_history(max_entries=1000)
        def who_allocates():
            return torch.ones(8 * MIB, device="cuda")
        a = who_allocates()
        b = torch.ones(MIB, device="cuda")
        del b
        found = torch.cuda.memory._snapshot()
        names = [frame["name"] for segment in found["segments"] for block in segment["blocks"] if block["address"] == a.data_ptr()
                 for frame in block.get("frames", [])]
        assert "who_allocates" in names, names
        actions = [event["action"] for event in found["device_traces"][0]]
        for action in ("alloc", "free_requested", "free_completed"):
            assert action in actions, set(actions)
        assert {"segment_alloc", "segment_map"} & set(actions), set(actions)
        alloc = next(event for event in found["device_traces"][0] if event["action"] == "alloc" and event["addr"] == a.data_ptr())
        assert alloc["size"] == 32 * MIB and any(frame["name"] == "who_allocates" for frame in alloc["frames"])
        path = os.environ["SNAPSHOT"]
        torch.cuda.memory._dump_snapshot(path)
        torch.cuda.memory._record_memory_history(enabled=None)
        assert os.path.getsize(path) > 1000
    import os
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        program(body, SNAPSHOT=path)
        if not os.environ.get("TARN_TORCH_OFF"):
            import tarn
            assert "who_allocates" in tarn.report(path)


def test_the_profiler_sees_memory(program):
    def body():
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as seen:
            a = torch.ones(8 * MIB, device="cuda")
            del a
        events = [event for event in seen.events() if event.name == "[memory]"]
        assert events
    program(body)


def test_cudnn_benchmark(program):
    def body():
        torch.backends.cudnn.benchmark = True
        conv = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
        for size in (32, 48, 64):
            out = conv(torch.randn(4, 16, size, size, device="cuda"))
        assert out.shape[1] == 32 and torch.isfinite(out).all()
    program(body)


def test_threads_and_streams(program):
    def body():
        import threading
        failures = []
        def work(seed):
            try:
                stream = torch.cuda.Stream()
                generator = torch.Generator(device="cpu").manual_seed(seed)
                with torch.cuda.stream(stream):
                    for i in range(300):
                        size = int(torch.randint(1, 3 * MIB, (1,), generator=generator))
                        a = torch.full((size,), float(seed), device="cuda")
                        b = a + 1
                        if i % 50 == 0:
                            assert b[size // 2].item() == seed + 1
                        del a, b
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        torch.cuda.synchronize()
    program(body)


def test_sleep_and_wake_a_pool(program):
    def body():
        if os.environ.get("TARN_TORCH_OFF"):
            sys.exit(0)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            weights = torch.arange(256 * MIB // 4, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        held = torch.cuda.memory_reserved()  # of this process: others come and go
        tarn.torch.sleep([pool])
        assert held - torch.cuda.memory_reserved() >= 256 * MIB
        tarn.torch.wake([pool])
        assert torch.cuda.memory_reserved() == held
        assert int(weights[-1]) == 64 * MIB - 1 and int(weights[12345]) == 12345
    program(body)


def test_compaction_moves_nothing_that_is_seen(program):
    def body():
        if os.environ.get("TARN_TORCH_OFF"):
            sys.exit(0)
        kept = [torch.full((3 * MIB // 2,), i, dtype=torch.uint8, device="cuda") for i in range(200)]
        kept = kept[::7]
        torch.cuda.empty_cache()
        held = torch.cuda.memory_reserved()
        gained = tarn.torch.compact()
        assert held - torch.cuda.memory_reserved() == gained > 0, (held, gained)
        assert all(int(tensor[0]) == int(tensor[-1]) == 7 * i for i, tensor in enumerate(kept))
    program(body)


def test_regions_name_memory(program):
    def body():
        if os.environ.get("TARN_TORCH_OFF"):
            sys.exit(0)
        import tarn
        with tarn.torch.tag("optimizer"):
            state = torch.ones(8 * MIB, device="cuda")
        tarn.dump_snapshot(os.environ["SNAPSHOT"])
    import os
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        program(body, SNAPSHOT=path, TARN_TRACE="regions")
        if not os.environ.get("TARN_TORCH_OFF"):
            import tarn
            assert "optimizer" in tarn.report(path)


def test_late_is_an_error_or_works(tmp_path):
    import subprocess
    import sys
    path = tmp_path / "late.py"
    path.write_text("""
import torch, tarn.torch
a = torch.ones(1 << 20, device="cuda")
try:
    tarn.torch.enable()
except tarn.torch.EnableError as error:
    assert "late=True" in str(error), error
else:
    raise AssertionError("enabled late")
tarn.torch.enable(late=True)
b = torch.ones(1 << 20, device="cuda")
c = a + b
side = torch.cuda.Stream()
a.record_stream(side)
b.record_stream(side)
del a, b
assert c.sum().item() == 2 << 20
assert torch.cuda.memory_allocated() == 4 << 20
print("ok")
""")
    ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200)
    assert ended.stdout == "ok\n", ended.stderr


def test_the_module_runs_a_program(tmp_path):
    import subprocess
    import sys
    path = tmp_path / "train.py"
    path.write_text("import sys, torch\ntorch.ones(10, device='cuda')\nprint(torch.cuda.get_allocator_backend(), sys.argv[1:])\n")
    ended = subprocess.run([sys.executable, "-m", "tarn.torch", str(path), "--lr", "1"], capture_output=True, text=True, timeout=200)
    assert ended.stdout == "tarn ['--lr', '1']\n", ended.stderr
    ended = subprocess.run([sys.executable, "-m", "tarn.torch", str(tmp_path / "none.py")], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 1 and "none.py" in ended.stderr
