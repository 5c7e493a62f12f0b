/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of devices, the current device of each thread, guards, and the order of shutdown.
 * The table is filled once, under `setup_lock`, and read without a lock after `ready`. Only
 * tarn_device_set() makes a context here. */
#include "device/device.h"
#include "base/debug_words.h"
#include "base/machine.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "device/stream.h"
#include "device/tracing.h"

#include <string.h>

static mutex setup_lock = MUTEX_INITIALIZER(LOCK_SETUP);
static atomic_bool ready;
static struct device devices[TARN_MAX_DEVICES]; /* setup_lock until ready */
static int devices_known;

#define SHUTDOWN_CALLBACKS 4
static void (*shutdown_callbacks[SHUTDOWN_CALLBACKS])(void); /* setup_lock */
static void (*first_shutdown_callback)(void);                /* setup_lock */

#define WATCHERS 4
static struct device_watcher watchers[WATCHERS]; /* set before the first use */
static int watcher_count;

static pthread_key_t thread_key;
_Thread_local struct thread *thread_here;
static struct object_pool threads = OBJECT_POOL(struct thread);

/* Each is set before any thread has something for it to end. Read at the end of each thread. */
static void (*_Atomic thread_end_callbacks[THREAD_LAYERS])(struct thread *thread);

void thread_on_end(enum thread_layer layer, void (*callback)(struct thread *thread))
{
    atomic_store(&thread_end_callbacks[layer], callback);
}

/* `value` is not used. A copy of the library in its own namespace (dlmopen) has the keys of another
 * C library: they have the same numbers, and their values are in the same places. */
static void thread_end(void *value)
{
    struct thread *thread = thread_here;
    (void)value;
    callbacks_of_thread_end();
    if (!thread || atomic_load(&process_state) == PROCESS_IS_FORKED)
        return; /* in a child of fork(), another thread of the parent may have held any lock */
    for (int layer = 0; layer < THREAD_LAYERS; layer++) {
        void (*callback)(struct thread *) = atomic_load(&thread_end_callbacks[layer]);
        if (callback)
            callback(thread);
    }
    if (atomic_load(&process_state) == PROCESS_RUNS)
        streams_of_thread_end(thread);
    captures_of_thread_end(thread);
    trace_ring_leave(thread->trace);
    thread_here = NULL;
    object_free(&threads, thread);
}

static tarn_status device_init(struct device *device, int number)
{
    device->number = number;
    mutex_init(&device->lock, LOCK_DEVICE);
    mutex_init(&device->record_lock, LOCK_RECORD);
    tarn_status status = driver->device_properties(number, &device->properties);
    return status ? status : stream_make_legacy(device);
}

void device_on_use(const struct device_watcher *watcher)
{
    if (watcher_count < WATCHERS)
        watchers[watcher_count++] = *watcher;
}

/* A child of fork() has one thread, and none of its caches may be used there. */
static void thread_in_child(void)
{
    thread_here = NULL;
}

static tarn_status settings_init_locked(void)
{
    tarn_status status = debug_words_read();
    return status ? status : tracing_init();
}

static tarn_status layer_init_locked(void)
{
    static bool watching;
    int count;
    if (!watching) {
        if (pthread_key_create(&thread_key, thread_end))
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                          "no thread-specific key is left in this process");
        /* Fails only without memory; then a child does not learn that it is one */
        (void)pthread_atfork(NULL, NULL, thread_in_child);
        captures_init();
        watching = true;
    }
    tarn_status status = driver->device_count(&count);
    if (status)
        return status;
    if (count > TARN_MAX_DEVICES)
        count = TARN_MAX_DEVICES;
    for (; devices_known < count; devices_known++) {
        status = device_init(&devices[devices_known], devices_known);
        if (status)
            return status;
    }
    for (int i = 0; i < watcher_count; i++) {
        status = watchers[i].begin();
        if (status)
            return status;
    }
    atomic_store_explicit(&ready, true, memory_order_release);
    return TARN_OK;
}

/* One step of the first use, under the lock, unless another thread has done all steps meanwhile. */
static tarn_status step(tarn_status (*init_locked)(void))
{
    tarn_status status = TARN_OK;
    mutex_lock(&setup_lock);
    if (!atomic_load_explicit(&ready, memory_order_relaxed))
        status = init_locked();
    mutex_unlock(&setup_lock);
    return status;
}

/* Functions that open libraries run between the steps, without the lock: a thread inside the
 * loader, in a constructor, may be waiting for it. */
static tarn_status layer_init(void)
{
    tracing_prepare();
    tarn_status status = step(settings_init_locked);
    if (!status)
        status = driver_init();
    if (status)
        return status;
    for (int i = 0; i < watcher_count; i++)
        if (watchers[i].prepare)
            watchers[i].prepare();
    return step(layer_init_locked);
}

