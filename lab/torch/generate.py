# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Generation: batches of sequences of random number and length; the caches of keys and values grow with each token."""
import random

import torch
from layers import Decoder

SIZES = {
    "full": {"vocabulary": 32000, "width": 1536, "layers": 10, "heads": 12, "largest": 64, "longest": 1536, "count": 7},
    "record": {"vocabulary": 32000, "width": 1024, "layers": 8, "heads": 8, "largest": 32, "longest": 1024, "count": 6},
    "tiny": {"vocabulary": 100, "width": 32, "layers": 2, "heads": 2, "largest": 4, "longest": 64, "count": 4},
}


@torch.no_grad()
def generate(model, vocabulary, batch, prompt, tokens, device):
    caches = [[] for _ in model.layers]
    ids = torch.randint(vocabulary, (batch, prompt), device=device)
    logits = model(ids, caches, last=True)
    for i in range(tokens):
        ids = logits[:, -1].argmax(dim=-1, keepdim=True)
        logits = model(ids, caches, start=prompt + i)
        if i == tokens // 2 and batch > 2:  # half of the sequences have ended
            keep = batch // 2
            caches = [[part[:keep].clone() for part in cache] for cache in caches]
            logits = logits[:keep]
    return logits.abs().float().mean().item()


def steps(device, vocabulary, width, layers, heads, largest, longest, count):
    shapes = random.Random(5)
    dtype = torch.bfloat16
    with torch.device(device):
        model = Decoder(vocabulary, longest, width, layers, heads).to(dtype).eval()
    for _ in range(count):
        batch = shapes.randrange(largest // 4, largest)
        prompt = shapes.randrange(longest // 8, longest * 3 // 4)
        yield generate(model, vocabulary, batch, prompt, min(12, longest // 4), device)
