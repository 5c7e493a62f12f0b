#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Opens the page of `tarn report` in Chromium and holds what it shows against the program's JSON: report_page.py PROGRAM DATA OUT
DATA is the folder that make_snapshots.py filled; pages and screenshots go into OUT. Debian's python3-selenium drives the browser.
"""

import json
import os
import pickle
import random
import subprocess
import sys
import time

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service

PROGRAM, DATA, OUT = sys.argv[1:]
MANY_EVENTS = 400_000


def fail(text):
    sys.exit("report_page: " + text)


def expect(what, got, wanted):
    if got != wanted:
        fail(f"{what}: the page has {got!r}, the program {wanted!r}")


def make_page(name, *files):
    page = os.path.join(OUT, name + ".html")
    subprocess.run([PROGRAM, "report", "-o", page, *files], check=True)
    return page


def ask(file, at, device=0, rows=100):
    """What `tarn report --json` says of a device at a moment."""
    printed = subprocess.run([PROGRAM, "report", "--json", "--rows", str(rows), "--device", str(device), "--at", str(at), file],
                             check=True, capture_output=True, text=True).stdout
    return json.loads(printed)[0]


class Browser:
    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                         "--force-device-scale-factor=1", "--window-size=1500,1700"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(60)
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
            window.longTasks = [];
            new PerformanceObserver(list => longTasks.push(...list.getEntries().map(entry => entry.duration)))
                .observe({entryTypes: ["longtask"]});"""})

    def open(self, page, scheme="light"):
        """Loads a page and waits until it is drawn."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.get("file://" + page)
        self.wait("document.body && document.body.dataset.ready && document.body.dataset.moment", "the page was not ready")
        self.wait("document.getElementById('timeline-section').hidden || document.body.dataset.drawn", "nothing was drawn")
        self.check()

    def check(self):
        """Nothing was complained of, nothing was fetched, no dialog stands."""
        complaints = [entry["message"] for entry in self.driver.get_log("browser")]
        if complaints:
            fail("the browser says: " + "; ".join(complaints))
        fetched = self.run("return performance.getEntriesByType('resource').map(entry => entry.name).filter("
                           "name => !name.startsWith('data:'))")
        expect("fetched", fetched, [])

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition, otherwise, seconds=60):
        end = time.monotonic() + seconds
        while not self.run("return " + condition):
            if time.monotonic() > end:
                fail(f"{otherwise}: {self.run('return document.body.innerText.slice(0, 300)')} {self.driver.get_log('browser')}")
            time.sleep(0.02)

    def get(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def settle(self):
        """Until all parts show the chosen moment."""
        self.run("return new Promise(resolve => setTimeout(resolve, 30))")
        self.wait("document.getElementById('moment-title').textContent.replace(/[^0-9 ]/g, '').includes("
                  "document.body.dataset.moment)", "the moment did not settle")

    def screenshot(self, name):
        self.driver.save_screenshot(os.path.join(OUT, name + ".png"))


def compare_moment(browser, file, device=0):
    """Sums, groups and blocks of the moment that the page shows. Gives the moment."""
    browser.settle()
    moment = int(browser.run("return document.body.dataset.moment"))
    said = ask(file, moment, device)
    sums = {key: float(value) for key, value in browser.run(
        "return Object.assign({}, document.getElementById('sums').dataset)").items()}
    for shown, key in (("allocated", "allocated"), ("waiting", "waiting"), ("reserved", "reserved"), ("free", "free"),
                       ("largest", "largest_free")):
        expect(f"{shown} at {moment}", sums[shown], float(said["at"][key]))
    rows = browser.run("""return [...document.querySelectorAll('#blocks tbody tr')].map(
        row => [parseInt(row.dataset.address, 16), Number(row.dataset.size)])""")
    expect(f"blocks at {moment}", [tuple(row) for row in rows], [(block["address"], block["bytes"]) for block in said["blocks"]])
    groups = browser.run("""return [...document.querySelectorAll('#groups tbody tr')].map(
        row => [row.querySelector('button').title, Number(row.children[2].textContent.replace(/,/g, ''))])""")
    wanted = [[group["name"], group["blocks"]] for group in said["groups"]["call_site"]]
    expect(f"groups at {moment}", sorted(groups[:100]), sorted(wanted))
    return moment


def click_in_chart(browser, part, height=0.5):
    """At a part of the chart's width. The margins are those of timeline.js."""
    canvas = browser.get("canvas.areas")
    width, tall = canvas.size["width"], canvas.size["height"]
    x = 76 + part * (width - 76 - 26) - width / 2
    ActionChains(browser.driver).move_to_element_with_offset(canvas, int(x), int((height - 0.5) * tall)).click().perform()


