#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# lab/torch-programs without a GPU: how it is called, how it looks for the smallest device, and what its table shows. TARN_SOURCE is
# the source tree.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_torch_programs: $*" >&2; cat "$work/out" "$work/err" >&2; exit 1; }

# gives STATUS ARGUMENTS...
gives()
{
    local wanted=$1 status=0
    shift
    env PYTHONDONTWRITEBYTECODE=1 "$TARN_SOURCE/lab/torch-programs" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ "$status" -eq "$wanted" ] || fail "$* gave $status, not $wanted"
}
says() { grep -q -- "$2" "$work/$1" || fail "does not say: $2"; }

gives 0 --list
[ "$(wc -l <"$work/out")" -eq 8 ] || fail "there are eight programs"
for program in varlen generate experts convnet graphs streams diffusion recompute; do says out "^$program: [A-Z]"; done
gives 0 --help
says out 'native,expandable,tarn'
gives 2 --only nonsense
says err "no program is called 'nonsense'; there are: varlen,"
gives 2 --policies c10
says err "no policy is called 'c10'"
for wrong in '--rounds 0' '--rounds x' '--resolution 0' '--seconds 1' '--size huge' '--only ,' 'surplus'; do
    # shellcheck disable=SC2086 # two words
    gives 2 $wrong
done
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    gives 3 --quick
    says err 'torch-programs: '
fi

# What it makes of runs: `run` is replaced by one that finishes from a limit on.
PYTHONDONTWRITEBYTECODE=1 python3 - "$TARN_SOURCE/lab/torch-programs" "$TARN_SOURCE" <<'END' 2>"$work/err" || fail "see above"
import ast, importlib.machinery, pathlib, sys, time, types
path = sys.argv[1]
script = types.ModuleType("script")
script.__file__ = path
importlib.machinery.SourceFileLoader("script", path).exec_module(script)

options = script.arguments(["--only", "experts,varlen,experts", "--policies", "native,tarn", "--resolution", "0.01"])
assert options.only == ["experts", "varlen"] and options.policies == ["native", "tarn"] and options.rounds == 3
quick = script.arguments(["--quick"])
assert quick.rounds == 1 and quick.no_limits and quick.only == list(script.PROGRAMS)

GIB = script.GIB
least = {"native": 1.337, "tarn": 1.043}
limits = []

def run(torch, name, policy, options, limit=None):
    result = {"program": name, "policy": policy, "limit": limit, "seconds": 0.1}
    if name == "varlen" and policy == "tarn":
        return dict(result, error="it broke")
    if limit:
        limits.append(limit)
        if limit < least[policy] * GIB + 7:
            return dict(result, error="exit status 77")
    turn = len(every)
    return dict(result, requested=GIB, reserved=int({"native": 1.5, "tarn": 1.05}[policy] * GIB), outside=7, steps=[0.001, 0.003, 9.0 if turn == 0 else 0.002],
                sum=100.0)

script.run, script.say = run, lambda text: None
table = {(n, p): script.Measured() for n in options.only for p in options.policies}
every, later = [], time.monotonic() + 60
script.rounds(None, options, table, every, later)
assert len(every) == 12 and table["varlen", "tarn"].error == "it broke" and not table["varlen", "tarn"].runs
assert abs(table["experts", "native"].step() - 0.002) < 1e-9  # one disturbed step of three runs counts for nothing
script.limits(None, options, table, every, later)
assert abs(table["experts", "native"].fits - 1.34) < 1e-9 and abs(table["experts", "tarn"].fits - 1.05) < 1e-9
assert table["experts", "native"].fails is None and len(limits) < 30
text = script.table_text(table, options)
row = next(line for line in text.splitlines() if line.startswith("| experts "))
assert row == "| experts | 1.000 | 1.5000 | 1.0500 | 1.340 | 1.050 | 2.0 | 2.0 |", row
assert "| failed |" in text and not script.differs(table, options, "experts")
table["experts", "tarn"].runs[0]["sum"] = 90.0
assert script.differs(table, options, "experts")
table["experts", "tarn"].runs[0]["sum"] = float("nan")
assert script.differs(table, options, "experts")

# Out of time nothing is run, and nothing is claimed.
fresh = script.Measured()
fresh.runs = table["experts", "native"].runs
before = len(every)
script.smallest(None, options, fresh, "experts", "native", (GIB, 7), every, time.monotonic() - 1)
assert len(every) == before and script.limit_text(fresh) == "-"

# More than what it reserves without a limit may be needed.
least["native"] = 1.7
fresh = script.Measured()
fresh.runs = table["experts", "native"].runs
script.smallest(None, options, fresh, "experts", "native", (GIB, 7), every, time.monotonic() + 60)
assert fresh.fits >= 1.7 and fresh.fits < 1.85, fresh.fits

# Every program can be read, has the three sizes, and a description.
for name in script.PROGRAMS + script.MORE:
    tree = ast.parse((pathlib.Path(sys.argv[2]) / "lab/torch" / f"{name}.py").read_text(encoding="utf-8"))
    sizes = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "SIZES"]
    assert [key.value for key in sizes[0].keys] == ["full", "record", "tiny"], name
    assert any(isinstance(node, ast.FunctionDef) and node.name == "steps" for node in tree.body), name
END
PYTHONDONTWRITEBYTECODE=1 "$TARN_SOURCE/lab/record-torch.py" --list >"$work/out"
says out '^experts: Training of a mixture of experts'
[ "$(grep -c '^generate: ' "$work/out")" -eq 1 ] || fail "two recordings of one name"
echo "test_torch_programs: ok"
