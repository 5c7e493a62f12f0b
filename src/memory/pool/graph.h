/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs that use a pool. */
#ifndef TARN_MEMORY_GRAPH_H
#define TARN_MEMORY_GRAPH_H

#include "device/stream.h"

/* A known capture has ended, with its graph, or with NULL and without one. On failure the graph is to be destroyed: its memory is
 * not held. */
tarn_status graph_capture_ended(struct stream *stream, driver_graph graph);

/* The caller's graph of an announced capture that is about to end: it counts and holds the capture's pool, where there is one, beside
 * the capture, which may end then. On failure nothing has changed. */
tarn_status graph_capture_keeps(struct stream *stream, driver_graph graph);

#endif
