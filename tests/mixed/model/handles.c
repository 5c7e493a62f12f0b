/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Libraries whose calls write to their workspace on their stream. One goes back to its own
 * workspace when the stream is set. One has a handle per stream and keeps its workspace. On CUDA
 * there is also cuBLASLt, which takes a workspace with each call. */
#include "mixed/model/mixed.h"

enum { PLAIN, BY_STREAM, BY_CALL };
static const size_t sizes[LIBRARIES] = {384 << 10, 256 << 10, 320 << 10};

static int thing_create(void **handle)
{
    *handle = calloc(1, sizeof(struct thing));
    return !*handle;
}

/* All work of one handle uses the same memory, so it must be ordered, whatever streams it is on. */
enum { OWN = 2000 };
static unsigned char own[OWN * PART];
static int own_next;

static int thing_create_with_memory(void **handle)
{
    if (thing_create(handle))
        return 1;
    if (own_next < OWN)
        ((struct thing *)*handle)->own = &own[own_next++ * PART];
    return 0;
}

static int thing_destroy(void *handle)
{
    free(handle);
    return 0;
}

static int set_stream_only(void *handle, void *stream)
{
    ((struct thing *)handle)->stream = stream;
    return 0;
}

static int set_stream(void *handle, void *stream)
{
    struct thing *thing = handle;
    thing->stream = stream;
    thing->workspace = NULL;
    thing->size = 0;
    return 0;
}

static int set_workspace(void *handle, void *pointer, size_t size)
{
    ((struct thing *)handle)->workspace = pointer;
    ((struct thing *)handle)->size = size;
    return 0;
}

void handles_begin(void)
{
    tarn_library_row rows[] = {
        {.name = "plain", .set_stream = set_stream},
        {.name = "by_stream", .set_stream = set_stream_only, .flags = TARN_LIBRARY_BY_STREAM},
    };
    const char *name = getenv("TARN_DRIVER");
    for (int i = 0; i < 2; i++) {
        rows[i].size = sizeof rows[i];
        rows[i].create = i == BY_STREAM ? thing_create_with_memory : thing_create;
        rows[i].destroy = thing_destroy;
        rows[i].set_workspace = set_workspace;
        SURE(tarn_library_register, &rows[i], &m.libraries[i]);
    }
    if (name && strcmp(name, "cuda") == 0)
        m.libraries[BY_CALL] = TARN_LIBRARY_CUBLASLT;
    for (int i = 0; i < LIBRARIES; i++)
        if (m.libraries[i])
            SURE(tarn_workspace_size_set, m.libraries[i], (int64_t)sizes[i]);
}

/* ---- What is known ---- */

bool capture_has_workspace(const struct capture *capture, uintptr_t start)
{
    for (int i = 0; i < capture->workspace_count; i++)
        if (capture->workspaces[i].start == start)
            return true;
    return false;
}

/* The handles of these streams must be asked for again. */
void uses_changed(unsigned flows)
{
    for (int user = 0; user < ACTORS + LEASES; user++)
        for (int i = 0; i < LIBRARIES; i++)
            if (flows >> m.uses[user][i].flow & 1)
                m.uses[user][i].valid = false;
}

void uses_of_flow(int flow)
{
    uses_changed(1u << flow);
}

void uses_forget(int user)
{
    for (int i = 0; i < LIBRARIES; i++)
        m.uses[user][i].valid = false;
}

/* ---- Use ---- */

static void use_own(struct flow *flow, struct thing *thing)
{
    if (!thing || !thing->own || captures_now(flow))
        return;
    unsigned char value = (unsigned char)below(256);
    (void)use_bytes(flow, thing->own, PART, thing->known ? thing->value : -1, value,
                    "work of a handle runs beside its work on another stream");
    thing->known = true;
    thing->value = value;
}

