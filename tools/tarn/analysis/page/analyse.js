// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Snapshots that a reader opens: the analysis of `tarn report`, compiled to WebAssembly (tools/viewer), reads them here. This file is all of
// the system that it has: its standard streams, and the files behind them, which are open from the beginning. Nothing else is reached.
//
// The calls are those of WASI, wasi_snapshot_preview1: https://github.com/WebAssembly/WASI

const WASI_BADF = 8, WASI_NOSYS = 52, WASI_FILE = 4, WASI_DEVICE = 2, FIRST_FILE = 3;

class Ended extends Error {}

class System {
    constructor(names, contents) {
        this.arguments = ["tarn", ...names].map(name => new TextEncoder().encode(name.replace(/\0/g, "?") + "\0"));
        this.files = contents.map(bytes => ({bytes, at: 0}));
        this.output = [];
        this.errors = [];
    }

    get view() {
        return new DataView(this.memory.buffer);
    }

    bytes(at, length) {
        return new Uint8Array(this.memory.buffer, at >>> 0, length);
    }

    // Calls take(bytes) for each buffer of a list until one is not filled, and writes how much that was in all.
    each(list, count, sum, take) {
        let all = 0;
        for (let i = 0; i < count; i++) {
            const length = this.view.getUint32(list + 8 * i + 4, true), done = take(this.bytes(this.view.getUint32(list + 8 * i, true), length));
            all += done;
            if (done < length)
                break;
        }
        this.view.setUint32(sum, all, true);
        return 0;
    }

    read(descriptor, list, count, sum) {
        const file = this.files[descriptor - FIRST_FILE];
        return !file ? WASI_BADF : this.each(list, count, sum, to => {
            const part = file.bytes.subarray(file.at, file.at + to.length);
            to.set(part);
            file.at += part.length;
            return part.length;
        });
    }

    write(descriptor, list, count, sum) {
        const to = {1: this.output, 2: this.errors}[descriptor];
        return !to ? WASI_BADF : this.each(list, count, sum, bytes => to.push(bytes.slice()) && bytes.length);
    }

    seek(descriptor, offset, whence, result) {
        const file = this.files[descriptor - FIRST_FILE];
        if (!file)
            return WASI_BADF;
        file.at = Number(offset) + [0, file.at, file.bytes.length][whence];
        this.view.setBigUint64(result, BigInt(file.at), true);
        return 0;
    }

    // Of fd_fdstat_get, whose kind is in the first byte, and of fd_filestat_get, where it is in the 17th and the size in the 33rd.
    describe(descriptor, at, length, kind, size) {
        const file = this.files[descriptor - FIRST_FILE];
        if (!file && descriptor >= FIRST_FILE)
            return WASI_BADF;
        this.bytes(at, length).fill(0);
        this.view.setUint8(at + kind, file ? WASI_FILE : WASI_DEVICE);
        if (size && file)
            this.view.setBigUint64(at + size, BigInt(file.bytes.length), true);
        return 0;
    }

    calls() {
        const known = {
            args_sizes_get: (count, size) => {
                this.view.setUint32(count, this.arguments.length, true);
                this.view.setUint32(size, joinBytes(this.arguments).length, true);
                return 0;
            },
            args_get: (pointers, texts) => {
                this.arguments.forEach((text, i) => {
                    this.view.setUint32(pointers + 4 * i, texts, true);
                    this.bytes(texts, text.length).set(text);
                    texts += text.length;
                });
                return 0;
            },
            fd_read: (...values) => this.read(...values),
            fd_write: (...values) => this.write(...values),
            fd_seek: (...values) => this.seek(...values),
            fd_fdstat_get: (descriptor, at) => this.describe(descriptor, at, 24, 0, 0),
            fd_filestat_get: (descriptor, at) => this.describe(descriptor, at, 64, 16, 32),
            fd_close: () => 0,
            fd_prestat_get: () => WASI_BADF, // there are no folders
            proc_exit: status => { throw new Ended(String(status)); },
        };
        return new Proxy(known, {get: (calls, name) => calls[name] || (() => WASI_NOSYS)});
    }

    // Runs the program to its end; what it printed, or what it said of an error.
    run(module) {
        const instance = new WebAssembly.Instance(module, {wasi_snapshot_preview1: this.calls()});
        this.memory = instance.exports.memory;
        let status = 0;
        try {
            instance.exports._start();
        } catch (error) {
            if (!(error instanceof Ended))
                throw error instanceof WebAssembly.RuntimeError ? new Error("the analysis ended: " + error.message) : error;
            status = Number(error.message);
        }
        if (status)
            throw new Error(new TextDecoder().decode(joinBytes(this.errors)).trim().replace(/^tarn report: /, ""));
        return joinBytes(this.output);
    }
}

let compiled = null;

// The bytes of a file. The analysis has no gzip: that is unpacked here.
async function contentsOf(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (bytes[0] !== 0x1f || bytes[1] !== 0x8b)
        return bytes;
    return inflate(bytes, "gzip").catch(error => {
        throw new Error(file.name + ": gzip cannot decompress it: " + error.message + "; the file is damaged: fetch it again");
    });
}

// What the program would put into a page of these files.
async function analyse(files) {
    const node = byId("analysis");
    if (!compiled && (!node || !node.textContent))
        throw new Error("this page came without the analysis, and opens only other pages. Run `tarn report -o page.html " +
            files.map(file => fileWord(file.name)).join(" ") + "`");
    compiled = compiled || WebAssembly.compile(await inflate(await inSlices(decodeBase64(node)), "gzip"));
    const contents = [];
    for (const file of files)
        contents.push(await contentsOf(file));
    return new System(files.map(file => file.name), contents).run(await compiled);
}
