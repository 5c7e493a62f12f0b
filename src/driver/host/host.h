/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the host device share. host.c owns configuration, devices and the begin of each
 * call; host_address.c address space and plain allocations; host_memory.c pieces and mappings;
 * host_pinned.c pinned host memory; host_stream.c queues, events and the clock of queued work;
 * host_worker.c the threads that run real work; host_clock.c the cost tables; host_check.c owners,
 * uses and reports.
 *
 * Locks, in the order in which they are taken: memory, streams, then leaves (object pools, the
 * injection). The locks of settling and of delivering reports are taken before all of these. So a
 * report is delivered with only those two held, and real work runs with none. */
#ifndef TARN_DRIVER_HOST_H
#define TARN_DRIVER_HOST_H

#include "base/thread/lock.h"
#include "driver/driver.h"

#include <stdatomic.h>
#include <tarn/device.h>
#include <tarn/host.h>

#define HOST_GRANULE ((size_t)2 << 20) /* bytes */
#define HOST_PRIORITIES 4              /* 0 to -3 */
#define HOST_TABLES 3                  /* cost tables A, B and C */

/* ---- Streams ---- */

/* The bytes that a queued operation uses, and their owner when it was queued. */
struct host_use {
    uintptr_t address;
    size_t size;
    uint64_t owner; /* generation of the owner; 0: none */
};

struct host_uses {
    struct host_use few[2];
    struct host_use *many; /* from pages_alloc(); replaces `few` if that is too small */
    unsigned count, room;
};

enum host_op_kind { HOST_OP_WAIT, HOST_OP_TIMED, HOST_OP_FILL, HOST_OP_COPY, HOST_OP_CALL };

/* One entry of a queue. Constant once it is queued. */
struct host_op {
    struct host_op *next;
    enum host_op_kind kind;
    uint64_t position; /* in its stream, from 1 */
    uint64_t order;    /* among all operations of the process, from 1 */
    union {
        struct {
            struct host_stream *stream;
            uint64_t position;
        } wait;
        uint64_t due; /* ns of the clock of queued work */
        struct {
            uintptr_t to, from;
            size_t size;
            int value;
        } move;
        struct {
            void (*function)(void *);
            void *argument;
        } call;
    };
    struct host_uses uses; /* empty while the checker is off */
};

/* Nodes of a graph that a captured stream's next operation waits for. */
struct host_nodes {
    driver_node *list; /* from pages_alloc() */
    unsigned count, room;
};

enum host_stream_state {
    HOST_STREAM_IDLE,  /* nothing queued */
    HOST_STREAM_WAITS, /* its head waits for another stream, whose list `waiters` it is in */
    HOST_STREAM_TIMED, /* its head ends at a known time: it is in the heap of timers */
    HOST_STREAM_READY, /* its head is real work that no worker runs yet: it is in a list */
    HOST_STREAM_RUNS   /* a worker runs its head */
};

/* A queue. Never unmapped. When it is reused as another stream, positions continue. So "position <=
 * done" answers for an event whatever became of its stream. Under the streams lock. */
struct host_stream {
    /* In the list that its state names, or in a list of streams to continue with. */
    struct host_stream *link;
    bool live;     /* between create and destroy */
    bool blocking; /* it and the legacy stream wait for each other */
    int priority;
    uint64_t number; /* unique among all streams ever created; 0: the legacy stream */
    enum host_stream_state state;
    struct host_device *device;
    /* Positions of the last queued and the last finished operation. */
    uint64_t last, done;
    /* The legacy stream waits until this stream has reached this position. */
    uint64_t joined;
    /* This stream waits until the legacy stream has reached this position. */
    uint64_t joins;
    struct host_op *head, *tail;   /* unfinished operations */
    struct host_stream *waiters;   /* streams whose head waits for this one */
    struct host_stream *next_live; /* in the device's list: live, or destroyed with work left */