static void work(struct use *use)
{
    struct flow *flow = &m.flows[use->flow];
    struct capture *capture = use->capture >= 0 ? &m.captures[use->capture] : NULL;
    struct span_of_bytes bytes = {(uintptr_t)use->pointer, (uintptr_t)use->pointer + use->size};
    if (!use->valid || !takes_work(flow) || !use->pointer)
        return;
    SO((captures_now(flow) ? flow->capture : -1) == use->capture, "the test's own mistake",
       "a use outlived its capture");
    if (capture && !capture_has_workspace(capture, bytes.start)) {
        if (capture->workspace_count == RANGES)
            return;
        capture->workspaces[capture->workspace_count++] = bytes;
    }
    struct stamp stamp = use_bytes(flow, use->pointer, use->size, -1, (int)below(256),
                                   "a handle's workspace holds what another has written");
    ghost_add(bytes, stamp, -1, "a handle's workspace");
    use_own(flow, use->thing);
}

static void check_use(const struct use *use)
{
    const struct flow *flow = &m.flows[use->flow];
    const struct capture *capture = use->capture >= 0 ? &m.captures[use->capture] : NULL;
    tarn_block_info info = {.size = sizeof info};
    SO(tarn_pointer_info_get(use->pointer, &info) == TARN_OK && info.base == use->pointer &&
           info.usable_size >= use->size && strcmp(tarn_tag_text(info.tag), "workspace") == 0,
       "a handle's workspace is not a live workspace block", "%p: %s", (void *)use->pointer,
       tarn_last_error());
    int pool = capture ? capture->pool : -1;
    if (pool >= 0 && !m.pools[pool].pool)
        m.pools[pool].id = info.pool;
    uint64_t first = pool >= 0 ? m.pools[pool].id.first : 0,
             second = pool >= 0 ? m.pools[pool].id.second : 0;
    SO(info.pool.first == first && info.pool.second == second, "a workspace is of another pool",
       "%" PRIu64 ",%" PRIu64 " not %" PRIu64 ",%" PRIu64, info.pool.first, info.pool.second, first,
       second);
    SO(!capture || capture->how == UNKNOWN ||
           capture_has_workspace(capture, (uintptr_t)use->pointer) ||
           m.captures[use->capture].state == OPEN,
       "the test's own mistake", "%p", (void *)use->pointer);
    if (use->thing)
        SO(use->thing->workspace == use->pointer && use->thing->stream == flow->native,
           "a handle is bound to another stream", "%p not %p", use->thing->stream, flow->native);
}

/* Checks that nobody else has a workspace of a capture: neither another capture, nor work outside
 * of captures. */
static void check_apart(const struct use *use)
{
    uintptr_t start = (uintptr_t)use->pointer;
    for (int i = 0; i < CAPTURES; i++) {
        const struct capture *capture = &m.captures[i];
        if (i != use->capture && (capture->state == OPEN || capture->state == GRAPH) &&
            !capture->cleared && capture->how != UNKNOWN)
            SO(!capture_has_workspace(capture, start), "a graph's workspace is another's",
               "%#" PRIxPTR " of capture %d", start, i);
    }
}

static uint64_t reasons_of(const struct flow *flow)
{
    uint64_t reasons = BIT(TARN_ERROR_OUT_OF_MEMORY);
    /* a handle would have to be created, or to move to this stream */
    if (any_open(-1))
        reasons |= BIT(TARN_ERROR_CAPTURE);
    const struct capture *capture = flow->capture >= 0 ? &m.captures[flow->capture] : NULL;
    if (capture && capture->pool >= 0 && m.pools[capture->pool].state != TARN_POOL_RUNS)
        reasons |= BIT(TARN_ERROR_SUSPENDED);
    return reasons;
}

