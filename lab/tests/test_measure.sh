#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# lab/measure counts what a small tree has.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_measure: $*" >&2; cat "$work/out" >&2; exit 1; }
command -v ctags >/dev/null || { echo 'universal-ctags is missing'; exit 77; }

mkdir -p "$work/tree"/{src/base/thread,src/memory/settings,run,sim,tools,docs/man,licences}
cd "$work/tree"
for folder in run sim tools; do printf 'struct %s {\n    int x;\n};\nint f(void)\n{\n    return 0;\n}\n' "$folder" >"$folder/a.c"; done
cat >src/base/a.c <<'END'
/* struct comment { int a; }; */
struct outer {
    int a;
    struct {
        int b, c;
    } inner;
};
#define HEAD(x) do { x; } while (0)
static int walk(int n)
{
    for (int i = 0; i < n; i++) /* for; while; */
        if (n)
            n--;
    do {
        n = ';';
    } while (n < "a;b"[0]);
    return getenv("TARN_ONE") ? n : 0;
}
END
printf '    X(ONE, "a")  \\\n    X(TWO, "b")\n' >src/base/thread/lock_order.h
printf '#define MEMORY_CONFIG_LIST(X) \\\n    X(one, 1) \\\n    X(two, 2)\n\n' >src/memory/settings/config.h
printf 'TARN {\n    global:\n        tarn_a;\n        tarn_b;\n        tarn_c;\n};\n' >src/tarn.map
printf 12345 >README.md && printf 1234567 >docs/man/a.h2m && printf 123 >CHANGELOG.md && printf 123 >licences/a.md
git init -q . && git add -A

"$TARN_SOURCE/lab/measure" . >"$work/out"
# a, b, c, inner; the statements: for, if, n--, do's assignment, while, return.
grep -qx '| src | 1 | 4 | 4, outer | 1 | 6 | 6 | 6, walk |' "$work/out" || fail "counts the source wrongly"
grep -qx '| run | 1 | 1 | 1, run | 1 | 1 | 1 | 1, f |' "$work/out" || fail "counts run/ wrongly"
for line in 'ranks of locks | 2' 'public functions | 3' 'settings in one string | 2' 'environment variables | 1' 'all | 12' 'docs/man/a.h2m | 7' \
    'README.md | 5'; do
    grep -qx "| $line |" "$work/out" || fail "does not say: $line"
done
! grep -q 'CHANGELOG\|licences' "$work/out" || fail "counts what is not prose"
echo "test_measure: ok"
