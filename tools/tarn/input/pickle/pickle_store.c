/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the pickle machine's values, stack, memo and containers.
 *
 * Keeps: every array is charged to the limit before it grows; a container that is stored in another
 * is sealed and never changes, so there is no cycle; nothing here recurses. Assumes nothing about
 * the order of calls: pickle.c does what the file says. The machine follows python/cpython,
 * Lib/pickle.py. */
#include "input/pickle/pickle_machine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_NODE SIZE_MAX

static const struct {
    enum pickle_kind kind;
    const char *name;
} tags[] = {
    [TAG_NONE] = {PICKLE_NONE, "None"},          [TAG_BOOL] = {PICKLE_BOOL, "a bool"},
    [TAG_INT] = {PICKLE_INT, "an integer"},      [TAG_POSITIVE] = {PICKLE_INT, "an integer"},
    [TAG_NEGATIVE] = {PICKLE_INT, "an integer"}, [TAG_HUGE] = {PICKLE_INT, "an integer"},
    [TAG_FLOAT] = {PICKLE_FLOAT, "a float"},     [TAG_TEXT] = {PICKLE_TEXT, "a text"},
    [TAG_WORD] = {PICKLE_WORD, "a text"},        [TAG_BYTES] = {PICKLE_BYTES, "bytes"},
    [TAG_TUPLE] = {PICKLE_TUPLE, "a tuple"},     [TAG_PAIR] = {PICKLE_TUPLE, "a tuple"},
    [TAG_WIDE_PAIR] = {PICKLE_TUPLE, "a tuple"}, [TAG_NEGATIVE_PAIR] = {PICKLE_TUPLE, "a tuple"},
    [TAG_LIST] = {PICKLE_LIST, "a list"},        [TAG_PLAIN_LIST] = {PICKLE_LIST, "a list"},
    [TAG_DICT] = {PICKLE_DICT, "a dict"},        [TAG_PLAIN_DICT] = {PICKLE_DICT, "a dict"},
    [TAG_RECORD] = {PICKLE_RECORD, "a dict"},    [TAG_LIST_RECORD] = {PICKLE_LIST_RECORD, "a list"},
};

/* A list or dict that is being filled, or that kept something. */
struct pickle_node {
    void *items; /* pickle_value of a list, struct pickle_place of a dict */
    size_t count, capacity;
    /* A list: so many further items, the records of the next numbers after the last one's. */
    uint64_t run;
    uint64_t dropped; /* items of a list that were not kept */
    uint64_t offset;  /* in the stream, of the opcode that made it */
    /* The last memo entry that was given it; while free, the next free node. */
    size_t memo;
    pickle_value replacement; /* of a sealed node: what stands for it, itself or less */
    uint8_t depth;            /* 1 + the deepest of what it keeps */
    bool sealed;
    bool shared; /* known from more places than one of the stack and one of the memo */
};

bool pickle_fail(struct pickle *pickle, uint64_t offset, const char *format, ...)
{
    if (pickle->error[0])
        return false;
    int written = snprintf(pickle->error, sizeof pickle->error, "byte %" PRIu64 ": ", offset);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(pickle->error + written, sizeof pickle->error - (size_t)written, format, arguments);
    va_end(arguments);
    return false;
}

static enum pickle_tag tag_of(pickle_value value)
{
    return (enum pickle_tag)(value.bits & 0xff);
}

static uint64_t payload_of(pickle_value value)
{
    return value.bits >> 8;
}

static int64_t small_integer(pickle_value value)
{
    uint64_t payload = payload_of(value);
    return payload >> 55 ? -(int64_t)(PICKLE_PAYLOAD_MAX - payload) - 1 : (int64_t)payload;
}

enum pickle_kind pickle_kind(pickle_value value)
{
    return tags[tag_of(value)].kind;
}

const char *pickle_kind_name(pickle_value value)
{
    return tags[tag_of(value)].name;
}

