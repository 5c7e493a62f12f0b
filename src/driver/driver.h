/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The one table of driver calls. Everything above this layer reaches a device through `driver` and
 * through nothing else.
 *
 * The calls have the shape that CUDA's driver API and HIP have in common. Each is thread-safe,
 * takes the device it works on, leaves the caller's current context as it was (except for
 * `activate` and `context_set`), gives results only on success, and on failure has called failed()
 * with the vendor's call, code and text. An open capture bars none of them: an entry runs what the
 * vendor counts as potentially unsafe in relaxed capture mode and puts the thread's mode back, so
 * that nothing above this layer has to; what remains is what conflicts with a capture necessarily.
 * A device that is full is TARN_ERROR_OUT_OF_MEMORY, a sticky error TARN_ERROR_DEVICE_LOST, and
 * `*_query` answers TARN_ERROR_NOT_READY without touching tarn_last_error(). */
#ifndef TARN_DRIVER_DRIVER_H
#define TARN_DRIVER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

typedef void *driver_stream;   /* NULL: the legacy stream of the device */
typedef void *driver_event;    /* without timing */
typedef uint64_t driver_piece; /* a physical allocation; never 0 */
typedef void
    *driver_context; /* what a thread has current: a context, or a device of a driver without such.
                        NULL: nothing */
typedef void *driver_graph; /* the vendor's graph; for graph_launch the driver keeps what it needs
                               beside it */
typedef void *driver_node;

enum driver_capture_mode {
    DRIVER_CAPTURE_GLOBAL,
    DRIVER_CAPTURE_THREAD_LOCAL,
    DRIVER_CAPTURE_RELAXED
};

struct driver_capture {
    enum { DRIVER_CAPTURE_NONE, DRIVER_CAPTURE_ACTIVE, DRIVER_CAPTURE_INVALIDATED } state;
    uint64_t id;              /* of an active capture: the same for every stream that takes part */
    const driver_node *nodes; /* the stream's last nodes, on which its next one will depend; valid
                                 until the thread's */
    size_t node_count;        /* next call of the driver */
    bool partial;             /* its next node will not wait for the whole of each of them */
};

struct driver_properties {
    char name[64];
    size_t memory;        /* bytes */
    size_t granule;       /* bytes: the unit of pieces and of mapping */
    size_t recommended;   /* bytes, whole granules: of what others are to register, by the driver's
                             advice */
    size_t address_limit; /* bytes that may be reserved in all; SIZE_MAX where the driver sets
                             none */
    int least_priority, greatest_priority;
    bool virtual_memory, alias;
    bool exportable;                        /* pieces can be created so that other processes can
                                               have them */
    int capability_major, capability_minor; /* compute capability; 0 on the host device */
};

