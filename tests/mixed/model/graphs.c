/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures of each kind, streams that join them, and their graphs, which are launched at any later
 * time and destroyed while they run. */
#include "mixed/model/mixed.h"

void held_by(struct capture *capture, struct block *block)
{
    int index = (int)(block - m.blocks);
    for (int i = 0; i < capture->held_count; i++)
        if (capture->held[i] == index)
            return;
    SO(capture->held_count < HELD, "the test's own limit", "too many blocks in a capture");
    capture->held[capture->held_count++] = index;
    block->held++;
}

static void let_go(struct capture *capture)
{
    for (int i = 0; i < capture->held_count; i++)
        m.blocks[capture->held[i]].held--;
    capture->held_count = 0;
}

static void joined(struct capture *capture, struct flow *flow)
{
    capture->joined |= 1u << (flow - m.flows);
    capture->ever |= capture->joined;
    flow->capture = (int)(capture - m.captures);
    uses_changed(1u << (flow - m.flows));
}

static void left(struct capture *capture)
{
    for (int i = 0; i < FLOWS; i++)
        if (capture->joined >> i & 1)
            m.flows[i].capture = -1;
    uses_changed(capture->joined);
    capture->joined = 0;
}

/* ---- The beginning ---- */

static int own_pool(int device)
{
    for (int i = 0; i < POOLS; i++)
        if (!m.pools[i].live) {
            m.pools[i] = (struct pool){
                .live = true, .device = device, .limit = TARN_NO_LIMIT, .turn = ++m.pool_turns};
            return i;
        }
    return -1;
}

static void is_open(struct capture *capture)
{
    struct flow *flow = &m.flows[capture->flow];
    tarn_capture_state state;
    capture->state = OPEN;
    joined(capture, flow);
    void *graph = NULL;
    SURE(tarn_capture_state_get, flow->value, &state, &capture->id, &graph);
    SO(state == TARN_CAPTURE_ACTIVE, "a stream does not capture", "flow %d", capture->flow);
}

static void forget(struct capture *capture)
{
    if (capture->id && m.ended_count < STEPS_MOST / 4)
        m.ended[m.ended_count++] = capture->id;
    for (int i = 0; i < capture->check_count; i++)
        m.slot_used[capture->checks[i].slot] = false;
    let_go(capture);
    int pools[2] = {capture->pool, capture->kept - 1};
    *capture = (struct capture){.pool = -1, .state = UNUSED};
    for (int i = 0; i < 2; i++)
        if (pools[i] >= 0) {
            m.pools[pools[i]].graphs--;
            pool_settle(pools[i]);
        }
}

static void op_begin(void)
{
    struct capture *capture = &m.captures[below(CAPTURES)];
    struct flow *flow = some_flow(CHANCE(4) ? 1 : 0);
    enum how how = (enum how)below(HOWS);
    if (capture->state != UNUSED || !flow || flow->capture >= 0 || flow->actor >= 0 ||
        flow->kind == LEGACY || flow->kind == FOUND)
        return;
    *capture = (struct capture){.how = how,
                                .flow = (int)(flow - m.flows),
                                .pool = -1,
                                .actor = m.actor,
                                .mode = how <= WITH_POOL ? (tarn_capture_mode)below(3)
                                                         : TARN_CAPTURE_RELAXED,
                                .device = flow->device,
                                .launchable = true};
    bool own = how == OWN_POOL || (how == ANNOUNCED_POOL && CHANCE(2));
    if (own)
        capture->pool = own_pool(flow->device);
    else if (how == WITH_POOL || how == ANNOUNCED_POOL)
        capture->pool = pool_any(flow->device, true);
    if (capture->pool < 0 && (how == OWN_POOL || how == WITH_POOL || how == ANNOUNCED_POOL))
        return;
    tarn_pool *pool = capture->pool >= 0 ? m.pools[capture->pool].pool : NULL;
    tarn_status status = TARN_OK;
    const char *name = "a begin";
    if (how == KNOWN)
        status = CALL(tarn_capture_begin, flow->value, capture->mode);
    else if (how == OWN_POOL || how == WITH_POOL)
        status = CALL(tarn_pool_capture_begin, pool, flow->value, capture->mode);
    else if (how == ANNOUNCED)
        status = CALL(tarn_capture_announce, flow->value);
    else if (how == ANNOUNCED_POOL)
        status = CALL(tarn_pool_capture_announce, pool, flow->value);
    if (!well(name, status, 0)) {
        if (own)
            m.pools[capture->pool].live = false;
        capture->pool = -1;
        return;
    }
    if (capture->pool >= 0)
        m.pools[capture->pool].graphs++;
    capture->since = ++m.clock;
    if (how == ANNOUNCED || how == ANNOUNCED_POOL) {
        capture->state = SAID;
        flow->capture = (int)(capture - m.captures);
        return;
    }
    if (how == UNKNOWN)
        MINE(driver->capture_begin(flow->device, flow->native, DRIVER_CAPTURE_RELAXED));
    is_open(capture);
}

