/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The handles of a library on a device: this file creates them, hands them out, takes them back,
 * prepares them for captures, and destroys them. Owns the shelves of available handles.
 *
 * Handles are created, destroyed and bound with no shelf's lock held. A handle belongs to one owner
 * at a time: the thread that takes it out of the list of available ones has it until it is pushed
 * there again. Locks: shelf, then handle. tests/spin/handle_pool.pml is a model of it
 * (docs/testing.md): if you change one, change the other. */
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/clock.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "device/tracing.h"
#include "handle/handle.h"
#include "memory/arena/observe.h"

#include <errno.h>
#include <time.h>

static struct object_pool handle_objects = OBJECT_POOL_NAMED_KEEPING(struct handle, lease);

/* Shelves -------------------------------------------------------------------------------------- */

struct shelf *shelf_known(const struct entry *entry, int device)
{
    struct shelf *shelves = atomic_load_explicit(&entry->shelves, memory_order_acquire);
    return shelves ? &shelves[device] : NULL;
}

static void shelves_init(struct shelf *shelves, int devices)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    for (int i = 0; i < devices; i++) {
        mutex_init(&shelves[i].lock, LOCK_SHELF);
        pthread_cond_init(&shelves[i].first_over, &attributes);
        shelves[i].device = device_at(i);
        shelves[i].stats.device_bytes_last = shelves[i].stats.device_bytes_max = -1;
    }
    pthread_condattr_destroy(&attributes);
}

tarn_status shelf_of(struct entry *entry, struct device *device, struct shelf **shelf)
{
    size_t size = (size_t)device_count() * sizeof(struct shelf);
    if (!shelf_known(entry, device->number)) {
        struct shelf *made = pages_alloc(size), *none = NULL;
        if (!made)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the shelves of %s",
                          entry->row->name);
        shelves_init(made, device_count());
        if (!atomic_compare_exchange_strong(&entry->shelves, &none, made))
            pages_free(made, size); /* another thread was faster */
    }
    *shelf = shelf_known(entry, device->number);
    return TARN_OK;
}

static void count_use_locked(struct shelf *shelf)
{
    tarn_handle_stats *stats = &shelf->stats;
    stats->in_use++;
    if (stats->in_use > stats->peak_in_use)
        stats->peak_in_use = stats->in_use;
}

static void push_locked(struct shelf *shelf, struct handle *handle)
{
    handle->holder = NULL;
    atomic_store(&handle->lease, 0);
    handle->available = true;
    handle->next = shelf->available;
    shelf->available = handle;
    shelf->stats.available++;
    atomic_fetch_add(&shelf->returned, 1);
}

bool handle_is_live(const void *handle)
{
    return object_is_live(&handle_objects, handle);
}

void handle_give_back(struct handle *handle)
{
    struct shelf *shelf = handle->shelf;
    struct workspace *gone = NULL;
    mutex_lock(&handle->lock);
    handle->reset = true;
    /* Its owner has ended, with the other library's handle. */
    handle->lent = NULL;
    /* Not used any more: the next owner binds the handle again */
    if (handle->bound && handle->bound->cleared) {
        handle->stream = NULL;
        handle->bound = NULL;
    }
    if (atomic_load(&process_state) == PROCESS_RUNS)
        gone = workspaces_sweep_locked(handle, false);
    mutex_unlock(&handle->lock);
    mutex_lock(&shelf->lock);
    shelf->stats.in_use--;
    push_locked(shelf, handle);
    mutex_unlock(&shelf->lock);
    workspaces_free(gone);
}

static void taken_undo(struct undo *undo)
{
    handle_give_back(((struct taken *)((char *)undo - offsetof(struct taken, undo)))->handle);
}

void taken_begin(struct taken *taken, struct handle *handle)
{
    taken->handle = handle;
    undo_push(&taken->undo, taken_undo);
}

void taken_end(struct taken *taken)
{
    undo_pop(&taken->undo);
}

static bool is_of(const struct stream *stream, unsigned incarnation, const struct stream *wanted)
{
    return stream == wanted &&
           atomic_load_explicit(&wanted->incarnation, memory_order_relaxed) == incarnation;
}

