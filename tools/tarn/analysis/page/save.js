// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// What is seen, as a file: the chart as SVG and PNG, tables as CSV.

const SVG_SPACE = "http://www.w3.org/2000/svg", PICTURE_SCALE = 2;

function saveFile(name, type, content) {
    const link = element("a", {href: URL.createObjectURL(new Blob([content], {type})), download: name});
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A name for a file, without its ending.
const saveName = model => model.file.name.replace(/\.(pickle|csv|json)?(\.zst|\.gz)?$/i, "") + "-device" + model.device.device;

function cssColour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const PICTURE = {title: 34, legend: 300, below: 34, beside: 18}; // room around the chart, pixels

// Draws the visible chart as a new SVG element, with axes, a legend and the name of the file.
function chartSvg(timeline, model, grouping) {
    const {seen, x, y, width, height} = timeline, groups = grouping.groups.length;
    const lines = (groups + 1) * 18, tall = Math.max(MARGIN.top + height + MARGIN.bottom, MARGIN.top + lines);
    const all = [PICTURE.beside + MARGIN.left + width + MARGIN.right + PICTURE.legend, PICTURE.title + tall + PICTURE.below];
    const outer = d3.select(document.createElementNS(SVG_SPACE, "svg")).attr("xmlns", SVG_SPACE).attr("viewBox", `0 0 ${all[0]} ${all[1]}`)
        .attr("width", all[0]).attr("height", all[1]).attr("font-family", "sans-serif").attr("font-size", 12);
    const whose = model.file.name + ", device " + model.device.device;
    outer.append("title").text(whose);
    outer.append("rect").attr("width", all[0]).attr("height", all[1]).attr("fill", cssColour("--page"));
    const write = (text, at, top, kind) => outer.append("text").attr("x", at).attr("y", top).attr("fill", cssColour(kind)).text(text);
    write(cutText(whose, 110), PICTURE.beside, 22, "--text").attr("font-size", 15).attr("font-weight", "bold");
    write("tarn report", all[0] - 10, 22, "--dim").attr("text-anchor", "end");
    const svg = outer.append("g").attr("transform", `translate(${PICTURE.beside},${PICTURE.title})`);
    const bottom = PICTURE.title + MARGIN.top + height + MARGIN.bottom + 16;
    write(timeline.axis === "time" ? "time since the first event" : "events", PICTURE.beside + MARGIN.left + width / 2, bottom, "--dim").attr("text-anchor", "middle");
    outer.append("text").attr("transform", `translate(14,${PICTURE.title + MARGIN.top + height / 2}) rotate(-90)`).attr("text-anchor", "middle")
        .attr("fill", cssColour("--dim")).text("allocated memory, by " + BY_NAMES[grouping.by]);
    svg.append("clipPath").attr("id", "inside").append("rect").attr("x", MARGIN.left).attr("y", MARGIN.top).attr("width", width)
        .attr("height", height);
    const inside = svg.append("g").attr("clip-path", "url(#inside)"), columns = d3.range(seen.count);
    const left = column => x(seen.low + column * seen.step), base = new Float64Array(seen.count);
    inside.append("path").attr("fill", "none").attr("stroke", cssColour("--reserved")).attr("stroke-width", 1.5)
        .attr("d", d3.line().curve(d3.curveStepAfter).x(left).y(c => y(model.reserved[seen.moments[c]]))(columns));
    grouping.groups.forEach((group, g) => {
        if (grouping.on && !grouping.on[g])
            return;
        const low = base.slice();
        columns.forEach(c => { base[c] += seen.sums[c * groups + g]; });
        const area = d3.area().curve(d3.curveStepAfter).x(left).y0(c => y(low[c])).y1(c => y(base[c]));
        inside.append("path").attr("fill", groupColour(group, g)).attr("d", area(columns)).append("title").text(group.label);
    });
    const ticks = timeline.ticks(), axis = (make, {values, texts}) => make.tickValues(values).tickFormat((_, i) => texts[i]);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${MARGIN.top + height})`).call(axis(d3.axisBottom(x), ticks.x));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${MARGIN.left},0)`).call(axis(d3.axisLeft(y), ticks.y));
    svg.selectAll(".axis text").attr("fill", cssColour("--dim"));
    svg.selectAll(".axis path, .axis line").attr("stroke", cssColour("--edge"));
    const entry = (label, line, paint) => {
        const at = svg.append("g").attr("transform", `translate(${MARGIN.left + width + 40},${MARGIN.top + line * 18})`);
        paint(at);
        at.append("text").attr("x", 18).attr("y", 11).attr("fill", cssColour("--text")).text(cutText(label, 40));
    };
    entry("reserved", 0, at => at.append("line").attr("x2", 12).attr("y1", 6).attr("y2", 6).attr("stroke", cssColour("--reserved")).attr("stroke-width", 1.5));
    grouping.groups.forEach((group, g) =>
        entry(group.label, g + 1, at => at.append("rect").attr("width", 12).attr("height", 12).attr("fill", groupColour(group, g))));
    return outer.node();
}