static tarn_status ask(struct use *use, int library, struct flow *flow, bool leases)
{
    tarn_library number = m.libraries[library];
    void *handle = NULL, *pointer = NULL;
    size_t size = 0;
    tarn_status status;
    if (leases)
        status = use->leased ? CALL(tarn_handle_lease_bind, &use->lease, flow->value)
                             : CALL(tarn_handle_lease, number, flow->value, &use->lease);
    else if (CHANCE(4) && tarn_stream_set(flow->value) == TARN_OK) {
        status = library == BY_CALL
                     ? CALL(tarn_workspace_get, number, TARN_STREAM_CURRENT, NULL, &pointer, &size)
                     : CALL(tarn_handle_get, number, TARN_STREAM_CURRENT, &handle);
        MINE(tarn_stream_set(TARN_STREAM_LEGACY));
    } else if (library == BY_CALL)
        status = CALL(tarn_workspace_get, number, flow->value, NULL, &pointer, &size);
    else
        status = CALL(tarn_handle_get, number, flow->value, &handle);
    if (status)
        return status;
    if (leases)
        use->leased = true;
    if (library == BY_CALL) {
        use->thing = NULL;
        use->pointer = pointer;
        use->size = size;
    } else {
        use->thing = leases ? use->lease.handle : handle;
        use->pointer = use->thing->workspace;
        use->size = use->thing->size;
    }
    return TARN_OK;
}

static void op_ask(void)
{
    int library = (int)below(LIBRARIES);
    bool leases = CHANCE(5) && library != BY_CALL;
    struct use *use = &m.uses[leases ? ACTORS + (int)below(LEASES) : m.actor][library];
    struct flow *flow = some_flow(0);
    const struct capture *open = &m.captures[below(CAPTURES)];
    if (open->state == OPEN && CHANCE(2) && open->device == 0)
        flow = &m.flows[open->flow];
    /* the same use once more, so that a clear comes between uses more often than by chance */
    if (library == BY_CALL && use->valid && m.flows[use->flow].live &&
        m.flows[use->flow].life == use->life && CHANCE(2))
        flow = &m.flows[use->flow];
    if (!m.libraries[library] || !flow || (leases && flow->actor >= 0) || !flow_value(flow))
        return;
    if (library == BY_CALL && use->valid && use->flow == (int)(flow - m.flows) && CHANCE(2)) {
        /* the handle with it: its workspace must still be there, unless somebody has cleared it */
        void *handle = NULL;
        use->valid = use->clears == m.clears;
        (void)WELL(reasons_of(flow), tarn_handle_get, m.libraries[library], flow->value, &handle);
        work(use);
        return;
    }
    use->valid = false;
    if (!well("a get", ask(use, library, flow, leases), reasons_of(flow)) || !use->pointer)
        return;
    /* tarn may have been unable to learn that the stream captures, so the workspace may not be the
     * capture's */
    if (was_injected() && captures_now(flow))
        return;
    m.count.workspaces++;
    use->valid = true;
    use->flow = (int)(flow - m.flows);
    use->life = flow->life;
    use->clears = m.clears;
    use->capture = captures_now(flow) ? flow->capture : -1;
    check_use(use);
    check_apart(use);
    if (below(8))
        work(use);
}

/* Asks for one library on one stream after the other: more streams than a thread has handles for,
 * so that some handles move with their workspaces. The workspaces that nobody has then are freed,
 * and the streams want blocks of that size. */
static void op_ask_around(void)
{
    int library = (int)below(2), first = (int)below(FLOWS);
    struct use *use = &m.uses[m.actor][library];
    if (any_open(0))
        return;
    for (int i = 0; i < FLOWS; i++) {
        struct flow *flow = &m.flows[(first + i) % FLOWS];
        use->valid = false;
        if (flow->device != 0 || !takes_work(flow) || flow->kind == LEGACY || !flow_value(flow) ||
            !well("a get", ask(use, library, flow, false), reasons_of(flow)))
            continue;
        SO(use->thing->stream == flow->native, "a handle is bound to another stream", "%p not %p",
           use->thing->stream, flow->native);
        use->valid = true;
        use->flow = (int)(flow - m.flows);
        use->life = flow->life;
        use->clears = m.clears;
        use->capture = -1;
        work(use);
    }
    use->valid = false;
    if (CHANCE(2) || !WELL(0, tarn_workspace_clear, NULL, NULL))
        return;
    workspaces_were_cleared();
    for (int i = 0; i < FLOWS; i++)
        if (m.flows[i].device == 0 && takes_work(&m.flows[i]) && CHANCE(2))
            block_want(&m.flows[i], sizes[library]);
}

