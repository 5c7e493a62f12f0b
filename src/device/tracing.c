/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the settings of the trace, from TARN_TRACE and tarn_trace_start(), and what a thread needs
 * to write to it. */
#include "device/tracing.h"
#include "base/nvtx.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "base/utf8.h"
#include "base/variable.h"
#include "record/stack.h"

#include <stdlib.h>
#include <string.h>
#include <tarn/trace.h>

#define MOST_RECORDS ((size_t)1 << 28)
#define OWN_FRAMES 2 /* trace_event() and trace_stack_here() */

static mutex trace_settings_lock = MUTEX_INITIALIZER(LOCK_TRACE_SETTINGS);
static tarn_trace_options settings = {.size = sizeof settings}; /* trace_settings_lock */
static bool is_read; /* trace_settings_lock: TARN_TRACE was read */
static atomic_bool with_regions;
/* Of who turns the trace on or off, until all know. */
static mutex turning = MUTEX_INITIALIZER(LOCK_TURNING);
static void (*_Atomic turn)(void);

/* Records -------------------------------------------------------------------------------------- */

static struct trace_place stream_place(const struct stream *stream, unsigned incarnation,
                                       const uint64_t pool[2])
{
    return (struct trace_place){
        .pool = {pool[0], pool[1]},
        .native = (uint64_t)(uintptr_t)stream->native,
        .stream = (uint64_t)incarnation << 32 | stream->slot,
        .device = stream->device,
    };
}

uint32_t trace_place_of_stream(const struct stream *stream, unsigned incarnation,
                               const uint64_t pool[2])
{
    struct trace_place place = stream_place(stream, incarnation, pool);
    return trace_place(&place);
}

uint32_t trace_place_of_stream_keep(const struct stream *stream, unsigned incarnation, int device,
                                    const uint64_t pool[2])
{
    struct trace_place place = stream_place(stream, incarnation, pool);
    place.device = device;
    return trace_place_keep(&place);
}

uint32_t trace_place_of_device(int device, const uint64_t pool[2])
{
    struct trace_place place = {.pool = {pool[0], pool[1]}, .device = device};
    return trace_place(&place);
}

uint32_t trace_place_of_device_keep(int device, const uint64_t pool[2])
{
    struct trace_place place = {.pool = {pool[0], pool[1]}, .device = device};
    return trace_place_keep(&place);
}

uint32_t trace_text(const char *text)
{
    struct trace_text copy = {""};
    memcpy(copy.text, text, strnlen(text, sizeof copy.text - 1));
    return intern(&trace_texts, &copy);
}

/* Returns the calling thread's ring. If the wanted size has changed, the thread gets a new one.
 * NULL: it has none, and the host has no memory for one. */
static struct trace_ring *trace_ring_begin(struct thread *thread)
{
    if (thread->trace && trace_ring_fits(thread->trace))
        return thread->trace;
    struct trace_ring *before = thread->trace, *ring = trace_ring_take(before ? before->thread : 0);
    if (!ring)
        return before;
    trace_ring_leave(before); /* with its records */
    return thread->trace = ring;
}

/* Whether a stack belongs to a record of this kind. */
static bool wants_stack(enum trace_kind kind)
{
    int mode = atomic_load_explicit(&trace_stack_mode, memory_order_relaxed);
    if (mode == TRACE_STACKS_NONE)
        return false;
    return mode == TRACE_STACKS_ALL || kind == TRACE_alloc || kind == TRACE_oom ||
           (kind >= TRACE_segment_alloc && kind <= TRACE_segment_unmap);
}

void trace_event(enum trace_kind kind, uint32_t place, uint64_t address, uint64_t size,
                 uint16_t tag)
{
    struct error_before before;
    error_attempt_begin(&before);
    struct thread *thread = thread_self();
    struct trace_ring *ring = thread ? trace_ring_begin(thread) : NULL;
    error_attempt_end(&before, TARN_OK);
    if (!ring) {
        trace_lose();
        return;
    }
    uint32_t stack = wants_stack(kind) ? trace_stack_here(OWN_FRAMES) : 0;
    ticks_fence();
    trace_put(ring, kind, address, size, place, thread->region, stack, tag);
}

