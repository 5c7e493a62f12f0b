/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what is remembered of graphs. The driver says when a graph is gone; then whoever adds or
 * looks takes its record out. A graph that is remembered again has several records: the newest one
 * is that of the graph, and the others are found by their numbers. */
#include "base/pages.h"
#include "base/status.h"
#include "device/device.h"
#include "report/graph/graph.h"

#include <stdlib.h>
#include <string.h>

static mutex remembered_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct tree by_graph;  /* remembered_lock; of one graph the oldest first */
static struct tree by_number; /* remembered_lock */
static uint64_t numbers;      /* remembered_lock: given so far */
static struct inbox all_gone; /* records whose graphs have ended; they are in the trees */
static struct object_pool objects = OBJECT_POOL(struct remembered);

#define BY_GRAPH(at) TREE_ENTRY(at, struct remembered, by_graph)
#define BY_NUMBER(at) TREE_ENTRY(at, struct remembered, by_number)

static bool graph_before(const struct tree_node *a, const struct tree_node *b)
{
    const struct remembered *x = BY_GRAPH(a), *y = BY_GRAPH(b);
    return x->graph == y->graph ? x->number < y->number : (uintptr_t)x->graph < (uintptr_t)y->graph;
}

static bool number_before(const struct tree_node *a, const struct tree_node *b)
{
    return BY_NUMBER(a)->number < BY_NUMBER(b)->number;
}

static bool graph_is_above(const struct tree_node *node, uint64_t graph)
{
    return (uintptr_t)BY_GRAPH(node)->graph > graph;
}

static bool number_is_at_least(const struct tree_node *node, uint64_t number)
{
    return BY_NUMBER(node)->number >= number;
}

/* The newest record of a graph; NULL: there is none. */
static struct remembered *newest_locked(driver_graph graph)
{
    struct tree_node *above = tree_find_first(&by_graph, graph_is_above, (uintptr_t)graph),
                     *at = above ? tree_previous(above) : tree_last(&by_graph);
    return at && BY_GRAPH(at)->graph == graph ? BY_GRAPH(at) : NULL;
}

static struct remembered *numbered_locked(uint64_t number)
{
    struct tree_node *at = tree_find_first(&by_number, number_is_at_least, number);
    return at && BY_NUMBER(at)->number == number ? BY_NUMBER(at) : NULL;
}

static bool is_newest_locked(struct remembered *record)
{
    struct tree_node *next = tree_next(&record->by_graph);
    return !next || BY_GRAPH(next)->graph != record->graph;
}

static void forget(struct remembered *old)
{
    for (size_t i = 0; i < old->known_count; i++)
        referred_release(old->known[i].referred);
    pages_unmap(old->verdicts.open, old->verdicts.open_room * sizeof *old->verdicts.open);
    if (old->verdicts.grounds)
        pages_unmap(old->verdicts.grounds, old->known_room * sizeof *old->verdicts.grounds);
    pages_unmap(old->known, old->known_room * sizeof *old->known);
    pages_free(old->pools, old->pool_room * sizeof *old->pools);
    pages_unmap(old->names, old->names_bytes);
    words_finish(&old->words);
    object_free(&objects, old);
}

/* By the driver, which may have locks. */
static void graph_ended(void *argument)
{
    struct remembered *record = argument;
    atomic_store(&record->ended, true);
    inbox_add(&all_gone, &record->gone);
}

/* Takes out what is gone, and returns a list of it, to forget without the lock. What a check still
 * uses is for a later call. */
static struct inbox_item *sweep_locked(void)
{
    struct inbox_item *list = NULL, *item = inbox_take(&all_gone);
    while (item) {
        struct inbox_item *next = item->next;
        struct remembered *record = INBOX_ENTRY(item, struct remembered, gone);
        if (atomic_load(&record->uses)) {
            inbox_add(&all_gone, item);
        } else {
            tree_remove(&by_graph, &record->by_graph);
            tree_remove(&by_number, &record->by_number);
            item->next = list;
            list = item;
        }
        item = next;
    }
    return list;
}

