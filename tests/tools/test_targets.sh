#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What `tarn replay` must hold on real training and inference traces: memory reserved beside memory asked for, the driver's time
# beside that of PyTorch's policy, the same in the profile footprint and dealt over threads and streams, and a device that has 6 %
# more than the trace asks for. Files below 1 GiB are shown and not judged. All from the ledger and the
# virtual clock, so the same on every machine. TARN_TRACES names the folders.
set -euo pipefail

files=()
IFS=: read -ra folders <<<"$TARN_TRACES"
for folder in "${folders[@]}"; do
    for file in "$folder"/*.pickle "$folder"/*.pickle.zst; do
        [ ! -f "$file" ] || files+=("$file")
    done
done
[ ${#files[@]} -gt 0 ] || { echo "no traces in $TARN_TRACES" >&2; exit 1; }

costs=$(cd "$(dirname "$0")/../.." && pwd)/docs/costs-h200.txt
python3 - "$TARN_PROGRAM" "$costs" "${files[@]}" <<'END_OF_PYTHON'
import json, math, os, subprocess, sys

program, costs, files = sys.argv[1], sys.argv[2], sys.argv[3:]
failures = []

def replay(*options):
    run = subprocess.run([program, "replay", "--json", *options, *files], capture_output=True,
                         env=dict(os.environ, TARN_HOST_COSTS=costs))
    return [r for r in json.loads(run.stdout) if "peak_requested" in r]

def limit(what, value, most):
    if value > most:
        failures.append(f"{what} is {value:.4f}, above {most}")

def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))

def judge(options, worst, average, times, mean_time_c=None, below_pytorch=True, to="requested"):
    """Prints a row a file, and holds those over 1 GiB to the limits."""
    ratios, times_c = [], []
    print("tarn replay", *options)
    for r in replay(*options):
        if r.get("error") or r["divergences"]:
            failures.append(f"{r['file']} {options}: {r.get('error')}, {r['divergences']} divergences")
            continue
        ratio = r["peak_reserved"] / r["peak_" + to]
        time = {table: us / r["pytorch_driver_time_us"][table] for table, us in r["driver_time_us"].items()}
        print(f"  {os.path.basename(r['file'])}: reserved / {to} {ratio:.4f}, PyTorch's {r['pytorch_peak_reserved'] / r['peak_' + to]:.4f};",
              "driver time / PyTorch's", ", ".join(f"{table} {x:.2f}" for table, x in time.items()))
        if r["peak_requested"] <= 1 << 30:
            continue
        what = f"{r['file']} {' '.join(options)}"
        for table, most in times.items():
            limit(f"{what}: driver time by {table}", time[table], most)
        times_c.append(time["C"])
        ratios.append(ratio)
        limit(f"{what}: reserved / {to}", ratio, worst)
        if below_pytorch:
            limit(f"{what}: reserved / PyTorch's", r["peak_reserved"] / r["pytorch_peak_reserved"], 1)
    if not ratios:
        failures.append("no trace of over 1 GiB was found")
        return
    print(f"  geometric means over 1 GiB: reserved / {to} {mean(ratios):.4f}, time by C {mean(times_c):.2f}")
    limit(f"{options}: the mean of reserved / {to}", mean(ratios), average)
    if mean_time_c:
        limit(f"{options}: the mean of driver time by C", mean(times_c), mean_time_c)

for lag in "0", "2", "20", "100":
    judge(["--lag", lag], 1.03, 1.02, {"A": 1.1, "B": 1.5}, 1.1)
judge(["--profile", "footprint"], 1.025, 1.02, {"A": 5})
judge(["--deal-threads", "8", "--lag", "20"], 1.05, 1.04, {"A": 1.1, "B": 1.5}, to="active")
judge(["--deal-streams", "4", "--lag", "20"], 1.18, 1.12, {"A": 1.1, "B": 1.5}, below_pytorch=False, to="active")

for r in replay():
    memory = int(r["peak_requested"] * 1.06) >> 21 << 21
    tight = subprocess.run([program, "replay", "--json", "--device-memory", str(memory), r["file"]], capture_output=True)
    if tight.returncode:
        failures.append(f"{r['file']}: does not run with {memory} bytes: {tight.stdout.decode()[-500:]}")

# Once warm: what is left of the calls of the first repetition.
for r in replay("--repeat", "6"):
    calls = [sum(one["driver_calls"].values()) for one in r["repeat"]]
    print(f"  {os.path.basename(r['file'])}: driver calls by repetition {calls}")
    limit(f"{r['file']}: driver calls of the sixth repetition / of the first", calls[5] / calls[0], 0.01)
for failure in failures:
    print(failure, file=sys.stderr)
sys.exit(1 if failures else 0)
END_OF_PYTHON
