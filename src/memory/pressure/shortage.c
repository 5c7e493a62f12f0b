/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Collects facts about a failed request and writes a text from them. Owns nothing. Takes the locks
 * of heaps and of the arena one at a time, so the figures may be from slightly different moments.
 *
 * A remedy is named only if the facts show that it would have served this request, and never if it
 * is already on (pytorch/pytorch#173049). */
#include "memory/pressure/shortage.h"
#include "base/machine.h"
#include "base/status.h"
#include "base/text.h"
#include "base/variable.h"
#include "device/capture.h"
#include "memory/arena/observe.h"
#include "memory/arena/owners.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/heap/slab.h"
#include "memory/heap/traced.h"
#include "memory/pool/pool.h"
#include "memory/pressure/ladder.h"
#include "memory/settings/hooks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN 3      /* pools, streams and processes that are named */
#define WAITS 16     /* streams for which bytes are counted */
#define PROCESSES 64 /* processes that are looked at */
#define REMEDIES 2

struct pool_facts {
    const struct store *store;
    uint64_t id[2];
    size_t reserved, idle; /* bytes */
    bool held, suspended, spare;
};

struct wait_facts {
    uint64_t native;
    size_t bytes;
};

struct facts {
    struct arena *arena;
    const struct store *store;
    size_t size; /* bytes requested, rounded */
    /* Of the device, by the driver's count. */
    size_t total, driver_free;
    size_t reserved, limit, pool_limit, pool_reserved, leave_free; /* SIZE_MAX: no limit */
    size_t free, waiting, unmapped, addresses, pools_reserved;     /* bytes */
    /* Free bytes in heaps of the requesting pool; their longest run. */
    size_t own_free, own_largest;
    /* Bytes of all workspaces of handles, and of those that belong to captures. */
    size_t workspaces, captured_workspaces;
    /* Of own_free, bytes in pieces that live blocks hold in place. */
    size_t own_tied;
    /* The largest private ones, except the requesting pool. */
    struct pool_facts pools[SHOWN];
    /* The streams for which most bytes wait, largest first. */
    struct wait_facts waits[WAITS];
    struct driver_process processes[SHOWN]; /* the largest other processes */
    /* Of an integrated device without a limit; otherwise its reserve is 0. */
    struct machine_memory machine;
    bool captured;
};

/* Facts ---------------------------------------------------------------------------------------- */

/* Adds bytes to those that wait for a stream. Ignores streams beyond WAITS. */
static void keep_wait(struct facts *facts, const struct stream *stream, size_t bytes)
{
    uint64_t native = stream ? (uint64_t)(uintptr_t)stream->native : 0;
    for (int i = 0; i < WAITS; i++) {
        if (facts->waits[i].bytes && facts->waits[i].native != native)
            continue;
        facts->waits[i].native = native;
        facts->waits[i].bytes += bytes;
        return;
    }
}

/* Adds the blocks that wait for a stream. A block counts for only one of its streams. */
static void look_at_uses(struct facts *facts, const struct stream *stream,
                         const struct use_list *uses)
{
    for (const struct use *use = uses->first; use; use = use->later)
        if (wait_is_first(use))
            keep_wait(facts, stream, wait_size(use));
}

static void look_at_waits(struct facts *facts, const struct heap *heap)
{
    const struct use_queue *queue = heap->waiting.blocks ? heap->waiting.queues : NULL;
    for (; queue; queue = queue->next) {
        const struct stream *stream = queue->events ? NULL : queue->stream;
        look_at_uses(facts, stream, &queue->marked);
        look_at_uses(facts, stream, &queue->unmarked);
    }
}

static struct pool_facts facts_of(const struct store *store)
{
    return (struct pool_facts){.store = store,
                               .id = {store->id[0], store->id[1]},
                               .reserved = store->reserved,
                               .idle = store->unmapped.bytes,
                               .held = atomic_load(&store->holds),
                               .suspended = atomic_load(&store->suspended),
                               .spare = store_has(store, STORE_HELPS)};
}

/* The arena's lock keeps pools alive. */
static void look_at_pools(struct facts *facts)
{
    struct arena *arena = facts->arena;
    size_t longest = 0;
    int count = 0;
    mutex_lock(&arena->lock);
    for (const struct store *store = owner_largest_locked(arena); store && count < SHOWN;
         store = owner_next_locked(store)) {
        if (store == facts->store)
            continue;
        facts->pools[count] = facts_of(store);
        facts->pools[count++].idle += heaps_sums(arena, store, &longest).free;
    }
    facts->unmapped = arena->unmapped;
    facts->pools_reserved = owners_reserved_locked(arena);
    facts->pool_reserved = facts->store->reserved;
    facts->pool_limit = facts->store->limit;
    facts->reserved = arena->reserved;
    facts->limit = arena->limit;
    facts->addresses = arena_longest_locked(arena);
    mutex_unlock(&arena->lock);
}

/* Sums what is free, and what waits. Looks only at heaps that have changed since the last time. */
static void look_at_heaps(struct facts *facts)
{
    struct arena *arena = facts->arena;
    size_t none = 0;
    for (struct heap *heap = heap_next_changed(arena, NULL); heap;
         heap = heap_next_changed(arena, heap)) {
        mutex_lock(&heap->lock);
        heap_sum_locked(heap);
        if (!atomic_load_explicit(&heap->store->suspended, memory_order_acquire))
            look_at_waits(facts, heap);
        mutex_unlock(&heap->lock);
    }
    struct heap_sums all = heaps_sums(arena, NULL, &none),
                     own = heaps_sums(arena, facts->store, &facts->own_largest);
    facts->free = all.free;
    facts->waiting = all.waiting;
    facts->own_free = own.free;
    facts->own_tied = own.tied;
}

static int by_bytes(const void *a, const void *b)
{
    size_t x = ((const struct driver_process *)a)->bytes,
           y = ((const struct driver_process *)b)->bytes;
    return x > y ? -1 : x < y;
}

static void look_at_processes(struct facts *facts)
{
    struct driver_process list[PROCESSES];
    size_t count = driver->processes
                       ? driver->processes(facts->arena->device->number, list, PROCESSES)
                       : 0,
           others = 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].number != (long)getpid() && list[i].bytes != SIZE_MAX)
            list[others++] = list[i];
    qsort(list, others, sizeof *list, by_bytes);
    for (size_t i = 0; i < SHOWN && i < others; i++)
        facts->processes[i] = list[i];
}

