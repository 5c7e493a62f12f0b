/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns points and orders. An order is a set of nodes: a stream's last nodes and all nodes before
 * them. When the last nodes have moved on, only the nodes in between are asked about. This works
 * while the new last nodes come after all old ones. If the program has set them back
 * (cuStreamUpdateCaptureDependencies()), the set is built again. An edge that is added to a known
 * node later is missed: that costs a chance, and proves nothing wrong. Under the heap's lock. */
#include "memory/heap/idle/capture_order.h"
#include "base/pages.h"
#include "device/capture.h"
#include "memory/settings/config.h"

#include <string.h>

struct tips {
    driver_node *nodes;
    unsigned count, room;
};

struct capture_order {
    uint64_t capture;
    bool given_up; /* nothing can be found out in this capture */
    /* The stream's last nodes that `nodes` was built from; and its last nodes now. */
    struct tips tips, next;
    unsigned count, room; /* room: 0 or a power of two */
    uint32_t walk;        /* the number of the last walk */
    driver_node *nodes;   /* in the order in which they were found */
    uint32_t *met;        /* per node: the last walk that met it */
    uint32_t *places;     /* 2 * room: 1 + an index of `nodes`, by hash; 0: free */
};

static struct object_pool points = OBJECT_POOL(struct point);
static struct object_pool orders = OBJECT_POOL(struct capture_order);

/* ---- Points ---- */

static bool ask(const struct stream *stream, struct driver_capture *capture)
{
    return !stream_is_found(stream) && !stream_ask_capture_silently(stream, capture) &&
           capture->state == DRIVER_CAPTURE_ACTIVE;
}

uint64_t capture_order_of(const struct stream *stream)
{
    struct driver_capture capture;
    if (!memory_config()->graph_capture_record_stream_reuse ||
        !captures_open(device_at(stream->device)))
        return 0;
    return ask(stream, &capture) ? capture.id : 0;
}

