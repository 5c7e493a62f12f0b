/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the grouping of blocks: by tag, call site, module, stream, pool or thread.
 *
 * A key is a number within the snapshot, so grouping compares no texts. Labels do not depend on the
 * snapshot, so files are compared by label. */
#include "analysis/analysis.h"

#include "analysis/category.h"

#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- tags --- */

static const struct snapshot *sorting; /* qsort() passes no context */

static size_t top_length(const char *text)
{
    return strcspn(text, "/");
}

/* Compares the parts before the first "/", so that texts with the same part become neighbours. */
static int compare_tops(const char *a, const char *b)
{
    size_t x = top_length(a), y = top_length(b);
    int order = memcmp(a, b, x < y ? x : y);
    return order ? order : (x > y) - (x < y);
}

static int compare_texts(const void *left, const void *right)
{
    const char *a = snapshot_text(sorting, *(const uint32_t *)left),
               *b = snapshot_text(sorting, *(const uint32_t *)right);
    int order = compare_tops(a, b);
    return order ? order : strcmp(a, b);
}

static bool find_tops(struct analysis *analysis)
{
    const struct snapshot *snapshot = analysis->snapshot;
    uint32_t *used = malloc((snapshot->text_count + 1) * sizeof *used);
    analysis->tops = calloc(snapshot->text_count + 1, sizeof *analysis->tops);
    bool made = used && analysis->tops;
    size_t count = 0;
    for (size_t i = 0; made && i < analysis->block_count; i++) {
        uint32_t tag = analysis->blocks[i].tag;
        if (!analysis->tops[tag] && tag) {
            analysis->tops[tag] = tag;
            used[count++] = tag;
        }
    }
    sorting = snapshot;
    if (count)
        qsort(used, count, sizeof *used, compare_texts);
    for (size_t i = 1; i < count; i++)
        if (compare_tops(snapshot_text(snapshot, used[i - 1]), snapshot_text(snapshot, used[i])) ==
            0)
            analysis->tops[used[i]] = analysis->tops[used[i - 1]];
    free(used);
    return made;
}

bool analysis_group_keys(struct analysis *analysis)
{
    return analysis_fold(analysis, &(struct analysis_folding){.depth = 1}) &&
           analysis_modules_make(analysis) && find_tops(analysis) &&
           categories_make(analysis, NULL, 0);
}

/* --- groups --- */

uint32_t analysis_key(const struct analysis *analysis, enum analysis_by by,
                      const struct analysis_block *block)
{
    switch (by) {
    case ANALYSIS_BY_TAG:
        return block->tag;
    case ANALYSIS_BY_TOP:
        return analysis->tops[block->tag];
    case ANALYSIS_BY_CATEGORY:
        return analysis->categories[block - analysis->blocks];
    case ANALYSIS_BY_SITE: {
        bool before = !block->stack && !block->begin && analysis->has_trace;
        return before ? ANALYSIS_SITE_BEFORE : analysis->sites[block->stack];
    }
    case ANALYSIS_BY_MODULE:
        return analysis->modules[block->stack];
    case ANALYSIS_BY_STREAM:
        return block->stream;
    case ANALYSIS_BY_POOL:
        return block->pool;
    case ANALYSIS_BY_THREAD:
        return block->thread;
    case ANALYSIS_BY_COUNT:
        break;
    }
    return 0;
}

static int compare_groups(const void *left, const void *right)
{
    const struct analysis_group *a = left, *b = right;
    return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes)
                                : (a->key > b->key) - (a->key < b->key);
}

/* Groups under construction. */
struct draft {
    struct table places; /* key to index in the list */
    struct analysis_group *groups;
    size_t count, capacity;
};

