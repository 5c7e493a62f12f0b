#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Each promise of SECURITY.md names what holds it, and all that it names is there. No script or workflow downloads what it
# does not know by its hash.
set -euo pipefail
cd "$TARN_SOURCE"
fail() { echo "security: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rows=$(sed -n '/^## What is promised/,/^## What is not/p' SECURITY.md | grep '^| [A-Z]')
[ "$(wc -l <<<"$rows")" -ge 15 ] || fail "the promises are not found"
tests=$(ctest --test-dir "$TARN_BUILD" -N | sed -n 's/^ *Test *#[0-9]*: //p')
while IFS= read -r row; do
    # shellcheck disable=SC2016 # backquotes are looked for
    held=$(awk -F'|' '{ print $3 }' <<<"$row" | grep -oE '`[^`]+`' | tr -d '`') || fail "nothing holds: $row"
    for name in $held; do
        case $name in
        make | fuzz) ;;
        */*) [ -e "$name" ] || fail "there is no $name" ;;
        *) grep -qx "${name//./[.]}" <<<"$tests" || fail "there is no test $name" ;;
        esac
    done
done <<<"$rows"

# A program with another user's rights ignores the environment, since secure_getenv() does.
! grep -rnE '(^|[^_])\bgetenv *\(' src || fail "the library reads the environment by getenv()"

# downloads FOLDER: the downloads of its scripts by a command that takes whatever comes. Lines that a backslash continues are one.
downloads()
{
    # shellcheck disable=SC2016 # the names are perl's
    find "$1"/scripts "$1"/.ci "$1"/.github "$1"/tests "$1"/Makefile -type f ! -path '*/mutants/*' ! -path "*/corpus/*" ! -name test_security.sh -print0 |
        xargs -0 perl -wne '
            $line = defined $line ? $line . $_ : $_;
            if ($line =~ /\\\n\z/ and not eof) { next }
            my $pip = $line =~ /(-m pip|\/pip"?|"pip",) +"?(install|download|wheel)\b/ && $line !~ /--require-hashes|--no-index|--dry-run|pip install torch/;
            my $web = $line =~ /(?<![\w-])(curl|wget)(?![\w-])|urlretrieve|download-file(?!.*"SHA256:\$)|git clone +(--\S+ +)*https?:/;
            my $action = $line =~ /^\s*(- +)?uses:/ && $line !~ /@[0-9a-f]{40}\b/;
            print "$ARGV: $line" if ($pip or $web or $action) and $line !~ /^\s*#/;
            undef $line;'
}
unknown=$(downloads .)
[ -z "$unknown" ] || fail "a download without a hash: $unknown"
grep -vE '^#|^[0-9a-f]{64} pool/[^ ]+$' scripts/wheel-sources.txt && fail "scripts/wheel-sources.txt has a file without a hash"
grep -vE '^#|^[a-z0-9-]+==[^ ]+( --hash=sha256:[0-9a-f]{64})+$' scripts/wheels.txt && fail "scripts/wheels.txt has a wheel without a version or a hash"
# shellcheck disable=SC2016 # of the scripts
for way in 'python3 -m pip install pytest' '"$python" -m pip download \
    --no-deps numpy' 'command = [sys.executable, "-m", "pip", "download", "--no-deps"]' '/usr/lib/apt/apt-helper download-file http://example.org/x x' 'curl -O https://example.org/x' 'git clone https://example.org/x' \
    '- uses: actions/checkout@v4'; do
    rm -rf "$work"
    mkdir -p "$work"/{scripts,.ci,.github,tests}
    touch "$work/Makefile"
    echo "$way" >"$work/scripts/x"
    [ -n "$(downloads "$work")" ] || fail "this is not seen: $way"
done
