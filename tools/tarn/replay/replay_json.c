/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The JSON of `tarn replay`. docs/replay.md documents the keys. Keys may be
 * added, and never change. If one value cannot be made, the whole array fails. */
#include "json_print.h"
#include "name.h"
#include "replay/replay_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *json_bytes(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *json_known(uint64_t bytes)
{
    return bytes == WORKLOAD_NOT_KNOWN ? json_null() : json_bytes(bytes);
}

/* Driver times; C only if there is a table C. */
static json_t *json_times(const struct replay_result *result, uint64_t a_ns, uint64_t b_ns,
                          uint64_t c_ns)
{
    if (!result->has_table_c)
        return json_pack("{s:f, s:f}", "A", (double)a_ns / 1000, "B", (double)b_ns / 1000);
    return json_pack("{s:f, s:f, s:f}", "A", (double)a_ns / 1000, "B", (double)b_ns / 1000, "C",
                     (double)c_ns / 1000);
}

static json_t *json_calls(const struct replay_result *result, const uint64_t *calls)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < REPLAY_MAX_CALLS; i++)
        if (calls[i] && json_object_set_new(object, result->call_names[i], json_bytes(calls[i]))) {
            json_decref(object);
            object = NULL;
        }
    return object;
}

static json_t *json_repetition(const struct replay_result *result,
                               const struct replay_repetition *repetition)
{
    return json_pack(
        "{s:f, s:f, s:o, s:o, s:o, s:o, s:f}", "seconds", repetition->seconds, "setup_seconds",
        repetition->setup_seconds, "peak_active", json_bytes(repetition->peak_active),
        "peak_reserved", json_bytes(repetition->peak_reserved), "driver_calls",
        json_calls(result, repetition->calls), "driver_time_us",
        json_times(result, repetition->time_a_ns, repetition->time_b_ns, repetition->time_c_ns),
        "waited_us", (double)repetition->waited_ns / 1000);
}

