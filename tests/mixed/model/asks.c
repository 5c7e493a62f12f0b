/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares tarn's answers with what the model knows; also settings and reports. */
#include "mixed/model/mixed.h"

#include <tarn/debug.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <tarn/sleep.h>
#include <unistd.h>

static struct actor_state {
    unsigned regions;
} state_of[ACTORS];

/* ---- Devices, streams, events ---- */

static void ask_device(void)
{
    int device = (int)below((unsigned)m.devices), count = 0, current = -1;
    size_t free_bytes = 0, total = 0, limit = 0;
    tarn_device_properties properties = {.size = sizeof properties};
    tarn_guard guard = {0};
    if (WELL(0, tarn_device_count_get, &count))
        SO(count == m.devices, "another number of devices", "%d", count);
    if (WELL(0, tarn_device_get, &current))
        SO(current == 0, "a thread has another device", "%d", current);
    if (WELL(0, tarn_device_properties_get, device, &properties))
        SO(properties.memory == m.memory, "a device has other memory", "%zu", properties.memory);
    if (WELL(0, tarn_device_memory_get, device, &free_bytes, &total))
        SO(free_bytes <= total && total == m.memory, "a device has other memory", "%zu of %zu",
           free_bytes, total);
    if (WELL(0, tarn_device_limit_get, device, &limit))
        SO(limit == m.limit[device], "a limit is another", "%zu, not %zu", limit, m.limit[device]);
    if (CHANCE(10))
        (void)WELL(0, tarn_device_peer_enable, device, 1 - device);
    if (WELL(0, tarn_device_guard_set, &guard, device))
        SURE(tarn_guard_restore, &guard);
    if (CHANCE(4) && WELL(0, tarn_device_adopt, &current))
        MINE(tarn_device_set(0));
    if (CHANCE(4))
        (void)WELL(0, tarn_device_stats_reset, device, (tarn_stats_what)below(2));
}

static void ask_synchronize(void)
{
    int device = (int)below((unsigned)m.devices);
    bool barred = any_open(wait_ends_those_of(device));
    if (!WELL(barred ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_device_synchronize, device))
        return;
    SO(!barred, "a wait for a device that captures", "it was not refused");
    for (int i = 0; i < FLOWS; i++)
        if (m.flows[i].live && m.flows[i].device == device)
            SO(is_done((struct stamp){m.flows[i].lane, m.queued[m.flows[i].lane]}),
               "a wait ended too early", "flow %d", i);
}

static void ask_stream(void)
{
    struct flow *flow = some_flow(-1);
    tarn_stream_info info = {.size = sizeof info, .device = -1, .priority = 1};
    void *native = NULL;
    tarn_stream shared = 0;
    tarn_guard guard = {0};
    if (!flow || !flow_value(flow))
        return;
    if (WELL(0, tarn_stream_info_get, flow->value, &info)) {
        SO(flow->kind == LEGACY || info.device == flow->device, "a stream is of another device",
           "%d", info.device);
        SO(info.priority <= 0, "a priority is none", "%d", info.priority);
    }
    if (flow->kind != LEGACY && WELL(0, tarn_stream_native_get, flow->value, &native))
        SO(native == flow->native, "a stream is another", "%p", native);
    if (WELL(0, tarn_stream_guard_set, &guard, flow->value))
        SURE(tarn_guard_restore, &guard);
    if (CHANCE(8))
        (void)WELL(0, tarn_stream_shared_get, flow->device, 0, &shared);
}

static void ask_event(void)
{
    const struct event *event = &m.events[below(EVENTS)];
    bool waits = CHANCE(2);
    if (any_open(-1) && waits)
        return;
    tarn_status status =
        waits ? CALL(tarn_event_synchronize, event->event) : CALL(tarn_event_query, event->event);
    if (!well("an event", status,
              waits ? 0 : BIT(TARN_ERROR_NOT_READY) | (any_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0)))
        return;
    for (int i = 0; event->recorded && i < LANES; i++)
        SO(is_done((struct stamp){i, event->after[i]}), "an event says that work has ended",
           "lane %d", i);
}

