/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The graph of a device in `tarn top`. */
#ifndef TOOLS_TOP_GRAPH_H
#define TOOLS_TOP_GRAPH_H

#include "top/top.h"

/* A few lines: allocated memory as bars, reserved memory as dots, over the newest readings. Nothing
 * of a device that was read once. */
void top_graph_say(struct top_frame *frame, const struct top_look *look, int device);

#endif
