/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The embedded host device: controls and observations for tests and tools. Not part of tarn.h.
 *
 * It is a real driver. Streams are queues; copies and host functions run in the background; events
 * complete when the work before them has. Physical memory is a memfd, mapped at reserved addresses
 * and committed when touched. In addition it keeps a ledger of what is created and mapped, charges
 * every call to a virtual clock by cost tables, makes calls fail on request, and checks what
 * streams do to memory.
 *
 * It refuses what CUDA refuses: a size that is not a multiple of the 2 MiB granule, a mapping over
 * another one or outside a reserved range, an unmap that cuts a mapping, access across a hole, a
 * released piece. A plain allocation takes whole granules, and its free waits for the device. The
 * legacy stream and the blocking streams of its device wait for each other; a query of it, or a
 * wait for it, covers all of them. A child of fork() has none of the device's memory. Captures
 * follow CUDA's rules, including what these refuse and invalidate. Devices access each other's
 * memory, unless TARN_HOST_PEERS=none.
 *
 * Streams are named here as the driver names them: `native` is what tarn_stream_native_get()
 * returns; NULL is the legacy stream of `device`. All functions are thread-safe. Those that need a
 * device choose the driver if that was not done yet. Every function may also return
 * TARN_ERROR_NOT_SUPPORTED where another driver was chosen, TARN_ERROR_FORKED in a child of fork(),
 * TARN_ERROR_NO_DRIVER, TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY, and
 * TARN_ERROR_INVALID_DEVICE for a device that is not there. tarn_shutdown() ends the device: after
 * it, these functions may return TARN_ERROR_INVALID_DEVICE. */
#ifndef TARN_HOST_H
#define TARN_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The properties of the host device. Its pinned memory (pinned.h) is memory of the machine: all
 * devices together pin no more than the machine has, touched or not. */
typedef struct tarn_host_configuration {
    size_t size;   /* sizeof(tarn_host_configuration) */
    int devices;   /* 1 to TARN_MAX_DEVICES; 0: TARN_HOST_DEVICES, or 1 */
    size_t memory; /* bytes per device, a multiple of 2 MiB; 0: TARN_HOST_MEMORY, or 16 GiB */
    /* Mappings allowed in the process; 0: TARN_HOST_MAPS, or vm.max_map_count minus a reserve. */
    size_t maps;
} tarn_host_configuration;

/* Configures the host device instead of the environment, and makes "host" the driver. Call it
 * before tarn is first used.
 *   TARN_ERROR_BUSY               tarn has been used already
 *   TARN_ERROR_INVALID_ARGUMENT   a value is out of range, or the size of the structure is
 *                                 unknown */
TARN_API tarn_status tarn_host_configuration_set(const tarn_host_configuration *config);

/* Returns the name of a kind of driver calls ("map", "event_record"). Kinds are numbers from 0;
 * NULL is returned behind the last, and for a negative one. */
#define TARN_HOST_MAX_KINDS 64
TARN_API const char *tarn_host_call_name(int kind);

/* The ledger of one device. Times are of the virtual clock, which is never slept. A call that fails
 * is counted and costs nothing; a query costs the same whatever it answers. Calls that name no
 * device are counted on device 0. */
typedef struct tarn_host_ledger {
    size_t size; /* sizeof(tarn_host_ledger), set by the caller */
    /* Bytes of pieces and plain allocations created and not released. */
    uint64_t created, created_peak;
    uint64_t mapped, mapped_peak; /* bytes of pieces mapped */
    /* Counts of what exists now; imported pieces count as mapped only. */
    uint64_t pieces, mappings, plain;
    uint64_t reserved_addresses; /* bytes of address ranges reserved */
    /* Count of ranges of host memory allocated or registered. */
    uint64_t pinned;
    uint64_t pinned_bytes, pinned_peak; /* bytes of these */
    uint64_t streams, events;           /* counts of what exists now, without the legacy stream */
    /* Count of what exists now on all devices, including open captures. */
    uint64_t graphs;
    uint64_t time_a_ns, time_b_ns; /* driver time by cost table A and B, waits included */
    uint64_t time_c_ns;            /* the same by C; only waits if there is no table C */
    uint64_t waited_ns;            /* part of these: waits for work */
    uint64_t reports;              /* by the checker */
    /* Driver calls on all devices that have failed because of the last tarn_host_fail_set(). */
    uint64_t failed;
    uint64_t calls[TARN_HOST_MAX_KINDS]; /* by kind */
} tarn_host_ledger;

/* Returns the ledger of a device.
 *   TARN_ERROR_INVALID_ARGUMENT   `ledger` is NULL, or its `size` is unknown */
TARN_API tarn_status tarn_host_ledger_get(int device, tarn_host_ledger *ledger);

/* Resets the ledger of a device: peaks become the current values; calls, times and reports become
 * zero. The counts of what exists stay. */
TARN_API tarn_status tarn_host_ledger_reset(int device);

/* Returns what a cost table, 'A', 'B' or 'C', charges for one call of a kind on `bytes` in `pieces`
 * pieces. A and B come from published figures, which disagree. C comes from the file that
 * TARN_HOST_COSTS names, with lines
 *   kind base_ns ns_per_mib [ns_per_piece]
 * in whole numbers and # before a comment, as scripts/gpu-check measures them. A kind that the file
 * does not list costs nothing. With a malformed file the first use of tarn fails with
 * TARN_ERROR_CONFIGURATION.
 *   TARN_ERROR_NOT_SUPPORTED      table C: no file is named
 *   TARN_ERROR_INVALID_ARGUMENT   the table or the kind is unknown, or `ns` is NULL */
