# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Sampling of images by a network that halves and doubles their sides, several resolutions and numbers of images in turn."""
import random

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "full": {"width": 128, "levels": 4, "pixels": 256 * 256 * 24, "sides": (192, 256, 320, 384, 512), "count": 9, "times": 4},
    "record": {"width": 96, "levels": 4, "pixels": 256 * 256 * 12, "sides": (128, 192, 256, 320, 384), "count": 8, "times": 4},
    "tiny": {"width": 8, "levels": 2, "pixels": 32 * 32 * 2, "sides": (16, 32), "count": 3, "times": 2},
}


class Part(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inside), nn.GroupNorm(8, outside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1)

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.conv2(F.silu(self.norm2(y))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width, levels):
        super().__init__()
        widths = [width * min(i + 1, 3) for i in range(levels)]
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down, inside = nn.ModuleList(), width
        for wide in widths:
            self.down.append(Part(inside, wide))
            inside = wide
        self.middle = Part(inside, inside)
        self.up = nn.ModuleList()
        for wide in reversed(widths):
            self.up.append(Part(inside + wide, wide))
            inside = wide
        self.last = nn.Conv2d(inside, 3, 3, padding=1)

    def forward(self, x):
        x, kept = self.first(x), []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for part in self.up:
            x = part(torch.cat((F.interpolate(x, scale_factor=2.0), kept.pop()), dim=1))
        return self.last(x)


def steps(device, width, levels, pixels, sides, count, times):
    shapes = random.Random(19)
    dtype = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
    with torch.device(device):
        model = UNet(width, levels).to(dtype).eval()
    for _ in range(count):
        side = shapes.choice(sides)
        images = torch.randn(max(1, pixels // side // side), 3, side, side, device=device, dtype=dtype)
        with torch.no_grad():
            for _ in range(times):
                images = images - 0.1 * model(images)
        yield images.float().mean().item()
