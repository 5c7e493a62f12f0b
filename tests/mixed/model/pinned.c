/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned host memory, which belongs to no stream: work on it is recorded. A freed block must not be
 * handed out before that work has ended, or while a graph uses it. */
#include "mixed/model/mixed.h"

static struct span_of_bytes bytes_of(const struct pinned *block)
{
    return (struct span_of_bytes){(uintptr_t)block->start, (uintptr_t)block->start + block->usable};
}

static bool is_shared(struct span_of_bytes a, struct span_of_bytes b)
{
    return a.start < b.end && b.start < a.end;
}

static bool has_pinned(const struct capture *capture, struct span_of_bytes bytes)
{
    for (int i = 0; i < capture->pinned_count; i++)
        if (is_shared(capture->pinned[i], bytes))
            return true;
    return false;
}

static int graphs_of(const struct pinned *block)
{
    int count = 0;
    for (int i = 0; i < CAPTURES; i++)
        count += has_pinned(&m.captures[i], bytes_of(block));
    return count;
}

static bool is_of_a_graph(const struct pinned *block)
{
    return graphs_of(block) > 0;
}

/* The caller may write to a new block at once, so all work of its earlier owners must have
 * ended. */
static void check_free(const struct pinned *block)
{
    struct span_of_bytes bytes = bytes_of(block);
    for (int i = 0; i < PINNED; i++)
        SO(!m.pinned[i].live || bytes.start >= bytes_of(&m.pinned[i]).end ||
               bytes_of(&m.pinned[i]).start >= bytes.end,
           "what somebody has was handed out", "pinned block %d has %p, and so has another", i,
           (void *)m.pinned[i].start);
    for (int i = 0; i < CAPTURES; i++)
        for (int k = 0; k < m.captures[i].pinned_count; k++)
            SO(!is_shared(bytes, m.captures[i].pinned[k]),
               "pinned memory of a graph was handed out", "%p of %zu bytes, capture %d",
               (void *)block->start, block->usable, i);
    for (int i = 0; i < m.ghost_count; i++)
        SO(m.ghosts[i].bytes.start >= bytes.end || bytes.start >= m.ghosts[i].bytes.end ||
               is_done(m.ghosts[i].stamp),
           "pinned memory was handed out while work is on it", "%p: work %" PRIu32 " of lane %d",
           (void *)block->start, m.ghosts[i].stamp.number, m.ghosts[i].stamp.lane);
}

static void allocate(size_t size)
{
    struct pinned block = {.live = true, .size = size};
    struct flow *flow = some_flow(-1);
    void *got = NULL;
    int at = 0;
    while (at < PINNED && m.pinned[at].live)
        at++;
    if (at == PINNED || !flow || flow->capture >= 0 || !flow_value(flow))
        return;
    tarn_stream stream = CHANCE(2) ? flow->value : TARN_STREAM_CURRENT;
    tarn_status status = CALL(tarn_pinned_alloc, stream, block.size, &got);
    if (!well("a pinned allocation", status, BIT(TARN_ERROR_OUT_OF_MEMORY)))
        return;
    block.start = got;
    MINE(tarn_usable_size_get(got, &block.usable));
    SO(block.usable >= block.size && (uintptr_t)got % 256 == 0, "a block is not what was asked for",
       "%p has %zu of %zu", got, block.usable, block.size);
    check_free(&block);
    memset(got, 0xa5, block.size);
    block.known = true;
    block.value = 0xa5;
    m.pinned[at] = block;
}

static void op_allocate(void)
{
    allocate(1 + below(CHANCE(3) ? 3 << 20 : 40000));
}

static struct pinned *some_block(void)
{
    int first = (int)below(PINNED);
    for (int i = 0; i < PINNED; i++)
        if (m.pinned[(first + i) % PINNED].live)
            return &m.pinned[(first + i) % PINNED];
    return NULL;
}

/* Orders a flow after the launches of graphs that use these bytes, including destroyed graphs, as
 * the block's new owner must. */
static bool order_after_ghosts(struct flow *flow, struct span_of_bytes bytes)
{
    for (int i = 0; i < m.ghost_count; i++)
        if (is_shared(m.ghosts[i].bytes, bytes) && !order_after_stamp(flow, m.ghosts[i].stamp))
            return false;
    return true;
}

static void op_use(void)
{
    struct pinned *block = some_block();
    struct flow *flow = some_flow(-1);
    if (!block || is_of_a_graph(block) || !flow || flow->capture >= 0 || !takes_work(flow) ||
        !flow_value(flow) || (block->used && !order_after_stamp(flow, block->last)) ||
        !order_after_ghosts(flow, bytes_of(block)))
        return;
    if (!WELL(0, tarn_record_stream, block->start + below((unsigned)block->size), flow->value))
        return;
    unsigned char value = (unsigned char)below(256);
    block->last = use_bytes(flow, block->start, block->size, block->known ? block->value : -1,
                            value, "a pinned block has lost its contents");
    block->value = value;
    block->used = true;
}

static void block_free_pinned(struct pinned *block)
{
    if (!block || !WELL(0, tarn_free, block->start))
        return;
    if (block->used)
        ghost_add(bytes_of(block), block->last, -1, "a pinned block that was freed");
    block->live = false;
}

static void op_free(void)
{
    block_free_pinned(some_block());
}

/* ---- Graphs ---- */

