/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The replay of one device's workload.
 *
 * Time: the clock of queued work shows recorded time since the beginning of the repetition, plus
 * all that the allocator has waited. It is moved only if work is queued at all: with a lag, or if
 * the recording has late frees.
 *
 * Late frees: if a block's recorded completion came later than its free, a helper stream uses the
 * block until then. Each block gets a helper whose earlier work ends before the block's, so that
 * completions out of order do not wait for each other. Helpers are assigned before the start, so
 * that the loop creates no streams.
 *
 * Threads: if the recording has several, or blocks are distributed over several, each allocation
 * and each free is a job for one thread of a crew. A job ends before the next is given out. So
 * every replay is the same, and only one thread at a time uses it.
 *
 * Each recorded private pool is a pool. Memory that the program itself gave back is given back
 * here. A recording by PyTorch has no captures. There an empty graph holds each private pool until
 * the recording gives it back, so that nothing else gets its memory.
 *
 * In a recording by tarn, the operations of streams and captures are repeated: waits wait, and a
 * request that failed is made again. Waits and captures that the driver refuses, because a ring
 * lost what came before, are counted. A capture's graph, and with it its pool, is kept until the
 * blocks of the repetition are freed. No timed work is queued in captures.
 *
 * The allocator is asked for memory and nothing else. Peaks, calls and times come from the host
 * device's ledger. */
#include "replay/replay_state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tarn/host.h>
#include <time.h>

#define PROGRESS_STEP 256 /* operations */

static double seconds_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

const struct replay_shortage *replay_lack(const struct replay_result *result)
{
    return result->shortage.there ? &result->shortage
           : result->denied.there ? &result->denied
                                  : NULL;
}

bool replay_fail(struct replay *replay, tarn_status status, const char *format, ...)
{
    struct replay_result *result = replay->result;
    char what[128], where[64] = "before the trace";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (replay->event == replay->workload->event_count)
        snprintf(where, sizeof where, "after the trace");
    else if (replay->event != UINT32_MAX)
        snprintf(where, sizeof where, "event %" PRIu32, replay->event);
    if (replay->repetition > 1)
        snprintf(where + strlen(where), sizeof where - strlen(where), " (repetition %" PRIu32 ")",
                 replay->repetition);
    if (status == TARN_OK) {
        snprintf(result->error, sizeof result->error, "device %d, %s: %s", result->device, where,
                 what);
        return false;
    }
    const char *detail = tarn_last_error();
    snprintf(result->error, sizeof result->error, "device %d, %s: %s: %s: %s", result->device,
             where, what, tarn_status_name(status),
             detail && *detail ? detail : tarn_status_text(status));
    return false;
}

/* ---- the operations ---- */

/* Moves the clock to an operation's time. If the clock is past that, the allocator has waited. */
static bool reach(struct replay *replay, uint64_t recorded)
{
    uint64_t due = recorded + replay->shift;
    if (due < replay->now) {
        replay->shift += replay->now - due;
        return true;
    }
    if (due == replay->now)
        return true;
    tarn_status status = tarn_host_advance(due);
    if (status)
        return replay_fail(replay, status, "advancing the clock");
    replay->now = due;
    return true;
}

static bool ledger(struct replay *replay, tarn_host_ledger *ledger)
{
    *ledger = (tarn_host_ledger){.size = sizeof *ledger};
    tarn_status status = tarn_host_ledger_get(replay->workload->device, ledger);
    return status ? replay_fail(replay, status, "reading the ledger") : true;
}

/* Notes the waste when reserved memory reaches a peak, which only an allocation can cause. */
static bool note_waste(struct replay *replay)
{
    tarn_host_ledger read;
    if (!ledger(replay, &read))
        return false;
    if (read.created_peak > replay->waste_peak) {
        replay->waste_peak = read.created_peak;
        replay->result->wasted = read.created_peak - replay->requested;
    }
    return true;
}

/* Requests a block as in the recording: from its pool, or from the one that its stream's capture
 * has. */
