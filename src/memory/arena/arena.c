/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns each device's arena: its address range (addresses.c keeps what is claimed), its stores, and
 * what is charged to its limits. Invariant: `reserved` is the bytes of pieces and segments that
 * exist or are being created; growth never takes it above the limit. Pieces are created in pieces.c
 * and mapped in mapping.c. */
#include "memory/arena/arena.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/arena/generation.h"
#include "memory/arena/observe.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"

static mutex arenas_lock =
    MUTEX_INITIALIZER(LOCK_ARENAS); /* held while an arena, or its addresses, are created */
static struct object_pool arenas = OBJECT_POOL(struct arena);
static _Atomic(struct arena *) by_device[TARN_MAX_DEVICES];

static size_t granules(const struct arena *arena)
{
    return arena->size / arena->granule;
}

/* Reserves addresses of four times the device's memory, or fewer if the driver has fewer, or to
 * leave three quarters of the process's addresses to others. At least as many as the memory if
 * `whole`. Otherwise it may be a part of that: the driver of an Orin refuses 32 GiB at once. */
static tarn_status reserve(const struct arena *arena, bool whole, uintptr_t *base, size_t *size)
{
    const struct driver_properties *known = &arena->device->properties;
    size_t memory = known->memory / arena->granule * arena->granule,
           least = whole ? memory : memory / ARENA_LEAST_PART,
           wanted = memory * ARENA_ADDRESS_FACTOR;
    int bits = machine_address_bits();
    while (bits > 2 && wanted >> (bits - 2) && wanted / 2 >= memory)
        wanted = wanted / 2 / arena->granule * arena->granule;
    if (wanted > known->address_limit)
        wanted = known->address_limit / arena->granule * arena->granule;
    tarn_status status =
        wanted < least || !wanted
            ? failed(TARN_ERROR_OUT_OF_MEMORY, "the process may have %zu bytes of addresses in all",
                     known->address_limit)
            : TARN_ERROR_OUT_OF_MEMORY;
    for (; wanted >= least && wanted > 0; wanted = wanted / 2 / arena->granule * arena->granule) {
        *base = 0;
        status = driver->reserve(arena->device->number, wanted, arena->granule, base);
        if (!status)
            break;
    }
    if (status)
        return failed_within(status,
                             "no address range for device %d, which virtual and imported memory "
                             "needs; plain segments "
                             "need none (TARN_ALLOC_CONF=segments:plain)",
                             arena->device->number);
    *size = wanted;
    return TARN_OK;
}

void store_is_of(struct store *store, enum store_kind kind, unsigned flags)
{
    unsigned wanted = memory_config()->segments == CONFIG_SEGMENTS_EXACT ? STORE_NO_SLABS : 0;
    wanted |= store->arena->device->properties.alias ? STORE_REMAPS : 0;
    store->kind = store_kinds[kind];
    store->flags = (wanted & store_kinds[kind].may) | flags;
}

void store_init(struct store *store, struct arena *arena, struct counters *counters)
{
    size_t segments = memory_config()->segments;
    store->arena = arena;
    store->counters = counters;
    store->limit = SIZE_MAX;
    mutex_init(&store->heaps.lookup, LOCK_LEAF);
    bool plain = !arena->device->properties.virtual_memory || arena->plain ||
                 segments == CONFIG_SEGMENTS_PLAIN || segments == CONFIG_SEGMENTS_EXACT ||
                 (segments == CONFIG_SEGMENTS_BY_DRIVER && announcer);
    store_is_of(store, plain ? KIND_PLAIN : KIND_VIRTUAL, 0);
}

int64_t store_max_split(const struct store *store)
{
    size_t most = store->kind.pieces ? RULES_NONE : store_rules(store).max_split;
    return most == RULES_NONE ? -1 : (int64_t)most;
}

tarn_status store_check(const struct store *store)
{
    if (!atomic_load_explicit(&store->suspended, memory_order_acquire))
        return TARN_OK;
    return failed(TARN_ERROR_SUSPENDED,
                  "pool (%llu, %llu) is suspended: tarn_pool_resume() gives it memory again",
                  (unsigned long long)store->id[0], (unsigned long long)store->id[1]);
}

