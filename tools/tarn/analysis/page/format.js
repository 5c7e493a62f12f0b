// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Numbers for people, as the text of `tarn report` writes them (units.c), and elements.

const NEVER = 0xffffffff;

// Rounds as printf() does, so that a page and a text agree: a value exactly between two goes to the even digit. toFixed() takes the larger.
// In binary such a value ends exactly one bit behind the last digit's power of two.
function fixed(value, digits) {
    const scale = 10 ** digits, tie = Math.abs(value * 2 ** (digits + 1)) % 2 === 1;
    return (tie ? 2 * Math.round(value * scale / 2) / scale : value).toFixed(digits);
}

function significant(value) {
    const size = Math.abs(value);
    return fixed(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

function formatBytes(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    const sign = bytes < 0 ? "\u2212" : "";
    let value = Math.abs(bytes), unit = 0;
    for (; value >= 999.5 && unit + 1 < units.length; unit++)
        value /= 1024;
    return sign + (unit ? significant(value) : Math.round(value)) + "\u00a0" + units[unit];
}

// The same, rounded up: for a size that is enough.
function formatBytesUp(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let value = bytes, unit = 0;
    for (; value > 999 && unit + 1 < units.length; unit++)
        value /= 1024;
    const digits = !unit ? 0 : value <= 9.99 ? 2 : value <= 99.9 ? 1 : 0, scale = 10 ** digits;
    return (Math.ceil(value * scale) / scale).toFixed(digits) + "\u00a0" + units[unit];
}

function formatGrowth(bytes) {
    return (bytes > 0 ? "+" : "") + formatBytes(bytes);
}

function formatTime(ns) {
    if (ns === 0)
        return "0\u00a0s";
    for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]])
        if (Math.abs(ns) >= scale * 0.9995)
            return significant(ns / scale) + "\u00a0" + unit;
    return Math.round(ns) + "\u00a0ns";
}

// For the ticks of an axis: one unit for all, and as many digits as tell neighbours apart.
function timeTicks(low, high, count) {
    const step = d3.tickStep(low, high, count);
    const [scale, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([size]) => high >= size) || [1, "ns"];
    const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
    return value => (value / scale).toFixed(Math.min(9, digits)) + "\u00a0" + unit;
}

const formatCount = d3.format(",d");
const formatShare = (part, whole) => (whole ? fixed(100 * part / whole, 1) : "0.0") + "\u00a0%";
const formatAddress = address => "0x" + address.toString(16);
// A file's name as a word of a shell. Nobody knows what standard input was.
const fileWord = name => (name === "standard input" ? "- <FILE" : /^[\w+=./,:@%][\w+=./,:@%-]*$/.test(name) ? name
    : "'" + (name[0] === "-" ? "./" : "") + name.replace(/'/g, "'\\''") + "'");
const plural = (count, thing) => formatCount(count) + "\u00a0" + thing + (count === 1 ? "" : "s");

// An element; attributes that begin with "on" are listeners, children are elements or texts.
function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {}))
        if (key.startsWith("on"))
            made.addEventListener(key.slice(2), value);
        else if (value !== undefined && value !== null && value !== false)
            made.setAttribute(key, value === true ? "" : value);
    made.append(...children.filter(child => child !== null && child !== undefined));
    return made;
}

const byId = id => document.getElementById(id);

// Keeps the keyboard focus: if a button had it, the button at that place in the new content gets it.
function replaceContent(id, ...children) {
    const place = byId(id), buttons = () => [...place.querySelectorAll("button")];
    const at = place.contains(document.activeElement) ? buttons().indexOf(document.activeElement) : -1;
    place.replaceChildren(...children.filter(child => child !== null && child !== undefined));
    if (at >= 0 && buttons()[at])
        buttons()[at].focus({preventScroll: true});
}

// A bar in a slot of 60 pixels, so that what follows stands in line.
function makeBar(part, kind) {
    return element("span", {class: "slot"},
        element("span", {class: "bar " + (kind || ""), style: `width:${(60 * part).toFixed(1)}px`}));
}

// A table: columns are {name, number: whether it is set flush right, key: what it is sorted by}, rows are arrays of texts or elements, or
// rows of the table. `sorting` has the key, whether it goes down, and onSort(key).
function makeTable(caption, columns, rows, sorting) {
    const title = column => !sorting || !column.key ? column.name : element("button", {type: "button", class: "sort",
        onclick: () => sorting.onSort(column.key)}, column.name + (sorting.key === column.key ? sorting.down ? " \u25be" : " \u25b4" : ""));
    const head = element("tr", {}, ...columns.map(column => element("th", {scope: "col", class: column.number ? "number" : null,
        "aria-sort": sorting && sorting.key === column.key ? sorting.down ? "descending" : "ascending" : null}, title(column))));
    const body = rows.map(row => !Array.isArray(row) ? row : element("tr", {}, ...row.map((cell, i) =>
        element("td", {class: columns[i].number ? "number" : null}, cell))));
    return element("table", {}, caption ? element("caption", {}, caption) : null,
        element("thead", {}, head), element("tbody", {}, ...body));
}

// Sorts by a function from an item to a number or a text; equal ones stay as they were.
function sortBy(items, value, down) {
    const sign = down ? -1 : 1;
    return items.map(item => [value(item), item]).sort(([a], [b]) => a === b ? 0 : sign * (a < b ? -1 : 1)).map(([, item]) => item);
}

// What is sorted next when a column is chosen: numbers begin with the largest, texts with the first.
const nextSorting = (sorting, key, number) => ({key, down: sorting.key === key ? !sorting.down : number});
