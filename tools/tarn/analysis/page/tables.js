// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// What stands in tables: who has the memory at the chosen moment, the blocks one by one, one block in full, and what the file says of the
// device besides.

const BLOCK_ROWS = 100;

const BY_NAMES = {tag: "tag", last: "last part of the tag", category: "category", site: "call site", module: "module", stream: "stream", pool: "pool", thread: "thread", life: "lifetime",
    size: "size"};

// By what a device's blocks are told apart, where nobody has chosen.
const firstGrouping = ({mostTagged, hasCategories, hasStacks, hasTrace}) =>
    mostTagged ? "tag" : hasCategories ? "category" : hasStacks ? "site" : hasTrace ? "life" : "size";

// The groups at a moment; choosing one leaves only its blocks everywhere else. `view` is what is chosen (main.js), `tell` what to call
// when the reader chooses.
const GROUP_VALUES = {bytes: group => group.bytes, blocks: group => group.blocks, name: group => group.label.toLowerCase()};

function showGroups(view, tell) {
    const {model, groupsBy, filter, sortGroups} = view;
    const found = model.groupsAt(view.moment, groupsBy, view.opened, ALL_FACETS & ~FACET.group);
    const whole = found.reduce((sum, group) => sum + group.bytes, 0);
    const groups = sortBy(found, GROUP_VALUES[sortGroups.key], sortGroups.down);
    const rows = groups.slice(0, 200).map(group => {
        const chosen = filter === group.label;
        const bar = makeBar(group.bytes / whole);
        return [formatBytes(group.bytes), formatShare(group.bytes, whole), formatCount(group.blocks),
            element("button", {class: "row", type: "button", "aria-pressed": String(chosen), title: group.label,
                onclick: () => tell.onFilter(chosen ? null : group.label)}, bar, group.label)];
    });
    const columns = [{name: "bytes", number: true, key: "bytes"}, {name: "share", number: true},
        {name: "blocks", number: true, key: "blocks"}, {name: BY_NAMES[groupsBy], key: "name"}];
    replaceContent("groups", makeTable(null, columns, rows, {...sortGroups,
        onSort: key => tell.onSort("sortGroups", nextSorting(sortGroups, key, key !== "name"))}),
    groups.length > 200 ? element("p", {class: "note"}, "and " + plural(groups.length - 200, "more")) : null);
}

// The blocks at a moment that are looked at, the largest first or as the reader sorts them.
function showBlocks(view, tell, limit = BLOCK_ROWS) {
    const {model, moment, sortBlocks, groupsBy: by} = view, label = model.labeller(by, view.opened), b = model.blocks;
    const sited = by !== "site" && model.device.hasStacks;
    const values = {bytes: i => b.size[i], lived: i => (b.freed[i] === NEVER ? Infinity : model.ends(i) - model.starts(i)),
        address: i => b.address[i], name: i => label(i).toLowerCase() + " " + model.siteOf(i).toLowerCase()};
    const found = model.alive(moment), largestFirst = sortBlocks.key === "bytes" && sortBlocks.down;
    const alive = largestFirst ? found : sortBy(found, values[sortBlocks.key], sortBlocks.down);
    const rows = alive.slice(0, limit).map(i => element("tr", {"data-address": formatAddress(b.address[i]), "data-size": b.size[i],
        onmousemove: event => tell.onHover([formatBytes(b.size[i]) + " \u00b7 " + label(i), ...stackLines(model, i)], event),
        onmouseleave: () => tell.onHover(null)},
    element("td", {class: "number"}, formatBytes(b.size[i])),
    element("td", {class: "number"}, lifetime(model, i)),
    element("td", {}, element("button", {class: "row", type: "button", onclick: () => tell.onBlock(i)},
        label(i) + (sited ? "  \u00b7  " + model.siteOf(i) : ""))),
    element("td", {class: "number address"}, formatAddress(b.address[i]))));
    const columns = [{name: "bytes", number: true, key: "bytes"}, {name: "lifetime", number: true, key: "lived"},
        {name: BY_NAMES[by] + (sited ? " \u00b7 call site" : ""), key: "name"}, {name: "address", number: true, key: "address"}];
    const more = alive.length > limit
        ? element("button", {type: "button", onclick: () => showBlocks(view, tell, limit * 5)},
            "Show more of the " + formatCount(alive.length))
        : null;
    replaceContent("blocks", makeTable(null, columns, rows, {...sortBlocks,
        onSort: key => tell.onSort("sortBlocks", nextSorting(sortBlocks, key, key === "bytes" || key === "lived"))}), more);
    byId("blocks").dataset.moment = moment;
    byId("blocks-title").textContent = plural(alive.length, "block") + (view.filter === null ? "" : " of " + view.filter);
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
        ["occupies", formatBytes(b.room[i])],
        ["address", formatAddress(b.address[i])],
        ["tag", model.text(b.tag[i]) || "\u2013"],
        ["category", model.file.categories[b.category[i]]],
        ["allocated", b.begin[i] ? at(b.begin[i]) : model.device.hasTrace ? "before the trace" : "unknown"],
        ["freed", b.freed[i] === NEVER ? "not in the trace" : at(b.freed[i])],
        ...(b.freed[i] !== NEVER && b.end[i] !== b.freed[i]
            ? [["reusable", b.end[i] === NEVER ? "not in the trace" : at(b.end[i])]] : []),
        ["lifetime", lifetime(model, i)],
        ["stream", model.streamLabel(b.stream[i])],
        ["pool", model.poolLabel(b.pool[i])],
        ["thread", model.threadLabel(b.thread[i])],
    ];
    const frames = model.frames(b.stack[i]).map(([name, file, line]) =>
        element("li", {}, element("code", {}, name), element("span", {class: "where"},
            " " + file + (line ? ":" + line : ""))));
    replaceContent("block", element("dl", {}, ...facts.flatMap(([name, value]) =>
        [element("dt", {}, name), element("dd", {}, value)])),
    frames.length ? element("h4", {}, "Call stack, innermost first") : element("p", {class: "note"}, b.begin[i] || !model.device.hasTrace
        ? "No stack was recorded." : "The block was allocated before the recording began, so its stack is unknown."),
    // First the program's own functions: between them and the allocator there may be fifty others.
    frames.length ? element("ol", {class: "stack"}, ...callPath(model, i).map(label => element("li", {}, element("code", {}, label)))) : null,
    frames.length ? element("details", {}, element("summary", {}, "all " + plural(frames.length, "frame") + " of the stack"),
        element("ol", {class: "stack"}, ...frames)) : null);
    byId("block").dataset.address = formatAddress(b.address[i]);
}