uint64_t pickle_number(pickle_value value)
{
    return payload_of(value);
}

static const char no_pair[] = "is not a pair of two integers of 64 bits",
                  negative_pair[] = "has a negative part";

static const char *not_an_integer(pickle_value value)
{
    switch (pickle_kind(value)) {
    case PICKLE_NONE:
        return "is None, not an integer";
    case PICKLE_BOOL:
        return "is a bool, not an integer";
    case PICKLE_FLOAT:
        return "is a float, not an integer";
    case PICKLE_TEXT:
    case PICKLE_WORD:
        return "is a text, not an integer";
    case PICKLE_BYTES:
        return "is bytes, not an integer";
    case PICKLE_TUPLE:
        return "is a tuple, not an integer";
    case PICKLE_LIST:
    case PICKLE_LIST_RECORD:
        return "is a list, not an integer";
    case PICKLE_DICT:
    case PICKLE_RECORD:
        return "is a dict, not an integer";
    case PICKLE_INT:
        break;
    }
    return "does not fit in 64 bits";
}

const char *pickle_get_unsigned(const struct pickle *pickle, pickle_value value, uint64_t *number)
{
    switch (tag_of(value)) {
    case TAG_INT:
        if (small_integer(value) < 0)
            return "is negative";
        *number = payload_of(value);
        return NULL;
    case TAG_POSITIVE:
        *number = pickle->integers[payload_of(value)];
        return NULL;
    case TAG_NEGATIVE:
        return "is negative";
    default:
        return not_an_integer(value);
    }
}

const char *pickle_get_signed(const struct pickle *pickle, pickle_value value, int64_t *number)
{
    switch (tag_of(value)) {
    case TAG_INT:
        *number = small_integer(value);
        return NULL;
    case TAG_POSITIVE:
        if (pickle->integers[payload_of(value)] > INT64_MAX)
            return "does not fit in 63 bits and a sign";
        *number = (int64_t)pickle->integers[payload_of(value)];
        return NULL;
    case TAG_NEGATIVE:
        *number = -(int64_t)~pickle->integers[payload_of(value)] - 1;
        return NULL;
    default:
        return not_an_integer(value);
    }
}

/* Two integers in a list, which is what becomes of a tuple on its way through JSON. */
static const char *list_pair(const struct pickle *pickle, const struct pickle_node *list,
                             uint64_t pair[2])
{
    const pickle_value *items = list->items;
    int64_t sign;
    bool negative = false;
    if (list->count != 2 || list->run || list->dropped)
        return no_pair;
    for (size_t i = 0; i < 2; i++) {
        if (!pickle_get_unsigned(pickle, items[i], &pair[i]))
            continue;
        if (pickle_get_signed(pickle, items[i], &sign))
            return no_pair;
        negative = true;
    }
    return negative ? negative_pair : NULL;
}

const char *pickle_get_pair(const struct pickle *pickle, pickle_value value, uint64_t pair[2])
{
    switch (tag_of(value)) {
    case TAG_PAIR:
        pair[0] = payload_of(value) >> 28;
        pair[1] = payload_of(value) & 0xfffffff;
        return NULL;
    case TAG_WIDE_PAIR:
        pair[0] = pickle->integers[payload_of(value)];
        pair[1] = pickle->integers[payload_of(value) + 1];
        return NULL;
    case TAG_NEGATIVE_PAIR:
        return negative_pair;
    case TAG_LIST:
        return list_pair(pickle, &pickle->nodes[payload_of(value)], pair);
    default:
        return no_pair;
    }
}

static const uint64_t next_number = 1 << 8; /* from a record to the next, as values */

/* Makes items of a list's run. */
static bool list_unroll(struct pickle *pickle, struct pickle_node *node)
{
    if (!pickle_grow(pickle, &node->items, &node->capacity, node->count + node->run,
                     sizeof(pickle_value)))
        return false;
    pickle_value *items = node->items;
    for (; node->run; node->run--, node->count++)
        items[node->count].bits = items[node->count - 1].bits + next_number;
    return true;
}