/* Applies a limit that the settings have changed, or named again. Otherwise a limit that the caller
 * has set stays. */
static void arena_configure(struct arena *arena, bool named)
{
    mutex_lock(&arena->lock);
    size_t limit = config_limit(memory_config(), arena->device->properties.memory);
    if (named || limit != arena->configured)
        arena->configured = arena->limit = limit;
    counters_max_split(&arena->counters, store_max_split(&arena->store));
    counters_max_split(&arena->own, store_max_split(&arena->store));
    for (const struct store *store = arena->pools.list; store; store = store->lists.next)
        counters_max_split(store->counters, store_max_split(store));
    mutex_unlock(&arena->lock);
}

void arenas_configure(bool named)
{
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        struct arena *arena = arena_if_used(i);
        if (arena)
            arena_configure(arena, named);
    }
}

static void tables_unmap(struct arena *arena, size_t count)
{
    pages_unmap(arena->parts, arena_parts_bytes(count));
    pages_unmap(arena->claimed, bits_bytes(count));
    pages_unmap(arena->generations, GENERATION_BYTES(count));
    pages_unmap(arena->seconds, count * sizeof(struct piece *));
    pages_unmap(arena->pieces, count * sizeof(struct piece *));
    arena->claimed = arena->generations = NULL;
    arena->seconds = arena->pieces = NULL;
    arena->parts = NULL;
}

/* Under arenas_lock. */
static tarn_status addresses_create(struct arena *arena, bool whole)
{
    uintptr_t base = 0;
    size_t size = 0;
    tarn_status status = reserve(arena, whole, &base, &size);
    if (status)
        return status;
    size_t count = size / arena->granule;
    arena->base = base;
    arena->pieces = pages_map(count * sizeof(struct piece *));
    arena->seconds = pages_map(count * sizeof(struct piece *));
    arena->generations = pages_map(GENERATION_BYTES(count));
    arena->claimed = pages_map(bits_bytes(count));
    arena->parts = pages_map(arena_parts_bytes(count));
    bool made =
        arena->pieces && arena->seconds && arena->generations && arena->claimed && arena->parts;
    if (made) {
        atomic_store_explicit(&arena->size, size, memory_order_release);
        return TARN_OK;
    }
    tables_unmap(arena, count);
    driver->unreserve(arena->device->number, base, size);
    return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the tables of an arena");
}

tarn_status arena_addresses(struct arena *arena)
{
    if (atomic_load_explicit(&arena->size, memory_order_acquire))
        return TARN_OK;
    mutex_lock(&arenas_lock);
    tarn_status status = atomic_load(&arena->size) ? TARN_OK : addresses_create(arena, false);
    mutex_unlock(&arenas_lock);
    return status;
}

/* Creates the addresses of a virtual default pool. If the settings leave the choice to tarn and the
 * driver refuses every range as long as the memory, the default is plain segments: an arena is one
 * range, and with fewer addresses a part of the memory could never be mapped. On some machines
 * memory is free, but the driver has no addresses (ggml-org/llama.cpp#29142). */
static tarn_status addresses_of_default(struct arena *arena)
{
    bool chosen = memory_config()->segments == CONFIG_SEGMENTS_BY_DRIVER;
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = addresses_create(arena, chosen);
    bool refused =
        status && status != TARN_ERROR_DEVICE_LOST && status != TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (refused && chosen) {
        log_write(LOG_INFO, "plain segments: %s", tarn_last_error());
        arena->plain = true;
        store_is_of(&arena->store, KIND_PLAIN, 0);
        status = TARN_OK;
    }
    error_attempt_end(&before, status);
    return status;
}

