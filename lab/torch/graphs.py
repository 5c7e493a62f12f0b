# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Captured graphs that share a pool, one per batch size, replayed beside eager work; each graph's result is compared with an eager run.
Without a GPU the functions run eagerly."""
import random

import torch
from layers import Decoder

SIZES = {
    "full": {"vocabulary": 32000, "width": 1024, "layers": 8, "heads": 8, "batches": (64, 48, 32, 24, 16, 8, 4, 1), "length": 320, "count": 16},
    "record": {"vocabulary": 32000, "width": 512, "layers": 6, "heads": 8, "batches": (64, 32, 16, 8, 4), "length": 192, "count": 16},
    "tiny": {"vocabulary": 100, "width": 32, "layers": 2, "heads": 2, "batches": (4, 2), "length": 16, "count": 4},
}


class Captured:
    """The model for one shape, as a graph."""

    def __init__(self, model, vocabulary, batch, length, pool, device):
        self.ids = torch.randint(vocabulary, (batch, length), device=device)
        self.graph = None
        self.model = model
        if torch.device(device).type != "cuda":
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(self.ids)  # what is made at the first call does not belong in a graph
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.out = model(self.ids)

    def __call__(self, ids):
        if not self.graph:
            return self.model(ids)
        self.ids.copy_(ids)
        self.graph.replay()
        return self.out


@torch.no_grad()
def run(model, vocabulary, batches, length, count, device):
    shapes = random.Random(13)
    pool = torch.cuda.graph_pool_handle() if torch.device(device).type == "cuda" else None
    graphs = {}
    for batch in batches:
        graphs[batch] = Captured(model, vocabulary, batch, length, pool, device)
        yield 0.0
    for _ in range(count):
        batch = shapes.choice(batches)
        ids = torch.randint(vocabulary, (batch, length), device=device)
        found = graphs[batch](ids)[:, -1].float().clone()
        rest = torch.randint(vocabulary, (shapes.randrange(1, max(batches)), shapes.randrange(2, length)), device=device)
        total = model(rest).float().sum()
        expected = model(ids)[:, -1].float()
        if not torch.allclose(found, expected, rtol=0.05, atol=0.05):
            raise AssertionError(f"a graph of {batch} sequences gave another result than the model")
        yield total.item()


def steps(device, vocabulary, width, layers, heads, batches, length, count):
    with torch.device(device):
        model = Decoder(vocabulary, length, width, layers, heads).to(torch.bfloat16).eval()
    yield from run(model, vocabulary, batches, length, count, device)
