/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Who has which handle. Owns the holders of threads, the pools of handles that nobody has, leases, and the order of
 * shutdown.
 *
 * A get whose slot is current makes no call and takes no lock: `process_changes` is the one number that says that
 * nothing has happened to streams, captures, settings, or the process. Everything else runs between call_begin() and
 * call_end(), which tarn_shutdown() waits out. Handles are created, destroyed and bound with no pool's lock held. A
 * handle belongs to one owner at a time; an owner's thread alone binds it. Locks: pool, then handle; `holders_lock`
 * with no other. tests/spin/handle_pool.pml is a model of it (docs/models.md): who changes the one changes the other. */
#include "handle/pool.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"
#include "device/capture.h"
#include "device/tracing.h"
#include "memory/pool.h"

#include <string.h>
#include <time.h>

#define LIBRARIES (TARN_MAX_LIBRARIES + 1)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)

static mutex holders_lock = MUTEX_INITIALIZER(LOCK_HOLDERS);
static struct holder *holders, *spare_holders; /* holders_lock */
static struct object_pool handle_objects = OBJECT_POOL_NAMED(struct handle);
static atomic_uint_fast64_t lease_numbers;

static void handles_thread_end(struct thread *thread);
static void handles_shutdown(void);

/* Holders --------------------------------------------------------------------------------------------------------- */

static struct slot *slot_of(struct holder *holder, int device, int library)
{
    return &holder->slots[(size_t)(unsigned)device * LIBRARIES + (unsigned)library];
}

static size_t holder_size(int devices)
{
    return sizeof(struct holder) + (size_t)devices * LIBRARIES * sizeof(struct slot);
}

static void layer_register(void)
{
    thread_on_end(THREAD_HANDLES, handles_thread_end);
    device_on_shutdown_first(handles_shutdown);
    pools_on_end(workspaces_of_pool_end);
}

/* Gives the thread a holder: one of an ended thread, whose slots are empty, or a new one. */
static tarn_status holder_make(struct thread *thread)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int devices = device_count();
    pthread_once(&once, layer_register);
    mutex_lock(&holders_lock);
    struct holder *holder = spare_holders;
    if (holder)
        spare_holders = holder->free;
    mutex_unlock(&holders_lock);
    if (!holder) {
        holder = pages_map(holder_size(devices));
        if (!holder)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the handles of a thread");
        holder->devices = devices;
        mutex_lock(&holders_lock);
        holder->all = holders;
        holders = holder;
        mutex_unlock(&holders_lock);
    }
    holder->free = NULL;
    holder->wait_ns = 0;
    thread->handles = holder;
    return TARN_OK;
}

tarn_status call_begin(struct holder **result)
{
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!thread->handles && (status = holder_make(thread)))
        return status;
    /* First busy, then the question whether the process still runs; tarn_shutdown() does it the other way round. */
    struct holder *holder = thread->handles;
    atomic_fetch_add(&holder->busy, 1);
    int state = atomic_load(&process_state);
    if (state != PROCESS_RUNS) {
        call_end(holder);
        (void)process_refuse(); /* for its text */
        return state == PROCESS_IS_FORKED ? TARN_ERROR_FORKED : TARN_ERROR_SHUTDOWN;
    }
    *result = holder;
    return TARN_OK;
}

void call_end(struct holder *holder)
{
    atomic_fetch_sub_explicit(&holder->busy, 1, memory_order_release);
}

/* Pools ----------------------------------------------------------------------------------------------------------- */

struct handle_pool *pool_known(const struct entry *entry, int device)
{
    struct handle_pool *pools = atomic_load_explicit(&entry->pools, memory_order_acquire);
    return pools ? &pools[device] : NULL;
}

static void pools_init(struct handle_pool *pools, int devices)
{
    for (int i = 0; i < devices; i++) {
        mutex_init(&pools[i].lock, LOCK_HANDLE_POOL);
        pthread_cond_init(&pools[i].first_over, NULL);
        pools[i].device = device_at(i);
        pools[i].stats.device_bytes_last = pools[i].stats.device_bytes_max = -1;
    }
}

