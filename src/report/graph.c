/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks graphs (tarn/graph.h): collects the words of a graph's nodes that lie in tarn's memory, as
 * the driver's walk tells them, asks what lies there now, and compares with what was remembered.
 * Owns what is remembered of graphs: a list per graph, sorted by value, constant once it is listed.
 * The driver says when a graph is gone; then whoever adds takes its list out. */
#include "memory/pool/graph.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "device/device.h"
#include "memory/arena/arena.h"
#include "memory/growth/segment.h"
#include "memory/settings/hooks.h"
#include "memory/share/import.h"
#include "memory/watch/picture.h"

#include <stdlib.h>
#include <string.h>
#include <tarn/graph.h>

/* What a word of a graph refers to. */
struct block_known {
    uintptr_t value, base;
    size_t requested, usable;
    uint64_t birth; /* the time of its allocation in the trace; 0: not known */
    tarn_stream stream;
    tarn_pool_id pool;
    int device;
    tarn_tag tag;
};

struct remembered {
    struct remembered *next; /* remembered_lock */
    driver_graph graph;
    uint64_t hash;              /* of the graph's words: another graph may get the address */
    size_t count, bytes;        /* of the list */
    struct block_known *blocks; /* pages_map; sorted by value */
    atomic_uint uses;           /* checks that read it */
    bool replaced;              /* remembered_lock: a newer one is listed */
    atomic_bool ended;          /* the graph is gone */
};

static mutex remembered_lock = MUTEX_INITIALIZER(LOCK_REMEMBERED);
static struct remembered *all_remembered; /* remembered_lock; the newest first */
static struct object_pool remembered_objects = OBJECT_POOL(struct remembered);

/* What a check works with. */
struct check {
    driver_graph graph;
    struct driver_walk walk;
    const struct remembered *before; /* NULL: the graph was not remembered */
    struct driver_word *words;       /* pages_map; in the order of nodes */
    size_t count, room;
    uint64_t hash;           /* of all words of the graph, those of others too */
    struct picture *picture; /* taken when it is first needed */
    uint64_t traced_since;   /* since when the trace has every allocation; 0: it has not */
    tarn_graph_summary summary;
};

/* ---- What is remembered ---- */

static void forget(struct remembered *old)
{
    pages_unmap(old->blocks, old->bytes);
    object_free(&remembered_objects, old);
}

/* By the driver, which may have locks. */
static void graph_ended(void *argument)
{
    atomic_store_explicit(&((struct remembered *)argument)->ended, true, memory_order_release);
}

static void sweep_locked(void)
{
    for (struct remembered **place = &all_remembered; *place;) {
        struct remembered *old = *place;
        if (!atomic_load_explicit(&old->ended, memory_order_acquire) || atomic_load(&old->uses)) {
            place = &old->next;
            continue;
        }
        *place = old->next;
        forget(old);
    }
}

/* What is remembered of a graph, for as long as it is used; NULL: nothing. */
static struct remembered *use_remembered(driver_graph graph)
{
    mutex_lock(&remembered_lock);
    struct remembered *found = all_remembered;
    while (found && (found->graph != graph || found->replaced || atomic_load(&found->ended)))
        found = found->next;
    if (found)
        atomic_fetch_add(&found->uses, 1);
    mutex_unlock(&remembered_lock);
    return found;
}

