/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The one table of driver calls. Code above this layer reaches a device only through `driver`.
 *
 * The calls have the shape that CUDA's driver API and HIP have in common. Each is thread-safe and
 * takes the device that it works on. It leaves the caller's current context as it was, except
 * `activate` and `context_set`. It writes results only on success. On failure it has called
 * failed() with the vendor's call, code and text.
 *
 * An open capture prevents no call: calls that the vendor counts as potentially unsafe run in
 * relaxed capture mode, and the thread's mode is restored. Only what conflicts with a capture by
 * its nature still does.
 *
 * A full device is TARN_ERROR_OUT_OF_MEMORY, a sticky error TARN_ERROR_DEVICE_LOST. `*_query`
 * returns TARN_ERROR_NOT_READY without touching tarn_last_error(). */
#ifndef TARN_DRIVER_DRIVER_H
#define TARN_DRIVER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

typedef void *driver_stream;   /* NULL: the legacy stream of the device */
typedef void *driver_event;    /* without timing */
typedef uint64_t driver_piece; /* a physical allocation; never 0 */
/* What a thread has current: a context, or a device if the driver has no contexts; NULL:
 * nothing. */
typedef void *driver_context;
/* The vendor's graph; what graph_launch needs in addition, the driver keeps. */
typedef void *driver_graph;
typedef void *driver_exec; /* the vendor's executable of a graph; on the host device, a graph */
typedef void *driver_node;

enum driver_capture_mode {
    DRIVER_CAPTURE_GLOBAL,
    DRIVER_CAPTURE_THREAD_LOCAL,
    DRIVER_CAPTURE_RELAXED
};

struct driver_capture {
    enum { DRIVER_CAPTURE_NONE, DRIVER_CAPTURE_ACTIVE, DRIVER_CAPTURE_INVALIDATED } state;
    uint64_t id; /* of an active capture: the same for every stream that takes part */
    /* The stream's last nodes, on which its next node will depend. Valid until the thread's next
     * call of the driver. */
    const driver_node *nodes;
    size_t node_count;
    bool partial; /* true: its next node will wait for only a part of one of them */
    /* The graph that is being captured; NULL where the driver does not say. */
    driver_graph graph;
};

struct driver_properties {
    char name[64];
    size_t memory;  /* bytes */
    size_t granule; /* bytes: the unit of pieces and of mapping */
    /* Bytes, whole granules: recommended by the driver for memory that others register. */
    size_t recommended;
    size_t address_limit; /* the most bytes that can be reserved in all; SIZE_MAX: unlimited */
    int least_priority, greatest_priority;
    bool virtual_memory, alias;
    bool integrated; /* its memory is the machine's */
    /* An integrated device whose driver refuses no request; the kernel kills processes instead.
     * memory_info returns what the machine has available. */
    bool fills_machine;
    bool coherent, slice, mps, paged;       /* as in tarn_device_properties */
    bool exportable;                        /* pieces can be created for export */
    int capability_major, capability_minor; /* compute capability; 0 on the host device */
};