    struct host_capture *capture;      /* the capture that it takes part in, or NULL */
    struct host_stream *next_captured; /* in that capture's list */
    unsigned branch;                   /* its number in that capture; 0: the capture began on it */
    struct host_nodes nodes;           /* its last nodes there; always with room for one more */
};

/* ---- Devices ---- */

struct host_device {
    int number;
    size_t memory; /* bytes */

    /* Under the memory lock. */
    uint64_t created, created_peak, mapped, mapped_peak; /* bytes */
    uint64_t pieces, mappings, plain;                    /* counts */
    uint64_t reserved_addresses;                         /* bytes */
    uint64_t pinned, pinned_bytes, pinned_peak;          /* a count, bytes */
    /* The memfd behind ordinary pieces; -1 before the first one. */
    int file;
    /* Bytes: offset of the next piece; length of the file. */
    uint64_t file_next, file_end;

    /* Under the streams lock. */
    struct host_stream legacy;
    struct host_stream *streams; /* all streams except the legacy one */
    uint64_t stream_count, event_count;

    atomic_uint_fast64_t time[HOST_TABLES], waited; /* ns */
    atomic_uint_fast64_t reports;
    atomic_uint_fast64_t calls[DRIVER_CALLS];
};

/* A device has addresses for this many times its memory: for the range that each copy of tarn in a
 * process reserves, and for more, as vendors' devices have. */
#define HOST_ADDRESS_FACTOR ((size_t)64)

static inline size_t host_addresses(const struct host_device *device)
{
    return device->memory > SIZE_MAX / HOST_ADDRESS_FACTOR ? SIZE_MAX
                                                           : device->memory * HOST_ADDRESS_FACTOR;
}

struct host {
    atomic_int devices; /* 0: the host device is not started */
    size_t maps;        /* the budget of mappings of the process */
    const char *maps_from;
    struct host_device device[TARN_MAX_DEVICES];
    atomic_bool injecting; /* a test asked for a failure */
    /* host_settle() has something to do: reports to deliver, unmaps and frees to finish, ends of
     * graphs to notify. Set under the streams lock. */
    atomic_bool unsettled;
    atomic_bool sweeps; /* unmaps or frees are among these */
    atomic_bool checking;
    /* Open captures that are not invalidated; while there are none, no call is refused because
     * of one. */
    atomic_uint captures;
    atomic_uint leaving; /* mappings whose unmap waits for work to end */
    /* Plain allocations whose free waits for its stream; changes from 0 under the streams lock. */
    atomic_uint freed;
    atomic_uint
        graphs_leaving; /* destroyed graphs whose end waits for work, counted once per holder */
};

extern struct host host;

/* ---- The way into a call ---- */

/* Starts the host device. Called once by driver_init(). TARN_ERROR_CONFIGURATION, or the system's
 * error. */
tarn_status host_start(void);

tarn_status host_no_device(enum driver_call call, int device) __attribute__((cold));
tarn_status host_inject(enum driver_call call) __attribute__((cold));

/* For tests: the number of calls that tarn_host_fail_set() has looked at since it was set, up to
 * its last failure. */
uint64_t host_fail_calls(void);
/* How many have failed since then: `failed` of the ledger. */
uint64_t host_fail_hits(void);

/* For tests: from now on one in `one_in` calls of a kind fails at random with `status`, before it
 * has any effect, in addition to tarn_host_fail_set(); 0 ends that. With TARN_ERROR_NOT_READY for
 * "event_query", events seem to end late. */
void host_fail_randomly(int kind, uint64_t seed, unsigned one_in, tarn_status status);

/* Begins each entry of the table: finds the device, counts the call, and fails it if a test demands
 * that. A call without a device counts on device 0. A failed call is counted, but charged
 * nothing. */
