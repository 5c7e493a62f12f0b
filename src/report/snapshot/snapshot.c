/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes a picture as PyTorch's snapshot. torch/csrc/cuda/memory_snapshot.cpp names the keys;
 * torch/cuda/_memory_viz.py and torch/utils/viz/MemoryViz.js show which are needed. Data that
 * PyTorch has no key for is under the key "tarn". Owns what one writing needs; no lock is held.
 * Words, notes, pools and stacks are written once, and then by their memo. */
#include "report/snapshot/snapshot.h"
#include "base/pages.h"
#include "base/status.h"
#include "device/device.h"
#include "handle/registry.h"
#include "memory/settings/config.h"
#include "record/symbols.h"
#include "report/graph/graph.h"
#include "report/snapshot/fit.h"
#include "report/snapshot/notes.h"
#include "report/snapshot/pickle_write.h"

#include <stdio.h>
#include <string.h>
#include <tarn/config.h>
#include <tarn/tarn.h>

/* The words of the format, as they are written. */
#define WORD_LIST(X)                              \
    X(action, "action")                           \
    X(addr, "addr")                               \
    X(device_free, "device_free")                 \
    X(size, "size")                               \
    X(stream, "stream")                           \
    X(time_us, "time_us")                         \
    X(compile_context, "compile_context")         \
    X(user_metadata, "user_metadata")             \
    X(pool_id, "pool_id")                         \
    X(range, "range")                             \
    X(thread, "thread")                           \
    X(frames, "frames")                           \
    X(name, "name")                               \
    X(filename, "filename")                       \
    X(line, "line")                               \
    X(address, "address")                         \
    X(requested_size, "requested_size")           \
    X(state, "state")                             \
    X(active_allocated, "active_allocated")       \
    X(active_pending_free, "active_pending_free") \
    X(inactive, "inactive")                       \
    X(device, "device")                           \
    X(total_size, "total_size")                   \
    X(allocated_size, "allocated_size")           \
    X(active_size, "active_size")                 \
    X(segment_type, "segment_type")               \
    X(segment_pool_id, "segment_pool_id")         \
    X(is_expandable, "is_expandable")             \
    X(blocks, "blocks")                           \
    X(small, "small")                             \
    X(large, "large")                             \
    X(at, "at")                                   \
    X(kind, "kind")                               \
    X(stage, "stage")                             \
    X(not_known, "N/A")

enum word {
#define X(word, text) WORD_##word,
    WORD_LIST(X)
#undef X
        WORDS
};

static const char *const words[WORDS] = {
#define X(word, text) text,
    WORD_LIST(X)
#undef X
};

/* The memo of a note, by region and tag. */
struct note {
    uint64_t key; /* plus 1, since 0 marks a free slot */
    uint32_t memo;
};

struct snapshot_writer {
    struct pickle_writer pickle;
    const struct picture *picture;
    struct symbols *symbols; /* while there are stacks */
    size_t first;            /* the first record; earlier ones are left out */
    uint32_t words[WORDS];   /* memos, like all below */
    uint32_t kinds[TRACE_KINDS];
    uint32_t no_frames;
    uint32_t *stacks, *places; /* by number; a place has the memo of its pool's id */
    struct note *notes;
    size_t stack_count, place_count, note_slots, note_count;
    uint32_t last_number; /* the place that was looked up last, and its number */
    const struct trace_place *last_place;
};

#define LOOK_BACK 8192 /* records that are searched for the recording of an event */

