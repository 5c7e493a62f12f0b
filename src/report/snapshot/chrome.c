/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes a picture's trace in the "Trace Event Format", which ui.perfetto.dev reads: one process
 * per device, in it counters of allocated and reserved bytes, each block as an asynchronous slice,
 * regions as slices of their thread, out-of-memory errors, captures and the rest as instants.
 * Viewers end a slice only by the name that it began with, so a free has the note of the
 * allocation. Owns a table for that while it writes. */
#include "base/pages.h"
#include "base/status.h"
#include "base/utf8.h"
#include "report/snapshot/fit.h"
#include "report/snapshot/notes.h"
#include "report/snapshot/snapshot.h"

#include <stdio.h>
#include <string.h>
#include <tarn/memory.h>

struct chrome_writer {
    struct sink *sink;
    const struct picture *picture;
    int64_t allocated[TARN_MAX_DEVICES], reserved[TARN_MAX_DEVICES]; /* bytes */
    bool some;                                                       /* an event was written */
    /* A hash table by address: the number of the record that began the block there, from 1; 0:
     * none. A power of two of slots, more than twice as many as records. */
    uint32_t *begun;
    size_t slots;
};

/* A text in JSON. Bytes that are not UTF-8 are replaced. */
static void print_text(struct chrome_writer *writer, const char *text)
{
    sink_byte(writer->sink, '"');
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        unsigned length = utf8_length(at);
        if (*at < 0x20 || *at == 0x7f)
            sink_print(writer->sink, "\\u%04x", *at);
        else if (*at == '"' || *at == '\\')
            sink_print(writer->sink, "\\%c", *at);
        else
            sink_write(writer->sink, length ? (const void *)at : "?", length ? length : 1);
        at += length ? length : 1;
    }
    sink_byte(writer->sink, '"');
}

/* Begins an event, up to its own fields. */
static void begin(struct chrome_writer *writer, const struct trace_record *record,
                  const char *phase, const char *name)
{
    int64_t ns = ticks_to_ns(&writer->picture->scale, record->time);
    sink_print(writer->sink,
               "%s\n{\"ph\":\"%s\",\"ts\":%lld.%03d,\"pid\":%lld,\"tid\":%u,\"name\":",
               writer->some ? "," : "", phase, (long long)(ns / 1000), (int)(ns % 1000),
               (long long)place_of(trace_place_of(record))->device, record->thread);
    print_text(writer, name);
    writer->some = true;
}

static void count(struct chrome_writer *writer, const struct trace_record *record,
                  int64_t allocated, int64_t reserved)
{
    int64_t device = place_of(trace_place_of(record))->device;
    writer->allocated[device] += allocated;
    writer->reserved[device] += reserved;
    begin(writer, record, "C", "bytes");
    sink_print(writer->sink, ",\"args\":{\"allocated\":%lld,\"reserved\":%lld}}",
               (long long)writer->allocated[device], (long long)writer->reserved[device]);
}

