/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated vendor libraries share: a private copy of the host device, started on demand,
 * and environment variables. Each library has its own copy of all this and exports none of it.
 *
 *   TARN_SIM_FAIL=CALL:N:CODE[+],...   the N-th call of CALL since the start of the process returns
 *                                      CODE, with + every later one too. CALL is a name such as
 *                                      cuMemCreate, or `any` for every call that can fail. Each
 *                                      rule counts every call, also one that another rule made
 *                                      fail. If two rules mean the same call, the first one applies
 *   TARN_SIM_SLOW=CALL:MS,...          every call of CALL takes that many milliseconds longer
 *   TARN_HOST_DEVICES, TARN_HOST_MEMORY, TARN_HOST_MAPS   the devices: tarn/host.h */
#ifndef SIM_COMMON_SIM_H
#define SIM_COMMON_SIM_H

#include "common/machine.h"
#include "driver/driver.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))

enum sim_state { SIM_RUNS, SIM_NOT_STARTED, SIM_FORKED, SIM_EXITS };

/* Starts the host device of this library. TARN_ERROR_CONFIGURATION if a variable is malformed. It
 * may be called again. When the process exits,
 * sim_state() becomes SIM_EXITS. */
tarn_status sim_start(void);
enum sim_state sim_state(void);

/* Applies the rules to a call of `call`: waits if a rule makes it slow. Returns the code to fail
 * with, or 0. */
unsigned sim_knob(const char *call);

/* Failures by number, whatever the call is, as in struct machine. */
void sim_fail(uint64_t nth, bool forever, unsigned code);
uint64_t sim_fail_calls(void);
uint64_t sim_fail_hits(void);

/* Implemented by each library for machine.c; these calls follow no rule and are not counted.
 * sim_native_stream() returns the host device's stream behind a stream of the library, and its
 * device. The other two return the host device's graph behind a graph of the library, and destroy
 * such a graph. */
tarn_status sim_native_stream(void *native, int *device, driver_stream *stream);
driver_graph sim_native_graph(void *native);
tarn_status sim_native_graph_destroy(void *native);

/* Returns a number from the environment, or `otherwise`. With a value that is not a number no
 * library starts. */
unsigned sim_number(const char *variable, unsigned otherwise);

#endif
