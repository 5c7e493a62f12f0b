# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""What the page of `tarn report` says of other allocators and of other devices. For report_page.py."""

import json
import os
import pickle
import re
import shlex
import subprocess

from page_browser import DATA, OUT, PROGRAM, expect, make_page, open_file


def where_it_stops(file, said, room, outside, step):
    """As the page says it: between two sizes that were replayed, it names the smaller one."""
    lower = room - room % step + outside
    if room % step:
        printed = subprocess.run([PROGRAM, "report", "--json", "--device", "0", "--fits", str(lower), "--outside", str(outside), file], check=True, capture_output=True, text=True).stdout
        said = next(item for item in json.loads(printed)[0]["allocators"] if item["name"] == said["name"])
        size = subprocess.run([PROGRAM, "report", "--fits", str(lower), "--outside", str(outside), "--device", "0", file], check=True, capture_output=True, text=True).stdout
        size = ", on " + re.search("on a device of (.*):", size).group(1)
    else:
        size = ""
    return (f"event {said['event']:,}" if said["event"] is not None else "before the first event") + size


def slider(browser, file):
    """What the slider says of a device is what `tarn report --fits` says of it."""
    verdicts = {"yes": "finishes", "no": "runs out of memory", "open": "may finish", "past": "gets past"}
    devices = int(browser.run("return document.getElementById('fits').dataset.device")) // int(browser.run("return document.getElementById('fits-size').value"))
    for place, outside in ((1, ""), (14, "100 MiB"), (14, ""), (30, ""), (33, "64m"), (40, "")):
        browser.run("""for (const [id, value] of [["fits-size", arguments[0]], ["fits-outside", arguments[1]]]) {
            document.getElementById(id).value = value;
            document.getElementById(id).dispatchEvent(new Event("input"));
        }""", place, outside)
        shown = browser.run("return {...document.getElementById('fits').dataset}")
        device = int(shown["device"])
        expect("the slider is the device", device, place * devices)
        expect("what is typed is subtracted from it", int(shown["room"]), max(0, device - int(shown["outside"])) >> 21 << 21)
        printed = subprocess.run([PROGRAM, "report", "--json", "--device", "0", "--fits", str(device), "--outside", shown["outside"], file],
                                 check=True, capture_output=True, text=True).stdout
        rows = browser.run("return [...document.querySelectorAll('#fits tbody tr')].map(row => [...row.cells].filter((_, i) => [1, 2, 4].includes(i))"
                           ".map(cell => cell.textContent.replace(/\u00a0/g, ' ')))")
        text = subprocess.run([PROGRAM, "report", "--device", "0", "--fits", str(device), "--outside", shown["outside"], file],
                              check=True, capture_output=True, text=True).stdout
        expect(f"smallest devices at {place}", [row[2] for row in rows], re.findall("smallest device: (.*)$", text, re.M))
        answer = json.loads(printed)[0]
        command = shlex.split(browser.run("return document.getElementById('fits-command').textContent"))
        expect("what the command below says", json.loads(subprocess.run([PROGRAM, *command[1:], "--device", "0", "--json"], cwd=os.path.dirname(file), check=True,
               capture_output=True, text=True).stdout)[0], answer)
        for said, (verdict, stop, _) in zip(answer["allocators"], rows, strict=True):
            wanted = verdicts[said["finishes"]]
            if said["finishes"] == "past":
                wanted += f" the request that failed at event {answer['ended_by']:,}; what follows was not recorded"
            expect(f"{said['name']} at {place}", verdict, wanted)
            if said["finishes"] == "no" and (said["name"] == "tarn" or int(shown["room"]) < devices):
                expect(f"where {said['name']} stops at {place}", stop, "see below")
            elif said["finishes"] == "no":
                expect(f"where {said['name']} stops at {place}", stop, where_it_stops(file, said, int(shown["room"]), int(shown["outside"]), devices))
    browser.filtered()
    expect("the slider in the link", "fits=40" in browser.run("return location.hash"), True)
    expect("an invalid size", browser.run("""document.getElementById("fits-outside").value = "much"; document.getElementById("fits-outside").dispatchEvent(new Event("input"));
        return document.getElementById("fits-outside").getAttribute("aria-invalid")"""), "true")


