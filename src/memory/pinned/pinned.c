/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls on pinned memory, and pools. They check arguments, choose the pool, and leave
 * the work to heap, wait and growth. A request that free memory serves, and the free of a block
 * that no stream uses, take the lock once and call no driver. `pinned_settings_lock` is held while
 * the background thread starts or ends, which only settings decide. */
#include "base/log.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "memory/pinned/heap.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"

static mutex pinned_settings_lock = MUTEX_INITIALIZER(LOCK_PINNED_SETTINGS);
static atomic_bool follows_settings;

static void pinned_shutdown(void)
{
    (void)pinned_watch(false);
    (void)pinned_trim(0, true);
    mutex_lock(&pinned.lock);
    bool all = !tree_first(&pinned.segments);
    mutex_unlock(&pinned.lock);
    if (!all)
        device_keep_driver(); /* live blocks keep their memory, and need the driver */
}

/* Starts or ends the background thread as the settings say, then puts them in force. Without a
 * thread, allocations check for finished work. */
static void settings_apply(struct pinned_settings settings)
{
    struct error_before before;
    error_attempt_begin(&before);
    if (pinned_watch(settings.background_threads)) {
        log_write(LOG_ERRORS, "pinned memory: no background thread: %s", tarn_last_error());
        settings.background_threads = false;
    }
    error_attempt_end(&before, TARN_OK);
    mutex_lock(&pinned.lock);
    if (settings.reserve_segment != pinned.settings.reserve_segment)
        pinned_unreserve_locked();
    pinned.settings = settings;
    pthread_cond_signal(&pinned.work);
    mutex_unlock(&pinned.lock);
}

/* Applies settings that the configuration has changed. Others stay as calls have set them. */
void pinned_configure(bool named)
{
    static const struct memory_config *seen = &memory_config_defaults; /* pinned_settings_lock */
    if (!atomic_load(&follows_settings))
        return;
    mutex_lock(&pinned_settings_lock);
    const struct memory_config *now = memory_config();
    settings_apply((struct pinned_settings){
        .use_register = now->pinned_use_cuda_host_register,
        .register_threads = (unsigned)now->pinned_num_register_threads,
        .reserve_segment = now->pinned_reserve_segment_size,
        .background_threads = now->pinned_use_background_threads,
        .max_round_threshold = now->pinned_max_round_threshold,
        .max_cached_size = now->pinned_max_cached_size,
    });
    mutex_lock(&pinned.lock);
    if (named || now->pinned_limit != seen->pinned_limit)
        pinned.limit = now->pinned_limit;
    mutex_unlock(&pinned.lock);
    seen = now;
    mutex_unlock(&pinned_settings_lock);
}

static void pinned_register(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pinned.work, &attributes);
    pthread_condattr_destroy(&attributes);
    device_on_shutdown(pinned_shutdown);
    atomic_store(&follows_settings, true);
    pinned_configure(false);
    atomic_store_explicit(&pinned.used, true, memory_order_release);
}

tarn_status pinned_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tarn_status status = device_layer_ready();
    if (status || atomic_load_explicit(&pinned.used, memory_order_acquire))
        return status;
    status = memory_config_ready();
    if (!status)
        pthread_once(&once, pinned_register);
    return status;
}

/* Gives back what is in `leaving`. What the driver refuses is free memory again; the caller's call
 * does not fail. */
static void settle_quietly(void)
{
    struct error_before before;
    error_attempt_begin(&before);
    (void)pinned_settle(NULL);
    error_attempt_end(&before, TARN_OK);
}

/* ---- Pools ---- */

void pinned_keeper_retain(struct pinned_keeper *keeper)
{
    mutex_lock(&pinned.lock);
    keeper->holders++;
    mutex_unlock(&pinned.lock);
}

void pinned_pool_retain(struct pinned_pool *pool)
{
    pinned_keeper_retain(&pool->keeper);
}

struct pinned_keeper *pinned_pool_keeper(struct pinned_pool *pool)
{
    return &pool->keeper;
}

void pinned_pool_own(struct pinned_pool *pool, const atomic_uint *holds)
{
    pool->keeper.holds = holds; /* no other thread knows the pool yet */
}

void pinned_pool_settle(struct pinned_pool *pool)
{
    if (!pool)
        return;
    mutex_lock(&pinned.lock);
    if (pinned_is_unheld_locked(&pool->keeper))
        pinned_unkeep_locked(&pool->keeper);
    mutex_unlock(&pinned.lock);
    settle_quietly();
}

