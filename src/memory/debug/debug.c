/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Debug mode's records of blocks, and its hooks. Owns a record of every block that is live or
 * waits, ordered by address, records of the last blocks that have ended, and the list of blocks
 * that are ready to be checked. `debug_lock` is a leaf. If a record cannot be created, debug mode
 * does not watch that block, and nothing fails. */
#include "memory/debug/debug.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "memory/debug/debug_block.h"
#include "memory/heap/idle/wait.h"
#include "memory/settings/hooks.h"

#include <string.h>

#define HISTORY 4096 /* the most records of ended blocks */
/* Freed blocks are checked after this many frees, or after frees of this part of the quarantine's
 * bytes. */
#define TURN_FREES 16
#define TURN_PART 8
#define ANY_DEVICE (-1) /* argument of debug_work(): empties no quarantine */

static int order_by_start(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = TREE_ENTRY(a, struct debug_block, node)->start,
              y = TREE_ENTRY(b, struct debug_block, node)->start;
    return (x > y) - (x < y);
}

mutex debug_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct tree blocks = {.order = order_by_start}; /* debug lock */
static struct debug_block *history[HISTORY];           /* debug lock */
size_t debug_history = HISTORY;
/* Debug lock: records ever added. */
static size_t history_count;
static struct debug_block *ready_first, **ready_end = &ready_first; /* debug lock */
static struct object_pool objects = OBJECT_POOL(struct debug_block);

static atomic_uint frees;         /* since freed blocks were last checked */
static atomic_size_t freed_bytes; /* since freed blocks were last checked */
static atomic_uint_fast64_t fillings;
static atomic_uint_fast64_t blocks_let_go; /* freed by collect() */

/* Finding -------------------------------------------------------------------------------------- */

static bool begins_at_or_behind(const struct tree_node *node, uint64_t key)
{
    return TREE_ENTRY(node, struct debug_block, node)->start >= key;
}

static bool ends_behind(const struct tree_node *node, uint64_t key)
{
    const struct debug_block *block = TREE_ENTRY(node, struct debug_block, node);
    return block->start + block->size > key;
}

struct debug_block *debug_next_locked(uintptr_t from)
{
    struct tree_node *node = tree_find_first(&blocks, begins_at_or_behind, from);
    return node ? TREE_ENTRY(node, struct debug_block, node) : NULL;
}

/* The record of the block that begins at `start`, or NULL. */
static struct debug_block *find(uintptr_t start)
{
    mutex_lock(&debug_lock);
    struct debug_block *block = debug_next_locked(start);
    mutex_unlock(&debug_lock);
    return block && block->start == start ? block : NULL;
}

static struct debug_block *at_locked(uintptr_t address)
{
    struct tree_node *node = tree_find_first(&blocks, ends_behind, address);
    struct debug_block *block = node ? TREE_ENTRY(node, struct debug_block, node) : NULL;
    return block && block->start <= address ? block : NULL;
}

/* The newest ended block that contained an address; if `owner` is not 0, the one with this
 * number. */
static struct debug_block *gone_locked(uintptr_t address, uint64_t owner)
{
    size_t kept = history_count < debug_history ? history_count : debug_history;
    for (size_t i = 1; i <= kept; i++) {
        struct debug_block *block = history[(history_count - i) % debug_history];
        if (address - block->start < block->size && (!owner || block->owner == owner))
            return block;
    }
    return NULL;
}

/* The record of the block that contains an address, otherwise of the last block that did; NULL:
 * none. */
static struct debug_block *find_locked(uintptr_t address)
{
    struct debug_block *block = at_locked(address);
    return block ? block : gone_locked(address, 0);
}

struct debug_block *debug_find_owner_locked(uintptr_t address, uint64_t owner)
{
    struct debug_block *block = at_locked(address);
    if (block && (owner ? block->owner == owner : atomic_load(&block->state) != DEBUG_LIVE))
        return block;
    return gone_locked(address, owner);
}

