/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Prints a survey as OpenMetrics text. Owns nothing.
 *
 * Metrics come in families: the lines of one, for every device or pool, stand together below its name, type and unit. A family is a
 * row of a table that says where the value lies in a record of the survey; each list of records has one table, and one function that
 * prints the labels of a record. Only counters and gauges are used, and names that the older Prometheus text format takes too, so that
 * node_exporter's textfile collector reads the same text. Values are whole numbers, except for ratios. */
#include "report/metrics.h"
#include "base/cancel.h"
#include "base/pages.h"
#include "base/status.h"
#include "device/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tarn/metrics.h>
#include <tarn/tarn.h>

/* The value of a label: what would end it is written with a backslash. */
static void say_label(struct sink *sink, const char *name, const char *text)
{
    sink_print(sink, "%s=\"", name);
    for (; *text; text++) {
        if (*text == '\n')
            sink_print(sink, "\\n");
        else if (*text == '"' || *text == '\\')
            sink_print(sink, "\\%c", *text);
        else
            sink_print(sink, "%c", *text);
    }
    sink_print(sink, "\"");
}

/* Families -------------------------------------------------------------------------------------------------------- */

/* A value in a record. The parts of a tarn_stat, and those by class, are told apart by `kind`. */
enum value_kind {
    VALUE,      /* a number that is never negative */
    KNOWN,      /* the same; no line where it is SURVEY_UNKNOWN */
    FLAG,       /* bits of a 32-bit number: `part` says which */
    STAT,       /* a tarn_stat: `part` is the offset of what is wanted of it */
    STAT_CLASS, /* three of them by class: a line each for small and large, with the label "blocks" */
    RATIO       /* 1 - the number / the one `part` bytes from it; 0 where that is 0 */
};

struct family {
    const char *name;
    bool counts;      /* a counter; else a gauge */
    const char *unit; /* "" for none; the name ends with it */
    const char *help;
    enum value_kind kind;
    size_t offset, part; /* of the value in its record */
};

#define DEVICE(member) offsetof(struct survey_device, member)
#define OF_STAT(member) offsetof(tarn_stat, member)
#define ALL_OF(member) offsetof(struct survey_device, stats.member)

