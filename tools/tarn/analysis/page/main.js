// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// The page as a whole: what is chosen (file, device, moment, block, grouping), and who is told when it changes.

// What a reader chooses. `first` is what is chosen without him: what a link leaves out.
const chosen = {model: null, place: 0, grouping: null, moment: 0, block: -1, by: "tag", groupsBy: "site", axis: "time", opened: new Set(),
    search: "", least: "", most: "", filter: null, legend: new Set(), range: null, view: null, height: null, lines: 12, calls: [], compareBy: "site", ranksBy: "", fits: 0, outside: "",
    sortGroups: {key: "bytes", down: true}, sortBlocks: {key: "bytes", down: true}, sortRange: {key: "size", down: true}};
let first = {};
const models = []; // by file: by device
let choices = []; // the same in one row: what the list of files and devices has
let ranks = null; // where more than two files are the ranks of one job: what `tarn report --json` says of them
let timeline, addressMap, calls, events, changes = 0;

// What the parts of the page tell: the reader has chosen something there.
const tell = {
    onMoment: moment => chooseMoment(moment),
    onBlock: block => chooseBlock(block),
    onHover: (lines, event) => showTooltip(lines, event),
    onFilter: filter => {
        chosen.filter = filter;
        refilter(FACET.group);
    },
    onSort: (table, sorting) => {
        chosen[table] = sorting;
        ({sortGroups: showGroupTable, sortBlocks: showBlockTable, sortRange: showRangeTable})[table]();
        saveLink();
    },
    onRange: range => chooseRange(range),
    onRangeEnd: side => chooseRangeEnd(side),
    onView: () => {
        chosen.view = timeline.view;
        chosen.height = timeline.yZoom.high - timeline.yZoom.low === 1 ? null : timeline.yZoom;
        saveLink();
    },
    onFocus: labels => {
        chosen.calls = labels;
        saveLink();
    },
    onPresent: () => events.draw(timeline),
    onDrawn: single => {
        const detail = single >= 0 ? plural(single, "block") + " in view, drawn one by one where there is room" : "drawn by group; zoom in to see blocks";
        if (byId("detail").textContent !== detail)
            byId("detail").textContent = detail;
        document.body.dataset.drawn = String(Math.round(performance.now()));
    },
};

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
        : "The recorded state";
    saveLink();
    for (const part of [showSums, showLegend, showGroupTable, showBlockTable, showCalls, showRangeTable, showMap]) {
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
        facts.push(["reserved", formatBytes(state.reserved), "from the driver"],
            ["free in reserved", formatBytes(state.free), formatShare(state.free, state.reserved) + " of it, in " +
                plural(state.holes, "hole")],
            ["largest hole", formatBytes(state.largest), "no larger request fits into what is free"]);
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

function showCalls() {
    const model = chosen.model;
    byId("calls").hidden = !model.device.hasStacks;
    if (model.device.hasStacks)
        calls.show(model, model.alive(chosen.moment), chosen.calls);
}

function showGroupTable() {
    showGroups(chosen, tell);
}

function showBlockTable() {
    showBlocks(chosen, tell);
}

function showRangeTable() {
    showRange(chosen, tell);
}

function chooseBlock(block) {
    chosen.block = block;
    timeline.selectBlock(block);
    addressMap.select(block);
    showBlock(chosen.model, block, chooseMoment);
    saveLink();
}

function chooseRange(range) {
    chosen.range = range && range.from !== range.to ? {from: Math.min(range.from, range.to), to: Math.max(range.from, range.to)} : null;
    timeline.selectRange(chosen.range);
    showRanging(false);
    showRangeTable();
    saveLink();
}

// One end at the chosen moment; the other stays, or is the beginning or the end.
function chooseRangeEnd(side) {
    const range = chosen.range || {from: 0, to: chosen.model.events};
    chooseRange({...range, [side]: chosen.moment});
}

function showRanging(on) {
    timeline.ranging = on;
    byId("ranging").setAttribute("aria-pressed", String(on));
}

function showLegend() {
    const {grouping, legend} = chosen, sums = atOnce(chosen.model.sumsAt(grouping, chosen.moment));
    const items = grouping.groups.map((group, number) => {
        const swatch = element("span", {class: "swatch", style: "background:" + groupColour(group, number)});
        const size = element("span", {class: "size"}, formatBytes(sums[number]));
        const opener = group.opens ? element("button", {type: "button", class: "opener", title: "Show the parts of " + group.label,
            "aria-label": "Show the parts of " + group.label, onclick: () => toggleTag(group.label)}, "+") : null;
        const entry = element("button", {type: "button", class: "entry", "aria-pressed": String(legend.has(legendKey(group))),
            onclick: () => toggleLegend(legendKey(group))}, swatch, element("span", {class: "label"}, group.label), size);
        return element("li", {title: group.label, class: grouping.on && !grouping.on[number] ? "off" : null}, entry, opener);
    });
    const tags = chosen.by === "tag" ? [...chosen.opened].sort() : [];
    replaceContent("opened", ...tags.map(tag => element("button", {type: "button", class: "chip",
        title: "Put the parts of " + tag + " together again", onclick: () => toggleTag(tag)}, tag + " \u2212")));
    replaceContent("legend", ...items);
}

function toggleLegend(key) {
    if (!chosen.legend.delete(key))
        chosen.legend.add(key);
    if (chosen.legend.size === chosen.grouping.groups.length)
        chosen.legend.clear();
    refilter(FACET.legend);
}

function toggleTag(tag) {
    if (!chosen.opened.delete(tag))
        chosen.opened.add(tag);
    for (const other of [...chosen.opened])
        if (!chosen.opened.has(tag) && other.startsWith(tag + "/"))
            chosen.opened.delete(other);
    regroup();
}

// Looks again at what the facets leave out, and divides the rest; what is asked for meanwhile counts alone.
let wanted = 0;
async function refilter(facets) {
    const number = ++changes, stale = () => number !== changes, model = chosen.model;
    wanted |= facets;
    document.body.dataset.filtering = "";
    saveLink();
    showFilters();
    const apply = {
        [FACET.search]: () => applySearch(model, chosen.search),
        [FACET.size]: () => applySizes(model, chosen.least, chosen.most),
        [FACET.group]: () => applyGroup(model, chosen.groupsBy, chosen.opened, chosen.filter),
    };
    for (const facet of [FACET.search, FACET.size, FACET.group]) {
        if (!(wanted & facet))
            continue;
        await inSlices(apply[facet](), stale);
        if (stale())
            return;
    }
    let made = chosen.grouping;
    if (!made || wanted & ~FACET.legend)
        made = await inSlices(model.grouping(chosen.by, chosen.opened), stale);
    if (stale() || !made)
        return;
    await inSlices(applyLegend(model, made, chosen.legend), stale);
    if (stale())
        return;
    wanted = 0;
    made.filtered = Boolean(chosen.search.trim() || chosen.least.trim() || chosen.most.trim() || chosen.filter !== null);
    chosen.grouping = made;
    showMatches();
    timeline.show(model, made, chosen.axis);
    await timeline.settled(); // the chart first
    if (stale())
        return;
    await chooseMoment(Math.min(chosen.moment, model.events));
    if (!stale())
        delete document.body.dataset.filtering;
}

const regroup = () => refilter(FACET.group); // at least: what a group is has changed

function showFilters() {
    for (const [id, field] of [["search", "search"], ["least", "least"], ["most", "most"]])
        if (byId(id) !== document.activeElement)
            byId(id).value = chosen[field];
    for (const id of ["least", "most"])
        byId(id).setAttribute("aria-invalid", String(Number.isNaN(parseSize(byId(id).value))));
}

function showMatches() {
    const {model, grouping} = chosen, active = grouping.filtered || grouping.on;
    byId("clear").hidden = !active;
    let count = 0;
    for (let i = 0; active && i < model.blocks.count; i++)
        count += model.fails[i] === 0;
    byId("matches").textContent = active && !count ? "no block matches" : active ? formatCount(count) + " of " + plural(model.blocks.count, "block") +
        (chosen.filter !== null ? " \u00b7 only " + chosen.filter : "") : "";
    byId("matches").dataset.count = active ? count : model.blocks.count;
}

function clearFilters() {
    Object.assign(chosen, {search: "", least: "", most: "", filter: null, legend: new Set()});
    for (const id of ["search", "least", "most"])
        byId(id).value = "";
    refilter(ALL_FACETS);
}

// --- the link ---

const STEP_MS = 1000; // choices that follow each other sooner are one step of the browser's history
let saving = 0, stepped = 0, following = false;
let read = location.hash; // the address that the choices follow from or were saved in
function saveLink() {
    clearTimeout(saving);
    saving = setTimeout(() => {
        const text = writeLink(chosen, first), address = text ? "#" + text : location.href.split("#")[0], now = performance.now();
        if (text === location.hash.slice(1))
            return;
        if (location.hash !== read) // it has just been changed: followLink is about to read it
            return;
        if (following || now - stepped < STEP_MS)
            history.replaceState(null, "", address);
        else
            history.pushState(null, "", address);
        read = location.hash;
        stepped = now;
    }, 150);
}

// Without a link: of several ranks or devices the one that their first sentence is about; else the first that ran out of memory, if one did.
function firstPlace() {
    const model = ranks && modelOfRank(firstRank(ranks), models);
    return Math.max(0, choices.findIndex(choice => model ? choice.model === model : choice.model.device.ooms.length));
}

async function followLink() {
    const link = readLink(location.hash), choice = choices[link.place] || choices[firstPlace()];
    following = true;
    await chooseModel(choice.model, link);
    setTimeout(() => { following = false; }, 400); // what it chose is saved by then
}

// With `link` what it says, else what the recording suggests.
async function chooseModel(model, link = {}) {
    const {hasStacks, hasTrace, hasTimes} = model.device;
    const by = firstGrouping(model.device);
    const failed = model.device.ooms[model.device.ooms.length - 1];
    first = {place: firstPlace(), moment: failed ? failed.moment : model.device.peak, block: null, by, groupsBy: hasStacks ? "site" : by, axis: hasTimes ? "time" : "events", lines: 12,
        search: "", least: "", most: "", filter: null, legend: new Set(), opened: new Set(), range: null, view: null, height: null, calls: [], compareBy: "site",
        ranksBy: ranks ? ranks.by : "", fits: 0, outside: "", sortGroups: {key: "bytes", down: true}, sortBlocks: {key: "bytes", down: true}, sortRange: {key: "size", down: true}};
    const choice = (field, values) => link[field] === undefined || values.includes(link[field]) ? {} : {[field]: first[field]};
    const groupings = Object.keys(BY_NAMES), inTrace = moment => moment >= 0 && moment <= model.events && moment % 1 === 0;
    Object.assign(chosen, first, {legend: new Set(), opened: new Set()}, link, choice("by", groupings), choice("groupsBy", groupings),
        choice("compareBy", groupings), choice("ranksBy", Object.keys(RANK_BY_NAMES)), choice("axis", hasTimes ? ["time", "events"] : ["events"]), choice("lines", [12, 40, 150]),
        choice("moment", inTrace(link.moment) ? [link.moment] : []));
    for (const [field, known] of [["sortGroups", GROUP_VALUES], ["sortBlocks", {bytes: 1, lived: 1, address: 1, name: 1}], ["sortRange", RANGE_VALUES]])
        if (!Object.prototype.hasOwnProperty.call(known, chosen[field].key))
            chosen[field] = first[field];
    if (chosen.range && !(inTrace(chosen.range.from) && inTrace(chosen.range.to)))
        chosen.range = null;
    const view = chosen.view, height = chosen.height, block = chosen.block;
    chosen.model = model;
    chosen.grouping = null;
    showing++; // what still shows a moment of the model before has no groups any more
    chosen.place = choices.findIndex(choice => choice.model === model);
    chosen.block = timeline.block = addressMap.block = -1;
    byId("model").value = chosen.place;
    byId("groups-by").value = chosen.groupsBy;
    byId("by").value = chosen.by;
    byId("axis").value = chosen.axis;
    byId("lines").value = chosen.lines;
    byId("compare-by").value = chosen.compareBy;
    byId("ranks-by").value = chosen.ranksBy;
    byId("axis").disabled = !hasTimes;
    for (const id of ["timeline-section", "ranging"])
        byId(id).hidden = !hasTrace;
    byId("free-part").hidden = byId("reserved-sample").hidden = !model.device.states.peakReserved.reserved;
    for (const id of ["at-peak", "at-peak-reserved", "at-end", "at-previous", "at-next", "range-from", "range-to"])
        byId(id).hidden = !hasTrace;
    showRanging(false);
    timeline.selectRange(chosen.range);
    replaceContent("block", element("p", {class: "note"}, "Select a block in a chart or in the list to see its details."));
    byId("head-facts").textContent = headFacts(model);
    showCards(model);
    byId("cards-of").hidden = choices.length < 2;
    byId("cards-of").textContent = choices.length < 2 ? "" : nameOf(choices[chosen.place]) + ":";
    replaceContent("partial", model.device.partial ? element("p", {class: "warning"}, model.device.partial) : null);
    showAdvice(model, choices.length > 1 ? nameOf(choices[chosen.place]) : "", moment => {
        chooseMoment(moment);
        byId("moment-title").scrollIntoView({block: "center"});
    });
    showOoms(model, chooseMoment);
    showWhatIf(model);
    showFits(chosen);
    showDeviceFacts(model);
    compareFiles();
    await inSlices(events.show(model));
    await refilter(ALL_FACETS);
    if (chosen.model !== model)
        return;
    if (height && hasTrace)
        timeline.yZoom = height;
    if (view && hasTrace)
        timeline.view = view;
    else if (height && hasTrace)
        timeline.draw();
    const largest = block !== null && block >= 0 && block < model.blocks.count && block % 1 === 0 ? block : model.alive(chosen.moment)[0];
    if (largest !== undefined)
        chooseBlock(largest);
    if (block === null)
        first.firstBlock = chosen.block;
}

// The device that is looked at, in the first file and the last; where one lacks it, its first. Null if no two files are compared.
function comparedModels() {
    const number = chosen.model.device.device;
    return models.length < 2 || ranks ? null
        : [models[0], models[models.length - 1]].map(devices => devices.find(model => model.device.device === number) || devices[0]);
}

function compareFiles() {
    byId("ranks-section").hidden = !ranks;
    const compared = comparedModels();
    byId("compare-section").hidden = byId("compare-said").hidden = !compared;
    if (ranks)
        showRanks(ranks, models, chosen.model, byId("ranks-by").value, chooseModel);
    if (compared)
        showComparison(...compared, byId("compare-by").value);
}

function headFacts(model) {
    const device = model.device, facts = [...choices.length > 1 ? [nameOf(choices[chosen.place])] : [], "recorded by " + model.file.by];
    if (device.hasTrace)
        facts.push(recordedEvents(device), plural(model.blocks.count, "block") + (device.leftOut ? " here" : ""),
            device.hasTimes ? formatTime(model.times[model.events]) : "no times");
    else
        facts.push("a state without a trace");
    return facts.join(" \u00b7 ");
}

// --- setting up ---

// What a file and device are called where there are several.
function nameOf({file, model}) {
    return (models.length > 1 ? "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[file % 26] + ": " : "") + model.file.name + ", device " +
        model.device.device + (model.device.name ? " (" + model.device.name + ")" : "");
}

// The list of all files and devices, and the title, which are those of files that a reader opened too.
function listModels() {
    choices = [];
    models.forEach((devices, file) => devices.forEach(model => choices.push({file, model})));
    byId("model").replaceChildren(...choices.map((choice, i) => element("option", {value: i}, nameOf(choice))));
    byId("model").hidden = choices.length < 2;
    const [first, second] = models.map(devices => devices[0].file.name);
    const title = first + (models.length === 2 ? " and " + second : models.length > 2 ? " and " + (models.length - 1) + " more" : "");
    document.querySelector("#report h1").textContent = title;
    document.title = title + " \u00b7 " + byId("maker").textContent;
}

function say(text) {
    byId("said").hidden = !text;
    byId("said").textContent = text;
}

// Pages, and snapshots together, since they may be ranks. If that fails each is tried alone, so that only those are missing which cannot be read.
async function readFiles(files) {
    const read = [], errors = [], snapshots = [];
    const attempt = async work => {
        try {
            const made = await work();
            if (made)
                read.push(made);
            return true;
        } catch (error) {
            errors.push(error.message);
            return false;
        }
    };
    for (const file of files)
        await attempt(async () => {
            const page = await readPage(file);
            if (!page)
                snapshots.push(file);
            return page && readModels(page);
        });
    const analysed = several => attempt(async () => readModels(await analyse(several), true));
    if (snapshots.length && !await analysed(snapshots) && snapshots.length > 1) {
        const good = [];
        errors.pop();
        for (const file of snapshots)
            await attempt(async () => void await analyse([file])) && good.push(file);
        if (good.length)
            await analysed(good);
    }
    return {read, errors};
}

// Pages and snapshots that a reader dropped: each becomes one more file to look at, and to compare with the first.
async function openFiles(files) {
    say("");
    const reading = byId("reading"), first = !models.length;
    reading.hidden = !files.length;
    reading.textContent = "Reading " + files.map(file => file.name).join(", ") + "\u2026";
    await new Promise(resolve => setTimeout(resolve, 50)); // until that is seen
    const {read, errors} = await readFiles(files);
    if (read.length)
        ranks = first && read.length === 1 ? read[0].ranks : null; // a file that comes later is compared with the first
    say(errors.join("; "));
    reading.hidden = true;
    if (models.length) {
        listRankGroupings(ranks);
        listModels();
        const last = models[first ? 0 : models.length - 1];
        byId("report").hidden = false;
        byId("welcome").hidden = true;
        if (first)
            await followLink();
        else if (last[0] !== chosen.model && files.length)
            await chooseModel(last[0]);
    }
    document.body.dataset.files = String(models.length);
}

// After a pause in typing.
function onTyping(id, field, facet) {
    let pause = 0;
    byId(id).addEventListener("input", () => {
        clearTimeout(pause);
        pause = setTimeout(() => {
            chosen[field] = byId(id).value;
            refilter(facet);
        }, 200);
    });
}

function bind() {
    byId("model").addEventListener("change", event => chooseModel(choices[event.target.value].model));
    byId("by").addEventListener("change", event => {
        chosen.by = event.target.value;
        chosen.legend.clear();
        regroup();
    });
    byId("groups-by").addEventListener("change", event => {
        const filtered = chosen.filter !== null;
        chosen.groupsBy = event.target.value;
        chosen.filter = null;
        if (filtered) {
            refilter(FACET.group);
            return;
        }
        showGroupTable();
        showBlockTable();
        showRangeTable();
        saveLink();
    });
    byId("axis").addEventListener("change", event => {
        chosen.axis = event.target.value;
        timeline.show(chosen.model, chosen.grouping, chosen.axis);
        timeline.select(chosen.moment);
        saveLink();
    });
    for (const [id, field, take] of [["fits-size", "fits", Number], ["fits-outside", "outside", String]])
        byId(id).addEventListener("input", event => {
            chosen[field] = take(event.target.value);
            showFits(chosen);
            saveLink();
        });
    byId("lines").addEventListener("change", event => {
        chosen.lines = Number(event.target.value);
        showMap();
        saveLink();
    });
    const moments = {"at-peak": model => model.device.peak, "at-peak-reserved": model => model.device.peakReserved,
        "at-end": model => model.events, "at-previous": () => Math.max(0, chosen.moment - 1),
        "at-next": model => Math.min(model.events, chosen.moment + 1)};
    for (const [id, moment] of Object.entries(moments))
        byId(id).addEventListener("click", () => chooseMoment(moment(chosen.model)));
    const buttons = {"zoom-in": () => timeline.scale(2), "zoom-out": () => timeline.scale(0.5), "zoom-reset": () => timeline.reset(),
        "ranging": () => showRanging(byId("ranging").getAttribute("aria-pressed") !== "true"),
        "range-from": () => chooseRangeEnd("from"), "range-to": () => chooseRangeEnd("to"), "range-clear": () => chooseRange(null),
        "clear": clearFilters, "print": () => window.print(),
        "copy-summary": () => copyText(summaryOf(chosen.model, comparedModels())).then(() => say("The summary is in the clipboard, as Markdown."), error => say(error.message)),
        "save-png": () => savePng(timeline, chosen.model, chosen.grouping).catch(error => say(error.message)),
        "save-svg": () => saveSvg(timeline, chosen.model, chosen.grouping),
        "save-csv": () => saveFile(saveName(chosen.model) + "-chart.csv", "text/csv", chartCsv(timeline, chosen.model, chosen.grouping)),
        "save-blocks": () => saveFile(saveName(chosen.model) + "-blocks.csv", "text/csv", blocksCsv(chosen.model, chosen.moment))};
    for (const [id, action] of Object.entries(buttons))
        byId(id).addEventListener("click", action);
    onTyping("search", "search", FACET.search);
    onTyping("least", "least", FACET.size);
    onTyping("most", "most", FACET.size);
    byId("filters").addEventListener("submit", event => event.preventDefault());
    window.addEventListener("keydown", event => {
        if (event.key === "/" && !event.target.closest("input, select, textarea")) {
            event.preventDefault();
            byId("search").focus();
        }
    });
    acceptFiles(byId("drop"), [byId("open-file"), byId("open-first")], openFiles);
    let resizing = 0;
    const redraw = () => {
        cancelAnimationFrame(resizing);
        resizing = requestAnimationFrame(() => {
            if (!chosen.grouping)
                return;
            timeline.draw();
            addressMap.draw();
            if (chosen.model.device.hasStacks)
                calls.draw();
            compareFiles();
        });
    };
    window.addEventListener("resize", redraw);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    for (const [id, field] of [["compare-by", "compareBy"], ["ranks-by", "ranksBy"]])
        byId(id).addEventListener("change", event => {
            chosen[field] = event.target.value;
            saveLink();
            redraw();
        });
    byId("ranks-details").addEventListener("toggle", redraw);
    window.addEventListener("hashchange", () => {
        read = location.hash;
        if (models.length)
            followLink();
    });
}

// The files of a page's data, which `here` says were read by the page itself. Gives the description.
async function readModels(bytes, here = false) {
    const found = [], description = readDescription(bytes);
    for (const file of description.files) {
        Object.assign(file, await inSlices(decodeArrays(file.arrays, bytes)), {here});
        const devices = [];
        for (const device of file.traces) {
            const model = new Model(file, device, await inSlices(decodeArrays(device.arrays, bytes)));
            await inSlices(model.prepare());
            devices.push(model);
        }
        found.push(devices);
    }
    models.push(...found);
    return description;
}

async function start() {
    timeline = new Timeline(byId("timeline"), tell);
    addressMap = new AddressMap(byId("map"), tell);
    calls = new Calls(byId("calls"), tell);
    events = new EventRows(byId("events"), tell);
    await nextTask();
    const data = byId("data");
    bind();
    if (!data) {
        byId("reading").hidden = true;
        byId("welcome").hidden = false;
        document.body.dataset.ready = String(Math.round(performance.now()));
        return;
    }
    ranks = (await readModels(await unpackData(data))).ranks;
    listRankGroupings(ranks);
    byId("reading").hidden = true;
    byId("report").hidden = false;
    listModels();
    await followLink();
    document.body.dataset.ready = String(Math.round(performance.now()));
}

start().catch(error => {
    byId("reading").hidden = false;
    byId("reading").textContent = "This page could not be shown: " + error.message;
    throw error;
});