static int by_waiting(const void *a, const void *b)
{
    size_t x = ((const struct wait_facts *)a)->bytes, y = ((const struct wait_facts *)b)->bytes;
    return x > y ? -1 : x < y;
}

static void facts_collect(struct facts *facts)
{
    struct error_before before;
    facts->total = facts->arena->device->properties.memory;
    facts->leave_free = memory_config()->leave_free;
    facts->captured = captures_open(facts->arena->device);
    look_at_heaps(facts);
    look_at_pools(facts);
    qsort(facts->waits, WAITS, sizeof *facts->waits, by_waiting);
    workspaces_hook *sum = atomic_load(&upper_hooks.sum_workspaces);
    if (sum)
        sum(facts->arena->device->number, &facts->workspaces, &facts->captured_workspaces);
    error_attempt_begin(&before);
    (void)driver->memory_info(facts->arena->device->number, &facts->driver_free, &facts->total);
    if (facts->arena->device->properties.fills_machine && facts->limit == SIZE_MAX)
        (void)machine_memory_get(&facts->machine);
    look_at_processes(facts);
    error_attempt_end(&before, TARN_OK);
}

/* Bytes that tarn has reserved and that no live block needs. */
static size_t idle_of(const struct facts *facts)
{
    return facts->free + facts->unmapped + facts->waiting;
}