/* ---- Pools ---- */

static void check_blocks(int index)
{
    static tarn_pool_block list[2 * BLOCKS];
    size_t count = 0, known = 0;
    if (!WELL(0, tarn_pool_blocks_get, m.pools[index].pool, list, 2 * BLOCKS, &count))
        return;
    for (int i = 0; i < BLOCKS; i++)
        known += m.blocks[i].live && m.blocks[i].pool == index;
    SO(count == known, "the live blocks of a pool are others", "%zu, and %zu are known", count,
       known);
    for (size_t i = 0; i < count; i++) {
        bool found = false;
        for (int k = 0; k < BLOCKS && !found; k++)
            found = m.blocks[k].live && m.blocks[k].start == list[i].address &&
                    m.blocks[k].usable == list[i].usable_size &&
                    m.blocks[k].size == list[i].requested;
        SO(found, "the live blocks of a pool are others", "%p", list[i].address);
    }
}

static void check_segments(int index)
{
    static tarn_mapping list[64];
    size_t count = 0;
    const struct pool *pool = &m.pools[index];
    uint64_t reasons = pool->registrable || pool->kept ? 0 : BIT(TARN_ERROR_INVALID_ARGUMENT);
    if (pool->state != TARN_POOL_RUNS)
        reasons |= BIT(TARN_ERROR_SUSPENDED);
    if (!WELL(reasons, tarn_pool_segments_get, pool->pool, list, 64, &count))
        return;
    if (pool->kept && m.kept[pool->kept - 1].numbered)
        return; /* blocks may lie in segments that were taken over, which are not listed */
    for (int i = 0; i < BLOCKS && count <= 64; i++) {
        bool found = !m.blocks[i].live || m.blocks[i].pool != index;
        for (size_t k = 0; k < count && !found; k++)
            found = (uintptr_t)m.blocks[i].start >= (uintptr_t)list[k].address &&
                    (uintptr_t)m.blocks[i].start + m.blocks[i].usable <=
                        (uintptr_t)list[k].address + list[k].bytes;
        SO(found, "a block lies in no segment", "%p", (void *)m.blocks[i].start);
    }
}

static void ask_pool(void)
{
    int index = pool_any(-1, false);
    tarn_pool *standard = NULL;
    tarn_pool_info info = {.size = sizeof info, .id = {1, 1}};
    tarn_stats stats = {.size = sizeof stats};
    if (WELL(0, tarn_pool_default, 0, &standard) && WELL(0, tarn_pool_info_get, standard, &info))
        SO(!info.id.first && !info.id.second, "the default pool has a name", "%" PRIu64 ",%" PRIu64,
           info.id.first, info.id.second);
    if (index < 0)
        return;
    const struct pool *pool = &m.pools[index];
    if (WELL(0, tarn_pool_info_get, pool->pool, &info)) {
        SO(info.device == pool->device, "a pool is of another device", "%d", info.device);
        SO(info.limit == pool->limit, "a limit is another", "%zu, not %zu", info.limit,
           pool->limit);
        SO(info.use_count >= (unsigned)(pool->users + pool->scopes), "a pool is counted too little",
           "%u, not %d and %d", info.use_count, pool->users, pool->scopes);
        SO((info.allocator != NULL) == pool->theirs, "a pool has another allocator", "pool %d",
           index);
        SO(info.tag == pool->tag, "a pool has another tag", "%u, not %u", info.tag, pool->tag);
    }
    if (WELL(0, tarn_pool_stats_get, pool->pool, &stats))
        SO(stats.allocated_bytes[0].current >= 0 && stats.reserved_bytes[0].current >= 0,
           "a counter is negative", "pool %d", index);
    check_blocks(index);
    check_segments(index);
}

