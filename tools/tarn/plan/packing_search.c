/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A depth-first search for a placement below a given height. The given height makes it prune well.
 * Sections, dominance and separate parts go back to MiniMalloc (Moffitt, ASPLOS 2023). "Place it
 * here now, or not before something else lies under it" is the schedule-or-postpone branching of
 * job shops (Le Pape and others, 1994).
 *
 * Sections. Only those moments matter at which a largest set of blocks lives: two blocks meet if
 * they share such a section. Sections are numbered by time, and a block covers consecutive ones.
 *
 * Placements are pushed down: each block lies at 0 or on another block. The search builds a
 * placement from below. `low` of a block is the lowest offset that it can still have. A block is a
 * candidate if no other block that it meets fits below its `low`. The search places a candidate at
 * its `low` and tries what follows from that. After that the candidate is *lifted*: it must lie on
 * a block that is not placed yet, so its `low` rises to the lowest end that such a block can have.
 * The next candidate is one that is low and has little space to spare.
 *
 * Pruning. In a section the blocks to be placed lie one on another, none below its `low`. Taken by
 * rising `low`, their sum with the gaps is the least height of the section. If that is above the
 * given height, the branch is dead.
 *
 * Parts. If no block to be placed bridges two sections, the blocks before and behind are
 * independent, and are searched one part after the other, the tightest first. If one part has no
 * placement, there is none.
 *
 * Beams. A depth-first search may be lost below its first choices. A beam search (Ow and Morton,
 * 1988) is not: it goes on from the best nodes of each level, which are those with the most to
 * spare in their tightest sections. It proves nothing.
 *
 * Units. Offsets are counted in the greatest common divisor of the sizes, so that they are small
 * and several sections are filled at once. */
#include "plan/packing_search.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define NOBODY UINT32_MAX
#define SPARE_UNIT 4       /* a `spare_weight` of this counts free space as much as height */
#define HIGHEST (1u << 29) /* units: the highest height, so that sums of it fit into a lane */

/* Sections that are filled at a time. Compilers have such vectors for every machine. */
typedef int32_t lanes __attribute__((vector_size(16)));
enum { LANES = sizeof(lanes) / sizeof(int32_t) };

/* A node of the search. Offsets are in units. Arrays are by block, except `order` and `part`. */
struct node {
    uint32_t *low;
    /* the highest end of the blocks placed below it; if `low` is above that, the block must lie on
     * one that is not placed yet */
    uint32_t *top;
    uint32_t *order; /* blocks to be placed, by rising `low` */
    /* for each block: the block below it that was found last, among those alive at the same time;
     * NOBODY: none */
    uint32_t *under;
    uint32_t *part; /* by index of `order`, once parts were separated: the number of the part */
    uint8_t *placed;
    uint32_t left;
};

/* A node from which a beam goes on. */
struct state {
    struct node node;
    uint32_t *offsets;
    uint32_t *spare;    /* by section, before any candidate was refused */
    uint64_t tightness; /* the least is the best */
    uint32_t parent;    /* its number in the level before */
};

struct packing_search {
    const struct packing_block *blocks;
    uint32_t count, sections;
    uint64_t unit; /* bytes */
    /* all sizes are multiples of `unit`; otherwise they were rounded up */
    bool exact;
    uint32_t *size;          /* by block: units */
    uint32_t *first, *until; /* by block: its sections */
    /* by block: the index in `met` at which the blocks that it meets begin */
    uint32_t *met_from, *met;
    uint64_t *load;                   /* by section, in units: the sum of all its blocks */
    uint32_t *risen;                  /* scratch of sorting */
    uint32_t *filled, *spare;         /* by section, in units: scratch; the height that is left */
    uint32_t *part_of, *rank, *ranks; /* by section: scratch of taking apart */
    /* by block: among candidates at one offset the heaviest is first */
    double *weight;
    uint32_t *offsets;
    struct node *nodes;
    /* with `beam_room` elements each: the nodes of a level, and of the next one */
    struct state *beam[2];
    uint32_t beam_room;
    uint32_t height; /* units */
    /* in quarters (SPARE_UNIT): the weight, in choose(), of the free space of a block's tightest
     * section */
    uint32_t spare_weight;
    uint64_t steps, limit, random;
};

