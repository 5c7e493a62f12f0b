// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// The recording in a few figures: as cards on top, and as Markdown for an issue, with a chart of characters.

const TEXT_CHART = {columns: 72, lines: 8};
const PYTHON_RECORDS = "torch.cuda.memory._record_memory_history(enabled=\"all\", context=\"all\")";

const timeOf = (model, moment) => model.device.hasTimes ? formatTime(model.times[moment]) : "event " + formatCount(moment);

// When an error happened: the moment that shows it is the one before it.
const failedAt = (model, oom) => model.device.hasTimes ? formatTime(model.times[Math.min(oom.moment + 1, model.events)]) : "event " + formatCount(oom.event);

// What matters of a device's recording, found once: states with all their sums at the peak, at that of reserved memory, and where holes matter
// most, which is at the last error, if there is one (`failed`).
function figuresOf(model) {
    const {device} = model, last = device.ooms[device.ooms.length - 1];
    model.figures = model.figures || {peak: model.stateAt(device.peak), reserved: model.stateAt(device.peakReserved), failed: last || null,
        holes: model.stateAt(last ? last.moment : device.peakReserved)};
    return model.figures;
}

// How many events a trace has, those that a page leaves out among them.
const recordedEvents = ({events, leftOut}) => plural(events + leftOut, "event");

// [what, how much, more] of each card.
function cardsOf(model) {
    const {device, file} = model, {peak, reserved, holes, failed} = figuresOf(model), about = file.devices.find(item => item.number === device.device);
    const when = moment => device.hasTrace ? "at " + timeOf(model, moment) : "in the recorded state", known = reserved.reserved > 0, most = device.hasTrace ? "peak " : "";
    return [
        [most + "allocated", formatBytes(peak.allocated), when(device.peak) + ", " + plural(peak.blocks, "block")],
        [most + "reserved", known ? formatBytes(reserved.reserved) : device.countedReserved ? formatBytes(device.countedReserved) : "not recorded",
            known ? when(device.peakReserved) : "the file shows no segments"],
        ["free in holes", known ? formatBytes(holes.free) : "\u2013", known ? formatShare(holes.free, holes.reserved) + " of what is reserved" +
            (failed ? " at the error" : device.hasTrace ? " then" : "") + ", in " + plural(holes.holes, "hole") : ""],
        ["out of memory", failed ? "at " + failedAt(model, failed) : device.showsOoms ? "never" : "not recorded", failed ? formatBytes(failed.asked) + " requested, " +
            formatBytes(failed.deviceFree) + " free on the device" : device.showsOoms ? "in this recording" : "a " + (device.hasTrace ? "timeline" : "state") + " does not show it"],
        ["device", device.name || "device " + device.device, about ? formatBytes(about.total) + " of memory" : device.name ? "device " + device.device : ""],
        ["recorded by", file.by, device.hasTrace ? recordedEvents(device) + (device.hasTimes ? " in " + formatTime(model.times[model.events]) : "") : "a state without a trace"],
    ];
}

function showCards(model) {
    replaceContent("cards", ...cardsOf(model).map(([name, value, more]) => element("div", {class: "sum"},
        element("span", {class: "name"}, name), element("span", {class: "value"}, value), element("span", {class: "more"}, more))));
    const {hasStacks, hasTrace} = model.device, none = !hasTrace || !hasStacks && model.blocks.count > 0, line = model.file.by === "PyTorch" ? PYTHON_RECORDS
        : model.file.by.startsWith("tarn ") && model.file.by !== "tarn run" ? "TARN_TRACE=stacks=all" : "";
    byId("no-stacks").hidden = !none || !line;
    byId("no-stacks-text").textContent = hasTrace ? "The recording has no stacks, so nobody can say which code allocates. This records them:"
        : "The file is a state without a trace, so it does not show when memory was allocated. This records a trace, if it runs first:";
    byId("no-stacks-line").textContent = line;
}

