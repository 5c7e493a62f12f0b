/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Lanes: what one stream has of one pool of the driver. A block that is freed in the order of its
 * lane's stream can be used again at once, since later work on that stream runs later. A block that
 * is freed elsewhere waits in pool.c until its last use has ended.
 *
 * When its stream is destroyed, a lane is *left*: nothing is allocated from it, and an event behind
 * the stream's last work says when it may serve another stream. A thread's default stream ends with
 * the thread, which no event can show; that lane waits for a wait for the whole context.
 *
 * Invariant: no call is made with a stream that the program has destroyed. So a free uses the
 * stream under the lane's lock. lane_take() needs no lock, because it serves a request that the
 * program is making on that stream. That lock is held over calls of the driver that do not wait,
 * and over the short wait of give_idle(). `changing` is taken before a lane's lock. Neither is held
 * while tarn is asked for a block. */
#include "lane.h"
#include "../lock.h"
#include "segments.h"

#include <pthread.h>
#include <tarn/pool.h>

enum { STREAM_NOT_BLOCKING = 1 }; /* CU_STREAM_NON_BLOCKING */
enum state { NONE, OPEN, LEFT };

/* Fields that are read without the lock are atomic. `stream` is valid while the lane is open. */
static struct lane {
    pthread_mutex_t lock;
    _Atomic enum state state;
    tarn_pool *pool;
    _Atomic unsigned source, device; /* `device` is that of the source and of the context */
    _Atomic(cu_context) context;     /* NULL: the context has gone */
    _Atomic(cu_stream) stream;
    _Atomic uint64_t thread; /* the thread whose default stream it is; 0: any other stream */
    _Atomic int count;       /* its segments */
    _Atomic bool has_freed;  /* blocks were freed in it since it last returned segments */
    _Atomic bool is_waited;  /* the program is about to wait for its stream's work */

    /* Of a lane that was left; under the lock. */
    cu_event end;   /* behind its stream's last work; NULL: none */
    bool has_ended; /* that work has ended */
    uint64_t turn;  /* when it was left */
} lanes[LANES];

static struct {
    struct word_lock lock; /* for the search for an open lane; a leaf */
    _Atomic unsigned most; /* one more than the highest lane that was ever used */
    _Atomic uint64_t changes;
    _Atomic uint64_t turns;
} all;
/* Held while lanes are created, ended or trimmed: one thread at a time. */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool thread_key_is_there;

/* The lane of this thread's last request. */
static _Thread_local struct {
    cu_context context;
    cu_stream stream;
    uint64_t changes;
    unsigned source, lane;
} last __attribute__((tls_model("initial-exec")));
static _Thread_local uint64_t own_number __attribute__((tls_model("initial-exec")));

/* Runs at a thread's end. It makes no call of the driver, whose own data of the thread may be
 * gone. */
static void thread_ends(void *number)
{
    if (atomic_load(&shim_state) != SHIM_AWAKE)
        return;
    for (unsigned i = 0; i < atomic_load(&all.most); i++) {
        struct lane *lane = &lanes[i];
        pthread_mutex_lock(&lane->lock);
        if (atomic_load(&lane->state) == OPEN && lane->thread == (uintptr_t)number) {
            lane->turn = lanes_turn();
            atomic_store(&lane->state, LEFT);
            all.changes++;
        }
        pthread_mutex_unlock(&lane->lock);
    }
}

static void begin(void)
{
    for (unsigned i = 0; i < LANES; i++)
        pthread_mutex_init(&lanes[i].lock, NULL);
    thread_key_is_there = pthread_key_create(&thread_key, thread_ends) == 0;
}

/* This thread's number; 0 if its end cannot be noticed. */
static uint64_t number_of_thread(void)
{
    static _Atomic uint64_t threads;
    if (!own_number && thread_key_is_there) {
        uint64_t number = ++threads;
        if (pthread_setspecific(thread_key, (void *)(uintptr_t)number) == 0)
            own_number = number;
    }
    return own_number;
}

static cu_stream name_of(cu_stream stream, bool per_thread)
{
    return stream ? stream : per_thread ? PER_THREAD : LEGACY;
}

/* Ends ----------------------------------------------------------------------------------------- */

/* True if the work of a lane that was left has ended. */
static bool has_ended_locked(struct lane *lane)
{
    if (lane->has_ended || !lane->end)
        return lane->has_ended;
    cu_capture_mode mode = mode_relax();
    lane->has_ended = real.cuEventQuery(lane->end) != CU_NOT_READY;
    if (lane->has_ended) {
        (void)real.cuEventDestroy_v2(lane->end);
        lane->end = NULL;
    }
    mode_restore(mode);
    return lane->has_ended;
}

