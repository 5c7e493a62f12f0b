/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* All forms of allocation, free and use. */
#include "mixed/model/mixed.h"

static bool is_in_scope(const struct scope *scope, const struct flow *flow)
{
    const struct pool *pool = &m.pools[scope->pool];
    if (!scope->live || pool->device != flow->device)
        return false;
    switch (scope->kind) {
    case TARN_SCOPE_THREAD:
        return scope->since[m.actor] != 0;
    case TARN_SCOPE_STREAM:
        if (flow->kind ==
            PER_THREAD) /* a new thread may have the slot of one that has ended, and so its scope */
            return flow->value == scope->stream;
        return m.flows[scope->flow].life == scope->life && flow == &m.flows[scope->flow];
    default:
        return true;
    }
}

int pool_routed(const struct flow *flow)
{
    uint64_t newest = 0;
    int pool = -1;
    for (int i = 0; i < SCOPES; i++) {
        const struct scope *scope = &m.scopes[i];
        uint64_t since = scope->kind == TARN_SCOPE_THREAD ? scope->since[m.actor] : scope->since[0];
        if (is_in_scope(scope, flow) && since > newest) {
            newest = since;
            pool = scope->pool;
        }
    }
    if (flow->capture >= 0) {
        const struct capture *capture = &m.captures[flow->capture];
        if (capture->pool >= 0 && capture->since > newest)
            pool = capture->pool;
    }
    return pool;
}

/* Asks for the value of a found stream again at each use. */
bool flow_value(struct flow *flow)
{
    tarn_stream value = flow->value;
    if (flow->kind != FOUND)
        return true;
    uint64_t reasons = known_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0;
    if (!WELL(reasons, tarn_stream_find, flow->device, flow->native, &value))
        return false;
    flow->value = value;
    return true;
}

struct block *block_free_slot(void)
{
    for (int i = 0; i < BLOCKS; i++)
        if (!m.blocks[i].live)
            return &m.blocks[i];
    return NULL;
}

bool block_is_usable(const struct block *block)
{
    if (!block->live || block->lost)
        return false;
    return block->pool < 0 || m.pools[block->pool].state == TARN_POOL_RUNS;
}

static size_t some_size(void)
{
    if (m.planned && CHANCE(2)) /* sizes in the plan of make_snapshots.py */
        return (2 + below(16)) * (256 << 10);
    switch (below(10)) {
    case 0:
        return 1 + below(512);
    case 8: /* a size such as a workspace's */
        return ((256 << 10) + below(3) * (64 << 10));
    case 1:
    case 2:
        return 1 + below(64 << 10);
    case 3:
        return 1 + below(1 << 20);
    case 4:
    case 5:
        return 1 + below(4 << 20);
    case 6:
        return (1 + below(12)) * 2 * MIB;
    default:
        return 1 + below((unsigned)(m.memory / 4));
    }
}

/* Checks a refusal for lack of memory while little is in use. It is a fault only if nothing holds
 * memory in place. */
static void check_shortage(const struct flow *flow, size_t size, int pool)
{
    uint64_t used = 0;
    if (was_injected() || m.plain || fell_back(flow->device) || m.was_uncached || is_night() ||
        is_anchored_on(flow->device) || any_open(-1) || m.limit[flow->device] != TARN_NO_LIMIT ||
        (pool >= 0 && (m.pools[pool].limit != TARN_NO_LIMIT || m.pools[pool].plain ||
                       m.pools[pool].registrable || m.pools[pool].kept)))
        return;
    /* the most memory that a block can hold in place */
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].live && m.blocks[i].device == flow->device)
            used += m.blocks[i].usable + 32 * MIB;
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[i].state == GRAPH)
            return;
    tarn_workspace_stats workspaces = {.size = sizeof workspaces};
    MINE(tarn_workspace_stats_get(flow->device, &workspaces));
    used += workspaces.count * 32 * MIB;
    for (int i = 0; i < POOLS; i++) { /* free memory of another pool serves nobody else */
        tarn_stats stats = {.size = sizeof stats};
        if (m.pools[i].live && m.pools[i].pool && i != pool && m.pools[i].device == flow->device &&
            tarn_pool_stats_get(m.pools[i].pool, &stats) == TARN_OK)
            used += (uint64_t)stats.reserved_bytes[0].current;
    }
    SO(used + size + 32 * MIB > m.memory / 2, "out of memory beside little",
       "%zu bytes are refused on device %d, where %" PRIu64 " of %zu are in use: %s", size,
       flow->device, used, m.memory, tarn_last_error());
}