bool pickle_list_run(const struct pickle *pickle, pickle_value list, pickle_value *first,
                     size_t *count)
{
    if (tag_of(list) != TAG_LIST)
        return false;
    const struct pickle_node *node = &pickle->nodes[payload_of(list)];
    const pickle_value *items = node->items;
    if (node->count != 1 || node->dropped || tag_of(items[0]) != TAG_RECORD)
        return false;
    *first = items[0];
    *count = 1 + node->run;
    return true;
}

const pickle_value *pickle_list(struct pickle *pickle, pickle_value list, size_t *count,
                                uint64_t *dropped)
{
    if (tag_of(list) == TAG_PLAIN_LIST) {
        *count = 0;
        *dropped = payload_of(list);
        return NULL;
    }
    struct pickle_node *node = &pickle->nodes[payload_of(list)];
    bool whole = !node->run || list_unroll(pickle, node);
    *count = whole ? node->count : 0;
    *dropped = node->dropped;
    return node->items;
}

const struct pickle_place *pickle_dict(const struct pickle *pickle, pickle_value dict,
                                       size_t *count)
{
    *count = 0;
    if (tag_of(dict) == TAG_PLAIN_DICT)
        return NULL;
    const struct pickle_node *node = &pickle->nodes[payload_of(dict)];
    *count = node->count;
    return node->items;
}

uint64_t pickle_offset(const struct pickle *pickle, pickle_value value, uint64_t otherwise)
{
    enum pickle_tag tag = tag_of(value);
    return tag == TAG_LIST || tag == TAG_DICT ? pickle->nodes[payload_of(value)].offset : otherwise;
}

/* --- memory --- */

bool pickle_no_memory(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->op_offset, "out of memory");
}

static uint64_t memory_limit(const struct pickle_input *input)
{
    uint64_t limit = PICKLE_MEMORY_BASE + PICKLE_MEMORY_RATIO * input->end_offset;
    uint64_t of_file =
        PICKLE_MEMORY_COMPRESSED_BASE + PICKLE_MEMORY_COMPRESSED_RATIO * input->raw_read;
    return limit < of_file ? limit : of_file;
}

bool pickle_grow(struct pickle *pickle, void **array, size_t *capacity, size_t wanted,
                 size_t element)
{
    if (wanted <= *capacity)
        return true;

    uint64_t limit = memory_limit(pickle->input);
    size_t next = *capacity < 4 ? 4 : *capacity * 2;
    if (next < wanted)
        next = wanted;
    /* `next` is at most twice what was charged before, or a small step. */
    uint64_t bytes = (uint64_t)next * element;
    if (next > SIZE_MAX / element / 2 || bytes > limit || pickle->allocated > limit - bytes)
        return pickle_fail(pickle, pickle->op_offset,
                           "what is read needs more memory than the limit of %" PRIu64
                           " MiB + %" PRIu64 " bytes per byte of the file",
                           PICKLE_MEMORY_BASE >> 20, PICKLE_MEMORY_RATIO);
    void *grown = realloc(*array, next * element);
    if (!grown)
        return pickle_no_memory(pickle);
    pickle->allocated += bytes - (uint64_t)*capacity * element;
    *array = grown;
    *capacity = next;
    return true;
}

static bool make_integer(struct pickle *pickle, enum pickle_tag tag, uint64_t first,
                         uint64_t second, pickle_value *value)
{
    void *integers = pickle->integers;
    if (!pickle_grow(pickle, &integers, &pickle->integer_capacity, pickle->integer_size + 2,
                     sizeof *pickle->integers))
        return false;
    pickle->integers = integers;
    *value = pickle_make(tag, pickle->integer_size);
    pickle->integers[pickle->integer_size++] = first;
    if (tag == TAG_WIDE_PAIR)
        pickle->integers[pickle->integer_size++] = second;
    return true;
}