/* X(call, parameters). Which of them may wait for queued work: free, host_free, host_unregister,
 * unmap (on some drivers), release, *_synchronize, stream_destroy. is_active says whether the
 * device has a context already, and makes none. current gives the device of the calling thread's
 * context, 0 where it has none; context_get the context itself, and context_set makes it current
 * again, whatever it is. None of these makes one.
 * stream_check is TARN_ERROR_INVALID_STREAM for a stream that is another device's, or of a context
 * that is not the primary one: no event of tarn can be recorded there. Not asked about the legacy
 * stream and a thread's. TARN_OK where the driver cannot tell. stream_number is what the vendor
 * calls a stream beside its pointer: no other stream of the process's life has it, also where a
 * pointer is used again. TARN_ERROR_NOT_SUPPORTED, without a text, where the driver has no such
 * numbers. Never 0. TARN_ERROR_CAPTURE, without a text, for a stream that captures, of which the
 * vendor is not asked.
 * Plain memory in the order of a stream, from the driver's own pool. TARN_ERROR_CAPTURE where the
 * stream captures, since both would become nodes of the graph; TARN_ERROR_NOT_SUPPORTED where the
 * driver has no such pools:
 *   alloc_async         memory for what is queued on the stream from now on. May wait where the
 *                       device is full
 *   free_async          takes effect when what is queued on the stream so far has ended. Does not
 *                       wait. `free` takes it too, when all work that uses it has ended
 * Host memory that devices reach by themselves, every device alike; `device` is the one whose
 * context serves for the call:
 *   host_alloc/_free          the driver's memory; at a page
 *   host_register/_unregister makes memory of the caller's such; whole pages, no part of it
 *   registered before
 * Physical memory:
 *   reserve/unreserve   an address range; unreserve takes exactly a range that was reserved, with
 *                       nothing mapped in it
 *   create/release      a piece; release of a mapped piece takes effect when it is unmapped
 *   map/unmap           a whole piece at a granule of a reserved range; unmap takes whole mappings,
 *                       one or more in a row
 *   set_access          read and write for each of `devices` over whole mappings without a hole
 *   export              a file descriptor of a piece that was created exportable; the caller closes
 *                       it
 *   import              a piece of `size` bytes out of such a descriptor, which stays the caller's:
 *                       a whole one, here or in another process, released like one that was
 *                       created. What the descriptor cannot be is TARN_ERROR_INVALID_ARGUMENT
 * Captures. Status values 900 to 909 of a vendor become TARN_ERROR_CAPTURE:
 *   capture_begin/_end  end gives a graph, or TARN_ERROR_CAPTURE and no graph when the capture was
 *                       invalidated; it is over either way, unless it began on another stream, or
 *                       in another thread and is not relaxed. On HIP the stream of an invalidated
 *                       one still says that it captures. stream_destroy of the stream on which it
 *                       began ends it too, for any thread
 *   capture_status      never touches tarn_last_error(); asking the legacy stream while a blocking
 *                       one captures says INVALIDATED or fails with TARN_ERROR_CAPTURE: treat both
 *                       as "captures"
 *   capture_mode        exchanges the calling thread's mode, for what is called outside this table
 *   capture_depend      makes the stream's next node depend on these nodes instead
 *                       (cuStreamUpdateCaptureDependencies, SET)
 *   node_before         the nodes that a node waits for the whole of, and how many there are; no
 *                       use where that is more than `room`. Fails where it waits for a part of one.
 *                       Never touches tarn_last_error()
 *   graph_launch        runs a graph's work on a stream, any number of times; not on one that
 *                       captures, whose capture that ends
 *   graph_hold          has `end` called once, when the graph and all that was made of it since are
 *                       destroyed and their work has ended: by any thread, which may hold the
 *                       driver's locks, so that it must call nothing and wait for nothing. Not
 *                       called on failure. TARN_ERROR_NOT_SUPPORTED where the driver cannot tell.
 *                       What a graph_launch keeps beside the graph goes with graph_destroy: a graph
 *                       that was launched by the one and destroyed by the vendor's own call ends
 *                       when its address serves a graph again
 * Peers: peer_possible for a device and itself is true; peer_enable lets `device` reach plain
 * allocations of `peer`. */
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
    X(graph_destroy, (int device, driver_graph graph))                                             \
    X(graph_hold, (int device, driver_graph graph, void (*end)(void *), void *argument))           \
    X(peer_possible, (int device, int peer, bool *possible))                                       \
    X(peer_enable, (int device, int peer))

/* Flags of create. Memory that other devices of the machine can reach by RDMA is made where the
 * device can, and is ordinary memory elsewhere; what cannot be exported is
 * TARN_ERROR_NOT_SUPPORTED. HOST, alone, is memory of the host's that is mapped and reached as the
 * device's is, and takes none of it: TARN_ERROR_NOT_SUPPORTED where the driver has no such
 * pieces. */
#define DRIVER_PIECE_EXPORTABLE 1u
#define DRIVER_PIECE_RDMA 2u
#define DRIVER_PIECE_HOST 4u

enum driver_call {
#define X(call, parameters) DRIVER_CALL_##call,
    DRIVER_CALL_LIST(X)
#undef X
        DRIVER_CALLS
};

/* What a driver that checks has found: work of two streams, or work and an unmap, on the same
 * bytes. */
struct driver_conflict {
    int device;
    const char *text;
    struct driver_side {
        uintptr_t address;
        size_t size;
        uint64_t owner; /* of the memory when the work was queued; 0: none */
    } sides[2];         /* size 0: an unmap has one side */
};

/* A process with memory on a device. */
struct driver_process {
    long number;
    size_t bytes; /* SIZE_MAX where that is not told */
};

/* What a device is called outside this process, whatever its number is here; "" where the driver
 * does not say. */
struct driver_identity {
    char uuid
        [48]; /* as the vendor's monitor prints it: "GPU-...", of a slice of a device "MIG-..." */
    char pci[24]; /* "0000:1b:00.0" */
};

/* Eight bytes of what a node of a graph was given. */
struct driver_word {
    uint64_t value;
    enum {
        WORD_IS_ADDRESS, /* the node reads or writes there */
        WORD_IS_WHOLE,   /* a parameter of a kernel of that size */
        WORD_IS_FIELD    /* a part of a larger one, at a multiple of 8 */
    } kind;
    enum driver_node_kind {
        DRIVER_NODE_KERNEL,
        DRIVER_NODE_COPY,
        DRIVER_NODE_SET,
        DRIVER_NODE_FREE,
        DRIVER_NODE_BATCH
    } of;
    driver_node node;
    size_t number;      /* of the node, in the order of the walk, an embedded graph's among them */
    unsigned depth;     /* graphs that the node's graph is embedded in */
    const char *kernel; /* its name; "" where there is none. Valid as long as its module */
    unsigned parameter; /* its index; of a copy 0 is the target, 1 the source; of a batch the
                           operation's */
    size_t offset;      /* in the parameter */
    size_t size;        /* bytes: of the parameter; of an address, those used from there on, 0 where
                           that is not known */
};

