/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ends of graphs whose captures have workspaces. The driver reports an end in a thread of its
 * own, where nothing may be called, so the next call that looks here frees the workspaces. Owns the
 * inbox of these ends. */
#include "base/inbox.h"
#include "base/pages.h"
#include "base/status.h"
#include "handle/handle.h"

/* A graph whose capture has workspaces. */
struct graph_end {
    struct inbox_item ended;
    uint64_t capture;
};

static struct object_pool graph_ends = OBJECT_POOL(struct graph_end);
static struct inbox ended_graphs;

/* Runs in a thread of the driver, so it makes no calls. */
static void graph_ended(void *argument)
{
    struct graph_end *end = argument;
    inbox_add(&ended_graphs, &end->ended);
}

static bool list_has(const struct workspace *at, uint64_t capture)
{
    while (at && at->capture != capture)
        at = at->next;
    return at;
}

static bool shelf_has(struct shelf *shelf, uint64_t capture)
{
    mutex_lock(&shelf->lock);
    bool has = list_has(shelf->orphans, capture);
    for (struct handle *handle = shelf->all; handle && !has; handle = handle->all) {
        mutex_lock(&handle->lock);
        has = list_has(handle->workspaces, capture);
        mutex_unlock(&handle->lock);
    }
    mutex_unlock(&shelf->lock);
    return has;
}

static bool has_workspaces(uint64_t capture)
{
    bool has = false;
    for (int number = 1; number <= entry_count() && !has; number++)
        for (int device = 0; device < device_count() && !has; device++) {
            struct shelf *shelf = shelf_known(entry_at(number), device);
            has = shelf && shelf_has(shelf, capture);
        }
    return has;
}

void workspaces_of_graph(uint64_t capture, int device, driver_graph graph)
{
    struct error_before before;
    if (!workspaces_any_captured() || !has_workspaces(capture))
        return;
    error_attempt_begin(&before);
    struct graph_end *end = object_alloc(&graph_ends);
    if (end)
        *end = (struct graph_end){.capture = capture};
    if (end && device_note(device_at(device), driver->graph_hold(device, graph, graph_ended, end)))
        object_free(&graph_ends, end);
    error_attempt_end(&before, TARN_OK);
}

bool workspaces_collect(void)
{
    struct inbox_item *item = inbox_take(&ended_graphs);
    bool any = item;
    while (item) {
        struct graph_end *end = INBOX_ENTRY(item, struct graph_end, ended);
        item = item->next;
        workspaces_graph_over(end->capture);
        object_free(&graph_ends, end);
    }
    return any;
}
