/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Order between streams, and streams that come and go: leased, adopted and found ones, the vendor's
 * special values, and each thread's own. */
#include "mixed/model/mixed.h"

static struct flow *flow_begin(enum flow_kind kind, int device)
{
    for (int i = 0; i < FLOWS; i++) {
        struct flow *flow = &m.flows[i];
        if (flow->live)
            continue;
        *flow = (struct flow){.kind = kind, .device = device, .actor = -1, .capture = -1};
        lane_begin(flow);
        flow->live = true;
        return flow;
    }
    fault("the test's own limit", "too many flows");
}

/* The vendor's pointer may be the same as an earlier stream's. */
static void native_begin(struct flow *flow)
{
    flow->blocking = CHANCE(3);
    MINE(driver->stream_create(flow->device, 0, flow->blocking, &flow->native));
    memset(flow->after, 0, sizeof flow->after);
    lane_begin(flow);
    if (flow->kind == ADOPTED)
        SURE(tarn_stream_adopt, flow->device, flow->native, &flow->value);
    else
        SURE(tarn_stream_find, flow->device, flow->native, &flow->value);
}

/* What returned streams were ordered after: the next lease finds that work still queued. */
static struct {
    void *native;
    uint32_t after[LANES];
} returned[40];

static void leased_end(const struct flow *flow)
{
    int at = 0;
    while (returned[at].native && returned[at].native != flow->native)
        at++;
    SO(at < 39, "the test's own limit", "too many leased streams");
    returned[at].native = flow->native;
    memcpy(returned[at].after, flow->after, sizeof flow->after);
}

/* The stream was destroyed, and another one may get its pointer. */
static void leased_gone(const struct flow *flow)
{
    static const char nobody;
    for (int i = 0; i < 40; i++)
        if (returned[i].native == flow->native)
            returned[i].native = (void *)(uintptr_t)&nobody;
}

static void leased_begin(struct flow *flow)
{
    SURE(tarn_stream_lease, flow->device, -(int)below(2), &flow->value);
    MINE(tarn_stream_native_get(flow->value, &flow->native));
    memset(flow->after, 0, sizeof flow->after);
    for (int i = 0; i < 40; i++)
        if (returned[i].native == flow->native)
            memcpy(flow->after, returned[i].after, sizeof flow->after);
    lane_begin(flow);
}

void per_thread_begin(int actor)
{
    struct flow *flow = flow_begin(PER_THREAD, 0);
    flow->actor = actor;
    flow->blocking = m.vendor;
    if (m.vendor) {
        flow->native = (void *)2;
        SURE(tarn_stream_adopt, 0, flow->native, &flow->value);
        return;
    }
    MINE(tarn_stream_set(TARN_STREAM_PER_THREAD));
    MINE(tarn_stream_get(0, &flow->value));
    MINE(tarn_stream_set(TARN_STREAM_LEGACY));
    MINE(tarn_stream_native_get(flow->value, &flow->native));
}

void per_thread_end(int actor)
{
    for (int i = 0; i < FLOWS; i++)
        if (m.flows[i].live && m.flows[i].kind == PER_THREAD && m.flows[i].actor == actor) {
            uses_of_flow(i);
            m.flows[i].live = false;
            m.flows[i].lane = -1;
        }
}

void streams_begin(void)
{
    for (int device = 0; device < m.devices; device++) {
        struct flow *legacy = flow_begin(LEGACY, device);
        legacy->blocking = true;
        SURE(tarn_stream_adopt, device, m.vendor && device == 0 ? (void *)1 : NULL, &legacy->value);
        for (int i = 0; i < (device ? 2 : 4); i++)
            leased_begin(flow_begin(LEASED, device));
        for (int i = 0; i < (device ? 1 : 3); i++)
            native_begin(flow_begin(ADOPTED, device));
    }
    for (int i = 0; i < 3; i++)
        native_begin(flow_begin(FOUND, i / 2));
    for (int i = 0; i < EVENTS; i++) {
        m.events[i].device = i % m.devices;
        SURE(tarn_event_create, m.events[i].device, &m.events[i].event);
        m.events[i].live = true;
    }
}