tarn_status device_layer_ready(void)
{
    tarn_status status = process_check();
    if (status || atomic_load_explicit(&ready, memory_order_acquire))
        return status;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    process_use_begin();
    status = layer_init();
    if (status)
        process_use_failed();
    return status;
}

int device_count(void)
{
    return devices_known;
}

struct device *device_at(int number)
{
    return &devices[number];
}

tarn_status device_find(int number, struct device **device)
{
    if (number < 0 || number >= devices_known)
        return failed(TARN_ERROR_INVALID_DEVICE,
                      "there is no device %d: this process has %d, numbered from 0", number,
                      devices_known);
    *device = &devices[number];
    return TARN_OK;
}

/* Set once, before there is anything to end */
static void (*_Atomic lost_callback)(struct device *device);

void device_on_lost(void (*callback)(struct device *device))
{
    atomic_store(&lost_callback, callback);
}

tarn_status device_note(struct device *device, tarn_status status)
{
    if (status == TARN_ERROR_DEVICE_LOST && !atomic_exchange(&device->lost, true)) {
        process_changed();
        void (*callback)(struct device *) = atomic_load(&lost_callback);
        if (callback)
            callback(device);
    }
    return status;
}

tarn_status device_check(struct device *device)
{
    if (atomic_load_explicit(&device->lost, memory_order_relaxed))
        return failed(TARN_ERROR_DEVICE_LOST,
                      "device %d was lost by an earlier error; only a new process can use it again",
                      device->number);
    return TARN_OK;
}

static atomic_uint thread_numbers;

struct thread *thread_self(void)
{
    if (thread_here)
        return thread_here;
    struct thread *thread = object_alloc(&threads);
    if (!thread) {
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a thread's resources");
        return NULL;
    }
    if (pthread_setspecific(thread_key, thread)) {
        object_free(&threads, thread);
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a thread-specific value");
        return NULL;
    }
    thread->number = atomic_fetch_add_explicit(&thread_numbers, 1, memory_order_relaxed);
    return thread_here = thread;
}

int thread_device(void)
{
    return thread_here ? thread_here->device : 0;
}

void device_on_shutdown(void (*callback)(void))
{
    mutex_lock(&setup_lock);
    for (int i = 0; i < SHUTDOWN_CALLBACKS; i++) {
        if (shutdown_callbacks[i] == callback)
            break;
        if (!shutdown_callbacks[i]) {
            shutdown_callbacks[i] = callback;
            break;
        }
    }
    mutex_unlock(&setup_lock);
}

static bool keeps_driver; /* set and read by the one caller that shuts down */

void device_keep_driver(void)
{
    keeps_driver = true;
}

void device_on_shutdown_first(void (*callback)(void))
{
    mutex_lock(&setup_lock);
    first_shutdown_callback = callback;
    mutex_unlock(&setup_lock);
}

static tarn_status shutdown_may_begin(void)
{
    if (!atomic_load(&ready) || atomic_load(&process_state) != PROCESS_RUNS)
        return TARN_OK;
    if (undo_is_here(NULL))
        return failed(TARN_ERROR_BUSY,
                      "a shutdown in a callback: the call of tarn around it goes on afterwards");
    return captures_refuse_all("a shutdown");
}

tarn_status tarn_shutdown(void)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (atomic_load(&process_state) == PROCESS_IS_FORKED)
        return process_refuse();
    tarn_status status = shutdown_may_begin();
    if (status)
        return status;
    if (!process_begin_shutdown() || !atomic_load(&ready))
        return TARN_OK;
    for (int i = 0; i < watcher_count; i++)
        if (watchers[i].end)
            watchers[i].end();
    mutex_lock(&setup_lock);
    void (*first)(void) = first_shutdown_callback;
    mutex_unlock(&setup_lock);
    if (first)
        first();
    /* No lock: no other call of tarn runs any more, and each callback waits for queued work. */
    for (int i = 0; i < SHUTDOWN_CALLBACKS && shutdown_callbacks[i]; i++)
        shutdown_callbacks[i]();
    streams_destroy();
    for (int i = 0; i < devices_known; i++)
        marks_destroy(&devices[i]);
    if (driver->finish && !keeps_driver)
        driver->finish();
    return TARN_OK;
}

tarn_status tarn_device_count_get(int *count)
{
    if (!count)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "count is NULL");
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    *count = devices_known;
    return TARN_OK;
}

