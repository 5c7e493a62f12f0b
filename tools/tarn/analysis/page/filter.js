// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Which blocks are looked at. What a reader asks for has four sides; a block that fails one of them is left out everywhere but in the part
// of the page where that side is chosen, which goes on showing what else there is.

const FACET = {search: 1, size: 2, group: 4, legend: 8};
const ALL_FACETS = 15, HIDDEN = 0xffff; // of grouping.of: in no group

// "64 KiB", "1.5g", "300" in bytes; null for an empty text, NaN for anything else.
function parseSize(text) {
    const found = /^\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:([kmgtp])(?:i?b)?|b)?\s*$/i.exec(text);
    if (!text.trim())
        return null;
    return found ? parseFloat(found[1]) * 1024 ** (found[2] ? "kmgtp".indexOf(found[2].toLowerCase()) + 1 : 0) : NaN;
}

// Words that must all be found, and with "-" in front must not; "..." is one word.
function parseSearch(text) {
    return (text.toLowerCase().match(/-?"[^"]*"?|\S+/g) || []).map(word => {
        const not = word.length > 1 && word[0] === "-";
        return {not, text: (not ? word.slice(1) : word).replace(/"/g, "")};
    }).filter(word => word.text);
}

// For each stack whether a function or a file of it has the text. A stack's caller has a lower number.
function stacksWith(file, text) {
    const {stackCaller, stackFrame} = file, has = new Uint8Array(stackCaller.length);
    const frames = file.frames.map(([name, source]) => name.toLowerCase().includes(text) || source.toLowerCase().includes(text));
    for (let stack = 1; stack < has.length; stack++)
        has[stack] = frames[stackFrame[stack]] || has[stackCaller[stack]] ? 1 : 0;
    return has;
}

// A function from a block's number to whether all that is known of it has the text.
function blocksWith(model, text) {
    const file = model.file, b = model.blocks, has = label => label.toLowerCase().includes(text);
    const stacks = stacksWith(file, text), tags = file.texts.map(has), categories = file.categories.map(has);
    const streams = file.streams.map(has), pools = file.pools.map(has), sites = file.siteLabels.map(has);
    const threads = new Map(), before = has("from before the recording");
    const thread = number => {
        if (!threads.has(number))
            threads.set(number, has(model.threadLabel(number)));
        return threads.get(number);
    };
    const address = /^0x[0-9a-f]+$/.test(text) ? Number(text) : -1;
    return i => stacks[b.stack[i]] || (b.tag[i] && tags[b.tag[i]]) || categories[b.category[i]] || streams[b.stream[i]] ||
        pools[b.pool[i]] || thread(b.thread[i]) || sites[file.sites[b.stack[i]]] || b.address[i] === address ||
        (before && !b.stack[i] && !b.begin[i]);
}

// Writes a facet of model.fails: 0 where `passes` is true.
function* applyFacet(model, facet, passes) {
    const {fails} = model, {count} = model.blocks;
    if (!passes && !(model.applied & facet))
        return;
    model.applied = passes ? model.applied | facet : model.applied & ~facet;
    for (let i = 0; i < count; i++) {
        fails[i] = passes && !passes(i) ? fails[i] | facet : fails[i] & ~facet;
        if (i % 32768 === 32767)
            yield;
    }
}

function* applySearch(model, text) {
    const words = parseSearch(text).map(word => ({not: word.not, has: blocksWith(model, word.text)}));
    yield* applyFacet(model, FACET.search, words.length ? i => words.every(word => !word.has(i) === word.not) : null);
}

function* applySizes(model, least, most) {
    const low = parseSize(least), high = parseSize(most), size = model.blocks.size;
    const wants = low > 0 || high !== null && !Number.isNaN(high);
    yield* applyFacet(model, FACET.size, wants ? i => !(size[i] < low) && !(high !== null && size[i] > high) : null);
}

// Of the groups in the table on the left one, or all.
function* applyGroup(model, by, opened, chosen) {
    const label = model.labeller(by, opened);
    yield* applyFacet(model, FACET.group, chosen === null ? null : i => label(i) === chosen);
}

// Of the legend's groups those that are chosen, or all.
function* applyLegend(model, grouping, chosen) {
    const on = grouping.groups.map(group => chosen.has(legendKey(group)));
    yield* applyFacet(model, FACET.legend, on.includes(true) ? i => grouping.of[i] !== HIDDEN && on[grouping.of[i]] : null);
    grouping.on = on.includes(true) ? on : null;
}

// What a legend's choice is remembered by: the others are the others, however many these are.
const legendKey = group => group.rest ? "\u2026" : group.label;