/* The group of a key; NULL when memory is short. */
static struct analysis_group *group_of(struct draft *draft, uint32_t key)
{
    const uint32_t *place = table_add(&draft->places, key, 0, (uint32_t)draft->count);
    if (!place)
        return NULL;
    if (*place < draft->count)
        return &draft->groups[*place];
    if (draft->count == draft->capacity) {
        size_t capacity = draft->capacity ? 2 * draft->capacity : 16;
        struct analysis_group *grown = realloc(draft->groups, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        draft->groups = grown;
        draft->capacity = capacity;
    }
    struct analysis_group *group = &draft->groups[draft->count++];
    *group = (struct analysis_group){.key = key};
    return group;
}

struct analysis_group *analysis_groups(const struct analysis *analysis, enum analysis_by by,
                                       uint32_t moment, size_t *count)
{
    struct draft draft = {.groups = malloc(16 * sizeof *draft.groups), .capacity = 16};
    bool made = draft.groups != NULL;
    for (size_t i = 0; made && i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        if (!analysis_lives(block, moment))
            continue;
        struct analysis_group *group = group_of(&draft, analysis_key(analysis, by, block));
        made = group != NULL;
        if (group) {
            group->bytes += block->size;
            group->blocks++;
        }
    }
    table_finish(&draft.places);
    *count = made ? draft.count : 0;
    if (made && draft.count)
        qsort(draft.groups, draft.count, sizeof *draft.groups, compare_groups);
    if (made)
        return draft.groups;
    free(draft.groups);
    return NULL;
}

static const char *thread_name(const struct snapshot *snapshot, uint32_t number)
{
    for (size_t i = 0; i < snapshot->tarn.thread_count; i++)
        if (snapshot->tarn.threads[i].number == number)
            return snapshot_text(snapshot, snapshot->tarn.threads[i].name);
    return "";
}

/* Cuts a label between two characters of UTF-8. */
static void cut(char *label, size_t size, int wanted)
{
    if (wanted < 0 || (size_t)wanted < size)
        return;
    size_t end = size - 1;
    while (end > 0 && ((unsigned char)label[end - 1] & 0xc0) == 0x80)
        end--;
    size_t length = size - 1 - end;
    bool whole = end > 0 && (unsigned char)label[end - 1] < 0x80;
    if (!whole && end > 0) {
        unsigned char lead = (unsigned char)label[end - 1];
        size_t need = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        end = length == need ? size - 1 : end - 1;
        label[end] = 0;
    }
}

const char *analysis_label(const struct analysis *analysis, enum analysis_by by, uint32_t key,
                           char *label, size_t size)
{
    const struct snapshot *snapshot = analysis->snapshot;
    const char *text = snapshot_text(snapshot, key);
    int wanted = 0;
    switch (by) {
    case ANALYSIS_BY_TAG:
        wanted = snprintf(label, size, "%s", key ? text : "no tag");
        break;
    case ANALYSIS_BY_TOP:
        wanted = key ? snprintf(label, size, "%.*s", (int)top_length(text), text)
                     : snprintf(label, size, "no tag");
        break;
    case ANALYSIS_BY_CATEGORY:
        wanted = snprintf(label, size, "%s", category_name((enum category)key));
        break;
    case ANALYSIS_BY_SITE:
        wanted = analysis_site_label(analysis, key, label, size);
        break;
    case ANALYSIS_BY_MODULE:
        wanted = analysis_module_label(analysis, key, label, size);
        break;
    case ANALYSIS_BY_STREAM:
        wanted = snapshot->streams[key]
                     ? snprintf(label, size, "stream 0x%" PRIx64, snapshot->streams[key])
                     : snprintf(label, size, "default stream");
        break;
    case ANALYSIS_BY_POOL:
        wanted = key ? snprintf(label, size, "pool (%" PRIu64 ", %" PRIu64 ")",
                                snapshot->pools[key][0], snapshot->pools[key][1])
                     : snprintf(label, size, "default pool");
        break;
    case ANALYSIS_BY_THREAD: {
        const char *name = thread_name(snapshot, key);
        wanted = key ? snprintf(label, size, "thread %" PRIu32 "%s%s", key, *name ? " " : "", name)
                     : snprintf(label, size, "unknown thread");
        break;
    }
    case ANALYSIS_BY_COUNT:
        snprintf(label, size, "?");
        break;
    }
    cut(label, size, wanted);
    return label;
}