static const struct block_known *known_at(const struct remembered *before, uintptr_t value)
{
    size_t low = 0, high = before ? before->count : 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (before->blocks[middle].value == value)
            return &before->blocks[middle];
        if (before->blocks[middle].value < value)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- The words of a graph ---- */

static bool is_of_tarn(const struct check *check, uintptr_t value)
{
    return arena_at(value) || segment_has(value) || import_has(value) ||
           known_at(check->before, value);
}

static void mix(struct check *check, uint64_t value)
{
    check->hash = (check->hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    check->hash ^= check->hash >> 29;
}

static bool add_word(const struct driver_word *word, void *user)
{
    struct check *check = user;
    mix(check, word->value);
    mix(check, (uintptr_t)word->node);
    mix(check, (uint64_t)word->parameter << 32 ^ word->offset);
    if (!is_of_tarn(check, (uintptr_t)word->value))
        return true;
    if (check->count == check->room) {
        size_t room = check->room ? 2 * check->room : 256;
        struct driver_word *words = pages_map(room * sizeof *words);
        if (!words)
            return false;
        if (check->count)
            memcpy(words, check->words, check->count * sizeof *words);
        pages_unmap(check->words, check->room * sizeof *words);
        check->words = words;
        check->room = room;
    }
    check->words[check->count++] = *word;
    return true;
}

static tarn_status collect(struct check *check)
{
    if (!driver->graph_walk)
        return failed(TARN_ERROR_NOT_SUPPORTED, "the %s driver cannot list the nodes of a graph",
                      driver->name);
    check->walk = (struct driver_walk){.word = add_word, .user = check};
    int device = thread_device();
    return device_note(device_at(device), driver->graph_walk(device, check->graph, &check->walk));
}

/* ---- What lies at an address now ---- */

static tarn_status take_picture(struct check *check)
{
    if (check->picture)
        return TARN_OK;
    check->picture = pages_alloc(sizeof *check->picture);
    if (!check->picture)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to look at the memory");
    return picture_take(check->picture);
}

static void check_finish(struct check *check)
{
    if (check->picture) {
        picture_finish(check->picture);
        pages_free(check->picture, sizeof *check->picture);
    }
    pages_unmap(check->words, check->room * sizeof *check->words);
}

/* The segment around an address; NULL: there is none. They are in the order of addresses. */
static const struct picture_segment *segment_around(const struct picture *picture,
                                                    uintptr_t address)
{
    const struct picture_segment *segments = picture_segments(picture);
    size_t low = 0, high = picture->segments.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (address < segments[middle].address)
            high = middle;
        else if (address - segments[middle].address >= segments[middle].size)
            low = middle + 1;
        else
            return &segments[middle];
    }
    return NULL;
}

static const struct picture_block *block_around(const struct picture *picture,
                                                const struct picture_segment *segment,
                                                uintptr_t address)
{
    const struct picture_block *blocks = picture_blocks(picture) + segment->first_block;
    size_t low = 0, high = segment->block_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (address < blocks[middle].address)
            high = middle;
        else
            low = middle;
    }
    return &blocks[low];
}

/* When the block at an address was allocated, as the trace says; 0: not known. */
static uint64_t birth_of(const struct check *check, uintptr_t base)
{
    const struct picture_segment *segment =
        check->traced_since ? segment_around(check->picture, base) : NULL;
    if (!segment)
        return 0;
    uint32_t record = block_around(check->picture, segment, base)->record;
    return record && record <= check->picture->trace.count
               ? check->picture->trace.records[record - 1].time
               : 0; /* no ticks are 0 */
}

/* The live block around an address. Leaves the last error alone. */
static bool live_at(const struct check *check, uintptr_t value, struct block_known *block)
{
    tarn_block_info info = {.size = sizeof info};
    struct error_before before;
    error_attempt_begin(&before);
    bool live = !tarn_pointer_info_get((void *)value, &info);
    error_attempt_end(&before, TARN_OK);
    if (live)
        *block = (struct block_known){.value = value,
                                      .base = (uintptr_t)info.base,
                                      .requested = info.requested,
                                      .usable = info.usable_size,
                                      .birth = birth_of(check, (uintptr_t)info.base),
                                      .stream = info.stream,
                                      .pool = info.pool,
                                      .device = info.device,
                                      .tag = info.tag};
    return live;
}

static bool is_same(const struct block_known *a, const struct block_known *b)
{
    return a->base == b->base && a->requested == b->requested && a->usable == b->usable &&
           a->stream == b->stream && a->pool.first == b->pool.first &&
           a->pool.second == b->pool.second && a->tag == b->tag &&
           (!a->birth || !b->birth || a->birth == b->birth);
}

static bool graph_holds(const struct check *check, int device, tarn_pool_id pool)
{
    return (pool.first || pool.second) &&
           graph_holds_pool(check->graph, device, (uint64_t[2]){pool.first, pool.second});
}

static bool is_held(const struct picture *picture, int device, tarn_pool_id id)
{
    const struct picture_pool *pools = picture->pools.items;
    for (size_t i = 0; i < picture->pools.count; i++)
        if (pools[i].device == device && pools[i].id[0] == id.first && pools[i].id[1] == id.second)
            return pools[i].held;
    return false;
}

/* What lies there where no block is live. */
static tarn_graph_state state_of_free(const struct check *check, tarn_graph_reference *reference)
{
    uintptr_t value = (uintptr_t)reference->address;
    const struct picture_segment *segment = segment_around(check->picture, value);
    const struct trace_place *place = segment ? trace_place_value(segment->place) : NULL;
    if (!segment)
        return TARN_GRAPH_UNMAPPED;
    if (!place)
        return TARN_GRAPH_FREE;
    reference->device = (int)place->device;
    reference->pool = (tarn_pool_id){place->pool[0], place->pool[1]};
    if (graph_holds(check, reference->device, reference->pool))
        return TARN_GRAPH_HELD;
    return is_held(check->picture, reference->device, reference->pool) ? TARN_GRAPH_OTHERS
                                                                       : TARN_GRAPH_FREE;
}

