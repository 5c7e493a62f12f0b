/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks blocks. Their bytes are copied to the host, on a stream of debug mode's own, when the work
 * that may touch them has ended. `working` is held over all of it, also over the waits for these
 * copies, which depend on no other work. It is taken with no other lock held, and heaps' locks are
 * not taken under it. Only its holder touches blocks that are ready or in quarantine. If the driver
 * refuses a copy, the block is not checked. If a copy cannot be waited for, the block is checked
 * later. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/debug/debug_block.h"

#include <string.h>

#define BUFFER ((size_t)1 << 20) /* bytes copied at once */

static mutex working = MUTEX_INITIALIZER(LOCK_WORKING);

/* All under `working`. */
static struct worker {
    struct device *device;
    driver_stream stream;
    bool made; /* `stream` was created */
    /* Something is queued on it and was not waited for. */
    bool unsettled;
    struct debug_block *held_first, **held_end; /* the quarantine, oldest first */
    size_t held_bytes;
} workers[TARN_MAX_DEVICES];
/* BUFFER bytes, or NULL; only copies that are not waited for yet write to it. */
static unsigned char *buffer;

void debug_pause(void)
{
    mutex_lock(&working);
}

void debug_go_on(void)
{
    mutex_unlock(&working);
}

/* The device's stream -------------------------------------------------------------------------- */

/* Waits for queued copies. False if the driver cannot wait, and the device is not lost. */
static bool settle(struct worker *worker)
{
    if (!worker->unsettled)
        return true;
    tarn_status status = device_note(
        worker->device, driver->stream_synchronize(worker->device->number, worker->stream));
    worker->unsettled = status && status != TARN_ERROR_DEVICE_LOST;
    return !worker->unsettled;
}

/* Whether blocks of the device can be checked: there is a stream, and a buffer. */
static bool is_equipped(struct worker *worker)
{
    if (!buffer)
        buffer = pages_map(BUFFER);
    if (!worker->made)
        worker->made =
            driver->stream_create(worker->device->number, 0, false, &worker->stream) == TARN_OK;
    return buffer && worker->made;
}

static tarn_status copy_out(struct worker *worker, size_t at, uintptr_t address, size_t size)
{
    worker->unsettled = true;
    return device_note(worker->device, driver->copy(worker->device->number, (uintptr_t)buffer + at,
                                                    address, size, worker->stream));
}

/* Comparing ------------------------------------------------------------------------------------ */

/* The first and last difference in bytes that should all be equal. */
struct difference {
    size_t first, last, count;
    unsigned char value; /* the first one that differs */
};

static void compare(const unsigned char *bytes, size_t size, size_t offset, unsigned char wanted,
                    struct difference *sum)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == wanted)
            continue;
        if (sum->count++ == 0) {
            sum->first = offset + i;
            sum->value = bytes[i];
        }
        sum->last = offset + i;
    }
}

static void report_zone(const struct debug_block *block, const struct difference *wrong,
                        bool behind)
{
    struct debug_text text = {0};
    int64_t offset =
        behind ? (int64_t)wrong->first : (int64_t)wrong->last - (int64_t)DEBUG_FRONT_FILLED;
    size_t distance = behind ? wrong->first : DEBUG_FRONT_FILLED - wrong->last;
    tarn_debug_report report = {.kind = TARN_DEBUG_RED_ZONE,
                                .device = block->device,
                                .block = (void *)debug_address(block),
                                .requested = block->requested,
                                .offset = behind ? offset + (int64_t)block->requested : offset};
    struct debug_facts facts = debug_facts_of(block);
    debug_append(&text, "written %s: ", behind ? "behind its end" : "before its start");
    debug_describe(&text, &facts);
    debug_append(&text,
                 "; the red zone has %zu wrong byte%s, the nearest %zu byte%s %s the block; "
                 "the first is 0x%02X",
                 wrong->count, wrong->count == 1 ? "" : "s", distance, distance == 1 ? "" : "s",
                 behind ? "behind" : "before", wrong->value);
    debug_append_sites(&text, &facts);
    debug_report(&report, &text);
}

/* Checks the zones of a block. False: it must be done again later. */
static bool look_at_zones(struct worker *worker, const struct debug_block *block)
{
    size_t back = debug_back(block);
    uintptr_t address = debug_address(block);
    tarn_status status = copy_out(worker, 0, address - DEBUG_FRONT_FILLED, DEBUG_FRONT_FILLED);
    if (!status && back)
        status = copy_out(worker, DEBUG_FRONT_FILLED, address + block->requested, back);
    if (!settle(worker))
        return false;
    struct difference before = {0}, behind = {0};
    if (status || atomic_load(&worker->device->lost))
        return true;
    compare(buffer, DEBUG_FRONT_FILLED, 0, DEBUG_ZONE_BYTE, &before);
    compare(buffer + DEBUG_FRONT_FILLED, back, 0, DEBUG_ZONE_BYTE, &behind);
    if (before.count)
        report_zone(block, &before, false);
    if (behind.count)
        report_zone(block, &behind, true);
    return true;
}

static void report_write(const struct debug_block *block, const struct difference *wrong)
{
    struct debug_text text = {0};
    int64_t offset = (int64_t)wrong->first - (int64_t)block->front;
    tarn_debug_report report = {.kind = TARN_DEBUG_WRITE_AFTER_FREE,
                                .device = block->device,
                                .block = (void *)debug_address(block),
                                .requested = block->requested,
                                .offset = offset};
    struct debug_facts facts = debug_facts_of(block);
    debug_append(&text, "written after its free: ");
    debug_describe(&text, &facts);
    debug_append(&text, "; %zu bytes were written, the first at offset %lld: 0x%02X", wrong->count,
                 (long long)offset, wrong->value);
    debug_append_sites(&text, &facts);
    debug_report(&report, &text);
}

