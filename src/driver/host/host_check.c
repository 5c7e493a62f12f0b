/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The checker: who owns which memory, what queued work uses, and its reports.
 *
 * An owner is a range, a stream and a generation that is never used twice; memory without an owner
 * has generation 0. A queued operation notes, for each range that it uses, the generation at that
 * time. Two operations of different streams that use the same bytes under different generations
 * must not be unfinished at the same time. This is checked when the later one starts. With the same
 * stream, or the same owner, the order is the program's responsibility.
 *
 * Owners, uses and the list of reports are under the streams lock, which every `_locked` function
 * here requires. Without host memory an owner or the text of a report may be lost, but never the
 * count of a report. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/lock.h"
#include "base/tree.h"
#include "driver/host/host.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct owner {
    struct tree_node node;
    uintptr_t address, end;
    uint64_t generation;
    driver_stream stream;
};

struct report {
    struct report *next;
    void (*function)(const char *, void *);
    void *user;
    void (*found)(const struct driver_conflict *);
    struct driver_conflict conflict;
    char text[640];
};

static int owner_order(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct owner, node)->address,
              y = TREE_ENTRY(b, struct owner, node)->address;
    return (x > y) - (x < y);
}

/* under the streams lock */
static struct tree owners = {.order = owner_order};
static uint64_t generations;
static struct report *reports, **reports_end = &reports;
static void (*report_function)(const char *, void *);
static void *report_user;
static void (*report_found)(const struct driver_conflict *);

/* Held while a report is delivered, so that they come one at a time, in order. */
static mutex deliver_lock = MUTEX_INITIALIZER(LOCK_HOST_DELIVER);
static struct object_pool owner_objects = OBJECT_POOL(struct owner);
static struct object_pool report_objects = OBJECT_POOL(struct report);

/* ---- Owners ---- */

static bool owner_ends_after(const struct tree_node *node, uint64_t key)
{
    return TREE_ENTRY(node, struct owner, node)->end > key;
}

/* The first owner of any part of [address, end), or NULL. */
static struct owner *owner_in(uintptr_t address, uintptr_t end)
{
    struct tree_node *node = tree_find_first(&owners, owner_ends_after, address);
    struct owner *owner = node ? TREE_ENTRY(node, struct owner, node) : NULL;
    return owner && owner->address < end ? owner : NULL;
}

static void owner_add(uintptr_t address, uintptr_t end, uint64_t generation, driver_stream stream)
{
    struct owner *owner = object_alloc(&owner_objects);
    if (!owner)
        return;
    owner->address = address;
    owner->end = end;
    owner->generation = generation;
    owner->stream = stream;
    tree_insert(&owners, &owner->node);
}

/* Removes all owners from [address, end). They keep what they own outside. */
static void owners_clear(uintptr_t address, uintptr_t end)
{
    for (struct owner *owner; (owner = owner_in(address, end));) {
        struct owner old = *owner;
        tree_remove(&owners, &owner->node);
        object_free(&owner_objects, owner);
        if (old.address < address)
            owner_add(old.address, address, old.generation, old.stream);
        if (old.end > end)
            owner_add(end, old.end, old.generation, old.stream);
    }
}

uint64_t host_owner_set(int device, uintptr_t address, size_t size, driver_stream stream)
{
    (void)device;
    if (size == 0 || !atomic_load_explicit(&host.checking, memory_order_relaxed))
        return 0;
    host_streams_lock();
    owners_clear(address, address + size);
    uint64_t generation = ++generations;
    owner_add(address, address + size, generation, stream);
    host_streams_unlock();
    return generation;
}

void host_owner_clear(int device, uintptr_t address, size_t size)
{
    (void)device;
    if (size == 0 || !atomic_load_explicit(&host.checking, memory_order_relaxed))
        return;
    host_streams_lock();
    owners_clear(address, address + size);
    host_streams_unlock();
}

/* ---- Uses ---- */

static const struct host_use *uses_of(const struct host_uses *uses)
{
    return uses->many ? uses->many : uses->few;
}

static bool use_push(struct host_uses *uses, uintptr_t address, uintptr_t end, uint64_t owner)
{
    const unsigned few = sizeof uses->few / sizeof *uses->few;
    unsigned room = uses->many ? uses->room : few;
    if (uses->count == room) {
        struct host_use *more = pages_alloc(2 * room * sizeof *more);
        if (!more)
            return false;
        memcpy(more, uses_of(uses), room * sizeof *more);
        pages_free(uses->many, room * sizeof *more);
        uses->many = more;
        uses->room = 2 * room;
    }
    struct host_use *use = (uses->many ? uses->many : uses->few) + uses->count++;
    *use = (struct host_use){.address = address, .size = end - address, .owner = owner};
    return true;
}

