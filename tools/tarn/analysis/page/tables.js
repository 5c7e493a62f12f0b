// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// What stands in tables: who has the memory at the chosen moment, the blocks one by one, one block in full, and what the file says of the
// device besides.

const BLOCK_ROWS = 100;

const BY_NAMES = {tag: "tag", last: "last part of the tag", site: "call site", stream: "stream", pool: "pool", thread: "thread"};

// The groups at a moment; choosing one shows only its blocks.
function showGroups(model, moment, by, opened, filter, onFilter) {
    const groups = model.groupsAt(moment, by, opened);
    const whole = groups.reduce((sum, group) => sum + group.bytes, 0);
    const rows = groups.slice(0, 200).map(group => {
        const chosen = filter === group.label;
        const bar = makeBar(group.bytes / whole);
        return [formatBytes(group.bytes), formatShare(group.bytes, whole), formatCount(group.blocks),
            element("button", {class: "row", type: "button", "aria-pressed": String(chosen), title: group.label,
                onclick: () => onFilter(chosen ? null : group.label)}, bar, group.label)];
    });
    const columns = [{name: "bytes", number: true}, {name: "share", number: true}, {name: "blocks", number: true},
        {name: BY_NAMES[by]}];
    replaceContent("groups", makeTable(null, columns, rows),
        groups.length > 200 ? element("p", {class: "note"}, "and " + plural(groups.length - 200, "more")) : null);
}

// The blocks at a moment, the largest first.
function showBlocks(model, moment, by, opened, filter, onBlock, limit = BLOCK_ROWS) {
    const label = model.labeller(by, opened), b = model.blocks;
    const alive = model.alive(moment).filter(i => filter === null || label(i) === filter);
    const body = alive.slice(0, limit).map(i => element("tr", {"data-address": formatAddress(b.address[i]),
        "data-size": b.size[i]},
    element("td", {class: "number"}, formatBytes(b.size[i])),
    element("td", {class: "number"}, lifetime(model, i)),
    element("td", {}, element("button", {class: "row", type: "button", title: "Show this block", onclick: () => onBlock(i)},
        label(i) + (by === "site" ? "" : "  \u00b7  " + model.siteLabel(b.stack[i]))))));
    const head = element("tr", {}, element("th", {scope: "col", class: "number"}, "bytes"),
        element("th", {scope: "col", class: "number"}, "lived"),
        element("th", {scope: "col"}, by === "site" ? "call site" : BY_NAMES[by] + " \u00b7 call site"));
    const more = alive.length > limit
        ? element("button", {type: "button", onclick: () => showBlocks(model, moment, by, opened, filter, onBlock, limit * 5)},
            "Show more of the " + formatCount(alive.length))
        : null;
    replaceContent("blocks", element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)), more);
    byId("blocks").dataset.moment = moment;
    byId("blocks-title").textContent = plural(alive.length, "block") + (filter === null ? "" : " of " + filter);
}

function lifetime(model, i) {
    const {begin, freed} = model.blocks, from = begin[i], to = Math.min(freed[i], model.events);
    if (!model.device.hasTrace)
        return "\u2013";
    const span = model.device.hasTimes ? formatTime(model.times[to] - model.times[from])
        : plural(to - from, "event");
    return (from === 0 || freed[i] === NEVER ? "> " : "") + span;
}

