# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""The page of `tarn report` with several files: two that are compared, and ranks. For report_page.py."""

import json
import os
import pickle
import subprocess

from page_browser import DATA, OUT, PROGRAM, compare_moment, expect, make_page


def two_files(browser):
    before, after = os.path.join(DATA, "tarn.pickle"), os.path.join(DATA, "oom.pickle")
    browser.open(make_page("two", before, after))
    browser.run("document.getElementById('compare-section').scrollIntoView()")
    browser.screenshot("report-two")
    printed = subprocess.run([PROGRAM, "diff", "--json", "--device", "0", before, after], check=True, capture_output=True, text=True)
    said = json.loads(printed.stdout)[0]
    wanted = [change["name"] for change in said["changes"]["call_site"]]
    expect("what is said of both", browser.run("return document.getElementById('compare-said').textContent")
           .replace("\u00a0", " ").replace("\u2212", "-"), said["said"])
    places = browser.run("return ['compare-said', 'cards-of', 'cards'].map(id => document.getElementById(id).getBoundingClientRect().top)")
    expect("the order of sentence, label and cards", places, sorted(places))
    expect("whose the cards are", browser.run("return document.getElementById('cards-of').textContent").split(",")[0], "A: tarn.pickle")
    rows = browser.run("""return [...document.querySelectorAll('#compare-tables table:nth-of-type(2) tbody tr')].map(
        row => row.lastChild.textContent)""")
    expect("what changed", rows, wanted[:40])
    browser.check()

    name = "Kernel_" + "x" * 300
    paths = [os.path.join(OUT, f"long-{number}.pickle") for number in range(2)]
    for number, path in enumerate(paths):
        events = [{"action": "alloc", "addr": 1 << 32, "size": (number + 1) << 20, "stream": 0, "frames": [{"name": name, "filename": "train.py", "line": 7}]}]
        with open(path, "wb") as out:
            pickle.dump({"segments": [], "device_traces": [events]}, out)
    browser.open(make_page("long", "--no-what-if", *paths))
    said = json.loads(subprocess.run([PROGRAM, "diff", "--json", *paths], check=True, capture_output=True, text=True).stdout)[0]["said"]
    expect("a sentence with a long name", browser.run("return document.getElementById('compare-said').textContent").replace("\u00a0", " "), said)
    rows = browser.run("return [...document.querySelectorAll('#compare-tables table:first-child tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
    expect("what was not recorded", rows[1], ["reserved then", "not recorded", "not recorded", "\u2013"])


def moved_sites(browser):
    """Call sites that an edit moved are matched as `tarn diff` matches them."""
    def recording(name, sites):
        events = [{"action": action, "addr": i << 32, "size": abs(size) << 20, "stream": 0,
                   "frames": [{"name": "load", "filename": "train.py", "line": line}]} for i, (line, size) in enumerate(sites, 1)
                  for action in (["alloc", "free_requested", "free_completed"] if size < 0 else ["alloc"])]
        with open(os.path.join(OUT, name + ".pickle"), "wb") as out:
            pickle.dump({"segments": [], "device_traces": [events]}, out)
        return os.path.join(OUT, name + ".pickle")

    for before, after in (([(9, 1), (11, 2)], [(99, 1), (101, 7)]), ([(1, 30), (2, 10)], [(14, 9), (15, 4), (16, 29)]),
                          ([(1, 8), (2, 9), (3, 20)], [(15, 8)]), ([(1, 8)], [(2, 6), (3, 10), (4, 40)]),
                          ([(20, -5), (10, 100), (30, 300)], [(10, -5), (20, 300), (30, 300)])):
        files = recording("edit-a", before), recording("edit-b", after)
        browser.open(make_page("edit", "--no-what-if", *files))
        printed = subprocess.run([PROGRAM, "diff", "--json", *files], check=True, capture_output=True, text=True).stdout
        wanted = [[change["name"], change["after"] - change["before"]] for change in json.loads(printed)[0]["changes"]["call_site"]]
        rows = browser.run("""return [...document.querySelectorAll('#compare-tables table:nth-of-type(2) tbody tr')].map(
            row => [row.lastChild.textContent, parseFloat(row.firstChild.textContent.replace("\u2212", "-")) * 2 ** 20])""")
        expect("what changed", rows, [row for row in wanted if row[1]])


def several_ranks(browser):
    """More than two files: the sentences and both tables are what the program says, and a click on a rank shows it."""
    folder = os.path.join(OUT, "ranks")
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"rank{number}.pickle") for number in range(3)]
    for path, name in zip(paths, ("small-5", "tarn", "small-5")):
        with open(os.path.join(DATA, name + ".pickle"), "rb") as source, open(path, "wb") as target:
            target.write(source.read())
    browser.open(make_page("ranks", "--device", "0", "--no-what-if", *paths))
    said = json.loads(subprocess.run([PROGRAM, "report", "--json", "--device", "0", *paths], check=True, capture_output=True, text=True).stdout)
    texts = lambda selector: browser.run("return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)", selector)
    expect("sentences of ranks", texts("#ranks-advice li"), said["advice"])
    expect("ranks", texts("#ranks-table button.row"), [rank["name"] for rank in said["ranks"]])
    expect("what differs", texts("#ranks-differences tbody td:last-child"), [row["name"] for row in said["differences"][said["by"]]][:40])
    expect("comparison of two files", browser.run("return document.getElementById('compare-section').hidden"), True)
    for rank, wrote in ((0, "PyTorch"), (1, "tarn 9.8.7")): # it opens with the one that ran out of memory
        browser.run("document.querySelectorAll('#ranks-table button.row')[arguments[0]].click()", rank)
        browser.wait(f"document.getElementById('head-facts').textContent.includes('{wrote}')", "the chosen rank is not shown")
        browser.filtered()
    compare_moment(browser, paths[1])
    expect("lines of ranks", len(texts("#ranks-chart path.line-rank")), 2)
    browser.screenshot("report-ranks")
    browser.check()


def first_of_ranks(browser):
    """The page opens with the rank that the first sentence names: who ran out first, by the clock, or would."""
    def recording(rank, reserved, failed=None):
        """`allocated` falls with the rank's number, so what the sentence goes by is never the highest peak alone."""
        events = [{"action": "segment_alloc", "addr": 1 << 32, "size": reserved << 20, "stream": 0, "time_us": 10, "frames": []},
                  {"action": "alloc", "addr": 1 << 32, "size": (20 - rank) << 20, "stream": 0, "time_us": 11, "frames": []}]
        if failed:
            events.append({"action": "oom", "device_free": 0, "size": 1 << 30, "stream": 0, "time_us": failed, "frames": []})
        path = os.path.join(OUT, f"first-rank{rank}.pickle")
        with open(path, "wb") as out:
            pickle.dump({"segments": [], "device_traces": [events]}, out)
        return path

    for first, made in ((1, ((30, None), (40, None), (32, None))), (2, ((40, 3000), (40, None), (40, 2000)))):
        files = [recording(rank, *how) for rank, how in enumerate(made)]
        browser.open(make_page("first", "--no-what-if", *files))
        said = json.loads(subprocess.run([PROGRAM, "report", "--json", *files], check=True, capture_output=True, text=True).stdout)["advice"][0]
        expect(f"rank {first} in {said}", f"ank {first} " in said, True)
        expect("the rank that is shown", browser.run("return document.querySelector('#ranks-table button[aria-pressed=true]').textContent"), f"rank {first}")