void streams_end(void)
{
    for (int i = 0; i < EVENTS; i++)
        SURE(tarn_event_destroy, m.events[i].event);
    for (int i = 0; i < FLOWS; i++) {
        struct flow *flow = &m.flows[i];
        if (!flow->live)
            continue;
        if (flow->kind == LEASED)
            SURE(tarn_stream_return, flow->value);
        if (flow->kind == ADOPTED)
            SURE(tarn_stream_retire, flow->value);
        if (flow->kind == ADOPTED || flow->kind == FOUND)
            MINE(driver->stream_destroy(flow->device, flow->native));
        flow->live = false;
    }
}

/* ---- Operations ---- */

static void op_event_record(void)
{
    struct event *event = &m.events[below(EVENTS)];
    struct flow *flow = some_flow(event->device);
    if (!flow || captures_now(flow) || !takes_work(flow) || !flow_value(flow))
        return;
    queue_begin(flow);
    if (!WELL(0, tarn_event_record, event->event, flow->value)) {
        event->recorded = false; /* either recording may count */
        return;
    }
    event->recorded = true;
    memcpy(event->after, flow->after, sizeof event->after);
}

static void op_event_wait(void)
{
    const struct event *event = &m.events[below(EVENTS)];
    struct flow *flow = some_flow(-1);
    if (!flow || !takes_work(flow) || !flow_value(flow))
        return;
    bool barred = captures_now(flow);
    if (barred && !event->recorded)
        return;
    if (!WELL(barred ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_stream_wait, flow->value, event->event))
        return;
    SO(!barred, "a stream that captures waits for work outside", "it was not refused");
    for (int i = 0; event->recorded && i < LANES; i++)
        if (event->after[i] > flow->after[i])
            flow->after[i] = event->after[i];
}

static void op_advance(void)
{
    uint64_t now = 0;
    MINE(machine->time(&now));
    MINE(machine->advance(now + below(CHANCE(8) ? 2000000 : 40000)));
}

static void op_synchronize(void)
{
    struct flow *flow = some_flow(-1);
    if (!flow || any_open(flow->device) || !flow_value(flow))
        return;
    if (!WELL(0, tarn_stream_synchronize, flow->value))
        return;
    SO(is_done((struct stamp){flow->lane, m.queued[flow->lane]}), "a wait ended too early",
       "flow %d", (int)(flow - m.flows));
}

static void op_query(void)
{
    struct flow *flow = some_flow(-1);
    if (!flow || any_open(flow->device) || !flow_value(flow))
        return;
    if (WELL(BIT(TARN_ERROR_NOT_READY), tarn_stream_query, flow->value))
        SO(is_done((struct stamp){flow->lane, m.queued[flow->lane]}),
           "a query says that work has ended", "flow %d", (int)(flow - m.flows));
}

static struct flow *some_flow_of(enum flow_kind kind)
{
    int first = (int)below(FLOWS);
    for (int i = 0; i < FLOWS; i++) {
        struct flow *flow = &m.flows[(first + i) % FLOWS];
        if (flow->live && flow->kind == kind)
            return flow;
    }
    return NULL;
}

/* The program destroys its stream, with or without telling tarn, and creates another, which may get
 * the same pointer. */
void stream_renew(struct flow *flow)
{
    if (flow->capture >= 0)
        return;
    if (flow->kind == FOUND && known_open(-1))
        return; /* the old stream would be gone in a capture, which must be aborted first */
    if (flow->kind == ADOPTED && !WELL(0, tarn_stream_retire, flow->value))
        return;
    uses_of_flow((int)(flow - m.flows));
    show("flow %d (lane %d) is renewed", (int)(flow - m.flows), flow->lane);
    tarn_stream old = flow->value;
    bool destroyed = flow->kind == FOUND || below(3);
    call_quiet();
    if (destroyed) {
        MINE(driver->stream_destroy(flow->device, flow->native));
        native_begin(flow);
    } else { /* tarn returns another value for the same stream */
        SURE(tarn_stream_adopt, flow->device, flow->native, &flow->value);
        lane_begin(flow);
    }
    if (flow->kind == ADOPTED) {
        void *got = NULL;
        tarn_status status = CALL(tarn_alloc_on, old, 512, &got);
        SO(status == TARN_ERROR_INVALID_STREAM || was_injected(), "a retired stream allocates",
           "%s", tarn_status_name(status));
        if (got)
            (void)tarn_free(got);
    }
}