static void op_hold(void)
{
    int index = pool_any(-1, false), holds = 0;
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].holds && CHANCE(2)) {
            if (WELL(0, tarn_pool_unhold, m.pools[i].pool)) {
                m.pools[i].holds--;
                m.pools[i].graphs--;
                pool_settle(i);
            }
            return;
        } else if (m.pools[i].live) {
            holds += m.pools[i].holds;
        }
    if (index < 0 || holds > 2 || !WELL(0, tarn_pool_hold, m.pools[index].pool, NULL))
        return;
    m.pools[index].holds++;
    m.pools[index].graphs++;
}

/* ---- Reports ---- */

static unsigned live_parts;
static uint64_t segment_bytes[DEVICES];

static void take_segment(const tarn_memory_segment *segment, void *user)
{
    uintptr_t at = (uintptr_t)segment->address;
    (void)user;
    segment_bytes[segment->device] += segment->bytes;
    for (size_t i = 0; i < segment->part_count; i++) {
        const tarn_memory_part *part = &segment->parts[i];
        SO((uintptr_t)part->address == at, "parts of a segment leave a gap", "%p", part->address);
        at += part->bytes;
        for (int k = 0; k < BLOCKS && part->state == TARN_MEMORY_LIVE; k++)
            if (m.blocks[k].live && m.blocks[k].start == part->address) {
                SO(m.blocks[k].usable == part->bytes && m.blocks[k].size == part->requested &&
                       m.blocks[k].device == segment->device && m.blocks[k].tag == part->tag,
                   "a list shows another block",
                   "%p: %zu of %zu bytes with tag %u of device %d, not %zu of %zu with %u of %d",
                   part->address, part->requested, part->bytes, part->tag, segment->device,
                   m.blocks[k].size, m.blocks[k].usable, m.blocks[k].tag, m.blocks[k].device);
                live_parts++;
            }
        for (int k = 0; k < BLOCKS && part->state == TARN_MEMORY_FREE; k++)
            SO(!m.blocks[k].live || m.blocks[k].start < (unsigned char *)part->address ||
                   m.blocks[k].start >= (unsigned char *)part->address + part->bytes ||
                   !block_is_usable(&m.blocks[k]),
               "a list shows a live block as free", "%p", (void *)m.blocks[k].start);
    }
    SO(at == (uintptr_t)segment->address + segment->bytes, "parts of a segment are not all of it",
       "%p", segment->address);
}

void memory_look(void)
{
    unsigned known = 0;
    live_parts = 0;
    memset(segment_bytes, 0, sizeof segment_bytes);
    if (!WELL(0, tarn_memory_list, take_segment, NULL))
        return;
    for (int i = 0; i < BLOCKS; i++)
        known += m.blocks[i].live && block_is_usable(&m.blocks[i]) && !(m.blocks[i].pool == -2);
    SO(live_parts >= known, "a list lacks live blocks", "%u of %u", live_parts, known);
}

static int64_t kinds;

static void take_kind(const tarn_metadata_kind *kind, void *user)
{
    (void)user;
    SO(kind->records >= 0 && kind->bytes >= 0 && kind->name, "a kind of record is negative", "%s",
       kind->name);
    kinds++;
}

static bool take(const void *data, size_t size, void *user)
{
    (void)data;
    *(size_t *)user += size;
    return true;
}

static void write_file(void)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/tarn-mixed-%ld", (long)getpid());
    (void)WELL(BIT(TARN_ERROR_SYSTEM), tarn_snapshot_write, path, NULL);
    (void)unlink(path);
}

