/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* From segments to what a program did.
 *
 * PyTorch gives segments back for two reasons: memory is short, or the program has called
 * empty_cache(). A trace does not say which. So a run of segments that go counts as a shortage in
 * two cases, and otherwise as the program's call:
 *   - an out-of-memory error follows at once
 *   - a new segment follows at once, and both of this hold. Without the run, the new segment would
 *     have raised reserved memory above its peak in the trace, so there was no room for it. And no
 *     segment of the run could have served the request that the new one is for: PyTorch would have
 *     used that segment first */
#include "input/workload_segments.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_SEGMENT (UINT64_C(2) << 20) /* bytes */
#define LARGE_PAGE (UINT64_C(20) << 20)   /* bytes */

static bool gives_back(const struct snapshot_event *event)
{
    return event->action == SNAPSHOT_SEGMENT_FREE || event->action == SNAPSHOT_SEGMENT_UNMAP;
}

static bool takes(const struct snapshot_event *event)
{
    return event->action == SNAPSHOT_SEGMENT_ALLOC || event->action == SNAPSHOT_SEGMENT_MAP;
}

/* ---- what was reserved ---- */

/* Back from the final segments, event by event. Not known where nothing speaks of segments, or
 * where what speaks of them cannot be. */
static void find_peak(struct trace_segments *segments, const struct snapshot *snapshot, int device)
{
    const struct snapshot_trace *trace = segments->trace;
    uint64_t reserved = 0, evidence = 0;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct snapshot_segment *segment = &snapshot->segments[i];
        if (segment->device != device)
            continue;
        evidence++;
        if (__builtin_add_overflow(reserved, segment->total_size, &reserved))
            return;
    }
    segments->peak = reserved;
    for (size_t i = trace->event_count; i-- > 0;) {
        const struct snapshot_event *event = &trace->events[i];
        evidence += takes(event) || gives_back(event);
        if ((takes(event) && __builtin_sub_overflow(reserved, event->size, &reserved)) ||
            (gives_back(event) && __builtin_add_overflow(reserved, event->size, &reserved)))
            return;
        if (reserved > segments->peak)
            segments->peak = reserved;
    }
    segments->reserved = reserved;
    segments->known = evidence > 0;
}

/* ---- private pools ---- */

