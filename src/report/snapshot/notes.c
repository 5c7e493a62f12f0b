/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes texts of records: names of places, and notes of regions and tags. Owns nothing; the tables
 * that it reads need no lock. */
#include "report/snapshot/notes.h"

#include <string.h>
#include <tarn/memory.h>

/* Puts a word before what is written from `at` on. Returns its start; `at` if there is no room. */
static size_t put_before(char text[NOTE_BYTES], size_t at, const char *word)
{
    size_t length = strnlen(word, NOTE_BYTES), joined = text[at] ? length + 1 : length;
    if (joined > at)
        return at;
    at -= joined;
    memcpy(text + at, word, length);
    if (joined > length)
        text[at + length] = '/';
    return at;
}

void note_text(uint32_t region, uint16_t tag, char text[NOTE_BYTES])
{
    size_t at = NOTE_BYTES - 1;
    text[at] = '\0';
    if (tag)
        at = put_before(text, at, tarn_tag_text(tag));
    const struct trace_region *found;
    for (size_t before = 0; before != at && (found = intern_value(&trace_regions, region));
         region = found->parent) {
        before = at;
        at = put_before(text, at, found->name);
    }
    memmove(text, text + at, NOTE_BYTES - at);
}

const struct trace_place *place_of(uint32_t number)
{
    static const struct trace_place none;
    const struct trace_place *place = trace_place_value(number);
    return place ? place : &none;
}

const char *region_name(uint64_t number)
{
    const struct trace_region *region =
        number <= UINT32_MAX ? intern_value(&trace_regions, (uint32_t)number) : NULL;
    return region ? region->name : "";
}

const char *text_of(uint64_t number)
{
    const struct trace_text *text =
        number <= UINT32_MAX ? intern_value(&trace_texts, (uint32_t)number) : NULL;
    return text ? text->text : "";
}
