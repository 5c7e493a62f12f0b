/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* User objects of CUDA and HIP, which both have alike: counted, held by the caller and by graphs,
 * with a destructor that runs once when nobody holds one any more. Thread-safe. */
#ifndef SIM_COMMON_USER_OBJECT_H
#define SIM_COMMON_USER_OBJECT_H

#include "driver/driver.h"

struct sim_user_object;

/* NULL where the host is out of memory. */
struct sim_user_object *sim_user_object_create(void (*destroy)(void *), void *argument,
                                               unsigned count);

/* `count` references fewer, or more. False, nothing done, where there is no such object or it has
 * not as many. */
bool sim_user_object_release(struct sim_user_object *object, unsigned count);
bool sim_user_object_retain(struct sim_user_object *object, unsigned count);

/* A graph of the host device holds the object by `count` references until the graph and its work
 * have ended: the caller's, or with `more` new ones. */
tarn_status sim_user_object_hold(struct sim_user_object *object, int device, driver_graph graph,
                                 unsigned count, bool more);

#endif
