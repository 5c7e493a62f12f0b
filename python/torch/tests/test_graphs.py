# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""TARN_DEBUG=graphs: graphs that lose what they read, and graphs that do not. PyTorch's own allocator has no such check."""
# The bodies below run as programs of their own, after the prologue of conftest.py.
# ruff: noqa: F821
# mypy: ignore-errors

import os

import pytest

pytestmark = pytest.mark.skipif(bool(os.environ.get("TARN_TORCH_OFF")), reason="tarn's own")


def test_a_freed_input_is_found_at_the_replay(program):
    def body():
        import warnings
        from tarn.torch.watching import GraphMemoryWarning
        x = torch.full((4 * MIB,), 2.0, device="cuda")
        other = torch.full((4 * MIB,), 2.0, device="cuda")
        graph, good = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x.clone() * 3  # the copy reads x: a kernel of PyTorch's gets its pointers in a structure, which proves less
        with torch.cuda.graph(good):
            z = other.clone() * 3
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for it in (graph, good):
                found = tarn.torch.check_graph(it, all=True)
                # What the capture has freed again in the graph's pool, which PyTorch holds, is not proven.
                assert found.remembered and found.references >= 2 and found.verdict in ("clean", "unknown"), found
                assert not [it for it in found.findings if it.certainty], found
                it.replay()
            torch.cuda.synchronize()
            address = x.data_ptr()
            del x  # no finding by itself
            good.replay()
            assert not [it for it in told if issubclass(it.category, GraphMemoryWarning)], [str(it.message) for it in told]
            graph.replay()
            graph.replay()
            del y, z  # of the graphs' own pools
            good.replay()
        text, = [str(it.message) for it in told if issubclass(it.category, GraphMemoryWarning)]
        assert f"{address:#x} of {16 * MIB} bytes" in text and "a copy " in text and "whose memory is" in text, text
        captured, _, freed = text.partition("Freed at:\n")
        assert "program.py" in captured and "program.py" in freed and "del x  # no finding by itself" in freed and ".so" not in freed, text
        worst, = {(it.address, it.freed_at) for it in tarn.torch.check_graph(graph).findings if it.certainty == "certain"}
        assert worst == (address, freed), worst
        print(text)
    assert "Captured at:" in program(body, TARN_DEBUG="graphs")


def test_frees_anywhere_have_a_stack_and_disturb_nothing(program):
    def body():
        import gc
        import threading
        import warnings

        def captured(x):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x.clone() * 3
            return graph, y

        def said(graph):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                graph.replay()
                torch.cuda.synchronize()
            text, = [str(it.message) for it in told]
            return text.partition("Freed at:")[2]

        def lose_with_an_exception():
            def numbers():
                yield held.pop()
                raise KeyError("mine")
            torch.tensor([*numbers()])

        def lose_in_a_cycle():
            cycle = [held.pop()]
            cycle.append(cycle)
            del cycle
            gc.collect()

        def lose_in_a_thread():
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()

        for lose in (lose_with_an_exception, lose_in_a_cycle, lose_in_a_thread):
            held = [torch.full((4 * MIB,), 2.0, device="cuda")]
            graph, y = captured(held[0])
            caught = None
            try:
                lose()
            except KeyError as error:
                caught = error.args
            assert (caught == ("mine",)) == (lose is lose_with_an_exception), caught
            freed = said(graph)
            assert freed and ("lose_" in freed or "threading.py" in freed), freed
        last = torch.full((4 * MIB,), 2.0, device="cuda")
        kept = captured(last)  # both go when the interpreter ends
        print("done", len(kept))
    assert "done 2" in program(body, TARN_DEBUG="graphs")


def test_graph_trees_have_no_certain_finding(program):
    def body():
        import warnings
        from tarn.torch.watching import GraphMemoryWarning
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
        compiled = torch.compile(model, mode="reduce-overhead")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for i in range(6):
                torch.compiler.cudagraph_mark_step_begin()
                loss = compiled(torch.randn(64, 256, device="cuda")).sum()
                loss.backward()
                model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
        found = [str(it.message) for it in told if issubclass(it.category, GraphMemoryWarning)]
        assert not found, found
    program(body, TARN_DEBUG="graphs")
