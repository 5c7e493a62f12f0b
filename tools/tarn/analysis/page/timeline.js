// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Memory over time: what each group had, stacked, at the moment of each column at which most was allocated. Where few enough blocks
// are in view the groups are drawn block by block. Below it, how the free memory was cut up.
//
// Levels of detail: a column of the screen is one moment, whatever it covers; sums come from the model's checkpoints. A drawing that is
// overtaken by a newer one ends at its next pause.

const MARGIN = {left: 76, right: 26, top: 14, bottom: 26};
const SINGLE_BLOCKS = 4000; // at most so many are drawn one by one

class Timeline {
    constructor(root, listeners) {
        this.listeners = listeners; // onMoment(moment), onBlock(block), onHover(text or null, event)
        this.canvas = root.querySelector("canvas.areas");
        this.svg = d3.select(root.querySelector("svg.overlay"));
        this.lower = root.querySelector("canvas.fragmentation");
        this.lowerSvg = d3.select(root.querySelector("svg.fragmentation-overlay"));
        this.xAxis = this.svg.append("g").attr("class", "axis");
        this.yAxis = this.svg.append("g").attr("class", "axis");
        this.marks = this.svg.append("g").attr("class", "marks");
        this.cursor = this.svg.append("line").attr("class", "cursor");
        this.lowerAxis = this.lowerSvg.append("g").attr("class", "axis");
        this.lowerCursor = this.lowerSvg.append("line").attr("class", "cursor");
        this.drawing = 0;
        this.yZoom = {low: 0, high: 1};
        this.zoom = d3.zoom().filter(() => !d3.event.button && !(d3.event.shiftKey && d3.event.type === "wheel"))
            .on("zoom", () => this.draw());
        d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
        this.canvas.addEventListener("click", event => this.click(event));
        this.canvas.addEventListener("mousemove", event => this.hover(event));
        this.canvas.addEventListener("mouseleave", () => this.listeners.onHover(null));
        this.canvas.addEventListener("wheel", event => this.wheel(event), {passive: false});
        this.canvas.addEventListener("keydown", event => this.key(event));
        this.canvas.addEventListener("dblclick", () => this.reset());
    }

    show(model, grouping, axis) {
        const other = model !== this.model || axis !== this.axis;
        this.model = model;
        this.grouping = grouping;
        this.axis = axis;
        if (other)
            this.reset();
        else
            this.draw();
    }

    // --- scales ---

    xOf(moment) {
        return this.axis === "time" ? this.model.times[moment] : moment;
    }

    get last() {
        return Math.max(1, this.xOf(this.model.events));
    }

    resize() {
        const ratio = window.devicePixelRatio || 1;
        for (const canvas of [this.canvas, this.lower]) {
            const box = canvas.parentNode.getBoundingClientRect();
            canvas.width = Math.round(box.width * ratio);
            canvas.height = Math.round(box.height * ratio);
            canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
        }
        const box = this.canvas.parentNode.getBoundingClientRect();
        this.width = Math.max(50, box.width - MARGIN.left - MARGIN.right);
        this.height = Math.max(50, box.height - MARGIN.top - MARGIN.bottom);
        this.lowerHeight = this.lower.parentNode.getBoundingClientRect().height - 12;
        this.zoom.extent([[MARGIN.left, 0], [MARGIN.left + this.width, this.height]])
            .translateExtent([[MARGIN.left, -Infinity], [MARGIN.left + this.width, Infinity]])
            .scaleExtent([1, Math.max(1, this.model.events * (this.axis === "time" ? 1000 : 0.2))]);
        const base = d3.scaleLinear().domain([0, this.last]).range([MARGIN.left, MARGIN.left + this.width]);
        this.x = d3.zoomTransform(this.canvas).rescaleX(base);
    }

    // The last moment at or before a value of the x axis.
    momentOf(value) {
        if (this.axis !== "time")
            return Math.max(0, Math.min(this.model.events, Math.floor(value)));
        const times = this.model.times;
        let low = 0, high = times.length;
        while (low < high) {
            const middle = (low + high) >>> 1;
            if (times[middle] <= value)
                low = middle + 1;
            else
                high = middle;
        }
        return Math.max(0, low - 1);
    }

