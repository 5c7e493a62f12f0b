/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The JSON of `tarn top`. Keys are documented in docs/man/top.h2m, and are added to, not
 * changed. */
#include "json_print.h"
#include "top/fleet.h"
#include "top/top.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)(value <= INT64_MAX ? value : INT64_MAX));
}

static json_t *known(uint64_t value)
{
    return value == SURVEY_UNKNOWN ? json_null() : number(value);
}

/* Adds a list's number of elements that the survey had no room for. */
static int left_out(struct survey_count count)
{
    return (int)(count.there - count.here);
}

static json_t *json_stat(const tarn_stat *stat)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "current", (json_int_t)stat->current, "peak",
                     (json_int_t)stat->peak, "allocated", (json_int_t)stat->allocated, "freed",
                     (json_int_t)stat->freed);
}

/* The names of torch.cuda.memory_stats(), as in stats.h. */
static json_t *json_stats(const tarn_stats *stats)
{
    json_t *object = json_object();
#define X(name)                                                                           \
    json_object_set_new(object, #name,                                                    \
                        json_pack("{s:o, s:o, s:o}", "all",                               \
                                  json_stat(&stats->name[TARN_STAT_ALL]), "small",        \
                                  json_stat(&stats->name[TARN_STAT_SMALL_POOL]), "large", \
                                  json_stat(&stats->name[TARN_STAT_LARGE_POOL])));
    TARN_STATS_CLASS_LIST(X)
#undef X
#define X(name) json_object_set_new(object, #name, json_stat(&stats->name));
    TARN_STATS_SINGLE_LIST(X)
#undef X
#define X(name) json_object_set_new(object, #name, json_integer((json_int_t)stats->name));
    TARN_STATS_SCALAR_LIST(X)
#undef X
    return object;
}

static json_t *json_rates(const struct top_rates *rates)
{
    if (!rates->known)
        return json_null();
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "allocations", rates->allocations, "frees",
                     rates->frees, "bytes", rates->bytes, "driver_calls", rates->driver_calls,
                     "driver_bytes", rates->driver_bytes);
}

static json_t *json_device(const struct top_reading *before, const struct top_reading *now,
                           const struct survey_device *device)
{
    struct top_rates rates = top_rates_of(before, now, device);
    return json_pack("{s:i, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, s:o}",
                     "device", (int)device->number, "uuid", device->uuid, "pci", device->pci,
                     "name", device->name, "used", device->used != 0, "lost", device->lost != 0,
                     "total", number(device->total), "free", known(device->free), "limit",
                     known(device->limit), "free_in_tarn", number(device->spans), "longest_free",
                     number(device->largest_span), "fragmentation", top_fragmentation(device),
                     "waiting", number(device->waiting), "cached", number(device->cached),
                     "workspaces", number(device->workspaces), "workspace_bytes",
                     number(device->workspace_bytes), "unseen", known(device->unseen), "rates",
                     json_rates(&rates), "stats", json_stats(&device->stats));
}

static json_t *json_id(const uint64_t id[2])
{
    return json_pack("[o, o]", number(id[0]), number(id[1]));
}

static json_t *json_pool(const void *record)
{
    const struct survey_pool *pool = record;
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:b}", "device",
        (int)pool->device, "id", json_id(pool->id), "reserved", number(pool->reserved), "cached",
        number(pool->cached), "limit", known(pool->limit), "requested", number(pool->requested),
        "allocated", number(pool->allocated), "active", number(pool->active), "waiting",
        number(pool->waiting), "plain", (pool->flags & SURVEY_POOL_PLAIN) != 0, "suspended",
        (pool->flags & SURVEY_POOL_SUSPENDED) != 0, "held", (pool->flags & SURVEY_POOL_HELD) != 0,
        "left_behind", (pool->flags & SURVEY_POOL_LEFT_BEHIND) != 0, "of_graphs",
        (pool->flags & SURVEY_POOL_OF_GRAPHS) != 0);
}

static json_t *json_graph(const void *record)
{
    const struct survey_graph *graph = record;
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device", (int)graph->device,
                     "graph", number(graph->number), "pool", json_id(graph->pool), "addresses",
                     number(graph->addresses), "blocks", number(graph->blocks), "bytes",
                     number(graph->bytes), "gone", number(graph->gone), "gone_bytes",
                     number(graph->gone_bytes));
}

static json_t *json_stream(const void *record)
{
    const struct survey_stream *stream = record;
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o}", "device",
                     (int)stream->device, "slot", number(stream->slot), "generation",
                     number(stream->generation), "pool", json_id(stream->pool), "native",
                     number(stream->native), "retired",
                     (stream->flags & SURVEY_STREAM_RETIRED) != 0, "uncached",
                     (stream->flags & SURVEY_STREAM_UNCACHED) != 0, "mapped",
                     number(stream->mapped), "free", number(stream->spans), "longest_free",
                     number(stream->largest_span), "waiting", number(stream->waiting));
}

static json_t *json_handles(const void *record)
{
    const struct survey_handles *handles = record;
    return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "device", (int)handles->device,
                     "library", handles->name, "in_use", number(handles->in_use), "available",
                     number(handles->available), "created", number(handles->created), "destroyed",
                     number(handles->destroyed), "peak_in_use", number(handles->peak_in_use),
                     "failures", number(handles->failures));
}