TARN_API tarn_status tarn_host_cost_get(char table, int kind, size_t bytes, uint64_t pieces,
                                        uint64_t *ns);

/* Makes driver calls of one kind, or of every kind (-1), fail with `status` on every device, before
 * they have any effect: the `nth` from now (1 is the next), and with `forever` all after it. `nth`
 * 0 clears this. One such rule exists at a time: each call replaces the rule before, and sets
 * `failed` of the ledger to 0.
 *   TARN_ERROR_INVALID_ARGUMENT   the kind is unknown, or `status` is TARN_OK and `nth` is not 0 */
TARN_API tarn_status tarn_host_fail_set(int kind, uint64_t nth, bool forever, tarn_status status);

/* The clock of queued work, in ns from 0, for all devices. It never moves by itself: `advance`
 * moves it forward to `now`, never back, and finishes timed work (tarn_host_work()) that ends by
 * then. Copies, fills and functions run in the background and take no time on this clock. A host
 * wait for work moves it only to the end of that work, and is charged as driver time of the waiting
 * call's device. If only timed work is queued, everything is deterministic and no other thread
 * takes part.
 *   TARN_ERROR_INVALID_ARGUMENT   `get`: `now` is NULL */
TARN_API tarn_status tarn_host_time_get(uint64_t *now);
TARN_API tarn_status tarn_host_advance(uint64_t now);

/* Queues work on a stream that uses [address, address + size): the checker knows of the use, and no
 * byte is touched. The work ends `duration` ns after the time at which it is queued, or with the
 * work before it on the stream, whichever is later. A size of 0 uses nothing.
 *   TARN_ERROR_CAPTURE            `native` is the legacy stream and a blocking stream of the device
 *                                 captures, or the stream's capture was invalidated
 *   TARN_ERROR_INVALID_STREAM     there is no such stream
 *   TARN_ERROR_INVALID_ARGUMENT   the range goes beyond the end of all addresses */
TARN_API tarn_status tarn_host_work(int device, void *native, const void *address, size_t size,
                                    uint64_t duration);

/* Queue real work: fill bytes, or call a function in a background thread, which may copy bytes. The
 * function must not make a driver call, and so must not call tarn. Addresses of the device must be
 * mapped and accessible now and until the work has run. Other addresses are host memory.
 *   TARN_ERROR_CAPTURE            as tarn_host_work()
 *   TARN_ERROR_INVALID_STREAM     there is no such stream
 *   TARN_ERROR_INVALID_ARGUMENT   memory of the device is not mapped or not accessible, or
 *                                 `function` is NULL */
TARN_API tarn_status tarn_host_fill(int device, void *native, void *address, int value,
                                    size_t size);
TARN_API tarn_status tarn_host_call(int device, void *native, void (*function)(void *), void *user);

/* Launch or destroy a graph that a capture returned (tarn_capture_end()). A launch queues the
 * graph's work on `native`, a stream of `device`. A graph can be launched any number of times, and
 * destroyed while its work still runs.
 *   TARN_ERROR_INVALID_ARGUMENT   launch: memory that the graph reads or writes is not mapped; or
 *                                 not a graph
 *   TARN_ERROR_CAPTURE            launch: as tarn_host_work()
 *   TARN_ERROR_INVALID_STREAM     launch: there is no such stream */
TARN_API tarn_status tarn_host_graph_launch(int device, void *graph, void *native);
TARN_API tarn_status tarn_host_graph_destroy(void *graph);

/* Returns the physical memory behind an address: how many bytes from `address` on, at most `size`,
 * lie in one piece without a break; which piece (the driver's number, or one for a plain
 * allocation; never 0, never reused); at which offset; and whether access is set. The structure
 * never grows.
 *   TARN_ERROR_INVALID_POINTER    nothing is mapped at `address`
 *   TARN_ERROR_INVALID_ARGUMENT   `size` is 0, or `extent` is NULL */
typedef struct tarn_host_extent {
    uint64_t piece;  /* its number */
    uint64_t offset; /* bytes: where in the piece the address lies */
    uint64_t length; /* bytes from there on without a break */
    bool accessible; /* access is set */
} tarn_host_extent;
TARN_API tarn_status tarn_host_extent_get(int device, const void *address, size_t size,
                                          tarn_host_extent *extent);

/* Turns the checker on or off for all devices; it is off initially. Its reports are counted in the
 * ledger and passed to `report` (may be NULL), one at a time, by the thread that found them, which
 * may be a background thread. `report` must not call tarn. Calling this again replaces `report`.
 * The checker finds two mistakes.
 *
 * First, an unmap, release or free of memory that unfinished queued work uses. The unmap is
 * postponed until that work ends, and mapping or unreserving the address returns TARN_ERROR_BUSY
 * until then. A free waits in any case. A release is legal while the piece is mapped, and is
 * reported if work uses it at that moment.
 *
 * Second, work that starts while earlier queued work of another stream is unfinished on the same
 * bytes, if these had another owner when that work was queued.
 *
 * Only work queued while the checker is on counts. Turn it on before the first allocation: then
 * small blocks take no shortcut past it. */
TARN_API tarn_status tarn_host_check_set(bool on, void (*report)(const char *text, void *user),
                                         void *user);

#ifdef __cplusplus
}
#endif
#endif