/* Memory --------------------------------------------------------------------------------------- */

/* Numbers the sections. A section ends when a block ends after another has begun. */
static bool find_sections(struct packing_search *search)
{
    uint32_t moments = 1;
    for (uint32_t i = 0; i < search->count; i++)
        moments = search->blocks[i].end > moments ? search->blocks[i].end : moments;
    /* 1: a block begins, 2: one ends */
    uint8_t *events = calloc(moments + (size_t)1, sizeof *events);
    uint32_t *closed = calloc(moments + (size_t)1, sizeof *closed);
    if (events && closed) {
        bool grown = false;
        for (uint32_t i = 0; i < search->count; i++) {
            events[search->blocks[i].start] |= 1;
            events[search->blocks[i].end] |= 2;
        }
        for (uint32_t at = 0; at <= moments; at++) {
            if ((events[at] & 2) && grown) {
                search->sections++;
                grown = false;
            }
            grown = grown || (events[at] & 1);
            closed[at] = search->sections;
        }
        for (uint32_t i = 0; i < search->count; i++) {
            search->first[i] = closed[search->blocks[i].start];
            search->until[i] = closed[search->blocks[i].end];
        }
    }
    bool done = events && closed;
    free(events);
    free(closed);
    return done;
}

static bool meet(const struct packing_search *search, uint32_t one, uint32_t other)
{
    return one != other && search->first[one] < search->until[other] &&
           search->first[other] < search->until[one];
}

static bool find_meetings(struct packing_search *search)
{
    size_t total = 0;
    for (uint32_t i = 0; i < search->count; i++)
        for (uint32_t j = 0; j < search->count; j++)
            total += meet(search, i, j);
    search->met = calloc(total + 1, sizeof *search->met);
    if (!search->met)
        return false;
    total = 0;
    for (uint32_t i = 0; i < search->count; i++) {
        search->met_from[i] = (uint32_t)total;
        for (uint32_t j = 0; j < search->count; j++)
            if (meet(search, i, j))
                search->met[total++] = j;
    }
    search->met_from[search->count] = (uint32_t)total;
    return true;
}

/* Allocates the arrays by section, and sums up what each section carries. */
static bool create_sections(struct packing_search *search)
{
    size_t count = search->sections + (size_t)1;
    search->load = calloc(count, sizeof *search->load);
    search->filled = calloc(count, sizeof *search->filled);
    search->spare = calloc(count, sizeof *search->spare);
    search->part_of = calloc(count, sizeof *search->part_of);
    search->rank = calloc(count, sizeof *search->rank);
    search->ranks = calloc(count, sizeof *search->ranks);
    if (!search->load || !search->filled || !search->spare || !search->part_of || !search->rank ||
        !search->ranks)
        return false;
    for (uint32_t i = 0; i < search->count; i++)
        for (uint32_t at = search->first[i]; at < search->until[i]; at++)
            search->load[at] += search->size[i];
    return true;
}

static bool create_node(struct node *node, uint32_t count)
{
    size_t room = count + (size_t)1;
    node->low = calloc(room, sizeof *node->low);
    node->top = calloc(room, sizeof *node->top);
    node->order = calloc(room, sizeof *node->order);
    node->under = calloc(room, sizeof *node->under);
    node->part = calloc(room, sizeof *node->part);
    node->placed = calloc(room, sizeof *node->placed);
    return node->low && node->top && node->order && node->under && node->part && node->placed;
}

static void destroy_node(struct node *node)
{
    free(node->low);
    free(node->top);
    free(node->order);
    free(node->under);
    free(node->part);
    free(node->placed);
}