static void forget_locked(struct debug_block *block)
{
    tree_remove(&blocks, &block->node);
    atomic_store(&block->state, DEBUG_GONE);
    struct debug_block **place = &history[history_count++ % debug_history];
    if (*place)
        object_free(&objects, *place);
    *place = block;
}

/* Beginning ------------------------------------------------------------------------------------ */

void debug_init(void)
{
    if (!debug_has(DEBUG_CHECK))
        return;
    if (!driver->check)
        log_write(
            LOG_INFO,
            "TARN_DEBUG=check: the driver %s does not check streams, only the host device does",
            driver->name);
    else if (driver->check(debug_conflict))
        log_write(LOG_ERRORS, "TARN_DEBUG=check: %s", tarn_last_error());
}

/* Fills a part of a block, in the order of its stream. False: the stream captures, or the driver
 * fails. */
static bool fill(const struct heap *heap, uintptr_t address, unsigned char value, size_t size)
{
    struct device *device = heap->arena->device;
    struct stream *stream = heap->stream;
    mutex_lock(&device->record_lock);
    bool may = !stream_captures(stream);
    tarn_status status =
        may ? driver->set(device->number, address, value, size, stream_native(stream)) : TARN_OK;
    mutex_unlock(&device->record_lock);
    return may && device_note(device, status) == TARN_OK;
}

static void fill_new(struct debug_block *block, const struct heap *heap)
{
    struct error_before before;
    uintptr_t address = debug_address(block);
    size_t back = debug_back(block);
    error_attempt_begin(&before);
    if (block->front &&
        fill(heap, address - DEBUG_FRONT_FILLED, DEBUG_ZONE_BYTE, DEBUG_FRONT_FILLED) &&
        (!back || fill(heap, address + block->requested, DEBUG_ZONE_BYTE, back)))
        atomic_store(&block->zoned, atomic_fetch_add(&fillings, 1) + 1);
    if (debug_has(DEBUG_POISON))
        (void)fill(heap, address, DEBUG_NEW_BYTE, block->requested);
    error_attempt_end(&before, TARN_OK);
}

void debug_begin(struct heap *heap, uintptr_t start, size_t size, const struct request *request,
                 uint64_t owner)
{
    struct debug_block *block = object_alloc(&objects);
    if (!block)
        return;
    block->heap = heap;
    block->device = heap->arena->device->number;
    block->start = start;
    block->size = size;
    block->front = request->front;
    block->requested = request->requested;
    block->tag = request->tag;
    block->stream = stream_value(heap->stream);
    block->owner = owner;
    block->allocated = site_here;
    memcpy(block->pool, heap->store->id, sizeof block->pool);
    mutex_lock(&debug_lock);
    tree_insert(&blocks, &block->node);
    mutex_unlock(&debug_lock);
    if (debug_may_touch(heap) && debug_has(DEBUG_REDZONE | DEBUG_POISON))
        fill_new(block, heap);
}

void debug_extended_locked(uintptr_t start, size_t size, size_t requested)
{
    struct debug_block *block = find(start);
    if (!block)
        return;
    mutex_lock(&debug_lock);
    block->size = size;
    block->requested = requested;
    mutex_unlock(&debug_lock);
}

/* Freeing -------------------------------------------------------------------------------------- */

/* Whether a heap's stream captures. Asks the driver only if the stream certainly exists. */
static bool heap_captures(const struct heap *heap)
{
    if (heap->retired)
        return false;
    return stream_is_found(heap->stream) ? stream_is_known(heap->stream)
                                         : stream_captures(heap->stream);
}

/* Makes a freed block wait for its own stream, and then for debug mode. False if that is not
 * possible. */
static bool wait_for_look(struct heap *heap, struct debug_block *block, struct use **uses)
{
    bool may =
        uses && debug_may_touch(heap) && !heap_captures(heap) && use_add_own(heap, uses) == TARN_OK;
    if (may)
        (*uses)->watch = block;
    return may;
}