static void leave_locked(struct lane *lane, cu_event end, bool has_ended)
{
    lane->end = end;
    lane->has_ended = has_ended;
    lane->turn = lanes_turn();
    atomic_store(&lane->state, LEFT);
    all.changes++;
}

/* Records an event behind a stream's work; NULL if that is not possible. */
static cu_event event_behind(cu_context context, cu_stream stream)
{
    bool pushed;
    cu_event event = NULL;
    if (!context_enter(context, &pushed))
        return NULL;
    cu_capture_mode mode = mode_relax();
    if (stream_captures(stream, false) || real.cuEventCreate(&event, CU_EVENT_WITHOUT_TIMING))
        event = NULL;
    if (event && real.cuEventRecord(event, stream)) {
        (void)real.cuEventDestroy_v2(event);
        event = NULL;
    }
    mode_restore(mode);
    context_leave(pushed);
    return event;
}

void lanes_leave_stream(cu_stream stream)
{
    for (unsigned i = 0; i < atomic_load(&all.most) && (uintptr_t)stream > (uintptr_t)PER_THREAD;
         i++) {
        struct lane *lane = &lanes[i];
        if (atomic_load(&lane->state) != OPEN || lane->stream != stream)
            continue;
        pthread_mutex_lock(&lane->lock);
        if (atomic_load(&lane->state) == OPEN && lane->stream == stream)
            leave_locked(lane, event_behind(lane->context, stream), false);
        pthread_mutex_unlock(&lane->lock);
    }
}

uint64_t lanes_turn(void)
{
    return atomic_fetch_add(&all.turns, 1) + 1;
}

static void note_ends(uint64_t turn)
{
    cu_context context = NULL;
    if (!turn)
        return;
    unsigned device = current_device(&context);
    late_waited(device, turn);
    for (unsigned i = 0; i < atomic_load(&all.most); i++) {
        struct lane *lane = &lanes[i];
        if (atomic_load(&lane->state) != LEFT)
            continue;
        pthread_mutex_lock(&lane->lock);
        if (atomic_load(&lane->state) == LEFT && lane->context == context && !lane->end &&
            lane->turn <= turn)
            lane->has_ended = true;
        pthread_mutex_unlock(&lane->lock);
    }
}

/* The events of the lanes went with the context, and are not destroyed. */
void lanes_end(unsigned device)
{
    for (unsigned i = 0; i < atomic_load(&all.most); i++) {
        struct lane *lane = &lanes[i];
        pthread_mutex_lock(&lane->lock);
        if (atomic_load(&lane->state) != NONE && lane->device == device) {
            lane->context = NULL;
            leave_locked(lane, NULL, true);
        }
        pthread_mutex_unlock(&lane->lock);
    }
}

/* Segments ------------------------------------------------------------------------------------- */

unsigned lane_source(unsigned lane)
{
    return lanes[lane - 1].source;
}

cu_context lane_context(unsigned lane)
{
    return lanes[lane - 1].context;
}

cu_address lane_take(unsigned number, size_t size)
{
    struct lane *lane = &lanes[number - 1];
    cu_address address = 0;
    cu_pool pool = source_pool(lane->source);
    if (!pool || real.cuMemAllocFromPoolAsync(&address, size, pool, lane->stream))
        return 0;
    atomic_fetch_add(&lane->count, 1);
    return address;
}

static bool is_idle_stream(cu_stream stream)
{
    cu_capture_mode mode = mode_relax();
    bool is_idle = real.cuStreamQuery(stream) == CU_OK;
    mode_restore(mode);
    return is_idle;
}

/* Returns memory that no work uses any more, on a new stream. cuMemFree() would be simpler, but a
 * pool's `used` would count what it frees as used for good. */
static cu_result give_idle(cu_context context, cu_address address)
{
    cu_stream own = NULL;
    bool pushed;
    if (!context || !real.cuStreamCreate || !context_enter(context, &pushed))
        return PASS(cuMemFree_v2, (address));
    cu_capture_mode mode = mode_relax();
    bool made = real.cuStreamCreate(&own, STREAM_NOT_BLOCKING) == CU_OK;
    cu_result code = made ? real.cuMemFreeAsync(address, own) : PASS(cuMemFree_v2, (address));
    if (made) {
        /* returns at once; only after a wait does the driver count the memory as free */
        (void)PASS(cuStreamSynchronize, (own));
        (void)PASS(cuStreamDestroy_v2, (own));
    }
    mode_restore(mode);
    context_leave(pushed);
    return code;
}

