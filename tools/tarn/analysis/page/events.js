// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// What happened besides allocations, in rows below the chart: regions and annotations, captures, suspended pools and waits as spans or
// ticks. Spans of a row do not overlap, so what is in view of a row is a run of it; of what falls on one pixel, one thing is drawn.

const EVENT_LINE = 16, EVENT_ROWS = 5, EVENT_LISTED = 200; // pixels; rows of a kind of span; rows of the list

// Kinds of marks by what they begin or end, or the row of their ticks.
const SPANS = {region_begin: ["region", 1], region_end: ["region", -1], capture_begin: ["capture", 1], capture_end: ["capture", -1],
    suspend: ["suspended", 1], resume: ["suspended", -1], scope_begin: ["pool in use", 1], scope_end: ["pool in use", -1]};
const TICKS = {wait: "wait", record_stream: "other stream", free_on: "other stream", pool_create: "pool", pool_release: "pool",
    trim: "trim", handle_create: "handle"};
const EVENT_COLOURS = {region: "#7aa6d6", annotation: "#7aa6d6", capture: "#e2a05f", suspended: "#b49ad0", "pool in use": "#84bda0",
    wait: "#d1605e", "other stream": "#8f8f8f", pool: "#4f9d77", trim: "#a9714b", handle: "#7d63a6"};

// What a mark says besides its kind.
function markText(model, k) {
    const m = model.marks, kind = model.file.markKinds[m.markKind[k]], text = model.text(m.markText[k]);
    switch (kind) {
    case "region_begin": case "handle_create": return text || kind;
    case "wait": return model.streamLabel(m.markStream[k]) + " waits for " + model.streamLabel(m.markOther[k]);
    case "record_stream": return "used by " + model.streamLabel(m.markStream[k]);
    case "free_on": return "freed on " + model.streamLabel(m.markStream[k]);
    case "trim": return "trim, keeping " + formatBytes(m.markValue[k]);
    case "capture_begin": return "capture " + m.markValue[k] + " of " + model.streamLabel(m.markStream[k]);
    default: return kind.replace("_", " ") + (m.markPool[k] ? " " + model.poolLabel(m.markPool[k]) : "") + (text ? " " + text : "");
    }
}

// What tells spans of a kind apart that are open at once.
function spanKey(model, kind, k) {
    const m = model.marks;
    return kind === "capture" ? m.markValue[k] : kind === "suspended" ? m.markPool[k] : kind === "pool in use"
        ? m.markThread[k] + "/" + m.markPool[k] : m.markThread[k];
}

// {kind: [{from, to, text}]}, by `from`; moments. What has no end goes on to the last moment.
function* collectEvents(model) {
    const kinds = new Map(), open = new Map(), m = model.marks;
    const put = (kind, event) => {
        if (!kinds.has(kind))
            kinds.set(kind, []);
        kinds.get(kind).push(event);
        return event;
    };
    for (let k = 0; k < m.markKind.length; k++) {
        const name = model.file.markKinds[m.markKind[k]], at = m.markAt[k], span = SPANS[name];
        if (span) {
            const key = span[0] + " " + spanKey(model, span[0], k);
            if (!open.has(key))
                open.set(key, []);
            if (span[1] > 0) {
                open.get(key).push(put(span[0], {from: at, to: model.events, text: markText(model, k)}));
            } else {
                const ended = open.get(key).pop();
                if (ended)
                    ended.to = at;
                else
                    put(span[0], {from: 0, to: at, text: name.startsWith("region") ? model.text(m.markText[k]) : markText(model, k)});
            }
        } else if (TICKS[name]) {
            put(TICKS[name], {from: at, to: at, text: markText(model, k)});
        }
        if (k % 16384 === 16383)
            yield;
    }
    for (const annotation of model.device.annotations)
        put("annotation", {...annotation});
    for (const events of kinds.values())
        events.sort((a, b) => a.from - b.from || b.to - a.to);
    return kinds;
}

// Rows of spans that do not overlap: {kind, events}; `lost` counts those for which there is no row.
function layRows(kinds) {
    const rows = [];
    let lost = 0;
    for (const [kind, events] of kinds) {
        const own = [];
        for (const event of events) {
            const row = own.find(row => row.end <= event.from);
            if (row) {
                row.events.push(event);
                row.end = Math.max(event.to, event.from + (event.to > event.from ? 0 : 0.5));
            } else if (own.length < EVENT_ROWS && TICKS_OF.has(kind) === false) {
                own.push({kind, events: [event], end: event.to});
            } else if (TICKS_OF.has(kind)) {
                (own[0] || own[own.push({kind, events: [], end: 0}) - 1]).events.push(event);
            } else {
                lost++;
            }
        }
        rows.push(...own);
    }
    return {rows, lost};
}
const TICKS_OF = new Set(Object.values(TICKS));

class EventRows {
    constructor(root, listeners) {
        this.listeners = listeners; // onMoment(moment), onHover(text or null, event)
        this.root = root;
        this.canvas = root.querySelector("canvas");
        this.list = root.querySelector("details");
        this.canvas.addEventListener("mousemove", event => {
            const found = this.under(event);
            listeners.onHover(found && this.describe(found), event);
        });
        this.canvas.addEventListener("mouseleave", () => listeners.onHover(null));
        this.canvas.addEventListener("click", event => {
            const found = this.under(event);
            if (found)
                listeners.onMoment(found.event.from);
        });
        this.list.addEventListener("toggle", () => this.fillList());
    }