/* The node below another. It gets memory when the search first comes there. A level places a block
 * or separates parts, so there are at most two nodes per block. */
static struct node *node_below(struct packing_search *search, uint32_t depth)
{
    struct node *node = &search->nodes[depth + 1];
    return node->placed || create_node(node, search->count) ? node : NULL;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The largest unit of which all sizes are multiples; if `most` would be too many of these, a larger
 * one. */
static void find_unit(struct packing_search *search, uint64_t most)
{
    for (uint32_t i = 0; i < search->count; i++)
        search->unit = common_divisor(search->unit, search->blocks[i].size);
    search->unit += !search->unit;
    search->exact = most / search->unit <= HIGHEST;
    if (!search->exact)
        search->unit = most / HIGHEST + 1;
    for (uint32_t i = 0; i < search->count; i++)
        search->size[i] = (uint32_t)((search->blocks[i].size + search->unit - 1) / search->unit);
}

struct packing_search *packing_search_create(const struct packing_block *blocks, size_t count,
                                             uint64_t most)
{
    struct packing_search *search = calloc(1, sizeof *search);
    if (!search || count > PACKING_SEARCH_MOST) {
        free(search);
        return NULL;
    }
    search->blocks = blocks;
    search->count = (uint32_t)count;
    search->size = calloc(count + 1, sizeof *search->size);
    search->risen = calloc(count + 1, sizeof *search->risen);
    search->first = calloc(count + 1, sizeof *search->first);
    search->until = calloc(count + 1, sizeof *search->until);
    search->met_from = calloc(count + 1, sizeof *search->met_from);
    search->weight = calloc(count + 1, sizeof *search->weight);
    search->offsets = calloc(count + 1, sizeof *search->offsets);
    search->nodes = calloc(2 * count + 2, sizeof *search->nodes);
    bool done = search->size && search->risen && search->first && search->until &&
                search->met_from && search->weight && search->offsets && search->nodes &&
                create_node(&search->nodes[0], search->count);
    if (done)
        find_unit(search, most);
    if (done && find_sections(search) && create_sections(search) && find_meetings(search))
        return search;
    packing_search_destroy(search);
    return NULL;
}

uint64_t packing_search_unit(const struct packing_search *search)
{
    return search->unit;
}

void packing_search_destroy(struct packing_search *search)
{
    if (!search)
        return;
    for (size_t i = 0; search->nodes && i < 2 * (size_t)search->count + 2; i++)
        destroy_node(&search->nodes[i]);
    free(search->nodes);
    for (int level = 0; level < 2; level++) {
        for (uint32_t i = 0; search->beam[level] && i < search->beam_room; i++) {
            destroy_node(&search->beam[level][i].node);
            free(search->beam[level][i].offsets);
            free(search->beam[level][i].spare);
        }
        free(search->beam[level]);
    }
    free(search->size);
    free(search->risen);
    free(search->first);
    free(search->until);
    free(search->met_from);
    free(search->met);
    free(search->load);
    free(search->filled);
    free(search->spare);
    free(search->part_of);
    free(search->rank);
    free(search->ranks);
    free(search->weight);
    free(search->offsets);
    free(search);
}

/* Pruning -------------------------------------------------------------------------------------- */

/* The lowest end that an unplaced block can have which `block` meets; NONE if there is no such
 * block. */
static uint32_t lowest_end(struct packing_search *search, const struct node *node, uint32_t block)
{
    uint32_t lowest = NONE;
    for (uint32_t i = search->met_from[block]; i < search->met_from[block + 1]; i++) {
        uint32_t other = search->met[i];
        uint32_t end = node->low[other] + search->size[other];
        if (!node->placed[other] && end < lowest)
            lowest = end;
    }
    search->steps += search->met_from[block + 1] - search->met_from[block];
    return lowest;
}

/* True if an unplaced block that it meets fits below the `low` of a block. Lows only rise, so the
 * block that was found last is often found again. */
static bool has_room_below(struct packing_search *search, struct node *node, uint32_t block)
{
    const uint32_t low = node->low[block];
    uint32_t other = node->under[block];
    search->steps++;
    if (other != NOBODY && !node->placed[other] && node->low[other] + search->size[other] <= low)
        return true;
    for (uint32_t i = search->met_from[block]; i < search->met_from[block + 1]; i++) {
        other = search->met[i];
        if (node->placed[other] || node->low[other] + search->size[other] > low)
            continue;
        search->steps += i - search->met_from[block];
        node->under[block] = other;
        return true;
    }
    search->steps += search->met_from[block + 1] - search->met_from[block];
    return false;
}

/* Raises each block that must lie on an unplaced block to the lowest end of those, until nothing
 * changes. False if a block has no place left. */
static bool raise_lifted(struct packing_search *search, struct node *node)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < node->left; i++) {
            uint32_t block = node->order[i];
            if (node->low[block] == node->top[block] || has_room_below(search, node, block))
                continue;
            uint32_t end = lowest_end(search, node, block);
            if (end == NONE)
                return false;
            node->low[block] = end; /* below that, no other block fits */
            moved = true;
            if (node->low[block] + search->size[block] > search->height)
                return false;
        }
    }
    return true;
}