static json_t *json_library(const void *record)
{
    const struct survey_library *library = record;
    return json_pack("{s:i, s:s, s:o, s:o, s:o}", "device", (int)library->device, "library",
                     library->name, "held", number(library->live), "peak", number(library->peak),
                     "allocations", number(library->made));
}

static json_t *json_pinned(const struct survey *survey)
{
    const tarn_pinned_stats *pinned = &survey->pinned;
    if (!survey->has_pinned)
        return json_null();
    return json_pack(
        "{s:o, s:o, s:o, s:I, s:I, s:I}", "allocated_bytes", json_stat(&pinned->allocated_bytes),
        "active_bytes", json_stat(&pinned->active_bytes), "requested_bytes",
        json_stat(&pinned->requested_bytes), "pending_bytes", (json_int_t)pinned->pending_bytes,
        "graph_bytes", (json_int_t)pinned->graph_bytes, "num_ooms", (json_int_t)pinned->num_ooms);
}

/* The elements of a list that are of the device that is wanted; each record begins with its
 * number. */
static json_t *json_list(const void *records, struct survey_count count, size_t size, int device,
                         json_t *(*make)(const void *record))
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count.here; i++) {
        const char *record = (const char *)records + i * size;
        int32_t own;
        memcpy(&own, record, sizeof own);
        if (device < 0 || own == device)
            json_array_append_new(array, make(record));
    }
    return array;
}

static json_t *json_reading(const struct top_reading *before, const struct top_reading *now,
                            int device)
{
    const struct survey *survey = &now->survey;
    const struct page_head *head = &now->head;
    json_t *devices = json_array();
    for (uint32_t i = 0; i < survey->device_count.here; i++)
        if (device < 0 || survey->devices[i].number == device)
            json_array_append_new(devices, json_device(before, now, &survey->devices[i]));
    json_t *pools =
        json_list(survey->pools, survey->pool_count, sizeof *survey->pools, device, json_pool);
    json_t *streams = json_list(survey->streams, survey->stream_count, sizeof *survey->streams,
                                device, json_stream);
    json_t *handles = json_list(survey->handles, survey->handle_count, sizeof *survey->handles,
                                device, json_handles);
    json_t *libraries = json_list(survey->libraries, survey->library_count,
                                  sizeof *survey->libraries, device, json_library);
    json_t *graphs =
        json_list(survey->graphs, survey->graph_count, sizeof *survey->graphs, device, json_graph);
    return json_pack("{s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                     "s:{s:i, s:i, s:i, s:i, s:i}}",
                     "process", number(head->pid), "name", head->name, "version", head->library,
                     "driver", head->driver, "started", number(head->started), "interval_ns",
                     number(head->interval_ns), "taken_ns", number(survey->taken_ns), "metadata",
                     (json_int_t)survey->metadata, "devices", devices, "pools", pools, "streams",
                     streams, "handles", handles, "libraries", libraries, "graphs", graphs,
                     "pinned", json_pinned(survey), "left_out", "pools",
                     left_out(survey->pool_count), "streams", left_out(survey->stream_count),
                     "handles", left_out(survey->handle_count), "libraries",
                     left_out(survey->library_count), "graphs", left_out(survey->graph_count));
}

static bool write_and_free(FILE *out, json_t *json)
{
    bool done = json_print(json, out);
    json_decref(json);
    return done;
}

bool top_json_write(FILE *out, const struct top_reading *before, const struct top_reading *now,
                    int device)
{
    return write_and_free(out, json_reading(before, now, device));
}

static json_t *json_share(const struct fleet *fleet, const struct fleet_share *share)
{
    const struct fleet_device *device = &fleet->devices[share->device];
    return json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:f}", "device", (int)share->of->number,
                     "uuid", device->uuid, "pci", device->pci, "total", number(device->total),
                     "reserved", number(share->reserved), "allocated", number(share->allocated),
                     "peak", number(share->peak), "share", fleet_part(fleet, share));
}

static json_t *json_shares(const struct fleet *fleet, size_t entry)
{
    json_t *array = json_array();
    for (size_t i = 0; i < fleet->share_count; i++)
        if (fleet->shares[i].entry == entry && fleet->shares[i].of)
            json_array_append_new(array, json_share(fleet, &fleet->shares[i]));
    return array;
}

/* Each process once, where its first share is. */
bool top_json_list(FILE *out, const struct fleet *fleet)
{
    json_t *array = json_array();
    for (size_t i = 0; i < fleet->share_count; i++) {
        size_t place = fleet->shares[i].entry;
        const struct top_entry *entry = &fleet->list->entries[place];
        bool seen = false;
        for (size_t j = 0; j < i; j++)
            seen |= fleet->shares[j].entry == place;
        if (seen)
            continue;
        json_t *rank = entry->head.rank >= 0 ? json_integer(entry->head.rank) : json_null();
        json_array_append_new(
            array, json_pack("{s:o, s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "process",
                             number(entry->head.pid), "name", entry->head.name, "version",
                             entry->head.library, "driver", entry->head.driver, "devices",
                             (int)entry->devices, "reserved", number(entry->reserved), "started",
                             number(entry->head.started), "rank", rank, "shares",
                             json_shares(fleet, place)));
    }
    return write_and_free(out, array);
}
