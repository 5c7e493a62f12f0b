# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""How the page of `tarn report` follows hands and screens: swipes, the pointer, phones and wide screens. For report_page.py."""

import os
import pickle
import re
import shutil
import time

from selenium.webdriver.common.action_chains import ActionChains

from page_browser import DATA, OUT, ask, expect, fail, make_page

RECORDINGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recordings")
SCROLL = "return [scrollX, scrollY]"


def resize(browser, width, height, mobile=False):
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                   {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})
    browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": mobile})


def whole_screen(browser):
    browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def swipe(browser, across, down):
    """Of one finger, from the middle of the chart. Gives what the page scrolled, and what is in view then."""
    left, top, *before = browser.run("""
        const chart = document.querySelector('canvas.areas');
        chart.scrollIntoView({block: 'center'});
        const box = chart.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2, scrollX, scrollY]""")
    touch = lambda kind, points: browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch("touchStart", [{"x": left, "y": top}])
    for step in range(1, 11):
        touch("touchMove", [{"x": left + across * step / 10, "y": top + down * step / 10}])
        time.sleep(0.02)
    touch("touchEnd", [])
    after = browser.run("await new Promise(resolve => setTimeout(resolve, 600));" + SCROLL)
    return after[1] - before[1], browser.run("return new URLSearchParams(location.hash.slice(1)).get('view')")


