// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// The address space at one moment: what is reserved, laid out line by line in the order of addresses; in it the blocks that live, those
// that wait, and what is free. Gaps between ranges are not to scale: they may be terabytes.

const MAP_LINE = 18, MAP_GAP = 5; // pixels

class AddressMap {
    constructor(root, listeners) {
        this.listeners = listeners; // onBlock(block), onHover(text or null, event)
        this.root = root;
        this.canvas = root.querySelector("canvas");
        this.canvas.addEventListener("click", event => {
            const found = this.under(event);
            if (found && found.index >= 0)
                listeners.onBlock(found.index);
        });
        this.canvas.addEventListener("mousemove", event => {
            const found = this.under(event);
            listeners.onHover(found && this.describe(found), event);
        });
        this.canvas.addEventListener("mouseleave", () => listeners.onHover(null));
    }

    show(model, grouping, moment, lines) {
        Object.assign(this, {model, grouping, moment, lines});
        this.draw();
    }

    select(block) {
        this.block = block;
        if (this.model)
            this.draw();
    }

    draw() {
        if (!this.model) // a page that is resized while it is read
            return;
        this.parts = [];
        this.state = this.model.stateAt(this.moment, (what, address, size, index) => {
            this.parts.push({what, address, size, index: what === "range" ? -1 : index});
        });
        const width = Math.max(200, this.root.clientWidth - 2), ratio = window.devicePixelRatio || 1;
        this.width = width;
        this.scale = Math.max(1, this.state.reserved) / (this.lines * width); // bytes a pixel
        this.layOut();
        const height = this.bottom;
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(height * ratio);
        this.canvas.style.height = height + "px";
        const context = this.canvas.getContext("2d");
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        const style = getComputedStyle(document.documentElement);
        const colours = {range: style.getPropertyValue("--free"), edge: style.getPropertyValue("--edge"),
            waiting: style.getPropertyValue("--waiting"), hidden: style.getPropertyValue("--hidden"), chosen: style.getPropertyValue("--text")};
        const paint = (what, fill) => {
            for (const part of this.parts)
                if (what.includes(part.what))
                    this.rectangles(part, (x, y, w) => fill(part, x, y, w));
        };
        paint(["range"], (part, x, y, w) => { // all of them first: a block may lie in several
            context.fillStyle = colours.range;
            context.fillRect(x, y, w, MAP_LINE);
            context.fillStyle = colours.edge;
            context.fillRect(x, y + MAP_LINE, w, 1);
        });
        paint(["live", "waiting"], (part, x, y, w) => {
            const group = this.grouping.of[part.index];
            context.fillStyle = this.model.fails[part.index] ? colours.hidden : part.what === "waiting" ? colours.waiting
                : groupColour(this.grouping.groups[group], group, part.index);
            context.fillRect(x, y, Math.max(0.35, w - (w > 4 ? 0.6 : 0)), MAP_LINE);
            if (part.index === this.block) {
                context.strokeStyle = colours.chosen;
                context.lineWidth = 2;
                context.strokeRect(x, y + 1, Math.max(2, w), MAP_LINE - 2);
            }
        });
    }

    // Gives each range its place on the one long line that is then cut into lines; blocks and holes lie in their range.
    layOut() {
        let at = 0, range = null;
        for (const part of this.parts) {
            if (part.what === "range") {
                const gap = range && range.address + range.size !== part.address ? 3 : 0;
                part.at = at + gap;
                at = part.at + part.size / this.scale;
                range = part;
            }
        }
        range = null;
        const ranges = this.parts.filter(part => part.what === "range");
        let next = 0;
        for (const part of this.parts) {
            if (part.what === "range")
                continue;
            while (next + 1 < ranges.length && ranges[next + 1].address <= part.address)
                next++;
            while (next > 0 && ranges[next].address > part.address)
                next--;
            part.at = ranges[next].at + (part.address - ranges[next].address) / this.scale;
        }
        this.bottom = (Math.floor(at / this.width) + 1) * (MAP_LINE + MAP_GAP);
    }

    rectangles(part, fill) {
        let from = part.at, end = part.at + Math.max(part.size / this.scale, 0.05);
        while (from < end) {
            const line = Math.floor(from / this.width), stop = Math.min(end, (line + 1) * this.width);
            fill(from - line * this.width, line * (MAP_LINE + MAP_GAP), stop - from);
            if (stop <= from)
                break;
            from = stop;
        }
    }

    under(event) {
        if (!this.parts)
            return null;
        const box = this.canvas.getBoundingClientRect();
        const x = event.clientX - box.left, y = event.clientY - box.top, line = Math.floor(y / (MAP_LINE + MAP_GAP));
        if (x < 0 || x >= this.width || y - line * (MAP_LINE + MAP_GAP) > MAP_LINE)
            return null;
        const at = line * this.width + x;
        let found = null;
        for (const part of this.parts)
            if (at >= part.at - 0.5 && at < part.at + Math.max(1, part.size / this.scale) &&
                (part.what !== "range" || !found))
                found = part;
        return found;
    }

    describe(part) {
        const model = this.model, lines = [];
        if (part.index >= 0)
            lines.push(formatBytes(model.blocks.size[part.index]) + (part.what === "waiting" ? ", freed, waiting" : "") +
                " \u00b7 " + this.grouping.label(part.index), ...stackLines(model, part.index));
        else
            lines.push(formatBytes(part.size) + (part.what === "free" ? " free" : " reserved"));
        lines.push(formatAddress(part.address));
        return lines;
    }
}