void pinned_pool_end(struct pinned_pool *pool)
{
    if (!pool)
        return;
    mutex_lock(&pinned.lock);
    pool->keeper.holds = NULL;
    pinned_captures_end_locked(&pool->keeper);
    mutex_unlock(&pinned.lock);
    pinned_pool_release(pool);
}

static void pinned_keeper_release(struct pinned_keeper *keeper)
{
    if (!keeper)
        return;
    mutex_lock(&pinned.lock);
    if (--keeper->holders == 0 && !keeper->parent)
        pinned_pool_die_locked((struct pinned_pool *)keeper);
    mutex_unlock(&pinned.lock);
    settle_quietly();
}

void pinned_pool_release(struct pinned_pool *pool)
{
    if (pool)
        pinned_keeper_release(&pool->keeper);
}

/* ---- Allocation ---- */

static tarn_status serve(struct pinned_pool *pool, size_t size, void **pointer)
{
    struct pinned_request request = {.requested = size, .pool = pool};
    struct pinned_block *block = NULL;
    mutex_lock(&pinned.lock);
    if (size > PINNED_LARGEST) {
        pinned.stats.num_ooms++;
        mutex_unlock(&pinned.lock);
        return failed(TARN_ERROR_OUT_OF_MEMORY, "pinned memory: no machine has %zu bytes", size);
    }
    request.size = pinned_round(size, pinned.settings.max_round_threshold);
    request.zone = request.size <= PINNED_SMALL ? PINNED_ZONE_SMALL : PINNED_ZONE_LARGE;
    tarn_status status = pinned_take_locked(&request, &block);
    mutex_unlock(&pinned.lock);
    if (status == TARN_ERROR_NO_ROOM)
        status = pinned_climb(&request, &block);
    if (!status)
        *pointer = (void *)block->address;
    return status;
}

/* `stream` NULL: the thread's current stream, which matters only while requests are routed. */
static tarn_status allocate(struct stream *stream, size_t size, void **pointer)
{
    pinned_route_hook *choose =
        atomic_load_explicit(&upper_hooks.pinned_route, memory_order_acquire);
    tarn_status status = device_check(device_at(stream ? stream->device : thread_device()));
    if (!status && choose && !stream)
        status = stream_current(thread_device(), &stream);
    if (status)
        return status;
    struct pinned_pool *pool = choose ? choose(stream) : NULL;
    status = serve(pool ? pool : &pinned.standard, size, pointer);
    pinned_pool_release(pool);
    return status;
}

static tarn_status check_alloc(size_t size, void **pointer)
{
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    tarn_status status = pinned_ready();
    if (!status && size == 0)
        *pointer = NULL;
    return status;
}

tarn_status tarn_pinned_alloc(tarn_stream stream, size_t size, void **pointer)
{
    struct stream *found = NULL;
    tarn_status status = check_alloc(size, pointer);
    if (!status && stream != TARN_STREAM_CURRENT)
        status = stream_find(stream, thread_device(), &found);
    return status || size == 0 ? status : allocate(found, size, pointer);
}

/* ---- Free and use ---- */

/* The live block that begins at a pointer, or why there is none. `ours` says whether the pointer is
 * in pinned memory of tarn; if not, there is no error text. */
static tarn_status find_start_locked(const void *pointer, struct pinned_block **block, bool *ours)
{
    struct pinned_block *found = pinned_find_locked((uintptr_t)pointer, ours);
    if (found && found->address != (uintptr_t)pointer)
        return failed(TARN_ERROR_INVALID_POINTER,
                      "%p is inside a block of pinned memory, which begins at %p", pointer,
                      (void *)found->address);
    if (!found && *ours)
        return failed(TARN_ERROR_DOUBLE_FREE, "%p is free pinned memory of tarn", pointer);
    *block = found;
    return found ? TARN_OK : TARN_ERROR_INVALID_POINTER;
}

static bool may_be_captured_locked(const struct pinned_block *block)
{
    return block->captured && !pinned_is_unheld_locked(block->captured);
}

/* Keeps a block that a graph may use, until no capture and no graph of its keeper is left. */
static void keep_locked(struct pinned_block *block)
{
    struct pinned_keeper *keeper = block->captured;
    block->state = PINNED_OF_GRAPH;
    block->link = keeper->of_graphs;
    keeper->of_graphs = block;
    if (!keeper->listed && !keeper->parent && keeper != &pinned.standard.keeper)
        pinned_keeper_enter_locked(keeper);
    pinned.stats.graph_bytes += (int64_t)block->size;
}