static size_t live_of(const struct facts *facts)
{
    return facts->reserved > idle_of(facts) ? facts->reserved - idle_of(facts) : 0;
}

/* Bytes of the device that tarn has not reserved. */
static size_t others_of(const struct facts *facts)
{
    size_t used =
        facts->total - (facts->driver_free < facts->total ? facts->driver_free : facts->total);
    return used > facts->reserved ? used - facts->reserved : 0;
}

/* Text ----------------------------------------------------------------------------------------- */

struct text {
    char *at;
    size_t size, used;
};

static __attribute__((format(printf, 2, 3))) void say(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < text->size - text->used)
        text->used += (size_t)length;
    else if (text_was_cut(text->at, text->size, (int)text->used + length))
        text->used = text->size - 1;
}

/* A size as text: "1.50 GiB", "64 MiB", "512 B". Exact if that is short. */
struct exact_bytes {
    char text[32];
};

static const char *write_bytes(struct exact_bytes *buffer, size_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    while (unit < 6 && bytes >> (10 * (unit + 1)))
        unit++;
    size_t whole = (size_t)1 << (10 * unit);
    if (bytes % whole == 0)
        snprintf(buffer->text, sizeof buffer->text, "%zu %s", bytes / whole, units[unit]);
    else
        snprintf(buffer->text, sizeof buffer->text, "%.2f %s", (double)bytes / (double)whole,
                 units[unit]);
    return buffer->text;
}

#define BYTES(bytes) write_bytes(&(struct exact_bytes){""}, bytes)

static void say_device(struct text *text, const struct facts *facts)
{
    say(text, "%s on device %d (%s), which has %s of its %s free", BYTES(facts->size),
        facts->arena->device->number, facts->arena->device->properties.name,
        BYTES(facts->driver_free), BYTES(facts->total));
    if (facts->leave_free)
        say(text, ", of which leave_free_mb keeps %s", BYTES(facts->leave_free));
    say(text, ". tarn reserves %s", BYTES(facts->reserved));
    if (facts->machine.reserve)
        say(text, " (the limit is the machine's memory: %s are available, of which %s are kept)",
            BYTES(facts->machine.available), BYTES(facts->machine.reserve));
    else if (facts->limit == SIZE_MAX && facts->arena->device->properties.paged)
        say(text, " (the limit is what the driver says is free, as the system pages what is more)");
    else if (facts->limit == SIZE_MAX)
        say(text, " (no limit is set)");
    else
        say(text, " (the limit is %s)", BYTES(facts->limit));
}

static void say_use(struct text *text, const struct facts *facts)
{
    say(text, ": %s live, %s free in heaps", BYTES(live_of(facts)), BYTES(facts->free));
    if (facts->own_free != facts->free)
        say(text, " and %s of that in the pool that asked",
            facts->own_free ? BYTES(facts->own_free) : "none");
    if (facts->own_free)
        say(text,
            " (the largest stretch %s, fragmentation %.0f %%, %s in pieces that live blocks hold "
            "in place)",
            BYTES(facts->own_largest),
            100.0 * (1.0 - (double)facts->own_largest / (double)facts->own_free),
            facts->own_tied ? BYTES(facts->own_tied) : "none");
    say(text, ", %s unmapped, %s waiting for streams", BYTES(facts->unmapped),
        BYTES(facts->waiting));
    for (int i = 0; i < SHOWN && facts->waits[i].bytes; i++)
        say(text, "%s%s of stream %#llx", i ? ", " : " (", BYTES(facts->waits[i].bytes),
            (unsigned long long)facts->waits[i].native);
    say(text, "%s.", facts->waits[0].bytes ? ")" : "");
}

static void say_own_pool(struct text *text, const struct facts *facts)
{
    if (store_is_default(facts->store))
        return;
    say(text, " The request is of pool (%llu, %llu), which reserves %s",
        (unsigned long long)facts->store->id[0], (unsigned long long)facts->store->id[1],
        BYTES(facts->pool_reserved));
    if (facts->pool_limit != SIZE_MAX)
        say(text, " of at most %s", BYTES(facts->pool_limit));
    say(text, ".");
}