static tarn_status ask(struct replay *replay, const struct workload_block *block, void **pointer)
{
    const struct lane *lane = &replay->streams[block->stream];
    if (!block->pool || (lane->captures && lane->routed == block->pool))
        return tarn_alloc_on(lane->stream, block->size, pointer);
    return tarn_pool_alloc(replay->pools[block->pool], lane->stream, block->size, pointer);
}

/* Repeats a request that failed in the recording. It may fail here too. Reserved memory may reach
 * its peak during the request. */
static bool try_allocation(struct replay *replay, uint32_t number)
{
    struct replay_result *result = replay->result;
    const struct workload_block *block = &replay->workload->blocks[number];
    void *pointer = NULL;
    tarn_status status = ask(replay, block, &pointer);
    bool denied = status == TARN_ERROR_OUT_OF_MEMORY;
    result->ooms_tried++;
    result->ooms_here += denied;
    if (denied && !result->denied.there)
        result->denied =
            (struct replay_shortage){.there = true, .event = replay->event, .size = block->size};
    if (status && !denied)
        return replay_fail(replay, status, "trying an allocation that failed in the recording");
    if (replay->timed) {
        status = tarn_host_time_get(&replay->now);
        if (status)
            return replay_fail(replay, status, "reading the clock");
    }
    if (denied)
        return true;
    replay->requested += block->size;
    bool noted = !replay->options->compare || note_waste(replay);
    replay->requested -= block->size;
    status = tarn_free(pointer);
    return noted &&
           (!status || replay_fail(replay, status, "freeing what failed in the recording"));
}

static bool allocate(struct replay *replay, uint32_t number)
{
    const struct workload_block *block = &replay->workload->blocks[number];
    struct holding *holding = &replay->holdings[number];
    if (block->size == 0)
        return true;
    tarn_status status = ask(replay, block, &holding->pointer);
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        replay->result->shortage = (struct replay_shortage){.there = true,
                                                            .before = replay->event == UINT32_MAX,
                                                            .event = replay->event,
                                                            .size = block->size};
    if (status)
        return replay_fail(replay, status, "allocating %" PRIu64 " bytes, with %" PRIu64 " live",
                           block->size, replay->requested);
    status = tarn_usable_size_get(holding->pointer, &holding->usable);
    if (status)
        return replay_fail(replay, status,
                           "asking for the usable size of a block of %" PRIu64 " bytes",
                           block->size);
    if (replay->timed) {
        status = tarn_host_time_get(&replay->now);
        if (status)
            return replay_fail(replay, status, "reading the clock");
    }

    const struct oracle_block watched = {
        .address = (uint64_t)(uintptr_t)holding->pointer,
        .requested = block->size,
        .usable = holding->usable,
        .stream = block->stream,
        .label = number,
    };
    if (!oracle_allocated(replay->oracle, &watched, replay->now, &holding->ticket))
        return replay_fail(replay, TARN_ERROR_OUT_OF_HOST_MEMORY, "watching a block");
    holding->live = true;
    replay->live++;
    replay->requested += block->size;
    replay->active += holding->usable;
    if (replay->active > replay->measured.peak_active)
        replay->measured.peak_active = replay->active;
    return !replay->options->compare || note_waste(replay);
}

/* True if a stream captures, by its own capture or one that it joined. */
static bool is_capturing(const struct replay *replay, const struct lane *lane)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    return replay->open_captures &&
           (tarn_capture_state_get(lane->stream, &state, NULL, NULL) != TARN_OK ||
            state != TARN_CAPTURE_NONE);
}

/* Queues work on a block on a stream, from now on for `duration`. */
static bool work(struct replay *replay, struct lane *lane, const struct holding *holding,
                 uint64_t size, uint64_t duration)
{
    if (is_capturing(replay, lane))
        return true;
    tarn_status status =
        tarn_host_work(replay->workload->device, lane->native, holding->pointer, size, duration);
    if (status)
        return replay_fail(replay, status, "queueing work on a block of %" PRIu64 " bytes", size);
    if (replay->now + duration > lane->end)
        lane->end = replay->now + duration;
    return true;
}