// A name from a file, as Markdown that shows it and does nothing else.
const asMarkdown = text => text.replace(/[\x00-\x1f\x7f]/g, "?").replace(/[\\`*_{}[\]<>()#+!|~$&]/g, "\\$&").replace(/@/g, "@\u200b").replace(/:\/\//g, ":\u200b//");

// The first sentence of an advice; the page has all of it.
const firstSentence = text => text.split(/(?<=\.) (?=[A-Z0-9])/)[0];

// Three sentences: who has the peak, what is reserved, and what went wrong. What an advice says of holes the second one leaves to it.
function sentencesOf(model) {
    const {device, file} = model, {peak, reserved, holes, failed} = figuresOf(model), by = firstGrouping(device), advice = failed ? null : device.advice[0];
    const most = model.groupsAt(device.peak, by, new Set())[0], when = moment => device.hasTrace ? ", at " + timeOf(model, moment) : "";
    const found = ["**" + asMarkdown(file.name) + "**, device " + device.device + (device.hasTrace ? ", has at most " : ", has ") + formatBytes(peak.allocated) + " allocated" + when(device.peak) +
        (most ? "; " + (2 * most.bytes > peak.allocated ? "most of it" : "the largest part,") + " by " + BY_NAMES[by] + ": " + asMarkdown(most.label) + " (" +
            formatShare(most.bytes, peak.allocated) + ")" : "") + "."];
    const free = advice && advice.kind === "fragmentation" ? "" : (failed ? "; at the error " : device.hasTrace ? "; then " : "; ") + formatBytes(holes.free) + " of it (" +
        formatShare(holes.free, holes.reserved) + ") are free, in " + plural(holes.holes, "hole") + " of at most " + formatBytes(holes.largest);
    found.push(reserved.reserved ? "It reserves " + (device.hasTrace ? "at most " : "") + formatBytes(reserved.reserved) + when(device.peakReserved) + free + "."
        : device.countedReserved ? "It reserves at most " + formatBytes(device.countedReserved) + "; in which segments was not recorded." : "What it reserves was not recorded.");
    const who = failed && failed.stack ? asMarkdown(model.siteLabel(failed.stack)) : "it";
    found.push(failed ? "It ran out of memory at " + failedAt(model, failed) + ", when " + who + " requested " + formatBytes(failed.asked) + " and the device had " +
            formatBytes(failed.deviceFree) + " free."
        : advice ? asMarkdown(firstSentence(advice.text)) : device.showsOoms ? "It never ran out of memory in this recording." : "The file is a " + (device.hasTrace ? "timeline" : "state without a trace") + ", so it shows no errors.");
    return found;
}

// Allocated memory over the trace, of each column the most, in blocks of eighths.
function textChart(model) {
    const {sampleMoment, sampleAllocated} = model.samples, {columns, lines} = TEXT_CHART, highest = new Float64Array(columns), {device} = model;
    const last = Math.max(1, device.hasTimes ? model.times[model.events] : model.events), top = Math.max(1, device.states.peak.allocated);
    for (let k = 0, column = 0; k < sampleMoment.length; k++) {
        const next = Math.min(columns - 1, Math.floor(columns * (device.hasTimes ? model.times[sampleMoment[k]] : sampleMoment[k]) / last));
        for (; column < next; column++) // what was there goes on
            highest[column + 1] = sampleAllocated[Math.max(0, k - 1)];
        highest[column] = Math.max(highest[column], sampleAllocated[k]);
    }
    const label = line => line === lines - 1 ? formatBytes(top) : line === 0 ? "0\u00a0B" : "";
    const row = line => label(line).padStart(9) + " \u2502" + [...highest].map(value =>
        " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"[Math.max(0, Math.min(8, Math.ceil(8 * (lines * value / top - line))))]).join("").trimEnd();
    const end = device.hasTimes ? formatTime(model.times[model.events]) : plural(model.events, "event");
    return [...d3.range(lines).reverse().map(row), " ".repeat(10) + "\u2514" + "\u2500".repeat(columns), "0".padStart(12) + end.padStart(columns - 1)].join("\n");
}

// Without a file's own text in a place where it could be more than text. Of two files that are compared, `compared`, first how.
function summaryOf(model, compared) {
    const cards = cardsOf(model).slice(0, 4), {device} = model;
    cards.push(["recorded", device.hasTrace ? recordedEvents(device) : "a state", asMarkdown(model.file.by)]);
    const line = cells => "| " + cells.join(" | ") + " |";
    const how = compared ? [compared.map(({file}) => "**" + asMarkdown(file.name) + "**").join(" and ") + ": " + asMarkdown(sayComparison(...compared, chosen.compareBy)), ""] : [];
    const text = [...how, sentencesOf(model).join(" "), "", line(cards.map(([name]) => name)), line(cards.map(() => "---")), line(cards.map(([, value, more]) => value + (more ? "<br>" + more : ""))),
        ...device.hasTrace ? ["", "```text", "allocated", textChart(model), "```"] : [], "", "Made by " + byId("maker").textContent + " (`tarn report`)."];
    return text.join("\n").replace(/\u00a0/g, " ") + "\n";
}

// By the clipboard, or where that is refused by what is selected.
async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
    } catch (error) {
        const area = element("textarea", {}, text);
        document.body.append(area);
        area.select();
        const done = document.execCommand("copy");
        area.remove();
        if (!done)
            throw new Error("the summary could not be copied: " + error.message);
    }
}