static int compare_segments(const void *left, const void *right)
{
    const struct private_segment *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

/* The private segment that an address is in; NULL for none. */
static struct private_segment *segment_of(const struct trace_segments *segments, uint64_t address)
{
    size_t low = 0, high = segments->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (segments->segments[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < segments->segment_count && segments->segments[low].address <= address;
    return found ? &segments->segments[low] : NULL;
}

static bool find_private(struct trace_segments *segments, const struct snapshot *snapshot,
                         int device)
{
    const struct snapshot_trace *trace = segments->trace;
    segments->segments = calloc(snapshot->segment_count + 1, sizeof *segments->segments);
    segments->last_alloc = calloc(snapshot->pool_count + 1, sizeof *segments->last_alloc);
    if (!segments->segments || !segments->last_alloc)
        return false;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const struct snapshot_segment *segment = &snapshot->segments[i];
        uint64_t end;
        if (segment->device == device && segment->pool_place && segment->total_size &&
            !__builtin_add_overflow(segment->address, segment->total_size, &end))
            segments->segments[segments->segment_count++] =
                (struct private_segment){segment->address, end, segment->pool_place, 0};
    }
    qsort(segments->segments, segments->segment_count, sizeof *segments->segments,
          compare_segments);
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct snapshot_event *event = &trace->events[i];
        struct private_segment *segment =
            event->action == SNAPSHOT_SEGMENT_ALLOC ? segment_of(segments, event->address) : NULL;
        if (segment)
            segment->from = i;
        if (event->action == SNAPSHOT_ALLOC)
            segments->last_alloc[event->pool] = i + 1;
    }
    return true;
}

uint32_t trace_segments_pool(const struct trace_segments *segments, size_t number)
{
    const struct snapshot_event *event = &segments->trace->events[number];
    const struct private_segment *segment =
        event->pool ? NULL : segment_of(segments, event->address);
    return segment && number >= segment->from ? segment->pool : event->pool;
}

/* ---- the walk ---- */

/* Whether a segment is of those for requests of up to 1 MiB: they are of 2 MiB, or mapped in pages
 * of that size, others in pages of 20 MiB. Source: pytorch/pytorch,
 * c10/cuda/CUDACachingAllocator.cpp, kSmallBuffer and kLargeBuffer. */
static bool is_small(const struct snapshot_event *event)
{
    return event->action == SNAPSHOT_SEGMENT_UNMAP || event->action == SNAPSHOT_SEGMENT_MAP
               ? event->size % LARGE_PAGE != 0
               : event->size <= SMALL_SEGMENT;
}

/* Whether one of the segments that go in [first, end) could have served what the next one is for,
 * event `end`. With a largest size to split PyTorch passes over some, and then it does not say
 * anything. */
static bool was_there(const struct trace_segments *segments, size_t first, size_t end)
{
    const struct snapshot_trace *trace = segments->trace;
    const struct snapshot_event *next = &trace->events[end];
    size_t request = end;
    while (request < trace->event_count && takes(&trace->events[request]))
        request++;
    bool known = request < trace->event_count && trace->events[request].action == SNAPSHOT_ALLOC;
    uint64_t size = known ? trace->events[request].size : next->size;
    for (size_t i = first; i < end && !segments->splits_some; i++) {
        const struct snapshot_event *gone = &trace->events[i];
        if (gives_back(gone) && gone->stream == next->stream && gone->pool == next->pool &&
            is_small(gone) == is_small(next) && gone->size >= size)
            return true;
    }
    return false;
}

/* Finds where a run of segments that go ends, and whether it was for lack of memory. Frees that
 * were waited for are in it. */
static bool run_is_short(struct trace_segments *segments, size_t first, bool *of_default)
{
    const struct snapshot_trace *trace = segments->trace;
    size_t end = first;
    for (; end < trace->event_count; end++) {
        const struct snapshot_event *event = &trace->events[end];
        if (!gives_back(event) && event->action != SNAPSHOT_FREE_COMPLETED)
            break;
        *of_default = *of_default || (gives_back(event) && !event->pool);
    }
    segments->run_end = end;
    if (end == trace->event_count)
        return false;
    const struct snapshot_event *next = &trace->events[end];
    if (next->action == SNAPSHOT_OOM)
        return true;
    return takes(next) && (!segments->known || next->size > segments->peak - segments->reserved) &&
           !was_there(segments, first, end);
}

struct trace_given trace_segments_next(struct trace_segments *segments, size_t number)
{
    const struct snapshot_event *event = &segments->trace->events[number];
    struct trace_given given = {0};
    if (segments->of_driver && gives_back(event)) { /* which is the block's own free */
        segments->reserved -= segments->known ? event->size : 0;
        return given;
    }
    if (takes(event) && segments->known)
        segments->reserved += event->size;
    if (!gives_back(event))
        return given;
    bool of_default = false;
    if (number >= segments->run_end)
        given.trimmed = !run_is_short(segments, number, &of_default) && of_default;
    if (segments->known)
        segments->reserved -= event->size;
    if (segments->last_alloc[event->pool] <= number)
        given.pool_ends = event->pool;
    return given;
}

bool trace_segments_init(struct trace_segments *segments, const struct snapshot *snapshot,
                         int device)
{
    const char *conf = snapshot_text(snapshot, snapshot->settings.conf);
    *segments = (struct trace_segments){.trace = &snapshot->traces[device],
                                        .of_driver = snapshot->of_driver,
                                        .splits_some = strstr(conf, "max_split_size_mb") != NULL};
    find_peak(segments, snapshot, device);
    if (find_private(segments, snapshot, device))
        return true;
    trace_segments_finish(segments);
    return false;
}

void trace_segments_finish(struct trace_segments *segments)
{
    free(segments->segments);
    free(segments->last_alloc);
    *segments = (struct trace_segments){0};
}