/* Returns a segment to the driver. If the lane's stream is idle, the segment is freed as idle
 * memory: the driver would count what is freed behind a stream's work as free only once it has seen
 * that work end. If the program is about to wait for the stream, this is not needed. */
static cu_result give_locked(const struct lane *lane, cu_address address, bool has_ended)
{
    bool pushed;
    if (has_ended || atomic_load(&lane->state) == LEFT)
        return give_idle(lane->context, address);
    if ((lane->thread && lane->thread != own_number) || !context_enter(lane->context, &pushed))
        return CU_NOT_READY;
    bool is_idle = !atomic_load(&lane->is_waited) && is_idle_stream(lane->stream);
    cu_result code =
        is_idle ? give_idle(lane->context, address) : real.cuMemFreeAsync(address, lane->stream);
    context_leave(pushed);
    return code;
}

bool lane_give(unsigned number, cu_address address, bool has_ended)
{
    struct lane *lane = &lanes[number - 1];
    pthread_mutex_lock(&lane->lock);
    bool may = has_ended || atomic_load(&lane->state) == OPEN || has_ended_locked(lane);
    bool given = may && give_locked(lane, address, has_ended) == CU_OK;
    pthread_mutex_unlock(&lane->lock);
    if (given)
        atomic_fetch_sub(&lane->count, 1);
    return given;
}

void lane_lose(unsigned lane)
{
    atomic_fetch_sub(&lanes[lane - 1].count, 1);
}

/* Ends a lane that has no segments, if it was left or its source was destroyed. */
static void end_changing(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    enum state state = atomic_load(&lane->state);
    bool ends = state != NONE && !atomic_load(&lane->count) &&
                (state == LEFT ? has_ended_locked(lane) : !source_pool(lane->source));
    if (ends)
        atomic_store(&lane->state, NONE);
    all.changes += ends;
    pthread_mutex_unlock(&lane->lock);
    if (!ends)
        return;
    (void)tarn_pool_release(lane->pool);
    lane->pool = NULL;
    source_refer(lane->source, -1);
}

/* True if this thread can return the lane's segments now. */
static bool can_give(struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    bool can = atomic_load(&lane->state) == OPEN ? !lane->thread || lane->thread == own_number
                                                 : has_ended_locked(lane);
    pthread_mutex_unlock(&lane->lock);
    return can;
}

static const struct lane_wait no_wait;

static bool is_waited(const struct lane *lane, const struct lane_wait *wait)
{
    return wait->context ? lane->context == wait->context
                         : wait->stream && lane->stream == wait->stream;
}

/* Trims a lane before a wait. Segments that this thread cannot return before the wait become
 * refused ones, for segments_retry() after it. */
static void trim_changing(struct lane *lane, const struct lane_wait *wait)
{
    bool waited = is_waited(lane, wait);
    if ((can_give(lane) || (waited && wait->context)) && atomic_load(&lane->count)) {
        atomic_store(&lane->has_freed, false);
        atomic_store(&lane->is_waited, waited);
        (void)tarn_pool_trim(lane->pool, 0);
        atomic_store(&lane->is_waited, false);
    }
    end_changing(lane);
}

static void trim_source(unsigned source, const struct lane_wait *wait)
{
    pthread_mutex_lock(&changing);
    for (unsigned i = 0; i < atomic_load(&all.most); i++)
        if (atomic_load(&lanes[i].state) != NONE && lanes[i].source == source)
            trim_changing(&lanes[i], wait);
    pthread_mutex_unlock(&changing);
}

void lanes_trim(unsigned source, unsigned device)
{
    if (!atomic_load_explicit(&all.most, memory_order_acquire))
        return;
    pthread_mutex_lock(&changing);
    for (unsigned i = 0; i < atomic_load(&all.most); i++)
        if (atomic_load(&lanes[i].state) != NONE &&
            (source ? lanes[i].source == source : source_device(lanes[i].source) == device))
            trim_changing(&lanes[i], &no_wait);
    pthread_mutex_unlock(&changing);
}

/* The trim offers the segments to the driver; lane_give() refuses, and so they become refused
 * ones. */
void lanes_take_out(unsigned device)
{
    pthread_mutex_lock(&changing);
    for (unsigned i = 0; i < atomic_load(&all.most); i++)
        if (atomic_load(&lanes[i].state) != NONE && source_device(lanes[i].source) == device &&
            atomic_load(&lanes[i].count) && !can_give(&lanes[i]))
            (void)tarn_pool_trim(lanes[i].pool, 0);
    pthread_mutex_unlock(&changing);
}

