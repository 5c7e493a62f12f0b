#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What documents show as printed by a command is what the command prints now. The counts that they give are right, every variable that
# the code reads is in docs/configuration.md or docs/building.md, and every setting in the former and in the fuzzer's words. docs/torch.md names
# the releases of PyTorch whose shims a wheel brings, and no output in documents is of another version.
set -euo pipefail
cd "$TARN_SOURCE"
fail() { echo "test_figures: $*" >&2; exit 1; }

# The example in CUDA takes the toolkit's headers; without them the rest is checked, and the test counts as skipped.
printed=0
scripts/printed --check || printed=$?
[ "$printed" -eq 0 ] || [ "$printed" -eq 77 ] || exit "$printed"

# A line <!-- counted: KIND N --> stands before a text with that number. KIND: mutants, fuzz-targets, functions.
count()
{
    case $1 in
        mutants) find tests/mutants -name '*.patch' | wc -l ;;
        fuzz-targets) find tests/fuzz -maxdepth 1 -name 'fuzz_*.c' | wc -l ;;
        functions) grep -cE '^ +tarn_\w+;' src/tarn.map ;;
        *) fail "nothing counts $1" ;;
    esac
}
while IFS=: read -r file line mark; do
    read -r kind said <<<"$(sed -E 's/^<!-- counted: (.*) -->$/\1/' <<<"$mark")"
    is=$(count "$kind")
    [ "$said" = "$is" ] || fail "$file, line $line: $said $kind; there are $is"
    sed -n "$((line + 1)),$((line + 3))p" "$file" | grep -qw "$said" || fail "$file, line $line: $said is not in what follows"
done < <(grep -nE '^<!-- counted: [a-z-]+ [0-9]+ -->$' README.md CONTRIBUTING.md docs/*.md)

for variable in $(grep -rhoE '"TARN_[A-Z_]+"' src tools sim python/src | tr -d '"' | sort -u | grep -vE '^TARN_(ERROR|UNKNOWN)'); do
    grep -qE "\`$variable(=[^\`]*)?\`" docs/configuration.md docs/building.md || fail "$variable is read, and in neither docs/configuration.md nor docs/building.md"
done

# A setting of tarn: the first word of a row of MEMORY_CONFIG_LIST.
keys=$(sed -n '/define MEMORY_CONFIG_LIST/,/^$/s/^    X(\([a-z_0-9]*\),.*/\1/p' src/memory/settings/config.h)
[ "$(wc -l <<<"$keys")" -gt 20 ] || fail "no list of settings in src/memory/settings/config.h"
for key in $keys; do
    grep -q "^| .*\`$key\`" docs/configuration.md || fail "$key is a setting that docs/configuration.md does not have"
    grep -q "^\"${key}[:\"]" tests/fuzz/config.dict || fail "$key is a setting that tests/fuzz/config.dict does not have"
done

# What a document shows of a program's output is of this version: the measured files say which version they measured.
version=$(sed -nE 's/^#define TARN_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$/\2/p' include/tarn/tarn.h | paste -sd .)
! grep -nE '\btarn [0-9]+\.[0-9]+\.[0-9]+\b' README.md docs/*.md | grep -vF "tarn $version" >&2 || fail "documents show another version than $version"

releases=$(sed -n 's/^    \[\(2[0-9.]*\)\]=.*/\1/p' scripts/torch-shim)
said=$(tr '\n' ' ' <docs/torch.md | grep -oE 'The wheel for x86-64 brings.*compiler is needed' | grep -oE '\b2(\.[0-9]+){2}')
diff <(sort -V <<<"$releases") <(sort -V <<<"$said") >&2 || fail "docs/torch.md (>) names other releases of PyTorch than scripts/torch-shim (<)"
diff <(cut -d. -f1,2 <<<"$releases" | sort -V) <(grep '^SUPPORTED' python/src/tarn/torch/shim.py | grep -oE '2\.[0-9]+' | sort -V) >&2 ||
    fail "tarn.torch (>) supports other minor releases than scripts/torch-shim (<) compiles"
exit "$printed"
