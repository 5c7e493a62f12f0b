# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Training of a mixture of experts: each token goes to two of the experts, so their inputs have other sizes each step."""
import random

import torch
import torch.nn.functional as F
from layers import Decoder
from torch import nn

SIZES = {
    "full": {"vocabulary": 16000, "width": 1024, "layers": 6, "heads": 16, "experts": 8, "tokens": 8192, "count": 14},
    "record": {"vocabulary": 16000, "width": 512, "layers": 4, "heads": 8, "experts": 8, "tokens": 8192, "count": 8},
    "tiny": {"vocabulary": 100, "width": 32, "layers": 2, "heads": 2, "experts": 4, "tokens": 128, "count": 4},
}


class Experts(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in range(experts)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights, chosen = self.router(flat).softmax(dim=-1).topk(2, dim=-1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, place = torch.where(chosen == i)
            if token.numel():
                found = expert(flat[token]) * weights[token, place].unsqueeze(-1)
                out.index_add_(0, token, found.to(out.dtype))
        return out.view_as(x)


def steps(device, vocabulary, width, layers, heads, experts, tokens, count):
    shapes = random.Random(7)
    with torch.device(device):
        model = Decoder(vocabulary, tokens, width, layers, heads, feed=lambda: Experts(width, experts))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(count):
        length = shapes.choice((tokens // 64, tokens // 16, tokens // 8, tokens // 4))
        ids = torch.randint(vocabulary, (tokens // length, length), device=device)
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del logits
        yield loss.item()
