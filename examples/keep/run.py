# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""How long a server of a language model takes from its start to its first token, with and without a kept pool.

Makes a checkpoint of a Llama with random weights, about 8 GB on a GPU, and starts serve.py on it: without a kept pool, then with one, each
time killed by SIGKILL while it generates. Needs torch, transformers and room for the checkpoint in --folder; no network. Without a GPU, or
with --small, the model is small; without a GPU it is in the memory of tarn's host device."""

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

SERVE = Path(__file__).with_name("serve.py")
TOKENS = 8  # after the first, before the kill
STEPS = ["imports", "context", "model", "weights", "token", "all"]


def checkpoint(folder, small):
    """Writes a checkpoint of random weights, in files of 2 GB."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging
    logging.disable_progress_bar()
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
                         vocab_size=1000) if small else LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=17, num_attention_heads=32, num_key_value_heads=8, vocab_size=32000)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda:0" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder, max_shard_size="2GB")


def forget(folder):
    """Takes the checkpoint out of the system's page cache, as far as the file system does that."""
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def serve(folder, *arguments):
    """Starts a server, kills it while it generates, and gives what it said with its first token."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, SERVE, folder, "--since", str(started), *arguments], stdout=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline() for _ in range(1 + TOKENS)]
        if not lines[-1]:
            sys.exit(f"serve.py ended early, with status {process.wait()}")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    return {**json.loads(lines[0]), "tokens": [json.loads(line)["token"] for line in lines]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the checkpoint is; it is made if it is not there, and then stays")
    parser.add_argument("--small", action="store_true", help="a model of a few MB, as without a GPU")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        os.environ["TARN_DRIVER"] = "host"
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    with tempfile.TemporaryDirectory() as work:
        folder = options.folder or Path(work, "checkpoint")
        if not list(folder.glob("*.safetensors")):
            making = multiprocessing.get_context("spawn").Process(  # its end frees the device
                target=checkpoint, args=(folder, options.small or not torch.cuda.is_available()))
            making.start()
            making.join()
            if making.exitcode:
                sys.exit("the checkpoint could not be made")
        socket = str(Path(work, "owner"))
        owner = subprocess.Popen([sys.executable, "-m", "tarn", "keep", "--socket", socket], stdout=subprocess.PIPE)
        owner.stdout.readline()
        os.environ["TARN_KEEP"] = socket
        try:
            runs = {}
            for name, arguments, is_cold in (("without, file not in memory", (), True), ("without, file in memory", (), False),
                                             ("kept, the first process", ("--keep", "weights"), False),
                                             ("kept, after kill -9", ("--keep", "weights"), True),
                                             ("kept, after another", ("--keep", "weights"), True)):
                if is_cold:
                    forget(folder)
                runs[name] = serve(folder, *arguments)
        finally:
            owner.terminate()
            owner.wait()
            owner.stdout.close()

    bytes = next(iter(runs.values()))["bytes"]
    print(f"Seconds from the start of the process to its first token, {bytes / 1e9:.2f} GB of weights\n(imports: of Python, PyTorch and "
          "transformers; context: of the device; model: without weights; token: the prompt's 64 tokens and the first new one):\n")
    print(f"{'':30}" + "".join(f"{step:>10}" for step in STEPS))
    for name, said in runs.items():
        print(f"{name:30}" + "".join(f"{said['seconds'][step]:10.3f}" for step in STEPS) + f"   {said['weights']}")
    whence = [said["weights"] for said in runs.values()]
    addresses = {said["address"] for said in runs.values() if said["weights"] not in ("loaded", "moved")}
    equal = len({said["logits"] for said in runs.values()}) == 1 and len({tuple(said["tokens"]) for said in runs.values()}) == 1
    print(f"\nlogits and {1 + TOKENS} tokens: {'equal in all' if equal else 'NOT EQUAL'}; addresses: {'the same' if len(addresses) == 1 else 'other'}")
    if not equal or whence[:3] != ["loaded", "loaded", "loaded and sealed"] or not set(whence[3:]) <= {"kept", "moved"}:
        sys.exit("FAILED: " + json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
