#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The site is made without a warning. Every function that the library exports, and every function, type, field,
# enumerator and macro of the public headers, is described in it; every link within it leads somewhere. The search finds what stands
# in documents, in headers and in the Python package; the page of each header begins with an example. It is dark where the system is,
# and a button changes that. With a program, it has the viewer, and leads to it.
set -euo pipefail
for program in doxygen sphinx-build; do
    command -v "$program" >/dev/null || { echo "test_docs: $program is missing; scripts/setup docs installs it"; exit 77; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=()
[ ! -x "${TARN_PROGRAM:-}" ] || program=("$TARN_PROGRAM")
"$TARN_SOURCE/scripts/docs" "$work" "${program[@]}"
python3 - "$TARN_SOURCE" "$work" <<'END_OF_PYTHON'
import glob, html.parser, os, re, sys
import xml.etree.ElementTree as xml

source, work = sys.argv[1:]
problems = []

def described(element):
    return any("".join(part.itertext()).strip() for tag in ("briefdescription", "detaileddescription")
               for part in element.findall(tag))

members, found = 0, set()
for path in glob.glob(work + "/xml/*.xml"):
    for compound in xml.parse(path).getroot().findall("compounddef"):
        kind, name = compound.get("kind"), compound.findtext("compoundname")
        if kind not in ("struct", "union", "group"):
            continue
        if not described(compound):
            problems.append(f"{kind} {name} is not described")
        for member in compound.iter("memberdef"):
            members += 1
            found.add(member.findtext("name"))
            where = f"{name}: {member.findtext('name')}"
            if not described(member):
                problems.append(f"{where} is not described")
            problems += [f"{where}: {value.findtext('name')} is not described"
                         for value in member.findall("enumvalue") if not described(value)]

# A status that needs no explanation is an item of its own, not the end of the one before it.
for path in glob.glob(work + "/xml/group__tarn__*.xml"):
    for item in xml.parse(path).getroot().iter("listitem"):
        text = "".join(item.itertext()).strip()
        if re.match(r"TARN_ERROR_\w+: .*[\w)]\s+TARN_ERROR_\w+$", text, re.S):
            problems.append(f"{os.path.basename(path)}: two statuses in one item: {text}")

exported = re.findall(r"^\s+(tarn_\w+);", open(source + "/src/tarn.map").read(), re.M)
problems += [f"{name} is exported and not in the reference" for name in exported if name not in found]
# What the filter loses, Doxygen does not miss: the headers are looked at without either.
for path in glob.glob(source + "/include/tarn/*.h"):
    header = os.path.basename(path)
    topic = f"{work}/xml/group__tarn__{header[:-2]}.xml"
    if not os.path.exists(topic):
        problems.append(f"{header} is no topic")
        continue
    text, shown = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S), open(topic).read()
    for name in re.findall(r"^#define (TARN_\w+)", text, re.M) + re.findall(r"^(?:TARN_API|static inline)[^;{(]*\b(\w+)\(", text, re.M) + \
            re.findall(r"^(?:typedef [^{;]*\b|\} )(tarn_\w+);", text, re.M):
        if not re.search(r"_H$|_(ENUM|FIELD)$", name) and f">{name}<" not in shown:
            problems.append(f"{header}: {name} is not in the reference")

class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(open(path, encoding="utf-8").read())

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("id", "name"):
                self.names.add(value)
            elif key in ("href", "src") and value and not re.match(r"\w+:|//", value):
                self.links.append(value)

html = work + "/html"
pages = {os.path.relpath(path, html): Page(path) for path in glob.glob(html + "/**/*.html", recursive=True)}
links = 0
for name, page in pages.items():
    for link in page.links:
        links += 1
        target, _, anchor = link.partition("#")
        target = target.partition("?")[0]
        target = os.path.normpath(os.path.join(os.path.dirname(name), target)) if target else name
        if not os.path.exists(f"{html}/{target}"):
            problems.append(f"{name}: {link} leads nowhere")
        elif anchor and target in pages and anchor not in pages[target].names:
            problems.append(f"{name}: {link} is no place in that page")

# Sphinx's index of the whole text: a JavaScript call with one object, whose words are stemmed and in small letters.
words = open(html + "/searchindex.js", encoding="utf-8").read()
for word in ("fragment", "cudamallocasync", "tarn_alloc_on", "dump_snapshot"):
    if not re.search(r'[{,] ?"?%s"?: ' % word, words):
        problems.append(f"the search does not find {word}")
for header in sorted(os.path.basename(path)[:-2] for path in glob.glob(source + "/include/tarn/*.h")):
    if not re.search(r"</h1>\s*<div class=\"highlight-c ", open(f"{html}/include/tarn/{header}.html", encoding="utf-8").read()):
        problems.append(f"the page of {header}.h does not begin with an example")

if "prefers-color-scheme" not in open(html + "/_static/styles/furo.css", encoding="utf-8").read():
    problems.append("the site is never dark")
if 'class="theme-toggle"' not in open(html + "/index.html", encoding="utf-8").read():
    problems.append("the site has no button for dark and light")

for problem in problems[:40]:
    print("test_docs:", problem, file=sys.stderr)
if problems:
    sys.exit(f"test_docs: {len(problems)} faults")
print(f"{members} members, {len(exported)} exported functions, {len(pages)} pages, {links} links")
END_OF_PYTHON