/* Announces a capture with a pool of its own, and never begins it. */
static void op_announce_nothing(void)
{
    struct flow *flow = some_flow(-1);
    if (!flow || flow->capture >= 0 || flow->kind == FOUND || flow->kind == LEGACY ||
        flow->actor >= 0)
        return;
    if (WELL(0, tarn_pool_capture_announce, NULL, flow->value))
        SURE(tarn_capture_abort, flow->value);
}

static void op_begin_announced(void)
{
    struct capture *capture = NULL;
    int first = (int)below(CAPTURES);
    for (int i = 0; i < CAPTURES && !capture; i++)
        if (m.captures[(first + i) % CAPTURES].state == SAID)
            capture = &m.captures[(first + i) % CAPTURES];
    if (!capture)
        return;
    const struct flow *flow = &m.flows[capture->flow];
    MINE(driver->capture_begin(flow->device, flow->native, DRIVER_CAPTURE_RELAXED));
    is_open(capture);
}

/* Makes one flow depend on another, by tarn's events or the vendor's. */
static void depend(struct flow *flow, struct flow *on)
{
    driver_event event = NULL;
    if (CHANCE(2) && flow->kind != FOUND) {
        tarn_event *ours = NULL;
        SURE(tarn_event_create, on->device, &ours);
        SURE(tarn_event_record, ours, on->value);
        SURE(tarn_stream_wait, flow->value, ours);
        SURE(tarn_event_destroy, ours);
        return;
    }
    MINE(driver->event_create(on->device, &event));
    MINE(driver->event_record(on->device, event, on->native));
    MINE(driver->stream_wait_event(flow->device, flow->native, event));
    MINE(driver->event_destroy(on->device, event));
}

static struct capture *some_open(void)
{
    int first = (int)below(CAPTURES);
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[(first + i) % CAPTURES].state == OPEN)
            return &m.captures[(first + i) % CAPTURES];
    return NULL;
}

static void op_join(void)
{
    struct capture *capture = some_open();
    struct flow *flow = some_flow(capture ? capture->device : 0);
    if (!capture || !flow || flow->capture >= 0 || flow->actor >= 0 || flow->kind == LEGACY)
        return;
    depend(flow, &m.flows[capture->flow]);
    joined(capture, flow);
}

/* Work inside a capture in which tarn is called only to allocate and free. */
static void op_inside(void)
{
    struct capture *capture = some_open();
    struct block *slot = block_free_slot();
    void *got = NULL;
    if (!capture || !slot || capture->held_count > HELD / 2)
        return;
    int index = (int)below(FLOWS);
    while (!(capture->joined >> index & 1))
        index = (index + 1) % FLOWS;
    struct flow *flow = &m.flows[index];
    struct block block = {.live = true,
                          .size = 1 + below(CHANCE(3) ? 40000 : 3 << 20),
                          .device = flow->device,
                          .flow = index,
                          .life = flow->life,
                          .actor = -1,
                          .inside = flow->capture};
    if (!flow_value(flow))
        return;
    int pool = pool_routed(flow);
    bool suspended = pool >= 0 && m.pools[pool].state != TARN_POOL_RUNS;
    if (suspended ||
        !WELL(BIT(TARN_ERROR_OUT_OF_MEMORY), tarn_alloc_on, flow->value, block.size, &got))
        return;
    block.start = got;
    block.pool = pool;
    block.kept = pool >= 0 ? m.pools[pool].kept : 0;
    tarn_block_info info = {.size = sizeof info};
    MINE(tarn_pointer_info_get(got, &info));
    block.usable = info.usable_size;
    if (pool >= 0 && !m.pools[pool].pool) /* the capture's own pool: its name is learned here */
        m.pools[pool].id = info.pool;
    /* Some pool with use_on_oom served it; which one is not known */
    bool helped = pool < 0 && (info.pool.first || info.pool.second);
    if (helped) {
        SURE(tarn_free, got);
        return;
    }
    if (pool >= 0)
        SO(info.pool.first == m.pools[pool].id.first && info.pool.second == m.pools[pool].id.second,
           "a block is of another pool", "it is of %" PRIu64 ",%" PRIu64, info.pool.first,
           info.pool.second);
    check_fresh((struct span_of_bytes){(uintptr_t)got, (uintptr_t)got + block.usable}, flow, pool,
                "a block in a capture", NULL);
    *slot = block;
    use_bytes(flow, got, block.size, -1, (int)below(256), "what a graph uses is another's");
    show("%p to %p, pool %d, in capture %d", got, (void *)((char *)got + block.usable), pool,
         flow->capture);
    if (capture->pool == pool || pool < 0)
        held_by(capture, slot);
    else
        capture->launchable = false; /* it has a block of a pool that is not the graph's */
    if (capture->pool >= 0 && capture->pool == pool && CHANCE(2) && !m.inject &&
        capture->inside_count < RANGES - 20)
        block_free(slot);
}