tarn_status pool_of(struct entry *entry, struct device *device, struct handle_pool **pool)
{
    size_t size = (size_t)device_count() * sizeof(struct handle_pool);
    if (!pool_known(entry, device->number)) {
        struct handle_pool *made = pages_alloc(size), *none = NULL;
        if (!made)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the pools of %s", entry->row->name);
        pools_init(made, device_count());
        if (!atomic_compare_exchange_strong(&entry->pools, &none, made))
            pages_free(made, size); /* another thread was first */
    }
    *pool = pool_known(entry, device->number);
    return TARN_OK;
}

static void count_use_locked(struct handle_pool *pool)
{
    tarn_handle_stats *stats = &pool->stats;
    stats->in_use++;
    stats->available--;
    if (stats->in_use > stats->peak_in_use)
        stats->peak_in_use = stats->in_use;
}

static void push_locked(struct handle_pool *pool, struct handle *handle)
{
    handle->holder = NULL;
    handle->lease = 0;
    handle->available = true;
    handle->next = pool->available;
    pool->available = handle;
    pool->stats.available++;
}

/* Gives a handle that was in use back. By its owner, in a call that tarn_shutdown() waits for or after it. */
static void handle_give_back(struct handle *handle)
{
    struct handle_pool *pool = handle->pool;
    struct workspace *gone = NULL;
    mutex_lock(&handle->lock);
    handle->reset = true;
    if (handle->bound && handle->bound->cleared) { /* nobody uses it any more: who takes the handle binds it anew */
        handle->stream = NULL;
        handle->bound = NULL;
    }
    if (atomic_load(&process_state) == PROCESS_RUNS)
        gone = workspaces_sweep_locked(handle, false);
    mutex_unlock(&handle->lock);
    mutex_lock(&pool->lock);
    pool->stats.in_use--;
    push_locked(pool, handle);
    mutex_unlock(&pool->lock);
    workspaces_free(gone);
}

/* The handle to hand out next: the last that came back; where a handle keeps its stream, that stream's, else one that
 * was never bound, else, with `foreign`, the last of any stream. NULL when there is none. */
static struct handle *pop_locked(struct handle_pool *pool, bool by_stream, const struct stream *stream, bool foreign)
{
    struct handle **best = &pool->available;
    if (by_stream) {
        struct handle **fresh = NULL, **other = foreign && pool->available ? &pool->available : NULL;
        unsigned generation = atomic_load_explicit(&stream->generation, memory_order_relaxed);
        for (best = &pool->available; *best; best = &(*best)->next) {
            if ((*best)->used_on == stream && (*best)->used_generation == generation)
                break;
            if (!(*best)->used_on && !fresh)
                fresh = best;
        }
        if (!*best)
            best = fresh ? fresh : other;
    }
    struct handle *handle = best ? *best : NULL;
    if (!handle)
        return NULL;
    *best = handle->next;
    handle->next = NULL;
    handle->available = false;
    count_use_locked(pool);
    return handle;
}

/* A handle that keeps its stream is to serve another: what runs on the new one comes after what ran on the old one. */
static tarn_status handle_follow(struct handle *handle, struct stream *stream)
{
    struct mark *mark = NULL;
    unsigned generation = atomic_load_explicit(&stream->generation, memory_order_relaxed);
    if (!handle->library->row->by_stream || !handle->used_on ||
        (handle->used_on == stream && handle->used_generation == generation))
        return TARN_OK;
    tarn_status status = mark_of_stream(handle->used_on, handle->used_generation, &mark);
    if (!status && mark)
        status = stream_wait_mark(stream, mark);
    mark_release(mark);
    return status;
}

static void note_created_locked(struct handle_pool *pool, struct handle *handle, uint64_t ns, int64_t bytes)
{
    tarn_handle_stats *stats = &pool->stats;
    stats->created++;
    stats->create_ns_sum += ns;
    stats->create_ns_last = ns;
    if (ns > stats->create_ns_max)
        stats->create_ns_max = ns;
    if (bytes >= 0)
        stats->device_bytes_last = bytes;
    if (bytes > stats->device_bytes_max)
        stats->device_bytes_max = bytes;
    handle->all = pool->all;
    pool->all = handle;
}