    reset() {
        this.yZoom = {low: 0, high: 1};
        d3.select(this.canvas).call(this.zoom.transform, d3.zoomIdentity); // draws
    }

    // --- what is seen ---

    // For each column its moment, that of the highest sum in it, and the sums of the groups then.
    *columns() {
        const count = Math.round(this.width), width = this.grouping.groups.length;
        const [low, high] = this.x.domain(), step = (high - low) / count;
        const first = this.momentOf(low), last = this.momentOf(high);
        const columns = {count, first, last, moments: new Uint32Array(count), sums: new Float64Array(count * width), top: 0};
        const size = this.model.blocks.size, of = this.grouping.of;
        const sums = yield* this.model.sumsAt(this.grouping, first);
        const before = sums.slice();
        let total = sums.reduce((sum, part) => sum + part, 0), totalBefore = total, entering = first;
        let best = total, column = 0;
        const keep = moment => {
            columns.moments[column] = moment;
            columns.sums.set(sums, column * width);
            best = total;
        };
        const carry = () => { // a column begins with what was before it
            column++;
            columns.moments[column] = entering;
            columns.sums.set(before, column * width);
            best = totalBefore;
        };
        const change = sign => i => {
            sums[of[i]] += sign * size[i];
            total += sign * size[i];
        };
        keep(first);
        columns.top = Math.max(total, this.model.reserved[first]);
        yield* this.model.walk(first + 1, last + 1, change(1), change(-1), moment => {
            const at = Math.min(count - 1, Math.max(0, Math.floor((this.xOf(moment) - low) / step)));
            while (column < at)
                carry();
            if (total > best)
                keep(moment);
            entering = moment;
            before.set(sums);
            totalBefore = total;
            columns.top = Math.max(columns.top, total, this.model.reserved[moment]);
        });
        while (column + 1 < count)
            carry();
        return columns;
    }

    // The blocks of which something is in view, in the order in which they are stacked; null where they are too many.
    *inView(first, last) {
        const b = this.model.blocks, of = this.grouping.of, found = [];
        for (let i = 0; i < b.count && b.begin[i] <= last; i++) {
            if (b.freed[i] > first && b.begin[i] < b.freed[i]) {
                if (found.length === SINGLE_BLOCKS)
                    return null;
                found.push(i);
            }
            if (i % 65536 === 65535)
                yield;
        }
        return found.sort((x, y) => of[x] - of[y] || x - y);
    }

    // --- drawing ---

    async draw() {
        if (!this.model || !this.grouping || !this.model.device.hasTrace) // without a trace there is no chart
            return;
        const drawing = ++this.drawing, stale = () => drawing !== this.drawing;
        this.resize();
        const columns = await inSlices(this.columns(), stale);
        if (!columns)
            return;
        const single = await inSlices(this.inView(columns.first, columns.last), stale);
        if (stale())
            return;
        this.seen = columns;
        const top = columns.top * 1.04 || 1;
        this.y = d3.scaleLinear().domain([top * this.yZoom.low, top * this.yZoom.high])
            .range([MARGIN.top + this.height, MARGIN.top]);
        await inSlices(this.paint(columns, single), stale);
        if (stale())
            return;
        this.drawAxes();
        this.moveCursor();
        this.listeners.onDrawn(single !== null && single !== undefined ? single.length : -1);
        await inSlices(this.paintFragmentation(columns), stale);
    }

    // On a canvas of its own, which is shown when it is whole.
    *paint(columns, single) {
        const style = getComputedStyle(document.documentElement), ratio = window.devicePixelRatio || 1;
        const draft = document.createElement("canvas"), context = draft.getContext("2d");
        draft.width = this.canvas.width;
        draft.height = this.canvas.height;
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.beginPath();
        context.rect(MARGIN.left, MARGIN.top, this.width, this.height);
        context.clip();
        this.paintGroups(context, columns);
        yield;
        if (single)
            yield* this.paintBlocks(context, columns, single);
        context.strokeStyle = style.getPropertyValue("--reserved");
        context.lineWidth = 1.5;
        context.beginPath();
        for (let c = 0; c < columns.count; c++) {
            const y = this.y(this.model.reserved[columns.moments[c]]);
            if (c)
                context.lineTo(MARGIN.left + c, y);
            context.lineTo(MARGIN.left + c + 1, y);
        }
        context.stroke();
        const shown = this.canvas.getContext("2d");
        shown.setTransform(1, 0, 0, 1, 0, 0);
        shown.clearRect(0, 0, draft.width, draft.height);
        shown.drawImage(draft, 0, 0);
    }