/* ---- The end ---- */

static bool end_known(struct capture *capture, struct flow *flow)
{
    SURE(tarn_capture_end, flow->value, &capture->graph);
    return true;
}

static void end_announced(struct capture *capture, struct flow *flow)
{
    MINE(driver->capture_end(flow->device, flow->native, &capture->graph));
    SURE(tarn_capture_end_announced, flow->value, capture->graph);
}

/* The capture's blocks are ordinary memory from now on. */
static void inside_no_more(const struct capture *capture)
{
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].inside == capture - m.captures)
            m.blocks[i].inside = -1;
}

static void end(struct capture *capture, bool abort)
{
    struct flow *flow = &m.flows[capture->flow];
    for (int i = 0; i < FLOWS; i++)
        if (i != capture->flow && capture->joined >> i & 1)
            depend(flow, &m.flows[i]);
    capture->state = SAID; /* its end has begun */
    if (abort) {
        SURE(tarn_capture_abort, flow->value);
        left(capture);
        inside_no_more(capture);
        forget(capture);
        return;
    }
    if (capture->how == UNKNOWN)
        MINE(driver->capture_end(flow->device, flow->native, &capture->graph));
    else if (capture->how >= ANNOUNCED)
        end_announced(capture, flow);
    else
        (void)end_known(capture, flow);
    left(capture);
    capture->state = GRAPH;
    capture->launched = (struct stamp){0, 0};
    inside_no_more(capture);
    if (capture->how == UNKNOWN && capture->workspace_count)
        capture->launchable = false; /* tarn makes no promise about this graph */
    if (capture->how == UNKNOWN)
        capture->workspace_count = 0;
}

/* Checks that open captures go on. A capture must survive whatever tarn is asked. The model begins
 * captures that tarn does not know only on streams that tarn knows, where they show; found streams
 * may only join them. */
void captures_look(void)
{
    for (int i = 0; i < CAPTURES; i++) {
        struct capture *capture = &m.captures[i];
        const struct flow *flow = &m.flows[capture->flow];
        struct driver_capture answer = {0};
        if (capture->state != OPEN)
            continue;
        MINE(driver->capture_status(flow->device, flow->native, &answer));
        SO(answer.state == DRIVER_CAPTURE_ACTIVE,
           capture->how == UNKNOWN ? "a capture that shows was spoilt"
                                   : "a known capture was spoilt",
           "capture %d of flow %d", i, capture->flow);
    }
}

/* A capture of another thread must go on. */
static void end_theirs(const struct capture *capture)
{
    void *graph = NULL;
    tarn_status status = CHANCE(2) ? CALL(tarn_capture_end, m.flows[capture->flow].value, &graph)
                                   : CALL(tarn_capture_abort, m.flows[capture->flow].value);
    SO(status, "a thread ended the capture of another", "capture %d", (int)(capture - m.captures));
    (void)well("the end of another thread's capture", status, BIT(TARN_ERROR_CAPTURE));
}

static bool may_end(const struct capture *capture)
{
    return capture->mode == TARN_CAPTURE_RELAXED || capture->actor == m.actor;
}

static void op_end(void)
{
    struct capture *capture = some_open();
    if (capture && (capture->joined & (capture->joined - 1)) == 0 && CHANCE(3))
        return; /* the capture goes on for a while */
    if (capture && !may_end(capture))
        end_theirs(capture);
    else if (capture)
        end(capture, capture->how < ANNOUNCED && CHANCE(3));
}

/* ---- Graphs ---- */

static struct capture *some_graph(void)
{
    int first = (int)below(CAPTURES);
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[(first + i) % CAPTURES].state == GRAPH)
            return &m.captures[(first + i) % CAPTURES];
    return NULL;
}

