// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// What lies over a plot: its axes, marks, the cursor and the range, on a canvas of their own. As elements of the document they would have
// the browser lay out and paint the whole page anew with each frame of a zoom, which takes longer than a frame.

const TICK = 6; // pixels
const MARK_ABOVE = 12, MARK_BESIDE = 7; // how near a click has to be

const crisp = position => Math.round(position) + 0.5;

// Values of a scale with their texts, below or to the left of what is drawn.
function drawBelow(context, {values, texts}, x, y, [from, to]) {
    context.textAlign = "center";
    context.textBaseline = "top";
    context.beginPath();
    context.moveTo(from, crisp(y));
    context.lineTo(to, crisp(y));
    values.forEach((value, i) => {
        context.moveTo(crisp(x(value)), y);
        context.lineTo(crisp(x(value)), y + TICK);
        context.fillText(texts[i], x(value), y + TICK + 3);
    });
    context.stroke();
}

function drawBeside(context, {values, texts}, y, x, [from, to]) {
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.beginPath();
    context.moveTo(crisp(x), from);
    context.lineTo(crisp(x), to);
    values.forEach((value, i) => {
        context.moveTo(x, crisp(y(value)));
        context.lineTo(x - TICK, crisp(y(value)));
        context.fillText(texts[i], x - TICK - 3, y(value));
    });
    context.stroke();
}

// Empties a frame and makes it ready for axes. Gives the context.
function beginFrame(canvas, width, height) {
    const context = fitCanvas(canvas, width, height);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, \"Segoe UI\", \"DejaVu Sans\", sans-serif";
    context.fillStyle = cssColour("--dim");
    context.strokeStyle = cssColour("--edge");
    context.lineWidth = 1;
    context.setLineDash([]);
    return context;
}

function drawCursor(context, x, top, height) {
    context.strokeStyle = cssColour("--text");
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(crisp(x), top);
    context.lineTo(crisp(x), top + height);
    context.stroke();
    context.setLineDash([]);
}

// Where the cursor is on the axis below the chart.
function drawFoot(context, x, y) {
    context.fillStyle = cssColour("--text");
    context.beginPath();
    context.moveTo(crisp(x), y + 1);
    context.lineTo(crisp(x) - 5, y + TICK + 3);
    context.lineTo(crisp(x) + 5, y + TICK + 3);
    context.fill();
}

function drawRange(context, from, to, top, height) {
    context.save();
    context.globalAlpha = 0.16;
    context.fillStyle = cssColour("--link");
    context.fillRect(from, top, Math.max(1, to - from), height);
    context.restore();
}

// A mark stands on the upper edge: the peak a triangle, an error a cross.
function drawMark(context, {kind, x}, top) {
    context.beginPath();
    if (kind === "peak") {
        context.fillStyle = cssColour("--text");
        context.moveTo(x, top);
        context.lineTo(x - 6, top - 11);
        context.lineTo(x + 6, top - 11);
        context.fill();
        return;
    }
    context.strokeStyle = "#dc2626";
    context.lineWidth = 2.5;
    context.moveTo(x - 5, top - 11);
    context.lineTo(x + 5, top - 1);
    context.moveTo(x + 5, top - 11);
    context.lineTo(x - 5, top - 1);
    context.stroke();
}

// The mark at a place above the chart, or null.
function markAt(marks, x, y, top) {
    if (y > top || y < top - MARK_ABOVE - 2)
        return null;
    return marks.filter(mark => Math.abs(mark.x - x) <= MARK_BESIDE).sort((a, b) => Math.abs(a.x - x) - Math.abs(b.x - x))[0] || null;
}