    paintGroups(context, columns) {
        const width = this.grouping.groups.length, base = new Float64Array(columns.count);
        for (let g = 0; g < width; g++) {
            context.fillStyle = groupColour(this.grouping.groups[g], g);
            for (let c = 0; c < columns.count; c++) {
                const sum = columns.sums[c * width + g];
                if (!sum)
                    continue;
                const low = this.y(base[c]), high = this.y(base[c] + sum);
                context.fillRect(MARGIN.left + c, high, 1.02, low - high);
                base[c] += sum;
            }
        }
    }

    // A block is a run of columns at one height; where it moves, a new one begins. One that is less than a pixel high is left to the
    // colour of its group.
    *paintBlocks(context, columns, blocks) {
        const b = this.model.blocks, of = this.grouping.of;
        const runs = blocks.map(() => ({from: -1, base: 0})), outline = [];
        const emit = (k, to) => {
            const run = runs[k], i = blocks[k];
            const low = this.y(run.base), high = this.y(run.base + b.size[i]);
            if (i === this.block)
                outline.push([MARGIN.left + run.from, high, to - run.from, low - high]);
            if (low - high < 1) {
                run.from = -1;
                return;
            }
            const gap = low - high > 3 ? 0.7 : 0;
            context.fillStyle = groupColour(this.grouping.groups[of[i]], of[i], i);
            context.fillRect(MARGIN.left + run.from, high + gap, to - run.from + 0.02, low - high - gap);
            run.from = -1;
        };
        for (let c = 0; c < columns.count; c++) {
            const moment = columns.moments[c];
            if (c && moment === columns.moments[c - 1])
                continue;
            let base = 0;
            for (let k = 0; k < blocks.length; k++) {
                const lives = this.model.lives(blocks[k], moment), run = runs[k];
                if (run.from >= 0 && (!lives || run.base !== base))
                    emit(k, c);
                if (lives && run.from < 0) {
                    run.from = c;
                    run.base = base;
                }
                if (lives)
                    base += b.size[blocks[k]];
            }
            if (c % 16 === 15)
                yield;
        }
        for (let k = 0; k < blocks.length; k++)
            if (runs[k].from >= 0)
                emit(k, columns.count);
        context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
        context.lineWidth = 1.5;
        for (const [x, y, width, height] of outline)
            context.strokeRect(x, y, Math.max(1, width), Math.max(1, height));
    }

    drawAxes() {
        const ticks = Math.max(2, Math.floor(this.width / 120));
        const format = this.axis === "time" ? timeTicks(...this.x.domain(), ticks)
            : value => Number.isInteger(value) ? formatCount(value) : "";
        this.xAxis.attr("transform", `translate(0,${MARGIN.top + this.height})`)
            .call(d3.axisBottom(this.x).ticks(ticks).tickFormat(format));
        const [low, high] = this.y.domain();
        this.yAxis.attr("transform", `translate(${MARGIN.left},0)`)
            .call(d3.axisLeft(this.y).tickValues(byteTicks(low, high, 5)).tickFormat(formatBytes));
        const shown = [];
        const place = (kind, moment, title) => {
            const x = this.x(this.xOf(moment));
            if (x >= MARGIN.left - 1 && x <= MARGIN.left + this.width + 1)
                shown.push({kind, moment, title, x});
        };
        place("peak", this.model.device.peak, "Peak: " + formatBytes(this.model.device.states.peak.allocated));
        for (const oom of this.model.device.ooms)
            place("oom", oom.moment, "Out of memory: asked for " + formatBytes(oom.asked));
        const marks = this.marks.selectAll("g.mark").data(shown, mark => mark.kind + mark.moment);
        marks.exit().remove();
        const entering = marks.enter().append("g").attr("class", mark => "mark " + mark.kind)
            .on("click", mark => this.listeners.onMoment(mark.moment));
        entering.append("path").attr("d", mark => mark.kind === "peak" ? "M0,0L-6,-11L6,-11Z" : "M-5,-11L5,-1M5,-11L-5,-1");
        entering.append("title").text(mark => mark.title);
        entering.merge(marks).attr("transform", mark => `translate(${mark.x},${MARGIN.top})`);
    }

