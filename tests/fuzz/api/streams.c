/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* status.h, device.h and stream.h, and what tarn.h has beside these. */
#include "api/api.h"

#include <string.h>

/* ---- Statuses ---- */

static void fuzz_tarn_status_name(void)
{
    DEMAND(strlen(tarn_status_name((tarn_status)take_number())) > 0);
}

static void fuzz_tarn_status_text(void)
{
    DEMAND(strlen(tarn_status_text((tarn_status)take_number())) > 0);
}

static void fuzz_tarn_last_error(void)
{
    DEMAND(strlen(tarn_last_error()) < 2048);
}

static void fuzz_tarn_last_status(void)
{
    DEMAND(strcmp(tarn_status_name(tarn_last_status()), "TARN_UNKNOWN") != 0);
}

static void fuzz_tarn_version(void)
{
    DEMAND(tarn_version()[0] == '0');
}

/* ---- Devices ---- */

static void fuzz_tarn_device_count_get(void)
{
    int count = 0;
    DEMAND(tarn_device_count_get(or_null(&count)) || count == DEVICES);
}

static void fuzz_tarn_device_properties_get(void)
{
    tarn_device_properties properties = {.size = struct_size(sizeof properties)};
    (void)tarn_device_properties_get(any_device(), or_null(&properties));
}

static void fuzz_tarn_device_get(void)
{
    int device = -1;
    DEMAND(tarn_device_get(or_null(&device)) || (device >= 0 && device < DEVICES));
}

static void fuzz_tarn_device_set(void)
{
    (void)tarn_device_set(any_device());
}

static void fuzz_tarn_device_adopt(void)
{
    int device;
    (void)tarn_device_adopt(or_null(&device));
}

static void fuzz_tarn_device_memory_get(void)
{
    size_t free_bytes = 0, total = 0;
    DEMAND(tarn_device_memory_get(any_device(), or_null(&free_bytes), or_null(&total)) ||
           free_bytes <= total || !total);
}

static void fuzz_tarn_device_synchronize(void)
{
    (void)tarn_device_synchronize(any_device());
}

static void fuzz_tarn_device_peer_enable(void)
{
    (void)tarn_device_peer_enable(any_device(), any_device());
}

/* A guard that was set before, was not, or was restored. */
static tarn_guard *any_guard(void)
{
    static tarn_guard guards[4];
    return or_null(&guards[take() % 4]);
}

static void fuzz_tarn_device_guard_set(void)
{
    (void)tarn_device_guard_set(any_guard(), any_device());
}

static void fuzz_tarn_stream_get(void)
{
    tarn_stream stream;
    (void)tarn_stream_get(any_device(), or_null(&stream));
}

static void fuzz_tarn_stream_set(void)
{
    (void)tarn_stream_set(any_stream());
}

static void fuzz_tarn_stream_adopt(void)
{
    tarn_stream stream = 0;
    uint8_t choice = take();
    int device = any_device();
    void *native = choice < 192 ? world.natives[choice % DEVICES] : any_object(world.graphs);
    if (!has_room(world.streams) || tarn_stream_adopt(device, native, or_null(&stream)))
        return;
    /* Another device's stream is refused, unless the question to the driver was made to fail. Then
     * the driver knows nothing of the stream when it is retired. */
    if (choice < 192 && device == choice % DEVICES)
        slot_add(world.streams, NULL, stream);
    else
        (void)tarn_stream_retire(stream);
}

static void fuzz_tarn_stream_find(void)
{
    tarn_stream stream = 0;
    uint8_t choice = take();
    int device = any_device();
    void *native = choice < 192 ? world.natives[choice % DEVICES] : any_object(world.graphs);
    void *block = NULL;
    if (!tarn_stream_find(device, native, or_null(&stream)) &&
        !tarn_alloc_on(stream, take_number() % 65536, &block))
        (void)tarn_free(block); /* the value counts nothing, and is not kept */
}

static void fuzz_tarn_stream_retire(void)
{
    tarn_stream stream = any_stream();
    if (!tarn_stream_retire(stream))
        slot_ended(world.streams, NULL, stream);
}

static void fuzz_tarn_stream_shared_get(void)
{
    tarn_stream stream = 0;
    struct slot *slot = &world.leased_streams[take() % SLOTS];
    if (!tarn_stream_shared_get(any_device(), 1 - (int)take_number() % 8, or_null(&stream)) &&
        !slot->live)
        slot->value = stream; /* not leased: nothing is to be given back */
}

static void fuzz_tarn_stream_lease(void)
{
    tarn_stream stream = 0;
    if (has_room(world.leased_streams) &&
        !tarn_stream_lease(any_device(), -(int)(take() % 4), or_null(&stream)))
        slot_add(world.leased_streams, NULL, stream);
}

static void fuzz_tarn_stream_return(void)
{
    tarn_stream stream = any_stream();
    if (!tarn_stream_return(stream))
        slot_ended(world.leased_streams, NULL, stream);
}

static void fuzz_tarn_stream_native_get(void)
{
    void *native;
    (void)tarn_stream_native_get(any_stream(), or_null(&native));
}

static void fuzz_tarn_stream_info_get(void)
{
    tarn_stream_info info = {.size = struct_size(sizeof info)};
    (void)tarn_stream_info_get(any_stream(), or_null(&info));
}

static void fuzz_tarn_stream_query(void)
{
    (void)tarn_stream_query(any_stream());
}

static void fuzz_tarn_stream_synchronize(void)
{
    (void)tarn_stream_synchronize(any_stream());
}

static void fuzz_tarn_stream_guard_set(void)
{
    (void)tarn_stream_guard_set(any_guard(), any_stream());
}