/* The second stream that uses a block until its completion: the recorded or dealt one, or a helper.
 * NULL: there is none. */
static struct lane *second_lane(struct replay *replay, uint32_t number)
{
    const struct workload_block *block = &replay->workload->blocks[number];
    if (block->second != WORKLOAD_NO_STREAM)
        return &replay->streams[block->second];
    return replay->helper_of[number] != NO_HELPER ? &replay->helpers[replay->helper_of[number]]
                                                  : NULL;
}

/* Frees a block, in the order of stream `order` unless that is WORKLOAD_NO_STREAM. */
static bool give_back(struct replay *replay, uint32_t number, uint64_t recorded, uint32_t order)
{
    const struct workload_block *block = &replay->workload->blocks[number];
    struct holding *holding = &replay->holdings[number];
    struct lane *own = &replay->streams[block->stream], *helper = second_lane(replay, number);
    struct lane *moved = order == WORKLOAD_NO_STREAM ? NULL : &replay->streams[order];
    uint64_t foreign_end = 0;
    if (replay->options->lag &&
        !work(replay, moved ? moved : own, holding, block->size, replay->options->lag))
        return false;
    if (helper) {
        if (block->late && !work(replay, helper, holding, block->size, block->completed - recorded))
            return false;
        tarn_status status = tarn_record_stream(holding->pointer, helper->stream);
        if (status)
            return replay_fail(replay, status, "recording a second stream");
        foreign_end = helper->end;
    }
    if (moved && moved->end > foreign_end)
        foreign_end = moved->end;

    oracle_freed(replay->oracle, holding->ticket, own->end, foreign_end);
    tarn_status status =
        moved ? tarn_free_on(holding->pointer, moved->stream) : tarn_free(holding->pointer);
    if (status)
        return replay_fail(replay, status, "freeing block %" PRIu32 " of %" PRIu64 " bytes", number,
                           block->size);
    holding->live = false;
    replay->live--;
    replay->requested -= block->size;
    return true;
}

/* What streams do ------------------------------------------------------------------------------ */

/* A stream waits for the work that is queued on another stream now. */
static tarn_status wait_for(struct replay *replay, struct lane *lane, struct lane *other)
{
    tarn_status status =
        other->event ? TARN_OK : tarn_event_create(replay->workload->device, &other->event);
    if (!status)
        status = tarn_event_record(other->event, other->stream);
    if (!status)
        status = tarn_stream_wait(lane->stream, other->event);
    /* A stream that captures does not wait now */
    if (!status && lane->end < other->end && !is_capturing(replay, lane))
        lane->end = other->end;
    return status;
}

static tarn_status capture(struct replay *replay, struct lane *lane, uint32_t pool)
{
    bool routed = pool != WORKLOAD_NO_POOL && pool > 0;
    tarn_status status =
        routed ? tarn_pool_capture_begin(replay->pools[pool], lane->stream, TARN_CAPTURE_RELAXED)
               : tarn_capture_begin(lane->stream, TARN_CAPTURE_RELAXED);
    if (!status) {
        lane->captures = true;
        lane->routed = routed ? pool : WORKLOAD_NO_POOL;
        replay->open_captures++;
    }
    return status;
}

static tarn_status captured(struct replay *replay, struct lane *lane)
{
    void *graph = NULL;
    if (!lane->captures)
        return TARN_ERROR_CAPTURE;
    tarn_status status = tarn_capture_end(lane->stream, &graph);
    lane->captures = false;
    replay->open_captures--;
    if (graph)
        replay->graphs[replay->graph_count++] = graph;
    return status;
}

