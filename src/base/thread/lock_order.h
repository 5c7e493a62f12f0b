/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* All locks of the library and of its simulated devices, in the one order in which they are taken.
 * A lock is taken only while holding locks that come before it, and no lock of its own rank. One
 * exception: the holder of `heaps_lock` may take the locks of several heaps. A try may violate the
 * order, as it does not wait.
 *
 * No lock is held over a wait, a driver call that may wait, a call of the loader, or a callback.
 * The row of a lock names its exceptions. scripts/check-locks compares the list with the
 * sources. */
#ifndef TARN_BASE_LOCK_ORDER_H
#define TARN_BASE_LOCK_ORDER_H

/* Rank, the lock with its file, what it protects. */
#define LOCK_LIST(X)                                                                               \
    X(MOVING, "an arena's moving (moves.h)",                                                       \
      "shared by code that moves memory between heaps, cache and driver; exclusive for "           \
      "the one attempt that decides on out of memory. Held over the driver's calls that "          \
      "move memory, and over the callbacks that tell observers of it. So it comes first: "         \
      "an observer may make calls that take any other lock")                                       \
    X(RANGE, "a range's lock (memory/range/range.h)",                                              \
      "its marks, its holds, and which pages change hands with the driver. Held as `moving` "      \
      "is, over the driver's calls that map and unmap its pages, and over what observers learn "   \
      "of them")                                                                                   \
    X(SETUP, "setup_lock (device.c)",                                                              \
      "the making of the table of devices; the list of shutdown callbacks. Not held while "        \
      "libraries are opened")                                                                      \
    X(CHOICE, "choice_lock (driver.c)",                                                            \
      "which driver the process uses. Threads search for one without it, and the first "           \
      "that takes it decides")                                                                     \
    X(TURNING, "turning (tracing.c)", "who turns the trace on or off, until all threads know")     \
    X(REPORT_CONTROL, "reporter.control (live.c)",                                                 \
      "who starts and stops the thread that reports; held over that thread's end, and over a "     \
      "fork. Surveys and files are made without it")                                               \
    X(REPORT, "reporter.lock (live.c)", "what the thread that reports is to do")                   \
    X(ENABLE, "enable_lock (peer.c)",                                                              \
      "one peer is enabled at a time; held over the driver's calls for that")                      \
    X(REGISTRY, "registry_lock (registry.c)", "the list of libraries. Never held with an entry's") \
    X(LIBRARY, "a library's lock (registry.h)",                                                    \
      "what its loading has found, which runs without it")                                         \
    X(SHELF, "a shelf's lock (handle/handle.h)",                                                   \
      "the handles of a library on a device. Not held over a create or a destroy")                 \
    X(HANDLE, "a handle's lock (handle/handle.h)",                                                 \
      "what the vendor was told last, its workspaces; held over the vendor's calls that set "      \
      "stream and workspace; over no memory call but tarn_record_stream()")                        \
    X(WORKING, "working (debug/work.c)",                                                           \
      "debug mode's streams, buffer and quarantines, and what is ready; held over its own "        \
      "copies and the waits for them, which depend on no other work")                              \
    X(COLLECTING, "collecting (memory/pool/pool.c)", "the ends of pools: one thread at a time")    \
    X(SCOPES, "scopes_lock (scope.c)",                                                             \
      "the open scopes; held over the question whether a stream captures")                         \
    X(ENTERING, "entering (stream.c)",                                                             \
      "which native stream has which slot, adoptions; held over the driver's answers about a "     \
      "stream, and over a retirement")                                                             \
    X(EXPORTS, "exports_lock (pool_export.c)",                                                     \
      "which pools are exported, and the number of each one's layout; held while its segments "    \
      "are noted")                                                                                 \
    X(KEEP_TALKING, "a kept pool's talking (memory/keep/keep.h)",                                  \
      "one request to the pool's owner at a time; held over the wait for its answer, which the "   \
      "owner gives at once, over the driver's calls by which a reader maps and unmaps what the "   \
      "answer says, and over exports for a new owner")                                             \
    X(KEEPS, "keeps_lock (memory/keep/window.c)",                                                  \
      "the list of kept pools; held over the driver's calls that map their segments, those that "  \
      "give a new peer access to them, and those that release what was refused before")            \
    X(HEAPS, "heaps_lock (heaps.c)",                                                               \
      "the creation of heaps: one per stream and pool. Its holder may hold the locks of "          \
      "several heaps")                                                                             \
    X(ARENAS, "arenas_lock (arena.c)",                                                             \
      "the making of an arena; held over the reservation of its addresses")                        \
    X(MAPPING, "an arena's mapping (arena.h)",                                                     \
      "shared by code that maps or unmaps, alone for code that grants a new peer what is "         \
      "mapped; held over those driver calls")                                                      \
    X(HEAP, "a heap's lock (heap/heap.h)",                                                         \
      "its zones, spans, slabs, waiting blocks, batches, list of caches; a revoked cache. Held "   \
      "over the record and the query of an event, over the questions whether a stream captures "   \
      "and what a node of its graph waits for, over free_async, and over the driver's calls by "   \
      "which a compaction exchanges a piece, on a device without work")                            \
    X(RELEASE, "releaser.lock (pressure/release.c)",                                               \
      "whether the thread that gives idle memory back runs, and its interval; held over "          \
      "its start")                                                                                 \
    X(PINNED_SETTINGS, "pinned_settings_lock (pinned.c)",                                          \
      "the settings of pinned memory; held over the start and the end of its background thread")   \
    X(PINNED, "pinned.lock (pinned/heap.h)",                                                       \
      "all of pinned memory; held over questions about events, and records of marks that "         \
      "failed before")                                                                             \
    X(STREAMS, "streams_lock (stream_slots.c)",                                                    \
      "the slots of streams, which are read without it; adoption, retired streams' last work")     \
    X(STREAM, "a stream slot's lock (stream.h)",                                                   \
      "its retirement, and what is asked and recorded on it meanwhile")                            \
    X(RECORD, "a device's record_lock (device.h)",                                                 \
      "the question whether a stream captures together with the record that follows; a known "     \
      "begin")                                                                                     \
    X(CAPTURES, "captures_lock (capture.c)", "the known captures")                                 \
    X(DEVICE, "a device's lock (device.h)",                                                        \
      "its pooled, leased, ended and returned streams; marks to reuse")                            \
    X(EVENT, "an event's lock (mark.c)", "which mark it has")                                      \
    X(ANCHORS, "anchors_lock (anchor.c)", "which ranges callers have anchored")                    \
    X(ARENA, "an arena's lock (arena.h)",                                                          \
      "claimed addresses, unmapped pieces, stuck pieces, reserved bytes, limit, list of heaps. "   \
      "Where a driver's call finds its device lost, what is held over that call has it too")       \
    X(TRACE_SETTINGS, "trace_settings_lock (tracing.c)", "how the trace is to be")                 \
    X(RINGS, "rings_lock (trace.c)", "the rings of threads")                                       \
    X(SIM_START, "start_lock (sim.c)", "the start of a simulated driver")                          \
    X(SIM_CONTEXTS, "contexts_lock (sim/cuda/device.c)", "who holds the simulated contexts")       \
    X(SIM_POOLS, "pools_lock (pools.c)",                                                           \
      "the simulated pools, and what has been allocated from them")                                \
    X(LAUNCHED, "a driver's graphs' lock (launched.h)",                                            \
      "the graphs that were launched. The vendor may lock under it")                               \
    X(HIP_RANGES, "ranges_lock (hip_virtual.c)",                                                   \
      "what is mapped where. The vendor may lock under it")                                        \
    X(HOST_CONFIGURATION, "configuration.lock (host.c)", "the host device's configuration")        \
    X(HOST_SETTLE, "settle_lock (host.c)",                                                         \
      "one thread at a time does what calls have left to be done. Held over the function "         \
      "that reports are delivered to")                                                             \
    X(HOST_DELIVER, "deliver_lock (host_check.c)",                                                 \
      "reports are delivered one at a time and in order; held over the function that they are "    \
      "delivered to")                                                                              \
    X(HOST_MEMORY, "host_memory_lock (host_address.c)",                                            \
      "the host device's addresses, pieces and mappings; held over system calls")                  \
    X(HOST_STREAMS, "queues_lock (host_stream.c)", "the host device's queues, events and clock")   \
    X(LEAF, "a leaf", "see LEAF_LIST. Not taken under another leaf")                               \
    X(OBJECTS, "an object pool's lock (pages.h)", "its list of free objects. Taken under any")     \
    X(SPIN, "the counters' lock (counters.h)",                                                     \
      "the counters of an arena and of its pools, and which parts are open; a spinlock, taken "    \
      "under any")                                                                                 \
    X(PART, "a part's lock (counters.h)",                                                          \
      "what a heap counts by itself, which of its blocks with a span are live, its parked "        \
      "spans; a spinlock, taken under any, the counters' lock too")