/* Checks that a block in quarantine is unchanged. False: it must be done again later. */
static bool look_at_dead(struct worker *worker, const struct debug_block *block)
{
    struct difference wrong = {0};
    for (size_t at = 0; at < block->size; at += BUFFER) {
        size_t part = block->size - at < BUFFER ? block->size - at : BUFFER;
        tarn_status status = copy_out(worker, 0, block->start + at, part);
        if (!settle(worker))
            return false;
        if (status || atomic_load(&worker->device->lost))
            return true;
        compare(buffer, part, at, DEBUG_DEAD_BYTE, &wrong);
    }
    if (wrong.count)
        report_write(block, &wrong);
    return true;
}

/* The way of a freed block --------------------------------------------------------------------- */

static void let_go(struct debug_block *block)
{
    atomic_store(&block->state, DEBUG_OVER);
}

static void hold(struct worker *worker, struct debug_block *block)
{
    if (!worker->held_first)
        worker->held_end = &worker->held_first;
    block->next = NULL;
    *worker->held_end = block;
    worker->held_end = &block->next;
    worker->held_bytes += block->size;
    atomic_store(&block->state, DEBUG_HELD);
}

/* Checks a ready block: it is then over, or in quarantine. False: later. */
static bool examine(struct worker *worker, struct debug_block *block)
{
    if (!settle(worker))
        return false;
    if (!debug_may_touch(block->heap) || !is_equipped(worker)) {
        let_go(block);
        return true;
    }
    if (atomic_load(&block->zoned) && !look_at_zones(worker, block))
        return false;
    atomic_store(&block->zoned, 0);
    bool filled = false;
    if (debug_has(DEBUG_POISON | DEBUG_QUARANTINE)) {
        worker->unsettled = true;
        filled = device_note(worker->device,
                             driver->set(worker->device->number, block->start, DEBUG_DEAD_BYTE,
                                         block->size, worker->stream)) == TARN_OK;
        if (!settle(worker))
            return false;
    }
    if (filled && debug_has(DEBUG_QUARANTINE) && block->size <= debug_settings.quarantine)
        hold(worker, block);
    else
        let_go(block);
    return true;
}

/* Checks and ends the oldest block in quarantine. False: later. */
static bool release_oldest(struct worker *worker)
{
    struct debug_block *block = worker->held_first;
    if (!settle(worker) || (debug_may_touch(block->heap) && !look_at_dead(worker, block)))
        return false;
    worker->held_first = block->next;
    worker->held_bytes -= block->size;
    let_go(block);
    return true;
}

static struct worker *worker_of(int device)
{
    workers[device].device = device_at(device);
    return &workers[device];
}

static void examine_ready(void)
{
    for (;;) {
        mutex_lock(&debug_lock);
        struct debug_block *block = debug_take_ready_locked();
        mutex_unlock(&debug_lock);
        if (!block)
            return;
        if (examine(worker_of(block->device), block))
            continue;
        mutex_lock(&debug_lock);
        debug_put_ready_locked(block);
        mutex_unlock(&debug_lock);
        return;
    }
}

/* Driver calls in a thread that may have a capture open: they are made outside it. */
struct calls {
    struct error_before before;
    enum driver_capture_mode mode;
    bool possible;
};

static struct calls calls_begin(void)
{
    struct calls calls = {.mode = DRIVER_CAPTURE_RELAXED};
    error_attempt_begin(&calls.before);
    calls.possible = driver->capture_mode(&calls.mode) == TARN_OK;
    return calls;
}

static void calls_end(struct calls *calls)
{
    if (calls->possible)
        (void)driver->capture_mode(&calls->mode);
    error_attempt_end(&calls->before, TARN_OK);
}

void debug_work(int device)
{
    mutex_lock(&working);
    struct calls calls = calls_begin();
    if (calls.possible)
        examine_ready();
    for (int i = 0; calls.possible && i < device_count(); i++) {
        struct worker *worker = worker_of(i);
        size_t most = i == device ? 0 : debug_settings.quarantine;
        while (worker->held_bytes > most && release_oldest(worker))
            ;
    }
    calls_end(&calls);
    mutex_unlock(&working);
}

/* The first live block at or after an address that can be checked. */
static struct debug_block *next_live_locked(int device, uintptr_t from, uint64_t last)
{
    struct debug_block *block = debug_next_locked(from);
    for (; block; block = debug_next_locked(block->start + 1)) {
        uint64_t zoned = atomic_load(&block->zoned);
        if (block->device == device && atomic_load(&block->state) == DEBUG_LIVE && zoned &&
            zoned <= last && debug_may_touch(block->heap))
            break;
    }
    return block;
}

void debug_look_at_live(int device, uint64_t last)
{
    mutex_lock(&working);
    struct calls calls = calls_begin();
    struct worker *worker = worker_of(device);
    bool possible = calls.possible && settle(worker) && is_equipped(worker);
    for (uintptr_t from = 0; possible;) {
        mutex_lock(&debug_lock);
        struct debug_block *block = next_live_locked(device, from, last), copy = {0};
        if (block)
            copy = *block;
        mutex_unlock(&debug_lock);
        if (!block)
            break;
        from = copy.start + 1;
        uint64_t before = debug_count();
        possible = look_at_zones(worker, &copy);
        /* Reported once; the record stays while `working` is held. */
        if (debug_count() != before)
            atomic_store(&block->zoned, 0);
    }
    calls_end(&calls);
    mutex_unlock(&working);
}

void debug_work_finish(int device)
{
    mutex_lock(&working);
    struct worker *worker = worker_of(device);
    if (worker->made)
        (void)driver->stream_destroy(device, worker->stream);
    worker->made = false;
    mutex_unlock(&working);
}