/* The stream that an available handle is meant for; NULL: any stream. No handle is meant for a
 * retired stream. */
static const struct stream *meant_for_locked(const struct handle *handle)
{
    return handle->meant_for &&
                   is_of(handle->meant_for, handle->meant_incarnation, handle->meant_for)
               ? handle->meant_for
               : NULL;
}

enum fit { FIT_NOT, FIT_FOREIGN, FIT_MEANT, FIT_FRESH, FIT_BEST };

/* How well an available handle serves a stream. For libraries with one handle per stream, the
 * handle of that stream is best, then one without a stream's work, then, with `foreign`, any. A
 * handle that is meant for the stream is not used while another serves as well. */
static enum fit fit_locked(const struct handle *handle, bool by_stream, const struct stream *stream,
                           bool foreign)
{
    const struct stream *meant = meant_for_locked(handle);
    if (meant && meant != stream)
        return FIT_NOT;
    if (by_stream && !(handle->used_on && is_of(handle->used_on, handle->used_incarnation, stream)))
        return !handle->used_on ? FIT_FRESH : foreign ? FIT_FOREIGN : FIT_NOT;
    return meant ? FIT_MEANT : FIT_BEST;
}

static struct handle *unlink_locked(struct shelf *shelf, struct handle **link)
{
    struct handle *handle = *link;
    *link = handle->next;
    handle->next = NULL;
    handle->available = false;
    handle->meant_for = NULL;
    shelf->stats.available--;
    return handle;
}

/* Takes the handle to hand out next: of the handles that fit best, the one that was given back
 * last. NULL: there is none. */
static struct handle *pop_locked(struct shelf *shelf, bool by_stream, const struct stream *stream,
                                 bool foreign)
{
    struct handle **best = NULL;
    enum fit most = FIT_NOT;
    for (struct handle **link = &shelf->available; *link && most < FIT_BEST;
         link = &(*link)->next) {
        enum fit fit = fit_locked(*link, by_stream, stream, foreign);
        if (fit > most) {
            most = fit;
            best = link;
        }
    }
    struct handle *handle = best ? unlink_locked(shelf, best) : NULL;
    if (handle)
        count_use_locked(shelf);
    return handle;
}

tarn_status handle_follow(struct handle *handle, struct stream *stream)
{
    struct mark *mark = NULL;
    unsigned incarnation = atomic_load_explicit(&stream->incarnation, memory_order_relaxed);
    if (!handle->library->row->by_stream || !handle->used_on ||
        (handle->used_on == stream && handle->used_incarnation == incarnation))
        return TARN_OK;
    tarn_status status = mark_of_stream(handle->used_on, handle->used_incarnation, &mark);
    if (!status && mark)
        status = stream_wait_mark(stream, mark);
    mark_release(mark);
    if (!status)
        workspaces_follow(handle, stream);
    return status;
}

static void note_created_locked(struct shelf *shelf, struct handle *handle, uint64_t ns,
                                int64_t bytes)
{
    tarn_handle_stats *stats = &shelf->stats;
    stats->created++;
    stats->create_ns_sum += ns;
    stats->create_ns_last = ns;
    if (ns > stats->create_ns_max)
        stats->create_ns_max = ns;
    if (bytes >= 0)
        stats->device_bytes_last = bytes;
    if (bytes > stats->device_bytes_max)
        stats->device_bytes_max = bytes;
    handle->all = shelf->all;
    shelf->all = handle;
}

/* The end of a create, which has made a handle or not. */
static void create_end_locked(const struct making *making, bool made)
{
    struct shelf *shelf = making->shelf;
    thread_here->handles->making = making->outer;
    shelf->creating--;
    if (making->first) {
        shelf->first = made ? FIRST_DONE : FIRST_TO_COME;
        pthread_cond_broadcast(&shelf->first_over);
    }
    if (made)
        return;
    shelf->stats.failures++;
    if (making->handle) {
        mutex_finish(&making->handle->lock);
        object_free(&handle_objects, making->handle);
    }
}

