/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the host device share. host.c owns configuration, devices and the way into a
 * call; host_address.c address space and plain allocations; host_memory.c pieces and mappings;
 * host_pinned.c pinned memory of the host; host_stream.c queues, events and the clock of queued
 * work; host_worker.c the threads that run real work; host_clock.c the cost tables; host_check.c
 * owners, uses and reports.
 *
 * Locks, in the order in which they are taken: memory, streams, then the leaves (an object pool's,
 * the injection's). The locks of settling and of delivering reports are taken with none of these
 * held; so a report is delivered with those two only, and real work runs without any. */
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

/* Bytes that one queued operation uses, and who owned them when it was queued. */
struct host_use {
    uintptr_t address;
    size_t size;
    uint64_t owner; /* a generation; 0: nobody's */
};

struct host_uses {
    struct host_use few[2];
    struct host_use *many; /* pages_alloc; in place of `few` where these do not suffice */
    unsigned count, room;
};

enum host_op_kind { HOST_OP_WAIT, HOST_OP_TIMED, HOST_OP_FILL, HOST_OP_COPY, HOST_OP_CALL };

/* One entry of a queue. All fields are set before it is queued and not changed afterwards. */
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
    struct host_uses uses; /* empty where the checker is off */
};

/* Nodes of a graph: what a captured stream's next operation waits for. */
struct host_nodes {
    driver_node *list; /* pages_alloc */
    unsigned count, room;
};

enum host_stream_state {
    HOST_STREAM_IDLE,  /* nothing queued */
    HOST_STREAM_WAITS, /* its head waits for another stream: it is in that one's `waiters` */
    HOST_STREAM_TIMED, /* its head ends at a time: it is in the heap of timers */
    HOST_STREAM_READY, /* its head is real work: it is in a list of ready streams */
    HOST_STREAM_RUNS   /* a worker runs its head */
};

/* A queue. Never unmapped, and positions go on when it serves as another stream later: so "position
 * <= done" answers for an event whatever became of its stream. Streams lock. */
struct host_stream {
    struct host_stream *link; /* in the one list that its state names, or in a list of streams to go
                                 on with */
    bool live;                /* between create and destroy */
    bool blocking;            /* synchronises with the legacy stream */
    int priority;
    uint64_t number; /* of all streams that were ever made; 0: the legacy one */
    enum host_stream_state state;
    struct host_device *device;
    uint64_t last, done;           /* positions: of the last operation queued, of the last one
                                      finished */
    uint64_t joined;               /* the legacy stream waits for this one up to this position */
    uint64_t joins;                /* this one waits for the legacy stream up to this position of
                                      that */
    struct host_op *head, *tail;   /* not finished */
    struct host_stream *waiters;   /* streams whose head waits for this one */
    struct host_stream *next_live; /* the device's list: live, or destroyed with work left */

    struct host_capture *capture;      /* that it takes part in, or NULL */
    struct host_stream *next_captured; /* of the capture's streams */
    unsigned branch;                   /* its number there; 0: the capture began on it */
    struct host_nodes nodes;           /* its last ones there, with room for one at least */
};

/* ---- Devices ---- */

struct host_device {
    int number;
    size_t memory; /* bytes */

    /* Memory lock. */
    uint64_t created, created_peak, mapped, mapped_peak; /* bytes */
    uint64_t pieces, mappings, plain;                    /* counts */
    uint64_t reserved_addresses;                         /* bytes */
    uint64_t pinned, pinned_bytes, pinned_peak;          /* a count, bytes */
    /* The memfd behind ordinary pieces; -1 before the first one */
    int file;
    /* Bytes: the next piece's offset, the file's length */
    uint64_t file_next, file_end;

    /* Streams lock. */
    struct host_stream legacy;
    struct host_stream *streams; /* all except the legacy one */
    uint64_t stream_count, event_count;

    atomic_uint_fast64_t time[HOST_TABLES], waited; /* ns */
    atomic_uint_fast64_t reports;
    atomic_uint_fast64_t calls[DRIVER_CALLS];
};

/* A device has addresses for this many times its memory: for the range that each copy of tarn in a
 * process reserves, and for more beside it, as vendors' devices have. */
#define HOST_ADDRESS_FACTOR ((size_t)64)

static inline size_t host_addresses(const struct host_device *device)
{
    return device->memory > SIZE_MAX / HOST_ADDRESS_FACTOR ? SIZE_MAX
                                                           : device->memory * HOST_ADDRESS_FACTOR;
}

struct host {
    atomic_int devices; /* 0 while the host device is not started */
    size_t maps;        /* the budget of mappings of the process */
    const char *maps_from;
    struct host_device device[TARN_MAX_DEVICES];
    atomic_bool injecting; /* a test asked for a failure */
    atomic_bool
        unsettled;      /* reports to deliver, unmaps and frees to finish, ends of graphs to tell:
                           host_settle(). Set under the streams lock */
    atomic_bool sweeps; /* ... unmaps or frees among them */
    atomic_bool checking;
    atomic_uint captures; /* open and not invalidated: where there are none no call is barred */
    atomic_uint leaving;  /* mappings whose unmap waits for work to end */
    atomic_uint freed;    /* plain allocations whose free waits for its stream; changes from 0 under
                             the streams lock */
    atomic_uint
        graphs_leaving; /* graphs that are destroyed and whose end waits for work to end, once for
                           each who holds one */
};

extern struct host host;

/* ---- The way into a call ---- */

/* Starts the host device; TARN_ERROR_CONFIGURATION, or what the system refused. Called once by
 * driver_init(). */
