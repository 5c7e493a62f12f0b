#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# scripts/check-language finds each kind of phrase, a long line and a long file of C, says what to write, and passes plain English.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_language: $*" >&2; exit 1; }
check() { "$TARN_SOURCE/scripts/check-language" "$@" >"$work/said" 2>&1; }

mkdir "$work/include"
cat >"$work/include/plain.h" <<'END'
/* Registers a stream that the caller created. One handle per stream, for code that caches
 * registrations by address. The settings of tarn; a call of the driver; no blocks except small
 * ones. */
END
check "$work/include/plain.h" || fail "complains of plain English: $(cat "$work/said")"

while IFS= read -r line; do
    printf '/* %s */\n' "$line" >"$work/include/odd.h"
    ! check "$work/include/odd.h" || fail "does not find: $line"
    grep -q 'odd.h:1:' "$work/said" || fail "does not say where it is: $line"
    grep -q 'check-language: say "' "$work/said" || fail "does not say what to write instead of: $line"
done <<'END'
for who keeps something by address
held by who moves memory
all of them, but for one
the function is told of each block
foo is no key; the closest is plan
a stream of the driver's, which is registered
the memory is of tarn's.
it is neither 0 nor 1, and counts as not set
tarn was told of it
it prints a line a file, and takes 32 bytes a thread
a size that is no multiple of 512
hidden from who asks for it
it reads an archive of RMM's, and nothing else
a free that fails for want of memory
no header is to be had
the sentence was mended
2 for a command line that makes no sense
the driver is chosen once a process
a file that lists one package a line
a lease that is none is refused
the path is no file of a share
it frees all but the last of them
a copy is under way
it takes 64 MiB at the most
the how-manieth segment it is
END

# Without arguments it reads every kind of text that is here.
tree=$work/tree
mkdir -p "$tree/scripts" && cp "$TARN_SOURCE/scripts/check-language" "$TARN_SOURCE/scripts/help.sh" "$tree/scripts/" && git -C "$tree" init -q
for file in README.md CONTRIBUTING.md docs/page.md docs/adaptors/page.md adaptors/a.h run/a.c sim/a.c examples/a.c tests/memory/test_a.c src/a.c \
    include/tarn/a.h tools/tarn/a.c python/a.py; do
    mkdir -p "$tree/$(dirname "$file")" && echo 'for who reads it' >"$tree/$file"
    ! "$tree/scripts/check-language" >"$work/said" 2>&1 || fail "does not read $file"
    grep -q "^$file:1:" "$work/said" || fail "does not name $file"
    rm "$tree/$file"
done
mkdir -p "$tree/lab/history" && echo 'for who reads it' >"$tree/lab/history/old.md"
"$tree/scripts/check-language" || fail "reads lab/history"

for file in include/long.h long.c; do
    printf '/* %0130d */\n' 1 >"$work/$file"
    ! check "$work/$file" || fail "passes a long line of $file"
    grep -q "$file:1: 136 columns" "$work/said" || fail "does not say how long a line of $file is"
done
printf '# %0130d\n' 1 >"$work/long.py"
check "$work/long.py" || fail "holds Python to the width of C"

yes '/* A line. */' | head -n 901 >"$work/many.c" || true # yes ends by SIGPIPE
! check "$work/many.c" || fail "passes a file of 901 lines"
grep -q 'many.c:901: 901 lines' "$work/said" || fail "does not say how long a file is"
head -n 900 "$work/many.c" >"$work/most.c"
check "$work/most.c" || fail "finds fault with a file of 900 lines"