/* Repeats an operation of a stream. One that cannot be repeated is counted. */
static bool stream_op(struct replay *replay, const struct workload_op *op)
{
    tarn_status status = TARN_OK;
    struct lane *lane = &replay->streams[op->stream];
    if (op->action == WORKLOAD_RECORD && replay->holdings[op->block].live)
        status = tarn_record_stream(replay->holdings[op->block].pointer, lane->stream);
    else if (op->action == WORKLOAD_WAIT)
        status = wait_for(replay, lane, &replay->streams[op->other]);
    else if (op->action == WORKLOAD_CAPTURE)
        status = capture(replay, lane, op->other);
    else if (op->action == WORKLOAD_CAPTURED)
        status = captured(replay, lane);
    replay->result->refused += status != TARN_OK;
    return status != TARN_ERROR_DEVICE_LOST && status != TARN_ERROR_OUT_OF_HOST_MEMORY
               ? true
               : replay_fail(replay, status, "making what a stream did");
}

static tarn_status trim(struct replay *replay, uint32_t pool)
{
    return pool ? tarn_pool_trim(replay->pools[pool], 0)
                : tarn_device_trim(replay->workload->device, 0);
}

/* The program gives back cached memory, or a pool. With any allocator this waits for work that uses
 * the memory, so the wait is the program's time and is not counted. A trim that was refused in the
 * recording, because a capture was open, is refused here too. */
static bool give_memory_back(struct replay *replay, const struct workload_op *op)
{
    tarn_host_ledger before, after;
    if (!ledger(replay, &before))
        return false;
    tarn_status status = op->action == WORKLOAD_POOL_END ? replay_pool_close(replay, op->other)
                                                         : trim(replay, op->other);
    if (status == TARN_ERROR_CAPTURE) {
        replay->result->refused++;
        return true;
    }
    if (!status && replay->timed)
        status = tarn_host_time_get(&replay->now);
    if (status)
        return replay_fail(replay, status, "giving memory back as the program did");
    if (!ledger(replay, &after))
        return false;
    replay->program_waited += after.waited_ns - before.waited_ns;
    return true;
}

/* An operation as a job for a thread. */
struct job {
    struct replay *replay;
    uint32_t block, order;
    uint64_t time;
    const struct workload_op *op; /* for an operation of a stream */
};

static bool allocate_job(void *context)
{
    const struct job *job = context;
    return allocate(job->replay, job->block);
}

static bool try_job(void *context)
{
    const struct job *job = context;
    return try_allocation(job->replay, job->block);
}

static bool stream_job(void *context)
{
    const struct job *job = context;
    return stream_op(job->replay, job->op);
}

static bool give_back_job(void *context)
{
    const struct job *job = context;
    return give_back(job->replay, job->block, job->time, job->order);
}

/* Let a thread allocate or free: `thread`, that of the recording, unless blocks are distributed
 * over threads. */
static bool allocate_dealt(struct replay *replay, uint32_t block, uint32_t thread)
{
    struct job job = {.replay = replay, .block = block};
    uint32_t threads = replay->options->deal_threads;
    if (threads)
        thread = workload_allocating_thread(replay->workload, block, threads);
    return replay->crew ? crew_do(replay->crew, thread, allocate_job, &job) : allocate_job(&job);
}

static bool give_back_dealt(struct replay *replay, uint32_t block, uint64_t recorded,
                            uint32_t order, uint32_t thread)
{
    struct job job = {.replay = replay, .block = block, .order = order, .time = recorded};
    uint32_t threads = replay->options->deal_threads;
    if (threads)
        thread = workload_freeing_thread(replay->workload, block, threads);
    return replay->crew ? crew_do(replay->crew, thread, give_back_job, &job) : give_back_job(&job);
}

/* Lets the thread of the recording do it. */
static bool other_dealt(struct replay *replay, const struct workload_op *op)
{
    struct job job = {.replay = replay, .block = op->block, .op = op};
    bool (*what)(void *context) = op->action == WORKLOAD_TRY ? try_job : stream_job;
    uint32_t threads = replay->options->deal_threads;
    return replay->crew
               ? crew_do(replay->crew, threads ? op->thread % threads : op->thread, what, &job)
               : what(&job);
}

