/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns where pieces are mapped: the arena's entries of first and second addresses, which change
 * only in claimed addresses, and stuck pieces, which the driver refused to unmap. Makes all driver
 * calls that map, unmap and set access there, except those of exchange.c, and none under an arena's
 * or a heap's lock.
 *
 * Code that maps or unmaps shares `mapping` over these calls. So code that enables a peer sees each
 * mapping either complete, with its access, or not begun. */
#include "base/status.h"
#include "device/capture.h"
#include "memory/arena/arena.h"
#include "memory/arena/generation.h"

/* Writes the entries of a mapped piece, or clears them. */
static void enter_piece(struct arena *arena, const struct piece *piece, struct piece *value)
{
    struct piece **entry = &arena->pieces[(piece->address - arena->base) / arena->granule];
    for (size_t i = 0; i < piece->size / arena->granule; i++)
        entry[i] = value;
}

/* Undoes a mapping that failed at `address`: the pieces before `unmapped` are mapped. Pieces that
 * the driver refuses to unmap stay there for a later trim. Returns their bytes. */
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

/* On a lost device memory stays mapped, because it is unknown what still uses it. */
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

/* Maps pieces. On failure unmaps those that it has mapped, as far as the driver allows. */
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

/* Removes entries of second addresses. After its last one, another thread may release a piece at
 * any time. */
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
    for (size_t i = (address - arena->base) / arena->granule; i < arena->size / arena->granule; i++)
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
    /* A growth may have set access at second addresses, to which it moves the pieces next. */
    for (size_t i = 0; i < arena->size / arena->granule && !status; i++)
        if (arena->seconds[i])
            status =
                device_note(arena->device, driver->set_access(arena->device->number,
                                                              arena->base + i * arena->granule,
                                                              arena->seconds[i]->size, &peer, 1));
    return status;
}

tarn_status arena_grant(struct device *device, int peer)
{
    struct arena *arena = arena_if_used(device->number);
    if (!arena)
        return TARN_OK;
    shared_lock_alone(&arena->mapping);
    tarn_status status = grant_alone(arena, peer);
    shared_unlock(&arena->mapping);
    return status ? status : hooks.keeps_grant(device, peer);
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