tarn_status host_uses_add_locked(struct host_uses *uses, uintptr_t address, size_t size)
{
    if (!atomic_load_explicit(&host.checking, memory_order_relaxed))
        return TARN_OK;
    uintptr_t end = address + size;
    bool fits = true;
    while (address < end && fits) {
        const struct owner *owner = owner_in(address, end);
        if (!owner || owner->address > address) {
            uintptr_t gap_end = owner ? owner->address : end;
            fits = use_push(uses, address, gap_end, 0);
            address = gap_end;
        } else {
            uintptr_t owned_end = owner->end < end ? owner->end : end;
            fits = use_push(uses, address, owned_end, owner->generation);
            address = owned_end;
        }
    }
    return fits ? TARN_OK
                : failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                         "host checker: no memory for what an operation uses");
}

bool host_uses_copy_locked(struct host_uses *uses, const struct host_uses *from)
{
    if (!atomic_load_explicit(&host.checking, memory_order_relaxed))
        return true;
    const struct host_use *use = uses_of(from);
    for (unsigned i = 0; i < from->count; i++)
        if (!use_push(uses, use[i].address, use[i].address + use[i].size, use[i].owner))
            return false;
    return true;
}

void host_uses_finish(struct host_uses *uses)
{
    pages_free(uses->many, uses->room * sizeof *uses->many);
    uses->many = NULL;
    uses->count = 0;
}

/* ---- Reports ---- */

static struct driver_side side_of(const struct host_use *use)
{
    struct driver_side side = {0};
    if (use)
        side = (struct driver_side){use->address, use->size, use->owner};
    return side;
}

/* `other` NULL: the other side is not work. */
static void report_locked(struct host_device *device, const struct host_use *mine,
                          const struct host_use *other, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void report_locked(struct host_device *device, const struct host_use *mine,
                          const struct host_use *other, const char *format, ...)
{
    atomic_fetch_add(&device->reports, 1);
    struct report *report = report_function || report_found ? object_alloc(&report_objects) : NULL;
    if (!report)
        return;
    report->function = report_function;
    report->user = report_user;
    report->found = report_found;
    report->conflict =
        (struct driver_conflict){device->number, report->text, {side_of(mine), side_of(other)}};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report->text, sizeof report->text, format, arguments);
    va_end(arguments);
    *reports_end = report;
    reports_end = &report->next;
    atomic_store(&host.unsettled, true);
}

static struct report *report_take(void)
{
    host_streams_lock();
    struct report *report = reports;
    if (report) {
        reports = report->next;
        if (!reports)
            reports_end = &reports;
    }
    host_streams_unlock();
    return report;
}

void host_check_deliver(void)
{
    mutex_lock(&deliver_lock);
    for (struct report *report; (report = report_take());) {
        if (report->function)
            report->function(report->text, report->user);
        if (report->found)
            report->found(&report->conflict);
        object_free(&report_objects, report);
    }
    mutex_unlock(&deliver_lock);
}

bool host_check_delivered_locked(void)
{
    return !reports;
}

static const char *kind_name(const struct host_op *op)
{
    static const char *const names[] = {"wait", "work", "fill", "copy", "call"};
    return names[op->kind];
}

/* "stream 0x7f.. of device 0", "the legacy stream of device 0" */
struct stream_text {
    char text[64];
};

static struct stream_text describe(const struct host_stream *stream)
{
    struct stream_text result;
    if (stream == &stream->device->legacy)
        snprintf(result.text, sizeof result.text, "the legacy stream of device %d",
                 stream->device->number);
    else
        snprintf(result.text, sizeof result.text, "stream %p of device %d", (const void *)stream,
                 stream->device->number);
    return result;
}

/* The use in `uses` that shares a byte with [address, address + size), or NULL. */
static const struct host_use *use_in(const struct host_uses *uses, uintptr_t address, size_t size)
{
    const struct host_use *use = uses_of(uses);
    for (unsigned i = 0; i < uses->count; i++)
        if (use[i].address < address + size && address < use[i].address + use[i].size)
            return &use[i];
    return NULL;
}