/* Creates a handle, with the pool's lock given up meanwhile. It is neither in use nor available when it comes. */
static tarn_status create_locked(struct entry *entry, struct handle_pool *pool, struct handle **result)
{
    bool first = pool->first == FIRST_TO_COME;
    if (first)
        pool->first = FIRST_UNDER_WAY;
    uint64_t started = ++pool->started, ns = 0;
    bool alone = pool->creating++ == 0;
    int64_t bytes = -1;
    mutex_unlock(&pool->lock);

    tarn_status status = TARN_OK;
    struct handle *handle = object_alloc(&handle_objects);
    if (handle) {
        handle->library = entry;
        handle->pool = pool;
        handle->reset = true;
        mutex_init(&handle->lock, LOCK_HANDLE);
        status = vendor_create(handle, alone, &ns, &bytes);
    } else {
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a handle of %s", entry->row->name);
    }

    mutex_lock(&pool->lock);
    pool->creating--;
    if (pool->started != started)
        bytes = -1; /* it had company */
    if (first) {
        pool->first = status ? FIRST_TO_COME : FIRST_DONE;
        pthread_cond_broadcast(&pool->first_over);
    }
    if (status) {
        pool->stats.failures++;
        if (handle) {
            mutex_finish(&handle->lock);
            object_free(&handle_objects, handle);
        }
        return status;
    }
    note_created_locked(pool, handle, ns, bytes);
    if (trace_is_on())
        trace_event(TRACE_handle_create, trace_place_of_device(pool->device->number, (const uint64_t[2]){0}),
                    trace_text(entry->row->name), bytes > 0 ? (uint64_t)bytes : 0, 0);
    *result = handle;
    return TARN_OK;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The end of a wait; 0 where there is none to be. */
static uint64_t deadline_after(uint64_t ns)
{
    uint64_t now = now_ns();
    return ns == 0 ? 0 : ns < UINT64_MAX - now ? now + ns : UINT64_MAX;
}

/* Whether a handle may be made now. `stream` may be NULL. Waits until `deadline` for captures of other threads. No lock
 * held. */
static tarn_status may_create(const struct entry *entry, struct device *device, struct stream *stream,
                              uint64_t deadline)
{
    if (entry->row->create_in_capture)
        return TARN_OK;
    unsigned open = captures_open(device);
    bool ours = captures_of_thread() > 0 || (stream && stream_captures(stream));
    if (!open && !ours)
        return TARN_OK;
    if (open && !ours) {
        uint64_t now = now_ns();
        if (now < deadline && captures_wait(device, deadline - now))
            return TARN_OK;
    }
    return failed(
        TARN_ERROR_CAPTURE,
        "a handle of %s would have to be made on device %d while %s captures; call tarn_handle_prewarm() before the "
        "capture begins%s",
        entry->row->name, device->number, ours ? "this thread" : "another thread",
        ours ? "" : ", or tarn_handle_wait_limit() in this thread");
}

static struct handle *pop_for_locked(struct handle_pool *pool, const struct entry *entry, const struct stream *stream)
{
    /* What orders two streams is an event, and none is recorded while a capture may see it. */
    bool foreign = entry->row->by_stream && captures_open(pool->device) == 0;
    return pop_locked(pool, entry->row->by_stream, stream, foreign);
}

/* A handle that nobody has, or a new one. In use when it comes, and bound to what it was bound to. */
static tarn_status pool_take(struct entry *entry, struct handle_pool *pool, struct stream *stream, uint64_t wait_ns,
                             struct handle **result)
{
    uint64_t deadline = deadline_after(wait_ns);
    tarn_status status = TARN_OK;
    struct handle *handle = NULL;
    mutex_lock(&pool->lock);
    handle = pop_for_locked(pool, entry, stream);
    while (!status && !handle) {
        mutex_unlock(&pool->lock);
        status = may_create(entry, pool->device, stream, deadline);
        mutex_lock(&pool->lock);
        if (status || (handle = pop_for_locked(pool, entry, stream)))
            break;
        if (pool->first == FIRST_UNDER_WAY) {
            (void)condition_wait(&pool->first_over, &pool->lock, NULL);
        } else if (!(status = create_locked(entry, pool, &handle))) {
            pool->stats.available++; /* for a moment that nobody sees */
            count_use_locked(pool);
        }
    }
    mutex_unlock(&pool->lock);
    if (status)
        return status;
    if ((status = handle_follow(handle, stream))) {
        handle_give_back(handle);
        return status;
    }
    *result = handle;
    return TARN_OK;
}

/* A thread's handle ----------------------------------------------------------------------------------------------- */

void slot_forget(struct holder *holder, const struct handle *handle)
{
    slot_of(holder, handle->pool->device->number, handle->library->number)->changes = 0;
}

/* Of a library whose handles keep their streams: the thread's one for this stream, moved to the front. Those whose
 * stream was retired go back to the pool. */
static struct handle *held_for(struct slot *slot, const struct stream *stream)
{
    struct handle **link = &slot->held, *found = NULL, *gone = NULL;
    unsigned generation = atomic_load_explicit(&stream->generation, memory_order_relaxed);
    while (*link) {
        struct handle *handle = *link;
        bool matches = handle->used_on == stream && handle->used_generation == generation;
        bool stale =
            atomic_load_explicit(&handle->used_on->generation, memory_order_relaxed) != handle->used_generation;
        if (!matches && !stale) {
            link = &handle->next;
            continue;
        }
        *link = handle->next;
        if (matches && !found) {
            found = handle;
        } else {
            handle->next = gone;
            gone = handle;
        }
    }
    while (gone) {
        struct handle *next = gone->next;
        handle_give_back(gone);
        gone = next;
    }
    if (found) {
        found->next = slot->held;
        slot->held = found;
    }
    return found;
}

tarn_status handle_of_thread(struct holder *holder, struct entry *entry, struct stream *stream, struct handle **result)
{
    struct slot *slot = slot_of(holder, stream->device, entry->number);
    struct handle_pool *pool = NULL;
    unsigned generation = atomic_load_explicit(&stream->generation, memory_order_acquire);
    slot->changes = 0;
    struct handle *handle = entry->row->by_stream && slot->held ? held_for(slot, stream) : slot->held;
    bool taken = !handle;
    if (taken) {
        tarn_status status = entry_usable(entry);
        if (status || (status = pool_of(entry, device_at(stream->device), &pool)) ||
            (status = pool_take(entry, pool, stream, holder->wait_ns, &handle)))
            return status;
        mutex_lock(&pool->lock);
        handle->holder = holder;
        mutex_unlock(&pool->lock);
        handle->next = slot->held;
        slot->held = handle;
    }
    tarn_status status = vendor_bind(handle, stream, generation);
    if (status && taken) { /* as if it had not been asked for */
        slot->held = handle->next;
        handle_give_back(handle);
    }
    if (!status)
        *result = handle;
    return status;
}

/* All but the hit. `value`: the stream asked for, or NULL for the thread's current one. */
static tarn_status get_slowly(tarn_library library, const tarn_stream *value, void **result)
{
    struct entry *entry = NULL;
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    struct handle *handle = NULL;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "handle is NULL");
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    /* Read before anything that it stands for. */
    uint64_t changes = atomic_load(&process_changes);
    if (!(status = entry_find(library, &entry)) &&
        !(status = value ? stream_find(*value, thread_device(), &stream) : stream_current(thread_device(), &stream)) &&
        !(status = device_check(device_at(stream->device))))
        status = handle_of_thread(holder, entry, stream, &handle);
    if (!status) {
        struct slot *slot = slot_of(holder, stream->device, library);
        slot->stream = value ? stream_value(stream) : thread_here->current[stream->device];
        slot->vendor = handle->vendor;
        slot->changes = vendor_is_watched() ? 0 : changes;
        *result = handle->vendor;
    }
    call_end(holder);
    return status;
}