static json_t *json_repetitions(const struct replay_device *device)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < device->repetition_count; i++)
        if (json_array_append_new(array,
                                  json_repetition(&device->result, &device->repetitions[i]))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static json_t *json_divergences(const struct replay_result *result)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < result->divergences && i < REPLAY_KEPT_DIVERGENCES; i++)
        if (json_array_append_new(array, json_string(result->divergence[i]))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static json_t *json_text(const char *text)
{
    return json_string(name_valid(text).text);
}

/* The calls of a model, by kind. Calls for segments and events are always listed, others only if
 * they were made. */
static json_t *json_model_calls(const struct c10_result *run)
{
    json_t *object = json_object();
    for (int i = 0; object && i < C10_CALLS; i++) {
        bool always = i == C10_CALL_alloc || i == C10_CALL_free || i == C10_CALL_event_record ||
                      i == C10_CALL_event_query;
        if ((always || run->cost[i].calls) &&
            json_object_set_new(object, c10_call_name((enum c10_call)i),
                                json_bytes(run->cost[i].calls))) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static json_t *json_model_times(const struct replay_result *result,
                                const struct replay_model *model)
{
    return json_times(result, model->time_a_ns, model->time_b_ns, model->time_c_ns);
}

/* The size of a smallest device; null if none was found. */
static json_t *json_least(uint64_t bytes)
{
    return bytes ? json_bytes(bytes) : json_null();
}

/* Adds the keys of `end` to `object`, and consumes both. NULL: one of them is NULL, or there is no
 * memory. */
static json_t *json_joined(json_t *object, json_t *end)
{
    bool done = object && end && json_object_update(object, end) == 0;
    json_decref(end);
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

/* A device whose replay stopped: `object`, which describes the trace, gets the error and nothing
 * that was measured. */
static json_t *json_stopped(json_t *object, const struct replay_result *result)
{
    json_t *end = json_pack("{s:o, s:o, s:o, s:o, s:n, s:n}", "error", json_text(result->error),
                            "divergences", json_bytes(result->divergences), "divergence_texts",
                            json_divergences(result), "peak_requested",
                            json_bytes(result->peak_requested), "peak_active", "peak_reserved");
    return json_joined(object, end);
}

/* Adds what blocks were distributed over. Nonzero if that fails. */
static int json_options(json_t *object, const struct replay_options *options)
{
    int failed = object ? 0 : -1;
    if (!failed && options->deal_streams)
        failed = json_object_set_new(object, "deal_streams", json_integer(options->deal_streams));
    if (!failed && options->deal_threads)
        failed = json_object_set_new(object, "deal_threads", json_integer(options->deal_threads));
    return failed;
}

/* Adds what only recordings by tarn have. Nonzero if that fails. */
static int json_order(json_t *object, const struct replay_result *result)
{
    if (!object || !result->has_order)
        return object ? 0 : -1;
    json_t *more = json_pack("{s:o, s:o, s:o}", "waits", json_bytes(result->waits), "captures",
                             json_bytes(result->captures), "refused", json_bytes(result->refused));
    int failed = more ? json_object_update(object, more) : -1;
    json_decref(more);
    return failed;
}

static const char *const policy_names[] = {
    [REPLAY_TARN] = "tarn", [REPLAY_NATIVE] = "pytorch", [REPLAY_EXPANDABLE] = "expandable"};

/* Adds what only compared runs have: the SPEC, whether the run fits, and the waste. Nonzero if that
 * fails. */
static int json_compared(json_t *object, const struct replay_result *result,
                         const struct replay_options *options)
{
    const struct replay_shortage *lack = replay_lack(result);
    json_t *where = !lack ? json_null()
                          : json_pack("{s:o, s:o}", "event",
                                      lack->before ? json_null() : json_bytes(lack->event), "size",
                                      json_bytes(lack->size));
    json_t *more = json_pack("{s:o, s:s, s:b, s:o, s:o}", "what_if",
                             options->what_if ? json_text(options->what_if) : json_null(), "policy",
                             policy_names[options->policy], "fits", (int)!lack, "out_of_memory",
                             where, "wasted", lack ? json_null() : json_bytes(result->wasted));
    int failed = object && more ? json_object_update(object, more) : -1;
    json_decref(more);
    return failed;
}

/* Adds the smallest devices that were searched. Nonzero if that fails. */
static int json_leasts(json_t *object, const struct replay_result *result,
                       const struct replay_options *options)
{
    if (!options->least)
        return 0;
    json_t *more =
        options->policy != REPLAY_TARN
            ? json_pack("{s:o}", "least", json_least(result->least[options->policy]))
            : json_pack("{s:o, s:o, s:o}", "least", json_least(result->least[REPLAY_TARN]),
                        "pytorch_least", json_least(result->least[REPLAY_NATIVE]),
                        "expandable_least", json_least(result->least[REPLAY_EXPANDABLE]));
    int failed = more ? json_object_update(object, more) : -1;
    json_decref(more);
    return failed;
}

/* One of PyTorch's policies alone, with the keys of a replay. */
static json_t *json_policy(json_t *object, const struct replay_result *result,
                           const struct replay_model *model)
{
    const struct c10_result *run = &model->run;
    json_t *end = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "peak_requested",
                            json_bytes(result->peak_requested), "peak_reserved",
                            json_bytes(run->peak_reserved), "driver_calls", json_model_calls(run),
                            "driver_time_us", json_model_times(result, model), "pytorch_ooms",
                            json_bytes(run->ooms), "divergences", json_bytes(0));
    return json_joined(object, end);
}

static json_t *json_device(const struct replay_file *file, const struct replay_device *device)
{
    const struct replay_result *result = &device->result;
    const struct replay_options *options = file->options;
    json_t *object = json_pack(
        "{s:o, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:f}",
        "file", json_text(file->path), "device", result->device, "driver", options->driver,
        "device_memory", json_bytes(result->device_memory), "events", json_bytes(result->events),
        "streams", json_bytes(result->streams), "pools", json_bytes(result->pools), "allocations",
        json_bytes(result->allocations), "initial_blocks", json_bytes(result->initial_blocks),
        "late_frees", json_bytes(result->late_frees), "moved_frees",
        json_bytes(result->moved_frees), "threads", json_bytes(result->threads), "recorded_ooms",
        json_bytes(result->recorded_ooms), "ooms_tried", json_bytes(result->ooms_tried),
        "ooms_here", json_bytes(result->ooms_here), "trims", json_bytes(result->trims),
        "lost_events", json_bytes(result->lost_events), "lag_ms", (double)result->lag / 1e6);
    if (json_order(object, result) || json_options(object, options) ||
        (options->compare && json_compared(object, result, options))) {
        json_decref(object);
        return NULL;
    }
    if (json_leasts(object, result, options)) {
        json_decref(object);
        return NULL;
    }
    if (result->error[0])
        return json_stopped(object, result);
    if (options->policy != REPLAY_TARN)
        return json_policy(object, result, &result->models[options->policy]);
    json_t *measured = json_pack(
        "{s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:f, s:f, s:f, s:o, s:o}", "peak_requested",
        json_bytes(result->peak_requested), "peak_active", json_bytes(result->peak_active),
        "peak_reserved", json_bytes(result->peak_reserved), "recorded_peak_reserved",
        json_known(result->recorded_peak_reserved), "recorded_modelled", (int)result->modelled,
        "driver_calls", json_calls(result, result->first.calls), "driver_time_us",
        json_times(result, result->first.time_a_ns, result->first.time_b_ns,
                   result->first.time_c_ns),
        "waited_us", (double)result->first.waited_ns / 1000, "seconds", result->first.seconds,
        "setup_seconds", result->first.setup_seconds, "divergences",
        json_bytes(result->divergences), "divergence_texts", json_divergences(result));
    const struct replay_model *native = &result->models[REPLAY_NATIVE],
                              *expandable = &result->models[REPLAY_EXPANDABLE];
    json_t *pytorch = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pytorch_peak_reserved",
        json_bytes(native->run.peak_reserved), "pytorch_driver_calls",
        json_model_calls(&native->run), "pytorch_driver_time_us", json_model_times(result, native),
        "pytorch_ooms", json_bytes(native->run.ooms), "expandable_peak_reserved",
        json_bytes(expandable->run.peak_reserved), "expandable_driver_calls",
        json_model_calls(&expandable->run), "expandable_driver_time_us",
        json_model_times(result, expandable), "expandable_ooms", json_bytes(expandable->run.ooms),
        "pytorch_ooms_here", json_bytes(native->run.denied), "expandable_ooms_here",
        json_bytes(expandable->run.denied), "repeat", json_repetitions(device));
    bool done = object && measured && pytorch && json_object_update(object, measured) == 0 &&
                json_object_update(object, pytorch) == 0;
    json_decref(measured);
    json_decref(pytorch);
    if (!done) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *json_state(const struct replay_state *state)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "segments",
                     json_bytes(state->segments), "expandable_segments",
                     json_bytes(state->expandable_segments), "blocks", json_bytes(state->blocks),
                     "free_blocks", json_bytes(state->free_blocks), "requested",
                     json_bytes(state->requested), "allocated", json_bytes(state->allocated),
                     "active", json_bytes(state->active), "reserved", json_bytes(state->reserved),
                     "largest_free", json_bytes(state->largest_free));
}

/* The state of the device at `*at`. Moves `*at` past the device's parts. */
static json_t *json_device_state(const struct replay_file *file, size_t *at)
{
    const struct replay_state *whole = &file->states[*at];
    json_t *state = json_state(whole), *parts = json_array();
    bool done = state && parts;
    for (++*at; *at < file->state_count && !file->states[*at].whole; ++*at) {
        const struct replay_state *part = &file->states[*at];
        json_t *object = json_state(part);
        done = done && object &&
               json_object_set_new(object, "stream", json_bytes(part->stream)) == 0 &&
               json_object_set_new(object, "pool",
                                   json_pack("[o, o]", json_bytes(part->pool[0]),
                                             json_bytes(part->pool[1]))) == 0 &&
               json_array_append(parts, object) == 0;
        json_decref(object);
    }
    done = done && json_object_set(state, "by_stream_and_pool", parts) == 0;
    json_t *object = NULL;
    if (done)
        object = json_pack("{s:o, s:i, s:o, s:O}", "file", json_text(file->path), "device",
                           whole->device, "events", json_bytes(file->state_events), "state", state);
    json_decref(state);
    json_decref(parts);
    return object;
}

/* A file that failed as a whole. */
static json_t *json_failed(const struct replay_file *file)
{
    json_t *object =
        json_pack("{s:o, s:o}", "file", json_text(file->path), "error", json_text(file->error));
    const char *what_if = file->options->what_if;
    if (object && what_if && json_object_set_new(object, "what_if", json_text(what_if))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static bool json_file(json_t *array, const struct replay_file *file)
{
    bool done = true;
    for (size_t i = 0; done && i < file->device_count; i++)
        done = json_array_append_new(array, json_device(file, &file->devices[i])) == 0;
    for (size_t i = 0; done && i < file->state_count;)
        done = json_array_append_new(array, json_device_state(file, &i)) == 0;
    if (done && file->error[0])
        done = json_array_append_new(array, json_failed(file)) == 0;
    /* A snapshot without devices */
    if (done && !file->error[0] && !file->device_count && !file->state_count)
        done = json_array_append_new(
                   array, json_pack("{s:o, s:o, s:{}}", "file", json_text(file->path), "events",
                                    json_bytes(file->state_events), "state")) == 0;
    return done;
}

bool replay_json_write(FILE *out, const struct replay_file *files, size_t count)
{
    json_t *array = json_array();
    bool done = array != NULL;
    for (size_t i = 0; done && i < count; i++)
        done = json_file(array, &files[i]);
    done = done && json_print(array, out) && fflush(out) == 0;
    json_decref(array);
    return done;
}