static void op_report(void)
{
    size_t size = 0;
    tarn_snapshot_options options = {.size = sizeof options,
                                     .format =
                                         CHANCE(2) ? TARN_SNAPSHOT_CHROME : TARN_SNAPSHOT_PICKLE,
                                     .max_bytes = TARN_NO_LIMIT};
    switch (below(6)) {
    case 0:
    case 1:
        memory_look();
        return;
    case 2:
        (void)WELL(0, tarn_metadata_list, take_kind, NULL);
        return;
    case 3:
        if (WELL(0, tarn_metrics_print, take, &size))
            SO(size > 100, "metrics of nothing", "%zu bytes", size);
        return;
    case 4:
        if (WELL(0, tarn_snapshot_print, take, &size, &options))
            SO(size > 10, "a snapshot of nothing", "%zu bytes", size);
        return;
    default:
        write_file();
    }
}

static void op_trace(void)
{
    static unsigned live;
    uint64_t kept = 0, lost = 0;
    tarn_trace_options options = {.size = sizeof options, .records = 1000, .regions = CHANCE(2)};
    tarn_live_options page = {
        .size = sizeof page, .name = "mixed", .directory = "/dev/shm", .interval_ms = 1000};
    unsigned *regions = &state_of[m.actor].regions;
    switch (below(8)) {
    case 0:
        (void)WELL(0, tarn_trace_start, &options);
        return;
    case 1:
        (void)WELL0(0, tarn_trace_stop);
        return;
    case 2:
        (void)WELL0(0, tarn_trace_clear);
        return;
    case 3:
        (void)WELL(0, tarn_trace_count_get, &kept, &lost);
        return;
    case 4:
        if (live++ < 3 &&
            WELL(BIT(TARN_ERROR_BUSY) | BIT(TARN_ERROR_SYSTEM), tarn_live_start, &page))
            (void)WELL0(0, tarn_live_stop);
        return;
    case 5:
        *regions += WELL(0, tarn_region_push, "a region");
        return;
    default:
        if (*regions && WELL0(0, tarn_region_pop))
            --*regions;
    }
}

/* The actor is another thread from now on. */
void asks_forget(int actor)
{
    state_of[actor].regions = 0;
}

static void hear_report(const tarn_debug_report *report, void *user)
{
    (void)user;
    fault("debug mode reports", "%s", report->text);
}

/* ---- Settings ---- */

static void op_setting(void)
{
    char text[512];
    const char *note = NULL;
    size_t needed = 0;
    int device = (int)below((unsigned)m.devices);
    switch (below(5)) {
    case 0:
        if (WELL(0, tarn_configuration_get, text, sizeof text, &needed))
            SO(strlen(text) + 1 == needed, "the settings have another length", "%zu", needed);
        return;
    case 1:
        (void)WELL(0, tarn_configuration_note_get, 0, &note);
        return;
    case 2: /* settings that can change at any time and do not change what the model counts on */
        (void)WELL(0, tarn_configuration_set,
                   CHANCE(2) ? "garbage_collection_threshold:0.6" : "roundup_power2_divisions:4");
        return;
    case 3:
        tarn_debug_callback_set(hear_report, NULL);
        SO(tarn_debug_reports() == 0, "debug mode reports", "it is off");
        (void)WELL(any_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_debug_check, device);
        return;
    default:
        SO(strlen(tarn_version()) > 2 &&
               strcmp(tarn_status_text(TARN_OK), tarn_status_text(TARN_ERROR_SCOPE)) != 0,
           "texts are none", "%s", tarn_version());
    }
}

/* While caching is off, each block of a default pool is an allocation of the driver and is never
 * reused. */
void caching_turn(bool wanted)
{
    bool cached = m.uncached;
    if (WELL(0, tarn_caching_set, wanted, &cached)) {
        SO(cached == !m.uncached, "caching is not as it was set", "%d", cached);
        m.uncached = !wanted;
        m.was_uncached |= !wanted;
    }
}

static void op_caching(void)
{
    caching_turn(m.uncached ? below(4) : !CHANCE(4));
}

