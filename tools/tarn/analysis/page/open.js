// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Files that a reader drops on the page: pages of `tarn report`, which have all of a recording in them, and snapshots (analyse.js). They
// are read here, and nothing is sent anywhere.

// The data of a page, or null for what is no page.
async function readPage(file) {
    if (!/^\s*</.test(await file.slice(0, 64).text()))
        return null;
    const page = new DOMParser().parseFromString(await file.text(), "text/html"), data = page.getElementById("data"); // runs nothing
    if (!data)
        throw new Error(file.name + " is not a page of `tarn report`, or one of another version");
    return unpackData(data);
}

// Calls onFiles with what is dropped or chosen; `overlay` is shown while something is dragged over the page.
function acceptFiles(overlay, inputs, onFiles) {
    const hasFiles = event => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
    let depth = 0;
    const listen = (name, listener) => window.addEventListener(name, event => {
        if (hasFiles(event)) {
            event.preventDefault();
            listener(event);
        }
    });
    listen("dragenter", () => { overlay.hidden = ++depth === 0; });
    listen("dragleave", () => { overlay.hidden = --depth <= 0; });
    listen("dragover", () => {});
    listen("drop", event => {
        overlay.hidden = true;
        depth = 0;
        onFiles([...event.dataTransfer.files]);
    });
    for (const input of inputs)
        input.addEventListener("change", () => {
            onFiles([...input.files]);
            input.value = "";
        });
}