static const struct family device_families[] = {
    {"tarn_device_memory_bytes", false, "bytes", "Memory of the device.", VALUE, DEVICE(total), 0},
    {"tarn_device_free_bytes", false, "bytes", "Memory that the driver has free, for any process.", KNOWN, DEVICE(free),
     0},
    {"tarn_limit_bytes", false, "bytes", "Most that may be reserved.", KNOWN, DEVICE(limit), 0},
    {"tarn_reserved_bytes", false, "bytes", "Memory obtained from the driver.", STAT_CLASS, ALL_OF(reserved_bytes),
     OF_STAT(current)},
    {"tarn_reserved_peak_bytes", false, "bytes", "Most reserved since the peaks were reset.", STAT,
     ALL_OF(reserved_bytes), OF_STAT(peak)},
    {"tarn_allocated_bytes", false, "bytes", "Live blocks, as rounded.", STAT_CLASS, ALL_OF(allocated_bytes),
     OF_STAT(current)},
    {"tarn_allocated_peak_bytes", false, "bytes", "Most allocated since the peaks were reset.", STAT,
     ALL_OF(allocated_bytes), OF_STAT(peak)},
    {"tarn_requested_bytes", false, "bytes", "Live blocks, as asked for.", STAT_CLASS, ALL_OF(requested_bytes),
     OF_STAT(current)},
    {"tarn_requested_peak_bytes", false, "bytes", "Most requested since the peaks were reset.", STAT,
     ALL_OF(requested_bytes), OF_STAT(peak)},
    {"tarn_active_bytes", false, "bytes", "Live blocks, and freed ones that work still uses.", STAT_CLASS,
     ALL_OF(active_bytes), OF_STAT(current)},
    {"tarn_active_peak_bytes", false, "bytes", "Most active since the peaks were reset.", STAT, ALL_OF(active_bytes),
     OF_STAT(peak)},
    {"tarn_inactive_split_bytes", false, "bytes", "Free memory beside other memory.", STAT_CLASS,
     ALL_OF(inactive_split_bytes), OF_STAT(current)},
    {"tarn_free_bytes", false, "bytes", "Reserved and mapped memory that no block has.", VALUE, DEVICE(spans), 0},
    {"tarn_largest_free_bytes", false, "bytes", "Longest piece of it.", VALUE, DEVICE(largest_span), 0},
    {"tarn_fragmentation_ratio", false, "ratio", "One less the longest piece of free memory through all of it.", RATIO,
     DEVICE(largest_span), DEVICE(spans)},
    {"tarn_waiting_bytes", false, "bytes", "Freed memory that work still uses.", VALUE, DEVICE(waiting), 0},
    {"tarn_cached_bytes", false, "bytes", "Reserved memory that is mapped nowhere.", VALUE, DEVICE(cached), 0},
    {"tarn_blocks", false, "", "Live blocks.", STAT_CLASS, ALL_OF(allocation), OF_STAT(current)},
    {"tarn_segments", false, "", "Physical pieces and segments obtained from the driver.", STAT_CLASS, ALL_OF(segment),
     OF_STAT(current)},
    {"tarn_allocations", true, "", "Blocks handed out.", STAT_CLASS, ALL_OF(allocation), OF_STAT(allocated)},
    {"tarn_frees", true, "", "Blocks freed.", STAT_CLASS, ALL_OF(allocation), OF_STAT(freed)},
    {"tarn_handed_out_bytes", true, "bytes", "Blocks handed out, as rounded.", STAT_CLASS, ALL_OF(allocated_bytes),
     OF_STAT(allocated)},
    {"tarn_freed_bytes", true, "bytes", "Blocks freed, as rounded.", STAT_CLASS, ALL_OF(allocated_bytes),
     OF_STAT(freed)},
    {"tarn_obtained_bytes", true, "bytes", "Memory obtained from the driver.", STAT_CLASS, ALL_OF(reserved_bytes),
     OF_STAT(allocated)},
    {"tarn_returned_bytes", true, "bytes", "Memory given back to the driver.", STAT_CLASS, ALL_OF(reserved_bytes),
     OF_STAT(freed)},
    {"tarn_driver_allocations", true, "", "Calls that obtained memory from the driver.", VALUE,
     ALL_OF(num_device_alloc), 0},
    {"tarn_driver_frees", true, "", "Calls that gave memory back to the driver.", VALUE, ALL_OF(num_device_free), 0},
    {"tarn_alloc_retries", true, "", "Searches after memory was taken back from other streams.", VALUE,
     ALL_OF(num_alloc_retries), 0},
    {"tarn_out_of_memory", true, "", "Requests that failed for want of memory.", VALUE, ALL_OF(num_ooms), 0},
    {"tarn_rejections", true, "", "Requests refused before the driver was asked.", VALUE, ALL_OF(num_oom_rejections),
     0},
    {"tarn_workspaces", false, "", "Workspaces of library handles.", VALUE, DEVICE(workspaces), 0},
    {"tarn_workspace_bytes", false, "bytes", "Memory of workspaces, allocated from tarn.", VALUE,
     DEVICE(workspace_bytes), 0},
    {"tarn_device_lost", false, "", "Whether an error has left the device unusable.", FLAG, DEVICE(lost), 1},
};

#define POOL(member) offsetof(struct survey_pool, member)