static inline tarn_status host_enter(enum driver_call call, int device, struct host_device **found)
{
    *found = NULL;
    if (device < 0 || device >= atomic_load_explicit(&host.devices, memory_order_relaxed)) {
        host_no_device(call, device);
        /* A constant, because analysers cannot see into the function. */
        return TARN_ERROR_INVALID_DEVICE;
    }
    *found = &host.device[device];
    atomic_fetch_add_explicit(&(*found)->calls[call], 1, memory_order_relaxed);
    return atomic_load_explicit(&host.injecting, memory_order_relaxed) ? host_inject(call)
                                                                       : TARN_OK;
}

/* Fails for a potentially unsafe call that an open capture forbids to the calling thread.
 * Invalidates that capture. */
tarn_status host_refuse_unsafe(enum driver_call call) __attribute__((cold));

/* The same for a call that is potentially unsafe during a capture (host_capture.c). */
static inline tarn_status host_enter_unsafe(enum driver_call call, int device,
                                            struct host_device **found)
{
    tarn_status status = host_enter(call, device, found);
    if (status || !atomic_load_explicit(&host.captures, memory_order_relaxed))
        return status;
    return host_refuse_unsafe(call);
}

/* Whether tarn_host_configuration_set() has chosen the host device. */
bool host_configured(void);

/* Begins each tarn_host_* function: makes sure that the host device is the driver, and finds the
 * device. */
tarn_status host_use(int device, struct host_device **found);

/* Delivers reports, finishes unmaps and notifies of ends of graphs that waited for work, or waits
 * while other threads do. Called without locks, at the end of every call that may finish work. */
void host_settle_now(void) __attribute__((cold));
static inline void host_settle(void)
{
    if (atomic_load_explicit(&host.unsettled, memory_order_acquire))
        host_settle_now();
}

/* ---- host_clock.c ---- */

struct host_cost {
    uint32_t call_ns;  /* per call */
    uint32_t mib_ns;   /* per MiB */
    uint32_t piece_ns; /* per piece */
};

/* C is empty and charges nothing, unless TARN_HOST_COSTS fills it. Written only before the device
 * starts. */
extern struct host_cost host_costs[HOST_TABLES][DRIVER_CALLS];

/* Reads TARN_HOST_COSTS, once per process. TARN_ERROR_CONFIGURATION names the line. */
tarn_status host_costs_start(void);

static inline uint64_t host_cost(int table, enum driver_call call, size_t bytes, uint64_t pieces)
{
    const struct host_cost *cost = &host_costs[table][call];
    uint64_t ns = cost->call_ns + pieces * cost->piece_ns;
    if (cost->mib_ns)
        ns += (uint64_t)bytes / 1024 * cost->mib_ns / 1024;
    return ns;
}

/* Charges one successful call to the device's driver time, in every table. */
static inline void host_charge(struct host_device *device, enum driver_call call, size_t bytes,
                               uint64_t pieces)
{
    for (int table = 0; table < HOST_TABLES; table++) {
        uint64_t ns = host_cost(table, call, bytes, pieces);
        if (ns)
            atomic_fetch_add_explicit(&device->time[table], ns, memory_order_relaxed);
    }
}

void host_charge_wait(struct host_device *device, uint64_t ns);

/* ---- host_memory.c and host_address.c ---- */

void host_memory_finish(void);
void host_memory_ledger(const struct host_device *device, tarn_host_ledger *ledger);
void host_memory_ledger_reset(struct host_device *device);
/* Finishes unmaps whose last use has ended. */
void host_memory_sweep(void);
/* Fails if a part of the range is memory of host devices that `device` cannot access; with NULL,
 * that its own device cannot access. Other memory is not checked. */
tarn_status host_memory_accessible(const char *what, const struct host_device *device,
                                   uintptr_t address, size_t size);
/* Moves bytes like memmove(), but leaves untouched granules of pieces untouched. Takes the memory
 * lock. */
void host_move_bytes(uintptr_t to, uintptr_t from, size_t size);

/* ---- host_peer.c ---- */