static tarn_status arena_create(struct device *device, struct arena **result)
{
    if (memory_config()->segments == CONFIG_SEGMENTS_VIRTUAL && !device->properties.virtual_memory)
        return failed(TARN_ERROR_NOT_SUPPORTED, "segments:virtual: device %d has no virtual memory",
                      device->number);
    struct arena *arena = object_alloc(&arenas);
    if (!arena)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an arena");
    arena->device = device;
    arena->granule = device->properties.granule;
    arena->limit = SIZE_MAX;
    mutex_init(&arena->lock, LOCK_ARENA);
    mutex_init(&arena->sets.lock, LOCK_LEAF);
    shared_init(&arena->mapping, LOCK_MAPPING);
    shared_init(&arena->moves.moving, LOCK_MOVING);
    counters_init(&arena->counters, NULL);
    counters_init(&arena->own, &arena->counters);
    store_init(&arena->store, arena, &arena->own);
    store_init(&arena->uncached, arena, &arena->own);
    store_is_of(&arena->uncached,
                memory_config()->backend == CONFIG_ASYNC ? KIND_DRIVERS : KIND_UNCACHED, 0);
    store_init(&arena->imports, arena, NULL);
    store_is_of(&arena->imports, KIND_VIRTUAL, 0);
    arena->configured = arena->limit;
    arena_configure(arena, false);
    tarn_status status = arena->store.kind.pieces ? addresses_of_default(arena) : TARN_OK;
    if (!status) {
        *result = arena;
        return TARN_OK;
    }
    mutex_finish(&arena->sets.lock);
    mutex_finish(&arena->lock);
    shared_finish(&arena->moves.moving);
    shared_finish(&arena->mapping);
    object_free(&arenas, arena);
    return status;
}

tarn_status arena_of(struct device *device, struct arena **result)
{
    struct arena *arena = atomic_load_explicit(&by_device[device->number], memory_order_acquire);
    if (!arena) {
        tarn_status status = TARN_OK;
        mutex_lock(&arenas_lock);
        arena = atomic_load_explicit(&by_device[device->number], memory_order_relaxed);
        if (!arena) {
            status = arena_create(device, &arena);
            if (!status) {
                atomic_store_explicit(&by_device[device->number], arena, memory_order_release);
                /* Settings may have changed before arenas_configure() could find it. */
                arena_configure(arena, false);
            }
        }
        mutex_unlock(&arenas_lock);
        if (status)
            return status;
    }
    *result = arena;
    return TARN_OK;
}

struct arena *arena_if_used(int device)
{
    return atomic_load_explicit(&by_device[device], memory_order_acquire);
}

struct arena *arena_at(uintptr_t address)
{
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        struct arena *arena = atomic_load_explicit(&by_device[i], memory_order_acquire);
        if (arena && arena_has(arena, address))
            return arena;
    }
    return NULL;
}

bool arena_overlaps(uintptr_t start, size_t size)
{
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        struct arena *arena = atomic_load_explicit(&by_device[i], memory_order_acquire);
        if (arena &&
            (arena_has(arena, start) || (atomic_load(&arena->size) && arena->base - start < size)))
            return true;
    }
    return false;
}

/* Claims the machine's memory for an integrated device. A limit that was set takes the place of
 * what the machine has available. */
static tarn_status claim(const struct arena *arena, size_t size, size_t limit, enum charge charge)
{
    if (!arena->device->properties.fills_machine)
        return TARN_OK;
    return machine_claim(size, charge >= CHARGE_ADOPT || limit != SIZE_MAX);
}

/* Whether leave_free_mb would still stay free, and a device that is paged without a limit would not
 * be. The driver's count does not include the `creating` bytes yet; it does not say what the
 * driver's own pool could serve. */
static tarn_status check_free(const struct store *store, size_t size, size_t limit, size_t creating)
{
    struct arena *arena = store->arena;
    size_t leave = memory_config()->leave_free, free_bytes = 0, total_bytes = 0;
    bool pages = arena->device->properties.paged && limit == SIZE_MAX && !store->kind.ordered;
    if (leave == 0 && !pages)
        return TARN_OK;
    tarn_status status = device_note(
        arena->device, driver->memory_info(arena->device->number, &free_bytes, &total_bytes));
    if (status || (free_bytes >= leave && free_bytes - leave >= creating))
        return status;
    if (leave == 0)
        return failed(TARN_ERROR_OUT_OF_MEMORY,
                      "%zu more bytes on device %d, which has %zu free, would be paged out", size,
                      arena->device->number, free_bytes);
    return failed(TARN_ERROR_OUT_OF_MEMORY,
                  "%zu more bytes on device %d, which has %zu free, would leave less than "
                  "leave_free_mb (%zu)",
                  size, arena->device->number, free_bytes, leave / CONFIG_MIB);
}

