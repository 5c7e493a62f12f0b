# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Training with a stream that brings the next batch and one that sums gradients in buckets; blocks cross streams by record_stream().
Without a GPU there is one stream."""
import contextlib
import random

import torch
import torch.nn.functional as F
from layers import Decoder

SIZES = {
    "full": {"vocabulary": 16000, "width": 1024, "layers": 12, "heads": 16, "batch": 12, "longest": 768, "count": 12},
    "record": {"vocabulary": 16000, "width": 768, "layers": 6, "heads": 12, "batch": 8, "longest": 512, "count": 10},
    "tiny": {"vocabulary": 100, "width": 32, "layers": 2, "heads": 2, "batch": 2, "longest": 64, "count": 4},
}


class Streams:
    """Two streams beside the current one; on a CPU none."""

    def __init__(self, device):
        self.gpu = torch.device(device).type == "cuda"
        self.bring, self.sum = (torch.cuda.Stream(), torch.cuda.Stream()) if self.gpu else (None, None)

    @contextlib.contextmanager
    def on(self, stream):
        if not self.gpu:
            yield
            return
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    def use(self, tensor, stream):
        if self.gpu:
            tensor.record_stream(stream or torch.cuda.current_stream())

    def wait(self, stream):
        if self.gpu:
            torch.cuda.current_stream().wait_stream(stream)


def bring(streams, vocabulary, batch, length, device):
    with streams.on(streams.bring):
        ids = torch.randint(vocabulary, (batch, length), device=device)
        noise = torch.randn(batch, length, 256, device=device)
    return ids, noise


def sum_gradients(streams, parameters, bucket_bytes):
    """As data parallel training does: flat buckets are filled, used on another stream, and written back."""
    bucket, size = [], 0
    for parameter in reversed(parameters):
        bucket.append(parameter)
        size += parameter.numel() * 4
        if size >= bucket_bytes or parameter is parameters[0]:
            flat = torch.cat([p.grad.flatten() for p in bucket])
            with streams.on(streams.sum):
                streams.use(flat, streams.sum)
                half = flat.to(torch.bfloat16)
                flat.copy_(half).mul_(1.0)
                del half
            at = 0
            streams.wait(streams.sum)
            for p in bucket:
                p.grad.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()
            bucket, size = [], 0


def steps(device, vocabulary, width, layers, heads, batch, longest, count):
    lengths = random.Random(17)
    streams = Streams(device)
    with torch.device(device):
        model = Decoder(vocabulary, longest, width, layers, heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    parameters = list(model.parameters())
    coming = bring(streams, vocabulary, batch, lengths.randrange(longest // 4, longest), device)
    for _ in range(count):
        ids, noise = coming
        streams.wait(streams.bring)
        streams.use(ids, None)
        streams.use(noise, None)
        coming = bring(streams, vocabulary, batch, lengths.randrange(longest // 4, longest), device)
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) + noise.mean()
        loss.backward()
        sum_gradients(streams, parameters, 64 << 20 if width > 64 else 1 << 16)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del logits, ids, noise
        yield loss.item()