static void op_renew(void)
{
    struct flow *flow = some_flow_of(CHANCE(2) ? ADOPTED : FOUND);
    if (flow)
        stream_renew(flow);
}

static void op_lease(void)
{
    struct flow *flow = some_flow_of(LEASED);
    if (!flow || flow->capture >= 0)
        return;
    int pool = CHANCE(2) ? pool_any(flow->device, true) : -1;
    if (pool >= 0) /* the next lease has none of it */
        scope_begin_on(pool, flow);
    if (!WELL(0, tarn_stream_return, flow->value))
        return;
    uses_of_flow((int)(flow - m.flows));
    leased_end(flow);
    flow->live = false; /* its lane becomes free */
    leased_begin(flow);
    flow->live = true;
    if (pool >= 0)
        block_want(flow, 1 + below(40000));
}

/* ---- A lease that ends in a capture ---- */

static struct {
    struct flow *flow;
    bool begun;
} abandoned;

static void begin_and_leave(void)
{
    tarn_capture_mode mode = CHANCE(2) ? TARN_CAPTURE_GLOBAL : TARN_CAPTURE_THREAD_LOCAL;
    abandoned.begun = WELL(BIT(TARN_ERROR_BUSY), tarn_capture_begin, abandoned.flow->value, mode);
}

/* A lease ends in a capture that nobody else can end. The return destroys the stream, while work
 * from before the capture is still queued. */
static void op_abandon(void)
{
    int actor = (int)below(ACTORS);
    struct flow *flow = some_flow_of(LEASED);
    if (!flow || flow->capture >= 0 || m.waits_for_all)
        return;
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[i].state == OPEN && m.captures[i].actor == actor &&
            m.captures[i].mode != TARN_CAPTURE_RELAXED)
            return;
    abandoned.flow = flow;
    actor_run(actor, begin_and_leave);
    m.actor = -1;
    if (!abandoned.begun)
        return;
    m.inject = 0;
    actor_renew(actor);
    SURE(tarn_capture_abort, flow->value);
    SURE(tarn_stream_return, flow->value);
    uses_of_flow((int)(flow - m.flows));
    leased_gone(flow);
    flow->live = false;
    leased_begin(flow);
    flow->live = true;
}

/* Retires streams of two devices, each with a block, and adopts them in the other order: each may
 * get the slot of the other. */
static void op_swap(void)
{
    struct flow *pair[DEVICES] = {NULL};
    bool gone[DEVICES];
    unsigned first = below(FLOWS);
    for (unsigned i = 0; i < FLOWS; i++) {
        struct flow *flow = &m.flows[(first + i) % FLOWS];
        if (flow->live && flow->kind == ADOPTED && flow->capture < 0 && is_usable_by(flow, m.actor))
            pair[flow->device] = flow;
    }
    if (!pair[0] || !pair[1])
        return;
    for (int i = 0; i < DEVICES; i++)
        block_want(pair[i], 1 + below(40000));
    for (int i = 0; i < DEVICES; i++)
        gone[i] = WELL(0, tarn_stream_retire, pair[i]->value);
    for (int i = DEVICES; i-- > 0;)
        if (gone[i]) {
            uses_of_flow((int)(pair[i] - m.flows));
            call_quiet();
            MINE(driver->stream_destroy(pair[i]->device, pair[i]->native));
            native_begin(pair[i]);
        }
    memory_look();
}

/* A thread ends. A capture that nobody else may end goes on. */
static void op_thread_ends(void)
{
    int actor = (int)below(ACTORS);
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[i].state == OPEN && m.captures[i].actor == actor &&
            m.captures[i].mode != TARN_CAPTURE_RELAXED)
            return;
    actor_renew(actor);
}

const struct operation stream_operations[] = {{"swap", 1, NULL, op_swap, false},
                                              {"event record", 6, NULL, op_event_record, false},
                                              {"event wait", 6, NULL, op_event_wait, false},
                                              {"advance", 30, NULL, op_advance, false},
                                              {"synchronize", 2, NULL, op_synchronize, false},
                                              {"query", 2, NULL, op_query, false},
                                              {"renew a stream", 4, NULL, op_renew, false},
                                              {"lease anew", 2, NULL, op_lease, false},
                                              {"a thread ends", 3, NULL, op_thread_ends, true},
                                              {"abandon", 2, NULL, op_abandon, true},
                                              {NULL, 0, NULL, NULL, false}};