static bool run_events(struct replay *replay)
{
    const struct workload *workload = replay->workload;
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        if (replay->progress && i % PROGRESS_STEP == 0)
            atomic_fetch_add_explicit(replay->progress, PROGRESS_STEP, memory_order_relaxed);
        replay->event = op->event;
        if (replay->timed && !reach(replay, op->time))
            return false;
        bool done = true;
        if (op->action == WORKLOAD_ALLOC)
            done = allocate_dealt(replay, op->block, op->thread);
        else if (op->action == WORKLOAD_FREE)
            done = give_back_dealt(replay, op->block, op->time, op->stream, op->thread);
        else if (op->action == WORKLOAD_COMPLETED)
            replay->active -= replay->holdings[op->block].usable;
        else if (op->action == WORKLOAD_TRIM || op->action == WORKLOAD_POOL_END)
            done = give_memory_back(replay, op);
        else if (op->action != WORKLOAD_OOM && op->action != WORKLOAD_OTHER)
            done = other_dealt(replay, op);
        if (!done)
            return false;
    }
    return true;
}

/* ---- repetitions ---- */

/* Frees all live blocks, at the end of the trace. */
static bool give_back_all(struct replay *replay)
{
    const struct workload *workload = replay->workload;
    uint64_t end = workload->op_count ? workload->ops[workload->op_count - 1].time : 0;
    replay_graphs_drop(replay);
    for (size_t i = 0; i < workload->block_count; i++)
        if (replay->holdings[i].live &&
            !give_back_dealt(replay, (uint32_t)i, end, WORKLOAD_NO_STREAM, 0))
            return false;
    replay->active = 0;
    return true;
}

static bool statistics(struct replay *replay, tarn_stats *stats)
{
    *stats = (tarn_stats){.size = sizeof *stats};
    tarn_status status = tarn_device_stats_get(replay->workload->device, stats);
    return status ? replay_fail(replay, status, "reading the statistics") : true;
}

/* At rest the counters are the sums over blocks. */
static bool check_counters(struct replay *replay)
{
    tarn_stats stats;
    if (!statistics(replay, &stats))
        return false;
    int64_t requested = stats.requested_bytes[TARN_STAT_ALL].current,
            live = stats.allocation[TARN_STAT_ALL].current;
    if (requested != (int64_t)replay->requested)
        oracle_report(replay->oracle,
                      "the counter requested_bytes is %" PRId64 ", the live blocks are %" PRIu64
                      " bytes",
                      requested, replay->requested);
    if (live != (int64_t)replay->live)
        oracle_report(replay->oracle,
                      "the counter allocation is %" PRId64 ", live are %" PRIu64 " blocks", live,
                      replay->live);
    return true;
}

