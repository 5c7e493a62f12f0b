// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// The ranks of one job: which of them differ and by what, and which is the first whose memory runs out. The program has compared them; the
// page shows what `tarn report --json` says of them.

const RANK_BY_NAMES = {tag: "tag", tag_first_part: "first part of the tag", category: "category", call_site: "call site", module: "module",
    stream: "stream", pool: "pool", thread: "thread"};

// The groupings by which anything differs; the one of the sentences is chosen.
function listRankGroupings(ranks) {
    if (!ranks)
        return;
    const found = Object.keys(ranks.differences).filter(by => ranks.differences[by].length || by === ranks.by);
    byId("ranks-by").replaceChildren(...found.map(by => element("option", {value: by}, RANK_BY_NAMES[by])));
    byId("ranks-by").value = ranks.by;
}

// The model of a row of the table.
function modelOfRank(rank, models) {
    return models[rank.place].find(model => model.device.device === rank.device);
}

// The rank that the first sentence is about: whose memory runs out first, or would on devices of the same size. As ranks.c chooses it.
function firstRank({ranks}) {
    const timed = ranks.filter(rank => rank.out_of_memory_us !== null), failed = ranks.filter(rank => rank.out_of_memory);
    const known = ranks.every(rank => rank.capacity);
    return timed.length ? d3.least(timed, rank => rank.out_of_memory_us)
        : failed.length ? failed[0] : d3.least(ranks, rank => known ? rank.capacity - rank.reserved : -rank.reserved);
}

function showRanks(ranks, models, chosenModel, by, onModel) {
    const number = name => ({name, number: true}), most = Math.max(1, ...ranks.ranks.map(rank => rank.allocated));
    byId("ranks-title").textContent = plural(ranks.ranks.length, ranks.noun);
    replaceContent("ranks-advice", ...ranks.advice.map(text => element("li", {}, text)));
    replaceContent("ranks-table", makeTable("At the peak of each", [{name: ranks.noun}, number("peak"), number("difference from the median"), number("peak reserved"),
        number("free in reserved"), number("out of memory")], ranks.ranks.map(rank => {
        const model = modelOfRank(rank, models);
        const name = element("button", {class: "row", type: "button", "aria-pressed": String(model === chosenModel), title: rank.file,
            onclick: () => onModel(model)}, makeBar(rank.allocated / most), rank.name);
        return [name, formatBytes(rank.allocated), formatGrowth(rank.allocated - ranks.median), formatBytes(rank.reserved),
            formatBytes(rank.free), plural(rank.out_of_memory, "time")];
    })));
    const rows = ranks.differences[by] || [];
    replaceContent("ranks-differences", makeTable("What differs, by " + RANK_BY_NAMES[by], [number("least"), number("median"), number("most"),
        {name: "most in"}, {name: RANK_BY_NAMES[by]}], rows.map(row => [formatBytes(row.least), formatBytes(row.median),
        formatBytes(row.most), row.most_in, row.name])),
    rows.length ? null : element("p", {class: "note"}, "There are no differences."));
    const lines = ranks.ranks.map(rank => modelOfRank(rank, models));
    drawComparison("ranks-chart", lines.map(model => ({model, kind: model === chosenModel ? "line-a" : "line-rank"}))
        .sort((a, b) => (a.kind === "line-a") - (b.kind === "line-a")));
}