tarn_status tarn_device_properties_get(int device, tarn_device_properties *properties)
{
    struct device *found = NULL;
    tarn_status status = sized_check("tarn_device_properties", properties, sizeof *properties);
    if (!status)
        status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;

    const struct driver_properties *known = &found->properties;
    tarn_device_properties result = {
        .size = sizeof result,
        .memory = known->memory,
        .granule = known->virtual_memory ? known->granule : 0,
        .least_priority = known->least_priority,
        .greatest_priority = known->greatest_priority,
        .virtual_memory = known->virtual_memory,
        .alias = known->alias,
        .exportable = known->exportable,
        .integrated = known->integrated,
        .coherent = known->coherent,
        .slice = known->slice,
        .mps = known->mps,
        .paged = known->paged,
        .address_bits = machine_address_bits(),
        .capability_major = known->capability_major,
        .capability_minor = known->capability_minor,
    };
    memcpy(result.name, known->name, sizeof result.name);
    strncpy(result.driver, driver->name, sizeof result.driver - 1);
    sized_write(properties, &result, sizeof result);
    return TARN_OK;
}

tarn_status tarn_device_get(int *device)
{
    if (!device)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "device is NULL");
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    *device = thread_device();
    return TARN_OK;
}

/* Makes a device current. `previous` may be NULL. */
static tarn_status device_exchange(int device, int *previous)
{
    struct device *found = NULL;
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    status = device_note(found, driver->activate(device));
    if (status)
        return status;
    if (previous)
        *previous = thread->device;
    thread->device = device;
    thread_forget_caches(thread);
    return TARN_OK;
}

tarn_status tarn_device_set(int device)
{
    return device_exchange(device, NULL);
}

tarn_status tarn_device_adopt(int *device)
{
    int current;
    if (!device)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "device is NULL");
    struct device *found = NULL;
    tarn_status status = device_layer_ready();
    if (!status)
        status = driver->current(&current);
    if (!status)
        status = device_find(current, &found);
    if (status)
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    thread->device = current;
    thread_forget_caches(thread);
    *device = current;
    return TARN_OK;
}

tarn_status tarn_device_memory_get(int device, size_t *free_bytes, size_t *total_bytes)
{
    struct device *found = NULL;
    if (!free_bytes || !total_bytes)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL",
                      free_bytes ? "total_bytes" : "free_bytes");
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (!status)
        status = device_check(found);
    if (status)
        return status;
    return device_note(found, driver->memory_info(device, free_bytes, total_bytes));
}

tarn_status tarn_device_synchronize(int device)
{
    struct device *found = NULL;
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (!status)
        status = device_check(found);
    if (status)
        return status;
    return device_wait(found, "a wait for a device");
}

#define DEVICE_ONLY (-1) /* `device` of a guard that changed no stream */

tarn_status tarn_device_guard_set(tarn_guard *guard, int device)
{
    if (!guard)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "guard is NULL");
    *guard = (tarn_guard){0};
    tarn_guard result = {.device = DEVICE_ONLY, .active = true};
    tarn_status status = device_exchange(device, &result.previous_device);
    if (!status)
        *guard = result;
    return status;
}

/* Makes the device current again that was current before another. If it has no context, the thread
 * had none there, and gets none: a guard does not count as a use of the device that it restores. */
static tarn_status device_return(int device)
{
    bool active = true;
    struct thread *thread = thread_self();
    struct error_before before;
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    error_attempt_begin(&before);
    bool inactive = driver->is_active(device, &active) == TARN_OK && !active &&
                    driver->context_set(NULL) == TARN_OK;
    error_attempt_end(&before, TARN_OK);
    if (!inactive)
        return tarn_device_set(device);
    thread->device = device;
    thread_forget_caches(thread);
    return TARN_OK;
}

tarn_status tarn_stream_guard_set(tarn_guard *guard, tarn_stream stream)
{
    struct stream *found = NULL;
    if (!guard)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "guard is NULL");
    *guard = (tarn_guard){0};
    tarn_status status = stream_of_call(stream, &found);
    if (status)
        return status;
    tarn_guard result = {.device = found->device, .active = true};
    status = device_exchange(found->device, &result.previous_device);
    if (status)
        return status;
    struct thread *thread = thread_self();
    result.previous_stream = thread->current[found->device];
    thread->current[found->device] = stream_value(found);
    thread_forget_caches(thread);
    *guard = result;
    return TARN_OK;
}

tarn_status tarn_guard_restore(tarn_guard *guard)
{
    if (!guard)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "guard is NULL");
    if (!guard->active)
        return TARN_OK;
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    status = device_return(guard->previous_device);
    if (status)
        return status;
    if (guard->device != DEVICE_ONLY) {
        thread->current[guard->device] = guard->previous_stream;
        thread_forget_caches(thread);
    }
    guard->active = false;
    return TARN_OK;
}