// What happened and what to do, as `tarn report` says it; each sentence leads to the moment that shows it.
// `whose` says of which file and device it is, where there are several.
function showAdvice(model, whose, onMoment) {
    const advice = model.device.advice;
    byId("advice-of").hidden = !whose;
    byId("advice-of").textContent = whose;
    byId("advice-section").hidden = !advice.length;
    replaceContent("advice", ...advice.map(item => element("li", {"data-kind": item.kind}, item.text + " ",
        model.device.hasTrace ? element("button", {class: "link", type: "button", "aria-label": "Show the moment that this is about",
            onclick: () => onMoment(item.moment)}, "show") : null)));
}

// Out-of-memory errors.
function showOoms(model, onMoment) {
    const ooms = model.device.ooms;
    byId("ooms-section").hidden = !ooms.length;
    const columns = [{name: "requested", number: true}, {name: "free on the device", number: true}, {name: "free in reserved", number: true},
        {name: "largest hole", number: true}, {name: "when"}, {name: "tag \u00b7 call site"}];
    replaceContent("ooms", makeTable(null, columns, ooms.map(oom => [formatBytes(oom.asked), formatBytes(oom.deviceFree),
        formatBytes(oom.free), formatBytes(oom.largest),
        element("button", {class: "link", type: "button", onclick: () => onMoment(oom.moment)},
            "event " + formatCount(oom.event) + (model.device.hasTimes ? ", " + failedAt(model, oom) : "")),
        [model.text(oom.tag), model.siteLabel(oom.stack)].filter(text => text).join(" \u00b7 ")])));
}

// What other allocators would take for the same trace.
function showWhatIf(model) {
    const found = model.device.whatIf, number = name => ({name, number: true});
    byId("what-if-section").hidden = !found && !model.device.notSearched;
    byId("what-if").hidden = byId("what-if-note").hidden = !found;
    byId("what-if-here").hidden = !found || !model.file.here;
    if (!found)
        return;
    const share = (bytes, format) => bytes ? format(bytes) + " (" + fixed(bytes / found.requested, 3) + "\u00a0\u00d7)" : "not searched; use --least";
    const rows = found.rows.map(row => row.fits
        ? [row.name, formatBytes(found.requested), share(row.reserved, formatBytes), share(row.least, formatBytesUp), row.driverNs ? formatTime(row.driverNs) : "\u2014"]
        : [row.name, formatBytes(found.requested), model.file.here && row.name === "tarn" ? "not replayed here" : "runs out of memory", "", ""]);
    Object.assign(byId("what-if").dataset, {requested: found.requested});
    found.rows.forEach((row, i) => Object.assign(byId("what-if").dataset, {["reserved" + i]: row.reserved, ["least" + i]: row.least, ["time" + i]: row.driverNs}));
    byId("what-if-command").textContent = "tarn report -o page.html " + fileWord(model.file.name);
    replaceContent("what-if", makeTable(null, [{name: "allocator"}, number("peak requested"), number("peak reserved"),
        number("smallest device"), number("driver time")], rows));
}

const GRANULE = 2 << 20; // bytes, to which the memory that is left is rounded down