/* Sorts `order` again. Lows have only risen since the last sort, mostly to one value, so few blocks
 * are out of order. These are taken out, sorted, and merged with the others. */
static void sort_by_low(const struct packing_search *search, struct node *node)
{
    const uint32_t *low = node->low;
    uint32_t *order = node->order, *risen = search->risen, least = NONE, kept = node->left,
             taken = node->left;
    for (uint32_t i = node->left; i-- > 0;) {
        uint32_t block = order[i], at = taken;
        if (low[block] <= least) {
            least = low[block];
            order[--kept] = block;
            continue;
        }
        for (taken--; at < node->left && low[risen[at]] < low[block]; at++)
            risen[at - 1] = risen[at];
        risen[at - 1] = block;
    }
    for (uint32_t to = 0; taken < node->left; to++)
        order[to] = kept < node->left && low[order[kept]] < low[risen[taken]] ? order[kept++]
                                                                              : risen[taken++];
}

/* Puts a block on top of what fills `count` sections. */
static void stack(uint32_t *filled, uint32_t count, uint32_t low, uint32_t size)
{
    const lanes lows = (lanes){0} + (int32_t)low, sizes = (lanes){0} + (int32_t)size;
    uint32_t at = 0;
    for (; at + LANES <= count; at += LANES) {
        lanes now;
        memcpy(&now, filled + at, sizeof now);
        lanes above = now > lows;
        now = ((now & above) | (lows & ~above)) + sizes;
        memcpy(filled + at, &now, sizeof now);
    }
    for (; at < count; at++)
        filled[at] = (filled[at] > low ? filled[at] : low) + size;
}

/* Computes what each section has to spare; NONE if nothing is to be placed there. False if a
 * section exceeds the height. */
static bool fill_sections(struct packing_search *search, const struct node *node)
{
    memset(search->filled, 0, search->sections * sizeof *search->filled);
    for (uint32_t i = 0; i < node->left; i++) {
        uint32_t block = node->order[i];
        stack(search->filled + search->first[block], search->until[block] - search->first[block],
              node->low[block], search->size[block]);
        search->steps += search->until[block] - search->first[block];
    }
    for (uint32_t at = 0; at < search->sections; at++) {
        if (search->filled[at] > search->height)
            return false;
        search->spare[at] = search->filled[at] ? search->height - search->filled[at] : NONE;
    }
    return true;
}

static bool prune(struct packing_search *search, struct node *node)
{
    if (!raise_lifted(search, node))
        return false;
    sort_by_low(search, node);
    return fill_sections(search, node);
}

