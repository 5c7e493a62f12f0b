/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the texts of a pickle: every distinct one once, in one run of bytes, found by a hash table
 * of numbers.
 *
 * Keeps: the words are the first texts, so a text whose number is below their count is a word;
 * every array is charged to the machine's limit. Texts come from files that nobody vouches for, so
 * the hash is seeded with the machine's own address. */
#include "input/pickle/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(const struct pickle *pickle, const char *text, size_t length)
{
    uint64_t hash = (uint64_t)(uintptr_t)pickle ^ length;
    for (size_t at = 0; at < length; at += 8) {
        uint64_t part = 0;
        memcpy(&part, text + at, length - at < 8 ? length - at : 8);
        hash = (hash ^ part) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return (hash * UINT64_C(0xbf58476d1ce4e5b9)) >> 20;
}

static size_t length_of(const struct pickle_texts *texts, size_t number)
{
    return texts->starts[number + 1] - texts->starts[number] - 1;
}

/* The slot of a text, or the empty one where it belongs. */
static uint32_t *slot_of(const struct pickle *pickle, const char *text, size_t length)
{
    const struct pickle_texts *texts = &pickle->texts;
    size_t mask = texts->slot_capacity - 1, at = (size_t)hash_of(pickle, text, length) & mask;
    for (; texts->slots[at]; at = (at + 1) & mask) {
        size_t number = texts->slots[at] - 1;
        if (length_of(texts, number) == length &&
            !memcmp(texts->bytes + texts->starts[number], text, length))
            break;
    }
    return &texts->slots[at];
}

static bool grow_slots(struct pickle *pickle)
{
    struct pickle_texts *texts = &pickle->texts;
    void *slots = NULL;
    size_t capacity = 0, wanted = texts->slot_capacity ? texts->slot_capacity * 2 : 256;
    if (!pickle_grow(pickle, &slots, &capacity, wanted, sizeof *texts->slots))
        return false;
    pickle->allocated -= (uint64_t)texts->slot_capacity * sizeof *texts->slots;
    free(texts->slots);
    texts->slots = memset(slots, 0, wanted * sizeof *texts->slots);
    texts->slot_capacity = wanted;
    for (size_t i = 0; i < texts->count; i++)
        *slot_of(pickle, texts->bytes + texts->starts[i], length_of(texts, i)) = (uint32_t)(i + 1);
    return true;
}

bool pickle_text_add(struct pickle *pickle, const char *text, size_t length, uint32_t *number)
{
    struct pickle_texts *texts = &pickle->texts;
    uint32_t *slot = slot_of(pickle, text, length);
    if (*slot) {
        *number = *slot - 1;
        return true;
    }
    if (texts->count == UINT32_MAX - 1)
        return pickle_fail(pickle, pickle->op_offset, "more than 2^32 different texts");
    if (texts->count >= texts->slot_capacity / 2) {
        if (!grow_slots(pickle))
            return false;
        slot = slot_of(pickle, text, length);
    }
    void *bytes = texts->bytes, *starts = texts->starts;
    bool grown = pickle_grow(pickle, &bytes, &texts->byte_capacity, texts->size + length + 1, 1);
    texts->bytes = bytes;
    grown = grown && pickle_grow(pickle, &starts, &texts->start_capacity, texts->count + 2,
                                 sizeof *texts->starts);
    texts->starts = starts;
    if (!grown)
        return false;
    memcpy(texts->bytes + texts->size, text, length);
    texts->bytes[texts->size + length] = 0;
    texts->starts[texts->count] = texts->size;
    texts->size += length + 1;
    texts->starts[texts->count + 1] = texts->size;
    *number = (uint32_t)texts->count;
    *slot = (uint32_t)++texts->count;
    return true;
}

bool pickle_texts_init(struct pickle *pickle)
{
    uint32_t number;
    if (!grow_slots(pickle))
        return false;
    for (size_t i = 0; i < pickle->word_count; i++)
        if (!pickle_text_add(pickle, pickle->words[i], strlen(pickle->words[i]), &number))
            return false;
    return true;
}
