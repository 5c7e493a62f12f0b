# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""read_metrics.py FILE: reads OpenMetrics text with the parser of the Prometheus client, which refuses what the specification does, and
prints a line per sample: name, labels sorted by name with tabs between, value. Labels
by which processes are told apart must be there, and are left out. Then with the older text format's parser, as the textfile
collector of node_exporter would: it must find the same samples."""
import os
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text


def samples(families):
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families for sample in family.samples}


with open(sys.argv[1], encoding="utf-8", newline="") as file:
    text = file.read()
families = list(parse_open(text))
with open(os.path.join(os.path.dirname(__file__), "../../docs/monitoring.md"), encoding="utf-8") as file:
    described = file.read()
for family in families:
    if f"`{family.name}`" not in described:
        sys.exit(f"docs/monitoring.md says nothing of {family.name}")
    if not family.documentation:
        sys.exit(f"{family.name} has no help")
    if family.type not in ("counter", "gauge"):
        sys.exit(f"{family.name} is a {family.type}")
found = samples(families)
if found != samples(parse_text(text)):
    sys.exit("the older format's parser reads other samples")
for (name, labels), value in found.items():
    if not {"process", "pid"} <= {label for label, _ in labels}:
        sys.exit(f"{name} does not say of which process it is")
    own = [f"{label}={text!r}" for label, text in labels if label not in ("process", "pid", "rank", "UUID")]
    print("\t".join([name, *own, repr(value)]))