/* `bits` is two's complement; what lies above 64 bits is all `negative`. */
bool pickle_make_integer(struct pickle *pickle, uint64_t bits, bool negative, pickle_value *value)
{
    uint64_t high = bits >> 55;
    if (negative ? high == 0x1ff : high == 0) {
        *value = pickle_make(TAG_INT, bits & PICKLE_PAYLOAD_MAX);
        return true;
    }
    return make_integer(pickle, negative ? TAG_NEGATIVE : TAG_POSITIVE, bits, 0, value);
}

/* Nodes are used again with the room for items that they have, so lists and dicts each have a
 * chain. */
static size_t *node_chain(struct pickle *pickle, enum pickle_tag tag)
{
    return tag == TAG_LIST ? &pickle->list_free : &pickle->dict_free;
}

static bool node_create(struct pickle *pickle, enum pickle_tag tag, pickle_value *value)
{
    size_t *chain = node_chain(pickle, tag);
    size_t index = *chain;
    if (index != NO_NODE) {
        *chain = pickle->nodes[index].memo;
    } else {
        void *nodes = pickle->nodes;
        if (!pickle_grow(pickle, &nodes, &pickle->node_capacity, pickle->node_size + 1,
                         sizeof *pickle->nodes))
            return false;
        pickle->nodes = nodes;
        index = pickle->node_size++;
        pickle->nodes[index] = (struct pickle_node){0};
    }
    struct pickle_node *node = &pickle->nodes[index];
    *node = (struct pickle_node){.items = node->items,
                                 .capacity = node->capacity,
                                 .offset = pickle->op_offset,
                                 .memo = NO_NODE,
                                 .depth = 1};
    *value = pickle_make(tag, index);
    return true;
}

/* --- stack and memo --- */

static bool push_at(struct pickle *pickle, pickle_value value, uint64_t offset)
{
    if (pickle->stack_size == pickle->stack_capacity) {
        void *stack = pickle->stack;
        if (!pickle_grow(pickle, &stack, &pickle->stack_capacity, pickle->stack_size + 1,
                         sizeof *pickle->stack))
            return false;
        pickle->stack = stack;
    }
    pickle->stack[pickle->stack_size++] =
        (struct pickle_place){.value = value, .offset = offset & PICKLE_PAYLOAD_MAX};
    return true;
}

bool pickle_push(struct pickle *pickle, pickle_value value)
{
    return push_at(pickle, value, pickle->op_offset);
}

bool pickle_push_mark(struct pickle *pickle)
{
    void *marks = pickle->marks;
    if (!pickle_grow(pickle, &marks, &pickle->mark_capacity, pickle->mark_count + 1,
                     sizeof *pickle->marks))
        return false;
    pickle->marks = marks;
    pickle->marks[pickle->mark_count++] = pickle->stack_size;
    return true;
}

/* Whether `count` values lie above the last mark. */
bool pickle_has(struct pickle *pickle, size_t count)
{
    size_t floor = pickle->mark_count ? pickle->marks[pickle->mark_count - 1] : 0;
    return pickle->stack_size - floor >= count ||
           pickle_fail(pickle, pickle->op_offset, "%s finds too few values on the stack",
                       pickle->op_name);
}

/* Takes the last mark away; *first is the value that followed it. */
bool pickle_pop_mark(struct pickle *pickle, size_t *first)
{
    if (!pickle->mark_count)
        return pickle_fail(pickle, pickle->op_offset, "%s finds no mark on the stack",
                           pickle->op_name);
    *first = pickle->marks[--pickle->mark_count];
    return true;
}

static struct pickle_node *node_of(struct pickle *pickle, pickle_value value)
{
    return tag_of(value) == TAG_LIST || tag_of(value) == TAG_DICT
               ? &pickle->nodes[payload_of(value)]
               : NULL;
}