static void say_pools(struct text *text, const struct facts *facts)
{
    if (!facts->pools[0].reserved)
        return;
    say(text, " Private pools reserve %s, which serve nobody else:", BYTES(facts->pools_reserved));
    for (int i = 0; i < SHOWN && facts->pools[i].reserved; i++) {
        const struct pool_facts *pool = &facts->pools[i];
        say(text, "%s (%llu, %llu) %s, %s of it idle%s%s", i ? ";" : "",
            (unsigned long long)pool->id[0], (unsigned long long)pool->id[1], BYTES(pool->reserved),
            BYTES(pool->idle), pool->held ? ", held by a graph or capture" : "",
            pool->suspended ? ", suspended" : "");
    }
    say(text, ".");
}

static void say_others(struct text *text, const struct facts *facts)
{
    if (facts->store->kind.pieces && facts->addresses < facts->size)
        say(text, " At most %s of addresses are left in a row.", BYTES(facts->addresses));
    if (facts->captured)
        say(text, " What the streams of an open capture have freed serves them alone.");
    if (!others_of(facts))
        return;
    say(text, " Not tarn's: %s", BYTES(others_of(facts)));
    for (int i = 0; i < SHOWN && facts->processes[i].bytes; i++)
        say(text, "%s process %ld %s", i ? "," : ":", facts->processes[i].number,
            BYTES(facts->processes[i].bytes));
    say(text, "%s.",
        facts->processes[0].bytes
            ? ""
            : " (other processes, and what libraries and the driver have of this one)");
}

/* Remedies ------------------------------------------------------------------------------------- */

/* Bytes of the request that the driver does not have. */
static size_t missing_of(const struct facts *facts)
{
    size_t kept =
        facts->leave_free > facts->machine.reserve ? facts->leave_free : facts->machine.reserve;
    size_t there = facts->driver_free > kept ? facts->driver_free - kept : 0;
    return facts->size > there ? facts->size - there : 0;
}

static size_t beyond(size_t size, size_t reserved, size_t limit)
{
    size_t room = limit > reserved ? limit - reserved : 0;
    return size > room ? size - room : 0;
}

/* Bytes by which the request exceeds the device, its limit, or the pool's limit: the largest. */
static size_t lacking_of(const struct facts *facts)
{
    size_t device = beyond(facts->size, facts->reserved, facts->limit);
    size_t pool = beyond(facts->size, facts->pool_reserved, facts->pool_limit);
    size_t most = device > pool ? device : pool;
    return most > missing_of(facts) ? most : missing_of(facts);
}

static bool say_too_large(struct text *text, const struct facts *facts)
{
    if (facts->size <= facts->total)
        return false;
    say(text, "the device could not hold it if it were empty: ask for less at a time");
    return true;
}

static bool say_kept(struct text *text, const struct facts *facts)
{
    if (!store_has(facts->store, STORE_KEPT) || !hooks.keep_is_full(facts->store))
        return false;
    say(text, "the pool has as many segments as an owner keeps: a larger `segment` "
              "(tarn_keep_options) makes fewer of them");
    return true;
}

static bool say_limit(struct text *text, const struct facts *facts)
{
    bool pool = beyond(facts->size, facts->pool_reserved, facts->pool_limit);
    bool device = beyond(facts->size, facts->reserved, facts->limit);
    if (missing_of(facts) || (!pool && !device))
        return false;
    if (pool)
        say(text, "a higher limit of the pool (tarn_pool_limit_set()) would have let it through");
    else
        say(text, "a higher limit (tarn_device_limit_set(), limit_mb) would have let it through");
    return true;
}