static void name_block(tarn_graph_reference *reference, const struct block_known *block)
{
    reference->block = (void *)block->base;
    reference->requested = block->requested;
    reference->tag = block->tag;
    reference->device = block->device;
    reference->pool = block->pool;
}

static void find_state(struct check *check, tarn_graph_reference *reference,
                       const struct block_known *known)
{
    struct block_known now;
    uintptr_t value = (uintptr_t)reference->address;
    bool live = live_at(check, value, &now);
    if (live)
        name_block(reference, &now);
    reference->state =
        live || import_has(value) ? TARN_GRAPH_LIVE : state_of_free(check, reference);
    if (live && known && !is_same(known, &now))
        reference->state =
            graph_holds(check, now.device, now.pool) ? TARN_GRAPH_HELD : TARN_GRAPH_CHANGED;
    bool proven = known && known->birth && known->birth >= check->traced_since && now.birth;
    if (reference->state == TARN_GRAPH_LIVE && !proven &&
        !(live && graph_holds(check, now.device, now.pool)))
        check->summary.unproven++;
    if (known && reference->state != TARN_GRAPH_LIVE)
        name_block(reference, known);
}

/* ---- Certainty ---- */

/* Whether a value is the end of another block that the same node refers to: then it may well be
 * that. */
static bool is_an_end(const struct check *check, size_t index)
{
    const struct driver_word *word = &check->words[index];
    size_t first = index;
    while (first && check->words[first - 1].number == word->number)
        first--;
    for (size_t i = first; i < check->count && check->words[i].number == word->number; i++) {
        uintptr_t other = (uintptr_t)check->words[i].value;
        struct block_known live;
        const struct block_known *block = known_at(check->before, other);
        if (other == word->value)
            continue;
        if (!block && live_at(check, other, &live))
            block = &live;
        if (block && (block->base + block->requested == word->value ||
                      block->base + block->usable == word->value))
            return true;
    }
    return false;
}

/* Whether another node has the value where it can only be an address, or as a whole parameter that
 * is not the end of something. */
static bool is_confirmed(const struct check *check, const struct driver_word *word)
{
    for (size_t i = 0; i < check->count; i++)
        if (check->words[i].value == word->value && check->words[i].number != word->number &&
            (check->words[i].kind == WORD_IS_ADDRESS ||
             (check->words[i].kind == WORD_IS_WHOLE && !is_an_end(check, i))))
            return true;
    return false;
}

/* Of a remembered block that is gone. */
static tarn_graph_certainty certainty_of_gone(const struct check *check, size_t index,
                                              const struct block_known *known)
{
    const struct driver_word *word = &check->words[index];
    bool starts = word->value == known->base;
    if (word->kind == WORD_IS_ADDRESS)
        return TARN_GRAPH_CERTAIN;
    if (word->kind == WORD_IS_FIELD && (!starts || !is_confirmed(check, word)))
        return TARN_GRAPH_PERHAPS;
    return starts && !is_an_end(check, index) ? TARN_GRAPH_CERTAIN : TARN_GRAPH_LIKELY;
}

static tarn_graph_certainty certainty(const struct check *check, size_t index,
                                      tarn_graph_state state, const struct block_known *known)
{
    const struct driver_word *word = &check->words[index];
    if (state == TARN_GRAPH_LIVE || state == TARN_GRAPH_HELD)
        return TARN_GRAPH_NO_FINDING;
    if (known)
        return certainty_of_gone(check, index, known);
    if (state == TARN_GRAPH_OTHERS || word->kind == WORD_IS_FIELD)
        return TARN_GRAPH_PERHAPS;
    if (word->kind == WORD_IS_ADDRESS)
        return TARN_GRAPH_CERTAIN;
    return is_an_end(check, index) ? TARN_GRAPH_PERHAPS : TARN_GRAPH_LIKELY;
}

static void count(tarn_graph_summary *summary, tarn_graph_certainty certainty)
{
    summary->references++;
    summary->certain += certainty == TARN_GRAPH_CERTAIN;
    summary->likely += certainty == TARN_GRAPH_LIKELY;
    summary->perhaps += certainty == TARN_GRAPH_PERHAPS;
}

static tarn_graph_reference judge(struct check *check, size_t index)
{
    static const tarn_graph_node_kind kinds[] = {[DRIVER_NODE_KERNEL] = TARN_GRAPH_KERNEL,
                                                 [DRIVER_NODE_COPY] = TARN_GRAPH_COPY,
                                                 [DRIVER_NODE_SET] = TARN_GRAPH_FILL,
                                                 [DRIVER_NODE_FREE] = TARN_GRAPH_RELEASE,
                                                 [DRIVER_NODE_BATCH] = TARN_GRAPH_BATCH};
    const struct driver_word *word = &check->words[index];
    const struct block_known *known = known_at(check->before, (uintptr_t)word->value);
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
                                      .device = -1};
    find_state(check, &reference, known);
    reference.certainty = certainty(check, index, reference.state, known);
    count(&check->summary, reference.certainty);
    return reference;
}