// Whether the trace finishes on a device of the chosen size, as `tarn report --fits` says it: `fits` of `view` is a place on the slider, `outside`
// a text, empty for what was measured.
function showFits(view) {
    const found = view.model.device.whatIf, searched = found ? found.rows.filter(row => row.least) : [];
    const {notSearched} = view.model.device;
    byId("fits-part").hidden = !searched.length;
    byId("fits-none").hidden = searched.length > 0 || !notSearched;
    byId("fits-none-why").textContent = notSearched || "";
    byId("fits-none-command").textContent = "tarn report --fits 24G " + fileWord(view.model.file.name);
    if (!searched.length)
        return;
    const typed = parseSize(view.outside), outside = view.outside.trim() && !Number.isNaN(typed) ? typed : found.outside || 0;
    // The slider is the device. Its first place is one that is too small, whatever is typed, so that typing subtracts from the same device.
    const most = found.steps + Math.ceil(Math.max(outside, found.outside || 0) / found.step), first = Math.floor((searched[0].least + (found.outside || 0) - 1) / found.step);
    const place = Math.min(most, Math.max(1, Math.round(view.fits) || first || 1)), device = place * found.step, left = Math.max(0, device - outside), room = left - left % GRANULE;
    // Replayed at whole steps alone, and PyTorch's allocators alone; between two steps, it is said of the lower one.
    const at = row => {
        const event = row.stops && room ? row.stops[Math.floor(room / found.step) - 1] : undefined;
        return !room ? "nothing is left" : event === undefined ? "see below" : (event < 0 ? "before the first event" : "event " + formatCount(event)) +
            (room % found.step ? ", on " + formatBytes(room - room % found.step + outside) : "");
    };
    const ended = typeof found.endedBy === "number", rows = searched.map(row => {
        const enough = row.least + found.unsure, missing = bytes => formatBytesUp(bytes - room);
        const interval = format => format(row.least) + (found.unsure ? " to " + format(enough) : "");
        return [row.name, room < row.least ? "runs out of memory" : ended ? (room >= enough ? "gets past" : "may get past") + " the request that failed at event " +
            formatCount(found.endedBy) + "; what follows was not recorded" : room >= enough ? "finishes" : "may finish",
            room >= row.least ? "" : at(row),
            room >= row.least ? "" : interval(missing), interval(bytes => formatBytesUp(bytes + outside))];
    });
    Object.assign(byId("fits-size"), {max: most, value: place});
    byId("fits-size").setAttribute("aria-valuetext", formatBytes(device));
    byId("fits-shown").textContent = formatBytes(device);
    Object.assign(byId("fits").dataset, {device, room, outside});
    if (byId("fits-outside") !== document.activeElement)
        byId("fits-outside").value = view.outside || (found.outside ? formatBytes(found.outside).replace("\u00a0", " ") : "");
    byId("fits-outside").setAttribute("aria-invalid", String(Number.isNaN(typed)));
    byId("fits-note").textContent = (outside ? formatBytes(outside) + " are subtracted for contexts, libraries and NCCL" + (view.outside ? "" : ", as the recording measured them")
        : "Contexts, libraries and NCCL are not subtracted: the recording did not measure them") +
        (ended ? ". The recording ends with a request that failed: what the program wanted afterwards may need a larger device" : "") +
        (found.unsure ? ". The recording begins late, so sizes are intervals." : ". Smallest devices are exact to 2\u00a0MiB.");
    const typeable = bytes => bytes % (1 << 20) ? String(bytes) : bytes / (1 << 20) + "M";
    byId("fits-command").textContent = "tarn report --fits " + typeable(device) + " --outside " + typeable(outside) + " " + fileWord(view.model.file.name);
    replaceContent("fits", makeTable(null, [{name: "allocator"}, {name: "on this device"}, {name: "stops at"}, {name: "missing", number: true}, {name: "smallest device", number: true}], rows));
}

// The settings of the allocator, and what only tarn's files have.
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
            [item.suspended && "suspended", item.ofGraphs ? "only graphs hold it" : item.held && "held by a graph"].filter(text => text).join(", ") || "in use"]);
    const graphs = file.graphs.filter(here), maySleep = graphs.some(item => file.pools[item.pool] !== "default pool");
    add(maySleep ? "Graphs: a launch fails while a private pool that the graph refers to sleeps" : "Graphs", [bytes("graph"), {name: "refers to"}, bytes("blocks"), bytes("size"), bytes("gone"), bytes("size of those")],
        graphs, item => [formatCount(item.number), file.pools[item.pool], formatCount(item.blocks), formatBytes(item.size),
            formatCount(item.gone), formatBytes(item.goneSize)]);
    add("Handles", [{name: "library"}, bytes("handles"), bytes("in use")], file.handles.filter(here),
        item => [item.library, formatCount(item.count), formatCount(item.inUse)]);
    add("Workspaces", [{name: "library"}, {name: "stream"}, bytes("size"), {name: "address"}], file.workspaces.filter(here),
        item => [item.library, file.streams[item.stream], formatBytes(item.size), formatAddress(item.address)]);
    if (file.settings.there)
        tables.push(element("section", {}, makeTable("Settings of the allocator", [{name: "setting"}, {name: "value"}],
            [["configuration", file.settings.conf || "the default"], ["expandable segments", file.settings.expandable ? "yes" : "no"]])));
    byId("facts-section").hidden = !tables.length;
    replaceContent("facts", ...tables);
}
