# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""What PyTorch's own tests ask of its memory, graphs and pools (test/test_cuda.py), asked in other programs. Each runs on PyTorch's
allocator too: TARN_TORCH_OFF=1."""
# The bodies below run as programs of their own, after the prologue of conftest.py.
# ruff: noqa: F821
# mypy: ignore-errors


def test_memory_of_a_side_stream_serves_again(program):
    def body():
        side = torch.cuda.Stream()
        a = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a.add_(1)
        a.record_stream(side)
        del a
        torch.cuda.synchronize()
        held = torch.cuda.memory_reserved()
        b = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_reserved() == held, (held, torch.cuda.memory_reserved())
    program(body)


def test_results_outlive_their_graph(program):
    def body():
        x = torch.zeros(2 * MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
        x.fill_(41)
        graph.replay()
        graph.reset()
        del graph
        gc.collect()
        torch.cuda.empty_cache()
        noise = [torch.full((2 * MIB,), 7.0, device="cuda") for _ in range(10)]
        torch.cuda.synchronize()
        assert y[5].item() == 42
        before = torch.cuda.memory_allocated()
        del y
        assert torch.cuda.memory_allocated() < before
    program(body)


def test_three_graphs_in_one_pool(program):
    def body():
        x = torch.ones(MIB, device="cuda")
        pool = torch.cuda.graph_pool_handle()
        graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
        with torch.cuda.graph(graphs[0], pool=pool):
            a = x + 1
        with torch.cuda.graph(graphs[1], pool=pool):
            b = a * 10
        with torch.cuda.graph(graphs[2], pool=pool):
            c = a + b
        for value in (1, 5, 9):
            x.fill_(value)
            for graph in graphs:
                graph.replay()
            torch.cuda.synchronize()
            assert c[3].item() == (value + 1) * 11
    program(body)


def test_graphs_run_beside_each_other(program):
    def body():
        xs = [torch.full((MIB,), float(i), device="cuda") for i in range(2)]
        graphs, results = [], []
        for x in xs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x
                for _ in range(20):
                    y = y + 1
            graphs.append(graph)
            results.append(y)
        streams = [torch.cuda.Stream() for _ in xs]
        for _ in range(20):
            for stream, graph in zip(streams, graphs):
                with torch.cuda.stream(stream):
                    graph.replay()
        torch.cuda.synchronize()
        assert results[0][0].item() == 20 and results[1][0].item() == 21
    program(body)


def test_record_stream_within_a_capture(program):
    def body():
        x = torch.ones(4 * MIB, device="cuda")
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            a = x * 2
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                b = a + 1
            a.record_stream(side)
            del a
            c = torch.full((4 * MIB,), 99.0, device="cuda")
            torch.cuda.current_stream().wait_stream(side)
            d = b + c
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        assert d[77].item() == 102 and b[77].item() == 3
    program(body)


def test_memory_runs_out_in_a_capture(program):
    def body():
        torch.cuda.set_per_process_memory_fraction(0.02)
        limit = int(0.02 * torch.cuda.get_device_properties(0).total_memory)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                keep = torch.ones(limit * 2, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("no error")
        del graph
        torch.cuda.synchronize()
        x = torch.ones(MIB, device="cuda")
        again = torch.cuda.CUDAGraph()
        with torch.cuda.graph(again):
            y = x + 1
        again.replay()
        torch.cuda.synchronize()
        assert y[0].item() == 2
    program(body)


def test_capturing_again_and_again_takes_no_more(program):
    def body():
        x = torch.randn(512, 512, device="cuda")
        x @ x  # cuBLAS begins outside of captures
        def once():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x @ x @ x
            graph.replay()
            torch.cuda.synchronize()
        once()
        gc.collect()
        torch.cuda.empty_cache()
        first = torch.cuda.memory_reserved()
        for _ in range(8):
            once()
        gc.collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() <= first + 4 * MIB, (first, torch.cuda.memory_reserved())
    program(body)


def test_graphed_modules_train_alike(program):
    def body():
        def train(graphed):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if graphed:
                model = torch.cuda.make_graphed_callables(model, (torch.randn(16, 64, device="cuda"),))
            torch.manual_seed(1)
            for _ in range(10):
                x = torch.randn(16, 64, device="cuda")
                loss = (model(x) - x).pow(2).mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            return loss.item()
        assert abs(train(False) - train(True)) < 1e-5
    program(body)


def test_pools_nest_and_are_the_threads(program):
    def body():
        import threading
        def where(tensor):
            for segment in torch.cuda.memory_snapshot():
                if segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]:
                    return tuple(segment["segment_pool_id"])
        outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(outer):
            a = torch.ones(MIB, device="cuda")
            with torch.cuda.use_mem_pool(inner):
                b = torch.ones(MIB, device="cuda")
            c = torch.ones(MIB, device="cuda")
            other = []
            thread = threading.Thread(target=lambda: other.append(torch.ones(MIB, device="cuda")))
            thread.start()
            thread.join()
        d = torch.ones(MIB, device="cuda")
        assert where(a) == where(c) == tuple(outer.id) and where(b) == tuple(inner.id)
        assert where(other[0]) == where(d) == (0, 0), (where(other[0]), where(d))
    program(body)


def test_a_pool_of_the_users_allocator(program):
    def body():
        import ctypes, subprocess, tempfile
        folder = tempfile.mkdtemp()
        source = os.path.join(folder, "mine.c")
        with open(source, "w") as file:
            file.write("#include <stddef.h>\nextern int cudaMalloc(void **, size_t); extern int cudaFree(void *);\n"
                       "int taken, given;\n"
                       "void *mine_alloc(size_t n, int d, void *s) { void *p = 0; return cudaMalloc(&p, n) ? 0 : (taken++, p); }\n"
                       "void mine_free(void *p, size_t n, int d, void *s) { given++; cudaFree(p); }\n")
        library = os.path.join(folder, "mine.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "mine_alloc", "mine_free")
        counts = ctypes.CDLL(library)
        taken, given = ctypes.c_int.in_dll(counts, "taken"), ctypes.c_int.in_dll(counts, "given")
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            a = torch.ones(8 * MIB, device="cuda")
        assert taken.value == 1 and a.sum().item() == 8 * MIB
        b = torch.ones(8 * MIB, device="cuda")
        assert taken.value == 1
        del a, pool
        gc.collect()
        assert given.value == 1, given.value
    program(body)


def test_a_spare_pool_serves_when_memory_runs_out(program):
    def body():
        total = torch.cuda.get_device_properties(0).total_memory
        size = total // 50
        spare = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(spare):
            torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.set_per_process_memory_fraction(0.03)
        a = torch.empty(size, dtype=torch.uint8, device="cuda")
        del a, spare
        gc.collect()
        torch.cuda.empty_cache()
        plain = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(plain):
            torch.empty(size, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("the other pool's memory was taken")
    program(body)


def test_checkpoints_of_a_pool(program):
    def body():
        def live(pool):
            return {(block["address"], block["requested_size"]) for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) == pool
                    for block in segment["blocks"] if block["state"] == "active_allocated"}
        pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            a = torch.ones(5 * MIB, device="cuda")
            b = torch.ones(MIB, device="cuda")
        state = torch._C._cuda_getCheckpointState(0, pool)
        before = live(pool)
        assert before == {(a.data_ptr(), 20 * MIB), (b.data_ptr(), 4 * MIB)}
        assert torch._C._cuda_checkPoolLiveAllocations(0, pool, {a.data_ptr(), b.data_ptr()})
        later = torch.cuda.CUDAGraph()
        del b
        with torch.cuda.graph(later, pool=pool, stream=stream):
            c = torch.ones(9 * MIB, device="cuda")
        assert live(pool) != before
        storage, metadata = c.untyped_storage()._cdata, c.size()
        torch._C._cuda_setCheckpointPoolState(0, state, [storage], [])
        assert live(pool) == before, (live(pool), before)
        del c
        assert live(pool) == before
    program(body)


def test_out_of_memory_is_in_the_history(program):
    def body():
        torch.cuda.memory._record_memory_history(max_entries=100)
        torch.cuda.set_per_process_memory_fraction(0.01)
        for _ in range(3):
            try:
                torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                pass
        events = [event for event in torch.cuda.memory._snapshot()["device_traces"][0] if event["action"] == "oom"]
        assert len(events) == 3 and events[0]["size"] == 8 << 30 and "device_free" in events[0], events
        assert torch.cuda.memory_stats()["num_ooms"] == 3
    program(body)


def test_random_tensors_keep_their_values(program):
    def body():
        import random
        random.seed(3)
        streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        live = []
        for step in range(1500):
            if live and (random.random() < 0.48 or len(live) > 200):
                tensor, value, made_on = live.pop(random.randrange(len(live)))
                user = random.choice(streams)
                user.wait_stream(made_on)
                with torch.cuda.stream(user):
                    wrong = (tensor != value).sum()
                tensor.record_stream(user)
                del tensor
                if step % 40 == 0:
                    user.synchronize()  # item() waits for the current stream alone
                    assert wrong.item() == 0, step
                live.append((wrong, 0, user)) if random.random() < 0.1 else None
            else:
                stream = random.choice(streams)
                size = int(2 ** random.uniform(0, 24))
                value = random.randrange(200)
                with torch.cuda.stream(stream):
                    live.append((torch.full((size,), value, dtype=torch.uint8, device="cuda"), value, stream))
        torch.cuda.synchronize()
        for tensor, value, _ in live:
            assert bool((tensor == value).all())
        live.clear()
        gc.collect()
        del tensor, wrong
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()
    program(body)


def test_numbers_of_one_allocation(program):
    def body():
        keys = ("allocated_bytes.all", "requested_bytes.all", "active_bytes.all", "allocation.all")
        before = torch.cuda.memory_stats()
        a = torch.empty(1000, dtype=torch.uint8, device="cuda")
        during = torch.cuda.memory_stats()
        del a
        after = torch.cuda.memory_stats()
        def moved(key, first, second):
            return second.get(key, 0) - first.get(key, 0)
        assert moved("requested_bytes.all.current", before, during) == 1000
        assert moved("allocated_bytes.all.current", before, during) == 1024
        assert moved("allocation.all.current", before, during) == 1
        for key in keys:
            assert moved(key + ".current", before, after) == 0, key
            assert moved(key + ".allocated", before, after) == moved(key + ".freed", before, after) > 0, key
    program(body)


def test_the_process_sleeps(program):
    def body():
        if os.environ.get("TARN_TORCH_OFF"):
            sys.exit(0)
        weights_pool, cache_pool = torch.cuda.MemPool(), torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(weights_pool):
            weights = torch.arange(256 * MIB // 4, device="cuda", dtype=torch.int32)
        with torch.cuda.use_mem_pool(cache_pool):
            cache = torch.ones(512 * MIB, device="cuda", dtype=torch.uint8)
        x = torch.zeros(MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
        gone = torch.cuda.CUDAGraph()
        with torch.cuda.graph(gone):
            z = x * 2
        del z, gone
        tarn.torch.name_pool(cache_pool, "cache")
        spare = torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True)
        del spare
        slept = tarn.torch.sleep(discard=["cache"])
        assert slept.before - slept.after >= 768 * MIB and 256 * MIB <= slept.saved < 512 * MIB, slept
        assert torch.cuda.memory_reserved() == slept.after < 64 * MIB, slept
        assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 0
        reasons = {item.reason: item.bytes for item in slept.residue}
        assert reasons["default_pool"] >= 4 * MIB and "pinned" not in reasons, slept
        torch.empty(MIB, device="cuda")  # of the default pool, which runs
        tarn.torch.wake()
        assert int(weights[-1]) == 64 * MIB - 1 and int(weights[12345]) == 12345
        cache.fill_(3)
        x.fill_(41)
        graph.replay()
        torch.cuda.synchronize()
        assert y[5].item() == 42 and int(cache[77]) == 3
    program(body)