void store_uncharge(struct store *store, size_t size, size_t creating)
{
    struct arena *arena = store->arena;
    if (arena->device->properties.fills_machine)
        machine_claim_end(creating);
    mutex_lock(&arena->lock);
    arena->reserved -= store->counters ? size : 0;
    arena->creating -= creating;
    store->reserved -= size;
    store_changed_locked(store);
    mutex_unlock(&arena->lock);
}

tarn_status store_charge(struct store *store, size_t size, enum charge charge, unsigned *flags)
{
    struct arena *arena = store->arena;
    mutex_lock(&arena->lock);
    size_t reserved = arena->reserved, limit = arena->limit, own = store->reserved,
           most = store->limit;
    *flags = store_flags(store);
    bool fits_device = charge == CHARGE_RETURN || (reserved <= limit && size <= limit - reserved);
    bool fits_pool = charge != CHARGE_GROWTH || (own <= most && size <= most - own);
    if (fits_device && fits_pool) {
        arena->reserved += size;
        arena->creating += size;
        store->reserved += size;
        store_changed_locked(store);
    }
    size_t creating = arena->creating;
    mutex_unlock(&arena->lock);
    if (fits_device && fits_pool) {
        tarn_status status = claim(arena, size, limit, charge);
        if (!status && charge < CHARGE_ADOPT)
            status = check_free(store, size, limit, creating);
        if (status)
            store_uncharge(store, size, size);
        return status;
    }
    if (fits_device)
        return failed(TARN_ERROR_OUT_OF_MEMORY,
                      "%zu more bytes exceed the limit of %zu bytes of pool (%llu, %llu), of which "
                      "%zu are reserved",
                      size, most, (unsigned long long)store->id[0],
                      (unsigned long long)store->id[1], own);
    return failed(
        TARN_ERROR_OUT_OF_MEMORY,
        "%zu more bytes exceed the limit of %zu bytes on device %d, of which %zu are reserved",
        size, limit, arena->device->number, reserved);
}

bool arena_finish(struct arena *arena)
{
    if (arena->reserved || arena->imports.reserved || arena->pools.list ||
        (arena->size && driver->unreserve(arena->device->number, arena->base, arena->size)))
        return false;
    atomic_store(&by_device[arena->device->number], NULL);
    tables_unmap(arena, granules(arena));
    pages_free(arena->uncached.heaps.of, arena->uncached.heaps.slots * sizeof(struct heap *));
    shared_finish(&arena->moves.moving);
    shared_finish(&arena->mapping);
    mutex_finish(&arena->lock);
    object_free(&arenas, arena);
    return true;
}

/* Only pieces: a driver that frees a plain segment waits for the device's work first. The memory of
 * a registrable pool stays in the same place on every rank. */
uint64_t store_idle_release(const struct store *store)
{
    const struct store_traits *kind = &store->kind;
    if (!kind->pieces || kind->fixed || store->idle_release == TARN_NO_IDLE_RELEASE)
        return 0;
    size_t ms = store->idle_release ? store->idle_release : memory_config()->idle_release;
    return (uint64_t)ms * UINT64_C(1000000);
}

/* Held stores keep their memory: a capture or a graph uses it, or a suspend is about to take it.
 * Anchored memory is used from outside, so its pool takes part only if observers say so. */
uint64_t store_rests(struct store *store)
{
    uint64_t time = store_idle_release(store);
    if (!time || store_is_held(store))
        return 0;
    switch (observed_by(store->arena->device->number)) {
    case OBSERVED_BY_ANY_THREAD:
        return time;
    case OBSERVED_BY_NONE:
        return hooks.anchors_any(store) ? 0 : time;
    default:
        return 0;
    }
}
