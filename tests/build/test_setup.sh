#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# scripts/setup on machines that are not this one: root, sudo, neither, stale lists, a package that is not available. The commands
# that would change the machine are stand-ins that write down how they were called.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_setup: $*" >&2; cat "$work/out" "$work/calls" >&2; exit 1; }

mkdir -p "$work/scripts" "$work/bin" "$work/lists/partial"
cp "$TARN_SOURCE"/scripts/{setup,help.sh} "$work/scripts/"
printf '%s\n' '# why' '' 'present   # a reason' 'absent    # another' >"$work/scripts/packages-some.txt"
printf '%s\n' 'present' >"$work/scripts/packages-none.txt"
for tool in bash cat dirname env find mktemp rm true; do ln -s "$(type -P $tool)" "$work/bin/$tool"; done

# stand_in NAME: makes a command of what comes on stdin.
stand_in()
{
    { echo '#!/bin/bash' && cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
stand_in dpkg-query <<'END'
case ${!#} in present) echo installed ;; *) exit 1 ;; esac
END
stand_in apt-get <<'END'
echo "apt-get $*" >>"$CALLS"
case "$*" in *install*) [ ! -e "$CALLS.broken" ] ;; esac
END

# setup WHO LIST: runs it as root or as another; `status`, the files out and calls say what happened.
setup()
{
    stand_in id <<<"echo $1"
    : >"$work/calls"
    status=0
    PATH=$work/bin CALLS=$work/calls TARN_APT_LISTS=$work/lists TARN_SKIP_SETUP='' \
        bash "$work/scripts/setup" "$2" >"$work/out" 2>&1 </dev/null || status=$?
}
called() { grep -q -- "$1" "$work/calls"; }
said() { grep -q -- "$1" "$work/out"; }

setup 1000 none
[ "$status" -eq 0 ] || fail "failed though nothing is missing"
[ ! -s "$work/calls" ] || fail "called something though nothing is missing"
[ ! -s "$work/out" ] || fail "spoke though nothing is missing"

setup 1000 some
[ "$status" -ne 0 ] || fail "went on without what is missing"
said 'apt-get install .* absent$' || fail "did not print the command to run"
! said 'apt-get install.*present' || fail "would install what is there"
[ ! -s "$work/calls" ] || fail "called apt-get without being root"

setup 0 some
[ "$status" -eq 0 ] || fail "failed as root"
called 'apt-get.* update' || fail "did not update empty lists"
called 'apt-get.* install .*absent' || fail "did not install"

touch "$work/lists/x_Packages"
setup 0 some
! called 'apt-get.* update' || fail "updated fresh lists"
touch -d '3 days ago' "$work/lists/partial"
setup 0 some
called 'apt-get.* update' || fail "did not update stale lists"

touch "$work/calls.broken"
setup 0 some
[ "$status" -ne 0 ] || fail "went on when apt-get could not install"
said 'apt-get install .* absent$' || fail "did not print the command to run"
rm "$work/calls.broken"

stand_in sudo <<'END'
echo "sudo $*" >>"$CALLS"
[ "$1" != -n ] || shift
exec "$@"
END
setup 1000 some
[ "$status" -eq 0 ] || fail "failed with sudo"
called 'sudo .*apt-get.* install .*absent' || fail "did not use sudo"
said 'through sudo' || fail "did not say that it uses sudo"
echo "as it should be"