def walk_around(browser, scheme):
    """A file with everything in it, as a reader would look at it."""
    file = os.path.join(DATA, "tarn.pickle")
    browser.open(make_page("tarn", file), scheme)
    expect("first moment", compare_moment(browser, file), ask(file, "peak")["peak"]["event"])
    browser.screenshot("report-" + scheme)

    for part in (0.1, 0.37, 0.62, 0.93):
        click_in_chart(browser, part)
        compare_moment(browser, file)
    x, _, width = browser.run("""const line = document.querySelector('svg.overlay .mark.peak').getBoundingClientRect();
        const canvas = document.querySelector('canvas.areas').getBoundingClientRect();
        return [(line.left + line.right) / 2 - canvas.left, 0, canvas.width]""")
    click_in_chart(browser, (x - 76) / (width - 76 - 26))
    expect("a click below the mark of the peak", compare_moment(browser, file), ask(file, "peak")["peak"]["event"])

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
    for by in ("site", "stream", "pool", "thread", "last"):
        browser.run("const by = document.getElementById('by'); by.value = arguments[0]; by.dispatchEvent(new Event('change'))", by)
        browser.settle()

    browser.run("const by = document.getElementById('model'); by.value = 1; by.dispatchEvent(new Event('change'))")
    browser.wait("document.getElementById('moment-title').textContent.includes('2,274')", "the other device is not shown")
    compare_moment(browser, file, 1)
    browser.check()
    browser.run("document.getElementById('facts-section').scrollIntoView()")
    browser.screenshot("report-facts-" + scheme)


def two_files(browser):
    before, after = os.path.join(DATA, "tarn.pickle"), os.path.join(DATA, "oom.pickle")
    browser.open(make_page("two", before, after))
    browser.run("document.getElementById('compare-section').scrollIntoView()")
    browser.screenshot("report-two")
    printed = subprocess.run([PROGRAM, "diff", "--json", "--device", "0", before, after], check=True, capture_output=True, text=True)
    wanted = [change["name"] for change in json.loads(printed.stdout)[0]["changes"]["call_site"]]
    rows = browser.run("""return [...document.querySelectorAll('#compare-tables table:nth-of-type(2) tbody tr')].map(
        row => row.lastChild.textContent)""")
    expect("what changed", rows, wanted[:40])
    browser.check()


def state_only(browser):
    file = os.path.join(DATA, "state-only.pickle")
    browser.open(make_page("state", file))
    said = ask(file, "peak")
    expect("allocated in a state", float(browser.run("return document.getElementById('sums').dataset.allocated")),
           float(said["at"]["allocated"]))
    expect("chart of a state", browser.run("return document.getElementById('timeline-section').hidden"), True)
    browser.screenshot("report-state")


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
    expect("title", browser.run("return document.querySelector('h1').textContent"), os.path.basename(file))
    expect("legend", browser.run("return document.querySelector('#legend .label').textContent"), evil.split("/")[0])
    expect("pictures and scripts", browser.run("return document.querySelectorAll('img, #report script').length"), 0)


def many_events(browser):
    """400,000 events: how long until something is seen, and the longest time in which the page does not answer."""
    source = random.Random(1)
    frames = [{"name": f"f{i}", "filename": f"/srv/train/file_{i % 20}.py", "line": i} for i in range(500)]
    stacks = [source.sample(frames, 20) for _ in range(2000)]
    events, live = [], []
    segments = [{"device": 0, "address": 1 << 40, "total_size": 4 << 30, "stream": 0, "blocks": []}]
    free = list(range(4096))
    for i in range(MANY_EVENTS):
        if len(live) > 2000 and source.random() < 0.5:
            place, size = live.pop(source.randrange(len(live)))
            free.append(place)
            action = "free_completed"
        else:
            place, size = free.pop(source.randrange(len(free))), source.randint(1, 1 << 20)
            live.append((place, size))
            action = "alloc"
        events.append({"action": action, "addr": (1 << 40) + (place << 20), "size": size, "stream": 0, "time_us": 3 * i,
                       "user_metadata": f"step {i // 50000}/layer {i % 12}", "frames": source.choice(stacks)})
        if len(free) < 10:
            fail("the generator ran out of places")
    file = os.path.join(OUT, "many.pickle")
    with open(file, "wb") as out:
        pickle.dump({"segments": segments, "device_traces": [events]}, out, 4)
    browser.open(make_page("many", file))
    drawn = int(browser.run("return document.body.dataset.drawn"))
    longest = browser.run("return Math.max(0, ...window.longTasks)")
    browser.run("window.longTasks.length = 0")
    compare_moment(browser, file)
    browser.get("canvas.areas").click()
    browser.keys("p", *"+" * 25)
    browser.wait("document.getElementById('detail').textContent.includes('one by one')", "zooming in shows no single blocks")
    browser.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    compare_moment(browser, file)
    later = browser.run("return Math.max(0, ...window.longTasks)")
    browser.screenshot("report-many")
    print(f"{MANY_EVENTS} events, {os.path.getsize(os.path.join(OUT, 'many.html')) >> 20} MiB: first drawing after {drawn} ms, "
          f"longest task {longest:.0f} ms while loading, {later:.0f} ms while zooming")
    if drawn > 30_000 or longest > 2_000 or later > 2_000:
        fail("that is too long")
    os.remove(file)


def main():
    os.makedirs(OUT, exist_ok=True)
    browser = Browser()
    try:
        for scheme in ("light", "dark"):
            walk_around(browser, scheme)
        two_files(browser)
        state_only(browser)
        hostile_texts(browser)
        many_events(browser)
    finally:
        browser.driver.quit()


main()