static void create_undo(struct undo *undo)
{
    const struct making *making = (struct making *)((char *)undo - offsetof(struct making, undo));
    mutex_lock(&making->shelf->lock);
    create_end_locked(making, false);
    mutex_unlock(&making->shelf->lock);
}

/* Creates a handle; the shelf's lock is released meanwhile. The new handle is neither in use nor
 * available. */
static tarn_status create_relocking(struct entry *entry, struct shelf *shelf,
                                    struct handle **result)
{
    struct holder *holder = thread_here->handles;
    struct making making = {
        .shelf = shelf, .outer = holder->making, .first = shelf->first == FIRST_TO_COME};
    if (making.first)
        shelf->first = FIRST_UNDER_WAY;
    uint64_t started = ++shelf->started, ns = 0;
    bool alone = shelf->creating++ == 0;
    int64_t bytes = -1;
    holder->making = &making;
    mutex_unlock(&shelf->lock);

    tarn_status status = TARN_OK;
    struct handle *handle = making.handle = object_alloc(&handle_objects);
    undo_push(&making.undo, create_undo);
    if (handle) {
        handle->library = entry;
        handle->shelf = shelf;
        handle->reset = true;
        mutex_init(&handle->lock, LOCK_HANDLE);
        status = vendor_create(handle, alone, &ns, &bytes);
    } else {
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a handle of %s",
                        entry->row->name);
    }

    undo_pop(&making.undo);
    mutex_lock(&shelf->lock);
    create_end_locked(&making, !status);
    if (shelf->started != started)
        bytes = -1; /* other creates ran at the same time */
    if (status)
        return status;
    note_created_locked(shelf, handle, ns, bytes);
    if (trace_is_on())
        trace_event(TRACE_handle_create,
                    trace_place_of_device(shelf->device->number, (const uint64_t[2]){0}),
                    trace_text(entry->row->name), bytes > 0 ? (uint64_t)bytes : 0, 0);
    *result = handle;
    return TARN_OK;
}

/* The deadline of a wait; 0: no wait. */
static uint64_t deadline_after(uint64_t ns)
{
    return ns == 0 ? 0 : clock_after(ns);
}

/* A create that asks tarn for a handle of its own kind would wait for itself. */
static tarn_status refuse_within_create(const struct shelf *shelf, const struct entry *entry)
{
    for (const struct making *at = thread_here->handles->making; at; at = at->outer)
        if (at->shelf == shelf)
            return failed(TARN_ERROR_BUSY,
                          "the create of %s asks tarn for a handle of %s on device %d",
                          entry->row->name, entry->row->name, shelf->device->number);
    return TARN_OK;
}

/* Whether the calling thread captures on the device, or the requested stream captures. `stream` may
 * be NULL. */
static tarn_status ask_capture(const struct device *device, const struct stream *stream,
                               bool *captures)
{
    struct driver_capture capture = {.state = DRIVER_CAPTURE_NONE};
    *captures = captures_of_thread(device) > 0 || (stream && stream_is_known(stream));
    tarn_status status = *captures || !stream ? TARN_OK : stream_ask_capture(stream, &capture);
    *captures = *captures || capture.state != DRIVER_CAPTURE_NONE;
    return status;
}

/* Whether a handle may be created now. `stream` may be NULL. Waits until `deadline` for captures of
 * other threads to end, or until `shelf->returned` changes: then `again` says that a handle became
 * available, and none may be created. Refuses in the callback of an observer of moved memory: that
 * thread prevents others from moving memory, and a create that it would wait for may need that. No
 * lock held. Creates run in relaxed mode; on two H200s, none of eight libraries harmed a capture on
 * another device. */