static void fuzz_tarn_guard_restore(void)
{
    (void)tarn_guard_restore(any_guard());
}

/* ---- Events ---- */

static void fuzz_tarn_event_create(void)
{
    tarn_event *event = NULL;
    if (has_room(world.events) && !tarn_event_create(any_device(), or_null(&event)))
        slot_add(world.events, event, 0);
}

static void fuzz_tarn_event_destroy(void)
{
    tarn_event *event = any_object(world.events);
    if (!tarn_event_destroy(event))
        slot_ended(world.events, event, 0);
}

static void fuzz_tarn_event_record(void)
{
    (void)tarn_event_record(any_object(world.events), any_stream());
}

static void fuzz_tarn_event_query(void)
{
    (void)tarn_event_query(any_object(world.events));
}

static void fuzz_tarn_event_synchronize(void)
{
    (void)tarn_event_synchronize(any_object(world.events));
}

static void fuzz_tarn_stream_wait(void)
{
    (void)tarn_stream_wait(any_stream(), any_object(world.events));
}

/* ---- Captures ---- */

static void fuzz_tarn_capture_begin(void)
{
    tarn_stream stream = any_stream();
    tarn_capture_state state;
    uint64_t id = 0;
    if (!tarn_capture_begin(stream, (tarn_capture_mode)(take() % 4)) &&
        !tarn_capture_state_get(stream, &state, &id, NULL))
        slot_add(world.captures, NULL, id);
}

static void fuzz_tarn_capture_announce(void)
{
    (void)tarn_capture_announce(any_stream());
}

static void fuzz_tarn_capture_end(void)
{
    void *graph = NULL;
    tarn_stream stream = any_stream();
    if (has_room(world.graphs) && !tarn_capture_end(stream, or_null(&graph)) && graph)
        slot_add(world.graphs, graph, 0);
}

static void on_reference(const tarn_graph_reference *reference, void *user)
{
    DEMAND(user == &world && reference->size == sizeof *reference && reference->kernel);
}

static uint64_t number_remembered;

static void fuzz_tarn_graph_check(void)
{
    bool by_number = take() < 64;
    const tarn_graph_options options = {.size = sizeof options,
                                        .all = take() < 128,
                                        .remembered = by_number ? number_remembered : 0};
    tarn_graph_summary summary = {.size = take() < 248 ? sizeof summary : take()};
    if (!tarn_graph_check(by_number ? NULL : any_object(world.graphs),
                          or_null((void *)(uintptr_t)&options), take() < 248 ? on_reference : NULL,
                          &world, &summary))
        DEMAND(summary.verdict != TARN_GRAPH_CLEAN || !(summary.unseen + summary.unproven));
}

static void fuzz_tarn_graph_remember(void)
{
    (void)tarn_graph_remember(any_object(world.graphs), or_null(&number_remembered));
}

static void fuzz_tarn_graph_launch(void)
{
    bool hears = take() < 128;
    (void)tarn_graph_launch(any_object(world.graphs), take() < 200 ? number_remembered : take(),
                            any_stream(), hears ? on_reference : NULL, &world);
}

static void fuzz_capture_graph(void)
{
    tarn_capture_state state;
    void *graph = NULL;
    if (!tarn_capture_state_get(any_stream(), &state, NULL, or_null((void *)&graph)) && graph &&
        take() < 128)
        (void)tarn_graph_remember(graph, &number_remembered);
}

static void fuzz_tarn_capture_end_announced(void)
{
    (void)tarn_capture_end_announced(any_stream(), any_object(world.graphs));
}

static void fuzz_tarn_capture_abort(void)
{
    (void)tarn_capture_abort(any_stream());
}

static void fuzz_tarn_capture_state_get(void)
{
    tarn_capture_state state;
    uint64_t id;
    (void)tarn_capture_state_get(any_stream(), or_null(&state), or_null(&id), NULL);
}

const struct api_call api_streams[] = {
    CALL(tarn_status_name),
    CALL(tarn_status_text),
    CALL(tarn_last_error),
    CALL(tarn_last_status),
    CALL(tarn_version),
    CALL(tarn_device_count_get),
    CALL(tarn_device_properties_get),
    CALL(tarn_device_get),
    CALL(tarn_device_set),
    CALL(tarn_capture_end_announced),
    CALL(tarn_device_adopt),
    CALL(tarn_device_memory_get),
    CALL(tarn_device_synchronize),
    CALL(tarn_device_peer_enable),
    CALL(tarn_device_guard_set),
    CALL(tarn_stream_get),
    CALL(tarn_stream_set),
    CALL(tarn_stream_adopt),
    CALL(tarn_stream_retire),
    CALL(tarn_stream_shared_get),
    CALL(tarn_stream_lease),
    CALL(tarn_stream_return),
    CALL(tarn_stream_native_get),
    CALL(tarn_stream_info_get),
    CALL(tarn_stream_query),
    CALL(tarn_stream_synchronize),
    CALL(tarn_stream_guard_set),
    CALL(tarn_guard_restore),
    CALL(tarn_event_create),
    CALL(tarn_event_destroy),
    CALL(tarn_event_record),
    CALL(tarn_event_query),
    CALL(tarn_event_synchronize),
    CALL(tarn_stream_wait),
    CALL(tarn_capture_begin),
    CALL(tarn_capture_announce),
    CALL(tarn_capture_end),
    CALL(tarn_graph_check),
    CALL(tarn_graph_remember),
    CALL(tarn_graph_launch),
    CALL(tarn_capture_abort),
    CALL(tarn_capture_state_get),
    ALSO(tarn_capture_state_get, capture_graph),
    CALL(tarn_stream_find),
    {0},
};
