# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""Scratch memory of a Triton kernel from tarn: one with a tensor descriptor that the kernel makes asks for some."""

import torch
import triton
import triton.language as tl

import tarn

tarn.use(triton=True)


@triton.jit
def copy(source, target, rows, columns, BLOCK: tl.constexpr):
    one = tl.make_tensor_descriptor(source, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    two = tl.make_tensor_descriptor(target, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    two.store([tl.program_id(0) * BLOCK, 0], one.load([tl.program_id(0) * BLOCK, 0]))


source = torch.rand(256, 64, device="cuda")
target = torch.zeros_like(source)
before = tarn.memory_stats()["allocation.all.allocated"]
copy[(4,)](source, target, 256, 64, 64)
assert torch.equal(source, target)
print(f"the kernel took {tarn.memory_stats()['allocation.all.allocated'] - before} blocks from tarn")
