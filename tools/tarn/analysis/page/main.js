// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// The page as a whole: what is chosen (file, device, moment, block, grouping), and who is told when it changes.

const chosen = {model: null, grouping: null, moment: 0, block: -1, by: "tag", groupsBy: "site", axis: "time", opened: new Set(),
    filter: null, lines: 12};
const models = []; // by file: by device
let timeline, addressMap, grouping = 0;

function showTooltip(lines, event) {
    const tooltip = byId("tooltip");
    tooltip.hidden = !lines;
    if (!lines)
        return;
    tooltip.replaceChildren(...lines.filter(line => line).map(line => element("div", {}, line)));
    const width = tooltip.offsetWidth, height = tooltip.offsetHeight;
    tooltip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - width - 8)) + "px";
    tooltip.style.top = (event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 18) + "px";
}

// --- what is chosen ---

// The title and the cursor at once, the rest when there is time: of moments that follow each other quickly only the last is shown.
let showing = 0;
async function chooseMoment(moment) {
    const number = ++showing, model = chosen.model;
    chosen.moment = moment;
    timeline.select(moment);
    byId("moment-title").textContent = model.device.hasTrace
        ? "After event " + formatCount(moment) + " of " + formatCount(model.events) +
            (model.device.hasTimes ? ", " + formatTime(model.times[moment]) : "")
        : "The state that was recorded";
    for (const part of [showSums, showLegend, showGroupTable, showBlockTable, showMap]) {
        await nextTask();
        if (number !== showing)
            return;
        part();
    }
    document.body.dataset.moment = String(moment);
}

function showSums() {
    const model = chosen.model, state = model.stateAt(chosen.moment), known = state.reserved > 0 || !state.allocated;
    const facts = [["allocated", formatBytes(state.allocated), plural(state.blocks, "block")]];
    if (known)
        facts.push(["reserved", formatBytes(state.reserved), formatBytes(state.reserved - state.allocated) + " more than allocated"],
            ["free in reserved", formatBytes(state.free), plural(state.holes, "hole") + ", largest " + formatBytes(state.largest)],
            ["fragmentation", formatShare(model.fragmentation(state), 1), "of the free memory is not in its largest hole"]);
    else
        facts.push(["reserved", "not recorded", "the file shows no segments"]);
    facts.push(["waiting", formatBytes(state.waiting), plural(state.waitingBlocks, "block") + " freed, in use by a stream"]);
    const {allocated, waiting, reserved, free, largest} = state;
    Object.assign(byId("sums").dataset, {allocated, waiting, reserved, free, largest});
    replaceContent("sums", ...facts.map(([name, value, more]) => element("div", {class: "sum"},
        element("span", {class: "name"}, name), element("span", {class: "value"}, value), element("span", {class: "more"}, more))));
    byId("map-part").hidden = !known;
}

function showMap() {
    addressMap.show(chosen.model, chosen.grouping, chosen.moment, chosen.lines);
}

function showGroupTable() {
    showGroups(chosen.model, chosen.moment, chosen.groupsBy, chosen.opened, chosen.filter, filter => {
        chosen.filter = filter;
        showGroupTable();
        showBlockTable();
    });
}

function showBlockTable() {
    showBlocks(chosen.model, chosen.moment, chosen.groupsBy, chosen.opened, chosen.filter, chooseBlock);
}

function chooseBlock(block) {
    chosen.block = block;
    timeline.selectBlock(block);
    addressMap.select(block);
    showBlock(chosen.model, block, chooseMoment);
}

function showLegend() {
    const sums = atOnce(chosen.model.sumsAt(chosen.grouping, chosen.moment));
    const items = chosen.grouping.groups.map((group, number) => {
        const swatch = element("span", {class: "swatch", style: "background:" + groupColour(group, number)});
        const size = element("span", {class: "size"}, formatBytes(sums[number]));
        const opener = group.opens ? element("button", {type: "button", class: "opener", title: "Show the parts of " + group.label,
            "aria-label": "Show the parts of " + group.label, onclick: () => toggleTag(group.label)}, "+") : null;
        return element("li", {title: group.label}, swatch, element("span", {class: "label"}, group.label), opener, size);
    });
    const opened = chosen.by === "tag" ? [...chosen.opened].sort() : [];
    replaceContent("opened", ...opened.map(tag => element("button", {type: "button", class: "chip",
        title: "Put the parts of " + tag + " together again", onclick: () => toggleTag(tag)}, tag + " \u2212")));
    replaceContent("legend", ...items);
}

function toggleTag(tag) {
    if (!chosen.opened.delete(tag))
        chosen.opened.add(tag);
    for (const other of [...chosen.opened])
        if (!chosen.opened.has(tag) && other.startsWith(tag + "/"))
            chosen.opened.delete(other);
    regroup();
}

async function regroup() {
    const number = ++grouping;
    const made = await inSlices(chosen.model.grouping(chosen.by, chosen.opened), () => number !== grouping);
    if (!made || number !== grouping)
        return;
    chosen.grouping = made;
    chosen.filter = null;
    timeline.show(chosen.model, made, chosen.axis);
    await chooseMoment(Math.min(chosen.moment, chosen.model.events));
}