/* Completes a free without the lock. No other thread has the block now. */
static void free_used(struct pinned_block *block)
{
    struct error_before before;
    error_attempt_begin(&before); /* a mark that cannot be recorded now does not fail the free */
    pinned_uses_mark(block->uses);
    mutex_lock(&pinned.lock);
    pinned_wait_begin_locked(block);
    pinned_move_end_locked();
    mutex_unlock(&pinned.lock);
    error_attempt_end(&before, TARN_OK);
}

bool pinned_free(void *pointer, tarn_status *result)
{
    bool ours;
    struct pinned_block *block = NULL;
    if (!atomic_load_explicit(&pinned.used, memory_order_acquire) || pinned_ready())
        return false;
    mutex_lock(&pinned.lock);
    tarn_status status = find_start_locked(pointer, &block, &ours);
    bool used = false, of_graph = !status && may_be_captured_locked(block);
    if (!status && block->captured)
        block->captured->captured--; /* counts live blocks only */
    if (!status && !of_graph)
        block->captured = NULL;
    if (of_graph) {
        keep_locked(block);
    } else if (!status && block->uses) {
        block->state = PINNED_PENDING;
        pinned_move_begin_locked();
        used = true;
    } else if (!status) {
        pinned_give_locked(block);
    }
    bool leaving = pinned.leaving;
    mutex_unlock(&pinned.lock);
    if (used)
        free_used(block);
    if (leaving)
        settle_quietly();
    *result = status;
    return ours;
}

/* The keeper for all graphs of the same pool. */
static struct pinned_keeper *keeper_of_all(struct pinned_keeper *keeper)
{
    return keeper->parent ? keeper->parent : keeper;
}

/* Notes that a capture uses a block. If graphs of one pool share a block, the pool's keeper keeps
 * it. If graphs of several pools do, the default pool's keeper does, since the end of one pool is
 * not enough. */
static void capture_locked(struct pinned_block *block, struct pinned_keeper *keeper)
{
    if (block->captured != keeper && may_be_captured_locked(block)) {
        struct pinned_keeper *all = keeper_of_all(keeper);
        keeper = keeper_of_all(block->captured) == all ? all : &pinned.standard.keeper;
    }
    if (block->captured)
        block->captured->captured--;
    block->captured = keeper;
    keeper->captured++;
}

/* The keeper of blocks that a stream's capture uses, retained; NULL: the default pool's. */
static struct pinned_keeper *keeper_for(struct stream *stream)
{
    pinned_capture_hook *ask =
        atomic_load_explicit(&upper_hooks.pinned_capture, memory_order_acquire);
    pinned_route_hook *choose =
        atomic_load_explicit(&upper_hooks.pinned_route, memory_order_acquire);
    if (ask || !choose)
        return ask ? ask(stream) : NULL;
    struct pinned_pool *pool = choose(stream);
    return pool ? &pool->keeper : NULL;
}

tarn_status pinned_record_stream(const void *pointer, tarn_stream stream)
{
    struct stream *found = NULL;
    struct driver_capture capture = {0};
    bool ours;
    tarn_status status = pinned_ready();
    if (!status)
        status = stream_find(stream, thread_device(), &found);
    if (status)
        return status;
    /* The legacy stream never captures; if it were asked during a capture, the driver could not
     * tell. If the driver fails to tell, any guess would be wrong: either the block is kept for a
     * graph that does not exist, or memory of a graph is reused. */
    bool known = stream_is_known(found);
    if (found->native && !known) {
        status = stream_ask_capture(found, &capture);
        if (status)
            return status;
    }
    bool captures = found->native && (known || capture.state != DRIVER_CAPTURE_NONE);
    struct pinned_keeper *keeper = captures ? keeper_for(found) : NULL;
    mutex_lock(&pinned.lock);
    struct pinned_block *block = pinned_find_locked((uintptr_t)pointer, &ours);
    if (!block)
        status = failed(TARN_ERROR_INVALID_POINTER, "%p is not in a live block of pinned memory",
                        pointer);
    else if (captures)
        capture_locked(block, keeper ? keeper : &pinned.standard.keeper);
    else
        status = pinned_use_add_locked(&block->uses, found);
    mutex_unlock(&pinned.lock);
    pinned_keeper_release(keeper);
    return status;
}