void lanes_trim_closed(void)
{
    pthread_mutex_lock(&changing);
    for (unsigned i = 0; i < atomic_load(&all.most); i++)
        if (atomic_load(&lanes[i].state) != NONE && !source_pool(lanes[i].source))
            trim_changing(&lanes[i], &no_wait);
    pthread_mutex_unlock(&changing);
}

void lane_freed(unsigned lane)
{
    atomic_store_explicit(&lanes[lane - 1].has_freed, true, memory_order_relaxed);
}

void lanes_freed(void)
{
    for (unsigned i = 0; i < atomic_load(&all.most); i++)
        atomic_store_explicit(&lanes[i].has_freed, true, memory_order_relaxed);
}

static bool may_give(const struct lane *lane)
{
    return atomic_load_explicit(&lane->has_freed, memory_order_relaxed) &&
           atomic_load(&lane->state) != NONE && atomic_load(&lane->count);
}

bool lanes_before_wait(const struct lane_wait *wait)
{
    bool asked[SOURCES] = {false};
    uint64_t before = segments_given();
    if (!atomic_load_explicit(&all.most, memory_order_acquire) || pool_captures())
        return false;
    late_look();
    for (unsigned i = 0; i < atomic_load(&all.most); i++) {
        unsigned source = may_give(&lanes[i]) ? lanes[i].source : 0;
        if (!source || asked[source - 1])
            continue;
        asked[source - 1] = true;
        if (segments_may_be_idle(source) && source_is_above(source))
            trim_source(source, wait);
    }
    return segments_given() != before;
}

struct lane_wait lanes_wait_for_context(void)
{
    struct lane_wait wait = {NULL, NULL};
    if (atomic_load_explicit(&all.most, memory_order_acquire) &&
        real.cuCtxGetCurrent(&wait.context))
        wait.context = NULL;
    return wait;
}

/* Returns refused segments after a wait for the current context. */
static bool give_refused(uint64_t turn)
{
    cu_context context = NULL;
    unsigned device = turn ? current_device(&context) : NO_DEVICE;
    uint64_t before = segments_given();
    if (device != NO_DEVICE && pool_is_of(device, context) && segments_are_refused(device))
        segments_retry(device, turn);
    return segments_given() != before;
}

/* Frees the late blocks and the lanes whose last use the wait was for. The driver gets their memory
 * only now, after its own look at the wait, so it is also told to trim its pools. */
void lanes_after_wait(uint64_t turn)
{
    bool any = late_is_any();
    if ((!any && !atomic_load_explicit(&all.most, memory_order_acquire)) || pool_captures())
        return;
    note_ends(turn);
    bool gave = give_refused(turn);
    for (unsigned i = 0; !any && i < atomic_load(&all.most); i++)
        any = atomic_load(&lanes[i].state) == LEFT && may_give(&lanes[i]);
    gave = (any && lanes_before_wait(&no_wait)) || gave;
    if (gave)
        sources_settle();
}

/* Makes threads forget the source's lanes. A later pool may get the same pointer, and must not get
 * them. */
void lanes_close(unsigned source)
{
    (void)source;
    all.changes++;
    lanes_trim_closed();
}

/* Requests ------------------------------------------------------------------------------------- */

static unsigned find_open(cu_context context, cu_stream stream, uint64_t thread, unsigned source)
{
    unsigned found = 0;
    word_lock_take(&all.lock);
    for (unsigned i = 0; !found && i < atomic_load(&all.most); i++)
        if (atomic_load(&lanes[i].state) == OPEN && lanes[i].stream == stream &&
            lanes[i].context == context && lanes[i].thread == thread && lanes[i].source == source)
            found = i + 1;
    word_lock_give(&all.lock);
    return found;
}

/* A lane that has served another stream of this source, and whose work has ended. */
static struct lane *left_changing(unsigned source)
{
    for (unsigned i = 0; i < atomic_load(&all.most); i++) {
        if (atomic_load(&lanes[i].state) != LEFT || lanes[i].source != source)
            continue;
        pthread_mutex_lock(&lanes[i].lock);
        bool ended = has_ended_locked(&lanes[i]);
        pthread_mutex_unlock(&lanes[i].lock);
        if (ended)
            return &lanes[i];
    }
    return NULL;
}

