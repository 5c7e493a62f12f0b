// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// One device of one file: the same rectangles that the C analysis has (analysis.h), and its questions about a moment. Moments are
// numbers of events; a block lives from `begin` until before `freed`, and waits until before `end`.

const CHECKPOINT = 2048; // moments
const GROUPS_SHOWN = 14; // with a colour of their own

// What blocks are put under by their size, and by their life as a part of the recording.
const SIZES = [[4096, "up to 4 KiB"], [2 ** 20, "up to 1 MiB"], [20 * 2 ** 20, "up to 20 MiB"], [200 * 2 ** 20, "up to 200 MiB"], [2 ** 30, "up to 1 GiB"], [Infinity, "over 1 GiB"]];
const LIVES = [[0.001, "under 0.1 % of the recording"], [0.01, "under 1 % of the recording"], [0.1, "under 10 % of the recording"], [Infinity, "over 10 % of the recording"]];

// These groups have the same colour in every recording.
const FIXED_COLOURS = {weights: "#4e79a7", gradients: "#e15759", optimizer: "#b07aa1", activations: "#f28e2b", caches: "#76b7b2", workspaces: "#9c755f",
    temporaries: "#edc948", "kept from before": "#a0cbe8", unknown: "#8a8f98", "from before the recording": "#4e79a7", "in the recorded state": "#4e79a7",
    "to the end of the recording": "#59a14f", "over 10 % of the recording": "#76b7b2", "under 10 % of the recording": "#edc948",
    "under 1 % of the recording": "#f28e2b", "under 0.1 % of the recording": "#e15759", "up to 4 KiB": "#e15759", "up to 1 MiB": "#f28e2b",
    "up to 20 MiB": "#edc948", "up to 200 MiB": "#76b7b2", "up to 1 GiB": "#59a14f", "over 1 GiB": "#4e79a7"};
const HAS_FIXED = new Set(["category", "life", "size"]);

class Model {
    constructor(file, device, arrays) {
        this.file = file;
        this.device = device;
        this.events = device.events;
        this.times = arrays.times;
        this.samples = arrays;
        this.blocks = {count: arrays.address.length, address: arrays.address, size: arrays.size, room: arrays.room,
            begin: arrays.begin, freed: arrays.freed, end: arrays.end, stream: arrays.stream, pool: arrays.pool,
            stack: arrays.stack, tag: arrays.tag, thread: arrays.thread, category: arrays.category, byAddress: arrays.byAddress};
        this.ranges = {count: arrays.rangeAddress.length, address: arrays.rangeAddress, size: arrays.rangeSize,
            begin: arrays.rangeBegin, end: arrays.rangeEnd, pool: arrays.rangePool, stream: arrays.rangeStream,
            joins: arrays.rangeJoins, byAddress: arrays.rangeByAddress};
        this.fails = new Uint8Array(this.blocks.count); // facets that leave a block out
        this.applied = 0; // facets that leave any out
        this.marks = arrays;
    }

    // What is asked for often: the blocks in the order of their frees, and what is allocated and reserved at each moment.
    *prepare() {
        const {count, freed} = this.blocks;
        const start = new Uint32Array(this.events + 2);
        for (let i = 0; i < count; i++) {
            if (freed[i] !== NEVER)
                start[freed[i] + 1]++;
            if (i % 65536 === 0)
                yield;
        }
        for (let m = 0; m <= this.events; m++)
            start[m + 1] += start[m];
        yield;
        const next = start.slice(), order = new Uint32Array(count);
        for (let i = 0; i < count; i++) {
            if (freed[i] !== NEVER)
                order[next[freed[i]]++] = i;
            if (i % 65536 === 0)
                yield;
        }
        this.freedStart = start; // of moment m: order[start[m]] to before order[start[m + 1]]
        this.freedOrder = order;

        this.allocated = yield* this.sumsOverTime(this.blocks, freed);
        this.reserved = yield* this.sumsOverTime(this.ranges, this.ranges.end);
    }

