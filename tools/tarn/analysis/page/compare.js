// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Two files side by side: their sums and groups at the peak of each, as `tarn diff` has them, and what each had allocated over the
// course of its trace.

function showComparison(before, after, by) {
    const states = [before, after].map(model => model.stateAt(model.device.peak));
    // A file may have a trace and no segments: what was not recorded has no size.
    const recorded = state => state.reserved || !state.allocated, reservedOf = key => states.map(state => recorded(state) ? state[key] : null);
    const sums = [["allocated at the peak", ...states.map(state => state.allocated)], ["reserved then", ...reservedOf("reserved")],
        ["free in reserved", ...reservedOf("free")], ["largest hole", ...reservedOf("largest")], ["waiting", ...states.map(state => state.waiting)],
        ["peak reserved", ...[before, after].map(({device: {states: {peakReserved}}}) => recorded(peakReserved) ? peakReserved.reserved : null)]];
    const bytes = size => size === null ? "not recorded" : formatBytes(size);
    const [a, b] = [before, after].map((model, i) => "AB"[i] + ": " + model.file.name);
    byId("compare-title").textContent = before.file.name + " and " + after.file.name;
    byId("name-a").textContent = a;
    byId("name-b").textContent = b;
    const number = name => ({name, number: true});
    const rows = sums.map(([name, a, b]) => [name, bytes(a), bytes(b), a === null || b === null ? "\u2013" : formatGrowth(b - a)]);
    rows.push(["blocks", formatCount(states[0].blocks), formatCount(states[1].blocks), ""],
        ["free share of reserved", ...states.map(state => recorded(state) ? formatShare(state.free, state.reserved) : "not recorded"), ""],
        ["out of memory", ...[before, after].map(({device}) => device.showsOoms ? plural(device.ooms.length, "time") : "not recorded"), ""]);
    const changes = compareGroups(before, after, by);
    byId("compare-said").textContent = sayComparison(before, after, by, changes);
    const most = Math.max(1, ...changes.map(change => Math.abs(change.after - change.before)));
    replaceContent("compare-tables",
        makeTable("At the peak", [{name: ""}, number("A"), number("B"), number("growth")], rows),
        makeTable("What changed, by " + BY_NAMES[by], [number("growth"), number("A"), number("B"), {name: BY_NAMES[by]}],
            changes.slice(0, 40).map(change => [formatGrowth(change.after - change.before), formatBytes(change.before),
                formatBytes(change.after), element("span", {},
                    makeBar(Math.abs(change.after - change.before) / most, change.after > change.before ? "more" : "less"),
                    change.label)])));
    drawComparison("compare-chart", [before, after].map((model, i) => ({model, kind: "line-" + "ab"[i]})));
}

// How the peak changed, and the group that has most of it: the sentence of `tarn diff` (analysis_diff.c).
function sayComparison(before, after, by, changes = compareGroups(before, after, by)) {
    const [own, other] = [before, after].map(model => model.stateAt(model.device.peak).allocated), all = other - own;
    if (!all)
        return "Both have " + formatBytes(own) + " allocated at the peak.";
    const cause = changes.find(change => Math.sign(change.after - change.before) === Math.sign(all)), text = formatGrowth(all) + " at the peak";
    if (!cause)
        return text + ".";
    const growth = cause.after - cause.before, label = cause.label, traced = before.device.hasTrace && after.device.hasTrace;
    const more = traced ? countAllocations(after, by, label) - countAllocations(before, by, cause.beforeLabel) : 0;
    return text + (Math.abs(growth) <= Math.abs(all) ? ", of which " : "; ") + formatGrowth(growth) + " " +
        (label.startsWith("no ") ? "with " : label.startsWith("from ") ? "" : "by ") + shortenLabel(label) +
        (more ? ", allocated " + formatCount(Math.abs(more)) + (more > 0 ? " more time" : " fewer time") + (Math.abs(more) === 1 ? "" : "s") : "") + ".";
}

// A label of at most 120 characters: what is longer loses its middle, so that it keeps its file.
function shortenLabel(label) {
    const letters = [...label], head = 58, tail = 59;
    return letters.length <= head + tail + 3 ? label : letters.slice(0, head).join("") + "..." + letters.slice(-tail).join("");
}

// How often a group was allocated in a trace.
function countAllocations(model, by, name) {
    const label = model.labeller(by, new Set());
    let count = 0;
    for (let i = 0; i < model.blocks.count; i++)
        count += model.blocks.begin[i] > 0 && label(i) === name;
    return count;
}

