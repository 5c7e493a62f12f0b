# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""What the page of `tarn report` shows above the fold, and what of it is sent to others. For report_page.py."""

import os
import pickle
import re

from page_browser import DATA, OUT, ask, expect, fail, make_page

RECORDINGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recordings")


def legend_labels(browser):
    return browser.run("return [...document.querySelectorAll('#legend .label')].map(node => node.textContent)")


def copied(browser):
    """What "copy summary" puts into the clipboard."""
    browser.run("window.copied = undefined; navigator.clipboard.writeText = async text => { window.copied = text; }")
    browser.get("#copy-summary").click()
    browser.wait("window.copied !== undefined", "nothing was copied")
    return browser.run("return window.copied")


def cards(browser):
    return {name: (value, more) for name, value, more in browser.run(
        "return [...document.querySelectorAll('#cards .sum')].map(card => [...card.children].map(part => part.textContent.replace(/\\u00a0/g, ' ')))")}


def above_the_fold(browser):
    """The recording in figures, and groups with the same colours everywhere; a recording without stacks says how they come."""
    file = os.path.join(DATA, "tarn.pickle")
    said = ask(file, "oom")
    browser.open(os.path.join(OUT, "tarn.html"))
    shown = cards(browser)
    sums = lambda: browser.run("return [...document.querySelectorAll('#sums .value')].map(value => value.textContent.replace(/\\u00a0/g, ' '))")
    browser.get("#at-peak-reserved").click()
    browser.settle()
    expect("card of reserved memory", shown["peak reserved"][0], sums()[1])
    browser.get("#ooms button").click()
    browser.settle()
    expect("card of holes", shown["free in holes"][0], sums()[2])
    expect("holes of a card", shown["free in holes"][1].split(" in ")[-1], f"{said['at']['holes']} holes")
    browser.get("#at-peak").click()
    browser.settle()
    expect("card of the peak", shown["peak allocated"][0], sums()[0])
    expect("card of an error", shown["out of memory"][0].startswith("at "), True)
    expect("card of the writer", shown["recorded by"][0].startswith("tarn 9.8.7"), True)
    top = lambda: browser.run("return document.querySelector('canvas.areas').getBoundingClientRect().top + scrollY")
    places = [top()]
    browser.open(make_page("one", "--device", "0", file))
    places.append(top())
    if places[0] > 900 or places[1] > 600:
        fail(f"the chart begins below the fold, at {places} pixels with two devices and with one")

    colours = {}
    for name in ("gpt-adamw", "cnn-sgd"):
        browser.open(make_page("colours", "--no-what-if", os.path.join(RECORDINGS, name + ".pickle.zst")))
        browser.run("const by = document.getElementById('by'); by.value = 'category'; by.dispatchEvent(new Event('change'))")
        browser.filtered()
        for label, colour in browser.run("""return [...document.querySelectorAll('#legend li')].map(
            item => [item.title, getComputedStyle(item.querySelector('.swatch')).backgroundColor])"""):
            expect(f"colour of {label} in {name}", colour, colours.setdefault(label, colour))
    expect("colours of categories", len(set(colours.values())), len(colours))

    file = os.path.join(OUT, "no-stacks.pickle")
    events = [{"action": "alloc" if i % 2 == 0 else "free_completed", "addr": i // 2 + 1 << 24, "size": 1 << 10 + i % 12, "stream": 0, "time_us": i * i} for i in range(200)]
    with open(file, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events + [dict(events[0], addr=1 << 44, time_us=50000)]]}, out, 4)
    browser.open(make_page("no-stacks", file))
    expect("groups without stacks", browser.run("return document.getElementById('by').value"), "life")
    if len(legend_labels(browser)) < 3:
        fail(f"a recording without stacks is divided into {legend_labels(browser)}")
    expect("how stacks are recorded", browser.run("return [document.getElementById('no-stacks').hidden, document.getElementById('no-stacks-line').textContent]"),
           [False, 'torch.cuda.memory._record_memory_history(enabled="all", context="all")'])
    browser.open(os.path.join(OUT, "tarn.html"))
    expect("the same where there are stacks", browser.run("return document.getElementById('no-stacks').hidden"), True)


