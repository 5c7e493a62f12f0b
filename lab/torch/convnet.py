# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Training of a residual network on images whose size and number change, with an evaluation pass in between."""
import random

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "full": {"width": 64, "depths": (3, 4, 6, 3), "pixels": 56 * 56 * 2048, "sides": (128, 160, 192, 224, 288, 352), "count": 12},
    "record": {"width": 64, "depths": (2, 2, 3, 2), "pixels": 56 * 56 * 320, "sides": (96, 128, 160, 224, 288), "count": 10},
    "tiny": {"width": 8, "depths": (1, 1, 1, 1), "pixels": 64 * 64 * 2, "sides": (32, 48), "count": 4},
}


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )
        self.shortcut = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        return F.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


class Network(nn.Module):
    def __init__(self, width, depths, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inside = [], width
        for i, depth in enumerate(depths):
            for j in range(depth):
                stages.append(Bottleneck(inside, width << i, 2 if i and not j else 1))
                inside = 4 * width << i
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inside, classes)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))


def steps(device, width, depths, pixels, sides, count):
    shapes = random.Random(11)
    with torch.device(device):
        model = Network(width, depths)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(count):
        side = shapes.choice(sides)
        batch = max(2, int(pixels / side / side * shapes.uniform(0.6, 1.0)))
        training = step % 6 != 5
        model.train(training)
        images = torch.randn(batch, 3, side, side, device=device)
        labels = torch.randint(1000, (batch,), device=device)
        with torch.set_grad_enabled(training), torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        if training:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        yield loss.item()