/* The locks of the rank LEAF: the lock with its file, what it protects. Under one, code takes only
 * an object pool's lock and spinlocks. */
#define LEAF_LIST(X)                                                                              \
    X("config_lock (config.c)",                                                                   \
      "the settings in force, and the list of what learns of a change, without it")               \
    X("sleepers_lock (sleepers.c)",                                                               \
      "the list of sleepers, but not `refused`, `in_part`; not over callbacks")                   \
    X("a store's heaps.lookup (arena.h)", "its table of heaps by stream")                         \
    X("an arena's sets.lock (arena.h)",                                                           \
      "the sets of heaps, and the sums and indices over them (heap/sets.c, heap/sums.c)")         \
    X("a heap's caches.lock (heap/caches.h)",                                                     \
      "its caches, for code that looks at them without the heap's lock")                          \
    X("segments_lock (segment.c)",                                                                \
      "the table of plain segments, entries of pages that they share")                            \
    X("imports_lock (import.c)", "which shares are imported")                                     \
    X("range_set_lock (memory/range/set.c)", "which ranges there are")                            \
    X("imported_lock (pool_import.c)", "which segments an imported pool has, and where")          \
    X("a kept pool's lock (memory/keep/keep.h)", "its segments and its sealed blocks")            \
    X("a kept pool's files.lock (memory/keep/keep.h)",                                            \
      "the files of segments that were taken over")                                               \
    X("pipe_lock (memory/keep/pipe.c)",                                                           \
      "the making of the pipe that an owner of kept pools watches")                               \
    X("leaves_lock (map.c)", "the making of the page map's leaves")                               \
    X("stats_lock (workspace_stats.c)", "the sums of workspaces")                                 \
    X("calls_lock (workspace.c)", "the calls that have a workspace of their own")                 \
    X("told_lock (nvtx.c)", "the segments reported to a tool, without it")                        \
    X("nvml_lock (cuda_monitor.c)",                                                               \
      "publishes to all threads the functions of NVML that one has found")                        \
    X("symbols_lock (symbols.c)",                                                                 \
      "publishes to all threads the functions of libdw that one has found")                       \
    X("copiers_lock (base/thread/copiers.h)",                                                     \
      "the copies that threads are still to make; not held over a copy")                          \
    X("names_lock (debug/report.c)", "the names of frames in debug mode's reports")               \
    X("holders_lock (handle/handle.c)", "the holders of threads")                                 \
    X("holds_lock (memory/pool/graph.c)", "which graphs hold which pools")                        \
    X("observers_lock (observe.c)", "the list of observers, which are told without it")           \
    X("debug_lock (debug/debug.c)", "debug mode's records of blocks")                             \
    X("reports_lock (debug/report.c)",                                                            \
      "debug mode's reports that wait for the caller's function, which is called without it")     \
    X("injection.lock (host.c)", "which calls of the host device fail")                           \
    X("user_objects_lock (user_object.c)", "user objects of a simulated driver's graphs")         \
    X("nodes_lock (nodes.c)", "what is known of nodes of a simulated driver's graphs")            \
    X("kernels_lock (sim/hip/kernel.c)", "kernels of the simulated libamdhip64")                  \
    X("graphs_lock (graph.c)", "of a simulated driver: which graphs live, and who holds them")    \
    X("remembered_lock (report/graph/remembered.c)", "what is remembered of graphs")              \
    X("a table of numbers' lock (intern.h)", "what gets a number, which is looked up without it") \
    X("places_lock (place.c)", "the numbers of pools and their streams, in the trace")

enum lock_rank {
#define X(rank, name, protects) LOCK_##rank,
    LOCK_LIST(X)
#undef X
};

#endif
