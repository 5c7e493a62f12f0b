/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated vendor libraries share: a private copy of the host device, started on demand,
 * and the knobs in the environment. Each library has its own copy of all of this; nothing of it is
 * exported.
 *
 *   TARN_SIM_FAIL=CALL:N:CODE[+],...   the N-th call of CALL (cuMemCreate; `any` for all that can
 *                                      fail) from the start of the process gives CODE, with + every
 *                                      later one too. Each rule counts every call, also one that
 *                                      another has failed; of two that mean the same one, the first
 *                                      counts
 *   TARN_SIM_SLOW=CALL:MS,...          every call of CALL takes that many milliseconds more
 *   TARN_HOST_DEVICES, TARN_HOST_MEMORY, TARN_HOST_MAPS   the devices: tarn/host.h */
#ifndef SIM_COMMON_SIM_H
#define SIM_COMMON_SIM_H

#include "common/machine.h"
#include "driver/driver.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))

enum sim_state { SIM_RUNS, SIM_NOT_STARTED, SIM_FORKED, SIM_EXITS };

/* Starts the host device of this library; from the end of the process on, as its exit handlers see
 * it, sim_state() is SIM_EXITS. May be called again. */
tarn_status sim_start(void);
enum sim_state sim_state(void);

/* What the knobs say of this call of `call`: waits where it is to be slow, and gives the code to
 * fail with, or 0. */
unsigned sim_knob(const char *call);

/* The same by number, whatever the call: what a `machine` has. */
void sim_fail(uint64_t nth, bool forever, unsigned code);
uint64_t sim_fail_calls(void);
uint64_t sim_fail_hits(void);

/* What machine.c asks of the library that it is in. These neither fail by a knob nor count as
 * calls: the host device's stream of a native one, with its device in place of the one given; the
 * host device's graph of a native one; and a native graph's end. */
tarn_status sim_native_stream(void *native, int *device, driver_stream *stream);
driver_graph sim_native_graph(void *native);
tarn_status sim_native_graph_destroy(void *native);

/* A number from the environment, or `otherwise`. Says on standard error what is not a number. */
unsigned sim_number(const char *variable, unsigned otherwise);

#endif
