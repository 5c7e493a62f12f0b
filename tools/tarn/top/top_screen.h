/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The screen of `tarn top`. */
#ifndef TOOLS_TOP_SCREEN_H
#define TOOLS_TOP_SCREEN_H

#include "top/fleet.h"
#include "top/top.h"

/* Shows the process of an open page on the terminal, refreshed every `interval` seconds, until q is
 * pressed or the process ends; then its last reading stays, and the end is said. The first of the
 * three readings is made already, the others are room. Leaves the terminal as it was. False, with a
 * text on standard error, when something failed. */
bool top_screen_run(int file, struct top_reading readings[3], double interval,
                    struct top_look look);

/* Shows all processes that publish, read again every `interval` seconds, until q is pressed; keys
 * choose the order. False as above. */
bool top_screen_fleet(const char *directory, double interval, enum fleet_order order,
                      struct top_look look);

#endif
