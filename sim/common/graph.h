/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Graphs and executables, which are alike in CUDA and HIP. An executable holds its graph, so a
 * program may destroy the graph first. A program may ask for the graph of an open capture; the end
 * of the capture returns the same graph. If the capture ends without a graph, that graph's object
 * is reused once the host device reuses the graph's memory. Thread-safe. */
#ifndef SIM_COMMON_GRAPH_H
#define SIM_COMMON_GRAPH_H

#include "driver/driver.h"

/* What a vendor's handle of a graph points to. Objects are never unmapped. `live` is not in the
 * first word, which the object pool overwrites, so a stale handle is recognised. A graph is kept as
 * long as the caller, an executable or a node that embeds it holds it. */
struct sim_graph {
    void *first;
    bool live;
    int device;
    int holders; /* graphs lock */
    driver_graph host;
    uint64_t capture;       /* graphs lock: that goes on and was asked for its graph; 0: none */
    struct sim_graph *next; /* graphs lock: of those with a capture */
};

/* What a vendor's handle of an executable points to. */
struct sim_exec {
    void *first;
    bool live;
    struct sim_graph *graph;
};

/* An empty graph. */
tarn_status sim_graph_create(int device, struct sim_graph **graph);
/* The graph of a capture that goes on; NULL: no memory. */
struct sim_graph *sim_graph_show(int device, const struct driver_capture *capture);
/* Ends a stream's capture. NULL in `graph` if that fails. */
tarn_status sim_graph_capture_end(int device, driver_stream stream, struct sim_graph **graph);

/* Whether somebody holds the graph. */
bool sim_graph_exists(struct sim_graph *graph);
/* Adds a holder to a graph that its caller has. False: the caller has destroyed it. */
bool sim_graph_hold(struct sim_graph *graph);
tarn_status sim_graph_let_go(struct sim_graph *graph);
/* The same, while the end of another graph is being reported. */
void sim_graph_let_go_at_end(struct sim_graph *graph);
/* The caller destroys its graph. TARN_ERROR_INVALID_ARGUMENT: it has none, or a capture has it. */
tarn_status sim_graph_end(struct sim_graph *graph);

/* TARN_ERROR_INVALID_ARGUMENT: the graph, or the executable, does not exist. */
tarn_status sim_exec_create(struct sim_graph *graph, struct sim_exec **exec);
tarn_status sim_exec_end(struct sim_exec *exec);

#endif
