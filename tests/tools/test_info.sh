#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The program from outside: what `tarn info` prints, and with which status. TARN_PROGRAM is the program.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
command=("$tarn" info)
json_more='l = {library["name"]: library for library in a["libraries"]}'

unset TARN_DRIVER TARN_LIBRARY_PATH TARN_ALLOC_CONF
export TARN_HOST_DEVICES=2 TARN_HOST_MEMORY=3G
export TARN_DRIVER=host
run 0 && silent err
says out '^driver host: asked for' && says out '^0 .*3.00 GiB' && says out '^1 ' && says out '^cudnn ' && says out '^hipsolver .*unchecked'
run 0 --json && silent err
json 'a["driver"] == "host" and a["reason"] and a["version"]'
json '[d["memory"] for d in a["devices"]] == [3 << 30] * 2 and all(d["works"] and d["error"] is None for d in a["devices"])'
json 'set("cudnn cublas cublaslt cusparse cusolver_dn cusolver_sp cudss curand miopen rocblas hipblas hipblaslt rocsparse hipsparse hipsolver cusparselt".split()) == set(l)'
json 'all(not x["usable"] and x["reason"] and x["sonames"] for x in l.values())'
json 'l["cudnn"]["checked"] and not l["miopen"]["checked"] and l["cudnn"]["sonames"][0] == "libcudnn.so.9"'

# The settings: the environment's, those without effect named; malformed ones are shown, and make it fail.
run 0 && says out '^settings all:default$'
run 0 --json
json 'a["settings"] == {"text": "all:default", "error": None, "without_effect": []}'
export TARN_ALLOC_CONF=pinned_free_catch_all:True,leave_free_mb:100
run 0 && silent err && says out '^settings all:default,pinned_free_catch_all:True,leave_free_mb:100$' && says out '^  without effect: pinned_free_catch_all: '
run 0 --json
json 'a["settings"]["text"].endswith("leave_free_mb:100") and len(a["settings"]["without_effect"]) == 1'
export TARN_ALLOC_CONF=leave_free_mb:lots
run 1 && says out '^no settings: TARN_ALLOC_CONF, column 15: leave_free_mb is lots'
run 1 --json
json 'a["settings"]["text"] is None and "column 15" in a["settings"]["error"] and len(a["devices"]) == 2'
unset TARN_ALLOC_CONF

# A library that is found in a directory that the caller names, and is not what its name says.
mkdir "$work/lib"
echo 'int nothing;' | "${CC:-cc}" -shared -fPIC -x c - -o "$work/lib/libcudss.so.0"
TARN_LIBRARY_PATH=$work/none:$work/lib run 0 --json
json 'not l["cudss"]["found"] and "has no symbol cudssCreate" in l["cudss"]["reason"]'

# No device: the libraries all the same.
TARN_DRIVER=nothing run 1 && says out '^no driver: TARN_DRIVER=nothing' && says out '^cudnn '
TARN_DRIVER=nothing run 1 --json
json 'a["driver"] is None and a["devices"] == [] and len(l) == 16'

# The command line.
run 0 --help && says out '^Usage: tarn info' && silent err
run 2 --jsn && says err 'no option --jsn' && silent out
run 2 more && says err '"more"'
"$tarn" --help | grep -q '  info  ' || fail "tarn --help does not list info"
echo "tarn info does what its manual page says"

# The simulated libraries: each platform's are usable on its driver, and all are found.
for driver in cuda hip; do
    env -u TARN_DRIVER "$tarn" sim --driver "$driver" "$tarn" info --json >"$work/out" 2>"$work/err" || fail "tarn info on $driver"
    json "a['driver'] == '$driver' and all(x['found'] and '/sim/' in x['path'] for x in l.values())"
    json "[x['usable'] for x in a['libraries']] == [(i < 8 or i == 15) == ('$driver' == 'cuda') for i in range(16)]"
done