static const struct family pool_families[] = {
    {"tarn_pool_reserved_bytes", false, "bytes", "Memory that the pool has from the driver.", VALUE, POOL(reserved), 0},
    {"tarn_pool_allocated_bytes", false, "bytes", "Live blocks of the pool, as rounded.", VALUE, POOL(allocated), 0},
    {"tarn_pool_requested_bytes", false, "bytes", "Live blocks of the pool, as asked for.", VALUE, POOL(requested), 0},
    {"tarn_pool_active_bytes", false, "bytes", "Live blocks of the pool, and freed ones that work still uses.", VALUE,
     POOL(active), 0},
    {"tarn_pool_waiting_bytes", false, "bytes", "Freed blocks of the pool that work still uses.", VALUE, POOL(waiting),
     0},
    {"tarn_pool_limit_bytes", false, "bytes", "Most that the pool may reserve.", KNOWN, POOL(limit), 0},
    {"tarn_pool_suspended", false, "", "Whether the pool has addresses and no memory.", FLAG, POOL(flags),
     SURVEY_POOL_SUSPENDED},
    {"tarn_pool_held", false, "", "Whether a graph or an open capture uses the pool.", FLAG, POOL(flags),
     SURVEY_POOL_HELD},
};

#define STREAM(member) offsetof(struct survey_stream, member)

static const struct family stream_families[] = {
    {"tarn_stream_mapped_bytes", false, "bytes", "Memory mapped for a stream in a pool.", VALUE, STREAM(mapped), 0},
    {"tarn_stream_free_bytes", false, "bytes", "Of it, memory that no block has.", VALUE, STREAM(spans), 0},
    {"tarn_stream_waiting_bytes", false, "bytes", "Of it, freed memory that work still uses.", VALUE, STREAM(waiting),
     0},
};

#define HANDLES(member) offsetof(struct survey_handles, member)

static const struct family handle_families[] = {
    {"tarn_handles_in_use", false, "", "Handles that threads or leases have.", VALUE, HANDLES(in_use), 0},
    {"tarn_handles_available", false, "", "Handles that nobody has.", VALUE, HANDLES(available), 0},
    {"tarn_handles_created", true, "", "Handles made.", VALUE, HANDLES(created), 0},
    {"tarn_handles_destroyed", true, "", "Handles destroyed.", VALUE, HANDLES(destroyed), 0},
    {"tarn_handle_create_failures", true, "", "Handles that could not be made.", VALUE, HANDLES(failures), 0},
};

#define PINNED(member) offsetof(tarn_pinned_stats, member)

static const struct family pinned_families[] = {
    {"tarn_pinned_allocated_bytes", false, "bytes", "Pinned host memory obtained from the driver.", STAT,
     PINNED(allocated_bytes), OF_STAT(current)},
    {"tarn_pinned_allocated_peak_bytes", false, "bytes", "Most of it since the peaks were reset.", STAT,
     PINNED(allocated_bytes), OF_STAT(peak)},
    {"tarn_pinned_active_bytes", false, "bytes", "Pinned blocks that are live or that work uses, as rounded.", STAT,
     PINNED(active_bytes), OF_STAT(current)},
    {"tarn_pinned_requested_bytes", false, "bytes", "The same, as asked for.", STAT, PINNED(requested_bytes),
     OF_STAT(current)},
    {"tarn_pinned_pending_bytes", false, "bytes", "Freed pinned blocks that work uses.", VALUE, PINNED(pending_bytes),
     0},
    {"tarn_pinned_kept_bytes", false, "bytes", "Freed pinned blocks that are kept for a graph.", VALUE,
     PINNED(kept_bytes), 0},
    {"tarn_pinned_allocations", true, "", "Pinned blocks handed out.", STAT, PINNED(active_requests),
     OF_STAT(allocated)},
    {"tarn_pinned_driver_allocations", true, "", "Calls that obtained pinned memory.", VALUE, PINNED(num_host_alloc),
     0},
    {"tarn_pinned_driver_frees", true, "", "Calls that gave pinned memory back.", VALUE, PINNED(num_host_free), 0},
    {"tarn_pinned_out_of_memory", true, "", "Requests for pinned memory that failed for want of it.", VALUE,
     PINNED(num_ooms), 0},
};

