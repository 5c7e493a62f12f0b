#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The program from outside: what `tarn check` prints, with which status, and that each contract fails where the driver does.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
command=("$tarn" check)
json_more='c = {x["name"]: x for x in a["contracts"]}; l = {x["name"]: x for x in a["libraries"]}'

unset TARN_DRIVER TARN_LIBRARY_PATH TARN_ALLOC_CONF
TARN_DRIVER=host TARN_HOST_DEVICES=2 TARN_HOST_MEMORY=3G run 0
silent err && says out '^driver host: asked for' && says out '^device 1: .*3.00 GiB' && says out '^settings all:default$'
tail -n 1 "$work/out" | grep -q '^All of tarn works on its host device' || fail "the last line"
TARN_DRIVER=nothing run 1 && says out '^no driver: TARN_DRIVER=nothing' && says out '^Nothing works'
TARN_DRIVER=host TARN_ALLOC_CONF=leave_free_mb:lots run 1 && says out '^no settings: TARN_ALLOC_CONF, column 15'

# Nothing of this machine's owner is in it, whatever the driver's errors and paths say.
mkdir -p "$work/home/client/lib"
echo 'int nothing;' | "${CC:-cc}" -shared -fPIC -x c - -o "$work/home/client/lib/libcudss.so.0"
HOME=$work/home TARN_LIBRARY_PATH=$work/home/client/lib TARN_DRIVER=host run 0 --json
json 'not l["cudss"]["found"] and "has no symbol cudssCreate" in l["cudss"]["reason"] and "libcudss.so.0" in l["cudss"]["reason"]'
for secret in "$work" client "$(hostname)" "$(id -un)"; do
    ! grep -qwF -e "$secret" "$work/out" || fail "it says $secret"
done

# Each contract is seen to fail by a fault of the simulated driver, and only a fault does that.
simulated() { local wanted=$1; shift; command=("$tarn" sim --driver cuda --devices 2 "$@" "$tarn" check) && run "$wanted" --json; }
simulated 0
json 'all(x["state"] == "ok" for x in c.values()) and len(c) > 12 and a["verdict"].startswith("All that can work")'
while read -r name rule; do
    simulated 1 --fail "$rule"
    json "c['$name']['state'] == 'failed' and c['$name']['text'] and '$name' in a['verdict']"
done <<'END'
order cuMemCreate:1:2+
reuse cuEventRecord:1:999+
capture cuGraphLaunch:1:999+
share cuMemExportToShareableHandle:1:999+
peer cuDeviceCanAccessPeer:1:999+
suspend cuMemUnmap:1:999+
pinned cuMemHostAlloc:1:2+
virtual cuMemMap:1:999+
END

# So is that of each library's handles, and no other's. cuSOLVER has two kinds.
json_more+='; s = lambda name: name.removesuffix("_dn").removesuffix("_sp"); u = {s(x) for x in l if l[x]["usable"]}'
for driver in cuda hip; do
    command=("$tarn" sim --driver "$driver" "$tarn" check) && run 0 --json && json 'len(u) >= 7 and u < {s(x) for x in c}'
    for library in $(python3 -c 'import json, sys; print(*(x["name"] for x in json.load(sys.stdin)["libraries"] if x["usable"]))' <"$work/out"); do
        library=${library%_[ds][np]}
        command=(env "TARN_SIM_${library^^}_FAIL=1+" "$tarn" sim --driver "$driver" "$tarn" check) && run 1 --json
        json "all((x['state'] == 'failed' and 'gave status' in x['text'] and name in a['verdict']) if s(name) == '$library' else x['state'] != 'failed' for name, x in c.items())"
    done
done

# What to do where virtual memory is broken has an effect.
setting=$(sed -nE 's/.*remedy = "set TARN_ALLOC_CONF=([a-z_:]+)".*/\1/p' "$TARN_SOURCE/tools/tarn/check/contracts.c")
TARN_ALLOC_CONF=$setting simulated 1 --fail cuMemMap:1:999+
json 'c["order"]["state"] == "ok" and c["virtual"]["state"] == "failed" and not a["settings"]["without_effect"]'

# No setting of the user makes a promise fail that holds, and one that nothing accepts is named.
for setting in 'TARN_ALLOC_CONF=segments:plain TARN_DEBUG=all' TARN_ALLOC_CONF=backend:cudaMallocAsync TARN_NO_CACHING=1; do
    read -r -a words <<<"$setting"
    command=(env "${words[@]}" "$tarn" sim --driver cuda --devices 2 "$tarn" check) && run 0 --json
    json 'all(x["state"] == "ok" for x in c.values())'
done
TARN_NO_CACHING=3 simulated 1
json 'a["verdict"].endswith("To do: correct the setting that its line names.")'
TARN_DEBUG=everything simulated 1
json 'a["verdict"].startswith("Nothing works: a setting is wrong. Correct it: TARN_DEBUG: unknown word \"everything\"")'

# A driver that hangs takes only its contract. Nothing shows whether it hangs or is slow: neither is said, nor that the contract failed.
simulated 1 --slow cuGraphLaunch:60000
json 'c["capture"]["state"] == "no time" and c["capture"]["text"] == "it took longer than 10 s" and c["pinned"]["state"] == "ok"'
json '"1: capture. To do: run it again" in a["verdict"] and "failed" not in a["verdict"]'

# Contracts for which no time is left are named, and the command has not said that all works.
if [ "${TARN_NIGHTLY:-}" = 1 ]; then
    simulated 1 --slow cuGraphLaunch:60000 --fail cuMemHostAlloc:1:2+
    json '"1 failed here: pinned. To do" in a["verdict"] and a["verdict"].endswith("There was no time for capture.")'
    simulated 1 --slow cuMemcpyAsync:60000
    json 'all(x["state"] == "no time" for x in c.values()) and "no time was left" in c["pinned"]["text"] and "pinned" in a["verdict"]'
    json 'sum(x["seconds"] for x in c.values()) < 60'
fi

# The command line.
command=("$tarn" check)
run 0 --help && says out '^Usage: tarn check' && silent err
run 2 --jsn && says err 'no option --jsn' && silent out
run 2 more && says err '"more"'
echo "tarn check tries what tarn promises"