/* X(call, parameters). These may wait for queued work: free, host_free, host_unregister, unmap (on
 * some drivers), release, *_synchronize, stream_destroy.
 *
 * Contexts. None of these creates one:
 *  is_active          whether the device has a context
 *  current            the device of the calling thread's context; 0: it has none
 *  context_get/_set   the context itself; makes it current again
 *
 * Streams:
 *  stream_check       TARN_ERROR_INVALID_STREAM for a stream of another device, or of a context
 *                     that is not the primary one: tarn could record no event there. Never asked
 *                     about the default streams. TARN_OK if the driver cannot tell
 *  stream_number      the vendor's id of a stream, never 0, which no other stream of the process
 *                     ever has, even if a pointer is reused. Without a text:
 *                     TARN_ERROR_NOT_SUPPORTED if the driver has no ids; TARN_ERROR_CAPTURE if the
 *                     stream captures (the vendor is not asked)
 *
 * Events. One that was last recorded in a capture, also in one that is over: event_query and
 * event_synchronize give TARN_ERROR_CAPTURE, and so does stream_wait_event where the stream cannot
 * join that capture.
 *
 * Plain memory in the order of a stream, from the driver's own pool. TARN_ERROR_CAPTURE if the
 * stream captures, since both would become nodes of the graph; TARN_ERROR_NOT_SUPPORTED if the
 * driver has no such pools:
 *  alloc_async        memory for work queued on the stream from now on. May wait if the device is
 *                     full
 *  free_async         takes effect when the work queued on the stream so far has ended. Does not
 *                     wait. `free` takes such memory too, once all work that uses it has ended
 *
 * Host memory that every device can access; `device` is the one whose context serves for the call:
 *  host_alloc/_free   the driver's memory, page-aligned
 *  host_register/_unregister
 *                     gives the caller's memory this property; whole pages, none of them
 *                     registered before
 *
 * Physical memory:
 *  reserve/unreserve  an address range, at `*address` if that is not 0 and the addresses are free,
 *                     otherwise anywhere; unreserve takes exactly a reserved range with nothing
 *                     mapped in it
 *  create/release     a piece; the release of a mapped piece takes effect when it is unmapped
 *  map/unmap          a whole piece at a granule of a reserved range; unmap takes whole mappings,
 *                     one or more in a row
 *  set_access         read and write for each of `devices`, over whole mappings without a hole
 *  export             a file descriptor of a piece that was created exportable, and not imported;
 *                     the caller closes it
 *  import             a whole piece of `size` bytes from such a descriptor, which stays the
 *                     caller's; released like a created piece. An unsuitable descriptor is
 *                     TARN_ERROR_INVALID_ARGUMENT
 *
 * Captures. Status values 900 to 909 of a vendor become TARN_ERROR_CAPTURE:
 *  capture_begin/_end `end` returns a graph, or TARN_ERROR_CAPTURE and no graph if the capture was
 *                     invalidated. Either way it is over, unless it began on another stream, or in
 *                     another thread and is not relaxed, where only CUDA ends it. On HIP the stream
 *                     of an invalidated capture still says that it captures. stream_destroy of the
 *                     stream on which it began ends it too, in any thread
 *  capture_status     never touches tarn_last_error(). While a blocking stream captures, asking the
 *                     legacy stream returns INVALIDATED or TARN_ERROR_CAPTURE: treat both as
 *                     "captures"
 *  capture_mode       exchanges the calling thread's mode, for calls outside this table
 *  capture_depend     makes the stream's next node depend on these nodes instead
 *                     (cuStreamUpdateCaptureDependencies, SET)
 *  node_before        the nodes that a node waits for as a whole, and their number; useless if that
 *                     exceeds `room`. Fails if the node waits for a part of another. Never touches
 *                     tarn_last_error()
 *  graph_launch       runs a graph's work on a stream, any number of times. A stream that captures
 *                     is not allowed: its capture would end
 *  exec_launch        the same of an executable that the vendor made of a graph; on the host
 *                     device, of a graph
 *  graph_hold         calls `end` once, when the graph and everything made from it are destroyed
 *                     and their work has ended. Any thread may call it, with locks of the driver
 *                     held, so `end` must call nothing and wait for nothing. Not called if this
 *                     fails. TARN_ERROR_NOT_SUPPORTED if the driver cannot tell. graph_destroy
 *                     also frees what graph_launch keeps. If the vendor's own call destroys the
 *                     graph, that stays until the graph's address is reused
 *
 * Peers:
 *  peer_possible      true for a device and itself
 *  peer_enable        lets `device` access plain allocations of `peer` */