def phones(browser):
    """Recordings of every kind fit on a phone, a vertical swipe over the chart scrolls the page, and a horizontal one moves the chart."""
    resize(browser, 390, 844, True)
    long_names = os.path.join(OUT, "names.pickle")
    frames = [{"name": "scaled_dot_product_attention_" + str(i) * 30, "filename": "/srv/a_file_with_a_name.py", "line": i} for i in range(9)]
    events = [{"action": "alloc", "addr": (i + 1) << 20, "size": 4096 << i, "stream": 0, "time_us": i, "frames": [frame]} for i, frame in enumerate(frames)]
    with open(long_names, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
    make_page("names", long_names)
    several = []
    for number in range(3):
        several.append(os.path.join(OUT, f"workstation_of_a_group_with_a_long_name_{number}.pickle"))
        shutil.copy(long_names, several[-1])
    make_page("several", *several)
    make_page("compared", "--no-what-if", *(os.path.join(RECORDINGS, name + ".pickle.zst") for name in ("gpt-adamw", "gpt-amp")))
    pages = [os.path.join(OUT, name + ".html") for name in ("tarn", "no-stacks", "what-if", "names", "several", "compared")]
    for page in pages:
        browser.open(page)
        browser.settle()
        expect("names that are longer than their part of the flame graph in " + page, browser.run("""
            return [...document.querySelectorAll('#calls svg text')].filter(text =>
                text.getComputedTextLength() + 4 > Number(text.parentNode.querySelector('rect').getAttribute('width'))).map(text => text.textContent)"""), [])
        expect("width on a phone of " + page, browser.run("return document.documentElement.scrollWidth"), 390)
        expect("what is wider than a phone in " + page, browser.run("""return [...document.querySelectorAll('header *, select, .buttons')].filter(
            node => node.getBoundingClientRect().right > 390).map(node => node.id || node.className)"""), [])
        expect("what covers a phone", browser.run("return getComputedStyle(document.getElementById('filters')).position"), "static")
    browser.driver.get("file://" + make_page("viewer"))
    browser.wait("document.body.dataset.ready", "the viewer was not ready")
    expect("width on a phone of the viewer", browser.run("""const box = document.getElementById('welcome').getBoundingClientRect();
        return [document.documentElement.scrollWidth, box.left >= 8, box.right <= 382]"""), [390, True, True])
    browser.open(pages[0])
    browser.run("document.getElementById('zoom-in').click()")
    browser.filtered()
    view = browser.run("return new URLSearchParams(location.hash.slice(1)).get('view')")
    scrolled, seen = swipe(browser, 0, -200)
    if scrolled < 100 or seen != view:
        fail(f"a vertical swipe scrolls the page by {scrolled} pixels, and the chart from {view} to {seen}")
    scrolled, seen = swipe(browser, -100, 0)
    if scrolled or seen == view:
        fail(f"a horizontal swipe scrolls the page by {scrolled} pixels, and the chart shows {seen}")
    whole_screen(browser)


def wide_screens(browser):
    """All of a screen of 3840 pixels is used, and the chart is higher there."""
    heights = []
    for width, height in ((1500, 1000), (3840, 2160)):
        resize(browser, width, height)
        browser.open(os.path.join(OUT, "tarn.html"))
        browser.settle()
        left, right, tall = browser.run("""const box = document.getElementById('timeline-section').getBoundingClientRect();
            return [box.left, box.right, document.querySelector('canvas.areas').getBoundingClientRect().height]""")
        if left > 40 or right < width - 40:
            fail(f"of {width} pixels those from {left} to {right} are used")
        heights.append(tall)
    if heights[1] < 1.5 * heights[0]:
        fail(f"the chart is {heights} pixels high")
    browser.open(os.path.join(OUT, "what-if.html"))
    table = browser.run("return document.querySelector('#what-if table').getBoundingClientRect().width")
    if not 1400 < table <= 1600:
        fail(f"a table of five columns is {table} pixels wide")
    whole_screen(browser)


def outlined(browser):
    """The outline of a block that moves up and down with what lies below leaves the block to be seen."""
    file = os.path.join(OUT, "moving.pickle")
    place = lambda number: {"addr": (1 << 40) + (number << 28), "stream": 0, "frames": []}
    events = [dict(place(0), action="alloc", size=64 << 20, user_metadata="below", time_us=0),
              dict(place(1), action="alloc", size=32 << 20, user_metadata="above", time_us=1)]
    events += [dict(place(2), action="alloc" if i % 2 else "free_completed", size=8 << 20, user_metadata="below", time_us=i) for i in range(3, 403)]
    with open(file, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
    browser.open(make_page("moving", "--no-what-if", file))
    browser.run("location.hash = 'block=1&by=tag'")
    browser.filtered()
    expect("chosen block", browser.run("return document.getElementById('block').textContent.includes('32.0')"), True)
    share = browser.run("""
        const canvas = document.querySelector('canvas.areas'), copy = document.createElement('canvas').getContext('2d');
        [copy.canvas.width, copy.canvas.height] = [canvas.width, canvas.height];
        copy.drawImage(canvas, 0, 0);
        const top = Math.round(canvas.height * 0.2), {data} = copy.getImageData(Math.round(canvas.width * 0.3), top, 200, 10);
        let dark = 0;
        for (let i = 0; i < data.length; i += 4)
            dark += data[i] + data[i + 1] + data[i + 2] < 200;
        return 4 * dark / data.length""")
    if share > 0.1:
        fail(f"{share:.0%} of a chosen block are its outline")


def pointed_at(browser, part):
    """What the page says of a place in the chart, a part of its width from the left. The margins are those of timeline.js."""
    canvas = browser.get("canvas.areas")
    width = canvas.size["width"]
    ActionChains(browser.driver).move_to_element_with_offset(canvas, int(76 + part * (width - 102) - width / 2), 0).perform()
    return [line.replace("\u00a0", " ") for line in browser.run("return [...document.querySelectorAll('#tooltip:not([hidden]) div')].map(line => line.textContent)")]


def pointer(browser):
    """The pointer names what is allocated and reserved: of all that the recording has, whatever is left out of the chart."""
    file = os.path.join(DATA, "tarn.pickle")
    browser.open(os.path.join(OUT, "tarn.html"))
    for search in ("", "backward"):
        browser.run("const box = document.getElementById('search'); box.value = arguments[0]; box.dispatchEvent(new Event('input'))", search)
        browser.filtered()
        lines = pointed_at(browser, 0.6)
        moment = re.sub("[^0-9]", "", next(line for line in lines if line.startswith("after event ")).split(", ")[0])
        browser.run("location.hash = location.hash.replace(/(^#|&)at=[0-9]+/, '') + '&at=' + arguments[0]", moment)
        browser.wait(f"document.body.dataset.moment === '{moment}'", "the address does not choose a moment")
        shown, allocated, reserved = browser.run("const sums = document.getElementById('sums'); return [[...sums.querySelectorAll('.value')].map("
            "value => value.textContent.replace(/\\u00a0/g, ' ')), Number(sums.dataset.allocated), Number(sums.dataset.reserved)]")
        said = ask(file, moment)["at"]
        expect("sums at the pointer", [allocated, reserved], [said["allocated"], said["reserved"]])
        for name, text in zip(("allocated", "reserved"), shown):
            expect(f"{name} {text} in {lines}, searching for {search!r}", f"{name} {text}" in lines, True)


def cursor(browser):
    """The cursor crosses no column: of a recording whose peak is one event, it ends above the peak; and it says below the axis where it is."""
    file = os.path.join(OUT, "spike.pickle")
    sizes = [(0, 1 << 20)] + [(i, 4096) for i in range(1, 2000)]
    events = [{"action": "alloc", "addr": (1 << 40) + (i << 24), "size": size, "stream": 0, "time_us": 100 * i} for i, size in sizes]
    spike = {"addr": 1 << 45, "size": 16 << 20, "stream": 0}
    events[1000:1000] = [dict(spike, action="alloc", time_us=99950), dict(spike, action="free_requested", time_us=99951),
                         dict(spike, action="free_completed", time_us=99951)]
    events.insert(1000, {"action": "segment_alloc", "addr": 1 << 45, "size": 32 << 20, "stream": 0, "time_us": 99949})
    segment = {"address": 1 << 40, "total_size": 64 << 20, "stream": 0, "blocks": [], "device": 0}
    for segments in ([], [segment]): # of which that of the peak is new
        with open(file, "wb") as out:
            pickle.dump({"segments": segments, "device_traces": [events]}, out, 4)
        browser.open(make_page("spike", "--no-what-if", file))
        browser.settle()
        marks = dict(mark.split(" ") for mark in browser.run("return document.getElementById('timeline').dataset.marks").split(", "))
        tall, over, above, below = browser.run("""
            const chart = document.querySelector('canvas.areas'), frame = document.querySelector('canvas.frame'), at = Number(arguments[0]);
            const column = canvas => canvas.getContext('2d').getImageData(at, 0, 1, canvas.height).data, pixels = column(chart);
            const groups = [...document.querySelectorAll('#legend .swatch'), document.body].map( // a chosen block has an outline
                node => getComputedStyle(node)[node === document.body ? 'color' : 'backgroundColor'].match(/[0-9]+/g));
            const ofGroup = row => groups.some(colour => colour.every((part, i) => Math.abs(part - pixels[4 * row + i]) < 30)); // shades of it
            const drawn = column(frame).filter((value, i) => i % 4 === 3).map(value => value > 100), end = chart.height - 26;
            let top = end - 2;
            while (ofGroup(top - 1))
                top--;
            const rows = (from, to) => drawn.slice(from, to).reduce((sum, value) => sum + value, 0);
            return [end - top, rows(top, end - 1), rows(0, top), rows(end + 2)];""", marks["peak"])
        if tall < 40:
            fail(f"of the peak {tall} pixels are seen")
        expect("what the cursor hides of the peak", over, 0)
        if not above or not below:
            fail(f"the cursor is not seen: {above} pixels above the peak, {below} below the axis")


def address_kept(browser):
    """An address that the reader changes is read, though the page is about to save its own: the timer that saves runs before the page hears of the change."""
    browser.open(os.path.join(OUT, "tarn.html"))
    browser.filtered()
    browser.run("""const later = window.setTimeout, waiting = [];
        window.setTimeout = (call, delay) => delay === 150 ? waiting.push(call) : later(call, delay);
        document.getElementById('at-end').click();
        await new Promise(resolve => later(resolve, 100));
        window.setTimeout = later;
        if (!waiting.length)
            throw new Error('the page does not save what is chosen');
        location.hash = 'at=123';
        waiting.pop()();""")
    browser.wait("document.body.dataset.moment === '123'", "the page replaces an address that the reader has just given", seconds=10)
    browser.filtered()
    expect("the address", "at=123" in browser.run("return location.hash"), True)
    browser.run("""let time = 0;
        performance.now = () => time += 1000; // a machine so slow that the page pauses wherever it can
        document.getElementById('at-peak').click(); // its parts are shown one after another
        location.hash = 'at=124';
        window.dispatchEvent(new HashChangeEvent('hashchange'));""")
    browser.wait("document.body.dataset.moment === '124'", "an address that is given while a moment is shown is not read", seconds=30)
    browser.run("delete performance.now")
    browser.filtered()
    browser.check()


MOVES = [address_kept, phones, wide_screens, outlined, pointer, cursor]
