// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// From a snapshot that the page has read itself (pickle.js) to what the program puts into a page: blocks and ranges as analysis.c and
// workload.c find them. Advice, categories, modules, other allocators, and what only tarn's own files have, are the program's alone.

const UNIT = 512; // c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize
const ONLY_PROGRAM = "shown by tarn report";
const READ_SAMPLES = 200;

const isSize = value => typeof value === "number" && value > 0 && value <= 2 ** 62;
const textOr = value => (typeof value === "string" ? value.slice(0, 1024) : "");
const listOr = value => (Array.isArray(value) ? value : []);
const numberOr = value => (typeof value === "number" && value >= 0 ? value : 0);

// Numbers for values: the first is that of none.
class Numbering {
    constructor(none, label) {
        this.label = label;
        this.numbers = new Map([[none, 0]]);
    }

    of(value) {
        if (!this.numbers.has(value))
            this.numbers.set(value, this.numbers.size);
        return this.numbers.get(value);
    }

    labels() {
        return [...this.numbers.keys()].map(this.label);
    }
}

// Blocks of a device's trace and of its final state.
class BlockList {
    constructor() {
        this.blocks = [];
        this.at = new Map(); // by address: the last block there
    }

    add(address, size, begin, initial) {
        const block = {address, size, room: Math.ceil(size / UNIT) * UNIT, begin, freed: NEVER, end: NEVER, stream: 0, pool: 0, stack: 0, tag: 0,
            thread: 0, initial, known: false};
        this.blocks.push(block);
        this.at.set(address, block);
        return block;
    }

    // What is left of a block's end, where the recording lost it.
    finish(block, moment) {
        if (block.freed === NEVER)
            block.freed = moment;
        if (block.end === NEVER)
            block.end = moment;
    }
}

// Ranges that the allocator had from the driver: those that are mapped now, in order of addresses, never overlap.
class RangeList {
    constructor() {
        this.ranges = [];
        this.mapped = [];
    }

    // The place of the first mapped range that ends behind an address.
    find(address) {
        let low = 0, high = this.mapped.length;
        while (low < high) {
            const middle = (low + high) >>> 1;
            if (this.mapped[middle].address + this.mapped[middle].size > address)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }

    add(range) {
        if (range.size <= 0)
            return;
        this.ranges.push(range);
        if (range.end === NEVER)
            this.mapped.splice(this.find(range.address), 0, range);
    }

    // Ends what is mapped of a range. What was not known to be mapped there was there from the beginning if `before`; what sticks out goes
    // on as ranges of its own.
    end(gone, moment, before) {
        const end = gone.address + gone.size;
        let at = gone.address, place = this.find(at);
        while (place < this.mapped.length && this.mapped[place].address < end) {
            const [old] = this.mapped.splice(place, 1), oldEnd = old.address + old.size;
            old.end = moment;
            if (before)
                this.add({...gone, address: at, size: old.address - at, begin: 0, end: moment});
            this.add({...old, size: gone.address - old.address, begin: moment, end: NEVER});
            this.add({...old, address: end, size: oldEnd - end, begin: moment, end: NEVER});
            at = Math.max(at, oldEnd);
            place = this.find(Math.min(at, end));
        }
        if (before)
            this.add({...gone, address: at, size: end - at, begin: 0, end: moment});
    }

    // The parts of a final segment that no event explains.
    state(range) {
        const end = range.address + range.size;
        for (let at = range.address; at < end;) {
            const next = this.mapped[this.find(at)], inside = next && next.address < end;
            this.add({...range, address: at, size: (inside ? next.address : end) - at});
            at = inside ? next.address + next.size : end;
        }
    }
}

class RecordingReader {
    constructor(name, snapshot) {
        this.snapshot = snapshot;
        this.stacks = new StackTree();
        this.texts = new Numbering("", text => text);
        this.streams = new Numbering(0, value => (value ? "stream 0x" + value.toString(16) : "default stream"));
        this.pools = new Numbering("0, 0", value => (value === "0, 0" ? "default pool" : "pool (" + value + ")"));
        this.segments = listOr(snapshot.segments).filter(segment => segment instanceof PlainDict);
        this.traces = listOr(snapshot.device_traces).map(trace => listOr(trace).filter(event => event instanceof PlainDict));
        this.name = name;
    }