/* The machine's memory is what is short. */
static bool say_machine(struct text *text, const struct facts *facts)
{
    if (!facts->machine.reserve || !missing_of(facts))
        return false;
    say(text, "the machine's memory is short, which the device shares: end what fills it, or set a "
              "limit (limit_mb) if it may swap");
    return true;
}

/* The system would have served it by paging. */
static bool say_paged(struct text *text, const struct facts *facts)
{
    if (!facts->arena->device->properties.paged || facts->limit != SIZE_MAX || !missing_of(facts))
        return false;
    say(text, "a limit (limit_mb) above the device's memory lets the system page");
    return true;
}

static bool say_leave_free(struct text *text, const struct facts *facts)
{
    if (!facts->leave_free || facts->driver_free < facts->size || !missing_of(facts))
        return false;
    say(text, "a lower leave_free_mb would have let it through");
    return true;
}

static bool say_waiting(struct text *text, const struct facts *facts)
{
    if (facts->waiting < lacking_of(facts) || !facts->waiting)
        return false;
    say(text,
        "%s are freed and only wait for work of other streams: free them by tarn_free_after() an "
        "event that ends "
        "sooner, "
        "or synchronize stream %#llx before",
        BYTES(facts->waiting), (unsigned long long)facts->waits[0].native);
    return true;
}

static bool say_idle_pool(struct text *text, const struct facts *facts)
{
    const struct pool_facts *most = &facts->pools[0];
    for (int i = 1; i < SHOWN; i++)
        most = facts->pools[i].idle > most->idle ? &facts->pools[i] : most;
    if (!most->store || most->idle < lacking_of(facts) || most->idle == 0 || most->spare ||
        /* Other pools do not count against the pool's limit. */
        beyond(facts->size, facts->pool_reserved, facts->pool_limit))
        return false;
    unsigned long long first = most->id[0], second = most->id[1];
    if (most->held)
        say(text,
            "pool (%llu, %llu) holds %s idle for its graphs: destroy those, or suspend it while "
            "they rest "
            "(tarn_pool_suspend())",
            first, second, BYTES(most->idle));
    else
        say(text, "tarn_pool_trim() gives back up to %s of pool (%llu, %llu)", BYTES(most->idle),
            first, second);
    return true;
}

static bool say_segments(struct text *text, const struct facts *facts)
{
    const struct driver_properties *properties = &facts->arena->device->properties;
    bool can = !facts->store->kind.pieces && !facts->store->allocator.alloc &&
               properties->virtual_memory && !facts->arena->plain;
    if (!can || facts->own_free < facts->size || facts->own_largest >= facts->size)
        return false;
    say(text, "the free memory would do in one piece: virtual segments join it (the setting "
              "segments:virtual, or the pool's `segments`)");
    return true;
}

static bool say_foreign(struct text *text, const struct facts *facts)
{
    if (!missing_of(facts) || others_of(facts) < missing_of(facts) ||
        others_of(facts) < facts->total / 16)
        return false;
    say(text, "%s of the device are not tarn's: make room there", BYTES(others_of(facts)));
    return true;
}

/* Whether the pool's heaps have as many free bytes as were missing, so that fragmentation is the
 * cause. */
static bool is_free_enough(const struct facts *facts)
{
    return facts->own_free >= lacking_of(facts) && lacking_of(facts);
}

static bool say_tied(struct text *text, const struct facts *facts)
{
    size_t movable =
        facts->own_free - (facts->own_tied < facts->own_free ? facts->own_tied : facts->own_free);
    bool can = facts->store->kind.compacts && !memory_config()->compaction;
    if (!can || !is_free_enough(facts) || movable >= lacking_of(facts))
        return false;
    say(text,
        "enough is free, but live blocks hold %s of it in place: compaction:on_oom exchanges such "
        "pieces for smaller "
        "ones",
        BYTES(facts->own_tied));
    return true;
}