/* Reads TARN_HOST_PEERS. */
tarn_status host_peers_start(void);
/* Whether `device` can access plain allocations of `peer`. */
bool host_peer_enabled(int device, int peer);
/* Returns a bit for each of `devices`, which must exist and be able to access memory of `owner`. */
tarn_status host_peers_check(const char *call, int owner, const int *devices, int count,
                             uint64_t *bits);

/* ---- host_stream.c ---- */

void host_streams_lock(void);
void host_streams_unlock(void);
/* Waits for `condition`, with the streams lock. */
void host_streams_sleep_relocking(pthread_cond_t *condition);
tarn_status host_streams_start(void);
/* Waits for all queued work, then frees streams and events. */
void host_streams_drain(void);
void host_streams_finish(void);
void host_streams_ledger(struct host_device *device, tarn_host_ledger *ledger);
/* Waits until all work queued on the device before this call has ended. Returns the ns by which the
 * clock was moved. */
uint64_t host_device_wait(struct host_device *device);
/* A worker has run the head of `stream`: continues with what depends on it. */
void host_stream_ended_locked(struct host_stream *stream);

/* ---- host_worker.c ---- */

/* Makes sure that there is a worker at all, so that real work can be promised. */
tarn_status host_workers_ensure_locked(void);
/* Hands a stream whose head is real work to the workers. */
void host_workers_push_locked(struct host_stream *stream);
/* Returns when no real work can run before the clock moves or more is queued. For tests, which are
 * repeatable so. */
void host_workers_settle(void);
/* Joins all workers; the queues are empty. */
void host_workers_finish(void);

/* ---- host_capture.c ---- */

/* Sets the calling thread's mode and gives the one before. */
enum driver_capture_mode host_mode_exchange(enum driver_capture_mode mode);

/* ---- host_graph.c ---- */

/* Those that exist, what open captures record among them. */
uint64_t host_graph_count(void);
/* Tells who is notified of the end of a graph, and whether nobody is left. */
void host_graphs_settle(void);
bool host_graphs_settled_locked(void);

/* ---- host_table.c ---- */

/* What another driver on top of the host device calls, in a vendor's stead, are the host_* entries
 * below. tarn's own table is made of them, but relaxes the calling thread for those that an open
 * capture might bar. */
bool host_checking(void);
tarn_status host_check(void (*found)(const struct driver_conflict *conflict));
void host_finish(void);
tarn_status host_set_read(int device, uintptr_t address, size_t size, const int *devices,
                          int count);
void host_identity(int device, struct driver_identity *identity);

/* ---- host_check.c ---- */

/* Adds what an operation that is about to be queued uses. TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status host_uses_add_locked(struct host_uses *uses, uintptr_t address, size_t size);
/* Into an empty one */
bool host_uses_copy_locked(struct host_uses *uses, const struct host_uses *from);
void host_uses_finish(struct host_uses *uses);
/* Reports the operations that `op`, at the head of `stream` and about to start, must not run
 * beside. */
void host_check_start_locked(struct host_stream *stream, const struct host_op *op);
/* Whether queued work uses the range; `call`, where not NULL, is what to say in a report. Takes the
 * streams lock. */
bool host_check_in_use(const char *call, struct host_device *device, uintptr_t address,
                       size_t size);
void host_check_deliver(void);
/* Whether nothing is left to deliver. */
bool host_check_delivered_locked(void);
void host_check_finish(void);

uint64_t host_owner_set(int device, uintptr_t address, size_t size, driver_stream stream);
void host_owner_clear(int device, uintptr_t address, size_t size);

#define X(call, parameters) tarn_status host_##call parameters;
DRIVER_CALL_LIST(X)
#undef X
tarn_status host_graph_walk(int device, driver_graph graph, struct driver_walk *walk);
void host_pause(uint64_t ns);
tarn_status host_event_wait_any(const driver_event *events, size_t count, size_t *ended);

#endif