function compareGroups(before, after, by) {
    const changes = new Map(), none = new Set();
    const put = (model, side) => {
        for (const group of model.groupsAt(model.device.peak, by, none)) {
            if (!changes.has(group.label))
                changes.set(group.label, {label: group.label, beforeLabel: group.label, before: 0, after: 0});
            changes.get(group.label)[side] += group.bytes;
        }
    };
    put(before, "before");
    put(after, "after");
    if (by === "site")
        matchMoved(changes, sitesOf(before), sitesOf(after));
    return [...changes.values()].filter(change => change.before !== change.after)
        .sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before) || (a.label < b.label ? -1 : 1));
}

// The lines of a call site and its callers, in this order.
const linesOf = change => [...change.label.matchAll(/:([0-9]+)(?= |$)/g)].map(found => Number(found[1]));

function compareLines(a, b) {
    const one = linesOf(a), two = linesOf(b), place = one.findIndex((line, i) => line !== two[i]);
    return place < 0 ? one.length - two.length : one[place] - (two[place] || 0);
}

// Of a function in a file, the call sites that only one side has, as pairs: in the order of their lines if both sides have as many, otherwise
// those of the side with fewer take the nearest by bytes, the largest first (analysis_diff.c).
function pairMoved(before, after) {
    before.sort(compareLines);
    after.sort(compareLines);
    if (before.length === after.length)
        return before.map((old, i) => [old, after[i]]);
    const bytes = change => change.before + change.after, fewer = before.length < after.length, many = fewer ? after : before;
    return [...fewer ? before : after].sort((a, b) => bytes(b) - bytes(a)).map(one => {
        const far = many.map(other => Math.abs(bytes(other) - bytes(one))), [other] = many.splice(far.indexOf(Math.min(...far)), 1);
        return fewer ? [one, other] : [other, one];
    });
}

// The call sites of all blocks of a trace.
function sitesOf(model) {
    const label = model.labeller("site", new Set()), sites = new Set();
    for (let i = 0; i < model.blocks.count; i++)
        sites.add(label(i));
    return sites;
}

// Call sites that an edit above them moved: what only one side has, at any moment, and has the same functions and files.
function matchMoved(changes, sitesBefore, sitesAfter) {
    const functions = new Map();
    for (const change of changes.values())
        if (!sitesBefore.has(change.label) || !sitesAfter.has(change.label)) {
            const key = change.label.replace(/:[0-9]+(?= |$)/g, "");
            if (!functions.has(key))
                functions.set(key, {before: [], after: []});
            functions.get(key)[sitesBefore.has(change.label) ? "before" : "after"].push(change);
        }
    for (const {before, after} of functions.values())
        for (const [old, moved] of pairMoved(before, after)) {
            Object.assign(moved, {before: old.before, beforeLabel: old.label});
            changes.delete(old.label);
        }
}

// A line for each model, from the beginning of its trace to its end: {model, kind}, of which the last is on top.
function drawComparison(id, lines) {
    const svg = d3.select("#" + id), box = byId(id).getBoundingClientRect();
    const width = Math.max(100, box.width - MARGIN.left - MARGIN.right), height = box.height - MARGIN.top - MARGIN.bottom;
    const top = Math.max(1, ...lines.map(({model}) => model.device.states.peak.allocated)) * 1.05;
    const x = d3.scaleLinear().domain([0, 1]).range([MARGIN.left, MARGIN.left + width]);
    const y = d3.scaleLinear().domain([0, top]).range([MARGIN.top + height, MARGIN.top]);
    svg.selectAll("*").remove();
    svg.attr("viewBox", `0 0 ${box.width} ${box.height}`);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${MARGIN.top + height})`)
        .call(d3.axisBottom(x).ticks(5).tickFormat(value => Math.round(100 * value) + "\u00a0%"));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${MARGIN.left},0)`)
        .call(d3.axisLeft(y).tickValues(byteTicks(0, top, 4)).tickFormat(formatBytes));
    lines.forEach(({model, kind}) => {
        const {sampleMoment, sampleAllocated} = model.samples, points = [];
        const last = model.device.hasTimes ? model.times[model.events] || 1 : model.events || 1;
        for (let k = 0; k < sampleMoment.length; k++)
            points.push([(model.device.hasTimes ? model.times[sampleMoment[k]] : sampleMoment[k]) / last, sampleAllocated[k]]);
        if (points.length)
            points.push([1, points[points.length - 1][1]]);
        svg.append("path").attr("class", "line " + kind)
            .attr("d", d3.line().x(point => x(point[0])).y(point => y(point[1])).curve(d3.curveStepAfter)(points));
    });
}
