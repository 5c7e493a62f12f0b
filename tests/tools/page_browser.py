# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""A browser with the page of `tarn report` in it, and what tests of the page ask of both: for report_page.py, whose arguments it reads."""

import json
import os
import subprocess
import sys
import time

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.chrome.service import Service

PROGRAM, DATA, OUT, WHAT = sys.argv[1:5]

# Whether anything is painted inside the chart.
COLOURED = """(() => {
    const canvas = document.querySelector('canvas.areas'), small = window.small ||= Object.assign(
        document.createElement('canvas'), {width: 64, height: 32}).getContext('2d', {willReadFrequently: true});
    small.clearRect(0, 0, 64, 32);
    if (!canvas.width || !canvas.height)
        return false;
    small.drawImage(canvas, 0, 0, 64, 32);
    return small.getImageData(0, 0, 64, 32).data.some(value => value);
})()"""


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
    printed = subprocess.run([PROGRAM, "report", "--json", "--top", str(rows), "--device", str(device), "--at", str(at), file],
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
        self.driver.set_script_timeout(240)
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
            window.longTasks = [];
            new PerformanceObserver(list => longTasks.push(...list.getEntries().map(entry => entry.duration)))
                .observe({entryTypes: ["longtask"]});"""})

    def open(self, page, scheme="light", at_peak=True):
        """Loads a page and waits until it is drawn. A recording with an out-of-memory error opens there: at the peak it is then shown."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.get("file://" + page)
        self.wait("document.body && document.body.dataset.ready && document.body.dataset.moment", "the page was not ready")
        self.wait("document.getElementById('timeline-section').hidden || document.body.dataset.drawn", "nothing was drawn")
        if at_peak and not self.run("return document.getElementById('ooms-section').hidden || location.hash.length > 0"):
            self.get("#at-peak").click()
            self.settle()
        self.check()

    def check(self):
        """Nothing was complained of, nothing was fetched, no dialog stands."""
        complaints = [entry["message"] for entry in self.driver.get_log("browser")]
        if complaints:
            fail("the browser says: " + "; ".join(dict.fromkeys(complaints)))
        fetched = self.run("return performance.getEntriesByType('resource').map(entry => entry.name).filter("
                           "name => !name.startsWith('data:'))")
        expect("fetched", fetched, [])

    def run(self, script, *arguments):
        return self.driver.execute_script("return (async function() {" + script + "}).apply(null, arguments)", *arguments)

    def wait(self, condition, otherwise, seconds=240): # on a busy machine a page takes long
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

    def filtered(self):
        """Until what was asked for last is all that is shown."""
        self.run("return new Promise(resolve => setTimeout(resolve, 400))")
        self.wait("document.body.dataset.filtering === undefined", "the filter did not settle")
        self.settle()

    def quit(self):
        self.driver.quit()

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
    """At a part of the chart's width and of its height, or among the marks above it. The margins are those of timeline.js."""
    canvas = browser.get("canvas.areas")
    width, tall = canvas.size["width"], canvas.size["height"]
    x = 76 + part * (width - 76 - 26) - width / 2
    y = (height - 0.5) * tall if height is not None else 7 - tall / 2
    ActionChains(browser.driver).move_to_element_with_offset(canvas, int(x), int(y)).click().perform()


def open_file(browser, path):
    """By the page itself; what it says then."""
    before = int(browser.run("return document.body.dataset.files || 1"))
    browser.run("document.getElementById('said').hidden = true")
    browser.get("#open-file").send_keys(path)
    browser.wait(f"document.body.dataset.files > {before} || !document.getElementById('said').hidden", "the file was not opened")
    return browser.run("return document.getElementById('said').hidden ? '' : document.getElementById('said').textContent")