/* The slot of an address. */
static uint32_t *begun_at(const struct chrome_writer *writer, uint64_t address)
{
    const struct trace_record *records = writer->picture->trace.records;
    size_t slot = (size_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (writer->slots - 1);
    while (writer->begun[slot] && records[writer->begun[slot] - 1].address != address)
        slot = (slot + 1) & (writer->slots - 1);
    return &writer->begun[slot];
}

static void block(struct chrome_writer *writer, const struct trace_record *record,
                  const char *phase)
{
    char note[NOTE_BYTES];
    const struct trace_record *records = writer->picture->trace.records, *named = record;
    const struct trace_place *place = place_of(trace_place_of(record));
    uint32_t *begun = begun_at(writer, record->address);
    if (*phase == 'b')
        *begun = (uint32_t)(record - records) + 1;
    else if (*begun)
        named = &records[*begun - 1];
    note_text(named->region, named->tag, note);
    begin(writer, record, phase, *note ? note : "block");
    sink_print(writer->sink,
               ",\"cat\":\"memory\",\"id2\":{\"local\":\"%#llx\"},\"args\":{\"size\":%llu,"
               "\"stream\":\"%#llx\","
               "\"pool\":\"(%llu, %llu)\"}}",
               (unsigned long long)record->address, (unsigned long long)record->size,
               (unsigned long long)place->native, (unsigned long long)place->pool[0],
               (unsigned long long)place->pool[1]);
}

static void instant(struct chrome_writer *writer, const struct trace_record *record,
                    const char *name)
{
    begin(writer, record, "i", name);
    sink_print(writer->sink, ",\"s\":\"p\",\"args\":{\"size\":%llu,\"stream\":\"%#llx\"}}",
               (unsigned long long)record->size,
               (unsigned long long)place_of(trace_place_of(record))->native);
}

static void region(struct chrome_writer *writer, const struct trace_record *record,
                   const char *phase)
{
    begin(writer, record, phase, region_name(record->address));
    sink_print(writer->sink, "}");
}

static void write_record(struct chrome_writer *writer, const struct trace_record *record)
{
    static const char *const names[TRACE_KINDS] = {
#define X(kind) #kind,
        TRACE_KIND_LIST(X)
#undef X
    };
    int64_t size = (int64_t)record->size;
    switch (trace_kind_of(record)) {
    case TRACE_alloc:
        block(writer, record, "b");
        count(writer, record, size, 0);
        return;
    case TRACE_free:
    case TRACE_free_remote:
    case TRACE_free_requested:
        block(writer, record, "e");
        count(writer, record, -size, 0);
        return;
    case TRACE_segment_alloc:
    case TRACE_segment_map:
        count(writer, record, 0, size);
        return;
    case TRACE_segment_free:
    case TRACE_segment_unmap:
        count(writer, record, 0, -size);
        return;
    case TRACE_region_begin:
        region(writer, record, "B");
        return;
    case TRACE_region_end:
        region(writer, record, "E");
        return;
    default:
        instant(writer, record, names[trace_kind_of(record)]);
        return;
    }
}

/* Computes the counters at the start of the trace: the values now, minus the changes in the
 * trace. */
static void count_back(struct chrome_writer *writer, size_t first)
{
    const struct picture *picture = writer->picture;
    for (size_t i = 0; i < picture->runs.count; i++) {
        const struct picture_run *run = &picture_runs(picture)[i];
        int64_t device = place_of(run->place)->device;
        writer->reserved[device] += (int64_t)run->size;
        for (size_t j = 0; j < run->block_count; j++)
            if (picture_blocks(picture)[run->first_block + j].state == PICTURE_LIVE)
                writer->allocated[device] +=
                    (int64_t)picture_blocks(picture)[run->first_block + j].requested;
    }
    for (size_t i = first; i < picture->trace.count; i++) {
        const struct trace_record *record = &picture->trace.records[i];
        int64_t device = place_of(trace_place_of(record))->device, size = (int64_t)record->size;
        enum trace_kind kind = trace_kind_of(record);
        if (kind == TRACE_alloc)
            writer->allocated[device] -= size;
        else if (kind == TRACE_free || kind == TRACE_free_remote || kind == TRACE_free_requested)
            writer->allocated[device] += size;
        else if (kind == TRACE_segment_alloc || kind == TRACE_segment_map)
            writer->reserved[device] -= size;
        else if (kind == TRACE_segment_free || kind == TRACE_segment_unmap)
            writer->reserved[device] += size;
    }
}

static void write_from(void *argument, struct sink *sink, size_t first)
{
    struct chrome_writer *writer = argument;
    const struct picture *picture = writer->picture;
    *writer = (struct chrome_writer){
        .sink = sink, .picture = picture, .begun = writer->begun, .slots = writer->slots};
    memset(writer->begun, 0, writer->slots * sizeof *writer->begun);
    count_back(writer, first);
    sink_print(writer->sink, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    for (int i = 0; i < picture->device_count; i++) {
        sink_print(writer->sink,
                   "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":",
                   writer->some ? "," : "", i);
        char name[128];
        snprintf(name, sizeof name, "device %d: %s", i, picture->devices[i].name);
        print_text(writer, name);
        sink_print(writer->sink, "}}");
        writer->some = true;
    }
    for (size_t i = first; i < picture->trace.count; i++)
        write_record(writer, &picture->trace.records[i]);
    sink_print(writer->sink, "\n]}\n");
}

tarn_status snapshot_write_chrome(const struct picture *picture, struct sink *sink, uint64_t most)
{
    struct chrome_writer writer = {.picture = picture, .slots = 2};
    size_t first = 0;
    while (writer.slots <= 2 * picture->trace.count)
        writer.slots *= 2;
    writer.begun = pages_alloc(writer.slots * sizeof *writer.begun);
    if (!writer.begun)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to name blocks");
    tarn_status status = fit(write_from, &writer, picture->trace.count, most, &first);
    if (!status)
        write_from(&writer, sink, first);
    pages_free(writer.begun, writer.slots * sizeof *writer.begun);
    return status;
}
