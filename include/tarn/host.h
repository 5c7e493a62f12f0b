/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The embedded host device: what lies behind its driver table, for tests and tools. Not part of tarn.h.
 *
 * It is a real driver: streams are queues, copies and host functions run in the background, events complete when the
 * work before them has. Physical memory is a memfd, mapped at reserved addresses, committed when touched. Beside that
 * it keeps a ledger of what is created and mapped, charges every call to a virtual clock by cost tables, fails
 * calls on request, and checks what streams do to memory.
 *
 * It refuses what CUDA refuses: sizes off the granule of 2 MiB, a map over another or outside a reserved range, an
 * unmap that cuts a mapping, access over a hole, a piece that is gone. A plain allocation takes whole granules; its
 * free waits for the device. The legacy stream waits for all blocking streams of its device and they for it; asking
 * about it, or waiting for it, means all of them. A child of fork() has none of the device's memory. Captures follow
 * CUDA's rules, with what those refuse and invalidate. Devices reach each other's memory, unless TARN_HOST_PEERS=none.
 *
 * Streams are named here as the driver names them: tarn_stream_native_get() gives `native`; NULL is the legacy stream of
 * `device`. All functions are thread-safe. Where another driver was chosen they give TARN_ERROR_NOT_SUPPORTED,
 * and in a child of fork() TARN_ERROR_FORKED. */
#ifndef TARN_HOST_H
#define TARN_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the host device is. */
typedef struct tarn_host_configuration {
    size_t size;   /* sizeof(tarn_host_configuration) */
    int devices;   /* 1 to TARN_MAX_DEVICES; 0: TARN_HOST_DEVICES, or 1 */
    size_t memory; /* bytes a device, a multiple of 2 MiB; 0: TARN_HOST_MEMORY, or 16 GiB */
    size_t maps;   /* mappings that the process may have; 0: TARN_HOST_MAPS, or vm.max_map_count less a reserve */
} tarn_host_configuration;

/* Decides what the host device is, in place of the environment. Before tarn is first used, else TARN_ERROR_BUSY. Also
 * makes "host" the driver. */
TARN_API tarn_status tarn_host_configuration_set(const tarn_host_configuration *config);

/* Kinds of driver calls, 0 to tarn_host_call_kinds() - 1, and their names ("map", "event_record"); NULL beyond. */
#define TARN_HOST_MAX_KINDS 64
TARN_API int tarn_host_call_kinds(void);
TARN_API const char *tarn_host_call_name(int kind);

/* What one device's ledger holds. Times are of the virtual clock, never slept. A call that fails is counted and costs
 * nothing; a query costs the same whatever it answers. Calls that name no device are counted on device 0. */
typedef struct tarn_host_ledger {
    size_t size;                         /* sizeof(tarn_host_ledger), set by the caller */
    uint64_t created, created_peak;      /* bytes of pieces and plain allocations created and not released */
    uint64_t mapped, mapped_peak;        /* bytes of pieces mapped */
    uint64_t pieces, mappings, plain;    /* counts of what exists now; imported pieces count as mapped alone */
    uint64_t reserved_addresses;         /* bytes of address ranges reserved */
    uint64_t pinned;                     /* count of ranges of host memory allocated or registered */
    uint64_t pinned_bytes, pinned_peak;  /* bytes of these */
    uint64_t streams, events;            /* counts of what exists now, the legacy stream not among them */
    uint64_t graphs;                     /* count of what exists now on all devices, open captures' among them */
    uint64_t time_a_ns, time_b_ns;       /* driver time by cost table A and B, waits included */
    uint64_t time_c_ns;                  /* the same by C; waits alone where there is none */
    uint64_t waited_ns;                  /* of these, waits for work */
    uint64_t reports;                    /* by the checker */
    uint64_t calls[TARN_HOST_MAX_KINDS]; /* by kind */
} tarn_host_ledger;
TARN_API tarn_status tarn_host_ledger_get(int device, tarn_host_ledger *ledger);
/* Makes the peaks the current values, and calls, times and reports zero. */
TARN_API tarn_status tarn_host_ledger_reset(int device);