def sentences(browser, text):
    """The summary has three sentences; "most" is more than half; of two files it says first what changed."""
    def said(text):
        found = text.splitlines()[0]
        return re.split(r"(?<=\.) (?=[A-Z])", found)

    expect("sentences of a summary", len(said(text)), 3)
    for sizes, wanted in (((40, 30, 30), "the largest part, by tag: tag0"), ((60, 40), "most of it by tag: tag0")):
        events = [{"action": "alloc", "addr": i + 1 << 30, "size": size << 20, "stream": 0, "time_us": i, "user_metadata": f"tag{i}"} for i, size in enumerate(sizes)]
        file = os.path.join(OUT, f"parts-{len(sizes)}.pickle")
        with open(file, "wb") as out:
            pickle.dump({"segments": [], "device_traces": [events]}, out)
        browser.open(make_page("parts", file))
        expect("who has the peak", wanted in said(copied(browser))[0], True)
    browser.open(make_page("torn", os.path.join(DATA, "well.pickle")))
    expect("sentences without an error", len(said(copied(browser))), 3)
    browser.open(make_page("parts-two", *(os.path.join(OUT, f"parts-{count}.pickle") for count in (2, 3))))
    compared = browser.run("return document.getElementById('compare-said').textContent").replace("\u00a0", " ")
    expect("how the summary of two begins", copied(browser).splitlines()[0], "**parts-2.pickle** and **parts-3.pickle**: " + re.sub(r"([+()~])", r"\\\1", compared))
    browser.open(os.path.join(OUT, "tarn.html"))


def long_links(browser):
    """Callers that are too long for a link are left out of it, and the page says so beside them; shorter ones come with it."""
    file = os.path.join(OUT, "deep.pickle")
    frames = [{"name": "again", "filename": "/srv/again.py", "line": 1000 + i} for i in range(300)]
    with open(file, "wb") as out:
        pickle.dump({"device_traces": [[{"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1, "frames": frames}]]}, out, 4)
    browser.open(make_page("deep", "--no-what-if", file))
    browser.settle()
    for depth, fits in ((100, True), (200, False)):
        browser.run("[...document.querySelectorAll('#calls svg g')].pop().dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        browser.filtered()
        expect(f"a link to {depth} callers, and what is said of it",
               browser.run("return [new URLSearchParams(location.hash.slice(1)).has('calls'), document.querySelector('#calls .unlinked') === null]"), [fits, fits])


def sent_to_others(browser):
    """The summary is text and nothing more, the picture says whose it is, links have the flame graph, and Back goes back."""
    file = os.path.join(DATA, "tarn.pickle")
    browser.open(os.path.join(OUT, "tarn.html"))
    text = copied(browser)
    lines = text.splitlines()
    for wanted in ("**tarn.pickle**, device 0", "| peak allocated | peak reserved | free in holes | out of memory | recorded |", "It ran out of memory at ", "```text"):
        expect("in the summary: " + wanted, wanted in text, True)
    sentences(browser, text)
    chart = [line for line in lines if "\u2502" in line]
    expect("lines of its chart", len(chart), 8)
    expect("height of its chart", ("\u2588" in chart[-1], any(mark in chart[0] for mark in "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588")), (True, True))
    evil = "@all [x](javascript:1) <img src=x> ![y](http://z) | `a` "
    hostile = os.path.join(OUT, evil.replace("/", "_") + ".pickle")
    with open(hostile, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [[{"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1, "user_metadata": evil, "frames": []}]]}, out, 4)
    browser.open(make_page("summary", hostile))
    text = copied(browser)
    for part in ("@all", "[x]", "<img", "![y", "://z", "`a`"):
        expect("as it is in the summary: " + part, re.search(r"(?<!\\)" + re.escape(part), text), None)

    browser.open(os.path.join(OUT, "tarn.html"))
    browser.run("""window.saved = []; const make = URL.createObjectURL;
        URL.createObjectURL = blob => { saved.push(blob); return make.call(URL, blob); }; HTMLAnchorElement.prototype.click = () => {};""")
    browser.run("document.getElementById('save-svg').click()")
    svg = browser.run("return saved[0].text()")
    for wanted in ("tarn.pickle, device 0", "time since the first event", "allocated memory, by tag", ">reserved<", ">0 B<".replace(" ", "\u00a0")):
        expect("in the picture: " + wanted, wanted in svg, True)

    sizes = "return [...document.querySelectorAll('#calls svg rect')].map(rect => Number(rect.dataset.bytes))"
    browser.run("document.querySelectorAll('#calls svg g')[1].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.filtered()
    seen = browser.run(sizes)
    address = browser.run("return location.hash")
    browser.driver.get("about:blank")
    browser.open(os.path.join(OUT, "tarn.html") + address)
    browser.filtered()
    expect("flame graph of a link", browser.run(sizes), seen)

    browser.open(os.path.join(OUT, "tarn.html"))
    browser.filtered()
    states = []
    for by in ("site", "stream"):
        browser.run("return new Promise(resolve => setTimeout(resolve, 1200))")
        states.append(browser.run("return document.getElementById('by').value"))
        browser.run("const by = document.getElementById('by'); by.value = arguments[0]; by.dispatchEvent(new Event('change'))", by)
        browser.filtered()
    for wanted in reversed(states):
        browser.driver.back()
        browser.filtered()
        expect("after Back", browser.run("return document.getElementById('by').value"), wanted)
    long_links(browser)
    browser.check()
