/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns every physical piece: creates and releases it, and keeps it in its store's list while it is
 * mapped nowhere. A piece is mapped, unmapped, stuck (mapping.c), or held by one thread. No driver
 * call is made under an arena's or a heap's lock. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/arena/arena.h"

static struct object_pool pieces = OBJECT_POOL(struct piece);

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

/* A piece that is still mapped somewhere is not released: the driver would keep the memory, and no
 * piece would name it. */
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

/* The piece is counted as freed first. Otherwise its memory could be counted twice, once another
 * thread gets it from the driver. */
tarn_status piece_release(struct piece *piece)
{
    struct store *store = piece->store;
    struct arena *arena = store->arena;
    bool counted = store->counters && !piece->temporary;
    if (counted)
        counters_segment_gone(store->counters, piece->size, true, piece->oversize);
    tarn_status status = release(piece);
    /* Tried again: a failure would count host memory as the device's. */
    if (status && piece->temporary)
        status = release(piece);
    if (status) {
        if (counted)
            counters_segment_back(store->counters, piece->size, true, piece->oversize);
        piece_join(piece);
        mutex_lock(&arena->lock);
        unmapped_push_locked(piece);
        mutex_unlock(&arena->lock);
        return status;
    }
    /* Last, since a store without memory may be destroyed. */
    if (!piece->temporary)
        store_uncharge(store, piece->size, 0);
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

/* The unmapped piece that fits best: with `cover` the smallest of `size` to `most` bytes, otherwise
 * the largest of at most `size`. */
static struct piece **cache_find_locked(struct store *store, size_t size, bool cover, size_t most)
{
    struct piece **best = NULL;
    for (struct piece **place = &store->unmapped.first; *place; place = &(*place)->next) {
        size_t found = (*place)->size;
        if ((*place)->flags & DRIVER_PIECE_HOST)
            continue; /* a second address is left from a failed unmap: it waits for its release */
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

void pieces_of_size_locked(struct store *store, size_t size, size_t wanted, struct piece_list *list)
{
    for (struct piece **place = &store->unmapped.first; *place && list->bytes < wanted;) {
        struct piece *piece = *place;
        if (piece->size != size || piece->flags & DRIVER_PIECE_HOST ||
            atomic_load(&piece->seconds)) {
            place = &piece->next;
            continue;
        }
        *place = piece->next;
        store->unmapped.bytes -= size;
        pieces_push(list, piece);
    }
    store_changed_locked(store);
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
    /* The store cannot use these pieces, so releasing them makes room. */
    if (!store->kind.pieces || store->piece_flags != from->piece_flags)
        return store_make_room(from, wanted);
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

/* On an empty device a piece has the memory divided by this. */
#define LARGEST_PIECE_PART 1280

/* Up to this many bytes, of a device or limit, pieces are an eighth: few blocks hold pieces in
 * place there. */
#define MOST_UNDIVIDED ((size_t)256 << 20)
#define SMALL_PIECE_PART 8

/* Below this size of piece_in_proportion_locked(), memory is short. Bytes. */
#define SHORT_PIECE ((size_t)8 << 20)

/* While memory is short, a piece may have this part of the device or limit, and this part of what
 * is left, up to SHORT_PIECE. */
#define SHORT_PIECE_PART 4096
#define SHORT_PIECE_PART_OF_LEFT 256

/* Bytes of the device, or of its limit if that is less. */
static size_t memory_locked(const struct arena *arena)
{
    size_t memory = arena->device->properties.memory;
    return arena->limit < memory ? arena->limit : memory;
}

/* Bytes of it that are not reserved. */
static size_t left_locked(const struct arena *arena)
{
    size_t most = memory_locked(arena);
    return most > arena->reserved ? most - arena->reserved : 0;
}

/* One live block holds a whole piece in place, so small pieces waste less. But each piece costs the
 * same driver calls. While much memory is left only the calls matter, and at the end only the
 * waste. So the size shrinks with the square of what is left. */
static size_t piece_in_proportion_locked(const struct arena *arena)
{
    size_t most = memory_locked(arena), left = left_locked(arena);
    return (size_t)((double)left / LARGEST_PIECE_PART * ((double)left / (double)(most + 1)));
}

/* While memory is short, the square would make thousands of pieces of a granule in a large program,
 * far from the end. */
static size_t piece_while_short_locked(const struct arena *arena)
{
    size_t size = memory_locked(arena) / SHORT_PIECE_PART,
           most = left_locked(arena) / SHORT_PIECE_PART_OF_LEFT;
    most = most < SHORT_PIECE ? most : SHORT_PIECE;
    return size < most ? size : most;
}

size_t piece_largest_locked(const struct arena *arena)
{
    size_t most = memory_locked(arena), largest = piece_in_proportion_locked(arena),
           least = piece_while_short_locked(arena);
    largest = largest > least ? largest : least;
    if (most <= MOST_UNDIVIDED)
        largest = most / SMALL_PIECE_PART > PIECE_LEAST_LARGE ? most / SMALL_PIECE_PART
                                                              : PIECE_LEAST_LARGE;
    largest = (largest + arena->granule - 1) / arena->granule * arena->granule;
    return largest > arena->granule ? largest : arena->granule;
}

bool memory_is_short_locked(const struct arena *arena)
{
    return piece_in_proportion_locked(arena) < SHORT_PIECE;
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
