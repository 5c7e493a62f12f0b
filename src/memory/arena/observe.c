/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the list of observers, by number. A callback runs without the list's lock. While it runs it
 * is counted in `running`, which keeps its observer in the list, so that a walk can continue. A
 * thread that removes an observer waits, also counted, until only callbacks of its own thread run.
 * The thread that reduces the count to 0 takes the observer out of the list. */
#include "memory/arena/observe.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "base/tree.h"

#include <tarn/device.h>

enum event { EVENT_MAPPED, EVENT_UNMAPPING, EVENT_OUT_OF_MEMORY, EVENT_BEFORE_GROWTH, EVENTS };

struct observer {
    struct tree_node node;
    tarn_observer number; /* the order in which they are added and called */
    tarn_observer_options options;
    unsigned running; /* callbacks that run, and threads that wait for them */
    bool removed;
};

/* A callback that runs in this thread. `outer` is the callback that it interrupted. */
struct frame {
    struct frame *outer;
    const struct observer *observer;
    enum event event;
};

/* protects everything below, except where a comment says otherwise */
static mutex observers_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static pthread_cond_t observer_let_go = PTHREAD_COND_INITIALIZER;
static struct tree observers;
static tarn_observer last_number;
static struct object_pool observer_objects = OBJECT_POOL(struct observer);
static atomic_uint interested[EVENTS]; /* number of observers that want it; read without the lock */
static _Thread_local struct frame *frames;

#define OBSERVER_OF(at) TREE_ENTRY(at, struct observer, node)

static bool is_before(const struct tree_node *a, const struct tree_node *b)
{
    return OBSERVER_OF(a)->number < OBSERVER_OF(b)->number;
}

static bool is_from(const struct tree_node *node, uint64_t number)
{
    return OBSERVER_OF(node)->number >= number;
}

static bool wants(const struct observer *observer, enum event event)
{
    const tarn_observer_options *options = &observer->options;
    const bool wanted[EVENTS] = {
        [EVENT_MAPPED] = options->mapped != NULL,
        [EVENT_UNMAPPING] = options->unmapping != NULL,
        [EVENT_OUT_OF_MEMORY] = options->out_of_memory != NULL,
        [EVENT_BEFORE_GROWTH] = options->before_growth != NULL,
    };
    return wanted[event];
}

static void let_go_locked(struct observer *observer)
{
    observer->running--;
    if (!observer->removed)
        return;
    if (observer->running == 0) {
        tree_remove(&observers, &observer->node);
        object_free(&observer_objects, observer);
    }
    pthread_cond_broadcast(&observer_let_go);
}

/* ---- Calling ---- */

/* The arguments of a callback, by event. */
struct told {
    enum event event;
    int device;
    const tarn_mapping *range;
    const tarn_shortage *shortage;
    size_t bytes;
};

CALLS_BACK static bool call(const struct observer *observer, const struct told *told)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    const tarn_observer_options *options = &observer->options;
    struct callback callback;
    bool answer = false;
    callback_begin(&callback);
    switch (told->event) {
    case EVENT_MAPPED:
        options->mapped(told->range, options->user);
        break;
    case EVENT_UNMAPPING:
        options->unmapping(told->range, options->user);
        break;
    case EVENT_OUT_OF_MEMORY:
        answer = options->out_of_memory(told->shortage, options->user);
        break;
    case EVENT_BEFORE_GROWTH:
        answer = options->before_growth(told->device, told->bytes, options->user);
        break;
    case EVENTS:
        break;
    }
    callback_end(&callback);
    return answer;
}

/* Calls all observers of an event. Returns whether any returned true. Restores the thread's last
 * error afterwards. */
static bool tell(const struct told *told)
{
    struct error_before before;
    bool any = false;
    error_attempt_begin(&before);
    mutex_lock(&observers_lock);
    for (struct tree_node *node = tree_first(&observers), *next; node; node = next) {
        struct observer *observer = OBSERVER_OF(node);
        int device = observer->options.device;
        next = tree_next(node);
        if (observer->removed || !wants(observer, told->event) ||
            (device != TARN_ALL_DEVICES && device != told->device))
            continue;
        struct frame frame = {frames, observer, told->event};
        observer->running++;
        mutex_unlock(&observers_lock);
        frames = &frame;
        any |= call(observer, told);
        frames = frame.outer;
        mutex_lock(&observers_lock);
        next = tree_next(node);
        let_go_locked(observer);
    }
    mutex_unlock(&observers_lock);
    error_attempt_end(&before, TARN_OK);
    return any;
}

static bool anyone_wants(enum event event)
{
    return atomic_load_explicit(&interested[event], memory_order_relaxed) != 0;
}

void observe_mapped(const tarn_mapping *range)
{
    if (anyone_wants(EVENT_MAPPED))
        (void)tell(&(struct told){.event = EVENT_MAPPED, .device = range->device, .range = range});
}

void observe_unmapping(const tarn_mapping *range)
{
    if (anyone_wants(EVENT_UNMAPPING))
        (void)tell(
            &(struct told){.event = EVENT_UNMAPPING, .device = range->device, .range = range});
}

