/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs that use a pool. */
#ifndef TARN_MEMORY_GRAPH_H
#define TARN_MEMORY_GRAPH_H

#include "device/stream.h"

/* Call when a known capture has ended, with its graph, or NULL if there is none. On failure the
 * graph does not hold its memory, and the caller destroys it. */
tarn_status graph_capture_ended(struct stream *stream, driver_graph graph);

/* Call with the caller's graph before an announced capture ends. The graph gets its own reference
 * and hold on the capture's pool, if there is one. On failure nothing has changed. */
tarn_status graph_capture_keeps(struct stream *stream, driver_graph graph);

/* Whether a graph holds a pool of a device, as far as tarn knows. */
bool graph_holds_pool(driver_graph graph, int device, const uint64_t id[2]);

#endif