/* Workspaces are live blocks that the program did not allocate. */
static bool say_workspaces(struct text *text, const struct facts *facts)
{
    if (!facts->workspaces || facts->workspaces < missing_of(facts) ||
        facts->workspaces < facts->reserved / 16)
        return false;
    say(text, "workspaces of library handles have %s", BYTES(facts->workspaces));
    if (facts->captured_workspaces)
        say(text,
            ", %s of it for captures: destroy graphs, or call tarn_workspace_clear() with a "
            "capture's id",
            BYTES(facts->captured_workspaces));
    else
        say(text, ": tarn_workspace_clear() and tarn_handle_trim() free what no thread uses");
    return true;
}

static bool say_live(struct text *text, const struct facts *facts)
{
    bool traced = trace_is_on(), left = variable_get("TARN_OOM_SNAPSHOT");
    if (!live_of(facts) || live_of(facts) < facts->reserved / 2 || (traced && left))
        return false;
    say(text, "live blocks %s: run with %s%s%s to see which",
        is_free_enough(facts) ? "lie between what is free" : "fill it",
        left ? "" : "TARN_OOM_SNAPSHOT=<folder>", !left && !traced ? " and " : "",
        traced ? "" : "TARN_TRACE=1");
    return true;
}

typedef bool (*remedy)(struct text *text, const struct facts *facts);

static const remedy of_requests[] = {say_too_large, say_kept,       say_limit,   say_machine,
                                     say_paged,     say_leave_free, say_waiting, say_idle_pool,
                                     say_segments,  say_tied,       say_foreign, say_workspaces,
                                     say_live};
static const remedy of_resumes[] = {say_limit,   say_machine,   say_paged,  say_leave_free,
                                    say_waiting, say_idle_pool, say_foreign};

static void say_remedies(struct text *text, const struct facts *facts, const remedy *remedies,
                         size_t count)
{
    int said = 0;
    for (size_t i = 0; i < count && said < REMEDIES; i++) {
        size_t before = text->used;
        say(text, said ? "; or " : " What helps: ");
        if (remedies[i](text, facts))
            said++;
        else
            text->at[text->used = before] = '\0';
        if (said && remedies[i] == say_too_large)
            break; /* no other remedy would help */
    }
    if (said)
        say(text, ".");
}

/* Fills in what is reserved, and the limit, which is the least of these:
 *   - the pool's limit
 *   - the device's limit; where none is set, on an integrated or a paged device, what is reserved
 *     and what the machine or the driver says is available
 *   - what may be reserved so that leave_free_mb stays free */
static void note_limit(tarn_shortage *shortage, const struct store *store)
{
    struct arena *arena = store->arena;
    const struct driver_properties *known = &arena->device->properties;
    struct machine_memory machine = {0};
    bool fills = known->fills_machine && machine_memory_get(&machine);
    size_t leave = memory_config()->leave_free;
    size_t room = shortage->free > leave ? shortage->free - leave : 0;
    mutex_lock(&arena->lock);
    size_t limit = arena->limit;
    shortage->reserved = arena->reserved;
    if (limit == SIZE_MAX && fills)
        limit = arena->reserved +
                (machine.available > machine.reserve ? machine.available - machine.reserve : 0);
    else if (limit == SIZE_MAX && known->paged)
        limit = arena->reserved + shortage->free;
    if (leave && arena->reserved + room < limit)
        limit = arena->reserved + room;
    shortage->limit = store->limit < limit ? store->limit : limit;
    mutex_unlock(&arena->lock);
}

bool shortage_helped(const struct store *store, uint32_t place, size_t size)
{
    struct arena *arena = store->arena;
    tarn_shortage shortage = {
        .requested = size,
        .total = arena->device->properties.memory,
        .device = arena->device->number,
    };
    struct error_before before;
    if (!trace_is_on() && !observe_wants_shortage())
        return false;
    error_attempt_begin(&before);
    (void)driver->memory_info(shortage.device, &shortage.free, &shortage.total);
    error_attempt_end(&before, TARN_OK);
    if (trace_is_on())
        trace_event(TRACE_oom, place, shortage.free, size, 0);
    shortage.rejected = ladder_rejects(arena, store, size);
    note_limit(&shortage, store);
    /* An observer may have raised the limit, so whether the request can be served is asked again. A
     * request that is hopeless is not tried again: observers would give everything up for it. */
    return observe_out_of_memory(&shortage) && !ladder_is_hopeless(arena, store, size);
}

