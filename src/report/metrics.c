/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Prints surveys in the Prometheus text format: that of this process, or those of all of a machine.
 * Owns nothing.
 *
 * Metrics come in families: the lines of one, for every process, device or pool, stand together
 * below its help and type. A family is a row of a table that says where the value lies in a record
 * of the survey; each list of records has one table, and one function that prints the labels of a
 * record. All families are counters and gauges. Values are whole numbers, except for ratios.
 *
 * The format is version 0.0.4, which a Prometheus server, node_exporter's textfile collector and
 * OpenTelemetry's receiver all read. In it a counter's family has the name of its samples, with
 * "_total" (prometheus.io/docs/instrumenting/exposition_formats/#text-based-format). */
#include "report/metrics.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/utf8.h"
#include "device/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tarn/metrics.h>
#include <tarn/tarn.h>

static void say_text(struct sink *sink, const char *text)
{
    sink_write(sink, text, strlen(text));
}

void metrics_say_label(struct sink *sink, const char *name, const char *text)
{
    say_text(sink, name);
    say_text(sink, "=\"");
    while (*text) {
        unsigned length = utf8_length((const unsigned char *)text);
        if (*text == '\n' || *text == '"' || *text == '\\')
            sink_byte(sink, '\\');
        if (length > 1)
            sink_write(sink, text, length);
        else
            sink_byte(sink, !length ? '?' : *text == '\n' ? 'n' : (unsigned char)*text);
        text += length ? length : 1;
    }
    say_text(sink, "\"");
}

/* Families ------------------------------------------------------------------------------------- */

/* A value in a record. The parts of a tarn_stat, and those by class, are told apart by `kind`. */
enum value_kind {
    VALUE,      /* a number that is never negative */
    KNOWN,      /* the same; no line where it is SURVEY_UNKNOWN */
    FLAG,       /* bits of a 32-bit number: `part` says which */
    STAT,       /* a tarn_stat: `part` is the offset of what is wanted of it */
    STAT_CLASS, /* three by class: lines for small and large, with the label "blocks" */
    RATIO       /* 1 - the number / the number `part` bytes behind it; 0 if the latter is 0 */
};

struct family {
    const char *name; /* of a counter: with "_total" */
    bool counts;      /* a counter; else a gauge */
    const char *help;
    enum value_kind kind;
    size_t offset, part; /* of the value in its record */
};

#define DEVICE(member) offsetof(struct survey_device, member)
#define OF_STAT(member) offsetof(tarn_stat, member)
#define ALL_OF(member) offsetof(struct survey_device, stats.member)

static const struct family device_families[] = {
    {"tarn_device_memory_bytes", false, "Memory of the device.", VALUE, DEVICE(total), 0},
    {"tarn_device_free_bytes", false, "Memory that the driver has free, for any process.", KNOWN,
     DEVICE(free), 0},
    {"tarn_limit_bytes", false, "Most that may be reserved.", KNOWN, DEVICE(limit), 0},
    {"tarn_reserved_bytes", false, "Memory obtained from the driver.", STAT_CLASS,
     ALL_OF(reserved_bytes), OF_STAT(current)},
    {"tarn_reserved_peak_bytes", false, "Most reserved since the peaks were reset.", STAT,
     ALL_OF(reserved_bytes), OF_STAT(peak)},
    {"tarn_allocated_bytes", false, "Live blocks, as rounded.", STAT_CLASS, ALL_OF(allocated_bytes),
     OF_STAT(current)},
    {"tarn_allocated_peak_bytes", false, "Most allocated since the peaks were reset.", STAT,
     ALL_OF(allocated_bytes), OF_STAT(peak)},
    {"tarn_requested_bytes", false, "Live blocks, as asked for.", STAT_CLASS,
     ALL_OF(requested_bytes), OF_STAT(current)},
    {"tarn_requested_peak_bytes", false, "Most requested since the peaks were reset.", STAT,
     ALL_OF(requested_bytes), OF_STAT(peak)},
    {"tarn_active_bytes", false, "Live blocks, and freed ones that work still uses.", STAT_CLASS,
     ALL_OF(active_bytes), OF_STAT(current)},
    {"tarn_active_peak_bytes", false, "Most active since the peaks were reset.", STAT,
     ALL_OF(active_bytes), OF_STAT(peak)},
    {"tarn_inactive_split_bytes", false, "Free memory beside other memory.", STAT_CLASS,
     ALL_OF(inactive_split_bytes), OF_STAT(current)},
    {"tarn_free_bytes", false, "Reserved and mapped memory that no block has.", VALUE,
     DEVICE(spans), 0},
    {"tarn_largest_free_bytes", false, "Longest piece of it.", VALUE, DEVICE(largest_span), 0},
    {"tarn_fragmentation_ratio", false,
     "One less the longest piece of free memory through all of it.", RATIO, DEVICE(largest_span),
     DEVICE(spans)},
    {"tarn_waiting_bytes", false, "Freed memory that work still uses.", VALUE, DEVICE(waiting), 0},
    {"tarn_cached_bytes", false, "Reserved memory that is mapped nowhere.", VALUE, DEVICE(cached),
     0},
    {"tarn_blocks", false, "Live blocks.", STAT_CLASS, ALL_OF(allocation), OF_STAT(current)},
    {"tarn_segments", false, "Physical pieces and segments obtained from the driver.", STAT_CLASS,
     ALL_OF(segment), OF_STAT(current)},
    {"tarn_allocations_total", true, "Blocks handed out.", STAT_CLASS, ALL_OF(allocation),
     OF_STAT(allocated)},
    {"tarn_frees_total", true, "Blocks freed.", STAT_CLASS, ALL_OF(allocation), OF_STAT(freed)},
    {"tarn_handed_out_bytes_total", true, "Blocks handed out, as rounded.", STAT_CLASS,
     ALL_OF(allocated_bytes), OF_STAT(allocated)},
    {"tarn_freed_bytes_total", true, "Blocks freed, as rounded.", STAT_CLASS,
     ALL_OF(allocated_bytes), OF_STAT(freed)},
    {"tarn_obtained_bytes_total", true, "Memory obtained from the driver.", STAT_CLASS,
     ALL_OF(reserved_bytes), OF_STAT(allocated)},
    {"tarn_returned_bytes_total", true, "Memory given back to the driver.", STAT_CLASS,
     ALL_OF(reserved_bytes), OF_STAT(freed)},
    {"tarn_driver_allocations_total", true, "Calls that obtained memory from the driver.", VALUE,
     ALL_OF(num_device_alloc), 0},
    {"tarn_driver_frees_total", true, "Calls that gave memory back to the driver.", VALUE,
     ALL_OF(num_device_free), 0},
    {"tarn_alloc_retries_total", true, "Searches after memory was taken back from other streams.",
     VALUE, ALL_OF(num_alloc_retries), 0},
    {"tarn_out_of_memory_total", true, "Requests that failed for lack of memory.", VALUE,
     ALL_OF(num_ooms), 0},
    {"tarn_rejections_total", true, "Requests refused before the driver was asked.", VALUE,
     ALL_OF(num_oom_rejections), 0},
    {"tarn_workspaces", false, "Workspaces of library handles.", VALUE, DEVICE(workspaces), 0},
    {"tarn_workspace_bytes", false, "Memory of workspaces, allocated from tarn.", VALUE,
     DEVICE(workspace_bytes), 0},
    {"tarn_unseen_bytes", false, "Under tarn run: memory of the process that no call names.", KNOWN,
     DEVICE(unseen), 0},
    {"tarn_device_lost", false, "Whether an error has left the device unusable.", FLAG,
     DEVICE(lost), 1},
};

#define POOL(member) offsetof(struct survey_pool, member)

static const struct family pool_families[] = {
    {"tarn_pool_reserved_bytes", false, "Memory that the pool has from the driver.", VALUE,
     POOL(reserved), 0},
    {"tarn_pool_allocated_bytes", false, "Live blocks of the pool, as rounded.", VALUE,
     POOL(allocated), 0},
    {"tarn_pool_requested_bytes", false, "Live blocks of the pool, as asked for.", VALUE,
     POOL(requested), 0},
    {"tarn_pool_active_bytes", false,
     "Live blocks of the pool, and freed ones that work still uses.", VALUE, POOL(active), 0},
    {"tarn_pool_waiting_bytes", false, "Freed blocks of the pool that work still uses.", VALUE,
     POOL(waiting), 0},
    {"tarn_pool_limit_bytes", false, "Most that the pool may reserve.", KNOWN, POOL(limit), 0},
    {"tarn_pool_suspended", false, "Whether the pool has addresses and no memory.", FLAG,
     POOL(flags), SURVEY_POOL_SUSPENDED},
    {"tarn_pool_held", false, "Whether a graph or an open capture uses the pool.", FLAG,
     POOL(flags), SURVEY_POOL_HELD},
};

#define STREAM(member) offsetof(struct survey_stream, member)

static const struct family stream_families[] = {
    {"tarn_stream_mapped_bytes", false, "Memory mapped for a stream in a pool.", VALUE,
     STREAM(mapped), 0},
    {"tarn_stream_free_bytes", false, "Of it, memory that no block has.", VALUE, STREAM(spans), 0},
    {"tarn_stream_waiting_bytes", false, "Of it, freed memory that work still uses.", VALUE,
     STREAM(waiting), 0},
};

#define HANDLES(member) offsetof(struct survey_handles, member)

#define LIBRARY(member) offsetof(struct survey_library, member)

static const struct family library_families[] = {
    {"tarn_library_held_bytes", false, "Under tarn run: memory of a device that a library holds.",
     VALUE, LIBRARY(live), 0},
    {"tarn_library_held_peak_bytes", false, "Most that the library held at one time.", VALUE,
     LIBRARY(peak), 0},
    {"tarn_library_allocations_total", true, "Allocations that the library made.", VALUE,
     LIBRARY(made), 0},
};

static const struct family handle_families[] = {
    {"tarn_handles_in_use", false, "Handles that threads or leases have.", VALUE, HANDLES(in_use),
     0},
    {"tarn_handles_available", false, "Handles that nobody has.", VALUE, HANDLES(available), 0},
    {"tarn_handles_created_total", true, "Handles made.", VALUE, HANDLES(created), 0},
    {"tarn_handles_destroyed_total", true, "Handles destroyed.", VALUE, HANDLES(destroyed), 0},
    {"tarn_handle_create_failures_total", true, "Handles that could not be made.", VALUE,
     HANDLES(failures), 0},
};

#define PINNED(member) offsetof(tarn_pinned_stats, member)

static const struct family pinned_families[] = {
    {"tarn_pinned_allocated_bytes", false, "Pinned host memory obtained from the driver.", STAT,
     PINNED(allocated_bytes), OF_STAT(current)},
    {"tarn_pinned_allocated_peak_bytes", false, "Most of it since the peaks were reset.", STAT,
     PINNED(allocated_bytes), OF_STAT(peak)},
    {"tarn_pinned_active_bytes", false,
     "Pinned blocks that are live or that work uses, as rounded.", STAT, PINNED(active_bytes),
     OF_STAT(current)},
    {"tarn_pinned_requested_bytes", false, "The same, as asked for.", STAT, PINNED(requested_bytes),
     OF_STAT(current)},
    {"tarn_pinned_pending_bytes", false, "Freed pinned blocks that work uses.", VALUE,
     PINNED(pending_bytes), 0},
    {"tarn_pinned_graph_bytes", false, "Freed pinned blocks that a graph may still use.", VALUE,
     PINNED(graph_bytes), 0},
    {"tarn_pinned_allocations_total", true, "Pinned blocks handed out.", STAT,
     PINNED(active_requests), OF_STAT(allocated)},
    {"tarn_pinned_driver_allocations_total", true, "Calls that obtained pinned memory.", VALUE,
     PINNED(num_host_alloc), 0},
    {"tarn_pinned_driver_frees_total", true, "Calls that gave pinned memory back.", VALUE,
     PINNED(num_host_free), 0},
    {"tarn_pinned_out_of_memory_total", true,
     "Requests for pinned memory that failed for lack of it.", VALUE, PINNED(num_ooms), 0},
};

static const struct family process_families[] = {
    {"tarn_metadata_bytes", false, "Host memory of tarn's own bookkeeping.", VALUE,
     offsetof(struct survey, metadata), 0},
};

/* Lines ---------------------------------------------------------------------------------------- */

/* The labels of a process, which each line begins with. */
static void label_process(struct sink *sink, const struct metrics_source *source)
{
    metrics_say_label(sink, "process", source->process.name);
    say_text(sink, ",");
    metrics_say_label(sink, "pid", source->process.number);
    if (source->process.rank >= 0)
        sink_print(sink, ",rank=\"%d\"", source->process.rank);
}

static void label_nothing(struct sink *sink, const void *record)
{
    (void)sink, (void)record;
}

static void label_device(struct sink *sink, const void *record)
{
    const struct survey_device *device = record;
    sink_print(sink, ",device=\"%d\"", device->number);
    if (device->uuid[0]) {
        say_text(sink, ",");
        metrics_say_label(sink, "UUID", device->uuid);
    }
}

static void label_pool(struct sink *sink, const void *record)
{
    const struct survey_pool *pool = record;
    sink_print(sink, ",device=\"%d\",pool=\"%" PRIu64 ",%" PRIu64 "\"", pool->device, pool->id[0],
               pool->id[1]);
}

static void label_stream(struct sink *sink, const void *record)
{
    const struct survey_stream *stream = record;
    sink_print(sink,
               ",device=\"%d\",pool=\"%" PRIu64 ",%" PRIu64 "%s\",stream=\"%" PRIu32 ".%" PRIu32
               "\"",
               stream->device, stream->pool[0], stream->pool[1],
               stream->flags & SURVEY_STREAM_UNCACHED ? " uncached" : "", stream->slot,
               stream->generation);
}

static void label_handles(struct sink *sink, const void *record)
{
    const struct survey_handles *handles = record;
    sink_print(sink, ",device=\"%d\",", handles->device);
    metrics_say_label(sink, "library", handles->name);
}

static void label_library(struct sink *sink, const void *record)
{
    const struct survey_library *library = record;
    sink_print(sink, ",device=\"%d\",", library->device);
    metrics_say_label(sink, "library", library->name);
}

/* The records of one kind, and the families that are made of each. */
struct list {
    const struct family *families;
    size_t family_count;
    void (*label)(struct sink *sink, const void *record);
    /* In a survey: where they are, where their 32-bit number is; bytes of one. */
    size_t records, count, size;
    /* Offset of a 32-bit number that is 0 in a record of which nothing is printed; SIZE_MAX:
     * none. */
    size_t used;
};

/* A record of a process's survey. */
struct place {
    const struct list *list;
    const struct metrics_source *source;
    const void *record;
};

static void say_labels(struct sink *sink, const struct place *place, const struct family *family,
                       const char *class)
{
    say_text(sink, family->name);
    say_text(sink, "{");
    label_process(sink, place->source);
    place->list->label(sink, place->record);
    if (class)
        sink_print(sink, ",blocks=\"%s\"", class);
}

static void say_line(struct sink *sink, const struct place *place, const struct family *family,
                     const char *class, int64_t value)
{
    say_labels(sink, place, family, class);
    sink_print(sink, "} %" PRId64 "\n", value > 0 || !family->counts ? value : 0);
}

static int64_t number_at(const void *record, size_t offset)
{
    int64_t number;
    memcpy(&number, (const char *)record + offset, sizeof number);
    return number;
}

static void say_ratio(struct sink *sink, const struct place *place, const struct family *family)
{
    int64_t part = number_at(place->record, family->offset),
            whole = number_at(place->record, family->part);
    uint64_t millionths =
        whole > 0 && part < whole ? (uint64_t)((1 - (double)part / (double)whole) * 1e6) : 0;
    say_labels(sink, place, family, NULL);
    sink_print(sink, "} 0.%06" PRIu64 "\n", millionths < 1000000 ? millionths : 999999);
}

static void say_record(struct sink *sink, const struct place *place, const struct family *family)
{
    static const char *const classes[] = {
        [TARN_STAT_SMALL_POOL] = "small", [TARN_STAT_LARGE_POOL] = "large"};
    const void *record = place->record;
    uint32_t bits;
    switch (family->kind) {
    case VALUE:
        say_line(sink, place, family, NULL, number_at(record, family->offset));
        break;
    case KNOWN:
        if (number_at(record, family->offset) != (int64_t)SURVEY_UNKNOWN)
            say_line(sink, place, family, NULL, number_at(record, family->offset));
        break;
    case FLAG:
        memcpy(&bits, (const char *)record + family->offset, sizeof bits);
        say_line(sink, place, family, NULL, (bits & family->part) != 0);
        break;
    case STAT:
        say_line(sink, place, family, NULL, number_at(record, family->offset + family->part));
        break;
    case STAT_CLASS:
        for (size_t class = TARN_STAT_SMALL_POOL; class <= TARN_STAT_LARGE_POOL; class ++)
            say_line(sink, place, family, classes[class],
                     number_at(record, family->offset + class * sizeof(tarn_stat) + family->part));
        break;
    case RATIO:
        say_ratio(sink, place, family);
        break;
    }
}

static uint32_t number32_at(const void *record, size_t offset)
{
    uint32_t number;
    memcpy(&number, (const char *)record + offset, sizeof number);
    return number;
}

/* How many records of a list a process has; a list without a number has one. */
static uint32_t list_count(const struct list *list, const struct metrics_source *source)
{
    return list->count == SIZE_MAX ? 1 : number32_at(source->survey, list->count);
}

void metrics_say_head(struct sink *sink, const char *name, bool counts, const char *help)
{
    sink_print(sink, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
               counts ? "counter" : "gauge");
}

static void say_family(struct sink *sink, const struct list *list, const struct family *family,
                       const struct metrics_source *sources, size_t count)
{
    metrics_say_head(sink, family->name, family->counts, family->help);
    for (size_t i = 0; i < count; i++) {
        struct place place = {.list = list, .source = &sources[i]};
        uint32_t records = list_count(list, &sources[i]);
        for (uint32_t j = 0; j < records; j++) {
            place.record = (const char *)sources[i].survey + list->records + j * list->size;
            if (list->used == SIZE_MAX || number32_at(place.record, list->used))
                say_record(sink, &place, family);
        }
    }
}

static void say_list(struct sink *sink, const struct list *list,
                     const struct metrics_source *sources, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any |= list_count(list, &sources[i]) > 0;
    for (size_t i = 0; i < list->family_count && any; i++)
        say_family(sink, list, &list->families[i], sources, count);
}

static void say_info(struct sink *sink, const struct metrics_source *sources, size_t count)
{
    metrics_say_head(sink, "tarn_build_info", false, "The version of the library and its driver.");
    for (size_t i = 0; i < count; i++) {
        say_text(sink, "tarn_build_info{");
        label_process(sink, &sources[i]);
        say_text(sink, ",");
        metrics_say_label(sink, "version", sources[i].library);
        say_text(sink, ",");
        metrics_say_label(sink, "driver", sources[i].driver);
        say_text(sink, "} 1\n");
    }
    metrics_say_head(sink, "tarn_device_info", false,
                     "The name of a device, and what it is outside the process.");
    for (size_t i = 0; i < count; i++) {
        const struct survey *survey = sources[i].survey;
        for (uint32_t j = 0; j < survey->device_count.here; j++) {
            const struct survey_device *device = &survey->devices[j];
            say_text(sink, "tarn_device_info{");
            label_process(sink, &sources[i]);
            label_device(sink, device);
            say_text(sink, ",");
            metrics_say_label(sink, "name", device->name);
            if (device->pci[0]) {
                say_text(sink, ",");
                metrics_say_label(sink, "pci_bus_id", device->pci);
            }
            say_text(sink, "} 1\n");
        }
    }
}

#define TABLE(families) families, sizeof families / sizeof *families
#define RECORDS(list, counter)                                            \
    offsetof(struct survey, list), offsetof(struct survey, counter.here), \
        sizeof *((struct survey *)0)->list

void metrics_print(struct sink *sink, const struct metrics_source *sources, size_t count)
{
    static const struct list lists[] = {
        {TABLE(process_families), label_nothing, 0, SIZE_MAX, sizeof(struct survey), SIZE_MAX},
        {TABLE(device_families), label_device, RECORDS(devices, device_count),
         offsetof(struct survey_device, used)},
        {TABLE(pool_families), label_pool, RECORDS(pools, pool_count), SIZE_MAX},
        {TABLE(stream_families), label_stream, RECORDS(streams, stream_count), SIZE_MAX},
        {TABLE(handle_families), label_handles, RECORDS(handles, handle_count), SIZE_MAX},
        {TABLE(library_families), label_library, RECORDS(libraries, library_count), SIZE_MAX},
        {TABLE(pinned_families), label_nothing, offsetof(struct survey, pinned),
         offsetof(struct survey, has_pinned), sizeof(tarn_pinned_stats), SIZE_MAX},
    };
    if (count)
        say_info(sink, sources, count);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        say_list(sink, &lists[i], sources, count);
}

void metrics_end(struct sink *sink)
{
    say_text(sink, "# EOF\n");
}

/* Of this process. */
static void print_own(struct sink *sink, const struct survey *survey)
{
    struct metrics_source source = {
        .library = tarn_version(), .driver = driver->name, .survey = survey};
    metrics_process_get(&source.process);
    metrics_print(sink, &source, 1);
    metrics_end(sink);
}

static struct sink *sink_make(void)
{
    struct sink *sink = pages_alloc(sizeof *sink);
    if (!sink)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to write metrics");
    return sink;
}

tarn_status metrics_write(const char *path, const struct survey *survey)
{
    struct sink *sink = sink_make();
    if (!sink)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = sink_to_file(sink, path, 0644); /* who collects them is another user */
    if (!status) {
        print_own(sink, survey);
        status = sink_end(sink, false);
    }
    pages_free(sink, sizeof *sink);
    return status;
}

/* Public --------------------------------------------------------------------------------------- */

/* A survey made for one call; the caller unmaps it. */
static tarn_status survey_now(struct surveyor **surveyor)
{
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    *surveyor = pages_map(sizeof **surveyor);
    if (!*surveyor)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a survey");
    survey_take(*surveyor);
    return TARN_OK;
}

tarn_status tarn_metrics_print(bool (*take)(const void *text, size_t length, void *user),
                               void *user)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct surveyor *surveyor = NULL;
    if (!take)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "take is NULL");
    tarn_status status = survey_now(&surveyor);
    if (status)
        return status;
    struct sink *sink = sink_make();
    status = sink ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (sink) {
        sink_to_function(sink, take, user);
        print_own(sink, &surveyor->survey);
        status = sink_end(sink, false);
    }
    pages_free(sink, sizeof *sink);
    pages_unmap(surveyor, sizeof *surveyor);
    return status;
}
