#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# README.md: its program runs with the shared and the static library on every driver that there is without a GPU, the examples in C beside it
# compile without a warning, and the number of tests that it names is right. It stays short, its plots are
# of today's figures, and so is its first sentence. What it and the other documents print is held by
# test_figures.sh, their links by test_links.sh.
set -euo pipefail
cd "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_readme: $*" >&2; exit 1; }
unset TARN_DRIVER TARN_HOST_DEVICES TARN_HOST_MEMORY TARN_HOST_MAPS TARN_LOG TARN_ALLOC_CONF

lines=$(wc -l <README.md)
[ "$lines" -le 110 ] || fail "README.md has $lines lines; it is to have about 100: the rest belongs to docs/"
grep -q '^!\[.*](docs/pictures/report.png)$' README.md || fail "README.md does not show a page"
scripts/plots --check || fail "a plot is stale"
python3 - <<'END_OF_PYTHON' || fail "the first sentence has other figures than lab/hardware-figures readme"
import subprocess
rows = [[cell.strip().split(" ")[0] for cell in line.split("|")] for line in
        subprocess.check_output(["lab/hardware-figures", "readme"], text=True).splitlines()]
sentence = " ".join(open("README.md").read().split("\n\n")[1].split())
one, many, memory = rows[2], rows[3], [(float(cell) - 1) * 100 if cell else None for cell in rows[6][2:6]]
said = ("in %.0f ns on 1 thread and in %.0f ns on 16, where `cudaMallocAsync` takes %.1f and %.0f µs," %
        (float(one[2]), float(many[2]), float(one[3]) / 1000, float(many[3]) / 1000),
        "reserve %.1f %% more than they request, where PyTorch reserves %.1f %% more with expandable segments and %.0f %% more by default." %
        (memory[0], memory[3], memory[2]))
raise SystemExit(any(part not in sentence for part in said))
END_OF_PYTHON
[ -s docs/pictures/report.png ] || fail "the picture is missing; scripts/tutorial-pictures --readme makes it"

flags=(-std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude)
"$CC" "${flags[@]}" examples/hello.c -L"$TARN_BUILD" -ltarn -Wl,-rpath,"$TARN_BUILD" -o "$work/shared"
"$CC" "${flags[@]}" examples/hello.c "$TARN_BUILD/libtarn.a" -pthread -ldl -o "$work/static"
TARN_DRIVER=host "$work/shared" >"$work/expected" || fail "the program fails on the host device"
[ -s "$work/expected" ] || fail "the program prints nothing"
grep -qxF -e "$(cat "$work/expected")" README.md || fail "README.md does not say what the program prints"
TARN_DRIVER=host "$work/static" | diff "$work/expected" - >&2 || fail "the static program prints something else"
if [ -d "$TARN_BUILD/sim" ]; then
    for driver in cuda hip; do
        "$TARN_PROGRAM" sim --driver "$driver" -- "$work/shared" >"$work/printed" || fail "the program fails on $driver, simulated"
        diff "$work/expected" "$work/printed" >&2 || fail "the program prints something else on $driver, simulated"
    done
fi
for example in examples/handle.c examples/headers/*.c; do
    scripts/example "$example" >/dev/null || fail "$example failed"
done
scripts/example examples/pool_export.c >"$work/printed" || fail "examples/pool_export.c failed"
printf '%s\n' 'importer: a block, 40 MiB' 'importer: a block, 40 MiB' 'importer: revoked' 'exporter: 0 importers' |
    diff - "$work/printed" >&2 || fail "examples/pool_export.c prints something else"

# "more than N tests": those of all configurations, to the last hundred.
said=$(grep -oE 'more than [0-9]+ tests' README.md | grep -oE '[0-9]+') || fail "README.md does not say how many tests there are"
tests=$(find "$TARN_BUILD" -name CTestTestfile.cmake -exec cat {} + | awk '/^add_test\(/ && $0 !~ /abi\./ { count++ } END { print count + 0 }')
[ "$tests" -gt "$said" ] || fail "README.md says more than $said tests; there are $tests"
[ "$tests" -le $((said + 100)) ] || fail "README.md says more than $said tests; there are $tests"
echo "$lines lines, $tests tests"