    poolOf(item) {
        const id = item.pool_id || item.segment_pool_id;
        return this.pools.of(Array.isArray(id) && id.length === 2 ? numberOr(id[0]) + ", " + numberOr(id[1]) : "0, 0");
    }

    // {file, devices: [{device, arrays}]}, as a page of the program has them.
    *read() {
        const count = this.segments.reduce((most, segment) => Math.max(most, numberOr(segment.device) + 1), this.traces.length);
        const devices = [];
        for (let number = 0; number < Math.min(count, 4096); number++)
            if ((this.traces[number] || []).length || this.segments.some(segment => numberOr(segment.device) === number))
                devices.push(yield* this.device(number));
        if (!devices.length)
            throw new Error("it has no segments and no trace, so there is nothing to show");
        const stacks = this.stacks.describe(), tarn = this.snapshot.tarn, recorded = this.snapshot.tarn_recorded || {};
        const file = {name: this.name, by: tarn instanceof PlainDict ? textOr(tarn.library) : recorded.source === "tarn run" ? "tarn run" : "PyTorch", texts: this.texts.labels(), ...stacks,
            modules: new Uint32Array(stacks.sites.length), moduleLabels: [ONLY_PROGRAM], categories: [ONLY_PROGRAM],
            streams: this.streams.labels(), pools: this.pools.labels(), threadNames: {}, devices: [], poolStates: [], markKinds: [],
            settings: {there: false}, handles: [], workspaces: []};
        return {file, devices};
    }

    *device(number) {
        const trace = this.traces[number] || [], hasTrace = trace.some(event => event.action !== undefined), list = new BlockList();
        const segments = this.segments.filter(segment => numberOr(segment.device) === number);
        const times = new Float64Array(trace.length + 1), ooms = [], ranges = new RangeList();
        const completions = trace.some(event => event.action === "free_completed");
        const first = (trace.find(event => typeof event.time_us === "number") || {}).time_us;
        for (let i = 0; i < trace.length; i++) {
            const event = trace[i], time = typeof event.time_us === "number" ? (event.time_us - first) * 1000 : 0;
            times[i + 1] = first === undefined ? i * 1000 : Math.max(times[i], time);
            this.block(list, event, i + 1, completions);
            this.range(ranges, event, i + 1);
            if (event.action === "oom")
                ooms.push({event: i, moment: i, asked: numberOr(event.size), deviceFree: numberOr(event.device_free), tag: this.texts.of(textOr(event.user_metadata)),
                    stack: this.stacks.stackOf(event.frames)});
            if (i % 8192 === 8191)
                yield;
        }
        for (const segment of segments) {
            this.state(list, segment);
            ranges.state({address: numberOr(segment.address), size: numberOr(segment.total_size), begin: 0, end: NEVER,
                stream: this.streams.of(numberOr(segment.stream)), pool: this.poolOf(segment), joins: segment.is_expandable === true ? 1 : 0});
            yield;
        }
        const blocks = [...list.blocks.filter(block => block.initial).sort((a, b) => a.address - b.address), ...list.blocks.filter(block => !block.initial)];
        const device = {device: number, name: "", events: hasTrace ? trace.length : 0, hasTrace, hasTimes: hasTrace && first !== undefined,
            hasTags: blocks.some(block => block.tag), hasStacks: blocks.some(block => block.stack), hasCategories: false,
            partial: "The page has read this file itself, and does not show advice, categories, modules, other allocators, or the regions, waits and " +
                "captures in tarn's own files. `tarn report -o page.html " + this.name + "` makes a page that does.",
            ooms, advice: [], annotations: [], whatIf: null, states: {}};
        return {device, arrays: yield* this.arrays(device, times, blocks, ranges.ranges)};
    }

