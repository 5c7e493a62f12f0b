// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Who called whom for the memory that lives at the chosen moment: a flame graph from the outermost function in, and a tree of callers from
// the call site out. Both show the program's own functions; what only hands on what it allocates, and libraries, are folded.

const FLAME_LINE = 20, FLAME_LEAST = 1.5; // pixels
const FLAME_DEEPEST = 100; // lines; a recursion has thousands

const CRUMBS = 8; // of those who called what is looked into, the nearest

// {label, bytes, blocks, parent, children}; `pathOf` gives for a block the labels from the root's child on.
function makeTree(model, blocks, pathOf) {
    const root = {label: "all", bytes: 0, blocks: 0, children: new Map()};
    for (const i of blocks) {
        let node = root;
        const add = () => {
            node.bytes += model.blocks.size[i];
            node.blocks++;
        };
        add();
        for (const label of pathOf(i)) {
            if (!node.children.has(label))
                node.children.set(label, {label, bytes: 0, blocks: 0, parent: node, children: new Map()});
            node = node.children.get(label);
            add();
        }
    }
    return root;
}

function childrenOf(node) {
    return [...node.children.values()].sort((a, b) => b.bytes - a.bytes || (a.label < b.label ? -1 : 1));
}

// What to call a frame, made once.
function frameLabel(file, frame) {
    file.frameLabels = file.frameLabels || [];
    if (file.frameLabels[frame] === undefined) {
        const [name, source, line] = file.frames[frame];
        const short = name.includes("::") ? name.replace(/\(.*$/, "") : name;
        file.frameLabels[frame] = short +
            (source && source !== "??" ? "  " + source.slice(source.lastIndexOf("/") + 1) + (line ? ":" + line : "") : "");
    }
    return file.frameLabels[frame];
}

// A block's functions, its call site first.
function callPath(model, i) {
    const file = model.file, path = [];
    for (let at = file.callOf[model.blocks.stack[i]]; at; at = file.callCaller[at])
        path.push(frameLabel(file, file.callFrame[at]));
    return path.length ? path : [model.siteOf(i)];
}

// The same for a hint beside the pointer: the call site and who called it.
const HINT_LINES = 8;
function stackLines(model, i) {
    const path = callPath(model, i), more = path.length - HINT_LINES;
    return [...path.slice(0, more > 1 ? HINT_LINES : path.length), more > 1 ? "\u2026 " + plural(more, "more caller") : null];
}

class Calls {
    constructor(root, listeners) {
        this.listeners = listeners; // onHover(text or null, event), onFocus(labels)
        this.svg = d3.select(root.querySelector("svg"));
        this.list = root.querySelector("ul");
        this.crumbs = root.querySelector("p");
    }

    // The blocks are numbers of model.blocks.
    show(model, blocks, labels = []) {
        const paths = new Map();
        const path = i => { // both ways
            const key = model.blocks.stack[i] || (model.blocks.begin[i] ? -1 : -2);
            if (!paths.has(key)) {
                const inwards = callPath(model, i);
                paths.set(key, {inwards, outwards: [...inwards].reverse()});
            }
            return paths.get(key);
        };
        this.root = this.focus = makeTree(model, blocks, i => path(i).outwards);
        for (const label of labels) // as far as they are there
            this.focus = this.focus.children.get(label) || this.focus;
        const callers = makeTree(model, blocks, i => path(i).inwards);
        this.list.replaceChildren(...childrenOf(callers).map(node => this.branch(node, callers.bytes)));
        this.draw();
    }

    // What is in focus over the whole width; those who called it above it, to go back to.
    draw() {
        if (!this.focus) // nothing is shown yet
            return;
        const width = Math.max(100, this.svg.node().getBoundingClientRect().width), laid = [];
        let deeper = false;
        const place = (node, depth, x, part) => {
            laid.push({node, depth, x, part});
            if (depth === FLAME_DEEPEST) {
                deeper = deeper || node.children.size > 0;
                return;
            }
            let at = x;
            for (const child of childrenOf(node)) {
                const share = node.bytes ? part * child.bytes / node.bytes : 0;
                if (share * width >= FLAME_LEAST)
                    place(child, depth + 1, at, share);
                at += share;
            }
        };
        place(this.focus, 0, 0, 1);
        const height = (1 + d3.max(laid, item => item.depth)) * FLAME_LINE;
        this.svg.attr("viewBox", `0 0 ${width} ${height}`).style("height", height + "px");
        this.svg.selectAll("g").remove();
        const groups = this.svg.selectAll("g").data(laid).enter().append("g")
            .attr("transform", item => `translate(${item.x * width},${item.depth * FLAME_LINE})`)
            .on("click", item => this.zoomTo(item.node))
            .on("mousemove", item => this.listeners.onHover(this.describe(item.node), d3.event))
            .on("mouseleave", () => this.listeners.onHover(null));
        groups.append("rect").attr("width", item => Math.max(0.5, item.part * width - 1)).attr("height", FLAME_LINE - 1)
            .attr("fill", item => flameColour(item.node.label)).attr("data-bytes", item => item.node.bytes);
        groups.filter(item => item.part * width > 40).append("text").attr("x", 4).attr("y", 14)
            .text(item => cutText(item.node.label, Math.floor((item.part * width - 8) / 7)));
        const outer = [];
        for (let node = this.focus.parent; node; node = node.parent)
            outer.unshift(element("button", {type: "button", class: "link", onclick: () => this.zoomTo(node)}, node.label), " \u203a ");
        const cut = outer.length > 2 * CRUMBS ? [outer[0], " \u203a \u2026 \u203a ", ...outer.slice(-2 * CRUMBS)] : outer;
        this.crumbs.replaceChildren(...cut, this.focus.parent ? this.focus.label : "",
            deeper ? element("span", {class: "note"}, " There are more calls below: click the lowest line to see them.") : "",
            callsFit(this.path()) ? "" : element("span", {class: "note unlinked"}, " A link to this page leaves these callers out: they are too long for it."));
    }

    // The labels on the way to what is in focus.
    path() {
        const labels = [];
        for (let at = this.focus; at.parent; at = at.parent)
            labels.unshift(at.label);
        return labels;
    }

    zoomTo(node) {
        this.focus = node;
        this.listeners.onHover(null);
        this.listeners.onFocus(this.path());
        this.draw();
    }

    describe(node) {
        return [node.label, formatBytes(node.bytes) + ", " + formatShare(node.bytes, this.root.bytes), plural(node.blocks, "block")];
    }

    // One line of the tree; its callers are made when it is opened.
    branch(node, whole) {
        const text = [element("span", {class: "size"}, formatBytes(node.bytes)), element("span", {class: "share"},
            formatShare(node.bytes, whole)), makeBar(node.bytes / whole), node.label];
        if (!node.children.size)
            return element("li", {"data-bytes": node.bytes}, element("div", {class: "leaf"}, ...text));
        const inner = element("ul", {});
        return element("li", {"data-bytes": node.bytes}, element("details", {ontoggle: () => {
            if (!inner.childNodes.length)
                inner.append(...childrenOf(node).map(child => this.branch(child, whole)));
        }}, element("summary", {}, ...text), inner));
    }
}

// Does not cut a surrogate pair in two: no picture can be made of a text with half of one.
function cutText(text, count) {
    return text.length <= count ? text : count > 3 ? text.slice(0, count - 1).replace(/[\ud800-\udbff]$/, "") + "\u2026" : "";
}

// The same function has the same colour everywhere.
function flameColour(label) {
    let hash = 0;
    for (let i = 0; i < label.length; i++)
        hash = (hash * 31 + label.charCodeAt(i)) >>> 0;
    return label === "all" ? "#c8ccd4" : d3.hsl(15 + hash % 45, 0.75, 0.66 + (hash >>> 8) % 10 / 100).toString();
}