/* The hit: some 16 instructions, 9 of them loads, no call; bench/bench_handle.c holds it to 5 ns. Whatever could make
 * the slot wrong has moved `process_changes` on. */
tarn_status tarn_handle_get(tarn_library library, void **handle)
{
    struct thread *thread = thread_here;
    if (LIKELY(thread && thread->handles && handle && (unsigned)library < LIBRARIES)) {
        int device = thread->device;
        const struct slot *slot = slot_of(thread->handles, device, library);
        if (LIKELY(slot->changes == atomic_load_explicit(&process_changes, memory_order_acquire) &&
                   slot->stream == thread->current[device])) {
            *handle = slot->vendor;
            return TARN_OK;
        }
    }
    return get_slowly(library, NULL, handle);
}

tarn_status tarn_handle_get_on(tarn_library library, tarn_stream stream, void **handle)
{
    struct thread *thread = thread_here;
    struct stream *found = NULL;
    if (LIKELY(thread && thread->handles && handle && (unsigned)library < LIBRARIES)) {
        uint64_t changes = atomic_load_explicit(&process_changes, memory_order_acquire);
        tarn_status status = process_check();
        if (status || (status = stream_find(stream, thread->device, &found)))
            return status;
        const struct slot *slot = slot_of(thread->handles, found->device, library);
        if (LIKELY(slot->changes == changes && slot->stream == stream_value(found))) {
            *handle = slot->vendor;
            return TARN_OK;
        }
    }
    return get_slowly(library, &stream, handle);
}