static tarn_status may_create(const struct entry *entry, struct shelf *shelf, struct stream *stream,
                              uint64_t deadline, uint64_t returned, bool *again)
{
    struct device *device = shelf->device;
    bool ours = false;
    *again = false;
    tarn_status status = observe_refuse_moving("the creation of a handle");
    if (!status)
        status = refuse_within_create(shelf, entry);
    if (status || entry->row->create_in_capture)
        return status;
    unsigned open = captures_going_on(device);
    status = ask_capture(device, stream, &ours);
    if (status)
        return status;
    if (!open && !ours)
        return TARN_OK;
    if (open && !ours) {
        uint64_t now = clock_ns();
        if (now < deadline && captures_wait(device, deadline - now, &shelf->returned, returned)) {
            *again = captures_open(device) > 0;
            return TARN_OK;
        }
    }
    return failed(TARN_ERROR_CAPTURE,
                  "a handle of %s would have to be made on device %d while %s captures; call "
                  "tarn_handle_prewarm() before the "
                  "capture begins%s",
                  entry->row->name, device->number, ours ? "this thread" : "another thread",
                  ours ? "" : ", or tarn_handle_wait_limit_set() in this thread");
}

uint64_t shelf_first_limit_ns = 60000000000; /* how long a thread waits at least; tests change it */

static uint64_t first_deadline(void)
{
    uint64_t ns = thread_here->handles->wait_ns;
    return deadline_after(ns > shelf_first_limit_ns ? ns : shelf_first_limit_ns);
}

/* Waits until another thread's first create is over, or until the deadline. */
static tarn_status wait_for_first_relocking(struct shelf *shelf, const struct entry *entry,
                                            uint64_t deadline)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000),
                                   .tv_nsec = (long)(deadline % 1000000000)};
    if (condition_wait(&shelf->first_over, &shelf->lock, &until) != ETIMEDOUT ||
        shelf->first != FIRST_UNDER_WAY)
        return TARN_OK;
    return failed(TARN_ERROR_BUSY,
                  "another thread has been creating the first handle of %s on device %d for too "
                  "long: the library's %s "
                  "has not returned",
                  entry->row->name, shelf->device->number, entry->row->create);
}

static struct handle *pop_for_locked(struct shelf *shelf, const struct entry *entry,
                                     const struct stream *stream, bool foreign)
{
    /* Ordering two streams needs an event, and no event is recorded that a capture may see. */
    foreign = foreign && entry->row->by_stream && captures_open(shelf->device) == 0;
    return pop_locked(shelf, entry->row->by_stream, stream, foreign);
}

/* An available handle, or a new one; with `foreign`, also one that still has work of another
 * stream. It counts as in use. */
static tarn_status take_one(struct entry *entry, struct shelf *shelf, struct stream *stream,
                            uint64_t deadline, bool foreign, struct handle **result)
{
    tarn_status status = TARN_OK;
    struct handle *handle = NULL;
    bool again = false;
    uint64_t first = first_deadline();
    mutex_lock(&shelf->lock);
    handle = pop_for_locked(shelf, entry, stream, foreign);
    while (!status && !handle) {
        uint64_t returned = atomic_load(&shelf->returned);
        mutex_unlock(&shelf->lock);
        status = may_create(entry, shelf, stream, deadline, returned, &again);
        mutex_lock(&shelf->lock);
        if (status)
            break;
        handle = pop_for_locked(shelf, entry, stream, foreign);
        if (handle)
            break;
        if (again)
            continue;
        if (shelf->first == FIRST_UNDER_WAY && !thread_here->handles->making) {
            status = wait_for_first_relocking(shelf, entry, first);
        } else {
            status = create_relocking(entry, shelf, &handle);
            if (!status)
                count_use_locked(shelf);
        }
    }
    mutex_unlock(&shelf->lock);
    if (handle)
        *result = handle;
    return handle ? TARN_OK : status;
}

tarn_status shelf_take(struct entry *entry, struct shelf *shelf, struct stream *stream,
                       uint64_t wait_ns, struct handle **result)
{
    uint64_t deadline = deadline_after(wait_ns);
    for (bool foreign = true;; foreign = false) {
        struct handle *handle = NULL;
        tarn_status status = take_one(entry, shelf, stream, deadline, foreign, &handle);
        if (status)
            return status;
        status = handle_follow(handle, stream);
        if (!status) {
            *result = handle;
            return TARN_OK;
        }
        handle_give_back(handle);
        /* The handle's stream or `stream` is in a capture that tarn does not know. Try again with
         * handles that need no event. */
        if (status != TARN_ERROR_CAPTURE || !foreign)
            return status;
    }
}

