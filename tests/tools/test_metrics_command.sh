#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn metrics` from outside: two replays of one name and one killed, read by HTTP as Prometheus would; and the dashboard in
# examples/grafana, of which every metric and label must be exported. TARN_PROGRAM is the program.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
source_root=$(cd "$(dirname "$0")/../.." && pwd)
command=()
started=()
at_exit()
{
    for process in "${started[@]}"; do
        pkill -P "$process" 2>/dev/null || true # a replay itself is a child of the program
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
}

unset TARN_DRIVER TARN_LIVE TARN_LIVE_NAME XDG_RUNTIME_DIR
export TARN_LIVE_DIRECTORY=$work/pages
mkdir "$work/pages"

# The command line.
run 0 "$tarn" --help && says out '  metrics  '
run 0 "$tarn" metrics --help && says out 'Usage: tarn metrics' && silent err
for bad in x 65536 -1 '' :80 '[::1' '::1:80' 'a]:80' 1:; do run 2 "$tarn" metrics "--listen=$bad" && says err '--listen wants'; done
run 2 "$tarn" metrics x && says err 'takes options only, not "x"'
run 2 "$tarn" metrics --directory "$work/none" && says err '--directory wants a folder that is there'
run 0 "$tarn" metrics --directory "$work/pages" && says out '^tarn_exporter_processes 0$' && says out '^# EOF$' && silent err

run 1 "$tarn" metrics --listen 192.0.2.1:0
if grep -q 'built without libmicrohttpd' "$work/err"; then
    echo "built without libmicrohttpd; scripts/setup demo installs it"
    exit 77
fi
says err '192.0.2.1:0: '

# publish RANK: starts a process that publishes until it is ended.
trace=${TARN_TRACES%%:*}/generate.pickle.zst
publish()
{
    RANK=$1 TARN_LIVE=1 TARN_LIVE_INTERVAL=50 TARN_LIVE_NAME=train\"er "$tarn" replay --repeat 10000 "$trace" >/dev/null 2>&1 &
    started+=($!)
}
publish 0
publish 1
"$tarn" metrics --listen 127.0.0.1:0 --directory "$work/pages" >"$work/url" &
server=$!
started+=("$server")
(ulimit -n 200 && exec "$tarn" metrics --listen 127.0.0.1:0 --directory "$work/pages" >"$work/small") & # has places for 136 connections, 68 of one address
started+=($!)
/usr/bin/python3 - "$work/url" "$work/small" "$source_root" "${started[@]:0:2}" <<'END' || fail "what is served is not as documented"
import json, os, re, signal, socket, subprocess, sys, threading, time, urllib.error, urllib.request
from prometheus_client.parser import text_string_to_metric_families as parse

url_file, small_file, root, *parents = sys.argv[1:]

def until(what):
    for _ in range(1200):
        found = what()
        if found:
            return found
        time.sleep(0.05)
    sys.exit("it does not come to that")

url = until(lambda: open(url_file).read().strip())
assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url), url

def get(path=url, method="GET"):
    request = urllib.request.Request(path, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()

def samples():
    found = {}
    for family in parse(get()[1]):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found

def processes(found):
    return sorted((dict(labels)["rank"], dict(labels)["pid"]) for name, labels in found if name == "tarn_build_info"
                  and dict(labels)["process"] == 'train"er')

until(lambda: len(processes(samples())) == 2 and any(name == "tarn_reserved_bytes" for name, _ in samples()))
found = until(lambda: (lambda now: now if sum(name == "tarn_reserved_peak_bytes" for name, _ in now) == 2 else None)(samples()))
assert [rank for rank, _ in processes(found)] == ["0", "1"], processes(found)
assert get()[0].startswith("text/plain; version=0.0.4"), get()[0]
assert get(method="HEAD")[1] == "" and "/metrics" in get(path=url.replace("/metrics", "/"))[1]
for path, method, code in (("/x", "GET", 404), ("/x", "POST", 404), ("/metrics", "POST", 405), ("/metrics%00x", "GET", 404),
                           ("/%6detrics", "GET", 404), ("/metrics/", "GET", 404), ("/metrics/../metrics", "GET", 404)):
    try:
        get(path=url.replace("/metrics", path), method=method)
        sys.exit(f"{method} {path} gives something")
    except urllib.error.HTTPError as error:
        assert error.code == code, error.code

# Connections that send a byte now and then keep others out for some seconds, and one address cannot take all of them.
small = until(lambda: open(small_file).read().strip())
port = int(small.rsplit(":", 1)[1].split("/")[0])
over = threading.Event()
def slow(address, count):
    open_ones = [socket.socket() for _ in range(count)]
    for connection in open_ones:
        connection.bind((address, 0))
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
    begun = set()
    def drip():
        while not over.wait(0.5):
            for number, connection in enumerate(open_ones):
                try:
                    connection.send(b"a" if number in begun else b"GET /metrics HTTP/1.1\r\nX: ")
                    begun.add(number)
                except OSError:
                    pass
    threading.Thread(target=drip, daemon=True).start()
def gets(seconds):
    try:
        return urllib.request.urlopen(small, timeout=seconds).read()
    except OSError:
        return None
slow("127.0.0.2", 140)
time.sleep(1)
assert gets(3), "one address has all places"
began = time.monotonic()
for number in range(3, 8):
    slow(f"127.0.0.{number}", 60)
time.sleep(1)
while not gets(5):
    assert time.monotonic() - began < 25, "slow connections are not ended"
over.set()
# Connections that say nothing keep no scrape waiting.
idle = []
for _ in range(300):
    idle.append(socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0]))))
begun = time.monotonic()
assert get()[1] and time.monotonic() - begun < 4, time.monotonic() - begun
for connection in idle:
    connection.close()

# The dashboard names what there is.
with open(root + "/examples/grafana/tarn.json", encoding="utf-8") as file:
    dashboard = json.load(file)
names, labels = {name for name, _ in found}, {label for _, labels in found for label, _ in labels}
expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
expressions += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
used = {name for text in expressions for name in re.findall(r"\b(?:tarn|hw)_[a-z_]+\b(?!\s*=)", text)} - labels
assert len(used) > 10 and used <= names, used - names
said = set(re.findall(r"{{(\w+)}}", json.dumps(dashboard)))
for text in expressions:
    said |= set(re.findall(r"(\w+)=~", text))
    said |= {name.strip() for group in re.findall(r"by \(([^)]*)\)", text) for name in group.split(",")}
assert said and said <= labels, said - labels
assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])

# One is killed: the next scrape is without it.
child = int(subprocess.run(["pgrep", "-P", parents[0]], capture_output=True, text=True).stdout.split()[0])
os.kill(child, signal.SIGKILL)
left = until(lambda: (lambda now: now if len(processes(now)) == 1 else None)(samples()))
assert processes(left)[0][0] == "1" and left[("tarn_exporter_processes", ())] == 1
END
kill -TERM "$server"
status=0
wait "$server" || status=$?
[ "$status" -eq 0 ] || fail "the server ends with $status"
run 0 "$tarn" metrics && says out 'process="train\\"er"' && says out '^hw_gpu_memory_limit_bytes{hw_id="HOST-0"'