/* Gives back all that a thread has. */
static void holder_empty(struct holder *holder)
{
    int count = entry_count();
    for (int device = 0; device < holder->devices; device++)
        for (int number = 1; number <= count; number++) {
            struct slot *slot = slot_of(holder, device, number);
            struct handle *handle = slot->held;
            *slot = (struct slot){0};
            while (handle) {
                struct handle *next = handle->next;
                handle_give_back(handle);
                handle = next;
            }
        }
}

/* The thread's end: no call of the vendor or the driver. The last handle that came back is the first that is taken. */
static void handles_thread_end(struct thread *thread)
{
    struct holder *holder = thread->handles;
    if (!holder)
        return;
    atomic_fetch_add(&holder->busy, 1);
    holder_empty(holder);
    call_end(holder);
    thread->handles = NULL;
    mutex_lock(&holders_lock);
    holder->free = spare_holders;
    spare_holders = holder;
    mutex_unlock(&holders_lock);
}

tarn_status tarn_handle_wait_limit(uint64_t ns)
{
    struct holder *holder = NULL;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    holder->wait_ns = ns;
    call_end(holder);
    return TARN_OK;
}

/* Leases ---------------------------------------------------------------------------------------------------------- */

static tarn_status lease(struct holder *holder, tarn_library library, tarn_stream value, tarn_lease *result)
{
    struct entry *entry = NULL;
    struct stream *stream = NULL;
    struct handle_pool *pool = NULL;
    struct handle *handle = NULL;
    tarn_status status = entry_find(library, &entry);
    if (status || (status = stream_find(value, thread_device(), &stream)) || (status = entry_usable(entry)) ||
        (status = pool_of(entry, device_at(stream->device), &pool)) ||
        (status = pool_take(entry, pool, stream, holder->wait_ns, &handle)))
        return status;
    status = vendor_bind(handle, stream, atomic_load_explicit(&stream->generation, memory_order_acquire));
    if (status) {
        handle_give_back(handle);
        return status;
    }
    uint64_t number = atomic_fetch_add(&lease_numbers, 1) + 1;
    mutex_lock(&pool->lock);
    handle->lease = number;
    mutex_unlock(&pool->lock);
    *result = (tarn_lease){.handle = handle->vendor, .owner = handle, .number = number};
    return TARN_OK;
}

tarn_status tarn_handle_lease(tarn_library library, tarn_stream stream, tarn_lease *result)
{
    struct holder *holder = NULL;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "lease is NULL");
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = lease(holder, library, stream, result);
    call_end(holder);
    return status;
}

/* Takes the handle of a lease away from it, so that of two threads that return it, or bind it, at once one alone has it; NULL
 * where it is none: of a handle that was destroyed, or whose number is another's now. */
static struct handle *lease_claim(const tarn_lease *given)
{
    struct handle *handle = given ? given->owner : NULL;
    if (!given || !given->number || !object_is_live(&handle_objects, handle))
        return NULL;
    struct handle_pool *pool = handle->pool; /* once: of a stale lease it may change */
    if (!pool)
        return NULL;
    mutex_lock(&pool->lock);
    bool matches = handle->lease == given->number;
    if (matches)
        handle->lease = 0;
    mutex_unlock(&pool->lock);
    return matches ? handle : NULL;
}

static void lease_unclaim(struct handle *handle, const tarn_lease *given)
{
    mutex_lock(&handle->pool->lock);
    handle->lease = given->number;
    mutex_unlock(&handle->pool->lock);
}