    // Between the samples that came with the page, where these are too far apart, moments are looked at one by one.
    *paintFragmentation(columns) {
        const samples = this.model.samples, moments = samples.sampleMoment;
        let from = lowerBound(moments, columns.first), to = lowerBound(moments, columns.last + 1), points = [];
        if (to - from >= 60 || to - from >= columns.last - columns.first) {
            for (let k = Math.max(0, from - 1); k < Math.min(moments.length, to + 1); k++)
                points.push({moment: moments[k], free: samples.sampleFree[k], largest: samples.sampleLargest[k]});
        } else {
            const step = Math.max(1, Math.ceil((columns.last - columns.first) / 120));
            for (let moment = columns.first; moment <= columns.last; moment += step) {
                points.push(this.model.stateAt(moment));
                yield;
            }
        }
        const context = this.lower.getContext("2d"), style = getComputedStyle(document.documentElement);
        const share = d3.scaleLinear().domain([0, 1]).range([this.lowerHeight, 6]);
        const line = (colour, value) => {
            context.strokeStyle = style.getPropertyValue(colour);
            context.beginPath();
            let before = null;
            for (const point of points) {
                const x = this.x(this.xOf(point.moment)), y = share(value(point));
                if (before !== null)
                    context.lineTo(x, before);
                context.lineTo(x, y);
                before = y;
            }
            if (before !== null)
                context.lineTo(MARGIN.left + this.width, before);
            context.stroke();
        };
        context.clearRect(0, 0, this.lower.width, this.lower.height);
        context.save();
        context.beginPath();
        context.rect(MARGIN.left, 0, this.width, this.lowerHeight + 2);
        context.clip();
        context.lineWidth = 1.5;
        line("--reserved", point => this.model.reserved[point.moment] ? point.free / this.model.reserved[point.moment] : 0);
        line("--accent", point => point.free ? 1 - point.largest / point.free : 0);
        context.restore();
        this.lowerAxis.attr("transform", `translate(${MARGIN.left},0)`)
            .call(d3.axisLeft(share).tickValues([0, 0.5, 1]).tickFormat(value => 100 * value + "\u00a0%"));
    }

    moveCursor() {
        if (!this.x || this.moment === undefined)
            return;
        const x = this.x(this.xOf(this.moment));
        const seen = x >= MARGIN.left - 1 && x <= MARGIN.left + this.width + 1;
        this.cursor.attr("x1", x).attr("x2", x).attr("y1", MARGIN.top).attr("y2", MARGIN.top + this.height)
            .attr("visibility", seen ? null : "hidden");
        this.lowerCursor.attr("x1", x).attr("x2", x).attr("y1", 0).attr("y2", this.lowerHeight)
            .attr("visibility", seen ? null : "hidden");
    }

    selectBlock(block) {
        this.block = block;
        this.draw();
    }

    select(moment) {
        this.moment = moment;
        this.moveCursor();
    }

    // --- what the reader does ---

    under(event) {
        const box = this.canvas.getBoundingClientRect();
        const x = event.clientX - box.left - MARGIN.left, y = event.clientY - box.top;
        if (!this.seen || x < 0 || x >= this.seen.count || y < MARGIN.top || y > MARGIN.top + this.height)
            return null;
        const moment = this.seen.moments[Math.floor(x)];
        return {moment, block: this.blockAt(moment, this.y.invert(y))};
    }

    // The block at a height of the stack, or -1.
    blockAt(moment, height) {
        const {of, groups} = this.grouping, b = this.model.blocks;
        const sums = atOnce(this.model.sumsAt(this.grouping, moment));
        let base = 0, group = 0;
        while (group < groups.length && base + sums[group] <= height)
            base += sums[group++];
        if (group === groups.length || height < 0)
            return -1;
        for (let i = 0; i < b.count; i++) {
            if (of[i] !== group || !this.model.lives(i, moment))
                continue;
            base += b.size[i];
            if (base > height)
                return i;
        }
        return -1;
    }

    click(event) {
        const found = this.under(event);
        if (!found)
            return;
        this.listeners.onMoment(found.moment);
        if (found.block >= 0)
            this.listeners.onBlock(found.block);
    }

