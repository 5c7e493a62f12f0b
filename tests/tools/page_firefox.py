# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Firefox with the page of `tarn report` in it, as page_browser.py has Chromium. It is driven by its own protocol, Marionette: Debian has no
geckodriver, which selenium would need. For report_page.py."""

import base64
import gzip
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

from page_browser import COLOURED, DATA, OUT, Browser, ask, compare_moment, expect, fail, make_page
from page_send import RECORDINGS

PREFERENCES = {"marionette.port": 0, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
               "app.update.disabledForTesting": True, "browser.startup.page": 0, "network.captive-portal-service.enabled": False,
               "network.connectivity-service.enabled": False}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf" # what WebDriver calls a reference to an element


class Element:
    def __init__(self, firefox, selector):
        self.firefox, self.selector = firefox, selector

    def click(self):
        self.firefox.run("document.querySelector(arguments[0]).click()", self.selector)

    def send_keys(self, text):
        found = self.firefox.command("WebDriver:FindElement", using="css selector", value=self.selector)
        self.firefox.command("WebDriver:ElementSendKeys", id=found["value"][ELEMENT], text=text)


class Firefox(Browser):
    def __init__(self): # not Browser's
        self.profile = tempfile.mkdtemp(prefix="firefox-")
        with open(os.path.join(self.profile, "user.js"), "w", encoding="ascii") as out:
            out.writelines(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items())
        self.process = subprocess.Popen(["firefox-esr", "--headless", "--marionette", "--remote-allow-system-access", "--no-remote",
                                         "--profile", self.profile, "--width", "1500", "--height", "1700"],
                                        env={**os.environ, "HOME": self.profile}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.number, self.bytes = 0, b""
        try:
            self.connection = socket.create_connection(("127.0.0.1", self.port()), 120)
            self.receive()
            self.command("WebDriver:NewSession", capabilities={})
        except BaseException:
            self.quit()
            raise

    def port(self):
        """The one that Firefox chose, when it has."""
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with open(os.path.join(self.profile, "MarionetteActivePort"), encoding="ascii") as file:
                    return int(file.read())
            except (OSError, ValueError):
                time.sleep(0.05)
        fail("Firefox did not start")

    def receive(self):
        while b":" not in self.bytes:
            self.more()
        length, _, self.bytes = self.bytes.partition(b":")
        while len(self.bytes) < int(length):
            self.more()
        message, self.bytes = self.bytes[:int(length)], self.bytes[int(length):]
        return json.loads(message)

    def more(self):
        part = self.connection.recv(1 << 20)
        if not part:
            fail("Firefox ended")
        self.bytes += part

    def command(self, name, **parameters):
        self.number += 1
        message = json.dumps([0, self.number, name, parameters]).encode()
        self.connection.sendall(b"%d:%s" % (len(message), message))
        _, _, error, result = self.receive()
        if error:
            fail(f"{name}: {error['error']}: {error['message']}")
        return result

    def quit(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, page, scheme="light", at_peak=True):
        self.go(page)
        self.wait("document.body && document.body.dataset.ready && document.body.dataset.moment", "the page was not ready")
        self.wait("document.getElementById('timeline-section').hidden || document.body.dataset.drawn", "nothing was drawn")
        self.check()

    def go(self, page):
        self.page = page
        self.command("WebDriver:Navigate", url="file://" + page)

    def complaints(self):
        self.command("Marionette:SetContext", value="chrome")
        said = self.run("""const said = Services.console.getMessageArray().filter(message => message instanceof Ci.nsIScriptError)
                .map(message => [message.sourceName, message.errorMessage]);
            Services.console.reset();
            return said""")
        self.command("Marionette:SetContext", value="content")
        return [text for source, text in said if source.startswith("file:")]

    def check(self):
        complaints = self.complaints()
        if complaints:
            fail("the browser says: " + "; ".join(dict.fromkeys(complaints)))

    def run(self, script, *arguments):
        return self.command("WebDriver:ExecuteScript", script="return (async function() {" + script + "}).apply(null, arguments)",
                            args=arguments, newSandbox=False, sandbox=None)["value"]

    def wait(self, condition, otherwise, seconds=240):
        end = time.monotonic() + seconds
        while not self.run("return " + condition):
            if time.monotonic() > end:
                fail(f"{otherwise}: {self.run('return document.body.innerText.slice(0, 300)')} {self.complaints()}")
            time.sleep(0.02)

    def get(self, selector):
        return Element(self, selector)

    def screenshot(self, name):
        picture = self.command("WebDriver:TakeScreenshot", full=False)["value"]
        with open(os.path.join(OUT, name + ".png"), "wb") as out:
            out.write(base64.b64decode(picture))


def in_firefox(browser):
    """Moments, pictures, keys and zooms are what the program says; so is a snapshot that the viewer reads."""
    file = os.path.join(DATA, "tarn.pickle")
    browser.open(os.path.join(OUT, "tarn.html"))
    expect("moment of the error", compare_moment(browser, file), ask(file, "oom")["at"]["event"])
    for way, moment in (("at-peak", "peak"), ("at-end", "end")):
        browser.get("#" + way).click()
        browser.run("return new Promise(resolve => setTimeout(resolve, 30))")
        said = ask(file, moment)
        expect(way, compare_moment(browser, file), said["peak"]["event"] if moment == "peak" else said["events"])
    expect("whether the chart is painted", browser.run("return " + COLOURED), True)
    browser.run("""const chart = document.querySelector('canvas.areas');
        chart.dispatchEvent(new KeyboardEvent('keydown', {key: 'p', bubbles: true}));
        for (let i = 0; i < 12; i++)
            chart.dispatchEvent(new KeyboardEvent('keydown', {key: '+', bubbles: true}));""")
    browser.wait("document.getElementById('detail').textContent.includes('one by one')", "zooming in shows no single blocks")
    browser.screenshot("firefox")
    browser.check()

    browser.go(make_page("viewer"))
    browser.wait("document.body.dataset.ready", "the viewer was not ready")
    packed = os.path.join(OUT, "firefox.pickle.gz")
    with open(file, "rb") as source, gzip.open(packed, "wb") as out:
        out.write(source.read())
    recording = os.path.join(RECORDINGS, "gpt-adamw.pickle.zst")
    for number, path in enumerate((packed, recording)):
        browser.get("#open-file" if number else "#open-first").send_keys(path)
        browser.wait(f"document.body.dataset.files === '{number + 1}' && document.body.dataset.filtering === undefined",
                     "the viewer does not show " + path)
        browser.run("const by = document.getElementById('groups-by'); by.value = 'site'; by.dispatchEvent(new Event('change'))")
        compare_moment(browser, path)
    browser.screenshot("firefox-viewer")
    browser.check()