function saveSvg(timeline, model, grouping) {
    saveFile(saveName(model) + ".svg", "image/svg+xml", new XMLSerializer().serializeToString(chartSvg(timeline, model, grouping)));
}

async function savePng(timeline, model, grouping) {
    const svg = chartSvg(timeline, model, grouping), picture = new Image();
    const text = new XMLSerializer().serializeToString(svg);
    await new Promise((resolve, reject) => {
        Object.assign(picture, {onload: resolve, onerror: () => reject(new Error("the picture could not be drawn"))});
        picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
    });
    const canvas = document.createElement("canvas");
    canvas.width = svg.getAttribute("width") * PICTURE_SCALE;
    canvas.height = svg.getAttribute("height") * PICTURE_SCALE;
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise(resolve => canvas.toBlob(resolve, "image/png"));
    saveFile(saveName(model) + ".png", "image/png", blob);
}

// Texts of a recording are texts in a spreadsheet, too: one that begins like a formula gets a "'" in front.
function csvLine(cells) {
    const safe = cell => typeof cell === "string" && /^[=+@\t-]/.test(cell) ? "'" + cell : String(cell);
    return cells.map(safe).map(cell => /[",\n\r]/.test(cell) ? '"' + cell.replace(/"/g, '""') + '"' : cell).join(",") + "\r\n";
}

// The blocks that are looked at, at the chosen moment.
function blocksCsv(model, moment) {
    const b = model.blocks, never = value => value === NEVER ? "" : value;
    const head = ["address", "bytes", "allocated_at_event", "freed_at_event", "category", "tag", "call_site", "stream", "pool", "thread",
        "stack"];
    return csvLine(head) + model.alive(moment).map(i => csvLine([formatAddress(b.address[i]), b.size[i], b.begin[i], never(b.freed[i]),
        model.file.categories[b.category[i]], model.text(b.tag[i]), model.siteOf(i), model.streamLabel(b.stream[i]),
        model.poolLabel(b.pool[i]), model.threadLabel(b.thread[i]),
        model.frames(b.stack[i]).map(([name, file, line]) => name + " " + file + (line ? ":" + line : "")).join(" < ")])).join("");
}

// The chart that is seen: a line a column that has a moment of its own.
function chartCsv(timeline, model, grouping) {
    const {seen} = timeline, groups = grouping.groups.length, last = {};
    let text = csvLine(["event", "time_ns", "reserved", ...grouping.groups.map(group => group.label)]);
    for (let c = 0; c < seen.count; c++) {
        const moment = seen.moments[c];
        if (moment !== last.moment)
            text += csvLine([moment, model.device.hasTimes ? model.times[moment] : "", model.reserved[moment],
                ...seen.sums.slice(c * groups, (c + 1) * groups)]);
        last.moment = moment;
    }
    return text;
}
