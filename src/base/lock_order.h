/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The order of all locks: a lock is taken under those that come before it and under no other, of its own rank neither. docs/architecture.md
 * says what each protects, and which of these orders are made use of. */
#ifndef TARN_BASE_LOCK_ORDER_H
#define TARN_BASE_LOCK_ORDER_H

/* Rank, the lock in words. From LEAF on none is taken under another one of these. */
#define LOCK_LIST(X)                                                 \
    X(MOVING, "an arena's `moving`")                                 \
    X(SETUP, "setup_lock (device.c)")                                \
    X(CHOICE, "choice_lock (driver.c)")                              \
    X(TURNING, "turning (tracing.c)")                                \
    X(REPORT_CONTROL, "reporter.control (live.c)")                   \
    X(REPORT, "reporter.lock (live.c)")                              \
    X(ENABLE, "enable_lock (peer.c)")                                \
    X(REGISTRY, "registry_lock (registry.c)")                        \
    X(LIBRARY, "the lock of a library's entry (registry.h)")         \
    X(HOLDERS, "holders_lock (handle/pool.c)")                       \
    X(HANDLE_POOL, "a handle pool's lock")                           \
    X(HANDLE, "a handle's lock")                                     \
    X(WORKING, "working (debug/work.c)")                             \
    X(COLLECTING, "collecting (pool.c)")                             \
    X(SCOPES, "scopes_lock (scope.c)")                               \
    X(HEAPS, "heaps_lock (heap.c)")                                  \
    X(ARENAS, "arenas_lock (arena.c)")                               \
    X(MAPPING, "an arena's `mapping`")                               \
    X(HEAP, "a heap's lock")                                         \
    X(PINNED_SETTINGS, "settings_lock (pinned.c)")                   \
    X(PINNED, "pinned.lock (pinned/heap.h)")                         \
    X(STREAMS, "table_lock (stream.c)")                              \
    X(STREAM, "a stream slot's lock")                                \
    X(RECORD, "a device's `record_lock`")                            \
    X(CAPTURES, "table_lock (capture.c)")                            \
    X(DEVICE, "a device's lock")                                     \
    X(EVENT, "an event's lock")                                      \
    X(PINS, "pins_lock (pin.c)")                                     \
    X(ARENA, "an arena's lock")                                      \
    X(OBSERVERS, "observers_lock (observe.c)")                       \
    X(TRACE_SETTINGS, "settings_lock (tracing.c)")                   \
    X(RINGS, "rings_lock (trace.c)")                                 \
    X(PLACES, "the lock of the places (record/place.c)")             \
    X(INTERN, "the lock of a table of numbers (intern.h)")           \
    X(SIM, "a simulated vendor's lock (sim)")                        \
    X(SIM_CONTEXTS, "contexts_lock (sim/cuda)")                      \
    X(CUDA_DEVICE, "the lock of a CUDA device's first use (cuda.h)") \
    X(LAUNCHED, "the lock of a driver's graphs (launched.h)")        \
    X(HIP_RANGES, "ranges_lock (hip_virtual.c)")                     \
    X(HOST_CONFIGURATION, "the host device's configuration")         \
    X(HOST_SETTLE, "settle_lock (host.c)")                           \
    X(HOST_DELIVER, "deliver_lock (host_check.c)")                   \
    X(HOST_MEMORY, "host_memory_lock (host_address.c)")              \
    X(HOST_STREAMS, "the host device's streams")                     \
    X(HOST_INJECTION, "the host device's failures")                  \
    X(SIM_OBJECTS, "the lock of user objects (sim)")                 \
    X(DEBUG, "debug_lock (debug.c)")                                 \
    X(DEBUG_REPORTS, "reports_lock (debug/report.c)")                \
    X(LEAF, "a leaf's lock")                                         \
    X(OBJECTS, "an object pool's lock")                              \
    X(SPIN, "a spinlock")

enum lock_rank {
#define X(name, text) LOCK_##name,
    LOCK_LIST(X)
#undef X
};

#endif
