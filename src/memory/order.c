/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns points and orders. An order is the set of nodes that a stream's last nodes are or come after, closed under what these wait for:
 * so when the last nodes have moved on, only what lies between is asked about. That holds while the new last nodes are behind all of
 * the old ones; where a program has set them back (cuStreamUpdateCaptureDependencies) the set is made anew. Edges that are added to a
 * node later only make an order larger: what is missed is a chance. Under the lock of whoever owns the object. */
#include "memory/order.h"
#include "base/pages.h"
#include "device/capture.h"

#include <string.h>

#define BEFORE 256 /* the most nodes that one node may wait for */

struct order {
    uint64_t capture;
    bool given_up; /* for this capture */
    unsigned tip_count, count, room;
    driver_node tips[POINT_NODES]; /* the stream's last nodes, of which the rest follows */
    driver_node *nodes;            /* `room`: in the order in which they were found */
    uint32_t *places;              /* 2 * room, a power of two: 1 + an index of `nodes`, by hash; 0: free */
};

static atomic_bool is_allowed;
static struct object_pool points = OBJECT_POOL(struct point);
static struct object_pool orders = OBJECT_POOL(struct order);

void order_allow(bool allowed)
{
    atomic_store(&is_allowed, allowed);
}

/* ---- Points ------------------------------------------------------------------------------------------------------- */

static bool ask(const struct stream *stream, struct driver_capture *capture)
{
    return !stream_ask_capture(stream, capture) && capture->state == DRIVER_CAPTURE_ACTIVE;
}

uint64_t order_capture(const struct stream *stream)
{
    struct driver_capture capture;
    if (!atomic_load_explicit(&is_allowed, memory_order_relaxed) || !captures_open(device_at(stream->device)))
        return 0;
    return ask(stream, &capture) ? capture.id : 0;
}

struct point *point_take(const struct stream *stream, uint64_t id)
{
    struct driver_capture capture;
    struct point *point = object_alloc(&points);
    if (!point)
        return NULL;
    if (!ask(stream, &capture) || capture.id != id || capture.partial || capture.node_count > POINT_NODES) {
        object_free(&points, point);
        return NULL;
    }
    point->capture = id;
    point->count = (unsigned)capture.node_count;
    for (unsigned i = 0; i < point->count; i++)
        point->nodes[i] = capture.nodes[i];
    return point;
}

void point_destroy(struct point *point)
{
    object_free(&points, point);
}

/* ---- The set ------------------------------------------------------------------------------------------------------ */

/* Where a node is in `places`, or the free place for it. */
static uint32_t *place_of(const struct order *order, driver_node node)
{
    const unsigned mask = 2 * order->room - 1;
    unsigned at = (unsigned)(((uint64_t)(uintptr_t)node >> 4) * 0x9e3779b97f4a7c15u >> 40);
    while (order->places[at & mask] && order->nodes[order->places[at & mask] - 1] != node)
        at++;
    return &order->places[at & mask];
}

static bool has(const struct order *order, driver_node node)
{
    return order->room && *place_of(order, node);
}

static void set_free(struct order *order)
{
    pages_free(order->nodes, order->room * sizeof *order->nodes);
    pages_free(order->places, 2 * order->room * sizeof *order->places);
    order->nodes = NULL;
    order->places = NULL;
    order->room = order->count = 0;
}

static bool set_enlarge(struct order *order)
{
    struct order larger = *order;
    larger.room = order->room ? 2 * order->room : 256;
    larger.nodes = pages_alloc(larger.room * sizeof *larger.nodes);
    larger.places = pages_alloc(2 * larger.room * sizeof *larger.places);
    if (!larger.nodes || !larger.places) {
        set_free(&larger);
        return false;
    }
    if (order->count)
        memcpy(larger.nodes, order->nodes, order->count * sizeof *larger.nodes);
    for (unsigned i = 0; i < order->count; i++)
        *place_of(&larger, larger.nodes[i]) = i + 1;
    set_free(order);
    *order = larger;
    return true;
}

static bool add(struct order *order, driver_node node)
{
    if (order->count == ORDER_NODES || (order->count == order->room && !set_enlarge(order)))
        return false;
    uint32_t *place = place_of(order, node);
    if (!*place) {
        order->nodes[order->count++] = node;
        *place = order->count;
    }
    return true;
}

/* ---- Walking ------------------------------------------------------------------------------------------------------ */

/* Notes which of the old tips have been met. */
static void meet(const struct order *order, driver_node node, uint32_t *met)
{
    for (unsigned i = 0; i < order->tip_count; i++)
        if (order->tips[i] == node)
            *met |= 1u << i;
}

/* Adds the nodes and all that they wait for. False where something cannot be found out. */
static bool walk(struct order *order, int device, const driver_node *tips, unsigned count, uint32_t *met)
{
    driver_node before[BEFORE];
    unsigned next = order->count;
    bool well = true;
    for (unsigned i = 0; i < count && well; i++) {
        meet(order, tips[i], met);
        well = add(order, tips[i]);
    }
    for (; well && next < order->count; next++) {
        size_t found = 0;
        well = !driver->node_before(device, order->nodes[next], before, BEFORE, &found) && found <= BEFORE;
        for (size_t i = 0; i < found && well; i++) {
            meet(order, before[i], met);
            well = add(order, before[i]);
        }
    }
    return well;
}

static void start_anew(struct order *order)
{
    order->count = order->tip_count = 0;
    if (order->room)
        memset(order->places, 0, 2 * order->room * sizeof *order->places);
}

static bool follow(struct order *order, int device, const driver_node *tips, unsigned count)
{
    uint32_t met = 0;
    const uint32_t all = (1u << order->tip_count) - 1;
    if (count == order->tip_count && !memcmp(tips, order->tips, count * sizeof *tips))
        return true;
    bool well = walk(order, device, tips, count, &met);
    if (well && met != all) { /* not behind all that it was behind before */
        start_anew(order);
        well = walk(order, device, tips, count, &met);
    }
    if (well) {
        memcpy(order->tips, tips, count * sizeof *tips);
        order->tip_count = count;
        return true;
    }
    start_anew(order);
    set_free(order);
    order->given_up = true;
    return false;
}

bool order_learn(struct order **place, const struct stream *stream)
{
    struct driver_capture capture;
    driver_node tips[POINT_NODES];
    if (!ask(stream, &capture)) {
        order_destroy(place);
        return false;
    }
    if (capture.partial || capture.node_count > POINT_NODES)
        return false;
    struct order *order = *place;
    if (!order && !(order = *place = object_alloc(&orders)))
        return false;
    const unsigned count = (unsigned)capture.node_count;
    for (unsigned i = 0; i < count; i++) /* gone with the next call */
        tips[i] = capture.nodes[i];
    if (order->capture != capture.id) {
        start_anew(order);
        order->given_up = false;
        order->capture = capture.id;
    }
    return !order->given_up && follow(order, stream->device, tips, count);
}

bool order_includes(const struct order *order, const struct point *point)
{
    bool all = order->capture == point->capture;
    for (unsigned i = 0; i < point->count && all; i++)
        all = has(order, point->nodes[i]);
    return all;
}

void order_destroy(struct order **place)
{
    if (!*place)
        return;
    set_free(*place);
    object_free(&orders, *place);
    *place = NULL;
}