    // At each moment the bytes of what has begun and not ended.
    *sumsOverTime({count, size, begin}, end) {
        const sums = new Float64Array(this.events + 1);
        for (let i = 0; i < count; i++) {
            sums[begin[i]] += size[i];
            if (end[i] !== NEVER)
                sums[end[i]] -= size[i];
            if (i % 65536 === 0)
                yield;
        }
        for (let m = 1; m <= this.events; m++)
            sums[m] += sums[m - 1];
        return sums;
    }

    lives(i, moment) {
        return this.blocks.begin[i] <= moment && moment < this.blocks.freed[i];
    }

    // When a block's life begins and ends, of what was recorded, ns or events.
    starts(i) {
        return this.device.hasTimes ? this.times[this.blocks.begin[i]] : this.blocks.begin[i];
    }

    ends(i) {
        const end = Math.min(this.blocks.freed[i], this.events);
        return this.device.hasTimes ? this.times[end] : end;
    }

    waits(i, moment) {
        return this.blocks.freed[i] <= moment && moment < this.blocks.end[i];
    }

    // The living blocks that no facet leaves out, the largest first and then by address.
    alive(moment, facets = ALL_FACETS) {
        const {count, size, address} = this.blocks, {fails} = this, alive = [];
        for (let i = 0; i < count; i++)
            if (!(fails[i] & facets) && this.lives(i, moment))
                alive.push(i);
        return alive.sort((a, b) => size[b] - size[a] || address[a] - address[b]);
    }

    // Sums, and where `visit` is given, everything in the order of addresses: visit(what, address, size, index).
    stateAt(moment, visit) {
        const b = this.blocks, r = this.ranges;
        const state = {moment, allocated: 0, waiting: 0, reserved: 0, free: 0, largest: 0, blocks: 0, waitingBlocks: 0, holes: 0};
        let hole = 0, holeAt = 0, at = 0, next = 0, before = -1;
        const endHole = () => {
            if (hole) {
                state.free += hole;
                state.holes++;
                state.largest = Math.max(state.largest, hole);
                if (visit)
                    visit("free", holeAt, hole, -1);
            }
            hole = 0;
        };
        const addHole = (from, size) => {
            holeAt = hole ? holeAt : from;
            hole += size;
        };
        const present = i => b.begin[i] <= moment && moment < b.end[i];
        const take = i => {
            const lives = moment < b.freed[i];
            state[lives ? "allocated" : "waiting"] += b.size[i];
            state[lives ? "blocks" : "waitingBlocks"]++;
            return lives;
        };
        for (let k = 0; k < r.count; k++) {
            const range = r.byAddress[k];
            if (moment < r.begin[range] || moment >= r.end[range])
                continue;
            const from = r.address[range], end = from + r.size[range];
            state.reserved += r.size[range];
            if (before < 0 || !r.joins[before] || !r.joins[range] || r.address[before] + r.size[before] !== from ||
                r.pool[before] !== r.pool[range] || r.stream[before] !== r.stream[range])
                endHole();
            if (visit)
                visit("range", from, r.size[range], range);
            at = Math.max(at, from);
            for (; next < b.count && b.address[b.byAddress[next]] < end; next++) {
                const i = b.byAddress[next];
                if (!present(i))
                    continue;
                if (b.address[i] > at)
                    addHole(at, b.address[i] - at);
                endHole();
                const lives = take(i);
                if (visit)
                    visit(lives ? "live" : "waiting", b.address[i], b.room[i], i);
                at = Math.max(at, b.address[i] + b.room[i]);
            }
            if (at < end)
                addHole(at, end - at);
            before = range;
        }
        endHole();
        for (; next < b.count; next++)
            if (present(b.byAddress[next]))
                take(b.byAddress[next]);
        return state;
    }

    // --- labels ---

    text(number) {
        return this.file.texts[number] || "";
    }

    streamLabel(number) {
        return this.file.streams[number];
    }

