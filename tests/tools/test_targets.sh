#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What `tarn replay` must hold on real training and inference traces of over 1 GiB: memory reserved beside memory asked for, the
# driver's time beside that of PyTorch's policy, and a device that has 6 % more than the trace asks for. All from the
# ledger and the virtual clock, so the same on every machine. TARN_TRACES names the folders.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

files=()
IFS=: read -ra folders <<<"$TARN_TRACES"
for folder in "${folders[@]}"; do
    for file in "$folder"/*.pickle "$folder"/*.pickle.zst; do
        [ ! -f "$file" ] || files+=("$file")
    done
done
[ ${#files[@]} -gt 0 ] || { echo "no traces in $TARN_TRACES" >&2; exit 1; }

"$TARN_PROGRAM" replay --json "${files[@]}" >"$work/all.json"
python3 - "$work/all.json" "$TARN_PROGRAM" <<'END_OF_PYTHON'
import json, math, subprocess, sys

failures = []
ratios = []
for result in json.load(open(sys.argv[1])):
    if "peak_requested" not in result:
        continue
    name, requested = result["file"], result["peak_requested"]
    ratio = result["peak_reserved"] / requested
    time = result["driver_time_us"]["A"] / result["pytorch_driver_time_us"]["A"]
    print(f"{name}: reserved / requested {ratio:.4f}, driver time / PyTorch's {time:.2f}")
    if result["divergences"]:
        failures.append(f"{name}: {result['divergences']} divergences")
    if requested > 1 << 30:
        ratios.append(ratio)
        if ratio > 1.05:
            failures.append(f"{name}: reserved / requested is {ratio:.4f}, above 1.05")
    if time > 5:
        failures.append(f"{name}: driver time is {time:.2f} x PyTorch's, above 5")
    granule = 2 << 20
    memory = int(requested * 1.06) // granule * granule
    tight = subprocess.run([sys.argv[2], "replay", "--json", "--device-memory", str(memory), name], capture_output=True)
    if tight.returncode:
        failures.append(f"{name}: does not run with {memory} bytes: {tight.stdout.decode()[-500:]}")
if not ratios:
    failures.append("no trace of over 1 GiB was found")
else:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean over 1 GiB: {mean:.4f}")
    if mean > 1.04:
        failures.append(f"the geometric mean is {mean:.4f}, above 1.04")
for failure in failures:
    print(failure, file=sys.stderr)
sys.exit(1 if failures else 0)
END_OF_PYTHON