void debug_free_locked(struct heap *heap, uintptr_t start, struct use **uses)
{
    struct debug_block *block = find(start);
    if (!block)
        return;
    bool waits = wait_for_look(heap, block, uses);
    mutex_lock(&debug_lock);
    block->freed = site_here;
    if (waits)
        atomic_store(&block->state, DEBUG_WAITING);
    else
        forget_locked(block);
    mutex_unlock(&debug_lock);
    atomic_fetch_add(&frees, 1);
    atomic_fetch_add(&freed_bytes, waits ? block->size : 0);
}

void debug_ended_locked(struct debug_block *block)
{
    mutex_lock(&debug_lock);
    debug_put_ready_locked(block);
    mutex_unlock(&debug_lock);
}

bool debug_is_over(const struct debug_block *block)
{
    return atomic_load(&block->state) == DEBUG_OVER;
}

void debug_gone_locked(struct debug_block *block)
{
    mutex_lock(&debug_lock);
    forget_locked(block);
    mutex_unlock(&debug_lock);
    atomic_fetch_add(&blocks_let_go, 1);
}

struct debug_block *debug_take_ready_locked(void)
{
    struct debug_block *block = ready_first;
    if (block) {
        ready_first = block->next;
        if (!ready_first)
            ready_end = &ready_first;
    }
    return block;
}

void debug_put_ready_locked(struct debug_block *block)
{
    atomic_store(&block->state, DEBUG_READY);
    block->next = NULL;
    *ready_end = block;
    ready_end = &block->next;
}

/* Refused frees -------------------------------------------------------------------------------- */

tarn_status debug_bad_free(uintptr_t address, tarn_status status)
{
    struct debug_text text = {0};
    struct debug_facts facts = {0};
    tarn_debug_report report = {
        .kind = TARN_DEBUG_BAD_FREE, .device = -1, .block = (void *)address};
    bool is_misuse = status == TARN_ERROR_DOUBLE_FREE || status == TARN_ERROR_INVALID_POINTER;
    if (!is_misuse)
        return status;
    mutex_lock(&debug_lock);
    const struct debug_block *block = find_locked(address);
    bool known = block != NULL;
    if (known)
        facts = debug_facts_locked(block);
    mutex_unlock(&debug_lock);
    bool twice = known && facts.was_freed && address == facts.address;
    if (twice && status == TARN_ERROR_DOUBLE_FREE)
        debug_append(&text, "freed twice: ");
    else
        debug_append(&text, "invalid free: %s%s", tarn_last_error(),
                     known ? "; known there: " : "");
    if (known) {
        debug_describe(&text, &facts);
        report.device = facts.device;
        report.requested = facts.requested;
        report.offset = (int64_t)(address - facts.address);
    }
    debug_append_site(&text, "freed now", &site_here);
    if (known)
        debug_append_sites(&text, &facts);
    debug_report(&report, &text);
    debug_deliver();
    return failed(status, "%s", text.text);
}

/* Taking turns --------------------------------------------------------------------------------- */

static void collect_device(struct arena *arena)
{
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        (void)wait_collect_locked(heap);
        mutex_unlock(&heap->lock);
    }
}

/* Makes freed blocks ready whose work has ended, and frees blocks that are over, on a device; NULL:
 * on all. */
static void collect(struct arena *arena)
{
    for (int i = 0; i < device_count(); i++) {
        struct arena *other = arena_if_used(i);
        if (other && (!arena || other == arena))
            collect_device(other);
    }
}

/* Checks freed blocks of all devices whose work has ended. */
static void look(void)
{
    struct error_before before;
    error_attempt_begin(&before);
    collect(NULL);
    debug_work(ANY_DEVICE);
    collect(NULL);
    error_attempt_end(&before, TARN_OK);
}

bool debug_relieve(struct arena *arena, uint64_t *seen)
{
    collect(arena);
    debug_work(arena->device->number);
    collect(arena);
    uint64_t now = atomic_load(&blocks_let_go);
    bool more = now != *seen;
    *seen = now;
    return more;
}