static tarn_status allocate(struct flow *flow, struct block *block, int *pool, void **got,
                            size_t *wants)
{
    size_t alignment = *wants;
    *pool = -1;
    int wanted = CHANCE(4) ? pool_any(flow->device, false) : -1;
    if (wanted >= 0 && m.pools[wanted].pool) {
        *pool = wanted;
        if (CHANCE(2))
            *wants = 0;
        if (!*wants)
            return CALL(tarn_pool_alloc, m.pools[wanted].pool, flow->value, block->size, got);
    } else {
        *pool = pool_routed(flow);
        wanted = -1;
    }
    if (wanted < 0 && !alignment && CHANCE(4)) {
        tarn_guard guard;
        if (tarn_device_guard_set(&guard, flow->device) == TARN_OK &&
            tarn_stream_set(flow->value) == TARN_OK) {
            ask_begin("tarn_alloc_on");
            *got = tarn_malloc(block->size);
            tarn_status status = ask_end("tarn_alloc_on", *got ? TARN_OK : tarn_last_status());
            MINE(tarn_stream_set(TARN_STREAM_LEGACY));
            MINE(tarn_guard_restore(&guard));
            return status;
        }
    }
    if (wanted < 0 && !alignment && CHANCE(3))
        return CALL(tarn_alloc_on, flow->value, block->size, got);
    block->tag = m.tags[below(3)];
    tarn_alloc_options options = {.size = sizeof options,
                                  .device = flow->kind == LEGACY || flow->kind == PER_THREAD
                                                ? flow->device
                                                : TARN_CURRENT_DEVICE,
                                  .stream = flow->value,
                                  .alignment = alignment,
                                  .tag = block->tag,
                                  .pool = wanted >= 0 ? m.pools[wanted].pool : NULL};
    if (flow->kind != LEGACY && flow->device > 0)
        options.device = flow->device;
    if (CHANCE(4))
        options.wait = TARN_NO_WAIT; /* a time would end by the clock, and not in every run */
    m.bounded = options.wait != 0;
    uint64_t before = time_now(), frees = calls_of(flow->device, "free");
    tarn_status status = CALL(tarn_alloc, &options, block->size, got);
    SO(options.wait != TARN_NO_WAIT || time_now() == before || m.vendor ||
           calls_of(flow->device, "free") != frees, /* of a plain segment; HIP's maps wait */
       "a call without a wait has waited", "%" PRIu64 " ns", time_now() - before);
    return status;
}

static void check_info(const struct block *block)
{
    tarn_block_info info = {.size = sizeof info};
    if (!WELL(0, tarn_pointer_info_get, block->start + below((unsigned)block->size), &info))
        return;
    SO(info.base == block->start && info.requested == block->size &&
           info.usable_size == block->usable && info.device == block->device &&
           info.tag == block->tag,
       "the description of a block is wrong",
       "base %p not %p, %zu not %zu bytes, device %d, tag %u not %u", info.base,
       (void *)block->start, info.requested, block->size, info.device, info.tag, block->tag);
    if (block->pool == -1)
        SO(!info.pool.first && !info.pool.second, "a block is of another pool",
           "it is of %" PRIu64 ",%" PRIu64, info.pool.first, info.pool.second);
    if (block->pool >= 0 && m.pools[block->pool].pool)
        SO(info.pool.first == m.pools[block->pool].id.first &&
               info.pool.second == m.pools[block->pool].id.second,
           "a block is of another pool", "it is of %" PRIu64 ",%" PRIu64, info.pool.first,
           info.pool.second);
}

/* The pool that served a request. For a request to the default pool it may be one with
 * use_on_oom. */
