/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what a snapshot tells besides memory: the annotations of a program ("external_annotations")
 * and the settings of its allocator ("allocator_settings"). Both are shown, and nothing is computed
 * from them: what is not as expected is passed over. */
#include "input/snapshot_reader.h"

static bool read_annotation(struct reader *reader, pickle_value dict,
                            struct snapshot_annotation *annotation)
{
    struct fields fields;
    uint64_t device;
    if (pickle_kind(dict) != PICKLE_DICT)
        return false;
    reader_collect(reader, dict, &fields);
    const struct pickle_place *stage = field(&fields, KEY_STAGE),
                              *time = field(&fields, KEY_TIME_US),
                              *number = field(&fields, KEY_DEVICE);
    *annotation = (struct snapshot_annotation){.name = reader_text(&fields, KEY_NAME)};
    if (!stage || pickle_kind(stage->value) != PICKLE_WORD || !time ||
        pickle_get_signed(&reader->pickle, time->value, &annotation->time_us))
        return false;
    if (number &&
        (pickle_get_unsigned(&reader->pickle, number->value, &device) || device >= DEVICE_MAX))
        return false;
    annotation->device = number ? (int)device : 0;
    annotation->ends = pickle_number(stage->value) == WORD_END;
    return annotation->ends || pickle_number(stage->value) == WORD_START;
}

bool reader_annotations(struct reader *reader, const struct path *top,
                        const struct pickle_place *entry)
{
    struct snapshot *snapshot = reader->snapshot;
    size_t count = 0, capacity = 0;
    uint64_t dropped;
    if (!entry || pickle_kind(entry->value) != PICKLE_LIST)
        return true;
    const pickle_value *items = pickle_list(&reader->pickle, entry->value, &count, &dropped);
    void *annotations = NULL;
    if (!count)
        return true;
    if (!reader_step(reader, top, count) ||
        !reader_grow(reader, &annotations, &capacity, count, sizeof *snapshot->annotations))
        return false;
    snapshot->annotations = annotations;
    for (size_t i = 0; i < count; i++)
        if (read_annotation(reader, items[i], &snapshot->annotations[snapshot->annotation_count]))
            snapshot->annotation_count++;
    return true;
}

void reader_settings(struct reader *reader, const struct pickle_place *entry)
{
    struct fields fields;
    if (!entry || pickle_kind(entry->value) != PICKLE_DICT)
        return;
    reader_collect(reader, entry->value, &fields);
    const struct pickle_place *expandable = field(&fields, KEY_EXPANDABLE_SEGMENTS);
    struct snapshot_settings *settings = &reader->snapshot->settings;
    settings->there = true;
    settings->conf = reader_text(&fields, field(&fields, KEY_CUDA_CONF) ? KEY_CUDA_CONF : KEY_CONF);
    settings->expandable = expandable && pickle_kind(expandable->value) == PICKLE_BOOL &&
                           pickle_number(expandable->value);
}

const char *snapshot_mark_name(uint8_t kind)
{
    return kind < SNAPSHOT_MARK_OTHER ? reader_words[WORD_MARK_RECORD_STREAM + kind] : "other";
}
