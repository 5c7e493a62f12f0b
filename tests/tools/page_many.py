# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""The page of `tarn report` with a large recording: how large it is, how long it takes, and whether a zoom shows and costs what it may. For
report_page.py."""

import gzip
import os
import pickle
import random
import re

from selenium.webdriver.common.keys import Keys

from page_browser import COLOURED, DATA, OUT, compare_moment, fail, expect, make_page

MANY_EVENTS = 400_000


def zoom_for_120_frames(browser, looking=True):
    """How many of 120 frames of zooming and panning show the chart; how many points were drawn of a picture's groups, at most, per
    pixel of the picture's width; how many pictures of a frame; the milliseconds between frames, and those in which the page shows what there is, sorted."""
    return browser.run("""
        const canvas = document.querySelector('canvas.areas'), box = canvas.getBoundingClientRect();
        const drawing = CanvasRenderingContext2D.prototype, own = {};
        let points = 0, most = 0, frames = 0, perFrame = 0;
        for (const name of ['lineTo', 'fillRect', 'moveTo', 'drawImage']) {
            own[name] = drawing[name];
            drawing[name] = function(...values) {
                if (this.canvas === canvas)
                    frames++;
                else if (!this.canvas.isConnected)
                    points += name === 'fillRect' ? 4 : 1;
                return own[name].apply(this, values);
            };
        }
        const fill = drawing.fill;
        drawing.fill = function(...values) {
            most = Math.max(most, points / this.canvas.width);
            points = 0;
            return fill.apply(this, values);
        };
        let seen = 0;
        const times = [], scripts = [];
        for (let frame = 0; frame < 120; frame++) {
            times.push(await new Promise(resolve => requestAnimationFrame(resolve)));
            perFrame = Math.max(perFrame, frames);
            frames = points = 0;
            if (arguments[0])
                seen += """ + COLOURED + """;
            const start = performance.now();
            canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: frame % 60 < 40 ? -30 : 60, bubbles: true, cancelable: true,
                clientX: box.left + box.width * (0.3 + frame / 300), clientY: box.top + 100}));
            scripts.push(performance.now() - start);
        }
        Object.assign(drawing, own, {fill});
        const sorted = list => list.sort((a, b) => a - b);
        return [seen, most, perFrame, sorted(times.slice(1).map((time, i) => time - times[i])), sorted(scripts)]""", looking)