static const struct family process_families[] = {
    {"tarn_metadata_bytes", false, "bytes", "Host memory of tarn's own bookkeeping.", VALUE,
     offsetof(struct survey, metadata), 0},
};

/* Lines ----------------------------------------------------------------------------------------------------------- */

static void label_nothing(struct sink *sink, const void *record)
{
    (void)sink, (void)record;
}

static void label_device(struct sink *sink, const void *record)
{
    sink_print(sink, "device=\"%d\"", ((const struct survey_device *)record)->number);
}

static void label_pool(struct sink *sink, const void *record)
{
    const struct survey_pool *pool = record;
    sink_print(sink, "device=\"%d\",pool=\"%" PRIu64 ",%" PRIu64 "\"", pool->device, pool->id[0], pool->id[1]);
}

static void label_stream(struct sink *sink, const void *record)
{
    const struct survey_stream *stream = record;
    sink_print(sink, "device=\"%d\",pool=\"%" PRIu64 ",%" PRIu64 "%s\",stream=\"%" PRIu32 ".%" PRIu32 "\"",
               stream->device, stream->pool[0], stream->pool[1],
               stream->flags & SURVEY_STREAM_UNCACHED ? " uncached" : "", stream->slot, stream->generation);
}

static void label_handles(struct sink *sink, const void *record)
{
    const struct survey_handles *handles = record;
    sink_print(sink, "device=\"%d\",", handles->device);
    say_label(sink, "library", handles->name);
}

/* The records of one kind, and the families that are made of each. */
struct list {
    const struct family *families;
    size_t family_count;
    void (*label)(struct sink *sink, const void *record);
    const void *records;
    size_t count, size;
    size_t used; /* offset of a 32-bit number that is 0 in a record of which nothing is printed; SIZE_MAX: none */
};

static void say_line(struct sink *sink, const struct list *list, const struct family *family, const void *record,
                     const char *class, int64_t value)
{
    bool labels = list->label != label_nothing || class;
    sink_print(sink, "%s%s%s", family->name, family->counts ? "_total" : "", labels ? "{" : "");
    list->label(sink, record);
    if (class)
        sink_print(sink, ",blocks=\"%s\"", class);
    sink_print(sink, "%s %" PRId64 "\n", labels ? "}" : "", value > 0 || !family->counts ? value : 0);
}

static int64_t number_at(const void *record, size_t offset)
{
    int64_t number;
    memcpy(&number, (const char *)record + offset, sizeof number);
    return number;
}

static void say_ratio(struct sink *sink, const struct list *list, const struct family *family, const void *record)
{
    int64_t part = number_at(record, family->offset), whole = number_at(record, family->part);
    uint64_t millionths = whole > 0 && part < whole ? (uint64_t)((1 - (double)part / (double)whole) * 1e6) : 0;
    sink_print(sink, "%s{", family->name);
    list->label(sink, record);
    sink_print(sink, "} 0.%06" PRIu64 "\n", millionths < 1000000 ? millionths : 999999);
}

static void say_record(struct sink *sink, const struct list *list, const struct family *family, const void *record)
{
    static const char *const classes[] = {[TARN_STAT_SMALL_POOL] = "small", [TARN_STAT_LARGE_POOL] = "large"};
    uint32_t bits;
    switch (family->kind) {
    case VALUE:
        say_line(sink, list, family, record, NULL, number_at(record, family->offset));
        break;
    case KNOWN:
        if (number_at(record, family->offset) != (int64_t)SURVEY_UNKNOWN)
            say_line(sink, list, family, record, NULL, number_at(record, family->offset));
        break;
    case FLAG:
        memcpy(&bits, (const char *)record + family->offset, sizeof bits);
        say_line(sink, list, family, record, NULL, (bits & family->part) != 0);
        break;
    case STAT:
        say_line(sink, list, family, record, NULL, number_at(record, family->offset + family->part));
        break;
    case STAT_CLASS:
        for (size_t class = TARN_STAT_SMALL_POOL; class <= TARN_STAT_LARGE_POOL; class ++)
            say_line(sink, list, family, record, classes[class],
                     number_at(record, family->offset + class * sizeof(tarn_stat) + family->part));
        break;
    case RATIO:
        say_ratio(sink, list, family, record);
        break;
    }
}