    poolLabel(number) {
        return this.file.pools[number];
    }

    threadLabel(number) {
        const name = this.file.threadNames[number];
        return number ? "thread " + number + (name ? " " + name : "") : "unknown thread";
    }

    siteLabel(stack) {
        return this.file.siteLabels[this.file.sites[stack]];
    }

    // The call site of a block: one that was there before may lack a stack for that.
    siteOf(i) {
        const before = !this.blocks.stack[i] && !this.blocks.begin[i] && this.device.hasTrace;
        return before ? "from before the recording" : this.siteLabel(this.blocks.stack[i]);
    }

    frames(stack) {
        const frames = [];
        for (; stack; stack = this.file.stackCaller[stack])
            frames.push(this.file.frames[this.file.stackFrame[stack]]);
        return frames;
    }

    // How long a block lives, where nothing else tells blocks apart.
    lifeLabel(i) {
        const {begin, freed} = this.blocks, whole = this.device.hasTimes ? this.times[this.events] : this.events;
        if (!begin[i])
            return this.device.hasTrace ? "from before the recording" : "in the recorded state";
        return freed[i] === NEVER ? "to the end of the recording" : LIVES.find(([most]) => this.ends(i) - this.starts(i) <= most * whole)[1];
    }

    // The part of a tag that is looked at: one step deeper wherever the reader has opened it.
    tagLabel(tag, opened) {
        if (!tag)
            return "no tag";
        const parts = this.text(tag).split("/");
        let prefix = parts[0], depth = 1;
        while (opened.has(prefix) && depth < parts.length)
            prefix += "/" + parts[depth++];
        return prefix;
    }

    // A function from a block's number to what it is put under.
    labeller(by, opened) {
        const {tag, stack, stream, pool, thread} = this.blocks;
        const lastPart = key => key ? this.text(key).slice(this.text(key).lastIndexOf("/") + 1) : "no tag";
        const remember = (column, label, known = new Map()) => i => {
            const key = column[i];
            let text = known.get(key);
            if (text === undefined)
                known.set(key, text = label(key));
            return text;
        };
        switch (by) {
        case "tag": return remember(tag, key => this.tagLabel(key, opened));
        case "last": return remember(tag, lastPart);
        case "site": {
            const known = remember(stack, key => this.siteLabel(key));
            return i => stack[i] ? known(i) : this.siteOf(i);
        }
        case "module": return remember(stack, key => this.file.moduleLabels[this.file.modules[key]]);
        case "category": return remember(this.blocks.category, key => this.file.categories[key]);
        case "size": return i => SIZES.find(([most]) => this.blocks.size[i] <= most)[1];
        case "life": return i => this.lifeLabel(i);
        case "stream": return remember(stream, key => this.streamLabel(key));
        case "pool": return remember(pool, key => this.poolLabel(key));
        default: return remember(thread, key => this.threadLabel(key));
        }
    }

    // Groups at one moment of what no facet leaves out, the largest first: {label, bytes, blocks}.
    groupsAt(moment, by, opened, facets = 0) {
        const label = this.labeller(by, opened), groups = new Map();
        for (let i = 0; i < this.blocks.count; i++) {
            if (this.fails[i] & facets || !this.lives(i, moment))
                continue;
            const name = label(i);
            let group = groups.get(name);
            if (!group)
                groups.set(name, group = {label: name, bytes: 0, blocks: 0});
            group.bytes += this.blocks.size[i];
            group.blocks++;
        }
        return [...groups.values()].sort((a, b) => b.bytes - a.bytes || (a.label < b.label ? -1 : 1));
    }

    // What is done at each moment from `from` to before `to`: begun(i), freed(i), then done(moment).
    *walk(from, to, begun, freed, done) {
        const b = this.blocks;
        let next = lowerBound(b.begin, from);
        for (let moment = from; moment < to; moment++) {
            for (let k = this.freedStart[moment]; k < this.freedStart[moment + 1]; k++)
                if (b.begin[this.freedOrder[k]] < moment)
                    freed(this.freedOrder[k]);
            for (; next < b.count && b.begin[next] === moment; next++)
                if (b.freed[next] > moment)
                    begun(next);
            done(moment);
            if (moment % 4096 === 4095)
                yield;
        }
    }