struct point *point_take(const struct stream *stream, uint64_t id)
{
    struct driver_capture capture;
    struct point *point = object_alloc(&points);
    if (!point)
        return NULL;
    if (!ask(stream, &capture) || capture.id != id || capture.partial ||
        capture.node_count > POINT_NODES) {
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

/* ---- The set ---- */

/* The entry of a node in `places`, or the free entry for it. */
static uint32_t *place_of(const struct capture_order *order, driver_node node)
{
    const unsigned mask = 2 * order->room - 1;
    unsigned at = (unsigned)(((uint64_t)(uintptr_t)node >> 4) * 0x9e3779b97f4a7c15u >> 40);
    while (order->places[at & mask] && order->nodes[order->places[at & mask] - 1] != node)
        at++;
    return &order->places[at & mask];
}

static void set_free(struct capture_order *order)
{
    pages_free(order->nodes, order->room * sizeof *order->nodes);
    pages_free(order->met, order->room * sizeof *order->met);
    pages_free(order->places, 2 * order->room * sizeof *order->places);
    order->nodes = NULL;
    order->met = order->places = NULL;
    order->room = order->count = 0;
}

static bool set_enlarge(struct capture_order *order)
{
    struct capture_order larger = *order;
    larger.room = order->room ? 2 * order->room : 256;
    larger.nodes = pages_alloc(larger.room * sizeof *larger.nodes);
    larger.met = pages_alloc(larger.room * sizeof *larger.met);
    larger.places = pages_alloc(2 * larger.room * sizeof *larger.places);
    if (!larger.nodes || !larger.met || !larger.places) {
        set_free(&larger);
        return false;
    }
    if (order->count) {
        memcpy(larger.nodes, order->nodes, order->count * sizeof *larger.nodes);
        memcpy(larger.met, order->met, order->count * sizeof *larger.met);
    }
    for (unsigned i = 0; i < order->count; i++)
        *place_of(&larger, larger.nodes[i]) = i + 1;
    set_free(order);
    *order = larger;
    return true;
}

/* Notes that the walk has met a node. Adds it if it is new. False if there is no room. */
static bool meet(struct capture_order *order, driver_node node)
{
    if (order->count == order->room && !set_enlarge(order))
        return false;
    uint32_t *place = place_of(order, node);
    if (!*place) {
        if (order->count == ORDER_NODES)
            return false;
        order->nodes[order->count++] = node;
        *place = order->count;
    }
    order->met[*place - 1] = order->walk;
    return true;
}

/* ---- Walking ---- */

/* Adds the nodes of `next` and all new nodes before them. False if something cannot be found
 * out. */
static bool walk(struct capture_order *order, int device)
{
    driver_node before[ORDER_BEFORE];
    unsigned next = order->count;
    bool well = true;
    order->walk++;
    for (unsigned i = 0; i < order->next.count && well; i++)
        well = meet(order, order->next.nodes[i]);
    for (; well && next < order->count; next++) {
        size_t found = 0;
        well = !driver->node_before(device, order->nodes[next], before, ORDER_BEFORE, &found) &&
               found <= ORDER_BEFORE;
        for (size_t i = 0; i < found && well; i++)
            well = meet(order, before[i]);
    }
    return well;
}

/* Whether the last walk has met all previous last nodes. Otherwise nodes before these may not be
 * before the new last nodes. */
static bool is_behind_the_old_tips(const struct capture_order *order)
{
    for (unsigned i = 0; i < order->tips.count; i++)
        if (order->met[*place_of(order, order->tips.nodes[i]) - 1] != order->walk)
            return false;
    return true;
}

static void start_anew(struct capture_order *order)
{
    order->count = order->tips.count = 0;
    if (order->room)
        memset(order->places, 0, 2 * order->room * sizeof *order->places);
}

static bool is_same(const struct tips *tips, const struct tips *others)
{
    return tips->count == others->count &&
           (!tips->count || !memcmp(tips->nodes, others->nodes, tips->count * sizeof *tips->nodes));
}

static bool follow(struct capture_order *order, int device)
{
    if (is_same(&order->tips, &order->next))
        return true;
    bool well = walk(order, device);
    if (well && !is_behind_the_old_tips(order)) {
        start_anew(order);
        well = walk(order, device);
    }
    if (well) {
        struct tips before = order->tips;
        order->tips = order->next;
        order->next = before;
        return true;
    }
    start_anew(order);
    set_free(order);
    order->given_up = true;
    return false;
}

/* Copies last nodes, which the driver's next call overwrites. */
static bool tips_copy(struct tips *tips, const driver_node *nodes, size_t count)
{
    if (count > ORDER_NODES)
        return false;
    if (count > tips->room) {
        unsigned room = tips->room ? tips->room : 64;
        while (room < count)
            room *= 2;
        driver_node *larger = pages_alloc(room * sizeof *larger);
        if (!larger)
            return false;
        pages_free(tips->nodes, tips->room * sizeof *tips->nodes);
        tips->nodes = larger;
        tips->room = room;
    }
    if (count)
        memcpy(tips->nodes, nodes, count * sizeof *nodes);
    tips->count = (unsigned)count;
    return true;
}

bool capture_order_learn(struct capture_order **place, const struct stream *stream)
{
    struct driver_capture capture;
    if (!ask(stream, &capture)) {
        capture_order_destroy(place);
        return false;
    }
    struct capture_order *order = *place;
    if (!order)
        order = *place = object_alloc(&orders);
    if (!order)
        return false;
    if (order->capture != capture.id) {
        start_anew(order);
        order->given_up = false;
        order->capture = capture.id;
    }
    if (order->given_up || capture.partial ||
        !tips_copy(&order->next, capture.nodes, capture.node_count))
        return false;
    return follow(order, stream->device);
}

bool capture_order_is_of(const struct capture_order *order, const struct point *point)
{
    return order->capture == point->capture;
}

bool capture_order_includes(const struct capture_order *order, const struct point *point)
{
    bool all = true;
    for (unsigned i = 0; i < point->count && all; i++)
        all = order->room && *place_of(order, point->nodes[i]);
    return all;
}

void capture_order_destroy(struct capture_order **place)
{
    if (!*place)
        return;
    set_free(*place);
    pages_free((*place)->tips.nodes, (*place)->tips.room * sizeof(driver_node));
    pages_free((*place)->next.nodes, (*place)->next.room * sizeof(driver_node));
    object_free(&orders, *place);
    *place = NULL;
}