    // An event that is of a block. The first at an address proves a block from before the trace.
    block(list, event, moment, completions) {
        const address = event.addr, here = list.at.get(address), live = here && here.end === NEVER;
        if (event.action === "alloc") {
            if (!isSize(event.size))
                return;
            if (live)
                list.finish(here, moment);
            const block = list.add(address, event.size, moment, false);
            this.owner(block, event, true);
        } else if (event.action === "free_requested" || event.action === "free_completed") {
            if (!here && !isSize(event.size))
                return;
            const block = here || list.add(address, event.size, 0, true), requested = event.action === "free_requested";
            if (!here) {
                this.owner(block, event, false);
                block.freed = requested ? NEVER : 0; // its free was requested before the trace
            }
            if (block.end !== NEVER || (requested && block.freed !== NEVER))
                return; // it was freed before: an event that cannot be
            if (requested && completions)
                block.freed = moment;
            else
                list.finish(block, moment);
        }
    }

    owner(block, event, allocated) {
        Object.assign(block, {known: true, stream: this.streams.of(numberOr(event.stream)), pool: this.poolOf(event),
            tag: this.texts.of(textOr(event.user_metadata)), stack: allocated ? this.stacks.stackOf(event.frames) : 0,
            thread: allocated ? numberOr(event.thread) : 0});
    }

    range(ranges, event, moment) {
        const maps = event.action === "segment_map" || event.action === "segment_alloc";
        const unmaps = event.action === "segment_unmap" || event.action === "segment_free";
        if ((!maps && !unmaps) || !isSize(event.size))
            return;
        const range = {address: numberOr(event.addr), size: event.size, begin: moment, end: NEVER, stream: this.streams.of(numberOr(event.stream)),
            pool: this.poolOf(event), joins: event.action === "segment_map" || event.action === "segment_unmap" ? 1 : 0};
        ranges.end(range, moment, unmaps); // mapped twice: the recording lost an unmapping
        if (maps)
            ranges.add(range);
    }

    // What the final state says: blocks that the trace never mentions were there before it.
    state(list, segment) {
        let address = numberOr(segment.address);
        for (const last of listOr(segment.blocks)) {
            if (!(last instanceof PlainDict))
                continue;
            const place = typeof last.address === "number" ? last.address : address, history = listOr(last.history)[0];
            address = place + numberOr(last.size);
            if (last.state === "inactive" || !isSize(last.size))
                continue;
            const here = list.at.get(place), size = isSize(last.requested_size) ? last.requested_size : last.size;
            if (here && here.end !== NEVER)
                continue; // the recording lost an allocation
            const block = here || list.add(place, size, 0, true);
            block.room = Math.max(last.size, block.size);
            if (block.known)
                continue;
            Object.assign(block, {stream: this.streams.of(numberOr(segment.stream)), pool: this.poolOf(segment),
                tag: this.texts.of(textOr(last.user_metadata)), stack: this.stacks.stackOf(last.frames || (history || {}).frames)});
            if (last.state !== "active_allocated") // no event asks for its free: that was before
                block.freed = 0;
        }
    }