    *show(model) {
        this.model = null;
        this.root.hidden = true;
        const kinds = yield* collectEvents(model);
        const {rows, lost} = layRows(kinds);
        Object.assign(this, {model, rows, lost});
        this.root.hidden = !rows.length;
        this.root.dataset.rows = rows.map(row => row.kind + ":" + row.events.length).join(" ");
        if (this.list.open)
            this.fillList();
    }

    // With the chart's scale.
    draw(timeline) {
        if (!this.model || !this.rows.length || timeline.model !== this.model)
            return;
        this.timeline = timeline;
        const width = this.canvas.parentNode.clientWidth, height = this.rows.length * EVENT_LINE + 2;
        if (width < 1)
            return;
        if (this.canvas.style.height !== height + "px")
            this.canvas.style.height = height + "px";
        const context = fitCanvas(this.canvas, width, height), end = MARGIN.left + timeline.width;
        context.clearRect(0, 0, width, height);
        context.font = "11px system-ui, \"DejaVu Sans\", sans-serif";
        context.textBaseline = "middle";
        const text = cssColour("--dim"), edge = cssColour("--edge");
        this.rows.forEach((row, number) => {
            const top = number * EVENT_LINE;
            context.fillStyle = text;
            context.textAlign = "right";
            if (!number || this.rows[number - 1].kind !== row.kind)
                context.fillText(row.kind, MARGIN.left - 6, top + EVENT_LINE / 2, MARGIN.left - 8);
            context.fillStyle = edge;
            context.fillRect(MARGIN.left, top + EVENT_LINE - 1, timeline.width, 1);
            context.textAlign = "left";
            this.drawRow(context, row, top, end);
        });
    }

    drawRow(context, row, top, end) {
        const {timeline} = this, colour = EVENT_COLOURS[row.kind];
        const first = timeline.momentOf(timeline.x.domain()[0]);
        let drawn = -Infinity;
        for (let k = firstEnding(row.events, first); k < row.events.length; k++) {
            const event = row.events[k], from = Math.max(MARGIN.left, timeline.x(timeline.xOf(event.from)));
            if (from > end)
                break;
            const to = Math.min(end, timeline.x(timeline.xOf(event.to)));
            if (to < MARGIN.left || Math.max(to, from + 1) < drawn + 0.5)
                continue;
            context.fillStyle = colour;
            context.fillRect(from, top + 2, Math.max(1.2, to - from - (to - from > 4 ? 1 : 0)), EVENT_LINE - 5);
            drawn = Math.max(from + 1, to);
            if (to - from > 34) {
                context.fillStyle = "#14171c";
                context.fillText(cutText(event.text, Math.floor((to - from - 8) / 6)), from + 4, top + EVENT_LINE / 2);
            }
        }
    }

    under(event) {
        if (!this.timeline || !this.rows)
            return null;
        const box = this.canvas.getBoundingClientRect(), row = this.rows[Math.floor((event.clientY - box.top) / EVENT_LINE)];
        const x = event.clientX - box.left, {timeline} = this, low = timeline.momentOf(timeline.x.invert(x - 3));
        if (!row || x < MARGIN.left)
            return null;
        for (let k = firstEnding(row.events, low); k < row.events.length; k++) {
            const from = timeline.x(timeline.xOf(row.events[k].from)), to = timeline.x(timeline.xOf(row.events[k].to));
            if (from > x + 3)
                break;
            if (x <= to + 3)
                return {kind: row.kind, event: row.events[k]};
        }
        return null;
    }

    describe({kind, event}) {
        const model = this.model, at = moment => "event " + formatCount(moment);
        return [event.text, kind, event.to > event.from ? "from " + at(event.from) + " to " + at(event.to) +
            (model.device.hasTimes ? ", " + formatTime(model.times[event.to] - model.times[event.from]) : "") : "before " + at(event.from + 1)];
    }

    // The same in words.
    fillList() {
        if (!this.model || !this.list.open)
            return;
        const all = this.rows.flatMap(row => row.events.map(event => ({kind: row.kind, event}))).sort((a, b) => a.event.from - b.event.from);
        const link = moment => element("button", {type: "button", class: "link", onclick: () => this.listeners.onMoment(moment)},
            "event " + formatCount(moment));
        this.list.querySelector("div").replaceChildren(makeTable(null, [{name: "from"}, {name: "to"}, {name: "kind"}, {name: "what"}],
            all.slice(0, EVENT_LISTED).map(({kind, event}) => [link(event.from), event.to > event.from ? link(event.to) : "", kind, event.text])),
        all.length > EVENT_LISTED ? element("p", {class: "note"}, "and " + plural(all.length - EVENT_LISTED, "more")) : "",
        this.lost ? element("p", {class: "note"}, plural(this.lost, "span") + " inside others, not shown") : "");
    }
}

// The first of a row that ends at `moment` or later.
function firstEnding(events, moment) {
    let low = 0, high = events.length;
    while (low < high) {
        const middle = (low + high) >>> 1;
        if (events[middle].to < moment)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
