# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""DistributedDataParallel on two GPUs: on PyTorch's own allocator, on tarn, and on tarn with a sleep between steps. The losses must be the
same to the last bit. Run as `python python/torch/tests/ddp.py`; it starts the ranks itself. NVLink multicast stays off. If a rank fails, what it
printed is shown, with its traceback."""
import argparse
import os
import subprocess
import sys
import time
import traceback

RANKS = 2
MODES = ("native", "tarn", "tarn, asleep between steps", "tarn, registered, asleep between steps")


def train(mode: str, steps: int) -> None:
    """One rank."""
    asleep, registered = mode in MODES[2:], mode == MODES[3]
    if mode != MODES[0]:
        import tarn.torch
        tarn.torch.enable()
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    pool = torch.cuda.MemPool()
    if registered:
        tarn.torch.registrable(pool)
    rate = []
    losses = []
    registration = None
    with torch.cuda.use_mem_pool(pool):
        layers = [torch.nn.Linear(4096, 4096) for _ in range(8)]
        model = DistributedDataParallel(torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.GELU())]).cuda())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for step in range(steps):
            if registered and step == 1:
                registration = tarn.torch.register(pool)
            elif registration:
                registration.update()  # the second step has the optimizer's state beside the activations
            torch.manual_seed(100 * step + rank)
            batch = torch.randn(512, 4096, device="cuda")
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
            if asleep:
                torch.cuda.synchronize()
                dist.barrier()
                torch.cuda.synchronize()
                before = torch.cuda.mem_get_info()[0]
                start = time.perf_counter()
                slept = tarn.torch.sleep(None if registered else [pool])
                down = time.perf_counter() - start
                freed = torch.cuda.mem_get_info()[0] - before
                start = time.perf_counter()
                tarn.torch.wake(None if registered else [pool])
                up = time.perf_counter() - start
                if slept and [item for item in slept.residue if item.reason in ("sleeper", "registered")]:
                    raise RuntimeError(f"what is registered did not sleep: {slept}")
                rate.append((freed, down, up))
                dist.barrier()
    if registration:
        registration.close()
    if rank == 0:
        print("losses", " ".join(loss.hex() for loss in losses), flush=True)
        for freed, down, up in rate[1:]:
            print(f"sleep: {freed / 2**20:.0f} MiB given back; down {down:.3f} s ({freed / down / 1e9:.1f} GB/s), "
                  f"up {up:.3f} s ({freed / up / 1e9:.1f} GB/s)", flush=True)
    dist.destroy_process_group()


def run(mode: str, steps: int) -> str:
    """All ranks; the line of losses."""
    environment = dict(os.environ, NCCL_NVLS_ENABLE="0")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", __file__,
               "--rank-of", mode, "--steps", str(steps)]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180,
                              check=False)
    except subprocess.TimeoutExpired as late:
        print(late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or "")
        sys.exit(f"ddp: {mode} did not end")
    lines = done.stdout.splitlines()
    print(f"{mode}: exit {done.returncode}")
    for line in lines:
        if line.startswith("sleep:"):
            print(" ", line)
    if done.returncode:
        print(done.stdout)
        sys.exit(f"ddp: {mode} failed")
    return next(line for line in lines if line.startswith("losses"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--registered", action="store_true", help="also with the pool registered with NCCL, by tarn.torch.register()")
    parser.add_argument("--rank-of", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        try:
            train(options.rank_of, options.steps)
        except BaseException:
            print(f"rank {os.environ.get('RANK')}:\n{traceback.format_exc()}", flush=True)
            sys.stdout.flush()
            os._exit(1)  # the other rank may wait for this one for ever
        return
    losses = [run(mode, options.steps) for mode in MODES if options.registered or mode != MODES[3]]
    same = all(line == losses[0] for line in losses)
    print(losses[0])
    print("every loss is the same to the last bit" if same else "the losses differ:\n" + "\n".join(losses))
    sys.exit(not same)


if __name__ == "__main__":
    main()
