/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The beginning and the end of the memory layer, and the table `hooks` of functions that its lower
 * rooms call. Owns nothing else. */
#include "memory/settings/hooks.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "memory/arena/observe.h"
#include "memory/debug/debug.h"
#include "memory/heap/cache.h"
#include "memory/heap/traced.h"
#include "memory/keep/keep.h"
#include "memory/pinned/pinned.h"
#include "memory/plan/plan.h"
#include "memory/pool/graph.h"
#include "memory/pool/pool.h"
#include "memory/pool/referred.h"
#include "memory/pressure/release.h"
#include "memory/pressure/shortage.h"
#include "memory/pressure/trim.h"
#include "memory/range/range.h"
#include "memory/share/pointer.h"

static void memory_shutdown(void)
{
    release_end();
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (!arena)
            continue;
        heaps_close(arena);
        pools_leave_behind(arena);
        (void)trim(arena, NULL, 0);
        ranges_finish(arena);
        debug_shutdown(arena);
        pools_collect_all(arena);
        if (!arena_finish(arena))
            device_keep_driver(); /* live blocks keep their memory, and need the driver */
    }
    debug_finish();
}

/* Destroys pools whose last graph has ended in a thread of the driver, where no call is allowed. */
static void collect_pools(void)
{
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (arena)
            pools_collect(arena);
    }
}

static tarn_status grant(struct device *device, int peer)
{
    tarn_status status = arena_grant(device, peer);
    return status ? status : ranges_grant(device, peer);
}

static void memory_lost(struct device *device)
{
    struct arena *arena = arena_if_used(device->number);
    if (arena)
        heaps_lose(arena);
}

static void memory_thread_end(struct thread *thread)
{
    if (atomic_load(&process_state) != PROCESS_RUNS)
        return; /* a shutdown has already closed the caches */
    scopes_of_thread_end(thread);
    caches_of_thread_end(thread);
}

static void memory_begin(void)
{
    caches_init();
    stream_on_retire(heap_retire);
    thread_on_end(THREAD_MEMORY, memory_thread_end);
    device_on_shutdown(memory_shutdown);
    peers_on_enable(grant);
    device_on_lost(memory_lost);
    captures_on_end(graph_capture_ended);
    captures_on_keep(graph_capture_keeps);
    tracing_on_turn(heaps_trace_turned);
    debug_init();
    keep_begin();
    release_start();
}

static void memory_configured(struct config_named named)
{
    arenas_configure(named.limit);
    pinned_configure(named.pinned_limit);
    release_configure();
}

const struct hooks hooks = {
    .begin = memory_begin,
    .configured = memory_configured,
    .collect_pools = collect_pools,
    .debug_turn = debug_turn,
    .debug_free_locked = debug_free_locked,
    .debug_ended_locked = debug_ended_locked,
    .debug_is_over = debug_is_over,
    .debug_gone_locked = debug_gone_locked,
    .debug_relieve = debug_relieve,
    .debug_settle = debug_settle,
    .debug_forget = debug_forget,
    .debug_pause = debug_pause,
    .debug_go_on = debug_go_on,
    .referred_end_remotely = referred_end_remotely,
    .plan_end_locked = plan_end_locked,
    .keep_segment = keep_segment,
    .keep_give_back = keep_give_back,
    .keeps_free_stuck = keeps_free_stuck,
    .keep_forget_locked = keep_forget_locked,
    .keep_spare = keep_spare,
    .keep_forget_all = keep_forget_all,
    .keep_vacate = keep_vacate,
    .keep_occupy = keep_occupy,
    .keep_refuse_suspend = keep_refuse_suspend,
    .keep_let_go = keep_let_go,
    .keep_refuse_pointer = keep_refuse_pointer,
    .keep_is_full = keep_is_full,
    .keep_took_over = keep_took_over,
    .keeps_grant = keeps_grant,
    .give_back = trim_without_waiting,
    .make_room = trim_make_room,
    .refuse_resume = shortage_refuse_resume,
    .trim = trim,
    .shortage_helped = shortage_helped,
    .refuse_range = shortage_refuse_range,
    .marks_wanted = release_mark,
    .anchors_any = anchors_any,
    .ranges_leave = ranges_leave,
};
