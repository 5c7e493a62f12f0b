# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""The part of the commands' model about commands that read no recording: `run` and `sim` with programs that exit, crash, fork, are killed, write
nothing or have long names, `top` and `metrics` with processes and with files that are no pages; each with each kind of output.

What is held: the exit status, which is the program's own where there is one; that the same sums are said everywhere: by the program, by `tarn
top`, by `tarn metrics`, in the snapshot of -o, and, computed again, of that snapshot by `tarn report`."""

import json
import os
import re
import signal
import subprocess
import time

MIB = 1 << 20


class Programs:
    def __init__(self, model, folder):
        self.model, self.folder, self.done = model, os.fsencode(folder), 0
        self.fakes = os.path.join(os.environ.get("TARN_BUILD", ""), "tests", "run")
        self.probe = os.path.join(self.fakes, "probe")
        self.pages = os.path.join(folder, "pages")
        os.mkdir(self.pages)

    def run(self, *arguments, statuses=(0,), **more):
        self.done += 1
        return self.model.run(*arguments, statuses=statuses, **more)[1]

    def file(self, name, text, mode=0o755):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    # --- run and sim -----------------------------------------------------------------------------------------------------

    def programs(self):
        """{what: (command line, status)}"""
        deep = os.path.join(self.folder, b"d" * 200)
        os.mkdir(deep)
        long = self.file(os.path.join(deep, b"name-" + b"n" * 200), b"#!/bin/sh\nexit 5\n")
        evil = self.file(b"evil-\xff\x1b[31m", b"#!/bin/sh\nexit 6\n")
        return {
            "nothing": ((b"true",), 0), "exits": ((b"sh", b"-c", b"exit 7"), 7),
            "prints": ((b"sh", b"-c", b"echo out; echo err >&2"), 0), "crashes": ((b"sh", b"-c", b"kill -SEGV $$"), 128 + signal.SIGSEGV),
            "killed": ((b"sh", b"-c", b"kill -KILL $$"), 128 + signal.SIGKILL),
            "forks": ((b"sh", b"-c", b"(exit 3) & (exit 4) & wait; exit 0"), 0), "long": ((long,), 5), "evil": ((evil,), 6),
            "missing": ((os.path.join(self.folder, b"no-such-program"),), 127), "folder": ((self.folder,), 126),
            "no program": ((self.file(b"plain-text", b"not a program", 0o644),), 126), "reads": ((b"cat",), 0),
        }

    def of_program(self, line, status):
        for command in (("run",), ("run", "--quiet"), ("sim",), ("sim", "--devices", "2")):
            ends = (status,) if command[0] == "run" or status < 128 else (status, 128 - status)  # `sim` becomes the program
            ran = self.run(*command, "--", *line, statuses=ends)
            if command[0] == "run" and status < 126 and "--quiet" in command and ran.stderr not in (b"", b"err\n"):
                self.model.fail(line, "is not quiet", ran)
        made = os.path.join(self.folder, b"run.pickle")
        for output in ((b"-o", made), (b"--summary", made), (b"-o", made, b"--stacks")):
            ran = self.run("run", *output, "--", *line, statuses=(status, status or 1))
            self.model.expect((b"run", *output), "the status, with or without its file", ran.returncode, status or int(not os.path.exists(made)))
            if os.path.exists(made):
                os.unlink(made)
        self.run("run", "-o", "/dev/full", "--", *line, statuses=(status, 1))

    def of_probe(self):
        """What a program with a driver did, as a snapshot tells it, and as the model computes it of that."""
        environment = dict(os.environ, LD_LIBRARY_PATH=self.fakes)
        made = os.path.join(self.folder, b"probe.pickle")
        cases = [(("one",), 0, 13 * MIB), (("kinds",), 0, None), (("killed",), 137, 9 * MIB), (("forks",), 0, None), (("many", "20"), 0, None),
                 (("streams",), 0, None)]
        if os.environ.get("TARN_NIGHTLY") == "1":
            cases.append((("threads",), 0, None))
        for line, status, peak in cases:
            ran = self.run("run", "-o", made, *(("--limit", "64M") if line[0] == "threads" else ()), "--", self.probe, *line, statuses=(status,), env=environment)
            summary = ran.stderr.decode()
            self.model.of_snapshot("run.pickle", made, line[0] != "threads")  # which has a limit that only the driver can meet
            truths = self.model.truths(made)
            if peak is not None:
                self.model.expect((b"run", *map(os.fsencode, line)), "the peak", max(max(truth.allocated) for truth in truths.values()), peak)
            if line[0] in ("one", "killed") and f"{peak // MIB}" not in re.search(r"all together +(.*)", summary).group(1):
                self.model.fail((b"run", *map(os.fsencode, line)), "the summary does not have the snapshot's peak", ran)
            if line[0] == "threads":
                continue
            self.run("run", "--quiet", "-o", "-", "--", self.probe, *line, statuses=(2,), env=environment)  # the program has standard output
            self.run("run", "-o", "/dev/full", "--", self.probe, *line, statuses=(1, status), env=environment)
            self.run("run", "--summary", "/dev/full", "--", self.probe, *line, statuses=(1, status), env=environment)
        self.run("run", "--limit", "8M", "--", self.probe, "take", "4", env=environment)
        self.run("run", "--limit", "8M", "--", self.probe, "take", "9", statuses=(4,), env=environment)

    def of_sim(self):
        """The devices that a program finds are those that were asked for."""
        for count, memory in ((1, 64 * MIB), (3, 96 * MIB)):
            ran = self.run("sim", "--devices", str(count), "--device-memory", str(memory), "--driver", "cuda", "--", self.model.program, "check", "--json")
            said = json.loads(ran.stdout)
            self.model.expect((b"sim",), "the devices", [device["memory"] for device in said["devices"]], [memory] * count)

    # --- top and metrics -------------------------------------------------------------------------------------------------

    def unreadable(self):
        """Files that have the name of a live page and are not one."""
        for name, data in (("tarn-live.1", b""), ("tarn-live.2", b"rubbish" * 900), ("tarn-live.3", b"\0" * 20), ("tarn-live.x\x1b[31m", b"\xff" * 5000),
                           ("tarn-live." + "9" * 200, b"")):
            with open(os.path.join(self.pages, name), "wb") as file:
                file.write(data)
        os.mkdir(os.path.join(self.pages, "tarn-live.4"))
        os.mkfifo(os.path.join(self.pages, "tarn-live.5"))
        os.symlink("/dev/zero", os.path.join(self.pages, "tarn-live.6"))

    def held(self, environment):
        """{device: bytes that the process holds} of `tarn top` and of `tarn metrics`; a page that is being written is passed over."""
        for _ in range(100):
            top = json.loads(self.run("top", "--json", "--directory", self.pages, statuses=(0, 1), env=environment).stdout)
            text = self.run("metrics", "--directory", self.pages, env=environment).stdout.decode()
            found = {int(device): int(size) for device, size in
                     re.findall(r'^tarn_library_held_bytes\{[^}]*device="(\d+)"[^}]*library="probe"[^}]*\} (\d+)$', text, re.M)}
            if sum(item.get("reserved") or 0 for item in top) == 18 * MIB and found:
                return top, found
            time.sleep(0.05)
        self.model.fail((b"top",), f"does not show what the process holds: {top} {found}")

    def of_process(self):
        environment = dict(os.environ, LD_LIBRARY_PATH=self.fakes, TARN_LIVE_DIRECTORY=self.pages)
        with subprocess.Popen([self.model.program, "run", "--quiet", self.probe, "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env=environment) as holder:
            number = int(holder.stdout.readline())
            top, found = self.held(environment)
            self.model.expect((b"metrics",), "what is held", sorted(found.values()), [5 * MIB, 13 * MIB])
            for _ in range(100):
                ran = self.run("top", "--json", "--directory", self.pages, str(number), statuses=(0, 1), env=environment)
                if ran.returncode == 0:
                    break
            one = json.loads(ran.stdout)
            reserved = {device["device"]: device["stats"]["reserved_bytes"]["all"]["current"] for device in one["devices"]}
            self.model.expect((b"top", str(number).encode()), "what is reserved", reserved, found)
            for line in (("top",), ("top", "--once"), ("top", "--sort", "peak"), ("metrics",)):
                ran = self.run(*line, "--directory", self.pages, env=environment)
                if line[0] == "top" and b"probe" not in ran.stdout:
                    self.model.fail(line, "does not show the process", ran)
            self.model.outputs(("top", "--json", "--directory", self.pages), environment)
            self.model.outputs(("metrics", "--directory", self.pages), environment)
            holder.stdin.close()
            self.model.expect((b"run",), "the status", holder.wait(), 0)
        top = json.loads(self.run("top", "--json", "--directory", self.pages, statuses=(0, 1), env=environment).stdout)
        self.model.expect((b"top",), "processes that have ended", [item for item in top if item.get("process") == number], [])

    def none(self):
        for folder, status in ((self.pages, 0), (self.folder, 0), (os.path.join(self.folder, b"no-such-folder"), 2), ("/dev/null", 2)):
            for line in (("top", "--json"), ("top", "--once"), ("metrics",)):
                self.run(*line, "--directory", folder, statuses=(status or line[0] == "top",))
            for process in ("0", "1", "nobody", "-1", "99999999999999999999"):
                self.run("top", "--json", "--directory", folder, "--", process, statuses=(1, 2))


def programs(model, folder):
    them = Programs(model, folder)
    for line, status in them.programs().values():
        them.of_program(line, status)
    them.of_sim()
    them.none()
    them.unreadable()
    them.none()
    if os.path.exists(os.path.join(them.fakes, "libcuda.so.1")):
        them.of_probe()
        them.of_process()
    return them.done