tarn_status tarn_handle_lease_bind(tarn_lease *given, tarn_stream value)
{
    struct holder *holder = NULL;
    struct stream *stream = NULL;
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    struct handle *handle = lease_claim(given);
    if (!handle)
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "this is no lease, or it was returned");
    if (!status && !(status = stream_find(value, thread_device(), &stream)) &&
        stream->device != handle->pool->device->number)
        status = failed(TARN_ERROR_INVALID_STREAM, "the stream is of device %d, the lease of device %d", stream->device,
                        handle->pool->device->number);
    bool other = !status && handle->library->row->by_stream && handle->used_on != stream;
    tarn_lease next = {0};
    if (other && !(status = lease(holder, handle->library->number, value, &next))) {
        handle_give_back(handle);
        handle = NULL;
        *given = next;
    } else if (!status) {
        status = vendor_bind(handle, stream, atomic_load_explicit(&stream->generation, memory_order_acquire));
    }
    if (handle)
        lease_unclaim(handle, given);
    call_end(holder);
    return status;
}

tarn_status tarn_handle_return(tarn_lease *given)
{
    struct holder *holder = NULL;
    tarn_status status = call_begin(&holder);
    if (status && status != TARN_ERROR_SHUTDOWN)
        return status;
    struct handle *handle = lease_claim(given);
    if (handle) {
        handle_give_back(handle);
        *given = (tarn_lease){0};
    }
    if (!status)
        call_end(holder);
    return handle ? TARN_OK : failed(TARN_ERROR_INVALID_ARGUMENT, "this is no lease, or it was returned");
}

/* Prewarm, trim, statistics --------------------------------------------------------------------------------------- */

/* The start of a public call on a library's pool. */
static tarn_status find_pool(tarn_library library, int device, struct entry **entry, struct handle_pool **pool)
{
    struct device *found = NULL;
    tarn_status status = entry_find(library, entry);
    if (status || (status = device_find(device, &found)))
        return status;
    return pool_of(*entry, found, pool);
}

static tarn_status prewarm(struct holder *holder, tarn_library library, int device, size_t count)
{
    struct entry *entry = NULL;
    struct handle_pool *pool = NULL;
    tarn_status status = find_pool(library, device, &entry, &pool);
    if (status || (status = entry_usable(entry)))
        return status;
    mutex_lock(&pool->lock);
    while (!status && pool->stats.available < count) {
        struct handle *handle = NULL;
        mutex_unlock(&pool->lock);
        status = may_create(entry, pool->device, NULL, deadline_after(holder->wait_ns));
        mutex_lock(&pool->lock);
        if (status)
            break;
        if (pool->first == FIRST_UNDER_WAY) {
            (void)condition_wait(&pool->first_over, &pool->lock, NULL);
        } else if (!(status = create_locked(entry, pool, &handle))) {
            push_locked(pool, handle);
        }
    }
    mutex_unlock(&pool->lock);
    return status;
}

tarn_status tarn_handle_prewarm(tarn_library library, int device, size_t count)
{
    struct holder *holder = NULL;
    if (count > 65536)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%zu handles are more than 65,536", count);
    tarn_status status = call_begin(&holder);
    if (status)
        return status;
    status = prewarm(holder, library, device, count);
    call_end(holder);
    return status;
}

/* Takes the available handles of a pool out of it, for their destruction. */
static struct handle *detach_available(struct handle_pool *pool)
{
    mutex_lock(&pool->lock);
    struct handle *list = pool->available, **link = &pool->all;
    pool->available = NULL;
    pool->stats.destroyed += pool->stats.available;
    pool->stats.available = 0;
    while (*link) {
        if ((*link)->available)
            *link = (*link)->all;
        else
            link = &(*link)->all;
    }
    mutex_unlock(&pool->lock);
    return list;
}

/* Leaves workspaces with the pool until they are cleared. */
static void pool_keep(struct handle_pool *pool, struct workspace *list)
{
    mutex_lock(&pool->lock);
    while (list) {
        struct workspace *next = list->next;
        list->next = pool->kept;
        pool->kept = list;
        list = next;
    }
    mutex_unlock(&pool->lock);
}

/* The handle first, then the memory that it points to. With `keep`, what captures have bound outlives its handle. All that are
 * available are destroyed; gives the first failure. None is, where the device cannot be reached: at a shutdown, because the driver is
 * gone or the device lost, that is better than a crash (rocBLAS aborts). */
