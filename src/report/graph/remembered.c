/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what is remembered of graphs. The driver says when a graph is gone; then whoever adds or
 * looks takes its record out. */
#include "base/pages.h"
#include "base/status.h"
#include "device/device.h"
#include "report/graph/graph.h"

#include <stdlib.h>
#include <string.h>

static mutex remembered_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct remembered *all; /* remembered_lock; the newest first */
static uint64_t numbers;       /* remembered_lock: given so far */
static struct object_pool objects = OBJECT_POOL(struct remembered);

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
    atomic_store_explicit(&((struct remembered *)argument)->ended, true, memory_order_release);
}

/* Takes out what is gone, and gives a list of it, to forget without the lock. */
static struct remembered *sweep_locked(void)
{
    struct remembered *gone = NULL;
    for (struct remembered **place = &all; *place;) {
        struct remembered *old = *place;
        if (!atomic_load_explicit(&old->ended, memory_order_acquire) || atomic_load(&old->uses)) {
            place = &old->next;
            continue;
        }
        *place = old->next;
        old->next = gone;
        gone = old;
    }
    return gone;
}

static void forget_all(struct remembered *gone)
{
    while (gone) {
        struct remembered *next = gone->next;
        forget(gone);
        gone = next;
    }
}

struct remembered *remembered_use(driver_graph graph, uint64_t number)
{
    mutex_lock(&remembered_lock);
    struct remembered *gone = sweep_locked(), *found = all;
    while (found && (number ? found->number != number : found->graph != graph || found->replaced))
        found = found->next;
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

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const struct survey_graph *)a)->number,
             y = ((const struct survey_graph *)b)->number;
    return x < y ? -1 : x > y;
}

size_t remembered_sum_up(struct survey_graph *rows, size_t room)
{
    size_t there = 0;
    mutex_lock(&remembered_lock);
    for (struct remembered *graph = all; graph; graph = graph->next) {
        if (graph->replaced || atomic_load(&graph->ended))
            continue;
        size_t left = there < room ? room - there : 0;
        size_t count = graph->pool_count < left ? graph->pool_count : left;
        if (count) {
            sum_up_locked(graph);
            memcpy(rows + there, graph->pools, count * sizeof *rows);
        }
        there += graph->pool_count;
    }
    mutex_unlock(&remembered_lock);
    qsort(rows, there < room ? there : room, sizeof *rows, by_number);
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

static void list(struct remembered *made)
{
    mutex_lock(&remembered_lock);
    for (struct remembered *old = all; old; old = old->next)
        old->replaced = old->replaced || old->graph == made->graph;
    struct remembered *gone = sweep_locked();
    made->number = ++numbers;
    made->next = all;
    all = made;
    mutex_unlock(&remembered_lock);
    forget_all(gone);
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
    int device = thread_device();
    tarn_status status = copy_names(made);
    if (!status)
        status = note_blocks(made);
    if (!status)
        status = note_pools(made);
    if (!status)
        note_origins(made);
    if (!status)
        status =
            device_note(device_at(device), driver->graph_hold(device, graph, graph_ended, made));
    if (status) {
        forget(made);
        return status;
    }
    list(made);
    *number = made->number;
    return TARN_OK;
}