/* Nodes that may hold addresses which nobody can look at. */
enum driver_unseen {
    UNSEEN_HOST,        /* functions of the host */
    UNSEEN_KERNEL,      /* kernels whose layout or parameters the driver does not tell */
    UNSEEN_UPDATABLE,   /* kernels whose parameters the device may change */
    UNSEEN_CONDITIONAL, /* the bodies of conditional nodes */
    UNSEEN_OTHER, /* semaphores, unknown kinds, what the driver failed to tell, graphs embedded
                           too deep */
    DRIVER_UNSEEN
};

struct driver_walk {
    /* Called for each word that may be an address of this process, in the order of nodes; false
     * ends the walk with TARN_ERROR_OUT_OF_HOST_MEMORY. */
    bool (*word)(const struct driver_word *word, void *user);
    void *user;
    size_t nodes; /* results */
    size_t unseen[DRIVER_UNSEEN];
};

/* Whether a word is worth a look: no address is above 2^48, or in the first page. */
static inline bool driver_word_may_be_address(uint64_t value)
{
    return value >= 4096 && value >> 48 == 0;
}

struct driver {
    const char *name;
    /* The vendor's constants among the values of driver_stream: the legacy stream beside NULL, and
     * the default stream of the calling thread, another one in each. NULL where the driver has no
     * such constant. */
    driver_stream legacy, per_thread;
    /* device_synchronize ends the captures of every device, not only those of its own. */
    bool wait_ends_all;
#define X(call, parameters) tarn_status(*call) parameters;
    DRIVER_CALL_LIST(X)
#undef X
    /* Optional, NULL where the driver does not check: memory at an address gets an owner (a
     * stream), whose number is given, or loses it. `checking` says whether they are worth calling
     * now. `check` turns that on; each conflict is counted, and given to `found` by any thread,
     * which may have any lock: it must call nothing. */
    uint64_t (*owner_set)(int device, uintptr_t address, size_t size, driver_stream stream);
    void (*owner_clear)(int device, uintptr_t address, size_t size);
    bool (*checking)(void);
    tarn_status (*check)(void (*found)(const struct driver_conflict *conflict));
    /* Optional: the processes with memory on a device, this one among them, as the system's own
     * monitor lists them, at most `room`; how many were stored. May take ms. Touches no last
     * error. */
    size_t (*processes)(int device, struct driver_process *list, size_t room);
    /* Optional: fills in what is known of a device. Makes no context and touches no last error. */
    void (*identity)(int device, struct driver_identity *identity);
    /* Optional: looks at what the nodes of a graph, and of those embedded in it, were given. Nobody
     * changes the graph meanwhile. */
    tarn_status (*graph_walk)(int device, driver_graph graph, struct driver_walk *walk);
    /* Optional, NULL where events can only be asked one by one: waits until one of these events, of
     * any devices, has ended; which one is in `ended`. */
    tarn_status (*event_wait_any)(const driver_event *events, size_t count, size_t *ended);
    /* Ends background threads and gives up the process's part of the driver. Nothing is called
     * after it. */
    void (*finish)(void);
};

/* The chosen driver; NULL before driver_init() succeeded. */
extern const struct driver *driver;

/* Chooses the driver by TARN_DRIVER (auto, cuda, hip, host), once per process; cheap afterwards.
 * `auto` takes a GPU if one answers, else the host device. Opens libraries: with no lock held, for
 * whoever is inside the loader, in a constructor, may come here too. TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_CONFIGURATION. */
tarn_status driver_init(void);

/* Why the driver is the one it is: "host: libcuda.so.1: cannot open ...; libamdhip64.so.7: ...".
 * Empty before the choice. */
const char *driver_reason(void);

/* "map" for DRIVER_CALL_map; NULL for anything else. */
const char *driver_call_name(int call);

/* For alloc_async and free_async: fails where what capture_status answered does not say that the
 * stream does not capture. */
tarn_status driver_refuse_captured(const char *call, int device, tarn_status answer,
                                   const struct driver_capture *capture);

/* The driver's finish(), after which driver_init() may choose again: for tests, which need a fresh
 * device each. */
void driver_finish(void);

/* Prints 16 bytes as a UUID behind a prefix. */
void driver_uuid_print(struct driver_identity *identity, const char *prefix,
                       const unsigned char bytes[16]);

extern const struct driver driver_host, driver_cuda, driver_hip;

/* Whether a library that dlopen() gave may get streams and memory of the HIP driver: not where it
 * is linked against another major version of the runtime, which then is in the process beside ours
 * and knows nothing of them. Says so in `why`. True where the HIP driver is not in use, or the
 * library needs no runtime. */
bool driver_hip_serves(void *library, char *why, size_t size);

#endif