/* With everything freed and trimmed, nothing is left, by tarn's counters and by the driver's. */
static bool check_empty(struct replay *replay)
{
    tarn_host_ledger left;
    tarn_stats stats;
    if (!give_back_all(replay))
        return false;
    replay_pools_close(replay);
    tarn_status status = tarn_device_trim(replay->workload->device, 0);
    if (status)
        return replay_fail(replay, status, "trimming an empty device");
    if (!ledger(replay, &left) || !statistics(replay, &stats))
        return false;
    if (left.created)
        oracle_report(replay->oracle,
                      "everything is freed and trimmed, but the driver has %" PRIu64
                      " bytes reserved",
                      left.created);
    const struct {
        const char *name;
        int64_t value;
    } counters[] = {
        {"reserved_bytes", stats.reserved_bytes[TARN_STAT_ALL].current},
        {"active_bytes", stats.active_bytes[TARN_STAT_ALL].current},
        {"allocated_bytes", stats.allocated_bytes[TARN_STAT_ALL].current},
        {"requested_bytes", stats.requested_bytes[TARN_STAT_ALL].current},
        {"allocation", stats.allocation[TARN_STAT_ALL].current},
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (counters[i].value)
            oracle_report(replay->oracle,
                          "everything is freed and trimmed, but the counter %s is %" PRId64,
                          counters[i].name, counters[i].value);
    return true;
}

/* Takes the figures of the repetition from the ledger; the next one starts from here. */
static bool measure(struct replay *replay)
{
    struct replay_repetition *measured = &replay->measured;
    struct replay_result *result = replay->result;
    tarn_host_ledger read;
    if (!ledger(replay, &read))
        return false;
    measured->peak_reserved = read.created_peak;
    measured->time_a_ns = read.time_a_ns - replay->program_waited;
    measured->time_b_ns = read.time_b_ns - replay->program_waited;
    measured->time_c_ns = read.time_c_ns - replay->program_waited;
    measured->waited_ns = read.waited_ns - replay->program_waited;
    for (size_t kind = 0; kind < REPLAY_MAX_CALLS && kind < TARN_HOST_MAX_KINDS; kind++)
        measured->calls[kind] = read.calls[kind];
    if (measured->peak_reserved > result->peak_reserved)
        result->peak_reserved = measured->peak_reserved;
    if (measured->peak_active > result->peak_active)
        result->peak_active = measured->peak_active;
    if (replay->repetition == 1)
        result->first = *measured;
    result->repetitions = replay->repetition;
    tarn_status status = tarn_host_ledger_reset(replay->workload->device);
    return status ? replay_fail(replay, status, "resetting the ledger") : true;
}

static bool repeat_once(struct replay *replay)
{
    replay->measured = (struct replay_repetition){0};
    replay->program_waited = 0;
    double start = seconds_now();
    if (!give_back_all(replay))
        return false;
    replay->event = UINT32_MAX;
    if (!replay_pools_open(replay))
        return false;
    for (size_t i = 0; i < replay->workload->initial_count; i++)
        if (!allocate_dealt(replay, (uint32_t)i, 0))
            return false;
    if (replay->timed) {
        tarn_status status = tarn_host_time_get(&replay->now);
        if (status)
            return replay_fail(replay, status, "reading the clock");
        replay->shift = replay->now;
    }

    double begin = seconds_now();
    replay->measured.setup_seconds = begin - start;
    if (!run_events(replay))
        return false;
    replay->measured.seconds = seconds_now() - begin;
    replay->event = (uint32_t)replay->workload->event_count;
    return measure(replay) && check_counters(replay);
}

void replay_describe(const struct replay_options *options, const struct workload *workload,
                     struct replay_result *result)
{
    *result = (struct replay_result){
        .device = workload->device,
        .events = workload->event_count,
        .streams = workload->stream_count,
        .threads = workload->thread_count,
        .has_order = workload->has_order && !options->deal_streams,
        .waits = workload->wait_count,
        .captures = workload->capture_count,
        .pools = workload->pool_count,
        .allocations = workload->alloc_count,
        .initial_blocks = workload->initial_count,
        .late_frees = workload->late_count,
        .moved_frees = workload->moved_count,
        .trims = workload->trim_count,
        .recorded_ooms = workload->oom_count,
        .lost_events = workload->lost_count,
        .lag = options->lag,
        .peak_requested = workload->peak_requested,
        .recorded_peak_reserved = workload->recorded_peak_reserved,
    };
}

bool replay_run(const struct replay_options *options, const struct workload *workload,
                void (*repeated)(void *context, const struct replay_repetition *repetition),
                void *context, _Atomic uint64_t *progress, struct replay_result *result)
{
    replay_describe(options, workload, result);
    struct replay replay = {.options = options,
                            .workload = workload,
                            .result = result,
                            .progress = progress,
                            .event = UINT32_MAX};
    bool done = replay_setup(&replay);
    if (done) {
        tarn_status status = tarn_host_ledger_reset(workload->device);
        done = status ? replay_fail(&replay, status, "resetting the ledger") : true;
    }
    for (replay.repetition = 1; done && replay.repetition <= options->repeat; replay.repetition++) {
        done = repeat_once(&replay);
        if (done)
            repeated(context, &replay.measured);
    }
    replay.repetition = (uint32_t)result->repetitions;
    done = done && check_empty(&replay);
    replay_teardown(&replay);
    return done;
}
