/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The text of `tarn metrics`. Of each process it has what the process itself would publish. In
 * addition it has lines for the machine's devices, with OpenTelemetry's names (hw.gpu.memory.*, as
 * Prometheus writes such names), and lines on what was read. */
#include "metrics/machine.h"
#include "report/metrics.h"
#include "top/fleet.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool take(const void *data, size_t size, void *user)
{
    struct metrics_text *text = user;
    if (text->length + size > text->capacity) {
        size_t capacity = 2 * text->capacity + size;
        char *larger = realloc(text->text, capacity);
        if (!larger) {
            text->failed = true;
            return false;
        }
        text->text = larger;
        text->capacity = capacity;
    }
    memcpy(text->text + text->length, data, size);
    text->length += size;
    return true;
}

static void say_hardware_labels(struct sink *sink, const char *name,
                                const struct fleet_device *device)
{
    sink_write(sink, name, strlen(name));
    sink_print(sink, "{");
    metrics_say_label(sink, "hw_id", device->uuid);
    sink_print(sink, ",");
    metrics_say_label(sink, "hw_name", device->name);
    sink_print(sink, "}");
}

static void say_hardware(struct sink *sink, const struct fleet *fleet)
{
    metrics_say_head(sink, "hw_gpu_memory_limit_bytes", false,
                     "Memory of a device: hw.gpu.memory.limit.");
    for (size_t i = 0; i < fleet->device_count; i++) {
        const struct fleet_device *device = &fleet->devices[i];
        if (!device->uuid[0])
            continue;
        say_hardware_labels(sink, "hw_gpu_memory_limit_bytes", device);
        sink_print(sink, " %" PRIu64 "\n", device->total);
    }
    metrics_say_head(sink, "hw_gpu_memory_usage_bytes", false,
                     "Memory of a device that anybody has: hw.gpu.memory.usage.");
    for (size_t i = 0; i < fleet->device_count; i++) {
        const struct fleet_device *device = &fleet->devices[i];
        if (!device->uuid[0] || device->used == SURVEY_UNKNOWN)
            continue;
        say_hardware_labels(sink, "hw_gpu_memory_usage_bytes", device);
        sink_print(sink, " %" PRIu64 "\n", device->used);
    }
    metrics_say_head(sink, "hw_gpu_memory_utilization_ratio", false,
                     "The one by the other: hw.gpu.memory.utilization.");
    for (size_t i = 0; i < fleet->device_count; i++) {
        const struct fleet_device *device = &fleet->devices[i];
        if (!device->uuid[0] || device->used == SURVEY_UNKNOWN || !device->total)
            continue;
        double part = (double)device->used / (double)device->total;
        unsigned millionths = part < 1 ? (unsigned)(part * 1e6) : 1000000;
        say_hardware_labels(sink, "hw_gpu_memory_utilization_ratio", device);
        sink_print(sink, " %u.%06u\n", millionths / 1000000, millionths % 1000000);
    }
}

static void say_machine(struct sink *sink, const struct top_list *list, size_t read)
{
    metrics_say_head(sink, "tarn_exporter_processes", false,
                     "Processes that publish and were read.");
    sink_print(sink, "tarn_exporter_processes %zu\n", read);
    metrics_say_head(sink, "tarn_exporter_unread_processes", false,
                     "Processes that publish and were not read: other users', or that have written "
                     "nothing yet.");
    sink_print(sink, "tarn_exporter_unread_processes %zu\n", list->count - read + list->left_out);
}

/* Fills in the sources to print; they point into the list. */
static size_t sources_make(const struct top_list *list, struct metrics_source *sources)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct top_entry *entry = &list->entries[i];
        if (!entry->reading)
            continue;
        struct metrics_source *source = &sources[count++];
        *source = (struct metrics_source){.library = entry->head.library,
                                          .driver = entry->head.driver,
                                          .survey = &entry->reading->survey,
                                          .process.rank = entry->head.rank};
        memcpy(source->process.name, entry->head.name, sizeof source->process.name);
        memcpy(source->process.number, entry->number, sizeof source->process.number);
    }
    return count;
}

bool metrics_text_make(const char *directory, struct metrics_text *text)
{
    struct top_list list = {0};
    struct fleet fleet = {0};
    struct metrics_source *sources = NULL;
    struct sink *sink = malloc(sizeof *sink);
    *text = (struct metrics_text){0};
    bool done = sink && top_list_make(directory, 0, &list) &&
                fleet_make(&list, NULL, FLEET_BY_PROCESS, &fleet);
    if (done)
        sources = calloc(list.count + 1, sizeof *sources);
    done = done && sources;
    if (done) {
        size_t count = sources_make(&list, sources);
        sink_to_function(sink, take, text);
        metrics_print(sink, sources, count);
        say_hardware(sink, &fleet);
        say_machine(sink, &list, count);
        metrics_end(sink);
        done = sink_end(sink, false) == TARN_OK && take("", 1, text) && !text->failed;
        text->length -= done;
    }
    free(sources);
    fleet_finish(&fleet);
    top_list_finish(&list);
    free(sink);
    if (!done)
        free(text->text);
    return done;
}
