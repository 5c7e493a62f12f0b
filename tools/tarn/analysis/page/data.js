// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// From the page's text to typed arrays, and work in slices: what may be long is a generator that yields now and then, and is
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

// The numbers of <script type="text/plain" id=...>, base64 of little-endian values; the element is let go.
function* decodeArray(node, type, length) {
    const text = node.textContent;
    const Type = ARRAY_TYPES[type];
    const bytes = new Uint8Array(length * Type.BYTES_PER_ELEMENT);
    for (let from = 0, at = 0; from < text.length; from += BASE64_SLICE) {
        const part = atob(text.slice(from, from + BASE64_SLICE));
        for (let i = 0; i < part.length; i++)
            bytes[at++] = part.charCodeAt(i);
        yield;
    }
    node.remove();
    return new Type(bytes.buffer);
}

// {name: {id, type, length}} to {name: typed array}; `textOf` gives the element with an id.
function* decodeArrays(descriptions, textOf) {
    const arrays = {};
    for (const [name, {id, type, length}] of Object.entries(descriptions))
        arrays[name] = yield* decodeArray(textOf(id), type, length);
    return arrays;
}