/* True if what the capture freed inside is nobody's now, and everything else that it uses
 * exists. */
static bool is_launchable(const struct capture *capture)
{
    if (!capture->launchable || capture->cleared)
        return false;
    if (capture->pool >= 0 && m.pools[capture->pool].state != TARN_POOL_RUNS)
        return false;
    for (int i = 0; i < capture->held_count; i++)
        if (!block_is_usable(&m.blocks[capture->held[i]]))
            return false;
    for (int i = 0; i < capture->inside_count; i++)
        for (int k = 0; k < BLOCKS; k++)
            if (m.blocks[k].live && (uintptr_t)m.blocks[k].start < capture->inside[i].end &&
                capture->inside[i].start < (uintptr_t)m.blocks[k].start + m.blocks[k].usable)
                return false;
    return true;
}

/* Graphs of one pool must run in the order of their captures, never at the same time. */
static bool order_after_pool(struct flow *flow, const struct capture *capture)
{
    for (int i = 0; i < CAPTURES; i++) {
        const struct capture *other = &m.captures[i];
        if (other->state == GRAPH && capture->pool >= 0 && other->pool == capture->pool &&
            !order_after_stamp(flow, other->launched))
            return false;
    }
    for (int i = 0; capture->pool >= 0 && i < m.ghost_count; i++)
        for (int k = 0; k < capture->inside_count; k++)
            if (m.ghosts[i].bytes.start < capture->inside[k].end &&
                capture->inside[k].start < m.ghosts[i].bytes.end &&
                !order_after_stamp(flow, m.ghosts[i].stamp))
                return false;
    return true;
}

/* By tarn_graph_launch() where the graph is its own executable: on the host device. The call
 * refuses a stream whose capture was announced. */
static void launch(const struct capture *capture, const struct flow *flow)
{
    uint64_t number = 0;
    if (strcmp(driver->name, "host") == 0 && CHANCE(4) && flow->capture < 0 &&
        WELL(0, tarn_graph_remember, capture->graph, &number))
        SURE(tarn_graph_launch, capture->graph, number, flow->value, NULL, NULL);
    else
        MINE(driver->graph_launch(flow->device, capture->graph, flow->native));
}

static void op_launch(void)
{
    struct capture *capture = some_graph();
    if (!capture)
        return;
    struct flow *flow = some_flow(capture->device), *origin = &m.flows[capture->flow];
    if (capture->inside_count)
        flow = origin;
    if (!flow || captures_now(flow) || !is_launchable(capture) || !takes_work(flow) ||
        capture->fresh || !flow_value(flow))
        return;
    for (int i = 0; i < FLOWS; i++)
        if (capture->ever >> i & 1) {
            if (!takes_work(&m.flows[i]) || captures_now(&m.flows[i]))
                return;
            order_after(flow, &m.flows[i]);
        }
    if (!order_after_pool(flow, capture) || !order_after_pinned(flow, capture) ||
        !order_after_stamp(flow, capture->launched))
        return;
    for (int i = 0; i < capture->held_count; i++) {
        struct block *block = &m.blocks[capture->held[i]];
        if (!order_after_users(flow, block) ||
            !WELL(0, tarn_record_stream, block->start, flow->value))
            return;
    }
    queue_begin(flow);
    launch(capture, flow);
    m.count.launches++;
    show("capture %d (pool %d) is launched on flow %d", (int)(capture - m.captures), capture->pool,
         (int)(flow - m.flows));
    for (int i = 0; i < capture->held_count; i++)
        show("  it has %p", (void *)m.blocks[capture->held[i]].start);
    for (int i = 0; i < capture->inside_count; i++)
        show("  inside %#" PRIxPTR " to %#" PRIxPTR, capture->inside[i].start,
             capture->inside[i].end);
    for (int i = 0; i < capture->workspace_count; i++)
        show("  workspace %#" PRIxPTR, capture->workspaces[i].start);
    capture->launched = queue_end(flow);
    capture->fresh = true;
    for (int i = 0; i < capture->held_count; i++) {
        m.blocks[capture->held[i]].known = false;
        block_user(&m.blocks[capture->held[i]], capture->launched);
    }
    for (int i = 0; i < capture->inside_count; i++)
        ghost_add(capture->inside[i], capture->launched, capture->pool, "a graph, inside");
    for (int i = 0; i < capture->workspace_count; i++)
        ghost_add(capture->workspaces[i], capture->launched, capture->pool, "a graph's workspace");
    pinned_launched(capture);
}

