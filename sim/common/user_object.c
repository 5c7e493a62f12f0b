/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the user objects. `lock` protects their counts and is held over no call; destructors run
 * without it. */
#include "common/user_object.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/lock.h"

/* Objects are never unmapped. `live` is not in the first word, which the object pool overwrites, so
 * a stale handle is recognised. */
struct sim_user_object {
    void *first;
    bool live;
    uint64_t count;
    void (*destroy)(void *);
    void *argument;
};

/* The references that a graph holds of one object. */
struct part {
    struct sim_user_object *object;
    unsigned count;
};

static mutex user_objects_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct object_pool objects = OBJECT_POOL(struct sim_user_object);
static struct object_pool parts = OBJECT_POOL(struct part);

struct sim_user_object *sim_user_object_create(void (*destroy)(void *), void *argument,
                                               unsigned count)
{
    struct sim_user_object *object = object_alloc(&objects);
    if (object)
        *object = (struct sim_user_object){
            .live = true, .count = count, .destroy = destroy, .argument = argument};
    return object;
}

bool sim_user_object_release(struct sim_user_object *object, unsigned count)
{
    mutex_lock(&user_objects_lock);
    bool has = object->live && object->count >= count;
    if (has)
        object->count -= count;
    bool last = has && !object->count;
    if (last)
        object->live = false;
    mutex_unlock(&user_objects_lock);
    if (last) {
        object->destroy(object->argument);
        object_free(&objects, object);
    }
    return has;
}

/* Adds `count` references. False if there is no such object. */
static bool sim_user_object_retain(struct sim_user_object *object, unsigned count)
{
    mutex_lock(&user_objects_lock);
    bool live = object->live;
    if (live)
        object->count += count;
    mutex_unlock(&user_objects_lock);
    return live;
}

static void graph_ended(void *argument)
{
    const struct part part = *(struct part *)argument;
    object_free(&parts, argument);
    (void)sim_user_object_release(part.object, part.count);
}

tarn_status sim_user_object_hold(struct sim_user_object *object, int device, driver_graph graph,
                                 unsigned count, bool more)
{
    struct part *part = object_alloc(&parts);
    if (!part)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    *part = (struct part){object, count};
    mutex_lock(&user_objects_lock);
    bool has = object->live && (more || object->count >= count);
    mutex_unlock(&user_objects_lock);
    tarn_status status = has ? TARN_OK : TARN_ERROR_INVALID_ARGUMENT;
    if (!status && more)
        (void)sim_user_object_retain(object, count);
    if (!status) {
        status = driver->graph_hold(device, graph, graph_ended, part);
        if (status && more)
            (void)sim_user_object_release(object, count);
    }
    if (status)
        object_free(&parts, part);
    return status;
}