async function chooseModel(model) {
    chosen.model = model;
    chosen.moment = model.device.peak;
    chosen.block = timeline.block = addressMap.block = -1;
    chosen.opened.clear();
    const {hasTags, hasStacks} = model.device;
    chosen.by = hasTags ? "tag" : hasStacks ? "site" : "stream";
    chosen.groupsBy = hasStacks ? "site" : chosen.by;
    byId("groups-by").value = chosen.groupsBy;
    chosen.axis = model.device.hasTimes ? "time" : "events";
    byId("by").value = chosen.by;
    byId("axis").value = chosen.axis;
    byId("axis").disabled = !model.device.hasTimes;
    byId("timeline-section").hidden = !model.device.hasTrace;
    for (const id of ["at-peak", "at-peak-reserved", "at-end", "at-previous", "at-next"])
        byId(id).hidden = !model.device.hasTrace;
    replaceContent("block", element("p", {class: "note"}, "Choose a block in a chart or in the list to see all of it."));
    byId("head-facts").textContent = headFacts(model);
    replaceContent("partial", model.device.partial ? element("p", {class: "warning"}, model.device.partial) : null);
    showOoms(model, chooseMoment);
    showDeviceFacts(model);
    compareFiles();
    await regroup();
    const largest = model.alive(chosen.moment)[0];
    if (chosen.model === model && largest !== undefined)
        chooseBlock(largest);
}

// The device that is looked at, in both files; where one lacks it, its first.
function compareFiles() {
    if (models.length < 2)
        return;
    const number = chosen.model.device.device;
    const [before, after] = models.map(devices => devices.find(model => model.device.device === number) || devices[0]);
    showComparison(before, after, byId("compare-by").value);
}

function headFacts(model) {
    const device = model.device, facts = ["by " + model.file.by];
    if (device.hasTrace)
        facts.push(plural(model.events, "event"), plural(model.blocks.count, "block"),
            device.hasTimes ? formatTime(model.times[model.events]) : "no times");
    else
        facts.push("no trace, so its state");
    return facts.join(" \u00b7 ");
}

// --- setting up ---

function bind(models) {
    const choices = [];
    models.forEach((devices, file) => devices.forEach((model, device) => choices.push({file, device, model})));
    const name = ({file, model}) => (models.length > 1 ? "AB"[file] + ": " : "") + model.file.name + ", device " + model.device.device +
        (model.device.name ? " (" + model.device.name + ")" : "");
    byId("model").replaceChildren(...choices.map((choice, i) => element("option", {value: i}, name(choice))));
    byId("model").addEventListener("change", event => chooseModel(choices[event.target.value].model));
    byId("model").hidden = choices.length < 2;
    byId("by").addEventListener("change", event => {
        chosen.by = event.target.value;
        regroup();
    });
    byId("groups-by").addEventListener("change", event => {
        chosen.groupsBy = event.target.value;
        chosen.filter = null;
        showGroupTable();
        showBlockTable();
    });
    byId("axis").addEventListener("change", event => {
        chosen.axis = event.target.value;
        timeline.show(chosen.model, chosen.grouping, chosen.axis);
        timeline.select(chosen.moment);
    });
    byId("lines").addEventListener("change", event => {
        chosen.lines = Number(event.target.value);
        showMap();
    });
    const moments = {"at-peak": model => model.device.peak, "at-peak-reserved": model => model.device.peakReserved,
        "at-end": model => model.events, "at-previous": () => Math.max(0, chosen.moment - 1),
        "at-next": model => Math.min(model.events, chosen.moment + 1)};
    for (const [id, moment] of Object.entries(moments))
        byId(id).addEventListener("click", () => chooseMoment(moment(chosen.model)));
    byId("zoom-in").addEventListener("click", () => timeline.scale(2));
    byId("zoom-out").addEventListener("click", () => timeline.scale(0.5));
    byId("zoom-reset").addEventListener("click", () => timeline.reset());
    let resizing = 0;
    const redraw = () => {
        cancelAnimationFrame(resizing);
        resizing = requestAnimationFrame(() => {
            if (!chosen.grouping)
                return;
            timeline.draw();
            addressMap.draw();
            compareFiles();
        });
    };
    window.addEventListener("resize", redraw);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    byId("compare-section").hidden = models.length < 2;
    byId("compare-by").addEventListener("change", redraw);
}

async function readModels(description) {
    for (const file of description.files) {
        const shared = await inSlices(decodeArrays(file.arrays));
        Object.assign(file, shared);
        const devices = [];
        for (const device of file.traces) {
            const arrays = await inSlices(decodeArrays(device.arrays));
            const model = new Model(file, device, arrays);
            await inSlices(model.prepare());
            devices.push(model);
        }
        models.push(devices);
    }
}

async function start() {
    const listeners = {onMoment: chooseMoment, onBlock: chooseBlock, onHover: showTooltip, onDrawn: single => {
        byId("detail").textContent = single >= 0 ? plural(single, "block") + " in view, one by one where there is room" : "drawn by group; zoom in for blocks";
        document.body.dataset.drawn = String(Math.round(performance.now()));
    }};
    timeline = new Timeline(byId("timeline"), listeners);
    addressMap = new AddressMap(byId("map"), listeners);
    await nextTask();
    await readModels(JSON.parse(byId("description").textContent));
    byId("reading").hidden = true;
    byId("report").hidden = false;
    bind(models);
    await chooseModel(models[0][0]);
    document.body.dataset.ready = String(Math.round(performance.now()));
}

start().catch(error => {
    byId("reading").hidden = false;
    byId("reading").textContent = "This page could not be shown: " + error.message;
    throw error;
});