/* Prewarm, trim, statistics -------------------------------------------------------------------- */

/* The start of a public call on a library's shelf. */
static tarn_status find_shelf(tarn_library library, int device, struct entry **entry,
                              struct shelf **shelf)
{
    struct device *found = NULL;
    tarn_status status = entry_find(library, entry);
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;
    return shelf_of(*entry, found, shelf);
}

/* Whether a prewarm counts an available handle. It must be meant for the stream; with NULL, it must
 * be meant for none and have no stream's work. And it must be prepared, so that a capture can bind
 * it. */
static bool is_ready_locked(struct handle *handle, const struct stream *stream)
{
    bool by_stream = handle->library->row->by_stream;
    return meant_for_locked(handle) == stream && (stream || !by_stream || !handle->used_on) &&
           vendor_is_prepared(handle);
}

static size_t count_ready_locked(struct shelf *shelf, const struct stream *stream)
{
    size_t count = 0;
    for (struct handle *handle = shelf->available; handle; handle = handle->next)
        count += is_ready_locked(handle, stream);
    return count;
}

/* Takes an available handle that is not ready, but can be made ready. With a stream, takes the
 * handle that fits the stream best. Of several equal ones, takes the one that has been available
 * longest. NULL: there is none. */
static struct handle *take_unready_locked(struct shelf *shelf, bool by_stream,
                                          const struct stream *stream)
{
    struct handle **best = NULL;
    enum fit most = FIT_NOT;
    for (struct handle **link = &shelf->available; *link; link = &(*link)->next) {
        if (meant_for_locked(*link) || is_ready_locked(*link, stream))
            continue;
        enum fit fit = stream ? fit_locked(*link, by_stream, stream, true) : FIT_BEST;
        if (fit >= most) {
            most = fit;
            best = link;
        }
    }
    return best ? unlink_locked(shelf, best) : NULL;
}

/* Makes a handle with a stream available to any stream. TARN_ERROR_NOT_READY while work of its
 * stream runs. */
static tarn_status handle_let_go_of_stream(struct handle *handle)
{
    struct mark *mark = NULL;
    if (!handle->library->row->by_stream || !handle->used_on)
        return TARN_OK;
    tarn_status status = mark_of_stream(handle->used_on, handle->used_incarnation, &mark);
    if (!status && mark)
        status = mark_query(mark);
    mark_release(mark);
    if (status)
        return status;
    mutex_lock(&handle->lock);
    handle->used_on = handle->stream = NULL;
    mutex_unlock(&handle->lock);
    return TARN_OK;
}

static tarn_status make_ready(struct handle *handle, struct stream *stream)
{
    tarn_status status = stream ? handle_follow(handle, stream) : handle_let_go_of_stream(handle);
    if (!status && stream)
        status = vendor_bind(handle, stream,
                             atomic_load_explicit(&stream->incarnation, memory_order_acquire));
    return status ? status
                  : vendor_prepare(handle, stream ? stream : handle->shelf->device->legacy);
}

static void unready_undo(struct undo *undo)
{
    struct handle *handle = ((struct taken *)((char *)undo - offsetof(struct taken, undo)))->handle;
    mutex_lock(&handle->shelf->lock);
    push_locked(handle->shelf, handle);
    mutex_unlock(&handle->shelf->lock);
}

/* Makes one more handle ready, if fewer than `count` are: an available one while `tries` of these
 * remain to be tried, otherwise a new one. Called with the shelf's lock, which is released
 * meanwhile. */