static void op_call(void)
{
    struct use *use = &m.uses[CHANCE(4) ? ACTORS + (int)below(LEASES) : m.actor][below(LIBRARIES)];
    if (use->valid)
        check_use(use);
    work(use);
}

/* Uses a handle as its last user left it: if it points to a workspace, that must exist. */
static void op_plain(void)
{
    int library = (int)below(2);
    void *handle = NULL;
    for (int i = 0; i < LIBRARIES; i++)
        m.uses[m.actor][i].valid = false;
    MINE(tarn_stream_set(TARN_STREAM_LEGACY));
    uint64_t reasons = BIT(TARN_ERROR_OUT_OF_MEMORY) | (any_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0);
    if (!WELL(reasons, tarn_handle_get, m.libraries[library], TARN_STREAM_NONE, &handle))
        return;
    const struct thing *thing = handle;
    tarn_block_info info = {.size = sizeof info};
    SO(!thing->workspace || (tarn_pointer_info_get(thing->workspace, &info) == TARN_OK &&
                             info.base == thing->workspace),
       "a plain handle points to memory that is nobody's", "%p: %s", thing->workspace,
       tarn_last_error());
}

/* Uses a workspace between tarn_workspace_begin() and _end(). */
static void op_per_call(void)
{
    int library = (int)below(2);
    struct flow *flow = some_flow(0);
    tarn_workspace_call call = {0};
    if (!flow || captures_now(flow) || !takes_work(flow) || !flow_value(flow))
        return;
    for (int i = 0; i < LIBRARIES; i++) /* the call counts as a get */
        m.uses[m.actor][i].valid = false;
    tarn_status status;
    struct use *lease = &m.uses[ACTORS + below(LEASES)][library];
    if (lease->leased && lease->valid && lease->flow == (int)(flow - m.flows) &&
        lease->life == flow->life) {
        lease->valid = false;
        status = CALL(tarn_workspace_begin, m.libraries[library], TARN_STREAM_NONE, &lease->lease,
                      &call);
    } else if (CHANCE(3) && tarn_stream_set(flow->value) == TARN_OK) {
        status = CALL(tarn_workspace_begin, m.libraries[library], TARN_STREAM_CURRENT, NULL, &call);
        MINE(tarn_stream_set(TARN_STREAM_LEGACY));
    } else {
        status = CALL(tarn_workspace_begin, m.libraries[library], flow->value, NULL, &call);
    }
    if (!well("a begin", status, reasons_of(flow)))
        return;
    const struct thing *thing = call.handle;
    SO(thing->stream == flow->native, "a handle is bound to another stream", "%p not %p",
       thing->stream, flow->native);
    if (call.pointer) {
        struct span_of_bytes bytes = {(uintptr_t)call.pointer,
                                      (uintptr_t)call.pointer + call.bytes};
        SO(thing->workspace == call.pointer, "a handle has another workspace", "%p not %p",
           thing->workspace, call.pointer);
        check_fresh(bytes, flow, -1, "a workspace of calls", NULL);
        ghost_add(bytes,
                  use_bytes(flow, call.pointer, call.bytes, -1, (int)below(256),
                            "a workspace of calls holds what another has written"),
                  -1, "a workspace of calls");
    }
    call_quiet();
    SURE(tarn_workspace_end, &call);
}

static void op_return(void)
{
    struct use *use = &m.uses[ACTORS + below(LEASES)][below(2)];
    if (!use->leased)
        return;
    use->valid = false;
    if (WELL(0, tarn_handle_return, &use->lease))
        use->leased = false;
}

static void op_prewarm(void)
{
    tarn_library library = m.libraries[below(2)];
    struct flow *flow = some_flow(0);
    uint64_t reasons = BIT(TARN_ERROR_OUT_OF_MEMORY) | (any_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0);
    if (CHANCE(2))
        (void)WELL(reasons, tarn_handle_prewarm, library, 0, TARN_STREAM_NONE, 1 + below(4));
    else if (flow && flow->actor < 0 && flow_value(flow))
        (void)WELL(reasons, tarn_handle_prewarm, library, TARN_CURRENT_DEVICE, flow->value, 1);
}