/* Branching ------------------------------------------------------------------------------------ */

/* The least free space of the sections that a block covers. */
static uint32_t least_spare(struct packing_search *search, const uint32_t *spare, uint32_t block)
{
    uint32_t least = NONE;
    for (uint32_t at = search->first[block]; at < search->until[block]; at++)
        least = spare[at] < least ? spare[at] : least;
    search->steps += (search->until[block] - search->first[block]) / LANES;
    return least;
}

/* Chooses the candidate with the least sum of its offset and, weighted by `spare_weight`, the free
 * space of its tightest section; among equal ones the heaviest. So tight sections are filled first,
 * and a search that must fail fails soon. While blocks are left there is a candidate, since nothing
 * fits below the lowest block. */
static uint32_t choose(struct packing_search *search, struct node *node, const uint32_t *spare)
{
    uint32_t best = NOBODY;
    uint64_t least = 0;
    for (uint32_t i = 0; i < node->left; i++) {
        uint32_t block = node->order[i];
        uint64_t rank = (uint64_t)node->low[block] * SPARE_UNIT;
        if (best != NOBODY && rank > least)
            break;
        if (has_room_below(search, node, block))
            continue;
        rank += search->spare_weight
                    ? (uint64_t)least_spare(search, spare, block) * search->spare_weight
                    : 0;
        if (best == NOBODY || rank < least ||
            (rank == least && search->weight[block] > search->weight[best])) {
            best = block;
            least = rank;
        }
    }
    return best;
}

static void copy_node(const struct packing_search *search, const struct node *from, struct node *to)
{
    memcpy(to->low, from->low, search->count * sizeof *to->low);
    memcpy(to->top, from->top, search->count * sizeof *to->top);
    memcpy(to->under, from->under, search->count * sizeof *to->under);
    to->left = 0;
}

/* Makes the node in which `block` lies at its `low`. False if a block that it meets has no place
 * left. */
static bool place(struct packing_search *search, const struct node *from, struct node *to,
                  uint32_t block)
{
    bool fits = true;
    uint32_t end = from->low[block] + search->size[block];
    copy_node(search, from, to);
    memcpy(to->placed, from->placed, search->count * sizeof *to->placed);
    for (uint32_t i = 0; i < from->left; i++)
        if (from->order[i] != block)
            to->order[to->left++] = from->order[i];
    to->placed[block] = 1;
    search->offsets[block] = from->low[block];
    for (uint32_t i = search->met_from[block]; i < search->met_from[block + 1]; i++) {
        uint32_t other = search->met[i];
        to->top[other] = to->top[other] > end ? to->top[other] : end;
        to->low[other] = to->low[other] > end ? to->low[other] : end;
        fits =
            fits && (to->placed[other] || to->low[other] + search->size[other] <= search->height);
    }
    search->steps += search->count / 4 + search->met_from[block + 1] - search->met_from[block];
    return fits;
}

/* Numbers the parts of a node's blocks, the tightest first, and sorts the blocks by part. Returns
 * how many there are. */