static tarn_status prewarm_one_relocking(struct shelf *shelf, struct entry *entry,
                                         struct stream *stream, size_t count, uint64_t *tries,
                                         uint64_t first)
{
    struct handle *handle = NULL;
    if (count_ready_locked(shelf, stream) >= count)
        return TARN_OK;
    if (*tries) {
        --*tries;
        handle = take_unready_locked(shelf, entry->row->by_stream, stream);
    }
    bool found = handle;
    tarn_status status = TARN_OK;
    if (!found && shelf->first == FIRST_UNDER_WAY && !thread_here->handles->making)
        return wait_for_first_relocking(shelf, entry, first);
    if (!found) {
        status = create_relocking(entry, shelf, &handle);
        if (status)
            return status;
    }
    mutex_unlock(&shelf->lock);
    struct taken unready = {.handle = handle};
    undo_push(&unready.undo, unready_undo);
    status = make_ready(handle, stream);
    undo_pop(&unready.undo);
    mutex_lock(&shelf->lock);
    handle->meant_for = status ? NULL : stream;
    handle->meant_incarnation =
        stream ? atomic_load_explicit(&stream->incarnation, memory_order_relaxed) : 0;
    push_locked(shelf, handle);
    return found && (status == TARN_ERROR_NOT_READY || status == TARN_ERROR_CAPTURE) ? TARN_OK
                                                                                     : status;
}

static tarn_status prewarm(struct holder *holder, struct entry *entry, struct shelf *shelf,
                           struct stream *stream, size_t count)
{
    uint64_t deadline = deadline_after(holder->wait_ns), first = first_deadline();
    tarn_status status = entry_usable(entry);
    mutex_lock(&shelf->lock);
    uint64_t tries = shelf->stats.available;
    bool again = false;
    while (!status && count_ready_locked(shelf, stream) < count) {
        uint64_t returned = atomic_load(&shelf->returned);
        mutex_unlock(&shelf->lock);
        status = may_create(entry, shelf, stream, deadline, returned, &again);
        mutex_lock(&shelf->lock);
        if (!status && !again)
            status = prewarm_one_relocking(shelf, entry, stream, count, &tries, first);
    }
    mutex_unlock(&shelf->lock);
    return status;
}

static tarn_status refuse_count(size_t count)
{
    return count > 65536
               ? failed(TARN_ERROR_INVALID_ARGUMENT, "%zu handles are more than 65,536", count)
               : TARN_OK;
}

/* The stream of a prewarm, and the device, which is the stream's where TARN_CURRENT_DEVICE is
 * given. */
static tarn_status prewarm_where(tarn_stream value, int *device, struct stream **stream)
{
    struct device *found = NULL;
    int wanted = *device == TARN_CURRENT_DEVICE ? thread_device() : *device;
    tarn_status status = device_find(wanted, &found);
    if (!status && value != TARN_STREAM_NONE) {
        status = stream_find(value, wanted, stream);
        if (!status)
            status = stream_refuse_foreign(*stream, "a handle");
        if (!status && (*stream)->device != wanted) {
            if (*device != TARN_CURRENT_DEVICE)
                return failed(TARN_ERROR_INVALID_STREAM, "the stream is of device %d, not %d",
                              (*stream)->device, wanted);
            wanted = (*stream)->device;
        }
    }
    *device = wanted;
    return status;
}

tarn_status tarn_handle_prewarm(tarn_library library, int device, tarn_stream value, size_t count)
{
    struct holder *holder = NULL;
    struct entry *entry = NULL;
    struct stream *stream = NULL;
    struct shelf *shelf = NULL;
    tarn_status status = refuse_count(count);
    if (!status)
        status = call_begin(&holder);
    if (status)
        return status;
    status = prewarm_where(value, &device, &stream);
    if (!status)
        status = find_shelf(library, device, &entry, &shelf);
    if (!status)
        status = prewarm(holder, entry, shelf, stream, count);
    call_end(holder);
    return status;
}

/* Removes the available handles from a shelf, to destroy them. */
static struct handle *detach_available(struct shelf *shelf)
{
    mutex_lock(&shelf->lock);
    struct handle *list = shelf->available, **link = &shelf->all;
    shelf->available = NULL;
    shelf->stats.destroyed += shelf->stats.available;
    shelf->stats.available = 0;
    while (*link) {
        if ((*link)->available)
            *link = (*link)->all;
        else
            link = &(*link)->all;
    }
    mutex_unlock(&shelf->lock);
    return list;
}

