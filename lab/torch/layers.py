# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Parts that several of the programs are made of."""
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal attention; `cache` is a list of keys and values that grows by concatenation."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
            cache[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A layer of a transformer; `feed` is what follows the attention."""

    def __init__(self, width, heads, feed=None):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed = feed or nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm1(x), cache)
        return x + self.feed(self.norm2(x))


class Decoder(nn.Module):
    """A decoder whose head is its embedding."""

    def __init__(self, vocabulary, context, width, layers, heads, feed=None):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Block(width, heads, feed() if feed else None) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, caches=None, start=0, last=False):
        x = self.tokens(ids) + self.positions(torch.arange(start, start + ids.shape[1], device=ids.device))
        for i, layer in enumerate(self.layers):
            x = layer(x, caches[i] if caches else None)
        x = self.norm(x[:, -1:] if last else x)
        return F.linear(x, self.tokens.weight)
