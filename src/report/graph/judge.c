/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Judges each word of a graph: what lies at the address now, and how certain it is that this is a
 * fault. Owns nothing. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/pool/graph.h"
#include "report/graph/graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- What lies at an address now ---- */

static void name_block(tarn_graph_reference *reference, const tarn_block_info *block)
{
    reference->block = block->base;
    reference->requested = block->requested;
    reference->tag = block->tag;
    reference->device = block->device;
    reference->pool = block->pool;
}

static bool graph_holds(const struct check *check, int device, tarn_pool_id pool)
{
    return (pool.first || pool.second) &&
           graph_holds_pool(check->graph, device, (uint64_t[2]){pool.first, pool.second});
}

/* What lies there where no block is live. */
static tarn_graph_state state_of_free(struct check *check, tarn_graph_reference *reference,
                                      const struct known *known)
{
    const struct ground ground = ground_of(check, (uintptr_t)reference->address, known);
    if (!ground.mapped)
        return TARN_GRAPH_UNMAPPED;
    if (ground.device < 0)
        return TARN_GRAPH_FREE;
    reference->device = ground.device;
    reference->pool = ground.pool;
    const struct pool_facts pool = pool_facts(ground.device, ground.pool);
    if (pool.suspended)
        return TARN_GRAPH_UNMAPPED;
    if (graph_holds(check, ground.device, ground.pool))
        return TARN_GRAPH_HELD;
    return pool.held ? TARN_GRAPH_OTHERS : TARN_GRAPH_FREE;
}

/* The state of an address in a live block that is not the remembered one. */
static tarn_graph_state state_of_other(struct check *check, const struct live *now,
                                       const struct known *known)
{
    bool holds = graph_holds(check, now->block.device, now->block.pool);
    if (now->sleeps)
        return TARN_GRAPH_UNMAPPED;
    if (!known && !holds)
        check->summary.unproven++;
    return !known ? TARN_GRAPH_LIVE : holds ? TARN_GRAPH_HELD : TARN_GRAPH_CHANGED;
}

/* What lies there where an import does, or a page of a range. */
static tarn_graph_state state_of_outside(struct check *check, const struct outside *now,
                                         const struct known *known)
{
    const struct outside *then = known ? &known->outside : NULL;
    check->summary.unproven += !known;
    return !then || (then->number == now->number && then->turn == now->turn) ? TARN_GRAPH_LIVE
                                                                             : TARN_GRAPH_CHANGED;
}

static void find_state(struct check *check, tarn_graph_reference *reference,
                       const struct known *known)
{
    struct live now = {.sleeps = false};
    struct outside outside;
    uintptr_t value = (uintptr_t)reference->address;
    bool live = live_at(value, &now);
    const struct referred *referred = known ? known->referred : NULL;
    bool lasts = referred && !referred_has_ended(referred);
    if (live)
        name_block(reference, &now.block);
    if (live && lasts)
        reference->state = now.sleeps ? TARN_GRAPH_UNMAPPED : TARN_GRAPH_LIVE;
    else if (live)
        reference->state = state_of_other(check, &now, known);
    else if (outside_at(value, &outside))
        reference->state = state_of_outside(check, &outside, known);
    else
        reference->state = state_of_free(check, reference, known);
    if (referred && reference->state != TARN_GRAPH_LIVE) {
        name_block(reference, &referred->block);
        reference->requested = referred_bytes(referred);
    }
}

/* ---- Certainty ---- */