/* Keeps workspaces on the shelf until they are cleared. */
static void shelf_keep(struct shelf *shelf, struct workspace *list)
{
    mutex_lock(&shelf->lock);
    while (list) {
        struct workspace *next = list->next;
        list->next = shelf->orphans;
        shelf->orphans = list;
        list = next;
    }
    mutex_unlock(&shelf->lock);
}

/* Handles that are being destroyed. */
struct ending {
    struct undo undo;
    struct shelf *shelf;
    struct handle *rest; /* the handles that are still to be destroyed */
};

/* A destroy did not return: its handle is abandoned, and the others are available again. */
static void ending_undo(struct undo *undo)
{
    const struct ending *ending = (struct ending *)((char *)undo - offsetof(struct ending, undo));
    struct shelf *shelf = ending->shelf;
    mutex_lock(&shelf->lock);
    for (struct handle *handle = ending->rest, *next; handle; handle = next) {
        next = handle->next;
        handle->all = shelf->all;
        shelf->all = handle;
        shelf->stats.destroyed--;
        push_locked(shelf, handle);
    }
    mutex_unlock(&shelf->lock);
}

/* Destroys the handle first, then frees the memory that it points to. */
tarn_status handles_destroy(struct shelf *shelf, bool keep, size_t *count)
{
    struct visit visit;
    struct ending ending = {.shelf = shelf};
    tarn_status result = visit_begin(shelf->device, &visit);
    *count = 0;
    if (result)
        return result;
    undo_push(&ending.undo, ending_undo);
    for (struct handle *list = detach_available(shelf); list; ++*count) {
        struct handle *next = ending.rest = list->next;
        tarn_status status = vendor_destroy(list);
        if (!result)
            result = status;
        mutex_lock(&list->lock);
        struct workspace *gone = workspaces_sweep_locked(list, true);
        mutex_unlock(&list->lock);
        if (keep)
            shelf_keep(shelf, workspaces_of_captures(&gone));
        workspaces_free(gone);
        mutex_finish(&list->lock);
        object_free(&handle_objects, list);
        list = next;
    }
    undo_pop(&ending.undo);
    visit_end(&visit, false);
    return result;
}

static void unbar(struct undo *undo)
{
    (void)undo;
    captures_unbar_all();
}

static tarn_status trim(tarn_library library, int device, size_t *destroyed)
{
    struct entry *entry = NULL;
    struct shelf *shelf = NULL;
    size_t count = 0;
    tarn_status status = find_shelf(library, device, &entry, &shelf);
    if (!status)
        status = device_check(shelf->device);
    if (status)
        return status;
    status = observe_refuse_moving("destroying handles");
    if (!status)
        status = captures_bar_all("destroying handles, which waits for the device");
    if (status)
        return status;
    struct undo barred;
    undo_push(&barred, unbar);
    status = handles_destroy(shelf, true, &count);
    undo_pop(&barred);
    captures_unbar_all();
    if (destroyed)
        *destroyed = count;
    return status;
}

tarn_status tarn_handle_trim(tarn_library library, int device, size_t *destroyed)
{
    struct holder *holder = NULL;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = trim(library, device, destroyed);
    call_end(holder);
    return status;
}

tarn_status tarn_handle_stats_get(tarn_library library, int device, tarn_handle_stats *stats)
{
    struct entry *entry = NULL;
    struct shelf *shelf = NULL;
    tarn_status status = sized_check("tarn_handle_stats", stats, sizeof *stats);
    if (!status)
        status = device_layer_ready();
    if (!status)
        status = find_shelf(library, device, &entry, &shelf);
    if (status)
        return status;
    mutex_lock(&shelf->lock);
    tarn_handle_stats result = shelf->stats;
    mutex_unlock(&shelf->lock);
    result.contract_breaks = atomic_load_explicit(&shelf->contract_breaks, memory_order_relaxed);
    result.workspace_bytes =
        entry->row->workspace_size ? workspace_bytes(entry, device_at(device)) : 0;
    sized_write(stats, &result, sizeof result);
    return TARN_OK;
}