def laid_out(browser):
    """How often the document was laid out so far."""
    browser.driver.execute_cdp_cmd("Performance.enable", {})
    return next(metric["value"] for metric in browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"] if metric["name"] == "LayoutCount")


def never_blank(browser):
    """Of 120 frames of zooming and panning none is empty, and each draws a few pictures. A picture has for each of its groups four
    points per pixel of its width, and some at its ends. The page is that of many_events()."""
    browser.get("#zoom-reset").click()
    layouts = laid_out(browser)
    seen, points, calls, times, _ = zoom_for_120_frames(browser)
    layouts = laid_out(browser) - layouts
    print(f"zooming: {seen} of 120 frames show the chart, {1000 * len(times) / sum(times):.0f} frames a second")
    print(f"at most {points:.1f} points of a group per pixel of width, and {calls} pictures in a frame")
    print(f"the document was laid out {layouts} times meanwhile")
    expect("frames with a chart", seen, 120)
    if layouts > 40: # what takes longer than all the drawing of a frame
        fail("frames of a zoom lay out the document")
    if not 0 < points <= 9: # a picture that is given up half drawn counts with the next
        fail("too many points are drawn")
    if not 0 < calls <= 40: # several presentations may fall between two frames
        fail("a frame draws more than pictures")
    browser.check()


# The ends of what is in view, by the page's link, which is written a moment later.
VIEW = """await new Promise(resolve => setTimeout(resolve, 500));
    const view = new URLSearchParams(location.hash.slice(1)).get('view');
    return view ? view.split(',').map(value => Number(value).toPrecision(6)) : null;"""


def exact_after_moves(browser, name):
    """After zooms, pans and resizes the chart of generated data has the pixels of its newest picture, which is of that very view, and no
    others; and a resize leaves in view what was. The margins are those of timeline.js."""
    browser.open(make_page(name, "--no-what-if", os.path.join(DATA, name + ".pickle")))
    browser.run("""
        const drawing = CanvasRenderingContext2D.prototype, draw = drawing.drawImage;
        drawing.drawImage = function(...values) {
            if (this.canvas.matches('canvas.areas'))
                window.newest = {values, at: performance.now(), transform: this.getTransform()};
            return draw.apply(this, values);
        };""")
    moves = (["wheel", -600, 0.3, False], ["wheel", -900, 0.7, False], ["key", "PageDown"], ["key", "PageDown"], ["wheel", -400, 0.5, True],
             ["key", "ArrowDown"], ["wheel", 500, 0.2, False], ["resize", "60%"], ["wheel", -500, 0.8, False], ["resize", ""], ["key", "PageUp"],
             ["wheel", 3000, 0.5, True], ["wheel", 300, 0.5, False], ["key", "Home"])
    for i, move in enumerate(moves):
        view = browser.run(VIEW) if move[0] == "resize" else None
        wrong = browser.run("""
            const [kind, value, at, shiftKey] = arguments[0], canvas = document.querySelector('canvas.areas');
            const box = canvas.getBoundingClientRect();
            if (kind === 'wheel') {
                canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: value, shiftKey, bubbles: true, cancelable: true,
                    clientX: box.left + box.width * at, clientY: box.top + box.height * at}));
            } else if (kind === 'key') {
                canvas.dispatchEvent(new KeyboardEvent('keydown', {key: value, bubbles: true, cancelable: true}));
            } else {
                document.getElementById('timeline').style.width = value;
                window.dispatchEvent(new Event('resize'));
            }
            const begun = performance.now(), near = (x, y) => Math.abs(x - y) < 0.01;
            const whole = ([, left, top, width, height], now) => near(left, 76) && near(top, 14) &&
                near(width, Math.floor(now.width - 76 - 26)) && near(height, now.height - 14 - 26);
            do
                await new Promise(resolve => setTimeout(resolve, 40));
            while (performance.now() < begun + 5000 && !(window.newest && performance.now() > Math.max(begun, newest.at) + 120 &&
                whole(newest.values, canvas.getBoundingClientRect())));
            const {values, transform} = newest, [picture, left, top, width, height] = values;
            if (!whole(values, canvas.getBoundingClientRect()))
                return [left, top, width, height];
            const make = () => Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height})
                .getContext('2d', {willReadFrequently: true}), alone = make(), copy = make();
            alone.setTransform(transform);
            alone.beginPath();
            alone.rect(left, top, width, height);
            alone.clip();
            alone.drawImage(picture, left, top, width, height);
            const wanted = alone.getImageData(0, 0, canvas.width, canvas.height).data;
            copy.drawImage(canvas, 0, 0);
            const seen = copy.getImageData(0, 0, canvas.width, canvas.height).data;
            return wanted.reduce((sum, value, k) => sum + (Math.abs(value - seen[k]) > 8), 0);""", move)
        expect(f"{name}.pickle, move {i + 1} {move}: values of pixels that are not those of a fresh drawing", wrong, 0)
        if move[0] == "resize":
            expect(f"{name}.pickle, move {i + 1} {move}: what is in view", browser.run(VIEW), view)
    browser.check()


def exact_moves(browser):
    """Of recordings of each kind; of two kinds where a change is tried."""
    few = os.environ.get("CI") == "true" and os.environ.get("TARN_NIGHTLY") != "1"
    for name in ("expandable", "late-frees") if few else ("tarn", "streams", "expandable", "late-frees", "wrapped", "torn"):
        exact_after_moves(browser, name)


def make_many(name, count):
    """A snapshot of so many events."""
    source = random.Random(1)
    frames = [{"name": f"f{i}", "filename": f"/srv/train/file_{i % 20}.py", "line": i} for i in range(500)]
    stacks = [source.sample(frames, 20) for _ in range(2000)]
    events, live = [], []
    segments = [{"device": 0, "address": 1 << 40, "total_size": 4 << 30, "stream": 0, "blocks": []}]
    free = list(range(4096))
    for i in range(count):
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
    file = os.path.join(OUT, name + ".pickle")
    with open(file, "wb") as out:
        pickle.dump({"segments": segments, "device_traces": [events]}, out, 4)
    return file


def gzipped(page):
    with open(page, "rb") as source:
        return len(gzip.compress(source.read(), 6))


def speed(browser, count):
    """Prints how fast the page of a snapshot of so many events is."""
    file = make_many("speed", count)
    page = make_page("speed", "--no-what-if", file)
    os.remove(file)
    browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.driver.get("about:blank")
    browser.driver.get("file://" + page)
    browser.wait("document.body && document.body.dataset.drawn", "nothing was drawn")
    metrics = {metric["name"]: metric["value"] for metric in browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    drawn = int(browser.run("return document.body.dataset.drawn"))
    browser.wait("document.body.dataset.ready", "the page was not ready")
    browser.settle()
    browser.driver.set_script_timeout(300)
    thread = lambda: {metric["name"]: metric["value"] for metric in browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    before = thread()["TaskDuration"]
    _, _, _, times, scripts = zoom_for_120_frames(browser, False)
    worked = 1000 * (thread()["TaskDuration"] - before) / 120
    print(f"{count} events: {os.path.getsize(page) / 1e6:.1f} MB, {gzipped(page) / 1e6:.1f} MB gzipped; first drawing after {drawn} ms "
          f"(at most {1000 * metrics['TaskDuration']:.0f} ms of the page's thread); zooming "
          f"{times[len(times) // 2]:.1f} ms a frame (median), {times[len(times) * 95 // 100]:.1f} ms (95 %), of which the page's "
          f"own work {scripts[len(scripts) // 2]:.1f} and {scripts[len(scripts) * 95 // 100]:.1f} ms; its thread was busy for {worked:.1f} ms "
          f"a frame (mean, with the pictures of new views), of 16.7 that 60 frames a second leave")


def many_events(browser):
    """400,000 events: what the page weighs, what it shows, and what a zoom draws. Times are printed: they are those of the machine."""
    file = make_many("many", MANY_EVENTS)
    page = make_page("many", "--no-what-if", file)
    small = gzipped(page)
    whole = os.path.getsize(page)
    print(f"the page of {MANY_EVENTS} events has {whole} bytes, {small} gzipped")
    if whole > 10_000_000 * MANY_EVENTS / 1_000_000:
        fail("the page is too large")
    browser.open(page)
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
    never_blank(browser)
    os.remove(file)


def thinned(browser):
    """A page has at most two million events of a device, and says what it leaves out of more."""
    file = os.path.join(OUT, "long.csv")
    place = lambda i: f"0x{(i + 2) << 12:x},{64 + i % 1000}"
    with open(file, "w", encoding="ascii") as out:
        out.write("Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000000,allocate,0x1000,1073741824,0x0\n")
        out.writelines(f"1,00:00:{i // 50000:02d}:{20 * i % 1000000:06d},{action},{place(i)},0x0\n" for i in range(1_000_100) for action in ("allocate", "free"))
    browser.open(make_page("long", "--no-what-if", file))
    os.remove(file)
    said = browser.run("return document.getElementById('partial').textContent")
    if not re.fullmatch(r"The page leaves \d+ of 2,000,201 events out: .* The peak is exact; other sums are low by at most \d+ B\.", said.replace("\u00a0", " ")):
        fail(f"a page that leaves events out says {said!r}")
    expect("the peak", browser.run("return document.getElementById('sums').dataset.allocated"), str((1 << 30) + 1063))
    for place in ("head-facts", "cards"):  # the recording's, not the page's
        if "2,000,201 event" not in browser.run(f"return document.getElementById('{place}').textContent").replace("\u00a0", " "):
            fail(f"a page that leaves events out does not say in #{place} how many were recorded")