void graph_destroy(struct capture *capture)
{
    uint64_t id = capture->id;
    bool kept = capture->pool < 0 && capture->how != UNKNOWN && capture->workspace_count &&
                !capture->cleared;
    bool ended = is_done(capture->launched);
    MINE(driver->graph_destroy(capture->device, capture->graph));
    if (ended)
        check_slots_of(capture);
    if (!ended && capture->fresh) { /* its places are written when the launch ends */
        for (int i = 0; i < capture->check_count; i++)
            if (m.pending_count < SLOTS) {
                capture->checks[i].stamp = capture->launched;
                pending_add(capture->checks[i]);
            }
        capture->check_count = 0;
    }
    forget(capture);
    if (kept && ended) { /* nobody launches it any more */
        tarn_workspace_choice choice = {
            .size = sizeof choice, .which = TARN_WORKSPACES_OF_CAPTURE, .capture = id};
        /* A clear for a capture with a found stream may be refused while tarn knows of another
         * capture */
        (void)WELL(known_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_workspace_clear, &choice,
                   NULL);
    }
}

/* Tells tarn of a pool that a graph uses in addition to its own, or without having one. */
static void op_keep(void)
{
    struct capture *capture = some_graph();
    int index = capture ? pool_any(capture->device, false) : -1;
    if (index < 0 || capture->kept)
        return;
    call_quiet(); /* the old executable is destroyed; if the driver refused that, it would stay */
    if (WELL(BIT(TARN_ERROR_NOT_SUPPORTED), tarn_pool_hold, m.pools[index].pool, capture->graph)) {
        capture->kept = index + 1;
        m.pools[index].graphs++;
    }
}

/* Whether anything but the capture's graph holds a pool. */
static bool others_hold_pools(const struct capture *capture)
{
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live &&
            m.pools[i].holds + m.pools[i].graphs > (capture->pool == i) + (capture->kept == i + 1))
            return true;
    return false;
}

/* Checks that the verdict of a graph check follows from its numbers. What a capture has freed of a
 * pool that others hold too stays unproven. */
static void graph_look(const struct capture *capture)
{
    void *graph = capture->graph;
    tarn_graph_summary summary = {.size = sizeof summary};
    uint64_t number = 0;
    if (CHANCE(2) && WELL(BIT(TARN_ERROR_NOT_SUPPORTED), tarn_graph_remember, graph, &number)) {
        const tarn_graph_options options = {.size = sizeof options, .remembered = number};
        SURE(tarn_graph_check, NULL, &options, NULL, NULL, &summary);
        SO(summary.remembered && (!summary.unproven || others_hold_pools(capture)),
           "a graph is not remembered", "%zu nodes", summary.nodes);
    }
    if (WELL(BIT(TARN_ERROR_NOT_SUPPORTED), tarn_graph_check, graph, NULL, NULL, NULL, &summary))
        SO(summary.verdict != TARN_GRAPH_CLEAN || !(summary.unseen + summary.unproven),
           "a graph that was not seen is clean", "%zu nodes", summary.nodes);
}

static void op_destroy(void)
{
    struct capture *capture = some_graph();
    if (capture && CHANCE(2))
        graph_look(capture);
    if (capture)
        graph_destroy(capture);
}

static struct capture *ending;

static void end_inside(void)
{
    end(ending, true);
}

void captures_end(void)
{
    for (int i = 0; i < CAPTURES; i++) {
        struct capture *capture = &m.captures[i];
        if (capture->state == SAID) {
            const struct flow *flow = &m.flows[capture->flow];
            MINE(driver->capture_begin(flow->device, flow->native, DRIVER_CAPTURE_RELAXED));
            is_open(capture);
        }
        if (capture->state == OPEN && capture->mode != TARN_CAPTURE_RELAXED) {
            ending = capture;
            actor_run(capture->actor, end_inside);
            m.actor = -1;
        } else if (capture->state == OPEN) {
            end(capture, capture->how < ANNOUNCED);
        }
        if (capture->state == GRAPH)
            graph_destroy(capture);
    }
}

const struct operation graph_operations[] = {
    {"begin", 12, NULL, op_begin, false},
    {"begin what was announced", 8, NULL, op_begin_announced, false},
    {"announce nothing", 1, NULL, op_announce_nothing, false},
    {"join", 6, NULL, op_join, false},
    {"work inside", 14, NULL, op_inside, false},
    {"end", 14, NULL, op_end, false},
    {"launch", 14, NULL, op_launch, false},
    {"keep a pool", 2, NULL, op_keep, false},
    {"destroy", 4, NULL, op_destroy, false},
    {NULL, 0, NULL, NULL, false}};