static int pool_that_served(const void *start, int wanted, int device)
{
    tarn_block_info info = {.size = sizeof info};
    MINE(tarn_pointer_info_get(start, &info));
    if (wanted >= 0 || (!info.pool.first && !info.pool.second))
        return wanted;
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].live && m.pools[i].use_on_oom && m.pools[i].device == device &&
            !is_held_by_graph(i) && m.pools[i].id.first == info.pool.first &&
            m.pools[i].id.second == info.pool.second)
            return i;
    if (is_night()) /* a pool that only the sleep still counts */
        return -2;
    fault("a block is of another pool",
          "a request to the default pool was served by %" PRIu64 ",%" PRIu64, info.pool.first,
          info.pool.second);
}

static void paint(struct block *block)
{
    struct flow *flow = &m.flows[block->flow];
    if (!takes_work(flow))
        return;
    block->value = (unsigned char)below(256);
    block->known = !captures_now(flow);
    struct stamp stamp = use_bytes(flow, block->start, block->size, -1, block->value,
                                   "a block holds what another has written");
    block_user(block, stamp);
    if (captures_now(flow))
        held_by(&m.captures[flow->capture], block);
}

/* Without caching, each block of the default pool must be a driver allocation of its own. */
static void check_alone(const struct block *block)
{
    tarn_mapping range;
    if (!m.uncached || block->pool != -1)
        return;
    MINE(tarn_mapping_get(block->start, &range));
    SO(range.address == block->start, "a block without caching shares its memory",
       "%p lies in what begins at %p", (void *)block->start, range.address);
}

/* Allocates a block for a flow. With `size` 0 the size and the call are random; otherwise by
 * tarn_alloc_on(). NULL: refused. */
static struct block *allocate_for(struct flow *flow, size_t size)
{
    struct block *slot = block_free_slot();
    void *got = NULL;
    int pool = -1;
    if (!slot || !flow_value(flow))
        return NULL;
    size_t alignment = !size && CHANCE(8) ? (size_t)1 << below(22) : 0;
    struct block block = {.live = true,
                          .size = size ? size : some_size(),
                          .device = flow->device,
                          .flow = (int)(flow - m.flows),
                          .life = flow->life,
                          .actor = m.actor,
                          .turn = m.turns[m.actor],
                          .inside = captures_now(flow) ? flow->capture : -1};
    m.reclaims = true;
    m.bounded = false;
    tarn_status status = TARN_OK;
    if (size) {
        pool = pool_routed(flow);
        status = CALL(tarn_alloc_on, flow->value, size, &got);
    } else {
        status = allocate(flow, &block, &pool, &got, &alignment);
    }
    m.reclaims = false;
    show("for flow %d in pool %d", block.flow, pool);
    bool suspended = pool >= 0 && m.pools[pool].state != TARN_POOL_RUNS;
    SO(!suspended || status, "a suspended pool gives a block", "%p", got);
    if (!well("an allocation", status,
              BIT(TARN_ERROR_OUT_OF_MEMORY) | (suspended ? BIT(TARN_ERROR_SUSPENDED) : 0) |
                  (m.bounded ? BIT(TARN_ERROR_NOT_READY) : 0))) {
        SO(got == NULL, "a failed allocation wrote its result", "%p", got);
        if (status == TARN_ERROR_OUT_OF_MEMORY)
            check_shortage(flow, block.size, pool);
        return NULL;
    }
    m.count.allocations++;
    block.start = got;
    block.pool = pool_that_served(got, pool, flow->device);
    block.kept = block.pool >= 0 ? m.pools[block.pool].kept : 0;
    MINE(tarn_usable_size_get(got, &block.usable));
    SO(block.usable >= block.size && (uintptr_t)got % (alignment > 512 ? alignment : 512) == 0,
       "a block is not what was asked for", "%p has %zu bytes of %zu, alignment %zu", got,
       block.usable, block.size, alignment);
    check_fresh((struct span_of_bytes){(uintptr_t)got, (uintptr_t)got + block.usable}, flow,
                block.pool, "a block", NULL);
    check_alone(&block);
    show("%p to %p, pool %d, for flow %d, life %u", got, (void *)((char *)got + block.usable),
         block.pool, block.flow, block.life);
    block_user(&block, (struct stamp){flow->lane, m.queued[flow->lane]});
    *slot = block;
    if (below(8))
        paint(slot);
    return slot;
}

static void op_allocate(void)
{
    struct flow *flow = some_flow(CHANCE(4) ? 1 : 0);
    if (flow)
        (void)allocate_for(flow, 0);
}