/* What a cost table, 'A', 'B' or 'C', charges for one call of a kind on `bytes` in `pieces` pieces. A and B are from what
 * is published, which disagrees; C is what TARN_HOST_COSTS names: a file of lines
 *   kind base_ns ns_per_mib [ns_per_piece]
 * in whole numbers, with # before a comment, as scripts/gpu-check measures them. A kind that the file does not have costs
 * nothing by C. A file that makes no sense is TARN_ERROR_CONFIGURATION at the first use. TARN_ERROR_NOT_SUPPORTED for C
 * where no file is named. */
TARN_API tarn_status tarn_host_cost_get(char table, int kind, size_t bytes, uint64_t pieces, uint64_t *ns);

/* Fails calls of one kind, or of every kind (-1), on every device: the `nth` from now (1 is the next), and with
 * `forever` all after it, with `status`, before they have any effect. nth 0 clears. `tarn_host_fail_hits` is how many
 * have failed since it was set. */
TARN_API tarn_status tarn_host_fail_set(int kind, uint64_t nth, bool forever, tarn_status status);
TARN_API uint64_t tarn_host_fail_hits(void);

/* The clock of queued work, in ns, from 0. `advance` moves it forward to `now`, never back, and finishes what ends by
 * then. A host wait for work moves it just as far as the end of what is waited for, and is charged as driver time of
 * the waiting call's device. Where only timed work is queued everything is deterministic and no other thread takes
 * part. */
TARN_API tarn_status tarn_host_time_get(uint64_t *now);
TARN_API tarn_status tarn_host_advance(uint64_t now);

/* Queues work on a stream that uses [address, address + size) and ends `duration` ns after the time at which it is
 * queued, or when the work before it has ended, whichever is later. A size of 0 uses nothing. */
TARN_API tarn_status tarn_host_work(int device, void *native, const void *address, size_t size, uint64_t duration);

/* Queues real work: fills or copies bytes, or calls a function in the background, which must not call the driver.
 * Addresses of the device must be mapped and accessible now, and until the work has run; others are memory of the
 * host. */
TARN_API tarn_status tarn_host_fill(int device, void *native, void *address, int value, size_t size);
TARN_API tarn_status tarn_host_copy(int device, void *native, void *to, const void *from, size_t size);
TARN_API tarn_status tarn_host_call(int device, void *native, void (*function)(void *), void *user);

/* Launches a graph that a capture gave (tarn_capture_end()), any number of times; destroys it, while its work may still
 * run. Memory that it writes or reads must still be mapped at each launch: TARN_ERROR_INVALID_ARGUMENT. */
TARN_API tarn_status tarn_host_graph_launch(int device, void *graph, void *native);
TARN_API tarn_status tarn_host_graph_destroy(void *graph);

/* The physical memory behind an address: how many bytes from `address` on, at most `size`, lie in one piece without a
 * break, which piece (the driver's number of it, or one for a plain allocation; never 0, never used twice), at which
 * offset, and whether access is set. The structure does not grow. TARN_ERROR_INVALID_POINTER where nothing is mapped. */
typedef struct tarn_host_extent {
    uint64_t piece;  /* its number */
    uint64_t offset; /* bytes: where in the piece the address lies */
    uint64_t length; /* bytes from there on without a break */
    bool accessible; /* access is set */
} tarn_host_extent;
TARN_API tarn_status tarn_host_extent_get(int device, const void *address, size_t size, tarn_host_extent *extent);

/* The checker: off at first. What it reports is counted in the ledger and given to `report`, one at a time, by
 * whichever thread found it, perhaps a background one; `report` must not call tarn. Two mistakes are found:
 *   an unmap, release or free of memory that unfinished queued work uses. The unmap is put off until that work ends,
 *   and until then the address is TARN_ERROR_BUSY to map and unreserve; a free waits anyway; a release is legal while
 *   the piece is mapped, and reported where work uses it at that moment;
 *   work that starts while earlier queued work of another stream is unfinished on the same bytes, which had another
 *   owner when that was queued.
 * Only work that was queued while it is on counts. Turn it on before the
 * first allocation: then small blocks take no short cut past it. */
TARN_API tarn_status tarn_host_check_set(bool on, void (*report)(const char *text, void *user), void *user);

#ifdef __cplusplus
}
#endif
#endif
