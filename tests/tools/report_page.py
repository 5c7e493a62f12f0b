#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Opens the page of `tarn report` in Chromium and holds what it shows against the program's JSON: report_page.py PROGRAM DATA OUT
PART. PART is what the page shows (show), how a reader looks for something (look), several files and those that the page reads itself
(open), a large recording (many), or what Firefox makes of it (firefox); "speed EVENTS..." tests nothing, and prints how fast pages of so many events are:
lab/page-speed.
DATA is the folder that make_snapshots.py filled; pages and screenshots go into OUT. Debian's python3-selenium drives the browser.
"""

import gzip
import json
import os
import pickle
import re
import subprocess
import sys

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from page_browser import (COLOURED, DATA, OUT, PROGRAM, WHAT, Browser, ask, click_in_chart, compare_moment, expect, fail, make_page, open_file)
from page_compare import first_of_ranks, moved_sites, several_ranks, two_files
from page_firefox import Firefox, in_firefox
from page_fits import no_slider, what_if
from page_many import exact_moves, many_events, speed, thinned
from page_moves import MOVES
from page_send import RECORDINGS, above_the_fold, legend_labels, sent_to_others


def walk_around(browser, scheme):
    """A file with everything in it, as a reader would look at it."""
    file = os.path.join(DATA, "tarn.pickle")
    browser.open(make_page("tarn", file), scheme)
    expect("first moment", compare_moment(browser, file), ask(file, "peak")["peak"]["event"])
    browser.screenshot("report-" + scheme)
    browser.open(os.path.join(OUT, "tarn.html"), scheme, at_peak=False)
    expect("moment of the error", compare_moment(browser, file), ask(file, "oom")["at"]["event"])
    browser.open(os.path.join(OUT, "tarn.html"), scheme)

    for part in (0.1, 0.37, 0.62, 0.93):
        click_in_chart(browser, part)
        compare_moment(browser, file)
    marks = dict(mark.split(" ") for mark in browser.run("return document.getElementById('timeline').dataset.marks").split(", "))
    width = browser.get("canvas.areas").size["width"]
    for height, where in ((0.5, "below"), (None, "on")):
        browser.get("#at-end").click()
        click_in_chart(browser, (int(marks["peak"]) - 76) / (width - 76 - 26), height)
        expect(f"a click {where} the mark of the peak", compare_moment(browser, file), ask(file, "peak")["peak"]["event"])

    browser.get("#ooms button").click()
    expect("a click on an out-of-memory error", compare_moment(browser, file), ask(file, "peak")["out_of_memory"][0]["state"]["event"])
    browser.get("canvas.areas").send_keys(Keys.ARROW_LEFT)
    for _ in range(12): # what was given back before it: moment by moment
        browser.keys(Keys.ARROW_LEFT)
        compare_moment(browser, file)

    browser.get("#at-end").click()
    expect("end", compare_moment(browser, file), ask(file, "end")["events"])
    browser.get("canvas.areas").click()
    browser.keys("p", Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    expect("keys", compare_moment(browser, file), ask(file, "peak")["peak"]["event"] + 1)
    browser.keys(*"+" * 12)
    browser.wait("document.getElementById('detail').textContent.includes('one by one')", "zooming in shows no single blocks")
    click_in_chart(browser, 0.5, 0.8)
    browser.settle()
    address = browser.run("return document.getElementById('block').dataset.address")
    alive = [block["address"] for block in ask(file, browser.run("return document.body.dataset.moment"), rows=100000)["blocks"]]
    if int(address, 16) not in alive:
        fail(f"a click in the chart chose {address}, which does not live then")
    browser.screenshot("report-zoomed-" + scheme)
    browser.keys(Keys.HOME)

    labels = lambda: browser.run("return [...document.querySelectorAll('#legend .label')].map(node => node.textContent)")
    expect("legend", sorted(labels()), ["load", "no tag", "step 1", "step 2"])
    browser.get("#legend [title='Show the parts of step 1']").click()
    browser.wait("document.querySelectorAll('#legend .label').length > 4", "a tag does not open")
    expect("opened legend", sorted(labels()), ["load", "no tag", "step 1/backward", "step 1/forward", "step 2"])
    browser.get("#opened button").click()
    browser.wait("document.querySelectorAll('#legend .label').length === 4", "a tag does not close")
    for by in ("site", "module", "stream", "pool", "thread", "last"):
        browser.run("const by = document.getElementById('by'); by.value = arguments[0]; by.dispatchEvent(new Event('change'))", by)
        browser.settle()

    browser.run("const by = document.getElementById('model'); by.value = 1; by.dispatchEvent(new Event('change'))")
    browser.wait("document.getElementById('moment-title').textContent.includes('2,274')", "the other device is not shown")
    compare_moment(browser, file, 1)
    browser.check()
    browser.run("document.getElementById('facts-section').scrollIntoView()")
    browser.screenshot("report-facts-" + scheme)


def advice(browser):
    """The sentences of the text, on top; each leads to its moment. None for a recording that is well."""
    file = os.path.join(DATA, "tarn.pickle")
    browser.open(os.path.join(OUT, "tarn.html"))
    said = ask(file, "peak")["advice"]
    shown = browser.run("return [...document.querySelectorAll('#advice li')].map(item => item.firstChild.textContent.trim())")
    expect("advice", shown, [item["text"] for item in said])
    browser.driver.set_window_size(1500, 600) # "show" scrolls to the moment that it shows
    browser.get("#advice li[data-kind=out_of_memory] button").click()
    browser.wait("(place => place.top >= 0 && place.bottom <= innerHeight)(document.getElementById('moment-title').getBoundingClientRect())",
                 "the moment is not in view")
    browser.driver.set_window_size(1500, 1700)
    expect("the moment of the first advice", compare_moment(browser, file), said[0]["event"])
    browser.open(make_page("well", os.path.join(DATA, "well.pickle")))
    expect("advice where all is well", browser.run("return document.getElementById('advice-section').hidden"), True)


def categories(browser):
    """Who has it by category, in the table and in the chart's legend."""
    file = os.path.join(RECORDINGS, "gpt-adamw.pickle.zst")
    browser.open(make_page("categories", file))
    wanted = {group["name"]: group["blocks"] for group in ask(file, "peak")["groups"]["category"]}
    for choice in ("groups-by", "by"):
        browser.run("const by = document.getElementById(arguments[0]); by.value = 'category'; by.dispatchEvent(new Event('change'))", choice)
        browser.settle()
    rows = browser.run("""return [...document.querySelectorAll('#groups tbody tr')].map(
        row => [row.querySelector('button').title, Number(row.children[2].textContent.replace(/,/g, ''))])""")
    expect("groups by category", dict(rows), wanted)
    browser.wait("[...document.querySelectorAll('#legend .label')].some(label => label.textContent === 'optimizer')",
                 "the legend has no categories")
    browser.screenshot("report-categories")


