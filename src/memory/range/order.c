/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what is known of the work that decommitted pages wait for: per stream at most two marks, and
 * the epoch up to which work has ended. A mark ends the range's epoch before it is recorded, so a
 * page that has this epoch was decommitted before it, and the work was queued before that. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/range/range.h"

static struct object_pool order_objects = OBJECT_POOL(struct order);

struct order *order_of_locked(struct tarn_range *range, const struct page *page)
{
    struct stream *stream = atomic_load(&page->stream);
    unsigned incarnation = (unsigned)atomic_load(&page->owner);
    for (struct order *order = range->orders; order; order = order->next)
        if (order->stream == stream && order->incarnation == incarnation)
            return order;
    struct order *order = object_alloc(&order_objects);
    if (!order)
        return NULL;
    *order = (struct order){.next = range->orders, .stream = stream, .incarnation = incarnation};
    range->orders = order;
    return order;
}

/* Begins a pass: orders are asked anew. Drops the orders of retired streams that have no marks:
 * what they know can be asked again. */
void orders_begin_locked(struct tarn_range *range)
{
    for (struct order **place = &range->orders; *place;) {
        struct order *order = *place;
        order->asked = false;
        order->waited = 0;
        if (order->marks[0] || atomic_load(&order->stream->incarnation) == order->incarnation) {
            place = &order->next;
            continue;
        }
        *place = order->next;
        object_free(&order_objects, order);
    }
}

void orders_destroy(struct tarn_range *range)
{
    for (struct order *order = range->orders, *next; order; order = next) {
        next = order->next;
        mark_release(order->marks[0]);
        mark_release(order->marks[1]);
        object_free(&order_objects, order);
    }
    range->orders = NULL;
}

static void first_ended(struct order *order)
{
    order->done = order->epochs[0];
    mark_release(order->marks[0]);
    order->marks[0] = order->marks[1];
    order->epochs[0] = order->epochs[1];
    order->marks[1] = NULL;
}

/* Asks the driver about the marks, the older one first. */
static void look(struct order *order)
{
    while (order->marks[0] && mark_query(order->marks[0]) == TARN_OK)
        first_ended(order);
}

/* A new mark of the stream; NULL if its work has ended up to the epoch that it returns. */
static tarn_status record(struct tarn_range *range, const struct order *order, uint64_t *epoch,
                          struct mark **mark)
{
    *mark = NULL;
    *epoch = atomic_fetch_add(&range->epoch, 1);
    return mark_of_stream(order->stream, order->incarnation, mark);
}

/* The newest mark of an order that covers an epoch, or NULL. */
static struct mark *covering(const struct order *order, uint64_t epoch)
{
    for (int i = 0; i < 2; i++)
        if (order->marks[i] && order->epochs[i] >= epoch)
            return order->marks[i];
    return NULL;
}

/* Records a mark that covers all epochs until now, if the order has room for it. */
static tarn_status cover(struct tarn_range *range, struct order *order)
{
    struct mark *mark;
    uint64_t epoch;
    int at = order->marks[0] ? 1 : 0;
    if (order->marks[1])
        return TARN_OK;
    tarn_status status = record(range, order, &epoch, &mark);
    if (status)
        return status;
    if (mark) {
        order->marks[at] = mark;
        order->epochs[at] = epoch;
        return TARN_OK;
    }
    mark_release(order->marks[0]);
    order->marks[0] = NULL;
    order->done = epoch;
    return TARN_OK;
}

/* A page that is nobody's since a failure has no stream: no work was ever queued for it. */
static bool has_no_work(const struct page *page)
{
    return !atomic_load(&page->stream);
}

bool page_is_idle_locked(struct tarn_range *range, struct page *page)
{
    struct error_before before;
    uint64_t epoch = atomic_load(&page->epoch);
    if (has_no_work(page))
        return true;
    struct order *order = order_of_locked(range, page);
    if (!order)
        return false;
    if (epoch <= order->done)
        return true;
    bool covered = covering(order, epoch);
    if (order->asked && covered)
        return false;
    error_attempt_begin(&before);
    if (!covered)
        (void)cover(range, order);
    look(order);
    order->asked = true;
    error_attempt_end(&before, TARN_OK);
    return epoch <= order->done;
}

bool page_wants_mark_locked(struct tarn_range *range, struct page *page)
{
    uint64_t epoch = atomic_load(&page->epoch);
    const struct order *order = has_no_work(page) ? NULL : order_of_locked(range, page);
    return order && epoch > order->done && !covering(order, epoch);
}

static tarn_status refuse_captured(tarn_status status, const struct order *order)
{
    if (status != TARN_ERROR_CAPTURE)
        return status;
    return failed(TARN_ERROR_CAPTURE,
                  "stream %#llx of device %d captures, and its work before that used the pages: "
                  "end the capture first",
                  (unsigned long long)stream_value(order->stream), order->stream->device);
}

tarn_status page_mark_now_locked(struct tarn_range *range, struct page *page, struct mark **mark)
{
    uint64_t epoch;
    *mark = NULL;
    if (has_no_work(page))
        return TARN_OK;
    struct order *order = order_of_locked(range, page);
    if (!order)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to note what a page waits for");
    return refuse_captured(record(range, order, &epoch, mark), order);
}

tarn_status page_mark_locked(struct tarn_range *range, struct page *page, struct mark **mark)
{
    *mark = NULL;
    if (has_no_work(page))
        return TARN_OK;
    struct order *order = order_of_locked(range, page);
    if (!order)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to note what a page waits for");
    uint64_t epoch = atomic_load(&page->epoch);
    tarn_status status = TARN_OK;
    if (epoch > order->done && !covering(order, epoch))
        status = cover(range, order);
    if (status)
        return refuse_captured(status, order);
    look(order);
    if (epoch <= order->done)
        return TARN_OK;
    *mark = mark_keep(covering(order, epoch));
    return *mark ? TARN_OK : page_mark_now_locked(range, page, mark);
}