enum observed observed_by(int device)
{
    enum observed by = OBSERVED_BY_NONE;
    if (!anyone_wants(EVENT_MAPPED) && !anyone_wants(EVENT_UNMAPPING))
        return by;
    mutex_lock(&observers_lock);
    for (struct tree_node *node = tree_first(&observers); node; node = tree_next(node)) {
        const struct observer *observer = OBSERVER_OF(node);
        const tarn_observer_options *options = &observer->options;
        bool here = options->device == TARN_ALL_DEVICES || options->device == device;
        if (observer->removed || !here || (!options->mapped && !options->unmapping))
            continue;
        if (!options->any_thread)
            by = OBSERVED_BY_CALLERS;
        else if (by == OBSERVED_BY_NONE)
            by = OBSERVED_BY_ANY_THREAD;
    }
    mutex_unlock(&observers_lock);
    return by;
}

static bool runs_here(enum event event, enum event other)
{
    for (const struct frame *frame = frames; frame; frame = frame->outer)
        if (frame->event == event || frame->event == other)
            return true;
    return false;
}

bool observe_wants_shortage(void)
{
    return anyone_wants(EVENT_OUT_OF_MEMORY) &&
           !runs_here(EVENT_OUT_OF_MEMORY, EVENT_BEFORE_GROWTH);
}

bool observe_out_of_memory(const tarn_shortage *shortage)
{
    return observe_wants_shortage() &&
           tell(&(struct told){
               .event = EVENT_OUT_OF_MEMORY, .device = shortage->device, .shortage = shortage});
}

bool observe_wants_growth(void)
{
    return anyone_wants(EVENT_BEFORE_GROWTH);
}

bool observe_before_growth(int device, size_t bytes)
{
    return anyone_wants(EVENT_BEFORE_GROWTH) &&
           !runs_here(EVENT_OUT_OF_MEMORY, EVENT_BEFORE_GROWTH) &&
           tell(&(struct told){.event = EVENT_BEFORE_GROWTH, .device = device, .bytes = bytes});
}

bool observe_runs_moving(void)
{
    return runs_here(EVENT_MAPPED, EVENT_UNMAPPING);
}

tarn_status observe_refuse_moving(const char *what)
{
    if (!observe_runs_moving())
        return TARN_OK;
    return failed(TARN_ERROR_BUSY,
                  "%s in an observer's callback that memory was mapped or will be unmapped: memory "
                  "is on the move; "
                  "do it later, or in another thread",
                  what);
}

/* ---- Adding and removing ---- */

static void count(const struct observer *observer, bool more)
{
    for (int event = 0; event < EVENTS; event++) {
        if (!wants(observer, (enum event)event))
            continue;
        if (more)
            atomic_fetch_add(&interested[event], 1);
        else
            atomic_fetch_sub(&interested[event], 1);
    }
}

tarn_status tarn_observer_add(const tarn_observer_options *given, tarn_observer *number)
{
    tarn_observer_options read, *options = &read;
    tarn_status status = sized_read("tarn_observer_options", given, options, sizeof *options);
    if (status)
        return status;
    if (!number)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "observer is NULL");
    if (!options->mapped && !options->unmapping && !options->out_of_memory &&
        !options->before_growth)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the observer has no callback");
    if (options->device < TARN_ALL_DEVICES || options->device >= TARN_MAX_DEVICES)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "device %d is neither TARN_ALL_DEVICES nor below %d", options->device,
                      TARN_MAX_DEVICES);
    status = process_check();
    if (status)
        return status;
    struct observer *observer = object_alloc(&observer_objects);
    if (!observer)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an observer");
    observer->options = *options;
    mutex_lock(&observers_lock);
    observer->number = ++last_number;
    tree_insert_by(&observers, &observer->node, is_before);
    count(observer, true);
    *number = observer->number;
    mutex_unlock(&observers_lock);
    return TARN_OK;
}

static struct observer *find_locked(tarn_observer number)
{
    struct tree_node *node = tree_find_first(&observers, is_from, number);
    struct observer *observer = node ? OBSERVER_OF(node) : NULL;
    return observer && observer->number == number && !observer->removed ? observer : NULL;
}

/* Waits until only callbacks of this thread run. */
static void remove_relocking(struct observer *observer)
{
    unsigned own = 1; /* the removal is counted too */
    for (const struct frame *frame = frames; frame; frame = frame->outer)
        own += frame->observer == observer;
    observer->removed = true;
    observer->running++;
    count(observer, false);
    while (observer->running > own)
        (void)condition_wait(&observer_let_go, &observers_lock, NULL);
    let_go_locked(observer);
}

tarn_status tarn_observer_remove(tarn_observer number)
{
    tarn_status status = process_check();
    if (status == TARN_ERROR_FORKED)
        return status;
    mutex_lock(&observers_lock);
    struct observer *observer = find_locked(number);
    if (observer)
        remove_relocking(observer);
    mutex_unlock(&observers_lock);
    if (observer)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT, "there is no observer with number %llu",
                  (unsigned long long)number);
}