static uint32_t take_apart(struct packing_search *search, struct node *node, struct node *scratch)
{
    uint32_t parts = 0, used = 0, *rank = search->rank, *ranks = search->ranks;
    /* at first: true if a block bridges this section and the next */
    memset(rank, 0, search->sections * sizeof *rank);
    for (uint32_t i = 0; i < node->left; i++)
        for (uint32_t at = search->first[node->order[i]]; at + 1 < search->until[node->order[i]];
             at++)
            rank[at] = 1;
    for (uint32_t at = 0; at < search->sections; at++) {
        search->part_of[at] = parts;
        search->filled[parts] =
            at && search->part_of[at - 1] == parts ? search->filled[parts] : NONE;
        if (search->spare[at] < search->filled[parts])
            search->filled[parts] = search->spare[at];
        parts += !rank[at];
    }
    for (uint32_t part = 0; part < parts; part++) {
        if (search->filled[part] == NONE)
            continue;
        uint32_t at = used++;
        for (; at > 0 && search->filled[ranks[at - 1]] > search->filled[part]; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = part;
    }
    if (used < 2)
        return used;
    for (uint32_t i = 0; i < used; i++)
        rank[ranks[i]] = i;
    /* Now: where each part begins in the order */
    memset(ranks, 0, (used + (size_t)1) * sizeof *ranks);
    for (uint32_t i = 0; i < node->left; i++)
        ranks[rank[search->part_of[search->first[node->order[i]]]] + 1]++;
    for (uint32_t i = 0; i < used; i++)
        ranks[i + 1] += ranks[i];
    for (uint32_t i = 0; i < node->left; i++) {
        uint32_t part = rank[search->part_of[search->first[node->order[i]]]], to = ranks[part]++;
        scratch->order[to] = node->order[i];
        node->part[to] = part;
    }
    memcpy(node->order, scratch->order, node->left * sizeof *node->order);
    return used;
}

static enum packing_answer descend(struct packing_search *search, uint32_t depth);

static enum packing_answer descend_parts(struct packing_search *search, uint32_t depth)
{
    struct node *node = &search->nodes[depth], *below = node_below(search, depth);
    enum packing_answer answer = PACKING_FITS;
    for (uint32_t from = 0, to; below && from < node->left && answer == PACKING_FITS; from = to) {
        copy_node(search, node, below);
        memset(below->placed, 1, search->count * sizeof *below->placed);
        for (to = from; to < node->left && node->part[to] == node->part[from]; to++) {
            below->order[below->left++] = node->order[to];
            below->placed[node->order[to]] = 0;
        }
        answer = prune(search, below) ? descend(search, depth + 1) : PACKING_NEVER;
    }
    return below ? answer : PACKING_CUT;
}

/* Searches below a node. The node must have been pruned: that computes what its sections have to
 * spare. */
static enum packing_answer descend(struct packing_search *search, uint32_t depth)
{
    struct node *node = &search->nodes[depth], *below = node_below(search, depth);
    if (!node->left)
        return PACKING_FITS;
    if (!below)
        return PACKING_CUT;
    if (take_apart(search, node, below) > 1)
        return descend_parts(search, depth);
    while (search->steps < search->limit) {
        uint32_t block = choose(search, node, search->spare);
        if (place(search, node, below, block) && prune(search, below)) {
            enum packing_answer answer = descend(search, depth + 1);
            if (answer != PACKING_NEVER)
                return answer;
        }
        /* No room was found at `low`: the block lies on a block that is still to be placed */
        node->low[block] = lowest_end(search, node, block);
        if (node->low[block] == NONE || !prune(search, node))
            return PACKING_NEVER;
    }
    return PACKING_CUT;
}

/* Ways ----------------------------------------------------------------------------------------- */

/* A random number from 0 to 1023. */
static uint64_t chance(struct packing_search *search)
{
    search->random ^= search->random << 13; /* xorshift (Marsaglia, 2003) */
    search->random ^= search->random >> 7;
    search->random ^= search->random << 17;
    return search->random % 1024;
}

enum { WAYS = 9 }; /* kinds of weights */

/* Ways take these weights in turn. Their number is coprime to the number of kinds of weights. Beams
 * do best with the first two. */
static const uint8_t spare_weights[] = {2, 1, 4, 0, 8};
enum { SPARE_WEIGHTS = sizeof spare_weights, BEAM_SPARE_WEIGHTS = 2 };

static double weight_of(const struct packing_search *search, uint32_t block, uint64_t way,
                        double most)
{
    double life = (double)(search->blocks[block].end - search->blocks[block].start), load = 0;
    double size = (double)search->blocks[block].size, area = life * size;
    for (uint32_t at = search->first[block]; at < search->until[block]; at++)
        load = (double)search->load[at] > load ? (double)search->load[at] : load;
    load /= most; /* the fullest section that it covers, relative to the fullest of all */
    switch (way % WAYS) {
    case 0:
        return life;
    case 1:
        return area;
    case 2:
        return size;
    case 3:
        return area * size;
    case 4:
        return load + area * 1e-15;
    case 5:
        return load + life * 1e-9;
    case 6:
        return life * load * load * load * load;
    case 7:
        return area * load * load * load * load;
    default:
        return area * life;
    }
}

/* Starts with everything to be placed, from 0 on, and one of the first `among` weights of free
 * space. */
static void begin(struct packing_search *search, struct node *root, uint64_t height, uint64_t way,
                  unsigned among)
{
    double most = 1;
    for (uint32_t at = 0; at < search->sections; at++)
        most = (double)search->load[at] > most ? (double)search->load[at] : most;
    search->random = (way + 1) * UINT64_C(0x9e3779b97f4a7c15);
    search->height = (uint32_t)(height / search->unit);
    search->spare_weight = spare_weights[way % among];
    search->steps = 0;
    root->left = search->count;
    for (uint32_t i = 0; i < search->count; i++) {
        search->weight[i] =
            weight_of(search, i, way, most) * (way < WAYS ? 1 : 1 + (double)chance(search) / 2048);
        root->low[i] = 0;
        root->top[i] = 0;
        root->order[i] = i;
        root->placed[i] = 0;
        root->under[i] = NOBODY;
    }
}

/* Writes the offsets in bytes. */
static void tell(const struct packing_search *search, const uint32_t *from, uint64_t *to)
{
    for (uint32_t i = 0; i < search->count; i++)
        to[i] = from[i] * search->unit;
}

enum packing_answer packing_search_run(struct packing_search *search, uint64_t height, uint64_t way,
                                       uint64_t limit, uint64_t *steps, uint64_t *offsets)
{
    struct node *root = &search->nodes[0];
    begin(search, root, height, way, SPARE_WEIGHTS);
    search->limit = limit;
    enum packing_answer answer = prune(search, root) ? descend(search, 0) : PACKING_NEVER;
    *steps += search->steps;
    if (answer == PACKING_FITS)
        tell(search, search->offsets, offsets);
    return answer == PACKING_NEVER && !search->exact ? PACKING_CUT : answer;
}

/* Beams ---------------------------------------------------------------------------------------- */

#define BRANCHES 7 /* candidates of one node that are tried */
#define CHILDREN 2 /* the most of these that are kept */

static bool create_beam(struct packing_search *search, uint32_t width)
{
    bool done = true;
    for (int level = 0; level < 2 && done; level++) {
        struct state *grown = reallocarray(search->beam[level], width, sizeof *grown);
        if (!grown)
            return false;
        search->beam[level] = grown;
        memset(grown + search->beam_room, 0, (width - search->beam_room) * sizeof *grown);
    }
    for (uint32_t from = search->beam_room; from < width; from++) {
        search->beam_room++;
        for (int level = 0; level < 2; level++) {
            struct state *state = &search->beam[level][from];
            state->offsets = calloc(search->count + (size_t)1, sizeof *state->offsets);
            state->spare = calloc(search->sections + (size_t)1, sizeof *state->spare);
            done =
                create_node(&state->node, search->count) && state->offsets && state->spare && done;
        }
        if (!done)
            return false;
    }
    return true;
}

/* How tight the node that was just pruned is: a sum over its sections, to which tight sections
 * contribute far more. */
static uint64_t tightness_of(const struct packing_search *search)
{
    uint64_t sum = 0, unit = search->height / 100 + 1;
    for (uint32_t at = 0; at < search->sections; at++) {
        if (search->spare[at] == NONE)
            continue;
        /* A division is rounded alike on every machine */
        double ratio = (double)unit / (double)(search->spare[at] + unit);
        uint64_t part = (uint64_t)(ratio * (1 << 20)), square = part * part >> 20;
        sum += square * square >> 20;
    }
    return sum;
}

static void keep(const struct packing_search *search, const struct node *node,
                 const uint32_t *offsets, struct state *to)
{
    copy_node(search, node, &to->node);
    memcpy(to->node.order, node->order, node->left * sizeof *node->order);
    memcpy(to->node.placed, node->placed, search->count * sizeof *node->placed);
    to->node.left = node->left;
    memcpy(to->offsets, offsets, search->count * sizeof *offsets);
    memcpy(to->spare, search->spare, search->sections * sizeof *search->spare);
}

struct level {
    struct state *states;
    uint32_t count, width;
};

/* The place for one more child of a parent. If the parent has as many as it may have, that of its
 * worst child; if the level is full, that of the worst node; otherwise a new one. */
static struct state *find_place(const struct level *level, uint32_t parent)
{
    struct state *worst = &level->states[0], *own = NULL;
    uint32_t children = 0;
    for (struct state *state = level->states; state < level->states + level->count; state++) {
        worst = state->tightness > worst->tightness ? state : worst;
        if (state->parent != parent)
            continue;
        own = !own || state->tightness > own->tightness ? state : own;
        children++;
    }
    return children == CHILDREN           ? own
           : level->count == level->width ? worst
                                          : &level->states[level->count];
}

/* Adds a node to a level, unless it is worse than what it would replace. Up to a twentieth of its
 * rating is random, since otherwise beams in all orders make the same mistakes. */
static void offer(struct packing_search *search, struct level *level, uint32_t parent,
                  const struct node *node, const uint32_t *offsets, uint32_t block)
{
    uint64_t tightness = tightness_of(search);
    tightness += tightness / 20480 * chance(search);
    struct state *to = find_place(level, parent);
    bool added = to == &level->states[level->count];
    if (!added && tightness >= to->tightness)
        return;
    level->count += added;
    keep(search, node, offsets, to);
    to->offsets[block] = search->offsets[block];
    to->tightness = tightness;
    to->parent = parent;
}

/* Tries the candidates of a state, one after the other. Each is refused after its try. The free
 * space of the state is not computed again after that, because it hardly changes the order of the
 * candidates. */
static void branch(struct packing_search *search, struct state *state, uint32_t number,
                   struct node *scratch, struct level *next)
{
    for (int i = 0; i < BRANCHES; i++) {
        uint32_t block = choose(search, &state->node, state->spare);
        if (place(search, &state->node, scratch, block) && prune(search, scratch))
            offer(search, next, number, scratch, state->offsets, block);
        state->node.low[block] = lowest_end(search, &state->node, block);
        if (state->node.low[block] == NONE || !raise_lifted(search, &state->node))
            return;
        sort_by_low(search, &state->node);
    }
}

bool packing_search_beam(struct packing_search *search, uint64_t height, uint64_t way,
                         uint32_t width, uint64_t limit, uint64_t *steps, uint64_t *offsets)
{
    struct node *root = &search->nodes[0], *scratch = node_below(search, 0);
    if (width > search->beam_room && !create_beam(search, width))
        return false;
    begin(search, root, height, way, BEAM_SPARE_WEIGHTS);
    struct level now = {search->beam[0], 0, width}, next = {search->beam[1], 0, width};
    if (scratch && prune(search, root)) {
        keep(search, root, search->offsets, &now.states[0]);
        now.count = 1;
    }
    for (uint32_t placed = 0; placed < search->count && now.count > 0 && search->steps < limit;
         placed++) {
        next.count = 0;
        for (uint32_t i = 0; i < now.count; i++)
            branch(search, &now.states[i], i, scratch, &next);
        struct level full = next;
        next = now;
        now = full;
    }
    *steps += search->steps;
    if (!now.count || now.states[0].node.left)
        return false;
    tell(search, now.states[0].offsets, offsets);
    return true;
}