/* A program that captures repeatedly: a prewarm, a begin and a get. The get must have a handle,
 * whatever happened before. */
static void op_prewarm_and_capture(void)
{
    tarn_library library = m.libraries[below(2)];
    struct flow *flow = some_flow(0);
    void *handle = NULL, *graph = NULL;
    bool on_stream = CHANCE(2);
    if (!flow || flow->actor >= 0 || flow->capture >= 0 || any_open(-1) || flow->kind == LEGACY ||
        flow->kind == FOUND)
        return;
    tarn_status status =
        on_stream ? CALL(tarn_handle_prewarm, library, TARN_CURRENT_DEVICE, flow->value, 1)
                  : CALL(tarn_handle_prewarm, library, 0, TARN_STREAM_NONE, 1);
    if (!well("a prewarm", status, BIT(TARN_ERROR_OUT_OF_MEMORY)) || was_injected())
        return;
    SURE(tarn_capture_begin, flow->value, TARN_CAPTURE_RELAXED);
    call_quiet();
    status = CALL(tarn_handle_get, library, flow->value, &handle);
    SO(status != TARN_ERROR_CAPTURE,
       "a capture has no handle although a prewarm said that it would", "flow %d: %s",
       (int)(flow - m.flows), tarn_last_error());
    (void)well("a get after a prewarm", status, BIT(TARN_ERROR_OUT_OF_MEMORY));
    uses_changed(1u << (flow - m.flows));
    for (int i = 0; i < 2; i++) /* the handle may have belonged to another stream */
        m.uses[m.actor][i].valid = false;
    SURE(tarn_capture_abort, flow->value);
    (void)graph;
}

/* A capture that tarn does not know uses its stream's own workspace. */
static void unknown_lose_theirs(void)
{
    for (int i = 0; i < CAPTURES; i++) {
        struct capture *capture = &m.captures[i];
        if (capture->state != OPEN || capture->how != UNKNOWN)
            continue;
        capture->launchable &= capture->workspace_count == 0;
        capture->workspace_count = 0;
        uses_changed(capture->joined);
    }
}

static void cleared(void)
{
    uses_forget(m.actor);
    unknown_lose_theirs(); /* tarn does not ask whether a found stream captures */
}

void workspaces_were_cleared(void)
{
    m.clears++;
    cleared();
}

static void op_clear(void)
{
    tarn_workspace_choice choice = {.size = sizeof choice};
    tarn_workspace_cleared done = {.size = sizeof done};
    struct flow *flow = some_flow(0);
    int pool = pool_any(-1, false);
    bool graphs = false, on_stream = false;
    m.clears++;
    for (int i = 0; i < CAPTURES; i++)
        graphs |= m.captures[i].state == GRAPH;
    switch (below(4)) {
    case 0:
        if (WELL(0, tarn_workspace_clear, NULL, &done))
            cleared();
        return;
    case 1: /* workspaces of graphs on the stream are among them */
        if (graphs || !flow || flow->actor >= 0 || flow->kind == FOUND)
            return;
        choice.which = TARN_WORKSPACES_OF_STREAM;
        choice.stream = flow->value;
        on_stream = flow->capture >= 0;
        if (WELL(on_stream ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_workspace_clear, &choice, &done)) {
            SO(!on_stream, "workspaces of a capture were cleared", "flow %d",
               (int)(flow - m.flows));
            cleared();
        }
        return;
    case 2:
        if (pool < 0)
            return;
        choice.which = TARN_WORKSPACES_OF_POOL;
        choice.pool = m.pools[pool].pool;
        if (WELL(BIT(TARN_ERROR_CAPTURE), tarn_workspace_clear, &choice, &done))
            for (int i = 0; i < CAPTURES; i++)
                SO(m.captures[i].state == UNUSED || m.captures[i].pool != pool,
                   "workspaces of a graph were cleared", "capture %d", i);
        return;
    /* the workspace of a handle that nobody has may be in use by a capture that tarn does not
     * know */
    default:
        if (WELL(any_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_handle_trim,
                 m.libraries[below(2)], 0, NULL))
            unknown_lose_theirs();
    }
}