static struct lane *make_changing(unsigned source, unsigned device)
{
    unsigned at = 0;
    while (at < LANES && atomic_load(&lanes[at].state) != NONE)
        at++;
    /* lanes of other sources that have no segments */
    for (unsigned i = 0; at == LANES && i < LANES; i++) {
        end_changing(&lanes[i]);
        at = atomic_load(&lanes[i].state) == NONE ? i : at;
    }
    if (at == LANES)
        return NULL;
    lanes[at].pool = pool_create(device, at + 1);
    if (!lanes[at].pool)
        return NULL;
    atomic_store(&lanes[at].count, 0);
    source_refer(source, 1);
    return &lanes[at];
}

/* True if a stream is of a context, so that the lane ends with both. The driver itself refuses an
 * invalid stream. The stream is known not to capture, so it may be queried. */
static bool is_stream_of(cu_context context, cu_stream stream)
{
    cu_context own = context;
    cu_capture_mode mode = mode_relax();
    cu_result code = real.cuStreamQuery(stream);
    if ((code == CU_OK || code == CU_NOT_READY) && stream != LEGACY && stream != PER_THREAD)
        code = real.cuStreamGetCtx(stream, &own);
    mode_restore(mode);
    return (code == CU_OK || code == CU_NOT_READY) && own == context;
}

static unsigned open_changing(cu_context context, cu_stream stream, uint64_t thread,
                              unsigned source, unsigned device)
{
    unsigned number = find_open(context, stream, thread, source);
    if (number || !source_is_fit(source) || !is_stream_of(context, stream))
        return number;
    struct lane *lane = left_changing(source);
    if (!lane)
        lane = make_changing(source, device);
    if (!lane)
        return 0;
    number = (unsigned)(lane - lanes) + 1;
    pthread_mutex_lock(&lane->lock);
    word_lock_take(&all.lock);
    lane->source = source;
    lane->device = device;
    lane->context = context;
    lane->stream = stream;
    lane->thread = thread;
    lane->has_ended = false;
    atomic_store(&lane->state, OPEN);
    if (number > atomic_load(&all.most))
        atomic_store_explicit(&all.most, number, memory_order_release);
    word_lock_give(&all.lock);
    pthread_mutex_unlock(&lane->lock);
    return number;
}

static unsigned lane_of(cu_context context, cu_stream stream, unsigned source, unsigned device)
{
    uint64_t changes = atomic_load_explicit(&all.changes, memory_order_acquire);
    if (last.lane && last.stream == stream && last.context == context && last.source == source &&
        last.changes == changes)
        return last.lane;
    pthread_once(&once, begin);
    uint64_t thread = stream == PER_THREAD ? number_of_thread() : 0;
    if (stream == PER_THREAD && !thread)
        return 0;
    unsigned number = find_open(context, stream, thread, source);
    if (!number) {
        pthread_mutex_lock(&changing);
        number = open_changing(context, stream, thread, source, device);
        pthread_mutex_unlock(&changing);
    }
    last.context = context;
    last.stream = stream;
    last.source = source;
    last.changes = changes;
    last.lane = number;
    return number;
}

/* A request is pooled only if the driver's pool and the context are of one device. */
bool pool_alloc_ordered(cu_address *address, const struct ordered_request *request)
{
    unsigned source = request->source, device = request->device;
    cu_context context = request->context;
    if (!source || request->size > book->pool ||
        atomic_load_explicit(&book->pool_ended, memory_order_relaxed) || pool_captures() ||
        !source_is_fit(source) || !pool_may_go_on() ||
        stream_captures(request->stream, request->per_thread))
        return false;
    if (!context)
        device = current_device(&context);
    if (device != source_device(source) || !pool_is_of(device, context))
        return false;
    late_look();
    cu_stream stream = name_of(request->stream, request->per_thread);
    unsigned lane = lane_of(context, stream, source, device);
    struct block block = {.size = request->size,
                          .context = source_context(source),
                          .references = 1,
                          .kind = RUN_ORDERED,
                          .device = (uint8_t)device,
                          .owner = (uint16_t)lane};
    if (!lane || !pool_cut(lanes[lane - 1].pool, &block, stream, request->caller))
        return false;
    source_block(source, (int64_t)request->size);
    *address = block.key;
    return true;
}

bool lane_is_of(unsigned number, cu_stream stream, bool per_thread)
{
    const struct lane *lane = &lanes[number - 1];
    cu_context context = NULL;
    stream = name_of(stream, per_thread);
    return atomic_load(&lane->state) == OPEN && lane->stream == stream &&
           (stream != LEGACY ||
            (real.cuCtxGetCurrent(&context) == CU_OK && context == lane->context)) &&
           (stream != PER_THREAD ||
            (own_number && lane->thread == own_number && real.cuCtxGetCurrent(&context) == CU_OK &&
             context == lane->context));
}
