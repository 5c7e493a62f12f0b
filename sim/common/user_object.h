/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* User objects, which are alike in CUDA and HIP: a count of references, held by the caller and by
 * graphs, and a destructor that runs once when no reference is left. Thread-safe. */
#ifndef SIM_COMMON_USER_OBJECT_H
#define SIM_COMMON_USER_OBJECT_H

#include "driver/driver.h"

struct sim_user_object;

/* Returns NULL if the host has no memory. */
struct sim_user_object *sim_user_object_create(void (*destroy)(void *), void *argument,
                                               unsigned count);

/* Removes `count` references. False if there is no such object or it has fewer references; then
 * nothing was done. */
bool sim_user_object_release(struct sim_user_object *object, unsigned count);

/* Makes a graph of the host device hold `count` references until the graph and its work have ended:
 * the caller's references, or with `more` new ones. */
tarn_status sim_user_object_hold(struct sim_user_object *object, int device, driver_graph graph,
                                 unsigned count, bool more);

#endif
