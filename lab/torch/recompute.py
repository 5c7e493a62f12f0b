# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Fine-tuning with activations computed anew in the backward pass, adapters of low rank beside frozen weights, and gradients summed over
small batches of changing shape."""
import random

import torch
import torch.nn.functional as F
from layers import Decoder
from torch import nn
from torch.utils.checkpoint import checkpoint

SIZES = {
    "full": {"vocabulary": 32000, "width": 2048, "layers": 10, "heads": 16, "tokens": 12288, "longest": 2048, "count": 6},
    "record": {"vocabulary": 32000, "width": 1024, "layers": 8, "heads": 8, "tokens": 6144, "longest": 1024, "count": 8},
    "tiny": {"vocabulary": 100, "width": 32, "layers": 2, "heads": 2, "tokens": 128, "longest": 64, "count": 4},
}


class Adapted(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        device = base.weight.device
        self.down = nn.Parameter(torch.randn(rank, base.in_features, device=device) * 0.01)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=device))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype))


class Recomputed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, cache=None):
        return checkpoint(self.layer, x, use_reentrant=False)


def adapt(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for i, layer in enumerate(model.layers):
        layer.attention.qkv = Adapted(layer.attention.qkv)
        layer.attention.out = Adapted(layer.attention.out)
        model.layers[i] = Recomputed(layer)
    return [p for p in model.parameters() if p.requires_grad]


def steps(device, vocabulary, width, layers, heads, tokens, longest, count):
    shapes = random.Random(23)
    with torch.device(device):
        model = Decoder(vocabulary, longest, width, layers, heads).to(torch.bfloat16)
    adapters = adapt(model)
    optimizer = torch.optim.AdamW(adapters, lr=1e-3)
    for _ in range(count):
        for _ in range(3):
            length = shapes.randrange(longest // 8, longest)
            ids = torch.randint(vocabulary, (max(1, tokens // length), length), device=device)
            logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten()) / 3
            del logits
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()