/* Changes the policy, which applies from the next get on. */
static void op_policy(void)
{
    tarn_workspace_policy policy = TARN_WORKSPACE_CACHED, wanted = (tarn_workspace_policy)below(3);
    void *pointer = NULL;
    size_t size = 0;
    struct use *use = &m.uses[ACTORS + below(LEASES)][PLAIN];
    /* This get frees what was cleared */
    use->valid &= !use->leased || use->clears == m.clears;
    if (use->leased) /* a lease does not take one as an argument */
        (void)WELL(BIT(TARN_ERROR_NOT_SUPPORTED) | reasons_of(&m.flows[use->flow]) |
                       BIT(TARN_ERROR_INVALID_STREAM),
                   tarn_workspace_get, m.libraries[PLAIN], TARN_STREAM_NONE, &use->lease, &pointer,
                   &size);
    if (CHANCE(3) && WELL(0, tarn_workspace_policy_set, wanted, &policy)) {
        if (CHANCE(2))
            SURE(tarn_workspace_policy_set, policy, NULL);
        for (int user = 0; user < ACTORS + LEASES; user++)
            uses_forget(user);
    }
}

/* Checks that workspaces belong to something that exists: an abort leaves none, and each has an
 * owner that can be named. */
static void check_left(void)
{
    tarn_workspace_stats stats = {.size = sizeof stats};
    if (tarn_workspace_stats_get(0, &stats))
        fault("statistics", "%s", tarn_last_error());
    for (int i = 0; i < m.ended_count; i++) {
        tarn_workspace_choice choice = {
            .size = sizeof choice, .which = TARN_WORKSPACES_OF_CAPTURE, .capture = m.ended[i]};
        SURE(tarn_workspace_clear, &choice, NULL);
    }
    /* Workspaces of captures that were announced, or seen beside a known one */
    for (int i = 0; i < FLOWS; i++) {
        if (!m.flows[i].live || !stats.captured_count)
            continue;
        tarn_workspace_choice choice = {
            .size = sizeof choice, .which = TARN_WORKSPACES_OF_STREAM, .stream = m.flows[i].value};
        if (m.flows[i].actor < 0)
            SURE(tarn_workspace_clear, &choice, NULL);
    }
    SURE(tarn_workspace_clear, NULL, NULL);
    if (tarn_workspace_stats_get(0, &stats))
        fault("statistics", "%s", tarn_last_error());
    SO(stats.count == 0 && stats.bytes == 0, "workspaces are left",
       "%" PRIu64 " of %" PRIu64 " bytes, %" PRIu64 " of captures", stats.count, stats.bytes,
       stats.captured_count);
}

/* Makes every thread give up its handles. */
void handles_let_go(void)
{
    for (int i = 0; i < LEASES; i++)
        for (int k = 0; k < 2; k++)
            if (m.uses[ACTORS + i][k].leased)
                SURE(tarn_handle_return, &m.uses[ACTORS + i][k].lease);
    SURE(tarn_workspace_clear, NULL, NULL);
    for (int i = 0; i < LIBRARIES; i++)
        if (m.libraries[i])
            SURE(tarn_handle_trim, m.libraries[i], 0, NULL);
}

/* Call it while nothing captures. */
void handles_end(void)
{
    check_left();
    for (int i = 0; i < LIBRARIES; i++)
        if (m.libraries[i])
            SURE(tarn_handle_trim, m.libraries[i], 0, NULL);
}

const struct operation handle_operations[] = {
    {"ask", 30, NULL, op_ask, false},
    {"ask around", 2, NULL, op_ask_around, false},
    {"call", 14, NULL, op_call, false},
    {"plain", 2, NULL, op_plain, false},
    {"per call", 4, NULL, op_per_call, false},
    {"return", 2, NULL, op_return, false},
    {"prewarm", 2, NULL, op_prewarm, false},
    {"prewarm and capture", 3, NULL, op_prewarm_and_capture, false},
    {"policy", 1, NULL, op_policy, false},
    {"clear", 5, NULL, op_clear, false},
    {NULL, 0, NULL, NULL, false}};
