/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns a list of launched graphs. Programs launch few different graphs, so it is searched from its
 * start. */
#include "driver/launched.h"
#include "base/pages.h"

struct launched {
    struct launched *next;
    void *graph, *exec;
};

static struct object_pool entries = OBJECT_POOL(struct launched);

/* The link to a graph's entry, or to the end; with `graph` NULL, to the first entry. */
static struct launched **place_locked(struct launched_list *list, const void *graph)
{
    struct launched **at = &list->first;
    while (*at && graph && (*at)->graph != graph)
        at = &(*at)->next;
    return at;
}

void *launched_find(struct launched_list *list, const void *graph)
{
    mutex_lock(&list->lock);
    const struct launched *entry = *place_locked(list, graph);
    void *exec = entry ? entry->exec : NULL;
    mutex_unlock(&list->lock);
    return exec;
}

void *launched_enter(struct launched_list *list, void *graph, void *exec)
{
    struct launched *fresh = object_alloc(&entries);
    if (!fresh)
        return NULL;
    mutex_lock(&list->lock);
    struct launched *known = *place_locked(list, graph);
    if (known) {
        exec = known->exec;
    } else {
        *fresh = (struct launched){list->first, graph, exec};
        list->first = fresh;
    }
    mutex_unlock(&list->lock);
    if (known)
        object_free(&entries, fresh);
    return exec;
}

void *launched_forget(struct launched_list *list, const void *graph)
{
    mutex_lock(&list->lock);
    struct launched **at = place_locked(list, graph), *gone = *at;
    if (gone)
        *at = gone->next;
    mutex_unlock(&list->lock);
    void *exec = gone ? gone->exec : NULL;
    object_free(&entries, gone);
    return exec;
}