void trace_stream_event(enum trace_kind kind, const struct stream *stream, uint64_t address,
                        uint64_t size)
{
    static const uint64_t none[2];
    unsigned incarnation = atomic_load_explicit(&stream->incarnation, memory_order_relaxed);
    trace_event(kind, trace_place_of_stream(stream, incarnation, none), address, size, 0);
}

/* Settings ------------------------------------------------------------------------------------- */

void tracing_on_turn(void (*callback)(void))
{
    atomic_store(&turn, callback);
}

/* Fast paths look again: whether there is a trace, and at its rings. */
static void turned(void)
{
    process_changed();
    void (*callback)(void) = atomic_load(&turn);
    if (callback)
        callback();
    trace_is_whole();
}

static tarn_status apply_locked(const tarn_trace_options *options)
{
    if (options->stacks != TARN_TRACE_STACKS_NONE && !stack_can_be_walked())
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "call stacks need libunwind.so.8 here: this C library has no backtrace()");
    settings = *options;
    atomic_store(&with_regions, options->regions);
    trace_start(options->records ? options->records : TARN_TRACE_RECORDS,
                (enum trace_stack_mode)options->stacks);
    return TARN_OK;
}

static tarn_status bad_word(const char *text, size_t length)
{
    return failed(TARN_ERROR_CONFIGURATION,
                  "TARN_TRACE: %.*s is none of 0, off, 1, on, records=N, stacks=none, "
                  "stacks=alloc, stacks=all and regions",
                  (int)(length < 64 ? length : 64), text);
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

static tarn_status read_word(const char *text, size_t length, tarn_trace_options *options, bool *on)
{
    static const char *const stacks[] = {"stacks=none", "stacks=alloc", "stacks=all"};
    static const char records[] = "records=";
    *on = true;
    if (is_word(text, length, "0") || is_word(text, length, "off")) {
        *on = false;
        return TARN_OK;
    }
    if (is_word(text, length, "1") || is_word(text, length, "on"))
        return TARN_OK;
    if (is_word(text, length, "regions")) {
        options->regions = true;
        return TARN_OK;
    }
    for (int i = 0; i < 3; i++) {
        if (!is_word(text, length, stacks[i]))
            continue;
        options->stacks = (tarn_trace_stacks)i;
        return TARN_OK;
    }
    if (length <= sizeof records - 1 || memcmp(text, records, sizeof records - 1) != 0)
        return bad_word(text, length);
    char *end = NULL;
    const char *digits = text + sizeof records - 1;
    unsigned long long count = strtoull(digits, &end, 10);
    if (end != text + length || *digits < '0' || *digits > '9' || count == 0 ||
        count > MOST_RECORDS)
        return failed(TARN_ERROR_CONFIGURATION,
                      "TARN_TRACE: %.*s: records must be a number from 1 to %zu",
                      (int)(length < 64 ? length : 64), text, MOST_RECORDS);
    options->records = (size_t)count;
    return TARN_OK;
}

tarn_status tracing_words_parse(const char *text, tarn_trace_options *options, bool *on)
{
    tarn_status status = TARN_OK;
    *options = (tarn_trace_options){.size = sizeof *options};
    *on = false;
    for (const char *at = text; *at && !status;) {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ", \t");
        if (length)
            status = read_word(at, length, options, on);
        at += length;
    }
    return status;
}

static tarn_status read_environment_locked(void)
{
    const char *text = variable_get("TARN_TRACE");
    tarn_trace_options options;
    bool on = false;
    ticks_init();
    tarn_status status = tracing_words_parse(text ? text : "", &options, &on);
    if (!status && on) {
        status = apply_locked(&options);
        trace_is_whole(); /* there is no memory yet that could be had without a record */
    }
    is_read = status == TARN_OK;
    return status;
}

