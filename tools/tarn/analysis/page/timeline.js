// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Memory over time: what each group had, stacked, at the moment of each column at which most was allocated. Where few enough blocks
// are in view the groups are drawn block by block. Below it, what of the reserved memory was free, and how it was cut up.
//
// Levels of detail: a column of the screen is one moment, whatever it covers; sums come from the model's checkpoints.
//
// What is seen comes from pictures, each painted out of sight for one view and shown when it is whole. Until the picture of a new view is
// there, the last one and the one of the whole trace are stretched to where they belong, so that no frame is empty and none waits.

const MARGIN = {left: 76, right: 26, top: 14, bottom: 26};
const SINGLE_BLOCKS = 4000; // at most so many are drawn one by one
const REST = 2, GESTURE_MS = 60; // while views follow each other this soon, painting rests so many times as long as it took

// What was painted of a plot's inside, and which part of the data it shows.
class Picture {
    constructor(width, height, x, y) {
        const ratio = window.devicePixelRatio || 1;
        this.canvas = document.createElement("canvas");
        this.canvas.width = Math.max(1, Math.round(width * ratio));
        this.canvas.height = Math.max(1, Math.round(height * ratio));
        this.context = this.canvas.getContext("2d");
        this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
        this.x = x.copy().range([0, width]);
        this.y = y.copy().range([height, 0]);
    }

    // Into a context whose scales are `x` and `y`, in place of what is there: a picture is not painted all over.
    show(context, x, y) {
        const [left, right] = this.x.domain().map(x), [low, high] = this.y.domain().map(y);
        context.clearRect(left, high, right - left, low - high);
        context.drawImage(this.canvas, left, high, right - left, low - high);
    }
}

// Makes a canvas as large as it is shown, which empties it, only where it is not.
function fitCanvas(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
    const size = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== size[0] || canvas.height !== size[1])
        [canvas.width, canvas.height] = size;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
}