static void forget_all(struct inbox_item *list)
{
    while (list) {
        struct remembered *record = INBOX_ENTRY(list, struct remembered, gone);
        list = list->next;
        forget(record);
    }
}

struct remembered *remembered_use(driver_graph graph, uint64_t number)
{
    mutex_lock(&remembered_lock);
    struct inbox_item *gone = sweep_locked();
    struct remembered *found = number ? numbered_locked(number) : newest_locked(graph);
    if (found && atomic_load(&found->ended))
        found = NULL;
    if (found)
        atomic_fetch_add(&found->uses, 1);
    mutex_unlock(&remembered_lock);
    forget_all(gone);
    return found;
}

void remembered_leave(struct remembered *used)
{
    if (used)
        atomic_fetch_sub(&used->uses, 1);
}

struct known *remembered_at(const struct remembered *before, uintptr_t value)
{
    size_t low = 0, high = before ? before->known_count : 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (before->known[middle].value == value)
            return &before->known[middle];
        if (before->known[middle].value < value)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

struct verdicts *verdicts_take(struct remembered *used)
{
    mutex_lock(&remembered_lock);
    bool taken = used->taken;
    used->taken = true;
    mutex_unlock(&remembered_lock);
    return taken ? NULL : &used->verdicts;
}

void verdicts_give(struct remembered *used)
{
    mutex_lock(&remembered_lock);
    used->taken = false;
    mutex_unlock(&remembered_lock);
}

bool verdicts_add(struct verdicts *verdicts, const struct open *open)
{
    if (verdicts->open_count == verdicts->open_room) {
        size_t room = verdicts->open_room ? 2 * verdicts->open_room : 128;
        struct open *list = pages_map(room * sizeof *list);
        if (!list)
            return false;
        if (verdicts->open_count)
            memcpy(list, verdicts->open, verdicts->open_count * sizeof *list);
        pages_unmap(verdicts->open, verdicts->open_room * sizeof *list);
        verdicts->open = list;
        verdicts->open_room = room;
    }
    verdicts->open[verdicts->open_count++] = *open;
    return true;
}

/* ---- Statistics ---- */

/* The row of a block's pool; NULL: it has none yet. Neighbours in the list often share a pool, so
 * `last`, the row of the block before, is tried first. */
static struct survey_graph *row_of(const struct remembered *graph, struct survey_graph *last,
                                   const tarn_block_info *block)
{
    struct survey_graph *rows = graph->pools;
    for (size_t i = 0; i <= graph->pool_count; i++) {
        struct survey_graph *row = i ? &rows[i - 1] : last;
        if (row && row->device == block->device && row->pool[0] == block->pool.first &&
            row->pool[1] == block->pool.second)
            return row;
    }
    return NULL;
}

/* Adds what a graph refers to up, in the rows of its pools. Addresses of one block lie next to each
 * other in the list. */
static void sum_up_locked(struct remembered *graph)
{
    const struct referred *last = NULL;
    struct survey_graph *row = NULL;
    for (size_t i = 0; i < graph->pool_count; i++)
        graph->pools[i] =
            (struct survey_graph){.number = graph->number,
                                  .device = graph->pools[i].device,
                                  .pool = {graph->pools[i].pool[0], graph->pools[i].pool[1]}};
    for (size_t i = 0; i < graph->known_count; i++) {
        const struct referred *referred = graph->known[i].referred;
        if (!referred)
            continue;
        row = row_of(graph, row, &referred->block);
        row->addresses++;
        if (referred == last)
            continue;
        last = referred;
        bool gone = referred_has_ended(referred);
        row->blocks++;
        row->bytes += referred_bytes(referred);
        row->gone += gone;
        row->gone_bytes += gone ? referred_bytes(referred) : 0;
    }
}

/* Fills `rows` from the end, with the newest graph first, and moves what it has to the front. */
size_t remembered_sum_up(struct survey_graph *rows, size_t room)
{
    size_t there = 0, kept = 0;
    mutex_lock(&remembered_lock);
    for (struct tree_node *at = tree_last(&by_number); at; at = tree_previous(at)) {
        struct remembered *graph = BY_NUMBER(at);
        if (!is_newest_locked(graph) || atomic_load(&graph->ended))
            continue;
        if (kept < room)
            sum_up_locked(graph);
        for (size_t i = graph->pool_count; i > 0 && kept < room; i--)
            rows[room - ++kept] = graph->pools[i - 1];
        there += graph->pool_count;
    }
    mutex_unlock(&remembered_lock);
    if (kept)
        memmove(rows, rows + room - kept, kept * sizeof *rows);
    return there;
}

/* ---- Making ---- */

static int by_value(const void *a, const void *b)
{
    uintptr_t x = ((const struct known *)a)->value, y = ((const struct known *)b)->value;
    return x < y ? -1 : x > y;
}

/* Notes the blocks that live now, each value once. */
static tarn_status note_blocks(struct remembered *made)
{
    const struct graph_words *words = &made->words;
    tarn_status status = TARN_OK;
    made->known_room = words->count + 1;
    made->known = pages_map(made->known_room * sizeof *made->known);
    if (!made->known)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to remember a graph");
    size_t count = words->count, kept = 0;
    for (size_t i = 0; i < count; i++)
        made->known[i].value = (uintptr_t)words->list[i].value;
    qsort(made->known, count, sizeof *made->known, by_value);
    for (size_t i = 0; i < count; i++)
        if (!kept || made->known[kept - 1].value != made->known[i].value)
            made->known[kept++].value = made->known[i].value;
    for (; made->known_count < kept && !status; made->known_count++) {
        struct known *known = &made->known[made->known_count];
        tarn_block_info block = {.size = 0};
        status = referred_of(known->value, &known->referred, &block);
        if (!known->referred && !status)
            (void)outside_at(known->value, &known->outside);
        known->ends[0] = (uintptr_t)block.base + block.requested;
        known->ends[1] = (uintptr_t)block.base + block.usable_size;
    }
    return status;
}

/* Makes room for more rows of pools. */
static bool pools_grow(struct remembered *made)
{
    size_t room = made->pool_room ? 2 * made->pool_room : 8;
    struct survey_graph *pools = pages_alloc(room * sizeof *pools);
    if (!pools)
        return false;
    if (made->pool_count)
        memcpy(pools, made->pools, made->pool_count * sizeof *pools);
    pages_free(made->pools, made->pool_room * sizeof *pools);
    made->pools = pools;
    made->pool_room = room;
    return true;
}

/* Makes a row for each pool that the blocks are in. */
static tarn_status note_pools(struct remembered *made)
{
    struct survey_graph *row = NULL;
    for (size_t i = 0; i < made->known_count; i++) {
        const struct referred *referred = made->known[i].referred;
        if (!referred)
            continue;
        row = row_of(made, row, &referred->block);
        if (row)
            continue;
        if (made->pool_count == made->pool_room && !pools_grow(made))
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the pools of a graph");
        const tarn_block_info *block = &referred->block;
        row = &made->pools[made->pool_count++];
        *row = (struct survey_graph){.device = block->device,
                                     .pool = {block->pool.first, block->pool.second}};
    }
    return TARN_OK;
}

/* The live block around an address; NULL: there is none. */
static const struct picture_block *block_around(const struct picture *picture, uintptr_t address)
{
    const struct picture_run *run = run_around(picture, address);
    size_t low = run ? run->first_block : 0, high = run ? low + run->block_count : 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct picture_block *block = &picture_blocks(picture)[middle];
        if (address < block->address)
            high = middle;
        else if (address - block->address >= block->size)
            low = middle + 1;
        else
            return block->state == PICTURE_LIVE ? block : NULL;
    }
    return NULL;
}