def call_trees(browser):
    """The flame graph and the callers have all that is allocated, a click looks into one function, and a chosen group is all they show."""
    file = os.path.join(RECORDINGS, "gpt-adamw.pickle.zst")
    browser.open(os.path.join(OUT, "categories.html"))
    browser.settle()
    sizes = "return [...document.querySelectorAll('#calls svg rect')].map(rect => Number(rect.dataset.bytes))"
    said = ask(file, "peak")
    bytes_ = browser.run(sizes)
    expect("all of the flame graph", bytes_[0], said["at"]["allocated"])
    browser.run("document.querySelector('#calls details').open = true")
    shown = browser.run("return [...document.querySelectorAll('.callers > li')].map(item => Number(item.dataset.bytes))")
    expect("call sites", shown, sorted((group["bytes"] for group in said["groups"]["call_site"]), reverse=True))
    browser.run("document.querySelector('.callers details').open = true")
    browser.wait("document.querySelectorAll('.callers > li ul > li').length", "callers do not open")
    browser.screenshot("report-calls")
    browser.run("document.querySelectorAll('#calls svg g')[1].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    expect("what was clicked", browser.run(sizes)[0], bytes_[1])
    browser.get("#calls .crumbs button").click()
    expect("and back", browser.run(sizes), bytes_)
    browser.get("#groups tbody button").click()
    browser.filtered()
    expect("of one call site", browser.run(sizes)[0], said["groups"]["call_site"][0]["bytes"])
    browser.check()

    frames = [{"name": "again", "filename": "/srv/again.py", "line": i + 1} for i in range(20000)]
    file = os.path.join(OUT, "recursion.pickle")
    with open(file, "wb") as out: # a trace alone, too
        pickle.dump({"device_traces": [[{"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1, "frames": frames}]]}, out, 4)
    for opened in (False, True):
        if opened:
            browser.open(os.path.join(OUT, "tarn.html"))
            expect("of a recursion", open_file(browser, file), "")
            browser.wait("document.body.dataset.filtering === undefined", "the recursion is not shown")
        else:
            browser.open(make_page("recursion", file))
        browser.settle()
        expect("lines of a recursion", browser.run(sizes), [512] * 101)
        browser.run("[...document.querySelectorAll('#calls svg g')].pop().dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        expect("further in", browser.run("return document.querySelector('#calls svg text').textContent"), "again  again.py:19901")
        expect("links to callers", browser.run("return document.querySelectorAll('#calls .crumbs button').length") <= 9, True)
    browser.check()


def rows_of(browser):
    """The blocks of the table as (address, size)."""
    return [tuple(row) for row in browser.run("""return [...document.querySelectorAll('#blocks tbody tr')].map(
        row => [parseInt(row.dataset.address, 16), Number(row.dataset.size)])""")]


def type_into(browser, field, text):
    box = browser.get("#" + field)
    box.clear()
    box.send_keys(text)
    browser.filtered()


def pair(block):
    return block["address"], block["bytes"]


def map_colours(browser):
    """How many pixels of the address map have the colour of what is left out, and how many one that is no grey."""
    return browser.run("""
        const canvas = document.querySelector('#map canvas'), copy = document.createElement('canvas');
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const context = copy.getContext('2d', {willReadFrequently: true});
        context.drawImage(canvas, 0, 0);
        const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
        const hidden = parseInt(getComputedStyle(document.documentElement).getPropertyValue('--hidden').trim().slice(1), 16);
        let left = 0, coloured = 0;
        for (let i = 0; i < data.length; i += 4) {
            left += (data[i] << 16) + (data[i + 1] << 8) + data[i + 2] === hidden;
            coloured += data[i + 3] === 255 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 40;
        }
        return [left, coloured]""")


def filters(browser):
    """Search, sizes and legend act on table, chart, map and legend together."""
    file = os.path.join(DATA, "tarn.pickle")
    browser.open(os.path.join(OUT, "tarn.html"))
    browser.settle()
    alive = ask(file, "peak", rows=100000)["blocks"]
    expect("nothing is left out", map_colours(browser)[0], 0)
    type_into(browser, "search", '"step 1"')
    found = [block for block in alive if "step 1" in block["tag"]]
    if not found or len(found) == len(alive):
        fail("the search divides nothing")
    expect("found by tag", rows_of(browser), [pair(block) for block in found[:100]])
    expect("legend of what was found", legend_labels(browser), ["step 1"])
    left, coloured = map_colours(browser)
    if not left or not coloured:
        fail(f"the map does not tell what was found: {left} and {coloured} pixels")
    type_into(browser, "search", '-"step 1"')
    expect("not found", rows_of(browser), [pair(block) for block in alive if "step 1" not in block["tag"]][:100])
    type_into(browser, "search", "nothing-has-this")
    expect("found where there is nothing", rows_of(browser), [])
    browser.get("#clear").click()
    browser.filtered()
    type_into(browser, "least", "1 MiB")
    type_into(browser, "most", "20m")
    expect("by size", rows_of(browser), [pair(block) for block in alive if 1 << 20 <= block["bytes"] <= 20 << 20][:100])
    type_into(browser, "least", "")
    type_into(browser, "most", "64k")
    browser.wait("document.getElementById('timeline').dataset.y && !document.getElementById('timeline').dataset.y.includes('GiB')",
                 "the chart is as high as what is left out")
    type_into(browser, "least", "1 MiB")
    type_into(browser, "most", "20 bananas")
    expect("an invalid size", browser.get("#most").get_attribute("aria-invalid"), "true")
    expect("is passed over", rows_of(browser), [pair(block) for block in alive if 1 << 20 <= block["bytes"]][:100])
    browser.get("#clear").click()
    browser.filtered()
    browser.get("#legend li[title='step 2'] .entry").click()
    browser.filtered()
    expect("of the legend's choice", rows_of(browser), [pair(block) for block in alive if block["tag"].split("/")[0] == "step 2"][:100])
    expect("a legend with a choice", len(legend_labels(browser)), 4)
    browser.get("#clear").click()
    browser.filtered()
    expect("all again", rows_of(browser), [pair(block) for block in alive][:100])
    for column, key in ((0, lambda block: block["bytes"]), (3, lambda block: block["address"])):
        browser.run("document.querySelectorAll('#blocks th .sort')[arguments[0]].click()", column)
        expect("sorted", [key(dict(zip(("address", "bytes"), row))) for row in rows_of(browser)], sorted(map(key, alive))[:100])
    expect("said to be sorted", browser.run("return document.querySelectorAll('#blocks th')[3].getAttribute('aria-sort')"), "ascending")
    browser.run("document.querySelector('#blocks tbody tr').dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: 9, clientY: 9}))")
    site = ask(file, "peak", rows=100000)["blocks"]
    site = next(block["call_site"] for block in site if pair(block) == rows_of(browser)[0])
    if site not in browser.run("return document.getElementById('tooltip').textContent"):
        fail("the hint of a block does not show its stack")
    browser.run("document.querySelector('#blocks tbody button').click()")
    expect("call site first", browser.run("return document.querySelector('#block .stack code').textContent"), site)
    browser.check()


def ranges_and_links(browser):
    """Two moments beside each other; and the address of the page shows another reader the same."""
    file = os.path.join(DATA, "tarn.pickle")
    page = os.path.join(OUT, "tarn.html")
    browser.open(page)
    browser.settle()
    begin = min(block["freed"] for block in ask(file, 700, rows=100000)["blocks"] if block["freed"]) # where something was freed just now
    end = 1600
    for moment, button in ((begin, "from"), (end, "to")):
        browser.run("location.hash = 'at=' + arguments[0] + (arguments[1] ? '&range=' + arguments[1] : '')", moment,
                    f"{begin}-2000" if button == "to" else "")
        browser.wait(f"document.body.dataset.moment === '{moment}'", "the address does not choose a moment")
        browser.filtered()
        browser.get("#range-" + button).click()
    said = {moment: ask(file, moment, rows=100000) for moment in (begin, end)}
    kept = [block for block in said[end]["blocks"] if block["begin"] > begin]
    shown = browser.run("return Object.assign({}, document.getElementById('range-sums').dataset)")
    expect("range", {key: int(shown[key]) for key in ("before", "after", "kept")},
           {"before": said[begin]["at"]["allocated"], "after": said[end]["at"]["allocated"], "kept": sum(block["bytes"] for block in kept)})
    expect("growth", int(shown["after"]) - int(shown["before"]), int(shown["allocated"]) - int(shown["freed"]))
    browser.screenshot("report-range")

    type_into(browser, "search", "model_5")
    browser.get("#legend .entry").click()
    browser.filtered()
    browser.run("document.querySelectorAll('#blocks th .sort')[3].click()")
    browser.get("canvas.areas").click()
    browser.keys("p", *"+" * 3)
    browser.filtered()
    look = """return [document.getElementById('matches').textContent, document.getElementById('range-title').textContent,
        document.getElementById('blocks').textContent, document.getElementById('timeline').dataset.x,
        document.getElementById('moment-title').textContent, document.getElementById('block').textContent]"""
    seen = browser.run(look)
    if not rows_of(browser):
        fail("there is nothing to compare")
    address = browser.run("return location.hash")
    browser.driver.get("about:blank")
    browser.open(page + address)
    browser.filtered()
    expect("what a link shows", browser.run(look), seen)
    browser.driver.get("about:blank")
    browser.open(page + "#at=99999999&range=9-1&view=x,y&blocks=__proto__&by=nothing&device=77&legend=%25zz&block=-5")
    compare_moment(browser, file)
    browser.check()

    browser.get("#ranging").click()
    chart = browser.get(".brush .overlay")
    ActionChains(browser.driver).move_to_element_with_offset(chart, -100, 0).click_and_hold().move_by_offset(150, 0).release().perform()
    browser.settle()
    expect("a range by hand", browser.run("return document.getElementById('range-section').hidden"), False)
    browser.get("#range-clear").click()
    expect("no range", browser.run("return document.getElementById('range-section').hidden"), True)


def dropped_and_saved(browser):
    """Another page opened in this one is compared with it; what no page is says so. Pictures and tables as files."""
    before, after = os.path.join(DATA, "tarn.pickle"), os.path.join(DATA, "oom.pickle")
    browser.open(os.path.join(OUT, "tarn.html"))
    browser.get("#open-file").send_keys(make_page("oom", after))
    browser.wait("document.body.dataset.files === '2'", "the page was not opened")
    browser.filtered()
    compare_moment(browser, after)
    expect("names of both", browser.run("return document.getElementById('compare-title').textContent"), "tarn.pickle and oom.pickle")
    expect("title", browser.run("return [document.querySelector('#report h1').textContent, document.title.split(' \u00b7 ')[0]]"), ["tarn.pickle and oom.pickle"] * 2)
    facts = browser.run("return ['head-facts', 'advice-of'].map(id => document.getElementById(id).textContent)")
    if not all(text.startswith("B: oom.pickle, device 0") for text in facts):
        fail(f"after a file is dropped, the facts and the advice are said of {facts}")
    printed = subprocess.run([PROGRAM, "diff", "--json", "--device", "0", before, after], check=True, capture_output=True, text=True)
    wanted = [change["name"] for change in json.loads(printed.stdout)[0]["changes"]["call_site"]]
    expect("what changed", browser.run("""return [...document.querySelectorAll('#compare-tables table:nth-of-type(2) tbody tr')].map(
        row => row.lastChild.textContent)"""), wanted[:40])
    browser.run("""const data = new DataTransfer(); data.items.add(new File(['x'], 'some.log'));
        window.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))""")
    browser.wait("!document.getElementById('said').hidden", "what is dropped and nothing the page reads is passed over in silence")
    said = browser.run("return document.getElementById('said').textContent")
    expect("of a log", said, "some.log: byte 0: this is text; a memory snapshot is a pickle of protocol 2 to 5")

    browser.open(os.path.join(OUT, "tarn.html"))
    browser.settle()
    browser.run("""window.saved = []; const make = URL.createObjectURL;
        URL.createObjectURL = blob => { saved.push(blob); return make.call(URL, blob); };
        HTMLAnchorElement.prototype.click = function() { saved[saved.length - 1].named = this.download; }""")
    for button in ("save-svg", "save-csv", "save-blocks", "save-png"):
        browser.run("document.getElementById(arguments[0]).click()", button)
    browser.wait("window.saved.length === 4 && window.saved[3].named", "not all was saved")
    svg, chart, blocks = [browser.run("return saved[arguments[0]].text()", i) for i in range(3)]
    expect("areas of the SVG", svg.count("<title>"), 1 + len(legend_labels(browser)))
    expect("columns of the chart", chart.splitlines()[0].split(",")[3:], legend_labels(browser))
    expect("blocks of the CSV", len(blocks.splitlines()) - 1, ask(before, "peak")["at"]["blocks"])
    colours = browser.run("""const picture = await createImageBitmap(saved[3]), canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [picture.width, picture.height];
        const context = canvas.getContext('2d');
        context.drawImage(picture, 0, 0);
        const {data} = context.getImageData(0, 0, canvas.width, canvas.height), found = new Set();
        for (let i = 0; i < data.length; i += 4)
            found.add((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);
        return found.size""")
    if colours < 5:
        fail("the PNG is empty")
    browser.check()


class Runs:
    """What a pickle of it would call."""
    def __reduce__(self):
        return (os.system, ("touch " + os.path.join(OUT, "was-run"),))


def broken_among_others(browser):
    """Of several files that are dropped at once, one that is broken does not take the others with it."""
    broken = os.path.join(OUT, "broken.pickle")
    with open(broken, "wb") as out:
        out.write(b"no pickle")
    browser.driver.get("file://" + make_page("viewer"))
    browser.wait("document.body.dataset.ready", "the viewer was not ready")
    browser.get("#open-first").send_keys("\n".join([os.path.join(DATA, "well.pickle"), broken, os.path.join(DATA, "torn.pickle")]))
    browser.wait("document.body.dataset.files === '2'", "the files that are not broken were not opened")
    expect("what is said of the broken one", browser.run("return document.getElementById('said').textContent").startswith("broken.pickle: "), True)


def viewer(browser):
    """The page without a file: says what it takes, and by whom it was made; a file that is dropped on it is shown, and several are ranks."""
    page = make_page("viewer")
    browser.driver.get("file://" + page)
    browser.wait("document.body.dataset.ready", "the viewer was not ready")
    shown = "return ['welcome', 'report', 'reading'].map(id => !document.getElementById(id).hidden)"
    expect("an empty viewer", browser.run(shown), [True, False, False])
    version = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    expect("title of the viewer", browser.run("return document.title"), "tarn report \u00b7 " + version)
    expect("foot of the viewer", browser.run("return [maker.textContent, made.textContent]"), [version, "tarn report -o viewer.html"])
    policy = browser.run("return document.querySelector('meta[http-equiv]').content")
    expect("what may run", [part.strip().split(" ")[0::2] for part in policy.split(";") if "script-src" in part], [["script-src", "'wasm-unsafe-eval'"]])
    browser.screenshot("report-viewer")
    file = os.path.join(DATA, "small-4.pickle.zst")
    browser.get("#open-first").send_keys(file)
    browser.wait("document.body.dataset.moment", "the viewer does not show the file")
    browser.filtered()
    expect("a viewer with a file", browser.run(shown), [False, True, False])
    expect("its title", browser.run("return [document.querySelector('#report h1').textContent, document.title]"),
           ["small-4.pickle.zst", "small-4.pickle.zst \u00b7 " + version])
    compare_moment(browser, file)
    browser.check()

    browser.driver.get("about:blank")
    browser.driver.get("file://" + page)
    browser.wait("document.body.dataset.ready", "the viewer was not ready")
    paths = [os.path.join(OUT, "ranks", f"rank{number}.pickle") for number in range(3)] # of several_ranks()
    browser.get("#open-first").send_keys("\n".join(paths))
    browser.wait("document.body.dataset.moment", "the viewer does not show ranks")
    said = json.loads(subprocess.run([PROGRAM, "report", "--json", *paths], check=True, capture_output=True, text=True).stdout)
    expect("sentences of dropped ranks", browser.run("return [...document.querySelectorAll('#ranks-advice li')].map(node => node.textContent)"),
           said["advice"])
    browser.check()


def made_by(browser):
    """What a page says of the command that made it would do the same, and names no folder."""
    file = os.path.join(OUT, "it's a <b>.pickle")
    with open(os.path.join(DATA, "well.pickle"), "rb") as source, open(file, "wb") as out:
        out.write(source.read())
    browser.open(make_page("made", "--fold", "a b", "--top", "3", file))
    expect("command", browser.run("return made.textContent"), "tarn report -o made.html --fold 'a b' --top 3 'it'\\''s a <b>.pickle'")


def snapshots_opened(browser):
    """Snapshots that the page reads itself show what the program says of them, moment by moment, advice and categories included; what would
    run code is refused, with the program's words."""
    browser.open(make_page("well", os.path.join(DATA, "well.pickle")))
    names = ("tarn", "streams", "expandable", "old", "late-frees", "wrapped", "state")
    sites = os.path.join(OUT, "sites.pickle")
    files = ("torch/nn/x.py", "/a/torch/_y.py", "torch/functional.py", "torch/model.py", "/home/torch/m.py", "/a/mytorch/nn/l.py", "torch", "/torch/nn.py")
    events = [{"action": "alloc", "addr": (i + 1) << 12, "size": 512 * (i + 1), "stream": 0, "time_us": i, "frames": [
        {"name": "inner", "filename": name, "line": 3 if i else {"no": "number"}}, {"name": "outer", "filename": "/home/a.py", "line": 4}]} for i, name in enumerate(files)]
    with open(sites, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
    log = os.path.join(OUT, "rmm.csv")
    with open(log, "w", encoding="ascii") as out:
        out.write("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000001,allocate,0x1000,4096,0\n1,00:00:00:000002,allocate,0x4000,512,0\n"
                  "1,00:00:00:000003,free,0x1000,4096,0\n")
    recording, packed = os.path.join(RECORDINGS, "gpt-adamw.pickle.zst"), os.path.join(OUT, "packed.pickle.gz")
    with open(os.path.join(DATA, "tarn.pickle"), "rb") as source, gzip.open(packed, "wb") as out:
        out.write(source.read())
    for path in [*(os.path.join(DATA, name + ".pickle") for name in names), recording, packed, sites, log]:
        expect("opening " + path, open_file(browser, path), "")
        browser.wait("document.body.dataset.filtering === undefined", "the file is not shown")
        browser.run("const by = document.getElementById('groups-by'); by.value = 'site'; by.dispatchEvent(new Event('change'))")
        said = json.loads(subprocess.run([PROGRAM, "report", "--json", path], check=True, capture_output=True, text=True).stdout)
        device = said[0]["device"]
        if not said[0]["trace"]:
            shown = browser.run("return Object.assign({}, document.getElementById('sums').dataset)")
            expect("state of " + path, [float(shown[key]) for key in ("allocated", "waiting", "reserved", "free", "largest")],
                   [float(said[0]["at"][key]) for key in ("allocated", "waiting", "reserved", "free", "largest_free")])
            continue
        opens = said[0]["out_of_memory"][-1]["state"] if said[0]["out_of_memory"] else said[0]["peak"]
        expect("where " + path + " opens", compare_moment(browser, path, device), opens["event"])
        browser.get("#at-peak").click()
        expect("peak of " + path, compare_moment(browser, path, device), said[0]["peak"]["event"])
        browser.get("#at-peak-reserved").click()
        expect("peak of reserved memory of " + path, compare_moment(browser, path, device), said[0]["peak_reserved"]["event"])
        click_in_chart(browser, 0.6)
        compare_moment(browser, path, device)
        expect("ooms of " + path, len(browser.run("return [...document.querySelectorAll('#ooms tbody tr')].map(row => row.textContent)")),
               len(said[0]["out_of_memory"]))
        expect("advice of " + path, browser.run("return [...document.querySelectorAll('#advice li')].map(item => item.dataset.kind)"),
               [item["kind"] for item in said[0]["advice"]])
    browser.screenshot("report-opened")
    replayed_here(browser)

    with open(packed, "r+b") as file:
        file.truncate(1000)
    expect("a file of gzip that is cut short", "gzip cannot decompress it" in open_file(browser, packed), True)
    hostile = os.path.join(OUT, "hostile.pickle")
    for content in (pickle.dumps({"segments": Runs()}), b"\x80\x04}", b"\x80\x04]K\x01K\x02u.", b"\x80\x04N.", b"\x80\x09N.", pickle.dumps({"__proto__": {"a": 1}}),
                    b"\x80\x04\x8e" + b"\xff" * 8 + b".", b"\x28\xb5\x2f\xfd\xff\xff\xff", b"PK\x03\x04", b""):
        with open(hostile, "wb") as file:
            file.write(content)
        wanted = subprocess.run([PROGRAM, "report", hostile], check=False, capture_output=True, text=True).stderr.strip()
        said, wanted = [text.split("hostile.pickle: ")[-1] for text in (open_file(browser, hostile), wanted)]
        expect(f"of {content[:20]}", said, wanted)
    expect("run", os.path.exists(os.path.join(OUT, "was-run")), False)
    browser.check()


def replayed_here(browser):
    """PyTorch's allocators as `tarn replay` has them, in a page that read the file itself."""
    file = os.path.join(RECORDINGS, "gpt-adamw.pickle.zst") # of one stream, so the smallest devices are searched
    expect("opening " + file, open_file(browser, file), "")
    browser.filtered()
    said = json.loads(subprocess.run([PROGRAM, "replay", "--json", "--least", file], check=True, capture_output=True, text=True).stdout)[0]
    shown = browser.run("return {...document.getElementById('what-if').dataset}")
    expect("what if", [int(shown[key]) for key in ("reserved0", "least0", "reserved1", "least1")],
           [said[name] for name in ("pytorch_peak_reserved", "pytorch_least", "expandable_peak_reserved", "expandable_least")])
    rows = browser.run("return [...document.querySelectorAll('#what-if tbody tr')].map(row => [row.cells[0].textContent, row.cells[2].textContent])")
    expect("the row of tarn", rows[2], ["tarn", "not replayed here"])


def what_happened(browser):
    """Regions, captures, waits and annotations below the chart, as many as the file has."""
    with open(os.path.join(DATA, "tarn.pickle"), "rb") as source:
        own = [event for event in pickle.load(source)["tarn"]["events"] if event["device"] == 0]
    browser.open(os.path.join(OUT, "tarn.html"))
    rows = dict(row.rsplit(":", 1) for row in browser.run("return document.getElementById('events').dataset.rows").replace(
        "other stream", "other_stream").replace("pool in use", "pool_in_use").split(" "))
    expect("waits", int(rows["wait"]), sum(event["kind"] == "wait" for event in own))
    expect("blocks used by other streams", int(rows["other_stream"]), sum(event["kind"] in ("record_stream", "free_on") for event in own))
    expect("captures", "capture" in rows, any(event["kind"].startswith("capture") for event in own))
    expect("painted", browser.run("""const canvas = document.querySelector('#events canvas');
        return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(value => value)"""), True)
    browser.run("document.querySelector('#events details').open = true")
    browser.wait("document.querySelectorAll('#events tbody tr').length", "the list of what happened is empty")
    graphs, pools = [browser.run("""const table = [...document.querySelectorAll('#facts table')].find(table => table.caption.textContent.startsWith(arguments[0]));
        return [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent.replace(/\\u00a0/g, ' ')).join(' '))""", title)
                     for title in ("Graphs", "Pools")]
    expect("graphs", graphs, ["3 default pool 5 5.00 MiB 2 2.00 MiB", "3 pool (0, 1) 1 1.00 GiB 0 0 B"])
    expect("pools that only graphs hold", [row.split(" ")[0] for row in pools if "only graphs hold it" in row], ["pool"])
    frames = [{"name": "f", "filename": "a.py", "line": 1}]
    notes = [{"name": name, "stage": stage, "device": 0, "time_us": time} for name, stage, time in
             (("one", "START", 10), ("inner", "START", 20), ("inner", "END", 30), ("one", "END", 40), ("open", "START", 45), (3, "START", "x"))]
    events = [{"action": "alloc", "addr": i << 20, "size": 4096, "stream": 0, "time_us": 10 * i, "frames": frames} for i in range(6)]
    file = os.path.join(OUT, "notes.pickle")
    with open(file, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events], "external_annotations": notes,
                     "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}}, out, 4)
    browser.open(make_page("notes", file))
    expect("annotations", browser.run("return document.getElementById('events').dataset.rows"), "annotation:2 annotation:1")
    browser.run("document.querySelector('#events details').open = true")
    browser.wait("document.querySelectorAll('#events tbody tr').length === 3", "not all annotations are listed")
    expect("one of them", browser.run("return document.querySelector('#events tbody tr').innerText.replace(/\\s+/g, ' ').trim()"),
           "event 2 event 5 annotation one")
    if "expandable_segments:True" not in browser.run("return document.getElementById('facts').textContent"):
        fail("the settings of the allocator are not shown")
    browser.check()


def time_of_an_error(browser):
    """The time of an error is its own, and not that of the event before it."""
    events = [{"action": "alloc", "addr": 1 << 30, "size": 1 << 20, "stream": 0, "time_us": 5, "frames": []},
              {"action": "oom", "device_free": 1 << 20, "size": 1 << 30, "stream": 0, "time_us": 3_000_005, "frames": []}]
    file = os.path.join(OUT, "late-error.pickle")
    with open(file, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out)
    browser.open(make_page("late-error", file))
    texts = lambda selector: browser.run("return [...document.querySelectorAll(arguments[0])].map(node => node.textContent.replace(/\u00a0/g, ' '))", selector)
    expect("the time in the table", texts("#ooms button"), ["event 1, 3.00 s"])
    expect("the time in the cards", [text for text in texts("#cards .value") if text.startswith("at ")], ["at 3.00 s"])


def accessible(browser):
    """Whatever can be chosen has a name, texts have contrast in both schemes, the keyboard stays where it is, and reaches the search."""
    for scheme in ("light", "dark"):
        browser.open(os.path.join(OUT, "tarn.html"), scheme)
        browser.settle()
        weak = browser.run("""
            const style = getComputedStyle(document.documentElement), light = name => {
                const text = style.getPropertyValue(name).trim().slice(1);
                const [r, g, b] = [0, 2, 4].map(i => parseInt(text.slice(i, i + 2), 16) / 255).map(
                    part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
            return ['--text', '--dim', '--link'].flatMap(text => ['--page', '--panel'].map(ground => [text, ground, ratio(text, ground)])).filter(
                ([,, contrast]) => contrast < 4.5)""")
        expect("texts without contrast, " + scheme, weak, [])
    nameless = browser.run("""
        const named = node => node.getAttribute('aria-label') || node.getAttribute('aria-labelledby') || node.textContent.trim() || node.title ||
            (node.closest('label') && node.closest('label').textContent.trim());
        return [...document.querySelectorAll('button, select, input, canvas[tabindex], [role=img], [role=application]')].filter(
            node => !named(node)).map(node => node.outerHTML.slice(0, 80))""")
    expect("what has no name", nameless, [])
    for button in ("#groups .row", "#groups .sort", "#blocks .sort", "#legend .entry"):
        browser.run("document.querySelector(arguments[0]).focus()", button)
        browser.keys(Keys.ENTER)
        browser.filtered()
        expect("focus after " + button, browser.run("return document.activeElement === document.querySelector(arguments[0])", button), True)
        browser.run("if (!document.getElementById('clear').hidden) document.getElementById('clear').click()")
        browser.filtered()
    browser.get("body").send_keys("/")
    expect("focus of /", browser.run("return document.activeElement.id"), "search")


def full_map(browser):
    """Blocks that lie in several ranges cover all of them: what is painted as free is what is free."""
    file = os.path.join(DATA, "expandable.pickle")
    browser.open(make_page("full", "--device", "0", file)) # the other one has more
    compare_moment(browser, file)
    at = ask(file, "peak")["at"]
    painted, free = browser.run("""
        const canvas = document.querySelector('#map canvas'), count = {};
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] === 255) {
                const colour = (data[i] << 16) + (data[i + 1] << 8) + data[i + 2];
                count[colour] = (count[colour] || 0) + 1;
            }
        const colour = name => parseInt(getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1), 16);
        delete count[colour('--edge')];
        return [Object.values(count).reduce((sum, part) => sum + part), count[colour('--free')] || 0]""")
    wanted = at["free"] / at["reserved"]
    print(f"address map: {free / painted:.1%} painted as free, {wanted:.1%} are")
    if abs(free / painted - wanted) > 0.03:
        fail("the address map paints another part of the memory as free")


def without_room(browser):
    """A chart of which nothing is seen throws nothing, and is there when there is room again."""
    browser.open(os.path.join(OUT, "tarn.html"))
    browser.run("document.getElementById('timeline').style.display = 'none'; window.dispatchEvent(new Event('resize'))")
    browser.run("return new Promise(resolve => setTimeout(resolve, 100))")
    browser.run("""document.getElementById('timeline').style.display = '';
        for (const plot of document.querySelectorAll('.plot')) plot.style.height = '0px';
        window.dispatchEvent(new Event('resize'))""")
    browser.run("return new Promise(resolve => setTimeout(resolve, 100))")
    browser.check()
    browser.run("""for (const plot of document.querySelectorAll('.plot')) plot.style.height = '';
        window.dispatchEvent(new Event('resize'))""")
    browser.wait(COLOURED, "the chart did not come back")


def resized_while_read(browser):
    """A page whose window changes all the time while it is read, before there is anything to draw, complains of nothing."""
    script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
        let left = 500; // on a busy machine resizes without end would leave no time for reading
        const resize = () => {
            window.dispatchEvent(new Event('resize'));
            if (left-- > 0 && (!document.body || !document.body.dataset.moment))
                setTimeout(resize, 0);
        };
        resize();
        // Frames are made as often as that, so that one falls between any two parts of the page.
        window.requestAnimationFrame = call => setTimeout(() => call(performance.now()), 0);
        window.cancelAnimationFrame = clearTimeout;"""})
    browser.open(os.path.join(OUT, "tarn.html"))
    browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    compare_moment(browser, os.path.join(DATA, "tarn.pickle"))
    browser.check()


def printed(browser):
    """A page that is laid out for paper without being drawn again: chart and axis are stretched alike."""
    browser.open(os.path.join(OUT, "tarn.html"))
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.run("document.querySelector('main').style.width = '700px'")
    for chart, frame in (("canvas.areas", "canvas.frame"), ("canvas.free", "canvas.free-frame")):
        shapes = browser.run("""
            const shape = selector => {
                const canvas = document.querySelector(selector), {left, top, width, height} = canvas.getBoundingClientRect();
                return [left, top, width, height, canvas.width, canvas.height];
            };
            return [shape(arguments[0]), shape(arguments[1])]""", chart, frame)
        expect("axes of the chart on paper", shapes[1], shapes[0])
        _, _, width, height, drawn, tall = shapes[0]
        expect("shape of the chart on paper", round(height / width * drawn / tall, 2), 1.0)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def ties(browser):
    """What lies exactly between two texts is rounded as the program rounds it."""
    sizes = [3200 << 20, 3328 << 20, 12544 << 20, 12608 << 20, 201 << 29, 203 << 29]
    events = [{"action": "alloc", "addr": (i + 1) << 40, "size": size, "stream": 0, "user_metadata": f"size{i}", "frames": []} for i, size in enumerate(sizes)]
    parts = [{"action": "alloc", "addr": (i + 1) << 40, "size": part << 20, "stream": 0, "user_metadata": f"part{part}", "frames": []} for i, part in enumerate((1, 3, 5, 7))]
    for name, made in (("ties", events), ("parts", parts)):
        file = os.path.join(OUT, name + ".pickle")
        with open(file, "wb") as out:
            pickle.dump({"segments": [], "device_traces": [made]}, out)
        browser.open(make_page(name, "--no-what-if", file))
        shown = browser.run("""return [...document.querySelectorAll('#groups tbody tr')].map(
            row => [...row.cells].slice(0, 2).map(cell => cell.textContent.replace('\u00a0', ' ')))""")
        text = subprocess.run([PROGRAM, "report", "--no-what-if", "--by", "tag", file], check=True, capture_output=True, text=True).stdout
        expect("sizes and shares", shown, [list(row) for row in re.findall(r"^ *(\S+ \S+) +(\S+ %) +1  (?:size|part)", text, re.M)])
        expect("groups", len(shown), len(made))


def state_only(browser):
    file = os.path.join(DATA, "state-only.pickle")
    browser.open(make_page("state", "--device", "0", file)) # the other one has more
    said = ask(file, "peak")
    expect("allocated in a state", float(browser.run("return document.getElementById('sums').dataset.allocated")),
           float(said["at"]["allocated"]))
    expect("how a trace is recorded", browser.run("return document.getElementById('no-stacks').checkVisibility() && document.getElementById('no-stacks-line').textContent"),
           'torch.cuda.memory._record_memory_history(enabled="all", context="all")')
    expect("chart of a state", browser.run("return document.getElementById('timeline-section').hidden"), True)
    browser.screenshot("report-state")


def wide_numbers(browser):
    """Addresses, sizes and times of more than 32 bits, whose parts a page adds up in two words."""
    file = os.path.join(OUT, "wide.pickle")
    events = [{"action": "alloc", "addr": (1 << 47) + (i << 33), "size": (5 << 30) + i, "stream": 0, "time_us": time, "frames": []}
              for i, time in enumerate((7, 3_000_007, 4_000_007, 5_000_007, 9_000_007))]
    with open(file, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
    browser.open(make_page("wide", file))
    browser.run("const by = document.getElementById('groups-by'); by.value = 'site'; by.dispatchEvent(new Event('change'))")
    for moment, time in ((4, "5.00 s"), (5, "9.00 s")):
        browser.run("location.hash = 'group=site&at=' + arguments[0]", moment)
        browser.wait(f"document.body.dataset.moment === '{moment}'", "the address does not choose a moment")
        browser.filtered()
        compare_moment(browser, file)
        expect("time", browser.run("return document.getElementById('moment-title').textContent.split(', ').pop().replace(/\u00a0/g, ' ')"), time)


def hostile_texts(browser):
    """What a file says is text, never part of the page."""
    evil = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>"
    frames = [{"name": evil, "filename": "/a/" + evil + ".py", "line": 3}]
    events = [{"action": "alloc", "addr": 1 << 20, "size": 4096, "stream": 0, "time_us": 5, "user_metadata": evil, "frames": frames},
              {"action": "alloc", "addr": 2 << 20, "size": 100, "stream": 0, "time_us": 6, "user_metadata": "\ud800\x00</", "frames": []}]
    file = os.path.join(OUT, "<img src=x onerror=alert(3)>&amp;.pickle")
    with open(file, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
    browser.open(make_page("hostile", file))
    expect("title", browser.run("return document.querySelector('#report h1').textContent"), os.path.basename(file))
    expect("legend", browser.run("return document.querySelector('#legend .label').textContent"), evil.split("/")[0])
    expect("pictures and scripts", browser.run("return document.querySelectorAll('img, #report script').length"), 0)


def cut_names(browser):
    """A name that is cut inside a character of two halves gets into a picture."""
    file = os.path.join(OUT, "cut.pickle")
    events = [{"action": "alloc", "addr": 1 << 20, "size": 4096, "stream": 0, "user_metadata": "x" * 38 + "\U0001f600" * 3, "frames": []}]
    with open(file, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
    browser.open(make_page("cut", file))
    browser.run("""HTMLAnchorElement.prototype.click = function() { window.named = this.download; };
        document.getElementById('save-png').click()""")
    browser.wait("window.named || !document.getElementById('said').hidden", "nothing was saved")
    expect("the picture", browser.run("return window.named || document.getElementById('said').textContent"), "cut-device0.png")


def without_scripts(browser):
    """Where no script runs, as in the view of an artefact of a build, the page says what to do instead of reading for ever."""
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.driver.get("file://" + os.path.join(OUT, "tarn.html"))
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    seen = browser.get("body").text.splitlines()
    expect("without scripts", ["JavaScript" in line for line in seen[:2]], [True, False])


PARTS = {
    "show": [advice, categories, call_trees, full_map, without_room, resized_while_read, printed, two_files, moved_sites, ties, state_only, wide_numbers, hostile_texts, cut_names, without_scripts],
    "look": [exact_moves, filters, ranges_and_links, dropped_and_saved, what_happened, time_of_an_error, what_if, no_slider, accessible, above_the_fold, sent_to_others, *MOVES],
    "open": [several_ranks, first_of_ranks, viewer, broken_among_others, made_by, snapshots_opened],
    "many": [many_events, thinned],
    "firefox": [in_firefox],
}


def main():
    os.makedirs(OUT, exist_ok=True)
    browser = Firefox() if WHAT == "firefox" else Browser()
    try:
        if WHAT == "speed":
            for count in sys.argv[5:]:
                speed(browser, int(count))
            return
        make_page("tarn", os.path.join(DATA, "tarn.pickle"))
        if WHAT == "show":
            for scheme in ("light", "dark"):
                walk_around(browser, scheme)
        for part in PARTS[WHAT]:
            part(browser)
    finally:
        browser.quit()


main()