static bool out_of_host_memory(struct check *check)
{
    if (!check->status)
        check->status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to check a graph");
    return false;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

/* Makes room for both ends of a block; a request ends before the unit that it is rounded up to. */
static bool ends_grow(struct check *check)
{
    struct node_ends *ends = &check->ends;
    if (ends->count + 2 <= ends->room)
        return true;
    size_t room = ends->room ? 2 * ends->room : 512;
    uintptr_t *list = pages_map(room * sizeof *list);
    if (!list)
        return out_of_host_memory(check);
    if (ends->count)
        memcpy(list, ends->list, ends->count * sizeof *list);
    pages_unmap(ends->list, ends->room * sizeof *list);
    ends->list = list;
    ends->room = room;
    return true;
}

/* The ends of the block around an address. A block that was remembered may have been extended
 * since: the graph has the ends of its capture. */
static bool ends_of(const struct check *check, uintptr_t value, uintptr_t ends[2])
{
    struct live live;
    const struct known *known = remembered_at(check->before, value);
    if (known) {
        memcpy(ends, known->ends, sizeof known->ends);
        return known->referred;
    }
    if (!live_at(value, &live))
        return false;
    ends[0] = (uintptr_t)live.block.base + live.block.requested;
    ends[1] = (uintptr_t)live.block.base + live.block.usable_size;
    return true;
}

/* Collects the ends of the blocks that the node of a word refers to. */
static bool ends_make(struct check *check, size_t index)
{
    const struct graph_words *words = check->judged;
    size_t number = words->list[index].number, first = index;
    if (check->ends.number == number + 1)
        return true;
    while (first && words->list[first - 1].number == number)
        first--;
    check->ends.count = 0;
    check->ends.number = number + 1;
    for (size_t i = first; i < words->count && words->list[i].number == number; i++) {
        uintptr_t value = (uintptr_t)words->list[i].value;
        uintptr_t found[2];
        if (!ends_of(check, value, found))
            continue;
        if (!ends_grow(check))
            return false;
        memcpy(check->ends.list + check->ends.count, found, sizeof found);
        check->ends.count += 2;
    }
    if (check->ends.count)
        qsort(check->ends.list, check->ends.count, sizeof *check->ends.list, by_address);
    return true;
}

/* Whether a value is the end of another block that the same node refers to: then it may well be
 * that. */
static bool is_an_end(struct check *check, size_t index)
{
    uintptr_t value = (uintptr_t)check->judged->list[index].value;
    return ends_make(check, index) && check->ends.count &&
           bsearch(&value, check->ends.list, check->ends.count, sizeof value, by_address);
}

static int by_confirmed_value(const void *a, const void *b)
{
    const struct confirmation *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* One entry for each value. */
static void merge(struct confirmations *confirmed)
{
    size_t kept = 0;
    for (size_t i = 0; i < confirmed->count; i++) {
        struct confirmation *last = kept ? &confirmed->list[kept - 1] : NULL;
        if (last && last->value == confirmed->list[i].value)
            last->by_more = last->by_more || last->number != confirmed->list[i].number;
        else
            confirmed->list[kept++] = confirmed->list[i];
    }
    confirmed->count = kept;
}

/* Collects the values that are addresses for certain, or whole parameters that are not the end of
 * something. */
static bool confirmations_make(struct check *check)
{
    struct confirmations *confirmed = &check->confirmed;
    const struct graph_words *words = check->judged;
    if (confirmed->made)
        return true;
    confirmed->room = words->count;
    confirmed->list = pages_map(confirmed->room * sizeof *confirmed->list);
    if (!confirmed->list)
        return out_of_host_memory(check);
    for (size_t i = 0; i < words->count; i++) {
        const struct driver_word *word = &words->list[i];
        if (word->kind == WORD_IS_ADDRESS || (word->kind == WORD_IS_WHOLE && !is_an_end(check, i)))
            confirmed->list[confirmed->count++] =
                (struct confirmation){.value = (uintptr_t)word->value, .number = word->number};
    }
    if (confirmed->count)
        qsort(confirmed->list, confirmed->count, sizeof *confirmed->list, by_confirmed_value);
    merge(confirmed);
    confirmed->made = true;
    return true;
}

static int by_value_alone(const void *key, const void *item)
{
    uintptr_t value = *(const uintptr_t *)key, other = ((const struct confirmation *)item)->value;
    return value < other ? -1 : value > other;
}

/* Whether another node has the value where it can only be an address. */
static bool is_confirmed(struct check *check, const struct driver_word *word)
{
    uintptr_t value = (uintptr_t)word->value;
    const struct confirmation *found =
        confirmations_make(check) && check->confirmed.count
            ? bsearch(&value, check->confirmed.list, check->confirmed.count,
                      sizeof *check->confirmed.list, by_value_alone)
            : NULL;
    return found && (found->by_more || found->number != word->number);
}

/* Of a remembered block that is gone. */
static tarn_graph_certainty certainty_of_gone(struct check *check, size_t index,
                                              const struct referred *referred)
{
    const struct driver_word *word = &check->judged->list[index];
    bool starts = word->value == (uintptr_t)referred->block.base;
    if (word->kind == WORD_IS_ADDRESS)
        return TARN_GRAPH_CERTAIN;
    if (word->kind == WORD_IS_FIELD && (!starts || !is_confirmed(check, word)))
        return TARN_GRAPH_PERHAPS;
    return starts && !is_an_end(check, index) ? TARN_GRAPH_CERTAIN : TARN_GRAPH_LIKELY;
}

/* The certainty of a finding in free memory, if no block was remembered there. */
static tarn_graph_certainty certainty_of_unknown(struct check *check, size_t index)
{
    const struct driver_word *word = &check->judged->list[index];
    if (word->kind == WORD_IS_FIELD)
        return TARN_GRAPH_PERHAPS;
    if (word->kind == WORD_IS_ADDRESS)
        return TARN_GRAPH_CERTAIN;
    return is_an_end(check, index) ? TARN_GRAPH_PERHAPS : TARN_GRAPH_LIKELY;
}

/* Whether an address is in a private pool that something holds: in free memory, or in another block
 * than the remembered one. Such a pool serves no other. */
static bool is_of_a_held_pool(const tarn_graph_reference *reference,
                              const struct referred *referred)
{
    return reference->state == TARN_GRAPH_OTHERS ||
           (reference->state == TARN_GRAPH_CHANGED &&
            (referred ? pool_facts(referred->block.device, referred->block.pool).held
                      : pool_facts(reference->device, reference->pool).held));
}

/* The certainty of an address where nothing speaks for the graph. It follows from what is
 * remembered alone, so it is found out once. */
static tarn_graph_certainty weight(struct check *check, size_t index, const struct known *known)
{
    struct open *open = &check->open;
    if (open->weighed)
        return open->weight;
    open->weight = known && known->referred ? certainty_of_gone(check, index, known->referred)
                                            : certainty_of_unknown(check, index);
    open->weighed = !check->status;
    return open->weight;
}

/* The certainty of a finding in memory that had no live block when the graph was remembered. The
 * graph's own capture, or one that shares its pool, may have freed it; or the value is no
 * address. */
static tarn_graph_certainty certainty_of_free(struct check *check, size_t index,
                                              const tarn_graph_reference *reference,
                                              const struct known *known)
{
    bool unmapped = reference->state == TARN_GRAPH_UNMAPPED && reference->device < 0;
    if (is_of_a_held_pool(reference, NULL)) {
        check->summary.unproven++;
        return TARN_GRAPH_NO_FINDING;
    }
    return unmapped && check->judged->list[index].kind == WORD_IS_FIELD
               ? TARN_GRAPH_NO_FINDING
               : weight(check, index, known);
}

static tarn_graph_certainty certainty(struct check *check, size_t index,
                                      const tarn_graph_reference *reference,
                                      const struct known *known)
{
    const struct referred *referred = known ? known->referred : NULL;
    if (reference->state == TARN_GRAPH_LIVE || reference->state == TARN_GRAPH_HELD)
        return TARN_GRAPH_NO_FINDING;
    if (known && !referred && !known->outside.number)
        return certainty_of_free(check, index, reference, known);
    if (is_of_a_held_pool(reference, referred))
        return TARN_GRAPH_PERHAPS;
    return weight(check, index, known);
}

static void count(tarn_graph_summary *summary, tarn_graph_certainty certainty)
{
    summary->references++;
    summary->certain += certainty == TARN_GRAPH_CERTAIN;
    summary->likely += certainty == TARN_GRAPH_LIKELY;
    summary->perhaps += certainty == TARN_GRAPH_PERHAPS;
}

tarn_graph_reference judge(struct check *check, size_t index)
{
    static const tarn_graph_node_kind kinds[] = {[DRIVER_NODE_KERNEL] = TARN_GRAPH_KERNEL,
                                                 [DRIVER_NODE_COPY] = TARN_GRAPH_COPY,
                                                 [DRIVER_NODE_SET] = TARN_GRAPH_FILL,
                                                 [DRIVER_NODE_FREE] = TARN_GRAPH_RELEASE,
                                                 [DRIVER_NODE_BATCH] = TARN_GRAPH_BATCH};
    const struct driver_word *word = &check->judged->list[index];
    const struct known *known = remembered_at(check->before, (uintptr_t)word->value);
    tarn_graph_reference reference = {.size = sizeof reference,
                                      .node = word->number,
                                      .depth = word->depth,
                                      .kind = kinds[word->of],
                                      .native = word->node,
                                      .kernel = word->kernel,
                                      .parameter = word->parameter,
                                      .offset = word->offset,
                                      .parameter_bytes = word->size,
                                      .address = (void *)(uintptr_t)word->value,
                                      .device = -1,
                                      .remembered_at = "",
                                      .freed_at = "",
                                      .allocated_at = "",
                                      .region = ""};
    find_state(check, &reference, known);
    reference.certainty = certainty(check, index, &reference, known);
    count(&check->summary, reference.certainty);
    return reference;
}

/* A word is closed if only referred_changes tells that something is new there. */
bool judged_is_closed(const struct check *check, const tarn_graph_reference *reference)
{
    const struct known *known = remembered_at(check->before, (uintptr_t)reference->address);
    return known && reference->state == TARN_GRAPH_LIVE &&
           (known->referred || !outside_is_page(&known->outside));
}

void judge_sum_up(struct check *check)
{
    tarn_graph_summary *summary = &check->summary;
    const size_t *unseen = check->judged->walk.unseen;
    summary->nodes = check->judged->walk.nodes;
    summary->remembered = check->before;
    summary->unseen_host = unseen[UNSEEN_HOST];
    summary->unseen_kernels = unseen[UNSEEN_KERNEL];
    summary->unseen_updatable = unseen[UNSEEN_UPDATABLE];
    summary->unseen_conditional = unseen[UNSEEN_CONDITIONAL];
    summary->unseen_other = unseen[UNSEEN_OTHER];
    for (int i = 0; i < DRIVER_UNSEEN; i++)
        summary->unseen += unseen[i];
    summary->verdict = summary->certain + summary->likely + summary->perhaps ? TARN_GRAPH_SUSPICIOUS
                       : summary->unseen + summary->unproven                 ? TARN_GRAPH_UNKNOWN
                                                                             : TARN_GRAPH_CLEAN;
}

void check_finish(struct check *check)
{
    picture_dropped(check->picture);
    words_finish(&check->words);
    pages_unmap(check->ends.list, check->ends.room * sizeof *check->ends.list);
    pages_unmap(check->confirmed.list, check->confirmed.room * sizeof *check->confirmed.list);
}