// One block in full.
function showBlock(model, i, onMoment) {
    const b = model.blocks, at = moment => element("button", {class: "link", type: "button", onclick: () => onMoment(moment)},
        "event " + formatCount(moment) + (model.device.hasTimes ? ", " + formatTime(model.times[moment]) : ""));
    const facts = [
        ["size", formatBytes(b.size[i]) + " (" + formatCount(b.size[i]) + " bytes)"],
        ["takes", formatBytes(b.room[i])],
        ["address", formatAddress(b.address[i])],
        ["tag", model.text(b.tag[i]) || "\u2013"],
        ["allocated", b.begin[i] ? at(b.begin[i]) : model.device.hasTrace ? "before the trace" : "not known"],
        ["freed", b.freed[i] === NEVER ? "not in the trace" : at(b.freed[i])],
        ["lived", lifetime(model, i)],
        ["stream", model.streamLabel(b.stream[i])],
        ["pool", model.poolLabel(b.pool[i])],
        ["thread", model.threadLabel(b.thread[i])],
    ];
    if (b.freed[i] !== NEVER && b.end[i] !== b.freed[i])
        facts.splice(6, 0, ["usable again", b.end[i] === NEVER ? "not in the trace" : at(b.end[i])]);
    const frames = model.frames(b.stack[i]).map(([name, file, line]) =>
        element("li", {}, element("code", {}, name), element("span", {class: "where"},
            " " + file + (line ? ":" + line : ""))));
    replaceContent("block", element("dl", {}, ...facts.flatMap(([name, value]) =>
        [element("dt", {}, name), element("dd", {}, value)])),
    frames.length ? element("h4", {}, "Stack, innermost first") : element("p", {class: "note"}, "No stack was recorded."),
    frames.length ? element("ol", {class: "stack"}, ...frames) : null);
    byId("block").dataset.address = formatAddress(b.address[i]);
}

// Out-of-memory errors.
function showOoms(model, onMoment) {
    const ooms = model.device.ooms;
    byId("ooms-section").hidden = !ooms.length;
    const columns = [{name: "asked", number: true}, {name: "device had", number: true}, {name: "free in reserved", number: true},
        {name: "largest hole", number: true}, {name: "when"}, {name: "tag \u00b7 call site"}];
    replaceContent("ooms", makeTable(null, columns, ooms.map(oom => [formatBytes(oom.asked), formatBytes(oom.deviceFree),
        formatBytes(oom.free), formatBytes(oom.largest),
        element("button", {class: "link", type: "button", onclick: () => onMoment(oom.moment)},
            "event " + formatCount(oom.event) + (model.device.hasTimes ? ", " + formatTime(model.times[oom.moment]) : "")),
        [model.text(oom.tag), model.siteLabel(oom.stack)].filter(text => text).join(" \u00b7 ")])));
}

// What only tarn's files have.
function showDeviceFacts(model) {
    const file = model.file, here = item => item.device === model.device.device, tables = [];
    const add = (title, columns, items, row) => {
        if (items.length)
            tables.push(element("section", {}, makeTable(title, columns, items.map(row))));
    };
    const bytes = name => ({name, number: true});
    add("Device", [{name: "name"}, bytes("memory"), bytes("free"), bytes("reserved by tarn"), bytes("limit")],
        file.devices.filter(item => item.number === model.device.device), item => [item.name, formatBytes(item.total),
            formatBytes(item.free), formatBytes(item.reserved), item.limit === null ? "none" : formatBytes(item.limit)]);
    add("Pools", [{name: "pool"}, bytes("reserved"), bytes("allocated"), bytes("active"), bytes("waiting"), {name: "state"}],
        file.poolStates.filter(here), item => [file.pools[item.pool], formatBytes(item.reserved), formatBytes(item.allocated),
            formatBytes(item.active), formatBytes(item.waiting),
            [item.suspended && "suspended", item.held && "held by a graph"].filter(text => text).join(", ") || "in use"]);
    add("Handles", [{name: "library"}, bytes("handles"), bytes("in use")], file.handles.filter(here),
        item => [item.library, formatCount(item.count), formatCount(item.inUse)]);
    add("Workspaces", [{name: "library"}, {name: "stream"}, bytes("size"), {name: "address"}], file.workspaces.filter(here),
        item => [item.library, file.streams[item.stream], formatBytes(item.size), formatAddress(item.address)]);
    byId("facts-section").hidden = !tables.length;
    replaceContent("facts", ...tables);
}