#define KEY(writer, word) \
    pickle_word(&(writer)->pickle, &(writer)->words[WORD_##word], words[WORD_##word])

/* What repeats --------------------------------------------------------------------------------- */

static void write_frames_anew(struct snapshot_writer *writer, uint32_t number)
{
    struct pickle_writer *pickle = &writer->pickle;
    const struct trace_stack *stack = intern_value(&trace_stacks, number);
    pickle_list_begin(pickle);
    bool inside = true; /* the innermost frames are tarn's own */
    for (int i = 0; stack && i < TRACE_FRAMES && stack->frames[i]; i++) {
        struct symbol symbol;
        symbols_find(writer->symbols, stack->frames[i], &symbol);
        inside = inside && symbol.own;
        if (inside)
            continue;
        pickle_dict_begin(pickle);
        KEY(writer, name);
        pickle_text(pickle, symbol.name);
        KEY(writer, filename);
        pickle_text(pickle, symbol.file);
        KEY(writer, line);
        pickle_integer(pickle, symbol.line);
        pickle_dict_end(pickle);
    }
    pickle_list_end(pickle);
}

static void write_frames(struct snapshot_writer *writer, uint32_t stack)
{
    uint32_t *memo =
        stack && stack < writer->stack_count ? &writer->stacks[stack] : &writer->no_frames;
    if (*memo) {
        pickle_again(&writer->pickle, *memo);
        return;
    }
    write_frames_anew(writer, memo == &writer->no_frames ? 0 : stack);
    *memo = pickle_memoize(&writer->pickle);
}

static struct note *note_slot(struct snapshot_writer *writer, uint64_t key)
{
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (writer->note_slots - 1);
    while (writer->notes[at].key && writer->notes[at].key != key)
        at = (at + 1) & (writer->note_slots - 1);
    return &writer->notes[at];
}

static void write_note(struct snapshot_writer *writer, uint32_t region, uint16_t tag)
{
    char text[NOTE_BYTES];
    uint64_t key = ((uint64_t)region << 16 | tag) + 1;
    struct note *note = note_slot(writer, key);
    if (note->key) {
        pickle_again(&writer->pickle, note->memo);
        return;
    }
    note_text(region, tag, text);
    pickle_text(&writer->pickle, text);
    if (writer->note_count >= writer->note_slots / 2)
        return; /* the table is full: this one is written in full each time */
    writer->note_count++;
    *note = (struct note){key, pickle_memoize(&writer->pickle)};
}

static void write_pool(struct snapshot_writer *writer, uint32_t place)
{
    const struct trace_place *of = place_of(place);
    uint32_t unknown = 0, *memo = place < writer->place_count ? &writer->places[place] : &unknown;
    if (*memo) {
        pickle_again(&writer->pickle, *memo);
        return;
    }
    pickle_pair(&writer->pickle, of->pool[0], of->pool[1]);
    *memo = pickle_memoize(&writer->pickle);
}

/* Marks what is of a range: memory of a pool, and of no stream. */
static void write_range(struct snapshot_writer *writer, uint32_t place,
                        const struct trace_place *of)
{
    if (!place || of->stream)
        return;
    KEY(writer, range);
    pickle_boolean(&writer->pickle, true);
}

/* A record's place, which usually is that of the record before. */
static const struct trace_place *place_here(struct snapshot_writer *writer,
                                            const struct trace_record *record)
{
    uint32_t number = trace_place_of(record);
    if (number != writer->last_number || !writer->last_place) {
        writer->last_number = number;
        writer->last_place = place_of(number);
    }
    return writer->last_place;
}

static int64_t microseconds(const struct snapshot_writer *writer, uint64_t ticks)
{
    return ticks_to_ns(&writer->picture->scale, ticks) / 1000;
}

/* Segments ------------------------------------------------------------------------------------- */

static const enum word states[] = {
    [PICTURE_FREE] = WORD_inactive,
    [PICTURE_LIVE] = WORD_active_allocated,
    [PICTURE_WAITING] = WORD_active_pending_free,
};

static void write_block(struct snapshot_writer *writer, const struct picture_block *block)
{
    struct pickle_writer *pickle = &writer->pickle;
    const struct trace_record *record =
        block->record ? &writer->picture->trace.records[block->record - 1] : NULL;
    enum word state = states[block->state];
    pickle_dict_begin(pickle);
    KEY(writer, address);
    pickle_unsigned(pickle, block->address);
    KEY(writer, size);
    pickle_unsigned(pickle, block->size);
    KEY(writer, requested_size);
    pickle_unsigned(pickle, block->requested);
    KEY(writer, state);
    pickle_word(pickle, &writer->words[state], words[state]);
    KEY(writer, user_metadata);
    write_note(writer, record ? record->region : 0, block->tag);
    KEY(writer, frames);
    write_frames(writer, record ? record->stack : 0);
    pickle_dict_end(pickle);
}

static void write_segment(struct snapshot_writer *writer, const struct picture_run *run)
{
    struct pickle_writer *pickle = &writer->pickle;
    const struct trace_place *place = place_of(run->place);
    const struct picture_block *blocks = picture_blocks(writer->picture) + run->first_block;
    uint64_t allocated = 0, active = 0, requested = 0;
    for (size_t i = 0; i < run->block_count; i++) {
        allocated += blocks[i].state == PICTURE_LIVE ? blocks[i].size : 0;
        active += blocks[i].state != PICTURE_FREE ? blocks[i].size : 0;
        requested += blocks[i].requested;
    }
    pickle_dict_begin(pickle);
    KEY(writer, device);
    pickle_integer(pickle, place->device);
    KEY(writer, address);
    pickle_unsigned(pickle, run->address);
    KEY(writer, total_size);
    pickle_unsigned(pickle, run->size);
    KEY(writer, allocated_size);
    pickle_unsigned(pickle, allocated);
    KEY(writer, active_size);
    pickle_unsigned(pickle, active);
    KEY(writer, requested_size);
    pickle_unsigned(pickle, requested);
    KEY(writer, stream);
    pickle_unsigned(pickle, place->native);
    KEY(writer, segment_type);
    if (run->large)
        KEY(writer, large);
    else
        KEY(writer, small);
    KEY(writer, segment_pool_id);
    write_pool(writer, run->place);
    KEY(writer, is_expandable);
    pickle_boolean(pickle, run->virtual);
    write_range(writer, run->place, place);
    KEY(writer, frames);
    write_frames(writer, 0);
    KEY(writer, blocks);
    pickle_list_begin(pickle);
    for (size_t i = 0; i < run->block_count; i++) {
        pickle_list_item(pickle, i);
        write_block(writer, &blocks[i]);
    }
    pickle_list_end(pickle);
    pickle_dict_end(pickle);
}

static void write_segments(struct snapshot_writer *writer)
{
    pickle_text(&writer->pickle, "segments");
    pickle_list_begin(&writer->pickle);
    for (size_t i = 0; i < writer->picture->runs.count; i++) {
        pickle_list_item(&writer->pickle, i);
        write_segment(writer, &picture_runs(writer->picture)[i]);
    }
    pickle_list_end(&writer->pickle);
}

/* Traces --------------------------------------------------------------------------------------- */

/* How many entries PyTorch's traces have for a record. */
static unsigned entries_of(enum trace_kind kind)
{
    if (kind == TRACE_free || kind == TRACE_free_remote)
        return 2;
    return kind == TRACE_alloc || kind == TRACE_free_requested || kind == TRACE_free_completed ||
           kind == TRACE_oom || (kind >= TRACE_segment_alloc && kind <= TRACE_segment_unmap);
}

static const char *const kind_names[TRACE_KINDS] = {
#define X(kind) #kind,
    TRACE_KIND_LIST(X)
#undef X
};

static void write_entry(struct snapshot_writer *writer, const struct trace_record *record,
                        enum trace_kind kind, const struct trace_place *of)
{
    struct pickle_writer *pickle = &writer->pickle;
    uint32_t place = trace_place_of(record);
    pickle_dict_begin(pickle);
    KEY(writer, action);
    pickle_word(pickle, &writer->kinds[kind], kind_names[kind]);
    if (kind == TRACE_oom)
        KEY(writer, device_free);
    else
        KEY(writer, addr);
    pickle_unsigned(pickle, record->address);
    KEY(writer, size);
    pickle_unsigned(pickle, record->size);
    KEY(writer, stream);
    pickle_unsigned(pickle, of->native);
    KEY(writer, time_us);
    pickle_integer(pickle, microseconds(writer, record->time));
    KEY(writer, compile_context);
    KEY(writer, not_known);
    KEY(writer, user_metadata);
    write_note(writer, record->region, record->tag);
    KEY(writer, pool_id);
    write_pool(writer, place);
    write_range(writer, place, of);
    KEY(writer, thread);
    pickle_unsigned(pickle, record->thread);
    if (record->stack) {
        KEY(writer, frames);
        write_frames(writer, record->stack);
    }
    pickle_dict_end(pickle);
}

static void write_trace(struct snapshot_writer *writer, int device)
{
    struct pickle_writer *pickle = &writer->pickle;
    const struct trace_copy *trace = &writer->picture->trace;
    size_t written = 0;
    pickle_list_begin(pickle);
    for (size_t i = writer->first; i < trace->count; i++) {
        const struct trace_record *record = &trace->records[i];
        enum trace_kind kind = trace_kind_of(record);
        unsigned entries = entries_of(kind);
        const struct trace_place *place = entries ? place_here(writer, record) : NULL;
        if (!entries || place->device != device)
            continue;
        pickle_list_item(pickle, written++);
        write_entry(writer, record, entries == 2 ? TRACE_free_requested : kind, place);
        if (entries == 2)
            write_entry(writer, record, TRACE_free_completed, place);
    }
    pickle_list_end(pickle);
}

static void write_traces(struct snapshot_writer *writer)
{
    pickle_text(&writer->pickle, "device_traces");
    pickle_list_begin(&writer->pickle);
    for (int i = 0; i < writer->picture->device_count; i++)
        write_trace(writer, i);
    pickle_list_end(&writer->pickle);
}

/* Settings and regions, as PyTorch has them ---------------------------------------------------- */

static void write_key(struct snapshot_writer *writer, const char *key)
{
    pickle_text(&writer->pickle, key);
}

static void write_settings(struct snapshot_writer *writer)
{
    struct pickle_writer *pickle = &writer->pickle;
    const struct memory_config *config = memory_config();
    char text[2048] = "";
    size_t length = 0;
    (void)tarn_configuration_get(text, sizeof text, &length);
    write_key(writer, "allocator_settings");
    pickle_dict_begin(pickle);
    write_key(writer, "PYTORCH_CUDA_ALLOC_CONF");
    pickle_text(pickle, text);
    write_key(writer, "max_split_size");
    pickle_integer(pickle,
                   config->max_split_size > INT64_MAX ? -1 : (int64_t)config->max_split_size);
    write_key(writer, "garbage_collection_threshold");
    pickle_real(pickle, (double)config->garbage_collection_threshold / 1e9);
    write_key(writer, "expandable_segments");
    pickle_boolean(pickle, config->segments != CONFIG_SEGMENTS_PLAIN);
    write_key(writer, "pinned_num_register_threads");
    pickle_unsigned(pickle, config->pinned_num_register_threads);
    write_key(writer, "release_lock_on_cudamalloc");
    pickle_boolean(pickle, config->release_lock_on_cudamalloc);
    write_key(writer, "pinned_use_cuda_host_register");
    pickle_boolean(pickle, config->pinned_use_cuda_host_register);
    write_key(writer, "graph_capture_record_stream_reuse");
    pickle_boolean(pickle, config->graph_capture_record_stream_reuse);
    write_key(writer, "roundup_power2_divisions");
    pickle_dict_begin(pickle);
    for (int i = 0; i < CONFIG_DIVISIONS; i++) {
        char boundary[24];
        snprintf(boundary, sizeof boundary, "%llu", 1ull << i);
        write_key(writer, boundary);
        pickle_unsigned(pickle, config->roundup_power2_divisions[i]);
    }
    pickle_dict_end(pickle);
    pickle_dict_end(pickle);
}

static void write_annotations(struct snapshot_writer *writer)
{
    struct pickle_writer *pickle = &writer->pickle;
    const struct trace_copy *trace = &writer->picture->trace;
    size_t written = 0;
    write_key(writer, "external_annotations");
    pickle_list_begin(pickle);
    for (size_t i = writer->first; i < trace->count; i++) {
        const struct trace_record *record = &trace->records[i];
        enum trace_kind kind = trace_kind_of(record);
        if (kind != TRACE_region_begin && kind != TRACE_region_end)
            continue;
        pickle_list_item(pickle, written++);
        pickle_dict_begin(pickle);
        KEY(writer, name);
        pickle_text(pickle, region_name(record->address));
        KEY(writer, stage);
        pickle_text(pickle, kind == TRACE_region_begin ? "START" : "END");
        KEY(writer, device);
        pickle_integer(pickle, 0);
        KEY(writer, time_us);
        pickle_integer(pickle, microseconds(writer, record->time));
        KEY(writer, thread);
        pickle_unsigned(pickle, record->thread);
        pickle_dict_end(pickle);
    }
    pickle_list_end(pickle);
}

/* The key "tarn" ------------------------------------------------------------------------------- */

static void write_bytes_or_none(struct snapshot_writer *writer, const char *key, size_t bytes)
{
    write_key(writer, key);
    if (bytes == SIZE_MAX)
        pickle_none(&writer->pickle);
    else
        pickle_unsigned(&writer->pickle, bytes);
}

static void write_number(struct snapshot_writer *writer, const char *key, uint64_t value)
{
    write_key(writer, key);
    pickle_unsigned(&writer->pickle, value);
}

static void write_devices(struct snapshot_writer *writer)
{
    write_key(writer, "devices");
    pickle_list_begin(&writer->pickle);
    for (int i = 0; i < writer->picture->device_count; i++) {
        const struct picture_device *device = &writer->picture->devices[i];
        pickle_dict_begin(&writer->pickle);
        KEY(writer, name);
        pickle_text(&writer->pickle, device->name);
        write_number(writer, "total", device->total);
        write_number(writer, "free", device->free);
        write_number(writer, "reserved", device->reserved);
        write_bytes_or_none(writer, "limit", device->limit);
        pickle_dict_end(&writer->pickle);
    }
    pickle_list_end(&writer->pickle);
}

static void write_pools(struct snapshot_writer *writer)
{
    const struct picture_pool *pools = writer->picture->pools.items;
    write_key(writer, "pools");
    pickle_list_begin(&writer->pickle);
    for (size_t i = 0; i < writer->picture->pools.count; i++) {
        pickle_list_item(&writer->pickle, i);
        pickle_dict_begin(&writer->pickle);
        KEY(writer, device);
        pickle_integer(&writer->pickle, pools[i].device);
        write_key(writer, "id");
        pickle_pair(&writer->pickle, pools[i].id[0], pools[i].id[1]);
        write_number(writer, "reserved", pools[i].reserved);
        write_number(writer, "allocated", pools[i].allocated);
        write_number(writer, "active", pools[i].active);
        write_number(writer, "waiting", pools[i].waiting);
        write_key(writer, "suspended");
        pickle_boolean(&writer->pickle, pools[i].suspended);
        write_key(writer, "held");
        pickle_boolean(&writer->pickle, pools[i].held);
        write_key(writer, "of_graphs");
        pickle_boolean(&writer->pickle, pools[i].of_graphs);
        pickle_dict_end(&writer->pickle);
    }
    pickle_list_end(&writer->pickle);
}

static void write_graph(struct snapshot_writer *writer, const struct survey_graph *graph)
{
    pickle_dict_begin(&writer->pickle);
    write_number(writer, "number", graph->number);
    KEY(writer, device);
    pickle_integer(&writer->pickle, graph->device);
    KEY(writer, pool_id);
    pickle_pair(&writer->pickle, graph->pool[0], graph->pool[1]);
    write_number(writer, "count", graph->blocks);
    KEY(writer, size);
    pickle_unsigned(&writer->pickle, graph->bytes);
    write_number(writer, "gone", graph->gone);
    write_number(writer, "gone_size", graph->gone_bytes);
    pickle_dict_end(&writer->pickle);
}

/* What remembered graphs refer to in each pool. It is tried again with more room where others were
 * remembered meanwhile. Without host memory for it the list is empty. */
static void write_graphs(struct snapshot_writer *writer)
{
    struct survey_graph none, *graphs = NULL;
    size_t room = 0, there = remembered_sum_up(&none, 0);
    while (there > room) {
        pages_unmap(graphs, room * sizeof *graphs);
        room = there + SURVEY_GRAPHS;
        graphs = pages_map(room * sizeof *graphs);
        there = graphs ? remembered_sum_up(graphs, room) : 0;
    }
    write_key(writer, "graphs");
    pickle_list_begin(&writer->pickle);
    for (size_t i = 0; i < there; i++)
        write_graph(writer, &graphs[i]);
    pickle_list_end(&writer->pickle);
    pages_unmap(graphs, room * sizeof *graphs);
}

static void write_handle(struct snapshot_writer *writer, int library, int device)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    if (!atomic_load(&entry_at(library)->shelves))
        return; /* never used */
    if (tarn_handle_stats_get(library, device, &stats) || stats.in_use + stats.available == 0)
        return;
    pickle_dict_begin(&writer->pickle);
    KEY(writer, device);
    pickle_integer(&writer->pickle, device);
    write_key(writer, "library");
    pickle_text(&writer->pickle, entry_at(library)->row->name);
    write_number(writer, "count", stats.in_use + stats.available);
    write_number(writer, "in_use", stats.in_use);
    pickle_dict_end(&writer->pickle);
}

static void write_handles(struct snapshot_writer *writer)
{
    write_key(writer, "handles");
    pickle_list_begin(&writer->pickle);
    for (int library = 1; library <= entry_count(); library++)
        for (int device = 0; device < writer->picture->device_count; device++)
            write_handle(writer, library, device);
    pickle_list_end(&writer->pickle);
}

static void write_threads(struct snapshot_writer *writer)
{
    const struct trace_thread *thread;
    write_key(writer, "threads");
    pickle_list_begin(&writer->pickle);
    for (uint32_t i = 1; (thread = intern_value(&trace_threads, i)); i++) {
        pickle_list_item(&writer->pickle, i);
        pickle_dict_begin(&writer->pickle);
        write_number(writer, "number", thread->number);
        KEY(writer, name);
        pickle_text(&writer->pickle, thread->name);
        pickle_dict_end(&writer->pickle);
    }
    pickle_list_end(&writer->pickle);
}

/* Scratch memory of libraries: tarn's own blocks with its tag. A program may have used that tag for
 * its own blocks. */
static void write_workspaces(struct snapshot_writer *writer)
{
    const struct picture *picture = writer->picture;
    write_key(writer, "workspaces");
    pickle_list_begin(&writer->pickle);
    for (size_t i = 0; i < picture->runs.count; i++) {
        const struct picture_run *run = &picture_runs(picture)[i];
        for (size_t j = 0; j < run->block_count; j++) {
            const struct picture_block *block = &picture_blocks(picture)[run->first_block + j];
            if (!block->own || !block->tag || block->state == PICTURE_FREE ||
                strcmp(tarn_tag_text(block->tag), "workspace") != 0)
                continue;
            pickle_dict_begin(&writer->pickle);
            KEY(writer, device);
            pickle_integer(&writer->pickle, place_of(run->place)->device);
            KEY(writer, stream);
            pickle_unsigned(&writer->pickle, place_of(run->place)->native);
            KEY(writer, address);
            pickle_unsigned(&writer->pickle, block->address);
            KEY(writer, size);
            pickle_unsigned(&writer->pickle, block->requested);
            pickle_dict_end(&writer->pickle);
        }
    }
    pickle_list_end(&writer->pickle);
}

/* The stream on which an event was last recorded before a record; NULL: unknown. */
static const struct trace_place *recorded_on(const struct snapshot_writer *writer, size_t index)
{
    const struct trace_record *records = writer->picture->trace.records;
    size_t least =
        index > LOOK_BACK && index - LOOK_BACK > writer->first ? index - LOOK_BACK : writer->first;
    for (size_t i = index; i-- > least;)
        if (trace_kind_of(&records[i]) == TRACE_event_record &&
            records[i].address == records[index].address)
            return place_of(trace_place_of(&records[i]));
    return NULL;
}

/* Writes the fields that only some events have. */
static void write_particulars(struct snapshot_writer *writer, size_t index)
{
    const struct trace_record *record = &writer->picture->trace.records[index];
    const struct trace_place *place = place_of(trace_place_of(record)), *other;
    switch (trace_kind_of(record)) {
    case TRACE_record_stream:
    case TRACE_free_on:
        KEY(writer, addr);
        pickle_unsigned(&writer->pickle, record->address);
        return;
    case TRACE_event_record:
        write_number(writer, "event", record->address);
        return;
    case TRACE_capture_begin:
    case TRACE_capture_end:
        write_number(writer, "capture", record->address);
        return;
    case TRACE_region_begin:
    case TRACE_region_end:
        KEY(writer, name);
        pickle_text(&writer->pickle, region_name(record->address));
        return;
    case TRACE_wait:
        write_number(writer, "event", record->address);
        other = recorded_on(writer, index);
        if (other)
            write_number(writer, "other", other->native);
        return;
    case TRACE_scope_begin:
    case TRACE_scope_end:
        write_key(writer, "how");
        pickle_text(&writer->pickle, text_of(record->address));
        write_number(writer, "scope", record->size);
        KEY(writer, pool_id);
        write_pool(writer, trace_place_of(record));
        return;
    case TRACE_pool_create:
    case TRACE_pool_release:
    case TRACE_suspend:
    case TRACE_resume:
        KEY(writer, pool_id);
        pickle_pair(&writer->pickle, place->pool[0], place->pool[1]);
        if (trace_kind_of(record) == TRACE_pool_create && record->size) {
            write_key(writer, "unplanned");
            pickle_boolean(&writer->pickle, true);
        }
        return;
    case TRACE_trim:
        KEY(writer, pool_id);
        pickle_pair(&writer->pickle, place->pool[0], place->pool[1]);
        write_number(writer, "keep", record->size);
        return;
    case TRACE_handle_create:
        KEY(writer, name);
        pickle_text(&writer->pickle, text_of(record->address));
        write_number(writer, "bytes", record->size);
        return;
    default:
        return;
    }
}

/* Writes events for which PyTorch has no action. Each has the index of the next entry in its
 * device's trace. */
static void write_events(struct snapshot_writer *writer)
{
    struct pickle_writer *pickle = &writer->pickle;
    const struct trace_copy *trace = &writer->picture->trace;
    uint64_t at[TARN_MAX_DEVICES] = {0};
    size_t written = 0;
    write_key(writer, "events");
    pickle_list_begin(pickle);
    for (size_t i = writer->first; i < trace->count; i++) {
        const struct trace_record *record = &trace->records[i];
        const struct trace_place *place = place_here(writer, record);
        enum trace_kind kind = trace_kind_of(record);
        unsigned entries = entries_of(kind);
        at[place->device] += entries;
        if (entries)
            continue;
        pickle_list_item(pickle, written++);
        pickle_dict_begin(pickle);
        KEY(writer, device);
        pickle_integer(pickle, place->device);
        KEY(writer, at);
        pickle_unsigned(pickle, at[place->device]);
        KEY(writer, time_us);
        pickle_integer(pickle, microseconds(writer, record->time));
        KEY(writer, thread);
        pickle_unsigned(pickle, record->thread);
        KEY(writer, kind);
        pickle_word(pickle, &writer->kinds[kind], kind_names[kind]);
        KEY(writer, stream);
        pickle_unsigned(pickle, place->native);
        write_particulars(writer, i);
        pickle_dict_end(pickle);
    }
    pickle_list_end(pickle);
}

/* Writes, by device, the first entry from which nothing is missing. */
static void write_exact(struct snapshot_writer *writer)
{
    const struct trace_copy *trace = &writer->picture->trace;
    uint64_t exact[TARN_MAX_DEVICES] = {0};
    for (size_t i = writer->first; i < trace->exact_from; i++)
        exact[place_of(trace_place_of(&trace->records[i]))->device] +=
            entries_of(trace_kind_of(&trace->records[i]));
    write_key(writer, "exact_from");
    pickle_list_begin(&writer->pickle);
    for (int i = 0; i < writer->picture->device_count; i++)
        pickle_unsigned(&writer->pickle, exact[i]);
    pickle_list_end(&writer->pickle);
}

static void write_own(struct snapshot_writer *writer)
{
    const struct picture *picture = writer->picture;
    char library[32];
    snprintf(library, sizeof library, "tarn %s", tarn_version());
    write_key(writer, "tarn");
    pickle_dict_begin(&writer->pickle);
    write_number(writer, "version", 1);
    write_key(writer, "library");
    pickle_text(&writer->pickle, library);
    write_key(writer, "driver");
    pickle_text(&writer->pickle, driver->name);
    write_number(writer, "taken_ns", (uint64_t)picture->scale.ns);
    write_number(writer, "overwritten", picture->trace.lost + writer->first);
    write_exact(writer);
    write_devices(writer);
    write_pools(writer);
    write_graphs(writer);
    write_handles(writer);
    write_workspaces(writer);
    write_threads(writer);
    write_events(writer);
    pickle_dict_end(&writer->pickle);
}

/* All of it ------------------------------------------------------------------------------------ */

static void forget_memos(struct snapshot_writer *writer)
{
    memset(writer->words, 0, sizeof writer->words);
    memset(writer->kinds, 0, sizeof writer->kinds);
    memset(writer->stacks, 0, writer->stack_count * sizeof *writer->stacks);
    memset(writer->places, 0, writer->place_count * sizeof *writer->places);
    memset(writer->notes, 0, writer->note_slots * sizeof *writer->notes);
    writer->note_count = 0;
    writer->no_frames = 0;
}

/* Writes everything from record `first` on. */
static void write_all(void *argument, struct sink *sink, size_t first)
{
    struct snapshot_writer *writer = argument;
    forget_memos(writer);
    writer->first = first;
    pickle_begin(&writer->pickle, sink);
    pickle_dict_begin(&writer->pickle);
    write_segments(writer);
    write_traces(writer);
    write_settings(writer);
    write_annotations(writer);
    write_own(writer);
    pickle_dict_end(&writer->pickle);
    pickle_end(&writer->pickle);
}

static size_t power_above(size_t least)
{
    size_t power = 1024;
    while (power < least)
        power *= 2;
    return power;
}

static bool tables_make(struct snapshot_writer *writer)
{
    writer->stack_count = atomic_load(&trace_stacks.used) + 1;
    writer->place_count = trace_places_most() + 1;
    writer->note_slots = power_above(4 * (size_t)atomic_load(&trace_regions.used));
    writer->stacks = pages_alloc(writer->stack_count * sizeof *writer->stacks);
    writer->places = pages_alloc(writer->place_count * sizeof *writer->places);
    writer->notes = pages_alloc(writer->note_slots * sizeof *writer->notes);
    bool named = writer->stack_count == 1 || (writer->symbols = symbols_open());
    return writer->stacks && writer->places && writer->notes && named;
}

static void tables_free(struct snapshot_writer *writer)
{
    symbols_close(writer->symbols);
    pages_free(writer->notes, writer->note_slots * sizeof *writer->notes);
    pages_free(writer->places, writer->place_count * sizeof *writer->places);
    pages_free(writer->stacks, writer->stack_count * sizeof *writer->stacks);
}

tarn_status snapshot_write_pickle(const struct picture *picture, struct sink *sink, uint64_t most)
{
    struct snapshot_writer *writer = pages_alloc(sizeof *writer);
    if (!writer)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to write a snapshot");
    *writer = (struct snapshot_writer){.picture = picture};
    size_t first = 0;
    tarn_status status = TARN_OK;
    if (!tables_make(writer))
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to write a snapshot");
    else
        status = fit(write_all, writer, picture->trace.count, most, &first);
    if (!status)
        write_all(writer, sink, first);
    tables_free(writer);
    pages_free(writer, sizeof *writer);
    return status;
}
