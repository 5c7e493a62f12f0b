# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""The classic fault of CUDA graphs under PyTorch: what a captured graph reads is freed, and a replay reads whoever has the memory by then.

Run it as `TARN_DEBUG=graphs python -m tarn.torch examples/graph_bug.py`. Needs a GPU."""

import torch

table = torch.nn.Embedding(1000, 256, device="cuda")


@torch.no_grad()
def captured():
    words = torch.arange(64, device="cuda")  # the graph reads it, and nobody keeps it
    warm = table(words)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = table(words)
    return graph, result, warm


graph, result, expected = captured()
others = [torch.full((64,), 7, device="cuda") for _ in range(8)]  # one has the memory of `words`
graph.replay()
torch.cuda.synchronize()
print("rows that are wrong:", int((result != expected).any(1).sum()), "of", len(expected))