static tarn_status handles_destroy(struct handle_pool *pool, bool keep, size_t *count)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct visit visit;
    tarn_status result = visit_begin(pool->device, &visit);
    *count = 0;
    if (result)
        return result;
    for (struct handle *list = detach_available(pool); list; ++*count) {
        struct handle *next = list->next;
        tarn_status status = vendor_destroy(list);
        if (!result)
            result = status;
        mutex_lock(&list->lock);
        struct workspace *gone = workspaces_sweep_locked(list, true);
        mutex_unlock(&list->lock);
        if (keep)
            pool_keep(pool, workspaces_of_captures(&gone));
        workspaces_free(gone);
        mutex_finish(&list->lock);
        object_free(&handle_objects, list);
        list = next;
    }
    visit_end(&visit);
    return result;
}

static tarn_status trim(tarn_library library, int device, size_t *destroyed)
{
    struct entry *entry = NULL;
    struct handle_pool *pool = NULL;
    size_t count = 0;
    tarn_status status = find_pool(library, device, &entry, &pool);
    if (status || (status = device_check(pool->device)))
        return status;
    if ((status = captures_bar_all("destroying handles, which waits for the device")))
        return status;
    status = handles_destroy(pool, true, &count);
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
    struct handle_pool *pool = NULL;
    if (!stats || stats->size != sizeof *stats)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stats is NULL, or its size is not sizeof(tarn_handle_stats)");
    tarn_status status = device_layer_ready();
    if (status || (status = find_pool(library, device, &entry, &pool)))
        return status;
    mutex_lock(&pool->lock);
    *stats = pool->stats;
    mutex_unlock(&pool->lock);
    stats->size = sizeof *stats;
    stats->contract_breaks = atomic_load_explicit(&pool->contract_breaks, memory_order_relaxed);
    return TARN_OK;
}

tarn_status tarn_handle_mode_set(tarn_library library, tarn_handle_mode mode, int value)
{
    static const int modes[] = {[TARN_HANDLE_MATH] = MODE_MATH, [TARN_HANDLE_ATOMICS] = MODE_ATOMICS};
    struct entry *entry = NULL;
    tarn_status status = process_check();
    if (status || (status = entry_find(library, &entry)))
        return status;
    if ((unsigned)mode >= sizeof modes / sizeof *modes || value < -1)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "mode %d, value %d", (int)mode, value);
    if (!entry->row->modes[modes[mode]].used)
        return failed(TARN_ERROR_NOT_SUPPORTED, "handles of %s have no such mode", entry->row->name);
    atomic_store(&entry->mode_values[modes[mode]], value);
    atomic_fetch_add(&entry->mode_changes, 1);
    process_changed();
    return TARN_OK;
}

/* Shutdown -------------------------------------------------------------------------------------------------------- */

/* Waits until no other thread is in a call that may reach a vendor. None begins any more: the process is shut down. */
static void wait_for_calls(void)
{
    static const struct timespec moment = {.tv_nsec = 50000};
    mutex_lock(&holders_lock);
    struct holder *holder = holders;
    mutex_unlock(&holders_lock);
    for (; holder; holder = holder->all)
        /* In one order with the change of the state: acquiring, it could come before that. */
        while (atomic_load(&holder->busy))
            nanosleep(&moment, NULL);
}

static void handles_shutdown(void)
{
    wait_for_calls();
    if (thread_here && thread_here->handles)
        holder_empty(thread_here->handles);
    if (captures_bar_all("destroying handles")) { /* one that began as the shutdown did */
        log_write(LOG_ERRORS, "tarn_shutdown(): %s", tarn_last_error());
        return;
    }
    for (int number = 1; number <= entry_count(); number++)
        for (int device = 0; device < device_count(); device++) {
            struct handle_pool *pool = pool_known(entry_at(number), device);
            size_t count = 0;
            if (!pool)
                continue;
            if (handles_destroy(pool, false, &count))
                log_write(LOG_ERRORS, "tarn_shutdown(): %s", tarn_last_error());
            mutex_lock(&pool->lock);
            struct workspace *kept = pool->kept;
            pool->kept = NULL;
            mutex_unlock(&pool->lock);
            workspaces_free(kept);
        }
    captures_unbar_all();
}