void block_want(struct flow *flow, size_t size)
{
    (void)allocate_for(flow, size);
}

/* Memory that a thread has at hand: it has just freed a block of that size on that stream. */
static struct {
    struct flow *flow;
    size_t size;
} at_hand;

static void have_at_hand(void)
{
    struct block *blocks[2] = {NULL, NULL};
    at_hand.flow = some_flow(0);
    if (at_hand.flow && captures_now(at_hand.flow))
        at_hand.flow = NULL;
    at_hand.size = 1 + below(CHANCE(4) ? 4 << 20 : 40 << 10);
    for (int i = 0; i < 2 && at_hand.flow; i++)
        blocks[i] = allocate_for(at_hand.flow, at_hand.size);
    if (blocks[1])
        block_free(blocks[1]);
    else
        at_hand.flow = NULL;
}

static void turn_caching_off(void)
{
    caching_turn(false);
}

static void want_at_hand_again(void)
{
    if (at_hand.flow->live)
        (void)allocate_for(at_hand.flow, at_hand.size);
}

/* One thread turns caching off while another has memory at hand, which the other must not reuse
 * from then on. */
static void op_caching_goes_off(void)
{
    int actor = m.actor;
    if (m.uncached)
        return;
    actor_run(actor, have_at_hand);
    if (!at_hand.flow)
        return;
    actor_run((actor + 1) % ACTORS, turn_caching_off);
    actor_run(actor, want_at_hand_again);
}

/* Allocates a small block in a pool; NULL if that is refused. */
static struct block *allocate_in(int pool, struct flow *flow, size_t size)
{
    struct block *block = block_free_slot();
    void *got = NULL;
    if (!block || !flow_value(flow) || captures_now(flow) ||
        !WELL(BIT(TARN_ERROR_OUT_OF_MEMORY), tarn_pool_alloc, m.pools[pool].pool, flow->value, size,
              &got))
        return NULL;
    *block = (struct block){.live = true,
                            .start = got,
                            .size = size,
                            .device = flow->device,
                            .flow = (int)(flow - m.flows),
                            .life = flow->life,
                            .pool = pool,
                            .kept = m.pools[pool].kept,
                            .actor = -1,
                            .inside = -1};
    MINE(tarn_usable_size_get(got, &block->usable));
    struct span_of_bytes bytes = {(uintptr_t)got, (uintptr_t)got + block->usable};
    block->live = false;
    check_fresh(bytes, flow, pool, "a block", NULL);
    block->live = true;
    show("%p to %p, pool %d, for flow %d, life %u", got, (void *)((char *)got + block->usable),
         pool, block->flow, block->life);
    block_user(block, (struct stamp){flow->lane, m.queued[flow->lane]});
    paint(block);
    return block;
}

void block_want_in(int pool)
{
    struct flow *flow = some_flow(m.pools[pool].device);
    if (flow)
        (void)allocate_in(pool, flow, 1 + below(CHANCE(2) ? 4000 : 4 << 20));
}

/* After a checkpoint, a block's stream goes, and blocks of another stream come to lie where its
 * blocks were. Then the checkpoint is restored. */
static void op_come_and_go(void)
{
    int pool = pool_any(-1, true);
    struct flow *flow = NULL;
    for (int i = 0; i < FLOWS && pool >= 0; i++)
        if (m.flows[i].live && m.flows[i].kind == ADOPTED &&
            m.flows[i].device == m.pools[pool].device)
            flow = &m.flows[i];
    if (!flow || flow->capture >= 0 || any_open(flow->device))
        return;
    size_t size = 1 + below(4 << 20);
    struct block *block = allocate_in(pool, flow, size);
    if (!block)
        return;
    checkpoint_make(pool);
    block_free(block);
    if (CHANCE(2))
        scope_begin_on(pool, flow);
    stream_renew(flow);
    (void)WELL(0, tarn_pool_trim, m.pools[pool].pool, 0);
    struct flow *next = some_flow(flow->device);
    if (next)
        (void)allocate_in(pool, next, size);
    checkpoints_restore(pool);
}