    *arrays(device, times, blocks, ranges) {
        const column = (items, Type, key) => Type.from(items, item => item[key]);
        const order = (items, rest) => Uint32Array.from(items.map((_, i) => i).sort((a, b) => items[a].address - items[b].address || rest(a, b)));
        const arrays = {times: device.hasTrace ? times : new Float64Array(1)};
        for (const key of ["address", "size", "room"])
            arrays[key] = column(blocks, Float64Array, key);
        for (const key of ["begin", "freed", "end", "stream", "pool", "stack", "tag", "thread"])
            arrays[key] = column(blocks, Uint32Array, key);
        yield;
        Object.assign(arrays, {rangeAddress: column(ranges, Float64Array, "address"), rangeSize: column(ranges, Float64Array, "size"),
            rangeBegin: column(ranges, Uint32Array, "begin"), rangeEnd: column(ranges, Uint32Array, "end"),
            rangeStream: column(ranges, Uint32Array, "stream"), rangePool: column(ranges, Uint32Array, "pool"),
            rangeJoins: column(ranges, Uint8Array, "joins"), category: new Uint8Array(blocks.length),
            byAddress: order(blocks, (a, b) => a - b), rangeByAddress: order(ranges, (a, b) => a - b), markKind: new Uint8Array(0)});
        return arrays;
    }
}

// Where each sum is highest, and states over time: what the program says of a device besides its blocks.
function* describePeaks(model) {
    const {device, blocks, events} = model, allocated = new Float64Array(events + 1);
    for (let i = 0; i < blocks.count; i++) {
        if (blocks.freed[i] <= blocks.begin[i])
            continue;
        allocated[blocks.begin[i]] += blocks.size[i];
        if (blocks.freed[i] !== NEVER)
            allocated[blocks.freed[i]] -= blocks.size[i];
    }
    let peak = 0, peakReserved = 0;
    for (let moment = 1; moment <= events; moment++)
        allocated[moment] += allocated[moment - 1];
    for (let moment = 0; moment <= events; moment++) {
        peak = allocated[moment] > allocated[peak] ? moment : peak;
        const more = model.reserved[moment] - model.reserved[peakReserved];
        peakReserved = more > 0 || (more === 0 && allocated[moment] > allocated[peakReserved]) ? moment : peakReserved;
    }
    Object.assign(device, {peak, peakReserved, states: {peak: model.stateAt(peak), peakReserved: model.stateAt(peakReserved)}});
    for (const oom of device.ooms) {
        const state = model.stateAt(oom.moment);
        Object.assign(oom, {free: state.free, largest: state.largest});
        yield;
    }
    const moments = new Set([0, peak, events]), last = device.hasTimes ? model.times[events] : events;
    for (let span = 0, moment = 0; span < READ_SAMPLES; span++) { // of each span the moment at which most was allocated
        let best = -1;
        for (; moment <= events && (device.hasTimes ? model.times[moment] : moment) <= last * (span + 1) / READ_SAMPLES; moment++)
            best = best < 0 || allocated[moment] > allocated[best] ? moment : best;
        if (best >= 0)
            moments.add(best);
    }
    const found = Uint32Array.from(moments).sort(), states = [];
    for (const moment of found) {
        states.push(model.stateAt(moment));
        yield;
    }
    Object.assign(model.samples, {sampleMoment: found, sampleAllocated: Float64Array.from(states, state => state.allocated),
        sampleFree: Float64Array.from(states, state => state.free), sampleLargest: Float64Array.from(states, state => state.largest)});
}

// The models of a snapshot's file.
async function readSnapshot(file) {
    const buffer = await file.arrayBuffer(), head = new Uint8Array(buffer.slice(0, 4));
    if (head[0] === 0x28 && head[1] === 0xb5 && head[2] === 0x2f && head[3] === 0xfd)
        throw new Error(file.name + " is compressed with zstd, which a browser cannot read. Unpack it with `zstd -d " + file.name +
            "`, or run `tarn report -o page.html " + file.name + "`, which reads it as it is");
    if (head[0] !== 0x80)
        throw new Error(file.name + " is neither a page of `tarn report` nor a snapshot in a pickle. For a log of RMM, run `tarn report -o " +
            "page.html " + file.name + "`");
    let snapshot;
    try {
        snapshot = await inSlices(new PickleReader(buffer).read());
        snapshot = Array.isArray(snapshot) ? Object.assign(new PlainDict(), {segments: snapshot}) : snapshot;
        if (!(snapshot instanceof PlainDict))
            throw new Error("it is not a snapshot: neither a dict nor a list of segments");
        const {file: shared, devices} = await inSlices(new RecordingReader(file.name, snapshot).read()), made = [];
        for (const {device, arrays} of devices) {
            const model = new Model(shared, device, arrays);
            await inSlices(model.prepare());
            await inSlices(describePeaks(model));
            made.push(model);
        }
        return made;
    } catch (error) {
        throw new Error(file.name + ": " + error.message + ". No code in the file was run");
    }
}