/* Notes where the blocks were allocated, as far as the trace knows. */
static void note_origins(struct remembered *made)
{
    struct error_before before;
    tarn_status status;
    if (!trace_is_on())
        return;
    error_attempt_begin(&before);
    struct picture *picture = picture_made(&status);
    for (size_t i = 0; picture && i < made->known_count; i++) {
        struct known *known = &made->known[i];
        const struct picture_block *block =
            known->referred ? block_around(picture, (uintptr_t)known->referred->block.base) : NULL;
        if (!block || !block->record)
            continue;
        const struct trace_record *record = &picture->trace.records[block->record - 1];
        known->region = record->region;
        known->stack = record->stack;
    }
    picture_dropped(picture);
    error_attempt_end(&before, TARN_OK);
}

/* Returns the nearest earlier word with the same kernel, among the 256 before; `index` if there is
 * none. */
static size_t with_name(const struct graph_words *words, size_t index)
{
    for (size_t back = 1; back <= index && back <= 256; back++)
        if (words->list[index - back].kernel == words->list[index].kernel)
            return index - back;
    return index;
}

/* Copies the names of kernels, as their modules may go before the graph does. */
static tarn_status copy_names(struct remembered *made)
{
    struct graph_words *words = &made->words;
    size_t bytes = 1, end = 0, list = (words->count + 1) * sizeof(char *);
    for (size_t i = 0; i < words->count; i++)
        bytes += with_name(words, i) == i ? strlen(words->list[i].kernel) + 1 : 0;
    const char **own = pages_map(list);
    made->names = own ? pages_map(bytes) : NULL;
    made->names_bytes = made->names ? bytes : 0;
    for (size_t i = 0; made->names && i < words->count; i++) {
        size_t other = with_name(words, i), length = strlen(words->list[i].kernel) + 1;
        own[i] = other < i ? own[other] : memcpy(made->names + end, words->list[i].kernel, length);
        end += other < i ? 0 : length;
    }
    for (size_t i = 0; made->names && i < words->count; i++)
        words->list[i].kernel = own[i];
    pages_unmap(own, list);
    return made->names ? TARN_OK
                       : failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                                "no host memory for the names of a graph's kernels");
}