/* A pair of uses of the same byte under different owners. */
static bool uses_conflict(const struct host_uses *a, const struct host_uses *b,
                          const struct host_use **mine, const struct host_use **other)
{
    const struct host_use *x = uses_of(a), *y = uses_of(b);
    for (unsigned i = 0; i < a->count; i++)
        for (unsigned j = 0; j < b->count; j++)
            if (x[i].owner != y[j].owner && x[i].address < y[j].address + y[j].size &&
                y[j].address < x[i].address + x[i].size) {
                *mine = &x[i];
                *other = &y[j];
                return true;
            }
    return false;
}

static void check_pair(struct host_stream *stream, const struct host_op *op,
                       const struct host_stream *other_stream, const struct host_op *other)
{
    const struct host_use *mine, *theirs;
    if (!uses_conflict(&op->uses, &other->uses, &mine, &theirs))
        return;
    report_locked(stream->device, mine, theirs,
                  "%s #%" PRIu64 " on %s starts on [%#" PRIxPTR ", +%zu) of owner %" PRIu64
                  " while %s #%" PRIu64
                  " on %s, queued before it, has not finished with [%#" PRIxPTR
                  ", +%zu) of owner %" PRIu64,
                  kind_name(op), op->order, describe(stream).text, mine->address, mine->size,
                  mine->owner, kind_name(other), other->order, describe(other_stream).text,
                  theirs->address, theirs->size, theirs->owner);
}

/* `op` is the first of its stream, so no work of the stream is before it. */
static void check_against(struct host_stream *stream, const struct host_op *op,
                          const struct host_stream *other)
{
    for (const struct host_op *queued = other->head; queued && queued->order < op->order;
         queued = queued->next)
        check_pair(stream, op, other, queued);
}

void host_check_start_locked(struct host_stream *stream, const struct host_op *op)
{
    if (op->uses.count == 0)
        return;
    for (int i = 0; i < atomic_load(&host.devices); i++) {
        check_against(stream, op, &host.device[i].legacy);
        for (const struct host_stream *other = host.device[i].streams; other;
             other = other->next_live)
            check_against(stream, op, other);
    }
}

/* Whether an operation in the stream's queue uses the range. */
static bool stream_uses(const char *call, struct host_device *device,
                        const struct host_stream *stream, uintptr_t address, size_t size)
{
    for (const struct host_op *op = stream->head; op; op = op->next) {
        const struct host_use *use = use_in(&op->uses, address, size);
        if (!use)
            continue;
        if (call)
            report_locked(device, use, NULL,
                          "%s of [%#" PRIxPTR ", +%zu) while %s #%" PRIu64
                          " on %s has not finished with [%#" PRIxPTR ", +%zu) of owner %" PRIu64,
                          call, address, size, kind_name(op), op->order, describe(stream).text,
                          use->address, use->size, use->owner);
        return true;
    }
    return false;
}

bool host_check_in_use(const char *call, struct host_device *device, uintptr_t address, size_t size)
{
    bool used = false;
    host_streams_lock();
    for (int i = 0; i < atomic_load(&host.devices) && !used; i++) {
        used = stream_uses(call, device, &host.device[i].legacy, address, size);
        for (const struct host_stream *stream = host.device[i].streams; stream && !used;
             stream = stream->next_live)
            used = stream_uses(call, device, stream, address, size);
    }
    host_streams_unlock();
    return used;
}

/* ---- On and off ---- */

static void set_locked(bool on, void (*function)(const char *, void *), void *user,
                       void (*found)(const struct driver_conflict *))
{
    report_function = function;
    report_user = user;
    report_found = found;
    if (!on)
        owners_clear(0, UINTPTR_MAX);
    atomic_store(&host.checking, on);
}

static void set(bool on, void (*function)(const char *, void *), void *user,
                void (*found)(const struct driver_conflict *))
{
    host_check_deliver(); /* earlier reports belong to the earlier listener */
    mutex_lock(&deliver_lock);
    host_streams_lock();
    set_locked(on, function, user, found);
    host_streams_unlock();
    mutex_unlock(&deliver_lock);
}

tarn_status tarn_host_check_set(bool on, void (*report)(const char *text, void *user), void *user)
{
    struct host_device *first;
    tarn_status status = host_use(0, &first);
    if (!status)
        set(on, on ? report : NULL, user, NULL);
    return status;
}

tarn_status host_check(void (*found)(const struct driver_conflict *conflict))
{
    set(true, NULL, NULL, found);
    return TARN_OK;
}

void host_check_finish(void)
{
    host_check_deliver();
    host_streams_lock();
    set_locked(false, NULL, NULL, NULL);
    generations = 0;
    host_streams_unlock();
}