#define WHERE_BYTES ((size_t)ERROR_TEXT_BYTES / 4)

/* Leaves the files of an out-of-memory error. Writes to `where` a sentence that names them, or
 * nothing. */
static void leave_snapshot(const struct facts *facts, const char *text, char where[WHERE_BYTES])
{
    shortage_hook *hook = atomic_load(&upper_hooks.leave_snapshot);
    *where = '\0';
    if (hook)
        hook(facts->arena->device->number, text, where, WHERE_BYTES);
}

tarn_status shortage_refuse(struct heap *heap, size_t size)
{
    struct facts facts = {.arena = heap->arena, .store = heap->store, .size = size};
    /* room for both texts */
    char where[WHERE_BYTES], buffer[ERROR_TEXT_BYTES - WHERE_BYTES] = "";
    struct text text = {.at = buffer, .size = sizeof buffer};
    facts_collect(&facts);
    COUNT(facts.store->counters, num_ooms);
    say_device(&text, &facts);
    say_use(&text, &facts);
    say_own_pool(&text, &facts);
    say_pools(&text, &facts);
    say_others(&text, &facts);
    say_remedies(&text, &facts, of_requests, sizeof of_requests / sizeof *of_requests);
    leave_snapshot(&facts, buffer, where);
    return failed(TARN_ERROR_OUT_OF_MEMORY, "%s%s", buffer, where);
}

void shortage_refuse_resume(const struct store *store, size_t need)
{
    struct facts facts = {.arena = store->arena, .store = store, .size = need};
    char buffer[ERROR_TEXT_BYTES / 4 * 3] = ""; /* leaves room for the cause */
    struct text text = {.at = buffer, .size = sizeof buffer};
    facts_collect(&facts);
    facts.pool_limit = SIZE_MAX; /* a resume does not respect it */
    size_t standard =
        facts.reserved > facts.pools_reserved ? facts.reserved - facts.pools_reserved : 0;
    say(&text, "a resume of pool (%llu, %llu) lacks %s. It needs ",
        (unsigned long long)store->id[0], (unsigned long long)store->id[1],
        BYTES(lacking_of(&facts)));
    say_device(&text, &facts);
    say_use(&text, &facts);
    say(&text, " The default pool reserves %s.", BYTES(standard));
    say_pools(&text, &facts);
    say_others(&text, &facts);
    say_remedies(&text, &facts, of_resumes, sizeof of_resumes / sizeof *of_resumes);
    error_within(TARN_ERROR_OUT_OF_MEMORY, "%s The cause", buffer);
}

void shortage_refuse_range(const struct store *store, size_t need)
{
    struct facts facts = {.arena = store->arena, .store = store, .size = need};
    /* leave room for the cause */
    char where[WHERE_BYTES], buffer[ERROR_TEXT_BYTES / 2] = "";
    struct text text = {.at = buffer, .size = sizeof buffer};
    facts_collect(&facts);
    COUNT(facts.store->counters, num_ooms);
    say(&text, "a commit of a range needs ");
    say_device(&text, &facts);
    say_use(&text, &facts);
    say_own_pool(&text, &facts);
    say_pools(&text, &facts);
    say_others(&text, &facts);
    say_remedies(&text, &facts, of_resumes, sizeof of_resumes / sizeof *of_resumes);
    leave_snapshot(&facts, buffer, where);
    error_within(TARN_ERROR_OUT_OF_MEMORY, "%s%s The cause", buffer, where);
}