/* Finishes a value that is about to be stored, and gives what is to be stored in its place. */
pickle_value pickle_seal(struct pickle *pickle, pickle_value value, bool in_list)
{
    struct pickle_node *node = node_of(pickle, value);
    if (!node)
        return value;
    if (node->sealed)
        return node->replacement;

    uint64_t record = 0;
    node->sealed = true;
    node->replacement = value;
    if (!node->count)
        node->replacement = tag_of(value) == TAG_LIST ? pickle_make(TAG_PLAIN_LIST, node->dropped)
                                                      : pickle_make(TAG_PLAIN_DICT, 0);
    else if (in_list == (tag_of(value) == TAG_DICT) && pickle->reduce &&
             pickle->reduce(pickle->context, pickle, value, &record))
        node->replacement = pickle_make(in_list ? TAG_RECORD : TAG_LIST_RECORD, record);

    pickle_value replacement = node->replacement;
    if (replacement.bits != value.bits && !node->shared) {
        if (node->memo != NO_NODE && pickle->memo[node->memo].bits == value.bits)
            pickle->memo[node->memo] = replacement;
        size_t *chain = node_chain(pickle, tag_of(value));
        node->memo = *chain;
        *chain = (size_t)payload_of(value);
    }
    return replacement;
}

/* Another way to a value comes about: by DUP or from the memo. */
bool pickle_push_again(struct pickle *pickle, pickle_value value)
{
    struct pickle_node *node = node_of(pickle, value);
    if (node && node->sealed)
        value = node->replacement;
    else if (node)
        node->shared = true;
    return pickle_push(pickle, value);
}

bool pickle_memo_put(struct pickle *pickle, uint64_t index)
{
    if (!pickle_has(pickle, 1))
        return false;
    /* Picklers number in order; pickletools.optimize() keeps that. A jump would make a small file
     * ask for much memory. */
    if (index > 2 * pickle->memo_writes + 1024)
        return pickle_fail(pickle, pickle->op_offset,
                           "%s of memo entry %" PRIu64 " after %" PRIu64 " entries",
                           pickle->op_name, index, pickle->memo_writes);
    pickle->memo_writes++;

    void *memo = pickle->memo;
    size_t at = (size_t)index;
    if (!pickle_grow(pickle, &memo, &pickle->memo_capacity, at + 1, sizeof *pickle->memo))
        return false;
    pickle->memo = memo;
    while (pickle->memo_size <= at)
        pickle->memo[pickle->memo_size++] = (pickle_value){UINT64_MAX};

    pickle_value value = pickle->stack[pickle->stack_size - 1].value;
    struct pickle_node *node = node_of(pickle, value);
    if (node && node->memo != NO_NODE)
        node->shared = true;
    if (node && !node->sealed)
        node->memo = at;
    pickle->memo[at] = value;
    return true;
}

bool pickle_memo_get(struct pickle *pickle, uint64_t index)
{
    if (index >= pickle->memo_size || pickle->memo[index].bits == UINT64_MAX)
        return pickle_fail(pickle, pickle->op_offset,
                           "%s of memo entry %" PRIu64 ", which was never written", pickle->op_name,
                           index);
    return pickle_push_again(pickle, pickle->memo[index]);
}

/* --- containers --- */

/* The container that a store goes to, or NULL with `error` filled. */
static bool target(struct pickle *pickle, size_t at, enum pickle_tag tag)
{
    pickle_value value = pickle->stack[at].value;
    bool taken = tag_of(value) == (tag == TAG_DICT ? TAG_RECORD : TAG_LIST_RECORD);
    if (pickle_kind(value) != tags[tag].kind && !taken)
        return pickle_fail(pickle, pickle->op_offset, "%s stores into %s", pickle->op_name,
                           pickle_kind_name(value));
    if (tag_of(value) != tag || pickle->nodes[payload_of(value)].sealed)
        return pickle_fail(pickle, pickle->op_offset,
                           "%s changes %s that is already part of another: the data has a cycle",
                           pickle->op_name, pickle_kind_name(value));
    return true;
}

