// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// What is chosen, as the part of the page's address behind "#": a link shows what its sender saw. What is as it is at first is left out.

// {name in the address: field of `chosen`, and how it becomes a text and comes back}
const asText = {put: value => value, take: text => text};
const asNumber = {put: String, take: text => /^-?[0-9.e+]+$/.test(text) ? Number(text) : undefined};
const asSorting = {put: ({key, down}) => (down ? "-" : "") + key, take: text => ({key: text.replace(/^-/, ""), down: text[0] === "-"})};
const LONGEST_CALLS = 4000; // characters; a recursion has more
const callsFit = labels => labels.join("\n").length <= LONGEST_CALLS;
const LINKED = [
    ["at", "moment", asNumber], ["block", "block", asNumber], ["by", "by", asText], ["group", "groupsBy", asText],
    ["axis", "axis", asText], ["lines", "lines", asNumber], ["find", "search", asText], ["from", "least", asText], ["to", "most", asText],
    ["only", "filter", asText],
    ["legend", "legend", {put: set => [...set].map(encodeURIComponent).join(" "), take: text => new Set(text.split(" ").map(decodeURIComponent))}],
    ["open", "opened", {put: set => [...set].map(encodeURIComponent).join(" "), take: text => new Set(text.split(" ").map(decodeURIComponent))}],
    ["range", "range", {put: range => range.from + "-" + range.to, take: text => {
        const [from, to] = text.split("-").map(Number);
        return from < to ? {from, to} : undefined;
    }}],
    ["view", "view", {put: view => view.join(","), take: text => {
        const view = text.split(",").map(Number);
        return view.length === 2 && view[1] > view[0] ? view : undefined;
    }}],
    ["calls", "calls", {put: labels => (callsFit(labels) ? labels.join("\n") : ""), take: text => text.split("\n")}],
    ["fits", "fits", asNumber], ["outside", "outside", asText], ["compare", "compareBy", asText], ["differences", "ranksBy", asText],
    ["height", "height", {put: ({low, high}) => low + "-" + high, take: text => {
        const [low, high] = text.split("-").map(Number);
        return low >= 0 && high <= 1 && low < high ? {low, high} : undefined;
    }}],
    ["groups", "sortGroups", asSorting], ["blocks", "sortBlocks", asSorting], ["changes", "sortRange", asSorting],
];

// `first` is what would be chosen without a link.
function writeLink(chosen, first) {
    const parameters = new URLSearchParams();
    for (const [name, field, {put}] of LINKED) {
        const text = value => (value === null || value === undefined || value.size === 0 ? "" : String(put(value)));
        if (text(chosen[field]) !== text(first[field]))
            parameters.set(name, text(chosen[field]));
    }
    if (chosen.place !== first.place)
        parameters.set("device", String(chosen.place));
    const alone = [...parameters.keys()].join() === "block" && chosen.block === first.firstBlock;
    if (alone || chosen.block < 0) // which block is chosen without a link depends on all the rest
        parameters.delete("block");
    return parameters.toString();
}

// {field: value} of what a link says; what makes no sense in it is passed over.
function readLink(text) {
    const parameters = new URLSearchParams(text.replace(/^#/, "")), found = {};
    for (const [name, field, {take}] of LINKED) {
        let value;
        try {
            value = parameters.has(name) ? take(parameters.get(name)) : undefined;
        } catch (error) {
            value = undefined; // a broken %
        }
        if (value !== undefined)
            found[field] = value;
    }
    found.place = /^[0-9]+$/.test(parameters.get("device") || "") ? Number(parameters.get("device")) : -1; // none: the page's own choice
    return found;
}