static struct block *some_block(void)
{
    int first = (int)below(BLOCKS);
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[(first + i) % BLOCKS].live)
            return &m.blocks[(first + i) % BLOCKS];
    return NULL;
}

static bool is_orphan(const struct block *block)
{
    return m.flows[block->flow].life != block->life;
}

bool order_after_users(struct flow *flow, const struct block *block)
{
    for (int i = 0; i < block->user_count; i++)
        if (!order_after_stamp(flow, block->users[i]))
            return false;
    return true;
}

/* Lets another stream use a block, as the headers demand: ordered after the block's stream, and
 * recorded. */
static bool use_elsewhere(struct block *block, struct flow *flow, bool record)
{
    struct flow *home = &m.flows[block->flow];
    if (captures_now(flow) || !takes_work(flow) || !flow_value(flow) ||
        !order_after_users(flow, block))
        return false;
    /* Earlier work of the home stream may be on the block */
    if (flow != home && !is_orphan(block)) {
        if (captures_now(home) || !takes_work(home))
            return false;
        order_after(flow, home);
    }
    if (!seal_off(block))
        return false;
    if (record &&
        !WELL(0, tarn_record_stream, block->start + below((unsigned)block->size), flow->value))
        return false;
    unsigned char value = (unsigned char)below(256);
    struct stamp stamp =
        use_bytes(flow, block->start, block->size, block->known ? block->value : -1, value,
                  "a block has lost its contents");
    block->value = value;
    block->known = true;
    block_user(block, stamp);
    return true;
}

static void use_here(struct block *block)
{
    struct flow *flow = &m.flows[block->flow];
    if (!takes_work(flow))
        return;
    if (!captures_now(flow)) {
        if (order_after_users(flow, block))
            (void)use_elsewhere(block, flow, false);
        return;
    }
    struct capture *capture = &m.captures[flow->capture];
    if (block->pool >= 0 && block->pool != capture->pool)
        return; /* its pool may be suspended while the graph exists */
    if (!seal_off(block))
        return;
    use_bytes(flow, block->start, block->size, -1, (int)below(256),
              "a block that a graph uses is another's");
    block->known = false;
    held_by(capture, block);
}

void block_use_by(struct block *block, struct flow *flow)
{
    if (flow && block_is_usable(block) && !block->held)
        (void)use_elsewhere(block, flow, flow->life != block->life);
}

static void op_use(void)
{
    struct block *block = some_block();
    if (!block || !block_is_usable(block) || block->held)
        return;
    if (CHANCE(3) || is_orphan(block))
        block_use_by(block, some_flow(block->device));
    else
        use_here(block);
}

/* Records a stream that captures, or one that does no work on the block. */
static void op_record(void)
{
    struct block *block = some_block();
    struct flow *flow = some_flow(-1);
    if (block && flow && block->device == flow->device && flow_value(flow))
        (void)WELL(0, tarn_record_stream, block->start, flow->value);
}

void freed(struct block *block)
{
    ghosts_of(block, "a block that was freed");
    if (block->inside >= 0 &&
        /* A block that is allocated and freed in a capture is used by the graph at each launch */
        block->held) {
        struct capture *capture = &m.captures[block->inside];
        for (int i = 0; i < capture->held_count; i++)
            if (capture->held[i] == block - m.blocks)
                capture->held[i--] = capture->held[--capture->held_count];
        capture->inside[capture->inside_count++] = (struct span_of_bytes){
            (uintptr_t)block->start, (uintptr_t)block->start + block->usable};
    }
    block->live = false;
}

static bool is_freed_inside(const struct block *block)
{
    const struct flow *flow = &m.flows[block->flow];
    if (block->inside < 0 || is_orphan(block) || !captures_now(flow) ||
        flow->capture != block->inside)
        return false;
    const struct capture *capture = &m.captures[block->inside];
    return block->held == 1 && block->pool >= 0 && block->pool == capture->pool &&
           capture->inside_count < RANGES;
}

/* False if a graph uses the block, unless the graph's own capture frees it. */
bool block_may_go(const struct block *block)
{
    return !block->held || is_freed_inside(block);
}