    hover(event) {
        const found = this.under(event);
        this.listeners.onHover(found && this.describe(found), event);
    }

    describe({moment, block}) {
        const model = this.model, lines = [];
        if (block >= 0) {
            const group = this.grouping.groups[this.grouping.of[block]];
            lines.push(formatBytes(model.blocks.size[block]) + " \u00b7 " + group.label);
            lines.push(model.siteLabel(model.blocks.stack[block]));
        }
        lines.push("after event " + formatCount(moment) + (model.device.hasTimes ? ", " + formatTime(model.times[moment]) : ""));
        if (model.reserved[moment])
            lines.push("reserved " + formatBytes(model.reserved[moment]));
        return lines;
    }

    wheel(event) {
        if (!event.shiftKey)
            return;
        event.preventDefault();
        this.zoomHeight((event.deltaY || event.deltaX) < 0 ? 0.8 : 1.25, event.clientY);
    }

    zoomHeight(factor, clientY) {
        const box = this.canvas.getBoundingClientRect();
        const at = clientY === undefined ? 0.5 : 1 - (clientY - box.top - MARGIN.top) / this.height;
        const {low, high} = this.yZoom, middle = low + (high - low) * Math.min(1, Math.max(0, at));
        const span = Math.min(1, Math.max(1e-6, (high - low) * factor)), part = (middle - low) / (high - low);
        const from = Math.min(1 - span, Math.max(0, middle - span * part));
        this.yZoom = {low: from, high: from + span};
        this.draw();
    }

    moveHeight(part) {
        const {low, high} = this.yZoom, span = high - low, from = Math.min(1 - span, Math.max(0, low + span * part));
        this.yZoom = {low: from, high: from + span};
        this.draw();
    }

    // Around the chosen moment where it is in view.
    scale(factor) {
        const x = this.x(this.xOf(this.moment || 0));
        const seen = x >= MARGIN.left && x <= MARGIN.left + this.width;
        d3.select(this.canvas).call(this.zoom.scaleBy, factor, [seen ? x : MARGIN.left + this.width / 2, 0]);
    }

    key(event) {
        const canvas = d3.select(this.canvas), k = d3.zoomTransform(this.canvas).k;
        const step = event.shiftKey ? Math.max(1, Math.round((this.seen.last - this.seen.first) / 50)) : 1;
        const actions = {
            "+": () => this.scale(1.5),
            "=": () => this.scale(1.5),
            "-": () => this.scale(1 / 1.5),
            ArrowLeft: () => this.listeners.onMoment(Math.max(0, this.moment - step)),
            ArrowRight: () => this.listeners.onMoment(Math.min(this.model.events, this.moment + step)),
            ArrowUp: () => event.shiftKey ? this.zoomHeight(0.8) : this.moveHeight(0.2),
            ArrowDown: () => event.shiftKey ? this.zoomHeight(1.25) : this.moveHeight(-0.2),
            PageUp: () => canvas.call(this.zoom.translateBy, this.width / 2 / k, 0),
            PageDown: () => canvas.call(this.zoom.translateBy, -this.width / 2 / k, 0),
            Home: () => this.reset(),
            p: () => this.listeners.onMoment(this.model.device.peak),
            e: () => this.listeners.onMoment(this.model.events),
        };
        if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey)
            return;
        event.preventDefault();
        actions[event.key]();
    }
}

// Round numbers of bytes: a power of two, or as many times a quarter of one as are needed.
function byteTicks(low, high, count) {
    const step = Math.pow(2, Math.ceil(Math.log2(Math.max(1, (high - low) / count)))), ticks = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step)
        ticks.push(at);
    return ticks;
}

const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#86bcb6",
    "#d37295", "#a0cbe8", "#8cd17d", "#b6992d", "#499894"];

// Where blocks are drawn one by one, neighbours of a group differ a little.
const SHADES = new Map();
function groupColour(group, number, block) {
    const colour = group.rest ? "#8a8f98" : PALETTE[number % PALETTE.length];
    if (block === undefined)
        return colour;
    const key = colour + (block * 7) % 5;
    if (!SHADES.has(key)) {
        const shade = d3.hsl(colour);
        shade.l += ((block * 7) % 5 - 2) * 0.025;
        SHADES.set(key, shade.toString());
    }
    return SHADES.get(key);
}
