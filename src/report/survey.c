/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Takes surveys. Owns nothing; each part is read by the layer that it belongs to, under that
 * layer's locks. */
#include "report/survey.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "handle/handle.h"
#include "memory/pinned/pinned.h"
#include "memory/watch/occupancy.h"
#include "memory/watch/statistics.h"
#include "report/graph/graph.h"

#include <string.h>

static uint64_t or_unknown(size_t limit)
{
    return limit == SIZE_MAX ? SURVEY_UNKNOWN : limit;
}

static uint64_t positive(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

static void take_pools(struct surveyor *surveyor, struct survey_device *device, struct arena *arena)
{
    struct survey *survey = &surveyor->survey;
    size_t there = occupancy_pools(arena, surveyor->pools, SURVEY_POOLS);
    survey->pool_count.there += (uint32_t)there;
    for (size_t i = 0; i < there && i < SURVEY_POOLS; i++) {
        const struct pool_occupancy *view = &surveyor->pools[i];
        device->cached += view->unmapped;
        if (survey->pool_count.here == SURVEY_POOLS)
            continue;
        survey->pools[survey->pool_count.here++] = (struct survey_pool){
            .device = device->number,
            .flags = (view->plain ? SURVEY_POOL_PLAIN : 0u) |
                     (view->suspended ? SURVEY_POOL_SUSPENDED : 0u) |
                     (view->held ? SURVEY_POOL_HELD : 0u) |
                     (view->left_behind ? SURVEY_POOL_LEFT_BEHIND : 0u) |
                     (view->of_graphs ? SURVEY_POOL_OF_GRAPHS : 0u),
            .id = {view->id[0], view->id[1]},
            .reserved = view->reserved,
            .cached = view->unmapped,
            .limit = or_unknown(view->limit),
            .requested = positive(view->requested),
            .allocated = positive(view->allocated),
            .active = positive(view->active),
            .waiting = positive(view->active - view->allocated),
        };
    }
}

static void take_streams(struct surveyor *surveyor, struct survey_device *device,
                         struct arena *arena)
{
    struct survey *survey = &surveyor->survey;
    size_t there = occupancy_heaps(arena, surveyor->heaps, SURVEY_STREAMS);
    survey->stream_count.there += (uint32_t)there;
    for (size_t i = 0; i < there && i < SURVEY_STREAMS; i++) {
        const struct heap_occupancy *view = &surveyor->heaps[i];
        device->spans += view->free;
        device->waiting += view->waiting;
        if (view->largest_free > device->largest_span)
            device->largest_span = view->largest_free;
        if (survey->stream_count.here == SURVEY_STREAMS)
            continue;
        survey->streams[survey->stream_count.here++] = (struct survey_stream){
            .device = device->number,
            .slot = view->slot,
            .generation = view->incarnation,
            .flags = (view->retired ? SURVEY_STREAM_RETIRED : 0u) |
                     (view->uncached ? SURVEY_STREAM_UNCACHED : 0u),
            .pool = {view->pool[0], view->pool[1]},
            .native = view->native,
            .mapped = view->mapped,
            .spans = view->free,
            .largest_span = view->largest_free,
            .waiting = view->waiting,
        };
    }
}

static void take_memory(struct survey_device *device, struct arena *arena)
{
    size_t free_bytes = 0, total_bytes = 0;
    device->limit = or_unknown(occupancy_limit(arena));
    device->lost = device_check(arena->device) != TARN_OK;
    if (device->lost || device_note(arena->device, driver->memory_info(device->number, &free_bytes,
                                                                       &total_bytes)) != TARN_OK)
        return;
    device->free = free_bytes;
    device->total = total_bytes;
}

static void take_identity(struct surveyor *surveyor, struct survey_device *device)
{
    struct driver_identity *identity = &surveyor->identities[device->number];
    if (!surveyor->knows[device->number] && driver->identity)
        driver->identity(device->number, identity);
    surveyor->knows[device->number] = true;
    memcpy(device->uuid, identity->uuid, sizeof device->uuid);
    memcpy(device->pci, identity->pci, sizeof device->pci);
}

static void take_device(struct surveyor *surveyor, int number)
{
    struct survey *survey = &surveyor->survey;
    struct survey_device *device = &survey->devices[survey->device_count.here++];
    const struct driver_properties *properties = &device_at(number)->properties;
    struct arena *arena = arena_if_used(number);
    tarn_workspace_stats workspaces = {.size = sizeof workspaces};
    *device = (struct survey_device){
        .number = number,
        .used = arena != NULL,
        .total = properties->memory,
        .free = SURVEY_UNKNOWN,
        .limit = SURVEY_UNKNOWN,
        .unseen = SURVEY_UNKNOWN,
        .stats = {.size = sizeof device->stats, .max_split_size = -1},
    };
    memcpy(device->name, properties->name, sizeof device->name);
    take_identity(surveyor, device);
    if (!arena)
        return;
    statistics_read(arena, NULL, &device->stats);
    device->stats.size = sizeof device->stats;
    device->stats.metadata_bytes = (int64_t)pages_bytes();
    if (tarn_workspace_stats_get(number, &workspaces) == TARN_OK) {
        device->workspaces = workspaces.count;
        device->workspace_bytes = workspaces.bytes;
    }
    take_memory(device, arena);
    take_pools(surveyor, device, arena);
    take_streams(surveyor, device, arena);
}

static void take_handles(struct survey *survey, int number)
{
    const struct entry *entry = entry_at(number);
    for (int device = 0; device < device_count(); device++) {
        tarn_handle_stats stats = {.size = sizeof stats};
        if (!shelf_known(entry, device) || tarn_handle_stats_get(number, device, &stats) ||
            !stats.created)
            continue;
        survey->handle_count.there++;
        if (survey->handle_count.here == SURVEY_HANDLES)
            continue;
        struct survey_handles *handles = &survey->handles[survey->handle_count.here++];
        *handles = (struct survey_handles){
            .device = device,
            .library = number,
            .in_use = stats.in_use,
            .available = stats.available,
            .created = stats.created,
            .destroyed = stats.destroyed,
            .peak_in_use = stats.peak_in_use,
            .failures = stats.failures,
        };
        strncpy(handles->name, entry->row->name, sizeof handles->name - 1);
    }
}

void survey_take(struct surveyor *surveyor)
{
    struct survey *survey = &surveyor->survey;
    struct error_before before;
    error_attempt_begin(&before);
    survey->number++;
    survey->taken_ns = clock_ns();
    survey->metadata = (int64_t)pages_bytes();
    survey->device_count = survey->pool_count = survey->stream_count = survey->handle_count =
        survey->library_count = (struct survey_count){0, 0};
    survey->has_pinned = pinned_view(&survey->pinned);
    survey->device_count.there = (uint32_t)device_count();
    for (int i = 0; i < device_count() && i < SURVEY_DEVICES; i++)
        take_device(surveyor, i);
    for (int i = 1; i <= entry_count(); i++)
        take_handles(survey, i);
    survey->graph_count.there = (uint32_t)remembered_sum_up(survey->graphs, SURVEY_GRAPHS);
    survey->graph_count.here =
        survey->graph_count.there < SURVEY_GRAPHS ? survey->graph_count.there : SURVEY_GRAPHS;
    error_attempt_end(&before, TARN_OK);
}