class Timeline {
    constructor(root, listeners) {
        this.listeners = listeners; // onMoment(moment), onBlock(block), onHover(text or null, event), onDrawn(blocks), onView(), onPresent(), onRange(range), onRangeEnd(side)
        this.root = root;
        this.canvas = root.querySelector("canvas.areas");
        this.svg = d3.select(root.querySelector("svg.overlay"));
        this.lower = root.querySelector("canvas.free");
        this.frame = root.querySelector("canvas.frame");
        this.lowerFrame = root.querySelector("canvas.free-frame");
        this.marks = []; // of the view at hand: {kind, moment, title, x}
        this.waiting = []; // who waits for settled()
        this.asked = this.drawn = 0; // views, in the order in which they were asked for
        this.yZoom = {low: 0, high: 1};
        this.zoom = d3.zoom().filter(() => !d3.event.button && !(d3.event.shiftKey && d3.event.type === "wheel"))
            .on("zoom", () => this.draw());
        this.leaveSwipes();
        d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null).style("touch-action", "pan-y"); // which d3 sets to "none"
        this.canvas.addEventListener("click", event => this.click(event));
        this.canvas.addEventListener("mousemove", event => this.hover(event));
        this.canvas.addEventListener("mouseleave", () => this.listeners.onHover(null));
        this.canvas.parentNode.addEventListener("wheel", event => this.wheel(event), {passive: false});
        this.canvas.addEventListener("keydown", event => this.key(event));
        this.canvas.addEventListener("dblclick", () => this.reset());
        this.brush = d3.brushX().on("end", () => this.brushed());
        this.brushing = this.svg.append("g").attr("class", "brush");
    }

    // A vertical swipe of one finger scrolls the page: d3 would keep the browser from that with every touchmove that it sees.
    leaveSwipes() {
        let from = null, vertical = false;
        this.canvas.addEventListener("touchstart", event => {
            from = event.touches.length === 1 ? event.touches[0] : null;
            vertical = false;
        });
        this.canvas.addEventListener("touchmove", event => {
            const to = event.touches[0];
            vertical = vertical || Boolean(from) && Math.abs(to.clientY - from.clientY) > Math.abs(to.clientX - from.clientX);
            from = null; // the first move says which it is
            if (vertical)
                event.stopImmediatePropagation();
        });
    }

    // Of a filtered model the chart is as high as what is left; else reserved memory fits into it, too.
    get filtered() {
        return this.grouping.on || this.grouping.filtered;
    }

    show(model, grouping, axis) {
        const other = model !== this.model || axis !== this.axis;
        this.model = model;
        this.grouping = grouping;
        this.axis = axis;
        this.whole = null;
        if (other) {
            this.seen = this.picture = this.lowerPicture = null;
            this.reset();
        } else {
            this.draw();
        }
    }

    // --- scales ---

    xOf(moment) {
        return this.axis === "time" ? this.model.times[moment] : moment;
    }

    get last() {
        return Math.max(1, this.xOf(this.model.events));
    }

    // The size and the horizontal scale of what is to be seen; false where there is no room to see anything.
    measure() {
        const box = this.canvas.parentNode.getBoundingClientRect(), lower = this.lower.parentNode.getBoundingClientRect();
        if (box.width < 1 || box.height < 1)
            return false;
        this.box = {width: box.width, height: box.height, lower: lower.height};
        const width = Math.max(50, Math.floor(box.width - MARGIN.left - MARGIN.right)); // half a pixel cannot be cleared
        const {k, x, y} = d3.zoomTransform(this.canvas), still = MARGIN.left * (1 - k); // what is in view stays when the width changes
        if (this.width && this.width !== width)
            this.canvas.__zoom = d3.zoomIdentity.translate(still + (x - still) * width / this.width, y).scale(k);
        this.width = width;
        this.height = Math.max(50, box.height - MARGIN.top - MARGIN.bottom);
        this.lowerHeight = Math.max(10, lower.height - 12);
        this.fit(box, lower);
        this.zoom.extent([[MARGIN.left, 0], [MARGIN.left + this.width, this.height]])
            .translateExtent([[MARGIN.left, -Infinity], [MARGIN.left + this.width, Infinity]])
            .scaleExtent([1, Math.max(1, this.model.events * (this.axis === "time" ? 1000 : 0.2))]);
        const base = d3.scaleLinear().domain([0, this.last]).range([MARGIN.left, MARGIN.left + this.width]);
        this.x = d3.zoomTransform(this.canvas).rescaleX(base);
        this.share = d3.scaleLinear().domain([0, 1]).range([this.lowerHeight, 6]);
        return true;
    }

    // Chart and axes are stretched alike where a page is laid out without being drawn again, as for a printer. What is so already is left
    // alone: the document pays for each change.
    fit({width, height}, lower) {
        const shapes = [`${width} / ${height}`, `${width} / ${Math.max(1, lower.height)}`];
        if (this.shapes && this.shapes[0] === shapes[0] && this.shapes[1] === shapes[1])
            return;
        this.shapes = shapes;
        this.svg.attr("viewBox", `0 0 ${width} ${height}`);
        this.root.style.setProperty("--shape", shapes[0]);
        this.root.style.setProperty("--lower-shape", shapes[1]);
    }

    // The vertical scale of columns.
    heightOf(columns) {
        const top = columns.top * 1.04 || 1;
        return d3.scaleLinear().domain([top * this.yZoom.low, top * this.yZoom.high]).range([MARGIN.top + this.height, MARGIN.top]);
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

    // For each column of the scale `x` its moment, that of the highest sum in it, the sums of the groups then, and of what is shown of them (`tops`).
    *columns(x, count) {
        const width = this.grouping.groups.length;
        const [low, high] = x.domain(), step = (high - low) / count;
        const first = this.momentOf(low), last = this.momentOf(high);
        const columns = {count, low, step, first, last, moments: new Uint32Array(count), sums: new Float64Array(count * width), tops: new Float64Array(count), top: 0};
        const size = this.model.blocks.size, {of, on} = this.grouping, whole = !this.filtered;
        const sums = yield* this.model.sumsAt(this.grouping, first);
        const before = sums.slice();
        let total = sums.reduce((sum, part, g) => sum + (on && !on[g] ? 0 : part), 0), totalBefore = total, entering = first;
        let column = 0;
        const keep = moment => {
            columns.moments[column] = moment;
            columns.sums.set(sums, column * width);
            columns.tops[column] = total;
        };
        const carry = () => { // a column begins with what was before it
            column++;
            columns.moments[column] = entering;
            columns.sums.set(before, column * width);
            columns.tops[column] = totalBefore;
        };
        const change = sign => i => {
            const group = of[i];
            if (group === HIDDEN)
                return;
            sums[group] += sign * size[i];
            if (!on || on[group])
                total += sign * size[i];
        };
        keep(first);
        columns.top = Math.max(total, whole ? this.model.reserved[first] : 0);
        yield* this.model.walk(first + 1, last + 1, change(1), change(-1), moment => {
            const at = Math.min(count - 1, Math.max(0, Math.floor((this.xOf(moment) - low) / step)));
            while (column < at)
                carry();
            if (total > columns.tops[column])
                keep(moment);
            entering = moment;
            before.set(sums);
            totalBefore = total;
            columns.top = Math.max(columns.top, total, whole ? this.model.reserved[moment] : 0);
        });
        while (column + 1 < count)
            carry();
        return columns;
    }

    // The blocks of which something is in view, in the order in which they are stacked; null where they are too many.
    *inView(first, last) {
        const b = this.model.blocks, of = this.grouping.of, fails = this.model.fails, found = [];
        for (let i = 0; i < b.count && b.begin[i] <= last; i++) {
            if (!fails[i] && b.freed[i] > first && b.begin[i] < b.freed[i]) {
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

    // Shows what there is of the new view, and sees to the rest.
    draw() {
        if (!this.model || !this.grouping || !this.model.device.hasTrace || !this.measure()) // without a trace there is no chart
            return;
        this.asked++;
        this.askedAt = performance.now();
        this.presentSoon();
        this.work();
        this.listeners.onView();
    }

    // With the next frame, however often it is asked for until then.
    presentSoon() {
        this.soon = this.soon || requestAnimationFrame(() => this.present());
    }

    // Until what was asked for so far is seen.
    settled() {
        return this.working ? new Promise(resolve => this.waiting.push(resolve)) : Promise.resolve();
    }

    // The part of the axis that is in view, null where that is all; and the same the other way.
    get view() {
        return d3.zoomTransform(this.canvas).k === 1 ? null : this.x.domain();
    }

    set view([low, high]) {
        if (!(high > low) || !this.measure())
            return;
        const k = this.last / (high - low), base = MARGIN.left + this.width * low / this.last;
        d3.select(this.canvas).call(this.zoom.transform, d3.zoomIdentity.translate(MARGIN.left - base * k, 0).scale(k)); // draws
    }

    // --- a range ---

    // While it is on, a drag chooses a range.
    set ranging(on) {
        this.root.classList.toggle("ranging", on);
        if (on) {
            this.brush.extent([[MARGIN.left, MARGIN.top], [MARGIN.left + this.width, MARGIN.top + this.height]]);
            this.brushing.call(this.brush);
        } else {
            this.brushing.selectAll("*").remove();
        }
    }

    brushed() {
        if (!d3.event.selection)
            return;
        const [from, to] = d3.event.selection.map(x => this.momentOf(this.x.invert(x)));
        this.ranging = false;
        this.listeners.onRange({from, to});
    }

    selectRange(range) {
        this.range = range;
        this.drawFrame();
    }

    // Draws the view that was asked for last until it is there. What is at work is finished, since a gesture asks for the next one
    // before; only a drawing of other groups is given up.
    async work() {
        if (this.working)
            return;
        this.working = true;
        try {
            while (this.drawn !== this.asked) {
                await this.rest();
                const begun = performance.now();
                const asked = this.asked, {model, grouping, axis, x, width, height} = this;
                const whole = d3.zoomTransform(this.canvas).k === 1 && this.yZoom.high - this.yZoom.low === 1;
                const stale = () => model !== this.model || grouping !== this.grouping || axis !== this.axis;
                const columns = await inSlices(this.columns(x, Math.round(width)), stale);
                const single = columns && !stale() ? await inSlices(this.inView(columns.first, columns.last), stale) : undefined;
                if (stale() || !columns)
                    continue;
                const picture = new Picture(width, height, x, this.heightOf(columns));
                await inSlices(this.paint(picture, columns, single), stale);
                if (stale())
                    continue;
                this.drawn = asked;
                this.seen = columns;
                this.picture = picture;
                this.whole = whole ? picture : this.whole;
                this.present();
                if (asked === this.asked) { // words change when the gesture is over: the page is laid out anew for them
                    this.describeFrame();
                    this.listeners.onDrawn(single ? single.length : -1);
                    if (model.device.states.peakReserved.reserved)
                        await this.drawFree(x, columns, width, stale);
                }
                this.rests = performance.now() + REST * (performance.now() - begun);
            }
        } finally {
            this.working = false;
            this.waiting.splice(0).forEach(resolve => resolve());
        }
    }

    // While a gesture goes on, pictures take a part of the time, so that frames have the rest; one that nobody moves is painted at once.
    async rest() {
        while (this.picture && performance.now() < this.rests && performance.now() - this.askedAt < GESTURE_MS)
            await new Promise(resolve => setTimeout(resolve, 15));
    }

    // What there is, at the place where it belongs in the view at hand.
    present() {
        cancelAnimationFrame(this.soon);
        this.soon = 0;
        const upper = fitCanvas(this.canvas, this.box.width, this.box.height);
        const lower = fitCanvas(this.lower, this.box.width, this.box.lower);
        for (const context of [upper, lower])
            context.clearRect(0, 0, this.box.width, this.box.height);
        if (!this.seen) {
            this.y = null;
            beginFrame(this.frame, this.box.width, this.box.height);
            beginFrame(this.lowerFrame, this.box.width, this.box.lower);
            return;
        }
        this.y = this.heightOf(this.seen);
        const show = (context, pictures, top, height, y) => {
            context.save();
            context.beginPath();
            context.rect(MARGIN.left, top, this.width, height);
            context.clip();
            for (const picture of pictures)
                if (picture)
                    picture.show(context, this.x, y);
            context.restore();
        };
        show(upper, this.drawn === this.asked ? [this.picture] : [this.whole, this.picture], MARGIN.top, this.height, this.y);
        show(lower, [this.lowerPicture], 0, this.lowerHeight + 2, this.share);
        this.drawFrame();
        this.listeners.onPresent();
    }

    // Reserved memory lies behind the blocks: where it grows at a peak that is one column wide, its line would hide that.
    *paint(picture, columns, single) {
        const context = picture.context;
        context.strokeStyle = cssColour("--reserved");
        context.lineWidth = 1.5;
        context.beginPath();
        let last = NaN;
        for (let c = 0; c < columns.count; c++) {
            const reserved = this.model.reserved[columns.moments[c]];
            if (reserved !== last) {
                context.lineTo(c, picture.y(c ? last : reserved));
                context.lineTo(c, picture.y(reserved));
            }
            last = reserved;
        }
        context.lineTo(columns.count, picture.y(last));
        context.stroke();
        this.paintGroups(picture, columns);
        yield;
        if (single)
            yield* this.paintBlocks(picture, columns, single);
    }

    // A group is one area, with at most four points for each column.
    paintGroups({context, y}, columns) {
        const width = this.grouping.groups.length, {count, sums} = columns;
        const base = new Float64Array(count), top = new Float64Array(count);
        for (let g = 0; g < width; g++) {
            if (this.grouping.on && !this.grouping.on[g])
                continue;
            let some = 0;
            for (let c = 0; c < count; c++) {
                some += sums[c * width + g];
                top[c] = base[c] + sums[c * width + g];
            }
            if (!some)
                continue;
            context.fillStyle = groupColour(this.grouping.groups[g], g);
            context.beginPath();
            context.moveTo(0, y(top[0]));
            for (let c = 1; c < count; c++)
                if (top[c] !== top[c - 1]) {
                    context.lineTo(c, y(top[c - 1]));
                    context.lineTo(c, y(top[c]));
                }
            context.lineTo(count, y(top[count - 1]));
            context.lineTo(count, y(base[count - 1]));
            for (let c = count - 1; c > 0; c--)
                if (base[c] !== base[c - 1]) {
                    context.lineTo(c, y(base[c]));
                    context.lineTo(c, y(base[c - 1]));
                }
            context.lineTo(0, y(base[0]));
            context.fill();
            base.set(top);
        }
    }

    // A block is a run of columns at one height; where it moves, a new one begins. One that is less than a pixel high is left to the
    // colour of its group.
    *paintBlocks({context, y}, columns, blocks) {
        const b = this.model.blocks, of = this.grouping.of;
        const runs = blocks.map(() => ({from: -1, base: 0})), outline = [];
        const emit = (k, to) => {
            const run = runs[k], i = blocks[k];
            const low = y(run.base), high = y(run.base + b.size[i]);
            if (i === this.block)
                outline.push([run.from, high, to - run.from, low - high]);
            if (low - high < 1) {
                run.from = -1;
                return;
            }
            const gap = low - high > 3 ? 0.7 : 0;
            context.fillStyle = groupColour(this.grouping.groups[of[i]], of[i], i);
            context.fillRect(run.from, high + gap, to - run.from + 0.02, low - high - gap);
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
        this.strokeOutline(context, outline);
    }

    // Around the runs of one block. Where it moves it has a side between two long runs only: those of many short ones would cover it.
    strokeOutline(context, runs) {
        const end = run => run[0] + run[2], long = 8;
        const sided = (one, other) => !one || !other || end(one) !== other[0] || Math.min(one[2], other[2]) >= long;
        context.beginPath();
        runs.forEach((run, k) => {
            const [left, top, width, height] = run, right = left + Math.max(1, width), low = top + Math.max(1, height);
            for (const [fromX, fromY, toX, toY, drawn] of [[left, top, right, top, true], [left, low, right, low, true],
                [left, top, left, low, sided(runs[k - 1], run)], [right, top, right, low, sided(run, runs[k + 1])]])
                if (drawn) {
                    context.moveTo(fromX, fromY);
                    context.lineTo(toX, toY);
                }
        });
        context.stroke();
    }

    // What the axes of the view at hand say.
    ticks() {
        const count = Math.max(2, Math.floor(this.width / 120)), [low, high] = this.y.domain();
        const format = this.axis === "time" ? timeTicks(...this.x.domain(), count)
            : value => Number.isInteger(value) ? formatCount(value) : "";
        const across = this.x.ticks(count), up = byteTicks(low, high, 5);
        return {x: {values: across, texts: across.map(format)}, y: {values: up, texts: up.map(formatBytes)}};
    }

    drawFrame() {
        if (!this.y || !this.box || !this.seen)
            return;
        const {x, y} = this.ticks(), right = MARGIN.left + this.width, bottom = MARGIN.top + this.height;
        const place = moment => this.x(this.xOf(moment)), seen = at => at >= MARGIN.left - 1 && at <= right + 1;
        const upper = beginFrame(this.frame, this.box.width, this.box.height), lower = beginFrame(this.lowerFrame, this.box.width, this.box.lower);
        drawBelow(upper, x, this.x, bottom, [MARGIN.left, right]);
        drawBeside(upper, y, this.y, MARGIN.left, [MARGIN.top, bottom]);
        drawBeside(lower, {values: [0, 0.5, 1], texts: ["0\u00a0%", "50\u00a0%", "100\u00a0%"]}, this.share, MARGIN.left, this.share.range());
        if (this.range) {
            const [from, to] = [this.range.from, this.range.to].map(moment => Math.max(MARGIN.left, Math.min(right, place(moment))));
            drawRange(upper, from, to, MARGIN.top, this.height);
        }
        const cursor = this.moment === undefined ? -1 : place(this.moment);
        if (seen(cursor)) {
            drawCursor(upper, cursor, MARGIN.top, this.topAt(this.moment) - MARGIN.top);
            drawFoot(upper, cursor, bottom);
            drawCursor(lower, cursor, 0, this.lowerHeight);
        }
        const {peak, states, ooms} = this.model.device;
        this.marks = [{kind: "peak", moment: peak, title: "Peak: " + formatBytes(states.peak.allocated)},
            ...ooms.map(oom => ({kind: "oom", moment: oom.moment, title: "Out of memory: requested " + formatBytes(oom.asked)}))]
            .map(mark => ({...mark, x: place(mark.moment)})).filter(mark => seen(mark.x));
        for (const mark of this.marks)
            drawMark(upper, mark, MARGIN.top);
    }

    // Where the highest column ends beside a moment, pixels: a peak may be one column wide, so no line crosses it.
    topAt(moment) {
        const {tops, low, step} = this.seen, column = Math.floor((this.xOf(moment) - low) / step);
        const highest = Math.max(0, ...tops.subarray(Math.max(0, column - 1), Math.max(0, column + 2)));
        return Math.max(MARGIN.top, Math.min(MARGIN.top + this.height, this.y(highest)));
    }

    // What the frame says, for whoever cannot see it.
    describeFrame() {
        const {x, y} = this.ticks();
        Object.assign(this.root.dataset, {x: x.texts.join(", "), y: y.texts.join(", "),
            marks: this.marks.map(mark => mark.kind + " " + Math.round(mark.x)).join(", ")});
    }

    async drawFree(x, columns, width, stale) {
        const picture = new Picture(width, this.lowerHeight - 6, x, this.share);
        await inSlices(this.paintFree(picture, columns), stale);
        if (stale())
            return;
        this.lowerPicture = picture;
        this.present();
    }

    // What of the reserved memory is free: at the bottom its largest hole, on it all the others. Between the samples that came with the
    // page, where these are too far apart, moments are looked at one by one.
    *paintFree(picture, columns) {
        const samples = this.model.samples, moments = samples.sampleMoment, points = [];
        const from = lowerBound(moments, columns.first), to = lowerBound(moments, columns.last + 1);
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
        const {context, x, y} = picture, style = getComputedStyle(document.documentElement), [, end] = x.range();
        const area = (colour, value) => {
            context.fillStyle = style.getPropertyValue(colour);
            points.forEach((point, k) => {
                const reserved = this.model.reserved[point.moment], share = reserved ? value(point) / reserved : 0;
                const left = x(this.xOf(point.moment)), right = k + 1 < points.length ? x(this.xOf(points[k + 1].moment)) : end;
                context.fillRect(left, y(share), right - left + 0.5, y(0) - y(share));
            });
        };
        area("--holes", point => point.free);
        area("--largest", point => point.largest);
    }

    selectBlock(block) {
        this.block = block;
        this.draw();
    }

    select(moment) {
        this.moment = moment;
        this.drawFrame();
    }

    // --- what the reader does ---

    under(event) {
        const box = this.canvas.getBoundingClientRect();
        const x = event.clientX - box.left - MARGIN.left, y = event.clientY - box.top;
        if (!this.seen || !this.y || x < 0 || x >= this.width || y < MARGIN.top || y > MARGIN.top + this.height)
            return null;
        const column = Math.floor((this.x.invert(x + MARGIN.left) - this.seen.low) / this.seen.step);
        const moment = this.seen.moments[Math.max(0, Math.min(this.seen.count - 1, column))];
        return {moment, block: this.blockAt(moment, this.y.invert(y))};
    }

    // The block at a height of the stack, or -1.
    blockAt(moment, height) {
        const {of, groups, on} = this.grouping, b = this.model.blocks;
        const sums = atOnce(this.model.sumsAt(this.grouping, moment)).map((sum, g) => on && !on[g] ? 0 : sum);
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
        const mark = this.markUnder(event), found = mark || this.under(event);
        if (!found)
            return;
        this.listeners.onMoment(found.moment);
        if (found.block >= 0)
            this.listeners.onBlock(found.block);
    }

    hover(event) {
        const mark = this.markUnder(event), found = this.under(event);
        this.listeners.onHover(mark ? [mark.title] : found && this.describe(found), event);
    }

    markUnder(event) {
        const box = this.canvas.getBoundingClientRect();
        return markAt(this.marks, event.clientX - box.left, event.clientY - box.top, MARGIN.top);
    }

    describe({moment, block}) {
        const model = this.model, lines = [];
        if (block >= 0)
            lines.push(formatBytes(model.blocks.size[block]) + " \u00b7 " + this.grouping.label(block), ...stackLines(model, block));
        lines.push("after event " + formatCount(moment) + (model.device.hasTimes ? ", " + formatTime(model.times[moment]) : ""));
        lines.push("allocated " + formatBytes(model.allocated[moment]));
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
            "[": () => this.listeners.onRangeEnd("from"),
            "]": () => this.listeners.onRangeEnd("to"),
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
    const colour = group.rest ? "#8a8f98" : group.colour || PALETTE[number % PALETTE.length];
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