tarn_status host_start(void);

tarn_status host_no_device(enum driver_call call, int device) __attribute__((cold));
tarn_status host_inject(enum driver_call call) __attribute__((cold));

/* For tests: how many calls tarn_host_fail_set() has looked at since it was set, until it had
 * failed what it was to fail. */
uint64_t host_fail_calls(void);

/* For tests: from now on one of `one_in` calls of a kind gives `status`, at random, before it has
 * any effect, beside what tarn_host_fail_set() asks for; 0 ends that. TARN_ERROR_NOT_READY of
 * "event_query" makes a device that is late to say what has ended. */
void host_fail_randomly(int kind, uint64_t seed, unsigned one_in, tarn_status status);

/* The first line of each entry of the table: finds the device, counts the call, and fails it where
 * a test asked for that. Calls without a device are counted on device 0. A call that fails is
 * counted and charged nothing. */
static inline tarn_status host_enter(enum driver_call call, int device, struct host_device **found)
{
    *found = NULL;
    if (device < 0 || device >= atomic_load_explicit(&host.devices, memory_order_relaxed)) {
        host_no_device(call, device);
        return TARN_ERROR_INVALID_DEVICE; /* a constant: analysers cannot see into the function */
    }
    *found = &host.device[device];
    atomic_fetch_add_explicit(&(*found)->calls[call], 1, memory_order_relaxed);
    return atomic_load_explicit(&host.injecting, memory_order_relaxed) ? host_inject(call)
                                                                       : TARN_OK;
}

/* Refuses a potentially unsafe call where an open capture bars the calling thread from it; that
 * invalidates the capture. */
tarn_status host_refuse_unsafe(enum driver_call call) __attribute__((cold));

/* The same for a call that is potentially unsafe while a stream captures (host_capture.c). */
static inline tarn_status host_enter_unsafe(enum driver_call call, int device,
                                            struct host_device **found)
{
    tarn_status status = host_enter(call, device, found);
    if (status || !atomic_load_explicit(&host.captures, memory_order_relaxed))
        return status;
    return host_refuse_unsafe(call);
}

/* Whether tarn_host_configuration_set() asked for the host device. */
bool host_configured(void);

/* The first line of tarn_host_*: makes sure that the host device is the driver, and finds the
 * device. */
tarn_status host_use(int device, struct host_device **found);

/* Delivers reports, finishes unmaps and tells ends of graphs that waited for work, or waits while
 * others do. Called without locks at the end of whatever may finish work. */
void host_settle_now(void) __attribute__((cold));
static inline void host_settle(void)
{
    if (atomic_load_explicit(&host.unsettled, memory_order_acquire))
        host_settle_now();
}

/* ---- host_clock.c ---- */

struct host_cost {
    uint32_t call_ns;  /* each call */
    uint32_t mib_ns;   /* each MiB */
    uint32_t piece_ns; /* each piece that the call touches */
};

/* C is empty, and charges nothing, until TARN_HOST_COSTS fills it. Written before the device
 * starts, and not after. */
extern struct host_cost host_costs[HOST_TABLES][DRIVER_CALLS];

/* Reads TARN_HOST_COSTS, once per process. TARN_ERROR_CONFIGURATION, with the number of the
 * line. */
tarn_status host_costs_start(void);

static inline uint64_t host_cost(int table, enum driver_call call, size_t bytes, uint64_t pieces)
{
    const struct host_cost *cost = &host_costs[table][call];
    uint64_t ns = cost->call_ns + pieces * cost->piece_ns;
    if (cost->mib_ns)
        ns += (uint64_t)bytes / 1024 * cost->mib_ns / 1024;
    return ns;
}

/* Charges one call that succeeded to the device's driver time, by every table. */
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
/* Finishes the unmaps whose last use has ended. */
void host_memory_sweep(void);
/* Fails where a part of the range is ours and cannot be accessed, by the device, or where that is
 * NULL by the one whose memory it is; memory that is not ours is the caller's affair. */
tarn_status host_memory_accessible(const char *what, const struct host_device *device,
                                   uintptr_t address, size_t size);
/* Moves bytes as memmove() does, except that granules of pieces which nobody has touched yet stay
 * untouched. Takes the lock of memory. */
void host_move_bytes(uintptr_t to, uintptr_t from, size_t size);

/* ---- host_peer.c ---- */

/* TARN_HOST_PEERS. */
tarn_status host_peers_start(void);
/* Whether `device` reaches plain allocations of `peer`. */
bool host_peer_enabled(int device, int peer);
/* A bit for each of `devices`, which must exist and be able to reach memory of `owner`. */
tarn_status host_peers_check(const char *call, int owner, const int *devices, int count,
                             uint64_t *bits);

/* ---- host_stream.c ---- */

void host_streams_lock(void);
void host_streams_unlock(void);
/* Waits on `condition` with the streams lock. */
void host_streams_sleep_relocking(pthread_cond_t *condition);
tarn_status host_streams_start(void);
/* Waits for all queued work, then gives up streams and events. */
void host_streams_drain(void);
void host_streams_finish(void);
void host_streams_ledger(struct host_device *device, tarn_host_ledger *ledger);
/* Waits until everything queued on the device before this call has ended. Gives the ns by which the
 * clock jumped. */
uint64_t host_device_wait(struct host_device *device);
/* The head of `stream`, which a worker ran, has ended: goes on with what depends on it. */
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
tarn_status host_event_wait_any(const driver_event *events, size_t count, size_t *ended);

#endif