    // Divides the blocks for good: the groups that are ever largest have a number of their own, the rest shares the last; what a facet
    // other than the legend leaves out is HIDDEN. Also sums of each at every CHECKPOINT-th moment, from which those of any other are
    // soon found.
    *grouping(by, opened) {
        const {count, size} = this.blocks, label = this.labeller(by, opened), keys = new Map();
        const key = new Uint32Array(count).fill(NEVER), children = new Set(), left = ALL_FACETS & ~FACET.legend;
        for (let i = 0; i < count; i++) {
            if (i % 16384 === 0)
                yield;
            if (this.fails[i] & left)
                continue;
            const name = label(i);
            let number = keys.get(name);
            if (number === undefined)
                keys.set(name, number = keys.size);
            key[i] = number;
            if (by === "tag" && this.blocks.tag[i] && this.text(this.blocks.tag[i]).length > name.length)
                children.add(name);
        }
        const now = new Float64Array(keys.size), most = new Float64Array(keys.size);
        yield* this.walk(0, this.events + 1, i => {
            if (key[i] === NEVER)
                return;
            now[key[i]] += size[i];
            most[key[i]] = Math.max(most[key[i]], now[key[i]]);
        }, i => {
            if (key[i] !== NEVER)
                now[key[i]] -= size[i];
        }, () => {});

        const names = [...keys.keys()];
        const order = names.map((_, number) => number).sort((a, b) => most[b] - most[a] || a - b);
        const shown = order.length > GROUPS_SHOWN + 1 ? order.slice(0, GROUPS_SHOWN) : order;
        const place = new Uint16Array(names.length).fill(shown.length);
        shown.forEach((number, at) => { place[number] = at; });
        const groups = shown.map(number => ({label: names[number], most: most[number], opens: children.has(names[number]),
            colour: HAS_FIXED.has(by) ? FIXED_COLOURS[names[number]] : undefined}));
        if (shown.length < order.length)
            groups.push({label: plural(order.length - shown.length, "other"), most: 0, rest: true});
        const of = new Uint16Array(count).fill(HIDDEN);
        for (let i = 0; i < count; i++)
            if (key[i] !== NEVER)
                of[i] = place[key[i]];
        yield;

        const width = groups.length, checkpoints = new Float64Array((Math.floor(this.events / CHECKPOINT) + 1) * width);
        const sums = new Float64Array(width), change = changeOf(sums, of, size);
        yield* this.walk(0, this.events + 1, change(1), change(-1), moment => {
            if (moment % CHECKPOINT === 0)
                checkpoints.set(sums, moment / CHECKPOINT * width);
        });
        return {by, of, groups, checkpoints, label};
    }

    // The sums of each group after a moment's events.
    *sumsAt(grouping, moment) {
        const width = grouping.groups.length, at = Math.floor(moment / CHECKPOINT);
        const sums = grouping.checkpoints.slice(at * width, (at + 1) * width);
        const change = changeOf(sums, grouping.of, this.blocks.size);
        yield* this.walk(at * CHECKPOINT + 1, moment + 1, change(1), change(-1), () => {});
        return sums;
    }
}

// Adds a block to its group's sum, or takes it away.
const changeOf = (sums, of, size) => sign => i => {
    if (of[i] !== HIDDEN)
        sums[of[i]] += sign * size[i];
};

// The first place of a sorted array whose value is not below `value`.
function lowerBound(array, value) {
    let low = 0, high = array.length;
    while (low < high) {
        const middle = (low + high) >>> 1;
        if (array[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// A generator that is short, to its end at once.
function atOnce(generator) {
    for (;;) {
        const step = generator.next();
        if (step.done)
            return step.value;
    }
}