void tracing_prepare(void)
{
    const char *text = variable_get("TARN_TRACE");
    tarn_trace_options options;
    struct error_before before;
    bool on = false;
    error_attempt_begin(&before);
    if (text && tracing_words_parse(text, &options, &on) == TARN_OK && on &&
        options.stacks != TARN_TRACE_STACKS_NONE)
        trace_stacks_prepare();
    error_attempt_end(&before, TARN_OK);
}

tarn_status tracing_init(void)
{
    mutex_lock(&trace_settings_lock);
    tarn_status status = is_read ? TARN_OK : read_environment_locked();
    mutex_unlock(&trace_settings_lock);
    return status;
}

tarn_status tarn_trace_start(const tarn_trace_options *given)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    static const tarn_trace_options by_default = {.size = sizeof by_default};
    tarn_trace_options read, *options = &read;
    tarn_status status = device_layer_ready();
    if (!status)
        status =
            sized_read("tarn_trace_options", given ? given : &by_default, options, sizeof *options);
    if (status)
        return status;
    if (options->records > MOST_RECORDS || (unsigned)options->stacks > TARN_TRACE_STACKS_ALL)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "%zu records per thread are more than %zu, or the value of stacks is unknown",
                      options->records, MOST_RECORDS);
    if (options->stacks != TARN_TRACE_STACKS_NONE)
        trace_stacks_prepare();
    mutex_lock(&turning);
    mutex_lock(&trace_settings_lock);
    status = apply_locked(options);
    mutex_unlock(&trace_settings_lock);
    if (!status)
        turned();
    mutex_unlock(&turning);
    return status;
}

tarn_status tarn_trace_stop(void)
{
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    mutex_lock(&turning);
    trace_stop();
    turned();
    mutex_unlock(&turning);
    return TARN_OK;
}

tarn_status tarn_trace_clear(void)
{
    tarn_status status = process_check();
    if (!status)
        trace_clear();
    return status;
}

tarn_status tarn_trace_count_get(uint64_t *kept, uint64_t *lost)
{
    tarn_status status = process_check();
    if (status)
        return status;
    uint64_t counts[2];
    trace_count(&counts[0], &counts[1]);
    if (kept)
        *kept = counts[0];
    if (lost)
        *lost = counts[1];
    return TARN_OK;
}

/* Regions -------------------------------------------------------------------------------------- */

static void region_event(enum trace_kind kind, uint32_t region)
{
    if (trace_is_on() && atomic_load_explicit(&with_regions, memory_order_relaxed))
        trace_event(kind, 0, region, 0, 0);
}

tarn_status tarn_region_push(const char *name)
{
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    if (!name || !*name)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "a region's name is NULL or empty");
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    struct trace_region region = {.parent = thread->region};
    memcpy(region.name, name, utf8_beginning(name, sizeof region.name - 1));
    uint32_t number = thread->regions_unnamed ? 0 : intern(&trace_regions, &region);
    if (number)
        thread->region = number;
    else
        thread->regions_unnamed++; /* blocks allocated inside count for the region around it */
    region_event(TRACE_region_begin, number);
    nvtx_region_begin(region.name);
    return TARN_OK;
}

tarn_status tarn_region_pop(void)
{
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    struct thread *thread = thread_here;
    if (!thread || (!thread->regions_unnamed && !thread->region))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "this thread is in no region");
    region_event(TRACE_region_end, thread->regions_unnamed ? 0 : thread->region);
    nvtx_region_end();
    if (thread->regions_unnamed)
        thread->regions_unnamed--;
    else
        thread->region =
            ((const struct trace_region *)intern_value(&trace_regions, thread->region))->parent;
    return TARN_OK;
}