/* Compares the vendor's current device with tarn's. Reports each difference once. */
static void compare_devices(void)
{
    static _Thread_local int told = -1; /* the vendor's device at the last report */
    struct error_before before;
    int current = 0, own = thread_device();
    error_attempt_begin(&before);
    tarn_status status = driver->current(&current);
    error_attempt_end(&before, TARN_OK);
    if (status || current == own || current == told) {
        told = status || current == own ? -1 : told;
        return;
    }
    told = current;
    struct debug_text text = {0};
    tarn_debug_report report = {.kind = TARN_DEBUG_DEVICE, .device = own};
    debug_append(
        &text,
        "another current device: %d for tarn and %d for the driver in this thread; code that "
        "switches by another API calls tarn_device_adopt()",
        own, current);
    debug_report(&report, &text);
}

void debug_turn(void)
{
    if (atomic_load(&process_state) != PROCESS_RUNS)
        return; /* in a child of fork(), threads that do not exist there may hold locks */
    if (debug_has(DEBUG_CONTEXT))
        compare_devices();
    if (debug_has(DEBUG_CONTENTS) &&
        (atomic_load(&frees) >= TURN_FREES ||
         atomic_load(&freed_bytes) > debug_settings.quarantine / TURN_PART)) {
        atomic_store(&frees, 0);
        atomic_store(&freed_bytes, 0);
        look();
    }
    debug_deliver();
}

void debug_settle(struct store *store)
{
    uint64_t seen = 0;
    struct error_before before;
    error_attempt_begin(&before);
    (void)heaps_settle(store->arena, store);
    (void)debug_relieve(store->arena, &seen);
    error_attempt_end(&before, TARN_OK);
}

void debug_forget(const struct store *store)
{
    mutex_lock(&debug_lock);
    for (struct debug_block *block = debug_next_locked(0); block;
         block = debug_next_locked(block->start + 1))
        if (block->heap->store == store)
            atomic_store(&block->zoned, 0);
    mutex_unlock(&debug_lock);
}

/* Waits for the work of every heap's stream, since it filled the zones that are checked next. */
static tarn_status look_at_live(struct arena *arena)
{
    uint64_t last = atomic_load(&fillings);
    tarn_status status = TARN_OK;
    if (!debug_has(DEBUG_REDZONE))
        return TARN_OK;
    for (struct heap *heap = heap_next(arena, NULL); heap && !status;
         heap = heap_next(arena, heap)) {
        struct mark *mark = NULL;
        mutex_lock(&heap->lock);
        struct stream *stream = heap->stream;
        unsigned incarnation = heap->incarnation;
        mutex_unlock(&heap->lock);
        status = stream ? mark_of_stream(stream, incarnation, &mark) : TARN_OK;
        if (!status && mark)
            status = mark_wait(mark);
        mark_release(mark);
    }
    if (!status)
        debug_look_at_live(arena->device->number, last);
    /* A capture that tarn does not know of: live blocks are not checked. */
    return status == TARN_ERROR_CAPTURE ? TARN_OK : status;
}

void debug_shutdown(struct arena *arena)
{
    int device = arena->device->number;
    (void)look_at_live(arena);
    debug_work_finish(device);
    if (debug_has(DEBUG_LEAKS))
        debug_report_leaks(device);
}

void debug_finish(void)
{
    if (debug_has(DEBUG_BLOCKS | DEBUG_CONTEXT))
        debug_deliver();
}

/* Public --------------------------------------------------------------------------------------- */

uint64_t tarn_debug_reports(void)
{
    if (debug_has(DEBUG_CONTENTS) && atomic_load(&process_state) == PROCESS_RUNS)
        look();
    if (atomic_load(&process_state) == PROCESS_RUNS)
        debug_deliver();
    return debug_count();
}

tarn_status tarn_debug_check(int number)
{
    struct device *device = NULL;
    uint64_t seen = 0;
    tarn_status status = memory_ready();
    if (!status)
        status = device_find(number, &device);
    if (!status)
        status = captures_refuse(device, "a look at every block");
    if (status)
        return status;
    struct arena *arena = arena_if_used(number);
    if (!arena || !debug_has(DEBUG_CONTENTS))
        return TARN_OK;
    status = heaps_settle(arena, NULL);
    (void)debug_relieve(arena, &seen);
    if (!status)
        status = look_at_live(arena);
    debug_deliver();
    return status;
}
