// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// From the page's data (report_data.h) to typed arrays, and work in slices: what may be long is a generator that yields now and then, and is
// left for a while whenever it has run for SLICE_MS, so that the page answers meanwhile.

const SLICE_MS = 8;

function nextTask() {
    return new Promise(resolve => {
        const channel = new MessageChannel();
        channel.port1.onmessage = resolve;
        channel.port2.postMessage(0);
    });
}

// Runs a generator to its end. `isStale` is asked after each pause: true gives up, and the result is undefined.
async function inSlices(generator, isStale) {
    let start = performance.now();
    for (;;) {
        const step = generator.next();
        if (step.done)
            return step.value;
        if (performance.now() - start >= SLICE_MS) {
            await nextTask();
            if (isStale && isStale())
                return undefined;
            start = performance.now();
        }
    }
}

const ARRAY_TYPES = {f64: Float64Array, u32: Uint32Array, u8: Uint8Array};
const BASE64_SLICE = 1 << 18; // characters, a multiple of 4
const COLUMN_CHUNK = 1 << 16; // numbers, as in report_data.c
const WORD = 2 ** 32;

// Bytes of an element's text in base64; the element is let go.
function* decodeBase64(node) {
    const text = node.textContent, bytes = new Uint8Array(text.length / 4 * 3);
    let at = 0;
    node.remove();
    for (let from = 0; from < text.length; from += BASE64_SLICE) {
        const part = atob(text.slice(from, from + BASE64_SLICE));
        for (let i = 0; i < part.length; i++)
            bytes[at++] = part.charCodeAt(i);
        yield;
    }
    return bytes.subarray(0, at);
}

// One array of all parts.
function joinBytes(parts) {
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
    return all;
}

async function inflate(bytes, format) {
    if (typeof DecompressionStream === "undefined")
        throw new Error("this browser is too old; it needs Firefox 113, Chromium 103, Safari 16.4 or later");
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format)).getReader(), parts = [];
    for (let read = await reader.read(); !read.done; read = await reader.read())
        parts.push(read.value);
    return joinBytes(parts);
}

// The data of an element of this page or another.
const unpackData = async node => inflate(await inSlices(decodeBase64(node)), "deflate");

// What all numbers are described by: JSON, whose length is in the last eight bytes.
function readDescription(bytes) {
    const end = bytes.length - 8, length = new DataView(bytes.buffer, bytes.byteOffset + end).getUint32(0, true);
    return JSON.parse(new TextDecoder().decode(bytes.subarray(end - length, end)));
}

// The numbers of a column: those that are expected, and what is added to each. Where that takes more than 32 bits it is done in two words.
function* decodeColumn(bytes, {type, at, length, from, round}, others) {
    const result = new ARRAY_TYPES[type](length), size = result.BYTES_PER_ELEMENT, other = others[from];
    let before = 0;
    for (let done = 0; done < length; done += COLUMN_CHUNK) {
        const part = Math.min(COLUMN_CHUNK, length - done), plane = k => at + done * size + k * part;
        const word = (first, count, i) => {
            let value = 0;
            for (let k = first + count; k-- > first;)
                value = value * 256 + bytes[plane(k) + i];
            return value;
        };
        for (let i = 0; i < part; i++) {
            const known = other ? round ? Math.ceil(other[done + i] / round) * round : other[done + i] : from ? before : 0;
            const low = word(0, Math.min(4, size), i) + known % WORD, high = size < 8 ? 0 : word(4, 4, i) + Math.floor(known / WORD);
            before = size < 8 ? low % 256 ** size : low % WORD + (high + Math.floor(low / WORD)) % WORD * WORD;
            result[done + i] = before;
        }
        yield;
    }
    return result;
}

// {name: what decodeColumn() takes} to {name: typed array}; a column that others refer to comes before them.
function* decodeArrays(descriptions, bytes) {
    const arrays = {};
    for (const [name, description] of Object.entries(descriptions))
        arrays[name] = yield* decodeColumn(bytes, description, arrays);
    return arrays;
}