void block_free(struct block *block)
{
    struct flow *home = &m.flows[block->flow], *flow = some_flow(block->device);
    bool usable = block_is_usable(block) && !block->held;
    if (usable && block->known && CHANCE(2) && !is_orphan(block) && is_usable_by(home, m.actor) &&
        !captures_now(home))
        (void)use_elsewhere(block, home, false);
    tarn_status status;
    unsigned kind = below(5);
    if (kind == 0 && flow && usable && !captures_now(flow) && use_elsewhere(block, flow, true) &&
        CHANCE(2)) {
        status = CALL(tarn_free_on, block->start, flow->value);
    } else if (kind == 1) {
        struct event *event = &m.events[below(EVENTS)];
        status = event->live ? CALL(tarn_free_after, block->start, event->event)
                             : CALL(tarn_free, block->start);
        for (int i = 0; !status && event->live && event->recorded && i < LANES; i++)
            ghost_add((struct span_of_bytes){(uintptr_t)block->start,
                                             (uintptr_t)block->start + block->usable},
                      (struct stamp){i, event->after[i]}, -1,
                      "a block that was freed after an event");
    } else if (kind == 2 && flow && flow_value(flow) && !block->held) {
        status = CALL(tarn_free_on, block->start, flow->value);
    } else {
        status = CALL(tarn_free, block->start);
    }
    if (!well("a free", status, 0))
        return;
    unsigned char *start = block->start;
    show("%p to %p, pool %d, of flow %d, life %u, is freed", (void *)start,
         (void *)(start + block->usable), block->pool, block->flow, block->life);
    bool mine = block->actor == m.actor && block->turn == m.turns[m.actor] && !m.inject;
    freed(block);
    if (!mine || !CHANCE(40))
        return;
    status = CALL(tarn_free, start);
    SO(status == TARN_ERROR_DOUBLE_FREE || status == TARN_ERROR_INVALID_POINTER, "a second free",
       "gave %s", tarn_status_name(status));
}

static void op_free(void)
{
    struct block *block = some_block();
    if (block && block_may_go(block))
        block_free(block);
}

/* Frees nearly all blocks, as a program at the end of a phase does. */
static void op_free_many(void)
{
    unsigned most = 5 + below(30);
    for (unsigned i = 0; i < most; i++)
        op_free();
}

static void op_extend(void)
{
    struct block *block = some_block();
    if (!block || !block_is_usable(block) || block->held || is_orphan(block))
        return;
    size_t size = block->size + below(400000);
    struct flow *flow = &m.flows[block->flow];
    if (!WELL(BIT(TARN_ERROR_NO_ROOM), tarn_extend, block->start, size))
        return;
    struct span_of_bytes before = {(uintptr_t)block->start,
                                   (uintptr_t)block->start + block->usable};
    if (size > block->size)
        block->size = size;
    MINE(tarn_usable_size_get(block->start, &block->usable));
    SO(block->usable >= size, "a block is not what was asked for",
       "it was extended to %zu, not %zu", block->usable, size);
    check_fresh((struct span_of_bytes){before.end, (uintptr_t)block->start + block->usable}, flow,
                block->pool, "what a block was extended by", block);
    block->known = false;
    if (is_usable_by(flow, m.actor) && !captures_now(flow) && order_after_users(flow, block) &&
        seal_off(block))
        paint(block);
}

static void op_look(void)
{
    const struct block *block = some_block();
    if (block)
        check_info(block);
}

/* Allocates blocks of one size until the device is full. */
static void op_fill(void)
{
    for (unsigned i = 0; i < 12; i++)
        op_allocate();
}

void blocks_end(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &m.blocks[i];
        if (!block->live)
            continue;
        SURE(tarn_free, block->start);
        ghosts_of(block, "a block that was freed");
        block->live = false;
    }
}

const struct operation block_operations[] = {
    {"allocate", 40, NULL, op_allocate, false},
    {"use", 30, NULL, op_use, false},
    {"record", 3, NULL, op_record, false},
    {"free", 32, NULL, op_free, false},
    {"free many", 1, NULL, op_free_many, false},
    {"extend", 4, NULL, op_extend, false},
    {"look", 3, NULL, op_look, false},
    {"fill", 1, NULL, op_fill, false},
    {"come and go", 2, NULL, op_come_and_go, false},
    {"caching goes off", 2, NULL, op_caching_goes_off, true},
    {NULL, 0, NULL, NULL, false}};
