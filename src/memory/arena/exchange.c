/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Exchanges the memory under a piece's addresses. Owns no data. The order of the steps keeps the
 * contents. The old piece is unmapped only after the driver has said that the copies into the new
 * pieces are complete. The caller releases it only after the new pieces can be reached. So at each
 * step the old piece or the new ones have the contents, and are mapped or can be mapped again. */
#include "memory/arena/exchange.h"
#include "base/status.h"
#include "device/capture.h"

static void enter(struct arena *arena, uintptr_t start, size_t size, struct piece *piece)
{
    struct piece **entry = &arena->pieces[(start - arena->base) / arena->granule];
    for (size_t i = 0; i < size / arena->granule; i++)
        entry[i] = piece;
}

static tarn_status map(struct arena *arena, uintptr_t start, const struct piece *piece)
{
    return device_note(arena->device,
                       driver->map(arena->device->number, start, piece->size, piece->handle));
}

static tarn_status unmap(struct arena *arena, uintptr_t start, size_t size)
{
    return device_note(arena->device, driver->unmap(arena->device->number, start, size));
}

/* Sets access for the device and its peers. */
static tarn_status access(struct arena *arena, uintptr_t start, size_t size)
{
    int devices[TARN_MAX_DEVICES], count = peers_of(arena->device, devices);
    return device_note(arena->device,
                       driver->set_access(arena->device->number, start, size, devices, count));
}

/* Scratch -------------------------------------------------------------------------------------- */

/* Maps the parts' pieces one behind the other. `end` is behind the last mapped one, also on
 * failure. */
static tarn_status scratch_map(struct arena *arena, struct exchange_part *parts, uintptr_t start,
                               uintptr_t *end)
{
    int device = arena->device->number;
    tarn_status status = TARN_OK;
    *end = start;
    shared_lock_shared(&arena->mapping);
    for (struct exchange_part *part = parts; part && !status; part = part->next) {
        status = map(arena, *end, part->piece);
        if (status)
            break;
        part->piece->address = *end;
        enter(arena, *end, part->size, part->piece);
        *end += part->size;
    }
    if (!status)
        status =
            device_note(arena->device, driver->set_access(device, start, *end - start, &device, 1));
    shared_unlock(&arena->mapping);
    return status;
}

/* Unmaps the pieces at scratch addresses. What the driver does not unmap, and what copies may still
 * use, stays claimed for a trim. */
static tarn_status scratch_unmap(struct arena *arena, struct exchange_part *parts, uintptr_t start,
                                 uintptr_t end, tarn_status waited)
{
    if (start == end)
        return TARN_OK;
    shared_lock_shared(&arena->mapping);
    tarn_status status = waited ? waited : unmap(arena, start, end - start);
    /* Tried again: memory that stayed mapped there would be lost to all. */
    if (status && !waited)
        status = unmap(arena, start, end - start);
    for (struct exchange_part *part = parts; part && !status; part = part->next)
        part->piece->address = 0;
    if (!status)
        enter(arena, start, end - start, NULL);
    shared_unlock(&arena->mapping);
    if (!status)
        return TARN_OK;
    for (struct exchange_part *part = parts; part; part = part->next) {
        if (!part->piece->address)
            continue;
        piece_join(part->piece);
        part->piece = NULL;
    }
    pieces_leave_stuck(arena, start, end - start);
    return status;
}

/* Copies the contents and waits. `waited`: whether the copies have ended, even if some failed. */
static tarn_status copy(struct arena *arena, const struct exchange_part *parts, tarn_status *waited)
{
    struct device *device = arena->device;
    driver_stream stream = device->legacy->native;
    tarn_status status = stream_refuse_capture(device->legacy, "a copy of memory that moves");
    if (status)
        return status;
    for (const struct exchange_part *part = parts; part && !status; part = part->next)
        status =
            driver->copy(device->number, part->piece->address, part->start, part->size, stream);
    tarn_status ended = driver->stream_synchronize(device->number, stream);
    *waited = ended ? device_wait(device, "a copy of memory that moves") : TARN_OK;
    return device_note(device, status ? status : ended);
}

tarn_status exchange_fill(struct arena *arena, struct exchange_part *parts)
{
    size_t size = 0;
    uintptr_t start = 0, end = 0;
    for (const struct exchange_part *part = parts; part; part = part->next)
        size += part->size;
    tarn_status waited = TARN_OK, status = arena_claim_high(arena, size, &start);
    if (status)
        return status;
    status = scratch_map(arena, parts, start, &end);
    if (!status)
        status = copy(arena, parts, &waited);
    tarn_status unmapped = scratch_unmap(arena, parts, start, end, waited);
    arena_unclaim(arena, unmapped ? end : start, size - (unmapped ? end - start : 0));
    return status ? status : unmapped;
}

/* Places --------------------------------------------------------------------------------------- */

static tarn_status place(struct arena *arena, struct exchange_part *part)
{
    tarn_status status = map(arena, part->start, part->piece);
    if (status)
        return status;
    part->piece->address = part->start;
    return access(arena, part->start, part->size);
}

/* Maps the piece again, after unmapping the parts' pieces that are mapped already. */
static tarn_status put_back(struct arena *arena, const struct piece *piece, uintptr_t start,
                            struct exchange_part *parts)
{
    for (struct exchange_part *part = parts; part; part = part->next) {
        tarn_status status = part->piece->address ? unmap(arena, part->start, part->size) : TARN_OK;
        if (status)
            return status;
        part->piece->address = 0;
    }
    tarn_status status = map(arena, start, piece);
    return status ? status : access(arena, start, piece->size);
}

tarn_status exchange_swap_locked(struct arena *arena, struct piece *piece,
                                 struct exchange_part *parts)
{
    uintptr_t start = piece->address;
    tarn_status status = unmap(arena, start, piece->size);
    if (status)
        return status;
    for (struct exchange_part *part = parts; part && !status; part = part->next)
        status = place(arena, part);
    if (status) {
        struct error_before cause;
        error_attempt_begin(&cause);
        tarn_status undone = put_back(arena, piece, start, parts);
        error_attempt_end(&cause, TARN_OK);
        if (undone)
            (void)device_note(arena->device, TARN_ERROR_DEVICE_LOST);
        for (struct exchange_part *part = parts; part; part = part->next)
            part->piece->address =
                0; /* a piece that could not be unmapped is gone when its mapping ends */
        if (undone)
            return failed(
                TARN_ERROR_DEVICE_LOST,
                "the memory at %p can be mapped neither to the new pieces nor back to the old one",
                (void *)start);
        return status;
    }
    enter(arena, start, piece->size, NULL);
    piece->address = 0;
    for (const struct exchange_part *part = parts; part; part = part->next)
        enter(arena, part->start, part->size, part->piece);
    return TARN_OK;
}