#define DRIVER_CALL_LIST(X)                                                                        \
    X(device_count, (int *count))                                                                  \
    X(device_properties, (int device, struct driver_properties *properties))                       \
    X(activate, (int device))                                                                      \
    X(current, (int *device))                                                                      \
    X(context_get, (driver_context * context))                                                     \
    X(context_set, (driver_context context))                                                       \
    X(is_active, (int device, bool *active))                                                       \
    X(memory_info, (int device, size_t *free_bytes, size_t *total_bytes))                          \
    X(device_synchronize, (int device))                                                            \
    X(alloc, (int device, size_t size, uintptr_t *address))                                        \
    X(free, (int device, uintptr_t address))                                                       \
    X(alloc_async, (int device, size_t size, driver_stream stream, uintptr_t *address))            \
    X(free_async, (int device, uintptr_t address, driver_stream stream))                           \
    X(host_alloc, (int device, size_t size, uintptr_t *address))                                   \
    X(host_free, (int device, uintptr_t address))                                                  \
    X(host_register, (int device, uintptr_t address, size_t size))                                 \
    X(host_unregister, (int device, uintptr_t address))                                            \
    X(reserve, (int device, size_t size, size_t alignment, uintptr_t *address))                    \
    X(unreserve, (int device, uintptr_t address, size_t size))                                     \
    X(create, (int device, size_t size, unsigned flags, driver_piece *piece))                      \
    X(release, (int device, driver_piece piece))                                                   \
    X(map, (int device, uintptr_t address, size_t size, driver_piece piece))                       \
    X(unmap, (int device, uintptr_t address, size_t size))                                         \
    X(set_access, (int device, uintptr_t address, size_t size, const int *devices, int count))     \
    X(export, (int device, driver_piece piece, int *file))                                         \
    X(import, (int device, int file, size_t size, driver_piece *piece))                            \
    X(stream_create, (int device, int priority, bool blocking, driver_stream *stream))             \
    X(stream_destroy, (int device, driver_stream stream))                                          \
    X(stream_check, (int device, driver_stream stream))                                            \
    X(stream_number, (int device, driver_stream stream, uint64_t *number))                         \
    X(stream_query, (int device, driver_stream stream))                                            \
    X(stream_synchronize, (int device, driver_stream stream))                                      \
    X(stream_wait_event, (int device, driver_stream stream, driver_event event))                   \
    X(event_create, (int device, driver_event *event))                                             \
    X(event_destroy, (int device, driver_event event))                                             \
    X(event_record, (int device, driver_event event, driver_stream stream))                        \
    X(event_query, (int device, driver_event event))                                               \
    X(event_synchronize, (int device, driver_event event))                                         \
    X(copy, (int device, uintptr_t to, uintptr_t from, size_t size, driver_stream stream))         \
    X(set,                                                                                         \
      (int device, uintptr_t address, unsigned char value, size_t size, driver_stream stream))     \
    X(call, (int device, driver_stream stream, void (*function)(void *), void *argument))          \
    X(capture_begin, (int device, driver_stream stream, enum driver_capture_mode mode))            \
    X(capture_end, (int device, driver_stream stream, driver_graph *graph))                        \
    X(capture_status, (int device, driver_stream stream, struct driver_capture *capture))          \
    X(capture_mode, (enum driver_capture_mode * mode))                                             \
    X(capture_depend, (int device, driver_stream stream, const driver_node *nodes, size_t count))  \
    X(node_before, (int device, driver_node node, driver_node *nodes, size_t room, size_t *count)) \
    X(graph_launch, (int device, driver_graph graph, driver_stream stream))                        \
    X(exec_launch, (int device, driver_exec exec, driver_stream stream))                           \
    X(graph_destroy, (int device, driver_graph graph))                                             \
    X(graph_hold, (int device, driver_graph graph, void (*end)(void *), void *argument))           \
    X(peer_possible, (int device, int peer, bool *possible))                                       \
    X(peer_enable, (int device, int peer))

/* Flags of create. EXPORTABLE: TARN_ERROR_NOT_SUPPORTED if the memory cannot be exported. RDMA:
 * other devices of the machine can access it by RDMA if the device can do that; otherwise it is
 * ordinary memory. HOST, alone: host memory that is mapped and accessed like the device's, and
 * takes none of it; TARN_ERROR_NOT_SUPPORTED if the driver has no such pieces. */
#define DRIVER_PIECE_EXPORTABLE 1u
#define DRIVER_PIECE_RDMA 2u
#define DRIVER_PIECE_HOST 4u

