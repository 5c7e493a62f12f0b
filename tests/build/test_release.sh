#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# scripts/release refuses what is not a release, says all that is missing, and leaves what was made before. What it makes has the checksums
# that it says, and comes from a clone without the ignored files of the tree.
set -euo pipefail
cd "$TARN_SOURCE"
fail() { echo "release: $*" >&2; exit 1; }
git rev-parse HEAD >/dev/null 2>&1 || { echo "release: this is no clone"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C TARN_SKIP_SETUP=1 GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
version=$(sed -nE 's/^#define TARN_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$/\2/p' include/tarn/tarn.h | paste -sd .)

# A repository with as much of this one as the script reads, as it is here, committed or not. The wheels are not real.
tree=$work/tree
mkdir -p "$tree"/{scripts,include/tarn,build/release} && cd "$tree"
cp "$TARN_SOURCE"/scripts/{release,dist,setup,help.sh} scripts
cp "$TARN_SOURCE/include/tarn/tarn.h" include/tarn
printf '# Changelog\n\n## [%s] - not released\n' "$version" >CHANGELOG.md
echo '/build/' >.gitignore
cat >scripts/wheels <<'STUB'
#!/usr/bin/env bash
[ ! -e build ] || exit 1
version=$(sed -nE 's/^#define TARN_VERSION_[A-Z]+ +([0-9]+)$/\1/p' include/tarn/tarn.h | paste -sd .)
mkdir -p "$1/wheel"
for processor in "${@:2}"; do echo "$processor" >"$1/wheel/tarn_gpu-$version-py3-none-manylinux_2_27_$processor.whl"; done
echo sources >"$1/wheel/tarn_gpu-$version.tar.gz"
echo page >"$1/wheel/tarn-viewer.html"
STUB
cat >scripts/wheel-check <<'STUB'
#!/usr/bin/env bash
[ -e "$(echo "$1"/tarn_gpu-*_x86_64.whl)" ] && echo "${@:2}" >"$CHECKED"
exit "${FAILING:-0}"
STUB
cat >scripts/debian-packages <<'STUB'
#!/usr/bin/env bash
mkdir -p "$2" && touch "$2/tarn_$1.deb" "$2/tarn_$1.changes"
STUB
chmod +x scripts/wheels scripts/wheel-check scripts/debian-packages
export CHECKED=$work/checked
git init -q
commit() { git add . && git -c user.name=n -c user.email=e commit -qm "$1"; }
commit one
echo before >build/release/SHA256SUMS

# refused TEXT...: the script fails, says each TEXT, and has changed nothing.
refused()
{
    local text
    ! scripts/release ${FAILING:+--check} >"$work/out" 2>"$work/err" || fail "does not refuse: ${1:-what fails}"
    for text; do grep -qF -- "$text" "$work/err" || fail "does not say \"$text\" but: $(cat "$work/err")"; done
    [ "$(cat build/release/SHA256SUMS)" = before ] || fail "writes, and refuses: ${1:-what fails}"
}

FAILING=1 refused
[ -s "$CHECKED" ] || fail "--check does not call scripts/wheel-check"
echo >>CHANGELOG.md
refused 'M CHANGELOG.md'
git checkout -q CHANGELOG.md
touch new
refused '?? new'
sed -i 's/^## .*/## [9.9.9] - 2026-01-01/' CHANGELOG.md
refused '?? new' "no section \"## [$version]\""
rm new
commit two
refused "no section \"## [$version]\""
git revert --no-commit HEAD && commit three
git tag "v$version" HEAD~2
refused "v$version is at another commit"
git tag -d "v$version" >/dev/null
git tag v9.9.9
refused 'The tag here is v9.9.9'
git tag -d v9.9.9 >/dev/null
git tag "v$version"
refused 'has no date'
sed -i 's/not released/2026-01-01/' CHANGELOG.md
commit four
git tag -f "v$version" >/dev/null
sed -i '2i exit 3' scripts/wheels
commit five
git tag -f "v$version" >/dev/null
refused
git revert --no-commit HEAD && commit six

touch build/release/tarn-0.0.1{.tar.xz,-viewer.html}
scripts/release >"$work/out" 2>"$work/err" && fail "does not refuse a version that has its tag at another commit"
git tag -d "v$version" >/dev/null
rm "$CHECKED"
scripts/release >"$work/out" 2>"$work/err" || fail "refuses a trial: $(cat "$work/err")"
grep -q 'a trial' "$work/err" || fail "does not say what is a trial"
git tag "v$version"
[ ! -e "$CHECKED" ] || fail "calls scripts/wheel-check where it is not asked to"
(cd / && "$tree/scripts/release" --check --debian "$tree/build/release" >"$work/out" 2>"$work/err") || fail "refuses: $(cat "$work/err")"
for words in 'sources are packed' 'wheels are made' 'wheels are tried' 'packages for bookworm' 'packages for trixie'; do
    grep -qE "^release: the $words.*: [0-9]+ s$" "$work/out" || fail "does not say when the $words"
done
[ ! -s "$work/err" ] || fail "says of a release: $(cat "$work/err")"
[ "$(uname -m)" != x86_64 ] || [ "$(cat "$CHECKED")" = 'bullseye bookworm trixie aarch64' ] || fail "tries $(cat "$CHECKED")"
cd build/release
sha256sum --quiet --strict --check SHA256SUMS
[ "$(echo *)" = "$(echo SHA256SUMS "tarn-$version"{-viewer.html,.tar.xz} tarn_bookworm.deb "tarn_gpu-$version-py3-none-manylinux_2_27_"{aarch64,x86_64}.whl "tarn_gpu-$version.tar.gz" tarn_trixie.deb)" ] || fail "makes $(echo *)"
[ "$(wc -l <SHA256SUMS)" = 7 ] || fail "SHA256SUMS has not all files: $(cat SHA256SUMS)"