tarn_status pinned_usable(const void *pointer, size_t *size)
{
    struct pinned_block *block = NULL;
    bool ours;
    mutex_lock(&pinned.lock);
    tarn_status status = find_start_locked(pointer, &block, &ours);
    if (!status)
        *size = block->size;
    mutex_unlock(&pinned.lock);
    return status ? TARN_ERROR_INVALID_POINTER : TARN_OK;
}

/* Before the first use there is no block. In a child of fork() the lock may never be released. */
bool tarn_pinned_contains(const void *pointer)
{
    bool ours;
    if (atomic_load_explicit(&process_state, memory_order_relaxed) != PROCESS_RUNS ||
        !atomic_load_explicit(&pinned.used, memory_order_acquire))
        return false;
    mutex_lock(&pinned.lock);
    bool found = pinned_find_locked((uintptr_t)pointer, &ours);
    mutex_unlock(&pinned.lock);
    return found;
}

/* ---- Control ---- */

tarn_status tarn_pinned_trim(size_t keep)
{
    tarn_status status = pinned_ready();
    if (!status)
        status = captures_refuse_all("trimming pinned memory");
    if (status)
        return status;
    hooks.collect_pools();
    return pinned_trim(keep, false);
}

tarn_status tarn_pinned_limit_set(size_t bytes)
{
    tarn_status status = pinned_ready();
    if (status)
        return status;
    mutex_lock(&pinned.lock);
    pinned.limit = bytes;
    mutex_unlock(&pinned.lock);
    return TARN_OK;
}

tarn_status tarn_pinned_forget_captures(void)
{
    tarn_status status = pinned_ready();
    if (status)
        return status;
    mutex_lock(&pinned.lock);
    pinned_unkeep_locked(&pinned.standard.keeper);
    mutex_unlock(&pinned.lock);
    settle_quietly();
    return TARN_OK;
}

/* ---- Statistics ---- */

tarn_status tarn_pinned_stats_get(tarn_pinned_stats *stats)
{
    struct error_before before;
    tarn_status status = sized_check("tarn_pinned_stats", stats, sizeof *stats);
    if (!status)
        status = pinned_ready();
    if (status)
        return status;
    error_attempt_begin(&before);
    hooks.collect_pools();
    mutex_lock(&pinned.lock);
    pinned_collect_locked();
    mutex_unlock(&pinned.lock);
    (void)pinned_settle(NULL);
    error_attempt_end(&before, TARN_OK);
    mutex_lock(&pinned.lock);
    tarn_pinned_stats now = pinned.stats;
    now.limit = pinned.limit;
    mutex_unlock(&pinned.lock);
    sized_write(stats, &now, sizeof now);
    return TARN_OK;
}

bool pinned_view(tarn_pinned_stats *stats)
{
    if (!atomic_load_explicit(&pinned.used, memory_order_acquire))
        return false;
    mutex_lock(&pinned.lock);
    *stats = pinned.stats;
    stats->limit = pinned.limit;
    mutex_unlock(&pinned.lock);
    stats->size = sizeof *stats;
    return true;
}

#define EACH_STAT(X)   \
    X(active_requests) \
    X(active_bytes)    \
    X(requested_bytes) \
    X(allocations)     \
    X(allocated_bytes)

static void reset_peak_locked(void)
{
#define X(name) pinned.stats.name.peak = pinned.stats.name.current;
    EACH_STAT(X)
#undef X
}

static void reset_accumulated_locked(void)
{
    const tarn_pinned_stats old = pinned.stats;
    pinned.stats =
        (tarn_pinned_stats){.pending_bytes = old.pending_bytes, .graph_bytes = old.graph_bytes};
#define X(name) pinned.stats.name = (tarn_stat){.current = old.name.current, .peak = old.name.peak};
    EACH_STAT(X)
#undef X
}

tarn_status tarn_pinned_stats_reset(tarn_stats_what what)
{
    tarn_status status = pinned_ready();
    if (status)
        return status;
    if ((unsigned)what > TARN_STATS_ACCUMULATED)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a tarn_stats_what value", (int)what);
    mutex_lock(&pinned.lock);
    if (what == TARN_STATS_PEAK)
        reset_peak_locked();
    else
        reset_accumulated_locked();
    mutex_unlock(&pinned.lock);
    return TARN_OK;
}