enum driver_call {
#define X(call, parameters) DRIVER_CALL_##call,
    DRIVER_CALL_LIST(X)
#undef X
        DRIVER_CALLS
};

/* What the checker of a driver has found: work of two streams on the same bytes, or work and an
 * unmap. */
struct driver_conflict {
    int device;
    const char *text;
    struct driver_side {
        uintptr_t address;
        size_t size;
        uint64_t owner; /* the owner of the memory when the work was queued; 0: none */
    } sides[2];         /* size 0: this side is an unmap */
};

/* A process with memory on a device. */
struct driver_process {
    long number;
    size_t bytes; /* SIZE_MAX: unknown */
};

/* What a device is called outside this process, whatever its number is here; "": unknown. */
struct driver_identity {
    /* As the vendor's monitor prints it: "GPU-...", or "MIG-..." for a slice of a device. */
    char uuid[48];
    char pci[24]; /* "0000:1b:00.0" */
};

/* Eight bytes that a node of a graph was given. */
struct driver_word {
    uint64_t value;
    enum {
        WORD_IS_ADDRESS, /* the node reads or writes at that address */
        WORD_IS_WHOLE,   /* a whole parameter of a kernel */
        WORD_IS_FIELD    /* a part of a larger parameter, at a multiple of 8 */
    } kind;
    enum driver_node_kind {
        DRIVER_NODE_KERNEL,
        DRIVER_NODE_COPY,
        DRIVER_NODE_SET,
        DRIVER_NODE_FREE,
        DRIVER_NODE_BATCH
    } of;
    driver_node node;
    /* Of the node, in the order of the walk, including nodes of embedded graphs. */
    size_t number;
    unsigned depth;     /* how deep the node's graph is embedded */
    const char *kernel; /* its name; "": none; valid as long as its module */
    /* Index of the parameter; of a copy, 0 is the target and 1 the source; of a batch, the index
     * of the operation. */
    unsigned parameter;
    size_t offset; /* bytes from the start of the parameter */
    size_t size;   /* bytes of the parameter; of an address: used from there on; 0: unknown */
};

/* Nodes with addresses that cannot be looked at. */
enum driver_unseen {
    UNSEEN_HOST,        /* host functions */
    UNSEEN_KERNEL,      /* kernels whose layout or parameters the driver does not tell */
    UNSEEN_UPDATABLE,   /* kernels whose parameters the device may change */
    UNSEEN_CONDITIONAL, /* conditional nodes whose bodies the driver does not show */
    UNSEEN_OTHER, /* semaphores, unknown kinds, failures of the driver, graphs embedded too deep */
    DRIVER_UNSEEN
};

struct driver_walk {
    /* Called for each word that may be an address of this process, in the order of nodes. False
     * ends the walk with TARN_ERROR_OUT_OF_HOST_MEMORY. */
    bool (*word)(const struct driver_word *word, void *user);
    void *user;
    size_t nodes; /* results */
    size_t unseen[DRIVER_UNSEEN];
};

/* Whether a word may be an address: it is below 2^48 and not in the first page. */
static inline bool driver_word_may_be_address(uint64_t value)
{
    return value >= 4096 && value >> 48 == 0;
}

