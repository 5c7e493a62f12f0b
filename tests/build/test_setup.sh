#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# scripts/setup on machines that are not this one: root, sudo, neither, stale lists, a package that is not available. The commands
# that would change the machine are stand-ins that write down how they were called. The scripts that work in empty Debians say that they take
# root before they do anything.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_setup: $*" >&2; cat "$work/out" "$work/calls" >&2; exit 1; }

mkdir -p "$work/scripts" "$work/bin" "$work/lists/partial"
cp "$TARN_SOURCE"/scripts/{setup,help.sh} "$work/scripts/"
printf '%s\n' '# why' '' 'present   # a reason' 'absent    # another' >"$work/scripts/packages-some.txt"
printf '%s\n' 'present' 'older|present' >"$work/scripts/packages-none.txt"
printf '%s\n' 'older|newer   # where releases differ' >"$work/scripts/packages-either.txt"
for tool in bash cat dirname env find grep mktemp paste rm sed tee true; do ln -s "$(type -P $tool)" "$work/bin/$tool"; done

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
case "$*" in
*--assume-no*)
    echo '0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.'
    echo 'Need to get 1,024 kB of archives.'
    echo 'After this operation, 4,096 kB of additional disk space will be used.'
    exit 1
    ;;
*install*)
    [ ! -e "$CALLS.broken" ] || exit 100
    echo 'Get:1 mirror bookworm/main amd64 needed amd64 1.0 [512 kB]'
    echo 'Get:2 mirror bookworm/main amd64 absent amd64 1.0 [512 kB]'
    [ ! -e "$CALLS.slow" ] || sleep 11
    for package in needed absent; do echo "Unpacking $package (1.0) ..."; done
    for package in needed absent; do echo "Setting up $package (1.0) ..."; done
    ;;
esac
END
stand_in apt-cache <<'END'
[ "$2" != newer ] || echo 'Package: newer'
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
called 'apt-get.* install --yes .*absent' || fail "did not install"
said '2 packages: 1,024 kB to fetch, 4,096 kB on disk' || fail "did not say how much there is to fetch"
for step in 'fetching 1 of 2: needed' 'unpacking 1 of 2: needed' 'setting up 1 of 2: needed'; do
    said "  $step\$" || fail "did not say: $step"
done
setup 0 either
called 'apt-get.* install --yes .* newer$' || fail "did not take the package that this release has"

touch "$work/lists/x_Packages"
setup 0 some
! called 'apt-get.* update' || fail "updated fresh lists"
touch -d '3 days ago' "$work/lists/partial"
setup 0 some
called 'apt-get.* update' || fail "did not update stale lists"

ln -s "$(type -P sleep)" "$work/bin/sleep"
touch "$work/calls.slow"
setup 0 some
said '  fetching 2 of 2: absent$' || fail "was silent for ten seconds"
rm "$work/calls.slow"

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

mkdir "$work/user" "$work/roots"
printf '#!/bin/sh\necho 1000\n' >"$work/user/id" && chmod +x "$work/user/id"
for words in 'fresh-debian' 'debian-packages' "wheel-check $work" 'first-minutes bookworm wheel user'; do
    status=0
    # shellcheck disable=SC2086 # words
    PATH=$work/user:$PATH TARN_ROOTS=$work/roots "$TARN_SOURCE"/scripts/$words >"$work/out" 2>&1 </dev/null || status=$?
    [ "$status" -eq 2 ] || fail "scripts/$words ends with status $status without root"
    said "^${words%% *}: making a root takes root: sudo scripts/${words%% *}\$" || fail "scripts/$words does not say that it takes root"
    [ -z "$(ls "$work/roots")" ] || fail "scripts/$words has begun before it said that it takes root"
done
echo "as it should be"
