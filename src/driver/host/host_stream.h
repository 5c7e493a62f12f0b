/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the files of the host device's queued work share: host_stream.c owns queues and the clock,
 * host_event.c events, host_work.c the ways to queue work, host_capture.c captures, host_graph.c
 * what they recorded. All of it is under the streams lock, which `_locked` functions assume. */
#ifndef TARN_DRIVER_HOST_STREAM_H
#define TARN_DRIVER_HOST_STREAM_H

#include "base/pages.h"
#include "driver/host/host.h"

struct host_event {
    struct host_event *next, *previous; /* the list of all events */
    bool live; /* between create and destroy; not in the first word, which the object pool uses */
    struct host_device *device;
    struct host_stream *stream; /* NULL: never recorded, or last recorded in a capture */
    uint64_t position;
    uint64_t captured;       /* the capture that it was last recorded in; 0: none */
    struct host_nodes nodes; /* in a capture: the stream's last nodes */
};

extern struct object_pool host_op_objects;

/* ---- host_stream.c ---- */

/* Ends an entry that may have moved queues. */
void host_streams_leave(void);
/* The clock of queued work, ns. */
uint64_t host_now_locked(void);
/* Waits until the stream is done with `position`. Returns the ns by which the clock was moved. */
uint64_t host_stream_wait_relocking(struct host_stream *stream, uint64_t position);
/* For waits that may end in several ways: the stream that holds up a stream with unfinished
 * work. */
struct host_stream *host_stream_holding_up_locked(struct host_stream *stream);
/* Whether timed work at `a` ends before that at `b`, or only `a` has some. */
bool host_stream_ends_before_locked(const struct host_stream *a, const struct host_stream *b);
/* One step of a wait for that stream: the clock moves to the end of its timed work, or some real
 * work ends. Returns the ns by which the clock was moved. */
uint64_t host_stream_wait_step_relocking(const struct host_stream *holds_up);
/* Adds an operation to the end of a queue. */
void host_enqueue_locked(struct host_stream *stream, struct host_op *op);
tarn_status host_no_op(const char *call) __attribute__((cold));
/* Makes the next operation of `stream` wait for `position` of `other`. */
tarn_status host_enqueue_wait_locked(const char *call, struct host_stream *stream,
                                     struct host_stream *other, uint64_t position);
/* The rule of the legacy stream, before anything is queued or recorded: it waits for all blocking
 * streams of its device, and they wait for it. A failure may leave a needless wait. */
tarn_status host_stream_join_locked(const char *call, struct host_stream *stream);
/* The stream with a handle. Fails if the device has none. */
tarn_status host_stream_find_locked(const char *call, struct host_device *device,
                                    driver_stream handle, struct host_stream **stream);
/* Creates a stream that no ledger counts. NULL: no host memory. */
struct host_stream *host_stream_make_locked(struct host_device *device, int priority,
                                            bool blocking);
/* Ends such a stream, whose work still runs. */
void host_stream_end_locked(struct host_stream *stream);

/* ---- host_event.c ---- */

void host_events_finish_locked(void);

/* ---- host_capture.c ---- */

/* An open capture. */
struct host_capture {
    struct host_capture *next, *previous; /* of all open ones */
    uint64_t id;
    enum driver_capture_mode mode;
    unsigned thread; /* the thread that began it */
    bool invalid;
    /* Streams that take part, by next_captured, newest first; the origin is the last. */
    struct host_stream *streams;
    struct host_graph *graph;
};

/* Begins every call that adds to a stream. `*capture` is the capture to record into, or NULL. Fails
 * for a stream whose capture is invalidated. Fails for the legacy stream while a blocking stream of
 * its device captures, and invalidates that capture. */
tarn_status host_capture_enter_locked(const char *call, struct host_stream *stream,
                                      struct host_capture **capture);
/* If the stream captures, fails, because no graph can contain the call. The capture goes on. */
tarn_status host_capture_refuse_locked(const char *call, const struct host_stream *stream);
/* Begins every call that queries or waits for a stream. If the stream captures, fails and
 * invalidates the capture. */
tarn_status host_capture_bar_locked(const char *call, struct host_stream *stream);
/* The same for an event that was recorded in a capture. */
tarn_status host_capture_bar_event_locked(const char *call, const struct host_event *event);
/* The same for a device, and all captures on it. */
tarn_status host_capture_bar_device_locked(const char *call, const struct host_device *device);
/* A stream is destroyed: ends the capture that began on it, without a graph. A capture that it has
 * joined keeps it until that is over. */
void host_capture_end_with_origin_locked(struct host_stream *stream);
/* A stream waits for an event, and one of the two is in a capture: adds an edge, or makes the
 * stream join. */
tarn_status host_capture_wait_locked(struct host_stream *stream, struct host_capture *capture,
                                     const struct host_event *event);
void host_captures_finish_locked(void);

/* ---- host_graph.c ---- */

/* A recorded operation. Its edges go to nodes recorded earlier. */
struct host_node {
    struct host_node *next, *previous; /* in the graph, in the order of recording */
    bool live;
    uint64_t number; /* no other node has it, now or later */
    struct host_graph *graph;
    unsigned branch;          /* the stream that it was recorded on */
    struct host_op op;        /* in timed work, `due` is its duration */
    struct host_nodes before; /* the nodes that it waits for */
    uint64_t position;        /* in its branch's stream, during a launch */
    uint64_t seen;            /* the last walk that reached it */
};

struct host_branch {
    struct host_device *device;
    int priority;
    struct host_stream *stream; /* during a launch */
};

struct host_hold;

struct host_graph {
    struct host_graph *next, *previous; /* the list of all graphs */
    bool live;
    struct host_hold *holds; /* to be notified of its end */
    struct host_node *first, *last;
    struct host_branch *branches; /* 0 is the origin's */
    unsigned branch_count, branch_room;
    /* The stream and position of the end of the last launch: launches run one after the other. */
    struct host_stream *last_stream;
    uint64_t last_position;
};

struct host_graph *host_graph_create_locked(void);
void host_graph_destroy_locked(struct host_graph *graph);
/* Adds a branch for a stream that joins. Returns its number in `branch`. False: no host memory. */
bool host_graph_branch_locked(struct host_graph *graph, const struct host_stream *stream,
                              unsigned *branch);
/* Records an operation after the stream's last nodes. It becomes the last node. Takes over the uses
 * of `op`. */
tarn_status host_graph_add_locked(const char *call, struct host_graph *graph,
                                  struct host_stream *stream, const struct host_op *op);
/* Whether a handle is that of a graph. */
bool host_graph_exists(driver_graph graph);
/* Whether the graph has the node. */
bool host_graph_has_locked(const struct host_graph *graph, driver_node node);
/* Whether the nodes `from`, and the nodes before them, include all of `others`. */
bool host_graph_reaches_locked(const struct host_nodes *from, const struct host_nodes *others);
void host_graphs_finish_locked(void);

bool host_nodes_reserve(struct host_nodes *nodes, unsigned count);
/* Adds nodes that are not in the list. False: no host memory, and nothing was added. */
bool host_nodes_merge(struct host_nodes *nodes, const driver_node *list, size_t count);
bool host_nodes_copy(struct host_nodes *nodes, const struct host_nodes *from);
void host_nodes_free(struct host_nodes *nodes);

#endif