/* Notes in the container `index` that it now keeps `value`. */
static bool deepen(struct pickle *pickle, size_t index, pickle_value value)
{
    const struct pickle_node *child = node_of(pickle, value);
    struct pickle_node *node = &pickle->nodes[index];
    if (child && child->depth >= node->depth)
        node->depth = (uint8_t)(child->depth + 1);
    else if (node->depth < 2)
        node->depth = 2;
    return node->depth <= PICKLE_DEPTH_MAX ||
           pickle_fail(pickle, pickle->op_offset, "%s nests lists and dicts more than %d deep",
                       pickle->op_name, PICKLE_DEPTH_MAX);
}

static bool list_store(struct pickle *pickle, size_t index, pickle_value item)
{
    pickle_value value = pickle_seal(pickle, item, true);
    if (pickle->error[0])
        return false;
    struct pickle_node *node = &pickle->nodes[index];
    enum pickle_tag tag = tag_of(value);
    if (tags[tag].kind != PICKLE_INT && tag != TAG_LIST && tag != TAG_PLAIN_LIST &&
        tag != TAG_DICT && tag != TAG_RECORD && tag != TAG_LIST_RECORD) {
        node->dropped++;
        return true;
    }
    const pickle_value *last = node->count ? (pickle_value *)node->items + node->count - 1 : NULL;
    if (tag == TAG_RECORD && last && value.bits == last->bits + (node->run + 1) * next_number) {
        node->run++; /* the events of a trace: there may be hundreds of millions */
        return deepen(pickle, index, value);
    }
    if (node->run && !list_unroll(pickle, node))
        return false;
    if (!pickle_grow(pickle, &node->items, &node->capacity, node->count + 1, sizeof(pickle_value)))
        return false;
    ((pickle_value *)node->items)[node->count++] = value;
    return deepen(pickle, index, value);
}

static bool dict_store(struct pickle *pickle, size_t index, const struct pickle_place *key,
                       const struct pickle_place *item)
{
    enum pickle_kind kind = pickle_kind(key->value);
    if (kind == PICKLE_LIST || kind == PICKLE_LIST_RECORD || kind == PICKLE_DICT ||
        kind == PICKLE_RECORD)
        return pickle_fail(pickle, pickle->op_offset, "%s uses %s as a key", pickle->op_name,
                           pickle_kind_name(key->value));
    pickle_value value = pickle_seal(pickle, item->value, false);
    if (kind != PICKLE_WORD)
        return true;

    struct pickle_node *node = &pickle->nodes[index];
    struct pickle_place *pairs = node->items;
    size_t at = 0;
    while (at < node->count && pairs[at].word != payload_of(key->value))
        at++;
    if (at == node->count) {
        if (!pickle_grow(pickle, &node->items, &node->capacity, at + 1, sizeof *pairs))
            return false;
        pairs = node->items;
        node->count++;
    }
    pairs[at] = (struct pickle_place){
        .value = value, .offset = item->offset, .word = payload_of(key->value) & 0xff};
    return deepen(pickle, index, value);
}

/* Stores the values from `first` on into the list or dict below them, and takes them off the
 * stack. */
static bool store_items(struct pickle *pickle, size_t first, size_t container, enum pickle_tag tag)
{
    if (!target(pickle, container, tag))
        return false;
    size_t index = (size_t)payload_of(pickle->stack[container].value);
    size_t count = pickle->stack_size - first;
    if (tag == TAG_DICT && count % 2)
        return pickle_fail(pickle, pickle->op_offset, "%s finds a key without a value",
                           pickle->op_name);

    /* A container among its own items would be sealed under our hands. */
    for (size_t i = first; i < pickle->stack_size; i++)
        if (pickle->stack[i].value.bits == pickle->stack[container].value.bits)
            return pickle_fail(pickle, pickle->op_offset,
                               "%s stores %s into itself: the data has a cycle", pickle->op_name,
                               pickle_kind_name(pickle->stack[i].value));

    for (size_t i = first; i < pickle->stack_size; i += tag == TAG_DICT ? 2 : 1) {
        const struct pickle_place *item = &pickle->stack[i];
        if (tag == TAG_DICT ? !dict_store(pickle, index, item, item + 1)
                            : !list_store(pickle, index, item->value))
            return false;
    }
    pickle->stack_size = first;
    return true;
}

