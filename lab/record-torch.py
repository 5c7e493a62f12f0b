#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run real architectures under PyTorch and write what they allocate as memory snapshots.

Each file has the layout of torch.cuda.memory._dump_snapshot, compressed with zstd. With a GPU it is PyTorch's own
snapshot. Without one the model runs on the CPU, the profiler says what was allocated and freed, and the device memory
that PyTorch would have reserved is modelled: the policy of its caching allocator with default settings places every
recorded block. The key "tarn_recorded" in the file says which of the two it is, what ran, and with which versions.

Weights are random, nothing is downloaded. Needs PyTorch, and the zstd program or Python's zstandard.
"""

import argparse
import bisect
import gc
import importlib
import itertools
import math
import os
import pickle
import platform
import shutil
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20
WORKLOADS = {}  # name -> (description, function)
RANGE_LINES = {}  # name of a profiler range -> (class, line of its forward)

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages
try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.profiler import record_function
except ImportError as error:
    torch = None
    torch_error = error

    class nn:  # lets --help and --list work
        Module = object


def workload(name, description):
    def register(function):
        WORKLOADS[name] = (description, function)
        return function

    return register


def name_modules(model):
    """Put a profiler range around each module's forward, so that an allocation can say which layer it served."""

    def enter(name):
        def hook(module, args):
            opened = record_function(name)
            opened.__enter__()
            module.open_ranges.append(opened)

        return hook

    def leave(module, args, output):
        module.open_ranges.pop().__exit__(None, None, None)

    for name, module in model.named_modules():
        if name and any(module.children()) and not isinstance(module, (nn.Sequential, nn.ModuleList)):
            RANGE_LINES[name] = (type(module).__name__, type(module).forward.__code__.co_firstlineno)
            module.open_ranges = []
            module.register_forward_pre_hook(enter(name))
            module.register_forward_hook(leave)


# ---- the models


class Attention(nn.Module):
    """Multi-head attention with the scores written out, as a model without a fused kernel runs it."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask=None, cache=None):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
            cache[:] = k, v
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        if self.causal and length > 1:
            future = torch.ones(length, k.shape[2], dtype=torch.bool, device=x.device).triu(k.shape[2] - length + 1)
            scores = scores.masked_fill(future, float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(self.down(F.gelu(self.up(x))))


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.feed_forward = FeedForward(width)

    def forward(self, x, mask=None, cache=None):
        x = x + self.attention(self.norm1(x), mask, cache)
        return x + self.feed_forward(self.norm2(x))


class Transformer(nn.Module):
    """A decoder (causal, the head shares the embedding's weight) or an encoder (with a class head)."""

    def __init__(self, vocabulary, context, width, layers, heads, classes=0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Block(width, heads, causal=not classes) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes or vocabulary, bias=bool(classes))
        self.classes = classes
        if not classes:
            self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, mask=None, caches=None):
        start = caches[0][0].shape[2] if caches and caches[0] else 0
        x = self.tokens(ids) + self.positions(torch.arange(start, start + ids.shape[1], device=ids.device))
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, caches[i] if caches else None)
        x = self.norm(x)
        if self.classes:
            x = x[:, 0]
        elif caches:
            x = x[:, -1:]
        return self.head(x)


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)
        self.shortcut = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, depths=(3, 4, 6, 3), classes=1000):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.stages = nn.ModuleList()
        inside = 64
        for i, depth in enumerate(depths):
            for j in range(depth):
                self.stages.append(Bottleneck(inside, 64 << i, 2 if i and not j else 1))
                inside = 256 << i
        self.head = nn.Linear(inside, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x)), inplace=True), 3, 2, 1)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean(dim=(2, 3)))


# ---- what is run; each returns what is still alive when the snapshot is taken