static bool is_used(const struct list *list, const void *record)
{
    uint32_t used = 1;
    if (list->used != SIZE_MAX)
        memcpy(&used, (const char *)record + list->used, sizeof used);
    return used != 0;
}

static void say_list(struct sink *sink, const struct list *list)
{
    for (size_t i = 0; i < list->family_count && list->count; i++) {
        const struct family *family = &list->families[i];
        sink_print(sink, "# TYPE %s %s\n", family->name, family->counts ? "counter" : "gauge");
        if (*family->unit)
            sink_print(sink, "# UNIT %s %s\n", family->name, family->unit);
        sink_print(sink, "# HELP %s %s\n", family->name, family->help);
        for (size_t j = 0; j < list->count; j++) {
            const void *record = (const char *)list->records + j * list->size;
            if (is_used(list, record))
                say_record(sink, list, family, record);
        }
    }
}

static void say_process(struct sink *sink, const struct survey *survey)
{
    sink_print(sink, "# TYPE tarn_build_info gauge\n# HELP tarn_build_info The version of the library and its driver.\n"
                     "tarn_build_info{");
    say_label(sink, "version", tarn_version());
    sink_print(sink, ",");
    say_label(sink, "driver", driver->name);
    sink_print(sink, "} 1\n# TYPE tarn_device_info gauge\n# HELP tarn_device_info The name of a device.\n");
    for (uint32_t i = 0; i < survey->device_count.here; i++) {
        sink_print(sink, "tarn_device_info{device=\"%d\",", survey->devices[i].number);
        say_label(sink, "name", survey->devices[i].name);
        sink_print(sink, "} 1\n");
    }
}

#define TABLE(families) families, sizeof families / sizeof *families

void metrics_print(struct sink *sink, const struct survey *survey)
{
    const struct list lists[] = {
        {TABLE(process_families), label_nothing, survey, 1, sizeof *survey, SIZE_MAX},
        {TABLE(device_families), label_device, survey->devices, survey->device_count.here, sizeof *survey->devices,
         offsetof(struct survey_device, used)},
        {TABLE(pool_families), label_pool, survey->pools, survey->pool_count.here, sizeof *survey->pools, SIZE_MAX},
        {TABLE(stream_families), label_stream, survey->streams, survey->stream_count.here, sizeof *survey->streams,
         SIZE_MAX},
        {TABLE(handle_families), label_handles, survey->handles, survey->handle_count.here, sizeof *survey->handles,
         SIZE_MAX},
        {TABLE(pinned_families), label_nothing, &survey->pinned, survey->has_pinned, sizeof survey->pinned, SIZE_MAX},
    };
    say_process(sink, survey);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        say_list(sink, &lists[i]);
    sink_print(sink, "# EOF\n");
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
        metrics_print(sink, survey);
        status = sink_end(sink, false);
    }
    pages_free(sink, sizeof *sink);
    return status;
}

/* Public ---------------------------------------------------------------------------------------------------------- */

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

tarn_status tarn_metrics_print(bool (*take)(const void *text, size_t length, void *user), void *user)
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
        metrics_print(sink, &surveyor->survey);
        status = sink_end(sink, false);
    }
    pages_free(sink, sizeof *sink);
    pages_unmap(surveyor, sizeof *surveyor);
    return status;
}

tarn_status tarn_metrics_write(const char *path)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct surveyor *surveyor = NULL;
    if (!path)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "path is NULL");
    tarn_status status = survey_now(&surveyor);
    if (status)
        return status;
    status = metrics_write(path, &surveyor->survey);
    pages_unmap(surveyor, sizeof *surveyor);
    return status;
}
