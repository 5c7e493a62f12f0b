/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pins: pieces that stay where they are, whoever frees what lies in them. A piece is pinned while a live block lies in
 * it, under the lock of that block's heap, and so is never in a donor's hands then; later donors pass it over. */
#ifndef TARN_MEMORY_PIN_H
#define TARN_MEMORY_PIN_H

#include "memory/arena.h"

static inline bool piece_is_pinned(const struct piece *piece)
{
    return atomic_load(&piece->pins) != 0;
}

/* Pins the pieces of a range of a live block, with the lock of its heap held; takes that back, with any lock or none. */
void pieces_pin(const struct arena *arena, uintptr_t start, size_t size);
void pieces_unpin(const struct arena *arena, uintptr_t start, size_t size);

#endif
