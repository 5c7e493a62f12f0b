# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""A small server of a language model: reads a checkpoint, and generates tokens for one prompt. With --keep its weights stay on the
device when it ends, and the next process has them without reading the checkpoint. It prints a line of JSON for each
token. run.py starts it, kills it and compares."""

import argparse
import hashlib
import json
import time
from pathlib import Path

STARTED = time.monotonic()

import torch  # noqa: E402
from safetensors import safe_open  # noqa: E402
from transformers import AutoConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # noqa: E402

import tarn.torch  # noqa: E402

IMPORTED = time.monotonic()


def stored(folder, device):
    """The names and tensors of a checkpoint."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt", device=device) as file:
            for name in file.keys():
                yield name, file.get_tensor(name)


def skeleton(config):
    """The model without weights. Its rotary embedding is no part of a checkpoint, so it is computed, in single precision."""
    torch.set_default_dtype(config.dtype)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--keep", metavar="NAME", help="the kept pool; without it the weights end with the process")
    parser.add_argument("--since", type=float, default=STARTED, help="time.monotonic() when the process was started")
    options = parser.parse_args()
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    torch.zeros(1, device=device)  # creates the context
    context = time.monotonic()

    model = skeleton(AutoConfig.from_pretrained(options.checkpoint))
    made = time.monotonic()
    if options.keep:
        kept = tarn.torch.keep(model, options.keep, load=lambda: stored(options.checkpoint, device), wait=60)
        whence = "moved" if kept.moved else "kept" if kept.adopted else "loaded and sealed"
    else:
        for name, tensor in stored(options.checkpoint, device):
            model.load_state_dict({name: tensor}, strict=False, assign=True)
        model.to(device)
        whence = "loaded"
    if device != "cpu":
        torch.cuda.synchronize()
    there = time.monotonic()

    logits = []

    class Look(LogitsProcessor):
        """Notes the logits of the first token."""

        def __call__(self, _, scores):
            if not logits:
                logits.append(scores.float())
            return scores

    class Said:
        """Hears of the prompt, then of each token."""
        count = -1

        def put(self, value):
            self.count += 1
            if self.count == 1:
                token, now = value.item(), time.monotonic()
                print(json.dumps({
                    "token": token, "weights": whence, "logits": hashlib.sha256(logits[0].cpu().numpy().tobytes()).hexdigest(),
                    "address": model.lm_head.weight.data_ptr(), "bytes": sum(tensor.nbytes for tensor in model.parameters()),
                    "seconds": {"imports": IMPORTED - options.since, "context": context - IMPORTED, "model": made - context,
                                "weights": there - made, "token": now - there, "all": now - options.since}}), flush=True)
            elif self.count > 1:
                print(json.dumps({"token": value.item()}), flush=True)

        def end(self):
            pass

    prompt = torch.arange(1, 65, device=device)[None]
    model.generation_config.eos_token_id = None
    model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=1500, logits_processor=LogitsProcessorList([Look()]), streamer=Said())


if __name__ == "__main__":
    main()
