# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""read_metrics.py FILE: reads metrics with the parser of the Prometheus client, and prints a line per sample: name, labels sorted by name
with tabs between, value. Labels by which processes are told apart must be there, and are left out. Each family has a help and a type, is
in docs/monitoring.md, and has the very name of its samples, as the format says (the parser forgives that a counter's lacks "_total")."""
import os
import sys

from prometheus_client.parser import text_string_to_metric_families as parse

with open(sys.argv[1], encoding="utf-8", newline="") as file:
    text = file.read()
with open(os.path.join(os.path.dirname(__file__), "../../docs/monitoring.md"), encoding="utf-8") as file:
    described = file.read()

heads = {"HELP": {}, "TYPE": {}}
for line in text.splitlines():
    if line.startswith("# ") and line != "# EOF":
        _, kind, name, value = line.split(" ", 3)
        if name in heads[kind]:
            sys.exit(f"{name} has two lines {kind}")
        heads[kind][name] = value
helps, types = heads["HELP"], heads["TYPE"]
if set(helps) != set(types):
    sys.exit(f"no help or no type: {sorted(set(helps) ^ set(types))}")
for name, type_of in types.items():
    if f"`{name}`" not in described:
        sys.exit(f"docs/monitoring.md says nothing of {name}")
    if type_of not in ("counter", "gauge") or (type_of == "counter") != name.endswith("_total"):
        sys.exit(f"{name} is a {type_of}")

for sample in (sample for family in parse(text) for sample in family.samples):
    if sample.name not in types:
        sys.exit(f"{sample.name} is of no family")
    if not {"process", "pid"} <= set(sample.labels):
        sys.exit(f"{sample.name} does not say of which process it is")
    own = [f"{label}={text!r}" for label, text in sorted(sample.labels.items()) if label not in ("process", "pid", "rank", "UUID")]
    print("\t".join([sample.name, *own, repr(sample.value)]))
