// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Stacks of a snapshot that the page reads itself, and the call sites in them: the rules of analysis_site.c.

const RANK = {machinery: 0, library: 1, backward: 2, wrapper: 3, own: 4};
const MACHINERY = ["torch::unwind", "CapturedTraceback", "gather_with_cpp", "CachingAllocator", "raw_alloc", "raw_delete", "at::detail::empty",
    "at::detail::_empty", "execute_native_thread_routine", "start_thread", "__libc_start", "_start", "clone"];
const LIBRARY_NAMES = ["c10::", "at::", "torch::", "pybind11::", "std::"];
const LIBRARY_BEGINS = ["_Py", "Py", "THP", "cfunction_", "method_vectorcall"];
const LIBRARY_FILES = ["site-packages/", "dist-packages/", "/lib/python", "/Objects/", "/Python/", "/Modules/"];
const TORCH_FILE = new RegExp("(^|/)torch/(_|(accelerator|amp|ao|autograd|backends|csrc|cuda|distributed|distributions|export|fft|func|fx|include|" +
    "jit|linalg|masked|multiprocessing|nested|nn|onnx|optim|profiler|quantization|sparse|special|testing|utils)/|" +
    "(functional|hub|library|overrides|random|serialization|storage)[.]py)");
const GENERATED = "torch::autograd::generated::";

function rankOf(name, file) {
    if (MACHINERY.some(part => name.includes(part)))
        return RANK.machinery;
    if (name.includes(GENERATED))
        return RANK.backward;
    if (!file || file[0] === "<" || file[0] === "?" || file === "torch" || LIBRARY_NAMES.some(part => name.includes(part)) ||
        LIBRARY_FILES.some(part => file.includes(part)) || TORCH_FILE.test(file) || LIBRARY_BEGINS.some(part => name.startsWith(part)))
        return RANK.library;
    const last = name.replace(/[(<][^]*$/, "").replace(/^[^]*[:. *]/, "");
    return /^(alloc|allocate|malloc|calloc|realloc|do_allocate|empty|zeros)$|._(alloc|malloc|allocate)$/.test(last) ? RANK.wrapper : RANK.own;
}

// How much of a function's name to show: of a C++ one, what is before its parameters.
function shortName(name) {
    if (!name.includes("::"))
        return name;
    let depth = 0;
    for (let i = 0; i < name.length; i++) {
        depth += (name[i] === "<") - (name[i] === ">");
        if (name[i] === "(" && i && name[i - 1] !== " " && name[i - 1] !== ":" && depth <= 0)
            return name.slice(0, i);
    }
    return name;
}

function siteName([name, file, line]) {
    const base = file.slice(file.lastIndexOf("/") + 1);
    return shortName(name.startsWith(GENERATED) ? name.slice(GENERATED.length) : name) +
        (base && base[0] !== "?" ? "  " + base + (line ? ":" + line : "") : "");
}

// Stacks as a tree: each distinct one is stored once, with its common part; a caller has a lower number.
class StackTree {
    constructor() {
        this.frames = [];
        this.caller = [0];
        this.frame = [0];
        this.frameNumbers = new Map();
        this.nodes = new Map();
        this.known = new Map(); // a list that a pickle shares is looked at once
    }

    frameOf(frame) {
        const text = value => (typeof value === "string" ? value : "");
        const path = text(frame.filename), file = /^(.:\\|\\\\)/.test(path) ? path.replace(/\\/g, "/") : path; // of Windows
        const name = text(frame.name), line = Math.floor(numberOr(frame.line));
        const key = name + "\0" + file + "\0" + line;
        let number = this.frameNumbers.get(key);
        if (number === undefined) {
            this.frameNumbers.set(key, number = this.frames.length);
            this.frames.push([name, file, line]);
        }
        return number;
    }

    // Of a list of frames, the innermost first.
    stackOf(frames) {
        if (!Array.isArray(frames) || !frames.length)
            return 0;
        let node = this.known.get(frames);
        if (node !== undefined)
            return node;
        node = 0;
        for (let i = frames.length; i-- > 0;) {
            if (!(frames[i] instanceof PlainDict))
                continue;
            const frame = this.frameOf(frames[i]), key = node * 0x4000000 + frame;
            let next = this.nodes.get(key);
            if (next === undefined) {
                this.nodes.set(key, next = this.caller.length);
                this.caller.push(node);
                this.frame.push(frame);
            }
            node = next;
        }
        this.known.set(frames, node);
        return node;
    }

    // What the page has of stacks: frames, the tree, call sites and whole call paths.
    describe() {
        const count = this.caller.length, {caller, frame} = this, ranks = this.frames.map(([name, file]) => rankOf(name, file));
        const best = new Uint32Array(count), shown = new Uint32Array(count), inner = new Uint32Array(count);
        const sites = new Uint32Array(count), callOf = new Uint32Array(count), callFrame = [0], callCaller = [0], paths = new Map();
        const labels = ["no stack"], labelNumbers = new Map();
        const pathOf = (own, outer) => {
            const key = outer * 0x4000000 + own;
            if (!paths.has(key)) {
                paths.set(key, callFrame.length);
                callFrame.push(own);
                callCaller.push(outer);
            }
            return paths.get(key);
        };
        for (let i = 1; i < count; i++) {
            const outer = best[caller[i]], rank = ranks[frame[i]];
            best[i] = outer && ranks[frame[outer]] > rank ? outer : i;
            shown[i] = rank >= RANK.wrapper ? i : shown[caller[i]];
            inner[i] = pathOf(frame[i], shown[caller[i]] ? inner[shown[caller[i]]] : 0);
            callOf[i] = inner[best[i]];
            const label = siteName(this.frames[frame[best[i]]]);
            if (!labelNumbers.has(label)) {
                labelNumbers.set(label, labels.length);
                labels.push(label);
            }
            sites[i] = labelNumbers.get(label);
        }
        return {frames: this.frames, stackCaller: Uint32Array.from(caller), stackFrame: Uint32Array.from(frame), sites, siteLabels: labels,
            callOf, callFrame: Uint32Array.from(callFrame), callCaller: Uint32Array.from(callCaller)};
    }
}
