/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns each device's address range, in which addresses.c keeps what is claimed, and every physical
 * piece. Makes the driver calls on memory, none of them under an arena's or a heap's lock. Keeps: a
 * piece is mapped once, unmapped, stuck, or in the hands of one thread; `reserved` is the bytes of
 * the pieces that exist, and never above the limit through growth. */
#include "memory/arena/arena.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/arena/generation.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"

static mutex arenas_lock = MUTEX_INITIALIZER(LOCK_ARENAS); /* of device->memory while it is made */
static struct object_pool arenas = OBJECT_POOL(struct arena);
static struct object_pool pieces = OBJECT_POOL(struct piece);
static _Atomic(struct arena *) by_device[TARN_MAX_DEVICES];

static size_t granules(const struct arena *arena)
{
    return arena->size / arena->granule;
}

/* Reserves an address range: four times the memory, less where the driver has less. A range that is
 * shorter than the memory would leave some of it unused, which plain segments do not. */
static tarn_status reserve(const struct arena *arena, uintptr_t *base, size_t *size)
{
    const struct driver_properties *known = &arena->device->properties;
    size_t least = known->memory / arena->granule * arena->granule,
           wanted = least * ARENA_ADDRESS_FACTOR;
    if (wanted > known->address_limit)
        wanted = known->address_limit / arena->granule * arena->granule;
    tarn_status status =
        wanted < least || !wanted
            ? failed(TARN_ERROR_OUT_OF_MEMORY, "the process may have %zu bytes of addresses in all",
                     known->address_limit)
            : TARN_ERROR_OUT_OF_MEMORY;
    for (; wanted >= least && wanted > 0; wanted = wanted / 2 / arena->granule * arena->granule) {
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
    mutex_init(&store->lookup, LOCK_LOOKUP);
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

/* Sets the limit of the settings if it has changed; otherwise a limit that the caller has set
 * stays. */
static void arena_configure(struct arena *arena)
{
    mutex_lock(&arena->lock);
    size_t limit = config_limit(memory_config(), arena->device->properties.memory);
    if (limit != arena->configured)
        arena->configured = arena->limit = limit;
    counters_max_split(&arena->counters, store_max_split(&arena->store));
    counters_max_split(&arena->own, store_max_split(&arena->store));
    for (const struct store *store = arena->stores; store; store = store->next)
        counters_max_split(store->counters, store_max_split(store));
    mutex_unlock(&arena->lock);
}

void arenas_configure(void)
{
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        struct arena *arena = arena_if_used(i);
        if (arena)
            arena_configure(arena);
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
static tarn_status addresses_create(struct arena *arena)
{
    uintptr_t base = 0;
    size_t size = 0;
    tarn_status status = reserve(arena, &base, &size);
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
    tarn_status status = atomic_load(&arena->size) ? TARN_OK : addresses_create(arena);
    mutex_unlock(&arenas_lock);
    return status;
}

/* The addresses of a default pool that is virtual. Where the settings leave the choice to tarn, and
 * the driver refuses every range, for whatever reason, the device is one without virtual memory: on
 * some machines free memory comes without room in the driver's addresses
 * (ggml-org/llama.cpp#29142). */
static tarn_status addresses_of_default(struct arena *arena)
{
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = addresses_create(arena);
    bool refused =
        status && status != TARN_ERROR_DEVICE_LOST && status != TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (refused && memory_config()->segments == CONFIG_SEGMENTS_BY_DRIVER) {
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
    mutex_init(&arena->sets_lock, LOCK_SETS);
    shared_init(&arena->mapping, LOCK_MAPPING);
    shared_init(&arena->moving, LOCK_MOVING);
    counters_init(&arena->counters, NULL);
    counters_init(&arena->own, &arena->counters);
    store_init(&arena->store, arena, &arena->own);
    store_init(&arena->uncached, arena, &arena->own);
    store_is_of(&arena->uncached,
                memory_config()->backend == CONFIG_ASYNC ? KIND_DRIVERS : KIND_UNCACHED, 0);
    store_init(&arena->imports, arena, NULL);
    store_is_of(&arena->imports, KIND_VIRTUAL, 0);
    arena->configured = arena->limit;
    arena_configure(arena);
    tarn_status status = arena->store.kind.pieces ? addresses_of_default(arena) : TARN_OK;
    if (!status) {
        *result = arena;
        return TARN_OK;
    }
    mutex_finish(&arena->sets_lock);
    mutex_finish(&arena->lock);
    shared_finish(&arena->moving);
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
                arena_configure(arena); /* for changes from before arenas_configure() could find
                                           it */
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

/* Whether as much memory stays free as leave_free_mb demands; the driver's count does not include
 * `creating` bytes yet. */
static tarn_status check_free(struct arena *arena, size_t size, size_t creating)
{
    size_t leave = memory_config()->leave_free, free_bytes = 0, total_bytes = 0;
    if (leave == 0)
        return TARN_OK;
    tarn_status status = device_note(
        arena->device, driver->memory_info(arena->device->number, &free_bytes, &total_bytes));
    if (status || (free_bytes >= leave && free_bytes - leave >= creating))
        return status;
    return failed(TARN_ERROR_OUT_OF_MEMORY,
                  "%zu more bytes on device %d, which has %zu free, would leave less than "
                  "leave_free_mb (%zu)",
                  size, arena->device->number, free_bytes, leave / CONFIG_MIB);
}

void store_uncharge(struct store *store, size_t size, size_t creating)
{
    struct arena *arena = store->arena;
    mutex_lock(&arena->lock);
    arena->reserved -= store->counters ? size : 0;
    arena->creating -= creating;
    store->reserved -= size;
    store_changed_locked(store);
    mutex_unlock(&arena->lock);
}

/* Charges `size` bytes to the limits before the driver is asked, and returns how the memory is to
 * be created. */
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
        tarn_status status = charge == CHARGE_RETURN ? TARN_OK : check_free(arena, size, creating);
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

static tarn_status create(struct store *store, size_t size, bool temporary, enum charge charge,
                          struct piece **result)
{
    struct arena *arena = store->arena;
    struct piece *piece = object_alloc(&pieces);
    if (!piece)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a piece");
    piece->flags = DRIVER_PIECE_HOST;
    tarn_status status = temporary ? TARN_OK : store_charge(store, size, charge, &piece->flags);
    if (status)
        goto fail;
    status = device_note(arena->device,
                         driver->create(arena->device->number, size, piece->flags, &piece->handle));
    if (!temporary)
        store_uncharge(store, status ? size : 0, size);
    if (status)
        goto fail;
    piece->store = store;
    piece->size = size;
    piece->temporary = temporary;
    if (!temporary)
        piece->oversize = counters_segment(store->counters, size, true);
    *result = piece;
    return TARN_OK;

fail:
    object_free(&pieces, piece);
    return status;
}

tarn_status piece_create(struct store *store, size_t size, enum charge charge, struct piece **piece)
{
    return create(store, size, false, charge, piece);
}

tarn_status piece_create_temporary(struct store *store, size_t size, struct piece **piece)
{
    return create(store, size, true, CHARGE_RETURN, piece);
}

void piece_join(struct piece *piece)
{
    struct arena *arena = piece->store->arena;
    if (!piece->temporary)
        return;
    piece->temporary = false;
    mutex_lock(&arena->lock);
    arena->reserved += piece->size;
    piece->store->reserved += piece->size;
    store_changed_locked(piece->store);
    mutex_unlock(&arena->lock);
    piece->oversize = counters_segment(piece->store->counters, piece->size, true);
}

tarn_status piece_import(struct arena *arena, int file, size_t size, struct piece **result)
{
    struct piece *piece = object_alloc(&pieces);
    if (!piece)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a piece");
    int device = arena->device->number;
    tarn_status status =
        device_note(arena->device, driver->import(device, file, size, &piece->handle));
    if (status) {
        object_free(&pieces, piece);
        return status;
    }
    piece->store = &arena->imports;
    piece->size = size;
    mutex_lock(&arena->lock);
    arena->imports.reserved += size;
    mutex_unlock(&arena->lock);
    *result = piece;
    return TARN_OK;
}

/* The driver would keep the memory of a piece that is still mapped somewhere, though nothing names
 * it any more. */
static tarn_status release(const struct piece *piece)
{
    struct arena *arena = piece->store->arena;
    if (atomic_load(&piece->seconds))
        return failed(TARN_ERROR_DRIVER,
                      "%zu bytes of device %d are still mapped at a second address, which the "
                      "driver refused to unmap; "
                      "a trim tries again",
                      piece->size, arena->device->number);
    return device_note(arena->device, driver->release(arena->device->number, piece->handle));
}

/* Counted as freed before it is freed, so that it never counts together with memory that the driver
 * then gives to another thread. */
tarn_status piece_release(struct piece *piece)
{
    struct store *store = piece->store;
    struct arena *arena = store->arena;
    bool counted = store->counters && !piece->temporary;
    if (counted)
        counters_segment_gone(store->counters, piece->size, true, piece->oversize);
    tarn_status status = release(piece);
    if (status && piece->temporary) /* once more: a failure would count host memory as the
                                       device's */
        status = release(piece);
    if (status) {
        if (counted)
            counters_segment_kept(store->counters, piece->size, true, piece->oversize);
        piece_join(piece);
        mutex_lock(&arena->lock);
        unmapped_push_locked(piece);
        mutex_unlock(&arena->lock);
        return status;
    }
    if (!piece->temporary)
        store_uncharge(store, piece->size, 0); /* last: a store without memory may go */
    object_free(&pieces, piece);
    return TARN_OK;
}

void pieces_push(struct piece_list *list, struct piece *piece)
{
    piece->next = list->first;
    list->first = piece;
    list->bytes += piece->size;
}

void pieces_append(struct piece_list *list, struct piece_list *more)
{
    struct piece **end = &list->first;
    while (*end)
        end = &(*end)->next;
    *end = more->first;
    list->bytes += more->bytes;
    *more = (struct piece_list){0};
}

struct piece *pieces_pop(struct piece_list *list)
{
    struct piece *piece = list->first;
    if (piece) {
        list->first = piece->next;
        list->bytes -= piece->size;
        piece->next = NULL;
    }
    return piece;
}

void pieces_to_unmapped(struct arena *arena, struct piece_list *list)
{
    struct piece *piece;
    mutex_lock(&arena->lock);
    while ((piece = pieces_pop(list)))
        unmapped_push_locked(piece);
    mutex_unlock(&arena->lock);
}

/* Writes the entries of a mapped piece, or clears them. */
static void enter_piece(struct arena *arena, const struct piece *piece, struct piece *value)
{
    struct piece **entry = &arena->pieces[(piece->address - arena->base) / arena->granule];
    for (size_t i = 0; i < piece->size / arena->granule; i++)
        entry[i] = value;
}

/* Undoes a mapping that failed after the pieces before `unmapped` were mapped, up to `address`.
 * Pieces that the driver refuses to unmap stay where they are, for a later trim: returns their
 * bytes. */
static size_t map_undo(struct arena *arena, struct piece_list *list, const struct piece *unmapped,
                       uintptr_t start, uintptr_t address)
{
    bool stuck =
        address > start &&
        device_note(arena->device, driver->unmap(arena->device->number, start, address - start));
    bool mapped = true;
    struct piece *piece;

    mutex_lock(&arena->lock);
    for (piece = list->first; piece; piece = list->first) {
        mapped = mapped && piece != unmapped;
        pieces_pop(list);
        if (mapped && !stuck) {
            enter_piece(arena, piece, NULL);
            piece->address = 0;
        }
        if (mapped && stuck)
            pieces_push(&arena->stuck, piece);
        else
            unmapped_push_locked(piece);
    }
    mutex_unlock(&arena->lock);
    return stuck ? address - start : 0;
}

/* Sets access for the device and its peers. */
static tarn_status access_shared(struct arena *arena, uintptr_t start, size_t size)
{
    int devices[TARN_MAX_DEVICES], count = peers_of(arena->device, devices);
    return device_note(arena->device,
                       driver->set_access(arena->device->number, start, size, devices, count));
}

static tarn_status map_shared(struct arena *arena, struct piece_list *list, uintptr_t start,
                              size_t before, size_t *left)
{
    int device = arena->device->number;
    uintptr_t address = start, end = start + list->bytes;
    struct piece *piece;
    tarn_status status = TARN_OK;
    for (piece = list->first; piece; piece = piece->next) {
        status =
            device_note(arena->device, driver->map(device, address, piece->size, piece->handle));
        if (status)
            break;
        piece->address = address;
        enter_piece(arena, piece, piece);
        address += piece->size;
    }
    if (!status) {
        status = access_shared(arena, start - before, end - start + before);
    }
    if (status)
        *left = map_undo(arena, list, piece, start, address);
    return status;
}

/* If the device is lost, memory stays where it is, because it is unknown what still uses it. */
static tarn_status unmap(struct arena *arena, uintptr_t start, size_t size)
{
    tarn_status status = device_check(arena->device);
    return status ? status
                  : device_note(arena->device, driver->unmap(arena->device->number, start, size));
}

static tarn_status unmap_shared(struct arena *arena, uintptr_t start, size_t size,
                                struct piece_list *list)
{
    tarn_status status = unmap(arena, start, size);
    if (status)
        return status;
    for (uintptr_t address = start; address < start + size;) {
        struct piece *piece = arena_piece(arena, address);
        address += piece->size;
        enter_piece(arena, piece, NULL);
        piece->address = 0;
        pieces_push(list, piece);
    }
    return TARN_OK;
}

/* Maps pieces; on failure unmaps those that it has mapped, as far as the driver allows. */
static tarn_status map_claimed_shared(struct arena *arena, struct piece_list *list, uintptr_t start)
{
    uintptr_t address = start;
    struct piece_list left = {0};
    tarn_status status = TARN_OK;
    while (list->first) {
        status = device_note(arena->device, driver->map(arena->device->number, address,
                                                        list->first->size, list->first->handle));
        if (status)
            break;
        struct piece *piece = pieces_pop(list);
        piece->address = address;
        enter_piece(arena, piece, piece);
        address += piece->size;
    }
    if (status && address > start)
        (void)unmap_shared(arena, start, address - start, &left);
    pieces_to_unmapped(arena, &left);
    pieces_to_unmapped(arena, list);
    return status;
}

/* `mapping` is held over driver calls, so that code that enables a peer sees each mapping either
 * complete, with its access, or not begun. Code that maps or unmaps shares it. */
tarn_status pieces_map(struct arena *arena, struct piece_list *list, uintptr_t start, size_t before,
                       size_t *left)
{
    size_t size = list->bytes;
    shared_lock_shared(&arena->mapping);
    tarn_status status = map_shared(arena, list, start, before, left);
    shared_unlock(&arena->mapping);
    if (!status)
        generation_begin(arena, start - before, before + size);
    return status;
}

tarn_status pieces_map_claimed(struct arena *arena, struct piece_list *list, uintptr_t start)
{
    shared_lock_shared(&arena->mapping);
    tarn_status status = map_claimed_shared(arena, list, start);
    shared_unlock(&arena->mapping);
    return status;
}

tarn_status arena_access(struct arena *arena, uintptr_t start, size_t size)
{
    shared_lock_shared(&arena->mapping);
    tarn_status status = access_shared(arena, start, size);
    shared_unlock(&arena->mapping);
    if (!status)
        generation_begin(arena, start, size);
    return status;
}

tarn_status pieces_unmap(struct arena *arena, uintptr_t start, size_t size, struct piece_list *list)
{
    generation_ends(arena, start, size);
    shared_lock_shared(&arena->mapping);
    tarn_status status = unmap_shared(arena, start, size, list);
    shared_unlock(&arena->mapping);
    generation_ended(arena, start, size, !status);
    return status;
}

static struct piece **second_at(const struct arena *arena, uintptr_t address)
{
    return &arena->seconds[(address - arena->base) / arena->granule];
}

static void second_begin(struct arena *arena, struct piece *piece, uintptr_t second)
{
    *second_at(arena, second) = piece;
    atomic_fetch_add(&piece->seconds, 1);
}

/* A piece may be released, and gone, once its last second address is. */
static void seconds_end(struct arena *arena, uintptr_t start, size_t size)
{
    for (uintptr_t second = start; second < start + size; second += arena->granule) {
        struct piece *piece = *second_at(arena, second);
        *second_at(arena, second) = NULL;
        if (piece)
            atomic_fetch_sub(&piece->seconds, 1);
    }
}

static tarn_status alias_shared(struct arena *arena, uintptr_t start, size_t size, uintptr_t second,
                                size_t *left)
{
    int device = arena->device->number;
    for (uintptr_t address = start; address < start + size;) {
        struct piece *piece = arena_piece(arena, address);
        tarn_status status =
            device_note(arena->device, driver->map(device, second + (address - start), piece->size,
                                                   piece->handle));
        if (status) {
            bool stuck = address > start &&
                         device_note(arena->device, driver->unmap(device, second, address - start));
            if (!stuck)
                seconds_end(arena, second, address - start);
            *left = stuck ? address - start : 0;
            return status;
        }
        second_begin(arena, piece, second + (address - start));
        address += piece->size;
    }
    return TARN_OK;
}

tarn_status pieces_alias(struct arena *arena, uintptr_t start, size_t size, uintptr_t second,
                         size_t *left)
{
    shared_lock_shared(&arena->mapping);
    tarn_status status = alias_shared(arena, start, size, second, left);
    shared_unlock(&arena->mapping);
    return status;
}

void pieces_move(struct arena *arena, uintptr_t start, size_t size, uintptr_t second)
{
    for (uintptr_t address = start; address < start + size;) {
        struct piece *piece = arena_piece(arena, address);
        enter_piece(arena, piece, NULL);
        *second_at(arena, address) = piece;
        piece->address = second + (address - start);
        *second_at(arena, piece->address) = NULL;
        enter_piece(arena, piece, piece);
        address += piece->size;
    }
}

tarn_status arena_unmap(struct arena *arena, uintptr_t start, size_t size)
{
    generation_ends(arena, start, size);
    shared_lock_shared(&arena->mapping);
    tarn_status status = unmap(arena, start, size);
    shared_unlock(&arena->mapping);
    generation_ended(arena, start, size, !status);
    if (!status)
        seconds_end(arena, start, size);
    return status;
}

/* The first piece mapped at `address` or after it; NULL if there is none. */
static const struct piece *mapped_from(const struct arena *arena, uintptr_t address)
{
    for (size_t i = (address - arena->base) / arena->granule; i < granules(arena); i++)
        if (arena->pieces[i])
            return arena->pieces[i];
    return NULL;
}

static tarn_status grant_alone(struct arena *arena, int peer)
{
    tarn_status status = TARN_OK;
    const struct piece *piece;
    for (uintptr_t address = arena->base; !status && (piece = mapped_from(arena, address));) {
        uintptr_t start = piece->address;
        for (address = start; piece && piece->address == address;
             piece = address < arena->base + arena->size ? arena_piece(arena, address) : NULL)
            address += piece->size;
        status = device_note(arena->device, driver->set_access(arena->device->number, start,
                                                               address - start, &peer, 1));
    }
    return status;
}

tarn_status arena_grant(struct device *device, int peer)
{
    struct arena *arena = atomic_load_explicit(&by_device[device->number], memory_order_acquire);
    if (!arena)
        return TARN_OK;
    shared_lock_alone(&arena->mapping);
    tarn_status status = grant_alone(arena, peer);
    shared_unlock(&arena->mapping);
    return status;
}

/* The unmapped piece that fits best: the largest of at most `size` bytes, or with `cover` the
 * smallest of `size` to `most`. */
static struct piece **cache_find_locked(struct store *store, size_t size, bool cover, size_t most)
{
    struct piece **best = NULL;
    for (struct piece **place = &store->unmapped.first; *place; place = &(*place)->next) {
        size_t found = (*place)->size;
        if ((*place)->flags & DRIVER_PIECE_HOST)
            continue; /* slow, and left over from a failure: it waits for its release */
        if (cover ? found < size || found > most || (best && found >= (*best)->size)
                  : found > size || (best && found <= (*best)->size))
            continue;
        best = place;
    }
    return best;
}

void pieces_from_unmapped_locked(struct store *store, size_t wanted, size_t most,
                                 struct piece_list *list)
{
    while (list->bytes < wanted) {
        size_t missing = wanted - list->bytes;
        struct piece **place = cache_find_locked(store, missing, false, missing);
        if (!place)
            place = cache_find_locked(store, missing, true,
                                      most > list->bytes ? most - list->bytes : 0);
        if (!place)
            return;
        struct piece *piece = *place;
        *place = piece->next;
        store->unmapped.bytes -= piece->size;
        store_changed_locked(store);
        pieces_push(list, piece);
    }
}

size_t store_make_room(struct store *from, size_t wanted)
{
    struct error_before before;
    size_t given = 0;
    error_attempt_begin(&before);
    for (tarn_status status = TARN_OK; !status && given < wanted;) {
        mutex_lock(&from->arena->lock);
        struct piece *piece = unmapped_pop_locked(from);
        mutex_unlock(&from->arena->lock);
        if (!piece)
            break;
        size_t size = piece->size;
        status = piece_release(piece);
        given += status ? 0 : size;
    }
    error_attempt_end(&before, TARN_OK);
    return given;
}

size_t store_take(struct store *store, struct store *from, size_t wanted)
{
    struct arena *arena = store->arena;
    size_t taken = 0, room;
    struct piece *piece;
    if (!store->kind.pieces || store->piece_flags != from->piece_flags)
        return store_make_room(from, wanted); /* the store cannot use these pieces; releasing them
                                                 makes room */
    mutex_lock(&arena->lock);
    room = store->limit > store->reserved ? store->limit - store->reserved : 0;
    while (taken < wanted && (piece = from->unmapped.first) && piece->size <= room - taken) {
        pieces_pop(&from->unmapped);
        piece->store = store;
        pieces_push(&store->unmapped, piece);
        taken += piece->size;
        piece->oversize = counters_segment_move(from->counters, store->counters, piece->size, true,
                                                piece->oversize);
    }
    from->reserved -= taken;
    store->reserved += taken;
    store_changed_locked(from);
    store_changed_locked(store);
    mutex_unlock(&arena->lock);
    return taken;
}

tarn_status store_release_unmapped(struct store *store, size_t keep)
{
    struct arena *arena = store->arena;
    for (;;) {
        mutex_lock(&arena->lock);
        struct piece *piece = store->reserved > keep ? unmapped_pop_locked(store) : NULL;
        mutex_unlock(&arena->lock);
        if (!piece)
            return TARN_OK;
        tarn_status status = piece_release(piece);
        if (status)
            return status;
    }
}

void pieces_leave_stuck(struct arena *arena, uintptr_t start, size_t size)
{
    mutex_lock(&arena->lock);
    for (uintptr_t address = start; address < start + size;) {
        struct piece *piece = arena_piece(arena, address);
        address += piece->size;
        pieces_push(&arena->stuck, piece);
    }
    mutex_unlock(&arena->lock);
}

tarn_status arena_free_stuck(struct arena *arena)
{
    for (;;) {
        mutex_lock(&arena->lock);
        struct piece *piece = pieces_pop(&arena->stuck);
        mutex_unlock(&arena->lock);
        if (!piece)
            return store_release_unmapped(&arena->imports, 0);
        struct piece_list list = {0};
        uintptr_t start = piece->address;
        tarn_status status = pieces_unmap(arena, start, piece->size, &list);
        if (status) {
            mutex_lock(&arena->lock);
            pieces_push(&arena->stuck, piece);
            mutex_unlock(&arena->lock);
            return status;
        }
        arena_unclaim(arena, start, list.bytes);
        pieces_to_unmapped(arena, &list);
    }
}

bool arena_finish(struct arena *arena)
{
    if (arena->reserved || arena->imports.reserved || arena->stores ||
        (arena->size && driver->unreserve(arena->device->number, arena->base, arena->size)))
        return false;
    atomic_store(&by_device[arena->device->number], NULL);
    tables_unmap(arena, granules(arena));
    pages_free(arena->uncached.heaps, arena->uncached.heap_slots * sizeof(struct heap *));
    shared_finish(&arena->moving);
    shared_finish(&arena->mapping);
    mutex_finish(&arena->lock);
    object_free(&arenas, arena);
    return true;
}

/* On an empty device a piece is this part of the memory. */
#define LARGEST_PIECE_PART 1280

/* A device or limit of at most these bytes is not divided so finely. Few blocks hold pieces in
 * place there, so a piece is an eighth. */
#define MOST_UNDIVIDED ((size_t)512 << 20)
#define SMALL_PIECE_PART 8

/* One live block holds a whole piece in place, so small pieces waste less; but each piece costs the
 * same driver calls. While much memory is left, only the calls matter; when little is left, only
 * the waste. So the size of a piece shrinks with the square of what is left. */
size_t piece_largest_locked(const struct arena *arena)
{
    size_t memory = arena->device->properties.memory,
           most = arena->limit < memory ? arena->limit : memory;
    size_t left = most > arena->reserved ? most - arena->reserved : 0;
    size_t largest =
        (size_t)((double)left / LARGEST_PIECE_PART * ((double)left / (double)(most + 1)));
    if (most <= MOST_UNDIVIDED)
        largest = most / SMALL_PIECE_PART > PIECE_LEAST_LARGE ? most / SMALL_PIECE_PART
                                                              : PIECE_LEAST_LARGE;
    largest = (largest + arena->granule - 1) / arena->granule * arena->granule;
    return largest > arena->granule ? largest : arena->granule;
}

tarn_status pieces_create(struct store *store, size_t size, size_t largest, enum charge charge,
                          struct piece_list *list)
{
    while (list->bytes < size) {
        size_t left = size - list->bytes;
        struct piece *piece = NULL;
        tarn_status status =
            piece_create(store, left <= largest + largest / 2 ? left : largest, charge, &piece);
        if (status) {
            while ((piece = pieces_pop(list)))
                (void)piece_release(piece);
            return status;
        }
        pieces_push(list, piece);
    }
    return TARN_OK;
}