static void op_pinned(void)
{
    static size_t limit = TARN_NO_LIMIT;
    tarn_pinned_stats now = {.size = sizeof now};
    bool live = false;
    switch (below(5)) {
    case 0:
        if (WELL(0, tarn_pinned_limit_set, CHANCE(2) ? TARN_NO_LIMIT : (size_t)32 << 20))
            MINE(tarn_pinned_stats_get(&now)), limit = now.limit;
        if (WELL(0, tarn_pinned_stats_get, &now))
            SO(now.limit == limit, "a limit is another", "%zu, not %zu", (size_t)now.limit, limit);
        return;
    case 1:
        (void)WELL(0, tarn_configuration_set,
                   CHANCE(2) ? "pinned_use_background_threads:True"
                             : "pinned_use_background_threads:False");
        return;
    case 2:
        (void)WELL(0, tarn_pinned_stats_reset, (tarn_stats_what)below(2));
        return;
    case 3:
        if (pinned_is_without_graphs())
            (void)WELL0(0, tarn_pinned_forget_captures);
        return;
    default:
        for (int i = 0; i < PINNED; i++)
            SO(!m.pinned[i].live || tarn_pinned_contains(m.pinned[i].start + m.pinned[i].size / 2),
               "a pinned block is not known", "%p", (void *)m.pinned[i].start);
        for (int i = 0; i < BLOCKS && !live; i++)
            live = m.blocks[i].live && tarn_pinned_contains(m.blocks[i].start);
        SO(!live, "device memory is called pinned", "a block");
    }
}

static void op_library(void)
{
    tarn_library library = m.libraries[below(2)], found = 0;
    tarn_library_info info = {.size = sizeof info};
    tarn_handle_mode_for whose = CHANCE(2) ? TARN_HANDLE_MODE_FOR_ALL : TARN_HANDLE_MODE_FOR_THREAD;
    uint64_t ns = 1;
    tarn_handle_stats stats = {.size = sizeof stats};
    if (WELL(0, tarn_library_info_get, library, &info) &&
        WELL(0, tarn_library_find, info.name, &found))
        SO(found == library && info.found, "a library is another", "%s: %d", info.name, found);
    if (WELL(0, tarn_handle_wait_limit_set, 0, &ns))
        SO(ns == 0, "a thread waits for handles", "%" PRIu64, ns);
    (void)WELL(BIT(TARN_ERROR_NOT_SUPPORTED), tarn_handle_mode_set, library, TARN_HANDLE_MATH,
               whose, -1, NULL);
    if (WELL(0, tarn_handle_stats_get, library, 0, &stats)) {
        SO(stats.workspace_bytes > 0, "a library has no workspace", "%d", library);
        SO(stats.in_use + stats.available <= stats.created, "handles are counted twice",
           "%" PRIu64 " and %" PRIu64 " of %" PRIu64, stats.in_use, stats.available, stats.created);
    }
}

static void op_ask(void)
{
    static void (*const asks[])(void) = {ask_device, ask_synchronize, ask_stream,
                                         ask_event,  ask_pool,        ask_pool};
    asks[below(sizeof asks / sizeof *asks)]();
}

void asks_end(void)
{
    SURE(tarn_caching_set, true, NULL);
    for (int i = 0; i < POOLS; i++)
        while (m.pools[i].live && m.pools[i].holds) {
            SURE(tarn_pool_unhold, m.pools[i].pool);
            m.pools[i].holds--;
            m.pools[i].graphs--;
            pool_settle(i);
        }
    SURE0(tarn_pinned_forget_captures);
}

const struct operation ask_operations[] = {{"ask tarn", 10, NULL, op_ask, false},
                                           {"hold", 4, NULL, op_hold, false},
                                           {"report", 4, NULL, op_report, false},
                                           {"trace", 4, NULL, op_trace, false},
                                           {"setting", 2, NULL, op_setting, false},
                                           {"caching", 2, NULL, op_caching, false},
                                           {"ask of pinned", 2, NULL, op_pinned, false},
                                           {"ask of a library", 2, NULL, op_library, false},
                                           {NULL, 0, NULL, NULL, false}};