def what_if(browser):
    """What other allocators would take is what `tarn replay` says; a state has no such table, and --no-what-if leaves it out."""
    file = os.path.join(DATA, "small-4.pickle")
    said = json.loads(subprocess.run([PROGRAM, "replay", "--json", "--least", file], check=True, capture_output=True, text=True).stdout)[0]
    browser.open(make_page("what-if", "--least", file))
    shown = {key: float(value) for key, value in browser.run("return {...document.getElementById('what-if').dataset}").items()}
    expect("what if", [(shown[f"reserved{i}"], shown[f"least{i}"], round(shown[f"time{i}"])) for i in range(3)],
           [(said[name + "peak_reserved"], said[name + "least"], round(1000 * said[name + "driver_time_us"]["C"])) for name in ("pytorch_", "expandable_", "")])
    expect("peak requested", shown["requested"], said["peak_requested"])
    rows = browser.run("return [...document.querySelectorAll('#what-if tbody tr')].map(row => row.firstChild.textContent)")
    expect("rows of what if", rows, ["PyTorch native", "PyTorch expandable segments", "tarn"])
    hidden = "return document.getElementById('what-if-section').hidden"
    expect("what if", browser.run(hidden), False)
    slider(browser, file)
    ended = os.path.join(DATA, "torn.pickle") # with a request that failed
    browser.open(make_page("ended", "--least", ended))
    slider(browser, ended)
    browser.open(make_page("quick", file)) # of several streams
    shown = {key: float(value) for key, value in browser.run("return {...document.getElementById('what-if').dataset}").items()}
    expect("what if, quickly", [(shown[f"reserved{i}"] > 0, shown[f"least{i}"]) for i in range(3)], [(True, 0)] * 3)
    browser.open(make_page("no-what-if", "--no-what-if", file))
    expect("no what if", browser.run(hidden), True)
    browser.open(make_page("state", os.path.join(DATA, "state-only.pickle")))
    expect("what if of a state", browser.run(hidden), True)


def no_slider(browser):
    """Where no smallest devices are searched, the page says why, and names a command that answers."""
    def recorded(name, segments, count):
        events = [{"action": action, "addr": 3 << 29, "size": 1 << 20, "stream": 0, "time_us": i, "frames": []} for i in range(count) for action in ("alloc", "free_completed")]
        with open(os.path.join(OUT, name), "wb") as out:
            pickle.dump({"segments": segments, "device_traces": [events]}, out, 4)
        return os.path.join(OUT, name)

    late = recorded("it's late.pickle", [{"device": 0, "address": 1 << 30, "total_size": 1 << 30, "stream": 0, "blocks": [
        {"size": 1 << 29, "state": "active_allocated"}, {"size": 1 << 29, "state": "inactive"}]}], 2)
    late_why = "began late, when most memory was reserved already"
    for file, why in ((recorded("long.pickle", [], 125_001), "has more than 250,000 events"), (late, late_why), (os.path.join(DATA, "streams.pickle"), "has several streams")):
        browser.open(make_page("no-slider", file))
        shown = browser.run("return ['part', 'none', 'none-why', 'none-command'].map(id => document.getElementById('fits-' + id)).map((node, i) => i < 2 ? node.checkVisibility() : node.textContent)")
        expect("no slider for " + file, shown[:3], [False, True, why])
        answer = subprocess.run([PROGRAM, *shlex.split(shown[3])[1:]], cwd=os.path.dirname(file), check=True, capture_output=True, text=True).stdout
        expect("allocators that answer", len(re.findall("finishes; smallest device: ", answer)) in (3, 6), True)
    with open(late, "rb") as file:
        page = os.path.join(OUT, "no-slider.html")
        subprocess.run([PROGRAM, "report", "-o", page, "-"], stdin=file, check=True)
    browser.open(page)
    expect("the command for standard input", browser.run("return document.getElementById('fits-none-command').textContent"), "tarn report --fits 24G - <FILE")
    expect("opening " + late, open_file(browser, late), "")
    browser.filtered()
    expect("why a page that reads it has none", browser.run("return document.getElementById('fits-none-why').textContent"), late_why)