/* A known capture uses a block. Each launch does too, even after the block was freed. */
static void capture_uses(struct capture *capture, const struct pinned *block)
{
    struct flow *flow = &m.flows[capture->flow];
    if (capture->state != OPEN || capture->how == UNKNOWN || !is_usable_by(flow, m.actor) ||
        !captures_now(flow) || !flow_value(flow) || capture->pinned_count == PINNED_OF_GRAPH ||
        has_pinned(capture, bytes_of(block)) ||
        !WELL(0, tarn_record_stream, block->start, flow->value))
        return;
    capture->pinned[capture->pinned_count++] = bytes_of(block);
    use_bytes(flow, block->start, block->size, -1, (int)below(256),
              "pinned memory of a graph is another's");
}

/* An open capture, if there is one. */
static int capture_open(void)
{
    int first = (int)below(CAPTURES), one = first;
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[(first + i) % CAPTURES].state == OPEN)
            one = (first + i) % CAPTURES;
    return one;
}

/* A block that graphs use and that this capture does not use yet; if there is none, any block. */
static struct pinned *block_of_others(const struct capture *capture)
{
    struct pinned *block = some_block();
    unsigned count = 0;
    for (int i = 0; i < PINNED; i++)
        if (m.pinned[i].live && is_of_a_graph(&m.pinned[i]) &&
            !has_pinned(capture, bytes_of(&m.pinned[i])) && CHANCE(++count))
            block = &m.pinned[i];
    return block;
}

/* Lets all open captures, or one of them, use a few blocks. */
static void op_capture(void)
{
    int one = capture_open();
    for (unsigned count = 1 + below(3); count > 0; count--) {
        struct pinned *block = CHANCE(4) ? some_block() : block_of_others(&m.captures[one]);
        bool all = CHANCE(2);
        for (int i = 0; i < CAPTURES && block; i++)
            if (all || i == one)
                capture_uses(&m.captures[i], block);
        if (block && is_of_a_graph(block))
            block->known = false;
    }
}

/* Frees blocks of graphs, destroys some of these graphs, and requests blocks of the same sizes. */
static void op_free_captured(void)
{
    size_t sizes[CAPTURES * PINNED_OF_GRAPH];
    int count = 0;
    for (int i = 0; i < PINNED; i++)
        if (m.pinned[i].live && is_of_a_graph(&m.pinned[i]) &&
            CHANCE(graphs_of(&m.pinned[i]) > 1 ? 2 : 4))
            block_free_pinned(&m.pinned[i]);
    for (int i = 0; i < CAPTURES; i++) {
        struct capture *capture = &m.captures[i];
        for (int k = 0; k < capture->pinned_count; k++)
            sizes[count++] = capture->pinned[k].end - capture->pinned[k].start;
        if (capture->pinned_count && capture->state == GRAPH && CHANCE(2))
            graph_destroy(capture);
    }
    for (int i = 0; i < count; i++)
        allocate(sizes[i]);
}

bool order_after_pinned(struct flow *flow, const struct capture *capture)
{
    for (int i = 0; i < PINNED; i++)
        if (m.pinned[i].live && m.pinned[i].used && has_pinned(capture, bytes_of(&m.pinned[i])) &&
            !order_after_stamp(flow, m.pinned[i].last))
            return false;
    for (int i = 0; i < capture->pinned_count; i++)
        if (!order_after_ghosts(flow, capture->pinned[i]))
            return false;
    return true;
}

void pinned_launched(const struct capture *capture)
{
    for (int i = 0; i < capture->pinned_count; i++)
        ghost_add(capture->pinned[i], capture->launched, -1, "a graph's pinned memory");
}

bool pinned_is_without_graphs(void)
{
    for (int i = 0; i < CAPTURES; i++)
        if (m.captures[i].pinned_count)
            return false;
    for (int i = 0; i < m.ghost_count; i++)
        if (strcmp(m.ghosts[i].what, "a graph's pinned memory") == 0 && !is_done(m.ghosts[i].stamp))
            return false;
    return true;
}

static void op_trim(void)
{
    (void)WELL(any_open(-1) ? BIT(TARN_ERROR_CAPTURE) : 0, tarn_pinned_trim,
               CHANCE(2) ? 0 : below(8 << 20));
}

void pinned_end(void)
{
    tarn_pinned_stats stats = {.size = sizeof stats};
    for (int i = 0; i < PINNED; i++)
        if (m.pinned[i].live) {
            SURE(tarn_free, m.pinned[i].start);
            m.pinned[i].live = false;
        }
    SURE0(tarn_pinned_forget_captures);
    SURE(tarn_pinned_trim, 0);
    MINE(tarn_pinned_stats_get(&stats));
    SO(stats.active_bytes.current == 0 && stats.allocated_bytes.current == 0,
       "pinned memory is left", "%" PRId64 " bytes active, %" PRId64 " allocated",
       stats.active_bytes.current, stats.allocated_bytes.current);
}

const struct operation pinned_operations[] = {
    {"allocate pinned", 6, NULL, op_allocate, false},
    {"use pinned", 8, NULL, op_use, false},
    {"free pinned", 6, NULL, op_free, false},
    {"pinned in a capture", 8, NULL, op_capture, false},
    {"free captured pinned", 3, NULL, op_free_captured, false},
    {"trim pinned", 1, NULL, op_trim, false},
    {NULL, 0, NULL, NULL, false}};