CALLS_BACK static void tell(const tarn_graph_reference *reference,
                            void (*found)(const tarn_graph_reference *reference, void *user),
                            void *user)
{
    struct callback callback;
    callback_begin(&callback);
    found(reference, user);
    callback_end(&callback);
}

/* ---- The calls ---- */

static void sum_up(struct check *check)
{
    tarn_graph_summary *summary = &check->summary;
    const size_t *unseen = check->walk.unseen;
    summary->nodes = check->walk.nodes;
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

/* Collects the words, and takes the picture in which they are looked up. */
static tarn_status look(struct check *check)
{
    tarn_status status = collect(check);
    if (!status && check->count)
        status = take_picture(check);
    if (!status && check->picture && trace_is_on()) {
        uint64_t lost;
        (void)trace_rings(&lost, &check->traced_since);
    }
    return status;
}

static tarn_status check_graph(const void *graph)
{
    tarn_status status = memory_ready();
    if (!status && !graph)
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "graph is NULL");
    return status;
}

tarn_status tarn_graph_check(void *graph, const tarn_graph_options *given,
                             void (*found)(const tarn_graph_reference *reference, void *user),
                             void *user, tarn_graph_summary *summary)
{
    static const tarn_graph_options nothing_special = {.size = sizeof nothing_special};
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_graph_options options;
    struct check check = {.graph = graph};
    tarn_status status = check_graph(graph);
    if (!status)
        status = sized_read("tarn_graph_options", given ? given : &nothing_special, &options,
                            sizeof options);
    if (!status && summary)
        status = sized_check("tarn_graph_summary", summary, sizeof *summary);
    if (status)
        return status;
    struct remembered *before = use_remembered(graph);
    check.before = before;
    status = look(&check);
    if (before && before->hash != check.hash)
        check.before = NULL; /* of a graph that was destroyed, or is changed since */
    for (size_t i = 0; i < check.count && !status; i++) {
        tarn_graph_reference reference = judge(&check, i);
        if (found && (options.all || reference.certainty))
            tell(&reference, found, user);
    }
    if (!status && summary) {
        sum_up(&check);
        sized_write(summary, &check.summary, sizeof check.summary);
    }
    check_finish(&check);
    if (before)
        atomic_fetch_sub(&before->uses, 1);
    return status;
}

static int by_value(const void *a, const void *b)
{
    uintptr_t x = ((const struct block_known *)a)->value,
              y = ((const struct block_known *)b)->value;
    return x < y ? -1 : x > y;
}

/* The blocks that live now, without what is there twice. */
static void note_blocks(const struct check *check, struct remembered *made)
{
    size_t kept = 0;
    for (size_t i = 0; i < check->count; i++)
        made->count += live_at(check, (uintptr_t)check->words[i].value, &made->blocks[made->count]);
    qsort(made->blocks, made->count, sizeof *made->blocks, by_value);
    for (size_t i = 0; i < made->count; i++)
        if (!kept || made->blocks[kept - 1].value != made->blocks[i].value)
            made->blocks[kept++] = made->blocks[i];
    made->count = kept;
}

static void list(struct remembered *made)
{
    mutex_lock(&remembered_lock);
    for (struct remembered *old = all_remembered; old; old = old->next)
        old->replaced = old->replaced || old->graph == made->graph;
    sweep_locked();
    made->next = all_remembered;
    all_remembered = made;
    mutex_unlock(&remembered_lock);
}

tarn_status tarn_graph_remember(void *graph)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct check check = {.graph = graph};
    tarn_status status = check_graph(graph);
    if (!status)
        status = look(&check);
    struct remembered *made = status ? NULL : object_alloc(&remembered_objects);
    if (made) {
        *made = (struct remembered){
            .graph = graph, .hash = check.hash, .bytes = (check.count + 1) * sizeof *made->blocks};
        made->blocks = pages_map(made->bytes);
    }
    if (!status && (!made || !made->blocks))
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to remember a graph");
    if (!status) {
        note_blocks(&check, made);
        int device = thread_device();
        status =
            device_note(device_at(device), driver->graph_hold(device, graph, graph_ended, made));
    }
    if (!status)
        list(made);
    else if (made)
        forget(made);
    check_finish(&check);
    return status;
}
