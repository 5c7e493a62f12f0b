# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Training of a decoder with another sequence length each step, and a validation pass in between."""
import random

import torch
import torch.nn.functional as F
from layers import Decoder

SIZES = {
    "full": {"vocabulary": 32000, "width": 1024, "layers": 12, "heads": 16, "batch": 12, "longest": 1024, "count": 14},
    "record": {"vocabulary": 32000, "width": 768, "layers": 8, "heads": 12, "batch": 8, "longest": 768, "count": 12},
    "tiny": {"vocabulary": 100, "width": 32, "layers": 2, "heads": 2, "batch": 2, "longest": 64, "count": 6},
}


def steps(device, vocabulary, width, layers, heads, batch, longest, count):
    lengths = random.Random(3)
    with torch.device(device):
        model = Decoder(vocabulary, longest, width, layers, heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(count):
        length = lengths.randrange(longest // 8, longest)
        ids = torch.randint(vocabulary, (batch, length), device=device)
        validation = step % 10 == 9
        with torch.set_grad_enabled(not validation), torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        if not validation:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        del logits
        yield loss.item()