/* Lists a record, and has the driver report the end of its graph. On failure it is forgotten.
 * `number` receives its number. */
static tarn_status list(struct remembered *made, uint64_t *number)
{
    mutex_lock(&remembered_lock);
    struct inbox_item *gone = sweep_locked();
    *number = made->number = ++numbers;
    tree_insert_by(&by_graph, &made->by_graph, graph_before);
    tree_insert_by(&by_number, &made->by_number, number_before);
    mutex_unlock(&remembered_lock);
    forget_all(gone);
    int device = thread_device();
    tarn_status status = driver->graph_hold(device, made->graph, graph_ended, made);
    if (!status)
        return TARN_OK;
    graph_ended(made); /* the driver will not */
    mutex_lock(&remembered_lock);
    gone = sweep_locked();
    mutex_unlock(&remembered_lock);
    forget_all(gone);
    return device_note(device_at(device), status);
}

tarn_status remember(driver_graph graph, struct graph_words *words, const struct site *site,
                     uint64_t *number)
{
    struct remembered *made = object_alloc(&objects);
    if (!made)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to remember a graph");
    made->graph = graph;
    made->captured = *site;
    made->words = *words;
    *words = (struct graph_words){0};
    tarn_status status = copy_names(made);
    if (!status)
        status = note_blocks(made);
    if (!status)
        status = note_pools(made);
    if (!status)
        note_origins(made);
    if (status) {
        forget(made);
        return status;
    }
    return list(made, number);
}