@workload(
    "transformer-train",
    "decoder-only transformer, 110 M parameters (12 layers, width 768, 12 heads, 32,000 tokens), fp32: "
    "6 steps of forward, backward and AdamW on 4 x 256 tokens, gradients clipped, "
    "a validation pass on 6 x 192, and one more step",
)
def transformer_train(device):
    with torch.device(device):
        model = Transformer(vocabulary=32000, context=256, width=768, layers=12, heads=12)
    name_modules(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    loss = None
    for step in (0, 1, 2, 3, 4, 5, "validation", 6):
        training = step != "validation"
        with record_function(f"step {step}" if training else step), torch.set_grad_enabled(training):
            model.train(training)
            ids = torch.randint(32000, (4, 257) if training else (6, 193), device=device)
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            if training:
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
                optimizer.step()
                optimizer.zero_grad()
    return model, optimizer, loss


@workload(
    "resnet50-train",
    "ResNet-50, 26 M parameters, fp32, 224 x 224 images: 3 steps with SGD and momentum on batches of 16, 16 and a "
    "last one of 11, an evaluation pass on 24 images, and one more step on 16",
)
def resnet50_train(device):
    with torch.device(device):
        model = ResNet()
    name_modules(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True)
    loss = None
    for step, batch in enumerate((16, 16, 11, -24, 16)):
        with record_function(f"step {step}" if batch > 0 else "evaluation"):
            training = batch > 0
            model.train(training)
            images = torch.randn(abs(batch), 3, 224, 224, device=device)
            labels = torch.randint(1000, (abs(batch),), device=device)
            with torch.set_grad_enabled(training):
                loss = F.cross_entropy(model(images), labels)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return model, optimizer, loss


@workload(
    "generate",
    "the decoder with 4 layers, width 1024 and 16 heads, 84 M parameters, fp32: greedy generation with a key/value "
    "cache that grows by concatenation, 5 batches of prompts (sequences x prompt length + new tokens): "
    "4 x 200 + 12, 8 x 90 + 16, 1 x 900 + 10, 16 x 310 + 24, 6 x 620 + 14",
)
def generate(device):
    with torch.device(device):
        model = Transformer(vocabulary=32000, context=1024, width=1024, layers=4, heads=16)
    name_modules(model)
    model.eval()
    texts = []
    with torch.no_grad():
        for batch, prompt, new in ((4, 200, 12), (8, 90, 16), (1, 900, 10), (16, 310, 24), (6, 620, 14)):
            with record_function(f"prompt {batch} x {prompt}"):
                caches = [[] for _ in model.layers]
                text = torch.randint(32000, (batch, prompt), device=device)
                next_ids = text
                for _ in range(new):
                    next_ids = model(next_ids, caches=caches).argmax(dim=-1)
                    text = torch.cat((text, next_ids), dim=1)
            texts.append(text)
    return model, caches, texts


@workload(
    "encoder-finetune",
    "encoder with a class head, 33 M parameters (6 layers, width 512, 8 heads, 28,000 tokens), mixed precision "
    "(bfloat16 autocast): 6 steps with AdamW on batches of 24 padded to their longest sequence "
    "(71, 198, 33, 256, 120 and 164 tokens)",
)
def encoder_finetune(device):
    with torch.device(device):
        model = Transformer(vocabulary=28000, context=256, width=512, layers=6, heads=8, classes=5)
    name_modules(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=True)
    loss = None
    for step, longest in enumerate((71, 198, 33, 256, 120, 164)):
        with record_function(f"step {step}"):
            ids = torch.randint(28000, (24, longest), device=device)
            lengths = torch.randint(longest // 3, longest + 1, (24, 1), device=device)
            labels = torch.randint(5, (24,), device=device)
            mask = (torch.arange(longest, device=device) >= lengths)[:, None, None, :]
            with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(ids, mask), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model, optimizer, loss


# ---- the programs of lab/torch, which are recorded when they are named

PROGRAMS = Path(__file__).resolve().parent.parent / "lab" / "torch"


def program_run(name):
    """A program's steps in its size for recordings; at the end nothing of it is alive."""

    def run(device):
        sys.path.insert(0, str(PROGRAMS))
        program = importlib.import_module(name)
        steps = program.steps(device, **program.SIZES["record"])
        for number in itertools.count():
            with record_function(f"step {number}"):
                if next(steps, steps) is steps:
                    return None

    return run


def programs():
    """Their names and descriptions, of those whose name is not a workload's."""
    found = {}
    for path in sorted(PROGRAMS.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\ndef steps(" in text and path.stem not in WORKLOADS:
            found[path.stem] = " ".join(text.split('"""')[1].split())
    return found


# ---- recording


class CachingAllocator:
    """The policy of PyTorch's caching allocator: defaults, one device, one stream, no limit on memory."""

    class Block:
        __slots__ = ("address", "size", "requested", "allocated", "previous", "next", "frames", "small")

        def __init__(self, address, size, small, previous=None, following=None):
            self.address, self.size, self.small = address, size, small
            self.requested, self.allocated, self.frames = 0, False, []
            self.previous, self.next = previous, following

    def __init__(self):
        self.free_blocks = {True: [], False: []}  # small, large: (size, address, block) in order
        self.segments = []  # (first block, size, small, frames)
        self.top = 0x7F0000000000
        self.reserved = 0

    def take(self, small, size):
        """The smallest free block of at least this size, the lowest address among equals."""
        free = self.free_blocks[small]
        i = bisect.bisect_left(free, (size, 0))
        return free.pop(i)[2] if i < len(free) else None

    def keep(self, block):
        bisect.insort(self.free_blocks[block.small], (block.size, block.address, block))

    def grow(self, small, size, frames):
        if small:
            size = 2 * MIB
        elif size < 10 * MIB:
            size = 20 * MIB
        else:
            size = -(-size // (2 * MIB)) * 2 * MIB
        block = self.Block(self.top, size, small)
        self.segments.append((block, size, small, frames))
        self.top += size
        self.reserved += size
        return block

    def alloc(self, requested, frames):
        """Returns the block and whether a segment was made for it."""
        size = max(512, -(-requested // 512) * 512)
        small = size <= MIB
        block = self.take(small, size)
        grown = block is None
        if grown:
            block = self.grow(small, size, frames)
        rest = block.size - size
        if rest >= 512 if small else rest > MIB:
            remainder = self.Block(block.address + size, rest, small, block, block.next)
            if block.next:
                block.next.previous = remainder
            block.next, block.size = remainder, size
            self.keep(remainder)
        block.requested, block.allocated, block.frames = requested, True, frames
        return block, grown

    def free(self, block):
        block.allocated, block.frames = False, []
        free = self.free_blocks[block.small]
        for other in (block.previous, block.next):
            if other and not other.allocated:
                free.pop(bisect.bisect_left(free, (other.size, other.address)))
                if other is block.previous:
                    # The lower block's object stays the first of its segment.
                    other.requested = block.requested
                    other.size += block.size
                    other.next = block.next
                    block = other
                else:
                    block.size += other.size
                    block.next = other.next
                if block.next:
                    block.next.previous = block
        self.keep(block)

    def snapshot(self):
        segments = []
        for first, size, small, frames in self.segments:
            blocks = []
            block = first
            while block:
                blocks.append({
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": "active_allocated" if block.allocated else "inactive",
                    "frames": block.frames,
                })
                block = block.next
            active = [b for b in blocks if b["state"] == "active_allocated"]
            segments.append({
                "device": 0,
                "address": first.address,
                "total_size": size,
                "stream": 0,
                "segment_type": "small" if small else "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "allocated_size": sum(b["size"] for b in active),
                "active_size": sum(b["size"] for b in active),
                "requested_size": sum(b["requested_size"] for b in active),
                "frames": frames,
                "blocks": blocks,
            })
        return segments


DEFAULT_SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.0,
    "expandable_segments": False,
    "pinned_num_register_threads": 1,
    "release_lock_on_cudamalloc": False,
    "pinned_use_cuda_host_register": False,
    "graph_capture_record_stream_reuse": False,
    "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)},
}


def op_frames(event, known):
    """The operators and module ranges around an event, innermost first; equal stacks are one object."""
    names = []
    event = event.parent
    while event and len(names) < 8:
        name = event.name
        if not name.startswith("autograd::engine::") and (not names or names[-1] != name):
            names.append(name)
        event = event.parent
    key = tuple(names)
    if key not in known:
        stack = []
        for name in names:
            if name in RANGE_LINES:
                kind, line = RANGE_LINES[name]
                stack.append({"name": f"{name} ({kind})", "filename": "record-torch.py", "line": line})
            else:
                stack.append({"name": name, "filename": "torch", "line": 0})
        known[key] = stack
    return known[key]


def record_cpu(run):
    from torch._C._profiler import _EventType
    from torch.profiler import ProfilerActivity, profile
    from torch.profiler._utils import traverse_dfs

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False) as profiler:
        alive = run("cpu")
    events = list(traverse_dfs(profiler.profiler.kineto_results.experimental_event_tree()))
    del alive
    events.sort(key=lambda event: event.start_time_ns)  # stable: equal times keep the profiler's order

    model = CachingAllocator()
    trace, annotations, live, known, host = [], [], {}, {}, set()

    def add(action, address, size, time_us, frames):
        trace.append({
            "action": action,
            "addr": address,
            "size": size,
            "stream": 0,
            "time_us": time_us,
            "compile_context": "N/A",
            "user_metadata": "",
            "frames": frames,
        })

    for event in events:
        time_us = event.start_time_ns // 1000
        if event.tag != _EventType.Allocation:
            if event.name.startswith(("step ", "validation", "evaluation", "prompt ", "Optimizer.")):
                for stage, ns in (("START", event.start_time_ns), ("END", event.end_time_ns)):
                    annotations.append({"name": event.name, "stage": stage, "device": 0, "time_us": ns // 1000})
            continue
        pointer, size = event.extra_fields.ptr, event.extra_fields.alloc_size
        if size > 0:
            if pointer in live or pointer in host:
                raise SystemExit(f"record-torch: the profiler lost the free of a block of {size} bytes")
            if size <= 8:
                # A Python number made into a tensor, an optimizer's step counter: on the host with a GPU, too.
                host.add(pointer)
                continue
            frames = op_frames(event, known)
            block, grown = model.alloc(size, frames)
            if grown:
                first, segment_size, _, _ = model.segments[-1]
                add("segment_alloc", first.address, segment_size, time_us, frames)
            add("alloc", block.address, size, time_us, frames)
            live[pointer] = (block, block.address, size)
        elif pointer in host:
            host.remove(pointer)
        elif pointer in live:
            block, address, allocated = live.pop(pointer)
            if allocated != -size:
                raise SystemExit(f"record-torch: a block of {allocated} bytes was freed with {-size}")
            frames = op_frames(event, known)
            add("free_requested", address, allocated, time_us, frames)
            add("free_completed", address, allocated, time_us, frames)
            model.free(block)
        # Else: a host tensor that PyTorch made before the recording began.
    annotations.sort(key=lambda a: a["time_us"])
    return {
        "segments": model.snapshot(),
        "device_traces": [trace],
        "allocator_settings": DEFAULT_SETTINGS,
        "external_annotations": annotations,
    }


def record_cuda(run):
    limit = 1_000_000
    torch.cuda.memory._record_memory_history(max_entries=limit, stacks="python")
    alive = run("cuda")
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    del alive
    if any(len(trace) >= limit for trace in snapshot["device_traces"]):
        raise SystemExit("record-torch: the trace is longer than the history that was kept")

    known = {}

    def shorten(frames):
        """Files without the folders of this machine, the innermost frames; equal stacks are one object."""
        stack = []
        for frame in frames[:8]:
            path = Path(frame["filename"])
            name = "torch/" + path.as_posix().rpartition("/torch/")[2] if "torch" in path.parts else path.name
            stack.append((frame["name"], name, frame["line"]))
        return known.setdefault(tuple(stack), [{"name": n, "filename": f, "line": i} for n, f, i in stack])

    for trace in snapshot["device_traces"]:
        for entry in trace:
            entry["frames"] = shorten(entry.get("frames", []))
    for segment in snapshot["segments"]:
        for item in (segment, *segment["blocks"]):
            item["frames"] = shorten(item.get("frames", []))
    return snapshot


def share(value, known):
    """Equal strings become one object, which the pickle then writes once. Frames are shared already."""
    if isinstance(value, str):
        return known.setdefault(value, value)
    if isinstance(value, dict):
        for key in list(value):
            value[known.setdefault(key, key)] = share(value.pop(key), known)
    elif isinstance(value, list) and id(value) not in known:
        known[id(value)] = value
        value[:] = [share(item, known) for item in value]
    return value


def peaks(snapshot):
    """Events, peak of requested bytes, peak of bytes reserved, for a trace that begins on an empty device."""
    requested = reserved = peak_requested = peak_reserved = 0
    events = [entry for trace in snapshot["device_traces"] for entry in trace]
    for entry in events:
        if entry["action"] == "alloc":
            requested += entry["size"]
        elif entry["action"] == "free_completed":
            requested -= entry["size"]
        elif entry["action"] in ("segment_alloc", "segment_map"):
            reserved += entry["size"]
        elif entry["action"] in ("segment_free", "segment_unmap"):
            reserved -= entry["size"]
        peak_requested = max(peak_requested, requested)
        peak_reserved = max(peak_reserved, reserved)
    return len(events), peak_requested, peak_reserved


def compress(data):
    if shutil.which("zstd"):
        return subprocess.run(["zstd", "-19", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    try:
        import zstandard
    except ImportError:
        sys.exit("record-torch: neither the zstd program nor Python's zstandard is here (pip install zstandard)")
    return zstandard.ZstdCompressor(level=19).compress(data)


def record(name, seed, cuda, threads, out):
    description, function = WORKLOADS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    gc.disable()  # a collection would free at a moment that differs between runs
    snapshot = (record_cuda if cuda else record_cpu)(function)
    device = "cuda" if cuda else "cpu"
    snapshot["tarn_recorded"] = {
        "source": "cuda" if cuda else "profiler (CPU), PyTorch's reserved memory modelled",
        "name": name,
        "what": description,
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda) if cuda else "",
        "device": torch.cuda.get_device_name() if cuda else "CPU",
        "python": platform.python_version(),
        "seed": seed,
        "command": f"lab/record-torch.py --device {device} --only {name} --seed {seed} --threads {threads}",
    }
    path = out / f"{name}.pickle.zst"
    data = compress(pickle.dumps(share(snapshot, {}), protocol=4))
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        sys.exit(f"record-torch: {error}")
    events, requested, reserved = peaks(snapshot)
    print(
        f"{path.name}: {events:,} events, peak requested {requested:,} B, reserved {reserved:,} B "
        f"({reserved / requested:.3f}), {len(data):,} B on disk"
    )


def main():
    parser = argparse.ArgumentParser(
        prog="lab/record-torch.py",
        description="Runs models under PyTorch and writes what they allocate as memory snapshots (.pickle.zst).",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder to write to (default: examples/traces)")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where models run (default: cuda, if there is a GPU)")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="record only this model or program of lab/torch (may be repeated)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="seed of weights and inputs (default: 1)")
    parser.add_argument("--threads", metavar="N", type=int, default=2, help="threads for a run on the CPU (default: 2)")
    parser.add_argument("--list", action="store_true", help="list what can be recorded and exit")
    options = parser.parse_args()

    usual = list(WORKLOADS)
    for name, description in programs().items():
        WORKLOADS[name] = (description, program_run(name))
    if options.list:
        for name, (description, _) in WORKLOADS.items():
            print(f"{name}: {description}")
        return
    for name in options.only or ():
        if name not in WORKLOADS:
            parser.error(f"nothing is called {name!r}; there are: {', '.join(WORKLOADS)}")
    if torch is None:
        sys.exit(f"record-torch: PyTorch cannot be used ({torch_error}); install it: python3 -m pip install torch")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("record-torch: PyTorch finds no GPU; --device cpu records on the CPU")
    cuda = options.device != "cpu" and torch.cuda.is_available()
    out = options.out or Path(__file__).resolve().parent.parent / "examples" / "traces"
    names = options.only or usual
    if len(names) == 1:
        record(names[0], options.seed, cuda, options.threads, out)
        return
    for name in names:  # each in a process of its own: from an empty device, whatever ran before
        command = [sys.executable, __file__, "--only", name, "--out", str(out), "--device", "cuda" if cuda else "cpu"]
        command += ["--seed", str(options.seed), "--threads", str(options.threads)]
        status = subprocess.run(command, check=False).returncode
        if status:
            sys.exit(status if status > 0 else f"record-torch: {name} was ended by signal {-status}")


if __name__ == "__main__":
    main()