bool pickle_store_marked(struct pickle *pickle, enum pickle_tag tag)
{
    size_t first = 0;
    if (!pickle_pop_mark(pickle, &first))
        return false;
    size_t count = pickle->stack_size - first;
    return pickle_has(pickle, count + 1) && store_items(pickle, first, first - 1, tag);
}

bool pickle_store_some(struct pickle *pickle, size_t count, enum pickle_tag tag)
{
    return pickle_has(pickle, count + 1) &&
           store_items(pickle, pickle->stack_size - count, pickle->stack_size - count - 1, tag);
}

bool pickle_push_empty(struct pickle *pickle, enum pickle_tag tag)
{
    pickle_value value;
    return node_create(pickle, tag, &value) && pickle_push(pickle, value);
}

/* LIST and DICT: a new container takes what lies above the mark. */
bool pickle_collect(struct pickle *pickle, enum pickle_tag tag)
{
    size_t first = 0;
    pickle_value value;
    if (!pickle_pop_mark(pickle, &first) || !node_create(pickle, tag, &value) ||
        !pickle_push(pickle, value))
        return false;
    struct pickle_place made = pickle->stack[pickle->stack_size - 1];
    memmove(pickle->stack + first + 1, pickle->stack + first,
            (pickle->stack_size - 1 - first) * sizeof made);
    pickle->stack[first] = made;
    return store_items(pickle, first + 1, first, tag);
}

/* A tuple of two integers is kept, which is what a pool id is; no other tuple is. */
bool pickle_make_tuple(struct pickle *pickle, size_t first)
{
    pickle_value made = pickle_make(TAG_TUPLE, 0);
    size_t count = pickle->stack_size - first;
    for (size_t i = first; i < pickle->stack_size; i++)
        pickle_seal(pickle, pickle->stack[i].value, false);

    uint64_t offset = count ? pickle->stack[first].offset : pickle->op_offset;
    if (count == 2) {
        const struct pickle_place *parts = &pickle->stack[first];
        uint64_t pair[2];
        int64_t sign;
        const char *bad[2];
        bool negative = false;
        for (size_t i = 0; i < 2; i++) {
            bad[i] = pickle_get_unsigned(pickle, parts[i].value, &pair[i]);
            if (bad[i] && !pickle_get_signed(pickle, parts[i].value, &sign)) {
                negative = true;
                bad[i] = NULL;
            }
        }
        if (bad[0] || bad[1])
            made = pickle_make(TAG_TUPLE, 0);
        else if (negative)
            made = pickle_make(TAG_NEGATIVE_PAIR, 0);
        else if (pair[0] <= 0xfffffff && pair[1] <= 0xfffffff)
            made = pickle_make(TAG_PAIR, pair[0] << 28 | pair[1]);
        else if (!make_integer(pickle, TAG_WIDE_PAIR, pair[0], pair[1], &made))
            return false;
    }
    pickle->stack_size = first;
    return push_at(pickle, made, offset);
}

void pickle_finish(struct pickle *pickle)
{
    for (size_t i = 0; i < pickle->node_size; i++)
        free(pickle->nodes[i].items);
    free(pickle->nodes);
    free(pickle->integers);
    free(pickle->texts.bytes);
    free(pickle->texts.starts);
    free(pickle->texts.slots);
    free(pickle->memo);
    free(pickle->marks);
    free(pickle->stack);
    *pickle = (struct pickle){.dict_free = NO_NODE, .list_free = NO_NODE};
}