struct driver {
    const char *name;
    /* The vendor's constants for the legacy stream, beside NULL, and for the default stream of the
     * calling thread. NULL: there is no such constant. */
    driver_stream legacy, per_thread;
    /* device_synchronize ends the captures of all devices, not only of its own. */
    bool wait_ends_all;
#define X(call, parameters) tarn_status(*call) parameters;
    DRIVER_CALL_LIST(X)
#undef X
    /* Optional; NULL if the driver does not check. owner_set: memory gets an owner, a stream;
     * returns the owner's number. owner_clear: it loses its owner. checking: whether these are
     * worth calling now. check: turns checking on. Each conflict is counted and given to `found`,
     * in any thread, with any lock held: it must call nothing. */
    uint64_t (*owner_set)(int device, uintptr_t address, size_t size, driver_stream stream);
    void (*owner_clear)(int device, uintptr_t address, size_t size);
    bool (*checking)(void);
    tarn_status (*check)(void (*found)(const struct driver_conflict *conflict));
    /* Optional: at most `room` processes with memory on a device, including this one, as the
     * system's monitor lists them. Returns how many were written. May take ms. Does not touch the
     * last error. */
    size_t (*processes)(int device, struct driver_process *list, size_t room);
    /* Optional: writes what is known of a device. Creates no context and does not touch the last
     * error. */
    void (*identity)(int device, struct driver_identity *identity);
    /* Optional: as set_access, but only to read. A device may refuse it; one that takes it refuses
     * writes. */
    tarn_status (*set_read)(int device, uintptr_t address, size_t size, const int *devices,
                            int count);
    /* Optional: visits what the nodes of a graph, and of graphs embedded in it, were given. The
     * caller makes sure that the graph does not change. */
    tarn_status (*graph_walk)(int device, driver_graph graph, struct driver_walk *walk);
    /* Optional: waits until one of the events, of any devices, has ended; `ended` is its index.
     * NULL: events can only be queried one by one. */
    tarn_status (*event_wait_any)(const driver_event *events, size_t count, size_t *ended);
    /* Optional: sleeps for less than a second, and advances the driver's own clock as far. NULL:
     * time passes by itself. */
    void (*pause)(uint64_t ns);
    /* Ends background threads and the process's use of the driver. No call may follow. */
    void (*finish)(void);
};

/* The chosen driver; NULL before driver_init() has succeeded. */
extern const struct driver *driver;

/* Chooses the driver by TARN_DRIVER (auto, cuda, hip, host), once per process; cheap afterwards.
 * `auto` takes a GPU's driver if a GPU answers, otherwise the host device. Opens libraries, with no
 * lock held, because a constructor that the loader runs may call this too. TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_CONFIGURATION. */
tarn_status driver_init(void);

/* Why this driver was chosen: "host: libcuda.so.1: cannot open ...; libamdhip64.so.7: ...". ""
 * before the choice. */
const char *driver_reason(void);

/* "map" for DRIVER_CALL_map; NULL for anything else. */
const char *driver_call_name(int call);

/* For alloc_async and free_async: fails unless the answer of capture_status says that the stream
 * does not capture. */
tarn_status driver_refuse_captured(const char *call, int device, tarn_status answer,
                                   const struct driver_capture *capture);

/* The free bytes of a device that fills the machine's memory and of which the vendor says
 * `reported`. */
size_t driver_machine_free_bytes(size_t reported, size_t total);

/* For tests, which need fresh devices: ends the driver. driver_init() may then choose again. */
void driver_finish(void);

/* Prints 16 bytes as a UUID after a prefix. */
void driver_uuid_print(struct driver_identity *identity, const char *prefix,
                       const unsigned char bytes[16]);

/* What tarn reports to `tarn run`, whose hooks do not see that memory becomes this process's. All
 * functions are NULL if the process does not run under it, or its shim lacks one of them. The
 * choice of a vendor's driver sets them, under `choice_lock`, before it sets `driver`;
 * driver_finish() sets them to NULL. Kept pools read them without a lock. */
struct driver_counting {
    /* An imported piece is this process's now. False: it was not counted. */
    bool (*takes_over)(int device, driver_piece piece, uint64_t size);
    /* Whoever counted these bytes before counts them no more. */
    void (*has_taken_over)(int device, uint64_t size);
    int (*slot)(void); /* of the process in its group; -1: it is in none */
};
extern struct driver_counting driver_counting;

extern const struct driver driver_host, driver_cuda, driver_hip;

/* Whether a library from dlopen() can use streams and memory of the HIP driver. Not if it is linked
 * against another major version of the runtime: that one is loaded beside tarn's and does not know
 * them. `why` says so. True if the HIP driver is not in use, or the library needs no runtime. */
bool driver_hip_serves(void *library, char *why, size_t size);

#endif
