// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Two moments of one recording beside each other, and what happened between them.

const RANGE_ROWS = 60;

// Of what is looked at: {allocated, freed, kept: {bytes, blocks}, groups}. A block is kept that was allocated after `from` and lives at `to`.
function betweenMoments(model, {from, to}, by, opened) {
    const label = model.labeller(by, opened), {count, begin, freed, size} = model.blocks, groups = new Map();
    const sums = {before: {bytes: 0, blocks: 0}, after: {bytes: 0, blocks: 0}, allocated: {bytes: 0, blocks: 0},
        freed: {bytes: 0, blocks: 0}, kept: {bytes: 0, blocks: 0}};
    const add = (sum, i) => {
        sum.bytes += size[i];
        sum.blocks++;
    };
    for (let i = 0; i < count && begin[i] <= to; i++) {
        if (model.fails[i] || freed[i] <= from)
            continue;
        const name = label(i);
        if (!groups.has(name))
            groups.set(name, {label: name, before: 0, after: 0, allocated: 0, kept: 0});
        const group = groups.get(name), was = begin[i] <= from, is = freed[i] > to;
        if (was) {
            add(sums.before, i);
            group.before += size[i];
        } else {
            add(sums.allocated, i);
            group.allocated += size[i];
        }
        if (is) {
            add(sums.after, i);
            group.after += size[i];
        } else {
            add(sums.freed, i);
        }
        if (!was && is) {
            add(sums.kept, i);
            group.kept += size[i];
        }
    }
    return {...sums, groups: [...groups.values()]};
}

const RANGE_VALUES = {growth: group => group.after - group.before, size: group => Math.abs(group.after - group.before),
    before: group => group.before, after: group => group.after, allocated: group => group.allocated, kept: group => group.kept,
    name: group => group.label.toLowerCase()};

function showRange(view, tell) {
    const {model, range, groupsBy, sortRange} = view;
    byId("range-section").hidden = !range;
    if (!range)
        return;
    const when = moment => "event " + formatCount(moment) + (model.device.hasTimes ? ", " + formatTime(model.times[moment]) : "");
    const found = betweenMoments(model, range, groupsBy, view.opened), growth = found.after.bytes - found.before.bytes;
    byId("range-title").textContent = "From " + when(range.from) + " to " + when(range.to);
    const sum = (name, value, more) => element("div", {class: "sum"}, element("span", {class: "name"}, name),
        element("span", {class: "value"}, value), element("span", {class: "more"}, more));
    replaceContent("range-sums",
        sum("allocated before and after", formatBytes(found.before.bytes) + " \u2192 " + formatBytes(found.after.bytes), formatGrowth(growth)),
        sum("reserved before and after", formatBytes(model.reserved[range.from]) + " \u2192 " + formatBytes(model.reserved[range.to]),
            formatGrowth(model.reserved[range.to] - model.reserved[range.from])),
        sum("allocated between", formatBytes(found.allocated.bytes), plural(found.allocated.blocks, "block")),
        sum("freed between", formatBytes(found.freed.bytes), plural(found.freed.blocks, "block")),
        sum("new and still live", formatBytes(found.kept.bytes), plural(found.kept.blocks, "block")));
    Object.assign(byId("range-sums").dataset, {before: found.before.bytes, after: found.after.bytes, kept: found.kept.bytes,
        freed: found.freed.bytes, allocated: found.allocated.bytes});
    const groups = sortBy(found.groups, RANGE_VALUES[sortRange.key], sortRange.down);
    const most = Math.max(1, ...groups.map(group => Math.abs(group.after - group.before)));
    const rows = groups.slice(0, RANGE_ROWS).map(group => [formatGrowth(group.after - group.before), formatBytes(group.before),
        formatBytes(group.after), formatBytes(group.allocated), formatBytes(group.kept), element("span", {title: group.label},
            makeBar(Math.abs(group.after - group.before) / most, group.after > group.before ? "more" : "less"), group.label)]);
    const number = (name, key) => ({name, key, number: true});
    replaceContent("range-groups", makeTable(null, [number("growth", "growth"), number("before", "before"), number("after", "after"),
        number("allocated between", "allocated"), number("new and still live", "kept"), {name: BY_NAMES[groupsBy], key: "name"}], rows,
    {...sortRange, onSort: key => tell.onSort("sortRange", nextSorting(sortRange, key, key !== "name"))}),
    groups.length > RANGE_ROWS ? element("p", {class: "note"}, "and " + plural(groups.length - RANGE_ROWS, "more")) : null);
}
